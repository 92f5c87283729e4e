/* A thin front on CUnit: one table of cases a program, one line `N passed, N failed` at the end.
 * A case passes when none of its CU_ASSERTs fails. With an argument, only cases whose title holds
 * that text are run. */
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

/* True when GQAC_TEST_FULL is set: the long tier. */
bool unit_full(void);
/* Cases of a tier: quick, or full in the long one; GQAC_TEST_CASES replaces the number. */
int unit_count(int quick, int full);
/* Folder of the source tree (GQAC_SOURCE_DIR), e.g. unit_path("test/models/llama/model.onnx").
 * The result is valid until the fourth next call. */
const char *unit_path(const char *relative);

#endif
