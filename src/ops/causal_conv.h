/* CausalConvWithState of both domains: x [B,C,S], weight [C,1,k], bias [C]?, past [B,C,L]? with
 * L = (k - 1) * dilation -> y [B,C,S], present [B,C,L].
 *   y[t] = activation(bias + sum over j of weight[j] * (past, x)[t + j * dilation])
 * one chain over j from zero, then the bias. An absent past is all zeros. The state holds elements
 * of x unchanged, so results do not depend on where calls end. */
#ifndef GQAC_OPS_CAUSAL_CONV_H
#define GQAC_OPS_CAUSAL_CONV_H

#include "ops/shared.h"

#define CAUSAL_CONV_ACTIVATION OP_ATTR_STRING("activation", "none", "none, silu or swish")

gqac_status causal_conv_verify(const ir_node *node, gqac_diag *diag);
gqac_status causal_conv_infer(ir_node *node, int64_t dilation, gqac_diag *diag);
gqac_status causal_conv_eval(op_call *call, int64_t dilation);
/* The same for packed rows: x [1,C,N] of n sequences with new_len [n] new tokens each, and past
 * [n,C,L]. new_len NULL: x [B,C,S] and past [B,C,L]. */
gqac_status causal_conv_run(op_call *call, int64_t dilation, const gqac_tensor *new_len);
bool causal_conv_mixes(const ir_node *node); /* without a state a chunk cannot continue another */

#endif
