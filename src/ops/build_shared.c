/* See build.h. */
#include "ops/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ops/shared.h"

void op_refuse(ir_builder *b, const ir_node *node, const char *fmt, ...) {
    char what[256];
    va_list args;
    if (b->status != GQAC_OK)
        return;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    b->status = op_fail(node, b->diag, GQAC_UNSUPPORTED, "%s", what);
}

/* ---- one node ------------------------------------------------------------ */

/* Finds an op by its name in dumps, where gqac's own ops have no domain. */
static const ir_schema *schema_of(const char *name) {
    const char *dot = strrchr(name, '.');
    char domain[32];
    if (!dot) {
        const ir_schema *op = op_schema("", name);
        return op ? op : op_schema("gqac", name);
    }
    snprintf(domain, sizeof domain, "%.*s", (int)(dot - name), name);
    return op_schema(domain, dot + 1);
}

/* The index of the attribute of that name and kind; -1: the op has none. */
static int find(const ir_schema *op, const char *name, ir_attr_kind kind) {
    for (int i = 0; op->attrs && op->attrs[i].name; i++)
        if (strcmp(op->attrs[i].name, name) == 0)
            return op->attrs[i].kind == kind ? i : -1;
    return -1;
}

/* node NULL: only checks that the op has it. */
static void put(ir_builder *b, const ir_schema *op, ir_node *node, const char *name,
                ir_attr_kind kind, ir_attr value) {
    if (!name || b->status != GQAC_OK)
        return;
    const int at = find(op, name, kind);
    if (at < 0)
        b->status = gqac_diag_set(b->diag, GQAC_INTERNAL,
                                  "op '%s' has no attribute '%s' of that kind", op->name, name);
    else if (node)
        node->attrs[at] = value;
}

static void put_same(ir_builder *b, const ir_schema *op, ir_node *node, const ir_node *of,
                     const char *name) {
    for (int i = 0; name && of->op->attrs && of->op->attrs[i].name; i++)
        if (strcmp(of->op->attrs[i].name, name) == 0) {
            put(b, op, of->attrs[i].set ? node : NULL, name, of->op->attrs[i].kind, of->attrs[i]);
            return;
        }
    put(b, op, NULL, name, IR_ATTR_GRAPH, (ir_attr){0}); /* which fails: `of` has none either */
}

/* A copy that lives as long as the node; NULL while there is no node. */
static const void *copy(ir_builder *b, const ir_node *node, const void *data, size_t bytes) {
    if (!node || !data || b->status != GQAC_OK)
        return NULL;
    const void *own = gqac_arena_copy(b->graph->module->arena, data, bytes);
    if (!own)
        b->status = gqac_diag_oom(b->diag, "an attribute");
    return own;
}

static void put_all(ir_builder *b, const ir_schema *op, ir_node *node, const op_line *line) {
    for (int i = 0; i < OP_LINE_INTS; i++)
        put_same(b, op, node, line->of, line->same[i]);
    const ir_attr_spec *all = line->of && !line->same[0] ? line->of->op->attrs : NULL;
    for (; all && all->name; all++)
        put_same(b, op, node, line->of, all->name);
    for (int i = 0; i < OP_LINE_INTS; i++)
        put(b, op, node, line->ints[i].name, IR_ATTR_INT,
            (ir_attr){.set = true, .i = line->ints[i].value});
    for (int i = 0; i < OP_LINE_FLOATS; i++)
        put(b, op, node, line->floats[i].name, IR_ATTR_FLOAT,
            (ir_attr){.set = true, .f = line->floats[i].value});
    put(b, op, node, line->dtype.name, IR_ATTR_DTYPE,
        (ir_attr){.set = true, .dtype = line->dtype.value});
    for (int i = 0; i < OP_LINE_TEXTS; i++) {
        const char *text = line->text[i].value;
        text = copy(b, node, text, text ? strlen(text) + 1 : 0);
        put(b, op, node, line->text[i].name, IR_ATTR_STRING, (ir_attr){.set = true, .s = text});
    }
    const size_t n = (size_t)line->numbers.n;
    const int64_t *numbers = copy(b, node, line->numbers.values, n * sizeof *numbers);
    put(b, op, node, line->numbers.name, IR_ATTR_INTS,
        (ir_attr){.set = true, .count = n, .ints = numbers});
}

/* True if the op accepts that many values. */
static bool fits(ir_builder *b, const ir_schema *op, const char *list, const char *what, int n) {
    int least, most;
    ir_schema_arity(list, &least, &most);
    if (n > most)
        b->status = gqac_diag_set(b->diag, GQAC_INTERNAL, "op '%s' has at most %d %s, not %d",
                                  op->name, most, what, n);
    return n <= most;
}

static ir_node *build(ir_builder *b, const ir_schema *op, const op_line *line) {
    const char *names[OP_LINE_OUTPUTS];
    ir_value *const *in = line->list.values ? line->list.values : line->in;
    int n = line->list.values ? line->list.n : OP_LINE_INPUTS, n_out = OP_LINE_OUTPUTS;
    int least, most;
    ir_schema_arity(op->inputs, &least, &most);
    while (n > least && !in[n - 1])
        n--;
    while (n_out > 1 && !line->out[n_out - 1])
        n_out--;
    for (int i = 0; i < n_out; i++)
        names[i] = i == 0 || line->out[i] ? NULL : "";
    if (!fits(b, op, op->inputs, "inputs", n) || !fits(b, op, op->outputs, "outputs", n_out))
        return NULL;
    ir_node *node = ir_node_create(b->graph, op, NULL, n, in, n_out, names);
    if (!node)
        b->status = gqac_diag_oom(b->diag, "a node");
    else
        ir_node_insert(node, b->before);
    return node;
}

ir_value *op_build_line(ir_builder *b, const char *name, const op_line *line) {
    ir_node *node = NULL;
    const ir_schema *op = b->status == GQAC_OK ? schema_of(name) : NULL;
    if (b->status == GQAC_OK && !op)
        b->status = gqac_diag_set(b->diag, GQAC_INTERNAL, "there is no op '%s'", name);
    if (op)
        put_all(b, op, NULL, line);
    if (b->status == GQAC_OK)
        node = build(b, op, line);
    if (node)
        put_all(b, op, node, line);
    for (int i = 0; i < OP_LINE_OUTPUTS; i++)
        if (line->out[i])
            *line->out[i] = ir_build_result(b, node, i);
    return ir_build_result(b, node, 0);
}

/* ---- shared pieces ------------------------------------------------------ */

ir_value *op_build_constant(ir_builder *b, ir_graph *graph, const char *name, gqac_dtype dtype,
                            int rank, const int64_t *dims, void **data) {
    gqac_tensor tensor = {.dtype = dtype, .rank = rank};
    size_t bytes;
    *data = NULL;
    if (b->status == GQAC_OK)
        b->status = gqac_shape_bytes(dtype, rank, dims, &bytes, b->diag);
    if (b->status != GQAC_OK)
        return NULL;
    memcpy(tensor.dims, dims, (size_t)rank * sizeof *dims);
    *data = tensor.data = gqac_arena_alloc(graph->module->arena, bytes ? bytes : 1);
    ir_value *value = *data ? ir_graph_add_constant(graph, name, &tensor) : NULL;
    if (!value)
        b->status = gqac_diag_oom(b->diag, "a constant");
    return value;
}

ir_value *op_build_cast(ir_builder *b, ir_value *x, gqac_dtype to) {
    return OP_BUILD(b, "Cast", .in = {x}, .dtype = {"to", to});
}

ir_value *op_build_rounded(ir_builder *b, ir_value *x) {
    return op_build_cast(b, op_build_cast(b, x, GQAC_BF16), GQAC_F32);
}

ir_value *op_build_lengths(ir_builder *b, ir_value *x, int first, int n) {
    return OP_BUILD(b, "Shape", .in = {x}, .ints = {{"start", first}, {"end", first + n}});
}

ir_value *op_build_length(ir_builder *b, ir_value *x, int axis) {
    return OP_BUILD(b, "Squeeze", .in = {op_build_lengths(b, x, axis, 1)});
}

ir_value *op_build_concat(ir_builder *b, int64_t axis, int n, ir_value *const *values) {
    return OP_BUILD(b, "Concat", .list = {n, values}, .ints = {{"axis", axis}});
}

ir_value *op_build_transpose(ir_builder *b, ir_value *x, int64_t n, const int64_t *perm) {
    return OP_BUILD(b, "Transpose", .in = {x}, .numbers = {"perm", n, perm});
}
