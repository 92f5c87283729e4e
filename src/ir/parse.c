/* The parser of the text form (docs/ir.md): recursive descent, with one function for each
 * construct.
 *
 * What it returns passes ir_verify. Only nested graphs are parsed by recursion, at most
 * IR_MAX_NESTING deep. Memory is proportional to the text. Texts are untrusted: users edit dumps,
 * and artefacts hold graphs in this form. */
#include "ir/parse_impl.h"

#include <string.h>

gqac_status ir_parse_oom(const ir_parser *p) {
    return gqac_diag_oom(p->lexer.diag, "a module from text");
}

gqac_status ir_parse_new_name(ir_parser *p, const char **name) {
    ir_lexer *lexer = &p->lexer;
    const char *start = lexer->at;
    GQAC_TRY(ir_lex_expect(lexer, "%"));
    GQAC_TRY(ir_lex_name(lexer, &p->word));
    if (!p->word.length)
        return ir_lex_fail(lexer, start, "expected the name of a value after '%%'");
    if (ir_names_find(p->module, p->word.text, p->word.length))
        return ir_lex_fail(lexer, start, "the value %%%.200s is defined twice", p->word.text);
    *name = gqac_arena_strndup(p->module->arena, p->word.text, p->word.length);
    return *name ? GQAC_OK : ir_parse_oom(p);
}

static bool visible(const ir_graph *graph, const ir_value *value) {
    /* The outputs of a node are not visible in its own nested graphs. */
    if (value->def && !ir_node_linked(value->def))
        return false;
    while (graph != value->graph && graph->parent)
        graph = graph->parent->graph;
    return graph == value->graph;
}

static gqac_status parse_operand(ir_parser *p, const ir_graph *graph, ir_value **value) {
    ir_lexer *lexer = &p->lexer;
    *value = NULL;
    ir_lex_skip(lexer);
    const char *start = lexer->at;
    if (ir_lex_take(lexer, "_"))
        return GQAC_OK;
    GQAC_TRY(ir_lex_expect(lexer, "%"));
    GQAC_TRY(ir_lex_name(lexer, &p->word));
    const ir_name *name = ir_names_find(p->module, p->word.text, p->word.length);
    if (!name || !visible(graph, name->value))
        return ir_lex_fail(lexer, start, "the value %%%.200s is not defined here", p->word.text);
    *value = name->value;
    return GQAC_OK;
}

static gqac_status parse_dims(ir_parser *p, const ir_dim **dims, int *rank) {
    ir_lexer *lexer = &p->lexer;
    *rank = 0;
    if (ir_lex_take(lexer, "]"))
        return GQAC_OK;
    do {
        bool ok;
        ir_lex_skip(lexer);
        const char *start = lexer->at;
        if (*rank == GQAC_MAX_RANK)
            return ir_lex_fail(lexer, start, "a type has at most %d dimensions", GQAC_MAX_RANK);
        dims[(*rank)++] = ir_dim_parse(p->module->dims, &lexer->at, &ok);
        if (!ok && ir_dims_failed(p->module->dims))
            return ir_parse_oom(p);
        if (!ok)
            return ir_lex_fail(lexer, start,
                               "expected a dimension: a number, a symbol or a polynomial such as "
                               "P+S, within the limits");
    } while (ir_lex_take(lexer, ","));
    return ir_lex_expect(lexer, "]");
}

gqac_status ir_parse_dtype(ir_parser *p, gqac_dtype *dtype) {
    ir_lexer *lexer = &p->lexer;
    ir_lex_skip(lexer);
    const char *start = lexer->at;
    GQAC_TRY(ir_lex_ident(lexer, &p->word, "an element type"));
    *dtype = gqac_dtype_from_name(p->word.text);
    if (*dtype == GQAC_NONE && strcmp(p->word.text, gqac_dtype_name(GQAC_NONE)) != 0)
        return ir_lex_fail(lexer, start, "'%.40s' is not an element type", p->word.text);
    return GQAC_OK;
}

gqac_status ir_parse_type(ir_parser *p, ir_type *type) {
    ir_lexer *lexer = &p->lexer;
    const ir_dim *dims[GQAC_MAX_RANK];
    *type = ir_type_unknown();
    if (!ir_lex_take(lexer, "?")) {
        ir_lex_skip(lexer);
        const char *start = lexer->at;
        GQAC_TRY(ir_parse_dtype(p, &type->dtype));
        if (type->dtype == GQAC_NONE)
            return ir_lex_fail(
                lexer, start,
                "unexpected element type 'none': an unknown element type is written '?'");
        if (type->dtype == GQAC_TOKEN) {
            type->rank = 0;
            return GQAC_OK;
        }
        if (ir_lex_peek(lexer) != '[')
            return ir_lex_expect(lexer, "[");
    }
    if (!ir_lex_take(lexer, "["))
        return GQAC_OK;
    if (ir_lex_take(lexer, "*"))
        return ir_lex_expect(lexer, "]");
    GQAC_TRY(parse_dims(p, dims, &type->rank));
    int rank = type->rank;
    *type = ir_type_make(p->module, type->dtype, rank, dims);
    return type->rank == rank ? GQAC_OK : ir_parse_oom(p);
}

gqac_status ir_parse_tensor(ir_parser *p, gqac_tensor *tensor, const char **digest) {
    ir_lexer *lexer = &p->lexer;
    ir_type type;
    ir_lex_skip(lexer);
    const char *start = lexer->at;
    GQAC_TRY(ir_parse_type(p, &type));
    memset(tensor, 0, sizeof *tensor);
    tensor->dtype = type.dtype;
    tensor->rank = type.rank;
    bool known = type.rank >= 0 && type.dtype != GQAC_NONE && type.dtype != GQAC_TOKEN;
    for (int i = 0; known && i < type.rank; i++)
        known = ir_dim_is_const(type.dims[i], &tensor->dims[i]);
    if (!known)
        return ir_lex_fail(
            lexer, start,
            "the type of a constant must have an element type, and dimensions that are numbers");
    size_t bytes;
    gqac_status status = gqac_shape_bytes(type.dtype, type.rank, tensor->dims, &bytes, NULL);
    if (status != GQAC_OK)
        return ir_lex_fail(lexer, start, "the shape of a constant is out of range");
    if (digest)
        GQAC_TRY(ir_lex_expect(lexer, "="));
    return ir_parse_tensor_data(lexer, p->module->arena, tensor, digest);
}

static gqac_status parse_slot(ir_parser *p, ir_value *value) {
    int64_t slot;
    if (!ir_lex_take(&p->lexer, "into"))
        return GQAC_OK;
    GQAC_TRY(ir_lex_int(&p->lexer, 0, INT32_MAX, &slot));
    value->slot = (int)slot;
    return GQAC_OK;
}

/* ---- nodes --------------------------------------------------------------- */

/* Appends a pointer to `list`, a byte buffer. */
static gqac_status push(ir_parser *p, gqac_str *list, const void *pointer) {
    if (list->length / sizeof pointer >= IR_MAX_LIST)
        return ir_lex_fail(&p->lexer, p->lexer.at, "the list is too long");
    gqac_str_append_n(list, (const char *)&pointer, sizeof pointer);
    return list->failed ? ir_parse_oom(p) : GQAC_OK;
}

static int count(const gqac_str *list) {
    return (int)(list->length / sizeof(void *));
}

static gqac_status parse_outputs(ir_parser *p) {
    ir_lexer *lexer = &p->lexer;
    do {
        const char *name = "";
        if (!ir_lex_take(lexer, "_"))
            GQAC_TRY(ir_parse_new_name(p, &name));
        GQAC_TRY(push(p, &p->names, name));
    } while (ir_lex_take(lexer, ","));
    return ir_lex_expect(lexer, "=");
}

/* Parses "Add" or "com.microsoft.FusedMatMul": the last part is the op, the rest its domain. */
static gqac_status parse_op(ir_parser *p, const ir_schema **op) {
    ir_lexer *lexer = &p->lexer;
    ir_lex_skip(lexer);
    const char *start = lexer->at;
    GQAC_TRY(ir_lex_ident(lexer, &p->word, "an op"));
    char *dot = strrchr(p->word.text, '.');
    if (dot) {
        *dot = '\0';
        *op = p->schemas(p->word.text, dot + 1);
        *dot = '.';
    } else {
        *op = p->schemas("", p->word.text);
        if (!*op)
            *op = p->schemas("gqac", p->word.text);
    }
    if (!*op || (*op)->flags & IR_OP_RETURN)
        return ir_lex_fail(lexer, start, "unknown op '%.200s'", p->word.text);
    return GQAC_OK;
}

static gqac_status check_arity(const ir_parser *p, const char *at, const ir_schema *op,
                               ir_value **inputs) {
    int least, most, n = count(&p->values), n_out = count(&p->names);
    ir_schema_arity(op->inputs, &least, &most);
    if (n < least || n > most)
        return ir_lex_fail(&p->lexer, at, "%s takes %s%d inputs, not %d", op->name,
                           n < least ? "at least " : "at most ", n < least ? least : most, n);
    for (int i = 0; i < n; i++)
        if (!inputs[i] && ir_schema_kind(op->inputs, i) != IR_OPTIONAL)
            return ir_lex_fail(&p->lexer, at, "input %d of %s is absent, but it is not optional", i,
                               op->name);
    ir_schema_arity(op->outputs, &least, &most);
    if (n_out < least || n_out > most)
        return ir_lex_fail(&p->lexer, at, "%s has %s%d outputs, not %d", op->name,
                           n_out < least ? "at least " : "at most ", n_out < least ? least : most,
                           n_out);
    return GQAC_OK;
}

/* Checks that a token has one use, the record that it got last. */
static gqac_status check_tokens(const ir_parser *p, const char *at, const ir_node *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        const ir_value *value = node->inputs[i].value;
        if (value && value->type.dtype == GQAC_TOKEN && value->uses->next)
            return ir_lex_fail(&p->lexer, at,
                               "the token %%%.200s is used twice: a token has one use",
                               value->name);
    }
    return GQAC_OK;
}

static gqac_status parse_node_types(ir_parser *p, const ir_node *node) {
    ir_lexer *lexer = &p->lexer;
    for (int i = 0; i < node->n_outputs; i++) {
        GQAC_TRY(ir_lex_expect(lexer, i ? "," : ":"));
        if (node->outputs[i])
            GQAC_TRY(ir_parse_type(p, &node->outputs[i]->type));
        else
            GQAC_TRY(ir_lex_expect(lexer, "_"));
    }
    return GQAC_OK;
}

static gqac_status parse_node_slots(ir_parser *p, const ir_node *node) {
    ir_lexer *lexer = &p->lexer;
    if (node->n_outputs == 0 || !ir_lex_take(lexer, "into"))
        return GQAC_OK;
    for (int i = 0; i < node->n_outputs; i++) {
        int64_t slot;
        if (i)
            GQAC_TRY(ir_lex_expect(lexer, ","));
        if (ir_lex_take(lexer, "_"))
            continue;
        if (!node->outputs[i])
            return ir_lex_expect(lexer, "_");
        GQAC_TRY(ir_lex_int(lexer, 0, INT32_MAX, &slot));
        node->outputs[i]->slot = (int)slot;
    }
    return GQAC_OK;
}

/* Parses what follows the types: the kernel, and the node's name in the file. */
static gqac_status parse_node_notes(ir_parser *p, ir_node *node) {
    ir_lexer *lexer = &p->lexer;
    gqac_arena *arena = p->module->arena;
    if (ir_lex_take(lexer, "via")) {
        GQAC_TRY(ir_lex_string(lexer, &p->word));
        node->kernel = gqac_arena_strndup(arena, p->word.text, p->word.length);
        if (!node->kernel)
            return ir_parse_oom(p);
    }
    if (!ir_lex_take(lexer, "loc"))
        return GQAC_OK;
    GQAC_TRY(ir_lex_expect(lexer, "("));
    GQAC_TRY(ir_lex_string(lexer, &p->word));
    node->name = gqac_arena_strndup(arena, p->word.text, p->word.length);
    if (!node->name)
        return ir_parse_oom(p);
    return ir_lex_expect(lexer, ")");
}

/* Creates a node from the lists p->names and p->values. */
static gqac_status make_node(ir_parser *p, ir_graph *graph, const char *at, const ir_schema *op,
                             ir_node **made) {
    ir_value **inputs = (ir_value **)(void *)p->values.text;
    const char **names = (const char **)(void *)p->names.text;
    GQAC_TRY(check_arity(p, at, op, inputs));
    ir_node *node = ir_node_create(graph, op, NULL, count(&p->values), inputs, count(&p->names),
                                   count(&p->names) ? names : NULL);
    if (!node)
        return ir_parse_oom(p);
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && strcmp(node->outputs[i]->name, names[i]) != 0)
            return ir_lex_fail(&p->lexer, at, "the value %%%.200s is defined twice", names[i]);
    *made = node;
    return check_tokens(p, at, node);
}

static gqac_status parse_node(ir_parser *p, ir_graph *graph) {
    ir_lexer *lexer = &p->lexer;
    const ir_schema *op;
    ir_value *value;
    ir_node *node = NULL;
    p->names.length = p->values.length = 0;
    char next = ir_lex_peek(lexer);
    const char *start = lexer->at;
    if (next == '%' || (next == '_' && !ir_ident_char(lexer->at[1])))
        GQAC_TRY(parse_outputs(p));
    GQAC_TRY(parse_op(p, &op));
    next = ir_lex_peek(lexer);
    if (next == '%' || (next == '_' && !ir_ident_char(lexer->at[1]))) {
        do {
            GQAC_TRY(parse_operand(p, graph, &value));
            GQAC_TRY(push(p, &p->values, value));
        } while (ir_lex_take(lexer, ","));
    }
    GQAC_TRY(make_node(p, graph, start, op, &node));
    GQAC_TRY(ir_parse_attrs(p, node, start));
    GQAC_TRY(parse_node_types(p, node));
    GQAC_TRY(parse_node_slots(p, node));
    GQAC_TRY(parse_node_notes(p, node));
    ir_node_insert(node, NULL);
    return GQAC_OK;
}

/* ---- graphs -------------------------------------------------------------- */

static gqac_status parse_inputs(ir_parser *p, ir_graph *graph) {
    ir_lexer *lexer = &p->lexer;
    GQAC_TRY(ir_lex_expect(lexer, "("));
    if (ir_lex_take(lexer, ")"))
        return GQAC_OK;
    do {
        const char *name;
        ir_type type;
        ir_lex_skip(lexer);
        GQAC_TRY(ir_parse_new_name(p, &name));
        GQAC_TRY(ir_lex_expect(lexer, ":"));
        GQAC_TRY(ir_parse_type(p, &type));
        ir_value *value = ir_graph_add_input(graph, name, type);
        if (!value)
            return ir_parse_oom(p);
        GQAC_TRY(parse_slot(p, value));
        if (graph->n_inputs >= IR_MAX_LIST)
            return ir_lex_fail(lexer, lexer->at, "the list is too long");
    } while (ir_lex_take(lexer, ","));
    return ir_lex_expect(lexer, ")");
}

static gqac_status parse_constant(ir_parser *p, ir_graph *graph) {
    ir_lexer *lexer = &p->lexer;
    const char *name, *digest = NULL;
    gqac_tensor tensor;
    ir_lex_skip(lexer);
    GQAC_TRY(ir_parse_new_name(p, &name));
    GQAC_TRY(ir_lex_expect(lexer, ":"));
    GQAC_TRY(ir_parse_tensor(p, &tensor, &digest));
    ir_value *value = ir_graph_add_constant(graph, name, &tensor);
    if (!value)
        return ir_parse_oom(p);
    value->digest = digest;
    value->stored = true;
    return parse_slot(p, value);
}

static gqac_status parse_results(ir_parser *p, ir_graph *graph) {
    ir_lexer *lexer = &p->lexer;
    const char *start = lexer->at;
    p->values.length = p->names.length = 0;
    if (ir_lex_peek(lexer) != '}') {
        do {
            ir_value *value;
            const char *name = NULL;
            GQAC_TRY(parse_operand(p, graph, &value));
            if (!value)
                return ir_lex_fail(lexer, lexer->at, "a result of a graph cannot be absent ('_')");
            if (ir_lex_take(lexer, "as")) {
                GQAC_TRY(ir_lex_string(lexer, &p->word));
                name = gqac_arena_strndup(p->module->arena, p->word.text, p->word.length);
                if (!name)
                    return ir_parse_oom(p);
            }
            GQAC_TRY(push(p, &p->values, value));
            GQAC_TRY(push(p, &p->names, name));
        } while (ir_lex_take(lexer, ","));
    }
    ir_value **values = (ir_value **)(void *)p->values.text;
    const char **names = (const char **)(void *)p->names.text;
    if (!ir_graph_set_results(graph, count(&p->values), values, names))
        return ir_parse_oom(p);
    GQAC_TRY(check_tokens(p, start, graph->ret));
    return ir_lex_expect(lexer, "}");
}

gqac_status ir_parse_graph(ir_parser *p, ir_node *parent, int depth, ir_graph **out) {
    ir_lexer *lexer = &p->lexer;
    GQAC_TRY(ir_lex_expect(lexer, "graph"));
    if (depth > IR_MAX_NESTING)
        return ir_lex_fail(lexer, lexer->at, "graphs are nested more than %d deep", IR_MAX_NESTING);
    GQAC_TRY(ir_lex_expect(lexer, "@"));
    GQAC_TRY(ir_lex_name(lexer, &p->word));
    ir_graph *graph = ir_graph_create(p->module, p->word.text);
    if (!graph)
        return ir_parse_oom(p);
    graph->parent = parent;
    int outer = p->depth;
    p->depth = depth;
    GQAC_TRY(parse_inputs(p, graph));
    GQAC_TRY(ir_lex_expect(lexer, "{"));
    while (ir_lex_take(lexer, "const"))
        GQAC_TRY(parse_constant(p, graph));
    while (!ir_lex_take(lexer, "return"))
        GQAC_TRY(parse_node(p, graph));
    GQAC_TRY(parse_results(p, graph));
    p->depth = outer;
    *out = graph;
    return GQAC_OK;
}

gqac_status ir_parse(gqac_arena *arena, const char *text, ir_schema_lookup *schemas,
                     ir_module **module, gqac_diag *diag) {
    ir_parser p = {.lexer = {text, text, diag}, .schemas = schemas};
    p.module = ir_module_create(arena, NULL);
    if (!p.module)
        return ir_parse_oom(&p);
    gqac_status status = ir_parse_graph(&p, NULL, 0, &p.module->graph);
    if (status == GQAC_OK && ir_lex_peek(&p.lexer))
        status = ir_lex_fail(&p.lexer, p.lexer.at, "the text goes on after the end of the graph");
    gqac_str_free(&p.word);
    gqac_str_free(&p.names);
    gqac_str_free(&p.values);
    gqac_str_free(&p.items);
    if (status == GQAC_OK)
        *module = p.module;
    return status;
}
