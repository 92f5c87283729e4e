/* com.microsoft.SparseAttention: GroupQueryAttention with a layout of blocks that selects the keys
 * of each query. Past and present are buffers [B,Hkv,M,D], key_total_sequence_lengths the lengths
 * after this call. Lowered to GroupQueryAttention with the bias that block_bias makes of the
 * layout. */
#include "ops/attention.h"
#include "ops/build.h"

#include <math.h>

enum {
    QUERY,
    KEY,
    VALUE,
    PAST_KEY,
    PAST_VALUE,
    BLOCK_ROWS,
    BLOCK_COLS,
    TOTAL,
    LENGTHS,
    COS,
    SIN,
    N_INPUTS
};

static const ir_attr_spec attrs[] = {
    {"num_heads", IR_ATTR_INT, .required = true, .doc = "query heads Hq"},
    {"kv_num_heads", IR_ATTR_INT, .required = true, .doc = "key/value heads Hkv; divides Hq"},
    {"sparse_block_size", IR_ATTR_INT, .required = true, .doc = "tokens of a block"},
    OP_ATTR_FLOAT("scale", 0, "factor of the scores; 0: 1/sqrt(D)"),
    OP_ATTR_INT("do_rotary", 0, "1: rotary embedding of queries and keys"),
    OP_ATTR_INT("rotary_interleaved", 0, "1: pairs are neighbours, 0: half a head apart"),
    {.name = NULL},
};

static bool has(const ir_node *node, int input) {
    return ir_node_input(node, input) != NULL;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    int64_t q = ir_attr_int(node, "num_heads"), kv = ir_attr_int(node, "kv_num_heads");
    if (q < 1 || q > INT32_MAX || kv < 1 || q % kv != 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attributes num_heads = %lld, kv_num_heads = %lld: must be positive, and the "
                "second must divide the first",
                (long long)q, (long long)kv);
    GQAC_TRY(op_check_int(node, "sparse_block_size", 1, INT32_MAX, diag));
    GQAC_TRY(op_check_int(node, "do_rotary", 0, 1, diag));
    GQAC_TRY(op_check_int(node, "rotary_interleaved", 0, 1, diag));
    GQAC_TRY(op_check_float(node, "scale", true, diag));
    if (has(node, KEY) != has(node, VALUE) || has(node, COS) != has(node, SIN))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "inputs key and value, and cos_cache and sin_cache, must be both present or both "
                "absent");
    if (ir_attr_int(node, "do_rotary") && !has(node, COS))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "do_rotary = 1 needs cos_cache and sin_cache");
    if ((ir_node_output(node, 1) != NULL) != (ir_node_output(node, 2) != NULL))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "present_key and present_value must be both wanted or both omitted");
    return GQAC_OK;
}

/* Checks what GroupQueryAttention does not have; the rest is checked by its own infer after the
 * lowering. */
static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_dims *dims = op_dims(node);
    gqac_dtype dtype = op_in_type(node, QUERY).dtype;
    GQAC_TRY(op_check_dtype(node, QUERY, OP_FLOATS, diag));
    GQAC_TRY(attention_want_rank(node, QUERY, 3, diag));
    for (int i = PAST_KEY; i <= PAST_VALUE; i++) {
        GQAC_TRY(attention_want_rank(node, i, 4, diag));
        GQAC_TRY(op_check_same(node, i, QUERY, diag));
        const ir_dim *past[4];
        for (int axis = 0; axis < 4; axis++)
            past[axis] = op_in_dim(node, i, axis);
        GQAC_TRY(op_set_type(node, i - PAST_KEY + 1, dtype, 4, past, diag));
    }
    const ir_dim *heads = ir_dim_const(dims, ir_attr_int(node, "num_heads"));
    const ir_dim *out[3] = {op_in_dim(node, QUERY, 0), op_in_dim(node, QUERY, 1),
                            ir_dim_mul(dims, heads, op_in_dim(node, PAST_KEY, 3))};
    return op_set_type(node, 0, dtype, 3, out, diag);
}

static ir_value *bias_of(ir_builder *b, ir_node *node, ir_value *const *in, ir_value *last) {
    ir_value *past, *fresh;
    OP_BUILD(b, "seqlens_to_past", .in = {last, in[TOTAL], in[QUERY], in[PAST_KEY]},
             .out = {&past, &fresh});
    return OP_BUILD(
        b, "block_bias",
        .in = {in[BLOCK_ROWS], in[BLOCK_COLS], past, fresh, in[QUERY], in[PAST_KEY], in[TOTAL]},
        .ints = {{"heads", ir_attr_int(node, "num_heads")},
                 {"block", ir_attr_int(node, "sparse_block_size")}});
}

static bool is_possible(ir_builder *b, const ir_node *node, const op_options *options) {
    if (options->for_sequences) {
        op_refuse(b, node, "a layout of blocks in a sequence is not supported");
        gqac_diag_rule(b->diag, "the mask of a sequence is causal, a window or padding");
        gqac_diag_hint(b->diag, "`gqac run` runs the graph as exported");
    } else if (options->cached_lengths) {
        op_refuse(b, node, "--seqlens-k cached does not apply to key_total_sequence_lengths");
        gqac_diag_rule(b->diag, "these lengths count all tokens, including those of the call");
        gqac_diag_hint(b->diag, "leave --seqlens-k out");
    }
    return b->status == GQAC_OK;
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    ir_value *in[N_INPUTS], *made[3];
    for (int i = 0; i < N_INPUTS; i++)
        in[i] = ir_node_input(node, i);
    if (!is_possible(b, node, options))
        return;
    ir_value *one = op_build_cast(b, ir_build_i64(b, 1), GQAC_I32);
    ir_value *last = OP_BUILD(b, "Sub", .in = {in[LENGTHS], one});
    OP_BUILD(b, "com.microsoft.GroupQueryAttention",
             .in = {in[QUERY], in[KEY], in[VALUE], in[PAST_KEY], in[PAST_VALUE], last, in[TOTAL],
                    in[COS], in[SIN], NULL, bias_of(b, node, in, last)},
             .of = node,
             .same = {"num_heads", "kv_num_heads", "do_rotary", "rotary_interleaved", "scale"},
             .out = {&made[0], &made[1], &made[2]});
    for (int i = 0; i < 3 && i < node->n_outputs; i++)
        results[i] = made[i];
}

const gqac_op gqac_op_sparse_attention = {
    .schema = {.name = "SparseAttention",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "query key? value? past_key past_value block_row_indices "
                         "block_col_indices total_sequence_length key_total_sequence_lengths "
                         "cos_cache? sin_cache?",
               .outputs = "output present_key? present_value?",
               .attrs = attrs,
               .flags = IR_OP_LOWER,
               .rows = IR_ROWS_STATE,
               .doc = "GroupQueryAttention over the blocks of keys that a layout selects"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
};
