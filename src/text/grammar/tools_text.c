/* Text up to a marker: a rule for each number of bytes of the marker that the text ends with, as in
 * the algorithm of Knuth, Morris and Pratt (1977). */
#include <string.h>

#include "text/grammar/tools.h"

enum { MOST_MARKER = 64, SPECIAL = 0xff };

typedef struct text_states {
    builder *b;
    const char *name; /* of the marker */
    size_t length;
    bool special; /* the marker is a special token, with SPECIAL before and after its name */
    uint32_t then;
    /* By the bytes of the name that the text ends with: without and with SPECIAL before them. */
    uint32_t plain[MOST_MARKER], marked[MOST_MARKER + 1];
} text_states;

/* Bytes of the name that the text ends with after `byte`; `matched` before it. */
static size_t advance(const text_states *t, size_t matched, char byte) {
    for (size_t n = matched + 1; n; n--)
        if (t->name[n - 1] == byte && !memcmp(t->name, t->name + matched - (n - 1), n - 1))
            return n;
    return 0;
}

/* The rule after a byte of the name; BUILD_NONE: it may not follow. */
static uint32_t target(const text_states *t, size_t matched, bool marked, char byte) {
    if (marked && t->name[matched] == byte)
        return t->marked[matched + 1];
    const size_t now = advance(t, matched, byte);
    if (now < t->length)
        return t->plain[now];
    return t->special ? BUILD_NONE : t->then;
}

static fragment add_byte(builder *b, fragment all, uint8_t byte, uint32_t next) {
    if (next == BUILD_NONE)
        return all;
    const fragment one = build_bytes(b, byte, byte);
    return build_either(b, all, build_join(b, one, build_call(b, next)));
}

/* Defines the rule after `matched` bytes of the name. `but`: a byte that may not follow; 0: any
 * may. */
static void define(const text_states *t, uint32_t rule, size_t matched, bool marked, char but) {
    builder *b = t->b;
    points taken[MOST_MARKER + 1], others[MOST_MARKER + 2];
    size_t n = 0;
    fragment all = build_empty(b); /* the text ends */
    for (size_t i = 0; i < t->length; i++) {
        const char c = t->name[i];
        if (memchr(t->name, c, i))
            continue;
        if (c != but)
            all = add_byte(b, all, (uint8_t)c, target(t, matched, marked, c));
        taken[n++] = (points){(uint8_t)c, (uint8_t)c};
    }
    if (but)
        taken[n++] = (points){(uint8_t)but, (uint8_t)but};
    all = add_byte(b, all, SPECIAL, t->special ? t->marked[0] : t->plain[0]);
    n = build_sort_points(taken, n);
    n = build_invert_points(taken, n, others);
    const fragment other = build_points(b, others, n);
    build_define(b, rule, build_either(b, all, build_join(b, other, build_call(b, t->plain[0]))));
}

uint32_t tools_text(builder *b, const char *marker, char first, uint32_t then) {
    text_states t = {.b = b, .name = marker, .length = strlen(marker), .then = then};
    t.special = (uint8_t)*marker == SPECIAL;
    t.name += t.special;
    t.length -= t.special ? 2 : 0;
    for (size_t i = 0; i < t.length; i++)
        t.plain[i] = build_new_rule(b, "text");
    for (size_t i = 0; i <= t.length && t.special; i++)
        t.marked[i] = build_new_rule(b, "text");
    for (size_t i = 0; i < t.length && b->status == GQAC_OK; i++) {
        define(&t, t.plain[i], i, false, 0);
        if (t.special)
            define(&t, t.marked[i], i, true, 0);
    }
    if (t.special) /* the whole name: it is that of the token */
        build_define(b, t.marked[t.length], add_byte(b, build_never(b), SPECIAL, then));
    if (!first)
        return t.plain[0];
    const uint32_t begin = build_new_rule(b, "text");
    define(&t, begin, 0, false, first);
    return begin;
}
