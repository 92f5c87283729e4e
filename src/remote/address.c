/* Addresses: SCHEME://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]. */
#include <stdlib.h>
#include <string.h>

#include "remote/remote_impl.h"

/* Copies n characters in which %XX stands for a byte. */
static bool copy_decoded(char *to, size_t size, const char *from, size_t n) {
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        char c = from[i];
        if (c == '%') {
            const bool whole = i + 2 < n;
            const char digits[3] = {whole ? from[i + 1] : 'x', whole ? from[i + 2] : 'x', '\0'};
            char *end = NULL;
            c = (char)strtol(digits, &end, 16);
            if (strspn(digits, "0123456789abcdefABCDEF") != 2 || *end || !c)
                return false;
            i += 2;
        }
        if (length + 1 >= size)
            return false;
        to[length++] = c;
    }
    to[length] = '\0';
    return true;
}

static bool copy_plain(char *to, size_t size, const char *from, size_t n) {
    if (n + 1 > size)
        return false;
    memcpy(to, from, n);
    to[n] = '\0';
    return true;
}

/* Digits alone, up to `most`. */
static bool read_number(const char *text, size_t n, long most, long *value) {
    char digits[8];
    if (!n || !copy_plain(digits, sizeof digits, text, n) ||
        strspn(digits, "0123456789") != strlen(digits))
        return false;
    *value = strtol(digits, NULL, 10);
    return *value <= most;
}

static bool read_user(const char *text, size_t n, address *out) {
    const char *colon = memchr(text, ':', n);
    if (!colon)
        return false;
    const size_t user = (size_t)(colon - text);
    return copy_decoded(out->user, sizeof out->user, text, user) &&
           copy_decoded(out->password, sizeof out->password, colon + 1, n - user - 1) &&
           *out->password;
}

/* HOST[:PORT], or [HOST][:PORT] for IPv6. */
static bool read_host(const char *text, size_t n, address *out) {
    const bool bracket = n && *text == '[';
    const char *end = memchr(text, bracket ? ']' : ':', n);
    const size_t host = end ? (size_t)(end - text) : n;
    long port = 6379;
    if (bracket && (!end || !copy_plain(out->host, sizeof out->host, text + 1, host - 1)))
        return false;
    if (!bracket && !copy_plain(out->host, sizeof out->host, text, host))
        return false;
    size_t at = host + bracket;
    if (at < n && (text[at] != ':' || !read_number(text + at + 1, n - at - 1, 65535, &port)))
        return false;
    if (!*out->host || port < 1)
        return false;
    char digits[8];
    size_t length = sizeof digits;
    for (; port; port /= 10)
        digits[--length] = (char)('0' + port % 10);
    return copy_plain(out->port, sizeof out->port, digits + length, sizeof digits - length);
}

bool address_read(const char *text, address *out) {
    static const struct scheme {
        const char *name;
        bool tls;
    } schemes[] = {
        {"redis://", false}, {"valkey://", false}, {"rediss://", true}, {"valkeys://", true}};
    long database = 0;
    *out = (address){.database = 0};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        const size_t n = strlen(schemes[i].name);
        if (strncmp(text, schemes[i].name, n) != 0)
            continue;
        out->tls = schemes[i].tls;
        const char *rest = text + n, *slash = strchr(rest, '/');
        const size_t length = slash ? (size_t)(slash - rest) : strlen(rest);
        const char *at = memchr(rest, '@', length);
        const size_t user = at ? (size_t)(at - rest) : 0;
        if (at && !read_user(rest, user, out))
            return false;
        if (slash && slash[1] && !read_number(slash + 1, strlen(slash + 1), 100000, &database))
            return false;
        out->database = (int)database;
        const size_t host = at ? user + 1 : 0;
        return read_host(rest + host, length - host, out);
    }
    return false;
}
