/* Positions that a file computes, from lengths or by counting the ones of the attention mask. In a
 * sequence they become position_ids, which the run time fills for each token. A value is replaced
 * if each of its elements is proven to be the position of its token, possibly plus a constant.
 * Masks compare such values, so they are read before. */
#include "ops/build.h"
#include "ops/shared.h"
#include "passes/raise_index.h"

/* The first input that is a growing past [B,H,P,D]. */
static const ir_value *find_past(const ir_graph *graph) {
    int64_t n;
    for (int i = 0; i < graph->n_inputs; i++) {
        const ir_value *input = graph->inputs[i];
        if (input->type.rank == 4 && pass_is_past(input) && input->type.dims[2] &&
            !ir_dim_is_const(input->type.dims[2], &n))
            return input;
    }
    return NULL;
}

/* True for a Slice of one axis up to its end. */
static bool to_the_end(const reader *e, const ir_node *node) {
    const ir_dim *end, *length;
    int64_t n;
    if (!node || !op_is(node, "", "Slice") || op_elements(node, 2, 1, &end) != 1)
        return false;
    length = ir_node_input(node, 0)->type.dims[1];
    return (ir_dim_is_const(end, &n) && n >= INT32_MAX) ||
           (length && settled(e, end) == settled(e, length));
}

/* True if no reader of a value [1,S] would misread it when it has a row for each sequence.
 */
static bool takes_batch(const ir_value *value) {
    for (const ir_use *use = value->uses; use; use = use->next) {
        const int operand = (int)(use - use->node->inputs);
        int64_t axes[GQAC_MAX_RANK], n;
        bool good = op_is(use->node, "", "Cast") || op_is(use->node, "", "Expand") ||
                    op_is(use->node, "", "RotaryEmbedding") ||
                    op_is(use->node, "com.microsoft", "RotaryEmbedding") ||
                    (op_is(use->node, "", "Gather") && operand == 1);
        if (op_is(use->node, "", "Unsqueeze") && !operand)
            good = ir_const_ints(ir_node_input(use->node, 1), GQAC_MAX_RANK, axes, &n) && n == 1 &&
                   axes[0] > 0;
        if (!good)
            return false;
    }
    return true;
}

static bool is_counted(raise *r, ir_value *value, const ir_type *q, const ir_value *past,
                       int64_t *offset) {
    const ir_type *type = &value->type;
    ir_dims *dims = r->context->module->dims;
    reader e;
    term found;
    if (type->rank != 2 || value->constant || !OP_IN(OP_INDICES, type->dtype) || !type->dims[0] ||
        (type->dims[0] != q->dims[0] && !(is_one(type->dims[0]) && takes_batch(value))) ||
        !raise_open(&e, r, q, past, ir_dim_add(dims, past->type.dims[2], q->dims[2])))
        return false;
    const ir_dim *index[] = {is_one(type->dims[0]) ? number(&e, 0) : e.at[B], e.at[Q]};
    if ((!type->dims[1] || settled(&e, type->dims[1]) != q->dims[2]) && !to_the_end(&e, value->def))
        return false;
    const ir_dim *position = ir_dim_add(dims, e.cached, e.at[Q]);
    return raise_element(&e, value, index, &found) && found.kind == TERM_INT &&
           ir_dim_is_const(ir_dim_sub(dims, found.number, position), offset);
}

/* ---- the position of the first token ---------------------------------------- */

enum { POSITION_IDS = 1 }; /* operand of RotaryEmbedding (com.microsoft) */

/* True for a RotaryEmbedding that counts from one number, the position of the first new token. */
static bool counts_itself(const ir_node *node) {
    const ir_value *start = ir_node_input(node, POSITION_IDS);
    return op_is(node, "com.microsoft", "RotaryEmbedding") && !start->constant &&
           start->type.rank == 1 && raise_dim(start, 0) == 1;
}

/* True for a graph input that only such nodes read. */
static bool is_start(const ir_value *value) {
    for (const ir_use *use = value->uses; use; use = use->next)
        if (!counts_itself(use->node) || use != &use->node->inputs[POSITION_IDS])
            return false;
    return !value->def;
}

/* True for the number of cached rows. */
static bool is_cached(raise *r, ir_value *value, const ir_type *q, const ir_value *past) {
    reader e;
    term found;
    if (!past || !raise_open(&e, r, q, past,
                             ir_dim_add(r->context->module->dims, past->type.dims[2], q->dims[2])))
        return false;
    return raise_element(&e, value, (const ir_dim *[]){number(&e, 0)}, &found) &&
           found.kind == TERM_INT && found.number == e.cached;
}

/* Lets a RotaryEmbedding that counts from the number of cached rows, or from a graph input, read
 * position_ids. */
static gqac_status raise_starts(raise *r, const ir_type *q, const ir_value *past) {
    ir_graph *graph = r->context->module->graph;
    for (ir_node *node = graph->first; node; node = node->next) {
        ir_value *start = counts_itself(node) ? ir_node_input(node, POSITION_IDS) : NULL;
        const bool input = start && is_start(start);
        if (!start || (!input && !is_cached(r, start, q, past)))
            continue;
        if (input && start == pass_input(graph, "position_ids")) {
            const ir_dim *dims[] = {q->dims[0], q->dims[2]};
            start->type = ir_type_make(r->context->module, start->type.dtype, 2, dims);
            if (start->type.rank < 0)
                return gqac_diag_oom(r->b.diag, "an input");
        }
        ir_value *positions = raise_position_ids(r);
        GQAC_TRY(r->b.status);
        if (!positions || positions->type.dtype != start->type.dtype)
            return GQAC_OK; /* stateful reports what is not known */
        ir_node_set_input(node, POSITION_IDS, positions);
        r->context->changed++;
    }
    return GQAC_OK;
}

/* ---- all of it ---------------------------------------------------------------- */

gqac_status raise_counted(raise *r) {
    ir_graph *graph = r->context->module->graph;
    const ir_value *ids = pass_tokens(graph), *past = find_past(graph);
    int64_t offset;
    bool any = false;
    if (!ids || !ids->type.dims[0] || !ids->type.dims[1])
        return GQAC_OK;
    const ir_dim *one = ir_dim_const(r->context->module->dims, 1);
    const ir_dim *dims[] = {ids->type.dims[0], one, ids->type.dims[1], one};
    const ir_type q = {.dtype = GQAC_F32, .rank = 4, .dims = dims};
    GQAC_TRY(raise_starts(r, &q, past));
    for (ir_node *node = past ? graph->first : NULL, *next; node; node = next) {
        next = node->next;
        if (any) /* positions now have a row for each sequence of the batch */
            GQAC_TRY(pass_infer_node(node, r->b.diag));
        if (node->n_outputs != 1 || !is_counted(r, node->outputs[0], &q, past, &offset))
            continue;
        ir_builder b = {.graph = graph, .before = node, .diag = r->b.diag};
        ir_node *prev = node->prev;
        ir_value *positions = raise_position_ids(r);
        GQAC_TRY(r->b.status);
        if (!positions)
            return GQAC_OK; /* stateful reports the node that reads the mask or a past */
        if (positions->type.dtype != GQAC_I64)
            positions = op_build_cast(&b, positions, GQAC_I64);
        if (offset)
            positions = OP_BUILD(&b, "Add", .in = {positions, ir_build_i64s(&b, 1, &offset)});
        if (node->outputs[0]->type.dtype != GQAC_I64)
            positions = op_build_cast(&b, positions, node->outputs[0]->type.dtype);
        GQAC_TRY(raise_put_positions(r, &b, node, prev, positions));
        any = true;
    }
    return GQAC_OK;
}
