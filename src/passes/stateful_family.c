/* Sequence state of the attention ops other than GroupQueryAttention.
 *
 * Lowered, their cache is a Concat of past and new rows, or a TensorScatter that writes the new
 * rows into a buffer; attend reads it in the ranges that key_range makes. Either is a pair if
 * nothing else reads the cache. (A sequence keeps more in that tensor than the file does: rows of
 * other lengths, and memory after them.) key_range then counts from the lengths of the run time.
 * stateful_masks.c handles masks. */
#include <string.h>

#include "passes/stateful.h"

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
        const ir_node *node = use->node;
        const int64_t operand = use - node->inputs;
        const bool keys = operand == ir_schema_index(node->op->inputs, "k");
        const bool values = operand == ir_schema_index(node->op->inputs, "v");
        const bool attend = op_is(node, "gqac", "attend");
        const bool other = op_is(node, "gqac", "key_range") || op_is(node, "gqac", "key_bias") ||
                           op_is(node, "gqac", "padding_bias");
        if (!(attend && (keys || values)) && !(other && keys) && node != cache->graph->ret)
            return false;
    }
    return true;
}

bool stateful_is_cache(const ir_node *node, const ir_value *past) {
    return (grows(node) || scatters(node)) && node->inputs[0].value == past &&
           only_attention_reads(node->outputs[0]);
}

ir_value *stateful_fresh(const ir_node *cache) {
    ir_value *named = ir_node_operand(cache, "new");
    return named ? named : ir_node_input(cache, 1);
}

/* ---- ranges -------------------------------------------------------------- */

static gqac_status fail_range(const stateful *s, const ir_node *range) {
    return pass_refuse(range, s->context->diag,
                       "keys and values of this attention are not a past/present pair of the graph",
                       "in a sequence every attention reads a cache that grows (past, present), "
                       "or a buffer whose number of valid rows is an input",
                       "`gqac run` runs the graph as exported");
}

/* A range over a pair starts where that pair's past ends, and ends with its new rows. */
static bool fits(const ir_node *range, const ir_node *cache) {
    const ir_value *past = ir_node_operand(range, "past"), *valid = ir_node_operand(range, "valid");
    if (stateful_is_static(cache))
        return valid && ir_attr_int(range, "align_end") == 1;
    return past == cache->inputs[0].value && !valid;
}

gqac_status stateful_ranges(stateful *s) {
    for (ir_node *node = s->graph->first; node; node = node->next) {
        if (!op_is(node, "gqac", "key_range"))
            continue;
        ir_value *q = ir_node_operand(node, "q"), *k = ir_node_operand(node, "k");
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
