/* Calls in answers: the calls that the templates of the tests write for an assistant are read back,
 * however the text is divided; text that only looks like a call stays text. */
#include "unit.h"

#include <gqac/text.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

static char scratch[] = "/tmp/gqac-calls-XXXXXX";
static gqac_diag diag;

/* The text of a folder with this template. */
static gqac_text *open_template(const char *family) {
    char from[200], path[200];
    gqac_text *text = NULL;
    snprintf(from, sizeof from, "test/templates/%s/template.jinja", family);
    snprintf(path, sizeof path, "%s/chat_template.jinja", scratch);
    FILE *in = fopen(unit_path(from), "rb"), *out = fopen(path, "wb");
    CU_ASSERT_FATAL(in && out);
    for (int c = fgetc(in); c != EOF; c = fgetc(in))
        fputc(c, out);
    fclose(in);
    fclose(out);
    CU_ASSERT_EQUAL_FATAL(gqac_text_open(scratch, GQAC_TEXT_TEMPLATE, &text, &diag), GQAC_OK);
    return text;
}

static char *render(const gqac_text *text, json_t *variables) {
    char *json = json_dumps(variables, JSON_COMPACT), *out = NULL;
    size_t length = 0;
    CU_ASSERT_EQUAL_FATAL(gqac_text_render(text, json, &out, &length, &diag), GQAC_OK);
    char *own = strndup(out, length);
    gqac_release(out);
    free(json);
    json_decref(variables);
    return own;
}

/* The output of a reader: content, then a line "NAME ARGUMENTS ID" for each call. */
typedef struct found {
    char content[4096], calls[8192];
} found;

static void take(gqac_calls *calls, found *f) {
    gqac_call_part part = {.size = sizeof part};
    while (gqac_calls_next(calls, &part)) {
        if (part.text) {
            strncat(f->content, part.text, part.length);
            continue;
        }
        const size_t n = strlen(f->calls);
        snprintf(f->calls + n, sizeof f->calls - n, "%s %s %s\n", part.name, part.arguments,
                 part.id ? part.id : "-");
    }
}

static const char TOOLS[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"weather\"}}, {\"name\": \"clock\"}, 1]";

/* Reads a text in pieces of `step` bytes, after a first piece of `cut` bytes. */
static found read_pieces(const gqac_text *text, const char *answer, size_t cut, size_t step) {
    gqac_calls *calls = NULL;
    found f = {.content = ""};
    const size_t n = strlen(answer);
    CU_ASSERT_EQUAL_FATAL(gqac_calls_create(text, TOOLS, &calls, &diag), GQAC_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(calls);
    for (size_t at = 0, next = cut; at < n; at = next, next += step) {
        next = next < n ? next : n;
        CU_ASSERT_EQUAL_FATAL(gqac_calls_push(calls, answer + at, next - at, &diag), GQAC_OK);
        take(calls, &f);
    }
    CU_ASSERT_EQUAL_FATAL(gqac_calls_finish(calls, &diag), GQAC_OK);
    take(calls, &f);
    gqac_calls_free(calls);
    return f;
}

/* Reads a text whole. Divided at any byte, and byte by byte, the result must be the same. */
static found read_all(const gqac_text *text, const char *answer) {
    const size_t n = strlen(answer);
    const found whole = read_pieces(text, answer, n, n);
    for (size_t cut = 0; cut <= n; cut++) {
        const found f = read_pieces(text, answer, cut, cut ? n : 1);
        CU_ASSERT_STRING_EQUAL(f.content, whole.content);
        CU_ASSERT_STRING_EQUAL(f.calls, whole.calls);
    }
    return whole;
}

/* ---- round trip ---------------------------------------------------------- */

static const char *const arguments[] = {
    "{}", "{\"place\": \"Rome\"}",
    "{\"place\": \"K\\u00f6ln </tool_call> ]}<|call|> [TOOL_CALLS]\", \"deep\": {\"a\": [1, 2.5, "
    "null, true, {\"b\": \"\\\"q\\\" \\\\ \\n <x> {[\"}]}, \"name\": \"x\", \"arguments\": {}, "
    "\"parameters\": 1}"};

static json_t *message(const char *content, int first, int n) {
    static const char *const names[] = {"weather", "clock"};
    static const char *const ids[] = {"abcdefghi", "123456789"};
    json_t *calls = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(calls,
                              json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", ids[i], "type",
                                        "function", "function", "name", names[i], "arguments",
                                        json_loads(arguments[(first + i) % 3], 0, NULL)));
    return json_pack("{s:s, s:s, s:o}", "role", "assistant", "content", content, "tool_calls",
                     calls);
}

/* Checks that calls are equal, with arguments that are equal as JSON. */
static void same_calls(const found *f, const json_t *said, bool ids) {
    json_t *calls = json_object_get(said, "tool_calls"), *call;
    size_t i;
    const char *line = f->calls;
    json_array_foreach(calls, i, call) {
        const json_t *function = json_object_get(call, "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        const char *end = strchr(line, '\n');
        CU_ASSERT_PTR_NOT_NULL_FATAL(end);
        CU_ASSERT(!strncmp(line, name, strlen(name)) && line[strlen(name)] == ' ');
        json_t *got = json_loads(line + strlen(name), JSON_DISABLE_EOF_CHECK, NULL);
        CU_ASSERT(json_equal(got, json_object_get(function, "arguments")));
        json_decref(got);
        const char *id = ids ? json_string_value(json_object_get(call, "id")) : "-";
        CU_ASSERT(!strncmp(end - strlen(id), id, strlen(id)));
        line = end + 1;
    }
    CU_ASSERT_STRING_EQUAL(line, "");
}

static const struct family {
    const char *name, *ends[3]; /* the text that the template writes after an answer; "": none */
    int most;                   /* calls of a message */
    bool ids, content;          /* the template writes them */
    const char *before;         /* the text that it writes before content */
    const char *empty;          /* the same without content, up to the line feed before a call */
} families[] = {
    {"qwen", {"<|im_end|>\n"}, 2, false, true, "<think>\n\n</think>\n\n", "<think>\n\n</think>\n"},
    {"mistral", {"</s>", ""}, 2, true, false, "", ""},
    {"llama3", {"<|eot_id|>"}, 1, false, false, "", ""},
    {"harmony", {"<|end|>", "<|call|>"}, 2, false, true, "assistantfinal", ""},
};

static char *answer_of(const gqac_text *text, const struct family *x, const json_t *said) {
    char *prompt =
        render(text, json_pack("{s:[{s:s, s:s}], s:b, s:s}", "messages", "role", "user", "content",
                               "x", "add_generation_prompt", 1, "eos_token", "</s>"));
    char *all = render(text, json_pack("{s:[{s:s, s:s}, O], s:b, s:s}", "messages", "role", "user",
                                       "content", "x", said, "add_generation_prompt", 0,
                                       "eos_token", "</s>"));
    const size_t n = strlen(prompt);
    CU_ASSERT_FATAL(!strncmp(prompt, all, n));
    char *answer = strdup(all + n);
    for (int i = 0; i < 3 && x->ends[i]; i++) {
        const size_t end = strlen(x->ends[i]), length = strlen(answer);
        if (length >= end && !strcmp(answer + length - end, x->ends[i])) {
            answer[length - end] = '\0';
            break;
        }
    }
    free(prompt);
    free(all);
    return answer;
}

static void round_trip(void) {
    for (size_t k = 0; k < sizeof families / sizeof *families; k++) {
        const struct family *x = &families[k];
        gqac_text *text = open_template(x->name);
        for (int first = 0; first < 3; first++)
            for (int n = 1; n <= x->most; n++)
                for (int with = 0; with <= x->content; with++) {
                    const char *content = with ? "Let me see.\n{\"a\": <b>}" : "";
                    char want[200] = "";
                    json_t *said = message(content, first, n);
                    char *answer = answer_of(text, x, said);
                    const found f = read_all(text, answer);
                    same_calls(&f, said, x->ids);
                    if (with || *x->empty)
                        snprintf(want, sizeof want, "%s%s", with ? x->before : x->empty, content);
                    CU_ASSERT_STRING_EQUAL(f.content, want);
                    free(answer);
                    json_decref(said);
                }
        gqac_text_free(text);
    }
}

/* ---- text that is not a call --------------------------------------------- */

static const struct {
    const char *family, *answer, *content; /* NULL: the answer */
} damaged[] = {
    {"qwen", "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}", NULL},
    {"qwen", "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}\n</tool_call>", NULL},
    {"qwen", "<tool_call>\n{\"name\": \"weather\", \"arguments\": {},}\n</tool_call>", NULL},
    {"qwen", "<tool_call>{\"name\": \"weather\"}</tool_call>", NULL},
    {"qwen", "<tool_call>{\"name\": \"weather\", \"arguments\": \"{}\"}</tool_call>", NULL},
    {"qwen", "<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>", NULL},
    {"qwen", "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>", NULL},
    {"qwen",
     "<tool_call>{\"name\": \"weather\", \"name\": \"clock\", \"arguments\": {}}</tool_call>",
     NULL},
    {"qwen", "a <tool_call> b\n<tool_cal", NULL},
    {"qwen", "<tool_call>[{\"name\": \"weather\", \"arguments\": {}}]</tool_call>", NULL},
    {"qwen", "\n\n", NULL},
    {"qwen", "{\"name\": \"weather\", \"arguments\": {}}", NULL},
    {"mistral", "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {}}",
     " [{\"name\": \"weather\", \"arguments\": {}}"},
    {"mistral", "[TOOL_CALLS] []", " []"},
    {"mistral",
     "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {}}, {\"name\": \"other\", "
     "\"arguments\": {}}]",
     " [{\"name\": \"weather\", \"arguments\": {}}, {\"name\": \"other\", \"arguments\": {}}]"},
    {"mistral", "[{\"name\": \"weather\", \"arguments\": {}}]", NULL},
    {"mistral", "[TOOL", NULL},
    {"llama3", "{\"name\": \"weather\", \"parameters\": {}} and more", NULL},
    {"llama3", "See {\"name\": \"weather\", \"parameters\": {}}", NULL},
    {"llama3", "{\"name\": \"weather\", \"parameters\": {}", NULL},
    {"llama3", "{\"name\": \"other\", \"parameters\": {}}", NULL},
    {"llama3", "{\"answer\": 1}", NULL},
    {"llama3", "<|python_tag|>x", "x"},
    {"harmony", " to=functions.other<|channel|>commentary json<|message|>{}<|call|>",
     " to=functions.othercommentary json{}"},
    {"harmony", " to=functions.clock<|channel|>commentary json<|message|>{<|call|>",
     " to=functions.clockcommentary json{"},
    {"harmony", "<|channel|>final<|message|>{}<|end|>", "final{}"},
    {"harmony", "<|channel|>final<|message|> to=functions.clock<|mess",
     "final to=functions.clock<|mess"},
};

static void looks_like(void) {
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        gqac_text *text = open_template(damaged[i].family);
        const found f = read_all(text, damaged[i].answer);
        CU_ASSERT_STRING_EQUAL(f.calls, "");
        CU_ASSERT_STRING_EQUAL(f.content,
                               damaged[i].content ? damaged[i].content : damaged[i].answer);
        gqac_text_free(text);
    }
}

/* Calls in forms that models write and templates do not. */
static void forms(void) {
    static const struct {
        const char *family, *answer, *content, *calls;
    } rows[] = {
        {"qwen",
         "I look.\n\n<tool_call>{\"arguments\":{\"a\" : 1.50},\"name\":\"clock\"}</tool_call>.",
         "I look.\n.", "clock {\"a\" : 1.50} -\n"},
        {"qwen", "<tool_call> <tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>",
         "<tool_call> ", "clock {} -\n"},
        {"mistral", "Yes.[TOOL_CALLS][{\"name\": \"clock\", \"arguments\": {}}]", "Yes.",
         "clock {} -\n"},
        {"llama3", "<|python_tag|>{\"name\": \"clock\", \"parameters\": {}} \n", "",
         "clock {} -\n"},
        {"harmony",
         "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.weather <|constrain|>json<|message|>{\"place\":\"Rome\"}",
         "analysisHm.", "weather {\"place\":\"Rome\"} -\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gqac_text *text = open_template(rows[i].family);
        const found f = read_all(text, rows[i].answer);
        CU_ASSERT_STRING_EQUAL(f.calls, rows[i].calls);
        CU_ASSERT_STRING_EQUAL(f.content, rows[i].content);
        gqac_text_free(text);
    }
}

static void others(void) {
    static const char *const without[] = {"chatml", "gemma", "llama2", "phi3", "zephyr"};
    gqac_calls *calls = NULL;
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        gqac_text *text = open_template(without[i]);
        CU_ASSERT_EQUAL(gqac_calls_create(text, TOOLS, &calls, &diag), GQAC_OK);
        CU_ASSERT_PTR_NULL(calls);
        gqac_text_free(text);
    }
    gqac_text *text = open_template("qwen");
    CU_ASSERT_EQUAL(gqac_calls_create(text, "{}", &calls, &diag), GQAC_INVALID_INPUT);
    CU_ASSERT_EQUAL(gqac_calls_create(text, "[", &calls, &diag), GQAC_INVALID_INPUT);
    CU_ASSERT_EQUAL(gqac_calls_create(text, NULL, &calls, &diag), GQAC_OK); /* any name */
    static const char own[] = "<tool_call>{\"name\":\"y\",\"arguments\":{}}</tool_call>";
    CU_ASSERT_EQUAL(gqac_calls_push(calls, own, sizeof own - 1, &diag), GQAC_OK);
    gqac_call_part part = {.size = sizeof part};
    part.size = sizeof part.size + 1;
    CU_ASSERT_FALSE(gqac_calls_next(calls, &part)); /* no version of the struct has this size */
    struct {
        size_t size;
        const char *text;
        size_t beyond;
    } older = {.size = 2 * sizeof(size_t), .beyond = 7};
    static const char more[] = "x";
    CU_ASSERT_EQUAL(gqac_calls_push(calls, more, 1, &diag), GQAC_OK);
    part.size = sizeof part;
    CU_ASSERT_FATAL(gqac_calls_next(calls, &part));
    CU_ASSERT(!part.text && !strcmp(part.name, "y"));
    CU_ASSERT(gqac_calls_next(calls, (gqac_call_part *)(void *)&older));
    CU_ASSERT(older.text && *older.text == 'x' && older.beyond == 7);
    CU_ASSERT(!gqac_calls_next(calls, &part));
    gqac_calls_free(calls);
    gqac_text_free(text);
}

/* A copy of a tokenizer whose special token <s> has another name. */
static void put_tokenizer(const char *name) {
    char path[200];
    snprintf(path, sizeof path, "%s/tokenizer.json", scratch);
    json_t *root = json_load_file(unit_path("test/models/llama/tokenizer.json"), 0, NULL);
    json_t *token = json_array_get(json_object_get(root, "added_tokens"), 0);
    CU_ASSERT_FATAL(token && json_object_set_new(token, "content", json_string(name)) == 0);
    CU_ASSERT_EQUAL_FATAL(json_dump_file(root, path, 0), 0);
    json_decref(root);
}

/* The text of a reply with these ids. */
static char *reply_text(const gqac_text *text, const gqac_calls *calls, const char *stop,
                        const int64_t *ids, size_t n) {
    gqac_reply *reply = NULL;
    size_t length = 0;
    CU_ASSERT_EQUAL_FATAL(gqac_reply_create(text, stop != NULL, &stop, &reply, &diag), GQAC_OK);
    gqac_reply_show_calls(reply, calls);
    for (size_t i = 0; i < n; i++)
        CU_ASSERT_EQUAL_FATAL(gqac_reply_push(reply, ids[i], &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_reply_finish(reply, &diag), GQAC_OK);
    char *own = strdup(gqac_reply_text(reply, &length));
    gqac_reply_free(reply);
    return own;
}

/* A marker that is a special token appears in the text of a reply in place of its id, also with
 * stop texts that hold text back; other special tokens do not appear. */
static void special_tokens(void) {
    static const char said[] = "Yes.\n[TOOL_CALLS][{\"name\": \"clock\", \"arguments\": {}}]";
    gqac_text *text = NULL;
    gqac_calls *calls = NULL;
    int64_t *ids = NULL;
    size_t n = 0;
    put_tokenizer("[TOOL_CALLS]");
    gqac_text_free(open_template("mistral"));
    CU_ASSERT_EQUAL_FATAL(gqac_text_open(scratch, GQAC_TEXT_ALL, &text, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_text_tokenize(text, said, sizeof said - 1, false, &ids, &n, &diag),
                          GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(ids[5], 256);
    CU_ASSERT_EQUAL_FATAL(gqac_calls_create(text, TOOLS, &calls, &diag), GQAC_OK);
    char *plain = reply_text(text, NULL, NULL, ids, n);
    char *shown = reply_text(text, calls, NULL, ids, n),
         *held = reply_text(text, calls, "\nx", ids, n);
    char *cut = reply_text(text, calls, "[{", ids, n);
    CU_ASSERT_STRING_EQUAL(plain, "Yes.\n[{\"name\": \"clock\", \"arguments\": {}}]");
    CU_ASSERT_STRING_EQUAL(shown, said);
    CU_ASSERT_STRING_EQUAL(held, said);
    CU_ASSERT_STRING_EQUAL(cut, "Yes.\n[TOOL_CALLS]");
    const found f = read_all(text, shown);
    CU_ASSERT_STRING_EQUAL(f.content, "Yes.\n");
    CU_ASSERT_STRING_EQUAL(f.calls, "clock {} -\n");
    free(plain);
    free(shown);
    free(held);
    free(cut);
    gqac_release(ids);
    gqac_calls_free(calls);
    gqac_text_free(text);
    char path[200];
    snprintf(path, sizeof path, "%s/tokenizer.json", scratch);
    unlink(path);
}

/* Each allocation fails once: a status is returned, and nothing leaks. */
static void memory(void) {
    static const char answer[] =
        "So:\n<tool_call>{\"name\": \"clock\", \"arguments\": {\"a\": [1]}}</tool_call> yes";
    gqac_text *text = open_template("qwen");
    gqac_status status = GQAC_NO_MEMORY;
    size_t n = 1;
    for (; status == GQAC_NO_MEMORY && n < 200; n++) {
        gqac_calls *calls = NULL;
        gqac_call_part part = {.size = sizeof part};
        gqac_alloc_fail_at(n, 0);
        status = gqac_calls_create(text, TOOLS, &calls, &diag);
        if (status == GQAC_OK)
            status = gqac_calls_push(calls, answer, sizeof answer - 1, &diag);
        if (status == GQAC_OK)
            status = gqac_calls_finish(calls, &diag);
        gqac_alloc_fail_at(0, 0);
        while (calls && gqac_calls_next(calls, &part)) {
        }
        gqac_calls_free(calls);
    }
    CU_ASSERT_EQUAL(status, GQAC_OK);
    CU_ASSERT(n > 8);
    gqac_text_free(text);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {{"what templates write is read back", round_trip},
                                      {"what only looks like a call stays text", looks_like},
                                      {"other forms of calls", forms},
                                      {"markers that are special tokens", special_tokens},
                                      {"templates without calls, and wrong tools", others},
                                      {"memory that fails", memory}};
    if (!mkdtemp(scratch))
        return 1;
    const int code = unit_run("calls", cases, sizeof cases / sizeof *cases, argc, argv);
    char path[4096];
    snprintf(path, sizeof path, "%s/chat_template.jinja", scratch);
    unlink(path);
    rmdir(scratch);
    return code;
}
