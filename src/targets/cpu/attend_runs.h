/* How attention divides its work: rows into runs, and the keys of a run into pieces, so that there
 * are enough units for the threads, and forks read the keys that they share only once. The division
 * changes no bit of a result. */
#ifndef GQAC_TARGETS_CPU_ATTEND_RUNS_H
#define GQAC_TARGETS_CPU_ATTEND_RUNS_H

#include "targets/cpu/attention.h"

/* Rows that read the same keys together, in each key/value head: rows of one sequence or, in a
 * joint run, all rows of several sequences that share keys; their own runs read the keys after the
 * shared ones. */
typedef struct attend_run {
    int64_t b, row, rows;  /* first sequence, its first row, number of rows (at most
                              CPU_ATTEND_ROWS) */
    int64_t begin, keys;   /* keys [begin, keys) are visible */
    int64_t pieces, piece; /* number of units of the run, keys of one */
    int64_t first_unit;
    int64_t own, members; /* first and number of the runs that wait for this one: itself, or,
                             for a joint run, those of its sequences */
    int64_t waits;        /* number of units that must end before its rows can be merged; 0: a
                             joint run */
    int64_t part;         /* index of its first row among the rows of divided runs */
} attend_run;

typedef struct attend_runs {
    const cpu_attend *a;
    const kv_batch *packed; /* sequences of packed queries; NULL: queries are [B,Hq,S,D] */
    int64_t unit_rows;      /* rows of a run, except the last run of a sequence */
    int64_t n, n_joint;     /* number of runs; joint runs come first, then those with the most
                               keys */
    int64_t n_units;        /* units of one key/value head */
    int64_t cut_rows;       /* rows with more than one unit, in one key/value head */
    attend_run *list;       /* [n], the caller's memory */
} attend_runs;

/* The number of new rows of sequence b, the number of its keys, and the index of its first row
 * among all rows. */
static inline int64_t attend_queries(const attend_runs *r, int64_t b) {
    return r->packed ? r->packed->count[b] : r->a->queries;
}
static inline int64_t attend_keys(const attend_runs *r, int64_t b) {
    return r->packed ? r->packed->past[b] + r->packed->count[b] : r->a->keys;
}
static inline int64_t attend_first_row(const attend_runs *r, int64_t b) {
    return r->packed ? r->packed->begin[b] : b * r->a->queries;
}

/* Counts the runs. All fields of `a` must be set, except the addresses of operands. */
void attend_runs_count(attend_runs *r, const cpu_attend *a, const kv_batch *packed);
/* The number of runs that belong only to sequence b. */
int64_t attend_runs_of(const attend_runs *r, int64_t b);
/* Fills `list` with the runs for this number of threads. */
void attend_runs_make(attend_runs *r, int threads);
/* The same without the list, for sequences that have equal rows and share no keys: sets only
 * n_units and cut_rows. */
void attend_runs_measure(attend_runs *r, int threads);
/* The unit of one piece of a run, for one head. */
cpu_attend_unit attend_runs_unit(const attend_runs *r, const attend_run *run, int64_t head,
                                 int64_t piece);

#endif
