/* Attributes, checks and eval of LinearAttention, with past and present as tensors. */
#include "ops/linear_attention.h"

#include <math.h>
#include <string.h>

#include "ops/recurrent.h"

enum { Q, K, V, PAST, DECAY, BETA };

const ir_attr_spec linear_attention_attrs[] = {
    {.name = "q_num_heads", .kind = IR_ATTR_INT, .required = true, .doc = "heads of query"},
    {.name = "kv_num_heads",
     .kind = IR_ATTR_INT,
     .required = true,
     .doc = "heads of key and value"},
    OP_ATTR_STRING("update_rule", "gated_delta", "linear, gated, delta or gated_delta"),
    OP_ATTR_FLOAT("scale", 0, "of the result; 0: 1/sqrt(dk)"),
    OP_ATTR_INT("chunk_size", 64, "a hint for other implementations"),
    OP_ATTR_INT("state_window", 0, "com.microsoft; only 0"),
    {.name = NULL},
};

enum { RULES = 4 };

static const char *const rules[RULES] = {"linear", "gated", "delta", "gated_delta"};

static int rule_of(const ir_node *node) {
    return op_choice(node, "update_rule", RULES, rules);
}

gqac_status linear_attention_verify(const ir_node *node, gqac_diag *diag) {
    const int64_t q = ir_attr_int(node, "q_num_heads"), kv = ir_attr_int(node, "kv_num_heads");
    const int rule = rule_of(node);
    if (q < 1 || kv < 1 || (q % kv != 0 && kv % q != 0))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attributes q_num_heads = %lld, kv_num_heads = %lld: one must be a multiple of the "
                "other",
                (long long)q, (long long)kv);
    GQAC_TRY(op_check_choice(node, "update_rule", RULES, rules, GQAC_INVALID_MODEL, diag));
    if (ir_attr_int(node, "state_window") != 0)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute state_window = %lld: only 0 is supported",
                (long long)ir_attr_int(node, "state_window"));
    GQAC_TRY(op_check_float(node, "scale", true, diag));
    for (int i = 0; i < 2; i++)
        if (rule & (i ? RECURRENCE_DELTA : RECURRENCE_GATED) &&
            !ir_node_input(node, i ? BETA : DECAY))
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the rule '%s' needs the input %s",
                    ir_attr_get(node, "update_rule")->s, i ? "beta" : "decay");
    return GQAC_OK;
}

bool linear_attention_mixes(const ir_node *node) {
    return !op_carries_state(node, PAST, 1);
}

/* dim / by, when both are known. */
static const ir_dim *divided(const ir_node *node, int input, int64_t by) {
    int64_t n;
    return ir_dim_is_const(op_in_dim(node, input, 2), &n) ? ir_dim_const(op_dims(node), n / by)
                                                          : NULL;
}

gqac_status linear_attention_infer(ir_node *node, gqac_diag *diag) {
    const int64_t q = ir_attr_int(node, "q_num_heads"), kv = ir_attr_int(node, "kv_num_heads");
    for (int i = Q; i <= BETA; i++) {
        if (i == PAST)
            continue;
        GQAC_TRY(op_check_dtype(node, i, OP_FLOATS, diag));
        GQAC_TRY(op_check_same(node, Q, i, diag));
        if (op_in_type(node, i).rank >= 0 && op_in_type(node, i).rank != 3)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "input %d has rank %d, expected 3", i,
                    op_in_type(node, i).rank);
    }
    const gqac_dtype dtype = op_in_type(node, Q).dtype;
    const ir_dim *dv = divided(node, V, kv), *y[3] = {op_in_dim(node, Q, 0), op_in_dim(node, Q, 1)};
    if (dv)
        y[2] = ir_dim_mul(op_dims(node), dv, ir_dim_const(op_dims(node), q > kv ? q : kv));
    GQAC_TRY(op_set_type(node, 0, dtype, 3, y, diag));
    if (op_in_type(node, PAST).dtype == GQAC_TOKEN)
        return op_set_type(node, 1, GQAC_TOKEN, 0, NULL, diag);
    GQAC_TRY(op_check_dtype(node, PAST, OP_FLOATS, diag));
    const ir_dim *state[4] = {y[0], ir_dim_const(op_dims(node), kv), divided(node, Q, q), dv};
    return op_set_type(node, 1, ir_node_input(node, PAST) ? op_in_type(node, PAST).dtype : dtype, 4,
                       state, diag);
}

recurrence_form linear_attention_form_of(const ir_node *node) {
    return (recurrence_form){.q_heads = ir_attr_int(node, "q_num_heads"),
                             .kv_heads = ir_attr_int(node, "kv_num_heads"),
                             .scale = ir_attr_float(node, "scale"),
                             .rule = rule_of(node)};
}

/* NULL: it is left out. */
static const gqac_tensor *operand(const op_call *call, int input) {
    return ir_node_input(call->node, input) ? call->in[input] : NULL;
}

/* ---- past and present as tensors ----------------------------------------- */

typedef struct tensors {
    const gqac_tensor *past, *present; /* NULL: there is none */
    int64_t tokens;
} tensors;

static int64_t all_tokens(const void *arg, int64_t b, int64_t *first) {
    const tensors *t = arg;
    *first = b * t->tokens;
    return t->tokens;
}

static void *of_batch(const gqac_tensor *state, int64_t b) {
    const size_t bytes = state->dims[0] ? gqac_tensor_bytes(state) / (size_t)state->dims[0] : 0;
    return (char *)state->data + (size_t)b * bytes;
}

static const void *past_of(const void *arg, int64_t b) {
    const tensors *t = arg;
    return t->past ? of_batch(t->past, b) : NULL;
}

static void *present_of(const void *arg, int64_t b, int i, int64_t *after) {
    const tensors *t = arg;
    *after = t->tokens;
    return i || !t->present ? NULL : of_batch(t->present, b);
}

static gqac_status fit_past(op_call *call, const gqac_tensor *past, const int64_t dims[4]) {
    GQAC_TRY(op_want_set(call, PAST, OP_FLOATS));
    bool fits = past->rank == 4;
    for (int i = 0; fits && i < 4; i++)
        fits = past->dims[i] == dims[i];
    if (!fits)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "past_state is not [%lld,%lld,%lld,%lld]", (long long)dims[0], (long long)dims[1],
                (long long)dims[2], (long long)dims[3]);
    return GQAC_OK;
}

gqac_status linear_attention_eval(op_call *call) {
    op_origin origin;
    const op_work work = op_work_at(call, &origin);
    GQAC_TRY(linear_attention_verify(call->node, call->diag));
    const recurrence_form form = linear_attention_form_of(call->node);
    const recurrence_operands in = {.q = operand(call, Q),
                                    .k = operand(call, K),
                                    .v = operand(call, V),
                                    .decay = operand(call, DECAY),
                                    .beta = operand(call, BETA)};
    recurrence r;
    GQAC_TRY(recurrence_fit(&work, &form, &in, &r));
    const int64_t dims[4] = {in.q->dims[0], form.kv_heads, r.dk, r.dv};
    tensors t = {.past = operand(call, PAST), .tokens = r.tokens};
    const gqac_dtype dtype = t.past ? t.past->dtype : in.q->dtype;
    if (t.past)
        GQAC_TRY(fit_past(call, t.past, dims));
    if (ir_node_output(call->node, 1)) {
        GQAC_TRY(op_output(call, 1, dtype, 4, dims));
        t.present = &call->out[1];
    }
    GQAC_TRY(op_output(call, 0, in.q->dtype, 3, r.out));
    const recurrence_states states = {.dtype = dtype,
                                      .n = dims[0],
                                      .arg = &t,
                                      .tokens = all_tokens,
                                      .before = past_of,
                                      .after = present_of};
    r.states = &states;
    r.y = &call->out[0];
    return recurrence_run(&work, &r);
}
