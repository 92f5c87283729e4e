/* Caches in other forms than [B,H,T,D], which a sequence keeps in that form.
 *
 * Caches of latent rows (multi-head latent attention, DeepSeek-V2 and V3) hold a few numbers for
 * each token, [B,1,T,R] or [B,T,R], and the model expands all cached rows to keys and values in
 * each call: a product with weights, which is split into heads, and one rotated head for all. Each
 * row depends only on its own latent row, so it can be expanded before it is cached. A sequence
 * does so: each row is expanded once, and keys and values are cached, which needs more memory.
 *
 * Caches whose axes have another order ([B,T,H,D], [T,B,H,D], [B,H,D,T]), or whose heads are one
 * axis with their elements ([B,T,H*D]), are rearranged in each call. A sequence rearranges each row
 * before it is cached.
 *
 *     C = Concat(past, new), K = f(C)   becomes   K = Concat(past', f(new))
 *
 * f is followed forward from the Concats. The last values [B,H,T,D] of f are cached if they depend
 * on weights, and else the first. */
#include "passes/raise_latent.h"

#include "ops/build.h"
#include "ops/shared.h"

enum { MOST_NAME = 256 };

/* ---- back: what is cached ------------------------------------------------ */

/* [B,H,T,D], or [B,H,D,T] as keys are multiplied. */
static bool is_cacheable(const grown *x) {
    int64_t n;
    const ir_type *type = &x->value->type;
    return type->rank == 4 && (x->axis == 2 || x->axis == 3) && x->past &&
           type->dims[0] == x->batch && ir_dim_is_const(type->dims[1], &n) &&
           ir_dim_is_const(type->dims[5 - x->axis], &n);
}

/* Lets an operand know what depends on it through the node. */
static void look_at(const latent *l, const ir_node *node, grown *x) {
    bool goes_on = false;
    for (int i = 0; i < node->n_outputs; i++) {
        const grown *y = grown_of(l, node->outputs[i]);
        if (!y)
            continue;
        goes_on = goes_on || is_cacheable(y) || y->later;
        x->weighed_later = x->weighed_later || (is_cacheable(y) && y->weighed) || y->weighed_later;
    }
    x->later = x->later || goes_on;
    x->leaves = x->leaves || !goes_on;
}

static void look_back(const latent *l) {
    for (const ir_node *node = l->graph->last; node; node = node->prev)
        for (int i = 0; i < node->n_inputs && !op_is(node, "", "Shape"); i++) {
            grown *x = grown_of(l, ir_node_input(node, i));
            if (x && node != l->graph->ret)
                look_at(l, node, x);
        }
}

/* What is cached: the last values that depend on weights, or the first [B,H,T,D] of a cache in
 * another form. */
static bool is_cut(const grown *x) {
    if (!is_cacheable(x) || (x->source && x->axis == 2))
        return false;
    return x->weighed ? x->leaves && !x->source : x->moved && !x->weighed_later && !x->after_cut;
}

/* Sets after_cut; operands come before results. */
static bool finds_cuts(const latent *l) {
    bool any = false;
    for (int i = 0; i < l->n; i++) {
        grown *x = &l->all[i];
        const ir_node *node = x->value->def;
        for (int k = 0; k < node->n_inputs; k++) {
            const grown *y = grown_of(l, ir_node_input(node, k));
            x->after_cut = x->after_cut || (y && (y->after_cut || is_cut(y)));
        }
        any = any || is_cut(x);
    }
    return any;
}

/* A cache is replaced if what is cached instead depends on it. Sets `replaced` of these caches and
 * of all that depends on them. */
static void find_replaced(const latent *l) {
    for (int i = l->n - 1; i >= 0; i--) {
        grown *x = &l->all[i];
        const ir_node *node = x->value->def;
        x->replaced = x->replaced || is_cut(x);
        for (int k = 0; x->replaced && k < node->n_inputs; k++)
            if (grown_of(l, ir_node_input(node, k)))
                grown_of(l, ir_node_input(node, k))->replaced = true;
    }
    for (int i = 0; i < l->n; i++) {
        grown *x = &l->all[i];
        const ir_node *node = x->value->def;
        for (int k = 0; k < node->n_inputs; k++) {
            const grown *y = grown_of(l, ir_node_input(node, k));
            x->replaced = x->replaced || (y && y->replaced);
        }
        if (x->source && x->replaced)
            x->past->id = -(i + 1); /* see grown_from */
    }
}

/* True if nothing else depends on the caches that are replaced. */
static bool can_replace(const latent *l) {
    for (int i = 0; i < l->n; i++) {
        const grown *x = &l->all[i];
        if (x->past && x->replaced && x->leaves && !x->after_cut && !is_cut(x))
            return false;
    }
    return true;
}

/* ---- lengths ------------------------------------------------------------- */

/* A graph input with that length; NULL: there is none. */
static ir_value *input_of(const latent *l, const ir_dim *dim, int *axis) {
    for (int i = 0; dim && i < l->graph->n_inputs; i++) {
        ir_value *input = l->graph->inputs[i];
        for (*axis = 0; *axis < input->type.rank && !grown_from(l, input); ++*axis)
            if (input->type.dims[*axis] == dim)
                return input;
    }
    return NULL;
}

/* A length as i64 [1]: of all rows, or of the new ones. NULL: no graph input has it. */
static ir_value *length(latent *l, const grown *x, const ir_dim *dim, bool all) {
    int64_t n;
    if (dim == x->total && all) {
        ir_value *cached = length(l, x, x->cached, true), *fresh = length(l, x, x->fresh, true);
        return OP_BUILD(&l->b, "Add", .in = {cached, fresh});
    }
    if (dim == x->total)
        dim = x->fresh;
    if (ir_dim_is_const(dim, &n))
        return OP_I64S(&l->b, n);
    int axis;
    ir_value *input = input_of(l, dim, &axis);
    return input ? op_build_lengths(&l->b, input, axis, 1) : NULL;
}

/* Lengths as i64 [rank]; rest: one of them may be -1. */
static ir_value *lengths(latent *l, const grown *x, const ir_type *type, bool all, bool rest) {
    ir_value *each[GQAC_MAX_RANK];
    for (int i = 0; i < type->rank && l->b.status == GQAC_OK; i++) {
        each[i] = length(l, x, type->dims[i], all);
        if (!each[i] && rest) {
            each[i] = OP_I64S(&l->b, -1);
            rest = false;
        } else if (!each[i] && l->b.status == GQAC_OK)
            l->b.status = gqac_diag_set(l->b.diag, GQAC_UNSUPPORTED,
                                        "no graph input has an axis with the length of this cache");
    }
    return op_build_concat(&l->b, 0, type->rank, each);
}

/* ---- the same values for the new rows ------------------------------------ */

static ir_value *rows_of(latent *l, grown *x);

static ir_value *operand(latent *l, const ir_node *node, int i, const grown *x) {
    static const char *const shapes[] = {"Reshape", "Expand", NULL};
    ir_value *value = ir_node_input(node, i);
    grown *y = grown_of(l, value);
    if (y)
        return rows_of(l, y);
    const bool asks = !*node->op->domain && ((i == 1 && pass_listed(shapes, node->op->name)) ||
                                             op_is(node, "", "ConstantOfShape"));
    return asks ? lengths(l, x, &node->outputs[0]->type, false, op_is(node, "", "Reshape")) : value;
}

static ir_value *rows_of(latent *l, grown *x) {
    const ir_node *node = x->value->def;
    ir_value *in[OP_LINE_INPUTS], *made[OP_LINE_OUTPUTS] = {NULL}, **out[OP_LINE_OUTPUTS] = {NULL};
    char name[MOST_NAME];
    if (x->rows || l->b.status != GQAC_OK)
        return x->rows;
    if (node->n_inputs > OP_LINE_INPUTS || node->n_outputs > OP_LINE_OUTPUTS) {
        l->b.status = op_fail(node, l->b.diag, GQAC_UNSUPPORTED,
                              "a latent cache is expanded by a node with too many operands");
        return NULL;
    }
    for (int i = 0; i < node->n_inputs; i++)
        in[i] = operand(l, node, i, x);
    for (int i = 0; i < node->n_outputs; i++)
        out[i] = node->outputs[i] ? &made[i] : NULL;
    const bool as_is = op_is(node, "", "Reshape"); /* no length is copied by 0 */
    op_build_line(&l->b, ir_node_op_name(node, name, sizeof name),
                  &(op_line){.list = {node->n_inputs, in},
                             .out = {out[0], out[1], out[2], out[3]},
                             .of = node,
                             .ints = {{as_is ? "allowzero" : NULL, 0}}});
    for (int i = 0; i < node->n_outputs; i++)
        if (grown_of(l, node->outputs[i]))
            grown_of(l, node->outputs[i])->rows = made[i];
    return x->rows;
}

/* ---- new caches ---------------------------------------------------------- */

static const char *present_of(const latent *l, const ir_value *past) {
    for (const ir_use *use = past->uses; use; use = use->next) {
        const ir_value *both = use->node->outputs ? use->node->outputs[0] : NULL;
        for (int i = 0; both && i < l->graph->ret->n_inputs; i++)
            if (l->graph->ret->inputs[i].value == both)
                return l->graph->result_names[i];
    }
    return "present";
}

/* The name of the k-th cache that replaces one: of the same numbers, or of expanded ones. */
static const char *new_name(latent *l, const grown *x, const char *name, int k) {
    const char *what = x->weighed ? ".expanded" : x->second ? ".value" : x->halved ? ".key" : "";
    return k ? gqac_arena_printf(l->context->module->arena, "%.200s%s.%d", name, what, k)
             : gqac_arena_printf(l->context->module->arena, "%.200s%s", name, what);
}

/* The past of rows [B,H,P,D]. */
static ir_value *add_past(latent *l, const grown *x, int k) {
    const ir_dim *const *old = x->value->type.dims;
    const ir_dim *dims[] = {old[0], old[1], x->cached, old[5 - x->axis]};
    const ir_type type = ir_type_make(l->context->module, x->value->type.dtype, 4, dims);
    const char *name = new_name(l, x, x->name, k);
    ir_value *past = name && type.rank == 4 ? ir_graph_add_input(l->graph, name, type) : NULL;
    if ((!past || !ir_value_take_name(past, name)) && l->b.status == GQAC_OK)
        l->b.status = gqac_diag_oom(l->b.diag, "KV state");
    return past;
}

static gqac_status add_result(latent *l, ir_value *value, const char *name) {
    pass_results r;
    if (!name || !pass_copy_results(l->context, 1, &r))
        return gqac_diag_oom(l->b.diag, "results");
    r.values[r.n] = value;
    r.names[r.n++] = name;
    return ir_graph_set_results(l->graph, r.n, r.values, r.names)
               ? GQAC_OK
               : gqac_diag_oom(l->b.diag, "results");
}

/* Lets nodes that read lengths of values that are no longer cached read them elsewhere. */
static gqac_status ask_lengths(latent *l) {
    for (ir_node *node = l->graph->first; node; node = node->next) {
        ir_value *value = op_is(node, "", "Shape") ? ir_node_input(node, 0) : NULL;
        const grown *x = value && !value->def ? grown_from(l, value) : grown_of(l, value);
        if (!x || !x->replaced ||
            (grown_of(l, value) && x->value != value)) /* it reads an expanded cache */
            continue;
        int start, end;
        op_shape_range(node, value->type.rank, &start, &end);
        if (start == end)
            continue;
        ir_node *prev = node->prev;
        l->b.before = node;
        ir_type part = value->type;
        part.dims += start;
        part.rank = end - start;
        ir_value *by = lengths(l, x, &part, true, false);
        GQAC_TRY(l->b.status);
        GQAC_TRY(pass_settle(node, prev, l->b.diag));
        ir_value_replace(node->outputs[0], by);
    }
    return GQAC_OK;
}

/* Removes the presents of latent caches from the results, and their pasts from the inputs. */
static gqac_status drop_old(latent *l) {
    pass_results r;
    int n = 0;
    if (!pass_copy_results(l->context, 0, &r))
        return gqac_diag_oom(l->b.diag, "results");
    for (int i = 0; i < r.n; i++) {
        const grown *x = grown_of(l, r.values[i]);
        if (x && x->source && x->replaced && x->value == r.values[i])
            continue;
        r.values[n] = r.values[i];
        r.names[n++] = r.names[i];
    }
    if (!ir_graph_set_results(l->graph, n, r.values, r.names))
        return gqac_diag_oom(l->b.diag, "results");
    pass_sweep(l->context->module);
    for (int i = l->graph->n_inputs - 1; i >= 0; i--)
        if (grown_from(l, l->graph->inputs[i]) && ir_value_unused(l->graph->inputs[i]))
            ir_graph_remove_input(l->graph, i);
    return GQAC_OK;
}

static gqac_status expand(latent *l, int at, int k) {
    grown *x = &l->all[at];
    ir_node *place = x->value->def, *prev = place->prev;
    const char *present = new_name(l, x, present_of(l, x->past), k);
    ir_value *past = add_past(l, x, k);
    l->b.before = place;
    ir_value *rows = rows_of(l, x);
    if (x->axis == 3)
        rows = OP_TRANSPOSE(&l->b, rows, 0, 1, 3, 2);
    ir_value *both = OP_BUILD(&l->b, "Concat", .in = {past, rows}, .ints = {{"axis", 2}});
    ir_value *by = x->axis == 3 ? OP_TRANSPOSE(&l->b, both, 0, 1, 3, 2) : both;
    GQAC_TRY(l->b.status);
    GQAC_TRY(pass_settle(place, prev, l->b.diag));
    ir_value_replace(x->value, by);
    x->value = x->source ? by : x->value; /* a result that drop_old removes */
    by->id = at + 1;                      /* it has the rows of x from now on */
    if (by != both)
        raise_turn_back(by, 4, (int64_t[]){0, 1, 3, 2}, both);
    l->context->changed++;
    return add_result(l, both, present);
}

static gqac_status expand_all(latent *l) {
    const int n = l->n;
    for (int i = 0; i < n; i++) {
        int k = 0;
        if (!is_cut(&l->all[i]))
            continue;
        for (int j = 0; j < i; j++)
            k += is_cut(&l->all[j]) && l->all[j].past == l->all[i].past &&
                 l->all[j].second == l->all[i].second;
        GQAC_TRY(expand(l, i, k));
    }
    GQAC_TRY(ask_lengths(l));
    return drop_old(l);
}

static gqac_status run(latent *l) {
    bool good = true;
    l->most = 1;
    for (int i = 0; i < l->graph->n_inputs; i++)
        l->graph->inputs[i]->id = 0;
    for (const ir_node *node = l->graph->first; node; node = node->next) {
        l->most += node->n_outputs;
        for (int i = 0; i < node->n_inputs; i++)
            if (ir_node_input(node, i))
                ir_node_input(node, i)->id = 0;
        for (int i = 0; i < node->n_outputs; i++)
            if (node->outputs[i])
                node->outputs[i]->id = 0;
    }
    l->all = GQAC_ARENA_ARRAY(l->context->scratch, grown, (size_t)l->most);
    if (!l->all)
        return gqac_diag_oom(l->b.diag, "KV state");
    for (const ir_node *node = l->graph->first; node && good; node = node->next)
        good = raise_follow(l, node);
    look_back(l);
    if (!good || !finds_cuts(l))
        return GQAC_OK;
    find_replaced(l);
    return can_replace(l) ? expand_all(l) : GQAC_OK;
}

gqac_status raise_latent(pass_context *context) {
    latent l = {.context = context,
                .graph = context->module->graph,
                .b = {.graph = context->module->graph, .diag = context->diag}};
    return run(&l);
}
