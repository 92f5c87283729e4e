/* The scheduler when memory runs out: because of the budget of the program, or of failing
 * allocations. */
#include "sched/rig.h"

#include <stdio.h>

#include "base/alloc.h"

static gqac_diag diag;

enum { CROWD = 8, LONGEST = 105 };

/* Runs requests of increasing length; returns the largest number of bytes in use after a step. */
static int64_t run_crowd(const rig *r, gqac_store *cached, client *all, int first,
                         gqac_scheduler_statistics *x) {
    gqac_scheduler *s = rig_scheduler(r, 40, CROWD, cached);
    int64_t left = 1, most = 0;
    for (int i = first; i < CROWD; i++) {
        all[i] = rig_client(LONGEST - 35 + 5 * i, 30, (uint64_t)i);
        rig_send(s, &all[i], i % 3);
    }
    while (left) {
        CU_ASSERT_EQUAL_FATAL(gqac_scheduler_step(s, &left, &diag), GQAC_OK);
        const int64_t used = gqac_program_memory_used(r->program);
        most = used > most ? used : most;
    }
    *x = rig_statistics(s);
    gqac_scheduler_free(s);
    return most;
}

/* Memory for some of the requests: the others wait or are preempted, and none fails. With less
 * memory than one request needs, each fails separately. */
static void budget(void) {
    rig unlimited = rig_open(LLAMA, 0, 1), single = rig_open(LLAMA, 0, 1);
    gqac_scheduler_statistics x;
    client all[CROWD];
    int64_t preempted = 0, failures = 0, went = 0;
    const int64_t one = run_crowd(&single, NULL, all, CROWD - 1, &x);
    const int64_t crowd = run_crowd(&unlimited, NULL, all, 0, &x);
    CU_ASSERT_FATAL(one < crowd / 2 && x.preemptions == 0);
    for (int64_t bytes = one / 8, k = 0; bytes < crowd + crowd / 4; bytes += one / 3, k++) {
        rig r = rig_open(LLAMA, bytes, 1);
        gqac_store *cached = NULL;
        if (k % 2)
            CU_ASSERT_EQUAL_FATAL(gqac_store_create(r.program, NULL, &cached, &diag), GQAC_OK);
        CU_ASSERT(run_crowd(&r, cached, all, 0, &x) <= bytes);
        for (int i = 0; i < CROWD; i++) {
            const bool failed = all[i].end.finish == GQAC_FINISH_FAILED;
            failures += failed;
            CU_ASSERT(!failed || (all[i].status == GQAC_CAPACITY && bytes < one + one / 2));
            CU_ASSERT(failed || all[i].end.finish == GQAC_FINISH_LENGTH);
            CU_ASSERT_EQUAL(all[i].n - all[i].n_prompt, failed ? 0 : 30);
            if (i % 3 == k % 3)
                rig_compare(&unlimited, &all[i]);
            went += !failed && bytes < crowd / 2;
        }
        preempted += x.preemptions;
        gqac_store_free(cached);
        rig_close(&r);
    }
    printf("  %lld preemptions, %lld requests failed, %lld did not\n", (long long)preempted,
           (long long)failures, (long long)went);
    CU_ASSERT(preempted > 0 && failures > 0 && went > 0);
    rig_close(&single);
    rig_close(&unlimited);
}

/* Once memory is free again, requests run together as before. */
static void room_again(void) {
    rig single = rig_open(LLAMA, 0, 1);
    gqac_scheduler_statistics x;
    client all[CROWD];
    const int64_t one = run_crowd(&single, NULL, all, CROWD - 1, &x);
    rig r = rig_open(LLAMA, one + one / 4, 1);
    gqac_scheduler *s = rig_scheduler(&r, 40, CROWD, NULL);
    for (int i = 0; i < CROWD; i++) {
        all[i] = rig_client(LONGEST - 35 + 5 * i, 30, (uint64_t)i);
        rig_send(s, &all[i], 0);
    }
    rig_finish(s);
    CU_ASSERT(rig_statistics(s).preemptions > 0);
    for (int i = 0; i < CROWD; i++) {
        all[i] = rig_client(3, 20, (uint64_t)i);
        rig_send(s, &all[i], 0);
    }
    rig_step(s);
    CU_ASSERT_EQUAL(rig_statistics(s).running, CROWD);
    rig_finish(s);
    gqac_scheduler_free(s);
    rig_close(&r);
    rig_close(&single);
}

/* The n-th allocation fails: the requests get their answers, or fail with NO_MEMORY, and nothing
 * leaks. Returns the number of allocations. */
static size_t without(const rig *r, const rig *oracle, size_t n, int persist) {
    gqac_store *cached = NULL;
    gqac_scheduler *s = NULL;
    gqac_scheduler_options options;
    client all[3];
    gqac_alloc_fail_at(n, persist);
    gqac_scheduler_options_init(&options);
    options.tokens = 9;
    gqac_status status = gqac_store_create(r->program, NULL, &cached, &diag);
    options.store = cached;
    if (status == GQAC_OK)
        status = gqac_scheduler_create(r->context, &options, &s, &diag);
    CU_ASSERT(status == GQAC_OK || status == GQAC_NO_MEMORY);
    for (int i = 0; s && i < 3; i++) {
        all[i] = rig_client(12 + i, 3, (uint64_t)(i / 2));
        rig_prepare(&all[i], 12 + i, 3);
        status = gqac_scheduler_submit(s, &all[i].request, &all[i].number, &diag);
        CU_ASSERT(status == GQAC_OK || status == GQAC_NO_MEMORY);
    }
    if (s)
        rig_finish(s);
    const size_t calls = gqac_alloc_calls();
    gqac_alloc_fail_at(0, 0);
    for (int i = 0; s && i < 3; i++) {
        CU_ASSERT_EQUAL_FATAL(all[i].ends, all[i].number > 0);
        if (all[i].ends && all[i].end.finish == GQAC_FINISH_FAILED)
            CU_ASSERT_EQUAL(all[i].status, GQAC_NO_MEMORY);
        rig_compare(oracle, &all[i]);
    }
    gqac_scheduler_free(s);
    gqac_store_free(cached);
    return calls;
}

static void allocations(void) {
    rig r = rig_open(LLAMA, 0, 1), oracle = rig_open(LLAMA, 0, 1);
    without(&r, &oracle, 0, 0); /* memory that the context keeps */
    const size_t calls = without(&r, &oracle, 0, 0), live = gqac_alloc_live();
    CU_ASSERT(calls > 30);
    for (size_t n = 1; n <= calls; n++)
        for (int persist = 0; persist < 2; persist++) {
            without(&r, &oracle, n, persist);
            CU_ASSERT(gqac_alloc_live() <= live);
        }
    printf("  %zu allocations failed one by one\n", calls);
    rig_close(&oracle);
    rig_close(&r);
}

static const unit_case cases[] = {
    {"memory budget", budget},
    {"requests run together again", room_again},
    {"allocations that fail", allocations},
};

int main(int argc, char **argv) {
    return unit_run("sched/memory", cases, sizeof cases / sizeof *cases, argc, argv);
}
