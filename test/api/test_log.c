/* The log of a host: which lines pass at each level, from which calls, and that nothing is written
 * if no lines are wanted. */
#include "unit.h"

#include <gqac/gqac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL GQAC_SOURCE_DIR "/test/models/llama/model.onnx"

static gqac_diag diag;

typedef struct lines {
    int n[GQAC_LOG_DEBUG + 1];
    char all[1 << 16];
} lines;

static void keep(void *arg, gqac_log_level level, const char *text) {
    lines *l = arg;
    const size_t used = strlen(l->all);
    CU_ASSERT_FATAL(level > GQAC_LOG_NONE && level <= GQAC_LOG_DEBUG);
    CU_ASSERT(*text && !strchr(text, '\n'));
    l->n[level]++;
    snprintf(l->all + used, sizeof l->all - used, "%s\n", text);
}

/* Opens the model and runs two steps, one that succeeds and one that fails. */
static void run(const gqac_log *log) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_context *context = NULL;
    gqac_sequence *sequence = NULL;
    const int64_t ids[] = {3, 1, 4, 1, 5}, wrong[] = {9, -2};
    gqac_options_init(&options);
    options.log = log;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(MODEL, &options, &program, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 2, &context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, NULL, &sequence, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_append(context, sequence, ids, 5, 1, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_append(context, sequence, wrong, 2, 1, &diag), GQAC_OUT_OF_RANGE);
    gqac_sequence_free(sequence);
    gqac_context_free(context);
    gqac_program_free(program);
}

static void test_levels(void) {
    static lines l;
    gqac_log log = {.size = sizeof log, .line = keep, .arg = &l};
    run(&log);
    CU_ASSERT_STRING_EQUAL(l.all, "");
    log.level = GQAC_LOG_WARNING;
    run(&log);
    CU_ASSERT_STRING_EQUAL(l.all, ""); /* there is nothing to warn about */
    log.level = GQAC_LOG_INFO;
    run(&log);
    CU_ASSERT(l.n[GQAC_LOG_INFO] == 1 && l.n[GQAC_LOG_DEBUG] == 0);
    CU_ASSERT(strstr(l.all, "opened " MODEL) && strstr(l.all, "target cpu"));
    log.level = GQAC_LOG_DEBUG;
    run(&log);
    CU_ASSERT(l.n[GQAC_LOG_INFO] == 2 && l.n[GQAC_LOG_WARNING] == 0);
    CU_ASSERT(strstr(l.all, "pass import") && strstr(l.all, "context on 2 threads"));
    CU_ASSERT_PTR_NOT_NULL(strstr(l.all, "step of 1 sequences, 5 tokens: OK"));
    CU_ASSERT_PTR_NOT_NULL(strstr(l.all, "step of 1 sequences, 2 tokens: OUT_OF_RANGE"));
}

/* A name from outside becomes one line without control characters. */
static void test_one_line(void) {
    static lines l;
    gqac_options options;
    gqac_program *program = NULL;
    const gqac_log log = {.size = sizeof log, .line = keep, .arg = &l, .level = GQAC_LOG_INFO};
    char folder[] = "/tmp/gqac-\n\x1b[1mopened-XXXXXX", path[64];
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/m.onnx", folder);
    gqac_options_init(&options);
    options.log = &log;
    options.model_root = GQAC_SOURCE_DIR "/test/models/llama";
    CU_ASSERT_EQUAL_FATAL(symlink(MODEL, path), 0);
    const gqac_status status = gqac_program_open(path, &options, &program, &diag);
    CU_ASSERT_EQUAL(status, GQAC_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(l.all, "/gqac-??[1mopened-"));
    gqac_program_free(program);
    unlink(path);
    rmdir(folder);
}

/* The struct is copied: the program outlives that of the caller. */
static void test_copied(void) {
    static lines l;
    gqac_options options;
    gqac_program *program = NULL;
    gqac_context *context = NULL;
    gqac_log log = {.size = sizeof log, .line = keep, .arg = &l, .level = GQAC_LOG_DEBUG};
    gqac_options_init(&options);
    options.log = &log;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(MODEL, &options, &program, &diag), GQAC_OK);
    memset(&log, 0x5a, sizeof log);
    const int before = l.n[GQAC_LOG_DEBUG];
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(l.n[GQAC_LOG_DEBUG], before + 1);
    gqac_context_free(context);
    gqac_program_free(program);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"lines of each level", test_levels},
        {"one line", test_one_line},
        {"the program keeps a copy", test_copied},
    };
    return unit_run("api/log", cases, sizeof cases / sizeof *cases, argc, argv);
}
