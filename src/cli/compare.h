/* The difference of two tensors. */
#ifndef GQAC_CLI_COMPARE_H
#define GQAC_CLI_COMPARE_H

#include "cli/cli.h"

typedef struct compare_result {
    double relative; /* max|actual - expected| / max|expected|; infinite when one is NaN or infinite
                        and the other is not the same, or when type or shape differ */
    int64_t index; /* index of the element with the largest difference; -1: type or shape differ */
    double actual, expected;
} compare_result;

/* Float tensors of up to 64 bits. Elements that are both NaN, or the same infinity, are equal. */
compare_result compare_tensors(const gqac_tensor *actual, const gqac_tensor *expected);

#endif
