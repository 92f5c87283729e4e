/* Attention in tensor cores, on the emulator: a row has the bits of one scalar program, whatever
 * rows and keys it is computed with and at any position in a tile, and is near a softmax in double
 * precision. The tests are built for several sizes of heads and types of rows
 * (test/CMakeLists.txt). */
#include "unit.h"

#include "emulator.h"

#include "targets/gpu/blocks.h"
#include "targets/gpu/gpu.h"

#ifndef ATTEND_SIZE
#define ATTEND_SIZE       48 /* the last block of 32 is half empty */
#define ATTEND_VALUE_SIZE 32
#define ATTEND_TYPE       F16
#endif
#define HAS_PROMPT          (ATTEND_SIZE <= 128 && ATTEND_VALUE_SIZE <= 128)
#define ATTEND_MANY_ROWS    (HAS_PROMPT ? GPU_ATTEND_MANY_ROWS : GPU_ATTEND_MANY_ROWS / 2)
#define ATTEND_TENSOR_ITEMS GPU_ATTEND_TENSOR_ITEMS
#define ATTEND_MERGERS      GPU_ATTEND_MERGERS
#define ATTEND_MOST         GPU_ATTEND_SIZE
#define KV_BLOCK            GQAC_KV_BLOCK
#define KV_SLABS            GPU_SLABS

/* The kernels use the files before them, and are written for compilers that do not warn about
 * conversions. */
/* clang-format off */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "targets/gpu/kernels/values.h"
#include "targets/gpu/kernels/factors.cl"
#include "targets/gpu/kernels/attend_common.cl"
#include "targets/gpu/kernels/attend_stage.cl"
#include "targets/gpu/kernels/attend_tensor.cl"
#include "targets/gpu/kernels/attend_prompt.cl"
#pragma GCC diagnostic pop
/* clang-format on */

#define CODE_SCALE (ATTEND_TYPE == I8 ? 0x1p-7f : 0x1p-3f)

enum { SEQUENCES = 3, TILE = GQAC_KEY_TILE, ENTRIES = 24 };

/* Sequences with cached keys and new rows, and the options of their attention. */
typedef struct scene {
    const char *title;
    int past[SEQUENCES], fresh[SEQUENCES]; /* fresh: new rows */
    int group, kv_heads, window;
    float softcap;
    bool sink, bias, per_channel;
    bool bad; /* some elements of q, k and v are NaN or infinite */
} scene;

static const scene scenes[] = {
    {"causal", {0, 61, 7}, {70, 5, 1}, 3, 2, 0, 0.0f, false, false, false, false},
    {"many splits", {1030, 0, 509}, {3, 2, 9}, 2, 1, 0, 0.0f, true, false, true, false},
    {"a window", {90, 600, 0}, {40, 2, 17}, 1, 2, 70, 0.0f, true, false, false, false},
    {"softcap and bias", {20, 0, 130}, {17, 9, 2}, 5, 1, 0, 3.0f, false, true, true, false},
    {"numbers that are not finite",
     {490, 3, 0},
     {30, 64, 2},
     2,
     1,
     0,
     0.0f,
     true,
     true,
     false,
     true},
    {"the same in a window", {700, 130, 0}, {9, 40, 3}, 1, 1, 100, 0.0f, false, false, true, true},
};

/* A launch, and the memory that it reads and writes. */
typedef struct launch {
    const scene *of;
    attend_shape shape;
    attend_blocks blocks;
    float *q, *bias, *sink, *k_scale, *v_scale, *parts, *y;
    uchar *slabs[KV_SLABS];
    float *k, *v; /* as read by attention: [SEQUENCES][keys][Hkv][D] */
    int *lists, keys, n_units, n_merges, n_slots;
#if HAS_PROMPT
    attend_shape tiles; /* shape, for attend_prepare */
    uint4 *factors;
#endif
    unsigned state; /* of the random numbers */
} launch;

static unsigned random_of(launch *l, unsigned n) {
    l->state = l->state * 1664525u + 1013904223u;
    return (l->state >> 8) % n;
}
static float number(launch *l) {
    return (float)(int)random_of(l, 0x10000) * 0x1p-15f - 1.0f;
}

/* ---- the definition ---------------------------------------------------------------------- */

static float factor(float x) {
    return gqn_bf16_to_f32(gqn_bf16_factor(x));
}

/* acc of a column after a tile; p and v of its keys are zeros where a key is not visible. */
static float weigh_scalar(float acc, const float *p, const float *v, int from, int to) {
    bool bad = false;
    for (int t = 0; t < TILE; t++) {
        const bool sees = t >= from && t < to;
        const float x = sees ? factor(v[t]) : 0.0f;
        bad = bad || x - x != 0.0f;
        acc = gqn_fma(sees ? factor(p[t]) : 0.0f, x, acc);
    }
    return bad ? NAN : acc;
}

/* The plain sum of a score. */
static float score_scalar(const float *q, const float *k) {
    static const int order[16] = {0, 1, 8, 9, 16, 17, 24, 25, 2, 3, 10, 11, 18, 19, 26, 27};
    float sum = 0.0f;
    for (int i = 0; i < (ATTEND_SIZE + 31) / 32 * 32; i++) {
        const int d = i / 32 * 32 + order[i % 16] + i % 32 / 16 * 4;
        sum = gqn_fma(d < ATTEND_SIZE ? factor(q[d]) : 0.0f, d < ATTEND_SIZE ? factor(k[d]) : 0.0f,
                      sum);
    }
    return sum;
}

/* A row: head h of query `row`, which belongs to sequence b. */
typedef struct row_of {
    int b, row, h;
} row_of;

static const float *stored(const float *rows, const launch *l, row_of r, int key, int size) {
    const int kv_head = r.h / l->of->group;
    return rows + (((size_t)r.b * (size_t)l->keys + (size_t)key) * (size_t)l->of->kv_heads +
                   (size_t)kv_head) *
                      (size_t)size;
}
static const float *query_of(const launch *l, row_of r) {
    return l->q + ((size_t)r.h * (size_t)l->shape.queries + (size_t)r.row) * ATTEND_SIZE;
}
static float bias_of(const launch *l, row_of r, int key) {
    return l->bias[r.h * l->shape.bias_step[1] + r.row * l->shape.bias_step[2] + key];
}

static float score_of(const launch *l, row_of r, int key) {
    float x = l->shape.scale * score_scalar(query_of(l, r), stored(l->k, l, r, key, ATTEND_SIZE));
    if (l->of->softcap > 0.0f)
        x = l->of->softcap * gqn_tanhf(gqn_div(x, l->of->softcap));
    return l->of->bias ? x + bias_of(l, r, key) : x;
}

typedef struct part {
    float m, l, acc[ATTEND_VALUE_SIZE];
} part;

/* The keys [from, to) of the tile at `tile`. */
static void tile_scalar(const launch *l, row_of r, int tile, int from, int to, part *of) {
    float p[TILE], v[TILE], lanes[GQAC_LANES] = {0.0f}, m = of->m;
    for (int t = from; t < to; t++) {
        p[t] = score_of(l, r, tile + t);
        m = p[t] > m ? p[t] : m;
    }
    const float mu = m == -INFINITY ? 0.0f : m, alpha = m > of->m ? gqn_expf(of->m - mu) : 1.0f;
    for (int t = from; t < to; t++) {
        p[t] = gqn_expf(p[t] - mu);
        lanes[t % GQAC_LANES] += p[t];
    }
    of->l = gqn_fma(of->l, alpha, fold_weights(lanes));
    of->m = m;
    for (int d = 0; d < ATTEND_VALUE_SIZE; d++) {
        for (int t = from; t < to; t++)
            v[t] = stored(l->v, l, r, tile + t, ATTEND_VALUE_SIZE)[d];
        of->acc[d] = weigh_scalar(of->acc[d] * alpha + 0.0f, p, v, from, to);
    }
}

/* The definition for one row. */
static void row_scalar(const launch *l, row_of r, int lo, int hi, float *y) {
    part all = {0};
    bool some = false;
    for (int split = lo / GQAC_KEY_SPLIT * GQAC_KEY_SPLIT; split < hi; split += GQAC_KEY_SPLIT) {
        part now = {.m = -INFINITY};
        float before = 0.0f, by = 1.0f;
        for (int tile = split; tile < split + GQAC_KEY_SPLIT; tile += TILE)
            if (lo < tile + TILE && hi > tile)
                tile_scalar(l, r, tile, most_of(lo - tile, 0), least_of(hi - tile, TILE), &now);
        if (some)
            merge_factors(now.m, now.l, &all.m, &all.l, &before, &by);
        for (int d = 0; d < ATTEND_VALUE_SIZE; d++) {
            const float x = now.acc[d] - now.acc[d] != 0.0f ? NAN : now.acc[d];
            all.acc[d] = some ? gqn_fma(x, by, all.acc[d] * before) : x;
        }
        if (!some) {
            all.m = now.m;
            all.l = now.l;
        }
        some = true;
    }
    float by_sink, by;
    end_factors(all.m, all.l, l->of->sink, l->of->sink ? l->sink[r.h] : 0.0f, &by_sink, &by);
    for (int d = 0; d < ATTEND_VALUE_SIZE; d++)
        y[d] = some ? one_nan(gqn_div(all.acc[d] * by_sink, by)) : 0.0f;
}

/* The error of a row against double precision without factors, tiles and splits. */
static double distance(const launch *l, row_of r, int lo, int hi, const float *y) {
    double *p = calloc((size_t)hi + 1, sizeof *p);
    double most = l->of->sink ? l->sink[r.h] : -INFINITY, sum = 0.0, far = 0.0;
    for (int j = lo; j < hi; j++) {
        for (int d = 0; d < ATTEND_SIZE; d++)
            p[j] += (double)query_of(l, r)[d] * stored(l->k, l, r, j, ATTEND_SIZE)[d];
        p[j] *= l->shape.scale;
        if (l->of->softcap > 0.0f)
            p[j] = l->of->softcap * tanh(p[j] / l->of->softcap);
        p[j] += l->of->bias ? bias_of(l, r, j) : 0.0;
        most = p[j] > most ? p[j] : most;
    }
    for (int j = lo; j < hi; j++)
        sum += p[j] = exp(p[j] - most);
    sum += l->of->sink ? exp(l->sink[r.h] - most) : 0.0;
    for (int d = 0; d < ATTEND_VALUE_SIZE; d++) {
        double x = 0.0;
        for (int j = lo; j < hi; j++)
            x += p[j] / sum * stored(l->v, l, r, j, ATTEND_VALUE_SIZE)[d];
        far = fabs(x - y[d]) > far ? fabs(x - y[d]) : far;
    }
    free(p);
    return far;
}

/* ---- memory ------------------------------------------------------------------------- */

static void *memory(size_t bytes) {
    void *to = aligned_alloc(64, (bytes + 127) / 64 * 64);
    memset(to, 0xff, (bytes + 127) / 64 * 64);
    return to;
}

/* Stores a row of cached elements and reads it; about one in `rare` elements is not finite. */
static void put_row(launch *l, uchar *row, float *scales, const float *channels, int size,
                    unsigned rare, float *as_read) {
    const bool codes = ATTEND_TYPE >= I8;
    for (int d = 0; d < size; d++)
        if (codes)
            row[ATTEND_TYPE == I8 ? d : d / 2] = (uchar)random_of(l, 256);
        else
            put_float(row, ATTEND_TYPE, (size_t)d,
                      l->of->bad && random_of(l, rare) == 0
                          ? (const float[]){NAN, INFINITY, -INFINITY, 0x1p-60f}[random_of(l, 4)]
                          : number(l));
    if (codes && !l->of->per_channel)
        *scales = l->of->bad && random_of(l, rare) == 0 ? NAN : CODE_SCALE;
    for (int d = 0; d < size; d++)
        as_read[d] = element(row, d, ATTEND_TYPE, l->of->per_channel ? channels : scales,
                             l->of->per_channel);
}

/* Blocks of the sequences, in random order; rows after the last key stay NaN. */
static void fill_blocks(launch *l, int *table) {
    const int kv_heads = l->of->kv_heads;
    const size_t k_bytes = row_bytes(ATTEND_SIZE, ATTEND_TYPE);
    const size_t v_bytes = row_bytes(ATTEND_VALUE_SIZE, ATTEND_TYPE);
    const size_t rows = (size_t)(KV_BLOCK * kv_heads), scales = rows * sizeof(float);
    attend_blocks *b = &l->blocks;
    *b = (attend_blocks){.per = (l->keys + KV_BLOCK - 1) / KV_BLOCK,
                         .entry_bytes = (long)(rows * (k_bytes + v_bytes) + 2 * scales),
                         .v_at = (long)(rows * k_bytes),
                         .type = ATTEND_TYPE,
                         .scale_step = l->of->per_channel};
    if (ATTEND_TYPE >= I8 && !l->of->per_channel) {
        b->k_scales_at = (long)(rows * (k_bytes + v_bytes));
        b->v_scales_at = b->k_scales_at + (long)scales;
    }
    for (int i = 0; i < KV_SLABS; i++) {
        b->entries[i] = ENTRIES;
        l->slabs[i] = memory((size_t)b->entry_bytes * ENTRIES);
    }
    for (int s = 0, next = 0; s < SEQUENCES; s++)
        for (int key = 0; key < l->of->past[s] + l->of->fresh[s]; key++) {
            int *entry = &table[s * b->per + key / KV_BLOCK];
            if (key % KV_BLOCK == 0)
                *entry = next++ * 7 % (KV_SLABS * ENTRIES);
            uchar *base = l->slabs[*entry % KV_SLABS] + *entry / KV_SLABS * b->entry_bytes;
            for (int h = 0; h < kv_heads; h++) {
                const size_t row = (size_t)(key % KV_BLOCK * kv_heads + h);
                const size_t own =
                    ((size_t)s * (size_t)l->keys + (size_t)key) * (size_t)kv_heads + (size_t)h;
                put_row(l, base + row * k_bytes, (float *)(void *)(base + b->k_scales_at) + row,
                        l->k_scale + h * ATTEND_SIZE, ATTEND_SIZE, 1000 * ATTEND_SIZE,
                        l->k + own * ATTEND_SIZE);
                put_row(l, base + (size_t)b->v_at + row * v_bytes,
                        (float *)(void *)(base + b->v_scales_at) + row,
                        l->v_scale + h * ATTEND_VALUE_SIZE, ATTEND_VALUE_SIZE, 800,
                        l->v + own * ATTEND_VALUE_SIZE);
            }
        }
}

static float *numbers(launch *l, size_t n, float by, int infinite) {
    float *to = memory(n * sizeof *to);
    for (size_t i = 0; i < n; i++)
        to[i] = infinite && random_of(l, (unsigned)infinite) == 0 ? -INFINITY : by * number(l);
    return to;
}

/* ---- division into units ----------------------------------------------------------------- */

static void put(int **to, int n, const int *from) {
    memcpy(*to, from, (size_t)n * sizeof(int));
    *to += n;
}

/* Divides the rows of a sequence into tiles of any size, and their keys into units at any split. */
static void cut(launch *l, int sequence, int query, int **unit, int **merge) {
    const int group = l->of->group, rows = l->of->fresh[sequence] * group;
    const int *lo = l->lists, *hi = l->lists + l->shape.rows;
    for (int first = 0, n; first < rows; first += n) {
        n = 1 + (int)random_of(l, random_of(l, 3) ? ATTEND_MANY_ROWS : 4);
        n = least_of(n, rows - first);
        int begin = l->keys, end = 0;
        for (int i = query + first / group; i <= query + (first + n - 1) / group; i++) {
            begin = least_of(begin, lo[i]);
            end = most_of(end, hi[i]);
        }
        const int at = begin / GQAC_KEY_SPLIT, splits = (end - 1) / GQAC_KEY_SPLIT - at + 1;
        const int per = 1 + (int)random_of(l, (unsigned)splits);
        const bool whole = per == splits && random_of(l, 2);
        for (int i = 0; i < splits; i += per) {
            const int from = (at + i) * GQAC_KEY_SPLIT, to = from + per * GQAC_KEY_SPLIT;
            put(unit, 7,
                (const int[]){query, first, n, sequence, most_of(from, begin), least_of(to, end),
                              whole ? -1 : l->n_slots + i * l->of->kv_heads * n});
            l->n_units++;
        }
        for (int r = first; !whole && r < first + n; r++) {
            put(merge, 6,
                (const int[]){query + r / group, r % group, l->n_slots + r - first, n, at, splits});
            l->n_merges++;
        }
        l->n_slots += whole ? 0 : splits * l->of->kv_heads * n;
    }
}

#define OPERANDS(l)                                                                                \
    (const uchar *)(l)->q, NULL, NULL, (l)->slabs[0], (l)->slabs[1], (l)->slabs[2], (l)->slabs[3], \
        (l)->slabs[4], (l)->slabs[5], (l)->slabs[6], (l)->slabs[7], (l)->slabs[8], (l)->slabs[9],  \
        (l)->slabs[10], (l)->slabs[11], (l)->slabs[12], (l)->slabs[13], (l)->slabs[14],            \
        (l)->slabs[15], (l)->lists, (l)->bias, (l)->sink, (l)->k_scale, (l)->v_scale, (l)->parts,  \
        (l)->y
static void run_attend(const void *given) {
    const launch *l = given;
    attend_tensor(OPERANDS(l), l->shape, l->blocks);
}
#if HAS_PROMPT
static void run_prepare(const void *given) {
    const launch *l = given;
    attend_prepare(OPERANDS(l), l->tiles, l->blocks, l->factors);
}
static void run_prompt(const void *given) {
    const launch *l = given;
    attend_prompt(OPERANDS(l), l->shape, l->blocks, l->factors);
}

/* Computes the factors of all keys that are visible to any row; the others stay NaN. */
static void prepare(launch *l, int *list, bool late) {
    const int all = (l->keys + TILE - 1) / TILE;
    int n = 0;
    l->shape.prompt = all;
    l->tiles = l->shape;
    l->tiles.units = (int)(list - l->lists);
    for (int s = 0, i = 0; s < SEQUENCES; i += l->of->fresh[s++])
        for (int tile = l->lists[i] / TILE * TILE, end = l->of->past[s] + l->of->fresh[s];
             tile < end; tile += TILE, n++)
            put(&list, 4,
                (const int[]){s, tile, most_of(l->lists[i] - tile, 0), least_of(end - tile, TILE)});
    l->factors = memory((size_t)(SEQUENCES * all * l->of->kv_heads) * (K_STAGE + V_STAGE) * 16);
    emulate(run_prepare, l, (size_t)l->of->kv_heads, (size_t)n, ATTEND_TENSOR_ITEMS, late);
}
#endif

/* Computes the units: with attend_prompt if it exists and `prompt` is true. */
static void compute_units(launch *l, int *list, bool prompt, bool late) {
    const size_t heads = (size_t)l->of->kv_heads, n = (size_t)l->n_units;
#if HAS_PROMPT
    if (prompt) {
        prepare(l, list, late);
        emulate(run_prompt, l, heads, n, ATTEND_TENSOR_ITEMS, late);
        free(l->factors);
        return;
    }
#endif
    (void)list;
    (void)prompt;
    emulate(run_attend, l, heads, n, ATTEND_TENSOR_ITEMS, late);
}

static void run_merge(const void *given) {
    const launch *l = given;
    attend_merge(l->lists, l->parts, l->sink, l->y, l->shape);
}

/* Computes all rows, with some division. */
static void compute(launch *l, bool prompt, bool late) {
    const int n = l->shape.rows * l->of->group;
    int *units = memory((size_t)n * 4 * 7 * sizeof(int)), *unit = units;
    int *merges = memory((size_t)n * 6 * sizeof(int)), *merge = merges;
    l->n_units = l->n_merges = l->n_slots = 0;
    for (int s = 0, query = 0; s < SEQUENCES; query += l->of->fresh[s++])
        cut(l, s, query, &unit, &merge);
    int *to = l->lists + l->shape.units;
    put(&to, 7 * l->n_units, units);
    l->shape.merges = (int)(to - l->lists);
    put(&to, 6 * l->n_merges, merges);
    l->parts = memory((size_t)l->n_slots * part_size(ATTEND_VALUE_SIZE) * sizeof(float));
    compute_units(l, to, prompt, late);
    emulate(run_merge, l, (size_t)l->of->kv_heads, (size_t)l->n_merges, ATTEND_MERGERS, late);
    free(l->parts);
    free(units);
    free(merges);
}

/* ---- scenes ------------------------------------------------------------------------------ */

static launch open_scene(const scene *of) {
    launch l = {.of = of, .state = 7};
    int rows = 0;
    for (int s = 0; s < SEQUENCES; s++) {
        rows += of->fresh[s];
        l.keys = most_of(l.keys, of->past[s] + of->fresh[s]);
    }
    const int heads = of->group * of->kv_heads, per = (l.keys + KV_BLOCK - 1) / KV_BLOCK;
    const size_t cached = (size_t)(SEQUENCES * l.keys * of->kv_heads);
    l.shape = (attend_shape){.heads = heads,
                             .kv_heads = of->kv_heads,
                             .queries = rows,
                             .keys = l.keys,
                             .size = ATTEND_SIZE,
                             .value_size = ATTEND_VALUE_SIZE,
                             .bias_columns = of->bias ? l.keys : 0,
                             .has_sink = of->sink,
                             .rows = rows,
                             .table = 2 * rows,
                             .units = 2 * rows + SEQUENCES * per,
                             .scale = 1.5f / sqrtf(ATTEND_SIZE),
                             .softcap = of->softcap,
                             .bias_step = {0, (long)rows * l.keys, l.keys}};
    l.lists =
        memory((size_t)(2 * rows + 5 * SEQUENCES * per + rows * of->group * 34) * sizeof(int));
    l.q = numbers(&l, (size_t)(heads * rows) * ATTEND_SIZE, 2.0f, of->bad ? 3000 : 0);
    l.bias = numbers(&l, (size_t)(heads * rows * l.keys), 1.0f, 5);
    l.sink = numbers(&l, (size_t)heads, 1.0f, 0);
    l.k_scale = numbers(&l, (size_t)of->kv_heads * ATTEND_SIZE, CODE_SCALE, 0);
    l.v_scale = numbers(&l, (size_t)of->kv_heads * ATTEND_VALUE_SIZE, CODE_SCALE, 0);
    l.k = memory(cached * ATTEND_SIZE * sizeof(float));
    l.v = memory(cached * ATTEND_VALUE_SIZE * sizeof(float));
    l.y = memory((size_t)(heads * rows) * ATTEND_VALUE_SIZE * sizeof(float));
    fill_blocks(&l, l.lists + l.shape.table);
    for (int s = 0, i = 0; s < SEQUENCES; s++)
        for (int j = 0; j < of->fresh[s]; j++, i++) {
            l.lists[rows + i] = of->past[s] + j + 1;
            l.lists[i] = of->window ? most_of(0, l.lists[rows + i] - of->window) : 0;
        }
    return l;
}

static void check_scene(const scene *of) {
    enum { CUTS = 4 };
    launch l = open_scene(of);
    const size_t row = ATTEND_VALUE_SIZE * sizeof(float);
    const int heads = l.shape.heads, rows = l.shape.rows;
    float *expected = memory((size_t)(rows * heads) * row);
    for (int s = 0, i = 0; s < SEQUENCES; s++)
        for (int j = 0; j < of->fresh[s]; j++, i++)
            for (int h = 0; h < heads; h++) {
                const row_of r = {s, i, h};
                float *y = expected + (i * heads + h) * ATTEND_VALUE_SIZE;
                row_scalar(&l, r, l.lists[i], l.lists[rows + i], y);
                if (!of->bad)
                    CU_ASSERT(distance(&l, r, l.lists[i], l.lists[rows + i], y) < 0.03);
            }
    int bad = 0;
    for (int i = 0; i < rows * heads * ATTEND_VALUE_SIZE; i++)
        bad += expected[i] != expected[i];
    CU_ASSERT(of->bad ? bad < rows * heads * ATTEND_VALUE_SIZE * 9 / 10 : bad == 0);
    CU_ASSERT(!of->bad || of->per_channel || bad > 0);
    for (int n = 0; n < CUTS; n++) {
        compute(&l, n / 2, n % 2);
        int wrong = 0;
        for (int i = 0; i < rows * heads; i++)
            wrong +=
                memcmp(l.y + i * ATTEND_VALUE_SIZE, expected + i * ATTEND_VALUE_SIZE, row) != 0;
        CU_ASSERT_EQUAL(wrong, 0);
        memset(l.y, 0xff, (size_t)(rows * heads) * row);
    }
    void *const all[] = {l.lists,   l.q, l.bias, l.sink, l.k_scale,
                         l.v_scale, l.k, l.v,    l.y,    expected};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    for (int i = 0; i < KV_SLABS; i++)
        free(l.slabs[i]);
}

static void test_scenes(void) {
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        check_scene(&scenes[i]);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {{"rows of all cuts", test_scenes}};
    return unit_run("cuda_attend", cases, sizeof cases / sizeof *cases, argc, argv);
}
