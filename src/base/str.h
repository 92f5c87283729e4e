/* A growable text buffer. A failed append sets `failed`, and later appends do nothing, so that
 * callers check once at the end. */
#ifndef GQAC_BASE_STR_H
#define GQAC_BASE_STR_H

#include <locale.h>
#include <stdbool.h>
#include <stddef.h>

#include <gqac/status.h>

typedef struct gqac_str {
    char *text; /* NUL-terminated once anything was appended; NULL before */
    size_t length;
    size_t capacity;
    bool failed;
} gqac_str;

void gqac_str_append(gqac_str *str, const char *text);
void gqac_str_append_n(gqac_str *str, const char *text, size_t length);
void gqac_str_printf(gqac_str *str, const char *fmt, ...) GQAC_PRINTF(2, 3);
void gqac_str_free(gqac_str *str);
/* Between begin and end, this thread reads and writes numbers and dates as in the "C" locale,
 * whatever locale the host program uses. Pairs may be nested. */
locale_t gqac_c_locale_begin(void);
void gqac_c_locale_end(locale_t before);
double gqac_strtod(const char *text, char **end); /* strtod in the "C" locale */
/* Writes the shortest decimal that reads back as the same float ("0.088388346", "1.0", "1e-05",
 * "-inf", "nan") to a buffer of 32 bytes. */
void gqac_format_float(char *buffer, float value);
/* Reads a decimal number. False: the text has something else, or the number is out of range. */
bool gqac_parse_i64(const char *text, long long *out);
bool gqac_parse_float(const char *text, float *out);
bool gqac_utf8_valid(const char *text, size_t length); /* also refuses NUL bytes */
/* Bytes of the well-formed UTF-8 character at the start of `text`; 0: there is none. */
size_t gqac_utf8_char(const char *text, size_t length);

#endif
