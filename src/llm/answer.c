/* One request: checks before anything runs, the choice of an id by a row of logits, and the result.
 * The loop (generate.c) runs the model and handles no text. */
#include "llm/answer.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/sized.h"

/* ---- before -------------------------------------------------------------- */

static gqac_status check(const gqac_generate_request *q, const gqac_program *decoder,
                         gqac_diag *diag) {
    if (!q->session && !decoder)
        GQAC_FAIL(diag, GQAC_USAGE, "the session is NULL");
    if (q->n_prompt < 1 || !q->prompt)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "the prompt has no ids; at least one is needed");
    if (q->n_prompt > INT32_MAX)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "the prompt has %zu ids; the maximum is %d", q->n_prompt,
                  INT32_MAX);
    if (q->max_new < 0 || q->min_length < 0 || q->chunk < 0)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE,
                  "max_new (%lld), min_length (%lld) and chunk (%lld) must not be negative",
                  (long long)q->max_new, (long long)q->min_length, (long long)q->chunk);
    if (q->n_top < 0 || q->n_top > INT32_MAX)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "n_top is %lld, but must be from 0 to %d",
                  (long long)q->n_top, INT32_MAX);
    if (q->ids_only && q->n_top)
        GQAC_FAIL(diag, GQAC_USAGE, "n_top is %lld, but events have no probabilities (ids_only)",
                  (long long)q->n_top);
    if (q->n_eos < 0 || (q->n_eos && !q->eos) || q->n_stop < 0 || (q->n_stop && !q->stop))
        GQAC_FAIL(diag, GQAC_USAGE,
                  "there are %d end-of-text ids (eos) and %d stop texts (stop), but no such list",
                  q->n_eos, q->n_stop);
    return GQAC_OK;
}

static gqac_status check_ids(const answer *a, const gqac_program *decoder, gqac_diag *diag) {
    const gqac_generate_request *q = a->request;
    int64_t vocabulary = gqac_program_vocabulary(decoder ? decoder : q->session->program);
    if (vocabulary < 1 && !decoder)
        GQAC_FAIL(diag, GQAC_UNSUPPORTED, "the size of the model's vocabulary is not constant");
    vocabulary = vocabulary < 1 ? INT32_MAX : vocabulary;
    for (size_t i = 0; i < q->n_prompt; i++)
        if (q->prompt[i] < 0 || q->prompt[i] >= vocabulary) {
            gqac_diag_set(diag, GQAC_OUT_OF_RANGE,
                          "token id %lld at index %zu of the prompt is out of range",
                          (long long)q->prompt[i], i);
            gqac_diag_rule(diag, "0 <= id < %lld", (long long)vocabulary);
            gqac_diag_hint(diag, "use the ids of the model's own tokenizer");
            return GQAC_OUT_OF_RANGE;
        }
    return sampler_check_ids(&a->sampling, vocabulary, diag);
}

static gqac_status check_drafts(const gqac_generate_request *q, gqac_diag *diag) {
    const gqac_session *draft = q->draft;
    if (q->speculate < 0)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "speculate is %lld, but must not be negative",
                  (long long)q->speculate);
    if (!draft)
        return GQAC_OK;
    if (!q->speculate || !q->draft_context)
        GQAC_FAIL(diag, GQAC_USAGE, "there is a draft session, but %s",
                  q->speculate ? "no context for it" : "speculate is 0");
    if (draft == q->session || draft->off)
        GQAC_FAIL(diag, GQAC_USAGE, "the draft session is %s",
                  draft->off ? "of kind \"off\"" : "that of the answer");
    if (gqac_program_vocabulary(draft->program) < 1)
        GQAC_FAIL(diag, GQAC_UNSUPPORTED,
                  "the size of the draft model's vocabulary is not constant");
    return GQAC_OK;
}

/* Copies the caller's request into the answer and checks it. */
static gqac_status take(answer *a, const gqac_generate_request *request, const gqac_text *text,
                        const gqac_program *decoder, gqac_diag *diag) {
    a->request = &a->own;
    gqac_sampling_init(&a->sampling);
    a->sampling.rules = text ? gqac_text_get_settings(text)->rules : NULL;
    GQAC_TRY(gqac_sized_take(&a->own, sizeof a->own, request, "gqac_generate_request", diag));
    GQAC_TRY(
        gqac_sized_take(&a->sampling, sizeof a->sampling, a->own.sampling, "gqac_sampling", diag));
    a->sampling.n_prompt = a->own.n_prompt;
    GQAC_TRY(check(&a->own, decoder, diag));
    GQAC_TRY(check_drafts(&a->own, diag));
    GQAC_TRY(sampler_check(&a->sampling, diag));
    return check_ids(a, decoder, diag);
}

/* Maximum of tokens of prompt and answer together; 0: none. */
static int64_t maximum(const answer *a, const gqac_text *text) {
    const int64_t own = a->session ? a->session->context : 0;
    const int64_t model = text ? gqac_text_get_settings(text)->context_length : 0;
    return own && (!model || own < model) ? own : model;
}

static gqac_status set_limit(answer *a, const gqac_text *text, gqac_diag *diag) {
    const int64_t most = maximum(a, text), prompt = (int64_t)a->request->n_prompt;
    int64_t limit = a->request->max_new;
    if (most > 0 && prompt > most) {
        gqac_diag_set(diag, GQAC_CAPACITY, "the prompt has %lld tokens, but the context only %lld",
                      (long long)prompt, (long long)most);
        gqac_diag_rule(diag, "prompt and answer together fit into the context");
        gqac_diag_hint(
            diag, "shorten the prompt; the positions of the model and context_length in its config "
                  "limit the context");
        return GQAC_CAPACITY;
    }
    if (most > 0 && limit > most - prompt)
        limit = most - prompt;
    a->limit = (size_t)limit;
    a->sampling.max_length = a->request->n_prompt + a->limit;
    if (!limit)
        answer_finish(a, GQAC_FINISH_LENGTH);
    return GQAC_OK;
}

static double read_clock(const gqac_generate_request *q) {
    return q->clock ? q->clock(q->clock_arg) : gqac_clock_seconds();
}

double answer_clock(const answer *a) {
    return read_clock(a->request);
}

gqac_status answer_open(answer *a, const gqac_generate_request *given, const gqac_text *text,
                        const gqac_program *decoder, gqac_diag *diag) {
    const gqac_status status = take(a, given, text, decoder, diag);
    const gqac_generate_request *request = a->request;
    a->session = request->session;
    GQAC_TRY(status);
    GQAC_TRY(set_limit(a, text, diag));
    GQAC_TRY(reply_open(&a->reply, text, request->n_stop, request->stop, diag));
    a->n = a->capacity = request->n_prompt;
    a->list = gqac_alloc(a->n * sizeof *a->list);
    if (!a->list)
        return gqac_diag_oom(diag, "an answer");
    memcpy(a->list, request->prompt, a->n * sizeof *a->list);
    if (request->constraint)
        GQAC_TRY(gqac_constraint_begin(request->constraint, &a->constraint, diag));
    a->start = read_clock(request);
    return GQAC_OK;
}

void answer_close(answer *a) {
    reply_close(&a->reply);
    gqac_free(a->list);
    gqac_free(a->forward);
    gqac_free(a->hooked);
    gqac_free(a->top);
    gqac_constraint_state_free(a->constraint);
    if (a->session)
        session_end(a->session);
}

gqac_status answer_begin(answer *a, gqac_diag *diag) {
    GQAC_TRY(session_keep(a->session, a->list, a->n, &a->reused, diag));
    a->again = a->reused ? gqac_sequence_missing(a->session->sequence) : 0;
    a->reused -= a->again;
    return GQAC_OK;
}

gqac_status answer_step(answer *a, gqac_diag *diag) {
    if (a->running)
        return GQAC_OK;
    a->begin = read_clock(a->request);
    if (a->session)
        GQAC_TRY(session_begin(a->session, (int64_t)a->n, diag));
    a->running = true;
    return GQAC_OK;
}

void answer_took(answer *a, int64_t count) {
    if (a->session)
        session_append(a->session, a->list + a->session->n, (size_t)count);
    a->computed += count + a->again + (int64_t)a->drafted;
    a->again = 0;
    if (!a->session || !answer_pending(a)) /* before the callbacks of other requests */
        a->end = read_clock(a->request);
}

/* ---- a row of logits ----------------------------------------------------- */

bool answer_is_eos(const answer *a, int64_t id) {
    return gqac_has_id(a->request->eos, (size_t)a->request->n_eos, id);
}

void answer_finish(answer *a, gqac_finish finish) {
    a->done = true;
    a->finish = finish;
}

/* Adds the text of the newest id, and decides whether it is the last. */
static gqac_status take_text(answer *a, bool eos, gqac_diag *diag) {
    const int64_t id = a->list[a->n - 1];
    bool may_end = false, complete = false;
    if (!eos)
        GQAC_TRY(reply_push(&a->reply, id, diag));
    if (!eos && a->constraint) {
        GQAC_TRY(gqac_constraint_push(a->constraint, id, diag));
        GQAC_TRY(gqac_constraint_ends(a->constraint, &may_end, &complete, diag));
    }
    if (eos)
        answer_finish(a, GQAC_FINISH_EOS);
    else if (complete)
        answer_finish(a, GQAC_FINISH_STOP);
    else if (!a->reply.stopped && answer_new(a) >= a->limit)
        answer_finish(a, GQAC_FINISH_LENGTH);
    if (a->done)
        GQAC_TRY(reply_finish(&a->reply, diag));
    if (a->reply.stopped && !eos)
        answer_finish(a, GQAC_FINISH_STOP);
    return GQAC_OK;
}

/* Measures the newest id and the most likely ones by a row of logits. */
static void measure_id(const answer *a, sampler *s, const float *logits,
                       gqac_generate_event *event) {
    const softmax of = sampler_softmax(s, logits);
    softmax_measure(&of, logits[event->id], &event->probability, &event->log_probability);
    if (a->top)
        event->n_top = sampler_top(s, &of, logits, a->request->n_top, a->top);
}

/* Calls on_token for the newest id; `drafted`: by logits of a draft. */
static void report(answer *a, sampler *s, const float *logits, bool drafted, int index) {
    const gqac_generate_request *q = a->request;
    const size_t step = answer_new(a);
    gqac_generate_event event = {.size = sizeof event,
                                 .request = index,
                                 .step = (int64_t)step,
                                 .id = a->list[a->n - 1],
                                 .phase = step == 1 ? "prefill"
                                          : drafted ? "draft"
                                                    : "decode",
                                 .eos = a->done && a->finish == GQAC_FINISH_EOS,
                                 .top = a->top};
    if (q->ids_only)
        event.probability = event.log_probability = NAN;
    else
        measure_id(a, s, logits, &event);
    event.text = reply_take(&a->reply, a->done, &event.length);
    if (!q->on_token(q->arg, &event) && !a->done)
        answer_finish(a, GQAC_FINISH_STOP);
}

/* Masks a row of logits. *wanted false: the constraint is complete. */
static gqac_status constrain(const answer *a, float *row, int64_t vocabulary, bool *wanted,
                             gqac_diag *diag) {
    const gqac_generate_request *q = a->request;
    bool may_end = false, complete = false;
    GQAC_TRY(gqac_constraint_ends(a->constraint, &may_end, &complete, diag));
    *wanted = !complete;
    return complete ? GQAC_OK
                    : gqac_constraint_mask(a->constraint, row, vocabulary, q->eos, q->n_eos, diag);
}

/* Sets *logits to those of the model, or to the copy that on_logits and the constraint have
 * changed; *wanted false: one of them ends the answer. */
static gqac_status hook(answer *a, const float *model, int64_t vocabulary, const float **logits,
                        bool *wanted, gqac_diag *diag) {
    const gqac_generate_request *q = a->request;
    const size_t bytes = (size_t)vocabulary * sizeof(float);
    *logits = model;
    *wanted = true;
    if (!q->on_logits && !a->constraint)
        return GQAC_OK;
    if (!a->hooked)
        a->hooked = gqac_alloc(bytes);
    if (!a->hooked)
        return gqac_diag_oom(diag, "an answer");
    memcpy(a->hooked, model, bytes);
    if (q->on_logits)
        *wanted = q->on_logits(q->logits_arg, a->hooked, vocabulary, a->list, a->n);
    *logits = a->hooked;
    return *wanted && a->constraint ? constrain(a, a->hooked, vocabulary, wanted, diag) : GQAC_OK;
}

/* Memory for one more id. */
static gqac_status reserve(answer *a, int64_t vocabulary, gqac_diag *diag) {
    const int64_t asked = a->request->n_top, n_top = asked < vocabulary ? asked : vocabulary;
    if (n_top && !a->top && a->request->on_token) {
        a->top = gqac_calloc((size_t)n_top, sizeof *a->top);
        if (!a->top)
            return gqac_diag_oom(diag, "an answer");
    }
    return gqac_reserve(&a->list, a->n + 1, &a->capacity, sizeof *a->list) &&
                   gqac_reserve(&a->forward, a->n_forward + 1, &a->forward_capacity,
                                sizeof *a->forward)
               ? GQAC_OK
               : gqac_diag_oom(diag, "an answer");
}

/* True if an end-of-text id cannot be chosen yet. */
static bool is_early(const answer *a) {
    return a->n < (uint64_t)a->request->min_length;
}

int64_t answer_needs(const answer *a) {
    const gqac_generate_request *q = a->request;
    return q->ids_only && !q->on_logits && !a->constraint && !is_early(a)
               ? sampler_needs(&a->sampling)
               : 0;
}

/* Chooses by a row; *wanted false: the answer ends without a further id. */
static gqac_status pick(answer *a, sampler *s, const answer_row *row, bool *wanted, int64_t *id,
                        gqac_diag *diag) {
    const gqac_generate_request *q = a->request;
    const float *logits = NULL;
    *wanted = true;
    if (!row->logits)
        return sampler_pick_top(s, &a->sampling, row->top, row->width, a->n, id, diag);
    GQAC_TRY(hook(a, row->logits, row->width, &logits, wanted, diag));
    return *wanted ? sampler_pick(s, &a->sampling, logits, a->list, a->n, q->eos,
                                  is_early(a) ? q->n_eos : 0, a->n, id, NULL, diag)
                   : GQAC_OK;
}

gqac_status answer_pick(answer *a, sampler *s, const answer_row *row, int index, gqac_diag *diag) {
    const gqac_generate_request *q = a->request;
    bool wanted = true;
    const bool drafted = !a->running; /* the step has chosen an id already */
    int64_t id = 0;
    GQAC_TRY(reserve(a, row->width, diag));
    GQAC_TRY(pick(a, s, row, &wanted, &id, diag));
    a->running = false;
    if (!wanted) {
        answer_finish(a, GQAC_FINISH_STOP);
        return GQAC_OK;
    }
    if (!drafted)
        a->forward[a->n_forward++] = a->end - a->begin;
    a->list[a->n++] = id;
    if (answer_new(a) == 1)
        a->first = read_clock(q) - a->start;
    GQAC_TRY(take_text(a, answer_is_eos(a, id), diag));
    if (q->on_token)
        report(a, s, row->logits, drafted, index);
    return GQAC_OK;
}

/* ---- after --------------------------------------------------------------- */

static void measure(const answer *a, gqac_generate_metrics *m) {
    double sum = 0;
    double *ms = a->forward;
    m->size = sizeof *m;
    m->n_forwards = a->n_forward;
    m->reused_tokens = a->reused;
    m->computed_tokens = a->computed;
    m->drafted_tokens = a->n_drafted;
    m->accepted_tokens = a->n_accepted;
    m->time_to_first_token_ms = 1000 * a->first;
    m->forward_ms = ms;
    for (size_t i = 0; i < a->n_forward; i++) {
        ms[i] *= 1000;
        sum += ms[i];
        m->forward_ms_min = i && m->forward_ms_min < ms[i] ? m->forward_ms_min : ms[i];
        m->forward_ms_max = i && m->forward_ms_max > ms[i] ? m->forward_ms_max : ms[i];
    }
    if (!a->n_forward)
        return;
    m->forward_ms_mean = sum / (double)a->n_forward;
    sum = 0;
    for (size_t i = 1; i < a->n_forward; i++)
        sum += ms[i];
    if (sum > 0)
        m->decode_tokens_per_second = 1000 * (double)(answer_new(a) - 1) / sum;
}

gqac_status answer_result(answer *a, gqac_generation **out, gqac_diag *diag) {
    GQAC_TRY(reply_finish(&a->reply, diag)); /* text held back by the last event */
    gqac_generation *g = gqac_calloc(1, sizeof *g);
    if (!a->reply.text.text)
        gqac_str_append(&a->reply.text, "");
    if (!g || a->reply.text.failed) {
        gqac_free(g);
        return gqac_diag_oom(diag, "an answer");
    }
    g->size = sizeof *g;
    g->n_ids = answer_new(a);
    memmove(a->list, a->list + a->request->n_prompt, g->n_ids * sizeof *a->list);
    g->ids = a->list;
    g->text = a->reply.text.text;
    g->length = a->reply.text.length;
    g->finish = a->reply.stopped && a->finish != GQAC_FINISH_EOS ? GQAC_FINISH_STOP : a->finish;
    measure(a, &g->metrics);
    a->list = NULL;
    a->forward = NULL;
    a->reply.text = (gqac_str){0};
    *out = g;
    return GQAC_OK;
}

void gqac_generation_free(gqac_generation *generation) {
    if (!generation)
        return;
    gqac_free((void *)generation->ids);
    gqac_free((void *)generation->text);
    gqac_free((void *)generation->metrics.forward_ms);
    gqac_free(generation);
}

const char *gqac_finish_name(gqac_finish finish) {
    static const char *const names[] = {"eos", "length", "stop", "cancelled", "failed"};
    return (unsigned)finish < sizeof names / sizeof *names ? names[finish] : "unknown";
}
