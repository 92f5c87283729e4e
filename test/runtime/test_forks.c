/* Forks in one step: rows of several sequences read together the tokens that the sequences share,
 * and every row has the bits of a step of its sequence alone. */
#include "unit.h"

#include <gqac/gqac.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/context.h"
#include "runtime/steps.h"
#include "targets/cpu/attention.h"

enum { FORKS = 7, ROUNDS = 4, MOST = 12, CHUNK = 60, CAPACITY = CHUNK + ROUNDS * MOST };

static gqac_diag diag;
static int64_t ids[1280];

/* ---- a spy on the kernel of attention ------------------------------------- */

static const struct cpu_attend_kernels *real;
static struct cpu_attend_kernels spied;
static cpu_level level;
/* A unit: the first query of its sequence, its queries [from, to), the end of its keys. */
typedef struct seen {
    int64_t first, from, to, end;
} seen;
enum { MOST_UNITS = 1 << 14 };
static seen units[MOST_UNITS];
static atomic_int n_units;

static void spy(const cpu_attend *a, const cpu_attend_unit *u, float *scratch) {
    const int at = atomic_fetch_add(&n_units, 1);
    if (at < MOST_UNITS)
        units[at] = (seen){.first = u->first,
                           .from = u->first + u->row / a->group,
                           .to = u->first + (u->row + u->rows) / a->group,
                           .end = u->end};
    real->run(a, u, scratch);
}

/* The number of queries in the largest unit with queries of several sequences, and the greatest end
 * of keys of such units, since the last call. */
static int64_t find_joint(int64_t *farthest) {
    const int n = atomic_exchange(&n_units, 0);
    int64_t most = 0;
    CU_ASSERT_FATAL(n <= MOST_UNITS);
    for (int i = 0; i < n; i++) {
        bool several = false;
        for (int j = 0; j < n && !several; j++)
            several = units[j].first > units[i].from && units[j].first < units[i].to;
        if (!several)
            continue;
        most = units[i].to - units[i].from > most ? units[i].to - units[i].from : most;
        *farthest = units[i].end > *farthest ? units[i].end : *farthest;
    }
    return most;
}

static gqac_program *open_program(const char *model, const char *math) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_options_init(&options);
    options.math = math;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        ids[i] = (int64_t)(i * 37 + i / 7 * 5 + 11) % 250;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(unit_path(model), &options, &program, &diag), GQAC_OK);
    level = *(const cpu_level *)program->target_state;
    real = level.attend;
    spied = *real;
    spied.run = spy;
    level.attend = &spied;
    program->target_state = &level;
    return program;
}

/* ---- forks ---------------------------------------------------------------- */

static gqac_context *new_context(const gqac_program *program, int threads) {
    gqac_context *context = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, threads, &context, &diag), GQAC_OK);
    return context;
}

static void feed(gqac_context *context, gqac_sequence *s, int64_t count) {
    CU_ASSERT_EQUAL_FATAL(
        gqac_sequence_append(context, s, ids + gqac_sequence_length(s), count, 0, &diag), GQAC_OK);
}

static gqac_sequence *new_sequence(const gqac_program *program, int64_t total) {
    const gqac_sequence_options options = {.size = sizeof options, .final_length = total};
    gqac_sequence *s = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, &options, &s, &diag), GQAC_OK);
    return s;
}

static gqac_sequence *fork_of(const gqac_sequence *from) {
    gqac_sequence *s = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(from, &s, &diag), GQAC_OK);
    return s;
}

/* A step of all sequences, and steps of their twins alone; see find_joint. In one round a sequence
 * gets a chunk, which has enough runs of its own. */
static int64_t expect_alike(gqac_context *context, gqac_sequence *const *all,
                            gqac_sequence *const *twins, int round, int64_t *farthest) {
    int64_t tokens[FORKS * MOST + CHUNK], counts[FORKS], n = 0, rows, width, none = 0;
    float *kept[FORKS];
    const int64_t *at = tokens;
    for (int i = 0; i < FORKS; i++) {
        counts[i] = (i + round) % 3 ? 1 : 1 + (i * 5 + round * 7) % MOST;
        counts[i] = round == 2 && i == 4 ? CHUNK : counts[i];
        for (int64_t j = 0; j < counts[i]; j++)
            tokens[n++] = (i * 31 + round * 7 + j) % 250;
    }
    CU_ASSERT_EQUAL_FATAL(steps_run(context, FORKS, all, tokens, counts, GQAC_LOGITS_ALL, &diag),
                          GQAC_OK);
    for (int i = 0; i < FORKS; i++) {
        const float *logits = gqac_context_logits(context, i, &rows, &width);
        CU_ASSERT_FATAL(logits && rows == counts[i]);
        kept[i] = malloc((size_t)(rows * width) * sizeof **kept);
        memcpy(kept[i], logits, (size_t)(rows * width) * sizeof **kept);
    }
    const int64_t most = find_joint(farthest);
    for (int i = 0; i < FORKS; at += counts[i++]) {
        CU_ASSERT_EQUAL_FATAL(
            gqac_sequence_append(context, twins[i], at, counts[i], GQAC_LOGITS_ALL, &diag),
            GQAC_OK);
        const float *logits = gqac_context_logits(context, 0, &rows, &width);
        CU_ASSERT_FATAL(logits && rows == counts[i]);
        CU_ASSERT(!memcmp(logits, kept[i], (size_t)(rows * width) * sizeof *logits));
        free(kept[i]);
    }
    CU_ASSERT_EQUAL(find_joint(&none), 0); /* one sequence shares no keys */
    return most;
}

/* Alternating forks of two roots of `length` tokens. Number 5 continues from `back`. The keys that
 * they read together end at `shared`. */
static void check(gqac_program *program, int threads, int64_t length, int64_t back,
                  int64_t shared) {
    static const int family[FORKS] = {0, 1, 0, 1, 0, 1, 0};
    gqac_context *context = new_context(program, threads);
    gqac_sequence *roots[2], *all[FORKS], *twins[FORKS];
    int64_t farthest = 0;
    for (int i = 0; i < 2; i++) {
        roots[i] = new_sequence(program, length + CAPACITY);
        feed(context, roots[i], length);
    }
    for (int i = 0; i < FORKS; i++) {
        all[i] = fork_of(roots[family[i]]);
        if (i == 5)
            CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(all[i], back, &diag), GQAC_OK);
        twins[i] = fork_of(all[i]);
    }
    for (int i = 0; i < 2; i++)
        gqac_sequence_free(roots[i]);
    atomic_store(&n_units, 0);
    for (int round = 0; round < ROUNDS; round++)
        CU_ASSERT((expect_alike(context, all, twins, round, &farthest) > 0) == (shared > 0));
    CU_ASSERT_EQUAL(farthest, shared);
    for (int i = 0; i < FORKS; i++) {
        gqac_sequence_free(all[i]);
        gqac_sequence_free(twins[i]);
    }
    gqac_context_free(context);
}

static void check_model(const char *model, const char *math, int64_t length, int64_t back,
                        int64_t shared) {
    gqac_program *program = open_program(model, math);
    check(program, 1, length, back, shared);
    check(program, 3, length, back, shared);
    gqac_program_free(program);
}

static void long_prefixes(void) {
    check_model("models/tiny-gqa/model.onnx", NULL, 1100, 700, 1024);
    check_model("models/tiny-gqa/model.onnx", NULL, 1024, 1023, 1024);
    check_model("models/tiny-gqa-int4/model.onnx", NULL, 1030, 512, 1024);
}

static void kinds_of_models(void) {
    check_model("test/models/llama/model.onnx", NULL, 520, 513, 512);
    check_model("test/models/llama/model.onnx", "bf16", 520, 513, 512);
    check_model("test/models/llama-fp16/model.onnx", NULL, 513, 512, 512);
    check_model("test/models/phi3/model.onnx", NULL, 580, 530, 512);
    check_model("test/models/gemma2/model.onnx", NULL, 520, 513, 512);
}

static void short_prefixes(void) {
    check_model("test/models/llama/model.onnx", NULL, 511, 500, 0);
    check_model("test/models/qwen3.5/model.onnx", NULL, 200, 128, 0);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"long prefixes are seen together", long_prefixes},
        {"halves, windows, soft caps and rounded factors", kinds_of_models},
        {"what is shorter than a split is not", short_prefixes},
    };
    return unit_run("runtime/forks", cases, sizeof cases / sizeof *cases, argc, argv);
}
