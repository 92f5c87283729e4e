/* Constant weights in the form that the kernels of this target read. Each family has one function
 * that takes a node it knows and replaces it by an op of ours (`linear`, ...) on packed constants;
 * pack.c offers it the nodes. */
#ifndef GQAC_TARGETS_CPU_PACK_H
#define GQAC_TARGETS_CPU_PACK_H

#include "targets/cpu/cpu.h"
#include "targets/target.h"

/* Replaces every use of the node's outputs by those of new nodes before it, and sets *packed; or
 * changes nothing. The node itself stays, unused: the sweep after the pass takes it, and weights
 * that nobody reads any more with it. It may replace other nodes likewise. Packed data belong to
 * the arena of the module and to the graph that holds the constant they were made from. Between
 * pieces of what takes long the poll is asked; it may be NULL. */
typedef gqac_status cpu_pack_node(ir_node *node, const op_options *options, gqac_poll *poll,
                                  bool *packed, gqac_diag *diag);

cpu_pack_node cpu_pack_dequantised; /* MatMul by a DequantizeLinear -> MatMulNBits, linear_nbits */
cpu_pack_node cpu_pack_linear;      /* MatMul, Gemm -> linear, linear_bf16 */
cpu_pack_node cpu_pack_integer;     /* MatMulInteger -> linear_integer */
cpu_pack_node cpu_pack_moe;         /* com.microsoft.MoE, QMoE -> moe */
cpu_pack_node cpu_pack_nbits;       /* com.microsoft.MatMulNBits -> linear_nbits */

/* Memory of the module for packed data, not cleared; NULL: there is none. */
void *cpu_pack_alloc(ir_module *module, size_t bytes);
/* The constant that a value is, if its data are there; else NULL, as for value NULL. */
const gqac_tensor *cpu_pack_constant(const ir_value *value);
/* A zeroed constant of rank 3, NAME.what, beside the one it is made from, and its data. */
gqac_status cpu_pack_add(const ir_value *from, const char *what, gqac_dtype dtype,
                         const int64_t dims[3], ir_value **value, void **data, gqac_diag *diag);
struct nbits_shape;
/* Words of `columns` (at most 64) rows of codes, s->words each, as a panel that was cleared. */
void cpu_pack_words(const struct nbits_shape *s, const unsigned char *from, int64_t columns,
                    unsigned char *to);
/* A weight [k,n], or [n,k] when transposed, as the constant of linear_bf16. */
gqac_status cpu_pack_pairs(const ir_value *weight, bool transposed, int64_t n, int64_t k,
                           gqac_poll *poll, ir_value **packed, gqac_diag *diag);

/* target_cpu.pack */
gqac_status cpu_pack(ir_module *module, const op_options *options, size_t *changed, gqac_poll *poll,
                     gqac_diag *diag);

#endif
