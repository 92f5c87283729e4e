/* Which nodes the kernels of the gpu target claim, and their records. */
#ifndef GQAC_TARGETS_GPU_GRAPH_H
#define GQAC_TARGETS_GPU_GRAPH_H

#include "targets/bind.h"
#include "targets/gpu/gpu.h"
#include "targets/gpu/products.h"
#include "targets/target.h"

/* Fills an operand by the index of its input; a constant of floats is copied to the device, as
 * fp32. */
gqac_status gpu_bind_operand(const target_binding *b, const ir_node *node, int input,
                             gpu_operand *of);

bool gpu_match_product(const ir_node *node);
gqac_status gpu_bind_product(const target_binding *b, const ir_node *root, const void **record);

bool gpu_match_nbits(const ir_node *node);
gqac_status gpu_bind_nbits(const target_binding *b, const ir_node *root, const void **record);

bool gpu_match_attention(const ir_node *node);
bool gpu_match_attention_codes(const ir_node *node); /* of a quantised cache */
int gpu_fuse_attention(const ir_node *root, ir_node **nodes);
gqac_status gpu_bind_attention(const target_binding *b, const ir_node *root, const void **record);
/* gqac_target.in_blocks: true if all readers of the appended rows read them in blocks of the
 * device. */
bool gpu_kv_only_blocks(const ir_node *kv_append);
/* A kv_append that the host writes. */
gqac_status gpu_bind_kv_append(const target_binding *b, const ir_node *root, const void **record);

/* Heads of a projection, normalised, rotated and appended: several nodes, or an append alone. */
int gpu_fuse_heads_append(const ir_node *root, ir_node **nodes);
bool gpu_match_heads_append(const ir_node *node);
gqac_status gpu_bind_heads_append(const target_binding *b, const ir_node *root,
                                  const void **record);
/* A rotary, alone or with the nodes before it that make its heads. */
int gpu_fuse_rotary(const ir_node *root, ir_node **nodes);
bool gpu_match_rotary(const ir_node *node);
gqac_status gpu_bind_rotary(const target_binding *b, const ir_node *root, const void **record);

bool gpu_match_norm(const ir_node *node);
gqac_status gpu_bind_norm(const target_binding *b, const ir_node *root, const void **record);

bool gpu_match_take_rows(const ir_node *node);
gqac_status gpu_bind_take_rows(const target_binding *b, const ir_node *root, const void **record);

bool gpu_match_gather(const ir_node *node);
gqac_status gpu_bind_gather(const target_binding *b, const ir_node *root, const void **record);

bool gpu_match_gather_codes(const ir_node *node); /* GatherBlockQuantized */
gqac_status gpu_bind_gather_codes(const target_binding *b, const ir_node *root,
                                  const void **record);

bool gpu_match_moe(const ir_node *node);
gqac_status gpu_bind_moe(const target_binding *b, const ir_node *root, const void **record);

bool gpu_match_softmax(const ir_node *node);
gqac_status gpu_bind_softmax(const target_binding *b, const ir_node *root, const void **record);

bool gpu_match_arg(const ir_node *node); /* ArgMax, ArgMin */
gqac_status gpu_bind_arg(const target_binding *b, const ir_node *root, const void **record);

bool gpu_match_top(const ir_node *node); /* TopK */
gqac_status gpu_bind_top(const target_binding *b, const ir_node *root, const void **record);

bool gpu_match_unary(const ir_node *node);
gqac_status gpu_bind_unary(const target_binding *b, const ir_node *root, const void **record);

bool gpu_match_binary(const ir_node *node);
gqac_status gpu_bind_binary(const target_binding *b, const ir_node *root, const void **record);

/* A Mul and the activation of one of its operands. */
int gpu_fuse_gate(const ir_node *root, ir_node **nodes);
gqac_status gpu_bind_gate(const target_binding *b, const ir_node *root, const void **record);

/* Two or more elementwise ops that are not a gate. */
int gpu_fuse_chain(const ir_node *root, ir_node **nodes);
gqac_status gpu_bind_chain(const target_binding *b, const ir_node *root, const void **record);

/* Memory for `copies` of weights, or of their scales, zeroed, which the caller frees with free();
 * column: bytes of one column. */
gqac_status gpu_weights_memory(const target_binding *b, const gpu_weights *p, size_t column,
                               size_t copies, char **memory);
/* Writes a column, the bytes of all its k, to its chunks. */
void gpu_weights_column(const gpu_weights *p, const char *from, size_t bytes, size_t column,
                        char *to);

#endif
