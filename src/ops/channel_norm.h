/* Shared by the ops that normalise over positions: GroupNormalization, InstanceNormalization. */
#ifndef GQAC_OPS_CHANNEL_NORM_H
#define GQAC_OPS_CHANNEL_NORM_H

#include "ops/build.h"

gqac_status channel_norm_infer(ir_node *node, int least_rank, gqac_diag *diag);
bool channel_norm_mixes(const ir_node *node);
/* (x - mean) / sqrt(var + epsilon) over the last axis of x [N,G,L], in f32, with population
 * variance and the node's epsilon. */
ir_value *channel_norm_rows(ir_builder *b, const ir_node *node, ir_value *x);
/* An input of the node, scale or bias, as [C,1] in f32. Where the model leaves a length open, one
 * that does not fit fails at run time. */
ir_value *channel_norm_column(ir_builder *b, const ir_node *node, int input);

#endif
