/* Kernels of linear_integer, one set for each level: rows of A are converted to the form that the
 * level can multiply, then tiles of some rows and panels are computed independently. Integer sums
 * are exact: every level, tile and order computes the same result. */
#ifndef GQAC_TARGETS_CPU_INTEGER_H
#define GQAC_TARGETS_CPU_INTEGER_H

#include "ops/integer.h"
#include "targets/cpu/cpu.h"

typedef struct cpu_integer_job {
    integer_product p;
    unsigned char *form; /* rows of row_bytes(words) */
    int32_t *sums;       /* sum of the codes of a row minus its zero point */
} cpu_integer_job;

typedef struct cpu_integer_kernels {
    size_t (*row_bytes)(int64_t words);
    void (*prepare)(const cpu_integer_job *j, int64_t row);
    /* Computes some rows of some panels of y. */
    void (*run)(const cpu_integer_job *j, int64_t panel, int64_t panels, int64_t row, int64_t rows);
} cpu_integer_kernels;

typedef struct cpu_integer_record {
    int64_t k, n;
    int a, weight, terms, a_zero, y; /* values; a_zero -1: none */
} cpu_integer_record;
gqac_status cpu_integer_run(target_call *call, const void *record);
gqac_status cpu_integer_scratch(const target_call *call, int threads, const void *record,
                                gqac_parts *parts);

#endif
