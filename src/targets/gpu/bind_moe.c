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

/* Copies weights to the device, as chunks; column: bytes of a column, which is a row of the model.
 */
static gqac_status keep_weights(const target_binding *b, const moe_matrix *m, int64_t experts,
                                size_t column, int32_t rows, char *memory, gpu_weights *to) {
    const size_t bytes = (size_t)rows * (size_t)to->width * GPU_CHUNK;
    const char *from = m->weight->data;
    for (size_t e = 0; e < (size_t)experts; e++)
        for (size_t n = 0; n < (size_t)m->n; n++, from += column)
            gpu_weights_column(to, from, column, n, memory + e * bytes);
    return gpu_keep(b->state, memory, (size_t)experts * bytes, &to->data, b->diag);
}

static gqac_status keep_scales(const target_binding *b, const moe_matrix *m, int64_t experts,
                               char *memory, gpu_weights *to) {
    const int64_t width = to->width;
    const size_t scales = (size_t)(experts * m->blocks * width) * sizeof(float);
    float *number = (float *)(void *)memory;
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
    const size_t column =
        m->bits ? (size_t)m->weight->dims[2] : (size_t)m->k * op_width(m->weight->dtype);
    gpu_operand own = {.value = -1};
    char *memory;
    to->rows = (int32_t)((column + GPU_CHUNK - 1) / GPU_CHUNK);
    to->weights = (gpu_weights){.kernel = kernel_of(m),
                                .k = (int32_t)m->k,
                                .n = (int32_t)m->n,
                                .width = gpu_weights_width((int32_t)m->n),
                                .bits = m->bits,
                                .block = m->bits ? (int32_t)(m->k / m->blocks) : 0,
                                .blocks = (int32_t)m->blocks};
    to->weights.zero_step = to->weights.width;
    GQAC_TRY(gpu_weights_memory(b, &to->weights, column, (size_t)experts, &memory));
    gqac_status status = keep_weights(b, m, experts, column, to->rows, memory, &to->weights);
    if (status == GQAC_OK && m->bits)
        status = keep_scales(b, m, experts, memory, &to->weights);
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
        GQAC_FAIL(b->diag, GQAC_INTERNAL,
                  "the node is not a mixture of experts that target gpu supports");
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
