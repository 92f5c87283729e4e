/* The order in which the nodes of one graph are imported.
 *
 * ONNX requires sorted files, but some writers append nodes. In an unsorted graph, of all nodes
 * that could come next the first in the file is chosen, so the result depends only on the file. A
 * node depends on its inputs and on the values that its nested graphs capture. */
#include "onnx/importer.h"

#include <string.h>

/* The names that a nested graph and those around it define themselves. */
typedef struct inner {
    const struct inner *up;
    gqac_table names; /* const char * */
} inner;

typedef struct edge {
    int node;
    struct edge *next;
} edge;

typedef struct orderer {
    const onnx_scope *scope;
    Onnx__NodeProto *const *nodes;
    int n, node; /* the node whose reads are being visited */
    bool sorted;
    edge **users; /* of each node */
    int *missing; /* number of nodes that must still come before each */
    int wanted;   /* one node that must still come before `node`; for cycles */
    int *heap, n_heap;
    bool oom;
} orderer;

static bool same_text(const void *item, const void *key) {
    return strcmp(item, key) == 0;
}

static bool is_inner(const inner *in, const char *text) {
    for (; in; in = in->up)
        if (gqac_table_find(&in->names, gqac_hash_bytes(in->names.seed, text, strlen(text)),
                            same_text, text))
            return true;
    return false;
}

static void add_inner(orderer *o, inner *in, const char *text) {
    uint64_t hash = gqac_hash_bytes(in->names.seed, text, strlen(text));
    if (*text && !gqac_table_find(&in->names, hash, same_text, text) &&
        !gqac_table_add(&in->names, hash, (void *)(uintptr_t)text))
        o->oom = true;
}

/* ---- reads --------------------------------------------------------------- */

typedef void read_visitor(orderer *o, int def);

static void visit_name(orderer *o, const inner *in, const char *text, read_visitor *f) {
    if (!*text || is_inner(in, text))
        return;
    const onnx_name *name = onnx_scope_find(o->scope, text);
    if (name && name->kind == ONNX_NAME_PENDING)
        f(o, name->node);
}

static void visit_graph(orderer *o, const inner *up, const Onnx__GraphProto *graph,
                        read_visitor *f);

static void visit_node(orderer *o, const inner *in, const Onnx__NodeProto *node, read_visitor *f) {
    for (size_t i = 0; i < node->n_input; i++)
        visit_name(o, in, node->input[i], f);
    for (size_t i = 0; i < node->n_attribute; i++)
        if (node->attribute[i]->g)
            visit_graph(o, in, node->attribute[i]->g, f);
}

/* Recursion follows nested graphs, whose depth the pre-scan limits. */
static void visit_graph(orderer *o, const inner *up, const Onnx__GraphProto *graph,
                        read_visitor *f) {
    inner in = {.up = up};
    gqac_table_init(&in.names, o->scope->im->scratch);
    for (size_t i = 0; i < graph->n_input; i++)
        add_inner(o, &in, onnx_text(graph->input[i]->name));
    for (size_t i = 0; i < graph->n_initializer; i++)
        add_inner(o, &in, onnx_text(graph->initializer[i]->name));
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t k = 0; k < graph->node[i]->n_output; k++)
            add_inner(o, &in, graph->node[i]->output[k]);
    for (size_t i = 0; i < graph->n_node && !o->oom; i++)
        visit_node(o, &in, graph->node[i], f);
    for (size_t i = 0; i < graph->n_output; i++)
        visit_name(o, &in, onnx_text(graph->output[i]->name), f);
}

static void visit_reads(orderer *o, int node, read_visitor *f) {
    o->node = node;
    visit_node(o, NULL, o->nodes[node], f);
}

static void check_sorted(orderer *o, int def) {
    if (def >= o->node)
        o->sorted = false;
}

static void add_edge(orderer *o, int def) {
    edge *e = GQAC_ARENA_NEW(o->scope->im->scratch, edge);
    if (!e) {
        o->oom = true;
        return;
    }
    *e = (edge){o->node, o->users[def]};
    o->users[def] = e;
    o->missing[o->node]++;
}

static void find_missing(orderer *o, int def) {
    if (o->missing[def] > 0)
        o->wanted = def;
}

/* ---- the heap of nodes that could come next ------------------------------ */

static void push(orderer *o, int node) {
    int i = o->n_heap++;
    for (; i > 0 && o->heap[(i - 1) / 2] > node; i = (i - 1) / 2)
        o->heap[i] = o->heap[(i - 1) / 2];
    o->heap[i] = node;
}

static int pop(orderer *o) {
    int top = o->heap[0], last = o->heap[--o->n_heap], i = 0;
    for (;;) {
        int child = 2 * i + 1;
        if (child + 1 < o->n_heap && o->heap[child + 1] < o->heap[child])
            child++;
        if (child >= o->n_heap || o->heap[child] >= last)
            break;
        o->heap[i] = o->heap[child];
        i = child;
    }
    o->heap[i] = last;
    return top;
}

/* ---- sorting ------------------------------------------------------------- */

/* Reports a cycle: from any remaining node, a walk to nodes that must come before ends in one. */
static gqac_status cycle(orderer *o) {
    importer *im = o->scope->im;
    int at = 0;
    while (o->missing[at] == 0)
        at++;
    for (int i = 0; i <= o->n && !o->oom; i++) {
        o->wanted = at;
        visit_reads(o, at, find_missing);
        at = o->wanted;
    }
    if (o->oom)
        return onnx_oom(im);
    gqac_diag_set(im->diag, GQAC_INVALID_MODEL, "the graph has a cycle through this node");
    onnx_where(im, o->nodes[at]);
    return GQAC_INVALID_MODEL;
}

static gqac_status sort(orderer *o, int *order) {
    gqac_arena *scratch = o->scope->im->scratch;
    o->users = GQAC_ARENA_ARRAY(scratch, edge *, (size_t)o->n);
    o->missing = GQAC_ARENA_ARRAY(scratch, int, (size_t)o->n);
    o->heap = GQAC_ARENA_ARRAY(scratch, int, (size_t)o->n);
    if (!o->users || !o->missing || !o->heap)
        return onnx_oom(o->scope->im);
    for (int i = 0; i < o->n && !o->oom; i++)
        visit_reads(o, i, add_edge);
    if (o->oom)
        return onnx_oom(o->scope->im);
    int done = 0;
    for (int i = 0; i < o->n; i++)
        if (o->missing[i] == 0)
            push(o, i);
    while (o->n_heap > 0) {
        int node = order[done++] = pop(o);
        for (edge *e = o->users[node]; e; e = e->next)
            if (--o->missing[e->node] == 0)
                push(o, e->node);
    }
    return done == o->n ? GQAC_OK : cycle(o);
}

gqac_status onnx_order(const onnx_scope *scope, size_t n, Onnx__NodeProto *const *nodes,
                       const int **out) {
    orderer o = {.scope = scope, .nodes = nodes, .n = (int)n, .sorted = true};
    int *order = GQAC_ARENA_ARRAY(scope->im->scratch, int, n);
    if (!order)
        return onnx_oom(scope->im);
    for (int i = 0; i < o.n && !o.oom; i++) {
        order[i] = i;
        visit_reads(&o, i, check_sorted);
    }
    if (o.oom)
        return onnx_oom(scope->im);
    *out = order;
    return o.sorted ? GQAC_OK : sort(&o, order);
}
