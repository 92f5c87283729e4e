/* Projections on their way to attention, in one call: heads are taken out of packed rows, queries
 * and keys are normalised and turned where the graph does so, and keys and values go straight to
 * where they are kept. No head is copied on the way.
 *
 *   x -> [fuse_heads.h] -> rotary?           -> queries [B,Hq,S,D] of the attention
 *   x -> [fuse_heads.h] -> rotary? append    -> keys, in the blocks or behind those of the past
 *   x -> [fuse_heads.h] -> rotary? append    -> values, likewise
 *
 * Each x is a value of its own, or they lie in one packed row, which split_heads {kv} or Split cuts
 * up. An append is a kv_append, whose rows go into blocks, or a concat_past_present. The root is
 * the append that stands last. Queries that would only be copied are read where they lie. Each head
 * of a row is computed by itself, as by the kernel cpu_run_heads. */
#include <string.h>

#include "ops/present.h"
#include "ops/rotary.h"
#include "targets/cpu/fuse_heads.h"
#include "targets/cpu/heads.h"
#include "targets/cpu/kv.h"

enum {
    Q, /* streams, and inputs of attention: queries, keys, values */
    STREAMS = 3,
    ROWS = 64,     /* of a head that are made before they go into a block */
    NEW = 1,       /* input of appends, and output of rows of kv_append */
    OPERANDS = 16, /* most of a rotary */
};

typedef struct stream {
    bool used;
    bool moves;                     /* its rows are made: j->heads counts its heads */
    const ir_node *rotary, *append; /* NULL: none */
    const ir_value *result;         /* before it is appended */
    fused_heads made;
    const ir_value *x;     /* [B,S,width], or with width 0 [B,heads,S,size] */
    int64_t column, width; /* of the first head; of a packed row */
    int64_t heads, size;
    int64_t step_b, step_h, step_s; /* of x, in elements */
    const unsigned char *data;      /* of x */
    cpu_head p;
    rotation r;
    int64_t rows;     /* of x */
    unsigned char *y; /* of queries; NULL: they are read where they lie */
    int slot;
    present_rows present; /* of a concat_past_present */
} stream;

typedef struct pattern {
    const ir_node *root, *split; /* split: of several streams; NULL: none */
    ir_node **nodes;             /* NULL: claim has fused them */
    int n;
    stream streams[STREAMS];
} pattern;

/* ---- the pattern --------------------------------------------------------- */

static bool is_free(const pattern *p, const ir_node *node) {
    if (!p->nodes)
        return ir_node_root(node) == p->root;
    return node == p->root || (node->graph == p->root->graph && !node->fused_into);
}

static bool is_concat(const ir_node *node) {
    return op_is(node, "gqac", "concat_past_present");
}

/* An append that the group may have, or has. */
static ir_node *append_of(const pattern *p, const ir_value *rows) {
    ir_node *node = rows ? rows->def : NULL;
    const bool is = node && is_free(p, node) && !(p->nodes && node->mark & TARGET_TAKEN);
    return is && (is_concat(node) || (op_is(node, "gqac", "kv_append") && cpu_kv_only_blocks(node)))
               ? node
               : NULL;
}

static ir_value *rows_of(const ir_node *append) {
    return ir_node_output(append, is_concat(append) ? 0 : NEW);
}

static void take(pattern *p, ir_node *node) {
    if (p->nodes && node != p->root && p->n < TARGET_MAX_FUSED)
        p->nodes[p->n] = node;
    p->n += node != p->root;
}

/* The node that makes a value of a stream, when the group may have it. */
static ir_node *maker(const pattern *p, const stream *s, const ir_value *value) {
    return cpu_head_maker(value, p->root, p->nodes != NULL, s->made.result);
}

/* From the value towards the projection; nothing is taken where it does not fit. */
static void find_stream(pattern *p, stream *s, const ir_value *value, ir_node *append) {
    ir_node *few[TARGET_MAX_FUSED];
    const ir_type *type = &value->type;
    *s = (stream){.result = value, .made.result = append ? NULL : value};
    ir_node *node = maker(p, s, value);
    if (type->rank != 4 || !OP_IN(OP_FLOATS, type->dtype) ||
        !ir_dim_is_const(type->dims[1], &s->heads) || !ir_dim_is_const(type->dims[3], &s->size) ||
        s->size > CPU_HEAD_SIZE)
        return;
    if (node && op_is(node, "gqac", "rotary") && cpu_match_heads(node)) {
        s->rotary = node;
        value = ir_node_input(node, 0);
    }
    cpu_find_heads(value, p->root, p->nodes ? few : NULL, &s->made);
    s->x = s->made.x;
    s->append = append;
    s->used = append || s->rotary || s->made.n > 0 || s->made.split;
    if (!s->used)
        return;
    if (s->made.split && ir_attr_int(s->made.split, "kv") == 0)
        s->width = s->heads * s->size;
    if (append)
        take(p, append);
    if (s->rotary)
        take(p, node);
    for (int i = 0; i < s->made.n; i++, p->n++)
        if (p->nodes && p->n < TARGET_MAX_FUSED)
            p->nodes[p->n] = few[i];
}

/* The stream that reads output `index` of a node and is the only one who does. */
static stream *stream_of(pattern *p, const ir_node *node, int index) {
    const ir_value *value = ir_node_output(node, index);
    for (int i = 0; i < STREAMS; i++)
        if (p->streams[i].used && p->streams[i].x == value)
            return maker(p, &p->streams[i], value) ? &p->streams[i] : NULL;
    return NULL;
}

/* The node whose outputs are x of streams: split_heads {kv}, or Split along the columns. Its
 * outputs must be read by streams alone; then they read its input. */
static void find_split(pattern *p, ir_node *node, int64_t total, const int64_t *widths) {
    int64_t column = 0;
    if (!is_free(p, node))
        return;
    for (int i = 0; i < node->n_outputs; i++) {
        const ir_value *value = ir_node_output(node, i);
        if (value && value->uses && !stream_of(p, node, i))
            return;
    }
    for (int i = 0; i < node->n_outputs; column += widths[i++]) {
        stream *s = ir_node_output(node, i) ? stream_of(p, node, i) : NULL;
        if (!s)
            continue;
        s->x = ir_node_input(node, 0);
        s->column = column;
        s->width = total;
    }
    p->split = node;
    take(p, node);
}

/* Queries, keys and values in one packed row, cut by split_heads. */
static void find_split_heads(pattern *p, ir_node *node, int64_t size) {
    const int64_t q = ir_attr_int(node, "q") * size, kv = ir_attr_int(node, "kv") * size;
    find_split(p, node, q + 2 * kv, (int64_t[]){q, kv, kv});
}

/* Packed heads that Split cut out of a packed row. */
static void find_columns(pattern *p, ir_node *node) {
    const ir_type *x = &ir_node_input(node, 0)->type;
    int64_t widths[STREAMS], total = 0;
    const int64_t axis = ir_attr_int(node, "axis");
    if (x->rank != 3 || (axis != 2 && axis != -1) || node->n_outputs > STREAMS)
        return;
    for (int i = 0; i < node->n_outputs; i++, total += widths[i - 1]) {
        const ir_value *y = ir_node_output(node, i);
        if (!y || y->type.rank != 3 || !ir_dim_is_const(y->type.dims[2], &widths[i]))
            return;
    }
    find_split(p, node, total, widths);
}

/* The attention that reads the appended rows as keys or values; NULL when none does. */
static const ir_node *find_attention(const ir_node *append) {
    const ir_value *rows = rows_of(append);
    for (const ir_use *use = rows ? rows->uses : NULL; use; use = use->next) {
        const ir_node *node = use->node;
        if ((op_is(node, "gqac", "attention") || op_is(node, "gqac", "attend")) &&
            node->graph == append->graph && use > &node->inputs[Q] && use < &node->inputs[STREAMS])
            return node;
    }
    return NULL;
}

/* Does what makes the queries stand before the root? */
static bool stands_before(const ir_value *queries, const ir_node *root, const ir_node *attention) {
    for (const ir_node *node = root; node && node != attention; node = node->next)
        if (node == queries->def)
            return false;
    return true;
}

static void find_streams(pattern *p) {
    const ir_node *attention = find_attention(p->root);
    const ir_value *queries = attention ? ir_node_input(attention, Q) : NULL;
    if (queries && queries->def && stands_before(queries, p->root, attention))
        find_stream(p, &p->streams[Q], queries, NULL);
    for (int i = Q + 1; i < STREAMS; i++) {
        const ir_value *rows = attention ? ir_node_input(attention, i)
                               : i > 1   ? rows_of(p->root)
                                         : NULL;
        ir_node *append = append_of(p, rows);
        if (append && append != p->streams[i - 1].append)
            find_stream(p, &p->streams[i], ir_node_input(append, NEW), append);
    }
}

static bool find(pattern *p) {
    find_streams(p);
    for (int i = 0; i < STREAMS && !p->split; i++) {
        const stream *s = &p->streams[i];
        ir_node *packed = s->used && s->width ? s->x->def : NULL;
        if (s->used && s->made.split && !s->width)
            find_split_heads(p, (ir_node *)s->made.split, s->size);
        else if (packed && op_is(packed, "", "Split"))
            find_columns(p, packed);
    }
    stream *q = &p->streams[Q];
    q->used =
        q->used && (q->rotary || q->made.n > 0 || q->width > 0); /* else there is nothing to do */
    return (p->streams[1].append == p->root || p->streams[2].append == p->root) &&
           p->n <= TARGET_MAX_FUSED;
}

int cpu_fuse_append(const ir_node *root, ir_node **nodes) {
    pattern p = {.root = root, .nodes = nodes};
    return find(&p) ? p.n : 0;
}

/* Are queries only taken out of the packed row, for attention alone? Others that are named read
 * their shape. */
static bool stay_packed(const stream *q) {
    if (!q->used || q->rotary || q->made.norm || q->width == 0)
        return false;
    for (const ir_use *use = q->result->uses; use; use = use->next) {
        const ir_node *node = use->node;
        const target_kernel *kernel = node->claim;
        const bool reads = kernel && !node->fused_into && use == &node->inputs[Q] &&
                           (kernel->eval == cpu_attention_run || kernel->eval == cpu_attend_run);
        if (!reads && !(op_is(node, "gqac", "key_range") && use == &node->inputs[Q]))
            return false;
    }
    return true;
}

const ir_value *cpu_packed_queries(const ir_value *queries, int64_t *column) {
    const ir_node *root = queries && queries->def ? queries->def->fused_into : NULL;
    const target_kernel *kernel = root ? root->claim : NULL;
    if (!kernel || kernel->eval != cpu_run_append || !op_is(queries->def, "gqac", "split_heads"))
        return NULL;
    pattern p = {.root = root};
    const stream *q = &p.streams[Q];
    if (!find(&p) || q->result != queries || !stay_packed(q))
        return NULL;
    *column = q->column;
    return q->x;
}

const ir_value *cpu_lies_in(const ir_value *value) {
    int64_t column;
    return cpu_packed_queries(value, &column);
}

/* ---- operands ------------------------------------------------------------ */

typedef struct job {
    pattern p;
    const struct cpu_row_kernels *kernels;
    const kv_batch *kv;
    int64_t batch, rows, blocks; /* B, S, runs of rows */
    int64_t heads, most;         /* of all streams that move; the largest head */
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
static gqac_status open_append(op_call *call, job *j, stream *s, const gqac_tensor *fresh) {
    const ir_node *node = s->append;
    gqac_tensor *token, *rows;
    if (!j->kv || fresh->dims[0] != j->kv->n)
        OP_FAIL(node, call->diag, GQAC_INTERNAL, "kv_append outside of a step");
    s->slot = (int)ir_attr_int(node, "slot");
    GQAC_TRY(target_kv_check_rows(call, fresh, s->slot));
    if (node->outputs[0])
        GQAC_TRY(op_give(call, node->outputs[0], GQAC_TOKEN, 0, NULL, &token));
    if (!node->outputs[NEW])
        return GQAC_OK;
    GQAC_TRY(op_give(call, node->outputs[NEW], GQAC_TOKEN, 0, NULL, &rows));
    *rows = *fresh;
    rows->dims[2] = target_kv_total_rows(j->kv);
    return GQAC_OK;
}

/* The same for a concat_past_present. */
static gqac_status open_present(op_call *call, stream *s, const gqac_tensor *fresh) {
    const gqac_tensor *in[OPERANDS] = {NULL};
    op_call inner = *call;
    for (int i = 0; i < s->append->n_inputs && i < OPERANDS; i++)
        in[i] = i != NEW && ir_node_input(s->append, i)
                    ? op_value(call, ir_node_input(s->append, i))
                    : NULL;
    in[NEW] = fresh;
    inner.node = s->append;
    inner.in = in;
    GQAC_TRY(present_open(&inner, &s->present));
    gqac_tensor *y;
    const int64_t dims[4] = {fresh->dims[0], s->heads, s->present.capacity, s->size};
    GQAC_TRY(op_give(call, s->append->outputs[0], fresh->dtype, 4, dims, &y));
    return present_put(&inner, &s->present, y->data);
}

/* Where x lies. */
static gqac_status open_x(op_call *call, job *j, stream *s) {
    const gqac_tensor *x = op_value(call, s->x);
    const bool packed = s->width > 0;
    if (!x || !OP_IN(OP_FLOATS, x->dtype) || x->rank != (packed ? 3 : 4) ||
        (j->batch >= 0 && x->dims[0] != j->batch) ||
        (packed ? x->dims[2] != s->width : x->dims[1] != s->heads || x->dims[3] != s->size))
        OP_FAIL(s->append ? s->append : call->node, call->diag, GQAC_INVALID_INPUT,
                "%lld heads of %lld channels must come as [B,S,%lld] or [B,H,S,D], of one B",
                (long long)s->heads, (long long)s->size, (long long)s->width);
    const int64_t rows = x->dims[packed ? 1 : 2];
    j->batch = x->dims[0];
    j->rows = rows > j->rows ? rows : j->rows;
    s->rows = rows;
    s->step_h = packed ? s->size : rows * s->size;
    s->step_s = packed ? s->width : s->size;
    s->step_b = rows * (packed ? s->width : s->heads * s->size);
    s->data = x->data;
    s->p = (cpu_head){.size = s->size, .x_type = x->dtype, .type = x->dtype};
    return GQAC_OK;
}

static gqac_status open_stream(op_call *call, job *j, stream *s) {
    GQAC_TRY(open_x(call, j, s));
    const int64_t dims[4] = {j->batch, s->heads, s->rows, s->size};
    gqac_tensor *y, fresh = {.rank = 4, .dims = {dims[0], dims[1], dims[2], dims[3]}};
    s->moves = s->append || !stay_packed(s);
    j->heads += s->moves ? s->heads : 0;
    j->most = s->size > j->most ? s->size : j->most;
    if (s->made.norm)
        GQAC_TRY(cpu_open_head_norm(call, s->made.norm, s->made.kind, &s->p));
    if (s->rotary)
        GQAC_TRY(open_rotary(call, s->rotary, dims, s));
    fresh.dtype = s->p.type;
    if (s->append && is_concat(s->append))
        return open_present(call, s, &fresh);
    if (s->append)
        return open_append(call, j, s, &fresh);
    if (s->moves) {
        GQAC_TRY(op_give(call, s->result, s->p.type, 4, dims, &y));
        s->y = y->data;
        return GQAC_OK;
    }
    GQAC_TRY(op_give(call, s->result, GQAC_TOKEN, 0, NULL, &y));
    *y = fresh;
    return GQAC_OK;
}

static gqac_status open_job(op_call *call, job *j) {
    for (int i = 0; i < STREAMS; i++)
        if (j->p.streams[i].used)
            GQAC_TRY(open_stream(call, j, &j->p.streams[i]));
    j->blocks = j->rows > ROWS ? (j->rows + ROWS - 1) / ROWS : 1;
    return GQAC_OK;
}

bool cpu_append_over(const ir_node *root, const ir_value *result, const ir_value *operand) {
    const ir_node *node = result->def;
    bool over = is_concat(node) && operand == ir_node_input(node, 0);
    for (const ir_use *use = operand->uses; use; use = use->next)
        over = over && (ir_node_root(use->node) != root || use == &node->inputs[0]);
    return over;
}

/* ---- running ------------------------------------------------------------- */

/* Rows [from, to) of a head; y of the first of them. */
static void make_rows(const job *j, const stream *s, int64_t b, int64_t head, int64_t from,
                      int64_t to, unsigned char *y) {
    const rotation *r = &s->r;
    const size_t row = (size_t)s->size * op_width(s->p.type), x_width = op_width(s->p.x_type);
    const size_t table = (size_t)r->half * op_width(s->p.table_type);
    for (int64_t i = from; i < to; i++, y += row) {
        const int64_t at = b * s->step_b + i * s->step_s + head * s->step_h + s->column;
        const unsigned char *x = s->data + (size_t)at * x_width;
        if (!s->rotary && !s->made.norm) {
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

/* Rows [from, to) of a head go where they are kept; room is for ROWS of them. */
static void put_rows(const job *j, const stream *s, int64_t b, int64_t head, int64_t from,
                     int64_t to, unsigned char *room) {
    if (!s->append) {
        const int64_t row = (b * s->heads + head) * s->rows + from;
        make_rows(j, s, b, head, from, to, s->y + (size_t)(row * s->size) * op_width(s->p.type));
        return;
    }
    const bool concat = is_concat(s->append);
    const int64_t count = concat ? s->present.new_len[b] : j->kv->count[b];
    if (concat && from == 0)
        present_keep(&s->present, b, head);
    to = to < count ? to : count;
    if (from >= to)
        return;
    if (concat) {
        make_rows(j, s, b, head, from, to, present_row(&s->present, b, head, from));
        return;
    }
    make_rows(j, s, b, head, from, to, room);
    kv_write_head(j->kv->sequences[b], s->slot, head, j->kv->past[b] + from, to - from, room);
}

/* Items are runs of rows of one head. */
static void run_items(void *arg, size_t begin, size_t end, int worker) {
    const job *j = arg;
    unsigned char *room = j->scratch.base + (size_t)worker * j->scratch.stride;
    for (size_t item = begin; item < end; item++) {
        const int64_t from = (int64_t)item % j->blocks * ROWS, at = (int64_t)item / j->blocks;
        int64_t head = at % j->heads;
        const stream *s = j->p.streams;
        for (; !s->moves || head >= s->heads; s++)
            head -= s->moves ? s->heads : 0;
        const int64_t to = from + ROWS < s->rows ? from + ROWS : s->rows;
        if (from < to || from == 0)
            put_rows(j, s, at / j->heads, head, from, to, room);
    }
}

gqac_status cpu_run_append(op_call *call) {
    job j = {.batch = -1,
             .p = {.root = call->node},
             .kernels = ((const cpu_level *)call->state)->row,
             .kv = call->kv};
    if (!find(&j.p))
        OP_FAIL(call->node, call->diag, GQAC_INTERNAL, "heads to append are not where they were");
    GQAC_TRY(open_job(call, &j));
    GQAC_TRY(op_scratch_open(call, (size_t)(ROWS * j.most), sizeof(float), &j.scratch));
    const int64_t run = j.rows < ROWS ? j.rows : ROWS;
    op_parallel(call, j.batch * j.heads * j.blocks, 20 + run * (10 + j.most / 4), run_items, &j);
    op_scratch_close(&j.scratch);
    return GQAC_OK;
}
