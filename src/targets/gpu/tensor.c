/* Products of bf16 factors in tensor cores: kernels/tensor.cl has the arithmetic. */
#include "targets/gpu/tensor.h"

#include "base/check.h"

enum { ENOUGH = 64 /* groups: with fewer, each has one piece */ };

typedef struct job {
    const gpu_product *p;
    const gpu_tensor_rows *rows;
    gpu_product_shape shape;
    gpu_buffer factors; /* of the rows, if there are several */
} job;

static gqac_status launch(gpu_work *w, const job *j, int form, const gpu_grid *grid, int32_t wide,
                          const gpu_buffer *y) {
    enum { COMMON = 6, MOST = COMMON + 3 };
    const gpu_weights *p = &j->p->weights;
    const gpu_buffer *scales = p->scales.handle ? &p->scales : &p->data; /* absent: not read */
    const gpu_buffer *zeros = p->zeros.handle ? &p->zeros : &p->data;
    const gpu_buffer *x = form == GPU_FEW_1 ? &j->rows->in : &j->factors;
    gpu_arg args[MOST] = {
        GPU_ARG(x->handle),     GPU_ARG(p->data.handle),       GPU_ARG(scales->handle),
        GPU_ARG(zeros->handle), GPU_ARG(j->rows->bias.handle), GPU_ARG(y->handle)};
    int n = COMMON;
    if (form == GPU_FEW_1)
        args[n++] = GPU_ARG(j->rows->x_type);
    if (form != GPU_TILE)
        args[n++] = GPU_ARG(wide);
    args[n++] = GPU_ARG(j->shape);
    return gpu_launch_own(w, j->p->tensor[(int)j->p->forms + form], grid, n, args);
}

static gqac_status few_rows(gpu_work *w, job *j) {
    const int form = j->shape.m == 1 ? GPU_FEW_1 : GPU_FEW_4;
    const int32_t blocks = j->shape.width / 8;
    const gpu_tensor_cut cut = gpu_tensor_cut_of(
        j->rows->pieces, blocks, form == GPU_FEW_1 ? GPU_TENSOR_ONE_WARPS : GPU_TENSOR_WARPS);
    const gpu_grid grid = {
        .groups = {gpu_parts(blocks, cut.wide), gpu_parts(j->shape.m, GPU_TENSOR_ROWS)},
        .items = {(size_t)(cut.teams * cut.wide * 32), 1}};
    j->shape.teams = cut.teams;
    return launch(w, j, form, &grid, cut.wide, &j->rows->out);
}

static gqac_status make_factors(gpu_work *w, job *j) {
    const size_t down = gpu_parts(j->shape.m, GPU_TENSOR_ROWS);
    const gpu_grid grid = gpu_tensor_packers(&j->shape, down);
    size_t bytes;
    if (!gqac_mul_size(down * GPU_TENSOR_ROWS * GPU_TENSOR_K * sizeof(uint16_t),
                       (size_t)gpu_tensor_blocks(j->shape.k), &bytes))
        return gqac_diag_oom(w->work->diag, "factors of a product");
    GQAC_TRY(gpu_scratch(w, bytes, &j->factors));
    const gpu_arg args[] = {GPU_ARG(j->rows->in.handle), GPU_ARG(j->factors.handle),
                            GPU_ARG(j->rows->x_type), GPU_ARG(j->shape)};
    return gpu_launch_own(w, j->p->tensor[GPU_TENSOR_FACTORS], &grid, GPU_COUNT(args), args);
}

/* Where the device would have too few groups, each piece of k has groups of its own. */
static gqac_status tiles(gpu_work *w, job *j) {
    const gpu_tensor_rows *r = j->rows;
    gpu_product_shape *s = &j->shape;
    gpu_grid grid = {.groups = {gpu_parts(s->n, GPU_TENSOR_TILE), gpu_parts(s->m, GPU_TENSOR_TILE)},
                     .items = {GPU_TENSOR_ITEMS, 1}};
    gpu_buffer parts = r->out;
    size_t bytes;
    s->split = r->pieces > 1 && grid.groups[0] * grid.groups[1] < ENOUGH;
    if (s->split) {
        if (!gqac_mul_size((size_t)s->m * sizeof(float), (size_t)s->n, &bytes) ||
            !gqac_mul_size(bytes, (size_t)r->pieces, &bytes))
            return gqac_diag_oom(w->work->diag, "pieces of a product");
        GQAC_TRY(gpu_scratch(w, bytes, &parts));
        grid.groups[1] *= (size_t)r->pieces;
    }
    GQAC_TRY(launch(w, j, GPU_TILE, &grid, 0, &parts));
    return s->split ? gpu_add_pieces(w, s, r->pieces, &parts, &r->bias, &r->out) : GQAC_OK;
}

gqac_status gpu_tensor_product(gpu_work *w, const gpu_product *p, const gpu_product_shape *shape,
                               const gpu_tensor_rows *rows) {
    job j = {.p = p, .rows = rows, .shape = *shape};
    if (shape->m == 1)
        return few_rows(w, &j);
    GQAC_TRY(make_factors(w, &j));
    return shape->m <= GPU_TENSOR_ROWS ? few_rows(w, &j) : tiles(w, &j);
}
