/* Shared by the files of expressions: sets of characters (pattern_set.c), the syntax tree
 * (pattern_parse.c), and the program (made by pattern.c, run by pattern_find.c). */
#ifndef GQAC_TEXT_EXPRESSIONS_PATTERN_IMPL_H
#define GQAC_TEXT_EXPRESSIONS_PATTERN_IMPL_H

#include <stdint.h>

#include "base/arena.h"
#include "text/expressions/pattern.h"
#include "text/unicode.h"

enum {
    PATTERN_MAX_SOURCE = 16384,  /* bytes */
    PATTERN_MAX_DEPTH = 64,      /* nested groups or classes */
    PATTERN_MAX_SETS = 256,      /* different classes and characters */
    PATTERN_MAX_SYMBOLS = 4096,  /* kinds of characters that the sets distinguish */
    PATTERN_MAX_CODE = 16384,    /* instructions */
    PATTERN_BASE_WORK = 1 << 22, /* steps for any text, to which some are added for each byte */
    PATTERN_BYTE_WORK = 64,
    PATTERN_SHOWN = 40 /* bytes of an expression in a message */
};

/* ---- pattern_set.c ------------------------------------------------------- */

#define CHARSET_WORDS (0x110000 / 64)

/* A set under construction: one bit for each code point. */
typedef struct charset {
    uint64_t bits[CHARSET_WORDS];
} charset;

typedef struct char_range {
    int32_t first, last;
} char_range;

/* A finished set: ranges in ascending order, not touching. */
typedef struct char_ranges {
    size_t n;
    char_range *at;
} char_ranges;

/* All sets of an expression, and tables that are computed when they are needed. */
typedef struct charsets {
    gqac_arena *arena;
    int n;
    char_ranges sets[PATTERN_MAX_SETS];
    size_t n_runs; /* runs of code points of one category */
    struct category_run *runs;
    struct case_fold *folds;
    size_t n_folds;
    struct case_fold *long_folds;
    size_t n_long_folds;
} charsets;

charset *charset_create(void); /* empty; NULL: out of memory */
void charset_add(charset *set, int32_t first, int32_t last);
bool charset_has(const charset *set, int32_t codepoint);
void charset_unite(charset *set, const charset *other);
void charset_intersect(charset *set, const charset *other);
void charset_negate(charset *set);
void charset_add_spaces(charset *set);
/* Adds \w. Outside of brackets Oniguruma includes the numbers U+00B2, B3, B9, BC, BD and BE, inside
 * brackets it does not. False: out of memory. */
bool charset_add_words(charset *set, charsets *all, bool in_class);
bool charset_add_category(charset *set, charsets *all, uint32_t mask);
/* Adds the characters that differ from a member only in case. *longer becomes a member that equals
 * several characters in another case, if that matters, or -1. It does not matter in a class that is
 * `negated` afterwards and has all such members. False: out of memory. */
bool charset_fold(charset *set, charsets *all, bool negated, int32_t *longer);
/* True if the last of these characters, in any case, are what a single character folds to. */
bool charsets_folds_to(charsets *all, const int32_t *tail, size_t n, int32_t *single, bool *oom);
/* Sets *index to the number of a set; equal sets have the same number. LIMIT: there are too many
 * sets. */
gqac_status charsets_intern(charsets *all, const charset *set, int *index, gqac_diag *diag);
gqac_status charsets_intern_range(charsets *all, int32_t first, int32_t last, int *index,
                                  gqac_diag *diag);
charset *charsets_copy(const charsets *all, int index); /* a new set; NULL: out of memory */

/* The symbol of each character, and the sets that a symbol is in. */
typedef struct char_table {
    uint16_t *pages;   /* [0x1100] */
    uint16_t *symbols; /* [pages][256] */
    int n_symbols;
    uint64_t (*in)[PATTERN_MAX_SETS / 64]; /* [n_symbols] */
} char_table;
gqac_status char_table_build(const charsets *all, char_table *table, gqac_diag *diag);
void char_table_free(char_table *table);

static inline int char_symbol(const char_table *table, int32_t c) {
    return table->symbols[(size_t)table->pages[c >> 8] * 256 + (size_t)(c & 255)];
}
static inline bool char_in(const char_table *table, int symbol, int set) {
    return table->in[symbol][set >> 6] >> (set & 63) & 1;
}

/* ---- pattern_parse.c ----------------------------------------------------- */

typedef enum node_kind {
    NODE_EMPTY,
    NODE_SET,    /* one character of `set` */
    NODE_SEQ,    /* all of the list */
    NODE_ALT,    /* one of the list, earlier ones first */
    NODE_REPEAT, /* child, min to max times */
    NODE_AHEAD,  /* the next character is in `set`; at the end of the text: `edge` */
    NODE_BEHIND  /* the character before is in `set`; at the beginning of the text: `edge` */
} node_kind;
typedef enum repeat_mode { GREEDY, LAZY, POSSESSIVE } repeat_mode;

typedef struct node {
    node_kind kind;
    size_t offset; /* in the source */
    int set;
    bool edge;
    repeat_mode mode;
    int min, max; /* max -1: any number */
    struct node *child, *next;
} node;

gqac_status pattern_parse(const char *source, size_t length, charsets *sets, node **root,
                          gqac_diag *diag);

/* ---- pattern.c ----------------------------------------------------------- */

typedef enum opcode { OP_SET, OP_SPLIT, OP_JUMP, OP_AHEAD, OP_BEHIND, OP_MATCH } opcode;
typedef struct instruction {
    uint8_t op;
    bool edge;
    uint16_t set;
    uint32_t x, y; /* SPLIT: first x, then y; JUMP: x */
} instruction;

struct pattern {
    char_table table;
    uint32_t n_code;
    uint32_t n_consuming; /* OP_SETs */
    bool looks_back;
    instruction *code;
    char shown[PATTERN_SHOWN + 4]; /* its beginning, for messages */
};

#endif
