/* The nodes that are computed together with a rotary embedding, or with the appends of keys and
 * values. The records that are bound here are those of heads.h. */
#ifndef GQAC_TARGETS_FUSE_HEADS_H
#define GQAC_TARGETS_FUSE_HEADS_H

#include "ops/norm.h"
#include "targets/bind.h"
#include "targets/heads.h"

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
 * f->result. If `nodes` is not NULL, free nodes are taken and stored there; if it is NULL, those
 * are taken that `claim` has fused into `root`. A split of queries, keys and values is found but
 * not taken: x is its output, and the caller handles its other outputs. */
void target_find_heads(const ir_value *value, const ir_node *root, ir_node **nodes, fused_heads *f);
/* The node that makes a value, if the node `root` may compute it (asked: it is free, and the value,
 * unless it is a result, has no other use) or computes it (it is fused into root); else NULL. */
ir_node *target_head_maker(const ir_value *value, const ir_node *root, bool asked,
                           const ir_value *result);
/* Binds the operands of these nodes, and of the rotary after them (NULL: none). */
void target_bind_heads(const fused_heads *f, const ir_node *rotary, target_heads *h);

/* A rotary, alone or with the norm and the split_heads or reshapes before it. */
bool target_match_heads(const ir_node *node);
int target_fuse_heads(const ir_node *root, ir_node **nodes);
/* Returns the norm of the heads; NULL: none. */
const ir_node *target_bind_rotary(const ir_node *root, target_heads *h);

/* What a target's kernel of appends can do. */
typedef struct target_append_rules {
    bool (*rotary)(const ir_node *rotary); /* true if it computes this one */
    /* True if all readers of the rows of this kv_append read blocks: it is appended so. */
    bool (*in_blocks)(const ir_node *kv_append);
    bool presents; /* a concat_past_present is an append too */
    bool codes;    /* keys and values may be codes, which a kv_quantise makes */
    /* True if a kernel reads its queries in the packed row. NULL: none does. */
    bool (*reads_packed)(const target_kernel *kernel);
} target_append_rules;

/* Stores the nodes that one call computes together with an append (fuse_append.c) and returns their
 * number; 0: there are none. */
int target_fuse_append(const target_append_rules *rules, const ir_node *root, ir_node **nodes);
/* True if a call can compute the append alone. */
bool target_match_append(const target_append_rules *rules, const ir_node *root);
/* The nodes of a bound stream, for targets that keep their constants; NULL: none. */
typedef struct target_stream_nodes {
    const ir_node *norm, *rotary, *quantise;
} target_stream_nodes;
/* Fills the record and, unless `nodes` is NULL, an entry of `nodes` for each of its streams. */
gqac_status target_bind_append(const target_append_rules *rules, const ir_node *root,
                               target_streams *record, target_stream_nodes *nodes, gqac_diag *diag);
/* The packed value that contains the queries of the group of `root`, from *column on; NULL: the
 * queries have memory of their own. */
const ir_value *target_packed_queries(const target_append_rules *rules, const ir_node *root,
                                      const ir_value *queries, int64_t *column);
/* target_kernel.over: a present may be written over its past. */
bool target_append_over(const ir_node *root, const ir_value *result, const ir_value *operand);

#endif
