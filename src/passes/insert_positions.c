/* Positions that a graph counts by itself, from 0 in every call, become the input position_ids.
 *
 * Two forms are known: Range from 0 to the number of tokens with a leading axis of 1, and the first
 * columns of a constant [1,N] that holds 0, 1, 2, ... Both may lack the axis of 1 where they do
 * nothing but choose rows of a table that are added to [B,S,M]. Other beginnings of constants are
 * refused: they end before the rows that a cache needs. What is computed from other forms still
 * depends on the place of a token in its call, and is refused by whoever asks afterwards. */
#include <string.h>

#include "passes/insert_kv.h"

/* Is it one integer, and that one? */
static bool is_number(const ir_value *value, int64_t wanted) {
    int64_t n, count;
    return value && ir_const_ints(value, 1, &n, &count) && count == 1 && n == wanted;
}

static bool is_length(const ir_value *value, const ir_dim *rows) {
    return value && value->n_elements == 1 && value->elements && value->elements[0] == rows;
}

/* 0, 1, 2, ... in a constant [N] or [1,N]; its rank, 0: it is none. */
static int counts_up(const ir_value *value) {
    const gqac_tensor *t = pass_constant(value);
    if (!t || t->rank < 1 || t->rank > 2 || (t->rank == 2 && t->dims[0] != 1) ||
        t->dtype != GQAC_I64)
        return 0;
    const int64_t *data = t->data;
    for (int64_t i = 0; i < t->dims[t->rank - 1]; i++)
        if (data[i] != i)
            return 0;
    return t->rank;
}

/* Are rows of a table that these positions choose only added to [B,S,M]? Then they may as well be
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

static bool is_range(const ir_node *node, const ir_dim *rows) {
    return op_is(node, "", "Range") && node->outputs[0]->type.dtype == GQAC_I64 &&
           is_number(node->inputs[0].value, 0) && is_length(node->inputs[1].value, rows) &&
           is_number(node->inputs[2].value, 1);
}

/* [1,S] or [S] of positions that the node makes; NULL when it does something else. */
static ir_value *positions_of(const ir_node *node, const ir_dim *rows) {
    ir_value *made = node->outputs[0];
    if (is_range(node, rows) && only_chooses(made))
        return made;
    if (op_is(node, "", "Unsqueeze") && is_number(ir_node_input(node, 1), 0)) {
        const ir_node *range = node->inputs[0].value->def;
        return range && is_range(range, rows) ? made : NULL;
    }
    if (!op_is(node, "", "Slice"))
        return NULL;
    const int rank = counts_up(node->inputs[0].value);
    const bool first = is_number(ir_node_input(node, 1), 0) &&
                       is_length(ir_node_input(node, 2), rows) &&
                       is_number(ir_node_input(node, 3), rank - 1) &&
                       (!ir_node_input(node, 4) || is_number(ir_node_input(node, 4), 1));
    return first && (rank == 2 || (rank == 1 && only_chooses(made))) ? made : NULL;
}

/* The beginning of a table, which ends where the call does. */
static bool is_beginning(const ir_node *node, const ir_dim *rows) {
    return op_is(node, "", "Slice") && node->inputs[0].value->constant &&
           is_length(ir_node_input(node, 2), rows);
}

static ir_value *find_input(ir_graph *graph, const ir_dim *batch, const ir_dim *rows) {
    for (int i = 0; i < graph->n_inputs; i++)
        if (!strcmp(graph->inputs[i]->name, "position_ids"))
            return NULL; /* the model has one, and counts besides: not ours to join */
    const ir_dim *dims[2] = {batch, rows};
    const ir_type type = ir_type_make(graph->module, GQAC_I64, 2, dims);
    return type.rank < 0 ? NULL : ir_graph_add_input(graph, "position_ids", type);
}

gqac_status insert_positions(ir_graph *graph, const ir_dim *batch, const ir_dim *rows,
                             gqac_diag *diag) {
    ir_value *input = NULL;
    for (ir_node *node = graph->first; node; node = node->next) {
        if (!node->outputs[0] || ir_value_unused(node->outputs[0]))
            continue;
        ir_value *counted = positions_of(node, rows);
        if (counted && !input)
            input = find_input(graph, batch, rows);
        if (counted && input)
            ir_value_replace(counted, input);
        else if (is_beginning(node, rows))
            return pass_fail(node, diag, GQAC_UNSUPPORTED,
                             "this depends on the number or the place of the tokens in a call");
    }
    return GQAC_OK;
}
