/* Files attached to an artefact: they are read back unchanged, files that exceed a limit are
 * refused, and all damage is detected, even if the checksums are recomputed. Also the pages of an
 * artefact: weights are read in the mapped file, so that processes share them. */
#include "unit.h"

#include <gqac/gqac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"

enum { HEADER = 64, ROW = 192, AT_SECTIONS = 24, AT_DIGEST = 32, AT_OFFSET = 128, FIXED = 4 };

static char folder[] = "/tmp/gqac-files-XXXXXX";
static char artefact[64], again[64];
static gqac_diag diag;

static gqac_status compile_with(const char *model, int n, const gqac_attachment *files,
                                const char *path) {
    gqac_options options;
    gqac_options_init(&options);
    options.n_attachments = n;
    options.attachments = files;
    memset(&diag, 0, sizeof diag);
    return gqac_compile(model, &options, GQAC_EMIT_GQAC, path, &diag);
}

static const char *model(void) {
    return unit_path("test/models/qwen3/model.onnx");
}

static unsigned char *read_file(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    unsigned char *data = malloc(*size + 1);
    CU_ASSERT_EQUAL_FATAL(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

static void write_file(const char *path, const void *data, size_t size) {
    FILE *f = fopen(path, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL(fwrite(data, 1, size, f), size);
    fclose(f);
}

/* ---- writing and reading ------------------------------------------------- */

static const gqac_attachment three[] = {
    {"genai_config.json", "{\"a\": 1}", 8}, {"weights", "\0\1\2", 3}, {"empty \xc3\xa9", "", 0}};

static void check_three(const char *path) {
    gqac_attachment *files = NULL;
    int n = -1;
    CU_ASSERT_EQUAL_FATAL(gqac_artefact_attachments(path, &files, &n, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(n, 3);
    for (int i = 0; i < 3; i++) {
        CU_ASSERT_STRING_EQUAL(files[i].name, three[i].name);
        CU_ASSERT_EQUAL_FATAL(files[i].bytes, three[i].bytes);
        CU_ASSERT(!memcmp(files[i].data, three[i].data, three[i].bytes));
        CU_ASSERT_EQUAL(((const char *)files[i].data)[files[i].bytes], 0);
    }
    gqac_release(files);
}

static void test_round_trip(void) {
    gqac_options options;
    gqac_program *program = NULL;
    CU_ASSERT_EQUAL_FATAL(compile_with(model(), 3, three, artefact), GQAC_OK);
    check_three(artefact);
    CU_ASSERT_EQUAL(gqac_artefact_verify(artefact, &diag), GQAC_OK);
    gqac_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(artefact, &options, &program, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_program_vocabulary(program), 258);
    gqac_program_free(program);
}

static void test_none(void) {
    gqac_attachment *files = NULL;
    int n = -1;
    CU_ASSERT_EQUAL_FATAL(compile_with(model(), 0, NULL, again), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_artefact_attachments(again, &files, &n, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(n, 0);
    gqac_release(files);
    CU_ASSERT_EQUAL(gqac_artefact_attachments(model(), &files, &n, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(gqac_artefact_attachments("/no/such", &files, &n, &diag), GQAC_IO);
}

/* An artefact of an artefact keeps the files, unless others are given. */
static void test_kept(void) {
    const gqac_attachment other = {"other", "x", 1};
    gqac_attachment *files = NULL;
    int n = 0;
    CU_ASSERT_EQUAL_FATAL(compile_with(artefact, 0, NULL, again), GQAC_OK);
    check_three(again);
    CU_ASSERT_EQUAL_FATAL(compile_with(artefact, 1, &other, again), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_artefact_attachments(again, &files, &n, &diag), GQAC_OK);
    CU_ASSERT(n == 1 && !strcmp(files[0].name, "other"));
    gqac_release(files);
}

/* ---- limits -------------------------------------------------------------- */

static void test_refused(void) {
    char longest[102], *most = NULL;
    gqac_attachment files[65];
    memset(longest, 'n', sizeof longest);
    longest[101] = 0;
    const char *const names[] = {"",     ".",   "..",   "a/b",      "/etc/passwd", "../a",
                                 "a\\b", "a\n", "\x7f", "\xff\xfe", longest,       NULL};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CU_ASSERT_EQUAL(compile_with(model(), 1, &(gqac_attachment){names[i], "x", 1}, again),
                        GQAC_USAGE);
        CU_ASSERT(*diag.what != 0);
    }
    longest[100] = 0;
    CU_ASSERT_EQUAL(compile_with(model(), 1, &(gqac_attachment){longest, "x", 1}, again), GQAC_OK);
    const gqac_attachment twice[] = {{"a", "x", 1}, {"b", "x", 1}, {"a", "y", 1}};
    CU_ASSERT_EQUAL(compile_with(model(), 3, twice, again), GQAC_USAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "'a'"));
    most = malloc(65 * 8);
    for (int i = 0; i < 65; i++) {
        snprintf(most + 8 * i, 8, "f%d", i);
        files[i] = (gqac_attachment){most + 8 * i, "x", 1};
    }
    CU_ASSERT_EQUAL(compile_with(model(), 65, files, again), GQAC_USAGE);
    CU_ASSERT_EQUAL(compile_with(model(), 64, files, again), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_artefact_verify(again, &diag), GQAC_OK);
    files[0].bytes = ((size_t)1 << 28) + 1; /* refused before it is read */
    CU_ASSERT_EQUAL(compile_with(model(), 1, files, again), GQAC_USAGE);
    free(most);
}

/* ---- damage -------------------------------------------------------------- */

static unsigned char *bytes; /* of the artefact with three files */
static size_t size;

static uint64_t number_at(size_t at) {
    uint64_t value;
    memcpy(&value, bytes + at, sizeof value);
    return value;
}

static size_t row(int s) {
    return HEADER + (size_t)s * ROW;
}

/* True if all readers refuse the current `bytes`, and the error names the file. */
static bool is_refused(size_t length, bool verify_only) {
    gqac_attachment *files = NULL;
    int n = 0;
    gqac_diag d = {0};
    write_file(again, bytes, length);
    bool refused = gqac_artefact_verify(again, &d) == GQAC_INVALID_MODEL && strstr(d.where, again);
    if (!verify_only)
        refused &= gqac_artefact_attachments(again, &files, &n, &d) == GQAC_INVALID_MODEL &&
                   strstr(d.where, again) && *d.what;
    return refused;
}

/* Recomputes the checksum of header and table. */
static void sign(void) {
    uint32_t sections;
    gqac_sha256 state;
    memcpy(&sections, bytes + AT_SECTIONS, sizeof sections);
    memset(bytes + AT_DIGEST, 0, 32);
    gqac_sha256_init(&state);
    gqac_sha256_update(&state, bytes, HEADER + (size_t)(sections > 99 ? 99 : sections) * ROW);
    gqac_sha256_final(&state, bytes + AT_DIGEST);
}

static void load_bytes(void) {
    free(bytes);
    CU_ASSERT_EQUAL_FATAL(compile_with(model(), 3, three, artefact), GQAC_OK);
    bytes = read_file(artefact, &size);
}

static void test_damaged_bytes(void) {
    load_bytes();
    for (int s = FIXED; s < FIXED + 3; s++) {
        const size_t offset = number_at(row(s) + AT_OFFSET);
        for (size_t i = 0; i < number_at(row(s) + AT_OFFSET + 8); i++) {
            bytes[offset + i] ^= 0x10;
            CU_ASSERT(is_refused(size, false));
            bytes[offset + i] ^= 0x10;
        }
    }
    for (size_t at = HEADER; at < row(FIXED + 3); at += 13) { /* every kind of field of the table */
        bytes[at] ^= 1;
        CU_ASSERT(is_refused(size, false));
        bytes[at] ^= 1;
    }
    const size_t files = number_at(row(FIXED) + AT_OFFSET);
    for (size_t length = files - 1; length < size; length += 7)
        CU_ASSERT(is_refused(length, false));
    write_file(again, bytes, size);
    CU_ASSERT_EQUAL(gqac_artefact_verify(again, &diag), GQAC_OK);
}

/* Compiling an artefact again does not give a damaged file a new checksum. */
static void test_damage_not_kept(void) {
    load_bytes();
    bytes[number_at(row(FIXED) + AT_OFFSET)] ^= 1;
    CU_ASSERT(is_refused(size, false));
    CU_ASSERT_EQUAL(compile_with(again, 0, NULL, artefact), GQAC_INVALID_MODEL);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "file:genai_config.json"));
}

/* Tables that are wrong, but have the correct checksum. */
static void test_hostile_table(void) {
    static const struct {
        int section;      /* -1: the number of sections */
        size_t at;        /* in the row */
        const char *text; /* NULL: write the number */
        uint64_t number;
    } edits[] = {
        {4, 0, "meta", 0},
        {4, 0, "weights", 0},
        {4, 0, "file:weights", 0}, /* twice */
        {5, 0, "file:genai_config.json", 0},
        {4, 0, "file:", 0},
        {4, 0, "file:..", 0},
        {4, 0, "file:../x", 0},
        {4, 0, "file:/etc/passwd", 0},
        {4, 0, "file:a\nb", 0},
        {4, 0, "file:\xff", 0},
        {0, 0, "file:meta", 0},
        {3, 0, "file:weights", 0},
        {4, AT_OFFSET, NULL, 0},
        {4, AT_OFFSET, NULL, UINT64_MAX},
        {4, AT_OFFSET, NULL, UINT64_MAX - 63},
        {4, AT_OFFSET + 8, NULL, UINT64_MAX},
        {6, AT_OFFSET + 8, NULL, 1},
        {3, AT_OFFSET + 8, NULL, UINT64_MAX - 4096},
        {5, AT_OFFSET + 16, NULL, 1},
        {5, AT_OFFSET + 24, NULL, 1},
        {-1, 0, NULL, 0},
        {-1, 0, NULL, 3},
        {-1, 0, NULL, 6},
        {-1, 0, NULL, 8},
        {-1, 0, NULL, 69},
        {-1, 0, NULL, UINT32_MAX},
    };
    load_bytes();
    unsigned char *const clean = malloc(size);
    memcpy(clean, bytes, size);
    sign();
    CU_ASSERT(!memcmp(clean, bytes, size)); /* so `sign` computes the correct checksum */
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        memcpy(bytes, clean, size);
        unsigned char *const at = edits[i].section < 0
                                      ? bytes + AT_SECTIONS
                                      : bytes + row(edits[i].section) + edits[i].at;
        if (edits[i].text)
            memcpy(memset(at, 0, 128), edits[i].text, strlen(edits[i].text));
        else
            memcpy(at, &edits[i].number, edits[i].section < 0 ? 4 : 8);
        sign();
        if (!is_refused(size, false)) {
            printf("edit %zu\n", i);
            CU_FAIL("a wrong table is taken");
        }
    }
    memcpy(bytes, clean, size);
    memset(bytes + row(4), 'f', 128); /* a name without a terminating NUL */
    memcpy(bytes + row(4), "file:", 5);
    sign();
    CU_ASSERT(is_refused(size, false));
    memcpy(bytes, clean, size);
    bytes[row(4) + 100] = 'x'; /* bytes after the name */
    sign();
    CU_ASSERT(is_refused(size, false));
    free(clean);
}

/* ---- memory -------------------------------------------------------------- */

static void test_allocations(void) {
    gqac_attachment *files = NULL;
    int n = 0;
    load_bytes();
    const size_t live = gqac_alloc_live();
    for (size_t at = 1;; at++) {
        gqac_alloc_fail_at(at, 0);
        const gqac_status status = gqac_artefact_attachments(artefact, &files, &n, &diag);
        const size_t calls = gqac_alloc_calls();
        gqac_alloc_fail_at(0, 0);
        if (status == GQAC_OK) {
            CU_ASSERT(at > calls && calls >= 3);
            break;
        }
        CU_ASSERT_EQUAL(status, GQAC_NO_MEMORY);
        CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    }
    gqac_release(files);
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
}

/* ---- pages ----------------------------------------------------------------- */

typedef struct pages {
    long kib_read, kib_dirty;
} pages;

/* Counts pages in the mappings of a file in this process. */
static pages pages_of(const char *path) {
    pages p = {0, 0};
    char line[512];
    bool within = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    while (fgets(line, sizeof line, f)) {
        long kib;
        if (line[0] < 'A' || line[0] > 'Z') /* a mapping's first line starts with its address */
            within = strstr(line, path) != NULL;
        if (within && sscanf(line, "Rss: %ld", &kib) == 1)
            p.kib_read += kib;
        if (within && (sscanf(line, "Private_Dirty: %ld", &kib) == 1 ||
                       sscanf(line, "Anonymous: %ld", &kib) == 1))
            p.kib_dirty += kib;
    }
    fclose(f);
    return p;
}

static void test_pages(void) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_context *context = NULL;
    gqac_sequence *sequence = NULL;
    const int64_t count = 40;
    int64_t ids[40];
    for (int i = 0; i < count; i++)
        ids[i] = i * 5;
    CU_ASSERT_EQUAL_FATAL(compile_with(model(), 0, NULL, again), GQAC_OK);
    gqac_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(again, &options, &program, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 2, &context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, NULL, &sequence, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(
        gqac_sequence_append(context, sequence, ids, count, GQAC_LOGITS_ALL, &diag), GQAC_OK);
    const pages p = pages_of(again);
    CU_ASSERT(p.kib_read * 1024 > gqac_program_weight_bytes(program) / 2);
    CU_ASSERT_EQUAL(p.kib_dirty, 0);
    gqac_sequence_free(sequence);
    gqac_context_free(context);
    gqac_program_free(program);
    CU_ASSERT_EQUAL(pages_of(again).kib_read, 0);
}

/* Rows of a baked prefix are read in place: a sequence needs no memory for them, and a step that
 * appends to them changes no page of the file. */
static void test_baked_pages(void) {
    enum { BAKED = 90, ALL = 100 };
    gqac_options options;
    gqac_bake bake;
    gqac_program *program = NULL;
    gqac_context *context = NULL;
    gqac_sequence *sequence = NULL;
    int64_t ids[ALL], reused = 0;
    for (int i = 0; i < ALL; i++)
        ids[i] = i * 2;
    gqac_options_init(&options);
    gqac_bake_init(&bake, ids, BAKED);
    options.bake = &bake;
    CU_ASSERT_EQUAL_FATAL(gqac_compile(model(), &options, GQAC_EMIT_GQAC, again, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(again, NULL, &program, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
    const int64_t used = gqac_program_memory_used(program);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_begin(program, ids, ALL, NULL, &sequence, &reused, &diag),
                          GQAC_OK);
    CU_ASSERT(reused == BAKED && gqac_program_memory_used(program) == used);
    CU_ASSERT_EQUAL_FATAL(
        gqac_sequence_append(context, sequence, ids + BAKED, ALL - BAKED, 1, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(pages_of(again).kib_dirty, 0);
    gqac_sequence_free(sequence);
    gqac_context_free(context);
    gqac_program_free(program);
    CU_ASSERT_EQUAL(pages_of(again).kib_read, 0);
}

/* The digest of the logits of five tokens. */
static gqac_status step(gqac_context *context, char digest[65]) {
    static const int64_t ids[] = {5, 9, 12, 7, 3};
    gqac_sequence *sequence = NULL;
    int64_t rows = 0, vocabulary = 0;
    CU_ASSERT_EQUAL_FATAL(
        gqac_sequence_create(gqac_context_program(context), NULL, &sequence, &diag), GQAC_OK);
    const gqac_status status = gqac_sequence_append(context, sequence, ids, 5, 1, &diag);
    const float *logits = gqac_context_logits(context, 0, &rows, &vocabulary);
    CU_ASSERT_EQUAL(gqac_sequence_length(sequence), status == GQAC_OK ? 5 : 0);
    CU_ASSERT_EQUAL(logits != NULL, status == GQAC_OK);
    if (logits)
        gqac_digest(logits, (size_t)vocabulary * sizeof *logits, digest);
    gqac_sequence_free(sequence);
    return status;
}

/* A truncated file is an error of the step, not the end of the process; when its bytes are back,
 * so are the bits. */
static void test_truncated(void) {
    gqac_program *program = NULL;
    gqac_context *context = NULL;
    char whole[65], later[65] = "";
    size_t size = 0;
    CU_ASSERT_EQUAL_FATAL(compile_with(model(), 0, NULL, artefact), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(artefact, NULL, &program, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 2, &context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(step(context, whole), GQAC_OK);
    unsigned char *const kept = read_file(artefact, &size);
    for (size_t left = 0; left < size; left += size / 3) {
        CU_ASSERT_EQUAL(truncate(artefact, (off_t)left), 0);
        CU_ASSERT_EQUAL(step(context, later), GQAC_IO);
        CU_ASSERT_STRING_EQUAL(diag.what, "a mapped file was truncated");
        write_file(artefact, kept, size);
        CU_ASSERT_EQUAL(step(context, later), GQAC_OK);
        CU_ASSERT_STRING_EQUAL(later, whole);
    }
    free(kept);
    gqac_context_free(context);
    gqac_program_free(program);
}

static const unit_case cases[] = {
    {"files come back as they were", test_round_trip},
    {"an artefact without files", test_none},
    {"compiled again, the files stay", test_kept},
    {"names, numbers and sizes have limits", test_refused},
    {"damaged and missing bytes", test_damaged_bytes},
    {"damage does not survive a compilation", test_damage_not_kept},
    {"hostile tables", test_hostile_table},
    {"allocations that fail", test_allocations},
    {"weights stay in the pages of the file", test_pages},
    {"a baked prefix stays there too", test_baked_pages},
    {"a file that is truncated while it is mapped", test_truncated},
};

int main(int argc, char **argv) {
    if (!mkdtemp(folder))
        return 2;
    snprintf(artefact, sizeof artefact, "%s/a.gqac", folder);
    snprintf(again, sizeof again, "%s/b.gqac", folder);
    const int failed = unit_run("artefact files", cases, sizeof cases / sizeof *cases, argc, argv);
    free(bytes);
    unlink(artefact);
    unlink(again);
    rmdir(folder);
    return failed;
}
