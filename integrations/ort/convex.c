/* Convex sets: see convex.h.
 *
 * A node's phase is the greatest number of times that a path to it changes from a node that is not
 * wanted to one that is. Phases never decrease along an edge, so a path between two wanted nodes of
 * one phase passes only wanted nodes of that phase: the connected components of a phase are convex,
 * also all of them together. Then components of different phases are united as long as no path
 * between them passes a third one. */
#include "convex.h"

#include <stdlib.h>
#include <string.h>

typedef struct state {
    int n;
    size_t n_edges;
    const convex_edge *edges;
    const bool *wanted;
    int *begin, *to; /* node i is read by to[begin[i]] ... to[begin[i + 1] - 1] */
    int *phase;
    int *group; /* the lowest node of the node's group; nodes that are not wanted are alone */
    int *next;  /* the members of a group, in a ring */
    int *stack; /* nodes to visit */
    int *seen;  /* of a group: the number of the last search that visited it */
    int searches;
} state;

static bool state_open(state *s) {
    const size_t n = (size_t)s->n + 2;
    s->begin = calloc(n, sizeof *s->begin);
    s->to = calloc(s->n_edges + 1, sizeof *s->to);
    s->phase = calloc(n, sizeof *s->phase);
    s->group = calloc(n, sizeof *s->group);
    s->next = calloc(n, sizeof *s->next);
    s->stack = calloc(n, sizeof *s->stack);
    s->seen = calloc(n, sizeof *s->seen);
    return s->begin && s->to && s->phase && s->group && s->next && s->stack && s->seen;
}

static void state_close(state *s) {
    free(s->begin);
    free(s->to);
    free(s->phase);
    free(s->group);
    free(s->next);
    free(s->stack);
    free(s->seen);
}

static void list_readers(state *s) {
    for (size_t e = 0; e < s->n_edges; e++)
        s->begin[s->edges[e].from + 2]++;
    for (int i = 0; i < s->n; i++)
        s->begin[i + 2] += s->begin[i + 1];
    for (size_t e = 0; e < s->n_edges; e++)
        s->to[s->begin[s->edges[e].from + 1]++] = s->edges[e].to;
}

/* Visits the nodes in a topological order. False: there is a cycle. */
static bool find_phases(state *s) {
    int *missing = s->seen, top = 0, visited = 0;
    for (size_t e = 0; e < s->n_edges; e++)
        missing[s->edges[e].to]++;
    for (int i = 0; i < s->n; i++)
        if (!missing[i])
            s->stack[top++] = i;
    while (top) {
        const int from = s->stack[--top];
        visited++;
        for (int k = s->begin[from]; k < s->begin[from + 1]; k++) {
            const int to = s->to[k];
            const int phase = s->phase[from] + (s->wanted[to] && !s->wanted[from]);
            if (phase > s->phase[to])
                s->phase[to] = phase;
            if (--missing[to] == 0)
                s->stack[top++] = to;
        }
    }
    return visited == s->n; /* and all of `seen` is 0 again */
}

static void unite(state *s, int a, int b) {
    const int least = a < b ? a : b, other = a < b ? b : a;
    for (int i = other;;) {
        s->group[i] = least;
        if (s->next[i] == other) { /* the last one: join the rings */
            s->next[i] = s->next[least];
            s->next[least] = other;
            return;
        }
        i = s->next[i];
    }
}

/* True if a path leads from group a to group b through at least one other group. */
static bool detours(state *s, int a, int b) {
    int top = 0;
    s->searches++;
    s->seen[a] = s->searches;
    for (int i = a, first = 1; first || i != a; i = s->next[i], first = 0)
        s->stack[top++] = i;
    while (top) {
        const int from = s->stack[--top];
        for (int k = s->begin[from]; k < s->begin[from + 1]; k++) {
            const int at = s->group[s->to[k]];
            if (at == b && s->group[from] != a)
                return true;
            if (at == b || s->seen[at] == s->searches)
                continue;
            s->seen[at] = s->searches;
            for (int i = at, first = 1; first || i != at; i = s->next[i], first = 0)
                s->stack[top++] = i;
        }
    }
    return false;
}

/* Unites the groups that edges connect: those of one phase, or all between which no path passes a
 * third one. Each edge is looked at once. That is enough: of two groups without a detour between
 * them, an edge has not been looked at yet, and uniting two groups never takes away the last detour
 * to a third group unless the one next to it had none. */
static void unite_all(state *s, bool phases) {
    for (size_t e = 0; e < s->n_edges; e++) {
        const int from = s->edges[e].from, to = s->edges[e].to;
        const int a = s->group[from], b = s->group[to];
        if (a == b || !s->wanted[from] || !s->wanted[to])
            continue;
        if (phases ? s->phase[from] == s->phase[to] : !detours(s, a, b))
            unite(s, a, b);
    }
}

int convex_sets(int n, const bool *wanted, size_t n_edges, const convex_edge *edges, int *set) {
    state s = {.n = n, .n_edges = n_edges, .edges = edges, .wanted = wanted};
    int n_sets = state_open(&s) ? 0 : -1;
    if (!n_sets) {
        list_readers(&s);
        n_sets = find_phases(&s) ? 0 : -2;
    }
    if (n_sets) {
        state_close(&s);
        return n_sets;
    }
    for (int i = 0; i < n; i++)
        s.group[i] = s.next[i] = i;
    unite_all(&s, true);
    unite_all(&s, false);
    for (int i = 0; i < n; i++) {
        if (!wanted[i])
            set[i] = -1;
        else
            set[i] = s.group[i] == i ? n_sets++ : set[s.group[i]];
    }
    state_close(&s);
    return n_sets;
}
