/* Follows cached rows forward from the Concats that append to them, through nodes each of whose
 * rows depends on the same row of its operands alone. */
#include <string.h>

#include "ops/shared.h"
#include "passes/raise_latent.h"

static bool add(latent *l, ir_value *value, const grown *like, int axis) {
    if (l->n == l->most)
        return false;
    l->all[l->n] = *like;
    l->all[l->n].value = value;
    l->all[l->n].axis = axis;
    value->id = ++l->n;
    return true;
}

static bool is_source(const latent *l, const ir_node *node, grown *out) {
    ir_value *past = node->n_inputs == 2 ? ir_node_input(node, 0) : NULL;
    if (!op_is(node, "", "Concat") || !past || past->graph != l->graph || !pass_is_past(past) ||
        past->type.rank < 3)
        return false;
    const int rank = past->type.rank;
    const ir_value *tokens = pass_tokens(l->graph);
    const int64_t axis = pass_axis(node, rank);
    const ir_value *rows = ir_node_input(node, 1), *both = node->outputs[0];
    if (axis < 0 || axis >= rank || rows->type.rank != rank || both->type.rank != rank ||
        !both->type.dims[axis] || !rows->type.dims[axis] || !past->type.dims[axis])
        return false;
    *out = (grown){.past = past,
                   .name = past->name,
                   .axis = (int)axis,
                   .moved = (rank != 4 || axis != 2 || pass_is_halved(both)) && tokens &&
                            tokens->type.dims[1] == rows->type.dims[axis],
                   .batch = both->type.dims[axis == 0],
                   .cached = past->type.dims[axis],
                   .fresh = rows->type.dims[axis],
                   .total = both->type.dims[axis],
                   .rows = ir_node_input(node, 1),
                   .source = true};
    return out->batch != NULL;
}

static const ir_dim *before(const latent *l, const ir_type *type, int axis) {
    const ir_dim *product = ir_dim_const(l->context->module->dims, 1);
    for (int i = 0; i < axis && product; i++)
        product =
            type->dims[i] ? ir_dim_mul(l->context->module->dims, product, type->dims[i]) : NULL;
    return product;
}

/* The axis of the rows in a result whose elements keep their order; -1: none. */
static int kept_axis(const latent *l, const grown *x, const ir_value *result) {
    const ir_dim *front = before(l, &x->value->type, x->axis);
    for (int i = 0; i < result->type.rank && front; i++)
        if (result->type.dims[i] == x->total && before(l, &result->type, i) == front)
            return i;
    return -1;
}

static int transposed_axis(const grown *x, const ir_node *transpose) {
    const ir_attr *perm = ir_attr_get(transpose, "perm");
    for (size_t i = 0; perm->set && i < perm->count; i++)
        if (perm->ints[i] == x->axis)
            return (int)i;
    return -1;
}

/* True if every operand has rows along the same axis, or is a constant that is the same for all
 * rows. */
static bool all_alike(const latent *l, const ir_node *node, const grown *x) {
    const int rank = x->value->type.rank;
    for (int i = 0; i < node->n_inputs; i++) {
        const ir_value *value = ir_node_input(node, i);
        const grown *y = grown_of(l, value);
        int64_t one;
        if (!value)
            continue;
        if (y ? y->total != x->total || y->axis != x->axis || value->type.rank != rank
              : !value->constant || value->type.rank > rank)
            return false;
        const int at = x->axis - (rank - value->type.rank);
        if (!y && at >= 0 && (!ir_dim_is_const(value->type.dims[at], &one) || one != 1))
            return false;
    }
    return true;
}

static bool only_first(const latent *l, const ir_node *node) {
    for (int i = 1; i < node->n_inputs; i++)
        if (grown_of(l, ir_node_input(node, i)) ||
            (ir_node_input(node, i) && !ir_node_input(node, i)->constant))
            return false;
    return true;
}

static bool along_rows(const ir_node *node, const grown *x) {
    return pass_axis(node, x->value->type.rank) == x->axis;
}

/* True if the same indices of the first axis are written for every row. */
static bool writes_columns(const latent *l, const ir_node *node, const grown *x) {
    const grown *updates = grown_of(l, ir_node_input(node, 2));
    const ir_value *indices = ir_node_input(node, 1);
    return updates && updates->axis == x->axis && updates->total == x->total && x->axis > 0 &&
           updates->value->type.rank == x->value->type.rank && indices->constant &&
           indices->type.rank == 2 && raise_dim(indices, 1) == 1 &&
           strcmp(ir_attr_get(node, "reduction")->s, "none") == 0;
}

static bool is_product(const ir_node *node) {
    static const char *const names[] = {"MatMul", "linear",      "linear_bf16", "linear_nbits",
                                        "Gemm",   "MatMulNBits", NULL};
    return pass_listed(names, node->op->name);
}

/* The axis of the rows in a result, each of which depends on the same row of x alone; -1: none. */
static int result_axis(const latent *l, const ir_node *node, const grown *x) {
    static const char *const shapes[] = {"Reshape", "Unsqueeze", "Squeeze", "Expand", NULL};
    static const char *const columns[] = {"Split", "Slice", "Concat", NULL};
    static const char *const norms[] = {"RMSNormalization", "LayerNormalization", NULL};
    const bool last = x->axis == x->value->type.rank - 1;
    const char *name = node->op->name;
    const ir_value *result = node->outputs[0];
    const bool onnx = !*node->op->domain;
    if (!result || result->type.rank < 0)
        return -1;
    if (onnx && !strcmp(name, "Transpose"))
        return transposed_axis(x, node);
    if (onnx && !strcmp(name, "Expand") && result->type.rank != x->value->type.rank)
        return -1;
    if (onnx && !strcmp(name, "Expand"))
        return result->type.dims[x->axis] == x->total ? x->axis : -1;
    if (onnx && pass_listed(shapes, name))
        return kept_axis(l, x, result);
    if (onnx && !strcmp(name, "ScatterND"))
        return writes_columns(l, node, x) ? x->axis : -1;
    if (onnx && !strcmp(name, "Slice")) {
        int64_t axes[GQAC_MAX_RANK], n;
        bool rows = !only_first(l, node) || !ir_node_input(node, 3) ||
                    !ir_const_ints(ir_node_input(node, 3), GQAC_MAX_RANK, axes, &n);
        for (int64_t i = 0; !rows && i < n; i++)
            rows = axes[i] + (axes[i] < 0 ? x->value->type.rank : 0) == x->axis;
        return rows ? -1 : x->axis;
    }
    if (onnx && !strcmp(name, "Concat"))
        return !along_rows(node, x) && all_alike(l, node, x) ? x->axis : -1;
    if (onnx && pass_listed(columns, name))
        return !along_rows(node, x) && only_first(l, node) ? x->axis : -1;
    if (is_product(node) || (onnx && pass_listed(norms, name)))
        return !last && only_first(l, node) && grown_of(l, ir_node_input(node, 0)) &&
                       result->type.rank == x->value->type.rank
                   ? x->axis
                   : -1;
    return node->op->rows == IR_ROWS_LOCAL && node->n_outputs == 1 && all_alike(l, node, x) &&
                   result->type.rank == x->value->type.rank
               ? x->axis
               : -1;
}

/* A constant for each row: it has an axis with the length of a cache. */
static bool is_filling(const latent *l, const ir_node *node, grown *out) {
    if (!op_is(node, "", "ConstantOfShape") || !node->outputs[0])
        return false;
    const ir_type *type = &node->outputs[0]->type;
    for (int i = 0; i < l->n; i++)
        for (int k = 0; l->all[i].source && k < type->rank; k++)
            if (type->dims[k] == l->all[i].total) {
                *out = l->all[i];
                out->source = false;
                out->past = NULL;
                out->rows = NULL;
                out->axis = k;
                return true;
            }
    return false;
}

bool raise_follow(latent *l, const ir_node *node) {
    const grown *x = NULL, *other;
    grown made;
    bool weighed = is_product(node);
    if (is_source(l, node, &made) || is_filling(l, node, &made))
        return add(l, node->outputs[0], &made, made.axis);
    for (int i = 0; i < node->n_inputs; i++) {
        other = grown_of(l, ir_node_input(node, i));
        weighed = weighed || (other && other->weighed);
        x = !x || (!x->past && other) ? (other ? other : x) : x;
    }
    const int axis = x && !ir_holds_graphs(node) && node->n_outputs ? result_axis(l, node, x) : -1;
    if (axis < 0)
        return true;
    made = *x;
    made.source = made.later = made.leaves = made.weighed_later = false;
    made.rows = NULL;
    made.weighed = weighed;
    const bool halves = x->source && pass_is_halved(x->value);
    for (int i = 0; i < node->n_outputs; i++) {
        made.halved = halves || made.halved;
        made.second = halves ? pass_is_second(node, i) : made.second;
        if (node->outputs[i] && !add(l, node->outputs[i], &made, axis))
            return false;
    }
    return true;
}
