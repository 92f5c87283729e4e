/* A remote tier in memory, which can be made to fail, to be slow and to lie. */
#ifndef GQAC_TEST_STORE_SUPPORT_TIER_H
#define GQAC_TEST_STORE_SUPPORT_TIER_H

#include <gqac/store.h>

typedef enum tier_fault {
    TIER_SOUND,
    TIER_DOWN,       /* every call fails */
    TIER_GET_FAILS,  /* only get fails */
    TIER_FIND_LATE,  /* find answers after the time is over */
    TIER_FORGETS,    /* what find found is gone */
    TIER_FLIPS,      /* bit 0 of the byte `at` of each value is the other one */
    TIER_SWAPS,      /* the value of another key, of the same size if there is one */
    TIER_CUTS,       /* values are `at` bytes long, in find and get */
    TIER_CUTS_LATER, /* the same, in get alone */
    TIER_HUGE        /* find reports `at` bytes for every key */
} tier_fault;

typedef struct tier_value {
    gqac_store_key key;
    unsigned char *data;
    size_t bytes;
} tier_value;

typedef struct tier {
    tier_value *values;
    size_t n, capacity;
    tier_fault fault;
    size_t at;
    int calls;             /* of any function */
    const tier_value *all; /* get returns this for every key, and find its size; NULL: no */
} tier;

void tier_free(tier *t);
/* The functions on a tier, which must outlive the store that gets them. */
gqac_store_remote tier_functions(tier *t);

#endif
