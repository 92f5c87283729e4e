/* A thin layer over CUnit: a program has one table of cases, and prints one line `N passed, N
 * failed` at the end. A case passes if none of its CU_ASSERTs fails. With an argument, only cases
 * whose title contains that text are run. */
#ifndef GQAC_TEST_UNIT_H
#define GQAC_TEST_UNIT_H

#include <CUnit/CUnit.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct unit_case {
    const char *title;
    void (*run)(void);
} unit_case;

/* Runs the cases, prints what failed, returns the exit code of the program. */
int unit_run(const char *suite, const unit_case *cases, size_t count, int argc, char **argv);

/* True if GQAC_TEST_FULL is set: the long tier. */
bool unit_full(void);
/* The number of cases: quick, or, in the long tier, full; GQAC_TEST_CASES replaces it. */
int unit_count(int quick, int full);
/* A path below the root of the source tree (GQAC_SOURCE_DIR), e.g.
 * unit_path("test/models/llama/model.onnx"). The result is valid until the fourth next call. */
const char *unit_path(const char *relative);

#endif
