/* y [M,C] = cache [M,C] with row kv_pos replaced by new_kv [1,C]; every other row keeps its bits.
 * The op has no effect: a node that needs the new row reads y, which fixes the order, and `plan`
 * decides whether y overwrites the cache. OUT_OF_RANGE: kv_pos is outside the cache. */
#include "ops/attention.h"

#include <string.h>

enum { NEW, CACHE, POS };

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, NEW, 2, diag));
    GQAC_TRY(attention_want_rank(node, CACHE, 2, diag));
    GQAC_TRY(op_check_dtype(node, CACHE, OP_ANY & ~OP_NIBBLES, diag));
    GQAC_TRY(op_check_same(node, NEW, CACHE, diag));
    GQAC_TRY(op_check_dtype(node, POS, OP_INTS, diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, NEW, 0), ir_dim_const(op_dims(node), 1),
                                "rows of new_kv", diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, NEW, 1), op_in_dim(node, CACHE, 1),
                                "columns of new_kv", diag));
    const ir_dim *dims[2] = {op_in_dim(node, CACHE, 0), op_in_dim(node, CACHE, 1)};
    return op_set_type(node, 0, op_in_type(node, CACHE).dtype, 2, dims, diag);
}

static gqac_status read_row(op_call *call, int64_t rows, int64_t *row) {
    GQAC_TRY(op_want_set(call, POS, OP_INTS));
    const gqac_tensor *pos = call->in[POS];
    if (gqac_tensor_count(pos) != 1)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "kv_pos has %lld elements, expected 1",
                (long long)gqac_tensor_count(pos));
    *row = op_get_i64(pos, 0);
    if (*row < 0 || *row >= rows)
        OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                "kv_pos = %lld is out of range for a cache of %lld rows", (long long)*row,
                (long long)rows);
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    int64_t row;
    GQAC_TRY(op_want_set(call, CACHE, OP_ANY & ~OP_NIBBLES));
    const gqac_tensor *fresh = call->in[NEW], *cache = call->in[CACHE];
    GQAC_TRY(op_want(call, NEW, cache->dtype));
    if (fresh->rank != 2 || cache->rank != 2)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "new_kv must be one row [1,C] of a cache [M,C], their ranks are %d and %d",
                fresh->rank, cache->rank);
    if (fresh->dims[0] != 1 || fresh->dims[1] != cache->dims[1])
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "new_kv [%lld,%lld] is not one row of a cache [%lld,%lld]",
                (long long)fresh->dims[0], (long long)fresh->dims[1], (long long)cache->dims[0],
                (long long)cache->dims[1]);
    GQAC_TRY(read_row(call, cache->dims[0], &row));
    GQAC_TRY(op_output_like(call, 0, cache->dtype, cache));
    size_t bytes = gqac_tensor_bytes(cache), width = gqac_tensor_bytes(fresh);
    unsigned char *y = call->out[0].data;
    if (bytes == 0)
        return GQAC_OK;
    memcpy(y, cache->data, bytes);
    memcpy(y + (size_t)row * width, fresh->data, width);
    return GQAC_OK;
}

const gqac_op gqac_op_cache_write = {
    .schema = {.name = "cache_write",
               .domain = "gqac",
               .since = 1,
               .inputs = "new_kv cache kv_pos",
               .outputs = "y",
               .rows = IR_ROWS_STATE,
               .doc = "y = cache [M,C] with row kv_pos replaced by new_kv [1,C]"},
    .infer = infer,
    .eval = eval,
};
