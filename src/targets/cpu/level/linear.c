/* y [rows,n] = x [rows,k] w (+ bias [n]), w in panels [k][64].
 *
 * Each element is the product of the contract: k in pieces of GQAC_K_PIECE; in a piece one chain
 * acc = fma(x[k], w[k], acc), k ascending, from zero; pieces are added in ascending order, the
 * first starts the sum; then + bias, and one rounding to the type of y. 16-bit values are widened
 * exactly. Tiles of a few rows by 16, 32 or 64 columns differ by level and by the number of rows;
 * the chain of an element does not.
 *
 * A unit loops over pieces of k, in a piece over its panels, in a panel over tiles: a tile reads a
 * piece of x again (copied to scratch if its rows share cache sets) and a piece of a panel (128
 * KiB), and the sums stay in scratch until they are complete. For few rows the weights are the
 * bottleneck: such a unit loops over panels, and over the chunks of a panel in the order in which
 * they are stored. */
#include "targets/cpu/linear.h"

#include "ops/panels.h"
#include "targets/cpu/level/ahead.h"
#include "targets/cpu/level/level.h"
#include "targets/cpu/level/widen.h"

enum {
    WIDE = V16_REGISTERS >= 32, /* a tile has all columns of a panel */
    TILE_ROWS = 6,
    ROW_BLOCK = (WIDE ? 16 : 8) * TILE_ROWS,
    PANEL_GROUP = 8,
    FEW_SETS = 2048,            /* floats; rows at multiples of this share cache sets */
    X_STEP = GQAC_K_PIECE + 16, /* not a power of two, so that tile rows do not share a cache set */
    FEW = 2 * TILE_ROWS - 1,    /* maximum rows for which reading weights takes longer than the
                                   arithmetic */
    IN_PAIRS = WIDE ? 0 : 4,    /* maximum rows that are computed in pairs, so that all columns of a
                                   panel are read in order */
    WIDEN_ROWS = FEW + 1,       /* from this number of rows on, a piece of a 16-bit panel is widened
                                   once */
    AHEAD = 20 * LINE,
    CHUNK = 64,          /* k of a panel that few rows read while it is in the first-level cache */
    CHUNK_AHEAD = 16384, /* a panel is prefetched this many bytes before its use */
};

/* Scratch of a unit. */
typedef struct unit_scratch {
    float *sum; /* [rows][panels * 64] */
    float *x;   /* [rows][X_STEP] */
    float *w;   /* [GQAC_K_PIECE][64], if a panel is widened */
} unit_scratch;

/* One piece of one panel. */
typedef struct piece {
    const float *x; /* [rows][n_k], ldx apart */
    int64_t ldx;
    const void *w; /* [n_k][64] */
    gqac_dtype dtype;
    int rows, n_k;
    bool first;
    float *sum; /* [rows][64], lds apart */
    int64_t lds;
    ahead next;      /* memory that is read after this piece */
    const char *end; /* of the weights of the unit */
} piece;

/* One row by 16-bit weights: widening fills the reorder window of the processor, so that without
 * prefetches too few reads are in flight. */
VEC_FN void look_ahead(const void *w, int64_t at, const int vectors, const gqac_dtype dtype) {
    if (dtype == GQAC_F32)
        return;
    const uintptr_t line = (uintptr_t)w + (uintptr_t)at * sizeof(uint16_t) + AHEAD;
#pragma GCC unroll 2
    for (int i = 0; i < vectors / 2; i++)
        __builtin_prefetch((const void *)(line + (uintptr_t)(i * LINE)), 0, 3);
}

VEC_FN void step(v16 acc[TILE_ROWS][4], const float *x, int64_t ldx, const void *w, int64_t at,
                 const int rows, const int vectors, const gqac_dtype dtype) {
    const bool keep = rows > 1 && (rows + 1) * vectors < V16_REGISTERS; /* and one register for x */
    v16 b[4];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        b[v] = load_as(dtype, w, at + 16 * v);
        b[v] = keep ? v16_keep(b[v]) : b[v];
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        const v16 a = v16_set1(x[r * ldx]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            acc[r][v] = v16_fma(a, b[v], acc[r][v]);
    }
}

/* acc += x w: continues the chains over n_k terms. */
VEC_FN void chain(v16 acc[TILE_ROWS][4], const float *x, int64_t ldx, const void *w, int64_t at,
                  int n_k, ahead *next, const int rows, const int vectors, const gqac_dtype dtype) {
    int k = 0;
    for (; k + 4 <= n_k; k += 4) {
        ahead_step(next);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++, at += LINEAR_PANEL) {
            if (rows == 1)
                look_ahead(w, at, vectors, dtype);
            step(acc, x + k + j, ldx, w, at, rows, vectors, dtype);
        }
    }
    for (; k < n_k; k++, at += LINEAR_PANEL)
        step(acc, x + k, ldx, w, at, rows, vectors, dtype);
}

/* sum (+)= x w for `rows` rows from `row` and 16 * `vectors` columns from `column`. */
VEC_FN void tile(const piece *p, int row, int column, ahead next, const int rows, const int vectors,
                 const gqac_dtype dtype) {
    v16 acc[TILE_ROWS][4];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            acc[r][v] = v16_zero();
    chain(acc, p->x + row * p->ldx, p->ldx, p->w, column, p->n_k, &next, rows, vectors, dtype);
    float *sum = p->sum + row * p->lds + column;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            float *s = sum + r * p->lds + 16 * v;
            v16_store(s, p->first ? acc[r][v] : v16_add(v16_load(s), acc[r][v]));
        }
}

/* The same chains for few rows, over CHUNK terms at once; between chunks the sums are stored in
 * `acc` [rows][64]. */
VEC_FN void few_tile(const piece *p, float *acc, int row, int k, ahead next, const int rows,
                     const int vectors, const gqac_dtype dtype) {
    const int n_k = p->n_k - k < CHUNK ? p->n_k - k : CHUNK;
    const float *x = p->x + row * p->ldx + k;
    for (int column = 0; column < LINEAR_PANEL; column += 16 * vectors) {
        v16 a[TILE_ROWS][4];
        float *at = acc + row * LINEAR_PANEL + column;
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                a[r][v] = k ? v16_load(at + r * LINEAR_PANEL + 16 * v) : v16_zero();
        chain(a, x, p->ldx, p->w, (int64_t)k * LINEAR_PANEL + column, n_k, &next, rows, vectors,
              dtype);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                v16_store(at + r * LINEAR_PANEL + 16 * v, a[r][v]);
    }
}

/* Vectors of a tile: enough chains to hide the latency of fma, within the number of registers. */
#define VECTORS(rows) (WIDE || (rows) <= 2 ? 4 : (rows) <= 3 ? 2 : 1)

#define TILE(r)                                                                                    \
    case r:                                                                                        \
        tile(p, row, column, next, r, VECTORS(r), dtype);                                          \
        break
#define FEW_TILE(r)                                                                                \
    case r:                                                                                        \
        few_tile(p, acc, row, k, next, r, VECTORS(r), dtype);                                      \
        break
#define TILES(name, dtype_)                                                                        \
    static void name(const piece *p, int row, int rows, int column, ahead next) {                  \
        const gqac_dtype dtype = dtype_;                                                           \
        switch (rows) { TILE_CASES(TILE); }                                                        \
    }                                                                                              \
    static void few_##name(const piece *p, float *acc, int row, int rows, int k, ahead next) {     \
        const gqac_dtype dtype = dtype_;                                                           \
        switch (rows) { TILE_CASES(FEW_TILE); }                                                    \
    }
TILES(tile_f32, GQAC_F32)
TILES(tile_f16, GQAC_F16)
TILES(tile_bf16, GQAC_BF16)

static void run_tile(const piece *p, int row, int rows, int column, ahead next) {
    if (p->dtype == GQAC_F32)
        tile_f32(p, row, rows, column, next);
    else if (p->dtype == GQAC_F16)
        tile_f16(p, row, rows, column, next);
    else
        tile_bf16(p, row, rows, column, next);
}

/* Divides rows into tiles of nearly equal height: 7 rows are 4 + 3, because a tile of one row reads
 * as much as one of six. */
static void run_piece(const piece *p) {
    const int groups = (p->rows + TILE_ROWS - 1) / TILE_ROWS;
    const int least = p->rows / groups, more = p->rows % groups;
    const int64_t tiles = (groups - more) * (LINEAR_PANEL / 16 / VECTORS(least)) +
                          more * (LINEAR_PANEL / 16 / VECTORS(least + 1));
    const int64_t steps = p->n_k / 4 > 0 ? p->n_k / 4 : 1;
    int64_t done = 0;
    for (int g = 0, row = 0; g < groups; g++) {
        const int rows = least + (g < more);
        for (int column = 0; column < LINEAR_PANEL; column += 16 * VECTORS(rows))
            run_tile(p, row, rows, column, ahead_part(p->next, done++, tiles, steps));
        row += rows;
    }
}

static void run_few_tile(const piece *p, float *acc, int row, int rows, int k, ahead next) {
    if (p->dtype == GQAC_F32)
        few_tile_f32(p, acc, row, rows, k, next);
    else if (p->dtype == GQAC_F16)
        few_tile_f16(p, acc, row, rows, k, next);
    else
        few_tile_bf16(p, acc, row, rows, k, next);
}

/* For few rows the weights are the bottleneck: each chunk of a panel is read once, for all rows. */
static void run_few(const piece *p) {
    float acc[FEW * LINEAR_PANEL];
    const int height = p->rows <= IN_PAIRS ? 2 : TILE_ROWS;
    const int groups = (p->rows + height - 1) / height;
    const int least = p->rows / groups, more = p->rows % groups;
    const int64_t line = LINEAR_PANEL * (int64_t)width_of(p->dtype);
    for (int k = 0; k < p->n_k; k += CHUNK) {
        const char *at = (const char *)p->w + k * line;
        const int64_t left = p->end - at - CHUNK_AHEAD, most = CHUNK * line;
        const ahead next = ahead_of(at + CHUNK_AHEAD, left < 0 ? 0 : left < most ? left : most);
        for (int g = 0, row = 0; g < groups; g++) {
            const int rows = least + (g < more);
            run_few_tile(
                p, acc, row, rows, k,
                ahead_part(next, g, groups, CHUNK / 4 * (LINEAR_PANEL / 16 / VECTORS(rows))));
            row += rows;
        }
    }
    for (int r = 0; r < p->rows; r++)
        for (int c = 0; c < LINEAR_PANEL; c += 16) {
            const v16 a = v16_load(acc + r * LINEAR_PANEL + c);
            float *s = p->sum + r * p->lds + c;
            v16_store(s, p->first ? a : v16_add(v16_load(s), a));
        }
}

/* ---- operands and results ------------------------------------------------- */

/* y = sum (+ bias), `count` <= 64 columns of a row. */
static void store_row(const cpu_linear_job *job, const float *sum, const float *bias, int64_t at,
                      int count) {
    float row[LINEAR_PANEL];
    float *y = job->dtype == GQAC_F32 && count == LINEAR_PANEL ? (float *)job->y + at : row;
    for (int i = 0; i < LINEAR_PANEL; i += 16) {
        const v16 s = v16_load(sum + i);
        v16_store(y + i, v16_one_nan(bias ? v16_add(s, v16_load(bias + i)) : s));
    }
    uint16_t *half = (uint16_t *)job->y + at;
    if (job->dtype == GQAC_F16)
        for (int i = 0; i < count; i++)
            half[i] = gqn_f32_to_f16(row[i]);
    else if (job->dtype == GQAC_BF16)
        for (int i = 0; i < count; i++)
            half[i] = gqn_f32_to_bf16(row[i]);
    else if (y == row)
        memcpy((float *)job->y + at, row, (size_t)count * sizeof *row);
}

static void store(const cpu_linear_job *job, const cpu_linear_unit *unit, const float *sum,
                  int64_t lds) {
    float bias[LINEAR_PANEL] = {0};
    for (int64_t p = 0; p < unit->panels; p++) {
        const int64_t column = (unit->panel + p) * LINEAR_PANEL, left = job->n - column;
        const int count = left < LINEAR_PANEL ? (int)left : LINEAR_PANEL;
        if (job->bias)
            widen(job->bias_dtype, job->bias, column, count, bias);
        for (int64_t r = 0; r < unit->rows; r++)
            store_row(job, sum + r * lds + p * LINEAR_PANEL, job->bias ? bias : NULL,
                      (unit->row + r) * job->n + column, count);
    }
}

/* ---- a unit --------------------------------------------------------------- */

static int64_t piece_length(const cpu_linear_job *job) {
#ifdef GQAC_CONTROL_KERNEL_BY_ROWS /* negative control: other arithmetic for a single row */
    if (job->rows == 1)
        return 7;
#endif
    (void)job;
    return GQAC_K_PIECE;
}

/* True if rows of x can be read in place, which is not so if their distance makes the rows of a
 * unit share few cache sets. */
static bool reads_in_place(const cpu_linear_job *job, int64_t rows) {
    return job->dtype == GQAC_F32 && (rows == 1 || job->k % FEW_SETS != 0);
}

/* Sets the rows of x of a piece, in fp32. */
static void take_rows(const cpu_linear_job *job, const cpu_linear_unit *unit, int64_t k, piece *p,
                      float *scratch) {
    const int64_t x = unit->row * job->k + k;
    if (reads_in_place(job, unit->rows)) {
        p->x = (const float *)job->x + x;
        p->ldx = job->k;
        return;
    }
    p->x = scratch;
    p->ldx = X_STEP;
    for (int64_t r = 0; r < unit->rows; r++)
        widen(job->dtype, job->x, x + r * job->k, p->n_k, scratch + r * X_STEP);
}

static bool widens(const cpu_linear_job *job, int64_t rows) {
    return job->w_dtype != GQAC_F32 && rows >= WIDEN_ROWS;
}

/* True if a unit loops over the panels one by one, in the order in which they are stored. */
static bool few(const cpu_linear_unit *unit) {
    return unit->rows > 1 && unit->rows <= FEW;
}

static size_t scratch_bytes(const cpu_linear_job *job) {
    const size_t rows = job->rows < ROW_BLOCK ? (size_t)job->rows : ROW_BLOCK;
    const size_t w = widens(job, job->rows) ? LINEAR_PANEL * GQAC_K_PIECE : 0;
    return (rows * (PANEL_GROUP * LINEAR_PANEL + X_STEP) + w) * sizeof(float);
}

static unit_scratch scratch_of(const cpu_linear_job *job, void *memory) {
    const int64_t rows = job->rows < ROW_BLOCK ? job->rows : ROW_BLOCK;
    float *const sum = memory, *const x = sum + rows * PANEL_GROUP * LINEAR_PANEL;
    return (unit_scratch){sum, x, x + rows * X_STEP};
}

/* Computes piece k of panel i of a unit; the rows of x are already set. */
static void run_panel(const cpu_linear_job *job, const cpu_linear_unit *unit,
                      const unit_scratch *scratch, int64_t k, int64_t i, piece *p) {
    const size_t line = LINEAR_PANEL * width_of(job->w_dtype); /* of a panel, for one k */
    const char *first =
        (const char *)job->w + (size_t)((unit->panel - job->w_panel) * job->k) * line;
    const char *w = first + (size_t)(i * job->k + k) * line;
    const size_t bytes = (size_t)p->n_k * line;
    const bool last = i + 1 == unit->panels;
    p->first = k == 0;
    p->sum = scratch->sum + i * LINEAR_PANEL;
    p->w = w;
    p->dtype = job->w_dtype;
    if (few(unit)) {
        p->end = first + (size_t)(unit->panels * job->k) * line;
        run_few(p);
        return;
    }
    const char *next = w + (last ? bytes : (size_t)job->k * line);
    if (last && unit->panels > 1)
        next = first + (size_t)(k + p->n_k) * line;
    p->next = ahead_of(next, unit->rows == 1 ? 0 : (int64_t)bytes);
    if (widens(job, unit->rows)) {
        widen(job->w_dtype, w, 0, p->n_k * LINEAR_PANEL, scratch->w);
        p->w = scratch->w;
        p->dtype = GQAC_F32;
    }
    run_piece(p);
}

static void run(const cpu_linear_job *job, const cpu_linear_unit *unit, void *memory) {
    const unit_scratch scratch = scratch_of(job, memory);
    const int64_t length = piece_length(job), at_once = few(unit) ? 1 : unit->panels;
    piece p = {.rows = (int)unit->rows, .lds = unit->panels * LINEAR_PANEL};
    for (int64_t i = 0; i < unit->panels; i += at_once)
        for (int64_t k = 0; k < job->k; k += length) {
            p.n_k = (int)(job->k - k < length ? job->k - k : length);
            take_rows(job, unit, k, &p, scratch.x);
            for (int64_t j = i; j < i + at_once; j++)
                run_panel(job, unit, &scratch, k, j, &p);
        }
    store(job, unit, scratch.sum, p.lds);
}

extern const struct cpu_linear_kernels CPU_NAME(cpu_linear);
const struct cpu_linear_kernels CPU_NAME(cpu_linear) = {
    .row_block = ROW_BLOCK,
    .panel_group = PANEL_GROUP,
    .scratch = scratch_bytes,
    .run = run,
};
