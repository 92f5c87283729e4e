/* Evaluates a node in every way and checks that the ways agree; see support.h.
 *
 * A: infer on constant inputs, then eval. B: infer on inputs whose dims are symbols: the resulting
 * shape, with the symbols replaced by the lengths, must be that of the tensor from eval. C: eval
 * with threads: the same bytes. infer is run twice; the second run must change nothing. */
#include <stdio.h>
#include <string.h>

#include "base/pool.h"
#include "ops/shared.h"
#include "support_text.h"

static void disagree(op_probe *p, const char *what, int i) {
    char text[256];
    p->failed = true;
    snprintf(text, sizeof text, "%s {%s}: %s (%d)", p->op, p->attrs ? p->attrs : "", what, i);
    CU_assertImplementation(CU_FALSE, (unsigned)i, text, "", "", CU_FALSE);
}

static void set_attr(ir_node *node, const text_attr *from) {
    for (int i = 0; node->op->attrs && node->op->attrs[i].name; i++) {
        if (strcmp(node->op->attrs[i].name, from->name) != 0)
            continue;
        node->attrs[i] = from->attr;
    }
}

static gqac_status upgrade(op_probe *p, ir_node *node) {
    enum { MAX = 4 };
    const char *names[MAX], *list = p->raw ? p->raw : "";
    ir_attr_kind kinds[MAX];
    ir_attr values[MAX];
    bool taken[MAX] = {false};
    ir_value *results[SUPPORT_MAX];
    op_raw_attrs raw = {
        .names = names, .kinds = kinds, .values = values, .taken = taken, .results = results};
    text_attr attr;
    while (raw.count < MAX && next_attr(p->arena, &list, &attr)) {
        names[raw.count] = attr.name;
        kinds[raw.count] = attr.kind;
        values[raw.count++] = attr.attr;
    }
    ir_builder b = {.graph = node->graph, .before = node, .diag = &p->diag};
    if (op_of(node)->upgrade)
        GQAC_TRY(op_of(node)->upgrade(&b, node, p->opset, &raw));
    for (int i = 0; i < raw.count; i++)
        if (!taken[i])
            disagree(p, "upgrade leaves an attribute", i);
    return b.status;
}

typedef enum how { AS_CONSTANTS, AS_SYMBOLS, AS_NOTHING } how;

static ir_value *add_input(op_probe *p, int i, how way) {
    const ir_dim *dims[GQAC_MAX_RANK];
    const gqac_tensor *in = p->in[i];
    char name[32];
    if (!in)
        return NULL;
    if (way == AS_CONSTANTS)
        return ir_graph_add_constant(p->module->graph, "c", in);
    for (int k = 0; k < in->rank; k++) {
        /* a length of one is often a constant in models */
        snprintf(name, sizeof name, "n%lld", (long long)in->dims[k]);
        bool known = in->dims[k] == 1;
        dims[k] = known ? ir_dim_const(p->module->dims, in->dims[k])
                        : ir_dim_symbol(p->module->dims, name);
    }
    ir_type type =
        way == AS_NOTHING ? ir_type_unknown() : ir_type_make(p->module, in->dtype, in->rank, dims);
    ir_value *value = ir_graph_add_input(p->module->graph, "x", type);
    /* small integer vectors that control the op stay constants */
    if (way == AS_SYMBOLS && i > 0 && in->rank <= 1 && gqac_tensor_count(in) <= 8 &&
        OP_IN(OP_INDICES, in->dtype))
        return ir_graph_add_constant(p->module->graph, "c", in);
    return value;
}

static gqac_status make(op_probe *p, how way, ir_node **out) {
    ir_value *inputs[SUPPORT_MAX];
    text_attr attr;
    const char *list = p->attrs ? p->attrs : "";
    const ir_schema *schema = op_schema(p->domain, p->op);
    if (!schema) {
        disagree(p, "no such op", 0);
        return GQAC_INTERNAL;
    }
    p->module = ir_module_create(p->arena, NULL);
    p->module->graph = ir_graph_create(p->module, "main");
    for (int i = 0; i < p->n_in; i++)
        inputs[i] = add_input(p, i, way);
    ir_node *node = ir_node_create(p->module->graph, schema, "n", p->n_in, inputs, p->n_out, NULL);
    ir_node_insert(node, NULL);
    while (next_attr(p->arena, &list, &attr))
        set_attr(node, &attr);
    *out = node;
    if (p->opset)
        GQAC_TRY(upgrade(p, node));
    return op_of(node)->verify ? op_of(node)->verify(node, &p->diag) : GQAC_OK;
}

/* ---- infer --------------------------------------------------------------- */

static gqac_status infer_twice(op_probe *p, ir_node *node) {
    ir_type types[SUPPORT_MAX];
    for (ir_node *at = node->graph->first; at != node; at = at->next)
        GQAC_TRY(op_infer(at, &p->diag));
    GQAC_TRY(op_infer(node, &p->diag));
    for (int i = 0; i < node->n_outputs; i++)
        types[i] = node->outputs[i]->type;
    GQAC_TRY(op_infer(node, &p->diag));
    for (int i = 0; i < node->n_outputs; i++)
        if (!ir_type_equal(&types[i], &node->outputs[i]->type))
            disagree(p, "infer is not stable", i);
    return GQAC_OK;
}

static bool lookup(void *arg, const char *symbol, int64_t *value) {
    long long n;
    (void)arg;
    if (sscanf(symbol, "n%lld", &n) != 1)
        return false;
    *value = n;
    return true;
}

/* The types that infer set for an output must hold for the tensor. */
static void check_types(op_probe *p, const ir_node *node, const char *way) {
    char text[64];
    for (int i = 0; i < node->n_outputs; i++) {
        const ir_value *value = node->outputs[i];
        const gqac_tensor *out = &p->out[i];
        int64_t n;
        bool same = value->type.dtype == GQAC_NONE || value->type.dtype == out->dtype;
        same = same && (value->type.rank < 0 || value->type.rank == out->rank);
        for (int k = 0; same && k < value->type.rank; k++)
            if (ir_dim_eval(value->type.dims[k], lookup, NULL, &n))
                same = n == out->dims[k];
        snprintf(text, sizeof text, "infer (%s) and eval differ", way);
        if (!same)
            disagree(p, text, i);
        for (int64_t k = 0; same && value->elements && k < value->n_elements; k++)
            if (value->elements[k] && ir_dim_eval(value->elements[k], lookup, NULL, &n))
                same = value->n_elements == gqac_tensor_count(out) && op_get_i64(out, k) == n;
        snprintf(text, sizeof text, "elements (%s) and eval differ", way);
        if (!same)
            disagree(p, text, i);
    }
}

/* ---- eval ---------------------------------------------------------------- */

static gqac_status alloc(op_call *call, int index, gqac_dtype dtype, int rank,
                         const int64_t *dims) {
    size_t bytes;
    GQAC_TRY(gqac_shape_bytes(dtype, rank, dims, &bytes, call->diag));
    gqac_tensor *out = &call->out[index];
    *out = (gqac_tensor){.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++)
        out->dims[i] = dims[i];
    out->data = gqac_arena_alloc(call->host, bytes);
    if (!out->data)
        return gqac_diag_oom(call->diag, "an output");
    memset(out->data, 0xff, bytes);
    return GQAC_OK;
}

static void check_threads(op_probe *p, const ir_node *node, const gqac_tensor *const *in) {
    gqac_tensor out[SUPPORT_MAX] = {{0}};
    gqac_pool *pool = NULL;
    op_call call = {.node = node, .in = in, .out = out, .host = p->arena, .alloc = alloc};
    if (gqac_pool_create(3, &pool, NULL) != GQAC_OK)
        return;
    call.pool = pool;
    if (op_of(node)->eval(&call) != GQAC_OK)
        disagree(p, "eval fails with threads", 0);
    else
        for (int i = 0; i < node->n_outputs; i++)
            if (gqac_tensor_bytes(&out[i]) != gqac_tensor_bytes(&p->out[i]) ||
                memcmp(out[i].data, p->out[i].data, gqac_tensor_bytes(&out[i])) != 0)
                disagree(p, "threads change the bytes", i);
    gqac_pool_free(pool);
}

/* The tensors of the node's inputs: those of the probe, constants of an upgrade, or results of
 * nodes that an upgrade inserted before it. */
static gqac_status gather_inputs(op_probe *p, const ir_node *node, const gqac_tensor **in) {
    for (int i = 0; i < node->n_inputs; i++) {
        ir_value *value = ir_node_input(node, i);
        in[i] = value && value->constant ? value->constant : NULL;
        if (value && value->def) {
            const gqac_tensor *inner[SUPPORT_MAX];
            gqac_tensor *made = GQAC_ARENA_NEW(p->arena, gqac_tensor);
            GQAC_TRY(gather_inputs(p, value->def, inner));
            GQAC_TRY(op_eval(value->def, inner, made, p->arena, &p->diag));
            in[i] = made;
        }
    }
    return GQAC_OK;
}

gqac_status run_probe(op_probe *p) {
    ir_node *node;
    const gqac_tensor *in[SUPPORT_MAX] = {NULL};
    GQAC_TRY(make(p, AS_CONSTANTS, &node));
    gqac_status inferred = infer_twice(p, node), status = gather_inputs(p, node, in);
    if (status == GQAC_OK)
        status = op_eval(node, in, p->out, p->arena, &p->diag);
    if (status != GQAC_OK)
        return inferred != GQAC_OK ? inferred : status;
    if (inferred != GQAC_OK)
        disagree(p, "eval takes what infer refuses", 0);
    else
        check_types(p, node, "constants");
    check_threads(p, node, in);
    if (p->opset)
        return GQAC_OK;
    ir_node *other;
    for (how way = AS_SYMBOLS; way <= AS_NOTHING; way++) {
        const char *name = way == AS_SYMBOLS ? "symbols" : "nothing known";
        if (make(p, way, &other) != GQAC_OK || infer_twice(p, other) != GQAC_OK)
            disagree(p, name, 0);
        else
            check_types(p, other, name);
    }
    return GQAC_OK;
}

uint32_t random_below(uint64_t *state, uint32_t n) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % n;
}
