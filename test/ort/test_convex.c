/* Convex sets of random graphs, checked against the definition by brute force: each set is merged
 * into one node, and paths are found in the matrix of all edges between the remaining nodes. */
#include "unit.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../integrations/ort/convex.h"

enum { MOST = 24 };

typedef struct graph {
    int n;
    bool wanted[MOST];
    size_t n_edges;
    convex_edge edges[MOST * MOST];
} graph;

static uint64_t seed = 88172645463325252u;

static int below(int n) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (int)(seed % (uint64_t)n);
}

/* Nodes are numbered at random, so their order means nothing. */
static void make(graph *g) {
    int order[MOST];
    const int density = 1 + below(5), share = 1 + below(9);
    g->n = 1 + below(MOST);
    g->n_edges = 0;
    for (int i = 0; i < g->n; i++) {
        const int at = below(i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (int i = 0; i < g->n; i++) {
        g->wanted[i] = below(10) < share;
        for (int k = 0; k < i; k++)
            if (below(g->n) < density)
                g->edges[g->n_edges++] = (convex_edge){order[k], order[i]};
    }
}

/* True if the graph has a cycle after all nodes with the same number are merged. */
static bool cyclic(const graph *g, const int *number) {
    bool path[MOST][MOST] = {{false}};
    for (size_t e = 0; e < g->n_edges; e++) {
        const int from = number[g->edges[e].from], to = number[g->edges[e].to];
        if (from != to)
            path[from][to] = true;
    }
    for (int k = 0; k < g->n; k++)
        for (int i = 0; i < g->n; i++)
            for (int j = 0; path[i][k] && j < g->n; j++)
                path[i][j] |= path[k][j];
    for (int i = 0; i < g->n; i++)
        if (path[i][i])
            return true;
    return false;
}

/* Numbers all nodes: by the first node of their set, or by themselves if they are in none. */
static void number_nodes(const graph *g, const int *set, int *number) {
    for (int i = 0; i < g->n; i++) {
        number[i] = i;
        for (int k = i - 1; k >= 0 && set[i] >= 0; k--)
            if (set[k] == set[i])
                number[i] = k;
    }
}

static bool connected(const graph *g, const int *number, int which) {
    bool reached[MOST] = {false}, changed = true;
    reached[which] = true;
    while (changed) {
        changed = false;
        for (size_t e = 0; e < g->n_edges; e++) {
            const int a = g->edges[e].from, b = g->edges[e].to;
            if (number[a] != which || number[b] != which || reached[a] == reached[b])
                continue;
            reached[a] = reached[b] = changed = true;
        }
    }
    for (int i = 0; i < g->n; i++)
        if (number[i] == which && !reached[i])
            return false;
    return true;
}

/* True if two sets connected by an edge could be merged. */
static bool can_grow(const graph *g, const int *number) {
    for (size_t e = 0; e < g->n_edges; e++) {
        int united[MOST];
        const int a = g->edges[e].from, b = g->edges[e].to;
        if (!g->wanted[a] || !g->wanted[b] || number[a] == number[b])
            continue;
        for (int i = 0; i < g->n; i++)
            united[i] = number[i] == number[b] ? number[a] : number[i];
        if (!cyclic(g, united))
            return true;
    }
    return false;
}

static void test_random(void) {
    int several = 0, grown = 0;
    for (int round = 0; round < unit_count(4000, 200000); round++) {
        graph g;
        int set[MOST], number[MOST], first = 0;
        make(&g);
        const int n_sets = convex_sets(g.n, g.wanted, g.n_edges, g.edges, set);
        number_nodes(&g, set, number);
        several += n_sets > 1;
        for (int i = 0; i < g.n; i++) {
            CU_ASSERT_EQUAL(set[i] >= 0, g.wanted[i]);
            CU_ASSERT(set[i] < n_sets && set[i] <= first); /* numbered by their first nodes */
            first += set[i] == first;
            CU_ASSERT(connected(&g, number, number[i]));
            grown += number[i] != i;
        }
        CU_ASSERT_EQUAL(first, n_sets);
        CU_ASSERT_FALSE(cyclic(&g, number));
        CU_ASSERT_FALSE(can_grow(&g, number));
    }
    CU_ASSERT(several > 1000 && grown > 1000);
}

/* Two sets that are convex separately, but depend on each other. */
static void test_mutual(void) {
    const bool wanted[] = {true, true, true, true, false, false};
    const convex_edge edges[] = {{0, 1}, {2, 3}, {0, 4}, {4, 3}, {2, 5}, {5, 1}};
    int set[6];
    CU_ASSERT_EQUAL(convex_sets(6, wanted, 6, edges, set), 3);
    CU_ASSERT((set[0] == set[1]) + (set[2] == set[3]) == 1);
}

/* A node that is read only by the second half belongs to it, although it could be computed
 * earlier. */
static void test_late(void) {
    const bool wanted[] = {true, true, false, true, true};
    const convex_edge edges[] = {{0, 2}, {2, 3}, {1, 3}, {3, 4}};
    int set[5];
    CU_ASSERT_EQUAL(convex_sets(5, wanted, 4, edges, set), 2);
    CU_ASSERT_EQUAL(set[1], set[4]);
    CU_ASSERT_EQUAL(set[2], -1);
}

static void test_ends(void) {
    const bool wanted[] = {true, true, true};
    const convex_edge cycle[] = {{0, 1}, {1, 2}, {2, 1}};
    int set[3];
    CU_ASSERT_EQUAL(convex_sets(0, wanted, 0, NULL, set), 0);
    CU_ASSERT_EQUAL(convex_sets(3, wanted, 0, NULL, set), 3);
    CU_ASSERT_EQUAL(convex_sets(3, wanted, 2, cycle, set), 1);
    CU_ASSERT_EQUAL(convex_sets(3, wanted, 3, cycle, set), -2);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"random graphs: convex, connected, maximal", test_random},
        {"two sets that would need each other", test_mutual},
        {"a node belongs to its readers", test_late},
        {"no node, no edge, a cycle", test_ends},
    };
    return unit_run("ort_convex", cases, sizeof cases / sizeof *cases, argc, argv);
}
