/* What `gqac inspect --plan`, `--memory N` and `--invariance` print about a program. */
#ifndef GQAC_CLI_INSPECT_H
#define GQAC_CLI_INSPECT_H

#include "cli/cli.h"

typedef struct inspect_costs {
    gqac_program *program;        /* NULL: no flag needs it */
    gqac_plan *plan;              /* NULL: no --plan */
    bool has_memory, has_padding; /* has_padding: --invariance of a model with sequences */
    const char *kv;               /* kind of cache for the memory; NULL: contiguous */
    int64_t tokens, threshold;    /* threshold: gqac_program_rope_threshold, with has_padding */
    gqac_memory memory;
} inspect_costs;

/* Opens the model and computes what the flags ask for; an artefact is opened for the target and
 * --math that it was compiled for. */
gqac_status inspect_costs_open(cli *c, const gqac_info *info, inspect_costs *x);
void inspect_costs_json(const inspect_costs *x, json_t *root); /* adds "plan" and "memory" */
void inspect_costs_print(const inspect_costs *x);
void inspect_costs_free(inspect_costs *x);

#endif
