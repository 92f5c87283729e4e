/* States of constraints, and masks. Masks are kept with the states of the automaton, so most of
 * them are computed only once. When the automaton has grown, it forgets all but the states in
 * use. */
#include "llm/constraint.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

enum { MOST_BYTES = 8 << 20 }; /* of an automaton, if the states in use take little */

/* ---- constraints --------------------------------------------------------- */

static void release(gqac_constraint *c) {
    if (atomic_fetch_sub(&c->users, 1) != 1)
        return;
    automaton_close(&c->automaton);
    grammar_free(c->grammar);
    gqac_free(c->first);
    pthread_mutex_destroy(&c->lock);
    gqac_free(c);
}

gqac_status constraint_create(const vocabulary *words, grammar *g, gqac_constraint **out,
                              gqac_diag *diag) {
    gqac_constraint *c = gqac_calloc(1, sizeof *c);
    const gqac_status status =
        c ? automaton_open(&c->automaton, g, diag) : gqac_diag_oom(diag, "a constraint");
    if (status != GQAC_OK || pthread_mutex_init(&c->lock, NULL) != 0) {
        if (status == GQAC_OK)
            automaton_close(&c->automaton);
        grammar_free(g);
        gqac_free(c);
        return status != GQAC_OK ? status : gqac_diag_oom(diag, "a constraint");
    }
    c->words = words;
    c->grammar = g;
    c->most = MOST_BYTES;
    atomic_init(&c->users, 1);
    *out = c;
    return GQAC_OK;
}

void gqac_constraint_free(gqac_constraint *c) {
    if (c)
        release(c);
}

/* Under the lock, before the automaton is used: makes it small again. */
static gqac_status collect(gqac_constraint *c, gqac_diag *diag) {
    size_t n = 0;
    c->automaton.effort = 0;
    if (automaton_bytes(&c->automaton) <= c->most)
        return GQAC_OK;
    for (const gqac_constraint_state *s = c->states; s; s = s->next)
        n++;
    uint32_t *live = gqac_alloc((n + 1) * sizeof *live);
    if (!live)
        return gqac_diag_oom(diag, "the states of a constraint");
    n = 0;
    for (const gqac_constraint_state *s = c->states; s; s = s->next)
        live[n++] = s->now;
    const gqac_status status = automaton_collect(&c->automaton, live, n, diag);
    n = 0;
    for (gqac_constraint_state *s = c->states; s && status == GQAC_OK; s = s->next)
        s->now = live[n++];
    gqac_free(live);
    const size_t twice = 2 * automaton_bytes(&c->automaton);
    c->most = twice > MOST_BYTES ? twice : MOST_BYTES;
    return status;
}

/* ---- states -------------------------------------------------------------- */

static gqac_status add_state(gqac_constraint *c, uint32_t now, bool begun,
                             gqac_constraint_state **out, gqac_diag *diag) {
    gqac_constraint_state *s = gqac_calloc(1, sizeof *s);
    if (!s)
        return gqac_diag_oom(diag, "the state of a constraint");
    *s = (gqac_constraint_state){.owner = c, .now = now, .begun = begun, .next = c->states};
    if (c->states)
        c->states->prev = s;
    c->states = s;
    atomic_fetch_add(&c->users, 1);
    *out = s;
    return GQAC_OK;
}

gqac_status gqac_constraint_begin(gqac_constraint *c, gqac_constraint_state **state,
                                  gqac_diag *diag) {
    uint32_t start = AUTOMATON_DEAD;
    pthread_mutex_lock(&c->lock);
    gqac_status status = collect(c, diag);
    if (status == GQAC_OK)
        status = automaton_start(&c->automaton, &start, diag);
    if (status == GQAC_OK)
        status = add_state(c, start, false, state, diag);
    pthread_mutex_unlock(&c->lock);
    return status;
}

gqac_status gqac_constraint_fork(const gqac_constraint_state *state, gqac_constraint_state **fork,
                                 gqac_diag *diag) {
    gqac_constraint *c = state->owner;
    pthread_mutex_lock(&c->lock);
    const gqac_status status = add_state(c, state->now, state->begun, fork, diag);
    pthread_mutex_unlock(&c->lock);
    return status;
}

void gqac_constraint_state_free(gqac_constraint_state *state) {
    if (!state)
        return;
    gqac_constraint *c = state->owner;
    pthread_mutex_lock(&c->lock);
    if (state->prev)
        state->prev->next = state->next;
    else
        c->states = state->next;
    if (state->next)
        state->next->prev = state->prev;
    pthread_mutex_unlock(&c->lock);
    gqac_free(state);
    release(c);
}

/* ---- masks --------------------------------------------------------------- */

static gqac_status make_mask(const gqac_constraint_state *s, token_mask **out, size_t *bytes,
                             gqac_diag *diag) {
    gqac_constraint *c = s->owner;
    const size_t words = ((size_t)c->words->n + 63) / 64;
    *bytes = sizeof(token_mask) + words * sizeof(uint64_t);
    token_mask *m = gqac_calloc(1, *bytes);
    if (!m)
        return gqac_diag_oom(diag, "the mask of a constraint");
    const gqac_status status =
        vocabulary_mark(c->words, &c->automaton, s->now, !s->begun, m->bits, diag);
    for (size_t i = 0; i < words && !m->any; i++)
        m->any = m->bits[i] != 0;
    GQAC_RETURN_MADE(status, m, out, gqac_free);
}

/* Under the lock: the tokens that may follow. */
static gqac_status find_mask(const gqac_constraint_state *s, const token_mask **out,
                             gqac_diag *diag) {
    gqac_constraint *c = s->owner;
    token_mask *m = s->begun ? c->automaton.states[s->now].more : c->first;
    size_t bytes = 0;
    if (!m) {
        GQAC_TRY(make_mask(s, &m, &bytes, diag));
        if (s->begun)
            automaton_attach(&c->automaton, s->now, m, bytes);
        else
            c->first = m;
    }
    *out = m;
    return GQAC_OK;
}

static bool may_end(const gqac_constraint_state *s) {
    return s->owner->automaton.states[s->now].may_end;
}

/* Names the first byte that could follow, were there a token for it. */
static gqac_status none_fits(const gqac_constraint_state *s, gqac_diag *diag) {
    automaton *a = &s->owner->automaton;
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t next = AUTOMATON_DEAD;
        GQAC_TRY(automaton_next(a, s->now, (uint8_t)byte, &next, diag));
        if (next == AUTOMATON_DEAD)
            continue;
        gqac_diag_set(
            diag, GQAC_INVALID_INPUT,
            "the constraint requires more text, for instance byte 0x%02x, but no token of "
            "the vocabulary fits",
            byte);
        gqac_diag_rule(diag, "the tokens of the model can spell what the constraint accepts");
        gqac_diag_hint(diag, "use a constraint in characters that the tokenizer has");
        return GQAC_INVALID_INPUT;
    }
    GQAC_FAIL(diag, GQAC_INTERNAL, "a state of a constraint leads nowhere");
}

typedef struct ends {
    const int64_t *eos;
    int n;
    bool allowed;
} ends;

static bool is_end(const ends *e, int64_t id) {
    for (int i = 0; i < e->n; i++)
        if (e->eos[i] == id)
            return true;
    return false;
}

static void apply(const token_mask *m, int64_t known, const ends *e, float *logits,
                  int64_t vocabulary) {
    for (int64_t i = 0; i < vocabulary; i++) {
        if (i < known && m->bits[i / 64] == UINT64_MAX && i % 64 == 0) {
            i += 63;
            continue;
        }
        const bool fits = i < known && (m->bits[i / 64] >> i % 64 & 1);
        if (!fits && !(e->allowed && is_end(e, i)))
            logits[i] = NAN;
    }
    for (int i = 0; i < e->n && !e->allowed; i++)
        if (e->eos[i] >= 0 && e->eos[i] < vocabulary)
            logits[e->eos[i]] = NAN;
}

static gqac_status mask(const gqac_constraint_state *s, float *logits, int64_t vocabulary,
                        const int64_t *eos, int n_eos, gqac_diag *diag) {
    const token_mask *m = NULL;
    GQAC_TRY(collect(s->owner, diag));
    GQAC_TRY(find_mask(s, &m, diag));
    const ends e = {eos, n_eos, may_end(s)};
    if (!m->any && !e.allowed)
        return none_fits(s, diag);
    apply(m, s->owner->words->n, &e, logits, vocabulary);
    return GQAC_OK;
}

gqac_status gqac_constraint_mask(gqac_constraint_state *state, float *logits, int64_t vocabulary,
                                 const int64_t *eos, int n_eos, gqac_diag *diag) {
    pthread_mutex_lock(&state->owner->lock);
    const gqac_status status = mask(state, logits, vocabulary, eos, n_eos, diag);
    pthread_mutex_unlock(&state->owner->lock);
    return status;
}

/* ---- tokens -------------------------------------------------------------- */

static gqac_status push(gqac_constraint_state *s, int64_t id, gqac_diag *diag) {
    gqac_constraint *c = s->owner;
    GQAC_TRY(collect(c, diag));
    uint32_t next = s->now;
    GQAC_TRY(vocabulary_push(c->words, &c->automaton, &next, !s->begun, id, diag));
    if (next == AUTOMATON_DEAD)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "the constraint does not allow token id %lld here",
                  (long long)id);
    s->now = next;
    s->begun = true;
    return GQAC_OK;
}

gqac_status gqac_constraint_push(gqac_constraint_state *state, int64_t id, gqac_diag *diag) {
    pthread_mutex_lock(&state->owner->lock);
    const gqac_status status = push(state, id, diag);
    pthread_mutex_unlock(&state->owner->lock);
    return status;
}

gqac_status gqac_constraint_ends(gqac_constraint_state *state, bool *may, bool *must,
                                 gqac_diag *diag) {
    gqac_constraint *c = state->owner;
    const token_mask *m = NULL;
    pthread_mutex_lock(&c->lock);
    gqac_status status = collect(c, diag);
    *may = may_end(state);
    if (status == GQAC_OK && *may && must)
        status = find_mask(state, &m, diag);
    if (must)
        *must = m && !m->any;
    pthread_mutex_unlock(&c->lock);
    return status;
}
