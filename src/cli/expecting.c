/* See expecting.h. */
#include "cli/expecting.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/compare.h"

static void print_line(const char *name, const gqac_tensor *actual, const gqac_tensor *expected,
                       const compare_count *found) {
    const int64_t all = gqac_tensor_count(expected);
    if (!found->differing)
        printf("PASS %s", cli_shown(name).s);
    else if (found->first < 0)
        printf("FAIL %s: the shape is %s, expected %s", cli_shown(name).s,
               cli_bracketed(actual->rank, actual->dims).s,
               cli_bracketed(expected->rank, expected->dims).s);
    else
        printf("FAIL %s: %lld of %lld elements differ, the first at %lld: %.9g, expected %.9g",
               cli_shown(name).s, (long long)found->differing, (long long)found->compared,
               (long long)found->first, gqac_tensor_get(actual, found->first),
               gqac_tensor_get(expected, found->first));
    if (found->compared < all)
        printf("; not compared: %lld elements in rows after the valid length",
               (long long)(all - found->compared));
    printf("\n");
}

static gqac_status compare_output(expecting *x, int i, const char *path, json_t *rows) {
    const gqac_tensor *actual = &x->results[i];
    gqac_tensor expected = {0};
    GQAC_TRY(gqac_npy_read(path, x->out[i].dtype, &expected, &x->c->diag));
    const compare_count found =
        compare_elements(actual, &expected, x->valid ? x->valid + i * x->batch : NULL);
    if (!cli_json(x->c))
        print_line(x->out[i].name, actual, &expected, &found);
    json_array_append_new(
        rows, json_pack("{s:o, s:I, s:I, s:I}", "name", cli_text_json(x->out[i].name), "differing",
                        (json_int_t)found.differing, "first", (json_int_t)found.first, "compared",
                        (json_int_t)found.compared));
    x->equal = x->equal && !found.differing;
    gqac_tensor_free(&expected);
    return GQAC_OK;
}

/* A line on stderr for each .npy file that belongs to no output. */
static void name_unmatched(const expecting *x, const char *dir) {
    char path[4096], file[4096];
    DIR *list = opendir(dir);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        const char *end = strrchr(entry->d_name, '.');
        bool known = !end || strcmp(end, ".npy") != 0;
        snprintf(file, sizeof file, "%s/%s", dir, entry->d_name);
        for (int i = 0; i < x->n_out && !known; i++) {
            cli_tensor_path(path, sizeof path, dir, x->out[i].name);
            known = !strcmp(path, file);
        }
        if (!known)
            fprintf(stderr, "gqac: not compared: no output of the model has the file '%s'\n",
                    cli_shown(file).s);
    }
    if (list)
        closedir(list);
}

gqac_status expecting_compare(expecting *x, const char *dir, json_t *rows) {
    int compared = 0;
    x->equal = true;
    for (int i = 0; i < x->n_out; i++) {
        char path[4096];
        struct stat info;
        cli_tensor_path(path, sizeof path, dir, x->out[i].name);
        if (stat(path, &info) != 0)
            continue;
        compared++;
        GQAC_TRY(compare_output(x, i, path, rows));
    }
    if (!compared)
        return cli_fail(x->c, GQAC_IO, "'%s' contains no .npy file of any output", dir);
    if (!cli_quiet(x->c))
        name_unmatched(x, dir);
    return GQAC_OK;
}
