/* What rewrites of attention share: the places of caches among the operands of an op, and what a
 * value is computed from. */
#ifndef GQAC_PASSES_INSERT_KV_H
#define GQAC_PASSES_INSERT_KV_H

#include "passes/rewrite.h"

enum { INSERT_MOST_OPERANDS = 32 };

/* Operands and outputs that hold the cache of an attention op: keys and values, or both in one
 * tensor (n = 1). */
typedef struct insert_places {
    int n, past[2], present[2];
} insert_places;
bool insert_kv_takes_past(const ir_node *node, insert_places *places);

/* Which inputs of the main graph a value is computed from: n_inputs entries of `inputs` are set.
 * Uses ir_node.mark. */
void insert_kv_origins(ir_graph *main, ir_value *value, bool *inputs);

#endif
