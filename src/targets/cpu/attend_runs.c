/* Divides the work of attention into units; see attend_runs.h. */
#include "targets/cpu/attend_runs.h"

#include <math.h>

enum { UNITS_A_THREAD = 4 /* with fewer, keys are divided too */ };

int64_t attend_runs_of(const attend_runs *r, int64_t b) {
    const int64_t rows = r->a->group * attend_queries(r, b);
    return r->unit_rows ? (rows + r->unit_rows - 1) / r->unit_rows : 0;
}

/* Keys are divided at multiples of this. */
static int64_t key_step(const cpu_attend *a) {
    return a->split > CPU_ATTEND_KEYS ? a->split : CPU_ATTEND_KEYS;
}

/* ---- shared keys ---------------------------------------------------------- */

/* Joins sequence b with sequences after it that have one run each. Stops where one more sequence
 * would shorten the shared keys by more than it saves. */
static attend_run joint_run(const attend_runs *r, int64_t b) {
    const int64_t *common = r->packed ? r->packed->common : NULL;
    attend_run run = {.b = b, .rows = r->a->group * attend_queries(r, b), .members = 1};
    if (!common || r->a->mask || r->a->show || attend_runs_of(r, b) != 1)
        return run;
    for (int64_t next = b + 1; next < r->a->batch && attend_runs_of(r, next) == 1; next++) {
        const int64_t rows = run.rows + r->a->group * attend_queries(r, next);
        int64_t keys = run.members > 1 && run.keys < common[next] ? run.keys : common[next];
        keys -= keys % key_step(r->a);
        if (rows > CPU_ATTEND_ROWS || !keys || run.members * keys < (run.members - 1) * run.keys)
            break;
        run.keys = keys;
        run.rows = rows;
        run.members++;
    }
    return run;
}

/* Makes the joint runs. The first runs of all sequences are consecutive in `list`, and members have
 * no second run. */
static void make_joint(attend_runs *r) {
    int64_t n = 0;
    for (int64_t b = 0, own = r->n_joint; n < r->n_joint;) {
        attend_run run = joint_run(r, b);
        run.own = own;
        if (run.members > 1) {
            for (int64_t i = own; i < own + run.members; i++)
                r->list[i].begin = run.keys;
            r->list[n++] = run;
        }
        own += attend_runs_of(r, b) > 0 ? run.members : 0;
        b += run.members;
    }
}

/* ---- runs and pieces ----------------------------------------------------- */

void attend_runs_count(attend_runs *r, const cpu_attend *a, const kv_batch *packed) {
    int64_t most = 0;
    *r = (attend_runs){.a = a, .packed = packed};
    for (int64_t b = 0; b < a->batch; b++)
        most = attend_queries(r, b) > most ? attend_queries(r, b) : most;
    most *= a->group;
    r->unit_rows = most < CPU_ATTEND_ROWS ? most : CPU_ATTEND_ROWS;
    for (int64_t b = 0; b < a->batch; b++)
        r->n += attend_runs_of(r, b);
    for (int64_t b = 0, members; b < a->batch; b += members) {
        members = joint_run(r, b).members;
        r->n_joint += members > 1;
    }
    r->n += r->n_joint;
}

/* Makes the runs of each sequence. With a causal mask the most keys are visible to its last rows,
 * so these come first. */
static void make_own(attend_runs *r) {
    int64_t n = r->n_joint;
    for (int64_t back = 1; n < r->n; back++)
        for (int64_t b = 0; b < r->a->batch; b++) {
            const int64_t row = (attend_runs_of(r, b) - back) * r->unit_rows;
            const int64_t left = r->a->group * attend_queries(r, b) - row;
            if (row < 0)
                continue;
            r->list[n] = (attend_run){.b = b,
                                      .row = row,
                                      .rows = left < r->unit_rows ? left : r->unit_rows,
                                      .keys = attend_keys(r, b),
                                      .own = n,
                                      .members = 1};
            n++;
        }
}

static double work_of(const attend_run *run) {
    return (double)(run->rows * (run->keys - run->begin));
}

/* Divides the keys of a run if there are too few runs for the threads; work: of all runs and
 * heads. */
static void cut_run(const attend_runs *r, attend_run *run, int threads, double work) {
    const int64_t step = key_step(r->a), steps = (run->keys - run->begin + step - 1) / step;
    const double wanted = threads > 1 ? UNITS_A_THREAD * (double)threads : 1;
    run->pieces = work > 0 ? (int64_t)ceil(work_of(run) * wanted / work) : 1;
    run->pieces = run->pieces > steps ? steps : run->pieces;
    run->pieces = run->pieces < 1 ? 1 : run->pieces;
    run->piece = steps > 0 ? (steps + run->pieces - 1) / run->pieces * step : step;
    run->pieces = steps > 0 ? (steps * step + run->piece - 1) / run->piece : 1;
}

static void cut_keys(attend_runs *r, int threads) {
    double work = 0;
    for (int64_t i = 0; i < r->n; i++)
        work += work_of(&r->list[i]) * (double)r->a->kv_heads;
    for (int64_t i = 0; i < r->n; i++) {
        attend_run *run = &r->list[i];
        cut_run(r, run, threads, work);
        run->first_unit = r->n_units;
        r->n_units += run->pieces;
    }
}

void attend_runs_measure(attend_runs *r, int threads) {
    const int64_t rows = r->a->group * attend_queries(r, 0), last = rows % r->unit_rows;
    const attend_run all = {.rows = rows, .keys = attend_keys(r, 0)};
    const double work = work_of(&all) * (double)(r->a->batch * r->a->kv_heads);
    for (int i = 0; i < 2; i++) {
        attend_run run = {.rows = i ? last : r->unit_rows, .keys = all.keys};
        const int64_t n = r->a->batch * (i ? last > 0 : rows / r->unit_rows);
        cut_run(r, &run, threads, work);
        r->n_units += n * run.pieces;
        r->cut_rows += run.pieces > 1 ? n * run.rows : 0;
    }
}

void attend_runs_make(attend_runs *r, int threads) {
    make_own(r);
    make_joint(r);
    cut_keys(r, threads);
    for (int64_t i = 0; i < r->n; i++)
        for (int64_t own = r->list[i].own; own < r->list[i].own + r->list[i].members; own++)
            r->list[own].waits += r->list[i].pieces;
    for (int64_t i = r->n_joint; i < r->n; i++) {
        r->list[i].part = r->cut_rows;
        r->cut_rows += r->list[i].waits > 1 ? r->list[i].rows : 0;
    }
    for (int64_t i = 0; i < r->n_joint; i++) /* rows of members are consecutive */
        r->list[i].part = r->list[r->list[i].own].part;
}

cpu_attend_unit attend_runs_unit(const attend_runs *r, const attend_run *run, int64_t head,
                                 int64_t piece) {
    const int64_t begin = run->begin + piece * run->piece, end = begin + run->piece;
    return (cpu_attend_unit){.b = run->b,
                             .head = head,
                             .first = attend_first_row(r, run->b),
                             .skip = r->packed ? r->packed->begin[run->b] : 0,
                             .row = run->row,
                             .rows = (int)run->rows,
                             .begin = begin,
                             .end = run->members > 1 && end > run->keys ? run->keys : end,
                             .cut = run->waits != 1,
                             .part = run->part};
}
