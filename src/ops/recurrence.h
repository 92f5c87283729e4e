/* The recurrence of LinearAttention, for the op's eval and for kernels of targets:
 *   q [B,S,Hq*dk], k [B,S,Hk*dk], v [B,S,Hkv*dv], decay [B,S,Hkv*dk|Hkv]?, beta [B,S,Hkv|1]?
 *   -> y [B,S,max(Hq,Hkv)*dv], and the state M [Hkv,dk,dv] of each sequence:
 *   M = exp(decay) * M                       gated, gated_delta
 *   u = v, or beta * (v - M^T k)             delta, gated_delta
 *   M = M + k (x) u,  y = scale * M^T q
 * Hk is Hkv, or divides it: then Hkv / Hk heads of v share a head of k. All in fp32; each sum is
 * one chain over dk. The state is rounded to its type after every token, so that results do not
 * depend on where calls end. */
#ifndef GQAC_OPS_RECURRENCE_H
#define GQAC_OPS_RECURRENCE_H

#include "ops/work.h"

enum { RECURRENCE_GATED = 1, RECURRENCE_DELTA = 2 }; /* bits of a rule; linear: none */

/* The attributes of the node. */
typedef struct recurrence_form {
    int64_t q_heads, kv_heads;
    float scale; /* 0: 1/sqrt(dk) */
    int rule;
} recurrence_form;

/* decay and beta are read only if the rule has them. */
typedef struct recurrence_operands {
    const gqac_tensor *q, *k, *v, *decay, *beta;
} recurrence_operands;

/* The states of `n` sequences. Sequence b is row b of the batch, or all sequences are packed in
 * [1,N,..]. */
typedef struct recurrence_states {
    gqac_dtype dtype;
    int64_t n;
    const void *arg;
    /* Returns the number of tokens of sequence b, and sets *first to the row of its first token
     * among B*S rows. Rows of no sequence become zeros. */
    int64_t (*tokens)(const void *arg, int64_t b, int64_t *first);
    const void *(*before)(const void *arg, int64_t b); /* NULL: zeros */
    /* Returns the memory of the i-th state to store, and sets *tokens to the number of tokens after
     * which it is stored (ascending); NULL: there is none. */
    void *(*after)(const void *arg, int64_t b, int i, int64_t *tokens);
} recurrence_states;

typedef struct recurrence {
    const gqac_tensor *q, *k, *v, *decay, *beta;
    int64_t tokens; /* S */
    int64_t q_heads, k_heads, kv_heads;
    int64_t dk, dv;        /* a state is [kv_heads,dk,dv] */
    int64_t decays, betas; /* of one token: decays kv_heads * dk or kv_heads */
    int64_t out[3];        /* the shape of y */
    float scale;
    int rule;
    const recurrence_states *states;
    gqac_tensor *y; /* of the type of q */
    op_scratch scratch;
} recurrence;

/* Checks operands and sets *r, except states and y, which the caller sets. INVALID_INPUT: wrong
 * types or shapes; LIMIT: a state is too large. */
gqac_status recurrence_fit(const op_work *work, const recurrence_form *form,
                           const recurrence_operands *in, recurrence *r);
/* Computes all rows. NO_MEMORY: scratch could not be allocated. */
gqac_status recurrence_run(const op_work *work, recurrence *r);
/* Adds the scratch of recurrence_run to `parts`. */
void recurrence_measure(const recurrence *r, int threads, gqac_parts *parts);

#endif
