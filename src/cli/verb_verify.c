/* gqac verify MODEL: the target against the definition (ref, or another target), value by value; or
 * against stored outputs.
 *
 * Both programs compute the same tokens: a prompt in one call, then single tokens. During a step
 * every float value of the model's own graph is kept as the reference made it, and the target's
 * value of that name is compared with it when its node has run. Values that a target never makes,
 * because one kernel computes several nodes, cannot be compared. Cached rows are compared at the
 * end. A tensor diverges when max|difference| > tolerance * max|expected|; see
 * gqac_program_tolerance. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/compare.h"

static const cli_flag flags[] = {
    {"against", "ref|DIR",
     "compares with a target, or with a folder of .npy files: inputs in DIR/inputs and results in "
     "DIR/expect, or both in DIR itself; only valid rows of a present tensor are compared (ref)"},
    {"ids", "FILE", "token ids from a file instead of generated ones"},
    {NULL, NULL, NULL},
};

enum { MADE_TOKENS = 24, SINGLE_TOKENS = 4, ID_SEED = 2 };

typedef struct kept { /* a value of the reference */
    char *name;
    gqac_tensor tensor; /* owned */
    bool twice;         /* made more than once in a step (a loop): not compared */
} kept;

typedef struct finding { /* one compared value */
    char *value, *node, *op, *kernel;
    int step;
    gqac_comparison result;
} finding;

typedef struct verify {
    cli *c;
    gqac_program *program, *reference;
    gqac_context *context, *reference_context;
    gqac_sequence *sequence, *reference_sequence;
    double tolerance;
    kept *kept; /* sorted by name once the reference has run */
    size_t n_kept, kept_capacity;
    finding *findings; /* one for each value, in the order of the first step that has it */
    size_t n_findings, findings_capacity;
    finding first; /* the first that diverges */
    bool diverged, no_memory;
    int steps, step;
    long long compared, unmatched;
} verify;

/* Returns a list with capacity for one more element of `size` bytes: the list itself, or a larger
 * copy. NULL: out of memory. */
static void *grown(void *list, size_t n, size_t *capacity, size_t size) {
    if (n < *capacity)
        return list;
    const size_t larger = *capacity ? 2 * *capacity : 256;
    void *more = realloc(list, larger * size);
    if (more)
        *capacity = larger;
    return more;
}

/* ---- the reference ------------------------------------------------------- */

static void free_kept(verify *v) {
    for (size_t i = 0; i < v->n_kept; i++) {
        free(v->kept[i].name);
        free(v->kept[i].tensor.data);
    }
    v->n_kept = 0;
}

static void keep(void *arg, const gqac_observed *seen) {
    verify *v = arg;
    if (!seen->value || !gqac_dtype_is_float(seen->tensor->dtype) || v->no_memory)
        return;
    kept *list = grown(v->kept, v->n_kept, &v->kept_capacity, sizeof *list);
    if (!list) {
        v->no_memory = true;
        return;
    }
    v->kept = list;
    const size_t bytes = gqac_tensor_bytes(seen->tensor);
    kept k = {.name = strdup(seen->value), .tensor = *seen->tensor};
    k.tensor.data = malloc(bytes + 1);
    if (!k.name || !k.tensor.data) {
        free(k.name);
        free(k.tensor.data);
        v->no_memory = true;
        return;
    }
    if (bytes)
        memcpy(k.tensor.data, seen->tensor->data, bytes);
    v->kept[v->n_kept++] = k;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const kept *)a)->name, ((const kept *)b)->name);
}

static void sort_kept(verify *v) {
    if (v->n_kept)
        qsort(v->kept, v->n_kept, sizeof *v->kept, by_name);
    for (size_t i = 1; i < v->n_kept; i++)
        if (!strcmp(v->kept[i - 1].name, v->kept[i].name))
            v->kept[i - 1].twice = v->kept[i].twice = true;
}

/* ---- comparing ----------------------------------------------------------- */

static void free_finding(finding *f) {
    free(f->value);
    free(f->node);
    free(f->op);
    free(f->kernel);
}

static finding *add_finding(verify *v, const gqac_observed *seen) {
    finding *list = grown(v->findings, v->n_findings, &v->findings_capacity, sizeof *list);
    if (!list)
        return NULL;
    v->findings = list;
    finding f = {.result = {.relative = -1},
                 .value = strdup(seen->value),
                 .node = strdup(seen->node),
                 .op = strdup(seen->op),
                 .kernel = strdup(seen->kernel)};
    if (!f.value || !f.node || !f.op || !f.kernel) {
        free_finding(&f);
        return NULL;
    }
    v->findings[v->n_findings] = f;
    return &v->findings[v->n_findings++];
}

/* One finding for each value: that of the step with the largest difference. */
static finding *find(verify *v, const gqac_observed *seen) {
    for (size_t i = 0; i < v->n_findings; i++)
        if (!strcmp(v->findings[i].value, seen->value))
            return &v->findings[i];
    return add_finding(v, seen);
}

static void note(verify *v, const gqac_observed *seen, const gqac_tensor *expected) {
    const gqac_comparison r = gqac_compare(seen->tensor, expected);
    finding *f = find(v, seen);
    if (!f) {
        v->no_memory = true;
        return;
    }
    v->compared++;
    if (f->result.relative < r.relative) {
        f->result = r;
        f->step = v->step;
    }
    if (!v->diverged && !(r.relative <= v->tolerance)) {
        v->diverged = true;
        v->first = *f;
        v->first.result = r;
        v->first.step = v->step;
        v->first.value = strdup(f->value);
        v->first.node = strdup(f->node);
        v->first.op = strdup(f->op);
        v->first.kernel = strdup(f->kernel);
        v->no_memory |= !v->first.value || !v->first.node || !v->first.op || !v->first.kernel;
    }
}

static void compare_seen(void *arg, const gqac_observed *seen) {
    verify *v = arg;
    if (!gqac_dtype_is_float(seen->tensor->dtype) || v->no_memory)
        return;
    const kept key = {.name = (char *)(uintptr_t)(seen->value ? seen->value : "")};
    const kept *k = v->n_kept ? bsearch(&key, v->kept, v->n_kept, sizeof *v->kept, by_name) : NULL;
    if (!k || k->twice)
        v->unmatched++;
    else
        note(v, seen, &k->tensor);
}

/* ---- steps --------------------------------------------------------------- */

static gqac_status run_step(verify *v, const int64_t *ids, int64_t n) {
    const int64_t rows = gqac_program_last_logits(v->program) ? 1 : GQAC_LOGITS_ALL;
    free_kept(v);
    GQAC_TRY(gqac_sequence_append(v->reference_context, v->reference_sequence, ids, n, rows,
                                  &v->c->diag));
    sort_kept(v);
    GQAC_TRY(gqac_sequence_append(v->context, v->sequence, ids, n, rows, &v->c->diag));
    if (v->no_memory)
        return cli_fail(v->c, GQAC_NO_MEMORY, "out of memory");
    return GQAC_OK;
}

static gqac_status compare_rows(verify *v, const gqac_kv_pair *pair) {
    gqac_tensor actual = {0}, expected = {0};
    const gqac_observed seen = {
        .value = pair->past, .node = "", .op = "cached rows", .kernel = "", .tensor = &actual};
    GQAC_TRY(gqac_sequence_past(v->sequence, pair, &actual, &v->c->diag));
    const gqac_status status =
        gqac_sequence_past(v->reference_sequence, pair, &expected, &v->c->diag);
    if (status == GQAC_OK)
        note(v, &seen, &expected);
    gqac_tensor_free(&actual);
    gqac_tensor_free(&expected);
    return status;
}

static gqac_status run_steps(verify *v, const int64_t *ids, int64_t n) {
    const gqac_sequence_options options = {.size = sizeof options, .final_length = n};
    const gqac_kv_pair *pairs = NULL;
    const int n_pairs = gqac_program_kv_pairs(v->program, &pairs);
    const int64_t prompt = n > SINGLE_TOKENS ? n - SINGLE_TOKENS : 1;
    GQAC_TRY(gqac_sequence_create(v->program, &options, &v->sequence, &v->c->diag));
    GQAC_TRY(gqac_sequence_create(v->reference, &options, &v->reference_sequence, &v->c->diag));
    gqac_context_observe(v->reference_context, keep, v);
    gqac_context_observe(v->context, compare_seen, v);
    for (int64_t at = 0; at < n; at += at ? 1 : prompt) {
        v->step = v->steps++;
        GQAC_TRY(run_step(v, ids + at, at ? 1 : prompt));
    }
    for (int i = 0; i < n_pairs; i++)
        GQAC_TRY(compare_rows(v, &pairs[i]));
    if (v->no_memory)
        return cli_fail(v->c, GQAC_NO_MEMORY, "out of memory");
    return GQAC_OK;
}

/* ---- two targets --------------------------------------------------------- */

static gqac_status open_both(verify *v, const char *against) {
    char path[4096];
    int threads = 1;
    gqac_options options;
    GQAC_TRY(cli_options(v->c, &options));
    GQAC_TRY(cli_threads(v->c, &threads));
    if (!strcmp(options.target, against))
        return cli_usage(v->c, "--target %s and --against %s are the same", options.target,
                         against);
    GQAC_TRY(cli_model(v->c, &options, path, sizeof path));
    GQAC_TRY(gqac_program_open(path, &options, &v->program, &v->c->diag));
    options.target = against;
    GQAC_TRY(gqac_program_open(path, &options, &v->reference, &v->c->diag));
    GQAC_TRY(gqac_context_create(v->program, threads, &v->context, &v->c->diag));
    GQAC_TRY(gqac_context_create(v->reference, threads, &v->reference_context, &v->c->diag));
    v->tolerance = gqac_program_tolerance(v->program);
    return GQAC_OK;
}

static gqac_status make_ids(verify *v, int64_t **ids, int64_t *n) {
    const char *file = cli_value(v->c, "ids");
    const int64_t vocabulary = gqac_program_vocabulary(v->program);
    if (file)
        return cli_read_ids(v->c, file, ids, n);
    *n = MADE_TOKENS;
    *ids = calloc(MADE_TOKENS, sizeof **ids);
    if (!*ids)
        return cli_fail(v->c, GQAC_NO_MEMORY, "out of memory");
    gqac_random_ids(ID_SEED, vocabulary, *n, *ids);
    return GQAC_OK;
}

static gqac_status verify_targets(verify *v, const char *against) {
    int64_t *ids = NULL, n = 0;
    GQAC_TRY(open_both(v, against));
    GQAC_TRY(make_ids(v, &ids, &n));
    gqac_status status = cli_check_vocabulary(v->c, v->program, ids, n);
    if (status == GQAC_OK)
        status = run_steps(v, ids, n);
    free(ids);
    return status;
}

/* ---- stored outputs ------------------------------------------------------ */

static void choose_folder(char *path, size_t size, const char *dir, const char *inner) {
    struct stat info;
    snprintf(path, size, "%s/%s", dir, inner);
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        snprintf(path, size, "%s", dir);
}

/* Only the valid rows count: what lies after them in a static cache differs between run times. */
static gqac_status compare_rows_of(verify *v, const gqac_io *out, const gqac_tensor *result,
                                   gqac_tensor *expected, const int64_t *valid) {
    gqac_tensor actual = *result;
    const bool alike =
        actual.rank == expected->rank &&
        !memcmp(actual.dims, expected->dims, sizeof *actual.dims * (size_t)actual.rank);
    GQAC_TRY(gqac_tensor_alloc(&actual, &v->c->diag));
    memcpy(actual.data, result->data, gqac_tensor_bytes(result));
    if (alike) {
        compare_clear_rows(&actual, valid);
        compare_clear_rows(expected, valid);
    }
    note(v,
         &(gqac_observed){
             .value = out->name, .node = "", .op = "output", .kernel = "", .tensor = &actual},
         expected);
    gqac_tensor_free(&actual);
    return GQAC_OK;
}

static gqac_status compare_stored(verify *v, const char *dir, const gqac_io *out,
                                  const gqac_tensor *result, const int64_t *valid) {
    char folder[4096], path[4096];
    struct stat info;
    gqac_tensor expected = {0};
    choose_folder(folder, sizeof folder, dir, "expect");
    cli_tensor_path(path, sizeof path, folder, out->name);
    if (stat(path, &info) != 0) {
        if (errno != ENOENT)
            return cli_fail(v->c, GQAC_IO, "'%s': %s", path, strerror(errno));
        v->unmatched++;
        return GQAC_OK;
    }
    GQAC_TRY(gqac_npy_read(path, out->dtype, &expected, &v->c->diag));
    const gqac_status status = compare_rows_of(v, out, result, &expected, valid);
    gqac_tensor_free(&expected);
    return status;
}

static gqac_status run_stored(verify *v, const char *dir, const gqac_io *in, int n_in,
                              const gqac_io *out, int n_out, const char **names,
                              gqac_tensor *tensors) {
    char folder[4096], path[4096];
    gqac_tensor *results = tensors + n_in;
    int64_t batch = 0, *valid = NULL;
    choose_folder(folder, sizeof folder, dir, "inputs");
    for (int i = 0; i < n_in; i++) {
        names[i] = in[i].name;
        cli_tensor_path(path, sizeof path, folder, in[i].name);
        GQAC_TRY(gqac_npy_read(path, in[i].dtype, &tensors[i], &v->c->diag));
    }
    GQAC_TRY(gqac_run(v->context, n_in, names, tensors, n_out, NULL, results, &v->c->diag));
    v->steps = 1;
    gqac_status status =
        compare_valid_rows(v->c, v->context, n_in, names, tensors, n_out, results, &batch, &valid);
    for (int i = 0; status == GQAC_OK && i < n_out; i++)
        status = compare_stored(v, dir, &out[i], &results[i], valid + i * batch);
    free(valid);
    if (status == GQAC_OK && !v->compared)
        return cli_fail(v->c, GQAC_IO, "'%s' contains no .npy file of any output", dir);
    return status;
}

static gqac_status verify_folder(verify *v, const char *dir) {
    const gqac_io *in = NULL, *out = NULL;
    if (cli_value(v->c, "ids"))
        return cli_usage(v->c, "--ids and --against DIR cannot be combined");
    GQAC_TRY(cli_open_stateless(v->c, &v->program, &v->context));
    v->tolerance = gqac_program_tolerance(v->program);
    const int n_in = gqac_program_inputs(v->program, &in);
    const int n_out = gqac_program_outputs(v->program, &out);
    const char **names = calloc((size_t)n_in + 1, sizeof *names);
    gqac_tensor *tensors = calloc((size_t)n_in + (size_t)n_out + 1, sizeof *tensors);
    const gqac_status status = names && tensors
                                   ? run_stored(v, dir, in, n_in, out, n_out, names, tensors)
                                   : cli_fail(v->c, GQAC_NO_MEMORY, "out of memory");
    for (int i = 0; tensors && i < n_in; i++)
        gqac_tensor_free(&tensors[i]);
    free((void *)names);
    free(tensors);
    return status;
}

/* ---- report -------------------------------------------------------------- */

static json_t *finding_json(const finding *f) {
    return json_pack(
        "{s:o, s:s, s:s, s:o, s:i, s:o, s:I, s:o, s:o}", "node", cli_text_json(f->node), "op",
        f->op, "kernel", f->kernel, "value", cli_text_json(f->value), "step", f->step, "error",
        cli_real_json(f->result.relative), "index", (json_int_t)f->result.index, "actual",
        cli_real_json(f->result.actual), "expected", cli_real_json(f->result.expected));
}

static const finding *worst(const verify *v) {
    const finding *w = NULL;
    for (size_t i = 0; i < v->n_findings; i++)
        if (!w || !(v->findings[i].result.relative <= w->result.relative))
            w = &v->findings[i];
    return w;
}

static void print_json(const verify *v, const char *against) {
    json_t *root = json_pack("{s:b, s:s, s:i, s:I, s:I, s:f}", "equal", !v->diverged, "against",
                             against, "steps", v->steps, "compared", (json_int_t)v->compared,
                             "unmatched", (json_int_t)v->unmatched, "tolerance", v->tolerance);
    if (worst(v))
        json_object_set_new(root, "worst", finding_json(worst(v)));
    if (v->diverged)
        json_object_set_new(root, "first", finding_json(&v->first));
    if (cli_switch(v->c, "verbose")) {
        json_t *all = json_array();
        for (size_t i = 0; i < v->n_findings; i++)
            json_array_append_new(all, finding_json(&v->findings[i]));
        json_object_set_new(root, "values", all);
    }
    cli_print_json(root);
}

static void print_finding(const finding *f) {
    printf("step %d, node '%s' (%s%s%s), value '%s': relative error %.3g", f->step,
           cli_shown(f->node).s, cli_shown(f->op).s, *f->kernel ? ", " : "", f->kernel,
           cli_shown(f->value).s, f->result.relative);
    if (f->result.index < 0)
        printf(", another shape or type\n");
    else
        printf(", element %lld is %.9g, expected %.9g\n", (long long)f->result.index,
               f->result.actual, f->result.expected);
}

static void print_table(const verify *v, const char *against) {
    if (cli_switch(v->c, "verbose"))
        printf("%-10s %4s  %-24s %-24s %s\n", "error", "step", "op", "kernel", "value");
    for (size_t i = 0; cli_switch(v->c, "verbose") && i < v->n_findings; i++) {
        const finding *f = &v->findings[i];
        printf("%-10.3g %4d  %-24s %-24s %s\n", f->result.relative, f->step, cli_shown(f->op).s,
               f->kernel, cli_shown(f->value).s);
    }
    if (v->diverged) {
        printf("first divergence: ");
        print_finding(&v->first);
    } else if (worst(v) && worst(v)->result.relative > 0) {
        printf("largest difference: ");
        print_finding(worst(v));
    }
    printf("%s: %lld tensors of %d steps against %s, relative errors up to %.3g (allowed %.3g), "
           "%lld tensors without a counterpart\n",
           v->diverged ? "different" : "equal", v->compared, v->steps, against,
           worst(v) ? worst(v)->result.relative : 0, v->tolerance, v->unmatched);
}

static gqac_status check_no_artefact(cli *c) {
    char path[4096];
    gqac_attachment *files = NULL;
    int n = 0;
    GQAC_TRY(cli_model(c, NULL, path, sizeof path));
    gqac_status status = gqac_artefact_attachments(path, &files, &n, &c->diag);
    gqac_release(files);
    if (status == GQAC_USAGE)
        return GQAC_OK;
    if (status == GQAC_OK) {
        status =
            cli_usage(c, "'%s' is an artefact: it contains the weights of only one target", path);
        cli_hint(c, "verify the model it was compiled from");
    }
    return status;
}

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* A word with a slash can only mean a folder. */
static gqac_status check_against(cli *c, const char *against) {
    if (!against || is_folder(against) || !strchr(against, '/'))
        return GQAC_OK;
    gqac_status status = cli_fail(c, GQAC_IO, "--against '%s': there is no such folder", against);
    cli_rule(c, "--against is a target, or a folder of .npy files with inputs/ and expect/");
    return status;
}

static gqac_status verify_model(verify *v) {
    const char *given = cli_value(v->c, "against"), *against = given ? given : "ref";
    GQAC_TRY(check_against(v->c, given));
    GQAC_TRY(check_no_artefact(v->c));
    GQAC_TRY(given && is_folder(given) ? verify_folder(v, given) : verify_targets(v, against));
    if (cli_json(v->c))
        print_json(v, against);
    else
        print_table(v, against);
    return GQAC_OK;
}

static int run(cli *c) {
    verify v = {.c = c};
    const gqac_status status = verify_model(&v);
    free_kept(&v);
    free(v.kept);
    for (size_t i = 0; i < v.n_findings; i++)
        free_finding(&v.findings[i]);
    free(v.findings);
    free_finding(&v.first);
    gqac_sequence_free(v.sequence);
    gqac_sequence_free(v.reference_sequence);
    gqac_context_free(v.context);
    gqac_context_free(v.reference_context);
    gqac_program_free(v.program);
    gqac_program_free(v.reference);
    return status == GQAC_OK && v.diverged ? 1 : cli_finish(c, status);
}

extern const gqac_cli_verb gqac_cli_verb_verify;
const gqac_cli_verb gqac_cli_verb_verify = {
    .name = "verify",
    .operands = "MODEL",
    .least = 1,
    .most = 1,
    .summary = "compares the target with ref or stored outputs; names the first node that differs",
    .examples = "gqac verify models/tiny-gqa\n"
                "gqac verify model.onnx --ids ids.txt --math bf16\n",
    .flags = flags,
    .run = run};
