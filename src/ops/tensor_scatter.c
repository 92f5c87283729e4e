/* TensorScatter: present_cache = past_cache with the rows of update written along `axis` of each
 * batch row b at write_indices[b] + s (from 0 without write_indices), s < S ascending; mode
 * circular wraps at the length of the cache, linear must fit. Source: ONNX operator spec. */
#include "ops/copy.h"

#include <string.h>

enum { CACHE, UPDATE, INDICES };

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("axis", -2, "axis of the rows, not the batch"),
    OP_ATTR_STRING("mode", "linear", "linear, or circular: wraps at the end"),
    {.name = NULL},
};

static bool wraps(const ir_node *node) {
    return strcmp(ir_attr_get(node, "mode")->s, "circular") == 0;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    if (!wraps(node) && strcmp(ir_attr_get(node, "mode")->s, "linear") != 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute mode = '%s': must be linear or circular",
                ir_attr_get(node, "mode")->s);
    return GQAC_OK;
}

static gqac_status row_axis(const ir_node *node, int rank, int *axis, gqac_diag *diag) {
    GQAC_TRY(op_axis(node, ir_attr_int(node, "axis"), rank, axis, diag));
    if (*axis == 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute axis is the axis of the batch");
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type cache = op_in_type(node, CACHE), update = op_in_type(node, UPDATE);
    int axis;
    GQAC_TRY(op_check_same(node, UPDATE, CACHE, diag));
    GQAC_TRY(op_check_dtype(node, CACHE, OP_ANY, diag));
    GQAC_TRY(op_check_dtype(node, INDICES, OP_INDICES, diag));
    if (cache.rank >= 0)
        GQAC_TRY(row_axis(node, cache.rank, &axis, diag));
    if (cache.rank >= 0 && update.rank >= 0 && cache.rank != update.rank)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "past_cache has rank %d, but update has rank %d",
                cache.rank, update.rank);
    return op_set_type_like(node, 0, cache, diag);
}

static gqac_status check(op_call *call, int axis) {
    const gqac_tensor *cache = call->in[CACHE], *update = call->in[UPDATE];
    const gqac_tensor *at = call->node->n_inputs > INDICES ? call->in[INDICES] : NULL;
    int64_t rows = cache->dims[axis], fresh = update->dims[axis];
    bool fits = update->rank == cache->rank;
    for (int i = 0; i < cache->rank && fits; i++)
        fits = i == axis || update->dims[i] == cache->dims[i];
    if (!fits || fresh > rows)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "the shape of update does not fit that of past_cache");
    if (!at)
        return GQAC_OK;
    GQAC_TRY(op_want_set(call, INDICES, OP_INDICES));
    if (at->rank != 1 || at->dims[0] != cache->dims[0])
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "write_indices must have the shape [%lld]", (long long)cache->dims[0]);
    for (int64_t b = 0; b < at->dims[0]; b++) {
        int64_t first = op_get_i64(at, b);
        if (first < 0 || first > rows || (!wraps(call->node) && first > rows - fresh))
            OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                    "write_indices[%lld] = %lld: %lld rows do not fit a cache of %lld rows",
                    (long long)b, (long long)first, (long long)fresh, (long long)rows);
    }
    return GQAC_OK;
}

static void copy_all(op_call *call) {
    const gqac_tensor *cache = call->in[CACHE];
    op_box box = {.rank = cache->rank, .in = cache, .out = &call->out[0]};
    if (OP_IN(OP_NIBBLES, cache->dtype)) /* written in halves of a byte; the last element may be
                                            alone in its byte */
        memset(box.out->data, 0, gqac_tensor_bytes(box.out));
    for (int i = 0; i < cache->rank; i++)
        box.dims[i] = cache->dims[i];
    op_strides(cache->rank, cache->dims, box.stride_in);
    op_strides(cache->rank, cache->dims, box.stride_out);
    op_box_copy(call, &box);
}

/* Rows [from, from + n) of update of batch row b to `to`. */
static void write(op_call *call, int axis, int64_t b, int64_t from, int64_t to, int64_t n) {
    const gqac_tensor *update = call->in[UPDATE];
    op_box box = {.rank = update->rank, .in = update, .out = &call->out[0]};
    for (int i = 0; i < update->rank; i++)
        box.dims[i] = i == 0 ? 1 : i == axis ? n : update->dims[i];
    op_strides(update->rank, update->dims, box.stride_in);
    op_strides(update->rank, call->out[0].dims, box.stride_out);
    box.first_in = b * box.stride_in[0] + from * box.stride_in[axis];
    box.first_out = b * box.stride_out[0] + to * box.stride_out[axis];
    if (n > 0)
        op_box_copy(call, &box);
}

static gqac_status eval(op_call *call) {
    int axis;
    GQAC_TRY(op_want_set(call, CACHE, OP_ANY));
    const gqac_tensor *cache = call->in[CACHE];
    GQAC_TRY(op_want(call, UPDATE, cache->dtype));
    GQAC_TRY(row_axis(call->node, cache->rank, &axis, call->diag));
    GQAC_TRY(check(call, axis));
    const gqac_tensor *at = call->node->n_inputs > INDICES ? call->in[INDICES] : NULL;
    GQAC_TRY(op_output(call, 0, cache->dtype, cache->rank, cache->dims));
    if (call->out[0].data != cache->data) /* else it is overwritten in place */
        copy_all(call);
    int64_t rows = cache->dims[axis], fresh = call->in[UPDATE]->dims[axis];
    for (int64_t b = 0; b < cache->dims[0]; b++) {
        int64_t first = at ? op_get_i64(at, b) : 0;
        int64_t straight = fresh < rows - first ? fresh : rows - first;
        write(call, axis, b, 0, first, straight);
        write(call, axis, b, straight, 0, fresh - straight);
    }
    return GQAC_OK;
}

const gqac_op gqac_op_tensor_scatter = {
    .schema = {.name = "TensorScatter",
               .domain = "",
               .since = 24,
               .introduced = 24,
               .inputs = "past_cache update write_indices?",
               .outputs = "present_cache",
               .attrs = attrs,
               .flags = IR_OP_IN_PLACE,
               .rows = IR_ROWS_STATE,
               .doc = "past_cache with the rows of update written at write_indices[b]"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
