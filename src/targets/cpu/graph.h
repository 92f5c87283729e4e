/* The cpu target in the graph: what its kernels match, fuse and bind. The files fuse_*.c and
 * pack*.c read nodes; all others of this folder run without them. */
#ifndef GQAC_TARGETS_CPU_GRAPH_H
#define GQAC_TARGETS_CPU_GRAPH_H

#include "targets/bind.h"
#include "targets/cpu/attention.h"

/* ---- products (fuse_products.c) ------------------------------------------- */

struct cpu_products;
/* The first: true if the node is a product. The second: true if one call can compute both. */
bool cpu_is_product(const ir_node *node);
bool cpu_products_fit(const ir_node *a, const ir_node *b);
int cpu_fuse_products(const ir_node *root, ir_node **nodes);
gqac_status cpu_bind_products(const target_binding *b, const ir_node *root, const void **record);
/* Adds one more product of a group; its result y is only used inside the group. */
void cpu_bind_product(const ir_node *node, struct cpu_products *p);

gqac_status cpu_bind_integer(const target_binding *b, const ir_node *root, const void **record);
/* MatMul of matrices of one type of floats. */
bool cpu_match_matmul(const ir_node *node);
gqac_status cpu_bind_matmul(const target_binding *b, const ir_node *root, const void **record);
gqac_status cpu_bind_moe(const target_binding *b, const ir_node *root, const void **record);

/* ---- elementwise ops (fuse_chain.c) ---------------------------------------- */

int cpu_fuse_product_chain(const ir_node *root,
                           ir_node **nodes); /* a chain, and the products that it reads */
gqac_status cpu_bind_chain(const target_binding *b, const ir_node *root, const void **record);
bool cpu_chain_over(const ir_node *root, const ir_value *result, const ir_value *operand);

/* ---- norms (fuse_norm.c) ---------------------------------------------------- */

/* Fuses the Add that computes x. */
int cpu_fuse_norm(const ir_node *root, ir_node **nodes);
gqac_status cpu_bind_norm(const target_binding *b, const ir_node *root, const void **record);
bool cpu_norm_over(const ir_node *root, const ir_value *result, const ir_value *operand);

/* ---- heads (fuse_heads.c) ----------------------------------------------------- */

gqac_status cpu_bind_rotary(const target_binding *b, const ir_node *root, const void **record);
/* Heads of a packed projection, normalised and rotated, written to blocks or after those of the
 * past. */
int cpu_fuse_append(const ir_node *root, ir_node **nodes);
gqac_status cpu_bind_append(const target_binding *b, const ir_node *root, const void **record);
/* The packed value [B,S,W] in which attention reads these queries, from `column` on, because no
 * node changes them in between. NULL: they are stored separately. */
const ir_value *cpu_packed_queries(const ir_value *queries, int64_t *column);
const ir_value *cpu_lies_in(const ir_value *value);

/* ---- cached rows (fuse_kv.c) ------------------------------------------------- */

/* gqac_target.in_blocks: true if all readers of the appended rows read blocks. */
bool cpu_kv_only_blocks(const ir_node *kv_append);
/* gqac_target.columns: true if all readers of the appended rows are attention kernels, as keys. */
bool cpu_kv_columns(const ir_node *kv_state);
/* The slot of rows that are read in blocks; -1: they are read from a tensor. */
int cpu_bind_slot(const ir_value *rows);
gqac_status cpu_bind_kv_append(const target_binding *b, const ir_node *root, const void **record);
gqac_status cpu_bind_kv_tail(const target_binding *b, const ir_node *root, const void **record);

/* ---- attention: inputs 1 (keys) and 2 (values) ------------------------------- */

bool cpu_attention_match(const ir_node *node);
/* Fuses the nodes that dequantise keys and values: the kernel reads the codes. */
int cpu_attention_fuse(const ir_node *root, ir_node **nodes);
gqac_status cpu_bind_attention(const target_binding *b, const ir_node *root, const void **record);
/* True if the kernel is one of the attention kernels. */
bool cpu_reads_blocks(const target_kernel *kernel);

#endif
