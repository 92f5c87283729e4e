/* A target: a name and rows of kernels. What no row claims is claimed by the generic kernel, which
 * calls the op's own eval, so that a target with no rows runs every model. */
#ifndef GQAC_TARGETS_TARGET_H
#define GQAC_TARGETS_TARGET_H

#include "ops/op.h"
#include "targets/call.h"

enum {
    TARGET_MAX_FUSED = 16, /* nodes besides the root that one kernel computes */
    TARGET_TAKEN = 1,      /* in ir_node.mark while `claim` runs: the node has its kernel */
};

/* What a bind gets. */
typedef struct target_binding {
    gqac_arena *arena; /* of the program: records live as long */
    gqac_diag *diag;
} target_binding;

/* A kernel is asked three times: `match` and `fuse` when the graph is claimed, `bind` once when the
 * program is made, `run` in every run. What the graph knows ends up in the record; code that runs
 * sees no graph. */
typedef struct target_kernel {
    const char *name;   /* "kv_append": shown as "ref.kv_append" */
    const char *domain; /* of its root op */
    const char *op;
    bool (*match)(const ir_node *node); /* on constants of the model only; NULL: always */
    /* Values have their numbers: operands become numbers (targets/bind.h), attributes fields,
     * patterns steps. The record is not changed afterwards; threads share it. */
    gqac_status (*bind)(const target_binding *b, const ir_node *root, const void **record);
    gqac_status (*run)(target_call *call, const void *record);
    /* For kernels of more than the root: the nodes they compute besides it (at most
     * TARGET_MAX_FUSED), or 0 when the pattern is not there. Each must be of the same graph and not
     * be TARGET_TAKEN. The kernel makes with
     * target_give every result of theirs that is used outside of the pattern. `claim` declines
     * patterns that stand behind the root or that need their own results by way of other nodes. */
    int (*fuse)(const ir_node *root, ir_node **nodes);
    /* May the kernel write a result of the group over an operand of the same size, from its first
     * byte on, that nobody reads later? NULL: no. As IR_OP_IN_PLACE, for kernels that are not the
     * op's eval. */
    bool (*over)(const ir_node *root, const ir_value *result, const ir_value *operand);
} target_kernel;

typedef struct gqac_target {
    const char *name;
    const target_kernel *kernels; /* tried in order, first match wins; ends with name NULL */
    /* What target_call.state is for programs of this target; NULL: there is none. ABSENT when the
     * machine cannot run it. */
    gqac_status (*open)(const void **state, gqac_diag *diag);
    /* Name of the instruction set that such a state stands for; NULL: the target has only one. */
    const char *(*level)(const void *state);
    /* Puts constant weights into the form that its kernels read, as nodes of the graph (op
     * `linear`), and counts what it replaced. After tidy, so that artefacts hold that form. The
     * poll is told the bytes of weights. NULL: nothing to do. */
    gqac_status (*pack)(ir_module *module, const op_options *options, size_t *changed,
                        gqac_poll *poll, gqac_diag *diag);
    /* Are cached rows of this kv_state kept as columns (kv_slot.columns)? NULL: no. */
    bool (*columns)(const ir_node *kv_state);
    /* Are the rows of this kv_append read from blocks alone, so that its output has no data? NULL:
     * no. */
    bool (*in_blocks)(const ir_node *kv_append);
    /* Does a kernel of a group that this node is in keep its result, as a whole, in scratch? NULL:
     * no, it stays in registers. */
    bool (*in_scratch)(const ir_node *node);
    /* The value in whose memory this one is read, so that it has no data of its own; NULL (also for
     * the function): it has. A fact of the claimed graph; one value at most lies in another. */
    const ir_value *(*lies_in)(const ir_value *value);
} gqac_target;

/* The kernel under all others: it has no functions, and stands for the eval of the node's op. */
extern const target_kernel target_generic_kernel;

/* Binds the kernel that claimed a root, for the node's `bound`. */
gqac_status target_bind(const target_binding *b, ir_node *root);

/* Asks the kernel that claimed the root of a group: see target_kernel.over. */
bool target_writes_over(const ir_node *root, const ir_value *result, const ir_value *operand);

/* The first row of the target behind `after` (NULL: of all) that matches, the generic kernel when
 * the op has an eval, else NULL (the op must be expanded). `fused` has room for TARGET_MAX_FUSED
 * nodes. */
const target_kernel *target_claim(const gqac_target *target, const target_kernel *after,
                                  const ir_node *node, ir_node **fused, int *n_fused);

/* USAGE error naming the known targets for others ("gpu": not built yet). */
gqac_status gqac_target_find(const char *name, const gqac_target **target, gqac_diag *diag);

#endif
