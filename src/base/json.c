/* See json.h. */
#include "base/json.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

gqac_json_size gqac_json_measure(const char *text, size_t length) {
    gqac_json_size size = {.values = 1};
    size_t depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < length; i++) {
        const char c = text[i];
        if (quoted) {
            i += c == '\\';
            quoted = c != '"';
            continue;
        }
        const bool opens = c == '[' || c == '{';
        quoted = c == '"';
        size.values += c == ',' || opens;
        depth += opens;
        depth -= depth && (c == ']' || c == '}');
        size.depth = depth > size.depth ? depth : size.depth;
    }
    return size;
}

bool gqac_json_no_memory(const char *said) {
    return !*said;
}

const char *gqac_json_reason(const char *text, size_t length, const char *said) {
    if (length >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        return "it begins with a byte order mark (the bytes EF BB BF); save it as UTF-8 without "
               "BOM";
    return strstr(said, "JSON_ALLOW_NUL") ? "\\u0000 is not allowed in a text" : said;
}

/* The end of the quoted string that begins at `at`. */
static char *skip_text(char *at) {
    for (at++; *at && *at != '"'; at++)
        at += *at == '\\' && at[1];
    return *at ? at + 1 : at;
}

/* Up to 15 digits determine a double, so only denormal numbers have shorter forms than %.15g. */
static void shortest(char *buffer, size_t size, double value) {
    for (int digits = fabs(value) < DBL_MIN ? 1 : DBL_DIG; digits <= DBL_DECIMAL_DIG; digits++) {
        snprintf(buffer, size, "%.*g", digits, value);
        if (strtod(buffer, NULL) == value)
            break;
    }
    if (!strpbrk(buffer, ".e"))
        strcat(buffer, ".0");
}

/* True if the n characters of a number have a fraction or an exponent. */
static bool is_real(const char *at, size_t n) {
    bool found = false;
    for (size_t i = 0; i < n; i++)
        found = found || at[i] == '.' || at[i] == 'e' || at[i] == 'E';
    return found && strchr("-0123456789", *at);
}

void gqac_json_shorten(char *text) {
    const locale_t before = gqac_c_locale_begin();
    char *out = text;
    for (char *at = text, *end; *at; at = end) {
        char number[40] = "";
        size_t n = strspn(at, "+-.0123456789eE");
        end = *at == '"' ? skip_text(at) : at + (n ? n : 1);
        if (is_real(at, n))
            shortest(number, sizeof number, strtod(at, NULL));
        const char *from = *number && strlen(number) < n ? number : at;
        n = from == number ? strlen(number) : (size_t)(end - at);
        memmove(out, from, n);
        out += n;
    }
    *out = 0;
    gqac_c_locale_end(before);
}
