/* Norms: scale * (x / sqrt(mean(x^2) + epsilon)) becomes RMSNormalization. x may be widened to f32
 * first, and the quotient rounded again before it is multiplied, as that op does. With x - mean(x)
 * in place of x the op is LayerNormalization, including a bias that is added afterwards. */
#include "ops/build.h"
#include "passes/raise.h"

#include "ops/shared.h"

static bool is_last_axis(const ir_node *reduce, const ir_value *x) {
    int64_t axis, n;
    return ir_const_ints(ir_node_input(reduce, 1), 1, &axis, &n) && n == 1 &&
           (axis == -1 || axis == x->type.rank - 1) && ir_attr_int(reduce, "keepdims");
}

static bool is_square(const ir_value *square, const ir_value *x) {
    double two;
    const ir_node *pow = raise_maker(square, "Pow"), *mul = raise_maker(square, "Mul");
    if (pow)
        return ir_node_input(pow, 0) == x && raise_scalar(ir_node_input(pow, 1), &two) && two == 2;
    return mul && ir_node_input(mul, 0) == x && ir_node_input(mul, 1) == x;
}

/* mean(x^2) + epsilon over the last axis */
static bool is_mean_square(raise *r, const ir_value *value, const ir_value *x, double *epsilon) {
    const ir_node *add = raise_maker(value, "Add");
    const ir_value *mean = add ? raise_beside_scalar(add, epsilon) : NULL;
    const ir_node *reduce = raise_maker(mean, "ReduceMean");
    r->what = "RMSNormalization";
    if (!reduce || !is_square(ir_node_input(reduce, 0), x))
        return raise_stopped(r, value->def ? value->def : r->b.before,
                             "it is not mean(x^2) + epsilon");
    if (!is_last_axis(reduce, x))
        return raise_stopped(r, reduce, "the mean is not over the last axis");
    return true;
}

/* Returns the radicand of 1 / sqrt(...), or of sqrt itself. */
static const ir_value *under_root(const ir_value *value, const char *by) {
    double one;
    const ir_node *inverse = raise_maker(value, by);
    if (!inverse)
        return NULL;
    if (by[0] == 'D' && (!raise_scalar(ir_node_input(inverse, 0), &one) || one != 1))
        return NULL;
    const ir_node *root = raise_maker(ir_node_input(inverse, by[0] == 'D'), "Sqrt");
    return root ? ir_node_input(root, 0) : NULL;
}

/* Returns x if the value is x / sqrt(mean(x^2) + epsilon); else NULL. */
static ir_value *normalised(raise *r, const ir_value *value, double *epsilon) {
    const ir_node *mul = raise_maker(value, "Mul"), *div = raise_maker(value, "Div");
    for (int i = 0; mul && i < 2; i++) {
        ir_value *x = ir_node_input(mul, 1 - i), *inverse = ir_node_input(mul, i);
        const ir_value *square = under_root(inverse, "Div");
        if (!square)
            square = under_root(inverse, "Reciprocal");
        if (square && is_mean_square(r, square, x, epsilon))
            return x;
    }
    const ir_node *root = div ? raise_maker(ir_node_input(div, 1), "Sqrt") : NULL;
    if (root && is_mean_square(r, ir_node_input(root, 0), ir_node_input(div, 0), epsilon))
        return ir_node_input(div, 0);
    return NULL;
}

/* Returns x if the value is x - mean(x) over the last axis; else NULL. */
static ir_value *centred(const ir_value *value) {
    const ir_node *sub = raise_maker(value, "Sub");
    const ir_node *mean = sub ? raise_maker(ir_node_input(sub, 1), "ReduceMean") : NULL;
    ir_value *x = mean ? ir_node_input(sub, 0) : NULL;
    return x && ir_node_input(mean, 0) == x && is_last_axis(mean, x) ? x : NULL;
}

static bool is_scale(const ir_value *scale, const ir_value *x) {
    const int rank = x->type.rank;
    return scale && scale->constant && rank > 0 && scale->type.rank == 1 &&
           raise_dim(scale, 0) > 0 && raise_dim(scale, 0) == raise_dim(x, rank - 1);
}

ir_value *raise_norm(raise *r, ir_node *mul) {
    for (int i = 0; i < 2; i++) {
        ir_value *scale = ir_node_input(mul, i), *y = ir_node_input(mul, 1 - i);
        double epsilon = 0;
        if (!scale || !scale->constant || scale->type.rank < 1)
            continue;
        const ir_node *narrow = raise_maker(y, "Cast");
        ir_value *x = normalised(r, narrow ? ir_node_input(narrow, 0) : y, &epsilon);
        if (!x)
            continue;
        if (x->type.dtype != GQAC_F32)
            return raise_stopped(r, mul, "the mean is not computed in f32"), NULL;
        const ir_node *wide = narrow ? raise_maker(x, "Cast") : NULL;
        if (wide && ir_node_input(wide, 0)->type.dtype == y->type.dtype)
            x = ir_node_input(wide, 0);
        if (x->type.dtype != y->type.dtype)
            return raise_stopped(r, narrow, "the result does not have the type of x"), NULL;
        if (!is_scale(scale, x))
            return raise_stopped(
                       r, mul,
                       "the scale does not have one element for each element of x's last axis"),
                   NULL;
        ir_value *whole = narrow ? NULL : centred(x);
        if (whole)
            r->what = "LayerNormalization";
        return OP_BUILD(&r->b, r->what, .in = {whole ? whole : x, scale},
                        .floats = {{"epsilon", (float)epsilon}});
    }
    return NULL;
}

/* A bias after a LayerNormalization without one, whose result nothing else reads. */
ir_value *raise_norm_bias(raise *r, ir_node *add) {
    for (int i = 0; i < 2; i++) {
        const ir_node *norm = raise_maker(ir_node_input(add, i), "LayerNormalization");
        ir_value *bias = ir_node_input(add, 1 - i);
        const int64_t axis = norm ? ir_attr_int(norm, "axis") : 0;
        if (!norm || ir_node_input(norm, 2) || norm->outputs[0]->uses->next ||
            (axis != -1 && axis != norm->outputs[0]->type.rank - 1) ||
            !is_scale(bias, norm->outputs[0]))
            continue;
        return OP_BUILD(&r->b, "LayerNormalization",
                        .in = {ir_node_input(norm, 0), ir_node_input(norm, 1), bias}, .of = norm);
    }
    return NULL;
}
