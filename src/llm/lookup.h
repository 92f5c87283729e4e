/* Prompt lookup: where the last ids of a text occurred before, so that what followed there can be
 * drafted. The memory is 8 bytes an id, and an id is added in constant time; a search compares a
 * constant number of candidates, however long the text is. */
#ifndef GQAC_LLM_LOOKUP_H
#define GQAC_LLM_LOOKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOOKUP_LONGEST = 32 }; /* ids of a match that are compared */

typedef struct lookup { /* zeros: empty */
    size_t n;           /* pairs of ids that end before index n are listed */
    size_t heads;       /* a power of two */
    uint32_t *head; /* [heads] by hash: 1 + the index at which the newest such pair ends; 0: none */
    uint32_t *before; /* [capacity] the same for the pair before the one that ends at an index */
    size_t capacity;
} lookup;

/* Lists the pairs that end before the last id of a text of n ids; the ids before lookup.n must be
 * those of the last call. False: there is no memory. */
bool lookup_add(lookup *l, const int64_t *ids, size_t n);
/* Returns the index of the id that followed the longest earlier occurrence of the last ids (of the
 * latest, among equally long ones), and sets *length to the ids that are the same, from 2 to
 * LOOKUP_LONGEST; 0: the last two ids have not occurred before. */
size_t lookup_find(const lookup *l, const int64_t *ids, size_t n, size_t *length);
void lookup_free(lookup *l);

#endif
