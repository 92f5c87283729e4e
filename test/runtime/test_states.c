/* Sequences of a model with recurrent states (qwen3.5): after rewinds, forks, failed steps and
 * imports the logits are those of a sequence computed token by token, bit for bit. */
#include "runtime/steps.h"
#include "unit.h"

#include <gqac/gqac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 300, MOST_PAIRS = 16 };

static gqac_diag diag;
static gqac_program *program;
static gqac_context *context;
static int64_t ids[N], vocabulary;
static float *expected; /* [N][vocabulary], token by token */

static gqac_sequence *new_sequence(int64_t capacity) {
    const gqac_sequence_options options = {.size = sizeof options, .capacity = capacity};
    gqac_sequence *sequence = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, &options, &sequence, &diag), GQAC_OK);
    return sequence;
}

/* Computes the tokens [length, end) in one call; true if all their logits have the expected
 * bits. */
static bool feed(gqac_sequence *sequence, int64_t end) {
    const int64_t length = gqac_sequence_length(sequence), count = end - length;
    int64_t rows = 0, width = 0;
    const gqac_step_item item = {.size = sizeof item,
                                 .sequence = sequence,
                                 .tokens = ids + length,
                                 .count = count,
                                 .n_logits = GQAC_LOGITS_ALL,
                                 .position = &length};
    if (gqac_step(context, 1, &item, &diag) != GQAC_OK)
        return false;
    const float *logits = gqac_context_logits(context, 0, &rows, &width);
    return gqac_sequence_length(sequence) == end && rows == count &&
           !memcmp(logits, expected + length * width, (size_t)(rows * width) * sizeof *logits);
}

static void open_all(void) {
    gqac_options options;
    gqac_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(
        gqac_program_open(unit_path("test/models/qwen3.5/model.onnx"), &options, &program, &diag),
        GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
    vocabulary = gqac_program_vocabulary(program);
    expected = malloc((size_t)(N * vocabulary) * sizeof *expected);
    CU_ASSERT_FATAL(expected != NULL);
    gqac_sequence *sequence = new_sequence(0);
    for (int64_t i = 0; i < N; i++) {
        const int64_t one = 1;
        int64_t rows, width;
        ids[i] = (i * 37 + i / 7 * 5 + 11) % 250;
        CU_ASSERT_EQUAL_FATAL(
            gqac_sequence_append(context, sequence, ids + i, one, GQAC_LOGITS_ALL, &diag), GQAC_OK);
        memcpy(expected + i * vocabulary, gqac_context_logits(context, 0, &rows, &width),
               (size_t)vocabulary * sizeof *expected);
    }
    gqac_sequence_free(sequence);
}

static void close_all(void) {
    free(expected);
    gqac_context_free(context);
    gqac_program_free(program);
}

/* I14: one line, never longer than the requested size, and without any cached number. */
static void a_sequence_is_described(void) {
    const gqac_kv_pair *pairs = NULL;
    char text[200], want[200], small[12];
    open_all();
    const int n = gqac_program_kv_pairs(program, &pairs);
    gqac_sequence *sequence = new_sequence(0);
    for (int64_t length = 0; length <= 200; length += 200) {
        if (length)
            CU_ASSERT_TRUE(feed(sequence, length));
        snprintf(want, sizeof want, "contiguous, %lld tokens, %d tensors, %zu bytes",
                 (long long)length, n, gqac_sequence_bytes(sequence, NULL));
        CU_ASSERT_STRING_EQUAL(gqac_sequence_describe(sequence, text, sizeof text), want);
    }
    CU_ASSERT_STRING_EQUAL(gqac_sequence_describe(sequence, small, sizeof small), "contiguous,");
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(sequence, 150, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_missing(sequence), 150 - 128);
    CU_ASSERT_PTR_NOT_NULL(strstr(gqac_sequence_describe(sequence, text, sizeof text),
                                  "150 tokens (22 to compute again)"));
    gqac_sequence_free(sequence);
    close_all();
}

static void rewinds_reach_every_length(void) {
    open_all();
    gqac_sequence *sequence = new_sequence(0);
    CU_ASSERT_TRUE(feed(sequence, 200));
    static const int64_t kept[] = {199, 150, 129, 128, 127, 126, 65, 64, 63, 1, 0};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(sequence, kept[i], &diag), GQAC_OK);
        CU_ASSERT_EQUAL(gqac_sequence_length(sequence), kept[i]);
        CU_ASSERT_TRUE(feed(sequence, kept[i] + 3));
        CU_ASSERT_TRUE(feed(sequence, kept[i] + 4));
    }
    CU_ASSERT_TRUE(feed(sequence, 250));
    /* twice without a step in between; then up and down */
    CU_ASSERT_EQUAL(gqac_sequence_rewind(sequence, 190, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_rewind(sequence, 70, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_rewind(sequence, 71, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_sequence_rewind(sequence, -1, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_TRUE(feed(sequence, 300));
    gqac_sequence_free(sequence);
    close_all();
}

static void forks_go_their_ways(void) {
    open_all();
    gqac_sequence *sequence = new_sequence(0), *fork = NULL, *late = NULL;
    CU_ASSERT_TRUE(feed(sequence, 100));
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(sequence, &fork, &diag), GQAC_OK);
    CU_ASSERT_TRUE(feed(fork, 180));
    CU_ASSERT_TRUE(feed(sequence, 101));
    CU_ASSERT_EQUAL(gqac_sequence_rewind(fork, 90, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(fork, &late, &diag), GQAC_OK); /* before it steps */
    gqac_sequence_free(fork);
    CU_ASSERT_EQUAL(gqac_sequence_length(late), 90);
    CU_ASSERT_TRUE(feed(late, 140));
    CU_ASSERT_TRUE(feed(sequence, 140));
    gqac_sequence_free(late);
    gqac_sequence_free(sequence);
    close_all();
}

/* Two sequences, one without capacity: neither is changed. */
static void failed_steps_change_nothing(void) {
    open_all();
    gqac_sequence *pair[2] = {new_sequence(0), new_sequence(70)};
    CU_ASSERT(feed(pair[0], 64) && feed(pair[1], 60));
    int64_t tokens[140], counts[2] = {70, 11};
    memcpy(tokens, ids + 64, 70 * sizeof *ids);
    memcpy(tokens + 70, ids + 60, 11 * sizeof *ids);
    for (int i = 0; i < 2; i++)
        CU_ASSERT_EQUAL(steps_run(context, 2, pair, tokens, counts, 1, &diag), GQAC_CAPACITY);
    CU_ASSERT(gqac_sequence_length(pair[0]) == 64 && gqac_sequence_length(pair[1]) == 60);
    CU_ASSERT(feed(pair[0], 66) && feed(pair[1], 70));
    /* a rewind whose tokens are still missing, and an invalid token */
    const int64_t wrong = -7;
    CU_ASSERT_EQUAL(gqac_sequence_rewind(pair[0], 65, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_append(context, pair[0], &wrong, 1, 1, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_sequence_length(pair[0]), 65);
    CU_ASSERT_TRUE(feed(pair[0], 140));
    gqac_sequence_free(pair[0]);
    gqac_sequence_free(pair[1]);
    close_all();
}

/* The model has positions in three planes, and tables of 320 rows for them. */
static void tables_end(void) {
    open_all();
    gqac_sequence *sequence = new_sequence(0);
    CU_ASSERT_TRUE(feed(sequence, N));
    CU_ASSERT_EQUAL(gqac_sequence_append(context, sequence, ids, 21, 1, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "position 320 is out of range"));
    CU_ASSERT_EQUAL(gqac_sequence_length(sequence), N);
    CU_ASSERT_EQUAL(gqac_sequence_append(context, sequence, ids, 20, 1, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_append(context, sequence, ids, 1, 1, &diag), GQAC_OUT_OF_RANGE);
    gqac_sequence_free(sequence);
    close_all();
}

typedef struct past_tensors {
    int n, states;
    const char *names[MOST_PAIRS];
    gqac_tensor tensors[MOST_PAIRS];
} past_tensors;

/* The past tensors of a new sequence of `length` tokens. */
static void export_past(int64_t length, past_tensors *past) {
    gqac_sequence *source = new_sequence(0);
    const gqac_kv_pair *pairs = NULL;
    *past = (past_tensors){.n = gqac_program_kv_pairs(program, &pairs)};
    CU_ASSERT_FATAL(past->n <= MOST_PAIRS);
    CU_ASSERT_TRUE(length == 0 || feed(source, length));
    for (int i = 0; i < past->n; i++) {
        gqac_tensor *t = &past->tensors[i];
        past->names[i] = pairs[i].past;
        past->states += pairs[i].rows > 0;
        *t = (gqac_tensor){
            .dtype = pairs[i].dtype,
            .rank = 4,
            .dims = {1, pairs[i].heads, gqac_kv_pair_rows(&pairs[i], length), pairs[i].head_size}};
        const size_t bytes = gqac_tensor_bytes(t);
        t->data = malloc(bytes + 1);
        CU_ASSERT_FATAL(t->data != NULL);
        CU_ASSERT_EQUAL(gqac_sequence_export(source, pairs[i].past, t->data, bytes, &diag),
                        GQAC_OK);
    }
    CU_ASSERT_EQUAL(past->states, 3);
    gqac_sequence_free(source);
}

static gqac_status import_past(gqac_sequence *sequence, const past_tensors *past) {
    return gqac_sequence_import(sequence, past->n, past->names, past->tensors, &diag);
}

static void free_past(past_tensors *past) {
    for (int i = 0; i < past->n; i++)
        free(past->tensors[i].data);
}

/* Of the inputs of convolutions, only the rows that the next step reads are exported. */
static void exports_end_in_a_tail(void) {
    open_all();
    const gqac_kv_pair *pairs = NULL;
    past_tensors past;
    int n = 0;
    export_past(100, &past);
    (void)gqac_program_kv_pairs(program, &pairs);
    for (int i = 0; i < past.n; i++) {
        const float *rows = past.tensors[i].data;
        const int64_t size = pairs[i].head_size;
        bool zero = true, some[3] = {false};
        if (!pairs[i].tail)
            continue;
        n++;
        CU_ASSERT_EQUAL_FATAL(pairs[i].tail, 3);
        for (int64_t k = 0; k < 97 * size; k++)
            zero = zero && rows[k] == 0;
        for (int64_t k = 97 * size; k < 100 * size; k++)
            some[k / size - 97] = some[k / size - 97] || rows[k] != 0;
        CU_ASSERT(zero && some[0] && some[1] && some[2]);
    }
    CU_ASSERT_EQUAL(n, 3);
    free_past(&past);
    close_all();
}

static void imports_go_on(void) {
    open_all();
    gqac_sequence *target = new_sequence(0);
    past_tensors past;
    export_past(100, &past);
    CU_ASSERT_EQUAL_FATAL(import_past(target, &past), GQAC_OK);
    CU_ASSERT_TRUE(feed(target, 200));
    CU_ASSERT_EQUAL(gqac_sequence_rewind(target, 99, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT(strstr(diag.what, "imported") && strstr(diag.hint, "rewind to 0"));
    CU_ASSERT_EQUAL(gqac_sequence_rewind(target, 150, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(
        gqac_sequence_export(target, past.names[0], past.tensors[0].data, (size_t)1 << 30, &diag),
        GQAC_USAGE);
    CU_ASSERT_TRUE(feed(target, 170));
    CU_ASSERT_EQUAL(gqac_sequence_rewind(target, 0, &diag), GQAC_OK);
    CU_ASSERT_TRUE(feed(target, 80));
    free_past(&past);
    gqac_sequence_free(target);
    close_all();
}

/* The state of imported tokens is kept, however many tokens follow. */
static void imports_can_be_returned_to(void) {
    open_all();
    gqac_sequence *target = new_sequence(0), *fork = NULL;
    past_tensors past;
    export_past(100, &past);
    CU_ASSERT_EQUAL_FATAL(import_past(target, &past), GQAC_OK);
    CU_ASSERT(feed(target, 101) && feed(target, 102) && feed(target, 103));
    static const int64_t to[] = {102, 101, 100, 110, 101, 127, 128, 100, 290, 129, 100};
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        if (to[i] > gqac_sequence_length(target))
            CU_ASSERT_TRUE(feed(target, 300));
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(target, to[i], &diag), GQAC_OK);
        CU_ASSERT_TRUE(feed(target, to[i] + 2));
    }
    CU_ASSERT_TRUE(feed(target, 200));
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(target, &fork, &diag), GQAC_OK);
    CU_ASSERT_TRUE(feed(fork, 300));
    CU_ASSERT_EQUAL(gqac_sequence_rewind(fork, 101, &diag), GQAC_OK);
    CU_ASSERT_TRUE(feed(fork, 105));
    gqac_sequence_free(fork);
    free_past(&past);
    gqac_sequence_free(target);
    close_all();
}

/* Only a sequence without tokens can be imported into, also if a rewind left nothing computed. The
 * state of no tokens is zeros. */
static void imports_are_checked(void) {
    open_all();
    gqac_sequence *target = new_sequence(0);
    past_tensors past, none;
    export_past(100, &past);
    export_past(0, &none);
    CU_ASSERT_TRUE(feed(target, 50));
    CU_ASSERT_EQUAL(gqac_sequence_rewind(target, 30, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(import_past(target, &past), GQAC_USAGE);
    CU_ASSERT_TRUE(feed(target, 40));
    CU_ASSERT_EQUAL(gqac_sequence_rewind(target, 0, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(import_past(target, &none), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_length(target), 0);
    int state = 0;
    while (none.tensors[state].dims[2] == 0)
        state++;
    unsigned char *bytes = none.tensors[state].data;
    bytes[gqac_tensor_bytes(&none.tensors[state]) - 1] = 0x3f;
    CU_ASSERT_EQUAL(import_past(target, &none), GQAC_INVALID_INPUT);
    CU_ASSERT(strstr(diag.what, none.names[state]) && *diag.rule && *diag.hint);
    CU_ASSERT_EQUAL(import_past(target, &past), GQAC_OK);
    CU_ASSERT_TRUE(feed(target, 140));
    free_past(&past);
    free_past(&none);
    gqac_sequence_free(target);
    close_all();
}

/* ---- refused programs ----------------------------------------------------- */

/* A layer with cached rows in .gq text, whose append takes `token`; `where` defines %y, and `also`
 * names more results. */
static gqac_status open_text(const char *token, const char *where, const char *also) {
    char path[] = "/tmp/gqac-states-XXXXXX.gq";
    const int fd = mkstemps(path, 3);
    CU_ASSERT_FATAL(fd >= 0);
    FILE *file = fdopen(fd, "w");
    CU_ASSERT_FATAL(file != NULL);
    fprintf(file,
            "graph @m(%%input_ids: i64[B,S], %%gqac.past_len: i32[B], %%gqac.new_len: i32[B]) {\n"
            "  const %%table: f32[2,4] = [1,2,3,4,5,6,7,8]\n"
            "  const %%big: i64[] = 100\n"
            "  const %%one: i64[1] = [1]\n"
            "  const %%w: f32[1,1,4,4] = [0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]\n"
            "  %%x = Gather %%table, %%input_ids : f32[B,S,4]\n"
            "  %%most = ReduceMax %%input_ids {keepdims=0} : i64[]\n"
            "  %%c = Less %%most, %%big : bool[]\n"
            "  %%rows = kv_state {slot=0, past=\"p\", present=\"q\", heads=1, head_size=4, "
            "dtype=f32} : token\n"
            "  %%x4 = Unsqueeze %%x, %%one : f32[B,1,S,4]\n"
            "%s  %%t1, %%all = kv_append %s, %%x4, %%gqac.past_len, %%gqac.new_len {slot=0} : "
            "token, f32[B,1,T,4]\n"
            "  return %%y as \"logits\", %%t1 as \"state.0\"%s\n}\n",
            where, token, also);
    CU_ASSERT_EQUAL(fclose(file), 0);
    gqac_options options;
    gqac_options_init(&options);
    program = NULL;
    const gqac_status status = gqac_program_open(path, &options, &program, &diag);
    unlink(path);
    return status;
}

#define STATE(rows)                                                                                \
    "  %state = kv_state {slot=1, past=\"s\", present=\"t\", heads=1, head_size=4, " rows          \
    "dtype=f32} : token\n"
#define RECURRENCE(token, type)                                                                    \
    "recurrent_attention %x, %x, %x, " token                                                       \
    " {q_num_heads=1, kv_num_heads=1, update_rule=\"linear\"} : f32[B,S,4], " type "\n"
#define BRANCHES(then)                                                                             \
    "  %y = If %c {then_branch=graph @then() {\n" then                                             \
    "  }, else_branch=graph @else() {\n    return %x\n  }} : f32[B,S,4]\n"
#define GOOD STATE("rows=4, ") "  %y, %t2 = " RECURRENCE("%state", "token")
#define ALSO ", %t2 as \"state.1\""

static bool is_refused(const char *node, const char *what) {
    const bool good =
        strstr(diag.where, node) && strstr(diag.what, what) && *diag.rule && *diag.hint;
    if (!good)
        printf("%s | %s | %s | %s\n", diag.where, diag.what, diag.rule, diag.hint);
    return good;
}

static void tokens_are_checked(void) {
    CU_ASSERT_EQUAL(open_text("%rows", GOOD, ALSO), GQAC_OK);
    gqac_program_free(program);
    /* no token; the token of the rows; each the token of the other */
    CU_ASSERT_EQUAL(open_text("%rows", "  %y, %t2 = " RECURRENCE("%w", "f32[B,1,4,4]"), ""),
                    GQAC_INVALID_MODEL);
    CU_ASSERT_TRUE(is_refused("'y' (recurrent_attention)", "token"));
    CU_ASSERT_EQUAL(
        open_text("%rows", STATE("") "  %y, %t2 = " RECURRENCE("%state", "token"), ALSO),
        GQAC_INVALID_MODEL);
    CU_ASSERT_TRUE(is_refused("'y' (recurrent_attention)", "token"));
    CU_ASSERT_EQUAL(
        open_text("%state", STATE("rows=4, ") "  %y, %t2 = " RECURRENCE("%rows", "token"), ALSO),
        GQAC_INVALID_MODEL);
    CU_ASSERT_TRUE(is_refused("'y' (recurrent_attention)", "token"));
}

static void nested_graphs_change_no_cache(void) {
    static const char *const texts[] = {
        BRANCHES("    %r, %t2 = " RECURRENCE("%w", "f32[B,1,4,4]") "    return %r\n"),
        STATE("rows=4, ")
            BRANCHES("    %r, %t2 = " RECURRENCE("%state", "token") "    return %r\n"),
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CU_ASSERT_EQUAL(open_text("%rows", texts[i], ""), GQAC_INVALID_MODEL);
        CU_ASSERT_TRUE(is_refused("'r' (recurrent_attention)", "nested graph"));
    }
}

/* Huge lengths without a maximum: too much memory is refused at once. */
static void huge_lengths_are_counted(void) {
    gqac_memory memory = {.size = sizeof memory};
    CU_ASSERT_EQUAL_FATAL(open_text("%rows", GOOD, ALSO), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_program_memory(program, INT64_MAX, 1, &memory, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_program_memory(program, (int64_t)1 << 40, 1, &memory, &diag), GQAC_OK);
    CU_ASSERT(memory.kv_state >= 64 && memory.kv_states > 30 && memory.kv_states < 40);
    gqac_program_free(program);
}

static const unit_case cases[] = {
    {"I14 a sequence is described in a line", a_sequence_is_described},
    {"rewinds reach every length", rewinds_reach_every_length},
    {"forks go their ways", forks_go_their_ways},
    {"failed steps change nothing", failed_steps_change_nothing},
    {"tables of positions end", tables_end},
    {"exports end in a tail", exports_end_in_a_tail},
    {"imports go on", imports_go_on},
    {"imports can be returned to", imports_can_be_returned_to},
    {"imports are checked", imports_are_checked},
    {"tokens are checked", tokens_are_checked},
    {"nested graphs change no cache", nested_graphs_change_no_cache},
    {"huge lengths are counted", huge_lengths_are_counted},
};

int main(int argc, char **argv) {
    return unit_run("runtime/states", cases, sizeof cases / sizeof cases[0], argc, argv);
}
