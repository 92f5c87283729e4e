/* What the tests of gqac_text_open share: a folder of their own, and the last opened text. */
#ifndef GQAC_TEST_LLM_TEXT_RIG_H
#define GQAC_TEST_LLM_TEXT_RIG_H

#include "unit.h"

#include <gqac/text.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char scratch[] = "/tmp/gqac-text-XXXXXX";
static gqac_diag diag;
static gqac_text *text;

static const char config[] =
    "{\"model\": {\"vocab_size\": 258, \"eos_token_id\": 257, \"decoder\": "
    "{\"filename\": \"model.onnx\"}}}";

static inline const char *path_of(const char *name) {
    static char path[4][256];
    static int next;
    char *const p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", scratch, name);
    return p;
}

static inline void put(const char *name, const char *content) {
    FILE *f = fopen(path_of(name), "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fputs(content, f);
    fclose(f);
}

static inline void clear(void) {
    static const char *const names[] = {"genai_config.json",
                                        "generation_config.json",
                                        "config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "chat_template.jinja",
                                        "chat_template.json",
                                        "model.onnx",
                                        "other.onnx",
                                        "a.gqac"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(path_of(names[i]));
}

static inline gqac_status open_text(const char *model, unsigned parts) {
    gqac_text_free(text);
    text = NULL;
    memset(&diag, 0, sizeof diag);
    return gqac_text_open(model, parts, &text, &diag);
}

/* The main of such a test. */
static inline int run_text(const unit_case *cases, size_t n, int argc, char **argv) {
    if (!mkdtemp(scratch))
        return 2;
    const int failed = unit_run("text", cases, n, argc, argv);
    gqac_text_free(text);
    clear();
    rmdir(scratch);
    return failed;
}

#endif
