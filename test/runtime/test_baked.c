/* Baked prefixes: a prompt that begins with one reuses exactly its rows, with the bits of a cold
 * run, in every kind of cache. Whatever a section contains, opening it succeeds or fails with a
 * reason. */
#include "unit.h"

#include <gqac/text.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gqac/schedule.h>

#include "runtime/rig.h"
#include "runtime/saved.h"

enum { N = 150, BAKED = 100, PATH = 64 };

static gqac_diag diag;
static char path[PATH], again[PATH];

static void make_ids(int64_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        ids[i] = (i * 37 + i / 5 + 3) % 250;
}

static gqac_program *open_program(const char *file) {
    gqac_program *program = NULL;
    const gqac_status status = gqac_program_open(file, NULL, &program, &diag);
    if (status != GQAC_OK)
        printf("%s: %s\n", diag.where, diag.what);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    return program;
}

static gqac_status bake(const char *model, const int64_t *ids, int64_t n, const char *kv) {
    gqac_options options;
    gqac_bake prefix;
    gqac_options_init(&options);
    gqac_bake_init(&prefix, ids, n);
    prefix.kv = kv;
    prefix.threads = 2;
    options.bake = &prefix;
    return gqac_compile(unit_path(model), &options, GQAC_EMIT_GQAC, path, &diag);
}

/* A hash of the last logits and of all past tensors. */
static uint64_t bits_of(gqac_context *context, const gqac_sequence *s) {
    const gqac_kv_pair *pairs = NULL;
    int64_t rows = 0, width = 0;
    const float *logits = gqac_context_logits(context, 0, &rows, &width);
    uint64_t sum = gqac_hash_bytes(1, logits, (size_t)width * sizeof *logits);
    const int n = gqac_program_kv_pairs(gqac_sequence_program(s), &pairs);
    for (int i = 0; i < n; i++) {
        const gqac_kv_pair *p = &pairs[i];
        const size_t bytes =
            (size_t)(p->heads * gqac_kv_pair_rows(p, gqac_sequence_length(s)) * p->head_size) *
            (size_t)gqac_dtype_bits(p->dtype) / 8;
        void *data = malloc(bytes + 1);
        CU_ASSERT_EQUAL(gqac_sequence_export(s, p->past, data, bytes, &diag), GQAC_OK);
        sum = gqac_hash_bytes(sum, data, bytes);
        free(data);
    }
    return sum;
}

/* Continues the baked prefix of n ids, and returns the bits at the end. */
static uint64_t visit(const gqac_program *p, gqac_context *context, const char *kv,
                      const int64_t *ids, int64_t n, int64_t *reused) {
    const gqac_sequence_options options = {.size = sizeof options, .kv = kv};
    gqac_sequence *s = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_begin(p, ids, n, &options, &s, reused, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_length(s), *reused);
    if (kv)
        CU_ASSERT_STRING_EQUAL(gqac_sequence_kind(s), kv);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(context, s, ids + *reused, n - *reused, 1, &diag),
                          GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_computed(s), n - *reused);
    const uint64_t bits = bits_of(context, s);
    gqac_sequence_free(s);
    return bits;
}

/* ---- hits ---------------------------------------------------------------- */

/* Prompts that have their first `same` ids in common with the prefix. expected: with states, only
 * some lengths are reused. */
static void hits_of(const char *model, const char *kv, const char *used, bool states, bool window) {
    int64_t ids[N], other[N], reused = 0, none = 0;
    gqac_context *warm = NULL, *cold = NULL;
    make_ids(ids, N);
    CU_ASSERT_EQUAL_FATAL(bake(model, ids, BAKED, kv), GQAC_OK);
    gqac_program *p = open_program(path), *plain = open_program(unit_path(model));
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(p, 1, &warm, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(plain, 1, &cold, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_snapshot_length(gqac_program_baked(p)), BAKED);
    CU_ASSERT_PTR_NULL(gqac_program_baked(plain));
    static const int64_t lengths[] = {0, 1, 63, 64, 65, 99, 100};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const int64_t same = lengths[i];
        memcpy(other, ids, sizeof ids);
        for (int64_t k = same; k < N; k++)
            other[k] = (ids[k] + 1) % 250;
        const uint64_t expected = visit(plain, cold, used, other, N, &none);
        CU_ASSERT_EQUAL(none, 0);
        CU_ASSERT_EQUAL(visit(p, warm, used, other, N, &reused), expected);
        const int64_t kept = states && same < BAKED ? same / 64 * 64 : same;
        if (!window || same >= BAKED - 64)
            CU_ASSERT_EQUAL(reused, kept);
    }
    /* the whole prompt is baked: only its last token is computed, for its logits */
    const uint64_t expected = visit(plain, cold, used, ids, BAKED, &none);
    CU_ASSERT_EQUAL(visit(p, warm, used, ids, BAKED, &reused), expected);
    CU_ASSERT_EQUAL(reused, states ? 64 : BAKED - 1);
    gqac_context_free(warm);
    gqac_context_free(cold);
    gqac_program_free(p);
    gqac_program_free(plain);
    unlink(path);
}

static void test_hits(void) {
    hits_of("test/models/llama/model.onnx", NULL, NULL, false, false);
    hits_of("test/models/llama/model.onnx", "paged", "contiguous", false, false);
    hits_of("test/models/llama-fp16/model.onnx", "contiguous", "paged", false, false);
    hits_of("test/models/llama/model.onnx", "quantised", "quantised", false, false);
    hits_of("test/models/gemma2/model.onnx", "windowed", "windowed", false, true);
}

static void test_hybrid(void) {
    hits_of("test/models/lfm2/model.onnx", NULL, NULL, false, false);
    hits_of("test/models/qwen3.5/model.onnx", NULL, NULL, true, false);
    hits_of("test/models/qwen3.5/model.onnx", "quantised", "quantised", true, false);
}

/* The rows of one kind of cache are not used for another. */
static void test_other_kind(void) {
    int64_t ids[N], reused = 1;
    gqac_context *context = NULL;
    make_ids(ids, N);
    CU_ASSERT_EQUAL_FATAL(bake("test/models/llama/model.onnx", ids, BAKED, NULL), GQAC_OK);
    gqac_program *p = open_program(path);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(p, 1, &context, &diag), GQAC_OK);
    (void)visit(p, context, "quantised", ids, N, &reused);
    CU_ASSERT_EQUAL(reused, 0);
    gqac_context_free(context);
    gqac_program_free(p);
    unlink(path);
}

/* Sequences that grow, fork and rewind never change the baked prefix. */
static void test_shared(void) {
    int64_t ids[N], reused = 0;
    gqac_context *context = NULL;
    gqac_sequence *s[3] = {NULL};
    make_ids(ids, N);
    CU_ASSERT_EQUAL_FATAL(bake("test/models/qwen3.5/model.onnx", ids, BAKED, NULL), GQAC_OK);
    gqac_program *p = open_program(path);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(p, 1, &context, &diag), GQAC_OK);
    const int64_t used = gqac_program_memory_used(p);
    const uint64_t first = visit(p, context, NULL, ids, N, &reused);
    for (int i = 0; i < 2; i++)
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_begin(p, ids, N, NULL, &s[i], &reused, &diag), GQAC_OK);
    size_t shared = 0;
    const size_t bytes = gqac_sequence_bytes(s[0], &shared);
    CU_ASSERT(shared > 0 && bytes - shared < shared);
    for (int i = 0; i < 2; i++)
        CU_ASSERT_EQUAL(gqac_sequence_append(context, s[i], ids + i, 40, 1, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_fork(s[0], &s[2], &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_rewind(s[2], 70, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_append(context, s[2], ids + 9, 80, 1, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_rewind(s[1], 0, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_append(context, s[1], ids, 80, 1, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(visit(p, context, NULL, ids, N, &reused), first);
    CU_ASSERT_EQUAL(reused, BAKED);
    for (int i = 0; i < 3; i++)
        gqac_sequence_free(s[i]);
    gqac_context_free(context);
    CU_ASSERT_EQUAL(gqac_program_memory_used(p), used);
    gqac_program_free(p);
    unlink(path);
}

/* ---- who reuses it ------------------------------------------------------- */

static int64_t generate(gqac_context *context, gqac_session *session, const int64_t *ids, size_t n,
                        int64_t *computed, int64_t *last) {
    gqac_generate_request request;
    gqac_generation *said = NULL;
    gqac_generate_request_init(&request, NULL, session, ids, n);
    request.max_new = 3;
    CU_ASSERT_EQUAL_FATAL(gqac_generate(context, NULL, 1, &request, &said, &diag), GQAC_OK);
    const int64_t reused = said->metrics.reused_tokens;
    *computed = said->metrics.computed_tokens;
    *last = said->ids[2];
    gqac_generation_free(said);
    return reused;
}

/* A session; and with a store, which is empty at first, also a second tenant. */
static void session_with(const gqac_program *p, gqac_context *context, gqac_store *store,
                         const int64_t *ids, int64_t *last) {
    int64_t computed = 0, unused = 0;
    gqac_session *session = NULL;
    const gqac_session_options options = {.size = sizeof options, .store = store, .tenant = "a"};
    CU_ASSERT_EQUAL_FATAL(gqac_session_create(p, &options, &session, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(generate(context, session, ids, N, &computed, last), BAKED);
    CU_ASSERT_EQUAL(computed, N - BAKED + 2); /* the last of three new ids is not computed */
    /* now its own rows are longer */
    CU_ASSERT_EQUAL(generate(context, session, ids, N, &computed, &unused), N - 1);
    CU_ASSERT_EQUAL(unused, *last);
    CU_ASSERT_EQUAL(generate(context, session, ids, 30, &computed, &unused), 29);
    CU_ASSERT_EQUAL(generate(context, session, ids, 120, &computed, &unused),
                    store ? 119 : BAKED); /* the store kept the rows that the session released */
    gqac_session_free(session);
}

static void on_end(void *arg, const gqac_request_end *end) {
    int64_t *counts = arg;
    counts[0] = end->reused_tokens;
    counts[1] = end->computed_tokens;
}

static void schedule(gqac_context *context, const int64_t *ids) {
    gqac_scheduler *scheduler = NULL;
    gqac_request request;
    int64_t counts[2] = {-1, -1}, number = 0, left = 1;
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_create(context, NULL, &scheduler, &diag), GQAC_OK);
    gqac_request_init(&request, ids, N);
    request.max_new = 1;
    request.on_end = on_end;
    request.arg = counts;
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_submit(scheduler, &request, &number, &diag), GQAC_OK);
    while (left)
        CU_ASSERT_EQUAL_FATAL(gqac_scheduler_step(scheduler, &left, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(counts[0], BAKED);
    CU_ASSERT_EQUAL(counts[1], N - BAKED);
    gqac_scheduler_free(scheduler);
}

static void test_reused(void) {
    int64_t ids[N], cold = 0, warm[2] = {0}, computed = 0, reused = 0;
    gqac_context *context = NULL, *other = NULL;
    gqac_session *session = NULL;
    gqac_store *store = NULL;
    gqac_sequence *s = NULL;
    make_ids(ids, N);
    CU_ASSERT_EQUAL_FATAL(bake("test/models/llama/model.onnx", ids, BAKED, NULL), GQAC_OK);
    gqac_program *p = open_program(path),
                 *plain = open_program(unit_path("test/models/llama/model.onnx"));
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(p, 1, &context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(plain, 1, &other, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_session_create(plain, NULL, &session, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(generate(other, session, ids, N, &computed, &cold), 0);
    gqac_session_free(session);
    session_with(p, context, NULL, ids, &warm[0]);
    CU_ASSERT_EQUAL_FATAL(gqac_store_create(p, NULL, &store, &diag), GQAC_OK);
    session_with(p, context, store, ids, &warm[1]);
    CU_ASSERT(warm[0] == cold && warm[1] == cold);
    /* another tenant has the prefix, but nothing else */
    CU_ASSERT_EQUAL_FATAL(gqac_store_open(store, "b", ids, N, NULL, &s, &reused, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(reused, BAKED);
    gqac_sequence_free(s);
    gqac_store_free(store);
    schedule(context, ids);
    gqac_context_free(context);
    gqac_context_free(other);
    gqac_program_free(p);
    gqac_program_free(plain);
    unlink(path);
}

/* ---- compiling ----------------------------------------------------------- */

static bool same_files(const char *a, const char *b) {
    gqac_map x, y;
    CU_ASSERT_EQUAL_FATAL(gqac_map_file(a, &x, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_map_file(b, &y, &diag), GQAC_OK);
    const bool same = x.size == y.size && !memcmp(x.data, y.data, x.size);
    gqac_unmap(&x);
    gqac_unmap(&y);
    return same;
}

/* Compiling an artefact again keeps the prefix, or replaces it. */
static void test_compiled_again(void) {
    int64_t ids[N];
    gqac_options options;
    gqac_bake prefix;
    gqac_info *info = NULL;
    make_ids(ids, N);
    CU_ASSERT_EQUAL_FATAL(bake("test/models/llama/model.onnx", ids, BAKED, NULL), GQAC_OK);
    gqac_options_init(&options);
    CU_ASSERT_EQUAL(gqac_compile(path, &options, GQAC_EMIT_GQAC, again, &diag), GQAC_OK);
    CU_ASSERT(same_files(path, again));
    CU_ASSERT_EQUAL(gqac_artefact_verify(again, &diag), GQAC_OK);
    gqac_bake_init(&prefix, ids, 7);
    options.bake = &prefix;
    CU_ASSERT_EQUAL(gqac_compile(path, &options, GQAC_EMIT_GQAC, again, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_info_open(again, NULL, &info, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(info->baked_tokens, 7);
    CU_ASSERT_STRING_EQUAL(info->baked_kind, "contiguous");
    gqac_info_free(info);
    options.bake = NULL;
    options.stateless = true; /* such a program has no sequences that could reuse the prefix */
    gqac_program *stateless = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(again, &options, &stateless, &diag), GQAC_OK);
    CU_ASSERT_PTR_NULL(gqac_program_baked(stateless));
    gqac_program_free(stateless);
    unlink(path);
    unlink(again);
}

static void test_refused(void) {
    int64_t ids[N];
    gqac_options options;
    gqac_bake prefix;
    const char *const model = "test/models/llama/model.onnx";
    make_ids(ids, N);
    CU_ASSERT_EQUAL(bake(model, ids, 0, NULL), GQAC_USAGE);
    CU_ASSERT_EQUAL(bake(model, ids, 3, "pagd"), GQAC_USAGE);
    ids[2] = 1 << 30;
    CU_ASSERT_EQUAL(bake(model, ids, 3, NULL), GQAC_OUT_OF_RANGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.where, "the prefix to bake"));
    make_ids(ids, N);
    gqac_options_init(&options);
    gqac_bake_init(&prefix, ids, 3);
    options.bake = &prefix;
    CU_ASSERT_EQUAL(gqac_compile(unit_path(model), &options, GQAC_EMIT_TEXT, path, &diag),
                    GQAC_USAGE);
    options.stateless = true;
    CU_ASSERT_EQUAL(gqac_compile(unit_path(model), &options, GQAC_EMIT_GQAC, path, &diag),
                    GQAC_USAGE);
    CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
}

/* ---- damage -------------------------------------------------------------- */

typedef struct image {
    gqac_program *program;
    unsigned char *good, *bad; /* aligned as in a file */
    size_t bytes;
} image;

static image open_image(const char *model) {
    int64_t ids[N];
    image x = {.program = open_program(unit_path(model))};
    gqac_context *context = NULL;
    gqac_sequence *s = NULL;
    make_ids(ids, N);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(x.program, 1, &context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(x.program, NULL, &s, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(context, s, ids, BAKED, 0, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(saved_bytes(s, SAVED_IMAGE, &x.bytes, &diag), GQAC_OK);
    x.good = aligned_alloc(64, x.bytes);
    x.bad = aligned_alloc(64, x.bytes);
    CU_ASSERT_EQUAL_FATAL(saved_write(s, SAVED_IMAGE, x.good, x.bytes, &diag), GQAC_OK);
    gqac_sequence_free(s);
    gqac_context_free(context);
    return x;
}

static gqac_status try(const image *x, size_t bytes) {
    gqac_sequence *s = NULL;
    memset(&diag, 0, sizeof diag);
    const gqac_status status = saved_map(x->program, x->bad, bytes, &s, &diag);
    CU_ASSERT((status == GQAC_OK) == (s != NULL));
    if (status != GQAC_OK)
        CU_ASSERT(*diag.what && (status == GQAC_INVALID_INPUT || status == GQAC_USAGE));
    gqac_sequence_free(s);
    return status;
}

/* Recomputes the digests, as an attacker could. */
static void sign(const image *x) {
    saved_header *h = (saved_header *)(void *)x->bad;
    for (int i = 0; i < SAVED_SECTIONS; i++)
        if (h->sections[i].offset <= x->bytes &&
            h->sections[i].bytes <= x->bytes - h->sections[i].offset)
            rig_digest(h->sections[i].digest, x->bad + h->sections[i].offset,
                       (size_t)h->sections[i].bytes);
    memset(h->digest, 0, sizeof h->digest);
    rig_digest(h->digest, h, sizeof *h);
}

/* step: distance between the bytes of the header that are changed and signed. */
static void damage(const char *model, size_t step) {
    image x = open_image(model);
    int refused = 0, tried = 0;
    memcpy(x.bad, x.good, x.bytes);
    CU_ASSERT_EQUAL(try(&x, x.bytes), GQAC_OK);
    for (size_t n = 0; n < x.bytes; n += n < 1024 ? 1 : x.bytes / 16)
        CU_ASSERT_NOT_EQUAL(try(&x, n), GQAC_OK);
    for (size_t at = 0; at < x.bytes; at += at < 512 ? 1 : x.bytes / 32) { /* one bit */
        memcpy(x.bad, x.good, x.bytes);
        x.bad[at] ^= (unsigned char)(1 << at % 8);
        CU_ASSERT_NOT_EQUAL(try(&x, x.bytes), GQAC_OK);
    }
    for (size_t at = 8; at < sizeof(saved_header) - 32; at += step) { /* with correct digests */
        const size_t kind = at / step % 3;
        memcpy(x.bad, x.good, x.bytes);
        x.bad[at] = (unsigned char)(kind == 0 ? 0xff : x.bad[at] ^ (kind == 1 ? 1 : 0x80));
        sign(&x);
        tried++;
        refused += try(&x, x.bytes) != GQAC_OK;
    }
    CU_ASSERT(refused > tried / 4); /* except where a digest was, and fields with any valid value */
    free(x.good);
    free(x.bad);
    gqac_program_free(x.program);
}

static void test_damage(void) {
    damage("test/models/llama/model.onnx", unit_full() ? 1 : 3);
}

static void test_damaged_states(void) {
    damage("test/models/qwen3.5/model.onnx", unit_full() ? 1 : 7);
}

/* Another layout of blocks is refused because of its digest, which depends on the geometry of the
 * slots. */
static void test_layout(void) {
    image x = open_image("test/models/llama/model.onnx");
    const saved_header *h = (const saved_header *)(const void *)x.good;
    const size_t slot = 5 * sizeof(int64_t);
    memcpy(x.bad, x.good, x.bytes);
    x.bad[h->sections[SAVED_GEOMETRY].offset + (size_t)h->slots * slot] ^= 1;
    sign(&x);
    CU_ASSERT_EQUAL(try(&x, x.bytes), GQAC_INVALID_INPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "another layout"));
    free(x.good);
    free(x.bad);
    gqac_program_free(x.program);
}

/* Sections in other places; and 64 bytes of one within another. */
static void test_places(void) {
    image x = open_image("test/models/qwen3.5/model.onnx");
    for (int from = 0; from + 1 < SAVED_SECTIONS; from++) {
        saved_header *h = (saved_header *)(void *)x.bad;
        memcpy(x.bad, x.good, x.bytes);
        h->sections[from].bytes -= 64;
        h->sections[from + 1].offset -= 64;
        h->sections[from + 1].bytes += 64;
        sign(&x);
        CU_ASSERT_NOT_EQUAL(try(&x, x.bytes), GQAC_OK);
    }
    free(x.good);
    free(x.bad);
    gqac_program_free(x.program);
}

static const unit_case cases[] = {
    {"hits of every kind have the bits of a cold run", test_hits},
    {"hits of models with states", test_hybrid},
    {"rows of another kind are not reused", test_other_kind},
    {"sequences share the rows and never write them", test_shared},
    {"sessions, stores and schedulers reuse it", test_reused},
    {"an artefact that is compiled again", test_compiled_again},
    {"what cannot be baked is refused", test_refused},
    {"damage", test_damage},
    {"damage of states", test_damaged_states},
    {"another layout", test_layout},
    {"other places of sections", test_places},
};

int main(int argc, char **argv) {
    snprintf(path, sizeof path, "/tmp/gqac-baked-%d.gqac", (int)getpid());
    snprintf(again, sizeof again, "/tmp/gqac-again-%d.gqac", (int)getpid());
    return unit_run("baked", cases, sizeof cases / sizeof *cases, argc, argv);
}
