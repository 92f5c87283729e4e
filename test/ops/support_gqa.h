/* Calls of GroupQueryAttention for tests: random shapes, lengths and inputs, and running them. */
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

/* One call of the op: the shape, and what goes in. */
typedef struct gqa_setup {
    gqac_arena *arena;
    gqac_dtype dtype;
    int batch, chunk, past_rows, total, q_heads, kv_heads, size;
    int rotary, interleaved, window;
    bool packed, has_past, norms;
    bool everyone, shared, smooth; /* causal = 0; key and value of zero length */
    int qk_output;
    int bits; /* of a code of the cache, 0: it holds values */
    bool per_channel;
    bool window_cache;          /* past_rows is the capacity of a window-sized cache */
    gqac_tensor whole[2];       /* then all rows of the past, [B,Hkv,max past,row] */
    int64_t positions[8 * 256]; /* [B,S], when there are position_ids */
    float scale, softcap;
    int past[8], fresh[8]; /* what must come out of seqlens_to_past */
    gqac_tensor in[16];
    bool present[16]; /* which inputs there are */
} gqa_setup;

void gqa_put(gqa_setup *s, int input, gqac_tensor tensor);
/* Elements [first, first + n) become NaN, or `garbage` noise of another kind. */
void gqa_poison(const gqac_tensor *t, int64_t first, int64_t n, test_random *garbage);
/* The same for all rows that nobody may read. */
void gqa_poison_unread(const gqa_setup *s, test_random *garbage);
/* Elements of a cached row, its element type, and its bytes. */
int gqa_row(const gqa_setup *s);
gqac_dtype gqa_cache_type(const gqa_setup *s);
size_t gqa_row_bytes(const gqa_setup *s);
/* Rows that a window-sized cache of past_rows holds of `length` tokens, counted one by one. */
int gqa_resident(const gqa_setup *s, int length);
/* Inputs for the shape and the lengths that are set. */
void gqa_fill(gqa_setup *s, test_random *r);
/* A bias, some of it -inf. */
void gqa_fill_bias(gqa_setup *s, test_random *r);
void gqa_random_shape(gqa_setup *s, test_random *r);
/* Scales for codes of the cache, some of them 0 or negative. */
void gqa_fill_scales(gqa_setup *s, test_random *r);
/* A seed that nobody has used, or GQAC_TEST_SEED; printed. */
uint64_t gqa_seed(void);
/* Do two tensors have the same bytes? */
bool gqa_same_bits(const gqac_tensor *a, const gqac_tensor *b);
/* Everything at random; rows that nobody may read hold NaN. */
gqa_setup gqa_random_setup(gqac_arena *arena, test_random *r);
/* Runs the op; false with the message printed when it fails. */
bool gqa_run(const gqa_setup *s, const op_options *options, gqac_pool *pool, graph_run *run);

#endif
