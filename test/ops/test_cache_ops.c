/* The ops of quantised and window-sized caches, tested separately, with lengths, windows and shapes
 * that are nearly valid or hostile. No input crashes them, every refusal has a text, and accepted
 * calls compute what the comments at the top of their sources define, counted token by token. */
#include <stdio.h>
#include <string.h>

#include "ops/shared.h"
#include "support.h"

enum { MOST = 3 };

/* A cache [B,H,C,D] for a window, B rows of p past and n new tokens. */
typedef struct cache_case {
    int64_t batch, heads, capacity, size, window, chunk;
    int64_t past[MOST], fresh[MOST];
    gqac_tensor *cache, *rows, *past_len, *new_len;
} cache_case;

static gqac_tensor *make(gqac_arena *arena, gqac_dtype dtype, int rank, const int64_t *dims) {
    gqac_tensor *t = GQAC_ARENA_NEW(arena, gqac_tensor);
    *t = (gqac_tensor){.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++)
        t->dims[i] = dims[i];
    t->data = gqac_arena_calloc(arena, gqac_tensor_bytes(t) + 1, 1);
    return t;
}

static int64_t below(uint64_t *seed, int64_t n) {
    return random_below(seed, (uint32_t)n);
}

static gqac_tensor *numbered(gqac_arena *arena, gqac_dtype dtype, const int64_t *dims, int first) {
    gqac_tensor *t = make(arena, dtype, 4, dims);
    for (int64_t i = 0; i < gqac_tensor_count(t); i++)
        op_put_i64(t, i, first + i);
    return t;
}

static int64_t odd_length(uint64_t *seed, int64_t usual) {
    static const int64_t odd[] = {-1, INT32_MAX, INT32_MIN, 1 << 20};
    return random_below(seed, 12) ? usual : odd[random_below(seed, 4)];
}

static cache_case random_case(gqac_arena *arena, uint64_t *seed) {
    cache_case c = {.batch = 1 + below(seed, MOST),
                    .heads = 1 + below(seed, 2),
                    .window = 1 + below(seed, 5),
                    .size = 1 + below(seed, 3),
                    .chunk = below(seed, 5)};
    c.capacity = c.window + below(seed, 4) - (random_below(seed, 10) == 0);
    c.past_len = make(arena, GQAC_I32, 1, &c.batch);
    c.new_len = make(arena, GQAC_I32, 1, &c.batch);
    for (int b = 0; b < c.batch; b++) {
        c.past[b] = odd_length(seed, below(seed, random_below(seed, 4) ? 30 : 1200));
        c.fresh[b] = odd_length(seed, below(seed, c.chunk + 1));
        op_put_i64(c.past_len, b, c.past[b]);
        op_put_i64(c.new_len, b, c.fresh[b]);
    }
    c.cache = numbered(arena, GQAC_I32, (int64_t[]){c.batch, c.heads, c.capacity, c.size}, 1);
    c.rows = numbered(arena, GQAC_I32, (int64_t[]){c.batch, c.heads, c.chunk, c.size}, 100000);
    return c;
}

/* Runs one op; NULL if it refuses, which must have a text. */
static const gqac_tensor *probe(gqac_arena *arena, const char *op, const char *attrs, int n_in,
                                gqac_tensor *const *in, int n_out) {
    static op_probe p;
    p = (op_probe){.arena = arena, .op = op, .domain = "gqac", .attrs = attrs, .n_in = n_in};
    p.n_out = n_out;
    for (int i = 0; i < n_in; i++)
        p.in[i] = in[i];
    gqac_status status = run_probe(&p);
    CU_ASSERT_FALSE(p.failed);
    CU_ASSERT(status != GQAC_INTERNAL);
    CU_ASSERT(status == GQAC_OK || p.diag.what[0]);
    return status == GQAC_OK ? p.out : NULL;
}

/* ---- window-sized caches -------------------------------------------------- */

static int64_t held_of(const cache_case *c, int64_t length) {
    int64_t held = 0;
    for (int64_t i = 0; i < length; i++)
        held = held == c->capacity ? c->window : held + 1;
    return held;
}

static bool sane(const cache_case *c, int64_t columns) {
    bool good = c->capacity >= c->window;
    for (int b = 0; b < c->batch; b++)
        good = good && c->past[b] >= 0 && c->fresh[b] >= 0 && c->fresh[b] <= c->chunk &&
               c->past[b] + c->fresh[b] <= columns;
    return good;
}

/* Too long to be counted: it is sufficient that nothing crashes. */
static bool wild(const cache_case *c) {
    for (int b = 0; b < c->batch; b++)
        if (c->past[b] > 5000 && c->past[b] + c->fresh[b] > 5000)
            return true;
    return false;
}

/* Channel d of the token at `position` in head bh: from a row of the cache, or a new row. */
static int64_t token(const cache_case *c, int64_t bh, int64_t position, int64_t d) {
    int64_t p = c->past[bh / c->heads], first = p - held_of(c, p);
    if (position < first)
        return 0;
    return position < p ? op_get_i64(c->cache, (bh * c->capacity + position - first) * c->size + d)
                        : op_get_i64(c->rows, (bh * c->chunk + position - p) * c->size + d);
}

static void check_rows(const cache_case *c, const gqac_tensor *rows, const int64_t *start) {
    int wrong = 0;
    for (int64_t bh = 0; bh < c->batch * c->heads; bh++) {
        int64_t b = bh / c->heads, t = c->past[b] + c->fresh[b];
        CU_ASSERT_FATAL(t - start[b] <= rows->dims[2]);
        for (int64_t j = start[b]; j < t; j++)
            for (int64_t d = 0; d < c->size; d++)
                wrong += op_get_i64(rows, (bh * rows->dims[2] + j - start[b]) * c->size + d) !=
                         token(c, bh, j, d);
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

static void check_present(const cache_case *c, const gqac_tensor *present) {
    int wrong = 0;
    for (int64_t bh = 0; bh < c->batch * c->heads; bh++) {
        int64_t t = c->past[bh / c->heads] + c->fresh[bh / c->heads], held = held_of(c, t);
        for (int64_t i = 0; i < c->capacity * c->size; i++) {
            int64_t j = i / c->size, at = bh * c->capacity * c->size + i;
            int64_t wanted =
                j < held ? token(c, bh, t - held + j, i % c->size) : op_get_i64(c->cache, at);
            wrong += op_get_i64(present, at) != wanted;
        }
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

/* Runs the four ops on one case; true if the lengths are valid. */
static bool window_round(gqac_arena *arena, uint64_t *seed) {
    cache_case c = random_case(arena, seed);
    char attrs[40];
    snprintf(attrs, sizeof attrs, "window=%lld", (long long)c.window);
    bool good = sane(&c, INT64_MAX);
    gqac_tensor *lengths[] = {c.cache, c.past_len};
    const gqac_tensor *out = probe(arena, "window_start", attrs, 2, lengths, 2);
    CU_ASSERT(out || !good);
    int64_t start[MOST] = {0};
    for (int b = 0; out && b < c.batch; b++) {
        start[b] = op_get_i64(&out[0], b);
        CU_ASSERT(start[b] % 512 == 0 && start[b] + op_get_i64(&out[1], b) == c.past[b]);
        CU_ASSERT(!good || wild(&c) || start[b] <= c.past[b] - held_of(&c, c.past[b]));
    }
    gqac_tensor *in[] = {c.cache, c.rows, c.past_len, c.new_len};
    out = probe(arena, "window_rows", attrs, 4, in, 1);
    CU_ASSERT_EQUAL(out != NULL, good);
    if (!good || wild(&c)) /* rows of another length */
        (void)probe(arena, "window_present", attrs, 4, in, 1);
    if (!out || !good || wild(&c))
        return false;
    gqac_tensor rows = out[0];
    check_rows(&c, &rows, start);
    in[1] = &rows;
    out = probe(arena, "window_present", attrs, 4, in, 1);
    CU_ASSERT_FATAL(out != NULL);
    check_present(&c, &out[0]);
    return true;
}

static void bias_round(gqac_arena *arena, uint64_t *seed) {
    cache_case c = random_case(arena, seed);
    char attrs[40];
    snprintf(attrs, sizeof attrs, "window=%lld", (long long)c.window);
    int64_t columns = random_below(seed, 3) ? 1300 : below(seed, 40);
    gqac_tensor *bias = make(
        arena, GQAC_F32, 4,
        (int64_t[]){random_below(seed, 2) ? 1 : c.batch, 1 + below(seed, 2), c.chunk, columns});
    for (int64_t i = 0; i < gqac_tensor_count(bias); i++)
        op_put_f32(bias, i, (float)i);
    gqac_tensor *in[] = {bias, c.cache, c.past_len, c.new_len};
    const gqac_tensor *y = probe(arena, "window_bias", attrs, 4, in, 1);
    CU_ASSERT_EQUAL(y != NULL, sane(&c, columns));
    for (int64_t i = 0; y && !wild(&c) && i < c.batch * bias->dims[1] * c.chunk; i++) {
        int64_t b = i / (bias->dims[1] * c.chunk), t = c.past[b] + c.fresh[b];
        int64_t from = bias->dims[0] == 1 ? i % (bias->dims[1] * c.chunk) : i;
        int64_t start = (c.past[b] - held_of(&c, c.past[b])) / 512 * 512;
        for (int64_t j = start; j < t; j++)
            CU_ASSERT(op_get_f32(y, i * y->dims[3] + j - start) ==
                      op_get_f32(bias, from * columns + j));
    }
}

static void test_windows(void) {
    int rounds = unit_full() ? 30000 : 2000, good = 0;
    uint64_t seed = 99;
    for (int i = 0; i < rounds; i++) {
        gqac_arena *arena = gqac_arena_create(0);
        good += window_round(arena, &seed);
        bias_round(arena, &seed);
        gqac_arena_free(arena);
    }
    CU_ASSERT(good > rounds / 4);
}

/* ---- codes --------------------------------------------------------------- */

/* Shapes, types and numbers of scales that do not fit are refused; values that fit are restored
 * within half a step. */
static bool code_round(gqac_arena *arena, uint64_t *seed) {
    char attrs[80];
    int bits = random_below(seed, 8) ? 4 + 4 * (int)random_below(seed, 2) : 5;
    int per_channel = (int)random_below(seed, 9) / 4;
    int64_t dims[4] = {1 + below(seed, 2), 1 + below(seed, 2), below(seed, 4), 1 + below(seed, 9)};
    gqac_tensor *x = make(arena, GQAC_F32, 4, dims);
    for (int64_t i = 0; i < gqac_tensor_count(x); i++)
        op_put_f32(x, i, (float)(below(seed, 400) - 200) / 64);
    int64_t n = per_channel ? dims[1] * dims[3] : 1;
    bool fits = bits != 5 && per_channel < 2;
    if (random_below(seed, 6) == 0) {
        n += 1 + below(seed, 3);
        fits = false;
    }
    gqac_tensor *scale = make(arena, GQAC_F32, 1, &n);
    for (int64_t i = 0; i < n; i++)
        op_put_f32(scale, i, bits == 8 ? 0.03f : 0.5f);
    if (random_below(seed, 9) == 0) {
        op_put_f32(scale, 0, random_below(seed, 2) ? 1.0f / 0.0f : 0.0f / 0.0f);
        fits = false;
    }
    snprintf(attrs, sizeof attrs, "bits=%d per_channel=%d", bits, per_channel);
    const gqac_tensor *out = probe(arena, "kv_quantise", attrs, 2, (gqac_tensor *[]){x, scale}, 1);
    CU_ASSERT_EQUAL(out != NULL, fits);
    gqac_tensor codes = out ? out[0] : *make(arena, GQAC_U8, 4, dims);
    int64_t size = dims[3] + (random_below(seed, 5) == 0);
    bool same =
        size == dims[3] || (bits == 4 && size == dims[3] + 1 && dims[3] % 2 && !per_channel);
    snprintf(attrs, sizeof attrs, "bits=%d per_channel=%d size=%lld", bits, per_channel,
             (long long)size);
    out = probe(arena, "kv_dequantise", attrs, 2, (gqac_tensor *[]){&codes, scale}, 1);
    CU_ASSERT(!fits || (out != NULL) == same);
    for (int64_t i = 0; fits && out && size == dims[3] && i < gqac_tensor_count(x); i++) {
        float step = op_get_f32(scale, 0), back = op_get_f32(&out[0], i);
        CU_ASSERT(back <= op_get_f32(x, i) + step / 2 + 1e-6f &&
                  back >= op_get_f32(x, i) - step / 2 - 1e-6f);
    }
    return fits && out;
}

static void test_codes(void) {
    int rounds = unit_full() ? 30000 : 2000, good = 0;
    uint64_t seed = 7;
    for (int i = 0; i < rounds; i++) {
        gqac_arena *arena = gqac_arena_create(0);
        good += code_round(arena, &seed);
        gqac_arena_free(arena);
    }
    CU_ASSERT(good > rounds / 4);
}

/* ---- the rows before a position ------------------------------------------- */

/* kv_tail: columns of the rows before past_len[b], with zeros where there are none. */
static void tail_round(gqac_arena *arena, uint64_t *seed) {
    const int64_t batch = 1 + below(seed, MOST), total = below(seed, 6), channels = below(seed, 4);
    const int64_t length = 1 + below(seed, 4), heads = random_below(seed, 8) ? 1 : 2;
    bool good = heads == 1;
    char attrs[32];
    gqac_tensor *rows = numbered(arena, random_below(seed, 2) ? GQAC_F32 : GQAC_F16,
                                 (int64_t[]){batch, heads, total, channels}, 1);
    gqac_tensor *past = make(arena, GQAC_I32, 1, &batch);
    for (int64_t b = 0; b < batch; b++) {
        op_put_i64(past, b, odd_length(seed, below(seed, total + 1)));
        good = good && op_get_i64(past, b) >= 0 && op_get_i64(past, b) <= total;
    }
    snprintf(attrs, sizeof attrs, "length=%lld", (long long)length);
    const gqac_tensor *out = probe(arena, "kv_tail", attrs, 2, (gqac_tensor *[]){rows, past}, 1);
    CU_ASSERT_EQUAL(out != NULL, good);
    if (!out)
        return;
    CU_ASSERT_FATAL(out->rank == 3 && out->dims[0] == batch && out->dims[1] == channels &&
                    out->dims[2] == length && out->dtype == rows->dtype);
    int wrong = 0;
    for (int64_t i = 0; i < gqac_tensor_count(out); i++) {
        const int64_t b = i / length / channels, c = i / length % channels;
        const int64_t row = op_get_i64(past, b) - length + i % length;
        const float want = row < 0 ? 0 : op_get_f32(rows, (b * total + row) * channels + c);
        wrong += op_get_f32(out, i) != want;
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

static void test_tails(void) {
    uint64_t seed = 9;
    for (int i = 0; i < 2000; i++) {
        gqac_arena *arena = gqac_arena_create(0);
        tail_round(arena, &seed);
        gqac_arena_free(arena);
    }
    gqac_arena *arena = gqac_arena_create(0);
    gqac_tensor *rows = numbered(arena, GQAC_F32, (int64_t[]){1, 1, 2, 2}, 1);
    gqac_tensor *past = make(arena, GQAC_I32, 1, (int64_t[]){1});
    CU_ASSERT_PTR_NULL(probe(arena, "kv_tail", "length=0", 2, (gqac_tensor *[]){rows, past}, 1));
    gqac_arena_free(arena);
}

int main(int argc, char **argv) {
    const unit_case cases[] = {
        {"window-sized caches, token by token", test_windows},
        {"codes and their scales", test_codes},
        {"the rows before a position", test_tails},
    };
    return unit_run("cache_ops", cases, COUNT(cases), argc, argv);
}
