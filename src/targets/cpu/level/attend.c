/* y [B,S,Hq*Dv] = softmax(scale * q k^T ...) v over the visible keys of each row, without storing
 * all scores; docs/numerics.md, "Attention on cpu", defines the formula. In short, for each row:
 *   - s_j = scale * (one fma chain over d), softcap, + mask
 *   - tiles and splits of keys begin at absolute multiples; in a split, tile by tile
 *     m' = max(m, s_j), alpha = exp(m - m'), p_j = exp(s_j - m'), l = fma(l, alpha, lane tree of
 *     p_j), acc = acc * alpha, then one fma chain of p_j * v_j
 *   - splits are merged in ascending order, then the sink is added; y = acc / l, rounded once
 *
 * Rows share only the loads. Keys outside a row's visible range may take part in arithmetic in
 * lanes of their own, but no result depends on them; their values are not read. */
#include "numerics/contract.h"
#include "numerics/reduce.h"

enum { TILE = GQAC_KEY_TILE };

#include "targets/cpu/level/attend_show.h"
#include "targets/cpu/level/widen.h"

#include "targets/cpu/level/attend_bf16.h"

_Static_assert(GQAC_KEY_TILE <= KEYS && KEYS % GQAC_KEY_TILE == 0, "a block holds whole tiles");
_Static_assert((int)KEYS == (int)WIDEN_KEYS && (int)CPU_ATTEND_SIZE <= (int)WIDEN_MOST,
               "columns of a block");

static size_t scratch(const cpu_attend *a) {
    return layout(a, NULL, NULL) + pair_layout(a, NULL, NULL);
}

/* ---- what a unit reads ----------------------------------------------------- */

static void open_queries(work *w) {
    const cpu_attend *a = w->a;
    for (int r = 0; r < w->u->rows; r++) {
        widen(a->q_dtype, a->q, query_at(w, r), a->size, w->q + r * QUERY);
    }
}

/* Block `index` of a head. A tensor has no memory for the keys after T. */
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
    if (a->k.columns && a->k.scales_at) {
        decode_key_columns(&a->k, key_scales(&a->k, w->u->head, block), block, w->kt);
        return w->kt;
    }
    if (a->k.columns && a->k.bits) {
        decode_columns(&a->k, scales_of(&a->k, w->u->head), block, w->kt);
        return w->kt;
    }
    if (a->k.columns && a->k.dtype == GQAC_F32)
        return (const float *)(const void *)block;
    if (a->k.columns) {
        for (int d = 0; d < a->size; d++) /* whole columns have no tails */
            widen(a->k.dtype, block, (int64_t)d * KEYS, KEYS, w->kt + d * KEYS);
        return w->kt;
    }
    const int64_t left = a->keys - index * KEYS;
    columns(&a->k, w->u->head, block, left < KEYS ? (int)left : KEYS, w->kt);
    return w->kt;
}

/* True if 16-bit elements and codes are widened during the multiplication. If several groups of
 * rows read them, they are widened once, in advance. */
static bool widens_late(const work *w) {
    return w->u->rows <= MOST && !w->a->bf16;
}

static stored keys_of(work *w, int64_t index) {
    const cpu_attend *a = w->a;
#ifdef GQAC_CONTROL_UNROUNDED_CHUNK /* negative control: cached keys lose bits, new ones do not */
    const float *kt = stored_keys(w, index);
    const int64_t cached = a->hi[w->u->first] - 1 - index * KEYS;
    for (int i = 0; i < a->size * KEYS; i++)
        w->kt[i] = i % KEYS < cached ? gqn_as_f32(gqn_as_u32(kt[i]) & 0xfffc0000u) : kt[i];
    return as_fp32(w->kt);
#endif
    if (widens_late(w) && a->k.columns)
        return as_stored(&a->k, w->u->head, block_at(&a->k, w->u->b, w->u->head, index));
    return as_fp32(stored_keys(w, index));
}

/* The values of the keys [from, to) of a block, as [64][padded]; other values are not read. */
static stored values_of(work *w, int64_t index, int from, int to) {
    const cpu_attend *a = w->a;
    const unsigned char *block = block_at(&a->v, w->u->b, w->u->head, index);
    const bool fp32 = !a->v.bits && a->v.dtype == GQAC_F32;
    if ((fp32 || widens_late(w)) && w->padded == a->value_size)
        return as_stored(&a->v, w->u->head, block);
    for (int j = from; j < to; j++)
        widen_row(&a->v, w->u->head, block, j, w->vt + j * w->padded);
    return as_fp32(w->vt);
}

/* ---- scores -------------------------------------------------------------- */

/* The scores of all rows with the keys of a block, as plain sums. */
static void score_block(work *w, int64_t key, stored kt, ahead next) {
    int from, to;
    if (w->full) {
        score(w->u->rows, w->a->size, w->q, kt, 0, KEYS / 16, w->s, next);
        return;
    }
    for (int r = 0; r < w->u->rows; r += MOST) {
        const int n = group_size(w, r);
        if (see_range(w, r, n, key, key, key + KEYS, &from, &to))
            score(n, w->a->size, w->q + r * QUERY, kt, from / 16, (to + 15) / 16, w->s + r * KEYS,
                  r == 0 ? next : nothing);
    }
}

/* ---- weighing ------------------------------------------------------------ */

/* Adds the keys [from, to) to row r. */
static void weigh_row(work *w, int r, stored v, int from, int to) {
    if (from >= to)
        return;
    weigh(1, to - from, w->s + r * KEYS + from, v, from * w->padded, w->padded,
          w->acc + r * w->padded, &w->alpha[r], nothing);
    w->alpha[r] = 1.0f;
}

/* Adds keys to acc of n rows, from row r on: keys that are visible to all of these rows for all
 * rows together, the keys before and after them row by row. */
static void weigh_group(work *w, int r, int n, stored v, ahead next) {
    int from = 0, to = KEYS;
    bool all = n > 1;
    for (int i = r; i < r + n; i++) {
        from = w->from[i] > from ? w->from[i] : from;
        to = w->to[i] < to ? w->to[i] : to;
        all = all && w->from[i] < w->to[i];
    }
    all = all && from < to;
    for (int i = r; i < r + n; i++)
        weigh_row(w, i, v, w->from[i], all ? from : w->to[i]);
    if (!all)
        return;
    weigh(n, to - from, w->s + r * KEYS + from, v, from * w->padded, w->padded,
          w->acc + r * w->padded, w->alpha + r, to - from == KEYS ? next : nothing);
    for (int i = r; i < r + n; i++) {
        w->alpha[i] = 1.0f;
        weigh_row(w, i, v, to, w->to[i]);
    }
}

/* ---- splits -------------------------------------------------------------- */

static void begin_split(work *w) {
    for (int r = 0; r < w->u->rows; r += 16) { /* includes lanes without a row */
        v16_store(w->m + r, v16_set1(-gqn_as_f32(GQN_INF_BITS)));
        v16_store(w->l + r, v16_zero());
    }
    memset(w->acc, 0, sizeof(float) * (size_t)w->u->rows * (size_t)w->padded);
}

/* Merges one more split into the total of row r. */
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
    const int64_t row = w->u->head * a->cut_rows + w->u->part + r;
    return a->parts + (row * a->splits + split) * cpu_attend_part(a);
}

/* Turns the first split of all rows into their total, without a copy. */
static void first_split(work *w, int64_t begin, int64_t end) {
    float *acc = w->acc;
    w->acc = w->total;
    w->total = acc;
    memcpy(w->all_m, w->m, sizeof w->m);
    memcpy(w->all_l, w->l, sizeof w->l);
    for (int r = 0; r < w->u->rows; r++)
        w->any[r] = sees(w, r, begin, end);
    w->some = true;
}

static void end_split(work *w, int64_t split) {
    const int64_t begin = split * w->a->split, end = begin + w->a->split;
    if (!w->u->cut && !w->some) {
        first_split(w, begin, end);
        return;
    }
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

/* Adds the sink and writes y for every row of the unit. */
static void finish(work *w) {
    const cpu_attend *a = w->a;
    for (int r = 0; r < w->u->rows; r++) {
        const int64_t h = head_of(w, r);
        const int64_t at = ((w->u->first + query_of(w, r)) * a->q_heads + h) * a->value_size;
        const float *total = w->total + r * w->padded;
        if (!w->any[r]) {
            memset((char *)a->y + (size_t)at * width_of(a->y_dtype), 0,
                   (size_t)a->value_size * width_of(a->y_dtype));
            continue;
        }
        float l = w->all_l[r], factor = 1.0f, most = w->all_m[r];
        if (a->sink) {
            const float sink = get_as(a->sink_dtype, a->sink, h);
            most = gqn_max_step(most, sink);
            const float mu = most == -gqn_as_f32(GQN_INF_BITS) ? 0.0f : most;
            factor = most == w->all_m[r] ? 1.0f : gqn_expf(w->all_m[r] - mu);
            l = gqn_fma(l, factor, gqn_expf(sink - mu));
        }
        if (a->show == CPU_SHOW_WEIGHTS)
            show_weights(w, r, most == -gqn_as_f32(GQN_INF_BITS) ? 0.0f : most, l);
        const v16 by = v16_set1(l == 0.0f ? 1.0f : l);
        for (int d = 0; d < a->value_size; d += 16)
            row_store(a->y, a->y_dtype, at + d,
                      v16_div(v16_mul(v16_load(total + d), v16_set1(factor)), by),
                      a->value_size - d < 16 ? a->value_size - d : 16);
    }
}

/* ---- a unit --------------------------------------------------------------- */

static void tile(work *w, pair_factors *pairs, int64_t key, int64_t begin, stored v, ahead next) {
    const bool plain = !w->a->mask && w->a->softcap == 0 && w->a->show < CPU_SHOW_MASKED;
    int from, to;
    if (GQAC_KEY_TILE < KEYS)
        (void)see_range(w, 0, w->u->rows, key, begin, begin + TILE, &from, &to);
    for (int r = 0; r < w->u->rows; r += 16) {
        const int left = w->u->rows - r;
        const int n = left < 16 ? left : 16;
        if (plain && w->full)
            weights_whole(w, r, n, key);
        else if (plain)
            weights_part(w, r, n, key);
        else
            weights_other(w, r, n, key);
    }
    if (w->a->bf16)
        pair_weigh(w, pairs);
    else if (w->full)
        weigh(w->u->rows, KEYS, w->s, v, 0, w->padded, w->acc, w->alpha, next);
    for (int r = 0; !w->a->bf16 && !w->full && r < w->u->rows; r += MOST)
        weigh_group(w, r, group_size(w, r), v, r == 0 ? next : nothing);
}

/* The memory of the block that begins at this key; NULL: the unit has no such block. */
static const char *block_of(const work *w, const cpu_attend_rows *rows, int64_t key) {
    if (key >= w->u->end || key >= w->a->keys)
        return NULL;
    if (rows->blocks && !rows->blocks[w->u->b * rows->per_batch + key / KEYS])
        return NULL; /* after the end of a short row */
    return (const char *)block_at(rows, w->u->b, w->u->head, key / KEYS);
}

/* What is prefetched while a block of keys or of values is read: the next block of the same, and,
 * again, the memory that is read after this block. */
static ahead after(const work *w, const cpu_attend_rows *rows, const char *again, int64_t key) {
    const char *next = block_of(w, rows, key + KEYS);
    return again ? (ahead){next ? next : again, again,
                           rows->bits ? 2 * rows->bits : 16 * (int)width_of(rows->dtype)}
                 : nothing;
}
static ahead after_keys(const work *w, int64_t key) {
    return after(w, &w->a->k, block_of(w, &w->a->v, key), key);
}
static ahead after_values(const work *w, int64_t key) {
    return after(w, &w->a->v, block_of(w, &w->a->k, key + KEYS), key);
}

/* Writes the scores that are an output, except the input of the softmax for visible keys. */
static void show(work *w) {
    const cpu_attend *a = w->a;
    const int64_t end = w->u->end < a->keys ? w->u->end : a->keys;
    if (a->show >= CPU_SHOW_MASKED)
        hide_shown(w);
    for (int64_t key = w->u->begin; a->show < CPU_SHOW_MASKED && key < end; key += KEYS)
        show_block(w, key, stored_keys(w, key / KEYS));
}

static void run(const cpu_attend *a, const cpu_attend_unit *u, float *memory) {
    work w;
    pair_factors pairs;
    int from, to;
    open_work(&w, a, u, memory);
    pair_layout(a, &pairs, memory + layout(a, NULL, NULL));
    if (a->bf16)
        pair_queries(&w, &pairs);
    else
        open_queries(&w);
    if (a->show)
        show(&w);
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
        if (GQAC_KEY_TILE < KEYS)
            w.full = false; /* `from` and `to` are set for tiles */
        const stored kt = keys_of(&w, key / KEYS);
        const stored v = values_of(&w, key / KEYS, from, to);
        if (a->bf16)
            pair_block(&w, &pairs, key, kt.at, v.at, from, to);
        else
            score_block(&w, key, kt, after_keys(&w, key));
        for (int64_t begin = key; begin < key + KEYS; begin += TILE) {
            if (begin / a->split != split) {
                if (split >= 0)
                    end_split(&w, split);
                split = begin / a->split;
                begin_split(&w);
            }
            tile(&w, &pairs, key, begin, v, after_values(&w, key));
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
