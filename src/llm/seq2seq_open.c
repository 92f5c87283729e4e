/* The files of a folder with an encoder and a decoder: which they are, what they must be, and which
 * of their inputs are caches. File names are those of exporters (encoder_model.onnx,
 * decoder_model_merged.onnx) and of people who write the files themselves (encoder.onnx). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "llm/rules.h"
#include "llm/seq2seq.h"

enum { MOST_NAMES = 4, MOST_PATH = 4096 };

static const char *const encoders[MOST_NAMES] = {"encoder.onnx", "encoder_model.onnx"};
static const char *const decoders[MOST_NAMES] = {"decoder.onnx", "decoder_model_merged.onnx",
                                                 "decoder_model.onnx"};
static const char *const decoders_with_past[MOST_NAMES] = {"decoder_with_past_model.onnx"};

static bool has_file(const char *folder, const char *name, char path[MOST_PATH]) {
    const int n = snprintf(path, MOST_PATH, "%s/%s", folder, name);
    return n > 0 && n < MOST_PATH && access(path, F_OK) == 0;
}

/* The first of the names that exists; NULL: none. */
static const char *find_file(const char *folder, const char *const *names, char path[MOST_PATH]) {
    for (int i = 0; names[i]; i++)
        if (has_file(folder, names[i], path))
            return names[i];
    return NULL;
}

bool gqac_seq2seq_is_folder(const char *folder) {
    char path[MOST_PATH];
    const bool encoder = find_file(folder, encoders, path),
               decoder = find_file(folder, decoders, path);
    return has_file(folder, "genai_config.json", path) ? encoder && decoder : encoder || decoder;
}

static void list_names(const char *const *names, char *text, size_t size) {
    size_t n = 0;
    for (int i = 0; names[i] && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s",
                              !i             ? ""
                              : names[i + 1] ? ", "
                                             : " or ",
                              names[i]);
}

/* `with_past` may be NULL. */
static gqac_status check_links(const char *path, const char *encoder, const char *decoder,
                               const char *with_past, gqac_diag *diag) {
    const char *const names[] = {encoder, decoder, with_past};
    gqac_status status = GQAC_OK;
    folder f;
    GQAC_TRY(folder_open(path, &f, diag));
    for (int i = 0; i < 3 && names[i] && status == GQAC_OK; i++)
        status = folder_check_link(&f, names[i], diag);
    folder_close(&f);
    return status;
}

static gqac_status check_files(const char *folder, gqac_diag *diag) {
    char path[MOST_PATH], list[128];
    const char *encoder = find_file(folder, encoders, path);
    const char *decoder = find_file(folder, decoders, path);
    if (encoder && decoder)
        return check_links(folder, encoder, decoder, find_file(folder, decoders_with_past, path),
                           diag);
    list_names(encoder ? decoders : encoders, list, sizeof list);
    if (!encoder && !decoder)
        gqac_diag_set(diag, GQAC_IO, "there is no folder with an encoder and a decoder");
    else
        gqac_diag_set(diag, GQAC_IO, "the folder has %s but no %s", encoder ? encoder : decoder,
                      encoder ? "decoder" : "encoder");
    gqac_diag_where(diag, "%s", folder);
    gqac_diag_rule(diag, "%s is %s", encoder ? "a decoder" : "an encoder", list);
    if (decoder)
        gqac_diag_hint(diag, "pass a decoder that needs no encoder as a file: %s", path);
    return GQAC_IO;
}

/* ---- one file ------------------------------------------------------------ */

static gqac_status open_file(gqac_seq2seq *m, const char *folder, const char *const *names,
                             const gqac_options *options, seq2seq_file *s, gqac_diag *diag) {
    char path[MOST_PATH];
    if (!find_file(folder, names, path))
        return GQAC_OK;
    s->path = gqac_arena_strdup(m->memory, path);
    if (!s->path)
        return gqac_diag_oom(diag, "a model folder");
    GQAC_TRY(gqac_program_open(s->path, options, &s->program, diag));
    s->n_inputs = gqac_program_inputs(s->program, &s->inputs);
    s->n_outputs = gqac_program_outputs(s->program, &s->outputs);
    m->files[m->n_files++] = (gqac_seq2seq_file){s->path, s->program};
    return GQAC_OK;
}

int seq2seq_find(const gqac_io *list, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].name, name))
            return i;
    return -1;
}

const char *seq2seq_dimension(const gqac_io *io, int axis, size_t *length) {
    const char *at = io->shape + 1;
    for (; axis && strchr(at, ','); axis--)
        at = strchr(at, ',') + 1;
    *length = strcspn(at, ",]");
    return at;
}

/* "the file is not an encoder: it has the input 'x'" */
static gqac_status refuse(const seq2seq_file *s, const char *why, const char *name,
                          const char *rule, gqac_diag *diag) {
    gqac_diag_set(diag, GQAC_UNSUPPORTED, "the file is not %s '%s'", why, name);
    gqac_diag_where(diag, "%s", s->path);
    gqac_diag_rule(diag, "%s", rule);
    return GQAC_UNSUPPORTED;
}

/* The output that continues an input: present.X for past_key_values.X, present_X for past_X,
 * cache_X_out_i for cache_X_in_i; -1: the input is not a cache, or has no such output. */
static int result_of(const seq2seq_file *s, const char *name) {
    static const char past[] = "past_key_values.";
    char result[512];
    const char *in = !strncmp(name, "cache_", 6) ? strstr(name, "in_") : NULL;
    if (!strncmp(name, past, sizeof past - 1))
        snprintf(result, sizeof result, "present.%s", name + sizeof past - 1);
    else if (!strncmp(name, past, 5))
        snprintf(result, sizeof result, "present_%s", name + 5);
    else if (in)
        snprintf(result, sizeof result, "%.*sout_%s", (int)(in - name), name, in + 3);
    else
        return -1;
    return seq2seq_find(s->outputs, s->n_outputs, result);
}

/* True if the decoder reads the states of the encoder, or keys and values that the encoder makes of
 * them. */
static bool reads_encoder(const seq2seq_file *encoder, const seq2seq_file *decoder) {
    bool reads = seq2seq_find(decoder->inputs, decoder->n_inputs, "encoder_hidden_states") >= 0;
    for (int i = 0; i < decoder->n_inputs; i++)
        reads = reads || result_of(encoder, decoder->inputs[i].name) >= 0;
    return reads;
}

static gqac_status check_kinds(const seq2seq_file *encoder, const seq2seq_file *decoder,
                               gqac_diag *diag) {
    static const char states[] = "encoder_hidden_states", logits[] = "logits";
    static const char encodes[] =
        "the inputs of an encoder are ids or features; it returns their states";
    static const char decodes[] =
        "the inputs of a decoder are ids and encoder_hidden_states; it returns logits";
    for (int i = 0; i < encoder->n_inputs; i++) {
        const char *name = encoder->inputs[i].name;
        if (!strcmp(name, states) || !strncmp(name, "past_", 5) || !strncmp(name, "cache_", 6))
            return refuse(encoder, "an encoder: it has the input", name, encodes, diag);
    }
    if (seq2seq_find(encoder->outputs, encoder->n_outputs, logits) >= 0)
        return refuse(encoder, "an encoder: it has the output", logits, encodes, diag);
    if (seq2seq_find(decoder->outputs, decoder->n_outputs, logits) < 0)
        return refuse(decoder, "a decoder: it has no output", logits, decodes, diag);
    if (!reads_encoder(encoder, decoder))
        return refuse(decoder, "a decoder of an encoder: it has no input", states, decodes, diag);
    return GQAC_OK;
}

/* ---- caches -------------------------------------------------------------- */

/* "[B,4,P,8]" as 1, 4, 0, 8: one sequence, no rows. */
static bool read_shape(const gqac_io *io, gqac_tensor *t) {
    *t = (gqac_tensor){.dtype = io->dtype, .rank = io->rank};
    if (io->rank != 4)
        return false;
    for (int i = 0; i < 4; i++) {
        size_t length;
        char *end = NULL;
        const char *at = seq2seq_dimension(io, i, &length);
        const long long n = strtoll(at, &end, 10);
        t->dims[i] = i == 0 ? 1 : i == 2 ? 0 : n;
        if (i != 0 && i != 2 && (end != at + length || n < 0))
            return false;
    }
    return true;
}

static gqac_status open_cache(gqac_seq2seq *m, int i, gqac_diag *diag) {
    const gqac_io *input = &m->step_decoder->inputs[i];
    m->prompt_output[i] = result_of(&m->decoder, input->name);
    m->step_output[i] = result_of(m->step_decoder, input->name);
    m->encoder_output[i] = m->prompt_output[i] < 0 ? result_of(&m->encoder, input->name) : -1;
    m->encodes_caches |= m->encoder_output[i] >= 0;
    if (m->encoder_output[i] >= 0)
        return GQAC_OK;
    if (m->prompt_output[i] < 0 && m->step_output[i] >= 0) {
        gqac_diag_set(diag, GQAC_UNSUPPORTED,
                      "the file has the cache '%s' as input, which '%s' does not return",
                      input->name, m->decoder.path);
        gqac_diag_where(diag, "%s", m->step_decoder->path);
        gqac_diag_rule(
            diag, "the two decoders of a folder are one model, one without a past and one with it");
        return GQAC_UNSUPPORTED;
    }
    if (m->prompt_output[i] < 0)
        return GQAC_OK;
    m->settings.cached = true;
    if (!read_shape(input, &m->caches[i]))
        GQAC_FAIL(diag, GQAC_UNSUPPORTED,
                  "the number of heads or their size in the cache '%s' %s is not constant",
                  input->name, input->shape);
    return GQAC_OK;
}

static gqac_status open_caches(gqac_seq2seq *m, gqac_diag *diag) {
    const size_t n = (size_t)m->step_decoder->n_inputs + 1;
    m->caches = GQAC_ARENA_ARRAY(m->memory, gqac_tensor, n);
    m->prompt_output = GQAC_ARENA_ARRAY(m->memory, int, n);
    m->step_output = GQAC_ARENA_ARRAY(m->memory, int, n);
    m->encoder_output = GQAC_ARENA_ARRAY(m->memory, int, n);
    if (!m->caches || !m->prompt_output || !m->step_output || !m->encoder_output)
        return gqac_diag_oom(diag, "a model folder");
    for (int i = 0; i < m->step_decoder->n_inputs; i++)
        GQAC_TRY(open_cache(m, i, diag));
    return GQAC_OK;
}

/* A decoder without a past may belong to one that has it. */
static gqac_status open_with_past(gqac_seq2seq *m, const char *folder, const gqac_options *options,
                                  gqac_diag *diag) {
    m->step_decoder = &m->decoder;
    for (int i = 0; i < m->decoder.n_inputs; i++)
        if (result_of(&m->decoder, m->decoder.inputs[i].name) >= 0)
            return GQAC_OK;
    GQAC_TRY(open_file(m, folder, decoders_with_past, options, &m->with_past, diag));
    if (m->with_past.program)
        m->step_decoder = &m->with_past;
    return GQAC_OK;
}

/* ---- the model ----------------------------------------------------------- */

static gqac_status check_id(const gqac_seq2seq *m, const char *folder, const char *key, int64_t id,
                            gqac_diag *diag) {
    const int64_t most = m->settings.vocabulary ? m->settings.vocabulary : INT32_MAX;
    if (id >= 0 && id < most)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_INVALID_MODEL, "%s %lld is not a token id", key, (long long)id);
    gqac_diag_where(diag, "%s", folder);
    gqac_diag_rule(diag, "0 <= id < %lld", (long long)most);
    return GQAC_INVALID_MODEL;
}

static gqac_status check_rules(const gqac_seq2seq *m, const char *folder, gqac_diag *diag) {
    const int64_t most = m->settings.vocabulary ? m->settings.vocabulary : INT32_MAX;
    const gqac_status status = rules_check(m->settings.rules, most, diag);
    if (status != GQAC_OK)
        gqac_diag_where(diag, "%s", folder);
    return status;
}

static gqac_status open_all(gqac_seq2seq *m, const char *folder, const gqac_options *options,
                            gqac_diag *diag) {
    gqac_seq2seq_settings *s = &m->settings;
    s->size = sizeof *s;
    s->eos = m->eos;
    GQAC_TRY(seq2seq_read_config(folder, m, diag));
    GQAC_TRY(open_file(m, folder, encoders, options, &m->encoder, diag));
    GQAC_TRY(open_file(m, folder, decoders, options, &m->decoder, diag));
    if (!m->encoder.program || !m->decoder.program)
        GQAC_FAIL(diag, GQAC_IO, "a file of the folder '%s' no longer exists", folder);
    GQAC_TRY(open_with_past(m, folder, options, diag));
    GQAC_TRY(check_kinds(&m->encoder, &m->decoder, diag));
    for (int i = 0; i < m->encoder.n_inputs; i++)
        s->features |= m->encoder.inputs[i].dtype != GQAC_I64;
    s->vocabulary = gqac_program_vocabulary(m->decoder.program);
    GQAC_TRY(check_id(m, folder, "decoder_start_token_id", s->start, diag));
    for (int i = 0; i < s->n_eos; i++)
        GQAC_TRY(check_id(m, folder, "eos_token_id", s->eos[i], diag));
    GQAC_TRY(check_rules(m, folder, diag));
    return open_caches(m, diag);
}

gqac_status gqac_seq2seq_open(const char *folder, const gqac_options *options, gqac_seq2seq **model,
                              gqac_diag *diag) {
    gqac_options own;
    gqac_options_init(&own);
    GQAC_TRY(gqac_sized_take(&own, sizeof own, options, "gqac_options", diag));
    if (own.bytes)
        GQAC_FAIL(diag, GQAC_USAGE, "a model in memory is not a folder");
    own.stateless = true;
    GQAC_TRY(check_files(folder, diag));
    gqac_seq2seq *m = gqac_calloc(1, sizeof *m);
    if (!m || !(m->memory = gqac_arena_create(0))) {
        gqac_free(m);
        return gqac_diag_oom(diag, "a model folder");
    }
    GQAC_RETURN_MADE(open_all(m, folder, &own, diag), m, model, gqac_seq2seq_free);
}

void gqac_seq2seq_free(gqac_seq2seq *m) {
    if (!m)
        return;
    gqac_program_free(m->encoder.program);
    gqac_program_free(m->decoder.program);
    gqac_program_free(m->with_past.program);
    gqac_arena_free(m->memory);
    gqac_free(m);
}

const gqac_seq2seq_settings *gqac_seq2seq_get_settings(const gqac_seq2seq *m) {
    return &m->settings;
}

int gqac_seq2seq_files(const gqac_seq2seq *m, const gqac_seq2seq_file **files) {
    *files = m->files;
    return m->n_files;
}
