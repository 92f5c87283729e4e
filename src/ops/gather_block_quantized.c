/* com.microsoft.GatherBlockQuantized: rows of a block-quantised table.
 *   data [V, ..., Q] codes, scales [V, ..., ceil(Q / block_size)], zero_points likewise (packed)
 *   indices [I...] -> y [I..., ..., Q] in the type of scales, y = (code - zp) * scale
 * Codes are i4, u4, or u8 that holds 8 / bits codes, low bits first, along the last axis. Without
 * zero points zp is 0 for i4 and u4, 2^(bits-1) for u8. Indices < 0 count from the end; rows of
 * indices that are out of range are zeros. */
#include "ops/shared.h"

#include <string.h>

enum { DATA, INDICES, SCALES, ZERO_POINTS };

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("gather_axis", 0, "only 0"),
    OP_ATTR_INT("quantize_axis", 1, "only the last axis"),
    OP_ATTR_INT("block_size", 128, "a power of two, at least 16"),
    OP_ATTR_INT("bits", 4, "bits of a code: 2, 4 or 8"),
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    int64_t bits = ir_attr_int(node, "bits");
    if (ir_attr_int(node, "gather_axis") != 0)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute gather_axis = %lld: only 0 is supported",
                (long long)ir_attr_int(node, "gather_axis"));
    if (bits != 2 && bits != 4 && bits != 8)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute bits = %lld: must be 2, 4 or 8",
                (long long)bits);
    return op_check_block(node, "block_size", INT64_MAX, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, DATA, OP_NIBBLES | OP_BIT(U8), diag));
    GQAC_TRY(op_check_dtype(node, INDICES, OP_INDICES, diag));
    GQAC_TRY(op_check_dtype(node, SCALES, OP_FLOATS, diag));
    ir_type data = op_in_type(node, DATA), indices = op_in_type(node, INDICES);
    gqac_dtype dtype = op_in_type(node, SCALES).dtype;
    if (data.rank < 0 || indices.rank < 0 || data.dtype == GQAC_NONE)
        return op_set_type(node, 0, dtype, -1, NULL, diag);
    int axis;
    GQAC_TRY(op_axis(node, ir_attr_int(node, "quantize_axis"), data.rank, &axis, diag));
    if (data.rank < 2 || axis != data.rank - 1)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED,
                "attribute quantize_axis = %d: only the last axis is supported", axis);
    const ir_dim *dims[2 * GQAC_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < indices.rank; i++)
        dims[rank++] = indices.dims[i];
    for (int i = 1; i < data.rank; i++)
        dims[rank++] = data.dims[i];
    int64_t per = data.dtype == GQAC_U8 ? 8 / ir_attr_int(node, "bits") : 1;
    dims[rank - 1] = ir_dim_mul(op_dims(node), dims[rank - 1], ir_dim_const(op_dims(node), per));
    return op_set_type(node, 0, dtype, rank, dims, diag);
}

typedef struct gather {
    const gqac_tensor *data, *indices, *scales, *zero;
    gqac_tensor *y;
    int64_t entries, inner, codes, blocks, block, zero_row; /* inner: rows [codes] of an entry */
    int bits;
    op_scratch scratch;
} gather;

/* Code `index` of a row of u8, with 8 / bits codes in a byte. */
static int64_t code_at(const gqac_tensor *tensor, int64_t row_bytes, int64_t row, int64_t index,
                       int bits) {
    if (tensor->dtype != GQAC_U8)
        return op_get_i64(tensor, row * row_bytes + index);
    int64_t bit = index * bits;
    uint8_t byte = ((const uint8_t *)tensor->data)[row * row_bytes + (bit >> 3)];
    return byte >> (bit & 7) & ((1 << bits) - 1);
}

static void one_row(const gather *g, int64_t row, float *y) {
    int64_t width = g->data->dims[g->data->rank - 1];
    for (int64_t i = 0; i < g->codes; i++) {
        int64_t block = i / g->block;
        float scale = op_get_f32(g->scales, row * g->blocks + block);
        int64_t zero = g->data->dtype == GQAC_U8 ? 1 << (g->bits - 1) : 0;
        if (g->zero)
            zero = code_at(g->zero, g->zero_row, row, block, g->bits);
        y[i] = (float)(code_at(g->data, width, row, i, g->bits) - zero) * scale;
    }
}

static void run(void *arg, size_t begin, size_t end, int worker) {
    const gather *g = arg;
    float *y = (float *)(void *)(g->scratch.base + (size_t)worker * g->scratch.stride);
    for (size_t item = begin; item < end; item++) {
        int64_t index = op_get_i64(g->indices, (int64_t)item);
        if (index < 0)
            index += g->entries;
        bool inside = index >= 0 && index < g->entries;
        for (int64_t i = 0; i < g->inner; i++) {
            if (inside)
                one_row(g, index * g->inner + i, y);
            else
                memset(y, 0, (size_t)g->codes * sizeof *y);
            op_put_f32s(g->y, ((int64_t)item * g->inner + i) * g->codes, g->codes, y);
        }
    }
}

static gqac_status check_shapes(op_call *call, gather *g) {
    const gqac_tensor *data = g->data;
    int axis;
    GQAC_TRY(op_axis(call->node, ir_attr_int(call->node, "quantize_axis"), data->rank, &axis,
                     call->diag));
    if (data->rank < 2 || axis != data->rank - 1)
        OP_FAIL(call->node, call->diag, GQAC_UNSUPPORTED, "only the last axis may be quantised");
    g->entries = data->dims[0];
    g->inner = op_product(data->dims, 1, data->rank - 1);
    g->codes = data->dims[axis] * (data->dtype == GQAC_U8 ? 8 / g->bits : 1);
    g->blocks = (g->codes + g->block - 1) / g->block;
    int64_t rows = g->entries * g->inner;
    if (gqac_tensor_count(g->scales) != rows * g->blocks)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "scales has %lld elements, expected %lld", (long long)gqac_tensor_count(g->scales),
                (long long)(rows * g->blocks));
    if (!g->zero)
        return GQAC_OK;
    GQAC_TRY(op_want(call, ZERO_POINTS, data->dtype));
    g->zero_row = data->dtype == GQAC_U8 ? (g->blocks * g->bits + 7) / 8 : g->blocks;
    if (gqac_tensor_count(g->zero) != rows * g->zero_row)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "zero_points has %lld elements, expected %lld",
                (long long)gqac_tensor_count(g->zero), (long long)(rows * g->zero_row));
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want_set(call, DATA, OP_NIBBLES | OP_BIT(U8)));
    GQAC_TRY(op_want_set(call, INDICES, OP_INDICES));
    GQAC_TRY(op_want_set(call, SCALES, OP_FLOATS));
    gather g = {.data = call->in[DATA],
                .indices = call->in[INDICES],
                .scales = call->in[SCALES],
                .zero = call->node->n_inputs > ZERO_POINTS ? call->in[ZERO_POINTS] : NULL,
                .y = &call->out[0],
                .block = ir_attr_int(call->node, "block_size"),
                .bits = (int)ir_attr_int(call->node, "bits")};
    GQAC_TRY(check_shapes(call, &g));
    int64_t dims[2 * GQAC_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < g.indices->rank; i++)
        dims[rank++] = g.indices->dims[i];
    for (int i = 1; i < g.data->rank; i++)
        dims[rank++] = g.data->dims[i];
    dims[rank - 1] = g.codes;
    if (rank > GQAC_MAX_RANK)
        OP_FAIL(call->node, call->diag, GQAC_UNSUPPORTED,
                "the result has rank %d, the maximum is %d", rank, GQAC_MAX_RANK);
    GQAC_TRY(op_output(call, 0, g.scales->dtype, rank, dims));
    GQAC_TRY(op_scratch_open(call, (size_t)g.codes, sizeof(float), &g.scratch));
    op_parallel(call, gqac_tensor_count(g.indices), 1 + 4 * g.inner * g.codes, run, &g);
    op_scratch_close(&g.scratch);
    return GQAC_OK;
}

const gqac_op gqac_op_gather_block_quantized = {
    .schema = {.name = "GatherBlockQuantized",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "data indices scales zero_points?",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "rows of a block-quantised table, (code - zero point) * scale"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
