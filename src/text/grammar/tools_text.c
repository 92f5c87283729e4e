/* Text up to one of some markers: a rule for each beginning of a marker with which the text may
 * end, as in the automaton of Aho and Corasick (1975). */
#include <string.h>

#include "text/grammar/tools.h"

enum { MOST_MARKER = 64, SPECIAL = 0xff, PATTERNS = 2 * TOOLS_MARKERS, NODES = PATTERNS * 66 };

/* Bytes that end the text. A marker that is a special token is two patterns: its name with SPECIAL
 * before and after, and the name alone, which must not occur. */
typedef struct pattern {
    const char *text;
    size_t n;
    uint32_t then; /* BUILD_NONE: it must not occur */
} pattern;

typedef struct node {
    const char *text; /* the beginning of a pattern */
    size_t n;
    uint32_t rule;
    bool named; /* SPECIAL and the name of a special token: its other SPECIAL follows */
} node;

typedef struct text_states {
    builder *b;
    size_t n_patterns, n_nodes;
    pattern patterns[PATTERNS];
    node nodes[NODES]; /* the first one is the empty beginning */
} text_states;

static void add_nodes(text_states *t, const pattern *p) {
    for (size_t n = t->n_nodes > 0; n < p->n; n++) {
        bool known = false;
        for (size_t i = 0; i < t->n_nodes; i++)
            known |= t->nodes[i].n == n && !memcmp(t->nodes[i].text, p->text, n);
        if (!known)
            t->nodes[t->n_nodes++] = (node){.text = p->text,
                                            .n = n,
                                            .rule = build_new_rule(t->b, "text"),
                                            .named = n + 1 == p->n && (uint8_t)*p->text == SPECIAL};
    }
}

static void add_marker(text_states *t, const text_marker *m) {
    const bool special = (uint8_t)*m->text == SPECIAL;
    const size_t n = strlen(m->text);
    pattern *p = &t->patterns[t->n_patterns];
    p[0] = (pattern){m->text, n, m->then};
    p[1] = (pattern){m->text + 1, n - 2, BUILD_NONE};
    t->n_patterns += special ? 2 : 1;
    add_nodes(t, p);
    if (special)
        add_nodes(t, p + 1);
}

static bool ends_with(const char *text, size_t n, const char *end, size_t length) {
    return length <= n && !memcmp(text + n - length, end, length);
}

/* The rule after a byte; BUILD_NONE: it may not follow. */
static uint32_t target(const text_states *t, const node *from, char byte) {
    char text[MOST_MARKER + 2];
    const size_t n = from->n + 1;
    const node *to = t->nodes;
    memcpy(text, from->text, from->n);
    text[from->n] = byte;
    for (const node *i = t->nodes; i < t->nodes + t->n_nodes; i++)
        if (i->n > to->n && ends_with(text, n, i->text, i->n))
            to = i;
    if (to->named)
        return to->rule;
    for (const pattern *p = t->patterns; p < t->patterns + t->n_patterns; p++)
        if (ends_with(text, n, p->text, p->n))
            return p->then;
    return to->rule;
}

static fragment add_byte(builder *b, fragment all, uint8_t byte, uint32_t next) {
    if (next == BUILD_NONE)
        return all;
    const fragment one = build_bytes(b, byte, byte);
    return build_either(b, all, build_join(b, one, build_call(b, next)));
}

/* Defines a rule for the text after a node. `but`: a byte that may not follow; 0: any may. */
static void define(const text_states *t, uint32_t rule, const node *from, char but) {
    builder *b = t->b;
    points taken[NODES + 1], others[NODES + 2];
    bool seen[256] = {false};
    size_t n = 0;
    fragment all = build_empty(b); /* the text ends */
    for (const pattern *p = t->patterns; p < t->patterns + t->n_patterns; p++)
        for (size_t i = 0; i < p->n; i++) {
            const uint8_t c = (uint8_t)p->text[i];
            if (seen[c] || c == SPECIAL)
                continue;
            seen[c] = true;
            if (p->text[i] != but)
                all = add_byte(b, all, c, target(t, from, p->text[i]));
            taken[n++] = (points){c, c};
        }
    if (but)
        taken[n++] = (points){(uint8_t)but, (uint8_t)but};
    all = add_byte(b, all, SPECIAL, target(t, from, (char)SPECIAL));
    n = build_sort_points(taken, n);
    n = build_invert_points(taken, n, others);
    const fragment other = build_points(b, others, n);
    build_define(b, rule,
                 build_either(b, all, build_join(b, other, build_call(b, t->nodes->rule))));
}

uint32_t tools_text(builder *b, const text_marker *markers, size_t n, char first) {
    text_states t = {.b = b};
    for (size_t i = 0; i < n; i++)
        add_marker(&t, &markers[i]);
    for (size_t i = 0; i < t.n_nodes && b->status == GQAC_OK; i++)
        if (t.nodes[i].named)
            build_define(
                b, t.nodes[i].rule,
                add_byte(b, build_never(b), SPECIAL, target(&t, &t.nodes[i], (char)SPECIAL)));
        else
            define(&t, t.nodes[i].rule, &t.nodes[i], 0);
    if (!first)
        return t.nodes->rule;
    const uint32_t begin = build_new_rule(b, "text");
    define(&t, begin, t.nodes, first);
    return begin;
}
