/* What the next step computes: who is admitted, and whose tokens are packed; and what is given up
 * when memory is short. */
#include "sched/sched_impl.h"

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
    s->members[s->n] = r;
    s->items[s->n++] = (gqac_step_item){.size = sizeof *s->items,
                                        .sequence = r->sequence,
                                        .tokens = r->list + ((int64_t)r->n - pending),
                                        .count = count,
                                        .n_logits = r->given.on_row ? count : last};
}

/* True if only one token of the request is left to compute: a decode row. */
static bool is_row(const request *r) {
    return r->admitted && r->sequence && request_pending(r) == 1;
}

static bool is_chunk(const request *r) {
    return r->admitted && !is_row(r);
}

/* Adds chunks of at most `left` tokens together; in a program that pads, only one. */
static gqac_status add_chunks(gqac_scheduler *s, int64_t left, request **failed, gqac_diag *diag) {
    for (request *r = s->order; r && left > 0; r = r->next) {
        if (!is_chunk(r))
            continue;
        if (!r->sequence) {
            const gqac_status status = request_open(s, r, diag);
            *failed = r;
            GQAC_TRY(status);
        }
        const int64_t pending = request_pending(r), count = pending < left ? pending : left;
        add(s, r, count);
        left = s->padded ? 0 : left - count;
    }
    return GQAC_OK;
}

gqac_status pack_gather(gqac_scheduler *s, request **failed, gqac_diag *diag) {
    bool rows = false, chunks = false;
    s->n = 0;
    for (request *r = s->order; r; r = r->next) {
        if (r->sequence && !r->long_rope && s->threshold && (int64_t)r->n > s->threshold) {
            request_count(s, r);
            request_close(r); /* all rows are computed again, with the other rope table */
        }
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
    const int64_t left = s->options.tokens - s->n;
    return chunks ? add_chunks(s, left < s->chunk ? left : s->chunk, failed, diag) : GQAC_OK;
}

/* ---- shortage ------------------------------------------------------------ */

static int64_t store_bytes(gqac_store *store) {
    gqac_store_statistics x = {.size = sizeof x};
    return gqac_store_get_statistics(store, &x, NULL) == GQAC_OK ? x.bytes : 0;
}

/* Halves what the store holds, so that what was used last stays as long as possible. */
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
