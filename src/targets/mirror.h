/* Values in the memory of a device. */
#ifndef GQAC_TARGETS_MIRROR_H
#define GQAC_TARGETS_MIRROR_H

#include <gqac/candidate.h>
#include <gqac/tensor.h>

#include "ops/work.h"

/* Copies of values between the host and a device, in one run. */
typedef struct target_copies {
    int64_t up, up_bytes;     /* to the device */
    int64_t down, down_bytes; /* back */
} target_copies;

enum { TARGET_TOP_MOST = INT32_MAX }; /* kernels count elements in 32 bits */

/* For targets whose kernels leave values in the memory of a device. A mirror belongs to a context
 * and has, for each value, the side where its newest bytes are. A value is known by the address of
 * its data in the memory of the host. */
typedef struct target_mirror {
    gqac_status (*open)(const void *state, void **mirror, gqac_diag *diag);
    void (*close)(void *mirror);
    void (*begin)(void *mirror); /* before a run: the newest bytes of all values are on the host */
    /* Before the host reads a value: copies it, if its newest bytes are on the device alone. */
    gqac_status (*fetch)(void *mirror, const gqac_tensor *value, gqac_diag *diag);
    void (*changed)(void *mirror, const gqac_tensor *value); /* after the host has written it */
    /* True if the newest bytes of a value are on the device. */
    bool (*holds)(const void *mirror, const gqac_tensor *value);
    /* Copies a box on the device; tensors whose newest bytes are on the host are copied to the
     * device first. */
    gqac_status (*move)(void *mirror, const op_box *box, const op_work *work);
    /* The n likeliest ids of each row of logits [..., rows, V] that are on the device, n <= V, in
     * the order of gqac_context_top; they are there after `finish`. At most TARGET_TOP_MOST
     * logits. */
    gqac_status (*top)(void *mirror, const gqac_tensor *logits, int64_t n, gqac_candidate *ids,
                       const op_work *work);
    /* At the end of a run that succeeded: the host gets the rows of sequences that kernels have
     * written, and what `top` has found. If the call is stopped meanwhile, rows are missing. */
    gqac_status (*finish)(void *mirror, const op_work *work);
    target_copies (*copies)(const void *mirror); /* since `begin` */
} target_mirror;

#endif
