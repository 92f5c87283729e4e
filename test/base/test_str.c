/* Text buffers, numbers as text (in every locale), UTF-8. */
#include <float.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "unit.h"

static void appends_grow(void) {
    gqac_str s = {0};
    CU_ASSERT_PTR_NULL(s.text);
    gqac_str_append(&s, "");
    CU_ASSERT_STRING_EQUAL(s.text, "");
    for (int i = 0; i < 1000; i++)
        gqac_str_printf(&s, "%d,", i);
    gqac_str_append_n(&s, "endless", 3);
    CU_ASSERT_FALSE(s.failed);
    CU_ASSERT_EQUAL(s.length, strlen(s.text));
    CU_ASSERT_EQUAL(s.length, 10 * 2 + 90 * 3 + 900 * 4 + 3);
    CU_ASSERT_STRING_EQUAL(s.text + s.length - 7, "999,end");
    gqac_str_free(&s);
    CU_ASSERT(s.text == NULL && s.length == 0);
}

static void absurd_length_fails(void) {
    gqac_str s = {0};
    gqac_str_append(&s, "a");
    gqac_str_append_n(&s, "b", SIZE_MAX);
    CU_ASSERT_TRUE(s.failed);
    gqac_str_append(&s, "c");
    CU_ASSERT_STRING_EQUAL(s.text, "a");
    gqac_str_free(&s);
}

#ifdef GQAC_TEST_ALLOC
static void failure_sticks(void) {
    gqac_str s = {0};
    gqac_str_append(&s, "kept");
    gqac_alloc_fail_at(1, 0);
    gqac_str_printf(&s, "%100d", 1);
    CU_ASSERT_TRUE(s.failed);
    gqac_str_append(&s, "later");
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_STRING_EQUAL(s.text, "kept");
    gqac_str_free(&s);
}
#endif

static void check_format(float value, const char *expected) {
    char buffer[32];
    gqac_format_float(buffer, value);
    CU_ASSERT_STRING_EQUAL(buffer, expected);
}

static void floats_are_short(void) {
    check_format(0.0f, "0.0");
    check_format(-0.0f, "-0.0");
    check_format(1.0f, "1.0");
    check_format(-2.5f, "-2.5");
    check_format(0.1f, "0.1");
    check_format(0.0883883461f, "0.088388346");
    check_format(0.0001f, "0.0001");
    check_format(0.00001f, "1e-05");
    check_format(10000.0f, "10000.0");
    check_format(1e6f, "1000000.0");
    check_format(16777216.0f, "16777216.0");
    check_format(1e9f, "1e+09");
    check_format(FLT_MAX, "3.4028235e+38");
    check_format(1e-45f, "1e-45");
    check_format(INFINITY, "inf");
    check_format(-INFINITY, "-inf");
    check_format(NAN, "nan");
}

static void check_round_trip(uint32_t bits) {
    float value, back = 0;
    char buffer[32];
    memcpy(&value, &bits, sizeof value);
    if (isnan(value))
        return;
    gqac_format_float(buffer, value);
    bool same = gqac_parse_float(buffer, &back) && memcmp(&value, &back, sizeof value) == 0;
    if (!same) {
        CU_FAIL("a float does not read back");
    }
}

static void floats_read_back(void) {
    const uint32_t step = unit_full() ? 1009 : 50021;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += step)
        check_round_trip((uint32_t)bits);
    for (uint32_t exponent = 0; exponent < 256; exponent++) {
        check_round_trip(exponent << 23);
        check_round_trip((exponent << 23) - 1);
    }
}

static void integers_are_whole_texts(void) {
    static const char *const bad[] = {"",
                                      "-",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1x",
                                      "0x1",
                                      "1.0",
                                      "--1",
                                      "1e3",
                                      "9223372036854775808",
                                      "-9223372036854775809"};
    long long value = 77;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CU_ASSERT_FALSE(gqac_parse_i64(bad[i], &value));
    CU_ASSERT_EQUAL(value, 77);
    CU_ASSERT(gqac_parse_i64("-9223372036854775808", &value) && value == LLONG_MIN);
    CU_ASSERT(gqac_parse_i64("9223372036854775807", &value) && value == LLONG_MAX);
    CU_ASSERT(gqac_parse_i64("007", &value) && value == 7);
    CU_ASSERT(gqac_parse_i64("-0", &value) && value == 0);
}

static void floats_are_whole_texts(void) {
    static const char *const bad[] = {"",       "-",        " 1",   "1 ",    "1,5",
                                      "0x1p3",  "1e",       "1e99", "-1e99", "INF",
                                      "nan(1)", "infinity", ".",    "1.2.3"};
    float value = 77;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CU_ASSERT_FALSE(gqac_parse_float(bad[i], &value));
    CU_ASSERT_EQUAL(value, 77);
    CU_ASSERT(gqac_parse_float("1.5", &value) && value == 1.5f);
    CU_ASSERT(gqac_parse_float("-.5e1", &value) && value == -5.0f);
    CU_ASSERT(gqac_parse_float("+2", &value) && value == 2.0f);
    CU_ASSERT(gqac_parse_float("1e-99", &value) && value == 0.0f);
    CU_ASSERT(gqac_parse_float("-inf", &value) && isinf(value) && value < 0);
    CU_ASSERT(gqac_parse_float("nan", &value) && isnan(value));
}

/* A program may have set a locale with a decimal comma, which need not exist on this machine. */
static void locale_does_not_matter(void) {
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (setlocale(LC_ALL, names[i]))
            break;
    float value = 0;
    check_format(0.5f, "0.5");
    CU_ASSERT(gqac_parse_float("0.5", &value) && value == 0.5f);
    setlocale(LC_ALL, "C");
}

/* Pairs may be nested, and the locale of the thread is restored. */
static void locale_comes_back(void) {
    locale_t own = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0); /* some systems lack it */
    const locale_t first = uselocale(own), mine = uselocale((locale_t)0);
    const char *const codes = nl_langinfo(CODESET);
    float value = 0;
    for (int i = 0; i < 2; i++) {
        locale_t outer = gqac_c_locale_begin();
        CU_ASSERT(!own || strcmp(nl_langinfo(CODESET), codes) != 0);
        locale_t inner = gqac_c_locale_begin();
        CU_ASSERT(gqac_strtod("1.5", NULL) == 1.5);
        check_format(0.5f, "0.5");
        CU_ASSERT(gqac_parse_float("0.5", &value) && value == 0.5f);
        gqac_c_locale_end(inner);
        CU_ASSERT(!own || strcmp(nl_langinfo(CODESET), codes) != 0);
        gqac_c_locale_end(outer);
        CU_ASSERT(uselocale((locale_t)0) == mine && !strcmp(nl_langinfo(CODESET), codes));
    }
    uselocale(first);
    if (own)
        freelocale(own);
}

static void utf8_is_strict(void) {
    static const char *const good[] = {"",
                                       "abc",
                                       "\xc3\xa9",
                                       "\xe2\x82\xac",
                                       "\xf0\x9f\x98\x80",
                                       "\xef\xbf\xbf",
                                       "\xf4\x8f\xbf\xbf",
                                       "\xed\x9f\xbf"};
    static const char *const bad[] = {
        "\x80",     "\xc3",         "\xc0\x80",         "\xc1\xbf",         "\xe0\x80\x80",
        "\xe2\x82", "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
        "\xff",     "a\xfe",        "\xe2\x28\xa1"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        CU_ASSERT_TRUE(gqac_utf8_valid(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CU_ASSERT_FALSE(gqac_utf8_valid(bad[i], strlen(bad[i])));
    CU_ASSERT_FALSE(gqac_utf8_valid("a\0b", 3));
    CU_ASSERT_EQUAL(gqac_utf8_char("\xe2\x82\xac!", 4), 3);
    CU_ASSERT_EQUAL(gqac_utf8_char("\xe2\x82\xac!", 2), 0);
    CU_ASSERT_EQUAL(gqac_utf8_char("", 0), 0);
}

static const unit_case cases[] = {
    {"appends grow", appends_grow},
    {"an absurd length fails", absurd_length_fails},
#ifdef GQAC_TEST_ALLOC
    {"a failure sticks", failure_sticks},
#endif
    {"floats are short", floats_are_short},
    {"floats read back", floats_read_back},
    {"integers are whole texts", integers_are_whole_texts},
    {"floats are whole texts", floats_are_whole_texts},
    {"the locale does not matter", locale_does_not_matter},
    {"the thread's own locale comes back", locale_comes_back},
    {"UTF-8 is strict", utf8_is_strict},
};

int main(int argc, char **argv) {
    return unit_run("base/str", cases, sizeof cases / sizeof cases[0], argc, argv);
}
