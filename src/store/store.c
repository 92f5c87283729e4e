/* A store: tenants and their spaces, sequences that begin with what is cached, and the budget.
 *
 * The run time reports to the store what a step has committed (sequence_watch). If there is no
 * memory for the index then, the sequence continues, and its rows are added later or not at all. */
#include <string.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "runtime/baked.h"
#include "store/fetch.h"
#include "store/store_impl.h"

/* ---- creation ------------------------------------------------------------ */

static gqac_status open_parts(gqac_store *s, gqac_diag *diag) {
    const gqac_store_options *o = &s->options;
    if (s->program->stateless || !s->program->pool)
        GQAC_FAIL(diag, GQAC_USAGE, "the program was compiled without sequence state");
    if (o->budget < 0 || o->tenant_budget < 0 || o->folder_budget < 0 || o->remote_ms < 0)
        GQAC_FAIL(
            diag, GQAC_OUT_OF_RANGE,
            "budget, tenant_budget, folder_budget and remote_ms of a store must not be negative");
    GQAC_TRY(gqac_program_rope_threshold(s->program, &s->threshold, diag));
    const char *path = o->folder;
    const gqac_store_remote *remote = o->remote;
    s->options.folder = NULL; /* the caller's */
    s->options.remote = NULL;
    if (remote)
        GQAC_TRY(store_remote_open(s, remote, o->remote_ms, &s->remote, diag));
    return path ? store_folder_open(s, path, &s->files, diag) : GQAC_OK;
}

gqac_status gqac_store_create(const gqac_program *program, const gqac_store_options *options,
                              gqac_store **store, gqac_diag *diag) {
    gqac_store *s = gqac_calloc(1, sizeof *s);
    if (!s)
        return gqac_diag_oom(diag, "a prefix store");
    s->program = program;
    pthread_mutex_init(&s->lock, NULL);
    gqac_status status =
        gqac_sized_take(&s->options, sizeof s->options, options, "gqac_store_options", diag);
    if (status == GQAC_OK)
        status = open_parts(s, diag);
    if (status != GQAC_OK) {
        gqac_store_free(s);
        return status;
    }
    *store = s;
    return GQAC_OK;
}

static void free_space(store_space *space) {
    for (int side = 0; side < STORE_SIDES; side++)
        gqac_free(space->roots[side].children);
    gqac_free(space->holders);
    gqac_free(space->kind);
    gqac_free(space);
}

static void free_tenant(store_tenant *tenant) {
    gqac_free(tenant->name);
    gqac_free(tenant);
}

void gqac_store_free(gqac_store *store) {
    if (!store)
        return;
    for (size_t i = 0; i < store->n_spaces; i++) {
        store_clear(store->spaces[i]);
        free_space(store->spaces[i]);
    }
    for (size_t i = 0; i < store->n_tenants; i++)
        free_tenant(store->tenants[i]);
    store_folder_close(store->files);
    store_remote_close(store->remote);
    pthread_mutex_destroy(&store->lock);
    gqac_free(store->spaces);
    gqac_free(store->tenants);
    gqac_free(store);
}

const gqac_program *gqac_store_program(const gqac_store *store) {
    return store->program;
}

/* ---- spaces -------------------------------------------------------------- */

static char *copy_text(const char *text) {
    const size_t n = strlen(text) + 1;
    char *copy = gqac_alloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

/* The tenant of that name, of `length` bytes; NULL: out of memory. */
static store_tenant *tenant_of(gqac_store *s, const char *name, size_t length) {
    for (size_t i = 0; i < s->n_tenants; i++)
        if (strlen(s->tenants[i]->name) == length && !memcmp(s->tenants[i]->name, name, length))
            return s->tenants[i];
    const char *part = memchr(name, '\n', length);
    store_tenant *owner = part ? tenant_of(s, name, (size_t)(part - name)) : NULL;
    store_tenant *tenant = gqac_calloc(1, sizeof *tenant);
    char *copy = gqac_alloc(length + 1);
    if (!tenant || !copy || (part && !owner) ||
        !gqac_reserve(&s->tenants, s->n_tenants + 1, &s->tenants_capacity, sizeof *s->tenants)) {
        gqac_free(tenant);
        gqac_free(copy);
        return NULL;
    }
    memcpy(copy, name, length);
    copy[length] = 0;
    tenant->name = copy;
    tenant->owner = owner ? owner : tenant;
    if (owner)
        owner->users++;
    s->tenants[s->n_tenants++] = tenant;
    return tenant;
}

/* Frees the spaces and tenants that hold nothing and that nobody uses: a client can make any number
 * of them. */
static void drop_empty(gqac_store *s) {
    for (size_t i = 0; i < s->n_spaces;) {
        store_space *space = s->spaces[i];
        if (space->users || space->roots[0].n_children || space->roots[1].n_children) {
            i++;
            continue;
        }
        space->tenant->users--;
        free_space(space);
        s->spaces[i] = s->spaces[--s->n_spaces];
    }
    for (size_t i = s->n_tenants; i-- > 0;) { /* parts come after their owners */
        store_tenant *tenant = s->tenants[i];
        if (tenant->users || tenant->shown)
            continue;
        if (tenant->owner != tenant)
            tenant->owner->users--;
        free_tenant(tenant);
        memmove(s->tenants + i, s->tenants + i + 1, (--s->n_tenants - i) * sizeof *s->tenants);
    }
}

static store_space *find_space(const gqac_store *s, const char *tenant, const char *kind) {
    for (size_t i = 0; i < s->n_spaces; i++)
        if (!strcmp(s->spaces[i]->tenant->name, tenant) && !strcmp(s->spaces[i]->kind, kind))
            return s->spaces[i];
    return NULL;
}

/* The space of a tenant (NULL: "") and a kind by its own name. */
static gqac_status space_of(gqac_store *s, const char *tenant, const char *kind,
                            store_space **space, gqac_diag *diag) {
    *space = find_space(s, tenant ? tenant : "", kind);
    if (*space)
        return GQAC_OK;
    store_tenant *owner = tenant_of(s, tenant ? tenant : "", tenant ? strlen(tenant) : 0);
    store_space *made = gqac_calloc(1, sizeof *made);
    char *name = copy_text(kind);
    if (!owner || !made || !name ||
        !gqac_reserve(&s->spaces, s->n_spaces + 1, &s->spaces_capacity, sizeof *s->spaces)) {
        gqac_free(made);
        gqac_free(name);
        return gqac_diag_oom(diag, "a prefix store");
    }
    made->store = s;
    made->tenant = owner;
    owner->users++;
    made->kind = name;
    for (int side = 0; side < STORE_SIDES; side++)
        made->roots[side].space = made;
    s->spaces[s->n_spaces++] = made;
    *space = made;
    return GQAC_OK;
}

/* The tree of rows whose rope tables are those of a length. */
static store_node *root_of(store_space *space, int64_t length) {
    const int64_t threshold = space->store->threshold;
    return &space->roots[threshold && length > threshold];
}

/* ---- budget -------------------------------------------------------------- */

static void keep_budget(gqac_store *s, const store_tenant *tenant) {
    const gqac_store_options *o = &s->options;
    const store_tenant *owner = tenant->owner;
    while (o->tenant_budget && owner->bytes > o->tenant_budget && store_remove_oldest(s, owner))
        continue;
    while (o->budget && s->counts.bytes > o->budget && store_remove_oldest(s, NULL))
        continue;
}

void gqac_store_evict(gqac_store *store, int64_t bytes) {
    pthread_mutex_lock(&store->lock);
    while (store->counts.bytes > bytes && store_remove_oldest(store, NULL))
        continue;
    drop_empty(store);
    pthread_mutex_unlock(&store->lock);
}

/* A sequence that is larger than a budget would evict all others, and then be evicted itself. */
static bool fits(const gqac_store *s, const kv_sequence *rows) {
    const gqac_store_options *o = &s->options;
    size_t shared;
    const int64_t bytes = (int64_t)kv_sequence_bytes(rows, &shared);
    return (!o->budget || bytes <= o->budget) && (!o->tenant_budget || bytes <= o->tenant_budget);
}

/* ---- what is committed --------------------------------------------------- */

gqac_status store_add_rows(store_space *space, const gqac_sequence *q, int64_t length,
                           gqac_diag *diag) {
    if (length < 1 || q->given || !fits(space->store, q->kv))
        return GQAC_OK;
    const int64_t finite = kv_sequence_finite(q->kv);
    length = length > finite ? kv_sequence_reach(q->kv, finite) : length;
    if (!length)
        return GQAC_OK;
    const gqac_status status =
        store_insert(root_of(space, q->pinned), q->kv, q->ids, length, q->pinned, diag);
    keep_budget(space->store, space->tenant);
    return status;
}

enum { PROMPT = 16 }; /* tokens of a call that is taken for a prompt */

static void committed(void *arg, const gqac_sequence *q, int64_t count, int64_t accepted) {
    store_space *space = arg;
    int64_t length = kv_sequence_length(q->kv);
#ifndef GQAC_CONTROL_STORE_DRAFTS /* negative control: the store gets what may be taken back */
    length = q->drafts ? kv_sequence_reach(q->kv, length - q->drafts) : length;
#endif
    /* While a sequence decodes, its last block is added when it is full: a block that is shared is
     * copied when it is written to. */
    const int64_t full = length / GQAC_KV_BLOCK * GQAC_KV_BLOCK;
    const bool prompt = count >= PROMPT, adds = prompt || full > length - count - accepted;
    if (adds)
        (void)kv_sequence_finite(q->kv); /* reads the rows, without the lock */
    pthread_mutex_lock(&space->store->lock);
    space->store->counts.computed_tokens += count + accepted;
    if (adds)
        (void)store_add_rows(space, q, prompt ? length : kv_sequence_reach(q->kv, full), NULL);
    pthread_mutex_unlock(&space->store->lock);
}

static void forked(void *arg) {
    store_space *space = arg;
    pthread_mutex_lock(&space->store->lock);
    space->users++;
    pthread_mutex_unlock(&space->store->lock);
}

static void freed(void *arg, const gqac_sequence *q) {
    store_space *space = arg;
    gqac_store *s = space->store;
    pthread_mutex_lock(&s->lock);
    s->counts.computed_tokens += q->drafts; /* were not taken back */
    (void)store_add_rows(space, q, kv_sequence_length(q->kv), NULL);
    space->users--;
    drop_empty(s);
    pthread_mutex_unlock(&s->lock);
}

static gqac_status check_program(const gqac_store *s, const gqac_sequence *q, gqac_diag *diag) {
    if (q->program != s->program)
        GQAC_FAIL(diag, GQAC_USAGE, "the sequence belongs to another program than the store");
    return GQAC_OK;
}

gqac_status gqac_store_add(gqac_store *store, const char *tenant, const gqac_sequence *sequence,
                           gqac_diag *diag) {
    store_space *space = NULL;
    GQAC_TRY(check_program(store, sequence, diag));
    pthread_mutex_lock(&store->lock);
    gqac_status status = space_of(store, tenant, gqac_sequence_kind(sequence), &space, diag);
    if (status == GQAC_OK)
        status = store_add_rows(space, sequence, kv_sequence_length(sequence->kv), diag);
    drop_empty(store);
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* ---- sequences ----------------------------------------------------------- */

/* Adds the file that can continue more of the ids than the memory, if there is one. The lock is not
 * held while the file is read. */
static gqac_status load_file(store_space *space, const int64_t *ids, int64_t n, int64_t known,
                             gqac_diag *diag) {
    gqac_store *s = space->store;
    gqac_snapshot *snapshot = NULL;
    gqac_sequence *q = NULL;
    GQAC_TRY(
        store_folder_find(s, space->tenant->name, space->kind, ids, n, known, &snapshot, diag));
    if (!snapshot)
        return GQAC_OK;
    gqac_status status = gqac_snapshot_restore(snapshot, NULL, &q, diag);
    if (status == GQAC_OK) {
        pthread_mutex_lock(&s->lock);
        status = store_add_rows(space, q, kv_sequence_length(q->kv), diag);
        pthread_mutex_unlock(&s->lock);
    }
    gqac_sequence_free(q);
    gqac_snapshot_free(snapshot);
    return status;
}

/* The terms of a search for a prompt. */
typedef struct wanted {
    const int64_t *ids;
    int64_t n, limit; /* ids, and the maximum of what is reused */
    store_space *space;
    store_node *root;
} wanted;

static gqac_status look_up(gqac_store *s, const char *tenant, const gqac_sequence *q, wanted *w,
                           int64_t *known, gqac_diag *diag) {
    GQAC_TRY(space_of(s, tenant, gqac_sequence_kind(q), &w->space, diag));
    w->space->users++;
    w->root = root_of(w->space, q->final_length ? q->final_length : w->n);
    const int64_t capacity = kv_sequence_capacity(q->kv);
    w->limit = capacity && capacity < w->n - 1 ? capacity : w->n - 1;
    const store_match found = store_find(w->root, w->ids, w->limit, w->limit, false);
    *known = kv_pool_state_bytes(s->program->pool) ? found.length : found.known;
    return GQAC_OK;
}

/* Fills an empty sequence with what the index has of the ids. */
static gqac_status fill(gqac_store *s, const wanted *w, gqac_sequence *q, gqac_diag *diag) {
    const store_match found = store_find(w->root, w->ids, w->n, w->limit, true);
    const int64_t baked = baked_match(q, w->ids, w->n);
    const int64_t length = baked > found.length ? baked : found.length;
    if (baked > found.length)
        GQAC_TRY(baked_share(q, w->ids, baked, diag));
    else if (found.node)
        GQAC_TRY(
            sequence_share(q, found.node->rows, found.length, w->ids, found.node->pinned, diag));
    *(length ? &s->counts.hits : &s->counts.misses) += 1;
    s->counts.reused_tokens += length;
    q->watch =
        (sequence_watch){.committed = committed, .forked = forked, .freed = freed, .arg = w->space};
    return GQAC_OK;
}

/* Adds to the index what the folder and, with `remote`, the remote tier have of the ids beyond the
 * `known` ones. The lock is not held meanwhile. */
static gqac_status fetch(gqac_store *s, const wanted *w, const gqac_sequence *q, int64_t known,
                         bool remote, gqac_diag *diag) {
    if (s->files)
        GQAC_TRY(load_file(w->space, w->ids, w->limit, known, diag));
    if (s->remote && remote)
        store_remote_find(w->space, w->root, q, q->final_length ? q->final_length : w->n, w->ids,
                          w->limit);
    return GQAC_OK;
}

/* The empty sequence of a prompt that is looked up. Whether this succeeds or not, the caller ends
 * it with stop_looking, unless the sequence is kept and watches the space. */
static gqac_status start_looking(gqac_store *s, const char *tenant, wanted *w, int64_t *known,
                                 const gqac_sequence_options *options, gqac_sequence **q,
                                 gqac_diag *diag) {
    if (w->n < 1)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "the prompt has %lld ids: it must have at least one",
                  (long long)w->n);
    GQAC_TRY(gqac_sequence_create(s->program, options, q, diag));
    pthread_mutex_lock(&s->lock);
    const gqac_status status = look_up(s, tenant, *q, w, known, diag);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static void stop_looking(gqac_store *s, const wanted *w, gqac_sequence *q) {
    gqac_sequence_free(q);
    pthread_mutex_lock(&s->lock);
    if (w->space)
        w->space->users--;
    drop_empty(s);
    pthread_mutex_unlock(&s->lock);
}

void store_fetch(gqac_store *store, const char *tenant, const int64_t *ids, int64_t n,
                 const gqac_sequence_options *options, int64_t waited) {
    gqac_sequence *q = NULL;
    wanted w = {.ids = ids, .n = n};
    int64_t known = 0;
    const bool remote = store->remote && waited < store_remote_limit(store->remote);
    if (start_looking(store, tenant, &w, &known, options, &q, NULL) == GQAC_OK)
        (void)fetch(store, &w, q, known, remote, NULL);
    stop_looking(store, &w, q);
}

static gqac_status open_sequence(gqac_store *store, const char *tenant, wanted *w, bool fetched,
                                 const gqac_sequence_options *options, gqac_sequence **sequence,
                                 int64_t *reused, gqac_diag *diag) {
    gqac_sequence *q = NULL;
    int64_t known = 0;
    gqac_status status = start_looking(store, tenant, w, &known, options, &q, diag);
    if (status == GQAC_OK && !fetched)
        status = fetch(store, w, q, known, true, diag);
    if (status == GQAC_OK) {
        pthread_mutex_lock(&store->lock);
        status = fill(store, w, q, diag);
        pthread_mutex_unlock(&store->lock);
    }
    if (status != GQAC_OK) {
        stop_looking(store, w, q);
        return status;
    }
    *reused = gqac_sequence_length(q);
    *sequence = q;
    return GQAC_OK;
}

gqac_status gqac_store_open(gqac_store *store, const char *tenant, const int64_t *ids, int64_t n,
                            const gqac_sequence_options *options, gqac_sequence **sequence,
                            int64_t *reused, gqac_diag *diag) {
    wanted w = {.ids = ids, .n = n};
    return open_sequence(store, tenant, &w, false, options, sequence, reused, diag);
}

gqac_status store_open_fetched(gqac_store *store, const char *tenant, const int64_t *ids, int64_t n,
                               const gqac_sequence_options *options, gqac_sequence **sequence,
                               int64_t *reused, gqac_diag *diag) {
    wanted w = {.ids = ids, .n = n};
    return open_sequence(store, tenant, &w, true, options, sequence, reused, diag);
}

bool store_has_remote(const gqac_store *store) {
    return store->remote != NULL;
}

int64_t gqac_store_match(gqac_store *store, const char *tenant, const char *kv, const int64_t *ids,
                         int64_t n) {
    int64_t length = 0;
    pthread_mutex_lock(&store->lock);
    store_space *space = find_space(store, tenant ? tenant : "", kv ? kv : "contiguous");
    if (space)
        length = store_find(root_of(space, n), ids, n, n, false).length;
    pthread_mutex_unlock(&store->lock);
    return length;
}

bool store_can_fetch(gqac_store *store, const char *tenant, const char *kv, const int64_t *ids,
                     int64_t n) {
    const int64_t known = gqac_store_match(store, tenant, kv, ids, n - 1);
    return store->files || (n - 1) / GQAC_KV_BLOCK > known / GQAC_KV_BLOCK;
}

static gqac_status pin_node(store_space *space, const int64_t *ids, int64_t n, bool pin,
                            gqac_diag *diag) {
    store_node *root = space ? root_of(space, n) : NULL;
    if (!root || store_find(root, ids, n, n, false).length != n || n < 1)
        GQAC_FAIL(diag, GQAC_USAGE, "the store does not have all %lld tokens", (long long)n);
    store_node *node = store_node_at(root, ids, n);
    if (!node)
        return gqac_diag_oom(diag, "a prefix store");
    if (!pin && !node->pins)
        GQAC_FAIL(diag, GQAC_USAGE, "the prefix of %lld tokens is not pinned", (long long)n);
    node->pins += pin ? 1 : -1;
    return GQAC_OK;
}

gqac_status gqac_store_pin(gqac_store *store, const char *tenant, const char *kv,
                           const int64_t *ids, int64_t n, bool pin, gqac_diag *diag) {
    pthread_mutex_lock(&store->lock);
    store_space *space = find_space(store, tenant ? tenant : "", kv ? kv : "contiguous");
    const gqac_status status = pin_node(space, ids, n, pin, diag);
    if (status == GQAC_OK && !pin)
        keep_budget(store, space->tenant);
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* ---- statistics ---------------------------------------------------------- */

gqac_status gqac_store_get_statistics(gqac_store *store, gqac_store_statistics *statistics,
                                      gqac_diag *diag) {
    pthread_mutex_lock(&store->lock);
    gqac_store_statistics own = store->counts;
    own.size = sizeof own;
    own.tenants = (int64_t)store->n_tenants;
    own.blocks = own.prefixes = 0;
    for (size_t i = 0; i < store->n_spaces; i++)
        own.blocks += store->spaces[i]->blocks;
    for (const store_node *node = store->oldest; node; node = node->newer)
        own.prefixes++;
    pthread_mutex_unlock(&store->lock);
    return gqac_sized_give(statistics, &own, sizeof own, "gqac_store_statistics", diag);
}

int gqac_store_prefixes(gqac_store *store, int capacity, gqac_store_prefix *prefixes) {
    int n = 0;
    pthread_mutex_lock(&store->lock);
    for (const store_node *node = store->newest; node; node = node->older) {
        if (node->uses < 2)
            continue;
        int at = n;
        while (at > 0 && prefixes[at - 1].uses * prefixes[at - 1].length < node->uses * node->end)
            at--;
        if (at == capacity)
            continue;
        n += n < capacity;
        memmove(prefixes + at + 1, prefixes + at, (size_t)(n - 1 - at) * sizeof *prefixes);
        prefixes[at] = (gqac_store_prefix){
            .tenant = node->space->tenant->name, .length = node->end, .uses = node->uses};
    }
    for (size_t i = 0; i < store->n_tenants; i++)
        for (int k = 0; k < n; k++)
            if (prefixes[k].tenant == store->tenants[i]->name)
                store->tenants[i]->shown = true;
    pthread_mutex_unlock(&store->lock);
    return n;
}
