/* Caches of latent rows (multi-head latent attention, DeepSeek-V2 and V3). The model caches a few
 * numbers for each token, [B,1,T,R] or [B,T,R], and expands all cached rows to keys and values in
 * each call: a product with weights, which is split into heads, and one rotated head for all. Each
 * row depends only on its own latent row, so it can be expanded before it is cached. A sequence
 * does so: each row is expanded once, and keys and values are cached, which needs more memory.
 *
 *     C = Concat(past, new), K = f(C)   becomes   K = Concat(past.expanded, f(new))
 *
 * f is followed forward from the Concats; the last values [B,H,T,D] of f are cached. */
#include <stdio.h>
#include <string.h>

#include "ops/build.h"
#include "ops/shared.h"
#include "passes/raise.h"

enum { MOST_NAME = 256 };

/* A value with a row for each cached token along `axis`. */
typedef struct grown {
    ir_value *value;
    int axis;
    const ir_value
        *past; /* of the first Concat that it depends on; NULL: a constant for all rows */
    const ir_dim *batch, *cached, *fresh, *total; /* total = cached + fresh */
    ir_value *rows;     /* the same value for the new rows alone; NULL: not made yet */
    bool source;        /* a Concat itself */
    bool weighed;       /* it depends on a product with weights */
    bool later, leaves; /* later values [B,H,T,D] depend on it; another node reads it */
    bool after_cut;     /* it depends on a value that will be cached */
} grown;

typedef struct latent {
    pass_context *context;
    ir_graph *graph;
    grown *all;
    int n, most;
    ir_builder b;
} latent;

static grown *of(const latent *l, const ir_value *value) {
    return value && value->id > 0 && value->id <= l->n ? &l->all[value->id - 1] : NULL;
}

static bool add(latent *l, ir_value *value, const grown *like, int axis) {
    if (l->n == l->most)
        return false;
    l->all[l->n] = *like;
    l->all[l->n].value = value;
    l->all[l->n].axis = axis;
    value->id = ++l->n;
    return true;
}

/* ---- forward: rows by themselves ----------------------------------------- */

static bool is_source(const latent *l, const ir_node *node, grown *out) {
    const ir_value *past = node->n_inputs == 2 ? ir_node_input(node, 0) : NULL;
    if (!op_is(node, "", "Concat") || !past || past->def || past->constant ||
        past->graph != l->graph || !pass_names_past(past) || past->type.rank < 3)
        return false;
    const int rank = past->type.rank;
    const int64_t axis = ir_attr_int(node, "axis") + (ir_attr_int(node, "axis") < 0 ? rank : 0);
    const ir_value *rows = ir_node_input(node, 1), *both = node->outputs[0];
    if (axis != rank - 2 || rows->type.rank != rank || both->type.rank != rank ||
        !both->type.dims[axis] || !rows->type.dims[axis] || !past->type.dims[axis])
        return false;
    *out = (grown){.past = past,
                   .axis = (int)axis,
                   .batch = both->type.dims[0],
                   .cached = past->type.dims[axis],
                   .fresh = rows->type.dims[axis],
                   .total = both->type.dims[axis],
                   .rows = ir_node_input(node, 1),
                   .source = true};
    return out->batch != NULL;
}

static const ir_dim *before(const latent *l, const ir_type *type, int axis) {
    const ir_dim *product = ir_dim_const(l->context->module->dims, 1);
    for (int i = 0; i < axis && product; i++)
        product =
            type->dims[i] ? ir_dim_mul(l->context->module->dims, product, type->dims[i]) : NULL;
    return product;
}

/* The axis of the rows in a result whose elements keep their order; -1: none. */
static int kept_axis(const latent *l, const grown *x, const ir_value *result) {
    const ir_dim *front = before(l, &x->value->type, x->axis);
    for (int i = 0; i < result->type.rank && front; i++)
        if (result->type.dims[i] == x->total && before(l, &result->type, i) == front)
            return i;
    return -1;
}

static int transposed_axis(const grown *x, const ir_node *transpose) {
    const ir_attr *perm = ir_attr_get(transpose, "perm");
    for (size_t i = 0; perm->set && i < perm->count; i++)
        if (perm->ints[i] == x->axis)
            return (int)i;
    return -1;
}

/* True if every operand has rows along the same axis, or is a constant that is the same for all
 * rows. */
static bool all_alike(const latent *l, const ir_node *node, const grown *x) {
    const int rank = x->value->type.rank;
    for (int i = 0; i < node->n_inputs; i++) {
        const ir_value *value = ir_node_input(node, i);
        const grown *y = of(l, value);
        int64_t one;
        if (!value)
            continue;
        if (y ? y->total != x->total || y->axis != x->axis || value->type.rank != rank
              : !value->constant || value->type.rank > rank)
            return false;
        const int at = x->axis - (rank - value->type.rank);
        if (!y && at >= 0 && (!ir_dim_is_const(value->type.dims[at], &one) || one != 1))
            return false;
    }
    return true;
}

static bool only_first(const latent *l, const ir_node *node) {
    for (int i = 1; i < node->n_inputs; i++)
        if (of(l, ir_node_input(node, i)) ||
            (ir_node_input(node, i) && !ir_node_input(node, i)->constant))
            return false;
    return true;
}

static bool along_rows(const ir_node *node, const grown *x) {
    const int64_t axis = ir_attr_int(node, "axis");
    return axis + (axis < 0 ? x->value->type.rank : 0) == x->axis;
}

/* True if the same indices of the first axis are written for every row. */
static bool writes_columns(const latent *l, const ir_node *node, const grown *x) {
    const grown *updates = of(l, ir_node_input(node, 2));
    const ir_value *indices = ir_node_input(node, 1);
    return updates && updates->axis == x->axis && updates->total == x->total && x->axis > 0 &&
           updates->value->type.rank == x->value->type.rank && indices->constant &&
           indices->type.rank == 2 && raise_dim(indices, 1) == 1 &&
           strcmp(ir_attr_get(node, "reduction")->s, "none") == 0;
}

static bool is_product(const ir_node *node) {
    static const char *const names[] = {"MatMul", "linear",      "linear_bf16", "linear_nbits",
                                        "Gemm",   "MatMulNBits", NULL};
    return pass_listed(names, node->op->name);
}

/* The axis of the rows in a result, each of which depends on the same row of x alone; -1: none. */
static int result_axis(const latent *l, const ir_node *node, const grown *x) {
    static const char *const shapes[] = {"Reshape", "Unsqueeze", "Squeeze", "Expand", NULL};
    static const char *const columns[] = {"Split", "Slice", "Concat", NULL};
    static const char *const norms[] = {"RMSNormalization", "LayerNormalization", NULL};
    const bool last = x->axis == x->value->type.rank - 1;
    const char *name = node->op->name;
    const ir_value *result = node->outputs[0];
    const bool onnx = !*node->op->domain;
    if (!result || result->type.rank < 0)
        return -1;
    if (onnx && !strcmp(name, "Transpose"))
        return transposed_axis(x, node);
    if (onnx && !strcmp(name, "Expand") && result->type.rank != x->value->type.rank)
        return -1;
    if (onnx && !strcmp(name, "Expand"))
        return result->type.dims[x->axis] == x->total ? x->axis : -1;
    if (onnx && pass_listed(shapes, name))
        return kept_axis(l, x, result);
    if (onnx && !strcmp(name, "ScatterND"))
        return writes_columns(l, node, x) ? x->axis : -1;
    if (onnx && !strcmp(name, "Slice")) {
        int64_t axes[GQAC_MAX_RANK], n;
        bool rows = !only_first(l, node) || !ir_node_input(node, 3) ||
                    !ir_const_ints(ir_node_input(node, 3), GQAC_MAX_RANK, axes, &n);
        for (int64_t i = 0; !rows && i < n; i++)
            rows = axes[i] + (axes[i] < 0 ? x->value->type.rank : 0) == x->axis;
        return rows ? -1 : x->axis;
    }
    if (onnx && !strcmp(name, "Concat"))
        return !along_rows(node, x) && all_alike(l, node, x) ? x->axis : -1;
    if (onnx && pass_listed(columns, name))
        return !along_rows(node, x) && only_first(l, node) ? x->axis : -1;
    if (is_product(node) || (onnx && pass_listed(norms, name)))
        return !last && only_first(l, node) && of(l, ir_node_input(node, 0)) &&
                       result->type.rank == x->value->type.rank
                   ? x->axis
                   : -1;
    return node->op->rows == IR_ROWS_LOCAL && node->n_outputs == 1 && all_alike(l, node, x) &&
                   result->type.rank == x->value->type.rank
               ? x->axis
               : -1;
}

/* A constant for each row: it has an axis with the length of a cache. */
static bool is_filling(const latent *l, const ir_node *node, grown *out) {
    if (!op_is(node, "", "ConstantOfShape") || !node->outputs[0])
        return false;
    const ir_type *type = &node->outputs[0]->type;
    for (int i = 0; i < l->n; i++)
        for (int k = 0; l->all[i].source && k < type->rank; k++)
            if (type->dims[k] == l->all[i].total) {
                *out = l->all[i];
                out->source = false;
                out->past = NULL;
                out->rows = NULL;
                out->axis = k;
                return true;
            }
    return false;
}

static bool follow(latent *l, const ir_node *node) {
    const grown *x = NULL, *other;
    grown made;
    bool weighed = is_product(node);
    if (is_source(l, node, &made) || is_filling(l, node, &made))
        return add(l, node->outputs[0], &made, made.axis);
    for (int i = 0; i < node->n_inputs; i++) {
        other = of(l, ir_node_input(node, i));
        weighed = weighed || (other && other->weighed);
        x = !x || (!x->past && other) ? (other ? other : x) : x;
    }
    const int axis =
        x && !pass_holds_graphs(node) && node->n_outputs ? result_axis(l, node, x) : -1;
    if (axis < 0)
        return true;
    made = *x;
    made.source = made.later = made.leaves = false;
    made.rows = NULL;
    made.weighed = weighed;
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && !add(l, node->outputs[i], &made, axis))
            return false;
    return true;
}

/* ---- back: what is cached ------------------------------------------------ */

/* [B,H,T,D], or [B,H,D,T] as keys are multiplied. */
static bool is_cacheable(const grown *x) {
    int64_t n;
    const ir_type *type = &x->value->type;
    return type->rank == 4 && (x->axis == 2 || x->axis == 3) && x->past &&
           type->dims[0] == x->batch && ir_dim_is_const(type->dims[1], &n) &&
           ir_dim_is_const(type->dims[5 - x->axis], &n);
}

static bool goes_on(const latent *l, const ir_node *node) {
    for (int i = 0; i < node->n_outputs; i++) {
        const grown *y = of(l, node->outputs[i]);
        if (y && (is_cacheable(y) || y->later))
            return true;
    }
    return false;
}

static void look_back(const latent *l) {
    for (const ir_node *node = l->graph->last; node; node = node->prev)
        for (int i = 0; i < node->n_inputs && !op_is(node, "", "Shape"); i++) {
            grown *x = of(l, ir_node_input(node, i));
            if (!x || node == l->graph->ret)
                continue;
            if (goes_on(l, node))
                x->later = true;
            else
                x->leaves = true;
        }
}

static bool is_cut(const grown *x) {
    return is_cacheable(x) && x->leaves && x->weighed && !x->source;
}

static bool is_after_cut(const latent *l, const grown *x) {
    const ir_node *node = x->value->def;
    for (int i = 0; i < node->n_inputs; i++) {
        const grown *y = of(l, ir_node_input(node, i));
        if (y && (y->after_cut || is_cut(y)))
            return true;
    }
    return false;
}

/* True if there are values to cache, and nothing else depends on the latent caches. */
static bool finds_cuts(const latent *l) {
    bool any = false;
    for (int i = 0; i < l->n; i++) { /* operands before results */
        grown *x = &l->all[i];
        x->after_cut = is_after_cut(l, x);
        any = any || is_cut(x);
        if (x->past && x->leaves && !x->after_cut && !is_cut(x))
            return false;
    }
    return any;
}

/* ---- lengths ------------------------------------------------------------- */

static bool is_old(const latent *l, const ir_value *input) {
    for (int i = 0; i < l->n; i++)
        if (l->all[i].source && l->all[i].past == input)
            return true;
    return false;
}

/* A graph input with that length; NULL: there is none. */
static ir_value *input_of(const latent *l, const ir_dim *dim, int *axis) {
    for (int i = 0; dim && i < l->graph->n_inputs; i++) {
        ir_value *input = l->graph->inputs[i];
        for (*axis = 0; *axis < input->type.rank && !is_old(l, input); ++*axis)
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
                                        "no graph input has a length of this latent cache");
    }
    return op_build_concat(&l->b, 0, type->rank, each);
}

/* ---- the same values for the new rows ------------------------------------ */

static ir_value *rows_of(latent *l, grown *x);

static ir_value *operand(latent *l, const ir_node *node, int i, const grown *x) {
    static const char *const shapes[] = {"Reshape", "Expand", NULL};
    ir_value *value = ir_node_input(node, i);
    grown *y = of(l, value);
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
                              "a latent cache that is expanded by a node with too many operands");
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
        if (of(l, node->outputs[i]))
            of(l, node->outputs[i])->rows = made[i];
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

/* The name of the k-th cache that replaces one. */
static const char *expanded(latent *l, const char *name, int k) {
    return k ? gqac_arena_printf(l->context->module->arena, "%.200s.expanded.%d", name, k)
             : gqac_arena_printf(l->context->module->arena, "%.200s.expanded", name);
}

/* The past of rows [B,H,P,D]. */
static ir_value *add_past(latent *l, const grown *x, int k) {
    const ir_dim *const *old = x->value->type.dims;
    const ir_dim *dims[] = {x->batch, old[1], x->cached, old[5 - x->axis]};
    const ir_type type = ir_type_make(l->context->module, x->value->type.dtype, 4, dims);
    const char *name = expanded(l, x->past->name, k);
    ir_value *past = name && type.rank == 4 ? ir_graph_add_input(l->graph, name, type) : NULL;
    if (!past && l->b.status == GQAC_OK)
        l->b.status = gqac_diag_oom(l->b.diag, "KV state");
    return past;
}

static gqac_status add_result(latent *l, ir_value *value, const char *name) {
    const ir_node *ret = l->graph->ret;
    const int n = ret->n_inputs;
    ir_value **values = GQAC_ARENA_ARRAY(l->context->scratch, ir_value *, (size_t)n + 1);
    const char **names = GQAC_ARENA_ARRAY(l->context->scratch, const char *, (size_t)n + 1);
    if (!values || !names || !name)
        return gqac_diag_oom(l->b.diag, "results");
    for (int i = 0; i < n; i++) {
        values[i] = ret->inputs[i].value;
        names[i] = l->graph->result_names[i];
    }
    values[n] = value;
    names[n] = name;
    return ir_graph_set_results(l->graph, n + 1, values, names)
               ? GQAC_OK
               : gqac_diag_oom(l->b.diag, "results");
}

/* Lets nodes that read lengths of values that are no longer cached read them elsewhere. */
static gqac_status ask_lengths(latent *l) {
    for (ir_node *node = l->graph->first; node; node = node->next) {
        ir_value *value = op_is(node, "", "Shape") ? ir_node_input(node, 0) : NULL;
        const grown *x = of(l, value);
        for (int i = 0; value && !x && i < l->n; i++)
            if (l->all[i].source && l->all[i].past == value)
                x = &l->all[i];
        if (!x || (of(l, value) && x->value != value)) /* it reads an expanded cache */
            continue;
        const int rank = value->type.rank;
        int64_t start = ir_attr_int(node, "start"), end = rank;
        if (ir_attr_is_set(node, "end"))
            end = ir_attr_int(node, "end");
        start += start < 0 ? rank : 0;
        end += end < 0 ? rank : 0;
        end = end > rank ? rank : end;
        if (start < 0 || start >= end)
            continue;
        ir_node *prev = node->prev;
        l->b.before = node;
        ir_type part = value->type;
        part.dims += start;
        part.rank = (int)(end - start);
        ir_value *by = lengths(l, x, &part, true, false);
        GQAC_TRY(l->b.status);
        GQAC_TRY(pass_settle(node, prev, l->b.diag));
        ir_value_replace(node->outputs[0], by);
    }
    return GQAC_OK;
}

/* Removes the presents of latent caches from the results, and their pasts from the inputs. */
static gqac_status drop_old(latent *l) {
    const ir_node *ret = l->graph->ret;
    ir_value **values =
        GQAC_ARENA_ARRAY(l->context->scratch, ir_value *, (size_t)ret->n_inputs + 1);
    const char **names =
        GQAC_ARENA_ARRAY(l->context->scratch, const char *, (size_t)ret->n_inputs + 1);
    int n = 0;
    if (!values || !names)
        return gqac_diag_oom(l->b.diag, "results");
    for (int i = 0; i < ret->n_inputs; i++) {
        const grown *x = of(l, ret->inputs[i].value);
        if (x && x->source && x->value == ret->inputs[i].value)
            continue;
        values[n] = ret->inputs[i].value;
        names[n++] = l->graph->result_names[i];
    }
    if (!ir_graph_set_results(l->graph, n, values, names))
        return gqac_diag_oom(l->b.diag, "results");
    pass_sweep(l->context->module);
    for (int i = l->graph->n_inputs - 1; i >= 0; i--)
        if (is_old(l, l->graph->inputs[i]) && ir_value_unused(l->graph->inputs[i]))
            ir_graph_remove_input(l->graph, i);
    return GQAC_OK;
}

static gqac_status expand(latent *l, int at, int k) {
    grown *x = &l->all[at];
    ir_node *place = x->value->def, *prev = place->prev;
    const char *present = expanded(l, present_of(l, x->past), k);
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
    by->id = at + 1; /* it has the rows of x from now on */
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
            k += is_cut(&l->all[j]) && l->all[j].past == l->all[i].past;
        GQAC_TRY(expand(l, i, k));
    }
    GQAC_TRY(ask_lengths(l));
    return drop_old(l);
}

static gqac_status run(latent *l) {
    bool good = true;
    l->most = 1;
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
        good = follow(l, node);
    look_back(l);
    return good && finds_cuts(l) ? expand_all(l) : GQAC_OK;
}

gqac_status raise_latent(pass_context *context) {
    latent l = {.context = context,
                .graph = context->module->graph,
                .b = {.graph = context->module->graph, .diag = context->diag}};
    return run(&l);
}
