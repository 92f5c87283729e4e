/* --prompt-cache, --prefix-store and --prefix-remote of `generate` and `chat`: what is reused, and
 * what is saved. */
#ifndef GQAC_CLI_CACHING_H
#define GQAC_CLI_CACHING_H

#include "cli/cli.h"

/* Rows of a flag table. */
#define CACHING_FLAGS                                                                              \
    {"prompt-cache", "FILE",                                                                       \
     "reuses the cached rows of FILE for the prefix that it shares with the prompt; then saves "   \
     "prompt and answer to FILE"},                                                                 \
        {"prefix-store", "DIR",                                                                    \
         "the same with a folder of such files, which is created if it does not exist"},           \
        {"store-budget", "MIB", "maximum size of the folder of --prefix-store (4096)"},            \
        CACHING_REMOTE_FLAGS

/* Rows of a flag table: the remote tier of a store. */
#define CACHING_REMOTE_FLAGS                                                                       \
    {"prefix-remote", "URL",                                                                       \
     "shares prefixes with other machines through a Redis server, redis://HOST:PORT[/DB]; "        \
     "rediss://... with TLS"},                                                                     \
        {"remote-timeout", "MS",                                                                   \
         "maximum time for reading a prefix from --prefix-remote, and for writing one value "      \
         "(500)"},                                                                                 \
        CACHING_TLS_FLAGS

/* Rows of a flag table: the certificates for the server of a remote tier. */
#define CACHING_TLS_FLAGS                                                                          \
    {"remote-cacert", "FILE",                                                                      \
     "for rediss://, certificates of the authorities to trust, in PEM (those of the system)"},     \
        {"remote-cert", "FILE", "a client certificate, if the server requires one, in PEM"}, {     \
        "remote-key", "FILE", "the key of --remote-cert, in PEM"                                   \
    }

/* The remote tier of --prefix-remote. */
typedef struct caching_remote {
    struct gqac_remote *server; /* NULL: none is wanted */
} caching_remote;
/* Reads the flags, and sets the remote tier of the options, which uses *tier. */
gqac_status caching_open_remote(cli *c, caching_remote *tier, gqac_store_options *options);
/* USAGE: a flag of CACHING_TLS_FLAGS is given without `needed`. */
gqac_status caching_refuse_tls(cli *c, const char *needed);
/* True if the text is the address of a remote tier, and not a folder. */
bool caching_is_address(const char *text);
/* Prints what the server of a remote tier says about itself. USAGE: as of caching_open_remote; IO:
 * it does not answer, or a file cannot be read. */
gqac_status caching_print_remote(cli *c, const char *address);
/* Gives all later calls of the tier together ten times `ms`; after that they fail. */
void caching_end_remote(caching_remote *tier, int64_t ms);
/* To be called after the store is freed. */
void caching_close_remote(caching_remote *tier);

/* Checks the flags before the model is loaded. */
gqac_status caching_check(cli *c);
/* Opens the store of --prefix-store and --prefix-remote, for the options of a session; NULL: none
 * is wanted. The store uses *tier. */
gqac_status caching_open(cli *c, const gqac_program *program, caching_remote *tier,
                         gqac_store **store);
/* Makes a folder of snapshot files, unless it exists. */
gqac_status caching_make_folder(cli *c, const char *folder);
/* Fills the session from --prompt-cache. A damaged file is reported on stderr, and not used. USAGE:
 * the file belongs to another model or profile. */
gqac_status caching_load(cli *c, gqac_session *session);
/* After answers: saves the session to both. */
gqac_status caching_save(cli *c, gqac_store *store, const gqac_session *session);

#endif
