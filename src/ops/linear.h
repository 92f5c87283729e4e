/* What the ops `linear` and `linear_bf16` share. ops/panels.h describes their weights. */
#ifndef GQAC_OPS_LINEAR_H
#define GQAC_OPS_LINEAR_H

#include "ops/panels.h"
#include "ops/shared.h"

/* Operands x, weight, bias and attributes n, k. */
enum { LINEAR_X, LINEAR_W, LINEAR_BIAS };
extern const ir_attr_spec linear_attrs[];
/* Checks n and k, and that the weight is a constant that is packed for these, in pairs or not. */
gqac_status linear_verify(const ir_node *node, bool pairs, gqac_diag *diag);
/* y [..,n] of `dtype` from x [..,k], whose shape and bias are checked. */
gqac_status linear_infer(ir_node *node, gqac_dtype dtype, gqac_diag *diag);

#endif
