/* --speculate and --draft of `generate` and `chat`. */
#ifndef GQAC_CLI_DRAFTING_H
#define GQAC_CLI_DRAFTING_H

#include "cli/cli.h"

typedef struct drafting { /* zeros: no drafts, or prompt lookup alone */
    gqac_program *program;
    gqac_text *text;
    gqac_context *context;
    gqac_session *session;
} drafting;

/* Reads --speculate into the request, before the model is loaded. */
gqac_status drafting_choose(cli *c, gqac_generate_request *request);
/* Opens the model of --draft on the threads of the other; says on stderr why a session cannot
 * speculate. The request has the session of the answer. */
gqac_status drafting_open(drafting *d, cli *c, const gqac_program *program, gqac_threads *threads,
                          gqac_generate_request *request);
void drafting_close(drafting *d);

#endif
