/* Private to src/ir: shared by the printer and the parser of the text form: the lexer, quoting and
 * tensor data. docs/ir.md defines the language.
 *
 * Each parsing function reads what its printing counterpart writes, to the same bits. */
#ifndef GQAC_IR_TEXT_H
#define GQAC_IR_TEXT_H

#include "base/diag.h"
#include "ir/impl.h"

enum {
    IR_MAX_LISTED = 16, /* maximum number of elements of a constant that is printed in decimal */
    IR_DIGEST_DIGITS = 16,
    IR_MAX_LIST = 1 << 24, /* entries of any list in a text */
};

/* A cursor in a text. Lines and columns are counted only when an error is reported. */
typedef struct ir_lexer {
    const char *text, *at; /* NUL-terminated */
    gqac_diag *diag;
} ir_lexer;

bool ir_ident_start(char c);
bool ir_ident_char(char c);

void ir_lex_skip(ir_lexer *lexer); /* blanks, newlines and comments */
/* Fails with INVALID_MODEL at `at`, with line and column. */
gqac_status ir_lex_fail(const ir_lexer *lexer, const char *at, const char *fmt, ...)
    GQAC_PRINTF(3, 4);
char ir_lex_peek(ir_lexer *lexer); /* the next character after blanks and comments */
/* Reads a word or punctuation mark if it is next; a word must end there. */
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

/* Print and parse the data of a tensor. Printing: in decimal if short and exact, else in hex, or as
 * a digest if the mode says so; `digest` is printed if there are no data. `module` has the data; it
 * may be NULL in mode FULL. Parsing: the tensor's type and shape are set; a digest is accepted only
 * if `digest` is not NULL, and data then stays NULL. */
void ir_print_tensor_data(gqac_str *out, const ir_module *module, const gqac_tensor *tensor,
                          const char *digest, ir_print_mode mode);
gqac_status ir_parse_tensor_data(ir_lexer *lexer, gqac_arena *arena, gqac_tensor *tensor,
                                 const char **digest);

#endif
