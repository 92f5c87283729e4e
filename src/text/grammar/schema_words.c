/* Lists of words as a trie, so that no more than one of them is followed at the same time. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/grammar/schema.h"
#include "text/unicode.h"

/* Words from low to high that have their first `depth` bytes in common; they follow instruction
 * `after`. */
typedef struct branch {
    size_t low, high, depth;
    uint32_t after;
} branch;

typedef struct trie {
    builder *b;
    const word_list *w;
    bool other;      /* what is accepted is none of the words */
    uint32_t end;    /* where a word ends */
    uint32_t rest;   /* other: any further characters, a quote, and the end */
    branch *pending; /* found and not yet grown, from the current one on */
    size_t n, capacity;
    points *taken; /* characters of the current branch */
} trie;

bool schema_add_word(schema *s, word_list *w, const char *word) {
    const char **list = NULL;
    if (w->n == w->capacity) {
        const size_t more = w->capacity ? 2 * w->capacity : 16;
        list = GQAC_ARENA_ARRAY(s->b->memory, const char *, more);
        if (list && w->n)
            memcpy(list, w->list, w->n * sizeof *list);
        w->list = list ? list : w->list;
        w->capacity = list ? more : w->capacity;
    }
    char *own = w->n < w->capacity ? gqac_arena_strdup(s->b->memory, word) : NULL;
    if (!own) {
        build_fail(s->b, gqac_diag_oom(s->b->diag, "a schema"));
        return false;
    }
    w->list[w->n++] = own;
    return true;
}

static int compare(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void sort_words(word_list *w) {
    size_t kept = 0;
    if (w->n)
        qsort(w->list, w->n, sizeof *w->list, compare);
    for (size_t i = 0; i < w->n; i++)
        if (!kept || strcmp(w->list[kept - 1], w->list[i]) != 0)
            w->list[kept++] = w->list[i];
    w->n = kept;
}

static void add_branch(trie *t, branch one) {
    if (!gqac_reserve(&t->pending, t->n + 1, &t->capacity, sizeof *t->pending))
        build_fail(t->b, gqac_diag_oom(t->b->diag, "a schema"));
    else
        t->pending[t->n++] = one;
}

/* One more alternative at an entry. */
static uint32_t add_entry(trie *t, uint32_t entry, uint32_t begin) {
    return entry == BUILD_NONE
               ? begin
               : build_emit(t->b,
                            (instruction){.op = GRAMMAR_SPLIT, .next = entry, .other = begin});
}

/* Adds all characters of keys but the n taken ones; they lead to the rest. */
static uint32_t add_others(trie *t, uint32_t entry, size_t n) {
    points *free = t->taken + t->w->n + 3;
    t->taken[n++] = (points){0, 0x1f};
    t->taken[n++] = (points){'"', '"'};
    t->taken[n++] = (points){'\\', '\\'};
    n = build_sort_points(t->taken, n);
    n = build_invert_points(t->taken, n, free);
    const fragment f = build_points(t->b, free, n);
    if (t->b->status == GQAC_OK)
        t->b->code[f.end].next = t->rest;
    return add_entry(t, entry, f.begin);
}

static uint32_t add_quote(trie *t, uint32_t entry) {
    const fragment quote = build_bytes(t->b, '"', '"');
    if (t->b->status == GQAC_OK)
        t->b->code[quote.end].next = t->end;
    return add_entry(t, entry, quote.begin);
}

/* Adds what follows a branch: the end of a word, and a branch for each next character. */
static void grow(trie *t, const branch *x) {
    uint32_t entry = BUILD_NONE;
    size_t low = x->low, n = 0;
    const bool ends = low < x->high && !t->w->list[low][x->depth];
    low += ends;
    if (ends && !t->other)
        entry = add_entry(t, entry, t->end);
    while (low < x->high && t->b->status == GQAC_OK) {
        const char *at = t->w->list[low] + x->depth;
        int32_t point = 0;
        const size_t length = unicode_read(at, strlen(at), &point);
        size_t high = low;
        while (high < x->high && !strncmp(t->w->list[high] + x->depth, at, length))
            high++;
        const points one = {(uint32_t)point, (uint32_t)point};
        const fragment f = build_points(t->b, &one, 1);
        entry = add_entry(t, entry, f.begin);
        add_branch(t, (branch){low, high, x->depth + length, f.end});
        t->taken[n++] = one;
        low = high;
    }
    if (t->other) {
        entry = add_others(t, entry, n);
        entry = ends ? entry : add_quote(t, entry);
    }
    if (t->b->status == GQAC_OK)
        t->b->code[x->after].next = entry;
}

static fragment build_trie(schema *s, word_list *w, bool other) {
    builder *b = s->b;
    trie t = {.b = b, .w = w, .other = other};
    sort_words(w);
    fragment all = build_empty(b);
    const fragment end = build_empty(b);
    t.end = end.begin;
    if (other) { /* plain characters are those of "json-plain" */
        const fragment more = build_repeat(b, schema_json(s, "json-plain"), 0, BUILD_MANY);
        const fragment rest = build_join(b, more, build_bytes(b, '"', '"'));
        t.rest = rest.begin;
        if (b->status == GQAC_OK)
            b->code[rest.end].next = t.end;
    }
    t.taken = GQAC_ARENA_ARRAY(b->memory, points, 2 * w->n + 8);
    if (!t.taken)
        build_fail(b, gqac_diag_oom(b->diag, "a schema"));
    add_branch(&t, (branch){0, w->n, 0, all.end});
    for (size_t i = 0; i < t.n && b->status == GQAC_OK; i++) {
        const branch x = t.pending[i];
        grow(&t, &x);
    }
    gqac_free(t.pending);
    all.after = (uint32_t)b->n;
    all.end = t.end;
    return all;
}

fragment schema_words(schema *s, word_list *w) {
    return build_trie(s, w, false);
}

fragment schema_other_key(schema *s, word_list *w) {
    return build_trie(s, w, true);
}
