/* gqac test DIR ...: ONNX node-test folders (model.onnx, test_data_set_<n>/input_<i>.pb). */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/compare.h"

typedef struct totals {
    cli *c;
    int passed, failed, skipped;
    json_t *rows;
} totals;

enum { MOST_IO = 64 };

static bool exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void record(totals *t, const char *verdict, const char *name, const char *reason) {
    int *count = !strcmp(verdict, "PASS")   ? &t->passed
                 : !strcmp(verdict, "FAIL") ? &t->failed
                                            : &t->skipped;
    ++*count;
    if (cli_json(t->c))
        json_array_append_new(t->rows,
                              json_pack("{s:o, s:s, s:o}", "name", cli_text_json(name), "verdict",
                                        verdict, "reason", cli_text_json(reason)));
    else
        printf("%s %s%s%s\n", verdict, cli_shown(name).s, *reason ? " " : "", cli_shown(reason).s);
}

/* ---- one data set -------------------------------------------------------- */

typedef struct data_set {
    int n_in, n_out;
    gqac_tensor in[MOST_IO], out[MOST_IO];
} data_set;

static gqac_status read_side(cli *c, const char *dir, const char *side, gqac_tensor *list, int *n) {
    for (*n = 0; *n < MOST_IO; ++*n) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s_%d.pb", dir, side, *n);
        if (!exists(path))
            break;
        GQAC_TRY(gqac_pb_read(path, &list[*n], NULL, 0, &c->diag));
    }
    return GQAC_OK;
}

static void free_set(data_set *d) {
    for (int i = 0; i < MOST_IO; i++) {
        gqac_tensor_free(&d->in[i]);
        gqac_tensor_free(&d->out[i]);
    }
}

/* True if the type that gqac_run_shapes returned before the run fits the result. What it did not
 * know fits. */
static bool fits(const gqac_tensor *shape, const gqac_tensor *result) {
    bool same = (shape->dtype == GQAC_NONE || shape->dtype == result->dtype) &&
                (shape->rank < 0 || shape->rank == result->rank);
    for (int i = 0; same && i < shape->rank; i++)
        same = shape->dims[i] < 0 || shape->dims[i] == result->dims[i];
    return same;
}

/* Runs one data set; `reason` says why it failed, empty when it passed. UNSUPPORTED where that
 * shows only in the data. */
static gqac_status run_set(cli *c, const gqac_program *program, gqac_context *context,
                           const data_set *d, char *reason, size_t size) {
    const gqac_io *in, *out;
    const char *names[MOST_IO];
    gqac_tensor shapes[MOST_IO], results[MOST_IO];
    const int n_in = gqac_program_inputs(program, &in);
    const int n_out = gqac_program_outputs(program, &out);
    if (d->n_in > n_in || d->n_out > n_out || n_in > MOST_IO || n_out > MOST_IO) {
        snprintf(reason, size, "the data set has %d inputs and %d outputs, the model %d and %d",
                 d->n_in, d->n_out, n_in, n_out);
        return GQAC_OK;
    }
    for (int i = 0; i < d->n_in; i++)
        names[i] = in[i].name;
    gqac_status status =
        gqac_run_shapes(context, d->n_in, names, d->in, n_out, NULL, shapes, &c->diag);
    if (status == GQAC_OK)
        status = gqac_run(context, d->n_in, names, d->in, n_out, NULL, results, &c->diag);
    if (status != GQAC_OK) {
        snprintf(reason, size, "%s", c->diag.what);
        return status;
    }
    for (int i = 0; i < d->n_out; i++) {
        const compare_count found = compare_elements(&results[i], &d->out[i], NULL);
        if (!fits(&shapes[i], &results[i])) {
            snprintf(reason, size, "output '%s': gqac_run_shapes has another type", out[i].name);
            break;
        }
        if (found.differing && found.first < 0)
            snprintf(reason, size, "output '%s' is %s%s, expected %s%s", out[i].name,
                     gqac_dtype_name(results[i].dtype),
                     cli_bracketed(results[i].rank, results[i].dims).s,
                     gqac_dtype_name(d->out[i].dtype),
                     cli_bracketed(d->out[i].rank, d->out[i].dims).s);
        else if (found.differing)
            snprintf(reason, size, "output '%s': %lld elements differ, first %lld: %.9g not %.9g",
                     out[i].name, (long long)found.differing, (long long)found.first,
                     gqac_tensor_get(&results[i], found.first),
                     gqac_tensor_get(&d->out[i], found.first));
        if (found.differing)
            break;
    }
    return GQAC_OK;
}

/* ---- one folder ---------------------------------------------------------- */

static const char *run_sets(totals *t, const char *dir, const gqac_program *program,
                            gqac_context *context, char *reason, size_t size) {
    int sets = 0;
    for (;; sets++) {
        char path[4096];
        data_set d = {0};
        snprintf(path, sizeof path, "%s/test_data_set_%d", dir, sets);
        if (!exists(path))
            break;
        gqac_status status = read_side(t->c, path, "input", d.in, &d.n_in);
        if (status == GQAC_OK)
            status = read_side(t->c, path, "output", d.out, &d.n_out);
        if (status != GQAC_OK)
            snprintf(reason, size, "%s: %s", base_name(path), t->c->diag.what);
        else if (!d.n_out)
            snprintf(reason, size, "%s has no outputs", base_name(path));
        else
            status = run_set(t->c, program, context, &d, reason, size);
        free_set(&d);
        if (status == GQAC_UNSUPPORTED)
            return "SKIP";
        if (*reason)
            return "FAIL";
    }
    if (sets)
        return "PASS";
    snprintf(reason, size, "no test_data_set_0");
    return "SKIP";
}

static void run_folder(totals *t, const char *dir, const gqac_options *options, int threads) {
    char model[4096], reason[1024] = "";
    const char *verdict = "FAIL";
    gqac_program *program = NULL;
    gqac_context *context = NULL;
    snprintf(model, sizeof model, "%s/model.onnx", dir);
    gqac_status status = gqac_program_open(model, options, &program, &t->c->diag);
    if (status == GQAC_OK)
        status = gqac_context_create(program, threads, &context, &t->c->diag);
    if (status == GQAC_OK) {
        verdict = run_sets(t, dir, program, context, reason, sizeof reason);
    } else {
        verdict = status == GQAC_UNSUPPORTED ? "SKIP" : "FAIL";
        snprintf(reason, sizeof reason, "%s", t->c->diag.what);
    }
    record(t, verdict, base_name(dir), reason);
    gqac_context_free(context);
    gqac_program_free(program);
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* A folder without model.onnx is searched one level down. */
static gqac_status run_operand(totals *t, const char *dir, const gqac_options *options,
                               int threads) {
    char clean[4096], model[4200];
    snprintf(clean, sizeof clean, "%s", dir);
    for (size_t n = strlen(clean); n > 1 && clean[n - 1] == '/'; n--)
        clean[n - 1] = 0;
    snprintf(model, sizeof model, "%s/model.onnx", clean);
    if (exists(model)) {
        run_folder(t, clean, options, threads);
        return GQAC_OK;
    }
    struct dirent **list = NULL;
    const int n = scandir(clean, &list, NULL, by_name);
    if (n < 0)
        return cli_fail(t->c, GQAC_IO, "cannot read folder '%s': %s", clean, strerror(errno));
    for (int i = 0; i < n; i++) {
        char inner[4096];
        if (list[i]->d_name[0] != '.' &&
            (size_t)snprintf(inner, sizeof inner, "%s/%s", clean, list[i]->d_name) < sizeof inner) {
            snprintf(model, sizeof model, "%.4095s/model.onnx", inner);
            if (exists(model))
                run_folder(t, inner, options, threads);
        }
        free(list[i]);
    }
    free(list);
    return GQAC_OK;
}

static gqac_status run_all(totals *t) {
    gqac_options options;
    int threads = 1;
    GQAC_TRY(cli_options(t->c, &options));
    GQAC_TRY(cli_threads(t->c, &threads));
    options.stateless = true;
    for (int i = 0; i < t->c->n_operands; i++)
        GQAC_TRY(run_operand(t, t->c->operands[i], &options, threads));
    return GQAC_OK;
}

static int run(cli *c) {
    totals t = {.c = c, .rows = json_array()};
    const gqac_status status = run_all(&t);
    if (status != GQAC_OK) {
        json_decref(t.rows);
        return cli_finish(c, status);
    }
    if (cli_json(c))
        cli_print_json(json_pack("{s:o, s:i, s:i, s:i}", "tests", t.rows, "passed", t.passed,
                                 "failed", t.failed, "skipped", t.skipped));
    else {
        json_decref(t.rows);
        printf("%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped);
    }
    if (t.failed)
        return 1;
    return t.passed ? 0 : gqac_status_exit_code(GQAC_ABSENT);
}

extern const gqac_cli_verb gqac_cli_verb_test;
const gqac_cli_verb gqac_cli_verb_test = {.name = "test",
                                          .operands = "DIR ...",
                                          .least = 1,
                                          .most = -1,
                                          .summary = "runs folders of ONNX node tests",
                                          .examples = "gqac test node/test_relu\n"
                                                      "gqac test node --format json\n",
                                          .run = run};
