/* See sides.h. Names are those of exporters (encoder_model.onnx, decoder_model_merged.onnx) and of
 * those who write the files themselves (encoder.onnx, decoder.onnx). */
#include "cli/sides.h"

#include <string.h>
#include <unistd.h>

enum { MOST_NAMES = 4 };

/* What a file of each kind may be called; the first that is there counts. */
static const char *const names_of[SIDE_KINDS][MOST_NAMES] = {
    [SIDE_ENCODER] = {"encoder.onnx", "encoder_model.onnx"},
    [SIDE_DECODER] = {"decoder.onnx", "decoder_model_merged.onnx", "decoder_model.onnx"},
    [SIDE_LATER] = {"decoder_with_past_model.onnx"}};

static bool has_file(const char *folder, const char *name, char path[SIDES_PATH]) {
    const int n = snprintf(path, SIDES_PATH, "%s/%s", folder, name);
    return n > 0 && n < SIDES_PATH && access(path, F_OK) == 0;
}

static bool find_file(const char *folder, side_kind kind, char path[SIDES_PATH]) {
    for (int i = 0; names_of[kind][i]; i++)
        if (has_file(folder, names_of[kind][i], path))
            return true;
    return false;
}

bool sides_have(const cli *c, side_kind kind) {
    char path[SIDES_PATH];
    return find_file(c->operands[0], kind, path);
}

bool sides_are(const cli *c) {
    char path[SIDES_PATH];
    return !has_file(c->operands[0], "genai_config.json", path) &&
           (sides_have(c, SIDE_ENCODER) || sides_have(c, SIDE_DECODER));
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

gqac_status sides_check(cli *c) {
    const char *folder = c->operands[0];
    char path[SIDES_PATH], other[SIDES_PATH];
    const bool encoder = find_file(folder, SIDE_ENCODER, path);
    if (encoder && find_file(folder, SIDE_DECODER, path))
        return GQAC_OK;
    gqac_diag *diag = &c->diag;
    find_file(folder, encoder ? SIDE_ENCODER : SIDE_DECODER, other);
    cli_fail(c, GQAC_IO, "the folder has %s but no %s", other + strlen(folder) + 1,
             encoder ? "decoder" : "encoder");
    snprintf(diag->where, sizeof diag->where, "%s", folder);
    list_names(names_of[encoder ? SIDE_DECODER : SIDE_ENCODER], path, sizeof path);
    snprintf(diag->rule, sizeof diag->rule, "%s is %.400s", encoder ? "a decoder" : "an encoder",
             path);
    if (!encoder)
        snprintf(diag->hint, sizeof diag->hint,
                 "a decoder that needs no encoder is given as a file: %.400s", other);
    return GQAC_IO;
}

gqac_status sides_open(cli *c, side_kind kind, side *s) {
    int threads = 1;
    gqac_options options;
    gqac_status status = cli_options(c, &options);
    options.stateless = true;
    if (status == GQAC_OK)
        status = cli_threads(c, &threads);
    find_file(c->operands[0], kind, s->path);
    if (status == GQAC_OK)
        status = gqac_program_open(s->path, &options, &s->program, &c->diag);
    if (status == GQAC_OK)
        status = gqac_context_create(s->program, threads, &s->context, &c->diag);
    if (status != GQAC_OK)
        return status;
    s->n_inputs = gqac_program_inputs(s->program, &s->inputs);
    s->n_outputs = gqac_program_outputs(s->program, &s->outputs);
    return GQAC_OK;
}

/* What went wrong in a call went wrong in one of two files. */
gqac_status sides_run(cli *c, const side *s, int n_in, const char *const *names,
                      const gqac_tensor *in, int n_out, const char *const *out_names,
                      gqac_tensor *out) {
    gqac_diag *diag = &c->diag;
    const gqac_status status = gqac_run(s->context, n_in, names, in, n_out, out_names, out, diag);
    if (status != GQAC_OK) {
        char node[sizeof diag->where];
        snprintf(node, sizeof node, "%s", diag->where);
        snprintf(diag->where, sizeof diag->where, "%.256s%s%.248s", s->path, *node ? ", " : "",
                 node);
    }
    return status;
}

int sides_find(const gqac_io *list, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].name, name))
            return i;
    return -1;
}

const char *sides_dimension(const gqac_io *io, int axis, size_t *length) {
    const char *at = io->shape + 1;
    for (; axis && strchr(at, ','); axis--)
        at = strchr(at, ',') + 1;
    *length = strcspn(at, ",]");
    return at;
}

/* "is no encoder: it takes 'x'" */
static gqac_status refuse_kind(cli *c, const side *s, const char *why, const char *name,
                               const char *rule) {
    cli_fail(c, GQAC_UNSUPPORTED, "the file is no %s '%s'", why, name);
    snprintf(c->diag.where, sizeof c->diag.where, "%.500s", s->path);
    snprintf(c->diag.rule, sizeof c->diag.rule, "%s", rule);
    return GQAC_UNSUPPORTED;
}

gqac_status sides_check_kinds(cli *c, const side *encoder, const side *decoder) {
    static const char states[] = "encoder_hidden_states", logits[] = "logits";
    static const char encodes[] = "an encoder takes ids or features, and gives their states";
    static const char decodes[] = "a decoder takes ids and encoder_hidden_states, and gives logits";
    for (int i = 0; i < encoder->n_inputs; i++) {
        const char *name = encoder->inputs[i].name;
        if (!strcmp(name, states) || !strncmp(name, "past_", 5) || !strncmp(name, "cache_", 6))
            return refuse_kind(c, encoder, "encoder: it takes", name, encodes);
    }
    if (sides_find(encoder->outputs, encoder->n_outputs, logits) >= 0)
        return refuse_kind(c, encoder, "encoder: it gives", logits, encodes);
    if (sides_find(decoder->outputs, decoder->n_outputs, logits) < 0)
        return refuse_kind(c, decoder, "decoder: it does not give", logits, decodes);
    if (sides_find(decoder->inputs, decoder->n_inputs, states) < 0)
        return refuse_kind(c, decoder, "decoder of an encoder: it does not take", states, decodes);
    return GQAC_OK;
}

void sides_close(side *s) {
    gqac_context_free(s->context);
    gqac_program_free(s->program);
}
