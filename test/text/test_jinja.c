/* Chat templates: the output is byte for byte that of the renderer of transformers for the same
 * conversations and for snippets of the language (test/templates, made by tools/make_templates.py);
 * hostile templates, and failing allocations. `--snippets FILE` compares the snippets of another
 * file. */
#include "unit.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "text/jinja/jinja.h"

/* The CPU time of this process, because the machine may be busy. */
static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Parses and renders; *parsed tells whether parsing succeeded. */
static gqac_status render(const char *source, size_t n, const json_t *variables, gqac_str *out,
                          bool *parsed, gqac_diag *diag) {
    jinja *j = NULL;
    gqac_status status = jinja_create(source, n, &j, diag);
    *parsed = status == GQAC_OK;
    if (status == GQAC_OK)
        status = jinja_render(j, variables, out, diag);
    jinja_free(j);
    return status;
}

static gqac_status render_text(const char *source, gqac_str *out, gqac_diag *diag) {
    bool parsed;
    json_t *none = json_object();
    gqac_status status = render(source, strlen(source), none, out, &parsed, diag);
    json_decref(none);
    return status;
}

static json_t *load(const char *path) {
    json_error_t error;
    json_t *json = json_load_file(path, 0, &error);
    if (!json)
        fprintf(stderr, "%s: %s\n", path, error.text);
    return json;
}

/* True if the template of a row behaves as the row says. */
static bool row_holds(const char *name, const char *source, size_t n, const json_t *variables,
                      const json_t *row) {
    gqac_str out = {0};
    gqac_diag diag = {0};
    bool parsed, good;
    gqac_status status = render(source, n, variables, &out, &parsed, &diag);
    const json_t *expected = json_object_get(row, "out");
    const char *error = json_string_value(json_object_get(row, "error"));
    if (expected)
        good = status == GQAC_OK && out.length == json_string_length(expected) &&
               (out.length == 0 || !memcmp(out.text, json_string_value(expected), out.length));
    else
        good = status != GQAC_OK && status != GQAC_INTERNAL && *diag.what && *diag.where &&
               (strcmp(error, "syntax") != 0 || !parsed);
    if (!good)
        printf("%s\n  expected: %s%s\n  got %s: %s%s\n", name,
               expected ? json_string_value(expected) : "error ", expected ? "" : error,
               gqac_status_name(status), status ? diag.what : "", out.text ? out.text : "");
    gqac_str_free(&out);
    return good;
}

/* ---- the output of transformers ------------------------------------------ */

static size_t compare_snippets(const char *path, size_t *total) {
    size_t bad = 0, i;
    json_t *file = load(path), *row, *rows = json_object_get(file, "rows");
    json_array_foreach(rows, i, row) {
        json_t *variables = json_copy(json_object_get(file, "variables"));
        json_object_update(variables, json_object_get(row, "variables"));
        const json_t *source = json_object_get(row, "template");
        bad += !row_holds(json_string_value(source), json_string_value(source),
                          json_string_length(source), variables, row);
        json_decref(variables);
    }
    *total = json_array_size(rows);
    json_decref(file);
    return bad;
}

static void test_snippets(void) {
    size_t total;
    CU_ASSERT_EQUAL(compare_snippets(unit_path("test/templates/snippets.json"), &total), 0);
    CU_ASSERT(total >= 300);
}

static char *read_text(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    *n = fread(text, 1, (1 << 20) - 1, f);
    fclose(f);
    return text;
}

/* The variables that transformers adds to the conversation. */
static json_t *variables_of(json_t *chat) {
    json_t *variables = json_copy(chat);
    if (!json_object_get(variables, "tools"))
        json_object_set_new(variables, "tools", json_null());
    if (!json_object_get(variables, "documents"))
        json_object_set_new(variables, "documents", json_null());
    if (!json_object_get(variables, "add_generation_prompt"))
        json_object_set_new(variables, "add_generation_prompt", json_false());
    json_object_set_new(variables, "bos_token", json_string("<s>"));
    json_object_set_new(variables, "eos_token", json_string("</s>"));
    return variables;
}

static size_t compare_family(const char *family, json_t *chats) {
    char path[300], name[300];
    size_t n, i;
    snprintf(path, sizeof path, "test/templates/%s/template.jinja", family);
    char *source = read_text(unit_path(path), &n);
    snprintf(path, sizeof path, "test/templates/%s/cases.json", family);
    json_t *file = load(unit_path(path)), *row, *rows = json_object_get(file, "rows");
    size_t count = json_array_size(rows);
    json_array_foreach(rows, i, row) {
        size_t chat = (size_t)json_integer_value(json_object_get(row, "chat"));
        json_t *variables = variables_of(json_array_get(chats, chat));
        snprintf(name, sizeof name, "%s, conversation %zu", family, chat);
        CU_ASSERT(row_holds(name, source, n, variables, row));
        json_decref(variables);
    }
    json_decref(file);
    free(source);
    return count;
}

static void test_families(void) {
    json_t *file = load(unit_path("test/templates/conversations.json"));
    DIR *folder = opendir(unit_path("test/templates"));
    size_t families = 0, pairs = 0;
    CU_ASSERT_PTR_NOT_NULL_FATAL(folder);
    for (const struct dirent *entry; (entry = readdir(folder));) {
        if (strchr(entry->d_name, '.'))
            continue;
        families++;
        pairs += compare_family(entry->d_name, json_object_get(file, "rows"));
    }
    CU_ASSERT(families >= 8);
    CU_ASSERT(pairs >= 320);
    closedir(folder);
    json_decref(file);
}

/* ---- errors -------------------------------------------------------------- */

static void test_errors(void) {
    static const struct {
        const char *source;
        gqac_status status;
        const char *what, *where;
    } rows[] = {
        {"a\nb\n{% if %}", GQAC_INVALID_MODEL, "expression", "line 3"},
        {"\n{{ x | nosuch }}", GQAC_UNSUPPORTED, "nosuch", "line 2"},
        {"{{ x is nosuch }}", GQAC_UNSUPPORTED, "nosuch", "line 1"},
        {"{% include 'x' %}", GQAC_UNSUPPORTED, "include", "line 1"},
        {"{% for x in y recursive %}{% endfor %}", GQAC_UNSUPPORTED, "recursive", "line 1"},
        {"{% nosuch %}", GQAC_INVALID_MODEL, "nosuch", "line 1"},
        {"\n\n{{ raise_exception('roles must alternate') }}", GQAC_INVALID_INPUT,
         "roles must alternate", "line 3"},
        {"{{ a.b.c }}", GQAC_INVALID_INPUT, "'a' is undefined", "line 1"},
        {"{{ [].append(1) }}", GQAC_INVALID_INPUT, "append", "line 1"},
        {"{{ 1 + 'a' }}", GQAC_INVALID_INPUT, "'+' does not take values of types int and str",
         "line 1"},
        {"{{ 'a'.encode() }}", GQAC_UNSUPPORTED, "method 'encode'", "line 1"},
        {"\xff", GQAC_INVALID_MODEL, "UTF-8", "line 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gqac_str out = {0};
        gqac_diag diag = {0};
        CU_ASSERT_EQUAL(render_text(rows[i].source, &out, &diag), rows[i].status);
        CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, rows[i].what));
        CU_ASSERT_PTR_NOT_NULL(strstr(diag.where, rows[i].where));
        CU_ASSERT(*diag.rule && *diag.hint);
        gqac_str_free(&out);
    }
    gqac_diag diag = {0};
    gqac_str out = {0};
    jinja *j = NULL;
    json_t *list = json_array();
    CU_ASSERT_EQUAL(jinja_create("x", 1, &j, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(jinja_render(j, list, &out, &diag), GQAC_INVALID_INPUT);
    json_decref(list);
    jinja_free(j);
}

static void test_today(void) {
    gqac_str out = {0};
    gqac_diag diag;
    char expected[64];
    time_t now = time(NULL);
    strftime(expected, sizeof expected, "%Y-%m-%d, %j", localtime(&now));
    CU_ASSERT_EQUAL(render_text("{{ strftime_now('%Y-%m-%d, %j') }}", &out, &diag), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(out.text, expected); /* at midnight this may fail once */
    gqac_str_free(&out);
}

/* ---- hostile templates --------------------------------------------------- */

static const struct {
    const char *head, *repeat, *tail;
    size_t times;
    gqac_status status; /* the expected status */
} hostile[] = {
    {"{{ ", "(", "", 100000, GQAC_LIMIT},
    {"{{ ", "[", "", 100000, GQAC_LIMIT},
    {"{{ ", "{1:", "", 100000, GQAC_LIMIT},
    {"{{ ", "-", "1 }}", 100000, GQAC_LIMIT},
    {"{{ ", "not ", "1 }}", 100000, GQAC_LIMIT},
    {"{{ 1", "+1", " }}", 100000, GQAC_LIMIT},
    {"{{ 1", "~1", " }}", 100000, GQAC_OK},
    {"{{ 1", " if 1 else 1", " }}", 50000, GQAC_LIMIT},
    {"{{ 1", " and 1", " }}", 100000, GQAC_LIMIT},
    {"{{ 1", " < 2", " }}", 100000, GQAC_OK},
    {"{{ a", ".b", " }}", 100000, GQAC_LIMIT},
    {"{{ a", "[0]", " }}", 100000, GQAC_LIMIT},
    {"{{ a", "()", " }}", 100000, GQAC_LIMIT},
    {"{{ 'a'", "|upper", " }}", 100000, GQAC_LIMIT},
    {"{{ 1", " is odd", " }}", 100000, GQAC_INVALID_MODEL},
    {"", "{% if 1 %}", "", 90000, GQAC_LIMIT},
    {"", "{% for x in y %}", "", 60000, GQAC_LIMIT},
    {"{% if 0 %}", "{% elif 0 %}", "{% endif %}", 80000, GQAC_OK},
    {"", "{{", "", 400000, GQAC_LIMIT},
    {"", "{#", "", 400000, GQAC_INVALID_MODEL},
    {"", "{% raw %}", "", 100000, GQAC_INVALID_MODEL},
    {"", "{", "", 1000000, GQAC_LIMIT},
    {"{{ '", "\\", "' }}", 100000, GQAC_OK},
    {"{{ \"", "x", "", 1000000, GQAC_INVALID_MODEL},
    {"{{ ", "9", " }}", 100000, GQAC_LIMIT},
    {"{{ 1.", "9", " }}", 100000, GQAC_LIMIT},
    {"{{ [", "1,", "] }}", 300000, GQAC_OK},
    {"{{ f(", "1,", ") }}", 300000, GQAC_INVALID_INPUT},
    {"{{ f(", "a=1,", ") }}", 200000, GQAC_INVALID_MODEL},
    {"{% set ", "(", "", 100000, GQAC_LIMIT},
    {"", "{% set a = 1 %}", "", 60000, GQAC_OK},
    {"", "{% filter upper %}", "", 50000, GQAC_LIMIT},
    {"{% macro m(", "a,", ") %}{% endmacro %}{{ m() }}", 100000, GQAC_INVALID_MODEL},
    {"", "\n", "{% endif %}", 1000000, GQAC_INVALID_MODEL},
    {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "", "", 0, GQAC_LIMIT},
    {"{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}", "", "", 0, GQAC_LIMIT},
    {"{% macro f() %}{% call f() %}{% endcall %}{% endmacro %}{{ f() }}", "", "", 0,
     GQAC_INVALID_INPUT},
    {"{% for i in range(10**9) %}{% endfor %}", "", "", 0, GQAC_LIMIT},
    {"{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}", "", "", 0,
     GQAC_LIMIT},
    {"{% set x = 'a' * 10**9 %}", "", "", 0, GQAC_LIMIT},
    {"{{ [[1, 2], [3, 4]] | tojson(indent=10**7) }}", "", "", 0, GQAC_LIMIT},
    {"{{ 10**10**10 }}", "", "", 0, GQAC_LIMIT},
    {"{{ 2**63 }}", "", "", 0, GQAC_LIMIT},
    {"{{ 9223372036854775807 + 1 }}", "", "", 0, GQAC_LIMIT},
    {"{{ (-9223372036854775807 - 1) // -1 }}", "", "", 0, GQAC_LIMIT},
    {"{{ (-9223372036854775807 - 1) % -1 }}", "", "", 0, GQAC_OK},
    {"{{ (-9223372036854775807 - 1) | abs }}", "", "", 0, GQAC_LIMIT},
    {"{{ [1] * 10**12 }}", "", "", 0, GQAC_LIMIT},
    {"{{ [[]] * 9223372036854775807 }}", "", "", 0, GQAC_LIMIT},
    {"{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] %}{% endfor %}{{ "
     "n.x }}",
     "", "", 0, GQAC_LIMIT},
    {"{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor "
     "%}{{ n.x }}",
     "", "", 0, GQAC_LIMIT},
    {"{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor "
     "%}{{ n.x == n.x }}",
     "", "", 0, GQAC_LIMIT},
    {"{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
     "", "", 0, GQAC_LIMIT},
    {"{% set n = namespace() %}{% set n.n = n %}{{ n }}", "", "", 0, GQAC_LIMIT},
    {"{% set n = namespace(s='a') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
     "", "", 0, GQAC_LIMIT},
    {"{% set n = namespace(s='ab') %}{% for i in range(99999) %}{% set n.s = n.s ~ 'abcdefgh' %}{% "
     "endfor %}{{ n.s | length }}",
     "", "", 0, GQAC_OK},
    {"{% set s = 'a' * 10**6 %}{% for i in range(99999) %}{{ (s ~ i) in s }}{% endfor %}", "", "",
     0, GQAC_LIMIT},
    {"{% set s = 'a' * 10**6 %}{% for i in range(99999) %}{{ s.rfind('ab') }}{% endfor %}", "", "",
     0, GQAC_LIMIT},
    {"{% set s = 'a' * 10**3 * 10**4 %}{{ (s ~ s).rfind(s ~ 'b') }}", "", "", 0, GQAC_LIMIT},
    {"{{ 'a a'.split(' ', -9223372036854775807 - 1) }}", "", "", 0, GQAC_OK},
    {"{{ 'aa'.replace('a', 'b', -9223372036854775807 - 1) }}", "", "", 0, GQAC_OK},
    {"{{ (-9223372036854775807 - 1) | round(-18) }}", "", "", 0, GQAC_OK},
    {"{% set s = 'a' * 10**6 %}{{ s.replace('a', s) | length }}", "", "", 0, GQAC_LIMIT},
    {"{% set s = 'a' * 10**6 %}{{ s | replace('', s) | length }}", "", "", 0, GQAC_LIMIT},
    {"{% set s = 'a' * 10**6 %}{% for i in range(99999) %}{{ s.split('a') }}{% endfor %}", "", "",
     0, GQAC_LIMIT},
    {"{% set s = 'ab' * 10**6 %}{{ s.strip(s) }}", "", "", 0, GQAC_LIMIT},
    {"{{ range(99999) | unique | list | length }}", "", "", 0, GQAC_LIMIT},
    {"{{ '%999999999d' % 1 }}", "", "", 0, GQAC_LIMIT},
    {"{{ '%.999999999f' % 1 }}", "", "", 0, GQAC_LIMIT},
    {"{{ '{:999999999}'.format(1) }}", "", "", 0, GQAC_LIMIT},
    {"{{ '%*d' % (999999999, 1) }}", "", "", 0, GQAC_INVALID_INPUT},
    {"{{ 'a' | center(10**9) }}", "", "", 0, GQAC_LIMIT},
    {"{{ 'a\\nb' | indent(10**9) }}", "", "", 0, GQAC_LIMIT},
    {"{{ [1] | batch(10**9, 0) | list }}", "", "", 0, GQAC_LIMIT},
    {"{{ [1] | slice(10**9) | list }}", "", "", 0, GQAC_LIMIT},
    {"{{ [[1]] | tojson(indent=10**9) }}", "", "", 0, GQAC_LIMIT},
    {"{{ 1.5 | round(10**9) }}{{ 1 | round(-10**9) }}{{ 1.5 | round(-10**9) }}", "", "", 0,
     GQAC_OK},
    {"{{ 1e300 * 1e300 | int }}", "", "", 0, GQAC_LIMIT},
    {"{{ '1' * 400 | int }}", "", "", 0, GQAC_OK},
    {"{{ ('1' * 400) | int }}", "", "", 0, GQAC_OK},
    {"{{ 'x'[9223372036854775807] }}{{ 'x'[-9223372036854775807:9223372036854775807] }}", "", "", 0,
     GQAC_OK},
    {"{{ [1,2,3][::9223372036854775807] }}{{ [1][::-9223372036854775807] }}", "", "", 0, GQAC_OK},
    {"{{ strftime_now('%c' * 100000) }}", "", "", 0, GQAC_INVALID_INPUT},
    {"{{ dict(a=1)[namespace()] }}", "", "", 0, GQAC_OK},
};

/* Seconds that a template may take on this machine and in this build: many times the time of the
 * simplest template that uses up all steps. */
static double time_limit(void) {
    gqac_str out = {0};
    gqac_diag diag;
    const double begin = seconds();
    gqac_status status = render_text("{% for i in range(99999) %}{% for j in range(99999) %}"
                                     "{% if j %}{% endif %}{% endfor %}{% endfor %}",
                                     &out, &diag);
    CU_ASSERT_EQUAL(status, GQAC_LIMIT);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "steps"));
    gqac_str_free(&out);
    return 30 * (seconds() - begin);
}

static void test_hostile(void) {
    const double limit = time_limit();
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        size_t n = strlen(hostile[i].repeat);
        gqac_str source = {0}, out = {0};
        gqac_diag diag = {0};
        double begin = seconds();
        gqac_str_append(&source, hostile[i].head);
        for (size_t k = 0; n && k < hostile[i].times; k++)
            gqac_str_append_n(&source, hostile[i].repeat, n);
        gqac_str_append(&source, hostile[i].tail);
        gqac_status status = render_text(source.text, &out, &diag);
        double took = seconds() - begin;
        const bool good = status == hostile[i].status;
        if (!good || took > limit)
            printf("%.60s%.20s...: %s %s, %.1f of %.1f s\n", hostile[i].head, hostile[i].repeat,
                   gqac_status_name(status), diag.what, took, limit);
        CU_ASSERT(good);
        CU_ASSERT((status == GQAC_OK) == (*diag.what == '\0'));
        CU_ASSERT(took < limit);
        gqac_str_free(&source);
        gqac_str_free(&out);
    }
}

/* Every template with bytes removed, duplicated or replaced ends, with any status. */
static void test_damaged(void) {
    size_t n, step = unit_full() ? 1 : 17;
    char *source = read_text(unit_path("test/templates/qwen/template.jinja"), &n);
    json_t *file = load(unit_path("test/templates/conversations.json"));
    json_t *variables = variables_of(json_array_get(json_object_get(file, "rows"), 5));
    static const char by[] = "{}%'#-(|\\\n\xc3";
    for (size_t at = 0; at < n; at += step) {
        char old = source[at];
        gqac_str out = {0};
        gqac_diag diag = {0};
        bool parsed;
        source[at] = by[(at * 7) % (sizeof by - 1)];
        gqac_status status = render(source, n, variables, &out, &parsed, &diag);
        CU_ASSERT_NOT_EQUAL(status, GQAC_INTERNAL);
        source[at] = old;
        out.length = 0;
        status = render(source, at, variables, &out, &parsed, &diag); /* truncated */
        CU_ASSERT_NOT_EQUAL(status, GQAC_INTERNAL);
        gqac_str_free(&out);
    }
    json_decref(variables);
    json_decref(file);
    free(source);
}

/* ---- allocations --------------------------------------------------------- */

/* Fails each allocation in turn; returns their number. */
static size_t fail_each(const char *source, size_t n, const json_t *variables, size_t step) {
    gqac_str expected = {0};
    gqac_diag diag = {0};
    bool parsed;
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_EQUAL(render(source, n, variables, &expected, &parsed, &diag), GQAC_OK);
    size_t calls = gqac_alloc_calls();
    for (size_t i = 1; i <= calls; i += step) {
        for (int persist = 0; persist < 2; persist++) {
            gqac_str out = {0};
            size_t live = gqac_alloc_live();
            gqac_alloc_fail_at(i, persist);
            gqac_status status = render(source, n, variables, &out, &parsed, &diag);
            gqac_alloc_fail_at(0, 0);
            CU_ASSERT_EQUAL(status, GQAC_NO_MEMORY);
            gqac_str_free(&out);
            CU_ASSERT_EQUAL(gqac_alloc_live(), live);
        }
    }
    gqac_str_free(&expected);
    return calls;
}

static void test_allocations(void) {
    static const char all[] =
        "{% macro m(a) %}{{ a | upper }}{{ caller() if caller }}{% endmacro %}{% set x %}{{ m('q') "
        "}}{% endset %}{% set ns = namespace(s='') %}{% for i in range(300) %}{% set ns.s = ns.s ~ "
        "'%05d' % i ~ '{}'.format(i) %}{% endfor %}{{ ns.s }}{% filter upper %}{{ x | replace('Q', "
        "'W') | indent }}{% endfilter %}{% call m('z') %}c{% endcall %}{{ 'b a'.split() | sort | "
        "tojson(indent=2) }}{{ {'a': [1, 2.5]} }}{{ 'a\\u00e9\\n' ~ 'b' }}";
    json_t *none = json_object();
    CU_ASSERT(fail_each(all, sizeof all - 1, none, 1) > 30);
    json_decref(none);
    size_t n;
    char *source = read_text(unit_path("test/templates/qwen/template.jinja"), &n);
    json_t *file = load(unit_path("test/templates/conversations.json"));
    json_t *variables = variables_of(json_array_get(json_object_get(file, "rows"), 5));
    CU_ASSERT(fail_each(source, n, variables, 1) > 4);
    json_decref(variables);
    json_decref(file);
    free(source);
}

static const unit_case cases[] = {
    {"snippets render as transformers does", test_snippets},
    {"conversations render as transformers does", test_families},
    {"errors name the line and the construct", test_errors},
    {"strftime_now is today", test_today},
    {"hostile templates end", test_hostile},
    {"damaged templates end", test_damaged},
    {"every allocation may fail", test_allocations},
};

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--snippets")) {
        size_t total, bad = compare_snippets(argv[2], &total);
        printf("%zu passed, %zu failed\n", total - bad, bad);
        return bad > 0;
    }
    return unit_run("jinja", cases, sizeof cases / sizeof *cases, argc, argv);
}
