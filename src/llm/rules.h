/* The ids that a model's config forbids and demands, as Hugging Face's transformers define the
 * fields: bad_words_ids, suppress_tokens, begin_suppress_tokens, no_repeat_ngram_size, min_length,
 * min_new_tokens, forced_bos_token_id, forced_eos_token_id, forced_decoder_ids. */
#ifndef GQAC_LLM_RULES_H
#define GQAC_LLM_RULES_H

#include "llm/llm.h"

/* The rules of a config, which is an object, in the arena; *rules is NULL if it has none.
 * INVALID_MODEL: a field is wrong. */
gqac_status rules_read(const json_t *config, gqac_arena *arena, gqac_token_rules **rules,
                       gqac_diag *diag);
/* Sets no_repeat_ngram_size to `size` (0: none), unless transformers' config has set it. */
gqac_status rules_add_repeated(gqac_token_rules **rules, int64_t size, gqac_arena *arena,
                               gqac_diag *diag);
/* Sets the ids that end answers: they cannot be chosen before the minimum length, and bad words
 * that consist of one of them are removed. The list must outlive the rules. `rules` may be NULL,
 * here and below. */
void rules_set_ends(gqac_token_rules *rules, const int64_t *eos, int n_eos);
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

/* not_obeyed.c: sets *list to what the file `name` asks for and gqac does not do ("NAME: num_beams
 * is 4, top_h is 0.4"), in the arena; NULL: nothing. `searched`: "search" of a genai_config.json
 * counts where it has a setting too. */
gqac_status not_obeyed_read(const json_t *config, const char *name, bool searched,
                            gqac_arena *arena, const char **list, gqac_diag *diag);

#endif
