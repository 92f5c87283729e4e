/* Sequences of every kind of cache at run time: a kind changes the bits of logits only if it has a
 * profile of its own; memory of windows, rewinds, failed steps, forks, saved sequences. */
#include "unit.h"

#include <gqac/gqac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 420, KINDS = 5, REACH = 64, BLOCK = 64, MOST_IDS = 8 * 1024 };
static const char *const kinds[KINDS] = {"contiguous", "paged", "windowed", "quantised",
                                         "quantised4"};

static gqac_diag diag;
static int64_t ids[N];

typedef struct fixture {
    gqac_program *program;
    gqac_context *context;
    int64_t vocabulary, n; /* n: number of tokens, at most N */
    float *logits[3];      /* [N,V] of a sequence alone, token by token; one for each class */
} fixture;

/* Kinds of one class have the same bits: those that store rows, codes of 8 bits, codes of 4
 * bits. */
static int class_of(const char *kind) {
    return !strcmp(kind, "quantised") ? 1 : !strcmp(kind, "quantised4") ? 2 : 0;
}

static gqac_sequence *new_sequence(const fixture *f, const char *kind) {
    gqac_sequence *s = NULL;
    const gqac_sequence_options options = {
        .size = sizeof options, .kv = kind, .final_length = f->n};
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(f->program, &options, &s, &diag), GQAC_OK);
    return s;
}

static gqac_status feed(const fixture *f, gqac_sequence *s, int64_t end) {
    const int64_t length = gqac_sequence_length(s);
    return gqac_sequence_append(f->context, s, ids + length, end - length, GQAC_LOGITS_ALL, &diag);
}

/* True if the logits of item i are those of the reference, up to position `end`. */
static bool is_right(const fixture *f, const gqac_sequence *s, int i) {
    int64_t rows = 0, width = 0;
    const float *logits = gqac_context_logits(f->context, i, &rows, &width);
    const float *all = f->logits[class_of(gqac_sequence_kind(s))];
    return rows > 0 && !memcmp(logits, all + (gqac_sequence_length(s) - rows) * width,
                               (size_t)(rows * width) * sizeof *logits);
}

static bool goes_on(const fixture *f, gqac_sequence *s, int64_t end) {
    return feed(f, s, end) == GQAC_OK && is_right(f, s, 0);
}

static fixture open_fixture(const char *model, const char *target) {
    fixture f = {0};
    gqac_options options;
    char path[96];
    gqac_options_init(&options);
    options.target = target;
    snprintf(path, sizeof path, "%s/test/models/%s/model.onnx", GQAC_SOURCE_DIR, model);
    for (int i = 0; i < N; i++)
        ids[i] = (i * 37 + i / 7 * 5 + 11) % 250;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(path, &options, &f.program, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(f.program, 1, &f.context, &diag), GQAC_OK);
    f.vocabulary = gqac_program_vocabulary(f.program);
    f.n = gqac_program_max_tokens(f.program) < N ? gqac_program_max_tokens(f.program) : N;
    for (int k = 0; k < 3; k++) {
        gqac_sequence *s = new_sequence(&f, k ? kinds[2 + k] : "contiguous");
        f.logits[k] = malloc((size_t)(f.n * f.vocabulary) * sizeof *f.logits[k]);
        for (int64_t i = 0; i < f.n; i++) {
            int64_t rows, width;
            CU_ASSERT_EQUAL_FATAL(feed(&f, s, i + 1), GQAC_OK);
            memcpy(f.logits[k] + i * f.vocabulary, gqac_context_logits(f.context, 0, &rows, &width),
                   (size_t)f.vocabulary * sizeof *f.logits[k]);
        }
        gqac_sequence_free(s);
    }
    for (int k = 0; k < 3; k++) {
        const size_t bytes = (size_t)(f.n * f.vocabulary) * sizeof(float);
        CU_ASSERT(memcmp(f.logits[k], f.logits[(k + 1) % 3], bytes) != 0);
    }
    return f;
}

static void close_fixture(fixture *f) {
    for (int k = 0; k < 3; k++)
        free(f->logits[k]);
    gqac_context_free(f->context);
    gqac_program_free(f->program);
}

/* Sequences of all kinds in one step each have the logits of a run alone. */
static void mixed_kinds(const fixture *f) {
    static const int64_t ends[] = {5, 90, 91, 200, 201, 300, 316};
    gqac_sequence *all[KINDS];
    for (int k = 0; k < KINDS; k++)
        all[k] = new_sequence(f, kinds[k]);
    for (size_t e = 0; e < sizeof ends / sizeof *ends; e++) {
        gqac_step_item items[KINDS];
        for (int k = 0; k < KINDS; k++) {
            const int64_t length = gqac_sequence_length(all[k]);
            items[k] = (gqac_step_item){.size = sizeof *items,
                                        .sequence = all[k],
                                        .tokens = ids + length,
                                        .count = ends[e] + k - length,
                                        .n_logits = GQAC_LOGITS_ALL};
        }
        CU_ASSERT_EQUAL_FATAL(gqac_step(f->context, KINDS, items, &diag), GQAC_OK);
        for (int k = 0; k < KINDS; k++)
            CU_ASSERT(is_right(f, all[k], k));
    }
    for (int k = 0; k < KINDS; k++) {
        char profile[128], want[128];
        gqac_sequence_profile(all[k], profile, sizeof profile);
        snprintf(want, sizeof want, "%s%s", gqac_program_profile(f->program),
                 class_of(kinds[k]) == 1   ? "/kv8"
                 : class_of(kinds[k]) == 2 ? "/kv4"
                                           : "");
        CU_ASSERT_STRING_EQUAL(profile, want);
        gqac_sequence_free(all[k]);
    }
}

static bool stop(void *arg) {
    int *left = arg;
    return --*left == 0;
}

/* An aborted step leaves a sequence of any kind, and its fork, unchanged. */
static void aborted_steps(const fixture *f, bool states) {
    for (int k = 0; k < KINDS; k++) {
        gqac_sequence *s = new_sequence(f, kinds[k]), *fork = NULL;
        CU_ASSERT(goes_on(f, s, 130));
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(s, &fork, &diag), GQAC_OK);
        const size_t bytes = gqac_sequence_bytes(s, NULL);
        for (int left = 1; left < 60; left += 13) {
            int n = left;
            const gqac_monitor monitor = {.size = sizeof monitor, .abort = stop, .arg = &n};
            gqac_context_set_monitor(f->context, &monitor, NULL, &diag);
            const gqac_status status = feed(f, s, 310);
            gqac_context_set_monitor(f->context, NULL, NULL, &diag);
            if (status == GQAC_OK)
                break;
            CU_ASSERT_EQUAL(status, GQAC_ABORTED);
            CU_ASSERT_EQUAL(gqac_sequence_length(s), 130);
            CU_ASSERT(states || gqac_sequence_bytes(s, NULL) <= bytes + MOST_IDS);
        }
        CU_ASSERT_EQUAL(gqac_sequence_rewind(s, 130, &diag), GQAC_OK);
        CU_ASSERT(goes_on(f, s, 300) && goes_on(f, fork, 200) && goes_on(f, s, 310));
        gqac_sequence_free(s);
        CU_ASSERT(goes_on(f, fork, 320));
        gqac_sequence_free(fork);
    }
}

static gqac_status reload(const fixture *f, const gqac_sequence *s, const char *kind,
                          gqac_sequence **loaded) {
    const gqac_sequence_options options = {.size = sizeof options, .kv = kind};
    const size_t bytes = gqac_sequence_save_bytes(s);
    void *data = malloc(bytes);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_save(s, data, bytes, &diag), GQAC_OK);
    *loaded = NULL;
    const gqac_status status = gqac_sequence_load(f->program, &options, data, bytes, loaded, &diag);
    if (status == GQAC_OK) { /* saved again, it has the same bytes, unless its kind differs */
        void *again = malloc(bytes);
        const bool same = !strcmp(gqac_sequence_kind(s), gqac_sequence_kind(*loaded));
        CU_ASSERT(!same || gqac_sequence_save_bytes(*loaded) == bytes);
        if (same && gqac_sequence_save(*loaded, again, bytes, &diag) == GQAC_OK)
            CU_ASSERT(!memcmp(data, again, bytes));
        free(again);
    }
    free(data);
    return status;
}

/* A saved sequence can be continued in kinds with the same bits, if it has all rows that they
 * need. */
static void saved_sequences(const fixture *f, bool windows, bool states) {
    for (int k = 0; k < KINDS; k++)
        for (int to = 0; to < KINDS; to++) {
            gqac_sequence *s = new_sequence(f, kinds[k]), *t = NULL;
            CU_ASSERT(goes_on(f, s, 100) && goes_on(f, s, 310));
            CU_ASSERT_EQUAL(gqac_sequence_rewind(s, 280, &diag), GQAC_OK);
            CU_ASSERT(!states || goes_on(f, s, 281));
            const bool may =
                class_of(kinds[k]) == class_of(kinds[to]) && (k != 2 || to == 2 || !windows);
            CU_ASSERT_EQUAL(reload(f, s, kinds[to], &t), may ? GQAC_OK : GQAC_USAGE);
            if (may) {
                CU_ASSERT(!strcmp(gqac_sequence_kind(t), kinds[to]));
                CU_ASSERT(goes_on(f, t, 300) && goes_on(f, t, 320));
            }
            gqac_sequence_free(t);
            CU_ASSERT_EQUAL(reload(f, s, NULL, &t), GQAC_OK); /* in its own kind */
            CU_ASSERT(goes_on(f, t, 300) && goes_on(f, s, 320));
            gqac_sequence_free(t);
            gqac_sequence_free(s);
        }
}

static void every_kind(const char *model, const char *target, bool windows, bool states) {
    fixture f = open_fixture(model, target);
    mixed_kinds(&f);
    aborted_steps(&f, states);
    saved_sequences(&f, windows, states);
    close_fixture(&f);
}

static void kinds_have_their_bits(void) {
    every_kind("gemma2", "cpu", true, false);
    every_kind("lfm2", "cpu", false, true);
    if (!unit_full())
        return;
    every_kind("gemma2", "ref", true, false);
    every_kind("llama-fp16", "cpu", false, false);
    every_kind("qwen3.5", "cpu", false, true);
    every_kind("gpt-oss", "cpu", true, false);
}

/* ---- windows ------------------------------------------------------------- */

/* Bytes without ids, if tokens were computed one by one. */
static size_t row_bytes(const gqac_sequence *s) {
    int64_t first, count;
    size_t ids_capacity = 64;
    (void)gqac_sequence_ids(s, &first, &count);
    while ((int64_t)ids_capacity < count)
        ids_capacity *= 2;
    return gqac_sequence_bytes(s, NULL) - ids_capacity * sizeof(int64_t);
}

static gqac_memory memory_of(const fixture *f, const char *kind, int64_t tokens) {
    gqac_memory m = {.size = sizeof m};
    CU_ASSERT_EQUAL_FATAL(gqac_program_memory_of(f->program, kind, tokens, 1, &m, &diag), GQAC_OK);
    return m;
}

/* Some or all layers have a window of 16 keys: the rows that a sequence keeps for them do not grow
 * with it. size: elements of a head; block, apart: bytes of a block, and of its rows with a
 * window. */
static void expect_bounded(const char *model, int64_t size, int64_t block, int64_t apart) {
    enum { KEPT = 3 /* blocks: window and reach, and partial blocks at both ends */ };
    fixture f = open_fixture(model, "cpu");
    gqac_sequence *s = new_sequence(&f, "windowed"), *all = new_sequence(&f, "contiguous");
    CU_ASSERT_EQUAL(memory_of(&f, NULL, f.n).kv_block, block);
    CU_ASSERT_EQUAL(memory_of(&f, "quantised", f.n).kv_block, block / 4 + block / size);
    CU_ASSERT_EQUAL(memory_of(&f, "quantised4", f.n).kv_block, block / 8 + block / size);
    for (int64_t n = 1; n <= f.n; n++) {
        const gqac_memory m = memory_of(&f, "windowed", n);
        CU_ASSERT_FATAL(goes_on(&f, s, n) && goes_on(&f, all, n));
        CU_ASSERT(m.kv_block == block - apart && m.kv_window == apart && m.kv_windows <= KEPT);
        CU_ASSERT_EQUAL((int64_t)row_bytes(s), m.kv_blocks * m.kv_block + m.kv_windows * apart);
    }
    CU_ASSERT_EQUAL((int64_t)row_bytes(all), (f.n + BLOCK - 1) / BLOCK * block);
    CU_ASSERT(f.n < N || row_bytes(s) < row_bytes(all) * 3 / 4);
    gqac_sequence_free(s);
    gqac_sequence_free(all);
    close_fixture(&f);
}

static void windows_bound_memory(void) {
    enum { GEMMA = 2 * 2 * 2 * 32 * 4 * BLOCK, MISTRAL = 2 * 2 * 2 * 16 * 4 * BLOCK };
    expect_bounded("gemma2", 32, GEMMA, GEMMA / 2);
    expect_bounded("mistral", 16, MISTRAL, MISTRAL);
}

/* A sequence can always be rewound by 64 tokens. If rows are gone, the rewind fails, says what to
 * do, and changes nothing. Chunks that are much longer than window and reach work like others. */
static void rewinds_reach_so_far(void) {
    fixture f = open_fixture("gemma2", "cpu");
    for (int64_t length = 65; length <= 340;
         length += length % 64 == 1 ? 30 : 1 + length % 3 * 11) {
        gqac_sequence *s = new_sequence(&f, "windowed");
        CU_ASSERT(goes_on(&f, s, length));
        int64_t least = length;
        while (least > 0 && gqac_sequence_rewind(s, least - 1, &diag) == GQAC_OK)
            least--;
        CU_ASSERT(least <= length - REACH || least == 0);
        if (least > 0) {
            CU_ASSERT(gqac_sequence_length(s) == least && strlen(diag.rule) > 0);
            CU_ASSERT_PTR_NOT_NULL(strstr(diag.hint, "contiguous"));
            CU_ASSERT_EQUAL(gqac_sequence_rewind(s, 1, &diag), GQAC_OUT_OF_RANGE);
        }
        CU_ASSERT(goes_on(&f, s, least + 70));
        CU_ASSERT_EQUAL(gqac_sequence_rewind(s, 0, &diag), GQAC_OK);
        CU_ASSERT(goes_on(&f, s, 20));
        gqac_sequence_free(s);
    }
    close_fixture(&f);
}

/* Forks that have released different rows are adjacent items of steps, but read their own rows. */
static void forks_of_windows(void) {
    fixture f = open_fixture("gemma2", "cpu");
    gqac_sequence *s[3] = {new_sequence(&f, "windowed")};
    CU_ASSERT(goes_on(&f, s[0], 200));
    for (int i = 1; i < 3; i++)
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(s[0], &s[i], &diag), GQAC_OK);
    CU_ASSERT(goes_on(&f, s[0], 330));
    CU_ASSERT_EQUAL(gqac_sequence_rewind(s[1], 190, &diag), GQAC_OK);
    for (int turn = 0; turn < 20; turn++) {
        gqac_step_item items[3];
        for (int i = 0; i < 3; i++)
            items[i] = (gqac_step_item){.size = sizeof *items,
                                        .sequence = s[i],
                                        .tokens = ids + gqac_sequence_length(s[i]),
                                        .count = 1 + (turn + i) % 4,
                                        .n_logits = GQAC_LOGITS_ALL};
        CU_ASSERT_EQUAL_FATAL(gqac_step(f.context, 3, items, &diag), GQAC_OK);
        for (int i = 0; i < 3; i++)
            CU_ASSERT(is_right(&f, s[i], i));
    }
    for (int i = 0; i < 3; i++)
        gqac_sequence_free(s[i]);
    close_fixture(&f);
}

static const unit_case cases[] = {
    {"kinds have their bits, alone, together, saved, after a failure", kinds_have_their_bits},
    {"windows bound the memory of a sequence", windows_bound_memory},
    {"rewinds reach 64 tokens, and fail without effect", rewinds_reach_so_far},
    {"forks of windowed sequences read their own rows", forks_of_windows},
};

int main(int argc, char **argv) {
    return unit_run("runtime/kinds", cases, sizeof cases / sizeof cases[0], argc, argv);
}
