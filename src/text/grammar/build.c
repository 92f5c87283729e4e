/* See build.h. */
#include "text/grammar/build.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

gqac_status build_open(builder *b, gqac_diag *diag) {
    *b = (builder){.diag = diag};
    b->memory = gqac_arena_create(0);
    if (!b->memory)
        return build_fail(b, gqac_diag_oom(diag, "a grammar"));
    gqac_table_init(&b->names, b->memory);
    return GQAC_OK;
}

void build_close(builder *b) {
    gqac_free(b->code);
    gqac_free(b->rules);
    gqac_arena_free(b->memory);
}

gqac_status build_fail(builder *b, gqac_status status) {
    if (b->status == GQAC_OK)
        b->status = status;
    return b->status;
}

/* ---- rules --------------------------------------------------------------- */

uint32_t build_new_rule(builder *b, const char *name) {
    if (b->status != GQAC_OK)
        return 0;
    if (b->n_rules >= BUILD_MOST_RULES) {
        build_fail(b, gqac_diag_set(b->diag, GQAC_LIMIT, "the grammar has more than %d rules",
                                    BUILD_MOST_RULES));
        return 0;
    }
    if (!gqac_reserve(&b->rules, b->n_rules + 1, &b->rules_capacity, sizeof *b->rules)) {
        build_fail(b, gqac_diag_oom(b->diag, "a grammar"));
        return 0;
    }
    b->rules[b->n_rules] = (rule){.name = name, .length = strlen(name), .start = BUILD_NONE};
    return (uint32_t)b->n_rules++;
}

uint32_t build_rule(builder *b, const char *name, size_t length, int line) {
    const uint64_t hash = gqac_hash_bytes(b->names.seed, name, length);
    size_t at = hash;
    if (b->status != GQAC_OK)
        return 0;
    for (gqac_slot *s = gqac_table_slot(&b->names, hash, &at); s;
         at++, s = gqac_table_slot(&b->names, hash, &at)) {
        const rule *r = &b->rules[s->value - 1];
        if (r->length == length && !memcmp(r->name, name, length))
            return (uint32_t)(s->value - 1);
    }
    const char *own = gqac_arena_strndup(b->memory, name, length);
    const uint32_t index = own ? build_new_rule(b, own) : 0;
    if (!own || (b->status == GQAC_OK && !gqac_table_add_number(&b->names, hash, index + 1)))
        build_fail(b, gqac_diag_oom(b->diag, "a grammar"));
    if (b->status == GQAC_OK)
        b->rules[index].line = line;
    return index;
}

void build_define(builder *b, uint32_t index, fragment f) {
    const uint32_t end = build_emit(b, (instruction){.op = GRAMMAR_RETURN});
    if (b->status != GQAC_OK)
        return;
    b->code[f.end].next = end;
    b->rules[index].start = f.begin;
}

/* ---- fragments ----------------------------------------------------------- */

uint32_t build_emit(builder *b, instruction i) {
    if (b->status != GQAC_OK)
        return 0;
    if (b->n >= BUILD_MOST_CODE) {
        gqac_diag_set(b->diag, GQAC_LIMIT, "the grammar is too large");
        gqac_diag_rule(b->diag,
                       "a grammar has at most %d instructions with its repetitions written out",
                       BUILD_MOST_CODE);
        gqac_diag_hint(b->diag, "fewer alternatives, properties and values, or fewer repetitions");
        build_fail(b, GQAC_LIMIT);
        return 0;
    }
    if (!gqac_reserve(&b->code, b->n + 1, &b->capacity, sizeof *b->code)) {
        build_fail(b, gqac_diag_oom(b->diag, "a grammar"));
        return 0;
    }
    b->code[b->n] = i;
    return (uint32_t)b->n++;
}

/* A fragment of one instruction. */
static fragment single(builder *b, instruction i) {
    i.next = BUILD_NONE;
    const uint32_t at = build_emit(b, i);
    return (fragment){at, at + 1, at, at};
}

/* The instructions since `first`. */
static fragment since(const builder *b, uint32_t first, uint32_t begin, uint32_t end) {
    return (fragment){first, (uint32_t)b->n, begin, end};
}

static void set_next(builder *b, uint32_t at, uint32_t next) {
    if (b->status == GQAC_OK)
        b->code[at].next = next;
}

fragment build_empty(builder *b) {
    return single(b, (instruction){.op = GRAMMAR_JUMP});
}

fragment build_never(builder *b) {
    return single(b, (instruction){.op = GRAMMAR_NEVER});
}

fragment build_bytes(builder *b, uint8_t low, uint8_t high) {
    return single(b, (instruction){.op = GRAMMAR_BYTE, .low = low, .high = high});
}

fragment build_call(builder *b, uint32_t index) {
    return single(b, (instruction){.op = GRAMMAR_CALL, .other = index});
}

fragment build_text(builder *b, const char *text, size_t length) {
    fragment all = build_empty(b);
    for (size_t i = 0; i < length && b->status == GQAC_OK; i++)
        all = build_join(b, all, build_bytes(b, (uint8_t)text[i], (uint8_t)text[i]));
    return all;
}

fragment build_join(builder *b, fragment a, fragment c) {
    set_next(b, a.end, c.begin);
    return since(b, a.first, a.begin, c.end);
}

fragment build_either(builder *b, fragment a, fragment c) {
    const uint32_t split =
        build_emit(b, (instruction){.op = GRAMMAR_SPLIT, .next = a.begin, .other = c.begin});
    const fragment end = build_empty(b);
    set_next(b, a.end, end.begin);
    set_next(b, c.end, end.begin);
    return since(b, a.first, split, end.end);
}

static uint32_t moved(uint32_t target, const fragment *f, uint32_t by) {
    return target >= f->first && target < f->after ? target + by : target;
}

/* Adds a copy of the fragment at the end of the program. */
static fragment copy(builder *b, const fragment *f) {
    const uint32_t by = (uint32_t)b->n - f->first;
    for (uint32_t i = f->first; i < f->after && b->status == GQAC_OK; i++) {
        instruction one = b->code[i];
        one.next = i == f->end ? BUILD_NONE : moved(one.next, f, by);
        if (one.op == GRAMMAR_SPLIT)
            one.other = moved(one.other, f, by);
        build_emit(b, one);
    }
    return since(b, f->first + by, f->begin + by, f->end + by);
}

/* The last fragment, zero or more times; with `entered`, one or more times. */
static fragment loop(builder *b, fragment f, bool entered) {
    const uint32_t split = build_emit(b, (instruction){.op = GRAMMAR_SPLIT, .next = f.begin});
    const fragment end = build_empty(b);
    set_next(b, f.end, split);
    if (b->status == GQAC_OK)
        b->code[split].other = end.begin;
    return since(b, f.first, entered ? f.begin : split, end.end);
}

/* Adds up to n optional copies after `all`: after each, the next one or the end. */
static fragment add_optional(builder *b, const fragment *f, fragment all, uint32_t n) {
    const fragment end = build_empty(b);
    for (uint32_t i = 0; i < n && b->status == GQAC_OK; i++) {
        const uint32_t split =
            build_emit(b, (instruction){.op = GRAMMAR_SPLIT, .other = end.begin});
        const fragment next = copy(b, f);
        set_next(b, all.end, split);
        set_next(b, split, next.begin);
        all.end = next.end;
    }
    set_next(b, all.end, end.begin);
    return since(b, all.first, all.begin, end.end);
}

fragment build_repeat(builder *b, fragment f, uint32_t least, uint32_t most) {
    const uint32_t first = f.first;
    if (most == BUILD_MANY && least <= 1)
        return loop(b, f, least == 1);
    if (most == 1 && least == 1)
        return f;
    fragment all = build_empty(b); /* f is only copied; nothing leads to f itself */
    for (uint32_t i = 0; i < least && b->status == GQAC_OK; i++) {
        fragment next = copy(b, &f);
        if (most == BUILD_MANY && i + 1 == least)
            next = loop(b, next, true);
        all = build_join(b, all, next);
    }
    if (most != BUILD_MANY && most > least)
        all = add_optional(b, &f, all, most - least);
    return since(b, first, all.begin, all.end);
}

/* ---- characters ---------------------------------------------------------- */

static int compare_points(const void *a, const void *b) {
    const points *x = a, *y = b;
    return x->low < y->low ? -1 : x->low > y->low;
}

size_t build_sort_points(points *p, size_t n) {
    size_t kept = 0;
    if (n)
        qsort(p, n, sizeof *p, compare_points);
    for (size_t i = 0; i < n; i++) {
        if (kept && p[i].low <= p[kept - 1].high + 1) {
            if (p[i].high > p[kept - 1].high)
                p[kept - 1].high = p[i].high;
        } else {
            p[kept++] = p[i];
        }
    }
    return kept;
}

size_t build_invert_points(const points *p, size_t n, points *out) {
    enum { LAST = 0x10ffff };
    size_t made = 0;
    uint32_t from = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i].low > from)
            out[made++] = (points){from, p[i].low - 1};
        from = p[i].high + 1;
    }
    if (from <= LAST)
        out[made++] = (points){from, LAST};
    return made;
}

static size_t encode(uint32_t point, uint8_t out[4]) {
    if (point < 0x80) {
        out[0] = (uint8_t)point;
        return 1;
    }
    const size_t n = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; point >>= 6)
        out[i] = (uint8_t)(0x80 | (point & 0x3f));
    out[0] = (uint8_t)((0xf00 >> n & 0xff) | point); /* begins 110, 1110, 11110 */
    return n;
}

/* Removes the first part of a range and returns it: code points with encodings of one length, where
 * the range of each byte does not depend on the other bytes. */
static points take_part(points *range) {
    /* the last points of 1, 2 and 3 bytes, and the last before the surrogates */
    static const uint32_t lengths[] = {0x7f, 0x7ff, 0xd7ff, 0xffff};
    points part = *range;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        if (part.low <= lengths[i] && part.high > lengths[i])
            part.high = lengths[i];
    for (unsigned bits = 6; bits <= 18; bits += 6) {
        const uint32_t mask = (1u << bits) - 1;
        if (part.low < 0x80 || (part.low & ~mask) == (part.high & ~mask))
            continue;
        if (part.low & mask)
            part.high = part.low | mask;
        else if ((part.high & mask) != mask)
            part.high = (part.high & ~mask) - 1;
    }
    range->low = part.high + 1;
    return part;
}

static fragment build_part(builder *b, points part) {
    uint8_t low[4], high[4];
    const size_t n = encode(part.low, low);
    encode(part.high, high);
    fragment all = build_bytes(b, low[0], high[0]);
    for (size_t i = 1; i < n; i++)
        all = build_join(b, all, build_bytes(b, low[i], high[i]));
    return all;
}

fragment build_points(builder *b, const points *p, size_t n) {
    fragment all = {0};
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        points rest = p[i];
        while (rest.low <= rest.high && b->status == GQAC_OK) {
            if (rest.low >= 0xd800 && rest.low <= 0xdfff) { /* surrogates are not characters */
                rest.low = 0xe000;
                continue;
            }
            const fragment part = build_part(b, take_part(&rest));
            all = any ? build_either(b, all, part) : part;
            any = true;
        }
    }
    return any ? all : build_never(b);
}
