/* Products with constant weights: kernels/products.cl and nbits.cl have the arithmetic. */
#include "targets/gpu/products.h"

#include "base/check.h"
#include "numerics/contract.h"
#include "targets/gpu/tensor.h"

/* Constants of the kernels. */
enum {
    FEW_ROWS = 16, /* more are computed in tiles */
    TILE_ROWS = 64,
    TILE_COLUMNS = 128,
    TILE_ITEMS = 128,
    INT8_ITEMS = 256,
    ENOUGH = 192,          /* tiles: with fewer each piece is one */
    MOST_TOTALS = 64 << 20 /* bytes of sums that are beside the result at the same time */
};

typedef struct job {
    const gpu_product *p;
    const gqac_tensor *x;
    gqac_tensor y;
    int32_t pieces;
    gpu_product_shape shape;
    gpu_buffer in, bias, out;
    gpu_buffer qa, sa, sq; /* int8 activations, their scales and sums */
} job;

/* Checks x [.., k], and sets y [.., n]. */
static gqac_status open_rows(target_call *call, job *j) {
    const gpu_weights *w = &j->p->weights;
    j->x = target_value(call, j->p->x);
    const int rank = j->x->rank;
    if (!OP_IN(OP_FLOATS, j->x->dtype) || rank < 2 || j->x->dims[rank - 1] != w->k)
        OP_STOP(&call->work, GQAC_INVALID_INPUT, "the last axis of A is not %d", w->k);
    j->y = *j->x;
    j->y.dims[rank - 1] = w->n;
    const int64_t m = op_product(j->x->dims, 0, rank - 1);
    if (m > INT32_MAX)
        OP_STOP(&call->work, GQAC_INVALID_INPUT, "%lld rows are too many for target gpu",
                (long long)m);
    j->shape.m = (int32_t)m;
    return target_give(call, j->p->y, &j->y);
}

/* A block that is longer than a piece is one. */
static void set_shape(job *j) {
    const gpu_weights *w = &j->p->weights;
    const bool longer = j->p->int8 && w->block > GQAC_K_PIECE;
    j->pieces = (int32_t)gpu_parts(w->k, longer ? w->block : GQAC_K_PIECE);
    j->shape = gpu_product_shape_of(w, j->shape.m, j->pieces);
    j->shape.from_zero = longer && w->k > GQAC_K_PIECE;
    j->shape.y_type = (int32_t)gpu_type_of(j->y.dtype);
}

/* `totals` is an argument of the kernels of tiles only; NULL for others. */
static gqac_status launch(gpu_work *w, const job *j, int form, const gpu_grid *grid,
                          const gpu_buffer *totals) {
    const gpu_weights *p = &j->p->weights;
    const gpu_buffer *scales = p->scales.handle ? &p->scales : &p->data; /* absent: not read */
    const gpu_buffer *zeros = p->zeros.handle ? &p->zeros : &p->data;
    gpu_arg args[10];
    int n = 0;
    if (j->p->int8) {
        args[n++] = GPU_ARG(j->qa.handle);
        args[n++] = GPU_ARG(j->sa.handle);
        args[n++] = GPU_ARG(j->sq.handle);
    } else
        args[n++] = GPU_ARG(j->in.handle);
    args[n++] = GPU_ARG(p->data.handle);
    args[n++] = GPU_ARG(scales->handle);
    args[n++] = GPU_ARG(zeros->handle);
    args[n++] = GPU_ARG(j->bias.handle);
    args[n++] = GPU_ARG(j->out.handle);
    if (totals)
        args[n++] = GPU_ARG(totals->handle);
    args[n++] = GPU_ARG(j->shape);
    return gpu_launch(w, (gpu_kernel_id)((int)p->kernel + form), grid, n, args);
}

/* Columns of a group of int8, as a power of two: many, unless the device would have few groups. */
static int32_t int8_columns(const gpu_product_shape *s, int32_t rows) {
    enum { MANY = 512, SOME = 256 };
    const int64_t columns = (int64_t)s->n * (int64_t)gpu_parts(s->m, rows);
    return columns / 32 >= MANY ? 5 : columns / 16 >= SOME ? 4 : 3;
}

static gqac_status few_rows(gpu_work *w, job *j) {
    const int form = j->shape.m == 1 ? GPU_FEW_1 : GPU_FEW_4, rows = form == GPU_FEW_1 ? 1 : 4;
    gpu_grid grid = {
        .groups = {gpu_parts(j->shape.m, rows), gpu_parts(j->shape.n, GPU_FEW_COLUMNS)},
        .items = {(size_t)(j->shape.teams * GPU_FEW_COLUMNS), 1}};
    if (j->p->int8) {
        j->shape.columns = int8_columns(&j->shape, rows);
        grid.groups[1] = gpu_parts(j->shape.n, 1 << j->shape.columns);
        grid.items[0] = INT8_ITEMS;
    }
    return launch(w, j, form, &grid, NULL);
}

gqac_status gpu_add_pieces(gpu_work *w, const gpu_product_shape *shape, int32_t pieces,
                           const gpu_buffer *parts, const gpu_buffer *bias, const gpu_buffer *y) {
    enum { ITEMS = 64, COLUMNS = 4 * ITEMS };
    const gpu_grid grid = {.groups = {gpu_parts(shape->n, COLUMNS), (size_t)shape->m},
                           .items = {ITEMS, 1}};
    const gpu_arg args[] = {GPU_ARG(parts->handle), GPU_ARG(bias->handle), GPU_ARG(y->handle),
                            GPU_ARG(pieces), GPU_ARG(*shape)};
    return gpu_launch(w, GPU_PRODUCT_ADD, &grid, GPU_COUNT(args), args);
}

/* Takes memory for sums of so many rows and pieces. */
static gqac_status take_totals(gpu_work *w, const job *j, int32_t rows, int32_t pieces,
                               gpu_buffer *totals) {
    size_t bytes;
    if (!gqac_mul_size((size_t)rows * sizeof(float), (size_t)j->shape.n, &bytes) ||
        !gqac_mul_size(bytes, (size_t)pieces, &bytes))
        return gqac_diag_oom(w->work->diag, "pieces of a product");
    return gpu_scratch(w, bytes, totals);
}

/* Each group adds all pieces of its tile: in the result if that is fp32, else in a buffer beside
 * it, which is for a limited number of rows at a time. */
static gqac_status whole_tiles(gpu_work *w, job *j, gpu_grid grid) {
    const size_t row = (size_t)j->shape.n * sizeof(float);
    const int32_t tiles_of_turn = (int32_t)(MOST_TOTALS / TILE_ROWS / row) + 1;
    gpu_buffer totals = j->out;
    int32_t rows = j->shape.m;
    if (j->pieces > 1 && j->shape.y_type != GPU_ROWS_F32) {
        rows = rows / TILE_ROWS < tiles_of_turn ? rows : tiles_of_turn * TILE_ROWS;
        GQAC_TRY(take_totals(w, j, rows, 1, &totals));
    }
    for (int32_t i = 0; i < (int32_t)gpu_parts(j->shape.m, rows); i++) {
        j->shape.from = i * rows;
        const int32_t left = j->shape.m - j->shape.from;
        grid.groups[1] = gpu_parts(left < rows ? left : rows, TILE_ROWS);
        GQAC_TRY(launch(w, j, GPU_TILE, &grid, &totals));
    }
    return GQAC_OK;
}

/* Where the device would have too few groups, each piece of k has groups of its own, and sums of
 * its own, which are added later. */
static gqac_status tiles(gpu_work *w, job *j) {
    gpu_grid grid = {
        .groups = {gpu_parts(j->shape.n, TILE_COLUMNS), gpu_parts(j->shape.m, TILE_ROWS)},
        .items = {j->p->int8 ? INT8_ITEMS : TILE_ITEMS, 1}};
    gpu_buffer totals;
    j->shape.split = j->pieces > 1 && grid.groups[0] * grid.groups[1] < ENOUGH;
    if (!j->shape.split)
        return whole_tiles(w, j, grid);
    GQAC_TRY(take_totals(w, j, j->shape.m, j->pieces, &totals));
    grid.groups[1] *= (size_t)j->pieces;
    GQAC_TRY(launch(w, j, GPU_TILE, &grid, &totals));
    return gpu_add_pieces(w, &j->shape, j->pieces, &totals, &j->bias, &j->out);
}

static gqac_status quantise(gpu_work *w, job *j) {
    enum { ITEMS = 64, TOGETHER = ITEMS * 16 };
    const gpu_weights *p = &j->p->weights;
    const int64_t length = (int64_t)p->blocks * p->block;
    const int32_t span = p->block > TOGETHER ? p->block : TOGETHER;
    const gpu_grid grid = {.groups = {gpu_parts(length, span), (size_t)j->shape.m},
                           .items = {ITEMS, 1}};
    const size_t blocks = (size_t)j->shape.m * (size_t)p->blocks;
    size_t bytes;
    if (!gqac_mul_size(blocks, (size_t)p->block, &bytes))
        return gqac_diag_oom(w->work->diag, "int8 activations");
    GQAC_TRY(gpu_scratch(w, bytes, &j->qa));
    GQAC_TRY(gpu_scratch(w, blocks * sizeof(float), &j->sa));
    GQAC_TRY(gpu_scratch(w, blocks * sizeof(int32_t), &j->sq));
    const int32_t x_type = (int32_t)gpu_type_of(j->x->dtype);
    const gpu_arg args[] = {GPU_ARG(j->in.handle), GPU_ARG(j->qa.handle), GPU_ARG(j->sa.handle),
                            GPU_ARG(j->sq.handle), GPU_ARG(p->k),         GPU_ARG(p->blocks),
                            GPU_ARG(p->block),     GPU_ARG(p->bits),      GPU_ARG(x_type)};
    return gpu_launch(w, GPU_NBITS_QUANTISE, &grid, GPU_COUNT(args), args);
}

static gqac_status multiply(gpu_work *w, const target_call *call, job *j) {
    GQAC_TRY(j->p->as_is || j->p->int8 ? gpu_in_as_is(w, j->x, &j->in) : gpu_in(w, j->x, &j->in));
    GQAC_TRY(gpu_out_as_is(w, &j->y, &j->out));
    GQAC_TRY(gpu_operand_in(w, call, &j->p->bias, &j->in, &j->bias));
    if (j->p->tensor) {
        const gpu_tensor_rows rows = {.in = j->in,
                                      .bias = j->bias,
                                      .out = j->out,
                                      .x_type = (int32_t)gpu_type_of(j->x->dtype),
                                      .pieces = j->pieces};
        return gpu_tensor_product(w, j->p, &j->shape, &rows);
    }
    if (j->p->int8)
        GQAC_TRY(quantise(w, j));
    return j->shape.m <= FEW_ROWS ? few_rows(w, j) : tiles(w, j);
}

gqac_status gpu_product_run(target_call *call, const void *record) {
    job j = {.p = record};
    const gqac_tensor *bias = target_value(call, j.p->bias.value);
    GQAC_TRY(open_rows(call, &j));
    if (bias && (!OP_IN(OP_FLOATS, bias->dtype) || gqac_tensor_count(bias) != j.p->weights.n))
        OP_STOP(&call->work, GQAC_INVALID_INPUT, "bias has %lld elements, expected %d",
                (long long)gqac_tensor_count(bias), j.p->weights.n);
    if (j.shape.m == 0)
        return GQAC_OK;
    set_shape(&j);
    j.shape.has_bias = bias != NULL;
    gpu_work w = gpu_take(call);
    const gqac_status status = multiply(&w, call, &j);
    gpu_give_back(&w);
    return status;
}
