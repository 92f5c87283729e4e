/* Converts rows and columns of a quantised cache to fp32: code * scale, with the bits that
 * kv_dequantise (src/ops) defines, and kv.h for scales of keys. */
#ifndef GQAC_TARGETS_CPU_LEVEL_CODES_H
#define GQAC_TARGETS_CPU_LEVEL_CODES_H

#include "targets/cpu/attention.h"
#include "targets/cpu/level/level.h"

/* The scales of a head; that of channel d is at d * scale_step. */
static inline const float *scales_of(const cpu_attend_rows *rows, int64_t head) {
    return rows->scale + head * rows->size * rows->scale_step;
}

/* The scales of the keys of a head, in the block that contains their codes. */
static inline const float *key_scales(const cpu_attend_rows *rows, int64_t head,
                                      const unsigned char *codes) {
    const unsigned char *block = codes - (size_t)head * rows->head;
    return (const float *)(const void *)(block + rows->scales_at) + head * CPU_ATTEND_KEYS;
}

/* Decodes a row of `size` channels; the rest of the last vector of `to` becomes zeros. */
static inline void decode_row(const cpu_attend_rows *rows, const float *scale, int step,
                              const unsigned char *codes, float *to) {
    const int n = rows->size;
    for (int d = 0; d < n && rows->bits == 8; d++)
        to[d] = (float)(int8_t)codes[d];
    for (int d = 0; d + 1 < n && rows->bits == 4; d += 2) {
        to[d] = (float)((codes[d / 2] & 15) - 8);
        to[d + 1] = (float)((codes[d / 2] >> 4) - 8);
    }
    if (rows->bits == 4 && n % 2)
        to[n - 1] = (float)((codes[n / 2] & 15) - 8);
    for (int d = 0; d < n && step; d++)
        to[d] *= scale[d];
    for (int d = 0; d < n && !step; d++)
        to[d] *= scale[0];
    for (int d = n; d % 16; d++)
        to[d] = 0.0f;
}

/* Decodes columns of codes with scales of keys to kt [size][CPU_ATTEND_KEYS]; a byte of 4-bit codes
 * holds two channels. */
static inline void decode_key_columns(const cpu_attend_rows *rows, const float *scale,
                                      const unsigned char *codes, float *kt) {
    enum { N = CPU_ATTEND_KEYS };
    for (int d = 0; d < rows->size && rows->bits == 8; d++)
        for (int i = 0; i < N; i++)
            kt[d * N + i] = (float)(int8_t)codes[d * N + i] * scale[i];
    for (int d = 0; d < rows->size && rows->bits == 4; d++)
        for (int i = 0; i < N; i++)
            kt[d * N + i] = (float)((codes[d / 2 * N + i] >> 4 * (d % 2) & 15) - 8) * scale[i];
}

/* Decodes columns of codes to kt [size][CPU_ATTEND_KEYS]; a byte of 4-bit codes holds two
 * channels. */
static inline void decode_columns(const cpu_attend_rows *rows, const float *scale,
                                  const unsigned char *codes, float *kt) {
    enum { N = CPU_ATTEND_KEYS };
    for (int d = 0; d < rows->size; d++) {
        const float s = scale[d * rows->scale_step];
        const unsigned char *from = codes + (rows->bits == 4 ? d / 2 : d) * N;
        float *to = kt + d * N;
        if (rows->bits == 8)
            for (int i = 0; i < N; i++)
                to[i] = (float)(int8_t)from[i] * s;
        else if (d % 2 == 0)
            for (int i = 0; i < N; i++)
                to[i] = (float)((from[i] & 15) - 8) * s;
        else
            for (int i = 0; i < N; i++)
                to[i] = (float)((from[i] >> 4) - 8) * s;
    }
}

#endif
