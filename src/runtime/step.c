/* One step: any mixture of sequences and new lengths, all or nothing.
 *
 * Check everything, reserve KV rows, run the graph for each group of rows that agree on the rope
 * tables (right-padded to the longest of the group; pad rows write nothing), keep the logits, and
 * only then publish the new lengths. */
#include "runtime/context.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "numerics/convert.h"

/* Arrays of one call over n sequences. */
typedef struct step {
    gqac_context *context;
    int n;
    gqac_sequence *const *sequences;
    const int64_t *tokens, *counts;
    int64_t *first;   /* index of the first token of each sequence */
    int64_t *pinned;  /* gqac.total_len for each sequence */
    unsigned *guards; /* guard bits for each sequence */
    bool again;       /* tokens that were computed before: their tables are chosen */
    int64_t kept;     /* rows of logits so far, in the order of groups */
    int64_t rows;     /* of logits in the whole step, at most */
    gqac_diag *diag;
} step;

gqac_status gqac_context_create(const gqac_program *program, int threads, gqac_context **context,
                                gqac_diag *diag) {
    if (threads < 1 || threads > GQAC_POOL_MAX)
        GQAC_FAIL(diag, GQAC_USAGE, "threads must be 1 to %d, got %d", GQAC_POOL_MAX, threads);
    gqac_context *c = gqac_calloc(1, sizeof *c);
    if (!c)
        return gqac_diag_oom(diag, "a context");
    c->program = program;
    gqac_status status = exec_create(program, threads, &c->exec, diag);
    if (status != GQAC_OK) {
        gqac_free(c);
        return status;
    }
    *context = c;
    return GQAC_OK;
}

void gqac_context_free(gqac_context *context) {
    if (!context)
        return;
    context_free_parameters(context);
    exec_destroy(&context->exec);
    for (size_t i = 0; i < sizeof context->scratch / sizeof *context->scratch; i++)
        gqac_free(context->scratch[i].data);
    gqac_free(context->logits.data);
    gqac_free(context->logit_rows.data);
    gqac_free(context);
}

static void tell_node(const gqac_context *c, const exec *e, const ir_node *node) {
    if (node->op->flags & IR_OP_EFFECT) /* rows in the form of the target's cache */
        return;
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && (!node->fused_into || ir_value_leaves(node->outputs[i])))
            c->observer(c->observer_arg,
                        &(gqac_observed){.value = node->outputs[i]->origin,
                                         .node = node->name ? node->name : "",
                                         .op = node->op->name,
                                         .kernel = node->kernel ? node->kernel : "",
                                         .tensor = &e->values[node->outputs[i]->id]});
}

/* Also of the group that ends in the node, whose nodes with such results lie before it. */
static void tell_observer(void *arg, const exec *e, const ir_node *node) {
    const ir_node *first = node;
    while (first->prev && first->prev->fused_into == node)
        first = first->prev;
    for (; first != node->next; first = first->next)
        tell_node(arg, e, first);
}

void gqac_context_observe(gqac_context *context, gqac_observer *observer, void *arg) {
    context->observer = observer;
    context->observer_arg = arg;
    context->exec.observe = observer ? tell_observer : NULL;
    context->exec.observe_arg = context;
}

gqac_logits gqac_context_set_logits(gqac_context *context, gqac_logits logits) {
    const gqac_logits before = context->wanted;
    context->wanted = logits;
    return before;
}

/* Room for count * size bytes; earlier contents are lost. */
static gqac_status room(exec_buffer *buffer, size_t count, size_t size, gqac_diag *diag) {
    size_t bytes = 0;
    if (!gqac_mul_size(count, size, &bytes))
        return gqac_diag_oom(diag, "a step");
    return exec_room(buffer, bytes, "a step", diag);
}

/* ---- checks -------------------------------------------------------------- */

static gqac_status check_tokens(const step *s, int i) {
    const int64_t vocabulary = gqac_program_vocabulary(s->context->program);
    for (int64_t j = 0; j < s->counts[i]; j++) {
        const int64_t id = s->tokens[s->first[i] + j];
        if (id >= 0 && id <= INT32_MAX && (!vocabulary || id < vocabulary))
            continue;
        gqac_diag_set(s->diag, GQAC_OUT_OF_RANGE, "token id %lld at index %lld of sequence %d",
                      (long long)id, (long long)j, i);
        gqac_diag_rule(s->diag, "0 <= id < %lld", (long long)(vocabulary ? vocabulary : INT32_MAX));
        return GQAC_OUT_OF_RANGE;
    }
    return GQAC_OK;
}

static gqac_status check_sequence(const step *s, int i, const int64_t *positions) {
    const gqac_sequence *q = s->sequences[i];
    if (!q)
        GQAC_FAIL(s->diag, GQAC_USAGE, "sequence %d is NULL", i);
    const int64_t length = gqac_sequence_length(q);
    if (q->program != s->context->program)
        GQAC_FAIL(s->diag, GQAC_USAGE, "sequence %d belongs to another program", i);
    if (s->counts[i] < 1 || s->counts[i] > INT32_MAX - length)
        GQAC_FAIL(s->diag, GQAC_OUT_OF_RANGE, "sequence %d: %lld new tokens after %lld", i,
                  (long long)s->counts[i], (long long)length);
    if (positions && positions[i] != length)
        GQAC_FAIL(s->diag, GQAC_OUT_OF_RANGE,
                  "sequence %d: position %lld given, %lld tokens are cached", i,
                  (long long)positions[i], (long long)length);
    return check_tokens(s, i);
}

static gqac_status check_all(step *s, const int64_t *positions) {
    if (s->n < 1)
        GQAC_FAIL(s->diag, GQAC_USAGE, "a step needs at least one sequence");
    int64_t next = 0;
    for (int i = 0; i < s->n; i++) {
        s->first[i] = next;
        GQAC_TRY(check_sequence(s, i, positions));
        for (int j = 0; j < i; j++)
            if (s->sequences[j] == s->sequences[i])
                GQAC_FAIL(s->diag, GQAC_USAGE, "sequences %d and %d are the same", j, i);
        if (!gqac_add_i64(next, s->counts[i], &next))
            GQAC_FAIL(s->diag, GQAC_OUT_OF_RANGE, "too many tokens in one step");
    }
    return GQAC_OK;
}

/* ---- rope tables --------------------------------------------------------- */

static gqac_status guard_bits(step *s, int64_t total, unsigned *bits) {
    const gqac_program *p = s->context->program;
    exec *e = &s->context->exec;
    gqac_tensor t = {.dtype = p->inputs[p->roles.total_len].dtype, .data = &total};
    t.rank = p->inputs[p->roles.total_len].rank;
    for (int i = 0; i < t.rank && i < GQAC_MAX_RANK; i++)
        t.dims[i] = 1;
    *bits = 0;
    exec_set_input(e, p->roles.total_len, &t);
    for (int g = 0; g < p->n_guards; g++) {
        bool taken = false;
        GQAC_TRY(exec_guard(e, g, &taken, s->diag));
        *bits |= (unsigned)taken << g;
    }
    return GQAC_OK;
}

/* The side of every LongRoPE threshold sequence i is on: picked by its final length if declared,
 * else by its first step; a later step on another side would mix keys of two tables. */
static gqac_status choose_tables(step *s, int i) {
    const gqac_sequence *q = s->sequences[i];
    const int64_t total = gqac_sequence_length(q) + s->counts[i];
    const bool declared = q->final_length > 0;
    if (s->again) {
        s->pinned[i] = q->pinned;
        s->guards[i] = q->guards;
        return GQAC_OK;
    }
    if (declared && total > q->final_length) {
        gqac_diag_set(s->diag, GQAC_OUT_OF_RANGE,
                      "sequence %d would reach %lld tokens but was opened for %lld", i,
                      (long long)total, (long long)q->final_length);
        gqac_diag_hint(s->diag, "open the sequence with a larger final length");
        return GQAC_OUT_OF_RANGE;
    }
    s->pinned[i] = declared ? q->final_length : total;
    s->guards[i] = 0;
    if (!s->context->program->n_guards)
        return GQAC_OK;
    unsigned cached = q->guards;
    GQAC_TRY(guard_bits(s, s->pinned[i], &s->guards[i]));
    if (q->imported)
        GQAC_TRY(guard_bits(s, q->pinned, &cached));
    if (q->pinned && s->guards[i] != cached) {
        gqac_diag_set(s->diag, GQAC_RECOMPUTE,
                      "sequence %d crosses the LongRoPE threshold: %lld tokens are cached with the "
                      "rope table of length %lld, the step would reach %lld",
                      i, (long long)gqac_sequence_length(q), (long long)q->pinned,
                      (long long)total);
        gqac_diag_rule(s->diag, "all keys of a sequence are rotated with one table");
        gqac_diag_hint(s->diag, "recompute: rewind to 0 and feed all tokens again, or open the "
                                "sequence with its final length");
        return GQAC_RECOMPUTE;
    }
    return GQAC_OK;
}

/* ---- one group ----------------------------------------------------------- */

enum { IDS, POSITIONS, PAST, NEW, BATCH, GROUPS };

static void put_id(gqac_dtype dtype, void *data, int64_t index, int64_t id) {
    if (dtype == GQAC_I64)
        ((int64_t *)data)[index] = id;
    else
        ((int32_t *)data)[index] = (int32_t)id;
}

/* Fills the graph inputs for the rows listed in `members`; S is the longest of them. */
static gqac_status fill_inputs(step *s, const int *members, int rows, int64_t width) {
    gqac_context *c = s->context;
    const gqac_program *p = c->program;
    const size_t cells = (size_t)rows * (size_t)width;
    GQAC_TRY(room(&c->scratch[IDS], cells, sizeof(int64_t), s->diag));
    const int64_t planes = p->roles.position_planes;
    GQAC_TRY(room(&c->scratch[POSITIONS], cells, (planes ? (size_t)planes : 1) * sizeof(int64_t),
                  s->diag));
    GQAC_TRY(room(&c->scratch[PAST], (size_t)rows, sizeof(int32_t), s->diag));
    GQAC_TRY(room(&c->scratch[NEW], (size_t)rows, sizeof(int32_t), s->diag));
    const gqac_dtype dtype = p->inputs[p->roles.input_ids].dtype;
    for (int b = 0; b < rows; b++) {
        const int i = members[b];
        const int64_t past = gqac_sequence_length(s->sequences[i]);
        ((int32_t *)c->scratch[PAST].data)[b] = (int32_t)past;
        ((int32_t *)c->scratch[NEW].data)[b] = (int32_t)s->counts[i];
        for (int64_t j = 0; j < width; j++) {
            const bool real = j < s->counts[i];
            put_id(dtype, c->scratch[IDS].data, b * width + j,
                   real ? s->tokens[s->first[i] + j] : 0);
            /* a pad row repeats the last position, so that it stays inside the rope table */
            const int64_t row = real ? j : s->counts[i] - 1;
            ((int64_t *)c->scratch[POSITIONS].data)[b * width + j] = past + row;
        }
    }
    for (int64_t k = 1; k < planes; k++)
        memcpy((int64_t *)c->scratch[POSITIONS].data + k * (int64_t)cells,
               c->scratch[POSITIONS].data, cells * sizeof(int64_t));
    const struct {
        int role, rank;
        gqac_dtype dtype;
        void *data;
    } table[] = {{p->roles.input_ids, 2, dtype, c->scratch[IDS].data},
                 {p->roles.position_ids, 2, GQAC_I64, c->scratch[POSITIONS].data},
                 {p->roles.past_len, 1, GQAC_I32, c->scratch[PAST].data},
                 {p->roles.new_len, 1, GQAC_I32, c->scratch[NEW].data}};
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        const gqac_tensor t = {.dtype = table[k].dtype,
                               .rank = table[k].rank,
                               .dims = {rows, table[k].rank == 2 ? width : 0},
                               .data = table[k].data};
        if (planes && table[k].role == p->roles.position_ids && table[k].role >= 0)
            exec_set_input(&c->exec, table[k].role,
                           &(gqac_tensor){.dtype = GQAC_I64,
                                          .rank = 3,
                                          .dims = {planes, rows, width},
                                          .data = table[k].data});
        else if (table[k].role >= 0)
            exec_set_input(&c->exec, table[k].role, &t);
    }
    return GQAC_OK;
}

/* The logits of a group: [B,S,V], or [B,1,V] of the last rows. */
static gqac_status check_logits(step *s, const gqac_tensor *t, int rows, int64_t width) {
    gqac_context *c = s->context;
    const program_roles *roles = &c->program->roles;
    if (t->rank != 3 || t->dims[0] != rows || (t->dims[1] != width && t->dims[1] != 1) ||
        !gqac_dtype_is_float(t->dtype) || t->dtype == GQAC_F64)
        GQAC_FAIL(s->diag, GQAC_UNSUPPORTED, "the logits are not float [B,S,V] or [B,1,V]");
    if (t->dims[1] != width && rows > 1 && roles->logit_rows < 0)
        GQAC_FAIL(
            s->diag, GQAC_UNSUPPORTED,
            "the model gives logits of the last column only: ragged rows cannot share a call");
    c->vocabulary = gqac_program_vocabulary(c->program);
    if (t->dims[2] != c->vocabulary)
        GQAC_FAIL(s->diag, GQAC_INVALID_MODEL, "the logits are %lld wide, the graph says %lld",
                  (long long)t->dims[2], (long long)c->vocabulary);
    return GQAC_OK;
}

/* Copies n rows of logits from row `from` of the result to row `to` of all rows of the step. */
static void copy_logits(gqac_context *c, const gqac_tensor *t, int64_t from, int64_t to,
                        int64_t n) {
    const size_t width = (size_t)c->vocabulary, cells = (size_t)n * width;
    const size_t first = (size_t)from * width;
    float *out = (float *)c->logits.data + (size_t)to * width;
    if (t->dtype == GQAC_F32) {
        memcpy(out, (const float *)t->data + first, cells * sizeof(float));
        return;
    }
    const uint16_t *bits = (const uint16_t *)t->data + first;
    for (size_t k = 0; k < cells; k++)
        out[k] = t->dtype == GQAC_F16 ? gqn_f16_to_f32(bits[k]) : gqn_bf16_to_f32(bits[k]);
}

/* How many rows of logits sequence i has when the graph gives `given` for each. */
static int64_t rows_of(const step *s, int i, int64_t given) {
    return s->context->wanted == GQAC_LOGITS_LAST || given < s->counts[i] ? 1 : s->counts[i];
}

/* Keeps the logits of the group's rows. One group of rows that lie one behind another in the
 * result, as in decode, is left there. */
static gqac_status keep_logits(step *s, const int *members, int rows, int64_t width) {
    gqac_context *c = s->context;
    const gqac_tensor *t = exec_result(&c->exec, c->program->roles.logits);
    GQAC_TRY(check_logits(s, t, rows, width));
    int64_t *where = c->logit_rows.data;
    bool dense = rows == s->n && t->dtype == GQAC_F32;
    for (int b = 0; b < rows; b++)
        dense = dense && rows_of(s, members[b], t->dims[1]) == t->dims[1];
    if (!dense && s->kept == 0) /* the first group makes room for all */
        GQAC_TRY(room(&c->logits, (size_t)s->rows * (size_t)c->vocabulary, sizeof(float), s->diag));
    c->rows = dense ? t->data : c->logits.data;
    for (int b = 0; b < rows; b++) {
        const int i = members[b];
        const int64_t count = rows_of(s, i, t->dims[1]);
        const int64_t last = t->dims[1] < s->counts[i] ? t->dims[1] : s->counts[i];
        where[2 * i] = s->kept;
        where[2 * i + 1] = count;
        if (!dense)
            copy_logits(c, t, b * t->dims[1] + last - count, s->kept, count);
        s->kept += count;
    }
    return GQAC_OK;
}

static gqac_status run_group(step *s, const int *members, int rows) {
    gqac_context *c = s->context;
    const gqac_program *p = c->program;
    int64_t width = 0, longest = 0, total = s->pinned[members[0]];
    GQAC_TRY(room(&c->scratch[BATCH], (size_t)rows, 3 * sizeof(int64_t) + sizeof(void *), s->diag));
    int64_t *past = c->scratch[BATCH].data, *count = past + rows, *begin = count + rows;
    kv_sequence **kv = (kv_sequence **)(void *)(begin + rows);
    for (int b = 0; b < rows; b++) {
        const int i = members[b];
        kv[b] = s->sequences[i]->kv;
        past[b] = gqac_sequence_length(s->sequences[i]);
        begin[b] = 0;
        count[b] = s->counts[i];
        width = count[b] > width ? count[b] : width;
        longest = past[b] + count[b] > longest ? past[b] + count[b] : longest;
    }
    GQAC_TRY(fill_inputs(s, members, rows, width));
    gqac_tensor t = {.dtype = GQAC_I64, .rank = 0, .dims = {1}, .data = &total};
    if (p->roles.total_len >= 0) {
        t.rank = p->inputs[p->roles.total_len].rank;
        exec_set_input(&c->exec, p->roles.total_len, &t);
    }
    int64_t which = c->wanted == GQAC_LOGITS_LAST;
    const gqac_tensor logit_rows = {.dtype = GQAC_I64, .data = &which};
    if (p->roles.logit_rows >= 0)
        exec_set_input(&c->exec, p->roles.logit_rows, &logit_rows);
    exec_expect(&c->exec, &(memory_lengths){.batch = rows,
                                            .chunk = width,
                                            .tokens = longest,
                                            .logit_rows = which ? 1 : width});
    kv_batch batch = {.n = rows, .sequences = kv, .past = past, .count = count, .begin = begin};
    c->exec.kv = &batch;
    gqac_status status = exec_run(&c->exec, s->diag);
    c->exec.kv = NULL;
    GQAC_TRY(status);
    return keep_logits(s, members, rows, width);
}

/* ---- the step ------------------------------------------------------------ */

static gqac_status run_all(step *s, int *members, bool *done) {
    gqac_context *c = s->context;
    const int64_t vocabulary = gqac_program_vocabulary(c->program);
    size_t cells = 0;
    s->rows = c->wanted == GQAC_LOGITS_LAST ? s->n : s->first[s->n - 1] + s->counts[s->n - 1];
    if (!vocabulary || !gqac_mul_size((size_t)s->rows, (size_t)vocabulary, &cells))
        GQAC_FAIL(s->diag, GQAC_UNSUPPORTED, "the size of the vocabulary is not constant");
    GQAC_TRY(room(&c->logit_rows, (size_t)s->n, 2 * sizeof(int64_t), s->diag));
    for (int i = 0; i < s->n; i++) {
        const int64_t length = gqac_sequence_length(s->sequences[i]) + s->counts[i];
        GQAC_TRY(kv_sequence_reserve(s->sequences[i]->kv, length, s->diag));
        GQAC_TRY(sequence_reserve_ids(s->sequences[i], length, s->diag));
    }
    for (int i = 0; i < s->n; i++) {
        int n = 0;
        for (int j = i; j < s->n; j++)
            if (!done[j] && s->guards[j] == s->guards[i]) {
                members[n++] = j;
                done[j] = true;
            }
        if (n)
            GQAC_TRY(run_group(s, members, n));
    }
    return GQAC_OK;
}

/* All went well: the new lengths hold. */
static void publish(const step *s) {
    for (int i = 0; i < s->n; i++) {
        gqac_sequence *q = s->sequences[i];
        const int64_t length = gqac_sequence_length(q);
        if (q->ids)
            memmove(q->ids + (length - q->given), s->tokens + s->first[i],
                    (size_t)s->counts[i] * sizeof *q->ids);
        kv_sequence_publish(q->kv, length + s->counts[i]);
        q->pinned = s->pinned[i];
        q->guards = s->guards[i];
        q->imported = false;
    }
}

static gqac_status run_step(step *s, const int64_t *positions) {
    gqac_context *context = s->context;
    context->n_logits = 0;
    const size_t rows = s->n > 0 ? (size_t)s->n : 1;
    GQAC_TRY(room(&context->scratch[GROUPS], rows, 4 * sizeof(int64_t), s->diag));
    s->first = context->scratch[GROUPS].data;
    s->pinned = s->first + rows;
    s->guards = (unsigned *)(s->pinned + rows);
    int *members = (int *)(s->guards + rows);
    bool *done = (bool *)(members + rows);
    memset(done, 0, rows);
    GQAC_TRY(check_all(s, positions));
    for (int i = 0; i < s->n; i++)
        GQAC_TRY(choose_tables(s, i));
    GQAC_TRY(run_all(s, members, done));
    publish(s);
    context->n_logits = s->n;
    return GQAC_OK;
}

enum { PIECE = 512 }; /* tokens that are computed again in one call */

/* Computes what a rewind left out. The bits are those of the first time, wherever calls end. */
static gqac_status catch_up(gqac_context *context, gqac_sequence *sequence, gqac_diag *diag) {
    const gqac_logits wanted = gqac_context_set_logits(context, GQAC_LOGITS_LAST);
    gqac_status status = GQAC_OK;
    while (status == GQAC_OK && sequence->behind) {
        const int64_t behind = sequence->behind, count = behind < PIECE ? behind : PIECE;
        sequence->behind = 0; /* for the length at which the call begins */
        const int64_t *ids = sequence->ids + (gqac_sequence_length(sequence) - sequence->given);
        step s = {.context = context,
                  .n = 1,
                  .sequences = &sequence,
                  .tokens = ids,
                  .counts = &count,
                  .again = true,
                  .diag = diag};
        status = run_step(&s, NULL);
        sequence->behind = status == GQAC_OK ? behind - count : behind;
    }
    gqac_context_set_logits(context, wanted);
    return status;
}

gqac_status gqac_step(gqac_context *context, int n, gqac_sequence *const *sequences,
                      const int64_t *tokens, const int64_t *counts, const int64_t *positions,
                      gqac_diag *diag) {
    step s = {.context = context,
              .n = n,
              .sequences = sequences,
              .tokens = tokens,
              .counts = counts,
              .diag = diag};
    if (context->program->stateless)
        GQAC_FAIL(diag, GQAC_USAGE, "the program was compiled without sequence state");
    for (int i = 0; i < n; i++)
        if (sequences[i] && sequences[i]->behind && sequences[i]->program == context->program)
            GQAC_TRY(catch_up(context, sequences[i], diag));
    return run_step(&s, positions);
}

const float *gqac_context_logits(const gqac_context *context, int i, int64_t *rows,
                                 int64_t *vocabulary) {
    if (i < 0 || i >= context->n_logits)
        return NULL;
    const int64_t *where = context->logit_rows.data;
    *rows = where[2 * i + 1];
    *vocabulary = context->vocabulary;
    return context->rows + (size_t)where[2 * i] * (size_t)*vocabulary;
}
