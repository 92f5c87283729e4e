/* Shared by tokenizer*.c, bpe.c and unigram.c. A tokenizer.json becomes lists of steps (normalizer,
 * pre-tokenizer, post-processor, decoder) around one model. The lists live in the tokenizer's arena
 * and never change after tokenizer_create, so any number of threads may use them. The state of a
 * call is in an `encoder` or a `tokenizer_stream`. */
#ifndef GQAC_TEXT_TOKENIZER_TOKENIZER_IMPL_H
#define GQAC_TEXT_TOKENIZER_TOKENIZER_IMPL_H

#include <jansson.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/table.h"
#include "text/expressions/pattern.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode.h"

enum {
    TOKEN_MAX_ID = (1 << 21) - 1,  /* ids index tables */
    TOKENIZER_MAX_STEPS = 64,      /* of one list */
    TOKENIZER_MAX_FILE = 1 << 28,  /* bytes of a tokenizer.json, and of its vocabulary */
    TOKENIZER_MAX_TEXT = 1 << 26,  /* bytes of a text to encode */
    TOKENIZER_MAX_GROWN = 1 << 28, /* maximum number of bytes that steps add to a text, and of bytes
                                      of a decoded text */
    TOKENIZER_BASE_GROWTH = 1 << 20,
    TOKENIZER_MAX_GROWTH = 64, /* factor by which steps may lengthen a text, besides the base */
    TOKENIZER_MAX_NESTING = 16 /* of Sequences */
};

typedef struct span {
    const char *bytes;
    size_t length;
} span;

/* ---- tokenizer_json.c: reading members, with errors that name them -------- */

/* INVALID_MODEL "<key> is missing or not a string". */
gqac_status json_need_text(const json_t *object, const char *key, span *out, gqac_diag *diag);
/* Reads a bool; an absent or null member leaves *out unchanged. */
gqac_status json_may_bool(const json_t *object, const char *key, bool *out, gqac_diag *diag);
gqac_status json_may_text(const json_t *object, const char *key, span *out, gqac_diag *diag);
/* Reads an integer from 0 to `most`. */
gqac_status json_to_index(const json_t *value, const char *name, int64_t most, int64_t *out,
                          gqac_diag *diag);
bool span_is(span s, const char *word);
/* Sets *out to the index of the text among n words. UNSUPPORTED: it is none of them; `what` names
 * it in the message. */
gqac_status span_among(span s, const char *what, const char *const *words, int n, int *out,
                       gqac_diag *diag);
gqac_status span_keep(gqac_arena *arena, span *s, gqac_diag *diag);
/* {"String": ...} or {"Regex": ...}: exactly one of *literal and *pattern is set. */
gqac_status json_need_pattern(const json_t *object, gqac_arena *arena, span *literal,
                              pattern **regex, gqac_diag *diag);
/* Calls `read` for an object, or, if its type is Sequence, for each part in its member `list`. null
 * counts as absent. */
typedef gqac_status part_reader(void *arg, const json_t *part, span type, gqac_diag *diag);
gqac_status json_each_part(const json_t *value, const char *name, const char *list,
                           part_reader *read, void *arg, gqac_diag *diag);

/* Adds to a failure in which step of a part of the file it occurred; returns the status. */
gqac_status in_step(gqac_status status, const char *part, int index, gqac_diag *diag);

/* ---- tokenizer_map.c: hash tables that cannot be made slow ------------------- */

/* Tables of 64-bit keys and values. The hash of a key is one-to-one and is stored in place of the
 * key. LIMIT: the keys were chosen to collide; so a look-up takes a limited time. */
#define MAP64_NONE UINT64_MAX
gqac_status map64_put(gqac_table *m, uint64_t key, uint64_t value, gqac_diag *diag);

static inline uint64_t map64_get(const gqac_table *m, uint64_t key) {
    const uint64_t hash = gqac_hash_u64(0, key);
    size_t at = (size_t)hash;
    const gqac_slot *slot = gqac_table_slot(m, hash, &at);
    return slot ? slot->value - 1 : MAP64_NONE;
}

/* Texts to ids. */
enum { TOKEN_EXISTS = 1, TOKEN_ADDED = 2, TOKEN_SPECIAL = 4 };
typedef struct token {
    uint32_t offset, length;             /* in bytes */
    uint32_t shown_offset, shown_length; /* what it decodes from */
    uint32_t flags;
} token;
typedef struct words {
    gqac_str bytes;
    token *tokens; /* by id */
    size_t limit;  /* largest id + 1 */
    size_t capacity;
    gqac_table ids; /* id + 1 by text */
} words;
void words_free(words *w);
/* Sets the text of an id; `find`: words_find finds it. INVALID_MODEL: the id has another text, or
 * the text another id. */
gqac_status words_add(words *w, span text, int64_t id, bool find, gqac_diag *diag);
/* Sets the text that an id decodes to, if it differs from its own. */
gqac_status words_show(words *w, int64_t id, span text, gqac_diag *diag);
int64_t words_find(const words *w, const char *text, size_t length); /* -1: none */
/* The ids of "<0x00>", "<0x01>"...; -1: none. */
void words_find_bytes(const words *w, int32_t ids[256]);
static inline span words_text(const words *w, int64_t id) {
    return (span){w->bytes.text + w->tokens[id].offset, w->tokens[id].length};
}
static inline span words_shown(const words *w, int64_t id) {
    return (span){w->bytes.text + w->tokens[id].shown_offset, w->tokens[id].shown_length};
}

/* ---- bpe.c -------------------------------------------------------------------- */

enum { BPE_LOW = 0x180 }; /* characters with a direct table, among them all of ByteLevel */
typedef struct bpe {
    words *words;                     /* the tokenizer's */
    gqac_table merges;                /* left << 32 | right to rank << 32 | result */
    int32_t low[BPE_LOW], bytes[256]; /* ids of characters, of "<0x00>"...; -1: none */
    bool byte_fallback, fuse_unk, ignore_merges;
    bool has_unk;
    int64_t unk; /* -1: unk_token is not in the vocabulary, which only matters when it is needed */
    span unk_text;
} bpe;
gqac_status bpe_read(const json_t *model, gqac_arena *arena, words *words, bpe *b, gqac_diag *diag);
void bpe_free(bpe *b);

typedef struct id_list {
    int64_t *items;
    size_t n, capacity;
} id_list;
gqac_status id_list_reserve(id_list *list, size_t extra, gqac_diag *diag);

typedef struct bpe_scratch {
    uint32_t *id, *prev, *next;
    uint64_t *value, *heap;
    size_t capacity, n_heap;
} bpe_scratch;
void bpe_scratch_free(bpe_scratch *s);
/* Appends the ids of one word of valid UTF-8. O(n log n). */
gqac_status bpe_encode(const bpe *b, bpe_scratch *s, const char *word, size_t length, id_list *out,
                       gqac_diag *diag);

/* ---- unigram.c ---------------------------------------------------------------- */

typedef struct unigram {
    const words *words; /* the tokenizer's */
    double *scores;     /* by id: logarithms of probabilities */
    double unknown;     /* the score of a character that is not a token by itself */
    gqac_table edges;   /* of the tree of all tokens: node << 8 | byte to node; the root is 0 */
    int32_t *ends;      /* by node: the token that ends there, or -1 */
    size_t n_nodes, capacity;
    int32_t bytes[256]; /* ids of "<0x00>"...; -1: none */
    bool byte_fallback;
    int64_t unk; /* -1: none, and unknown characters are refused */
} unigram;
gqac_status unigram_read(const json_t *model, words *words, unigram *u, gqac_diag *diag);
void unigram_free(unigram *u);
/* The best sequence of tokens up to a position in the word. */
typedef struct unigram_position {
    double score;
    uint32_t from; /* where the last of them begins; UINT32_MAX: there are none */
    int32_t id;
} unigram_position;
typedef struct unigram_scratch {
    unigram_position *positions;
    size_t capacity;
} unigram_scratch;
/* Appends the ids of one word of valid UTF-8. O(n times the longest token). */
gqac_status unigram_encode(const unigram *u, unigram_scratch *s, const char *word, size_t length,
                           id_list *out, gqac_diag *diag);

/* ---- tokenizer_match.c: added tokens in a text ----------------------------------- */

/* Leftmost-longest matches of a set of texts, in linear time (Aho and Corasick 1975, run backwards:
 * when reading from the end, the longest word that ends at a position is the longest one that
 * begins there).
 */
typedef struct matcher {
    gqac_table edges; /* node << 8 | byte to node */
    uint32_t root[256];
    uint32_t *fail, *found; /* by node; found: word + 1 */
    size_t n_nodes;
    bool empty;
} matcher;
typedef struct hit {
    size_t begin;
    uint32_t word;
} hit;
typedef struct hit_list {
    hit *items; /* from the end of the text; they may overlap */
    size_t n, capacity;
} hit_list;
gqac_status matcher_create(const span *texts, size_t n, matcher *m, gqac_diag *diag);
void matcher_free(matcher *m);
gqac_status matcher_run(const matcher *m, const char *text, size_t length, hit_list *hits,
                        gqac_diag *diag);

/* ---- growth ----------------------------------------------------------------------- */

/* Number of bytes that the steps may still add to a text or a stream. */
typedef struct growth {
    size_t left;
} growth;
void growth_begin(growth *g);
void growth_admit(growth *g, size_t bytes); /* `bytes` more of the text */
/* Maximum number of bytes of a step's result, for a text of `from` bytes. */
static inline size_t growth_most(const growth *g, size_t from) {
    return from + g->left;
}
/* Accounts for a step that changed the length of a text. */
gqac_status growth_take(growth *g, size_t from, const gqac_str *to, gqac_diag *diag);
gqac_status text_check(const gqac_str *text, size_t most, gqac_diag *diag); /* memory and size */

/* ---- tokenizer_normal.c ------------------------------------------------------------ */

typedef enum normal_kind {
    NORMAL_FORM,
    NORMAL_LOWER,
    NORMAL_STRIP,
    NORMAL_PREPEND,
    NORMAL_REPLACE,
    NORMAL_CHARSMAP,
    NORMAL_ACCENTS,
    NORMAL_NMT
} normal_kind;
/* tokenizer_charsmap.c: SentencePiece's table of characters and replacements, a double array
 * (Aoe 1989) whose leaves are offsets of texts that end with NUL. */
typedef struct charsmap {
    const uint32_t *units;
    size_t n_units;
    span texts;
} charsmap;
gqac_status charsmap_read(const json_t *part, gqac_arena *arena, charsmap *out, gqac_diag *diag);
gqac_status charsmap_run(const charsmap *map, span text, size_t most, gqac_str *out,
                         gqac_diag *diag);

typedef struct normal_step {
    normal_kind kind;
    unicode_form form;
    bool left, right;
    span find, content;
    pattern *regex;
    charsmap map;
    uint32_t dropped; /* categories of characters that are removed */
} normal_step;
typedef struct normalizer {
    normal_step steps[TOKENIZER_MAX_STEPS];
    int n;
} normalizer;
gqac_status normalizer_read(const json_t *value, gqac_arena *arena, normalizer *out,
                            gqac_diag *diag);
void normalizer_free(normalizer *n);
/* Scratch of normalising, for all parts of a text; begin with {0}. */
typedef struct normal_scratch {
    gqac_str text; /* the result */
    gqac_str spare;
    pattern_scratch *regex[TOKENIZER_MAX_STEPS];
} normal_scratch;
void normal_scratch_free(normal_scratch *s);
/* Writes the normalised text to s->text. *first, if true, stays true as long as the result begins
 * where the text does. */
gqac_status normalizer_run(const normalizer *n, normal_scratch *s, span text, growth *growth,
                           bool *first, gqac_diag *diag);
typedef struct exchange {
    span find, content;
    const pattern *regex; /* or NULL */
} exchange;
/* Appends the text, with each match of `find`, or of `regex` if there is one, replaced. *scratch is
 * created when it is needed; if it is used for several texts, it limits the work on all of them
 * together. LIMIT: *out would be longer than `most`. */
gqac_status replace_all(const exchange *r, pattern_scratch **scratch, span text, size_t most,
                        gqac_str *out, gqac_diag *diag);

/* The state of iterating over matches as Hugging Face's tokenizers do: an empty match directly
 * after the last match does not count. It begins as {0}. */
typedef struct match_state {
    size_t at, last;
    bool any;
} match_state;
gqac_status match_next(const pattern *p, pattern_scratch *scratch, span text, match_state *state,
                       pattern_match *match, gqac_diag *diag);
/* Makes *scratch if there is none, and admits a text. */
gqac_status match_admit(const pattern *p, pattern_scratch **scratch, size_t bytes, gqac_diag *diag);

/* ---- tokenizer_split.c ----------------------------------------------------------------- */

typedef struct piece {
    size_t begin, end;
    bool first; /* begins where the whole text begins */
} piece;
typedef struct pieces {
    gqac_str text;
    piece *items;
    size_t n, capacity;
} pieces;
typedef enum split_kind {
    SPLIT_TEXT,  /* at a literal */
    SPLIT_REGEX, /* at matches */
    SPLIT_SPACE, /* at white space characters */
    SPLIT_DIGIT, /* at numeric characters */
    SPLIT_PUNCTUATION,
    SPLIT_WORD,      /* \w+|[^\w\s]+ */
    SPLIT_PREFIX,    /* a space before a piece that has none */
    SPLIT_METASPACE, /* spaces become `literal`, which is prepended */
    SPLIT_BYTES      /* each byte becomes its ByteLevel character */
} split_kind;
typedef enum split_behaviour {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS
} split_behaviour;
typedef enum split_prepend { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } split_prepend;
typedef struct split_step {
    split_kind kind;
    split_behaviour behaviour;
    bool invert;
    split_prepend prepend;
    span literal;
    pattern *regex;
} split_step;
typedef struct splitter {
    split_step steps[TOKENIZER_MAX_STEPS];
    int n;
} splitter;
typedef struct split_scratch {
    pieces a, b;
    pattern_scratch *scratch[TOKENIZER_MAX_STEPS];
} split_scratch;
gqac_status splitter_read(const json_t *value, gqac_arena *arena, splitter *out, gqac_diag *diag);
void splitter_free(splitter *s);
/* replacement and prepend_scheme of a Metaspace, pre-tokenizer or decoder. */
gqac_status metaspace_read(const json_t *part, gqac_arena *arena, span *replacement,
                           split_prepend *prepend, gqac_diag *diag);
void split_scratch_free(split_scratch *s);
/* Stores the words of a text in s->a. */
gqac_status splitter_run(const splitter *splitter, split_scratch *s, span text, growth *growth,
                         bool first, gqac_diag *diag);
/* \w of whole words: as in expressions, and the joiners. */
static inline bool in_word(int32_t c) {
    return unicode_is_word(c) || c == 0x200c || c == 0x200d;
}
/* Maps a byte to its ByteLevel character, and back (-1: there is none). */
int32_t byte_level_char(unsigned byte);
int byte_level_byte(int32_t codepoint);

/* ---- tokenizer_decode.c ------------------------------------------------------------------ */

typedef enum decode_kind {
    DECODE_JOIN, /* a space between tokens: the file has no decoder */
    DECODE_BYTE_LEVEL,
    DECODE_METASPACE,
    DECODE_BYTE_FALLBACK,
    DECODE_FUSE,
    DECODE_STRIP,
    DECODE_REPLACE
} decode_kind;
typedef struct decode_step {
    decode_kind kind;
    bool keep_first; /* Metaspace: the first token keeps its spaces */
    span find;       /* Metaspace: the replacement; Strip: the character */
    span content;
    const uint32_t *fall; /* Replace: how much of `find` still matches after a mismatch */
    pattern *regex;
    int64_t start, stop; /* Strip */
} decode_step;
typedef struct decoder {
    decode_step steps[TOKENIZER_MAX_STEPS];
    int n;
} decoder;
gqac_status decoder_read(const json_t *value, gqac_arena *arena, decoder *out, gqac_diag *diag);
void decoder_free(decoder *d);

/* ---- tokenizer_added.c, tokenizer.c ---------------------------------------------------------- */

typedef struct added_token {
    span text;
    int64_t id;
    bool special, lstrip, rstrip, single_word, normalized;
} added_token;
typedef struct added_set {
    matcher matcher;
    added_token *tokens; /* by word of the matcher */
    size_t n;
} added_set;

struct tokenizer {
    gqac_arena *arena;
    words words; /* tokens of the model, and added tokens, which words_find does not find */
    bool is_unigram;
    bpe bpe;
    unigram unigram;
    normalizer normalizer;
    splitter splitter;
    decoder decoder;
    added_set raw, normalized; /* found in the original text, and in the normalised text */
    int64_t *post;             /* ids around the text, -1 for the text itself */
    size_t n_post;
};

/* tokenizer_post.c, after added_read. */
gqac_status post_read(const json_t *value, tokenizer *t, gqac_diag *diag);
/* added_tokens, after model and normalizer were read. */
gqac_status added_read(const json_t *list, tokenizer *t, gqac_diag *diag);
/* Cuts a text at added tokens, with `plain` at those only that are not special: calls take(arg, id,
 * begin, end) in order, id -1 for what lies between them. */
typedef gqac_status added_taker(void *arg, int64_t id, size_t begin, size_t end, gqac_diag *diag);
gqac_status added_cut(const added_set *set, span text, bool plain, hit_list *hits,
                      added_taker *take, void *arg, gqac_diag *diag);

#endif
