/* The sampler, compared with known answers of Philox, with a second sampler that sorts everything,
 * and with the distributions that the options describe (chi-square with fixed seeds). */
#include "unit.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "llm/llm.h"

static gqac_diag diag;

static const gqac_sampling plain = {.size = sizeof(gqac_sampling),
                                    .sample = true,
                                    .temperature = 1,
                                    .top_p = 1,
                                    .repetition_penalty = 1,
                                    .seed = 7,
                                    .request = 3};

/* A small generator for test data, different from the one that is tested. */
static uint64_t state = 88172645463325252ull;
static uint32_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}
static double uniform(void) {
    return next_random() / 4294967296.0;
}

static sampler *open_sampler(int64_t vocabulary) {
    sampler *s = NULL;
    CU_ASSERT_EQUAL_FATAL(sampler_create(vocabulary, &s, &diag), GQAC_OK);
    return s;
}

static int64_t pick_at(sampler *s, const gqac_sampling *options, const float *logits,
                       uint64_t position) {
    int64_t id = -1;
    CU_ASSERT_EQUAL_FATAL(
        sampler_pick(s, options, logits, NULL, 0, NULL, 0, position, &id, NULL, &diag), GQAC_OK);
    return id;
}

/* ---- Philox -------------------------------------------------------------- */

static void test_philox(void) {
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        philox4x32(known[i].counter, known[i].key, out);
        CU_ASSERT(!memcmp(out, known[i].out, sizeof out));
    }
}

/* ---- a second sampler ---------------------------------------------------- */

typedef struct ranked {
    double score;
    long double weight;
    int64_t id;
} ranked;

static int by_rank(const void *x, const void *y) {
    const ranked *a = x, *b = y;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static int by_id(const void *x, const void *y) {
    const ranked *a = x, *b = y;
    return a->id < b->id ? -1 : 1;
}

static bool holds(const int64_t *ids, size_t n, int64_t id) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

static size_t count_of(const int64_t *ids, size_t n, int64_t id) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ids[i] == id;
    return count;
}

/* The ids of a row that the options allow, in ascending order, with shares that add up to 1.
 * Returns their number. */
static size_t reference_set(const gqac_sampling *o, const float *logits, int64_t v,
                            const int64_t *history, size_t n_history, const int64_t *banned,
                            size_t n_banned, ranked *set) {
    size_t n = 0, kept = 0;
    long double total = 0, reached = 0;
    for (int64_t i = 0; i < v; i++) {
        double x = logits[i];
        for (int b = 0; b < o->n_bias; b++)
            if (o->bias[b].id == i)
                x = o->bias[b].bias == -INFINITY ? NAN : x + o->bias[b].bias;
        if (isnan(x) || holds(banned, n_banned, i))
            continue;
        if (holds(history, n_history, i))
            x = x > 0 ? x / o->repetition_penalty : x * o->repetition_penalty;
        const size_t count = n_history > o->n_prompt
                                 ? count_of(history + o->n_prompt, n_history - o->n_prompt, i)
                                 : 0;
        if (count)
            x -= (double)count * o->frequency_penalty + o->presence_penalty;
        set[n++] = (ranked){.score = x, .id = i};
    }
    if (!n)
        return 0;
    qsort(set, n, sizeof *set, by_rank);
    if (!o->sample || o->temperature == 0) {
        set->weight = 1;
        return 1;
    }
    if (o->top_k && (size_t)o->top_k < n)
        n = (size_t)o->top_k;
    for (size_t i = 0; i < n; i++) {
        const long double down = (long double)set[i].score - (long double)set[0].score;
        set[i].weight = set[i].score == set[0].score ? 1 : expl(down / o->temperature);
        total += set[i].weight;
    }
    while (kept < n) {
        if (kept && (o->top_p < 1 && reached >= (long double)o->top_p * total))
            break;
        if (kept && set[kept].weight < (long double)o->min_p)
            break;
        reached += set[kept++].weight;
    }
    qsort(set, kept, sizeof *set, by_id);
    for (size_t i = 0; i < kept; i++)
        set[i].weight /= reached;
    return kept;
}

static int64_t reference_pick(const gqac_sampling *o, const ranked *set, size_t n,
                              uint64_t position) {
    const uint32_t counter[] = {(uint32_t)position, (uint32_t)(position >> 32),
                                (uint32_t)o->request, (uint32_t)(o->request >> 32)};
    const uint32_t key[] = {(uint32_t)o->seed, (uint32_t)(o->seed >> 32)};
    uint32_t bits[4];
    philox4x32(counter, key, bits);
    const long double u = (long double)bits[0] / 4294967296.0L +
                          (long double)(bits[1] >> 11) / (4294967296.0L * 2097152.0L);
    long double sum = 0;
    int64_t last = -1;
    for (size_t i = 0; i < n; i++) {
        sum += set[i].weight;
        if (set[i].weight > 0)
            last = set[i].id;
        if (sum > u)
            break;
    }
    return last;
}

enum { ROWS = 10000, WIDEST = 300 };

static gqac_sampling random_options(int64_t v) {
    gqac_sampling o = plain;
    o.sample = next_random() % 10 != 0;
    o.temperature = next_random() % 3 ? 0.05 + 3 * uniform() : next_random() % 2;
    o.top_k = next_random() % 2 ? 0 : next_random() % (v + 3);
    o.top_p = next_random() % 2 ? 1 : 1 - uniform();
    o.min_p = next_random() % 3 ? 0 : uniform();
    o.repetition_penalty = next_random() % 2 ? 1 : 0.5 + uniform() * 2;
    if (next_random() % 3 == 0) {
        o.presence_penalty = 3 * uniform() - 1;
        o.frequency_penalty = 2 * uniform() - 0.5;
        o.n_prompt = next_random() % 30;
    }
    o.seed = (uint64_t)next_random() << 32 | next_random();
    o.request = (uint64_t)next_random() << 32 | next_random();
    return o;
}

/* Biases of ids 0 to n - 1; some of these ids are excluded. */
static void add_biases(gqac_sampling *o, gqac_logit_bias *list, int64_t v) {
    o->n_bias = next_random() % 3 ? 0 : (int)(next_random() % (v < 5 ? v : 5));
    o->bias = list;
    for (int i = 0; i < o->n_bias; i++) {
        list[i].id = (int64_t)(next_random() % v);
        list[i].bias = next_random() % 6 ? 4 * uniform() - 2 : -INFINITY;
    }
}

static void random_row(float *logits, int64_t v) {
    const bool ties = next_random() % 2, odd = next_random() % 4 == 0;
    for (int64_t i = 0; i < v; i++) {
        const double x = 4 * (uniform() + uniform() + uniform() - 1.5);
        logits[i] = (float)(ties ? floor(x) : x);
        if (odd && next_random() % 8 == 0)
            logits[i] = next_random() % 2 ? -INFINITY : NAN;
    }
    logits[next_random() % v] = 1; /* at least one number */
}

static void test_reference(void) {
    static float logits[WIDEST];
    static ranked set[WIDEST];
    int wrong = 0, empty = 0;
    for (int row = 0; row < ROWS; row++) {
        const int64_t v = 1 + next_random() % WIDEST;
        gqac_sampling o = random_options(v);
        gqac_logit_bias biases[5];
        add_biases(&o, biases, v);
        int64_t history[40], banned[2], id = -1;
        const size_t n_history = next_random() % 40, n_banned = next_random() % 3;
        for (size_t i = 0; i < n_history; i++) /* some twice, some outside the vocabulary */
            history[i] = (int64_t)(next_random() % (v + 4)) - 2;
        for (size_t i = 0; i < n_banned; i++)
            banned[i] = (int64_t)(next_random() % (v + 2)) - 1;
        random_row(logits, v);
        const uint64_t position = (uint64_t)next_random() << (next_random() % 2 ? 20 : 0);
        const size_t n = reference_set(&o, logits, v, history, n_history, banned, n_banned, set);
        sampler *s = open_sampler(v);
        const gqac_status status = sampler_pick(s, &o, logits, history, n_history, banned,
                                                (int)n_banned, position, &id, NULL, &diag);
        sampler_free(s);
        if (!n) { /* all numbers were excluded */
            CU_ASSERT_EQUAL(status, GQAC_INVALID_INPUT);
            empty++;
            continue;
        }
        wrong += status != GQAC_OK || id != reference_pick(&o, set, n, position);
    }
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT(empty < ROWS / 20);
    printf("  %d rows, %d differ\n", ROWS - empty, wrong);
}

/* ---- distributions ------------------------------------------------------- */

enum { SMALL = 20, DRAWS = 20000 };

static void fill_small(float *logits) {
    for (int i = 0; i < SMALL; i++)
        logits[i] = (float)(3 * sin(1.7 * i) + 0.1 * i);
    logits[4] = logits[9]; /* a tie */
}

/* Upper bound of chi-square with `df` degrees of freedom, exceeded once in 10,000 (Wilson and
 * Hilferty 1931). */
static double chi_bound(double df) {
    const double a = 2 / (9 * df);
    return df * pow(1 - a + 3.719 * sqrt(a), 3);
}

/* Draws at different positions (or of different requests) are distributed as in the reference. */
static void expect_distribution(const gqac_sampling *options, bool over_requests, size_t kept) {
    float logits[SMALL];
    ranked set[SMALL];
    int count[SMALL] = {0};
    fill_small(logits);
    const size_t n = reference_set(options, logits, SMALL, NULL, 0, NULL, 0, set);
    if (kept)
        CU_ASSERT_EQUAL(n, kept);
    sampler *s = open_sampler(SMALL);
    for (int i = 0; i < DRAWS; i++) {
        gqac_sampling o = *options;
        if (over_requests)
            o.request += (uint64_t)i;
        count[pick_at(s, &o, logits, over_requests ? 11 : (uint64_t)i)]++;
    }
    sampler_free(s);
    double chi = 0, df = -1;
    int seen = 0;
    for (size_t i = 0; i < n; i++) {
        const double expected = (double)set[i].weight * DRAWS;
        seen += count[set[i].id];
        if (expected < 5) /* too rare to count */
            continue;
        chi += (count[set[i].id] - expected) * (count[set[i].id] - expected) / expected;
        df++;
    }
    CU_ASSERT_EQUAL(seen, DRAWS); /* nothing outside the set */
    CU_ASSERT(df < 1 || chi < chi_bound(df));
    if (!(df < 1 || chi < chi_bound(df)))
        printf("chi-square %g, %g degrees, bound %g\n", chi, df, chi_bound(df));
}

static void test_distributions(void) {
    const struct {
        double t, p, m;
        int64_t k;
        size_t kept;
    } cases[] = {
        {1, 1, 0, 0, SMALL}, {0.5, 1, 0, 0, SMALL}, {2, 1, 0, 0, SMALL},   {1, 1, 0, 5, 5},
        {1, 1, 0, 1, 1},     {1, 0.8, 0, 0, 0},     {1, 0.5, 0, 0, 0},     {1, 1, 0.2, 0, 0},
        {1, 0.9, 0.1, 8, 0}, {1.5, 0.7, 0, 10, 0},  {1, 1, 0, 100, SMALL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gqac_sampling o = plain;
        o.temperature = cases[i].t;
        o.top_p = cases[i].p;
        o.min_p = cases[i].m;
        o.top_k = cases[i].k;
        expect_distribution(&o, false, cases[i].kept);
        expect_distribution(&o, true, cases[i].kept);
    }
}

/* The draw depends on seed, request and position, and only on these. */
static void test_draw_identity(void) {
    float logits[SMALL] = {0};
    sampler *s = open_sampler(SMALL), *other = open_sampler(SMALL);
    int same[3] = {0};
    for (uint64_t i = 0; i < 1000; i++) {
        gqac_sampling o = plain, seed = plain, request = plain;
        seed.seed += 1ull << 40;
        request.request += 1ull << 40;
        const int64_t id = pick_at(s, &o, logits, i);
        CU_ASSERT_EQUAL(pick_at(other, &o, logits, i), id);
        same[0] += pick_at(s, &seed, logits, i) == id;
        same[1] += pick_at(s, &request, logits, i) == id;
        same[2] += pick_at(s, &o, logits, i + (1ull << 40)) == id;
    }
    for (int k = 0; k < 3; k++) /* about 50 of 1000 by chance */
        CU_ASSERT(same[k] > 20 && same[k] < 90);
    sampler_free(s);
    sampler_free(other);
}

/* ---- edges --------------------------------------------------------------- */

/* Every one of many draws is `id`. */
static void expect_always(const gqac_sampling *o, const float *logits, int64_t v, int64_t id) {
    sampler *s = open_sampler(v);
    int wrong = 0;
    for (uint64_t i = 0; i < 500; i++)
        wrong += pick_at(s, o, logits, i) != id;
    CU_ASSERT_EQUAL(wrong, 0);
    sampler_free(s);
}

/* The public call chooses as `pick` does with a history. */
static void test_sample(void) {
    enum { V = 40 };
    float logits[V];
    const int64_t history[] = {3, 9, 3};
    sampler *s = open_sampler(V);
    gqac_sampling o = plain;
    o.repetition_penalty = 1.5;
    for (o.seed = 0; o.seed < 50; o.seed++) {
        for (int i = 0; i < V; i++)
            logits[i] = (float)(6 * uniform() - 3);
        int64_t expected = -1, id = -1;
        double chance = 0, told = 0;
        CU_ASSERT_EQUAL(
            sampler_pick(s, &o, logits, history, 3, NULL, 0, 3, &expected, &chance, &diag),
            GQAC_OK);
        CU_ASSERT_EQUAL(gqac_sample(&o, logits, V, history, 3, &id, &told, &diag), GQAC_OK);
        CU_ASSERT(id == expected && told == chance);
        CU_ASSERT_EQUAL(gqac_sample(&o, logits, V, history, 3, &id, NULL, &diag), GQAC_OK);
        CU_ASSERT_EQUAL(id, expected);
    }
    o.top_p = 2;
    int64_t id = -1;
    CU_ASSERT_EQUAL(gqac_sample(&o, logits, V, NULL, 0, &id, NULL, &diag), GQAC_USAGE);
    sampler_free(s);
}

/* Without settings that change logits, the call chooses the likeliest id without allocating memory;
 * the result is the same. */
static void test_sample_likeliest(void) {
    static const float values[] = {-INFINITY, -2, 0.5f, 3, INFINITY, NAN};
    float row[5];
    const float nans[] = {NAN, NAN};
    gqac_sampling o = plain;
    sampler *s = open_sampler(5);
    int64_t id = -1, expected = -1;
    for (int k = 0; k < 2; k++) {
        o.sample = k;
        o.temperature = 0;
        for (int i = 0; i < 2000; i++) {
            for (int j = 0; j < 5; j++)
                row[j] = values[next_random() % (j ? 6 : 5)]; /* the first one is a number */
            CU_ASSERT_EQUAL(sampler_pick(s, &o, row, NULL, 0, NULL, 0, 0, &expected, NULL, &diag),
                            GQAC_OK);
            gqac_alloc_fail_at(1, 1);
            CU_ASSERT_EQUAL(gqac_sample(&o, row, 5, NULL, 0, &id, NULL, &diag), GQAC_OK);
            CU_ASSERT_EQUAL(id, expected);
            CU_ASSERT_EQUAL(gqac_alloc_calls(), 0);
            gqac_alloc_fail_at(0, 0);
        }
        CU_ASSERT_EQUAL(gqac_sample(&o, nans, 2, NULL, 9, &id, NULL, &diag), GQAC_INVALID_INPUT);
        CU_ASSERT(strstr(diag.what, "position 9") && *diag.rule && *diag.hint);
        CU_ASSERT_EQUAL(gqac_sample(&o, row, 0, NULL, 0, &id, NULL, &diag), GQAC_UNSUPPORTED);
    }
    sampler_free(s);
}

/* The likeliest ids of a row in order, at most n, as in gqac_context_top. */
static void list_top(const float *row, int64_t v, int64_t n, gqac_candidate *top) {
    ranked all[64];
    int64_t count = 0;
    for (int64_t i = 0; i < v; i++)
        if (!isnan(row[i]))
            all[count++] = (ranked){.score = row[i], .id = i};
    qsort(all, (size_t)count, sizeof *all, by_rank);
    for (int64_t i = 0; i < n; i++)
        top[i] = (gqac_candidate){.id = i < count ? all[i].id : -1,
                                  .logit = i < count ? row[all[i].id] : NAN};
}

/* With as many of the likeliest ids as needed, or with more, the draw equals that from the whole
 * row: ties, NaN, top_k below, at and above the number of ids that can be chosen. */
static void test_sample_top(void) {
    static const int64_t ks[] = {1, 2, 5, 39, 40, 41, 1023};
    enum { V = 40, ROWS = 400 };
    float row[V];
    gqac_candidate top[V];
    for (int i = 0; i < ROWS; i++) {
        random_row(row, V);
        for (int j = 0; i % 4 == 0 && j < V; j++)
            row[j] = (float)(next_random() % 3);
        for (int j = 1; i % 3 == 0 && j < V; j++)
            row[j] = next_random() % 2 ? NAN : row[j];
        for (size_t k = 0; k < sizeof ks / sizeof *ks; k++) {
            gqac_sampling o = plain;
            o.sample = i % 10 > 0;
            o.top_k = ks[k];
            o.temperature = 0.3 + uniform();
            o.top_p = i % 2 ? 1 : 0.05 + 0.95 * uniform();
            o.min_p = i % 5 ? 0 : uniform();
            const int64_t needs = gqac_sampling_top(&o), least = needs < V ? needs : V;
            CU_ASSERT_EQUAL(needs, o.sample ? ks[k] + 1 : 1);
            for (int64_t n = least; n <= V; n += V - least ? V - least : 1) {
                int64_t expected = -1, id = -1;
                const uint64_t at = (uint64_t)i;
                list_top(row, V, n, top);
                CU_ASSERT_EQUAL(
                    gqac_sample(&o, row, V, (const int64_t[ROWS]){0}, at, &expected, NULL, &diag),
                    GQAC_OK);
                CU_ASSERT_EQUAL(gqac_sample_top(&o, top, n, V, at, &id, &diag), GQAC_OK);
                CU_ASSERT_EQUAL(id, expected);
            }
        }
    }
}

static void test_sample_top_refused(void) {
    const gqac_logit_bias bias = {.id = 7, .bias = 1};
    const gqac_candidate some[] = {{3, 1}, {1, 0}}, nan[] = {{-1, NAN}};
    int64_t id = -1;
    gqac_sampling whole[7];
    for (int i = 0; i < 7; i++)
        whole[i] = plain;
    whole[1].repetition_penalty = 2;
    whole[2].presence_penalty = 1;
    whole[3].frequency_penalty = 1;
    whole[4].n_bias = 1;
    whole[4].bias = &bias;
    whole[5].top_k = GQAC_TOP_MOST;
    whole[6].top_k = -1;
    for (int i = 0; i < 7; i++) {
        whole[i].top_k = whole[i].top_k ? whole[i].top_k : i > 0; /* the first: none */
        CU_ASSERT_EQUAL(gqac_sampling_top(&whole[i]), 0);
        CU_ASSERT_EQUAL(gqac_sample_top(&whole[i], some, 2, 9, 0, &id, &diag), GQAC_USAGE);
    }
    CU_ASSERT_EQUAL(gqac_sampling_top(NULL), 1);
    gqac_sampling o = plain;
    o.top_k = 2;
    CU_ASSERT_EQUAL(gqac_sample_top(&o, some, 2, 9, 0, &id, &diag), GQAC_USAGE);
    CU_ASSERT(strstr(diag.what, "2 of the likeliest") && strstr(diag.what, "need 3"));
    CU_ASSERT_EQUAL(gqac_sample_top(&o, some, 2, 2, 0, &id, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sample_top(NULL, some, 0, 0, 0, &id, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(gqac_sample_top(NULL, some, 1, 9, 0, &id, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(id, 3);
    CU_ASSERT_EQUAL(gqac_sample_top(NULL, nan, 1, 9, 4, &id, &diag), GQAC_INVALID_INPUT);
    CU_ASSERT(strstr(diag.what, "position 4") != NULL);
    const size_t live = gqac_alloc_live();
    for (size_t n = 1; n <= 6; n++) {
        gqac_alloc_fail_at(n, 0);
        CU_ASSERT_EQUAL(gqac_sample_top(&o, some, 2, 2, 0, &id, &diag), GQAC_NO_MEMORY);
        gqac_alloc_fail_at(0, 0);
        CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    }
}

static void test_sampling_check(void) {
    const gqac_logit_bias bias = {.id = 7, .bias = 1};
    gqac_sampling o = plain;
    o.n_bias = 1;
    o.bias = &bias;
    CU_ASSERT_EQUAL(gqac_sampling_check(&o, 8, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sampling_check(&o, 7, &diag), GQAC_OUT_OF_RANGE);
    o.top_p = 2;
    CU_ASSERT_EQUAL(gqac_sampling_check(&o, 8, &diag), GQAC_USAGE);
    o.size = 3;
    CU_ASSERT_EQUAL(gqac_sampling_check(&o, 8, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(gqac_sampling_check(NULL, 8, &diag), GQAC_OK);
}

static void test_edges(void) {
    const float row[] = {1, 3, 2, 3, -1, 3}, one[] = {-5};
    const float low[] = {-INFINITY, 2, -INFINITY, NAN}, floor_only[] = {NAN, -INFINITY, -INFINITY};
    const float top[] = {1, INFINITY, 3e38f};
    gqac_sampling o = plain;
    o.top_p = 1e-300;
    expect_always(&o, row, 6, 1); /* one of three equal ones: the lowest */
    o = plain;
    o.top_k = 1;
    expect_always(&o, row, 6, 1);
    o = plain;
    o.temperature = 0;
    expect_always(&o, row, 6, 1);
    o.temperature = 1e-6;
    o.top_k = 1;
    expect_always(&o, row, 6, 1);
    o = plain;
    o.temperature = DBL_MIN; /* only the likeliest ids are left, and nothing overflows */
    o.top_k = 4;
    sampler *s = open_sampler(6);
    bool seen[6] = {0};
    for (uint64_t i = 0; i < 200; i++)
        seen[pick_at(s, &o, row, i)] = true;
    CU_ASSERT(seen[1] && seen[3] && seen[5] && !seen[0] && !seen[2] && !seen[4]);
    o = plain;
    o.min_p = 1;
    memset(seen, 0, sizeof seen);
    for (uint64_t i = 0; i < 200; i++)
        seen[pick_at(s, &o, row, i)] = true;
    CU_ASSERT(seen[1] && seen[3] && seen[5] && !seen[0] && !seen[2] && !seen[4]);
    sampler_free(s);
    expect_always(&plain, one, 1, 0);
    expect_always(&plain, low, 4, 1);
    expect_always(&plain, top, 3, 1);
    o = plain;
    o.sample = false;
    expect_always(&o, low, 4, 1);
    expect_always(&o, floor_only, 3, 1);
    o.sample = true;
    o.top_k = 1;
    expect_always(&o, floor_only, 3, 1);
}

static void test_nothing_left(void) {
    const float nans[] = {NAN, NAN}, row[] = {1, 2};
    const int64_t both[] = {1, 0};
    int64_t id = -7;
    sampler *s = open_sampler(2);
    for (int sample = 0; sample < 2; sample++) {
        gqac_sampling o = plain;
        o.sample = sample;
        memset(&diag, 0, sizeof diag);
        CU_ASSERT_EQUAL(sampler_pick(s, &o, nans, NULL, 0, NULL, 0, 5, &id, NULL, &diag),
                        GQAC_INVALID_INPUT);
        CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "5"));
        CU_ASSERT(*diag.rule && *diag.hint);
        CU_ASSERT_EQUAL(sampler_pick(s, &o, row, NULL, 0, both, 2, 5, &id, NULL, &diag),
                        GQAC_INVALID_INPUT);
        CU_ASSERT_EQUAL(sampler_pick(s, &o, row, NULL, 0, both, 1, 5, &id, NULL, &diag), GQAC_OK);
        CU_ASSERT_EQUAL(id, 0);
    }
    sampler_free(s);
}

/* A positive logit is divided, a negative one multiplied, once for each id. */
static void test_penalty(void) {
    const float row[] = {4, 3, -1, -1.5f};
    const int64_t history[] = {0, 0, 0, -3, 99, 0}, lows[] = {2, 2};
    const int64_t high[] = {0, 1};
    gqac_sampling o = plain;
    int64_t id = -1;
    sampler *s = open_sampler(4);
    o.sample = false;
    o.repetition_penalty = 1.3; /* 4 / 1.3 = 3.08 > 3, but 4 / 1.3 / 1.3 is less */
    CU_ASSERT_EQUAL(sampler_pick(s, &o, row, history, 6, NULL, 0, 0, &id, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(id, 0);
    o.repetition_penalty = 1.4;
    CU_ASSERT_EQUAL(sampler_pick(s, &o, row, history, 6, NULL, 0, 0, &id, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(id, 1);
    o.repetition_penalty = 1.6; /* -1 * 1.6 < -1.5 */
    CU_ASSERT_EQUAL(sampler_pick(s, &o, row, lows, 2, high, 2, 0, &id, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(id, 3);
    o.repetition_penalty = 0.5; /* a reward: -1.5 * 0.5 > -1 */
    CU_ASSERT_EQUAL(sampler_pick(s, &o, row, lows + 1, 1, high, 2, 0, &id, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(id, 2);
    CU_ASSERT_EQUAL(sampler_pick(s, &plain, row, NULL, 0, NULL, 0, 0, &id, NULL, &diag), GQAC_OK);
    sampler_free(s);
}

/* Presence counts once, frequency each time; the prompt counts for neither. */
static void test_answer_penalties(void) {
    const float row[] = {4, 3, 2, 1};
    const int64_t history[] = {0, 0, 0, 0, 1, 1, 1, -1, 9};
    gqac_sampling o = plain;
    int64_t id = -1;
    o.sample = false;
    o.n_prompt = 3; /* the answer has id 0 once and id 1 three times */
    o.presence_penalty = 0.5;
    CU_ASSERT_EQUAL(gqac_sample(&o, row, 4, history, 9, &id, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(id, 0); /* 3.5, 2.5 */
    o.presence_penalty = 2.5;
    CU_ASSERT_EQUAL(gqac_sample(&o, row, 4, history, 9, &id, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(id, 2); /* 1.5, 0.5, 2 */
    o.presence_penalty = 0;
    o.frequency_penalty = 0.9; /* 3.1, 0.3 */
    CU_ASSERT_EQUAL(gqac_sample(&o, row, 4, history, 9, &id, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(id, 0);
    o.n_prompt = 0; /* id 0 four times: 0.4 */
    CU_ASSERT_EQUAL(gqac_sample(&o, row, 4, history, 9, &id, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(id, 2);
    o.presence_penalty = 1.75; /* once: 2.25, 1.25, 2, 1 */
    o.frequency_penalty = 0;
    CU_ASSERT_EQUAL(gqac_sample(&o, row, 4, history, 9, &id, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(id, 0);
    o.n_prompt = 99;
    CU_ASSERT_EQUAL(gqac_sample(&o, row, 4, history, 9, &id, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(id, 0);
}

static void test_bias(void) {
    const float row[] = {4, 3, 2, NAN};
    gqac_logit_bias bias[] = {{0, -1.5}, {2, 0.25}, {3, 100}};
    gqac_sampling o = plain;
    int64_t id = -1;
    o.sample = false;
    o.bias = bias;
    for (o.n_bias = 0; o.n_bias <= 3; o.n_bias++) {
        CU_ASSERT_EQUAL(gqac_sample(&o, row, 4, NULL, 0, &id, NULL, &diag), GQAC_OK);
        CU_ASSERT_EQUAL(id, o.n_bias > 0);
    }
    o.n_bias = 3;
    bias[0].bias = bias[2].bias = -INFINITY;
    CU_ASSERT_EQUAL(gqac_sample(&o, row, 4, NULL, 0, &id, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(id, 1);
    bias[1] = (gqac_logit_bias){1, -INFINITY};
    CU_ASSERT_EQUAL(gqac_sample(&o, row, 2, NULL, 0, &id, NULL, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT(strstr(diag.what, "token id 3") && *diag.rule);
    o.n_bias = 2;
    CU_ASSERT_EQUAL(gqac_sample(&o, row, 2, NULL, 0, &id, NULL, &diag), GQAC_INVALID_INPUT);
    bias[0].id = -1;
    CU_ASSERT_EQUAL(gqac_sample(&o, row, 2, NULL, 0, &id, NULL, &diag), GQAC_OUT_OF_RANGE);
}

/* The n likeliest ids, with the logarithms of their shares. */
static void test_top(void) {
    float row[SMALL];
    gqac_scored_id top[SMALL + 2];
    sampler *s = open_sampler(SMALL);
    for (int i = 0; i < 300; i++) {
        random_row(row, SMALL);
        int numbers = 0;
        long double sum = 0;
        for (int j = 0; j < SMALL; j++) {
            numbers += !isnan(row[j]);
            sum += isnan(row[j]) ? 0 : expl(row[j]);
        }
        const int64_t asked = i % (SMALL + 3);
        const softmax of = sampler_softmax(s, row);
        const int n = sampler_top(s, &of, row, asked, top);
        CU_ASSERT_EQUAL(n, asked < numbers ? (int)asked : numbers);
        for (int j = 0; j < n; j++) {
            const double expected = (double)(row[top[j].id] - logl(sum));
            double p, log_p;
            CU_ASSERT(top[j].log_probability == expected ||
                      fabs(top[j].log_probability - expected) < 1e-12);
            softmax_measure(&of, row[top[j].id], &p, &log_p);
            CU_ASSERT(log_p == top[j].log_probability);
            CU_ASSERT(fabs(p - exp(log_p)) < 1e-12);
            for (int k = 0; k < j; k++)
                CU_ASSERT(top[k].id != top[j].id);
            if (j)
                CU_ASSERT(row[top[j - 1].id] > row[top[j].id] ||
                          (row[top[j - 1].id] == row[top[j].id] && top[j - 1].id < top[j].id));
        }
    }
    sampler_free(s);
}

/* The sum over the vocabulary is computed once: both readers use the sum that they receive. */
static void test_one_sum(void) {
    const float row[SMALL] = {3, 1, 2};
    sampler *s = open_sampler(SMALL);
    softmax of = sampler_softmax(s, row);
    gqac_scored_id top[2];
    double p, log_p;
    of.sum *= 2;
    CU_ASSERT_EQUAL(sampler_top(s, &of, row, 2, top), 2);
    softmax_measure(&of, row[0], &p, &log_p);
    CU_ASSERT(top[0].id == 0 && top[1].id == 2);
    CU_ASSERT_DOUBLE_EQUAL(top[0].log_probability, -log(of.sum), 0);
    CU_ASSERT_DOUBLE_EQUAL(log_p, -log(of.sum), 0);
    CU_ASSERT_DOUBLE_EQUAL(p, 1 / of.sum, 0);
    sampler_free(s);
}

/* The probability is that of the model, whatever the options do. */
static void test_probability(void) {
    float row[SMALL];
    double worst = 0;
    sampler *s = open_sampler(SMALL);
    for (uint64_t i = 0; i < 2000; i++) {
        gqac_sampling o = random_options(SMALL);
        const int64_t history[] = {1, 2, 3};
        int64_t id = 0;
        double p = 0;
        random_row(row, SMALL);
        for (int j = 0; j < SMALL; j++)
            row[j] *= (float)(i % 50);
        row[0] = 0;
        CU_ASSERT_EQUAL_FATAL(sampler_pick(s, &o, row, history, 3, NULL, 0, i, &id, &p, &diag),
                              GQAC_OK);
        long double best = -INFINITY, sum = 0;
        for (int j = 0; j < SMALL; j++)
            best = row[j] > best ? row[j] : best;
        for (int j = 0; j < SMALL; j++)
            sum += isnan(row[j]) ? 0 : expl(row[j] - best);
        const double expected = (double)(expl(row[id] - best) / sum);
        const double off = expected > 1e-290 ? fabs(p - expected) / expected : 0;
        worst = off > worst ? off : worst;
    }
    CU_ASSERT(worst < 4e-15);
    sampler_free(s);
}

/* A vocabulary of realistic size: the filters agree with the full sort. */
static void test_large_vocabulary(void) {
    enum { LARGE = 128256 };
    float *logits = malloc(LARGE * sizeof *logits);
    ranked *set = malloc(LARGE * sizeof *set);
    sampler *s = open_sampler(LARGE);
    for (int64_t i = 0; i < LARGE; i++)
        logits[i] = (float)(8 * (uniform() + uniform() - 1));
    const struct {
        double p, m;
        int64_t k;
    } cases[] = {{1, 0, 0}, {1, 0, 50}, {0.9, 0, 0}, {0.95, 0.05, 40}, {1, 0.3, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        gqac_sampling o = plain;
        o.top_p = cases[c].p;
        o.min_p = cases[c].m;
        o.top_k = cases[c].k;
        const size_t n = reference_set(&o, logits, LARGE, NULL, 0, NULL, 0, set);
        for (uint64_t i = 0; i < 20; i++)
            CU_ASSERT_EQUAL(pick_at(s, &o, logits, i), reference_pick(&o, set, n, i));
    }
    sampler_free(s);
    free(set);
    free(logits);
}

static void test_options(void) {
    static const gqac_logit_bias biases[] = {{0, NAN}, {0, INFINITY}};
    gqac_sampling bad[18];
    for (size_t i = 0; i < 18; i++)
        bad[i] = plain;
    bad[0].temperature = -1;
    bad[1].temperature = NAN;
    bad[2].temperature = INFINITY;
    bad[3].top_k = -1;
    bad[4].top_p = 0;
    bad[5].top_p = 1.01;
    bad[6].top_p = NAN;
    bad[7].min_p = -0.1;
    bad[8].min_p = 1.1;
    bad[9].min_p = NAN;
    bad[10].repetition_penalty = 0;
    bad[11].repetition_penalty = -1;
    bad[12].repetition_penalty = NAN;
    bad[13].presence_penalty = NAN;
    bad[14].frequency_penalty = INFINITY;
    for (int i = 15; i < 18; i++) {
        bad[i].n_bias = 1;
        bad[i].bias = i < 17 ? &biases[i - 15] : NULL;
    }
    static const char *const names[] = {"temperature",
                                        "temperature",
                                        "temperature",
                                        "top_k",
                                        "top_p",
                                        "top_p",
                                        "top_p",
                                        "min_p",
                                        "min_p",
                                        "min_p",
                                        "repetition_penalty",
                                        "repetition_penalty",
                                        "repetition_penalty",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "logit bias",
                                        "logit bias",
                                        "logit biases"};
    for (size_t i = 0; i < 18; i++) {
        memset(&diag, 0, sizeof diag);
        CU_ASSERT_EQUAL(sampler_check(&bad[i], &diag), GQAC_USAGE);
        CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, names[i]));
        CU_ASSERT(*diag.rule || i == 17);
    }
    CU_ASSERT_EQUAL(sampler_check(&plain, &diag), GQAC_OK);
    sampler *s = NULL;
    CU_ASSERT_EQUAL(sampler_create(0, &s, &diag), GQAC_UNSUPPORTED);
    CU_ASSERT_EQUAL(sampler_create(INT64_MAX, &s, &diag), GQAC_UNSUPPORTED);
    const size_t live = gqac_alloc_live();
    for (size_t n = 1; n <= 5; n++) {
        gqac_alloc_fail_at(n, 0);
        CU_ASSERT_EQUAL(sampler_create(9, &s, &diag), GQAC_NO_MEMORY);
        gqac_alloc_fail_at(0, 0);
        CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    }
}

/* Equal logits have exact shares: ids that reach top_p exactly are sufficient. top_k also counts
 * all ids but the last. */
static void test_top_p_boundary(void) {
    static const struct {
        float p;
        int64_t k, kept;
    } rows[] = {{0.25f, 0, 2}, {0.5f, 0, 4}, {0.75f, 0, 6}, {0.125f, 0, 1},
                {0.5f, 4, 2},  {1, 1, 1},    {1, 7, 7},     {1, 8, 8}};
    const float logits[8] = {2, 2, 2, 2, 2, 2, 2, 2};
    sampler *s = open_sampler(8);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gqac_sampling o = plain;
        unsigned seen = 0;
        o.top_p = rows[i].p;
        o.top_k = rows[i].k;
        for (uint64_t position = 0; position < 200; position++)
            seen |= 1u << pick_at(s, &o, logits, position);
        CU_ASSERT_EQUAL(seen, (1u << rows[i].kept) - 1);
    }
    sampler_free(s);
}

static const unit_case cases[] = {
    {"Philox4x32-10 gives the known answers", test_philox},
    {"10,000 rows: as a sampler that sorts", test_reference},
    {"distributions over positions and requests", test_distributions},
    {"the draw is a function of seed, request, position", test_draw_identity},
    {"sample", test_sample},
    {"sample the likeliest id", test_sample_likeliest},
    {"from the likeliest ids as from the row", test_sample_top},
    {"the likeliest ids are not enough", test_sample_top_refused},
    {"check of settings", test_sampling_check},
    {"edges", test_edges},
    {"nothing can be chosen", test_nothing_left},
    {"repetition penalty", test_penalty},
    {"presence and frequency penalties", test_answer_penalties},
    {"logit bias", test_bias},
    {"the likeliest ids", test_top},
    {"one sum over the vocabulary", test_one_sum},
    {"probability of the model", test_probability},
    {"a vocabulary of 128,256", test_large_vocabulary},
    {"shares that reach top_p exactly", test_top_p_boundary},
    {"options out of range", test_options},
};

int main(int argc, char **argv) {
    return unit_run("sampler", cases, sizeof cases / sizeof *cases, argc, argv);
}
