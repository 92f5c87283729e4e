/* Which drafts are made: prompt lookup, compared with a plain search; and when drafts are worth
 * their cost. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm/lookup.h"
#include "llm/payoff.h"

/* ---- prompt lookup ------------------------------------------------------- */

/* The longest earlier occurrence of the last ids, the latest of equal ones, found by comparing all;
 * *times: how often the last two ids occurred. */
static size_t search(const int64_t *ids, size_t n, size_t *length, int *times) {
    size_t found = 0;
    *length = 0;
    *times = 0;
    for (size_t end = n - 1; end-- > 1;) {
        size_t same = 0;
        while (same < LOOKUP_LONGEST && same <= end && ids[end - same] == ids[n - 1 - same])
            same++;
        *times += same >= 2;
        if (same >= 2 && same > *length) {
            *length = same;
            found = end + 1;
        }
    }
    return found;
}

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* If a pair occurred only a few times, a search compares all occurrences; otherwise the latest
 * ones. */
static void test_lookup(void) {
    enum { N = 3000, FEW = 16 };
    static const uint32_t alphabets[] = {40, 90, 900, 1u << 20};
    static int64_t ids[N];
    uint32_t state = 5;
    for (size_t a = 0; a < sizeof alphabets / sizeof *alphabets; a++) {
        lookup l = {0};
        int few = 0;
        for (size_t n = 0; n < N;) {
            const size_t more = 1 + next_random(&state) % 40;
            const size_t copied = n > 100 && next_random(&state) % 3 == 0 ? n - 90 : 0;
            for (size_t i = 0; i < more && n < N; i++, n++)
                ids[n] = copied ? ids[copied + i] : next_random(&state) % alphabets[a];
            if (n < 2)
                continue;
            size_t length = 9, expected_length = 0;
            int times = 0;
            CU_ASSERT_FATAL(lookup_add(&l, ids, n));
            const size_t expected = search(ids, n, &expected_length, &times);
            const size_t from = lookup_find(&l, ids, n, &length);
            CU_ASSERT(times > FEW || (from == expected && length == expected_length));
            CU_ASSERT(length <= expected_length && (!times || length >= 2));
            CU_ASSERT(!memcmp(ids + from - length, ids + n - length, length * sizeof *ids));
            few += times && times <= FEW;
        }
        CU_ASSERT(few > 20);
        lookup_free(&l);
        CU_ASSERT(!l.head && !l.n);
    }
}

/* A text that repeats one id, or two, has as many candidates as ids. Ids are added one at a time,
 * with a search for each; comparing all candidates would take 10^11 comparisons. */
static void test_long(void) {
    enum { N = 400000 };
    int64_t *ids = calloc(N, sizeof *ids);
    CU_ASSERT_FATAL(ids != NULL);
    for (int period = 1; period <= 2; period++) {
        lookup l = {0};
        size_t length = 0, from = 0;
        for (size_t n = 1; n <= N; n++) {
            ids[n - 1] = (int64_t)n % period;
            CU_ASSERT_FATAL(lookup_add(&l, ids, n));
            from = lookup_find(&l, ids, n, &length);
        }
        CU_ASSERT(length == LOOKUP_LONGEST && from == (size_t)(N - period));
        lookup_free(&l);
    }
    free(ids);
}

static void test_short_texts(void) {
    static const int64_t ids[] = {4, 4, 4, 4};
    static const size_t length_of[] = {0, 0, 0, 2, 3};
    lookup l = {0};
    for (size_t n = 0; n <= 4; n++) {
        size_t length = 9;
        CU_ASSERT_FATAL(lookup_add(&l, ids, n));
        const size_t from = lookup_find(&l, ids, n, &length);
        CU_ASSERT(length == length_of[n] && from == (length ? n - 1 : 0));
    }
    lookup_free(&l);
}

/* ---- when drafts are worth their cost ------------------------------------ */

/* A machine on which a step takes `step` seconds, and each additional row `row`. */
typedef struct machine {
    double step, row, draft;
    payoff payoff;
    draft_source source;
    int64_t drafted, steps, ids;
    double seconds;
} machine;

/* Steps with at most 8 drafts, of which every `period`-th is wrong; with 0, none is. */
static void take_steps(machine *m, int n, int period, int64_t members) {
    for (int i = 0; i < n; i++) {
        const int64_t count = payoff_count(&m->payoff, &m->source, 8, members, 0);
        int64_t right = 0;
        while (right < count && (!period || ++m->steps % period))
            right++;
        const double step = m->step + m->row * (double)(members - 1);
        const double seconds = step + m->row * (double)count;
        payoff_measure(&m->payoff, members + count, members, seconds);
        if (count) {
            draft_source_take(&m->source, right, right < count);
            draft_source_spend(&m->source, count, m->draft * (double)count);
        }
        m->drafted += count;
        m->ids += 1 + right;
        m->seconds += seconds + m->draft * (double)count;
    }
}

static void test_free_rows(void) {
    machine m = {.step = 1};
    CU_ASSERT_EQUAL(payoff_count(&m.payoff, &m.source, 8, 1, 0), 0); /* there are no measurements */
    take_steps(&m, 101, 0, 1);
    CU_ASSERT(m.drafted == 800 && m.ids == 901);
    CU_ASSERT_EQUAL(payoff_count(&m.payoff, &m.source, 3, 1, 0), 3);
    CU_ASSERT_EQUAL(payoff_count(&m.payoff, &m.source, 0, 1, 0), 0);
}

/* Drafts that are always wrong soon stop, and trials become rare; when drafts are right again, they
 * are made again. */
static void test_wrong(void) {
    machine m = {.step = 1, .row = 0.1};
    take_steps(&m, 2000, 1, 1);
    CU_ASSERT(m.drafted > 8 && m.drafted < 60);
    CU_ASSERT(m.seconds < 2000 * 1.01);
    const int64_t before = m.drafted;
    take_steps(&m, 2000, 0, 1);
    CU_ASSERT(m.drafted - before > 8 * 1500);
}

/* If rows cost as much as steps, drafts that may be wrong are not worth their cost; if rows cost
 * little, most drafts are. */
static void test_costs(void) {
    static const struct {
        double row, draft;
        int period;
        int64_t members;
        double least, most; /* ids in the time of one step without drafts, alone */
    } cases[] = {
        {1, 0, 3, 1, 0.95, 1}, {0.02, 0, 4, 1, 2.2, 4},    {0.05, 0.02, 8, 1, 2.5, 6},
        {0, 2, 8, 1, 0.95, 1}, {0.05, 0.05, 8, 4, 1.2, 2}, {1, 0, 3, 4, 0.95, 1.01},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        machine m = {.step = 1, .row = cases[i].row, .draft = cases[i].draft};
        take_steps(&m, 3000, cases[i].period, cases[i].members);
        const double plain =
            3000 * (m.step + m.row * (double)(cases[i].members - 1)) / (double)cases[i].members;
        const double alone = m.seconds / (double)(m.ids + 3000 * (cases[i].members - 1));
        const double gain = plain / 3000 / alone;
        if (gain < cases[i].least || gain > cases[i].most)
            printf("  case %zu: %.3f\n", i, gain);
        CU_ASSERT(gain >= cases[i].least && gain <= cases[i].most);
    }
}

/* Rows that take a second each, measured a few at a time in steps that are as often longer as
 * shorter than that: the estimate is not less. */
static void test_noise(void) {
    uint32_t state = 1;
    double sum = 0;
    for (int i = 0; i < 200; i++) {
        payoff p = {.known = false};
        for (int k = 0; k < 60; k++) {
            const int64_t rows = 16 + (k % 2 ? 1 + k % 3 : 0);
            const double part = (double)(next_random(&state) % 2001) / 1000 - 1; /* -1 to 1 */
            payoff_measure(&p, rows, 16, (double)rows * (1 + 0.1 * part));
        }
        sum += p.row;
    }
    CU_ASSERT(sum / 200 > 1);
}

/* Drafts that take longer than a step are made once; trials would cost more than they could
 * show. */
static void test_slow_program(void) {
    machine m = {.step = 1, .draft = 1.1};
    take_steps(&m, 200, 0, 1);
    CU_ASSERT(m.drafted > 0 && m.drafted <= 8);
    take_steps(&m, 800, 0, 1);
    CU_ASSERT(m.drafted > 8 && m.drafted <= 8 + 4 * 2);
}

/* A step that takes long because of other work on the machine has no lasting effect. */
static void test_outliers(void) {
    machine m = {.step = 1, .row = 0.02};
    take_steps(&m, 20, 0, 1);
    for (int i = 0; i < 3; i++) {
        payoff_measure(&m.payoff, 9, 1, 500);
        const int64_t before = m.drafted;
        take_steps(&m, 40, 0, 1);
        CU_ASSERT(m.drafted - before > 8 * 20);
    }
}

static const unit_case cases[] = {
    {"prompt lookup finds the longest match", test_lookup},
    {"prompt lookup in long texts", test_long},
    {"prompt lookup in short texts", test_short_texts},
    {"rows that cost nothing", test_free_rows},
    {"drafts that are wrong", test_wrong},
    {"what rows and drafts cost", test_costs},
    {"times that vary", test_noise},
    {"a program that is slow", test_slow_program},
    {"a step that took long", test_outliers},
};

int main(int argc, char **argv) {
    return unit_run("drafts", cases, sizeof cases / sizeof *cases, argc, argv);
}
