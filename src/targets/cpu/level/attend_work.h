/* The data of a unit in the kernel of attention (attend.c), and which keys are visible to its
 * rows. */
#ifndef GQAC_TARGETS_CPU_LEVEL_ATTEND_WORK_H
#define GQAC_TARGETS_CPU_LEVEL_ATTEND_WORK_H

#include "numerics/math.h"
#include "targets/cpu/level/attend_chains.h"

enum { ROWS = CPU_ATTEND_ROWS };
_Static_assert((int)ROWS % (int)MOST == 0 && ROWS % 16 == 0 && KEYS % 64 == 0,
               "whole groups and vectors of rows, whole vectors of keys");

typedef struct work {
    const cpu_attend *a;
    const cpu_attend_unit *u;
    int padded;                     /* floats of a row of values */
    float *q;                       /* [ROWS][QUERY] */
    float *s;                       /* [ROWS][KEYS]: scores, then weights */
    float *acc, *total;             /* [ROWS][padded]: of this split, of earlier splits */
    float *kt, *vt;                 /* a block of keys as columns, a block of values, if needed */
    float m[ROWS], l[ROWS];         /* of this split */
    float all_m[ROWS], all_l[ROWS]; /* of earlier splits */
    float alpha[ROWS];
    int64_t lo[ROWS], hi[ROWS];
    int from[ROWS], to[ROWS]; /* visible keys of the tile, counted from the start of the block */
    bool any[ROWS];           /* total holds a split */
    bool some;                /* `any` is true for some row */
    int64_t all_lo, all_hi;   /* keys that are visible to every row */
    bool full;                /* the whole block is visible to every row, and `from` and `to` are
                                 set */
} work;

enum { MATRICES = 6 };

/* Lays out the matrices of scratch, in this order; returns their size in floats. */
static inline size_t layout(const cpu_attend *a, float *at[MATRICES], float *base) {
    const size_t padded = (size_t)cpu_attend_padded(a->value_size), size = (size_t)a->size;
    const size_t sizes[MATRICES] = {ROWS * QUERY,  ROWS * KEYS, ROWS * padded,
                                    ROWS * padded, KEYS * size, KEYS * padded};
    size_t n = 0;
    for (int i = 0; i < MATRICES; i++) {
        if (at)
            at[i] = base + n;
        n += (sizes[i] + 15) / 16 * 16;
    }
    return n;
}

static inline void open_work(work *w, const cpu_attend *a, const cpu_attend_unit *u,
                             float *memory) {
    float *at[MATRICES];
    layout(a, at, memory);
    w->a = a;
    w->u = u;
    w->padded = cpu_attend_padded(a->value_size);
    w->q = at[0];
    w->s = at[1];
    w->acc = at[2];
    w->total = at[3];
    w->kt = at[4];
    w->vt = at[5];
    w->all_lo = 0;
    w->all_hi = INT64_MAX;
    w->full = w->some = false;
    for (int r = 0; r < u->rows; r++) {
        const int64_t s = (u->row + r) / a->group;
        w->lo[r] = a->lo[u->first + s];
        w->hi[r] = a->hi[u->first + s];
        w->any[r] = false;
        w->all_lo = w->lo[r] > w->all_lo ? w->lo[r] : w->all_lo;
        w->all_hi = w->hi[r] < w->all_hi ? w->hi[r] : w->all_hi;
    }
}

static inline int64_t head_of(const work *w, int r) {
    return w->u->head * w->a->group + (w->u->row + r) % w->a->group;
}

static inline int64_t query_of(const work *w, int r) {
    return (w->u->row + r) / w->a->group;
}

/* The first element of a row's query. */
static inline int64_t query_at(const work *w, int r) {
    const cpu_attend *a = w->a;
    return w->u->b * a->q_batch + head_of(w, r) * a->q_head +
           (w->u->skip + query_of(w, r)) * a->q_row;
}

/* Number of rows in the group that begins with row `first`. */
static inline int group_size(const work *w, int first) {
    return w->u->rows - first < MOST ? w->u->rows - first : MOST;
}

static inline bool sees(const work *w, int r, int64_t begin, int64_t end) {
    return w->lo[r] < end && w->hi[r] > begin && w->lo[r] < w->hi[r];
}

/* Sets which of the keys [begin, end), counted from `key`, are visible to rows [r, r + n). Returns
 * false if none are. */
static inline bool see_range(work *w, int r, int n, int64_t key, int64_t begin, int64_t end,
                             int *from, int *to) {
    *from = KEYS;
    *to = 0;
    for (int i = r; i < r + n; i++) {
        const int64_t lo = w->lo[i] > begin ? w->lo[i] : begin;
        const int64_t hi = w->hi[i] < end ? w->hi[i] : end;
        w->from[i] = lo < hi ? (int)(lo - key) : 0;
        w->to[i] = lo < hi ? (int)(hi - key) : 0;
        if (lo >= hi)
            continue;
        *from = w->from[i] < *from ? w->from[i] : *from;
        *to = w->to[i] > *to ? w->to[i] : *to;
    }
    return *from < *to;
}

/* The same for all rows and a whole block. Blocks that are visible as a whole to every row are
 * consecutive. */
static inline bool see_block(work *w, int64_t key, int *from, int *to) {
    if (key < w->all_lo || key + KEYS > w->all_hi) {
        w->full = false;
        return see_range(w, 0, w->u->rows, key, key, key + KEYS, from, to);
    }
    *from = 0;
    *to = KEYS;
    for (int r = 0; !w->full && r < w->u->rows; r++) {
        w->from[r] = 0;
        w->to[r] = KEYS;
    }
    w->full = true;
    return true;
}

#endif
