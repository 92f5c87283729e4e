/* See json.h. */
#include "base/json.h"

#include <stdbool.h>
#include <string.h>

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

const char *gqac_json_reason(const char *text, size_t length, const char *said) {
    if (length >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        return "it begins with a byte order mark (the bytes EF BB BF); save it as UTF-8 without "
               "BOM";
    return strstr(said, "JSON_ALLOW_NUL") ? "\\u0000 is not allowed in a text" : said;
}
