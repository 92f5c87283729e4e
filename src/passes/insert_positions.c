/* Replaces positions that a graph counts by itself, from 0 in every call, by the input
 * position_ids.
 *
 * Such positions are recognised by their values, not by a pattern: an integer for each token that
 * is proven to be its position in the call (raise_is_positions: Range, the first columns of a
 * constant 0, 1, 2, ..., sums of ones, and values computed from these), and sums of the attention
 * mask minus 1. Positions without a batch axis may only choose rows of a table that are added to
 * [B,S,M]. The first rows of other constants are refused, because they end before the rows that a
 * cache needs. Whatever else depends on the position of a token in its call is refused by the check
 * of insert-kv. */
#include "ops/build.h"
#include "ops/shared.h"
#include "passes/insert_kv.h"

typedef struct counter {
    pass_context *context;
    ir_graph *graph;
    const ir_dim *batch, *rows;
    ir_value *input; /* position_ids; NULL: nothing was counted yet */
    gqac_diag *diag;
    int steps; /* number of elements that may still be read */
} counter;

static bool is_length(const ir_value *value, const ir_dim *rows) {
    return value && value->n_elements == 1 && value->elements && value->elements[0] == rows;
}

/* True if the table rows that these positions choose are only added to [B,S,M], so that they may be
 * [B,S,M] themselves. */
static bool is_added(const ir_value *rows) {
    for (const ir_use *use = rows->uses; use; use = use->next) {
        const ir_node *add = use->node;
        if (!op_is(add, "", "Add") || add->outputs[0]->type.rank != 3)
            return false;
        const ir_value *other = add->inputs[use == &add->inputs[0]].value;
        if (other->type.rank != 3)
            return false;
    }
    return rows->uses != NULL;
}

static bool only_chooses(const ir_value *positions) {
    for (const ir_use *use = positions->uses; use; use = use->next) {
        const ir_node *gather = use->node;
        if (!op_is(gather, "", "Gather") || use != &gather->inputs[1] ||
            gather->inputs[0].value->type.rank != 2 || ir_attr_int(gather, "axis") != 0 ||
            !is_added(gather->outputs[0]))
            return false;
    }
    return positions->uses != NULL;
}

/* True if a node selects the first rows of a table, as many as the call has tokens. */
static bool is_beginning(const ir_node *node, const ir_dim *rows) {
    return op_is(node, "", "Slice") && node->inputs[0].value->constant &&
           is_length(ir_node_input(node, 2), rows);
}

/* True if it counts the position of each token, and positions may differ between batch rows. */
static bool is_count(counter *c, const ir_node *node) {
    ir_value *value = node->outputs[0];
    raise r = {.context = c->context, .steps = &c->steps};
    return raise_is_positions(&r, value, c->batch, c->rows, is_beginning(node, c->rows)) &&
           (value->type.rank > 1 || only_chooses(value));
}

/* ---- sums of the attention mask ------------------------------------------ */

static const ir_value *through_casts(const ir_value *value) {
    while (value && value->def && op_is(value->def, "", "Cast") &&
           OP_IN(OP_INDICES, value->type.dtype))
        value = value->def->inputs[0].value;
    return value;
}

static bool is_mask(const ir_graph *graph, const ir_value *value) {
    value = through_casts(value);
    return value && pass_is_attention_mask(graph, value);
}

static bool is_sum_of_mask(const ir_graph *graph, const ir_value *value) {
    const ir_node *sum = value->def;
    return sum && op_is(sum, "", "CumSum") && is_mask(graph, ir_node_input(sum, 0)) &&
           (pass_is_int(ir_node_input(sum, 1), 1) || pass_is_int(ir_node_input(sum, 1), -1)) &&
           !ir_attr_int(sum, "exclusive") && !ir_attr_int(sum, "reverse");
}

/* cumsum(mask) - 1, or cumsum(mask) * mask - 1: the positions of tokens that are not padding. */
static bool is_less_one(const ir_graph *graph, const ir_node *node) {
    const ir_value *x = NULL;
    if (op_is(node, "", "Sub") && pass_is_int(ir_node_input(node, 1), 1))
        x = ir_node_input(node, 0);
    for (int i = 0; i < 2 && op_is(node, "", "Add"); i++)
        if (pass_is_int(ir_node_input(node, i), -1))
            x = ir_node_input(node, 1 - i);
    x = through_casts(x);
    const ir_node *mul = x && x->def && op_is(x->def, "", "Mul") ? x->def : NULL;
    for (int i = 0; mul && i < 2; i++)
        if (is_mask(graph, ir_node_input(mul, i)))
            x = through_casts(ir_node_input(mul, 1 - i));
    return x && OP_IN(OP_INDICES, node->outputs[0]->type.dtype) && is_sum_of_mask(graph, x);
}

/* ---- the input ----------------------------------------------------------- */

static bool want_input(counter *c) {
    if (!c->input && pass_input(c->graph, "position_ids"))
        return false; /* the model has it and counts positions as well: not supported */
    const ir_dim *dims[2] = {c->batch, c->rows};
    if (!c->input)
        c->input = ir_graph_add_input(c->graph, "position_ids",
                                      ir_type_make(c->graph->module, GQAC_I64, 2, dims));
    return c->input != NULL;
}

/* Replaces what the node counts by the input, as [B,S,1,...] of its type. */
static gqac_status replace(counter *c, ir_node *node) {
    const ir_type *type = &node->outputs[0]->type;
    int64_t axes[GQAC_MAX_RANK];
    const int n_axes = type->rank > 2 ? type->rank - 2 : 0;
    for (int i = 0; i < n_axes; i++)
        axes[i] = 2 + i;
    ir_node *prev = node->prev;
    ir_builder b = {.graph = c->graph, .before = node, .diag = c->diag};
    ir_value *by = c->input;
    if (n_axes > 0)
        by = OP_BUILD(&b, "Unsqueeze", .in = {by, ir_build_i64s(&b, n_axes, axes)});
    if (type->dtype != GQAC_I64)
        by = op_build_cast(&b, by, type->dtype);
    GQAC_TRY(b.status);
    GQAC_TRY(pass_settle(node, prev, c->diag));
    ir_value_replace(node->outputs[0], by);
    return GQAC_OK;
}

static gqac_status visit(counter *c, ir_node *node) {
    const bool data = node->mark & INSERT_DATA; /* masks are made of positions of keys */
    if (data && (is_count(c, node) || is_less_one(c->graph, node)) && want_input(c))
        return replace(c, node);
    if (is_beginning(node, c->rows))
        return op_fail(node, c->diag, GQAC_UNSUPPORTED,
                       "this depends on the number of tokens in a call or on their positions");
    return GQAC_OK;
}

gqac_status insert_positions(pass_context *context, const ir_dim *batch, const ir_dim *rows) {
    ir_graph *graph = context->module->graph;
    counter c = {.context = context,
                 .graph = graph,
                 .batch = batch,
                 .rows = rows,
                 .diag = context->diag,
                 .steps = RAISE_STEPS};
    for (ir_node *node = graph->first; node; node = node->next)
        if (node->outputs[0] && !ir_value_unused(node->outputs[0]))
            GQAC_TRY(visit(&c, node));
    return GQAC_OK;
}
