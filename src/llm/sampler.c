/* The next id of a row of logits: bias, penalties, rules, temperature, top-k, top-p, min-p, and one
 * draw.
 *
 * Every filter keeps the first ids in order of likelihood (ties: lowest id first), so one heap
 * serves all of them; the draw then goes through the kept ids in ascending order. Arithmetic is
 * scalar, in double, in a fixed order and with an exponential of our own, so every machine chooses
 * the same. */
#include "llm/rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/likelier.h"
#include "base/sized.h"

struct sampler {
    int64_t vocabulary;     /* most scores */
    int64_t n;              /* scores: of the vocabulary, or of the ids in `listed` alone */
    gqac_candidate *listed; /* in ascending order */
    size_t capacity;        /* of `listed` */
    double *score;          /* logits after the penalty; NaN: cannot be chosen */
    double *weight;         /* exp((score - best) / temperature) */
    int64_t *heap;          /* ids, the most likely first; removed ids lie after its end */
    int64_t size;           /* ids in the heap */
    unsigned char *mark;    /* all zero between uses */
};

gqac_status sampler_create(int64_t vocabulary, sampler **out, gqac_diag *diag) {
    size_t bytes = 0;
    if (vocabulary < 1 || vocabulary > INT32_MAX ||
        !gqac_mul_size((size_t)vocabulary, sizeof(double), &bytes))
        GQAC_FAIL(diag, GQAC_UNSUPPORTED, "cannot sample from a vocabulary of %lld ids",
                  (long long)vocabulary);
    sampler *s = gqac_calloc(1, sizeof *s);
    if (!s)
        return gqac_diag_oom(diag, "a sampler");
    s->vocabulary = vocabulary;
    s->score = gqac_alloc(bytes);
    s->weight = gqac_alloc(bytes);
    s->heap = gqac_alloc(bytes);
    s->mark = gqac_calloc((size_t)vocabulary, 1);
    const bool whole = s->score && s->weight && s->heap && s->mark;
    GQAC_RETURN_MADE(whole ? GQAC_OK : gqac_diag_oom(diag, "a sampler"), s, out, sampler_free);
}

void sampler_free(sampler *s) {
    if (!s)
        return;
    gqac_free(s->score);
    gqac_free(s->weight);
    gqac_free(s->heap);
    gqac_free(s->mark);
    gqac_free(s->listed);
    gqac_free(s);
}

static gqac_status refuse(gqac_diag *diag, const char *name, double value, const char *rule) {
    gqac_diag_set(diag, GQAC_USAGE, "%s is %g", name, value);
    gqac_diag_rule(diag, "%s", rule);
    return GQAC_USAGE;
}

gqac_status sampler_check(const gqac_sampling *o, gqac_diag *diag) {
    if (!(o->temperature >= 0 && isfinite(o->temperature)))
        return refuse(diag, "temperature", o->temperature, "temperature >= 0, and finite");
    if (o->top_k < 0)
        return refuse(diag, "top_k", (double)o->top_k, "top_k >= 0; 0: all ids");
    if (!(o->top_p > 0 && o->top_p <= 1))
        return refuse(diag, "top_p", o->top_p, "0 < top_p <= 1; 1: all ids");
    if (!(o->min_p >= 0 && o->min_p <= 1))
        return refuse(diag, "min_p", o->min_p, "0 <= min_p <= 1; 0: all ids");
    if (!(o->repetition_penalty > 0 && isfinite(o->repetition_penalty)))
        return refuse(diag, "repetition_penalty", o->repetition_penalty,
                      "repetition_penalty > 0, and finite; 1: no penalty");
    if (!isfinite(o->presence_penalty))
        return refuse(diag, "presence_penalty", o->presence_penalty, "finite; 0: no penalty");
    if (!isfinite(o->frequency_penalty))
        return refuse(diag, "frequency_penalty", o->frequency_penalty, "finite; 0: no penalty");
    if (o->n_bias < 0 || (o->n_bias && !o->bias))
        GQAC_FAIL(diag, GQAC_USAGE, "there are %d logit biases (n_bias), but no such list (bias)",
                  o->n_bias);
    for (int i = 0; i < o->n_bias; i++)
        if (!isfinite(o->bias[i].bias) && o->bias[i].bias != -INFINITY)
            return refuse(diag, "a logit bias", o->bias[i].bias, "finite, or -INFINITY");
    return GQAC_OK;
}

gqac_status sampler_check_ids(const gqac_sampling *o, int64_t vocabulary, gqac_diag *diag) {
    for (int i = 0; i < o->n_bias; i++)
        if (o->bias[i].id < 0 || o->bias[i].id >= vocabulary) {
            gqac_diag_set(diag, GQAC_OUT_OF_RANGE,
                          "token id %lld, which has a logit bias, is out of range",
                          (long long)o->bias[i].id);
            gqac_diag_rule(diag, "0 <= id < %lld", (long long)vocabulary);
            return GQAC_OUT_OF_RANGE;
        }
    return rules_check(o->rules, vocabulary, diag);
}

/* ---- random bits --------------------------------------------------------- */

void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c[4], k0 = key[0], k1 = key[1];
    memcpy(c, counter, sizeof c);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * c[0], b = (uint64_t)0xcd9e8d57u * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ c[3] ^ k1, (uint32_t)a};
        memcpy(c, next, sizeof c);
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    memcpy(out, c, sizeof c);
}

/* A number in [0, 1), a multiple of 2^-53. */
static double draw(const gqac_sampling *o, uint64_t position) {
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32),
                                 (uint32_t)o->request, (uint32_t)(o->request >> 32)};
    const uint32_t key[2] = {(uint32_t)o->seed, (uint32_t)(o->seed >> 32)};
    uint32_t bits[4];
    philox4x32(counter, key, bits);
    return (double)(((uint64_t)bits[0] << 32 | bits[1]) >> 11) * 0x1p-53;
}

/* ---- weights ------------------------------------------------------------- */

/* e^x for x <= 0, within 2 ulp; 0 if the result would not be a normal number. The C library's exp
 * differs between machines in the last bit. */
static double exp_down(double x) {
    if (!(x > -708.0))
        return 0;
    const double n = floor(x * 0x1.71547652b82fep+0 + 0.5); /* 1 / ln 2 */
    const double r = (x - n * 0x1.62e42fefa38p-1) - n * 0x1.ef35793c7673p-45;
    double sum = 1.0 / 6227020800; /* r^n / n! for n from 13 down */
    sum = sum * r + 1.0 / 479001600;
    sum = sum * r + 1.0 / 39916800;
    sum = sum * r + 1.0 / 3628800;
    sum = sum * r + 1.0 / 362880;
    sum = sum * r + 1.0 / 40320;
    sum = sum * r + 1.0 / 5040;
    sum = sum * r + 1.0 / 720;
    sum = sum * r + 1.0 / 120;
    sum = sum * r + 1.0 / 24;
    sum = sum * r + 1.0 / 6;
    sum = sum * r + 0.5;
    sum = sum * r + 1;
    sum = sum * r + 1;
    const uint64_t bits = (uint64_t)((int64_t)n + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

/* Logarithm of a weight: 0 for the best, -inf where the quotient overflows. */
static double below(double score, double best, double temperature) {
    return score == best ? 0 : (score - best) / temperature;
}

softmax sampler_softmax(const sampler *s, const float *logits) {
    softmax of = {.largest = -INFINITY};
    for (int64_t i = 0; i < s->vocabulary; i++)
        if (logits[i] > of.largest)
            of.largest = logits[i];
    for (int64_t i = 0; i < s->vocabulary; i++)
        if (!isnan(logits[i]))
            of.sum += exp_down(below(logits[i], of.largest, 1));
    return of;
}

void softmax_measure(const softmax *of, float logit, double *probability, double *log_probability) {
    const double x = below(logit, of->largest, 1);
    *probability = exp_down(x) / of->sum;
    *log_probability = x - log(of->sum);
}

static void add_bias(sampler *s, const gqac_sampling *o) {
    for (int i = 0; i < o->n_bias; i++) {
        const int64_t id = o->bias[i].id;
        if (id >= 0 && id < s->vocabulary)
            s->score[id] = o->bias[i].bias == -INFINITY ? NAN : s->score[id] + o->bias[i].bias;
    }
}

/* Presence and frequency penalties. The weights, which are not needed yet, hold the counts. */
static void penalise_answer(sampler *s, const gqac_sampling *o, const int64_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0 && ids[i] < s->vocabulary)
            s->weight[ids[i]] = 0;
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0 && ids[i] < s->vocabulary)
            s->weight[ids[i]]++;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= s->vocabulary || s->weight[ids[i]] <= 0)
            continue;
        s->score[ids[i]] -= s->weight[ids[i]] * o->frequency_penalty + o->presence_penalty;
        s->weight[ids[i]] = 0;
    }
}

/* Penalises each id of the history once. */
static void penalise(sampler *s, double penalty, const int64_t *history, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const int64_t id = history[i];
        if (id < 0 || id >= s->vocabulary || s->mark[id])
            continue;
        s->mark[id] = 1;
        s->score[id] = s->score[id] > 0 ? s->score[id] / penalty : s->score[id] * penalty;
    }
    for (size_t i = 0; i < n; i++)
        if (history[i] >= 0 && history[i] < s->vocabulary)
            s->mark[history[i]] = 0;
}

static bool before(const sampler *s, int64_t a, int64_t b) {
    return gqac_likelier(s->score[a], a, s->score[b], b);
}

/* The most likely id; -1: none can be chosen. */
static int64_t likeliest(const sampler *s) {
    int64_t best = -1;
    for (int64_t i = 0; i < s->n; i++)
        if (!isnan(s->score[i]) && (best < 0 || before(s, i, best)))
            best = i;
    return best;
}

/* Fills the weights; returns their sum. */
static double weigh(sampler *s, double best, double temperature) {
    double sum = 0;
    for (int64_t i = 0; i < s->n; i++) {
        const bool none = isnan(s->score[i]);
        s->weight[i] = none ? 0 : exp_down(below(s->score[i], best, temperature));
        sum += s->weight[i];
    }
    return sum;
}

/* ---- order of likelihood ------------------------------------------------- */

static void sink(sampler *s, int64_t at) {
    const int64_t id = s->heap[at];
    for (int64_t child = 2 * at + 1; child < s->size; child = 2 * at + 1) {
        if (child + 1 < s->size && before(s, s->heap[child + 1], s->heap[child]))
            child++;
        if (!before(s, s->heap[child], id))
            break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = id;
}

/* All ids that can be chosen, as a heap. */
static void heap_fill(sampler *s) {
    s->size = 0;
    for (int64_t i = 0; i < s->n; i++)
        if (!isnan(s->score[i]))
            s->heap[s->size++] = i;
    for (int64_t at = s->size / 2; at-- > 0;)
        sink(s, at);
}

/* Removes the most likely id, which is then at heap[size]. */
static int64_t heap_take(sampler *s) {
    const int64_t id = s->heap[0];
    s->heap[0] = s->heap[--s->size];
    sink(s, 0);
    s->heap[s->size] = id;
    return id;
}

int sampler_top(sampler *s, const softmax *of, const float *logits, int64_t n,
                gqac_scored_id *top) {
    const double log_sum = log(of->sum);
    int listed = 0;
    s->n = s->vocabulary;
    for (int64_t i = 0; i < s->n; i++)
        s->score[i] = logits[i];
    heap_fill(s);
    for (; listed < n && s->size > 0; listed++) {
        const int64_t id = heap_take(s);
        top[listed] = (gqac_scored_id){id, below(logits[id], of->largest, 1) - log_sum};
    }
    return listed;
}

/* ---- filters ------------------------------------------------------------- */

/* Applies top-k, top-p and min-p: ids that are left out get weight 0. */
static void filter(sampler *s, const gqac_sampling *o, double total) {
    heap_fill(s);
    const int64_t all = s->size;
    int64_t most = all, kept = 0;
    if (o->top_k > 0 && o->top_k < all) {
        most = o->top_k;
        total = 0;
        for (int64_t i = 0; i < most; i++)
            total += s->weight[heap_take(s)];
    }
    double reached = 0;
    while (kept < most) {
        /* what top-k took already lies at the end, in order */
        const int64_t id = all - kept > s->size ? s->heap[all - 1 - kept] : heap_take(s);
        if (kept && s->weight[id] < o->min_p)
            break;
        s->mark[id] = 1;
        kept++;
        reached += s->weight[id];
#ifdef GQAC_CONTROL_TOP_P_BOUNDARY /* negative control: ids that reach top_p exactly need one more \
                                    */
        if (o->top_p < 1 && reached > o->top_p * total)
            break;
#else
        if (o->top_p < 1 && reached >= o->top_p * total)
            break;
#endif
    }
    for (int64_t i = 0; i < s->n; i++) {
        if (!s->mark[i])
            s->weight[i] = 0;
        s->mark[i] = 0;
    }
}

/* The id at which the running sum of the weights exceeds `share` of their total. */
static int64_t walk(const sampler *s, double share) {
    double total = 0, passed = 0;
    int64_t last = -1;
    for (int64_t i = 0; i < s->n; i++)
        total += s->weight[i];
    for (int64_t i = 0; i < s->n; i++) {
        if (s->weight[i] <= 0)
            continue;
        passed += s->weight[i];
        last = i;
        if (passed > share * total)
            break;
    }
    return last;
}

static gqac_status none_follows(uint64_t position, gqac_diag *diag) {
    gqac_diag_set(diag, GQAC_INVALID_INPUT, "no id can follow at position %llu",
                  (unsigned long long)position);
    gqac_diag_rule(diag, "at least one id that may be chosen has a logit that is a number");
    gqac_diag_hint(diag,
                   "check whether the model overflows, or min_length, generation_config.json, a "
                   "bias or a hook bans all ids that are left");
    return GQAC_INVALID_INPUT;
}

/* Chooses by the scores: the most likely, or by a draw; -1: none can be chosen. */
static int64_t choose(sampler *s, const gqac_sampling *o, uint64_t position) {
    const int64_t best = likeliest(s);
    if (best < 0 || !(o->sample && o->temperature > 0))
        return best;
    const double total = weigh(s, s->score[best], o->temperature);
    if (o->top_k > 0 || o->top_p < 1 || o->min_p > 0)
        filter(s, o, total);
    return walk(s, draw(o, position));
}

gqac_status sampler_pick(sampler *s, const gqac_sampling *o, const float *logits,
                         const int64_t *history, size_t n_history, const int64_t *banned,
                         int n_banned, uint64_t position, int64_t *id, double *probability,
                         gqac_diag *diag) {
    s->n = s->vocabulary;
    for (int64_t i = 0; i < s->n; i++)
        s->score[i] = logits[i];
    add_bias(s, o);
    if (o->repetition_penalty != 1)
        penalise(s, o->repetition_penalty, history, n_history);
    if ((o->presence_penalty != 0 || o->frequency_penalty != 0) && o->n_prompt < n_history)
        penalise_answer(s, o, history + o->n_prompt, n_history - o->n_prompt);
    for (int i = 0; i < n_banned; i++)
        if (banned[i] >= 0 && banned[i] < s->vocabulary)
            s->score[banned[i]] = NAN;
    const rules_place place = {history, n_history, o->n_prompt, o->max_length};
    rules_apply(o->rules, &place, logits, s->score, s->vocabulary);
    const int64_t chosen = choose(s, o, position);
    if (chosen < 0)
        return none_follows(position, diag);
    *id = chosen;
    if (probability) {
        const softmax of = sampler_softmax(s, logits);
        softmax_measure(&of, logits[chosen], probability, &(double){0});
    }
    return GQAC_OK;
}

/* True if no setting changes a logit. */
static bool keeps_logits(const gqac_sampling *o) {
    return !o->n_bias && !o->rules && o->repetition_penalty == 1 && o->presence_penalty == 0 &&
           o->frequency_penalty == 0;
}

/* ---- by the likeliest ids -------------------------------------------------- */

int64_t sampler_needs(const gqac_sampling *o) {
    if (!keeps_logits(o))
        return 0;
    if (!(o->sample && o->temperature > 0))
        return 1;
    return o->top_k > 0 && o->top_k < GQAC_TOP_MOST ? o->top_k + 1 : 0;
}

static int by_id(const void *x, const void *y) {
    const gqac_candidate *a = x, *b = y;
    return (a->id > b->id) - (a->id < b->id);
}

/* Where top-k leaves ids out, the others have no part in any sum; one id more than top_k shows that
 * it does. Sums over all ids, and the draw, go through ids in ascending order. */
gqac_status sampler_pick_top(sampler *s, const gqac_sampling *o, const gqac_candidate *top,
                             int64_t n, uint64_t position, int64_t *id, gqac_diag *diag) {
    if (!gqac_reserve(&s->listed, (size_t)n, &s->capacity, sizeof *s->listed))
        return gqac_diag_oom(diag, "a sampler");
    s->n = 0;
    for (int64_t i = 0; i < n; i++)
        if (top[i].id >= 0)
            s->listed[s->n++] = top[i];
    qsort(s->listed, (size_t)s->n, sizeof *s->listed, by_id);
    for (int64_t i = 0; i < s->n; i++)
        s->score[i] = s->listed[i].logit;
    const int64_t chosen = choose(s, o, position);
    if (chosen < 0)
        return none_follows(position, diag);
    *id = s->listed[chosen].id;
    return GQAC_OK;
}

int64_t gqac_sampling_top(const gqac_sampling *sampling) {
    gqac_sampling own;
    gqac_sampling_init(&own);
    const bool valid =
        gqac_sized_take(&own, sizeof own, sampling, "gqac_sampling", NULL) == GQAC_OK &&
        sampler_check(&own, NULL) == GQAC_OK;
    return valid ? sampler_needs(&own) : 0;
}

gqac_status gqac_sample_top(const gqac_sampling *sampling, const gqac_candidate *top, int64_t n,
                            int64_t vocabulary, uint64_t position, int64_t *id, gqac_diag *diag) {
    sampler *s = NULL;
    gqac_sampling own;
    gqac_sampling_init(&own);
    GQAC_TRY(gqac_sized_take(&own, sizeof own, sampling, "gqac_sampling", diag));
    GQAC_TRY(sampler_check(&own, diag));
    const int64_t needs = sampler_needs(&own);
    if (!needs)
        GQAC_FAIL(diag, GQAC_USAGE, "these sampling settings need the whole row of logits");
    if (n < 1 || (n < needs && n < vocabulary))
        GQAC_FAIL(diag, GQAC_USAGE,
                  "%lld of the likeliest ids are given, but these sampling settings need %lld",
                  (long long)n, (long long)needs);
    GQAC_TRY(sampler_create(n, &s, diag));
    const gqac_status status = sampler_pick_top(s, &own, top, n, position, id, diag);
    sampler_free(s);
    return status;
}

/* ---- one choice ------------------------------------------------------------ */

/* sampler_pick for the most likely id, in one pass and without memory. */
static gqac_status pick_plain(const float *logits, int64_t vocabulary, uint64_t position,
                              int64_t *id, gqac_diag *diag) {
    int64_t best = -1;
    for (int64_t i = 0; i < vocabulary; i++)
        if (!isnan(logits[i]) && (best < 0 || logits[i] > logits[best]))
            best = i;
    if (best < 0)
        return none_follows(position, diag);
    *id = best;
    return GQAC_OK;
}

gqac_status gqac_sampling_check(const gqac_sampling *sampling, int64_t vocabulary,
                                gqac_diag *diag) {
    gqac_sampling own;
    gqac_sampling_init(&own);
    GQAC_TRY(gqac_sized_take(&own, sizeof own, sampling, "gqac_sampling", diag));
    GQAC_TRY(sampler_check(&own, diag));
    return sampler_check_ids(&own, vocabulary, diag);
}

gqac_status gqac_sample(const gqac_sampling *given, const float *logits, int64_t vocabulary,
                        const int64_t *history, size_t n_history, int64_t *id, double *probability,
                        gqac_diag *diag) {
    sampler *s = NULL;
    gqac_sampling own;
    const gqac_sampling *const options = &own;
    gqac_sampling_init(&own);
    GQAC_TRY(gqac_sized_take(&own, sizeof own, given, "gqac_sampling", diag));
    GQAC_TRY(sampler_check(options, diag));
    GQAC_TRY(sampler_check_ids(options, vocabulary, diag));
    if (sampler_needs(options) == 1 && !probability && vocabulary >= 1 && vocabulary <= INT32_MAX)
        return pick_plain(logits, vocabulary, n_history, id, diag);
    GQAC_TRY(sampler_create(vocabulary, &s, diag));
    const gqac_status status = sampler_pick(s, options, logits, history, n_history, NULL, 0,
                                            (uint64_t)n_history, id, probability, diag);
    sampler_free(s);
    return status;
}

gqac_status gqac_log_probabilities(const float *logits, int64_t vocabulary, int64_t id,
                                   double *log_probability, int64_t n_top, gqac_scored_id *top,
                                   int *listed, gqac_diag *diag) {
    double probability = 0;
    sampler alone = {.vocabulary = vocabulary}, *s = NULL;
    if (vocabulary < 1 || vocabulary > INT32_MAX)
        GQAC_FAIL(diag, GQAC_UNSUPPORTED, "the row has %lld logits, but must have from 1 to %d",
                  (long long)vocabulary, INT32_MAX);
    if (id < 0 || id >= vocabulary)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "token id %lld is not in [0, %lld)", (long long)id,
                  (long long)vocabulary);
    if (n_top < 0)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "n_top is %lld, but must not be negative",
                  (long long)n_top);
    const softmax of = sampler_softmax(&alone, logits);
    softmax_measure(&of, logits[id], &probability, log_probability);
    if (!n_top)
        return GQAC_OK;
    GQAC_TRY(sampler_create(vocabulary, &s, diag));
    *listed = sampler_top(s, &of, logits, n_top, top);
    sampler_free(s);
    return GQAC_OK;
}
