/* Runs one bound kernel on tensors, without a program: operands are numbered first, then
 * results. */
#ifndef GQAC_TEST_TARGETS_KERNEL_H
#define GQAC_TEST_TARGETS_KERNEL_H

#include <string.h>

#include "targets/bind.h"

enum { KERNEL_VALUES = 32 };

typedef gqac_status kernel_bind(const target_binding *b, const ir_node *root, const void **record);
typedef gqac_status kernel_run(target_call *call, const void *record);

static inline gqac_status kernel_give(target_call *call, int value, gqac_tensor *tensor) {
    tensor->data = gqac_arena_alloc(call->work.host, gqac_tensor_bytes(tensor) + 1);
    memset(tensor->data, 0xee, gqac_tensor_bytes(tensor));
    target_set(call, value, tensor);
    return GQAC_OK;
}

/* Runs the kernel on numbered values; the n_outputs results begin at number `n`. */
static inline gqac_status kernel_try_values(gqac_arena *arena, const ir_node *node,
                                            kernel_bind *bind, kernel_run *run, gqac_tensor *values,
                                            int n, gqac_tensor *out, const void *state,
                                            gqac_pool *pool, const kv_batch *kv, gqac_diag *diag) {
    const void *record;
    for (int i = 0; i < node->n_outputs; i++)
        node->outputs[i]->id = n + i;
    GQAC_TRY(bind(&(target_binding){.arena = arena, .diag = diag}, node, &record));
    const op_origin origin = op_origin_of(node);
    target_call call = {.work = {.pool = pool, .diag = diag, .host = arena, .origin = &origin},
                        .values = values,
                        .state = state,
                        .kv = kv,
                        .give = kernel_give};
    const gqac_status status = run(&call, record);
    memcpy(out, values + n, (size_t)node->n_outputs * sizeof *out);
    return status;
}

/* in[i] is NULL if operand i is absent or a token. The results, in `out`, are allocated in the
 * arena. */
static inline gqac_status kernel_try(gqac_arena *arena, const ir_node *node, kernel_bind *bind,
                                     kernel_run *run, const gqac_tensor *const *in,
                                     gqac_tensor *out, const void *state, gqac_pool *pool,
                                     const kv_batch *kv, gqac_diag *diag) {
    gqac_tensor values[KERNEL_VALUES] = {{.rank = 0}};
    int n = 0;
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i].value) {
            values[n] = in[i] ? *in[i] : (gqac_tensor){.dtype = GQAC_TOKEN};
            node->inputs[i].value->id = n++;
        }
    return kernel_try_values(arena, node, bind, run, values, n, out, state, pool, kv, diag);
}

#endif
