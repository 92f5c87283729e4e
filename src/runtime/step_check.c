/* What a step checks before anything runs: items, lengths, ids, rows of logits, and which side of
 * every LongRoPE threshold each item is on. */
#include "base/check.h"
#include "base/limits.h"
#include "runtime/step.h"

/* ---- checks -------------------------------------------------------------- */

gqac_status step_at_item(const step *s, int i, gqac_status status) {
    if (status != GQAC_OK && s->diag)
        s->diag->index = i;
    return status;
}

static gqac_status check_embeddings(const step *s, int i) {
    const int64_t width = s->context->program->roles.embedding;
    if (!width == !s->items[i].given.embeddings)
        return GQAC_OK;
    if (!width)
        GQAC_FAIL(s->diag, GQAC_USAGE, "item %d has embeddings, but the model needs token ids", i);
    gqac_diag_set(s->diag, GQAC_USAGE,
                  "item %d has no embeddings, but the model needs inputs_embeds, not token ids", i);
    gqac_diag_hint(s->diag, "set gqac_step_item.embeddings, %lld numbers for each token",
                   (long long)width);
    return GQAC_USAGE;
}

static gqac_status check_tokens(const step *s, int i) {
    const gqac_program *p = s->context->program;
    const int64_t vocabulary = p->roles.embedding ? 0 : gqac_program_vocabulary(p);
    const gqac_step_item *given = &s->items[i].given;
    for (int64_t j = 0; j < given->count; j++) {
        const int64_t id = given->tokens[j];
        if (id >= 0 && id <= INT32_MAX && (!vocabulary || id < vocabulary))
            continue;
        gqac_diag_set(s->diag, GQAC_OUT_OF_RANGE,
                      "token id %lld at index %lld of item %d is not in the vocabulary",
                      (long long)id, (long long)j, i);
        gqac_diag_rule(s->diag, "0 <= id < %lld",
                       vocabulary ? (long long)vocabulary : INT32_MAX + 1LL);
        return GQAC_OUT_OF_RANGE;
    }
    return GQAC_OK;
}

/* Checks the rows of logits that the item wants against the model. */
static gqac_status check_logits_wanted(const step *s, int i) {
    step_item *it = &s->items[i];
    const int64_t wanted = it->given.n_logits, count = it->given.count;
    if (wanted != GQAC_LOGITS_ALL && (wanted < 0 || wanted > count)) {
        gqac_diag_set(s->diag, GQAC_OUT_OF_RANGE,
                      "item %d requests %lld rows of logits for %lld tokens", i, (long long)wanted,
                      (long long)count);
        gqac_diag_rule(s->diag, "0 <= n_logits <= count, or GQAC_LOGITS_ALL");
        return GQAC_OUT_OF_RANGE;
    }
    if (it->given.n_top < 0 || it->given.n_top > GQAC_TOP_MOST) {
        gqac_diag_set(s->diag, GQAC_OUT_OF_RANGE,
                      "item %d requests the %lld likeliest ids, which is out of range", i,
                      (long long)it->given.n_top);
        gqac_diag_rule(s->diag, "0 <= n_top <= %d", GQAC_TOP_MOST);
        return GQAC_OUT_OF_RANGE;
    }
    it->wanted = wanted == GQAC_LOGITS_ALL ? count : wanted;
    if (it->wanted > 1 && s->context->program->roles.last_only) {
        gqac_diag_set(s->diag, GQAC_UNSUPPORTED,
                      "item %d requests %lld rows of logits, but the model returns only the row of "
                      "the last token",
                      i, (long long)it->wanted);
        gqac_diag_hint(s->diag, "use n_logits 0 or 1, or append one token in each step");
        return GQAC_UNSUPPORTED;
    }
    return GQAC_OK;
}

static gqac_status check_length(const step *s, int i, int64_t length) {
    const gqac_program *p = s->context->program;
    const gqac_step_item *given = &s->items[i].given;
    if (given->count < 1 || given->count > INT32_MAX - length)
        GQAC_FAIL(s->diag, GQAC_OUT_OF_RANGE, "item %d: cannot append %lld new tokens after %lld",
                  i, (long long)given->count, (long long)length);
    if (!given->tokens)
        GQAC_FAIL(s->diag, GQAC_USAGE, "the tokens of item %d are NULL", i);
    if (given->drafts < 0 || given->drafts >= given->count)
        GQAC_FAIL(s->diag, GQAC_OUT_OF_RANGE,
                  "%lld drafts among the %lld tokens of item %d are out of range: the first token "
                  "is never a draft",
                  (long long)given->drafts, (long long)given->count, i);
    if (given->position && *given->position != length)
        GQAC_FAIL(s->diag, GQAC_OUT_OF_RANGE,
                  "item %d: position %lld is given, but %lld tokens are cached", i,
                  (long long)*given->position, (long long)length);
    if (length + given->count <= p->most_tokens)
        return GQAC_OK;
    if (p->limited) {
        gqac_diag_set(s->diag, GQAC_OUT_OF_RANGE, "item %d: %lld tokens are too many", i,
                      (long long)length + given->count);
        gqac_limits_explain(s->diag, "context", p->most_tokens);
        return GQAC_OUT_OF_RANGE;
    }
    gqac_diag_set(s->diag, GQAC_OUT_OF_RANGE,
                  "item %d: position %lld is out of range: the tables of positions have %lld rows",
                  i, (long long)length + given->count - 1, (long long)p->most_tokens);
    gqac_diag_hint(s->diag, "append fewer tokens, or use a model with longer tables");
    return GQAC_OUT_OF_RANGE;
}

static gqac_status check_item(const step *s, int i) {
    const gqac_sequence *q = s->items[i].given.sequence;
    if (!q)
        GQAC_FAIL(s->diag, GQAC_USAGE, "the sequence of item %d is NULL", i);
    if (q->program != s->context->program)
        GQAC_FAIL(s->diag, GQAC_USAGE, "the sequence of item %d belongs to another program", i);
    GQAC_TRY(check_length(s, i, gqac_sequence_length(q)));
    GQAC_TRY(check_logits_wanted(s, i));
    GQAC_TRY(check_embeddings(s, i));
    return check_tokens(s, i);
}

/* All reads of an item by `check_items` go through this function; a test counts them. */
static step_item *look(const step *s, int i) {
    s->context->looks++;
    return &s->items[i];
}

/* Marks the sequence of item i; fails if an item before it has marked it. */
static gqac_status mark(const step *s, int i) {
    gqac_sequence *q = look(s, i)->given.sequence;
    int j = 0;
    if (!q->marked) {
        q->marked = true;
        return GQAC_OK;
    }
    while (look(s, j)->given.sequence != q)
        j++;
    gqac_diag_set(s->diag, GQAC_USAGE, "items %d and %d have the same sequence", j, i);
    return step_at_item(s, i, GQAC_USAGE);
}

/* Checks the items and marks their sequences; *marked becomes the number of marked sequences. */
static gqac_status check_and_mark(const step *s, int *marked) {
    int64_t tokens = 0;
    for (int i = 0; i < s->n; i++) {
        GQAC_TRY(step_at_item(s, i, check_item(s, i)));
        GQAC_TRY(mark(s, i));
        *marked = i + 1;
        if (!gqac_add_i64(tokens, look(s, i)->given.count, &tokens))
            GQAC_FAIL(s->diag, GQAC_OUT_OF_RANGE, "too many tokens in one step");
    }
    return GQAC_OK;
}

/* Looks at each item a fixed number of times, however many there are. */
static gqac_status check_items(const step *s) {
    int marked = 0;
    const gqac_status status = check_and_mark(s, &marked);
    for (int i = 0; i < marked; i++)
        look(s, i)->given.sequence->marked = false;
    return status;
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

/* Chooses, for item i, the side of every LongRoPE threshold: by the final length of its sequence if
 * it is declared, else by its first step. A later step on another side would mix keys of two
 * tables. */
static gqac_status choose_tables(step *s, int i) {
    step_item *it = &s->items[i];
    const gqac_sequence *q = it->given.sequence;
    const int64_t total = gqac_sequence_length(q) + it->given.count;
    const bool declared = q->final_length > 0;
    if (s->again) {
        it->pinned = q->pinned;
        it->guards = q->guards;
        return q->imported && s->context->program->n_guards ? guard_bits(s, q->pinned, &it->guards)
                                                            : GQAC_OK;
    }
    if (declared && total > q->final_length) {
        gqac_diag_set(s->diag, GQAC_OUT_OF_RANGE,
                      "the sequence of item %d would reach %lld tokens but was opened for %lld", i,
                      (long long)total, (long long)q->final_length);
        gqac_diag_hint(s->diag, "open the sequence with a larger final length");
        return GQAC_OUT_OF_RANGE;
    }
    it->pinned = declared ? q->final_length : total;
    it->guards = 0;
    if (!s->context->program->n_guards)
        return GQAC_OK;
    unsigned cached = q->guards;
    GQAC_TRY(guard_bits(s, it->pinned, &it->guards));
    if (q->imported)
        GQAC_TRY(guard_bits(s, q->pinned, &cached));
    if (q->pinned && it->guards != cached) {
        gqac_diag_set(s->diag, GQAC_RECOMPUTE,
                      "the sequence of item %d crosses the LongRoPE threshold: %lld tokens are "
                      "cached with the rope table of length %lld, the step would reach %lld",
                      i, (long long)gqac_sequence_length(q), (long long)q->pinned,
                      (long long)total);
        gqac_diag_rule(s->diag, "all keys of a sequence are rotated with one table");
        gqac_diag_hint(s->diag, "recompute: rewind to 0 and append all tokens again, or open the "
                                "sequence with its final length");
        return GQAC_RECOMPUTE;
    }
    return GQAC_OK;
}

static gqac_status find_threshold(step *s, int64_t most, int64_t *length) {
    int64_t low = 1, high = most;
    unsigned first = 0, last = 0, bits = 0;
    GQAC_TRY(guard_bits(s, low, &first));
    GQAC_TRY(guard_bits(s, high, &last));
    if (first == last)
        return GQAC_OK;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        GQAC_TRY(guard_bits(s, middle, &bits));
        *(bits == first ? &low : &high) = middle;
    }
    *length = low;
    return GQAC_OK;
}

gqac_status gqac_program_rope_threshold(const gqac_program *program, int64_t *length,
                                        gqac_diag *diag) {
    gqac_context *context = NULL;
    const int64_t most = program->most_tokens < INT32_MAX ? program->most_tokens : INT32_MAX;
    *length = 0;
    if (!program->n_guards || program->stateless)
        return GQAC_OK;
    GQAC_TRY(gqac_context_create(program, 1, &context, diag));
    const gqac_status status =
        find_threshold(&(step){.context = context, .diag = diag}, most, length);
    gqac_context_free(context);
    return status;
}

gqac_status step_check(step *s) {
    GQAC_TRY(check_items(s));
    for (int i = 0; i < s->n; i++)
        GQAC_TRY(step_at_item(s, i, choose_tables(s, i)));
    return GQAC_OK;
}
