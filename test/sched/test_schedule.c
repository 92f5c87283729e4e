/* The scheduler, one promise at a time: what is packed, who goes first, how requests end, and what
 * happens when memory is short. */
#include "sched/rig.h"

#include "base/alloc.h"
#include <stdio.h>

#define LLAMA "test/models/llama/model.onnx"

static gqac_diag diag;

static gqac_scheduler *new_scheduler(const rig *r, int64_t tokens, int64_t running,
                                     gqac_store *store) {
    gqac_scheduler *s = NULL;
    gqac_scheduler_options options;
    gqac_scheduler_options_init(&options);
    options.tokens = tokens;
    options.running = running;
    options.store = store;
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_create(r->context, &options, &s, &diag), GQAC_OK);
    return s;
}

static client new_client(int64_t n, int64_t max_new, uint64_t seed) {
    client c = {.n_from = 0};
    rig_letters_of(c.list, n, seed);
    c.n = c.n_prompt = n;
    c.request.max_new = max_new;
    return c;
}

/* Submits; the client must stay where it is. */
static void submit(gqac_scheduler *s, client *c, int priority) {
    rig_prepare(c, c->n_prompt, c->request.max_new);
    c->request.priority = priority;
    rig_submit(s, c);
}

static void step(gqac_scheduler *s) {
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_step(s, NULL, &diag), GQAC_OK);
}

static gqac_scheduler_statistics statistics(gqac_scheduler *s) {
    gqac_scheduler_statistics x = {.size = sizeof x};
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_get_statistics(s, &x, &diag), GQAC_OK);
    return x;
}

/* ---- packing ------------------------------------------------------------- */

/* A prompt of 100 is cut to what the budget leaves, and the others get an id in each of its
 * steps. */
static void chunks(void) {
    rig r = rig_open(LLAMA, 0, 2);
    gqac_scheduler *s = new_scheduler(&r, 12, 4, NULL);
    client a = new_client(3, 30, 1), b = new_client(4, 30, 2), c = new_client(100, 2, 3);
    submit(s, &a, 0);
    submit(s, &b, 0);
    step(s);
    CU_ASSERT(a.n == 4 && b.n == 5);
    submit(s, &c, 0);
    for (int i = 1; i <= 10; i++) {
        step(s);
        CU_ASSERT(a.n == 4 + i && b.n == 5 + i && c.done == 10 * i);
        CU_ASSERT_EQUAL(c.n, 100 + (i == 10));
    }
    rig_finish(s);
    const gqac_scheduler_statistics x = statistics(s);
    CU_ASSERT(x.ended == 3 && x.waiting == 0 && x.running == 0 && x.new_tokens == 62);
    CU_ASSERT(x.computed_tokens == 32 + 33 + 101 && x.reused_tokens == 0 && x.steps == 30);
    CU_ASSERT_EQUAL(rig_compare(&r, &a) + rig_compare(&r, &b) + rig_compare(&r, &c), 62);
    CU_ASSERT(gqac_scheduler_step(s, NULL, &diag) == GQAC_OK && statistics(s).steps == 30);
    gqac_scheduler_free(s);
    rig_close(&r);
}

/* Where a program pads rows, a chunk of one prompt and the ids of the others take turns. */
static void padding(void) {
    static const char *const without[] = {"ragged", NULL};
    rig packed = rig_open(LLAMA, 0, 1), r = {NULL, NULL};
    gqac_options options;
    gqac_mixing why;
    gqac_options_init(&options);
    options.disable = without;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(unit_path(LLAMA), &options, &r.program, &diag),
                          GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(r.program, 1, &r.context, &diag), GQAC_OK);
    CU_ASSERT_FATAL(gqac_program_padding(r.program, &why));
    gqac_scheduler *s = new_scheduler(&r, 20, 4, NULL);
    client a = new_client(3, 30, 1), b = new_client(100, 3, 2), c = new_client(30, 3, 3);
    submit(s, &a, 0);
    step(s);
    submit(s, &b, 0);
    submit(s, &c, 0);
    for (int i = 1; i <= 10; i++) {
        const int64_t n = a.n, done = b.done + c.done;
        step(s);
        CU_ASSERT((a.n > n) != (b.done + c.done > done));
        CU_ASSERT_EQUAL(a.n, 4 + (i + 1) / 2);
    }
    CU_ASSERT(b.done == 100 && c.done == 0);
    rig_finish(s);
    CU_ASSERT_EQUAL(rig_compare(&packed, &a) + rig_compare(&packed, &b) + rig_compare(&packed, &c),
                    36);
    gqac_scheduler_free(s);
    rig_close(&r);
    rig_close(&packed);
}

static void priorities(void) {
    rig r = rig_open(LLAMA, 0, 1);
    gqac_scheduler *s = new_scheduler(&r, 8, 1, NULL);
    client all[4];
    static const int priority[] = {0, 1, 1, 2}, order[] = {3, 1, 2, 0};
    for (int i = 0; i < 4; i++) {
        all[i] = new_client(20, 3, (uint64_t)i);
        submit(s, &all[i], priority[i]);
    }
    for (int i = 0; i < 4; i++) {
        const int64_t ended = statistics(s).ended;
        while (statistics(s).ended == ended)
            step(s);
        CU_ASSERT_EQUAL(all[order[i]].ends, 1);
    }
    CU_ASSERT_EQUAL(statistics(s).preemptions, 0);
    /* one that comes later with a higher priority takes the place of one that runs */
    client low = new_client(20, 10, 7), high = new_client(9, 2, 8);
    submit(s, &low, -1);
    for (int i = 0; i < 4; i++)
        step(s);
    CU_ASSERT_EQUAL(low.n, 22);
    submit(s, &high, 0);
    step(s);
    CU_ASSERT(statistics(s).waiting == 1 && statistics(s).preemptions == 1);
    rig_finish(s);
    CU_ASSERT(low.end.preemptions == 1 && low.end.computed_tokens == 21 + 29 && low.n == 30);
    rig_compare(&r, &low);
    rig_compare(&r, &high);
    gqac_scheduler_free(s);
    rig_close(&r);
}

/* ---- ends ---------------------------------------------------------------- */

static void cancelled(void) {
    rig r = rig_open(LLAMA, 0, 1);
    gqac_scheduler *s = new_scheduler(&r, 10, 2, NULL);
    client prompt = new_client(95, 5, 1), answer = new_client(5, 50, 2),
           waiting = new_client(5, 5, 3), at_once = new_client(5, 5, 4),
           other = new_client(9, 9, 5);
    submit(s, &answer, 0);
    submit(s, &prompt, 0);
    submit(s, &waiting, 0);
    submit(s, &at_once, 1);
    CU_ASSERT(gqac_scheduler_cancel(s, at_once.number));
    for (int i = 0; i < 4; i++)
        step(s);
    CU_ASSERT(at_once.ends == 1 && at_once.end.finish == GQAC_FINISH_CANCELLED && !at_once.done);
    CU_ASSERT(prompt.done > 20 && prompt.done < 95 && !waiting.done && answer.n == 9);
    const int64_t used = gqac_program_memory_used(r.program);
    const client *all[] = {&prompt, &answer, &waiting};
    for (int i = 0; i < 3; i++) {
        CU_ASSERT(gqac_scheduler_cancel(s, all[i]->number) && !all[i]->ends);
        CU_ASSERT(gqac_scheduler_cancel(s, all[i]->number)); /* twice is once */
    }
    submit(s, &other, 0);
    rig_finish(s);
    for (int i = 0; i < 3; i++)
        CU_ASSERT(all[i]->ends == 1 && all[i]->end.finish == GQAC_FINISH_CANCELLED);
    CU_ASSERT(answer.n == 9 && prompt.end.computed_tokens == prompt.done);
    CU_ASSERT(gqac_program_memory_used(r.program) <= used);
    CU_ASSERT_FALSE(gqac_scheduler_cancel(s, prompt.number) || gqac_scheduler_cancel(s, 99));
    CU_ASSERT_EQUAL(rig_compare(&r, &answer) + rig_compare(&r, &other), 13);
    /* what is left when the scheduler is freed */
    client left = new_client(30, 5, 6), never = new_client(30, 5, 7);
    submit(s, &left, 0);
    step(s);
    submit(s, &never, 0);
    gqac_scheduler_free(s);
    CU_ASSERT(left.ends == 1 && left.end.finish == GQAC_FINISH_CANCELLED && left.done == 10);
    CU_ASSERT(never.ends == 1 && never.end.finish == GQAC_FINISH_CANCELLED);
    rig_close(&r);
}

static bool overflow(void *arg, float *logits, int64_t vocabulary, const int64_t *ids, size_t n) {
    (void)arg, (void)ids, (void)n;
    for (int64_t i = 0; i < vocabulary; i++)
        logits[i] = NAN;
    return true;
}

/* Requests fail alone, with their reason; the others have their bits. */
static void failed(void) {
    rig r = rig_open(LLAMA, 0, 1);
    gqac_scheduler *s = new_scheduler(&r, 24, 4, NULL);
    client good = new_client(30, 12, 1), bad = new_client(40, 3, 2), nan = new_client(5, 3, 3),
           other = new_client(8, 8, 4);
    bad.list[33] = -7;
    submit(s, &good, 0);
    submit(s, &bad, 0);
    rig_prepare(&nan, nan.n_prompt, 3);
    nan.request.on_logits = overflow;
    rig_submit(s, &nan);
    submit(s, &other, 0);
    rig_finish(s);
    CU_ASSERT(bad.end.finish == GQAC_FINISH_FAILED && bad.status == GQAC_OUT_OF_RANGE);
    CU_ASSERT(strstr(bad.what, "-7") && strstr(bad.where, "request 2, tokens from "));
    CU_ASSERT(bad.done > 0 && bad.done <= 33 && bad.n == 40);
    CU_ASSERT(nan.end.finish == GQAC_FINISH_FAILED && nan.status == GQAC_INVALID_INPUT);
    CU_ASSERT(nan.done == 5 && strstr(nan.where, "request 3"));
    CU_ASSERT(good.end.finish == GQAC_FINISH_LENGTH && other.end.finish == GQAC_FINISH_LENGTH);
    CU_ASSERT_EQUAL(rig_compare(&r, &good) + rig_compare(&r, &other), 20);
    gqac_scheduler_free(s);
    /* an unknown kind of cache */
    client kind = new_client(5, 5, 5);
    gqac_scheduler_options options;
    gqac_scheduler_options_init(&options);
    options.kv = "heap";
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_create(r.context, &options, &s, &diag), GQAC_OK);
    submit(s, &kind, 0);
    rig_finish(s);
    CU_ASSERT(kind.end.finish == GQAC_FINISH_FAILED && kind.status == GQAC_USAGE);
    gqac_scheduler_free(s);
    rig_close(&r);
}

/* The positions of the model end an answer, and refuse a prompt. */
static void positions(void) {
    rig r = rig_open("test/models/qwen3/model.onnx", 0, 1);
    const int64_t most = gqac_program_most_tokens(r.program);
    CU_ASSERT_FATAL(most > 10 && most < RIG_LIST);
    gqac_scheduler *s = new_scheduler(&r, 0, 0, NULL);
    client c = new_client(most - 3, 20, 1), too_long = new_client(most + 1, 1, 2);
    submit(s, &c, 0);
    rig_finish(s);
    CU_ASSERT(c.end.finish == GQAC_FINISH_LENGTH && c.n == most + 1 && c.rows == most);
    rig_compare(&r, &c);
    rig_prepare(&too_long, most + 1, 1);
    CU_ASSERT_EQUAL(gqac_scheduler_submit(s, &too_long.request, &too_long.number, &diag),
                    GQAC_OUT_OF_RANGE);
    CU_ASSERT(strstr(diag.rule, "positions") && *diag.hint);
    gqac_scheduler_free(s);
    rig_close(&r);
}

static void refused(void) {
    rig r = rig_open(LLAMA, 0, 1), other = rig_open(LLAMA, 0, 1);
    gqac_scheduler *s = NULL;
    gqac_scheduler_options options;
    gqac_scheduler_options_init(&options);
    options.tokens = 4;
    options.running = 5;
    CU_ASSERT_EQUAL(gqac_scheduler_create(r.context, &options, &s, &diag), GQAC_OUT_OF_RANGE);
    options.running = -1;
    CU_ASSERT_EQUAL(gqac_scheduler_create(r.context, &options, &s, &diag), GQAC_OUT_OF_RANGE);
    options = (gqac_scheduler_options){.size = 3};
    CU_ASSERT_EQUAL(gqac_scheduler_create(r.context, &options, &s, &diag), GQAC_USAGE);
    CU_ASSERT_PTR_NULL(s);
    s = new_scheduler(&r, 0, 0, NULL);
    gqac_sequence *foreign = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(other.program, NULL, &foreign, &diag), GQAC_OK);
    const gqac_logit_bias bias = {.id = 1 << 20, .bias = 1};
    int64_t number = 0;
    for (int i = 0; i < 8; i++) {
        static const gqac_status expected[] = {
            GQAC_USAGE,        GQAC_OUT_OF_RANGE, GQAC_OUT_OF_RANGE, GQAC_USAGE,
            GQAC_OUT_OF_RANGE, GQAC_USAGE,        GQAC_OUT_OF_RANGE, GQAC_USAGE};
        client c = new_client(5, 5, 1);
        rig_prepare(&c, 5, i == 4 ? -1 : 5);
        c.request.size = i == 0 ? 0 : c.request.size;
        c.request.n_prompt = i == 1 ? 0 : 5;
        c.sampling.bias = &bias;
        c.sampling.n_bias = i == 2;
        c.sampling.top_p = i == 3 ? 2 : 1;
        c.request.n_eos = i == 5 ? 1 : i == 6 ? -1 : 0;
        c.request.from = i == 7 ? foreign : NULL;
        CU_ASSERT_EQUAL(gqac_scheduler_submit(s, &c.request, &number, &diag), expected[i]);
        CU_ASSERT(number == 0 && *diag.what);
    }
    gqac_sequence_free(foreign);
    gqac_scheduler_free(s);
    gqac_scheduler_free(NULL);
    rig_close(&other);
    rig_close(&r);
}

/* ---- beginnings ---------------------------------------------------------- */

/* A later request finds in the store what an earlier one computed, and continues its sequence. */
static void store(void) {
    rig r = rig_open(LLAMA, 0, 1);
    gqac_store *cached = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_store_create(r.program, NULL, &cached, &diag), GQAC_OK);
    gqac_scheduler *s = new_scheduler(&r, 32, 4, cached);
    client a = new_client(80, 3, 1), b = new_client(80, 3, 1), c = new_client(80, 3, 1);
    submit(s, &a, 0);
    rig_finish(s);
    submit(s, &b, 0);
    rig_prepare(&c, 80, 3);
    c.request.tenant = "another";
    rig_submit(s, &c);
    rig_finish(s);
    CU_ASSERT(a.end.reused_tokens == 0 && a.end.computed_tokens == 82);
    CU_ASSERT(b.end.reused_tokens == 79 && b.end.computed_tokens == 3);
    CU_ASSERT(c.end.reused_tokens == 0 && c.end.computed_tokens == 82);
    CU_ASSERT_EQUAL(rig_compare(&r, &a) + rig_compare(&r, &b) + rig_compare(&r, &c), 9);
    /* a request computes its prompt without an answer */
    client warm = new_client(70, 0, 9), after = new_client(75, 2, 9);
    submit(s, &warm, 0);
    rig_finish(s);
    submit(s, &after, 0);
    rig_finish(s);
    CU_ASSERT(warm.end.finish == GQAC_FINISH_LENGTH && warm.rows == 70 && warm.done == 70);
    CU_ASSERT(after.end.reused_tokens == 70 && rig_compare(&r, &after) == 2);
    gqac_scheduler_free(s);
    gqac_store_free(cached);
    rig_close(&r);
}

static void from_sequence(void) {
    rig r = rig_open(LLAMA, 0, 1);
    gqac_scheduler *s = new_scheduler(&r, 32, 1, NULL);
    gqac_sequence *q = NULL;
    client a = new_client(60, 4, 1), b = new_client(66, 4, 1);
    b.n_from = 60;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(r.program, NULL, &q, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(r.context, q, a.list, 60, 0, &diag), GQAC_OK);
    rig_prepare(&b, 66, 4);
    b.request.from = q;
    submit(s, &a, 0);
    rig_submit(s, &b);
    gqac_sequence_free(q); /* the request shares its rows */
    rig_finish(s);
    CU_ASSERT(b.end.reused_tokens == 60 && b.end.computed_tokens == 9);
    CU_ASSERT_EQUAL(rig_compare(&r, &a) + rig_compare(&r, &b), 8);
    gqac_scheduler_free(s);
    rig_close(&r);
}

/* A LongRoPE threshold is crossed in the prompt of one request, and in the answer of another. */
static void long_rope(void) {
    rig r = rig_open("test/models/phi3/model.onnx", 0, 1);
    int64_t threshold = 0;
    CU_ASSERT_EQUAL_FATAL(gqac_program_rope_threshold(r.program, &threshold, &diag), GQAC_OK);
    CU_ASSERT_FATAL(threshold > 4 && threshold < 200);
    gqac_scheduler *s = new_scheduler(&r, 10, 3, NULL);
    client crossing = new_client(threshold - 3, 8, 1), beyond = new_client(threshold + 9, 4, 2),
           before = new_client(3, 4, 3);
    client *all[] = {&crossing, &beyond, &before};
    for (int i = 0; i < 3; i++)
        submit(s, all[i], 0);
    rig_finish(s);
    for (int i = 0; i < 3; i++) {
        const client *c = all[i];
        gqac_session *session = NULL;
        gqac_generation *said = NULL;
        gqac_generate_request request;
        CU_ASSERT_EQUAL_FATAL(c->end.finish, GQAC_FINISH_LENGTH);
        CU_ASSERT_EQUAL_FATAL(gqac_session_create(r.program, NULL, &session, &diag), GQAC_OK);
        client alone = {.n = c->n_prompt, .n_prompt = c->n_prompt};
        memcpy(alone.list, c->list, sizeof alone.list);
        gqac_generate_request_init(&request, NULL, session, c->list, (size_t)c->n_prompt);
        request.max_new = c->request.max_new;
        request.on_logits = rig_logits;
        request.logits_arg = &alone;
        for (int64_t k = 0; k < request.max_new; k++) { /* id by id, so that `alone` follows */
            request.max_new = k + 1;
            alone.n = c->n_prompt + k;
            request.n_prompt = (size_t)alone.n;
            request.max_new = 1;
            CU_ASSERT_EQUAL_FATAL(gqac_generate(r.context, NULL, 1, &request, &said, &diag),
                                  GQAC_OK);
            CU_ASSERT_EQUAL(said->ids[0], c->list[alone.n]);
            CU_ASSERT_EQUAL(alone.bits[alone.n], c->bits[alone.n]);
            gqac_generation_free(said);
            request.max_new = c->request.max_new;
        }
        gqac_session_free(session);
    }
    gqac_scheduler_free(s);
    rig_close(&r);
}

/* ---- memory -------------------------------------------------------------- */

enum { CROWD = 8, LONGEST = 105 };

/* Requests of more and more tokens; returns the largest number of bytes in use after a step. */
static int64_t run_crowd(const rig *r, gqac_store *cached, client *all, int first,
                         gqac_scheduler_statistics *x) {
    gqac_scheduler *s = new_scheduler(r, 40, CROWD, cached);
    int64_t left = 1, most = 0;
    for (int i = first; i < CROWD; i++) {
        all[i] = new_client(LONGEST - 35 + 5 * i, 30, (uint64_t)i);
        submit(s, &all[i], i % 3);
    }
    while (left) {
        CU_ASSERT_EQUAL_FATAL(gqac_scheduler_step(s, &left, &diag), GQAC_OK);
        const int64_t used = gqac_program_memory_used(r->program);
        most = used > most ? used : most;
    }
    *x = statistics(s);
    gqac_scheduler_free(s);
    return most;
}

/* Memory for some of the requests: the others wait or are preempted, and none fails. With less than
 * one takes, each fails alone. */
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

/* The n-th allocation fails: the requests get their answers, or fail with NO_MEMORY, and nothing is
 * lost. Returns the number of allocations. */
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
        all[i] = new_client(12 + i, 3, (uint64_t)(i / 2));
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
    without(&r, &oracle, 0, 0); /* what the context keeps */
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
    {"prompts in chunks beside decode", chunks},
    {"steps of a program that pads", padding},
    {"priorities", priorities},
    {"cancelled requests", cancelled},
    {"failed requests", failed},
    {"the last position", positions},
    {"refused requests", refused},
    {"prefixes from a store", store},
    {"from a sequence", from_sequence},
    {"the LongRoPE threshold", long_rope},
    {"memory budget", budget},
    {"allocations that fail", allocations},
};

int main(int argc, char **argv) {
    return unit_run("sched/schedule", cases, sizeof cases / sizeof *cases, argc, argv);
}
