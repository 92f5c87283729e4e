/* Shared by the ops of normalisation. */
#ifndef GQAC_OPS_NORM_H
#define GQAC_OPS_NORM_H

#include "ops/norm_rows.h"
#include "ops/shared.h"

/* Rows of x [.., n] over the axes from `axis` on, in fp32:
 *   mean_square = lane_sum(x^2) / n, y = x * (1 / sqrt(mean_square + epsilon)) * weight
 * and for centred norms with d = x - lane_sum(x) / n in place of x, + beta. */
gqac_status norm_infer(ir_node *node, const norm *kind, gqac_diag *diag);
gqac_status norm_verify(const ir_node *node, gqac_diag *diag);
gqac_status norm_eval(op_call *call, const norm *kind);

/* The attributes of a node of that kind. */
norm_form norm_form_of(const ir_node *node, const norm *kind);
/* `mixes`: true if the op normalises over an axis of tokens. */
bool norm_mixes(const ir_node *node);
extern const ir_attr_spec norm_attrs[];      /* axis, epsilon 1e-5, stash_type */
extern const ir_attr_spec norm_skip_attrs[]; /* epsilon 1e-12 */

#endif
