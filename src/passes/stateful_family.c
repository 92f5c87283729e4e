/* Sequence state of the attention ops other than GroupQueryAttention.
 *
 * Lowered, their cache is a Concat of past and new rows, or a TensorScatter that writes the new
 * rows into a buffer; attend reads it in the ranges that key_range makes. Either is a pair if
 * nothing else reads the cache. (A sequence keeps more in that tensor than the file does: rows of
 * other lengths, and memory after them.) key_range then counts from the lengths of the run time.
 * stateful_masks.c handles masks. */
#include <string.h>

#include "passes/stateful.h"

/* Operands of attend. key_range and key_bias have keys at the first, padding_bias at the other. */
enum { KEYS = 1, VALUES = 2 };

/* ---- the cache of an op -------------------------------------------------- */

static bool along_rows(const ir_node *node, const ir_value *cache) {
    const int64_t axis = ir_attr_int(node, "axis");
    return cache->type.rank == 4 && (axis == 2 || axis == -2);
}

static bool grows(const ir_node *node) {
    return op_is(node, "", "Concat") && node->n_inputs == 2 &&
           along_rows(node, node->inputs[0].value);
}

static bool scatters(const ir_node *node) {
    return op_is(node, "", "TensorScatter") && ir_node_input(node, 2) &&
           strcmp(ir_attr_get(node, "mode")->s, "linear") == 0 &&
           along_rows(node, node->inputs[0].value);
}

bool stateful_is_static(const ir_node *node) {
    return op_is(node, "", "TensorScatter");
}

/* Only attention, and the return, may read a cache. */
static bool only_attention_reads(const ir_value *cache) {
    for (const ir_use *use = cache->uses; use; use = use->next) {
        const int operand = (int)(use - use->node->inputs);
        const bool range = op_is(use->node, "gqac", "key_range") && operand == KEYS;
        const bool padding = op_is(use->node, "gqac", "padding_bias") && operand == VALUES;
        const bool bias = op_is(use->node, "gqac", "key_bias") && operand == KEYS;
        const bool attend =
            op_is(use->node, "gqac", "attend") && (operand == KEYS || operand == VALUES);
        if (!range && !padding && !bias && !attend && use->node != cache->graph->ret)
            return false;
    }
    return true;
}

bool stateful_is_cache(const ir_node *node, const ir_value *past) {
    return (grows(node) || scatters(node)) && node->inputs[0].value == past &&
           only_attention_reads(node->outputs[0]);
}

ir_value *stateful_fresh(const ir_node *cache) {
    ir_value *named = pass_operand(cache, "new");
    return named ? named : ir_node_input(cache, 1);
}

/* ---- ranges -------------------------------------------------------------- */

static gqac_status fail_range(const stateful *s, const ir_node *range) {
    return pass_refuse(range, s->context->diag,
                       "attention whose keys and values are not a past/present pair of the graph",
                       "in a sequence every attention reads a cache that grows (past, present), "
                       "or a buffer whose number of valid rows is an input",
                       "`gqac run` runs the graph as exported");
}

/* A range over a pair starts where that pair's past ends, and ends with its new rows. */
static bool fits(const ir_node *range, const ir_node *cache) {
    const ir_value *past = pass_operand(range, "past"), *valid = pass_operand(range, "valid");
    if (stateful_is_static(cache))
        return valid && ir_attr_int(range, "align_end") == 1;
    return past == cache->inputs[0].value && !valid;
}

gqac_status stateful_ranges(stateful *s) {
    for (ir_node *node = s->graph->first; node; node = node->next) {
        if (!op_is(node, "gqac", "key_range"))
            continue;
        ir_value *q = ir_node_input(node, 0), *k = ir_node_input(node, KEYS);
        if (k && k->constant)
            continue; /* learned rows, the same for every token */
        if (!k || !k->def || !(k->def->mark & STATEFUL_PAIR) || !fits(node, k->def))
            return fail_range(s, node);
        ir_value *operands[] = {q, k, NULL, NULL, s->past_len, s->new_len};
        if (!ir_node_set_inputs(node, 6, operands))
            return gqac_diag_oom(s->context->diag, "KV state");
        ir_attr_set_int(node, "align_end", 0);
        s->context->changed++;
    }
    return GQAC_OK;
}

/* ---- a past that holds keys and values ----------------------------------- */

/* The half of the packed past that a node selects; -1: it does something else. */
static int half_of(const ir_node *node, const ir_value *past) {
    int64_t index, count;
    if (!op_is(node, "", "Gather") || node->graph != past->graph || node->inputs[0].value != past ||
        ir_attr_int(node, "axis") != 0)
        return -1;
    const ir_value *which = ir_node_input(node, 1);
    const bool known = which->type.rank == 0 && ir_const_ints(which, 1, &index, &count);
    return known && (index == 0 || index == 1) ? (int)index : -1;
}

typedef struct packed {
    ir_node *pick[2]; /* keys and values of the past */
    ir_value *present[2];
    int result;
} packed;

static bool unpicked(const ir_value *past, packed *p) {
    for (const ir_use *use = past->uses; use; use = use->next) {
        const int half = half_of(use->node, past);
        if (half < 0 || p->pick[half])
            return true;
        p->pick[half] = use->node;
    }
    return !p->pick[0] || !p->pick[1];
}

/* The value that is stacked as entry `half` of result `result`; NULL: the result is made in another
 * way. */
static ir_value *stacked(const ir_graph *graph, int result, int half) {
    const ir_node *concat = graph->ret->inputs[result].value->def;
    int64_t axis, count;
    if (!concat || !op_is(concat, "", "Concat") || concat->n_inputs != 2 ||
        ir_attr_int(concat, "axis") != 0)
        return NULL;
    const ir_value *part = concat->inputs[half].value;
    if (!part->def || !op_is(part->def, "", "Unsqueeze") ||
        !ir_const_ints(ir_node_input(part->def, 1), 1, &axis, &count) || count != 1 || axis != 0)
        return NULL;
    return part->def->inputs[0].value;
}

static bool find_packed(const ir_value *past, packed *p) {
    const ir_graph *graph = past->graph;
    if (past->type.rank != 5 || unpicked(past, p))
        return false;
    for (p->result = 0; p->result < graph->ret->n_inputs; p->result++) {
        bool both = true;
        for (int half = 0; half < 2 && both; half++) {
            ir_value *present = stacked(graph, p->result, half);
            both = present && present->def && grows(present->def) &&
                   present->def->inputs[0].value == p->pick[half]->outputs[0];
            p->present[half] = present;
        }
        if (both)
            return true;
    }
    return false;
}

/* Makes the result that of the keys, and appends one for the values. */
static bool split_result(stateful *s, const packed *p) {
    const ir_graph *graph = s->graph;
    const int n = graph->ret->n_inputs;
    ir_value **values = GQAC_ARENA_ARRAY(s->context->scratch, ir_value *, (size_t)n + 1);
    const char **names = GQAC_ARENA_ARRAY(s->context->scratch, const char *, (size_t)n + 1);
    if (!values || !names)
        return false;
    for (int i = 0; i < n; i++) {
        values[i] = graph->ret->inputs[i].value;
        names[i] = graph->result_names[i];
    }
    const char *name = names[p->result];
    values[p->result] = p->present[0];
    values[n] = p->present[1];
    names[p->result] = gqac_arena_printf(s->context->scratch, "%s.key", name);
    names[n] = gqac_arena_printf(s->context->scratch, "%s.value", name);
    return names[p->result] && names[n] && ir_graph_set_results(s->graph, n + 1, values, names);
}

static bool split_input(stateful *s, int index, const packed *p) {
    static const char *const parts[] = {"key", "value"};
    const char *name = s->graph->inputs[index]->name;
    for (int half = 0; half < 2; half++) {
        ir_value *old = p->pick[half]->outputs[0];
        const char *full = gqac_arena_printf(s->context->scratch, "%s.%s", name, parts[half]);
        ir_value *input = full ? ir_graph_add_input(s->graph, full, old->type) : NULL;
        if (!input)
            return false;
        ir_value_replace(old, input);
        ir_node_remove(p->pick[half]);
    }
    ir_graph_remove_input(s->graph, index);
    return true;
}

gqac_status stateful_unpack(stateful *s) {
    for (int i = 0; i < s->graph->n_inputs; i++) {
        packed p = {.result = 0};
        if (!find_packed(s->graph->inputs[i], &p))
            continue;
        if (!split_result(s, &p) || !split_input(s, i, &p))
            return gqac_diag_oom(s->context->diag, "KV state");
        s->context->changed++;
        i--; /* another one has that index now */
    }
    pass_sweep(s->context->module); /* removes the nodes that stacked the presents */
    return GQAC_OK;
}
