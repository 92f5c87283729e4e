/* Reads of the shape of pasts. The batch size is read from the token ids instead. Positions that
 * are counted from the rows of the past become position_ids, which the run time fills for each
 * token of each sequence, as i64. stateful_inputs refuses what is left. */
#include <string.h>

#include "ops/build.h"
#include "ops/shared.h"
#include "passes/stateful.h"

enum { SEEN = 1 }; /* ir_node.mark */

/* ---- the batch ----------------------------------------------------------- */

static bool is_number(const ir_value *value, const ir_dim *dim) {
    return value && dim && value->elements && value->n_elements == 1 && value->elements[0] == dim &&
           value->type.dtype == GQAC_I64 && value->type.rank >= 0 && value->type.rank <= 1;
}

/* Replaces a value that is dim `axis` of the ids by a read of the ids. */
static gqac_status ask_ids(const stateful *s, ir_value *ids, int axis, ir_value *value) {
    ir_node *node = value->def, *prev = node->prev;
    ir_builder b = {.graph = node->graph, .before = node, .diag = s->context->diag};
    ir_value *by =
        value->type.rank ? op_build_lengths(&b, ids, axis, 1) : op_build_length(&b, ids, axis);
    GQAC_TRY(b.status);
    GQAC_TRY(pass_settle(node, prev, s->context->diag));
    ir_value_replace(value, by);
    s->context->changed++;
    return GQAC_OK;
}

static bool asks_past(const ir_node *node) {
    if (node->mark & SEEN)
        return true;
    const ir_value *x = ir_node_input(node, 0);
    return op_is(node, "", "Shape") && x && !x->def && !x->constant && x->id == STATEFUL_PAST;
}

/* Visits the values that are computed from the shape of a past, in order. */
static gqac_status ask_all(const stateful *s, ir_value *ids) {
    ir_node *next;
    for (ir_node *node = s->graph->first; node; node = node->next)
        node->mark = 0;
    for (ir_node *node = s->graph->first; node; node = next) {
        next = node->next;
        if (!asks_past(node) || node->n_outputs != 1 || !node->outputs[0]->elements)
            continue;
        ir_value *value = node->outputs[0];
        bool asked = false;
        for (int axis = 0; axis < 2 && !asked; axis++) {
            asked = is_number(value, ids->type.dims[axis]);
            if (asked)
                GQAC_TRY(ask_ids(s, ids, axis, value));
        }
        for (ir_use *use = value->uses; use; use = use->next)
            use->node->mark |= SEEN;
    }
    return GQAC_OK;
}

/* ---- places -------------------------------------------------------------- */

static bool is_past_rows(const stateful *s, const ir_dim *dim) {
    for (int i = 0; i < s->n_pairs; i++)
        if (dim && s->pairs[i].past->type.rank == 4 && s->pairs[i].past->type.dims[2] == dim)
            return true;
    return false;
}

static bool counts_from(const ir_node *range, const ir_dim **start) {
    const ir_dim *step;
    int64_t one;
    return op_is(range, "", "Range") && op_elements(range, 0, 1, start) == 1 &&
           op_elements(range, 2, 1, &step) == 1 && ir_dim_is_const(step, &one) && one == 1;
}

/* past, past + 1, ... for each of `rows` tokens */
static bool is_position(const stateful *s, const ir_node *node, const ir_dim *rows) {
    const ir_dim *start, *past;
    int64_t zero;
    const ir_type *type = &node->outputs[0]->type;
    if (type->rank != 1 || type->dims[0] != rows || !rows)
        return false;
    if (counts_from(node, &start))
        return is_past_rows(s, start);
    for (int i = 0; i < 2 && op_is(node, "", "Add"); i++) {
        const ir_value *range = ir_node_input(node, i);
        if (range && range->def && counts_from(range->def, &start) &&
            ir_dim_is_const(start, &zero) && !zero && op_elements(node, 1 - i, 1, &past) == 1)
            return is_past_rows(s, past);
    }
    return false;
}

static gqac_status add_positions(const stateful *s, const ir_value *ids, ir_value **out) {
    for (int i = 0; i < s->graph->n_inputs; i++)
        if (!strcmp(s->graph->inputs[i]->name, "position_ids")) {
            *out = s->graph->inputs[i];
            return GQAC_OK;
        }
    *out = ir_graph_add_input(s->graph, "position_ids",
                              ir_type_make(s->context->module, GQAC_I64, 2, ids->type.dims));
    return *out ? GQAC_OK : gqac_diag_oom(s->context->diag, "an input");
}

/* Unsqueeze of axis 0: the same positions for all batch rows. */
static bool is_for_batch(const ir_node *node) {
    int64_t axis, n;
    return op_is(node, "", "Unsqueeze") && ir_const_ints(ir_node_input(node, 1), 1, &axis, &n) &&
           n == 1 && axis == 0;
}

static gqac_status use_positions(const stateful *s, const ir_value *ids) {
    for (ir_node *node = s->graph->first; node; node = node->next) {
        if (node->n_outputs != 1 || !is_position(s, node, ids->type.dims[1]))
            continue;
        ir_use *next;
        for (ir_use *use = node->outputs[0]->uses; use; use = next) {
            ir_value *positions;
            next = use->next;
            if (!is_for_batch(use->node))
                continue;
            GQAC_TRY(add_positions(s, ids, &positions));
            ir_value_replace(use->node->outputs[0], positions);
            s->context->changed++;
        }
    }
    return GQAC_OK;
}

/* The run time fills positions as i64: a file that has them as i32 gets a Cast. */
static gqac_status widen_positions(const stateful *s) {
    ir_value *input = pass_input(s->graph, "position_ids");
    if (!input || input->type.dtype != GQAC_I32)
        return GQAC_OK;
    ir_builder b = {.graph = s->graph, .before = s->graph->first, .diag = s->context->diag};
    input->type.dtype = GQAC_I64;
    ir_value *narrow = op_build_cast(&b, input, GQAC_I32);
    GQAC_TRY(b.status);
    GQAC_TRY(op_infer(narrow->def, b.diag));
    ir_value_replace(input, narrow);
    ir_node_set_input(narrow->def, 0, input);
    s->context->changed++;
    return GQAC_OK;
}

/* A rotary that counts from one number would count again in each call. */
static gqac_status check_starts(const stateful *s) {
    int64_t one;
    for (ir_node *node = s->graph->first; node; node = node->next) {
        const ir_value *start =
            op_is(node, "gqac", "rotary") ? ir_node_operand(node, "position_ids") : NULL;
        if (start && start->type.rank == 1 && ir_dim_is_const(start->type.dims[0], &one))
            return pass_refuse(node, s->context->diag,
                               "positions are counted from a number that is not known to be that "
                               "of the cached rows",
                               "in a sequence, position_ids of RotaryEmbedding must be a graph "
                               "input, the number of cached rows, or the position of each token",
                               "`gqac run` runs the graph as exported");
    }
    return GQAC_OK;
}

/* ---- all of it ----------------------------------------------------------- */

gqac_status stateful_shapes(stateful *s) {
    ir_value *ids = pass_tokens(s->graph);
    GQAC_TRY(widen_positions(s));
    if (!ids)
        return GQAC_OK;
    GQAC_TRY(check_starts(s));
    GQAC_TRY(ask_all(s, ids));
    pass_sweep(s->context->module);
    GQAC_TRY(use_positions(s, ids));
    pass_sweep(s->context->module);
    /* positions now have a row for each sequence of the batch */
    for (ir_node *node = s->graph->first; node; node = node->next)
        GQAC_TRY(pass_infer_node(node, s->context->diag));
    return GQAC_OK;
}
