/* Elementwise ops: span kernels over broadcast tensors, and families of ops made from these. */
#ifndef GQAC_OPS_ELEMENTWISE_H
#define GQAC_OPS_ELEMENTWISE_H

#include "ops/shared.h"

enum { OP_SPAN = 256 }; /* maximum number of elements in a call of a span kernel */

/* ---- map: span kernels over broadcast tensors ---------------------------- */

/* The form in which a span kernel reads an operand. */
typedef enum op_carrier {
    OP_AS_RAW,  /* as stored, width bytes each (not i4, u4) */
    OP_AS_F32,  /* float: f32, f16 and bf16 widened, rounded once on store */
    OP_AS_F64,  /* double: f64 */
    OP_AS_I64,  /* int64_t: integers and bool; u64 with the same bits; wraps on store */
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

/* A function for each carrier; NULL: its element types are not supported. */
typedef struct op_unary {
    void (*f32)(float *y, const float *x, size_t n, const void *arg);
    void (*f64)(double *y, const double *x, size_t n, const void *arg);
    void (*i64)(int64_t *y, const int64_t *x, size_t n, const void *arg);
    unsigned not_for; /* further types that are not supported (OP_UNSIGNED) */
    const ir_dim *(*dim)(ir_dims *dims, const ir_dim *x); /* on symbolic elements; may be NULL */
} op_unary;
gqac_status op_unary_infer(ir_node *node, const op_unary *kernel, gqac_diag *diag);
/* The kernel's `arg` points to the node's attributes, all floats, in the order of their table. */
gqac_status op_unary_eval(op_call *call, const op_unary *kernel);
gqac_status op_unary_eval_with(op_call *call, const op_unary *kernel, const void *arg);

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
    /* The result if it can be proven, 1 or 0; else -1. */
    int (*dim)(ir_dims *dims, const ir_dim *a, const ir_dim *b);
} op_compare;
gqac_status op_compare_infer(ir_node *node, const op_compare *kernel, gqac_diag *diag);
gqac_status op_compare_eval(op_call *call, const op_compare *kernel);
/* a < b, and a >= b: 1, 0, or -1 when not known. */
int op_dim_less(ir_dims *dims, const ir_dim *a, const ir_dim *b);
int op_dim_not_less(ir_dims *dims, const ir_dim *a, const ir_dim *b);

/* Tests of floats: the result is bool. */
gqac_status op_test_infer(ir_node *node, gqac_diag *diag);
gqac_status op_test_eval(op_call *call, op_span *f32, op_span *f64, const void *arg);

/* ---- rows ---------------------------------------------------------------- */

/* Define infer and eval of a row from the fields of an op_unary, as in OP_UNARY(.f32 = f32); of an
 * op_binary, for two inputs or for any number; or of an op_compare. */
#define OP_UNARY(...)   OP_FAMILY(op_unary, unary, __VA_ARGS__)
#define OP_BINARY(...)  OP_FAMILY(op_binary, binary, __VA_ARGS__)
#define OP_FOLD(...)    OP_FAMILY(op_binary, fold, __VA_ARGS__)
#define OP_COMPARE(...) OP_FAMILY(op_compare, compare, __VA_ARGS__)

/* Rows of y = f(x) and c = f(a, b), from the fields in which their schemas differ. */
#define OP_UNARY_ROW(...)  OP_ELEMENTWISE_ROW("x", "y", __VA_ARGS__)
#define OP_BINARY_ROW(...) OP_ELEMENTWISE_ROW("a b", "c", __VA_ARGS__)
#define OP_ELEMENTWISE_ROW(from, to, ...)                                                          \
    {                                                                                              \
        .schema = {.inputs = from, .outputs = to, .rows = IR_ROWS_LOCAL, __VA_ARGS__},             \
        .infer = infer, .eval = eval                                                               \
    }

/* Span kernels of an expression of x, or of a and b. NOLINTBEGIN(*-macro-parentheses): types */
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
/* NOLINTEND(*-macro-parentheses). The span kernels f32, f64, i64 and u64 of a comparison. */
#define OP_COMPARISON(op)                                                                          \
    OP_SPAN2(f32, uint8_t, float, a op b)                                                          \
    OP_SPAN2(f64, uint8_t, double, a op b)                                                         \
    OP_SPAN2(i64, uint8_t, int64_t, a op b)                                                        \
    OP_SPAN2(u64, uint8_t, int64_t, (uint64_t)a op(uint64_t) b)
/* OP_SPAN1 for formulas with fma, compiled twice by ops/kernel.h, which the file includes. */
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

#endif
