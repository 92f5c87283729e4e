/* Checks and dims shared by the ops of attention. */
#include "ops/attention.h"
#include "ops/build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "numerics/contract.h"
#include "ops/lengths.h"

gqac_status op_lengths(const op_work *work, const gqac_tensor *tensor, const char *name,
                       int64_t batch, const int32_t **lengths) {
    if (!tensor)
        OP_STOP(work, GQAC_INVALID_INPUT, "input '%s' is missing", name);
    if (tensor->dtype != GQAC_I32)
        OP_STOP(work, GQAC_INVALID_INPUT, "input '%s' has the type %s: must be i32", name,
                gqac_dtype_name(tensor->dtype));
    if (tensor->rank != 1 || tensor->dims[0] != batch)
        OP_STOP(work, GQAC_INVALID_INPUT, "%s must have the shape [%lld]", name, (long long)batch);
    const int32_t *values = tensor->data;
    for (int64_t b = 0; b < batch; b++)
        if (values[b] < 0)
            OP_STOP(work, GQAC_OUT_OF_RANGE, "%s[%lld] = %d is negative", name, (long long)b,
                    values[b]);
    *lengths = values;
    return GQAC_OK;
}

gqac_status op_floats(const op_work *work, const gqac_tensor *tensor, const char *name, int rank) {
    if (!tensor)
        OP_STOP(work, GQAC_INVALID_INPUT, "input '%s' is missing", name);
    if (!OP_IN(OP_FLOATS, tensor->dtype))
        OP_STOP(work, GQAC_INVALID_INPUT, "input '%s' has the type %s: must be a float type", name,
                gqac_dtype_name(tensor->dtype));
    if (tensor->rank != rank)
        OP_STOP(work, GQAC_INVALID_INPUT, "input '%s' must have rank %d", name, rank);
    return GQAC_OK;
}

gqac_status attention_lengths(op_call *call, int input, int64_t batch, const int32_t **lengths) {
    op_origin origin;
    const op_work work = op_work_at(call, &origin);
    char name[64];
    ir_schema_name(call->node->op->inputs, input, name, sizeof name);
    return op_lengths(&work, input < call->node->n_inputs ? call->in[input] : NULL, name, batch,
                      lengths);
}

gqac_status op_ranges(const op_work *work, const gqac_tensor *lo_tensor,
                      const gqac_tensor *hi_tensor, int64_t batch, int64_t rows, int64_t keys,
                      const int32_t **lo, const int32_t **hi) {
    const gqac_tensor *both[] = {lo_tensor, hi_tensor};
    for (int i = 0; i < 2; i++)
        if (!both[i] || both[i]->dtype != GQAC_I32 || both[i]->rank != 2 ||
            both[i]->dims[0] != batch || both[i]->dims[1] != rows)
            OP_STOP(work, GQAC_INVALID_INPUT,
                    "the visible range must be i32 of the shape [%lld,%lld]", (long long)batch,
                    (long long)rows);
    *lo = lo_tensor->data;
    *hi = hi_tensor->data;
    for (int64_t i = 0; i < batch * rows; i++)
        if ((*lo)[i] < 0 || (*hi)[i] < (*lo)[i] || (*hi)[i] > keys)
            OP_STOP(work, GQAC_OUT_OF_RANGE,
                    "the visible range [%d,%d) of row %lld is not within the %lld keys", (*lo)[i],
                    (*hi)[i], (long long)i, (long long)keys);
    return GQAC_OK;
}

gqac_status attention_ranges(op_call *call, int lo_input, int64_t batch, int64_t rows, int64_t keys,
                             const int32_t **lo, const int32_t **hi) {
    op_origin origin;
    const op_work work = op_work_at(call, &origin);
    GQAC_TRY(op_want(call, lo_input, GQAC_I32));
    GQAC_TRY(op_want(call, lo_input + 1, GQAC_I32));
    return op_ranges(&work, call->in[lo_input], call->in[lo_input + 1], batch, rows, keys, lo, hi);
}

static int64_t end_of(int64_t past, int64_t fresh, int64_t s, bool causal) {
    int64_t end = causal ? past + s + 1 : past + fresh;
#ifdef GQAC_CONTROL_MASK_OFF_BY_ONE /* negative control: the next key is visible when there is one \
                                     */
    end = past + s + 2 < past + fresh ? past + s + 2 : past + fresh;
#endif
    return end;
}

gqac_status op_rows_fit(const op_work *work, const gqac_tensor *past_len,
                        const gqac_tensor *lengths, int64_t batch, int64_t width,
                        attention_rows *rows) {
    const bool packed = batch == 1 && lengths && lengths->rank == 1 && lengths->dims[0] > 1;
    int64_t sum = 0;
    *rows =
        (attention_rows){.n = packed ? lengths->dims[0] : batch, .packed = packed, .width = width};
    GQAC_TRY(op_lengths(work, past_len, "past_len", rows->n, &rows->past));
    GQAC_TRY(op_lengths(work, lengths, "new_len", rows->n, &rows->fresh));
    for (int64_t b = 0; b < rows->n; b++) {
        const int32_t past = rows->past[b], fresh = rows->fresh[b];
        if (fresh > width || (int64_t)past + fresh > INT32_MAX)
            OP_STOP(work, GQAC_OUT_OF_RANGE,
                    "sequence %lld: %d past and %d new tokens, the queries have %lld rows",
                    (long long)b, past, fresh, (long long)width);
        sum += fresh;
    }
    if (packed && sum != width)
        OP_STOP(work, GQAC_INVALID_INPUT, "%lld packed rows for %lld new tokens of %lld sequences",
                (long long)width, (long long)sum, (long long)rows->n);
    return GQAC_OK;
}

gqac_status attention_rows_open(op_call *call, int past_input, int64_t batch, int64_t width,
                                attention_rows *rows) {
    op_origin origin;
    const op_work work = op_work_at(call, &origin);
    return op_rows_fit(&work, call->in[past_input], call->in[past_input + 1], batch, width, rows);
}

ir_value *attention_with_past(ir_builder *b, ir_value *past, ir_value *rows) {
    return past ? OP_BUILD(b, "Concat", .in = {past, rows}, .ints = {{"axis", 2}}) : rows;
}

bool attention_is_packed(const ir_value *new_len) {
    const char *name;
    return new_len && new_len->type.rank == 1 && new_len->type.dims[0] &&
           ir_dim_is_symbol(new_len->type.dims[0], &name) && !strcmp(name, ATTENTION_SEQUENCES);
}

ir_value *attention_unpack(ir_builder *b, ir_value *x, ir_value *new_len, int64_t axis) {
    if (!x || !attention_is_packed(new_len))
        return x;
    return OP_BUILD(b, "unpack_rows", .in = {x, new_len}, .ints = {{"axis", axis}});
}

ir_value *attention_pack(ir_builder *b, ir_value *y, ir_value *new_len, ir_value *like) {
    if (!y || !attention_is_packed(new_len))
        return y;
    return OP_BUILD(b, "pack_rows", .in = {y, new_len, like});
}

void op_visible(const attention_rows *of, bool causal, int64_t window, int32_t *lo, int32_t *hi) {
    for (int64_t b = 0; b < of->n; b++) {
        const int64_t past = of->past[b], fresh = of->fresh[b], n = attention_rows_of(of, b);
        for (int64_t s = 0; s < n; s++) {
            bool pad = s >= fresh;
            int64_t first = window > 0 ? past + s + 1 - window : 0;
            *lo++ = pad || first < 0 ? 0 : (int32_t)first;
            *hi++ = pad ? 0 : (int32_t)end_of(past, fresh, s, causal);
        }
    }
}

gqac_status attention_visible(op_call *call, int past_input, int64_t batch, int64_t rows,
                              int32_t *lo, int32_t *hi) {
    attention_rows of;
    GQAC_TRY(attention_rows_open(call, past_input, batch, rows, &of));
    op_visible(&of, ir_attr_int(call->node, "causal") != 0, ir_attr_int(call->node, "window"), lo,
               hi);
    return GQAC_OK;
}

gqac_status attention_float(op_call *call, int input, int rank) {
    GQAC_TRY(op_want_set(call, input, OP_FLOATS));
    if (call->in[input]->rank == rank)
        return GQAC_OK;
    char name[64];
    ir_schema_name(call->node->op->inputs, input, name, sizeof name);
    OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "input '%s' has rank %d, expected %d", name,
            call->in[input]->rank, rank);
}

gqac_status attention_want_dtype(const ir_node *node, int input, gqac_dtype dtype,
                                 gqac_diag *diag) {
    gqac_dtype have = op_in_type(node, input).dtype;
    if (have == GQAC_NONE || have == dtype)
        return GQAC_OK;
    char name[64];
    ir_schema_name(node->op->inputs, input, name, sizeof name);
    OP_FAIL(node, diag, GQAC_INVALID_MODEL, "input '%s' has the type %s, expected %s", name,
            gqac_dtype_name(have), gqac_dtype_name(dtype));
}

gqac_status attention_want_rank(const ir_node *node, int input, int rank, gqac_diag *diag) {
    return op_check_rank(node, input, rank, rank, diag);
}

gqac_status attention_same_dim(const ir_node *node, const ir_dim *a, const ir_dim *b,
                               const char *what, gqac_diag *diag) {
    int64_t x, y;
    if (!ir_dim_is_const(a, &x) || !ir_dim_is_const(b, &y) || x == y)
        return GQAC_OK;
    OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%s: %lld, expected %lld", what, (long long)x,
            (long long)y);
}

const ir_dim *attention_capacity(const ir_node *node, int total, int past) {
    ir_dims *dims = op_dims(node);
    const ir_dim *t = NULL;
    const ir_dim *p = ir_node_input(node, past) ? op_in_dim(node, past, 2) : ir_dim_const(dims, 0);
    if (op_elements(node, total, 1, &t) != 1)
        return NULL;
    return ir_dim_max(dims, t, p);
}

enum { Q, K, V };

gqac_status attention_infer(ir_node *node, gqac_diag *diag) {
    for (int i = Q; i <= V; i++)
        GQAC_TRY(attention_want_rank(node, i, 4, diag));
    GQAC_TRY(op_check_same(node, Q, K, diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, Q, 3), op_in_dim(node, K, 3),
                                "head size of the keys", diag));
    int64_t q_heads, kv_heads;
    if (ir_dim_is_const(op_in_dim(node, Q, 1), &q_heads) &&
        ir_dim_is_const(op_in_dim(node, K, 1), &kv_heads) &&
        (kv_heads < 1 || q_heads % kv_heads != 0))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "%lld query heads are not a multiple of %lld key/value heads", (long long)q_heads,
                (long long)kv_heads);
    const ir_dim *dims[3] = {
        op_in_dim(node, Q, 0), op_in_dim(node, Q, 2),
        ir_dim_mul(op_dims(node), op_in_dim(node, Q, 1), op_in_dim(node, V, 3))};
    const ir_dim *qk[4] = {op_in_dim(node, Q, 0), op_in_dim(node, Q, 1), op_in_dim(node, Q, 2),
                           op_in_dim(node, K, 2)};
    GQAC_TRY(op_set_type(node, 0, op_in_type(node, V).dtype, 3, dims, diag));
    return op_set_type(node, 1, GQAC_F32, 4, qk, diag);
}

void attention_make_bf16(ir_node *node) {
    ir_attr_set_int(node, "bf16", 1);
}

gqac_status attention_visible_verify(const ir_node *node, gqac_diag *diag) {
    int64_t window = ir_attr_int(node, "window");
    GQAC_TRY(op_check_int(node, "causal", 0, 1, diag));
    if (window < -1 || window == 0 || (window > 0 && !ir_attr_int(node, "causal")))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute window = %lld: must be -1, or with causal = 1 at least 1",
                (long long)window);
    return GQAC_OK;
}

bool attention_visible_mixes(const ir_node *node) {
    return !ir_attr_int(node, "causal");
}

/* ---- window-sized caches -------------------------------------------------- */

int64_t attention_resident(int64_t capacity, int64_t window, int64_t length) {
    int64_t gap = capacity - window + 1;
    return length <= capacity ? length : length - (length - capacity + gap - 1) / gap * gap;
}

int64_t attention_window_start(int64_t capacity, int64_t window, int64_t past) {
    return (past - attention_resident(capacity, window, past)) / GQAC_KEY_SPLIT * GQAC_KEY_SPLIT;
}

gqac_status attention_window_verify(const ir_node *node, gqac_diag *diag) {
    return op_check_int(node, "window", 1, INT32_MAX, diag);
}

gqac_status attention_window_fits(op_call *call, int64_t capacity) {
    int64_t window = ir_attr_int(call->node, "window");
    if (capacity < window)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "sliding_window_cache = 1: past_key has %lld rows, local_window_size is %lld: the "
                "cache must have at least as many",
                (long long)capacity, (long long)window);
    return GQAC_OK;
}

int64_t attention_window_rows(const ir_node *node, int64_t capacity, int64_t batch,
                              const int32_t *past, const int32_t *fresh) {
    int64_t window = ir_attr_int(node, "window"), most = 0;
    for (int64_t b = 0; b < batch; b++) {
        int64_t rows = past[b] - attention_window_start(capacity, window, past[b]) + fresh[b];
        most = rows > most ? rows : most;
    }
    return most;
}

/* ---- codes of a quantised cache ------------------------------------------ */

gqac_status attention_code_verify(const ir_node *node, gqac_diag *diag) {
    const int64_t bits = ir_attr_int(node, "bits");
    if (bits != 4 && bits != 8)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute bits = %lld: must be 4 or 8",
                (long long)bits);
    return op_check_int(node, "per_channel", 0, 1, diag);
}

const ir_dim *attention_code_width(ir_dims *dims, const ir_dim *size, int bits) {
    if (bits != 4)
        return size;
    return ir_dim_floordiv(dims, ir_dim_add(dims, size, ir_dim_const(dims, 1)), 2);
}

gqac_status op_code_scales(const op_work *work, const gqac_tensor *tensor, bool per_channel,
                           int64_t heads, int64_t size, const float **scales) {
    if (!tensor || tensor->dtype != GQAC_F32)
        OP_STOP(work, GQAC_INVALID_INPUT, "the scales of the cache must be f32");
    const int64_t have = gqac_tensor_count(tensor);
    if (per_channel ? heads == 0 || have % heads != 0 || have / heads != size : have != 1)
        OP_STOP(work, GQAC_INVALID_INPUT, "%lld scales for %lld heads of %lld channels: %s",
                (long long)have, (long long)heads, (long long)size,
                per_channel ? "PER_CHANNEL has one for each channel of each head"
                            : "PER_TENSOR has one");
    *scales = tensor->data;
    for (int64_t i = 0; i < have; i++)
        if (!isfinite((*scales)[i]))
            OP_STOP(work, GQAC_INVALID_INPUT, "scale %lld is %g: must be finite", (long long)i,
                    (double)(*scales)[i]);
    return GQAC_OK;
}

gqac_status attention_scales(op_call *call, const gqac_tensor *tensor, bool per_channel,
                             int64_t heads, int64_t size, const float **scales) {
    op_origin origin;
    const op_work work = op_work_at(call, &origin);
    return op_code_scales(&work, tensor, per_channel, heads, size, scales);
}

gqac_status op_heads_fit(const op_work *work, int64_t n, const gqac_tensor *q, const gqac_tensor *k,
                         const gqac_tensor *v, int64_t most) {
    const bool fits = k->dims[0] == n && v->dims[0] == n && k->dims[1] == v->dims[1] &&
                      k->dims[2] == v->dims[2] && k->dims[3] == q->dims[3] && k->dims[1] >= 1 &&
                      q->dims[1] % k->dims[1] == 0 && q->dims[3] >= 1 && v->dims[3] >= 1 &&
                      q->dims[3] <= most && v->dims[3] <= most;
    if (!fits)
        OP_STOP(work, GQAC_INVALID_INPUT,
                "keys [%lld,%lld,%lld,%lld] and values [%lld,%lld,%lld,%lld] do not fit queries "
                "[%lld,%lld,%lld,%lld]",
                (long long)k->dims[0], (long long)k->dims[1], (long long)k->dims[2],
                (long long)k->dims[3], (long long)v->dims[0], (long long)v->dims[1],
                (long long)v->dims[2], (long long)v->dims[3], (long long)q->dims[0],
                (long long)q->dims[1], (long long)q->dims[2], (long long)q->dims[3]);
    return GQAC_OK;
}

gqac_status op_misfit(const op_work *work, const char *what, const gqac_tensor *mask,
                      const int64_t *scores) {
    char shape[GQAC_MAX_RANK * 24] = "";
    for (int i = 0; i < mask->rank; i++) {
        const size_t n = strlen(shape);
        snprintf(shape + n, sizeof shape - n, "%s%lld", i ? "," : "", (long long)mask->dims[i]);
    }
    op_stop(work, GQAC_INVALID_INPUT, "a %s [%s] does not fit scores [%lld,%lld,%lld,%lld]", what,
            shape, (long long)scores[0], (long long)scores[1], (long long)scores[2],
            (long long)scores[3]);
    gqac_diag_rule(work->diag, "each dimension of it is 1 or that of the scores [B,H,S,T]");
    gqac_diag_hint(work->diag,
                   "pass a mask for the batch, the new tokens and the keys of this call");
    return GQAC_INVALID_INPUT;
}

gqac_status attention_mismatch(const op_call *call, const char *what, const gqac_tensor *a,
                               const char *with, const gqac_tensor *b) {
    OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
            "%s [%lld,%lld,%lld,%lld] do not fit %s [%lld,%lld,%lld,%lld]", what,
            (long long)a->dims[0], (long long)a->dims[1], (long long)a->dims[2],
            (long long)a->dims[3], with, (long long)b->dims[0], (long long)b->dims[1],
            (long long)b->dims[2], (long long)b->dims[3]);
}

gqac_status attention_misfit(const op_call *call, const char *what, const gqac_tensor *mask,
                             const int64_t *scores) {
    op_origin origin;
    const op_work work = op_work_at(call, &origin);
    return op_misfit(&work, what, mask, scores);
}
