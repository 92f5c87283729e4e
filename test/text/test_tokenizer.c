/* The tokenizer: invalid tokenizer.json files, every allocation that fails, and small texts whose
 * ids are computed by hand. test/python/test_tokenizer.py compares ids with those of other
 * programs. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/table.h"
#include "tokenizer_rig.h"

/* ---- files --------------------------------------------------------------- */

/* A tokenizer with a component of every kind; the tests below damage it. */
static const char good[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n"
    "\"added_tokens\": [\n"
    "{\"id\": 12, \"content\": \"<s>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": "
    "false, \"normalized\": false, \"special\": true},\n"
    "{\"id\": 40, \"content\": \"cab\", \"single_word\": true, \"lstrip\": true, \"rstrip\": true, "
    "\"normalized\": true, \"special\": false}],\n"
    "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, "
    "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"q+\"}, \"content\": \"c\"}, "
    "{\"type\": \"Prepend\", \"prepend\": \"_\"}, "
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"_\"}]},\n"
    "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
    "\"pattern\": {\"Regex\": \"_?[^_]+|_+\"}, \"behavior\": \"Isolated\", \"invert\": false}, "
    "{\"type\": \"Digits\", \"individual_digits\": true}]},\n"
    "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
    "{\"id\": \"<s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], "
    "\"pair\": [], \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [12], \"tokens\": "
    "[\"<s>\"]}}},\n"
    "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": "
    "{\"String\": \"_\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, "
    "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]},\n"
    "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": \"?\", "
    "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": true, "
    "\"byte_fallback\": true, \"ignore_merges\": false,\n"
    "\"vocab\": {\"?\": 0, \"_\": 1, \"a\": 2, \"b\": 3, \"c\": 4, \"_a\": 5, \"ab\": 6, "
    "\"_ab\": 7, \"abc\": 8, \"<0xC3>\": 9, \"<0xA4>\": 10, \"1\": 11, \"cc\": 30},\n"
    "\"merges\": [[\"a\", \"b\"], [\"ab\", \"c\"], \"_ ab\", [\"_\", \"a\"], [\"c\", \"c\"]]}}\n";

/* The valid text with one piece of it replaced. */
static char *edited(const char *find, const char *put) {
    return exchanged(good, find, put);
}

/* ---- what is refused -------------------------------------------------------- */

typedef struct damage {
    const char *find, *put;
    gqac_status status;
    const char *word; /* in the text of the error, or of its place */
} damage;

#define A_TEXT   "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
#define A_TEXT_8 A_TEXT A_TEXT A_TEXT A_TEXT A_TEXT A_TEXT A_TEXT A_TEXT

static const damage damages[] = {
    /* the file */
    {"\"version\": \"1.0\"", "\"version\": \"2.0\"", GQAC_UNSUPPORTED, "2.0"},
    {"\"version\": \"1.0\"", "\"version\": 1.0", GQAC_INVALID_MODEL, "version"},
    {"\"padding\": null", "\"padding\": nul", GQAC_INVALID_MODEL, "line"},
    {"\"padding\": null", "\"truncation\": null", GQAC_INVALID_MODEL, "duplicate"},
    {"\"padding\": null", "\"padding\": \"\xff\"", GQAC_INVALID_MODEL, "line"},
    {"\"padding\": null", "\"padding\": \"\\ud800\"", GQAC_INVALID_MODEL, "line"},
    /* the model */
    {"\"BPE\"", "\"WordLevel\"", GQAC_UNSUPPORTED, "WordLevel"},
    {"\"BPE\"", "\"WordPiece\"", GQAC_UNSUPPORTED, "WordPiece"},
    {"\"model\": {", "\"model\": {\"unk_token\": \"?\", \"vocab\": {}}, \"was\": {",
     GQAC_UNSUPPORTED, "WordLevel"},
    {"\"model\": {",
     "\"model\": {\"unk_token\": \"?\", \"continuing_subword_prefix\": \"##\"}, \"was\": {",
     GQAC_UNSUPPORTED, "WordPiece"},
    {"\"BPE\"", "7", GQAC_INVALID_MODEL, "type"},
    {"\"model\": {", "\"other\": {", GQAC_INVALID_MODEL, "model"},
    {"\"dropout\": null", "\"dropout\": 0.1", GQAC_UNSUPPORTED, "dropout"},
    {"\"dropout\": null", "\"dropout\": \"0\"", GQAC_INVALID_MODEL, "dropout"},
    {"\"fuse_unk\": true", "\"fuse_unk\": 1", GQAC_INVALID_MODEL, "fuse_unk"},
    {"\"byte_fallback\": true", "\"byte_fallback\": {}", GQAC_INVALID_MODEL, "byte_fallback"},
    {"\"unk_token\": \"?\"", "\"unk_token\": 0", GQAC_INVALID_MODEL, "unk_token"},
    {"\"continuing_subword_prefix\": null", "\"continuing_subword_prefix\": \"##\"",
     GQAC_UNSUPPORTED, "##"},
    {"\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\"", GQAC_UNSUPPORTED, "</w>"},
    /* vocabulary */
    {"\"vocab\": {", "\"vocab\": 3, \"words\": {", GQAC_INVALID_MODEL, "vocab"},
    {"\"vocab\": {", "\"vocab\": {}, \"words\": {", GQAC_INVALID_MODEL, "vocab"},
    {"\"vocab\": {", "\"vocab\": [], \"words\": {", GQAC_INVALID_MODEL, "vocab"},
    {"\"abc\": 8", "\"abc\": -8", GQAC_INVALID_MODEL, "abc"},
    {"\"abc\": 8", "\"abc\": 8.5", GQAC_INVALID_MODEL, "abc"},
    {"\"abc\": 8", "\"abc\": \"8\"", GQAC_INVALID_MODEL, "abc"},
    {"\"abc\": 8", "\"abc\": null", GQAC_INVALID_MODEL, "abc"},
    {"\"abc\": 8", "\"abc\": 7", GQAC_INVALID_MODEL, "id 7"},
    {"\"abc\": 8", "\"abc\": 2097152", GQAC_LIMIT, "2097152"},
    {"\"abc\": 8", "\"abc\": 4294967304", GQAC_LIMIT, "4294967304"},
    {"\"abc\": 8", "\"abc\": 9223372036854775807", GQAC_LIMIT, "abc"},
    {"\"abc\": 8", "\"abc\": 92233720368547758080", GQAC_INVALID_MODEL, "line"},
    {"\"abc\": 8", "\"abc\": 1e999", GQAC_INVALID_MODEL, "line"},
    {"\"abc\": 8", "\"abc\": 8, \"abc\": 9", GQAC_INVALID_MODEL, "duplicate"},
    {"\"abc\": 8", "\"a\\u0000\": 8", GQAC_INVALID_MODEL, "line"},
    /* merges */
    {"\"merges\": [", "\"merges\": {}, \"pairs\": [", GQAC_INVALID_MODEL, "merges"},
    {"\"merges\": [", "\"pairs\": [", GQAC_INVALID_MODEL, "merges"},
    {"[\"ab\", \"c\"]", "[\"ab\", \"d\"]", GQAC_INVALID_MODEL, "'d'"},
    {"[\"ab\", \"c\"]", "[\"x\", \"c\"]", GQAC_INVALID_MODEL, "'x'"},
    {"[\"ab\", \"c\"]", "[\"b\", \"c\"]", GQAC_INVALID_MODEL, "'bc'"},
    {"[\"ab\", \"c\"]", "[\"abc\", \"abc\"]", GQAC_INVALID_MODEL, "merge 1"}, /* would be cyclic */
    {"[\"ab\", \"c\"]", "[\"ab\"]", GQAC_INVALID_MODEL, "merge 1"},
    {"[\"ab\", \"c\"]", "[\"ab\", \"c\", \"c\"]", GQAC_INVALID_MODEL, "merge 1"},
    {"[\"ab\", \"c\"]", "[\"ab\", \"\"]", GQAC_INVALID_MODEL, "empty"},
    {"[\"ab\", \"c\"]", "[\"ab\", 4]", GQAC_INVALID_MODEL, "merge 1"},
    {"[\"ab\", \"c\"]", "[[\"ab\"], \"c\"]", GQAC_INVALID_MODEL, "merge 1"},
    {"[\"ab\", \"c\"]", "null", GQAC_INVALID_MODEL, "merge 1"},
    {"\"_ ab\"", "\"_ab\"", GQAC_INVALID_MODEL, "merge 2"},
    {"\"_ ab\"", "\"_ a b\"", GQAC_INVALID_MODEL, "merge 2"},
    {"\"_ ab\"", "\"_  ab\"", GQAC_INVALID_MODEL, "merge 2"},
    {"\"_ ab\"", "\" _ab\"", GQAC_INVALID_MODEL, "merge 2"},
    /* added tokens */
    {"\"added_tokens\": [", "\"added_tokens\": {}, \"x\": [", GQAC_INVALID_MODEL, "added_tokens"},
    {"\"content\": \"cab\"", "\"content\": \"\"", GQAC_INVALID_MODEL, "content"},
    {"\"content\": \"cab\"", "\"content\": 3", GQAC_INVALID_MODEL, "content"},
    {"\"content\": \"cab\"", "\"content\": \"ab\"", GQAC_INVALID_MODEL, "id 6"},
    {"\"content\": \"cab\"", "\"content\": \"<s>\"", GQAC_INVALID_MODEL, "<s>"},
    {"\"id\": 40", "\"id\": 12", GQAC_INVALID_MODEL, "id 12"},
    {"\"id\": 40", "\"id\": -1", GQAC_INVALID_MODEL, "id"},
    {"\"id\": 40", "\"id\": 3000000", GQAC_LIMIT, "3000000"},
    {"\"id\": 40, ", "", GQAC_INVALID_MODEL, "id"},
    {"\"single_word\": true", "\"single_word\": \"no\"", GQAC_INVALID_MODEL, "single_word"},
    {"{\"id\": 40", "[], {\"id\": 40", GQAC_INVALID_MODEL, "entry 1"},
    /* normalizer */
    {"{\"type\": \"NFC\"}", "{\"type\": \"BertNormalizer\"}", GQAC_UNSUPPORTED, "BertNormalizer"},
    {"{\"type\": \"NFC\"}", "{}", GQAC_INVALID_MODEL, "type"},
    {"{\"type\": \"NFC\"}", "null", GQAC_INVALID_MODEL, "part 0"},
    {"{\"type\": \"NFC\"}", "\"NFC\"", GQAC_INVALID_MODEL, "part 0"},
    {"\"normalizers\": [", "\"parts\": [", GQAC_INVALID_MODEL, "normalizers"},
    {"\"Regex\": \"q+\"", "\"Regex\": \"(q\\\\1)\"", GQAC_UNSUPPORTED, ""},
    {"\"Regex\": \"q+\"", "\"Regex\": \"\\\\p{Nonsense}\"", GQAC_UNSUPPORTED, ""},
    {"\"Regex\": \"q+\"", "\"Regex\": 4", GQAC_INVALID_MODEL, "Regex"},
    {"\"Regex\": \"q+\"", "\"String\": \"\"", GQAC_INVALID_MODEL, "pattern"},
    {"\"Regex\": \"q+\"", "\"Regex\": \"q\", \"String\": \"q\"", GQAC_INVALID_MODEL, "pattern"},
    {"\"Regex\": \"q+\"", "", GQAC_INVALID_MODEL, "pattern"},
    {"\"content\": \"c\"}", "\"content\": null}", GQAC_INVALID_MODEL, "content"},
    {"\"prepend\": \"_\"", "\"prepend\": []", GQAC_INVALID_MODEL, "prepend"},
    /* pre-tokenizer */
    {"{\"type\": \"Digits\"", "{\"type\": \"UnicodeScripts\"", GQAC_UNSUPPORTED, "UnicodeScripts"},
    {"\"Isolated\"", "\"Sideways\"", GQAC_UNSUPPORTED, "Sideways"},
    {"\"Isolated\"", "null", GQAC_INVALID_MODEL, "behavior"},
    {"\"invert\": false", "\"invert\": 0", GQAC_INVALID_MODEL, "invert"},
    {"{\"type\": \"Digits\"", "{\"type\": \"Metaspace\"", GQAC_INVALID_MODEL, "replacement"},
    {"{\"type\": \"Digits\"", "{\"type\": \"Metaspace\", \"replacement\": \"__\"",
     GQAC_INVALID_MODEL, "replacement"},
    {"{\"type\": \"Digits\"",
     "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"often\"",
     GQAC_UNSUPPORTED, "often"},
    {"{\"type\": \"Digits\"",
     "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"first\", "
     "\"add_prefix_space\": false",
     GQAC_INVALID_MODEL, "add_prefix_space"},
    /* post-processor */
    {"\"TemplateProcessing\"", "\"PairProcessing\"", GQAC_UNSUPPORTED, "PairProcessing"},
    {"\"single\": [", "\"double\": [", GQAC_INVALID_MODEL, "single"},
    {"\"id\": \"A\"", "\"id\": \"B\"", GQAC_INVALID_MODEL, "'B'"},
    {"\"single\": [", "\"single\": [" A_TEXT_8 A_TEXT_8, GQAC_LIMIT, "17 times"},
    {"\"ids\": [12]", "\"ids\": [13]", GQAC_INVALID_MODEL, "id 13"},
    {"\"ids\": [12]", "\"ids\": [-12]", GQAC_INVALID_MODEL, "ids"},
    {"\"ids\": [12]", "\"ids\": 12", GQAC_INVALID_MODEL, "ids"},
    {"{\"<s>\": {\"id\"", "{\"<t>\": {\"id\"", GQAC_INVALID_MODEL, "<s>"},
    {"{\"Sequence\": {", "{\"Other\": {", GQAC_INVALID_MODEL, "single"},
    {"\"TemplateProcessing\"", "\"BertProcessing\"", GQAC_INVALID_MODEL, "cls"},
    /* decoder */
    {"{\"type\": \"ByteFallback\"}", "{\"type\": \"CTC\"}", GQAC_UNSUPPORTED, "CTC"},
    {"{\"type\": \"ByteFallback\"}", "{\"type\": \"WordPiece\"}", GQAC_UNSUPPORTED, "WordPiece"},
    {"{\"type\": \"ByteFallback\"}", "{\"type\": \"Metaspace\"}", GQAC_INVALID_MODEL,
     "replacement"},
    {"\"start\": 1", "\"start\": -1", GQAC_INVALID_MODEL, "start"},
    {"\"start\": 1", "\"start\": 99999999999", GQAC_LIMIT, "start"},
    {"\"stop\": 0", "\"stop\": true", GQAC_INVALID_MODEL, "stop"},
    {"\"content\": \" \", \"start\"", "\"content\": \"  \", \"start\"", GQAC_INVALID_MODEL,
     "content"},
};

static void test_damaged(void) {
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        char *text = edited(damages[i].find, damages[i].put);
        refuse(text, strlen(text), damages[i].status, damages[i].word);
        free(text);
    }
}

/* Every proper prefix of the file is refused, also the empty one. */
static void test_truncated(void) {
    for (size_t length = 0; length < sizeof good - 3; length += 1 + length / 97)
        refuse(good, length, GQAC_INVALID_MODEL, "");
    refuse("[]", 2, GQAC_INVALID_MODEL, "");
    refuse("{}", 2, GQAC_INVALID_MODEL, "model");
    refuse("null", 4, GQAC_INVALID_MODEL, "");
}

/* Appends `text` `count` times; there must be room. */
static char *repeat(char *end, const char *text, size_t count) {
    size_t length = strlen(text);
    for (size_t i = 0; i < count; i++, end += length)
        memcpy(end, text, length);
    return end;
}

static void test_deep(void) {
    enum { DEEP = 100000 };
    char *text = malloc(DEEP * 60);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    char *end = repeat(text, "[", DEEP);
    refuse(text, (size_t)(end - text), GQAC_INVALID_MODEL, "");
    end = repeat(text, "{\"model\":", DEEP);
    refuse(text, (size_t)(end - text), GQAC_INVALID_MODEL, "");
    for (int wide = 0; wide < 2; wide++) { /* nested Sequences, and far too many steps */
        size_t count = wide ? 1000 : 100;
        end = repeat(text, "{\"type\":\"Sequence\",\"normalizers\":[", wide ? 1 : count);
        end = repeat(end, "{\"type\":\"NFC\"},", wide ? count : 1) - 1;
        end = repeat(end, "]}", wide ? 1 : count);
        *end = '\0';
        strcat(text, ", \"was\": {");
        char *whole = malloc(sizeof good + strlen(text) + 20);
        CU_ASSERT_PTR_NOT_NULL_FATAL(whole);
        const char *at = strstr(good, "\"normalizer\": {") + strlen("\"normalizer\": {");
        sprintf(whole, "%.*s%s%s", (int)(at - good) - 1, good, text, at);
        refuse(whole, strlen(whole), GQAC_LIMIT, wide ? "" : "nested");
        free(whole);
    }
    free(text);
}

/* A vocabulary of 300 tokens whose hashes have equal low bits, whatever the capacity of their
 * table. */
static void test_colliding_tokens(void) {
    char *vocab = malloc(300 * 40), *end = vocab;
    CU_ASSERT_PTR_NOT_NULL_FATAL(vocab);
    for (unsigned i = 0, n = 0; n < 300; i++) {
        char token[9];
        snprintf(token, sizeof token, "%08x", i);
        if ((gqac_hash_bytes(0, token, 8) & 4095) == 0)
            end += sprintf(end, "\"%s\": %u, ", token, 100 + n++);
    }
    strcpy(end, "\"?\": 0");
    char *text = exchanged(good, "\"?\": 0", vocab);
    refuse(text, strlen(text), GQAC_LIMIT, "collide more than chance allows");
    free(text);
    free(vocab);
}

/* ---- what is done ---------------------------------------------------------------- */

/* Compares with ids as text, e.g. "12 7". */
static void expect_text(const tokenizer *t, const int64_t *ids, size_t n, bool skip,
                        const char *expected) {
    gqac_diag diag = {0};
    char *text;
    size_t length;
    CU_ASSERT_EQUAL_FATAL(tokenizer_decode(t, ids, n, skip, &text, &length, &diag), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(text, expected);
    CU_ASSERT_EQUAL(length, strlen(expected));
    gqac_free(text);
}

static void test_by_hand(void) {
    tokenizer *t = made(good);
    expect_ids(t, "", 0, false, "");
    expect_ids(t, "", 0, true, "12");
    expect_ids(t, "ab", 2, true, "12 7");
    expect_ids(t, "abc", 3, false, "1 8"); /* ab, then abc before _ab */
    expect_ids(t, "a a", 3, false, "5 5");
    expect_ids(t, "<s>ab", 5, false, "12 7");
    expect_ids(t, "\xc3\xa4", 2, false, "1 9 10");     /* bytes */
    expect_ids(t, "a\xcc\x88", 3, false, "1 9 10");    /* the same after NFC */
    expect_ids(t, "xx\xc3\xa4", 4, false, "1 9 10 0"); /* unknown characters are fused, and wait */
    expect_ids(t, "b\0b", 3, false, "1 3 0 3");
    expect_ids(t, "11", 2, false, "1 11 11");
    expect_ids(t, "qqqab", 5, false, "40");        /* _cab */
    expect_ids(t, "qab b", 5, false, "1 4 6 1 3"); /* not a single word: _cab_b */
    static const int64_t ids[] = {12, 7, 1, 9, 10, 5, 9, 12};
    expect_text(t, ids, 8, true, "ab \xc3\xa4 a\xef\xbf\xbd");
    expect_text(t, ids, 8, false, "<s> ab \xc3\xa4 a\xef\xbf\xbd<s>");
    expect_text(t, ids, 0, false, "");
    tokenizer_free(t);
}

static void expect_of(const char *find, const char *put, const char *text, const char *ids) {
    char *json = edited(find, put);
    tokenizer *t = made(json);
    expect_ids(t, text, strlen(text), false, ids);
    tokenizer_free(t);
    free(json);
}

/* Features that few files and texts need. */
static void test_corners(void) {
    static const char last[] = "\"special\": false}],";
    tokenizer *t = made(good);
    expect_ids(t, "\xc3\xa5", 2, false, "1 0");     /* its second byte has no token */
    expect_ids(t, "a qab.", 6, false, "5 1 4 6 0"); /* not a single word: _a_cab. */
    tokenizer_free(t);
    expect_of("\"merges\": [", "\"merges\": [\"#version: 0.2\", ", "abc", "1 8");
    expect_of(last, /* the same text after normalisation: the special token is used */
              "\"special\": false}, {\"id\": 41, \"content\": \"qab\", \"normalized\": true, "
              "\"special\": true}],",
              "qqqab", "41");
    expect_of(last, /* the first of two that overlap */
              "\"special\": false}, {\"id\": 42, \"content\": \"x1y\", \"normalized\": false}, "
              "{\"id\": 43, \"content\": \"y2z\", \"normalized\": false}],",
              "x1y2z", "42 1 0 0");
}

/* If a pair of lower rank no longer exists, the next merge is the one with the lowest rank among
 * the others, also in long words. */
static void test_stale_pairs(void) {
    static const char json[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"d\": 3, "
        "\"bc\": 4, \"ab\": 5, \"bcd\": 6, \"abc\": 7}, \"merges\": [[\"b\", \"c\"], "
        "[\"a\", \"b\"], [\"bc\", \"d\"], [\"a\", \"bc\"]]}}";
    tokenizer *t = made(json);
    char text[4 * 20 + 1], ids[4 * 20 + 1];
    for (size_t n = 1; n <= 20; n++) {
        *repeat(text, "abcd", n) = '\0';
        repeat(ids, "0 6 ", n)[-1] = '\0';
        expect_ids(t, text, 4 * n, false, ids);
    }
    tokenizer_free(t);
}

/* Spaces that may be the last ones are held back, and returned when something follows. */
static void test_strip_end(void) {
    static const int64_t ids[] = {7, 1, 1, 1, 3, 1, 1, 1};
    char *text = edited("\"stop\": 0", "\"stop\": 2");
    tokenizer *t = made(text);
    expect_text(t, ids, 8, false, "ab   b ");
    expect_text(t, ids, 2, false, "ab");
    expect_text(t, ids + 1, 3, false, "");
    tokenizer_free(t);
    free(text);
}

/* Bytes of ByteLevel one by one: complete characters, also those that are divided among tokens, and
 * U+FFFD for invalid bytes. */
static void test_byte_level(void) {
    static const char json[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"\xc3\xad\": 0, \"\xc5\x82\": 1, "
        "\"\xc4\xa2\": 2, \"\xc5\x83\": 3, \"\xc3\x82\": 4}, \"merges\": []}, "
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"use_regex\": false}, \"decoder\": {\"type\": \"ByteLevel\"}}";
    static const int64_t ids[] = {0, 1, 2, 4, 3, 4}; /* the bytes ed a0 80 c2 ad c2 */
    static const char *const pieces[] = {
        "", "\xef\xbf\xbd\xef\xbf\xbd", "\xef\xbf\xbd", "", "\xc2\xad", ""};
    tokenizer *t = made(json);
    tokenizer_stream *stream;
    gqac_diag diag = {0};
    const char *piece;
    size_t length;
    expect_ids(t, "\xc2\xad", 2, false, "4 3");
    expect_ids(t, "\xed\x80\xad", 3, false, "0 2 3");
    expect_text(t, ids + 3, 2, false, "\xc2\xad");
    expect_text(t, ids, 6, false, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xc2\xad\xef\xbf\xbd");
    CU_ASSERT_EQUAL_FATAL(tokenizer_stream_create(t, &stream, &diag), GQAC_OK);
    for (int i = 0; i < 6; i++) {
        CU_ASSERT_EQUAL(tokenizer_stream_push(stream, ids[i], &piece, &length, &diag), GQAC_OK);
        CU_ASSERT(length == strlen(pieces[i]) && !memcmp(piece, pieces[i], length));
    }
    tokenizer_stream_free(stream);
    tokenizer_free(t);
}

static void test_bad_calls(void) {
    tokenizer *t = made(good);
    gqac_diag diag = {0};
    int64_t *ids, far[] = {2, 13, 41, -1, INT64_MAX};
    char *text;
    size_t n;
    CU_ASSERT_EQUAL(tokenizer_encode(t, "ab\xc3", 3, false, &ids, &n, &diag), GQAC_INVALID_INPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "offset 2"));
    for (int i = 1; i < 5; i++) /* 13 is not an id */
        CU_ASSERT_EQUAL(tokenizer_decode(t, far + i, 1, false, &text, &n, &diag),
                        GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(tokenizer_decode(t, far, 2, false, &text, &n, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.where, "2"));
    tokenizer_free(t);
    char *other = edited("\"unk_token\": \"?\"", "\"unk_token\": \"!\"");
    t = made(other); /* only matters if it is needed */
    expect_ids(t, "ab", 2, false, "7");
    CU_ASSERT_EQUAL(tokenizer_encode(t, "x", 1, false, &ids, &n, &diag), GQAC_INVALID_MODEL);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "'!'"));
    tokenizer_free(t);
    free(other);
}

/* A hostile expression is stopped wherever it is used, also if the text has many parts; calls that
 * do not need it still work. */
static void test_slow_expressions(void) {
    static const struct {
        const char *find, *put, *where;
    } all[] = {
        {"_?[^_]+|_+", "a*b|a", "tokenizer.json, pre_tokenizer, step 1"},
        {"q+", "a*z|a", "tokenizer.json, normalizer, step 2"},
    };
    enum { N = 1 << 19 };
    char *text = malloc(N);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    for (int parts = 0; parts < 2; parts++) {
        memset(text, 'a', N);
        for (size_t i = 997; parts && i + 3 < N; i += 1000)
            memcpy(text + i, "<s>", 3);
        for (int i = 0; i < 2; i++) {
            char *json = edited(all[i].find, all[i].put);
            tokenizer *t = made(json);
            gqac_diag diag = {0};
            int64_t *ids;
            size_t n;
            CU_ASSERT_EQUAL(tokenizer_encode(t, text, N, false, &ids, &n, &diag), GQAC_LIMIT);
            CU_ASSERT_STRING_EQUAL(diag.where, all[i].where);
            CU_ASSERT(strstr(diag.what, all[i].put) && *diag.rule && *diag.hint);
            CU_ASSERT_EQUAL(tokenizer_encode(t, "aa", 2, false, &ids, &n, &diag), GQAC_OK);
            gqac_free(ids);
            tokenizer_free(t);
            free(json);
        }
    }
    free(text);
}

#define TEN     "0123456789"
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
#define REPLACE(kind, find, put)                                                                   \
    "{\"type\": \"Replace\", \"pattern\": {\"" kind "\": \"" find "\"}, \"content\": \"" put "\"}" \
    ","

/* The valid file with a step repeated many times at the beginning of a list; no added token is
 * normalised. */
static char *with_steps(const char *list, const char *step, size_t count) {
    char *steps = malloc(64 + count * strlen(step)), *plain, *json;
    CU_ASSERT_PTR_NOT_NULL_FATAL(steps);
    strcpy(steps, list);
    *repeat(steps + strlen(list), step, count) = '\0';
    plain = edited("\"normalized\": true", "\"normalized\": false");
    json = exchanged(plain, list, steps);
    free(steps);
    free(plain);
    return json;
}

/* Steps that make a text longer and longer are stopped, even if each part of it stays short. */
static void test_growth(void) {
    static const struct {
        const char *step;
        size_t count;
    } all[] = {
        {REPLACE("String", "a", "aa"), 40},
        {REPLACE("Regex", "a|$", "aa"), 40},
        {"{\"type\": \"Prepend\", \"prepend\": \"" HUNDRED "\"},", 20},
        {REPLACE("Regex", "a|$", HUNDRED) "{\"type\": \"Strip\"}," REPLACE("Regex", "[^a]+", "a"),
         20},
        {REPLACE("Regex", ".", "\\ufdfa") "{\"type\": \"NFKD\"},", 8},
    };
    enum { PARTS = 10000 };
    char *text = malloc(5 * PARTS), *json;
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    repeat(text, "aa<s>", PARTS);
    gqac_diag diag = {0};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        json = with_steps("\"normalizers\": [", all[i].step, all[i].count);
        tokenizer *t = made(json);
        int64_t *ids;
        size_t n;
        CU_ASSERT_EQUAL(tokenizer_encode(t, text, 5 * PARTS, false, &ids, &n, &diag), GQAC_LIMIT);
        CU_ASSERT_PTR_NOT_NULL(strstr(diag.where, "tokenizer.json, normalizer, step "));
        CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "longer than"));
        tokenizer_free(t);
        free(json);
    }
    free(text);
    for (int regex = 0; regex < 2; regex++) {
        json = with_steps("\"decoders\": [",
                          regex ? REPLACE("Regex", "b", "bb") : REPLACE("String", "b", "bb"), 40);
        tokenizer *t = made(json);
        tokenizer_stream *stream;
        const char *piece;
        char *whole;
        size_t length;
        const int64_t ids[] = {2, 3};
        CU_ASSERT_EQUAL(tokenizer_decode(t, ids, 2, false, &whole, &length, &diag), GQAC_LIMIT);
        CU_ASSERT_PTR_NOT_NULL(strstr(diag.where, "tokenizer.json, decoder, step "));
        CU_ASSERT_EQUAL_FATAL(tokenizer_stream_create(t, &stream, &diag), GQAC_OK);
        CU_ASSERT_EQUAL(tokenizer_stream_push(stream, 2, &piece, &length, &diag), GQAC_OK);
        CU_ASSERT_EQUAL(tokenizer_stream_push(stream, 3, &piece, &length, &diag), GQAC_LIMIT);
        tokenizer_stream_free(stream);
        tokenizer_free(t);
        free(json);
    }
    json = edited("\"normalizers\": [",
                  "\"normalizers\": [" REPLACE("String", "a", HUNDRED HUNDRED)
                      REPLACE("String", "0", HUNDRED) REPLACE("String", "1", HUNDRED HUNDRED)
                          REPLACE("String", "2", HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED));
    refuse(json, strlen(json), GQAC_LIMIT, "added_tokens, normalizer, step ");
    free(json);
}

/* The growth that real files cause in the worst texts is far below the limits. */
static void test_real_growth(void) {
    enum { N = 1 << 20 };
    char *text = malloc(N), *json;
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    gqac_diag diag = {0};
    int64_t *ids;
    size_t n, length;
    memset(text, 1, N); /* ByteLevel makes two bytes of each */
    json = file_text("gpt2", &length);
    tokenizer *t = NULL;
    CU_ASSERT_EQUAL_FATAL(create(json, length, &t, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(tokenizer_encode(t, text, N, false, &ids, &n, &diag), GQAC_OK);
    CU_ASSERT(n > 0);
    gqac_free(ids);
    tokenizer_free(t);
    free(json);
    repeat(text, "\xef\xb7\xba", N / 3); /* eighteen characters in NFKD, three of them spaces */
    json = edited("\"NFC\"", "\"NFKD\"");
    t = made(json);
    CU_ASSERT_EQUAL(tokenizer_encode(t, text, N / 3 * 3, false, &ids, &n, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(n, 2 * (1 + N / 3 * 3)); /* each word is "_" and an unknown token */
    gqac_free(ids);
    tokenizer_free(t);
    free(json);
    free(text);
}

/* Long words use the heap: the same merges as in short ones. */
static void test_long_word(void) {
    tokenizer *t = made(good);
    enum { N = 1 << 16 };
    char *text = malloc(3 * N);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    repeat(text, "abc", N);
    gqac_diag diag = {0};
    int64_t *ids;
    size_t n;
    CU_ASSERT_EQUAL_FATAL(tokenizer_encode(t, text, 3 * N, false, &ids, &n, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(n, N + 1);
    size_t whole = 0;
    for (size_t i = 1; i < n; i++)
        whole += ids[i] == 8;
    CU_ASSERT_EQUAL(whole, N);
    gqac_free(ids);
    tokenizer_free(t);
    free(text);
}

/* ---- allocation failures --------------------------------------------------------------- */

static void test_no_memory(void) {
    static const char *const styles[] = {"phi3", "mixed", "gpt2"};
    fail_each(good, sizeof good - 1);
    for (size_t i = 0; i < (unit_full() ? 3 : 1); i++) {
        size_t length;
        char *text = file_text(styles[i], &length);
        fail_each(text, length);
        free(text);
    }
}

static const unit_case cases[] = {
    {"damaged files are refused by name", test_damaged},
    {"beginnings of a file", test_truncated},
    {"deep and long files", test_deep},
    {"tokens that were chosen to collide", test_colliding_tokens},
    {"ids and texts worked out by hand", test_by_hand},
    {"ids of rare texts and files", test_corners},
    {"pairs that are gone", test_stale_pairs},
    {"spaces at the end of a decoded text", test_strip_end},
    {"bytes that are no characters", test_byte_level},
    {"what is no text and no id", test_bad_calls},
    {"expressions that read far ahead", test_slow_expressions},
    {"steps that make texts longer and longer", test_growth},
    {"texts that grow as in real files", test_real_growth},
    {"a long word", test_long_word},
    {"each allocation fails once", test_no_memory},
};

int main(int argc, char **argv) {
    return unit_run("tokenizer", cases, sizeof cases / sizeof *cases, argc, argv);
}
