/* The next id on a device: from the likeliest ids that its kernels find, generation chooses the
 * same ids as cpu from whole rows of logits. One program is used for all answers of a model,
 * because opening it compiles the kernels. */
#include "unit.h"

#include <gqac/gqac.h>
#include <gqac/text.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NEW = 8 };

static gqac_diag diag;

typedef struct side {
    gqac_program *program;
    gqac_context *context;
    gqac_session *session;
} side;

/* False: there is no such device. */
static bool open_side(const char *path, const char *target, side *s) {
    gqac_options options;
    gqac_options_init(&options);
    options.target = target;
    const gqac_status status = gqac_program_open(path, &options, &s->program, &diag);
    if (status == GQAC_ABSENT && !strcmp(target, "gpu")) {
        printf("  there is no device for target gpu\n");
        return false;
    }
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(s->program, 1, &s->context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_session_create(s->program, NULL, &s->session, &diag), GQAC_OK);
    return true;
}

static void close_side(side *s) {
    gqac_session_free(s->session);
    gqac_context_free(s->context);
    gqac_program_free(s->program);
}

static gqac_generation *generate(const side *s, const gqac_sampling *sampling, const int64_t *ids,
                                 bool ids_only) {
    gqac_generate_request q;
    gqac_generation *g = NULL;
    gqac_generate_request_init(&q, NULL, s->session, ids, 3);
    q.max_new = NEW;
    q.sampling = sampling;
    q.ids_only = ids_only;
    CU_ASSERT_EQUAL_FATAL(gqac_generate(s->context, NULL, 1, &q, &g, &diag), GQAC_OK);
    return g;
}

/* Compares answers with these settings after three ids; the device does not copy the logits to the
 * host. */
static void compare(const side *cpu, const side *gpu, const gqac_sampling *sampling,
                    const int64_t *ids) {
    int64_t rows = 0, n = 0;
    gqac_generation *expected = generate(cpu, sampling, ids, false);
    gqac_generation *found = generate(gpu, sampling, ids, true);
    CU_ASSERT_FATAL(expected->n_ids == NEW && found->n_ids == NEW);
    CU_ASSERT(!memcmp(expected->ids, found->ids, NEW * sizeof *found->ids));
    CU_ASSERT_PTR_NOT_NULL(gqac_context_top(gpu->context, 0, &rows, &n));
    CU_ASSERT_EQUAL(n, gqac_sampling_top(sampling));
    gqac_generation_free(expected);
    gqac_generation_free(found);
}

static void compare_all(const side *cpu, const side *gpu, const int64_t *ids) {
    static const struct {
        int64_t k;
        double p, temperature, min_p;
    } settings[] = {
        {1, 1, 1, 0}, {5, 1, 2, 0}, {40, 0.6, 1.7, 0}, {200, 0.9, 1, 0}, {30, 1, 3, 0.2}};
    gqac_sampling o;
    gqac_sampling_init(&o);
    compare(cpu, gpu, &o, ids);
    o.sample = true;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        for (o.seed = 0; o.seed < (uint64_t)unit_count(2, 20); o.seed++) {
            o.top_k = settings[i].k;
            o.top_p = settings[i].p;
            o.temperature = settings[i].temperature;
            o.min_p = settings[i].min_p;
            compare(cpu, gpu, &o, ids);
        }
}

static void test_model(void) {
    static const int64_t ids[] = {3, 9, 4};
    side cpu, gpu;
    const char *llama = unit_path("test/models/llama/model.onnx");
    if (!open_side(llama, "gpu", &gpu))
        return;
    CU_ASSERT_FATAL(open_side(llama, "cpu", &cpu));
    compare_all(&cpu, &gpu, ids);
    close_side(&cpu);
    close_side(&gpu);
}

/* ---- equal logits ------------------------------------------------------------ */

enum { V = 5002 };

/* A model whose logits are the newest id times a vector, in that type. Many are equal; the greatest
 * occurs three times, twice for the same item of a group. */
static void write_flat(FILE *f, const char *type) {
    fputs("graph @main(%input_ids: i64[B,S], %attention_mask: i64[B,T],\n"
          "    %past_key_values.0.key: f32[B,1,P,2], %past_key_values.0.value: f32[B,1,P,2]) {\n"
          "  const %axes: i64[2] = [1, 3]\n  const %axis: i64[1] = [2]\n"
          "  const %c: f32[1,1,2] = [1, 2]\n",
          f);
    fprintf(f, "  const %%d: f32[%d] = [", V);
    for (int i = 0; i < V; i++)
        fprintf(f, "%s%d", i ? ", " : "", i == 45 || i == 46 || i == 4500 ? 9 : i % 7 - 3);
    fprintf(f,
            "]\n  %%f = Cast %%input_ids {to=f32} : f32[B,S]\n"
            "  %%u = Unsqueeze %%f, %%axes : f32[B,1,S,1]\n"
            "  %%m = Mul %%u, %%c : f32[B,1,S,2]\n"
            "  %%k = Concat %%past_key_values.0.key, %%m {axis=2} : f32[B,1,T,2]\n"
            "  %%v = Concat %%past_key_values.0.value, %%m {axis=2} : f32[B,1,T,2]\n"
            "  %%w = Unsqueeze %%f, %%axis : f32[B,S,1]\n"
            "  %%x = Mul %%w, %%d : f32[B,S,%d]\n  %%y = Cast %%x {to=%s} : %s[B,S,%d]\n"
            "  return %%y as \"logits\", %%k as \"present.0.key\", %%v as \"present.0.value\"\n}\n",
            V, type, type, V);
}

static void test_equal(void) {
    static const char *const types[] = {"f32", "bf16", "f16"};
    static const int64_t ids[] = {3, 9, 4}, zeros[] = {3, 9, 0}; /* -0 is the first of these */
    char path[] = "/tmp/gqac-test-gpu-top-XXXXXX.gq";
    const int fd = mkstemps(path, 3);
    CU_ASSERT_FATAL(fd >= 0);
    close(fd);
    for (int i = unit_full() ? 0 : 2; i < 3; i++) {
        side cpu, gpu;
        FILE *f = fopen(path, "w");
        CU_ASSERT_PTR_NOT_NULL_FATAL(f);
        write_flat(f, types[i]);
        fclose(f);
        if (!open_side(path, "gpu", &gpu))
            break;
        CU_ASSERT_FATAL(open_side(path, "cpu", &cpu));
        compare_all(&cpu, &gpu, ids);
        compare_all(&cpu, &gpu, zeros);
        for (int k = 0; k < 2; k++) {
            gqac_generation *g = generate(&gpu, NULL, k ? zeros : ids, true);
            CU_ASSERT_EQUAL(g->ids[0], k ? 0 : 45);
            gqac_generation_free(g);
        }
        close_side(&cpu);
        close_side(&gpu);
    }
    unlink(path);
}

static const unit_case cases[] = {
    {"seeds and settings", test_model},
    {"equal logits of each type", test_equal},
};

int main(int argc, char **argv) {
    return unit_run("gpu_top", cases, sizeof cases / sizeof *cases, argc, argv);
}
