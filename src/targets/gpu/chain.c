/* Chains of elementwise ops: kernels/chain.cl has the arithmetic. */
#include "targets/gpu/rows.h"

enum {
    PLACES = 1024,   /* of all items of a group */
    MOST_ITEMS = 256 /* of a group */
};

/* chain_step and chain_shape of kernels/chain.cl. */
typedef struct chain_step {
    int32_t kind, a, b, to, type;
    float param;
} chain_step;
typedef struct chain_shape {
    int32_t n, columns, n_leaves, n_steps, type, items;
    int32_t forms[TARGET_CHAIN_LEAVES], types[TARGET_CHAIN_LEAVES];
    chain_step steps[TARGET_CHAIN_STEPS];
} chain_shape;
_Static_assert(32 * (TARGET_CHAIN_LEAVES + TARGET_CHAIN_STEPS) <= PLACES, "a group of 32 items");
_Static_assert(TARGET_CHAIN_LEAVES == 12 && TARGET_CHAIN_STEPS == 17, "those of the kernel");
_Static_assert(TARGET_ADD == 0 && TARGET_NEG == 4 && TARGET_ERF == 8 && TARGET_FAST_GELU == 12 &&
                   TARGET_LEAF_FULL == 0 && TARGET_LEAF_ROW == 1,
               "those of the kernel");

/* The place of an operand: those of registers follow those of the leaves. */
static int32_t place_of(const gpu_chain *f, int operand) {
    return operand < TARGET_CHAIN_LEAVES ? operand : operand - TARGET_CHAIN_LEAVES + f->of.n_leaves;
}

static chain_shape shape_of(const gpu_chain *f, const gqac_tensor *y, int64_t columns) {
    chain_shape s = {.n = (int32_t)gqac_tensor_count(y),
                     .columns = (int32_t)columns,
                     .n_leaves = f->of.n_leaves,
                     .n_steps = f->of.n_steps,
                     .type = (int32_t)gpu_type_of(y->dtype)};
    int32_t places = s.n_leaves;
    for (int i = 0; i < f->of.n_steps; i++) {
        const target_step *t = &f->of.steps[i];
        s.steps[i] = (chain_step){.kind = (int32_t)t->kind,
                                  .a = place_of(f, t->a),
                                  .b = place_of(f, t->b),
                                  .to = place_of(f, t->to),
                                  .type = (int32_t)gpu_type_of(t->type),
                                  .param = t->param};
        places = s.steps[i].to < places ? places : s.steps[i].to + 1;
    }
    s.items = MOST_ITEMS;
    while (s.items * places > PLACES)
        s.items /= 2;
    return s;
}

static gqac_status compute(gpu_work *w, const target_call *call, const gpu_chain *f,
                           int64_t columns, const gqac_tensor *y) {
    chain_shape shape = shape_of(f, y, columns);
    const gpu_buffer none = {0}; /* all are present */
    gpu_buffer in[TARGET_CHAIN_LEAVES], out;
    gpu_arg args[TARGET_CHAIN_LEAVES + 2];
    for (int i = 0; i < f->of.n_leaves; i++) {
        shape.forms[i] = (int32_t)f->of.leaves[i].form;
        GQAC_TRY(gpu_operand_as_is(w, call, &f->leaves[i], &none, &in[i], &shape.types[i]));
    }
    GQAC_TRY(gpu_out_as_is(w, y, &out));
    for (int i = 0; i < TARGET_CHAIN_LEAVES; i++)
        args[i] = GPU_ARG(in[i < f->of.n_leaves ? i : 0].handle);
    args[TARGET_CHAIN_LEAVES] = GPU_ARG(out.handle);
    args[TARGET_CHAIN_LEAVES + 1] = GPU_ARG(shape);
    const size_t each = 4 * (size_t)shape.items;
    const gpu_grid grid = {.groups = {((size_t)shape.n + each - 1) / each, 1},
                           .items = {(size_t)shape.items, 1}};
    return gpu_launch(w, GPU_CHAIN, &grid, GPU_COUNT(args), args);
}

gqac_status gpu_chain_run(target_call *call, const void *record) {
    const gpu_chain *f = record;
    const gqac_tensor *leaves[TARGET_CHAIN_LEAVES] = {NULL};
    int64_t columns;
    for (int i = 0; i < f->of.n_leaves; i++)
        leaves[i] = target_value(call, f->of.leaves[i].value);
    GQAC_TRY(target_chain_fit(call, &f->of, f->of.rows, leaves, &columns));
    gqac_tensor y = *leaves[f->of.shape];
    y.dtype = f->of.type;
    GQAC_TRY(target_give(call, f->of.y, &y));
    GQAC_TRY(gpu_fits(&call->work, &y));
    if (gqac_tensor_count(&y) == 0)
        return GQAC_OK;
    gpu_work w = gpu_take(call);
    const gqac_status status = compute(&w, call, f, columns, &y);
    gpu_give_back(&w);
    return status;
}
