/* The ncnn rows of docs/capability-rows.md that one node can show, on both attention layers: with
 * projections around it (MultiHeadAttention) and without (Attention of the standard). */
#include "support_arenas.h"
#include "support_graph.h"
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/shared.h"

enum { B = 2, N = 3, D = 4, WIDTH = N * D, P = 5, S = 4 };

/* q, k, v of S new tokens [B,S,N*D], and two pasts of P rows [B,N,P,D]. */
typedef struct scene {
    gqac_tensor x[3], past[2];
} scene;

static scene make_scene(int past) {
    scene s;
    test_random r = {.state = 17};
    gqac_arena *a = keep(gqac_arena_create(0));
    for (int i = 0; i < 3; i++)
        s.x[i] = test_floats(a, GQAC_F32, 3, (int64_t[]){B, S, WIDTH}, &r);
    for (int i = 0; i < 2; i++)
        s.past[i] = test_floats(a, GQAC_F32, 4, (int64_t[]){B, N, past, D}, &r);
    return s;
}

static void evaluate(graph_run *run) {
    gqac_status status = graph_run_all(run, NULL, NULL);
    keep(run->arena);
    if (status != GQAC_OK)
        printf("%s: %s\n", gqac_status_name(status), run->diag.what);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
}

/* Runs either layer on these tensors. Attention takes a mask, MultiHeadAttention none. */
static graph_run run_layer(bool projected, const scene *s, bool past, bool causal,
                           const gqac_tensor *mask) {
    const gqac_tensor *k = past ? &s->past[0] : NULL, *v = past ? &s->past[1] : NULL;
    graph_run run;
    if (projected) {
        const gqac_tensor *in[8] = {&s->x[0], &s->x[1], &s->x[2], NULL, NULL, mask, k, v};
        CU_ASSERT_FATAL(graph_run_open(&run, "com.microsoft", "MultiHeadAttention", 8, in, 3));
        ir_attr_set_int(run.node, "num_heads", N);
        ir_attr_set_int(run.node, "unidirectional", causal);
    } else {
        const gqac_tensor *in[6] = {&s->x[0], &s->x[1], &s->x[2], mask, k, v};
        CU_ASSERT_FATAL(graph_run_open(&run, "", "Attention", 6, in, 3));
        ir_attr_set_int(run.node, "q_num_heads", N);
        ir_attr_set_int(run.node, "kv_num_heads", N);
        ir_attr_set_int(run.node, "is_causal", causal);
    }
    evaluate(&run);
    return run;
}

static bool same(const gqac_tensor *a, const gqac_tensor *b) {
    int64_t n = gqac_tensor_count(a);
    return n == gqac_tensor_count(b) &&
           memcmp(a->data, b->data, (size_t)n * op_width(a->dtype)) == 0;
}

/* cache_out is cache_in followed by the new rows, head by head (N2, N7). */
static void n2_growing_cache(void) {
    scene s = make_scene(P);
    for (int projected = 0; projected < 2; projected++) {
        graph_run run = run_layer(projected, &s, true, true, NULL);
        for (int part = 0; part < 2; part++) {
            const gqac_tensor *out = &run.results[1 + part];
            CU_ASSERT(out->rank == 4 && out->dims[2] == P + S && out->dims[3] == D);
            for (int64_t i = 0; i < gqac_tensor_count(out); i++) {
                int64_t d = i % D, row = i / D % (P + S), h = i / D / (P + S) % N;
                int64_t b = i / D / (P + S) / N;
                float expected =
                    row < P ? op_get_f32(&s.past[part], ((b * N + h) * P + row) * D + d)
                            : op_get_f32(&s.x[1 + part], ((b * S + row - P) * N + h) * D + d);
                CU_ASSERT_EQUAL(op_get_f32(out, i), expected);
            }
        }
    }
    close_all();
}

/* Keys and values that were computed before (from an encoder) are used unchanged: 4-D operands have
 * no past and no present, whatever the query; the flat form of the same rows returns the same (N3,
 * N4). */
static void n3_static_cache(void) {
    scene s = make_scene(S);
    graph_run flat = run_layer(true, &s, false, false, NULL), made;
    const gqac_tensor *in[3] = {&s.x[0], &flat.results[1], &flat.results[2]};
    CU_ASSERT_FATAL(graph_run_open(&made, "com.microsoft", "MultiHeadAttention", 3, in, 1));
    ir_attr_set_int(made.node, "num_heads", N);
    evaluate(&made);
    CU_ASSERT(same(&made.results[0], &flat.results[0]));
    const gqac_tensor *both[8] = {in[0], in[1], in[2], NULL, NULL, NULL, &s.past[0], &s.past[1]};
    graph_run bad;
    CU_ASSERT_FATAL(graph_run_open(&bad, "com.microsoft", "MultiHeadAttention", 8, both, 1));
    keep(bad.arena);
    ir_attr_set_int(bad.node, "num_heads", N);
    CU_ASSERT_EQUAL(graph_run_check(&bad), GQAC_INVALID_MODEL);
    close_all();
}

/* A cache without rows means no past (N5). */
static void n5_empty_cache(void) {
    scene s = make_scene(0);
    for (int projected = 0; projected < 2; projected++) {
        graph_run empty = run_layer(projected, &s, true, true, NULL);
        graph_run none = run_layer(projected, &s, false, true, NULL);
        for (int i = 0; i < 3; i++)
            CU_ASSERT(same(&empty.results[i], &none.results[i]));
    }
    close_all();
}

/* A mask [1,1,S,P+S] whose diagonal is shifted by P is equivalent to causal; without the shift it
 * is not. Batch and heads of length 1 broadcast; one mask for each head is accepted too (N22). */
static void n22_shifted_mask(void) {
    scene s = make_scene(P);
    for (int form = 0; form < 8; form++) {
        bool projected = form & 1, by_head = form & 2;
        int shift = form & 4 ? 0 : P;
        int64_t dims[4] = {1, by_head ? N : 1, S, P + S};
        gqac_tensor mask = test_tensor(opened[0], GQAC_F32, 4, dims);
        for (int64_t i = 0; i < gqac_tensor_count(&mask); i++)
            op_put_f32(&mask, i, i % (P + S) <= shift + i / (P + S) % S ? 0 : -INFINITY);
        graph_run by_mask = run_layer(projected, &s, true, false, &mask);
        graph_run causal = run_layer(projected, &s, true, true, NULL);
        bool equal = true;
        for (int64_t i = 0; i < gqac_tensor_count(&causal.results[0]); i++)
            equal = equal && fabsf(op_get_f32(&by_mask.results[0], i) -
                                   op_get_f32(&causal.results[0], i)) <= 1e-6f;
        CU_ASSERT_EQUAL(equal, shift == P);
    }
    close_all();
}

int main(int argc, char **argv) {
    const unit_case cases[] = {
        {"N2 N7 a cache that grows", n2_growing_cache},
        {"N3 N4 keys made before", n3_static_cache},
        {"N5 an empty cache", n5_empty_cache},
        {"N22 a shifted mask", n22_shifted_mask},
    };
    return unit_run("rows_mha", cases, sizeof cases / sizeof *cases, argc, argv);
}
