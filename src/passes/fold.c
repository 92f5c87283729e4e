/* fold: nodes that depend only on constants are computed now, by the op's own eval and so with the
 * same bits. Integer tensors whose symbolic elements are all constant become constants too.
 *
 * A node is not folded if its result would be large (more than FOLD_MOST, or more than FOLD_GROWTH
 * times its inputs and not small, so that weights stay quantised), if its eval fails (it may never
 * run), if it would take more work than the compilation has left, or if its row forbids it. Nodes
 * are visited in order, so one sweep folds whole chains. */
#include "passes/rewrite.h"

#include <string.h>

#include "base/check.h"
#include "ops/shared.h"

enum {
    FOLD_MOST = 64 << 20,  /* bytes of one result */
    FOLD_SMALL = 64 << 10, /* bytes of a result that is always folded */
    FOLD_GROWTH = 3,       /* less than 4: codes of a byte do not become floats */
};

typedef struct folder {
    pass_context *context;
    size_t left; /* bytes that this run may still make; limits hostile graphs */
} folder;

static const size_t fold_bytes = (size_t)1 << 30;
static const int64_t fold_work = INT64_C(2000000000); /* approximate ns in one compilation */

static gqac_status replace_by(pass_context *context, ir_value *old, const gqac_tensor *tensor) {
    ir_value *constant = ir_graph_add_constant(old->graph, old->name, tensor);
    if (!constant)
        return gqac_diag_oom(context->diag, "a folded constant");
    ir_value_replace(old, constant);
    context->changed++;
    return GQAC_OK;
}

/* ---- symbolic elements --------------------------------------------------- */

static bool constant_elements(const ir_value *value, int64_t *elements) {
    const gqac_dtype dtype = value->type.dtype;
    const int rank = value->type.rank;
    if (!value->elements || ir_value_unused(value) || value->n_elements > OP_MAX_ELEMENTS)
        return false;
    if (!OP_IN(OP_INTS | OP_BIT(BOOL), dtype) || dtype == GQAC_U64 || rank < 0 || rank > 1)
        return false;
    for (int64_t i = 0; i < value->n_elements; i++)
        if (!ir_dim_is_const(value->elements[i], &elements[i]))
            return false;
    return rank == 1 || value->n_elements == 1;
}

static gqac_status fold_elements(pass_context *context, ir_value *value) {
    int64_t elements[OP_MAX_ELEMENTS];
    gqac_tensor tensor = {.dtype = value->type.dtype, .rank = value->type.rank};
    if (!constant_elements(value, elements))
        return GQAC_OK;
    tensor.dims[0] = value->n_elements;
    tensor.data = gqac_arena_calloc(context->module->arena, 1, gqac_tensor_bytes(&tensor));
    if (!tensor.data)
        return gqac_diag_oom(context->diag, "a folded constant");
    for (int64_t i = 0; i < value->n_elements; i++) {
        op_put_i64(&tensor, i, elements[i]);
        if (op_get_i64(&tensor, i) != elements[i])
            return GQAC_OK; /* too large: left to the run time */
    }
    return replace_by(context, value, &tensor);
}

/* ---- evaluation ---------------------------------------------------------- */

static bool foldable(const ir_node *node) {
    bool used = false;
    if (node->op->flags & (IR_OP_EFFECT | IR_OP_NO_FOLD | IR_OP_RETURN))
        return false;
    if (!op_of(node)->eval || ir_holds_graphs(node))
        return false;
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i].value && !pass_constant(node->inputs[i].value))
            return false;
    for (int i = 0; i < node->n_outputs; i++)
        used = used || (node->outputs[i] && !ir_value_unused(node->outputs[i]));
    return used;
}

/* Computes the bytes of a value of that type; false: not known or out of range. */
static bool type_bytes(const ir_type *type, size_t *bytes) {
    int64_t dims[GQAC_MAX_RANK];
    if (type->dtype == GQAC_NONE || type->rank < 0)
        return false;
    for (int i = 0; i < type->rank; i++)
        if (!ir_dim_is_const(type->dims[i], &dims[i]))
            return false;
    return gqac_shape_bytes(type->dtype, type->rank, dims, bytes, NULL) == GQAC_OK;
}

/* Maximum number of bytes of a node's results. */
static size_t limit_of(const ir_node *node) {
    size_t sum = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        const gqac_tensor *t = pass_constant(node->inputs[i].value);
        if (t && !gqac_add_size(sum, gqac_tensor_bytes(t), &sum))
            return FOLD_MOST;
    }
    if (sum > FOLD_MOST / FOLD_GROWTH)
        return FOLD_MOST;
    return sum * FOLD_GROWTH > FOLD_SMALL ? sum * FOLD_GROWTH : FOLD_SMALL;
}

/* Sums the bytes of results whose size is known; *known becomes false if some sizes are not. */
static size_t results_of(const ir_node *node, bool *known) {
    size_t sum = 0, bytes;
    *known = true;
    for (int i = 0; i < node->n_outputs; i++) {
        if (!node->outputs[i])
            continue;
        if (!type_bytes(&node->outputs[i]->type, &bytes))
            *known = false;
        else if (!gqac_add_size(sum, bytes, &sum))
            return SIZE_MAX;
    }
    return sum;
}

static bool fits_type(const ir_value *value, const gqac_tensor *tensor) {
    const ir_type *type = &value->type;
    return (type->dtype == GQAC_NONE || type->dtype == tensor->dtype) &&
           (type->rank < 0 || type->rank == tensor->rank);
}

static gqac_status keep(folder *f, const ir_node *node, const gqac_tensor *results, size_t limit) {
    for (int i = 0; i < node->n_outputs; i++) {
        ir_value *value = node->outputs[i];
        if (!value || ir_value_unused(value))
            continue;
        gqac_tensor tensor = results[i];
        const size_t bytes = gqac_tensor_bytes(&tensor);
        if (bytes > limit || bytes > f->left)
            continue;
        if (!fits_type(value, &tensor))
            return op_fail(node, f->context->diag, GQAC_INTERNAL,
                           "folding %%%s returned a type that differs from the inferred one",
                           value->name);
        tensor.data = gqac_arena_copy(f->context->module->arena, tensor.data, bytes);
        if (!tensor.data)
            return gqac_diag_oom(f->context->diag, "a folded constant");
        f->left -= bytes;
        GQAC_TRY(replace_by(f->context, value, &tensor));
    }
    return GQAC_OK;
}

/* Time in ns of a node's eval, except for the work that it gives to op_parallel. */
static int64_t work_of(const ir_node *node, const gqac_tensor *const *in) {
    enum { NODE_NS = 1000, BYTES_A_NS = 4 };
    size_t bytes = 0;
    for (int i = 0; i < node->n_inputs; i++)
        bytes += in[i] ? gqac_tensor_bytes(in[i]) / BYTES_A_NS : 0;
    return NODE_NS + (bytes < SIZE_MAX / 4 ? (int64_t)bytes : fold_work);
}

static gqac_status evaluate(folder *f, const ir_node *node, size_t limit, bool known,
                            gqac_arena *scratch) {
    const gqac_tensor **in = GQAC_ARENA_ARRAY(scratch, const gqac_tensor *, (size_t)node->n_inputs);
    gqac_tensor *out = GQAC_ARENA_ARRAY(scratch, gqac_tensor, (size_t)node->n_outputs);
    gqac_diag diag = {0};
    if (!in || !out)
        return gqac_diag_oom(f->context->diag, "folding");
    for (int i = 0; i < node->n_inputs; i++)
        in[i] = pass_constant(node->inputs[i].value);
    const int64_t had = fold_work - f->context->folded;
    int64_t left = had - work_of(node, in);
    if (left < 0)
        return GQAC_OK;
    gqac_status status = op_eval_within(node, in, out, scratch, &left, &diag);
    f->context->folded += had - (left < 0 ? ~left : left);
    if (status == GQAC_OK)
        return keep(f, node, out, limit);
    /* If the size of a result was unknown, NO_MEMORY may only mean that it exceeds the budget of
     * `scratch`. */
    if (status == GQAC_INTERNAL || (status == GQAC_NO_MEMORY && known)) {
        if (f->context->diag)
            *f->context->diag = diag;
        return status;
    }
    return GQAC_OK;
}

static gqac_status fold_node(folder *f, const ir_node *node) {
    bool known;
    if (!foldable(node))
        return GQAC_OK;
    const size_t limit = limit_of(node), bytes = results_of(node, &known);
    if (bytes > limit || bytes > f->left)
        return GQAC_OK;
    const size_t operands = (size_t)(node->n_inputs + node->n_outputs) * sizeof(gqac_tensor);
    gqac_arena *scratch = gqac_arena_create(known ? 0 : limit + operands + FOLD_SMALL);
    if (!scratch)
        return gqac_diag_oom(f->context->diag, "folding");
    gqac_status status = evaluate(f, node, limit, known, scratch);
    gqac_arena_free(scratch);
    return status;
}

static gqac_status visit(void *arg, ir_node *node) {
    folder *f = arg;
    GQAC_TRY(gqac_poll_check(f->context->poll, f->context->diag));
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && !(node->op->flags & IR_OP_EFFECT))
            GQAC_TRY(fold_elements(f->context, node->outputs[i]));
    return fold_node(f, node);
}

static gqac_status run(pass_context *context) {
    folder f = {.context = context, .left = fold_bytes};
    return ir_graph_walk(context->module->graph, visit, &f);
}

const gqac_pass pass_fold = {
    .name = "fold",
    .summary = "computes nodes whose operands are constant (part of tidy)",
    .needs = PASS_TYPED,
    .breaks = PASS_ORDERED | PASS_PLANNED,
    .run = run,
};
