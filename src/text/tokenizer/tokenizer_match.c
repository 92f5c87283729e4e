/* Leftmost-longest matches of many texts at once. The automaton is built of the reversed texts and
 * runs from the end of the text: at each position its longest hit is the longest text that
 * begins there. In ascending order, the next match is the first hit at or after the end of the
 * last. Time is linear in the text whatever the set, and memory linear in the set. */
#include "base/alloc.h"
#include "text/tokenizer/tokenizer_impl.h"

typedef struct builder {
    uint32_t *parent, *depth, *order; /* by node; order: nodes by depth */
    unsigned char *byte;
} builder;

/* ---- building ---------------------------------------------------------------- */

static bool allocate(builder *b, matcher *m, size_t nodes) {
    b->parent = gqac_alloc(nodes * sizeof *b->parent);
    b->depth = gqac_alloc(nodes * sizeof *b->depth);
    b->order = gqac_alloc(nodes * sizeof *b->order);
    b->byte = gqac_alloc(nodes);
    m->fail = gqac_calloc(nodes, sizeof *m->fail);
    m->found = gqac_calloc(nodes, sizeof *m->found);
    return b->parent && b->depth && b->order && b->byte && m->fail && m->found;
}

static uint32_t child(const matcher *m, uint32_t node, unsigned char byte) {
    uint64_t to = map64_get(&m->edges, (uint64_t)node << 8 | byte);
    return to == MAP64_NONE ? 0 : (uint32_t)to;
}

static gqac_status add_text(matcher *m, builder *b, span text, uint32_t word, gqac_diag *diag) {
    uint32_t node = 0;
    for (size_t i = text.length; i-- > 0;) {
        unsigned char byte = (unsigned char)text.bytes[i];
        uint32_t to = child(m, node, byte);
        if (!to) {
            to = (uint32_t)m->n_nodes++;
            b->parent[to] = node;
            b->depth[to] = b->depth[node] + 1;
            b->byte[to] = byte;
            GQAC_TRY(map64_put(&m->edges, (uint64_t)node << 8 | byte, to, diag));
        }
        node = to;
    }
    if (!m->found[node]) /* of equal texts the first one counts */
        m->found[node] = word + 1;
    return GQAC_OK;
}

/* Nodes in the order of their depth; `start` has a place for each depth. */
static void sort_by_depth(const matcher *m, builder *b, uint32_t *start) {
    for (size_t i = 0; i < m->n_nodes; i++)
        start[b->depth[i] + 1]++;
    for (size_t d = 1; d <= m->n_nodes; d++)
        start[d] += start[d - 1];
    for (size_t i = 0; i < m->n_nodes; i++)
        b->order[start[b->depth[i]]++] = (uint32_t)i;
}

/* The child of the longest proper suffix of `node` that has one for `byte`. */
static uint32_t follow(const matcher *m, uint32_t node, unsigned char byte) {
    for (;;) {
        uint32_t to = node ? child(m, node, byte) : m->root[byte];
        if (to || !node)
            return to;
        node = m->fail[node];
    }
}

static gqac_status link_suffixes(matcher *m, builder *b, gqac_diag *diag) {
    uint32_t *start = gqac_calloc(m->n_nodes + 2, sizeof *start);
    if (!start)
        return gqac_diag_oom(diag, "added tokens");
    sort_by_depth(m, b, start);
    gqac_free(start);
    for (size_t i = 1; i < m->n_nodes; i++) {
        uint32_t node = b->order[i];
        if (b->depth[node] == 1)
            m->root[b->byte[node]] = node;
        else
            m->fail[node] = follow(m, m->fail[b->parent[node]], b->byte[node]);
        if (!m->found[node])
            m->found[node] = m->found[m->fail[node]];
    }
    return GQAC_OK;
}

static gqac_status build(const span *texts, size_t n, matcher *m, builder *b, gqac_diag *diag) {
    size_t nodes = 1;
    for (size_t i = 0; i < n; i++)
        nodes += texts[i].length; /* each fits in TOKENIZER_MAX_FILE, all in the file */
    if (nodes > TOKENIZER_MAX_FILE)
        GQAC_FAIL(diag, GQAC_LIMIT, "the added tokens have more than %d bytes", TOKENIZER_MAX_FILE);
    if (!allocate(b, m, nodes))
        return gqac_diag_oom(diag, "added tokens");
    b->depth[0] = b->parent[0] = 0;
    m->n_nodes = 1;
    for (size_t i = 0; i < n; i++)
        GQAC_TRY(add_text(m, b, texts[i], (uint32_t)i, diag));
    return link_suffixes(m, b, diag);
}

gqac_status matcher_create(const span *texts, size_t n, matcher *m, gqac_diag *diag) {
    *m = (matcher){.empty = n == 0};
    if (n == 0)
        return GQAC_OK;
    builder b = {0};
    gqac_status status = build(texts, n, m, &b, diag);
    gqac_free(b.parent);
    gqac_free(b.depth);
    gqac_free(b.order);
    gqac_free(b.byte);
    return status;
}

void matcher_free(matcher *m) {
    gqac_table_free(&m->edges);
    gqac_free(m->fail);
    gqac_free(m->found);
    *m = (matcher){.empty = true};
}

/* ---- running -------------------------------------------------------------------- */

static gqac_status add_hit(hit_list *hits, size_t begin, uint32_t word, gqac_diag *diag) {
    if (!gqac_reserve(&hits->items, hits->n + 1, &hits->capacity, sizeof *hits->items))
        return gqac_diag_oom(diag, "added tokens");
    hits->items[hits->n++] = (hit){begin, word};
    return GQAC_OK;
}

/* Hits have a begin only and are in descending order; the caller, who knows the lengths, picks
 * those that do not overlap. */
gqac_status matcher_run(const matcher *m, const char *text, size_t length, hit_list *hits,
                        gqac_diag *diag) {
    hits->n = 0;
    if (m->empty)
        return GQAC_OK;
    uint32_t node = 0;
    for (size_t i = length; i-- > 0;) {
        node = follow(m, node, (unsigned char)text[i]);
        if (node && m->found[node])
            GQAC_TRY(add_hit(hits, i, m->found[node] - 1, diag));
    }
    return GQAC_OK;
}
