/* The parts of a gqac_text, and the interfaces of folder, config and sampler. Memory that they
 * return is from base/alloc.h. */
#ifndef GQAC_LLM_LLM_H
#define GQAC_LLM_LLM_H

#include <gqac/text.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>

#include "base/arena.h"
#include "base/diag.h"
#include "base/str.h"
#include "text/jinja/jinja.h"
#include "text/tokenizer/tokenizer.h"

/* ---- sampler.c ----------------------------------------------------------------- */

typedef struct sampler sampler; /* scratch for one vocabulary */
gqac_status sampler_create(int64_t vocabulary, sampler **out, gqac_diag *diag);
void sampler_free(sampler *s);
/* USAGE: an option is out of range. */
gqac_status sampler_check(const gqac_sampling *options, gqac_diag *diag);
/* OUT_OF_RANGE: the id of a bias is not in the vocabulary; INVALID_MODEL: an id that the rules
 * demand is not. */
gqac_status sampler_check_ids(const gqac_sampling *options, int64_t vocabulary, gqac_diag *diag);
/* Chooses the next id by a row of logits [vocabulary]. `history` are prompt and answer so far, for
 * penalties (ids that are not in the vocabulary are ignored); `position` is that of the new id;
 * `banned` ids (end-of-text ids before min_length) are never chosen. *probability as in
 * gqac_generate_event; NULL: not wanted. INVALID_INPUT: all logits are NaN. */
gqac_status sampler_pick(sampler *s, const gqac_sampling *options, const float *logits,
                         const int64_t *history, size_t n_history, const int64_t *banned,
                         int n_banned, uint64_t position, int64_t *id, double *probability,
                         gqac_diag *diag);
/* gqac_sampling_top of settings that have been checked. */
int64_t sampler_needs(const gqac_sampling *options);
/* Makes the same choice as sampler_pick, but from the n likeliest ids of the row: sampler_needs of
 * them, or the whole vocabulary if that is smaller. */
gqac_status sampler_pick_top(sampler *s, const gqac_sampling *options, const gqac_candidate *top,
                             int64_t n, uint64_t position, int64_t *id, gqac_diag *diag);
/* What the softmax needs to know about a whole row of logits; NaN is left out. */
typedef struct softmax {
    double largest; /* of the logits */
    double sum;     /* of exp(logit - largest) */
} softmax;
softmax sampler_softmax(const sampler *s, const float *logits);
/* The probability of a logit of the row, and its natural logarithm. */
void softmax_measure(const softmax *of, float logit, double *probability, double *log_probability);
/* Stores the n most likely ids, or all whose logit is not NaN if these are fewer; returns their
 * number. */
int sampler_top(sampler *s, const softmax *of, const float *logits, int64_t n, gqac_scored_id *top);
/* Four words of Philox4x32-10 (Salmon et al. 2011) for a counter and a key. */
void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* ---- folder.c: the files of a model ---------------------------------------------- */

/* A folder, or the files attached to an artefact, or nothing. */
typedef struct folder {
    const char *name; /* of the model, for messages; the caller's */
    int fd;           /* that files are opened beneath; -1: no folder */
    int n;
    gqac_attachment *attached;
    char below[PATH_MAX]; /* path of the folder beneath fd, ending in '/'; "": it is fd */
} folder;
/* Opens the folder of a model. IO: the model does not exist or cannot be read. */
gqac_status folder_open(const char *model, folder *out, gqac_diag *diag);
/* The folder of a model file, or, with `levels` 1, 2, ..., the folder that many levels above. *name
 * is the path of the file beneath it. *out is closed (fd -1) if the path has no such folder. */
gqac_status folder_open_above(const char *model, int levels, folder *out, const char **name,
                              gqac_diag *diag);
/* Opens the folder of a model's texts and settings: folder_open, except that for an encoder and a
 * decoder in a folder `onnx` without such files it opens the folder above, if that has them. The
 * name is in the arena. The caller closes *out also after a failure. */
gqac_status folder_open_texts(const char *model, gqac_arena *arena, folder *out, gqac_diag *diag);
void folder_close(folder *f);
/* A file by its plain name, at most `limit` bytes, copied to the arena with a NUL after it; data is
 * NULL when there is none. INVALID_MODEL: a link that leads out of the folder (of a Hugging Face
 * cache: out of the cache of the model). */
gqac_status folder_read(const folder *f, const char *name, size_t limit, gqac_arena *arena,
                        gqac_attachment *file, gqac_diag *diag);
/* True if there is a file, or a link, of this name. */
bool folder_has(const folder *f, const char *name);
/* Refuses the links that folder_read refuses, for a file that is opened by its path; `name` is
 * relative to the folder. GQAC_OK if the file does not exist. */
gqac_status folder_check_link(const folder *f, const char *name, gqac_diag *diag);
/* LIMIT: the JSON has more values than any tokenizer. A value takes far more memory than its text.
 */
gqac_status folder_check_json(const char *bytes, size_t length, gqac_diag *diag);
/* Parses JSON whose keys must be unique. INVALID_MODEL: it is wrong; *diag has line and column;
 * LIMIT: as above. */
gqac_status folder_json(const char *bytes, size_t length, json_t **root, gqac_diag *diag);
/* Maximum size of a config. */
enum { FOLDER_CONFIG_BYTES = 4 << 20 };

/* ---- genai_config.c -------------------------------------------------------------- */

/* Settings without a config: greedy, no special ids. */
extern const gqac_text_settings genai_config_defaults;
/* Settings of a config file; strings and lists are in the arena. *decoder (NULL: not wanted) is
 * model.decoder.filename, a path beneath the folder. With settings NULL nothing else is read or
 * checked. UNSUPPORTED: a setting that would change results and that gqac does not have. */
gqac_status genai_config_read(const char *json, size_t bytes, gqac_arena *arena,
                              gqac_text_settings *settings, const char **decoder, gqac_diag *diag);
/* generation_config.json or config.json of transformers, the attachment's name: if `ends`, the ids
 * that end a text, and the rules (NULL: not wanted; set to NULL if there are none) with the list of
 * what is not obeyed. */
gqac_status hf_config_read(const gqac_attachment *file, gqac_arena *arena,
                           gqac_text_settings *settings, bool ends, gqac_token_rules **rules,
                           gqac_diag *diag);

/* ---- text.c: the parts ----------------------------------------------------------- */

struct vocabulary;
/* The tokens of a text for constraints, read when they are first needed (constraint.c). */
typedef struct text_words {
    pthread_mutex_t lock;
    struct vocabulary *vocabulary; /* under the lock; NULL: not read yet */
} text_words;

struct gqac_text {
    gqac_text_settings settings;
    tokenizer *tokenizer; /* NULL: absent or not asked for */
    jinja *template;
    json_t *special; /* {"bos_token": "<s>", ...}, variables of the template */
    int n_files;
    gqac_attachment *files;
    gqac_arena *memory;              /* of settings, files and names */
    text_words *words;               /* NULL: there is no tokenizer */
    const struct call_syntax *calls; /* of the template; NULL: unknown */
};
/* Why a text cannot be tokenized: USAGE or UNSUPPORTED. */
gqac_status text_check_tokenizer(const gqac_text *text, gqac_diag *diag);

#endif
