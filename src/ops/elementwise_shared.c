/* The elementwise families: typing, symbolic elements and evaluation of one-, two- and
 * many-operand ops and of comparisons, from the span kernels of their op files.
 *
 * f16 and bf16 are computed in fp32 and rounded once; integers wrap. */
#include "ops/copy.h"
#include "ops/elementwise.h"

#include <assert.h>

/* ---- typing -------------------------------------------------------------- */

static unsigned taken(bool f32, bool f64, bool i64, bool bools) {
    return (f32 ? OP_FLOATS : 0u) | (f64 ? OP_BIT(F64) : 0u) | (i64 ? OP_INTS : 0u) |
           (bools ? OP_BIT(BOOL) : 0u);
}

static unsigned unary_set(const op_unary *kernel) {
    return taken(kernel->f32, kernel->f64, kernel->i64, false) & ~kernel->not_for;
}

static unsigned binary_set(const op_binary *kernel) {
    return taken(kernel->f32, kernel->f64, kernel->i64, false);
}

static unsigned compare_set(const op_compare *kernel) {
    return taken(kernel->f32, kernel->f64, kernel->i64, kernel->logic);
}

enum { TESTED = OP_FLOATS | OP_BIT(F64) };

gqac_status op_unary_infer(ir_node *node, const op_unary *kernel, gqac_diag *diag) {
    const ir_dim *x[OP_MAX_ELEMENTS];
    GQAC_TRY(op_check_dtype(node, 0, unary_set(kernel), diag));
    GQAC_TRY(op_set_type_like(node, 0, op_in_type(node, 0), diag));
    int64_t n = kernel->dim ? op_elements(node, 0, OP_MAX_ELEMENTS, x) : -1;
    for (int64_t i = 0; i < n; i++)
        x[i] = kernel->dim(op_dims(node), x[i]);
    return n < 0 ? GQAC_OK : op_set_elements(node, 0, n, x, diag);
}

gqac_status op_test_infer(ir_node *node, gqac_diag *diag) {
    ir_type x = op_in_type(node, 0);
    GQAC_TRY(op_check_dtype(node, 0, TESTED, diag));
    return op_set_type(node, 0, GQAC_BOOL, x.rank, x.rank < 0 ? NULL : x.dims, diag);
}

gqac_status op_pair_infer(ir_node *node, gqac_dtype dtype, gqac_diag *diag) {
    ir_type a = op_in_type(node, 0), b = op_in_type(node, 1);
    const ir_dim *dims[GQAC_MAX_RANK];
    int rank = -1;
    if (a.rank >= 0 && b.rank >= 0)
        GQAC_TRY(op_broadcast_types(node, &a, &b, &rank, dims, diag));
    return op_set_type(node, 0, dtype, rank, dims, diag);
}

/* Pairs the symbolic elements of inputs 0 and 1, broadcast; -1 when they are not known. */
static int64_t element_pairs(const ir_node *node, const ir_dim **a, const ir_dim **b) {
    int64_t m = op_elements(node, 0, OP_MAX_ELEMENTS, a);
    int64_t n = op_elements(node, 1, OP_MAX_ELEMENTS, b);
    if (m < 0 || n < 0 || (m != n && m != 1 && n != 1))
        return -1;
    int64_t count = m == 1 ? n : m;
    for (int64_t i = 1; i < count; i++) {
        if (m == 1)
            a[i] = a[0];
        if (n == 1)
            b[i] = b[0];
    }
    return count;
}

gqac_status op_binary_infer(ir_node *node, const op_binary *kernel, gqac_diag *diag) {
    const ir_dim *a[OP_MAX_ELEMENTS], *b[OP_MAX_ELEMENTS];
    gqac_dtype dtype = op_in_type(node, op_in_type(node, 0).dtype != GQAC_NONE ? 0 : 1).dtype;
    for (int i = 0; i < 2; i++)
        GQAC_TRY(op_check_dtype(node, i, binary_set(kernel), diag));
    GQAC_TRY(op_check_same(node, 0, 1, diag));
    GQAC_TRY(op_pair_infer(node, dtype, diag));
    int64_t n = kernel->dim ? element_pairs(node, a, b) : -1;
    for (int64_t i = 0; i < n; i++)
        a[i] = kernel->dim(op_dims(node), a[i], b[i]);
    return n < 0 ? GQAC_OK : op_set_elements(node, 0, n, a, diag);
}

gqac_status op_compare_infer(ir_node *node, const op_compare *kernel, gqac_diag *diag) {
    const ir_dim *a[OP_MAX_ELEMENTS], *b[OP_MAX_ELEMENTS];
    ir_dims *dims = op_dims(node);
    for (int i = 0; i < 2; i++)
        GQAC_TRY(op_check_dtype(node, i, compare_set(kernel), diag));
    GQAC_TRY(op_check_same(node, 0, 1, diag));
    GQAC_TRY(op_pair_infer(node, GQAC_BOOL, diag));
    int64_t n = kernel->dim ? element_pairs(node, a, b) : -1;
    for (int64_t i = 0; i < n; i++) {
        int truth = a[i] && b[i] ? kernel->dim(dims, a[i], b[i]) : -1;
        a[i] = truth < 0 ? NULL : ir_dim_const(dims, truth);
    }
    return n < 0 ? GQAC_OK : op_set_elements(node, 0, n, a, diag);
}

gqac_status op_fold_infer(ir_node *node, const op_binary *kernel, gqac_diag *diag) {
    ir_type all = op_in_type(node, 0);
    const ir_dim *dims[GQAC_MAX_RANK];
    for (int i = 0; i < node->n_inputs; i++) {
        ir_type type = op_in_type(node, i);
        GQAC_TRY(op_check_dtype(node, i, binary_set(kernel), diag));
        GQAC_TRY(op_check_same(node, 0, i, diag));
        if (all.rank < 0 || type.rank < 0) {
            all.rank = -1;
            continue;
        }
        GQAC_TRY(op_broadcast_types(node, &all, &type, &all.rank, dims, diag));
        all.dims = dims;
    }
    GQAC_TRY(op_set_type_like(node, 0, all, diag));
    const ir_dim *a[OP_MAX_ELEMENTS], *b[OP_MAX_ELEMENTS];
    if (node->n_inputs == 1)
        return op_pass_elements(node, 0, 0, diag);
    int64_t n = kernel->dim && node->n_inputs == 2 ? element_pairs(node, a, b) : -1;
    for (int64_t i = 0; i < n; i++)
        a[i] = kernel->dim(op_dims(node), a[i], b[i]);
    return n < 0 ? GQAC_OK : op_set_elements(node, 0, n, a, diag);
}

/* ---- evaluation ---------------------------------------------------------- */

typedef struct unary_arg {
    const op_unary *kernel;
    const void *arg;
} unary_arg;

static void unary_f32(void *y, const void *const *x, size_t n, const void *arg) {
    const unary_arg *u = arg;
    u->kernel->f32(y, x[0], n, u->arg);
}

static void unary_f64(void *y, const void *const *x, size_t n, const void *arg) {
    const unary_arg *u = arg;
    u->kernel->f64(y, x[0], n, u->arg);
}

static void unary_i64(void *y, const void *const *x, size_t n, const void *arg) {
    const unary_arg *u = arg;
    u->kernel->i64(y, x[0], n, u->arg);
}

gqac_status op_unary_eval(op_call *call, const op_unary *kernel) {
    enum { MAX_FLOATS = 2 };
    const ir_attr_spec *attr = call->node->op->attrs;
    float values[MAX_FLOATS] = {0};
    for (int i = 0; attr && attr[i].name; i++) {
        assert(i < MAX_FLOATS && attr[i].kind == IR_ATTR_FLOAT);
        values[i] = ir_attr_float(call->node, attr[i].name);
    }
    return op_unary_eval_with(call, kernel, values);
}

gqac_status op_unary_eval_with(op_call *call, const op_unary *kernel, const void *arg) {
    static op_span *const spans[] = {
        [OP_AS_F32] = unary_f32, [OP_AS_F64] = unary_f64, [OP_AS_I64] = unary_i64};
    GQAC_TRY(op_want_set(call, 0, unary_set(kernel)));
    const gqac_tensor *x = call->in[0];
    op_carrier carrier = op_carrier_of(x->dtype);
    unary_arg both = {kernel, arg};
    GQAC_TRY(op_output_like(call, 0, x->dtype, x));
    op_map map = {.run = spans[carrier],
                  .arg = &both,
                  .n_in = 1,
                  .in = {x},
                  .in_as = {carrier},
                  .out = &call->out[0],
                  .out_as = carrier};
    op_map_run(call, &map);
    return GQAC_OK;
}

gqac_status op_test_eval(op_call *call, op_span *f32, op_span *f64, const void *arg) {
    GQAC_TRY(op_want_set(call, 0, TESTED));
    GQAC_TRY(op_output_like(call, 0, GQAC_BOOL, call->in[0]));
    bool wide = call->in[0]->dtype == GQAC_F64;
    op_map map = {.run = wide ? f64 : f32,
                  .arg = arg,
                  .n_in = 1,
                  .in = {call->in[0]},
                  .in_as = {wide ? OP_AS_F64 : OP_AS_F32},
                  .out = &call->out[0],
                  .out_as = OP_AS_BOOL};
    op_map_run(call, &map);
    return GQAC_OK;
}

static void binary_f32(void *y, const void *const *x, size_t n, const void *arg) {
    ((const op_binary *)arg)->f32(y, x[0], x[1], n);
}

static void binary_f64(void *y, const void *const *x, size_t n, const void *arg) {
    ((const op_binary *)arg)->f64(y, x[0], x[1], n);
}

static void binary_i64(void *y, const void *const *x, size_t n, const void *arg) {
    ((const op_binary *)arg)->i64(y, x[0], x[1], n);
}

static void binary_u64(void *y, const void *const *x, size_t n, const void *arg) {
    ((const op_binary *)arg)->u64(y, x[0], x[1], n);
}

/* out = kernel(a, b) where out has the broadcast shape already. */
static gqac_status run_pair(op_call *call, const op_binary *kernel, const gqac_tensor *a,
                            const gqac_tensor *b, gqac_tensor *out) {
    static op_span *const spans[] = {
        [OP_AS_F32] = binary_f32, [OP_AS_F64] = binary_f64, [OP_AS_I64] = binary_i64};
    op_carrier carrier = op_carrier_of(out->dtype);
    bool big = out->dtype == GQAC_U64 && kernel->u64;
    if (kernel->divides && carrier == OP_AS_I64 && gqac_tensor_count(out) > 0)
        for (int64_t i = 0, n = gqac_tensor_count(b); i < n; i++)
            if (op_get_i64(b, i) == 0)
                OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "integer division by zero");
    op_map map = {.run = big ? binary_u64 : spans[carrier],
                  .arg = kernel,
                  .n_in = 2,
                  .in = {a, b},
                  .in_as = {carrier, carrier},
                  .out = out,
                  .out_as = carrier};
    op_map_run(call, &map);
    return GQAC_OK;
}

static gqac_status want_pair(op_call *call, unsigned set) {
    GQAC_TRY(op_want_set(call, 0, set));
    return op_want(call, 1, call->in[0]->dtype);
}

gqac_status op_binary_eval(op_call *call, const op_binary *kernel) {
    int rank;
    int64_t dims[GQAC_MAX_RANK];
    GQAC_TRY(want_pair(call, binary_set(kernel)));
    const gqac_tensor *a = call->in[0], *b = call->in[1];
    GQAC_TRY(op_broadcast(call, a, b, &rank, dims));
    GQAC_TRY(op_output(call, 0, a->dtype, rank, dims));
    return run_pair(call, kernel, a, b, &call->out[0]);
}

gqac_status op_fold_eval(op_call *call, const op_binary *kernel) {
    int n = call->node->n_inputs;
    GQAC_TRY(op_want_set(call, 0, binary_set(kernel)));
    gqac_tensor shape = *call->in[0];
    for (int i = 1; i < n; i++) {
        GQAC_TRY(op_want(call, i, shape.dtype));
        GQAC_TRY(op_broadcast(call, &shape, call->in[i], &shape.rank, shape.dims));
    }
    if (n == 1)
        return op_copy_as(call, shape.rank, shape.dims);
    GQAC_TRY(op_output_like(call, 0, shape.dtype, &shape));
    gqac_tensor *out = &call->out[0];
    GQAC_TRY(run_pair(call, kernel, call->in[0], call->in[1], out));
    for (int i = 2; i < n; i++)
        GQAC_TRY(run_pair(call, kernel, out, call->in[i], out));
    return GQAC_OK;
}

static void compare_f32(void *y, const void *const *x, size_t n, const void *arg) {
    ((const op_compare *)arg)->f32(y, x[0], x[1], n);
}

static void compare_f64(void *y, const void *const *x, size_t n, const void *arg) {
    ((const op_compare *)arg)->f64(y, x[0], x[1], n);
}

static void compare_i64(void *y, const void *const *x, size_t n, const void *arg) {
    ((const op_compare *)arg)->i64(y, x[0], x[1], n);
}

static void compare_u64(void *y, const void *const *x, size_t n, const void *arg) {
    ((const op_compare *)arg)->u64(y, x[0], x[1], n);
}

static void compare_logic(void *y, const void *const *x, size_t n, const void *arg) {
    ((const op_compare *)arg)->logic(y, x[0], x[1], n);
}

gqac_status op_compare_eval(op_call *call, const op_compare *kernel) {
    static op_span *const spans[] = {[OP_AS_F32] = compare_f32,
                                     [OP_AS_F64] = compare_f64,
                                     [OP_AS_I64] = compare_i64,
                                     [OP_AS_BOOL] = compare_logic};
    int rank;
    int64_t dims[GQAC_MAX_RANK];
    GQAC_TRY(want_pair(call, compare_set(kernel)));
    const gqac_tensor *a = call->in[0], *b = call->in[1];
    op_carrier carrier = op_carrier_of(a->dtype);
    bool big = a->dtype == GQAC_U64 && kernel->u64;
    GQAC_TRY(op_broadcast(call, a, b, &rank, dims));
    GQAC_TRY(op_output(call, 0, GQAC_BOOL, rank, dims));
    op_map map = {.run = big ? compare_u64 : spans[carrier],
                  .arg = kernel,
                  .n_in = 2,
                  .in = {a, b},
                  .in_as = {carrier, carrier},
                  .out = &call->out[0],
                  .out_as = OP_AS_BOOL};
    op_map_run(call, &map);
    return GQAC_OK;
}
