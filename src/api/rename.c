/* Renames inputs and results of a graph to the names that gqac knows. All are renamed at once, so
 * that two names can be swapped. */
#include <stdlib.h>
#include <string.h>

#include "api/load.h"
#include "base/alloc.h"

static int compare_rows(const void *a, const void *b) {
    const gqac_io_name *x = a, *y = b;
    const int order = strcmp(x->file_name, y->file_name);
    return order ? order : strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Looks up the new name of `name`; without one, the name stays. */
static gqac_status new_name(const gqac_io_name *rows, int n, const char *name, const char **out,
                            gqac_diag *diag) {
    int low = 0, high = n;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (strcmp(rows[middle].file_name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *out = name;
    if (low == n || strcmp(rows[low].file_name, name) != 0)
        return GQAC_OK;
    *out = rows[low].name;
    if (low + 1 < n && !strcmp(rows[low + 1].file_name, name) &&
        strcmp(rows[low + 1].name, *out) != 0)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL,
                  "the name '%s' of the config stands for both '%s' and '%s'", name, *out,
                  rows[low + 1].name);
    return GQAC_OK;
}

/* Fails if two names are equal; sorts `names`. */
static gqac_status check_distinct(const char **names, int n, const char *what, gqac_diag *diag) {
    if (n)
        qsort(names, (size_t)n, sizeof *names, compare_names);
    for (int i = 0; i + 1 < n; i++)
        if (!strcmp(names[i], names[i + 1])) {
            gqac_diag_set(diag, GQAC_INVALID_MODEL, "two %s would be called '%s'", what, names[i]);
            gqac_diag_rule(diag, "names of inputs and outputs in a config must be distinct");
            return GQAC_INVALID_MODEL;
        }
    return GQAC_OK;
}

static gqac_status rename_inputs(ir_graph *g, const gqac_io_name *rows, int n, const char **names,
                                 gqac_diag *diag) {
    bool ok = true;
    for (int i = 0; i < g->n_inputs; i++)
        GQAC_TRY(new_name(rows, n, g->inputs[i]->name, &names[i], diag));
    /* ir_value_take_name renames values that have one of these names, so inputs can swap theirs */
    for (int i = 0; ok && i < g->n_inputs; i++)
        ok = !strcmp(names[i], g->inputs[i]->name) || ir_value_take_name(g->inputs[i], names[i]);
    if (!ok)
        return gqac_diag_oom(diag, "names of inputs");
    return check_distinct(names, g->n_inputs, "inputs", diag);
}

static gqac_status rename_results(ir_graph *g, const gqac_io_name *rows, int n, const char **names,
                                  gqac_diag *diag) {
    const int n_results = g->ret->n_inputs;
    const char **own = GQAC_ARENA_ARRAY(g->module->arena, const char *, (size_t)n_results + 1);
    if (!own)
        return gqac_diag_oom(diag, "names of outputs");
    for (int i = 0; i < n_results; i++) {
        const ir_value *value = g->ret->inputs[i].value;
        own[i] = g->result_names ? g->result_names[i] : NULL;
        const char *name = own[i] ? own[i] : value->name;
        GQAC_TRY(new_name(rows, n, name, &names[i], diag));
        if (names[i] == name && value->def)
            continue; /* the name stays */
        own[i] = gqac_arena_strdup(g->module->arena, names[i]);
        if (!own[i])
            return gqac_diag_oom(diag, "names of outputs");
    }
    g->result_names = own;
    return check_distinct(names, n_results, "outputs", diag);
}

gqac_status load_rename(loaded *model, const gqac_options *options, gqac_diag *diag) {
    ir_graph *g = model->module->graph;
    const int n = options->n_io_names;
    const int most = g->n_inputs > g->ret->n_inputs ? g->n_inputs : g->ret->n_inputs;
    if (n <= 0)
        return GQAC_OK;
    gqac_io_name *rows = gqac_calloc((size_t)n, sizeof *rows);
    const char **names = gqac_calloc((size_t)most + 1, sizeof *names);
    gqac_status status = GQAC_OK;
    if (!rows || !names) {
        status = gqac_diag_oom(diag, "names of inputs");
    } else {
        memcpy(rows, options->io_names, (size_t)n * sizeof *rows);
        qsort(rows, (size_t)n, sizeof *rows, compare_rows);
        status = rename_results(g, rows, n, names, diag);
        if (status == GQAC_OK)
            status = rename_inputs(g, rows, n, names, diag);
    }
    gqac_free((void *)names);
    gqac_free(rows);
    return status;
}
