/* Everything between a projection and attention, in one call: heads are cut out of packed rows,
 * queries and keys are normalised and rotated if the graph does so, and keys and values are written
 * to the cache. No head is copied in between.
 *
 *   x -> [fuse_heads.h] -> rotary?           -> queries [B,Hq,S,D] of the attention
 *   x -> [fuse_heads.h] -> rotary? append    -> keys, in blocks or after those of the past
 *   x -> [fuse_heads.h] -> rotary? append    -> values, likewise
 *
 * Each x is a value of its own, or all lie in one packed row, which split_heads {kv} or Split cuts.
 * An append is a kv_append, whose rows are written to blocks, or a concat_past_present; if a target
 * can, with the kv_quantise before it. The root is the append that comes last. Queries that would
 * only be copied may be read in place. Each head of a row is computed as by the kernel of a
 * rotary. */
#include "targets/fuse_heads.h"

enum {
    Q, /* streams, and inputs of attention: queries, keys, values */
    STREAMS = 3,
    NEW = 1, /* input of appends, and output of rows of kv_append */
};

typedef struct stream {
    bool used;
    const ir_node *rotary, *quantise, *append; /* NULL: none */
    const ir_value *result;                    /* the heads: what is appended or quantised */
    fused_heads made;
    const ir_value *x;     /* [B,S,width], or with width 0 [B,heads,S,size] */
    int64_t column, width; /* column of the first head; width of a packed row */
    int64_t heads, size;
} stream;

typedef struct pattern {
    const target_append_rules *rules;
    const ir_node *root, *split; /* split: makes x of several streams; NULL: none */
    ir_node **nodes;             /* NULL: `claim` has already fused them */
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

/* The append of a value, if it may be, or is, in the group. */
static ir_node *append_of(const pattern *p, const ir_value *rows) {
    ir_node *node = rows ? rows->def : NULL;
    const bool is = node && is_free(p, node) && !(p->nodes && node->mark & TARGET_CLAIMED);
    return is && (is_concat(node) ? p->rules->presents
                                  : op_is(node, "gqac", "kv_append") && p->rules->in_blocks(node))
               ? node
               : NULL;
}

/* The rows that an append makes, of which attention reads `value`: itself, or what its codes stand
 * for. */
static const ir_value *appended(const pattern *p, const ir_value *value) {
    const ir_node *node = value->def;
    return p->rules->codes && node && op_is(node, "gqac", "kv_dequantise") ? ir_node_input(node, 0)
                                                                           : value;
}

static ir_value *rows_of(const ir_node *append) {
    return ir_node_output(append, is_concat(append) ? 0 : NEW);
}

static void take(pattern *p, ir_node *node) {
    if (p->nodes && node != p->root && p->n < TARGET_MAX_FUSED)
        p->nodes[p->n] = node;
    p->n += node != p->root;
}

/* The node that makes a value of a stream, if it may be in the group. */
static ir_node *maker(const pattern *p, const stream *s, const ir_value *value) {
    return target_head_maker(value, p->root, p->nodes != NULL, s->made.result);
}

/* The kv_quantise that makes the rows of an append, if it may be in the group; NULL: none. */
static ir_node *quantiser_of(const pattern *p, const stream *s, const ir_value *rows) {
    ir_node *node = p->rules->codes ? maker(p, s, rows) : NULL;
    return node && op_is(node, "gqac", "kv_quantise") ? node : NULL;
}

/* Follows a stream from the value towards the projection; takes no node if the pattern does not
 * fit. */
static void find_stream(pattern *p, stream *s, const ir_value *value, ir_node *append) {
    ir_node *few[TARGET_MAX_FUSED];
    *s = (stream){.made.result = append ? NULL : value};
    ir_node *const quantise = append ? quantiser_of(p, s, value) : NULL;
    value = quantise ? ir_node_input(quantise, 0) : value;
    const ir_type *type = &value->type;
    s->result = value;
    ir_node *node = maker(p, s, value);
    if (type->rank != 4 || !OP_IN(OP_FLOATS, type->dtype) ||
        !ir_dim_is_const(type->dims[1], &s->heads) || !ir_dim_is_const(type->dims[3], &s->size) ||
        s->size > TARGET_HEAD_SIZE)
        return;
    if (node && op_is(node, "gqac", "rotary") && p->rules->rotary(node)) {
        s->rotary = node;
        value = ir_node_input(node, 0);
    }
    target_find_heads(value, p->root, p->nodes ? few : NULL, &s->made);
    s->x = s->made.x;
    s->append = append;
    s->used = append || s->rotary || s->made.n > 0 || s->made.split;
    if (!s->used)
        return;
    if (s->made.split && ir_attr_int(s->made.split, "kv") == 0)
        s->width = s->heads * s->size;
    s->quantise = quantise;
    if (append)
        take(p, append);
    if (quantise)
        take(p, quantise);
    if (s->rotary)
        take(p, node);
    for (int i = 0; i < s->made.n; i++, p->n++)
        if (p->nodes && p->n < TARGET_MAX_FUSED)
            p->nodes[p->n] = few[i];
}

/* The stream that is the only reader of output `index` of a node; NULL: there is none. */
static stream *stream_of(pattern *p, const ir_node *node, int index) {
    const ir_value *value = ir_node_output(node, index);
    for (int i = 0; i < STREAMS; i++)
        if (p->streams[i].used && p->streams[i].x == value)
            return maker(p, &p->streams[i], value) ? &p->streams[i] : NULL;
    return NULL;
}

/* Takes the node whose outputs are x of streams: split_heads {kv}, or Split along the columns. If
 * streams are the only readers of its outputs, they read its input instead. */
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

/* Streams whose packed heads a Split cuts out of a packed row. */
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

/* The attention that reads a value as keys or values; NULL when none does. */
static const ir_node *reader_of(const pattern *p, const ir_value *value) {
    for (const ir_use *use = value ? value->uses : NULL; use; use = use->next) {
        const ir_node *node = use->node;
        if ((op_is(node, "gqac", "attention") || op_is(node, "gqac", "attend")) &&
            node->graph == p->root->graph && use > &node->inputs[Q] && use < &node->inputs[STREAMS])
            return node;
    }
    return NULL;
}

/* The attention that reads the rows of the root, or what their codes stand for. */
static const ir_node *find_attention(const pattern *p) {
    const ir_value *rows = rows_of(p->root);
    const ir_node *found = reader_of(p, rows);
    for (const ir_use *use = rows ? rows->uses : NULL; use && !found; use = use->next)
        if (p->rules->codes && op_is(use->node, "gqac", "kv_dequantise"))
            found = reader_of(p, ir_node_output(use->node, 0));
    return found;
}

/* True if the nodes that make the queries come before the root. */
static bool stands_before(const ir_value *queries, const ir_node *root, const ir_node *attention) {
    for (const ir_node *node = root; node && node != attention; node = node->next)
        if (node == queries->def)
            return false;
    return true;
}

static void find_streams(pattern *p) {
    const ir_node *attention = find_attention(p);
    const ir_value *queries = attention ? ir_node_input(attention, Q) : NULL;
    if (queries && queries->def && stands_before(queries, p->root, attention))
        find_stream(p, &p->streams[Q], queries, NULL);
    for (int i = Q + 1; i < STREAMS; i++) {
        const ir_value *rows = attention ? appended(p, ir_node_input(attention, i))
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
    q->used = q->used && (q->rotary || q->made.n > 0 || q->width > 0); /* otherwise there is nothing
                                                                         to compute */
    return (p->streams[1].append == p->root || p->streams[2].append == p->root) &&
           p->n <= TARGET_MAX_FUSED;
}

int target_fuse_append(const target_append_rules *rules, const ir_node *root, ir_node **nodes) {
    pattern p = {.rules = rules, .root = root, .nodes = nodes};
    return find(&p) ? p.n : 0;
}

bool target_match_append(const target_append_rules *rules, const ir_node *root) {
    pattern p = {.rules = rules, .root = root};
    return find(&p);
}

/* True if queries are only cut out of the packed row, for attention alone. The other ops named here
 * read only their shape. */
static bool stay_packed(const target_append_rules *rules, const stream *q) {
    if (!rules->reads_packed || !q->used || q->rotary || q->made.norm || q->width == 0)
        return false;
    for (const ir_use *use = q->result->uses; use; use = use->next) {
        const ir_node *node = use->node;
        const target_kernel *kernel = node->claim;
        const bool reads =
            kernel && !node->fused_into && use == &node->inputs[Q] && rules->reads_packed(kernel);
        if (!reads && !(op_is(node, "gqac", "key_range") && use == &node->inputs[Q]))
            return false;
    }
    return true;
}

const ir_value *target_packed_queries(const target_append_rules *rules, const ir_node *root,
                                      const ir_value *queries, int64_t *column) {
    pattern p = {.rules = rules, .root = root};
    const stream *q = &p.streams[Q];
    if (!op_is(queries->def, "gqac", "split_heads") || !find(&p) || q->result != queries ||
        !stay_packed(rules, q))
        return NULL;
    *column = q->column;
    return q->x;
}

bool target_append_over(const ir_node *root, const ir_value *result, const ir_value *operand) {
    const ir_node *node = result->def;
    bool over = is_concat(node) && operand == ir_node_input(node, 0);
    for (const ir_use *use = operand->uses; use; use = use->next)
        over = over && (ir_node_root(use->node) != root || use == &node->inputs[0]);
    return over;
}

/* ---- the record ---------------------------------------------------------- */

static target_stream bind_stream(const target_append_rules *rules, const stream *s) {
    target_stream b = {.end = TARGET_TO_QUERIES, .y = -1, .token = -1, .rows = -1, .scale = -1};
    fused_heads made = s->made;
    made.x = s->x;
    target_bind_heads(&made, s->rotary, &b.heads);
    b.heads.heads = s->heads;
    b.heads.size = s->size;
    b.heads.width = s->width;
    b.heads.column = s->column;
    if (!s->append) {
        b.y = bind_value(s->result);
        b.end = stay_packed(rules, s) ? TARGET_IN_PLACE : TARGET_TO_QUERIES;
        b.heads.origin = op_origin_of(s->result->def);
        return b;
    }
    b.heads.origin = b.append = op_origin_of(s->append);
    if (s->quantise) {
        b.quantise = op_origin_of(s->quantise);
        b.bits = (int)ir_attr_int(s->quantise, "bits");
        b.per_channel = ir_attr_int(s->quantise, "per_channel") == 1;
        b.scale = bind_input(s->quantise, "scale");
    }
    if (is_concat(s->append)) {
        b.end = TARGET_TO_PRESENT;
        b.y = bind_output(s->append, "present");
        b.past = bind_input(s->append, "past");
        b.past_len = bind_input(s->append, "past_len");
        b.new_len = bind_input(s->append, "new_len");
        b.total = bind_input(s->append, "total");
        return b;
    }
    b.end = TARGET_TO_BLOCKS;
    b.slot = (int)ir_attr_int(s->append, "slot");
    b.token = bind_output(s->append, "token");
    b.rows = bind_output(s->append, "rows");
    return b;
}

gqac_status target_bind_append(const target_append_rules *rules, const ir_node *root,
                               target_streams *record, target_stream_nodes *nodes,
                               gqac_diag *diag) {
    pattern p = {.rules = rules, .root = root};
    if (!find(&p))
        OP_FAIL(root, diag, GQAC_INTERNAL, "the nodes of the heads to append have changed");
    for (int i = 0; i < STREAMS; i++) {
        const stream *s = &p.streams[i];
        if (!s->used)
            continue;
        if (nodes)
            nodes[record->n] = (target_stream_nodes){s->made.norm, s->rotary, s->quantise};
        record->streams[record->n++] = bind_stream(rules, s);
    }
    return GQAC_OK;
}
