/* Mixtures of experts on tensors, for evals and for kernels of targets. ops/moe.h has the
 * formula. */
#ifndef GQAC_OPS_MIXTURE_H
#define GQAC_OPS_MIXTURE_H

#include "ops/work.h"

enum { MOE_RELU, MOE_GELU, MOE_SILU, MOE_SWIGLU, MOE_IDENTITY, MOE_ACTIVATIONS };

/* The attributes of a node. */
typedef struct moe_form {
    int64_t chosen; /* attribute k: experts for a row */
    int activation; /* MOE_RELU, ... */
    int64_t fusion; /* of swiglu: see swiglu_fusion; else 0 */
    bool normalize;
    float alpha, beta, limit;
    int bits[3];      /* of a code, for each projection; 0: floats */
    int64_t block[3]; /* elements that share a scale; 0: those of a row */
    int64_t inner;    /* of our moe, whose weights are packed: elements between the projections */
} moe_form;

/* The weights of one projection: floats, or codes of `bits` bits with scales. Packed weights are
 * floats as in ops/panels.h, or codes as in ops/nbits.h, with the panels of all experts one after
 * another. */
typedef struct moe_matrix {
    bool packed;
    const gqac_tensor *weight, *bias, *scale, *zero; /* weight NULL: no such projection */
    int64_t n, k, blocks;                            /* blocks of a row, one scale for each */
    int64_t block;                                   /* block_size; 0: one scale for each row */
    int bits;                                        /* 0: floats */
} moe_matrix;

typedef struct moe {
    const gqac_tensor *x, *router, *mix; /* mix: weights of the sum; NULL: computed from router */
    moe_matrix fc[3];
} moe;

enum { MOE_ROUTER_WEIGHTS = 14, MOE_INPUTS };

/* Operands in the order of QMoE and of our moe, NULL where absent; MoE has its own order. */
typedef struct moe_operands {
    const op_work *work;
    const gqac_tensor *in[MOE_INPUTS];
} moe_operands;

/* Reads operands and checks the type and shape of each: those of MoE (bits 0) and QMoE, or those of
 * our moe, whose weights are packed. */
typedef gqac_status moe_read(const moe_operands *o, const moe_form *form, moe *m);
moe_read moe_read_files, moe_read_ours;
/* The zero point of a block of row n of an expert, for codes that are not packed. */
int moe_zero_of(const moe_matrix *m, int64_t expert, int64_t n, int64_t block);

/* Operands that were checked against each other. */
typedef struct moe_mixture {
    const moe *m;
    gqac_tensor *y;
    int64_t rows, experts, chosen, hidden, inner; /* inner: elements between the projections */
    int activation;
    int64_t fusion;
    bool normalize;
    float alpha, beta, limit;
} moe_mixture;

/* Checks sizes; the output has the shape and type of x. */
gqac_status moe_fit(const op_work *work, const moe_form *form, const moe *m, gqac_tensor *y,
                    moe_mixture *s);
/* Chooses the `chosen` experts of a row and their weights, in the order in which results are added.
 * scratch and taken have one element for each expert. */
void moe_choose(const moe_mixture *s, int64_t row, int64_t *order, float *p, float *scratch,
                bool *taken);
/* h [inner] from the results of fc1 and fc3 (or NULL) for a row; h may be fc1. */
void moe_activate(const moe_mixture *s, const float *fc1, const float *fc3, float *h);
/* sum [hidden] = the sum of p * y for `chosen` rows y. */
void moe_add(const moe_mixture *s, const float *p, const float *const *y, float *sum);

#endif
