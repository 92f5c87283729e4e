/* What op files share: typing helpers for infer, shape helpers for eval, families of kernels in
 * <family>_shared.c. */
#ifndef GQAC_OPS_SHARED_H
#define GQAC_OPS_SHARED_H

#include "ops/op.h"
#include "ops/work.h"

enum {
    OP_MAX_ELEMENTS = 32, /* symbolic elements kept of an integer tensor */
    OP_SPAN = 256,        /* elements a span kernel is given at once, at most */
};

/* ---- infer --------------------------------------------------------------- */

/* Types of input/output i. Absent inputs have an unknown type. */
ir_type op_in_type(const ir_node *node, int index);
bool op_in_known(const ir_node *node, int index); /* dtype and rank are known */
/* NULL when not known; a negative axis counts from the end. */
const ir_dim *op_in_dim(const ir_node *node, int index, int axis);
ir_dims *op_dims(const ir_node *node);
/* The shape of an input all of whose dims are constant, as a tensor without data; else false. */
bool op_in_shape(const ir_node *node, int index, gqac_tensor *shape);
/* Sets the type of an output that is wanted; dims are copied. NO_MEMORY when memory is short.
 * What is not known (dtype NONE, rank -1, a dim NULL) keeps what the output knew before; a dim that
 * nothing is known of becomes a symbol of its own. dims NULL: none is known. */
gqac_status op_set_type(ir_node *node, int index, gqac_dtype dtype, int rank,
                        const ir_dim *const *dims, gqac_diag *diag);
gqac_status op_set_type_like(ir_node *node, int index, ir_type type, gqac_diag *diag);
/* Passed over when n > OP_MAX_ELEMENTS. */
gqac_status op_set_elements(ir_node *node, int index, int64_t n, const ir_dim *const *elements,
                            gqac_diag *diag);
/* Symbolic integer elements of a value: its `elements`, or those of a small constant. Returns the
 * count, -1 when not known; entries may be NULL. At most max. Bools are 0 and 1. */
int64_t op_elements(const ir_node *node, int input, int64_t max, const ir_dim **out);
/* Those of input `input` become those of output `output`, when the output has rank 0 or 1. */
gqac_status op_pass_elements(ir_node *node, int input, int output, gqac_diag *diag);
/* NumPy broadcasting of two types' shapes, symbolic (unknown against known > 1 gives the known).
 * Both ranks must be known. */
gqac_status op_broadcast_types(ir_node *node, const ir_type *a, const ir_type *b, int *rank,
                               const ir_dim **dims, gqac_diag *diag);
/* One dim of it; NULL when it cannot be told. *bad when the two cannot be broadcast. */
const ir_dim *op_broadcast_dim(const ir_dim *a, const ir_dim *b, bool *bad);
/* Axis in [-rank, rank) to [0, rank); INVALID_MODEL otherwise. */
gqac_status op_axis(const ir_node *node, int64_t axis, int rank, int *out, gqac_diag *diag);
/* An axis whose length is not constant holds tokens or batch rows. A negative axis counts from the
 * end; true when the rank is not known. */
bool op_axis_is_row(const ir_value *value, int axis);
bool op_any_row(const ir_value *value);
/* `mixes` of an op that moves rows along its attribute axis of input 0: a place among the rows of
 * one call is another row in another split. */
bool op_axis_mixes(const ir_node *node);
bool op_dim_nonneg(ir_dims *dims, const ir_dim *dim);   /* provably >= 0 */
bool op_dim_negative(ir_dims *dims, const ir_dim *dim); /* provably < 0 */
const ir_dim *op_dim_min(ir_dims *dims, const ir_dim *a, const ir_dim *b);
/* UNSUPPORTED when an input's dtype is known and not in the set. */
gqac_status op_check_dtype(const ir_node *node, int input, unsigned set, gqac_diag *diag);
/* INVALID_MODEL when two inputs' dtypes are known and differ. */
gqac_status op_check_same(const ir_node *node, int a, int b, gqac_diag *diag);
/* Fails with "node 'x' (Op)" as the place. */
#define OP_FAIL(node, diag, status, ...)                                                           \
    return op_fail((node), (diag), (status), __VA_ARGS__), (status)
gqac_status op_fail(const ir_node *node, gqac_diag *diag, gqac_status status, const char *fmt, ...)
    GQAC_PRINTF(4, 5);
void op_place(const ir_node *node, gqac_diag *diag); /* adds that place */

/* ---- upgrade ------------------------------------------------------------- */

/* Makes `value` input `index` of a node that may have fewer. The builder's status on failure. */
gqac_status op_put_input(ir_builder *b, ir_node *node, int index, ir_value *value);
/* An INTS attribute of the file becomes a 1-D i64 input; nothing when there is none. */
gqac_status op_ints_to_input(ir_builder *b, ir_node *node, const op_raw_attrs *raw,
                             const char *name, int index);

/* ---- eval ---------------------------------------------------------------- */

/* op_work_broadcast, for an eval. */
gqac_status op_broadcast(op_call *call, const gqac_tensor *a, const gqac_tensor *b, int *rank,
                         int64_t *dims);
/* An i32 or i64 tensor of at most max elements as int64. */
gqac_status op_ints(op_call *call, int input, int64_t max, int64_t *out, int64_t *count);
/* A single integer or bool (any rank). */
gqac_status op_int(op_call *call, int input, int64_t *out);
/* Checks the presence and dtype of an input of eval; INVALID_INPUT. GQAC_NONE: any dtype. */
gqac_status op_want(op_call *call, int input, gqac_dtype dtype);
gqac_status op_want_set(op_call *call, int input, unsigned set);
/* out[index] gets that dtype and the shape of a tensor. */
gqac_status op_output_like(op_call *call, int index, gqac_dtype dtype, const gqac_tensor *shape);
/* The node, for messages of code that sees none. */
op_origin op_origin_of(const ir_node *node);
/* Work in out[index], and scratch for it: as in ops/work.h. */
static inline op_work op_work_of(const op_call *call) {
    return (op_work){
        .pool = call->pool, .diag = call->diag, .host = call->host, .scratch = call->scratch};
}
void op_parallel(op_call *call, int64_t items, int64_t cost,
                 void (*run)(void *arg, size_t begin, size_t end, int worker), void *arg);
gqac_status op_scratch_open(op_call *call, size_t count, size_t size, op_scratch *scratch);
gqac_status op_scratch_open_one(op_call *call, size_t count, size_t size, op_scratch *scratch);

/* ---- map: span kernels over broadcast tensors ---------------------------- */

/* How a span kernel sees the elements of an operand. */
typedef enum op_carrier {
    OP_AS_RAW,  /* as stored, width bytes each (not i4, u4) */
    OP_AS_F32,  /* float: f32, f16 and bf16 widened, rounded once on store */
    OP_AS_F64,  /* double: f64 */
    OP_AS_I64,  /* int64_t: integers and bool; u64 by its bits; wraps on store */
    OP_AS_BOOL, /* uint8_t: bool, any non-zero is true */
} op_carrier;
op_carrier op_carrier_of(gqac_dtype dtype);

/* y[i] = f(x[0][i], x[1][i], ...) for i < n <= OP_SPAN. y may be x[k] when both are in place. */
typedef void op_span(void *y, const void *const *x, size_t n, const void *arg);

enum { OP_MAP_INPUTS = 3 };
typedef struct op_map {
    op_span *run;
    const void *arg;
    int n_in;
    const gqac_tensor *in[OP_MAP_INPUTS]; /* shapes broadcast to that of out */
    op_carrier in_as[OP_MAP_INPUTS];
    gqac_tensor *out; /* may be one of the inputs when shapes are equal */
    op_carrier out_as;
} op_map;
/* Runs a map over all of out, split over the pool by outputs. */
void op_map_run(op_call *call, const op_map *map);

/* ---- elementwise families ------------------------------------------------ */

/* A missing function means that the element types of that carrier are not taken. */
typedef struct op_unary {
    void (*f32)(float *y, const float *x, size_t n, const void *arg);
    void (*f64)(double *y, const double *x, size_t n, const void *arg);
    void (*i64)(int64_t *y, const int64_t *x, size_t n, const void *arg);
    unsigned not_for; /* further element types that are not taken (OP_UNSIGNED) */
    const ir_dim *(*dim)(ir_dims *dims, const ir_dim *x); /* on symbolic elements; may be NULL */
} op_unary;
gqac_status op_unary_infer(ir_node *node, const op_unary *kernel, gqac_diag *diag);
gqac_status op_unary_eval(op_call *call, const op_unary *kernel, const void *arg);

typedef struct op_binary {
    void (*f32)(float *y, const float *a, const float *b, size_t n);
    void (*f64)(double *y, const double *a, const double *b, size_t n);
    void (*i64)(int64_t *y, const int64_t *a, const int64_t *b, size_t n);
    void (*u64)(int64_t *y, const int64_t *a, const int64_t *b, size_t n); /* NULL: as i64 */
    bool divides; /* an integer zero in b is an error */
    const ir_dim *(*dim)(ir_dims *dims, const ir_dim *a, const ir_dim *b);
} op_binary;
/* Output 0 has the broadcast shape of inputs 0 and 1. */
gqac_status op_pair_infer(ir_node *node, gqac_dtype dtype, gqac_diag *diag);
gqac_status op_binary_infer(ir_node *node, const op_binary *kernel, gqac_diag *diag);
gqac_status op_binary_eval(op_call *call, const op_binary *kernel);
/* Any number of inputs, from the left (Min, Max). */
gqac_status op_fold_infer(ir_node *node, const op_binary *kernel, gqac_diag *diag);
gqac_status op_fold_eval(op_call *call, const op_binary *kernel);

/* Comparisons and logic: the result is bool. */
typedef struct op_compare {
    void (*f32)(uint8_t *y, const float *a, const float *b, size_t n);
    void (*f64)(uint8_t *y, const double *a, const double *b, size_t n);
    void (*i64)(uint8_t *y, const int64_t *a, const int64_t *b, size_t n);
    void (*u64)(uint8_t *y, const int64_t *a, const int64_t *b, size_t n); /* NULL: as i64 */
    void (*logic)(uint8_t *y, const uint8_t *a, const uint8_t *b, size_t n);
    /* What is provable: 1, 0, or -1 when it cannot be told. */
    int (*dim)(ir_dims *dims, const ir_dim *a, const ir_dim *b);
} op_compare;
gqac_status op_compare_infer(ir_node *node, const op_compare *kernel, gqac_diag *diag);
gqac_status op_compare_eval(op_call *call, const op_compare *kernel);
int op_dim_less(ir_dims *dims, const ir_dim *a, const ir_dim *b); /* a < b: 1, 0, -1 not known */

/* Span kernels from an expression of x, or of a and b. */
#define OP_SPAN1(fn, type, expr)                                                                   \
    static void fn(type *y_, const type *x_, size_t n_, const void *arg_) {                        \
        (void)arg_;                                                                                \
        for (size_t i_ = 0; i_ < n_; i_++) {                                                       \
            type x = x_[i_];                                                                       \
            y_[i_] = (expr);                                                                       \
        }                                                                                          \
    }
#define OP_SPAN2(fn, out, type, expr)                                                              \
    static void fn(out *y_, const type *a_, const type *b_, size_t n_) {                           \
        for (size_t i_ = 0; i_ < n_; i_++) {                                                       \
            type a = a_[i_], b = b_[i_];                                                           \
            y_[i_] = (out)(expr);                                                                  \
        }                                                                                          \
    }
/* The same for formulas with fma, in both forms of ops/kernel.h (to be included). */
#define OP_SPAN1_FMA(fn, expr)                                                                     \
    OP_BODY void fn##_body(float *restrict y_, const float *restrict x_, size_t n_,                \
                           const void *arg_) {                                                     \
        size_t i_ = 0;                                                                             \
        (void)arg_;                                                                                \
        for (; i_ + GQAC_LANES <= n_; i_ += GQAC_LANES)                                            \
            for (size_t l_ = 0; l_ < GQAC_LANES; l_++) {                                           \
                float x = x_[i_ + l_];                                                             \
                y_[i_ + l_] = (expr);                                                              \
            }                                                                                      \
        for (; i_ < n_; i_++) {                                                                    \
            float x = x_[i_];                                                                      \
            y_[i_] = (expr);                                                                       \
        }                                                                                          \
    }                                                                                              \
    OP_KERNEL(fn, (float *y_, const float *x_, size_t n_, const void *arg_), (y_, x_, n_, arg_))
/* Two's complement without undefined behaviour. */
static inline int64_t op_wrap_add(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
static inline int64_t op_wrap_sub(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a - (uint64_t)b);
}
static inline int64_t op_wrap_mul(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

/* ---- cast ---------------------------------------------------------------- */

/* out[0] = input 0 as another type; cast_shared.c says how. */
gqac_status op_cast(op_call *call, gqac_dtype to);
gqac_status op_cast_infer(ir_node *node, gqac_dtype to, gqac_diag *diag);

/* ---- copy: moving elements of any type ----------------------------------- */

/* Copies a box of elements: out[first_out + sum i_k*stride_out[k]] = in[first_in + ...] for all
 * i_k < dims[k]. Strides count elements and may be 0 (in) or negative. The box must lie inside. */
enum { OP_BOX_RANK = 2 * GQAC_MAX_RANK };
typedef struct op_box {
    int rank;
    int64_t dims[OP_BOX_RANK];
    const gqac_tensor *in;
    gqac_tensor *out;
    int64_t first_in, first_out;
    int64_t stride_in[OP_BOX_RANK], stride_out[OP_BOX_RANK];
} op_box;
void op_box_copy(op_call *call, const op_box *box);
/* op_output for outputs written by op_box_copy or op_put_i64 (i4 and u4 start as zeros). */
gqac_status op_copy_output(op_call *call, int index, gqac_dtype dtype, int rank,
                           const int64_t *dims);
/* out[0] = input 0 with another shape of as many elements. */
gqac_status op_copy_as(op_call *call, int rank, const int64_t *dims);

/* ---- axes and reductions ------------------------------------------------- */

/* The integers of an input as a bit set of distinct axes; *given false when the input is absent.
 * infer: *known false when they cannot be told yet. */
gqac_status op_axes_infer(const ir_node *node, int input, int rank, unsigned *set, bool *given,
                          bool *known, gqac_diag *diag);
gqac_status op_axes_eval(op_call *call, int input, int rank, unsigned *set, bool *given);

/* A reduction sees one row at a time, gathered into a buffer. */
typedef struct op_reduce {
    float (*f32)(const float *row, int64_t n);
    double (*f64)(const double *row, int64_t n);
    int64_t (*i64)(const int64_t *row, int64_t n);
    int64_t (*u64)(const int64_t *row, int64_t n); /* NULL: as i64 */
    bool bools;                                    /* bool is taken too, through i64 */
    bool nonempty;                                 /* an empty row has no value: INVALID_INPUT */
    bool composite; /* a single element does not stand for itself (its square does) */
    const ir_dim *(*dim)(ir_dims *dims, const ir_dim *a, const ir_dim *b); /* folds elements */
} op_reduce;
gqac_status op_reduce_infer(ir_node *node, const op_reduce *kernel, gqac_diag *diag);
gqac_status op_reduce_eval(op_call *call, const op_reduce *kernel);
/* The greatest or the least of a row, the first of equals; NaN wins, the last of them. */
float op_extreme_f32(const float *row, int64_t n, bool least);
double op_lane_sum_f64(const double *row, int64_t n); /* the order of gqn_lane_sum */
bool op_reduce_mixes(const ir_node *node);
/* Axes were an attribute once; takes it when it is there. */
gqac_status op_reduce_upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw);
extern const ir_attr_spec op_reduce_attrs[]; /* keepdims, noop_with_empty_axes */
/* Elements [first, first + n * stride) as keys, n <= OP_SPAN: what comes first has the greatest. */
typedef struct op_order {
    bool least;     /* the least comes first */
    bool nan_first; /* NaN comes before all others, else behind them */
} op_order;
void op_order_keys(const gqac_tensor *x, int64_t first, int64_t n, int64_t stride,
                   const op_order *order, int64_t *keys);
int64_t op_order_greatest(const int64_t *keys, int64_t n); /* n >= 1 */
/* ArgMax and ArgMin (least). */
gqac_status op_arg_infer(ir_node *node, gqac_diag *diag);
gqac_status op_arg_eval(op_call *call, bool least);
bool op_arg_mixes(const ir_node *node);
extern const ir_attr_spec op_arg_attrs[]; /* axis, keepdims, select_last_index */
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
/* The axis split the tensor into a matrix once: for others than the last, Flatten and Reshape. */
gqac_status op_softmax_upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw);

/* ---- building ------------------------------------------------------------- */

/* x as type `to`. */
ir_value *op_build_cast(ir_builder *b, ir_value *x, gqac_dtype to);
/* x rounded to bf16, in f32: a factor of --math bf16 for targets without a kernel. */
ir_value *op_build_rounded(ir_builder *b, ir_value *x);
/* The lengths of n axes of x from the first one on: i64 [n]. */
ir_value *op_build_lengths(ir_builder *b, ir_value *x, int first, int n);

/* ---- scatter: data, indices, updates, and an attribute `reduction` --------- */

gqac_status op_scatter_verify(const ir_node *node, gqac_diag *diag);
unsigned op_scatter_types(const ir_node *node); /* of data, for that reduction */
/* Checks dtypes; out[0] becomes a copy of data. */
gqac_status op_scatter_start(op_call *call);
/* Element `at` of indices as a place on an axis. */
gqac_status op_scatter_index(op_call *call, int64_t at, int64_t length, int64_t *index);
/* Elements [to, to + n) of out[0] become, or are combined with, [from, from + n) of updates. */
void op_scatter_put(const op_call *call, int64_t to, const gqac_tensor *updates, int64_t from,
                    int64_t n);
/* `mixes` of ScatterElements and GatherElements. */
bool op_elements_mixes(const ir_node *node);

#endif
