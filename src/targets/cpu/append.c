/* Everything between a projection and attention, in one call: heads are read in packed rows,
 * queries and keys are normalised and rotated, and keys and values are written to the blocks of
 * sequences, or after the rows of the past. targets/fuse_append.c chooses the nodes. Queries that
 * would only be copied are read in place. */
#include "ops/present.h"
#include "targets/cpu/heads.h"
#include "targets/kv_rows.h"

enum { ROWS = 64 /* rows of a head that are computed before they are written to a block */ };

/* Rows [from, to) of one sequence, or of one batch row. */
typedef struct run {
    int64_t b, from, to;
} run;

typedef struct stream {
    const target_stream *of;
    cpu_heads_run heads;
    unsigned char *y; /* result of queries */
    present_rows present;
} stream;

typedef struct job {
    stream streams[TARGET_STREAMS];
    const kv_batch *kv;
    int64_t batch, rows; /* B, S of the new rows */
    int64_t heads, most; /* heads of all streams that are written; channels of the largest head */
    int64_t n_runs;      /* runs of at most ROWS rows */
    run *runs;
    op_scratch scratch;
} job;

/* ---- operands ------------------------------------------------------------ */

/* Sets the results of a kv_append that are used: its effect token, and its rows, as shapes without
 * data, because the rows are only in blocks. */
static gqac_status open_append(target_call *call, const target_stream *of, gqac_tensor *fresh) {
    const op_work work = target_work(call, &of->append);
    GQAC_TRY(target_kv_fit(call, &work, fresh, of->slot));
    target_give_token(call, of->token);
    fresh->dims[0] = call->kv->n;
    fresh->dims[2] = target_kv_total_rows(call->kv);
    target_set(call, of->rows, fresh);
    return GQAC_OK;
}

/* The same for a concat_past_present. */
static gqac_status open_present(target_call *call, stream *s, gqac_tensor *fresh) {
    const target_stream *of = s->of;
    const op_work work = target_work(call, &of->append);
    const present_operands operands = {.past = target_value(call, of->past),
                                       .fresh = fresh,
                                       .past_len = target_value(call, of->past_len),
                                       .new_len = target_value(call, of->new_len),
                                       .total = target_value(call, of->total)};
    GQAC_TRY(present_fit(&work, &operands, &s->present));
    fresh->dims[2] = s->present.capacity;
    GQAC_TRY(target_give(call, of->y, fresh));
    return present_put(&work, &s->present, fresh->data);
}

/* Adds the sizes of a stream to those of the job. */
static gqac_status add_sizes(const target_call *call, job *j, const stream *s) {
    const target_stream *of = s->of;
    const target_heads_run *h = &s->heads.at;
    if (j->batch >= 0 && h->batch != j->batch) {
        const op_work work = target_work(call, &of->heads.origin);
        OP_STOP(&work, GQAC_INVALID_INPUT, "some heads have %lld batch rows, others %lld",
                (long long)j->batch, (long long)h->batch);
    }
    j->batch = h->batch;
    j->rows = h->rows > j->rows ? h->rows : j->rows;
    j->heads += of->end == TARGET_IN_PLACE ? 0 : h->heads;
    j->most = h->of->size > j->most ? h->of->size : j->most;
    return GQAC_OK;
}

static gqac_status open_stream(target_call *call, job *j, stream *s) {
    const target_stream *of = s->of;
    GQAC_TRY(cpu_heads_open(call, &of->heads, &s->heads));
    GQAC_TRY(add_sizes(call, j, s));
    const target_heads_run *h = &s->heads.at;
    gqac_tensor y = {
        .dtype = h->type, .rank = 4, .dims = {h->batch, h->heads, h->rows, h->of->size}};
    switch (of->end) {
    case TARGET_TO_PRESENT:
        return open_present(call, s, &y);
    case TARGET_TO_BLOCKS:
        return open_append(call, of, &y);
    case TARGET_TO_QUERIES:
        GQAC_TRY(target_give(call, of->y, &y));
        s->y = y.data;
        return GQAC_OK;
    case TARGET_IN_PLACE:
        target_set(call, of->y, &y);
        return GQAC_OK;
    }
    return GQAC_OK;
}

/* The sequences whose rows are packed in one batch row, one sequence after another; NULL: rows are
 * not packed. */
static const kv_batch *packed_of(const job *j) {
    return j->kv && j->kv->packed ? j->kv : NULL;
}

static int64_t batch_of(const job *j) {
    return packed_of(j) ? packed_of(j)->n : j->batch;
}

/* Maximum number of runs. */
static size_t most_runs(const job *j) {
    const kv_batch *kv = packed_of(j);
    int64_t most = 0;
    for (int64_t b = 0; b < batch_of(j); b++)
        most += ((kv ? kv->count[b] : j->rows) + ROWS - 1) / ROWS + 1;
    return (size_t)most;
}

/* The number of floats of scratch of a worker. */
static size_t worker_floats(const job *j) {
    return (size_t)(ROWS * j->most);
}

/* Divides rows into runs, each with rows of only one sequence. Each batch row has at least one run,
 * because its past may have to be copied. */
static gqac_status cut_rows(const target_call *call, job *j, op_scratch *scratch) {
    const kv_batch *kv = packed_of(j);
    const int64_t n = batch_of(j);
    GQAC_TRY(op_work_scratch_one(&call->work, most_runs(j), sizeof *j->runs, scratch));
    j->runs = (run *)(void *)scratch->base;
    for (int64_t b = 0; b < n; b++) {
        const int64_t begin = kv ? kv->begin[b] : 0, end = begin + (kv ? kv->count[b] : j->rows);
        int64_t from = begin;
        do {
            const int64_t to = from + ROWS < end ? from + ROWS : end;
            j->runs[j->n_runs++] = (run){.b = b, .from = from, .to = to};
            from = to;
        } while (from < end);
    }
    return GQAC_OK;
}

/* ---- running ------------------------------------------------------------- */

/* Writes rows [from, to) of a head after those of the past, in the same tensor. */
static void put_present(const stream *s, int64_t b, int64_t head, int64_t from, int64_t to) {
    const int64_t count = s->present.new_len[b];
    if (from == 0)
        present_keep(&s->present, b, head);
    to = to < count ? to : count;
    if (from < to)
        cpu_heads_make(&s->heads, b, head, from, to, present_row(&s->present, b, head, from));
}

/* Computes rows [from, to) of a head and writes them to the cache or to y; `scratch` has memory for
 * ROWS rows. */
static void put_rows(const job *j, const stream *s, int64_t b, int64_t head, int64_t from,
                     int64_t to, unsigned char *scratch) {
    const cpu_heads_run *h = &s->heads;
    const int64_t batch_row = packed_of(j) ? 0 : b;
    if (s->of->end == TARGET_TO_QUERIES) {
        const int64_t row = (batch_row * h->at.heads + head) * h->at.rows + from;
        cpu_heads_make(h, batch_row, head, from, to,
                       s->y + (size_t)(row * h->p.size) * op_width(h->p.type));
        return;
    }
    if (s->of->end == TARGET_TO_PRESENT) {
        put_present(s, b, head, from, to);
        return;
    }
    const int64_t begin = j->kv->begin[b], end = begin + j->kv->count[b];
    to = to < end ? to : end;
    if (from >= to)
        return;
#ifdef GQAC_CONTROL_PACKED_BEGIN /* negative control: rows of a neighbour are cached */
    cpu_heads_make(h, batch_row, head, from - (b > 0), to - (b > 0), scratch);
#else
    cpu_heads_make(h, batch_row, head, from, to, scratch);
#endif
    kv_write_head(j->kv->sequences[b], s->of->slot, head, j->kv->past[b] + from - begin, to - from,
                  scratch);
}

/* Items are runs of rows of one head. */
static void run_items(void *arg, size_t begin, size_t end, int worker) {
    const job *j = arg;
    unsigned char *scratch = j->scratch.base + (size_t)worker * j->scratch.stride;
    for (size_t item = begin; item < end; item++) {
        const run *r = &j->runs[(int64_t)item / j->heads];
        int64_t head = (int64_t)item % j->heads;
        const stream *s = j->streams;
        for (; s->of->end == TARGET_IN_PLACE || head >= s->heads.at.heads; s++)
            head -= s->of->end == TARGET_IN_PLACE ? 0 : s->heads.at.heads;
        const int64_t to = r->to < s->heads.at.rows ? r->to : s->heads.at.rows;
        if (r->from < to || r->from == 0)
            put_rows(j, s, r->b, head, r->from, to, scratch);
    }
}

gqac_status cpu_append_run(target_call *call, const void *record) {
    const target_streams *of = record;
    job j = {.batch = -1, .kv = call->kv};
    op_scratch runs;
    for (int i = 0; i < of->n; i++) {
        j.streams[i].of = &of->streams[i];
        GQAC_TRY(open_stream(call, &j, &j.streams[i]));
    }
    GQAC_TRY(cut_rows(call, &j, &runs));
    gqac_status status = op_work_scratch(&call->work, worker_floats(&j), sizeof(float), &j.scratch);
    if (status == GQAC_OK) {
        const int64_t rows = j.rows < ROWS ? j.rows : ROWS;
        op_work_parallel(&call->work, j.n_runs * j.heads, 20 + rows * (10 + j.most / 4), run_items,
                         &j);
        op_scratch_close(&j.scratch);
    }
    op_scratch_close(&runs);
    return status;
}

gqac_status cpu_append_scratch(const target_call *call, int threads, const void *record,
                               gqac_parts *parts) {
    const target_streams *of = record;
    job j = {.batch = -1, .kv = call->kv};
    for (int i = 0; i < of->n; i++) {
        stream s = {.of = &of->streams[i]};
        GQAC_TRY(target_heads_count(call, &s.of->heads, &s.heads.at));
        GQAC_TRY(add_sizes(call, &j, &s));
    }
    op_scratch_measure_one(parts, most_runs(&j), sizeof *j.runs);
    op_scratch_measure(parts, threads, worker_floats(&j), sizeof(float));
    return GQAC_OK;
}
