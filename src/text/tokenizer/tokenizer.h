/* Encoding texts to ids and decoding ids to text, as a tokenizer.json says. */
#ifndef GQAC_TEXT_TOKENIZER_TOKENIZER_H
#define GQAC_TEXT_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"

/* A tokenizer.json: byte-level BPE, byte-fallback BPE or Unigram. Immutable. */
typedef struct tokenizer tokenizer;
gqac_status tokenizer_create(const char *json, size_t bytes, tokenizer **out, gqac_diag *diag);
void tokenizer_free(tokenizer *t);
int64_t tokenizer_size(const tokenizer *t); /* the largest id + 1 */
/* Options of encoding: SPECIAL adds the ids of the post-processor; PLAIN treats special tokens that
 * the text spells out as text. */
enum { TOKENIZER_SPECIAL = 1, TOKENIZER_PLAIN = 2 };
/* See gqac_text_tokenize, gqac_text_detokenize and gqac_text_token_bytes. */
gqac_status tokenizer_encode(const tokenizer *t, const char *text, size_t length, unsigned how,
                             int64_t **ids, size_t *n, gqac_diag *diag);
gqac_status tokenizer_bytes(const tokenizer *t, int64_t id, char **bytes, size_t *length,
                            bool *special, gqac_diag *diag);
gqac_status tokenizer_decode(const tokenizer *t, const int64_t *ids, size_t n, bool skip_special,
                             char **out, size_t *length, gqac_diag *diag);
typedef struct tokenizer_stream tokenizer_stream;
gqac_status tokenizer_stream_create(const tokenizer *t, tokenizer_stream **out, gqac_diag *diag);
void tokenizer_stream_free(tokenizer_stream *s);
gqac_status tokenizer_stream_push(tokenizer_stream *s, int64_t id, const char **piece,
                                  size_t *length, gqac_diag *diag);
gqac_status tokenizer_stream_finish(tokenizer_stream *s, const char **piece, size_t *length,
                                    gqac_diag *diag);

#endif
