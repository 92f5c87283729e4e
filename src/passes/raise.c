/* raise: replaces patterns of simple ops that a tracer wrote out by the ONNX op that means the
 * same, so that traced exports reach the same kernels as others. Nodes are visited in order, so the
 * rotary embeddings of an attention are raised before it. Nodes of a pattern that are no longer
 * read are swept.
 *
 * A pattern is raised only if it is proven that both mean the same in every call for which the
 * model was exported: masks are read element by element (raise_element.c), and shapes are compared
 * as polynomials. A pattern that nearly matches is reported with the node that prevented
 * raising. */
#include "passes/raise.h"
#include "ops/build.h"

#include <math.h>
#include <string.h>

#include "ops/shared.h"

/* ---- matching ------------------------------------------------------------ */

ir_node *raise_maker(const ir_value *value, const char *op) {
    ir_node *def = value ? value->def : NULL;
    return def && op_is(def, "", op) ? def : NULL;
}

bool raise_scalar(const ir_value *value, double *x) {
    const gqac_tensor *t = pass_constant(value);
    if (!t || gqac_tensor_count(t) != 1 || !OP_IN(OP_FLOATS, t->dtype))
        return false;
    *x = (double)op_get_f32(t, 0);
    return true;
}

bool raise_near(double x, double wanted) {
    return fabs(x - wanted) <= 2.5e-7 * fabs(wanted);
}

ir_value *raise_beside_scalar(const ir_node *node, double *x) {
    for (int i = 0; i < 2; i++)
        if (raise_scalar(ir_node_input(node, i), x))
            return ir_node_input(node, 1 - i);
    return NULL;
}

ir_value *raise_unscaled(ir_value *value, double *factor) {
    enum { MOST = 8 }; /* tracers write three scalings at most */
    double x;
    for (int i = 0; i < MOST; i++) {
        const ir_node *mul = raise_maker(value, "Mul"), *div = raise_maker(value, "Div");
        ir_value *inner = mul ? raise_beside_scalar(mul, &x) : NULL;
        if (div && raise_scalar(ir_node_input(div, 1), &x)) {
            inner = ir_node_input(div, 0);
            x = 1 / x;
        }
        if (!inner || inner->constant || inner->type.rank != value->type.rank)
            return value;
        *factor *= x;
        value = inner;
    }
    return value;
}

int64_t raise_dim(const ir_value *value, int axis) {
    int64_t n;
    const ir_type *t = &value->type;
    return axis < t->rank && ir_dim_is_const(t->dims[axis], &n) ? n : 0;
}

bool raise_is_perm(const ir_node *transpose, int n, const int64_t *perm) {
    const ir_attr *attr = ir_attr_get(transpose, "perm");
    return attr->set && attr->count == (size_t)n &&
           memcmp(attr->ints, perm, (size_t)n * sizeof *perm) == 0;
}

bool raise_stopped(raise *r, const ir_node *node, const char *why) {
    if (!r->stop) {
        r->stop = node;
        r->why = why;
    }
    return false;
}

/* ---- building ------------------------------------------------------------ */

ir_value *raise_pack(raise *r, ir_value *x) {
    const int64_t width = raise_dim(x, 1) * raise_dim(x, 3);
    return OP_RESHAPE(&r->b, OP_TRANSPOSE(&r->b, x, 0, 2, 1, 3), 0, 0, width);
}

ir_value *raise_unpack(raise *r, ir_value *x, int64_t heads, int64_t size) {
    return OP_TRANSPOSE(&r->b, OP_RESHAPE(&r->b, x, 0, 0, heads, size), 0, 2, 1, 3);
}

ir_value *raise_ask_dim(raise *r, ir_value *x, int axis) {
    const ir_graph *graph = r->context->module->graph;
    const ir_dim *dim = x->type.dims[axis];
    for (int i = graph->n_inputs - 1; i >= 0 && dim; i--)
        for (int k = 0; k < graph->inputs[i]->type.rank; k++)
            if (graph->inputs[i]->type.dims[k] == dim) {
                x = graph->inputs[i];
                axis = k;
            }
    return op_build_lengths(&r->b, x, axis, 1);
}

ir_value *raise_expand(raise *r, ir_value *x, int n, ir_value *const *lengths) {
    ir_value *shape = op_build_concat(&r->b, 0, n, lengths);
    return OP_BUILD(&r->b, "Expand", .in = {x, shape});
}

ir_value *raise_again(ir_builder *b, const ir_node *node, const ir_value *old, ir_value *by) {
    ir_value *in[OP_LINE_INPUTS];
    char name[64];
    for (int i = 0; i < node->n_inputs && i < OP_LINE_INPUTS; i++)
        in[i] = ir_node_input(node, i) == old ? by : ir_node_input(node, i);
    return op_build_line(b, ir_node_op_name(node, name, sizeof name),
                         &(op_line){.list = {node->n_inputs, in}, .of = node});
}

void raise_also(raise *r, ir_value *old, ir_value *by, bool returned) {
    if (!old || !by)
        return;
    r->also[r->n_also].old = old;
    r->also[r->n_also].by = by;
    r->also[r->n_also++].returned = returned;
}

/* ---- the walk ------------------------------------------------------------ */

static ir_value *raise_parts(raise *r, ir_node *node) {
    ir_value *y = NULL;
    op_of(node)->expand(&r->b, node, &r->context->options, &y);
    return y;
}

/* Splits a product that has Transposes or a factor in it: an optimiser has fused them, or it is an
 * Einsum of heads. */
static ir_value *raise_fused(raise *r, ir_node *product) {
    const bool einsum = op_is(product, "", "Einsum");
    for (int i = 0; i < 2; i++) {
        const ir_value *x = ir_node_input(product, i);
        if (!x || x->constant || (einsum && (product->n_inputs > 2 || x->type.rank != 4)))
            return NULL;
    }
    return raise_parts(r, product);
}

static const struct rule {
    const char *domain, *op;
    ir_value *(*apply)(raise *r, ir_node *node);
    /* The passes that apply it; LEFT: by unpad too, if raise has run. */
    enum { RAISE = 1, UNPAD = 2, LEFT = 4 } in;
} rules[] = {
    {"com.microsoft", "DequantizeLinear", raise_parts, RAISE},
    {"com.microsoft", "FusedGemm", raise_parts, RAISE},
    {"com.microsoft", "FusedMatMul", raise_fused, RAISE},
    {"", "Einsum", raise_fused, RAISE},
    {"", "Transpose", raise_angles, RAISE},
    {"", "Mul", raise_activation, RAISE},
    {"", "Mul", raise_norm, RAISE},
    {"", "Add", raise_rotary, RAISE},
    {"", "Add", raise_interleaved, RAISE},
    {"", "Add", raise_norm_bias, RAISE},
    {"", "MatMul", raise_outer, RAISE},
    {"", "Where", raise_bounded, RAISE},
    {"", "MatMul", raise_attention, RAISE | LEFT},
    {"", "Attention", raise_cached, RAISE},
    {"", "Attention", raise_written, UNPAD},
    {"", "Attention", raise_masked, RAISE | UNPAD},
    {"com.microsoft", "MultiHeadAttention", raise_multi_head, UNPAD},
    {"com.microsoft", "MultiHeadAttention", raise_causal, UNPAD},
    {"com.microsoft", "GroupQueryAttention", raise_causal, UNPAD},
    {"", "Reshape", raise_length, UNPAD},
};

static gqac_status note(const raise *r, const char *what, const ir_node *node, const ir_node *stop,
                        const char *why) {
    gqac_arena *arena = r->context->module->arena;
    pass_note *made = GQAC_ARENA_NEW(arena, pass_note), *last = r->context->last_note;
    if (!made)
        return gqac_diag_oom(r->context->diag, "a note");
    *made = (pass_note){.what = what,
                        .node = ir_node_label(node),
                        .stop = ir_node_label(stop),
                        .op = stop->op->name,
                        .why = why};
    *(last ? &last->next : &r->context->notes) = made;
    r->context->last_note = made;
    return GQAC_OK;
}

typedef struct walk {
    pass_context *context;
    bool portable, unpadded;
    unsigned rules; /* the rules in any of these are applied */
    bool stale;     /* a raised op has lengths that were not known before */
    int steps;
    raise_unread unread[2];
    raise_rows rows_together;
    raise_writes writes;
} walk;

/* True if b may replace a. Unknown lengths count as equal to any other. */
static bool same_type(const raise *r, const ir_value *a, const ir_value *b) {
    bool same = a->type.dtype == b->type.dtype && a->type.rank == b->type.rank;
    int64_t n;
    for (int i = 0; same && i < a->type.rank; i++) {
        const ir_dim *x = a->type.dims[i], *y = b->type.dims[i];
        same = !x || !y || x == y || (x == r->rows && y == r->queries && !ir_dim_is_const(y, &n));
    }
    return same;
}

static bool all_same_types(const raise *r, const ir_node *node, const ir_value *by) {
    bool same = same_type(r, node->outputs[0], by);
    for (int i = 0; i < r->n_also; i++)
        same = same && same_type(r, r->also[i].old, r->also[i].by);
    return same;
}

static void replace_all(const raise *r, const ir_node *node, ir_value *by) {
    ir_node *ret = node->graph->ret;
    ir_value_replace(node->outputs[0], by);
    for (int i = 0; i < r->n_also; i++) {
        if (!r->also[i].returned)
            ir_value_replace(r->also[i].old, r->also[i].by);
        for (int k = 0; r->also[i].returned && k < ret->n_inputs; k++)
            if (ret->inputs[k].value == r->also[i].old)
                ir_node_set_input(ret, k, r->also[i].by);
    }
}

static gqac_status apply(walk *w, ir_node *node, const struct rule *rule, bool *raised) {
    pass_context *context = w->context;
    raise r = {.context = context,
               .steps = &w->steps,
               .unread = w->unread,
               .rows_together = &w->rows_together,
               .writes = &w->writes,
               .portable = w->portable,
               .unpadded = w->unpadded,
               .b = {.graph = node->graph, .before = node, .diag = context->diag}};
    ir_node *prev = node->prev;
    ir_value *by = rule->apply(&r, node);
    GQAC_TRY(r.b.status);
    if (by) {
        GQAC_TRY(pass_settle(node, prev, context->diag));
        *raised = all_same_types(&r, node, by);
        if (!*raised)
            raise_stopped(&r, node, "the op that replaces it would have another type or shape");
    }
    if (*raised) {
        replace_all(&r, node, by);
        r.stop = NULL; /* of another rule, tried before */
        r.why = NULL;
        context->changed++;
        w->stale = w->stale || r.rows != r.queries;
    }
    if (!r.what || !context->wants_notes)
        return GQAC_OK;
    GQAC_TRY(note(&r, r.what, node, r.stop ? r.stop : node, r.why));
    return *raised && r.carried_why ? note(&r, "Attention mask", node, r.carried, r.carried_why)
                                    : GQAC_OK;
}

static gqac_status visit(void *arg, ir_node *node);

/* The products that a node was split into may be those of an attention. */
static gqac_status visit_parts(void *arg, const ir_node *prev, const ir_node *node) {
    for (ir_node *part = prev ? prev->next : node->graph->first; part != node; part = part->next)
        GQAC_TRY(visit(arg, part));
    return GQAC_OK;
}

static gqac_status visit(void *arg, ir_node *node) {
    const ir_node *prev = node->prev;
    bool raised = false;
    const walk *w = arg;
    if (w->stale)
        GQAC_TRY(op_infer(node, w->context->diag));
    for (size_t i = 0; i < sizeof rules / sizeof *rules && !raised; i++)
        if (op_is(node, rules[i].domain, rules[i].op) && !ir_value_unused(node->outputs[0]) &&
            (rules[i].in & w->rules)) {
            GQAC_TRY(apply(arg, node, &rules[i], &raised));
            if (raised && rules[i].apply == raise_fused)
                GQAC_TRY(visit_parts(arg, prev, node));
        }
    return GQAC_OK;
}

static gqac_status run(pass_context *context) {
    return ir_graph_walk(context->module->graph, visit,
                         &(walk){.context = context, .rules = RAISE, .steps = RAISE_STEPS});
}

static gqac_status run_portable(pass_context *context) {
    return ir_graph_walk(
        context->module->graph, visit,
        &(walk){.context = context, .portable = true, .rules = RAISE, .steps = RAISE_STEPS});
}

static gqac_status find_positions(pass_context *context, walk *w) {
    raise r = {.context = context,
               .steps = &w->steps,
               .unread = w->unread,
               .writes = &w->writes,
               .unpadded = true,
               .b = {.diag = context->diag}};
    GQAC_TRY(raise_positions(&r));
    return raise_counted(&r);
}

static gqac_status run_unpadded(pass_context *context) {
    walk w = {.context = context, .unpadded = true, .rules = UNPAD, .steps = RAISE_STEPS};
    size_t before = context->changed;
    GQAC_TRY(pass_unjoin(context));
    GQAC_TRY(raise_multi_query(context));
    GQAC_TRY(raise_pasts(context));
    GQAC_TRY(raise_rounded(context));
    GQAC_TRY(raise_latent(context));
    if (context->changed != before) /* attention over the new caches */
        GQAC_TRY(run(context));
    if (context->facts & PASS_RAISED)
        w.rules |= LEFT;
    GQAC_TRY(ir_graph_walk(context->module->graph, visit, &w));
    before = context->changed;
    GQAC_TRY(find_positions(context, &w));
    if (context->changed == before || !(context->facts & PASS_RAISED))
        return GQAC_OK;
    GQAC_TRY(run(context)); /* what needs to know how many positions there are */
    return ir_graph_walk(context->module->graph, visit, &w);
}

const gqac_pass pass_raise = {
    .name = "raise",
    .summary = "attention, rotary, norms and activations in simple ops become one ONNX op each",
    .needs = PASS_TYPED,
    .provides = PASS_RAISED,
    .breaks = PASS_LOWERED | PASS_CLAIMED | PASS_ORDERED | PASS_PLANNED,
    .retidy = true,
    .run = run,
};

const gqac_pass pass_raise_portable = {
    .name = "raise",
    .summary = "the same for files: only what other run times know",
    .needs = PASS_TYPED,
    .breaks = PASS_LOWERED | PASS_CLAIMED | PASS_ORDERED | PASS_PLANNED,
    .retidy = true,
    .run = run_portable,
};

/* For sequences, whose rows hold no padding. Artefacts serve other calls too, so this runs after
 * the passes whose result they hold. */
const gqac_pass pass_unpad = {
    .name = "unpad",
    .summary = "the attention mask is all ones; causality and windows in masks become attributes",
    .needs = PASS_TYPED,
    .breaks = PASS_LOWERED | PASS_CLAIMED | PASS_ORDERED | PASS_PLANNED,
    .retidy = true,
    .sequences = true,
    .run = run_unpadded,
};
