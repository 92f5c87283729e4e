/* Running an encoder and a decoder. The first call of the decoder gets all ids of the prompt, and
 * caches without rows (or with as many rows as the encoder's states, if the file requires that);
 * each later call gets only the newest id. A decoder without caches gets all ids in each call. Ids
 * are chosen as in gqac_generate (answer.h). */
#include "llm/seq2seq.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/sized.h"
#include "llm/answer.h"

enum { MOST_ENCODER_INPUTS = 8 };

struct gqac_seq2seq_context {
    const gqac_seq2seq *model;
    gqac_context *encoder, *decoder, *with_past;
    gqac_tensor *encoded; /* by output of the encoder: views of its context */
    gqac_tensor states;   /* the first of these, [1,L,M] */
    gqac_tensor *caches;  /* by input of model->step_decoder; data is ours */
    int64_t *ones, *positions;
    int32_t *narrow; /* ids, for decoders that take i32 */
    size_t n_counts; /* elements of each */
};

/* ---- the context --------------------------------------------------------- */

static gqac_status create_contexts(gqac_seq2seq_context *c, gqac_threads *threads,
                                   gqac_diag *diag) {
    const gqac_seq2seq *m = c->model;
    GQAC_TRY(gqac_context_create_on(m->encoder.program, threads, &c->encoder, diag));
    GQAC_TRY(gqac_context_create_on(m->decoder.program, threads, &c->decoder, diag));
    return m->with_past.program
               ? gqac_context_create_on(m->with_past.program, threads, &c->with_past, diag)
               : GQAC_OK;
}

gqac_status gqac_seq2seq_context_create(const gqac_seq2seq *model, gqac_threads *threads,
                                        gqac_seq2seq_context **context, gqac_diag *diag) {
    gqac_seq2seq_context *c = gqac_calloc(1, sizeof *c);
    if (c)
        c->caches = gqac_calloc((size_t)model->step_decoder->n_inputs + 1, sizeof *c->caches);
    if (c)
        c->encoded = gqac_calloc((size_t)model->encoder.n_outputs + 1, sizeof *c->encoded);
    if (!c || !c->caches || !c->encoded) {
        gqac_free(c ? c->caches : NULL);
        gqac_free(c ? c->encoded : NULL);
        gqac_free(c);
        return gqac_diag_oom(diag, "a context");
    }
    c->model = model;
    GQAC_RETURN_MADE(create_contexts(c, threads, diag), c, context, gqac_seq2seq_context_free);
}

void gqac_seq2seq_context_free(gqac_seq2seq_context *c) {
    if (!c)
        return;
    gqac_context_free(c->encoder);
    gqac_context_free(c->decoder);
    gqac_context_free(c->with_past);
    for (int i = 0; i < c->model->step_decoder->n_inputs; i++)
        gqac_free(c->caches[i].data);
    gqac_free(c->caches);
    gqac_free(c->encoded);
    gqac_free(c->ones);
    gqac_free(c->positions);
    gqac_free(c->narrow);
    gqac_free(c);
}

gqac_status gqac_seq2seq_context_set_monitor(gqac_seq2seq_context *c, const gqac_monitor *monitor,
                                             gqac_diag *diag) {
    gqac_context *const contexts[] = {c->encoder, c->decoder, c->with_past};
    gqac_monitor own = {.size = sizeof own};
    GQAC_TRY(gqac_sized_take(&own, sizeof own, monitor, "gqac_monitor", diag));
    own.progress = NULL;
    for (int i = 0; i < 3; i++)
        if (contexts[i])
            GQAC_TRY(gqac_context_set_monitor(contexts[i], own.abort ? &own : NULL, NULL, diag));
    return GQAC_OK;
}

/* [1,n] of i64. */
static gqac_tensor row(const int64_t *data, size_t n) {
    return (gqac_tensor){
        .dtype = GQAC_I64, .rank = 2, .dims = {1, (int64_t)n}, .data = (void *)(uintptr_t)data};
}

/* Makes `ones`, `positions` and `narrow` at least n long. */
static gqac_status count_to(gqac_seq2seq_context *c, size_t n, gqac_diag *diag) {
    size_t bytes = 0;
    if (n <= c->n_counts)
        return GQAC_OK;
    n = n < 64 ? 64 : n < SIZE_MAX / 2 ? 2 * n : n;
    if (!gqac_mul_size(n, sizeof *c->ones, &bytes))
        return gqac_diag_oom(diag, "masks");
    int64_t *ones = gqac_realloc(c->ones, bytes);
    c->ones = ones ? ones : c->ones;
    int64_t *positions = gqac_realloc(c->positions, bytes);
    c->positions = positions ? positions : c->positions;
    int32_t *narrow = gqac_realloc(c->narrow, bytes / 2);
    c->narrow = narrow ? narrow : c->narrow;
    if (!ones || !positions || !narrow)
        return gqac_diag_oom(diag, "masks");
    for (size_t i = 0; i < n; i++) {
        ones[i] = 1;
        positions[i] = (int64_t)i;
    }
    c->n_counts = n;
    return GQAC_OK;
}

/* gqac_run; an error names the file. */
static gqac_status run(gqac_context *context, const seq2seq_file *s, int n_in,
                       const char *const *names, const gqac_tensor *in, int n_out,
                       const char *const *out_names, gqac_tensor *out, gqac_diag *diag) {
    const gqac_status status = gqac_run(context, n_in, names, in, n_out, out_names, out, diag);
    if (status != GQAC_OK)
        gqac_diag_where(diag, "%.256s", s->path);
    return status;
}

/* ---- the encoder --------------------------------------------------------- */

static gqac_status check_source(const gqac_seq2seq_source *source, gqac_diag *diag) {
    if (!source->ids == !source->features)
        GQAC_FAIL(diag, GQAC_USAGE, "a source has either ids or features, not both");
    if (source->ids && (source->n_ids < 1 || source->n_ids > INT32_MAX))
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "the source has %zu ids, but must have from 1 to %d",
                  source->n_ids, INT32_MAX);
    for (size_t i = 0; source->ids && i < source->n_ids; i++)
        if (source->ids[i] < 0) {
            gqac_diag_set(diag, GQAC_OUT_OF_RANGE,
                          "token id %lld at index %zu of the source is negative",
                          (long long)source->ids[i], i);
            gqac_diag_rule(diag, "0 <= id");
            return GQAC_OUT_OF_RANGE;
        }
    return GQAC_OK;
}

static bool is_mask(const gqac_io *io) {
    return strstr(io->name, "mask") != NULL;
}

static bool same_dimension(const gqac_io *a, int axis, const gqac_io *b, int other) {
    size_t n, m;
    const char *x = seq2seq_dimension(a, axis, &n), *y = seq2seq_dimension(b, other, &m);
    return n == m && !memcmp(x, y, n);
}

static bool is_constant(const gqac_io *io, int axis) {
    size_t n;
    return strspn(seq2seq_dimension(io, axis, &n), "0123456789") >= n;
}

/* The length L of a mask [B,L] of features: that of their dimension with the same name or number,
 * else of the only one after the batch that is not constant; 0: there is no such dimension. */
static int64_t count_frames(const seq2seq_file *s, const gqac_io *mask,
                            const gqac_tensor *features) {
    const gqac_io *in = s->inputs;
    int64_t named = 0, open = 0;
    int n_open = 0;
    while (in < s->inputs + s->n_inputs && (in->dtype == GQAC_I64 || is_mask(in)))
        in++;
    if (in == s->inputs + s->n_inputs || in->rank != features->rank || mask->rank != 2)
        return 0;
    for (int axis = 1; axis < in->rank; axis++) {
        if (!named && same_dimension(in, axis, mask, 1))
            named = features->dims[axis];
        if (!is_constant(in, axis)) {
            open = features->dims[axis];
            n_open++;
        }
    }
    return named ? named : n_open == 1 ? open : 0;
}

/* The tensor for input `io` of the encoder. */
static gqac_status feed_encoder(gqac_seq2seq_context *c, const gqac_seq2seq_source *source,
                                const gqac_io *io, gqac_tensor *in, gqac_diag *diag) {
    const bool ids = io->dtype == GQAC_I64;
    if (ids && is_mask(io)) {
        const int64_t n = source->ids ? (int64_t)source->n_ids
                                      : count_frames(&c->model->encoder, io, source->features);
        if (n < 1)
            GQAC_FAIL(diag, GQAC_UNSUPPORTED,
                      "the length of the encoder's mask '%s' %s is not a dimension of its features",
                      io->name, io->shape);
        GQAC_TRY(count_to(c, (size_t)n, diag));
        *in = row(c->ones, (size_t)n);
        return GQAC_OK;
    }
    if (ids == !source->ids)
        GQAC_FAIL(diag, GQAC_USAGE,
                  "the encoder needs %s ('%s' %s), which the source does not have",
                  ids ? "ids" : "features", io->name, io->shape);
    *in = ids ? row(source->ids, source->n_ids) : *source->features;
    return GQAC_OK;
}

/* The encoder's first output is its states, [1,L,M]. */
static gqac_status encode(gqac_seq2seq_context *c, const gqac_seq2seq_source *source,
                          gqac_diag *diag) {
    const seq2seq_file *s = &c->model->encoder;
    const char *names[MOST_ENCODER_INPUTS];
    gqac_tensor in[MOST_ENCODER_INPUTS];
    if (s->n_inputs > MOST_ENCODER_INPUTS)
        GQAC_FAIL(diag, GQAC_UNSUPPORTED, "the encoder has %d inputs; the maximum is %d",
                  s->n_inputs, MOST_ENCODER_INPUTS);
    if (s->n_outputs < 1)
        GQAC_FAIL(diag, GQAC_UNSUPPORTED, "the encoder has no outputs");
    for (int i = 0; i < s->n_inputs; i++) {
        names[i] = s->inputs[i].name;
        GQAC_TRY(feed_encoder(c, source, &s->inputs[i], &in[i], diag));
    }
    const bool all = c->model->encodes_caches;
    GQAC_TRY(run(c->encoder, s, s->n_inputs, names, in, all ? s->n_outputs : 1,
                 all ? NULL : (const char *[]){s->outputs[0].name}, c->encoded, diag));
    c->states = c->encoded[0];
    if (c->states.rank != 3)
        GQAC_FAIL(diag, GQAC_UNSUPPORTED, "the encoder returns '%s' %s, not [B,L,M]",
                  s->outputs[0].name, s->outputs[0].shape);
    return GQAC_OK;
}

/* ---- caches -------------------------------------------------------------- */

/* True if in the first call input i has as many rows as the encoder's states. A merged decoder may
 * declare the two dimensions equal; in the first call it does not read the caches, as
 * use_cache_branch is false. Any other decoder would read them. */
static bool has_source_rows(const gqac_seq2seq *m, int i) {
    const seq2seq_file *s = &m->decoder;
    const int states = seq2seq_find(s->inputs, s->n_inputs, "encoder_hidden_states");
    if (m->step_decoder != s || states < 0 ||
        seq2seq_find(s->inputs, s->n_inputs, "use_cache_branch") < 0)
        return false;
    return same_dimension(&s->inputs[states], 1, &s->inputs[i], 2);
}

static gqac_status clear_caches(gqac_seq2seq_context *c, gqac_diag *diag) {
    const gqac_seq2seq *m = c->model;
    for (int i = 0; i < m->step_decoder->n_inputs; i++) {
        size_t bytes = 0;
        if (m->prompt_output[i] < 0)
            continue;
        gqac_tensor empty = m->caches[i];
        if (has_source_rows(m, i))
            empty.dims[2] = c->states.dims[1];
        GQAC_TRY(gqac_shape_bytes(empty.dtype, empty.rank, empty.dims, &bytes, diag));
        gqac_free(c->caches[i].data);
        c->caches[i] = empty;
        c->caches[i].data = gqac_calloc(bytes + 1, 1);
        if (!c->caches[i].data)
            return gqac_diag_oom(diag, "caches");
    }
    return GQAC_OK;
}

/* The results become the caches. Where one has no rows, the old cache stays. */
static gqac_status keep_caches(gqac_seq2seq_context *c, const int *results, const gqac_tensor *out,
                               gqac_diag *diag) {
    const gqac_seq2seq *m = c->model;
    for (int i = 0; i < m->step_decoder->n_inputs; i++) {
        if (m->prompt_output[i] < 0 || results[i] < 0 || !gqac_tensor_count(&out[results[i]]))
            continue;
        gqac_tensor next = out[results[i]];
        const size_t bytes = gqac_tensor_bytes(&next);
        next.data = gqac_alloc(bytes);
        if (!next.data)
            return gqac_diag_oom(diag, "caches");
        memcpy(next.data, out[results[i]].data,
               bytes); /* the output may be a view of the old cache */
        gqac_free(c->caches[i].data);
        c->caches[i] = next;
    }
    return GQAC_OK;
}

/* ---- the decoder --------------------------------------------------------- */

typedef struct decoding {
    gqac_seq2seq_context *c;
    answer answer;
    size_t fed; /* ids whose rows are in the caches */
    sampler *sampler;
    int64_t vocabulary; /* of the sampler */
    float *logits;      /* [vocabulary] */
    gqac_diag *diag;
} decoding;

/* Ids [first, n) as the decoder's input wants them. */
static gqac_tensor feed_ids(const decoding *d, const gqac_io *io, size_t first) {
    const int64_t *ids = d->answer.list;
    gqac_tensor t = row(ids + first, d->answer.n - first);
    if (io->dtype != GQAC_I32)
        return t;
    for (size_t i = first; i < d->answer.n; i++)
        d->c->narrow[i] = (int32_t)(ids[i] < INT32_MAX ? ids[i] : INT32_MAX);
    t.dtype = GQAC_I32;
    t.data = d->c->narrow + first;
    return t;
}

/* The tensor for input i of a decoder that computes ids [first, n). */
static gqac_status feed(const decoding *d, const seq2seq_file *s, int i, size_t first,
                        gqac_tensor *in) {
    static bool yes = true, no = false;
    const gqac_seq2seq_context *c = d->c;
    const size_t n = d->answer.n;
    const char *name = s->inputs[i].name;
    const char *bare = !strncmp(name, "decoder_", 8) ? name + 8 : name;
    if (s == c->model->step_decoder && c->model->prompt_output[i] >= 0)
        *in = c->caches[i];
    else if (s == c->model->step_decoder && c->model->encoder_output[i] >= 0)
        *in = c->encoded[c->model->encoder_output[i]];
    else if (!strcmp(name, "encoder_hidden_states"))
        *in = c->states;
    else if (!strcmp(name, "encoder_attention_mask"))
        *in = row(c->ones, (size_t)c->states.dims[1]);
    else if (!strcmp(name, "use_cache_branch"))
        *in = (gqac_tensor){.dtype = GQAC_BOOL, .rank = 1, .dims = {1}, .data = first ? &yes : &no};
    else if (!strcmp(bare, "input_ids"))
        *in = feed_ids(d, &s->inputs[i], first);
    else if (!strcmp(bare, "position_ids"))
        *in = row(c->positions + first, n - first);
    else if (!strcmp(bare, "attention_mask"))
        *in = row(c->ones, n);
    else
        GQAC_FAIL(d->diag, GQAC_UNSUPPORTED, "the decoder's input '%s' %s is not known", name,
                  s->inputs[i].shape);
    return GQAC_OK;
}

/* The last row of logits as fp32, and a sampler for it. */
static gqac_status take_logits(decoding *d, const gqac_tensor *logits) {
    const int64_t columns = logits->rank == 3 ? logits->dims[2] : 0;
    const int64_t first = gqac_tensor_count(logits) - columns;
    if (columns < 1 || first < 0)
        GQAC_FAIL(d->diag, GQAC_UNSUPPORTED, "the decoder's logits are not [B,S,V]");
    if (!d->sampler) {
        GQAC_TRY(sampler_create(columns, &d->sampler, d->diag));
        d->vocabulary = columns;
        d->logits = gqac_calloc((size_t)columns, sizeof *d->logits);
        if (!d->logits)
            return gqac_diag_oom(d->diag, "logits");
    }
    if (columns != d->vocabulary)
        GQAC_FAIL(d->diag, GQAC_UNSUPPORTED,
                  "the decoder returned logits of %lld ids, but of %lld in earlier calls",
                  (long long)columns, (long long)d->vocabulary);
    for (int64_t i = 0; i < columns; i++)
        d->logits[i] = (float)gqac_tensor_get(logits, first + i);
    return GQAC_OK;
}

/* Feeds ids [first, n) to a decoder and keeps its logits and caches. */
static gqac_status decode(decoding *d, const seq2seq_file *s, gqac_context *context, size_t first,
                          const char **names, gqac_tensor *in, gqac_tensor *out) {
    const int logits = seq2seq_find(s->outputs, s->n_outputs, "logits");
    if (logits < 0)
        GQAC_FAIL(d->diag, GQAC_UNSUPPORTED, "'%s' has no output 'logits'", s->path);
    for (int i = 0; i < s->n_inputs; i++) {
        names[i] = s->inputs[i].name;
        GQAC_TRY(feed(d, s, i, first, &in[i]));
    }
    GQAC_TRY(run(context, s, s->n_inputs, names, in, s->n_outputs, NULL, out, d->diag));
    GQAC_TRY(take_logits(d, &out[logits]));
    const gqac_seq2seq *m = d->c->model;
    return keep_caches(d->c, s == &m->decoder ? m->prompt_output : m->step_output, out, d->diag);
}

/* One step: the prompt in the first, then the newest id. */
static gqac_status step(decoding *d) {
    gqac_seq2seq_context *c = d->c;
    const gqac_seq2seq *m = c->model;
    const bool with_past = d->fed && m->step_decoder == &m->with_past;
    const seq2seq_file *s = with_past ? &m->with_past : &m->decoder;
    const size_t first = m->settings.cached ? d->fed : 0;
    GQAC_TRY(answer_step(&d->answer, d->diag));
    GQAC_TRY(count_to(c, d->answer.n, d->diag));
    const char **names = gqac_calloc((size_t)s->n_inputs + 1, sizeof *names);
    gqac_tensor *in = gqac_calloc((size_t)s->n_inputs + 1, sizeof *in);
    gqac_tensor *out = gqac_calloc((size_t)s->n_outputs + 1, sizeof *out);
    const gqac_status status =
        names && in && out
            ? decode(d, s, with_past ? c->with_past : c->decoder, first, names, in, out)
            : gqac_diag_oom(d->diag, "a step");
    gqac_free(names);
    gqac_free(in);
    gqac_free(out);
    GQAC_TRY(status);
    answer_took(&d->answer, (int64_t)(d->answer.n - first));
    d->fed = d->answer.n;
    const answer_row row = {.logits = d->logits, .width = d->vocabulary};
    return answer_pick(&d->answer, d->sampler, &row, 0, d->diag);
}

/* ---- generation ---------------------------------------------------------- */

static gqac_status generate(decoding *d, const gqac_text *text, const gqac_seq2seq_source *source,
                            const gqac_generate_request *request, gqac_generation **result) {
    gqac_seq2seq_context *c = d->c;
    GQAC_TRY(check_source(source, d->diag));
    GQAC_TRY(answer_open(&d->answer, request, text, c->model->decoder.program, d->diag));
    if (!d->answer.done) {
        GQAC_TRY(encode(c, source, d->diag));
        GQAC_TRY(count_to(c, (size_t)c->states.dims[1], d->diag));
        GQAC_TRY(clear_caches(c, d->diag));
    }
    while (!d->answer.done)
        GQAC_TRY(step(d));
    return answer_result(&d->answer, result, d->diag);
}

gqac_status gqac_seq2seq_generate(gqac_seq2seq_context *context, const gqac_text *text,
                                  const gqac_seq2seq_source *given_source,
                                  const gqac_generate_request *given, gqac_generation **result,
                                  gqac_diag *diag) {
    decoding d = {.c = context, .diag = diag};
    gqac_seq2seq_source source = {0};
    gqac_generate_request request = {0};
    *result = NULL;
    GQAC_TRY(gqac_sized_take(&source, sizeof source, given_source, "gqac_seq2seq_source", diag));
    GQAC_TRY(gqac_sized_take(&request, sizeof request, given, "gqac_generate_request", diag));
    if (request.session || request.chunk || request.speculate || request.draft)
        GQAC_FAIL(diag, GQAC_USAGE,
                  "a request to a model with an encoder has no session, chunk or drafts");
    if (!request.n_prompt) {
        request.prompt = &context->model->settings.start;
        request.n_prompt = 1;
    }
    gqac_sampling likeliest;
    gqac_sampling_init(&likeliest);
    likeliest.rules = context->model->settings.rules;
    if (!request.sampling)
        request.sampling = &likeliest;
    const gqac_status status = generate(&d, text, &source, &request, result);
    answer_close(&d.answer);
    sampler_free(d.sampler);
    gqac_free(d.logits);
    return status;
}
