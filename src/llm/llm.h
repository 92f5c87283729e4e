/* What the files of src/llm share: the parts of a gqac_text, and the interfaces between tokenizer,
 * template, sampler and the loop. Memory that crosses them comes from base/alloc.h. */
#ifndef GQAC_LLM_LLM_H
#define GQAC_LLM_LLM_H

#include <gqac/text.h>
#include <jansson.h>

#include "base/arena.h"
#include "base/diag.h"
#include "base/str.h"

/* ---- pattern.c: the regular expressions of pre-tokenizers ----------------- */

/* A compiled expression. Matching is leftmost-first as a backtracking engine finds it, but runs all
 * threads at once: a call takes time linear in the text and in the size of the expression. All
 * calls over a text together are bounded too: the expressions of real pre-tokenizers take a few
 * steps for each byte, and one that takes far more (a*b|a reads to the end for each a) is refused
 * while it runs. */
typedef struct pattern pattern;
/* UNSUPPORTED names the construct and its offset; LIMIT when it is too large. */
gqac_status pattern_create(const char *source, size_t length, pattern **out, gqac_diag *diag);
void pattern_free(pattern *p);
typedef struct pattern_scratch pattern_scratch;
pattern_scratch *pattern_scratch_create(const pattern *p); /* NULL: out of memory */
void pattern_scratch_free(pattern_scratch *scratch);
/* Allows the work that a text of so many bytes may take; called before the calls over it. */
void pattern_scratch_admit(pattern_scratch *scratch, size_t bytes);
typedef struct pattern_match {
    bool found;
    size_t begin, end;
} pattern_match;
/* The match at or after `from`. The text is valid UTF-8. Thread-safe on a shared pattern: `scratch`
 * is the caller's. LIMIT when all calls together take more work than was allowed. */
gqac_status pattern_find(const pattern *p, pattern_scratch *scratch, const char *text,
                         size_t length, size_t from, pattern_match *match, gqac_diag *diag);
/* Steps of work since it was created, for tests of bounds. */
uint64_t pattern_scratch_steps(const pattern_scratch *scratch);

/* ---- unicode.c: what utf8proc knows ------------------------------------------ */

/* Reads one character of valid UTF-8; returns its bytes. */
size_t unicode_read(const char *text, size_t length, int32_t *codepoint);
/* Writes one character; returns its bytes, 0 for what is no code point. */
size_t unicode_write(int32_t codepoint, char out[4]);
/* Where the last character of [begin, end) begins; begin < end. */
size_t unicode_before(const char *text, size_t begin, size_t end);
/* Bytes of the first extended grapheme cluster (Unicode Annex 29). */
size_t unicode_cluster(const char *text, size_t length);
int unicode_hex_digit(char c); /* -1: none */
/* General category as in \p{..}: "L", "Lu", "N", "Nd", "M", "P", "S", "Z", "C", ...; false when the
 * name is not one. */
bool unicode_category(const char *name, size_t length, uint32_t *mask);
bool unicode_is(int32_t codepoint, uint32_t mask);
bool unicode_is_space(int32_t codepoint); /* White_Space, \s */
bool unicode_is_word(int32_t codepoint);  /* \w: letters, marks, digits, connectors */
typedef enum unicode_form { UNICODE_NFC, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD } unicode_form;
/* LIMIT when the text has more than `most` characters once they are taken apart. */
gqac_status unicode_normalise(unicode_form form, const char *text, size_t length, size_t most,
                              gqac_str *out, gqac_diag *diag);
gqac_status unicode_lower(const char *text, size_t length, gqac_str *out, gqac_diag *diag);

/* ---- tokenizer.c --------------------------------------------------------------- */

/* A tokenizer.json: byte-level BPE and byte-fallback BPE. Immutable. */
typedef struct tokenizer tokenizer;
gqac_status tokenizer_create(const char *json, size_t bytes, tokenizer **out, gqac_diag *diag);
void tokenizer_free(tokenizer *t);
/* As gqac_text_tokenize and gqac_text_detokenize. */
gqac_status tokenizer_encode(const tokenizer *t, const char *text, size_t length, bool special,
                             int64_t **ids, size_t *n, gqac_diag *diag);
gqac_status tokenizer_decode(const tokenizer *t, const int64_t *ids, size_t n, bool skip_special,
                             char **out, size_t *length, gqac_diag *diag);
typedef struct tokenizer_stream tokenizer_stream;
gqac_status tokenizer_stream_create(const tokenizer *t, tokenizer_stream **out, gqac_diag *diag);
void tokenizer_stream_free(tokenizer_stream *s);
gqac_status tokenizer_stream_push(tokenizer_stream *s, int64_t id, const char **piece,
                                  size_t *length, gqac_diag *diag);
gqac_status tokenizer_stream_finish(tokenizer_stream *s, const char **piece, size_t *length,
                                    gqac_diag *diag);

/* ---- jinja.c ------------------------------------------------------------------- */

/* A parsed template. Immutable. */
typedef struct jinja jinja;
/* INVALID_MODEL (syntax, with line), UNSUPPORTED (a tag, filter, test or function by name). */
gqac_status jinja_create(const char *source, size_t length, jinja **out, gqac_diag *diag);
void jinja_free(jinja *j);
/* Appends to *out. `variables` is an object. INVALID_INPUT for raise_exception and run-time errors
 * (with line), LIMIT for too many steps, too deep recursion or too long results. */
gqac_status jinja_render(const jinja *j, const json_t *variables, gqac_str *out, gqac_diag *diag);

/* ---- sampler.c ----------------------------------------------------------------- */

typedef struct sampler sampler; /* scratch for one vocabulary */
gqac_status sampler_create(int64_t vocabulary, sampler **out, gqac_diag *diag);
void sampler_free(sampler *s);
/* USAGE names the option that is out of range. */
gqac_status sampler_check(const gqac_sampling *options, gqac_diag *diag);
/* The next id of a row of logits [vocabulary]. `history` are prompt and answer so far (repetition
 * penalty; ids outside of the vocabulary are ignored), `position` is the place the id will have in
 * the sequence, `banned` ids (end-of-text ids too early) are never chosen. *probability as in
 * gqac_generate_event. INVALID_INPUT when no logit is a number. */
gqac_status sampler_pick(sampler *s, const gqac_sampling *options, const float *logits,
                         const int64_t *history, size_t n_history, const int64_t *banned,
                         int n_banned, uint64_t position, int64_t *id, double *probability,
                         gqac_diag *diag);
/* Four words of Philox4x32-10 (Salmon et al. 2011) for a counter and a key. */
void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* ---- folder.c: the files of a model ---------------------------------------------- */

/* A folder, or what is attached to an artefact, or nothing. */
typedef struct folder {
    const char *name; /* of the model, for messages; the caller's */
    int fd;           /* -1: no folder */
    int n;
    gqac_attachment *attached;
} folder;
/* IO when the model does not exist or cannot be read. */
gqac_status folder_open(const char *model, folder *out, gqac_diag *diag);
/* The folder that a model file lies in, or with `levels` 1, 2... one so many above. *name is the
 * path of the file in it. *out is closed (fd -1) when the path has no such folder. */
gqac_status folder_open_above(const char *model, int levels, folder *out, const char **name,
                              gqac_diag *diag);
void folder_close(folder *f);
/* A file by its plain name, at most `limit` bytes, copied to the arena with a NUL behind it; data
 * is NULL when there is none. Links are not followed: whatever is read lies in the folder. */
gqac_status folder_read(const folder *f, const char *name, size_t limit, gqac_arena *arena,
                        gqac_attachment *file, gqac_diag *diag);
/* LIMIT when a JSON text has more values than any tokenizer: each costs far more memory than it has
 * bytes. */
gqac_status folder_check_json(const char *bytes, size_t length, gqac_diag *diag);
/* INVALID_MODEL with line and column; keys are unique. LIMIT as above. */
gqac_status folder_json(const char *bytes, size_t length, json_t **root, gqac_diag *diag);
/* Largest configs; a tokenizer or a template may be larger. */
enum { FOLDER_CONFIG_BYTES = 4 << 20 };

/* ---- genai_config.c -------------------------------------------------------------- */

/* What holds without a config: greedy, no special ids. */
extern const gqac_text_settings genai_config_defaults;
/* Settings of a config file; strings and lists are taken from the arena. `decoder` (may be NULL)
 * gets model.decoder.filename, a path beneath the folder. With settings NULL nothing else is read
 * or checked. UNSUPPORTED names a setting that would change results and that gqac does not have. */
gqac_status genai_config_read(const char *json, size_t bytes, gqac_arena *arena,
                              gqac_text_settings *settings, const char **decoder, gqac_diag *diag);

/* ---- text.c: the parts ----------------------------------------------------------- */

struct gqac_text {
    gqac_text_settings settings;
    tokenizer *tokenizer; /* NULL: absent or not asked for */
    jinja *template;
    json_t *special; /* {"bos_token": "<s>", ...}, variables of the template */
    int n_files;
    gqac_attachment *files;
    gqac_arena *memory; /* what settings, files and names point into */
};

#endif
