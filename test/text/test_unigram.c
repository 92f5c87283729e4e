/* Unigram models and SentencePiece's table of characters: small texts whose best segmentations are
 * computed by hand, invalid files, damaged tables, every allocation that fails.
 * test/python/test_tokenizer.py compares ids with those of other programs. */
#include "tokenizer_rig.h"

static const char good[] =
    "{\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"byte_fallback\": false, \"vocab\": [\n"
    "[\"?\", 0.0], [\"a\", -1.0], [\"b\", -1.5], [\"ab\", -2.5], [\"abc\", -9], [\"bc\", -2.25],\n"
    "[\"aa\", -1.25], [\"\xc3\xa9\", -3.0], [\"<0xC3>\", -4], [\"<0xA4>\", -4], [\"yz\", -30]]}}";

static void test_by_hand(void) {
    tokenizer *t = made(good);
    expect_ids(t, "", 0, false, "");
    expect_ids(t, "a", 1, false, "1");
    expect_ids(t, "ab", 2, false, "3");    /* as good as a + b, and found first */
    expect_ids(t, "abc", 3, false, "1 5"); /* a + bc, -3.25 */
    expect_ids(t, "aaa", 3, false, "1 6"); /* as good as aa + a, but found first */
    expect_ids(t, "a\xc3\xa9", 3, false, "1 7");
    expect_ids(t, "xx\xc3\xa4", 4, false, "0"); /* a run of unknown characters is one token */
    expect_ids(t, "xax", 3, false, "0 1 0");
    expect_ids(t, "yz", 2, false, "10");   /* better than two characters at -40 */
    expect_ids(t, "a?x", 3, false, "1 0"); /* the unknown token itself is part of the run */
    expect_ids(t, "?", 1, false, "0");
    tokenizer_free(t);
}

static void test_bytes(void) {
    char *text = exchanged(good, "\"byte_fallback\": false", "\"byte_fallback\": true");
    tokenizer *t = made(text);
    expect_ids(t,
               "b\xc3\xa4"
               "b",
               4, false, "2 8 9 2");
    expect_ids(t, "\xc3\xa4\xc3\xa4", 4, false, "8 9 8 9");
    expect_ids(t, "\xc3\xa4x", 3, false, "0"); /* x has no byte token: all unknown */
    tokenizer_free(t);
    free(text);
}

static void test_unknown(void) {
    char *text = exchanged(good, "\"unk_id\": 0", "\"unk_id\": null");
    tokenizer *t = made(text);
    gqac_diag diag = {0};
    int64_t *ids;
    size_t n;
    expect_ids(t, "ab", 2, false, "3");
    CU_ASSERT_EQUAL(tokenizer_encode(t, "axb", 3, false, &ids, &n, &diag), GQAC_INVALID_MODEL);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "U+0078 needs unk_id"));
    tokenizer_free(t);
    free(text);
}

static const struct damage {
    const char *find, *put;
    gqac_status status;
    const char *word;
} damages[] = {
    {"\"Unigram\"", "\"WordPiece\"", GQAC_UNSUPPORTED, "WordPiece"},
    {"\"Unigram\"", "3", GQAC_INVALID_MODEL, "type"},
    {"\"Unigram\"", "\"BPE\"", GQAC_INVALID_MODEL, "vocab"},
    {"\"unk_id\": 0", "\"unk_id\": 11", GQAC_LIMIT, "unk_id"},
    {"\"unk_id\": 0", "\"unk_id\": -1", GQAC_INVALID_MODEL, "unk_id"},
    {"\"unk_id\": 0", "\"unk_id\": \"?\"", GQAC_INVALID_MODEL, "unk_id"},
    {"\"byte_fallback\": false", "\"byte_fallback\": 1", GQAC_INVALID_MODEL, "byte_fallback"},
    {"[\"a\", -1.0]", "[\"a\"]", GQAC_INVALID_MODEL, "entry 1"},
    {"[\"a\", -1.0]", "[\"a\", \"b\"]", GQAC_INVALID_MODEL, "entry 1"},
    {"[\"a\", -1.0]", "[-1.0, \"a\"]", GQAC_INVALID_MODEL, "entry 1"},
    {"[\"a\", -1.0]", "null", GQAC_INVALID_MODEL, "entry 1"},
    {"[\"a\", -1.0]", "[\"b\", -1.0]", GQAC_INVALID_MODEL, "twice"},
    {"[\"a\", -1.0]", "[\"a\", -1e200]", GQAC_INVALID_MODEL, "beyond"},
    {"\"vocab\": [", "\"vocab\": [], \"other\": [", GQAC_INVALID_MODEL, "vocab"},
    {"\"vocab\": [", "\"vocab\": {}, \"other\": [", GQAC_INVALID_MODEL, "vocab"},
    {"{\"model\"", "{\"normalizer\": {\"type\": \"Precompiled\"}, \"model\"", GQAC_INVALID_MODEL,
     "precompiled_charsmap"},
};

static void test_damaged(void) {
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        char *text = exchanged(good, damages[i].find, damages[i].put);
        refuse(text, strlen(text), damages[i].status, damages[i].word);
        free(text);
    }
    char entry[1200] = "[\"", *end = entry + 2;
    memset(end, 'a', 1100);
    strcpy(end + 1100, "\", -1.0]");
    char *text = exchanged(good, "[\"a\", -1.0]", entry);
    refuse(text, strlen(text), GQAC_LIMIT, "1100 bytes");
    free(text);
}

/* ---- the table ------------------------------------------------------------- */

static char *with_table(const char *base64) {
    char part[256];
    snprintf(part, sizeof part,
             "{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"%s\"}, "
             "\"model\"",
             base64);
    return exchanged(good, "{\"model\"", part);
}

static void test_tables(void) {
    static const struct table {
        const char *base64, *word;
    } bad[] = {{"", "array"},
               {"AAAA", "array"},
               {"BAAAAA==", "array"},
               {"BAA", "base64"},
               {"BAAAAAAA!AA=", "base64"},
               {"CAAAAAAAAAA=", "array"},
               {"AwAAAAAAAAA=", "array"},
               {"BAAAAAAAAAD/", "UTF-8"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *text = with_table(bad[i].base64);
        refuse(text, strlen(text), GQAC_INVALID_MODEL, bad[i].word);
        free(text);
    }
    char *text = with_table("BAAAAAAAAAA="); /* one unit without a transition */
    tokenizer *t = made(text);
    expect_ids(t, "abc", 3, false, "1 5");
    tokenizer_free(t);
    free(text);
}

/* A table with random bit changes produces other texts, or none, and has no worse effect. */
static void test_broken_tables(void) {
    static const char text[] =
        "caf\xc3\xa9 \xef\xac\x81ne\t\xe2\x84\x83 q\xcc\xa3 e\xcc\x81 A\xcc\x8a!"
        "\xe3\x80\x80\xef\xbc\xa1";
    size_t length;
    char *file = file_text("t5", &length);
    char *table = strstr(file, "charsmap\":\"");
    CU_ASSERT_PTR_NOT_NULL_FATAL(table);
    table += strlen("charsmap\":\"");
    const size_t n = strcspn(table, "\"");
    uint32_t random = 7;
    size_t taken = 0;
    for (int i = 0; i < (unit_full() ? 3000 : 300); i++) {
        char saved[8];
        size_t at[8];
        for (int k = 0; k < 8; k++) {
            random = random * 1664525u + 1013904223u;
            at[k] = 8 + random % (n - 16);
            saved[k] = table[at[k]];
            table[at[k]] =
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[random >> 26];
        }
        tokenizer *t = NULL;
        gqac_diag diag;
        int64_t *ids = NULL;
        size_t count;
        const gqac_status status = create(file, length, &t, &diag);
        CU_ASSERT(status == GQAC_OK || status == GQAC_INVALID_MODEL);
        if (status == GQAC_OK) {
            const gqac_status got =
                tokenizer_encode(t, text, sizeof text - 1, true, &ids, &count, &diag);
            CU_ASSERT(got == GQAC_OK || got == GQAC_LIMIT);
            taken++;
        }
        gqac_free(ids);
        tokenizer_free(t);
        for (int k = 7; k >= 0; k--)
            table[at[k]] = saved[k];
    }
    CU_ASSERT(taken > 20);
    free(file);
}

static void test_no_memory(void) {
    size_t length;
    char *text = file_text("t5", &length);
    fail_each(good, sizeof good - 1);
    if (unit_full())
        fail_each(text, length);
    free(text);
}

static const unit_case cases[] = {
    {"ids worked out by hand", test_by_hand},
    {"bytes of unknown characters", test_bytes},
    {"a model without an unknown token", test_unknown},
    {"damaged files are refused by name", test_damaged},
    {"tables that are none", test_tables},
    {"tables with other bits", test_broken_tables},
    {"each allocation fails once", test_no_memory},
};

int main(int argc, char **argv) {
    return unit_run("unigram", cases, sizeof cases / sizeof *cases, argc, argv);
}
