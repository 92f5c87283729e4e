/* The arguments of a kernel's run: tensors by value number, memory for results, scratch, threads,
 * and the sequences of the step. There is no graph here: what a kernel needs of the graph, its bind
 * (targets/target.h) has put into the record, which is passed together with the call. */
#ifndef GQAC_TARGETS_CALL_H
#define GQAC_TARGETS_CALL_H

#include "kv/kv.h"
#include "ops/work.h"

/* The sequences of one step, for kernels that read or write KV state: sequences[b] has past[b]
 * published tokens and gets count[b] new ones. If packed, tensors of new rows are [1,..,N,..], and
 * the rows of sequence b begin at row begin[b]; otherwise they are [n,..,S,..], and begin[b] is 0.
 * The first common[b] tokens of sequence b lie in the same memory as those of sequence b - 1; only
 * forks have any, because they share each block until one writes to it. */
typedef struct kv_batch {
    int n;
    bool packed;
    kv_sequence *const *sequences;
    const int64_t *past;
    const int64_t *count;
    const int64_t *begin;
    const int64_t *common; /* common[0] is 0; NULL: unknown */
} kv_batch;

/* The batch row of sequence b in a tensor of new rows. */
static inline int64_t kv_batch_row(const kv_batch *kv, int64_t b) {
    return kv->packed ? 0 : b;
}

typedef struct target_call {
    op_work work;        /* work.origin is the root of the group */
    gqac_tensor *values; /* by number: constants, inputs, and results computed before */
    const void *state;   /* from the target's `open` */
    void *mirror;        /* from target_mirror.open; NULL: the target has none */
    const kv_batch *kv;  /* NULL outside of a step */
    /* See target_give. */
    gqac_status (*give)(struct target_call *call, int value, gqac_tensor *tensor);
} target_call;

/* A value by its number; NULL for -1, an absent one. */
static inline const gqac_tensor *target_value(const target_call *call, int value) {
    return value < 0 ? NULL : &call->values[value];
}

/* Sets the data of a result of the group, whose `tensor` has type and shape: the memory that `plan`
 * chose for the value. For a result that is not used (-1) it is scratch. */
static inline gqac_status target_give(target_call *call, int value, gqac_tensor *tensor) {
    return call->give(call, value, tensor);
}

/* The same for a result that may be unused: `tensor` becomes `shape` with data, and *result points
 * to it. For -1 both stay as they are. */
static inline gqac_status target_give_used(target_call *call, int value, gqac_tensor shape,
                                           gqac_tensor *tensor, gqac_tensor **result) {
    if (value < 0)
        return GQAC_OK;
    *tensor = shape;
    *result = tensor;
    return target_give(call, value, tensor);
}

/* Sets a result that has no memory of its own; nothing for -1. */
static inline void target_set(target_call *call, int value, const gqac_tensor *tensor) {
    if (value >= 0)
        call->values[value] = *tensor;
}

/* The op_work of a node of the group that is not its root, for messages. */
static inline op_work target_work(const target_call *call, const op_origin *origin) {
    op_work work = call->work;
    work.origin = origin;
    return work;
}

#endif
