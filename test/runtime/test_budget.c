/* The memory budget of a program: a call that would exceed it returns CAPACITY and changes nothing,
 * other calls continue with the same bits, and freed memory can be used again. */
#include "base/budget.h"
#include "runtime/program.h"
#include "unit.h"

#include <gqac/gqac.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { N = 140, MOST = 64 };

static gqac_diag diag;
static int64_t ids[N];

static gqac_program *open_program(const char *path, int64_t budget) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_options_init(&options);
    options.memory_budget = budget;
    for (int i = 0; i < N; i++)
        ids[i] = (i * 37 + 11) % 250;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(unit_path(path), &options, &program, &diag), GQAC_OK);
    return program;
}

static gqac_context *open_context(const gqac_program *program) {
    gqac_context *context = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 2, &context, &diag), GQAC_OK);
    return context;
}

static gqac_sequence *open_sequence(const gqac_program *program) {
    gqac_sequence *sequence = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, NULL, &sequence, &diag), GQAC_OK);
    return sequence;
}

static gqac_status feed(gqac_context *context, gqac_sequence *sequence, int64_t count) {
    return gqac_sequence_append(context, sequence, ids + gqac_sequence_length(sequence), count, 1,
                                &diag);
}

static float *copy_logits(const gqac_context *context) {
    int64_t rows = 0, width = 0;
    const float *logits = gqac_context_logits(context, 0, &rows, &width);
    CU_ASSERT_FATAL(logits && rows == 1);
    float *copy = malloc((size_t)width * sizeof *copy);
    memcpy(copy, logits, (size_t)width * sizeof *copy);
    return copy;
}

static bool same_logits(const gqac_context *context, const float *expected) {
    int64_t rows = 0, width = 0;
    const float *logits = gqac_context_logits(context, 0, &rows, &width);
    return logits && !memcmp(logits, expected, (size_t)width * sizeof *logits);
}

typedef struct facts {
    float *prompt, *next; /* logits after N - 1 tokens, and after N */
    int64_t idle, one;    /* bytes of a context after a run, and of a sequence */
} facts;

static facts look(const char *path) {
    gqac_program *program = open_program(path, 0);
    gqac_context *context = open_context(program);
    gqac_sequence *sequence = open_sequence(program);
    facts f;
    CU_ASSERT_EQUAL_FATAL(gqac_program_memory_used(program), 0);
    CU_ASSERT_EQUAL_FATAL(feed(context, sequence, N - 1), GQAC_OK);
    f.prompt = copy_logits(context);
    CU_ASSERT_EQUAL_FATAL(feed(context, sequence, 1), GQAC_OK);
    f.next = copy_logits(context);
    const int64_t all = gqac_program_memory_used(program);
    gqac_sequence_free(sequence);
    f.idle = gqac_program_memory_used(program);
    f.one = all - f.idle;
    gqac_context_free(context);
    CU_ASSERT(f.idle > 0 && f.one > 0 && gqac_program_memory_used(program) == 0);
    gqac_program_free(program);
    return f;
}

static void forget(facts *f) {
    free(f->prompt);
    free(f->next);
}

/* Creates sequences until one does not fit. */
static void fill(const char *path) {
    facts f = look(path);
    const int64_t budget = 2 * f.idle + 5 * f.one + f.one / 2;
    gqac_program *program = open_program(path, budget);
    gqac_context *context = open_context(program);
    gqac_sequence *all[MOST];
    gqac_status status = GQAC_OK;
    int n = 0;
    int64_t before = 0;
    while (status == GQAC_OK && n < MOST) {
        all[n] = open_sequence(program);
        before = gqac_program_memory_used(program);
        status = feed(context, all[n++], N - 1);
        CU_ASSERT_FATAL(status != GQAC_OK || same_logits(context, f.prompt));
        CU_ASSERT_FATAL(gqac_program_memory_used(program) <= budget);
    }
    CU_ASSERT_EQUAL_FATAL(status, GQAC_CAPACITY);
    CU_ASSERT(n > 2 && strstr(diag.what, "budget") && *diag.hint);
    gqac_sequence *last = all[n - 1];
    CU_ASSERT_EQUAL(gqac_sequence_length(last), 0);
    CU_ASSERT_EQUAL(gqac_program_memory_used(program), before);
    CU_ASSERT_EQUAL(feed(context, last, N - 1), GQAC_CAPACITY); /* again */
    /* one sequence of a step does not fit: the other one is unchanged */
    const gqac_step_item pair[] = {
        {.size = sizeof *pair,
         .sequence = all[0],
         .tokens = ids + N - 1,
         .count = 1,
         .n_logits = 1},
        {.size = sizeof *pair, .sequence = last, .tokens = ids, .count = N - 1, .n_logits = 1}};
    CU_ASSERT_EQUAL(gqac_step(context, 2, pair, &diag), GQAC_CAPACITY);
    CU_ASSERT(gqac_sequence_length(all[0]) == N - 1 && gqac_sequence_length(last) == 0);
    gqac_sequence_free(all[--n - 1]); /* memory for one more token of each; the others continue */
    for (int i = 0; i < n - 1; i++) {
        CU_ASSERT_EQUAL_FATAL(feed(context, all[i], 1), GQAC_OK);
        CU_ASSERT(same_logits(context, f.next));
    }
    all[n - 1] = last;
    gqac_sequence_free(all[0]);
    CU_ASSERT_EQUAL_FATAL(feed(context, last, N - 1), GQAC_OK);
    CU_ASSERT(same_logits(context, f.prompt));
    CU_ASSERT_EQUAL_FATAL(feed(context, last, 1), GQAC_OK);
    CU_ASSERT(same_logits(context, f.next));
    CU_ASSERT(gqac_program_memory_used(program) <= budget);
    for (int i = 1; i < n; i++)
        gqac_sequence_free(all[i]);
    gqac_context_free(context);
    CU_ASSERT_EQUAL(gqac_program_memory_used(program), 0);
    gqac_program_free(program);
    forget(&f);
}

static void until_it_is_full(void) {
    fill("test/models/llama/model.onnx");
    fill("test/models/llama-int4-acc4/model.onnx");
}

static void until_it_is_full_of_states(void) {
    fill("test/models/qwen3.5/model.onnx");
}

/* With any budget: the correct bits, or CAPACITY and nothing changed. */
static void every_budget(void) {
    static const char path[] = "test/models/llama/model.onnx";
    facts f = look(path);
    const int64_t whole = f.idle + f.one;
    int failed = 0, went = 0;
    for (int64_t budget = 64; budget < whole + whole / 4; budget += budget / 16 + 64) {
        gqac_program *program = open_program(path, budget);
        gqac_context *context = open_context(program);
        gqac_sequence *sequence = open_sequence(program);
        const gqac_status status = feed(context, sequence, N - 1);
        const bool fits = status == GQAC_OK;
        CU_ASSERT_FATAL(fits ? same_logits(context, f.prompt) : status == GQAC_CAPACITY);
        CU_ASSERT_FATAL(gqac_sequence_length(sequence) == (fits ? N - 1 : 0));
        CU_ASSERT_FATAL(gqac_program_memory_used(program) <= budget);
        failed += !fits;
        went += fits;
        gqac_sequence_free(sequence);
        gqac_context_free(context);
        CU_ASSERT_EQUAL_FATAL(gqac_program_memory_used(program), 0);
        gqac_program_free(program);
    }
    CU_ASSERT(failed > 5 && went > 0);
    forget(&f);
}

/* Creates sequences until one does not fit, if a block consists of several allocations. */
static void fill_pieces(const char *path, const char *kv, int64_t count) {
    facts f = look(path);
    gqac_sequence_options options;
    gqac_sequence_options_init(&options);
    options.kv = kv;
    for (int64_t k = 0; k < 8; k++) {
        gqac_program *program = open_program(path, f.idle + 4 * f.one + k * 5000);
        gqac_context *context = open_context(program);
        gqac_sequence *all[MOST];
        gqac_status status = GQAC_OK;
        int n = 0;
        while (status == GQAC_OK && n < MOST) {
            CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, &options, &all[n], &diag), GQAC_OK);
            status = feed(context, all[n++], count);
        }
        CU_ASSERT_EQUAL(status, GQAC_CAPACITY);
        while (n > 0)
            gqac_sequence_free(all[--n]);
        gqac_context_free(context);
        CU_ASSERT_EQUAL_FATAL(gqac_program_memory_used(program), 0);
        gqac_program_free(program);
    }
    forget(&f);
}

static void until_pieces_are_full(void) {
    fill_pieces("test/models/qwen3.5/model.onnx", NULL, 64);
    fill_pieces("test/models/qwen3.5/model.onnx", NULL, N - 1); /* several states at once */
    fill_pieces("test/models/gemma2/model.onnx", "windowed", 64);
}

static void parameters_and_runs(void) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_context *context = NULL;
    gqac_options_init(&options);
    options.stateless = true;
    options.memory_budget = 5000;
    const char *path = unit_path("test/models/llama/model.onnx");
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(path, &options, &program, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
    const int64_t fits[] = {1, 500}, more[] = {1, 700};
    CU_ASSERT_EQUAL(gqac_context_reserve(context, "input_ids", 2, fits, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_program_memory_used(program), 4000);
    CU_ASSERT_EQUAL(gqac_context_reserve(context, "input_ids", 2, more, &diag), GQAC_CAPACITY);
    CU_ASSERT_EQUAL(gqac_program_memory_used(program), 4000);
    gqac_context_free(context);
    CU_ASSERT_EQUAL(gqac_program_memory_used(program), 0);
    gqac_program_free(program);
    options.memory_budget = -1;
    CU_ASSERT_EQUAL(gqac_program_open(path, &options, &program, &diag), GQAC_USAGE);
}

/* Sums of bytes of any size can be compared. */
static void huge_requests(void) {
    gqac_budget budget = {.most = 1000};
    CU_ASSERT_TRUE(gqac_budget_take(&budget, 600));
    CU_ASSERT_FALSE(gqac_budget_take(&budget, 401));
    CU_ASSERT_FALSE(gqac_budget_take(&budget, SIZE_MAX));
    CU_ASSERT_FALSE(gqac_budget_take(&budget, SIZE_MAX - 599));
    CU_ASSERT_EQUAL(gqac_budget_fail(&budget, SIZE_MAX - 599, "a test", &diag), GQAC_CAPACITY);
    CU_ASSERT_TRUE(gqac_budget_take(&budget, 400));
    CU_ASSERT_FALSE(gqac_budget_take(&budget, 1));
    gqac_budget_give(&budget, 1000);
    CU_ASSERT_EQUAL(budget.used, 0);
}

/* After a trim only the memory of the sequences is left; then the context allocates only what it
 * needs, and computes the same bits. */
static void trimmed(void) {
    static const char *const models[] = {"test/models/llama/model.onnx",
                                         "test/models/qwen3.5/model.onnx"};
    for (int m = 0; m < 2; m++) {
        const facts f = look(models[m]);
        gqac_program *program = open_program(models[m], 0);
        gqac_context *context = open_context(program);
        gqac_sequence *sequence = open_sequence(program);
        gqac_context_trim(context);
        CU_ASSERT_EQUAL_FATAL(feed(context, sequence, N - 1), GQAC_OK);
        CU_ASSERT(same_logits(context, f.prompt));
        const int64_t large = gqac_program_memory_used(program);
        gqac_context_trim(context);
        CU_ASSERT_PTR_NULL(gqac_context_logits(context, 0, &(int64_t){0}, &(int64_t){0}));
        const int64_t rows = gqac_program_memory_used(program);
        CU_ASSERT(rows > 0 && rows < large);
        CU_ASSERT_EQUAL_FATAL(feed(context, sequence, 1), GQAC_OK);
        CU_ASSERT(same_logits(context, f.next));
        CU_ASSERT(gqac_program_memory_used(program) < large);
        gqac_sequence_free(sequence);
        gqac_context_trim(context);
        CU_ASSERT_EQUAL(gqac_program_memory_used(program), 0);
        gqac_context_free(context);
        gqac_program_free(program);
        free(f.prompt);
        free(f.next);
    }
}

/* The smallest budget with which a sequence that needs a block can make a step after the context
 * was trimmed, with n - 1 other sequences. A step that fits a budget also fits a larger one. */
static size_t least_of_step(int n) {
    gqac_program *program = open_program("test/models/llama/model.onnx", 0);
    gqac_context *context = open_context(program);
    gqac_sequence *all[8], *sequence = NULL;
    size_t least = 0;
    for (int i = 0; i < n; i++) {
        sequence = all[i] = open_sequence(program);
        CU_ASSERT_EQUAL_FATAL(feed(context, sequence, GQAC_KV_BLOCK), GQAC_OK);
    }
    gqac_context_trim(context);
    const size_t used = (size_t)gqac_program_memory_used(program);
    for (size_t bytes = 4096; !least || bytes < 4 * least; bytes += 4096) {
        program->budget->most = used + bytes;
        const gqac_status status = feed(context, sequence, 1);
        CU_ASSERT_EQUAL(status, least || status == GQAC_OK ? GQAC_OK : GQAC_CAPACITY);
        least = least || status != GQAC_OK ? least : bytes;
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(sequence, GQAC_KV_BLOCK, &diag), GQAC_OK);
        gqac_context_trim(context);
        CU_ASSERT_EQUAL_FATAL((size_t)gqac_program_memory_used(program), used);
    }
    for (int i = 0; i < n; i++)
        gqac_sequence_free(all[i]);
    gqac_context_free(context);
    gqac_program_free(program);
    return least;
}

/* Blocks that are not needed yet do not take the memory that the context needs again. */
static void trimmed_and_full(void) {
    const size_t alone = least_of_step(1);
    for (int n = 2; n <= 8; n *= 2)
        CU_ASSERT_EQUAL(least_of_step(n), alone);
}

static const unit_case cases[] = {
    {"a context that was trimmed", trimmed},
    {"a context that was trimmed, and blocks", trimmed_and_full},
    {"sequences until it is full", until_it_is_full},
    {"sequences with states until it is full", until_it_is_full_of_states},
    {"every budget", every_budget},
    {"blocks of several pieces until it is full", until_pieces_are_full},
    {"parameters of stateless runs", parameters_and_runs},
    {"huge requests", huge_requests},
};

int main(int argc, char **argv) {
    return unit_run("runtime/budget", cases, sizeof cases / sizeof *cases, argc, argv);
}
