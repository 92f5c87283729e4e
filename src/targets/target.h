/* A target: a name and rows of kernels. Nodes that no row claims are run by the generic kernel,
 * which calls the op's own eval, so a target without rows runs every model. */
#ifndef GQAC_TARGETS_TARGET_H
#define GQAC_TARGETS_TARGET_H

#include "ops/op.h"
#include "targets/call.h"
#include "targets/mirror.h"

enum {
    TARGET_MAX_FUSED = 16, /* nodes besides the root that one kernel computes */
    TARGET_TAKEN = 1,      /* in ir_node.mark while `claim` runs: the node has its kernel */
};

/* The arguments of a bind. */
typedef struct target_binding {
    gqac_arena *arena; /* of the program, which records must not outlive */
    const void *state; /* from the target's `open` */
    gqac_diag *diag;
} target_binding;

/* Bytes in the memory of a device. */
typedef struct target_memory {
    size_t constants;
    size_t kv;       /* the cache of KV blocks */
    size_t new_rows; /* rows of keys and values that a run makes, on their way to the host */
} target_memory;

/* A kernel has three phases: `match` and `fuse` when the graph is claimed, `bind` once when the
 * program is made, `run` in every run. What `run` needs of the graph is in the record; `run` sees
 * no graph. */
typedef struct target_kernel {
    const char *name;   /* "kv_append": shown as "ref.kv_append" */
    const char *domain; /* of its root op */
    const char *op;
    bool (*match)(const ir_node *node); /* on constants of the model only; NULL: always */
    /* Makes the record, when values have their numbers: operands become numbers (targets/bind.h),
     * attributes fields, patterns steps. The record does not change afterwards; threads share
     * it. */
    gqac_status (*bind)(const target_binding *b, const ir_node *root, const void **record);
    gqac_status (*run)(target_call *call, const void *record);
    /* Adds to `parts`, which measures, the scratch that `run` takes with that many threads at most.
     * `call` has types, shapes and lengths: only constants have data, there are no sequences in
     * call->kv, no pool and no `give`. A failure means that the shapes do not fit, as shapes that
     * only a run knows are assumed. NULL: not counted. */
    gqac_status (*scratch)(const target_call *call, int threads, const void *record,
                           gqac_parts *parts);
    /* For kernels that compute more nodes than the root: stores these nodes (at most
     * TARGET_MAX_FUSED) and returns their number; 0: the pattern is not there. Each node must be in
     * the root's graph and not be TARGET_TAKEN. The kernel makes, with target_give, every result of
     * these nodes that is used outside the group. `claim` declines groups with a node after the
     * root, or with a node that depends on the group by way of other nodes. */
    int (*fuse)(const ir_node *root, ir_node **nodes);
    /* True if the kernel may write a result of the group over an operand of the same size, from its
     * first byte on, that nobody reads later. NULL: never. Like IR_OP_IN_PLACE, for kernels that
     * are not the op's eval. */
    bool (*over)(const ir_node *root, const ir_value *result, const ir_value *operand);
    /* `run` reads operands and leaves results where the mirror has them. The operands of other
     * kernels are copied to the host before they run. */
    bool on_device;
} target_kernel;

typedef struct gqac_target {
    const char *name;
    const target_kernel *kernels; /* tried in order, first match wins; ends with name NULL */
    /* Sets the target_call.state of programs of this target; NULL: there is none. ABSENT: the
     * machine cannot run it. */
    gqac_status (*open)(const void **state, gqac_diag *diag);
    /* The same for a target that runs on devices, which has no `open`: a state of this program on
     * device gqac_options.device, and what frees it after the last run. */
    gqac_status (*open_device)(int device, const void **state, gqac_diag *diag);
    void (*close_device)(const void *state);
    /* What a program needs on its device besides values, with so many KV blocks in use and so many
     * new tokens in a run. NULL: there is no device. */
    target_memory (*device_memory)(const void *state, size_t kv_blocks, size_t tokens);
    const target_mirror *mirror; /* NULL: all values are in the memory of the host */
    /* Name of the instruction set of a state; NULL: the target has only one. */
    const char *(*level)(const void *state);
    /* Puts constant weights into the form that the target's kernels read, as nodes of the graph (op
     * `linear`), and counts what it replaced. It runs after tidy, so that artefacts hold that form.
     * Bytes of weights are reported to the poll. NULL: nothing to do. */
    gqac_status (*pack)(ir_module *module, const op_options *options, size_t *changed,
                        gqac_poll *poll, gqac_diag *diag);
    /* True if the cached rows of this kv_state are kept as columns (kv_slot.columns). NULL:
     * never. */
    bool (*columns)(const ir_node *kv_state);
    /* True if all readers of the rows of this kv_append read them from blocks, so that its output
     * has no data. NULL: never. */
    bool (*in_blocks)(const ir_node *kv_append);
    /* The value in whose memory this one is read, so that it has no data of its own; NULL (also for
     * the function): it has its own. This depends on the claimed graph only; at most one value lies
     * in the memory of a given value. */
    const ir_value *(*lies_in)(const ir_value *value);
} gqac_target;

/* The kernel for nodes that no row claims: it has no functions and stands for the eval of the
 * node's op. */
extern const target_kernel target_generic_kernel;

/* Binds the kernel that claimed a root, and sets the node's `bound`. */
gqac_status target_bind(const target_binding *b, ir_node *root);

/* Calls target_kernel.over of the kernel that claimed the root. */
bool target_writes_over(const ir_node *root, const ir_value *result, const ir_value *operand);

/* The first row of the target after `after` (NULL: of all rows) that matches; if there is none, the
 * generic kernel when the op has an eval, else NULL (the op must be expanded). `fused` has a
 * capacity of TARGET_MAX_FUSED nodes. */
const target_kernel *target_claim(const gqac_target *target, const target_kernel *after,
                                  const ir_node *node, ir_node **fused, int *n_fused);

/* Finds a target by name. USAGE for other names, with the known targets. */
gqac_status gqac_target_find(const char *name, const gqac_target **target, gqac_diag *diag);

#endif
