/* Splits a past that holds the keys and the values of a layer, [2,B,H,P,D] or with the axes after
 * the first in another order, and its present: com.microsoft.Attention has such caches, once it is
 * lowered, and so do decoders of transformers 4.0 (GPT-2).
 *
 *     k = past[0], v = past[1], present = stack(append(k), append(v))
 *
 * becomes inputs NAME.key and NAME.value, and two results. */
#include "passes/rewrite.h"

enum { SPLIT = 1 }; /* ir_value.id of pasts that have been split */

typedef struct joined {
    ir_value *half[2]; /* keys and values of the past */
    ir_value *present[2];
    int result; /* the result that stacks them */
} joined;

static bool is_first_axis(const ir_node *node) {
    return pass_is_int(ir_node_input(node, 1), 0);
}

/* past[index], for a constant index 0 or 1. */
static bool add_gathered(const ir_node *gather, joined *j) {
    int64_t index, count;
    const ir_value *which = ir_node_input(gather, 1);
    if (which->type.rank != 0 || !ir_const_ints(which, 1, &index, &count) || index < 0 ||
        index > 1 || j->half[index])
        return false;
    j->half[index] = gather->outputs[0];
    return true;
}

/* Two parts of one entry each, from which the first axis is removed. */
static bool add_split(const ir_node *split, joined *j) {
    int64_t one;
    for (int i = 0; i < 2; i++) {
        const ir_value *part = ir_node_output(split, i);
        const ir_node *squeeze = part && part->uses ? part->uses->node : NULL;
        if (!squeeze || part->uses->next || !op_is(squeeze, "", "Squeeze") ||
            !is_first_axis(squeeze) || part->type.rank != 5 ||
            !ir_dim_is_const(part->type.dims[0], &one) || one != 1 || j->half[i])
            return false;
        j->half[i] = squeeze->outputs[0];
    }
    return split->n_outputs == 2;
}

/* True if the past is read only as its two halves. */
static bool find_halves(const ir_value *past, joined *j) {
    for (const ir_use *use = past->uses; use; use = use->next) {
        const ir_node *node = use->node;
        const bool gather = op_is(node, "", "Gather");
        if ((!gather && !op_is(node, "", "Split")) || ir_attr_int(node, "axis") != 0 ||
            node->graph != past->graph || node->inputs[0].value != past)
            return false;
        if (gather ? !add_gathered(node, j) : !add_split(node, j))
            return false;
    }
    return j->half[0] && j->half[1];
}

/* The value that is stacked as entry `half` of result `result`; NULL: the result is made in another
 * way. */
static ir_value *stacked(const ir_graph *graph, int result, int half) {
    const ir_node *concat = graph->ret->inputs[result].value->def;
    if (!concat || !op_is(concat, "", "Concat") || concat->n_inputs != 2 ||
        ir_attr_int(concat, "axis") != 0)
        return NULL;
    const ir_value *part = concat->inputs[half].value;
    return part->def && op_is(part->def, "", "Unsqueeze") && is_first_axis(part->def)
               ? part->def->inputs[0].value
               : NULL;
}

static const ir_value *before_transpose(const ir_value *value) {
    return value->def && op_is(value->def, "", "Transpose") ? ir_node_input(value->def, 0) : value;
}

/* True if rows are appended to `past`; both may be transposed. */
static bool continues(const ir_value *present, const ir_value *past) {
    const ir_node *concat = present ? before_transpose(present)->def : NULL;
    return concat && op_is(concat, "", "Concat") && concat->n_inputs == 2 &&
           before_transpose(ir_node_input(concat, 0)) == past;
}

static bool find(const ir_value *past, joined *j) {
    const ir_graph *graph = past->graph;
    if (past->type.rank != 5 || !find_halves(past, j))
        return false;
    for (j->result = 0; j->result < graph->ret->n_inputs; j->result++) {
        for (int half = 0; half < 2; half++)
            j->present[half] = stacked(graph, j->result, half);
        if (continues(j->present[0], j->half[0]) && continues(j->present[1], j->half[1]))
            return true;
    }
    return false;
}

/* Makes the result that of the keys, and appends one for the values. */
static bool split_result(const pass_context *context, const joined *j) {
    pass_results r;
    if (!pass_copy_results(context, 1, &r))
        return false;
    const char *name = r.names[j->result];
    r.values[j->result] = j->present[0];
    r.values[r.n] = j->present[1];
    r.names[j->result] = gqac_arena_printf(context->scratch, "%s.key", name);
    r.names[r.n] = gqac_arena_printf(context->scratch, "%s.value", name);
    return r.names[j->result] && r.names[r.n] &&
           ir_graph_set_results(context->module->graph, r.n + 1, r.values, r.names);
}

static bool split_input(const pass_context *context, ir_value *past, const joined *j) {
    static const char *const parts[] = {"key", "value"};
    for (int half = 0; half < 2; half++) {
        ir_value *old = j->half[half];
        const char *full = gqac_arena_printf(context->scratch, "%s.%s", past->name, parts[half]);
        ir_value *input = full ? ir_graph_add_input(past->graph, full, old->type) : NULL;
        if (!input)
            return false;
        ir_value_replace(old, input);
    }
    return true;
}

gqac_status pass_unjoin(pass_context *context) {
    ir_graph *graph = context->module->graph;
    const size_t before = context->changed;
    const int n = graph->n_inputs;
    for (int i = 0; i < n; i++) {
        joined j = {.result = 0};
        graph->inputs[i]->id = 0;
        if (!find(graph->inputs[i], &j))
            continue;
        if (!split_result(context, &j) || !split_input(context, graph->inputs[i], &j))
            return gqac_diag_oom(context->diag, "KV state");
        graph->inputs[i]->id = SPLIT;
        context->changed++;
    }
    if (context->changed == before)
        return GQAC_OK;
    pass_sweep(context->module); /* removes what read the pasts and stacked the presents */
    for (int i = n - 1; i >= 0; i--)
        if (graph->inputs[i]->id == SPLIT)
            ir_graph_remove_input(graph, i);
    return GQAC_OK;
}
