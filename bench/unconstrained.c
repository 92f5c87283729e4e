/* The cost of the guarantee of equal bits: fp32 grouped-query attention without this guarantee.
 *
 *   y[s,h,:] = sum_j softmax_j(q[s,h,:] . k[j,h/G,:] / sqrt(D)) v[j,h/G,:],   j <= P + s
 *
 * Tiles depend on S and on the number of threads, sums have as many chains as registers allow, and
 * the exponential has no special cases, so the bits of a row depend on the call. The rows of a
 * group of query heads share every load of K and V. Lines and words are those of worker_gqac.c:
 *
 *   unconstrained threads=N kind=attention heads= kv_heads= head= past=P tokens=S rotate=R
 *
 * P = 0: packed q, k, v rows [S, (Hq + 2 Hkv) D] in, y out; packing K and V is included in the
 * time, as in an engine. P > 0: one call appends S rows to packed K and V, and computes attention.
 * When it is opened, a few rows are compared with a plain fp64 computation. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"

#include "targets/cpu/level/vec.h"

#if defined(__AVX512F__)
enum { ROWS = 12, WIDE = 2 }; /* of the register tile: query rows, v16s */
#else
enum { ROWS = 6, WIDE = 1 };
#endif
enum { PANEL = 16 * WIDE, TILE_ROWS = 96, MOST_THREADS = 64, MOST_ROTATE = 64, MOST_HEAD = 256 };

typedef struct cache { /* of one sequence */
    float *k;          /* [Hkv][T / PANEL][D][PANEL] */
    float *v;          /* [Hkv][T / block][D / PANEL][block][PANEL] */
} cache;

typedef struct worker {
    const char *kind;
    long threads, heads, kv_heads, head, past, tokens, rotate;
    long group, total, padded, block; /* T; T rounded up to whole blocks; keys in a block */
    float *qkv, *y;                   /* [S][(Hq + 2 Hkv) D], [S][Hq D] */
    cache caches[MOST_ROTATE];
    const cache *now;
    long sample;
    /* the pool */
    void (*job)(struct worker *w, long item, float *scratch);
    long items;
    atomic_long next;
    atomic_int round, left;
    pthread_t ids[MOST_THREADS];
} worker;

/* ---- threads ------------------------------------------------------------- */

static size_t scratch_floats(const worker *w) {
    return (size_t)(TILE_ROWS * (w->block + 2 * MOST_HEAD + 4) + PANEL);
}

static void take_items(worker *w, float *scratch) {
    for (long i; (i = atomic_fetch_add(&w->next, 1)) < w->items;)
        w->job(w, i, scratch);
}

static void wait_while(atomic_int *value, int same) {
    for (int spins = 0; atomic_load(value) == same; spins++)
        if (spins > 1 << 12)
            sched_yield();
}

static void *follow(void *arg) {
    worker *w = arg;
    float *scratch = aligned_alloc(64, (scratch_floats(w) * sizeof(float) + 63) & ~(size_t)63);
    for (int seen = 0;;) {
        wait_while(&w->round, seen);
        seen++;
        take_items(w, scratch);
        atomic_fetch_sub(&w->left, 1);
    }
    return NULL;
}

static void parallel(worker *w, long items, void (*job)(worker *w, long item, float *scratch)) {
    static float *scratch;
    if (!scratch)
        scratch = aligned_alloc(64, (scratch_floats(w) * sizeof(float) + 63) & ~(size_t)63);
    w->job = job;
    w->items = items;
    atomic_store(&w->next, 0);
    atomic_store(&w->left, (int)w->threads - 1);
    atomic_fetch_add(&w->round, 1);
    take_items(w, scratch);
    for (int left; (left = atomic_load(&w->left));)
        wait_while(&w->left, left);
}

/* ---- packing ------------------------------------------------------------- */

static const float *row_of(const worker *w, long s) {
    return w->qkv + s * (w->heads + 2 * w->kv_heads) * w->head;
}

static float *k_at(const worker *w, const cache *c, long head, long t) {
    return c->k + (head * w->padded + t / PANEL * PANEL) * w->head + t % PANEL;
}

static float *v_at(const worker *w, const cache *c, long head, long t) {
    return c->v + (head * w->padded + t / w->block * w->block) * w->head + t % w->block * PANEL;
}

static void pack_row(const worker *w, const cache *c, long head, long t, const float *k,
                     const float *v) {
    float *to_k = k_at(w, c, head, t), *to_v = v_at(w, c, head, t);
    for (long d = 0; d < w->head; d++)
        to_k[d * PANEL] = k[d];
    for (long d = 0; d < w->head; d += PANEL)
        memcpy(to_v + d * w->block, v + d, PANEL * sizeof *v);
}

/* Packs one panel of keys of one head: the new rows from the input. */
static void pack_panel(worker *w, long item, float *scratch) {
    (void)scratch;
    const long panels = (w->total + PANEL - 1) / PANEL - w->past / PANEL;
    const long head = item / panels, first = (w->past / PANEL + item % panels) * PANEL;
    for (long t = first; t < first + PANEL && t < w->total; t++) {
        if (t < w->past)
            continue;
        const float *k = row_of(w, t - w->past) + (w->heads + head) * w->head;
        pack_row(w, w->now, head, t, k, k + w->kv_heads * w->head);
    }
}

/* ---- arithmetic ---------------------------------------------------------- */

VEC_FN v16 larger(v16 a, v16 b) {
#if defined(__AVX512F__)
    return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
    return (v16){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
#else
    return v16_max_step(a, b);
#endif
}

/* 2^x for x <= 0: a polynomial of degree 5 on [-1/2, 1/2], 2e-7; tiny for all x below -126. */
VEC_FN v16 exp2_fast(v16 x) {
    const v16 magic = v16_set1(0x1.8p23f);
    const v16 c = larger(v16_set1(-126.0f), x);
    const v16 t = v16_add(c, magic);
    const v16 f = v16_sub(c, v16_sub(t, magic));
    v16 p = v16_set1(0x1.5f0896p-10f);
    p = v16_fma(p, f, v16_set1(0x1.3cbf6cp-7f));
    p = v16_fma(p, f, v16_set1(0x1.c6af6cp-5f));
    p = v16_fma(p, f, v16_set1(0x1.ebfa4ap-3f));
    p = v16_fma(p, f, v16_set1(0x1.62e430p-1f));
    return v16_scale_bits(v16_fma(p, f, v16_set1(1.0f)), t, magic);
}

/* out[r][0..PANEL) (+)= sum_i a[r][i] b[i][0..PANEL), r < n <= ROWS. */
#define PRODUCT(N)                                                                                 \
    static void product_##N(const float *a, long a_stride, const float *b, long n, float *out,     \
                            long out_stride, bool add) {                                           \
        v16 sum[N][WIDE];                                                                          \
        for (int r = 0; r < N; r++)                                                                \
            for (int c = 0; c < WIDE; c++)                                                         \
                sum[r][c] = add ? v16_load(out + r * out_stride + 16 * c) : v16_zero();            \
        for (long i = 0; i < n; i++) {                                                             \
            v16 x[WIDE];                                                                           \
            for (int c = 0; c < WIDE; c++)                                                         \
                x[c] = v16_load(b + i * PANEL + 16 * c);                                           \
            for (int r = 0; r < N; r++)                                                            \
                for (int c = 0; c < WIDE; c++)                                                     \
                    sum[r][c] = v16_fma(v16_set1(a[r * a_stride + i]), x[c], sum[r][c]);           \
        }                                                                                          \
        for (int r = 0; r < N; r++)                                                                \
            for (int c = 0; c < WIDE; c++)                                                         \
                v16_store(out + r * out_stride + 16 * c, sum[r][c]);                               \
    }
#if defined(__AVX512F__)
PRODUCT(12)
#endif
PRODUCT(6)
PRODUCT(4)
PRODUCT(1)

static void product(const float *a, long a_stride, const float *b, long n, float *out,
                    long out_stride, bool add, long rows) {
    long r = 0;
#if defined(__AVX512F__)
    for (; r + 12 <= rows; r += 12)
        product_12(a + r * a_stride, a_stride, b, n, out + r * out_stride, out_stride, add);
#endif
    for (; r + 6 <= rows; r += 6)
        product_6(a + r * a_stride, a_stride, b, n, out + r * out_stride, out_stride, add);
    for (; r + 4 <= rows; r += 4)
        product_4(a + r * a_stride, a_stride, b, n, out + r * out_stride, out_stride, add);
    for (; r < rows; r++)
        product_1(a + r * a_stride, a_stride, b, n, out + r * out_stride, out_stride, add);
}

/* Turns the scores of a row for n keys (a multiple of 16) into weights; those of keys >= seen are
 * 0. Returns the factor for earlier sums. */
static float weigh(float *scores, long n, long seen, float *max, float *sum) {
    for (long j = seen > 0 ? seen : 0; j < n; j++)
        scores[j] = -INFINITY;
    v16 m = v16_set1(*max), total = v16_zero();
    for (long j = 0; j < n; j += 16)
        m = larger(m, v16_load(scores + j));
    const float top = v16_fold_max(m);
    const v16 shift = v16_set1(top);
    for (long j = 0; j < n; j += 16) {
        v16 p = exp2_fast(v16_sub(v16_load(scores + j), shift));
        if (j + 16 > seen)
            p = v16_select(m16_range(0, (int)(seen - j)), p, v16_zero());
        v16_store(scores + j, p);
        total = v16_add(total, p);
    }
    const float factor = exp2f(*max - top);
    *sum = *sum * factor + v16_fold(total);
    *max = top;
    return factor;
}

/* ---- attention ----------------------------------------------------------- */

typedef struct tile {
    long head, first, rows; /* kv head; first query; rows = queries x group */
    float *q, *scores, *out, *max, *sum;
} tile;

static long last_key(const worker *w, const tile *t, long row) {
    return w->past + t->first + row / w->group;
}

static void load_queries(const worker *w, const tile *t) {
    const float scale = 1.44269504f / sqrtf((float)w->head); /* weights are powers of 2 */
    for (long r = 0; r < t->rows; r++) {
        const float *q =
            row_of(w, t->first + r / w->group) + (t->head * w->group + r % w->group) * w->head;
        for (long d = 0; d < w->head; d++)
            t->q[r * w->head + d] = q[d] * scale;
        t->max[r] = -INFINITY;
        t->sum[r] = 0;
        memset(t->out + r * w->head, 0, (size_t)w->head * sizeof *t->out);
    }
}

/* Keys [j, j + n) of one block: scores, weights, sums. */
static void attend_block(const worker *w, const tile *t, long j, long n) {
    const long padded = (n + PANEL - 1) / PANEL * PANEL;
    for (long p = 0; p < padded; p += PANEL)
        product(t->q, w->head, k_at(w, w->now, t->head, j + p), w->head, t->scores + p, w->block,
                false, t->rows);
    for (long r = 0; r < t->rows; r++) {
        const long seen = last_key(w, t, r) + 1 - j;
        const float factor =
            weigh(t->scores + r * w->block, padded, seen < n ? seen : n, &t->max[r], &t->sum[r]);
        if (factor != 1)
            for (long d = 0; d < w->head; d += 16)
                v16_store(t->out + r * w->head + d,
                          v16_mul(v16_set1(factor), v16_load(t->out + r * w->head + d)));
    }
    const float *v = v_at(w, w->now, t->head, j);
    for (long d = 0; d < w->head; d += PANEL)
        product(t->scores, w->block, v + d * w->block, n, t->out + d, w->head, true, t->rows);
}

/* One tile of queries of one kv head, longest first. */
static void attend(worker *w, long item, float *scratch) {
    const long queries = TILE_ROWS / w->group, tiles = (w->tokens + queries - 1) / queries;
    const long first = (tiles - 1 - item / w->kv_heads) * queries;
    const long rest = w->tokens - first, n = rest < queries ? rest : queries;
    tile t = {.head = item % w->kv_heads, .first = first, .rows = n * w->group};
    t.q = scratch;
    t.out = t.q + TILE_ROWS * MOST_HEAD;
    t.max = t.out + TILE_ROWS * MOST_HEAD;
    t.sum = t.max + TILE_ROWS;
    t.scores = t.sum + TILE_ROWS;
    load_queries(w, &t);
    const long end = last_key(w, &t, t.rows - 1) + 1;
    for (long j = 0; j < end; j += w->block)
        attend_block(w, &t, j, end - j < w->block ? end - j : w->block);
    for (long r = 0; r < t.rows; r++) {
        float *y = w->y + (first + r / w->group) * w->heads * w->head +
                   (t.head * w->group + r % w->group) * w->head;
        for (long d = 0; d < w->head; d++)
            y[d] = t.out[r * w->head + d] / t.sum[r];
    }
}

static double run_once(worker *w) {
    const double began = now_ms();
    w->now = &w->caches[w->sample++ % w->rotate];
    const long panels = (w->total + PANEL - 1) / PANEL - w->past / PANEL;
    const long queries = TILE_ROWS / w->group, tiles = (w->tokens + queries - 1) / queries;
    parallel(w, w->kv_heads * panels, pack_panel);
    parallel(w, w->kv_heads * tiles, attend);
    return now_ms() - began;
}

/* ---- data and check ------------------------------------------------------ */

static float *normals(size_t n, uint64_t *random) {
    enum { POOL = 1 << 20 };
    float *x = aligned_alloc(4096, (n * sizeof *x + 4095) & ~(size_t)4095);
    for (size_t i = 0; x && i < n; i++) {
        float u[2];
        for (int k = 0; k < 2 && i < POOL; k++) {
            *random = *random * 6364136223846793005u + 1442695040888963407u;
            u[k] = ((float)(*random >> 40) + 0.5f) * 0x1p-24f;
        }
        x[i] = i < POOL ? sqrtf(-2 * logf(u[0])) * cosf(6.2831853f * u[1]) : x[i - POOL];
    }
    return x;
}

static bool open_data(worker *w) {
    uint64_t random = 1;
    w->qkv = normals((size_t)(w->tokens * (w->heads + 2 * w->kv_heads) * w->head), &random);
    w->y = calloc((size_t)(w->tokens * w->heads * w->head), sizeof *w->y);
    for (long r = 0; r < w->rotate; r++) {
        const size_t n = (size_t)(w->kv_heads * w->padded * w->head);
        w->caches[r] = (cache){normals(n, &random), normals(n, &random)};
        if (!w->caches[r].k || !w->caches[r].v)
            return false;
    }
    return w->qkv && w->y;
}

/* Largest error of query s of head h against fp64. */
static double error_of(const worker *w, long s, long h) {
    const long kv = h / w->group, n = w->past + s + 1;
    const float *q = row_of(w, s) + h * w->head;
    double *p = malloc((size_t)n * sizeof *p), max = -INFINITY, sum = 0, worst = 0;
    for (long j = 0; j < n; j++) {
        p[j] = 0;
        for (long d = 0; d < w->head; d++)
            p[j] += (double)q[d] * (double)k_at(w, w->now, kv, j)[d * PANEL];
        p[j] /= sqrt((double)w->head);
        max = p[j] > max ? p[j] : max;
    }
    for (long j = 0; j < n; j++)
        sum += p[j] = exp(p[j] - max);
    for (long d = 0; d < w->head; d++) {
        double y = 0;
        for (long j = 0; j < n; j++)
            y += p[j] / sum *
                 (double)v_at(w, w->now, kv, j)[d / PANEL * PANEL * w->block + d % PANEL];
        worst = fmax(worst, fabs(y - (double)w->y[s * w->heads * w->head + h * w->head + d]));
    }
    free(p);
    return worst;
}

static double check(worker *w) {
    double worst = 0;
    run_once(w);
    const long picks[] = {0, w->tokens / 3, w->tokens / 2, w->tokens - 1};
    for (int i = 0; i < 4; i++) {
        const double error = error_of(w, picks[i], (i * 7 + 3) % w->heads);
        worst = error <= worst ? worst : error; /* true also for NaN */
    }
    return worst;
}

static bool take(worker *w, const char *word) {
    const struct {
        const char *key;
        long *number;
    } known[] = {{"threads=", &w->threads}, {"heads=", &w->heads}, {"kv_heads=", &w->kv_heads},
                 {"head=", &w->head},       {"past=", &w->past},   {"tokens=", &w->tokens},
                 {"rotate=", &w->rotate}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strncmp(word, known[i].key, strlen(known[i].key))) {
            *known[i].number = strtol(word + strlen(known[i].key), NULL, 10);
            return true;
        }
    return !strcmp(word, "kind=attention") || !strcmp(word, "dtype=f32") ||
           !strcmp(word, "softcap=0");
}

static bool possible(const worker *w) {
    return w->threads >= 1 && w->threads <= MOST_THREADS && w->rotate >= 1 &&
           w->rotate <= MOST_ROTATE && w->kv_heads >= 1 && w->heads % w->kv_heads == 0 &&
           w->heads / w->kv_heads <= TILE_ROWS && w->head >= PANEL && w->head <= MOST_HEAD &&
           w->head % PANEL == 0 && w->tokens >= 1 && w->past >= 0;
}

int main(int argc, char **argv) {
    static worker w = {.threads = 1, .rotate = 1};
    for (int i = 1; i < argc; i++)
        if (!take(&w, argv[i])) {
            printf("failed argument '%s'\n", argv[i]);
            return 2;
        }
    if (!possible(&w)) {
        puts("failed these shapes are not possible");
        return 2;
    }
    const double began = now_ms();
    w.group = w.heads / w.kv_heads;
    w.total = w.past + w.tokens;
    w.block = w.tokens > 1 ? 256 : 512; /* the scores fit in the second-level cache */
    w.padded = (w.total + w.block - 1) / w.block * w.block;
    if (!open_data(&w))
        return 4;
    for (long t = 1; t < w.threads; t++)
        if (pthread_create(&w.ids[t], NULL, follow, &w))
            return 4;
    const double worst = check(&w);
    if (!(worst < 1e-4)) {
        printf("failed: it differs from fp64 by %g\n", worst);
        return 1;
    }
    printf("ready {\"version\": \"of this tree\", \"open_ms\": %.3f, \"error\": %.3g}\n",
           now_ms() - began, worst);
    fflush(stdout);
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        if (strncmp(line, "run ", 4))
            continue;
        printf("times");
        for (long n = strtol(line + 4, NULL, 10); n > 0; n--)
            printf(" %.6f", run_once(&w));
        puts("");
        fflush(stdout);
    }
    return 0;
}
