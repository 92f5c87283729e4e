/* Shared by the workers that run gqac. */
#ifndef GQAC_BENCH_WORKER_H
#define GQAC_BENCH_WORKER_H

#include <gqac/gqac.h>
#include <stdio.h>

/* Prints why the worker ends; returns its exit code. */
static inline int failed_with(const gqac_diag *diag) {
    printf("failed %s: %s %s\n", gqac_status_name(diag->status), diag->what, diag->where);
    fflush(stdout);
    return 1;
}

#endif
