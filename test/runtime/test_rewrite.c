/* Rewrites in which the n-th allocation fails, for every n: a status each time, no leaks, no file
 * left. */
#include "unit.h"

#include <gqac/gqac.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

/* A decoder of one layer with attention to the states of an encoder; %s: the number of tokens. */
static const char text[] =
    "graph @m(%%input_ids: i64[1,%s], %%states: f32[1,L,4]) {\n"
    "  const %%embed: f32[4,4] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, "
    "13.0, 14.0, 15.0, 16.0]\n"
    "  const %%flat: i64[2] = [1, 4]\n"
    "  const %%full: i64[3] = [1, -1, 4]\n"
    "  %%x = Gather %%embed, %%input_ids : f32[1,%s,4]\n"
    "  %%k = MatMul %%x, %%embed : f32[1,%s,4]\n"
    "  %%y = com.microsoft.MultiHeadAttention %%x, %%k, %%x {num_heads=2, unidirectional=1} : "
    "f32[1,%s,4]\n"
    "  %%s = MatMul %%states, %%embed : f32[1,L,4]\n"
    "  %%z = com.microsoft.MultiHeadAttention %%y, %%s, %%states {num_heads=2} : f32[1,%s,4]\n"
    "  %%f = Reshape %%z, %%%s : f32[%s4]\n"
    "  %%g = MatMul %%f, %%embed : f32[%s4]\n"
    "  %%h = Reshape %%g, %%full : f32[1,%s,4]\n"
    "  return %%h as \"logits\"\n}\n";

typedef struct rig {
    char model[64], out[64], parts[2][80];
} rig;

static void open_rig(rig *r, const char *tokens) {
    snprintf(r->model, sizeof r->model, "/tmp/gqac-rewrite-%d.gq", (int)getpid());
    snprintf(r->out, sizeof r->out, "/tmp/gqac-rewrite-%d.onnx", (int)getpid());
    for (int i = 0; i < 2; i++)
        snprintf(r->parts[i], sizeof r->parts[i], "/tmp/gqac-rewrite-%d.%s.onnx", (int)getpid(),
                 i ? "decode" : "prefill");
    FILE *f = fopen(r->model, "we");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    const bool one = *tokens == '1';
    const char *rows = one ? "1," : "1,S,";
    fprintf(f, text, tokens, tokens, tokens, tokens, tokens, one ? "flat" : "full", rows, rows,
            tokens);
    fclose(f);
}

static bool is_there(const rig *r) {
    return access(r->out, F_OK) == 0 || access(r->parts[0], F_OK) == 0 ||
           access(r->parts[1], F_OK) == 0;
}

static void clear(const rig *r) {
    unlink(r->out);
    unlink(r->parts[0]);
    unlink(r->parts[1]);
}

static gqac_status rewrite(const char *model, const rig *r, const char *name, int64_t *changes,
                           gqac_diag *diag) {
    gqac_options options;
    gqac_rewritten *done = NULL;
    gqac_options_init(&options);
    const gqac_status status = gqac_rewrite(model, name, &options, r->out, &done, diag);
    if (status == GQAC_OK)
        *changes = done->changes;
    gqac_release(done);
    return status;
}

static void fail_each(const char *model, rig *r, const char *name, int64_t changes) {
    gqac_diag diag;
    int64_t done = 0;
    const size_t live = gqac_alloc_live();
    gqac_alloc_fail_at(0, 0);
    const gqac_status first = rewrite(model, r, name, &done, &diag);
    if (first != GQAC_OK)
        printf("%s: %s %s\n", name, diag.what, diag.where);
    CU_ASSERT_EQUAL_FATAL(first, GQAC_OK);
    CU_ASSERT_EQUAL(done, changes);
    const size_t calls = gqac_alloc_calls();
    CU_ASSERT(is_there(r));
    for (size_t n = 1; n <= calls; n++) {
        clear(r);
        memset(&diag, 0, sizeof diag);
        gqac_alloc_fail_at(n, 0);
        const gqac_status status = rewrite(model, r, name, &done, &diag);
        gqac_alloc_fail_at(0, 0);
        /* of two files, the first may exist without the second */
        const bool left = is_there(r) && access(r->parts[1], F_OK) == 0;
        if (status != GQAC_NO_MEMORY || !*diag.what || gqac_alloc_live() != live || left) {
            printf("%s, n = %zu of %zu: %s '%s', %zu live\n", name, n, calls,
                   gqac_status_name(status), diag.what, gqac_alloc_live() - live);
            CU_FAIL("the failure of an allocation is not reported cleanly");
            break;
        }
    }
    clear(r);
}

static void test_caches(void) {
    rig r;
    open_rig(&r, "S");
    fail_each(r.model, &r, "insert-kv", 2);
    fail_each(r.model, &r, "static-cross-cache", 1);
    unlink(r.model);
}

static void test_tokens(void) {
    rig r;
    open_rig(&r, "1");
    fail_each(r.model, &r, "dynamic-seq", 2);
    unlink(r.model);
}

static void test_two(void) {
    rig r;
    open_rig(&r, "S");
    fail_each(unit_path("test/models/qwen3/model.onnx"), &r, "two-graph", 4);
    unlink(r.model);
}

static void test_raise(void) {
    rig r;
    open_rig(&r, "S");
    fail_each(unit_path("test/golden/triangles.raise.in.gq"), &r, "raise", 3);
    fail_each(unit_path("test/golden/activations.raise.in.gq"), &r, "raise", 4);
    fail_each(unit_path("test/traced/dynamo-qwen2/model.onnx"), &r, "raise", 13);
    unlink(r.model);
}

static const unit_case cases[] = {
    {"no memory: insert-kv, static-cross-cache", test_caches},
    {"no memory: dynamic-seq", test_tokens},
    {"no memory: two-graph", test_two},
    {"no memory: raise", test_raise},
};

int main(int argc, char **argv) {
    return unit_run("rewrite", cases, sizeof cases / sizeof *cases, argc, argv);
}
