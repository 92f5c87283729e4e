/* Calls of GroupQueryAttention for tests: random shapes, lengths and inputs, and a function that
 * runs them. */
#ifndef GQAC_TEST_SUPPORT_GQA_H
#define GQAC_TEST_SUPPORT_GQA_H

#include "support_graph.h"

enum {
    QUERY,
    KEY,
    VALUE,
    PAST_KEY,
    PAST_VALUE,
    SEQLENS,
    TOTAL,
    COS,
    SIN,
    POSITION_IDS,
    BIAS,
    SINK,
    K_SCALE,
    V_SCALE,
    Q_NORM,
    K_NORM
};

/* One call of the op: its shape, and its inputs. */
typedef struct gqa_setup {
    gqac_arena *arena;
    gqac_dtype dtype;
    int batch, chunk, past_rows, total, q_heads, kv_heads, size;
    int rotary, interleaved, window;
    bool packed, has_past, norms;
    bool everyone, shared, smooth; /* causal = 0; key and value of zero length */
    int qk_output;
    int bits; /* of a code of the cache; 0: the cache contains values */
    bool per_channel;
    bool window_cache;          /* past_rows is the capacity of a window-sized cache */
    gqac_tensor whole[2];       /* in this case all rows of the past, [B,Hkv,max past,row] */
    int64_t positions[8 * 256]; /* [B,S], if there are position_ids */
    float scale, softcap;
    int past[8], fresh[8]; /* the expected results of seqlens_to_past */
    gqac_tensor in[16];
    bool present[16]; /* which inputs are present */
} gqa_setup;

void gqa_put(gqa_setup *s, int input, gqac_tensor tensor);
/* Elements [first, first + n) become NaN, or, with `garbage`, other noise. */
void gqa_poison(const gqac_tensor *t, int64_t first, int64_t n, test_random *garbage);
/* The same for all rows that nothing may read. */
void gqa_poison_unread(const gqa_setup *s, test_random *garbage);
/* The number of elements of a cached row, its element type, and its number of bytes. */
int gqa_row(const gqa_setup *s);
gqac_dtype gqa_cache_type(const gqa_setup *s);
size_t gqa_row_bytes(const gqa_setup *s);
/* The number of rows of `length` tokens that a window-sized cache of past_rows keeps, counted one
 * by one. */
int gqa_resident(const gqa_setup *s, int length);
/* Sets random inputs for the shape and the lengths that are set. */
void gqa_fill(gqa_setup *s, test_random *r);
/* A bias with some elements -inf. */
void gqa_fill_bias(gqa_setup *s, test_random *r);
void gqa_random_shape(gqa_setup *s, test_random *r);
/* Scales for the codes of the cache, some of them 0 or negative. */
void gqa_fill_scales(gqa_setup *s, test_random *r);
/* A new seed, or GQAC_TEST_SEED; printed. */
uint64_t gqa_seed(void);
/* True if two tensors have the same bytes. */
bool gqa_same_bits(const gqac_tensor *a, const gqac_tensor *b);
/* A random setup; rows that nothing may read contain NaN. */
gqa_setup gqa_random_setup(gqac_arena *arena, test_random *r);
/* Runs the op; if it fails, prints the message and returns false. */
bool gqa_run(const gqa_setup *s, const op_options *options, gqac_pool *pool, graph_run *run);

#endif
