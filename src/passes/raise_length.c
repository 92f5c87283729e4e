/* For sequences: a length that a Reshape gets from arithmetic on the shapes of pasts. If the other
 * lengths of the new shape are known, it can only be what is left of the elements of x, or the call
 * fails. If that equals a length of x, it is read from x instead. torch.export writes such a
 * length, max(0, min(C, P + S) - min(C, P)), after queries that were cut out of a table of masks
 * (GPT-Neo). */
#include "ops/build.h"
#include "ops/shared.h"
#include "passes/raise.h"

/* Returns the index of the only length of the shape that the others determine, and sets *left to
 * the length that they leave; -1: there is no such length, there are several, or one is that length
 * already. */
static int find_length(ir_dims *dims, const ir_type *x, const ir_node *reshape,
                       const ir_dim **left) {
    const ir_dim *to[GQAC_MAX_RANK], *count = ir_dim_const(dims, 1);
    const int64_t n = op_elements(reshape, 1, GQAC_MAX_RANK, to);
    int64_t length;
    int found = -1;
    for (int i = 0; i < x->rank && count; i++)
        count = x->dims[i] ? ir_dim_mul(dims, count, x->dims[i]) : NULL;
    for (int64_t i = 0; i < n; i++) { /* 0 and -1 mean something else */
        if (!to[i] || (ir_dim_is_const(to[i], &length) && length <= 0))
            return -1;
    }
    for (int i = 0; i < n && count; i++) {
        const ir_dim *others = ir_dim_const(dims, 1);
        for (int k = 0; k < n && others; k++)
            others = k != i ? ir_dim_mul(dims, others, to[k]) : others;
        const ir_dim *rest = others ? ir_dim_div_exact(dims, count, others) : NULL;
        if (rest == to[i])
            return -1;
        if (rest && found >= 0)
            return -1;
        if (rest) {
            found = i;
            *left = rest;
        }
    }
    return found;
}

ir_value *raise_length(raise *r, ir_node *reshape) {
    ir_value *x = ir_node_input(reshape, 0), *in[GQAC_MAX_RANK];
    const ir_node *concat = raise_maker(ir_node_input(reshape, 1), "Concat");
    const ir_dim *left = NULL;
    int axis = 0;
    if (!concat || x->type.rank < 1 || concat->n_inputs > GQAC_MAX_RANK ||
        reshape->outputs[0]->type.rank != concat->n_inputs)
        return NULL;
    const int at = find_length(r->context->module->dims, &x->type, reshape, &left);
    while (at >= 0 && axis < x->type.rank && x->type.dims[axis] != left)
        axis++;
    if (at < 0 || axis == x->type.rank)
        return NULL;
    for (int i = 0; i < concat->n_inputs; i++)
        in[i] = i == at ? raise_ask_dim(r, x, axis) : ir_node_input(concat, i);
    r->rows = reshape->outputs[0]->type.dims[at];
    r->queries = left;
    ir_value *shape = op_build_concat(&r->b, 0, concat->n_inputs, in);
    return OP_BUILD(&r->b, "Reshape", .in = {x, shape}, .of = reshape);
}
