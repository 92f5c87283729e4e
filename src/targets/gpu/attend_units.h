/* How attention cuts its work for the device: the new rows of each sequence into tiles, and the
 * keys of a tile into units: of one split for tiles of few rows, and, where there are few tiles, of
 * several splits for tiles of many. The cuts change no bit.
 *
 * Rows of a head of keys and values are numbered s * G + g: query s, head g of its group. */
#ifndef GQAC_TARGETS_GPU_ATTEND_UNITS_H
#define GQAC_TARGETS_GPU_ATTEND_UNITS_H

#include "ops/visible.h"

typedef enum gpu_tiles {
    GPU_FEW,  /* of GPU_ATTEND_FEW_ROWS rows */
    GPU_MANY, /* of 32 or 64 */
    GPU_TILES
} gpu_tiles;

/* What one group of the device computes, for each head of keys and values: as kernels/attention.cl
 * reads it. */
typedef struct gpu_unit {
    int32_t query, first, rows; /* first query of the sequence, first row of the tile, its rows */
    int32_t sequence;
    int32_t begin, end; /* keys */
    int32_t slot; /* of its first split in the memory of parts, at head 0; -1: it has all keys */
} gpu_unit;

/* A row whose splits are merged afterwards, as kernels/attend_common.cl reads it. */
typedef struct gpu_merge {
    int32_t query, head; /* query; head in its group */
    int32_t slot, rows;  /* of its first split, at head 0; rows of its tile */
    int32_t split, splits;
} gpu_merge;

typedef struct gpu_cut {
    const attention_rows *rows;
    const int32_t *lo, *hi;  /* visible keys of each query of all sequences */
    int64_t group, kv_heads; /* G, Hkv */
    int64_t tile_rows[GPU_TILES];
    int64_t part;    /* floats of a slot */
    gpu_unit *units; /* those of few rows, then those of many */
    gpu_merge *merges;
    int64_t n[GPU_TILES], n_merges, n_slots;
} gpu_cut;

/* The maximum numbers of units and merges if rows see at most that many keys; their lists, lo and
 * hi need not be set yet. */
void gpu_cut_most(const gpu_cut *cut, int64_t keys, int64_t *units, int64_t *merges);
/* Fills the lists. */
void gpu_cut_make(gpu_cut *cut);

#endif
