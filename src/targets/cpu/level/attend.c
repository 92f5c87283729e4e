/* y [B,S,Hq*Dv] = softmax(scale * q k^T ...) v over the visible keys of each row, without the
 * scores in memory; docs/numerics.md, "Attention on cpu", has the formula. In short, for each row:
 *   - s_j = scale * (one fma chain over d), softcap, + mask
 *   - tiles and splits of keys begin at absolute multiples; in a split, tile by tile
 *     m' = max(m, s_j), alpha = exp(m - m'), p_j = exp(s_j - m'), l = fma(l, alpha, lane tree of
 *     p_j), acc = acc * alpha, then one fma chain of p_j * v_j
 *   - splits merge ascending, then the sink joins; y = acc / l, rounded once
 * Rows share what they load and nothing else. Keys outside of a row's range may be computed with,
 * in lanes of their own, but no result depends on them; their values are not touched. */
#include "targets/cpu/attention.h"

#include "numerics/math.h"
#include "numerics/reduce.h"
#include "targets/cpu/level/level.h"
#include "targets/cpu/level/row_math.h"
#include "targets/cpu/level/widen.h"

enum {
    KEYS = CPU_ATTEND_KEYS,
    ROWS = CPU_ATTEND_ROWS,
    TILE = GQAC_KEY_TILE,
    MOST = 6,                /* rows of a micro kernel */
    SHARED = TILE % 16 != 0, /* a vector holds sums of more than one tile */
};
_Static_assert(TILE <= KEYS && KEYS % TILE == 0, "a block holds whole tiles");
_Static_assert((int)KEYS == (int)WIDEN_KEYS && (int)CPU_ATTEND_SIZE <= (int)WIDEN_MOST,
               "columns of a block");
_Static_assert(ROWS % MOST == 0 && KEYS % 64 == 0, "whole groups of rows, whole vectors");

#define UNROLL _Pragma("GCC unroll 8")

/* ---- the micro kernel ---------------------------------------------------- */

/* c[r][0 .. 16 nb) = (c[r] * alpha[r], or 0) + sum over i < n of a[r * rs + i * ks] * b[i][..], one
 * chain each, ascending. `ahead`: memory to fetch, 64 nb bytes a step. */
VEC_FN void chains(const int mr, const int nb, const int rs, const int ks, int n, const float *a,
                   const float *b, int ldb, float *c, int ldc, const float *alpha,
                   const char *ahead) {
    v16 acc[MOST][4];
    UNROLL for (int r = 0; r < mr; r++) {
        UNROLL for (int t = 0; t < nb; t++) acc[r][t] =
            alpha ? v16_mul(v16_load(c + r * ldc + 16 * t), v16_set1(alpha[r])) : v16_zero();
    }
    for (int i = 0; i < n; i++) {
        v16 x[4];
        UNROLL for (int t = 0; t < nb; t++) x[t] = v16_load(b + 16 * t);
        UNROLL for (int r = 0; r < mr; r++) {
            const v16 y = v16_set1(a[r * rs]);
            UNROLL for (int t = 0; t < nb; t++) acc[r][t] = v16_fma(y, x[t], acc[r][t]);
        }
        if (ahead) {
            UNROLL for (int t = 0; t < nb; t++) __builtin_prefetch(ahead + 64 * t, 0, 2);
            ahead += 64 * nb;
        }
        a += ks;
        b += ldb;
    }
    UNROLL for (int r = 0; r < mr; r++) {
        UNROLL for (int t = 0; t < nb; t++) v16_store(c + r * ldc + 16 * t, acc[r][t]);
    }
}

/* Vectors that mr rows keep in registers at once. */
#define NB(mr) (V16_REGISTERS >= 32 ? 4 : (mr) == 1 ? 4 : (mr) == 2 ? 2 : 1)

/* All vectors [from, to) of a row of b. */
#define PANELS(mr, rs, ks, alpha)                                                                  \
    int t = from;                                                                                  \
    for (; t + NB(mr) <= to; t += NB(mr))                                                          \
        if (ahead)                                                                                 \
            chains(mr, NB(mr), rs, ks, n, a, b + 16 * t, ldb, c + 16 * t, ldc, alpha,              \
                   ahead + (ptrdiff_t)64 * n * (t - from));                                        \
        else                                                                                       \
            chains(mr, NB(mr), rs, ks, n, a, b + 16 * t, ldb, c + 16 * t, ldc, alpha, NULL);       \
    for (; t < to; t++)                                                                            \
    chains(mr, 1, rs, ks, n, a, b + 16 * t, ldb, c + 16 * t, ldc, alpha, NULL)

#define ROW_KERNELS(mr)                                                                            \
    static void score_##mr(int n, const float *a, const float *b, int from, int to, float *c,      \
                           const char *ahead) {                                                    \
        enum { ldb = KEYS, ldc = KEYS };                                                           \
        PANELS(mr, 1, mr, NULL);                                                                   \
    }                                                                                              \
    static void weigh_##mr(int n, const float *a, const float *b, int ldb, int to, float *c,       \
                           const float *alpha, const char *ahead) {                                \
        const int from = 0, ldc = ldb;                                                             \
        PANELS(mr, KEYS, 1, alpha);                                                                \
    }
ROW_KERNELS(1)
ROW_KERNELS(2)
ROW_KERNELS(3)
ROW_KERNELS(4)
ROW_KERNELS(5)
ROW_KERNELS(6)

static void (*const score[MOST + 1])(int n, const float *a, const float *b, int from, int to,
                                     float *c, const char *ahead) = {
    NULL, score_1, score_2, score_3, score_4, score_5, score_6};
static void (*const weigh[MOST + 1])(int n, const float *a, const float *b, int ldb, int to,
                                     float *c, const float *alpha, const char *ahead) = {
    NULL, weigh_1, weigh_2, weigh_3, weigh_4, weigh_5, weigh_6};

/* ---- one unit ------------------------------------------------------------ */

typedef struct work {
    const cpu_attend *a;
    const cpu_attend_unit *u;
    int padded;             /* floats of a row of values */
    float *q;               /* groups of up to MOST rows, each [D][rows of the group] */
    float *s;               /* [ROWS][KEYS]: scores, then weights */
    float *acc, *total;     /* [ROWS][padded]: of this split, of the splits before */
    float *kt, *vt;         /* a block of keys as columns, a block of values, where needed */
    float m[ROWS], l[ROWS]; /* of this split */
    float all_m[ROWS], all_l[ROWS]; /* of the splits before */
    float alpha[ROWS];
    int64_t lo[ROWS], hi[ROWS];
    int from[ROWS], to[ROWS]; /* what a row sees of the tile, counted in the block */
    bool any[ROWS];           /* total holds a split */
    int64_t all_lo, all_hi;   /* keys that every row sees */
    bool full;                /* every row sees the whole block; from and to say so */
} work;

/* The matrices of scratch, in this order. */
static size_t layout(const cpu_attend *a, float *at[6], float *base) {
    const size_t padded = (size_t)cpu_attend_padded(a->value_size);
    const size_t sizes[6] = {
        (size_t)ROWS * (size_t)a->size, ROWS * KEYS,  ROWS * padded, ROWS * padded,
        (size_t)KEYS * (size_t)a->size, KEYS * padded};
    size_t n = 0;
    for (int i = 0; i < 6; i++) {
        if (at)
            at[i] = base + n;
        n += (sizes[i] + 15) / 16 * 16;
    }
    return n;
}

static size_t scratch(const cpu_attend *a) {
    return layout(a, NULL, NULL);
}

static void open_work(work *w, const cpu_attend *a, const cpu_attend_unit *u, float *memory) {
    float *at[6];
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
    w->full = false;
    for (int r = 0; r < u->rows; r++) {
        const int64_t s = (u->row + r) / a->group;
        w->lo[r] = a->lo[u->b * a->queries + s];
        w->hi[r] = a->hi[u->b * a->queries + s];
        w->any[r] = false;
        w->all_lo = w->lo[r] > w->all_lo ? w->lo[r] : w->all_lo;
        w->all_hi = w->hi[r] < w->all_hi ? w->hi[r] : w->all_hi;
    }
}

static int64_t head_of(const work *w, int r) {
    return w->u->head * w->a->group + (w->u->row + r) % w->a->group;
}

static int64_t query_of(const work *w, int r) {
    return (w->u->row + r) / w->a->group;
}

static int group_size(const work *w, int first) {
    return w->u->rows - first < MOST ? w->u->rows - first : MOST;
}

static void open_queries(work *w) {
    const cpu_attend *a = w->a;
    float row[CPU_ATTEND_SIZE];
    for (int first = 0; first < w->u->rows; first += MOST) {
        const int n = group_size(w, first);
        for (int i = 0; i < n; i++) {
            const int64_t h = head_of(w, first + i), s = query_of(w, first + i);
            widen(a->q_dtype, a->q, ((w->u->b * a->q_heads + h) * a->queries + s) * a->size,
                  a->size, row);
            for (int d = 0; d < a->size; d++)
                w->q[first * a->size + d * n + i] = row[d];
        }
    }
}

/* Block `index` of a head; keys beyond T are not in the memory of a tensor. */
static const unsigned char *block_at(const cpu_attend_rows *rows, int64_t b, int64_t head,
                                     int64_t index) {
    const size_t at = (size_t)head * rows->head;
    return rows->blocks ? rows->blocks[b * rows->per_batch + index] + at
                        : rows->base + (size_t)b * rows->batch + at + (size_t)index * rows->block;
}

/* The keys of a block as [D][64] fp32. */
static const float *stored_keys(work *w, int64_t index) {
    const cpu_attend *a = w->a;
    const unsigned char *block = block_at(&a->k, w->u->b, w->u->head, index);
    if (a->k.columns && a->k.dtype == GQAC_F32)
        return (const float *)(const void *)block;
    if (a->k.columns) {
        for (int d = 0; d < a->size; d++) /* whole columns: no tails */
            widen(a->k.dtype, block, (int64_t)d * KEYS, KEYS, w->kt + d * KEYS);
        return w->kt;
    }
    const int64_t left = a->keys - index * KEYS;
    columns(block, a->k.dtype, a->size, left < KEYS ? (int)left : KEYS, w->kt);
    return w->kt;
}

static const float *keys_of(work *w, int64_t index) {
    const float *kt = stored_keys(w, index);
#ifdef GQAC_CONTROL_UNROUNDED_CHUNK /* negative control: cached keys lose bits, new ones do not */
    const int64_t cached = w->a->hi[w->u->b * w->a->queries] - 1 - index * KEYS;
    for (int i = 0; i < w->a->size * KEYS; i++)
        w->kt[i] = i % KEYS < cached ? gqn_as_f32(gqn_as_u32(kt[i]) & 0xfffc0000u) : kt[i];
    kt = w->kt;
#endif
    return kt;
}

/* The values [from, to) of a block as [64][padded] fp32; others are not touched. */
static const float *values_of(work *w, int64_t index, int from, int to) {
    const cpu_attend *a = w->a;
    const unsigned char *block = block_at(&a->v, w->u->b, w->u->head, index);
    if (a->v.dtype == GQAC_F32 && w->padded == a->value_size)
        return (const float *)(const void *)block;
    for (int j = from; j < to; j++)
        widen(a->v.dtype, block, (int64_t)j * a->value_size, a->value_size, w->vt + j * w->padded);
    return w->vt;
}

/* ---- scores -------------------------------------------------------------- */

/* x + mask, or x where the mask selects it; lanes are the keys from `key` on, of which those in
 * [from, to) are wanted. */
VEC_FN v16 masked(const cpu_attend *a, int64_t at, int64_t key, int from, int to, v16 x) {
    const v16 hidden = v16_set1(-gqn_as_f32(GQN_INF_BITS));
    float add[16] = {0};
    uint32_t kept = 0;
    for (int i = from < 0 ? 0 : from; i < to && i < 16 && key + i < a->mask_columns; i++) {
        if (a->mask_dtype == GQAC_BOOL) {
            kept |= (uint32_t)(((const uint8_t *)a->mask)[at + key + i] != 0) << i;
        } else {
            kept |= 1u << i;
            add[i] = get_as(a->mask_dtype, a->mask, at + key + i);
        }
    }
    if (a->mask_dtype != GQAC_BOOL)
        x = v16_add(x, v16_load(add));
    return v16_select(m16_of_bits(kept), x, hidden);
}

/* v16_fold and v16_fold_max, written out so that compilers keep them in registers. */
VEC_FN float fold(v16 x) {
    float a[16], b[8], c[4];
    v16_store(a, x);
    for (int i = 0; i < 8; i++)
        b[i] = a[i] + a[i + 8];
    for (int i = 0; i < 4; i++)
        c[i] = b[i] + b[i + 4];
    return (c[0] + c[2]) + (c[1] + c[3]);
}

VEC_FN float fold_max(v16 x) {
    float a[16], b[8], c[4];
    v16_store(a, x);
    for (int i = 0; i < 8; i++)
        b[i] = gqn_max_step(a[i], a[i + 8]);
    for (int i = 0; i < 4; i++)
        c[i] = gqn_max_step(b[i], b[i + 4]);
    return gqn_max_step(gqn_max_step(c[0], c[2]), gqn_max_step(c[1], c[3]));
}

/* The weights of row r for the keys [from, to) of the block that begins at `key`. */
VEC_FN void weights(work *w, int r, int64_t key, int from, int to, const bool plain) {
    const cpu_attend *a = w->a;
    const v16 hidden = v16_set1(-gqn_as_f32(GQN_INF_BITS)), scale = v16_set1(a->scale);
    const int first = from / 16, end = (to + 15) / 16;
    float *s = w->s + r * KEYS;
    v16 most = hidden;
    const int64_t at = plain || !a->mask
                           ? 0
                           : w->u->b * a->mask_step[0] + head_of(w, r) * a->mask_step[1] +
                                 query_of(w, r) * a->mask_step[2];
    for (int t = first; t < end; t++) {
        const m16 seen = m16_range(from - 16 * t, to - 16 * t);
        const v16 sums = v16_load(s + 16 * t);
        v16 x = v16_mul(scale, sums);
        if (!plain && a->softcap > 0) {
            const v16 cap = v16_set1(a->softcap);
            x = v16_mul(cap, row_tanh(v16_div(x, cap)));
        }
        if (!plain && a->mask)
            x = masked(a, at, key + 16 * t, from - 16 * t, to - 16 * t, x);
        if (16 * t < from || 16 * t + 16 > to)
            x = v16_select(seen, x, hidden);
        v16_store(s + 16 * t, SHARED ? v16_select(seen, x, sums) : x);
        most = v16_max_step(most, x);
    }
    const float m = gqn_max_step(w->m[r], fold_max(most));
    const float mu = m == -gqn_as_f32(GQN_INF_BITS) ? 0.0f : m;
    const v16 centre = v16_set1(mu);
    v16 sum = v16_zero();
    for (int t = first; t < end; t++) {
        const v16 x = v16_load(s + 16 * t);
        v16 p = v16_exp(v16_sub(x, centre)), kept = p;
        if (SHARED) {
            const m16 seen = m16_range(from - 16 * t, to - 16 * t);
            kept = v16_select(seen, p, x);
            p = v16_select(seen, p, v16_zero());
        }
        v16_store(s + 16 * t, kept);
        sum = v16_add(sum, p);
    }
    w->alpha[r] = m == w->m[r] ? 1.0f : gqn_expf(w->m[r] - mu);
    w->l[r] = gqn_fma(w->l[r], w->alpha[r], fold(sum));
    w->m[r] = m;
}

static void weights_plain(work *w, int r, int64_t key, int from, int to) {
    weights(w, r, key, from, to, true);
}

static void weights_other(work *w, int r, int64_t key, int from, int to) {
    weights(w, r, key, from, to, false);
}

/* ---- weighing ------------------------------------------------------------ */

static void weigh_row(work *w, int r, const float *v, int from, int to) {
    if (from >= to)
        return;
    weigh[1](to - from, w->s + r * KEYS + from, v + from * w->padded, w->padded, w->padded / 16,
             w->acc + r * w->padded, &w->alpha[r], NULL);
    w->alpha[r] = 1.0f;
}

/* acc of n rows from r: the keys that all of them see together, those before and behind row by
 * row. */
static void weigh_group(work *w, int r, int n, const float *v, const char *ahead) {
    int from = 0, to = KEYS;
    bool all = n > 1;
    for (int i = r; i < r + n && !(w->full && all); i++) {
        from = w->from[i] > from ? w->from[i] : from;
        to = w->to[i] < to ? w->to[i] : to;
        all = all && w->from[i] < w->to[i];
    }
    all = all && from < to;
    for (int i = r; i < r + n; i++)
        weigh_row(w, i, v, w->from[i], all ? from : w->to[i]);
    if (!all)
        return;
    weigh[n](to - from, w->s + r * KEYS + from, v + from * w->padded, w->padded, w->padded / 16,
             w->acc + r * w->padded, w->alpha + r, to - from == KEYS ? ahead : NULL);
    for (int i = r; i < r + n; i++) {
        w->alpha[i] = 1.0f;
        weigh_row(w, i, v, to, w->to[i]);
    }
}

/* ---- splits -------------------------------------------------------------- */

static bool sees(const work *w, int r, int64_t begin, int64_t end) {
    return w->lo[r] < end && w->hi[r] > begin && w->lo[r] < w->hi[r];
}

static void begin_split(work *w) {
    for (int r = 0; r < w->u->rows; r++) {
        w->m[r] = -gqn_as_f32(GQN_INF_BITS);
        w->l[r] = 0.0f;
    }
    memset(w->acc, 0, sizeof(float) * (size_t)w->u->rows * (size_t)w->padded);
}

/* Row r gets one more split. */
static void merge(work *w, int r, float m, float l, const float *acc) {
    float *total = w->total + r * w->padded;
    if (!w->any[r]) {
        w->any[r] = true;
        w->all_m[r] = m;
        w->all_l[r] = l;
        memcpy(total, acc, sizeof(float) * (size_t)w->padded);
        return;
    }
    const float most = gqn_max_step(w->all_m[r], m);
    const float mu = most == -gqn_as_f32(GQN_INF_BITS) ? 0.0f : most;
    const float before = gqn_expf(w->all_m[r] - mu), now = gqn_expf(m - mu);
    for (int d = 0; d < w->padded; d += 16)
        v16_store(total + d, v16_fma(v16_load(acc + d), v16_set1(now),
                                     v16_mul(v16_load(total + d), v16_set1(before))));
    w->all_l[r] = gqn_fma(l, now, w->all_l[r] * before);
    w->all_m[r] = most;
}

static float *part_of(const work *w, int r, int64_t split) {
    const cpu_attend *a = w->a;
    const int64_t row =
        (w->u->b * a->kv_heads + w->u->head) * a->group * a->queries + w->u->row + r;
    return a->parts + (row * a->splits + split) * cpu_attend_part(a);
}

static void end_split(work *w, int64_t split) {
    const int64_t begin = split * w->a->split, end = begin + w->a->split;
    for (int r = 0; r < w->u->rows; r++) {
        if (!sees(w, r, begin, end))
            continue;
        const float *acc = w->acc + r * w->padded;
        if (!w->u->cut) {
            merge(w, r, w->m[r], w->l[r], acc);
            continue;
        }
        float *part = part_of(w, r, split);
        part[0] = w->m[r];
        part[1] = w->l[r];
        memcpy(part + 16, acc, sizeof(float) * (size_t)w->padded);
    }
}

/* The sink joins; y of every row of the unit. */
static void finish(work *w) {
    const cpu_attend *a = w->a;
    for (int r = 0; r < w->u->rows; r++) {
        const int64_t h = head_of(w, r);
        const int64_t at =
            ((w->u->b * a->queries + query_of(w, r)) * a->q_heads + h) * a->value_size;
        float *total = w->total + r * w->padded;
        if (!w->any[r]) {
            memset((char *)a->y + (size_t)at * width_of(a->y_dtype), 0,
                   (size_t)a->value_size * width_of(a->y_dtype));
            continue;
        }
        float l = w->all_l[r], factor = 1.0f;
        if (a->sink) {
            const float sink = get_as(a->sink_dtype, a->sink, h);
            const float most = gqn_max_step(w->all_m[r], sink);
            const float mu = most == -gqn_as_f32(GQN_INF_BITS) ? 0.0f : most;
            factor = most == w->all_m[r] ? 1.0f : gqn_expf(w->all_m[r] - mu);
            l = gqn_fma(l, factor, gqn_expf(sink - mu));
        }
        const v16 by = v16_set1(l == 0.0f ? 1.0f : l);
        for (int d = 0; d < w->padded; d += 16)
            v16_store(total + d,
                      v16_one_nan(v16_div(v16_mul(v16_load(total + d), v16_set1(factor)), by)));
        if (a->y_dtype == GQAC_F32) {
            memcpy((float *)a->y + at, total, sizeof(float) * (size_t)a->value_size);
            continue;
        }
        for (int d = 0; d < a->value_size; d++)
            ((uint16_t *)a->y)[at + d] =
                a->y_dtype == GQAC_F16 ? gqn_f32_to_f16(total[d]) : gqn_f32_to_bf16(total[d]);
    }
}

/* ---- the whole ----------------------------------------------------------- */

/* What rows [r, r + n) see of the keys [begin, end), counted from `key`; false: nothing. */
static bool see_range(work *w, int r, int n, int64_t key, int64_t begin, int64_t end, int *from,
                      int *to) {
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

/* The same for all rows and a whole block; blocks that every row sees whole follow each other. */
static bool see_block(work *w, int64_t key, int *from, int *to) {
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

/* The scores of all rows with the keys of a block, as plain sums. */
static void score_block(work *w, int64_t key, const float *kt, const char *ahead) {
    int from = 0, to = KEYS;
    for (int r = 0; r < w->u->rows; r += MOST) {
        const int n = group_size(w, r);
        if (w->full || see_range(w, r, n, key, key, key + KEYS, &from, &to))
            score[n](w->a->size, w->q + r * w->a->size, kt, from / 16, (to + 15) / 16,
                     w->s + r * KEYS, r == 0 ? ahead : NULL);
    }
}

static void tile(work *w, int64_t key, int64_t begin, const float *v, const char *ahead) {
    const bool plain = !w->a->mask && w->a->softcap == 0;
    int from, to;
    if (TILE < KEYS)
        (void)see_range(w, 0, w->u->rows, key, begin, begin + TILE, &from, &to);
    for (int r = 0; r < w->u->rows; r++)
        if (w->from[r] < w->to[r])
            (plain ? weights_plain : weights_other)(w, r, key, w->from[r], w->to[r]);
    for (int r = 0; r < w->u->rows; r += MOST)
        weigh_group(w, r, group_size(w, r), v, r == 0 ? ahead : NULL);
}

/* Memory of the block behind this one, when it is read as it lies. */
static const char *next_block(const work *w, const cpu_attend_rows *rows, bool direct,
                              int64_t key) {
    if (!direct || key + KEYS >= w->u->end || key + KEYS >= w->a->keys)
        return NULL;
    if (rows->blocks && !rows->blocks[w->u->b * rows->per_batch + key / KEYS + 1])
        return NULL; /* beyond the end of a short row */
    return (const char *)block_at(rows, w->u->b, w->u->head, key / KEYS + 1);
}

static void run(const cpu_attend *a, const cpu_attend_unit *u, float *memory) {
    work w;
    int from, to;
    open_work(&w, a, u, memory);
    open_queries(&w);
    int64_t split = -1, first = u->end, last = 0;
    for (int r = 0; r < u->rows; r++)
        if (w.lo[r] < w.hi[r]) {
            first = w.lo[r] < first ? w.lo[r] : first;
            last = w.hi[r] > last ? w.hi[r] : last;
        }
    first = first > u->begin ? first / KEYS * KEYS : u->begin;
    last = last < u->end ? last : u->end;
    for (int64_t key = first; key < last; key += KEYS) {
        if (!see_block(&w, key, &from, &to))
            continue;
        if (TILE < KEYS)
            w.full = false; /* tiles change from and to */
        const float *kt = keys_of(&w, key / KEYS);
        const float *v = values_of(&w, key / KEYS, from, to);
        score_block(&w, key, kt, next_block(&w, &a->k, kt != w.kt, key));
        for (int64_t begin = key; begin < key + KEYS; begin += TILE) {
            if (begin / a->split != split) {
                if (split >= 0)
                    end_split(&w, split);
                split = begin / a->split;
                begin_split(&w);
            }
            tile(&w, key, begin, v, next_block(&w, &a->v, v != w.vt, key));
        }
    }
    if (split >= 0)
        end_split(&w, split);
    if (!u->cut)
        finish(&w);
}

static void join(const cpu_attend *a, const cpu_attend_unit *u, float *memory) {
    work w;
    open_work(&w, a, u, memory);
    for (int r = 0; r < u->rows; r++)
        for (int64_t split = 0; split < a->splits; split++)
            if (sees(&w, r, split * a->split, (split + 1) * a->split)) {
                const float *part = part_of(&w, r, split);
                merge(&w, r, part[0], part[1], part + 16);
            }
    finish(&w);
}

extern const struct cpu_attend_kernels CPU_NAME(cpu_attend);
const struct cpu_attend_kernels CPU_NAME(cpu_attend) = {
    .scratch = scratch, .run = run, .join = join, .columns = columns};
