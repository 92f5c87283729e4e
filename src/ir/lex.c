/* The lexer of the text form: a cursor; the parser asks it for the token that it expects next.
 *
 * Nothing is read ahead, so the parser can pass the cursor to ir_dim_parse and continue after it.
 * Words are copied to a buffer of the caller, which is reused. */
#include "ir/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool ir_ident_start(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

bool ir_ident_char(char c) {
    return ir_ident_start(c) || (c >= '0' && c <= '9') || c == '.';
}

void ir_lex_skip(ir_lexer *lexer) {
    const char *at = lexer->at;
    for (;;) {
        at += strspn(at, " \t\r\n");
        if (at[0] != '/' || at[1] != '/')
            break;
        at += strcspn(at, "\n");
    }
    lexer->at = at;
}

gqac_status ir_lex_fail(const ir_lexer *lexer, const char *at, const char *fmt, ...) {
    char what[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    gqac_diag_set(lexer->diag, GQAC_INVALID_MODEL, "%s", what);
    size_t line = 1, column = 1;
    for (const char *c = lexer->text; c < at; c++) {
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n';
    }
    gqac_diag_where(lexer->diag, "line %zu, column %zu", line, column);
    return GQAC_INVALID_MODEL;
}

char ir_lex_peek(ir_lexer *lexer) {
    ir_lex_skip(lexer);
    return *lexer->at;
}

bool ir_lex_take(ir_lexer *lexer, const char *token) {
    ir_lex_skip(lexer);
    size_t length = strlen(token);
    if (strncmp(lexer->at, token, length) != 0)
        return false;
    if (ir_ident_start(token[0]) && ir_ident_char(lexer->at[length]))
        return false;
    lexer->at += length;
    return true;
}

/* Fails with a message that shows the text at the cursor. */
static gqac_status fail_expected(const ir_lexer *lexer, const char *what) {
    char c = *lexer->at;
    if (!c)
        return ir_lex_fail(lexer, lexer->at, "expected %s, but the text ends", what);
    if (c >= 0x20 && c < 0x7f)
        return ir_lex_fail(lexer, lexer->at, "expected %s, not '%c'", what, c);
    return ir_lex_fail(lexer, lexer->at, "expected %s, not byte 0x%02x", what, (unsigned char)c);
}

gqac_status ir_lex_expect(ir_lexer *lexer, const char *token) {
    char what[32];
    if (ir_lex_take(lexer, token))
        return GQAC_OK;
    snprintf(what, sizeof what, "'%s'", token);
    return fail_expected(lexer, what);
}

static gqac_status set(const ir_lexer *lexer, gqac_str *out, const char *text, size_t length) {
    out->length = 0;
    gqac_str_append_n(out, text, length);
    if (!out->failed && !out->text)
        gqac_str_append(out, "");
    return out->failed ? gqac_diag_oom(lexer->diag, "a word of the text") : GQAC_OK;
}

gqac_status ir_lex_ident(ir_lexer *lexer, gqac_str *out, const char *what) {
    if (!ir_ident_start(ir_lex_peek(lexer)))
        return fail_expected(lexer, what);
    const char *start = lexer->at;
    while (ir_ident_char(*lexer->at))
        lexer->at++;
    return set(lexer, out, start, (size_t)(lexer->at - start));
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads what follows a backslash; returns the byte that it means, or 0. */
static char unescape(ir_lexer *lexer) {
    static const char codes[] = "\"\"\\\\n\nt\tr\r";
    char c = *lexer->at;
    if (c == 'x') {
        int high = hex_digit(lexer->at[1]);
        int low = high < 0 ? -1 : hex_digit(lexer->at[2]);
        if (low < 0)
            return 0;
        lexer->at += 3;
        return (char)(high * 16 + low);
    }
    for (size_t i = 0; c && codes[i]; i += 2)
        if (codes[i] == c) {
            lexer->at++;
            return codes[i + 1];
        }
    return 0;
}

gqac_status ir_lex_string(ir_lexer *lexer, gqac_str *out) {
    if (ir_lex_peek(lexer) != '"')
        return fail_expected(lexer, "a quoted string");
    const char *start = lexer->at++;
    GQAC_TRY(set(lexer, out, "", 0));
    for (;;) {
        size_t run = strcspn(lexer->at, "\"\\\n");
        gqac_str_append_n(out, lexer->at, run);
        lexer->at += run;
        char c = *lexer->at;
        if (c != '"' && c != '\\')
            return ir_lex_fail(lexer, start, "the string does not end on its line");
        lexer->at++;
        if (c == '"')
            break;
        c = unescape(lexer);
        if (!c)
            return ir_lex_fail(lexer, lexer->at - 1, "unknown escape in a string");
        gqac_str_append_n(out, &c, 1);
    }
    return out->failed ? gqac_diag_oom(lexer->diag, "a string of the text") : GQAC_OK;
}

gqac_status ir_lex_name(ir_lexer *lexer, gqac_str *out) {
    /* No blank between the sigil and the name. */
    if (*lexer->at == '"')
        return ir_lex_string(lexer, out);
    if (!ir_ident_start(*lexer->at))
        return fail_expected(lexer, "a name");
    return ir_lex_ident(lexer, out, "a name");
}

gqac_status ir_lex_number(ir_lexer *lexer, gqac_str *out) {
    ir_lex_skip(lexer);
    const char *start = lexer->at;
    lexer->at += *lexer->at == '-';
    for (; ir_ident_char(*lexer->at) || *lexer->at == '+' || *lexer->at == '-'; lexer->at++)
        if ((*lexer->at == '+' || *lexer->at == '-') && lexer->at[-1] != 'e')
            break;
    if (lexer->at == start)
        return fail_expected(lexer, "a number");
    return set(lexer, out, start, (size_t)(lexer->at - start));
}

gqac_status ir_lex_int(ir_lexer *lexer, int64_t least, int64_t most, int64_t *value) {
    ir_lex_skip(lexer);
    const char *at = lexer->at;
    bool negative = *at == '-';
    uint64_t number = 0, limit = (uint64_t)INT64_MAX + (negative ? 1 : 0);
    at += negative;
    if (*at < '0' || *at > '9')
        return fail_expected(lexer, "an integer");
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (number > (limit - digit) / 10)
            return ir_lex_fail(lexer, lexer->at, "the integer is out of range for 64 bits");
        number = number * 10 + digit;
    }
    int64_t result = negative ? (int64_t)(0 - number) : (int64_t)number;
    if (ir_ident_char(*at))
        return ir_lex_fail(lexer, at, "unexpected '%c' after an integer", *at);
    if (result < least || result > most)
        return ir_lex_fail(lexer, lexer->at, "%lld is not in the range %lld to %lld",
                           (long long)result, (long long)least, (long long)most);
    lexer->at = at;
    *value = result;
    return GQAC_OK;
}

gqac_status ir_lex_float(ir_lexer *lexer, float *value) {
    gqac_str word = {0};
    ir_lex_skip(lexer);
    const char *start = lexer->at;
    gqac_status status = ir_lex_number(lexer, &word);
    if (status == GQAC_OK) {
        if (strcmp(word.text, "nan") == 0)
            *value = __builtin_nanf("");
        else if (strcmp(word.text, "inf") == 0 || strcmp(word.text, "-inf") == 0)
            *value = word.text[0] == '-' ? -__builtin_inff() : __builtin_inff();
        else if (strchr(word.text, 'n') || !gqac_parse_float(word.text, value))
            status = ir_lex_fail(lexer, start, "'%.40s' is not a 32-bit float", word.text);
    }
    gqac_str_free(&word);
    return status;
}
