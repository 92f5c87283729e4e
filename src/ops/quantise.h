/* Shared by QuantizeLinear and DequantizeLinear: the index of the scale of an element.
 *
 * x is [outer][length][inner] around the attribute axis. Scales (and zero points, in the same
 * shape) are one element for the whole tensor; [length]; or the shape of x, but with one element
 * for each `block` along the axis. Beyond ONNX they may be [..,1] with the rank of x, whatever the
 * axis: one for each row, as quantise_rows makes them. */
#ifndef GQAC_OPS_QUANTISE_H
#define GQAC_OPS_QUANTISE_H

#include "ops/shared.h"

enum { QUANT_X, QUANT_SCALE, QUANT_ZERO };

#define QUANT_CODES (OP_NIBBLES | OP_BIT(I8) | OP_BIT(U8) | OP_BIT(I16) | OP_BIT(U16) | OP_BIT(I32))

typedef struct quant_layout {
    int64_t outer, length, inner;
    int64_t block, blocks; /* blocked: elements of a block, blocks along the axis; else 0 */
    bool by_axis; /* one scale for each index of the axis; for scales of rows the rows are the axis
                   */
} quant_layout;

/* Index of the scale for element (outer o, index a on the axis, inner i). */
static inline int64_t quant_scale_at(const quant_layout *q, int64_t o, int64_t a, int64_t i) {
    if (q->block)
        return (o * q->blocks + a / q->block) * q->inner + i;
    return q->by_axis ? a : 0;
}

float quant_rounded(gqac_dtype dtype, float x); /* to f16, bf16 or f32 (which x is) */
/* DynamicQuantizeLinear of n values: quant_range returns the scale and sets *zero to the zero
 * point; quant_codes writes the codes. */
float quant_range(const float *x, int64_t n, int32_t *zero);
void quant_codes(uint8_t *y, const float *x, int64_t n, float scale, int32_t zero);

extern const ir_attr_spec quant_ms_attrs[]; /* of the ops in com.microsoft */
/* An op in com.microsoft as the one of ONNX with its name. */
void quant_ms_expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results);

gqac_status quant_verify(const ir_node *node, gqac_diag *diag); /* block_size */
/* `mixes`: true if scales depend on the index of a row. */
bool quant_mixes(const ir_node *node);
/* Sets the layout of x for these scales; zero may be NULL. INVALID_INPUT: the shapes do not fit. */
gqac_status quant_layout_of(const ir_node *node, const gqac_tensor *x, const gqac_tensor *scale,
                            const gqac_tensor *zero, quant_layout *layout, gqac_diag *diag);
/* The same check of constant shapes, for infer; INVALID_MODEL. */
gqac_status quant_check_shapes(const ir_node *node, gqac_diag *diag);

#endif
