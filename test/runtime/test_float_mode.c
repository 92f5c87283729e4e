/* Results do not depend on the floating-point mode of the host process: neither constants that are
 * folded when a model is compiled, nor numbers that are read and written as text. After every call
 * the mode of the host is restored. */
#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include <gqac/gqac.h>

#include "../unit.h"

/* 0.1 and 1/3 are rounded when they are read, the sum and the quotient when they are folded; the
 * product is subnormal. */
static const char model[] = "graph @m(%x: f32[4]) {\n"
                            "  const %a: f32[4] = [0.1,0.2,0.3,16777217.0]\n"
                            "  const %b: f32[4] = [3.0,0.7,1e-3,1.5]\n"
                            "  const %tiny: f32[4] = [1e-20,2e-20,3e-20,1.5e-20]\n"
                            "  %sum = Add %a, %b : ?\n"
                            "  %part = Div %sum, %b : ?\n"
                            "  %small = Mul %tiny, %tiny : ?\n"
                            "  %half = Cast %part {to=f16} : ?\n"
                            "  %y = Add %x, %part : ?\n"
                            "  return %y, %part, %small, %half\n}\n";

/* Sets a mode that a host may have set. */
static void set_mode(int mode) {
    static const int rounding[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    fesetenv(FE_DFL_ENV);
    fesetround(rounding[mode % 4]);
#ifdef __SSE2__
    if (mode >= 4)
        _mm_setcsr(_mm_getcsr() | 0x8040); /* flush to zero, denormals are zero */
#endif
}

static unsigned mode_now(void) {
#ifdef __SSE2__
    return _mm_getcsr() & ~0x3fu; /* without the exception flags */
#else
    return (unsigned)fegetround();
#endif
}

static gqac_options options_of(gqac_model_bytes *bytes) {
    gqac_options options;
    gqac_options_init(&options);
    gqac_model_bytes_init(bytes, model, sizeof model - 1);
    options.bytes = bytes;
    options.stateless = true;
    return options;
}

static char *compiled(void) {
    char path[] = "/tmp/gqac-test-XXXXXX", *text = calloc(1, 1 << 16);
    gqac_model_bytes bytes;
    gqac_diag diag = {0};
    gqac_options options = options_of(&bytes);
    const int file = mkstemp(path);
    const unsigned mode = mode_now();
    CU_ASSERT_FATAL(file >= 0 && text);
    options.stop_after = "tidy";
    CU_ASSERT_EQUAL(gqac_compile("m.gq", &options, GQAC_EMIT_TEXT, path, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(mode_now(), mode);
    FILE *in = fopen(path, "r");
    CU_ASSERT_FATAL(in != NULL);
    CU_ASSERT(fread(text, 1, (1 << 16) - 1, in) > 0);
    fclose(in);
    fclose(fdopen(file, "r"));
    remove(path);
    return text;
}

static void texts_are_equal(void) {
    set_mode(0);
    char *expected = compiled();
    CU_ASSERT_PTR_NULL(strstr(expected, "Div")); /* it was folded */
    for (int mode = 1; mode < 8; mode++) {
        set_mode(mode);
        char *text = compiled();
        set_mode(0);
        CU_ASSERT_STRING_EQUAL(text, expected);
        free(text);
    }
    free(expected);
}

/* Computes the bits of all results. */
static void run(unsigned char *bits) {
    float x[4] = {0.5f, 0.25f, 1e-3f, 3.0f};
    const char *name = "x";
    const gqac_tensor in = {.dtype = GQAC_F32, .rank = 1, .dims = {4}, .data = x};
    gqac_model_bytes bytes;
    gqac_diag diag = {0};
    const gqac_options options = options_of(&bytes);
    gqac_program *program = NULL;
    gqac_context *context = NULL;
    gqac_tensor out[4];
    const unsigned mode = mode_now();
    CU_ASSERT_EQUAL_FATAL(gqac_program_open("m.gq", &options, &program, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(mode_now(), mode);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_run(context, 1, &name, &in, 4, NULL, out, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(mode_now(), mode);
    for (int i = 0; i < 4; i++)
        memcpy(bits + 16 * i, out[i].data, gqac_tensor_bytes(&out[i]));
    gqac_context_free(context);
    gqac_program_free(program);
}

static void results_are_equal(void) {
    unsigned char expected[64] = {0}, bits[64] = {0};
    set_mode(0);
    run(expected);
    for (int mode = 1; mode < 8; mode++) {
        set_mode(mode);
        run(bits);
        set_mode(0);
        CU_ASSERT_EQUAL(memcmp(bits, expected, sizeof bits), 0);
    }
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {{"texts are equal", texts_are_equal},
                                      {"results are equal", results_are_equal}};
    return unit_run("runtime: floating-point mode", cases, sizeof cases / sizeof *cases, argc,
                    argv);
}
