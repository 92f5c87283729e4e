/* Traced models with and without the pass `raise`: nearly the same logits and caches, for a chunk
 * after a past. */
#include "unit.h"

#include <gqac/gqac.h>
#include <math.h>
#include <stdio.h>

enum { MOST = 16 };

static gqac_diag diag;

typedef struct run {
    gqac_program *program;
    gqac_context *context;
    int n;
    gqac_tensor out[MOST]; /* may be inputs */
    int n_in;
    gqac_tensor in[MOST];
} run;

static void check(gqac_status status) {
    if (status != GQAC_OK)
        printf("%s %s\n", diag.what, diag.where);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
}

/* Prepares the stored call `hybrid` of a model. */
static void start(run *r, const char *name, const char *const *disable) {
    char path[256];
    gqac_options options;
    const gqac_io *io = NULL;
    const char *names[MOST];
    gqac_options_init(&options);
    options.stateless = true;
    options.disable = disable;
    snprintf(path, sizeof path, "test/traced/%s/model.onnx", name);
    check(gqac_program_open(unit_path(path), &options, &r->program, &diag));
    check(gqac_context_create(r->program, 1, &r->context, &diag));
    const int n = gqac_program_inputs(r->program, &io);
    CU_ASSERT_FATAL(n <= MOST);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "test/traced/%s/ref/hybrid/inputs/%s.npy", name, io[i].name);
        names[i] = io[i].name;
        check(gqac_npy_read(unit_path(path), GQAC_NONE, &r->in[i], &diag));
    }
    r->n = gqac_program_outputs(r->program, &io);
    CU_ASSERT_FATAL(r->n <= MOST);
    check(gqac_run(r->context, n, names, r->in, 0, NULL, NULL, &diag));
    for (int i = 0; i < r->n; i++)
        check(gqac_context_read_output(r->context, i, &r->out[i], &diag));
    r->n_in = n;
}

static void finish(run *r) {
    for (int i = 0; i < r->n_in; i++)
        gqac_tensor_free(&r->in[i]);
    gqac_context_free(r->context);
    gqac_program_free(r->program);
}

static void compare(const gqac_tensor *a, const gqac_tensor *b, const char *name) {
    const float *x = a->data, *y = b->data;
    double most = 0, error = 0;
    bool numbers = true;
    CU_ASSERT_EQUAL_FATAL(gqac_tensor_count(a), gqac_tensor_count(b));
    for (int64_t i = 0; i < gqac_tensor_count(a); i++) {
        numbers = numbers && isfinite(x[i]) && isfinite(y[i]); /* fmax ignores NaN */
        most = fmax(most, fabs((double)y[i]));
        error = fmax(error, fabs((double)x[i] - (double)y[i]));
    }
    if (!(error <= 2e-5 * most))
        printf("%s: %g of %g\n", name, error, most);
    CU_ASSERT(error <= 2e-5 * most);
    CU_ASSERT(numbers && most > 0);
}

static void test_models(void) {
    static const char *const names[] = {"llama", "mistral",      "gemma",
                                        "gpt2",  "dynamo-qwen2", "dynamo-llama"};
    static const char *const without[] = {"raise", NULL};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        run raised, written;
        start(&raised, names[i], NULL);
        start(&written, names[i], without);
        CU_ASSERT_EQUAL_FATAL(raised.n, written.n);
        for (int k = 0; k < raised.n; k++)
            compare(&raised.out[k], &written.out[k], names[i]);
        finish(&raised);
        finish(&written);
    }
}

static const unit_case cases[] = {{"raised and written out", test_models}};

int main(int argc, char **argv) {
    return unit_run("raise", cases, sizeof cases / sizeof *cases, argc, argv);
}
