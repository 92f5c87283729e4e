/* Prepares pasts for the passes that make sequence state of them. */
#include "ops/build.h"
#include "passes/raise.h"

/* True if `past` is one, and what the Concat appends has its rank. */
static bool appends(const ir_node *concat, const ir_value *past) {
    return past && !past->def && !past->constant && past->graph == concat->graph &&
           pass_names_past(past) && ir_node_input(concat, 1)->type.rank == past->type.rank;
}

/* ---- batches of heads ---------------------------------------------------- */

/* A past [B*H,..] has a length of its own in the file. The new rows tell which multiple of B it is.
 */
static gqac_status count_heads(pass_context *context, const ir_dim *batch, const ir_node *concat,
                               bool *changed) {
    ir_value *past = ir_node_input(concat, 0);
    const ir_type *rows = &ir_node_input(concat, 1)->type;
    int64_t heads;
    if (!appends(concat, past) || rows->rank != 3 || past->type.dims[0] == rows->dims[0] ||
        !ir_dim_is_const(ir_dim_div_exact(context->module->dims, rows->dims[0], batch), &heads))
        return GQAC_OK;
    const ir_dim *dims[] = {rows->dims[0], past->type.dims[1], past->type.dims[2]};
    past->type = ir_type_make(context->module, past->type.dtype, 3, dims);
    *changed = true;
    return past->type.rank == 3 ? GQAC_OK : gqac_diag_oom(context->diag, "KV state");
}

/* ---- transposed pasts ---------------------------------------------------- */

/* Some pasts are transposed before new rows are appended, as keys of GPT-2 in transformers 4.0:
 *
 *     c = Concat(Transpose(past), new)
 *
 * becomes the Transpose of a Concat on the past itself, to which the new rows are transposed back.
 * A present that was transposed back from c is then that Concat. */

/* The Transpose of a past that new rows are appended to; NULL: the node is something else. */
static const ir_node *turned_past(const ir_node *concat, int64_t *inverse) {
    const ir_node *turn = raise_maker(ir_node_input(concat, 0), "Transpose");
    const ir_value *past = turn ? ir_node_input(turn, 0) : NULL;
    const ir_attr *perm = turn ? ir_attr_get(turn, "perm") : NULL;
    if (!appends(concat, past) || !perm->set || past->type.rank != (int)perm->count)
        return NULL;
    for (size_t i = 0; i < perm->count; i++)
        inverse[perm->ints[i]] = (int64_t)i;
    return turn;
}

/* Lets Transposes of `turned` by `perm` be what it was transposed from. */
static void turn_back(const ir_value *turned, int rank, const int64_t *perm, ir_value *from) {
    for (ir_use *use = turned->uses, *next; use; use = next) {
        next = use->next;
        if (op_is(use->node, "", "Transpose") && raise_is_perm(use->node, rank, perm))
            ir_value_replace(use->node->outputs[0], from);
    }
}

static gqac_status append_first(pass_context *context, ir_node *concat, const ir_node *turn,
                                const int64_t *inverse) {
    ir_builder b = {.graph = concat->graph, .before = concat, .diag = context->diag};
    ir_node *prev = concat->prev;
    ir_value *past = ir_node_input(turn, 0);
    const int rank = past->type.rank;
    const int64_t *perm = ir_attr_get(turn, "perm")->ints, axis = ir_attr_int(concat, "axis");
    ir_value *rows = op_build_transpose(&b, ir_node_input(concat, 1), rank, inverse);
    ir_value *both = OP_BUILD(&b, "Concat", .in = {past, rows},
                              .ints = {{"axis", perm[axis + (axis < 0 ? rank : 0)]}});
    ir_value *turned = op_build_transpose(&b, both, rank, perm);
    GQAC_TRY(b.status);
    GQAC_TRY(pass_settle(concat, prev, b.diag));
    ir_value_replace(concat->outputs[0], turned);
    turn_back(turned, rank, inverse, both);
    context->changed++;
    return GQAC_OK;
}

/* ---- all of it ----------------------------------------------------------- */

static bool is_pair(const ir_node *node) {
    return op_is(node, "", "Concat") && node->n_inputs == 2;
}

gqac_status raise_pasts(pass_context *context) {
    ir_graph *graph = context->module->graph;
    const ir_value *tokens = pass_tokens(graph);
    int64_t inverse[GQAC_MAX_RANK];
    bool changed = false;
    for (ir_node *node = graph->first; node; node = node->next) {
        const ir_node *turn = is_pair(node) ? turned_past(node, inverse) : NULL;
        if (turn)
            GQAC_TRY(append_first(context, node, turn, inverse));
        else if (is_pair(node) && tokens)
            GQAC_TRY(count_heads(context, tokens->type.dims[0], node, &changed));
    }
    return changed ? pass_infer_again(graph, context->diag) : GQAC_OK;
}
