/* Which settings of generation_config.json, or of config.json, would change an answer and have no
 * effect here. transformers ignores a setting whose value is `neutral` or null, and uses those of
 * sampling only with do_sample. Without effect on answers, and so not listed: what chooses caches,
 * outputs or drafts. How long answers are (max_length, max_new_tokens, max_time) is up to the
 * caller. */
#include <stdlib.h>

#include "base/str.h"
#include "llm/rules.h"

typedef enum meaning {
    IF_ABOVE, /* the value has an effect if it is a number above `neutral` */
    IF_BELOW,
    IF_OTHER,
    IF_TRUE,
    IF_ANY /* and is not an empty list or object */
} meaning;

enum {
    ALWAYS = 0,
    SEARCHED = 1, /* "search" of genai_config.json has it too, which counts */
    SAMPLING = 2  /* it has an effect only with do_sample */
};

static const struct setting {
    const char *field;
    meaning meaning;
    double neutral;
    unsigned where;
} known[] = {
    {"num_beams", IF_ABOVE, 1, SEARCHED},
    {"num_beam_groups", IF_ABOVE, 1, ALWAYS},
    {"num_return_sequences", IF_ABOVE, 1, SEARCHED},
    {"penalty_alpha", IF_ABOVE, 0, ALWAYS},
    {"dola_layers", IF_ANY, 0, ALWAYS},
    {"constraints", IF_ANY, 0, ALWAYS},
    {"force_words_ids", IF_ANY, 0, ALWAYS},
    {"guidance_scale", IF_OTHER, 1, ALWAYS},
    {"sequence_bias", IF_ANY, 0, ALWAYS},
    {"repetition_penalty", IF_OTHER, 1, SEARCHED},
    {"encoder_repetition_penalty", IF_OTHER, 1, ALWAYS},
    {"encoder_no_repeat_ngram_size", IF_ABOVE, 0, ALWAYS},
    {"exponential_decay_length_penalty", IF_ANY, 0, ALWAYS},
    {"remove_invalid_values", IF_TRUE, 0, ALWAYS},
    {"return_timestamps", IF_TRUE, 0, ALWAYS},
    {"stop_strings", IF_ANY, 0, ALWAYS},
    {"token_healing", IF_TRUE, 0, ALWAYS},
    {"watermarking_config", IF_ANY, 0, ALWAYS},
    {"do_sample", IF_TRUE, 0, SEARCHED},
    {"temperature", IF_OTHER, 1, SEARCHED | SAMPLING},
    {"top_k", IF_ABOVE, 0, SEARCHED | SAMPLING},
    {"top_p", IF_BELOW, 1, SEARCHED | SAMPLING},
    {"min_p", IF_ABOVE, 0, SAMPLING},
    {"top_h", IF_ANY, 0, SAMPLING},
    {"typical_p", IF_BELOW, 1, SAMPLING},
    {"epsilon_cutoff", IF_ABOVE, 0, SAMPLING},
    {"eta_cutoff", IF_ABOVE, 0, SAMPLING},
};

static bool has_effect(const struct setting *s, const json_t *value) {
    const bool number = json_is_number(value);
    const double x = json_number_value(value);
    switch (s->meaning) {
    case IF_ABOVE:
        return number && x > s->neutral;
    case IF_BELOW:
        return number && x < s->neutral;
    case IF_OTHER:
        return number && x != s->neutral;
    case IF_TRUE:
        return json_is_true(value);
    case IF_ANY:
        break;
    }
    return value && !json_is_null(value) && !(json_is_array(value) && !json_array_size(value)) &&
           !(json_is_object(value) && !json_object_size(value));
}

/* ", FIELD is VALUE"; a long value is cut. */
static bool add(gqac_str *list, const char *field, const json_t *value) {
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_COMPACT |
                                       JSON_REAL_PRECISION(15));
    if (text)
        gqac_str_printf(list, "%s%s is %.40s", list->length ? ", " : "", field, text);
    free(text); /* jansson's */
    return text && !list->failed;
}

gqac_status not_obeyed_read(const json_t *config, const char *name, bool searched,
                            gqac_arena *arena, const char **out, gqac_diag *diag) {
    const bool samples = json_is_true(json_object_get(config, "do_sample"));
    const unsigned off = (searched ? SEARCHED : 0) | (samples ? 0 : SAMPLING);
    gqac_str list = {0};
    bool complete = true;
    *out = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct setting *s = &known[i];
        const json_t *value = json_object_get(config, s->field);
        if (!(s->where & off) && has_effect(s, value))
            complete = complete && add(&list, s->field, value);
    }
    if (complete && list.length)
        *out = gqac_arena_printf(arena, "%s: %s", name, list.text);
    complete = complete && !(list.length && !*out);
    gqac_str_free(&list);
    return complete ? GQAC_OK : gqac_diag_oom(diag, "a config");
}
