/* Private to src/ir: what the printer and the parser of the text form share: the lexer, quoting and
 * tensor data. The language is defined in docs/ir.md.
 *
 * What one function here prints, its counterpart reads back to the same bits. */
#ifndef GQAC_IR_TEXT_H
#define GQAC_IR_TEXT_H

#include "base/diag.h"
#include "ir/impl.h"

enum {
    IR_MAX_LISTED = 16, /* elements of a constant that prints in decimal */
    IR_DIGEST_DIGITS = 16,
    IR_MAX_LIST = 1 << 24, /* entries of any list in a text */
};

/* A place in a text. Lines and columns are only counted when an error is reported. */
typedef struct ir_lexer {
    const char *text, *at; /* NUL-terminated */
    gqac_diag *diag;
} ir_lexer;

bool ir_ident_start(char c);
bool ir_ident_char(char c);

void ir_lex_skip(ir_lexer *lexer); /* blanks, newlines and comments */
/* Reports INVALID_MODEL at a place of the text. */
gqac_status ir_lex_fail(const ir_lexer *lexer, const char *at, const char *fmt, ...)
    GQAC_PRINTF(3, 4);
char ir_lex_peek(ir_lexer *lexer); /* the next character that counts */
/* Takes a word or a punctuation mark when it is next; a word must end there. */
bool ir_lex_take(ir_lexer *lexer, const char *token);
gqac_status ir_lex_expect(ir_lexer *lexer, const char *token);
/* Each sets `out` to what it reads, NUL-terminated: an identifier with dots; a quoted string,
 * unescaped; either of them (a name); a run of the characters of a number. */
gqac_status ir_lex_ident(ir_lexer *lexer, gqac_str *out, const char *what);
gqac_status ir_lex_string(ir_lexer *lexer, gqac_str *out);
gqac_status ir_lex_name(ir_lexer *lexer, gqac_str *out);
gqac_status ir_lex_number(ir_lexer *lexer, gqac_str *out);
gqac_status ir_lex_int(ir_lexer *lexer, int64_t least, int64_t most, int64_t *value);
gqac_status ir_lex_float(ir_lexer *lexer, float *value);

void ir_print_quoted(gqac_str *out, const char *text);
void ir_print_name(gqac_str *out, const char *name); /* bare when it is an identifier */
void ir_print_type(gqac_str *out, const ir_type *type);

/* Data of a tensor. Printing: decimal when short and exact, else hex, or the digest that the mode
 * asks for; `digest` where there is no data. Parsing: the tensor's type and shape are set; a digest
 * is taken only when `digest` is not NULL, and then data stays NULL. */
void ir_print_tensor_data(gqac_str *out, const gqac_tensor *tensor, const char *digest,
                          ir_print_mode mode);
gqac_status ir_parse_tensor_data(ir_lexer *lexer, gqac_arena *arena, gqac_tensor *tensor,
                                 const char **digest);

#endif
