/* Models in memory, in every format: results are equal to those of the same bytes in a file;
 * damaged models fail with the same status as the file, and no byte after the end is read (the
 * bytes end at a page boundary, and the next page cannot be accessed); external data by
 * callback. */
#include "unit.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <gqac/gqac.h>

#include "base/alloc.h"

static gqac_diag diag;

typedef struct bytes {
    unsigned char *data;
    size_t n;
} bytes;

static bytes read_file(const char *path) {
    FILE *f = fopen(path, "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fseek(f, 0, SEEK_END);
    bytes b = {.n = (size_t)ftell(f)};
    rewind(f);
    b.data = aligned_alloc(64, (b.n / 64 + 2) * 64);
    CU_ASSERT_EQUAL_FATAL(fread(b.data, 1, b.n, f), b.n);
    fclose(f);
    return b;
}

/* External data in memory, and how often they were requested. */
typedef struct side {
    bytes data;
    int asked;
    char name[100];
    gqac_status status;
    bool tell, nothing;
    size_t cut;
} side;

static gqac_status give(void *arg, const char *name, const void **data, size_t *n, gqac_diag *d) {
    side *s = arg;
    s->asked++;
    snprintf(s->name, sizeof s->name, "%s", name);
    if (s->tell)
        snprintf(d->what, sizeof d->what, "the cloud is gone");
    *data = s->nothing ? NULL : s->data.data;
    *n = s->data.n - s->cut;
    return s->status;
}

/* ---- the same as from a file --------------------------------------------- */

enum { TOKENS = 70, MOST_LOGITS = 70 * 300 };

static size_t logits_of(const gqac_program *program, float *out) {
    gqac_context *context = NULL;
    gqac_sequence *sequence = NULL;
    int64_t ids[TOKENS], rows = 0, vocabulary = 0;
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (i * 37 + 5) % 200;
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 2, &context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, NULL, &sequence, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(
        gqac_sequence_append(context, sequence, ids, TOKENS, GQAC_LOGITS_ALL, &diag), GQAC_OK);
    const float *logits = gqac_context_logits(context, 0, &rows, &vocabulary);
    CU_ASSERT_FATAL(rows * vocabulary > 0 && rows * vocabulary <= MOST_LOGITS);
    memcpy(out, logits, (size_t)(rows * vocabulary) * sizeof *out);
    gqac_sequence_free(sequence);
    gqac_context_free(context);
    return (size_t)(rows * vocabulary);
}

static void expect_same(const char *path, gqac_model_bytes *model) {
    static float from_file[MOST_LOGITS], from_memory[MOST_LOGITS];
    gqac_options options;
    gqac_program *file = NULL, *memory = NULL;
    gqac_info *infos[2] = {0};
    char hex[2][65];
    gqac_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(path, &options, &file, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_info_open(path, &options, &infos[0], &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_model_digest(path, &options, hex[0], &diag), GQAC_OK);
    options.bytes = model;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(path, &options, &memory, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_info_open(path, &options, &infos[1], &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_model_digest(path, &options, hex[1], &diag), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(hex[0], hex[1]);
    CU_ASSERT_STRING_EQUAL(infos[0]->format, infos[1]->format);
    CU_ASSERT_EQUAL(infos[0]->parameters, infos[1]->parameters);
    CU_ASSERT_EQUAL(infos[0]->n_kv_pairs, infos[1]->n_kv_pairs);
    const size_t n = logits_of(file, from_file);
    CU_ASSERT_EQUAL(logits_of(memory, from_memory), n);
    CU_ASSERT(!memcmp(from_file, from_memory, n * sizeof *from_file));
    gqac_info_free(infos[0]);
    gqac_info_free(infos[1]);
    gqac_program_free(file);
    gqac_program_free(memory);
}

static char folder[] = "/tmp/gqac-bytes-XXXXXX";
static char artefact[64], text[64], copy[64];

static void make_files(void) {
    gqac_options options;
    gqac_options_init(&options);
    const char *model = unit_path("test/models/llama/model.onnx");
    snprintf(artefact, sizeof artefact, "%s/m.gqac", folder);
    snprintf(text, sizeof text, "%s/m.gq", folder);
    snprintf(copy, sizeof copy, "%s/c.gqac", folder);
    CU_ASSERT_EQUAL_FATAL(gqac_compile(model, &options, GQAC_EMIT_GQAC, artefact, &diag), GQAC_OK);
    options.stop_after = "tidy";
    CU_ASSERT_EQUAL_FATAL(gqac_compile(model, &options, GQAC_EMIT_TEXT, text, &diag), GQAC_OK);
}

/* The bytes of a model, with `off` not aligned to 64, that are gone at once if anything releases
 * their pages. */
static bytes hold(const char *path, size_t off) {
    const bytes from = read_file(path);
    bytes b = {.n = from.n};
    b.data = mmap(NULL, from.n + off, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_FATAL(b.data != MAP_FAILED);
    memcpy(b.data + off, from.data, from.n);
    CU_ASSERT_EQUAL(mprotect(b.data, from.n + off, PROT_READ), 0);
    b.data += off;
    free(from.data);
    return b;
}

static void let_go(bytes b, size_t off) {
    munmap(b.data - off, b.n + off);
}

static void test_same(void) {
    const char *onnx = unit_path("test/models/llama/model.onnx");
    side s = {.data = hold(unit_path("test/models/llama/model.onnx.data"), 0)};
    make_files();
    for (size_t off = 0; off < 4; off++) {
        gqac_model_bytes model;
        bytes b = hold(onnx, off);
        gqac_model_bytes_init(&model, b.data, b.n);
        model.external = give;
        model.arg = &s;
        s.asked = 0;
        expect_same(onnx, &model);
        CU_ASSERT_EQUAL(s.asked, 3); /* once for each of three times that the model is opened */
        CU_ASSERT_STRING_EQUAL(s.name, "model.onnx.data");
        let_go(b, off);
        b = hold(text, off);
        gqac_model_bytes_init(&model, b.data, b.n);
        expect_same(text, &model);
        let_go(b, off);
    }
    let_go(s.data, 0);
    s.data = hold(unit_path("test/models/llama/model.onnx.data"), 1);
    gqac_model_bytes model;
    bytes b = hold(onnx, 0);
    gqac_model_bytes_init(&model, b.data, b.n);
    model.external = give;
    model.arg = &s;
    expect_same(onnx, &model);
    let_go(b, 0);
    let_go(s.data, 1);
    b = hold(artefact, 0);
    gqac_model_bytes_init(&model, b.data, b.n);
    expect_same(artefact, &model);
    let_go(b, 0);
    b = hold(artefact, 16);
    gqac_program *program = NULL;
    gqac_options options;
    gqac_options_init(&options);
    options.bytes = &model;
    gqac_model_bytes_init(&model, b.data, b.n);
    CU_ASSERT_EQUAL(gqac_program_open(artefact, &options, &program, &diag), GQAC_USAGE);
    CU_ASSERT(strstr(diag.rule, "64") && strstr(diag.where, artefact));
    let_go(b, 16);
}

/* The digest of an artefact is that of its model, takes no longer for a larger graph, and respects
 * the limits. */
static void test_digest_of_artefact(void) {
    char hex[2][65];
    gqac_options options;
    gqac_limits limits;
    gqac_options_init(&options);
    gqac_limits_init(&limits);
    const char *onnx = unit_path("test/models/llama/model.onnx");
    CU_ASSERT_EQUAL(gqac_model_digest(onnx, &options, hex[0], &diag), GQAC_OK);
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_EQUAL(gqac_model_digest(artefact, &options, hex[1], &diag), GQAC_OK);
    CU_ASSERT(gqac_alloc_calls() <= 4);
    CU_ASSERT_STRING_EQUAL(hex[0], hex[1]);
    limits.compile_bytes = 64;
    options.limits = &limits;
    CU_ASSERT_EQUAL(gqac_model_digest(artefact, &options, hex[1], &diag), GQAC_LIMIT);
    CU_ASSERT(strstr(diag.what, "compile-bytes") || strstr(diag.rule, "compile-bytes"));
    CU_ASSERT_STRING_EQUAL(diag.where, artefact);
}

/* Opens a model in memory with `copy`, removes the memory, and compares the results. */
static void check_copy(const char *name, const char *target) {
    static float kept[MOST_LOGITS], copied[MOST_LOGITS];
    char path[2][64];
    gqac_options options;
    gqac_model_bytes model;
    gqac_program *program = NULL;
    snprintf(path[0], sizeof path[0], "test/models/%s/model.onnx", name);
    snprintf(path[1], sizeof path[1], "test/models/%s/model.onnx.data", name);
    bytes b = hold(unit_path(path[0]), 0);
    side s = {.data = hold(unit_path(path[1]), 0)};
    gqac_options_init(&options);
    options.target = target;
    options.bytes = &model;
    gqac_model_bytes_init(&model, b.data, b.n);
    model.external = give;
    model.arg = &s;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open("m.onnx", &options, &program, &diag), GQAC_OK);
    const size_t n = logits_of(program, kept);
    gqac_program_free(program);
    model.copy = true;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open("m.onnx", &options, &program, &diag), GQAC_OK);
    let_go(b, 0);
    let_go(s.data, 0);
    CU_ASSERT_EQUAL(logits_of(program, copied), n);
    CU_ASSERT(!memcmp(kept, copied, n * sizeof *kept));
    gqac_program_free(program);
}

/* With `copy`, the memory may be freed before the program runs. */
static void test_copy(void) {
    check_copy("llama", "cpu");
    check_copy("llama", "ref"); /* packs nothing, so all weights are copied */
    check_copy("phi3", "cpu");  /* constants of nested graphs */
    check_copy("lfm2", "cpu");
}

/* External data that the callback does not have are read from files beneath model_root; they stay
 * mapped, also with `copy`. */
static void test_root(void) {
    static float kept[MOST_LOGITS], found[MOST_LOGITS];
    char root[PATH_MAX];
    gqac_options options;
    gqac_model_bytes model;
    gqac_program *program = NULL;
    side s = {.status = GQAC_ABSENT};
    snprintf(root, sizeof root, "%s", unit_path("test/models/llama"));
    gqac_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(
        gqac_program_open(unit_path("test/models/llama/model.onnx"), &options, &program, &diag),
        GQAC_OK);
    const size_t n = logits_of(program, kept);
    gqac_program_free(program);
    options.bytes = &model;
    options.model_root = root;
    for (int i = 0; i < 4; i++) {
        bytes b = hold(unit_path("test/models/llama/model.onnx"), 0);
        gqac_model_bytes_init(&model, b.data, b.n);
        model.external = i & 1 ? give : NULL;
        model.arg = &s;
        model.copy = i & 2;
        CU_ASSERT_EQUAL_FATAL(gqac_program_open("m.onnx", &options, &program, &diag), GQAC_OK);
        if (model.copy)
            let_go(b, 0);
        CU_ASSERT_EQUAL(logits_of(program, found), n);
        CU_ASSERT(!memcmp(kept, found, n * sizeof *kept));
        gqac_program_free(program);
        if (!model.copy)
            let_go(b, 0);
    }
    CU_ASSERT_EQUAL(s.asked, 2);
    bytes b = hold(unit_path("test/models/llama/model.onnx"), 0);
    gqac_model_bytes_init(&model, b.data, b.n);
    options.model_root = folder;
    CU_ASSERT_EQUAL(gqac_program_open("m.onnx", &options, &program, &diag), GQAC_INVALID_MODEL);
    CU_ASSERT(strstr(diag.what, "model.onnx.data") != NULL);
    char link[80];
    snprintf(link, sizeof link, "%s/model.onnx.data", folder);
    CU_ASSERT_EQUAL(symlink(unit_path("test/models/llama/model.onnx.data"), link), 0);
    CU_ASSERT_EQUAL(gqac_program_open("m.onnx", &options, &program, &diag), GQAC_INVALID_MODEL);
    CU_ASSERT(strstr(diag.what, "leads out of the folder") != NULL);
    unlink(link);
    options.model_root = NULL;
    CU_ASSERT_EQUAL(gqac_program_open("m.onnx", &options, &program, &diag), GQAC_INVALID_MODEL);
    CU_ASSERT(strstr(diag.hint, "model_root") != NULL);
    let_go(b, 0);
}

/* An artefact is read in place, and its memory use says so. */
static void test_copy_of_artefact(void) {
    gqac_options options;
    gqac_model_bytes model;
    gqac_program *program = NULL;
    bytes b = hold(artefact, 0);
    gqac_options_init(&options);
    options.bytes = &model;
    gqac_model_bytes_init(&model, b.data, b.n);
    model.copy = true;
    CU_ASSERT_EQUAL(gqac_program_open(artefact, &options, &program, &diag), GQAC_USAGE);
    CU_ASSERT(strstr(diag.rule, "in place") && strstr(diag.where, artefact));
    let_go(b, 0);
}

/* Compiling from memory writes the same artefact, and one in memory compiles to itself. */
static void test_compile(void) {
    const char *onnx = unit_path("test/models/llama/model.onnx");
    side s = {.data = hold(unit_path("test/models/llama/model.onnx.data"), 0)};
    gqac_options options;
    gqac_model_bytes model;
    bytes b = hold(onnx, 3), made = read_file(artefact);
    gqac_options_init(&options);
    options.bytes = &model;
    gqac_model_bytes_init(&model, b.data, b.n);
    model.external = give;
    model.arg = &s;
    CU_ASSERT_EQUAL(gqac_compile(onnx, &options, GQAC_EMIT_GQAC, copy, &diag), GQAC_OK);
    bytes again = read_file(copy);
    CU_ASSERT(again.n == made.n && !memcmp(again.data, made.data, made.n));
    free(again.data);
    let_go(b, 3);
    let_go(s.data, 0);
    gqac_model_bytes_init(&model, made.data, made.n);
    unlink(copy);
    CU_ASSERT_EQUAL(gqac_compile("a name.gqac", &options, GQAC_EMIT_GQAC, copy, &diag), GQAC_OK);
    again = read_file(copy);
    CU_ASSERT(again.n == made.n && !memcmp(again.data, made.data, made.n));
    free(again.data);
    free(made.data);
    unlink(copy);
}

/* A rewrite of a model in memory is always written: there is no file that it could overwrite. */
static void test_rewrite(void) {
    const char *onnx = unit_path("test/traced/llama/model.onnx");
    char path[2][64];
    gqac_options options;
    gqac_model_bytes model;
    gqac_rewritten *done = NULL;
    bytes b = hold(onnx, 0), out[2];
    gqac_model_bytes_init(&model, b.data, b.n);
    for (int i = 0; i < 2; i++) {
        gqac_options_init(&options);
        options.bytes = i ? &model : NULL;
        snprintf(path[i], sizeof path[i], "%s/r%d.onnx", folder, i);
        CU_ASSERT_EQUAL(gqac_rewrite(onnx, "raise", &options, path[i], &done, &diag), GQAC_OK);
        CU_ASSERT_EQUAL(done->n_files, 1);
        gqac_release(done);
        out[i] = read_file(path[i]);
    }
    CU_ASSERT(out[0].n == out[1].n && !memcmp(out[0].data, out[1].data, out[0].n));
    for (int i = 0; i < 2; i++) {
        free(out[i].data);
        unlink(path[i]);
    }
    let_go(b, 0);
}

/* ---- damaged bytes ------------------------------------------------------- */

static gqac_status open_bytes(const char *name, const void *data, size_t n, side *s) {
    gqac_options options;
    gqac_model_bytes model;
    gqac_program *program = NULL;
    gqac_options_init(&options);
    gqac_model_bytes_init(&model, data, n);
    model.external = s ? give : NULL;
    model.arg = s;
    options.bytes = &model;
    memset(&diag, 0, sizeof diag);
    const gqac_status status = gqac_program_open(name, &options, &program, &diag);
    gqac_program_free(program);
    return status;
}

static gqac_status open_cut_file(const char *name, const unsigned char *data, size_t n) {
    gqac_options options;
    gqac_program *program = NULL;
    char path[80];
    snprintf(path, sizeof path, "%s/cut%s", folder, strrchr(name, '.'));
    FILE *f = fopen(path, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL(fwrite(data, 1, n, f), n);
    fclose(f);
    gqac_options_init(&options);
    const gqac_status status = gqac_program_open(path, &options, &program, NULL);
    gqac_program_free(program);
    unlink(path);
    return status;
}

/* Truncated at many positions. Without external data, because there is no file with it either. */
static void expect_cut(const char *path, const char *name, size_t align) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const bytes all = read_file(path);
    const size_t size = (all.n / page + 2) * page;
    unsigned char *memory =
        mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_FATAL(memory != MAP_FAILED);
    CU_ASSERT_EQUAL_FATAL(mprotect(memory + size, page, PROT_NONE), 0);
    for (size_t i = 1; i < 60; i++) {
        size_t n = i < 20 ? i * 7 : all.n * (i - 19) / 41;
        n -= n % align;
        if (!n || n >= all.n)
            continue;
        unsigned char *at = memory + size - n;
        memcpy(at, all.data, n);
        const gqac_status in_memory = open_bytes(name, at, n, NULL);
        CU_ASSERT_NOT_EQUAL(in_memory, GQAC_OK);
        CU_ASSERT(*diag.what && strstr(diag.where, name));
        CU_ASSERT_EQUAL(in_memory, open_cut_file(name, all.data, n));
    }
    munmap(memory, size + page);
    free(all.data);
}

static void test_cut(void) {
    expect_cut(unit_path("test/models/llama/model.onnx"), "cut.onnx", 1);
    expect_cut(artefact, "cut.gqac", 64);
    expect_cut(text, "cut.gq", 1);
}

/* One flipped bit, anywhere in the parts of an artefact that are checked when it is opened. */
static void test_flipped(void) {
    bytes b = read_file(artefact);
    for (size_t at = 0; at < 64 + 4 * 192; at += 13) {
        b.data[at] ^= 4;
        const gqac_status status = open_bytes("flipped.gqac", b.data, b.n, NULL);
        CU_ASSERT(status == GQAC_INVALID_MODEL || (at >= 64 + 3 * 192 && status == GQAC_OK));
        b.data[at] ^= 4;
    }
    CU_ASSERT_EQUAL(open_bytes("flipped.gqac", b.data, b.n, NULL), GQAC_OK);
    free(b.data);
}

/* ---- external data ------------------------------------------------------- */

static void test_external(void) {
    bytes b = read_file(unit_path("test/models/llama/model.onnx"));
    side s = {.data = read_file(unit_path("test/models/llama/model.onnx.data"))};
    CU_ASSERT_EQUAL(open_bytes("m.onnx", b.data, b.n, &s), GQAC_OK);
    CU_ASSERT_EQUAL(open_bytes("m.onnx", b.data, b.n, NULL), GQAC_INVALID_MODEL);
    CU_ASSERT(strstr(diag.what, "model.onnx.data") && strstr(diag.hint, "external"));
    s.status = GQAC_ABSENT;
    CU_ASSERT_EQUAL(open_bytes("m.onnx", b.data, b.n, &s), GQAC_ABSENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "model.onnx.data"));
    s.tell = true;
    CU_ASSERT_EQUAL(open_bytes("m.onnx", b.data, b.n, &s), GQAC_ABSENT);
    CU_ASSERT(!strcmp(diag.what, "the cloud is gone") && diag.status == GQAC_ABSENT);
    s.status = (gqac_status)4711;
    CU_ASSERT_EQUAL(open_bytes("m.onnx", b.data, b.n, &s), GQAC_USAGE);
    s.status = GQAC_OK;
    s.nothing = true;
    CU_ASSERT_EQUAL(open_bytes("m.onnx", b.data, b.n, &s), GQAC_USAGE);
    s.cut = s.data.n; /* empty: too short */
    CU_ASSERT_EQUAL(open_bytes("m.onnx", b.data, b.n, &s), GQAC_INVALID_MODEL);
    s.nothing = false;
    s.cut = 1;
    CU_ASSERT_EQUAL(open_bytes("m.onnx", b.data, b.n, &s), GQAC_INVALID_MODEL);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "past the end"));
    s.cut = 0;
    /* invalid locations never reach the callback */
    static const char *const wrong[] = {"../el.onnx.data", "/odel.onnx.data", "model\\onnx.data"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bytes bad = read_file(unit_path("test/models/llama/model.onnx"));
        size_t found = 0;
        for (size_t at = 0; at + 15 < bad.n; at++)
            if (!memcmp(bad.data + at, "model.onnx.data", 15)) {
                memcpy(bad.data + at, wrong[i], 15);
                found++;
            }
        CU_ASSERT(found > 0);
        s.asked = 0;
        CU_ASSERT_EQUAL(open_bytes("m.onnx", bad.data, bad.n, &s), GQAC_INVALID_MODEL);
        CU_ASSERT_EQUAL(s.asked, 0);
        free(bad.data);
    }
    free(s.data.data);
    free(b.data);
}

static void test_refused(void) {
    const unsigned char none[64] = {0};
    CU_ASSERT_EQUAL(open_bytes("m.onnx", NULL, 5, NULL), GQAC_USAGE);
    CU_ASSERT_EQUAL(open_bytes("m.onnx", none, 0, NULL), GQAC_USAGE);
    CU_ASSERT_EQUAL(open_bytes("m.onnx", none, 64, NULL), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(open_bytes("m.gq", none, 64, NULL), GQAC_INVALID_MODEL);
    const gqac_model_bytes forgotten = {.data = none, .bytes = 64};
    gqac_options options;
    gqac_program *program = NULL;
    gqac_options_init(&options);
    options.bytes = &forgotten;
    CU_ASSERT_EQUAL(gqac_program_open("m.onnx", &options, &program, &diag), GQAC_USAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "gqac_model_bytes.size"));
}

static void test_memory(void) {
    bytes b = read_file(unit_path("test/models/llama/model.onnx"));
    side s = {.data = read_file(unit_path("test/models/llama/model.onnx.data"))};
    const size_t live = gqac_alloc_live();
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_EQUAL_FATAL(open_bytes("m.onnx", b.data, b.n, &s), GQAC_OK);
    const size_t calls = gqac_alloc_calls();
    for (size_t i = 1; i <= calls; i++) {
        gqac_alloc_fail_at(i, 0);
        const gqac_status status = open_bytes("m.onnx", b.data, b.n, &s);
        gqac_alloc_fail_at(0, 0);
        CU_ASSERT_EQUAL(status, GQAC_NO_MEMORY);
        CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    }
    free(s.data.data);
    free(b.data);
    unlink(artefact);
    unlink(text);
    rmdir(folder);
}

static const unit_case cases[] = {
    {"the same as from a file", test_same},
    {"compiled from memory", test_compile},
    {"digest of an artefact", test_digest_of_artefact},
    {"copied", test_copy},
    {"external data beneath a root", test_root},
    {"copied from an artefact", test_copy_of_artefact},
    {"rewritten from memory", test_rewrite},
    {"cut anywhere", test_cut},
    {"one bit flipped", test_flipped},
    {"external data", test_external},
    {"what is refused", test_refused},
    {"allocations that fail", test_memory},
};

int main(int argc, char **argv) {
    if (!mkdtemp(folder))
        return 1;
    return unit_run("models in memory", cases, sizeof cases / sizeof *cases, argc, argv);
}
