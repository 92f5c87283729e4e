/* Categories, spaces, normal forms and lower case of characters. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/unicode.h"

static uint32_t mask_of(const char *name) {
    uint32_t mask = 0;
    CU_ASSERT(unicode_category(name, strlen(name), &mask));
    return mask;
}

static void test_categories(void) {
    uint32_t mask;
    CU_ASSERT_EQUAL(mask_of("L"),
                    mask_of("Lu") | mask_of("Ll") | mask_of("Lt") | mask_of("Lm") | mask_of("Lo"));
    CU_ASSERT_EQUAL(mask_of("LC"), mask_of("Lu") | mask_of("Ll") | mask_of("Lt"));
    CU_ASSERT_EQUAL(mask_of("Uppercase_Letter"), mask_of("lu"));
    CU_ASSERT_EQUAL(mask_of("decimal number"), mask_of("Nd"));
    CU_ASSERT_EQUAL(mask_of("L") | mask_of("M") | mask_of("N") | mask_of("P") | mask_of("S") |
                        mask_of("Z") | mask_of("C"),
                    (UINT32_C(1) << 30) - 1);
    static const char *const none[] = {"",
                                       "Lx",
                                       "Han",
                                       "Alpha",
                                       "LL u",
                                       "Lu\n",
                                       "Decimal_Numbers",
                                       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CU_ASSERT(!unicode_category(none[i], strlen(none[i]), &mask));
    CU_ASSERT(!unicode_category("Lu\0", 3, &mask));
    CU_ASSERT(unicode_is('A', mask_of("Lu")) && !unicode_is('A', mask_of("Ll")));
    CU_ASSERT(unicode_is(0x4e2d, mask_of("Lo")) && unicode_is(0x301, mask_of("Mn")));
    CU_ASSERT(unicode_is(0x1f600, mask_of("So")) && unicode_is(0x378, mask_of("Cn")));
    CU_ASSERT(unicode_is(0x10ffff, mask_of("Cn")) && unicode_is(0xe000, mask_of("Co")));
}

static void test_spaces(void) {
    static const int32_t spaces[] = {0x9,    0xd,    0x20,   0x85,   0xa0,   0x1680, 0x2000,
                                     0x200a, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000};
    static const int32_t others[] = {0x8, 0xe, 0x1c, 0x1f, 0x200b, 0x180e, 0xfeff, 'a', 0};
    int n = 0;
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        CU_ASSERT(unicode_is_space(spaces[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CU_ASSERT(!unicode_is_space(others[i]));
    for (int32_t c = 0; c < 0x110000; c++)
        n += unicode_is_space(c);
    CU_ASSERT_EQUAL(n, 25);
    CU_ASSERT(unicode_is_word('_') && unicode_is_word(0x301) && unicode_is_word(0x663));
    CU_ASSERT(unicode_is_word(0x2167) && unicode_is_word(0x24b6) && !unicode_is_word(0xbd));
    CU_ASSERT(!unicode_is_word('-') && !unicode_is_word(0x1f600));
}

static void test_read(void) {
    static const char text[] = "a\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80";
    static const int32_t expected[] = {'a', 0xe9, 0x4e2d, 0x1f600};
    size_t at = 0;
    for (int i = 0; i < 4; i++) {
        int32_t c;
        size_t n = unicode_read(text + at, sizeof text - 1 - at, &c);
        CU_ASSERT(n == (size_t)i + 1 && c == expected[i]);
        at += n;
    }
}

static void expect(unicode_form form, const char *text, const char *expected) {
    gqac_str out = {0};
    CU_ASSERT_EQUAL(unicode_normalise(form, text, strlen(text), SIZE_MAX, &out, NULL), GQAC_OK);
    CU_ASSERT(out.length == strlen(expected) && !memcmp(out.text, expected, out.length));
    gqac_str_free(&out);
}

static void test_forms(void) {
    expect(UNICODE_NFC, "e\xcc\x81", "\xc3\xa9");
    expect(UNICODE_NFD, "\xc3\xa9", "e\xcc\x81");
    expect(UNICODE_NFC, "\xef\xac\x81", "\xef\xac\x81");
    expect(UNICODE_NFKC, "\xef\xac\x81\xe2\x91\xa0", "fi1");
    expect(UNICODE_NFKD, "\xea\xb0\x80\xc2\xbd",
           "\xe1\x84\x80\xe1\x85\xa1"
           "1\xe2\x81\x84"
           "2");
    expect(UNICODE_NFC, "\xe1\x84\x80\xe1\x85\xa1", "\xea\xb0\x80");
    expect(UNICODE_NFD, "a\xcc\x81\xcc\xa3", "a\xcc\xa3\xcc\x81"); /* the dot below comes first */
    expect(UNICODE_NFC, "a\xcc\x81\xcc\xa3", "\xe1\xba\xa1\xcc\x81");
    expect(UNICODE_NFC, "plain", "plain");
    expect(UNICODE_NFKC, "\xc2\xa8", " \xcc\x88");
    gqac_str out = {0};
    static const char lower[] = "A\xc3\x89\xc4\xb0\xe1\xba\x9e";
    gqac_str_append(&out, "x"); /* it appends */
    CU_ASSERT_EQUAL(unicode_lower(lower, sizeof lower - 1, &out, NULL), GQAC_OK);
    CU_ASSERT(!strcmp(out.text, "xa\xc3\xa9i\xcc\x87\xc3\x9f"));
    gqac_str_free(&out);
}

/* A long run of marks in the wrong order: a quadratic sort would take minutes. */
static void test_many_marks(void) {
    const size_t n = (size_t)1 << 20;
    char *text = malloc(2 * n);
    gqac_str out = {0};
    for (size_t i = 0; i < n; i++)
        memcpy(text + 2 * i, i % 2 ? "\xcc\xa3" : "\xcc\x81", 2);
    CU_ASSERT_EQUAL(unicode_normalise(UNICODE_NFD, text, 2 * n, SIZE_MAX, &out, NULL), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(out.length, 2 * n);
    bool good = true;
    for (size_t i = 0; i < n; i++)
        good = good && !memcmp(out.text + 2 * i, i < n / 2 ? "\xcc\xa3" : "\xcc\x81", 2);
    CU_ASSERT(good);
    gqac_str_free(&out);
    free(text);
}

static void test_memory(void) {
    static const char text[] = "a\xcc\x81\xcc\xa3 \xef\xb7\xba";
    size_t live = gqac_alloc_live(), failed = 0;
    for (size_t i = 1; i < 8; i++) {
        gqac_diag diag = {0};
        gqac_str out = {0};
        gqac_alloc_fail_at(i, 0);
        gqac_status status =
            unicode_normalise(UNICODE_NFKC, text, sizeof text - 1, SIZE_MAX, &out, &diag);
        CU_ASSERT(status == GQAC_OK || (status == GQAC_NO_MEMORY && *diag.what));
        failed += status != GQAC_OK;
        gqac_alloc_fail_at(0, 0);
        gqac_str_free(&out);
        CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    }
    CU_ASSERT(failed >= 3 && failed < 7);
    gqac_str out = {0};
    gqac_alloc_fail_at(1, 0);
    CU_ASSERT_EQUAL(unicode_lower("A", 1, &out, NULL), GQAC_NO_MEMORY);
    gqac_alloc_fail_at(0, 0);
    gqac_str_free(&out);
}

/* Every code point is written, read, and found from its end. */
static void test_write(void) {
    char text[8] = "\xc3\xa4";
    int wrong = 0;
    for (int32_t c = 0; c < 0x110000; c++) {
        int32_t again = -1;
        if (c >= 0xd800 && c < 0xe000)
            continue;
        size_t n = unicode_write(c, text + 2);
        wrong += gqac_utf8_char(text + 2, n) != n || unicode_read(text + 2, n, &again) != n ||
                 again != c || unicode_before(text, 0, 2 + n) != 2;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT_EQUAL(unicode_write(0x110000, text), 0);
    CU_ASSERT_EQUAL(unicode_write(-1, text), 0);
    CU_ASSERT_EQUAL(unicode_before("\x80\x80\x80", 1, 3), 1);
    CU_ASSERT_EQUAL(unicode_before("\x80\x80\x80", 0, 1), 0);
    const char digits[] = "0123456789abcdefABCDEF";
    for (int i = 0; i < 22; i++)
        CU_ASSERT_EQUAL(unicode_hex_digit(digits[i]), i < 16 ? i : i - 6);
    for (const char *c = "/:@G`g \xc1"; *c; c++)
        CU_ASSERT_EQUAL(unicode_hex_digit(*c), -1);
}

static void test_bound(void) {
    gqac_str out = {0};
    gqac_diag diag = {0};
    CU_ASSERT_EQUAL(unicode_normalise(UNICODE_NFKD, "\xef\xb7\xba", 3, 18, &out, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(out.length, 33);
    CU_ASSERT_EQUAL(unicode_normalise(UNICODE_NFKD, "\xef\xb7\xba", 3, 17, &out, &diag),
                    GQAC_LIMIT);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "17"));
    gqac_str_free(&out);
}

static const unit_case cases[] = {
    {"categories by name", test_categories},
    {"spaces and words", test_spaces},
    {"reading characters", test_read},
    {"normal forms and lower case", test_forms},
    {"a long run of marks", test_many_marks},
    {"allocations that fail", test_memory},
    {"a bound on what a text becomes", test_bound},
    {"characters written and read back", test_write},
};

int main(int argc, char **argv) {
    return unit_run("unicode", cases, sizeof cases / sizeof *cases, argc, argv);
}
