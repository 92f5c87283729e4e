/* gqac as one of the benchmark's engines: keeps a model open and times it on command, so that runs
 * of different engines can alternate without start-up times. Uses only the public API.
 *
 *   worker_gqac kind=run|rows|sequence model=FILE threads=N [target= device= math=]
 *     run:      input=NAME:FILE.npy ...                        one call of the graph as exported
 *     sequence: past=P tokens=S calls=C vocab=V rotate=R [batch=B] [chunk=S1] [logits=K]
 *               [kv=KIND] [row=NAME:FILE.npy ...]
 *               C calls of S tokens after P cached ones, of B sequences together; S1 of the first
 *               of them. K rows of logits for each; by default all. Sample i uses the sequences of
 *               group i mod R. The rows of the past come from the files, or from a prompt of P
 *               tokens, and each sequence has a copy of its own.
 *     parts:    the same, but the first sequence in one call and the others in another
 *     rows:     past=P tokens=S vocab=V rotate=R row=NAME:FILE.npy ...
 *               the same call of the graph as exported, on tensors: pasts of P + S rows, which
 *               share memory with the presents; files in the order of the presents
 *
 * Prints "ready {json}" or "failed TEXT", then answers each line of stdin: "run N" with "times" and
 * N times of one call in ms, "output FILE" by writing the last logits or y as fp32 and "done". */
#define _GNU_SOURCE
#include <gqac/gqac.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "worker.h"

enum { MOST_INPUTS = 16, MOST_ROTATE = 64, MOST_SEQUENCES = 64 };

typedef struct worker {
    const char *model, *target, *math, *kind, *kv;
    long threads, past, tokens, calls, vocab, rotate, batch, chunk, logits, device;
    int n_files;
    char *names[MOST_INPUTS];
    gqac_tensor tensors[MOST_INPUTS];
    gqac_program *program;
    gqac_context *context;
    gqac_sequence *sequences[MOST_SEQUENCES]; /* one group after another */
    gqac_tensor *pasts[MOST_ROTATE];          /* of rows: one for each file */
    gqac_tensor mask;
    int64_t *ids;                   /* token t of sequence i of a group is ids[t + i] */
    gqac_step_item *items;          /* of one call */
    int64_t counts[MOST_SEQUENCES]; /* in one call, for each sequence of a group */
    long sample;                    /* next index of the rotation */
    gqac_tensor output;             /* of a run; the output of steps is in the context, */
    float *kept;                    /* except that of the first part */
    int64_t n_kept;
    gqac_diag diag;
} worker;

/* The number of bytes of n elements. */
static size_t bytes_of(const gqac_tensor *tensor, int64_t n) {
    return (size_t)n * (size_t)gqac_dtype_bits(tensor->dtype) / 8;
}

/* ---- arguments ----------------------------------------------------------- */

static bool take_file(worker *w, char *value) {
    char *colon = strchr(value, ':');
    if (!colon || w->n_files == MOST_INPUTS)
        return false;
    *colon = '\0';
    w->names[w->n_files] = value;
    return gqac_npy_read(colon + 1, GQAC_NONE, &w->tensors[w->n_files++], &w->diag) == GQAC_OK;
}

static bool take(worker *w, char *word) {
    const struct {
        const char *key;
        const char **text;
        long *number;
    } known[] = {
        {"model", &w->model, NULL}, {"target", &w->target, NULL}, {"math", &w->math, NULL},
        {"kind", &w->kind, NULL},   {"kv", &w->kv, NULL},         {"threads", NULL, &w->threads},
        {"past", NULL, &w->past},   {"tokens", NULL, &w->tokens}, {"calls", NULL, &w->calls},
        {"vocab", NULL, &w->vocab}, {"rotate", NULL, &w->rotate}, {"batch", NULL, &w->batch},
        {"chunk", NULL, &w->chunk}, {"logits", NULL, &w->logits}, {"device", NULL, &w->device}};
    char *value = strchr(word, '=');
    if (!value)
        return false;
    *value++ = '\0';
    if (!strcmp(word, "input") || !strcmp(word, "row"))
        return take_file(w, value);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(word, known[i].key))
            continue;
        if (known[i].text)
            *known[i].text = value;
        else
            *known[i].number = strtol(value, NULL, 10);
        return true;
    }
    return false;
}

/* ---- sequences ----------------------------------------------------------- */

/* Appends counts[i] tokens to the sequences first .. first + n - 1 of a group, in one call. */
static gqac_status append(worker *w, gqac_sequence **group, long first, long n,
                          const int64_t *counts) {
    for (long i = first; i < first + n; i++)
        w->items[i] = (gqac_step_item){.size = sizeof *w->items,
                                       .sequence = group[i],
                                       .tokens = w->ids + gqac_sequence_length(group[i]) + i,
                                       .count = counts[i],
                                       .n_logits = w->logits};
    return gqac_step(w->context, (int)n, w->items + first, &w->diag);
}

static gqac_status open_ids(worker *w) {
    const long first = w->chunk ? w->chunk : w->tokens;
    const long most = first > w->tokens ? first : w->tokens;
    const long length = w->past + w->calls * most + w->batch;
    w->ids = calloc((size_t)length, sizeof *w->ids);
    w->items = calloc((size_t)w->batch, sizeof *w->items);
    for (long i = 0; w->ids && i < length; i++)
        w->ids[i] = (i * 7919 + 13) % w->vocab;
    for (long i = 0; i < w->batch; i++)
        w->counts[i] = i == 0 ? first : w->tokens;
    return w->ids && w->items ? GQAC_OK : GQAC_NO_MEMORY;
}

static gqac_status import_rows(worker *w, gqac_sequence *s) {
    return gqac_sequence_import(s, w->n_files, (const char *const *)w->names, w->tensors, &w->diag);
}

/* The rows of a past as named tensors, as if they were read from files. */
static gqac_status read_rows(worker *w, const gqac_sequence *s, int n, const gqac_kv_pair *pairs,
                             const char **names, gqac_tensor *rows) {
    gqac_status status = GQAC_OK;
    for (int i = 0; status == GQAC_OK && i < n; i++) {
        const int64_t length = gqac_kv_pair_rows(&pairs[i], w->past);
        names[i] = pairs[i].past;
        rows[i] = (gqac_tensor){.dtype = pairs[i].dtype,
                                .rank = 4,
                                .dims = {1, pairs[i].heads, length, pairs[i].head_size}};
        status = gqac_tensor_alloc(&rows[i], &w->diag);
        if (status == GQAC_OK)
            status =
                gqac_sequence_export(s, names[i], rows[i].data,
                                     bytes_of(&rows[i], gqac_tensor_count(&rows[i])), &w->diag);
    }
    return status;
}

/* Fills the other sequences of a group with copies, because forks would share the rows. */
static gqac_status copy_past(worker *w, gqac_sequence **group) {
    const gqac_kv_pair *pairs = NULL;
    const int n = gqac_program_kv_pairs(w->program, &pairs);
    const char **names = calloc((size_t)n + 1, sizeof *names);
    gqac_tensor *rows = calloc((size_t)n + 1, sizeof *rows);
    gqac_status status =
        names && rows ? read_rows(w, group[0], n, pairs, names, rows) : GQAC_NO_MEMORY;
    for (long i = 1; status == GQAC_OK && i < w->batch; i++)
        status = gqac_sequence_import(group[i], n, names, rows, &w->diag);
    for (int i = 0; rows && i < n; i++)
        gqac_tensor_free(&rows[i]);
    free(rows);
    free((void *)names);
    return status;
}

static gqac_status open_group(worker *w, gqac_sequence **group) {
    const int64_t past = w->past;
    gqac_status status = GQAC_OK;
    for (long i = 0; status == GQAC_OK && i < w->batch; i++) {
        const gqac_sequence_options options = {
            .size = sizeof options, .kv = w->kv, .final_length = past + w->calls * w->counts[i]};
        status = gqac_sequence_create(w->program, &options, &group[i], &w->diag);
        if (status == GQAC_OK && past && w->n_files)
            status = import_rows(w, group[i]);
    }
    if (status != GQAC_OK || !past || w->n_files)
        return status;
    status = append(w, group, 0, 1, &past);
    return status == GQAC_OK && w->batch > 1 ? copy_past(w, group) : status;
}

static gqac_status open_sequences(worker *w) {
    gqac_status status = open_ids(w);
    for (long r = 0; status == GQAC_OK && r < w->rotate; r++)
        status = open_group(w, w->sequences + r * w->batch);
    for (int i = 0; i < w->n_files; i++)
        gqac_tensor_free(&w->tensors[i]);
    return status;
}

/* The next group of the rotation, rewound to its past. */
static gqac_status next_group(worker *w, gqac_sequence ***group) {
    *group = w->sequences + w->sample++ % w->rotate * w->batch;
    gqac_status status = GQAC_OK;
    for (long i = 0; status == GQAC_OK && i < w->batch; i++)
        status = gqac_sequence_rewind((*group)[i], w->past, &w->diag);
    return status;
}

static gqac_status run_sequence(worker *w, double *ms) {
    gqac_sequence **group = NULL;
    gqac_status status = next_group(w, &group);
    const double began = now_ms();
    for (long c = 0; status == GQAC_OK && c < w->calls; c++)
        status = append(w, group, 0, w->batch, w->counts);
    *ms = (now_ms() - began) / (double)w->calls;
    return status;
}

static gqac_status keep_logits(worker *w) {
    int64_t rows = 0, vocabulary = 0;
    const float *logits = gqac_context_logits(w->context, 0, &rows, &vocabulary);
    const size_t n = (size_t)(rows * vocabulary);
    free(w->kept);
    w->kept = malloc(n * sizeof *w->kept + 1);
    if (!w->kept || !logits)
        return GQAC_NO_MEMORY;
    memcpy(w->kept, logits, n * sizeof *w->kept);
    w->n_kept = (int64_t)n;
    return GQAC_OK;
}

static gqac_status run_parts(worker *w, double *ms) {
    gqac_sequence **group = NULL;
    gqac_status status = next_group(w, &group);
    double began = now_ms();
    if (status == GQAC_OK)
        status = append(w, group, 0, 1, w->counts);
    *ms = now_ms() - began;
    if (status == GQAC_OK)
        status = keep_logits(w);
    began = now_ms();
    if (status == GQAC_OK)
        status = append(w, group, 1, w->batch - 1, w->counts);
    *ms += now_ms() - began;
    return status;
}

/* ---- graphs as exported -------------------------------------------------- */

static bool is_present(const gqac_io *io) {
    return !strncmp(io->name, "present.", strlen("present."));
}

static gqac_status time_run(worker *w, int n, const char *const *names, const gqac_tensor *inputs,
                            double *ms) {
    enum { MOST_OUTPUTS = 8 };
    gqac_tensor outputs[MOST_OUTPUTS];
    const gqac_io *io = NULL;
    const int n_outputs = gqac_program_outputs(w->program, &io);
    if (n_outputs > MOST_OUTPUTS)
        return GQAC_LIMIT;
    const double began = now_ms();
    gqac_status status = gqac_run(w->context, n, names, inputs, n_outputs, NULL, outputs, &w->diag);
    *ms = now_ms() - began;
    for (int i = n_outputs - 1; status == GQAC_OK && i >= 0; i--)
        if (!is_present(&io[i]))
            w->output = outputs[i];
    return status;
}

static gqac_status run_graph(worker *w, double *ms) {
    return time_run(w, w->n_files, (const char *const *)w->names, w->tensors, ms);
}

/* A past [1,Hkv,P+S,D] with the P rows of a file. */
static gqac_status make_past(const worker *w, const gqac_tensor *file, gqac_tensor *past) {
    *past = *file;
    past->dims[2] = w->past + w->tokens;
    const size_t head = bytes_of(file, file->dims[2] * file->dims[3]);
    const size_t bytes = bytes_of(past, past->dims[2] * past->dims[3]);
    unsigned char *memory = calloc((size_t)file->dims[1], bytes);
    for (int64_t h = 0; memory && h < file->dims[1]; h++)
        memcpy(memory + (size_t)h * bytes, (const unsigned char *)file->data + (size_t)h * head,
               head);
    past->data = memory;
    return memory ? GQAC_OK : GQAC_NO_MEMORY;
}

static gqac_status open_rows(worker *w) {
    const int64_t length = w->past + w->tokens;
    gqac_status status = open_ids(w);
    int64_t *ones = calloc((size_t)length, sizeof *ones);
    for (int64_t i = 0; ones && i < length; i++)
        ones[i] = 1;
    w->mask = (gqac_tensor){.dtype = GQAC_I64, .rank = 2, .dims = {1, length}, .data = ones};
    status = ones ? status : GQAC_NO_MEMORY;
    for (long r = 0; status == GQAC_OK && r < w->rotate; r++) {
        w->pasts[r] = calloc((size_t)w->n_files + 1, sizeof *w->pasts[r]);
        status = w->pasts[r] ? GQAC_OK : GQAC_NO_MEMORY;
        for (int i = 0; status == GQAC_OK && i < w->n_files; i++)
            status = make_past(w, &w->tensors[i], &w->pasts[r][i]);
    }
    return status;
}

static gqac_status run_rows(worker *w, double *ms) {
    const gqac_tensor *pasts = w->pasts[w->sample++ % w->rotate];
    const char *names[MOST_INPUTS + 2] = {"input_ids", "attention_mask"};
    gqac_tensor inputs[MOST_INPUTS + 2] = {
        {.dtype = GQAC_I64, .rank = 2, .dims = {1, w->tokens}, .data = w->ids + w->past}, w->mask};
    const gqac_io *io = NULL;
    gqac_status status = GQAC_OK;
    const int n_outputs = gqac_program_outputs(w->program, &io);
    for (int i = 0, at = 0; status == GQAC_OK && at < n_outputs && i < w->n_files; at++) {
        if (!is_present(&io[at]))
            continue;
        names[2 + i] = w->names[i];
        inputs[2 + i] = pasts[i];
        const size_t bytes = bytes_of(&pasts[i], gqac_tensor_count(&pasts[i]));
        status =
            gqac_context_bind_output(w->context, io[at].name, pasts[i++].data, bytes, &w->diag);
    }
    return status == GQAC_OK ? time_run(w, 2 + w->n_files, names, inputs, ms) : status;
}

/* ---- commands ------------------------------------------------------------ */

typedef gqac_status run_function(worker *w, double *ms);

static const struct kind {
    const char *name;
    bool stateless;
    gqac_status (*open)(worker *w); /* may be NULL */
    run_function *run;
} kinds[] = {{"run", true, NULL, run_graph},
             {"rows", true, open_rows, run_rows},
             {"sequence", false, open_sequences, run_sequence},
             {"parts", false, open_sequences, run_parts}};

static const struct kind *kind_of(const worker *w) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(w->kind, kinds[i].name))
            return &kinds[i];
    return NULL;
}

static void write_floats(FILE *f, const float *values, int64_t n) {
    fwrite(values, sizeof *values, (size_t)n, f);
}

static bool write_output(const worker *w, const char *path) {
    FILE *f = fopen(path, "wb");
    if (!f)
        return false;
    for (int64_t i = 0; w->output.data && i < gqac_tensor_count(&w->output); i++)
        write_floats(f, &(float){(float)gqac_tensor_get(&w->output, i)}, 1);
    if (w->kept)
        write_floats(f, w->kept, w->n_kept);
    int64_t rows = 0, vocabulary = 0;
    const float *logits;
    for (int i = 0; (logits = gqac_context_logits(w->context, i, &rows, &vocabulary)); i++)
        write_floats(f, logits, rows * vocabulary);
    const bool written = !ferror(f);
    return !fclose(f) && written;
}

static int serve(worker *w, run_function *run) {
    char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (!strncmp(line, "output ", 7)) {
            puts(write_output(w, line + 7) ? "done" : "failed: cannot write");
        } else if (!strncmp(line, "run ", 4)) {
            const long n = strtol(line + 4, NULL, 10);
            double *ms = calloc((size_t)n + 1, sizeof *ms);
            for (long i = 0; ms && i < n; i++)
                if (run(w, &ms[i]) != GQAC_OK)
                    return failed_with(&w->diag);
            printf("times");
            for (long i = 0; ms && i < n; i++)
                printf(" %.6f", ms[i]);
            puts("");
            free(ms);
        }
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv) {
    static worker w = {.target = "cpu",
                       .math = "model",
                       .kind = "run",
                       .threads = 1,
                       .tokens = 1,
                       .calls = 1,
                       .vocab = 1,
                       .rotate = 1,
                       .batch = 1,
                       .logits = GQAC_LOGITS_ALL};
    for (int i = 1; i < argc; i++) {
        if (take(&w, argv[i]))
            continue;
        printf("failed argument '%s': %s\n", argv[i], w.diag.what);
        return 2;
    }
    const struct kind *kind = kind_of(&w);
    if (!kind || w.tokens < 1 || w.calls < 1 || w.vocab < 1 || w.rotate < 1 ||
        w.rotate > MOST_ROTATE || w.batch < 1 || w.rotate * w.batch > MOST_SEQUENCES ||
        (w.batch < 2 && kind->run == run_parts))
        return 2;
    gqac_options options;
    gqac_options_init(&options);
    options.target = w.target;
    options.math = w.math;
    options.device = (int)w.device;
    options.stateless = kind->stateless;
    const double began = now_ms();
    if (gqac_program_open(w.model, &options, &w.program, &w.diag) != GQAC_OK ||
        gqac_context_create(w.program, (int)w.threads, &w.context, &w.diag) != GQAC_OK)
        return failed_with(&w.diag);
    const double opened = now_ms() - began;
    if (kind->open && kind->open(&w) != GQAC_OK)
        return failed_with(&w.diag);
    const char *level = gqac_program_level(w.program);
    char profile[256];
    snprintf(profile, sizeof profile, "%s", gqac_program_profile(w.program));
    if (w.sequences[0])
        gqac_sequence_profile(w.sequences[0], profile, sizeof profile);
    printf(
        "ready {\"version\": \"%s\", \"open_ms\": %.3f, \"profile\": \"%s\", \"level\": \"%s\"}\n",
        gqac_version(), opened, profile, level ? level : "scalar");
    fflush(stdout);
    return serve(&w, kind->run);
}
