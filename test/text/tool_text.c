/* Parts of src/text that no verb exposes separately, for Python tests that compare them with an
 * oracle.
 *
 *   tool_text pattern FILE     all matches of each expression in each text
 *   tool_text normal FORM FILE a text in a normal form: nfc, nfd, nfkc, nfkd, lower
 *   tool_text tokens TOKENIZER FILE  texts to ids and ids to texts, with one tokenizer.json
 *
 * A file for `pattern` is a list of records: 'P' or 'T', a number of bytes in decimal, a newline,
 * the bytes, a newline. A text is matched by the last expression. The output is a line "begin:end"
 * for each match, and "refused STATUS WHAT" for a refused expression.
 *
 * A file for `tokens` has records of the same form: 'E' a text, 'S' a text with the post-processor,
 * 'N' a text whose special tokens are text; 'D' ids, 'K' ids without special tokens, 'V' the same
 * through a stream, 'B' the bytes of each id separately. The output is a line of ids, or the number
 * of bytes, a newline, the bytes and a newline; or the refusal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "text/expressions/pattern.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode.h"

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

/* As tokenizers does it: no empty match directly after a match. */
static void print_matches(const pattern *p, pattern_scratch *scratch, const char *text,
                          size_t length) {
    size_t last = SIZE_MAX;
    gqac_diag diag = {0};
    pattern_match m;
    pattern_scratch_admit(scratch, length);
    for (size_t from = 0; from <= length;) {
        gqac_status status = pattern_find(p, scratch, text, length, from, &m, &diag);
        if (status != GQAC_OK)
            printf("refused %s %s", gqac_status_name(status), diag.what);
        if (status != GQAC_OK || !m.found)
            break;
        if (m.begin == m.end && m.end == last) {
            int32_t c;
            from += from < length ? unicode_read(text + from, length - from, &c) : 1;
            continue;
        }
        printf("%zu:%zu ", m.begin, m.end);
        from = last = m.end;
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
            status = i == 4
                         ? unicode_lower(text, length, &out, NULL)
                         : unicode_normalise((unicode_form)i, text, length, SIZE_MAX, &out, NULL);
    if (status == GQAC_OK && out.length)
        fwrite(out.text, 1, out.length, stdout);
    gqac_str_free(&out);
    free(text);
    return gqac_status_exit_code(status);
}

/* ---- tokens -------------------------------------------------------------- */

static void refused(gqac_status status, const gqac_diag *diag) {
    printf("refused %s %s\n", gqac_status_name(status), diag->what);
}

static void print_ids(const tokenizer *t, const char *text, size_t length, unsigned how) {
    gqac_diag diag = {0};
    int64_t *ids;
    size_t n;
    gqac_status status = tokenizer_encode(t, text, length, how, &ids, &n, &diag);
    if (status != GQAC_OK) {
        refused(status, &diag);
        return;
    }
    for (size_t i = 0; i < n; i++)
        printf("%s%lld", i ? " " : "", (long long)ids[i]);
    putchar('\n');
    gqac_free(ids);
}

static gqac_status stream(const tokenizer *t, const int64_t *ids, size_t n, gqac_str *out,
                          gqac_diag *diag) {
    tokenizer_stream *s;
    const char *piece;
    size_t length;
    gqac_status status = tokenizer_stream_create(t, &s, diag);
    for (size_t i = 0; i <= n && status == GQAC_OK; i++) {
        status = i < n ? tokenizer_stream_push(s, ids[i], &piece, &length, diag)
                       : tokenizer_stream_finish(s, &piece, &length, diag);
        for (size_t k = 0; status == GQAC_OK && k < length;) {
            size_t bytes = gqac_utf8_char(piece + k, length - k);
            if (!bytes) /* an incomplete character */
                status = gqac_diag_set(diag, GQAC_INTERNAL, "piece %zu is not UTF-8", i);
            k += bytes;
        }
        if (status == GQAC_OK)
            gqac_str_append_n(out, piece, length);
    }
    tokenizer_stream_free(s);
    return status;
}

static gqac_status join_bytes(const tokenizer *t, const int64_t *ids, size_t n, gqac_str *out,
                              gqac_diag *diag) {
    gqac_status status = GQAC_OK;
    for (size_t i = 0; i < n && status == GQAC_OK; i++) {
        char *bytes;
        size_t length;
        bool special;
        status = tokenizer_bytes(t, ids[i], &bytes, &length, &special, diag);
        if (status == GQAC_OK)
            gqac_str_append_n(out, bytes, length);
        gqac_free(bytes);
    }
    return status;
}

static void print_text(const tokenizer *t, char kind, const char *text, size_t length) {
    gqac_diag diag = {0};
    int64_t *ids = malloc((length + 1) * sizeof *ids);
    size_t n = 0;
    gqac_str out = {0};
    gqac_status status;
    if (!ids)
        return;
    for (char *at = (char *)text, *next; at < text + length; at = next, n++) {
        ids[n] = strtoll(at, &next, 10);
        if (next == at)
            break;
    }
    if (kind == 'V')
        status = stream(t, ids, n, &out, &diag);
    else if (kind == 'B')
        status = join_bytes(t, ids, n, &out, &diag);
    else
        status = tokenizer_decode(t, ids, n, kind == 'K', &out.text, &out.length, &diag);
    free(ids);
    if (status == GQAC_OK) {
        printf("%zu\n", out.length);
        if (out.length)
            fwrite(out.text, 1, out.length, stdout);
        putchar('\n');
    } else {
        refused(status, &diag);
    }
    gqac_str_free(&out);
}

static int run_tokens(const char *json_path, const char *path) {
    size_t bytes, length, n;
    gqac_diag diag = {0};
    tokenizer *t = NULL;
    char *json = read_all(json_path, &bytes), *all = read_all(path, &length), *at = all;
    if (!json || !all)
        return 5;
    gqac_status status = tokenizer_create(json, bytes, &t, &diag);
    free(json);
    if (status != GQAC_OK) {
        refused(status, &diag);
        fprintf(stderr, "%s\n%s\n%s\n", diag.where, diag.rule, diag.hint);
    }
    while (t && at < all + length) {
        char kind = *at;
        n = strtoul(at + 1, &at, 10);
        if (*at++ != '\n' || n > (size_t)(all + length - at))
            return 2;
        if (kind == 'E' || kind == 'S' || kind == 'N')
            print_ids(t, at, n,
                      kind == 'S'   ? TOKENIZER_SPECIAL
                      : kind == 'N' ? TOKENIZER_PLAIN
                                    : 0u);
        else
            print_text(t, kind, at, n);
        at += n + 1;
    }
    tokenizer_free(t);
    free(all);
    return gqac_status_exit_code(status);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "pattern"))
        return run_patterns(argv[2]);
    if (argc == 4 && !strcmp(argv[1], "normal"))
        return run_normal(argv[2], argv[3]);
    if (argc == 4 && !strcmp(argv[1], "tokens"))
        return run_tokens(argv[2], argv[3]);
    fputs("usage: tool_text pattern FILE | normal FORM FILE | tokens TOKENIZER FILE\n", stderr);
    return 2;
}
