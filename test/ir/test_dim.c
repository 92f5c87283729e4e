/* Dimensions: algebra checked with numbers, canonical text, limits. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"

static const char *const symbols[] = {"B", "S", "P", "T"};
static int64_t env[COUNT(symbols)];

static bool lookup(void *arg, const char *symbol, int64_t *value) {
    (void)arg;
    for (size_t i = 0; i < COUNT(symbols); i++)
        if (strcmp(symbols[i], symbol) == 0) {
            *value = env[i];
            return true;
        }
    return false;
}

static const ir_dim *parsed(ir_dims *dims, const char *text) {
    bool ok;
    const ir_dim *dim = ir_dim_parse(dims, &text, &ok);
    return ok && !*text ? dim : NULL;
}

static bool prints(const ir_dim *dim, const char *expected) {
    gqac_str out = {0};
    ir_dim_print(&out, dim);
    bool same = out.text && strcmp(out.text, expected) == 0;
    if (!same)
        printf("    prints %s, expected %s\n", out.text ? out.text : "(none)", expected);
    gqac_str_free(&out);
    return same;
}

/* How dimensions are parsed and printed. */
static void test_text(void) {
    static const char *const cases[][2] = {
        {"0", "0"},
        {"-5", "-5"},
        {"P+S", "P+S"},
        {"S+P", "P+S"},
        {"S + 1 +P - 2", "P+S-1"},
        {"-S+T", "T-S"},
        {"-S-T", "-S-T"},
        {"S*B", "B*S"},
        {"2*S*3", "6*S"},
        {"1+B*S", "B*S+1"},
        {"(P+S)*B", "B*P+B*S"},
        {"(P+S)*(P-S)", "P*P-S*S"},
        {"max(T,P)", "max(P,T)"},
        {"max(P,P+1)", "P+1"},
        {"max(max(P,T),P)", "max(P,T)"},
        {"max(3,-4)", "3"},
        {"S/4", "S/4"},
        {"(P+S)/4", "(P+S)/4"},
        {"(4*P+S+9)/4", "P+(S+1)/4+2"},
        {"(S-1)/4", "(S+3)/4-1"},
        {"(2*P+2*S+1)/4", "(P+S)/2"},
        {"S/2/2", "S/4"},
        {"(S/2+1)/3", "(S+2)/6"},
        {"-7/2", "-3"},
        {"(0-7)/2", "-4"},
        {"T-S/4", "T-S/4"},
        {"2*(S/4)", "2*(S/4)"},
        {"B*(S/4)", "B*(S/4)"},
        {"2*S/4", "S/2"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"-9223372036854775808*S", "-9223372036854775808*S"},
        {"9223372036854775807*S", "9223372036854775807*S"},
        {"`a b`+`\\`\\\\\\x01`", "`\\`\\\\\\x01`+`a b`"},
        {"``", "``"},
        {"`max(P,T)`+max(P,T)", "`max(P,T)`+max(P,T)"},
        {"`P`", "P"},
        {"max+maximum", "max+maximum"},
        {"decoder_sequence.length", "decoder_sequence.length"},
        {"`\xc3\xa9`", "`\xc3\xa9`"},
        {"`\\xff`", "`\\xff`"},
    };
    gqac_arena *arena = gqac_arena_create(0);
    for (size_t i = 0; i < COUNT(cases); i++) {
        /* A separate table for each, so that nothing depends on what was created before. */
        ir_dims *dims = ir_dims_create(arena);
        const ir_dim *dim = parsed(dims, cases[i][0]);
        CU_ASSERT(prints(dim, cases[i][1]));
        CU_ASSERT(parsed(dims, cases[i][1]) == dim);
    }
    gqac_arena_free(arena);
}

static void test_malformed(void) {
    static const char *const cases[] = {"",
                                        "+",
                                        "-",
                                        "(",
                                        "P+",
                                        "*P",
                                        "max(P)",
                                        "max(P,T",
                                        "max(",
                                        "`",
                                        "`a\nb`",
                                        "`\\q`",
                                        "`\\x0`",
                                        "`\\x00`",
                                        "P/0",
                                        "P/S",
                                        "P/-2",
                                        "9223372036854775808",
                                        "(P",
                                        "()",
                                        "P+?",
                                        "#",
                                        "2*",
                                        "99999999999999999999",
                                        "-9223372036854775809",
                                        "4611686018427387904*4*S",
                                        "S*S*S*S*S*S*S*S*S"};
    gqac_arena *arena = gqac_arena_create(0);
    ir_dims *dims = ir_dims_create(arena);
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *text = cases[i];
        bool ok = true;
        CU_ASSERT_PTR_NULL(ir_dim_parse(dims, &text, &ok));
        CU_ASSERT_FALSE(ok);
    }
    char deep[401];
    memset(deep, '(', 400);
    deep[400] = '\0';
    const char *text = deep;
    bool ok = true;
    CU_ASSERT_PTR_NULL(ir_dim_parse(dims, &text, &ok));
    CU_ASSERT_FALSE(ok);
    text = "?,S";
    CU_ASSERT_PTR_NULL(ir_dim_parse(dims, &text, &ok));
    CU_ASSERT(ok && strcmp(text, ",S") == 0);
    CU_ASSERT_FALSE(ir_dims_failed(dims));
    gqac_arena_free(arena);
}

/* A random dimension and its value; NULL if a limit was exceeded. */
static const ir_dim *random_dim(ir_dims *dims, uint64_t *seed, int depth, __int128 *value) {
    __int128 a, b;
    uint32_t kind = depth ? random_u32(seed) % 7 : random_u32(seed) % 2;
    if (kind == 0) {
        *value = (int64_t)(random_u32(seed) % 9) - 4;
        return ir_dim_const(dims, (int64_t)*value);
    }
    if (kind == 1) {
        uint32_t i = random_u32(seed) % COUNT(symbols);
        *value = env[i];
        return ir_dim_symbol(dims, symbols[i]);
    }
    const ir_dim *x = random_dim(dims, seed, depth - 1, &a);
    if (kind == 2) {
        int n = 1 + (int)(random_u32(seed) % 6);
        *value = a / n - (a % n < 0);
        return ir_dim_floordiv(dims, x, n);
    }
    const ir_dim *y = random_dim(dims, seed, depth - 1, &b);
    if (kind == 3) {
        *value = a > b ? a : b;
        return ir_dim_max(dims, x, y);
    }
    *value = kind == 4 ? a * b : kind == 5 ? a - b : a + b;
    return kind == 4   ? ir_dim_mul(dims, x, y)
           : kind == 5 ? ir_dim_sub(dims, x, y)
                       : ir_dim_add(dims, x, y);
}

static void check_text(ir_dims *dims, ir_dims *other, const ir_dim *dim) {
    gqac_str out = {0};
    ir_dim_print(&out, dim);
    if (parsed(dims, out.text) != dim || !prints(parsed(other, out.text), out.text)) {
        printf("    %s\n", out.text);
        CU_FAIL("text is not canonical");
    }
    gqac_str_free(&out);
}

static void test_algebra(void) {
    uint64_t seed = 1;
    gqac_arena *arena = gqac_arena_create(0);
    ir_dims *dims = ir_dims_create(arena), *other = ir_dims_create(arena);
    for (size_t i = COUNT(symbols); i-- > 0;)
        ir_dim_symbol(other, symbols[i]); /* created in another order */
    int wrong = 0, known = 0;
    for (int round = 0; round < 20000; round++) {
        for (size_t i = 0; i < COUNT(symbols); i++)
            env[i] = random_u32(&seed) % 12;
        __int128 expected;
        int64_t value;
        const ir_dim *dim = random_dim(dims, &seed, 4, &expected);
        if (!dim)
            continue; /* a limit is exceeded */
        known++;
        if (!ir_dim_eval(dim, lookup, NULL, &value) || value != expected)
            wrong++;
        if (round % 4 == 0)
            check_text(dims, other, dim);
    }
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT(known > 15000);
    CU_ASSERT_FALSE(ir_dims_failed(dims));
    gqac_arena_free(arena);
}

/* Substituting and then evaluating equals evaluating with other values. */
static void test_substitute(void) {
    uint64_t seed = 2;
    gqac_arena *arena = gqac_arena_create(0);
    ir_dims *dims = ir_dims_create(arena);
    const ir_dim *from[2] = {ir_dim_symbol(dims, "P"), ir_dim_symbol(dims, "S")};
    int wrong = 0;
    for (int round = 0; round < 5000; round++) {
        for (size_t i = 0; i < COUNT(symbols); i++)
            env[i] = random_u32(&seed) % 7;
        __int128 unused;
        const ir_dim *dim = random_dim(dims, &seed, 3, &unused);
        /* P and S are exchanged and grow; this happens at once, and no value is negative. */
        const ir_dim *to[2] = {ir_dim_add(dims, from[1], ir_dim_const(dims, 2)),
                               ir_dim_mul(dims, from[0], ir_dim_symbol(dims, "B"))};
        const ir_dim *replaced = ir_dim_substitute(dims, dim, 2, from, to);
        int64_t got, expected;
        if (!replaced)
            continue;
        bool ok = ir_dim_eval(replaced, lookup, NULL, &got);
        int64_t p = env[2], s = env[1];
        env[2] = s + 2;
        env[1] = p * env[0];
        ok = ok && ir_dim_eval(dim, lookup, NULL, &expected);
        wrong += !ok || got != expected;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    const ir_dim *sum = parsed(dims, "P+S");
    const ir_dim *one = ir_dim_const(dims, 1);
    CU_ASSERT_PTR_EQUAL(ir_dim_substitute(dims, sum, 0, NULL, NULL), sum);
    CU_ASSERT_PTR_EQUAL(ir_dim_substitute(dims, NULL, 1, from, &one), NULL);
    const ir_dim *unknown = NULL;
    CU_ASSERT_PTR_EQUAL(ir_dim_substitute(dims, sum, 1, from, &unknown), NULL);
    gqac_arena_free(arena);
}

static void test_division(void) {
    static const char *const exact[][3] = {
        {"B*S*64", "64", "B*S"}, {"B*S*64", "B*8", "8*S"},  {"B*P+B*S", "B", "P+S"},
        {"B*P+B*S", "P+S", "B"}, {"P*P-S*S", "P+S", "P-S"}, {"0", "S", "0"},
        {"P+S", "P+S", "1"},
    };
    static const char *const inexact[][2] = {
        {"S", "0"}, {"S", "2"}, {"P+S", "P"}, {"S", "S*S"}, {"-9223372036854775808", "-1"},
        {"1", "S"}};
    gqac_arena *arena = gqac_arena_create(0);
    ir_dims *dims = ir_dims_create(arena);
    for (size_t i = 0; i < COUNT(exact); i++)
        CU_ASSERT(
            prints(ir_dim_div_exact(dims, parsed(dims, exact[i][0]), parsed(dims, exact[i][1])),
                   exact[i][2]));
    for (size_t i = 0; i < COUNT(inexact); i++)
        CU_ASSERT_PTR_NULL(
            ir_dim_div_exact(dims, parsed(dims, inexact[i][0]), parsed(dims, inexact[i][1])));
    uint64_t seed = 3;
    for (int round = 0; round < 3000; round++) {
        __int128 unused;
        const ir_dim *a = random_dim(dims, &seed, 3, &unused);
        const ir_dim *b = random_dim(dims, &seed, 2, &unused);
        const ir_dim *product = ir_dim_mul(dims, a, b);
        int64_t value;
        if (product && !(ir_dim_is_const(b, &value) && value == 0))
            CU_ASSERT_PTR_EQUAL(ir_dim_div_exact(dims, product, b), a);
    }
    gqac_arena_free(arena);
}

static void test_unknown_and_limits(void) {
    gqac_arena *arena = gqac_arena_create(0);
    ir_dims *dims = ir_dims_create(arena);
    const ir_dim *s = ir_dim_symbol(dims, "S"), *top = ir_dim_const(dims, INT64_MAX);
    CU_ASSERT_PTR_NULL(ir_dim_add(dims, s, NULL));
    CU_ASSERT_PTR_NULL(ir_dim_mul(dims, NULL, s));
    CU_ASSERT_PTR_NULL(ir_dim_max(dims, s, NULL));
    CU_ASSERT_PTR_NULL(ir_dim_floordiv(dims, NULL, 2));
    CU_ASSERT_PTR_NULL(ir_dim_floordiv(dims, s, 0));
    CU_ASSERT_PTR_NULL(ir_dim_add(dims, top, ir_dim_const(dims, 1)));
    CU_ASSERT_PTR_NULL(ir_dim_mul(dims, top, top));
    CU_ASSERT_PTR_NULL(ir_dim_sub(dims, s, ir_dim_const(dims, INT64_MIN)));
    int64_t value;
    const char *name;
    CU_ASSERT_FALSE(ir_dim_is_const(NULL, &value));
    CU_ASSERT_FALSE(ir_dim_is_const(s, &value));
    CU_ASSERT(ir_dim_is_const(ir_dim_sub(dims, s, s), &value) && value == 0);
    CU_ASSERT(ir_dim_is_symbol(s, &name) && strcmp(name, "S") == 0);
    CU_ASSERT_FALSE(ir_dim_is_symbol(ir_dim_floordiv(dims, s, 3), &name));
    CU_ASSERT_FALSE(ir_dim_is_symbol(NULL, &name));
    CU_ASSERT_FALSE(ir_dim_eval(NULL, lookup, NULL, &value));
    CU_ASSERT_FALSE(ir_dim_eval(ir_dim_symbol(dims, "Q"), lookup, NULL, &value));

    const ir_dim *sum = s, *nest = s;
    for (int i = 0; i < 200; i++) {
        char text[16];
        snprintf(text, sizeof text, "x%d", i);
        const ir_dim *x = ir_dim_symbol(dims, text);
        sum = ir_dim_add(dims, sum, x);
        nest = ir_dim_max(dims, ir_dim_floordiv(dims, nest, 3), x);
    }
    CU_ASSERT_PTR_NULL(sum);
    CU_ASSERT_PTR_NULL(nest);
    char *longest = calloc(1, 100001);
    memset(longest, 'a', 100000);
    CU_ASSERT_PTR_NULL(ir_dim_symbol(dims, longest));
    CU_ASSERT_PTR_NOT_NULL(ir_dim_fresh(dims, longest));
    free(longest);
    CU_ASSERT_FALSE(ir_dims_failed(dims));
    gqac_arena_free(arena);
}

static void test_fresh(void) {
    gqac_arena *arena = gqac_arena_create(0);
    ir_dims *dims = ir_dims_create(arena);
    const ir_dim *first = ir_dim_fresh(dims, "S");
    ir_dim_symbol(dims, "S.2");
    CU_ASSERT(prints(first, "S"));
    CU_ASSERT(prints(ir_dim_fresh(dims, "S"), "S.1"));
    CU_ASSERT(prints(ir_dim_fresh(dims, "S"), "S.3"));
    CU_ASSERT(prints(ir_dim_fresh(dims, "/a"), "`/a`"));
    CU_ASSERT(prints(ir_dim_fresh(dims, "/a"), "`/a.1`"));
    CU_ASSERT(prints(ir_dim_fresh(dims, ""), "``"));
    CU_ASSERT(prints(ir_dim_fresh(dims, ""), "`.1`"));
    for (int i = 0; i < 100000; i++)
        ir_dim_fresh(dims, "S");
    CU_ASSERT(prints(ir_dim_fresh(dims, "S"), "S.100004"));
    gqac_arena_free(arena);
}

/* Tables in arenas of every size: an operation that fails returns NULL, and this is recorded. */
static void test_no_room(void) {
    bool enough = false;
    for (size_t budget = 16; !enough && budget < 1 << 20; budget += 16) {
        gqac_arena *arena = gqac_arena_create(budget);
        ir_dims *dims = arena ? ir_dims_create(arena) : NULL;
        enough = dims != NULL;
        for (int i = 0; dims && i < 40; i++) {
            bool ok = false;
            const char *text = "max(P,T)*B+(P+S)/4+`odd name`";
            const ir_dim *dim = ir_dim_parse(dims, &text, &ok);
            const ir_dim *fresh = ir_dim_fresh(dims, "S");
            const ir_dim *sum = ir_dim_add(dims, dim, fresh);
            CU_ASSERT(ok == (dim != NULL));
            enough = enough && dim && fresh && sum;
        }
        CU_ASSERT(!dims || ir_dims_failed(dims) == !enough);
        gqac_arena_free(arena);
    }
    CU_ASSERT(enough);
}

#ifdef GQAC_TEST_ALLOC
static void test_no_memory(void) {
    for (size_t n = 1;; n++) {
        gqac_alloc_fail_at(n, 0);
        gqac_arena *arena = gqac_arena_create(0);
        ir_dims *dims = arena ? ir_dims_create(arena) : NULL;
        const char *text = "max(P,T)*B+(P+S)/4+`odd name`";
        bool ok = false;
        const ir_dim *dim = dims ? ir_dim_parse(dims, &text, &ok) : NULL;
        CU_ASSERT(ok == (dim != NULL));
        CU_ASSERT(!dims || dim || ir_dims_failed(dims));
        gqac_arena_free(arena);
        if (gqac_alloc_calls() < n) {
            CU_ASSERT(ok);
            break;
        }
    }
    gqac_alloc_fail_at(0, 0);
}
#endif

static const unit_case cases[] = {
    {"text", test_text},           {"malformed", test_malformed},
    {"algebra", test_algebra},     {"substitute", test_substitute},
    {"division", test_division},   {"unknown and limits", test_unknown_and_limits},
    {"fresh", test_fresh},         {"no room", test_no_room},
#ifdef GQAC_TEST_ALLOC
    {"no memory", test_no_memory},
#endif
};

int main(int argc, char **argv) {
    return unit_run("ir dim", cases, COUNT(cases), argc, argv);
}
