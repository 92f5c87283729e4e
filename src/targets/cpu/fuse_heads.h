/* What a rotary embedding is computed together with. */
#ifndef GQAC_TARGETS_CPU_FUSE_HEADS_H
#define GQAC_TARGETS_CPU_FUSE_HEADS_H

#include "ops/norm.h"
#include "targets/target.h"

typedef struct fused_heads {
    const ir_value *x;    /* what is read */
    const ir_node *split; /* the split_heads that makes them: x is packed [B,S,H*D], where it is of
                           * these heads alone (kv = 0); else and where it is NULL [B,H,S,D] */
    const ir_node *norm;  /* NULL: none */
    const norm *kind;     /* of that norm */
    int n;                /* nodes that are taken */
    const ir_value *result; /* what the kernel gives: others may read it too; NULL: it gives none */
} fused_heads;

/* What makes the heads `value` [B,H,S,D] (f->result is set), from there towards the projection:
 * nodes that are free when `nodes` is not NULL, which gets them; else those that `claim` has fused
 * into `root`. A split of queries, keys and values is found and not taken: x is what it makes, and
 * its other outputs are for the caller to look at. */
void cpu_find_heads(const ir_value *value, const ir_node *root, ir_node **nodes, fused_heads *f);
/* The node that makes a value, when the node `root` may compute it: it is free (asked), and nobody
 * else uses the value where it is not a result; or it is fused into root. */
ir_node *cpu_head_maker(const ir_value *value, const ir_node *root, bool asked,
                        const ir_value *result);
/* The kind of a node that norms heads of `size` elements by the root mean square, else NULL. */
const norm *cpu_head_norm(const ir_node *node, int64_t size);

struct cpu_heads;
/* What a kernel reads of them, and of the rotary behind them (NULL: none). */
void cpu_bind_heads(const fused_heads *f, const ir_node *rotary, struct cpu_heads *h);

#endif
