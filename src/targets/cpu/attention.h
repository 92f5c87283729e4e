/* Attention in one kernel: the interface between the file that divides the work (attention.c) and
 * the arithmetic (level/attend.c). Symbols as in ops/attention.h; a *block* is GQAC_KV_BLOCK keys
 * at an absolute multiple of that, a *row* is one query of one head.
 *
 * Queries are [B,Hq,S,D], one sequence in each batch row, or packed as [1,Hq,N,D], the new rows of
 * B sequences one after another. Keys and values have one batch row for each sequence either way.
 *
 * Rows of a key/value head are numbered s * G + g, so that nearly the same keys are visible to
 * neighbouring rows, and all query heads of a group share the loaded keys and values. A unit is a
 * run of such rows and a range of keys. The arithmetic of a row does not depend on the other rows
 * of its unit, nor on the end of a unit, which is always the end of a split. */
#ifndef GQAC_TARGETS_CPU_ATTENTION_H
#define GQAC_TARGETS_CPU_ATTENTION_H

#include "kv/kv.h"
#include "ops/work.h"
#include "targets/cpu/cpu.h"

enum {
    CPU_ATTEND_KEYS = GQAC_KV_BLOCK,
    CPU_ATTEND_ROWS = 96, /* maximum rows of a unit */
    CPU_ATTEND_SIZE = 256 /* maximum elements of a head */
};

/* Keys or values of all batch rows and heads, in blocks. In a block, a head has 64 rows of `size`
 * elements, or `size` columns of 64 keys. */
typedef struct cpu_attend_rows {
    const unsigned char *const *blocks; /* blocks of a cache: [B][per_batch]; NULL: one tensor at
                                           `base` */
    const unsigned char *base;
    int64_t per_batch;  /* entries of `blocks` for a batch row */
    size_t batch, head; /* bytes between batch rows (tensor) and between heads */
    size_t block;       /* bytes between blocks (tensor) */
    gqac_dtype dtype;   /* f32, f16 or bf16; unused for codes */
    bool columns;       /* blocks are [size][64]; for codes of 4 bits [(size + 1) / 2][64] */
    int size;
    int bits;           /* bits of a code: 8 or 4; 0: not codes */
    const float *scale; /* scales of codes: one, or [Hkv][size] */
    int scale_step;     /* 0: one scale; 1: [Hkv][size] */
    /* Not 0: codes have a scale for each key, [Hkv][64] fp32 at this offset in bytes from the start
     * of a block, and `scale` is unused. */
    size_t scales_at;
} cpu_attend_rows;

static inline int64_t cpu_attend_row_bytes(const cpu_attend_rows *rows) {
    return rows->bits == 8   ? rows->size
           : rows->bits == 4 ? (rows->size + 1) / 2
                             : (int64_t)rows->size * (rows->dtype == GQAC_F32 ? 4 : 2);
}

/* The contents of `shown`: scores before or after the softcap, of all keys; or, of visible keys,
 * the input of the softmax, or its weights. */
typedef enum cpu_attend_show {
    CPU_SHOW_NONE,
    CPU_SHOW_SCORES,
    CPU_SHOW_CAPPED,
    CPU_SHOW_MASKED,
    CPU_SHOW_WEIGHTS
} cpu_attend_show;

typedef struct cpu_attend {
    int64_t batch, q_heads, kv_heads, group, queries, keys; /* B, Hq, Hkv, G, S, T */
    int64_t rows;                                           /* queries of all sequences: B*S, or
                                                               N */
    int size, value_size;                                   /* D, Dv */
    int split;                                              /* keys of a split */
    bool bf16;                                              /* products have bf16 factors */
    float scale, softcap;                                   /* softcap 0: off */
    const void *q;                                          /* rows of D elements */
    int64_t q_batch, q_head, q_row; /* elements between consecutive b, h, s */
    gqac_dtype q_dtype;
    cpu_attend_rows k, v;
    const int32_t *lo, *hi; /* [rows], visible range; lo >= hi: no key is visible, and the result
                               is zeros */
    /* A float mask is added, a bool mask selects; keys from column mask_columns on are masked. */
    const void *mask;
    gqac_dtype mask_dtype;
    int64_t mask_columns, mask_step[3]; /* elements of the mask between consecutive b, h, s */
    const void *sink;                   /* [Hq] */
    gqac_dtype sink_dtype;
    void *y; /* [rows,Hq*Dv] */
    gqac_dtype y_dtype;
    cpu_attend_show show;
    float *shown;       /* [B,Hq,S,T] */
    float shown_hidden; /* its value for keys that are not visible */
    float *parts;       /* [Hkv][cut_rows][splits][cpu_attend_part]; NULL: no row is divided */
    int64_t splits, cut_rows;
} cpu_attend;

typedef struct cpu_attend_unit {
    int64_t b, head;    /* sequence, key/value head */
    int64_t first;      /* index of its query 0 among all rows */
    int64_t skip;       /* queries before that one, in row b of q and of the mask */
    int64_t row;        /* first row */
    int rows;           /* at most CPU_ATTEND_ROWS */
    int64_t begin, end; /* keys, multiples of the block and of the split; end may be greater than
                           T */
    bool cut;           /* true: each split is stored in a->parts, and `join` computes y */
    int64_t part;       /* index of its first row among the divided rows */
} cpu_attend_unit;

/* Floats of a row of values in memory, rounded up to whole vectors. */
static inline int cpu_attend_padded(int size) {
    return (size + 15) / 16 * 16;
}
/* Floats in `parts` for one split of one row: maximum, sum, values. */
static inline int64_t cpu_attend_part(const cpu_attend *a) {
    return cpu_attend_padded(a->value_size) + 16;
}

struct cpu_attend_kernels {
    /* The number of floats of scratch for `run` and `join`. */
    size_t (*scratch)(const cpu_attend *a);
    void (*run)(const cpu_attend *a, const cpu_attend_unit *u, float *scratch);
    /* Merges the splits of a unit's rows in ascending order, and writes y. */
    void (*join)(const cpu_attend *a, const cpu_attend_unit *u, float *scratch);
    /* Transposes n <= 64 rows of a head to kt [size][64]; columns from n on become zeros. */
    void (*columns)(const cpu_attend_rows *keys, int64_t head, const unsigned char *rows, int n,
                    float *kt);
};

/* Keys or values as an operand: rows, or the codes from which a fused kv_dequantise would compute
 * rows. */
typedef struct cpu_attend_stored {
    int value, slot; /* slot: as cpu_bind_slot */
    int bits, scale; /* of codes; bits 0: not codes */
    int64_t size;
    bool per_channel;
} cpu_attend_stored;

/* The record for `attention`, whose visible ranges follow from lengths, and for `attend`, which has
 * them as operands. */
typedef struct cpu_attend_record {
    bool attends; /* the node is an `attend` */
    int q;        /* values; -1: absent */
    int packed;   /* the packed row that contains the queries, from `column` on; or -1 */
    int64_t column;
    cpu_attend_stored stored[2];
    int past_len, new_len, lo, hi, mask, sink;
    int y, shown;
    bool causal, every, bf16;
    int64_t window;
    float scale, softcap;
    cpu_attend_show show;
} cpu_attend_record;
gqac_status cpu_attention_run(target_call *call, const void *record);
gqac_status cpu_attention_scratch(const target_call *call, int threads, const void *record,
                                  gqac_parts *parts);

#endif
