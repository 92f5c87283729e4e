/* A remote tier in memory, which can be made to fail, to be slow and to return wrong data. */
#ifndef GQAC_TEST_STORE_SUPPORT_TIER_H
#define GQAC_TEST_STORE_SUPPORT_TIER_H

#include <gqac/store.h>

typedef enum tier_fault {
    TIER_SOUND,
    TIER_DOWN,       /* every call fails */
    TIER_GET_FAILS,  /* only get fails */
    TIER_FIND_LATE,  /* find answers after the time limit */
    TIER_FORGETS,    /* values that find found are gone */
    TIER_FLIPS,      /* bit 0 of the byte `at` of each value is flipped */
    TIER_SWAPS,      /* the value of another key, of the same size if there is one */
    TIER_CUTS,       /* values are truncated to `at` bytes, in find and get */
    TIER_CUTS_LATER, /* the same, but only in get */
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
    const tier_value *all; /* get returns this for every key, and find its size; NULL: disabled */
} tier;

void tier_free(tier *t);
/* The functions of a tier, which must outlive the store that uses them. */
gqac_store_remote tier_functions(tier *t);

#endif
