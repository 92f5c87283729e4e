/* GroupQueryAttention, lowered and expanded to primitives, compared with the double-precision
 * oracle on random cases, half of them from a new seed (GQAC_TEST_SEED chooses it); which keys are
 * visible; and what the two length conventions mean. */
#include "oracle/gqa_core.h"
#include "support_gqa.h"
#include "unit.h"

#include <stdio.h>

#include "numerics/convert.h"
#include "ops/shared.h"

/* ---- compared with the oracle -------------------------------------------- */

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

/* Element d of row j of a head (b * Hkv + g) of a cache: a value, or a code. */
static double cached(const gqa_setup *s, const gqac_tensor *t, int64_t bg, int64_t j, int d) {
    int64_t row = (bg * t->dims[2] + j) * t->dims[3];
    if (s->bits != 4)
        return op_get_f64(t, row + d);
    int64_t pair = op_get_i64(t, row + d / 2);
    return (double)(d % 2 ? pair >> 4 : pair & 15) - 8;
}

static const double *rows_of(const gqa_setup *s, const gqac_tensor *t) {
    int64_t n = t->dims[0] * t->dims[1] * t->dims[2] * s->size;
    double *x = GQAC_ARENA_ARRAY(s->arena, double, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++)
        x[i] = cached(s, t, i / s->size / t->dims[2], i / s->size % t->dims[2], (int)(i % s->size));
    return x;
}

/* One scale for each channel, [Hkv,D]. */
static const double *scales_of(const gqa_setup *s, int input) {
    int n = s->kv_heads * s->size;
    double *x = GQAC_ARENA_ARRAY(s->arena, double, (size_t)n);
    for (int i = 0; s->bits && i < n; i++)
        x[i] = op_get_f64(&s->in[input], s->per_channel ? i : 0);
    return x;
}

/* Sets the past, the cache and the scales of codes. A window-sized cache is only another way to
 * store it: the oracle has all rows. */
static void set_cache(const gqa_setup *s, gqa_case *c) {
    const gqac_tensor *past = s->window_cache ? s->whole : &s->in[PAST_KEY];
    c->past_rows = s->has_past ? (int)past[0].dims[2] : 0;
    c->capacity = s->total > c->past_rows ? s->total : c->past_rows;
    if (s->has_past) {
        c->past_k = rows_of(s, &past[0]);
        c->past_v = rows_of(s, &past[1]);
    }
    size_t rows = (size_t)(s->batch * s->kv_heads * c->capacity * s->size);
    c->present_k = GQAC_ARENA_ARRAY(s->arena, double, rows);
    c->present_v = GQAC_ARENA_ARRAY(s->arena, double, rows);
    c->bits = s->bits;
    c->k_scale = scales_of(s, K_SCALE);
    c->v_scale = scales_of(s, V_SCALE);
    c->uncoded_k = GQAC_ARENA_ARRAY(s->arena, double, rows);
    c->error_k = GQAC_ARENA_ARRAY(s->arena, double, rows);
}

static gqa_case oracle_case(const gqa_setup *s, const op_options *options) {
    gqa_case c = {.batch = s->batch,
                  .chunk = s->chunk,
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
    set_cache(s, &c);
    c.q = s->packed ? unpack(s, 0, s->q_heads) : doubles(s, QUERY);
    c.k = s->packed ? unpack(s, s->q_heads, s->kv_heads) : doubles(s, KEY);
    c.v = s->packed ? unpack(s, s->q_heads + s->kv_heads, s->kv_heads) : doubles(s, VALUE);
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
    c.y = GQAC_ARENA_ARRAY(s->arena, double, (size_t)(s->batch * s->chunk * s->q_heads * s->size));
    return c;
}

/* The largest value that counts, for the tolerance. */
static double bound(const gqa_setup *s, const double *wanted, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabs(wanted[i]) > most ? fabs(wanted[i]) : most;
    if (s->dtype == GQAC_F32)
        return 2e-5 * most;
    return 2e-3 * most + most * (s->dtype == GQAC_F16 ? 0x1p-10 : 0x1p-7); /* plus one unit */
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

/* True if this key may be one code off, because norm and rotation may differ from the oracle's. */
static bool is_tie(const gqa_case *c, int64_t i) {
    double x = c->uncoded_k[i];
    return fabs(fabs(x - floor(x)) - 0.5) <= c->error_k[i];
}

/* NULL, or the difference in a row of present; *off counts keys that are one code off. */
static const char *compare_row(const gqa_setup *s, const gqa_case *c, const graph_run *run,
                               int64_t bg, int64_t row, int64_t j, int *off) {
    int64_t b = bg / s->kv_heads, at = (bg * c->capacity + j) * s->size;
    bool old = s->shared || j < s->past[b];
    for (int d = 0; d < s->size; d++) {
        double k = cached(s, &run->results[1], bg, row, d);
        double wanted = c->present_k[at + d];
        if (cached(s, &run->results[2], bg, row, d) != c->present_v[at + d])
            return "present_value";
        if (k == wanted)
            continue;
        if (old)
            return "a past row of present_key";
        if (s->bits ? fabs(k - wanted) != 1 || !is_tie(c, at + d)
                    : !near(k, wanted, bound(s, &wanted, 1) + bound(s, c->present_k + at, s->size)))
            return "present_key";
        *off += s->bits > 0;
    }
    return NULL;
}

/* Rows without a token equal the rows of the past, or are zeros if the past does not have them. In
 * window-sized caches they are unspecified. */
static bool same_rest(const gqa_setup *s, const graph_run *run, int64_t bg, int64_t first) {
    static const char zeros[4 * 256];
    size_t row = gqa_row_bytes(s);
    bool same = true;
    for (int64_t j = first; j < run->results[1].dims[2]; j++)
        for (int i = 0; i < 2; i++) {
            const char *past =
                s->has_past && j < s->past_rows
                    ? (char *)s->in[PAST_KEY + i].data + (size_t)(bg * s->past_rows + j) * row
                    : zeros;
            const gqac_tensor *now = &run->results[1 + i];
            same = same &&
                   !memcmp((char *)now->data + (size_t)(bg * now->dims[2] + j) * row, past, row);
        }
    return same;
}

static const char *compare_present(const gqa_setup *s, const gqa_case *c, const graph_run *run,
                                   int *off) {
    const char *wrong = NULL;
    for (int64_t bg = 0; bg < s->batch * s->kv_heads; bg++) {
        int64_t t = s->past[bg / s->kv_heads] + s->fresh[bg / s->kv_heads];
        int64_t first = s->window_cache ? t - gqa_resident(s, (int)t) : 0;
        for (int64_t j = first; j < t && !wrong; j++)
            wrong = compare_row(s, c, run, bg, j - first, j, off);
        if (!wrong && !s->window_cache && !same_rest(s, run, bg, t))
            wrong = "a row of present that no token has";
    }
    return wrong;
}

enum { TIES = 6 };

/* Finds up to TIES new keys that a window-sized cache has dropped and that may be one code off,
 * which present does not show. */
static int dropped_ties(const gqa_setup *s, const gqa_case *c, int64_t *at) {
    int n = 0;
    for (int64_t bg = 0; s->bits && s->window_cache && bg < s->batch * s->kv_heads; bg++) {
        int past = s->past[bg / s->kv_heads], t = past + s->fresh[bg / s->kv_heads];
        int64_t row = bg * c->capacity * s->size, dropped = t - gqa_resident(s, t);
        for (int64_t i = past * s->size; i < dropped * s->size && n < TIES; i++)
            if (is_tie(c, row + i))
                at[n++] = row + i;
    }
    return n;
}

static const char *compare_output(const gqa_setup *s, const gqa_case *c, const graph_run *run) {
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
    return compare_qk(s, c, run);
}

/* Compares again with the second nearest codes of each set of dropped keys. */
static const char *compare_seconds(const gqa_setup *s, const gqa_case *c, const graph_run *run,
                                   const char *wrong, int *off) {
    int64_t ties[TIES], n = dropped_ties(s, c, ties);
    char *chosen = gqac_arena_calloc(s->arena, (size_t)(s->batch * s->kv_heads * c->capacity),
                                     (size_t)s->size);
    gqa_case other = *c;
    other.second_code = chosen;
    for (unsigned set = 1; wrong && set < 1u << n; set++) {
        for (int i = 0; i < n; i++)
            chosen[ties[i]] = (char)(set >> i & 1);
        CU_ASSERT(gqa_compute(&other));
        wrong = compare_output(s, &other, run);
    }
    *off = !wrong;
    return wrong;
}

/* NULL, or the difference. */
static const char *compare(const gqa_setup *s, const gqa_case *c, const graph_run *run, int *off) {
    const char *wrong = compare_present(s, c, run, off);
    if (wrong || *off > 0)
        return wrong;
    wrong = compare_output(s, c, run);
    return wrong ? compare_seconds(s, c, run, wrong, off) : NULL;
}

/* Checks one case; returns true if codes that are one off make it impossible to compare. */
static bool check_case(uint64_t seed, int number) {
    test_random r = {.state = seed};
    gqac_arena *arena = gqac_arena_create(0);
    gqa_setup s = gqa_random_setup(arena, &r);
    op_options options = {.legacy_window = s.window > 0 && number % 7 == 0};
    graph_run run;
    int off = 0;
    bool ran = gqa_run(&s, &options, NULL, &run);
    CU_ASSERT(ran);
    if (ran) {
        gqa_case c = oracle_case(&s, &options);
        CU_ASSERT(gqa_compute(&c));
        const char *wrong = compare(&s, &c, &run, &off);
        if (wrong)
            printf("case %d, seed %llu: %s (%s B%d S%d P%d T%d Hq%d Hkv%d D%d R%d W%d, codes %d, "
                   "window cache %d)\n",
                   number, (unsigned long long)seed, wrong, gqac_dtype_name(s.dtype), s.batch,
                   s.chunk, s.past_rows, s.total, s.q_heads, s.kv_heads, s.size, s.rotary, s.window,
                   s.bits, s.window_cache);
        CU_ASSERT_PTR_NULL(wrong);
    }
    graph_run_close(&run);
    gqac_arena_free(arena);
    return off > 0;
}

static void test_random_cases(void) {
    int cases = unit_count(3000, 20000), off = 0;
    uint64_t fresh = gqa_seed();
    for (int i = 0; i < cases; i++)
        off += check_case((i % 2 ? fresh : 1000u) + (uint64_t)i, i);
    printf("  %d cases, %d not compared whole: a key one code off\n", cases, off);
    CU_ASSERT(off <= cases / 1000 + 1);
}

/* A case whose window-sized cache has dropped a key that is one code off. */
static void test_dropped_key(void) {
    CU_ASSERT(check_case(1795794643260u, 1067));
}

/* A case with a key that is one code off: of the two elements that its rotation adds up, one lies
 * halfway between two numbers of f16 before its norm rounds it. */
static void test_tie_before_rotation(void) {
    CU_ASSERT(check_case(1795795923235u, 579));
}

/* ---- which keys are visible ---------------------------------------------- */

/* Equal scores, one-hot values: output channel j is not zero exactly when key j is visible. Two
 * batch rows, one with `past` cached tokens and one with fewer; cache: 0 grows, 1 is static, 2 is
 * window-sized. */
static void visibility(int past, int chunk, int window, int cache) {
    gqac_arena *arena = gqac_arena_create(0);
    gqa_setup s = {.arena = arena,
                   .dtype = GQAC_F32,
                   .batch = 2,
                   .chunk = chunk,
                   .past_rows = cache == 2 ? window + 2 : past + (cache == 1 ? chunk + 3 : 0),
                   .total = past + chunk,
                   .q_heads = 2,
                   .kv_heads = 1,
                   .size = 32,
                   .window = window,
                   .everyone = window < -1,
                   .window_cache = cache == 2,
                   .has_past = cache || past > 0,
                   .past = {past, past - past / 3},
                   .fresh = {chunk, chunk}};
    s.window = s.everyone ? -1 : window;
    test_random r = {.state = 9};
    gqa_fill(&s, &r);
    gqa_poison_unread(&s, NULL);
    memset(s.in[QUERY].data, 0, gqac_tensor_bytes(&s.in[QUERY]));
    for (int b = 0; b < s.batch; b++) {
        int held = cache == 2 ? gqa_resident(&s, s.past[b]) : s.past[b], first = s.past[b] - held;
        for (int j = first; j < s.past[b] + chunk; j++)
            for (int d = 0; d < s.size; d++) {
                bool old = j < s.past[b];
                int at = old ? b * s.past_rows + j - first : b * chunk + j - s.past[b];
                op_put_f32(&s.in[old ? PAST_VALUE : VALUE], (int64_t)at * s.size + d, j == d);
            }
    }
    op_options options = {0};
    graph_run run;
    bool equal = true;
    CU_ASSERT_FATAL(gqa_run(&s, &options, NULL, &run));
    for (int i = 0; i < s.batch * chunk * s.q_heads; i++) {
        int b = i / s.q_heads / chunk, at = s.past[b] + i / s.q_heads % chunk;
        for (int j = 0; j < s.size; j++) {
            bool wanted =
                s.everyone ? j < s.past[b] + chunk : j <= at && (window < 0 || j > at - window);
            equal = equal && (op_get_f32(&run.results[0], (int64_t)i * s.size + j) > 0) == wanted;
        }
    }
    if (!equal)
        printf("past %d, chunk %d, window %d, cache %d\n", past, chunk, window, cache);
    CU_ASSERT(equal);
    graph_run_close(&run);
    gqac_arena_free(arena);
}

/* Window -2 means not causal. */
static void test_visibility(void) {
    for (int past = 0; past <= 15; past += 3)
        for (int chunk = 1; chunk <= 15; chunk += 1 + chunk / 3)
            for (int window = -2; window <= past + chunk + 1; window += 1 + (window == -1))
                for (int cache = 0; cache <= (window > 0 ? 2 : 1); cache++)
                    visibility(past, chunk, window, cache);
}

/* ---- codes --------------------------------------------------------------- */

/* The code of x by the definition: the reciprocal in fp32, half to even, NaN to the largest
 * code. */
static int code_by_hand(float x, float scale, int bits) {
    int most = bits == 8 ? 127 : 7;
    volatile float inverse = 1.0f / (scale == 0 ? 1.0f : scale);
    volatile float y = x * inverse;
    if (isnan(y))
        return most;
    double down = floor((double)y), rest = (double)y - down;
    double code = rest > 0.5 || (rest == 0.5 && fmod(down, 2) != 0) ? down + 1 : down;
    return code > most ? most : code < -most - 1 ? -most - 1 : (int)code;
}

/* Quantises a row of values to codes, one an int. */
static void quantise(const float *x, int n, float scale, int bits, int *codes) {
    gqac_tensor in = {.dtype = GQAC_F32, .rank = 4, .dims = {1, 1, 1, n}};
    gqac_tensor unit = {.dtype = GQAC_F32, .rank = 0, .data = &scale};
    in.data = (void *)(uintptr_t)x;
    const gqac_tensor *inputs[] = {&in, &unit};
    graph_run run;
    CU_ASSERT_FATAL(graph_run_open(&run, "gqac", "kv_quantise", 2, inputs, 1));
    ir_attr_set_int(run.node, "bits", bits);
    CU_ASSERT_EQUAL_FATAL(graph_run_all(&run, NULL, NULL), GQAC_OK);
    gqa_setup s = {.size = n, .bits = bits};
    for (int d = 0; d < n; d++)
        codes[d] = (int)cached(&s, &run.results[0], 0, 0, d);
    if (bits == 4 && n % 2)
        CU_ASSERT_EQUAL(op_get_i64(&run.results[0], n / 2) >> 4, 8);
    graph_run_close(&run);
}

/* Values at and around every half step, where a division or another rounding would return another
 * code. */
static void test_codes(void) {
    enum { TIES = 3 * 300, N = TIES + 9 };
    float x[N];
    int codes[N];
    test_random r = {.state = 77};
    for (int i = 0; i < 60; i++) {
        int bits = 4 + 4 * (i % 2), n = N - (i / 2) % 2, wrong = 0;
        float scale = i < 4 ? 0.0f : test_random_float(&r) * (i % 3 ? 0.05f : 3.0f);
        float unit = scale == 0 ? 1.0f : scale;
        for (int k = 0; k < TIES; k++) {
            float tie = ((float)(k / 3 - 150) + 0.5f) * unit;
            x[k] = k % 3 == 1 ? tie : nextafterf(tie, k % 3 ? INFINITY : -INFINITY);
        }
        const float odd[9] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e38f, -1e38f, 1e-40f, -NAN};
        memcpy(x + TIES, odd, sizeof odd);
        quantise(x, n, scale, bits, codes);
        for (int k = 0; k < n; k++)
            wrong += codes[k] != code_by_hand(x[k], scale, bits);
        if (wrong)
            printf("%d wrong codes of %d bits with the scale %g\n", wrong, bits, (double)scale);
        CU_ASSERT_EQUAL(wrong, 0);
    }
}

/* ---- what lengths mean, compared byte by byte in the present ------------- */

typedef struct behaviour {
    const char *what;
    int chunk, past_rows, total; /* past_rows 0: no past */
    int cached[2];               /* seqlens_k as cached lengths */
    int past[2];                 /* the past that follows from them */
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

/* The bytes of row j of a cache [B,Hkv,rows,D]; bh = b * Hkv + head. */
static const char *cached_row(const gqac_tensor *t, int bh, int64_t j) {
    size_t row = (size_t)t->dims[3] * op_width(t->dtype);
    return (const char *)t->data + (size_t)(bh * t->dims[2] + j) * row;
}

/* Rows [0,p) and those from p + S on equal the rows of the past (zero if it has none); the others
 * are new. */
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
        CU_ASSERT(gqa_same_bits(&run[0].results[i], &run[1].results[i]));
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
        {"a dropped key that is one code off", test_dropped_key},
        {"a key that is one code off by a tie before its rotation", test_tie_before_rotation},
        {"visible keys by one-hot values", test_visibility},
        {"codes at ties, of NaN and infinity", test_codes},
        {"both length conventions, row by row", test_behaviours},
    };
    return unit_run("gqa", cases, sizeof cases / sizeof *cases, argc, argv);
}
