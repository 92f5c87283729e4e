/* Packing: constant weights in the form that the kernels of this target read. Each family has a
 * function that replaces the nodes it knows by one of gqac's own ops (`linear`, ...) on packed
 * constants; pack.c calls it for each node. */
#ifndef GQAC_TARGETS_CPU_PACK_H
#define GQAC_TARGETS_CPU_PACK_H

#include "targets/cpu/cpu.h"
#include "targets/target.h"

/* Replaces every use of the node's outputs by outputs of new nodes before it, and sets *packed; or
 * changes nothing. The node itself stays, unused: the sweep after the pass removes it, and weights
 * that nothing reads. The function may replace other nodes in the same way. Packed data belong to
 * the arena of the module and to the graph that holds the original constant. During long work it
 * calls the poll, which may be NULL. */
typedef gqac_status cpu_pack_node(ir_node *node, const op_options *options, gqac_poll *poll,
                                  bool *packed, gqac_diag *diag);

cpu_pack_node cpu_pack_dequantised; /* MatMul by a DequantizeLinear -> MatMulNBits, linear_nbits */
cpu_pack_node cpu_pack_linear;      /* MatMul, Gemm -> linear, linear_bf16 */
cpu_pack_node cpu_pack_integer;     /* MatMulInteger -> linear_integer */
cpu_pack_node cpu_pack_moe;         /* com.microsoft.MoE, QMoE -> moe */
cpu_pack_node cpu_pack_nbits;       /* com.microsoft.MatMulNBits -> linear_nbits */

/* Memory of the module for packed data, uninitialised; NULL: out of memory. */
void *cpu_pack_alloc(ir_module *module, size_t bytes);
/* The tensor of a constant value with data; NULL: other values, and value NULL. */
const gqac_tensor *cpu_pack_constant(const ir_value *value);
/* Adds a zeroed constant of rank 3, named NAME.what and placed after the constant NAME from which
 * it is computed, and sets its data. */
gqac_status cpu_pack_add(const ir_value *from, const char *what, gqac_dtype dtype,
                         const int64_t dims[3], ir_value **value, void **data, gqac_diag *diag);
/* The matrix of which the value is the transpose, and changes *transposed; other values are
 * returned. NULL: a Transpose that leaves the axes of a matrix in order. */
ir_value *cpu_pack_untransposed(ir_value *value, bool *transposed);
/* Replaces `old` by y, which the builder has made for `node`: the node of y gets its name, and its
 * types are inferred. Returns the builder's status if that is not OK. */
gqac_status cpu_pack_replace(const ir_builder *b, const ir_node *node, ir_value *old, ir_value *y);
struct nbits_shape;
/* Packs `columns` (at most 64) rows of codes, s->words words each, into a zeroed panel. */
void cpu_pack_words(const struct nbits_shape *s, const unsigned char *from, int64_t columns,
                    unsigned char *to);
/* Packs a weight [k,n], or [n,k] if transposed, as the constant of a linear_bf16. */
gqac_status cpu_pack_pairs(const ir_value *weight, bool transposed, int64_t n, int64_t k,
                           gqac_poll *poll, ir_value **packed, gqac_diag *diag);

/* target_cpu.pack */
gqac_status cpu_pack(ir_module *module, const op_options *options, size_t *changed, gqac_poll *poll,
                     gqac_diag *diag);

#endif
