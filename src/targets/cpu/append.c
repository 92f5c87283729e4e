/* A packed projection on its way to attention, in one call: heads are taken out of the packed row,
 * queries and keys are normalised and turned where the graph does so, and keys and values go
 * straight into the blocks of the cache. No head is copied on the way.
 *
 *   split_heads {kv} -> q: norm? rotary?                  -> result [B,Hq,S,D]
 *                    -> k: norm? rotary? kv_append        -> blocks
 *                    -> v: norm? rotary? kv_append        -> blocks
 *
 * The root is the kv_append that stands last. Each head of a row is computed by itself, as by the
 * kernel cpu_run_heads. */
#include <string.h>

#include "ops/rotary.h"
#include "targets/cpu/fuse_heads.h"
#include "targets/cpu/kv.h"
#include "targets/cpu/rows.h"

enum {
    Q,
    STREAMS = 3,
    ROWS = 64,     /* of a head that are made before they go into a block */
    NEW = 1,       /* input of kv_append, and its output of rows */
    OPERANDS = 16, /* most of a rotary */
};

typedef struct stream {
    const ir_node *norm, *rotary, *append; /* NULL: none */
    const norm *kind;
    const ir_value *result; /* before it is appended */
    int64_t first, heads;   /* in the packed row */
    cpu_head p;
    rotation r;
    unsigned char *y; /* of queries */
    int slot;
} stream;

typedef struct pattern {
    const ir_node *root, *split;
    ir_node **nodes; /* NULL: claim has fused them */
    int n;
    stream streams[STREAMS];
} pattern;

/* ---- the pattern --------------------------------------------------------- */

/* The node that reads a value as `input`, when the pattern may have it: nobody else reads it. */
static ir_node *reader(const pattern *p, const ir_value *value, int input) {
    const ir_use *use = value->uses;
    ir_node *node = use ? use->node : NULL;
    if (!node || node->graph != p->root->graph || use != &node->inputs[input])
        return NULL;
    if (!p->nodes)
        return ir_node_root(node) == p->root ? node : NULL;
    return use->next || node->fused_into ? NULL : node;
}

static void take(pattern *p, ir_node *node) {
    if (p->nodes && node != p->root)
        p->nodes[p->n] = node;
    p->n += node != p->root;
}

static bool find_stream(pattern *p, int i, int64_t size) {
    stream *s = &p->streams[i];
    s->result = ir_node_output(p->split, i);
    if (!s->result)
        return false;
    ir_node *node = reader(p, s->result, 0);
    if (node && (s->kind = cpu_head_norm(node, size))) {
        s->norm = node;
        take(p, node);
        s->result = ir_node_output(node, 0);
        node = reader(p, s->result, 0);
    }
    if (node && op_is(node, "gqac", "rotary") && cpu_match_heads(node)) {
        s->rotary = node;
        take(p, node);
        s->result = ir_node_output(node, 0);
    }
    if (i == Q)
        return true;
    node = reader(p, s->result, NEW);
    if (!node || !op_is(node, "gqac", "kv_append") || !cpu_kv_only_blocks(node))
        return false;
    s->append = node;
    take(p, node);
    return true;
}

static const ir_node *find_split(const ir_node *append) {
    const ir_value *v = ir_node_input(append, NEW);
    for (int up = 0; up < STREAMS && v && v->def; up++, v = ir_node_input(v->def, 0))
        if (op_is(v->def, "gqac", "split_heads"))
            return v->def;
    return NULL;
}

static bool find(pattern *p) {
    int64_t size, q, kv;
    p->split = find_split(p->root);
    if (!p->split || p->split->graph != p->root->graph || (p->nodes && p->split->fused_into))
        return false;
    const ir_type *x = &ir_node_input(p->split, 0)->type;
    const ir_value *first = ir_node_output(p->split, 0);
    q = ir_attr_int(p->split, "q");
    kv = ir_attr_int(p->split, "kv");
    if (kv == 0 || !first || !OP_IN(OP_FLOATS, x->dtype) || first->type.rank != 4 ||
        !ir_dim_is_const(first->type.dims[3], &size) || size > CPU_HEAD_SIZE)
        return false;
    take(p, (ir_node *)p->split);
    for (int i = 0; i < STREAMS; i++) {
        p->streams[i].first = i == Q ? 0 : q + (i - 1) * kv;
        p->streams[i].heads = i == Q ? q : kv;
        if (!find_stream(p, i, size))
            return false;
    }
    return p->streams[1].append == p->root || p->streams[2].append == p->root;
}

int cpu_fuse_append(const ir_node *root, ir_node **nodes) {
    pattern p = {.root = root, .nodes = nodes};
    return find(&p) ? p.n : 0;
}

/* ---- operands ------------------------------------------------------------ */

typedef struct job {
    pattern p;
    const struct cpu_row_kernels *kernels;
    const kv_batch *kv;
    const unsigned char *x;
    gqac_dtype type;             /* of x */
    int64_t batch, rows, width;  /* B, S, elements of a packed row */
    int64_t size, blocks, heads; /* D, runs of rows, Hq + 2 Hkv */
    op_scratch scratch;
} job;

static gqac_status open_rotary(op_call *call, const ir_node *node, const int64_t dims[4],
                               stream *s) {
    const gqac_tensor *in[OPERANDS] = {NULL};
    op_call inner = *call;
    for (int i = 1; i < node->n_inputs && i < OPERANDS; i++)
        in[i] = op_value(call, ir_node_input(node, i));
    inner.node = node;
    inner.in = in;
    GQAC_TRY(rotary_open(&inner, dims, &s->r));
    if (s->r.sin->dtype != s->r.cos->dtype)
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "cos and sin must have one type");
    s->p.half = s->r.half;
    s->p.interleaved = s->r.interleaved;
    s->p.table_type = s->r.cos->dtype;
    return GQAC_OK;
}

/* A kv_append of the group gives its token and rows that lie in blocks alone, where they are
 * wanted. */
static gqac_status open_append(op_call *call, job *j, stream *s) {
    const ir_node *node = s->append;
    gqac_tensor *token, *rows;
    const gqac_tensor fresh = {
        .dtype = s->p.type, .rank = 4, .dims = {j->batch, s->heads, j->rows, j->size}};
    s->slot = (int)ir_attr_int(node, "slot");
    GQAC_TRY(target_kv_check_rows(call, &fresh, s->slot));
    if (node->outputs[0])
        GQAC_TRY(op_give(call, node->outputs[0], GQAC_TOKEN, 0, NULL, &token));
    if (!node->outputs[NEW])
        return GQAC_OK;
    GQAC_TRY(op_give(call, node->outputs[NEW], GQAC_TOKEN, 0, NULL, &rows));
    *rows = fresh;
    rows->dims[2] = target_kv_total_rows(j->kv);
    return GQAC_OK;
}

static gqac_status open_stream(op_call *call, job *j, stream *s) {
    const int64_t dims[4] = {j->batch, s->heads, j->rows, j->size};
    gqac_tensor *y;
    s->p = (cpu_head){.size = j->size, .x_type = j->type, .type = j->type};
    if (s->norm)
        GQAC_TRY(cpu_open_head_norm(call, s->norm, s->kind, &s->p));
    if (s->rotary)
        GQAC_TRY(open_rotary(call, s->rotary, dims, s));
    if (s->append)
        return open_append(call, j, s);
    GQAC_TRY(op_give(call, s->result, s->p.type, 4, dims, &y));
    s->y = y->data;
    return GQAC_OK;
}

static gqac_status open_job(op_call *call, job *j) {
    const gqac_tensor *x = op_value(call, ir_node_input(j->p.split, 0));
    for (int i = 0; i < STREAMS; i++)
        j->heads += j->p.streams[i].heads;
    if (!j->kv || !x || !OP_IN(OP_FLOATS, x->dtype) || x->rank != 3 || x->dims[0] != j->kv->n ||
        x->dims[2] % j->heads != 0 || x->dims[2] / j->heads > CPU_HEAD_SIZE)
        OP_FAIL(j->p.split, call->diag, GQAC_INVALID_INPUT,
                "the input must be [B,S,hidden] with hidden a multiple of %lld heads of at most %d",
                (long long)j->heads, CPU_HEAD_SIZE);
    j->x = x->data;
    j->type = x->dtype;
    j->batch = x->dims[0];
    j->rows = x->dims[1];
    j->width = x->dims[2];
    j->size = j->width / j->heads;
    j->blocks = (j->rows + ROWS - 1) / ROWS;
    for (int i = 0; i < STREAMS; i++)
        GQAC_TRY(open_stream(call, j, &j->p.streams[i]));
    return GQAC_OK;
}

/* ---- running ------------------------------------------------------------- */

/* Rows [from, to) of a head; y of the first of them. */
static void make_rows(const job *j, const stream *s, int64_t b, int64_t head, int64_t from,
                      int64_t to, unsigned char *y) {
    const rotation *r = &s->r;
    const size_t row = (size_t)j->size * op_width(s->p.type), x_width = op_width(j->type);
    const size_t table = (size_t)r->half * op_width(s->p.table_type);
    for (int64_t i = from; i < to; i++, y += row) {
        const int64_t at = (b * j->rows + i) * j->width + (s->first + head) * j->size;
        const unsigned char *x = j->x + (size_t)at * x_width;
        if (!s->rotary && !s->norm) {
            memcpy(y, x, row);
        } else if (!s->rotary) {
            j->kernels->head(&s->p, x, NULL, NULL, y);
        } else if (rotary_is_pad(r, b, i)) {
            memset(y, 0, row);
        } else {
            const size_t line = (size_t)rotary_position(r, b, i) * table;
            j->kernels->head(&s->p, x, (const unsigned char *)r->cos->data + line,
                             (const unsigned char *)r->sin->data + line, y);
        }
    }
}

/* Items are runs of rows of one head. */
static void run_items(void *arg, size_t begin, size_t end, int worker) {
    const job *j = arg;
    unsigned char *room = j->scratch.base + (size_t)worker * j->scratch.stride;
    for (size_t item = begin; item < end; item++) {
        const int64_t block = (int64_t)item % j->blocks, at = (int64_t)item / j->blocks;
        const int64_t b = at / j->heads, from = block * ROWS;
        int64_t head = at % j->heads, to = from + ROWS < j->rows ? from + ROWS : j->rows;
        const stream *s = j->p.streams;
        for (; head >= s->heads; s++)
            head -= s->heads;
        if (s->y) {
            const int64_t row = (b * s->heads + head) * j->rows + from;
            make_rows(j, s, b, head, from, to,
                      s->y + (size_t)(row * j->size) * op_width(s->p.type));
            continue;
        }
        to = to < j->kv->count[b] ? to : j->kv->count[b];
        if (from >= to)
            continue;
        make_rows(j, s, b, head, from, to, room);
        kv_write_head(j->kv->sequences[b], s->slot, head, j->kv->past[b] + from, to - from, room);
    }
}

gqac_status cpu_run_append(op_call *call) {
    job j = {.p = {.root = call->node}, .kernels = cpu_level_of(call)->row, .kv = call->kv};
    if (!find(&j.p))
        OP_FAIL(call->node, call->diag, GQAC_INTERNAL, "heads to append are not where they were");
    GQAC_TRY(open_job(call, &j));
    GQAC_TRY(op_scratch_open(call, (size_t)(ROWS * j.size), sizeof(float), &j.scratch));
    const int64_t run = j.rows < ROWS ? j.rows : ROWS;
    op_parallel(call, j.batch * j.heads * j.blocks, 20 + run * (10 + j.size / 4), run_items, &j);
    op_scratch_close(&j.scratch);
    return GQAC_OK;
}
