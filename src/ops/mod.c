/* Mod: the remainder of a / b. It has the sign of b with fmod 0, that of a with fmod 1. Source:
 * ONNX operator spec. fmod of the C library is exact, so its bits are the same everywhere. */
#include "ops/elementwise.h"

#include <math.h>

static int64_t remain(int64_t a, int64_t b) {
    return b == -1 ? 0 : a % b; /* the least integer % -1 traps */
}

static int64_t floor_remain(int64_t a, int64_t b) {
    int64_t r = remain(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* Remainders of 0 have the sign of b, too. */
static float floor_f32_of(float a, float b) {
    const float r = fmodf(a, b);
    return r == 0 ? copysignf(r, b) : (r < 0) != (b < 0) ? r + b : r;
}

static double floor_f64_of(double a, double b) {
    const double r = fmod(a, b);
    return r == 0 ? copysign(r, b) : (r < 0) != (b < 0) ? r + b : r;
}

OP_SPAN2(f32, float, float, fmodf(a, b))
OP_SPAN2(f64, double, double, fmod(a, b))
OP_SPAN2(floor_f32, float, float, floor_f32_of(a, b))
OP_SPAN2(floor_f64, double, double, floor_f64_of(a, b))
OP_SPAN2(i64, int64_t, int64_t, remain(a, b))
OP_SPAN2(floor_i64, int64_t, int64_t, floor_remain(a, b))
OP_SPAN2(u64, int64_t, int64_t, (uint64_t)a % (uint64_t)b)

static const op_binary floored = {
    .f32 = floor_f32, .f64 = floor_f64, .i64 = floor_i64, .u64 = u64, .divides = true};
static const op_binary truncated = {
    .f32 = f32, .f64 = f64, .i64 = i64, .u64 = u64, .divides = true};

static const op_binary *kernel_of(const ir_node *node) {
    return ir_attr_int(node, "fmod") ? &truncated : &floored;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_binary_infer(node, kernel_of(node), diag);
}

static gqac_status eval(op_call *call) {
    return op_binary_eval(call, kernel_of(call->node));
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("fmod", 0, "0: the result has the sign of b; 1: that of a"),
    {.name = NULL},
};

const gqac_op gqac_op_mod =
    OP_BINARY_ROW(.name = "Mod", .domain = "", .since = 13, .introduced = 10, .attrs = attrs,
                  .doc = "c = remainder of a / b, broadcast");
