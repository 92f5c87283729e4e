/* Properties of characters from utf8proc (Unicode 14 with utf8proc 2.8): categories, spaces, word
 * characters, normal forms, lower case. utf8proc takes quadratic time to sort long runs of
 * combining marks, so they are sorted here. None of the functions used allocates. Hugging Face's
 * tokenizers 0.23.3 have a later version of Unicode: about 10300 code points, most of them
 * ideographs and letters of rare scripts, are unassigned here, so a text with them may be split
 * differently. Apart from these only U+1171E differs (Mn here, Mc there), which is a mark in
 * both. */
#include "text/unicode.h"

#include <stdint.h>
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"

/* ---- categories ---------------------------------------------------------- */

/* By utf8proc_category_t; the order is part of its interface. */
static const struct category {
    char shorthand[3];
    const char *name; /* lower case, without separators */
} categories[] = {
    {"cn", "unassigned"},
    {"lu", "uppercaseletter"},
    {"ll", "lowercaseletter"},
    {"lt", "titlecaseletter"},
    {"lm", "modifierletter"},
    {"lo", "otherletter"},
    {"mn", "nonspacingmark"},
    {"mc", "spacingmark"},
    {"me", "enclosingmark"},
    {"nd", "decimalnumber"},
    {"nl", "letternumber"},
    {"no", "othernumber"},
    {"pc", "connectorpunctuation"},
    {"pd", "dashpunctuation"},
    {"ps", "openpunctuation"},
    {"pe", "closepunctuation"},
    {"pi", "initialpunctuation"},
    {"pf", "finalpunctuation"},
    {"po", "otherpunctuation"},
    {"sm", "mathsymbol"},
    {"sc", "currencysymbol"},
    {"sk", "modifiersymbol"},
    {"so", "othersymbol"},
    {"zs", "spaceseparator"},
    {"zl", "lineseparator"},
    {"zp", "paragraphseparator"},
    {"cc", "control"},
    {"cf", "format"},
    {"cs", "surrogate"},
    {"co", "privateuse"},
};
enum { N_CATEGORIES = sizeof categories / sizeof *categories };

static const struct major {
    char letter;
    const char *name;
} majors[] = {
    {'l', "letter"}, {'m', "mark"},      {'n', "number"}, {'p', "punctuation"},
    {'s', "symbol"}, {'z', "separator"}, {'c', "other"},
};

#define BIT(category) (UINT32_C(1) << (category))
#define CASED         (BIT(UTF8PROC_CATEGORY_LU) | BIT(UTF8PROC_CATEGORY_LL) | BIT(UTF8PROC_CATEGORY_LT))

static uint32_t major_mask(char letter) {
    uint32_t mask = 0;
    for (int i = 0; i < N_CATEGORIES; i++)
        if (categories[i].shorthand[0] == letter)
            mask |= BIT(i);
    return mask;
}

bool unicode_category(const char *name, size_t length, uint32_t *mask) {
    char plain[24]; /* names are compared without case, blanks, '-' and '_' (UAX 44, LM3) */
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        char c = name[i];
        if (c == ' ' || c == '-' || c == '_')
            continue;
        if (n + 1 >= sizeof plain)
            return false;
        if (c == '\0')
            return false;
        plain[n++] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    plain[n] = '\0';
    for (int i = 0; i < N_CATEGORIES; i++)
        if (!strcmp(plain, categories[i].shorthand) || !strcmp(plain, categories[i].name)) {
            *mask = BIT(i);
            return true;
        }
    for (size_t i = 0; i < sizeof majors / sizeof *majors; i++)
        if ((n == 1 && plain[0] == majors[i].letter) || !strcmp(plain, majors[i].name)) {
            *mask = major_mask(majors[i].letter);
            return true;
        }
    if (strcmp(plain, "lc") != 0 && strcmp(plain, "casedletter") != 0)
        return false;
    *mask = CASED;
    return true;
}

bool unicode_is(int32_t codepoint, uint32_t mask) {
    return (mask & BIT(utf8proc_category(codepoint))) != 0;
}

bool unicode_is_space(int32_t c) {
    return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

bool unicode_is_word(int32_t c) {
    utf8proc_category_t category = utf8proc_category(c);
    if ((category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
        category == UTF8PROC_CATEGORY_PC)
        return true;
    /* symbols that are Alphabetic: letters in circles and squares */
    return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
           (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

/* ---- texts --------------------------------------------------------------- */

size_t unicode_read(const char *text, size_t length, int32_t *codepoint) {
    const unsigned char *s = (const unsigned char *)text;
    size_t n = s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n > length) { /* impossible in valid UTF-8 */
        *codepoint = 0xfffd;
        return length;
    }
    int32_t c = n == 1 ? s[0] : s[0] & (0xff >> (n + 1));
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (s[i] & 0x3f);
    *codepoint = c;
    return n;
}

size_t unicode_write(int32_t c, char out[4]) {
    if (c < 0 || c > 0x10ffff)
        return 0;
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(n == 1 ? c : c | (int32_t)(0xf00 >> n & 0xff));
    return n;
}

size_t unicode_before(const char *text, size_t begin, size_t end) {
    do
        end--;
    while (end > begin && ((unsigned char)text[end] & 0xc0) == 0x80);
    return end;
}

size_t unicode_cluster(const char *text, size_t length) {
    utf8proc_int32_t state = 0;
    int32_t before, c;
    size_t end = unicode_read(text, length, &before);
    while (end < length) {
        const size_t bytes = unicode_read(text + end, length - end, &c);
        if (utf8proc_grapheme_break_stateful(before, c, &state))
            break;
        before = c;
        end += bytes;
    }
    return end;
}

int unicode_hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static void append(gqac_str *out, int32_t codepoint) {
    char bytes[4];
    gqac_str_append_n(out, bytes, unicode_write(codepoint, bytes));
}

static bool is_ascii(const char *text, size_t length) {
    unsigned char all = 0;
    for (size_t i = 0; i < length; i++)
        all |= (unsigned char)text[i];
    return all < 0x80;
}

gqac_status unicode_lower(const char *text, size_t length, gqac_str *out, gqac_diag *diag) {
    for (size_t i = 0; i < length;) {
        int32_t c;
        i += unicode_read(text + i, length - i, &c);
        if (c == 0x130) /* the only one whose lower case is two characters */
            gqac_str_append(out, "i\xcc\x87");
        else
            append(out, utf8proc_tolower(c));
    }
    return out->failed ? gqac_diag_oom(diag, "a text in lower case") : GQAC_OK;
}

/* ---- normal forms -------------------------------------------------------- */

typedef struct points {
    int32_t *at;
    size_t n, capacity;
} points;

enum { DECOMPOSED = 32 }; /* no character becomes more than 18 */

static bool reserve(points *list) {
    return gqac_reserve(&list->at, list->n + DECOMPOSED, &list->capacity, sizeof *list->at);
}

static unsigned combining(int32_t codepoint) {
    return (unsigned)utf8proc_get_property(codepoint)->combining_class & 0xff;
}

/* Stops when there are more than `most`. */
static bool decompose(const char *text, size_t length, utf8proc_option_t options, size_t most,
                      points *list) {
    for (size_t i = 0; i < length && list->n <= most;) {
        int32_t c;
        i += unicode_read(text + i, length - i, &c);
        if (!reserve(list))
            return false;
        int boundary = 0;
        utf8proc_ssize_t n =
            utf8proc_decompose_char(c, list->at + list->n, DECOMPOSED, options, &boundary);
        if (n < 0 || n > DECOMPOSED) { /* not a character to utf8proc: as it is */
            list->at[list->n] = c;
            n = 1;
        }
        list->n += (size_t)n;
    }
    return true;
}

/* Sorts n marks by combining class, equal ones in their order; `spare` can hold n. */
static void sort_marks(int32_t *marks, size_t n, int32_t *spare) {
    size_t first[257] = {0};
    for (size_t i = 0; i < n; i++)
        first[combining(marks[i]) + 1]++;
    for (int i = 0; i < 256; i++)
        first[i + 1] += first[i];
    for (size_t i = 0; i < n; i++)
        spare[first[combining(marks[i])]++] = marks[i];
    memcpy(marks, spare, n * sizeof *marks);
}

static bool sort_all(points *list) {
    int32_t *spare = NULL;
    for (size_t i = 0, end; i < list->n; i = end + 1) {
        bool sorted = true;
        for (end = i; end < list->n && combining(list->at[end]); end++)
            if (end > i && combining(list->at[end]) < combining(list->at[end - 1]))
                sorted = false;
        if (sorted)
            continue;
        if (!spare && !(spare = gqac_alloc(list->n * sizeof *spare)))
            return false;
        sort_marks(list->at + i, end - i, spare);
    }
    gqac_free(spare);
    return true;
}

gqac_status unicode_normalise(unicode_form form, const char *text, size_t length, size_t most,
                              gqac_str *out, gqac_diag *diag) {
    static const char purpose[] = "a normalised text";
    if (is_ascii(text, length)) { /* the same in every form */
        gqac_str_append_n(out, text, length);
        return out->failed ? gqac_diag_oom(diag, purpose) : GQAC_OK;
    }
    bool compatible = form == UNICODE_NFKC || form == UNICODE_NFKD;
    bool composed = form == UNICODE_NFC || form == UNICODE_NFKC;
    points list = {0};
    int options = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0);
    if (!decompose(text, length, (utf8proc_option_t)options, most, &list) || !sort_all(&list)) {
        gqac_free(list.at);
        return gqac_diag_oom(diag, purpose);
    }
    if (list.n > most) {
        gqac_free(list.at);
        GQAC_FAIL(diag, GQAC_LIMIT, "the text becomes longer than %zu characters", most);
    }
    if (composed)
        list.n = (size_t)utf8proc_normalize_utf32(
            list.at, (utf8proc_ssize_t)list.n,
            (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    for (size_t i = 0; i < list.n; i++)
        append(out, list.at[i]);
    gqac_free(list.at);
    return out->failed ? gqac_diag_oom(diag, purpose) : GQAC_OK;
}
