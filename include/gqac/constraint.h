/* Constraints on the text of an answer: a grammar, a JSON Schema, or the tools that it must call.
 *
 *   gqac_constraint *only;
 *   gqac_constraint_from_grammar(text, "root ::= \"yes\" | \"no\"", 21, &only, &diag);
 *   request.constraint = only;
 *   gqac_generate(context, text, 1, &request, &said, &diag);
 *   gqac_constraint_free(only);
 *
 * Before an id is chosen, a token is masked if its bytes, added to the answer so far, cannot begin
 * a text that the constraint accepts. Tokens may end anywhere, also within a character. An
 * end-of-text id may be chosen only where the answer is complete. A complete answer that cannot be
 * continued ends. docs/generation.md describes grammars and the keywords of schemas.
 */
#ifndef GQAC_CONSTRAINT_H
#define GQAC_CONSTRAINT_H

#include <gqac/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A compiled grammar, schema or list of tools, for the tokens of one tokenizer. Threads may share
 * it. */
typedef struct gqac_constraint gqac_constraint;

/* Compiles a grammar of `length` bytes, or a JSON Schema as JSON. `text` must have a tokenizer, and
 * outlive the constraint, which the caller frees. The first call for a text reads all its tokens.
 * INVALID_INPUT: the grammar or schema is wrong (diag->where has the line of the grammar, or the
 * path in the schema), or nothing satisfies it; UNSUPPORTED: a keyword of the schema that gqac does
 * not have, or a tokenizer that cannot be used; LIMIT: the grammar or schema is too large; USAGE:
 * there is no tokenizer; NO_MEMORY. */
GQAC_API gqac_status gqac_constraint_from_grammar(const gqac_text *text, const char *grammar,
                                                  size_t length, gqac_constraint **constraint,
                                                  gqac_diag *diag);
GQAC_API gqac_status gqac_constraint_from_schema(const gqac_text *text, const char *schema,
                                                 size_t length, gqac_constraint **constraint,
                                                 gqac_diag *diag);
/* Which tool calls an answer has. */
typedef struct gqac_tool_choice {
    size_t size;
    const char *name; /* the only function that may be called; NULL: any of them */
    bool parallel;    /* several calls may follow each other, if the template has a way to write
                         them; else there is exactly one */
    bool optional;    /* the answer may also be text, in place of a call and before it; a function
                         that is not "strict" may then have any object as arguments */
} gqac_tool_choice;
static inline void gqac_tool_choice_init(gqac_tool_choice *choice) {
    memset(choice, 0, sizeof *choice);
    choice->size = sizeof *choice;
    choice->parallel = true;
}
/* Compiles `tools` (in the form that gqac_calls_create reads) to a constraint: the answer consists
 * of calls of these functions and nothing else, in the syntax of the model's chat template, so that
 * a gqac_calls finds each call. The arguments of a call satisfy the JSON Schema in the "parameters"
 * of its function, which must be that of an object; without "parameters" they are {}. Markers of
 * the syntax that are special tokens are chosen as special tokens. `choice` NULL: that of
 * gqac_tool_choice_init. *constraint is NULL, because any answer is allowed, if calls are optional
 * and parallel, there is no `name`, and no function is "strict". Ownership and other errors are
 * those of gqac_constraint_from_grammar. INVALID_INPUT: no function has the name, or one cannot be
 * called; UNSUPPORTED: the template does not write calls in a known syntax; USAGE: there is no
 * template. diag->where is empty unless the tools are wrong. */
GQAC_API gqac_status gqac_constraint_from_tools(const gqac_text *text, const char *tools,
                                                size_t length, const gqac_tool_choice *choice,
                                                gqac_constraint **constraint, gqac_diag *diag);
/* May be called while requests and states use the constraint: the last of them frees it. */
GQAC_API void gqac_constraint_free(gqac_constraint *constraint);

/* ---- for a loop of the caller's own ------------------------------------------- */

/* The progress of one answer through a constraint. Only one thread at a time may use a state;
 * states of one constraint may be used by different threads. */
typedef struct gqac_constraint_state gqac_constraint_state;
/* Creates the state of an empty answer, which the caller frees. LIMIT: the grammar is too
 * ambiguous; NO_MEMORY. */
GQAC_API gqac_status gqac_constraint_begin(gqac_constraint *constraint,
                                           gqac_constraint_state **state, gqac_diag *diag);
/* Creates a second state of the same answer so far. The caller frees *fork. NO_MEMORY. */
GQAC_API gqac_status gqac_constraint_fork(const gqac_constraint_state *state,
                                          gqac_constraint_state **fork, gqac_diag *diag);
GQAC_API void gqac_constraint_state_free(gqac_constraint_state *state);

/* Sets the logit of each id that cannot follow to NaN, so that gqac_sample does not choose it;
 * logits are [vocabulary]. The ids eos[0..n_eos) can follow if and only if the answer may end.
 * INVALID_INPUT: the answer may not end, and no token of the vocabulary continues it; LIMIT: as for
 * gqac_constraint_begin; NO_MEMORY. */
GQAC_API gqac_status gqac_constraint_mask(gqac_constraint_state *state, float *logits,
                                          int64_t vocabulary, const int64_t *eos, int n_eos,
                                          gqac_diag *diag);
/* Adds the bytes of a token to the answer; it must not be an end-of-text id. On failure the state
 * is unchanged. INVALID_INPUT: it cannot follow; LIMIT, NO_MEMORY: as for gqac_constraint_mask. */
GQAC_API gqac_status gqac_constraint_push(gqac_constraint_state *state, int64_t id,
                                          gqac_diag *diag);
/* Sets *may_end to whether the answer is complete, and *must_end, if not NULL, to whether it is
 * complete and no token can follow. LIMIT, NO_MEMORY: as for gqac_constraint_mask. */
GQAC_API gqac_status gqac_constraint_ends(gqac_constraint_state *state, bool *may_end,
                                          bool *must_end, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
