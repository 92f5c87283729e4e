/* What a rotary embedding is computed together with. */
#ifndef GQAC_TARGETS_CPU_FUSE_HEADS_H
#define GQAC_TARGETS_CPU_FUSE_HEADS_H

#include "ops/norm.h"
#include "targets/target.h"

typedef struct fused_heads {
    const ir_value *x;   /* what is read */
    int64_t heads;       /* of a packed x [B,S,H*D]; 0: x is [B,H,S,D] */
    const ir_node *norm; /* NULL: none */
    const norm *kind;    /* of that norm */
    int n;               /* nodes besides the root */
} fused_heads;

/* The pattern that ends in `root`: the one that is there when nodes is not NULL, which gets them;
 * else the one that `claim` has fused. */
void cpu_find_heads(const ir_node *root, ir_node **nodes, fused_heads *f);
/* The kind of a node that norms heads of `size` elements by the root mean square, else NULL. */
const norm *cpu_head_norm(const ir_node *node, int64_t size);

#endif
