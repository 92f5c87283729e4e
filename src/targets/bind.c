/* From nodes and their schemas to numbers: see bind.h. */
#include "targets/bind.h"

#include <assert.h>
#include <string.h>

#include "ops/linear_attention.h"
#include "ops/norm.h"
#include "targets/kv_rows.h"
#include "targets/recurrent.h"

static int index_of(const char *list, const char *name) {
    const int index = ir_schema_index(list, name);
    assert(index >= 0);
    return index;
}

int bind_input(const ir_node *node, const char *name) {
    return bind_value(ir_node_input(node, index_of(node->op->inputs, name)));
}

int bind_output(const ir_node *node, const char *name) {
    return bind_value(ir_node_output(node, index_of(node->op->outputs, name)));
}

int bind_leaving(const ir_value *value) {
    return value && ir_value_escapes(value) ? value->id : -1;
}

void *bind_new(const target_binding *b, size_t size) {
    void *record = gqac_arena_alloc(b->arena, size);
    if (record)
        memset(record, 0, size);
    else
        gqac_diag_oom(b->diag, "a kernel's record");
    return record;
}

gqac_status bind_record(const target_binding *b, const void *from, size_t size,
                        const void **record) {
    *record = gqac_arena_copy(b->arena, from, size);
    return *record ? GQAC_OK : gqac_diag_oom(b->diag, "a kernel's record");
}

gqac_status bind_kv_state(const target_binding *b, const ir_node *root, const void **record) {
    return BIND_RECORD(b, record, target_state_record, .token = bind_output(root, "token"));
}

gqac_status bind_kv_append(const target_binding *b, const ir_node *root, const void **record) {
    return BIND_RECORD(b, record, target_append_record, .slot = (int)ir_attr_int(root, "slot"),
                       .fresh = bind_input(root, "new"), .token = bind_output(root, "token"),
                       .rows = bind_output(root, "rows"));
}

int bind_recurrent_slot(const ir_node *node) {
    if (!op_is(node, "gqac", "recurrent_attention"))
        return -1;
    const ir_node *state = ir_node_input(node, index_of(node->op->inputs, "token"))->def;
    return state && op_is(state, "gqac", "kv_state") ? (int)ir_attr_int(state, "slot") : -1;
}

gqac_status bind_recurrent_attention(const target_binding *b, const ir_node *root,
                                     const void **record) {
    return BIND_RECORD(b, record, target_recurrent_record, .form = linear_attention_form_of(root),
                       .slot = bind_recurrent_slot(root), .query = bind_input(root, "query"),
                       .key = bind_input(root, "key"), .value = bind_input(root, "value"),
                       .decay = bind_input(root, "decay"), .beta = bind_input(root, "beta"),
                       .output = bind_output(root, "output"), .token = bind_output(root, "token"));
}

/* ---- norms ------------------------------------------------------------------ */

/* The ops, and the names of their operands. */
static const struct {
    const char *domain, *op;
    const norm *kind;
    const char *x, *skip, *weight, *beta, *bias;
} norms[] = {
    {"", "RMSNormalization", &norm_rms_onnx, "X", NULL, "scale", NULL, NULL},
    {"", "SimplifiedLayerNormalization", &norm_rms, "X", NULL, "scale", NULL, NULL},
    {"", "LayerNormalization", &norm_layer, "X", NULL, "Scale", "B", NULL},
    {"com.microsoft", "SkipSimplifiedLayerNormalization", &norm_skip_rms, "input", "skip", "gamma",
     NULL, "bias"},
    {"com.microsoft", "SkipLayerNormalization", &norm_skip_layer, "input", "skip", "gamma", "beta",
     "bias"},
};

static int named(const ir_node *node, const char *name) {
    return name ? bind_input(node, name) : -1;
}

static int result(const ir_node *node, int output) {
    return output < 0 ? -1 : bind_value(ir_node_output(node, output));
}

void bind_norm(const ir_node *node, target_norm *record) {
    size_t at = 0;
    while (!op_is(node, norms[at].domain, norms[at].op))
        at++;
    const norm *kind = norms[at].kind;
    *record = (target_norm){.form = norm_form_of(node, kind),
                            .x = bind_input(node, norms[at].x),
                            .skip = named(node, norms[at].skip),
                            .weight = bind_input(node, norms[at].weight),
                            .beta = named(node, norms[at].beta),
                            .bias = named(node, norms[at].bias),
                            .y = result(node, 0),
                            .sum = result(node, kind->sum_output),
                            .mean = result(node, kind->mean_output),
                            .inv = result(node, kind->inv_output)};
}
