/* Compiling: runs the pipeline on a model and makes a program, an artefact, ONNX or text of the
 * result. */
#include <stdio.h>
#include <string.h>

#include "api/load.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/float_mode.h"
#include "base/log.h"
#include "base/sized.h"
#include "numerics/contract.h"
#include "runtime/baked.h"

const char *gqac_version(void) {
    return GQAC_VERSION;
}

/* ---- passes -------------------------------------------------------------- */

bool gqac_pass_at(int index, const char **name, const char **summary) {
    for (int i = 0; i <= index; i++)
        if (!gqac_pipeline[i])
            return false;
    *name = gqac_pipeline[index]->name;
    *summary = gqac_pipeline[index]->summary;
    return true;
}

static char *text_of(const ir_module *module, ir_print_mode mode) {
    gqac_str text = {0};
    ir_print(&text, module, mode);
    if (!text.failed)
        return text.text;
    gqac_str_free(&text);
    return NULL;
}

char *gqac_pass_text(const gqac_pass_event *event) {
    return text_of(event->module, IR_PRINT_DIGEST);
}

void gqac_release(void *memory) {
    gqac_free(memory);
}

static void tell(void *arg, const char *pass, const ir_module *module, double seconds) {
    const gqac_options *o = arg;
    gqac_log_line(o->log, GQAC_LOG_DEBUG, "pass %-10s %9.3f ms", pass, seconds * 1e3);
    if (o->after)
        o->after(o->after_arg, &(gqac_pass_event){.size = sizeof(gqac_pass_event),
                                                  .pass = pass,
                                                  .seconds = seconds,
                                                  .module = module});
}

static gqac_status run_passes(pass_context *context, const gqac_options *o, const char *stop) {
    const pass_request request = {.stateful = !o->stateless,
                                  .stop_after = stop,
                                  .disable = o->disable,
                                  .after = tell,
                                  .arg = (void *)(uintptr_t)o};
    return gqac_pipeline_run(context, &request);
}

/* ---- programs ------------------------------------------------------------ */

gqac_status gqac_target_level(const char *target, const char **level, gqac_diag *diag) {
    const gqac_target *t = NULL;
    const void *state = NULL;
    GQAC_TRY(gqac_target_find(target, &t, diag));
    *level = NULL;
    if (!t->level)
        return GQAC_OK;
    GQAC_TRY(t->open(&state, diag));
    *level = t->level(state);
    return GQAC_OK;
}

/* True for ops that round their activations to integers, by an attribute and its value. */
static bool rounds_activations(const ir_node *node) {
    for (const ir_attr_spec *spec = node->op->attrs; spec && spec->name; spec++)
        if (!strcmp(spec->name, "accuracy_level"))
            return node->attrs[spec - node->op->attrs].i == 4;
    return false;
}

/* Visits the nodes of the tidied graph. Records the name of each value (ir_value.origin), which
 * values that replace it later keep: gqac_observed.value. *arg becomes true if the model rounds to
 * less than fp32. */
static gqac_status look_at(void *arg, ir_node *node) {
    bool *rounds = arg;
    *rounds |= rounds_activations(node);
    for (int i = 0; i < node->n_outputs; i++) {
        ir_value *value = node->outputs[i];
        if (!value)
            continue;
        const gqac_dtype dtype = value->type.dtype;
        value->origin = value->name;
        *rounds |= dtype == GQAC_I8 || dtype == GQAC_U8 ||
                   (gqac_dtype_is_float(dtype) && gqac_dtype_bits(dtype) < 32);
    }
    return GQAC_OK;
}

/* Opens the prefix of an artefact, unless another is to be baked. */
static gqac_status open_baked(const loaded *m, const gqac_options *o, gqac_program *program,
                              gqac_diag *diag) {
    size_t bytes = 0;
    const void *data = load_baked(m, &bytes);
    return data && !o->stateless && !o->bake ? baked_open(program, data, bytes, diag) : GQAC_OK;
}

static void apply_limits(gqac_program *p, const gqac_options *o) {
    p->budget->is_limit = !o->memory_budget;
    p->budget->most = (size_t)(o->memory_budget ? o->memory_budget : o->limits->memory_bytes);
    if (p->stateless || o->limits->context >= p->most_tokens)
        return;
    p->most_tokens = o->limits->context;
    p->limited = true;
}

static gqac_status make_program(loaded *m, const gqac_options *options, gqac_program **program,
                                gqac_diag *diag) {
    pass_context context;
    gqac_options own;
    const gqac_options *const o = &own;
    const gqac_mixing *mixing = NULL;
    int n_mixing = 0;
    GQAC_TRY(load_disabled(m, options, &own, diag));
    GQAC_TRY(load_context(m, o, &context, diag));
    if (o->stop_after)
        GQAC_FAIL(diag, GQAC_USAGE, "a program needs all passes; --stop-after is for compile");
    if (o->memory_budget < 0)
        GQAC_FAIL(diag, GQAC_USAGE, "the memory budget is %lld bytes: it must not be negative",
                  (long long)o->memory_budget);
    GQAC_TRY(load_check_memory(m, o->limits, diag)); /* before passes copy anything */
    GQAC_TRY(load_rename(m, o, diag));
    /* whether rows are mixed is decided by the model's own ops, before they are lowered */
    const pass_request look = {.stateful = !o->stateless,
                               .stop_after = load_last_inspect_pass(o, !o->stateless),
                               .disable = o->disable};
    GQAC_TRY(gqac_pipeline_run(&context, &look));
    GQAC_TRY(load_check_memory(m, o->limits, diag)); /* inferred shapes too */
    bool rounds = false;
    GQAC_TRY(ir_graph_walk(m->module->graph, look_at, &rounds));
    GQAC_TRY(load_mixing(m, o, &context, !o->stateless, &mixing, &n_mixing, diag));
    kv_slot *slots = NULL;
    gqac_kv_pair *pairs = NULL;
    int n_pairs = 0;
    if (o->stateless)
        GQAC_TRY(load_kv_pairs(m, &slots, &pairs, &n_pairs, diag));
    GQAC_TRY(run_passes(&context, o, NULL));
    GQAC_TRY(load_detach(m, diag));
    gqac_program *p = NULL;
    GQAC_TRY(program_create(m->arena, m->module, context.target, o, &p, diag));
    const gqac_status status = open_baked(m, o, p, diag);
    if (status != GQAC_OK) {
        program_close(p);
        return status;
    }
    p->mixing = mixing;
    p->n_mixing = n_mixing;
    if (context.padded_by)
        p->padded_by = (gqac_mixing){.op = context.padded_by->op->name,
                                     .node = ir_node_label(context.padded_by)};
    apply_limits(p, o);
    p->tolerance = context.options.bf16 ? 1e-1 : rounds ? 2e-2 : 1e-4;
    if (o->stateless) {
        p->kv = slots;
        p->kv_pairs = pairs;
        p->n_kv = n_pairs;
    }
    p->backing = load_backing(m, &p->release, &p->whole, diag);
    if (!p->backing) {
        program_close(p);
        return GQAC_NO_MEMORY;
    }
    *program = p;
    return GQAC_OK;
}

/* Logs a program that was opened. */
static void log_program(const char *model, const gqac_program *p, double began) {
    const gqac_log *log = &p->log;
    const char *level = p->target->level ? p->target->level(p->target_state) : "";
    const gqac_mixing *mixing = NULL;
    if (!gqac_log_wants(log, GQAC_LOG_WARNING))
        return;
    gqac_log_line(log, GQAC_LOG_INFO, "opened %s: %d values, target %s%s%s, %s, %.3f s", model,
                  p->n_values, p->target->name, *level ? " " : "", level, p->profile,
                  gqac_clock_seconds() - began);
    if (p->padded_by.op)
        gqac_log_line(log, GQAC_LOG_INFO,
                      "%s: steps pad the rows of all sequences to the longest, because of %s '%s'",
                      model, p->padded_by.op, p->padded_by.node);
    const int n_mixing = p->stateless ? 0 : gqac_program_mixing(p, &mixing);
    if (n_mixing)
        gqac_log_line(log, GQAC_LOG_WARNING,
                      "node '%s' (%s) mixes rows: the model is not split-safe, and answers may "
                      "depend on caching (gqac inspect --invariance)",
                      mixing->node, mixing->op);
}

/* `more`: bytes that the call processes after the program is open, for the progress. */
static gqac_status open_program(const char *model, const gqac_options *options, gqac_poll *poll,
                                int64_t more, gqac_program **program, gqac_diag *diag) {
    loaded m;
    const double began = gqac_clock_seconds();
    GQAC_TRY(load_model(model, options, false, &m, diag));
    m.poll = poll;
    gqac_poll_expect(poll, poll->done + load_weight_bytes(&m) + more);
    gqac_status status = make_program(&m, options, program, diag);
    status = load_explain(&m, options->limits, status, diag);
    if (status != GQAC_OK) {
        gqac_diag_where(diag, "%s", model);
        load_free(&m);
    } else {
        log_program(model, *program, began);
    }
    return status;
}

gqac_status gqac_program_open(const char *model, const gqac_options *options,
                              gqac_program **program, gqac_diag *diag) {
    gqac_poll poll = {0};
    gqac_options own;
    load_parts parts;
    GQAC_TRY(load_options(options, &own, &parts, diag));
    GQAC_TRY(gqac_poll_set(&poll, own.monitor, NULL, diag));
    gqac_poll_begin(&poll, 0, "bytes");
    gqac_poll_limit(&poll, own.limits->compile_ms);
    gqac_float_mode callers;
    GQAC_TRY(gqac_float_mode_take(&callers, diag));
    const gqac_status status = open_program(model, &own, &poll, 0, program, diag);
    gqac_float_mode_give_back(&callers);
    if (status == GQAC_OK)
        gqac_poll_finish(&poll); /* not all weights need packing */
    return status;
}

/* ---- emitting ------------------------------------------------------------ */

static gqac_status write_text(const ir_module *module, const char *path, gqac_diag *diag) {
    char *text = text_of(module, IR_PRINT_FULL);
    gqac_writer *w = NULL;
    if (!text)
        return gqac_diag_oom(diag, "the text of a graph");
    gqac_status status = gqac_writer_open(path, &w, diag);
    if (status == GQAC_OK)
        status = gqac_writer_write(w, text, strlen(text), diag);
    if (status == GQAC_OK)
        status = gqac_writer_commit(w, diag);
    else if (w)
        gqac_writer_abort(w);
    gqac_free(text);
    return status;
}

/* Writes the digest of the model. An artefact stores that of its source. */
static gqac_status digest_text(const loaded *m, const char *model, char hex[65], gqac_diag *diag) {
    unsigned char digest[32];
    if (m->meta.source_digest) {
        snprintf(hex, 65, "%s", m->meta.source_digest);
        return GQAC_OK;
    }
    if (m->files) {
        GQAC_TRY(onnx_digest(m->files, m->poll, digest, diag));
    } else {
        gqac_map map;
        gqac_sha256 state;
        GQAC_TRY(load_map(m, model, &map, diag));
        gqac_sha256_init(&state);
        gqac_sha256_update(&state, map.data, map.size);
        gqac_sha256_final(&state, digest);
        gqac_unmap(&map);
    }
    gqac_sha256_hex(digest, hex);
    return GQAC_OK;
}

void gqac_digest(const void *data, size_t bytes, char hex[65]) {
    unsigned char digest[32];
    gqac_sha256 state;
    gqac_sha256_init(&state);
    gqac_sha256_update(&state, data, bytes);
    gqac_sha256_final(&state, digest);
    gqac_sha256_hex(digest, hex);
}

gqac_status gqac_model_digest(const char *model, const gqac_options *options, char hex[65],
                              gqac_diag *diag) {
    loaded m;
    gqac_options own;
    load_parts parts;
    GQAC_TRY(load_options(options, &own, &parts, diag));
    GQAC_TRY(load_meta(model, &own, &m, diag));
    if (!m.meta.target) {
        load_free(&m);
        GQAC_TRY(load_model(model, &own, false, &m, diag));
    }
    gqac_status status = digest_text(&m, model, hex, diag);
    load_free(&m);
    return status;
}

/* Number of bytes that are hashed for the digest of the source. */
static int64_t source_bytes(const loaded *m) {
    return m->map.data ? (int64_t)m->map.size : m->files ? onnx_files_bytes(m->files) : 0;
}

/* Writes an artefact of the tidied graph with packed weights. First the rest of the pipeline is
 * tried on a separate module, whose program computes the prefix to bake. *baked: its section, which
 * the caller frees. */
static gqac_status write_parts(loaded *m, pass_context *context, const gqac_options *o,
                               const char *model, const char *path, void **baked, gqac_diag *diag) {
    char hex[65], profile[96], parameters[24];
    gqac_options quiet = *o;
    gqac_program *program = NULL;
    artefact_parts parts = {.module = m->module, .n_files = o->n_attachments};
    quiet.log = NULL;
    quiet.after = NULL; /* open_program has already reported all passes */
    const int64_t weights = load_weight_bytes(m), source = source_bytes(m);
    gqac_status status = open_program(model, o, m->poll, 3 * weights + source, &program, diag);
    if (status == GQAC_OK)
        status = bake_prefix(program, o, m->poll, baked, &parts.baked_bytes, diag);
    gqac_program_free(program);
    GQAC_TRY(status);
    GQAC_TRY(run_passes(context, &quiet, "tidy"));
    snprintf(parameters, sizeof parameters, "%lld", (long long)load_parameters(m));
    GQAC_TRY(run_passes(context, &quiet, "pack"));
    gqac_poll_expect(m->poll, m->poll->done + source + 2 * load_weight_bytes(m));
    if (m->meta.source_digest) /* new digests would hide that a byte of it was damaged */
        GQAC_TRY(artefact_verify(model, &m->map, m->poll, diag));
    GQAC_TRY(digest_text(m, model, hex, diag));
    gqac_numerics_profile(profile, context->target->name, o->math);
    const char *disabled = "";
    for (const char *const *name = o->disable; disabled && name && *name; name++)
        disabled = gqac_arena_printf(m->arena, "%s%s%s", disabled, *disabled ? "," : "", *name);
    if (!disabled)
        return gqac_diag_oom(diag, "an artefact");
    parts.meta = (artefact_meta){.target = context->target->name,
                                 .math = o->math,
                                 .profile = profile,
                                 .seqlens_k = o->seqlens_k,
                                 .legacy_window = o->legacy_window ? "1" : "0",
                                 .per_row_quant = o->per_row_quant ? "1" : "0",
                                 .disabled = disabled,
                                 .source = m->meta.source ? m->meta.source : model,
                                 .source_digest = hex,
                                 .parameters = parameters};
    parts.files = o->attachments;
    parts.baked = *baked;
    if (m->map.data && !o->n_attachments) /* an artefact keeps its attached files */
        GQAC_TRY(artefact_files(model, m->arena, &m->map, &parts.files, &parts.n_files, diag));
    return artefact_write(path, &parts, m->poll, diag);
}

static gqac_status write_artefact(loaded *m, pass_context *context, const gqac_options *o,
                                  const char *model, const char *path, gqac_diag *diag) {
    void *baked = NULL;
    const gqac_status status = write_parts(m, context, o, model, path, &baked, diag);
    gqac_free(baked);
    return status;
}

static gqac_status emit(loaded *m, const gqac_options *options, gqac_emit kind, const char *model,
                        const char *path, gqac_diag *diag) {
    pass_context context;
    gqac_options own;
    const gqac_options *const o = &own;
    GQAC_TRY(load_disabled(m, options, &own, diag));
    GQAC_TRY(load_context(m, o, &context, diag));
    if (kind == GQAC_EMIT_GQAC) {
        if (o->stop_after)
            GQAC_FAIL(diag, GQAC_USAGE, "an artefact cannot stop after a pass; use --emit text");
        return write_artefact(m, &context, o, model, path, diag);
    }
    if (o->bake)
        GQAC_FAIL(diag, GQAC_USAGE, "a prefix can be baked only into an artefact");
    const char *stop = o->stop_after;
    if (kind != GQAC_EMIT_ONNX && !stop)
        GQAC_TRY(load_check_memory(m, o->limits, diag));
    if (kind == GQAC_EMIT_ONNX && !stop)
        stop = "tidy";
    else if (kind == GQAC_EMIT_ONNX && !strcmp(stop, "import"))
        stop = "infer";         /* a file declares types, which infer adds */
    if (kind != GQAC_EMIT_ONNX) /* ONNX files keep the model's names */
        GQAC_TRY(load_rename(m, o, diag));
    GQAC_TRY(run_passes(&context, o, stop));
    if (kind == GQAC_EMIT_ONNX) {
        GQAC_TRY(pass_standardise(&context));
        return onnx_export(m->module, path, m->poll, diag);
    }
    return kind == GQAC_EMIT_TEXT ? write_text(m->module, path, diag) : GQAC_OK;
}

/* Checks the path, before anything is computed. */
static gqac_status check_path(const loaded *m, gqac_emit kind, const char *model, const char *path,
                              gqac_diag *diag) {
    if (kind == GQAC_EMIT_NONE)
        return GQAC_OK;
    GQAC_TRY(guard_folder(path, diag));
    if (m->bytes.data)
        return GQAC_OK;
    return kind == GQAC_EMIT_ONNX ? guard_onnx(model, m->files, false, path, diag)
                                  : guard_output(model, m->files, path, diag);
}

/* Loads the model and emits what is asked for. */
static gqac_status compile(const char *model, const gqac_options *o, gqac_poll *poll,
                           gqac_emit kind, const char *path, gqac_diag *diag) {
    loaded m;
    GQAC_TRY(load_model(model, o, false, &m, diag));
    m.poll = poll;
    gqac_poll_expect(poll, load_weight_bytes(&m));
    gqac_status status = check_path(&m, kind, model, path, diag);
    if (status == GQAC_OK)
        status = load_explain(&m, o->limits, emit(&m, o, kind, model, path, diag), diag);
    if (status != GQAC_OK)
        load_place(model, status, diag);
    load_free(&m);
    return status;
}

gqac_status gqac_compile(const char *model, const gqac_options *options, gqac_emit kind,
                         const char *path, gqac_diag *diag) {
    gqac_poll poll = {0};
    gqac_options own;
    load_parts parts;
    gqac_float_mode callers;
    GQAC_TRY(load_options(options, &own, &parts, diag));
    GQAC_TRY(gqac_poll_set(&poll, own.monitor, NULL, diag));
    gqac_poll_begin(&poll, 0, "bytes");
    gqac_poll_limit(&poll, own.limits->compile_ms);
    GQAC_TRY(gqac_float_mode_take(&callers, diag));
    const gqac_status status = compile(model, &own, &poll, kind, path, diag);
    gqac_float_mode_give_back(&callers);
    if (status == GQAC_OK)
        gqac_poll_finish(&poll);
    return status;
}

/* ---- artefacts ----------------------------------------------------------- */

static gqac_status map_artefact(const char *path, gqac_map *map, gqac_diag *diag) {
    GQAC_TRY(gqac_map_file(path, map, diag));
    if (artefact_is(map) || load_is_artefact_name(path))
        return GQAC_OK;
    gqac_unmap(map);
    GQAC_FAIL(diag, GQAC_USAGE, "'%s' is not an artefact: only artefacts have checksums", path);
}

gqac_status gqac_artefact_verify(const char *path, gqac_diag *diag) {
    gqac_map map;
    GQAC_TRY(map_artefact(path, &map, diag));
    const gqac_status status = artefact_verify(path, &map, NULL, diag);
    gqac_unmap(&map);
    return status;
}

gqac_status gqac_artefact_attachments(const char *path, gqac_attachment **files, int *n,
                                      gqac_diag *diag) {
    gqac_map map;
    GQAC_TRY(map_artefact(path, &map, diag));
    const gqac_status status = artefact_read_files(path, &map, files, n, diag);
    gqac_unmap(&map);
    return status;
}
