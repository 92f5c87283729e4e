/* GroupQueryAttention, lowered and expanded to primitives, against the double-precision oracle on
 * random cases; who sees whom; and the promise itself: the same bits however the tokens are split,
 * and whatever lies in rows that nobody may read. */
#include "oracle/gqa_core.h"
#include "support_gqa.h"
#include "unit.h"

#include <stdio.h>

#include "numerics/convert.h"
#include "ops/shared.h"

/* ---- against the oracle -------------------------------------------------- */

static double to_f16(double x) {
    return gqn_f16_to_f32(gqn_f32_to_f16((float)x));
}

static double to_bf16(double x) {
    return gqn_bf16_to_f32(gqn_f32_to_bf16((float)x));
}

static const double *doubles(const gqa_setup *s, int input) {
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
static const double *unpack(const gqa_setup *s, int first, int heads) {
    int width = (s->q_heads + 2 * s->kv_heads) * s->size, rows = s->batch * s->chunk;
    double *x = GQAC_ARENA_ARRAY(s->arena, double, (size_t)(rows * heads * s->size) + 1);
    for (int i = 0; i < rows * heads * s->size; i++)
        x[i] = op_get_f64(&s->in[QUERY], (int64_t)(i / (heads * s->size)) * width +
                                             first * s->size + i % (heads * s->size));
    return x;
}

static gqa_case oracle_case(const gqa_setup *s, const op_options *options) {
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
    c.everyone = s->everyone;
    c.shared = s->shared;
    c.total = s->total;
    c.qk_stage = s->qk_output;
    c.bias = doubles(s, BIAS);
    c.sink = doubles(s, SINK);
    if (!c.sink && s->smooth)
        c.sink = gqac_arena_calloc(s->arena, (size_t)s->q_heads, sizeof(double));
    if (c.bias) {
        c.bias_batch = (int)s->in[BIAS].dims[0];
        c.bias_heads = (int)s->in[BIAS].dims[1];
    }
    if (s->present[POSITION_IDS])
        c.positions = s->positions;
    if (s->qk_output)
        c.qk = gqac_arena_calloc(s->arena, (size_t)(s->batch * s->q_heads * s->chunk * s->total),
                                 sizeof(double));
    size_t rows = (size_t)(s->batch * s->kv_heads * c.capacity * s->size);
    c.y = GQAC_ARENA_ARRAY(s->arena, double, (size_t)(s->batch * s->chunk * s->q_heads * s->size));
    c.present_k = GQAC_ARENA_ARRAY(s->arena, double, rows);
    c.present_v = GQAC_ARENA_ARRAY(s->arena, double, rows);
    return c;
}

/* Largest value that counts, for the tolerance. */
static double bound(const gqa_setup *s, const double *wanted, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabs(wanted[i]) > most ? fabs(wanted[i]) : most;
    if (s->dtype == GQAC_F32)
        return 2e-5 * most;
    return 2e-3 * most + most * (s->dtype == GQAC_F16 ? 0x1p-10 : 0x1p-7); /* and one unit */
}

static bool near(double got, double wanted, double tolerance) {
    return fabs(got - wanted) <= tolerance;
}

static const char *compare_qk(const gqa_setup *s, const gqa_case *c, const graph_run *run) {
    int64_t n = (int64_t)s->batch * s->q_heads * s->chunk * s->total;
    double most = 1;
    for (int64_t i = 0; c->qk && i < n; i++)
        most = isfinite(c->qk[i]) && fabs(c->qk[i]) > most ? fabs(c->qk[i]) : most;
    for (int64_t i = 0; c->qk && i < n; i++) {
        double got = op_get_f64(&run->results[3], i);
        if (got != c->qk[i] && !near(got, c->qk[i], bound(s, &most, 1)))
            return "output_qk";
    }
    return NULL;
}

/* NULL, or what differs. */
static const char *compare(const gqa_setup *s, const gqa_case *c, const graph_run *run) {
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
    const char *qk = compare_qk(s, c, run);
    if (qk)
        return qk;
    for (int64_t i = 0; i < (int64_t)s->batch * s->kv_heads * c->capacity * s->size; i++) {
        int64_t j = i / s->size % c->capacity, b = i / s->size / c->capacity / s->kv_heads;
        double k = op_get_f64(&run->results[1], i), v = op_get_f64(&run->results[2], i);
        if (j >= s->past[b] + s->fresh[b])
            continue;
        if (v != c->present_v[i] || ((s->shared || j < s->past[b]) && k != c->present_k[i]))
            return "present_value, or a past row of present_key";
        if (!near(k, c->present_k[i], bound(s, &c->present_k[i], 1) + tolerance))
            return "present_key";
    }
    return NULL;
}

static void test_random_cases(void) {
    int cases = unit_full() ? 6000 : 1000;
    for (int i = 0; i < cases; i++) {
        test_random r = {.state = 1000u + (uint64_t)i};
        gqac_arena *arena = gqac_arena_create(0);
        gqa_setup s = gqa_random_setup(arena, &r);
        op_options options = {.legacy_window = s.window > 0 && i % 7 == 0};
        graph_run run;
        bool ran = gqa_run(&s, &options, NULL, &run);
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
        gqa_setup s = gqa_random_setup(arena, &r);
        op_options options = {0};
        graph_run nan, noise;
        CU_ASSERT(gqa_run(&s, &options, NULL, &nan));
        gqa_poison_unread(&s, &garbage);
        CU_ASSERT(gqa_run(&s, &options, pool, &noise));
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

/* The rows and columns of the bias that a chunk has. */
static gqac_tensor part_of_bias(const gqa_setup *full, gqac_arena *arena, int first, int n) {
    const gqac_tensor *bias = &full->in[BIAS];
    int64_t blocks = bias->dims[0] * bias->dims[1], columns = bias->dims[3];
    gqac_tensor part =
        test_tensor(arena, bias->dtype, 4, (int64_t[]){bias->dims[0], bias->dims[1], n, first + n});
    for (int64_t i = 0; i < blocks * n; i++)
        copy_rows(bias, (i / n * full->chunk + first + i % n) * columns, &part, i * (first + n),
                  first + n, 1);
    return part;
}

/* Tokens [first, first + n) of a full prompt as one call on the cache that `past` holds. */
static gqa_setup chunk_of(const gqa_setup *full, gqac_arena *arena, int first, int n,
                          const gqac_tensor *past, int static_rows) {
    gqa_setup s = *full;
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
    gqa_fill(&s, &r);
    s.norms = norms;
    s.rotary = rotary;
    for (int i = 0; i < 16; i++)
        if (i == COS || i == SIN || i == SINK || i >= Q_NORM) {
            s.in[i] = full->in[i];
            s.present[i] = full->present[i];
        }
    if (full->present[BIAS])
        gqa_put(&s, BIAS, part_of_bias(full, arena, first, n));
    for (int i = QUERY; i <= VALUE; i++)
        for (int b = 0; s.present[i] && b < s.batch; b++)
            copy_rows(&full->in[i], (int64_t)b * full->chunk + first, &s.in[i], (int64_t)b * n, n,
                      full->in[i].dims[2]);
    for (int i = 0; i < 2 && s.has_past; i++)
        for (int h = 0; h < s.batch * s.kv_heads; h++) {
            gqac_tensor *to = &s.in[PAST_KEY + i];
            gqa_poison(to, (int64_t)h * s.past_rows * s.size, (int64_t)s.past_rows * s.size, NULL);
            if (first > 0)
                copy_rows(&past[i], (int64_t)h * past[i].dims[2], to, (int64_t)h * s.past_rows,
                          first, s.size);
        }
    return s;
}

/* One chunk after another; true when every output row and cached row has the bits of `full`. */
static bool split_equals(const gqa_setup *s, const graph_run *full, test_random *r) {
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
        gqa_setup part = chunk_of(s, arena, first, n, &run[!now].results[1], room);
        op_options options = {0};
        equal = gqa_run(&part, &options, NULL, &run[now]) && equal;
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
        gqa_setup s = {.arena = arena};
        gqa_random_shape(&s, &r);
        s.chunk = s.total = test_random_int(&r, 2, i % 10 == 0 ? 140 : 40);
        for (int b = 0; b < s.batch; b++)
            s.fresh[b] = s.chunk;
        s.window = test_random_int(&r, 0, 1) ? -1 : test_random_int(&r, 1, s.chunk + 2);
        gqa_fill(&s, &r);
        if (i % 3 == 0)
            gqa_fill_bias(&s, &r);
        if (i % 4 == 0)
            gqa_put(&s, SINK, test_floats(arena, s.dtype, 1, (int64_t[]){s.q_heads}, &r));
        s.smooth = i % 5 == 0;
        op_options options = {0};
        graph_run full;
        CU_ASSERT(gqa_run(&s, &options, NULL, &full));
        CU_ASSERT(split_equals(&s, &full, &r));
        graph_run_close(&full);
        gqac_arena_free(arena);
    }
}

/* ---- who sees whom ------------------------------------------------------- */

/* Equal scores, one-hot values: output channel j is not zero exactly when key j is visible. */
static void visibility(int past, int chunk, int window) {
    gqac_arena *arena = gqac_arena_create(0);
    gqa_setup s = {.arena = arena,
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
    gqa_fill(&s, &r);
    memset(s.in[QUERY].data, 0, gqac_tensor_bytes(&s.in[QUERY]));
    for (int j = 0; j < past + chunk; j++)
        for (int d = 0; d < s.size; d++)
            op_put_f32(&s.in[j < past ? PAST_VALUE : VALUE],
                       (int64_t)(j < past ? j : j - past) * s.size + d, j == d ? 1.0f : 0.0f);
    op_options options = {0};
    graph_run run;
    CU_ASSERT(gqa_run(&s, &options, NULL, &run));
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

/* ---- what lengths mean, to the bytes of the present ----------------------- */

typedef struct behaviour {
    const char *what;
    int chunk, past_rows, total; /* past_rows 0: no past */
    int cached[2];               /* seqlens_k as cached lengths */
    int past[2];                 /* what that means */
} behaviour;

static const behaviour behaviours[] = {
    {"initial by 0", 3, 10, 10, {0, 0}, {0, 0}},
    {"initial by the capacity", 3, 10, 10, {10, 10}, {0, 0}},
    {"initial by both", 3, 10, 10, {10, 0}, {0, 0}},
    {"initial, growing", 3, 0, 3, {0, 3}, {0, 0}},
    {"decode", 1, 10, 10, {4, 9}, {4, 9}},
    {"decode of an empty row", 1, 10, 10, {0, 2}, {0, 2}},
    {"decode, growing", 1, 9, 10, {9, 3}, {9, 3}},
    {"hybrid", 3, 10, 10, {1, 7}, {1, 7}},
    {"hybrid beside an initial row", 3, 10, 10, {10, 7}, {0, 7}},
    {"hybrid, growing", 3, 7, 10, {7, 2}, {7, 2}},
};

/* Bytes of row j of a cache [B,Hkv,rows,D], bh = b * Hkv + head. */
static const char *cached_row(const gqac_tensor *t, int bh, int64_t j) {
    size_t row = (size_t)t->dims[3] * op_width(t->dtype);
    return (const char *)t->data + (size_t)(bh * t->dims[2] + j) * row;
}

/* Rows [0,p) and from p + S on are the past's (zero where it has none), the rest is new. */
static bool present_is(const gqa_setup *s, const gqac_tensor *present, int b) {
    static const char zeros[256];
    const gqac_tensor *fresh = &s->in[VALUE], *past = &s->in[PAST_VALUE];
    size_t bytes = (size_t)s->size * op_width(s->dtype);
    bool equal = true;
    for (int g = 0; g < s->kv_heads; g++)
        for (int64_t j = 0; j < present->dims[2]; j++) {
            int64_t at = j - s->past[b];
            const char *wanted = zeros;
            if (at >= 0 && at < s->chunk)
                wanted = (const char *)fresh->data +
                         (size_t)((b * s->chunk + at) * s->kv_heads + g) * bytes;
            else if (s->has_past && j < s->past_rows)
                wanted = cached_row(past, b * s->kv_heads + g, j);
            equal =
                equal && memcmp(cached_row(present, b * s->kv_heads + g, j), wanted, bytes) == 0;
        }
    return equal;
}

static void check_behaviour(const behaviour *c) {
    gqac_arena *arena = gqac_arena_create(0);
    gqa_setup s = {.arena = arena,
                   .dtype = GQAC_F32,
                   .batch = 2,
                   .chunk = c->chunk,
                   .past_rows = c->past_rows,
                   .total = c->total,
                   .q_heads = 4,
                   .kv_heads = 2,
                   .size = 16,
                   .rotary = 16,
                   .window = -1,
                   .has_past = c->past_rows > 0,
                   .past = {c->past[0], c->past[1]},
                   .fresh = {c->chunk, c->chunk}};
    test_random r = {.state = 31};
    gqa_fill(&s, &r);
    gqa_poison_unread(&s, NULL);
    graph_run run[2];
    op_options options[2] = {{0}, {.cached_lengths = true}};
    for (int i = 0; i < 2; i++) {
        if (i == 1)
            gqa_put(&s, SEQLENS,
                    test_ints(arena, GQAC_I32, 1, (int64_t[]){2},
                              (int64_t[]){c->cached[0], c->cached[1]}));
        CU_ASSERT_FATAL(gqa_run(&s, &options[i], NULL, &run[i]));
        for (int b = 0; b < 2; b++) {
            bool equal = present_is(&s, &run[i].results[2], b);
            if (!equal)
                printf("%s: row %d, %s\n", c->what, b, i ? "cached" : "total-1");
            CU_ASSERT(equal);
        }
    }
    for (int i = 0; i < 3; i++)
        CU_ASSERT(same_bits(&run[0].results[i], &run[1].results[i]));
    graph_run_close(&run[0]);
    graph_run_close(&run[1]);
    gqac_arena_free(arena);
}

static void test_behaviours(void) {
    for (size_t i = 0; i < sizeof behaviours / sizeof *behaviours; i++)
        check_behaviour(&behaviours[i]);
}

int main(int argc, char **argv) {
    const unit_case cases[] = {
        {"random cases agree with the oracle", test_random_cases},
        {"unread rows never matter", test_unread_rows},
        {"split = full, bit for bit", test_split_is_full},
        {"visible keys by one-hot values", test_visibility},
        {"both length conventions, row by row", test_behaviours},
    };
    return unit_run("gqa", cases, sizeof cases / sizeof *cases, argc, argv);
}
