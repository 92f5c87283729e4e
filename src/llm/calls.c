/* The reader of calls: text that is not decided yet, and a queue of parts. JSON of calls is
 * untrusted: it is parsed before anything of it is used. */
#include "llm/calls.h"

#include <gqac/calls.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/sized.h"
#include "llm/llm.h"
#include "llm/reply.h"

typedef struct part {
    struct part *next;
    gqac_call_part shown;
    char *text, *name, *arguments, *id;
} part;

struct gqac_calls {
    const call_syntax *syntax;
    json_t *names; /* an object whose keys are the names of the tools; NULL: any name */
    gqac_str text; /* what is not decided */
    bool begun;    /* text before it was decided */
    call_scan scan;
    part *first, **last; /* parts that were not returned; where to link the next one */
    part *returned;
};

/* ---- parts --------------------------------------------------------------- */

static void free_part(part *p) {
    if (!p)
        return;
    gqac_free(p->text);
    gqac_free(p->name);
    gqac_free(p->arguments);
    gqac_free(p->id);
    gqac_free(p);
}

static void free_parts(part *p) {
    while (p) {
        part *next = p->next;
        free_part(p);
        p = next;
    }
}

static char *copy(const char *text, size_t length) {
    char *own = gqac_alloc(length + 1);
    if (own) {
        memcpy(own, text, length);
        own[length] = '\0';
    }
    return own;
}

static void queue(gqac_calls *c, part *list) {
    *c->last = list;
    while (*c->last)
        c->last = &(*c->last)->next;
}

static gqac_status queue_text(gqac_calls *c, const char *text, size_t length, gqac_diag *diag) {
    part *p = length ? gqac_calloc(1, sizeof *p) : NULL;
    if (!length)
        return GQAC_OK;
    if (p)
        p->text = copy(text, length);
    if (!p || !p->text) {
        free_part(p);
        return gqac_diag_oom(diag, "the text of an answer");
    }
    p->shown = (gqac_call_part){.size = sizeof p->shown, .text = p->text, .length = length};
    queue(c, p);
    return GQAC_OK;
}

bool gqac_calls_next(gqac_calls *c, gqac_call_part *out) {
    part *next = c->first;
    free_part(c->returned);
    c->returned = NULL;
    if (!next ||
        gqac_sized_give(out, &next->shown, sizeof next->shown, "gqac_call_part", NULL) != GQAC_OK)
        return false;
    c->returned = next;
    c->first = next->next;
    if (!c->first)
        c->last = &c->first;
    return true;
}

/* ---- JSON of a call, which jansson has accepted -------------------------- */

typedef struct span {
    const char *text;
    size_t length;
} span;

static size_t blanks(const char *text, size_t at, size_t length) {
    while (at < length && strchr(" \t\r\n", text[at]))
        at++;
    return at;
}

/* The end of the value at `at`. */
static size_t value_end(const char *text, size_t at, size_t length) {
    bool quoted = false;
    int depth = 0;
    for (; at < length; at++) {
        const char x = text[at];
        if (quoted) {
            at += x == '\\';
            quoted = x != '"';
            if (!quoted && !depth)
                return at + 1;
            continue;
        }
        if (!depth && strchr(",:]} \t\r\n", x))
            return at;
        quoted = x == '"';
        depth += (x == '{' || x == '[') - (x == '}' || x == ']');
        if (!depth && (x == '}' || x == ']'))
            return at + 1;
    }
    return length;
}

/* The next value after `*at` in an object or a list; false: there is none. */
static bool next_value(span in, size_t *at, span *out) {
    const size_t begin = blanks(in.text, *at, in.length);
    if (begin + 1 >= in.length)
        return false;
    const size_t end = value_end(in.text, begin, in.length);
    *out = (span){in.text + begin, end - begin};
    *at = blanks(in.text, end, in.length) + 1; /* after the comma or colon */
    return true;
}

/* The value of a key, as it is written. */
static bool member(span object, const char *key, span *out) {
    span found;
    for (size_t at = 1; next_value(object, &at, &found);) {
        const bool same =
            found.length == strlen(key) + 2 && !memcmp(found.text + 1, key, found.length - 2);
        if (!next_value(object, &at, out))
            return false;
        if (same)
            return true;
    }
    return false;
}

/* ---- calls --------------------------------------------------------------- */

/* Adds a call to a list; false: it is none, or *diag says that there is no memory. */
static bool add_call(const gqac_calls *c, const char *name, size_t length, span arguments,
                     const char *id, part **list, gqac_diag *diag) {
    if (!length || (c->names && !json_object_getn(c->names, name, length)))
        return false;
    part *p = gqac_calloc(1, sizeof *p);
    if (p) {
        p->name = copy(name, length);
        p->arguments = copy(arguments.text, arguments.length);
        p->id = id ? copy(id, strlen(id)) : NULL;
    }
    if (!p || !p->name || !p->arguments || (id && !p->id)) {
        free_part(p);
        gqac_diag_oom(diag, "a call");
        return false;
    }
    p->shown = (gqac_call_part){
        .size = sizeof p->shown, .name = p->name, .arguments = p->arguments, .id = p->id};
    while (*list)
        list = &(*list)->next;
    *list = p;
    return true;
}

/* An object with a name and arguments. */
static bool add_object(const gqac_calls *c, const json_t *object, span text, part **list,
                       gqac_diag *diag) {
    const json_t *name = json_object_get(object, "name");
    const char *id = json_string_value(json_object_get(object, "id"));
    span arguments;
    return json_is_string(name) && json_is_object(json_object_get(object, c->syntax->arguments)) &&
           member(text, c->syntax->arguments, &arguments) &&
           add_call(c, json_string_value(name), json_string_length(name), arguments, id, list,
                    diag);
}

static bool add_list(const gqac_calls *c, const json_t *all, span text, part **list,
                     gqac_diag *diag) {
    size_t at = 1;
    span one;
    for (size_t i = 0; i < json_array_size(all); i++)
        if (!next_value(text, &at, &one) || !add_object(c, json_array_get(all, i), one, list, diag))
            return false;
    return *list;
}

/* The calls of what was found at `text`; NULL: its JSON is wrong or of no tool, or *diag says that
 * there is no memory. */
static part *read_calls(const gqac_calls *c, const char *text, const call_found *f,
                        gqac_diag *diag) {
    const span all = {text + f->json, f->json_length};
    gqac_diag wrong = {0};
    json_t *value = NULL;
    part *list = NULL;
    bool fine = folder_json(all.text, all.length, &value, &wrong) == GQAC_OK;
    if (!fine && wrong.status == GQAC_NO_MEMORY)
        *diag = wrong;
    if (fine && f->called_length)
        fine = add_call(c, text + f->called, f->called_length, all, NULL, &list, diag);
    else if (fine && json_is_array(value))
        fine = add_list(c, value, all, &list, diag);
    else if (fine)
        fine = add_object(c, value, all, &list, diag);
    json_decref(value);
    if (fine)
        return list;
    free_parts(list);
    return NULL;
}

/* Bytes of a hidden marker at `text`; *more: one may begin here. */
static size_t hidden_marker(const call_syntax *s, const char *text, size_t length, bool *more) {
    *more = false;
    for (size_t i = 0; s->hidden && i < CALL_MARKERS; i++) {
        const size_t own = s->markers[i] ? strlen(s->markers[i]) : 0;
        if (own && !memcmp(text, s->markers[i], length < own ? length : own)) {
            if (length >= own)
                return own;
            *more = true;
        }
    }
    return 0;
}

/* Decides as much of the text as possible. */
static gqac_status decide(gqac_calls *c, bool ended, gqac_diag *diag) {
    const char *text = c->text.text;
    const size_t n = c->text.length;
    size_t at = 0, kept = 0; /* content from `kept` to `at` is not queued yet */
    gqac_diag why = {0};
    while (at < n) {
        const call_text t = {text + at, n - at, !c->begun && !at, ended, &c->scan};
        call_found found = {0};
        bool more = false;
        const call_verdict verdict = c->syntax->match(&t, &found);
        if (verdict == CALL_MORE)
            break;
        part *calls = verdict == CALL_FOUND ? read_calls(c, t.text, &found, &why) : NULL;
        c->scan = (call_scan){0};
        if (why.status) {
            *diag = why;
            return why.status;
        }
        const size_t skipped =
            calls ? found.length : hidden_marker(c->syntax, t.text, n - at, &more);
        if (more && !skipped && !ended)
            break;
        if (skipped) {
            const gqac_status status = queue_text(c, text + kept, at - kept, diag);
            if (status != GQAC_OK) {
                free_parts(calls);
                return status;
            }
            queue(c, calls);
            kept = at + skipped;
        }
        at += skipped ? skipped : 1;
    }
    GQAC_TRY(queue_text(c, text + kept, at - kept, diag));
    c->begun = c->begun || at;
    if (at)
        memmove(c->text.text, text + at, n - at);
    c->text.length = n - at;
    return GQAC_OK;
}

gqac_status gqac_calls_push(gqac_calls *c, const char *bytes, size_t length, gqac_diag *diag) {
    if (!length)
        return GQAC_OK;
    gqac_str_append_n(&c->text, bytes, length);
    if (c->text.failed)
        return gqac_diag_oom(diag, "the text of an answer");
    return decide(c, false, diag);
}

gqac_status gqac_calls_finish(gqac_calls *c, gqac_diag *diag) {
    return c->text.length ? decide(c, true, diag) : GQAC_OK;
}

/* ---- create -------------------------------------------------------------- */

static gqac_status read_tools(gqac_calls *c, const char *tools, gqac_diag *diag) {
    json_t *list = NULL, *tool;
    size_t i;
    if (folder_json(tools, strlen(tools), &list, diag) == GQAC_NO_MEMORY)
        return GQAC_NO_MEMORY;
    if (!json_is_array(list)) {
        json_decref(list);
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "the tools are not a JSON list");
    }
    c->names = json_object();
    bool fine = c->names;
    json_array_foreach(list, i, tool) {
        const json_t *function = json_object_get(tool, "function");
        const json_t *name = json_object_get(function ? function : tool, "name");
        if (fine && json_is_string(name))
            fine = json_object_setn_new(c->names, json_string_value(name), json_string_length(name),
                                        json_true()) == 0;
    }
    json_decref(list);
    return fine ? GQAC_OK : gqac_diag_oom(diag, "tools");
}

gqac_status gqac_calls_create(const gqac_text *text, const char *tools, gqac_calls **calls,
                              gqac_diag *diag) {
    *calls = NULL;
    if (!text->calls)
        return GQAC_OK;
    gqac_calls *c = gqac_calloc(1, sizeof *c);
    if (!c)
        return gqac_diag_oom(diag, "a reader of calls");
    c->syntax = text->calls;
    c->last = &c->first;
    GQAC_RETURN_MADE(tools ? read_tools(c, tools, diag) : GQAC_OK, c, calls, gqac_calls_free);
}

void gqac_calls_free(gqac_calls *c) {
    if (!c)
        return;
    free_parts(c->first);
    free_part(c->returned);
    json_decref(c->names);
    gqac_str_free(&c->text);
    gqac_free(c);
}

const call_syntax *calls_syntax(const gqac_calls *c) {
    return c ? c->syntax : NULL;
}
