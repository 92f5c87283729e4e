/* y [B,S,Hq*Dv] in v's element type, from p [B,Hq,S,T] fp32 and v [B,Hkv,T,Dv]:
 *   y[b,i,h,d] = sum over lo <= j < hi of p[b,h,i,j] * v[b,h/G,j,d]
 * One fma chain over j, ascending, from zero; one rounding. Other keys enter no arithmetic. */
#include "ops/attention.h"

#include <string.h>

#include "ops/kernel.h"

enum { QUERIES = 8 /* rows of a unit of work */, STEP = 4 /* keys in one step */ };

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, 0, 4, diag));
    GQAC_TRY(attention_want_rank(node, 1, 4, diag));
    const ir_dim *dims[3] = {
        op_in_dim(node, 0, 0), op_in_dim(node, 0, 2),
        ir_dim_mul(op_dims(node), op_in_dim(node, 0, 1), op_in_dim(node, 1, 3))};
    return op_set_type(node, 0, op_in_type(node, 1).dtype, 3, dims, diag);
}

typedef struct weighing {
    const float *p;
    const gqac_tensor *v;
    gqac_tensor *y;
    const int32_t *lo, *hi;
    int64_t q_heads, kv_heads, rows, keys, size, blocks;
    int threads;
    op_scratch scratch;
} weighing;

/* Adds the visible ones among n keys from `first` on to the sums acc[size] of one query; rows is
 * [STEP][size]. */
OP_BODY void add_keys_body(const float *p, const float *rows, int64_t size, int64_t first,
                           int64_t n, int64_t lo, int64_t hi, float *acc) {
    if (n == STEP && lo <= first && first + STEP <= hi) {
        const float *at[STEP] = {rows, rows + size, rows + 2 * size, rows + 3 * size};
        op_axpy4(acc, p + first, at, size);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        if (lo <= first + i && first + i < hi)
            op_axpy(acc, p[first + i], rows + i * size, size);
}
OP_KERNEL(add_keys,
          (const float *p, const float *rows, int64_t size, int64_t first, int64_t n, int64_t lo,
           int64_t hi, float *acc),
          (p, rows, size, first, n, lo, hi, acc))

typedef struct unit {
    int64_t b, g, row, n_rows; /* batch row, key/value head, queries [row, row + n_rows) */
    int64_t lo, hi;            /* keys that any of these queries attends to */
    float *acc, *values;
} unit;

/* The chains of all queries of a unit over the keys [from, to). */
static void add_range(const weighing *w, const unit *u, int64_t from, int64_t to) {
    int64_t group = w->q_heads / w->kv_heads;
    for (int64_t j = from; j < to; j += STEP) {
        int64_t n = to - j < STEP ? to - j : STEP;
        op_get_f32s(w->v, ((u->b * w->kv_heads + u->g) * w->keys + j) * w->size, n * w->size,
                    u->values);
        for (int64_t i = 0; i < group * u->n_rows; i++) {
            int64_t h = u->g * group + i / u->n_rows, s = u->row + i % u->n_rows;
            const float *p = w->p + ((u->b * w->q_heads + h) * w->rows + s) * w->keys;
            add_keys(p, u->values, w->size, j, n, w->lo[u->b * w->rows + s],
                     w->hi[u->b * w->rows + s], u->acc + i * w->size);
        }
    }
}

static void run_unit(const weighing *w, unit *u) {
    int64_t group = w->q_heads / w->kv_heads, count = group * u->n_rows * w->size;
    memset(u->acc, 0, (size_t)count * sizeof *u->acc);
#ifdef GQAC_CONTROL_THREAD_SPLIT /* negative control: the sum is cut by the number of threads */
    int64_t share = (u->hi - u->lo + w->threads - 1) / w->threads;
    float *part = u->values + STEP * w->size, *sum = u->acc;
    u->acc = part;
    for (int64_t j = u->lo; j < u->hi; j += share) {
        memset(part, 0, (size_t)count * sizeof *part);
        add_range(w, u, j, j + share < u->hi ? j + share : u->hi);
        for (int64_t i = 0; i < count; i++)
            sum[i] += part[i];
    }
    u->acc = sum;
#else
    add_range(w, u, u->lo, u->hi);
#endif
    for (int64_t i = 0; i < count; i++)
        u->acc[i] = op_one_nan(u->acc[i]);
    for (int64_t i = 0; i < group * u->n_rows; i++) {
        int64_t h = u->g * group + i / u->n_rows, s = u->row + i % u->n_rows;
        op_put_f32s(w->y, ((u->b * w->rows + s) * w->q_heads + h) * w->size, w->size,
                    u->acc + i * w->size);
    }
}

/* Items are (b, key/value head, block of queries). */
static void run(void *arg, size_t begin, size_t end, int worker) {
    const weighing *w = arg;
    float *memory = (float *)(void *)(w->scratch.base + (size_t)worker * w->scratch.stride);
    for (size_t item = begin; item < end; item++) {
        int64_t rest = (int64_t)item / w->blocks;
        unit u = {.b = rest / w->kv_heads,
                  .g = rest % w->kv_heads,
                  .row = (int64_t)item % w->blocks * QUERIES,
                  .lo = w->keys,
                  .acc = memory,
                  .values = memory + w->q_heads / w->kv_heads * QUERIES * w->size};
        u.n_rows = w->rows - u.row < QUERIES ? w->rows - u.row : QUERIES;
        for (int64_t s = u.row; s < u.row + u.n_rows; s++) {
            int64_t lo = w->lo[u.b * w->rows + s], hi = w->hi[u.b * w->rows + s];
            if (lo < hi && lo < u.lo)
                u.lo = lo;
            if (lo < hi && hi > u.hi)
                u.hi = hi;
        }
        run_unit(w, &u);
    }
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want(call, 0, GQAC_F32));
    GQAC_TRY(attention_float(call, 0, 4));
    GQAC_TRY(attention_float(call, 1, 4));
    const gqac_tensor *p = call->in[0], *v = call->in[1];
    weighing w = {.p = p->data,
                  .v = v,
                  .y = &call->out[0],
                  .q_heads = p->dims[1],
                  .kv_heads = v->dims[1],
                  .rows = p->dims[2],
                  .keys = p->dims[3],
                  .size = v->dims[3],
                  .blocks = (p->dims[2] + QUERIES - 1) / QUERIES,
                  .threads = call->pool ? gqac_pool_threads(call->pool) : 1};
    if (v->dims[0] != p->dims[0] || v->dims[2] != w.keys || w.kv_heads < 1 ||
        w.q_heads % w.kv_heads != 0)
        return attention_mismatch(call, "values", v, "probabilities", p);
    GQAC_TRY(attention_ranges(call, 2, p->dims[0], w.rows, w.keys, &w.lo, &w.hi));
    int64_t dims[3] = {p->dims[0], w.rows, w.q_heads * w.size};
    GQAC_TRY(op_output(call, 0, v->dtype, 3, dims));
    int64_t acc = w.q_heads / w.kv_heads * QUERIES * w.size;
    GQAC_TRY(op_scratch_open(call, (size_t)(2 * acc + STEP * w.size), sizeof(float), &w.scratch));
    op_parallel(call, dims[0] * w.kv_heads * w.blocks, 1 + acc * w.keys / 8, run, &w);
    op_scratch_close(&w.scratch);
    return GQAC_OK;
}

const gqac_op gqac_op_weigh = {
    .schema = {.name = "weigh",
               .domain = "gqac",
               .since = 1,
               .inputs = "p v lo hi",
               .outputs = "y",
               .rows = IR_ROWS_STATE,
               .doc = "y [B,S,Hq*Dv] = p v over the visible keys, rounded once"},
    .infer = infer,
    .eval = eval,
};
