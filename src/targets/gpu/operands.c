/* Operands and results of kernels: values of the mirror, as they are or in fp32, and constants. */
#include "targets/gpu/gpu.h"
#include "targets/gpu/mirror.h"

gpu_rows_type gpu_type_of(gqac_dtype floats) {
    return floats == GQAC_F32 ? GPU_ROWS_F32 : floats == GQAC_F16 ? GPU_ROWS_F16 : GPU_ROWS_BF16;
}

gqac_status gpu_fits(const op_work *work, const gqac_tensor *tensor) {
    const int64_t count = gqac_tensor_count(tensor);
    if (count > INT32_MAX)
        OP_STOP(work, GQAC_LIMIT, "%lld elements: a kernel of target gpu has %d at most",
                (long long)count, INT32_MAX);
    return GQAC_OK;
}

gpu_grid gpu_element_grid(int64_t n, int32_t unit, int32_t *step) {
    enum { FEW_ITEMS = 64, MANY_ITEMS = 256, MANY = 1 << 16 };
    const int64_t units = (n + unit - 1) / unit, two = 2 * MANY_ITEMS;
    gpu_grid grid = {.groups = {(size_t)((units + FEW_ITEMS - 1) / FEW_ITEMS), 1},
                     .items = {FEW_ITEMS, 1}};
    if (units >= MANY)
        grid =
            (gpu_grid){.groups = {(size_t)((units + two - 1) / two), 1}, .items = {MANY_ITEMS, 1}};
    *step = (int32_t)(units >= MANY ? (int64_t)grid.groups[0] * MANY_ITEMS : units);
    return grid;
}

/* Converts the elements of a tensor of 16 bits, one way or the other. */
static gqac_status convert(gpu_work *w, const gqac_tensor *tensor, gpu_rows_type from_type,
                           gpu_rows_type to_type, const gpu_buffer *from, const gpu_buffer *to) {
    int32_t step;
    GQAC_TRY(gpu_fits(w->work, tensor));
    const int32_t n = (int32_t)gqac_tensor_count(tensor);
    const int32_t types[] = {(int32_t)from_type, (int32_t)to_type};
    const gpu_grid grid = gpu_element_grid(n, 4, &step);
    const float alpha = 0.0f; /* not used */
    const gpu_arg args[] = {GPU_ARG(from->handle), GPU_ARG(to->handle), GPU_ARG(n),
                            GPU_ARG(step),         GPU_ARG(alpha),      GPU_ARG(types[0]),
                            GPU_ARG(types[1])};
    return gpu_launch(w, GPU_SAME, &grid, GPU_COUNT(args), args);
}

gqac_status gpu_in_as_is(gpu_work *w, const gqac_tensor *tensor, gpu_buffer *buffer) {
    return gqac_tensor_count(tensor) ? gpu_mirror_in(w, tensor, buffer) : gpu_scratch(w, 1, buffer);
}

gqac_status gpu_out_as_is(gpu_work *w, const gqac_tensor *tensor, gpu_buffer *buffer) {
    return gqac_tensor_count(tensor) ? gpu_mirror_out(w, tensor, buffer)
                                     : gpu_scratch(w, 1, buffer);
}

gqac_status gpu_in(gpu_work *w, const gqac_tensor *tensor, gpu_buffer *buffer) {
    const size_t count = (size_t)gqac_tensor_count(tensor);
    gpu_buffer own;
    if (tensor->dtype == GQAC_F32 || count == 0)
        return gpu_in_as_is(w, tensor, buffer);
    GQAC_TRY(gpu_mirror_in(w, tensor, &own));
    GQAC_TRY(gpu_scratch(w, count * sizeof(float), buffer));
    return convert(w, tensor, gpu_type_of(tensor->dtype), GPU_ROWS_F32, &own, buffer);
}

gqac_status gpu_out(gpu_work *w, const gqac_tensor *tensor, gpu_buffer *buffer) {
    const size_t count = (size_t)gqac_tensor_count(tensor);
    return tensor->dtype == GQAC_F32 || count == 0 ? gpu_out_as_is(w, tensor, buffer)
                                                   : gpu_scratch(w, count * sizeof(float), buffer);
}

gqac_status gpu_done(gpu_work *w, const gpu_buffer *buffer, const gqac_tensor *tensor) {
    gpu_buffer own;
    if (tensor->dtype == GQAC_F32 || gqac_tensor_count(tensor) == 0)
        return GQAC_OK;
    GQAC_TRY(gpu_mirror_out(w, tensor, &own));
    return convert(w, tensor, GPU_ROWS_F32, gpu_type_of(tensor->dtype), buffer, &own);
}

/* Sets *buffer to the memory of an operand that is constant or absent; false: it is neither. */
static bool find_operand(const gpu_work *w, const gpu_operand *of, const gqac_tensor *tensor,
                         const gpu_buffer *other, gpu_buffer *buffer) {
    *buffer = of->kept.handle || tensor ? of->kept : *other;
    return of->kept.handle || !tensor || gpu_find_floats(w->state, tensor, buffer);
}

gqac_status gpu_operand_in(gpu_work *w, const target_call *call, const gpu_operand *of,
                           const gpu_buffer *other, gpu_buffer *buffer) {
    const gqac_tensor *tensor = target_value(call, of->value);
    return find_operand(w, of, tensor, other, buffer) ? GQAC_OK : gpu_in(w, tensor, buffer);
}

gqac_status gpu_operand_as_is(gpu_work *w, const target_call *call, const gpu_operand *of,
                              const gpu_buffer *other, gpu_buffer *buffer, int32_t *type) {
    const gqac_tensor *tensor = target_value(call, of->value);
    *type = GPU_ROWS_F32;
    if (find_operand(w, of, tensor, other, buffer))
        return GQAC_OK;
    *type = (int32_t)gpu_type_of(tensor->dtype);
    return gpu_in_as_is(w, tensor, buffer);
}
