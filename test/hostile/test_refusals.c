/* Invalid calls, one after another on one sequence of each kind of cache: each is refused with its
 * status and a text, and a valid step then has the bits of an untouched sequence. */
#include <gqac/gqac.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

enum { PAST = 70, CAPACITY = 80, VOCABULARY = 258, MOST = 700 };

static gqac_diag diag;
static int64_t ids[MOST];

typedef struct rig {
    gqac_program *program;
    gqac_context *context;
    gqac_sequence *sequence; /* with PAST tokens */
    float *expected;         /* logits after one more token */
} rig;

static gqac_sequence *create(const gqac_program *program, const char *kv) {
    const gqac_sequence_options options = {.size = sizeof options, .capacity = CAPACITY, .kv = kv};
    gqac_sequence *sequence = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, &options, &sequence, &diag), GQAC_OK);
    return sequence;
}

static const float *step_once(rig *r, gqac_sequence *sequence) {
    int64_t rows = 0, vocabulary = 0;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(r->context, sequence, ids + PAST, 1, 1, &diag),
                          GQAC_OK);
    const float *logits = gqac_context_logits(r->context, 0, &rows, &vocabulary);
    CU_ASSERT_FATAL(logits && rows == 1 && vocabulary == VOCABULARY);
    return logits;
}

static void open_rig(rig *r, const char *kv) {
    gqac_options options;
    gqac_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(
        gqac_program_open(unit_path("test/models/llama/model.onnx"), &options, &r->program, &diag),
        GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(r->program, 1, &r->context, &diag), GQAC_OK);
    gqac_sequence *twin = create(r->program, kv);
    r->sequence = create(r->program, kv);
    for (int i = 0; i < MOST; i++)
        ids[i] = (i * 37 + i / 7) % 250;
    gqac_sequence *const both[] = {twin, r->sequence};
    for (int i = 0; i < 2; i++)
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(r->context, both[i], ids, PAST, 0, &diag),
                              GQAC_OK);
    r->expected = malloc(VOCABULARY * sizeof *r->expected);
    memcpy(r->expected, step_once(r, twin), VOCABULARY * sizeof *r->expected);
    gqac_sequence_free(twin);
}

static void close_rig(rig *r) {
    free(r->expected);
    gqac_sequence_free(r->sequence);
    gqac_context_free(r->context);
    gqac_program_free(r->program);
}

/* Checks that the call failed with this status, and changed nothing. */
static void check(rig *r, const char *name, gqac_status status, gqac_status expected) {
    gqac_sequence *fork = NULL;
    const bool told = status != GQAC_OK && *diag.what;
    if (status != expected || !told)
        printf("%s: status %d, %s\n", name, (int)status, diag.what);
    CU_ASSERT(status == expected && told);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_length(r->sequence), PAST);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(r->sequence, &fork, &diag), GQAC_OK);
    const bool same = !memcmp(step_once(r, fork), r->expected, VOCABULARY * sizeof *r->expected);
    if (!same)
        printf("%s: other bits\n", name);
    CU_ASSERT(same);
    gqac_sequence_free(fork);
}

/* ---- steps --------------------------------------------------------------- */

/* One id of `count` is `id`; position and size are those of a valid item plus these. */
static const struct {
    const char *name;
    int64_t at, id, count, n_logits, position;
    size_t size;
    bool no_tokens, no_sequence, embeddings;
    gqac_status expected;
} steps[] = {
#define ID(value, at, count)                                                                       \
    { "id " #value " at " #at, at, value, count, 1, 0, 0, 0, 0, 0, GQAC_OUT_OF_RANGE }
    ID(-1, 0, 1),
    ID(-1, 4, 5),
    ID(VOCABULARY, 0, 1),
    ID(VOCABULARY, 4, 5),
    ID(INT32_MAX, 0, 3),
    ID(INT32_MIN, 0, 3),
    ID(INT64_C(1) << 32, 1, 3),
    ID((INT64_C(1) << 32) + 5, 1, 3),
    ID(INT64_MAX, 2, 3),
    ID(INT64_MIN, 2, 3),
    ID(INT64_C(1) << 62, 0, 2),
#undef ID
#define COUNT(value, status)                                                                       \
    { "count " #value, -1, 0, value, 0, 0, 0, 0, 0, 0, status }
    COUNT(0, GQAC_OUT_OF_RANGE),
    COUNT(-1, GQAC_OUT_OF_RANGE),
    COUNT(INT64_MIN, GQAC_OUT_OF_RANGE),
    COUNT(INT64_MAX, GQAC_OUT_OF_RANGE),
    COUNT(INT64_MAX - PAST, GQAC_OUT_OF_RANGE),
    COUNT(INT32_MAX, GQAC_OUT_OF_RANGE),
    COUNT(INT64_C(1) << 32, GQAC_OUT_OF_RANGE),
    COUNT(CAPACITY - PAST + 1, GQAC_CAPACITY),
    COUNT(640 - PAST, GQAC_CAPACITY),
    COUNT(641 - PAST, GQAC_OUT_OF_RANGE),
#undef COUNT
#define LOGITS(value)                                                                              \
    { "logits " #value, -1, 0, 3, value, 0, 0, 0, 0, 0, GQAC_OUT_OF_RANGE }
    LOGITS(4),
    LOGITS(-2),
    LOGITS(INT64_MAX),
    LOGITS(INT64_MIN),
    LOGITS(INT64_C(1) << 32),
#undef LOGITS
#define POSITION(value)                                                                            \
    { "position " #value, -1, 0, 1, 1, value, 0, 0, 0, 0, GQAC_OUT_OF_RANGE }
    POSITION(1),
    POSITION(-1),
    POSITION(-PAST),
    POSITION(-PAST - 1),
    POSITION(INT64_MAX - PAST),
    POSITION(INT64_MIN),
    POSITION(INT64_C(1) << 32),
#undef POSITION
    {"no tokens", -1, 0, 1, 1, 0, 0, true, 0, 0, GQAC_USAGE},
    {"no sequence", -1, 0, 1, 1, 0, 0, 0, true, 0, GQAC_USAGE},
    {"embeddings", -1, 0, 1, 1, 0, 0, 0, 0, true, GQAC_USAGE},
    {"a size of one more", -1, 0, 1, 1, 0, 1, 0, 0, 0, GQAC_USAGE},
    {"a size of 0", -1, 0, 1, 1, 0, (size_t)0 - sizeof(gqac_step_item), 0, 0, 0, GQAC_USAGE},
};

static void try_steps(rig *r) {
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        int64_t given[MOST];
        const float zero[VOCABULARY] = {0};
        const int64_t position = PAST + steps[i].position;
        memcpy(given, ids, sizeof given);
        if (steps[i].at >= 0)
            given[steps[i].at] = steps[i].id;
        const gqac_step_item item = {.size = sizeof item + steps[i].size,
                                     .sequence = steps[i].no_sequence ? NULL : r->sequence,
                                     .tokens = steps[i].no_tokens ? NULL : given,
                                     .count = steps[i].count,
                                     .n_logits = steps[i].n_logits,
                                     .position = &position,
                                     .embeddings = steps[i].embeddings ? zero : NULL};
        check(r, steps[i].name, gqac_step(r->context, 1, &item, &diag), steps[i].expected);
    }
}

/* Items that are wrong together, or next to a valid one. */
static void try_pairs(rig *r) {
    gqac_sequence *other = create(r->program, "contiguous");
    const int64_t bad[] = {3, -1};
    gqac_step_item items[2] = {
        {.size = sizeof *items, .sequence = r->sequence, .tokens = ids, .count = 2, .n_logits = 1}};
    items[1] = items[0];
    check(r, "twice", gqac_step(r->context, 2, items, &diag), GQAC_USAGE);
    items[1].sequence = other;
    items[1].tokens = bad;
    check(r, "a bad one beside", gqac_step(r->context, 2, items, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT(diag.index == 1 && gqac_sequence_length(other) == 0);
    check(r, "no items", gqac_step(r->context, 0, items, &diag), GQAC_USAGE);
    check(r, "-1 items", gqac_step(r->context, -1, items, &diag), GQAC_USAGE);
    check(r, "INT_MIN items", gqac_step(r->context, INT_MIN, items, &diag), GQAC_USAGE);
    gqac_sequence_free(other);
}

/* ---- other calls --------------------------------------------------------- */

static void try_rewinds(rig *r) {
    static const int64_t lengths[] = {PAST + 1, -1, INT64_MAX, INT64_MIN, INT64_C(1) << 32};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        check(r, "rewind", gqac_sequence_rewind(r->sequence, lengths[i], &diag), GQAC_OUT_OF_RANGE);
}

static void try_exports(rig *r) {
    unsigned char data[64];
    const gqac_kv_pair *pairs = NULL;
    CU_ASSERT_FATAL(gqac_program_kv_pairs(r->program, &pairs) > 0);
    check(r, "export of nobody",
          gqac_sequence_export(r->sequence, "nobody", data, sizeof data, &diag), GQAC_USAGE);
    check(r, "export to little memory",
          gqac_sequence_export(r->sequence, pairs[0].past, data, sizeof data, &diag),
          GQAC_INVALID_INPUT);
    const char *const names[] = {pairs[0].past};
    gqac_tensor tensor = {.dtype = GQAC_F32, .rank = 4, .dims = {1, 2, 1, 32}, .data = data};
    check(r, "import of one tensor", gqac_sequence_import(r->sequence, 1, names, &tensor, &diag),
          GQAC_USAGE);
    check(r, "import of -1 tensors", gqac_sequence_import(r->sequence, -1, names, &tensor, &diag),
          GQAC_USAGE);
}

/* Truncated or changed saved sequences are refused. */
static void try_loads(rig *r) {
    const size_t bytes = gqac_sequence_save_bytes(r->sequence);
    unsigned char *data = aligned_alloc(64, (bytes + 127) / 64 * 64);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_save(r->sequence, data, bytes, &diag), GQAC_OK);
    const size_t cuts[] = {0, 1, 511, 512, bytes / 2, bytes - 1, bytes + 1};
    gqac_sequence *loaded = NULL;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        check(r, "load of other lengths",
              gqac_sequence_load(r->program, NULL, data, cuts[i], &loaded, &diag),
              GQAC_INVALID_INPUT);
    for (size_t at = 0; at < bytes; at += bytes / 40) {
        data[at] ^= 16;
        check(r, "load of other bytes",
              gqac_sequence_load(r->program, NULL, data, bytes, &loaded, &diag),
              GQAC_INVALID_INPUT);
        data[at] ^= 16;
    }
    check(r, "save to little memory", gqac_sequence_save(r->sequence, data, bytes - 1, &diag),
          GQAC_INVALID_INPUT);
    CU_ASSERT_PTR_NULL(loaded);
    free(data);
}

/* Finally the sequence itself continues. */
static void try_all(const char *kv) {
    rig r = {0};
    open_rig(&r, kv);
    try_steps(&r);
    try_pairs(&r);
    try_rewinds(&r);
    try_exports(&r);
    try_loads(&r);
    CU_ASSERT(!memcmp(step_once(&r, r.sequence), r.expected, VOCABULARY * sizeof(float)));
    close_rig(&r);
}

static void contiguous(void) {
    try_all("contiguous");
}

static void paged(void) {
    try_all("paged");
}

static void quantised(void) {
    try_all("quantised");
}

static const unit_case cases[] = {
    {"contiguous", contiguous},
    {"paged", paged},
    {"quantised", quantised},
};

int main(int argc, char **argv) {
    return unit_run("hostile/refusals", cases, sizeof cases / sizeof *cases, argc, argv);
}
