/* See support_gqa.h. */
#include "support_gqa.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "numerics/convert.h"
#include "ops/shared.h"
#include "unit.h"

static int64_t seqlens_of(const gqa_setup *s, int b) {
    return s->past[b] + s->fresh[b] - 1;
}

uint64_t gqa_seed(void) {
    const char *text = getenv("GQAC_TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = text ? strtoull(text, NULL, 10) : 0;
    seed = seed ? seed : (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    printf("  GQAC_TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

bool gqa_same_bits(const gqac_tensor *a, const gqac_tensor *b) {
    size_t bytes = gqac_tensor_bytes(a);
    return bytes == gqac_tensor_bytes(b) && memcmp(a->data, b->data, bytes) == 0;
}

void gqa_put(gqa_setup *s, int input, gqac_tensor tensor) {
    s->in[input] = tensor;
    s->present[input] = true;
}

/* Rows that nothing may read contain NaN, or `garbage`, other noise. */
void gqa_poison(const gqac_tensor *t, int64_t first, int64_t n, test_random *garbage) {
    for (int64_t i = first; i < first + n; i++)
        op_put_f32((gqac_tensor *)(uintptr_t)t, i,
                   garbage ? 100 * test_random_float(garbage) : gqn_as_f32(0x7fc01234u));
}

int gqa_row(const gqa_setup *s) {
    return s->bits == 4 ? (s->size + 1) / 2 : s->size;
}

gqac_dtype gqa_cache_type(const gqa_setup *s) {
    return s->bits == 8 ? GQAC_I8 : s->bits == 4 ? GQAC_U8 : s->dtype;
}

size_t gqa_row_bytes(const gqa_setup *s) {
    return (size_t)gqa_row(s) * op_width(gqa_cache_type(s));
}

int gqa_resident(const gqa_setup *s, int length) {
    int held = 0;
    for (int i = 0; i < length; i++)
        held = held == s->past_rows ? s->window : held + 1;
    return held;
}

/* Rows of a cache; codes cannot be NaN, so they get other values. */
static void poison_rows(const gqa_setup *s, const gqac_tensor *t, int64_t first, int64_t n,
                        test_random *garbage) {
    if (!s->bits)
        gqa_poison(t, first * s->size, n * s->size, garbage);
    else if (n > 0)
        memset((char *)t->data + (size_t)first * gqa_row_bytes(s),
               garbage ? test_random_int(garbage, 0, 255) : 0x7f, (size_t)n * gqa_row_bytes(s));
}

void gqa_poison_unread(const gqa_setup *s, test_random *garbage) {
    int heads[3] = {s->q_heads, s->kv_heads, s->kv_heads};
    int packed = s->packed ? s->q_heads + 2 * s->kv_heads : 0;
    for (int b = 0; b < s->batch; b++) {
        for (int i = 0; i < (s->packed || s->shared ? 1 : 3); i++) {
            int64_t width = (int64_t)(packed ? packed : heads[i]) * s->size;
            gqa_poison(&s->in[QUERY + i], (b * s->chunk + s->fresh[b]) * width,
                       (s->chunk - s->fresh[b]) * width, garbage);
        }
        for (int g = 0; s->has_past && g < s->kv_heads; g++)
            for (int i = PAST_KEY; i <= PAST_VALUE; i++) {
                int kept = s->past[b] + (s->shared ? s->fresh[b] : 0);
                kept = s->window_cache ? gqa_resident(s, kept) : kept;
                poison_rows(s, &s->in[i], (b * s->kv_heads + g) * (int64_t)s->past_rows + kept,
                            s->past_rows - kept, garbage);
            }
    }
}

/* Random rows of the cache type, with any codes. */
static gqac_tensor random_rows(const gqa_setup *s, int rows, test_random *r) {
    const int64_t dims[4] = {s->batch, s->kv_heads, rows, gqa_row(s)};
    if (!s->bits)
        return test_floats(s->arena, s->dtype, 4, dims, r);
    gqac_tensor t = test_tensor(s->arena, gqa_cache_type(s), 4, dims);
    for (size_t i = 0; i < gqac_tensor_bytes(&t); i++)
        ((unsigned char *)t.data)[i] = (unsigned char)test_random_bits(r);
    return t;
}

/* The last rows of the whole past of each batch row, as the cache stores them. */
static void fill_window(gqa_setup *s, test_random *r) {
    int most = 0;
    for (int b = 0; b < s->batch; b++)
        most = s->past[b] > most ? s->past[b] : most;
    for (int i = 0; i < 2; i++) {
        s->whole[i] = random_rows(s, most, r);
        gqa_put(s, PAST_KEY + i, random_rows(s, s->past_rows, r));
        size_t row = gqa_row_bytes(s);
        for (int bg = 0; bg < s->batch * s->kv_heads && most > 0; bg++) {
            int p = s->past[bg / s->kv_heads], held = gqa_resident(s, p);
            memcpy((char *)s->in[PAST_KEY + i].data + (size_t)(bg * s->past_rows) * row,
                   (char *)s->whole[i].data + (size_t)(bg * most + p - held) * row,
                   (size_t)held * row);
        }
    }
}

void gqa_fill_scales(gqa_setup *s, test_random *r) {
    int64_t n = s->per_channel ? s->kv_heads * s->size : 1;
    int loose = test_random_int(r, 0, 1);
    for (int i = K_SCALE; i <= V_SCALE && s->bits; i++) {
        const int64_t dims[4] = {1, s->kv_heads, 1, s->size};
        gqac_tensor t = s->per_channel && loose
                            ? test_tensor(s->arena, GQAC_F32, 4, dims)
                            : test_tensor(s->arena, GQAC_F32, s->per_channel || loose, &n);
        for (int64_t k = 0; k < n; k++) {
            float scale = (0.3f + fabsf(test_random_float(r))) * (s->bits == 8 ? 0.02f : 0.3f);
            int kind = test_random_int(r, 0, 40);
            op_put_f32(&t, k, kind == 0 ? 0.0f : kind == 1 ? -scale : scale);
        }
        gqa_put(s, i, t);
    }
}

static void fill_tables(gqa_setup *s, test_random *r) {
    int rows = (s->total > s->past_rows ? s->total : s->past_rows) + test_random_int(r, 0, 3);
    gqa_put(s, COS, test_tensor(s->arena, s->dtype, 2, (int64_t[]){rows, s->rotary / 2}));
    gqa_put(s, SIN, test_tensor(s->arena, s->dtype, 2, (int64_t[]){rows, s->rotary / 2}));
    for (int i = 0; i < rows * (s->rotary / 2); i++) {
        double angle = i / (s->rotary / 2) * pow(10000, -2.0 * (i % (s->rotary / 2)) / s->rotary);
        op_put_f32(&s->in[COS], i, (float)cos(angle));
        op_put_f32(&s->in[SIN], i, (float)sin(angle));
    }
}

void gqa_fill(gqa_setup *s, test_random *r) {
    int width = s->packed ? s->q_heads + 2 * s->kv_heads : s->q_heads;
    gqac_arena *a = s->arena;
    gqa_put(s, QUERY,
            test_floats(a, s->dtype, 3, (int64_t[]){s->batch, s->chunk, width * s->size}, r));
    for (int i = KEY; i <= VALUE && !s->packed; i++)
        gqa_put(s, i,
                test_floats(a, s->dtype, 3,
                            (int64_t[]){s->batch, s->shared ? 0 : s->chunk, s->kv_heads * s->size},
                            r));
    for (int i = PAST_KEY; i <= PAST_VALUE && s->has_past && !s->window_cache; i++)
        gqa_put(s, i, random_rows(s, s->past_rows, r));
    if (s->window_cache)
        fill_window(s, r);
    int64_t seqlens[8], total = s->total;
    for (int b = 0; b < s->batch; b++)
        seqlens[b] = seqlens_of(s, b);
    int loose = test_random_int(r, 0, 2);
    const int64_t shapes[3][2] = {{s->batch}, {s->batch, 1}, {1, s->batch}};
    gqa_put(s, SEQLENS, test_ints(a, GQAC_I32, loose ? 2 : 1, shapes[loose], seqlens));
    gqa_put(s, TOTAL, test_ints(a, GQAC_I32, test_random_int(r, 0, 1), (int64_t[]){1}, &total));
    if (s->rotary > 0)
        fill_tables(s, r);
    for (int i = Q_NORM; i <= K_NORM && s->norms; i++)
        gqa_put(s, i, test_floats(a, s->dtype, 1, (int64_t[]){s->size}, r));
}

static int64_t one_or(test_random *r, int64_t n) {
    return test_random_int(r, 0, 1) ? n : 1;
}

/* Whole rows of the bias may be -inf, single columns more often. */
void gqa_fill_bias(gqa_setup *s, test_random *r) {
    int64_t dims[4] = {one_or(r, s->batch), one_or(r, s->q_heads), s->chunk, s->total};
    gqa_put(s, BIAS, test_floats(s->arena, s->dtype, 4, dims, r));
    int64_t rows = dims[0] * dims[1] * dims[2];
    for (int64_t i = 0; i < rows * s->total; i++)
        if (test_random_int(r, 0, 9) == 0)
            op_put_f32(&s->in[BIAS], i, -gqn_as_f32(GQN_INF_BITS));
    for (int64_t j = 0; j < s->total && test_random_int(r, 0, 3) == 0; j++)
        op_put_f32(&s->in[BIAS], j, -gqn_as_f32(GQN_INF_BITS));
}

/* The positions of a first prompt count up from its first position, whatever the others are. */
static void fill_positions(gqa_setup *s, test_random *r) {
    int64_t ids[8 * 256];
    int rows = (int)s->in[COS].dims[0], first = s->chunk == s->total;
    for (int i = 0; i < s->batch * s->chunk; i++)
        ids[i] = first && i ? -7 : test_random_int(r, 0, rows - (first ? s->chunk : 1));
    for (int i = 0; i < s->batch * s->chunk; i++)
        s->positions[i] = first ? ids[0] + i % s->chunk : ids[i];
    gqa_put(s, POSITION_IDS,
            test_ints(s->arena, GQAC_I64, 2, (int64_t[]){s->batch, s->chunk}, ids));
}

static void random_extras(gqa_setup *s, test_random *r) {
    s->smooth = test_random_int(r, 0, 4) == 0;
    s->qk_output = s->window_cache ? 0 : test_random_int(r, 0, 2);
    if (!s->window_cache && test_random_int(r, 0, 4) == 0) {
        s->everyone = true;
        s->window = -1;
    }
    if (test_random_int(r, 0, 2) == 0)
        gqa_put(s, SINK, test_floats(s->arena, s->dtype, 1, (int64_t[]){s->q_heads}, r));
    if (test_random_int(r, 0, 2) == 0)
        gqa_fill_bias(s, r);
    if (s->rotary > 0 && s->batch * s->chunk <= 8 * 256 && test_random_int(r, 0, 2) == 0)
        fill_positions(s, r);
}

static int pick(test_random *r, const int *of, int n) {
    return of[test_random_int(r, 0, n - 1)];
}

/* A cache with room for the window and some more rows, for a past that may be much longer. */
static void window_lengths(gqa_setup *s, test_random *r) {
    static const int windows[] = {1, 2, 5, 16, 33, 64}, rooms[] = {0, 0, 1, 3, 20};
    s->window_cache = s->has_past = true;
    s->window = pick(r, windows, 6);
    s->past_rows = s->window + pick(r, rooms, 5);
    const int longest[] = {0, 1, s->past_rows, 3 * s->past_rows + 1, 560, 1030};
    int most = pick(r, longest, s->size > 64 ? 4 : 6);
    for (int b = 0; b < s->batch; b++) {
        s->past[b] = b ? test_random_int(r, 0, most) : most;
        s->fresh[b] = s->chunk;
    }
    s->total = most + s->chunk;
}

/* Sometimes enough rows to cross the splits of the contract. */
static void maybe_long(gqa_setup *s, test_random *r) {
    if (s->size > 16 || test_random_int(r, 0, 19) > 0)
        return;
    s->batch = s->q_heads = s->kv_heads = 1;
    *(test_random_int(r, 0, 3) ? &s->past_rows : &s->chunk) = test_random_int(r, 500, 1034);
}

/* Lengths of a first prompt, a chunk or decode step on a growing cache, or one on a static buffer.
 */
static void random_lengths(gqa_setup *s, test_random *r) {
    static const int pasts[] = {1, 2, 5, 31, 62, 63, 64, 65, 66, 127, 130};
    static const int chunks[] = {1, 1, 1, 2, 3, 4, 7, 16, 17, 33, 65};
    int mode = test_random_int(r, 0, 4), kinds = s->size > 96 ? 9 : 11;
    s->chunk = pick(r, chunks, kinds);
    s->past_rows = pick(r, pasts, kinds);
    maybe_long(s, r);
    s->total = s->past_rows + s->chunk;
    s->has_past = true;
    if (mode == 4) {
        window_lengths(s, r);
        return;
    }
    if (mode == 0) { /* first prompt, without a past, or with an empty or a large one */
        s->has_past = s->bits > 0 || test_random_int(r, 0, 2) > 0;
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

void gqa_random_shape(gqa_setup *s, test_random *r) {
    static const int sizes[] = {8, 8, 16, 16, 24, 32, 40, 64, 80, 96, 128, 192, 256, 7};
    static const gqac_dtype dtypes[] = {GQAC_F32, GQAC_F32, GQAC_F32, GQAC_F16, GQAC_BF16};
    s->dtype = dtypes[test_random_int(r, 0, 4)];
    s->batch = test_random_int(r, 1, 4);
    s->size = pick(r, sizes, 14);
    s->kv_heads = s->size > 64 ? 1 : test_random_int(r, 1, 3);
    s->q_heads = s->kv_heads * test_random_int(r, 1, 8);
    s->bits = test_random_int(r, 0, 2) ? 0 : 4 * test_random_int(r, 1, 2);
    s->per_channel = test_random_int(r, 0, 1);
    s->packed = test_random_int(r, 0, 1);
    s->norms = test_random_int(r, 0, 4) == 0;
    s->rotary = test_random_int(r, 0, 3) ? s->size / 2 * 2 : 0;
    if (s->rotary > 0 && test_random_int(r, 0, 2) == 0)
        s->rotary = s->size / 4 * 2;
    s->interleaved = test_random_int(r, 0, 1);
    s->softcap = test_random_int(r, 0, 3) ? 0.0f : 3.0f;
    s->scale = test_random_int(r, 0, 1) ? 0.0f : 0.3f;
    s->window = -1;
}

static void random_window(gqa_setup *s, test_random *r) {
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

gqa_setup gqa_random_setup(gqac_arena *arena, test_random *r) {
    gqa_setup s = {.arena = arena};
    gqa_random_shape(&s, r);
    random_lengths(&s, r);
    if (!s.window_cache)
        random_window(&s, r);
    s.shared =
        s.has_past && !s.window_cache && s.total <= s.past_rows && test_random_int(r, 0, 2) == 0;
    s.packed = s.packed && !s.shared;
    gqa_fill(&s, r);
    gqa_fill_scales(&s, r);
    random_extras(&s, r);
    gqa_poison_unread(&s, NULL);
    return s;
}

/* Runs the op; if it fails, prints the message and returns false. */
bool gqa_run(const gqa_setup *s, const op_options *options, gqac_pool *pool, graph_run *run) {
    const gqac_tensor *in[16];
    int n = 0;
    for (int i = 0; i < 16; i++) {
        in[i] = s->present[i] ? &s->in[i] : NULL;
        n = s->present[i] ? i + 1 : n;
    }
    if (!graph_run_open(run, "com.microsoft", "GroupQueryAttention", n, in, s->qk_output ? 4 : 3))
        return false;
    ir_attr_set_int(run->node, "num_heads", s->q_heads);
    ir_attr_set_int(run->node, "kv_num_heads", s->kv_heads);
    ir_attr_set_float(run->node, "scale", s->scale);
    ir_attr_set_float(run->node, "softcap", s->softcap);
    ir_attr_set_int(run->node, "local_window_size", s->window);
    ir_attr_set_int(run->node, "do_rotary", s->rotary > 0);
    ir_attr_set_int(run->node, "rotary_interleaved", s->interleaved);
    ir_attr_set_int(run->node, "causal", !s->everyone);
    ir_attr_set_int(run->node, "smooth_softmax", s->smooth);
    ir_attr_set_int(run->node, "qk_output", s->qk_output);
    const char *kind = s->per_channel ? "PER_CHANNEL" : "PER_TENSOR";
    if (s->bits) {
        ir_attr_set_string(run->node, "k_quant_type", kind);
        ir_attr_set_string(run->node, "v_quant_type", kind);
    }
    ir_attr_set_int(run->node, "kv_cache_bit_width", s->bits);
    ir_attr_set_int(run->node, "sliding_window_cache", s->window_cache);
    gqac_status status = graph_run_all(run, options, pool);
    if (status != GQAC_OK)
        printf("%s: %s\n", gqac_status_name(status), run->diag.what);
    return status == GQAC_OK;
}
