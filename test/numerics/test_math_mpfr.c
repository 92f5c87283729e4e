/* Error bounds of src/numerics/math.h, measured in ulp against MPFR over the whole range of floats:
 * a stride over all 2^32 bit patterns plus every pattern near a power of two, a special value or a
 * boundary between formulas. The largest error of each function is printed and compared with its
 * documented bound. With GQAC_TEST_FULL the stride is denser, and every pattern is also compared
 * with the double function of libm, whose own error (a few ulp of double, 2^-26 ulp here) is
 * negligible. Invariants that are also checked: NaN is canonical, results below 2^-126 are signed
 * zeros. */
#include "numerics/math.h"
#include "unit.h"

#include <float.h>
#include <math.h>
#include <mpfr.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAR 1e30 /* an error above every bound: the wrong kind of value */

typedef int (*exact_fn)(mpfr_t, const mpfr_t, mpfr_rnd_t);

typedef struct function {
    const char *name;
    float (*eval)(float);
    exact_fn exact;
    double (*quick)(double);
    double bound;
} function;

static float eval_exp(float x) {
    return gqn_expf(x);
}
static float eval_log(float x) {
    return gqn_logf(x);
}
static float eval_tanh(float x) {
    return gqn_tanhf(x);
}
static float eval_erf(float x) {
    return gqn_erff(x);
}
static float eval_sin(float x) {
    return gqn_sinf(x);
}
static float eval_cos(float x) {
    return gqn_cosf(x);
}
static float eval_sigmoid(float x) {
    return gqn_sigmoidf(x);
}
static float eval_softplus(float x) {
    return gqn_softplusf(x);
}
static float eval_rsqrt(float x) {
    return gqn_rsqrt(x);
}

static int exact_sigmoid(mpfr_t y, const mpfr_t x, mpfr_rnd_t rnd) {
    mpfr_neg(y, x, rnd);
    mpfr_exp(y, y, rnd);
    mpfr_add_ui(y, y, 1, rnd);
    return mpfr_ui_div(y, 1, y, rnd);
}

static int exact_softplus(mpfr_t y, const mpfr_t x, mpfr_rnd_t rnd) {
    if (mpfr_cmp_ui(x, 100) > 0 || mpfr_nan_p(x))
        return mpfr_set(y, x, rnd); /* the rest is below 2^-140 of x */
    mpfr_exp(y, x, rnd);
    return mpfr_log1p(y, y, rnd);
}

/* mpfr_rec_sqrt has rsqrt(-0) = +inf; in two correctly rounded steps it is -inf. */
static int exact_rsqrt(mpfr_t y, const mpfr_t x, mpfr_rnd_t rnd) {
    mpfr_sqrt(y, x, rnd);
    return mpfr_ui_div(y, 1, y, rnd);
}

static double quick_sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}
static double quick_softplus(double x) {
    return x > 60.0 ? x : log1p(exp(x));
}
static double quick_rsqrt(double x) {
    return 1.0 / sqrt(x);
}

static const function functions[] = {
    {"exp", eval_exp, mpfr_exp, exp, 1.0},
    {"log", eval_log, mpfr_log, log, 1.0},
    {"tanh", eval_tanh, mpfr_tanh, tanh, 2.0},
    {"erf", eval_erf, mpfr_erf, erf, 2.0},
    {"sin", eval_sin, mpfr_sin, sin, 1.0},
    {"cos", eval_cos, mpfr_cos, cos, 1.0},
    {"sigmoid", eval_sigmoid, exact_sigmoid, quick_sigmoid, 2.5},
    {"softplus", eval_softplus, exact_softplus, quick_softplus, 2.5},
    {"rsqrt", eval_rsqrt, exact_rsqrt, quick_rsqrt, 1.5},
};

/* Decides the cases in which ulps do not apply, such as NaN. Returns a negative number if ulps
 * apply. `sure` is the exact value as a double. */
static double special_error(float got, double exact, bool sign) {
    gqn_u32 u = gqn_as_u32(got);
    if (isnan(exact))
        return u == 0x7fc00000u ? 0.0 : FAR;
    if (isnan(got) || (u >> 31 != 0) != sign)
        return FAR;
    if (isinf(exact))
        return isinf(got) ? 0.0 : FAR;
    if ((u & 0x7fffffffu) == 0) /* a value at the boundary may be on either side */
        return fabs(exact) < 0x1p-126 * (1.0 + 0x1p-22) ? 0.0 : FAR;
    if ((u & 0x7fffffffu) < 0x00800000u)
        return FAR;
    if (isinf(got) && fabs(exact) >= 0x1p128)
        return 0.0;
    return -1.0;
}

/* The unit of the last place of a float near a magnitude with binary exponent e. */
static double scale_of(int e) {
    return ldexp(1.0, e < -126 ? 149 : e > 127 ? -104 : 23 - e);
}

static double error_mpfr(float got, const mpfr_t exact, mpfr_t scratch) {
    double special = special_error(got, mpfr_get_d(exact, MPFR_RNDN), mpfr_signbit(exact) != 0);
    if (special >= 0.0)
        return special;
    mpfr_sub_d(scratch, exact, isinf(got) ? copysign(0x1p128, got) : got, MPFR_RNDN);
    return fabs(mpfr_get_d(scratch, MPFR_RNDN)) * scale_of((int)mpfr_get_exp(exact) - 1);
}

static double error_quick(float got, double exact) {
    double special = special_error(got, exact, signbit(exact) != 0);
    if (special >= 0.0)
        return special;
    return fabs(exact - (isinf(got) ? copysign(0x1p128, got) : got)) * scale_of(ilogb(exact));
}

/* ---- sweeps -------------------------------------------------------------- */

typedef struct sweep {
    const function *f;
    gqn_u64 start, stride;
    bool quick;
    double worst;
    float at;
} sweep;

typedef struct workspace {
    mpfr_t x, y, scratch;
} workspace;

static void visit(sweep *s, workspace *w, gqn_u32 bits) {
    float x = gqn_as_f32(bits);
    float got = s->f->eval(x);
    double error;
    if (s->quick) {
        error = error_quick(got, s->f->quick(x));
    } else {
        mpfr_set_flt(w->x, x, MPFR_RNDN);
        s->f->exact(w->y, w->x, MPFR_RNDN);
        error = error_mpfr(got, w->y, w->scratch);
    }
    if (!(error <= s->worst)) {
        s->worst = error;
        s->at = x;
    }
}

static void *sweep_worker(void *arg) {
    sweep *s = arg;
    workspace w;
    mpfr_inits2(80, w.x, w.y, w.scratch, (mpfr_ptr)0);
    for (gqn_u64 bits = s->start; bits <= 0xffffffffu; bits += s->stride)
        visit(s, &w, (gqn_u32)bits);
    mpfr_clears(w.x, w.y, w.scratch, (mpfr_ptr)0);
    mpfr_free_cache();
    return NULL;
}

/* Every pattern near a power of two or near a boundary between formulas, with both signs. */
static void sweep_edges(sweep *s) {
    static const float seams[] = {1.0f,           0.625f,         0.921875f,     10.0f,
                                  4.0f,           0.3475f,        0x1.5d589ep6f, 0x1.62e42ep6f,
                                  0x1.921fb6p-1f, 0x1.6a09e6p-1f, 0x1.6a09e6p0f, 0x1.62e43p-2f,
                                  103.97f,        16.64f,         9.0f};
    workspace w;
    mpfr_inits2(80, w.x, w.y, w.scratch, (mpfr_ptr)0);
    for (gqn_u32 sign = 0; sign < 2; sign++) {
        for (gqn_u32 e = 0; e < 256; e++)
            for (gqn_u32 d = 0; d < 17; d++)
                visit(s, &w, ((e << 23) + d - 8u) ^ sign << 31);
        for (size_t i = 0; i < sizeof seams / sizeof *seams; i++)
            for (gqn_u32 d = 0; d < 512; d++)
                visit(s, &w, (gqn_as_u32(seams[i]) + d - 256u) ^ sign << 31);
        for (gqn_u32 n = 1; n < 4096; n++) /* near multiples of pi/4 */
            for (gqn_u32 d = 0; d < 3; d++)
                visit(s, &w,
                      (gqn_as_u32((float)(n * 0.785398163397448309616)) + d - 1u) ^ sign << 31);
    }
    mpfr_clears(w.x, w.y, w.scratch, (mpfr_ptr)0);
}

static sweep measure(const function *f, gqn_u64 stride, bool quick) {
    enum { MOST = 64 };
    sweep part[MOST];
    pthread_t thread[MOST];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    gqn_u64 n = cores < 1 ? 1 : cores > MOST ? MOST : (gqn_u64)cores;
    for (gqn_u64 i = 0; i < n; i++) {
        part[i] = (sweep){.f = f, .start = i * stride, .stride = n * stride, .quick = quick};
        if (pthread_create(&thread[i], NULL, sweep_worker, &part[i]) != 0) {
            perror("pthread_create");
            exit(1);
        }
    }
    sweep worst = {.f = f};
    sweep_edges(&worst);
    for (gqn_u64 i = 0; i < n; i++) {
        pthread_join(thread[i], NULL);
        if (part[i].worst > worst.worst)
            worst = part[i];
    }
    return worst;
}

static void check(const char *name) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        const function *f = &functions[i];
        if (strcmp(f->name, name) != 0)
            continue;
        sweep s = measure(f, unit_full() ? 509 : 4093, false);
        printf("  %-8s max %.4f ulp at %a, bound %.1f\n", f->name, s.worst, (double)s.at, f->bound);
        CU_ASSERT(s.worst <= f->bound);
        if (unit_full()) {
            s = measure(f, 1, true);
            printf("  %-8s max %.4f ulp at %a, every float\n", f->name, s.worst, (double)s.at);
            CU_ASSERT(s.worst <= f->bound);
        }
        return;
    }
    CU_FAIL("no such function");
}

static void test_exp(void) {
    check("exp");
}
static void test_log(void) {
    check("log");
}
static void test_tanh(void) {
    check("tanh");
}
static void test_erf(void) {
    check("erf");
}
static void test_sin(void) {
    check("sin");
}
static void test_cos(void) {
    check("cos");
}
static void test_sigmoid(void) {
    check("sigmoid");
}
static void test_softplus(void) {
    check("softplus");
}
static void test_rsqrt(void) {
    check("rsqrt");
}

/* ---- negative controls: what the sweep must detect ----------------------- */

/* One coefficient of the exponential is wrong in its 13th bit. */
static float wrong_coefficient(float x) {
    float r = gqn_expf(x);
    return x > -0.3f && x < 0.3f ? 1.0f + gqn_fma(x * x, gqn_exp_poly(x) + 0x1p-18f * x, x) : r;
}
static float wrong_subnormal(float x) {
    return x < GQN_EXP_MIN ? (float)exp(x) : gqn_expf(x);
}
static float wrong_nan(float x) {
    return x != x ? x : gqn_expf(x);
}
/* A range reduction with a rounded pi, accurate only for small angles. */
static float wrong_reduction(float x) {
    float n = rintf(x / 6.28318531f);
    return gqn_sinf(gqn_fma(n, -6.28318531f, x));
}

static void test_controls(void) {
    const function wrong[] = {
        {"exp with a wrong coefficient", wrong_coefficient, mpfr_exp, exp, 1.0},
        {"exp that keeps subnormals", wrong_subnormal, mpfr_exp, exp, 1.0},
        {"exp that keeps NaN payloads", wrong_nan, mpfr_exp, exp, 1.0},
        {"sin with a short pi", wrong_reduction, mpfr_sin, sin, 1.0},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CU_ASSERT(measure(&wrong[i], 99991, false).worst > wrong[i].bound);
}

/* ---- pow ----------------------------------------------------------------- */

static gqn_u32 random_bits(gqn_u64 *state) { /* splitmix64 */
    gqn_u64 z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (gqn_u32)(z >> 32);
}

/* A quarter each: any two floats; x near 1; a y for which the result is in range; small integer
 * y. */
static void random_pair(gqn_u64 *state, unsigned kind, float *x, float *y) {
    *x = gqn_as_f32(random_bits(state));
    *y = gqn_as_f32(random_bits(state));
    if (kind == 1)
        *x = 1.0f + (float)(gqn_i32)(random_bits(state) % 65537u - 32768u) * 0x1p-22f;
    if (kind == 1 || kind == 2) {
        *x = fabsf(*x);
        double span = (double)random_bits(state) * 0x1p-32 * 278.0 - 149.0;
        *y = (float)(span / log2(*x));
    }
    if (kind == 3)
        *y = (float)(gqn_i32)(random_bits(state) % 129u) - 64.0f;
}

static void test_pow(void) {
    mpfr_t x, y, r, scratch;
    mpfr_inits2(120, x, y, r, scratch, (mpfr_ptr)0);
    double worst = 0.0;
    float at_x = 0.0f, at_y = 0.0f;
    gqn_u64 state = 1;
    unsigned count = unit_full() ? 5000000u : 200000u;
    for (unsigned i = 0; i < count; i++) {
        float a, b;
        random_pair(&state, i & 3u, &a, &b);
        if (isnan(a) || isnan(b))
            continue;
        mpfr_set_flt(x, a, MPFR_RNDN);
        mpfr_set_flt(y, b, MPFR_RNDN);
        mpfr_pow(r, x, y, MPFR_RNDN);
        double error = error_mpfr(gqn_powf(a, b), r, scratch);
        if (error > worst) {
            worst = error;
            at_x = a;
            at_y = b;
        }
    }
    printf("  pow      max %.4f ulp at %a ^ %a, bound 1.5\n", worst, (double)at_x, (double)at_y);
    CU_ASSERT(worst <= 1.5);
    mpfr_clears(x, y, r, scratch, (mpfr_ptr)0);
}

static bool same_bits(float a, float b) {
    return gqn_as_u32(a) == gqn_as_u32(b) || (isnan(b) && gqn_as_u32(a) == 0x7fc00000u);
}

/* Special cases follow C's Annex F; the exponents with a definition of their own are the products
 * and roots that they stand for. */
static void test_pow_rules(void) {
    static const float v[] = {0.0f,       -0.0f,     1.0f,       -1.0f,   2.0f,     -2.0f,
                              3.0f,       -3.0f,     0.5f,       -0.5f,   INFINITY, -INFINITY,
                              NAN,        1e30f,     -1e30f,     -1.5f,   1e-3f,    16777217.f,
                              8388607.5f, 8388609.f, -8388609.f, 0x1p127f};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        for (size_t j = 0; j < sizeof v / sizeof *v; j++) {
            float want = gqn_canonical((float)pow(v[i], v[j]));
            float got = gqn_powf(v[i], v[j]);
            bool special = want == 0.0f || isinf(want) || isnan(want) || fabsf(want) == 1.0f;
            CU_ASSERT(special ? same_bits(got, want)
                              : fabs((double)got - want) <= fabs((double)want) * 0x1p-23);
        }
    for (gqn_u64 bits = 0; bits <= 0xffffffffu; bits += 65521) {
        float x = gqn_as_f32((gqn_u32)bits);
        CU_ASSERT(same_bits(gqn_powf(x, 2.0f), gqn_canonical(x * x)));
        CU_ASSERT(same_bits(gqn_powf(x, 3.0f), gqn_canonical(x * x * x)));
        CU_ASSERT(same_bits(gqn_powf(x, 1.0f), gqn_canonical(x)));
        if (x >= 0.0f)
            CU_ASSERT(same_bits(gqn_powf(x, 0.5f), gqn_canonical(sqrtf(x))));
    }
}

static const unit_case cases[] = {
    {"exp error bound", test_exp},
    {"log error bound", test_log},
    {"tanh error bound", test_tanh},
    {"erf error bound", test_erf},
    {"sin error bound", test_sin},
    {"cos error bound", test_cos},
    {"sigmoid error bound", test_sigmoid},
    {"softplus error bound", test_softplus},
    {"rsqrt error bound", test_rsqrt},
    {"pow error bound", test_pow},
    {"pow special cases and short exponents", test_pow_rules},
    {"negative controls exceed the bound", test_controls},
};

int main(int argc, char **argv) {
    return unit_run("math", cases, sizeof cases / sizeof *cases, argc, argv);
}
