/* --bake of `compile`: the tokens with which prompts will begin. */
#ifndef GQAC_CLI_BAKING_H
#define GQAC_CLI_BAKING_H

#include "cli/cli.h"

/* Rows of a flag table. */
#define BAKING_FLAGS                                                                               \
    {"bake", "FILE",                                                                               \
     "stores the cached rows of this text in the artefact; prompts that begin with it reuse "      \
     "them"},                                                                                      \
        {"bake-as", "system|prompt|ids",                                                           \
         "what FILE contains: the system message of `chat`, the beginning of a prompt of "         \
         "`generate`, or token ids (system if the model has a chat template, else prompt)"},       \
    {                                                                                              \
        "kv", CLI_KINDS,                                                                           \
            "kind of cache of the baked rows (contiguous, which can also be used as paged)"        \
    }

typedef struct baking {
    gqac_bake bake;
    int64_t *ids; /* malloc'd */
    double began; /* cli_seconds */
} baking;

/* Checks the flags, before anything is read. `artefact`: one is written. */
gqac_status baking_check(cli *c, bool artefact);
/* Sets options->bake to the tokens of --bake, if it is given. LIMIT: making them took longer than
 * the limit compile-ms. */
gqac_status baking_open(baking *b, cli *c, const gqac_text *text, gqac_options *options);
void baking_close(baking *b);

#endif
