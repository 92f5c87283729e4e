/* What Python tests compare with an oracle: parts of src/llm that no verb shows alone.
 *
 *   tool_text pattern FILE     all matches of each expression in each text
 *   tool_text normal FORM FILE a text in a normal form: nfc, nfd, nfkc, nfkd, lower
 *
 * A file for `pattern` is a list of records: 'P' or 'T', a number of bytes in decimal, a newline,
 * the bytes, a newline. A text is matched by the last expression; a line of "begin:end" goes out
 * for each, "refused STATUS WHAT" for an expression that is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm/llm.h"

static char *read_all(const char *path, size_t *length) {
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    size_t n = 0, capacity = 1 << 16;
    char *text = malloc(capacity);
    for (size_t got; text && (got = fread(text + n, 1, capacity - n, f)) > 0;) {
        n += got;
        if (n == capacity) {
            capacity *= 2;
            text = realloc(text, capacity);
        }
    }
    fclose(f);
    *length = n;
    return text;
}

/* ---- pattern ------------------------------------------------------------- */

/* As tokenizers walks: no empty match directly behind a match. */
static void print_matches(const pattern *p, pattern_scratch *scratch, const char *text,
                          size_t length) {
    size_t begin, end, last = SIZE_MAX;
    for (size_t from = 0; from <= length;) {
        if (!pattern_find(p, scratch, text, length, from, &begin, &end))
            break;
        if (begin == end && end == last) {
            int32_t c;
            from += from < length ? unicode_read(text + from, length - from, &c) : 1;
            continue;
        }
        printf("%zu:%zu ", begin, end);
        from = last = end;
    }
    putchar('\n');
}

static int run_patterns(const char *path) {
    size_t length, n;
    char *all = read_all(path, &length), *at = all;
    pattern *p = NULL;
    pattern_scratch *scratch = NULL;
    if (!all)
        return 5;
    while (at < all + length) {
        char kind = *at;
        n = strtoul(at + 1, &at, 10);
        if (*at++ != '\n' || n > (size_t)(all + length - at))
            return 2;
        if (kind == 'T' && p) {
            print_matches(p, scratch, at, n);
        } else if (kind == 'P') {
            gqac_diag diag = {0};
            pattern_free(p);
            pattern_scratch_free(scratch);
            p = NULL;
            scratch = NULL;
            gqac_status status = pattern_create(at, n, &p, &diag);
            if (status == GQAC_OK && !(scratch = pattern_scratch_create(p)))
                return 4;
            if (status != GQAC_OK)
                printf("refused %s %s\n", gqac_status_name(status), diag.what);
        }
        at += n + 1;
    }
    pattern_free(p);
    pattern_scratch_free(scratch);
    free(all);
    return 0;
}

/* ---- normal -------------------------------------------------------------- */

static int run_normal(const char *form, const char *path) {
    static const char *const forms[] = {"nfc", "nfd", "nfkc", "nfkd", "lower"};
    size_t length;
    char *text = read_all(path, &length);
    gqac_str out = {0};
    gqac_status status = GQAC_USAGE;
    if (!text)
        return 5;
    for (int i = 0; i < 5; i++)
        if (!strcmp(form, forms[i]))
            status = i == 4 ? unicode_lower(text, length, &out, NULL)
                            : unicode_normalise((unicode_form)i, text, length, &out, NULL);
    if (status == GQAC_OK && out.length)
        fwrite(out.text, 1, out.length, stdout);
    gqac_str_free(&out);
    free(text);
    return gqac_status_exit_code(status);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "pattern"))
        return run_patterns(argv[2]);
    if (argc == 4 && !strcmp(argv[1], "normal"))
        return run_normal(argv[2], argv[3]);
    fputs("usage: tool_text pattern FILE | normal FORM FILE\n", stderr);
    return 2;
}
