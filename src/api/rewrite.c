/* Rewriting: runs the passes of a rewrite on a model file and writes ONNX.
 *
 * All results are made before the first is written. A rewrite that changed nothing writes the graph
 * of the file, not the tidied one. */
#include <stdio.h>
#include <string.h>

#include "api/load.h"
#include "base/alloc.h"
#include "base/float_mode.h"

bool gqac_rewrite_at(int index, const char **name, const char **summary) {
    for (int i = 0; i <= index; i++)
        if (!gqac_rewrites[i])
            return false;
    *name = gqac_rewrites[index]->name;
    *summary = gqac_rewrites[index]->summary;
    return true;
}

/* The result in one piece of memory. */
typedef struct rewritten {
    gqac_rewritten shown;
    const char *files[PASS_MOST_FILES];
    char paths[PASS_MOST_FILES][4096];
} rewritten;

typedef struct job {
    const char *model;
    const gqac_options *options;
    gqac_diag *diag;
    gqac_poll poll;
    loaded made[PASS_MOST_FILES];
    rewritten *done;
} job;

static gqac_status find(const char *name, const pass_rewrite **rewrite, gqac_diag *diag) {
    gqac_str known = {0};
    for (int i = 0; gqac_rewrites[i]; i++) {
        *rewrite = gqac_rewrites[i];
        if (!strcmp((*rewrite)->name, name))
            return GQAC_OK;
    }
    for (int i = 0; gqac_rewrites[i]; i++)
        gqac_str_printf(&known, "%s%s", i ? ", " : "", gqac_rewrites[i]->name);
    gqac_diag_set(diag, GQAC_USAGE, "there is no rewrite '%s'", name);
    if (!known.failed)
        gqac_diag_rule(diag, "rewrites: %s", known.text);
    gqac_str_free(&known);
    return GQAC_USAGE;
}

/* ---- paths --------------------------------------------------------------- */

static gqac_status name_file(char *out, size_t size, const char *path, const char *part,
                             gqac_diag *diag) {
    static const char end[] = ".onnx";
    size_t n = strlen(path);
    if (part && n >= sizeof end - 1 && !strcmp(path + n - (sizeof end - 1), end))
        n -= sizeof end - 1;
    const int length = part ? snprintf(out, size, "%.*s.%s%s", (int)n, path, part, end)
                            : snprintf(out, size, "%s", path);
    if (length < 0 || (size_t)length >= size)
        GQAC_FAIL(diag, GQAC_USAGE, "the path of the result is too long");
    return GQAC_OK;
}

/* ---- making -------------------------------------------------------------- */

static gqac_status make(job *j, loaded *m, const gqac_pass *const *passes, size_t *changed) {
    pass_context context;
    const pass_request request = {.stateful = true}; /* the result may be used for sequences */
    GQAC_TRY(load_model(j->model, j->options, false, m, j->diag));
    m->poll = &j->poll;
    if (m->map.data) {
        gqac_diag_set(j->diag, GQAC_USAGE, "an artefact cannot be rewritten");
        gqac_diag_hint(j->diag,
                       "rewrite the model that it was compiled from, and compile the result");
        return GQAC_USAGE;
    }
    GQAC_TRY(load_context(m, j->options, &context, j->diag));
    context.wants_notes = true; /* for messages */
    const gqac_status status = pass_run_list(&context, &request, passes);
    GQAC_TRY(load_explain(m, j->options->limits, status, j->diag));
    *changed = context.changed;
    return context.changed ? pass_standardise(&context) : GQAC_OK;
}

/* Gives a result the shape that the file declares for it: infer may have another word for it. */
static gqac_status declare(loaded *m, ir_value *result, const onnx_io *io, gqac_diag *diag) {
    const ir_dim *dims[GQAC_MAX_RANK];
    const char *at = io->shape;
    bool ok = true;
    if (!result->def || io->rank < 0 || io->rank > GQAC_MAX_RANK ||
        (result->type.rank >= 0 && result->type.rank != io->rank))
        return GQAC_OK;
    for (int axis = 0; axis < io->rank && ok; axis++) {
        at++; /* the bracket, or a comma */
        dims[axis] = ir_dim_parse(m->module->dims, &at, &ok);
    }
    if (!ok)
        return GQAC_OK;
    result->type = ir_type_make(m->module, result->type.dtype, io->rank, dims);
    return result->type.rank == io->rank ? GQAC_OK : gqac_diag_oom(diag, "a shape");
}

static gqac_status declare_results(loaded *m, gqac_diag *diag) {
    const ir_node *ret = m->module->graph->ret;
    for (int i = 0; i < ret->n_inputs && i < m->report.n_outputs; i++)
        GQAC_TRY(declare(m, ret->inputs[i].value, &m->report.outputs[i], diag));
    return GQAC_OK;
}

static gqac_status make_all(job *j, const pass_rewrite *rewrite) {
    static const gqac_pass *const none[] = {&pass_import, &pass_infer, NULL};
    for (int i = 0; i < PASS_MOST_FILES && rewrite->files[i].passes; i++) {
        size_t changed = 0;
        GQAC_TRY(make(j, &j->made[i], rewrite->files[i].passes, &changed));
        if (changed) {
            j->done->shown.changes += (int64_t)changed;
            continue;
        }
        load_free(&j->made[i]);
        GQAC_TRY(make(j, &j->made[i], none, &changed));
        GQAC_TRY(declare_results(&j->made[i], j->diag));
    }
    return GQAC_OK;
}

static bool is_written(const job *j, int i) {
    return j->done->shown.changes || j->options->bytes ||
           !guard_same_file(j->done->paths[i], j->model);
}

/* Checks all paths, before the first file is written. */
static gqac_status check_all(job *j, const pass_rewrite *rewrite, const char *path) {
    for (int i = 0; i < PASS_MOST_FILES && rewrite->files[i].passes; i++) {
        char *to = j->done->paths[i];
        GQAC_TRY(name_file(to, sizeof j->done->paths[i], path, rewrite->files[i].part, j->diag));
        if (is_written(j, i) && !j->options->bytes)
            GQAC_TRY(guard_onnx(j->model, j->made[i].files, true, to, j->diag));
    }
    return GQAC_OK;
}

static gqac_status write_all(job *j, const pass_rewrite *rewrite, const char *path) {
    gqac_rewritten *shown = &j->done->shown;
    int64_t bytes = 0;
    GQAC_TRY(check_all(j, rewrite, path));
    for (int i = 0; i < PASS_MOST_FILES && rewrite->files[i].passes; i++)
        bytes += is_written(j, i) ? load_weight_bytes(&j->made[i]) : 0;
    gqac_poll_begin(&j->poll, bytes, "bytes");
    for (int i = 0; i < PASS_MOST_FILES && rewrite->files[i].passes; i++) {
        if (!is_written(j, i))
            continue;
        GQAC_TRY(onnx_export(j->made[i].module, j->done->paths[i], &j->poll, j->diag));
        j->done->files[shown->n_files++] = j->done->paths[i];
    }
    return GQAC_OK;
}

gqac_status gqac_rewrite(const char *model, const char *name, const gqac_options *options,
                         const char *path, gqac_rewritten **result, gqac_diag *diag) {
    const pass_rewrite *rewrite = NULL;
    gqac_options own;
    load_parts parts;
    GQAC_TRY(load_options(options, &own, &parts, diag));
    GQAC_TRY(find(name, &rewrite, diag));
    job j = {.model = model, .options = &own, .diag = diag};
    GQAC_TRY(gqac_poll_set(&j.poll, own.monitor, NULL, diag));
    gqac_poll_begin(&j.poll, 0, "bytes");
    gqac_poll_limit(&j.poll, own.limits->compile_ms);
    j.done = gqac_calloc(1, sizeof *j.done);
    if (!j.done)
        return gqac_diag_oom(diag, "a rewrite");
    j.done->shown.size = sizeof j.done->shown;
    j.done->shown.counted = rewrite->counted;
    j.done->shown.files = j.done->files;
    gqac_float_mode callers;
    gqac_status status = gqac_float_mode_take(&callers, diag);
    if (status == GQAC_OK) {
        status = make_all(&j, rewrite);
        if (status == GQAC_OK)
            status = write_all(&j, rewrite, path);
        gqac_float_mode_give_back(&callers);
    }
    for (int i = 0; i < PASS_MOST_FILES; i++)
        if (j.made[i].arena)
            load_free(&j.made[i]);
    if (status == GQAC_OK) {
        gqac_poll_finish(&j.poll);
        *result = &j.done->shown;
        return GQAC_OK;
    }
    load_place(model, status, diag);
    gqac_free(j.done);
    return status;
}
