/* The states that a sequence keeps: random operations, their number, and imports. */
#include <string.h>

#include "kv/budget.h"
#include "kv/kv.h"
#include "unit.h"

static unsigned seed;
static unsigned any(unsigned n) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static kv_sequence *new_sequence(kv_pool *pool) {
    kv_sequence *s = NULL;
    CU_ASSERT_EQUAL_FATAL(kv_sequence_create(pool, "contiguous", 0, &s, NULL), GQAC_OK);
    return s;
}

static const kv_slot mixed[] = {
    {"past.0.key", "present.0.key", 2, 3, GQAC_F32, .columns = false},
    {"past.0.state", "present.0.state", 2, 3, GQAC_F32, .rows = 5},
    {"past.1.state", "present.1.state", 1, 4, GQAC_F16, .rows = 7},
};
enum { STATE = 1, OTHER = 2 };

static const size_t state_bytes[] = {0, 2 * 5 * 3 * 4, 7 * 4 * 2};

/* Every state that is due gets bytes that depend on its position. */
static gqac_status append_states(kv_sequence *s, int64_t count, bool publish) {
    const int64_t total = kv_sequence_length(s) + count;
    GQAC_TRY(kv_sequence_reserve(s, total, NULL));
    int64_t last = kv_sequence_length(s);
    for (int i = 0; i < kv_states_due(s); i++)
        for (int slot = STATE; slot <= OTHER; slot++) {
            int64_t position = 0;
            void *to = kv_state_due(s, slot, i, &position);
            CU_ASSERT(position > last || (slot == OTHER && position == last));
            memset(to, (int)(position * 7 + slot) & 0xFF, state_bytes[slot]);
            last = position;
        }
    CU_ASSERT_EQUAL(last, total);
    if (publish)
        kv_sequence_publish(s, total);
    return GQAC_OK;
}

static bool holds_states(const kv_sequence *s) {
    bool good = true;
    for (int slot = STATE; slot <= OTHER; slot++) {
        const unsigned char *state = kv_state_last(s, slot);
        const int64_t length = kv_sequence_length(s);
        good = good && (state != NULL) == (length > 0);
        for (size_t i = 0; state && i < state_bytes[slot]; i++)
            good = good && state[i] == ((length * 7 + slot) & 0xFF);
    }
    return good;
}

/* Random appends, failed steps, rewinds and forks: the current state is always that of the length,
 * there is a state within reach of every distance, and no state is left over. */
static void run_states(unsigned start) {
    kv_pool *pool = NULL;
    seed = start;
    CU_ASSERT_EQUAL_FATAL(kv_pool_create(3, mixed, &pool, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(kv_pool_state_bytes(pool), 128 + 64);
    kv_sequence *s = new_sequence(pool), *fork = NULL;
    int64_t most = 0; /* length since the last rewind */
    for (int i = 0; i < 60; i++) {
        CU_ASSERT_EQUAL_FATAL(append_states(s, any(3) ? 1 + any(4) : 1 + any(900), false), GQAC_OK);
        CU_ASSERT_TRUE(holds_states(s)); /* the step failed */
        const int64_t count = any(3) ? 1 + any(4) : 1 + any(900);
        CU_ASSERT_EQUAL_FATAL(append_states(s, count, true), GQAC_OK);
        CU_ASSERT_TRUE(holds_states(s));
        const int64_t length = kv_sequence_length(s);
        most = length > most ? length : most;
        if (most == length)
            for (int64_t d = 0; d <= length; d++) {
                const int64_t reach = kv_sequence_reach(s, length - d);
                const int64_t again = length - d - reach, bound = 2 * d > 64 ? 2 * d : 64;
                if (reach > length - d || again > bound)
                    CU_FAIL_FATAL("a state is out of reach");
            }
        const size_t before = kv_pool_states_in_use(pool);
        CU_ASSERT_EQUAL_FATAL(kv_sequence_fork(s, &fork, NULL), GQAC_OK);
        CU_ASSERT_EQUAL(kv_pool_states_in_use(pool), before);
        if (any(4) == 0) {
            const int64_t reach = kv_sequence_reach(s, any((unsigned)length + 1));
            if (reach + 1 < length && kv_sequence_reach(s, reach + 1) == reach) {
                CU_ASSERT_EQUAL(kv_sequence_rewind(s, reach + 1, NULL), GQAC_OUT_OF_RANGE);
            }
            CU_ASSERT_EQUAL(kv_sequence_rewind(s, reach, NULL), GQAC_OK);
            CU_ASSERT_TRUE(holds_states(s));
        }
        CU_ASSERT_EQUAL(append_states(fork, 70, true), GQAC_OK);
        CU_ASSERT(holds_states(fork) && holds_states(s));
        CU_ASSERT_EQUAL(append_states(fork, 1, true), GQAC_OK); /* it overwrites no state of s */
        CU_ASSERT(holds_states(fork) && holds_states(s));
        kv_sequence_free(fork);
    }
    kv_sequence_free(s);
    CU_ASSERT_EQUAL(kv_pool_states_in_use(pool), 0);
    kv_pool_free(pool);
}

static void states_follow_the_length(void) {
    for (unsigned run = 0; run < (unit_full() ? 200u : 6u); run++)
        run_states(run * 31u + 5u);
    for (int64_t n = 1; n < 100000; n = n * 3 + 1) { /* few states are kept */
        int scales = 2;
        for (int64_t m = n; m > 64; m /= 2)
            scales += 2;
        CU_ASSERT(kv_states_most(n) >= 1 && kv_states_most(n) <= scales);
    }
}

/* The number of states is computed without visiting each. */
static void states_are_counted(void) {
    for (int64_t n = 0; n < 9000; n += n < 700 ? 1 : 61) {
        int64_t kept = n > 0;
        for (int64_t q = 1; q * 64 < n; q++)
            kept += n - q * 64 <= 128 * (q & -q);
        if (kv_states_most(n) != kept)
            CU_FAIL_FATAL("another number of states");
    }
    CU_ASSERT_EQUAL(kv_states_most((int64_t)1 << 40), 35);
    CU_ASSERT_EQUAL(kv_states_most(INT64_MAX), 58);
}

/* An import has only the last state. */
static void imports_have_one_state(void) {
    kv_pool *pool = NULL;
    int64_t position = 200;
    CU_ASSERT_EQUAL_FATAL(kv_pool_create(3, mixed, &pool, NULL), GQAC_OK);
    kv_sequence *s = new_sequence(pool);
    CU_ASSERT_EQUAL(kv_sequence_restore(s, 200, 1, &position, 200, 0, NULL, NULL), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(kv_states_due(s), 1);
    position = 0;
    memset(kv_state_due(s, STATE, 0, &position), (200 * 7 + STATE) & 0xFF, state_bytes[STATE]);
    memset(kv_state_due(s, OTHER, 0, &position), (200 * 7 + OTHER) & 0xFF, state_bytes[OTHER]);
    CU_ASSERT_EQUAL(position, 200);
    kv_sequence_publish(s, 200);
    CU_ASSERT_TRUE(holds_states(s));
    CU_ASSERT_EQUAL(kv_sequence_reach(s, 199), 0);
    CU_ASSERT_EQUAL(kv_pool_states_in_use(pool), 1);
    /* it is kept, also in forks, until a rewind to before it */
    kv_sequence *fork = NULL;
    CU_ASSERT_EQUAL(append_states(s, 3000, true), GQAC_OK);
    CU_ASSERT_EQUAL(kv_sequence_reach(s, 250), 200);
    CU_ASSERT_EQUAL_FATAL(kv_sequence_fork(s, &fork, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(append_states(fork, 3000, true), GQAC_OK);
    CU_ASSERT_EQUAL(kv_sequence_rewind(fork, 200, NULL), GQAC_OK);
    CU_ASSERT_TRUE(holds_states(fork));
    kv_sequence_free(fork);
    CU_ASSERT_EQUAL(kv_sequence_rewind(s, 0, NULL), GQAC_OK);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(append_states(s, i ? 1000 : 200, true), GQAC_OK);
    CU_ASSERT(kv_sequence_reach(s, 250) < 200);
    kv_sequence_free(s);
    kv_pool_free(pool);
}

/* Slots with a tail: one of 3 rows; one of 65, of which one row is in the previous block. */
static const kv_slot convolved[] = {
    {"past.0.state", "present.0.state", 1, 2, GQAC_F32, .rows = 2},
    {"past.0.conv", "present.0.conv", 1, 5, GQAC_F32, .tail = 3},
    {"past.1.conv", "present.1.conv", 2, 3, GQAC_F16, .columns = true, .tail = 65},
    {"past.1.key", "present.1.key", 1, 4, GQAC_F32, .columns = false},
};
enum { CONV = 1, WIDE = 2, KEY = 3, MOST_ROWS = 4000 };

static void make_row(int slot, int64_t position, unsigned char *row) {
    for (int i = 0; i < 24; i++)
        row[i] = (unsigned char)(position * 5 + position / 64 * 3 + slot * 41 + i);
}

/* Appends rows that depend on their position. */
static void append_rows(kv_sequence *s, int64_t count) {
    const int64_t begin = kv_sequence_length(s), end = begin + count;
    unsigned char row[24];
    CU_ASSERT_EQUAL_FATAL(kv_sequence_reserve(s, end, NULL), GQAC_OK);
    for (int64_t i = begin; i < end; i++)
        for (int slot = CONV; slot <= KEY; slot++) {
            make_row(slot, i, row);
            kv_write_rows(s, slot, i, 1, row, 1);
        }
    kv_sequence_publish(s, end);
}

static bool has_row(const kv_sequence *s, int slot, int64_t position) {
    static const size_t bytes[] = {0, 20, 12, 16};
    unsigned char row[24], want[24];
    make_row(slot, position, want);
    kv_read_rows(s, slot, position, 1, row, 1);
    return !memcmp(row, want, bytes[slot]);
}

/* True if all rows that steps after `length` tokens read are kept. */
static bool has_tails(const kv_sequence *s, int64_t length) {
    bool good = true;
    for (int64_t i = 0; i < length; i++)
        good = good && has_row(s, KEY, i) && (i < length - 3 || has_row(s, CONV, i)) &&
               (i < length - 65 || has_row(s, WIDE, i));
    return good;
}

/* After random appends, forks and rewinds the tails before all lengths within reach are kept, and
 * few others. */
static void run_tails(unsigned start) {
    kv_pool *pool = NULL;
    kv_sequence *all[3] = {NULL};
    seed = start;
    CU_ASSERT_EQUAL_FATAL(kv_pool_create(4, convolved, &pool, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(kv_pool_tail_bytes(pool), 64 * 20 + 64 * 12);
    all[0] = new_sequence(pool);
    for (int i = 0; i < 60; i++) {
        kv_sequence *s = all[any(3)];
        if (!s)
            continue;
        const int64_t length = kv_sequence_length(s);
        const int to = (int)any(3);
        if (any(5) == 0) {
            const int64_t reach = kv_sequence_reach(s, any((unsigned)length + 1));
            CU_ASSERT_EQUAL(kv_sequence_rewind(s, reach, NULL), GQAC_OK);
        } else if (any(5) == 0 && all[to] != s) {
            kv_sequence_free(all[to]);
            CU_ASSERT_EQUAL_FATAL(kv_sequence_fork(s, &all[to], NULL), GQAC_OK);
        } else if (length < MOST_ROWS - 500) {
            append_rows(s, any(2) ? 1 + any(5) : 1 + any(500));
        }
        for (int64_t at = kv_sequence_length(s); at > 0; at = kv_sequence_reach(s, at - 1))
            CU_ASSERT_TRUE(has_tails(s, at));
    }
    for (int i = 0; i < 3; i++)
        kv_sequence_free(all[i]);
    CU_ASSERT_EQUAL(kv_pool_tails_in_use(pool), 0);
    kv_pool_free(pool);
}

static void tails_before_states(void) {
    kv_pool *pool = NULL;
    for (unsigned run = 0; run < (unit_full() ? 200u : 6u); run++)
        run_tails(run * 17u + 3u);
    CU_ASSERT_EQUAL_FATAL(kv_pool_create(4, convolved, &pool, NULL), GQAC_OK);
    kv_sequence *s = new_sequence(pool), *fork = NULL;
    for (int64_t n = 1; n < MOST_ROWS; n += 37) {
        append_rows(s, 37);
        CU_ASSERT((int64_t)kv_pool_tails_in_use(pool) <=
                  kv_tails_most(pool, kv_sequence_length(s)));
    }
    CU_ASSERT(kv_tails_most(pool, MOST_ROWS) <= 16);
    /* what two sequences share is kept as long as either needs it */
    CU_ASSERT_EQUAL_FATAL(kv_sequence_fork(s, &fork, NULL), GQAC_OK);
    const int64_t length = kv_sequence_length(s);
    append_rows(s, 900);
    CU_ASSERT_TRUE(has_tails(fork, length));
    kv_sequence_free(fork);
    append_rows(s, 64);
    CU_ASSERT((int64_t)kv_pool_tails_in_use(pool) <= kv_tails_most(pool, kv_sequence_length(s)));
    /* rows that are not kept are NaN */
    unsigned char row[24], none[24];
    memset(none, 0xFF, sizeof none);
    kv_read_rows(s, CONV, 70, 1, row, 1);
    CU_ASSERT(!memcmp(row, none, 20));
    kv_sequence_free(s);
    kv_pool_free(pool);
    /* without states every length is within reach */
    CU_ASSERT_EQUAL_FATAL(kv_pool_create(3, convolved + 1, &pool, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(kv_pool_tail_bytes(pool), 0);
    CU_ASSERT_EQUAL(kv_pool_slot(pool, 0)->tail, 0);
    kv_pool_free(pool);
}

/* A step that keeps several states, with every budget: either it fits, or the budget is
 * exhausted. */
static void every_budget(void) {
    int fits = 0, failed = 0;
    for (size_t most = 64; most < 40000; most += 64) {
        gqac_budget budget = {.most = most};
        gqac_diag diag = {0};
        kv_pool *pool = NULL;
        CU_ASSERT_EQUAL_FATAL(kv_pool_create(3, mixed, &pool, NULL), GQAC_OK);
        kv_pool_set_budget(pool, &budget);
        kv_sequence *s = new_sequence(pool);
        const gqac_status status = kv_sequence_reserve(s, 600, &diag);
        CU_ASSERT_FATAL(status == GQAC_OK || status == GQAC_CAPACITY);
        fits += status == GQAC_OK;
        failed += status != GQAC_OK;
        kv_sequence_free(s);
        CU_ASSERT_EQUAL(budget.used, 0);
        kv_pool_free(pool);
    }
    CU_ASSERT(fits > 10 && failed > 100);
}

static const unit_case cases[] = {
    {"states follow the length", states_follow_the_length},
    {"states are counted", states_are_counted},
    {"imports have one state", imports_have_one_state},
    {"tails before states", tails_before_states},
    {"every budget", every_budget},
};

int main(int argc, char **argv) {
    return unit_run("kv/states", cases, sizeof cases / sizeof cases[0], argc, argv);
}
