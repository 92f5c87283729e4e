/* Making, writing and checking certificates of `gqac equiv` (see certificate.h).
 *
 * A certificate is one JSON object. What it is about: SHA-256 of the model and of the token ids
 * (int64, little-endian), profile. What was done: plans, threads, kinds of cache, batch, level,
 * version. What came out: SHA-256 of the fp32 logits of each position and of all. Equal profiles
 * promise equal digests, whatever level, threads or build made them. */
#include "cli/certificate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CERTIFICATE_NAME "gqac-equiv-certificate"

enum { CERTIFICATE_VERSION = 1 };

/* ---- reading ------------------------------------------------------------- */

static bool is_digest(const char *text) {
    return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

static bool is_certificate(const json_t *root) {
    const char *name = NULL, *model = NULL, *tokens = NULL, *profile = NULL, *all = NULL;
    int version = 0;
    json_int_t n = 0, vocabulary = 0;
    json_t *positions = NULL;
    if (json_unpack((json_t *)(uintptr_t)root,
                    "{s:s, s:i, s:{s:s}, s:{s:I, s:s}, s:s, s:{s:I, s:s, s:o}}", "certificate",
                    &name, "version", &version, "model", "digest", &model, "tokens", "n", &n,
                    "digest", &tokens, "profile", &profile, "logits", "vocabulary", &vocabulary,
                    "digest", &all, "positions", &positions) != 0)
        return false;
    if (strcmp(name, CERTIFICATE_NAME) != 0 || version != CERTIFICATE_VERSION ||
        !is_digest(model) || !is_digest(tokens) || !is_digest(all) || !json_is_array(positions) ||
        (json_int_t)json_array_size(positions) != n)
        return false;
    for (size_t i = 0; i < json_array_size(positions); i++) {
        const char *digest = json_string_value(json_array_get(positions, i));
        if (!digest || !is_digest(digest))
            return false;
    }
    return true;
}

gqac_status certificate_open(cli *c, certificate *x) {
    struct stat info;
    char *text = NULL;
    size_t length = 0;
    *x = (certificate){.path = cli_value(c, "certificate"), .first = -1};
    if (!x->path)
        return GQAC_OK;
    if (stat(x->path, &info) != 0)
        return cli_check_writable(c, x->path);
    GQAC_TRY(cli_read_file(c, x->path, &text, &length));
    x->stored = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    if (x->stored && is_certificate(x->stored))
        return GQAC_OK;
    json_decref(x->stored);
    x->stored = NULL;
    cli_fail(c, GQAC_INVALID_MODEL, "'%s' exists and is not a certificate", x->path);
    cli_rule(
        c, "FILE is a new file, or a certificate to compare with; other files are not overwritten");
    return cli_hint(c, "another file name");
}

/* ---- what it is about ---------------------------------------------------- */

static const char *text_at(const json_t *root, const char *outer, const char *inner) {
    const json_t *value = json_object_get(root, outer);
    return json_string_value(inner ? json_object_get(value, inner) : value);
}

static gqac_status check_text(const certificate *x, cli *c, const char *what, const char *stored,
                              const char *made) {
    if (!strcmp(stored, made))
        return GQAC_OK;
    gqac_status status =
        cli_fail(c, GQAC_MISMATCH, "the certificate '%s' is for another %s: %s, not %s", x->path,
                 what, stored, made);
    cli_rule(c, "model, tokens and profile are those of the certificate");
    return status;
}

static gqac_status check_same(const certificate *x, cli *c, const char *what, const char *outer,
                              const char *inner) {
    return check_text(x, c, what, text_at(x->stored, outer, inner), text_at(x->made, outer, inner));
}

/* Sets the digest of the model. What it says of an artefact must be true: every byte is checked. */
static gqac_status identify(certificate *x, cli *c, const char *model,
                            const gqac_options *options) {
    GQAC_TRY(gqac_model_digest(model, options, x->model, &c->diag));
    gqac_diag why = {0};
    const gqac_status status = gqac_artefact_verify(model, &why);
    if (status == GQAC_OK || status == GQAC_USAGE) /* it is not an artefact */
        return GQAC_OK;
    c->diag = why;
    return status;
}

gqac_status certificate_check(certificate *x, cli *c, const char *model,
                              const gqac_options *options, const int64_t *ids, int64_t n) {
    char digest[65], stored[24], given[24];
    const char *target = text_at(x->stored, "target", NULL);
    if (!x->stored)
        return GQAC_OK;
    const json_t *tokens = json_object_get(x->stored, "tokens");
    snprintf(stored, sizeof stored, "%lld tokens",
             (long long)json_integer_value(json_object_get(tokens, "n")));
    snprintf(given, sizeof given, "%lld tokens", (long long)n);
    GQAC_TRY(check_text(x, c, "token list", stored, given));
    if (ids) {
        gqac_digest(ids, (size_t)n * sizeof *ids, digest);
        GQAC_TRY(check_text(x, c, "token list", text_at(x->stored, "tokens", "digest"), digest));
    }
    if (target)
        GQAC_TRY(check_text(x, c, "numerics profile, that of target", target, options->target));
    GQAC_TRY(identify(x, c, model, options));
    return check_text(x, c, "model", text_at(x->stored, "model", "digest"), x->model);
}

gqac_status certificate_begin(certificate *x, cli *c, const gqac_equiv_report *report,
                              const char *level, const char *model, const gqac_options *options) {
    char ids[65];
    if (!x->path)
        return GQAC_OK;
    if (!*x->model)
        GQAC_TRY(identify(x, c, model, options));
    gqac_digest(report->ids, (size_t)report->tokens * sizeof *report->ids, ids);
    x->made =
        json_pack("{s:s, s:i, s:s, s:{s:s}, s:{s:I, s:s}, s:s, s:s, s:s?}", "certificate",
                  CERTIFICATE_NAME, "version", CERTIFICATE_VERSION, "gqac", gqac_version(), "model",
                  "digest", x->model, "tokens", "n", (json_int_t)report->tokens, "digest", ids,
                  "profile", report->profile, "target", options->target, "level", level);
    if (!x->made)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    if (!x->stored)
        return GQAC_OK;
    GQAC_TRY(check_same(x, c, "token list", "tokens", "digest"));
    return check_same(x, c, "numerics profile", "profile", NULL);
}

/* ---- what came out ------------------------------------------------------- */

static json_t *logits_json(const gqac_equiv_report *r) {
    const size_t bytes = (size_t)r->vocabulary * sizeof *r->logits;
    char hex[65];
    json_t *positions = json_array();
    for (int64_t i = 0; i < r->tokens; i++) {
        gqac_digest(r->logits + i * r->vocabulary, bytes, hex);
        json_array_append_new(positions, json_string(hex));
    }
    gqac_digest(r->logits, (size_t)r->tokens * bytes, hex);
    return json_pack("{s:I, s:s, s:o}", "vocabulary", (json_int_t)r->vocabulary, "digest", hex,
                     "positions", positions);
}

static json_t *proof_json(const gqac_equiv_report *r, const gqac_equiv_options *o, const char *kv) {
    json_t *list = json_array();
    for (int i = 0; i < o->n_threads; i++)
        json_array_append_new(list, json_integer(o->threads[i]));
    return json_pack("{s:i, s:i, s:I, s:i, s:s, s:s, s:o}", "planned", r->planned, "plans", r->ran,
                     "compared", (json_int_t)r->compared, "batch", r->batch, "kv", kv, "via",
                     gqac_equiv_via_name((int)o->via), "threads", list);
}

/* Whole or not at all. */
static gqac_status write_file(const certificate *x, cli *c) {
    char temporary[4096];
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.XXXXXX", x->path) >= sizeof temporary)
        return cli_usage(c, "--certificate: the name is too long");
    const int fd = mkstemp(temporary);
    if (fd < 0)
        return cli_fail(c, GQAC_IO, "cannot write '%s': %s", x->path, strerror(errno));
    const mode_t mask = umask(0);
    umask(mask);
    bool ok = json_dumpfd(x->made, fd, JSON_INDENT(1)) == 0 && write(fd, "\n", 1) == 1 &&
              fchmod(fd, 0666 & ~mask) == 0 && fsync(fd) == 0;
    ok = close(fd) == 0 && ok && rename(temporary, x->path) == 0;
    if (ok)
        return GQAC_OK;
    const int error = errno;
    unlink(temporary);
    return cli_fail(c, GQAC_IO, "cannot write '%s': %s", x->path, strerror(error));
}

static gqac_status compare(certificate *x, cli *c) {
    const json_t *stored = json_object_get(json_object_get(x->stored, "logits"), "positions");
    const json_t *made = json_object_get(json_object_get(x->made, "logits"), "positions");
    for (size_t i = 0; x->first < 0 && i < json_array_size(made); i++)
        if (!json_equal(json_array_get(stored, i), json_array_get(made, i)))
            x->first = (int64_t)i;
    const json_t *whole = json_object_get(json_object_get(x->stored, "logits"), "digest");
    if (x->first < 0 &&
        !json_equal(whole, json_object_get(json_object_get(x->made, "logits"), "digest")))
        return cli_fail(c, GQAC_INVALID_MODEL,
                        "'%s' contradicts itself: the digests of all positions match, but the one "
                        "of all logits does not",
                        x->path);
    return GQAC_OK;
}

gqac_status certificate_end(certificate *x, cli *c, const gqac_equiv_report *report,
                            const gqac_equiv_options *options, const char *kv) {
    if (!x->path)
        return GQAC_OK;
    json_t *proof = proof_json(report, options, kv), *logits = logits_json(report);
    if (json_object_set_new(x->made, "proof", proof) != 0 ||
        json_object_set_new(x->made, "logits", logits) != 0)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    if (x->stored)
        return compare(x, c);
    return report->differing ? GQAC_OK : write_file(x, c);
}

/* ---- report -------------------------------------------------------------- */

static bool written(const certificate *x) {
    struct stat info;
    return !x->stored && stat(x->path, &info) == 0;
}

json_t *certificate_json(const certificate *x) {
    if (!x->stored)
        return json_pack("{s:o, s:b}", "file", cli_text_json(x->path), "written", written(x));
    json_t *root = json_pack("{s:o, s:b}", "file", cli_text_json(x->path), "equal", x->first < 0);
    if (x->first >= 0)
        json_object_set_new(root, "position", json_integer(x->first));
    return root;
}

void certificate_print(const certificate *x) {
    const char *level = x->stored ? text_at(x->stored, "level", NULL) : NULL;
    const char *version = x->stored ? text_at(x->stored, "gqac", NULL) : NULL;
    if (!x->path)
        return;
    if (!x->stored)
        printf("certificate: %s '%s'\n", written(x) ? "written to" : "not written to", x->path);
    else if (x->first < 0)
        printf("certificate: the logits of every position are those of '%s' (gqac %s, level %s)\n",
               x->path, cli_shown(version ? version : "?").s, cli_shown(level ? level : "none").s);
    else
        printf("certificate: the logits of position %lld are not those of '%s' (gqac %s, level "
               "%s)\n",
               (long long)x->first, x->path, cli_shown(version ? version : "?").s,
               cli_shown(level ? level : "none").s);
}

void certificate_free(certificate *x) {
    json_decref(x->stored);
    json_decref(x->made);
}
