/* Speculation without enough memory for drafts, and requests that are refused. */
#include "llm/speculation_rig.h"

/* A budget that is sufficient for the answer, but not for rows of drafts. */
static void test_budget(void) {
    static const char *const names[] = {"qwen2", "qwen3.5"};
    for (int m = 0; m < 2; m++) {
        char path[64];
        int64_t prompt[60], used = 0;
        gqac_generation *g[3] = {0};
        fill_ids(prompt, 60, 3);
        snprintf(path, sizeof path, "test/models/%s/model.onnx", names[m]);
        for (int i = 0; i < 3; i++) {
            gqac_options options;
            rig r = {0};
            float by = 30;
            gqac_options_init(&options);
            options.memory_budget = i == 2 ? used : 0;
            CU_ASSERT_EQUAL_FATAL(gqac_program_open(unit_path(path), &options, &r.program, &diag),
                                  GQAC_OK);
            CU_ASSERT_EQUAL_FATAL(gqac_context_create(r.program, 1, &r.context, &diag), GQAC_OK);
            gqac_session *session = open_session(&r, NULL, 0);
            gqac_generate_request q = make_request(session, prompt, 60, 20);
            q.on_logits = lean;
            q.logits_arg = &by;
            q.speculate = i ? 6 : 0;
            g[i] = generate(&r, &q);
            used = i ? used : gqac_program_memory_used(r.program);
            gqac_session_free(session);
            close_rig(&r);
        }
        CU_ASSERT(same_ids(g[0], g[1]) && same_ids(g[0], g[2]));
        CU_ASSERT(g[1]->metrics.drafted_tokens > g[2]->metrics.drafted_tokens);
        for (int i = 0; i < 3; i++)
            gqac_generation_free(g[i]);
    }
}

static gqac_status try_request(const rig *r, int n, const gqac_generate_request *q,
                               const char *text) {
    gqac_generation *results[2] = {0};
    diag = (gqac_diag){0};
    const gqac_status status = gqac_generate(r->context, NULL, n, q, results, &diag);
    CU_ASSERT(!results[0] && strstr(diag.what, text));
    if (!strstr(diag.what, text))
        printf("'%s' is not in '%s'\n", text, diag.what);
    return status;
}

static void test_refused(void) {
    rig r = open_model("llama", 1), draft = open_model("qwen2", 1);
    int64_t prompt[8];
    fill_ids(prompt, 8, 1);
    gqac_session *s = open_session(&r, NULL, 0), *other = open_session(&r, NULL, 0);
    gqac_session *own = open_session(&draft, NULL, 0), *off = open_session(&draft, "off", 0);
    gqac_generate_request q[2] = {make_request(s, prompt, 8, 4), make_request(other, prompt, 8, 4)};
    q[0].speculate = -1;
    CU_ASSERT_EQUAL(try_request(&r, 1, q, "speculate is -1"), GQAC_OUT_OF_RANGE);
    q[0].speculate = 0;
    q[0].draft = own;
    q[0].draft_context = draft.context;
    CU_ASSERT_EQUAL(try_request(&r, 1, q, "speculate is 0"), GQAC_USAGE);
    q[0].speculate = 3;
    q[0].draft_context = NULL;
    CU_ASSERT_EQUAL(try_request(&r, 1, q, "no context"), GQAC_USAGE);
    q[0].draft_context = draft.context;
    q[0].draft = off;
    CU_ASSERT_EQUAL(try_request(&r, 1, q, "off"), GQAC_USAGE);
    q[0].draft = s;
    CU_ASSERT_EQUAL(try_request(&r, 1, q, "that of the answer"), GQAC_USAGE);
    q[0].draft = other;
    CU_ASSERT_EQUAL(try_request(&r, 2, q, "used twice"), GQAC_USAGE);
    q[0].draft = own;
    q[1].speculate = 2;
    q[1].draft = own;
    q[1].draft_context = draft.context;
    CU_ASSERT_EQUAL(try_request(&r, 2, q, "used twice"), GQAC_USAGE);
    CU_ASSERT_PTR_NULL(gqac_session_no_drafts(s));
    gqac_session_free(s);
    s = open_session(&r, "off", 0);
    CU_ASSERT_PTR_NOT_NULL(gqac_session_no_drafts(s));
    q[0] = make_request(s, prompt, 8, 4); /* continues without drafts */
    q[0].speculate = 3;
    gqac_generation *g = generate(&r, q);
    CU_ASSERT(g->n_ids == 4 && !g->metrics.drafted_tokens);
    gqac_generation_free(g);
    gqac_session_free(s);
    gqac_session_free(other);
    gqac_session_free(own);
    gqac_session_free(off);
    close_rig(&draft);
    close_rig(&r);
}

/* Every allocation fails once: the session contains only rows of the answer, and continues. */
static void test_memory(void) {
    static const char *const names[] = {"llama", "qwen3.5"};
    const size_t live = gqac_alloc_live();
    for (int m = 0; m < 2; m++) {
        rig r = open_model(names[m], 1), draft = open_model("llama", 1);
        int64_t prompt[30];
        float by = 14;
        size_t failures = 0;
        bool failing = true;
        fill_ids(prompt, 30, 8);
        gqac_session *session = open_session(&r, NULL, 0), *own = NULL;
        gqac_generate_request q = make_request(session, prompt, 30, 20);
        q.on_logits = lean;
        q.logits_arg = &by;
        gqac_generation *expected = generate(&r, &q), *g = NULL;
        for (size_t at = 1; failing && at < 10000; at++) {
            gqac_session_free(session);
            gqac_session_free(own);
            q.session = session = open_session(&r, NULL, 0);
            q.draft = own = open_session(&draft, NULL, 0);
            q.draft_context = draft.context;
            q.speculate = 4;
            gqac_alloc_fail_at(at, 0);
            gqac_status status = gqac_generate(r.context, NULL, 1, &q, &g, &diag);
            failing = gqac_alloc_calls() >= at;
            gqac_alloc_fail_at(0, 0);
            failures += status == GQAC_NO_MEMORY;
            CU_ASSERT_FATAL(status == GQAC_OK || (failing && status == GQAC_NO_MEMORY && !g));
            if (status != GQAC_OK)
                g = generate(&r, &q);
            CU_ASSERT(same_ids(g, expected));
            gqac_generation_free(g);
        }
        CU_ASSERT(failures > 20 && !failing);
        gqac_generation_free(expected);
        gqac_session_free(session);
        gqac_session_free(own);
        close_rig(&draft);
        close_rig(&r);
    }
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
}

static const unit_case cases[] = {
    {"no memory for drafts", test_budget},
    {"what is refused, and what goes on without drafts", test_refused},
    {"every allocation fails once", test_memory},
};

int main(int argc, char **argv) {
    return unit_run("speculation_fails", cases, sizeof cases / sizeof *cases, argc, argv);
}
