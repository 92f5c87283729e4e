/* What the tests of generation share: opening models, one request in one line, and a text whose
 * tokenizer is a table of pieces, so that tests choose where ids divide characters and stop texts.
 * The functions of text.h that generation calls are defined here, in place of those in text.c. */
#ifndef GQAC_TEST_LLM_GENERATE_RIG_H
#define GQAC_TEST_LLM_GENERATE_RIG_H

#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "llm/llm.h"

/* ---- models -------------------------------------------------------------- */

typedef struct rig {
    gqac_program *program;
    gqac_context *context;
} rig;

static gqac_diag diag;

static inline rig open_rig(const char *path, int threads) {
    rig r = {0};
    gqac_options options;
    gqac_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(path, &options, &r.program, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(r.program, threads, &r.context, &diag), GQAC_OK);
    return r;
}

static inline rig open_model(const char *name, int threads) {
    char path[64];
    snprintf(path, sizeof path, "test/models/%s/model.onnx", name);
    return open_rig(unit_path(path), threads);
}

static inline void close_rig(rig *r) {
    gqac_context_free(r->context);
    gqac_program_free(r->program);
}

static inline gqac_session *open_session(const rig *r, const char *kv, int64_t context) {
    const gqac_session_options options = {.size = sizeof options, .kv = kv, .context = context};
    gqac_session *session = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_session_create(r->program, &options, &session, &diag), GQAC_OK);
    return session;
}

/* The ids of an artificial prompt; equal `seed`, equal beginning. */
static inline void fill_ids(int64_t *ids, size_t n, int seed) {
    for (size_t i = 0; i < n; i++)
        ids[i] = (int64_t)(i * 37 + 11 + (size_t)seed * 101) % 250;
}

static inline gqac_generation *generate(const rig *r, const gqac_generate_request *request) {
    gqac_generation *g = NULL;
    diag = (gqac_diag){0};
    const gqac_status status = gqac_generate(r->context, NULL, 1, request, &g, &diag);
    if (status != GQAC_OK)
        printf("generate: %s '%s' %s\n", gqac_status_name(status), diag.what, diag.where);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    CU_ASSERT(!*diag.what); /* also if steps were repeated */
    return g;
}

static inline bool same_ids(const gqac_generation *a, const gqac_generation *b) {
    return a->n_ids == b->n_ids && a->finish == b->finish &&
           !memcmp(a->ids, b->ids, a->n_ids * sizeof *a->ids);
}

/* ---- a text of pieces ---------------------------------------------------- */

typedef struct pieces {
    const char *const *text; /* of each id; NULL: the tokenizer does not have this id */
    int n;
    int64_t broken; /* pushing this id is INTERNAL; -1: none */
} pieces;

static inline gqac_text pieces_text(const pieces *p) {
    return (gqac_text){.settings = {.has_tokenizer = true}, .tokenizer = (tokenizer *)(void *)p};
}

struct gqac_text_stream {
    const pieces *pieces;
    gqac_str bytes; /* pushed bytes that have not been returned */
    gqac_str given;
};

const gqac_text_settings *gqac_text_get_settings(const gqac_text *text) {
    return &text->settings;
}

gqac_status gqac_text_stream_create(const gqac_text *text, gqac_text_stream **stream,
                                    gqac_diag *d) {
    (void)d;
    *stream = gqac_calloc(1, sizeof **stream);
    if (!*stream)
        return GQAC_NO_MEMORY;
    (*stream)->pieces = (const pieces *)(void *)text->tokenizer;
    return GQAC_OK;
}

void gqac_text_stream_free(gqac_text_stream *stream) {
    if (!stream)
        return;
    gqac_str_free(&stream->bytes);
    gqac_str_free(&stream->given);
    gqac_free(stream);
}

/* Returns the complete characters at the beginning of the pushed bytes. */
static inline gqac_status give(gqac_text_stream *s, bool all, const char **piece, size_t *length) {
    size_t at = 0;
    gqac_str_free(&s->given);
    while (at < s->bytes.length) {
        const size_t n = gqac_utf8_char(s->bytes.text + at, s->bytes.length - at);
        if (!n && !all)
            break;
        gqac_str_append_n(&s->given, n ? s->bytes.text + at : "\xef\xbf\xbd", n ? n : 3);
        at += n ? n : 1;
    }
    gqac_str rest = {0};
    gqac_str_append_n(&rest, at < s->bytes.length ? s->bytes.text + at : "", s->bytes.length - at);
    const bool failed = s->given.failed || rest.failed || s->bytes.failed;
    gqac_str_free(&s->bytes);
    s->bytes = rest;
    *piece = s->given.length ? s->given.text : "";
    *length = s->given.length;
    return failed ? GQAC_NO_MEMORY : GQAC_OK;
}

gqac_status gqac_text_stream_push(gqac_text_stream *s, int64_t id, const char **piece,
                                  size_t *length, gqac_diag *d) {
    (void)d;
    if (id == s->pieces->broken)
        return GQAC_INTERNAL;
    if (id >= s->pieces->n || !s->pieces->text[id])
        return GQAC_OUT_OF_RANGE;
    gqac_str_append(&s->bytes, s->pieces->text[id]);
    return give(s, false, piece, length);
}

gqac_status gqac_text_stream_finish(gqac_text_stream *s, const char **piece, size_t *length,
                                    gqac_diag *d) {
    (void)d;
    return give(s, true, piece, length);
}

/* For markers of calls, which no test with this header has. */
gqac_status gqac_text_token_bytes(const gqac_text *text, int64_t id, char **bytes, size_t *length,
                                  bool *special, gqac_diag *d) {
    (void)text, (void)id, (void)bytes, (void)length, (void)special, (void)d;
    return GQAC_OUT_OF_RANGE;
}

#endif
