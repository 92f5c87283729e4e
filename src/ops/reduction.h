/* Ops along axes: reductions, ArgMax, CumSum, Softmax and related ops. */
#ifndef GQAC_OPS_REDUCTION_H
#define GQAC_OPS_REDUCTION_H

#include "ops/shared.h"

/* ---- axes and reductions ------------------------------------------------- */

/* Read the integers of an input as a bit set of distinct axes; *given is false if the input is
 * absent. In infer, *known is false while the integers are not known. */
gqac_status op_axes_infer(const ir_node *node, int input, int rank, unsigned *set, bool *given,
                          bool *known, gqac_diag *diag);
gqac_status op_axes_eval(op_call *call, int input, int rank, unsigned *set, bool *given);
/* `upgrade` of Squeeze and Unsqueeze: the attribute axes becomes input 1. */
gqac_status op_axes_upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw);

/* A reduction of one row, which was gathered into a buffer. */
typedef struct op_reduce {
    float (*f32)(const float *row, int64_t n);
    double (*f64)(const double *row, int64_t n);
    int64_t (*i64)(const int64_t *row, int64_t n);
    int64_t (*u64)(const int64_t *row, int64_t n); /* NULL: as i64 */
    bool bools;                                    /* bool is supported too, as i64 */
    bool nonempty;                                 /* an empty row has no value: INVALID_INPUT */
    bool composite; /* the result of a single element is not that element (but its square, say) */
    const ir_dim *(*dim)(ir_dims *dims, const ir_dim *a, const ir_dim *b); /* folds elements */
} op_reduce;
gqac_status op_reduce_infer(ir_node *node, const op_reduce *kernel, gqac_diag *diag);
gqac_status op_reduce_eval(op_call *call, const op_reduce *kernel);
/* Defines infer and eval of an op row from the fields of its op_reduce. */
#define OP_REDUCE(...) OP_FAMILY(op_reduce, reduce, __VA_ARGS__)
/* f64, i64 and u64 of ReduceMax (>, -INFINITY) and ReduceMin (<, INFINITY). */
#define OP_EXTREME(fn, type, as, start, op, wins)                                                  \
    static type fn(const type *row, int64_t n) {                                                   \
        type best = start;                                                                         \
        for (int64_t i = 0; i < n; i++)                                                            \
            best = (as)row[i] op(as) best || (wins) ? row[i] : best;                               \
        return best;                                                                               \
    }
#define OP_EXTREMES(op, from)                                                                      \
    OP_EXTREME(f64, double, double, (double)(from), op, row[i] != row[i])                          \
    OP_EXTREME(i64, int64_t, int64_t, row[0], op, false)                                           \
    OP_EXTREME(u64, int64_t, uint64_t, row[0], op, false)
/* The greatest or the least element of a row, the first of equal ones; if there are NaN, the last
 * NaN. */
float op_extreme_f32(const float *row, int64_t n, bool least);
double op_lane_sum_f64(const double *row, int64_t n); /* the order of gqn_lane_sum */
bool op_reduce_mixes(const ir_node *node);
/* `upgrade`: before opset 18 axes were an attribute, which becomes an input. */
gqac_status op_reduce_upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw);
extern const ir_attr_spec op_reduce_attrs[]; /* keepdims, noop_with_empty_axes */
#define OP_REDUCE_ROW(...)                                                                         \
    {                                                                                              \
        .schema = {.inputs = "data axes?",                                                         \
                   .outputs = "reduced",                                                           \
                   .attrs = op_reduce_attrs,                                                       \
                   .rows = IR_ROWS_SHAPE,                                                          \
                   __VA_ARGS__},                                                                   \
        .infer = infer, .eval = eval, .upgrade = op_reduce_upgrade, .mixes = op_reduce_mixes       \
    }
/* Converts n <= OP_SPAN elements from `first` on, `stride` apart, to integer keys: the element that
 * comes first in the order has the greatest key. */
typedef struct op_order {
    bool least;     /* the least comes first */
    bool nan_first; /* NaN comes first, else last */
} op_order;
void op_order_keys(const gqac_tensor *x, int64_t first, int64_t n, int64_t stride,
                   const op_order *order, int64_t *keys);
int64_t op_order_greatest(const int64_t *keys, int64_t n); /* n >= 1 */
/* ArgMax and ArgMin (least). */
gqac_status op_arg_infer(ir_node *node, gqac_diag *diag);
gqac_status op_arg_eval(op_call *call, bool least);
bool op_arg_mixes(const ir_node *node);
extern const ir_attr_spec op_arg_attrs[]; /* axis, keepdims, select_last_index */
#define OP_ARG_ROW(...)                                                                            \
    {                                                                                              \
        .schema = {.inputs = "data",                                                               \
                   .outputs = "reduced",                                                           \
                   .attrs = op_arg_attrs,                                                          \
                   .rows = IR_ROWS_SHAPE,                                                          \
                   __VA_ARGS__},                                                                   \
        .infer = op_arg_infer, .eval = eval, .mixes = op_arg_mixes                                 \
    }
/* CumSum and CumProd (product). */
gqac_status op_cum_infer(ir_node *node, gqac_diag *diag);
gqac_status op_cum_eval(op_call *call, bool product);
bool op_cum_mixes(const ir_node *node);
extern const ir_attr_spec op_cum_attrs[]; /* exclusive, reverse */

/* Softmax and LogSoftmax: a row x of n elements, and its result y, which is not x. */
typedef void op_softmax_row(float *y, const float *x, int64_t n);
float op_lane_max(const float *x, int64_t n);                 /* gqn_lane_max */
float op_lane_sum_exp(const float *x, int64_t n, float most); /* of exp(x - most), by lanes */
gqac_status op_softmax_infer(ir_node *node, gqac_diag *diag);
gqac_status op_softmax_eval(op_call *call, op_softmax_row *compute);
bool op_softmax_mixes(const ir_node *node);
extern const ir_attr_spec op_softmax_attrs[]; /* axis */
/* `upgrade`: before opset 13 the axis split the tensor into a matrix, so an axis other than the
 * last becomes Flatten and Reshape. */
gqac_status op_softmax_upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw);
/* Defines eval of an op row by its op_softmax_row. */
#define OP_SOFTMAX(compute)                                                                        \
    static gqac_status eval(op_call *call) {                                                       \
        return op_softmax_eval(call, compute);                                                     \
    }
#define OP_SOFTMAX_ROW(...)                                                                        \
    {                                                                                              \
        .schema = {.inputs = "input",                                                              \
                   .outputs = "output",                                                            \
                   .attrs = op_softmax_attrs,                                                      \
                   .rows = IR_ROWS_SHAPE,                                                          \
                   __VA_ARGS__},                                                                   \
        .infer = op_softmax_infer, .eval = eval, .upgrade = op_softmax_upgrade,                    \
        .mixes = op_softmax_mixes                                                                  \
    }

#endif
