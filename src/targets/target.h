/* A target: a name and rows of kernels. What no row claims is claimed by the generic kernel, which
 * calls the op's own eval, so that a target with no rows runs every model. */
#ifndef GQAC_TARGETS_TARGET_H
#define GQAC_TARGETS_TARGET_H

#include "kv/kv.h"
#include "ops/op.h"

/* The sequences of one step, for kernels that touch KV state: row b of the batch is sequences[b],
 * which has past[b] published tokens and gets count[b] new ones. */
typedef struct kv_batch {
    int n;
    kv_sequence *const *sequences;
    const int64_t *past;
    const int64_t *count;
} kv_batch;

typedef struct target_kernel {
    const char *name;   /* "kv_append": shown as "ref.kv_append" */
    const char *domain; /* of its root op */
    const char *op;
    bool (*match)(const ir_node *node); /* on constants of the model only; NULL: always */
    gqac_status (*run)(op_call *call);
} target_kernel;

typedef struct gqac_target {
    const char *name;
    const target_kernel *kernels; /* tried in order, first match wins; ends with name NULL */
} gqac_target;

/* The kernel under all others: runs eval of the node's op. */
extern const target_kernel target_generic_kernel;

/* The first row of the target that matches, the generic kernel when the op has an eval, else NULL
 * (the op must be expanded).
 */
const target_kernel *target_claim(const gqac_target *target, const ir_node *node);

/* "ref". USAGE error naming the known targets for others ("cpu", "gpu": not built yet). */
gqac_status gqac_target_find(const char *name, const gqac_target **target, gqac_diag *diag);

#endif
