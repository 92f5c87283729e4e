/* Scores become weights: scale, softcap, mask, then the online softmax of a tile. Sixteen rows at a
 * time, so that their maxima, sums and factors are lanes of a vector; the arithmetic of a row is
 * that of docs/numerics.md. See attend.c, which defines TILE, the keys of a tile. */
#ifndef GQAC_TARGETS_CPU_LEVEL_ATTEND_WEIGHTS_H
#define GQAC_TARGETS_CPU_LEVEL_ATTEND_WEIGHTS_H

#include "targets/cpu/level/attend_work.h"
#include "targets/cpu/level/row_math.h"

enum { SHARED = TILE % 16 != 0 /* a vector has scores of more than one tile */ };

/* A bit mask of the bytes that are not zero; n <= 16. */
VEC_FN uint32_t set_bytes(const uint8_t *p, int n) {
    uint8_t bytes[16] = {0};
    uint32_t bits = 0;
    if (n == 16)
        memcpy(bytes, p, 16); /* a constant size */
    else
        memcpy(bytes, p, (size_t)n);
    for (int i = 0; i < 16; i++)
        bits |= (uint32_t)(bytes[i] != 0) << i;
    return bits;
}

/* x + mask, or x where a bool mask is true. The lanes are the keys from `key` on; only those before
 * `to` are needed. */
VEC_FN v16 masked(const cpu_attend *a, int64_t at, int64_t key, int to, v16 x) {
    const int64_t columns = a->mask_columns - key, wanted = to < 16 ? to : 16;
    const int n = columns <= 0 ? 0 : (int)(columns < wanted ? columns : wanted);
    uint32_t kept = (1u << n) - 1u;
    if (a->mask_dtype == GQAC_BOOL)
        kept = n ? set_bytes((const uint8_t *)a->mask + at + key, n) : 0;
    else if (n)
        x = v16_add(x, row_load(a->mask, a->mask_dtype, at + key, n));
    return v16_select(m16_of_bits(kept), x, v16_set1(-gqn_as_f32(GQN_INF_BITS)));
}

/* Lane i of the result is x[i][0 .. 16) folded by 8, 4, 2, 1: by gqn_max_step, or by addition. */
VEC_FN v16 fold_rows(float x[16][16], const bool most) {
    float t[16][16];
    v16_transpose(x[0], 16, t[0], 16);
    UNROLL(8) for (int half = 8; half > 0; half /= 2) {
        UNROLL(8) for (int i = 0; i < half; i++) {
            const v16 a = v16_load(t[i]), b = v16_load(t[i + half]);
            v16_store(t[i], most ? v16_max_step(a, b) : v16_add(a, b));
        }
    }
    return v16_load(t[0]);
}

VEC_FN v16 capped(const cpu_attend *a, v16 x) {
    const v16 cap = v16_set1(a->softcap);
    return a->softcap > 0 ? v16_mul(cap, row_tanh(v16_div(x, cap))) : x;
}

static inline float *shown_row(const work *w, int r) {
    const cpu_attend *a = w->a;
    const int64_t before = (w->u->first - w->u->skip) * a->q_heads; /* query 0 of the batch row */
    const int64_t row = head_of(w, r) * a->queries + w->u->skip + query_of(w, r);
    return a->shown + (before + row) * a->keys;
}

/* row[i] = x[i] for the lanes from <= i < to. */
VEC_FN void put_lanes(float *row, v16 x, int from, int to) {
    float lanes[16];
    v16_store(lanes, v16_one_nan(x));
    for (int i = from > 0 ? from : 0; i < to && i < 16; i++)
        row[i] = lanes[i];
}

/* Computes the scores of row r before the softmax, in w->s; returns the maximum of each lane. */
VEC_FN v16 scored(work *w, int r, int64_t key, const bool plain, const bool whole) {
    const cpu_attend *a = w->a;
    const int from = whole ? 0 : w->from[r], to = whole ? KEYS : w->to[r];
    const v16 hidden = v16_set1(-gqn_as_f32(GQN_INF_BITS)), scale = v16_set1(a->scale);
    float *s = w->s + r * KEYS;
    v16 most = hidden;
    float *shown = !plain && a->show >= CPU_SHOW_MASKED ? shown_row(w, r) : NULL;
    const int64_t at = plain || !a->mask
                           ? 0
                           : w->u->b * a->mask_step[0] + head_of(w, r) * a->mask_step[1] +
                                 (w->u->skip + query_of(w, r)) * a->mask_step[2];
    for (int t = from / 16 * 16; t < to; t += 16) {
        const v16 sums = v16_load(s + t);
        v16 x = v16_mul(scale, sums);
        if (!plain)
            x = capped(a, x);
        if (!plain && a->mask)
            x = masked(a, at, key + t, to - t, x);
        if (shown)
            put_lanes(shown + key + t, x, from - t, to - t);
        if (t < from || t + 16 > to) {
            const m16 seen = m16_range(from - t, to - t);
            v16_store(s + t, v16_select(seen, x, SHARED ? sums : hidden));
            x = v16_select(seen, x, hidden);
        } else {
            v16_store(s + t, x);
        }
        most = v16_max_step(most, x);
    }
    return most;
}

/* Computes the weights of row r, exp(score - centre), and returns their sum in each lane. */
VEC_FN v16 weighted(work *w, int r, float centre, const bool whole) {
    const int from = whole ? 0 : w->from[r], to = whole ? KEYS : w->to[r];
    const v16 c = v16_set1(centre);
    float *s = w->s + r * KEYS;
    v16 sum = v16_zero();
    UNROLL(8) for (int t = from / 16 * 16; t < to; t += 16) {
        const v16 x = v16_load(s + t);
        v16 p = v16_exp_low(v16_sub(x, c)), kept = p;
        if (SHARED) {
            const m16 seen = m16_range(from - t, to - t);
            kept = v16_select(seen, p, x);
            p = v16_select(seen, p, v16_zero());
        }
        v16_store(s + t, kept);
        sum = v16_add(sum, p);
    }
    return sum;
}

/* Rows [r, r + n), n <= 16, of a tile of the block that begins at `key`: computes weights in w->s,
 * and m, l and alpha. A row without visible keys keeps m and l, with an alpha of 1. */
VEC_FN void weights(work *w, int r, int n, int64_t key, const bool plain, const bool whole) {
    const v16 hidden = v16_set1(-gqn_as_f32(GQN_INF_BITS));
    float edge[16][16], centre[16];
    for (int i = 0; i < 16; i++) {
        const bool some = i < n && (whole || w->from[r + i] < w->to[r + i]);
        v16_store(edge[i], some ? scored(w, r + i, key, plain, whole) : hidden);
    }
    const v16 before = v16_load(w->m + r), m = v16_max_step(before, fold_rows(edge, true));
    const v16 mu = v16_select(m16_greater(m, hidden), m, v16_zero());
    v16_store(centre, mu);
    for (int i = 0; i < 16; i++) {
        const bool some = i < n && (whole || w->from[r + i] < w->to[r + i]);
        v16_store(edge[i], some ? weighted(w, r + i, centre[i], whole) : v16_zero());
    }
    const v16 alpha =
        v16_select(m16_greater(m, before), v16_exp_low(v16_sub(before, mu)), v16_set1(1.0f));
    v16_store(w->alpha + r, alpha);
    v16_store(w->l + r, v16_fma(v16_load(w->l + r), alpha, fold_rows(edge, false)));
    v16_store(w->m + r, m);
}

static void weights_whole(work *w, int r, int n, int64_t key) {
    weights(w, r, n, key, true, true);
}

static void weights_part(work *w, int r, int n, int64_t key) {
    weights(w, r, n, key, true, false);
}

static void weights_other(work *w, int r, int n, int64_t key) {
    weights(w, r, n, key, false, false);
}

#endif
