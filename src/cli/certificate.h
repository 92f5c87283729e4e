/* The certificate of `gqac equiv`: digests of what was proved, which another machine, level or
 * build can check against bits of its own. */
#ifndef GQAC_CLI_CERTIFICATE_H
#define GQAC_CLI_CERTIFICATE_H

#include "cli/cli.h"

typedef struct certificate {
    const char *path; /* NULL: none is asked for */
    json_t *stored;   /* what the file holds; NULL: the file does not exist, it will be written */
    json_t *made;     /* of this run: at first without logits */
    char model[65];   /* digest of the model; "": not made yet */
    int64_t first;    /* the first position whose logits differ from the stored; -1: none */
} certificate;

/* Reads the file of --certificate. INVALID_MODEL: it exists and is not a certificate. */
gqac_status certificate_open(cli *c, certificate *x);
/* To be called before the model is loaded. MISMATCH: the stored certificate is of another model,
 * target, or list of tokens. `ids` NULL: they are generated when the vocabulary is known. */
gqac_status certificate_check(certificate *x, cli *c, const char *model,
                              const gqac_options *options, const int64_t *ids, int64_t n);
/* Sets model, tokens and profile of this run. MISMATCH: the stored certificate has others. */
gqac_status certificate_begin(certificate *x, cli *c, const gqac_equiv_report *report,
                              const char *level, const char *model, const gqac_options *options);
/* After the proof: writes the file (not when values differed), or compares with it. MISMATCH never:
 * see `first`. `kv`: kinds of cache. */
gqac_status certificate_end(certificate *x, cli *c, const gqac_equiv_report *report,
                            const gqac_equiv_options *options, const char *kv);
/* For json: {"file", "written"} or {"file", "equal", "position"?}. */
json_t *certificate_json(const certificate *x);
void certificate_print(const certificate *x);
void certificate_free(certificate *x);

#endif
