/* Sequence state of the attention family (stateful_family.c, stateful_masks.c): failing allocations
 * and unusual graphs. Normal graphs are tested in test/golden and
 * test/python/test_family_sequences.py. */
#include "support_passes.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

/* One layer; `%s` computes the mask %m. */
static const char layer[] =
    "graph @layer(%%input_ids: i64[B,S], %%attention_mask: i64[B,T], %%past.0.key: f32[B,2,P,4], "
    "%%past.0.value: f32[B,2,P,4]) {\n"
    "  const %%axes: i64[2] = [1,2]\n"
    "  const %%low: f32[] = -10000\n"
    "  const %%f1: f32[] = 1\n"
    "  const %%f2: f32[2] = [1, 1]\n"
    "  const %%zero: i64[] = 0\n"
    "  const %%table: f32[9,8] = sha256 0023456789abcdef\n"
    "  %%x = Gather %%table, %%input_ids : f32[B,S,8]\n"
    "  %%h = split_heads %%x {q=2} : f32[B,2,S,4]\n"
    "  %%k = Concat %%past.0.key, %%h {axis=2} : f32[B,2,P+S,4]\n"
    "  %%v = Concat %%past.0.value, %%h {axis=2} : f32[B,2,P+S,4]\n"
    "%s"
    "  %%lo, %%hi = key_range %%h, %%k, %s {right=0} : i32[B,S], i32[B,S]\n"
    "  %%y = attend %%h, %%k, %%v, %%lo, %%hi, %%m {scale=0.5} : f32[B,S,8]\n"
    "  return %%y as \"logits\", %%k as \"present.0.key\", %%v as \"present.0.value\"\n}\n";

#define MASK_OF_FLOATS                                                                             \
    "  %c = Cast %attention_mask {to=f32} : f32[B,T]\n"                                            \
    "  %u = Unsqueeze %c, %axes : f32[B,1,1,T]\n"                                                  \
    "  %s = Sub %f1, %u : f32[B,1,1,T]\n"

static void build(char *text, size_t size, const char *mask, const char *past) {
    snprintf(text, size, layer, mask, past);
}

static gqac_status run_layer(const char *mask, const char *past, gqac_diag *diag) {
    char text[8192];
    fixture f;
    gqac_status status = GQAC_NO_MEMORY;
    build(text, sizeof text, mask, past);
    if (fixture_open(&f, text))
        status = fixture_typed_run(&f, &pass_stateful);
    if (status == GQAC_OK && ir_dims_failed(f.module->dims)) /* as the runner does */
        status = GQAC_NO_MEMORY;
    *diag = f.diag;
    fixture_close(&f);
    return status;
}

static void test_masks(void) {
    static const struct {
        const char *mask, *past;
        gqac_status status;
    } cases[] = {
        {MASK_OF_FLOATS "  %m = Mul %s, %low : f32[B,1,1,T]\n", "%past.0.key", GQAC_OK},
        {"  %c = Cast %attention_mask {to=bool} : bool[B,T]\n"
         "  %m = Unsqueeze %c, %axes : bool[B,1,1,T]\n",
         "%past.0.key", GQAC_OK},
        {"  %c = Equal %attention_mask, %zero : bool[B,T]\n" /* the operands exchanged */
         "  %m = Unsqueeze %c, %axes : bool[B,1,1,T]\n",
         "%past.0.key", GQAC_UNSUPPORTED},
        {MASK_OF_FLOATS "  %m = Add %s, %low : f32[B,1,1,T]\n", "%past.0.key", GQAC_UNSUPPORTED},
        {MASK_OF_FLOATS "  %m = Mul %s, %f2 : f32[B,1,1,T]\n", "%past.0.key", GQAC_UNSUPPORTED},
        {MASK_OF_FLOATS "  %d = CumSum %s, %zero : f32[B,1,1,T]\n"
                        "  %m = Mul %d, %low : f32[B,1,1,T]\n",
         "%past.0.key", GQAC_UNSUPPORTED},
        {MASK_OF_FLOATS "  %d = Cast %input_ids {to=f32} : f32[B,S]\n"
                        "  %e = Unsqueeze %d, %axes : f32[B,1,1,S]\n"
                        "  %m = Mul %s, %e : f32[B,1,1,T]\n",
         "%past.0.key", GQAC_UNSUPPORTED},
        {"  %m = Cast %attention_mask {to=bool} : bool[B,T]\n", "%past.0.key", GQAC_UNSUPPORTED},
        {MASK_OF_FLOATS "  %m = Mul %s, %low : f32[B,1,1,T]\n", "%past.0.value", GQAC_UNSUPPORTED},
        {MASK_OF_FLOATS "  %m = Mul %s, %low : f32[B,1,1,T]\n", "_", GQAC_UNSUPPORTED},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        gqac_diag diag = {0};
        gqac_status status = run_layer(cases[i].mask, cases[i].past, &diag);
        if (status != cases[i].status)
            printf("case %zu: %s %s\n", i, gqac_status_name(status), diag.what);
        CU_ASSERT_EQUAL(status, cases[i].status);
        CU_ASSERT(status == GQAC_OK || (*diag.what && *diag.where));
    }
}

/* A mask of more nodes than any model has is refused; it is not followed for ever. */
static void test_long_chain(void) {
    char mask[6000] = "  %a0 = Cast %attention_mask {to=f32} : f32[B,T]\n";
    gqac_diag diag = {0};
    for (int n = 60; n <= 70; n += 10) {
        size_t at = strlen("  %a0 = Cast %attention_mask {to=f32} : f32[B,T]\n");
        for (int i = 1; i <= n; i++)
            at += (size_t)snprintf(mask + at, sizeof mask - at, "  %%a%d = Neg %%a%d : f32[B,T]\n",
                                   i, i - 1);
        snprintf(mask + at, sizeof mask - at,
                 "  %%s = Sub %%f1, %%a%d : f32[B,T]\n  %%m = Unsqueeze %%s, %%axes : "
                 "f32[B,1,1,T]\n",
                 n);
        CU_ASSERT_EQUAL(run_layer(mask, "%past.0.key", &diag),
                        n == 60 ? GQAC_OK : GQAC_UNSUPPORTED);
    }
}

/* After all passes both appends still exist, kept only by their tokens, and the nodes that read the
 * rows come after them (M15, M16, M17 of docs/capability-rows.md). Nothing else uses the
 * presents. */
static void test_appends_stay(void) {
    char text[8192];
    fixture f;
    int appends = 0, readers = 0, tokens = 0;
    build(text, sizeof text, MASK_OF_FLOATS "  %m = Mul %s, %low : f32[B,1,1,T]\n", "%past.0.key");
    CU_ASSERT_FATAL(fixture_open(&f, text));
    CU_ASSERT_EQUAL_FATAL(gqac_pipeline_run(&f.context, &(pass_request){.stateful = true}),
                          GQAC_OK);
    for (const ir_node *node = f.module->graph->first; node; node = node->next) {
        appends += op_is(node, "gqac", "kv_append");
        if (op_is(node, "gqac", "attention_scores") || op_is(node, "gqac", "weigh")) {
            CU_ASSERT_EQUAL(appends, readers + 1); /* first of keys, then of values */
            CU_ASSERT(op_is(node->inputs[1].value->def, "gqac", "kv_append"));
            readers++;
        }
    }
    const ir_node *ret = f.module->graph->ret;
    for (int i = 0; i < ret->n_inputs; i++)
        tokens += ret->inputs[i].value->type.dtype == GQAC_TOKEN;
    CU_ASSERT_EQUAL(appends, 2);
    CU_ASSERT_EQUAL(readers, 2);
    CU_ASSERT_EQUAL(tokens, 2);
    fixture_close(&f);
}

static void test_no_memory(void) {
    gqac_status status = GQAC_NO_MEMORY;
    const size_t live = gqac_alloc_live();
    size_t n = 0;
    for (int persist = 0; persist < 2; persist++) {
        status = GQAC_NO_MEMORY;
        for (n = 1; status != GQAC_OK && n < 100000; n++) {
            gqac_diag diag = {0};
            gqac_alloc_fail_at(n, persist);
            status = run_layer(MASK_OF_FLOATS "  %m = Mul %s, %low : f32[B,1,1,T]\n", "%past.0.key",
                               &diag);
            const size_t calls = gqac_alloc_calls();
            gqac_alloc_fail_at(0, 0);
            if (status != (calls >= n ? GQAC_NO_MEMORY : GQAC_OK))
                printf("n = %zu of %zu: %s '%s'\n", n, calls, gqac_status_name(status), diag.what);
            CU_ASSERT_EQUAL(status, calls >= n ? GQAC_NO_MEMORY : GQAC_OK);
            CU_ASSERT_EQUAL(gqac_alloc_live(), live);
        }
        CU_ASSERT(n > 50);
    }
    printf("  %zu allocations failed one by one\n", n - 2);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"masks", test_masks},
        {"a long chain", test_long_chain},
        {"M15 M16 M17 appends stay", test_appends_stay},
        {"no memory", test_no_memory},
    };
    return unit_run("family", cases, COUNT(cases), argc, argv);
}
