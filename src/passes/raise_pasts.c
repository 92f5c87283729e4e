/* Prepares pasts for the passes that make sequence state of them. */
#include "ops/build.h"
#include "ops/shared.h"
#include "passes/raise.h"

/* True if `past` is one, and what the Concat appends has its rank. */
static bool appends(const ir_node *concat, const ir_value *past) {
    return past && past->graph == concat->graph && pass_is_past(past) &&
           ir_node_input(concat, 1)->type.rank == past->type.rank;
}

/* ---- batches of heads ---------------------------------------------------- */

/* Pasts [B*H,P,D] (Falcon, BLOOM) or [B*H,D,P] (keys of BLOOM) become [B,H,P,D]; the new rows tell
 * which multiple of B the first length is. What read all rows reads them in the form of the file.
 */
typedef struct folded {
    ir_value *past, *rows;
    int64_t heads, size; /* elements of a head */
    bool columns;        /* [B*H,D,P] */
} folded;

/* True if the Concat, and else only Shapes, read the past. */
static bool is_read_once(const ir_value *past, const ir_node *concat) {
    for (const ir_use *use = past->uses; use; use = use->next)
        if (use->node != concat &&
            (use->node->graph != concat->graph || !op_is(use->node, "", "Shape")))
            return false;
    return true;
}

static bool find_folded(const pass_context *context, const ir_value *tokens, const ir_node *concat,
                        folded *f) {
    f->past = ir_node_input(concat, 0);
    f->rows = ir_node_input(concat, 1);
    const ir_type *rows = &f->rows->type;
    const int64_t axis = ir_attr_int(concat, "axis");
    if (!appends(concat, f->past) || rows->rank != 3 || axis == 0 || axis == -3)
        return false;
    f->columns = axis == 2 || axis == -1;
    ir_dims *dims = context->module->dims;
    return rows->dims[f->columns ? 2 : 1] == tokens->type.dims[1] &&
           ir_dim_is_const(ir_dim_div_exact(dims, rows->dims[0], tokens->type.dims[0]),
                           &f->heads) &&
           ir_dim_is_const(rows->dims[f->columns ? 1 : 2], &f->size) && f->heads > 1 &&
           is_read_once(f->past, concat);
}

/* Lets a Shape read the lengths that the past has in the file. */
static gqac_status ask_file(const pass_context *context, ir_value *tokens, const folded *f,
                            ir_node *shape) {
    ir_builder b = {.graph = shape->graph, .before = shape, .diag = context->diag};
    ir_node *prev = shape->prev;
    ir_value *batch = op_build_lengths(&b, tokens, 0, 1), *heads = OP_I64S(&b, f->heads);
    ir_value *first = OP_BUILD(&b, "Mul", .in = {batch, heads});
    ir_value *rows = op_build_lengths(&b, f->past, 2, 1), *size = OP_I64S(&b, f->size);
    ir_value *parts[] = {first, f->columns ? size : rows, f->columns ? rows : size};
    int start, end;
    op_shape_range(shape, 3, &start, &end);
    if (start == end)
        return op_fail(shape, context->diag, GQAC_UNSUPPORTED,
                       "the node reads no length of a cache");
    ir_value *by = op_build_concat(&b, 0, end - start, parts + start);
    GQAC_TRY(b.status);
    GQAC_TRY(pass_settle(shape, prev, b.diag));
    ir_value_replace(shape->outputs[0], by);
    return GQAC_OK;
}

static ir_value *turned(ir_builder *b, const folded *f, ir_value *x) {
    return f->columns ? OP_TRANSPOSE(b, x, 0, 2, 1) : x;
}

/* Lets Reshapes of rows [B,H,T,D] to three axes, and back, be these rows. */
static void unfold_back(ir_value *rows) {
    for (ir_use *use = rows->uses; use; use = use->next) {
        const ir_value *flat =
            op_is(use->node, "", "Reshape") ? ir_node_output(use->node, 0) : NULL;
        for (ir_use *back = flat ? flat->uses : NULL, *next; back; back = next) {
            next = back->next;
            if (op_is(back->node, "", "Reshape") && pass_same_type(back->node->outputs[0], rows))
                ir_value_replace(back->node->outputs[0], rows);
        }
    }
}

static gqac_status unfold(pass_context *context, ir_value *tokens, ir_node *concat,
                          const folded *f) {
    ir_builder b = {.graph = concat->graph, .before = concat, .diag = context->diag};
    ir_node *prev = concat->prev, *ret = concat->graph->ret;
    const ir_dim *heads = ir_dim_const(context->module->dims, f->heads);
    const ir_dim *size = ir_dim_const(context->module->dims, f->size);
    const ir_dim *dims[] = {tokens->type.dims[0], heads, f->past->type.dims[f->columns ? 2 : 1],
                            size};
    const ir_type type = ir_type_make(context->module, f->past->type.dtype, 4, dims);
    if (type.rank < 0)
        return gqac_diag_oom(context->diag, "KV state");
    ir_value *batch = op_build_lengths(&b, tokens, 0, 1);
    ir_value *last = OP_I64S(&b, f->heads, -1, f->size);
    ir_value *shape = op_build_concat(&b, 0, 2, (ir_value *[]){batch, last});
    ir_value *rows = OP_BUILD(&b, "Reshape", .in = {turned(&b, f, f->rows), shape});
    f->past->type = type;
    ir_value *both = OP_BUILD(&b, "Concat", .in = {f->past, rows}, .ints = {{"axis", 2}});
    ir_value *total = op_build_lengths(&b, both, 2, 1), *front = OP_I64S(&b, -1);
    ir_value *end = OP_I64S(&b, f->size);
    shape = op_build_concat(&b, 0, 3, (ir_value *[]){front, total, end});
    ir_value *flat = OP_BUILD(&b, "Reshape", .in = {both, shape});
    ir_value *by = turned(&b, f, flat);
    GQAC_TRY(b.status);
    GQAC_TRY(pass_settle(concat, prev, b.diag));
    for (int i = 0; i < ret->n_inputs; i++)
        if (ret->inputs[i].value == concat->outputs[0])
            ir_node_set_input(ret, i, both);
    ir_value_replace(concat->outputs[0], by);
    ir_node_remove(concat);
    for (const ir_use *use = f->past->uses; use; use = use->next)
        if (op_is(use->node, "", "Shape") && !ir_value_unused(use->node->outputs[0]))
            GQAC_TRY(ask_file(context, tokens, f, use->node));
    context->changed++;
    return GQAC_OK;
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

void raise_turn_back(const ir_value *turned, int rank, const int64_t *perm, ir_value *from) {
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
    const int64_t *perm = ir_attr_get(turn, "perm")->ints;
    ir_value *rows = op_build_transpose(&b, ir_node_input(concat, 1), rank, inverse);
    ir_value *both = OP_BUILD(&b, "Concat", .in = {past, rows},
                              .ints = {{"axis", perm[pass_axis(concat, rank)]}});
    ir_value *turned = op_build_transpose(&b, both, rank, perm);
    GQAC_TRY(b.status);
    GQAC_TRY(pass_settle(concat, prev, b.diag));
    ir_value_replace(concat->outputs[0], turned);
    raise_turn_back(turned, rank, inverse, both);
    context->changed++;
    return GQAC_OK;
}

/* ---- all of it ----------------------------------------------------------- */

static bool is_pair(const ir_node *node) {
    return op_is(node, "", "Concat") && node->n_inputs == 2;
}

gqac_status raise_pasts(pass_context *context) {
    ir_graph *graph = context->module->graph;
    ir_value *tokens = pass_tokens(graph);
    int64_t inverse[GQAC_MAX_RANK];
    bool unfolded = false;
    for (ir_node *node = graph->first, *next; node; node = next) {
        next = node->next;
        const ir_node *turn = is_pair(node) ? turned_past(node, inverse) : NULL;
        folded f;
        if (turn)
            GQAC_TRY(append_first(context, node, turn, inverse));
        else if (is_pair(node) && tokens && find_folded(context, tokens, node, &f)) {
            GQAC_TRY(unfold(context, tokens, node, &f));
            unfolded = true;
        }
    }
    if (!unfolded)
        return GQAC_OK;
    GQAC_TRY(pass_infer_again(graph, context->diag));
    for (ir_node *node = graph->first; node; node = node->next)
        if (is_pair(node) && appends(node, ir_node_input(node, 0)))
            unfold_back(node->outputs[0]);
    return GQAC_OK;
}
