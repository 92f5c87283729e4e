/* Constants: values that are views of a tensor. The tensor's header is copied to the arena, its
 * data is not, except for the constants that are made here from numbers. */
#include "ir/impl.h"

#include <assert.h>
#include <string.h>

ir_value *ir_graph_add_constant(ir_graph *graph, const char *name, const gqac_tensor *tensor) {
    ir_module *module = graph->module;
    const gqac_tensor *copy = gqac_arena_copy(module->arena, tensor, sizeof *tensor);
    if (!copy)
        return NULL;
    ir_type type = ir_type_of_tensor(module, copy);
    ir_value *value = ir_dims_failed(module->dims) ? NULL : ir_value_create(graph, name, type);
    if (!value || !ir_graph_push_constant(graph, value))
        return NULL;
    value->constant = copy;
    return value;
}

bool ir_graph_move_constants(ir_graph *from, ir_graph *to) {
    for (int i = 0; i < from->n_constants; i++)
        if (!ir_graph_push_constant(to, from->constants[i]))
            return false;
    for (int i = 0; i < from->n_constants; i++)
        from->constants[i]->graph = to;
    from->n_constants = 0;
    return true;
}

int ir_graph_sweep_constants(ir_graph *graph) {
    int kept = 0, n = graph->n_constants;
    for (int i = 0; i < n; i++)
        if (!ir_value_unused(graph->constants[i]))
            graph->constants[kept++] = graph->constants[i];
    graph->n_constants = kept;
    return n - kept;
}

/* Makes a constant of n elements (rank 1, or rank 0 if n < 0) with its own copy of the data. */
static ir_value *numbers(ir_graph *graph, const char *name, gqac_dtype dtype, int64_t n,
                         const void *data, size_t size) {
    size_t bytes = (n < 0 ? 1 : (size_t)n) * size;
    gqac_tensor tensor = {.dtype = dtype, .rank = n >= 0};
    tensor.dims[0] = n < 0 ? 0 : n;
    tensor.data = gqac_arena_alloc(graph->module->arena, bytes);
    if (!tensor.data)
        return NULL;
    if (bytes)
        memcpy(tensor.data, data, bytes);
    return ir_graph_add_constant(graph, name, &tensor);
}

ir_value *ir_const_i64(ir_graph *graph, const char *name, int64_t value) {
    return numbers(graph, name, GQAC_I64, -1, &value, sizeof value);
}

ir_value *ir_const_i64s(ir_graph *graph, const char *name, int64_t n, const int64_t *values) {
    assert(n >= 0);
    return numbers(graph, name, GQAC_I64, n, values, sizeof *values);
}

ir_value *ir_const_f32(ir_graph *graph, const char *name, float value) {
    return numbers(graph, name, GQAC_F32, -1, &value, sizeof value);
}

bool ir_const_ints(const ir_value *value, int64_t max, int64_t *out, int64_t *count) {
    const gqac_tensor *tensor = value ? value->constant : NULL;
    if (!tensor || (tensor->dtype != GQAC_I64 && tensor->dtype != GQAC_I32))
        return false;
    int64_t n = gqac_tensor_count(tensor);
    if (n > max || (n > 0 && !tensor->data))
        return false;
    /* The data may be a view into a file, so it need not be aligned. */
    const char *data = tensor->data;
    for (int64_t i = 0; i < n; i++) {
        int32_t narrow;
        if (tensor->dtype == GQAC_I64) {
            memcpy(&out[i], data + i * 8, 8);
        } else {
            memcpy(&narrow, data + i * 4, 4);
            out[i] = narrow;
        }
    }
    *count = n;
    return true;
}

int64_t ir_constant_bytes(const ir_graph *graph) {
    int64_t bytes = 0;
    for (int i = 0; i < graph->n_constants; i++)
        bytes += (int64_t)gqac_tensor_bytes(graph->constants[i]->constant);
    return bytes;
}
