/* Grammars and JSON Schemas: which texts are accepted, which grammars are refused and how, limits
 * for hostile ones, forgetting of states, failing allocations. python/tests/test_constraint.py
 * compares masks with an implementation of its own, and answers with jsonschema. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "text/grammar/automaton.h"

static gqac_diag diag;

typedef gqac_status compile(const char *text, size_t length, grammar **out, gqac_diag *d);

static grammar *make(compile *how, const char *source) {
    grammar *g = NULL;
    diag = (gqac_diag){0};
    const gqac_status status = how(source, strlen(source), &g, &diag);
    if (status != GQAC_OK)
        printf("%s: %s; %s\n", source, diag.what, diag.where);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    return g;
}

/* 'y': the text is accepted; 'p': it is the beginning of an accepted text; 'n': neither. */
static char read_text(automaton *a, const char *text, size_t length) {
    uint32_t state = AUTOMATON_DEAD;
    CU_ASSERT_EQUAL_FATAL(automaton_start(a, &state, &diag), GQAC_OK);
    for (size_t i = 0; i < length && state != AUTOMATON_DEAD; i++)
        CU_ASSERT_EQUAL_FATAL(automaton_next(a, state, (uint8_t)text[i], &state, &diag), GQAC_OK);
    return state == AUTOMATON_DEAD ? 'n' : a->states[state].may_end ? 'y' : 'p';
}

/* `texts` are pairs of an expected result and a text, and end with NULL: "y", "abc", "n", "x",
 * NULL. */
static void expect(compile *how, const char *source, const char *const *texts) {
    grammar *g = make(how, source);
    automaton a;
    CU_ASSERT_EQUAL_FATAL(automaton_open(&a, g, &diag), GQAC_OK);
    for (; *texts; texts += 2) {
        const char found = read_text(&a, texts[1], strlen(texts[1]));
        if (found != **texts)
            printf("%s\n  '%s' is '%c', not '%s'\n", source, texts[1], found, *texts);
        CU_ASSERT_EQUAL(found, **texts);
    }
    automaton_close(&a);
    grammar_free(g);
}
#define RULES(source, ...)  expect(grammar_from_rules, source, (const char *[]){__VA_ARGS__, NULL})
#define SCHEMA(source, ...) expect(grammar_from_schema, source, (const char *[]){__VA_ARGS__, NULL})

static void refuse(compile *how, const char *source, gqac_status status, const char *what,
                   const char *where) {
    grammar *g = NULL;
    diag = (gqac_diag){0};
    const gqac_status found = how(source, strlen(source), &g, &diag);
    if (found != status || !strstr(diag.what, what) || !strstr(diag.where, where))
        printf("%.200s\n  %s '%s' at '%s'\n", source, gqac_status_name(found), diag.what,
               diag.where);
    CU_ASSERT_EQUAL(found, status);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, what));
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.where, where));
    CU_ASSERT_PTR_NULL(g);
    grammar_free(g);
}
#define NO_RULES(source, what, where)                                                              \
    refuse(grammar_from_rules, source, GQAC_INVALID_INPUT, what, where)
#define NO_SCHEMA(source, status, what, where)                                                     \
    refuse(grammar_from_schema, source, status, what, where)

/* ---- rules --------------------------------------------------------------- */

static void test_rules(void) {
    RULES("root ::= \"yes\" | \"no\"", "y", "yes", "y", "no", "p", "ye", "p", "", "n", "yess", "n",
          "x");
    RULES("root ::= [a-c]+ # letters\n  \"!\"?", "y", "a", "y", "abc!", "p", "", "n", "d", "n",
          "a!!");
    RULES("root ::= item (\",\" item)*\nitem ::= [0-9]{2,3}", "y", "12", "y", "12,345", "p", "12,",
          "p", "1", "n", "1234", "n", ",");
    RULES("root ::= \"(\" root \")\" | \"\"\n", "y", "", "y", "(())", "p", "((", "n", ")");
    RULES("root ::= (\"a\"*)* \"b\"", "y", "b", "y", "aaab", "n", "ba");
    RULES("root ::= (\"a\"?){3}", "y", "", "y", "aaa", "n", "aaaa");
    RULES("root ::= \"x\"{0}\"y\"{2,}", "y", "yy", "y", "yyyy", "p", "y", "n", "x");
    RULES("root ::= ((\"a\"{2}){2} | \"b\"){2}", "y", "aaaaaaaa", "y", "bb", "y", "baaaa", "n",
          "bbb");
    RULES("root ::= \"\\x41\\u00e9\\U0001F600\\n\"", "y", "A\xc3\xa9\xf0\x9f\x98\x80\n", "p",
          "A\xc3", "n", "A\xc3\xa8");
    RULES("root ::= [^a\\]\\u00e9]", "y", "b", "y", "\xc3\xa8", "n", "a", "n", "]", "n", "\xc3\xa9",
          "p", "\xf0\x9f", "n", "\xff", "n", "\xed\xa0\x80", "n", "\xc0\x80");
    RULES("root ::= .", "y", "\xf4\x8f\xbf\xbf", "n", "\xf4\x90\x80\x80", "n", "\xe0\x80\x80", "y",
          "\xe0\xa0\x80", "y", "\xed\x9f\xbf", "y", "\xee\x80\x80", "n", "\xf0\x80\x80\x80", "y",
          "\x7f");
    RULES("root ::= [-a-] [\\-\\^]", "y", "--", "y", "a^", "n", "b");
    RULES("a-1_b ::= \"x\" root ::= a-1_b", "y", "x");
    RULES("root ::= list\nlist ::= \"a\" list | \"a\"", "y", "aaaa", "p", "");
}

static void test_depth(void) {
    enum { N = GRAMMAR_MOST_DEPTH };
    grammar *g = make(grammar_from_rules, "root ::= \"(\" root \")\" | \"x\"");
    automaton a;
    char text[N + 8];
    CU_ASSERT_EQUAL_FATAL(automaton_open(&a, g, &diag), GQAC_OK);
    memset(text, '(', sizeof text);
    CU_ASSERT_EQUAL(read_text(&a, text, N), 'p');
    CU_ASSERT_EQUAL(read_text(&a, text, N + 1), 'n'); /* a text without an end is never accepted */
    text[N] = 'x';
    CU_ASSERT_EQUAL(read_text(&a, text, N + 1), 'p');
    automaton_close(&a);
    grammar_free(g);
    /* a rule that needs two more calls cannot be entered one call before the limit */
    g = make(grammar_from_rules, "root ::= \"(\" root \")\" | \"[\" one \"]\" | \"x\"\n"
                                 "one ::= \"1\" two \"1\"\ntwo ::= \"2\"");
    CU_ASSERT_EQUAL_FATAL(automaton_open(&a, g, &diag), GQAC_OK);
    memset(text, '(', sizeof text);
    text[N - 2] = text[N - 1] = text[N] = '[';
    CU_ASSERT_EQUAL(read_text(&a, text, N - 1), 'p');
    CU_ASSERT_EQUAL(read_text(&a, text + 1, N - 2), 'p');
    memset(text, '(', sizeof text);
    text[N - 1] = '[';
    CU_ASSERT_EQUAL(read_text(&a, text, N), 'n');
    automaton_close(&a);
    grammar_free(g);
    /* the last part of a rule adds no depth */
    g = make(grammar_from_rules, "root ::= \"a\" root | \"b\"");
    CU_ASSERT_EQUAL_FATAL(automaton_open(&a, g, &diag), GQAC_OK);
    memset(text, 'a', sizeof text);
    for (int i = 0; i < 4; i++)
        CU_ASSERT_EQUAL(read_text(&a, text, sizeof text), 'p');
    automaton_close(&a);
    grammar_free(g);
}

static void test_wrong_rules(void) {
    NO_RULES("", "no rule 'root'", "");
    NO_RULES("a ::= \"x\"", "no rule 'root'", "");
    NO_RULES("root ::= word\n", "'word' is not defined", "line 1");
    NO_RULES("root ::= \"a\"\nroot ::= \"b\"", "defined twice", "line 2, column 1");
    NO_RULES("root ::= \"a", "a literal has no end", "line 1, column 10");
    NO_RULES("root ::= [a", "class of characters has no end", "");
    NO_RULES("root ::= [b-a]", "range of characters is empty", "");
    NO_RULES("root ::= (\"a\"", "a group has no end", "");
    NO_RULES("root ::= \"a\")", "not a part of a rule", "column 13");
    NO_RULES("root ::=\n  \"a\"\n  &", "not a part of a rule", "line 3, column 3");
    NO_RULES("root = \"a\"", "a rule is expected", "");
    NO_RULES("root ::= \"\\q\"", "unknown escape", "");
    NO_RULES("root ::= \"\\", "unknown escape", "");
    NO_RULES("root ::= \"\\x4\"", "too few digits", "");
    NO_RULES("root ::= \"\\ud800\"", "does not stand for a character", "");
    NO_RULES("root ::= \"a\"{2,1}", "maximum below its minimum", "");
    NO_RULES("root ::= \"a\"{,1}", "no number", "");
    NO_RULES("root ::= \"a\"{1", "no end", "");
    NO_RULES("root ::= root \"a\" | \"a\"", "'root' of the grammar begins with itself", "");
    NO_RULES("root ::= a \"x\" | \"y\"\na ::= \"z\"? b \"c\" | \"q\"\nb ::= a \"d\"",
             "begins with itself", "");
    NO_RULES("root ::= \"a\" root", "accepts no text", "");
    NO_RULES("root ::= \"a\" b\nb ::= \"(\" b \")\"", "accepts no text", "");
    NO_RULES("root ::= \"\"\nother ::= \"a\"", "accepts the empty text only", "");
    NO_RULES("root ::= \"\xff\"", "not UTF-8", "");
}

/* ---- schemas ------------------------------------------------------------- */

static void test_types(void) {
    SCHEMA("{\"type\":\"boolean\"}", "y", "true", "n", " false", "n", "null", "n", "true ");
    SCHEMA("{\"type\":[\"null\",\"string\"]}", "y", "null", "y", "\"a\\n\\u00e9\"", "y",
           "\"\\ud83d\\ude00\"", "n", "\"\\ud83d\"", "n", "\"\\ude00", "n", "\"\n", "n", "\"\\x",
           "p", "\"");
    SCHEMA("{\"type\":\"integer\"}", "y", "0", "y", "-12", "n", "01", "n", "1.", "p", "-");
    SCHEMA("{\"type\":\"number\"}", "y", "1.5e-7", "y", "-0", "n", "1e100", "n", ".5", "p", "1.");
    SCHEMA("{\"type\":\"number\",\"minimum\":0}", "y", "1.5", "n", "-");
    SCHEMA("{}", "y", "[1,\"a\",{\"b\":null}]", "y", "{}", "y", "[]", "n", "[,", "n", "{1", "y",
           "[\n    1,\n\t2\n]", "n", "[\n\n");
    SCHEMA("true", "y", "1");
    SCHEMA("{\"enum\":[\"red\",\"reddish\",2,[1,{\"a\":null}]]}", "y", "\"red\"", "y",
           "\"reddish\"", "y", "2", "y", "[1,{\"a\":null}]", "n", "\"re\"", "n", "[1, ");
    SCHEMA("{\"enum\":[1,\"1\",null],\"type\":\"string\"}", "y", "\"1\"", "n", "1", "n", "null");
    SCHEMA("{\"enum\":[0.1,1e22,0.30000000000000004,1.7976931348623157e308]}", "y", "0.1", "n",
           "0.10", "y", "1e22", "y", "0.30000000000000004", "y", "1.7976931348623157e308");
    SCHEMA("{\"const\":{\"a\":[-2.5,0.3]}}", "y", "{\"a\":[-2.5,0.3]}");
    SCHEMA("{\"const\":\"\\\"\xc3\xa9\"}", "y", "\"\\\"\xc3\xa9\"", "n", "\"\\\"e");
}

static void test_ranges(void) {
    static const int limits[][2] = {{0, 0},      {1, 9},       {0, 123},   {7, 1002}, {99, 100},
                                    {-5, 5},     {-120, -13},  {-1, 0},    {10, 10},  {-1000, 999},
                                    {255, 4095}, {1990, 2010}, {-37, 1999}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        char source[120], text[24];
        automaton a;
        snprintf(source, sizeof source,
                 "{\"type\":\"integer\",\"minimum\":%d,\"exclusiveMaximum\":%d}", limits[i][0],
                 limits[i][1] + 1);
        grammar *g = make(grammar_from_schema, source);
        CU_ASSERT_EQUAL_FATAL(automaton_open(&a, g, &diag), GQAC_OK);
        int wrong = 0;
        for (int n = -1500; n <= 12000; n++) {
            snprintf(text, sizeof text, "%d", n);
            const bool inside = n >= limits[i][0] && n <= limits[i][1];
            wrong += (read_text(&a, text, strlen(text)) == 'y') != inside;
        }
        CU_ASSERT_EQUAL(wrong, 0);
        automaton_close(&a);
        grammar_free(g);
    }
    NO_SCHEMA("{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", GQAC_INVALID_INPUT, "no text",
              "");
}

/* Numbers with and without a fraction around integer limits, which may be exclusive. */
static void test_number_ranges(void) {
    static const int limits[][2] = {{0, 1}, {-1, 1}, {-13, -2}, {0, 0}, {3, 120}, {-5, 0}, {9, 10}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        for (int without = 0; without < 4; without++) {
            char source[160], text[24];
            automaton a;
            const int low = limits[i][0], high = limits[i][1];
            if (low == high && without)
                continue;
            snprintf(source, sizeof source, "{\"type\":\"number\",\"%s\":%d,\"%s\":%d}",
                     without & 1 ? "exclusiveMinimum" : "minimum", low,
                     without & 2 ? "exclusiveMaximum" : "maximum", high);
            grammar *g = make(grammar_from_schema, source);
            CU_ASSERT_EQUAL_FATAL(automaton_open(&a, g, &diag), GQAC_OK);
            int wrong = 0;
            for (int n = -1500; n <= 13000; n++) { /* hundredths */
                const double value = n / 100.0;
                const bool above = without & 1 ? value > low : value >= low;
                const bool below = without & 2 ? value < high : value <= high;
                snprintf(text, sizeof text, "%.2f", value);
                wrong += (read_text(&a, text, strlen(text)) == 'y') != (above && below);
                if (n % 100)
                    continue;
                snprintf(text, sizeof text, "%d", n / 100);
                wrong += (read_text(&a, text, strlen(text)) == 'y') != (above && below);
            }
            if (wrong)
                printf("%s: %d\n", source, wrong);
            CU_ASSERT_EQUAL(wrong, 0);
            automaton_close(&a);
            grammar_free(g);
        }
    SCHEMA("{\"type\":\"number\",\"exclusiveMinimum\":0}", "y", "0.01", "y", "7", "n", "-", "p",
           "0.00");
    /* these would be rounded to the limit */
    SCHEMA("{\"type\":\"number\",\"exclusiveMaximum\":100}", "y", "99.9999999999999", "n",
           "99.99999999999999", "y", "-100.999999999999999", "n", "100");
    SCHEMA("{\"type\":\"number\",\"exclusiveMinimum\":10000000000}", "y", "10000000000.01", "n",
           "10000000000.00001", "y", "10000000001.00001", "p", "10000000000.0");
    SCHEMA("{\"type\":\"number\",\"exclusiveMinimum\":-100}", "y", "-99.9999999999999", "n",
           "-99.99999999999999");
    SCHEMA("{\"type\":\"number\",\"exclusiveMinimum\":123456789012345}", "n", "123456789012345.",
           "y", "123456789012346.5");
    SCHEMA("{\"type\":\"number\",\"maximum\":0}", "y", "0", "y", "-0.5", "n", "1", "n", "0.01");
    SCHEMA("{\"type\":\"integer\",\"minimum\":-1.5,\"exclusiveMaximum\":2}", "y", "-1", "y", "1",
           "n", "-2", "n", "2", "n", "-0");
    NO_SCHEMA("{\"type\":\"number\",\"minimum\":0.5}", GQAC_UNSUPPORTED, "'minimum' of 0.5",
              "schema, #");
}

static void test_objects(void) {
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
           "\"boolean\"},\"c\":{\"type\":\"null\"}},\"required\":[\"b\"]}",
           "y", "{\"a\":1,\"b\":true}", "y", "{\"b\": false,\n  \"c\": null\n}", "n", "{\"a\":1}",
           "n", "{\"c", "n", "{}", "n", "{\"b\":true,\"a", "n", "{,", "n", "{\"b\":true,}", "y",
           "{ \"a\": -3, \"b\": true, \"c\": null }");
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}", "y", "{}", "y",
           "{\"a\":1}", "n", "{\"b");
    SCHEMA("{\"type\":\"object\",\"additionalProperties\":false}", "y", "{}", "n", "{\"");
    SCHEMA("{\"type\":\"object\"}", "y", "{\"any\":[1]}", "n", "[");
    SCHEMA("{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"},\"a\\u00e9\":{\"type\":"
           "\"null\"}},\"additionalProperties\":{\"type\":\"integer\"}}",
           "y", "{\"ab\":null,\"a\xc3\xa9\":null,\"x\":1}", "y", "{\"a\":1}", "y", "{\"abc\":1}",
           "y", "{\"a\xc3\xa8\":1}", "n", "{\"ab\":1", "n", "{\"a\xc3\xa9\":1", "n", "{\"\\u0061",
           "y", "{\"\":1,\"b\":2}", "n", "{\"b\":2,\"ab\":null}");
    SCHEMA(
        "{\"properties\":{\"a\\\"b\":{},\"c\\\\\":{},\"d\\n\":{}},\"additionalProperties\":true}",
        "n", "{\"a\"x", "n", "{\"c\\x", "n", "{\"d\n", "y", "{\"a\\\"b\":1}", "y",
        "{\"a\":1,\"cd\":2}");
    SCHEMA("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
           "y", "[1,2]", "y", "[1, 2, 3]", "n", "[1]", "n", "[]", "n", "[1,2,3,", "n", "[\"");
    SCHEMA("{\"type\":\"array\",\"maxItems\":0}", "y", "[]", "n", "[1");
    SCHEMA("{\"type\":\"array\",\"maxItems\":1}", "y", "[]", "y", "[{}]", "n", "[1,");
    SCHEMA("{\"properties\":{\"a\":{}}}", "y", "{\"a\":[]}", "n", "[");
    SCHEMA("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "n", "\"a\"", "y", "\"ab\"",
           "y", "\"\xf0\x9f\x98\x80\\n\xc3\xa9\"", "n", "\"abcd");
}

static void test_references(void) {
    SCHEMA(
        "{\"$defs\":{\"n/~x\":{\"type\":\"object\",\"properties\":{\"next\":{\"anyOf\":[{\"$ref\":"
        "\"#/$defs/n~1~0x\"},{\"type\":\"null\"}]}},\"required\":[\"next\"]}},\"$ref\":"
        "\"#/$defs/n~1~0x\"}",
        "y", "{\"next\":{\"next\":null}}", "n", "{\"next\":1", "p", "{\"next\":{");
    SCHEMA("{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", "y", "[[],[[]]]", "n", "[1");
    SCHEMA("{\"allOf\":[{\"$ref\":\"#/definitions/a\"}],\"definitions\":{\"a\":{\"const\":1}}}",
           "y", "1");
    NO_SCHEMA("{\"$ref\":\"#\"}", GQAC_INVALID_INPUT, "accepts no text", "");
    NO_SCHEMA("{\"anyOf\":[{\"$ref\":\"#\"}]}", GQAC_INVALID_INPUT, "accepts no text", "");
    NO_SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
              GQAC_INVALID_INPUT, "accepts no text", "");
    NO_SCHEMA("{\"$ref\":\"#/$defs/a\"}", GQAC_INVALID_INPUT, "leads nowhere", "schema, #");
    NO_SCHEMA("{\"$ref\":\"other.json\"}", GQAC_UNSUPPORTED, "other.json", "schema, #");
}

#define ONE_OF(a, b) "{\"$defs\":{\"a\":" a "},\"oneOf\":[{\"$ref\":\"#/$defs/a\"}," b "]}"
#define KIND(kind)                                                                                 \
    "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":" kind "}},\"required\":[\"k\"]}"

/* Schemas are refused if a value may satisfy both. */
static void test_one_of(void) {
    static const char both[] = "may both hold";
    SCHEMA(ONE_OF("{\"type\":\"string\"}", "{\"type\":[\"integer\",\"null\"]}"), "y", "\"\"", "y",
           "1", "y", "null", "n", "t");
    SCHEMA(ONE_OF("{\"enum\":[1,\"a\"]}", "{\"const\":\"b\"}"), "y", "1", "y", "\"b\"");
    SCHEMA(ONE_OF(KIND("\"x\""), KIND("\"y\"")), "y", "{\"k\":\"x\"}", "y", "{\"k\":\"y\"}", "n",
           "{\"k\":\"z");
    SCHEMA(
        ONE_OF(KIND("1"), "{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[2,3]},\"z\":{}}}"),
        "y", "{\"k\":1}", "y", "{}", "y", "{\"k\": 3,\"z\":4}");
    NO_SCHEMA(ONE_OF("{}", "{\"type\":\"null\"}"), GQAC_UNSUPPORTED, both, "schema, #");
    NO_SCHEMA(ONE_OF("{\"type\":\"number\"}", "{\"type\":\"integer\"}"), GQAC_UNSUPPORTED, both,
              "");
    NO_SCHEMA(ONE_OF("{\"enum\":[1,2]}", "{\"enum\":[3,1.0]}"), GQAC_UNSUPPORTED, both, "");
    NO_SCHEMA(ONE_OF("{\"type\":\"string\"}", "{\"enum\":[1,\"a\"]}"), GQAC_UNSUPPORTED, both, "");
    NO_SCHEMA(ONE_OF(KIND("[1]"), KIND("[2]")), GQAC_UNSUPPORTED, both, "");
    NO_SCHEMA(ONE_OF("{\"type\":\"object\"}", KIND("1")), GQAC_UNSUPPORTED, both, "");
    NO_SCHEMA("{\"oneOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}", GQAC_UNSUPPORTED, both, "");
}

static void test_formats(void) {
    SCHEMA("{\"type\":\"string\",\"format\":\"date\"}", "y", "\"2024-02-28\"", "n", "\"2024-02-29",
           "n", "\"2024-13", "y", "\"1999-12-31\"", "n", "\"2024-04-31");
    SCHEMA("{\"type\":\"string\",\"format\":\"date-time\"}", "y", "\"2024-02-28T23:59:59.5Z\"", "y",
           "\"2024-02-28T00:00:00+01:30\"", "n", "\"2024-02-28T24", "n", "\"2024-02-28 ");
    SCHEMA("{\"type\":\"string\",\"format\":\"uuid\"}", "y",
           "\"01234567-89ab-cdef-0123-456789abcdef\"", "n", "\"0123456-");
    SCHEMA("{\"type\":\"string\",\"format\":\"ipv4\"}", "y", "\"255.0.10.199\"", "n", "\"256", "n",
           "\"01");
    SCHEMA("{\"type\":\"string\",\"format\":\"email\"}", "y", "\"a.b@c-d.org\"", "n", "\".a", "n",
           "\"a@-");
    SCHEMA("{\"type\":\"string\",\"format\":\"duration\"}", "y", "\"P1Y2M3DT4H5M6S\"", "y",
           "\"P2W\"", "n", "\"P\"", "n", "\"P1YT\"");
    NO_SCHEMA("{\"type\":\"string\",\"format\":\"uri\"}", GQAC_UNSUPPORTED, "'uri'", "schema, #");
}

#define PATTERN(source, ...) SCHEMA("{\"type\":\"string\",\"pattern\":\"" source "\"}", __VA_ARGS__)
#define NO_PATTERN(source, what)                                                                   \
    NO_SCHEMA("{\"items\":{\"pattern\":\"" source "\"}}", GQAC_UNSUPPORTED, what, "schema, #/items")

static void test_patterns(void) {
    PATTERN("^[a-z]{2,3}$", "y", "\"ab\"", "y", "\"abc\"", "n", "\"a\"", "n", "\"abcd", "n", "\"A");
    PATTERN("^(\\\\d{3}|x+?)-\\\\w*$", "y", "\"123-\"", "y", "\"xx-a_9\"", "n", "\"12-", "n",
            "\"x-\xc3");
    PATTERN("ab|c", "y", "\"ab\"", "y", "\"xxabyy\"", "y", "\"\\u0041c\"", "n", "\"xx\"", "p",
            "\"aaa");
    PATTERN("^a", "y", "\"a\"", "y", "\"abc\\n\"", "n", "\"b");
    PATTERN("a$", "y", "\"a\"", "y", "\"bca\"", "n", "\"ab\"");
    PATTERN("^\\\\$\\\\.\\\\/[\\\\]\\\\-.]$", "y", "\"$./]\"", "y", "\"$./-\"", "y", "\"$./.\"",
            "n", "\"$.a");
    PATTERN("^.$", "y", "\"\xf0\x9f\x98\x80\"", "y", "\"\\\"\"", "y", "\"\\\\\"", "y", "\"\\t\"",
            "n", "\"\\n", "n", "\"\xe2\x80\xa8");
    PATTERN("^[^a\xc3\xa9-\xc3\xab]$", "y", "\"b\"", "y", "\"\xc3\xa8\"", "n", "\"a", "n",
            "\"\xc3\xaa", "y", "\"\\u0001\"");
    PATTERN("^[^\\\\d]\\\\D\\\\S\\\\s$", "y", "\"ab! \"", "y", "\"a\\t~\\f\"", "n", "\"1", "n",
            "\"a1", "n", "\"ab ");
    PATTERN("^[\\\\x41\\\\u00e9\\\\n]+$", "y", "\"A\xc3\xa9\\n\"", "n", "\"B");
    PATTERN("^(?:a(b|)){2}$", "y", "\"aab\"", "y", "\"aa\"", "n", "\"a\"");
    PATTERN("", "y", "\"\"", "y", "\"x\"");
    NO_PATTERN("^a|b$", "alternatives beside an anchor");
    NO_PATTERN("a^b", "an anchor");
    NO_PATTERN("(?=a)", "a group that is not");
    NO_PATTERN("(a)\\\\1", "an escape");
    NO_PATTERN("\\\\bx", "an escape");
    NO_PATTERN("\\\\p{L}", "an escape");
    NO_PATTERN("(a", "a group without an end");
    NO_PATTERN("a)", "closes nothing");
    NO_PATTERN("[a", "a class without an end");
    NO_PATTERN("a**", "a repetition of a repetition");
    NO_PATTERN("*", "a repetition of nothing");
    NO_PATTERN("a{,2}", "braces other than");
    NO_PATTERN("\\\\ud83d", "a surrogate");
    NO_PATTERN("[z-a]", "an empty range");
    NO_SCHEMA("{\"pattern\":\"a\",\"minLength\":1}", GQAC_UNSUPPORTED, "'minLength'", "");
    NO_SCHEMA("{\"pattern\":\"a{2,1}\"}", GQAC_INVALID_INPUT, "below its minimum",
              "schema, #, pattern");
    NO_SCHEMA("{\"pattern\":\"(a{1000}){1000}\"}", GQAC_LIMIT, "too large", "schema, #, pattern");
}

static void test_wrong_schemas(void) {
    NO_SCHEMA("{", GQAC_INVALID_INPUT, "not JSON", "line 1");
    NO_SCHEMA("[]", GQAC_INVALID_INPUT, "not a schema", "schema, #");
    NO_SCHEMA("false", GQAC_INVALID_INPUT, "accepts no text", "");
    NO_SCHEMA("{\"type\":\"text\"}", GQAC_INVALID_INPUT, "type 'text'", "");
    NO_SCHEMA("{\"type\":[]}", GQAC_INVALID_INPUT, "'type' is empty", "");
    NO_SCHEMA("{\"properties\":{\"a\":{\"items\":{\"multipleOf\":2}}}}", GQAC_UNSUPPORTED,
              "keyword 'multipleOf'", "schema, #/properties/a/items");
    char pattern[700] = "{\"type\":\"string\",\"pattern\":\"^[^";
    for (int i = 0; i < 125; i++) /* as many ranges as a class may have */
        strcat(pattern, "\\\\w");
    strcat(pattern, "\\\\s]$\"}");
    NO_SCHEMA(pattern, GQAC_UNSUPPORTED, "too many ranges", "");
    NO_SCHEMA("{\"pattern\":\"[]a]\",\"type\":\"string\"}", GQAC_UNSUPPORTED,
              "a class that begins with ]", "");
    NO_SCHEMA("{\"pattern\":\"[^]\",\"type\":\"string\"}", GQAC_UNSUPPORTED,
              "a class that begins with ]", "");
    NO_SCHEMA("{\"const\":\"\\u0000\"}", GQAC_INVALID_INPUT, "u0000 is not allowed in a text", "");
    NO_SCHEMA("{\"if\":{}}", GQAC_UNSUPPORTED, "keyword 'if'", "");
    NO_SCHEMA("{\"not\":{}}", GQAC_UNSUPPORTED, "keyword 'not'", "");
    NO_SCHEMA("{\"uniqueItems\":true}", GQAC_UNSUPPORTED, "keyword 'uniqueItems'", "");
    NO_SCHEMA("{\"anyOf\":[{}],\"type\":\"object\"}", GQAC_UNSUPPORTED, "'type' beside 'anyOf'",
              "");
    NO_SCHEMA("{\"enum\":[1],\"minimum\":0}", GQAC_UNSUPPORTED, "'minimum' beside 'enum'", "");
    NO_SCHEMA("{\"enum\":[]}", GQAC_INVALID_INPUT, "accepts no text", "");
    NO_SCHEMA("{\"anyOf\":[]}", GQAC_INVALID_INPUT, "'anyOf' is not a list", "");
    NO_SCHEMA("{\"required\":[\"x\"]}", GQAC_UNSUPPORTED, "'x'", "");
    NO_SCHEMA("{\"type\":\"array\",\"minItems\":-1}", GQAC_INVALID_INPUT,
              "'minItems' is not a count", "");
    NO_SCHEMA("{\"type\":\"number\",\"minimum\":\"1\"}", GQAC_INVALID_INPUT, "not a number", "");
    NO_SCHEMA("{\"a\":1,\"a\":2}", GQAC_INVALID_INPUT, "duplicate", "");
    SCHEMA(
        "{\"$id\":\"x\",\"discriminator\":{},\"x-note\":1,\"uniqueItems\":false,\"title\":\"t\"}",
        "y", "1");
}

/* ---- hostile ones -------------------------------------------------------- */

/* `begin`, then `middle` n times and `end` n times, as nested. */
static char *nested(const char *begin, const char *middle, const char *end, size_t n) {
    char *text = malloc(strlen(begin) + n * (strlen(middle) + strlen(end)) + 8);
    char *at = text + sprintf(text, "%s", begin);
    for (size_t i = 0; i < n; i++)
        at += sprintf(at, "%s", middle);
    for (size_t i = 0; i < n; i++)
        at += sprintf(at, "%s", end);
    return text;
}

static void refuse_nested(compile *how, const char *begin, const char *middle, const char *end,
                          size_t n, gqac_status status, const char *what) {
    char *text = nested(begin, middle, end, n);
    const clock_t from = clock();
    refuse(how, text, status, what, "");
    CU_ASSERT((double)(clock() - from) / CLOCKS_PER_SEC < 1);
    free(text);
}

static void test_hostile(void) {
    refuse_nested(grammar_from_rules, "root ::= ", "(", "", 1000000, GQAC_INVALID_INPUT, "no end");
    refuse_nested(grammar_from_rules, "root ::= \"a\"", "{9}", "", 100000, GQAC_LIMIT, "too large");
    refuse_nested(grammar_from_rules, "root ::= \"a\"", "{99999}", "", 2, GQAC_LIMIT, "too large");
    refuse_nested(grammar_from_rules, "root ::= \"a\"{", "9", "}", 40, GQAC_LIMIT, "repeated");
    refuse_nested(grammar_from_rules, "root ::= ", "[^a]", "", 200000, GQAC_LIMIT, "too large");
    refuse_nested(grammar_from_rules, "root ::= ", "\"a\"|", "", 200000, GQAC_LIMIT, "too large");
    refuse_nested(grammar_from_rules, "root ::= ", "a", "", 1000, GQAC_INVALID_INPUT, "too long");
    refuse_nested(grammar_from_rules, "root ::= ", "a", "", 2000000, GQAC_LIMIT, "bytes");
    refuse_nested(grammar_from_schema, "", "{\"items\":", "}", 100000, GQAC_LIMIT, "nested");
    refuse_nested(grammar_from_schema, "{\"enum\":[0", ",1", "", 400000, GQAC_LIMIT, "values");
    refuse(grammar_from_schema, "{\"type\":\"array\",\"minItems\":1000000000}", GQAC_LIMIT,
           "minItems", "schema, #");
    refuse(grammar_from_schema,
           "{\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":100000}}}", GQAC_LIMIT,
           "too large", "schema, #/properties/a");
    char *many = nested("{\"required\":[\"a\"", ",\"a\"", "", 180000);
    many = realloc(many, strlen(many) + 400000);
    char *at = many + strlen(many);
    at += sprintf(at, "],\"properties\":{\"a\":{}");
    for (int i = 0; i < 15000; i++)
        at += sprintf(at, ",\"%d\":{}", i);
    sprintf(at, "}}");
    const clock_t from = clock();
    refuse(grammar_from_schema, many, GQAC_LIMIT, "", "");
    CU_ASSERT((double)(clock() - from) / CLOCKS_PER_SEC < 1);
    free(many);
    char *text = nested("root ::= ", "(", ")", 100000), *middle = strstr(text, "()") + 1;
    memmove(middle + 3, middle, strlen(middle) + 1); /* `nested` leaves 8 bytes */
    memcpy(middle, "\"a\"", 3);
    grammar *deep = make(grammar_from_rules, text); /* groups use no stack */
    automaton a;
    CU_ASSERT_EQUAL_FATAL(automaton_open(&a, deep, &diag), GQAC_OK);
    CU_ASSERT(read_text(&a, "a", 1) == 'y' && read_text(&a, "b", 1) == 'n');
    automaton_close(&a);
    grammar_free(deep);
    free(text);
}

/* Two ways to read each letter, each of which leads to another stack. */
static void test_ambiguous(void) {
    char text[2000];
    size_t n = (size_t)sprintf(text, "root ::= r0 \"!\"\n");
    for (int i = 0; i < 20; i++)
        n += (size_t)sprintf(text + n, "r%d ::= r%d \"a\" | r%d \"b\"\n", i, i + 1, i + 1);
    sprintf(text + n, "r20 ::= \"x\"");
    grammar *g = make(grammar_from_rules, text);
    automaton a;
    uint32_t state = 0;
    CU_ASSERT_EQUAL_FATAL(automaton_open(&a, g, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(automaton_start(&a, &state, &diag), GQAC_LIMIT);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "ambiguous"));
    automaton_close(&a);
    grammar_free(g);
}

/* ---- states -------------------------------------------------------------- */

static void test_collect(void) {
    static const char begin[] = "{\"a\":[[\"x\xc3", end[] = "\xa9\",{}]]}";
    grammar *g = make(grammar_from_schema, "{}");
    automaton a;
    uint32_t states[3] = {0};
    CU_ASSERT_EQUAL_FATAL(automaton_open(&a, g, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(automaton_start(&a, &states[0], &diag), GQAC_OK);
    states[1] = states[0];
    for (size_t i = 0; i + 1 < sizeof begin; i++)
        CU_ASSERT_EQUAL(automaton_next(&a, states[1], (uint8_t)begin[i], &states[1], &diag),
                        GQAC_OK);
    const size_t before = automaton_bytes(&a);
    automaton_attach(&a, states[0], gqac_alloc(100), 100);
    CU_ASSERT(automaton_bytes(&a) == before + 100);
    CU_ASSERT_EQUAL(automaton_collect(&a, states, 3, &diag), GQAC_OK);
    CU_ASSERT(automaton_bytes(&a) < before / 4 && a.n_states == 3);
    CU_ASSERT_EQUAL(states[2], AUTOMATON_DEAD);
    CU_ASSERT_PTR_NULL(a.states[states[0]].more);
    CU_ASSERT_EQUAL(read_text(&a, "[1]", 3), 'y');
    for (size_t i = 0; i + 1 < sizeof end; i++)
        CU_ASSERT_EQUAL(automaton_next(&a, states[1], (uint8_t)end[i], &states[1], &diag), GQAC_OK);
    CU_ASSERT(states[1] != AUTOMATON_DEAD && a.states[states[1]].may_end);
    automaton_close(&a);
    grammar_free(g);
}

static gqac_status use(compile *how, const char *source, const char *text) {
    grammar *g = NULL;
    automaton a = {0};
    uint32_t state = 0;
    gqac_status status = how(source, strlen(source), &g, &diag);
    if (status != GQAC_OK)
        return status;
    status = automaton_open(&a, g, &diag);
    if (status == GQAC_OK)
        status = automaton_start(&a, &state, &diag);
    for (size_t i = 0; text[i] && status == GQAC_OK; i++)
        status = automaton_next(&a, state, (uint8_t)text[i], &state, &diag);
    if (status == GQAC_OK)
        status = automaton_collect(&a, &state, 1, &diag);
    automaton_close(&a);
    grammar_free(g);
    return status;
}

static void test_memory(void) {
    static const struct {
        compile *how;
        const char *source, *text;
    } cases[] = {
        {grammar_from_rules, "root ::= (\"a\" | [b-z\xc3\xa9]{2} other)*\nother ::= .", "abcd"},
        {grammar_from_schema,
         "{\"properties\":{\"a\":{\"enum\":[1,\"x\"]},\"b\":{\"format\":\"date\"}},"
         "\"additionalProperties\":{\"minimum\":-5}}",
         "{\"a\":\"x\",\"z\": -"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t live = gqac_alloc_live();
        gqac_alloc_fail_at(0, 0);
        use(cases[i].how, cases[i].source, cases[i].text);
        const size_t calls = gqac_alloc_calls();
        for (size_t n = 1; n <= calls; n++) {
            gqac_alloc_fail_at(n, 0);
            const gqac_status status = use(cases[i].how, cases[i].source, cases[i].text);
            CU_ASSERT(status == GQAC_NO_MEMORY || status == GQAC_OK);
            CU_ASSERT_EQUAL(gqac_alloc_live(), live);
        }
        gqac_alloc_fail_at(0, 0);
    }
}

static const unit_case cases[] = {{"rules", test_rules},
                                  {"depth", test_depth},
                                  {"wrong rules", test_wrong_rules},
                                  {"types", test_types},
                                  {"ranges", test_ranges},
                                  {"ranges of numbers", test_number_ranges},
                                  {"objects and arrays", test_objects},
                                  {"references", test_references},
                                  {"one of", test_one_of},
                                  {"formats", test_formats},
                                  {"patterns", test_patterns},
                                  {"wrong schemas", test_wrong_schemas},
                                  {"hostile ones", test_hostile},
                                  {"ambiguous ones", test_ambiguous},
                                  {"forgotten states", test_collect},
                                  {"memory that fails", test_memory}};

int main(int argc, char **argv) {
    return unit_run("grammar", cases, sizeof cases / sizeof *cases, argc, argv);
}
