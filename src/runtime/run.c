/* A stateless run: the graph as exported, past and present explicit. */
#include "runtime/context.h"

#include <string.h>

#include "base/alloc.h"

/* Lengths of dimension symbols so far: equal symbols must have equal lengths. */
typedef struct bindings {
    int n, capacity;
    struct binding {
        const char *symbol;
        int64_t value;
        const char *input;
    } * list;
} bindings;

static gqac_status bind(bindings *b, const char *symbol, int64_t value, const char *input,
                        gqac_diag *diag) {
    for (int i = 0; i < b->n; i++) {
        if (strcmp(b->list[i].symbol, symbol) != 0)
            continue;
        if (b->list[i].value == value)
            return GQAC_OK;
        GQAC_FAIL(diag, GQAC_INVALID_INPUT,
                  "dimension '%s' is %lld in input '%s' but %lld in input '%s'", symbol,
                  (long long)value, input, (long long)b->list[i].value, b->list[i].input);
    }
    if (b->n < b->capacity)
        b->list[b->n++] = (struct binding){symbol, value, input};
    return GQAC_OK;
}

static gqac_status check_type(const ir_value *value, const gqac_tensor *t, bindings *b,
                              gqac_diag *diag) {
    if (value->type.dtype != GQAC_NONE && t->dtype != value->type.dtype)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "input '%s' is %s, the model needs %s", value->name,
                  gqac_dtype_name(t->dtype), gqac_dtype_name(value->type.dtype));
    if (value->type.rank >= 0 && t->rank != value->type.rank)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "input '%s' has rank %d, the model needs rank %d",
                  value->name, t->rank, value->type.rank);
    for (int i = 0; i < value->type.rank; i++) {
        int64_t want = 0;
        const char *symbol = NULL;
        if (ir_dim_is_const(value->type.dims[i], &want) && t->dims[i] != want)
            GQAC_FAIL(diag, GQAC_INVALID_INPUT, "input '%s': dimension %d is %lld, expected %lld",
                      value->name, i, (long long)t->dims[i], (long long)want);
        if (ir_dim_is_symbol(value->type.dims[i], &symbol))
            GQAC_TRY(bind(b, symbol, t->dims[i], value->name, diag));
    }
    return GQAC_OK;
}

static gqac_status check_input(const ir_value *value, const gqac_tensor *t, bool data, bindings *b,
                               gqac_diag *diag) {
    size_t bytes = 0;
    if (gqac_shape_bytes(t->dtype, t->rank, t->dims, &bytes, NULL) != GQAC_OK ||
        (bytes && data && !t->data))
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "input '%s' has an impossible shape or no data",
                  value->name);
    return check_type(value, t, b, diag);
}

gqac_status context_check_input(const gqac_context *context, int index, const gqac_tensor *tensor,
                                gqac_diag *diag) {
    bindings none = {.n = 0};
    return check_type(context->program->module->graph->inputs[index], tensor, &none, diag);
}

static int find_io(const gqac_io *list, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].name, name))
            return i;
    return -1;
}

static gqac_status check_stateless(const gqac_program *program, gqac_diag *diag) {
    if (!program->stateless)
        GQAC_FAIL(diag, GQAC_USAGE,
                  "the program was compiled for sequences, not for stateless runs");
    return GQAC_OK;
}

gqac_status context_find_input(const gqac_context *context, const char *name, int *at,
                               gqac_diag *diag) {
    const gqac_program *p = context->program;
    GQAC_TRY(check_stateless(p, diag));
    *at = find_io(p->inputs, p->n_inputs, name);
    if (*at < 0)
        GQAC_FAIL(diag, GQAC_USAGE, "the model has no input '%s'", name);
    return GQAC_OK;
}

static gqac_status take_inputs(const gqac_context *c, int n, const char *const *names,
                               const gqac_tensor *tensors, bool data, bool *given, bindings *b,
                               gqac_tensor *taken, gqac_diag *diag) {
    const gqac_program *p = c->program;
    for (int i = 0; i < n; i++) {
        int at;
        GQAC_TRY(context_find_input(c, names[i], &at, diag));
        if (given[at])
            GQAC_FAIL(diag, GQAC_USAGE, "input '%s' is given twice", names[i]);
        given[at] = true;
        GQAC_TRY(check_input(p->module->graph->inputs[at], &tensors[i], data, b, diag));
        taken[at] = tensors[i];
    }
    for (int i = 0; i < p->n_inputs; i++) {
        if (given[i])
            continue;
        const gqac_tensor *kept = c->parameters ? &c->parameters[i] : NULL;
        if (!kept || !kept->data)
            GQAC_FAIL(diag, GQAC_USAGE, "input '%s' %s%s is missing", p->inputs[i].name,
                      gqac_dtype_name(p->inputs[i].dtype), p->inputs[i].shape);
        GQAC_TRY(check_input(p->module->graph->inputs[i], kept, data, b, diag));
        taken[i] = *kept;
    }
    return GQAC_OK;
}

gqac_status context_take_inputs(const gqac_context *context, int n, const char *const *names,
                                const gqac_tensor *tensors, bool data, gqac_tensor *taken,
                                gqac_diag *diag) {
    const gqac_program *p = context->program;
    GQAC_TRY(check_stateless(p, diag));
    const size_t all = (size_t)p->n_inputs;
    bindings b = {.capacity = p->n_inputs * GQAC_MAX_RANK};
    bool *given = gqac_calloc(all + 1, sizeof *given);
    b.list = gqac_calloc(all * GQAC_MAX_RANK + 1, sizeof *b.list);
    gqac_status status = given && b.list ? GQAC_OK : gqac_diag_oom(diag, "a run");
    if (status == GQAC_OK)
        status = take_inputs(context, n, names, tensors, data, given, &b, taken, diag);
    gqac_free(given);
    gqac_free(b.list);
    return status;
}

gqac_tensor context_output(const gqac_context *context, int index) {
    gqac_tensor output = *exec_result(&context->exec, index);
    if (context->exec.bound && context->exec.bound[index].data)
        output.data = context->exec.bound[index].data;
    return output;
}

gqac_status context_find_output(const gqac_context *context, const char *name, int index, int *at,
                                gqac_diag *diag) {
    const gqac_program *p = context->program;
    *at = name ? find_io(p->outputs, p->n_outputs, name) : index;
    if (*at < 0 || *at >= p->n_outputs)
        GQAC_FAIL(diag, GQAC_USAGE, "the model has no output '%s'", name ? name : "");
    return GQAC_OK;
}

static gqac_status get_outputs(gqac_context *c, int n, const char *const *names,
                               gqac_tensor *outputs, gqac_diag *diag) {
    for (int i = 0; i < n; i++) {
        int at;
        GQAC_TRY(context_find_output(c, names ? names[i] : NULL, i, &at, diag));
        outputs[i] = context_output(c, at);
    }
    return GQAC_OK;
}

gqac_status gqac_context_bind_output(gqac_context *context, const char *name, void *data,
                                     size_t bytes, gqac_diag *diag) {
    GQAC_TRY(check_stateless(context->program, diag));
    int at;
    GQAC_TRY(context_find_output(context, name, 0, &at, diag));
    return exec_bind(&context->exec, at, data, bytes, diag);
}

gqac_status gqac_run(gqac_context *context, int n_inputs, const char *const *input_names,
                     const gqac_tensor *inputs, int n_outputs, const char *const *output_names,
                     gqac_tensor *outputs, gqac_diag *diag) {
    const gqac_program *p = context->program;
    context->ran = false;
    GQAC_TRY(context_check_files(context, diag));
    gqac_poll_begin(&context->exec.poll, context->exec.n_nodes, "nodes");
    gqac_tensor *taken = gqac_calloc((size_t)p->n_inputs + 1, sizeof *taken);
    gqac_status status = taken ? GQAC_OK : gqac_diag_oom(diag, "a run");
    if (status == GQAC_OK)
        status = context_take_inputs(context, n_inputs, input_names, inputs, true, taken, diag);
    for (int i = 0; status == GQAC_OK && i < p->n_inputs; i++)
        exec_set_input(&context->exec, i, &taken[i]);
    gqac_free(taken);
    GQAC_TRY(status);
    if (context->exec.bound)
        GQAC_TRY(exec_bind_check(&context->exec, diag));
    exec_share(&context->exec, context->exec.n_nodes);
    GQAC_TRY(exec_run(&context->exec, diag));
    if (context->exec.bound)
        GQAC_TRY(exec_bind_finish(&context->exec, diag));
    context->ran = true;
    return get_outputs(context, n_outputs, output_names, outputs, diag);
}
