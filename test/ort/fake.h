/* ONNX Runtime as the provider sees it, without ONNX Runtime: sessions of models in memory.
 *
 * A session asks the provider what it claims, replaces the claimed nodes by fused ones, has these
 * compiled, and runs them. It checks less than the runtime does: names may repeat, types may be
 * missing, and values need no producer, so the provider gets every graph that the runtime could
 * pass to it, and others. A breach of the plugin interface ends the process: memory that the
 * provider does not release, an error without a text, an output that the node does not have. */
#ifndef GQAC_TEST_ORT_FAKE_H
#define GQAC_TEST_ORT_FAKE_H

#include <gqac/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "onnx.pb-c.h"

typedef struct fake_options {
    const char *version;       /* of the runtime, "1.31.1" */
    const char *path;          /* of the model; "": it is loaded from bytes */
    const char *folder;        /* of external data */
    const char *const *keys;   /* [n]: the session's configuration */
    const char *const *values; /* [n] */
    size_t n;
    uint16_t sizes; /* of dimensions that only have names: 2 bits for each of 8 groups of names */
    int fail;       /* the call of the runtime, from 1, that fails; 0: none */
} fake_options;

typedef struct fake_result {
    char why[4096];            /* the provider's last error; "": none */
    bool created;              /* the session was created, perhaps without the provider */
    bool ran;                  /* all parts ran */
    size_t n_nodes, n_parts;   /* of the provider */
    uint64_t outputs;          /* a checksum of what the parts computed */
    Onnx__ModelProto *context; /* the context model; NULL: none was written */
} fake_result;

/* Creates a session of the model, runs it once and frees it. The context model is in `arena`, and
 * refers to `model`. False: the runtime itself refuses the model. */
bool fake_session(const Onnx__ModelProto *model, const fake_options *options, gqac_arena *arena,
                  fake_result *result);

/* Whether the provider's error is one of gqac with this status. */
bool fake_says(const char *why, gqac_status status);

/* Prints the text and ends the process; the user of the fake defines it. */
_Noreturn void fake_broken(const char *what);

#endif
