/* Filling a gqac_diag.
 *
 * Texts contain names from untrusted files and are shown on terminals and in logs. So a control
 * character other than a tab or the end of a line, or a byte that is not UTF-8, becomes '?', and a
 * text that does not fit ends in "..." after a whole character. */
#include "base/diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

/* Cleans a text that vsnprintf wrote; `cut`: it did not fit in `size` bytes. */
static void clean(char *text, size_t size, bool lines, bool cut) {
    size_t length = strlen(text);
    size_t space = cut && size > 4 ? size - 4 : length;
    size_t i = 0;
    while (i < length) {
        size_t n = gqac_utf8_char(text + i, length - i);
        unsigned char c = (unsigned char)text[i];
        const bool high = n == 2 && c == 0xc2 && (unsigned char)text[i + 1] < 0xa0; /* U+0080 on */
        if (n == 0 || high ||
            (n == 1 && ((c < 0x20 && (c != '\n' || !lines) && c != '\t') || c == 0x7f))) {
            text[i] = '?';
            n = 1;
        }
        if (i + n > space)
            break;
        i += n;
    }
    if (cut && size > 4)
        memcpy(text + i, "...", 4);
}

void gqac_clean_vprintf(char *text, size_t size, bool lines, const char *fmt, va_list args) {
    int length = vsnprintf(text, size, fmt, args);
    if (length < 0)
        text[0] = '\0';
    clean(text, size, lines, length >= 0 && (size_t)length >= size);
}

/* Fills an array with the arguments after `fmt` of the function that this stands in. */
#define FILL(text, fmt)                                                                            \
    do {                                                                                           \
        va_list args_;                                                                             \
        va_start(args_, fmt);                                                                      \
        gqac_clean_vprintf((text), sizeof(text), true, fmt, args_);                                \
        va_end(args_);                                                                             \
    } while (0)

gqac_status gqac_diag_set(gqac_diag *diag, gqac_status status, const char *fmt, ...) {
    if (!diag)
        return status;
    diag->status = status;
    diag->index = -1;
    diag->where[0] = diag->rule[0] = diag->hint[0] = '\0';
    FILL(diag->what, fmt);
    return status;
}

void gqac_diag_where(gqac_diag *diag, const char *fmt, ...) {
    if (!diag)
        return;
    char inner[sizeof diag->where];
    memcpy(inner, diag->where, sizeof inner);
    FILL(diag->where, fmt);
    if (inner[0] == '\0')
        return;
    size_t used = strlen(diag->where);
    size_t space = sizeof diag->where - used;
    int length = snprintf(diag->where + used, space, ", %s", inner);
    clean(diag->where, sizeof diag->where, true, length >= 0 && (size_t)length >= space);
}

void gqac_diag_rule(gqac_diag *diag, const char *fmt, ...) {
    if (diag)
        FILL(diag->rule, fmt);
}

void gqac_diag_hint(gqac_diag *diag, const char *fmt, ...) {
    if (diag)
        FILL(diag->hint, fmt);
}

gqac_status gqac_diag_oom(gqac_diag *diag, const char *purpose) {
    gqac_diag_set(diag, GQAC_NO_MEMORY, "out of memory for %s", purpose);
    gqac_diag_hint(diag, "free memory, or use a smaller model, context or batch");
    return GQAC_NO_MEMORY;
}

const char *gqac_errno_text(int error) {
    const char *text = strerrordesc_np(error);
    return text ? text : "an error without a name";
}
