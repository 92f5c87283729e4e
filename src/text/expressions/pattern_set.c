/* Sets of characters. While a class is parsed, it is a bitmap, on which union, intersection and
 * complement take a few thousand operations whatever its content; afterwards it is a list of
 * ranges. All sets of an expression together divide the characters into symbols: two characters
 * have the same symbol if they are in the same sets, so matching looks up each code point only
 * once. */
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "text/expressions/pattern_impl.h"

enum { LAST = 0x10ffff, PAGES = 0x1100, WORDS_OF_SETS = PATTERN_MAX_SETS / 64, LONGEST_FOLD = 3 };

struct category_run {
    int32_t first, last;
    uint32_t mask;
};

struct case_fold {
    int32_t from, to[LONGEST_FOLD];
    int n;
};

/* ---- bitmaps ------------------------------------------------------------- */

charset *charset_create(void) {
    return gqac_calloc(1, sizeof(charset));
}

void charset_add(charset *set, int32_t first, int32_t last) {
    size_t i = (size_t)first >> 6, end = (size_t)last >> 6;
    uint64_t head = UINT64_MAX << (first & 63), tail = UINT64_MAX >> (63 - (last & 63));
    if (i == end) {
        set->bits[i] |= head & tail;
        return;
    }
    set->bits[i++] |= head;
    while (i < end)
        set->bits[i++] = UINT64_MAX;
    set->bits[end] |= tail;
}

bool charset_has(const charset *set, int32_t c) {
    return set->bits[c >> 6] >> (c & 63) & 1;
}

void charset_unite(charset *set, const charset *other) {
    for (size_t i = 0; i < CHARSET_WORDS; i++)
        set->bits[i] |= other->bits[i];
}

void charset_intersect(charset *set, const charset *other) {
    for (size_t i = 0; i < CHARSET_WORDS; i++)
        set->bits[i] &= other->bits[i];
}

void charset_negate(charset *set) {
    for (size_t i = 0; i < CHARSET_WORDS; i++)
        set->bits[i] = ~set->bits[i];
}

/* Finds the next run of ones at or after `from`; false: there is none. */
static bool next_run(const charset *set, int32_t from, char_range *run) {
    for (int end = 0; end < 2; end++) {
        size_t i = (size_t)from >> 6;
        uint64_t flip = end ? UINT64_MAX : 0;
        uint64_t word = 0;
        if (i < CHARSET_WORDS)
            word = (set->bits[i] ^ flip) & UINT64_MAX << (from & 63);
        while (!word && ++i < CHARSET_WORDS)
            word = set->bits[i] ^ flip;
        from = i < CHARSET_WORDS ? (int32_t)(i * 64) + __builtin_ctzll(word) : LAST + 1;
        if (!end && from > LAST)
            return false;
        if (!end)
            run->first = from;
        else
            run->last = from - 1;
    }
    return true;
}

/* ---- what Unicode calls things ------------------------------------------- */

void charset_add_spaces(charset *set) {
    for (int32_t c = 0; c <= 0x3000; c++)
        if (unicode_is_space(c))
            charset_add(set, c, c);
}

/* Reads the category of every code point from utf8proc; once for an expression, if it needs them.
 */
static bool find_runs(charsets *all) {
    enum { NOTHING = 0x40000, SOMETHING = 0xe0000 }; /* planes 4 to 13 are not assigned */
    size_t capacity = 4096, n = 0;
    if (all->runs)
        return true;
    struct category_run *runs = GQAC_ARENA_ARRAY(all->arena, struct category_run, capacity);
    for (int32_t c = 0; runs && c <= LAST; c = c + 1 == NOTHING ? SOMETHING : c + 1) {
        uint32_t mask = UINT32_C(1) << utf8proc_category(c);
        int32_t last = c + 1 == NOTHING ? SOMETHING - 1 : c;
        if (n && runs[n - 1].mask == mask) {
            runs[n - 1].last = last;
            continue;
        }
        if (n == capacity) {
            struct category_run *more =
                GQAC_ARENA_ARRAY(all->arena, struct category_run, 2 * capacity);
            if (more)
                memcpy(more, runs, n * sizeof *runs);
            runs = more;
            capacity *= 2;
        }
        if (runs)
            runs[n++] = (struct category_run){c, last, mask};
    }
    all->runs = runs;
    all->n_runs = n;
    return runs != NULL;
}

bool charset_add_category(charset *set, charsets *all, uint32_t mask) {
    if (!find_runs(all))
        return false;
    for (size_t i = 0; i < all->n_runs; i++)
        if (all->runs[i].mask & mask)
            charset_add(set, all->runs[i].first, all->runs[i].last);
    return true;
}

bool charset_add_words(charset *set, charsets *all, bool in_class) {
    static const int32_t numbers[] = {0xb2, 0xb3, 0xb9, 0xbc, 0xbd, 0xbe};
    if (!find_runs(all))
        return false;
    /* within a run of one category only letters in circles and squares (So) differ */
    for (size_t i = 0; i < all->n_runs; i++) {
        const struct category_run *run = &all->runs[i];
        bool symbols = run->mask == UINT32_C(1) << UTF8PROC_CATEGORY_SO;
        if (!symbols && unicode_is_word(run->first))
            charset_add(set, run->first, run->last);
        for (int32_t c = run->first; symbols && c <= run->last; c++)
            if (unicode_is_word(c))
                charset_add(set, c, c);
    }
    for (size_t i = 0; !in_class && i < sizeof numbers / sizeof *numbers; i++)
        charset_add(set, numbers[i], numbers[i]);
    return true;
}

/* ---- case ---------------------------------------------------------------- */

/* What c folds to, status C and F of CaseFolding.txt. */
static int fold(int32_t c, int32_t to[LONGEST_FOLD]) {
    int32_t buffer[8];
    int boundary = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char(c, buffer, 8, (utf8proc_option_t)UTF8PROC_CASEFOLD, &boundary);
    if (n < 1 || n > LONGEST_FOLD || (n == 1 && buffer[0] == c))
        return 0;
    memcpy(to, buffer, (size_t)n * sizeof *to);
    return (int)n;
}

static bool find_folds(charsets *all) {
    enum { CASE_END = 0x20000 }; /* no plane after the second has case */
    if (all->folds)
        return true;
    size_t n = 0, n_long = 0;
    struct case_fold item = {0};
    for (int32_t c = 0; c < CASE_END; c++)
        if ((item.n = fold(c, item.to)))
            *(item.n == 1 ? &n : &n_long) += 1;
    struct case_fold *folds = GQAC_ARENA_ARRAY(all->arena, struct case_fold, n + 1);
    struct case_fold *long_folds = GQAC_ARENA_ARRAY(all->arena, struct case_fold, n_long + 1);
    if (!folds || !long_folds)
        return false;
    all->n_folds = n;
    all->n_long_folds = n_long;
    n = n_long = 0;
    for (int32_t c = 0; c < CASE_END; c++) {
        item.from = c;
        if ((item.n = fold(c, item.to)))
            *(item.n == 1 ? &folds[n++] : &long_folds[n_long++]) = item;
    }
    all->folds = folds;
    all->long_folds = long_folds;
    return true;
}

bool charset_fold(charset *set, charsets *all, bool negated, int32_t *longer) {
    size_t n = 0;
    *longer = -1;
    if (!find_folds(all))
        return false;
    for (size_t i = 0; i < all->n_long_folds; i++)
        if (charset_has(set, all->long_folds[i].from)) {
            *longer = all->long_folds[i].from;
            n++;
        }
    if (negated && n == all->n_long_folds)
        *longer = -1;
    if (*longer >= 0)
        return true;
    for (size_t i = 0; i < all->n_folds; i++)
        if (charset_has(set, all->folds[i].from))
            charset_add(set, all->folds[i].to[0], all->folds[i].to[0]);
    for (size_t i = 0; i < all->n_folds; i++)
        if (charset_has(set, all->folds[i].to[0]))
            charset_add(set, all->folds[i].from, all->folds[i].from);
    return true;
}

bool charsets_folds_to(charsets *all, const int32_t *tail, size_t n, int32_t *single, bool *oom) {
    int32_t folded[LONGEST_FOLD], one[LONGEST_FOLD];
    *oom = !find_folds(all);
    if (*oom)
        return false;
    size_t kept = n < LONGEST_FOLD ? n : LONGEST_FOLD;
    for (size_t i = 0; i < kept; i++) {
        int32_t c = tail[n - kept + i];
        folded[i] = fold(c, one) == 1 ? one[0] : c;
    }
    for (size_t i = 0; i < all->n_long_folds; i++) {
        const struct case_fold *f = &all->long_folds[i];
        size_t m = (size_t)f->n;
        if (m <= kept && !memcmp(folded + kept - m, f->to, m * sizeof *folded)) {
            *single = f->from;
            return true;
        }
    }
    return false;
}

/* ---- finished sets ------------------------------------------------------- */

static gqac_status intern(charsets *all, char_ranges found, int *index, gqac_diag *diag) {
    for (int i = 0; i < all->n; i++) {
        const char_ranges *old = &all->sets[i];
        if (old->n == found.n && !memcmp(old->at, found.at, found.n * sizeof *found.at)) {
            *index = i;
            return GQAC_OK;
        }
    }
    if (all->n == PATTERN_MAX_SETS)
        GQAC_FAIL(diag, GQAC_LIMIT,
                  "the expression has more than %d different characters and classes",
                  PATTERN_MAX_SETS);
    char_range *at = gqac_arena_copy(all->arena, found.at, found.n * sizeof *found.at);
    if (!at)
        return gqac_diag_oom(diag, "a class of an expression");
    all->sets[all->n] = (char_ranges){found.n, at};
    *index = all->n++;
    return GQAC_OK;
}

gqac_status charsets_intern_range(charsets *all, int32_t first, int32_t last, int *index,
                                  gqac_diag *diag) {
    char_range range = {first, last};
    return intern(all, (char_ranges){1, &range}, index, diag);
}

gqac_status charsets_intern(charsets *all, const charset *set, int *index, gqac_diag *diag) {
    char_ranges found = {0};
    char_range run;
    for (int32_t from = 0; next_run(set, from, &run); from = run.last + 1)
        found.n++;
    found.at = gqac_alloc(found.n * sizeof *found.at);
    if (!found.at)
        return gqac_diag_oom(diag, "a class of an expression");
    size_t n = 0;
    for (int32_t from = 0; next_run(set, from, &run); from = run.last + 1)
        found.at[n++] = run;
    gqac_status status = intern(all, found, index, diag);
    gqac_free(found.at);
    return status;
}

charset *charsets_copy(const charsets *all, int index) {
    charset *set = charset_create();
    for (size_t i = 0; set && i < all->sets[index].n; i++)
        charset_add(set, all->sets[index].at[i].first, all->sets[index].at[i].last);
    return set;
}

/* ---- symbols ------------------------------------------------------------- */

typedef struct signature {
    uint64_t in[WORDS_OF_SETS];
} signature;

typedef struct builder {
    charset *starts;     /* code points at which some set begins or ends */
    signature *segments; /* one for each start */
    char_range *ranges;
    size_t n;
    int32_t *slots; /* hash of signatures: symbol or -1 */
    size_t n_slots; /* a power of 2 */
    size_t n_pages;
} builder;

static bool find_segments(const charsets *all, builder *b) {
    b->starts = charset_create();
    if (!b->starts)
        return false;
    charset_add(b->starts, 0, 0);
    b->n = 1;
    for (int i = 0; i < all->n; i++)
        for (size_t r = 0; r < all->sets[i].n; r++) {
            int32_t edges[2] = {all->sets[i].at[r].first, all->sets[i].at[r].last + 1};
            for (int e = 0; e < 2; e++)
                if (edges[e] <= LAST && !charset_has(b->starts, edges[e])) {
                    charset_add(b->starts, edges[e], edges[e]);
                    b->n++;
                }
        }
    b->segments = gqac_calloc(b->n, sizeof *b->segments);
    b->ranges = gqac_calloc(b->n, sizeof *b->ranges);
    if (!b->segments || !b->ranges)
        return false;
    size_t n = 0;
    for (size_t i = 0; i < CHARSET_WORDS; i++)
        for (uint64_t word = b->starts->bits[i]; word; word &= word - 1) {
            int32_t c = (int32_t)(i * 64) + __builtin_ctzll(word);
            if (n)
                b->ranges[n - 1].last = c - 1;
            b->ranges[n++].first = c;
        }
    b->ranges[n - 1].last = LAST;
    for (int i = 0; i < all->n; i++) {
        size_t s = 0;
        for (size_t r = 0; r < all->sets[i].n; r++) {
            while (b->ranges[s].first < all->sets[i].at[r].first)
                s++;
            for (; s < n && b->ranges[s].last <= all->sets[i].at[r].last; s++)
                b->segments[s].in[i >> 6] |= UINT64_C(1) << (i & 63);
        }
    }
    return true;
}

/* The symbol of a signature, which may be new; -1: there are too many. */
static int find_symbol(builder *b, char_table *table, const signature *key) {
    uint64_t hash = 0x9e3779b97f4a7c15;
    for (int i = 0; i < WORDS_OF_SETS; i++)
        hash = (hash ^ key->in[i]) * 0xff51afd7ed558ccd, hash ^= hash >> 32;
    for (size_t slot = hash & (b->n_slots - 1);; slot = (slot + 1) & (b->n_slots - 1)) {
        int symbol = b->slots[slot];
        if (symbol >= 0 && !memcmp(table->in[symbol], key->in, sizeof key->in))
            return symbol;
        if (symbol >= 0)
            continue;
        if (table->n_symbols == PATTERN_MAX_SYMBOLS)
            return -1;
        memcpy(table->in[table->n_symbols], key->in, sizeof key->in);
        b->slots[slot] = table->n_symbols;
        return table->n_symbols++;
    }
}

/* Writes the symbols of a page that is not like any before. */
static void add_page(char_table *table, size_t page, size_t *n, const uint16_t symbols[256]) {
    size_t bytes = 256 * sizeof *symbols;
    size_t i = *n; /* the last ones first: most pages equal their neighbour */
    while (i > 0 && memcmp(table->symbols + (i - 1) * 256, symbols, bytes) != 0)
        i--;
    if (i == 0) {
        memcpy(table->symbols + *n * 256, symbols, bytes);
        i = ++*n;
    }
    table->pages[page] = (uint16_t)(i - 1);
}

static gqac_status fill_table(builder *b, char_table *table, gqac_diag *diag) {
    uint16_t symbols[256];
    int32_t at = 0;
    for (size_t i = 0; i < b->n; i++) {
        int symbol = find_symbol(b, table, &b->segments[i]);
        if (symbol < 0)
            GQAC_FAIL(diag, GQAC_LIMIT,
                      "the classes of the expression distinguish more than %d kinds of characters",
                      PATTERN_MAX_SYMBOLS);
        for (; at <= b->ranges[i].last; at++) {
            symbols[at & 255] = (uint16_t)symbol;
            if ((at & 255) == 255)
                add_page(table, (size_t)at >> 8, &b->n_pages, symbols);
        }
    }
    return GQAC_OK;
}

gqac_status char_table_build(const charsets *all, char_table *table, gqac_diag *diag) {
    builder b = {0};
    gqac_status status = GQAC_OK;
    b.n_slots = 2 * PATTERN_MAX_SYMBOLS;
    b.slots = gqac_alloc(b.n_slots * sizeof *b.slots);
    table->pages = gqac_calloc(PAGES, sizeof *table->pages);
    table->symbols = gqac_alloc((size_t)PAGES * 256 * sizeof *table->symbols);
    table->in = gqac_calloc(PATTERN_MAX_SYMBOLS, sizeof *table->in);
    if (!b.slots || !table->pages || !table->symbols || !table->in || !find_segments(all, &b)) {
        status = gqac_diag_oom(diag, "the characters of an expression");
    } else {
        memset(b.slots, 0xff, b.n_slots * sizeof *b.slots);
        status = fill_table(&b, table, diag);
    }
    if (status == GQAC_OK) { /* what no page needed is freed */
        uint16_t *fitted = gqac_realloc(table->symbols, b.n_pages * 256 * sizeof *fitted);
        table->symbols = fitted ? fitted : table->symbols;
    }
    gqac_free(b.starts);
    gqac_free(b.segments);
    gqac_free(b.ranges);
    gqac_free(b.slots);
    return status;
}

void char_table_free(char_table *table) {
    gqac_free(table->pages);
    gqac_free(table->symbols);
    gqac_free(table->in);
}
