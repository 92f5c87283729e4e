/* Reads and writes the graphs of support_rows.h; the seeds are in support_seeds.c. */
#include "support_rows.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gqac/gqac.h>

#include "unit.h"

static bool lists(const char *names, const ir_schema *op) {
    char name[128];
    const bool own = !strcmp(op->domain, "gqac") || !*op->domain;
    snprintf(name, sizeof name, "%s%s%s", own ? "" : op->domain, own ? "" : ".", op->name);
    const size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)); at += length)
        if ((at == names || at[-1] == ' ') && (!at[length] || at[length] == ' '))
            return true;
    return false;
}

const row_seed *row_seed_of(const ir_schema *op, int n) {
    for (size_t i = 0; i < n_row_seeds; i++)
        if (lists(row_seeds[i].ops, op) && n-- == 0)
            return &row_seeds[i];
    return NULL;
}

static const char *read_input(const char *at, row_input *in) {
    *in = (row_input){0};
    at += strspn(at, " |");
    if (*at == '_') {
        in->absent = true;
        return at + 1;
    }
    const size_t name = strcspn(at, "[ |");
    assert(name < sizeof in->dtype);
    memcpy(in->dtype, at, name);
    at += name;
    for (at += *at == '['; *at && *at != ']' && *at != ' ' && in->rank < GQAC_MAX_RANK;
         at += *at == ',') {
        char *end;
        in->dims[in->rank++] = strtoll(at, &end, 10);
        assert(end != at);
        at = end;
    }
    at += *at == ']';
    if (*at == '=') {
        const size_t length = strcspn(++at, " |");
        assert(length < sizeof in->data);
        memcpy(in->data, at, length);
        at += length;
    }
    return at;
}

row_graph row_open(const ir_schema *op, const row_seed *seed) {
    row_graph g = {.op = op, .n_out = seed->n_out};
    int least, most;
    snprintf(g.attrs, sizeof g.attrs, "%s", seed->attrs);
    for (const char *at = seed->inputs; at[strspn(at, " |")];) {
        assert(g.n_in < ROW_INPUTS);
        at = read_input(at, &g.in[g.n_in++]);
    }
    ir_schema_arity(op->outputs, &least, &most);
    if (!g.n_out)
        g.n_out = most < ROW_OUTPUTS ? most : ROW_OUTPUTS;
    g.named = g.read = (1u << g.n_out) - 1;
    return g;
}

int64_t row_count(const row_input *in) {
    int64_t n = 1;
    for (int i = 0; i < in->rank; i++)
        if (in->dims[i] == 0)
            return 0;
    for (int i = 0; i < in->rank; i++) {
        if (in->dims[i] < 0 || in->dims[i] > (1 << 20) / n)
            return -1;
        n *= in->dims[i];
    }
    return n;
}

void row_set_attr(row_graph *g, const char *name, const char *value) {
    char kept[sizeof g->attrs] = "";
    const char *at = g->attrs, *end;
    for (; *at; at = *end ? end + 2 : end) {
        int open = 0;
        for (end = at; *end && (open || strncmp(end, ", ", 2)); end++)
            open += (*end == '{' || *end == '[' || *end == '(') -
                    (*end == '}' || *end == ']' || *end == ')');
        const size_t length = strlen(name);
        if (!strncmp(at, name, length) && at[length] == '=')
            continue;
        snprintf(kept + strlen(kept), sizeof kept - strlen(kept), "%.*s, ", (int)(end - at), at);
    }
    snprintf(g->attrs, sizeof g->attrs, "%.900s%s=%s", kept, name, value);
}

/* ---- text ---------------------------------------------------------------- */

typedef struct writer {
    char *text;
    size_t length;
    bool full;
} writer;

static void put(writer *w, const char *fmt, ...) GQAC_PRINTF(2, 3);
static void put(writer *w, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(w->text + w->length, ROW_TEXT - w->length, fmt, args);
    va_end(args);
    w->full |= n < 0 || (size_t)n >= ROW_TEXT - w->length;
    w->length = w->full ? 0 : w->length + (size_t)n;
}

static void put_type(writer *w, const row_input *in) {
    put(w, "%s", in->dtype);
    if (!strcmp(in->dtype, "token"))
        return;
    for (int i = 0; i < in->rank; i++)
        put(w, "%c%lld", i ? ',' : '[', (long long)in->dims[i]);
    put(w, "%s", in->rank ? "]" : "[]");
}

static void put_data(writer *w, const row_input *in) {
    const bool real = in->dtype[0] == 'f' || in->dtype[1] == 'f';
    const int64_t n = row_count(in);
    put(w, in->rank ? " = [" : " = ");
    for (int64_t i = 0; !in->data[0] && i < n; i++) {
        const double value = real ? 0.125 * (double)(i % 13 - 5) : (double)(i % 2);
        put(w, real ? "%s%.4f" : "%s%.0f", i ? "," : "", value);
    }
    put(w, in->rank ? "%s]\n" : "%s\n", in->data);
}

/* True if operand i is an input of the graph; tokens and absent operands never are. */
static bool is_input(const row_graph *g, int i, row_mode mode) {
    if (g->in[i].absent || !strcmp(g->in[i].dtype, "token"))
        return false;
    return mode == ROW_WEIGHTS ? i == 0 : mode == ROW_TABLE ? i != 0 : mode != ROW_CONSTANTS;
}

/* Writes the operands that are inputs; or, as constants, those that are not. */
static void put_constants(writer *w, const row_graph *g, row_mode mode, bool inputs) {
    for (int i = 0; i < g->n_in; i++) {
        if (g->in[i].absent || !strcmp(g->in[i].dtype, "token") || is_input(g, i, mode) != inputs)
            continue;
        put(w, "  const %%a%d: ", i);
        put_type(w, &g->in[i]);
        put_data(w, &g->in[i]);
        w->full |= row_count(&g->in[i]) < 0;
    }
}

bool row_values(const row_graph *g, row_mode mode, char *text) {
    writer w = {.text = text};
    put(&w, "graph @values() {\n");
    put_constants(&w, g, mode, true);
    put(&w, "  return\n}\n");
    return !w.full;
}

static void put_inputs(writer *w, const row_graph *g, row_mode mode) {
    bool any = false;
    for (int i = 0; i < g->n_in; i++) {
        if (!is_input(g, i, mode))
            continue;
        put(w, "%s%%a%d: ", any ? ", " : "", i);
        if (mode == ROW_INPUTS_UNKNOWN)
            put(w, "%s[*]", g->in[i].dtype);
        else
            put_type(w, &g->in[i]);
        any = true;
    }
}

/* Writes the states that provide the tokens. */
static void put_states(writer *w, const row_graph *g) {
    for (int i = 0; i < g->n_in; i++)
        if (!g->in[i].absent && !strcmp(g->in[i].dtype, "token"))
            put(w,
                "  %%a%d = kv_state {slot=%d, past=\"p%d\", present=\"q%d\", heads=2, "
                "head_size=8, dtype=f32} : token\n",
                i, i, i, i);
}

static void put_node(writer *w, const row_graph *g) {
    const char *domain = strcmp(g->op->domain, "gqac") ? g->op->domain : "";
    for (int i = 0; i < g->n_out; i++)
        put(w, g->named >> i & 1 ? "%s%%y%d" : "%s_", i ? ", " : "  ", i);
    put(w, " = %s%s%s", domain, *domain ? "." : "", g->op->name);
    for (int i = 0; i < g->n_in; i++)
        put(w, g->in[i].absent ? "%s _" : "%s %%a%d", i ? "," : "", i);
    put(w, *g->attrs ? " {%s} :" : "%s :", g->attrs);
    for (int i = 0; i < g->n_out; i++)
        put(w, "%s %s", i ? "," : "", g->named >> i & 1 ? "?" : "_");
}

bool row_text(const row_graph *g, row_mode mode, char *text) {
    writer w = {.text = text};
    bool any = false;
    put(&w, "graph @row(");
    put_inputs(&w, g, mode);
    put(&w, ") {\n");
    put_constants(&w, g, mode, false);
    put_states(&w, g);
    put_node(&w, g);
    put(&w, "\n  return");
    for (int i = 0; i < g->n_out; i++)
        if (g->named & g->read & 1u << i) {
            put(&w, "%s %%y%d", any ? "," : "", i);
            any = true;
        }
    put(&w, "\n}\n");
    return !w.full && any;
}

bool row_has_kernel(const row_graph *g, row_mode mode, const gqac_target *target) {
    char text[ROW_TEXT];
    gqac_diag diag;
    ir_module *module = NULL;
    ir_node *fused[TARGET_MAX_FUSED];
    gqac_arena *arena = gqac_arena_create(0);
    const target_kernel *kernel = NULL;
    int n = 0;
    ir_node *node =
        row_text(g, mode, text) && ir_parse(arena, text, op_schema, &module, &diag) == GQAC_OK
            ? module->graph->first
            : NULL;
    while (node && node->op != g->op)
        node = node->next;
    if (node && op_infer(node, &diag) == GQAC_OK)
        kernel = target_claim(target, NULL, node, fused, &n);
    gqac_arena_free(arena);
    return kernel && kernel != &target_generic_kernel;
}

bool row_has_device(void) {
    int status = 1;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        gqac_diag diag;
        gqac_options options;
        gqac_program *program = NULL;
        gqac_options_init(&options);
        options.target = "gpu";
        _exit(
            gqac_program_open(unit_path("models/tiny-gqa/model.onnx"), &options, &program, &diag));
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}
