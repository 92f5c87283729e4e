/* --check-finite: finds the first node of a run whose result has a NaN or an infinity. */
#ifndef GQAC_CLI_FINITE_H
#define GQAC_CLI_FINITE_H

#include "cli/cli.h"

typedef struct finite_finding {
    bool found;
    char node[256], op[64], value[256]; /* "": it has no name */
    int rank;
    int64_t at[GQAC_MAX_RANK]; /* index of the first such element */
    double number;
} finite_finding;

/* Observes all later runs of the context. An infinity below zero is not reported: masks have it. */
void finite_watch(finite_finding *f, gqac_context *context);
/* Fails with MISMATCH if a node was found. */
gqac_status finite_check(cli *c, const finite_finding *f);

#endif
