/* The ids that a model's config forbids and demands, as Hugging Face's transformers define the
 * fields: bad_words_ids, suppress_tokens, begin_suppress_tokens, forced_bos_token_id,
 * forced_eos_token_id, forced_decoder_ids. */
#ifndef GQAC_LLM_RULES_H
#define GQAC_LLM_RULES_H

#include "llm/llm.h"

/* The rules of a config, which is an object, in the arena; *rules is NULL if it has none.
 * INVALID_MODEL: a field is wrong. */
gqac_status rules_read(const json_t *config, gqac_arena *arena, gqac_token_rules **rules,
                       gqac_diag *diag);
/* A word of one id is not bad if the id ends answers. `rules` may be NULL, here and below. */
void rules_allow_ends(gqac_token_rules *rules, const int64_t *eos, int n_eos);
/* INVALID_MODEL: an id that is demanded is not in the vocabulary. */
gqac_status rules_check(const gqac_token_rules *rules, int64_t vocabulary, gqac_diag *diag);
/* Where an answer is. */
typedef struct rules_place {
    const int64_t *history; /* prompt and answer */
    size_t n, n_prompt;
    size_t max_length; /* of prompt and answer, when it ends; 0: not known */
} rules_place;
/* Sets the score of each id that cannot be chosen to NaN. Ids that are demanded have their logit as
 * score, unless it is NaN for all of them. */
void rules_apply(const gqac_token_rules *rules, const rules_place *place, const float *logits,
                 double *score, int64_t vocabulary);

#endif
