/* y [B,1|Hq,S,M] in the type of the query, for M = total: 0 where the layout of blocks lets query s
 * of batch row b, at position p = p_b + s, attend to key j, and -inf elsewhere. Head h uses layout
 * h mod L, whose block row p / block lists the blocks of visible keys. Attention itself handles
 * causality and padding, so rows s >= n_b and keys after p are unspecified. row_indices [L,R+1]
 * i32, col_indices [L,C] i32: block row r of layout l lists the blocks
 *   col_indices[l][row_indices[l][r] .. row_indices[l][r + 1] - 1]
 * Constant layouts are checked when the model is compiled, others in every call. */
#include "ops/attention.h"

#include <stdio.h>

#include "numerics/dialect.h"

enum { ROWS, COLS, PAST_LEN, NEW_LEN, QUERY, PAST, TOTAL };

static const ir_attr_spec attrs[] = {
    {"heads", IR_ATTR_INT, .required = true, .doc = "query heads Hq"},
    {"block", IR_ATTR_INT, .required = true, .doc = "tokens of a block"},
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_int(node, "heads", 1, INT32_MAX, diag));
    return op_check_int(node, "block", 1, INT32_MAX, diag);
}

/* ---- the layout ---------------------------------------------------------- */

static gqac_status misfit(const ir_node *node, const char *what, gqac_diag *diag) {
    op_fail(node, diag, GQAC_INVALID_MODEL, "%s", what);
    gqac_diag_rule(diag, "block_row_indices [L,R+1] starts at 0 and never decreases; "
                         "block row r lists blocks of 0..r in block_col_indices "
                         "[L,C], its own among them; L divides num_heads");
    gqac_diag_hint(diag, "export the block mask again, as a lower triangle with its diagonal");
    return GQAC_INVALID_MODEL;
}

/* Block row r of layout l lists the n blocks of `cols`. */
static gqac_status check_row(const ir_node *node, int64_t l, int64_t r, const int32_t *cols,
                             int64_t n, gqac_diag *diag) {
    char what[160];
    bool own = false;
    for (int64_t i = 0; i < n; i++) {
        own = own || cols[i] == r;
        if (cols[i] >= 0 && cols[i] <= r)
            continue;
        snprintf(what, sizeof what, "block_col_indices: block row %lld of layout %lld lists %d",
                 (long long)r, (long long)l, cols[i]);
        return misfit(node, what, diag);
    }
    if (own)
        return GQAC_OK;
    snprintf(what, sizeof what,
             "block_col_indices: block row %lld of layout %lld does not list itself", (long long)r,
             (long long)l);
    return misfit(node, what, diag);
}

static gqac_status check_layout(const ir_node *node, const gqac_tensor *rows,
                                const gqac_tensor *cols, gqac_diag *diag) {
    char what[160];
    bool flat =
        rows->dtype == GQAC_I32 && cols->dtype == GQAC_I32 && rows->rank == 2 && cols->rank == 2;
    if (!flat || rows->dims[0] != cols->dims[0] || rows->dims[0] < 1 || rows->dims[1] < 2 ||
        ir_attr_int(node, "heads") % rows->dims[0] != 0)
        return misfit(node, "block_row_indices or block_col_indices has a wrong shape or type",
                      diag);
    const int32_t *from = rows->data, *to = cols->data;
    int64_t width = rows->dims[1], capacity = cols->dims[1];
    for (int64_t i = 0; i < rows->dims[0] * width; i++) {
        int64_t l = i / width, r = i % width;
        if (r == 0 ? from[i] != 0 : from[i] < from[i - 1] || from[i] > capacity) {
            snprintf(what, sizeof what, "block_row_indices[%lld][%lld] = %d is out of order",
                     (long long)l, (long long)r, from[i]);
            return misfit(node, what, diag);
        }
        if (r > 0)
            GQAC_TRY(check_row(node, l, r - 1, to + l * capacity + from[i - 1],
                               from[i] - from[i - 1], diag));
    }
    return GQAC_OK;
}

static const gqac_tensor *constant(const ir_node *node, int input) {
    const ir_value *value = ir_node_input(node, input);
    return value && value->constant && value->constant->data ? value->constant : NULL;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const ir_dim *total = NULL;
    for (int i = ROWS; i <= COLS; i++) {
        GQAC_TRY(attention_want_dtype(node, i, GQAC_I32, diag));
        GQAC_TRY(attention_want_rank(node, i, 2, diag));
    }
    GQAC_TRY(op_check_single(node, TOTAL, diag));
    const gqac_tensor *rows = constant(node, ROWS), *cols = constant(node, COLS);
    if (rows && cols)
        GQAC_TRY(check_layout(node, rows, cols, diag));
    if (op_elements(node, TOTAL, 1, &total) != 1)
        total = NULL;
    int64_t layouts;
    const ir_dim *heads = NULL;
    if (ir_dim_is_const(op_in_dim(node, ROWS, 0), &layouts))
        heads = ir_dim_const(op_dims(node), layouts == 1 ? 1 : ir_attr_int(node, "heads"));
    const ir_dim *dims[4] = {op_in_dim(node, QUERY, 0), heads, op_in_dim(node, QUERY, 1), total};
    return op_set_type(node, 0, op_in_type(node, QUERY).dtype, 4, dims, diag);
}

/* ---- eval ---------------------------------------------------------------- */

typedef struct blocks {
    const gqac_tensor *rows, *cols;
    const int32_t *past_len, *new_len;
    gqac_tensor *y;
    int64_t block, heads, queries, keys; /* heads: of y */
} blocks;

/* Items are (b, h, s). */
static void run(void *arg, size_t begin, size_t end, int worker) {
    const blocks *k = arg;
    const float hidden = -gqn_as_f32(GQN_INF_BITS);
    (void)worker;
    for (size_t item = begin; item < end; item++) {
        int64_t s = (int64_t)item % k->queries, rest = (int64_t)item / k->queries;
        int64_t b = rest / k->heads, l = rest % k->heads % k->rows->dims[0];
        int64_t at = (int64_t)item * k->keys, row = (k->past_len[b] + s) / k->block;
        for (int64_t j = 0; j < k->keys; j++)
            op_put_f32(k->y, at + j, hidden);
        if (s >= k->new_len[b])
            continue;
        const int32_t *from = (const int32_t *)k->rows->data + l * k->rows->dims[1] + row;
        const int32_t *to = (const int32_t *)k->cols->data + l * k->cols->dims[1];
        for (int32_t i = from[0]; i < from[1]; i++)
            for (int64_t j = to[i] * k->block; j < (to[i] + 1) * k->block && j < k->keys; j++)
                op_put_f32(k->y, at + j, 0.0f);
    }
}

static gqac_status check_lengths(op_call *call, const blocks *k, int64_t batch) {
    int64_t places = (k->rows->dims[1] - 1) * k->block, capacity = call->in[PAST]->dims[2];
    if (k->keys < 1 || k->keys > capacity)
        OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                "total_sequence_length = %lld exceeds past_key, a buffer that has %lld rows for "
                "all tokens",
                (long long)k->keys, (long long)capacity);
    for (int64_t b = 0; b < batch; b++) {
        int64_t end = (int64_t)k->past_len[b] + k->new_len[b];
        if (end > places || end > k->keys || k->new_len[b] > k->queries)
            OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                    "sequence %lld has %lld tokens: the block mask is for %lld at most, "
                    "total_sequence_length is %lld",
                    (long long)b, (long long)end, (long long)places, (long long)k->keys);
    }
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    for (int i = ROWS; i <= COLS; i++)
        GQAC_TRY(op_want(call, i, GQAC_I32));
    GQAC_TRY(op_want(call, TOTAL, GQAC_I32));
    GQAC_TRY(attention_float(call, QUERY, 3));
    GQAC_TRY(attention_float(call, PAST, 4));
    GQAC_TRY(check_layout(call->node, call->in[ROWS], call->in[COLS], call->diag));
    const gqac_tensor *query = call->in[QUERY];
    const int64_t batch = query->dims[0];
    blocks k = {.rows = call->in[ROWS],
                .cols = call->in[COLS],
                .block = ir_attr_int(call->node, "block"),
                .queries = query->dims[1]};
    k.heads = k.rows->dims[0] == 1 ? 1 : ir_attr_int(call->node, "heads");
    GQAC_TRY(op_int(call, TOTAL, &k.keys));
    GQAC_TRY(attention_lengths(call, PAST_LEN, batch, &k.past_len));
    GQAC_TRY(attention_lengths(call, NEW_LEN, batch, &k.new_len));
    GQAC_TRY(check_lengths(call, &k, batch));
    int64_t dims[4] = {batch, k.heads, k.queries, k.keys};
    GQAC_TRY(op_output(call, 0, query->dtype, 4, dims));
    k.y = &call->out[0];
    op_parallel(call, batch * k.heads * k.queries, 1 + k.keys / 4, run, &k);
    return GQAC_OK;
}

const gqac_op gqac_op_block_bias = {
    .schema = {.name = "block_bias",
               .domain = "gqac",
               .since = 1,
               .inputs = "row_indices col_indices past_len new_len query past total",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_STATE,
               .doc = "0 for keys in the blocks that a layout selects for a query, else -inf"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
