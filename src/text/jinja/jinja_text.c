/* Texts of templates, by code point as in Python, and of at most JINJA_TEXT bytes. If possible a
 * text grows in place when something is appended, so that building one piece by piece takes time in
 * proportion to its length. */
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "text/jinja/jinja_impl.h"

/* ---- characters ---------------------------------------------------------- */

int32_t jinja_char(const char *s, size_t n, size_t *bytes) {
    *bytes = gqac_utf8_char(s, n);
    if (*bytes <= 1) { /* an invalid byte counts as a character */
        *bytes = 1;
        return (unsigned char)*s;
    }
    int32_t c;
    unicode_read(s, *bytes, &c);
    return c;
}

bool jinja_is_space(int32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

bool jinja_printable(int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return c == ' ' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_SO);
}

void jinja_out(jrun *r, gqac_str *out, const char *s, size_t n) {
    if (n == 0 || !jinja_charge_text(r, n))
        return;
    if (n > JINJA_TEXT || out->length - (out == r->out ? r->out_base : 0) > JINJA_TEXT - n) {
        jinja_fail(r, GQAC_LIMIT, "the template makes a string of more than %d MiB",
                   JINJA_TEXT >> 20);
        return;
    }
    gqac_str_append_n(out, s, n);
    if (out->failed)
        r->status = gqac_diag_oom(r->diag, "text of a template");
}

void jinja_out_char(jrun *r, gqac_str *out, int32_t c) {
    char bytes[4];
    jinja_out(r, out, bytes, unicode_write(c, bytes));
}

jvalue jinja_taken(jrun *r, gqac_str *out) {
    jvalue text = jinja_ok(r) ? jinja_copy(r, out->text, out->length) : jinja_undefined;
    gqac_str_free(out);
    return text;
}

size_t jinja_count(jrun *r, jvalue text) {
    size_t n = 0;
    if (!jinja_charge_text(r, text.n))
        return 0;
    for (size_t i = 0; i < text.n; i++)
        n += ((unsigned char)text.s[i] & 0xc0) != 0x80;
    return n;
}

size_t jinja_offset(jrun *r, jvalue text, size_t index) {
    size_t at = 0;
    if (!jinja_charge_text(r, text.n))
        return 0;
    for (; at < text.n; at++)
        if (((unsigned char)text.s[at] & 0xc0) != 0x80 && index-- == 0)
            break;
    return at;
}

size_t jinja_find(const char *s, size_t n, const char *what, size_t m) {
    if (m == 0)
        return 0;
    const char *hit = n >= m ? memmem(s, n, what, m) : NULL;
    return hit ? (size_t)(hit - s) : SIZE_MAX;
}

/* ---- joining ------------------------------------------------------------- */

/* Memory for `n` bytes directly after the text a; NULL unless a can grow there. */
static char *grow_tail(jrun *r, jvalue a, size_t n) {
    for (size_t i = 0; i < sizeof r->tails / sizeof *r->tails; i++) {
        if (a.n == 0 || r->tails[i].end != a.s + a.n || r->tails[i].free < n)
            continue;
        char *end = r->tails[i].end;
        r->tails[i].end += n;
        r->tails[i].free -= n;
        return end;
    }
    return NULL;
}

jvalue jinja_concat(jrun *r, jvalue a, jvalue b) {
    enum { SHORT = 256 };
    if (b.n > JINJA_TEXT - (a.n < JINJA_TEXT ? a.n : JINJA_TEXT))
        return jinja_fail(r, GQAC_LIMIT, "the template makes a string of more than %d MiB",
                          JINJA_TEXT >> 20);
    if (b.n == 0 || !jinja_charge_text(r, b.n))
        return a;
    char *end = grow_tail(r, a, b.n);
    if (end) {
        memcpy(end, b.s, b.n);
        return jinja_view(a.s, a.n + b.n);
    }
    size_t n = a.n + b.n, spare = n < SHORT ? 0 : n;
    char *text = jinja_alloc(r, n + spare + 1, 1);
    if (!text)
        return jinja_undefined;
    memcpy(text, a.s, a.n);
    memcpy(text + a.n, b.s, b.n);
    if (spare) {
        r->tails[r->next_tail].end = text + n;
        r->tails[r->next_tail].free = spare;
        r->next_tail = (r->next_tail + 1) % (sizeof r->tails / sizeof *r->tails);
    }
    return jinja_view(text, n);
}

jvalue jinja_repeat(jrun *r, jvalue text, int64_t times) {
    gqac_str out = {0};
    if (times <= 0 || text.n == 0)
        return jinja_literal("");
    if ((uint64_t)times > JINJA_TEXT / text.n)
        return jinja_fail(r, GQAC_LIMIT, "the template makes a string of more than %d MiB",
                          JINJA_TEXT >> 20);
    for (int64_t i = 0; i < times && jinja_ok(r); i++)
        jinja_out(r, &out, text.s, text.n);
    return jinja_taken(r, &out);
}

/* ---- case ---------------------------------------------------------------- */

/* Characters whose capital is several characters; utf8proc has simple mappings only. */
static const struct {
    int32_t c;
    const char *upper, *title;
} specials[] = {{0xdf, "SS", "Ss"},
                {0x149, "\u02bcN", "\u02bcN"},
                {0x1f0, "J\u030c", "J\u030c"},
                {0x390, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
                {0x3b0, "\u03a5\u0308\u0301", "\u03a5\u0308\u0301"},
                {0x587, "\u0535\u0552", "\u0535\u0582"},
                {0x1e96, "H\u0331", "H\u0331"},
                {0x1e97, "T\u0308", "T\u0308"},
                {0x1e98, "W\u030a", "W\u030a"},
                {0x1e99, "Y\u030a", "Y\u030a"},
                {0x1e9a, "A\u02be", "A\u02be"},
                {0xfb00, "FF", "Ff"},
                {0xfb01, "FI", "Fi"},
                {0xfb02, "FL", "Fl"},
                {0xfb03, "FFI", "Ffi"},
                {0xfb04, "FFL", "Ffl"},
                {0xfb05, "ST", "St"},
                {0xfb06, "ST", "St"}};

static void out_upper(jrun *r, gqac_str *out, int32_t c, bool title) {
    for (size_t i = 0; c > 0x7f && i < sizeof specials / sizeof *specials; i++) {
        if (specials[i].c != c)
            continue;
        const char *text = title ? specials[i].title : specials[i].upper;
        jinja_out(r, out, text, strlen(text));
        return;
    }
    jinja_out_char(r, out, title ? utf8proc_totitle(c) : utf8proc_toupper(c));
}

typedef struct span {
    int32_t first, last;
} span;

/* Unicode's Other_Lowercase and Other_Uppercase: letters with case that have another category.
 */
static const span other_lower[] = {
    {0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},     {0x2c0, 0x2c1},    {0x2e0, 0x2e4},
    {0x345, 0x345},     {0x37a, 0x37a},     {0x1d2c, 0x1d6a},   {0x1d78, 0x1d78},  {0x1d9b, 0x1dbf},
    {0x2071, 0x2071},   {0x207f, 0x207f},   {0x2090, 0x209c},   {0x2170, 0x217f},  {0x24d0, 0x24e9},
    {0x2c7c, 0x2c7d},   {0xa69c, 0xa69d},   {0xa770, 0xa770},   {0xa7f8, 0xa7f9},  {0xab5c, 0xab5f},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}};
static const span other_upper[] = {
    {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};

static bool in_spans(int32_t c, const span *spans, size_t n) {
    for (size_t i = 0; c > 0x7f && i < n && c >= spans[i].first; i++)
        if (c <= spans[i].last)
            return true;
    return false;
}

static bool is_lower(int32_t c) {
    return utf8proc_category(c) == UTF8PROC_CATEGORY_LL ||
           in_spans(c, other_lower, sizeof other_lower / sizeof *other_lower);
}

static bool is_upper(int32_t c) {
    return utf8proc_category(c) == UTF8PROC_CATEGORY_LU ||
           in_spans(c, other_upper, sizeof other_upper / sizeof *other_upper);
}

static bool is_title(int32_t c) {
    return utf8proc_category(c) == UTF8PROC_CATEGORY_LT;
}

static bool cased(int32_t c) {
    return is_lower(c) || is_upper(c) || is_title(c);
}

static bool case_ignorable(int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' ||
           c == ':' || c == 0xb7 || c == 0x2019;
}

/* True when a letter follows in the same word: then a sigma is not a final one. */
static bool word_goes_on(jvalue text, size_t at) {
    for (size_t bytes, end = at + 64; at < text.n && at < end; at += bytes) {
        int32_t c = jinja_char(text.s + at, text.n - at, &bytes);
        if (!case_ignorable(c))
            return cased(c);
    }
    return false;
}

static void out_lower(jrun *r, gqac_str *out, int32_t c, bool in_word, jvalue text, size_t next) {
    if (c == 0x130)
        jinja_out(r, out, "i\u0307", 3);
    else if (c == 0x3a3 && in_word && !word_goes_on(text, next))
        jinja_out_char(r, out, 0x3c2);
    else
        jinja_out_char(r, out, utf8proc_tolower(c));
}

jvalue jinja_upper(jrun *r, jvalue text) {
    gqac_str out = {0};
    for (size_t at = 0, bytes; at < text.n && jinja_ok(r); at += bytes)
        out_upper(r, &out, jinja_char(text.s + at, text.n - at, &bytes), false);
    return jinja_taken(r, &out);
}

jvalue jinja_lower(jrun *r, jvalue text) {
    gqac_str out = {0};
    bool in_word = false;
    for (size_t at = 0, bytes; at < text.n && jinja_ok(r); at += bytes) {
        int32_t c = jinja_char(text.s + at, text.n - at, &bytes);
        out_lower(r, &out, c, in_word, text, at + bytes);
        in_word = case_ignorable(c) ? in_word : cased(c);
    }
    return jinja_taken(r, &out);
}

jvalue jinja_capitalize(jrun *r, jvalue text, bool words) {
    gqac_str out = {0};
    bool in_word = false;
    for (size_t at = 0, bytes; at < text.n && jinja_ok(r); at += bytes) {
        int32_t c = jinja_char(text.s + at, text.n - at, &bytes);
        if (words ? in_word : at > 0)
            out_lower(r, &out, c, in_word, text, at + bytes);
        else
            out_upper(r, &out, c, true);
        in_word = !words && case_ignorable(c) ? in_word : cased(c);
    }
    return jinja_taken(r, &out);
}

jvalue jinja_swapcase(jrun *r, jvalue text) {
    gqac_str out = {0};
    bool in_word = false;
    for (size_t at = 0, bytes; at < text.n && jinja_ok(r); at += bytes) {
        int32_t c = jinja_char(text.s + at, text.n - at, &bytes);
        if (is_upper(c))
            out_lower(r, &out, c, in_word, text, at + bytes);
        else if (is_lower(c))
            out_upper(r, &out, c, false);
        else
            jinja_out(r, &out, text.s + at, bytes);
        in_word = case_ignorable(c) ? in_word : cased(c);
    }
    return jinja_taken(r, &out);
}

/* ---- what a text is ------------------------------------------------------ */

static bool digit_like(int32_t c) {
    return c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
           (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}

static bool char_is(int32_t c, const char *what) {
    utf8proc_category_t k = utf8proc_category(c);
    bool letter = k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
    bool decimal = k == UTF8PROC_CATEGORY_ND;
    bool numeric = k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
    if (!strcmp(what, "isspace"))
        return jinja_is_space(c);
    if (!strcmp(what, "isalpha"))
        return letter;
    if (!strcmp(what, "isalnum"))
        return letter || numeric;
    if (!strcmp(what, "isdecimal"))
        return decimal;
    if (!strcmp(what, "isdigit"))
        return decimal || digit_like(c);
    if (!strcmp(what, "isnumeric"))
        return numeric;
    if (!strcmp(what, "isprintable"))
        return jinja_printable(c);
    return c < 0x80; /* isascii */
}

/* istitle, islower and isupper look at letters with case only. */
static bool case_is(jvalue text, const char *what) {
    bool any = false, in_word = false;
    for (size_t at = 0, bytes; at < text.n; at += bytes) {
        int32_t c = jinja_char(text.s + at, text.n - at, &bytes);
        const bool upper = is_upper(c) || is_title(c), lower = is_lower(c);
        if (what[2] == 't' ? (upper && in_word) || (lower && !in_word)
                           : (what[2] == 'u' ? lower || is_title(c) : upper))
            return false;
        any = any || upper || lower;
        in_word = upper || lower;
    }
    return any;
}

bool jinja_is(jvalue text, const char *what) {
    if (what[2] == 't' || what[2] == 'l' || what[2] == 'u')
        return case_is(text, what);
    for (size_t at = 0, bytes; at < text.n; at += bytes)
        if (!char_is(jinja_char(text.s + at, text.n - at, &bytes), what))
            return false;
    return text.n > 0 || !strcmp(what, "isprintable") || !strcmp(what, "isascii");
}

/* ---- cutting ------------------------------------------------------------- */

static bool strips(const char *s, size_t bytes, jvalue chars) {
    size_t n;
    if (chars.type != J_STR)
        return jinja_is_space(jinja_char(s, bytes, &n));
    return bytes && jinja_find(chars.s, chars.n, s, bytes) != SIZE_MAX;
}

jvalue jinja_strip(jrun *r, jvalue text, jvalue chars, bool left, bool right) {
    size_t begin = 0, end = text.n, bytes;
    if (chars.type != J_STR && chars.type != J_NONE && chars.type != J_MISSING)
        return jinja_fail(r, GQAC_INVALID_INPUT, "strip takes a string, not a value of type %s",
                          jinja_type(chars));
    size_t cost = 1 + (chars.type == J_STR ? chars.n / 16 : 0);
    while (left && begin < end) {
        jinja_char(text.s + begin, end - begin, &bytes);
        if (!jinja_charge(r, cost) || !strips(text.s + begin, bytes, chars))
            break;
        begin += bytes;
    }
    while (right && end > begin) {
        size_t at = unicode_before(text.s, begin, end);
        if (!jinja_charge(r, cost) || !strips(text.s + at, end - at, chars))
            break;
        end = at;
    }
    return jinja_view(text.s + begin, end - begin);
}

jvalue jinja_replace(jrun *r, jvalue text, jvalue old, jvalue by, int64_t count) {
    gqac_str out = {0};
    size_t at = 0, bytes;
    count = count < 0 ? -1 : count; /* all of them */
    for (; count != 0 && jinja_charge_text(r, old.n); count--) {
        size_t hit = jinja_find(text.s + at, text.n - at, old.s, old.n);
        if (hit == SIZE_MAX)
            break;
        jinja_out(r, &out, text.s + at, hit);
        jinja_out(r, &out, by.s, by.n);
        at += hit + old.n;
        if (old.n)
            continue;
        if (at == text.n) /* an empty text is found before each character and at the end */
            break;
        jinja_char(text.s + at, text.n - at, &bytes);
        jinja_out(r, &out, text.s + at, bytes);
        at += bytes;
    }
    jinja_out(r, &out, text.s + at, text.n - at);
    return jinja_taken(r, &out);
}

jvalue jinja_escape(jrun *r, jvalue text) {
    static const char special[] = "&<>'\"";
    static const char *const by[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    gqac_str out = {0};
    for (size_t at = 0; at < text.n && jinja_ok(r); at++) {
        const char *c = text.s[at] ? strchr(special, text.s[at]) : NULL;
        if (c)
            jinja_out(r, &out, by[c - special], strlen(by[c - special]));
        else
            jinja_out(r, &out, text.s + at, 1);
    }
    jvalue escaped = jinja_taken(r, &out);
    escaped.flag = escaped.type == J_STR;
    return escaped;
}

jvalue jinja_lines(jrun *r, jvalue text, bool keep) {
    jvalue lines = jinja_dict(r, J_DICT, 4); /* its values grow */
    size_t begin = 0, bytes;
    for (size_t at = 0; at < text.n && jinja_ok(r);) {
        int32_t c = jinja_char(text.s + at, text.n - at, &bytes);
        size_t end = at;
        at += bytes;
        if (!((c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
              c == 0x2029))
            continue;
        if (c == '\r' && at < text.n && text.s[at] == '\n')
            at++;
        if (!jinja_charge_text(r, at - begin))
            break;
        jinja_append(r, lines.dict, jinja_none,
                     jinja_view(text.s + begin, (keep ? at : end) - begin));
        begin = at;
    }
    if (jinja_ok(r) && begin < text.n)
        jinja_append(r, lines.dict, jinja_none, jinja_view(text.s + begin, text.n - begin));
    if (!jinja_ok(r))
        return jinja_undefined;
    return jinja_elements(r, (jvalue){.type = J_VIEW, .n = JVIEW_VALUES, .dict = lines.dict});
}
