/* Reading and applying the ids that a config forbids and demands.
 *
 * Positions count the ids of prompt and answer from 0; for a decoder with an encoder, the prompt is
 * what the decoder begins with. What is demanded wins over what is forbidden. */
#include "llm/rules.h"

#include <gqac/files.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/common.h"

typedef struct id_list {
    int64_t *ids;
    size_t n;
} id_list;

/* The id at a position is one of these. */
typedef struct demand {
    size_t position;
    id_list ids; /* empty: any id */
    const char *field;
} demand;

struct gqac_token_rules {
    id_list suppressed, suppressed_first; /* everywhere; as the first id that is chosen freely */
    id_list *words;                       /* whose last id is not chosen after the others */
    size_t n_words;
    demand *demands; /* in ascending order of positions */
    size_t n_demands;
    demand first, last; /* of an answer to a prompt of one id; where an answer must end */
    int64_t repeated;   /* size of n-grams that do not occur twice; 0: all may */
    int64_t least;      /* ids before one that ends the answer: of prompt and answer, or ... */
    bool least_is_new;  /* ... of the answer alone */
    id_list ends;
    char digest[65];
};

/* ---- reading ------------------------------------------------------------- */

static const char forced_decoder[] = "forced_decoder_ids";

typedef struct reader {
    gqac_arena *arena;
    gqac_diag *diag;
} reader;

static gqac_status wrong(const reader *r, const char *field, const char *rule) {
    gqac_diag_set(r->diag, GQAC_INVALID_MODEL, "%s has the wrong form", field);
    gqac_diag_rule(r->diag, "%s", rule);
    return GQAC_INVALID_MODEL;
}

/* A list of ids, or, if `one` is true, also an id alone. */
static gqac_status read_list(const reader *r, const json_t *value, const char *field,
                             const char *rule, bool one, id_list *out) {
    const bool list = json_is_array(value);
    const size_t n = list ? json_array_size(value) : 1;
    if (!list && !one)
        return wrong(r, field, rule);
    out->ids = GQAC_ARENA_ARRAY(r->arena, int64_t, n + 1);
    if (!out->ids)
        return gqac_diag_oom(r->diag, "a config");
    for (size_t i = 0; i < n; i++) {
        const json_t *id = list ? json_array_get(value, i) : value;
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return wrong(r, field, rule);
        out->ids[out->n++] = json_integer_value(id);
    }
    return GQAC_OK;
}

/* A field that is null or absent leaves *out empty. */
static gqac_status read_ids(const reader *r, const json_t *config, const char *field, bool one,
                            id_list *out) {
    const json_t *value = json_object_get(config, field);
    return json_is_null(value) || !value
               ? GQAC_OK
               : read_list(r, value, field,
                           one ? "it is an id or a list of ids; ids are integers from 0"
                               : "it is a list of ids; ids are integers from 0",
                           one, out);
}

static gqac_status read_words(const reader *r, const json_t *config, gqac_token_rules *rules) {
    static const char field[] = "bad_words_ids";
    static const char rule[] = "it is a list of lists of ids; ids are integers from 0";
    const json_t *value = json_object_get(config, field);
    if (!value || json_is_null(value))
        return GQAC_OK;
    if (!json_is_array(value))
        return wrong(r, field, rule);
    rules->words = GQAC_ARENA_ARRAY(r->arena, id_list, json_array_size(value) + 1);
    if (!rules->words)
        return gqac_diag_oom(r->diag, "a config");
    for (size_t i = 0; i < json_array_size(value); i++) {
        id_list *word = &rules->words[rules->n_words];
        *word = (id_list){0};
        GQAC_TRY(read_list(r, json_array_get(value, i), field, rule, false, word));
        if (!word->n)
            return wrong(r, field, rule);
        rules->n_words++;
    }
    return GQAC_OK;
}

/* A field that is null or absent leaves *out as it is. Negative numbers have the effect of 0. */
static gqac_status read_count(const reader *r, const json_t *config, const char *field,
                              int64_t *out) {
    const json_t *value = json_object_get(config, field);
    const int64_t n = json_integer_value(value);
    if (!value || json_is_null(value))
        return GQAC_OK;
    if (!json_is_integer(value) || n < INT32_MIN || n > INT32_MAX)
        return wrong(r, field, "it is an integer of 32 bits");
    *out = n > 0 ? n : 0;
    return GQAC_OK;
}

/* min_new_tokens replaces min_length. */
static gqac_status read_least(const reader *r, const json_t *config, gqac_token_rules *rules) {
    int64_t fresh = -1;
    GQAC_TRY(read_count(r, config, "min_length", &rules->least));
    GQAC_TRY(read_count(r, config, "min_new_tokens", &fresh));
    rules->least_is_new = fresh >= 0;
    if (fresh >= 0)
        rules->least = fresh;
    return GQAC_OK;
}

/* Whisper's languages: {"<|en|>": id, ...}. */
static gqac_status read_languages(const reader *r, const json_t *config, id_list *out) {
    static const char field[] = "lang_to_id";
    const json_t *value = json_object_get(config, field);
    json_t *ids = json_array(), *id;
    const char *name;
    bool fine = ids != NULL;
    json_object_foreach((json_t *)(uintptr_t)value, name, id) fine =
        fine && json_array_append(ids, id) == 0;
    const gqac_status status =
        fine ? read_list(r, ids, field, "it maps languages to ids", false, out)
             : gqac_diag_oom(r->diag, "a config");
    json_decref(ids);
    return status;
}

/* A pair [position, id]. null is any id, but at position 1 any language, if the config has them. */
static gqac_status read_demand(const reader *r, const json_t *config, const json_t *pair,
                               demand *out) {
    static const char rule[] =
        "it is a list of pairs [position, id or null], with ascending positions from 1";
    const json_t *position = json_array_get(pair, 0), *id = json_array_get(pair, 1);
    const size_t before = out->position;
    *out = (demand){.field = forced_decoder};
    if (json_array_size(pair) != 2 || !json_is_integer(position) ||
        json_integer_value(position) <= (json_int_t)before ||
        json_integer_value(position) > INT32_MAX || json_is_array(id))
        return wrong(r, forced_decoder, rule);
    out->position = (size_t)json_integer_value(position);
    if (!json_is_null(id))
        return read_list(r, id, forced_decoder, rule, true, &out->ids);
    return out->position == 1 ? read_languages(r, config, &out->ids) : GQAC_OK;
}

/* Whisper's <|notimestamps|> follows what is forced, unless timestamps are wanted. */
static gqac_status add_no_timestamps(const reader *r, const json_t *config,
                                     gqac_token_rules *rules) {
    static const char field[] = "no_timestamps_token_id";
    demand next = {.position = rules->demands[rules->n_demands - 1].position + 1, .field = field};
    const id_list last = rules->demands[rules->n_demands - 1].ids;
    if (json_is_true(json_object_get(config, "return_timestamps")))
        return GQAC_OK;
    GQAC_TRY(read_ids(r, config, field, true, &next.ids));
    if (next.ids.n && !(last.n == 1 && *last.ids == *next.ids.ids))
        rules->demands[rules->n_demands++] = next;
    return GQAC_OK;
}

static gqac_status read_demands(const reader *r, const json_t *config, gqac_token_rules *rules) {
    const json_t *value = json_object_get(config, forced_decoder);
    demand next = {0};
    if (!value || json_is_null(value))
        return GQAC_OK;
    if (!json_is_array(value))
        return wrong(r, forced_decoder, "it is a list of pairs [position, id or null]");
    rules->demands = GQAC_ARENA_ARRAY(r->arena, demand, json_array_size(value) + 1);
    if (!rules->demands)
        return gqac_diag_oom(r->diag, "a config");
    for (size_t i = 0; i < json_array_size(value); i++) {
        GQAC_TRY(read_demand(r, config, json_array_get(value, i), &next));
        rules->demands[rules->n_demands++] = next;
    }
    return rules->n_demands ? add_no_timestamps(r, config, rules) : GQAC_OK;
}

/* The digest of the fields that were read. */
static gqac_status set_digest(const reader *r, const json_t *config, gqac_token_rules *rules) {
    static const char *const fields[] = {"bad_words_ids",        "begin_suppress_tokens",
                                         "forced_bos_token_id",  forced_decoder,
                                         "forced_eos_token_id",  "lang_to_id",
                                         "min_length",           "min_new_tokens",
                                         "no_repeat_ngram_size", "no_timestamps_token_id",
                                         "return_timestamps",    "suppress_tokens"};
    json_t *read = json_object();
    bool complete = read;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        json_t *value = json_object_get(config, fields[i]);
        complete = complete && (!value || json_object_set(read, fields[i], value) == 0);
    }
    char *text = complete ? json_dumps(read, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    if (text)
        gqac_digest(text, strlen(text), rules->digest);
    json_decref(read);
    free(text);
    return text ? GQAC_OK : gqac_diag_oom(r->diag, "a config");
}

gqac_status rules_read(const json_t *config, gqac_arena *arena, gqac_token_rules **out,
                       gqac_diag *diag) {
    const reader r = {arena, diag};
    gqac_token_rules rules = {.first = {.field = "forced_bos_token_id"},
                              .last = {.field = "forced_eos_token_id"}};
    *out = NULL;
    GQAC_TRY(read_ids(&r, config, "suppress_tokens", false, &rules.suppressed));
    GQAC_TRY(read_ids(&r, config, "begin_suppress_tokens", false, &rules.suppressed_first));
    GQAC_TRY(read_words(&r, config, &rules));
    GQAC_TRY(read_demands(&r, config, &rules));
    GQAC_TRY(read_ids(&r, config, rules.first.field, true, &rules.first.ids));
    GQAC_TRY(read_ids(&r, config, rules.last.field, true, &rules.last.ids));
    GQAC_TRY(read_count(&r, config, "no_repeat_ngram_size", &rules.repeated));
    GQAC_TRY(read_least(&r, config, &rules));
    if (!rules.suppressed.n && !rules.suppressed_first.n && !rules.n_words && !rules.n_demands &&
        !rules.first.ids.n && !rules.last.ids.n && !rules.repeated && !rules.least)
        return GQAC_OK;
    GQAC_TRY(set_digest(&r, config, &rules));
    *out = gqac_arena_copy(arena, &rules, sizeof rules);
    return *out ? GQAC_OK : gqac_diag_oom(diag, "a config");
}

const char *gqac_token_rules_digest(const gqac_token_rules *rules) {
    return rules ? rules->digest : "";
}

gqac_status rules_add_repeated(gqac_token_rules **rules, int64_t size, gqac_arena *arena,
                               gqac_diag *diag) {
    gqac_token_rules none = {0};
    char text[128];
    if (!size || (*rules && (*rules)->repeated))
        return GQAC_OK;
    if (!*rules)
        *rules = gqac_arena_copy(arena, &none, sizeof none);
    if (!*rules)
        return gqac_diag_oom(diag, "a config");
    (*rules)->repeated = size;
    snprintf(text, sizeof text, "%s %lld", (*rules)->digest, (long long)size);
    gqac_digest(text, strlen(text), (*rules)->digest);
    return GQAC_OK;
}

void rules_set_ends(gqac_token_rules *rules, const int64_t *eos, int n_eos) {
    const size_t n = rules ? rules->n_words : 0;
    if (!rules)
        return;
    rules->ends = (id_list){(int64_t *)(uintptr_t)eos, (size_t)n_eos};
    rules->n_words = 0;
    for (size_t i = 0; i < n; i++) {
        const id_list word = rules->words[i];
        if (word.n > 1 || !gqac_has_id(eos, (size_t)n_eos, *word.ids))
            rules->words[rules->n_words++] = word;
    }
}

static gqac_status check_demand(const demand *d, int64_t vocabulary, gqac_diag *diag) {
    for (size_t i = 0; i < d->ids.n; i++)
        if (d->ids.ids[i] >= vocabulary) {
            gqac_diag_set(diag, GQAC_INVALID_MODEL, "%s %lld is not a token id", d->field,
                          (long long)d->ids.ids[i]);
            gqac_diag_rule(diag, "0 <= id < %lld", (long long)vocabulary);
            gqac_diag_hint(diag, "use the generation_config.json and config.json of this model");
            return GQAC_INVALID_MODEL;
        }
    return GQAC_OK;
}

gqac_status rules_check(const gqac_token_rules *rules, int64_t vocabulary, gqac_diag *diag) {
    if (!rules)
        return GQAC_OK;
    for (size_t i = 0; i < rules->n_demands; i++)
        GQAC_TRY(check_demand(&rules->demands[i], vocabulary, diag));
    GQAC_TRY(check_demand(&rules->first, vocabulary, diag));
    return check_demand(&rules->last, vocabulary, diag);
}

static int64_t id_beyond(const id_list *list, int64_t vocabulary) {
    for (size_t i = 0; i < list->n; i++)
        if (list->ids[i] >= vocabulary)
            return list->ids[i];
    return -1;
}

int64_t gqac_token_rules_beyond(const gqac_token_rules *rules, int64_t vocabulary) {
    int64_t id = rules ? id_beyond(&rules->suppressed, vocabulary) : -1;
    if (rules && id < 0)
        id = id_beyond(&rules->suppressed_first, vocabulary);
    for (size_t i = 0; rules && i < rules->n_words && id < 0; i++)
        id = id_beyond(&rules->words[i], vocabulary);
    return id;
}

/* ---- applying ------------------------------------------------------------ */

/* The id after the history is the first that is chosen freely: a model may force the first id of an
 * answer to a prompt of one id, and forces all ids up to the last position that it names. */
static bool is_first(const gqac_token_rules *rules, const rules_place *at) {
    size_t first = at->n_prompt + (at->n_prompt == 1 && rules->first.ids.n);
    if (rules->n_demands && rules->demands[rules->n_demands - 1].position >= first)
        first = rules->demands[rules->n_demands - 1].position + 1;
    return at->n == first;
}

static void suppress(const id_list *list, double *score, int64_t vocabulary) {
    for (size_t i = 0; i < list->n; i++)
        if (list->ids[i] < vocabulary)
            score[list->ids[i]] = NAN;
}

/* True if the history ends with the ids of the word before its last. */
static bool is_begun(const id_list *word, const rules_place *at) {
    const size_t n = word->n - 1;
    return n <= at->n && (!n || !memcmp(at->history + at->n - n, word->ids, n * sizeof *word->ids));
}

/* Forbids each id with which the newest ids would repeat an n-gram of the history. */
static void suppress_repeated(size_t size, const rules_place *at, double *score,
                              int64_t vocabulary) {
    if (!size || at->n < size)
        return;
    const int64_t *newest = at->history + at->n - (size - 1);
    for (const int64_t *ngram = at->history; ngram < newest; ngram++) {
        const int64_t id = ngram[size - 1];
        if (id >= 0 && id < vocabulary && !memcmp(ngram, newest, (size - 1) * sizeof *ngram))
            score[id] = NAN;
    }
}

/* True if the answer is too short to end. */
static bool is_early(const gqac_token_rules *rules, const rules_place *at) {
    return at->n < (size_t)rules->least + (rules->least_is_new ? at->n_prompt : 0);
}

/* The ids one of which must be the next; NULL: any id may be. */
static const id_list *demanded(const gqac_token_rules *rules, const rules_place *at) {
    for (size_t i = 0; i < rules->n_demands; i++)
        if (rules->demands[i].position == at->n && rules->demands[i].ids.n)
            return &rules->demands[i].ids;
    if (rules->last.ids.n && at->n + 1 == at->max_length)
        return &rules->last.ids;
    return rules->first.ids.n && at->n == 1 ? &rules->first.ids : NULL;
}

static void demand_ids(const id_list *list, const float *logits, double *score,
                       int64_t vocabulary) {
    bool possible = false;
    for (size_t i = 0; i < list->n; i++)
        possible |= list->ids[i] < vocabulary && !isnan(logits[list->ids[i]]);
    if (!possible)
        return;
    for (int64_t i = 0; i < vocabulary; i++)
        score[i] = NAN;
    for (size_t i = 0; i < list->n; i++)
        if (list->ids[i] < vocabulary)
            score[list->ids[i]] = (double)logits[list->ids[i]];
}

void rules_apply(const gqac_token_rules *rules, const rules_place *at, const float *logits,
                 double *score, int64_t vocabulary) {
    if (!rules)
        return;
    suppress(&rules->suppressed, score, vocabulary);
    if (is_first(rules, at))
        suppress(&rules->suppressed_first, score, vocabulary);
    for (size_t i = 0; i < rules->n_words; i++)
        if (is_begun(&rules->words[i], at) &&
            rules->words[i].ids[rules->words[i].n - 1] < vocabulary)
            score[rules->words[i].ids[rules->words[i].n - 1]] = NAN;
    suppress_repeated((size_t)rules->repeated, at, score, vocabulary);
    if (is_early(rules, at))
        suppress(&rules->ends, score, vocabulary);
    const id_list *only = demanded(rules, at);
    if (only)
        demand_ids(only, logits, score, vocabulary);
}
