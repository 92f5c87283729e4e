/* How attention cuts its work: rows into runs, and the keys of a run into pieces, so that there are
 * enough units for the threads and forks read the keys that they share once. How work is cut
 * changes no bit of a result. */
#ifndef GQAC_TARGETS_CPU_ATTEND_RUNS_H
#define GQAC_TARGETS_CPU_ATTEND_RUNS_H

#include "targets/cpu/attention.h"

/* Rows that see keys together, for each key/value head: those of one sequence or, in a joint run,
 * all rows of several neighbours, whose own runs see the keys after the shared ones. */
typedef struct attend_run {
    int64_t b, row, rows;  /* the first sequence; its first row; at most CPU_ATTEND_ROWS */
    int64_t begin, keys;   /* they see [begin, keys) */
    int64_t pieces, piece; /* units of the run, keys of one */
    int64_t first_unit;
    int64_t own, members; /* the runs that wait for this one: itself, or those of the neighbours */
    int64_t waits;        /* units that must end before its rows can be merged; 0 for a joint run */
    int64_t part;         /* its first row among the rows of runs that are cut */
} attend_run;

typedef struct attend_runs {
    const cpu_attend *a;
    const kv_batch *packed; /* whose new rows the queries are; NULL: [B,Hq,S,D] */
    int64_t unit_rows;      /* rows of a run, but for the last of a sequence */
    int64_t n, n_joint;     /* joint runs come first, then those that see the most */
    int64_t n_units;        /* of one key/value head */
    int64_t cut_rows;       /* rows that more than one unit works on, of one key/value head */
    attend_run *list;       /* [n], the caller's memory */
} attend_runs;

/* New rows of sequence b, its keys, and its query 0 among the rows of all. */
static inline int64_t attend_queries(const attend_runs *r, int64_t b) {
    return r->packed ? r->packed->count[b] : r->a->queries;
}
static inline int64_t attend_keys(const attend_runs *r, int64_t b) {
    return r->packed ? r->packed->past[b] + r->packed->count[b] : r->a->keys;
}
static inline int64_t attend_first_row(const attend_runs *r, int64_t b) {
    return r->packed ? r->packed->begin[b] : b * r->a->queries;
}

/* Counts the runs; `a` is known but for where its operands lie. */
void attend_runs_count(attend_runs *r, const cpu_attend *a, const kv_batch *packed);
/* How many of them are of sequence b alone. */
int64_t attend_runs_of(const attend_runs *r, int64_t b);
/* Fills `list` for so many threads. */
void attend_runs_make(attend_runs *r, int threads);
/* One piece of a run for one head. */
cpu_attend_unit attend_runs_unit(const attend_runs *r, const attend_run *run, int64_t head,
                                 int64_t piece);

#endif
