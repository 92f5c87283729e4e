/* See calls.h. */
#include "llm/calls.h"

#include <string.h>

/* ---- reading ------------------------------------------------------------- */

typedef struct cursor {
    const call_text *t;
    size_t at;
    call_verdict verdict; /* once something did not fit */
} cursor;

static bool refuse(cursor *c) {
    c->verdict = CALL_NONE;
    return false;
}

/* The text ends here, so far. */
static bool run_out(cursor *c) {
    c->verdict = c->t->ended ? CALL_NONE : CALL_MORE;
    return false;
}

static bool literal(cursor *c, const char *word) {
    const size_t length = strlen(word), left = c->t->length - c->at;
    if (memcmp(c->t->text + c->at, word, left < length ? left : length) != 0)
        return refuse(c);
    c->at += left < length ? left : length;
    return left >= length || run_out(c);
}

static bool is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void blanks(cursor *c) {
    while (c->at < c->t->length && is_blank(c->t->text[c->at]))
        c->at++;
}

/* A JSON object or list, by its brackets. What was read is not read again when more is known. */
static bool json(cursor *c, char open, call_found *found) {
    call_scan *s = c->t->scan;
    if (c->at == c->t->length)
        return run_out(c);
    if (c->t->text[c->at] != open)
        return refuse(c);
    if (!s->at)
        s->at = c->at;
    while (!s->done && s->at < c->t->length) {
        const char x = c->t->text[s->at++];
        if (s->quoted) {
            s->quoted = s->escaped || x != '"';
            s->escaped = !s->escaped && x == '\\';
            continue;
        }
        s->quoted = x == '"';
        s->depth += (x == '{' || x == '[') - (x == '}' || x == ']');
        s->done = !s->depth;
    }
    if (!s->done)
        return run_out(c);
    found->json = c->at;
    found->json_length = s->at - c->at;
    c->at = s->at;
    return true;
}

static call_verdict accept(const cursor *c, call_found *found) {
    found->length = c->at;
    return CALL_FOUND;
}

/* Nothing but blanks follows. */
static call_verdict accept_last(cursor *c, call_found *found) {
    blanks(c);
    if (c->at < c->t->length)
        return CALL_NONE;
    return c->t->ended ? accept(c, found) : CALL_MORE;
}

/* ---- syntaxes ------------------------------------------------------------ */

/* <tool_call>{"name": ..., "arguments": {...}}</tool_call>; templates write a line feed before it
 * that is not content. */
static call_verdict match_tags(const call_text *t, call_found *found) {
    cursor c = {.t = t, .at = t->text[0] == '\n'};
    if (!literal(&c, "<tool_call>"))
        return c.verdict;
    blanks(&c);
    if (!json(&c, '{', found))
        return c.verdict;
    blanks(&c);
    return literal(&c, "</tool_call>") ? accept(&c, found) : c.verdict;
}

/* [TOOL_CALLS] [{"name": ..., "arguments": {...}, "id": ...}, ...] */
static call_verdict match_list(const call_text *t, call_found *found) {
    cursor c = {.t = t};
    if (!literal(&c, "[TOOL_CALLS]"))
        return c.verdict;
    blanks(&c);
    return json(&c, '[', found) ? accept(&c, found) : c.verdict;
}

/* The whole answer is {"name": ..., "parameters": {...}}. */
static call_verdict match_whole(const call_text *t, call_found *found) {
    cursor c = {.t = t};
    if (!t->first || (t->text[0] == '<' && !literal(&c, "<|python_tag|>")))
        return t->first ? c.verdict : CALL_NONE;
    return json(&c, '{', found) ? accept_last(&c, found) : c.verdict;
}

static const char *find(const char *text, size_t length, const char *word) {
    return memmem(text, length, word, strlen(word));
}

/* The name in the head of a message that is sent to a function; false: it is sent to none. */
static bool find_called(const char *head, size_t length, call_found *found) {
    static const char to[] = "to=functions.";
    const char *at = find(head, length, to);
    if (!at)
        return false;
    found->called = (size_t)(at - head) + sizeof to - 1;
    size_t end = found->called;
    while (end < length && (unsigned char)head[end] > ' ' && head[end] != '<')
        end++;
    found->called_length = end - found->called;
    return found->called_length > 0;
}

/* A message <|start|>assistant to=functions.NAME<|channel|>...<|message|>{...}<|call|>, whose
 * beginning may be in the prompt; models write the receiver after the channel, too. The last marker
 * ends an answer, and may be missing. */
static call_verdict match_message(const call_text *t, call_found *found) {
    enum { HEAD = 256 };
    static const char body[] = "<|message|>";
    static const char *const begins[] = {"<|start|>assistant", "<|channel|>", " to=functions."};
    cursor c = {.t = t};
    bool begun = false, more = false;
    for (int i = 0; i < 3 && !begun; i++) {
        c = (cursor){.t = t};
        begun = (i < 2 || t->first) && literal(&c, begins[i]);
        more |= (i < 2 || t->first) && !begun && c.verdict == CALL_MORE;
    }
    if (!begun)
        return more ? CALL_MORE : CALL_NONE;
    const size_t most = t->length < HEAD ? t->length : HEAD;
    const char *end = find(t->text, most, body);
    if (!end)
        return t->length < HEAD && !t->ended ? CALL_MORE : CALL_NONE;
    if (!find_called(t->text, (size_t)(end - t->text), found))
        return CALL_NONE;
    c.at = (size_t)(end - t->text) + sizeof body - 1;
    blanks(&c);
    if (!json(&c, '{', found))
        return c.verdict;
    blanks(&c);
    if (c.at == t->length && t->ended)
        return accept(&c, found);
    return literal(&c, "<|call|>") ? accept(&c, found) : c.verdict;
}

static const call_syntax syntaxes[] = {
    {.signs = {"<tool_call>", "\"arguments\"", "</tool_call>"},
     .without = "<function=",
     .markers = {"<tool_call>", "</tool_call>"},
     .arguments = "arguments",
     .match = match_tags,
     .form = {.begin = "",
              .before = "<tool_call>\n{\"name\": \"",
              .middle = "\", \"arguments\": ",
              .after = "}\n</tool_call>",
              .between = "\n",
              .end = "",
              .marker = "<tool_call>"}},
    {.signs = {"[TOOL_CALLS]", "function"},
     .without = "[ARGS]",
     .markers = {"[TOOL_CALLS]"},
     .hidden = true,
     .arguments = "arguments",
     .match = match_list,
     .form = {.begin = "[TOOL_CALLS] [",
              .before = "{\"name\": \"",
              .middle = "\", \"arguments\": ",
              .after = "}",
              .between = ", ",
              .end = "]",
              .marker = "[TOOL_CALLS]"}},
    {.signs = {"to=functions.", "<|message|>", "<|call|>"},
     .markers = {"<|start|>", "<|channel|>", "<|message|>", "<|call|>", "<|end|>", "<|constrain|>",
                 "<|return|>"},
     .hidden = true,
     .match = match_message,
     .form = {.begin = "",
              .before = "<|channel|>commentary to=functions.",
              .middle = " <|constrain|>json<|message|>",
              .after = "",
              .end = "",
              .marker = "to=functions.",
              .header_begins = {"<|start|>", "<|channel|>"},
              .header_end = "<|message|>",
              .middles = {"<|channel|>commentary <|constrain|>json<|message|>",
                          "<|channel|>commentary json<|message|>", " json<|message|>",
                          "<|message|>"}}},
    {.signs = {"{\"name\": \"", "\"parameters\": ", "tool_calls"},
     .markers = {"<|python_tag|>"},
     .hidden = true,
     .arguments = "parameters",
     .match = match_whole,
     .form = {.begin = "",
              .before = "{\"name\": \"",
              .middle = "\", \"parameters\": ",
              .after = "}",
              .end = "",
              .marker = "<|python_tag|>",
              .not_first = '{'}},
};
enum {
    SYNTAXES = sizeof syntaxes / sizeof *syntaxes,
    SIGNS = sizeof syntaxes->signs / sizeof *syntaxes->signs
};

const call_syntax *call_syntax_of(const char *template, size_t length) {
    for (const call_syntax *s = syntaxes; s < syntaxes + SYNTAXES; s++) {
        bool fits = !s->without || !find(template, length, s->without);
        for (int i = 0; i < SIGNS && s->signs[i]; i++)
            fits = fits && find(template, length, s->signs[i]);
        if (fits)
            return s;
    }
    return NULL;
}

bool call_syntax_marks(const call_syntax *s, const char *name, size_t length) {
    for (int i = 0; i < CALL_MARKERS && s->markers[i]; i++)
        if (strlen(s->markers[i]) == length && !memcmp(s->markers[i], name, length))
            return true;
    return false;
}
