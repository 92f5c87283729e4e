/* States of a sequence: which lengths it keeps one for.
 *
 * A state is written once and then only read, so forks can share it and a failed step has nothing
 * to undo. The state after q blocks is kept until 2 a more blocks follow, where a is the largest
 * power of two that divides q; so for each a about one state is kept. A position d tokens before
 * the end then has a kept state at most max(64, 2 d) tokens before it, and a sequence of n tokens
 * keeps about log2(n / 64) states. The state of imported tokens is the base: it is kept until a
 * rewind before it, because no earlier state is known. */
#include <assert.h>

#include "kv/kv_impl.h"

/* True if a sequence of `length` tokens keeps the state after `position` tokens. Once it is false,
 * it stays so while the length grows. */
static bool is_kept(int64_t position, int64_t length) {
    const int64_t q = position / GQAC_KV_BLOCK;
    return position == length || (q > 0 && position % GQAC_KV_BLOCK == 0 &&
                                  (length - position - 1) / (2 * GQAC_KV_BLOCK) < (q & -q));
}

/* For each power of two (in blocks), only the last odd multiple before the length is kept. */
int64_t kv_states_most(int64_t length) {
    int64_t n = length > 0;
    for (int64_t q = n ? (length - 1) / GQAC_KV_BLOCK : 0; q; q /= 2)
        n++;
    return n;
}

/* A tail of t rows before a multiple of GQAC_KV_BLOCK lies in ceil(t / GQAC_KV_BLOCK) blocks, a
 * tail before another length in up to one more. */
int64_t kv_tails_most(const kv_pool *pool, int64_t length) {
    const int64_t tail = kv_pool_tail(pool);
    const int64_t all = length > 0 ? (length - 1) / GQAC_KV_BLOCK + 1 : 0;
    const int64_t most =
        kv_states_most(length) * ((tail + GQAC_KV_BLOCK - 1) / GQAC_KV_BLOCK) + (tail > 0);
    return most < all ? most : all;
}

static void drop(kv_pool *pool, kv_states *s, kv_block *state) {
    if (!s->spare && !kv_block_is_mapped(state) && atomic_load(&state->references) == 1)
        s->spare = state;
    else
        kv_state_release(pool, state);
}

static void drop_due(kv_pool *pool, kv_states *s) {
    while (s->n_due)
        drop(pool, s, s->due[--s->n_due].state);
}

gqac_status kv_states_reserve(kv_pool *pool, kv_states *s, int64_t length, int64_t total,
                              gqac_diag *diag) {
    if (!kv_pool_state_bytes(pool))
        return GQAC_OK;
    drop_due(pool, s); /* left by a failed step */
    for (int64_t at = (length / GQAC_KV_BLOCK + 1) * GQAC_KV_BLOCK; total > length;) {
        const int64_t position = at < total ? at : total;
        if (is_kept(position, total)) {
            kv_block *state = s->spare ? s->spare : kv_state_create(pool);
            s->spare = NULL;
            if (!state) {
                const gqac_status status = kv_state_fail(pool, diag);
                drop_due(pool, s);
                return status;
            }
            assert(s->n_due < KV_MARKS);
            s->due[s->n_due++] = (kv_mark){position, state};
        }
        if (position == total)
            break;
        at += GQAC_KV_BLOCK;
    }
    return GQAC_OK;
}

void kv_states_publish(kv_pool *pool, kv_states *s, int64_t length) {
    int n = 0;
    if (!s->n_due)
        return; /* no states, or nothing new */
    assert(s->due[s->n_due - 1].position == length);
    for (int i = 0; i < s->n; i++)
        if (s->marks[i].position == s->base || is_kept(s->marks[i].position, length))
            s->marks[n++] = s->marks[i];
        else
            drop(pool, s, s->marks[i].state);
    assert(n + s->n_due <= KV_MARKS);
    for (int i = 0; i < s->n_due; i++)
        s->marks[n++] = s->due[i];
    s->n = n;
    s->n_due = 0;
}

int64_t kv_states_reach(const kv_states *s, int64_t length) {
    int64_t reach = 0;
    for (int i = 0; i < s->n && s->marks[i].position <= length; i++)
        reach = s->marks[i].position;
    return reach;
}

void kv_states_rewind(kv_pool *pool, kv_states *s, int64_t length) {
    drop_due(pool, s);
    while (s->n && s->marks[s->n - 1].position > length)
        drop(pool, s, s->marks[--s->n].state);
    if (length < s->base)
        s->base = 0;
    if (length == 0 && s->spare)
        kv_state_release(pool, s->spare);
    if (length == 0)
        s->spare = NULL;
}

void kv_states_fork(const kv_states *s, kv_states *fork) {
    fork->n = s->n;
    fork->base = s->base;
    for (int i = 0; i < s->n; i++)
        fork->marks[i] = (kv_mark){s->marks[i].position, kv_block_share(s->marks[i].state)};
}

gqac_status kv_states_restore(kv_pool *pool, kv_states *s, int n, const int64_t *positions,
                              int64_t base, kv_image *image, gqac_diag *diag) {
    assert(!s->n && n <= KV_MARKS);
    drop_due(pool, s);
    for (int i = 0; i < n; i++) {
        kv_block *state = image ? kv_state_map(pool, image) : kv_state_create(pool);
        if (!state) {
            const gqac_status status = kv_state_fail(pool, diag);
            drop_due(pool, s);
            return status;
        }
        s->due[s->n_due++] = (kv_mark){positions[i], state};
    }
    s->base = base;
    return GQAC_OK;
}
