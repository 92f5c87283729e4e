/* The scheduler, one guarantee at a time: what is packed, which request goes first, how requests
 * begin and end. */
#include "sched/rig.h"

static gqac_diag diag;

/* ---- packing ------------------------------------------------------------- */

/* A prompt of 100 tokens is divided into chunks that fit the budget, and the others get an id in
 * each of its steps. */
static void chunks(void) {
    rig r = rig_open(LLAMA, 0, 2);
    gqac_scheduler *s = rig_scheduler(&r, 12, 4, NULL);
    client a = rig_client(3, 30, 1), b = rig_client(4, 30, 2), c = rig_client(100, 2, 3);
    rig_send(s, &a, 0);
    rig_send(s, &b, 0);
    rig_step(s);
    CU_ASSERT(a.n == 4 && b.n == 5);
    rig_send(s, &c, 0);
    for (int i = 1; i <= 10; i++) {
        rig_step(s);
        CU_ASSERT(a.n == 4 + i && b.n == 5 + i && c.done == 10 * i);
        CU_ASSERT_EQUAL(c.n, 100 + (i == 10));
    }
    rig_finish(s);
    const gqac_scheduler_statistics x = rig_statistics(s);
    CU_ASSERT(x.ended == 3 && x.waiting == 0 && x.running == 0 && x.new_tokens == 62);
    CU_ASSERT(x.computed_tokens == 32 + 33 + 101 && x.reused_tokens == 0 && x.steps == 30);
    CU_ASSERT_EQUAL(rig_compare(&r, &a) + rig_compare(&r, &b) + rig_compare(&r, &c), 62);
    CU_ASSERT(gqac_scheduler_step(s, NULL, &diag) == GQAC_OK && rig_statistics(s).steps == 30);
    gqac_scheduler_free(s);
    rig_close(&r);
}

/* If a program pads rows, a chunk of one prompt and the ids of the others alternate. */
static void padding(void) {
    static const char *const without[] = {"ragged", NULL};
    rig packed = rig_open(LLAMA, 0, 1), r = {NULL, NULL};
    gqac_options options;
    gqac_options_init(&options);
    options.disable = without;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(unit_path(LLAMA), &options, &r.program, &diag),
                          GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(r.program, 1, &r.context, &diag), GQAC_OK);
    CU_ASSERT_FATAL(gqac_program_padding(r.program, NULL));
    gqac_scheduler *s = rig_scheduler(&r, 20, 4, NULL);
    client a = rig_client(3, 30, 1), b = rig_client(100, 3, 2), c = rig_client(30, 3, 3);
    rig_send(s, &a, 0);
    rig_step(s);
    rig_send(s, &b, 0);
    rig_send(s, &c, 0);
    for (int i = 1; i <= 10; i++) {
        const int64_t n = a.n, done = b.done + c.done;
        rig_step(s);
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
    gqac_scheduler *s = rig_scheduler(&r, 8, 1, NULL);
    client all[4];
    static const int priority[] = {0, 1, 1, 2}, order[] = {3, 1, 2, 0};
    for (int i = 0; i < 4; i++) {
        all[i] = rig_client(20, 3, (uint64_t)i);
        rig_send(s, &all[i], priority[i]);
    }
    for (int i = 0; i < 4; i++) {
        const int64_t ended = rig_statistics(s).ended;
        while (rig_statistics(s).ended == ended)
            rig_step(s);
        CU_ASSERT_EQUAL(all[order[i]].ends, 1);
    }
    CU_ASSERT_EQUAL(rig_statistics(s).preemptions, 0);
    /* a later request with a higher priority takes the place of a running one */
    client low = rig_client(20, 10, 7), high = rig_client(9, 2, 8);
    rig_send(s, &low, -1);
    for (int i = 0; i < 4; i++)
        rig_step(s);
    CU_ASSERT_EQUAL(low.n, 22);
    rig_send(s, &high, 0);
    rig_step(s);
    CU_ASSERT(rig_statistics(s).waiting == 1 && rig_statistics(s).preemptions == 1);
    rig_finish(s);
    CU_ASSERT(low.end.preemptions == 1 && low.end.computed_tokens == 21 + 29 && low.n == 30);
    rig_compare(&r, &low);
    rig_compare(&r, &high);
    gqac_scheduler_free(s);
    rig_close(&r);
}

static gqac_scheduler *watched;

static void note_statistics(void *arg, const gqac_request_end *end) {
    gqac_scheduler_statistics *x = arg;
    (void)end;
    *x = rig_statistics(watched);
}

/* Within a callback the statistics are those of the previous step, and requests submitted since
 * then wait. */
static void statistics(void) {
    rig r = rig_open(LLAMA, 0, 1);
    client other = rig_client(20, 3, 2);
    gqac_scheduler_statistics x = {.waiting = -1};
    gqac_request request;
    gqac_diag diag;
    int64_t number = 0;
    watched = rig_scheduler(&r, 64, 1, NULL);
    gqac_request_init(&request, rig_letters, RIG_LETTERS);
    request.max_new = 2;
    request.on_end = note_statistics;
    request.arg = &x;
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_submit(watched, &request, &number, &diag), GQAC_OK);
    CU_ASSERT(rig_statistics(watched).waiting == 1 && !rig_statistics(watched).running);
    rig_step(watched);
    CU_ASSERT(!rig_statistics(watched).waiting && rig_statistics(watched).running == 1);
    rig_step(watched); /* the last */
    CU_ASSERT(x.waiting == 0 && x.running == 1 && x.ended == 0);
    rig_send(watched, &other, 0);
    x = rig_statistics(watched);
    CU_ASSERT(x.waiting == 1 && x.running == 0 && x.ended == 1);
    rig_finish(watched);
    gqac_scheduler_free(watched);
    rig_close(&r);
}

/* ---- ends ---------------------------------------------------------------- */

static void cancelled(void) {
    rig r = rig_open(LLAMA, 0, 1);
    gqac_scheduler *s = rig_scheduler(&r, 10, 2, NULL);
    client prompt = rig_client(95, 5, 1), answer = rig_client(5, 50, 2),
           waiting = rig_client(5, 5, 3), at_once = rig_client(5, 5, 4),
           other = rig_client(9, 9, 5);
    rig_send(s, &answer, 0);
    rig_send(s, &prompt, 0);
    rig_send(s, &waiting, 0);
    rig_send(s, &at_once, 1);
    CU_ASSERT(gqac_scheduler_cancel(s, at_once.number));
    for (int i = 0; i < 4; i++)
        rig_step(s);
    CU_ASSERT(at_once.ends == 1 && at_once.end.finish == GQAC_FINISH_CANCELLED && !at_once.done);
    CU_ASSERT(prompt.done > 20 && prompt.done < 95 && !waiting.done && answer.n == 9);
    const int64_t used = gqac_program_memory_used(r.program);
    const client *all[] = {&prompt, &answer, &waiting};
    for (int i = 0; i < 3; i++) {
        CU_ASSERT(gqac_scheduler_cancel(s, all[i]->number) && !all[i]->ends);
        CU_ASSERT(gqac_scheduler_cancel(s, all[i]->number)); /* the second call has no effect */
    }
    rig_send(s, &other, 0);
    rig_finish(s);
    for (int i = 0; i < 3; i++)
        CU_ASSERT(all[i]->ends == 1 && all[i]->end.finish == GQAC_FINISH_CANCELLED);
    CU_ASSERT(answer.n == 9 && prompt.end.computed_tokens == prompt.done);
    CU_ASSERT(gqac_program_memory_used(r.program) <= used);
    CU_ASSERT_FALSE(gqac_scheduler_cancel(s, prompt.number) || gqac_scheduler_cancel(s, 99));
    CU_ASSERT_EQUAL(rig_compare(&r, &answer) + rig_compare(&r, &other), 13);
    /* requests that remain when the scheduler is freed */
    client left = rig_client(30, 5, 6), never = rig_client(30, 5, 7);
    rig_send(s, &left, 0);
    rig_step(s);
    rig_send(s, &never, 0);
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

/* Requests fail separately, with a reason; the others have their bits. */
static void failed(void) {
    rig r = rig_open(LLAMA, 0, 1);
    gqac_scheduler *s = rig_scheduler(&r, 24, 4, NULL);
    client good = rig_client(30, 12, 1), nan = rig_client(5, 3, 3), other = rig_client(8, 8, 4);
    rig_send(s, &good, 0);
    rig_prepare(&nan, nan.n_prompt, 3);
    nan.request.on_logits = overflow;
    rig_submit(s, &nan);
    rig_send(s, &other, 0);
    rig_finish(s);
    CU_ASSERT(nan.end.finish == GQAC_FINISH_FAILED && nan.status == GQAC_INVALID_INPUT);
    CU_ASSERT(nan.done == 5 && strstr(nan.where, "request 2"));
    CU_ASSERT(good.end.finish == GQAC_FINISH_LENGTH && other.end.finish == GQAC_FINISH_LENGTH);
    CU_ASSERT_EQUAL(rig_compare(&r, &good) + rig_compare(&r, &other), 20);
    gqac_scheduler_free(s);
    /* an unknown kind of cache */
    client kind = rig_client(5, 5, 5);
    gqac_scheduler_options options;
    gqac_scheduler_options_init(&options);
    options.kv = "heap";
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_create(r.context, &options, &s, &diag), GQAC_OK);
    rig_send(s, &kind, 0);
    rig_finish(s);
    CU_ASSERT(kind.end.finish == GQAC_FINISH_FAILED && kind.status == GQAC_USAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(kind.where, "request 1, tokens from 0"));
    gqac_scheduler_free(s);
    rig_close(&r);
}

/* An attention layer of 8 ids, whose table of embeddings lacks the last two: a step with one of
 * these passes the checks, and the error names no single item. */
static gqac_program *open_short_table(void) {
    static const char text[] =
        "graph @layer(%input_ids: i64[B,S], %attention_mask: i64[B,T], "
        "%past_key_values.0.key: f32[B,1,P,4], %past_key_values.0.value: f32[B,1,P,4]) {\n"
        "  const %one: i64[] = 1\n  const %axis: i64[1] = [1]\n"
        "  const %table: f32[6,16] = [0.4, 0.3, 0.2, 0.5, 0.1, 0.25, 0.15, 0.35, 0.45, 0.2, 0.3, "
        "0.4, "
        "0.1, 0.2, 0.3, 0.4, 0.9, 0.3, 0.7, 0.5, 0.1, 0.6, 0.15, 0.8, 0.45, 0.2, 0.5, 0.4, 0.1, "
        "0.2, "
        "0.6, 0.4, 0.4, 0.1, 0.2, 0.2, 0.3, 0.25, 0.5, 0.35, 0.1, 0.2, 0.8, 0.4, 0.9, 0.2, 0.3, "
        "0.7, "
        "0.1, 0.3, 0.2, 0.5, 0.6, 0.25, 0.15, 0.7, 0.45, 0.6, 0.3, 0.4, 0.1, 0.9, 0.3, 0.4, 0.4, "
        "0.8, "
        "0.2, 0.1, 0.1, 0.3, 0.15, 0.35, 0.7, 0.2, 0.1, 0.4, 0.5, 0.2, 0.9, 0.4, 0.3, 0.3, 0.4, "
        "0.5, "
        "0.2, 0.25, 0.6, 0.35, 0.45, 0.1, 0.3, 0.8, 0.1, 0.2, 0.5, 0.4]\n"
        "  %sum = ReduceSum %attention_mask, %axis {keepdims=0} : i64[B]\n"
        "  %last = Sub %sum, %one : i64[B]\n"
        "  %seqlens_k = Cast %last {to=i32} : i32[B]\n"
        "  %shape = Shape %attention_mask : i64[2]\n"
        "  %t = Gather %shape, %one : i64[]\n"
        "  %total = Cast %t {to=i32} : i32[]\n"
        "  %qkv = Gather %table, %input_ids : f32[B,S,16]\n"
        "  %y, %k, %v = com.microsoft.GroupQueryAttention %qkv, _, _, %past_key_values.0.key, "
        "%past_key_values.0.value, %seqlens_k, %total {num_heads=2, kv_num_heads=1} : f32[B,S,8], "
        "f32[B,1,T,4], f32[B,1,T,4]\n"
        "  return %y as \"logits\", %k as \"present.0.key\", %v as \"present.0.value\"\n}\n";
    gqac_program *program = NULL;
    gqac_options options;
    gqac_model_bytes bytes;
    gqac_options_init(&options);
    gqac_model_bytes_init(&bytes, text, sizeof text - 1);
    options.bytes = &bytes;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open("short.gq", &options, &program, &diag), GQAC_OK);
    return program;
}

static void only_known(void *arg, const gqac_request_end *end) {
    client *c = arg;
    c->ends++;
    c->end = *end;
    c->n = (int64_t)end->n_ids;
    memcpy(c->list, end->ids, end->n_ids * sizeof *end->ids);
    c->status = end->diag ? end->diag->status : GQAC_OK;
}

static void submit_known(gqac_scheduler *s, client *c, const int64_t *prompt, size_t n) {
    static const gqac_logit_bias banned[] = {{6, -INFINITY}, {7, -INFINITY}};
    gqac_request_init(&c->request, prompt, n);
    gqac_sampling_init(&c->sampling);
    c->sampling.n_bias = 2;
    c->sampling.bias = banned;
    c->request.sampling = &c->sampling;
    c->request.max_new = 9;
    c->request.on_end = only_known;
    c->request.arg = c;
    rig_submit(s, c);
}

static void failed_together(void) {
    static const int64_t prompts[3][4] = {{0, 3, 1, 5}, {2, 7, 0, 1}, {4, 4, 2, 0}};
    rig r = {open_short_table(), NULL};
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(r.program, 1, &r.context, &diag), GQAC_OK);
    gqac_scheduler *s = rig_scheduler(&r, 0, 0, NULL);
    client together[3] = {{.n_from = 0}}, alone = {.n_from = 0};
    for (int i = 0; i < 3; i++)
        submit_known(s, &together[i], prompts[i], 4);
    rig_finish(s);
    CU_ASSERT(together[1].end.finish == GQAC_FINISH_FAILED && together[1].n == 0);
    CU_ASSERT_EQUAL(together[1].status, GQAC_OUT_OF_RANGE);
    for (int i = 0; i < 3; i += 2) {
        submit_known(s, &alone, prompts[i], 4);
        rig_finish(s);
        CU_ASSERT(together[i].end.finish == GQAC_FINISH_LENGTH && together[i].n == 9);
        CU_ASSERT(!memcmp(together[i].list, alone.list, 9 * sizeof *alone.list));
    }
    CU_ASSERT_EQUAL(rig_statistics(s).ended, 5);
    gqac_scheduler_free(s);
    rig_close(&r);
}

static bool at_third(void *arg) {
    return ++*(int *)arg == 3;
}

/* If the monitor of the context ends a step, no request is changed. */
static void aborted(void) {
    rig r = rig_open(LLAMA, 0, 1);
    gqac_scheduler *s = rig_scheduler(&r, 16, 2, NULL);
    client a = rig_client(5, 8, 1), b = rig_client(50, 4, 2);
    int calls = 0;
    const gqac_monitor monitor = {.size = sizeof monitor, .abort = at_third, .arg = &calls};
    rig_send(s, &a, 0);
    rig_send(s, &b, 0);
    rig_step(s);
    const int64_t n = a.n, done = b.done;
    int64_t left = 0;
    CU_ASSERT_EQUAL(gqac_context_set_monitor(r.context, &monitor, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_scheduler_step(s, &left, &diag), GQAC_ABORTED);
    CU_ASSERT(diag.status == GQAC_ABORTED && left == 2 && calls == 3);
    CU_ASSERT(a.n == n && b.done == done && rig_statistics(s).steps == 1);
    rig_finish(s);
    CU_ASSERT_EQUAL(gqac_context_set_monitor(r.context, NULL, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(rig_compare(&r, &a) + rig_compare(&r, &b), 12);
    gqac_scheduler_free(s);
    rig_close(&r);
}

/* Cancels requests while a chunk is computed, as another thread could. */
typedef struct canceller {
    gqac_scheduler *scheduler;
    const client *victims[2];
    int calls, at[2]; /* calls of the monitor so far; at which victims are cancelled */
    int after[2];     /* calls between the cancellation of each and its end */
} canceller;

static bool cancel_within(void *arg) {
    canceller *x = arg;
    x->calls++;
    for (int i = 0; i < 2; i++) {
        if (x->calls == x->at[i])
            CU_ASSERT(gqac_scheduler_cancel(x->scheduler, x->victims[i]->number));
        x->after[i] += x->calls >= x->at[i] && !x->victims[i]->ends;
    }
    return false;
}

/* A cancelled prompt ends within the step that computes it, at most once in a call; a cancelled
 * answer ends after the step. The others have their bits. */
static void cancelled_within(void) {
    rig r = rig_open(LLAMA, 0, 1);
    gqac_scheduler *s = rig_scheduler(&r, 64, 4, NULL);
    client first = rig_client(90, 5, 1), answer = rig_client(5, 40, 2),
           other = rig_client(6, 20, 3), second = rig_client(80, 5, 4);
    canceller x = {.scheduler = s, .victims = {&first, &second}, .at = {1000000, 1000000}};
    const gqac_monitor monitor = {.size = sizeof monitor, .abort = cancel_within, .arg = &x};
    CU_ASSERT_EQUAL(gqac_context_set_monitor(r.context, &monitor, NULL, &diag), GQAC_OK);
    rig_send(s, &answer, 0);
    rig_send(s, &other, 0);
    rig_step(s);
    const int whole = x.calls; /* calls of one step */
    CU_ASSERT_FATAL(whole > 10);
    rig_send(s, &first, 0);
    rig_send(s, &second, 0);
    x.at[0] = whole + 4;
    x.at[1] = whole + 8; /* in the repeated step, which continues */
    rig_step(s);
    CU_ASSERT(first.ends == 1 && first.end.finish == GQAC_FINISH_CANCELLED && first.done == 0);
    CU_ASSERT(second.ends == 1 && second.end.finish == GQAC_FINISH_CANCELLED && second.done == 0);
    CU_ASSERT_EQUAL(x.after[0], 1); /* the call that cancelled it was the last one of the step */
    CU_ASSERT(x.after[1] > whole / 2);
    CU_ASSERT(answer.n == 7 && other.n == 8 && rig_statistics(s).steps == 2);
    /* The step was repeated once. It has more rows than the first, and if rows take long, the
     * monitor is also called between barriers. */
    CU_ASSERT(x.calls >= whole + 4 + whole && x.calls <= whole + 4 + 3 * whole);
    /* an answer */
    x.victims[0] = &answer;
    x.at[0] = x.calls + 4;
    x.after[0] = 0;
    rig_step(s);
    CU_ASSERT(answer.ends == 1 && answer.end.finish == GQAC_FINISH_CANCELLED && answer.n == 7);
    CU_ASSERT(x.after[0] > 4 && other.n == 9 && rig_statistics(s).steps == 3);
    rig_finish(s);
    gqac_monitor now = {.size = sizeof now};
    CU_ASSERT_EQUAL(gqac_context_set_monitor(r.context, NULL, &now, &diag), GQAC_OK);
    CU_ASSERT(now.abort == cancel_within && now.arg == &x && !now.progress); /* unchanged */
    CU_ASSERT_EQUAL(rig_compare(&r, &answer) + rig_compare(&r, &other), 22);
    gqac_scheduler_free(s);
    rig_close(&r);
}

/* The last position of the model ends an answer, and longer prompts are refused. */
static void positions(void) {
    rig r = rig_open("test/models/qwen3/model.onnx", 0, 1);
    const int64_t most = gqac_program_max_tokens(r.program);
    CU_ASSERT_FATAL(most > 10 && most < RIG_LIST);
    gqac_scheduler *s = rig_scheduler(&r, 0, 0, NULL);
    client c = rig_client(most - 3, 20, 1), too_long = rig_client(most + 1, 1, 2);
    rig_send(s, &c, 0);
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
    gqac_scheduler_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(gqac_store_create(other.program, NULL, &options.store, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_scheduler_create(r.context, &options, &s, &diag), GQAC_USAGE);
    CU_ASSERT_PTR_NULL(s);
    gqac_store_free(options.store);
    s = rig_scheduler(&r, 0, 0, NULL);
    gqac_sequence *foreign = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(other.program, NULL, &foreign, &diag), GQAC_OK);
    const gqac_logit_bias bias = {.id = 1 << 20, .bias = 1};
    int64_t number = 0;
    for (int i = 0; i < 10; i++) {
        static const gqac_status expected[] = {
            GQAC_USAGE, GQAC_OUT_OF_RANGE, GQAC_OUT_OF_RANGE, GQAC_USAGE,        GQAC_OUT_OF_RANGE,
            GQAC_USAGE, GQAC_OUT_OF_RANGE, GQAC_USAGE,        GQAC_OUT_OF_RANGE, GQAC_OUT_OF_RANGE};
        client c = rig_client(5, 5, 1);
        rig_prepare(&c, 5, i == 4 ? -1 : 5);
        c.request.size = i == 0 ? 0 : c.request.size;
        c.request.n_prompt = i == 1 ? 0 : 5;
        c.sampling.bias = &bias;
        c.sampling.n_bias = i == 2;
        c.sampling.top_p = i == 3 ? 2 : 1;
        c.request.n_eos = i == 5 ? 1 : i == 6 ? -1 : 0;
        c.request.from = i == 7 ? foreign : NULL;
        c.list[3] = i == 8 ? -7 : i == 9 ? gqac_program_vocabulary(r.program) : c.list[3];
        CU_ASSERT_EQUAL(gqac_scheduler_submit(s, &c.request, &number, &diag), expected[i]);
        CU_ASSERT(number == 0 && *diag.what);
        CU_ASSERT(i < 8 || (strstr(diag.what, "at index 3") && strstr(diag.rule, "0 <= id < ")));
    }
    client last = rig_client(5, 1, 1);
    last.list[3] = gqac_program_vocabulary(r.program) - 1;
    rig_send(s, &last, 0);
    rig_finish(s);
    CU_ASSERT_EQUAL(last.end.finish, GQAC_FINISH_LENGTH);
    gqac_sequence_free(foreign);
    gqac_scheduler_free(s);
    gqac_scheduler_free(NULL);
    rig_close(&other);
    rig_close(&r);
}

/* ---- beginnings ---------------------------------------------------------- */

/* A later request finds in the store the rows that an earlier one computed, and continues them. */
static void store(void) {
    rig r = rig_open(LLAMA, 0, 1);
    gqac_store *cached = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_store_create(r.program, NULL, &cached, &diag), GQAC_OK);
    gqac_scheduler *s = rig_scheduler(&r, 32, 4, cached);
    client a = rig_client(80, 3, 1), b = rig_client(80, 3, 1), c = rig_client(80, 3, 1);
    rig_send(s, &a, 0);
    rig_finish(s);
    rig_send(s, &b, 0);
    rig_prepare(&c, 80, 3);
    c.request.tenant = "another";
    rig_submit(s, &c);
    rig_finish(s);
    CU_ASSERT(a.end.reused_tokens == 0 && a.end.computed_tokens == 82);
    CU_ASSERT(b.end.reused_tokens == 79 && b.end.computed_tokens == 3);
    CU_ASSERT(c.end.reused_tokens == 0 && c.end.computed_tokens == 82);
    CU_ASSERT_EQUAL(rig_compare(&r, &a) + rig_compare(&r, &b) + rig_compare(&r, &c), 9);
    /* a request that computes its prompt without an answer */
    client warm = rig_client(70, 0, 9), after = rig_client(75, 2, 9);
    rig_send(s, &warm, 0);
    rig_finish(s);
    rig_send(s, &after, 0);
    rig_finish(s);
    CU_ASSERT(warm.end.finish == GQAC_FINISH_LENGTH && warm.rows == 70 && warm.done == 70);
    CU_ASSERT(after.end.reused_tokens == 70 && rig_compare(&r, &after) == 2);
    gqac_scheduler_free(s);
    gqac_store_free(cached);
    rig_close(&r);
}

/* Requests with a common beginning that are submitted together: each common token is computed once.
 * No request waits for tokens that it does not share, or that another tenant computes. */
static void cold_together(void) {
    rig r = rig_open(LLAMA, 0, 1);
    gqac_store *cached = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_store_create(r.program, NULL, &cached, &diag), GQAC_OK);
    gqac_scheduler *s = rig_scheduler(&r, 64, 8, cached);
    client all[6];
    static const int64_t lengths[] = {200, 230, 150, 40, 200, 200};
    static const int64_t same[] = {200, 180, 150, 2, 0, 200}; /* common with the first */
    static const int64_t computed[] = {200, 50, 1, 38, 200, 200};
    static const int64_t or_more[] = {0, 0, 0, 2, 0, 0};
    for (int i = 0; i < 6; i++) {
        all[i] = rig_client(lengths[i], 3, (uint64_t)i + 20);
        for (int64_t k = 0; k < same[i]; k++)
            all[i].list[k] = all[0].list[k];
        if (same[i] < lengths[i])
            all[i].list[same[i]] = all[0].list[same[i]] == 11 ? 77 : 11;
        rig_prepare(&all[i], lengths[i], 3);
        all[i].request.tenant = i == 5 ? "another" : NULL;
        rig_submit(s, &all[i]);
    }
    rig_finish(s);
    for (int i = 0; i < 6; i++) {
        const int64_t more = all[i].end.computed_tokens - 2 - computed[i];
        CU_ASSERT(more >= 0 && more <= or_more[i]);
        CU_ASSERT_EQUAL(all[i].end.reused_tokens + all[i].end.computed_tokens, lengths[i] + 2);
        CU_ASSERT_EQUAL(rig_compare(&r, &all[i]), 3);
    }
    gqac_scheduler_free(s);
    /* short prompts in one step: the second one waits, and both share their blocks */
    s = rig_scheduler(&r, 200, 8, cached);
    const gqac_scheduler_statistics before = rig_statistics(s);
    client a = rig_client(70, 3, 40), b = rig_client(75, 3, 40);
    rig_send(s, &a, 0);
    rig_send(s, &b, 0);
    rig_step(s);
    CU_ASSERT(a.n == 71 && b.done == 0 && before.steps == 0);
    rig_step(s);
    CU_ASSERT(a.n == 72 && b.n == 76);
    rig_finish(s);
    CU_ASSERT(b.end.reused_tokens == 70 && rig_compare(&r, &a) + rig_compare(&r, &b) == 6);
    /* no request waits for one that shares nothing */
    for (int i = 0; i < 2; i++) {
        client c = rig_client(70, 3, (uint64_t)i + 41), d = rig_client(75, 3, (uint64_t)i + 41);
        rig_prepare(&c, 70, 3);
        c.request.cold = i == 0;
        c.request.tenant = i == 0 ? NULL : "another";
        rig_submit(s, &c);
        rig_send(s, &d, 0);
        rig_step(s);
        CU_ASSERT(c.n == 71 && d.n == 76);
        rig_finish(s);
    }
    gqac_scheduler_free(s);
    gqac_store_free(cached);
    rig_close(&r);
}

static void from_sequence(void) {
    rig r = rig_open(LLAMA, 0, 1);
    gqac_scheduler *s = rig_scheduler(&r, 32, 1, NULL);
    gqac_sequence *q = NULL;
    client a = rig_client(60, 4, 1), b = rig_client(66, 4, 1);
    b.n_from = 60;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(r.program, NULL, &q, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(r.context, q, a.list, 60, 0, &diag), GQAC_OK);
    rig_prepare(&b, 66, 4);
    b.request.from = q;
    rig_send(s, &a, 0);
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
    gqac_scheduler *s = rig_scheduler(&r, 10, 3, NULL);
    client crossing = rig_client(threshold - 3, 8, 1), beyond = rig_client(threshold + 9, 4, 2),
           before = rig_client(3, 4, 3);
    client *all[] = {&crossing, &beyond, &before};
    for (int i = 0; i < 3; i++)
        rig_send(s, all[i], 0);
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
        for (int64_t k = 0; k < request.max_new; k++) { /* one by one, so `alone` can follow */
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

/* The rows of `from` have the short rope table, and the prompt crosses the LongRoPE threshold: only
 * that request is computed again, although another one is the first item of the step. */
static void long_rope_from(void) {
    rig r = rig_open("test/models/phi3/model.onnx", 0, 1);
    int64_t threshold = 0;
    CU_ASSERT_EQUAL_FATAL(gqac_program_rope_threshold(r.program, &threshold, &diag), GQAC_OK);
    gqac_scheduler *s = rig_scheduler(&r, 0, 4, NULL);
    gqac_sequence *q = NULL;
    client other = rig_client(5, 9, 1), beyond = rig_client(threshold + 6, 4, 2),
           alone = rig_client(threshold + 6, 4, 2);
    beyond.n_from = threshold - 2;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(r.program, NULL, &q, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(r.context, q, beyond.list, threshold - 2, 0, &diag),
                          GQAC_OK);
    rig_send(s, &other, 0);
    rig_step(s);
    rig_prepare(&beyond, beyond.n_prompt, 4);
    beyond.request.from = q;
    rig_submit(s, &beyond);
    rig_finish(s);
    rig_send(s, &alone, 0);
    rig_finish(s);
    CU_ASSERT(other.end.finish == GQAC_FINISH_LENGTH && other.end.preemptions == 0);
    CU_ASSERT(beyond.end.finish == GQAC_FINISH_LENGTH && beyond.end.preemptions == 1);
    CU_ASSERT(beyond.n == alone.n && !memcmp(beyond.bits, alone.bits, sizeof beyond.bits));
    gqac_sequence_free(q);
    gqac_scheduler_free(s);
    rig_close(&r);
}

static const unit_case cases[] = {
    {"prompts in chunks beside decode", chunks},
    {"steps of a program that pads", padding},
    {"priorities", priorities},
    {"statistics", statistics},
    {"cancelled requests", cancelled},
    {"cancelled within a step", cancelled_within},
    {"failed requests", failed},
    {"a failure of no single request", failed_together},
    {"a step that the monitor ends", aborted},
    {"the last position", positions},
    {"refused requests", refused},
    {"prefixes from a store", store},
    {"cold prefixes that come together", cold_together},
    {"from a sequence", from_sequence},
    {"the LongRoPE threshold", long_rope},
    {"a sequence before the LongRoPE threshold", long_rope_from},
};

int main(int argc, char **argv) {
    return unit_run("sched/schedule", cases, sizeof cases / sizeof *cases, argc, argv);
}
