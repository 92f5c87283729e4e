/* Mixture of experts, MoE and QMoE: each row of x [..,H] goes through the k experts whose router
 * values [rows,E] are greatest (equals: the lower number first):
 *   p = softmax of the router values over all experts, or over the chosen ones (normalize)
 *   y = sum over the chosen of p * (act(x W1^T + b1) W2^T + b2)
 * with W [E,N,K]. act takes fc3 too, as act(fc1) * fc3, or as swiglu of both:
 *   gelu by tanh, as ONNX Runtime has it here
 *   swiglu(g, l) = g' sigmoid(alpha g') (l' + beta), g' = min(g, limit), l' = clamp(l, +-limit)
 * Products are the chains of the contract, in fp32 throughout; experts are added in order of
 * their router values. Source: ONNX Runtime contrib operators. */
#ifndef GQAC_OPS_MOE_H
#define GQAC_OPS_MOE_H

#include "ops/shared.h"

/* The weights of one projection: floats, or codes of `bits` bits with scales. */
typedef struct moe_matrix {
    const gqac_tensor *weight, *bias, *scale, *zero; /* weight NULL: no such projection */
    int64_t n, k, blocks;                            /* blocks of a row that have a scale each */
    int64_t block;                                   /* block_size; 0: one scale for each row */
    int bits;                                        /* 0: floats */
} moe_matrix;

typedef struct moe {
    const gqac_tensor *x, *router, *mix; /* mix: weights of the sum; NULL: from the router values */
    moe_matrix fc[3];
} moe;

/* k, activation_type, normalize_routing_weights, use_sparse_mixer, activation_alpha and _beta,
 * swiglu_limit, swiglu_fusion: rows of the attribute table, for both ops. */
#define MOE_ATTRS                                                                                  \
    {.name = "k", .kind = IR_ATTR_INT, .fallback = {.set = true, .i = 1}, .doc = "experts a row"}, \
        {.name = "activation_type",                                                                \
         .kind = IR_ATTR_STRING,                                                                   \
         .fallback = {.set = true, .s = "relu"},                                                   \
         .doc = "relu, gelu, silu, swiglu or identity"},                                           \
        {.name = "normalize_routing_weights",                                                      \
         .kind = IR_ATTR_INT,                                                                      \
         .fallback = {.set = true},                                                                \
         .doc = "1: the weights of the chosen experts sum to 1"},                                  \
        {.name = "use_sparse_mixer",                                                               \
         .kind = IR_ATTR_INT,                                                                      \
         .fallback = {.set = true},                                                                \
         .doc = "only 0"},                                                                         \
        {.name = "activation_alpha",                                                               \
         .kind = IR_ATTR_FLOAT,                                                                    \
         .fallback = {.set = true, .f = 1},                                                        \
         .doc = "of swiglu"},                                                                      \
        {.name = "activation_beta",                                                                \
         .kind = IR_ATTR_FLOAT,                                                                    \
         .fallback = {.set = true},                                                                \
         .doc = "of swiglu"},                                                                      \
        {.name = "swiglu_limit", .kind = IR_ATTR_FLOAT, .doc = "of swiglu; absent: none"}, {       \
        .name = "swiglu_fusion", .kind = IR_ATTR_INT, .fallback = {.set = true},                   \
        .doc = "g and l of swiglu: 0 fc1 and fc3, 1 interleaved in fc1, 2 halves of fc1"           \
    }

gqac_status moe_verify(const ir_node *node, gqac_diag *diag);
gqac_status moe_infer(ir_node *node, gqac_diag *diag);
/* Inputs 0 and 1, the rows and their router values. */
gqac_status moe_read_rows(op_call *call, moe *m);
/* A projection [E,N,K] whose weight, scale, bias and zero points are those inputs (-1: none). */
gqac_status moe_read_matrix(op_call *call, const moe *m, const int inputs[4], int bits,
                            int64_t block, moe_matrix *out);
gqac_status moe_run(op_call *call, const moe *m);

#endif
