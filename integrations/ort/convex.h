/* Dividing the nodes of a graph into convex sets, which can each be computed as one node. */
#ifndef GQAC_ORT_CONVEX_H
#define GQAC_ORT_CONVEX_H

#include <stdbool.h>
#include <stddef.h>

typedef struct convex_edge { /* node `to` reads an output of node `from` */
    int from, to;
} convex_edge;

/* Divides the wanted ones of n nodes into sets: set[i] becomes the number of the set of node i, and
 * -1 if it is not wanted. Each set is connected. If each is made one node, the graph still has no
 * cycle: no path leaves a set and returns to it, through other nodes or other sets. The sets are
 * maximal: no two that an edge connects could be one. They are numbered by their first nodes.
 * Returns the number of sets; -1: out of memory; -2: the edges form a cycle. */
int convex_sets(int n, const bool *wanted, size_t n_edges, const convex_edge *edges, int *set);

#endif
