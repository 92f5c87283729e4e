/* Texts for messages. Those from files are made safe for a terminal: control characters, which
 * could be terminal commands, and bytes that are not UTF-8 are printed like \x1b, a newline as \n.
 */
#include "cli/cli.h"

#include <string.h>

/* Number of bytes of the UTF-8 character; 0: it is not valid UTF-8, or a control character. */
static size_t plain(const unsigned char *at) {
    const size_t more = at[0] < 0xc2   ? 0
                        : at[0] < 0xe0 ? 1
                        : at[0] < 0xf0 ? 2
                        : at[0] < 0xf5 ? 3
                                       : 0;
    if (at[0] < 0x80 || !more)
        return at[0] >= 0x20 && at[0] < 0x7f;
    for (size_t i = 1; i <= more; i++)
        if (at[i] >> 6 != 2)
            return 0;
    return at[0] == 0xc2 && at[1] < 0xa0 ? 0 : more + 1;
}

cli_text cli_shown(const char *text) {
    cli_text to;
    size_t n = 0;
    for (const char *at = text ? text : ""; *at;) {
        const unsigned char c = (unsigned char)*at;
        const size_t bytes = plain((const unsigned char *)at), left = sizeof to.s - n;
        if (left < sizeof "\\x1b..." || left < bytes + sizeof "...") {
            memcpy(to.s + n, "...", 3);
            n += 3;
            break;
        }
        if (bytes)
            memcpy(to.s + n, at, bytes), n += bytes;
        else
            n += (size_t)snprintf(to.s + n, left, c == '\n' ? "\\n" : "\\x%02x", c);
        at += bytes ? bytes : 1;
    }
    to.s[n] = '\0';
    return to;
}

cli_text cli_bracketed(int n, const int64_t *numbers) {
    cli_text to;
    size_t at = (size_t)snprintf(to.s, sizeof to.s, "[");
    for (int i = 0; i < n && at < sizeof to.s; i++)
        at += (size_t)snprintf(to.s + at, sizeof to.s - at, "%s%lld", i ? "," : "",
                               (long long)numbers[i]);
    if (at < sizeof to.s)
        snprintf(to.s + at, sizeof to.s - at, "]");
    return to;
}
