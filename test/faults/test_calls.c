/* Every system call of a user's action fails, one after another, and so does every allocation:
 * opening a model and a step, compiling, saving and loading a snapshot, a prefix store and its
 * restart, generating, also under a constraint, scheduling.
 *
 * Each time the action fails cleanly or succeeds, nothing is leaked, existing files and sequences
 * are unchanged, no incomplete file is left, and the next attempt produces the bits of an
 * undisturbed one. Interrupted calls and transfers of one byte must have no effect at all. */
#include "fuzz/fuzz.h"
#include "support_calls.h"
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <gqac/text.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/diag.h"

#define MODEL "model.onnx"
enum { PATH = 512, IDS = 70, MOST_LOGITS = 4096 };

static const char *folder;

static const char *file(const char *name) {
    static char ring[4][PATH];
    static unsigned next;
    char *path = ring[next++ % 4];
    snprintf(path, sizeof ring[0], "%s/%s", folder, name);
    return path;
}

/* Removes the files of the folder except the model, and returns their number. */
static int clear_folder(void) {
    int n = 0;
    DIR *dir = opendir(folder);
    CU_ASSERT_PTR_NOT_NULL_FATAL(dir);
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strcmp(e->d_name, MODEL) != 0) {
            unlink(file(e->d_name));
            n++;
        }
    closedir(dir);
    return n;
}

/* ---- the actions --------------------------------------------------------- */

static const gqac_program *program; /* of most actions */
static gqac_context *context;
static gqac_text *text;     /* whose first tokens have the ids of the program */
static gqac_sequence *kept; /* its tokens are not changed by any action */
static int64_t ids[IDS];
static float seen[MOST_LOGITS]; /* the logits of the last action that computed some */
static int64_t n_seen;

static void take_logits(const gqac_context *from) {
    int64_t rows, width;
    const float *logits = gqac_context_logits(from, 0, &rows, &width);
    n_seen = logits && width < MOST_LOGITS ? width : 0;
    if (n_seen)
        memcpy(seen, logits + (rows - 1) * width, (size_t)width * sizeof *seen);
}

static gqac_status open_and_step(gqac_diag *diag) {
    gqac_options options;
    gqac_program *own = NULL;
    gqac_context *two = NULL;
    gqac_sequence *sequence = NULL;
    gqac_options_init(&options);
    gqac_status status =
        gqac_program_open(unit_path("test/models/lfm2/model.onnx"), &options, &own, diag);
    if (status == GQAC_OK)
        status = gqac_context_create(own, 3, &two, diag);
    if (status == GQAC_OK)
        status = gqac_sequence_create(own, NULL, &sequence, diag);
    if (status == GQAC_OK)
        status = gqac_sequence_append(two, sequence, ids, 9, 1, diag);
    if (status == GQAC_OK)
        take_logits(two);
    gqac_sequence_free(sequence);
    gqac_context_free(two);
    gqac_program_free(own);
    return status;
}

/* Overwrites an existing file: afterwards it is the old file or the new one. */
static gqac_status compile(gqac_diag *diag) {
    gqac_options options;
    gqac_options_init(&options);
    return gqac_compile(file(MODEL), &options, GQAC_EMIT_GQAC, file("out.gqac"), diag);
}

static gqac_status save_and_load(gqac_diag *diag) {
    gqac_snapshot *snapshot = NULL, *loaded = NULL;
    gqac_sequence *sequence = NULL;
    const int64_t one = 1;
    gqac_status status = gqac_snapshot_take(kept, &snapshot, diag);
    if (status == GQAC_OK)
        status = gqac_snapshot_save(snapshot, file("out.gqs"), diag);
    if (status == GQAC_OK)
        status = gqac_snapshot_load(program, file("out.gqs"), &loaded, diag);
    if (status == GQAC_OK)
        status = gqac_snapshot_restore(loaded, NULL, &sequence, diag);
    if (status == GQAC_OK)
        status = gqac_sequence_append(context, sequence, &one, 1, 1, diag);
    if (status == GQAC_OK)
        take_logits(context);
    gqac_sequence_free(sequence);
    gqac_snapshot_free(loaded);
    gqac_snapshot_free(snapshot);
    return status;
}

static gqac_status open_store(gqac_store **store, gqac_diag *diag) {
    gqac_store_options options;
    gqac_store_options_init(&options);
    options.folder = folder;
    options.folder_budget = 1 << 22;
    return gqac_store_create(program, &options, store, diag);
}

/* Computes the ids that the store lacks. */
static gqac_status fill_store(gqac_store *store, int64_t least, bool save, gqac_diag *diag) {
    gqac_sequence *sequence = NULL;
    int64_t reused = 0;
    gqac_status status = gqac_store_open(store, "t", ids, IDS, NULL, &sequence, &reused, diag);
    if (status == GQAC_OK && reused < least)
        status = gqac_diag_set(diag, GQAC_MISMATCH, "%lld tokens are found, not %lld",
                               (long long)reused, (long long)least);
    if (status == GQAC_OK)
        status = gqac_sequence_append(context, sequence, ids + reused, IDS - reused, 1, diag);
    if (status == GQAC_OK)
        take_logits(context);
    if (status == GQAC_OK && save)
        status = gqac_store_save(store, "t", sequence, diag);
    gqac_sequence_free(sequence);
    return status;
}

/* Inserts, evicts, and inserts again. */
static gqac_status use_store(gqac_diag *diag) {
    gqac_store *store = NULL;
    gqac_status status = open_store(&store, diag);
    if (status == GQAC_OK)
        status = fill_store(store, 0, true, diag);
    if (status == GQAC_OK)
        gqac_store_evict(store, 0);
    if (status == GQAC_OK) /* the tokens are in the folder */
        status = fill_store(store, 0, false, diag);
    gqac_store_free(store);
    return status;
}

/* A store that begins with the folder of another one. Found tokens may be lost because of a fault,
 * but only while it lasts. */
static gqac_store *lasting;

static gqac_status restart_store(gqac_diag *diag) {
    gqac_status status = GQAC_OK;
    if (!lasting)
        status = open_store(&lasting, diag);
    return status == GQAC_OK ? fill_store(lasting, 0, false, diag) : status;
}

static void after_restart(void) {
    gqac_diag diag = {0};
    gqac_status status = lasting ? GQAC_OK : open_store(&lasting, &diag);
    if (lasting)
        gqac_store_evict(lasting, 0);
    if (status == GQAC_OK)
        status = fill_store(lasting, IDS - 1, false, &diag);
    if (status != GQAC_OK) {
        printf("  %s\n", diag.what);
        CU_FAIL("a store no longer finds its file after a fault");
    }
    gqac_store_free(lasting);
    lasting = NULL;
}

static gqac_status generate_with(gqac_constraint *constraint, gqac_diag *diag) {
    gqac_session *session = NULL;
    gqac_generation *result = NULL;
    gqac_generate_request request;
    gqac_status status = gqac_session_create(program, NULL, &session, diag);
    if (status == GQAC_OK) {
        gqac_generate_request_init(&request, NULL, session, ids, 9);
        request.max_new = 4;
        request.constraint = constraint;
        status = gqac_generate(context, NULL, 1, &request, &result, diag);
    }
    if (status == GQAC_OK) {
        n_seen = (int64_t)result->n_ids;
        for (int64_t i = 0; i < n_seen; i++)
            seen[i] = (float)result->ids[i];
    }
    CU_ASSERT((status == GQAC_OK) == (result != NULL));
    gqac_generation_free(result);
    gqac_session_free(session);
    return status;
}

static gqac_status generate(gqac_diag *diag) {
    return generate_with(NULL, diag);
}

/* The tokens of the text are read once, in the first attempt, which has no fault. */
static gqac_status generate_constrained(gqac_diag *diag) {
    static const char rules[] = "root ::= [!-$]{3} [!-']";
    gqac_constraint *constraint = NULL;
    gqac_status status =
        gqac_constraint_from_grammar(text, rules, sizeof rules - 1, &constraint, diag);
    if (status == GQAC_OK)
        status = generate_with(constraint, diag);
    gqac_constraint_free(constraint);
    return status;
}

static gqac_diag ended;

static void on_end(void *arg, const gqac_request_end *end) {
    (void)arg;
    memset(&ended, 0, sizeof ended);
    if (end->diag)
        ended = *end->diag;
    n_seen = (int64_t)end->n_ids;
    for (int64_t i = 0; i < n_seen; i++)
        seen[i] = (float)end->ids[i];
}

static gqac_status schedule(gqac_diag *diag) {
    gqac_scheduler *scheduler = NULL;
    gqac_request request;
    int64_t left = 1, number;
    gqac_request_init(&request, ids, 9);
    request.max_new = 4;
    request.on_end = on_end;
    gqac_status status = gqac_scheduler_create(context, NULL, &scheduler, diag);
    if (status == GQAC_OK)
        status = gqac_scheduler_submit(scheduler, &request, &number, diag);
    while (status == GQAC_OK && left)
        status = gqac_scheduler_step(scheduler, &left, diag);
    gqac_scheduler_free(scheduler);
    if (status == GQAC_OK && ended.status != GQAC_OK) {
        *diag = ended;
        status = ended.status;
    }
    return status;
}

/* ---- the checks ---------------------------------------------------------- */

static void compiled_whole(void) {
    gqac_diag diag = {0};
    const gqac_status status = gqac_artefact_verify(file("out.gqac"), &diag);
    if (status != GQAC_OK) {
        printf("  %s\n", diag.what);
        CU_FAIL("neither the old file nor the new one is there");
    }
}

static void snapshot_whole(void) {
    gqac_diag diag = {0};
    gqac_snapshot_file *f = NULL;
    if (access(file("out.gqs"), F_OK) == 0) {
        CU_ASSERT_EQUAL(gqac_snapshot_file_open(file("out.gqs"), true, &f, &diag), GQAC_OK);
        gqac_snapshot_file_free(f);
    }
    CU_ASSERT(clear_folder() <= 1);
}

/* The folder contains only complete snapshots. */
static void folder_whole(void) {
    gqac_diag diag = {0};
    gqac_store_file *files = NULL;
    size_t n = 0;
    CU_ASSERT_EQUAL(gqac_store_folder_list(folder, true, &files, &n, &diag), GQAC_OK);
    for (size_t i = 0; i < n; i++)
        CU_ASSERT_PTR_NOT_NULL(files[i].file);
    gqac_store_folder_free(files, n);
    CU_ASSERT((size_t)clear_folder() == n);
}

typedef struct action {
    const char *name;
    gqac_status (*run)(gqac_diag *diag);
    void (*after)(void); /* may be NULL */
    bool keeps_folder, slow;
} action;

static const action actions[] = {
    {"open a model and step", open_and_step, NULL, false, true},
    {"compile", compile, compiled_whole, true, false},
    {"save and load a snapshot", save_and_load, snapshot_whole, false, false},
    {"fill a prefix store", use_store, folder_whole, false, false},
    {"restart a prefix store", restart_store, after_restart, true, false},
    {"generate", generate, NULL, false, false},
    {"generate, constrained", generate_constrained, NULL, false, false},
    {"schedule", schedule, NULL, false, false},
};

static int64_t n_expected;
static float expected[MOST_LOGITS];

static bool same_bits(void) {
    return n_seen == n_expected && !memcmp(seen, expected, (size_t)n_seen * sizeof *seen);
}

/* The sequence that no action changes. */
static int64_t kept_length(void) {
    return gqac_sequence_length(kept);
}

/* After a fault: no leak, and the next attempt is as if there had been no fault. */
static bool check_after(const action *a, const char *what, size_t n, gqac_status status,
                        const gqac_diag *diag, size_t live, gqac_status allowed) {
    const char *wrong = NULL;
    gqac_diag again = {0};
    if (status != GQAC_OK && (status == GQAC_INTERNAL || status == GQAC_MISMATCH || !*diag->what))
        wrong = "the failure is not clean";
    else if (status != GQAC_OK && allowed != GQAC_OK && status != allowed)
        wrong = "the status";
    else if (status == GQAC_OK && !same_bits())
        wrong = "the bits of an action that succeeded";
    else if (kept_length() != IDS - 1)
        wrong = "another sequence changed";
    if (a->after)
        a->after();
    if (!wrong && gqac_alloc_live() != live)
        wrong = "memory is lost";
    if (!wrong) {
        if (a->run(&again) != GQAC_OK || !same_bits())
            wrong = "the next attempt";
        if (a->after)
            a->after();
    }
    if (wrong)
        printf("  %s, %s %zu: %s: %s '%s'\n", a->name, what, n, wrong, gqac_status_name(status),
               diag->what);
    return !wrong;
}

/* Runs the action without a fault, for its bits. */
static bool run_clean(const action *a) {
    gqac_diag diag = {0};
    n_seen = 0;
    const gqac_status status = a->run(&diag);
    if (a->after)
        a->after();
    if (status != GQAC_OK)
        printf("  %s: %s: %s\n", a->name, diag.where, diag.what);
    CU_ASSERT_EQUAL(status, GQAC_OK);
    n_expected = n_seen;
    memcpy(expected, seen, sizeof expected);
    return status == GQAC_OK;
}

static void fail_calls(const action *a, fault_kind kind, int error, bool persist) {
    const size_t live = gqac_alloc_live();
    size_t n = 1, failed = 0;
    for (;; n++) {
        gqac_diag diag = {0};
        fault_set(kind, n, error, persist);
        const gqac_status status = a->run(&diag);
        const size_t reached = fault_end();
        failed += status != GQAC_OK;
        /* an interrupted call is made again; close is not, and no worker is started twice */
        const bool again = error == EINTR && !persist && kind != FAULT_CLOSE &&
                           kind != FAULT_THREAD && kind != FAULT_MAP && kind != FAULT_SYNC;
        if (again && status != GQAC_OK && reached >= n) {
            printf("  %s, interrupted %s %zu: '%s'\n", a->name, fault_name(kind), n, diag.what);
            CU_FAIL("an interrupted call is not made again");
        }
        if (!check_after(a, fault_name(kind), n, status, &diag, live, GQAC_OK)) {
            CU_FAIL("a fault is not handled");
            return;
        }
        if (reached < n)
            break;
    }
    if (n > 1)
        printf("  %s: %zu times %s with %s, %zu failures\n", a->name, n - 1, fault_name(kind),
               strerrorname_np(error), failed);
}

static void fail_allocations(const action *a, bool persist) {
    const size_t live = gqac_alloc_live();
    size_t n = 1, failed = 0;
    for (;; n++) {
        gqac_diag diag = {0};
        gqac_alloc_fail_at(n, persist);
        const gqac_status status = a->run(&diag);
        const size_t reached = gqac_alloc_calls();
        gqac_alloc_fail_at(0, 0);
        failed += status != GQAC_OK;
        if (!check_after(a, "allocation", n, status, &diag, live, GQAC_NO_MEMORY)) {
            CU_FAIL("a failed allocation is not handled");
            return;
        }
        if (reached < n)
            break;
    }
    printf("  %s: %zu allocations, %zu failures%s\n", a->name, n - 1, failed,
           persist ? ", and all after each" : "");
}

static void each_action(void (*run)(const action *a)) {
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        const action *a = &actions[i];
        if (a->keeps_folder) { /* files that existed before */
            gqac_diag diag = {0};
            CU_ASSERT_EQUAL(a->run == compile ? compile(&diag) : use_store(&diag), GQAC_OK);
        }
        if (run_clean(a))
            run(a);
        clear_folder();
    }
}

static void each_call(const action *a) {
    static const struct {
        fault_kind kind;
        int error;
    } faults[] = {{FAULT_OPEN, EMFILE},  {FAULT_OPEN, EINTR},  {FAULT_STATUS, EIO},
                  {FAULT_READ, EIO},     {FAULT_READ, EINTR},  {FAULT_MAP, ENOMEM},
                  {FAULT_WRITE, ENOSPC}, {FAULT_WRITE, EINTR}, {FAULT_SYNC, EIO},
                  {FAULT_NAME, EACCES},  {FAULT_CLOSE, EIO},   {FAULT_THREAD, EAGAIN}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        fail_calls(a, faults[i].kind, faults[i].error, false);
        if (faults[i].error != EINTR)
            fail_calls(a, faults[i].kind, faults[i].error, true);
    }
}

static void test_calls(void) {
    each_action(each_call);
}

static void one_byte(const action *a) {
    gqac_diag diag = {0};
    fault_short(true);
    const gqac_status status = a->run(&diag);
    fault_short(false);
    if (status != GQAC_OK)
        printf("  %s: %s\n", a->name, diag.what);
    CU_ASSERT_EQUAL(status, GQAC_OK);
    CU_ASSERT(same_bits());
    if (a->after)
        a->after();
}

static void test_short(void) {
    each_action(one_byte);
}

static void each_allocation(const action *a) {
    if (a->slow) /* test_runtime_alloc_failure tests these */
        return;
    fail_allocations(a, false);
    fail_allocations(a, true);
}

static void test_allocations(void) {
    each_action(each_allocation);
}

static bool open_all(void) {
    gqac_options options;
    gqac_model_bytes bytes;
    gqac_diag diag = {0};
    const char *source = fuzz_program_text(0);
    gqac_options_init(&options);
    gqac_model_bytes_init(&bytes, source, strlen(source));
    options.bytes = &bytes;
    for (int i = 0; i < IDS; i++)
        ids[i] = (i * 7 + i / 5) % 3;
    folder = fuzz_folder();
    program = fuzz_program(0);
    return gqac_text_open(unit_path("test/models/llama"), GQAC_TEXT_TOKENIZER, &text, &diag) ==
               GQAC_OK &&
           gqac_compile("m.gq", &options, GQAC_EMIT_ONNX, file(MODEL), &diag) == GQAC_OK &&
           gqac_context_create(program, 1, &context, &diag) == GQAC_OK &&
           gqac_sequence_create(program, NULL, &kept, &diag) == GQAC_OK &&
           gqac_sequence_append(context, kept, ids, IDS - 1, 0, &diag) == GQAC_OK;
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {{"calls fail", test_calls},
                                      {"one byte at a time", test_short},
                                      {"allocations fail", test_allocations}};
    if (!open_all())
        return 2;
    const int code = unit_run("faults", cases, sizeof cases / sizeof *cases, argc, argv);
    gqac_sequence_free(kept);
    gqac_text_free(text);
    gqac_context_free(context);
    unlink(file(MODEL));
    return code;
}
