/* Intermediate scores as an output of attention, [B,Hq,S,T], for models that have this output. See
 * attend.c. */
#ifndef GQAC_TARGETS_CPU_LEVEL_ATTEND_SHOW_H
#define GQAC_TARGETS_CPU_LEVEL_ATTEND_SHOW_H

#include "targets/cpu/level/attend_weights.h"

/* Fills the unit's keys of the shown tensor with the value for keys that are not visible. */
static inline void hide_shown(const work *w) {
    const cpu_attend *a = w->a;
    const int64_t end = w->u->end < a->keys ? w->u->end : a->keys;
    for (int r = 0; r < w->u->rows; r++)
        for (int64_t j = w->u->begin; j < end; j++)
            shown_row(w, r)[j] = a->shown_hidden;
}

/* Writes the scores of all keys of a block, visible or not: of kt, columns. */
static inline void show_block(work *w, int64_t key, const float *kt) {
    const cpu_attend *a = w->a;
    score(w->u->rows, a->size, w->q, as_fp32(kt), 0, KEYS / 16, w->s, nothing);
    for (int r = 0; r < w->u->rows; r++)
        for (int t = 0; t < KEYS && key + t < a->keys; t += 16) {
            const int64_t left = a->keys - key - t;
            v16 x = v16_mul(v16_set1(a->scale), v16_load(w->s + r * KEYS + t));
            if (a->show == CPU_SHOW_CAPPED)
                x = capped(a, x);
            v16_store_n(shown_row(w, r) + key + t, v16_one_nan(x), left < 16 ? (int)left : 16);
        }
}

/* Turns masked scores of row r into weights, exp(x - centre) / sum; one NaN makes the whole row
 * NaN. */
static inline void show_weights(const work *w, int r, float centre, float sum) {
    const v16 c = v16_set1(centre), by = v16_set1(sum == 0.0f ? 1.0f : sum);
    float *row = shown_row(w, r);
    for (int64_t j = 0; sum != sum && j < w->a->keys; j++)
        row[j] = gqn_as_f32(GQN_NAN_BITS);
    for (int64_t j = w->lo[r]; sum == sum && j < w->hi[r]; j += 16) {
        const int n = w->hi[r] - j < 16 ? (int)(w->hi[r] - j) : 16;
        v16_store_n(row + j, v16_div(v16_exp_low(v16_sub(v16_load_n(row + j, n), c)), by), n);
    }
}

#endif
