/* Softmax, ArgMax, ArgMin, TopK, and the likeliest ids of logits: kernels/order.cl has the
 * arithmetic. */
#include "targets/gpu/order.h"

#include "ops/lengths.h"
#include "targets/gpu/mirror.h"

/* Rows along an axis. */
typedef struct axis_rows {
    int axis;
    int32_t n, inner;
    int64_t rows;
} axis_rows;

static gqac_status find_rows(const op_work *work, const gqac_tensor *x, int64_t axis,
                             axis_rows *r) {
    GQAC_TRY(op_floats(work, x, "x", x->rank));
    if (axis < -x->rank || axis >= x->rank)
        OP_STOP(work, GQAC_INVALID_INPUT, "axis %lld is out of range for rank %d", (long long)axis,
                x->rank);
    if (gqac_tensor_count(x) > INT32_MAX)
        OP_STOP(work, GQAC_LIMIT, "%lld elements: a kernel of target gpu has %d at most",
                (long long)gqac_tensor_count(x), INT32_MAX);
    r->axis = (int)(axis < 0 ? axis + x->rank : axis);
    r->n = (int32_t)x->dims[r->axis];
    r->inner = (int32_t)op_product(x->dims, r->axis + 1, x->rank);
    r->rows = op_product(x->dims, 0, r->axis) * r->inner;
    return GQAC_OK;
}

static gpu_grid grid_of(const axis_rows *r) {
    return (gpu_grid){.groups = {(size_t)r->rows, 1}, .items = {GPU_ORDER_ITEMS, 1}};
}

static gqac_status softmax(gpu_work *w, const axis_rows *r, const gqac_tensor *x, gqac_tensor *y) {
    const gpu_grid grid = grid_of(r);
    gpu_buffer in, out;
    GQAC_TRY(gpu_in(w, x, &in));
    GQAC_TRY(gpu_out(w, y, &out));
    const gpu_arg args[] = {GPU_ARG(in.handle), GPU_ARG(out.handle), GPU_ARG(r->n),
                            GPU_ARG(r->inner)};
    GQAC_TRY(gpu_launch(w, GPU_SOFTMAX, &grid, GPU_COUNT(args), args));
    return gpu_done(w, &out, y);
}

gqac_status gpu_softmax_run(target_call *call, const void *record) {
    const gpu_softmax *f = record;
    const gqac_tensor *x = target_value(call, f->x);
    gqac_tensor y = *x;
    axis_rows r;
    GQAC_TRY(find_rows(&call->work, x, f->axis, &r));
    GQAC_TRY(target_give(call, f->y, &y));
    if (gqac_tensor_count(&y) == 0)
        return GQAC_OK;
    gpu_work w = gpu_take(call);
    const gqac_status status = softmax(&w, &r, x, &y);
    gpu_give_back(&w);
    return status;
}

/* ---- indices ------------------------------------------------------------------- */

static gqac_status search(gpu_work *w, const gpu_arg_search *f, const axis_rows *r,
                          const gqac_tensor *x, const gqac_tensor *y) {
    const gpu_grid grid = grid_of(r);
    const int32_t least = f->least, last = f->last;
    gpu_buffer in, out;
    GQAC_TRY(gpu_in(w, x, &in));
    GQAC_TRY(gpu_scratch(w, gqac_tensor_bytes(y), &out));
    const gpu_arg args[] = {GPU_ARG(in.handle), GPU_ARG(out.handle), GPU_ARG(r->n),
                            GPU_ARG(r->inner),  GPU_ARG(least),      GPU_ARG(last)};
    GQAC_TRY(gpu_launch(w, GPU_ARG_ROWS, &grid, GPU_COUNT(args), args));
    return gpu_download(w->state, &out, y->data, gqac_tensor_bytes(y), w->work->diag);
}

gqac_status gpu_arg_run(target_call *call, const void *record) {
    const gpu_arg_search *f = record;
    const gqac_tensor *x = target_value(call, f->x);
    gqac_tensor y = {.dtype = GQAC_I64};
    axis_rows r;
    GQAC_TRY(find_rows(&call->work, x, f->axis, &r));
    for (int i = 0; i < x->rank; i++)
        if (i != r.axis || f->keep)
            y.dims[y.rank++] = i == r.axis ? 1 : x->dims[i];
    GQAC_TRY(target_give(call, f->y, &y));
    if (r.rows == 0)
        return GQAC_OK;
    if (r.n == 0)
        OP_STOP(&call->work, GQAC_INVALID_INPUT, "axis %d has no elements", r.axis);
    gpu_work w = gpu_take(call);
    const gqac_status status = search(&w, f, &r, x, &y);
    gpu_give_back(&w);
    return status;
}

/* top_shape of kernels/order.cl. */
typedef struct top_shape {
    int32_t n, inner, k, least;
} top_shape;

static gqac_status select(gpu_work *w, const top_shape *shape, const axis_rows *r,
                          const gqac_tensor *x, const gqac_tensor *values,
                          const gqac_tensor *indices) {
    const gpu_kernel_id kernel = x->dtype == GQAC_F32   ? GPU_TOP
                                 : x->dtype == GQAC_F16 ? GPU_TOP_F16
                                                        : GPU_TOP_BF16;
    const gpu_grid grid = grid_of(r);
    gpu_buffer in, out, at;
    GQAC_TRY(gpu_in_as_is(w, x, &in));
    GQAC_TRY(gpu_scratch(w, gqac_tensor_bytes(indices), &at));
    GQAC_TRY(gpu_out_as_is(w, values, &out));
    const gpu_arg args[] = {GPU_ARG(in.handle), GPU_ARG(out.handle), GPU_ARG(at.handle),
                            GPU_ARG(*shape)};
    GQAC_TRY(gpu_launch(w, kernel, &grid, GPU_COUNT(args), args));
    return gpu_download(w->state, &at, indices->data, gqac_tensor_bytes(indices), w->work->diag);
}

gqac_status gpu_top_run(target_call *call, const void *record) {
    const gpu_top *f = record;
    const gqac_tensor *x = target_value(call, f->x), *count = target_value(call, f->k);
    axis_rows r;
    GQAC_TRY(find_rows(&call->work, x, f->axis, &r));
    const int64_t k = *(const int64_t *)count->data; /* constant, and matched */
    if (k > r.n)
        OP_STOP(&call->work, GQAC_OUT_OF_RANGE, "k = %lld is out of range for %d elements",
                (long long)k, r.n);
    gqac_tensor values = *x;
    values.dims[r.axis] = k;
    gqac_tensor indices = values;
    indices.dtype = GQAC_I64;
    GQAC_TRY(target_give(call, f->values, &values));
    GQAC_TRY(target_give(call, f->indices, &indices));
    if (gqac_tensor_count(&values) == 0)
        return GQAC_OK;
    const top_shape shape = {.n = r.n, .inner = r.inner, .k = (int32_t)k, .least = f->least};
    gpu_work w = gpu_take(call);
    const gqac_status status = select(&w, &shape, &r, x, &values, &indices);
    gpu_give_back(&w);
    return status;
}

/* ---- the likeliest ids ----------------------------------------------------------- */

gqac_status gpu_top_ids(gpu_work *w, const gqac_tensor *logits, int64_t n, gqac_candidate *ids) {
    axis_rows r;
    gpu_buffer in, parts, out;
    int64_t at;
    GQAC_TRY(find_rows(w->work, logits, -1, &r));
    const int64_t n_parts = (r.n + GPU_ORDER_PART - 1) / GPU_ORDER_PART;
    const top_shape shape = {.n = r.n, .inner = 1, .k = (int32_t)n, .least = 0};
    const int32_t type = (int32_t)gpu_type_of(logits->dtype);
    const gpu_grid grid = grid_of(&r);
    const gpu_grid of_parts = {.groups = {(size_t)n_parts, (size_t)r.rows},
                               .items = {GPU_ORDER_ITEMS, 1}};
    GQAC_TRY(gpu_in_as_is(w, logits, &in));
    GQAC_TRY(gpu_scratch(w, (size_t)(r.rows * n_parts * n) * 2 * sizeof(int32_t), &parts));
    GQAC_TRY(gpu_new_rows_take_top(w, (size_t)(r.rows * n), ids, &out, &at));
    const gpu_arg searched[] = {GPU_ARG(in.handle), GPU_ARG(parts.handle), GPU_ARG(shape),
                                GPU_ARG(type)};
    const gpu_arg args[] = {GPU_ARG(in.handle), GPU_ARG(parts.handle), GPU_ARG(out.handle),
                            GPU_ARG(at),        GPU_ARG(shape),        GPU_ARG(type)};
    GQAC_TRY(gpu_launch(w, n == 1 ? GPU_BEST_OF_PARTS : GPU_TOP_OF_PARTS, &of_parts,
                        GPU_COUNT(searched), searched));
    return gpu_launch(w, n == 1 ? GPU_BEST_ID : GPU_TOP_IDS, &grid, GPU_COUNT(args), args);
}
