/* Row kernels: norms, rotary embeddings, and chains of elementwise ops.
 *
 * All are limited by memory or by the cost of a call, so one pass does as much as possible: a norm
 * adds its skip, a rotary embedding reads its heads in the packed row and normalises them, a chain
 * runs any number of elementwise ops on pieces that stay in L1. Every kernel computes the bits of
 * the ops that it replaces, including roundings between f16 or bf16 ops; a NaN result is the
 * canonical NaN. Types are f32, f16 or bf16. */
#ifndef GQAC_TARGETS_CPU_ROWS_H
#define GQAC_TARGETS_CPU_ROWS_H

#include "targets/chain.h"
#include "targets/cpu/products.h"
#include "targets/norm.h"

enum {
    CPU_CHAIN_PIECE = 256, /* elements that a chain computes at once */
};

/* Rows of n elements; see ops/norm.h for the formula. y, sum, mean and inv are results. */
typedef struct cpu_norm {
    int64_t n, skip_rows;
    norm_period weight_period, beta_period;
    float epsilon;
    bool centred, round_before;
    bool round_sum; /* x + skip is a fused Add: rounded to `type` before it is normalised */
    gqac_dtype type, weight_type, bias_type, beta_type, y_type; /* type: of x, skip and sum */
    const void *x, *skip, *bias, *weight, *beta;                /* NULL: absent; weight is never
                                                                   NULL */
    void *y, *sum;
    float *mean, *inv;
} cpu_norm;

/* One head: x [size] -> y [size]. It is normalised first if weight is not NULL: the result has the
 * type `type`, and is rounded to the type of x before the weight is applied if the op does so. */
typedef struct cpu_head {
    int64_t size, half;
    bool interleaved, round_before;
    float epsilon;
    gqac_dtype x_type, weight_type, type, table_type; /* type: also of y */
    const void *weight;
} cpu_head;

typedef struct cpu_leaf {
    const void *data;
    gqac_dtype type;
    target_leaf_form form;
} cpu_leaf;

/* The result y [rows,n] of the last step. An item is a piece of a row. */
typedef struct cpu_chain {
    int n_leaves, n_steps;
    cpu_leaf leaves[TARGET_CHAIN_LEAVES];
    target_step steps[TARGET_CHAIN_STEPS];
    int64_t rows, n, pieces; /* pieces of a row */
    void *y;
    gqac_dtype type;
} cpu_chain;

struct cpu_row_kernels {
    void (*norm)(const cpu_norm *p, size_t begin, size_t end); /* items are rows */
    void (*head)(const cpu_head *p, const void *x, const void *cos, const void *sin, void *y);
    void (*chain)(const cpu_chain *p, size_t begin, size_t end); /* items */
    /* The same for a rectangle of y: n columns from `first` on. */
    void (*part)(const cpu_chain *p, int64_t row, int64_t rows, int64_t first, int64_t n);
};

/* ---- kernels ------------------------------------------------------------- */

/* A norm, alone or with the Add that computes x (norm.c). */
typedef struct cpu_norm_record {
    target_norm of;
    bool adds; /* x + skip is a fused Add, and `add` is its origin */
    op_origin add;
} cpu_norm_record;
gqac_status cpu_norm_run(target_call *call, const void *record);

/* A chain (chain.c): its compiled steps, and its leaves. Products of one x that only the chain
 * reads are computed with it, and are stored in scratch. */
typedef struct cpu_chain_record {
    target_chain of;
    int64_t cost;          /* estimated time of a piece, in ns */
    cpu_products products; /* the leaves that have no value, in their order */
} cpu_chain_record;
gqac_status cpu_chain_run(target_call *call, const void *record);
gqac_status cpu_chain_scratch(const target_call *call, int threads, const void *record,
                              gqac_parts *parts);

#endif
