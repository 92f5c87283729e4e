/* Sessions: the cached rows of one conversation, for gqac_generate. */
#ifndef GQAC_SESSION_H
#define GQAC_SESSION_H

#include <gqac/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A sequence for gqac_generate, with the ids of its tokens. The longest prefix of a new prompt that
 * the sequence already holds, or that is baked into the artefact of the program (snapshot.h), is
 * not computed again, except for the last id of the prompt. Answers are the same as with a new
 * session of that kind. They are also those of kind "off", unless the kind is "quantised" or
 * "quantised4". */
typedef struct gqac_session gqac_session;
typedef struct gqac_session_options {
    size_t size;
    /* Kind of cache, as gqac_sequence_options.kv; NULL: "contiguous"; "off": no cache, each new id
     * computes all tokens again. With kind "windowed" a prompt is computed from its first token on
     * if it needs rows that are no longer kept. */
    const char *kv;
    int64_t context;    /* maximum number of tokens of prompt and answer together; 0: the model's */
    gqac_store *store;  /* prompts continue what it has cached, and its rows are added to it; NULL:
                           none. It must outlive the session */
    const char *tenant; /* of the store; NULL: "". It must outlive the session */
} gqac_session_options;
static inline void gqac_session_options_init(gqac_session_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}
/* Creates an empty session; options NULL: defaults. The caller frees *session, before the program.
 * The program must be for sequences; with kind "off" it may also be a stateless one that
 * gqac_forward_stateless can run. USAGE: the kind is unknown, or the store is of another program or
 * given with kind "off"; OUT_OF_RANGE: `context` is negative; UNSUPPORTED: gqac_forward_stateless
 * cannot run the stateless program; NO_MEMORY. */
GQAC_API gqac_status gqac_session_create(const gqac_program *program,
                                         const gqac_session_options *options,
                                         gqac_session **session, gqac_diag *diag);
GQAC_API void gqac_session_free(gqac_session *session);
/* Returns the name of the kind, without alias: "contiguous", "paged", ..., or "off"; never NULL. */
GQAC_API const char *gqac_session_kind(const gqac_session *session);
/* Returns the *n ids whose rows are cached; none with kind "off". They belong to the session and
 * are valid until the next call with it. */
GQAC_API const int64_t *gqac_session_ids(const gqac_session *session, size_t *n);
/* Returns the sequence of the session, to save it or to take a snapshot; NULL with kind "off". It
 * belongs to the session and is valid until the next call with it. */
GQAC_API const gqac_sequence *gqac_session_sequence(const gqac_session *session);
/* Replaces the cached rows by those of a snapshot; the next prompt reuses the longest prefix that
 * it has in common with them. On failure the session is unchanged. USAGE: a snapshot of another
 * program, of another kind of cache, or with imported tokens, whose ids are unknown; kind "off";
 * CAPACITY: it has more tokens than the context of the session; NO_MEMORY. */
GQAC_API gqac_status gqac_session_restore(gqac_session *session, const gqac_snapshot *snapshot,
                                          gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
