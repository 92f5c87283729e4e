/* Norms, copies and elementwise ops: kernels/rows.cl has the arithmetic. */
#include "targets/gpu/rows.h"

#include <string.h>

#include "numerics/contract.h"

enum { MOST_ITEMS = 256 /* of a group */ };

/* A result; one that is not used becomes a byte that is not written. */
static gqac_status result_out(gpu_work *w, const gqac_tensor *tensor, gpu_buffer *buffer,
                              int32_t *type) {
    *type = tensor ? (int32_t)gpu_type_of(tensor->dtype) : GPU_ROWS_F32;
    return tensor ? gpu_out_as_is(w, tensor, buffer) : gpu_scratch(w, 1, buffer);
}

/* The items of a group that has at least one item for `units`: a power of 2. */
static int64_t items_for(int64_t units, int64_t least) {
    int64_t items = least;
    while (items < units && items < MOST_ITEMS)
        items *= 2;
    return items;
}

/* An item for each of `width` elements of each of n rows. */
static gpu_grid grid_of(int64_t width, int64_t n) {
    const int64_t items = items_for(width, 64);
    return (gpu_grid){.groups = {(size_t)((width + items - 1) / items), (size_t)n},
                      .items = {(size_t)items, 1}};
}

/* ---- norms ------------------------------------------------------------------- */

/* norm_shape of kernels/rows.cl. */
typedef struct norm_shape {
    int32_t n, skip_rows, centred, items;
    int32_t has_skip, has_bias, has_beta, has_sum, has_mean, has_inv;
    int32_t weight_repeat, weight_count, beta_repeat, beta_count;
    int32_t before_type;
    int32_t x_type, skip_type, y_type, sum_type;
    float epsilon;
} norm_shape;

typedef struct norm_results {
    gqac_tensor y, sum, mean, inv;
} norm_results;

/* Of few rows an item has four elements, so that they arrive early; of many it has up to 16, so
 * that the registers of the device hold more rows. */
static int32_t norm_items(const norm_run *r) {
    enum { FEW = 256, LEAST = 32 };
    return (int32_t)items_for(r->n / (r->rows < FEW ? 4 : 16), LEAST);
}

static gqac_status normalise(gpu_work *w, const target_call *call, const gpu_norm *f, norm_run *r) {
    gpu_buffer x, skip, bias, weight, beta, y, sum, mean, inv;
    const gpu_operand skipped = {.value = r->skip ? f->of.skip : -1};
    int32_t skip_type, y_type, sum_type, moment_type; /* moments are fp32 */
    GQAC_TRY(gpu_in_as_is(w, r->x, &x));
    GQAC_TRY(gpu_operand_as_is(w, call, &skipped, &x, &skip, &skip_type));
    GQAC_TRY(gpu_operand_in(w, call, &f->bias, &x, &bias));
    GQAC_TRY(gpu_operand_in(w, call, &f->weight, &x, &weight));
    GQAC_TRY(gpu_operand_in(w, call, &f->beta, &x, &beta));
    GQAC_TRY(result_out(w, r->y, &y, &y_type));
    GQAC_TRY(result_out(w, r->sum, &sum, &sum_type));
    GQAC_TRY(result_out(w, r->mean, &mean, &moment_type));
    GQAC_TRY(result_out(w, r->inv, &inv, &moment_type));
    const norm_shape shape = {
        .n = (int32_t)r->n,
        .skip_rows = r->skip ? (int32_t)r->skip_rows : 1,
        .centred = r->kind->centred,
        .items = norm_items(r),
        .has_skip = r->skip != NULL,
        .has_bias = r->bias != NULL,
        .has_beta = r->beta != NULL,
        .has_sum = r->sum != NULL,
        .has_mean = r->mean != NULL,
        .has_inv = r->inv != NULL,
        .weight_repeat = (int32_t)r->weight_period.repeat,
        .weight_count = (int32_t)r->weight_period.count,
        .beta_repeat = (int32_t)r->beta_period.repeat,
        .beta_count = (int32_t)r->beta_period.count,
        .before_type = (int32_t)(r->kind->round_before ? gpu_type_of(r->x->dtype) : GPU_ROWS_F32),
        .x_type = (int32_t)gpu_type_of(r->x->dtype),
        .skip_type = skip_type,
        .y_type = y_type,
        .sum_type = sum_type,
        .epsilon = r->epsilon};
    const gpu_grid grid = {.groups = {(size_t)r->rows, 1}, .items = {(size_t)shape.items, 1}};
    const gpu_arg args[] = {GPU_ARG(x.handle),      GPU_ARG(skip.handle), GPU_ARG(bias.handle),
                            GPU_ARG(weight.handle), GPU_ARG(beta.handle), GPU_ARG(y.handle),
                            GPU_ARG(sum.handle),    GPU_ARG(mean.handle), GPU_ARG(inv.handle),
                            GPU_ARG(shape)};
    return gpu_launch(w, GPU_NORM, &grid, GPU_COUNT(args), args);
}

gqac_status gpu_norm_run(target_call *call, const void *record) {
    const gpu_norm *f = record;
    norm_results results;
    norm_run r = {.x = target_value(call, f->of.x),
                  .weight = target_value(call, f->of.weight),
                  .beta = target_value(call, f->of.beta),
                  .bias = target_value(call, f->of.bias),
                  .skip = f->of.form.kind->skip ? target_value(call, f->of.skip) : NULL,
                  .y = &results.y};
    GQAC_TRY(norm_fit(&call->work, &f->of.form, &r));
    results.y = norm_y(&r);
    GQAC_TRY(target_give(call, f->of.y, &results.y));
    GQAC_TRY(target_give_used(call, f->of.sum, norm_sum(&r), &results.sum, &r.sum));
    GQAC_TRY(target_give_used(call, f->of.mean, norm_moment(&r), &results.mean, &r.mean));
    GQAC_TRY(target_give_used(call, f->of.inv, norm_moment(&r), &results.inv, &r.inv));
    GQAC_TRY(gpu_fits(&call->work, r.x));
    if (r.n <= 0 || r.rows <= 0)
        return GQAC_OK;
    gpu_work w = gpu_take(call);
    const gqac_status status = normalise(&w, call, f, &r);
    gpu_give_back(&w);
    return status;
}

/* ---- copies -------------------------------------------------------------------- */

/* box_shape of kernels/rows.cl. */
typedef struct box_shape {
    int32_t rank, n, first_in, first_out;
    int32_t dims[OP_BOX_RANK], in_step[OP_BOX_RANK], out_step[OP_BOX_RANK];
} box_shape;

/* Makes one axis of two that follow each other in memory on both sides. */
static void merge_box(const op_box *box, box_shape *s) {
    int n = 0;
    *s = (box_shape){.rank = 1,
                     .n = (int32_t)op_product(box->dims, 0, box->rank),
                     .first_in = (int32_t)box->first_in,
                     .first_out = (int32_t)box->first_out,
                     .dims = {1}};
    for (int i = 0; i < box->rank; i++) {
        const int64_t in = box->stride_in[i], out = box->stride_out[i], dim = box->dims[i];
        const bool on = s->in_step[n] == in * dim && s->out_step[n] == out * dim;
        if (dim == 1)
            continue;
        n += !on && s->dims[n] > 1;
        s->dims[n] = (int32_t)(on ? s->dims[n] * dim : dim);
        s->in_step[n] = (int32_t)in;
        s->out_step[n] = (int32_t)out;
    }
    s->rank = n + 1;
}

/* Counts in units of `per` elements, if that is possible. */
static bool widen_box(int32_t per, box_shape *s) {
    const int last = s->rank - 1;
    bool fits = s->in_step[last] == 1 && s->out_step[last] == 1 && s->dims[last] % per == 0 &&
                s->first_in % per == 0 && s->first_out % per == 0;
    for (int i = 0; i < last; i++)
        fits = fits && s->in_step[i] % per == 0 && s->out_step[i] % per == 0;
    if (!fits)
        return false;
    s->n /= per;
    s->first_in /= per;
    s->first_out /= per;
    s->dims[last] /= per;
    for (int i = 0; i < last; i++) {
        s->in_step[i] /= per;
        s->out_step[i] /= per;
    }
    return true;
}

/* Elements of 128 bits. */
static int32_t per_unit(gqac_dtype dtype) {
    return (int32_t)(16 / op_width(dtype));
}

gqac_status gpu_copy_box(gpu_work *w, const op_box *box) {
    const bool is_32 = box->in->dtype == GQAC_F32;
    box_shape shape;
    gpu_buffer in, out;
    GQAC_TRY(gpu_fits(w->work, box->in));
    GQAC_TRY(gpu_fits(w->work, box->out));
    merge_box(box, &shape);
    const gpu_kernel_id kernel = widen_box(per_unit(box->in->dtype), &shape) ? GPU_COPY_BOX_128
                                 : is_32                                     ? GPU_COPY_BOX
                                                                             : GPU_COPY_BOX_16;
    const gpu_grid grid = grid_of(shape.n, 1);
    GQAC_TRY(gpu_in_as_is(w, box->in, &in));
    GQAC_TRY(gpu_out_as_is(w, box->out, &out));
    const gpu_arg args[] = {GPU_ARG(in.handle), GPU_ARG(out.handle), GPU_ARG(shape)};
    return gpu_launch(w, kernel, &grid, GPU_COUNT(args), args);
}

/* y [n,width] = the rows of x that are listed. */
static gqac_status copy_rows(gpu_work *w, const gpu_buffer *x, const int32_t *list, int32_t n,
                             int32_t width, const gqac_tensor *y) {
    const int32_t per = per_unit(y->dtype);
    const bool wide = width % per == 0;
    const gpu_kernel_id kernel = wide                   ? GPU_COPY_ROWS_128
                                 : y->dtype == GQAC_F32 ? GPU_COPY_ROWS
                                                        : GPU_COPY_ROWS_16;
    const int32_t units = wide ? width / per : width;
    const gpu_grid grid = grid_of(units, n);
    gpu_buffer rows, out;
    GQAC_TRY(gpu_put(w, list, (size_t)n * sizeof *list, &rows));
    GQAC_TRY(gpu_out_as_is(w, y, &out));
    const gpu_arg args[] = {GPU_ARG(x->handle), GPU_ARG(rows.handle), GPU_ARG(out.handle),
                            GPU_ARG(units), GPU_ARG(n)};
    return gpu_launch(w, kernel, &grid, GPU_COUNT(args), args);
}

gqac_status gpu_take_rows_run(target_call *call, const void *record) {
    const gpu_take_rows *f = record;
    const gqac_tensor *x = target_value(call, f->x), *rows = target_value(call, f->rows);
    op_scratch scratch;
    if (x->rank != 3 || rows->rank != 1 || rows->dtype != GQAC_I64)
        OP_STOP(&call->work, GQAC_INVALID_INPUT, "x must have rank 3 and rows i64 [K]");
    const int64_t most = x->dims[0] * x->dims[1], n = rows->dims[0];
    const int64_t *from = rows->data;
    gqac_tensor y = {.dtype = x->dtype, .rank = 3, .dims = {1, n, x->dims[2]}};
    for (int64_t i = 0; i < n; i++)
        if (from[i] < 0 || from[i] >= most)
            OP_STOP(&call->work, GQAC_OUT_OF_RANGE, "row %lld is out of range: x has %lld rows",
                    (long long)from[i], (long long)most);
    GQAC_TRY(target_give(call, f->y, &y));
    GQAC_TRY(gpu_fits(&call->work, x));
    GQAC_TRY(gpu_fits(&call->work, &y));
    if (gqac_tensor_count(&y) == 0)
        return GQAC_OK;
    GQAC_TRY(op_work_scratch_one(&call->work, (size_t)n, sizeof(int32_t), &scratch));
    int32_t *list = (int32_t *)(void *)scratch.base;
    for (int64_t i = 0; i < n; i++)
        list[i] = (int32_t)from[i];
    gpu_buffer in;
    gpu_work w = gpu_take(call);
    gqac_status status = gpu_in_as_is(&w, x, &in);
    if (status == GQAC_OK)
        status = copy_rows(&w, &in, list, (int32_t)n, (int32_t)x->dims[2], &y);
    gpu_give_back(&w);
    op_scratch_close(&scratch);
    return status;
}

/* Sets y to the type and shape of gathered entries, [indices..., dims of an entry...]. */
static gqac_status open_gather(target_call *call, int value, const gqac_tensor *indices,
                               gqac_dtype dtype, int rank, const int64_t *entry, gqac_tensor *y) {
    *y = *indices;
    if (!OP_IN(OP_INDICES, indices->dtype))
        OP_STOP(&call->work, GQAC_INVALID_INPUT, "indices must be i32 or i64");
    if (indices->rank + rank > GQAC_MAX_RANK)
        OP_STOP(&call->work, GQAC_INVALID_INPUT, "the result has rank %d, the maximum is %d",
                indices->rank + rank, GQAC_MAX_RANK);
    y->dtype = dtype;
    for (int i = 0; i < rank; i++)
        y->dims[y->rank++] = entry[i];
    GQAC_TRY(target_give(call, value, y));
    return gpu_fits(&call->work, y);
}

/* The entries that indices name; -1: an index is out of range, and *outside is the first of these.
 */
static gqac_status list_entries(const target_call *call, const gqac_tensor *indices,
                                int64_t entries, op_scratch *scratch, const int32_t **entry,
                                int64_t *outside) {
    const int64_t n = gqac_tensor_count(indices);
    GQAC_TRY(op_work_scratch_one(&call->work, (size_t)n, sizeof **entry, scratch));
    int32_t *list = (int32_t *)(void *)scratch->base;
    *outside = -1;
    for (int64_t i = n - 1; i >= 0; i--) {
        const int64_t index = op_get_i64(indices, i), at = index < 0 ? index + entries : index;
        list[i] = at >= 0 && at < entries ? (int32_t)at : -1;
        *outside = list[i] < 0 ? i : *outside;
    }
    *entry = list;
    return GQAC_OK;
}

static gqac_status gather(target_call *call, const gpu_gather *f, const gqac_tensor *indices,
                          const int32_t *list, int64_t outside, const gqac_tensor *y) {
    const gqac_tensor *data = target_value(call, f->data.value);
    if (outside >= 0)
        OP_STOP(&call->work, GQAC_OUT_OF_RANGE,
                "index %lld is out of range for axis 0 of length %lld",
                (long long)op_get_i64(indices, outside), (long long)data->dims[0]);
    if (gqac_tensor_count(y) == 0)
        return GQAC_OK;
    gpu_work w = gpu_take(call);
    const gqac_status status =
        copy_rows(&w, &f->data.kept, list, (int32_t)gqac_tensor_count(indices),
                  (int32_t)op_product(data->dims, 1, data->rank), y);
    gpu_give_back(&w);
    return status;
}

gqac_status gpu_gather_run(target_call *call, const void *record) {
    const gpu_gather *f = record;
    const gqac_tensor *data = target_value(call, f->data.value),
                      *indices = target_value(call, f->indices);
    const int32_t *list;
    int64_t outside;
    gqac_tensor y;
    op_scratch scratch;
    GQAC_TRY(open_gather(call, f->y, indices, data->dtype, data->rank - 1, data->dims + 1, &y));
    GQAC_TRY(list_entries(call, indices, data->dims[0], &scratch, &list, &outside));
    const gqac_status status = gather(call, f, indices, list, outside, &y);
    op_scratch_close(&scratch);
    return status;
}

/* codes_shape of kernels/rows.cl. */
typedef struct codes_shape {
    int64_t row_bits, zero_bits;
    int32_t n, inner, codes, blocks;
    int32_t block, bits, has_sign;
    int32_t has_zero, zero, type;
} codes_shape;
_Static_assert(sizeof(codes_shape) == 56, "the kernel has no padding either");

static gqac_status gather_codes(gpu_work *w, const gpu_gather_codes *f, const int32_t *list,
                                const codes_shape *shape, const gqac_tensor *y) {
    const gpu_grid grid = grid_of(shape->codes, (int64_t)shape->n * shape->inner);
    const gpu_buffer *zeros = f->zeros.kept.handle ? &f->zeros.kept : &f->data.kept;
    gpu_buffer entries, out;
    GQAC_TRY(gpu_put(w, list, (size_t)shape->n * sizeof *list, &entries));
    GQAC_TRY(gpu_out_as_is(w, y, &out));
    const gpu_arg args[] = {GPU_ARG(f->data.kept.handle), GPU_ARG(f->scales.kept.handle),
                            GPU_ARG(zeros->handle),       GPU_ARG(entries.handle),
                            GPU_ARG(out.handle),          GPU_ARG(*shape)};
    return gpu_launch(w, GPU_GATHER_CODES, &grid, GPU_COUNT(args), args);
}

gqac_status gpu_gather_codes_run(target_call *call, const void *record) {
    const gpu_gather_codes *f = record;
    const gqac_tensor *data = target_value(call, f->data.value),
                      *indices = target_value(call, f->indices);
    const gqac_dtype dtype = target_value(call, f->scales.value)->dtype;
    const bool bytes = data->dtype == GQAC_U8;
    const int32_t *list;
    int64_t outside; /* such entries are zeros */
    gqac_tensor y;
    op_scratch scratch;
    int64_t entry[GQAC_MAX_RANK];
    memcpy(entry, data->dims + 1, (size_t)(data->rank - 1) * sizeof *entry);
    entry[data->rank - 2] *= bytes ? 8 / f->bits : 1;
    GQAC_TRY(open_gather(call, f->y, indices, dtype, data->rank - 1, entry, &y));
    if (gqac_tensor_count(&y) == 0)
        return GQAC_OK;
    const int64_t codes = entry[data->rank - 2], blocks = (codes + f->block - 1) / f->block;
    const codes_shape shape = {.row_bits = codes * f->bits,
                               .zero_bits =
                                   bytes ? (blocks * f->bits + 7) / 8 * 8 : blocks * f->bits,
                               .n = (int32_t)gqac_tensor_count(indices),
                               .inner = (int32_t)op_product(data->dims, 1, data->rank - 1),
                               .codes = (int32_t)codes,
                               .blocks = (int32_t)blocks,
                               .block = f->block,
                               .bits = f->bits,
                               .has_sign = data->dtype == GQAC_I4,
                               .has_zero = f->zeros.value >= 0,
                               .zero = bytes ? 1 << (f->bits - 1) : 0,
                               .type = (int32_t)gpu_type_of(dtype)};
    GQAC_TRY(list_entries(call, indices, data->dims[0], &scratch, &list, &outside));
    gpu_work w = gpu_take(call);
    const gqac_status status = gather_codes(&w, f, list, &shape, &y);
    gpu_give_back(&w);
    op_scratch_close(&scratch);
    return status;
}

/* ---- elementwise --------------------------------------------------------------- */

static gqac_status apply(gpu_work *w, const gpu_unary *f, const gqac_tensor *x, gqac_tensor *y) {
    const int32_t n = (int32_t)gqac_tensor_count(y);
    int32_t step;
    const gpu_grid grid = gpu_element_grid(n, 4, &step);
    gpu_buffer in, out;
    const int32_t x_type = (int32_t)gpu_type_of(x->dtype), type = (int32_t)gpu_type_of(y->dtype);
    GQAC_TRY(gpu_in_as_is(w, x, &in));
    GQAC_TRY(gpu_out_as_is(w, y, &out));
    const gpu_arg args[] = {GPU_ARG(in.handle), GPU_ARG(out.handle), GPU_ARG(n),   GPU_ARG(step),
                            GPU_ARG(f->alpha),  GPU_ARG(x_type),     GPU_ARG(type)};
    return gpu_launch(w, f->kernel, &grid, GPU_COUNT(args), args);
}

gqac_status gpu_unary_run(target_call *call, const void *record) {
    const gpu_unary *f = record;
    const gqac_tensor *x = target_value(call, f->x);
    gqac_tensor y = *x;
    y.dtype = f->dtype;
    GQAC_TRY(target_give(call, f->y, &y));
    GQAC_TRY(gpu_fits(&call->work, &y));
    if (gqac_tensor_count(&y) == 0)
        return GQAC_OK;
    gpu_work w = gpu_take(call);
    const gqac_status status = apply(&w, f, x, &y);
    gpu_give_back(&w);
    return status;
}

/* binary_shape of kernels/elementwise.cl. */
typedef struct binary_shape {
    int32_t rank, n, unit, step;
    int32_t a_type, b_type, type;
    int32_t a_last, b_last;
    int32_t dims[GQAC_MAX_RANK], a_step[GQAC_MAX_RANK], b_step[GQAC_MAX_RANK];
} binary_shape;

/* Elements from one index of each axis of y to the next. */
static void set_steps(const gqac_tensor *x, const gqac_tensor *y, int32_t *steps) {
    int64_t step = 1;
    for (int axis = y->rank - 1; axis >= 0; axis--) {
        const int own = axis - (y->rank - x->rank);
        const int64_t dim = own >= 0 ? x->dims[own] : 1;
        steps[axis] = dim == 1 ? 0 : (int32_t)step;
        step *= dim;
    }
}

/* Merges two axes where both operands are read on from one to the next; drops axes of one
 * element. */
static void merge_axes(binary_shape *s) {
    int n = 0;
    for (int i = 1; i < s->rank; i++) {
        const bool on =
            s->a_step[n] == s->a_step[i] * s->dims[i] && s->b_step[n] == s->b_step[i] * s->dims[i];
        if (s->dims[i] == 1)
            continue;
        if (s->dims[n] > 1 && !on)
            n++;
        else if (s->dims[n] > 1)
            s->dims[i] *= s->dims[n];
        s->dims[n] = s->dims[i];
        s->a_step[n] = s->a_step[i];
        s->b_step[n] = s->b_step[i];
    }
    s->rank = n + 1;
}

static gqac_status combine(gpu_work *w, const target_call *call, const gpu_binary *f,
                           gqac_tensor *y) {
    binary_shape shape = {.rank = y->rank,
                          .n = (int32_t)gqac_tensor_count(y),
                          .type = (int32_t)gpu_type_of(y->dtype),
                          .dims = {1}};
    const gpu_buffer none = {0}; /* both are present */
    gpu_buffer a, b, out;
    for (int i = 0; i < y->rank; i++)
        shape.dims[i] = (int32_t)y->dims[i];
    set_steps(target_value(call, f->a.value), y, shape.a_step);
    set_steps(target_value(call, f->b.value), y, shape.b_step);
    merge_axes(&shape);
    const int last = shape.rank - 1;
    shape.a_last = shape.a_step[last];
    shape.b_last = shape.b_step[last];
    shape.unit = last == 0 || shape.dims[last] % 4 == 0 ? 4 : 1;
    const gpu_grid grid = gpu_element_grid(shape.n, shape.unit, &shape.step);
    GQAC_TRY(gpu_operand_as_is(w, call, &f->a, &none, &a, &shape.a_type));
    GQAC_TRY(gpu_operand_as_is(w, call, &f->b, &none, &b, &shape.b_type));
    GQAC_TRY(gpu_out_as_is(w, y, &out));
    const gpu_arg args[] = {GPU_ARG(a.handle), GPU_ARG(b.handle), GPU_ARG(out.handle),
                            GPU_ARG(shape), GPU_ARG(f->alpha) /* of a gate */};
    return gpu_launch(w, f->kernel, &grid, f->gate ? GPU_COUNT(args) : GPU_COUNT(args) - 1, args);
}

gqac_status gpu_binary_run(target_call *call, const void *record) {
    const gpu_binary *f = record;
    gqac_tensor y = {.dtype = target_value(call, f->a.value)->dtype};
    GQAC_TRY(op_work_broadcast(&call->work, target_value(call, f->a.value),
                               target_value(call, f->b.value), &y.rank, y.dims));
    GQAC_TRY(target_give(call, f->y, &y));
    GQAC_TRY(gpu_fits(&call->work, &y));
    if (gqac_tensor_count(&y) == 0)
        return GQAC_OK;
    gpu_work w = gpu_take(call);
    const gqac_status status = combine(&w, call, f, &y);
    gpu_give_back(&w);
    return status;
}
