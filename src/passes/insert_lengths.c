/* Reads of the shape of masks. Masks get columns for the cached rows, so the number of tokens in a
 * call and the batch size are read from the token ids instead. */
#include "ops/build.h"
#include "ops/shared.h"
#include "passes/insert_kv.h"

enum { FROM_MASK = INSERT_DATA << 1 }; /* ir_node.mark */

static void mark_readers(const ir_graph *graph, const bool *masks) {
    for (int k = 0; k < graph->n_inputs; k++)
        for (const ir_use *use = masks[k] ? graph->inputs[k]->uses : NULL; use; use = use->next)
            use->node->mark |= FROM_MASK;
}

static bool is_from_mask(const ir_node *node) {
    bool from = (node->mark & FROM_MASK) != 0;
    for (int i = 0; i < node->n_inputs && !from; i++) {
        const ir_value *x = node->inputs[i].value;
        from = x && x->def && x->def->mark & FROM_MASK;
    }
    return from;
}

/* The axis of the ids that has that length; -1: none. */
static int axis_of(const ir_value *ids, const ir_value *length) {
    if (length->type.dtype != GQAC_I64 || length->type.rank > 1 || length->n_elements != 1 ||
        !length->elements || !length->elements[0])
        return -1;
    for (int axis = 0; axis < 2; axis++)
        if (length->elements[0] == ids->type.dims[axis])
            return axis;
    return -1;
}

/* Replaces those uses of a length on which data depend, and not only masks. */
static gqac_status ask_ids(ir_graph *graph, ir_value *ids, int axis, const ir_value *length,
                           gqac_diag *diag) {
    ir_builder b = {.graph = graph, .before = length->def->next, .diag = diag};
    ir_node *prev = length->def;
    ir_value *by = NULL;
    ir_use *next;
    for (ir_use *use = length->uses; use; use = next) {
        next = use->next;
        if (use->node->graph != graph || !(use->node->mark & INSERT_DATA))
            continue;
        if (!by) {
            by = length->type.rank ? op_build_lengths(&b, ids, axis, 1)
                                   : op_build_length(&b, ids, axis);
            GQAC_TRY(b.status);
            GQAC_TRY(pass_settle(b.before, prev, diag));
        }
        ir_node_set_input(use->node, (int)(use - use->node->inputs), by);
    }
    return GQAC_OK;
}

gqac_status insert_lengths(ir_graph *graph, ir_value *ids, const bool *masks, gqac_diag *diag) {
    mark_readers(graph, masks);
    for (ir_node *node = graph->first; node; node = node->next) {
        if (!is_from_mask(node))
            continue;
        node->mark |= FROM_MASK;
        const int axis = node->n_outputs == 1 ? axis_of(ids, node->outputs[0]) : -1;
        if (axis >= 0)
            GQAC_TRY(ask_ids(graph, ids, axis, node->outputs[0], diag));
    }
    return GQAC_OK;
}

gqac_status insert_kv_want_mask(const ir_graph *graph, const ir_value *mask, gqac_diag *diag) {
    for (const ir_use *use = mask->uses; use; use = use->next) {
        const ir_node *node = ir_node_within(use->node, graph);
        if (node == graph->ret)
            gqac_diag_set(diag, GQAC_UNSUPPORTED, "input '%s' is also a result of the model",
                          mask->name);
        else if (node && node->mark & INSERT_DATA)
            op_fail(node, diag, GQAC_UNSUPPORTED, "input '%s' is used for more than masks",
                    mask->name);
        else
            continue;
        gqac_diag_rule(diag, "with a cache it has a column for each cached token too");
        gqac_diag_hint(diag, "export the model with position_ids, or with its cache");
        return GQAC_UNSUPPORTED;
    }
    return GQAC_OK;
}
