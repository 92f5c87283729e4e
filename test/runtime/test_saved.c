/* Sequences saved to memory: a loaded sequence, in this program or in another one of the same
 * model, computes and rewinds like the saved one, bit for bit. Other bytes, and sequences of
 * another model, are refused without effect. */
#include "base/alloc.h"
#include "runtime/rig.h"

#include <gqac/gqac.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 400, MORE = 5 };

static gqac_diag diag;
static int64_t ids[N];

typedef struct blob {
    unsigned char *data;
    size_t bytes;
} blob;

/* Computes the tokens up to `end`. */
static void feed(gqac_context *context, gqac_sequence *s, int64_t end) {
    const int64_t length = gqac_sequence_length(s);
    CU_ASSERT_EQUAL_FATAL(
        gqac_sequence_append(context, s, ids + length, end - length, GQAC_LOGITS_ALL, &diag),
        GQAC_OK);
}

static blob save(const gqac_sequence *s) {
    blob b = {.bytes = gqac_sequence_save_bytes(s)};
    b.data = malloc(b.bytes);
    memset(b.data, 0x5a, b.bytes);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_save(s, b.data, b.bytes, &diag), GQAC_OK);
    return b;
}

static gqac_status load(const gqac_program *program, blob b, gqac_sequence **s) {
    *s = NULL;
    memset(&diag, 0, sizeof diag);
    return gqac_sequence_load(program, NULL, b.data, b.bytes, s, &diag);
}

/* True if both compute the same bits for the next tokens. */
static bool step_alike(gqac_context *a, gqac_sequence *s, gqac_context *b, gqac_sequence *t) {
    int64_t rows[2] = {0}, width[2] = {0};
    const int64_t end = gqac_sequence_length(s) + MORE;
    feed(a, s, end);
    feed(b, t, end);
    const float *x = gqac_context_logits(a, 0, &rows[0], &width[0]);
    const float *y = gqac_context_logits(b, 0, &rows[1], &width[1]);
    return rows[0] == MORE && rows[1] == MORE && width[0] == width[1] &&
           !memcmp(x, y, (size_t)(MORE * width[0]) * sizeof *x);
}

static bool same_ids(const gqac_sequence *s) {
    int64_t first = -1, count = -1;
    const int64_t *own = gqac_sequence_ids(s, &first, &count);
    return first == 0 && count == gqac_sequence_length(s) &&
           (!count || !memcmp(own, ids, (size_t)count * sizeof *ids));
}

/* Compares a sequence and its loaded copy, also after rewinds. */
static void expect_twin(const gqac_program *p, gqac_sequence *s, const gqac_program *other) {
    static const int64_t lengths[] = {300, 200, 130, 129, 128, 65, 64, 63, 1, 0};
    gqac_context *a = rig_context(p), *b = rig_context(other);
    gqac_sequence *twin = NULL;
    const blob saved = save(s);
    CU_ASSERT_EQUAL_FATAL(load(other, saved, &twin), GQAC_OK);
    CU_ASSERT(gqac_sequence_length(twin) == gqac_sequence_length(s) && same_ids(twin));
    const blob again = save(twin);
    CU_ASSERT_FATAL(again.bytes == saved.bytes);
    CU_ASSERT(!memcmp(again.data, saved.data, saved.bytes));
    CU_ASSERT(step_alike(a, s, b, twin) && same_ids(twin) && same_ids(s));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        if (lengths[i] > gqac_sequence_length(s))
            continue;
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(s, lengths[i], &diag), GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(twin, lengths[i], &diag), GQAC_OK);
        CU_ASSERT_FATAL(step_alike(a, s, b, twin));
    }
    gqac_sequence_free(twin);
    gqac_context_free(a);
    gqac_context_free(b);
    free(saved.data);
    free(again.data);
}

/* Copies of whole, forked, rewound and empty sequences, in the program itself and in that of the
 * model's artefact. */
static void twins_of(const char *model, const char *target) {
    char path[64];
    gqac_options options;
    gqac_options_init(&options);
    options.target = target;
    snprintf(path, sizeof path, "/tmp/gqac-saved-%d.gqac", (int)getpid());
    CU_ASSERT_EQUAL_FATAL(gqac_compile(unit_path(model), &options, GQAC_EMIT_GQAC, path, &diag),
                          GQAC_OK);
    gqac_program *programs[] = {rig_program(model, target), rig_program(path, target)};
    gqac_context *context = rig_context(programs[0]);
    for (int other = 0; other < 2; other++) {
        gqac_sequence *s = rig_sequence(programs[0], N), *fork = NULL;
        expect_twin(programs[0], s, programs[other]); /* empty */
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(s, 0, &diag), GQAC_OK);
        feed(context, s, 97);
        feed(context, s, 98);
        feed(context, s, 310);
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(s, &fork, &diag), GQAC_OK);
        expect_twin(programs[0], s, programs[other]);
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(fork, 219, &diag), GQAC_OK);
        expect_twin(programs[0], fork, programs[other]);
        gqac_sequence_free(s);
        gqac_sequence_free(fork);
    }
    gqac_context_free(context);
    gqac_program_free(programs[0]);
    gqac_program_free(programs[1]);
    unlink(path);
}

static void twins(void) {
    twins_of("models/tiny-gqa/model.onnx", "cpu");
    twins_of("test/models/llama/model.onnx", "ref");
    twins_of("test/models/gpt-oss/model.onnx", "cpu");
}

static void twins_with_states(void) {
    twins_of("test/models/qwen3.5/model.onnx", "cpu");
    twins_of("test/models/lfm2/model.onnx", "cpu");
}

static void twins_with_guards(void) {
    twins_of("test/models/phi3/model.onnx", "cpu");
}

/* Offsets of fields in the header of a blob: see saved.c. */
enum {
    PROGRAM = 24,
    TOKENS = 56,
    MISSING = 64,
    GIVEN = 72,
    PINNED = 80,
    FINAL = 88,
    GUARDS = 96,
    STATES = 104,
    SLOTS = 112,
    SECTIONS = 232,
    DIGEST = 480,
    HEADER = 512
};
enum { GEOMETRY, POSITIONS, IDS, ROWS, STATES_KEPT, N_SECTIONS };
enum { SECTION = 48 /* bytes of a row of the table: offset, length, digest */ };

static size_t section(blob b, int i, int field) {
    uint64_t value;
    memcpy(&value, b.data + SECTIONS + i * SECTION + field * 8, sizeof value);
    return (size_t)value;
}

static size_t at_section(blob b, int i) {
    return section(b, i, 0);
}

/* Recomputes the checksums. */
static void sign(blob b) {
    for (int i = 0; i < N_SECTIONS; i++)
        rig_digest(b.data + SECTIONS + i * SECTION + 16, b.data + at_section(b, i),
                   section(b, i, 1));
    memset(b.data + DIGEST, 0, 32);
    unsigned char header[HEADER];
    memcpy(header, b.data, HEADER);
    rig_digest(b.data + DIGEST, header, HEADER);
}

/* The choice of a rope table is saved with the rows that were rotated with it. */
static void tables_are_kept(void) {
    gqac_program *p = rig_program("test/models/phi3/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    gqac_sequence *s = NULL, *twin = NULL;
    gqac_status status = GQAC_OK;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(p, NULL, &s, &diag), GQAC_OK);
    feed(context, s, 3);
    const blob saved = save(s);
    saved.data[GUARDS] ^= 1; /* guards in the file are not trusted */
    sign(saved);
    CU_ASSERT_EQUAL_FATAL(load(p, saved, &twin), GQAC_OK);
    for (int64_t i = 3; status == GQAC_OK && i < N; i++) {
        status = gqac_sequence_append(context, s, ids + i, 1, 0, &diag);
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(context, twin, ids + i, 1, 0, &diag), status);
    }
    CU_ASSERT_EQUAL(status, GQAC_RECOMPUTE);
    free(saved.data);
    gqac_sequence_free(s);
    gqac_sequence_free(twin);
    gqac_context_free(context);
    gqac_program_free(p);
}

/* The ids of imported tokens are unknown. A loaded sequence can be rewound within imported tokens
 * if its model allows it: not with recurrent states. */
static void import_into(const char *model, bool recurrent) {
    gqac_program *p = rig_program(model, "cpu");
    gqac_context *a = rig_context(p), *b = rig_context(p);
    const gqac_kv_pair *pairs = NULL;
    const int n = gqac_program_kv_pairs(p, &pairs);
    const char *names[64];
    gqac_tensor tensors[64];
    gqac_sequence *from = rig_sequence(p, N), *s = rig_sequence(p, N), *twin = NULL;
    int64_t first = 0, count = 0;
    feed(a, from, 70);
    for (int i = 0; i < n; i++) {
        const int64_t rows = gqac_kv_pair_rows(&pairs[i], 70);
        tensors[i] = (gqac_tensor){.dtype = pairs[i].dtype,
                                   .rank = 4,
                                   .dims = {1, pairs[i].heads, rows, pairs[i].head_size}};
        tensors[i].data = malloc(gqac_tensor_bytes(&tensors[i]));
        names[i] = pairs[i].past;
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_export(from, names[i], tensors[i].data,
                                                   gqac_tensor_bytes(&tensors[i]), &diag),
                              GQAC_OK);
    }
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_import(s, n, names, tensors, &diag), GQAC_OK);
    feed(a, s, 200);
    const blob saved = save(s);
    CU_ASSERT_EQUAL_FATAL(load(p, saved, &twin), GQAC_OK);
    const int64_t *own = gqac_sequence_ids(twin, &first, &count);
    CU_ASSERT_FATAL(first == 70 && count == 130);
    CU_ASSERT(!memcmp(own, ids + 70, 130 * sizeof *own));
    for (int64_t length = 150; length >= 70; length -= 40) {
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(s, length, &diag), GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(twin, length, &diag), GQAC_OK);
        CU_ASSERT(step_alike(a, s, b, twin));
    }
    const gqac_status among = recurrent ? GQAC_OUT_OF_RANGE : GQAC_OK;
    CU_ASSERT_EQUAL(gqac_sequence_rewind(twin, 69, &diag), among);
    if (among == GQAC_OK) {
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(s, 69, &diag), GQAC_OK);
        CU_ASSERT(step_alike(a, s, b, twin));
        own = gqac_sequence_ids(twin, &first, &count);
        CU_ASSERT_FATAL(first == 69 && count == MORE);
        CU_ASSERT(!memcmp(own, ids + 69, MORE * sizeof *own));
    }
    CU_ASSERT_EQUAL(gqac_sequence_rewind(twin, 0, &diag), GQAC_OK);
    for (int i = 0; i < n; i++)
        free(tensors[i].data);
    free(saved.data);
    gqac_sequence_free(from);
    gqac_sequence_free(s);
    gqac_sequence_free(twin);
    gqac_context_free(a);
    gqac_context_free(b);
    gqac_program_free(p);
}

/* The tokens of a step may be the ids of the sequence itself, which the step reallocates. */
static void ids_as_tokens(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *a = rig_context(p), *b = rig_context(p);
    int64_t first, count, copy[64], rows[2], width;
    for (int64_t length = 1; length <= 64; length++) {
        gqac_sequence *s = rig_sequence(p, N), *t = rig_sequence(p, N);
        feed(a, s, length);
        feed(b, t, length);
        const int64_t *own = gqac_sequence_ids(s, &first, &count);
        CU_ASSERT_FATAL(first == 0 && count == length);
        memcpy(copy, own, (size_t)count * sizeof *own);
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(a, s, own, count, 1, &diag), GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(b, t, copy, count, 1, &diag), GQAC_OK);
        const float *x = gqac_context_logits(a, 0, &rows[0], &width);
        const float *y = gqac_context_logits(b, 0, &rows[1], &width);
        CU_ASSERT(!memcmp(x, y, (size_t)width * sizeof *x));
        own = gqac_sequence_ids(s, &first, &count);
        CU_ASSERT(count == 2 * length && !memcmp(own + length, copy, (size_t)length * sizeof *own));
        gqac_sequence_free(s);
        gqac_sequence_free(t);
    }
    gqac_context_free(a);
    gqac_context_free(b);
    gqac_program_free(p);
}

static void imported_tokens(void) {
    import_into("test/models/qwen3.5/model.onnx", true);
    import_into("test/models/llama/model.onnx", false);
}

/* ---- what is refused ----------------------------------------------------- */

static blob saved_of(const gqac_program *p, int64_t length) {
    gqac_context *context = rig_context(p);
    gqac_sequence *s = rig_sequence(p, N);
    feed(context, s, length);
    const blob b = save(s);
    gqac_sequence_free(s);
    gqac_context_free(context);
    return b;
}

static void every_bit_counts(void) {
    gqac_program *p = rig_program("test/models/qwen3.5/model.onnx", "cpu");
    const blob b = saved_of(p, 70);
    gqac_sequence *s = NULL;
    const size_t live = gqac_alloc_live();
    for (size_t bit = 0; bit < 8 * b.bytes; bit += bit < 8 * HEADER ? 1 : 997) {
        b.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        CU_ASSERT_EQUAL_FATAL(load(p, b, &s), GQAC_INVALID_INPUT);
        b.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (size_t bytes = 0; bytes < b.bytes; bytes += bytes < 3 * HEADER ? 1 : 4999)
        CU_ASSERT_EQUAL_FATAL(load(p, (blob){b.data, bytes}, &s), GQAC_INVALID_INPUT);
    CU_ASSERT_PTR_NULL(s);
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    sign(b); /* the next test relies on this */
    CU_ASSERT_EQUAL(load(p, b, &s), GQAC_OK);
    gqac_sequence_free(s);
    free(b.data);
    gqac_program_free(p);
}

static void expect_forged(const gqac_program *p, blob b, size_t at, int64_t value) {
    gqac_sequence *s = NULL;
    int64_t was;
    memcpy(&was, b.data + at, sizeof was);
    memcpy(b.data + at, &value, sizeof value);
    sign(b);
    CU_ASSERT_EQUAL(load(p, b, &s), GQAC_INVALID_INPUT);
    CU_ASSERT_PTR_NULL(s);
    CU_ASSERT(*diag.what && *diag.hint);
    memcpy(b.data + at, &was, sizeof was);
}

/* With a correct checksum. For 200 tokens of a model with states, states are kept after 64, 128,
 * 192 and 200. */
static void forged_fields(void) {
    static const int64_t numbers[] = {INT64_MIN, -1, INT32_MAX, INT64_MAX, INT64_MAX / 8};
    gqac_program *p = rig_program("test/models/qwen3.5/model.onnx", "cpu");
    gqac_sequence *s = NULL;
    const blob b = saved_of(p, 200);
    const size_t size = sizeof(int64_t);
    int64_t states = 0, first = 0, last = 0;
    memcpy(&states, b.data + STATES, size);
    memcpy(&first, b.data + at_section(b, POSITIONS), size);
    memcpy(&last, b.data + at_section(b, POSITIONS) + (size_t)(states - 1) * size, size);
    CU_ASSERT_FATAL(states >= 3 && states <= 8 && last == 200);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        for (size_t at = TOKENS; at <= GIVEN; at += size)
            expect_forged(p, b, at, numbers[i]);
        expect_forged(p, b, STATES, numbers[i]);
        expect_forged(p, b, SLOTS, numbers[i]);
        expect_forged(p, b, at_section(b, GEOMETRY) + i * size, numbers[i]);
        expect_forged(p, b, at_section(b, POSITIONS), numbers[i]);
        expect_forged(p, b, at_section(b, IDS) + 100 * size, numbers[i]); /* an id */
    }
    for (int i = 0; i < 2; i++) {
        expect_forged(p, b, PINNED, numbers[i]);
        expect_forged(p, b, FINAL, numbers[i]);
    }
    expect_forged(p, b, STATES, 0);
    expect_forged(p, b, TOKENS, 199);
    expect_forged(p, b, MISSING, 1);
    expect_forged(p, b, GIVEN, 100);
    expect_forged(p, b, at_section(b, POSITIONS), 63);
    expect_forged(p, b, at_section(b, POSITIONS), 0);
    expect_forged(p, b, at_section(b, POSITIONS) + size, 64);
    expect_forged(p, b, at_section(b, POSITIONS) + size, first);
    expect_forged(p, b, at_section(b, POSITIONS) + (size_t)(states - 1) * size, 199);
    expect_forged(p, b, at_section(b, IDS), gqac_program_vocabulary(p));
    sign(b);
    CU_ASSERT_EQUAL(load(p, b, &s), GQAC_OK);
    gqac_sequence_free(s);
    free(b.data);
    gqac_program_free(p);
}

/* The weights of a model with one flipped bit. */
static unsigned char *weights;
static size_t n_weights;
static gqac_status other_weights(void *arg, const char *name, const void **data, size_t *n,
                                 gqac_diag *d) {
    (void)arg, (void)name, (void)d;
    *data = weights;
    *n = n_weights;
    return GQAC_OK;
}

static void *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    void *data = aligned_alloc(64, (*n / 64 + 1) * 64);
    CU_ASSERT_EQUAL_FATAL(fread(data, 1, *n, f), *n);
    fclose(f);
    return data;
}

static void other_models(void) {
    const char *llama = unit_path("test/models/llama/model.onnx");
    gqac_program *p = rig_program(llama, "cpu"), *ref = rig_program(llama, "ref"), *q = NULL;
    gqac_program *tiny = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_sequence *s = NULL;
    gqac_options options;
    gqac_model_bytes bytes;
    size_t n = 0;
    const blob b = saved_of(p, 70);
    const gqac_program *const others[] = {ref, tiny};
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(load(others[i], b, &s), GQAC_USAGE);
        CU_ASSERT(strstr(diag.what, "another model") && *diag.rule && !s);
    }
    void *graph = read_file(llama, &n);
    weights = read_file(unit_path("test/models/llama/model.onnx.data"), &n_weights);
    gqac_options_init(&options);
    options.bytes = &bytes;
    gqac_model_bytes_init(&bytes, graph, n);
    bytes.external = other_weights;
    for (size_t place = 0; place <= 16; place++) {
        const size_t at = (n_weights - 1) / 16 * place;
        const bool changed = place > 0;
        weights[at] ^= changed;
        CU_ASSERT_EQUAL_FATAL(gqac_program_open(llama, &options, &q, &diag), GQAC_OK);
        CU_ASSERT_EQUAL(load(q, b, &s), changed ? GQAC_USAGE : GQAC_OK);
        weights[at] ^= changed;
        gqac_sequence_free(s);
        gqac_program_free(q);
    }
    free(graph);
    free(weights);
    free(b.data);
    gqac_program_free(p);
    gqac_program_free(ref);
    gqac_program_free(tiny);
}

static void callers_errors(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_sequence_options options;
    gqac_sequence *s = NULL;
    const blob b = saved_of(p, 70);
    unsigned char *odd = malloc(b.bytes + 8);
    memcpy(odd + 1, b.data, b.bytes);
    CU_ASSERT_EQUAL(load(p, (blob){odd + 1, b.bytes}, &s), GQAC_USAGE);
    gqac_sequence_options_init(&options);
    options.capacity = 69;
    CU_ASSERT_EQUAL(gqac_sequence_load(p, &options, b.data, b.bytes, &s, &diag), GQAC_CAPACITY);
    options.capacity = -1;
    CU_ASSERT_EQUAL(gqac_sequence_load(p, &options, b.data, b.bytes, &s, &diag), GQAC_OUT_OF_RANGE);
    options.capacity = 70;
    options.final_length = -5;
    CU_ASSERT_EQUAL(gqac_sequence_load(p, &options, b.data, b.bytes, &s, &diag), GQAC_OUT_OF_RANGE);
    options.final_length = N + 1;
    CU_ASSERT_EQUAL(gqac_sequence_load(p, &options, b.data, b.bytes, &s, &diag), GQAC_USAGE);
    options.final_length = N;
    options.kv = "quilted";
    CU_ASSERT_EQUAL(gqac_sequence_load(p, &options, b.data, b.bytes, &s, &diag), GQAC_USAGE);
    options.kv = "basic";
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_load(p, &options, b.data, b.bytes, &s, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_save(s, odd, b.bytes - 1, &diag), GQAC_INVALID_INPUT);
    CU_ASSERT_EQUAL(gqac_sequence_save(s, odd + 1, b.bytes, &diag), GQAC_USAGE);
    gqac_sequence_free(s);
    free(odd);
    free(b.data);
    gqac_program_free(p);
}

/* After each failed allocation nothing is leaked, and the next attempt succeeds. */
static void memory_runs_out(void) {
    gqac_program *p = rig_program("test/models/qwen3.5/model.onnx", "cpu");
    const blob b = saved_of(p, 200);
    gqac_sequence *s = NULL;
    const size_t live = gqac_alloc_live();
    gqac_status status;
    size_t n = 0;
    do {
        gqac_alloc_fail_at(++n, 0);
        status = load(p, b, &s);
        gqac_alloc_fail_at(0, 0);
        CU_ASSERT_FATAL(status == GQAC_OK || (status == GQAC_NO_MEMORY && !s));
        CU_ASSERT_FATAL(status == GQAC_OK || gqac_alloc_live() == live);
    } while (status != GQAC_OK);
    CU_ASSERT(n > 8);
    gqac_sequence_free(s);
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    free(b.data);
    gqac_program_free(p);
}

/* Blocks of a fork count as shared until one of the two has its own copy. */
static void bytes_are_counted(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    gqac_sequence *s = rig_sequence(p, N), *fork = NULL;
    size_t shared = 1;
    const gqac_kv_pair *pairs = NULL;
    size_t block = 0;
    for (int i = 0, n = gqac_program_kv_pairs(p, &pairs); i < n; i++)
        block += (size_t)(pairs[i].heads * 64 * pairs[i].head_size) *
                 (size_t)gqac_dtype_bits(pairs[i].dtype) / 8;
    CU_ASSERT_EQUAL(gqac_sequence_bytes(s, &shared), 0);
    CU_ASSERT_EQUAL(shared, 0);
    feed(context, s, 100);
    CU_ASSERT(gqac_sequence_bytes(s, &shared) >= 2 * block + 100 * sizeof(int64_t));
    CU_ASSERT(gqac_sequence_bytes(s, NULL) < 3 * block && shared == 0);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(s, &fork, &diag), GQAC_OK);
    CU_ASSERT(gqac_sequence_bytes(fork, &shared) >= 2 * block && shared == 2 * block);
    feed(context, fork, 101);
    CU_ASSERT(gqac_sequence_bytes(s, &shared) >= 2 * block && shared == block);
    gqac_sequence_free(fork);
    CU_ASSERT(gqac_sequence_bytes(s, &shared) >= 2 * block && shared == 0);
    gqac_sequence_free(s);
    gqac_context_free(context);
    gqac_program_free(p);
}

static const unit_case cases[] = {
    {"twins", twins},
    {"twins of models with recurrent states", twins_with_states},
    {"twins of models with rope tables to choose", twins_with_guards},
    {"the choice of a rope table is kept", tables_are_kept},
    {"ids as tokens", ids_as_tokens},
    {"imported tokens", imported_tokens},
    {"every bit counts", every_bit_counts},
    {"forged fields", forged_fields},
    {"other models", other_models},
    {"callers' errors", callers_errors},
    {"memory runs out", memory_runs_out},
    {"bytes are counted", bytes_are_counted},
};

int main(int argc, char **argv) {
    for (int i = 0; i < N; i++)
        ids[i] = (i * 37 + i / 7 * 5 + 11) % 250;
    return unit_run("runtime/saved", cases, sizeof cases / sizeof *cases, argc, argv);
}
