/* Shared by the two forms of linear_nbits: nbits.c (int8 activations) and nbits_fp32.c. */
#ifndef GQAC_TARGETS_CPU_LEVEL_NBITS_H
#define GQAC_TARGETS_CPU_LEVEL_NBITS_H

#include "targets/cpu/level/widen.h"
#include "targets/cpu/nbits.h"

/* Tiles of TILE_ROWS rows and TILE_VECTORS vectors fill the registers of a level; tiles of
 * WORD_ROWS rows if the tile extracts the codes from words. From UNPACK_ROWS rows on, words are
 * unpacked once for all tiles; never with 512 bits, where extracting codes is faster than reading
 * the bytes again. Plain C has no such registers, and is not unrolled. */
#if defined(__AVX512F__)
enum { TILE_ROWS = 6, WORD_ROWS = 4, TILE_VECTORS = 4, UNPACK_ROWS = CPU_NBITS_ROWS + 1 };
#elif defined(__AVX2__)
enum { TILE_ROWS = 6, WORD_ROWS = 4, TILE_VECTORS = 1, UNPACK_ROWS = 24 };
#else
enum { TILE_ROWS = 3, WORD_ROWS = 3, TILE_VECTORS = 4, UNPACK_ROWS = 24 };
#endif
enum { GROUPS = NBITS_COLUMNS / 16 };

/* n rows of 64 scales or zero points as fp32: in place, or in `scratch`. */
static inline const float *rows_as_f32(const void *p, gqac_dtype dtype, int64_t at, int64_t n,
                                       float *scratch) {
    const uint8_t *bytes = p;
    if (dtype == GQAC_F32)
        return (const float *)p + at;
    for (int64_t i = 0; i < n * NBITS_COLUMNS && dtype == GQAC_U8; i++)
        scratch[i] = (float)bytes[at + i];
    if (dtype != GQAC_U8)
        widen(dtype, p, at, (int)(n * NBITS_COLUMNS), scratch);
    return scratch;
}

/* cpu_nbits_kernels.fp32. */
void CPU_NAME(nbits_fp32)(const cpu_nbits_weights *w, int64_t panel, const float *x, int64_t rows,
                          int64_t first, int64_t count, cpu_nbits_scratch *scratch);

#endif
