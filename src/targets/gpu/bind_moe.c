/* Mixtures of experts with constant weights: MoE and QMoE. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "ops/moe.h"
#include "targets/gpu/graph.h"
#include "targets/gpu/moe.h"

/* Reads the weights of a node, whatever its rows are: *x and *router are set to the type and shape
 * of one row. False: the weights are not constant, or do not fit each other. */
static bool read_weights(const ir_node *node, moe_form *form, gqac_tensor *x, gqac_tensor *router,
                         moe *m) {
    gqac_diag misfit;
    const op_work work = {.diag = &misfit};
    moe_operands o = {.work = &work, .in = {x, router}};
    moe_mixture s;
    gqac_tensor y;
    *form = op_is(node, "com.microsoft", "QMoE") ? moe_code_form(node) : moe_form_of(node);
    for (int i = 2; i < node->n_inputs && i < MOE_ROUTER_WEIGHTS; i++) {
        const ir_value *value = ir_node_input(node, i);
        o.in[i] = value ? value->constant : NULL;
        if (value && !value->constant)
            return false;
    }
    const int *first = (form->bits[0] ? moe_code_inputs : moe_float_inputs)[0];
    const gqac_tensor *weight = o.in[first[0]];
    if (!weight || weight->rank != 3)
        return false;
    const gqac_dtype dtype = op_in_type(node, 0).dtype;
    const int64_t codes = form->bits[0] ? 8 / form->bits[0] : 1;
    *x = (gqac_tensor){.dtype = dtype, .rank = 1, .dims = {weight->dims[2] * codes}};
    *router = (gqac_tensor){.dtype = dtype, .rank = 1, .dims = {weight->dims[0]}};
    return moe_read_files(&o, form, m) == GQAC_OK && moe_fit(&work, form, m, &y, &s) == GQAC_OK;
}

/* True if the sizes fit the kernels, whose offsets within an expert have 32 bits. */
static bool fits(const moe_matrix *m) {
    int64_t count;
    return !m->weight || (m->k >= 1 && gqac_mul_i64(m->n, m->k, &count) && count <= INT32_MAX &&
                          m->weight->dims[0] <= INT32_MAX);
}

bool gpu_match_moe(const ir_node *node) {
    moe_form form;
    gqac_tensor x, router;
    moe m = {.x = NULL};
    return read_weights(node, &form, &x, &router, &m) && fits(&m.fc[0]) && fits(&m.fc[1]) &&
           fits(&m.fc[2]);
}

/* ---- constants ------------------------------------------------------------------- */

static gqac_status keep_floats(const target_binding *b, const moe_matrix *m, int64_t experts,
                               char *memory, gpu_weights *to) {
    const size_t size = op_width(m->weight->dtype),
                 bytes = (size_t)(experts * m->k * to->width) * size;
    const char *from = m->weight->data;
    for (int64_t e = 0; e < experts; e++)
        for (int64_t n = 0; n < m->n; n++)
            for (int64_t k = 0; k < m->k; k++, from += size)
                memcpy(memory + (size_t)((e * m->k + k) * to->width + n) * size, from, size);
    return gpu_keep(b->state, memory, bytes, &to->data, b->diag);
}

static gqac_status keep_codes(const target_binding *b, const moe_matrix *m, int64_t experts,
                              int64_t words, char *memory, gpu_weights *to) {
    const int64_t row = m->weight->dims[2], width = to->width;
    const size_t bytes = (size_t)(experts * words * width) * sizeof(uint32_t);
    const size_t scales = (size_t)(experts * m->blocks * width) * sizeof(float);
    const char *from = m->weight->data;
    float *number = (float *)(void *)memory;
    for (int64_t e = 0; e < experts; e++)
        for (int64_t n = 0; n < m->n; n++, from += row)
            for (int64_t at = 0; at < row; at += 4)
                memcpy(memory + (size_t)((e * words + at / 4) * width + n) * sizeof(uint32_t),
                       from + at, (size_t)(row - at < 4 ? row - at : 4));
    GQAC_TRY(gpu_keep(b->state, memory, bytes, &to->data, b->diag));
    memset(memory, 0, scales);
    for (int64_t e = 0; e < experts; e++)
        for (int64_t n = 0; n < m->n; n++)
            for (int64_t i = 0; i < m->blocks; i++)
                number[(e * m->blocks + i) * width + n] =
                    op_get_f32(m->scale, (e * m->n + n) * m->blocks + i);
    GQAC_TRY(gpu_keep(b->state, memory, scales, &to->scales, b->diag));
    for (int64_t e = 0; e < experts; e++)
        for (int64_t n = 0; n < m->n; n++)
            for (int64_t i = 0; i < m->blocks; i++)
                number[(e * m->blocks + i) * width + n] = (float)moe_zero_of(m, e, n, i);
    return gpu_keep(b->state, memory, scales, &to->zeros, b->diag);
}

static gpu_kernel_id kernel_of(const moe_matrix *m) {
    const gqac_dtype dtype = m->weight->dtype;
    if (m->bits)
        return m->bits == 2 ? GPU_MOE_2 : m->bits == 4 ? GPU_MOE_4 : GPU_MOE_8;
    return dtype == GQAC_F32 ? GPU_MOE_F32 : dtype == GQAC_F16 ? GPU_MOE_F16 : GPU_MOE_BF16;
}

/* Copies a projection to the device. */
static gqac_status keep(const target_binding *b, const ir_node *node, const moe_matrix *m, int bias,
                        gpu_projection *to) {
    const int64_t experts = m->weight->dims[0];
    const int64_t words = m->bits ? (m->weight->dims[2] + 3) / 4 : 0; /* of a row of codes */
    const int64_t rows = m->bits ? words : m->k, most = rows > m->blocks ? rows : m->blocks;
    gpu_operand own = {.value = -1};
    size_t bytes;
    to->rows = (int32_t)rows;
    to->weights = (gpu_weights){.kernel = kernel_of(m),
                                .k = (int32_t)m->k,
                                .n = (int32_t)m->n,
                                .width = gpu_weights_width((int32_t)m->n),
                                .bits = m->bits,
                                .block = m->bits ? (int32_t)(m->k / m->blocks) : 0,
                                .blocks = (int32_t)m->blocks};
    to->weights.zero_step = to->weights.width;
    char *memory =
        gqac_mul_size((size_t)(experts * to->weights.width), (size_t)most * sizeof(float), &bytes)
            ? calloc(1, bytes)
            : NULL;
    if (!memory)
        return gqac_diag_oom(b->diag, "weights on their way to a device");
    gqac_status status = m->bits ? keep_codes(b, m, experts, words, memory, &to->weights)
                                 : keep_floats(b, m, experts, memory, &to->weights);
    free(memory);
    if (status == GQAC_OK && m->bias)
        status = gpu_bind_operand(b, node, bias, &own);
    to->bias = own.kept;
    return status;
}

gqac_status gpu_bind_moe(const target_binding *b, const ir_node *root, const void **record) {
    gqac_tensor x, router;
    moe m = {.x = NULL};
    gpu_moe *r = bind_new(b, sizeof *r);
    if (!r)
        return GQAC_NO_MEMORY;
    if (!read_weights(root, &r->form, &x, &router, &m))
        GQAC_FAIL(b->diag, GQAC_INTERNAL, "a mixture of experts that does not match");
    for (int i = 0; i < MOE_INPUTS; i++)
        r->in[i] = i < root->n_inputs ? bind_value(ir_node_input(root, i)) : -1;
    r->y = bind_output(root, "output");
    *record = r;
    for (int i = 0; i < 3; i++)
        if (m.fc[i].weight)
            GQAC_TRY(keep(b, root, &m.fc[i],
                          (r->form.bits[i] ? moe_code_inputs : moe_float_inputs)[i][2], &r->fc[i]));
    return GQAC_OK;
}
