/* A target: a name and a table of kernels. A node that no kernel of the table claims runs by the
 * generic kernel, which calls the op's own eval, so a target with an empty table runs every
 * model. */
#ifndef GQAC_TARGETS_TARGET_H
#define GQAC_TARGETS_TARGET_H

#include <gqac/log.h>

#include "ops/op.h"
#include "targets/call.h"
#include "targets/mirror.h"

enum {
    TARGET_MAX_FUSED = 16, /* nodes besides the root that one kernel computes */
    TARGET_CLAIMED = 1,    /* in ir_node.mark while `claim` runs: the node is claimed */
};

/* What a kernel's `bind` is given. */
typedef struct target_binding {
    gqac_arena *arena; /* the program's, in which records live */
    const void *state; /* from the target's `open` */
    bool bf16;         /* --math bf16: products may have bf16 factors */
    gqac_diag *diag;
} target_binding;

/* Bytes in the memory of a device. */
typedef struct target_memory {
    size_t constants;
    size_t kv;       /* the cache of KV blocks */
    size_t new_rows; /* new rows of keys and values of a run, before they are copied to the host */
} target_memory;

/* A kernel has three phases: `match` and `fuse` when the graph is claimed, `bind` once when the
 * program is made, `run` in every run. `run` does not see the graph: the record that `bind` made
 * has all that it needs. */
typedef struct target_kernel {
    const char *name;   /* "kv_append": shown as "ref.kv_append" */
    const char *domain; /* of its root op */
    const char *op;
    bool (*match)(const ir_node *node); /* on constants of the model only; NULL: always */
    /* Makes the record, after values were numbered: operands become numbers (targets/bind.h),
     * attributes become fields. The record does not change afterwards; threads share it. */
    gqac_status (*bind)(const target_binding *b, const ir_node *root, const void **record);
    gqac_status (*run)(target_call *call, const void *record);
    /* Adds to `parts` (base/parts.h, measuring) the maximum scratch of `run` with `threads`
     * threads. `call` has types, shapes and lengths, but data only for constants, no sequences in
     * call->kv, no pool and no function that returns results (`give`). Shapes that only a run
     * determines are assumed, so they may not fit each other; then it fails, and the kernel is not
     * counted. NULL: not counted. */
    gqac_status (*scratch)(const target_call *call, int threads, const void *record,
                           gqac_parts *parts);
    /* For kernels that compute more nodes than the root: stores these other nodes (at most
     * TARGET_MAX_FUSED) and returns their number; 0: the pattern does not match. Each node must be
     * in the root's graph and not be TARGET_CLAIMED. The kernel returns every result of these nodes
     * that is used outside the group with target_give. `claim` rejects a group if one of its nodes
     * comes after the root, or depends on the group through nodes outside it. */
    int (*fuse)(const ir_node *root, ir_node **nodes);
    /* True if the kernel may write a result of the group over an operand of the same size that has
     * no later reader; both then begin at the same byte. NULL: never. It is to kernels what
     * IR_OP_IN_PLACE is to an op's eval. */
    bool (*over)(const ir_node *root, const ir_value *result, const ir_value *operand);
    /* True: `run` reads and writes values in device memory, where the mirror has them. Operands of
     * other kernels are copied to the host before they run. */
    bool on_device;
} target_kernel;

typedef struct gqac_target {
    const char *name;
    const target_kernel *kernels; /* tried in order, first match wins; ends with name NULL */
    /* Sets *state, the target_call.state of programs of this target; NULL: there is none. ABSENT:
     * this machine cannot run the target. */
    gqac_status (*open)(const void **state, gqac_diag *diag);
    /* The same for a target that runs on devices (instead of `open`): creates a state for one
     * program on device gqac_options.device. `log` lives as long as the state. close_device frees
     * the state after the last run. */
    gqac_status (*open_device)(int device, const gqac_log *log, const void **state,
                               gqac_diag *diag);
    void (*close_device)(const void *state);
    /* Memory that a program needs on its device in addition to values, with that many KV blocks in
     * use, of a kind that keeps codes of that many bits (0: rows), and that many new tokens in a
     * run. NULL: there is no device. */
    target_memory (*device_memory)(const void *state, int code_bits, size_t kv_blocks,
                                   size_t tokens);
    const target_mirror *mirror; /* NULL: all values are in the memory of the host */
    /* Name of the instruction set of a state; NULL: the target has only one. */
    const char *(*level)(const void *state);
    /* The name of --math bf16 in the profile of programs with this state, for targets whose devices
     * do not all compute the same bits in this mode. If this function is NULL or returns NULL, the
     * name is "bf16".
     */
    const char *(*bf16_name)(const void *state);
    /* Packs constant weights into the form that the target's kernels read, as operands of ops such
     * as `linear`, and counts the nodes that it replaced. It runs after tidy, so that artefacts
     * hold packed weights. Bytes of weights are reported to the poll. NULL: the target packs
     * nothing. */
    gqac_status (*pack)(ir_module *module, const op_options *options, size_t *changed,
                        gqac_poll *poll, gqac_diag *diag);
    /* True if the cached rows of this kv_state are kept as columns (kv_slot.columns). NULL:
     * never. */
    bool (*columns)(const ir_node *kv_state);
    /* True if all readers of this kv_append's rows read them from KV blocks, so that its output
     * needs no data. NULL: never. */
    bool (*in_blocks)(const ir_node *kv_append);
    /* Returns the value in whose memory this value lies, so that it needs no memory of its own;
     * NULL: it has its own. The function may be NULL: all values have their own. The result depends
     * only on the claimed graph. Several values may lie in the memory of one. */
    const ir_value *(*lies_in)(const ir_value *value);
} gqac_target;

/* The kernel of nodes that no other kernel claims. It has no functions and stands for the eval of
 * the node's op. */
extern const target_kernel target_generic_kernel;

/* Binds the kernel that claimed a root, and sets the node's `bound`. */
gqac_status target_bind(const target_binding *b, ir_node *root);

/* Calls target_kernel.over of the kernel that claimed the root. */
bool target_writes_over(const ir_node *root, const ir_value *result, const ir_value *operand);

/* Returns the first matching kernel of the target's table after `after` (NULL: of the whole table).
 * If there is none, the generic kernel if the op has an eval, else NULL: the op must be expanded.
 * `fused` has a capacity of TARGET_MAX_FUSED nodes. */
const target_kernel *target_claim(const gqac_target *target, const target_kernel *after,
                                  const ir_node *node, ir_node **fused, int *n_fused);

/* Finds a target by name. USAGE: there is no such target; *diag lists the names. */
gqac_status gqac_target_find(const char *name, const gqac_target **target, gqac_diag *diag);

#endif
