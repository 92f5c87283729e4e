/* Threads submit and cancel requests while another thread steps: each request ends once, with the
 * bits of a run alone. With -fsanitize=thread this shows that nothing is shared without the
 * lock. */
#include "sched/rig.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { THREADS = 3, EACH = 20 };

typedef struct submitter {
    gqac_scheduler *scheduler;
    client *clients; /* [EACH] */
    int index;
    bool failed;
} submitter;

static atomic_int done;

static void *submit_all(void *arg) {
    submitter *t = arg;
    gqac_diag diag;
    gqac_scheduler_statistics x = {.size = sizeof x};
    for (int i = 0; i < EACH; i++) {
        client *c = &t->clients[i];
        rig_letters_of(c->list, 8 + 3 * i, (uint64_t)(i % 4));
        rig_prepare(c, 8 + 3 * i, 1 + i % 5);
        c->request.priority = i % 3;
        t->failed |= gqac_scheduler_submit(t->scheduler, &c->request, &c->number, &diag) != GQAC_OK;
        if (i % 4 == 3) { /* it may already have ended */
            sched_yield();
            gqac_scheduler_cancel(t->scheduler, t->clients[i - t->index].number);
        }
        t->failed |= gqac_scheduler_get_statistics(t->scheduler, &x, &diag) != GQAC_OK ||
                     x.waiting < 0 || x.ended > THREADS * EACH;
    }
    atomic_fetch_add(&done, 1);
    return NULL;
}

static void threads(void) {
    rig r = rig_open(LLAMA, 0, 2);
    gqac_diag diag;
    gqac_store *store = NULL;
    gqac_scheduler *s = NULL;
    gqac_scheduler_options options;
    static client clients[THREADS][EACH];
    submitter all[THREADS];
    pthread_t ids[THREADS];
    int64_t left = 0;
    CU_ASSERT_EQUAL_FATAL(gqac_store_create(r.program, NULL, &store, &diag), GQAC_OK);
    gqac_scheduler_options_init(&options);
    options.tokens = 24;
    options.running = 6;
    options.store = store;
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_create(r.context, &options, &s, &diag), GQAC_OK);
    for (int i = 0; i < THREADS; i++) {
        all[i] = (submitter){.scheduler = s, .clients = clients[i], .index = i};
        CU_ASSERT_EQUAL_FATAL(pthread_create(&ids[i], NULL, submit_all, &all[i]), 0);
    }
    while (left || atomic_load(&done) < THREADS)
        CU_ASSERT_EQUAL_FATAL(gqac_scheduler_step(s, &left, &diag), GQAC_OK);
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    rig_finish(s); /* requests that were submitted after the last check */
    int compared = 0, whole = 0;
    for (int i = 0; i < THREADS; i++) {
        CU_ASSERT_FALSE(all[i].failed);
        for (int k = 0; k < EACH; k++) {
            const client *c = &clients[i][k];
            CU_ASSERT_EQUAL(c->ends, 1);
            CU_ASSERT(c->end.finish == GQAC_FINISH_LENGTH ||
                      c->end.finish == GQAC_FINISH_CANCELLED);
            whole += c->end.finish == GQAC_FINISH_LENGTH;
            compared += rig_compare(&r, c);
        }
    }
    CU_ASSERT(whole >= THREADS * EACH * 3 / 4 && compared > 100);
    gqac_scheduler_free(s);
    gqac_store_free(store);
    rig_close(&r);
}

static const unit_case cases[] = {
    {"threads that submit and cancel", threads},
};

int main(int argc, char **argv) {
    return unit_run("sched/threads", cases, sizeof cases / sizeof *cases, argc, argv);
}
