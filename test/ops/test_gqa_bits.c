/* The guarantee of GroupQueryAttention at the level of the op: the same bits however the tokens are
 * split, in any cache, and whatever is in rows that nothing may read. */
#include "support_gqa.h"
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/shared.h"

/* ---- bits ---------------------------------------------------------------- */

/* The contents of pad rows and of rows after the cached ones do not affect the output, with any
 * threads. */
static void test_unread_rows(void) {
    gqac_pool *pool;
    gqac_diag diag;
    CU_ASSERT_FATAL(gqac_pool_create(3, &pool, &diag) == GQAC_OK);
    for (int i = 0; i < unit_count(300, 3000); i++) {
        test_random r = {.state = 77000u + (uint64_t)i}, garbage = {.state = (uint64_t)i};
        gqac_arena *arena = gqac_arena_create(0);
        gqa_setup s = gqa_random_setup(arena, &r);
        op_options options = {0};
        graph_run nan, noise;
        CU_ASSERT(gqa_run(&s, &options, NULL, &nan));
        gqa_poison_unread(&s, &garbage);
        CU_ASSERT(gqa_run(&s, &options, pool, &noise));
        CU_ASSERT(gqa_same_bits(&nan.results[0], &noise.results[0]));
        graph_run_close(&nan);
        graph_run_close(&noise);
        gqac_arena_free(arena);
    }
    gqac_pool_free(pool);
}

/* True if token `at` of batch row b is visible to query i (of all batch rows). */
static bool sees(const gqa_setup *s, int i, int b, int at) {
    int own = i / s->chunk, position = s->past[own] + i % s->chunk;
    if (own != b || i % s->chunk >= s->fresh[b])
        return false;
    if (s->everyone)
        return at < s->past[b] + s->fresh[b];
    return at <= position && (s->window < 0 || at > position - s->window);
}

/* The key and value of one token become NaN: a query to which it is not visible keeps its bits, and
 * one to which it is visible becomes NaN (for values; codes cannot be NaN). */
static void check_one_row(gqa_setup *s, test_random *r, const graph_run *before) {
    int b = test_random_int(r, 0, s->batch - 1);
    int at = test_random_int(r, 0, s->past[b] + s->fresh[b] - 1), t = at - s->past[b];
    int held = s->window_cache ? gqa_resident(s, s->past[b]) : s->past[b];
    if (at < s->past[b] - held || (s->shared && t >= 0))
        return;
    for (int i = KEY; i <= VALUE; i++) {
        int64_t head = s->packed ? s->q_heads + (i - KEY) * s->kv_heads : 0;
        int64_t width = s->packed ? s->q_heads + 2 * s->kv_heads : s->kv_heads;
        if (t >= 0)
            gqa_poison(&s->in[s->packed ? QUERY : i], ((b * s->chunk + t) * width + head) * s->size,
                       s->kv_heads * s->size, NULL);
        for (int g = 0; t < 0 && g < s->kv_heads; g++)
            memset((char *)s->in[i - KEY + PAST_KEY].data +
                       (size_t)((b * s->kv_heads + g) * s->past_rows + at - s->past[b] + held) *
                           gqa_row_bytes(s),
                   s->bits ? 0x7f : 0xff, gqa_row_bytes(s));
    }
    op_options options = {0};
    graph_run after;
    CU_ASSERT(gqa_run(s, &options, NULL, &after));
    size_t row = (size_t)(s->q_heads * s->size) * op_width(s->dtype);
    bool right = true;
    for (int i = 0; i < s->batch * s->chunk; i++) {
        bool same = !memcmp((char *)after.results[0].data + (size_t)i * row,
                            (char *)before->results[0].data + (size_t)i * row, row);
        bool nan = isnan(op_get_f32(&after.results[0], (int64_t)i * s->q_heads * s->size));
        right = right && (sees(s, i, b, at) ? nan || s->bits > 0 : same);
    }
    if (!right)
        printf("token %d of row %d: B%d S%d P%d T%d W%d, codes %d\n", at, b, s->batch, s->chunk,
               s->past_rows, s->total, s->window, s->bits);
    CU_ASSERT(right);
    graph_run_close(&after);
}

/* The token may also be a later token of the same call. */
static void test_nan_rows(void) {
    for (int i = 0; i < unit_count(400, 4000); i++) {
        test_random r = {.state = 31000u + (uint64_t)i};
        gqac_arena *arena = gqac_arena_create(0);
        gqa_setup s = gqa_random_setup(arena, &r);
        op_options options = {0};
        graph_run run;
        s.in[BIAS] = (gqac_tensor){0}; /* -inf plus NaN would be NaN */
        s.present[BIAS] = false;
        CU_ASSERT(gqa_run(&s, &options, NULL, &run));
        check_one_row(&s, &r, &run);
        graph_run_close(&run);
        gqac_arena_free(arena);
    }
}

/* Copies rows [first, first + n) of axis `axis`, with `width` elements in a row. */
static void copy_rows(const gqac_tensor *from, int64_t from_row, gqac_tensor *to, int64_t to_row,
                      int64_t n, int64_t width) {
    size_t bytes = (size_t)width * op_width(from->dtype);
    memcpy((char *)to->data + (size_t)to_row * bytes,
           (const char *)from->data + (size_t)from_row * bytes, (size_t)n * bytes);
}

/* The rows and columns of the bias for a chunk. */
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

/* How the parts of a prompt store their cache. */
typedef struct keeping {
    int room;   /* rows of a static buffer; 0: the cache grows */
    int window; /* rows of a window-sized cache; 0: none */
} keeping;

/* The past of a part: the result of the part before it; the other rows contain values that nothing
 * may read. */
static void hand_on(gqa_setup *s, const gqac_tensor *present, int first) {
    size_t row = gqa_row_bytes(s);
    for (int i = 0; i < 2 && s->has_past; i++)
        for (int h = 0; h < s->batch * s->kv_heads; h++) {
            gqac_tensor *to = &s->in[PAST_KEY + i];
            int rows = s->window_cache ? s->past_rows : first;
            char *at = (char *)to->data + (size_t)(h * s->past_rows) * row;
            memset(at, s->bits ? 0x7f : 0xff, (size_t)s->past_rows * row); /* NaN, or codes */
            if (first > 0)
                memcpy(at, (char *)present[i].data + (size_t)(h * present[i].dims[2]) * row,
                       (size_t)rows * row);
        }
}

/* Tokens [first, first + n) of a full prompt as one call on the cache in `present`. */
static gqa_setup part_of(const gqa_setup *full, gqac_arena *arena, int first, int n,
                         const gqac_tensor *present, keeping keep) {
    gqa_setup s = *full;
    s.arena = arena;
    s.chunk = n;
    s.window_cache = keep.window > 0;
    s.past_rows = keep.window ? keep.window : keep.room ? keep.room : first;
    s.has_past = s.past_rows > 0 || s.bits > 0;
    s.total = first + n;
    for (int b = 0; b < s.batch; b++) {
        s.past[b] = first;
        s.fresh[b] = n;
    }
    test_random r = {.state = 5};
    memset(s.present, 0, sizeof s.present);
    s.norms = false;
    s.rotary = 0;
    gqa_fill(&s, &r);
    s.norms = full->norms;
    s.rotary = full->rotary;
    for (int i = 0; i < 16; i++)
        if (i == COS || i == SIN || i >= SINK) {
            s.in[i] = full->in[i];
            s.present[i] = full->present[i];
        }
    if (full->present[BIAS])
        gqa_put(&s, BIAS, part_of_bias(full, arena, first, n));
    for (int i = QUERY; i <= VALUE; i++)
        for (int b = 0; s.present[i] && b < s.batch; b++)
            copy_rows(&full->in[i], (int64_t)b * full->chunk + first, &s.in[i], (int64_t)b * n, n,
                      full->in[i].dims[2]);
    hand_on(&s, present, first);
    return s;
}

/* True if rows [0, t) of a cache, or those of them that are kept, equal those of the full run. */
static bool same_cache(const gqa_setup *s, const gqac_tensor *full, const gqac_tensor *part) {
    size_t row = gqa_row_bytes(s);
    int held = s->window_cache ? gqa_resident(s, s->total) : s->total;
    bool equal = true;
    for (int64_t h = 0; h < s->batch * s->kv_heads; h++)
        equal = equal &&
                !memcmp((char *)part->data + (size_t)(h * part->dims[2]) * row,
                        (char *)full->data + (size_t)(h * full->dims[2] + s->total - held) * row,
                        (size_t)held * row);
    return equal;
}

/* True if every output row and cached row of one part has the bits of the full run. */
static bool same_part(const gqa_setup *part, const graph_run *run, const graph_run *full, int first,
                      int tokens) {
    size_t width = (size_t)(part->q_heads * part->size) * op_width(part->dtype);
    bool equal = true;
    for (int b = 0; b < part->batch; b++)
        equal =
            equal && !memcmp((char *)run->results[0].data + (size_t)(b * part->chunk) * width,
                             (char *)full->results[0].data + (size_t)(b * tokens + first) * width,
                             (size_t)part->chunk * width);
    for (int i = 1; equal && i <= 2; i++)
        equal = same_cache(part, &full->results[i], &run->results[i]);
    return equal;
}

/* Runs one part after another. */
static bool split_equals(const gqa_setup *s, const graph_run *full, keeping keep, test_random *r) {
    graph_run run[2];
    memset(run, 0, sizeof run);
    gqac_arena *arenas[2] = {NULL, NULL};
    int single = s->chunk < 200 && test_random_int(r, 0, 3) == 0, now = 0;
    bool equal = true;
    for (int first = 0, n; equal && first < s->chunk; first += n) {
        n = single ? 1 : test_random_int(r, 1, s->chunk - first);
        gqac_arena_free(arenas[now]);
        arenas[now] = gqac_arena_create(0);
        gqa_setup part = part_of(s, arenas[now], first, n, &run[!now].results[1], keep);
        op_options options = {0};
        graph_run_close(&run[now]);
        equal = gqa_run(&part, &options, NULL, &run[now]) &&
                same_part(&part, &run[now], full, first, s->chunk);
        now = !now;
    }
    for (int i = 0; i < 2; i++) {
        graph_run_close(&run[i]);
        gqac_arena_free(arenas[i]);
    }
    return equal;
}

/* A prompt; sometimes long enough to cross the splits of the contract. */
static void random_prompt(gqa_setup *s, test_random *r, int number) {
    gqa_random_shape(s, r);
    s->chunk = test_random_int(r, 2, number % 10 == 0 ? 140 : 40);
    if (number % 25 == 0 && s->size <= 16) {
        s->batch = s->kv_heads = s->q_heads = 1;
        s->chunk = test_random_int(r, 600, 1100);
    }
    s->total = s->chunk;
    for (int b = 0; b < s->batch; b++)
        s->fresh[b] = s->chunk;
    s->has_past = s->bits > 0;
    s->window = test_random_int(r, 0, 1) ? -1 : test_random_int(r, 1, s->chunk / 2 + 2);
    gqa_fill(s, r);
    gqa_fill_scales(s, r);
    if (number % 3 == 0)
        gqa_fill_bias(s, r);
    if (number % 4 == 0)
        gqa_put(s, SINK, test_floats(s->arena, s->dtype, 1, (int64_t[]){s->q_heads}, r));
    s->smooth = number % 5 == 0;
}

static void check_splits(uint64_t seed, int number) {
    test_random r = {.state = seed};
    gqac_arena *arena = gqac_arena_create(0);
    gqa_setup s = {.arena = arena};
    random_prompt(&s, &r, number);
    op_options options = {0};
    graph_run full;
    keeping keep = {.room = test_random_int(&r, 0, 1) ? s.chunk + test_random_int(&r, 0, 70) : 0};
    if (s.window > 0 && test_random_int(&r, 0, 2) > 0)
        keep = (keeping){.window = s.window + test_random_int(&r, 0, 20)};
    CU_ASSERT(gqa_run(&s, &options, NULL, &full));
    bool equal = split_equals(&s, &full, keep, &r);
    if (!equal)
        printf(
            "case %d, seed %llu: %s B%d S%d Hq%d Hkv%d D%d W%d, codes %d, static %d, window %d\n",
            number, (unsigned long long)seed, gqac_dtype_name(s.dtype), s.batch, s.chunk, s.q_heads,
            s.kv_heads, s.size, s.window, s.bits, keep.room, keep.window);
    CU_ASSERT(equal);
    graph_run_close(&full);
    gqac_arena_free(arena);
}

static void test_split_is_full(void) {
    uint64_t fresh = gqa_seed();
    for (int i = 0; i < unit_count(600, 6000); i++)
        check_splits((i % 2 ? fresh : 424242u) + (uint64_t)i, i);
}

int main(int argc, char **argv) {
    const unit_case cases[] = {
        {"unread rows never matter", test_unread_rows},
        {"a NaN reaches only who sees its row", test_nan_rows},
        {"split = full, bit for bit", test_split_is_full},
    };
    return unit_run("gqa_bits", cases, sizeof cases / sizeof *cases, argc, argv);
}
