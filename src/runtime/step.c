/* One step: any mixture of sequences and of new lengths, all or nothing.
 *
 * Check everything, reserve KV rows, run the graph for each group of items that agree on the rope
 * tables, keep the logits, and only then publish the new lengths. The new rows of a group follow
 * each other ([1,N], pass `ragged`); where the graph does not allow that, each item is a row of the
 * batch, padded to the longest, and padding writes nothing. */
#include "runtime/step.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/parts.h"
#include "numerics/convert.h"
#include "runtime/top.h"

/* Grows a buffer to count * size bytes; earlier contents are lost. */
static gqac_status reserve_array(exec_buffer *buffer, size_t count, size_t size, gqac_diag *diag) {
    size_t bytes = 0;
    if (!gqac_mul_size(count, size, &bytes))
        return gqac_diag_oom(diag, "a step");
    return exec_reserve(buffer, bytes, "a step", diag);
}

/* ---- arrays -------------------------------------------------------------- */

static void take_items(step *s, gqac_parts *p) {
    s->items = gqac_parts_take(p, s->n, sizeof *s->items);
    s->members = gqac_parts_take(p, s->n, sizeof *s->members);
}

static bool is_packed(const step *s) {
    return s->context->program->roles.packed;
}

static void take_group(step *s, gqac_parts *p) {
    const program_roles *roles = &s->context->program->roles;
    const int64_t n = s->n_members, cells = (is_packed(s) ? 1 : n) * s->width;
    const int64_t planes = roles->position_planes ? roles->position_planes : 1;
    const size_t id = roles->embedding ? (size_t)roles->embedding * sizeof(float) : sizeof(int64_t);
    step_group *g = &s->group;
    g->positions = gqac_parts_take(p, cells, (size_t)planes * sizeof *g->positions);
    g->logit_rows = gqac_parts_take(p, cells, sizeof *g->logit_rows);
    g->ids = gqac_parts_take(p, cells, id);
    g->past_len = gqac_parts_take(p, n, sizeof *g->past_len);
    g->new_len = gqac_parts_take(p, n, sizeof *g->new_len);
    g->sequences = gqac_parts_take(p, n, sizeof *g->sequences);
    g->past = gqac_parts_take(p, n, sizeof *g->past);
    g->count = gqac_parts_take(p, n, sizeof *g->count);
    g->begin = gqac_parts_take(p, n, sizeof *g->begin);
    g->common = gqac_parts_take(p, n, sizeof *g->common);
}

/* Sets the arrays that `take` takes, in a buffer that grows; earlier contents are lost. */
static gqac_status reserve_parts(step *s, exec_buffer *buffer, void (*take)(step *, gqac_parts *)) {
    gqac_parts p = {.base = NULL};
    take(s, &p);
    if (p.overflow)
        return gqac_diag_oom(s->diag, "a step");
    GQAC_TRY(exec_reserve(buffer, p.bytes, "a step", s->diag));
    p = (gqac_parts){.base = buffer->data};
    take(s, &p);
    return GQAC_OK;
}

/* ---- inputs of a group --------------------------------------------------- */

static void put_id(gqac_dtype dtype, void *data, int64_t index, int64_t id) {
    if (dtype == GQAC_I64)
        ((int64_t *)data)[index] = id;
    else
        ((int32_t *)data)[index] = (int32_t)id;
}

/* Row `index` of the embeddings: `row`, or zeros where that is NULL. */
static void put_embedding(const gqac_io *to, void *data, int64_t index, const float *row,
                          int64_t width) {
    uint16_t *halves = (uint16_t *)data + index * width;
    float *floats = (float *)data + index * width;
    for (int64_t i = 0; i < width; i++) {
        const float x = row ? row[i] : 0.0f;
        if (to->dtype == GQAC_F32)
            floats[i] = x;
        else
            halves[i] = to->dtype == GQAC_F16 ? gqn_f32_to_f16(x) : gqn_f32_to_bf16(x);
    }
}

/* The index, among all rows of the group, of the first new token of member b. */
static int64_t first_row(const step *s, const kv_batch *kv, int b) {
    return is_packed(s) ? kv->begin[b] : b * s->width;
}

/* Fills token ids, or embeddings, and positions of every row; padding repeats the last position,
 * which is inside the rope table. */
static void fill_rows(const step *s, const kv_batch *kv) {
    const gqac_context *c = s->context;
    const gqac_io *ids = &c->program->inputs[c->program->roles.input_ids];
    const int64_t width = c->program->roles.embedding;
    int64_t *positions = s->group.positions;
    for (int b = 0; b < kv->n; b++) {
        const gqac_step_item *given = &s->items[s->members[b]].given;
        const int64_t rows = is_packed(s) ? given->count : s->width;
        for (int64_t j = 0, at = first_row(s, kv, b); j < rows; j++, at++) {
            const bool real = j < given->count;
            if (width)
                put_embedding(ids, s->group.ids, at, real ? given->embeddings + j * width : NULL,
                              width);
            else
                put_id(ids->dtype, s->group.ids, at, real ? given->tokens[j] : 0);
            positions[at] = kv->past[b] + (real ? j : given->count - 1);
        }
    }
}

/* Lists the rows of logits that are wanted, in the order of the members; returns their number. */
static int64_t fill_logit_rows(const step *s, const kv_batch *kv) {
    int64_t *rows = s->group.logit_rows, n = 0;
    for (int b = 0; b < kv->n; b++) {
        const step_item *it = &s->items[s->members[b]];
        const int64_t end = first_row(s, kv, b) + it->given.count;
        for (int64_t row = end - it->wanted; row < end; row++)
            rows[n++] = row;
    }
    return n;
}

static void set_input(const step *s, int role, gqac_tensor tensor) {
    if (role >= 0)
        exec_set_input(&s->context->exec, role, &tensor);
}

/* Fills the graph inputs for the members of the group; returns the number of rows of logits that
 * are wanted. */
static int64_t fill_inputs(const step *s, const kv_batch *kv) {
    const gqac_context *c = s->context;
    const step_group *g = &s->group;
    const program_roles *roles = &c->program->roles;
    const int64_t batch = is_packed(s) ? 1 : kv->n;
    const int64_t cells = batch * s->width, planes = roles->position_planes;
    for (int b = 0; b < kv->n; b++) {
        g->past_len[b] = (int32_t)kv->past[b];
        g->new_len[b] = (int32_t)kv->count[b];
    }
    fill_rows(s, kv);
    for (int64_t k = 1; k < planes; k++)
        memcpy(g->positions + k * cells, g->positions, (size_t)cells * sizeof *g->positions);
    const int64_t logits = fill_logit_rows(s, kv);
    const gqac_tensor rows = {
        .dtype = GQAC_I64, .rank = 2, .dims = {batch, s->width}, .data = g->positions};
    const gqac_tensor lengths = {
        .dtype = GQAC_I32, .rank = 1, .dims = {kv->n}, .data = g->past_len};
    gqac_tensor ids = rows, fresh_lengths = lengths, three = rows;
    ids.dtype = roles->input_ids >= 0 ? c->program->inputs[roles->input_ids].dtype : GQAC_I64;
    ids.data = g->ids;
    if (roles->embedding) {
        ids.rank = 3;
        ids.dims[2] = roles->embedding;
    }
    fresh_lengths.data = g->new_len;
    if (planes)
        three = (gqac_tensor){
            .dtype = GQAC_I64, .rank = 3, .dims = {planes, batch, s->width}, .data = g->positions};
    set_input(s, roles->input_ids, ids);
    set_input(s, roles->position_ids, three);
    set_input(s, roles->positions, rows);
    set_input(s, roles->past_len, lengths);
    set_input(s, roles->new_len, fresh_lengths);
    set_input(s, roles->logit_rows,
              (gqac_tensor){.dtype = GQAC_I64, .rank = 1, .dims = {logits}, .data = g->logit_rows});
    return logits;
}

/* ---- logits -------------------------------------------------------------- */

/* Checks the logits of a group: [1,K,V] for the rows that are wanted, [B,S,V] for all rows, or
 * [B,1,V]. */
static gqac_status check_logits(const step *s, const gqac_tensor *t, int64_t wanted) {
    gqac_context *c = s->context;
    const program_roles *roles = &c->program->roles;
    const int64_t batch = is_packed(s) ? 1 : s->n_members;
    const bool asked = roles->logit_rows >= 0;
    if (t->rank != 3 || t->dims[0] != (asked ? 1 : batch) ||
        (t->dims[1] != (asked ? wanted : s->width) && (asked || t->dims[1] != 1)) ||
        !gqac_dtype_is_float(t->dtype) || t->dtype == GQAC_F64)
        GQAC_FAIL(s->diag, GQAC_UNSUPPORTED, "the logits are not float [B,S,V] or [B,1,V]");
    for (int b = 0; !asked && b < s->n_members; b++)
        if (s->items[s->members[b]].wanted > t->dims[1]) {
            gqac_diag_set(s->diag, GQAC_UNSUPPORTED,
                          "the model returns the logits of the last token of a call only");
            gqac_diag_hint(s->diag, "request one row of logits, or append one token in each step");
            return step_at_item(s, s->members[b], GQAC_UNSUPPORTED);
        }
    c->vocabulary = gqac_program_vocabulary(c->program);
    if (t->dims[2] != c->vocabulary)
        GQAC_FAIL(s->diag, GQAC_INVALID_MODEL,
                  "the logits have %lld columns, but the graph declares %lld",
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

/* The first row of member b in the result; `before`: the number of wanted rows of the members
 * before it. */
static int64_t result_row(const step *s, const gqac_tensor *t, const kv_batch *kv, int b,
                          int64_t before) {
    const program_roles *roles = &s->context->program->roles;
    const step_item *it = &s->items[s->members[b]];
    if (roles->logit_rows >= 0)
        return before;
    return t->dims[1] < s->width ? b : first_row(s, kv, b) + it->given.count - it->wanted;
}

/* Finds the likeliest ids of an item's rows. */
static void keep_top(gqac_context *c, const context_rows *of) {
    for (int64_t row = of->first; row < of->first + of->count; row++)
        top_select(c->rows + row * c->vocabulary, c->vocabulary, c->n_top,
                   (gqac_candidate *)c->top.data + row * c->n_top);
}

/* Keeps the logits of the group's rows, or their likeliest ids. Logits of a single group stay in
 * the result if they are contiguous there, as in decode. */
static gqac_status keep_logits(step *s, const kv_batch *kv, int64_t wanted) {
    gqac_context *c = s->context;
    const gqac_tensor *t = exec_result(&c->exec, c->program->roles.logits);
    GQAC_TRY(check_logits(s, t, wanted));
    const bool made = c->exec.top.made;
    const bool dense =
        made || (s->n_members == s->n && t->dtype == GQAC_F32 && t->dims[0] * t->dims[1] == wanted);
    if (!dense) /* memory for all groups */
        GQAC_TRY(reserve_array(&c->logits, (size_t)s->rows * (size_t)c->vocabulary, sizeof(float),
                               s->diag));
    c->rows = dense ? t->data : c->logits.data;
    int64_t before = 0;
    for (int b = 0; b < kv->n; b++) {
        const int i = s->members[b];
        const context_rows of = {
            .first = s->kept, .count = s->items[i].wanted, .top = s->items[i].given.n_top > 0};
        ((context_rows *)c->logit_rows.data)[i] = of;
        if (!dense)
            copy_logits(c, t, result_row(s, t, kv, b, before), s->kept, of.count);
        if (of.top && !made)
            keep_top(c, &of);
        before += of.count;
        s->kept += of.count;
    }
    return GQAC_OK;
}

/* What the run of a group does with its logits: a device can find the likeliest ids, and leave the
 * logits where they are, if no item of the step wants these. */
static exec_top top_of(const step *s, int64_t wanted) {
    const gqac_context *c = s->context;
    if (!s->top || s->logits || !wanted)
        return (exec_top){.n = 0};
    return (exec_top){.result = c->program->roles.logits,
                      .rows = wanted,
                      .n = s->top,
                      .ids = (gqac_candidate *)c->top.data + s->kept * s->top};
}

/* ---- one group ----------------------------------------------------------- */

static gqac_status run_graph(step *s, kv_batch *kv, int64_t longest) {
    gqac_context *c = s->context;
    const gqac_program *p = c->program;
    int64_t total = s->items[s->members[0]].pinned;
    const int64_t logits = fill_inputs(s, kv);
    gqac_tensor t = {.dtype = GQAC_I64, .dims = {1}, .data = &total};
    if (p->roles.total_len >= 0)
        t.rank = p->inputs[p->roles.total_len].rank;
    set_input(s, p->roles.total_len, t);
    exec_expect(&c->exec, &(memory_lengths){.sequences = kv->n,
                                            .batch = is_packed(s) ? 1 : kv->n,
                                            .chunk = s->width,
                                            .tokens = longest,
                                            .logit_rows = logits});
    c->exec.kv = kv;
    c->exec.top = top_of(s, logits);
    gqac_status status = exec_run(&c->exec, s->diag);
    if (status == GQAC_INVALID_INPUT && p->roles.one_token && s->width > 1)
        gqac_diag_hint(s->diag, "the model was exported for one token per call; gqac rewrite MODEL "
                                "--pass dynamic-seq makes one for any number");
    c->exec.kv = NULL;
    if (status == GQAC_OK)
        status = keep_logits(s, kv, logits);
    c->exec.top = (exec_top){.n = 0};
    return status;
}

static kv_sequence *member(const step *s, int i) {
    return s->items[s->members[i]].given.sequence->kv;
}

/* Reorders the members: after each comes, of those that remain, the one that shares the most
 * leading blocks with it. */
static void join_forks(step *s) {
    for (int i = 0; i + 2 < s->n_members; i++) {
        int64_t most = 0;
        int best = i + 1;
        for (int j = i + 1; j < s->n_members; j++) {
            const int64_t common = kv_sequence_common(member(s, i), member(s, j));
            best = common > most ? j : best;
            most = common > most ? common : most;
        }
        const int next = s->members[best];
        memmove(s->members + i + 2, s->members + i + 1, sizeof(int) * (size_t)(best - i - 1));
        s->members[i + 1] = next;
    }
}

static gqac_status run_group(step *s) {
    gqac_context *c = s->context;
    const step_group *g = &s->group;
    int64_t longest = 0, rows = 0;
    s->width = 0;
    for (int b = 0; b < s->n_members; b++) {
        const int64_t count = s->items[s->members[b]].given.count;
        s->width = is_packed(s) ? s->width + count : count > s->width ? count : s->width;
    }
    GQAC_TRY(reserve_parts(s, &c->group, take_group));
    join_forks(s);
    for (int b = 0; b < s->n_members; b++) {
        const gqac_step_item *given = &s->items[s->members[b]].given;
        g->sequences[b] = given->sequence->kv;
        g->past[b] = gqac_sequence_length(given->sequence);
        g->count[b] = given->count;
        g->begin[b] = is_packed(s) ? rows : 0;
        g->common[b] = b > 0 ? kv_sequence_common(g->sequences[b - 1], g->sequences[b]) : 0;
        rows += given->count;
        longest = g->past[b] + given->count > longest ? g->past[b] + given->count : longest;
    }
    exec_share(&c->exec, rows);
    kv_batch kv = {.n = s->n_members,
                   .packed = is_packed(s),
                   .sequences = g->sequences,
                   .past = g->past,
                   .count = g->count,
                   .begin = g->begin,
                   .common = g->common};
    return run_graph(s, &kv, longest);
}

/* ---- the step ------------------------------------------------------------ */

/* True if two items may run in one group. Kernels read the rows of all in one form. Where the model
 * may return logits of the last column only, they must have the same number of new tokens. */
static bool agree(const step *s, const step_item *a, const step_item *b) {
    return a->guards == b->guards &&
           kv_sequences_alike(a->given.sequence->kv, b->given.sequence->kv) &&
           (s->context->program->roles.every_row || a->given.count == b->given.count);
}

/* Reserves rows and ids for an item. Tokens of items may point to the ids of this sequence: if
 * those move, the pointers are corrected. */
static gqac_status reserve(const step *s, int i) {
    gqac_sequence *q = s->items[i].given.sequence;
    const int64_t length = gqac_sequence_length(q) + s->items[i].given.count;
    const uintptr_t before = (uintptr_t)q->ids, bytes = (uintptr_t)q->ids_capacity * sizeof *q->ids;
    GQAC_TRY(kv_sequence_reserve(q->kv, length, s->diag));
    GQAC_TRY(sequence_reserve_ids(q, length, s->diag));
    for (int j = 0; j < s->n && bytes && (uintptr_t)q->ids != before; j++) {
        gqac_step_item *other = &s->items[j].given;
        const uintptr_t at = (uintptr_t)other->tokens - before;
        if (at < bytes)
            other->tokens = q->ids + at / sizeof *q->ids;
    }
    return GQAC_OK;
}

static gqac_status run_all(step *s) {
    gqac_context *c = s->context;
    const int64_t vocabulary = gqac_program_vocabulary(c->program);
    size_t cells = 0;
    for (int i = 0; i < s->n; i++) {
        const int64_t n_top = s->items[i].given.n_top;
        s->rows += s->items[i].wanted;
        s->logits = s->logits || (s->items[i].wanted && !n_top);
        s->top = n_top > s->top ? n_top : s->top;
    }
    if (!vocabulary || !gqac_mul_size((size_t)s->rows, (size_t)vocabulary, &cells))
        GQAC_FAIL(s->diag, GQAC_UNSUPPORTED, "the size of the vocabulary is not constant");
    s->top = s->top < vocabulary ? s->top : vocabulary;
    c->n_top = s->top;
    GQAC_TRY(reserve_array(&c->logit_rows, (size_t)s->n, sizeof(context_rows), s->diag));
    if (s->top)
        GQAC_TRY(reserve_array(&c->top, (size_t)s->rows, (size_t)s->top * sizeof(gqac_candidate),
                               s->diag));
    for (int i = 0; i < s->n; i++)
        GQAC_TRY(step_at_item(s, i, reserve(s, i)));
    for (int i = 0; i < s->n; i++) {
        if (s->items[i].done)
            continue;
        s->n_members = 0;
        for (int j = i; j < s->n; j++)
            if (!s->items[j].done && agree(s, &s->items[i], &s->items[j])) {
                s->members[s->n_members++] = j;
                s->items[j].done = true;
            }
        GQAC_TRY(run_group(s));
    }
    return GQAC_OK;
}

/* Returns what was reserved; a rewind to the current length cannot fail. */
static void give_back(const step *s) {
    for (int i = 0; i < s->n; i++) {
        kv_sequence *kv = s->items[i].given.sequence->kv;
        (void)kv_sequence_rewind(kv, kv_sequence_length(kv), NULL);
    }
}

/* Publishes the new lengths after the whole step has succeeded. */
static void publish(const step *s) {
    for (int i = 0; i < s->n; i++) {
        const step_item *it = &s->items[i];
        gqac_sequence *q = it->given.sequence;
        const int64_t length = gqac_sequence_length(q), accepted = q->drafts;
        memmove(q->ids + (length - q->given), it->given.tokens,
                (size_t)it->given.count * sizeof *q->ids);
        kv_sequence_publish(q->kv, length + it->given.count);
        q->computed += it->given.count;
        q->pinned = it->pinned;
        q->guards = it->guards;
        q->imported = false;
        q->drafts = it->given.drafts;
        if (q->watch.committed)
            q->watch.committed(q->watch.arg, q, it->given.count - q->drafts, accepted);
    }
}

/* Reads item i, whose struct may be of an older or newer version. */
static gqac_status read_item(const gqac_step_item *items, int i, gqac_step_item *out,
                             gqac_diag *diag) {
    const size_t size = items->size, least = offsetof(gqac_step_item, position);
    const void *at = (const char *)items + (size_t)i * size;
    if (size < least || size % _Alignof(gqac_step_item))
        GQAC_FAIL(diag, GQAC_USAGE, "the field gqac_step_item.size is %zu, expected %zu", size,
                  sizeof *items);
    *out = (gqac_step_item){0};
    memcpy(out, at, size < sizeof *out ? size : sizeof *out);
    if (out->size != size)
        GQAC_FAIL(diag, GQAC_USAGE, "item %d of the step has size %zu, but item 0 has %zu", i,
                  out->size, size);
    return GQAC_OK;
}

static gqac_status run_step(gqac_context *context, int n, const gqac_step_item *items, bool again,
                            gqac_diag *diag) {
    step s = {.context = context, .n = n, .again = again, .diag = diag};
    context->n_logits = 0;
    GQAC_TRY(reserve_parts(&s, &context->items, take_items));
    for (int i = 0; i < n; i++) {
        s.items[i] = (step_item){.done = false};
        GQAC_TRY(step_at_item(&s, i, read_item(items, i, &s.items[i].given, diag)));
    }
    GQAC_TRY(step_check(&s));
    const gqac_status status = run_all(&s);
    if (status != GQAC_OK) {
#ifdef GQAC_CONTROL_PUBLISH_FAILED /* negative control: sequences keep what a failed step wrote */
        if (status == GQAC_OUT_OF_RANGE)
            publish(&s);
#endif
        give_back(&s);
        return status;
    }
    publish(&s);
    context->n_logits = n;
    return GQAC_OK;
}

enum { PIECE = 512 }; /* tokens that are computed again in one call */

/* Computes again the tokens that a rewind has left without rows. The bits are those of the first
 * time, wherever calls end. */
static gqac_status catch_up(gqac_context *context, gqac_sequence *sequence, gqac_diag *diag) {
    gqac_status status = GQAC_OK;
    while (status == GQAC_OK && sequence->missing) {
        const int64_t missing = sequence->missing, count = missing < PIECE ? missing : PIECE;
        sequence->missing = 0; /* the call begins at the length that has rows */
        const gqac_step_item again = {.size = sizeof again,
                                      .sequence = sequence,
                                      .tokens = sequence->ids +
                                                (gqac_sequence_length(sequence) - sequence->given),
                                      .count = count};
        status = run_step(context, 1, &again, true, diag);
        sequence->missing = status == GQAC_OK ? missing - count : missing;
    }
    return status;
}

/* Starts progress with the number of tokens that the call computes; only the sizes of items have
 * been checked so far. */
static gqac_status begin_poll(gqac_context *context, int n, const gqac_step_item *items,
                              gqac_diag *diag) {
    int64_t total = 0;
    for (int i = 0; i < n; i++) {
        gqac_step_item given;
        const gqac_status status = read_item(items, i, &given, diag);
        if (status != GQAC_OK && diag)
            diag->index = i;
        GQAC_TRY(status);
        if (given.count > 0 && given.count <= INT32_MAX)
            total += given.count + (given.sequence ? given.sequence->missing : 0);
    }
    gqac_poll_begin(&context->exec.poll, total, "tokens");
    return GQAC_OK;
}

static gqac_status catch_up_and_run(gqac_context *context, int n, const gqac_step_item *items,
                                    gqac_diag *diag) {
    for (int i = 0; i < n; i++) {
        gqac_step_item given;
        GQAC_TRY(read_item(items, i, &given, diag));
        gqac_sequence *q = given.sequence;
        gqac_status status = GQAC_OK;
        if (q && q->missing && q->program == context->program)
            status = catch_up(context, q, diag);
        if (status != GQAC_OK && status != GQAC_ABORTED && diag)
            diag->index = i;
        GQAC_TRY(status);
    }
    return run_step(context, n, items, false, diag);
}

static void log_step(const gqac_context *context, int n, gqac_status status, double seconds) {
    const gqac_log *log = &context->program->log;
    gqac_log_line(log, GQAC_LOG_DEBUG, "step of %d sequences, %lld tokens: %s, %.3f ms", n,
                  (long long)context->exec.poll.total, gqac_status_name(status), seconds * 1e3);
}

gqac_status gqac_step(gqac_context *context, int n, const gqac_step_item *items, gqac_diag *diag) {
    const gqac_log *log = &context->program->log;
    const double began = gqac_log_wants(log, GQAC_LOG_DEBUG) ? gqac_clock_seconds() : 0;
    context->n_logits = 0;
    GQAC_TRY(sequence_check_program(context->program, diag));
    if (n < 1)
        GQAC_FAIL(diag, GQAC_USAGE, "a step needs at least one sequence");
    GQAC_TRY(context_check_files(context, diag));
    GQAC_TRY(begin_poll(context, n, items, diag));
    const gqac_status status = catch_up_and_run(context, n, items, diag);
    if (began > 0)
        log_step(context, n, status, gqac_clock_seconds() - began);
    return status;
}

gqac_status gqac_sequence_append(gqac_context *context, gqac_sequence *sequence,
                                 const int64_t *tokens, int64_t count, int64_t n_logits,
                                 gqac_diag *diag) {
    const gqac_step_item item = {.size = sizeof item,
                                 .sequence = sequence,
                                 .tokens = tokens,
                                 .count = count,
                                 .n_logits = n_logits};
    return gqac_step(context, 1, &item, diag);
}
