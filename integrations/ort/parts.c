/* The parts of a graph that gqac can run, where it cannot run the whole.
 *
 * gqac itself is asked about each node, by opening a model of that node alone. The nodes that it
 * can run are divided into convex sets (convex.h), and each set is opened as a model of its own.
 * Those that pay are claimed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"

/* A part pays if it has attention with its cache, or if each row of its input is multiplied by at
 * least so many bytes of weights; then a call of it costs little beside its work. */
enum { LEAST_WEIGHTS = 1 << 20 };

typedef struct search {
    provider *p;
    const ort_graph *graph;
    graph_links links;
    bool *runs;             /* [n]: gqac can run the node */
    int *alone, *set;       /* [n]: each node in a set of its own; the sets of convex.h */
    const ort_node **nodes; /* [n]: those of one set */
    size_t n_claimed;
} search;

/* Finds out whether gqac can run the node. */
static ort_status *check_node(search *s, int node) {
    const graph_part one = {&s->links, s->alone, node};
    gqac_program *program;
    char why[sizeof(gqac_diag)] = "";
    ORT_TRY(open_part(s->p, s->graph, &one, "ref", &program, why, sizeof why));
    s->runs[node] = program != NULL;
    gqac_program_free(program);
    return NULL;
}

static ort_status *claim_set(search *s, const graph_part *of, ort_support *support) {
    size_t n = 0;
    for (size_t i = 0; i < s->links.n; i++)
        if (s->set[i] == of->which)
            s->nodes[n++] = s->links.nodes[i];
    s->n_claimed += n;
    return claim_nodes(s->p, s->nodes, n, support);
}

/* Opens a set, and claims it if it pays. */
static ort_status *try_set(search *s, int which, ort_support *support) {
    const graph_part of = {&s->links, s->set, which};
    provider *p = s->p;
    gqac_program *program;
    const gqac_kv_pair *pairs;
    char why[sizeof(gqac_diag)] = "";
    int64_t weights;
    ORT_TRY(open_part(p, s->graph, &of, NULL, &program, why, sizeof why));
    if (!program) {
        provider_log(p, ORT_LOG_WARNING, "leaves a part of the model to other providers", why);
        return NULL;
    }
    ort_status *status = graph_part_weights(p->api, &of, &weights);
    if (status || (weights < LEAST_WEIGHTS && !gqac_program_kv_pairs(program, &pairs))) {
        gqac_program_free(program);
        return status;
    }
    if (provider_add(p, program))
        return claim_set(s, &of, support);
    gqac_program_free(program);
    return status_no_memory(p->api);
}

static ort_status *find_parts(search *s, ort_support *support) {
    const ort_api *api = s->p->api;
    const int n = (int)s->links.n;
    s->runs = calloc(s->links.n + 1, sizeof *s->runs);
    s->alone = calloc(s->links.n + 1, sizeof *s->alone);
    s->set = calloc(s->links.n + 1, sizeof *s->set);
    s->nodes = calloc(s->links.n + 1, sizeof *s->nodes);
    if (!s->runs || !s->alone || !s->set || !s->nodes)
        return status_no_memory(api);
    for (int i = 0; i < n; i++)
        s->alone[i] = i;
    for (int i = 0; i < n; i++)
        ORT_TRY(check_node(s, i));
    const int n_sets = convex_sets(n, s->runs, s->links.n_edges, s->links.edges, s->set);
    if (n_sets == -1)
        return status_no_memory(api);
    for (int i = 0; i < n_sets; i++)
        ORT_TRY(try_set(s, i, support));
    return NULL;
}

ort_status *parts_claim(provider *p, const ort_graph *graph, const char *why,
                        ort_support *support) {
    search s = {.p = p, .graph = graph};
    char text[128];
    ORT_TRY(graph_links_open(p->api, graph, &s.links));
    ort_status *status = find_parts(&s, support);
    snprintf(text, sizeof text, "runs %zu of %zu nodes of this model, in %zu part%s", s.n_claimed,
             s.links.n, p->n_parts, p->n_parts == 1 ? "" : "s");
    if (!status)
        provider_log(p, ORT_LOG_WARNING, p->n_parts ? text : "runs nothing of this model", why);
    free(s.runs);
    free(s.alone);
    free(s.set);
    free(s.nodes);
    graph_links_close(&s.links);
    return status;
}
