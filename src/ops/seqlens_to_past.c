/* past_len, new_len [B] from seqlens_k and total_sequence_length: the only code that knows what
 * seqlens_k means. All other ops use p_b = past_len[b] and n_b = new_len[b].
 *
 *   total-1: t_b = seqlens_k[b] + 1 is the valid length after this call.
 *            S == total: a first prompt, p_b = 0, n_b = t_b (right-padded rows have t_b < S);
 *            else p_b = t_b - S, n_b = S.
 *   cached:  p_b = seqlens_k[b] rows are cached; with S > 1 the values 0 and C both mean a first
 *            prompt, p_b = 0; n_b = S.
 * C = max(total, P) is the capacity, P the rows of past_key. A cache either grows to the length
 * that is needed (total = P + S) or already has the capacity (total <= P). For a window-sized cache
 * (windowed) neither rule holds: lengths may exceed total and C, p_b is t_b - S or seqlens_k[b] and
 * n_b = S always.
 *
 * positions [B,S] i64, from position_ids [B,>=S]: in a first prompt (S == total) positions count up
 * from the first id in every row; else each token has its own id. A key or value [B,S,..] has as
 * many rows as the query, or none if the past already has them. A bias [..,S,total] has a row for
 * each new token and a column for each key. */
#include "ops/attention.h"

#include <string.h>

enum { SEQLENS_K, TOTAL, QUERY, PAST_KEY, IDS, KEY, VALUE, BIAS };

typedef struct lengths {
    int64_t batch, chunk, total, past, capacity;
    bool cached, windowed;
} lengths;

static const ir_attr_spec attrs[] = {
    OP_ATTR_STRING("convention", "total-1", "what seqlens_k holds: total-1 or cached"),
    OP_ATTR_INT("windowed", 0,
                "1: past_key holds the last rows only, lengths are those of the tokens"),
    {.name = NULL},
};

static bool is_cached(const ir_node *node) {
    return !strcmp(ir_attr_get(node, "convention")->s, "cached");
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    const char *convention = ir_attr_get(node, "convention")->s;
    if (strcmp(convention, "total-1") != 0 && !is_cached(node))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute convention = '%s': must be total-1 or cached", convention);
    GQAC_TRY(op_check_int(node, "windowed", 0, 1, diag));
    if (ir_node_output(node, 2) && !ir_node_input(node, IDS))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "output 'positions' needs input 'position_ids'");
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_dtype(node, SEQLENS_K, GQAC_I32, diag));
    GQAC_TRY(attention_want_dtype(node, TOTAL, GQAC_I32, diag));
    GQAC_TRY(op_check_rank(node, SEQLENS_K, 1, GQAC_MAX_RANK, diag));
    GQAC_TRY(op_check_single(node, TOTAL, diag));
    const ir_dim *batch = op_in_dim(node, QUERY, 0);
    const ir_dim *tokens[2] = {batch, op_in_dim(node, QUERY, 1)};
    GQAC_TRY(op_set_type(node, 0, GQAC_I32, 1, &batch, diag));
    GQAC_TRY(op_set_type(node, 1, GQAC_I32, 1, &batch, diag));
    return op_set_type(node, 2, GQAC_I64, 2, tokens, diag);
}

static gqac_status read(op_call *call, lengths *l) {
    const gqac_tensor *seqlens = call->in[SEQLENS_K], *query = call->in[QUERY], *past = NULL;
    GQAC_TRY(op_want(call, SEQLENS_K, GQAC_I32));
    GQAC_TRY(op_want(call, TOTAL, GQAC_I32));
    GQAC_TRY(op_want(call, QUERY, GQAC_NONE));
    GQAC_TRY(op_int(call, TOTAL, &l->total));
    if (call->node->n_inputs > PAST_KEY)
        past = call->in[PAST_KEY];
    if (query->rank < 2 || (past && past->rank != 4))
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "query or past_key has a wrong rank");
    l->batch = query->dims[0];
    l->chunk = query->dims[1];
    l->past = past ? past->dims[2] : 0;
    l->capacity = l->total > l->past ? l->total : l->past;
    l->cached = is_cached(call->node);
    l->windowed = ir_attr_int(call->node, "windowed") == 1;
    bool loose = seqlens->rank >= 1 && gqac_tensor_count(seqlens) == l->batch;
    for (int i = 0; i < seqlens->rank; i++)
        loose = loose && (seqlens->dims[i] == 1 || seqlens->dims[i] == l->batch);
    if (!loose)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "seqlens_k must have one element for each of %lld sequences, in any shape of rank "
                ">= 1 (it has %lld, rank %d)",
                (long long)l->batch, (long long)gqac_tensor_count(seqlens), seqlens->rank);
    if (l->total <= 0)
        OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                "total_sequence_length = %lld must be positive", (long long)l->total);
    return GQAC_OK;
}

static gqac_status check_rows(op_call *call, int input, const char *name, const lengths *l) {
    const gqac_tensor *x = input < call->node->n_inputs ? call->in[input] : NULL;
    if (!x || (x->rank == 3 && (x->dims[1] == l->chunk || x->dims[1] == 0)))
        return GQAC_OK;
    OP_FAIL(
        call->node, call->diag, GQAC_INVALID_INPUT,
        "%s must have the shape [B,%lld,..], with a row for each new token of the query (it has "
        "rank %d, %lld rows)",
        name, (long long)l->chunk, x->rank, (long long)(x->rank > 1 ? x->dims[1] : 0));
}

static gqac_status check_bias(op_call *call, const lengths *l) {
    const gqac_tensor *x = call->node->n_inputs > BIAS ? call->in[BIAS] : NULL;
    if (!x || (x->rank == 4 && x->dims[2] == l->chunk && x->dims[3] == l->total))
        return GQAC_OK;
    op_fail(call->node, call->diag, GQAC_INVALID_INPUT,
            "attention_bias has %lld rows and %lld columns for %lld new tokens and "
            "total_sequence_length = %lld",
            (long long)(x->rank == 4 ? x->dims[2] : 0), (long long)(x->rank == 4 ? x->dims[3] : 0),
            (long long)l->chunk, (long long)l->total);
    gqac_diag_rule(call->diag, "its shape is [B or 1, Hq or 1, S, total_sequence_length]");
    gqac_diag_hint(call->diag, "pass a bias of the shape [..,%lld,%lld]", (long long)l->chunk,
                   (long long)l->total);
    return GQAC_INVALID_INPUT;
}

/* The rule of growing and static caches; a first prompt without past is a growing cache. */
static gqac_status check_total(op_call *call, const lengths *l) {
    if (l->windowed || l->total == l->past + l->chunk || l->total <= l->past)
        return GQAC_OK;
    OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
            "total_sequence_length = %lld with %lld past rows and %lld new tokens: it must equal "
            "their sum (a cache that grows) or be at most the past rows (a static cache)",
            (long long)l->total, (long long)l->past, (long long)l->chunk);
}

static gqac_status total_minus_one(op_call *call, const lengths *l, int64_t row, int64_t value,
                                   int64_t *past, int64_t *fresh) {
    int64_t t = value + 1;
    if (t > l->total && !l->windowed)
        OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                "seqlens_k[%lld] = %lld: the length %lld exceeds total_sequence_length %lld",
                (long long)row, (long long)value, (long long)t, (long long)l->total);
    if (l->chunk == l->total && !l->windowed) {
        *past = 0;
        *fresh = t;
        return GQAC_OK;
    }
    if (t < l->chunk)
        OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                "seqlens_k[%lld] = %lld: the length %lld is less than the %lld new tokens",
                (long long)row, (long long)value, (long long)t, (long long)l->chunk);
    *past = t - l->chunk;
    *fresh = l->chunk;
    return GQAC_OK;
}

static gqac_status one_row(op_call *call, const lengths *l, int64_t row, int64_t value,
                           int64_t *past, int64_t *fresh) {
    if (value < 0)
        OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE, "seqlens_k[%lld] = %lld is negative",
                (long long)row, (long long)value);
    if (l->cached) {
        bool first = l->chunk > 1 && (value == 0 || value == l->capacity) && !l->windowed;
        *past = first ? 0 : value;
        *fresh = l->chunk;
    } else {
        GQAC_TRY(total_minus_one(call, l, row, value, past, fresh));
    }
    if (l->windowed)
        return GQAC_OK;
    if (*past > l->past)
        OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                "seqlens_k[%lld] = %lld: %lld past rows are needed, past_key has %lld",
                (long long)row, (long long)value, (long long)*past, (long long)l->past);
    if (*fresh > l->capacity - *past)
        OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                "seqlens_k[%lld] = %lld: %lld past and %lld new rows exceed the capacity %lld",
                (long long)row, (long long)value, (long long)*past, (long long)*fresh,
                (long long)l->capacity);
    return GQAC_OK;
}

static gqac_status make_positions(op_call *call, const lengths *l) {
    const gqac_tensor *ids = call->node->n_inputs > IDS ? call->in[IDS] : NULL;
    if (call->node->n_outputs < 3 || !call->node->outputs[2])
        return GQAC_OK;
    GQAC_TRY(op_want_set(call, IDS, OP_INDICES));
    if (ids->rank != 2 || ids->dims[0] != l->batch || ids->dims[1] < l->chunk)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "position_ids must have the shape [%lld,%lld]", (long long)l->batch,
                (long long)l->chunk);
    int64_t dims[2] = {l->batch, l->chunk};
    GQAC_TRY(op_output(call, 2, GQAC_I64, 2, dims));
    int64_t *positions = call->out[2].data;
    for (int64_t i = 0; i < l->batch * l->chunk; i++) {
        int64_t b = i / l->chunk, s = i % l->chunk;
        bool first = l->chunk == l->total;
        int64_t id = op_get_i64(ids, first ? 0 : b * ids->dims[1] + s);
        positions[i] = first && id >= 0 && id <= INT32_MAX ? id + s : id;
    }
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    lengths l;
    GQAC_TRY(read(call, &l));
    GQAC_TRY(check_total(call, &l));
    GQAC_TRY(check_rows(call, KEY, "key", &l));
    GQAC_TRY(check_rows(call, VALUE, "value", &l));
    GQAC_TRY(check_bias(call, &l));
    GQAC_TRY(op_output(call, 0, GQAC_I32, 1, &l.batch));
    GQAC_TRY(op_output(call, 1, GQAC_I32, 1, &l.batch));
    int32_t *past_len = call->out[0].data, *new_len = call->out[1].data;
    for (int64_t b = 0; b < l.batch; b++) {
        int64_t past, fresh;
        GQAC_TRY(one_row(call, &l, b, op_get_i64(call->in[SEQLENS_K], b), &past, &fresh));
        if (past > INT32_MAX || fresh > INT32_MAX)
            OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE, "row %lld is longer than 2^31 - 1",
                    (long long)b);
        past_len[b] = (int32_t)past;
        new_len[b] = (int32_t)fresh;
    }
    return make_positions(call, &l);
}

const gqac_op gqac_op_seqlens_to_past = {
    .schema = {.name = "seqlens_to_past",
               .domain = "gqac",
               .since = 1,
               .inputs = "seqlens_k total query past_key? position_ids? key? value? bias?",
               .outputs = "past_len new_len positions?",
               .attrs = attrs,
               .shapes_only = 1u << QUERY | 1u << PAST_KEY | 1u << KEY | 1u << VALUE | 1u << BIAS,
               .rows = IR_ROWS_STATE,
               .doc = "lengths of the past and of the new tokens of each batch row, i32 [B]"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
