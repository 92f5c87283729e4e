/* The causal depthwise convolution of CausalConvWithState. One channel of one sequence is one work
 * item: its past and its new elements lie in one row of fp32. */
#include "ops/causal_conv.h"

#include <string.h>

#include "base/check.h"
#include "numerics/math.h"
#include "ops/kernel.h"
#include "ops/recurrent.h"

enum { X, WEIGHT, BIAS, PAST };

static bool is_silu(const ir_node *node) {
    const char *name = ir_attr_get(node, "activation")->s;
    return strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0;
}

gqac_status causal_conv_verify(const ir_node *node, gqac_diag *diag) {
    const char *name = ir_attr_get(node, "activation")->s;
    if (!is_silu(node) && strcmp(name, "none") != 0)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED,
                "attribute activation = '%s': must be none, silu or swish", name);
    return GQAC_OK;
}

bool causal_conv_mixes(const ir_node *node) {
    return !op_carries_state(node, PAST, 1);
}

/* weight [C,1,k], bias [C], past [..,C,state] */
static gqac_status check_weights(const ir_node *node, const ir_dim *channels, const ir_dim *state,
                                 gqac_diag *diag) {
    int64_t k;
    GQAC_TRY(op_check_rank(node, WEIGHT, 3, 3, diag));
    GQAC_TRY(op_check_rank(node, PAST, 3, 3, diag));
    GQAC_TRY(op_check_length(node, WEIGHT, 0, channels, diag));
    GQAC_TRY(op_check_length(node, WEIGHT, 1, ir_dim_const(op_dims(node), 1), diag));
    if (ir_dim_is_const(op_in_dim(node, WEIGHT, 2), &k) && k < 1)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "input 'weight' has no taps");
    if (op_in_type(node, BIAS).rank == 1)
        GQAC_TRY(op_check_length(node, BIAS, 0, channels, diag));
    GQAC_TRY(op_check_length(node, PAST, 1, channels, diag));
    return op_check_length(node, PAST, 2, state, diag);
}

gqac_status causal_conv_infer(ir_node *node, int64_t dilation, gqac_diag *diag) {
    const ir_type x = op_in_type(node, X);
    for (int i = X; i <= PAST; i++) {
        GQAC_TRY(op_check_dtype(node, i, OP_FLOATS, diag));
        GQAC_TRY(op_check_same(node, X, i, diag));
    }
    GQAC_TRY(op_set_type_like(node, 0, x, diag));
    if (x.rank >= 0 && x.rank != 3)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "input has rank %d, expected 3", x.rank);
    int64_t k;
    const ir_dim *dims[3] = {op_in_dim(node, X, 0), op_in_dim(node, X, 1), NULL};
    if (ir_dim_is_const(op_in_dim(node, WEIGHT, 2), &k) && k > 0 && k <= INT32_MAX)
        dims[2] = ir_dim_const(op_dims(node), (k - 1) * dilation);
    GQAC_TRY(check_weights(node, dims[1], dims[2], diag));
    return op_set_type(node, 1, x.dtype, 3, dims, diag);
}

typedef struct conv {
    const gqac_tensor *x, *weight, *bias, *past;
    gqac_tensor *y, *present; /* present: NULL when not wanted */
    int64_t channels, length, k, dilation, state;
    int64_t n;            /* sequences */
    const int32_t *fresh; /* new elements of each, packed; NULL: `length` in a batch row of x */
    bool silu;
    op_scratch scratch;
} conv;

/* y[t] = sum over j of w[j] * row[t + j * dilation] */
OP_BODY void taps_body(float *restrict y, const float *w, const float *row, int64_t k,
                       int64_t dilation, int64_t n) {
    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t j = 0; j < k; j++)
        op_axpy(y, w[j], row + j * dilation, n);
}
OP_KERNEL(taps,
          (float *y, const float *w, const float *row, int64_t k, int64_t dilation, int64_t n),
          (y, w, row, k, dilation, n))

/* Offset of the new elements of a channel of sequence i in x and y, and their number. */
static int64_t place(const conv *c, int64_t i, int64_t channel, int64_t *count) {
    int64_t at = (c->fresh ? channel : i * c->channels + channel) * c->length;
    *count = c->fresh ? c->fresh[i] : c->length;
    for (int64_t before = 0; c->fresh && before < i; before++)
        at += c->fresh[before];
    return at;
}

static void run(void *arg, size_t begin, size_t end, int worker) {
    const conv *c = arg;
    float *row = (float *)(void *)(c->scratch.base + (size_t)worker * c->scratch.stride);
    float *y = row + c->state + c->length, *w = y + c->length;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        const int64_t channel = item % c->channels;
        int64_t count;
        const int64_t at = place(c, item / c->channels, channel, &count);
        memset(row, 0, (size_t)c->state * sizeof *row);
        if (c->past)
            op_get_f32s(c->past, item * c->state, c->state, row);
        op_get_f32s(c->x, at, count, row + c->state);
        op_get_f32s(c->weight, channel * c->k, c->k, w);
        taps(y, w, row, c->k, c->dilation, count);
        const float bias = c->bias ? op_get_f32(c->bias, channel) : 0;
        for (int64_t t = 0; t < count; t++) {
            const float sum = c->bias ? y[t] + bias : y[t];
            y[t] = op_one_nan(c->silu ? sum * gqn_sigmoidf(sum) : sum);
        }
        op_put_f32s(c->y, at, count, y);
        if (c->present)
            op_put_f32s(c->present, item * c->state, c->state, row + count);
    }
}

static bool is_shape(const gqac_tensor *t, int64_t a, int64_t b, int64_t c) {
    return t->rank == 3 && t->dims[0] == a && t->dims[1] == b && t->dims[2] == c;
}

static gqac_status read_inputs(op_call *call, conv *c) {
    const ir_node *node = call->node;
    GQAC_TRY(op_want_set(call, X, OP_FLOATS));
    c->x = call->in[X];
    GQAC_TRY(op_want(call, WEIGHT, c->x->dtype));
    c->weight = call->in[WEIGHT];
    if (c->x->rank != 3 || c->weight->rank != 3)
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT,
                "input and weight have ranks %d and %d, not 3", c->x->rank, c->weight->rank);
    c->channels = c->x->dims[1];
    c->length = c->x->dims[2];
    c->k = c->weight->dims[2];
    if (c->k < 1 || !is_shape(c->weight, c->channels, 1, c->k))
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "weight is not [%lld,1,k]",
                (long long)c->channels);
    if (!gqac_mul_i64(c->k - 1, c->dilation, &c->state) || c->state > INT32_MAX)
        OP_FAIL(node, call->diag, GQAC_LIMIT, "a state of %lld x %lld elements is too large",
                (long long)(c->k - 1), (long long)c->dilation);
    if (ir_node_input(node, BIAS)) {
        GQAC_TRY(op_want(call, BIAS, c->x->dtype));
        c->bias = call->in[BIAS];
        if (gqac_tensor_count(c->bias) != c->channels)
            OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "there are %lld biases for %lld channels",
                    (long long)gqac_tensor_count(c->bias), (long long)c->channels);
    }
    if (ir_node_input(node, PAST)) {
        GQAC_TRY(op_want(call, PAST, c->x->dtype));
        c->past = call->in[PAST];
        if (!is_shape(c->past, c->n, c->channels, c->state))
            OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "past_state is not [%lld,%lld,%lld]",
                    (long long)c->n, (long long)c->channels, (long long)c->state);
    }
    return GQAC_OK;
}

/* Packed rows: one sequence after another in the one batch row of x. */
static gqac_status read_lengths(op_call *call, const gqac_tensor *new_len, conv *c) {
    int64_t sum = 0;
    c->n = new_len ? new_len->dims[0] : call->in[X]->dims[0];
    if (!new_len || c->n == call->in[X]->dims[0])
        return GQAC_OK;
    c->fresh = new_len->data;
    bool fits = new_len->dtype == GQAC_I32 && new_len->rank == 1 && call->in[X]->dims[0] == 1;
    for (int64_t i = 0; fits && i < c->n; i++) {
        fits = c->fresh[i] >= 0;
        sum += c->fresh[i];
    }
    if (!fits || sum != call->in[X]->dims[2])
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "the new tokens of %lld sequences do not add up to the %lld elements of a channel",
                (long long)c->n, (long long)call->in[X]->dims[2]);
    return GQAC_OK;
}

gqac_status causal_conv_eval(op_call *call, int64_t dilation) {
    return causal_conv_run(call, dilation, NULL);
}

gqac_status causal_conv_run(op_call *call, int64_t dilation, const gqac_tensor *new_len) {
    conv c = {.dilation = dilation, .silu = is_silu(call->node)};
    GQAC_TRY(op_want_set(call, X, OP_FLOATS));
    if (call->in[X]->rank != 3)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "input has rank %d, not 3",
                call->in[X]->rank);
    GQAC_TRY(read_lengths(call, new_len, &c));
    GQAC_TRY(read_inputs(call, &c));
    GQAC_TRY(op_output_like(call, 0, c.x->dtype, c.x));
    c.y = &call->out[0];
    if (ir_node_output(call->node, 1)) {
        const int64_t dims[3] = {c.n, c.channels, c.state};
        GQAC_TRY(op_output(call, 1, c.x->dtype, 3, dims));
        c.present = &call->out[1];
    }
    const int64_t floats = c.state + 2 * c.length + c.k;
    GQAC_TRY(op_scratch_open(call, (size_t)floats, sizeof(float), &c.scratch));
    op_parallel(call, c.n * c.channels, 10 + c.length * (4 + c.k / 4), run, &c);
    op_scratch_close(&c.scratch);
    return GQAC_OK;
}
