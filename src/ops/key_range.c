/* lo, hi i32 [B,S]: query s of batch row b attends to the keys lo <= j < hi of the T rows of k.
 *   position of the query  at = offset + s, offset = P; aligned to the end, it is valid[b] - S, or
 *                          max(0, T - S) without valid
 *   hi = min(T, valid[b], at + right + 1)    right -1: no such bound
 *   lo = max(0, at - left)                   left -1: 0
 * A query without visible keys has lo = hi = 0. P is the number of rows of past (0 without). In a
 * sequence past_len and new_len replace past and valid: offset = past_len[b], keys from past_len[b]
 * + new_len[b] on are not visible, and queries s >= new_len[b] (padding) have no visible keys; rows
 * may be packed (attention.h). Causal attention has right = 0. Differs from visible_range in that
 * queries and keys may differ in number: cross attention, and caches that are written by the
 * model. */
#include "ops/attention.h"

enum { Q, K, PAST, VALID, PAST_LEN, NEW_LEN };

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("left", -1, "keys before its own that a query sees; -1: all"),
    OP_ATTR_INT("right", -1, "keys after its own that a query sees; -1: all"),
    OP_ATTR_INT("align_end", 0, "1: the last query has the position of the last valid key"),
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_int(node, "left", -1, INT32_MAX, diag));
    GQAC_TRY(op_check_int(node, "right", -1, INT32_MAX, diag));
    GQAC_TRY(op_check_int(node, "align_end", 0, 1, diag));
    bool past = ir_node_input(node, PAST_LEN), fresh = ir_node_input(node, NEW_LEN);
    if (ir_attr_int(node, "align_end") && !ir_node_input(node, VALID) &&
        (past || ir_node_input(node, PAST)))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "align_end = 1 with a past needs valid");
    if (past != fresh || (past && (ir_node_input(node, PAST) || ir_node_input(node, VALID))))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "past_len needs new_len, and excludes past and valid");
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    for (int i = Q; i <= PAST; i++)
        GQAC_TRY(attention_want_rank(node, i, 4, diag));
    GQAC_TRY(op_check_dtype(node, VALID, OP_INDICES, diag));
    GQAC_TRY(attention_want_dtype(node, PAST_LEN, GQAC_I32, diag));
    GQAC_TRY(attention_want_dtype(node, NEW_LEN, GQAC_I32, diag));
    const ir_dim *dims[2] = {op_in_dim(node, Q, 0), op_in_dim(node, Q, 2)};
    GQAC_TRY(op_set_type(node, 0, GQAC_I32, 2, dims, diag));
    return op_set_type(node, 1, GQAC_I32, 2, dims, diag);
}

static bool mixes(const ir_node *node) {
    return ir_attr_int(node, "right") != 0;
}

static gqac_status check(op_call *call, int64_t batch, int64_t keys) {
    const gqac_tensor *valid = call->node->n_inputs > VALID ? call->in[VALID] : NULL;
    if (!valid)
        return GQAC_OK;
    GQAC_TRY(op_want_set(call, VALID, OP_INDICES));
    if (valid->rank != 1 || valid->dims[0] != batch)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "the numbers of valid keys must have the shape [%lld]", (long long)batch);
    for (int64_t b = 0; b < batch; b++)
        if (op_get_i64(valid, b) < 0 || op_get_i64(valid, b) > keys)
            OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                    "sequence %lld has %lld valid keys of %lld", (long long)b,
                    (long long)op_get_i64(valid, b), (long long)keys);
    return GQAC_OK;
}

typedef struct ranges {
    int64_t left, right, batch, rows, keys;
    int32_t *lo, *hi;
} ranges;

/* Sets the range of a query at position `at`; there are no keys from `end` on. */
static void set(const ranges *r, int64_t row, int64_t at, int64_t end) {
    int64_t first = r->left >= 0 && at > r->left ? at - r->left : 0;
    if (r->right >= 0 && at + r->right + 1 < end)
        end = at + r->right + 1;
    r->lo[row] = first < end ? (int32_t)first : 0;
    r->hi[row] = first < end ? (int32_t)end : 0;
}

static gqac_status of_sequence(op_call *call, const ranges *r) {
    attention_rows of;
    int64_t row = 0;
    GQAC_TRY(attention_rows_open(call, PAST_LEN, r->batch, r->rows, &of));
    for (int64_t b = 0; b < of.n; b++) {
        const int64_t past = of.past[b], end = past + of.fresh[b], n = attention_rows_of(&of, b);
        if (end > r->keys)
            OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                    "sequence %lld: %lld past and %d new tokens, but %lld keys", (long long)b,
                    (long long)past, of.fresh[b], (long long)r->keys);
        for (int64_t s = 0; s < n; s++)
            set(r, row++, past + s, s < of.fresh[b] ? end : 0);
    }
    return GQAC_OK;
}

static void of_call(const op_call *call, const ranges *r) {
    const gqac_tensor *past = call->node->n_inputs > PAST ? call->in[PAST] : NULL;
    const gqac_tensor *valid = call->node->n_inputs > VALID ? call->in[VALID] : NULL;
    bool align = ir_attr_int(call->node, "align_end") == 1;
    for (int64_t b = 0; b < r->batch; b++) {
        int64_t end = valid ? op_get_i64(valid, b) : r->keys;
        int64_t offset = align ? end - r->rows : past ? past->dims[2] : 0;
        if (!valid && offset < 0)
            offset = 0;
        for (int64_t s = 0; s < r->rows; s++)
            set(r, b * r->rows + s, offset + s, end);
    }
}

static gqac_status eval(op_call *call) {
    int n = call->node->n_inputs;
    for (int i = Q; i <= PAST && i < n; i++)
        if (i != PAST || call->in[PAST])
            GQAC_TRY(attention_float(call, i, 4));
    const gqac_tensor *past = n > PAST ? call->in[PAST] : NULL;
    int64_t dims[2] = {call->in[Q]->dims[0], call->in[Q]->dims[2]};
    ranges r = {.left = ir_attr_int(call->node, "left"),
                .right = ir_attr_int(call->node, "right"),
                .batch = dims[0],
                .rows = dims[1],
                .keys = call->in[K]->dims[2]};
    int64_t before = past ? past->dims[2] : 0;
    if (r.keys > INT32_MAX / 2 || r.rows > INT32_MAX / 2 || before > r.keys)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "%lld queries, %lld keys and %lld rows of the past do not fit: the keys include "
                "the past, and all are below 2^30",
                (long long)r.rows, (long long)r.keys, (long long)before);
    GQAC_TRY(check(call, dims[0], r.keys));
    GQAC_TRY(op_output(call, 0, GQAC_I32, 2, dims));
    GQAC_TRY(op_output(call, 1, GQAC_I32, 2, dims));
    r.lo = call->out[0].data;
    r.hi = call->out[1].data;
    if (r.rows == 0)
        return GQAC_OK;
    if (n > PAST_LEN && call->in[PAST_LEN])
        return of_sequence(call, &r);
    of_call(call, &r);
    return GQAC_OK;
}

const gqac_op gqac_op_key_range = {
    .schema = {.name = "key_range",
               .domain = "gqac",
               .since = 1,
               .inputs = "q k past? valid? past_len? new_len?",
               .outputs = "lo hi",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "the keys lo <= j < hi of k [B,Hkv,T,D] that each query of q [B,Hq,S,D] "
                      "sees, i32 [B,S]"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
    .mixes = mixes,
};
