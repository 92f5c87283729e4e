/* The runner: which passes run and in which order, what a request may contain, and that it detects
 * passes that do not do what their rows declare. */
#include "support_passes.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static const char *const layer =
    "graph @layer(%x: f32[B,S,64], %len: i32[B], %total: i32[], %past_key_values.0.key: "
    "f32[B,2,P,8], %past_key_values.0.value: f32[B,2,P,8], %input_ids: i64[B,S]) {\n"
    "  const %w: f32[64,64] = sha256 0123456789abcdef\n"
    "  %i = Identity %x : ?\n"
    "  %q = MatMul %i, %w : ?\n"
    "  %y, %k, %v = com.microsoft.GroupQueryAttention %q, _, _, %past_key_values.0.key, "
    "%past_key_values.0.value, %len, %total {num_heads=4, kv_num_heads=2} : ?, ?, ?\n"
    "  return %y, %k as \"present.0.key\", %v as \"present.0.value\"\n}\n";

typedef struct trace {
    gqac_str names;
    double seconds;
} trace;

static void note(void *arg, const char *pass, const ir_module *module, double seconds) {
    trace *t = arg;
    gqac_str_printf(&t->names, "%s%s", t->names.length ? " " : "", pass);
    t->seconds += seconds;
    CU_ASSERT(ir_verify(module, NULL) == GQAC_OK);
}

/* Runs the pipeline on a text; `names` receives the names of the passes. */
static gqac_status run_request(fixture *f, const char *text, pass_request request, trace *t) {
    memset(t, 0, sizeof *t);
    if (!fixture_open(f, text))
        return GQAC_INTERNAL;
    request.after = note;
    request.arg = t;
    return gqac_pipeline_run(&f->context, &request);
}

static void finish(fixture *f, trace *t) {
    gqac_str_free(&t->names);
    fixture_close(f);
}

static void test_sequence(void) {
    fixture f;
    trace t;
    CU_ASSERT(run_request(&f, layer, (pass_request){0}, &t) == GQAC_OK);
    CU_ASSERT_STRING_EQUAL(t.names.text,
                           "import infer fold simplify tidy raise pack lower tidy claim expand "
                           "tidy claim expand order plan");
    CU_ASSERT(t.seconds >= 0);
    CU_ASSERT(f.context.facts == (PASS_TYPED | PASS_RAISED | PASS_LOWERED | PASS_CLAIMED |
                                  PASS_ORDERED | PASS_PLANNED));
    finish(&f, &t);
}

static void test_stop(void) {
    static const struct {
        const char *stop, *names;
    } rows[] = {{"infer", "import infer"},
                {"simplify", "import infer fold simplify"},
                {"tidy", "import infer fold simplify tidy"},
                {"lower", "import infer fold simplify tidy raise pack lower"},
                {"claim", "import infer fold simplify tidy raise pack lower tidy claim"},
                {"expand", "import infer fold simplify tidy raise pack lower tidy claim expand"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        fixture f;
        trace t;
        CU_ASSERT(run_request(&f, layer, (pass_request){.stop_after = rows[i].stop}, &t) ==
                  GQAC_OK);
        CU_ASSERT_STRING_EQUAL(t.names.text, rows[i].names);
        finish(&f, &t);
    }
}

/* Requests that cannot be met fail before any pass, with the name of the pass. */
static void test_usage(void) {
    const struct {
        pass_request request;
        const char *what, *rule;
    } rows[] = {
        {{.stop_after = "tydi"},
         "there is no pass 'tydi'",
         "infer fold simplify tidy defaults raise pack unpad lower"},
        {{.disable = (const char *const[]){"fold", "shake", NULL}},
         "'shake'",
         "passes: import infer"},
        {{.stop_after = "stateful"}, "'stateful': it does not run", ""},
        {{.stop_after = "fold", .disable = (const char *const[]){"fold", NULL}}, "'fold'", ""},
        {{.disable = (const char *const[]){"lower", NULL}}, "'lower' cannot", "'claim' needs"},
        {{.disable = (const char *const[]){"claim", NULL}}, "'claim' cannot", "'order' needs"},
        {{.disable = (const char *const[]){"order", NULL}}, "'order' cannot", "'plan' needs"},
        {{.disable = (const char *const[]){"infer", NULL}}, "'infer' cannot", "'fold' needs"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        fixture f;
        trace t;
        CU_ASSERT(run_request(&f, layer, rows[i].request, &t) == GQAC_USAGE);
        CU_ASSERT(strstr(f.diag.what, rows[i].what) != NULL);
        CU_ASSERT(strstr(f.diag.rule, rows[i].rule) != NULL);
        CU_ASSERT(t.names.length == 0);
        finish(&f, &t);
    }
}

static void test_disable(void) {
    fixture f;
    trace t;
    /* A pass that no later one needs can be omitted; tidy then omits its part too. */
    CU_ASSERT(run_request(&f, layer,
                          (pass_request){.disable = (const char *const[]){"simplify", NULL},
                                         .stop_after = "lower"},
                          &t) == GQAC_OK);
    CU_ASSERT_STRING_EQUAL(t.names.text, "import infer fold tidy raise pack lower");
    char *text = fixture_text(&f);
    CU_ASSERT(text && strstr(text, "Identity") != NULL);
    gqac_free(text);
    finish(&f, &t);
    /* A pass that is not reached is not required. */
    CU_ASSERT(run_request(&f, layer,
                          (pass_request){.disable = (const char *const[]){"lower", NULL},
                                         .stop_after = "tidy"},
                          &t) == GQAC_OK);
    finish(&f, &t);
    /* Without expand, nodes remain for which there is no kernel: reported when the next pass needs
     * them. */
    CU_ASSERT(run_request(&f, layer,
                          (pass_request){.disable = (const char *const[]){"expand", NULL}},
                          &t) == GQAC_USAGE);
    CU_ASSERT(strstr(f.diag.what, "'order' needs the graph claimed") != NULL);
    finish(&f, &t);
}

static void test_failure(void) {
    fixture f;
    trace t;
    const char *bad = "graph @g(%x: f32[3], %y: f32[4]) {\n  %z = Add %x, %y : ? loc(\"/add\")\n"
                      "  return %z\n}\n";
    CU_ASSERT(run_request(&f, bad, (pass_request){0}, &t) == GQAC_INVALID_MODEL);
    CU_ASSERT_STRING_EQUAL(f.diag.where, "pass infer, node '/add' (Add)");
    CU_ASSERT_STRING_EQUAL(t.names.text, "import");
    finish(&f, &t);
}

/* Facts of a graph that was not imported: it is already lowered, so it cannot be exported. */
static void test_facts(void) {
    fixture f;
    trace t;
    const char *own = "graph @g(%x: f32[B,S,8]) {\n  %z = split_heads %x {q=2} : ?\n"
                      "  return %z\n}\n";
    CU_ASSERT(run_request(&f, own, (pass_request){.stop_after = "tidy"}, &t) == GQAC_OK);
    CU_ASSERT(f.context.facts == PASS_TYPED);
    finish(&f, &t);
    CU_ASSERT(run_request(&f, layer, (pass_request){.stop_after = "tidy"}, &t) == GQAC_OK);
    CU_ASSERT(f.context.facts == (PASS_TYPED | PASS_ONNX));
    finish(&f, &t);
    CU_ASSERT(run_request(&f, layer, (pass_request){.stop_after = "lower"}, &t) == GQAC_OK);
    CU_ASSERT(f.context.facts == (PASS_TYPED | PASS_RAISED | PASS_LOWERED));
    finish(&f, &t);
}

/* ---- passes that do not do what they declare ----------------------------- */

static gqac_status change(pass_context *context) {
    context->changed++;
    return GQAC_OK;
}

static gqac_status damage(pass_context *context) {
    context->module->graph->first->n_inputs--;
    return GQAC_OK;
}

static gqac_status run_list(const gqac_pass *const *passes, gqac_diag *diag) {
    fixture f;
    CU_ASSERT(fixture_open(&f, layer));
    gqac_status status = pass_run_list(&f.context, &(pass_request){0}, passes);
    *diag = f.diag;
    fixture_close(&f);
    return status;
}

static void test_broken_words(void) {
    gqac_diag diag;
    const gqac_pass greedy = {.name = "greedy", .needs = PASS_PLANNED, .run = change};
    CU_ASSERT(run_list((const gqac_pass *const[]){&greedy, NULL}, &diag) == GQAC_INTERNAL);
    CU_ASSERT(strstr(diag.what, "'greedy' needs the graph planned") != NULL);
    /* It declares that the graph is lowered, but the graph is not. */
    const gqac_pass liar = {.name = "liar", .provides = PASS_LOWERED, .run = change};
    const gqac_pass trusting = {.name = "trusting", .needs = PASS_LOWERED, .run = change};
    CU_ASSERT(run_list((const gqac_pass *const[]){&liar, &trusting, NULL}, &diag) == GQAC_INTERNAL);
    CU_ASSERT_STRING_EQUAL(diag.where, "pass trusting");
    /* A fact that a pass breaks does not hold after it. */
    const gqac_pass breaker = {.name = "breaker", .breaks = PASS_TYPED, .run = change};
    CU_ASSERT(run_list((const gqac_pass *const[]){&pass_infer, &breaker, &pass_fold, NULL},
                       &diag) == GQAC_INTERNAL);
    CU_ASSERT(strstr(diag.what, "'fold' needs the graph typed") != NULL);
    const gqac_pass vandal = {.name = "vandal", .run = damage};
    CU_ASSERT(run_list((const gqac_pass *const[]){&vandal, NULL}, &diag) == GQAC_INTERNAL);
    CU_ASSERT(strstr(diag.where, "pass vandal") == diag.where);
    gqac_pass restless = {.name = "restless", .run = change};
    restless.again = &restless;
    CU_ASSERT(run_list((const gqac_pass *const[]){&restless, NULL}, &diag) == GQAC_INTERNAL);
    CU_ASSERT(strstr(diag.what, "does not terminate") != NULL);
}

/* ---- questions ----------------------------------------------------------- */

static void test_kv_pairs(void) {
    static const char *const stops[] = {"infer", "tidy", "lower"};
    for (size_t i = 0; i < COUNT(stops); i++) {
        fixture f;
        trace t;
        kv_slot *slots = NULL;
        int n = 0;
        CU_ASSERT(run_request(&f, layer, (pass_request){.stop_after = stops[i]}, &t) == GQAC_OK);
        CU_ASSERT(pass_find_kv_pairs(f.module, f.arena, &slots, &n) == GQAC_OK);
        CU_ASSERT(n == 2);
        if (n == 2) {
            CU_ASSERT_STRING_EQUAL(slots[0].past, "past_key_values.0.key");
            CU_ASSERT_STRING_EQUAL(slots[0].present, "present.0.key");
            CU_ASSERT_STRING_EQUAL(slots[1].present, "present.0.value");
            CU_ASSERT(slots[1].heads == 2 && slots[1].head_size == 8);
            CU_ASSERT(slots[1].dtype == GQAC_F32);
        }
        finish(&f, &t);
    }
}

static int count_mixing(const char *text, const char *stop, const char **op) {
    fixture f;
    trace t;
    const ir_node **nodes = NULL;
    int n = -1;
    CU_ASSERT(run_request(&f, text, (pass_request){.stop_after = stop}, &t) == GQAC_OK);
    CU_ASSERT(pass_check_invariance(f.module, f.arena, &nodes, &n) == GQAC_OK);
    *op = n > 0 ? nodes[0]->op->name : "";
    finish(&f, &t);
    return n;
}

static void test_invariance(void) {
    const char *op;
    /* Attention with a cache is split-safe, and so is the arithmetic on its lengths. */
    static const char *const masked =
        "graph @g(%x: f32[B,S,64], %mask: i64[B,T], %pk: f32[B,2,P,8], %pv: f32[B,2,P,8]) {\n"
        "  const %axis: i64[1] = [1]\n  const %one: i64[] = 1\n"
        "  %sum = ReduceSum %mask, %axis {keepdims=0} : ?\n"
        "  %last = Sub %sum, %one : ?\n  %len = Cast %last {to=i32} : ?\n"
        "  %sh = Shape %mask : ?\n  %t = Gather %sh, %one : ?\n  %tot = Cast %t {to=i32} : ?\n"
        "  %y, %k, %v = com.microsoft.GroupQueryAttention %x, _, _, %pk, %pv, %len, %tot "
        "{num_heads=4, kv_num_heads=2} : ?, ?, ?\n"
        "  return %y, %k as \"present.key\", %v as \"present.value\"\n}\n";
    CU_ASSERT(count_mixing(masked, "tidy", &op) == 0);
    CU_ASSERT(count_mixing(masked, "lower", &op) == 0);
    CU_ASSERT(count_mixing(masked, NULL, &op) == 0);
    /* A maximum over the tokens of a call is not split-safe; one over channels is, and one of a
     * constant is. A maximum on which no result depends does not count. */
    CU_ASSERT(count_mixing("graph @g(%x: f32[B,S,64]) {\n  const %a: i64[1] = [1]\n"
                           "  const %c: f32[2,2] = [1.0,2.0,3.0,4.0]\n"
                           "  %m = ReduceMax %x, %a : ?\n  %y = Sub %x, %m : ?\n"
                           "  return %y\n}\n",
                           "tidy", &op) == 1);
    CU_ASSERT_STRING_EQUAL(op, "ReduceMax");
    CU_ASSERT(count_mixing("graph @g(%x: f32[B,S,64]) {\n  const %a: i64[1] = [2]\n"
                           "  %m = ReduceMax %x, %a : ?\n  %y = Sub %x, %m : ?\n"
                           "  return %y\n}\n",
                           "tidy", &op) == 0);
    CU_ASSERT(count_mixing("graph @g(%x: f32[B,S,64], %c: bool[]) {\n  const %a: i64[1] = [1]\n"
                           "  %y = If %c {then_branch=graph @t() {\n"
                           "    %m = ReduceMax %x, %a : ?\n    return %m\n  }, "
                           "else_branch=graph @e() {\n    return %x\n  }} : ?\n"
                           "  return %y\n}\n",
                           "tidy", &op) == 1);
}

/* ---- size ---------------------------------------------------------------- */

/* Long chains of all patterns that rules search for, one value with very many users, and many equal
 * nodes: all passes take nearly linear time. */
static void test_large(void) {
    static const char *const steps[] = {
        "  %%a%d = Reshape %%a%d, %%to : ?\n",   "  %%a%d = Transpose %%a%d {perm=[1,0]} : ?\n",
        "  %%a%d = Identity %%a%d : ?\n",        "  %%a%d = Add %%a%d, %%x : ?\n",
        "  %%a%d = Cast %%a%d {to=f32} : ?\n",   "  %%a%d = Unsqueeze %%a%d, %%zero : ?\n",
        "  %%a%d = Squeeze %%a%d, %%zero : ?\n",
    };
    const int n = unit_full() ? 1000000 : 20000;
    gqac_str text = {0};
    fixture f;
    gqac_str_append(&text, "graph @large(%x: f32[S,S]) {\n  const %to: i64[2] = [0,-1]\n"
                           "  const %zero: i64[1] = [0]\n  %a0 = Exp %x : ?\n");
    for (int i = 0; i < n; i++)
        gqac_str_printf(&text, steps[(size_t)i % COUNT(steps)], i + 1, i);
    for (int i = 0; i < n; i++)
        gqac_str_printf(&text, "  %%b%d = Neg %%x : ?\n", i);
    gqac_str_printf(&text, "  %%s = Add %%b%d, %%a%d : ?\n  return %%s\n}\n", n - 1, n);
    CU_ASSERT(!text.failed && fixture_open(&f, text.text));
    CU_ASSERT(gqac_pipeline_run(&f.context, &(pass_request){0}) == GQAC_OK);
    CU_ASSERT(f.context.facts & PASS_PLANNED);
    gqac_str_free(&text);
    fixture_close(&f);
}

/* The work that folding may do in a compilation (passes/fold.c), in estimated ns. */
static const int64_t fold_work = INT64_C(2000000000);

/* Folding ends when its work limit is reached, and the rest of the model is unchanged. Work is
 * estimated, so the number of folded nodes is the same everywhere. */
static void test_fold_work(void) {
    enum { NODES = 200 };
    gqac_str text = {0};
    fixture f;
    gqac_str_append(&text, "graph @g(%x: f32[64]) {\n  const %a0: f32[64] = [1");
    for (int i = 1; i < 64; i++)
        gqac_str_append(&text, ", 1");
    gqac_str_append(&text, "]\n");
    for (int i = 0; i < NODES; i++)
        gqac_str_printf(&text, "  %%a%d = Exp %%a%d : ?\n", i + 1, i);
    gqac_str_printf(&text, "  %%y = Add %%x, %%a%d : ?\n  return %%y\n}\n", NODES);
    int64_t work = 0;
    for (int some = 0; some < 2; some++) { /* all of it; half */
        int left = 0;
        CU_ASSERT_FATAL(!text.failed && fixture_open(&f, text.text));
        f.context.folded = some ? fold_work - work / 2 : 0;
        CU_ASSERT(gqac_pipeline_run(&f.context, &(pass_request){.stop_after = "tidy"}) == GQAC_OK);
        for (const ir_node *n = f.context.module->graph->first; n; n = n->next)
            left += op_is(n, "", "Exp");
        CU_ASSERT(f.context.folded <= fold_work);
        CU_ASSERT(some ? left > NODES / 3 && left < NODES : left == 0);
        work = f.context.folded;
        fixture_close(&f);
    }
    gqac_str_free(&text);
}

/* A chain of Sums of constants, each with the previous Sum as all of its 64 operands: there are
 * 64^12 paths from its end to its beginning. No pass follows them all, even if nothing is
 * folded. */
static void test_many_ways(void) {
    gqac_str text = {0};
    fixture f;
    gqac_str_append(
        &text, "graph @g(%input_ids: i64[B,S], %attention_mask: i64[B,T], %past_key_values.0.key: "
               "f32[B,2,P,8], %past_key_values.0.value: f32[B,2,P,8]) {\n"
               "  const %one: i64[] = 1\n  const %axis: i64[1] = [1]\n"
               "  const %embed: f32[100,64] = sha256 0123456789abcdef\n"
               "  const %head: f32[32,100] = sha256 1123456789abcdef\n"
               "  const %s0: f32[100] = sha256 2123456789abcdef\n"
               "  %sum = ReduceSum %attention_mask, %axis {keepdims=0} : ?\n"
               "  %last = Sub %sum, %one : ?\n  %len = Cast %last {to=i32} : ?\n"
               "  %shape = Shape %attention_mask : ?\n  %t = Gather %shape, %one : ?\n"
               "  %total = Cast %t {to=i32} : ?\n  %x = Gather %embed, %input_ids : ?\n"
               "  %y, %k, %v = com.microsoft.GroupQueryAttention %x, _, _, %past_key_values.0.key, "
               "%past_key_values.0.value, %len, %total {num_heads=4, kv_num_heads=2} : ?, ?, ?\n"
               "  %h = MatMul %y, %head : ?\n");
    for (int i = 0; i < 12; i++) {
        gqac_str_printf(&text, "  %%s%d = Sum %%s%d", i + 1, i);
        for (int k = 1; k < 64; k++)
            gqac_str_printf(&text, ", %%s%d", i);
        gqac_str_append(&text, " : ?\n");
    }
    gqac_str_append(&text, "  %logits = Add %h, %s12 : ?\n  return %logits as \"logits\", %k as "
                           "\"present.0.key\", %v as \"present.0.value\"\n}\n");
    CU_ASSERT_FATAL(!text.failed && fixture_open(&f, text.text));
    f.context.folded = fold_work;
    CU_ASSERT(gqac_pipeline_run(&f.context, &(pass_request){.stateful = true}) == GQAC_OK);
    CU_ASSERT(f.context.facts & PASS_PLANNED);
    gqac_str_free(&text);
    fixture_close(&f);
}

#ifdef GQAC_TEST_ALLOC
/* A failing allocation is a status like any other, wherever it happens. */
static void test_no_memory(void) {
    gqac_status status = GQAC_NO_MEMORY;
    for (size_t n = 1; status != GQAC_OK; n += 1 + n / 64) {
        gqac_alloc_fail_at(n, 1);
        fixture f;
        status = GQAC_NO_MEMORY;
        if (fixture_open(&f, layer))
            status = gqac_pipeline_run(&f.context, &(pass_request){.stateful = n % 2 == 0});
        fixture_close(&f);
        CU_ASSERT(status == GQAC_OK || status == GQAC_NO_MEMORY || status == GQAC_UNSUPPORTED);
        if (gqac_alloc_calls() >= n)
            CU_ASSERT(status != GQAC_OK);
    }
    gqac_alloc_fail_at(0, 0);
}
#endif

static const unit_case cases[] = {
    {"sequence", test_sequence},
    {"stop", test_stop},
    {"usage", test_usage},
    {"disable", test_disable},
    {"failure", test_failure},
    {"facts", test_facts},
    {"broken words", test_broken_words},
    {"kv pairs", test_kv_pairs},
    {"invariance", test_invariance},
    {"large", test_large},
    {"folding has a maximum of work", test_fold_work},
    {"many ways between two nodes", test_many_ways},
#ifdef GQAC_TEST_ALLOC
    {"no memory", test_no_memory},
#endif
};

int main(int argc, char **argv) {
    return unit_run("runner", cases, COUNT(cases), argc, argv);
}
