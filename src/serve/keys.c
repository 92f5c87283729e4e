/* See keys.h. */
#include "serve/keys.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"

enum { LENGTH = 256, TENANT = 64, KEYS = 1000, LINE = 1024 };

typedef struct entry {
    unsigned char key[LENGTH]; /* zeros after its end */
    char tenant[LENGTH];
} entry;

struct keys {
    int n;
    entry list[KEYS];
};

static gqac_status fail(gqac_diag *diag, gqac_status status, const char *path, int line,
                        const char *why) {
    memset(diag, 0, sizeof *diag);
    diag->status = status;
    diag->index = -1;
    snprintf(diag->what, sizeof diag->what, "%s", why);
    snprintf(diag->where, sizeof diag->where, "%s", path);
    if (line)
        snprintf(diag->where, sizeof diag->where, "%s, line %d", path, line);
    snprintf(diag->rule, sizeof diag->rule,
             "each line is KEY or TENANT KEY; a key has at most %d visible ASCII characters, a "
             "tenant %d",
             LENGTH - 1, TENANT);
    return status;
}

static bool is_visible(const char *word) {
    for (; *word; word++)
        if (*word <= ' ' || *word > '~')
            return false;
    return true;
}

/* True if an entry before the last has its key, but another tenant. */
static bool is_of_two(const keys *k) {
    const entry *last = &k->list[k->n - 1];
    for (const entry *e = k->list; e < last; e++)
        if (!memcmp(e->key, last->key, LENGTH) && strcmp(e->tenant, last->tenant) != 0)
            return true;
    return false;
}

/* Adds the key of a line; an empty line has none. NULL, or what is wrong. */
static const char *add(keys *k, char *line) {
    char *rest = NULL, *first = strtok_r(line, " \t\r\n", &rest);
    char *second = strtok_r(NULL, " \t\r\n", &rest);
    const char *key = second ? second : first;
    if (!first || *first == '#')
        return NULL;
    if (strtok_r(NULL, " \t\r\n", &rest))
        return "a line has more than two words";
    if (strlen(key) >= LENGTH || (second && strlen(first) > TENANT))
        return "a key or a tenant is too long";
    if (!is_visible(key) || !is_visible(first))
        return "a key or a tenant has a character that is not visible ASCII";
    if (k->n == KEYS)
        return "the file has too many keys";
    entry *e = &k->list[k->n++];
    memcpy(e->key, key, strlen(key));
    snprintf(e->tenant, sizeof e->tenant, "%s", first);
    return is_of_two(k) ? "the key belongs to another tenant already" : NULL;
}

/* Reads a line without its end. NULL, or what is wrong. */
static const char *read_line(FILE *file, char line[LINE]) {
    size_t n = 0;
    for (int c = getc(file); c != EOF && c != '\n'; c = getc(file)) {
        if (!c)
            return "a line has a NUL; the file must be ASCII text";
        if (n + 1 == LINE)
            return "a line is too long";
        line[n++] = (char)c;
    }
    line[n] = '\0';
    return NULL;
}

gqac_status keys_read(const char *path, keys **out, gqac_diag *diag) {
    char line[LINE] = "";
    const char *why = NULL;
    int n = 0;
    *out = NULL;
    FILE *file = fopen(path, "re");
    keys *k = calloc(1, sizeof *k);
    if (!file || !k) {
        why = file ? "out of memory" : gqac_errno_text(errno);
        const gqac_status status = file ? GQAC_NO_MEMORY : GQAC_IO;
        if (file)
            (void)fclose(file);
        free(k);
        return fail(diag, status, path, 0, why);
    }
    while (!why && !feof(file) && !ferror(file)) {
        n++;
        why = read_line(file, line);
        if (!why)
            why = add(k, line);
    }
    gqac_status status = GQAC_INVALID_INPUT;
    if (ferror(file)) {
        status = GQAC_IO;
        why = gqac_errno_text(errno);
        n = 0;
    } else if (!why && !k->n) {
        why = "the file has no key";
        n = 0;
    }
    (void)fclose(file);
    explicit_bzero(line, sizeof line);
    if (why) {
        keys_free(k);
        return fail(diag, status, path, n, why);
    }
    *out = k;
    return GQAC_OK;
}

void keys_free(keys *k) {
    if (k)
        explicit_bzero(k, sizeof *k);
    free(k);
}

int keys_count(const keys *k) {
    return k ? k->n : 0;
}

const char *keys_tenant(const keys *k, const char *key) {
    unsigned char given[LENGTH] = {0};
    const size_t length = strnlen(key, LENGTH);
    int found = -1;
    memcpy(given, key, length < LENGTH ? length : 0); /* a longer one equals none */
    for (int i = 0; i < k->n; i++) {
        unsigned differing = 0;
        for (int at = 0; at < LENGTH; at++)
            differing |= (unsigned)(given[at] ^ k->list[i].key[at]);
        const int same = -(int)(differing == 0); /* all bits, or none */
        found = (found & ~same) | (i & same);
    }
    return found >= 0 ? k->list[found].tenant : NULL;
}
