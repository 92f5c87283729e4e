/* The record of a norm, for kernels of all targets. */
#ifndef GQAC_TARGETS_NORM_H
#define GQAC_TARGETS_NORM_H

#include "ops/norm_rows.h"

/* Attributes, and value numbers; -1: absent. */
typedef struct target_norm {
    norm_form form;
    int x, skip, weight, beta, bias;
    int y, sum, mean, inv;
} target_norm;

#endif
