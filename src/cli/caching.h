/* --prompt-cache and --prefix-store of `generate` and `chat`: what is reused, and what is saved. */
#ifndef GQAC_CLI_CACHING_H
#define GQAC_CLI_CACHING_H

#include "cli/cli.h"

/* Rows of a flag table. */
#define CACHING_FLAGS                                                                              \
    {"prompt-cache", "FILE",                                                                       \
     "reuses the tokens with which FILE and the prompt begin; FILE then holds prompt and answer"}, \
        {"prefix-store", "DIR",                                                                    \
         "the same with a folder of such files, which is made if it does not exist"},              \
    {                                                                                              \
        "store-budget", "MIB", "maximum size of the folder of --prefix-store (4096)"               \
    }

/* Checks the flags before the model is loaded. */
gqac_status caching_check(cli *c);
/* Opens the store of --prefix-store, for the options of a session; NULL: none is wanted. */
gqac_status caching_open(cli *c, const gqac_program *program, gqac_store **store);
/* Makes a folder of snapshot files, unless it exists. */
gqac_status caching_make_folder(cli *c, const char *folder);
/* Fills the session from --prompt-cache. A damaged file is reported on stderr, and not used. USAGE:
 * the file belongs to another model or profile. */
gqac_status caching_load(cli *c, gqac_session *session);
/* After answers: saves the session to both. */
gqac_status caching_save(cli *c, gqac_store *store, const gqac_session *session);

#endif
