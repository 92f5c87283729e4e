/* Properties of characters, for templates, expressions and tokenizers. */
#ifndef GQAC_TEXT_UNICODE_H
#define GQAC_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"
#include "base/str.h"

/* Reads one character of valid UTF-8; returns its bytes. */
size_t unicode_read(const char *text, size_t length, int32_t *codepoint);
/* Writes one character; returns its bytes, 0 if it is not a code point. */
size_t unicode_write(int32_t codepoint, char out[4]);
/* Where the last character of [begin, end) begins; begin < end. */
size_t unicode_before(const char *text, size_t begin, size_t end);
/* Bytes of the first extended grapheme cluster (Unicode Annex 29). */
size_t unicode_cluster(const char *text, size_t length);
int unicode_hex_digit(char c); /* -1: none */
/* General category as in \p{..}: "L", "Lu", "N", "Nd", "M", "P", "S", "Z", "C", ...; false: there
 * is no such category. */
bool unicode_category(const char *name, size_t length, uint32_t *mask);
bool unicode_is(int32_t codepoint, uint32_t mask);
bool unicode_is_space(int32_t codepoint); /* White_Space, \s */
bool unicode_is_word(int32_t codepoint);  /* \w: letters, marks, digits, connectors */
typedef enum unicode_form { UNICODE_NFC, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD } unicode_form;
/* LIMIT: the decomposed text has more than `most` characters. */
gqac_status unicode_normalise(unicode_form form, const char *text, size_t length, size_t most,
                              gqac_str *out, gqac_diag *diag);
gqac_status unicode_lower(const char *text, size_t length, gqac_str *out, gqac_diag *diag);

#endif
