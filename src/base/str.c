/* Text buffers, and numbers as text. Numbers are written and read in the "C" locale, never in that
 * of the host program. */
#include "base/str.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"

/* Grows the capacity to `extra` more bytes and a NUL. */
static bool grow(gqac_str *str, size_t extra) {
    size_t need;
    if (str->failed || !gqac_add_size(str->length, extra, &need) ||
        !gqac_add_size(need, 1, &need)) {
        str->failed = true;
        return false;
    }
    if (need <= str->capacity)
        return true;
    size_t capacity = str->capacity < 32 ? 32 : str->capacity;
    while (capacity < need)
        capacity = capacity > SIZE_MAX / 2 ? need : capacity * 2;
    char *text = gqac_realloc(str->text, capacity);
    if (!text) {
        str->failed = true;
        return false;
    }
    str->text = text;
    str->capacity = capacity;
    return true;
}

void gqac_str_append(gqac_str *str, const char *text) {
    gqac_str_append_n(str, text, strlen(text));
}

void gqac_str_append_n(gqac_str *str, const char *text, size_t length) {
    if (!grow(str, length))
        return;
    if (length)
        memcpy(str->text + str->length, text, length);
    str->length += length;
    str->text[str->length] = '\0';
}

void gqac_str_printf(gqac_str *str, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (length < 0) {
        str->failed = true;
        return;
    }
    if (!grow(str, (size_t)length))
        return;
    va_start(args, fmt);
    vsnprintf(str->text + str->length, (size_t)length + 1, fmt, args);
    va_end(args);
    str->length += (size_t)length;
}

void gqac_str_free(gqac_str *str) {
    gqac_free(str->text);
    *str = (gqac_str){0};
}

/* In the C library this locale is a constant, so this needs no memory; if it fails nevertheless,
 * the thread keeps its own locale. */
locale_t gqac_c_locale_begin(void) {
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

void gqac_c_locale_end(locale_t before) {
    locale_t c = uselocale(before);
    if (c != before)
        freelocale(c);
}

double gqac_strtod(const char *text, char **end) {
    locale_t before = gqac_c_locale_begin();
    const double value = strtod(text, end);
    gqac_c_locale_end(before);
    return value;
}

/* Writes the shortest decimal that reads back as the value ("d.ddde-05"); returns its number of
 * digits. */
static int shortest(char *buffer, size_t size, float value) {
    int digits = 1;
    for (; digits <= 9; digits++) {
        snprintf(buffer, size, "%.*e", digits - 1, (double)value);
        if (strtof(buffer, NULL) == value)
            break;
    }
    return digits;
}

void gqac_format_float(char *buffer, float value) {
    const size_t size = 32;
    if (isnan(value)) {
        memcpy(buffer, "nan", 4);
        return;
    }
    if (isinf(value)) {
        strcpy(buffer, value < 0 ? "-inf" : "inf");
        return;
    }
    locale_t before = gqac_c_locale_begin();
    int digits = shortest(buffer, size, value);
    int exponent = (int)strtol(strchr(buffer, 'e') + 1, NULL, 10);
    if (exponent >= -4 && exponent < 9) {
        /* common magnitudes without an exponent, always with a point: "10000.0", "0.0001" */
        int decimals = digits - 1 - exponent;
        snprintf(buffer, size, "%.*f", decimals < 1 ? 1 : decimals, (double)value);
    }
    gqac_c_locale_end(before);
}

bool gqac_parse_i64(const char *text, long long *out) {
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (digits[0] < '0' || digits[0] > '9')
        return false;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return false;
    *out = value;
    return true;
}

bool gqac_parse_float(const char *text, float *out) {
    const char *body = text[0] == '-' || text[0] == '+' ? text + 1 : text;
    bool word = strcmp(body, "inf") == 0 || strcmp(body, "nan") == 0;
    if (!word && strspn(body, "0123456789.eE+-") != strlen(body))
        return false;
    if (!word && body[0] != '.' && (body[0] < '0' || body[0] > '9'))
        return false;
    locale_t before = gqac_c_locale_begin();
    char *end;
    float value = strtof(text, &end);
    gqac_c_locale_end(before);
    /* a number that is too small rounds to zero; one that is too large has no nearest float */
    if (*end != '\0' || end == text || (!word && isinf(value)))
        return false;
    *out = value;
    return true;
}

size_t gqac_utf8_char(const char *text, size_t length) {
    const unsigned char *s = (const unsigned char *)text;
    if (length == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    size_t n = s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    if (n == 0 || n > length)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    /* overlong forms, surrogates and code points above U+10FFFF */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

bool gqac_utf8_valid(const char *text, size_t length) {
    for (size_t i = 0; i < length;) {
        size_t n = gqac_utf8_char(text + i, length - i);
        if (n == 0 || text[i] == '\0')
            return false;
        i += n;
    }
    return true;
}
