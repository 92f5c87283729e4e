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

/* The weights of one projection: floats, or codes of `bits` bits with scales. Packed: floats as
 * ops/linear.h has them, codes as ops/nbits.h, the panels of one expert behind those of another. */
typedef struct moe_matrix {
    bool packed;
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
/* Inputs of MoE; of QMoE and of our moe: weight, scale, bias and zero points of each projection. */
extern const int moe_float_inputs[3][4], moe_code_inputs[3][4];
enum { MOE_ROUTER_WEIGHTS = 14 };
/* Bits of a code of a projection of QMoE. */
int64_t moe_bits(const ir_node *node, int fc);
/* Code `index` of a row of codes, low bits first. */
int moe_code_at(const uint8_t *bytes, int64_t index, int bits);
/* Input MOE_ROUTER_WEIGHTS, if it is there. */
gqac_status moe_read_mix(op_call *call, moe *m);
/* The same of weights [N,K] that are packed. */
gqac_status moe_read_packed(op_call *call, const moe *m, const int inputs[4], int bits,
                            int64_t block, int64_t n, int64_t k, moe_matrix *out);
gqac_status moe_run(op_call *call, const moe *m);
/* All operands of our moe (moe_packed.c). */
gqac_status moe_read_ours(op_call *call, moe *m);
/* Does fc1 give both operands of swiglu? */
bool moe_is_fused(const ir_node *node);

/* ---- the parts of moe_run, for kernels ---- */

/* Operands that fit each other. */
typedef struct moe_mixture {
    const moe *m;
    gqac_tensor *y;
    int64_t rows, experts, chosen, hidden, inner; /* inner: elements between the projections */
    int activation;
    int64_t fusion;
    bool normalize;
    float alpha, beta, limit;
} moe_mixture;

/* Checks sizes and makes the output. */
gqac_status moe_open(op_call *call, const moe *m, moe_mixture *s);
/* The experts of a row and their weights, `chosen` of each, in the order in which they are added.
 * room: floats, and taken one entry, for each expert. */
void moe_choose(const moe_mixture *s, int64_t row, int64_t *order, float *p, float *room,
                bool *taken);
/* h [inner] of what fc1 and fc3 (or NULL) gave for a row; h may be fc1. */
void moe_activate(const moe_mixture *s, const float *fc1, const float *fc3, float *h);
/* sum [hidden] = the sum of p * y for `chosen` rows y, one behind another every `step` floats. */
void moe_add(const moe_mixture *s, const float *p, const float *const *y, float *sum);

#endif
