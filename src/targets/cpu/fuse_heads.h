/* The nodes that are computed together with a rotary embedding. */
#ifndef GQAC_TARGETS_CPU_FUSE_HEADS_H
#define GQAC_TARGETS_CPU_FUSE_HEADS_H

#include "ops/norm.h"
#include "targets/target.h"

typedef struct fused_heads {
    const ir_value *x;      /* the value that the kernel reads */
    const ir_node *split;   /* the split_heads that makes the heads: x is packed [B,S,H*D] if it
                               has only these heads (kv = 0); otherwise, and if it is NULL, x is
                               [B,H,S,D] */
    const ir_node *norm;    /* the norm of the heads; NULL: none */
    const norm *kind;       /* the kind of that norm */
    int n;                  /* number of nodes that are taken */
    const ir_value *result; /* the heads that the kernel makes, which others may read too; NULL:
                               none */
} fused_heads;

/* Finds the nodes that make the heads `value` [B,H,S,D], back towards the projection, and sets
 * f->result. `nodes` not NULL: nodes that are free, which are stored there; NULL: nodes that
 * `claim` has fused into `root`. A split of queries, keys and values is found but not taken: x is
 * its output, and the caller handles its other outputs. */
void cpu_find_heads(const ir_value *value, const ir_node *root, ir_node **nodes, fused_heads *f);
/* The node that makes a value, if the node `root` may compute it (asked: it is free, and the value,
 * unless it is a result, has no other use) or computes it (it is fused into root); else NULL. */
ir_node *cpu_head_maker(const ir_value *value, const ir_node *root, bool asked,
                        const ir_value *result);
/* The kind of a node that normalises heads of `size` elements by the root mean square, else
 * NULL. */
const norm *cpu_head_norm(const ir_node *node, int64_t size);

struct cpu_heads;
/* Binds the operands of these nodes, and of the rotary after them (NULL: none). */
void cpu_bind_heads(const fused_heads *f, const ir_node *rotary, struct cpu_heads *h);

#endif
