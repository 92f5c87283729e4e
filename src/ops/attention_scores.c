/* s [B,Hq,S,T] fp32 from q [B,Hq,S,D], k [B,Hkv,T,D]:
 *   s[b,h,i,j] = scale * sum over d of q[b,h,i,d] * k[b,h/G,j,d]   for lo <= j < hi, else 0
 * The sum is one fma chain over d, ascending, from zero. Keys outside [lo, hi) take no part. */
#include "ops/attention.h"

#include <math.h>
#include <string.h>

#include "ops/kernel.h"

enum { KEYS = 64 }; /* keys of a unit of work */

static const ir_attr_spec attrs[] = {
    {"scale", IR_ATTR_FLOAT, .doc = "factor of the scores; absent: 1/sqrt(D)"},
    {.name = NULL},
};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, 0, 4, diag));
    GQAC_TRY(attention_want_rank(node, 1, 4, diag));
    const ir_dim *dims[4] = {op_in_dim(node, 0, 0), op_in_dim(node, 0, 1), op_in_dim(node, 0, 2),
                             op_in_dim(node, 1, 2)};
    return op_set_type(node, 0, GQAC_F32, 4, dims, diag);
}

typedef struct scores {
    const gqac_tensor *q, *k;
    const int32_t *lo, *hi;
    float *s;
    float scale;
    int64_t q_heads, kv_heads, rows, keys, size, tiles;
    op_scratch scratch;
} scores;

/* One query against the columns [from, to) of a tile kt [D][KEYS]. */
OP_BODY void query_tile_body(const float *q, const float *kt, int64_t size, int64_t from,
                             int64_t to, float scale, float *out) {
    float acc[KEYS] = {0};
    int64_t d = 0, n = to - from;
    for (; d + 4 <= size; d += 4) {
        const float *at = kt + d * KEYS + from;
        const float *rows[4] = {at, at + KEYS, at + (size_t)2 * KEYS, at + (size_t)3 * KEYS};
        op_axpy4(acc, q + d, rows, n);
    }
    for (; d < size; d++)
        op_axpy(acc, q[d], kt + d * KEYS + from, n);
    for (int64_t i = 0; i < n; i++)
        out[from + i] = scale * acc[i];
}
OP_KERNEL(query_tile,
          (const float *q, const float *kt, int64_t size, int64_t from, int64_t to, float scale,
           float *out),
          (q, kt, size, from, to, scale, out))

/* kt[d][i] = k[b,g,first+i,d] */
static void load_tile(const scores *c, int64_t b, int64_t g, int64_t first, int64_t n, float *kt,
                      float *row) {
    for (int64_t i = 0; i < n; i++) {
        op_get_f32s(c->k, ((b * c->kv_heads + g) * c->keys + first + i) * c->size, c->size, row);
#ifdef GQAC_CONTROL_UNROUNDED_CHUNK /* negative control: cached keys lose bits, new ones do not */
        for (int64_t d = 0; d < c->size && first + i + 1 < c->hi[b * c->rows]; d++)
            row[d] = gqn_as_f32(gqn_as_u32(row[d]) & 0xfffc0000u);
#endif
        for (int64_t d = 0; d < c->size; d++)
            kt[d * KEYS + i] = row[d];
    }
}

static int64_t clip(int64_t x, int64_t lo, int64_t hi) {
    return x < lo ? lo : x > hi ? hi : x;
}

/* Items are (b, key/value head, tile of keys); each owns its columns of all queries. */
static void run(void *arg, size_t begin, size_t end, int worker) {
    const scores *c = arg;
    float *kt = (float *)(void *)(c->scratch.base + (size_t)worker * c->scratch.stride);
    float *row = kt + c->size * KEYS;
    int64_t group = c->q_heads / c->kv_heads;
    for (size_t item = begin; item < end; item++) {
        int64_t first = (int64_t)item % c->tiles * KEYS, rest = (int64_t)item / c->tiles;
        int64_t b = rest / c->kv_heads, g = rest % c->kv_heads;
        int64_t n = clip(c->keys - first, 0, KEYS);
        load_tile(c, b, g, first, n, kt, row);
        for (int64_t i = 0; i < group * c->rows; i++) {
            int64_t h = g * group + i / c->rows, s = i % c->rows;
            int64_t query = (b * c->q_heads + h) * c->rows + s;
            int64_t from = clip(c->lo[b * c->rows + s] - first, 0, n);
            int64_t to = clip(c->hi[b * c->rows + s] - first, 0, n);
            float *out = c->s + query * c->keys + first;
            memset(out, 0, (size_t)n * sizeof *out);
            if (from >= to)
                continue;
            op_get_f32s(c->q, query * c->size, c->size, row);
            query_tile(row, kt, c->size, from, to, c->scale, out);
        }
    }
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(attention_float(call, 0, 4));
    GQAC_TRY(attention_float(call, 1, 4));
    const gqac_tensor *q = call->in[0], *k = call->in[1];
    scores c = {.q = q,
                .k = k,
                .scale = ir_attr_is_set(call->node, "scale") ? ir_attr_float(call->node, "scale")
                                                             : 1.0f / sqrtf((float)q->dims[3]),
                .q_heads = q->dims[1],
                .kv_heads = k->dims[1],
                .rows = q->dims[2],
                .keys = k->dims[2],
                .size = q->dims[3],
                .tiles = (k->dims[2] + KEYS - 1) / KEYS};
    if (k->dims[0] != q->dims[0] || k->dims[3] != c.size || c.kv_heads < 1 ||
        c.q_heads % c.kv_heads != 0)
        return attention_mismatch(call, "keys", k, "queries", q);
    GQAC_TRY(attention_ranges(call, 2, q->dims[0], c.rows, c.keys, &c.lo, &c.hi));
    int64_t dims[4] = {q->dims[0], c.q_heads, c.rows, c.keys};
    GQAC_TRY(op_output(call, 0, GQAC_F32, 4, dims));
    c.s = call->out[0].data;
    GQAC_TRY(op_scratch_open(call, (size_t)(c.size * (KEYS + 1)), sizeof(float), &c.scratch));
    int64_t cost = 1 + c.size * KEYS * (1 + c.q_heads / c.kv_heads * c.rows / 8);
    op_parallel(call, dims[0] * c.kv_heads * c.tiles, cost, run, &c);
    op_scratch_close(&c.scratch);
    return GQAC_OK;
}

const gqac_op gqac_op_attention_scores = {
    .schema = {.name = "attention_scores",
               .domain = "gqac",
               .since = 1,
               .inputs = "q k lo hi",
               .outputs = "s",
               .attrs = attrs,
               .rows = IR_ROWS_STATE,
               .doc = "s [B,Hq,S,T] = scale * q k^T for the visible keys, 0 elsewhere, fp32"},
    .infer = infer,
    .eval = eval,
};
