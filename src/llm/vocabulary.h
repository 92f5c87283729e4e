/* The bytes of all tokens of a tokenizer, as a trie, so that common beginnings are examined only
 * once. It serves constraints, which ask for all tokens that an automaton accepts. */
#ifndef GQAC_LLM_VOCABULARY_H
#define GQAC_LLM_VOCABULARY_H

#include "llm/llm.h"
#include "text/grammar/automaton.h"

/* A node is one byte after its parent. Nodes are in preorder, so the parts that are not wanted are
 * skipped, and all others are read in the order of memory. */
typedef struct trie_node {
    uint32_t skip;  /* the node after all that begin with this one */
    uint32_t first; /* its tokens: from here to `first` of the next node */
    uint16_t depth; /* bytes before this one */
    uint8_t byte;
} trie_node;

typedef struct vocabulary {
    trie_node *nodes; /* one more after the last */
    uint32_t n_nodes, depth;
    int64_t *ids; /* of the tokens, in the order of their bytes */
    size_t n_ids;
    char *bytes; /* of all tokens by id: bytes + offsets[id] */
    size_t *offsets;
    int64_t n;        /* ids of the tokenizer */
    bool drops_space; /* a space that begins a text is not part of it */
} vocabulary;

/* A byte that no text in UTF-8 has. A special token is its name between two such bytes, so that a
 * grammar can demand the token, and no text is mistaken for it. */
enum { VOCABULARY_SPECIAL = 0xff };

/* Reads all tokens of a tokenizer. Those without bytes, with a byte VOCABULARY_SPECIAL, or with
 * more than about 4096 bytes are left out. */
gqac_status vocabulary_create(const tokenizer *t, vocabulary **out, gqac_diag *diag);
void vocabulary_free(vocabulary *v);
/* The bytes of a token; NULL: there is no such token, or it is left out. */
const char *vocabulary_bytes(const vocabulary *v, int64_t id, size_t *length);
/* True if a token has exactly these bytes. */
bool vocabulary_has(const vocabulary *v, const char *bytes, size_t length);

/* Sets the bit of each token that the automaton accepts after a state; `bits` are zeros before.
 * `first`: the token begins a text. LIMIT: as automaton_find. */
gqac_status vocabulary_mark(const vocabulary *v, automaton *a, uint32_t state, bool first,
                            uint64_t *bits, gqac_diag *diag);
/* Where a token leads; AUTOMATON_DEAD: it is not accepted. */
gqac_status vocabulary_push(const vocabulary *v, automaton *a, uint32_t *state, bool first,
                            int64_t id, gqac_diag *diag);

#endif
