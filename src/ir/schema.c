/* Parsing a schema's list of inputs or outputs: "query key? value? rest*".
 *
 * Names are separated by blanks. The mark after a name means optional (?), any number (*) or at
 * least one (+); an entry with one of the last two ends the list. */
#include "ir/impl.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The next entry: its name's length, and its mark or 0. False at the end. */
static bool next_entry(const char **list, const char **name, size_t *length, char *mark) {
    const char *at = *list + strspn(*list, " ");
    size_t n = strcspn(at, " ");
    if (n == 0)
        return false;
    *name = at;
    *list = at + n;
    *mark = strchr("?*+", at[n - 1]) ? at[n - 1] : '\0';
    *length = *mark ? n - 1 : n;
    return true;
}

void ir_schema_arity(const char *list, int *least, int *most) {
    const char *name;
    size_t length;
    char mark;
    *least = *most = 0;
    while (list && next_entry(&list, &name, &length, &mark)) {
        if (*most < INT_MAX)
            ++*most;
        if (!mark || mark == '+')
            *least = *most;
        if (mark == '*' || mark == '+')
            *most = INT_MAX;
    }
}

ir_arity ir_schema_kind(const char *list, int index) {
    const char *name;
    size_t length;
    char mark = '\0';
    for (int i = 0; list && next_entry(&list, &name, &length, &mark); i++)
        if (i == index || mark == '*' || mark == '+')
            return mark == '?' ? IR_OPTIONAL : mark ? IR_VARIADIC : IR_REQUIRED;
    return IR_NONE;
}

void ir_schema_name(const char *list, int index, char *name, size_t size) {
    const char *at;
    size_t length;
    char mark;
    for (int i = 0; list && next_entry(&list, &at, &length, &mark); i++) {
        if (mark == '*' || mark == '+') {
            snprintf(name, size, "%.*s[%d]", (int)length, at, index - i);
            return;
        }
        if (i == index) {
            snprintf(name, size, "%.*s", (int)length, at);
            return;
        }
    }
    snprintf(name, size, "#%d", index);
}

int ir_schema_index(const char *list, const char *name) {
    const char *at;
    size_t length;
    char mark;
    for (int i = 0; list && next_entry(&list, &at, &length, &mark); i++)
        if (strlen(name) == length && strncmp(at, name, length) == 0)
            return i;
    return -1;
}
