/* See translating.h. Names are those of exporters (past_key_values.*, present.*) and of
 * `gqac rewrite` (cache_*). The first call has caches of no rows, or of as many as the encoder's
 * states where the file says so, and every id, each further one the newest id alone; a decoder
 * without caches is given all ids every time. */
#include "cli/translating.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/sides.h"

enum { MOST_EOS = 16, MOST_CONFIG = 1 << 24 };

typedef struct translation {
    generating *g;
    cli *c;
    side encoder, decoder, later; /* later: with a past, where the decoder has none */
    const side *with;             /* whose inputs the caches are: the later one, or the decoder */
    gqac_tensor features, states, *caches; /* caches by input of `with`: data is ours */
    int *first, *results;                  /* output of the decoder and of `with` that is the next
                                              state of a cache; -1: none, in `first`: no cache */
    bool cached;
    int64_t start, eos[MOST_EOS], *source, n_source;
    int n_eos;
    int64_t *ids; /* the start, then what was generated */
    int64_t n, most;
    int64_t *ones, *places;
    double *forward_ms, begun, first_at; /* seconds */
    gqac_reply *reply;
} translation;

static gqac_status short_of_memory(const translation *t) {
    return cli_fail(t->c, GQAC_NO_MEMORY, "out of memory");
}

/* ---- opening ------------------------------------------------------------- */

/* generation_config.json or config.json: an object, or NULL where there is no such file. */
static gqac_status read_config(translation *t, const char *path, json_t **config) {
    struct stat info;
    json_error_t error;
    char *text = NULL;
    size_t length = 0;
    *config = NULL;
    if (stat(path, &info) != 0 && errno == ENOENT)
        return GQAC_OK;
    if (stat(path, &info) == 0 && info.st_size > MOST_CONFIG)
        return cli_fail(t->c, GQAC_LIMIT, "'%s' has more than %d bytes", path, MOST_CONFIG);
    const gqac_status status = cli_read_file(t->c, path, &text, &length);
    if (status != GQAC_OK)
        return status;
    *config = json_loadb(text, length, 0, &error);
    free(text);
    if (!*config)
        return cli_fail(t->c, GQAC_INVALID_MODEL, "'%s', line %d: %s", path, error.line,
                        error.text);
    if (json_is_object(*config))
        return GQAC_OK;
    return cli_fail(t->c, GQAC_INVALID_MODEL, "'%s' is not a JSON object", path);
}

/* An id, or a list of ids; absent or null: none. */
static gqac_status read_ids(translation *t, const json_t *config, const char *key, int64_t *ids,
                            int *n) {
    const json_t *value = json_object_get(config, key);
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    *n = 0;
    if (!value || json_is_null(value))
        return GQAC_OK;
    for (size_t i = 0; i < count && count <= MOST_EOS; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_integer(id))
            break;
        ids[(*n)++] = json_integer_value(id);
    }
    if ((size_t)*n == count)
        return GQAC_OK;
    return cli_fail(t->c, GQAC_INVALID_MODEL, "%s is neither an id nor a list of at most %d ids",
                    key, MOST_EOS);
}

static gqac_status take_settings(translation *t, const json_t *config, bool *found) {
    int64_t start[MOST_EOS];
    int n = 0;
    gqac_status status = GQAC_OK;
    if (!*found)
        status = read_ids(t, config, "decoder_start_token_id", start, &n);
    if (n > 1)
        return cli_fail(t->c, GQAC_INVALID_MODEL, "decoder_start_token_id is a list of %d ids", n);
    if (n == 1) {
        t->start = start[0];
        *found = true;
    }
    if (status == GQAC_OK && !t->n_eos)
        status = read_ids(t, config, "eos_token_id", t->eos, &t->n_eos);
    return status;
}

static gqac_status read_settings(translation *t) {
    static const char *const files[] = {"generation_config.json", "config.json"};
    bool found = false;
    for (int i = 0; i < 2; i++) {
        char path[SIDES_PATH];
        json_t *config;
        snprintf(path, sizeof path, "%s/%s", t->c->operands[0], files[i]);
        gqac_status status = read_config(t, path, &config);
        if (status == GQAC_OK && config) {
            status = take_settings(t, config, &found);
            if (status != GQAC_OK)
                snprintf(t->c->diag.where, sizeof t->c->diag.where, "%s", path);
        }
        json_decref(config);
        if (status != GQAC_OK)
            return status;
    }
    if (found)
        return GQAC_OK;
    return cli_fail(t->c, GQAC_INVALID_MODEL,
                    "'%s' has no decoder_start_token_id in generation_config.json or config.json",
                    t->c->operands[0]);
}

/* The output that continues a cache: present.X for past_key_values.X, cache_X_out_i for
 * cache_X_in_i; -1 when the input is no cache or has no such output. */
static int result_of(const side *s, const char *name) {
    static const char past[] = "past_key_values.";
    char result[512];
    const char *in = !strncmp(name, "cache_", 6) ? strstr(name, "in_") : NULL;
    if (!strncmp(name, past, sizeof past - 1))
        snprintf(result, sizeof result, "present.%s", name + sizeof past - 1);
    else if (in)
        snprintf(result, sizeof result, "%.*sout_%s", (int)(in - name), name, in + 3);
    else
        return -1;
    return sides_find(s->outputs, s->n_outputs, result);
}

/* "[B,4,P,8]" as 1, 4, 0, 8: one sequence, no rows. */
static bool read_shape(const gqac_io *io, gqac_tensor *t) {
    *t = (gqac_tensor){.dtype = io->dtype, .rank = io->rank};
    for (int i = 0; i < io->rank; i++) {
        size_t length;
        char *end = NULL;
        const char *at = sides_dimension(io, i, &length);
        const long long n = strtoll(at, &end, 10);
        t->dims[i] = i == 0 ? 1 : i == 2 ? 0 : n;
        if (end != at + length && i != 0 && i != 2)
            return false;
    }
    return io->rank == 4;
}

/* A merged decoder may say that caches of the encoder's rows have those in every call. What it is
 * given there in the first is not read, since `use_cache_branch` tells; any other decoder would. */
static gqac_status size_caches(translation *t) {
    const side *s = t->with;
    int states = sides_find(s->inputs, s->n_inputs, "encoder_hidden_states");
    size_t length, other;
    if (sides_find(s->inputs, s->n_inputs, "use_cache_branch") < 0)
        states = -1;
    for (int i = 0; states >= 0 && s == &t->decoder && i < s->n_inputs; i++) {
        const char *rows = sides_dimension(&s->inputs[states], 1, &length);
        const char *own = t->first[i] < 0 ? NULL : sides_dimension(&s->inputs[i], 2, &other);
        if (!own || length != other || strncmp(rows, own, length) != 0)
            continue;
        t->caches[i].dims[2] = t->states.dims[1];
        free(t->caches[i].data);
        t->caches[i].data = calloc(gqac_tensor_bytes(&t->caches[i]) + 1, 1);
        if (!t->caches[i].data)
            return short_of_memory(t);
    }
    return GQAC_OK;
}

static gqac_status open_cache(translation *t, int i) {
    const gqac_io *input = &t->with->inputs[i];
    t->first[i] = result_of(&t->decoder, input->name);
    t->results[i] = result_of(t->with, input->name);
    if (t->first[i] < 0 && t->results[i] >= 0) {
        cli_fail(t->c, GQAC_UNSUPPORTED, "the file takes the cache '%s', which '%s' does not give",
                 input->name, t->decoder.path);
        snprintf(t->c->diag.where, sizeof t->c->diag.where, "%.500s", t->with->path);
        snprintf(t->c->diag.rule, sizeof t->c->diag.rule,
                 "the two decoders of a folder are one model, without a past and with it");
        return GQAC_UNSUPPORTED;
    }
    if (t->first[i] < 0)
        return GQAC_OK;
    t->cached = true;
    if (!read_shape(input, &t->caches[i]))
        return cli_fail(t->c, GQAC_UNSUPPORTED,
                        "heads and size of the cache '%s' %s are not constant", input->name,
                        input->shape);
    t->caches[i].data = malloc(1);
    return t->caches[i].data ? GQAC_OK : short_of_memory(t);
}

/* A decoder without pasts may lie beside one that has them. */
static gqac_status open_decoders(translation *t) {
    gqac_status status = sides_open(t->c, SIDE_DECODER, &t->decoder);
    t->with = &t->decoder;
    if (status != GQAC_OK)
        return status;
    for (int i = 0; i < t->decoder.n_inputs; i++)
        if (result_of(&t->decoder, t->decoder.inputs[i].name) >= 0)
            return GQAC_OK;
    if (!sides_have(t->c, SIDE_LATER))
        return GQAC_OK;
    t->with = &t->later;
    return sides_open(t->c, SIDE_LATER, &t->later);
}

static gqac_status open_caches(translation *t) {
    const size_t n = (size_t)t->with->n_inputs + 1;
    gqac_status status = GQAC_OK;
    t->caches = calloc(n, sizeof *t->caches);
    t->first = calloc(n, sizeof *t->first);
    t->results = calloc(n, sizeof *t->results);
    if (!t->caches || !t->first || !t->results)
        return short_of_memory(t);
    for (int i = 0; status == GQAC_OK && i < t->with->n_inputs; i++)
        status = open_cache(t, i);
    return status;
}

/* ---- the source ---------------------------------------------------------- */

static gqac_status read_prompt(translation *t, const char *prompt) {
    size_t n = 0;
    int64_t *ids = NULL;
    gqac_status status =
        gqac_text_tokenize(t->g->text, prompt, strlen(prompt), true, &ids, &n, &t->c->diag);
    if (status == GQAC_OK && !n)
        status = cli_fail(t->c, GQAC_INVALID_INPUT, "the prompt gives no tokens");
    t->source = status == GQAC_OK ? calloc(n, sizeof *ids) : NULL;
    if (status == GQAC_OK && !t->source)
        status = short_of_memory(t);
    if (status == GQAC_OK)
        memcpy(t->source, ids, n * sizeof *ids);
    t->n_source = (int64_t)n;
    gqac_release(ids);
    return status;
}

static gqac_status read_source(translation *t) {
    const char *prompt = cli_value(t->c, "prompt"), *file = cli_value(t->c, "ids");
    const char *features = cli_value(t->c, "features");
    if (!prompt + !file + !features != 2)
        return cli_usage(t->c, "one of --prompt TEXT, --ids FILE and --features FILE is wanted");
    if (features)
        return gqac_npy_read(features, GQAC_NONE, &t->features, &t->c->diag);
    return file ? cli_read_ids(t->c, file, &t->source, &t->n_source) : read_prompt(t, prompt);
}

static gqac_status check_id(translation *t, const char *key, int64_t id) {
    const int64_t vocabulary = gqac_program_vocabulary(t->decoder.program);
    if (id >= 0 && id <= INT32_MAX && (!vocabulary || id < vocabulary))
        return GQAC_OK;
    cli_fail(t->c, GQAC_INVALID_MODEL, "%s %lld is no token id", key, (long long)id);
    snprintf(t->c->diag.where, sizeof t->c->diag.where, "%s", t->c->operands[0]);
    snprintf(t->c->diag.rule, sizeof t->c->diag.rule, "0 <= id < %lld",
             (long long)(vocabulary ? vocabulary : INT32_MAX));
    return GQAC_INVALID_MODEL;
}

static gqac_status check_ids(translation *t) {
    gqac_status status = check_id(t, "decoder_start_token_id", t->start);
    for (int i = 0; status == GQAC_OK && i < t->n_eos; i++)
        status = check_id(t, "eos_token_id", t->eos[i]);
    return status;
}

/* [1,n] of i64. */
static gqac_tensor row(int64_t *data, int64_t n) {
    return (gqac_tensor){.dtype = GQAC_I64, .rank = 2, .dims = {1, n}, .data = data};
}

static gqac_status make_counts(translation *t, int64_t n) {
    t->ones = calloc((size_t)n, sizeof *t->ones);
    t->places = calloc((size_t)n, sizeof *t->places);
    if (!t->ones || !t->places)
        return short_of_memory(t);
    for (int64_t i = 0; i < n; i++) {
        t->ones[i] = 1;
        t->places[i] = i;
    }
    return GQAC_OK;
}

/* The encoder's first output is its states, [1,L,M]. */
static gqac_status encode(translation *t) {
    const side *s = &t->encoder;
    const char *names[8];
    gqac_tensor in[8];
    if (s->n_inputs > 8)
        return cli_fail(t->c, GQAC_UNSUPPORTED, "the encoder has %d inputs", s->n_inputs);
    for (int i = 0; i < s->n_inputs; i++) {
        names[i] = s->inputs[i].name;
        const bool words = s->inputs[i].dtype == GQAC_I64;
        if (words == !t->source)
            return cli_fail(t->c, GQAC_USAGE, "the encoder takes '%s' %s: give %s", names[i],
                            s->inputs[i].shape,
                            words ? "--prompt or --ids" : "--features FILE.npy");
        in[i] =
            !words ? t->features : row(strstr(names[i], "mask") ? t->ones : t->source, t->n_source);
    }
    gqac_status status = sides_run(t->c, s, s->n_inputs, names, in, 1,
                                   (const char *[]){s->outputs[0].name}, &t->states);
    if (status == GQAC_OK && t->states.rank != 3)
        return cli_fail(t->c, GQAC_UNSUPPORTED, "the encoder gives '%s' %s, not [B,L,M]",
                        s->outputs[0].name, s->outputs[0].shape);
    return status == GQAC_OK ? size_caches(t) : status;
}

/* ---- one call of the decoder --------------------------------------------- */

/* What input i of a decoder is fed when ids [first, n) go in. */
static gqac_status feed(translation *t, const side *s, int i, int64_t first, gqac_tensor *in) {
    static bool yes = true, no = false;
    const char *name = s->inputs[i].name;
    const bool own = !strncmp(name, "decoder_", 8);
    const char *bare = own ? name + 8 : name;
    if (s == t->with && t->first[i] >= 0)
        *in = t->caches[i];
    else if (!strcmp(name, "encoder_hidden_states"))
        *in = t->states;
    else if (!strcmp(name, "encoder_attention_mask"))
        *in = row(t->ones, t->states.dims[1]);
    else if (!strcmp(name, "use_cache_branch"))
        *in = (gqac_tensor){.dtype = GQAC_BOOL, .rank = 1, .dims = {1}, .data = first ? &yes : &no};
    else if (!strcmp(bare, "input_ids"))
        *in = row(t->ids + first, t->n - first);
    else if (!strcmp(bare, "position_ids"))
        *in = row(t->places + first, t->n - first);
    else if (!strcmp(bare, "attention_mask"))
        *in = row(t->ones, t->n);
    else
        return cli_fail(t->c, GQAC_UNSUPPORTED, "the decoder's input '%s' %s is not known", name,
                        s->inputs[i].shape);
    return GQAC_OK;
}

/* The results become the caches. One without rows says that the old one stays. */
static gqac_status keep_caches(translation *t, const side *s, const gqac_tensor *out) {
    const int *results = s == &t->decoder ? t->first : t->results;
    for (int i = 0; i < t->with->n_inputs; i++) {
        if (results[i] < 0 || t->first[i] < 0 || !gqac_tensor_count(&out[results[i]]))
            continue;
        gqac_tensor next = out[results[i]];
        const size_t bytes = gqac_tensor_bytes(&next);
        next.data = malloc(bytes);
        if (!next.data)
            return short_of_memory(t);
        memcpy(next.data, out[results[i]].data, bytes); /* which may be the old one */
        free(t->caches[i].data);
        t->caches[i] = next;
    }
    return GQAC_OK;
}

/* The id behind the last row. What the encoder read does not count as said. */
static gqac_status choose(translation *t, const gqac_tensor *logits, gqac_generate_event *event) {
    const int64_t columns = logits->rank == 3 ? logits->dims[2] : 0;
    const int64_t first = gqac_tensor_count(logits) - columns;
    if (columns < 1 || first < 0)
        return cli_fail(t->c, GQAC_UNSUPPORTED, "the decoder's logits are not [B,S,V]");
    float *row = calloc((size_t)columns, sizeof *row);
    if (!row)
        return short_of_memory(t);
    for (int64_t i = 0; i < columns; i++)
        row[i] = (float)gqac_tensor_get(logits, first + i);
    const gqac_status status =
        gqac_sample(t->g->request.sampling, row, columns, t->ids, (size_t)t->n, &event->id,
                    &event->probability, &t->c->diag);
    free(row);
    return status;
}

static gqac_status step(translation *t, int64_t first, gqac_generate_event *event) {
    const side *s = t->n == 1 ? &t->decoder : t->with;
    const int logits = sides_find(s->outputs, s->n_outputs, "logits");
    const char **names = calloc((size_t)s->n_inputs + 1, sizeof *names);
    gqac_tensor *in = calloc((size_t)s->n_inputs + 1, sizeof *in);
    gqac_tensor *out = calloc((size_t)s->n_outputs + 1, sizeof *out);
    gqac_status status = names && in && out ? GQAC_OK : short_of_memory(t);
    if (status == GQAC_OK && logits < 0)
        status = cli_fail(t->c, GQAC_UNSUPPORTED, "'%s' has no output logits", s->path);
    for (int i = 0; status == GQAC_OK && i < s->n_inputs; i++) {
        names[i] = s->inputs[i].name;
        status = feed(t, s, i, first, &in[i]);
    }
    if (status == GQAC_OK)
        status = sides_run(t->c, s, s->n_inputs, names, in, s->n_outputs, NULL, out);
    if (status == GQAC_OK)
        status = choose(t, &out[logits], event);
    if (status == GQAC_OK)
        status = keep_caches(t, s, out);
    free(names);
    free(in);
    free(out);
    return status;
}

/* ---- the answer ---------------------------------------------------------- */

static bool ends(const translation *t, int64_t id) {
    for (int i = 0; i < t->n_eos; i++)
        if (t->eos[i] == id)
            return true;
    return false;
}

/* Adds the text of an id, prints what is certain with it, and decides whether it is the last. */
static gqac_status say(translation *t, gqac_generate_event *event, gqac_generation *said,
                       bool *done) {
    gqac_status status = GQAC_OK;
    event->eos = ends(t, event->id);
    if (!event->eos)
        status = gqac_reply_push(t->reply, event->id, &t->c->diag);
    *done = event->eos || gqac_reply_stopped(t->reply) || t->n > t->most;
    if (status == GQAC_OK && *done)
        status = gqac_reply_finish(t->reply, &t->c->diag);
    if (status != GQAC_OK)
        return status;
    event->text = gqac_reply_tell(t->reply, &event->length);
    if (event->eos)
        said->finish = GQAC_FINISH_EOS;
    else if (gqac_reply_stopped(t->reply))
        said->finish = GQAC_FINISH_STOP;
    if (!generating_hear(t->g, event) && !*done) {
        *done = true;
        said->finish = GQAC_FINISH_STOP;
    }
    return GQAC_OK;
}

static gqac_status generate(translation *t, gqac_generation *said) {
    gqac_status status = GQAC_OK;
    bool done = !t->most;
    said->finish = GQAC_FINISH_LENGTH;
    t->ids[0] = t->start;
    for (t->n = 1; status == GQAC_OK && !done;) {
        gqac_generate_event event = {
            .size = sizeof event, .step = t->n, .phase = t->n == 1 ? "prefill" : "decode"};
        const double before = cli_seconds();
        status = step(t, t->cached ? t->n - 1 : 0, &event);
        if (status != GQAC_OK)
            break;
        t->forward_ms[t->n - 1] = (cli_seconds() - before) * 1e3;
        if (t->n == 1)
            t->first_at = cli_seconds();
        t->ids[t->n++] = event.id;
        status = say(t, &event, said, &done);
    }
    return status == GQAC_OK ? gqac_reply_finish(t->reply, &t->c->diag) : status;
}

static void measure(const translation *t, gqac_generation *said) {
    gqac_generate_metrics *m = &said->metrics;
    const size_t n = (size_t)(t->n - 1);
    double all = 0, most = 0, least = n ? t->forward_ms[0] : 0;
    for (size_t i = 0; i < n; i++) {
        const double ms = t->forward_ms[i];
        all += ms;
        least = ms < least ? ms : least;
        most = ms > most ? ms : most;
    }
    const double rest = n > 1 ? all - t->forward_ms[0] : 0;
    *m = (gqac_generate_metrics){
        .size = sizeof *m,
        .time_to_first_token_ms = n ? (t->first_at - t->begun) * 1e3 : 0,
        .decode_tokens_per_second = rest > 0 ? (double)(n - 1) * 1e3 / rest : 0,
        .n_forwards = n,
        .forward_ms = t->forward_ms,
        .forward_ms_min = least,
        .forward_ms_max = most,
        .forward_ms_mean = n ? all / (double)n : 0,
        .computed_tokens = t->cached ? (int64_t)n : (int64_t)(n * (n + 1) / 2)};
    said->n_ids = n;
    said->ids = t->ids + 1;
    said->text = gqac_reply_text(t->reply, &said->length);
}

static gqac_status answer(translation *t) {
    gqac_generation said = {.size = sizeof said};
    const gqac_generate_request *request = &t->g->request;
    const int64_t rows = t->states.dims[1] > t->n_source ? t->states.dims[1] : t->n_source;
    t->ids = calloc((size_t)t->most + 2, sizeof *t->ids);
    t->forward_ms = calloc((size_t)t->most + 1, sizeof *t->forward_ms);
    gqac_status status = t->ids && t->forward_ms ? GQAC_OK : short_of_memory(t);
    free(t->ones);
    free(t->places);
    t->ones = t->places = NULL;
    if (status == GQAC_OK)
        status = make_counts(t, t->most + 2 > rows ? t->most + 2 : rows);
    if (status == GQAC_OK)
        status =
            gqac_reply_create(t->g->text, request->n_stop, request->stop, &t->reply, &t->c->diag);
    if (status == GQAC_OK)
        status = generate(t, &said);
    if (status == GQAC_OK)
        measure(t, &said);
    if (!t->g->json)
        generating_end_line(t->g, status == GQAC_OK ? &said : NULL);
    if (status == GQAC_OK && t->g->failed)
        return cli_fail(t->c, GQAC_IO, "cannot write to standard output");
    if (status != GQAC_OK)
        return status;
    if (t->g->json)
        return cli_print_json_line(t->c, generating_json(&said));
    generating_metrics(t->g, &said);
    return GQAC_OK;
}

/* Flags of `generate` that need what there is not for two graphs. */
static gqac_status refuse_flags(const translation *t) {
    static const char *const flags[][2] = {
        {"kv", "decoder_model.onnx alone computes all ids every time, like --kv off"},
        {"context", "-n bounds how many ids are said"}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (!cli_repeat(t->c, flags[i][0], 0))
            continue;
        cli_usage(t->c, "--%s is for sequences, and a decoder behind an encoder is none",
                  flags[i][0]);
        snprintf(t->c->diag.rule, sizeof t->c->diag.rule,
                 "its caches are inputs of its files, and grow with each id");
        snprintf(t->c->diag.hint, sizeof t->c->diag.hint, "%s", flags[i][1]);
        return GQAC_USAGE;
    }
    return GQAC_OK;
}

static gqac_status translate(translation *t) {
    long long most = 128;
    gqac_status status = sides_check(t->c);
    if (status == GQAC_OK)
        status = refuse_flags(t);
    if (status == GQAC_OK)
        status = cli_number(t->c, "new-tokens", 0, INT32_MAX, most, &most);
    t->most = most;
    if (status == GQAC_OK)
        status = gqac_text_open(t->c->operands[0], GQAC_TEXT_TOKENIZER, &t->g->text, &t->c->diag);
    if (status == GQAC_OK)
        cli_tell_refusal(t->c, "ids only", gqac_text_get_settings(t->g->text)->tokenizer_refusal);
    if (status == GQAC_OK)
        t->g->ids_only = !gqac_text_get_settings(t->g->text)->has_tokenizer;
    t->g->log = cli_switch(t->c, "log-steps");
    if (status == GQAC_OK)
        status = generating_sampling(t->g);
    if (status == GQAC_OK)
        status = generating_stops(t->g);
    if (status == GQAC_OK)
        status = read_settings(t);
    if (status == GQAC_OK)
        status = read_source(t);
    const gqac_tensor source = row(t->source, t->n_source);
    if (status == GQAC_OK && t->source)
        status = cli_check_ids(t->c, "--ids", &source);
    if (status == GQAC_OK)
        status = sides_open(t->c, SIDE_ENCODER, &t->encoder);
    if (status == GQAC_OK)
        status = open_decoders(t);
    if (status == GQAC_OK)
        status = sides_check_kinds(t->c, &t->encoder, &t->decoder);
    if (status == GQAC_OK)
        status = check_ids(t);
    if (status == GQAC_OK)
        status = open_caches(t);
    if (status == GQAC_OK)
        status = make_counts(t, t->n_source + 1);
    t->begun = cli_seconds();
    if (status == GQAC_OK)
        status = encode(t);
    return status == GQAC_OK ? answer(t) : status;
}

gqac_status translating_run(generating *g) {
    translation t = {.g = g, .c = g->c};
    g->json = cli_json(g->c);
    const gqac_status status = translate(&t);
    for (int i = 0; t.caches && i < t.with->n_inputs; i++)
        free(t.caches[i].data);
    free(t.caches);
    free(t.first);
    free(t.results);
    gqac_reply_free(t.reply);
    sides_close(&t.encoder);
    sides_close(&t.decoder);
    sides_close(&t.later);
    gqac_tensor_free(&t.features);
    free(t.source);
    free(t.ids);
    free(t.ones);
    free(t.places);
    free(t.forward_ms);
    return status;
}
