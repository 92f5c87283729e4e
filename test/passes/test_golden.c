/* Golden files: test/golden/NAME.PASS.in.gq is parsed, typed and given to one pass; the graph after
 * it is NAME.PASS.out.gq, byte for byte. PASS may also be `pipeline` or `stateless`: all passes,
 * with past and present as sequence state or as inputs and outputs. If a pass is expected to fail,
 * the file contains its message.
 *
 * Every file is also printed, parsed and printed again; every pass is run twice on one graph
 * (idempotent) and on a second copy (deterministic). `test_golden --update`, or
 * GQAC_UPDATE_GOLDEN=1, rewrites all .out.gq files. */
#include "support_passes.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { PATH = 1024 };

static bool update;

/* ---- files --------------------------------------------------------------- */

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    gqac_str text = {0};
    char part[4096];
    size_t n;
    if (!file)
        return NULL;
    gqac_str_append(&text, "");
    while ((n = fread(part, 1, sizeof part, file)) > 0)
        gqac_str_append_n(&text, part, n);
    fclose(file);
    return text.text;
}

static bool write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    bool ok = file && fputs(text, file) >= 0;
    if (file)
        ok = fclose(file) == 0 && ok;
    return ok;
}

/* ---- one case ------------------------------------------------------------ */

static gqac_status run_named(fixture *f, const char *pass) {
    const bool stateful = strcmp(pass, "pipeline") == 0;
    if (stateful || strcmp(pass, "stateless") == 0)
        return gqac_pipeline_run(&f->context, &(pass_request){.stateful = stateful});
    const gqac_pass *row = fixture_pass(pass);
    if (!row) {
        gqac_diag_set(&f->diag, GQAC_USAGE, "there is no pass '%s'", pass);
        return GQAC_USAGE;
    }
    return fixture_typed_run(f, row);
}

static void line(gqac_str *out, const char *key, const char *text) {
    if (*text)
        gqac_str_printf(out, "// %s: %s\n", key, text);
}

/* The graph after the pass, or the message of its failure. */
static char *outcome(fixture *f, const char *text, const char *pass) {
    if (!fixture_open(f, text))
        return NULL;
    const gqac_status status = run_named(f, pass);
    if (status == GQAC_OK)
        return fixture_text(f);
    gqac_str out = {0};
    line(&out, "fails", gqac_status_name(status));
    line(&out, "what", f->diag.what);
    line(&out, "where", f->diag.where);
    line(&out, "rule", f->diag.rule);
    line(&out, "hint", f->diag.hint);
    return out.text;
}

static bool same(const char *what, const char *name, const char *a, const char *b) {
    const bool equal = a && b && strcmp(a, b) == 0;
    if (!equal)
        printf("%s: %s\n---- one\n%s---- other\n%s", name, what, a ? a : "(none)\n",
               b ? b : "(none)\n");
    return equal;
}

/* Printed text can be parsed, and is printed again as the same bytes. */
static bool round_trip(const char *name, const char *text) {
    fixture f, g;
    char *once = NULL, *again = NULL;
    if (fixture_open(&f, text))
        once = fixture_text(&f);
    if (fixture_open(&g, once ? once : ""))
        again = fixture_text(&g);
    const bool ok = same("does not print as it parses", name, once, again);
    gqac_free(once);
    gqac_free(again);
    fixture_close(&f);
    fixture_close(&g);
    return ok;
}

static bool idempotent(fixture *f, const char *name, const char *pass, const char *first) {
    const gqac_pass *row = fixture_pass(pass);
    if (!row)
        return true; /* a pipeline: its last pass is tested on its own */
    if (fixture_run(f, row) != GQAC_OK) {
        printf("%s: fails when run again: %s\n", name, f->diag.what);
        return false;
    }
    char *second = fixture_text(f);
    const bool ok = same("is not idempotent", name, first, second);
    gqac_free(second);
    return ok;
}

static bool check_case(const char *name, const char *pass, const char *in, const char *out_path) {
    fixture f, g;
    char *result = outcome(&f, in, pass), *again = outcome(&g, in, pass);
    const bool fails = result && strncmp(result, "// fails", 8) == 0;
    bool ok = result && round_trip(name, in);
    ok = ok && same("is not deterministic", name, result, again);
    ok = ok && (fails || round_trip(name, result));
    ok = ok && (fails || idempotent(&f, name, pass, result));
    if (ok && update)
        ok = write_text(out_path, result);
    char *wanted = read_text(out_path);
    ok = ok && same("differs from its golden file (first)", name, wanted, result);
    gqac_free(wanted);
    gqac_free(result);
    gqac_free(again);
    fixture_close(&f);
    fixture_close(&g);
    return ok;
}

/* ---- all cases ----------------------------------------------------------- */

static int is_input(const struct dirent *entry) {
    const size_t n = strlen(entry->d_name);
    return n > 6 && strcmp(entry->d_name + n - 6, ".in.gq") == 0;
}

static bool run_file(const char *folder, const char *file) {
    char path[2 * PATH], stem[PATH];
    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(file) - 6), file);
    const char *pass = strrchr(stem, '.');
    snprintf(path, sizeof path, "%.1000s/%.1000s", folder, file);
    char *in = read_text(path);
    snprintf(path, sizeof path, "%.1000s/%.1000s.out.gq", folder, stem);
    const bool ok = in && pass && check_case(stem, pass + 1, in, path);
    gqac_free(in);
    if (!ok)
        printf("FAIL %s\n", file);
    return ok;
}

static void test_all(void) {
    struct dirent **files;
    const char *folder = unit_path("test/golden");
    const int n = scandir(folder, &files, is_input, alphasort);
    CU_ASSERT(n > 0);
    for (int i = 0; i < n; i++) {
        CU_ASSERT(run_file(folder, files[i]->d_name));
        free(files[i]);
    }
    if (n >= 0)
        free(files);
}

static const unit_case cases[] = {{"golden files", test_all}};

int main(int argc, char **argv) {
    const char *wish = getenv("GQAC_UPDATE_GOLDEN");
    update = wish && *wish && strcmp(wish, "0") != 0;
    if (argc > 1 && strcmp(argv[1], "--update") == 0) {
        update = true;
        argc--;
        argv++;
    }
    return unit_run("golden", cases, COUNT(cases), argc, argv);
}
