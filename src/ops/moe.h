/* Mixture of experts, MoE and QMoE: each row of x [..,H] is computed by the k experts whose router
 * values [rows,E] are greatest (among equal values, that with the lower index):
 *   p = softmax of the router values over all experts, or over the chosen ones (normalize)
 *   y = sum over the chosen of p * (act(x W1^T + b1) W2^T + b2)
 * with W [E,N,K]. With fc3, act(fc1) is multiplied by fc3; swiglu takes both:
 *   gelu is its tanh approximation, as in ONNX Runtime
 *   swiglu(g, l) = g' sigmoid(alpha g') (l' + beta), g' = min(g, limit), l' = clamp(l, +-limit)
 * Products are the chains of the contract, in fp32 throughout; experts are added in order of
 * their router values. Source: ONNX Runtime contrib operators. */
#ifndef GQAC_OPS_MOE_H
#define GQAC_OPS_MOE_H

#include "ops/mixture.h"
#include "ops/shared.h"

/* k, activation_type, normalize_routing_weights, use_sparse_mixer, activation_alpha and _beta,
 * swiglu_limit, swiglu_fusion: entries of the attribute table of each op. */
#define MOE_ATTRS                                                                                  \
    OP_ATTR_INT("k", 1, "experts a row"),                                                          \
        OP_ATTR_STRING("activation_type", "relu", "relu, gelu, silu, swiglu or identity"),         \
        OP_ATTR_INT("normalize_routing_weights", 0,                                                \
                    "1: the weights of the chosen experts sum to 1"),                              \
        OP_ATTR_INT("use_sparse_mixer", 0, "only 0"),                                              \
        OP_ATTR_FLOAT("activation_alpha", 1, "of swiglu"),                                         \
        OP_ATTR_FLOAT("activation_beta", 0, "of swiglu"),                                          \
        {.name = "swiglu_limit", .kind = IR_ATTR_FLOAT, .doc = "of swiglu; absent: none"},         \
        OP_ATTR_INT("swiglu_fusion", 0,                                                            \
                    "g and l of swiglu: 0 fc1 and fc3, 1 interleaved in fc1, 2 halves of fc1")

gqac_status moe_verify(const ir_node *node, gqac_diag *diag);
/* infer of a row whose eval is moe_eval with `form` and `read`. */
gqac_status moe_infer(ir_node *node, const moe_form *form, moe_read *read, gqac_diag *diag);
/* Inputs weight, scale, bias and zero points of each projection: of MoE; of QMoE and our moe. */
extern const int moe_float_inputs[3][4], moe_code_inputs[3][4];
/* Bits of a code of a projection of QMoE. */
int64_t moe_bits(const ir_node *node, int fc);
/* Code `index` of a row of codes, low bits first. */
int moe_code_at(const uint8_t *bytes, int64_t index, int bits);
/* The attributes of MoE; QMoE and our moe add bits and blocks. */
moe_form moe_form_of(const ir_node *node);
moe_form moe_code_form(const ir_node *node);   /* of QMoE */
moe_form moe_packed_form(const ir_node *node); /* of our moe (moe_packed.c) */
/* Reads the operands and computes all rows. */
gqac_status moe_eval(op_call *call, const moe_form *form, moe_read *read);
/* True if fc1 computes both operands of swiglu. */
bool moe_is_fused(const ir_node *node);

#endif
