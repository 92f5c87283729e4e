/* Parameters: inputs of a stateless program that the context keeps from run to run.
 *
 * The memory of a parameter stays where it is until its shape changes, so that an output may be
 * bound to it: what one run writes is what the next one reads. */
#include "runtime/context.h"

#include <string.h>

#include "base/alloc.h"

static gqac_status find(gqac_context *c, const char *name, int *index, gqac_diag *diag) {
    GQAC_TRY(context_find_input(c, name, index, diag));
    if (!c->parameters)
        c->parameters = gqac_calloc((size_t)c->program->n_inputs + 1, sizeof *c->parameters);
    return c->parameters ? GQAC_OK : gqac_diag_oom(diag, "parameters");
}

static void free_data(gqac_context *c, gqac_tensor *kept) {
    if (kept->data)
        gqac_budget_give(c->program->budget, gqac_tensor_bytes(kept));
    gqac_free(kept->data);
}

void context_free_parameters(gqac_context *c) {
    for (int i = 0; c->parameters && i < c->program->n_inputs; i++)
        free_data(c, &c->parameters[i]);
    gqac_free(c->parameters);
}

/* Frees a parameter. Results may be views of its memory, or bound to it. */
static void drop(gqac_context *c, gqac_tensor *kept) {
    if (!kept->data)
        return;
    const size_t bytes = gqac_tensor_bytes(kept);
    exec_unbind(&c->exec, kept->data, bytes + !bytes);
    c->ran = false;
    free_data(c, kept);
}

gqac_status gqac_context_reserve(gqac_context *context, const char *name, int rank,
                                 const int64_t *dims, gqac_diag *diag) {
    int at;
    GQAC_TRY(find(context, name, &at, diag));
    gqac_tensor *kept = &context->parameters[at];
    gqac_tensor made = {.dtype = context->program->inputs[at].dtype, .rank = rank};
    size_t bytes = 0;
    if (rank < 0 || rank > GQAC_MAX_RANK)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "a parameter cannot have rank %d", rank);
    if (rank)
        memcpy(made.dims, dims, (size_t)rank * sizeof *dims);
    if (gqac_shape_bytes(made.dtype, rank, dims, &bytes, NULL) != GQAC_OK)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "parameter '%s' has an impossible shape", name);
    GQAC_TRY(context_check_input(context, at, &made, diag));
    const bool fits = kept->data && gqac_tensor_bytes(kept) == bytes;
    const bool left = fits || gqac_budget_take(context->program->budget, bytes);
    made.data = fits ? kept->data : left ? gqac_calloc(bytes + !bytes, 1) : NULL;
    if (!made.data) {
        gqac_budget_give(context->program->budget, left ? bytes : 0);
        return gqac_budget_fail(context->program->budget, bytes, "a parameter", diag);
    }
    if (fits)
        memset(made.data, 0, bytes);
    else
        drop(context, kept);
    *kept = made;
    return GQAC_OK;
}

/* Copies rows of the last axis, one after another. */
static void copy(const gqac_tensor *from, gqac_tensor *to) {
    const int rank = from->rank;
    int64_t at[GQAC_MAX_RANK] = {0};
    const size_t size = (size_t)gqac_dtype_bits(from->dtype) / 8;
    const size_t row = rank ? (size_t)from->dims[rank - 1] * size : size;
    for (const unsigned char *in = from->data;; in += row) {
        int64_t place = 0;
        for (int i = 0; i < rank; i++)
            place = place * to->dims[i] + at[i];
        memcpy((unsigned char *)to->data + (size_t)place * size, in, row);
        int axis = rank - 2;
        while (axis >= 0 && ++at[axis] == from->dims[axis])
            at[axis--] = 0;
        if (axis < 0)
            return;
    }
}

gqac_status gqac_context_upload(gqac_context *context, const char *name, const gqac_tensor *tensor,
                                gqac_diag *diag) {
    int at;
    GQAC_TRY(find(context, name, &at, diag));
    gqac_tensor *kept = &context->parameters[at];
    const gqac_dtype dtype = context->program->inputs[at].dtype;
    if (tensor->dtype != dtype)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT,
                  "the tensor uploaded to '%s' is %s, but the model needs %s", name,
                  gqac_dtype_name(tensor->dtype), gqac_dtype_name(dtype));
    if (!kept->data)
        GQAC_TRY(gqac_context_reserve(context, name, tensor->rank, tensor->dims, diag));
    bool same = tensor->rank == kept->rank;
    for (int i = 0; i < tensor->rank && same; i++)
        same = tensor->dims[i] == kept->dims[i];
    bool fits = tensor->rank == kept->rank && (same || gqac_dtype_bits(dtype) % 8 == 0);
    for (int i = 0; i < tensor->rank && fits; i++)
        fits = tensor->dims[i] >= 0 && tensor->dims[i] <= kept->dims[i];
    if (!fits)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "the tensor uploaded to '%s' does not fit its shape",
                  name);
    const size_t bytes = gqac_tensor_bytes(tensor);
    if (bytes && !tensor->data)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "the tensor uploaded to '%s' has no data", name);
    const uintptr_t from = (uintptr_t)tensor->data, to = (uintptr_t)kept->data;
    if (!same && from < to + gqac_tensor_bytes(kept) && to < from + bytes)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "the tensor uploaded to '%s' overlaps its own memory",
                  name);
    if (same && bytes)
        memmove(kept->data, tensor->data, bytes); /* the tensor may be a view of the parameter */
    else if (bytes)
        copy(tensor, kept);
    return GQAC_OK;
}

gqac_status gqac_context_parameter(gqac_context *context, const char *name, gqac_tensor *view,
                                   gqac_diag *diag) {
    int at;
    GQAC_TRY(find(context, name, &at, diag));
    if (!context->parameters[at].data)
        GQAC_FAIL(diag, GQAC_USAGE, "nothing was uploaded to '%s'", name);
    *view = context->parameters[at];
    return GQAC_OK;
}

gqac_status gqac_context_read_output(const gqac_context *context, int index, gqac_tensor *view,
                                     gqac_diag *diag) {
    const gqac_program *p = context->program;
    if (!p->stateless || !context->ran)
        GQAC_FAIL(diag, GQAC_USAGE, "there was no successful gqac_run whose outputs can be read");
    if (index < 0 || index >= p->n_outputs)
        GQAC_FAIL(diag, GQAC_USAGE, "the model has no output %d: it has %d outputs, counted from 0",
                  index, p->n_outputs);
    *view = context_output(context, index);
    return GQAC_OK;
}
