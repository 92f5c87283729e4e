/* Forced calls of tools: whatever ids are chosen under the mask, the reader of calls finds calls
 * that the tools allow, and nothing else; in every syntax, with markers that are special tokens and
 * with markers that are text. */
#include "unit.h"

#include <gqac/text.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

static char scratch[] = "/tmp/gqac-tools-XXXXXX";
static gqac_diag diag;

enum { IDS = 512 + 8 }; /* the ids of the tokenizer, and markers */

#define MUST(call)                                                                                 \
    do {                                                                                           \
        const gqac_status must_ = (call);                                                          \
        if (must_ != GQAC_OK)                                                                      \
            printf("%s: %s (%s)\n", gqac_status_name(must_), diag.what, diag.where);               \
        CU_ASSERT_EQUAL_FATAL(must_, GQAC_OK);                                                     \
    } while (0)

static const struct family {
    const char *name, *markers[6]; /* special tokens of answers; NULL after the last */
    bool several;                  /* several calls may follow one another */
} families[] = {
    {"qwen", {"<tool_call>", "</tool_call>"}, true},
    {"mistral", {"[TOOL_CALLS]"}, true},
    {"llama3", {NULL}, false},
    {"harmony", {"<|channel|>", "<|constrain|>", "<|message|>", "<|start|>", "<|end|>"}, false}};
enum { FAMILIES = sizeof families / sizeof *families };

static void write_file(const char *name, const char *text, size_t length) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    FILE *out = fopen(path, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(out);
    fwrite(text, 1, length, out);
    fclose(out);
}

/* The text of a family's template with the tokenizer of tiny-gqa. With `special` the markers are
 * special tokens, from id 512 on. */
static gqac_text *open_family(const struct family *x, bool special) {
    char from[200], template[20000];
    gqac_text *text = NULL;
    json_t *tokenizer = json_load_file(unit_path("models/tiny-gqa/tokenizer.json"), 0, NULL);
    snprintf(from, sizeof from, "test/templates/%s/template.jinja", x->name);
    FILE *in = fopen(unit_path(from), "rb");
    CU_ASSERT_FATAL(tokenizer && in);
    write_file("chat_template.jinja", template, fread(template, 1, sizeof template, in));
    fclose(in);
    for (int i = 0; special && x->markers[i]; i++)
        json_array_append_new(json_object_get(tokenizer, "added_tokens"),
                              json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", 512 + i,
                                        "content", x->markers[i], "single_word", 0, "lstrip", 0,
                                        "rstrip", 0, "normalized", 0, "special", 1));
    char *json = json_dumps(tokenizer, JSON_COMPACT);
    write_file("tokenizer.json", json, strlen(json));
    free(json);
    json_decref(tokenizer);
    MUST(gqac_text_open(scratch, GQAC_TEXT_ALL, &text, &diag));
    return text;
}

static const char TOOLS[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"strict\": true, "
    "\"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"place\": {\"$ref\": \"#/$defs/place\"}, \"days\": {\"type\": "
    "\"integer\", \"minimum\": 1, \"maximum\": 9}}, \"required\": [\"place\", \"days\"], "
    "\"additionalProperties\": false, \"$defs\": {\"place\": {\"enum\": [\"<|call|>\", "
    "\"</tool_call>\", \"[TOOL_CALLS]\", \"K\xc3\xb6ln\"]}}}}}, "
    "{\"type\": \"function\", \"function\": {\"name\": \"clock\"}}, "
    "{\"name\": \"walk-2\", \"parameters\": {\"properties\": {\"place\": {\"$ref\": "
    "\"#/$defs/place\"}}, \"required\": [\"place\"], \"$defs\": {\"place\": {\"type\": "
    "\"string\", \"maxLength\": 3}}}}]";

static uint32_t chance = 1;

static uint32_t draw(uint32_t n) {
    chance = chance * 1664525U + 1013904223U;
    return (chance >> 8) % n;
}

/* ---- one answer ---------------------------------------------------------- */

/* Chooses random ids among those that the constraint (NULL: none) allows. Returns their number, and
 * whether the answer is complete. */
static size_t choose(gqac_constraint *c, int64_t *ids, size_t most, bool *complete) {
    gqac_constraint_state *s = NULL;
    bool may = false, must = false;
    size_t n = 0;
    if (c)
        MUST(gqac_constraint_begin(c, &s, &diag));
    for (; n < most && !must && !(may && !draw(3)); n++) {
        float logits[IDS] = {0};
        int64_t fit[IDS];
        uint32_t count = 0;
        if (c)
            MUST(gqac_constraint_mask(s, logits, IDS, NULL, 0, &diag));
        for (int64_t i = 0; i < IDS; i++)
            if (!isnan(logits[i]))
                fit[count++] = i;
        CU_ASSERT_FATAL(count > 0);
        ids[n] = fit[draw(count)];
        if (c)
            MUST(gqac_constraint_push(s, ids[n], &diag));
        if (c)
            MUST(gqac_constraint_ends(s, &may, &must, &diag));
    }
    *complete = may;
    gqac_constraint_state_free(s);
    return n;
}

typedef struct found {
    size_t content; /* in bytes */
    int n;
    char names[64][12];
} found;

/* Checks that each call has the arguments of its function. */
static void check_call(const gqac_call_part *part) {
    json_t *all = json_loads(part->arguments, 0, NULL);
    const char *place = json_string_value(json_object_get(all, "place"));
    const json_int_t days = json_integer_value(json_object_get(all, "days"));
    CU_ASSERT(json_is_object(all));
    if (!strcmp(part->name, "clock"))
        CU_ASSERT(json_object_size(all) == 0);
    if (!strcmp(part->name, "weather"))
        CU_ASSERT(json_object_size(all) == 2 && days >= 1 && days <= 9 &&
                  (!strcmp(place, "<|call|>") || !strcmp(place, "</tool_call>") ||
                   !strcmp(place, "[TOOL_CALLS]") || !strcmp(place, "K\xc3\xb6ln")));
    if (!strcmp(part->name, "walk-2"))
        CU_ASSERT(json_object_size(all) == 1 && place);
    json_decref(all);
}

static found read_answer(const gqac_text *text, const int64_t *ids, size_t n) {
    gqac_reply *reply = NULL;
    gqac_calls *calls = NULL;
    gqac_call_part part = {.size = sizeof part};
    found f = {.n = 0};
    size_t length = 0;
    MUST(gqac_reply_create(text, 0, NULL, &reply, &diag));
    MUST(gqac_calls_create(text, TOOLS, &calls, &diag));
    gqac_reply_show_calls(reply, calls);
    for (size_t i = 0; i < n; i++)
        MUST(gqac_reply_push(reply, ids[i], &diag));
    MUST(gqac_reply_finish(reply, &diag));
    const char *said = gqac_reply_text(reply, &length);
    MUST(gqac_calls_push(calls, said, length, &diag));
    MUST(gqac_calls_finish(calls, &diag));
    while (gqac_calls_next(calls, &part)) {
        for (size_t i = 0; i < part.length && part.text; i++)
            f.content += !strchr(" \n", part.text[i]);
        if (part.text)
            continue;
        check_call(&part);
        snprintf(f.names[f.n++ % 64], sizeof *f.names, "%s", part.name);
    }
    gqac_reply_free(reply);
    gqac_calls_free(calls);
    return f;
}

/* ---- cases --------------------------------------------------------------- */

enum { MOST = 600 };

/* Answers for all ways to force a call; returns the number of answers with several calls. */
static int check_choice(const gqac_text *text, const struct family *x, const char *name,
                        bool parallel) {
    int64_t ids[MOST];
    int several = 0, whole = 0;
    bool complete = false;
    gqac_constraint *c = NULL;
    gqac_tool_choice choice;
    gqac_tool_choice_init(&choice);
    choice.name = name;
    choice.parallel = parallel;
    MUST(gqac_constraint_from_tools(text, TOOLS, sizeof TOOLS - 1, &choice, &c, &diag));
    for (int i = 0; i < unit_count(6, 300); i++) {
        const size_t n = choose(c, ids, MOST, &complete);
        if (!complete)
            continue;
        const found f = read_answer(text, ids, n);
        whole++;
        CU_ASSERT(!f.content && f.n >= 1);
        CU_ASSERT(f.n == 1 || (parallel && x->several));
        for (int k = 0; k < f.n && name; k++)
            CU_ASSERT_STRING_EQUAL(f.names[k % 64], name);
        several += f.n > 1;
    }
    CU_ASSERT(whole > 0);
    gqac_constraint_free(c);
    return several;
}

static void test_forced(void) {
    static const char *const names[] = {NULL, "weather", "clock", "walk-2"};
    for (int k = 0; k < FAMILIES; k++)
        for (int special = 0; special < 2; special++) {
            gqac_text *text = open_family(&families[k], special);
            int several = 0;
            for (int i = 0; i < 8; i++)
                several += check_choice(text, &families[k], names[i / 2], i % 2);
            CU_ASSERT(!several == !families[k].several);
            gqac_text_free(text);
        }
}

/* The outcome of an answer under a constraint. */
static int outcome(gqac_constraint *c, const gqac_text *text, const char *said, bool plain) {
    gqac_constraint_state *s = NULL;
    gqac_tokenize_options how;
    int64_t *ids = NULL;
    size_t n = 0;
    bool may = false, fits = true;
    gqac_tokenize_options_init(&how);
    how.special = false;
    how.plain = plain;
    MUST(gqac_text_tokenize_with(text, said, strlen(said), &how, &ids, &n, &diag));
    MUST(gqac_constraint_begin(c, &s, &diag));
    for (size_t i = 0; i < n && fits; i++)
        fits = gqac_constraint_push(s, ids[i], &diag) == GQAC_OK;
    MUST(gqac_constraint_ends(s, &may, NULL, &diag));
    gqac_constraint_state_free(s);
    gqac_release(ids);
    return !fits ? 'x' : may ? '.' : '+';
}

#define CALL(name, key, arguments) "{\"name\": \"" name "\", \"" key "\": " arguments "}"
#define TAGS(name, arguments)      "<tool_call>\n" CALL(name, "arguments", arguments) "\n</tool_call>"
#define FINE                       "{\"place\": \"K\xc3\xb6ln\", \"days\": 2}"
#define WRONG                      "{\"place\": \"K\xc3\xb6ln\", \"days\": 0}"

#define THOUGHT                                                                                    \
    "<|channel|>analysis<|message|>Use to=functions.other, <|start|><|message|>.<|end|>"           \
    "<|start|>assistant"

/* Optional calls. An answer is accepted as a whole ('.'), as a beginning ('+'), or refused ('x'),
 * if several calls are allowed, and if only one is. */
static const struct {
    int family;
    const char *said, *wanted;
} optional[] = {
    {0, "", ".."},
    {0, "Caf\xc3\xa9 {1} </tool_call>", ".."},
    {0, "<<tool_call", ".."},
    {0, "<<tool_call>\n", "++"},
    {0, "a <tool_call>x", "xx"},
    {0, "a " TAGS("weather", FINE), ".."},
    {0, TAGS("weather", WRONG), "xx"},
    {0, TAGS("other", "{}"), "xx"},
    {0, TAGS("clock", "{\"any\": [1, \"<tool\"]}"), ".."},
    {0, TAGS("clock", "[]"), "xx"},
    {0, TAGS("clock", "{}") "\n" TAGS("weather", FINE) " b", ".x"},
    {0, TAGS("clock", "{}") "\n" TAGS("weather", WRONG), "xx"},
    {1, "Yes. [{\"name\": \"clock\"", ".."},
    {1, "[TOOL_CALLS] [" CALL("weather", "arguments", FINE) "]", ".."},
    {1, "So: [TOOL_CALLS] [" CALL("clock", "arguments", "{}"), "++"},
    {1,
     "[TOOL_CALLS] [" CALL("clock", "arguments", "{}") ", " CALL("walk-2", "arguments", "{}") "]",
     ".x"},
    {1, "[TOOL_CALLS] [" CALL("clock", "arguments", "{}") "] b", "xx"},
    {1, "[TOOL_CALLS] [" CALL("weather", "arguments", WRONG), "xx"},
    {1, "[TOOL_CALLS", ".."},
    {1, "[[TOOL_CALLS] [", "++"},
    {2, "Yes. {\"a\": 1} <|python_tag", ".."},
    {2, CALL("weather", "parameters", FINE), ".."},
    {2, CALL("weather", "parameters", WRONG), "xx"},
    {2, CALL("clock", "parameters", "{\"a\": 1}"), ".."},
    {2, CALL("clock", "parameters", "{}") " b", "xx"},
    {2, "{\"a\": 1}", "xx"},
    {2, "<|python_tag|>{", "xx"},
    {3, "Yes. {\"a\": 1} <|message|> <|message|>", ".."},
    {3, "<|channel|>final<|message|>That is to=functions.other <|message|> x", ".."},
    {3, THOUGHT "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>" FINE,
     ".."},
    {3, THOUGHT "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>" WRONG,
     "xx"},
    {3, THOUGHT " to=functions.weather<|channel|>commentary json<|message|>" FINE, ".."},
    {3, THOUGHT " to=functions.weather<|channel|>commentary json<|message|>" WRONG, "xx"},
    {3, THOUGHT "<|channel|>analysis to=functions.o", "xx"},
    {3, THOUGHT "<|channel|>commentary<|channel|>to=functions.w", "++"},
    {3, "<|channel|>analysis<|message|>x<|channel|>commentary to=functions.o", "xx"},
    {3, " to=functions.clock<|message|>{\"a\": 1}", ".."},
    {3, " to=functions.clock<|channel|>commentary <|constrain|>json<|message|>{}", ".."},
    {3, " to=functions.clock<|message|>{} b", "xx"},
    {3, " to=functions.clock<|message|>[]", "xx"},
    {3, " to=functions.clock <|constrain|>json", "++"},
    {3, " to=functions.clock to=functions.weather<|message|>", "xx"},
    {3, "<|channel|>commentary to=functions", ".."},
};

/* The reader finds a call in every form of its beginning. */
static void check_heads(const gqac_text *text) {
    static const char *const said[] = {
        THOUGHT "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>" FINE,
        THOUGHT "<|channel|>commentary to=functions.weather json<|message|>" FINE,
        THOUGHT "<|channel|>commentary to=functions.weather<|message|>" FINE,
        THOUGHT " to=functions.weather<|channel|>commentary json<|message|>" FINE,
        " to=functions.weather<|channel|>commentary <|constrain|>json<|message|>" FINE};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        int64_t *ids = NULL;
        size_t n = 0;
        MUST(gqac_text_tokenize(text, said[i], strlen(said[i]), false, &ids, &n, &diag));
        CU_ASSERT_EQUAL(read_answer(text, ids, n).n, 1);
        gqac_release(ids);
    }
}

static void test_optional(void) {
    for (int k = 0; k < 2 * FAMILIES; k++) {
        const bool special = k % 2;
        gqac_text *text = open_family(&families[k / 2], special);
        gqac_constraint *c[2] = {NULL, NULL};
        gqac_tool_choice choice;
        gqac_tool_choice_init(&choice);
        choice.optional = true;
        for (int i = 0; i < 2; i++) {
            choice.parallel = !i;
            MUST(gqac_constraint_from_tools(text, TOOLS, sizeof TOOLS - 1, &choice, &c[i], &diag));
        }
        for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
            for (int one = 0; one < 2 && optional[i].family == k / 2; one++) {
                const int found = outcome(c[one], text, optional[i].said, false);
                if (found != optional[i].wanted[one])
                    printf("%zu, special %d, one %d: %c\n", i, special, one, found);
                CU_ASSERT_EQUAL(found, optional[i].wanted[one]);
            }
        if (k < 4) /* a spelled marker is read as the marker, so it is refused */
            CU_ASSERT_EQUAL(outcome(c[0], text, families[k / 2].markers[0], true),
                            special ? 'x' : '+');
        if (k / 2 == 3)
            check_heads(text);
        gqac_constraint_free(c[0]);
        gqac_constraint_free(c[1]);
        gqac_text_free(text);
    }
}

/* Whether the choice limits answers: tools that are not strict do not, in any syntax. */
static void test_unlimited(void) {
    static const char strict[] = "[{\"name\": \"a\"}, {\"name\": \"b\", \"strict\": true}]";
    static const char nested[] = "[{\"function\": {\"name\": \"a\", \"strict\": true}}]";
    static const char escaped[] = "[{\"name\": \"a\", \"\\u0073\\u0074rict\": true}]";
    static const char plain[] = "[{\"name\": \"a\", \"description\": \"\\n\"}]";
    static const char loose[] = "[{\"function\": {\"name\": \"a\", \"strict\": false}, "
                                "\"strict\": true}, {\"name\": \"b\"}]";
    static const struct {
        const char *tools, *name;
        bool parallel, optional, limit;
    } rows[] = {{loose, NULL, true, true, false}, {loose, NULL, false, true, true},
                {loose, NULL, true, false, true}, {loose, "b", true, true, true},
                {strict, NULL, true, true, true}, {escaped, NULL, true, true, true},
                {plain, NULL, true, true, false}, {plain, NULL, false, true, true},
                {nested, NULL, true, true, true}};
    for (int k = 0; k < FAMILIES; k++) {
        gqac_text *text = open_family(&families[k], true);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            gqac_constraint *c = NULL;
            gqac_tool_choice choice;
            gqac_tool_choice_init(&choice);
            choice.name = rows[i].name;
            choice.parallel = rows[i].parallel;
            choice.optional = rows[i].optional;
            MUST(gqac_constraint_from_tools(text, rows[i].tools, strlen(rows[i].tools), &choice, &c,
                                            &diag));
            CU_ASSERT_EQUAL(c != NULL, rows[i].limit);
            gqac_constraint_free(c);
        }
        gqac_text_free(text);
    }
}

/* The control of the first case: random ids without a mask are not calls. */
static void test_unmasked(void) {
    int64_t ids[MOST];
    bool complete = false;
    gqac_text *text = open_family(&families[0], true);
    for (int i = 0; i < 20; i++) {
        const found f = read_answer(text, ids, choose(NULL, ids, MOST, &complete));
        CU_ASSERT(f.content > 0 && !f.n);
    }
    gqac_text_free(text);
}

/* A marker that is a special token is that token, not its spelling. No grammar of text allows it,
 * nor a byte that occurs in no text. */
static void test_markers(void) {
    for (int special = 0; special < 2; special++) {
        gqac_text *text = open_family(&families[1], special);
        gqac_constraint *forced = NULL, *any = NULL;
        gqac_constraint_state *s = NULL;
        float logits[IDS] = {0}, free_text[IDS] = {0};
        MUST(gqac_constraint_from_tools(text, TOOLS, sizeof TOOLS - 1, NULL, &forced, &diag));
        MUST(gqac_constraint_begin(forced, &s, &diag));
        MUST(gqac_constraint_mask(s, logits, IDS, NULL, 0, &diag));
        gqac_constraint_state_free(s);
        MUST(gqac_constraint_from_grammar(text, "root ::= .*", 11, &any, &diag));
        MUST(gqac_constraint_begin(any, &s, &diag));
        MUST(gqac_constraint_mask(s, free_text, IDS, NULL, 0, &diag));
        for (int64_t i = 0; i < IDS; i++) {
            char *bytes = NULL;
            size_t length = 0;
            if (gqac_text_token_bytes(text, i, &bytes, &length, NULL, &diag) != GQAC_OK)
                continue;
            const bool fits = special ? i == 512 : i < 512 && bytes[0] == '[' && length == 1;
            CU_ASSERT(isnan(logits[i]) == !fits);
            CU_ASSERT(i < 512 || isnan(free_text[i]));
            CU_ASSERT(!length || (unsigned char)bytes[0] != 0xff || isnan(free_text[i]));
            gqac_release(bytes);
        }
        gqac_constraint_state_free(s);
        gqac_constraint_free(forced);
        gqac_constraint_free(any);
        gqac_text_free(text);
    }
}

static void test_refused(void) {
#define TOOL(parameters) "[{\"function\": {\"name\": \"f\", \"parameters\": " parameters "}}]"
    static const struct {
        const char *tools, *name, *says, *where;
        gqac_status status;
    } rows[] = {
        {"{}", NULL, "not a JSON list", "", GQAC_INVALID_INPUT},
        {"[]", NULL, "not a JSON list", "", GQAC_INVALID_INPUT},
        {"[", NULL, "not JSON", "line 1", GQAC_INVALID_INPUT},
        {"[1]", NULL, "not a function", "item 0", GQAC_INVALID_INPUT},
        {"[{\"name\": \"a\"}, {\"name\": \"b c\"}]", NULL, "cannot be written", "item 1",
         GQAC_INVALID_INPUT},
        {"[{\"name\": \"\"}]", NULL, "cannot be written", "item 0", GQAC_INVALID_INPUT},
        {"[{\"name\": \"a\"}]", "b", "none of the tools has the name 'b'", "", GQAC_INVALID_INPUT},
        {TOOL("{\"type\": \"string\"}"), NULL, "not objects", "f", GQAC_INVALID_INPUT},
        {TOOL("{\"type\": [\"object\", \"null\"]}"), NULL, "not objects", "f", GQAC_INVALID_INPUT},
        {TOOL("{\"anyOf\": [{\"type\": \"object\"}, {\"$ref\": \"#/$defs/x\"}], \"$defs\": {\"x\": "
              "{\"enum\": [1]}}}"),
         NULL, "not objects", "f", GQAC_INVALID_INPUT},
        {TOOL("{\"enum\": [{}, [1]]}"), NULL, "not objects", "f", GQAC_INVALID_INPUT},
        {TOOL("1"), NULL, "not a schema", "'f'", GQAC_INVALID_INPUT},
        {TOOL("{\"properties\": {\"a\": {\"multipleOf\": 2}}}"), NULL, "multipleOf",
         "'f', schema, #/properties/a", GQAC_UNSUPPORTED},
        {TOOL("false"), NULL, "no text", "", GQAC_INVALID_INPUT},
        {TOOL("{\"enum\": []}"), NULL, "no text", "", GQAC_INVALID_INPUT},
        {TOOL("{\"type\": \"object\", \"enum\": [1]}"), NULL, "no text", "", GQAC_INVALID_INPUT},
    };
    gqac_text *text = open_family(&families[0], false);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gqac_constraint *c = NULL;
        diag = (gqac_diag){0};
        gqac_tool_choice choice;
        gqac_tool_choice_init(&choice);
        choice.name = rows[i].name;
        CU_ASSERT_EQUAL(gqac_constraint_from_tools(text, rows[i].tools, strlen(rows[i].tools),
                                                   &choice, &c, &diag),
                        rows[i].status);
        if (!strstr(diag.what, rows[i].says) || !strstr(diag.where, rows[i].where))
            printf("%zu: %s (%s)\n", i, diag.what, diag.where);
        CU_ASSERT(strstr(diag.what, rows[i].says) && strstr(diag.where, rows[i].where));
        CU_ASSERT_PTR_NULL(c);
    }
    gqac_text_free(text);
    const struct family none = {"gemma", {NULL}, false};
    gqac_constraint *c = NULL;
    text = open_family(&none, false);
    CU_ASSERT_EQUAL(gqac_constraint_from_tools(text, TOOLS, sizeof TOOLS - 1, NULL, &c, &diag),
                    GQAC_UNSUPPORTED);
    gqac_text_free(text);
}

/* Schemas that accept only objects, in all ways to express this. */
static void test_objects(void) {
    static const char *const rows[] = {
        TOOL("{}"),
        TOOL("true"),
        TOOL("null"),
        TOOL("{\"description\": \"x\"}"),
        TOOL("{\"enum\": [{\"a\": 1}, {}]}"),
        TOOL("{\"const\": {}}"),
        TOOL("{\"$ref\": \"#/$defs/x\", \"$defs\": {\"x\": {\"type\": \"object\"}}}"),
        TOOL("{\"oneOf\": [{\"type\": \"object\", \"properties\": {\"k\": {\"const\": 1}}, "
             "\"required\": [\"k\"]}, {\"type\": \"object\", \"properties\": {\"k\": {\"const\": "
             "2}}, \"required\": [\"k\"]}]}"),
    };
    gqac_text *text = open_family(&families[2], false);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gqac_constraint *c = NULL;
        MUST(gqac_constraint_from_tools(text, rows[i], strlen(rows[i]), NULL, &c, &diag));
        gqac_constraint_free(c);
    }
    gqac_text_free(text);
}

static void test_memory(void) {
    gqac_text *text = open_family(&families[3], true);
    gqac_constraint *c = NULL;
    MUST(gqac_constraint_from_tools(text, TOOLS, sizeof TOOLS - 1, NULL, &c, &diag));
    gqac_constraint_free(c);
    const size_t live = gqac_alloc_live();
    gqac_alloc_fail_at(0, 0);
    MUST(gqac_constraint_from_tools(text, TOOLS, sizeof TOOLS - 1, NULL, &c, &diag));
    const size_t calls = gqac_alloc_calls();
    gqac_constraint_free(c);
    for (size_t n = 1; n <= calls; n++) {
        gqac_alloc_fail_at(n, 0);
        CU_ASSERT_EQUAL(gqac_constraint_from_tools(text, TOOLS, sizeof TOOLS - 1, NULL, &c, &diag),
                        GQAC_NO_MEMORY);
        CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    }
    gqac_alloc_fail_at(0, 0);
    gqac_text_free(text);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"answers under the mask are calls, in every syntax", test_forced},
        {"calls that are optional", test_optional},
        {"tools that limit no answer", test_unlimited},
        {"answers without a mask are no calls", test_unmasked},
        {"markers are special tokens where the tokenizer has them", test_markers},
        {"what is refused", test_refused},
        {"schemas of objects", test_objects},
        {"allocations fail", test_memory},
    };
    if (!mkdtemp(scratch))
        return 1;
    const int code = unit_run("tools", cases, sizeof cases / sizeof *cases, argc, argv);
    char line[100];
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "%s/%s", scratch, i ? "tokenizer.json" : "chat_template.jinja");
        unlink(line);
    }
    rmdir(scratch);
    return code;
}
