/* The radix tree of a space: search, insertion, and removal of the least recently used rows.
 *
 * Where a prefix branches off in the middle of an edge, the edge is split, and the new node shares
 * the rows of the old one up to there. A leaf that a longer sequence continues is extended in place
 * if the longer rows can be rewound to its end, so a growing sequence is one node. */
#include <string.h>

#include "base/alloc.h"
#include "base/common.h"
#include "store/store_impl.h"

/* ---- bytes --------------------------------------------------------------- */

static size_t block_number(const kv_sequence *rows, int64_t block) {
    return kv_block_identity(rows, block * GQAC_KV_BLOCK).number;
}

static int64_t blocks_of(const kv_sequence *rows) {
    return (kv_sequence_length(rows) + GQAC_KV_BLOCK - 1) / GQAC_KV_BLOCK;
}

static void charge(store_space *space, int64_t bytes) {
    space->tenant->owner->bytes += bytes;
    space->store->counts.bytes += bytes;
}

static const kv_kind *kind_of(const store_space *space) {
    const kv_kind *kind = NULL;
    (void)kv_pool_kind(space->store->program->pool, space->kind, &kind, NULL); /* of a sequence */
    return kind;
}

/* What rows take besides their blocks: the table; and states and the rows of windows, which other
 * nodes may hold too. */
static int64_t own_bytes(const store_space *space, const kv_sequence *rows) {
    const kv_pool *pool = space->store->program->pool;
    const int64_t windows = blocks_of(rows) - kv_sequence_kept(rows) / GQAC_KV_BLOCK;
    return (int64_t)kv_pool_state_bytes(pool) * kv_states_kept(rows) +
           (int64_t)kv_pool_window_bytes(pool, kind_of(space)) * windows +
           blocks_of(rows) * (int64_t)sizeof(void *);
}

static int64_t block_bytes(const store_space *space) {
    const kv_pool *pool = space->store->program->pool;
    return (int64_t)(kv_pool_block_bytes(pool, kind_of(space)) + kv_pool_tail_bytes(pool));
}

/* Counts the node among the holders of its blocks. False: there is no memory to count. */
static bool hold(store_space *space, const kv_sequence *rows) {
    const int64_t n = blocks_of(rows);
    size_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        const size_t number = block_number(rows, i);
        most = number >= most ? number + 1 : most;
    }
    const size_t before = space->n_holders;
    if (!gqac_reserve(&space->holders, most, &space->n_holders, sizeof *space->holders))
        return false;
    memset(space->holders + before, 0, (space->n_holders - before) * sizeof *space->holders);
    for (int64_t i = 0; i < n; i++)
        if (space->holders[block_number(rows, i)]++ == 0) {
            space->blocks++;
            charge(space, block_bytes(space));
        }
    charge(space, own_bytes(space, rows));
    return true;
}

static void let_go(store_space *space, kv_sequence *rows) {
    if (!rows)
        return;
    for (int64_t i = 0; i < blocks_of(rows); i++)
        if (--space->holders[block_number(rows, i)] == 0) {
            space->blocks--;
            charge(space, -block_bytes(space));
        }
    charge(space, -own_bytes(space, rows));
    kv_sequence_free(rows);
}

/* ---- nodes --------------------------------------------------------------- */

static int64_t node_bytes(const store_node *node) {
    return (int64_t)sizeof *node + (node->end - node->begin) * (int64_t)sizeof *node->ids;
}

static void unlink_use(store_node *node) {
    gqac_store *store = node->space->store;
    *(node->older ? &node->older->newer : &store->oldest) = node->newer;
    *(node->newer ? &node->newer->older : &store->newest) = node->older;
}

static void link_use(store_node *node) {
    gqac_store *store = node->space->store;
    node->newer = NULL;
    node->older = store->newest;
    *(store->newest ? &store->newest->newer : &store->oldest) = node;
    store->newest = node;
}

static void touch(store_node *node) {
    unlink_use(node);
    link_use(node);
}

static void free_node(store_node *node) {
    gqac_free(node->children);
    gqac_free(node->ids);
    gqac_free(node);
}

/* A node that is not in the tree yet; NULL: out of memory. */
static store_node *make_node(store_node *parent, int64_t end, const int64_t *ids) {
    store_node *node = gqac_calloc(1, sizeof *node);
    const size_t bytes = (size_t)(end - parent->end) * sizeof *ids;
    if (node)
        node->ids = gqac_alloc(bytes);
    if (!node || !node->ids) {
        gqac_free(node);
        return NULL;
    }
    memcpy(node->ids, ids, bytes);
    node->space = parent->space;
    node->parent = parent;
    node->begin = parent->end;
    node->end = end;
    return node;
}

/* The index of the first child whose first id is at least `id`. */
static size_t place_of(const store_node *node, int64_t id) {
    size_t low = 0, high = node->n_children;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (node->children[middle]->ids[0] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static store_node *child_of(const store_node *node, int64_t id) {
    const size_t at = place_of(node, id);
    return at < node->n_children && node->children[at]->ids[0] == id ? node->children[at] : NULL;
}

/* The parent has capacity for one more child. */
static void attach(store_node *node) {
    store_node *parent = node->parent;
    const size_t at = place_of(parent, node->ids[0]);
    memmove(parent->children + at + 1, parent->children + at,
            (parent->n_children - at) * sizeof *parent->children);
    parent->children[at] = node;
    parent->n_children++;
    charge(node->space, node_bytes(node));
    link_use(node);
}

static bool reserve_child(store_node *node) {
    return gqac_reserve(&node->children, node->n_children + 1, &node->capacity,
                        sizeof *node->children);
}

/* Removes a leaf, and its ancestors that are then of no use. */
static void remove_leaf(store_node *node) {
    do {
        store_node *parent = node->parent;
        const size_t at = place_of(parent, node->ids[0]);
        parent->n_children--;
        memmove(parent->children + at, parent->children + at + 1,
                (parent->n_children - at) * sizeof *parent->children);
        let_go(node->space, node->rows);
        charge(node->space, -node_bytes(node));
        unlink_use(node);
        free_node(node);
        node = parent;
    } while (node->parent && !node->rows && !node->n_children && !node->pins);
}

/* ---- search -------------------------------------------------------------- */

/* Where the ids leave the tree: after `length` of them, `inside` the edge to `node` or at its end.
 */
typedef struct place {
    store_node *node;
    int64_t length;
    bool inside;
} place;

static place walk(store_node *root, const int64_t *ids, int64_t n) {
    place at = {.node = root};
    while (at.length < n) {
        store_node *child = child_of(at.node, ids[at.length]);
        if (!child)
            break;
        const int64_t edge = child->end - child->begin, left = n - at.length;
        const int64_t same =
            gqac_common_ids(child->ids, ids + at.length, edge < left ? edge : left);
        at.node = child;
        at.length += same;
        at.inside = same < edge;
        if (at.inside)
            break;
    }
    return at;
}

/* Tokens of the node's rows that can be reused, when `length` of its tokens match. */
static int64_t reusable(const store_node *node, int64_t length, int64_t limit) {
    const int64_t most = length < limit ? length : limit;
    return node->rows ? kv_sequence_reach(node->rows, most) : 0;
}

/* Marks a node and its ancestors as used; they follow each other with the leaf as the newest. */
static void use_path(store_node *node) {
    if (!node->parent)
        return;
    use_path(node->parent);
    touch(node);
}

store_match store_find(store_node *root, const int64_t *ids, int64_t n, int64_t limit, bool use) {
    const place at = walk(root, ids, n);
    store_match found = {.known = at.length};
    for (store_node *node = at.node; node->parent; node = node->parent) {
        const int64_t length = reusable(node, at.length < node->end ? at.length : node->end, limit);
        if (length > found.length) {
            found.length = length;
            found.node = node;
        }
        if (use && at.length >= node->end)
            node->uses++;
    }
#ifdef GQAC_CONTROL_STORE_MISSES /* negative control: nothing is ever reused */
    found = (store_match){.known = at.length};
#endif
    if (use)
        use_path(at.node);
    return found;
}

/* ---- insertion ----------------------------------------------------------- */

/* Copies the table of `rows`, up to a length that they can be rewound to. */
static gqac_status share(const kv_sequence *rows, int64_t length, kv_sequence **out,
                         gqac_diag *diag) {
    GQAC_TRY(kv_sequence_fork(rows, out, diag));
    kv_sequence_set_capacity(*out, 0);
    return kv_sequence_rewind(*out, length, diag);
}

/* Lets rows share the blocks that the index has of the same tokens: those of the node itself, or of
 * its nearest ancestor. So what two sequences computed at the same time is kept once. */
static void deduplicate(const store_node *node, kv_sequence *rows) {
    while (node->parent && !node->rows)
        node = node->parent;
    if (node->rows)
        kv_sequence_adopt(rows, node->rows, node->end);
}

/* Gives a node other rows; the old ones are let go. */
static gqac_status set_rows(store_node *node, const kv_sequence *rows, int64_t length,
                            int64_t pinned, gqac_diag *diag) {
    kv_sequence *own = NULL;
    GQAC_TRY(share(rows, length, &own, diag));
    deduplicate(node, own);
    if (!hold(node->space, own)) {
        kv_sequence_free(own);
        return gqac_diag_oom(diag, "a prefix store");
    }
    let_go(node->space, node->rows);
    node->rows = own;
    node->pinned = pinned;
    return GQAC_OK;
}

/* Splits the edge to a node after `length` tokens; the node stays the lower part. NULL: out of
 * memory. */
static store_node *split(store_node *node, int64_t length) {
    store_node *parent = node->parent, *upper = make_node(parent, length, node->ids);
    if (!upper || !reserve_child(upper)) {
        if (upper)
            free_node(upper);
        return NULL;
    }
    const int64_t reach = reusable(node, length, length);
    if (reach > upper->begin && set_rows(upper, node->rows, reach, node->pinned, NULL) != GQAC_OK) {
        free_node(upper);
        return NULL;
    }
    upper->uses = node->uses;
    parent->children[place_of(parent, upper->ids[0])] = upper;
    charge(node->space, -node_bytes(node));
    memmove(node->ids, node->ids + (length - node->begin),
            (size_t)(node->end - length) * sizeof *node->ids);
    node->begin = length;
    charge(node->space, node_bytes(node) + node_bytes(upper));
    upper->children[upper->n_children++] = node;
    node->parent = upper;
    link_use(upper);
    touch(node);
    return upper;
}

/* True if the leaf can become longer without losing a length to which it can be rewound. */
static bool can_extend(const store_node *node, const kv_sequence *rows) {
    return node->parent && !node->n_children && !node->pins && node->rows &&
           kv_sequence_length(node->rows) == node->end &&
           kv_sequence_reach(rows, node->end) == node->end;
}

static gqac_status extend(store_node *node, const kv_sequence *rows, const int64_t *ids, int64_t n,
                          gqac_diag *diag) {
    const size_t bytes = (size_t)(n - node->begin) * sizeof *ids;
    int64_t *longer = gqac_realloc(node->ids, bytes);
    if (!longer)
        return gqac_diag_oom(diag, "a prefix store");
    node->ids = longer;
    GQAC_TRY(set_rows(node, rows, n, node->pinned, diag));
    memcpy(longer, ids + node->begin, bytes);
    charge(node->space, -node_bytes(node));
    node->end = n;
    charge(node->space, node_bytes(node));
    touch(node);
    return GQAC_OK;
}

gqac_status store_insert(store_node *root, const kv_sequence *rows, const int64_t *ids, int64_t n,
                         int64_t pinned, gqac_diag *diag) {
    place at = walk(root, ids, n);
    if (at.length == n && reusable(at.node, n, n) == n) {
        use_path(at.node);
        return GQAC_OK;
    }
    if (at.inside) {
        at.node = split(at.node, at.length);
        if (!at.node)
            return gqac_diag_oom(diag, "a prefix store");
    }
    if (at.length == n)
        return set_rows(at.node, rows, n, pinned, diag);
    if (!at.inside && can_extend(at.node, rows))
        return extend(at.node, rows, ids, n, diag);
    if (!reserve_child(at.node))
        return gqac_diag_oom(diag, "a prefix store");
    store_node *node = make_node(at.node, n, ids + at.length);
    if (!node)
        return gqac_diag_oom(diag, "a prefix store");
    const gqac_status status = set_rows(node, rows, n, pinned, diag);
    if (status != GQAC_OK) {
        free_node(node);
        return status;
    }
    use_path(at.node);
    attach(node);
    return GQAC_OK;
}

store_node *store_node_at(store_node *root, const int64_t *ids, int64_t n) {
    const place at = walk(root, ids, n);
    return at.length < n || !n ? NULL : at.inside ? split(at.node, n) : at.node;
}

/* ---- removal ------------------------------------------------------------- */

bool store_remove_oldest(gqac_store *store, const store_tenant *owner) {
    store_node *node = store->oldest;
    while (node &&
           (node->n_children || node->pins || (owner && node->space->tenant->owner != owner)))
        node = node->newer;
    if (!node)
        return false;
    remove_leaf(node);
    store->counts.evictions++;
    return true;
}

void store_clear(store_space *space) {
    for (int side = 0; side < STORE_SIDES; side++) {
        store_node *root = &space->roots[side];
        while (root->n_children) {
            store_node *node = root;
            while (node->n_children)
                node = node->children[node->n_children - 1];
            node->pins = 0;
            remove_leaf(node);
        }
    }
}
