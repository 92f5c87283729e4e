/* Lengths of a sequence program. Files compute them from the attention mask (sums, shapes). A
 * sequence knows them, so the graph inputs gqac.past_len and gqac.new_len (i32 [B]) replace every
 * seqlens_to_past. What then remains of the mask is its length, by which a LongRoPE If chooses its
 * tables; it becomes gqac.total_len (i64 scalar). That may only decide branches, because it may be
 * the length that the sequence will reach later. Then the mask has no uses and is removed. */
#include <string.h>

#include "ops/build.h"
#include "ops/shared.h"
#include "passes/stateful.h"

enum { SEEN = 1 }; /* ir_node.mark */

static bool is_length_op(const ir_node *node) {
    return op_is(node, "gqac", "seqlens_to_past");
}

static gqac_status add_input(const stateful *s, const char *name, ir_type type, ir_value **out) {
    *out = ir_graph_add_input(s->graph, name, type);
    if (!*out)
        return gqac_diag_oom(s->context->diag, "an input");
    if (strcmp((*out)->name, name) != 0)
        GQAC_FAIL(s->context->diag, GQAC_UNSUPPORTED, "the model already has the name '%s'", name);
    return GQAC_OK;
}

/* ---- past_len and new_len ------------------------------------------------ */

/* True if lengths may be computed from this graph input: not from the tokens or the cache. */
static bool is_length_input(const stateful *s, const ir_value *input) {
    static const char *const data[] = {"input_ids", "inputs_embeds", "position_ids", NULL};
    return input->graph == s->graph && !pass_listed(data, input->name) &&
           input->id != STATEFUL_PAST;
}

/* Visits one operand in a computation of lengths. */
static gqac_status follow(const stateful *s, const ir_node *node, const ir_value *value) {
    if (!value || value->constant)
        return GQAC_OK;
    if (value->def) {
        value->def->mark = SEEN;
        return GQAC_OK;
    }
    if (is_length_input(s, value))
        return GQAC_OK;
    op_fail(node, s->context->diag, GQAC_UNSUPPORTED,
            "the lengths of the KV cache are computed from '%s'", value->name);
    gqac_diag_rule(s->context->diag, "they may depend on the attention mask only");
    return GQAC_UNSUPPORTED;
}

/* Visits the lengths that are operands of an attention node. */
static gqac_status follow_lengths(const stateful *s, const ir_node *node) {
    if (is_length_op(node)) {
        GQAC_TRY(follow(s, node, ir_node_operand(node, "seqlens_k")));
        return follow(s, node, ir_node_operand(node, "total"));
    }
    if (node->mark & STATEFUL_PAIR && stateful_is_static(node))
        return follow(s, node, ir_node_operand(node, "write_indices"));
    if (op_is(node, "gqac", "key_range"))
        return follow(s, node, ir_node_operand(node, "valid"));
    const ir_value *mask = op_is(node, "gqac", "padding_bias") ? node->inputs[0].value : NULL;
    return mask && mask->type.rank == 1 ? follow(s, node, mask) : GQAC_OK;
}

/* Checks the nodes from which lengths are computed, backwards from every node that has some as
 * operands. */
static gqac_status check_slice(const stateful *s) {
    pass_clear_marks(s->graph);
    for (int i = 0; i < s->n_pairs; i++)
        s->pairs[i].concat->mark |= STATEFUL_PAIR;
    for (ir_node *node = s->graph->last; node; node = node->prev) {
        GQAC_TRY(follow_lengths(s, node));
        if (!(node->mark & SEEN) || op_is(node, "", "Shape")) /* the shape of a call is a length */
            continue;
        if (node->op->flags & IR_OP_EFFECT || ir_holds_graphs(node) || is_length_op(node))
            return op_fail(node, s->context->diag, GQAC_UNSUPPORTED,
                           "the lengths of the KV cache depend on this node");
        for (int i = 0; i < node->n_inputs; i++)
            GQAC_TRY(follow(s, node, node->inputs[i].value));
    }
    return GQAC_OK;
}

gqac_status stateful_lengths(stateful *s) {
    ir_node *next, *node = s->graph->first;
    GQAC_TRY(check_slice(s));
    GQAC_TRY(stateful_seqlens(s));
    const ir_dim *batch = NULL;
    const ir_value *fresh = stateful_fresh(s->pairs[0].concat);
    if (fresh && fresh->type.rank == 4)
        batch = fresh->type.dims[0];
    const ir_type type = ir_type_make(s->context->module, GQAC_I32, 1, &batch);
    if (type.rank < 0)
        return gqac_diag_oom(s->context->diag, "an input");
    GQAC_TRY(add_input(s, "gqac.past_len", type, &s->past_len));
    GQAC_TRY(add_input(s, "gqac.new_len", type, &s->new_len));
    for (; node; node = next) {
        next = node->next;
        if (!is_length_op(node))
            continue;
        if (node->outputs[0])
            ir_value_replace(node->outputs[0], s->past_len);
        if (node->outputs[1])
            ir_value_replace(node->outputs[1], s->new_len);
        if (node->n_outputs > 2 && node->outputs[2]) /* the run time numbers the tokens */
            ir_value_replace(node->outputs[2], ir_node_operand(node, "position_ids"));
        ir_node_remove(node);
    }
    return GQAC_OK;
}

/* ---- total_len ----------------------------------------------------------- */

/* A list of values to visit or to replace. */
typedef struct values {
    ir_value **list;
    int n, capacity;
} values;

static gqac_status push(const stateful *s, values *v, ir_value *value) {
    if (v->n == v->capacity) {
        const int capacity = v->capacity ? 2 * v->capacity : 64;
        ir_value **list = GQAC_ARENA_ARRAY(s->context->scratch, ir_value *, (size_t)capacity);
        if (!list)
            return gqac_diag_oom(s->context->diag, "lengths");
        if (v->n)
            memcpy(list, v->list, (size_t)v->n * sizeof *list);
        v->list = list;
        v->capacity = capacity;
    }
    v->list[v->n++] = value;
    return GQAC_OK;
}

/* The outputs of a node that may hold dims. */
static gqac_status push_outputs(const stateful *s, values *v, ir_node *node) {
    if (node->mark & SEEN || node->op->flags & (IR_OP_RETURN | IR_OP_EFFECT))
        return GQAC_OK;
    node->mark |= SEEN;
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && node->outputs[i]->elements)
            GQAC_TRY(push(s, v, node->outputs[i]));
    return GQAC_OK;
}

static bool holds_one(const ir_value *value, const ir_dim *dim) {
    return value->n_elements == 1 && value->elements[0] == dim &&
           (value->type.dtype == GQAC_I64 || value->type.dtype == GQAC_I32) &&
           (value->type.rank == 0 || value->type.rank == 1);
}

/* Values computed from the shape of `mask` alone that are its length, and no more than that. */
static gqac_status find_totals(const stateful *s, const ir_value *mask, values *totals) {
    values seen = {0};
    if (mask->type.rank != 2 || !mask->type.dims[1])
        return GQAC_OK;
    for (const ir_use *use = mask->uses; use; use = use->next)
        if (op_is(use->node, "", "Shape"))
            GQAC_TRY(push_outputs(s, &seen, use->node));
    for (int i = 0; i < seen.n; i++) {
        if (holds_one(seen.list[i], mask->type.dims[1])) {
            GQAC_TRY(push(s, totals, seen.list[i]));
            continue;
        }
        for (const ir_use *use = seen.list[i]->uses; use; use = use->next)
            GQAC_TRY(push_outputs(s, &seen, use->node));
    }
    return GQAC_OK;
}

/* total_len as the type of `value`. */
static ir_value *adapt(ir_builder *b, ir_value *total, const ir_value *value) {
    if (value->type.dtype != GQAC_I64)
        total = op_build_cast(b, total, value->type.dtype);
    return value->type.rank == 1 ? OP_RESHAPE(b, total, 1) : total;
}

static gqac_status replace_total(stateful *s, ir_value *value) {
    gqac_diag *diag = s->context->diag;
    ir_builder b = {.graph = value->graph, .before = value->def, .diag = diag};
    if (!s->total_len)
        GQAC_TRY(add_input(s, "gqac.total_len", ir_type_make(s->context->module, GQAC_I64, 0, NULL),
                           &s->total_len));
    ir_node *prev = value->def->prev;
    ir_value *by = adapt(&b, s->total_len, value);
    if (b.status != GQAC_OK)
        return b.status;
    for (ir_node *n = prev ? prev->next : value->graph->first; n != value->def; n = n->next)
        GQAC_TRY(op_infer(n, diag));
    ir_value_replace(value, by);
    return GQAC_OK;
}

/* True for an input that the run time fills. */
static bool kept(const stateful *s, const ir_value *input) {
    static const char *const names[] = {"input_ids", "inputs_embeds", "position_ids", NULL};
    return pass_listed(names, input->name) || input == s->past_len || input == s->new_len ||
           input == s->total_len;
}

static gqac_status replace_totals(stateful *s) {
    values totals = {0};
    pass_clear_marks(s->graph);
    for (int i = 0; i < s->graph->n_inputs; i++)
        if (!kept(s, s->graph->inputs[i]))
            GQAC_TRY(find_totals(s, s->graph->inputs[i], &totals));
    for (int i = 0; i < totals.n; i++)
        GQAC_TRY(replace_total(s, totals.list[i]));
    pass_sweep(s->context->module);
    return GQAC_OK;
}

/* ---- the inputs that are left -------------------------------------------- */

static bool from_total(const stateful *s, const ir_value *value) {
    return value && (value == s->total_len || (value->def && value->def->mark & SEEN));
}

/* Marks what depends on total_len, up to the conditions of branches. */
static gqac_status mark_total(void *arg, ir_node *node) {
    const stateful *s = arg;
    bool any = false;
    for (int i = 0; i < node->n_inputs; i++)
        any = any || from_total(s, node->inputs[i].value);
    if (!any || ir_holds_graphs(node)) {
        node->mark = 0;
        return GQAC_OK;
    }
    node->mark = SEEN;
    return node->op->flags & IR_OP_RETURN ? GQAC_MISMATCH : GQAC_OK;
}

/* Finds the first node in order that reads a value; stops the walk there. */
typedef struct search {
    const ir_value *value;
    ir_node *user;
} search;

static gqac_status find_user(void *arg, ir_node *node) {
    search *f = arg;
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i].value == f->value) {
            f->user = node;
            return GQAC_MISMATCH;
        }
    return GQAC_OK;
}

static gqac_status fail_at_user(const stateful *s, const ir_value *value, const char *what) {
    search f = {.value = value};
    (void)ir_graph_walk_all(s->graph, find_user, &f);
    gqac_diag *diag = s->context->diag;
    if (f.user && !(f.user->op->flags & IR_OP_RETURN))
        op_fail(f.user, diag, GQAC_UNSUPPORTED, "%s", what);
    else
        gqac_diag_set(diag, GQAC_UNSUPPORTED, "%s", what);
    gqac_diag_rule(diag, "a sequence supplies only token ids, position_ids and lengths");
    gqac_diag_hint(diag, "`gqac run` runs the graph as exported");
    return GQAC_UNSUPPORTED;
}

static gqac_status fail_at_input(const stateful *s, const ir_value *input) {
    const char *what = gqac_arena_printf(
        s->context->scratch, "input '%.200s' is read in a way that sequences do not support",
        input->name);
    return what ? fail_at_user(s, input, what) : gqac_diag_oom(s->context->diag, "a message");
}

static bool may_be_ids(const ir_value *input) {
    return input->type.rank == 2 &&
           (input->type.dtype == GQAC_I64 || input->type.dtype == GQAC_I32);
}

/* For models with another name for token ids: the one other input of their type. */
static const ir_value *find_ids(const stateful *s) {
    const ir_value *ids = NULL;
    for (int i = 0; i < s->graph->n_inputs; i++) {
        const ir_value *input = s->graph->inputs[i];
        if (strcmp(input->name, "input_ids") == 0)
            return input;
        if (kept(s, input) || !may_be_ids(input) || ir_value_unused(input))
            continue;
        if (ids)
            return NULL;
        ids = input;
    }
    return ids;
}

gqac_status stateful_inputs(stateful *s) {
    ir_graph *graph = s->graph;
    GQAC_TRY(replace_totals(s));
    if (s->total_len && ir_graph_walk_all(graph, mark_total, s) != GQAC_OK)
        return fail_at_user(
            s, s->total_len,
            "the length of the attention mask is used for more than the choice of a branch");
    const ir_value *ids = find_ids(s);
    int n = 0;
    for (int i = 0; i < graph->n_inputs; i++) {
        ir_value *input = graph->inputs[i];
        if (kept(s, input) || input == ids)
            graph->inputs[n++] = input;
        else if (!ir_value_unused(input))
            return fail_at_input(s, input);
    }
    graph->n_inputs = n;
    return GQAC_OK;
}
