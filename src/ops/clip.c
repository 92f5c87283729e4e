/* Clip: y = min(max(x, lo), hi) with optional scalar bounds; NaN stays. Source: ONNX operator spec.
 * Before opset 11 the bounds were attributes. */
#include "ops/build.h"
#include "ops/elementwise.h"

typedef struct bounds {
    bool has_lo, has_hi, big; /* big: u64 */
    double lo_f, hi_f;        /* holds every float bound exactly */
    int64_t lo_i, hi_i;
} bounds;

/* NOLINTBEGIN(bugprone-macro-parentheses): a type cannot have parentheses */
#define CLIP(fn, type, lo, hi)                                                                     \
    static void fn(type *y, const type *x, size_t n, const void *arg) {                            \
        const bounds *b = arg;                                                                     \
        for (size_t i = 0; i < n; i++) {                                                           \
            type v = x[i];                                                                         \
            if (b->has_lo && v < (type)b->lo)                                                      \
                v = (type)b->lo;                                                                   \
            if (b->has_hi && v > (type)b->hi)                                                      \
                v = (type)b->hi;                                                                   \
            y[i] = v;                                                                              \
        }                                                                                          \
    }
/* NOLINTEND(bugprone-macro-parentheses) */
CLIP(f32, float, lo_f, hi_f)
CLIP(f64, double, lo_f, hi_f)
CLIP(signed_i64, int64_t, lo_i, hi_i)
CLIP(unsigned_i64, uint64_t, lo_i, hi_i)

static void i64(int64_t *y, const int64_t *x, size_t n, const void *arg) {
    if (((const bounds *)arg)->big)
        unsigned_i64((uint64_t *)y, (const uint64_t *)x, n, arg);
    else
        signed_i64(y, x, n, arg);
}

static const op_unary kernel = {.f32 = f32, .f64 = f64, .i64 = i64};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_same(node, 0, 1, diag));
    GQAC_TRY(op_check_same(node, 0, 2, diag));
    return op_unary_infer(node, &kernel, diag);
}

static gqac_status bound(op_call *call, int input, bool *has, double *f, int64_t *i) {
    *has = input < call->node->n_inputs && call->in[input];
    if (!*has)
        return GQAC_OK;
    GQAC_TRY(op_want(call, input, call->in[0]->dtype));
    if (gqac_tensor_count(call->in[input]) != 1)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "a bound is not a single value");
    *f = op_get_f64(call->in[input], 0);
    *i = op_get_i64(call->in[input], 0);
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    bounds b = {.has_lo = false};
    GQAC_TRY(op_want(call, 0, GQAC_NONE));
    b.big = call->in[0]->dtype == GQAC_U64;
    GQAC_TRY(bound(call, 1, &b.has_lo, &b.lo_f, &b.lo_i));
    GQAC_TRY(bound(call, 2, &b.has_hi, &b.hi_f, &b.hi_i));
    return op_unary_eval_with(call, &kernel, &b);
}

static gqac_status upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw) {
    static const char *const names[] = {"min", "max"};
    for (int i = 0; i < 2 && opset < 11; i++) {
        const ir_attr *attr = op_raw_take(raw, names[i]);
        if (!attr)
            continue;
        if (raw->kinds[attr - raw->values] != IR_ATTR_FLOAT)
            OP_FAIL(node, b->diag, GQAC_INVALID_MODEL, "attribute '%s' is not a float", names[i]);
        ir_value *bound = ir_build_f32(b, attr->f);
        bound = OP_BUILD(b, "CastLike", .in = {bound, ir_node_input(node, 0)});
        GQAC_TRY(op_put_input(b, node, i + 1, bound));
    }
    return b->status;
}

const gqac_op gqac_op_clip = {
    .schema = {.name = "Clip",
               .domain = "",
               .since = 13,
               .inputs = "input min? max?",
               .outputs = "output",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = min(max(x, min), max)"},
    .infer = infer,
    .eval = eval,
    .upgrade = upgrade,
};
