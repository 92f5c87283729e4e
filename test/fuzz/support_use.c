/* What several fuzz targets use: files in memory, checks, and the use of a program. */
#include "fuzz/fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef FUZZ_SECONDS /* how long an input may take; tools/memcheck.sh allows more */
#define FUZZ_SECONDS 1
#endif

enum { BUDGET = 64 << 20, MOST_INPUTS = 32, MOST_ELEMENTS = 1 << 12 };

fuzz_parts fuzz_split(const uint8_t *data, size_t size) {
    const char *first = (const char *)data, *nul = size ? memchr(first, 0, size) : NULL;
    const size_t n = nul ? (size_t)(nul - first) : size;
    return (fuzz_parts){.first = first,
                        .second = nul ? nul + 1 : NULL,
                        .n_first = n,
                        .n_second = nul ? size - n - 1 : 0};
}

gqac_status fuzz_check(gqac_status status, const gqac_diag *diag) {
    if (status == GQAC_INTERNAL || (status != GQAC_OK && !diag->what[0])) {
        fprintf(stderr, "%s: %s: %s\n", gqac_status_name(status), diag->where, diag->what);
        fuzz_broken("a failure that is not clean");
    }
    return status;
}

_Noreturn void fuzz_broken(const char *what) {
    fprintf(stderr, "broken: %s\n", what);
    abort();
}

/* ---- files --------------------------------------------------------------- */

const char *fuzz_file(const void *data, size_t size) {
    static int fd = -1;
    static char path[64];
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        fuzz_broken("no file in memory");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

static char folder[64];

static void remove_folder(void) {
    rmdir(folder);
}

const char *fuzz_folder(void) {
    if (*folder)
        return folder;
    strcpy(folder,
           access("/dev/shm", W_OK) == 0 ? "/dev/shm/gqac-fuzz-XXXXXX" : "/tmp/gqac-fuzz-XXXXXX");
    if (!mkdtemp(folder))
        fuzz_broken("no folder");
    atexit(remove_folder);
    return folder;
}

/* ---- time ---------------------------------------------------------------- */

static struct timespec began;

static bool too_long(void *arg) {
    struct timespec now;
    (void)arg;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec - began.tv_sec > FUZZ_SECONDS;
}

const gqac_monitor *fuzz_deadline(void) {
    static const gqac_monitor monitor = {.size = sizeof monitor, .abort = too_long};
    clock_gettime(CLOCK_MONOTONIC, &began);
    return &monitor;
}

/* ---- models -------------------------------------------------------------- */

/* All files of external data are the same page. */
static gqac_status external(void *arg, const char *name, const void **data, size_t *bytes,
                            gqac_diag *diag) {
    static const float page[1024] = {1, -1, 0.5f, 2};
    (void)arg;
    (void)name;
    (void)diag;
    *data = page;
    *bytes = sizeof page;
    return GQAC_OK;
}

gqac_status fuzz_open(const char *name, const void *data, size_t size, const char *target,
                      bool stateless, gqac_program **program, gqac_diag *diag) {
    gqac_options options;
    gqac_model_bytes bytes;
    gqac_options_init(&options);
    gqac_model_bytes_init(&bytes, data, size);
    bytes.external = external;
    options.bytes = &bytes;
    options.target = target;
    options.stateless = stateless;
    options.memory_budget = BUDGET;
    options.monitor = fuzz_deadline();
    return fuzz_check(gqac_program_open(name, &options, program, diag), diag);
}

static gqac_status open_context(const gqac_program *program, gqac_context **context,
                                gqac_diag *diag) {
    gqac_status status = gqac_context_create(program, 1, context, diag);
    if (status == GQAC_OK)
        status = gqac_context_set_monitor(*context, fuzz_deadline(), NULL, diag);
    return fuzz_check(status, diag);
}

gqac_status fuzz_steps(const gqac_program *program, gqac_diag *diag) {
    static const int64_t ids[] = {0, 2, 1, 1};
    gqac_context *context = NULL;
    gqac_sequence *sequence = NULL, *fork = NULL;
    gqac_status status = open_context(program, &context, diag);
    if (status == GQAC_OK)
        status = fuzz_check(gqac_sequence_create(program, NULL, &sequence, diag), diag);
    for (int i = 0; status == GQAC_OK && i < 2; i++) { /* a prompt, and one more token */
        const int64_t count = i ? 1 : 3;
        status = fuzz_check(gqac_sequence_append(context, sequence, i ? ids + 3 : ids, count,
                                                 i ? 1 : GQAC_LOGITS_ALL, diag),
                            diag);
        if (gqac_sequence_length(sequence) != (i ? 3 : 0) + (status == GQAC_OK ? count : 0))
            fuzz_broken("the length of a sequence after a step");
    }
    if (status == GQAC_OK)
        status = fuzz_check(gqac_sequence_fork(sequence, &fork, diag), diag);
    if (status == GQAC_OK && gqac_sequence_rewind(sequence, 2, diag) == GQAC_OK)
        status = fuzz_check(gqac_sequence_append(context, sequence, ids + 1, 2, 1, diag), diag);
    gqac_sequence_free(fork);
    gqac_sequence_free(sequence);
    gqac_context_free(context);
    return status;
}

/* Reads "[2,batch,4]"; all names have the same small size. */
static bool read_shape(const gqac_io *io, gqac_tensor *t) {
    const char *at = io->shape;
    int64_t count = 1;
    *t = (gqac_tensor){.dtype = io->dtype, .rank = io->rank};
    if (io->rank < 0 || io->dtype == GQAC_NONE || *at++ != '[')
        return false;
    for (int i = 0; i < io->rank; i++) {
        const size_t n = strcspn(at, ",]");
        char *end;
        t->dims[i] = strtoll(at, &end, 10);
        if (end != at + n || end == at) {
            unsigned sum = 0;
            for (size_t k = 0; k < n; k++)
                sum += (unsigned char)at[k];
            t->dims[i] = 1 + sum % 3;
        }
        if (t->dims[i] < 0 || __builtin_mul_overflow(count, t->dims[i], &count) ||
            count > MOST_ELEMENTS)
            return false;
        at += n + (at[n] != 0);
    }
    return true;
}

static gqac_status run_stateless(const gqac_program *program, gqac_diag *diag) {
    static const unsigned char pattern[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,    0,
                                            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xc0, 0x3f};
    const gqac_io *io = NULL;
    const char *names[MOST_INPUTS];
    gqac_tensor inputs[MOST_INPUTS] = {0}, output;
    gqac_context *context = NULL;
    const int n = gqac_program_inputs(program, &io);
    bool good = n <= MOST_INPUTS;
    for (int i = 0; good && i < n; i++) {
        const gqac_io *one = GQAC_AT(io, i);
        names[i] = one->name;
        good = read_shape(one, &inputs[i]) && gqac_tensor_alloc(&inputs[i], diag) == GQAC_OK;
        for (size_t k = 0; good && k < gqac_tensor_bytes(&inputs[i]); k++)
            ((unsigned char *)inputs[i].data)[k] = pattern[(k + 7 * (size_t)i) % sizeof pattern];
        if (good && inputs[i].dtype == GQAC_BOOL)
            memset(inputs[i].data, 1, gqac_tensor_bytes(&inputs[i]));
    }
    gqac_status status = GQAC_OK;
    if (good)
        status = open_context(program, &context, diag);
    if (good && status == GQAC_OK)
        status = fuzz_check(gqac_run(context, n, names, inputs, 0, NULL, &output, diag), diag);
    gqac_context_free(context);
    for (int i = 0; i < n && i < MOST_INPUTS; i++)
        gqac_tensor_free(&inputs[i]);
    return status;
}

gqac_status fuzz_model(const char *name, const void *data, size_t size) {
    static const struct {
        const char *target;
        bool stateless;
    } ways[] = {{"cpu", false}, {"cpu", true}, {"ref", true}};
    gqac_status first = GQAC_OK;
    for (int i = 0; i < 3; i++) {
        gqac_diag diag = {0};
        gqac_program *program = NULL;
        gqac_status status =
            fuzz_open(name, data, size, ways[i].target, ways[i].stateless, &program, &diag);
        if (status == GQAC_OK)
            status = ways[i].stateless ? run_stateless(program, &diag) : fuzz_steps(program, &diag);
        gqac_program_free(program);
        first = i ? first : status;
        if (status == GQAC_INVALID_MODEL && i == 0)
            break; /* all refuse it in the same way */
    }
    return first;
}

/* ---- known models -------------------------------------------------------- */

#define GATHER "  %x = Gather %emb, %input_ids : ?\n"
#define EMBED                                                                                      \
    "  const %emb: f32[3,8] = [0.5,-1,1,0.25,2,-0.5,1,0.75,1,1,-1,0.5,0.25,2,1,-0.25,1,0.5,1,-2,"  \
    "0.5,1,1,0.125]\n" GATHER
#define ATTENTION(constants, embed, options, product)                                              \
    "graph @m(%input_ids: i64[B,S], %attention_mask: i64[B,T], %past_key_values.0.key: "           \
    "f32[B,1,P,8], %past_key_values.0.value: f32[B,1,P,8]) {\n" constants                          \
    "  const %axis: i64[1] = [1]\n"                                                                \
    "  const %one: i64[] = 1\n" embed                                                              \
    "  %sum = ReduceSum %attention_mask, %axis {keepdims=0} : ?\n"                                 \
    "  %last = Sub %sum, %one : ?\n"                                                               \
    "  %len = Cast %last {to=i32} : ?\n"                                                           \
    "  %shape = Shape %attention_mask : ?\n"                                                       \
    "  %t64 = Gather %shape, %one : ?\n"                                                           \
    "  %total = Cast %t64 {to=i32} : ?\n"                                                          \
    "  %y, %k, %v = com.microsoft.GroupQueryAttention %x, %x, %x, %past_key_values.0.key, "        \
    "%past_key_values.0.value, %len, %total {num_heads=1, kv_num_heads=1" options "} : ?, ?, ?\n"  \
    "  %z = " product " : ?\n"                                                                     \
    "  return %z as \"logits\", %k as \"present.0.key\", %v as \"present.0.value\"\n}\n"
#define EIGHT(x) x "," x "," x "," x "," x "," x "," x "," x

const char *fuzz_program_text(int which) {
    static const char *const texts[FUZZ_PROGRAMS + 1] = {
        ATTENTION("  const %w: f32[8,3] = [" EIGHT("1,0.5,-1") "]\n", EMBED, "", "MatMul %y, %w"),
        ATTENTION("  const %w: u8[8,1,8] = [" EIGHT(
                      "17,34,0,255,1,2,3,4") "]\n"
                                             "  const %scale: f32[8] = [1,2,1,0.5,1,1,-1,1]\n",
                  EMBED, ", local_window_size=3",
                  "com.microsoft.MatMulNBits %y, %w, %scale {K=8, N=8, bits=4, block_size=16}"),
        "graph @m(%input_ids: i64[B,S], %past_state.0: f32[B,2,4,4]) {\n" EMBED
        "  %y, %s = LinearAttention %x, %x, %x, %past_state.0 {q_num_heads=2, kv_num_heads=2, "
        "update_rule=\"linear\"} : ?, ?\n"
        "  return %y as \"logits\", %s as \"present_state.0\"\n}\n",
        [FUZZ_SERVED] = ATTENTION("  const %zero: f32[] = 0\n"
                                  "  const %step: f32[] = 1\n"
                                  "  const %end: f32[] = 4096\n"
                                  "  const %rows: i64[2] = [512,8]\n"
                                  "  const %columns: i64[2] = [8,512]\n",
                                  "  %n = Range %zero, %end, %step : ?\n"
                                  "  %sines = Sin %n : ?\n"
                                  "  %emb = Reshape %sines, %rows : ?\n"
                                  "  %w = Reshape %sines, %columns : ?\n" GATHER,
                                  "", "MatMul %y, %w")};
    return texts[which];
}

const gqac_program *fuzz_program(int which) {
    static gqac_program *programs[FUZZ_PROGRAMS + 1];
    const char *text = fuzz_program_text(which);
    gqac_diag diag = {0};
    if (!programs[which] &&
        fuzz_open("m.gq", text, strlen(text), "cpu", false, &programs[which], &diag) != GQAC_OK) {
        fprintf(stderr, "%s: %s\n", diag.where, diag.what);
        fuzz_broken("a known model");
    }
    return programs[which];
}
