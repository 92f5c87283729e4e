/* The table of limits. */
#include "base/limits.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "base/machine.h"
#include "base/sized.h"

#define TEBI (INT64_C(1) << 40)

enum { OF_MACHINE = 0 }; /* the default is a share of the memory of the machine */

/* `most` is what the code can process: nodes are counted by the scan in 32 bits, elements of
 * tensors are checked by the importer. */
static const struct {
    const char *name;
    size_t offset;
    int64_t initial, most;
    const char *summary;
} rows[] = {
#define ROW(field) offsetof(gqac_limits, field)
    {"model-bytes", ROW(model_bytes), 4 * TEBI, INT64_MAX,
     "bytes of the model file and its external data"},
    {"nodes", ROW(nodes), 1000000, 1000000, "nodes of the graph"},
    {"tensor-elements", ROW(tensor_elements), INT64_C(1) << 36, TEBI, "elements of one tensor"},
    {"context", ROW(context), INT64_MAX, INT64_MAX, "tokens of a sequence"},
    {"compile-bytes", ROW(compile_bytes), OF_MACHINE, INT64_MAX,
     "bytes of the graph and of packed weights"},
    {"compile-ms", ROW(compile_ms), 86400000, INT64_MAX / 1000000,
     "milliseconds of opening or compiling"},
    {"template-steps", ROW(template_steps), 3000000, INT64_C(1) << 40,
     "steps of one rendering of the chat template"},
    {"memory-bytes", ROW(memory_bytes), OF_MACHINE, INT64_MAX,
     "bytes of the weights, and of one tensor; also the default memory budget"},
#undef ROW
};
enum { ROWS = sizeof rows / sizeof *rows };
_Static_assert(sizeof(gqac_limits) == sizeof(size_t) + ROWS * sizeof(int64_t),
               "a row for each field");

static int64_t get(const gqac_limits *limits, int i) {
    int64_t value = 0;
    if (limits)
        memcpy(&value, (const char *)limits + rows[i].offset, sizeof value);
    if (value)
        return value;
    return rows[i].initial == OF_MACHINE ? gqac_memory_share() : rows[i].initial;
}

static void put(gqac_limits *limits, int i, int64_t value) {
    memcpy((char *)limits + rows[i].offset, &value, sizeof value);
}

bool gqac_limit_at(int index, const gqac_limits *limits, const char **name, const char **summary,
                   int64_t *value) {
    if (index < 0 || index >= ROWS)
        return false;
    *name = rows[index].name;
    *summary = rows[index].summary;
    *value = get(limits, index);
    return true;
}

static gqac_status check(int i, int64_t value, gqac_diag *diag) {
    if (value >= 1 && value <= rows[i].most)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_USAGE, "the limit %s cannot be %lld", rows[i].name, (long long)value);
    gqac_diag_rule(diag, "the limit %s must be from 1 to %lld", rows[i].name,
                   (long long)rows[i].most);
    return GQAC_USAGE;
}

gqac_status gqac_limits_set(gqac_limits *limits, const char *name, int64_t value, gqac_diag *diag) {
    char names[256] = "";
    for (int i = 0, n = 0; i < ROWS; i++) {
        n += snprintf(names + n, sizeof names - (size_t)n, "%s%s", n ? ", " : "", rows[i].name);
        if (strcmp(rows[i].name, name) != 0)
            continue;
        GQAC_TRY(check(i, value, diag));
        put(limits, i, value);
        return GQAC_OK;
    }
    gqac_diag_set(diag, GQAC_USAGE, "unknown limit '%.60s'", name);
    gqac_diag_rule(diag, "the limits are %s", names);
    return GQAC_USAGE;
}

gqac_status gqac_limits_take(gqac_limits *own, const gqac_limits *given, gqac_diag *diag) {
    gqac_limits_init(own);
    GQAC_TRY(gqac_sized_take(own, sizeof *own, given, "gqac_limits", diag));
    for (int i = 0; i < ROWS; i++) {
        const int64_t value = get(own, i);
        GQAC_TRY(check(i, value, diag));
        put(own, i, value);
    }
    return GQAC_OK;
}

void gqac_limits_explain(gqac_diag *diag, const char *name, int64_t limit) {
    gqac_diag_rule(diag, "the limit %s is %lld", name, (long long)limit);
    gqac_diag_hint(diag, "if you trust the model, raise it: --limit %s=N, or gqac_options.limits",
                   name);
}

gqac_status gqac_limits_fail(gqac_diag *diag, const char *name, int64_t limit, const char *fmt,
                             ...) {
    char what[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    gqac_diag_set(diag, GQAC_LIMIT, "%s", what);
    gqac_limits_explain(diag, name, limit);
    return GQAC_LIMIT;
}
