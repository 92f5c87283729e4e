/* Templates to tokens: texts with the whitespace rules applied, and the tokens of tags.
 *
 * As Jinja with trim_blocks and lstrip_blocks: a newline after a tag or comment is dropped, and so
 * are spaces between the beginning of a line and a tag or comment; '-' drops all whitespace on its
 * side,
 * '+' keeps it. A '}' that closes a bracket of an expression never ends the tag. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/jinja/jinja_impl.h"

enum { BRACKETS = 256, NUMBER = 300 };

typedef struct lexer {
    jparser *p;
    const char *s;
    size_t n, at;
    uint32_t line;
    size_t counted; /* newlines before it are in `line` */
} lexer;

static uint32_t line_at(lexer *x, size_t at) {
    for (; x->counted < at; x->counted++)
        x->line += x->s[x->counted] == '\n';
    return x->line;
}

static bool good(const lexer *x) {
    return x->p->status == GQAC_OK;
}

static jtoken *emit(lexer *x, jtoken_type type, size_t begin, size_t end) {
    jparser *p = x->p;
    if (!good(x))
        return NULL;
    if (!gqac_reserve(&p->tokens, p->n_tokens + 1, &p->capacity, sizeof *p->tokens)) {
        p->status = gqac_diag_oom(p->diag, "tokens of a template");
        return NULL;
    }
    jtoken *token = &p->tokens[p->n_tokens++];
    *token = (jtoken){.type = type, .line = line_at(x, begin), .s = x->s + begin, .n = end - begin};
    return token;
}

static bool at_text(const lexer *x, size_t at, const char *text) {
    size_t n = strlen(text);
    return at <= x->n && n <= x->n - at && memcmp(x->s + at, text, n) == 0;
}

static size_t skip_space(const lexer *x, size_t at) {
    size_t bytes;
    while (at < x->n && jinja_is_space(jinja_char(x->s + at, x->n - at, &bytes)))
        at += bytes;
    return at;
}

/* ---- texts --------------------------------------------------------------- */

/* End of the text [begin, end) without the whitespace that a tag with this sign drops. */
static size_t strip_end(const lexer *x, size_t begin, size_t end, char sign, bool tag) {
    if (sign == '-') {
        while (end > begin) {
            size_t at = unicode_before(x->s, begin, end), bytes;
            if (!jinja_is_space(jinja_char(x->s + at, end - at, &bytes)))
                break;
            end = at;
        }
        return end;
    }
    if (sign == '+' || !tag)
        return end;
    size_t at = end;
    while (at > begin && x->s[at - 1] != '\n')
        at--;
    if (at == begin && begin > 0 && x->s[begin - 1] != '\n')
        return end; /* the text does not begin a line */
    return skip_space(x, at) >= end ? at : end;
}

/* Position after the end of a tag or comment at `at`: "-%}", "+%}" or "%}"; 0: none there. */
static size_t pass_end(const lexer *x, size_t at, const char *close) {
    if (at < x->n && (x->s[at] == '-' || x->s[at] == '+') && at_text(x, at + 1, close))
        return x->s[at] == '-' ? skip_space(x, at + 3) : at + 3;
    if (!at_text(x, at, close))
        return 0;
    at += 2;
    return at < x->n && x->s[at] == '\n' ? at + 1 : at;
}

/* Position after "{%- raw" and its end when a raw tag begins at `at`, else 0. `name` is "raw" or
 * "endraw". */
static size_t pass_raw(const lexer *x, size_t at, const char *name) {
    at += 2;
    if (at < x->n && (x->s[at] == '-' || x->s[at] == '+'))
        at++;
    at = skip_space(x, at);
    if (!at_text(x, at, name))
        return 0;
    at = skip_space(x, at + strlen(name));
    if (*name == 'e')
        return pass_end(x, at, "%}");
    if (at_text(x, at, "-%}"))
        return skip_space(x, at + 3);
    return at_text(x, at, "%}") ? at + 2 : 0;
}

static void lex_raw(lexer *x) {
    size_t begin = x->at;
    for (size_t at = begin; at < x->n; at++) {
        const char *brace = memchr(x->s + at, '{', x->n - at);
        if (!brace)
            break;
        at = (size_t)(brace - x->s);
        size_t end = at_text(x, at, "{%") ? pass_raw(x, at, "endraw") : 0;
        if (!end)
            continue;
        size_t stop = strip_end(x, begin, at, x->s[at + 2], true);
        if (stop > begin)
            emit(x, T_TEXT, begin, stop);
        x->at = end;
        return;
    }
    x->at = x->n;
    if (begin < x->n) /* at the end of the template Jinja allows it */
        jinja_refuse(x->p, GQAC_INVALID_MODEL, line_at(x, begin), "a raw tag is never closed");
}

static void lex_comment(lexer *x, size_t begin) {
    for (size_t at = begin; at < x->n; at++) {
        const char *hash = memchr(x->s + at, '#', x->n - at);
        if (!hash)
            break;
        at = (size_t)(hash - x->s);
        if (!at_text(x, at, "#}"))
            continue;
        bool sign = at > begin && (x->s[at - 1] == '-' || x->s[at - 1] == '+');
        x->at = pass_end(x, sign ? at - 1 : at, "#}");
        return;
    }
    x->at = x->n;
    if (begin < x->n) /* at the end of the template Jinja allows it */
        jinja_refuse(x->p, GQAC_INVALID_MODEL, line_at(x, begin), "a comment is never closed");
}

/* ---- string literals ----------------------------------------------------- */

/* The code of an escape with digits at *at; -1 when it is wrong. */
static int32_t escape_code(const char *s, size_t n, size_t *at, int digits, int base) {
    int32_t code = 0;
    int i = 0;
    for (; i < digits && *at < n; i++, (*at)++) {
        int digit = unicode_hex_digit(s[*at]);
        if (digit < 0 || digit >= base)
            break;
        code = code * base + digit;
        if (code > 0x10ffff)
            return -1;
    }
    return (base == 16 && i < digits) || i == 0 || (code >= 0xd800 && code < 0xe000) ? -1 : code;
}

void jinja_unescape(jparser *p, jtoken *token) {
    static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    char *out = jinja_keep(p, token->n + 1);
    size_t n = 0;
    for (size_t i = 0; out && i < token->n;) {
        char c = token->s[i++];
        if (c != '\\' || i == token->n) {
            out[n++] = c;
            continue;
        }
        c = token->s[i++];
        const char *letter = c ? strchr(letters, c) : NULL;
        int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 3;
        bool octal = c >= '0' && c <= '7';
        if (letter) {
            out[n++] = values[letter - letters];
        } else if (octal || c == 'x' || c == 'u' || c == 'U') {
            i -= octal;
            int32_t code = escape_code(token->s, token->n, &i, digits, octal ? 8 : 16);
            if (code < 0) {
                jinja_refuse(p, GQAC_INVALID_MODEL, token->line, "a string has an invalid escape");
                return;
            }
            n += unicode_write(code, out + n);
        } else if (c == 'N') {
            jinja_refuse(p, GQAC_UNSUPPORTED, token->line,
                         "the template uses the escape \\N, which is not supported");
            return;
        } else if (c != '\n') {
            out[n++] = '\\';
            out[n++] = c;
        }
    }
    token->s = out;
    token->n = n;
}

/* ---- inside of tags ------------------------------------------------------ */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_word(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

/* Digits with single underscores between them. */
static size_t pass_digits(const lexer *x, size_t at, const char *digits) {
    size_t begin = at;
    while (at < x->n) {
        if (x->s[at] == '_' && at > begin && at + 1 < x->n && x->s[at + 1] != '_' &&
            strchr(digits, x->s[at + 1]))
            at++;
        if (!x->s[at] || !strchr(digits, x->s[at]))
            break;
        at++;
    }
    return at;
}

/* Copies digits without underscores; false when there are too many. */
static bool plain_number(const lexer *x, size_t begin, size_t end, char *text) {
    size_t n = 0;
    for (size_t i = begin; i < end; i++) {
        if (x->s[i] == '_')
            continue;
        if (n == NUMBER - 1)
            return false;
        text[n++] = x->s[i];
    }
    text[n] = '\0';
    return true;
}

static size_t pass_float(const lexer *x, size_t at) {
    static const char decimal[] = "0123456789";
    if (at > 0 && x->s[at - 1] == '.')
        return 0;
    size_t end = pass_digits(x, at, decimal);
    size_t whole = end;
    if (at_text(x, end, ".") && end + 1 < x->n && is_digit(x->s[end + 1]))
        end = pass_digits(x, end + 1, decimal);
    if (end < x->n && (x->s[end] == 'e' || x->s[end] == 'E')) {
        size_t digits = end + 1;
        if (digits < x->n && (x->s[digits] == '+' || x->s[digits] == '-'))
            digits++;
        if (digits < x->n && is_digit(x->s[digits]))
            return pass_digits(x, digits, decimal);
    }
    return end > whole ? end : 0;
}

static void lex_number(lexer *x) {
    static const struct {
        char letter;
        int base;
        const char *digits;
    } bases[] = {{'x', 16, "0123456789abcdefABCDEF"}, {'o', 8, "01234567"}, {'b', 2, "01"}};
    char text[NUMBER];
    size_t begin = x->at, end = pass_float(x, begin);
    bool real = end > 0;
    int base = 10;
    size_t digits = begin;
    if (!real) {
        end = x->s[begin] == '0' ? pass_digits(x, begin, "0") : pass_digits(x, begin, "0123456789");
        for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
            if (x->s[begin] != '0' || begin + 2 >= x->n ||
                (x->s[begin + 1] | 32) != bases[i].letter || !x->s[begin + 2] ||
                !strchr(bases[i].digits, x->s[begin + 2]))
                continue;
            base = bases[i].base;
            digits = begin + 2;
            end = pass_digits(x, digits, bases[i].digits);
        }
    }
    jtoken *token = emit(x, real ? T_FLOAT : T_INT, begin, end);
    if (!token)
        return;
    x->at = end;
    errno = 0;
    bool fits = plain_number(x, digits, end, text);
    if (fits && real)
        token->f = gqac_strtod(text, NULL);
    else if (fits)
        token->i = strtoll(text, NULL, base);
    if (!fits || (!real && errno))
        jinja_refuse(x->p, GQAC_LIMIT, token->line, "a number has more than 64 bits");
}

static void lex_string(lexer *x) {
    size_t begin = x->at, at = begin + 1;
    char quote = x->s[begin];
    for (; at < x->n && x->s[at] != quote; at++)
        at += x->s[at] == '\\';
    if (at >= x->n) {
        jinja_refuse(x->p, GQAC_INVALID_MODEL, line_at(x, begin), "a string is never closed");
        return;
    }
    jtoken *token = emit(x, T_STR, begin + 1, at);
    x->at = at + 1;
    if (token && memchr(token->s, '\\', token->n))
        jinja_unescape(x->p, token);
}

static bool balance(lexer *x, char c, char *stack, size_t *n) {
    if (c == '(' || c == '[' || c == '{') {
        if (*n == BRACKETS) {
            jinja_refuse(x->p, GQAC_LIMIT, line_at(x, x->at), "more than %d brackets are open",
                         BRACKETS);
            return false;
        }
        stack[(*n)++] = (char)(c == '(' ? ')' : c + 2);
    } else if (c == ')' || c == ']' || c == '}') {
        if (*n == 0 || stack[*n - 1] != c) {
            jinja_refuse(x->p, GQAC_INVALID_MODEL, line_at(x, x->at), "unexpected '%c'", c);
            return false;
        }
        --*n;
    }
    return true;
}

static void lex_op(lexer *x, char *stack, size_t *depth) {
    static const struct {
        char text[3];
        uint8_t op;
    } twos[] = {{"//", JOP_FLOORDIV}, {"**", JOP_POW}, {"==", JOP_EQ},
                {"!=", JOP_NE},       {"<=", JOP_LE},  {">=", JOP_GE}};
    char c = x->s[x->at];
    for (size_t i = 0; i < sizeof twos / sizeof *twos; i++) {
        if (!at_text(x, x->at, twos[i].text))
            continue;
        jtoken *token = emit(x, T_OP, x->at, x->at + 2);
        if (token)
            token->op = twos[i].op;
        x->at += 2;
        return;
    }
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c)) {
        jinja_refuse(x->p, GQAC_INVALID_MODEL, line_at(x, x->at), "unexpected character '%c'", c);
        return;
    }
    if (!balance(x, c, stack, depth))
        return;
    jtoken *token = emit(x, T_OP, x->at, x->at + 1);
    if (token)
        token->op = (uint8_t)c;
    x->at++;
}

/* Position after the end of a tag that lies at x->at; 0: none there. */
static size_t tag_end(const lexer *x, bool print) {
    if (!print)
        return pass_end(x, x->at, "%}");
    if (at_text(x, x->at, "-}}"))
        return skip_space(x, x->at + 3);
    return at_text(x, x->at, "}}") ? x->at + 2 : 0;
}

static void lex_tag(lexer *x, bool print) {
    char stack[BRACKETS];
    size_t depth = 0, end;
    uint32_t line = line_at(x, x->at);
    while (good(x)) {
        x->at = skip_space(x, x->at);
        if (x->at >= x->n) {
            jinja_refuse(x->p, GQAC_INVALID_MODEL, line, "a tag is never closed");
            return;
        }
        if (depth == 0 && (end = tag_end(x, print)) != 0) {
            emit(x, print ? T_PRINT_END : T_TAG_END, x->at, x->at);
            x->at = end;
            return;
        }
        char c = x->s[x->at];
        if (is_digit(c)) {
            lex_number(x);
        } else if (is_word(c)) {
            size_t begin = x->at;
            while (x->at < x->n && is_word(x->s[x->at]))
                x->at++;
            emit(x, T_NAME, begin, x->at);
        } else if (c == '\'' || c == '"') {
            lex_string(x);
        } else {
            lex_op(x, stack, &depth);
        }
    }
}

/* ---- the whole ----------------------------------------------------------- */

/* First "{{", "{%" or "{#" at or after `at`; the length when there is none. */
static size_t next_open(const lexer *x, size_t at) {
    while (at + 1 < x->n) {
        const char *brace = memchr(x->s + at, '{', x->n - 1 - at);
        if (!brace)
            break;
        if (brace[1] == '{' || brace[1] == '%' || brace[1] == '#')
            return (size_t)(brace - x->s);
        at = (size_t)(brace - x->s) + 1;
    }
    return x->n;
}

void jinja_lex(jparser *p) {
    lexer x = {.p = p, .s = p->s, .n = p->n, .line = 1};
    while (good(&x) && x.at < x.n) {
        size_t begin = x.at, open = next_open(&x, begin);
        if (open == x.n) {
            emit(&x, T_TEXT, begin, open);
            break;
        }
        char kind = x.s[open + 1], sign = open + 2 < x.n ? x.s[open + 2] : '\0';
        size_t stop = strip_end(&x, begin, open, sign, kind != '{');
        if (stop > begin)
            emit(&x, T_TEXT, begin, stop);
        size_t inside = open + 2 + (sign == '-' || sign == '+');
        size_t raw = kind == '%' ? pass_raw(&x, open, "raw") : 0;
        x.at = raw ? raw : inside;
        if (raw) {
            lex_raw(&x);
        } else if (kind == '#') {
            lex_comment(&x, inside);
        } else {
            emit(&x, kind == '{' ? T_PRINT : T_TAG, open, open + 2);
            lex_tag(&x, kind == '{');
        }
    }
    emit(&x, T_EOF, x.n, x.n);
}
