/* Activations: x * sigmoid(alpha x) becomes Swish; x * (1 + erf(x / sqrt 2)) / 2 and its form with
 * tanh become Gelu, whatever the order of the factors. */
#include "ops/build.h"
#include "passes/raise.h"

enum { FACTORS = 4 };

typedef struct product {
    double factor;
    int n;
    ir_value *of[FACTORS];
} product;

static bool collect(ir_value *value, int depth, product *p) {
    double factor = 1;
    value = raise_unscaled(value, &factor);
    p->factor *= factor;
    const ir_node *mul = raise_maker(value, "Mul");
    if (mul && depth > 0)
        return collect(ir_node_input(mul, 0), depth - 1, p) &&
               collect(ir_node_input(mul, 1), depth - 1, p);
    if (p->n == FACTORS)
        return false;
    p->of[p->n++] = value;
    return true;
}

/* Returns the node of f if the value is 1 + f(...); else NULL. */
static const ir_node *one_plus(const ir_value *value, const char *f) {
    double one = 0;
    const ir_node *add = raise_maker(value, "Add");
    const ir_value *other = add ? raise_beside_scalar(add, &one) : NULL;
    return other && one == 1 ? raise_maker(other, f) : NULL;
}

static bool is_erf(const ir_value *value, const ir_value *x) {
    double factor = 1;
    const ir_node *erf = one_plus(value, "Erf");
    return erf && raise_unscaled(ir_node_input(erf, 0), &factor) == x &&
           raise_near(factor, 0.70710678118654752);
}

static bool is_cube(const ir_value *value, const ir_value *x) {
    double three;
    const ir_node *pow = raise_maker(value, "Pow"), *mul = raise_maker(value, "Mul");
    if (pow)
        return ir_node_input(pow, 0) == x && raise_scalar(ir_node_input(pow, 1), &three) &&
               three == 3;
    for (int i = 0; mul && i < 2; i++) {
        const ir_node *square = raise_maker(ir_node_input(mul, i), "Mul");
        if (ir_node_input(mul, 1 - i) == x && square && ir_node_input(square, 0) == x &&
            ir_node_input(square, 1) == x)
            return true;
    }
    return false;
}

/* 1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)) */
static bool is_tanh(const ir_value *value, const ir_value *x) {
    double outer = 1, inner;
    const ir_node *tanh = one_plus(value, "Tanh");
    if (!tanh)
        return false;
    const ir_node *add = raise_maker(raise_unscaled(ir_node_input(tanh, 0), &outer), "Add");
    for (int i = 0; add && i < 2; i++) {
        inner = 1;
        if (ir_node_input(add, 1 - i) == x &&
            is_cube(raise_unscaled(ir_node_input(add, i), &inner), x))
            return raise_near(outer, 0.79788456080286536) && raise_near(inner, 0.044715);
    }
    return false;
}

static ir_value *gelu(raise *r, const ir_node *mul) {
    product p = {.factor = 1};
    if (!collect(mul->outputs[0], 3, &p) || p.n != 2 || p.factor != 0.5)
        return NULL;
    for (int i = 0; i < 2; i++) {
        ir_value *x = p.of[i];
        const bool erf = is_erf(p.of[1 - i], x);
        if (!erf && !is_tanh(p.of[1 - i], x))
            continue;
        r->what = "Gelu";
        return OP_BUILD(&r->b, "Gelu", .in = {x}, .text = {{"approximate", erf ? "none" : "tanh"}});
    }
    return NULL;
}

static ir_value *swish(raise *r, const ir_node *mul) {
    for (int i = 0; i < 2; i++) {
        ir_value *x = ir_node_input(mul, 1 - i);
        const ir_node *sigmoid = raise_maker(ir_node_input(mul, i), "Sigmoid");
        double alpha = 1;
        /* a sigmoid that others read too is computed anyway */
        if (!sigmoid || sigmoid->outputs[0]->uses->next ||
            (ir_node_input(sigmoid, 0) != x &&
             raise_unscaled(ir_node_input(sigmoid, 0), &alpha) != x))
            continue;
        r->what = "Swish";
        return OP_BUILD(&r->b, "Swish", .in = {x}, .floats = {{"alpha", (float)alpha}});
    }
    return NULL;
}

ir_value *raise_activation(raise *r, ir_node *mul) {
    ir_value *by = swish(r, mul);
    return by ? by : gelu(r, mul);
}
