/* Running sums and products along one axis: one chain from its start (reverse: from its end);
 * exclusive leaves the element itself out. f16 and bf16 are computed in fp32 and rounded when they
 * are stored; integers wrap. */
#include "ops/elementwise.h"
#include "ops/reduction.h"

typedef struct running {
    const gqac_tensor *x;
    gqac_tensor *y;
    int64_t n, inner;
    bool exclusive, reverse, product;
} running;

#define CHAIN(type, start, add, get, put)                                                          \
    do {                                                                                           \
        type sum = (start);                                                                        \
        for (int64_t i = 0; i < s->n; i++) {                                                       \
            int64_t at = first + (s->reverse ? s->n - 1 - i : i) * s->inner;                       \
            type next = add(sum, get(s->x, at));                                                   \
            put(s->y, at, s->exclusive ? sum : next);                                              \
            sum = next;                                                                            \
        }                                                                                          \
    } while (0)
#define PLUS(a, b)  ((a) + (b))
#define TIMES(a, b) ((a) * (b))

static void put_f64(gqac_tensor *tensor, int64_t index, double value) {
    ((double *)tensor->data)[index] = value;
}

static void run_rows(void *arg, size_t begin, size_t end, int worker) {
    (void)worker;
    const running *s = arg;
    op_carrier carrier = op_carrier_of(s->x->dtype);
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t first = item / s->inner * s->n * s->inner + item % s->inner;
        if (carrier == OP_AS_F32 && s->product)
            CHAIN(float, 1, TIMES, op_get_f32, op_put_f32);
        else if (carrier == OP_AS_F32)
            CHAIN(float, 0, PLUS, op_get_f32, op_put_f32);
        else if (carrier == OP_AS_F64 && s->product)
            CHAIN(double, 1, TIMES, op_get_f64, put_f64);
        else if (carrier == OP_AS_F64)
            CHAIN(double, 0, PLUS, op_get_f64, put_f64);
        else if (s->product)
            CHAIN(int64_t, 1, op_wrap_mul, op_get_i64, op_put_i64);
        else
            CHAIN(int64_t, 0, op_wrap_add, op_get_i64, op_put_i64);
    }
}

gqac_status op_cum_infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, 0, OP_NUMBERS, diag));
    GQAC_TRY(op_check_dtype(node, 1, OP_INDICES, diag));
    GQAC_TRY(op_check_single(node, 1, diag));
    return op_set_type_like(node, 0, op_in_type(node, 0), diag);
}

gqac_status op_cum_eval(op_call *call, bool product) {
    const ir_node *node = call->node;
    int64_t wanted;
    int axis;
    GQAC_TRY(op_want_set(call, 0, OP_NUMBERS));
    GQAC_TRY(op_want_set(call, 1, OP_INDICES));
    GQAC_TRY(op_int(call, 1, &wanted));
    const gqac_tensor *x = call->in[0];
    GQAC_TRY(op_axis(node, wanted, x->rank, &axis, call->diag));
    GQAC_TRY(op_output_like(call, 0, x->dtype, x));
    if (gqac_tensor_count(x) == 0)
        return GQAC_OK;
    running s = {.x = x,
                 .y = &call->out[0],
                 .n = x->dims[axis],
                 .inner = op_product(x->dims, axis + 1, x->rank),
                 .product = product,
                 .exclusive = ir_attr_int(node, "exclusive") != 0,
                 .reverse = ir_attr_int(node, "reverse") != 0};
    op_parallel(call, gqac_tensor_count(x) / s.n, 20 + 4 * s.n, run_rows, &s);
    return GQAC_OK;
}

bool op_cum_mixes(const ir_node *node) {
    const ir_dim *axis;
    int64_t value;
    if (op_elements(node, 1, 1, &axis) != 1 || !ir_dim_is_const(axis, &value))
        return true;
    return op_axis_is_row(ir_node_input(node, 0), (int)value);
}

const ir_attr_spec op_cum_attrs[] = {
    OP_ATTR_INT("exclusive", 0, "1: without the element itself"),
    OP_ATTR_INT("reverse", 0, "1: from the end"),
    {.name = NULL},
};
