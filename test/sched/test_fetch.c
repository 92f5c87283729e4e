/* Prompts that a remote tier may have: while one is fetched, the others get their ids; whatever the
 * tier does, each answer has the bits of a run alone. */
#include "sched/rig.h"
#include "store/support_tier.h"

#include <pthread.h>
#include <time.h>

#include "base/alloc.h"

enum { LONG = 60000, PATIENCE = 10 }; /* a time limit that is never reached, in ms; seconds */

static gqac_diag diag;

/* A tier whose answers wait at a gate. */
typedef struct gated {
    tier tier;
    gqac_store_remote functions; /* the functions of the tier */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool shut, reached; /* reached: a call waits, or has waited */
    bool late;          /* the gate was not opened in time */
} gated;

static bool find(void *arg, int64_t ms, const gqac_store_key *keys, size_t n, size_t *sizes) {
    gated *g = arg;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    pthread_mutex_lock(&g->lock);
    g->reached = true;
    pthread_cond_broadcast(&g->changed);
    while (g->shut && !g->late)
        g->late = pthread_cond_timedwait(&g->changed, &g->lock, &until) != 0;
    const bool found = g->functions.find(g->functions.arg, ms, keys, n, sizes);
    pthread_mutex_unlock(&g->lock);
    return found;
}

static bool get(void *arg, int64_t ms, const gqac_store_key *key, void *data, size_t capacity,
                size_t *bytes) {
    gated *g = arg;
    pthread_mutex_lock(&g->lock);
    const bool got = g->functions.get(g->functions.arg, ms, key, data, capacity, bytes);
    pthread_mutex_unlock(&g->lock);
    return got;
}

static bool put(void *arg, int64_t ms, const gqac_store_key *key, const void *data, size_t bytes) {
    gated *g = arg;
    pthread_mutex_lock(&g->lock);
    const bool done = g->functions.put(g->functions.arg, ms, key, data, bytes);
    pthread_mutex_unlock(&g->lock);
    return done;
}

static void open_gate(gated *g) {
    pthread_mutex_lock(&g->lock);
    g->shut = false;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* Waits until a call waits at the gate. */
static void await_gate(gated *g) {
    pthread_mutex_lock(&g->lock);
    while (!g->reached)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

/* ---- what the cases share ------------------------------------------------ */

enum { SHARED = 150, CLIENTS = 3, BLOCK = 64 };

typedef struct bench {
    rig r;
    gated g;
    gqac_store *store;
    gqac_scheduler *s;
    client clients[CLIENTS];
    bool done;   /* set by the other thread of a case */
    size_t live; /* allocations before the case */
} bench;

static gqac_store *store_on(const rig *r, gated *g) {
    const gqac_store_remote functions = {
        .size = sizeof functions, .find = find, .get = get, .put = put, .arg = g};
    const gqac_store_options options = {
        .size = sizeof options, .remote = &functions, .remote_ms = LONG};
    gqac_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_store_create(r->program, &options, &store, &diag), GQAC_OK);
    return store;
}

/* As if another machine had computed a prompt and saved it. */
static void save(const rig *r, gated *g, const client *c) {
    gqac_store *store = store_on(r, g);
    gqac_sequence *q = NULL;
    int64_t reused = 0;
    CU_ASSERT_EQUAL_FATAL(
        gqac_store_open(store, NULL, c->list, c->n_prompt, NULL, &q, &reused, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(
        gqac_sequence_append(r->context, q, c->list + reused, c->n_prompt - reused, 1, &diag),
        GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_store_save(store, NULL, q, &diag), GQAC_OK);
    gqac_sequence_free(q);
    gqac_store_free(store);
}

/* A scheduler with a tier that has the full blocks of the prompt of client 1. The prompt of client
 * 0 has no full block, and that of client 2 is unknown to the tier. */
static void set_up(bench *b) {
    *b = (bench){.clients = {rig_client(9, 40, 1), rig_client(SHARED, 6, 2), rig_client(90, 6, 3)}};
    b->live = gqac_alloc_live();
    b->r = rig_open(LLAMA, 0, 1);
    pthread_mutex_init(&b->g.lock, NULL);
    pthread_cond_init(&b->g.changed, NULL);
    b->g.functions = tier_functions(&b->g.tier);
    save(&b->r, &b->g, &b->clients[1]);
    CU_ASSERT_EQUAL_FATAL(b->g.tier.n, 2);
    b->g.reached = false;
    b->store = store_on(&b->r, &b->g);
    b->s = rig_scheduler(&b->r, 64, 4, b->store);
}

static void tear_down(bench *b) {
    gqac_scheduler_free(b->s);
    gqac_store_free(b->store);
    CU_ASSERT_FALSE(b->g.late);
    for (int i = 0; i < CLIENTS; i++)
        CU_ASSERT(!b->clients[i].number || b->clients[i].ends == 1);
    tier_free(&b->g.tier);
    pthread_mutex_destroy(&b->g.lock);
    pthread_cond_destroy(&b->g.changed);
    rig_close(&b->r);
    CU_ASSERT_EQUAL(gqac_alloc_live(), b->live);
}

static void *open_soon(void *arg) {
    const struct timespec soon = {.tv_nsec = 20000000};
    await_gate(arg);
    nanosleep(&soon, NULL);
    open_gate(arg);
    return NULL;
}

/* ---- cases --------------------------------------------------------------- */

/* While the tier does not answer for one prompt, one answer continues and another prompt begins. */
static void others_step(void) {
    bench b;
    set_up(&b);
    client *first = &b.clients[0], *fetched = &b.clients[1];
    rig_send(b.s, first, 0);
    while (first->n == first->n_prompt)
        rig_step(b.s);
    b.g.shut = true;
    rig_send(b.s, fetched, 0);
    for (int i = 1; i <= 20; i++) {
        const int64_t before = first->n;
        rig_step(b.s);
        CU_ASSERT_EQUAL(first->n, before + 1);
    }
    await_gate(&b.g);
    CU_ASSERT(fetched->done == 0 && rig_statistics(b.s).running == 2);
    open_gate(&b.g);
    rig_finish(b.s);
    CU_ASSERT_EQUAL(fetched->end.reused_tokens, SHARED / BLOCK * BLOCK);
    CU_ASSERT_EQUAL(first->end.finish, GQAC_FINISH_LENGTH);
    CU_ASSERT(rig_compare(&b.r, first) == 40 && rig_compare(&b.r, fetched) == 6);
    tear_down(&b);
}

/* If a step has nothing else to compute, it waits for the fetch instead of returning at once. */
static void alone(void) {
    bench b;
    pthread_t opener;
    int64_t left = 1;
    int steps = 0;
    set_up(&b);
    b.g.shut = true;
    rig_send(b.s, &b.clients[1], 0);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&opener, NULL, open_soon, &b.g), 0);
    for (; left && steps < 100; steps++)
        CU_ASSERT_EQUAL_FATAL(gqac_scheduler_step(b.s, &left, &diag), GQAC_OK);
    pthread_join(opener, NULL);
    CU_ASSERT_EQUAL(steps, 1 + 6); /* the prompt is one chunk and returns the first id */
    CU_ASSERT_EQUAL(rig_compare(&b.r, &b.clients[1]), 6);
    tear_down(&b);
}

static void *cancel_soon(void *arg) {
    bench *b = arg;
    await_gate(&b->g);
    b->done = gqac_scheduler_cancel(b->s, b->clients[1].number);
    return NULL;
}

/* A request is cancelled while it is fetched and a step waits for it: it ends at once. */
static void cancelled(void) {
    bench b;
    pthread_t other;
    set_up(&b);
    b.g.shut = true;
    rig_send(b.s, &b.clients[1], 0);
    rig_send(b.s, &b.clients[2], 0);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&other, NULL, cancel_soon, &b), 0);
    while (!b.clients[1].ends)
        rig_step(b.s);
    pthread_join(other, NULL);
    CU_ASSERT(b.done && b.clients[1].end.finish == GQAC_FINISH_CANCELLED && b.g.shut);
    CU_ASSERT(!b.clients[1].end.reused_tokens && !b.clients[2].ends);
    open_gate(&b.g);
    rig_finish(b.s);
    CU_ASSERT_EQUAL(rig_compare(&b.r, &b.clients[2]), 6);
    tear_down(&b);
}

static bool once_reached(void *arg) {
    gated *g = arg;
    pthread_mutex_lock(&g->lock);
    const bool reached = g->reached;
    pthread_mutex_unlock(&g->lock);
    return reached;
}

/* The monitor of the context ends a step that waits for a fetch; the request is unchanged. */
static void aborted(void) {
    bench b;
    set_up(&b);
    const gqac_monitor monitor = {.size = sizeof monitor, .abort = once_reached, .arg = &b.g};
    b.g.shut = true;
    rig_send(b.s, &b.clients[1], 0);
    CU_ASSERT_EQUAL(gqac_context_set_monitor(b.r.context, &monitor, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_scheduler_step(b.s, NULL, &diag), GQAC_ABORTED);
    CU_ASSERT(b.g.reached && b.g.shut && !b.g.late && !b.clients[1].ends);
    CU_ASSERT(strstr(diag.what, "remote tier") != NULL);
    CU_ASSERT_EQUAL(gqac_scheduler_step(b.s, NULL, &diag), GQAC_ABORTED); /* monitor unchanged */
    CU_ASSERT_EQUAL(gqac_context_set_monitor(b.r.context, NULL, NULL, &diag), GQAC_OK);
    open_gate(&b.g);
    rig_finish(b.s);
    CU_ASSERT_EQUAL(b.clients[1].end.reused_tokens, SHARED / BLOCK * BLOCK);
    CU_ASSERT_EQUAL(rig_compare(&b.r, &b.clients[1]), 6);
    tear_down(&b);
}

static void *send_soon(void *arg) {
    bench *b = arg;
    await_gate(&b->g);
    client *c = &b->clients[0];
    b->done = gqac_scheduler_submit(b->s, &c->request, &c->number, NULL) == GQAC_OK;
    return NULL;
}

/* A new request wakes a step that waits. */
static void submitted(void) {
    bench b;
    pthread_t other;
    set_up(&b);
    b.g.shut = true;
    rig_send(b.s, &b.clients[1], 0);
    rig_prepare(&b.clients[0], b.clients[0].n_prompt, 40);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&other, NULL, send_soon, &b), 0);
    while (!b.clients[0].ends)
        rig_step(b.s);
    pthread_join(other, NULL);
    CU_ASSERT(b.done && b.g.shut && !b.clients[1].ends);
    open_gate(&b.g);
    rig_finish(b.s);
    CU_ASSERT_EQUAL(rig_compare(&b.r, &b.clients[0]), 40);
    tear_down(&b);
}

/* Prompts with a common beginning are fetched one after another: each value is read from the tier
 * once. */
static void alike(void) {
    bench b;
    set_up(&b);
    client *first = &b.clients[1], *other = &b.clients[2];
    *other = *first;
    other->list[--other->n_prompt - 1] = first->list[2];
    const int calls = b.g.tier.calls;
    b.g.shut = true;
    rig_send(b.s, first, 0);
    rig_send(b.s, other, 0);
    pthread_t opener;
    CU_ASSERT_EQUAL_FATAL(pthread_create(&opener, NULL, open_soon, &b.g), 0);
    rig_finish(b.s);
    pthread_join(opener, NULL);
    CU_ASSERT_EQUAL(b.g.tier.calls - calls, 1 + 2);
    CU_ASSERT(first->end.reused_tokens == 2 * BLOCK && other->end.reused_tokens >= 2 * BLOCK);
    CU_ASSERT(rig_compare(&b.r, first) == 6 && rig_compare(&b.r, other) == 6);
    tear_down(&b);
}

/* A scheduler is freed during a fetch, while another prompt with the same beginning waits. */
static void freed(void) {
    bench b;
    pthread_t opener;
    set_up(&b);
    rig_send(b.s, &b.clients[0], 0);
    rig_step(b.s);
    b.g.shut = true;
    memcpy(b.clients[2].list, b.clients[1].list, BLOCK * sizeof *b.clients[2].list);
    rig_send(b.s, &b.clients[1], 0);
    rig_send(b.s, &b.clients[2], 0);
    rig_step(b.s);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&opener, NULL, open_soon, &b.g), 0);
    await_gate(&b.g);
    gqac_scheduler_free(b.s);
    b.s = NULL;
    pthread_join(opener, NULL);
    tear_down(&b);
}

/* A tier that fails, forgets or returns wrong data: the prompt is computed, with the same ids. */
static void faults(void) {
    static const tier_fault all[] = {TIER_DOWN,  TIER_GET_FAILS, TIER_FORGETS,
                                     TIER_FLIPS, TIER_SWAPS,     TIER_CUTS_LATER};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bench b;
        set_up(&b);
        b.g.tier.fault = all[i];
        b.g.tier.at = 99;
        for (int k = 1; k < CLIENTS; k++)
            rig_send(b.s, &b.clients[k], 0);
        rig_finish(b.s);
        CU_ASSERT_EQUAL(b.clients[1].end.reused_tokens, 0);
        for (int k = 1; k < CLIENTS; k++)
            CU_ASSERT_EQUAL(rig_compare(&b.r, &b.clients[k]), 6);
        tear_down(&b);
    }
}

static const unit_case cases[] = {
    {"others step during a fetch", others_step},
    {"a step with nothing else to do", alone},
    {"cancelled during a fetch", cancelled},
    {"submitted during a fetch", submitted},
    {"aborted during a fetch", aborted},
    {"prompts that begin alike", alike},
    {"freed during a fetch", freed},
    {"a tier that fails or lies", faults},
};

int main(int argc, char **argv) {
    return unit_run("sched/fetch", cases, sizeof cases / sizeof *cases, argc, argv);
}
