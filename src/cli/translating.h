/* `generate` for a folder with an encoder and a decoder: the encoder runs once, then the decoder
 * token by token with whatever caches it has. */
#ifndef GQAC_CLI_TRANSLATING_H
#define GQAC_CLI_TRANSLATING_H

#include "cli/generating.h"

/* Flags of a verb that need a sequence, and what to try instead. */
typedef struct translating_flag {
    const char *name, *hint;
} translating_flag;
#define TRANSLATING_KEEPS_NOTHING "leave it out: nothing is kept between answers"
/* Rows of a list of such flags: those of a store, and of its remote tier. */
#define TRANSLATING_STORE_FLAGS                                                                    \
    {"prefix-store", TRANSLATING_KEEPS_NOTHING}, {"store-budget", TRANSLATING_KEEPS_NOTHING},      \
        {"prefix-remote", TRANSLATING_KEEPS_NOTHING},                                              \
        {"remote-timeout", TRANSLATING_KEEPS_NOTHING},                                             \
        {"remote-cacert", TRANSLATING_KEEPS_NOTHING}, {"remote-cert", TRANSLATING_KEEPS_NOTHING},  \
    {                                                                                              \
        "remote-key", TRANSLATING_KEEPS_NOTHING                                                    \
    }
/* Refuses those that are on the command line; the list ends with {NULL, NULL}. */
gqac_status translating_refuse(cli *c, const translating_flag *flags);

/* Reads --prompt, --ids or --features, generates, and prints as `generate` does. */
gqac_status translating_run(generating *g);

#endif
