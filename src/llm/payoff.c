/* See payoff.h. Other work on the machine makes a step longer and never shorter, so averages follow
 * short times at once and long ones slowly. */
#include "llm/payoff.h"

static const double faster = 1.0 / 2, slower = 1.0 / 16; /* weight of a measurement in an average */
/* The same for a row of a step of several members: it is a small difference of long times, and half
 * of these differences are too short. */
static const double steady = 1.0 / 8;
/* An average of steps that is longer than the last one, by more than this part, is still too long.
 */
static const double settled = 0.8;
/* Weight of earlier outcomes, for each newer one: of one text, and of several. */
static const double keep_own = 0.8, keep_shared = 0.98;
/* Before anything is known of a source: as if 3 of 5 drafts had been accepted, with the weight of
 * two. */
static const double assumed = 1.2, assumed_of = 2;
enum { FIRST_PAUSE = 8, LONGEST_PAUSE = 256, TRIED = 2, LONGEST_SINCE = 12 };

/* Takes a value, cut to `most`, into an average; `known`: the average has a value already. */
static void average(double *of, double value, double most, bool known) {
    const double counted = known && value > most ? most : value;
    *of = known ? *of + (counted < *of ? faster : slower) * (counted - *of) : counted;
}

/* Takes a row into the average of a call with several members. */
static void average_row(payoff *p, double row) {
    const double most = 2 * p->row + p->step / 8, counted = row < most ? row : most;
    const double now = p->row_known ? p->row + steady * (counted - p->row) : row;
    p->row = now > 0 ? now : 0;
}

static double step_of(const payoff *p, int64_t members) {
    const double step = p->step + p->row * ((double)members - p->rows);
    return step > 1e-9 ? step : 1e-9;
}

bool payoff_is_stale(const payoff *p, int64_t members) {
    const double more = (double)members - p->rows;
    return p->since >= LONGEST_SINCE || 4 * (more > 0 ? more : -more) > p->rows;
}

void payoff_measure(payoff *p, int64_t rows, int64_t members, double seconds) {
    if (rows <= members) {
        average(&p->step, seconds, 4 * p->step, p->known && p->rows == (double)members);
        p->rows = (double)members;
        p->known = true;
        p->since = seconds < settled * p->step ? LONGEST_SINCE : 0;
    } else if (p->known) {
        p->since++;
        const double row = (seconds - step_of(p, members)) / (double)(rows - members);
        if (members > 1)
            average_row(p, row);
        else
            average(&p->row, row > 0 ? row : 0, 2 * p->row + p->step / 8, p->row_known);
        p->row_known = true;
    }
}

void draft_source_take(draft_source *s, int64_t accepted, bool wrong) {
    const double keep = s->shared ? keep_shared : keep_own;
    s->accepted = keep * (s->compared > 0 ? s->accepted : assumed) + (double)accepted;
    s->compared = keep * (s->compared > 0 ? s->compared : assumed_of) + (double)accepted + wrong;
}

void draft_source_spend(draft_source *s, int64_t n, double seconds) {
    average(&s->seconds, seconds / (double)n, 4 * s->seconds, s->seconds > 0);
}

/* The number of drafts with the most ids in a second. */
static int64_t fastest(const payoff *p, const draft_source *s, int64_t most, int64_t members,
                       int again) {
    const double draft = s->seconds + p->row * (1 + again), step = step_of(p, members);
    const double right = s->compared > 0 ? s->accepted / s->compared : assumed / assumed_of;
    double ids = (double)members, reached = 1, best = ids / step;
    int64_t count = 0;
    for (int64_t k = 1; k <= most; k++) {
        reached *= right;
        ids += reached;
        const double rate = ids / (step + (double)k * draft);
        if (rate <= best)
            continue;
        best = rate;
        count = k;
    }
    return count;
}

void draft_source_rest(draft_source *s) {
    s->pause = s->pause ? 2 * s->pause : FIRST_PAUSE;
    s->pause = s->pause < LONGEST_PAUSE ? s->pause : LONGEST_PAUSE;
    s->rest = s->pause;
}

int64_t payoff_count(const payoff *p, draft_source *s, int64_t most, int64_t members, int again) {
    if (most < 1 || !p->known)
        return 0;
    if (s->rest > 1) {
        s->rest--;
        return 0;
    }
    if (s->rest == 1) {
        s->rest = 0;
        return most < TRIED ? most : TRIED;
    }
    const int64_t count = fastest(p, s, most, members, again);
    if (count) {
        s->pause = 0;
        return count;
    }
    draft_source_rest(s);
    if (s->seconds + p->row >= step_of(p, members)) /* not even right drafts pay */
        s->pause = s->rest = LONGEST_PAUSE;
    return 0;
}
