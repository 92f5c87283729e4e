/* GroupQueryAttention, lowered and expanded to primitives, against the double-precision oracle on
 * random cases; who sees whom; and the promise itself: the same bits however the tokens are split,
 * and whatever lies in rows that nobody may read. */
#include "oracle/gqa_core.h"
#include "support_graph.h"
#include "unit.h"

#include <stdio.h>

#include "numerics/convert.h"
#include "ops/shared.h"

enum { QUERY, KEY, VALUE, PAST_KEY, PAST_VALUE, SEQLENS, TOTAL, COS, SIN, Q_NORM = 14, K_NORM };

/* One call of the op: the shape, and what goes in. */
typedef struct setup {
    gqac_arena *arena;
    gqac_dtype dtype;
    int batch, chunk, past_rows, total, q_heads, kv_heads, size;
    int rotary, interleaved, window;
    bool packed, has_past, norms;
    float scale, softcap;
    int past[8], fresh[8]; /* what must come out of seqlens_to_past */
    gqac_tensor in[16];
    bool present[16]; /* which inputs there are */
} setup;

static int64_t seqlens_of(const setup *s, int b) {
    return s->past[b] + s->fresh[b] - 1;
}

static void put(setup *s, int input, gqac_tensor tensor) {
    s->in[input] = tensor;
    s->present[input] = true;
}

/* Rows nobody may read hold NaN, or `garbage` noise of another kind. */
static void poison(const gqac_tensor *t, int64_t first, int64_t n, test_random *garbage) {
    for (int64_t i = first; i < first + n; i++)
        op_put_f32((gqac_tensor *)(uintptr_t)t, i,
                   garbage ? 100 * test_random_float(garbage) : gqn_as_f32(0x7fc01234u));
}

static void poison_unread(const setup *s, test_random *garbage) {
    int heads[3] = {s->q_heads, s->kv_heads, s->kv_heads};
    int packed = s->packed ? s->q_heads + 2 * s->kv_heads : 0;
    for (int b = 0; b < s->batch; b++) {
        for (int i = 0; i < (s->packed ? 1 : 3); i++) {
            int64_t width = (int64_t)(packed ? packed : heads[i]) * s->size;
            poison(&s->in[QUERY + i], (b * s->chunk + s->fresh[b]) * width,
                   (s->chunk - s->fresh[b]) * width, garbage);
        }
        for (int g = 0; s->has_past && g < s->kv_heads; g++)
            for (int i = PAST_KEY; i <= PAST_VALUE; i++)
                poison(&s->in[i],
                       ((b * s->kv_heads + g) * (int64_t)s->past_rows + s->past[b]) * s->size,
                       (int64_t)(s->past_rows - s->past[b]) * s->size, garbage);
    }
}

static void fill(setup *s, test_random *r) {
    int width = s->packed ? s->q_heads + 2 * s->kv_heads : s->q_heads;
    gqac_arena *a = s->arena;
    put(s, QUERY, test_floats(a, s->dtype, 3, (int64_t[]){s->batch, s->chunk, width * s->size}, r));
    for (int i = KEY; i <= VALUE && !s->packed; i++)
        put(s, i,
            test_floats(a, s->dtype, 3, (int64_t[]){s->batch, s->chunk, s->kv_heads * s->size}, r));
    for (int i = PAST_KEY; i <= PAST_VALUE && s->has_past; i++)
        put(s, i,
            test_floats(a, s->dtype, 4, (int64_t[]){s->batch, s->kv_heads, s->past_rows, s->size},
                        r));
    int64_t seqlens[8], total = s->total;
    for (int b = 0; b < s->batch; b++)
        seqlens[b] = seqlens_of(s, b);
    int loose = test_random_int(r, 0, 2);
    const int64_t shapes[3][2] = {{s->batch}, {s->batch, 1}, {1, s->batch}};
    put(s, SEQLENS, test_ints(a, GQAC_I32, loose ? 2 : 1, shapes[loose], seqlens));
    put(s, TOTAL, test_ints(a, GQAC_I32, test_random_int(r, 0, 1), (int64_t[]){1}, &total));
    if (s->rotary > 0) {
        int rows = (s->total > s->past_rows ? s->total : s->past_rows) + test_random_int(r, 0, 3);
        put(s, COS, test_tensor(a, s->dtype, 2, (int64_t[]){rows, s->rotary / 2}));
        put(s, SIN, test_tensor(a, s->dtype, 2, (int64_t[]){rows, s->rotary / 2}));
        for (int i = 0; i < rows * s->rotary / 2; i++) {
            double angle =
                i / (s->rotary / 2) * pow(10000, -2.0 * (i % (s->rotary / 2)) / s->rotary);
            op_put_f32(&s->in[COS], i, (float)cos(angle));
            op_put_f32(&s->in[SIN], i, (float)sin(angle));
        }
    }
    for (int i = Q_NORM; i <= K_NORM && s->norms; i++)
        put(s, i, test_floats(a, s->dtype, 1, (int64_t[]){s->size}, r));
}

static int pick(test_random *r, const int *of, int n) {
    return of[test_random_int(r, 0, n - 1)];
}

/* Lengths of a first prompt, a chunk or decode step on a growing cache, or one on a static buffer.
 */
static void random_lengths(setup *s, test_random *r) {
    static const int pasts[] = {1, 2, 5, 31, 62, 63, 64, 65, 66, 127, 130};
    static const int chunks[] = {1, 1, 1, 2, 3, 4, 7, 16, 17, 33, 65};
    int mode = test_random_int(r, 0, 3);
    s->chunk = pick(r, chunks, 11);
    s->past_rows = pick(r, pasts, 11);
    s->total = s->past_rows + s->chunk;
    s->has_past = true;
    if (mode == 0) { /* first prompt, without past or with an empty or a large one */
        s->has_past = test_random_int(r, 0, 2) > 0;
        s->past_rows = s->has_past && test_random_int(r, 0, 1) ? s->chunk + pick(r, pasts, 11) : 0;
        s->total = s->chunk;
    } else if (mode == 3) {
        s->past_rows += s->chunk + test_random_int(r, 0, 9);
        s->total = test_random_int(r, s->chunk + 1, s->past_rows);
    }
    for (int b = 0; b < s->batch; b++) {
        s->past[b] = mode == 0 ? 0 : test_random_int(r, 0, s->total - s->chunk);
        if (b == 0 && mode != 0)
            s->past[b] = s->total - s->chunk;
        s->fresh[b] =
            mode == 0 && test_random_int(r, 0, 1) ? test_random_int(r, 1, s->chunk) : s->chunk;
    }
}

static void random_shape(setup *s, test_random *r) {
    static const int sizes[] = {8, 16, 24, 40, 64}, groups[] = {1, 2, 3, 5, 7};
    static const gqac_dtype dtypes[] = {GQAC_F32, GQAC_F32, GQAC_F32, GQAC_F16, GQAC_BF16};
    s->dtype = dtypes[test_random_int(r, 0, 4)];
    s->batch = test_random_int(r, 1, 4);
    s->kv_heads = test_random_int(r, 1, 3);
    s->q_heads = s->kv_heads * pick(r, groups, 5);
    s->size = pick(r, sizes, 5);
    s->packed = test_random_int(r, 0, 1);
    s->norms = test_random_int(r, 0, 4) == 0;
    s->rotary = test_random_int(r, 0, 3) ? s->size : 0;
    if (s->rotary > 0 && test_random_int(r, 0, 2) == 0)
        s->rotary = s->size / 4 * 2;
    s->interleaved = test_random_int(r, 0, 1);
    s->softcap = test_random_int(r, 0, 3) ? 0.0f : 3.0f;
    s->scale = test_random_int(r, 0, 1) ? 0.0f : 0.3f;
    s->window = -1;
}

static void random_window(setup *s, test_random *r) {
    int past = s->total - s->chunk;
    switch (test_random_int(r, 0, 5)) {
    case 0:
        s->window = 1;
        break;
    case 1:
        s->window = past > 1 ? past - 1 : 2;
        break;
    case 2:
        s->window = past > 0 ? past : 3;
        break;
    case 3:
        s->window = past + 1 + test_random_int(r, 0, s->chunk);
        break;
    default:
        s->window = -1;
    }
}

static setup random_setup(gqac_arena *arena, test_random *r) {
    setup s = {.arena = arena};
    random_shape(&s, r);
    random_lengths(&s, r);
    random_window(&s, r);
    fill(&s, r);
    poison_unread(&s, NULL);
    return s;
}

/* Runs the op; false with the message printed when it fails. */
static bool run_op(const setup *s, const op_options *options, gqac_pool *pool, graph_run *run) {
    const gqac_tensor *in[16];
    int n = 0;
    for (int i = 0; i < 16; i++) {
        in[i] = s->present[i] ? &s->in[i] : NULL;
        n = s->present[i] ? i + 1 : n;
    }
    if (!graph_run_open(run, "com.microsoft", "GroupQueryAttention", n, in, 3))
        return false;
    ir_attr_set_int(run->node, "num_heads", s->q_heads);
    ir_attr_set_int(run->node, "kv_num_heads", s->kv_heads);
    ir_attr_set_float(run->node, "scale", s->scale);
    ir_attr_set_float(run->node, "softcap", s->softcap);
    ir_attr_set_int(run->node, "local_window_size", s->window);
    ir_attr_set_int(run->node, "do_rotary", s->rotary > 0);
    ir_attr_set_int(run->node, "rotary_interleaved", s->interleaved);
    gqac_status status = graph_run_all(run, options, pool);
    if (status != GQAC_OK)
        printf("%s: %s\n", gqac_status_name(status), run->diag.what);
    return status == GQAC_OK;
}

/* ---- against the oracle -------------------------------------------------- */

static double to_f16(double x) {
    return gqn_f16_to_f32(gqn_f32_to_f16((float)x));
}

static double to_bf16(double x) {
    return gqn_bf16_to_f32(gqn_f32_to_bf16((float)x));
}

static const double *doubles(const setup *s, int input) {
    const gqac_tensor *t = &s->in[input];
    if (!s->present[input])
        return NULL;
    int64_t n = gqac_tensor_count(t);
    double *x = GQAC_ARENA_ARRAY(s->arena, double, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++)
        x[i] = op_get_f64(t, i);
    return x;
}

/* Heads [first, first + heads) of the packed rows. */
static const double *unpack(const setup *s, int first, int heads) {
    int width = (s->q_heads + 2 * s->kv_heads) * s->size, rows = s->batch * s->chunk;
    double *x = GQAC_ARENA_ARRAY(s->arena, double, (size_t)(rows * heads * s->size) + 1);
    for (int i = 0; i < rows * heads * s->size; i++)
        x[i] = op_get_f64(&s->in[QUERY], (int64_t)(i / (heads * s->size)) * width +
                                             first * s->size + i % (heads * s->size));
    return x;
}

static gqa_case oracle_case(const setup *s, const op_options *options) {
    gqa_case c = {.batch = s->batch,
                  .chunk = s->chunk,
                  .past_rows = s->has_past ? s->past_rows : 0,
                  .q_heads = s->q_heads,
                  .kv_heads = s->kv_heads,
                  .size = s->size,
                  .rotary = s->rotary,
                  .interleaved = s->interleaved,
                  .window = s->window > 0 && options->legacy_window ? s->window + 1 : s->window,
                  .scale = s->scale != 0 ? (double)s->scale : 1 / sqrt(s->size),
                  .softcap = s->softcap,
                  .epsilon = 1e-6,
                  .past = s->past,
                  .fresh = s->fresh};
    c.capacity = s->total > c.past_rows ? s->total : c.past_rows;
    c.q = s->packed ? unpack(s, 0, s->q_heads) : doubles(s, QUERY);
    c.k = s->packed ? unpack(s, s->q_heads, s->kv_heads) : doubles(s, KEY);
    c.v = s->packed ? unpack(s, s->q_heads + s->kv_heads, s->kv_heads) : doubles(s, VALUE);
    c.past_k = doubles(s, PAST_KEY);
    c.past_v = doubles(s, PAST_VALUE);
    c.cos = doubles(s, COS);
    c.sin = doubles(s, SIN);
    c.q_norm = doubles(s, Q_NORM);
    c.k_norm = doubles(s, K_NORM);
    c.store = s->dtype == GQAC_F16 ? to_f16 : s->dtype == GQAC_BF16 ? to_bf16 : NULL;
    size_t rows = (size_t)(s->batch * s->kv_heads * c.capacity * s->size);
    c.y = GQAC_ARENA_ARRAY(s->arena, double, (size_t)(s->batch * s->chunk * s->q_heads * s->size));
    c.present_k = GQAC_ARENA_ARRAY(s->arena, double, rows);
    c.present_v = GQAC_ARENA_ARRAY(s->arena, double, rows);
    return c;
}

/* Largest value that counts, for the tolerance. */
static double bound(const setup *s, const double *wanted, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabs(wanted[i]) > most ? fabs(wanted[i]) : most;
    if (s->dtype == GQAC_F32)
        return 2e-5 * most;
    /* 2e-3, and roundings of the storage type: bf16 keeps 8 bits, and queries are rounded too */
    return 2e-3 * most + most * (s->dtype == GQAC_F16 ? 0x1p-10 : 0x1p-6);
}

static bool near(double got, double wanted, double tolerance) {
    return fabs(got - wanted) <= tolerance;
}

/* NULL, or what differs. */
static const char *compare(const setup *s, const gqa_case *c, const graph_run *run) {
    const gqac_tensor *y = &run->results[0];
    int64_t width = (int64_t)s->q_heads * s->size, n = s->batch * s->chunk * width;
    double tolerance = bound(s, c->y, n);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = i / width;
        bool pad = row % s->chunk >= s->fresh[row / s->chunk];
        double got = op_get_f64(y, i);
        if (pad ? got != 0 || signbit(got) : !near(got, c->y[i], tolerance))
            return pad ? "a pad row is not zero" : "output";
    }
    for (int64_t i = 0; i < (int64_t)s->batch * s->kv_heads * c->capacity * s->size; i++) {
        int64_t j = i / s->size % c->capacity, b = i / s->size / c->capacity / s->kv_heads;
        double k = op_get_f64(&run->results[1], i), v = op_get_f64(&run->results[2], i);
        if (j >= s->past[b] + s->fresh[b])
            continue;
        if (v != c->present_v[i] || (j < s->past[b] && k != c->present_k[i]))
            return "present_value, or a past row of present_key";
        if (!near(k, c->present_k[i], bound(s, &c->present_k[i], 1) + tolerance))
            return "present_key";
    }
    return NULL;
}

static void test_random_cases(void) {
    int cases = unit_full() ? 6000 : 500;
    for (int i = 0; i < cases; i++) {
        test_random r = {.state = 1000u + (uint64_t)i};
        gqac_arena *arena = gqac_arena_create(0);
        setup s = random_setup(arena, &r);
        op_options options = {.legacy_window = s.window > 0 && i % 7 == 0};
        graph_run run;
        bool ran = run_op(&s, &options, NULL, &run);
        CU_ASSERT(ran);
        if (ran) {
            gqa_case c = oracle_case(&s, &options);
            CU_ASSERT(gqa_compute(&c));
            const char *wrong = compare(&s, &c, &run);
            if (wrong)
                printf("case %d: %s (%s B%d S%d P%d T%d Hq%d Hkv%d D%d R%d W%d)\n", i, wrong,
                       gqac_dtype_name(s.dtype), s.batch, s.chunk, s.past_rows, s.total, s.q_heads,
                       s.kv_heads, s.size, s.rotary, s.window);
            CU_ASSERT_PTR_NULL(wrong);
        }
        graph_run_close(&run);
        gqac_arena_free(arena);
    }
}

/* ---- bits ---------------------------------------------------------------- */

static bool same_bits(const gqac_tensor *a, const gqac_tensor *b) {
    size_t bytes = gqac_tensor_bytes(a);
    return bytes == gqac_tensor_bytes(b) && memcmp(a->data, b->data, bytes) == 0;
}

/* What lies in pad rows and behind the cached rows does not reach the output, with any threads. */
static void test_unread_rows(void) {
    gqac_pool *pool;
    gqac_diag diag;
    CU_ASSERT_FATAL(gqac_pool_create(3, &pool, &diag) == GQAC_OK);
    for (int i = 0; i < (unit_full() ? 1000 : 120); i++) {
        test_random r = {.state = 77000u + (uint64_t)i}, garbage = {.state = (uint64_t)i};
        gqac_arena *arena = gqac_arena_create(0);
        setup s = random_setup(arena, &r);
        op_options options = {0};
        graph_run nan, noise;
        CU_ASSERT(run_op(&s, &options, NULL, &nan));
        poison_unread(&s, &garbage);
        CU_ASSERT(run_op(&s, &options, pool, &noise));
        CU_ASSERT(same_bits(&nan.results[0], &noise.results[0]));
        graph_run_close(&nan);
        graph_run_close(&noise);
        gqac_arena_free(arena);
    }
    gqac_pool_free(pool);
}

/* Copies rows [first, first + n) of axis `axis` (with `width` elements a row). */
static void copy_rows(const gqac_tensor *from, int64_t from_row, gqac_tensor *to, int64_t to_row,
                      int64_t n, int64_t width) {
    size_t bytes = (size_t)width * op_width(from->dtype);
    memcpy((char *)to->data + (size_t)to_row * bytes,
           (const char *)from->data + (size_t)from_row * bytes, (size_t)n * bytes);
}

/* Tokens [first, first + n) of a full prompt as one call on the cache that `past` holds. */
static setup chunk_of(const setup *full, gqac_arena *arena, int first, int n,
                      const gqac_tensor *past, int static_rows) {
    setup s = *full;
    s.arena = arena;
    s.chunk = n;
    s.past_rows = static_rows ? static_rows : first;
    s.has_past = static_rows > 0 || first > 0;
    s.total = first + n;
    for (int b = 0; b < s.batch; b++) {
        s.past[b] = first;
        s.fresh[b] = n;
    }
    test_random r = {.state = 5};
    memset(s.present, 0, sizeof s.present);
    bool norms = s.norms;
    int rotary = s.rotary;
    s.norms = false;
    s.rotary = 0;
    fill(&s, &r);
    s.norms = norms;
    s.rotary = rotary;
    for (int i = 0; i < 16; i++)
        if (i == COS || i == SIN || i >= Q_NORM) {
            s.in[i] = full->in[i];
            s.present[i] = full->present[i];
        }
    for (int i = QUERY; i <= VALUE; i++)
        for (int b = 0; s.present[i] && b < s.batch; b++)
            copy_rows(&full->in[i], (int64_t)b * full->chunk + first, &s.in[i], (int64_t)b * n, n,
                      full->in[i].dims[2]);
    for (int i = 0; i < 2 && s.has_past; i++)
        for (int h = 0; h < s.batch * s.kv_heads; h++) {
            gqac_tensor *to = &s.in[PAST_KEY + i];
            poison(to, (int64_t)h * s.past_rows * s.size, (int64_t)s.past_rows * s.size, NULL);
            if (first > 0)
                copy_rows(&past[i], (int64_t)h * past[i].dims[2], to, (int64_t)h * s.past_rows,
                          first, s.size);
        }
    return s;
}

/* One chunk after another; true when every output row and cached row has the bits of `full`. */
static bool split_equals(const setup *s, const graph_run *full, test_random *r) {
    graph_run run[2];
    memset(run, 0, sizeof run);
    gqac_arena *arenas[2] = {NULL, NULL};
    int room = test_random_int(r, 0, 1) ? s->chunk + test_random_int(r, 0, 70) : 0;
    int single = test_random_int(r, 0, 3) == 0, now = 0, first = 0;
    bool equal = true;
    int64_t width = (int64_t)s->q_heads * s->size;
    while (first < s->chunk) {
        int left = s->chunk - first, n = single ? 1 : test_random_int(r, 1, left);
        gqac_arena *arena = gqac_arena_create(0);
        setup part = chunk_of(s, arena, first, n, &run[!now].results[1], room);
        op_options options = {0};
        equal = run_op(&part, &options, NULL, &run[now]) && equal;
        for (int b = 0; equal && b < s->batch; b++)
            equal = memcmp((char *)run[now].results[0].data +
                               (size_t)(b * n * width) * op_width(s->dtype),
                           (char *)full->results[0].data +
                               (size_t)((b * s->chunk + first) * width) * op_width(s->dtype),
                           (size_t)(n * width) * op_width(s->dtype)) == 0;
        first += n;
        if (arenas[!now]) {
            graph_run_close(&run[!now]);
            gqac_arena_free(arenas[!now]);
        }
        arenas[now] = arena;
        now = !now;
        if (!equal)
            break;
    }
    for (int i = 1; equal && i <= 2; i++)
        for (int h = 0; equal && h < s->batch * s->kv_heads; h++) {
            const gqac_tensor *a = &full->results[i], *b = &run[!now].results[i];
            size_t row = (size_t)s->size * op_width(s->dtype), rows = (size_t)s->chunk * row;
            equal = memcmp((char *)a->data + (size_t)(h * a->dims[2]) * row,
                           (char *)b->data + (size_t)(h * b->dims[2]) * row, rows) == 0;
        }
    graph_run_close(&run[!now]);
    gqac_arena_free(arenas[!now]);
    return equal;
}

static void test_split_is_full(void) {
    for (int i = 0; i < (unit_full() ? 3000 : 300); i++) {
        test_random r = {.state = 424242u + (uint64_t)i};
        gqac_arena *arena = gqac_arena_create(0);
        setup s = {.arena = arena};
        random_shape(&s, &r);
        s.chunk = s.total = test_random_int(&r, 2, i % 10 == 0 ? 140 : 40);
        for (int b = 0; b < s.batch; b++)
            s.fresh[b] = s.chunk;
        s.window = test_random_int(&r, 0, 1) ? -1 : test_random_int(&r, 1, s.chunk + 2);
        fill(&s, &r);
        op_options options = {0};
        graph_run full;
        CU_ASSERT(run_op(&s, &options, NULL, &full));
        CU_ASSERT(split_equals(&s, &full, &r));
        graph_run_close(&full);
        gqac_arena_free(arena);
    }
}

/* ---- who sees whom ------------------------------------------------------- */

/* Equal scores, one-hot values: output channel j is not zero exactly when key j is visible. */
static void visibility(int past, int chunk, int window) {
    gqac_arena *arena = gqac_arena_create(0);
    setup s = {.arena = arena,
               .dtype = GQAC_F32,
               .batch = 1,
               .chunk = chunk,
               .past_rows = past,
               .total = past + chunk,
               .q_heads = 1,
               .kv_heads = 1,
               .size = 24,
               .window = window,
               .has_past = past > 0,
               .past = {past},
               .fresh = {chunk}};
    test_random r = {.state = 9};
    fill(&s, &r);
    memset(s.in[QUERY].data, 0, gqac_tensor_bytes(&s.in[QUERY]));
    for (int j = 0; j < past + chunk; j++)
        for (int d = 0; d < s.size; d++)
            op_put_f32(&s.in[j < past ? PAST_VALUE : VALUE],
                       (int64_t)(j < past ? j : j - past) * s.size + d, j == d ? 1.0f : 0.0f);
    op_options options = {0};
    graph_run run;
    CU_ASSERT(run_op(&s, &options, NULL, &run));
    for (int i = 0; i < chunk; i++)
        for (int j = 0; j < past + chunk; j++) {
            bool wanted = j <= past + i && (window < 0 || j > past + i - window);
            CU_ASSERT((op_get_f32(&run.results[0], (int64_t)i * s.size + j) > 0) == wanted);
        }
    graph_run_close(&run);
    gqac_arena_free(arena);
}

static void test_visibility(void) {
    for (int past = 0; past <= 12; past += 3)
        for (int chunk = 1; chunk <= 12; chunk += 1 + chunk / 3)
            for (int window = -1; window <= past + chunk + 1; window += 1 + (window == -1))
                visibility(past, chunk, window);
}

int main(int argc, char **argv) {
    const unit_case cases[] = {
        {"random cases agree with the oracle", test_random_cases},
        {"unread rows never matter", test_unread_rows},
        {"split = full, bit for bit", test_split_is_full},
        {"visible keys by one-hot values", test_visibility},
    };
    return unit_run("gqa", cases, sizeof cases / sizeof *cases, argc, argv);
}
