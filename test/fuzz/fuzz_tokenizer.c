/* tokenizer.json: reading it, texts to ids, ids to texts. */
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "llm/llm.h"

static gqac_status back(const tokenizer *t, const int64_t *ids, size_t n, gqac_diag *diag) {
    char *text = NULL;
    size_t length;
    tokenizer_stream *stream = NULL;
    gqac_status status =
        fuzz_check(tokenizer_decode(t, ids, n, n % 2 == 0, &text, &length, diag), diag);
    if (status == GQAC_OK && length && !gqac_utf8_valid(text, length) && !memchr(text, 0, length))
        fuzz_broken("a decoded text is not UTF-8");
    gqac_free(text);
    if (status == GQAC_OK)
        status = fuzz_check(tokenizer_stream_create(t, &stream, diag), diag);
    for (size_t i = 0; status == GQAC_OK && i <= n; i++) {
        const char *piece;
        status = fuzz_check(i < n ? tokenizer_stream_push(stream, ids[i], &piece, &length, diag)
                                  : tokenizer_stream_finish(stream, &piece, &length, diag),
                            diag);
    }
    tokenizer_stream_free(stream);
    return status;
}

static gqac_status use(const tokenizer *t, gqac_diag *diag) {
    static const char *const texts[] = {
        "", "Once upon a time, 12345 <s> it's\n\n  \xc3\xa9t\xc3\xa9 \xe4\xbd\xa0\xf0\x9f\x98\x80.",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabababababababab",
        "e\xcc\x81\xc3\x85 \xef\xac\x81 A\xcc\x8a"};
    gqac_status status = GQAC_OK;
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
        int64_t *ids = NULL;
        size_t n = 0;
        status = fuzz_check(tokenizer_encode(t, texts[i], strlen(texts[i]), i % 4, &ids, &n, diag),
                            diag);
        if (status == GQAC_OK)
            status = back(t, ids, n, diag);
        gqac_free(ids);
    }
    for (int64_t id = -1; id < 24; id++) {
        char *bytes = NULL;
        size_t length;
        bool special;
        const int64_t pair[2] = {id, id ^ 1};
        (void)fuzz_check(tokenizer_bytes(t, id, &bytes, &length, &special, diag), diag);
        gqac_free(bytes);
        (void)back(t, pair, 2, diag);
    }
    return status;
}

static gqac_status run(const uint8_t *data, size_t size) {
    gqac_diag diag = {0};
    tokenizer *t = NULL;
    char *copy = malloc(size + 1); /* the bytes of a file are followed by a NUL */
    memcpy(copy, data, size);
    copy[size] = 0;
    gqac_status status = fuzz_check(folder_check_json(copy, size, &diag), &diag);
    if (status == GQAC_OK)
        status = fuzz_check(tokenizer_create(copy, size, &t, &diag), &diag);
    if (status == GQAC_OK)
        status = use(t, &diag);
    tokenizer_free(t);
    free(copy);
    return status;
}

const fuzz_target fuzz_target_tokenizer = {"tokenizer", run, NULL};
