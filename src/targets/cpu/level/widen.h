/* Widening stored rows to fp32, and transposing 64 rows to columns: for attention, if the cache
 * stores another form. Widening is exact. */
#ifndef GQAC_TARGETS_CPU_LEVEL_WIDEN_H
#define GQAC_TARGETS_CPU_LEVEL_WIDEN_H

#include <stddef.h>

#include "targets/cpu/level/codes.h"

enum { WIDEN_KEYS = 64, WIDEN_MOST = 256 /* elements of a row, at most */ };

VEC_FN size_t width_of(gqac_dtype dtype) {
    return dtype == GQAC_F32 ? 4 : 2;
}

VEC_FN v16 load_as(gqac_dtype dtype, const void *from, int64_t at) {
    if (dtype == GQAC_F32)
        return v16_load((const float *)from + at);
    if (dtype == GQAC_F16)
        return v16_load_f16((const uint16_t *)from + at);
    return v16_load_bf16((const uint16_t *)from + at);
}

VEC_FN float get_as(gqac_dtype dtype, const void *from, int64_t at) {
    if (dtype == GQAC_F32)
        return ((const float *)from)[at];
    const uint16_t bits = ((const uint16_t *)from)[at];
    return dtype == GQAC_F16 ? gqn_f16_to_f32(bits) : gqn_bf16_to_f32(bits);
}

/* Widens n elements from `at`; the rest of the last vector of `to` becomes zeros. */
VEC_FN void widen_as(gqac_dtype dtype, const void *from, int64_t at, int n, float *to) {
    const int whole = n / 16 * 16, tail = n % 16;
    for (int i = 0; i < whole; i += 16)
        v16_store(to + i, load_as(dtype, from, at + i));
    if (tail)
        v16_store(to + whole, v16_zero());
    for (int i = 0; i < tail; i++)
        to[whole + i] = get_as(dtype, from, at + whole + i);
}

static inline void widen(gqac_dtype dtype, const void *from, int64_t at, int n, float *to) {
    if (dtype == GQAC_F32)
        widen_as(GQAC_F32, from, at, n, to);
    else if (dtype == GQAC_F16)
        widen_as(GQAC_F16, from, at, n, to);
    else
        widen_as(GQAC_BF16, from, at, n, to);
}

/* Widens a stored row of a head. */
static inline void widen_row(const cpu_attend_rows *rows, int64_t head, const unsigned char *from,
                             int64_t index, float *to) {
    if (rows->scales_at)
        decode_row(rows, key_scales(rows, head, from) + index, 0,
                   from + index * cpu_attend_row_bytes(rows), to);
    else if (rows->bits)
        decode_row(rows, scales_of(rows, head), rows->scale_step,
                   from + index * cpu_attend_row_bytes(rows), to);
    else
        widen(rows->dtype, from, index * rows->size, rows->size, to);
}

/* Transposes n <= 64 rows of a head's keys to kt [size][64]; columns from n on become zeros. */
static inline void columns(const cpu_attend_rows *keys, int64_t head, const unsigned char *rows,
                           int n, float *kt) {
    const int size = keys->size;
    float some[16][WIDEN_MOST];
    for (int first = 0; first < WIDEN_KEYS; first += 16) {
        const float *from = (const float *)(const void *)rows + (int64_t)first * size;
        const int have = n - first < 16 ? n - first : 16;
        int64_t step = size;
        if (keys->bits || keys->dtype != GQAC_F32 || size % 16 || have < 16) {
            for (int i = 0; i < 16; i++)
                if (i < have)
                    widen_row(keys, head, rows, first + i, some[i]);
                else
                    memset(some[i], 0, sizeof some[i]);
            from = some[0];
            step = WIDEN_MOST;
        }
        int d = 0;
        for (; d + 16 <= size; d += 16)
            v16_transpose(from + d, step, kt + d * WIDEN_KEYS + first, WIDEN_KEYS);
        for (; d < size; d++)
            for (int i = 0; i < 16; i++)
                kt[d * WIDEN_KEYS + first + i] = from[i * step + d];
    }
}

#endif
