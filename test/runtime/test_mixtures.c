/* Random steps over random sequences: chunks together with decode rows, in any order, between
 * rewinds, forks, and saving and loading. Sequences consist of a few fixed streams of tokens, so
 * that the logits at a position are known from one call over a whole stream; every row must have
 * these bits. */
#include "unit.h"

#include <gqac/gqac.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS = 3, TOTAL = 150, CHUNK = 24, MOST = 8 };

static gqac_diag diag;
static int64_t streams[STREAMS][TOTAL];
static float *whole[STREAMS]; /* [TOTAL][vocabulary] */
static uint64_t state;

/* 0 .. n-1 */
static int64_t any(int64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

static gqac_context *new_context(const gqac_program *program, int threads) {
    gqac_context *context = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, threads, &context, &diag), GQAC_OK);
    return context;
}

static gqac_sequence *new_sequence(const gqac_program *program) {
    const gqac_sequence_options options = {.size = sizeof options, .final_length = TOTAL};
    gqac_sequence *s = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, &options, &s, &diag), GQAC_OK);
    return s;
}

static void compute_streams(const gqac_program *program) {
    gqac_context *context = new_context(program, 1);
    int64_t rows = 0, width = 0;
    for (int k = 0; k < STREAMS; k++) {
        gqac_sequence *s = new_sequence(program);
        for (int64_t i = 0; i < TOTAL; i++)
            streams[k][i] = (i * (37 + k) + i / 7 * 5 + 11 + k) % 250;
        CU_ASSERT_EQUAL_FATAL(
            gqac_sequence_append(context, s, streams[k], TOTAL, GQAC_LOGITS_ALL, &diag), GQAC_OK);
        const float *logits = gqac_context_logits(context, 0, &rows, &width);
        CU_ASSERT_FATAL(logits && rows == TOTAL);
        whole[k] = malloc((size_t)(rows * width) * sizeof **whole);
        memcpy(whole[k], logits, (size_t)(rows * width) * sizeof **whole);
        gqac_sequence_free(s);
    }
    gqac_context_free(context);
}

/* Saves and loads the sequence. */
static void reload(const gqac_program *program, gqac_sequence **s) {
    const size_t bytes = gqac_sequence_save_bytes(*s);
    void *data = malloc(bytes);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_save(*s, data, bytes, &diag), GQAC_OK);
    gqac_sequence_free(*s);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_load(program, NULL, data, bytes, s, &diag), GQAC_OK);
    free(data);
}

/* Sequence i is rewound, continued in a fork of itself or of another one, or saved and loaded;
 * afterwards its stream has a next token. */
static void disturb(const gqac_program *program, gqac_sequence **all, int *of, int n, int i) {
    gqac_sequence *fork = NULL;
    const int64_t kind = any(12), length = gqac_sequence_length(all[i]);
    if (length > 0 && (kind < 2 || length == TOTAL))
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(all[i], any(length), &diag), GQAC_OK);
    if (kind == 2 || kind == 3) {
        const int from = kind == 2 ? i : (int)any(n);
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(all[from], &fork, &diag), GQAC_OK);
        gqac_sequence_free(all[i]);
        all[i] = fork;
        of[i] = of[from];
    }
    if (kind == 4)
        reload(program, &all[i]);
    if (gqac_sequence_length(all[i]) == TOTAL)
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(all[i], any(TOTAL), &diag), GQAC_OK);
}

/* Chooses some of the sequences in random order; returns their number. */
static int choose(int n, int *chosen) {
    int left[MOST], m = 1 + (int)any(n);
    for (int i = 0; i < n; i++)
        left[i] = i;
    for (int i = 0; i < m; i++) {
        const int at = (int)any(n - i);
        chosen[i] = left[at];
        left[at] = left[n - i - 1];
    }
    return m;
}

static int expect_rows(const gqac_context *context, int item, int k, int64_t end, int64_t wanted) {
    int64_t rows = 0, width = 0;
    const float *logits = gqac_context_logits(context, item, &rows, &width);
    CU_ASSERT_FATAL(rows == wanted && (logits || !wanted));
    CU_ASSERT(!wanted || !memcmp(logits, whole[k] + (end - rows) * width,
                                 (size_t)(rows * width) * sizeof *logits));
    return (int)rows;
}

static int step(const gqac_program *program, gqac_context *context, gqac_sequence **all, int *of,
                int n) {
    gqac_step_item items[MOST];
    int chosen[MOST], compared = 0;
    for (int i = 0; i < n; i++)
        disturb(program, all, of, n, i);
    const int m = choose(n, chosen);
    for (int j = 0; j < m; j++) {
        gqac_sequence *s = all[chosen[j]];
        const int64_t length = gqac_sequence_length(s), left = TOTAL - length;
        const int64_t count = any(2) ? 1 : 1 + any(left < CHUNK ? left : CHUNK);
        const int64_t wanted[] = {0, 1, 1 + any(count), count};
        items[j] = (gqac_step_item){.size = sizeof *items,
                                    .sequence = s,
                                    .tokens = streams[of[chosen[j]]] + length,
                                    .count = count,
                                    .n_logits = wanted[any(4)]};
    }
    CU_ASSERT_EQUAL_FATAL(gqac_step(context, m, items, &diag), GQAC_OK);
    for (int j = 0; j < m; j++)
        compared += expect_rows(context, j, of[chosen[j]], gqac_sequence_length(items[j].sequence),
                                items[j].n_logits);
    return compared;
}

static void mix(const gqac_program *program, int n, int threads) {
    gqac_context *context = new_context(program, threads);
    gqac_sequence *all[MOST];
    int of[MOST], compared = 0;
    for (int i = 0; i < n; i++) {
        all[i] = new_sequence(program);
        of[i] = i % STREAMS;
    }
    for (int round = unit_count(25, 150); round > 0; round--)
        compared += step(program, context, all, of, n);
    CU_ASSERT(compared > 0);
    for (int i = 0; i < n; i++)
        gqac_sequence_free(all[i]);
    gqac_context_free(context);
}

static void mix_model(const char *name, const char *target) {
    char path[96];
    gqac_options options;
    gqac_program *program = NULL;
    gqac_options_init(&options);
    options.target = target;
    snprintf(path, sizeof path, "%s/model.onnx", name);
    const gqac_status status = gqac_program_open(unit_path(path), &options, &program, &diag);
    if (status == GQAC_ABSENT && !strcmp(target, "gpu")) {
        printf("  there is no device for target gpu\n");
        return;
    }
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    compute_streams(program);
    for (int threads = 1; threads <= 3; threads += 2)
        for (int n = 1; n <= MOST; n = n == 1 ? 3 : n + 5)
            mix(program, n, threads);
    for (int k = 0; k < STREAMS; k++)
        free(whole[k]);
    gqac_program_free(program);
}

static void attention(void) {
    mix_model("models/tiny-gqa", "cpu");
    mix_model("models/tiny-gqa-int4", "cpu");
    mix_model("test/models/llama", "cpu");
    mix_model("test/models/llama-fp16", "cpu");
    mix_model("test/models/llama-int4-acc1", "cpu");
    mix_model("test/models/llama-int4-acc4", "cpu");
    mix_model("test/models/mistral", "cpu");
    mix_model("test/models/gemma2", "cpu");
    mix_model("test/models/qwen2", "cpu");
    mix_model("test/models/qwen3", "cpu");
    mix_model("test/models/smollm3-qdq", "cpu");
}

static void tables_experts_states(void) {
    mix_model("test/models/phi3", "cpu");
    mix_model("test/models/gpt-oss", "cpu");
    mix_model("test/models/lfm2", "cpu");
    mix_model("test/models/qwen3.5", "cpu");
}

static void other_exporters(void) {
    static const char *const names[] = {"bloom", "dynamo-llama", "dynamo-qwen2",
                                        "gemma", "gpt2",         "gptj",
                                        "llama", "mistral",      "mobius-gemma3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        snprintf(name, sizeof name, "test/traced/%s", names[i]);
        mix_model(name, "cpu");
    }
}

static void reference(void) {
    mix_model("test/models/llama", "ref");
    mix_model("test/models/lfm2", "ref");
}

static void devices(void) {
    mix_model("test/models/llama", "gpu");
    mix_model("test/models/llama-fp16", "gpu");
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"models of attention alone", attention},
        {"rope tables, experts, recurrent states", tables_experts_states},
        {"models of other exporters", other_exporters},
        {"the reference target", reference},
        {"rows on a device", devices},
    };
    return unit_run("runtime/mixtures", cases, sizeof cases / sizeof *cases, argc, argv);
}
