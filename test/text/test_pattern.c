/* Expressions of pre-tokenizers: what matches, what is refused and how, limits of work and size,
 * failing allocations. test/python/test_pattern.py compares many more with Oniguruma. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/expressions/pattern.h"

#define LLAMA3                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"                      \
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT2  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"                     \
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static pattern *create(const char *source) {
    gqac_diag diag = {0};
    pattern *p = NULL;
    CU_ASSERT_EQUAL(pattern_create(source, strlen(source), &p, &diag), GQAC_OK);
    if (!p)
        printf("%s: %s\n", source, diag.what);
    return p;
}

/* Searches within the allowed work. */
static bool find(const pattern *p, pattern_scratch *s, const char *text, size_t length, size_t from,
                 size_t *begin, size_t *end) {
    pattern_match match;
    if (pattern_find(p, s, text, length, from, &match, NULL) != GQAC_OK) {
        CU_FAIL("work is refused");
        return false;
    }
    *begin = match.begin;
    *end = match.end;
    return match.found;
}

/* All matches, each in brackets, with the text between them unchanged. */
static void expect(const char *source, const char *text, const char *expected) {
    char shown[512];
    size_t n = 0, at = 0, length = strlen(text), begin, end;
    pattern *p = create(source);
    if (!p)
        return;
    pattern_scratch *s = pattern_scratch_create(p);
    while (at < length && find(p, s, text, length, at, &begin, &end)) {
        n += (size_t)snprintf(shown + n, sizeof shown - n, "%.*s[%.*s]", (int)(begin - at),
                              text + at, (int)(end - begin), text + begin);
        if (begin == end) /* skip an empty match */
            n += (size_t)snprintf(shown + n, sizeof shown - n, "%c", text[end++]);
        at = end;
    }
    snprintf(shown + n, sizeof shown - n, "%s", text + at);
    CU_ASSERT_STRING_EQUAL(shown, expected);
    if (strcmp(shown, expected))
        printf("%s on '%s': %s\n", source, text, shown);
    pattern_scratch_free(s);
    pattern_free(p);
}

static void test_models(void) {
    expect(GPT2, "Hello  world's 42!", "[Hello][ ][ world]['s][ 42][!]");
    expect(GPT2, "a   \n", "[a][   \n]");
    expect(LLAMA3, "We'LL see 12345 \n\n x", "[We]['LL][ see][ ][123][45][ \n\n][ x]");
    expect(LLAMA3, "it'\xc5\xbf", "[it]['\xc5\xbf]");
    expect("\\p{N}{1,3}", "1234\xd9\xa3", "[123][4\xd9\xa3]");
    expect("[0-9][0-9][0-9]", "12345678", "[123][456]78");
    expect("[\xe4\xb8\x80-\xe9\xbe\xa5]+", "a\xe4\xb8\xad\xe6\x96\x87z",
           "a[\xe4\xb8\xad\xe6\x96\x87]z");
}

static void test_priority(void) {
    expect("a|ab|abc", "abc", "[a]bc");
    expect("(?:a|ab)(?:c|bcd)d*", "abcdd", "[abcdd]");
    expect("a+?", "aaa", "[a][a][a]");
    expect("a+?b|a", "aaab", "[aaab]");
    expect("a{2}?", "aaaa", "[aa][aa]");
    expect("(?:a{2})+b|a", "aaaab", "[aaaab]");
    expect("a*b|a", "aaac", "[a][a][a]c");
    expect("b?", "ab", "[]a[b]");
}

static void test_possessive(void) {
    expect("a++a", "aaaa", "aaaa");
    expect("a++b|a", "aaab", "[aaab]");
    expect("a?+a", "aab", "[aa]b");
    expect("\\s++$|x", " \n x", " \n [x]"); /* without ++ it would give " \n" back */
    expect("\\s+$|x", " \n x", "[ ]\n [x]");
    expect("(?>a+)b", "aab", "[aab]");
}

static void test_places(void) {
    expect("^a|b$", "a\nab\nb", "[a]\n[a][b]\n[b]");
    expect("\\Aa|a\\z", "aaa", "[a]a[a]");
    expect("\\bab?", "ab cab a", "[ab] cab [a]");
    expect("\\Ba", "aaba", "a[a]b[a]");
    expect("(?<!\\s)b", "b ab b", "[b] a[b] b");
    expect("a(?=\\s|$)|c(?=[ab])", "aca b", "a[c][a] b");
    expect("\\s(?!\\S+)", "a  b ", "a[ ] b[ ]");
}

static void test_classes(void) {
    expect("[a-c&&[^b]]", "abcd", "[a]b[c]d");
    expect("[^\\s\\S]|[\\]x-]", "a]x-", "a[]][x][-]");
    expect("(?i:k)", "kK\xe2\x84\xaa", "[k][K][\xe2\x84\xaa]");
    expect("(?i)a|b", "aBA", "[a][B][A]");
    expect("x(?i)a|b", "aBxA", "aB[xA]");
    expect("\\x41\\x{42}\\u0043", "ABC", "[ABC]");
    expect("\\s+", "a\xc2\x85\xe3\x80\x80\x1c", "a[\xc2\x85\xe3\x80\x80]\x1c");
    expect(".", "\na", "\n[a]");
}

/* ---- what is refused ----------------------------------------------------- */

typedef struct refusal {
    const char *source;
    gqac_status status;
    const char *words;
} refusal;

static void test_refused(void) {
    static const refusal all[] = {
        {"ab(c)\\1", GQAC_UNSUPPORTED, "a back reference at byte 5"},
        {"a(?=bc)", GQAC_UNSUPPORTED, "a lookahead of more than one character at byte 1"},
        {"(?=a?b)", GQAC_UNSUPPORTED, "a lookahead of more"},
        {"(?<=ab)", GQAC_UNSUPPORTED, "a lookbehind of more"},
        {"(?<=^)", GQAC_UNSUPPORTED, "a lookbehind of more"},
        {"(?>ab|a)", GQAC_UNSUPPORTED, "an atomic group"},
        {"(?:ab)?+", GQAC_UNSUPPORTED, "a possessive repeat"},
        {"(?:a++b){2}", GQAC_UNSUPPORTED, "a counted repeat of something possessive at byte 8"},
        {"(?:a?)*", GQAC_UNSUPPORTED, "an unbounded repeat of what may be empty"},
        {"(?:^|b)+", GQAC_UNSUPPORTED, "an unbounded repeat of what may be empty"},
        {"\\p{Han}", GQAC_UNSUPPORTED, "the property Han"},
        {"\\pL", GQAC_UNSUPPORTED, "a property without braces"},
        {"[[:alpha:]]", GQAC_UNSUPPORTED, "a POSIX class"},
        {"[]a]", GQAC_UNSUPPORTED, "begins with ']'"},
        {"[a-c-e]", GQAC_UNSUPPORTED, "'-' in the middle"},
        {"(?x:a)", GQAC_UNSUPPORTED, "an unsupported kind of group"},
        {"(?~a)", GQAC_UNSUPPORTED, "an unsupported kind of group"},
        {"(?(1)a)", GQAC_UNSUPPORTED, "an unsupported kind of group"},
        {"\\G", GQAC_UNSUPPORTED, "an unsupported escape"},
        {"\\Z", GQAC_UNSUPPORTED, "an unsupported escape"},
        {"\\xff", GQAC_UNSUPPORTED, "a byte that is not a character"},
        {"(?i:first)", GQAC_UNSUPPORTED, "match U+FB01 too"},
        {"(?i:\xc3\x9f)", GQAC_UNSUPPORTED, "U+00DF"},
        {"a{3,2}", GQAC_UNSUPPORTED, "a repeat whose minimum is above its maximum"},
        {"a{1001}", GQAC_LIMIT, "more than 1000 times"},
        {"a{99999999999}", GQAC_LIMIT, "more than 1000 times"},
        {"(?:a{1000}){1000}", GQAC_LIMIT, "16384 steps"},
        {"a??????????????????????????????", GQAC_LIMIT, "8 repeats"},
        {"(a", GQAC_INVALID_MODEL, "not closed at byte 0"},
        {"a)", GQAC_INVALID_MODEL, "closes nothing at byte 1"},
        {"[a", GQAC_INVALID_MODEL, "a class that is not closed"},
        {"[a-", GQAC_INVALID_MODEL, "a class that is not closed"},
        {"[b-a]", GQAC_INVALID_MODEL, "a range that ends"},
        {"*a", GQAC_INVALID_MODEL, "a repeat of nothing"},
        {"^*", GQAC_INVALID_MODEL, "a repeat of nothing"},
        {"\\", GQAC_INVALID_MODEL, "escapes nothing at byte 0"},
        {"\\x{110000}", GQAC_INVALID_MODEL, "not a character"},
        {"\\ud800", GQAC_INVALID_MODEL, "not a character"},
        {"a\xff", GQAC_INVALID_MODEL, "byte 1 of the expression is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        gqac_diag diag = {0};
        pattern *p = NULL;
        gqac_status status = pattern_create(all[i].source, strlen(all[i].source), &p, &diag);
        CU_ASSERT_EQUAL(status, all[i].status);
        CU_ASSERT(strstr(diag.what, all[i].words) != NULL);
        if (status != all[i].status || !strstr(diag.what, all[i].words))
            printf("%s: %s '%s'\n", all[i].source, gqac_status_name(status), diag.what);
        if (status == GQAC_OK)
            pattern_free(p);
    }
}

/* A text of n bytes that repeats `piece`. */
static char *repeat(const char *piece, size_t n) {
    char *text = malloc(n + 1);
    size_t length = strlen(piece);
    for (size_t i = 0; i < n; i++)
        text[i] = piece[i % length];
    text[n] = '\0';
    return text;
}

static gqac_status status_of(const char *piece, size_t n) {
    char *source = repeat(piece, n);
    pattern *p = NULL;
    gqac_status status = pattern_create(source, n, &p, NULL);
    if (status == GQAC_OK)
        pattern_free(p);
    free(source);
    return status;
}

static void test_limits(void) {
    CU_ASSERT_EQUAL(status_of("(", 16384), GQAC_LIMIT);
    CU_ASSERT_EQUAL(status_of("[", 16384), GQAC_LIMIT);
    CU_ASSERT_EQUAL(status_of("(?i)", 16384), GQAC_LIMIT);
    CU_ASSERT_EQUAL(status_of("(?=", 16383), GQAC_LIMIT);
    CU_ASSERT_EQUAL(status_of("a", 16385), GQAC_LIMIT);
    CU_ASSERT_EQUAL(status_of("[\\w]", 16000), GQAC_OK);
    CU_ASSERT_EQUAL(status_of("()", 16384), GQAC_OK);
    char many[2048]; /* more than 256 different characters */
    size_t n = 0;
    for (int i = 0; i < 300; i++)
        n += (size_t)sprintf(many + n, "%c%c", 0xc4 + i / 64, 0x80 + i % 64);
    gqac_diag diag = {0};
    pattern *p;
    CU_ASSERT_EQUAL(pattern_create(many, n, &p, &diag), GQAC_LIMIT);
    CU_ASSERT(strstr(diag.what, "256 different") != NULL);
}

/* ---- work ---------------------------------------------------------------- */

/* The work of all matches of a text, each from the end of the last one. */
static uint64_t work_of_all(const pattern *p, const char *text, size_t length) {
    size_t begin, end;
    pattern_scratch *s = pattern_scratch_create(p);
    pattern_scratch_admit(s, length);
    for (size_t at = 0; at < length && find(p, s, text, length, at, &begin, &end);)
        at = end > at ? end : at + 1;
    uint64_t steps = pattern_scratch_steps(s);
    pattern_scratch_free(s);
    return steps;
}

static void test_linear_overall(void) {
    static const char *const sources[] = {GPT2,
                                          LLAMA3,
                                          O200K,
                                          "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
                                          "\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s",
                                          "[\\p{Lu}]*[\\p{Ll}]+|[\\p{Lu}]+[\\p{Ll}]*|\\s"};
    static const char *const pieces[] = {" ",   "a", "A", "\n", "a ",          " \n",
                                         "\n ", "1", "!", "'s", "\xe3\x80\x80"};
    const size_t length = (size_t)1 << 20;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        pattern *p = create(sources[i]);
        for (size_t j = 0; p && j < sizeof pieces / sizeof *pieces; j++) {
            const size_t n = length - length % strlen(pieces[j]);
            char *text = repeat(pieces[j], n);
            CU_ASSERT(work_of_all(p, text, n) < 6 * n + 100000);
            if (text[n - 1] == ' ')
                text[n - 1] = 'x'; /* a run that ends with another character */
            CU_ASSERT(work_of_all(p, text, n) < 6 * n + 100000);
            free(text);
        }
        pattern_free(p);
    }
}

static void test_linear_call(void) {
    static const char *const sources[] = {
        "a*b",      "(?:a|aa)+b",        "(?:a*a*)a*a*b",   "[ab]*c[ab]{40}d",
        "(?:a+)+b", "(?:a|b|ab)+(?=c)c", "(?<!a)a*b|a{50}b"};
    const size_t length = (size_t)1 << 18;
    char *text = repeat("aaaaaaab", length), *plain = repeat("a", length);
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        pattern *p = create(sources[i]);
        if (!p)
            continue;
        const char *both[] = {text, plain};
        for (int j = 0; j < 2; j++) {
            size_t begin, end;
            pattern_scratch *s = pattern_scratch_create(p);
            pattern_scratch_admit(s, length);
            find(p, s, both[j], length, 0, &begin, &end);
            CU_ASSERT(pattern_scratch_steps(s) < 400 * length);
            pattern_scratch_free(s);
        }
        pattern_free(p);
    }
    free(text);
    free(plain);
}

/* Matches that each read far beyond their end, and expressions that are slow for every character:
 * the search stops when the allowed work is done, which is less for a shorter text. */
static void test_refused_work(void) {
    char big[12000] = "";
    for (int i = 0; i < 1000; i++)
        strcat(big, "(?:(a|b)?)");
    strcat(big, "c");
    const char *const sources[] = {"a*b|a", "[ab]*a[ab]{14}c|[ab]{3}", "[ab]*a[ab]{200}c", big};
    static const size_t lengths[] = {100000, 400000};
    char *text = repeat("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", lengths[1]);
    for (size_t i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++) {
            pattern *p = create(sources[i]);
            pattern_scratch *s = pattern_scratch_create(p);
            gqac_diag diag = {0};
            pattern_match match = {.found = true};
            gqac_status status = GQAC_OK;
            pattern_scratch_admit(s, lengths[k]);
            for (size_t at = 0; at < lengths[k] && match.found && status == GQAC_OK; at = match.end)
                status = pattern_find(p, s, text, lengths[k], at, &match, &diag);
            CU_ASSERT_EQUAL(status, GQAC_LIMIT);
            CU_ASSERT(strstr(diag.what, "the expression '") && strstr(diag.what, " steps"));
            CU_ASSERT(*diag.rule && *diag.hint);
            CU_ASSERT(pattern_scratch_steps(s) < 66 * lengths[k] + (5 << 20));
            status = pattern_find(p, s, text, lengths[k], 0, &match, &diag);
            CU_ASSERT_EQUAL(status, GQAC_LIMIT); /* and remains so until there is another text */
            pattern_scratch_admit(s, lengths[k]);
            status = pattern_find(p, s, "c", 1, 0, &match, &diag);
            CU_ASSERT_EQUAL(status, GQAC_OK);
            pattern_scratch_free(s);
            pattern_free(p);
        }
    free(text);
}

/* More states than are kept, and the pass with all beginnings: the matches are the same. */
static void test_many_states(void) {
    pattern *p = create("[ab]*a[ab]{14}c|[ab]{3}");
    char text[6001];
    uint32_t random = 1;
    for (size_t i = 0; i < 6000; i++) {
        random = random * 1664525 + 1013904223;
        text[i] = random >> 28 < 8 ? 'a' : 'b';
    }
    text[6000] = '\0';
    pattern_scratch *s = pattern_scratch_create(p);
    size_t begin, end;
    CU_ASSERT(find(p, s, text, 6000, 0, &begin, &end) && begin == 0 && end == 3);
    memcpy(text + 5984, "abbbbbbbbbbbbbbc", 16);
    CU_ASSERT(find(p, s, text, 6000, 0, &begin, &end) && begin == 0 && end == 6000);
    pattern_scratch_free(s);
    pattern_free(p);

    p = create("a[ab]*c|d"); /* found late, after many failed attempts */
    s = pattern_scratch_create(p);
    memset(text, 'a', 6000);
    text[5990] = 'd';
    CU_ASSERT(find(p, s, text, 6000, 0, &begin, &end) && begin == 5990 && end == 5991);
    text[5995] = 'a', text[5999] = 'c';
    CU_ASSERT(find(p, s, text, 6000, 5991, &begin, &end) && begin == 5991 && end == 6000);
    text[5990] = 'b';
    CU_ASSERT(find(p, s, text, 6000, 7, &begin, &end) && begin == 7 && end == 6000);
    pattern_scratch_free(s);
    pattern_free(p);

    p = create("a[abc]*c|d"); /* found late, and longer than when it was first found */
    s = pattern_scratch_create(p);
    memset(text, 'a', 6000);
    memcpy(text + 5990, "xaacbac", 7);
    CU_ASSERT(find(p, s, text, 6000, 7, &begin, &end) && begin == 5991 && end == 5997);
    pattern_scratch_free(s);
    pattern_free(p);
}

/* ---- memory -------------------------------------------------------------- */

static void test_memory(void) {
    static const char source[] = "(?i:k|[x])|\\b[^\\s&&\\p{L}]++(?!a)|^a|\\w";
    size_t live = gqac_alloc_live();
    gqac_diag diag = {0};
    pattern *p = NULL;
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_EQUAL_FATAL(pattern_create(source, strlen(source), &p, NULL), GQAC_OK);
    size_t n = gqac_alloc_calls();
    pattern_free(p);
    size_t failed = 0;
    for (size_t i = 1; i <= n; i++) {
        gqac_alloc_fail_at(i, 0);
        gqac_status status = pattern_create(source, strlen(source), &p, &diag);
        if (status == GQAC_OK) /* freeing memory may fail */
            pattern_free(p);
        else
            failed += status == GQAC_NO_MEMORY;
        CU_ASSERT(status == GQAC_OK || status == GQAC_NO_MEMORY);
        CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    }
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT(failed + 1 >= n && n > 20);
    p = create(source);
    for (size_t i = 1; i <= 12; i++) {
        gqac_alloc_fail_at(i, 0);
        pattern_scratch *s = pattern_scratch_create(p);
        CU_ASSERT((s != NULL) == (i > 11));
        pattern_scratch_free(s);
    }
    gqac_alloc_fail_at(0, 0);
    pattern_free(p);
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
}

static const unit_case cases[] = {
    {"texts as models split them", test_models},
    {"earlier alternatives and longer repeats first", test_priority},
    {"possessive repeats give nothing back", test_possessive},
    {"places and looks", test_places},
    {"classes, escapes and case", test_classes},
    {"what is refused is named", test_refused},
    {"size and nesting are bounded", test_limits},
    {"all matches of a text: linear work", test_linear_overall},
    {"one call: linear work for any expression", test_linear_call},
    {"work is bounded over all matches of a text", test_refused_work},
    {"states that are forgotten, beginnings at once", test_many_states},
    {"allocations that fail", test_memory},
};

int main(int argc, char **argv) {
    return unit_run("pattern", cases, sizeof cases / sizeof *cases, argc, argv);
}
