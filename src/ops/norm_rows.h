/* The operands of a norm and their checks, for the evals of ops and for kernels of targets. */
#ifndef GQAC_OPS_NORM_ROWS_H
#define GQAC_OPS_NORM_ROWS_H

#include "ops/work.h"

typedef struct norm {
    bool centred;      /* subtract the mean (LayerNormalization) */
    bool round_before; /* the normalised value is rounded to x's type before the weight */
    bool skip;         /* x = input 0 + input 1 (+ bias); weights one input later */
    bool bias;         /* has an input beta after the weight (centred norms) */
    int sum_output;    /* of skip norms: output that receives x; else -1 */
    int mean_output;   /* -1: none */
    int inv_output;    /* 1 / sqrt(variance + epsilon); -1: none */
} norm;

/* The attributes of a node. */
typedef struct norm_form {
    const norm *kind;
    int64_t axis; /* first axis that is normalised over; negative: from the end */
    float epsilon;
} norm_form;

/* Row r of x has row (r / repeat) % count of the weights; count 0 or 1: they have one row. */
typedef struct norm_period {
    int64_t repeat, count;
} norm_period;

static inline int64_t norm_weights_of(norm_period period, int64_t row) {
    return period.count > 1 ? row / period.repeat % period.count : 0;
}

typedef struct norm_run {
    const norm *kind;
    float epsilon;
    /* Operands and results; NULL: absent. */
    const gqac_tensor *x, *skip, *bias, *weight, *beta;
    gqac_tensor *y, *sum, *mean, *inv;
    int64_t rows, n, skip_rows; /* row r of skip is r modulo skip_rows */
    norm_period weight_period, beta_period;
    int axis;
    op_scratch scratch;
} norm_run;

/* Checks the operands, which the caller has set, and sets rows, n, skip_rows, axis and periods. */
gqac_status norm_fit(const op_work *work, const norm_form *form, norm_run *r);
/* Types and shapes of the results: y and sum are like x (but y has the type of the weight if values
 * are rounded before it is applied); mean and inv are f32 [.., 1, ..]. */
gqac_tensor norm_y(const norm_run *r);
gqac_tensor norm_sum(const norm_run *r);
gqac_tensor norm_moment(const norm_run *r);

/* The kinds of norms, by op. */
extern const norm norm_rms_onnx, norm_rms, norm_skip_rms, norm_layer, norm_skip_layer;

#endif
