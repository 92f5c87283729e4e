/* How the next id is chosen from a row of logits, for gqac_generate and for callers with a loop of
 * their own. */
#ifndef GQAC_SAMPLE_H
#define GQAC_SAMPLE_H

#include <gqac/candidate.h>
#include <gqac/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gqac_logit_bias {
    int64_t id;
    double bias; /* finite, or -INFINITY: the id is never chosen */
} gqac_logit_bias;

/* How the next id is chosen from a row of logits. These settings are applied in this order:
 *
 *   logit bias          is added to the logit of its id
 *   repetition penalty  p, once for each id that occurs in prompt or answer: a positive logit
 *                       becomes logit / p, any other logit * p (Keskar et al. 2019)
 *   frequency, presence penalty  for each id that occurs `count` > 0 times in the answer:
 *                       logit - (count * frequency penalty + presence penalty), as in OpenAI's API
 *   rules               ids that the model's config forbids are not chosen; where it demands one of
 *                       some ids, only these are, whatever the settings above say, unless their
 *                       logits are NaN
 *   temperature         the probabilities are softmax(logits / temperature)
 *   top-k               keeps the k most likely ids
 *   top-p               keeps the most likely of the remaining ids: the fewest whose
 *                       probabilities add up to >= top_p of the sum over all remaining ids
 *   min-p               keeps the remaining ids that are at least min_p times as likely as the
 *                       most likely id
 *
 * Ties go to the lowest id, and at least one id remains. The interval [0, 1) is divided among the
 * remaining ids, in ascending order, in proportion to their probabilities; a random number in [0,
 * 1) (the draw) selects the id. The draw depends only on seed, request and the position of the new
 * id (Philox4x32-10 of Salmon et al. 2011: the seed is the key, position and request are the
 * counter), not on other requests, splits or threads. The caller chooses `request`: requests with
 * the same seed and different numbers get different random numbers. Without `sample` the most
 * likely id after bias and penalties is chosen. An id whose logit is NaN is never chosen.
 * INVALID_INPUT: all logits are NaN. */
typedef struct gqac_sampling {
    size_t size;
    bool sample;                                /* false: the most likely id */
    double temperature;                         /* >= 0; 0: the most likely id */
    int64_t top_k;                              /* >= 0; 0: all */
    double top_p;                               /* (0, 1]; 1: all */
    double min_p;                               /* [0, 1]; 0: all */
    double repetition_penalty;                  /* > 0; 1: none */
    uint64_t seed, request;                     /* of the draw, see above */
    double presence_penalty, frequency_penalty; /* finite; 0: none */
    size_t n_prompt; /* for gqac_sample: number of ids at the beginning of the history that are not
                        part of the answer; gqac_generate uses the length of its prompt instead */
    int n_bias;
    const gqac_logit_bias *bias; /* OUT_OF_RANGE: an id is not in the vocabulary */
    /* Of the settings of the model, which must outlive all requests; NULL: none. INVALID_MODEL: an
     * id that they demand is not in the vocabulary. */
    const gqac_token_rules *rules;
    size_t max_length; /* for gqac_sample: number of ids of prompt and answer with which the answer
                          must end; 0: not known. gqac_generate uses its own limit instead */
} gqac_sampling;
/* Sets the defaults: the most likely id. If the caller then sets `sample`, ids are sampled from the
 * model's own distribution. */
static inline void gqac_sampling_init(gqac_sampling *sampling) {
    memset(sampling, 0, sizeof *sampling);
    sampling->size = sizeof *sampling;
    sampling->temperature = sampling->top_p = sampling->repetition_penalty = 1;
}

/* Chooses the id that follows `history` as gqac_generate does, from one row of logits [vocabulary],
 * for callers with a loop of their own. The position of the draw is n_history. *probability, if not
 * NULL, is set to the id's probability by softmax of the logits. options NULL: defaults. Unless the
 * most likely id is chosen without bias, penalties and probability, it allocates about 25 bytes per
 * logit during the call. USAGE: an option is out of range; OUT_OF_RANGE: the id of a bias is not in
 * the vocabulary; UNSUPPORTED: not 1 <= vocabulary < 2^31; INVALID_INPUT: all logits are NaN;
 * NO_MEMORY. */
GQAC_API gqac_status gqac_sample(const gqac_sampling *options, const float *logits,
                                 int64_t vocabulary, const int64_t *history, size_t n_history,
                                 int64_t *id, double *probability, gqac_diag *diag);
/* Returns how many of the most likely ids of a row (gqac_step_item.n_top) suffice to choose the
 * next id with these settings: 1 for the most likely id, top_k + 1 if ids are sampled from top_k of
 * them. 0: the whole row is needed, because there are biases, penalties or rules, ids are sampled
 * without top_k or with one of GQAC_TOP_MOST or more, or a setting is out of range. NULL: defaults.
 */
GQAC_API int64_t gqac_sampling_top(const gqac_sampling *sampling);
/* Chooses the id that gqac_sample would choose from the whole row, from its n most likely ids in
 * the order of gqac_context_top, at least gqac_sampling_top of them or the whole vocabulary.
 * `position` is that of the new id. USAGE: an option is out of range, or n is too small;
 * INVALID_INPUT: all logits are NaN; NO_MEMORY. */
GQAC_API gqac_status gqac_sample_top(const gqac_sampling *sampling, const gqac_candidate *top,
                                     int64_t n, int64_t vocabulary, uint64_t position, int64_t *id,
                                     gqac_diag *diag);
/* Checks settings for a vocabulary; the errors are those of gqac_sample. */
GQAC_API gqac_status gqac_sampling_check(const gqac_sampling *sampling, int64_t vocabulary,
                                         gqac_diag *diag);

typedef struct gqac_scored_id { /* an id of a row of logits */
    int64_t id;
    double log_probability; /* natural logarithm of its softmax over the model's own logits */
} gqac_scored_id;

/* Measures a row of logits [vocabulary] as gqac_generate does for its events: sets *log_probability
 * to that of `id`, and `top` to the *listed most likely ids, in that order: n_top, or fewer if the
 * others are NaN. With n_top 0, `top` and `listed` may be NULL, and nothing is allocated; else
 * about 25 bytes per logit during the call. OUT_OF_RANGE: `id` is not in the vocabulary, or n_top
 * is negative; UNSUPPORTED: not 1 <= vocabulary < 2^31; NO_MEMORY. */
GQAC_API gqac_status gqac_log_probabilities(const float *logits, int64_t vocabulary, int64_t id,
                                            double *log_probability, int64_t n_top,
                                            gqac_scored_id *top, int *listed, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
