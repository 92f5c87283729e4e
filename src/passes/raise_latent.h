/* The values that have a row for each cached token: raise_followed.c finds them, raise_latent.c
 * decides which of them a sequence caches. */
#ifndef GQAC_PASSES_RAISE_LATENT_H
#define GQAC_PASSES_RAISE_LATENT_H

#include "passes/raise.h"

/* A value with a row for each cached token along `axis`. */
typedef struct grown {
    ir_value *value;
    int axis;
    ir_value *past;      /* of the first Concat that it depends on; NULL: constant for all rows */
    const char *name;    /* of that past in the file */
    const ir_dim *batch; /* of the Concat */
    const ir_dim *cached, *fresh, *total; /* rows; total = cached + fresh */
    ir_value *rows;     /* the same value for the new rows alone; NULL: not made yet */
    bool source;        /* it is a Concat itself */
    bool moved;         /* its Concat has a row for each token, but is not [B,H,T,D] */
    bool second;        /* it is made of the second part of a past of keys and values */
    bool halved;        /* it is made of a part of such a past */
    bool weighed;       /* it depends on a product with weights */
    bool later, leaves; /* later values [B,H,T,D] depend on it; another node reads it */
    bool weighed_later; /* later values [B,H,T,D] that depend on it are weighed */
    bool after_cut;     /* it depends on a value that will be cached */
    bool replaced;      /* it is a cache that will be replaced, or depends on one */
} grown;

typedef struct latent {
    pass_context *context;
    ir_graph *graph;
    grown *all;
    int n, most;
    ir_builder b;
} latent;

/* What is known of the value; NULL: it has no row for each token. */
static inline grown *grown_of(const latent *l, const ir_value *value) {
    return value && value->id > 0 && value->id <= l->n ? &l->all[value->id - 1] : NULL;
}

/* The Concat that appends to a past that will be replaced; NULL: another graph input. */
static inline grown *grown_from(const latent *l, const ir_value *past) {
    return past && !past->def && past->id < 0 ? &l->all[-past->id - 1] : NULL;
}

/* Adds the results of a node that have a row for each token. The nodes come in order. False: there
 * are too many. */
bool raise_follow(latent *l, const ir_node *node);

#endif
