/* Products with constant weights: kernels/products.cl has the arithmetic. */
#include "targets/gpu/products.h"

#include "base/check.h"

/* What both products have: rows of x, and y. */
typedef struct rows {
    const gqac_tensor *x;
    gqac_tensor y;
    int32_t m;
    gpu_buffer in, out;
} rows;

/* Checks x [.., k], and sets y [.., n]. */
static gqac_status open_rows(target_call *call, int x, int y, int32_t k, int32_t n, rows *r) {
    r->x = target_value(call, x);
    const int rank = r->x->rank;
    if (!OP_IN(OP_FLOATS, r->x->dtype) || rank < 2 || r->x->dims[rank - 1] != k)
        OP_STOP(&call->work, GQAC_INVALID_INPUT, "the last axis of A is not %d", k);
    r->y = *r->x;
    r->y.dims[rank - 1] = n;
    const int64_t m = op_product(r->x->dims, 0, rank - 1);
    if (m > INT32_MAX)
        OP_STOP(&call->work, GQAC_INVALID_INPUT, "%lld rows", (long long)m);
    r->m = (int32_t)m;
    return target_give(call, y, &r->y);
}

static gqac_status move_in(gpu_work *w, rows *r) {
    GQAC_TRY(gpu_in(w, r->x, &r->in));
    return gpu_out(w, &r->y, &r->out);
}

/* Items for `columns` columns and `m` rows, `height` rows an item. */
static gpu_grid grid_of(int32_t columns, int32_t m, int32_t height) {
    enum { ITEMS = 64 };
    return (gpu_grid){.groups = {(size_t)(columns + ITEMS - 1) / ITEMS,
                                 (size_t)(m + height - 1) / (size_t)height},
                      .items = {ITEMS, 1}};
}

/* ---- MatMul ------------------------------------------------------------------ */

static gqac_status product(gpu_work *w, const gpu_product *p, rows *r) {
    const gpu_grid grid = grid_of(p->n, r->m, GPU_PRODUCT_ROWS);
    GQAC_TRY(move_in(w, r));
    const gpu_arg args[] = {GPU_ARG(r->in.handle),  GPU_ARG(p->weights.handle),
                            GPU_ARG(r->out.handle), GPU_ARG(r->m),
                            GPU_ARG(p->k),          GPU_ARG(p->n)};
    GQAC_TRY(gpu_launch(w, p->kernel, &grid, GPU_COUNT(args), args));
    return gpu_done(w, &r->out, &r->y);
}

gqac_status gpu_product_run(target_call *call, const void *record) {
    const gpu_product *p = record;
    rows r = {0};
    GQAC_TRY(open_rows(call, p->x, p->y, p->k, p->n, &r));
    if (r.m == 0)
        return GQAC_OK;
    gpu_work w = gpu_take(call);
    const gqac_status status = product(&w, p, &r);
    gpu_give_back(&w);
    return status;
}

/* ---- MatMulNBits -------------------------------------------------------------- */

static gqac_status product_fp32(gpu_work *w, const gpu_nbits *p, const rows *r) {
    const gpu_grid grid = grid_of(p->n, r->m, GPU_PRODUCT_ROWS);
    const gpu_arg args[] = {GPU_ARG(r->in.handle),
                            GPU_ARG(p->words.handle),
                            GPU_ARG(p->scales.handle),
                            GPU_ARG(p->zeros.handle),
                            GPU_ARG(r->out.handle),
                            GPU_ARG(r->m),
                            GPU_ARG(p->k),
                            GPU_ARG(p->n),
                            GPU_ARG(p->bits),
                            GPU_ARG(p->block)};
    return gpu_launch(w, GPU_NBITS_FP32, &grid, GPU_COUNT(args), args);
}

static gqac_status product_int8(gpu_work *w, const gpu_nbits *p, const rows *r) {
    const gpu_grid blocks = grid_of(p->blocks, r->m, 1), grid = grid_of(p->n, r->m, 1);
    gpu_buffer qa, sa;
    size_t codes;
    if (!gqac_mul_size((size_t)r->m, (size_t)p->blocks * (size_t)p->block, &codes))
        return gqac_diag_oom(w->work->diag, "int8 activations");
    GQAC_TRY(gpu_scratch(w, codes, &qa));
    GQAC_TRY(gpu_scratch(w, codes / (size_t)p->block * sizeof(float), &sa));
    const gpu_arg quantise[] = {GPU_ARG(r->in.handle), GPU_ARG(qa.handle), GPU_ARG(sa.handle),
                                GPU_ARG(r->m),         GPU_ARG(p->k),      GPU_ARG(p->blocks),
                                GPU_ARG(p->block)};
    GQAC_TRY(gpu_launch(w, GPU_NBITS_QUANTISE, &blocks, GPU_COUNT(quantise), quantise));
    const gpu_arg args[] = {GPU_ARG(qa.handle),
                            GPU_ARG(sa.handle),
                            GPU_ARG(p->words.handle),
                            GPU_ARG(p->scales.handle),
                            GPU_ARG(p->zeros.handle),
                            GPU_ARG(r->out.handle),
                            GPU_ARG(r->m),
                            GPU_ARG(p->k),
                            GPU_ARG(p->n),
                            GPU_ARG(p->bits),
                            GPU_ARG(p->block),
                            GPU_ARG(p->blocks)};
    return gpu_launch(w, GPU_NBITS_INT8, &grid, GPU_COUNT(args), args);
}

static gqac_status product_nbits(gpu_work *w, const target_call *call, const gpu_nbits *p,
                                 rows *r) {
    gpu_buffer to_add = {0};
    GQAC_TRY(move_in(w, r));
    GQAC_TRY(p->int8 ? product_int8(w, p, r) : product_fp32(w, p, r));
    if (p->bias.value >= 0) {
        const gpu_grid grid = grid_of(p->n, r->m, 1);
        GQAC_TRY(gpu_operand_in(w, call, &p->bias, &to_add));
        const gpu_arg args[] = {GPU_ARG(r->out.handle), GPU_ARG(to_add.handle), GPU_ARG(r->m),
                                GPU_ARG(p->n)};
        GQAC_TRY(gpu_launch(w, GPU_ADD_BIAS, &grid, GPU_COUNT(args), args));
    }
    return gpu_done(w, &r->out, &r->y);
}

gqac_status gpu_nbits_run(target_call *call, const void *record) {
    const gpu_nbits *p = record;
    const gqac_tensor *bias = target_value(call, p->bias.value);
    rows r = {0};
    GQAC_TRY(open_rows(call, p->x, p->y, p->k, p->n, &r));
    if (bias && (!OP_IN(OP_FLOATS, bias->dtype) || gqac_tensor_count(bias) != p->n))
        OP_STOP(&call->work, GQAC_INVALID_INPUT, "bias has %lld elements, expected %d",
                (long long)gqac_tensor_count(bias), p->n);
    if (r.m == 0)
        return GQAC_OK;
    gpu_work w = gpu_take(call);
    const gqac_status status = product_nbits(&w, call, p, &r);
    gpu_give_back(&w);
    return status;
}
