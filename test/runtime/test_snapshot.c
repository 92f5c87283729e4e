/* Snapshots: a restored sequence computes the bits of one that computed everything itself, any
 * number of times, in other threads and after a restart; files that are damaged or belong to
 * another model are refused with a reason and without effect. */
#include "base/alloc.h"
#include "runtime/program.h"
#include "runtime/rig.h"

#include <gqac/gqac.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N = 400, MORE = 5, THREADS = 4, VOCABULARY_MOST = 4096 };

static gqac_diag diag;
static int64_t ids[N];

static void feed(gqac_context *context, gqac_sequence *s, const int64_t *tokens, int64_t n) {
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(context, s, tokens, n, GQAC_LOGITS_ALL, &diag),
                          GQAC_OK);
}

static gqac_snapshot *take(const gqac_sequence *s) {
    gqac_snapshot *snapshot = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_snapshot_take(s, &snapshot, &diag), GQAC_OK);
    return snapshot;
}

static gqac_sequence *restore(const gqac_snapshot *snapshot) {
    gqac_sequence *s = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_snapshot_restore(snapshot, NULL, &s, &diag), GQAC_OK);
    return s;
}

/* ---- restored sequences -------------------------------------------------- */

static float expected[MORE * VOCABULARY_MOST];

/* The logits of the tokens after `length`, computed one by one by a separate sequence. */
static void compute_cold(const gqac_program *p, int64_t length) {
    gqac_context *context = rig_context(p);
    gqac_sequence *s = rig_sequence(p, N);
    int64_t rows = 0, width = 0;
    for (int64_t i = 0; i < length + MORE; i++) {
        feed(context, s, ids + i, 1);
        const float *row = gqac_context_logits(context, 0, &rows, &width);
        CU_ASSERT_FATAL(rows == 1 && width <= VOCABULARY_MOST);
        if (i >= length)
            memcpy(expected + (i - length) * width, row, (size_t)width * sizeof *row);
    }
    gqac_sequence_free(s);
    gqac_context_free(context);
}

typedef struct worker {
    const gqac_snapshot *snapshot;
    gqac_context *context;
    int64_t computed;
    bool same;
} worker;

/* Restores and continues three times. CUnit is not called, because this runs in a thread. */
static void *continue_often(void *arg) {
    worker *w = arg;
    gqac_diag own = {0};
    w->same = true;
    for (int i = 0; i < 3; i++) {
        gqac_sequence *s = NULL;
        int64_t rows = 0, width = 0;
        const int64_t at = gqac_snapshot_length(w->snapshot);
        gqac_status status = gqac_snapshot_restore(w->snapshot, NULL, &s, &own);
        if (status == GQAC_OK)
            status = gqac_sequence_append(w->context, s, ids + at, MORE, GQAC_LOGITS_ALL, &own);
        const float *row =
            status == GQAC_OK ? gqac_context_logits(w->context, 0, &rows, &width) : NULL;
        w->same = w->same && row && rows == MORE &&
                  !memcmp(row, expected, (size_t)(MORE * width) * sizeof *row);
        w->computed += s ? gqac_sequence_computed(s) : 0;
        gqac_sequence_free(s);
    }
    return NULL;
}

static void continue_in_threads(const gqac_program *p, const gqac_snapshot *snapshot) {
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++)
        workers[i] = (worker){.snapshot = snapshot, .context = rig_context(p)};
    for (int i = 0; i < THREADS; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, continue_often, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CU_ASSERT(workers[i].same);
        CU_ASSERT_EQUAL(workers[i].computed, 3 * (MORE + gqac_snapshot_missing(snapshot)));
        gqac_context_free(workers[i].context);
    }
}

static const char *file_name(void) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/gqac-snapshot-%d.gqs", (int)getpid());
    return path;
}

static bool has_ids(const gqac_snapshot *snapshot, int64_t length) {
    int64_t first = -1, count = -1;
    const int64_t *own = gqac_snapshot_ids(snapshot, &first, &count);
    return first == 0 && count == length && gqac_snapshot_length(snapshot) == length &&
           (!length || !memcmp(own, ids, (size_t)length * sizeof *own));
}

/* The sequence continues with other tokens, is rewound and freed; the snapshot does not change. */
static void frozen_at(const char *model, const char *target, int64_t length) {
    gqac_program *p = rig_program(model, target), *fresh = rig_program(model, target);
    gqac_context *context = rig_context(p);
    gqac_sequence *s = rig_sequence(p, N);
    gqac_snapshot *loaded = NULL;
    compute_cold(p, length);
    if (length > 7)
        feed(context, s, ids, 7);
    if (length)
        feed(context, s, ids + gqac_sequence_length(s), length - gqac_sequence_length(s));
    gqac_snapshot *snapshot = take(s);
    feed(context, s, ids + 100, 70);
    CU_ASSERT_EQUAL(gqac_sequence_rewind(s, length / 2, &diag), GQAC_OK);
    feed(context, s, ids + 90, 3);
    gqac_sequence_free(s);
    continue_in_threads(p, snapshot);
    CU_ASSERT(has_ids(snapshot, length));
    CU_ASSERT_EQUAL_FATAL(gqac_snapshot_save(snapshot, file_name(), &diag), GQAC_OK);
    gqac_snapshot_free(snapshot);
    CU_ASSERT_EQUAL_FATAL(gqac_snapshot_load(fresh, file_name(), &loaded, &diag), GQAC_OK);
    CU_ASSERT(has_ids(loaded, length) && gqac_snapshot_program(loaded) == fresh);
    continue_in_threads(fresh, loaded);
    gqac_snapshot_free(loaded);
    gqac_context_free(context);
    CU_ASSERT_EQUAL(kv_pool_blocks_in_use(p->pool), 0);
    CU_ASSERT_EQUAL(kv_pool_states_in_use(p->pool), 0);
    gqac_program_free(p);
    gqac_program_free(fresh);
    unlink(file_name());
}

static void frozen(void) {
    static const int64_t lengths[] = {0, 1, 63, 64, 65, 130};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        frozen_at("models/tiny-gqa/model.onnx", "cpu", lengths[i]);
        frozen_at("test/models/qwen3.5/model.onnx", "cpu", lengths[i]);
        frozen_at("test/models/lfm2/model.onnx", "cpu", lengths[i]);
    }
    frozen_at("test/models/llama/model.onnx", "ref", 65);
    frozen_at("test/models/gpt-oss/model.onnx", "cpu", 70);
    frozen_at("test/models/phi3/model.onnx", "cpu", 70);
}

/* A snapshot of a rewound sequence recomputes the missing tokens. */
static void rewound(void) {
    gqac_program *p = rig_program("test/models/qwen3.5/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    gqac_sequence *s = rig_sequence(p, N);
    compute_cold(p, 70);
    feed(context, s, ids, 200);
    CU_ASSERT_EQUAL(gqac_sequence_rewind(s, 70, &diag), GQAC_OK);
    gqac_snapshot *snapshot = take(s);
    CU_ASSERT(gqac_snapshot_missing(snapshot) > 0 &&
              gqac_snapshot_missing(snapshot) == gqac_sequence_missing(s));
    gqac_sequence_free(s);
    continue_in_threads(p, snapshot);
    gqac_snapshot_free(snapshot);
    gqac_context_free(context);
    gqac_program_free(p);
}

/* Taking and restoring a snapshot copies no block; appending to a restored one copies the last. */
static void blocks_are_shared(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    gqac_sequence *s = rig_sequence(p, N);
    size_t shared = 0;
    feed(context, s, ids, 150);
    gqac_snapshot *snapshot = take(s);
    CU_ASSERT_EQUAL(kv_pool_blocks_in_use(p->pool), 3);
    CU_ASSERT(gqac_snapshot_bytes(snapshot, &shared) > shared && shared > 0);
    gqac_sequence_free(s);
    CU_ASSERT(gqac_snapshot_bytes(snapshot, &shared) > 0 && shared == 0);
    gqac_sequence *a = restore(snapshot), *b = restore(snapshot);
    CU_ASSERT_EQUAL(kv_pool_blocks_in_use(p->pool), 3);
    feed(context, a, ids + 150, 1);
    CU_ASSERT_EQUAL(kv_pool_blocks_in_use(p->pool), 4);
    feed(context, b, ids + 7, 1);
    CU_ASSERT_EQUAL(kv_pool_blocks_in_use(p->pool), 5);
    gqac_sequence_free(a);
    gqac_sequence_free(b);
    gqac_snapshot_free(snapshot);
    gqac_snapshot_free(NULL);
    CU_ASSERT_EQUAL(kv_pool_blocks_in_use(p->pool), 0);
    gqac_context_free(context);
    gqac_program_free(p);
}

static gqac_status restore_with(const gqac_snapshot *snapshot, const char *kind, int64_t capacity,
                                int64_t final_length, gqac_sequence **s) {
    const gqac_sequence_options options = {
        .size = sizeof options, .kv = kind, .capacity = capacity, .final_length = final_length};
    *s = NULL;
    return gqac_snapshot_restore(snapshot, &options, s, &diag);
}

static void options(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    gqac_sequence *s = rig_sequence(p, N);
    feed(context, s, ids, 70);
    gqac_snapshot *snapshot = take(s);
    gqac_sequence_free(s);
    CU_ASSERT_EQUAL(restore_with(snapshot, "quilted", 0, 0, &s), GQAC_USAGE);
    CU_ASSERT_EQUAL(restore_with(snapshot, NULL, -1, 0, &s), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(restore_with(snapshot, NULL, 0, -1, &s), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(restore_with(snapshot, NULL, 0, 69, &s), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(restore_with(snapshot, NULL, 69, 0, &s), GQAC_CAPACITY);
    CU_ASSERT_EQUAL_FATAL(restore_with(snapshot, " basic ", 71, 0, &s), GQAC_OK);
    feed(context, s, ids, 1);
    CU_ASSERT_EQUAL(gqac_sequence_append(context, s, ids, 1, 0, &diag), GQAC_CAPACITY);
    gqac_sequence_free(s);
    CU_ASSERT_EQUAL_FATAL(restore_with(snapshot, NULL, 0, 71, &s), GQAC_OK);
    feed(context, s, ids, 1);
    CU_ASSERT_EQUAL(gqac_sequence_append(context, s, ids, 1, 0, &diag), GQAC_OUT_OF_RANGE);
    gqac_sequence_free(s);
    gqac_snapshot_free(snapshot);
    gqac_context_free(context);
    gqac_program_free(p);
}

/* ---- files --------------------------------------------------------------- */

/* See saved.c. */
enum { SECTIONS = 232, SECTION = 48, N_SECTIONS = 5, DIGEST = 480, HEADER = 512 };

typedef struct file {
    unsigned char *data;
    size_t bytes;
} file;

static void write_file(const void *data, size_t bytes) {
    FILE *f = fopen(file_name(), "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL_FATAL(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
}

static file read_file(void) {
    struct stat st;
    FILE *f = fopen(file_name(), "rb");
    CU_ASSERT_FATAL(f && stat(file_name(), &st) == 0);
    file all = {.data = malloc((size_t)st.st_size + 64), .bytes = (size_t)st.st_size};
    CU_ASSERT_EQUAL_FATAL(fread(all.data, 1, all.bytes, f), all.bytes);
    fclose(f);
    return all;
}

static file saved(const gqac_program *p, int64_t length) {
    gqac_context *context = rig_context(p);
    gqac_sequence *s = rig_sequence(p, N);
    feed(context, s, ids, length);
    gqac_snapshot *snapshot = take(s);
    CU_ASSERT_EQUAL_FATAL(gqac_snapshot_save(snapshot, file_name(), &diag), GQAC_OK);
    gqac_snapshot_free(snapshot);
    gqac_sequence_free(s);
    gqac_context_free(context);
    return read_file();
}

/* Loading the contents of the file must fail with this status, without effect. */
static void expect_refused(const gqac_program *p, gqac_status status) {
    gqac_snapshot *snapshot = NULL;
    const size_t live = gqac_alloc_live(), blocks = kv_pool_blocks_in_use(p->pool);
    memset(&diag, 0, sizeof diag);
    CU_ASSERT_EQUAL_FATAL(gqac_snapshot_load(p, file_name(), &snapshot, &diag), status);
    CU_ASSERT(*diag.what && strstr(diag.where, file_name()));
    CU_ASSERT_PTR_NULL(snapshot);
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    CU_ASSERT_EQUAL(kv_pool_blocks_in_use(p->pool), blocks);
}

static void sign_header(file f) {
    unsigned char header[HEADER];
    memset(f.data + DIGEST, 0, 32);
    memcpy(header, f.data, HEADER);
    rig_digest(f.data + DIGEST, header, HEADER);
}

static void swap_bytes(unsigned char *a, unsigned char *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char x = a[i];
        a[i] = b[i];
        b[i] = x;
    }
}

static void every_byte_counts(void) {
    gqac_program *p = rig_program("test/models/lfm2/model.onnx", "cpu");
    const file f = saved(p, 3);
    const size_t step = unit_full() ? 1 : 61;
    for (size_t n = 0; n < f.bytes; n += n < HEADER + 64 || n + 64 > f.bytes ? 1 : step) {
        write_file(f.data, n);
        expect_refused(p, GQAC_INVALID_INPUT);
    }
    for (size_t bit = 0; bit < 8 * f.bytes; bit += bit < 8 * HEADER ? 1 : 8 * step + 1) {
        f.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        write_file(f.data, f.bytes);
        expect_refused(p, GQAC_INVALID_INPUT);
        f.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    memset(f.data + f.bytes, 0, 64);
    write_file(f.data, f.bytes + 64);
    expect_refused(p, GQAC_INVALID_INPUT);
    free(f.data);
    gqac_program_free(p);
    unlink(file_name());
}

/* Two sections are exchanged: in the file, in the table, and in both. */
static void swapped_sections(void) {
    gqac_program *p = rig_program("test/models/qwen3.5/model.onnx", "cpu");
    const file f = saved(p, 3);
    int swaps = 0;
    for (int i = 0; i < N_SECTIONS; i++)
        for (int j = i + 1; j < N_SECTIONS; j++) {
            unsigned char *a = f.data + SECTIONS + i * SECTION, *b = a + (j - i) * SECTION;
            uint64_t place[2], length[2];
            memcpy(&place[0], a, 8), memcpy(&length[0], a + 8, 8);
            memcpy(&place[1], b, 8), memcpy(&length[1], b + 8, 8);
            CU_ASSERT_FATAL(length[0] > 0 && length[1] > 0);
            for (int way = 0; way < 3; way++) {
                const size_t n = (size_t)(length[0] < length[1] ? length[0] : length[1]);
                if (way != 1)
                    swap_bytes(f.data + place[0], f.data + place[1], n);
                if (way > 0)
                    swap_bytes(a, b, SECTION);
                sign_header(f);
                write_file(f.data, f.bytes);
                expect_refused(p, GQAC_INVALID_INPUT);
                if (way > 0)
                    swap_bytes(a, b, SECTION);
                if (way != 1)
                    swap_bytes(f.data + place[0], f.data + place[1], n);
                swaps++;
            }
        }
    CU_ASSERT_EQUAL(swaps, 30);
    gqac_snapshot *snapshot = NULL;
    sign_header(f);
    write_file(f.data, f.bytes);
    CU_ASSERT_EQUAL(gqac_snapshot_load(p, file_name(), &snapshot, &diag), GQAC_OK);
    gqac_snapshot_free(snapshot);
    free(f.data);
    gqac_program_free(p);
    unlink(file_name());
}

static void other_files(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_program *llama = rig_program("test/models/llama/model.onnx", "cpu");
    gqac_program *ref = rig_program("models/tiny-gqa/model.onnx", "ref");
    gqac_options stateless;
    gqac_snapshot *snapshot = NULL;
    const file f = saved(p, 70);
    expect_refused(llama, GQAC_USAGE);
    CU_ASSERT(strstr(diag.what, "another model") && *diag.rule);
    expect_refused(ref, GQAC_USAGE);
    CU_ASSERT(strstr(diag.what, gqac_program_profile(ref)) != NULL);
    gqac_program_free(llama);
    gqac_program_free(ref);
    gqac_options_init(&stateless);
    stateless.stateless = true;
    CU_ASSERT_EQUAL_FATAL(
        gqac_program_open(unit_path("models/tiny-gqa/model.onnx"), &stateless, &ref, &diag),
        GQAC_OK);
    CU_ASSERT_EQUAL(gqac_snapshot_load(ref, file_name(), &snapshot, &diag), GQAC_USAGE);
    gqac_program_free(ref);
    unlink(file_name());
    expect_refused(p, GQAC_IO);
    CU_ASSERT_EQUAL(mkfifo(file_name(), 0600), 0);
    expect_refused(p, GQAC_IO);
    unlink(file_name());
    CU_ASSERT_EQUAL(mkdir(file_name(), 0700), 0);
    expect_refused(p, GQAC_IO);
    rmdir(file_name());
    write_file("", 0);
    CU_ASSERT_EQUAL(truncate(file_name(), (off_t)1 << 40), 0); /* only a hole */
    expect_refused(p, GQAC_INVALID_INPUT);
    unlink(file_name());
    free(f.data);
    gqac_program_free(p);
}

static void descriptions(void) {
    gqac_program *p = rig_program("test/models/qwen3.5/model.onnx", "cpu");
    gqac_snapshot_file *d = NULL;
    const file f = saved(p, 130);
    for (int whole = 0; whole < 2; whole++) {
        CU_ASSERT_EQUAL_FATAL(gqac_snapshot_file_open(file_name(), whole, &d, &diag), GQAC_OK);
        CU_ASSERT(d->bytes == f.bytes && d->length == 130 && d->first == 0 && d->n_ids == 130);
        CU_ASSERT(!memcmp(d->ids, ids, 130 * sizeof *ids) && d->states == 3);
        CU_ASSERT_STRING_EQUAL(d->profile, gqac_program_profile(p));
        CU_ASSERT_STRING_EQUAL(d->kind, "contiguous");
        CU_ASSERT_EQUAL(strlen(d->model), 64);
        gqac_snapshot_file_free(d);
    }
    f.data[f.bytes - 1] ^= 1; /* of a state, or the zeros after it */
    write_file(f.data, f.bytes);
    CU_ASSERT_EQUAL_FATAL(gqac_snapshot_file_open(file_name(), false, &d, &diag), GQAC_OK);
    gqac_snapshot_file_free(d);
    CU_ASSERT_EQUAL(gqac_snapshot_file_open(file_name(), true, &d, &diag), GQAC_INVALID_INPUT);
    CU_ASSERT(strstr(diag.what, "states") != NULL);
    free(f.data);
    gqac_snapshot_file_free(NULL);
    gqac_program_free(p);
    unlink(file_name());
}

/* Every allocation fails once: nothing is leaked, and the next attempt succeeds. */
static void memory_runs_out(void) {
    gqac_program *p = rig_program("test/models/qwen3.5/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    gqac_sequence *s = rig_sequence(p, N), *again = NULL;
    gqac_snapshot *snapshot = NULL;
    gqac_snapshot_file *d = NULL;
    feed(context, s, ids, 130);
    gqac_snapshot *kept = take(s);
    for (int what = 0; what < 5; what++) {
        gqac_status status;
        size_t n = 0;
        const size_t live = gqac_alloc_live();
        do {
            gqac_alloc_fail_at(++n, 0);
            status = what == 0   ? gqac_snapshot_take(s, &snapshot, &diag)
                     : what == 1 ? gqac_snapshot_restore(kept, NULL, &again, &diag)
                     : what == 2 ? gqac_snapshot_save(kept, file_name(), &diag)
                     : what == 3 ? gqac_snapshot_load(p, file_name(), &snapshot, &diag)
                                 : gqac_snapshot_file_open(file_name(), true, &d, &diag);
            gqac_alloc_fail_at(0, 0);
            CU_ASSERT_FATAL(status == GQAC_OK || status == GQAC_NO_MEMORY);
            CU_ASSERT_FATAL(status == GQAC_OK || gqac_alloc_live() == live);
        } while (status != GQAC_OK);
        CU_ASSERT(n > 2);
        gqac_snapshot_free(snapshot);
        gqac_sequence_free(again);
        gqac_snapshot_file_free(d);
        snapshot = NULL, again = NULL, d = NULL;
        CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    }
    gqac_snapshot_free(kept);
    gqac_sequence_free(s);
    gqac_context_free(context);
    gqac_program_free(p);
    unlink(file_name());
}

static const unit_case cases[] = {
    {"frozen", frozen},
    {"rewound", rewound},
    {"blocks are shared", blocks_are_shared},
    {"options", options},
    {"every byte counts", every_byte_counts},
    {"swapped sections", swapped_sections},
    {"other files", other_files},
    {"descriptions", descriptions},
    {"memory runs out", memory_runs_out},
};

int main(int argc, char **argv) {
    for (int i = 0; i < N; i++)
        ids[i] = (i * 37 + i / 7 * 5 + 11) % 250;
    return unit_run("runtime/snapshot", cases, sizeof cases / sizeof *cases, argc, argv);
}
