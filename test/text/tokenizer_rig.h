/* What the tests of tokenizers share: files that are changed, and the expected results. */
#ifndef GQAC_TEST_TOKENIZER_RIG_H
#define GQAC_TEST_TOKENIZER_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "text/tokenizer/tokenizer.h"
#include "unit.h"

/* A copy of a text in which one piece is replaced; the caller frees it. */
static inline char *exchanged(const char *whole, const char *find, const char *put) {
    const char *at = strstr(whole, find);
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    char *text = malloc(strlen(whole) + strlen(put) + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    size_t head = (size_t)(at - whole);
    memcpy(text, whole, head);
    strcpy(text + head, put);
    strcat(text, at + strlen(find));
    return text;
}

/* A tokenizer.json of test/tokenizers, without a NUL at the end; the caller frees it. */
static inline char *file_text(const char *style, size_t *length) {
    char relative[128];
    snprintf(relative, sizeof relative, "test/tokenizers/%s/tokenizer.json", style);
    FILE *f = fopen(unit_path(relative), "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    char *text = malloc(1 << 17);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    *length = fread(text, 1, 1 << 17, f);
    fclose(f);
    return text;
}

static inline gqac_status create(const char *text, size_t length, tokenizer **t, gqac_diag *diag) {
    *diag = (gqac_diag){0};
    return tokenizer_create(text, length, t, diag);
}

/* Expects the text to be refused with this status, without a leak. */
static inline void refuse(const char *text, size_t length, gqac_status status, const char *word) {
    tokenizer *t;
    gqac_diag diag;
    size_t live = gqac_alloc_live();
    gqac_status got = create(text, length, &t, &diag);
    bool named = strstr(diag.what, word) || strstr(diag.where, word);
    CU_ASSERT_EQUAL(got, status);
    CU_ASSERT(named);
    CU_ASSERT_PTR_NULL(t);
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.where, "tokenizer.json"));
    if (got != status || !named)
        printf("expected %s '%s', got %s: %s (%s)\n", gqac_status_name(status), word,
               gqac_status_name(got), diag.what, diag.where);
    tokenizer_free(t);
}

static inline tokenizer *made(const char *text) {
    tokenizer *t;
    gqac_diag diag;
    gqac_status status = create(text, strlen(text), &t, &diag);
    if (status != GQAC_OK)
        printf("%s (%s)\n", diag.what, diag.where);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    return t;
}

/* `expected` is ids with spaces between them. */
static inline void expect_ids(const tokenizer *t, const char *text, size_t length, bool special,
                              const char *expected) {
    gqac_diag diag = {0};
    int64_t *ids;
    size_t n;
    gqac_str line = {0};
    CU_ASSERT_EQUAL_FATAL(tokenizer_encode(t, text, length, special, &ids, &n, &diag), GQAC_OK);
    gqac_str_append(&line, "");
    for (size_t i = 0; i < n; i++)
        gqac_str_printf(&line, "%s%lld", i ? " " : "", (long long)ids[i]);
    CU_ASSERT_STRING_EQUAL(line.text, expected);
    if (strcmp(line.text, expected) != 0)
        printf("'%s': %s, not %s\n", text, line.text, expected);
    gqac_str_free(&line);
    gqac_free(ids);
}

/* Calls every function once, up to the first failure. */
static inline gqac_status whole_life(const char *json, size_t bytes, gqac_diag *diag) {
    static const char text[] = "<s> cab Ab\xcc\x88"
                               "cd 12  qq\xf0\x9f\x98\x80 [INST] <|im_end|>\n "
                               "a word that is longer than most words are: "
                               "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    tokenizer *t;
    gqac_status status = tokenizer_create(json, bytes, &t, diag);
    if (status != GQAC_OK)
        return status;
    int64_t *ids = NULL;
    char *back = NULL;
    const char *piece;
    size_t n = 0, length;
    tokenizer_stream *stream = NULL;
    status = tokenizer_encode(t, text, sizeof text - 1, true, &ids, &n, diag);
    if (status == GQAC_OK)
        status = tokenizer_decode(t, ids, n, false, &back, &length, diag);
    if (status == GQAC_OK)
        status = tokenizer_stream_create(t, &stream, diag);
    for (size_t i = 0; i <= n && status == GQAC_OK; i++)
        status = i < n ? tokenizer_stream_push(stream, ids[i], &piece, &length, diag)
                       : tokenizer_stream_finish(stream, &piece, &length, diag);
    tokenizer_stream_free(stream);
    gqac_free(ids);
    gqac_free(back);
    tokenizer_free(t);
    return status;
}

/* In whole_life, fails each allocation once, and all from each one on. */
static inline void fail_each(const char *json, size_t bytes) {
    gqac_diag diag = {0};
    size_t live = gqac_alloc_live();
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_EQUAL_FATAL(whole_life(json, bytes, &diag), GQAC_OK);
    size_t calls = gqac_alloc_calls();
    CU_ASSERT(calls > 10);
    size_t absorbed = 0;
    for (size_t i = 1; i <= 2 * calls; i++) {
        int persist = i > calls;
        gqac_alloc_fail_at(persist ? i - calls : i, persist);
        gqac_status status = whole_life(json, bytes, &diag);
        CU_ASSERT(status == GQAC_NO_MEMORY || (status == GQAC_OK && !persist));
        CU_ASSERT_EQUAL(gqac_alloc_live(), live);
        absorbed += status == GQAC_OK;
    }
    CU_ASSERT(absorbed <= 5); /* an expression that could not release memory */
    gqac_alloc_fail_at(0, 0);
}

#endif
