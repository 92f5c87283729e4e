/* --speculate, and --draft of `generate` and `chat`. */
#ifndef GQAC_CLI_DRAFTING_H
#define GQAC_CLI_DRAFTING_H

#include "cli/cli.h"

typedef struct drafting { /* zeros: no drafts, or prompt lookup alone */
    gqac_program *program;
    gqac_text *text;
    gqac_context *context;
    gqac_session *session;
} drafting;

#define DRAFTING_FLAG                                                                              \
    {                                                                                              \
        "speculate", "N",                                                                          \
            "drafts up to N tokens per step from earlier text; the answer stays the same (0: off)" \
    }

/* Reads --speculate. */
gqac_status drafting_most(cli *c, int64_t *most);
/* Says on stderr why nothing is drafted; why NULL: nothing. */
void drafting_warn(cli *c, int64_t most, const char *why);
/* Reads --speculate into the request, before the model is loaded. */
gqac_status drafting_choose(cli *c, gqac_generate_request *request);
/* Opens the model of --draft on the threads of the other; says on stderr why a session cannot
 * speculate. The request has the session of the answer. */
gqac_status drafting_open(drafting *d, cli *c, const gqac_program *program, gqac_threads *threads,
                          gqac_generate_request *request);
void drafting_close(drafting *d);

#endif
