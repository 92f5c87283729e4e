/* How generation ends, its metrics, what it refuses, and the effects of a failure. */
#include "llm/generate_rig.h"

#include <unistd.h>

enum { MOST = 200 };

static gqac_generate_request make_request(gqac_session *session, const int64_t *prompt, size_t n,
                                          int64_t max_new) {
    gqac_generate_request q;
    gqac_generate_request_init(&q, NULL, session, prompt, n);
    CU_ASSERT(q.max_new == 128 && !q.sampling && !q.n_eos && !q.min_length);
    q.max_new = max_new;
    return q;
}

/* Records the events of one request; ends it at step `until`. */
typedef struct diary {
    int64_t until, ids[MOST];
    size_t n, n_eos;
} diary;

static bool note(void *arg, const gqac_generate_event *event) {
    diary *d = arg;
    d->ids[d->n++] = event->id;
    d->n_eos += event->eos;
    return event->step != d->until;
}

/* ---- ends ---------------------------------------------------------------- */

/* The first id from `at` on that is new in the answer. */
static size_t first_new(const gqac_generation *g, size_t at) {
    for (; at < g->n_ids; at++) {
        size_t same = 0;
        while (g->ids[same] != g->ids[at])
            same++;
        if (same == at)
            break;
    }
    CU_ASSERT_FATAL(at + 1 < g->n_ids);
    return at;
}

static void test_eos(void) {
    rig r = open_model("llama", 1);
    int64_t prompt[20];
    fill_ids(prompt, 20, 1);
    gqac_session *session = open_session(&r, NULL, 0);
    gqac_generate_request q = make_request(session, prompt, 20, 12);
    gqac_generation *all = generate(&r, &q);
    CU_ASSERT(all->n_ids == 12 && all->finish == GQAC_FINISH_LENGTH);
    const size_t at = first_new(all, 4);
    const int64_t eos[] = {9999, all->ids[at]};
    diary d = {0};
    q.eos = eos;
    q.n_eos = 2;
    q.on_token = note;
    q.arg = &d;
    gqac_generation *g = generate(&r, &q);
    CU_ASSERT(g->finish == GQAC_FINISH_EOS && g->n_ids == at + 1);
    CU_ASSERT(!memcmp(g->ids, all->ids, g->n_ids * sizeof *g->ids));
    CU_ASSERT(d.n == g->n_ids && d.n_eos == 1 && d.ids[at] == eos[1]);
    gqac_generation_free(g);
    /* at 20 + at ids one more follows; from there on the answer may end */
    q.min_length = 20 + (int64_t)at;
    g = generate(&r, &q);
    CU_ASSERT(g->finish == GQAC_FINISH_EOS && g->n_ids == at + 1);
    gqac_generation_free(g);
    q.min_length = 20 + (int64_t)at + 1;
    g = generate(&r, &q);
    CU_ASSERT(g->n_ids > at + 1 && g->ids[at] != eos[1]);
    CU_ASSERT(!memcmp(g->ids, all->ids, at * sizeof *g->ids));
    gqac_generation_free(g);
    q.min_length = 0;
    q.max_new = (int64_t)at + 1; /* both end at once; the reported reason is the end of the text */
    g = generate(&r, &q);
    CU_ASSERT(g->finish == GQAC_FINISH_EOS && g->n_ids == at + 1);
    gqac_generation_free(g);
    gqac_generation_free(all);
    gqac_session_free(session);
    close_rig(&r);
}

static void test_limit_and_callback(void) {
    rig r = open_model("llama", 1);
    int64_t prompt[20];
    size_t held = 0;
    fill_ids(prompt, 20, 1);
    gqac_session *session = open_session(&r, NULL, 0);
    gqac_generate_request q = make_request(session, prompt, 20, 6);
    gqac_generation *all = generate(&r, &q);
    q.max_new = 0;
    gqac_generation *g = generate(&r, &q);
    CU_ASSERT(!g->n_ids && !*g->text && g->finish == GQAC_FINISH_LENGTH);
    CU_ASSERT(!g->metrics.n_forwards && !g->metrics.computed_tokens);
    CU_ASSERT(g->metrics.time_to_first_token_ms == 0 && g->metrics.forward_ms_max == 0);
    gqac_session_ids(session, &held);
    CU_ASSERT_EQUAL(held, 25); /* unchanged */
    gqac_generation_free(g);
    for (int64_t until = 1; until <= 6; until++) {
        diary d = {.until = until};
        q.max_new = 6;
        q.on_token = note;
        q.arg = &d;
        g = generate(&r, &q);
        CU_ASSERT(g->n_ids == (size_t)until && d.n == (size_t)until);
        CU_ASSERT_EQUAL(g->finish, until < 6 ? GQAC_FINISH_STOP : GQAC_FINISH_LENGTH);
        CU_ASSERT(!memcmp(g->ids, all->ids, g->n_ids * sizeof *g->ids));
        gqac_generation_free(g);
    }
    CU_ASSERT_STRING_EQUAL(gqac_finish_name(GQAC_FINISH_EOS), "eos");
    CU_ASSERT_STRING_EQUAL(gqac_finish_name(GQAC_FINISH_LENGTH), "length");
    CU_ASSERT_STRING_EQUAL(gqac_finish_name(GQAC_FINISH_STOP), "stop");
    CU_ASSERT_STRING_EQUAL(gqac_finish_name(GQAC_FINISH_CANCELLED), "cancelled");
    CU_ASSERT_STRING_EQUAL(gqac_finish_name(GQAC_FINISH_FAILED), "failed");
    gqac_generation_free(all);
    gqac_session_free(session);
    close_rig(&r);
}

/* ---- room ---------------------------------------------------------------- */

/* Generates 12 ids after n: `expected` of them, or CAPACITY if negative. */
static void expect_room(const rig *r, const gqac_text *text, const char *kv, int64_t context,
                        size_t n, int64_t expected) {
    int64_t prompt[MOST];
    gqac_generation *g = NULL;
    fill_ids(prompt, n, 3);
    gqac_session *session = open_session(r, kv, context);
    gqac_generate_request q = make_request(session, prompt, n, 12);
    memset(&diag, 0, sizeof diag);
    const gqac_status status = gqac_generate(r->context, text, 1, &q, &g, &diag);
    CU_ASSERT_EQUAL(status, expected < 0 ? GQAC_CAPACITY : GQAC_OK);
    if (expected < 0) {
        char number[24];
        snprintf(number, sizeof number, "%zu", n);
        CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, number));
        CU_ASSERT(*diag.rule && *diag.hint && strstr(diag.where, "request 0"));
        CU_ASSERT_PTR_NULL(g);
    } else if (status == GQAC_OK) {
        CU_ASSERT_EQUAL((int64_t)g->n_ids, expected);
        CU_ASSERT_EQUAL(g->finish, GQAC_FINISH_LENGTH);
    } else
        printf("%s\n", diag.what);
    gqac_generation_free(g);
    gqac_session_free(session);
}

static void test_room(void) {
    static const char *const kinds[] = {"contiguous", "off"};
    const gqac_text text = {.settings = {.context_length = 40}};
    for (int k = 0; k < 2; k++) {
        rig r = open_model("qwen2", 1); /* 160 positions */
        expect_room(&r, NULL, kinds[k], 30, 17, 12);
        expect_room(&r, NULL, kinds[k], 30, 25, 5);
        expect_room(&r, NULL, kinds[k], 30, 29, 1);
        expect_room(&r, NULL, kinds[k], 30, 30, 0);
        expect_room(&r, NULL, kinds[k], 30, 31, -1);
        expect_room(&r, &text, kinds[k], 0, 37, 3);
        expect_room(&r, &text, kinds[k], 0, 41, -1);
        expect_room(&r, &text, kinds[k], 30, 28, 2);
        expect_room(&r, &text, kinds[k], 60, 38, 2);
        expect_room(&r, NULL, kinds[k], 0, 149, 12); /* the last id is not computed */
        expect_room(&r, NULL, kinds[k], 0, 152, 9);
        expect_room(&r, NULL, kinds[k], 0, 160, 1);
        expect_room(&r, NULL, kinds[k], 0, 161, -1);
        close_rig(&r);
    }
}

/* If an answer runs out of memory, it fails; it is not reported as complete. */
static void test_budget(void) {
    enum { PROMPTED = 60 };
    const char *path = unit_path("test/models/qwen2/model.onnx");
    int64_t prompt[PROMPTED], budget = 0;
    fill_ids(prompt, PROMPTED, 3);
    for (int bounded = 0; bounded < 2; bounded++) {
        gqac_options options;
        rig r = {0};
        gqac_generation *g = NULL;
        gqac_memory m = {.size = sizeof m};
        gqac_options_init(&options);
        options.memory_budget = budget;
        CU_ASSERT_EQUAL_FATAL(gqac_program_open(path, &options, &r.program, &diag), GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(gqac_context_create(r.program, 1, &r.context, &diag), GQAC_OK);
        gqac_session *session = open_session(&r, "contiguous", 0);
        gqac_generate_request q = make_request(session, prompt, PROMPTED, 3);
        CU_ASSERT_EQUAL_FATAL(gqac_generate(r.context, NULL, 1, &q, &g, &diag), GQAC_OK);
        gqac_generation_free(g);
        g = NULL;
        CU_ASSERT_EQUAL_FATAL(gqac_program_memory(r.program, 64, 64, &m, &diag), GQAC_OK);
        budget = gqac_program_memory_used(r.program) + m.kv_block / 2; /* no block for token 65 */
        q.max_new = 12;
        CU_ASSERT_EQUAL(gqac_generate(r.context, NULL, 1, &q, &g, &diag),
                        bounded ? GQAC_CAPACITY : GQAC_OK);
        CU_ASSERT(!bounded || (!g && strstr(diag.what, "budget")));
        CU_ASSERT(!bounded || strstr(diag.where, "request 0"));
        gqac_generation_free(g);
        gqac_session_free(session);
        close_rig(&r);
    }
}

/* One request of several reaches the end of the rope table; the others continue. */
static void test_room_in_company(void) {
    rig r = open_model("qwen2", 1);
    int64_t prompts[2][MOST];
    gqac_generate_request q[2];
    gqac_generation *alone[2], *together[2];
    const size_t lengths[] = {155, 20};
    for (int i = 0; i < 2; i++) {
        fill_ids(prompts[i], lengths[i], i);
        q[i] = make_request(open_session(&r, NULL, 0), prompts[i], lengths[i], 10);
        alone[i] = generate(&r, &q[i]);
        gqac_session_free(q[i].session);
        q[i].session = open_session(&r, NULL, 0);
    }
    CU_ASSERT_EQUAL(alone[0]->n_ids, 6);
    CU_ASSERT_EQUAL_FATAL(gqac_generate(r.context, NULL, 2, q, together, &diag), GQAC_OK);
    for (int i = 0; i < 2; i++) {
        size_t held = 0;
        CU_ASSERT(same_ids(alone[i], together[i]));
        gqac_session_ids(q[i].session, &held);
        CU_ASSERT_EQUAL(held, i ? 29 : 160);
        CU_ASSERT_EQUAL(together[i]->metrics.computed_tokens, (int64_t)held);
        gqac_generation_free(alone[i]);
        gqac_generation_free(together[i]);
        gqac_session_free(q[i].session);
    }
    close_rig(&r);
}

/* ---- metrics ------------------------------------------------------------- */

/* A clock with these intervals, in seconds, between its readings. */
typedef struct ticks {
    double now;
    int readings;
} ticks;

static double tick(void *arg) {
    static const double steps[] = {10, 0.25, 0.5, 0.125, 1, 0.0625, 2, 0.03125, 4, 8};
    ticks *t = arg;
    t->now += t->readings < 10 ? steps[t->readings] : 100;
    t->readings++;
    return t->now;
}

static void test_metrics(void) {
    rig r = open_model("llama", 1);
    int64_t prompt[20];
    ticks t = {0};
    fill_ids(prompt, 20, 1);
    gqac_generate_request q = make_request(open_session(&r, NULL, 0), prompt, 20, 4);
    q.clock = tick;
    q.clock_arg = &t;
    q.chunk = 6; /* in any number of steps, the prompt is one forward */
    gqac_generation *g = generate(&r, &q);
    const gqac_generate_metrics *m = &g->metrics;
    /* call, [0.25] begin, [0.5] end, [0.125] first id, then begin and end of three more forwards:
     * [1] [0.0625], [2] [0.03125], [4] [8] */
    CU_ASSERT_EQUAL(t.readings, 10);
    CU_ASSERT_EQUAL(m->time_to_first_token_ms, 875);
    CU_ASSERT_EQUAL_FATAL(m->n_forwards, 4);
    CU_ASSERT(m->forward_ms[0] == 500 && m->forward_ms[1] == 62.5);
    CU_ASSERT(m->forward_ms[2] == 31.25 && m->forward_ms[3] == 8000);
    CU_ASSERT(m->forward_ms_min == 31.25 && m->forward_ms_max == 8000);
    CU_ASSERT_EQUAL(m->forward_ms_mean, 8593.75 / 4);
    CU_ASSERT_EQUAL(m->decode_tokens_per_second, 3 / 8.09375);
    CU_ASSERT(m->reused_tokens == 0 && m->computed_tokens == 23);
    gqac_generation_free(g);
    q.max_new = 1;
    t = (ticks){0};
    g = generate(&r, &q);
    CU_ASSERT(g->metrics.decode_tokens_per_second == 0 && g->metrics.n_forwards == 1);
    CU_ASSERT(g->metrics.forward_ms_mean == 500 && g->metrics.time_to_first_token_ms == 875);
    CU_ASSERT(g->metrics.reused_tokens == 19 && g->metrics.computed_tokens == 1);
    gqac_generation_free(g);
    q.clock = NULL;
    q.max_new = 5;
    g = generate(&r, &q); /* the clock of the system */
    CU_ASSERT(g->metrics.forward_ms_min > 0 && g->metrics.forward_ms_max < 60000);
    CU_ASSERT(g->metrics.decode_tokens_per_second > 0);
    gqac_generation_free(g);
    gqac_session_free(q.session);
    close_rig(&r);
}

/* ---- what is refused ----------------------------------------------------- */

static void expect_refused(const rig *r, int n, const gqac_generate_request *q,
                           gqac_status expected, const char *text) {
    gqac_generation *results[2] = {0};
    size_t held = 0;
    memset(&diag, 0, sizeof diag);
    CU_ASSERT_EQUAL(gqac_generate(r->context, NULL, n, q, results, &diag), expected);
    if (!strstr(diag.what, text))
        printf("'%s' is not in '%s'\n", text, diag.what);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, text));
    CU_ASSERT(!results[0] && !results[1]);
    if (n > 0 && q->session) {
        gqac_session_ids(q->session, &held);
        CU_ASSERT_EQUAL(held, 7); /* unchanged */
    }
}

static void test_refused(void) {
    rig r = open_model("llama", 1), other = open_model("qwen2", 1);
    int64_t prompt[8];
    fill_ids(prompt, 8, 1);
    gqac_session *session = open_session(&r, NULL, 0), *foreign = open_session(&other, NULL, 0);
    const gqac_generate_request fine = make_request(session, prompt, 7, 1);
    gqac_generation_free(generate(&r, &fine));
    const char *const stops[] = {"x"}, *const empty[] = {""}, *const bad[] = {"\xff"};
    gqac_generate_request q[2] = {fine, fine};
    expect_refused(&r, 0, q, GQAC_USAGE, "0 requests");
    expect_refused(&r, 2, q, GQAC_USAGE, "same session");
    q[1].session = foreign;
    expect_refused(&r, 2, q, GQAC_USAGE, "another program");
    const struct {
        size_t offset;
        int64_t value;
        gqac_status status;
        const char *text;
    } wrong[] = {
        {offsetof(gqac_generate_request, session), 0, GQAC_USAGE, "NULL"},
        {offsetof(gqac_generate_request, n_prompt), 0, GQAC_OUT_OF_RANGE, "no ids"},
        {offsetof(gqac_generate_request, prompt), 0, GQAC_OUT_OF_RANGE, "no ids"},
        {offsetof(gqac_generate_request, max_new), -1, GQAC_OUT_OF_RANGE, "-1"},
        {offsetof(gqac_generate_request, min_length), -2, GQAC_OUT_OF_RANGE, "-2"},
        {offsetof(gqac_generate_request, chunk), -3, GQAC_OUT_OF_RANGE, "-3"},
        {offsetof(gqac_generate_request, n_eos), 1, GQAC_USAGE, "end-of-text"},
        {offsetof(gqac_generate_request, n_stop), 1, GQAC_USAGE, "stop texts"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const bool is_int = wrong[i].offset == offsetof(gqac_generate_request, n_eos) ||
                            wrong[i].offset == offsetof(gqac_generate_request, n_stop);
        const int value = (int)wrong[i].value;
        q[0] = fine;
        memcpy((char *)&q[0] + wrong[i].offset,
               is_int ? (const void *)&value : (const void *)&wrong[i].value,
               is_int ? sizeof value : sizeof wrong[i].value);
        expect_refused(&r, 1, q, wrong[i].status, wrong[i].text);
    }
    const struct {
        const char *const *stop;
        gqac_status status;
        const char *text;
    } texts[] = {{stops, GQAC_USAGE, "tokenizer"},
                 {empty, GQAC_USAGE, "empty"},
                 {bad, GQAC_INVALID_INPUT, "UTF-8"}};
    for (size_t i = 0; i < 3; i++) {
        q[0] = fine;
        q[0].n_stop = 1;
        q[0].stop = texts[i].stop;
        expect_refused(&r, 1, q, texts[i].status, texts[i].text);
    }
    gqac_sampling sampling;
    gqac_sampling_init(&sampling);
    sampling.top_k = -4;
    q[0] = fine;
    q[0].sampling = &sampling;
    expect_refused(&r, 1, q, GQAC_USAGE, "top_k");
    q[0] = fine;
    prompt[3] = 258;
    expect_refused(&r, 1, q, GQAC_OUT_OF_RANGE, "258 at index 3");
    prompt[3] = -1;
    expect_refused(&r, 1, q, GQAC_OUT_OF_RANGE, "-1 at index 3");
    gqac_session_free(session);
    gqac_session_free(foreign);
    close_rig(&other);
    close_rig(&r);
}

static void test_session_options(void) {
    rig r = open_model("llama", 1);
    gqac_session *session = NULL;
    gqac_session_options options = {.size = sizeof options, .kv = "nope"};
    memset(&diag, 0, sizeof diag);
    CU_ASSERT_EQUAL(gqac_session_create(r.program, &options, &session, &diag), GQAC_USAGE);
    CU_ASSERT(strstr(diag.what, "nope") && strstr(diag.rule, "contiguous"));
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.hint, "off"));
    options = (gqac_session_options){.size = sizeof(gqac_session_options), .context = -1};
    CU_ASSERT_EQUAL(gqac_session_create(r.program, &options, &session, &diag), GQAC_OUT_OF_RANGE);
    static const char *const kinds[][2] = {
        {NULL, "contiguous"}, {"basic", "contiguous"}, {"off", "off"}};
    for (size_t i = 0; i < 3; i++) {
        size_t held = 9;
        session = open_session(&r, kinds[i][0], 0);
        CU_ASSERT_STRING_EQUAL(gqac_session_kind(session), kinds[i][1]);
        gqac_session_ids(session, &held);
        CU_ASSERT_EQUAL(held, 0);
        gqac_session_free(session);
    }
    gqac_session_free(NULL);
    gqac_generation_free(NULL);
    close_rig(&r);
}

/* ---- special models ------------------------------------------------------ */

/* Writes a model of one layer that returns only the last row of logits, over 8 ids, the last of
 * which makes everything NaN. */
static rig open_last_row(void) {
    char path[] = "/tmp/gqac-last-XXXXXX.gq";
    const int fd = mkstemps(path, 3);
    CU_ASSERT_FATAL(fd >= 0);
    FILE *f = fdopen(fd, "w");
    fprintf(f, "graph @last(%%input_ids: i64[B,S], %%attention_mask: i64[B,T], "
               "%%past_key_values.0.key: f32[B,1,P,8], %%past_key_values.0.value: f32[B,1,P,8]) {\n"
               "  const %%one: i64[] = 1\n  const %%axis: i64[1] = [1]\n"
               "  const %%from: i64[1] = [-1]\n  const %%to: i64[1] = [99999]\n"
               "  const %%embed: f32[8,32] = [");
    for (int i = 0; i < 8 * 32; i++)
        fprintf(f, i < 7 * 32 ? "%s%.6f" : "%snan", i ? ", " : "", 2 * sin(i * i + 3.0 * i));
    fprintf(f, "]\n  const %%head: f32[16,8] = [");
    for (int i = 0; i < 16 * 8; i++)
        fprintf(f, "%s%.6f", i ? ", " : "", i % 8 == 7 ? 0 : cos(0.7 * i * i));
    fprintf(f, "]\n  %%sum = ReduceSum %%attention_mask, %%axis {keepdims=0} : i64[B]\n"
               "  %%less = Sub %%sum, %%one : i64[B]\n  %%len = Cast %%less {to=i32} : i32[B]\n"
               "  %%shape = Shape %%attention_mask : i64[2]\n"
               "  %%t = Gather %%shape, %%one : i64[]\n  %%total = Cast %%t {to=i32} : i32[]\n"
               "  %%x = Gather %%embed, %%input_ids : f32[B,S,32]\n"
               "  %%y, %%k, %%v = com.microsoft.GroupQueryAttention %%x, _, _, "
               "%%past_key_values.0.key, %%past_key_values.0.value, %%len, %%total "
               "{num_heads=2, kv_num_heads=1} : f32[B,S,16], f32[B,1,P+S,8], f32[B,1,P+S,8]\n"
               "  %%last = Slice %%y, %%from, %%to, %%axis : f32[B,1,16]\n"
               "  %%logits = MatMul %%last, %%head : f32[B,1,8]\n"
               "  return %%logits, %%k as \"present.0.key\", %%v as \"present.0.value\"\n}\n");
    fclose(f);
    rig r = open_rig(path, 1);
    unlink(path);
    return r;
}

static void test_last_row(void) {
    static const int64_t prompt[] = {1, 5, 2, 0, 6, 3, 3, 4, 2, 1, 6}, eos[] = {7};
    rig r = open_last_row();
    gqac_sampling sampling;
    gqac_generate_request q[2];
    gqac_generation *alone[2], *together[2];
    gqac_sampling_init(&sampling);
    sampling.sample = true;
    for (int i = 0; i < 2; i++) {
        q[i] = make_request(open_session(&r, i ? "off" : NULL, 0), prompt + i, 8, 9 - i);
        q[i].chunk = i ? 3 : 0;
        q[i].sampling = &sampling;
        q[i].eos = eos;
        q[i].n_eos = 1;
        q[i].min_length = 100; /* so that the id that causes NaN is not chosen */
        alone[i] = generate(&r, &q[i]);
        CU_ASSERT(alone[i]->n_ids == (size_t)(9 - i));
    }
    int64_t rows = 0, vocabulary = 0;
    gqac_context_logits(r.context, 0, &rows, &vocabulary);
    CU_ASSERT(rows == 1 && vocabulary == 8);
    CU_ASSERT_EQUAL_FATAL(gqac_generate(r.context, NULL, 2, q, together, &diag), GQAC_OK);
    const int64_t bad[] = {1, 7, 2};
    for (int i = 0; i < 2; i++) {
        size_t held = 0;
        CU_ASSERT(same_ids(alone[i], together[i]));
        q[i].prompt = bad;
        q[i].n_prompt = 3;
        memset(&diag, 0, sizeof diag);
        gqac_generation *g = NULL;
        CU_ASSERT_EQUAL(gqac_generate(r.context, NULL, 1, &q[i], &g, &diag), GQAC_INVALID_INPUT);
        CU_ASSERT(!g && strstr(diag.where, "request 0") && strstr(diag.what, "position 3"));
        gqac_session_ids(q[i].session, &held);
        CU_ASSERT_EQUAL(held, i ? 0 : 3);
        gqac_generation_free(alone[i]);
        gqac_generation_free(together[i]);
        gqac_session_free(q[i].session);
    }
    close_rig(&r);
}

/* ---- memory -------------------------------------------------------------- */

/* Two requests with stop texts, one of which continues with a session. */
static gqac_status generate_two(const rig *r, gqac_session *session, gqac_session *off,
                                const int64_t *prompt, size_t n, gqac_generation **results) {
    static const char *const table[] = {"a", "b", "\xc3", "\xa9", "stop"};
    static const char *const stop[] = {"abc", "stopb"};
    const pieces p = {.text = table, .n = 5, .broken = -1};
    const gqac_text text = pieces_text(&p);
    gqac_sampling sampling;
    gqac_sampling_init(&sampling);
    sampling.sample = true;
    gqac_generate_request q[2];
    q[0] = make_request(session, prompt, n, 6);
    q[1] = make_request(off, prompt, 5, 3);
    for (int i = 0; i < 2; i++) {
        q[i].chunk = 7;
        q[i].stop = stop;
        q[i].n_stop = 2;
        q[i].sampling = &sampling;
    }
    return gqac_generate(r->context, &text, 2, q, results, &diag);
}

/* Every allocation fails once. The session stays usable each time, and in the end the answers are
 * as usual. */
static void expect_memory(const char *model, size_t before, size_t n) {
    rig r = open_model(model, 1);
    int64_t prompt[MOST];
    gqac_generation *expected[2] = {0}, *results[2] = {0};
    fill_ids(prompt, n, 1);
    gqac_session *session = open_session(&r, NULL, 0), *off = open_session(&r, "off", 0);
    CU_ASSERT_EQUAL_FATAL(generate_two(&r, session, off, prompt, n, expected), GQAC_OK);
    size_t failures = 0;
    bool failing = true;
    for (size_t at = 1; failing && at < 10000; at++) {
        gqac_session_free(session);
        session = open_session(&r, NULL, 0);
        gqac_generate_request q = make_request(session, prompt, before, 2);
        gqac_generation_free(generate(&r, &q));
        const size_t live = gqac_alloc_live();
        gqac_alloc_fail_at(at, 0);
        const gqac_status status = generate_two(&r, session, off, prompt, n, results);
        failing = gqac_alloc_calls() >= at;
        gqac_alloc_fail_at(0, 0);
        failures += status == GQAC_NO_MEMORY;
        CU_ASSERT_EQUAL_FATAL(status, failing ? GQAC_NO_MEMORY : GQAC_OK);
        CU_ASSERT(!failing || (!results[0] && !results[1]));
        if (failing) /* computed rows stay; everything else is freed */
            CU_ASSERT_EQUAL_FATAL(generate_two(&r, session, off, prompt, n, results), GQAC_OK);
        for (int i = 0; i < 2; i++) {
            CU_ASSERT(same_ids(results[i], expected[i]));
            CU_ASSERT_STRING_EQUAL(results[i]->text, expected[i]->text);
            gqac_generation_free(results[i]);
        }
        CU_ASSERT(gqac_alloc_live() <= live + 16);
    }
    CU_ASSERT(failures > 20 && !failing);
    printf("  %s: %zu allocations failed one by one\n", model, failures);
    gqac_generation_free(expected[0]);
    gqac_generation_free(expected[1]);
    gqac_session_free(session);
    gqac_session_free(off);
    close_rig(&r);
}

static void test_memory(void) {
    const size_t live = gqac_alloc_live();
    expect_memory("llama", 9, 14);
    expect_memory("phi3", 60, 63);
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
}

static const unit_case cases[] = {
    {"I23: end-of-text ids and min_length", test_eos},
    {"I23: max_new and the callback", test_limit_and_callback},
    {"context of session, settings and model", test_room},
    {"the end of the memory budget", test_budget},
    {"the end of the rope table in company", test_room_in_company},
    {"I25: metrics by a clock of our own", test_metrics},
    {"wrong requests", test_refused},
    {"options of a session", test_session_options},
    {"a model with the last row only; no logit is a number", test_last_row},
    {"every allocation fails once", test_memory},
};

int main(int argc, char **argv) {
    return unit_run("generate_ends", cases, sizeof cases / sizeof *cases, argc, argv);
}
