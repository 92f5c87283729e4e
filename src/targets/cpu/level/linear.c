/* y [rows,n] = x [rows,k] w (+ bias [n]), w in panels [k][64].
 *
 * Each element is the product of the contract: k in pieces of GQAC_K_PIECE; in a piece one chain
 * acc = fma(x[k], w[k], acc), k ascending, from zero; pieces added ascending, of which the first
 * starts the sum; then + bias, and one rounding to the type of y. 16-bit values are widened
 * exactly. Tiles of a few rows by 16, 32 or 64 columns differ by level and by the number of rows;
 * which chain an element has does not.
 *
 * A unit goes over pieces of k, in a piece over its panels, in a panel over tiles: what a tile
 * reads again is a piece of x (copied to scratch where rows lie badly) and a piece of a panel (128
 * KiB), and the sums stay in scratch until they are whole. */
#include "targets/cpu/linear.h"

#include "ops/panels.h"
#include "targets/cpu/level/level.h"
#include "targets/cpu/level/widen.h"

enum {
    WIDE = V16_REGISTERS >= 32, /* a tile takes all columns of a panel */
    TILE_ROWS = 6,
    ROW_BLOCK = (WIDE ? 16 : 8) * TILE_ROWS,
    PANEL_GROUP = 8,
    FEW_SETS = 2048,            /* floats */
    X_STEP = GQAC_K_PIECE + 16, /* not a power of two: rows of a tile share no set of the cache */
    WIDEN_ROWS = 2 * TILE_ROWS, /* from here a piece of a 16-bit panel is widened once */
    FETCH_ROWS = 4, /* fewer rows only stream a panel, which the machine fetches by itself */
    LINE = 64,
    AHEAD = 20 * LINE,
};

/* Scratch of a unit. */
typedef struct room {
    float *sum; /* [rows][panels * 64] */
    float *x;   /* [rows][X_STEP] */
    float *w;   /* [GQAC_K_PIECE][64]; when a panel is widened */
} room;

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
    uintptr_t next; /* what is read after this piece, to be fetched on the way */
    int64_t next_bytes;
} piece;

/* What to fetch while a tile is computed, at an even pace: `lines` lines in `steps` steps of four
 * k. */
typedef struct fetch {
    uintptr_t at;
    int64_t lines, steps, due;
} fetch;

/* A row by 16-bit weights: to widen them fills the window in which the machine looks ahead, and too
 * few reads are on their way. */
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
    const bool keep = rows > 1 && (rows + 1) * vectors < V16_REGISTERS; /* and one for x */
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

/* sum (+)= x w for `rows` rows from `row` and 16 * `vectors` columns from `column`. */
VEC_FN void tile(const piece *p, int row, int column, fetch f, const int rows, const int vectors,
                 const gqac_dtype dtype) {
    v16 acc[TILE_ROWS][4];
    const int64_t ldx = p->ldx;
    const float *x = p->x + row * ldx;
    const void *w = p->w;
    const int n_k = p->n_k;
    int64_t at = column;
    int k = 0;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            acc[r][v] = v16_zero();
    for (; k + 4 <= n_k; k += 4) {
        for (f.due += f.lines; f.due >= f.steps; f.due -= f.steps, f.at += LINE)
            __builtin_prefetch((const void *)f.at, 0, 2);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++, at += LINEAR_PANEL) {
            if (rows == 1)
                look_ahead(w, at, vectors, dtype);
            step(acc, x + k + j, ldx, w, at, rows, vectors, dtype);
        }
    }
    for (; k < n_k; k++, at += LINEAR_PANEL)
        step(acc, x + k, ldx, w, at, rows, vectors, dtype);
    float *sum = p->sum + row * p->lds + column;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            float *s = sum + r * p->lds + 16 * v;
            v16_store(s, p->first ? acc[r][v] : v16_add(v16_load(s), acc[r][v]));
        }
}

/* Enough chains to hide the latency of fma, as far as registers go. */
#define VECTORS(rows) (WIDE || (rows) == 1 ? 4 : (rows) <= 3 ? 2 : 1)

#define TILE(r)                                                                                    \
    case r:                                                                                        \
        tile(p, row, column, f, r, VECTORS(r), dtype);                                             \
        break
#define TILES(name, dtype_)                                                                        \
    static void name(const piece *p, int row, int rows, int column, fetch f) {                     \
        const gqac_dtype dtype = dtype_;                                                           \
        switch (rows) {                                                                            \
            TILE(1);                                                                               \
            TILE(2);                                                                               \
            TILE(3);                                                                               \
            TILE(4);                                                                               \
            TILE(5);                                                                               \
            TILE(6);                                                                               \
        }                                                                                          \
    }
TILES(tile_f32, GQAC_F32)
TILES(tile_f16, GQAC_F16)
TILES(tile_bf16, GQAC_BF16)

static void run_tile(const piece *p, int row, int rows, int column, fetch f) {
    if (p->dtype == GQAC_F32)
        tile_f32(p, row, rows, column, f);
    else if (p->dtype == GQAC_F16)
        tile_f16(p, row, rows, column, f);
    else
        tile_bf16(p, row, rows, column, f);
}

/* Rows are cut into tiles of nearly equal height: 7 rows are 4 + 3, for a tile of one row reads as
 * much as one of six. */
static void run_piece(const piece *p) {
    const int groups = (p->rows + TILE_ROWS - 1) / TILE_ROWS;
    const int least = p->rows / groups, more = p->rows % groups;
    const int64_t tiles = (groups - more) * (LINEAR_PANEL / 16 / VECTORS(least)) +
                          more * (LINEAR_PANEL / 16 / VECTORS(least + 1));
    const int64_t steps = p->n_k / 4 > 0 ? p->n_k / 4 : 1, lines = p->next_bytes / LINE;
    int64_t done = 0;
    for (int g = 0, row = 0; g < groups; g++) {
        const int rows = least + (g < more);
        for (int column = 0; column < LINEAR_PANEL; column += 16 * VECTORS(rows)) {
            const fetch f = {.at = p->next + (uintptr_t)(lines * done++ / tiles * LINE),
                             .lines = lines,
                             .steps = tiles * steps};
            run_tile(p, row, rows, column, f);
        }
        row += rows;
    }
}

/* ---- what goes in and out ------------------------------------------------- */

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

/* Rows of x may be read where they lie, unless so many bytes are from one to the next that those of
 * a unit share few sets of a cache. */
static bool reads_in_place(const cpu_linear_job *job, int64_t rows) {
    return job->dtype == GQAC_F32 && (rows == 1 || job->k % FEW_SETS != 0);
}

/* Points the piece at its rows of x, in fp32. */
static void take_rows(const cpu_linear_job *job, const cpu_linear_unit *unit, int64_t k, piece *p,
                      float *room) {
    const int64_t x = unit->row * job->k + k;
    if (reads_in_place(job, unit->rows)) {
        p->x = (const float *)job->x + x;
        p->ldx = job->k;
        return;
    }
    p->x = room;
    p->ldx = X_STEP;
    for (int64_t r = 0; r < unit->rows; r++)
        widen(job->dtype, job->x, x + r * job->k, p->n_k, room + r * X_STEP);
}

static bool widens(const cpu_linear_job *job, int64_t rows) {
    return job->w_dtype != GQAC_F32 && rows >= WIDEN_ROWS;
}

static size_t room_bytes(const cpu_linear_job *job) {
    const size_t rows = job->rows < ROW_BLOCK ? (size_t)job->rows : ROW_BLOCK;
    const size_t w = widens(job, job->rows) ? LINEAR_PANEL * GQAC_K_PIECE : 0;
    return (rows * (PANEL_GROUP * LINEAR_PANEL + X_STEP) + w) * sizeof(float);
}

static room room_of(const cpu_linear_job *job, void *memory) {
    const int64_t rows = job->rows < ROW_BLOCK ? job->rows : ROW_BLOCK;
    float *const sum = memory, *const x = sum + rows * PANEL_GROUP * LINEAR_PANEL;
    return (room){sum, x, x + rows * X_STEP};
}

static void run(const cpu_linear_job *job, const cpu_linear_unit *unit, void *memory) {
    const room room = room_of(job, memory);
    const int64_t length = piece_length(job);
    const size_t line = LINEAR_PANEL * width_of(job->w_dtype); /* of a panel, for one k */
    const char *first =
        (const char *)job->w + (size_t)((unit->panel - job->w_panel) * job->k) * line;
    piece p = {.rows = (int)unit->rows, .lds = unit->panels * LINEAR_PANEL};
    for (int64_t k = 0; k < job->k; k += length) {
        p.n_k = (int)(job->k - k < length ? job->k - k : length);
        p.first = k == 0;
        take_rows(job, unit, k, &p, room.x);
        for (int64_t i = 0; i < unit->panels; i++) {
            const char *w = first + (size_t)(i * job->k + k) * line;
            const size_t bytes = (size_t)p.n_k * line;
            const bool last = i + 1 == unit->panels;
            p.w = w;
            p.dtype = job->w_dtype;
            p.next = (uintptr_t)w + (last ? bytes : (size_t)job->k * line);
            if (last && unit->panels > 1)
                p.next = (uintptr_t)first + (size_t)(k + p.n_k) * line;
            p.next_bytes = unit->rows < FETCH_ROWS ? 0 : (int64_t)bytes;
            if (widens(job, unit->rows)) {
                widen(job->w_dtype, w, 0, p.n_k * LINEAR_PANEL, room.w);
                p.w = room.w;
                p.dtype = GQAC_F32;
            }
            p.sum = room.sum + i * LINEAR_PANEL;
            run_piece(&p);
        }
    }
    store(job, unit, room.sum, p.lds);
}

extern const struct cpu_linear_kernels CPU_NAME(cpu_linear);
const struct cpu_linear_kernels CPU_NAME(cpu_linear) = {
    .row_block = ROW_BLOCK,
    .panel_group = PANEL_GROUP,
    .room = room_bytes,
    .run = run,
};
