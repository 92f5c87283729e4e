/* Chains of elementwise ops: from a root upwards, every op whose result has the shape of the root's
 * result and is used only in the chain. Operands from outside (leaves) have that shape too, or are
 * constants: one element, or one row. So silu(gate) * up, gelu(gate) * up, a softcap of logits, or
 * x * sigmoid(x) + y are one kernel, and a single op is the smallest chain. f16 and bf16 results
 * inside a chain are rounded where their ops round. */
#ifndef GQAC_TARGETS_FUSE_CHAIN_H
#define GQAC_TARGETS_FUSE_CHAIN_H

#include "targets/bind.h"
#include "targets/chain.h"

typedef struct chain_nodes {
    const ir_type *type; /* of the root's result */
    int n;
    const ir_node *nodes[TARGET_CHAIN_STEPS]; /* the root first */
} chain_nodes;

bool target_is_step(const ir_node *node);     /* true if a chain may contain it */
bool target_match_chain(const ir_node *node); /* a single op */
/* The chain of a root that matches, of at most `most` nodes. */
chain_nodes target_find_chain(const ir_node *root, int most);
bool target_chain_has(const chain_nodes *chain, const ir_node *node);
/* True if the chain alone reads the value. */
bool target_chain_alone(const chain_nodes *chain, const ir_value *value);
int target_fuse_chain(const ir_node *root, ir_node **nodes);

/* Fills the record, and sets *leaves to the values of its leaves. */
gqac_status target_bind_chain(const ir_node *root, target_chain *record,
                              const ir_value *leaves[TARGET_CHAIN_LEAVES], gqac_diag *diag);

#endif
