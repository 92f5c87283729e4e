/* What the tests of src/passes share: modules from text, running passes, and the resulting text. */
#ifndef GQAC_TEST_SUPPORT_PASSES_H
#define GQAC_TEST_SUPPORT_PASSES_H

#include "passes/rewrite.h"
#include "unit.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* A module with its own arena, and a context for target ref. */
typedef struct fixture {
    gqac_arena *arena;
    ir_module *module;
    pass_context context;
    gqac_diag diag;
} fixture;

/* Parses text; if it does not parse, prints the error and returns false. */
bool fixture_open(fixture *f, const char *text);
void fixture_close(fixture *f);
/* The graph as text with every constant in full. The caller frees it with gqac_free. */
char *fixture_text(const fixture *f);
/* Runs one pass as the runner does, with sweep and verify after it. */
gqac_status fixture_run(fixture *f, const gqac_pass *pass);
/* Runs infer, then the pass. */
gqac_status fixture_typed_run(fixture *f, const gqac_pass *pass);
const gqac_pass *fixture_pass(const char *name);
/* The text after infer and the pass; NULL if anything failed. */
char *text_after(const char *text, const gqac_pass *pass);

#endif
