/* Prompts of several sequences in one step, with --math bf16 on the emulator: each row has the bits
 * of a step of its sequence alone, and attend_prompt computes them, unless the device has too
 * little memory for the factors. Uses the libraries of this folder. */
#include "runtime/rig.h"
#include "unit.h"

#include <dlfcn.h>
#include <gqac/gqac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 4, MOST = 160 };
static const int64_t lengths[2][N] = {{70, 5, 100, 64}, {30, 3, 1, 60}}; /* of two steps */
static gqac_diag diag;

static long launched(const char *name) {
    long (*count)(const char *);
    *(void **)(void *)&count = dlsym(RTLD_DEFAULT, "fake_cuda_launched");
    CU_ASSERT_PTR_NOT_NULL_FATAL(count);
    return count(name);
}

/* The logits of all rows, [N][MOST][vocabulary]; the sequences share steps, or do not. */
static float *logits_of(gqac_program *program, const char *kind, bool together) {
    const int64_t width = gqac_program_vocabulary(program);
    float *all = calloc((size_t)(N * MOST * width), sizeof *all);
    gqac_context *context = NULL;
    gqac_sequence *sequences[N];
    int64_t ids[N + MOST], past[N] = {0};
    for (int i = 0; i < N + MOST; i++)
        ids[i] = 3 + i * 7 % 80;
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 2, &context, &diag), GQAC_OK);
    for (int i = 0; i < N; i++) {
        const gqac_sequence_options how = {.size = sizeof how, .kv = kind};
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, &how, &sequences[i], &diag), GQAC_OK);
    }
    for (int part = 0; part < 2; part++) {
        gqac_step_item items[N];
        for (int i = 0; i < N; i++)
            items[i] = (gqac_step_item){.size = sizeof *items,
                                        .sequence = sequences[i],
                                        .tokens = ids + i + past[i],
                                        .count = lengths[part][i],
                                        .n_logits = GQAC_LOGITS_ALL};
        for (int i = 0; i < N; i++) {
            int64_t rows = 0, columns = 0;
            if (i == 0 || !together)
                CU_ASSERT_EQUAL_FATAL(gqac_step(context, together ? N : 1, &items[i], &diag),
                                      GQAC_OK);
            const float *from = gqac_context_logits(context, together ? i : 0, &rows, &columns);
            CU_ASSERT_FATAL(from && rows == lengths[part][i] && columns == width);
            memcpy(all + (i * MOST + past[i]) * width, from, (size_t)(rows * width) * sizeof *all);
            past[i] += rows;
        }
    }
    for (int i = 0; i < N; i++)
        gqac_sequence_free(sequences[i]);
    gqac_context_free(context);
    return all;
}

static gqac_status open_program(gqac_program **program) {
    gqac_options options;
    gqac_options_init(&options);
    options.target = "gpu";
    options.math = "bf16";
    return gqac_program_open(unit_path("test/models/llama/model.onnx"), &options, program, &diag);
}

static void check_prompts(const char *kind) {
    gqac_program *program = NULL;
    CU_ASSERT_EQUAL_FATAL(open_program(&program), GQAC_OK);
    float *alone = logits_of(program, kind, false);
    const long before = launched("attend_prompt");
    float *together = logits_of(program, kind, true);
    CU_ASSERT(launched("attend_prompt") > before);
    CU_ASSERT(launched("attend_prepare") > 0);
    CU_ASSERT_EQUAL(memcmp(alone, together,
                           (size_t)(N * MOST * gqac_program_vocabulary(program)) * sizeof *alone),
                    0);
    free(alone);
    free(together);
    gqac_program_free(program);
}

static void test_prompts(void) {
    check_prompts("contiguous");
    check_prompts("quantised");
}

/* A prompt on a device with so many bytes (0: any number); the logits of its last row have *sum.
 * NO_MEMORY, too, if the program cannot be opened. */
static gqac_status prompt_in(long bytes, uint64_t *sum) {
    char text[32];
    gqac_program *program = NULL;
    int64_t ids[100];
    rig_ids(ids, 100, 1);
    snprintf(text, sizeof text, "%ld", bytes);
    setenv("FAKE_CUDA_MEMORY", text, 1);
    gqac_status status = open_program(&program);
    if (status == GQAC_OK) {
        gqac_context *context = rig_context(program);
        gqac_sequence *s = rig_sequence(program, 0);
        status = gqac_sequence_append(context, s, ids, 100, 1, &diag);
        *sum = status == GQAC_OK ? rig_logits(context) : 0;
        gqac_sequence_free(s);
        gqac_context_free(context);
    }
    gqac_program_free(program);
    unsetenv("FAKE_CUDA_MEMORY");
    return status;
}

/* A step that has memory for all but the factors does without them, with the same bits. Once a step
 * has enough memory, none fails. */
static void test_little_memory(void) {
    long without = 0, with = 0;
    uint64_t expected = 0, sum = 0;
    CU_ASSERT_EQUAL_FATAL(prompt_in(0, &expected), GQAC_OK);
    for (long bytes = 1000000; bytes < 5000000 && !with; bytes += 6000) {
        const long before = launched("attend_prompt");
        const gqac_status status = prompt_in(bytes, &sum);
        const bool prompt = launched("attend_prompt") > before;
        CU_ASSERT(status == GQAC_OK || (status == GQAC_NO_MEMORY && !without));
        CU_ASSERT(status == GQAC_NO_MEMORY || sum == expected);
        without += status == GQAC_OK && !prompt;
        with += status == GQAC_OK && prompt;
    }
    CU_ASSERT(without > 0 && with > 0);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {{"prompts of several sequences", test_prompts},
                                      {"too little memory for factors", test_little_memory}};
    char folder[] = "/tmp/gqac-prompts-XXXXXX", cc[1024];
    if (!mkdtemp(folder) || !dlopen(GQAC_FAKE_CUDA "/libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) ||
        !dlopen(GQAC_FAKE_CUDA "/libnvrtc.so.13", RTLD_NOW | RTLD_GLOBAL)) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    snprintf(cc, sizeof cc, "cc -DGQAC_EMULATOR='\"%s\"' -I'%s'", unit_path("test/cuda/emulator.h"),
             GQAC_SOURCE_DIR "/src");
    setenv("FAKE_CUDA_CC", cc, 1);
    setenv("FAKE_NVRTC", folder, 1);
    setenv("GQAC_CACHE", folder, 1);
    setenv("GQAC_CUDA_GRAPHS", "off", 1);
    const int code = unit_run("cuda_prompts", cases, sizeof cases / sizeof *cases, argc, argv);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) ? 1 : code;
}
