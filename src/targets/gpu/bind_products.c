/* Products with constant weights: MatMul and MatMulNBits. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "targets/gpu/graph.h"
#include "targets/gpu/products.h"
#include "targets/gpu/tensor.h"

static const gqac_tensor *constant_of(const ir_node *node, int input) {
    const ir_value *value = ir_node_input(node, input);
    return value ? value->constant : NULL;
}

gqac_status gpu_bind_operand(const target_binding *b, const ir_node *node, int input,
                             gpu_operand *of) {
    const ir_value *value = ir_node_input(node, input);
    const gqac_tensor *constant = value ? value->constant : NULL;
    *of = (gpu_operand){.value = bind_value(value)};
    const int64_t count = constant ? gqac_tensor_count(constant) : 0;
    if (count == 0 || !OP_IN(OP_FLOATS, constant->dtype))
        return GQAC_OK;
    return gpu_keep_floats(b->state, constant, &of->kept, b->diag);
}

/* ---- MatMul ------------------------------------------------------------------ */

bool gpu_match_product(const ir_node *node) {
    const gqac_tensor *w = constant_of(node, 1);
    const ir_type x = op_in_type(node, 0);
    return w && x.dtype == w->dtype && OP_IN(OP_FLOATS, w->dtype) && w->rank == 2 && x.rank >= 2 &&
           w->dims[0] >= 1 && w->dims[0] <= INT32_MAX && w->dims[1] >= 1 && w->dims[1] <= INT32_MAX;
}

gqac_status gpu_weights_memory(const target_binding *b, const gpu_weights *p, size_t column,
                               size_t copies, char **memory) {
    const size_t chunks = (column + GPU_CHUNK - 1) / GPU_CHUNK;
    const size_t scales = ((size_t)p->blocks * sizeof(float) + GPU_CHUNK - 1) / GPU_CHUNK;
    size_t bytes;
    *memory =
        gqac_mul_size((chunks > scales ? chunks : scales) * GPU_CHUNK, (size_t)p->width, &bytes) &&
                gqac_mul_size(bytes, copies, &bytes)
            ? calloc(1, bytes)
            : NULL;
    return *memory ? GQAC_OK : gqac_diag_oom(b->diag, "weights on their way to a device");
}

void gpu_weights_column(const gpu_weights *p, const char *from, size_t bytes, size_t column,
                        char *to) {
    for (size_t at = 0; at < bytes; at += GPU_CHUNK, to += (size_t)p->width * GPU_CHUNK)
        memcpy(to + column * GPU_CHUNK, from + at, bytes - at < GPU_CHUNK ? bytes - at : GPU_CHUNK);
}

/* Copies floats [k][n] to the device, as chunks. */
static gqac_status keep_floats(const target_binding *b, const gqac_tensor *w, gpu_weights *p) {
    const size_t size = op_width(w->dtype), n = (size_t)p->n, k = (size_t)p->k;
    const size_t of_chunk = GPU_CHUNK / size, chunks = (k + of_chunk - 1) / of_chunk;
    const char *from = w->data;
    char *memory;
    GQAC_TRY(gpu_weights_memory(b, p, k * size, 1, &memory));
    for (size_t i = 0; i < k; i++) {
        char *to = memory + i / of_chunk * (size_t)p->width * GPU_CHUNK + i % of_chunk * size;
        if (size == 2)
            for (size_t j = 0; j < n; j++, from += 2)
                memcpy(to + j * GPU_CHUNK, from, 2);
        else
            for (size_t j = 0; j < n; j++, from += 4)
                memcpy(to + j * GPU_CHUNK, from, 4);
    }
    const gqac_status status =
        gpu_keep(b->state, memory, chunks * (size_t)p->width * GPU_CHUNK, &p->data, b->diag);
    free(memory);
    return status;
}

/* Makes the factors of weights [k,n] that have been copied to the device. */
static gqac_status pack_factors(gpu_work *w, const gpu_product *p, const gqac_tensor *weights,
                                const gpu_buffer *from) {
    const gpu_product_shape shape = gpu_product_shape_of(&p->weights, 1, 1);
    const int32_t type = (int32_t)gpu_type_of(weights->dtype);
    const gpu_grid grid = gpu_tensor_packers(&shape, (size_t)(shape.width / 8));
    const gpu_arg args[] = {GPU_ARG(from->handle), GPU_ARG(p->weights.data.handle), GPU_ARG(type),
                            GPU_ARG(shape)};
    return gpu_launch_own(w, p->tensor[GPU_TENSOR_PACK], &grid, GPU_COUNT(args), args);
}

/* Weights for tensor cores: sets p->weights, p->tensor and p->forms. */
static gqac_status bind_tensor(const target_binding *b, const gqac_tensor *weights,
                               gpu_product *p) {
    gpu_state *s = gpu_state_of(b->state);
    const op_work work = {.diag = b->diag};
    gpu_work w = {.state = s, .work = &work};
    gpu_buffer from = {0};
    size_t bytes;
    GQAC_TRY(gpu_tensor_kernels(b->state, &p->tensor, b->diag));
    p->weights = (gpu_weights){.k = (int32_t)weights->dims[0],
                               .n = (int32_t)weights->dims[1],
                               .width = (int32_t)(gpu_parts(weights->dims[1], 32) * 32)};
    p->forms = GPU_TENSOR_FLOATS;
    if (!gqac_mul_size((size_t)gpu_tensor_blocks(p->weights.k) * GPU_TENSOR_K * sizeof(uint16_t),
                       (size_t)p->weights.width, &bytes))
        return gqac_diag_oom(b->diag, "weights of a device");
    GQAC_TRY(gpu_keep(b->state, NULL, bytes, &p->weights.data, b->diag));
    bytes = (size_t)gqac_tensor_count(weights) * op_width(weights->dtype);
    GQAC_TRY(gpu_allocate(s, bytes, &from, b->diag));
    gqac_status status = gpu_upload(s, &from, weights->data, bytes, b->diag);
    if (status == GQAC_OK)
        status = pack_factors(&w, p, weights, &from);
    if (status == GQAC_OK) /* a launch may fail as late as here */
        status = gpu_download(s, &(gpu_buffer){0}, NULL, 0, b->diag);
    gpu_release(s, &from);
    return status;
}

gqac_status gpu_bind_product(const target_binding *b, const ir_node *root, const void **record) {
    const gqac_tensor *w = constant_of(root, 1);
    gpu_product *p = bind_new(b, sizeof *p);
    if (!p)
        return GQAC_NO_MEMORY;
    *p = (gpu_product){
        .x = bind_input(root, "A"), .y = bind_output(root, "Y"), .bias.value = -1, .as_is = true};
    *record = p;
    if (b->bf16 && gpu_bf16_name(b->state))
        return bind_tensor(b, w, p);
    p->weights = (gpu_weights){.kernel = w->dtype == GQAC_F32   ? GPU_PRODUCT_F32
                                         : w->dtype == GQAC_F16 ? GPU_PRODUCT_F16
                                                                : GPU_PRODUCT_BF16,
                               .k = (int32_t)w->dims[0],
                               .n = (int32_t)w->dims[1],
                               .width = gpu_weights_width((int32_t)w->dims[1])};
    return keep_floats(b, w, &p->weights);
}

/* ---- MatMulNBits -------------------------------------------------------------- */

enum { A, B, SCALES, ZERO_POINTS, G_IDX, BIAS };

bool gpu_match_nbits(const ir_node *node) {
    const gqac_tensor *zeros = constant_of(node, ZERO_POINTS);
    const bool fits =
        zeros ? OP_IN(OP_FLOATS | OP_BIT(U8), zeros->dtype) : !ir_node_input(node, ZERO_POINTS);
    return constant_of(node, B) && constant_of(node, SCALES) && fits &&
           !ir_node_input(node, G_IDX) && op_in_type(node, A).rank >= 2;
}

/* Zero points are numbers, or codes packed like B, a row of bytes for each column. */
static float zero_of(const gpu_weights *p, const gqac_tensor *zeros, int64_t column,
                     int64_t block) {
    if (!zeros)
        return (float)(1 << (p->bits - 1));
    if (zeros->dtype != GQAC_U8)
        return op_get_f32(zeros, column * p->blocks + block);
    const int64_t bytes = (p->blocks * p->bits + 7) / 8, bit = block * p->bits;
    const uint8_t *row = (const uint8_t *)zeros->data + column * bytes;
    return (float)(row[bit / 8] >> bit % 8 & ((1 << p->bits) - 1));
}

/* Copies scales and zero points to the device, [blocks][width], by way of `memory`; zero points
 * that are all the same as one row. */
static gqac_status keep_scales(const target_binding *b, gpu_weights *p, const gqac_tensor *scales,
                               const gqac_tensor *zeros, float *memory) {
    const size_t row = (size_t)p->width * sizeof(float), bytes = row * (size_t)p->blocks;
    memset(memory, 0, bytes);
    for (int64_t i = 0; i < (int64_t)p->n * p->blocks; i++)
        memory[i % p->blocks * p->width + i / p->blocks] = op_get_f32(scales, i);
    GQAC_TRY(gpu_keep(b->state, memory, bytes, &p->scales, b->diag));
    memset(memory, 0, bytes);
    for (int64_t i = 0; i < (int64_t)p->n * p->blocks; i++)
        memory[i % p->blocks * p->width + i / p->blocks] =
            zero_of(p, zeros, i / p->blocks, i % p->blocks);
    p->zero_step = zeros ? p->width : 0;
    return gpu_keep(b->state, memory, zeros ? bytes : row, &p->zeros, b->diag);
}

/* Copies codes to the device, as chunks. */
static gqac_status keep_codes(const target_binding *b, gpu_weights *p, const char *codes,
                              char *memory) {
    const size_t bytes = (size_t)p->blocks * (size_t)(p->block * p->bits / 8);
    for (size_t column = 0; column < (size_t)p->n; column++)
        gpu_weights_column(p, codes + column * bytes, bytes, column, memory);
    return gpu_keep(b->state, memory,
                    (bytes + GPU_CHUNK - 1) / GPU_CHUNK * (size_t)p->width * GPU_CHUNK, &p->data,
                    b->diag);
}

static gpu_kernel_id kernel_of(int64_t bits, bool int8) {
    if (bits == 2)
        return int8 ? GPU_INT8_2 : GPU_PRODUCT_2;
    if (bits == 4)
        return int8 ? GPU_INT8_4 : GPU_PRODUCT_4;
    return int8 ? GPU_INT8_8 : GPU_PRODUCT_8;
}

gqac_status gpu_bind_nbits(const target_binding *b, const ir_node *root, const void **record) {
    const gqac_tensor *zeros = constant_of(root, ZERO_POINTS);
    gpu_product *p = bind_new(b, sizeof *p);
    if (!p)
        return GQAC_NO_MEMORY;
    const int64_t k = ir_attr_int(root, "K"), block = ir_attr_int(root, "block_size");
    const int64_t bits = ir_attr_int(root, "bits");
    gpu_weights *w = &p->weights;
    p->x = bind_input(root, "A");
    p->y = bind_output(root, "Y");
    p->int8 = ir_attr_int(root, "accuracy_level") == 4 && (!zeros || zeros->dtype == GQAC_U8) &&
              (bits != 2 || block > 16);
    *w = (gpu_weights){.kernel = kernel_of(bits, p->int8),
                       .k = (int32_t)k,
                       .n = (int32_t)ir_attr_int(root, "N"),
                       .bits = (int32_t)bits,
                       .block = (int32_t)block,
                       .blocks = (int32_t)((k + block - 1) / block)};
    w->width = gpu_weights_width(w->n);
    if (b->bf16 && !p->int8 && gpu_bf16_name(b->state)) {
        GQAC_TRY(gpu_tensor_kernels(b->state, &p->tensor, b->diag));
        p->forms = bits == 2 ? GPU_TENSOR_2 : bits == 4 ? GPU_TENSOR_4 : GPU_TENSOR_8;
        p->as_is = true;
    }
    GQAC_TRY(gpu_bind_operand(b, root, BIAS, &p->bias));
    char *memory;
    *record = p;
    GQAC_TRY(gpu_weights_memory(b, w, (size_t)w->blocks * (size_t)(block * bits / 8), 1, &memory));
    gqac_status status = keep_codes(b, w, constant_of(root, B)->data, memory);
    if (status == GQAC_OK)
        status = keep_scales(b, w, constant_of(root, SCALES), zeros, (float *)(void *)memory);
    free(memory);
    return status;
}
