/* Mixtures of experts: kernels/moe.cl has the arithmetic. A pair is a row and one of the experts
 * that it has chosen; each pair has rows of its own in fc1, fc3 and y. */
#include "targets/gpu/moe.h"

#include "base/check.h"
#include "numerics/contract.h"

enum {
    ITEMS = 64,
    SORT_ITEMS = 256,
    TILE_ROWS = 64, /* kernels/products.cl */
    TILE_COLUMNS = 128,
    TILE_ITEMS = 128,
    FEW_PAIRS = 16 /* more are sorted by expert, if an expert has more than two of them */
};

/* moe_route, moe_shape and moe_gate of kernels/moe.cl. */
typedef struct moe_route {
    int32_t rows, experts, chosen, normalize, has_mix;
} moe_route;
typedef struct moe_shape {
    gpu_product_shape product;
    int32_t pairs, per_row, experts, rows;
} moe_shape;
typedef struct moe_gate {
    int32_t pairs, inner, wide, activation, fusion, has_fc3;
    float alpha, beta, limit;
} moe_gate;

typedef struct mixture {
    const gpu_moe *record;
    moe m;
    moe_mixture s;
    gqac_tensor y;
    int32_t pairs;
    int32_t n_tiles; /* at most so many; 0: pairs are not sorted */
    gpu_buffer x, router, mix, order, p, fc1, inner, sums, out;
    gpu_buffer lists; /* of sorted pairs, kernels/moe.cl; their rows of x lie in `sums` at first */
} mixture;

static gpu_grid grid_of(int64_t width, int64_t n) {
    return (gpu_grid){.groups = {(size_t)(width + ITEMS - 1) / ITEMS, (size_t)n},
                      .items = {ITEMS, 1}};
}

static gqac_status take_floats(gpu_work *w, const mixture *t, int64_t width, gpu_buffer *buffer) {
    size_t bytes;
    return gqac_mul_size((size_t)t->pairs * sizeof(float), (size_t)width, &bytes)
               ? gpu_scratch(w, bytes, buffer)
               : gqac_diag_oom(w->work->diag, "activations");
}

static gqac_status choose(gpu_work *w, mixture *t) {
    const moe_route route = {.rows = (int32_t)t->s.rows,
                             .experts = (int32_t)t->s.experts,
                             .chosen = (int32_t)t->s.chosen,
                             .normalize = t->s.normalize,
                             .has_mix = t->m.mix != NULL};
    const gpu_grid grid = grid_of(t->s.rows, 1);
    const gpu_arg args[] = {GPU_ARG(t->router.handle), GPU_ARG(t->mix.handle),
                            GPU_ARG(t->order.handle), GPU_ARG(t->p.handle), GPU_ARG(route)};
    return gpu_launch(w, GPU_MOE_CHOOSE, &grid, GPU_COUNT(args), args);
}

/* Decides whether pairs are sorted by expert, as `choose` has chosen them, and sorts them. */
static gqac_status sort(gpu_work *w, mixture *t) {
    const int32_t experts = (int32_t)t->s.experts, chosen = (int32_t)t->s.chosen;
    const int32_t width = (int32_t)t->s.hidden;
    t->lists = t->p; /* not read */
    if (t->pairs <= FEW_PAIRS || t->pairs / 2 < experts)
        return GQAC_OK;
    t->n_tiles = t->pairs / TILE_ROWS + experts;
    const size_t numbers = 2 * (size_t)t->pairs + (size_t)experts + 3 * (size_t)t->n_tiles;
    if (numbers > INT32_MAX)
        OP_STOP(w->work, GQAC_LIMIT, "%d pairs of rows and experts are too many for target gpu",
                t->pairs);
    GQAC_TRY(gpu_scratch(w, numbers * sizeof(int32_t), &t->lists));
    const gpu_grid grid = {.groups = {(size_t)experts, 1}, .items = {SORT_ITEMS, 1}};
    const gpu_arg args[] = {GPU_ARG(t->order.handle), GPU_ARG(t->lists.handle),
                            GPU_ARG(t->pairs),        GPU_ARG(chosen),
                            GPU_ARG(experts),         GPU_ARG(t->n_tiles)};
    GQAC_TRY(gpu_launch(w, GPU_MOE_COUNT, &grid, 3, args));
    GQAC_TRY(gpu_launch(w, GPU_MOE_SORT, &grid, GPU_COUNT(args), args));
    const gpu_grid all = grid_of(width, t->pairs);
    const gpu_arg rows[] = {GPU_ARG(t->x.handle), GPU_ARG(t->lists.handle), GPU_ARG(t->sums.handle),
                            GPU_ARG(width), GPU_ARG(t->pairs)};
    return gpu_launch(w, GPU_COPY_ROWS, &all, GPU_COUNT(rows), rows);
}

/* y [pairs,n] = x times the projection of the expert of each pair; `per_row`: pairs that share a
 * row of x, unless they are sorted. */
static gqac_status project(gpu_work *w, const mixture *t, int fc, const gpu_buffer *x,
                           int64_t per_row, const gpu_buffer *y) {
    const gpu_projection *p = &t->record->fc[fc];
    const gpu_weights *of = &p->weights;
    const int32_t pieces = (of->k + GQAC_K_PIECE - 1) / GQAC_K_PIECE;
    moe_shape shape = {.product = gpu_product_shape_of(of, 1, pieces),
                       .pairs = t->pairs,
                       .per_row = (int32_t)per_row,
                       .experts = (int32_t)t->s.experts,
                       .rows = p->rows};
    const int32_t columns = t->n_tiles ? TILE_COLUMNS : GPU_FEW_COLUMNS;
    shape.product.has_bias = p->bias.handle != NULL;
    const gpu_grid grid = {
        .groups = {(size_t)((of->n + columns - 1) / columns),
                   (size_t)(t->n_tiles ? t->n_tiles : t->pairs)},
        .items = {(size_t)(t->n_tiles ? TILE_ITEMS : shape.product.teams * GPU_FEW_COLUMNS), 1}};
    const gpu_buffer *bias = p->bias.handle ? &p->bias : &t->p; /* absent ones are not read */
    const gpu_buffer *scales = of->bits ? &of->scales : &t->p,
                     *zeros = of->bits ? &of->zeros : &t->p;
    const gpu_buffer *lists = t->n_tiles ? &t->lists : &t->order;
    const gpu_arg args[] = {GPU_ARG(x->handle),      GPU_ARG(of->data.handle),
                            GPU_ARG(scales->handle), GPU_ARG(zeros->handle),
                            GPU_ARG(bias->handle),   GPU_ARG(lists->handle),
                            GPU_ARG(y->handle),      GPU_ARG(shape)};
    const gpu_kernel_id kernel = (gpu_kernel_id)((int)of->kernel + (t->n_tiles > 0));
    return gpu_launch(w, kernel, &grid, GPU_COUNT(args), args);
}

static gqac_status activate(gpu_work *w, const mixture *t) {
    const moe_gate gate = {.pairs = t->pairs,
                           .inner = (int32_t)t->s.inner,
                           .wide = (int32_t)t->m.fc[0].n,
                           .activation = t->s.activation,
                           .fusion = (int32_t)t->s.fusion,
                           .has_fc3 = t->m.fc[2].weight != NULL,
                           .alpha = t->s.alpha,
                           .beta = t->s.beta,
                           .limit = t->s.limit};
    const gpu_grid grid = grid_of(t->s.inner, t->pairs);
    const gpu_arg args[] = {GPU_ARG(t->fc1.handle), GPU_ARG(t->inner.handle), GPU_ARG(gate)};
    return gpu_launch(w, GPU_MOE_ACTIVATE, &grid, GPU_COUNT(args), args);
}

static gqac_status add(gpu_work *w, const mixture *t) {
    const int32_t rows = (int32_t)t->s.rows, chosen = (int32_t)t->s.chosen,
                  hidden = (int32_t)t->s.hidden, sorted = t->n_tiles > 0;
    const gpu_grid grid = grid_of(hidden, rows);
    const gpu_arg args[] = {GPU_ARG(t->sums.handle), GPU_ARG(t->p.handle), GPU_ARG(t->lists.handle),
                            GPU_ARG(t->out.handle),  GPU_ARG(rows),        GPU_ARG(chosen),
                            GPU_ARG(hidden),         GPU_ARG(sorted)};
    return gpu_launch(w, GPU_MOE_ADD, &grid, GPU_COUNT(args), args);
}

static gqac_status compute(gpu_work *w, mixture *t) {
    GQAC_TRY(gpu_in(w, t->m.x, &t->x));
    GQAC_TRY(gpu_in(w, t->m.router, &t->router));
    t->mix = t->router;
    if (t->m.mix)
        GQAC_TRY(gpu_in(w, t->m.mix, &t->mix));
    GQAC_TRY(take_floats(w, t, 1, &t->order));
    GQAC_TRY(take_floats(w, t, 1, &t->p));
    GQAC_TRY(take_floats(w, t, t->m.fc[0].n, &t->fc1));
    GQAC_TRY(take_floats(w, t, t->s.inner, &t->inner));
    GQAC_TRY(take_floats(w, t, t->s.hidden, &t->sums));
    GQAC_TRY(gpu_out(w, &t->y, &t->out));
    GQAC_TRY(choose(w, t));
    GQAC_TRY(sort(w, t));
    const gpu_buffer *x = t->n_tiles ? &t->sums : &t->x;
    GQAC_TRY(project(w, t, 0, x, t->s.chosen, &t->fc1));
    if (t->m.fc[2].weight)
        GQAC_TRY(project(w, t, 2, x, t->s.chosen, &t->inner));
    GQAC_TRY(activate(w, t));
    GQAC_TRY(project(w, t, 1, &t->inner, 1, &t->sums));
    GQAC_TRY(add(w, t));
    return gpu_done(w, &t->out, &t->y);
}

gqac_status gpu_moe_run(target_call *call, const void *record) {
    mixture t = {.record = record};
    moe_operands o = {.work = &call->work};
    int64_t pairs;
    for (int i = 0; i < MOE_INPUTS; i++)
        o.in[i] = target_value(call, t.record->in[i]);
    GQAC_TRY(moe_read_files(&o, &t.record->form, &t.m));
    t.y = *t.m.x;
    GQAC_TRY(moe_fit(&call->work, &t.record->form, &t.m, &t.y, &t.s));
    GQAC_TRY(target_give(call, t.record->y, &t.y));
    if (t.s.rows == 0)
        return GQAC_OK;
    if (!gqac_mul_i64(t.s.rows, t.s.chosen, &pairs) || pairs > INT32_MAX)
        OP_STOP(&call->work, GQAC_LIMIT,
                "%lld rows of %lld experts: a kernel of target gpu has %d "
                "pairs at most",
                (long long)t.s.rows, (long long)t.s.chosen, INT32_MAX);
    t.pairs = (int32_t)pairs;
    gpu_work w = gpu_take(call);
    const gqac_status status = compute(&w, &t);
    gpu_give_back(&w);
    return status;
}
