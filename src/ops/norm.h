/* What the normalisations share. */
#ifndef GQAC_OPS_NORM_H
#define GQAC_OPS_NORM_H

#include "ops/shared.h"

typedef struct norm {
    bool centred;      /* LayerNormalization: about the mean; else by the root mean square */
    bool round_before; /* the normalised value is rounded to x's type before the weight */
    bool skip;         /* x = input 0 + input 1 (+ bias); weights one input later */
    bool bias;         /* has an input beta behind the weight (centred norms) */
    int sum_output;    /* of skip norms: output that receives x; else -1 */
    int mean_output;   /* -1: none */
    int inv_output;    /* 1 / sqrt(variance + epsilon); -1: none */
} norm;

/* Rows of x [.., n] over the axes from `axis` on, in fp32:
 *   mean_square = lane_sum(x^2) / n, y = x * (1 / sqrt(mean_square + epsilon)) * weight
 * and for centred norms with d = x - lane_sum(x) / n in place of x, + beta. */
gqac_status norm_infer(ir_node *node, const norm *kind, gqac_diag *diag);
gqac_status norm_verify(const ir_node *node, gqac_diag *diag);
gqac_status norm_eval(op_call *call, const norm *kind);

/* One evaluation: checked operands and outputs, for kernels of targets. */
typedef struct norm_run {
    const norm *kind;
    const gqac_tensor *x, *skip, *bias, *weight, *beta; /* NULL: absent */
    gqac_tensor *y, *sum, *mean, *inv;
    int64_t rows, n, skip_rows; /* row r of skip is r modulo skip_rows */
    int axis;
    float epsilon;
    op_scratch scratch;
} norm_run;
gqac_status norm_open(op_call *call, const norm *kind, norm_run *r);

/* The ops of that name. */
extern const norm norm_rms_onnx, norm_rms, norm_skip_rms, norm_layer, norm_skip_layer;
/* Is one of the axes it runs over one that holds tokens? */
bool norm_mixes(const ir_node *node);
extern const ir_attr_spec norm_attrs[];      /* axis, epsilon 1e-5, stash_type */
extern const ir_attr_spec norm_skip_attrs[]; /* epsilon 1e-12 */

#endif
