/* Runs of a nested graph, for Loop and Scan. The results of a run are views that are valid until
 * the next run, and a run must not write over its own arguments. So states are copied to two sets
 * of buffers in turn. */
#include "ops/loop.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/diag.h"

gqac_status loop_verify(const ir_node *node, const ir_graph *body, int n_args, int n_results,
                        gqac_diag *diag) {
    if (!body || !body->ret)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the body is missing");
    if (body->n_inputs != n_args || body->ret->n_inputs != n_results)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "the body has %d inputs and %d results, expected %d and %d", body->n_inputs,
                body->ret->n_inputs, n_args, n_results);
    return GQAC_OK;
}

/* ---- types ------------------------------------------------------------------ */

gqac_status loop_infer_states(ir_node *node, const ir_graph *body, int lead_results, int n_states,
                              int first, gqac_diag *diag) {
    for (int i = 0; i < n_states; i++) {
        const ir_type start = op_in_type(node, first + i);
        const ir_type end = op_in_type(body->ret, lead_results + i);
        const ir_dim *dims[GQAC_MAX_RANK];
        if (start.dtype != GQAC_NONE && end.dtype != GQAC_NONE && start.dtype != end.dtype)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "state %d starts as %s and becomes %s", i,
                    gqac_dtype_name(start.dtype), gqac_dtype_name(end.dtype));
        const int rank = start.rank == end.rank ? start.rank : -1;
        for (int k = 0; k < rank; k++) {
            int64_t a, b;
            const bool same =
                ir_dim_is_const(start.dims[k], &a) && ir_dim_is_const(end.dims[k], &b) && a == b;
            dims[k] = same ? start.dims[k] : NULL;
        }
        GQAC_TRY(op_set_type(node, i, start.dtype != GQAC_NONE ? start.dtype : end.dtype, rank,
                             dims, diag));
    }
    return GQAC_OK;
}

gqac_status loop_infer_rows(ir_node *node, const ir_graph *body, int result, int output,
                            int64_t axis, const ir_dim *count, gqac_diag *diag) {
    const ir_type row = op_in_type(body->ret, result);
    const ir_dim *dims[GQAC_MAX_RANK];
    int at;
    if (row.rank < 0)
        return op_set_type(node, output, row.dtype, -1, NULL, diag);
    if (row.rank >= GQAC_MAX_RANK)
        OP_FAIL(node, diag, GQAC_LIMIT, "output %d has rank %d, the maximum is %d", output,
                row.rank + 1, GQAC_MAX_RANK);
    GQAC_TRY(op_axis(node, axis, row.rank + 1, &at, diag));
    for (int k = 0, from = 0; k <= row.rank; k++) {
        int64_t n;
        dims[k] = k == at ? count : row.dims[from++];
        if (k != at && !ir_dim_is_const(dims[k], &n)) /* may differ in every run */
            dims[k] = NULL;
    }
    return op_set_type(node, output, row.dtype, row.rank + 1, dims, diag);
}

/* ---- values ----------------------------------------------------------------- */

/* Grows a buffer to that many bytes; its contents are kept. */
static gqac_status reserve(loop_value *value, size_t bytes, gqac_diag *diag) {
    if (bytes <= value->capacity && value->tensor.data)
        return GQAC_OK;
    size_t wanted = bytes > 2 * value->capacity ? bytes : 2 * value->capacity;
    void *memory = gqac_alloc(wanted ? wanted : 1);
    if (!memory)
        return gqac_diag_oom(diag, "values of a loop");
    if (value->tensor.data && value->capacity)
        memcpy(memory, value->tensor.data, value->capacity);
    gqac_free(value->tensor.data);
    value->tensor.data = memory;
    value->capacity = wanted;
    return GQAC_OK;
}

static gqac_status copy(loop_value *to, const gqac_tensor *from, gqac_diag *diag) {
    const size_t bytes = gqac_tensor_bytes(from);
    GQAC_TRY(reserve(to, bytes, diag));
    void *data = to->tensor.data;
    to->tensor = *from;
    to->tensor.data = data;
    if (bytes)
        memcpy(data, from->data, bytes);
    return GQAC_OK;
}

/* Appends a row; all have the shape of the first. */
static gqac_status stack(const op_call *call, loop_value *rows, const gqac_tensor *row) {
    gqac_tensor *all = &rows->tensor;
    const size_t bytes = gqac_tensor_bytes(row);
    size_t used, total;
    if (all->rank == 0) {
        void *data = all->data;
        if (row->rank >= GQAC_MAX_RANK || OP_IN(OP_NIBBLES, row->dtype))
            OP_FAIL(call->node, call->diag, GQAC_UNSUPPORTED,
                    "scanned values of type %s and rank %d are not supported",
                    gqac_dtype_name(row->dtype), row->rank);
        *all = (gqac_tensor){.dtype = row->dtype, .rank = row->rank + 1, .data = data};
        for (int i = 0; i < row->rank; i++)
            all->dims[i + 1] = row->dims[i];
    }
    bool same = all->dtype == row->dtype && all->rank == row->rank + 1;
    for (int i = 0; same && i < row->rank; i++)
        same = all->dims[i + 1] == row->dims[i];
    if (!same)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "a result of the body has a type or shape that differs from the first run");
    if (!gqac_mul_size(bytes, (size_t)all->dims[0], &used) || !gqac_add_size(used, bytes, &total) ||
        total > PTRDIFF_MAX)
        return gqac_diag_oom(call->diag, "rows of a loop");
    GQAC_TRY(reserve(rows, total, call->diag));
    if (bytes)
        memcpy((char *)all->data + used, row->data, bytes);
    all->dims[0]++;
    return GQAC_OK;
}

/* ---- runs ------------------------------------------------------------------- */

gqac_status loop_open(op_call *call, const ir_graph *body, int lead_args, int lead_results,
                      int n_states, int first, loop_frame *f) {
    *f = (loop_frame){.body = body,
                      .lead_args = lead_args,
                      .lead_results = lead_results,
                      .n_states = n_states,
                      .n_rows = body->ret->n_inputs - lead_results - n_states};
    const size_t values = 2 * (size_t)n_states + (size_t)f->n_rows;
    const size_t results = (size_t)body->ret->n_inputs, args = (size_t)body->n_inputs;
    f->memory = gqac_calloc(1, values * sizeof(loop_value) + results * sizeof(gqac_tensor) +
                                   (args + 1) * sizeof(gqac_tensor *));
    if (!f->memory)
        return gqac_diag_oom(call->diag, "a loop");
    f->now = f->memory;
    f->next = f->now + n_states;
    f->rows = f->next + n_states;
    f->results = (gqac_tensor *)(void *)(f->rows + f->n_rows);
    f->args = (const gqac_tensor **)(void *)(f->results + results);
    for (int i = 0; i < n_states; i++) {
        GQAC_TRY(op_want(call, first + i, GQAC_NONE));
        GQAC_TRY(copy(&f->now[i], call->in[first + i], call->diag));
    }
    return GQAC_OK;
}

void loop_close(loop_frame *f) {
    for (int i = 0; f->memory && i < 2 * f->n_states + f->n_rows; i++)
        gqac_free(((loop_value *)f->memory)[i].tensor.data);
    gqac_free(f->memory);
    f->memory = NULL;
}

static gqac_status check_arg(const op_call *call, const ir_value *input, const gqac_tensor *t) {
    const ir_type *type = &input->type;
    int64_t n;
    if (type->dtype != GQAC_NONE && t->dtype != type->dtype)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "input '%s' of the body is %s, got %s",
                input->name, gqac_dtype_name(type->dtype), gqac_dtype_name(t->dtype));
    if (type->rank >= 0 && t->rank != type->rank)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "input '%s' of the body has rank %d, got rank %d", input->name, type->rank,
                t->rank);
    for (int i = 0; i < type->rank; i++)
        if (ir_dim_is_const(type->dims[i], &n) && t->dims[i] != n)
            OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                    "input '%s' of the body has %lld elements along axis %d, got %lld", input->name,
                    (long long)n, i, (long long)t->dims[i]);
    return GQAC_OK;
}

static gqac_status check_args(const op_call *call, const loop_frame *f) {
    for (int i = 0; i < f->body->n_inputs; i++) {
        const gqac_status status = check_arg(call, f->body->inputs[i], f->args[i]);
        if (status == GQAC_OK)
            continue;
        gqac_diag_rule(call->diag,
                       "the arguments of every run must have the types that the body declares");
        gqac_diag_hint(
            call->diag,
            "declare a dim that may change from run to run as a symbol, or leave it out");
        return status;
    }
    return GQAC_OK;
}

gqac_status loop_run_body(op_call *call, loop_frame *f) {
    for (int i = 0; i < f->n_states; i++)
        f->args[f->lead_args + i] = &f->now[i].tensor;
    GQAC_TRY(check_args(call, f));
    GQAC_TRY(call->run_graph(call, f->body, f->body->n_inputs, f->args, f->results));
    for (int i = 0; i < f->n_states; i++) {
        const gqac_tensor *result = &f->results[f->lead_results + i];
        if (result->dtype != f->now[i].tensor.dtype)
            OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "state %d is %s and becomes %s", i,
                    gqac_dtype_name(f->now[i].tensor.dtype), gqac_dtype_name(result->dtype));
        GQAC_TRY(copy(&f->next[i], result, call->diag));
    }
    for (int i = 0; i < f->n_rows; i++)
        GQAC_TRY(stack(call, &f->rows[i], &f->results[f->lead_results + f->n_states + i]));
    loop_value *spare = f->now;
    f->now = f->next;
    f->next = spare;
    f->count++;
    return GQAC_OK;
}

gqac_status loop_give_states(op_call *call, const loop_frame *f) {
    for (int i = 0; i < f->n_states; i++) {
        const gqac_tensor *value = &f->now[i].tensor;
        const size_t bytes = gqac_tensor_bytes(value);
        GQAC_TRY(op_output_like(call, i, value->dtype, value));
        if (bytes)
            memcpy(call->out[i].data, value->data, bytes);
    }
    return GQAC_OK;
}

gqac_status loop_rows_shape(op_call *call, const loop_frame *f, int i, gqac_tensor *shape) {
    *shape = f->rows[i].tensor;
    if (f->count > 0)
        return GQAC_OK;
    const ir_type type = op_in_type(f->body->ret, f->lead_results + f->n_states + i);
    if (type.dtype == GQAC_NONE || type.rank >= GQAC_MAX_RANK || OP_IN(OP_NIBBLES, type.dtype))
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "the body never ran, and the type of its result is not known");
    /* Of unknown rank: an empty list, as in ONNX Runtime. */
    *shape = (gqac_tensor){.dtype = type.dtype, .rank = type.rank < 0 ? 1 : type.rank + 1};
    for (int k = 0; k < type.rank; k++)
        if (!ir_dim_is_const(type.dims[k], &shape->dims[k + 1]))
            shape->dims[k + 1] = 0;
    return GQAC_OK;
}
