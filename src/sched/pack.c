/* What the next step computes: who is admitted, and whose tokens are packed; and what is given up
 * when memory is short. */
#include <string.h>

#include "base/common.h"
#include "sched/sched_impl.h"

enum { ENOUGH = 64 }; /* tokens for which a request waits a step */

/* ---- admission ----------------------------------------------------------- */

static void preempt(gqac_scheduler *s, request *r) {
    request_count(s, r);
    request_close(r);
    r->preemptions++;
    s->counts.preemptions++;
}

void pack_admit(gqac_scheduler *s) {
    int64_t n = 0;
    s->counts.running = 0;
    for (request *r = s->order; r; r = r->next) {
        r->admitted = n++ < s->room;
        s->counts.running += r->admitted;
        if (!r->admitted && r->sequence)
            preempt(s, r);
    }
}

/* ---- items --------------------------------------------------------------- */

static void add(gqac_scheduler *s, request *r, int64_t count) {
    const int64_t pending = request_pending(r);
    const int64_t last = count == pending && r->given.max_new > 0;
    draft_drop(r);
    s->members[s->n] = r;
    s->items[s->n++] = (gqac_step_item){.size = sizeof *s->items,
                                        .sequence = r->sequence,
                                        .tokens = r->list + ((int64_t)r->n - pending),
                                        .count = count,
                                        .n_logits = r->given.on_row ? count : last,
                                        .n_top = request_top(r)};
}

/* True if only one token of the request is left to compute: a decode row. */
static bool is_row(const request *r) {
    return r->admitted && r->sequence && request_pending(r) == 1;
}

static bool is_chunk(const request *r) {
    return r->admitted && !r->fetch && !is_row(r);
}

/* True if the store will find the rows of `a` for `b`. */
static bool can_share(const gqac_scheduler *s, const request *a, const request *b) {
    const char *x = a->given.tenant, *y = b->given.tenant;
    return request_shares(s, a) && !strcmp(x ? x : "", y ? y : "") &&
           a->long_rope == request_is_beyond(s, b);
}

/* The number of leading tokens of a request that the store will have from chunks of this step. */
static int64_t soon_cached(const gqac_scheduler *s, const request *r) {
    int64_t most = 0;
    for (int i = 0; i < s->n; i++) {
        const request *m = s->members[i];
        if (s->items[i].count < 2 || !can_share(s, m, r))
            continue;
        const int64_t end = gqac_sequence_length(m->sequence) + s->items[i].count;
        const int64_t limit = end < (int64_t)r->n - 1 ? end : (int64_t)r->n - 1;
        const int64_t same = gqac_common_ids(m->list, r->list, limit);
        most = same > most ? same : most;
    }
    return most;
}

/* True if a request without rows should wait, because another request computes tokens in this step
 * that the store will have afterwards: if these are all that it could compute now, or so many that
 * they should not be computed twice. */
static bool should_wait(const gqac_scheduler *s, const request *r, int64_t left) {
    if (!request_shares(s, r))
        return false;
    const int64_t soon = soon_cached(s, r);
    if (!soon)
        return false;
    const int64_t now =
        gqac_store_match(s->options.store, r->given.tenant,
                         gqac_sequence_kind(s->members[0]->sequence), r->list, (int64_t)r->n);
    const int64_t pending = (int64_t)r->n - now, most = pending < left ? pending : left;
    return soon - now >= (most < ENOUGH ? most : ENOUGH);
}

/* Adds the chunks of requests with this `again`, of at most *left tokens together; in a program
 * that pads, only one. */
static gqac_status add_chunks(gqac_scheduler *s, bool again, int64_t *left, request **failed,
                              gqac_diag *diag) {
    for (request *r = s->order; r && *left > 0; r = r->next) {
        if (!is_chunk(r) || r->again != again || (!r->sequence && should_wait(s, r, *left)))
            continue;
        if (!r->sequence) {
            const gqac_status status = request_open(s, r, diag);
            *failed = r;
            GQAC_TRY(status);
        }
        const int64_t pending = request_pending(r), count = pending < *left ? pending : *left;
        add(s, r, count);
        *left = s->padded ? 0 : *left - count;
    }
    return GQAC_OK;
}

gqac_status pack_gather(gqac_scheduler *s, request **failed, gqac_diag *diag) {
    bool rows = false, chunks = false;
    s->n = 0;
    for (request *r = s->order; r; r = r->next) {
        if (r->sequence && !r->long_rope && request_is_beyond(s, r)) {
            request_count(s, r);
            request_close(r); /* all rows are computed again, with the other rope table */
        }
        if (r->admitted && !r->sequence)
            fetch_follow(s, r);
        rows |= is_row(r);
        chunks |= is_chunk(r);
    }
    if (s->padded && rows && chunks) {
        rows = s->chunk_was_last;
        chunks = !rows;
    }
    for (request *r = s->order; r && rows; r = r->next)
        if (is_row(r))
            add(s, r, 1);
    int64_t left = s->options.tokens - s->n;
    left = left < s->chunk ? left : s->chunk;
    if (chunks) /* first what is computed again: these requests get an id in this step, too */
        GQAC_TRY(add_chunks(s, true, &left, failed, diag));
    return chunks ? add_chunks(s, false, &left, failed, diag) : GQAC_OK;
}

/* ---- shortage ------------------------------------------------------------ */

static int64_t store_bytes(gqac_store *store) {
    gqac_store_statistics x = {.size = sizeof x};
    return gqac_store_get_statistics(store, &x, NULL) == GQAC_OK ? x.bytes : 0;
}

/* Halves the contents of the store, so that the rows that were used last stay as long as
 * possible. */
static bool evict(gqac_store *store) {
    const int64_t bytes = store ? store_bytes(store) : 0;
    if (!bytes)
        return false;
    gqac_store_evict(store, bytes / 2);
    return store_bytes(store) < bytes;
}

/* Gives up the rows that waiting requests share. */
static bool drop_bases(gqac_scheduler *s) {
    bool any = false;
    for (request *r = s->order; r; r = r->next) {
        any |= r->base != NULL;
        gqac_snapshot_free(r->base);
        r->base = NULL;
    }
    return any;
}

bool pack_relieve(gqac_scheduler *s, int64_t chunk) {
    int64_t most = 0, sum = 0;
    for (int i = 0; i < s->n; i++) {
        const int64_t count = s->items[i].count;
        most = count > most ? count : most;
        sum += count > 1 ? count : 0;
    }
    if (evict(s->options.store))
        return true;
    if (most > 1) {
        s->chunk = sum / 2;
        return true;
    }
    if (s->counts.running > 1) {
        s->room = s->counts.running - 1;
        s->chunk = chunk;
        pack_admit(s);
        return true;
    }
    return drop_bases(s);
}
