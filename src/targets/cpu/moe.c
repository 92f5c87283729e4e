/* The kernel cpu.moe. The rows that chose an expert are gathered and multiplied by its projections,
 * as in linear or linear_nbits; the results of the chosen experts of a row are then added in the
 * order of choice. An element of a product depends on its own row only, so bits do not depend on
 * which rows share an expert. */
#include "targets/cpu/moe.h"

#include <string.h>

#include "base/check.h"
#include "ops/panels.h"
#include "targets/cpu/linear.h"
#include "targets/cpu/nbits.h"

/* Scratch that one expert after another reuses. Requests come in the same order for each, and those
 * of the first expert are the largest. */
enum { REUSED = 9 }; /* three for each projection */
typedef struct reused_scratch {
    const op_work *work; /* of the call */
    void *memory[REUSED];
    size_t bytes[REUSED];
    int used;
} reused_scratch;

static void *take_again(void *host, size_t bytes) {
    reused_scratch *r = host;
    if (r->used == REUSED)
        return r->work->scratch(r->work->host, bytes);
    const int i = r->used++;
    if (bytes > r->bytes[i] || !r->memory[i]) {
        r->memory[i] = r->work->scratch(r->work->host, bytes);
        r->bytes[i] = r->memory[i] ? bytes : 0;
    }
    return r->memory[i];
}

typedef struct mixture {
    moe_mixture s;
    moe m;
    const cpu_level *level;
    const op_work *work;
    op_work products; /* `work`, but with scratch that is reused, for products */
    reused_scratch reused;
    /* [rows][chosen]: experts, their weights (p), and the index of each pair in the order of
     * experts. */
    int64_t *order, *place;
    float *p;
    int64_t *first;       /* [experts + 1]: first pair of each expert, in that order */
    int64_t *row;         /* row of each pair, in that order */
    float *y;             /* [pairs][hidden], in that order */
    float *x, *fc1, *fc3; /* of one expert: rows of hidden, fc1 and inner elements */
    int64_t expert;
    op_scratch scratch;
} mixture;

static size_t scratch_bytes(const mixture *t) {
    const moe_mixture *s = &t->s;
    return (size_t)s->experts * (sizeof(float) + sizeof(bool)) +
           (size_t)s->chosen * sizeof(float *) + (size_t)s->hidden * sizeof(float);
}

static void choose(void *arg, size_t begin, size_t end, int worker) {
    const mixture *t = arg;
    const moe_mixture *s = &t->s;
    float *scratch = (float *)(void *)(t->scratch.base + (size_t)worker * t->scratch.stride);
    for (int64_t row = (int64_t)begin; row < (int64_t)end; row++)
        moe_choose(s, row, t->order + row * s->chosen, t->p + row * s->chosen, scratch,
                   (bool *)(void *)(scratch + s->experts));
}

/* Sorts pairs by expert, and by row within an expert. */
static void sort_pairs(const mixture *t) {
    const moe_mixture *s = &t->s;
    const int64_t pairs = s->rows * s->chosen;
    memset(t->first, 0, (size_t)(s->experts + 1) * sizeof *t->first);
    for (int64_t i = 0; i < pairs; i++)
        t->first[t->order[i] + 1]++;
    for (int64_t e = 0; e < s->experts; e++)
        t->first[e + 1] += t->first[e];
    for (int64_t i = 0; i < pairs; i++) {
        t->place[i] = t->first[t->order[i]]++;
        t->row[t->place[i]] = i / s->chosen;
    }
    for (int64_t e = s->experts; e > 0; e--)
        t->first[e] = t->first[e - 1];
    t->first[0] = 0;
}

static void gather(void *arg, size_t begin, size_t end, int worker) {
    const mixture *t = arg;
    const int64_t n = t->s.hidden, first = t->first[t->expert];
    (void)worker;
    for (int64_t i = (int64_t)begin; i < (int64_t)end; i++)
        op_get_f32s(t->m.x, t->row[first + i] * n, n, t->x + i * n);
}

static void activate(void *arg, size_t begin, size_t end, int worker) {
    const mixture *t = arg;
    const int64_t wide = t->m.fc[0].n, inner = t->s.inner;
    const bool has_fc3 = t->m.fc[2].weight != NULL;
    (void)worker;
    for (int64_t i = (int64_t)begin; i < (int64_t)end; i++) /* written over fc3, which is read
                                                               first */
        moe_activate(&t->s, t->fc1 + i * wide, has_fc3 ? t->fc3 + i * inner : NULL,
                     t->fc3 + i * inner);
}

static void add(void *arg, size_t begin, size_t end, int worker) {
    const mixture *t = arg;
    const moe_mixture *s = &t->s;
    const float **y =
        (const float **)(void *)(t->scratch.base + (size_t)worker * t->scratch.stride);
    float *sum = (float *)(void *)(y + s->chosen);
    for (int64_t row = (int64_t)begin; row < (int64_t)end; row++) {
        for (int64_t i = 0; i < s->chosen; i++)
            y[i] = t->y + t->place[row * s->chosen + i] * s->hidden;
        moe_add(s, t->p + row * s->chosen, y, sum);
        op_put_f32s(s->y, row * s->hidden, s->hidden, sum);
    }
}

/* ---- projections ------------------------------------------------------------- */

static const unsigned char *at(const gqac_tensor *t, int64_t elements) {
    return (const unsigned char *)t->data + (size_t)elements * op_width(t->dtype);
}

static cpu_nbits_weights codes_of(const moe_matrix *m, int64_t expert) {
    const nbits_shape s = nbits_shape_of(m->k, m->n, m->bits, m->block);
    const int64_t panel = expert * s.panels;
    cpu_nbits_weights w = {.shape = s, .scale_type = m->scale->dtype, .zero_type = GQAC_U8};
    w.codes = at(m->weight, panel * s.words * NBITS_WORD_BYTES);
    w.scales = at(m->scale, panel * s.blocks * NBITS_COLUMNS);
    if (m->zero)
        w.zeros = at(m->zero, panel * s.blocks * NBITS_COLUMNS);
    return w;
}

static cpu_linear_job floats_of(const moe_matrix *m, int64_t expert, const gqac_tensor *bias,
                                const float *x, int64_t rows, float *y) {
    return (cpu_linear_job){.dtype = GQAC_F32,
                            .w_dtype = m->weight->dtype,
                            .x = x,
                            .w = at(m->weight, expert * linear_panels(m->n) * m->k * LINEAR_PANEL),
                            .bias = bias ? bias->data : NULL,
                            .bias_dtype = bias ? bias->dtype : GQAC_NONE,
                            .y = y,
                            .rows = rows,
                            .k = m->k,
                            .n = m->n};
}

/* True if both matrices read the same form of x. */
static bool go_together(const moe_matrix *a, const moe_matrix *b) {
    return a->bits == b->bits && (!a->bits || a->block == b->block);
}

/* y[i] = x times matrix i of an expert; all matrices read the same form of x. */
static gqac_status project(const mixture *t, int n, const moe_matrix *const *m, const float *x,
                           int64_t rows, float *const *y) {
    gqac_tensor bias_rows[2];
    const gqac_tensor *bias[2] = {NULL, NULL};
    cpu_nbits_weights codes[2];
    cpu_linear_job jobs[2];
    for (int i = 0; i < n; i++) {
        if (m[i]->bias) {
            bias_rows[i] = (gqac_tensor){.dtype = m[i]->bias->dtype, .rank = 1, .dims = {m[i]->n}};
            bias_rows[i].data = (void *)(uintptr_t)at(m[i]->bias, t->expert * m[i]->n);
            bias[i] = &bias_rows[i];
        }
        if (m[i]->bits)
            codes[i] = codes_of(m[i], t->expert);
        else
            jobs[i] = floats_of(m[i], t->expert, bias[i], x, rows, y[i]);
    }
    if (m[0]->bits)
        return cpu_nbits_multiply(&t->products, t->level, n, codes, bias, x, rows, y);
    return cpu_linear_do(&t->products, t->level->linear, jobs, n, NULL);
}

/* True if one call computes fc1 and fc3. */
static bool has_joint(const mixture *t) {
    const moe_matrix *fc = t->m.fc;
    return fc[2].weight && go_together(&fc[0], &fc[2]);
}

static gqac_status run_expert(mixture *t) {
    const moe_matrix *fc = t->m.fc;
    const int64_t rows = t->first[t->expert + 1] - t->first[t->expert];
    const moe_matrix *const in[] = {&fc[0], &fc[2]}, *const out[] = {&fc[1]};
    float *const inner[] = {t->fc1, t->fc3}, *const y[] = {t->y +
                                                           t->first[t->expert] * t->s.hidden};
    if (rows == 0)
        return GQAC_OK;
    t->reused.used = 0;
    op_work_parallel(t->work, rows, 1 + t->s.hidden / 16, gather, t);
    if (has_joint(t)) {
        GQAC_TRY(project(t, 2, in, t->x, rows, inner));
    } else {
        GQAC_TRY(project(t, 1, in, t->x, rows, inner));
        if (fc[2].weight)
            GQAC_TRY(project(t, 1, in + 1, t->x, rows, inner + 1));
    }
    op_work_parallel(t->work, rows, 1 + 20 * t->s.inner, activate, t);
    return project(t, 1, out, t->fc3, rows, y);
}

/* ---- the kernel -------------------------------------------------------------- */

/* The number of bytes of the arrays of rows and pairs; false: overflow. */
static bool array_bytes(const mixture *t, size_t *bytes) {
    const moe_mixture *s = &t->s;
    size_t pairs, each, row = 0;
    for (int64_t i = 0; i < 2; i++) /* a row chooses an expert at most once */
        row += (size_t)(i ? t->m.fc[0].n + s->inner : s->hidden) * sizeof(float);
    each = 3 * sizeof(int64_t) + (1 + (size_t)s->hidden) * sizeof(float);
    return gqac_mul_size((size_t)s->rows, (size_t)s->chosen, &pairs) &&
           gqac_mul_size(pairs, each, &each) && gqac_mul_size((size_t)s->rows, row, &row) &&
           gqac_add_size(each, row, bytes) &&
           gqac_add_size(*bytes, (size_t)(s->experts + 1) * sizeof(int64_t), bytes);
}

/* Takes one block of scratch for these arrays. */
static gqac_status take_memory(mixture *t, op_scratch *memory) {
    const moe_mixture *s = &t->s;
    const size_t pairs = (size_t)s->rows * (size_t)s->chosen;
    size_t bytes;
    if (!array_bytes(t, &bytes))
        return gqac_diag_oom(t->work->diag, "activations");
    GQAC_TRY(op_work_scratch_one(t->work, bytes, 1, memory));
    t->order = (int64_t *)(void *)memory->base;
    t->place = t->order + pairs;
    t->row = t->place + pairs;
    t->first = t->row + pairs;
    t->p = (float *)(void *)(t->first + s->experts + 1);
    t->y = t->p + pairs;
    t->x = t->y + pairs * (size_t)s->hidden;
    t->fc1 = t->x + s->rows * s->hidden;
    t->fc3 = t->fc1 + s->rows * t->m.fc[0].n;
    return GQAC_OK;
}

/* Runs the experts, the one with the most rows first. */
static gqac_status run_experts(mixture *t) {
    int64_t most = 0;
    t->reused.work = t->work;
    t->products = *t->work;
    if (t->products.scratch) {
        t->products.scratch = take_again;
        t->products.host = &t->reused;
    }
    for (int64_t e = 1; e < t->s.experts; e++)
        if (t->first[e + 1] - t->first[e] > t->first[most + 1] - t->first[most])
            most = e;
    t->expert = most;
    GQAC_TRY(run_expert(t));
    for (t->expert = 0; t->expert < t->s.experts; t->expert++)
        if (t->expert != most)
            GQAC_TRY(run_expert(t));
    return GQAC_OK;
}

static gqac_status run_rows(mixture *t) {
    const moe_mixture *s = &t->s;
    GQAC_TRY(op_work_scratch(t->work, scratch_bytes(t), 1, &t->scratch));
    op_work_parallel(t->work, s->rows, 10 + s->experts * (10 + s->chosen), choose, t);
    op_scratch_close(&t->scratch);
    if (gqac_pool_stopped(t->work->pool)) /* some rows may not have chosen experts yet */
        return GQAC_OK;
    sort_pairs(t);
    GQAC_TRY(run_experts(t));
    GQAC_TRY(op_work_scratch(t->work, scratch_bytes(t), 1, &t->scratch));
    op_work_parallel(t->work, s->rows, 10 + s->chosen * s->hidden / 8, add, t);
    op_scratch_close(&t->scratch);
    return GQAC_OK;
}

/* Reads the operands, and sets the type and shape of *y. */
static gqac_status open_mixture(const target_call *call, const cpu_moe_record *r, mixture *t,
                                gqac_tensor *y) {
    moe_operands o = {.work = &call->work};
    *t = (mixture){.level = cpu_level_of(call), .work = &call->work};
    for (int i = 0; i < MOE_INPUTS; i++)
        o.in[i] = target_value(call, r->in[i]);
    GQAC_TRY(moe_read_ours(&o, &r->form, &t->m));
    *y = *t->m.x;
    return moe_fit(&call->work, &r->form, &t->m, y, &t->s);
}

/* Adds the scratch that `project` needs if all rows choose the expert. */
static void measure_projection(const mixture *t, const moe_matrix *m, int threads,
                               gqac_parts *parts) {
    if (m->bits) {
        const cpu_nbits_weights w = codes_of(m, 0);
        cpu_nbits_measure(&w, t->s.rows, threads, parts);
    } else {
        const cpu_linear_job job = floats_of(m, 0, NULL, NULL, t->s.rows, NULL);
        cpu_linear_measure(t->level->linear, &job, 1, threads, parts);
    }
}

gqac_status cpu_moe_scratch(const target_call *call, int threads, const void *record,
                            gqac_parts *parts) {
    mixture t;
    gqac_tensor y;
    size_t bytes;
    GQAC_TRY(open_mixture(call, record, &t, &y));
    if (array_bytes(&t, &bytes))
        op_scratch_measure_one(parts, bytes, 1);
    else
        parts->overflow = true;
    for (int i = 0; i < 2; i++) /* to choose experts, and to add their results */
        op_scratch_measure(parts, threads, scratch_bytes(&t), 1);
    for (int i = 0; i < 3; i++)
        if (i < 2 || (t.m.fc[i].weight && !has_joint(&t)))
            measure_projection(&t, &t.m.fc[i], threads, parts);
    return GQAC_OK;
}

gqac_status cpu_moe_run(target_call *call, const void *record) {
    const cpu_moe_record *r = record;
    mixture t;
    gqac_tensor y;
    op_scratch memory;
    GQAC_TRY(open_mixture(call, r, &t, &y));
    GQAC_TRY(target_give(call, r->y, &y));
    if (t.s.rows == 0)
        return GQAC_OK;
    GQAC_TRY(take_memory(&t, &memory));
    gqac_status status = run_rows(&t);
    op_scratch_close(&memory);
    return status;
}
