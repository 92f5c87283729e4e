/* Loading a model: finding out its format, and making its module. */
#include "api/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/sized.h"
#include "numerics/contract.h"

gqac_status load_options(const gqac_options *given, gqac_options *own, load_parts *parts,
                         gqac_diag *diag) {
    gqac_options_init(own);
    const gqac_options defaults = *own;
    GQAC_TRY(gqac_sized_take(own, sizeof *own, given, "gqac_options", diag));
    own->target = own->target ? own->target : defaults.target;
    own->math = own->math ? own->math : defaults.math;
    own->seqlens_k = own->seqlens_k ? own->seqlens_k : defaults.seqlens_k;
    parts->log = (gqac_log){0};
    GQAC_TRY(gqac_sized_take(&parts->log, sizeof parts->log, own->log, "gqac_log", diag));
    own->log = &parts->log;
    GQAC_TRY(gqac_limits_take(&parts->limits, own->limits, diag));
    own->limits = &parts->limits;
    return GQAC_OK;
}

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

bool load_is_artefact_name(const char *path) {
    return ends_with(path, ".gqac");
}

/* ---- text ---------------------------------------------------------------- */

/* Lets the op's row verify a node, as import does. */
static gqac_status verify_node(void *arg, ir_node *node) {
    const gqac_op *op = op_of(node);
    return op->verify ? op->verify(node, arg) : GQAC_OK;
}

static gqac_status load_text(const char *path, loaded *m, gqac_diag *diag) {
    gqac_map map;
    GQAC_TRY(load_map(m, path, &map, diag));
    char *text = gqac_arena_strndup(m->arena, (const char *)map.data, map.size);
    const bool has_nul = map.size && memchr(map.data, 0, map.size);
    gqac_unmap(&map);
    if (!text)
        return gqac_diag_oom(diag, "the text of a graph");
    if (has_nul)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "%s: the text contains a NUL byte", path);
    gqac_status status = ir_parse(m->arena, text, op_schema, &m->module, diag);
    if (status == GQAC_OK)
        status = ir_graph_walk(m->module->graph, verify_node, diag);
    if (status != GQAC_OK)
        gqac_diag_where(diag, "%s", path);
    return status;
}

/* ---- limits -------------------------------------------------------------- */

typedef struct checking {
    const gqac_limits *limits;
    int64_t nodes;
    bool memory;         /* bytes of tensors too */
    const gqac_map *map; /* of an artefact: its constants need no memory */
    gqac_diag *diag;
} checking;

static gqac_status count_node(void *arg, ir_node *node) {
    checking *x = arg;
    (void)node;
    if (++x->nodes > x->limits->nodes)
        return gqac_limits_fail(x->diag, "nodes", x->limits->nodes,
                                "the model has more than %lld nodes", (long long)x->limits->nodes);
    return GQAC_OK;
}

/* Checks the bytes of a tensor of at least `count` elements; strings have no fixed size. */
static gqac_status check_tensor_bytes(const checking *x, const ir_value *value, int64_t count) {
    int64_t bits = 0;
    if (gqac_mul_i64(count, gqac_dtype_bits(value->type.dtype), &bits) &&
        bits / 8 <= x->limits->memory_bytes)
        return GQAC_OK;
    return gqac_limits_fail(x->diag, "memory-bytes", x->limits->memory_bytes,
                            "tensor '%.100s' has %lld or more elements of %d bits", value->name,
                            (long long)count, gqac_dtype_bits(value->type.dtype));
}

static bool is_mapped(const checking *x, const ir_value *value) {
    const gqac_tensor *t = value->constant;
    return t && x->map->data &&
           (uintptr_t)t->data - (uintptr_t)x->map->data < (uintptr_t)x->map->size;
}

/* Multiplies the dimensions that are known. */
static gqac_status check_value(const checking *x, const ir_node *node, const ir_value *value) {
    int64_t count = 1, dim;
    bool many = false;
    for (int i = 0; value && i < value->type.rank; i++) {
        if (!ir_dim_is_const(value->type.dims[i], &dim))
            continue;
        if (dim == 0)
            return GQAC_OK;
        many |= !gqac_mul_i64(count, dim, &count) || count > x->limits->tensor_elements;
    }
    gqac_status status = GQAC_OK;
    if (many)
        status = gqac_limits_fail(x->diag, "tensor-elements", x->limits->tensor_elements,
                                  "tensor '%.100s' has more than %lld elements", value->name,
                                  (long long)x->limits->tensor_elements);
    else if (value && x->memory && !is_mapped(x, value))
        status = check_tensor_bytes(x, value, count);
    if (status != GQAC_OK)
        ir_node_where(node, x->diag);
    return status;
}

static gqac_status check_node(void *arg, ir_node *node) {
    for (int i = 0; i < node->n_inputs; i++)
        GQAC_TRY(check_value(arg, node, node->inputs[i].value));
    for (int i = 0; i < node->n_outputs; i++)
        GQAC_TRY(check_value(arg, node, node->outputs[i]));
    return GQAC_OK;
}

gqac_status load_check(const loaded *model, const gqac_limits *limits, gqac_diag *diag) {
    checking x = {.limits = limits, .diag = diag};
    return ir_graph_walk(model->module->graph, check_node, &x);
}

gqac_status load_check_memory(const loaded *model, const gqac_limits *limits, gqac_diag *diag) {
    checking x = {.limits = limits, .memory = true, .map = &model->map, .diag = diag};
    const int64_t bytes = model->map.data ? 0 : load_weight_bytes(model);
    if (bytes > limits->memory_bytes)
        return gqac_limits_fail(diag, "memory-bytes", limits->memory_bytes,
                                "the weights have %lld bytes", (long long)bytes);
    return ir_graph_walk(model->module->graph, check_node, &x);
}

void load_place(const char *model, gqac_status status, gqac_diag *diag) {
    const bool written = diag && status == GQAC_IO && *diag->where;
    if (diag && !written && strncmp(diag->where, model, strlen(model)) != 0)
        gqac_diag_where(diag, "%s", model);
}

gqac_status load_explain(const loaded *model, const gqac_limits *limits, gqac_status status,
                         gqac_diag *diag) {
    const size_t refused = gqac_arena_refused(model->arena);
    if (status != GQAC_NO_MEMORY || !refused)
        return status;
    return gqac_limits_fail(diag, "compile-bytes", limits->compile_bytes,
                            "the graph and its packed weights need %zu more bytes; %zu are in use",
                            refused, gqac_arena_used(model->arena));
}

/* ---- any format ---------------------------------------------------------- */

gqac_status load_map(const loaded *model, const char *path, gqac_map *map, gqac_diag *diag) {
    if (!model->bytes.data)
        return gqac_map_file(path, map, diag);
    *map = (gqac_map){.data = model->bytes.data, .size = model->bytes.bytes, .borrowed = true};
    return GQAC_OK;
}

/* An artefact is recognised by its magic or, in case that is damaged, by its name. */
static bool is_artefact(const loaded *m, const char *path) {
    gqac_map map;
    if (load_is_artefact_name(path))
        return true;
    if (load_map(m, path, &map, NULL) != GQAC_OK)
        return false; /* the function that reads it reports why */
    const bool is = artefact_is(&map);
    gqac_unmap(&map);
    return is;
}

/* Values of options that an artefact stores, too. */
static const char *const maths[] = {"model", "exact", "bf16", NULL};
static const char *const lengths[] = {"total-1", "cached", NULL};

static bool is_one_of(const char *value, const char *const *allowed) {
    while (*allowed && strcmp(value, *allowed) != 0)
        allowed++;
    return *allowed;
}

/* True if it is a list of names of passes, separated by commas. */
static bool is_pass_list(const char *value) {
    const char *name = NULL, *summary;
    for (const char *at = value; *at;) {
        const size_t n = strcspn(at, ",");
        int i = 0;
        while (gqac_pass_at(i, &name, &summary) && (strlen(name) != n || strncmp(name, at, n) != 0))
            i++;
        if (!gqac_pass_at(i, &name, &summary))
            return false;
        at += n + (at[n] && at[n + 1]); /* a comma at the end is no name */
    }
    return true;
}

/* Checks what an artefact says of itself. Its profile is compared later, and its source is only
 * shown. */
static gqac_status check_meta(const char *path, const artefact_meta *m, gqac_diag *diag) {
    static const char *const switches[] = {"0", "1", NULL};
    static const char digits[] = "0123456789abcdef";
    const gqac_target *target = NULL;
    const struct {
        const char *key, *value;
        bool known;
    } rows[] = {
        {"target", m->target, gqac_target_find(m->target, &target, NULL) == GQAC_OK},
        {"math", m->math, is_one_of(m->math, maths)},
        {"seqlens-k", m->seqlens_k, is_one_of(m->seqlens_k, lengths)},
        {"legacy-window", m->legacy_window, is_one_of(m->legacy_window, switches)},
        {"per-row-quant", m->per_row_quant, is_one_of(m->per_row_quant, switches)},
        {"disable", m->disabled, is_pass_list(m->disabled)},
        {"digest", m->source_digest,
         strlen(m->source_digest) == 64 && strspn(m->source_digest, digits) == 64},
        {"parameters", m->parameters,
         *m->parameters && strlen(m->parameters) < 19 &&
             m->parameters[strspn(m->parameters, "0123456789")] == 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].known)
            continue;
        gqac_diag_set(diag, GQAC_INVALID_MODEL,
                      "the artefact has the %s '%.100s', which this gqac does not know",
                      rows[i].key, rows[i].value);
        gqac_diag_where(diag, "%s", path);
        gqac_diag_hint(diag, "compile the model again with this version of gqac");
        return GQAC_INVALID_MODEL;
    }
    return GQAC_OK;
}

/* Fails if the file is larger than the limit permits; importing ONNX checks it itself. */
static gqac_status check_size(const char *path, const loaded *m, const gqac_limits *limits,
                              gqac_diag *diag) {
    gqac_map map;
    GQAC_TRY(load_map(m, path, &map, diag));
    const int64_t bytes = (int64_t)map.size;
    gqac_unmap(&map);
    if (bytes <= limits->model_bytes)
        return GQAC_OK;
    gqac_limits_fail(diag, "model-bytes", limits->model_bytes, "the model has %lld bytes",
                     (long long)bytes);
    gqac_diag_where(diag, "%s", path);
    return GQAC_LIMIT;
}

/* Maps an artefact, and reads its module unless only `meta` is wanted. */
static gqac_status load_artefact(const char *path, const gqac_limits *limits, bool only_meta,
                                 loaded *m, gqac_diag *diag) {
    m->format = "gqac";
    GQAC_TRY(check_size(path, m, limits, diag));
    if (m->bytes.copy) {
        gqac_diag_set(diag, GQAC_USAGE,
                      "gqac_model_bytes.copy is set, but the model is an artefact");
        gqac_diag_where(diag, "%s", path);
        gqac_diag_rule(diag, "an artefact is read in place");
        gqac_diag_hint(diag, "keep its memory until the program is freed");
        return GQAC_USAGE;
    }
    GQAC_TRY(load_map(m, path, &m->map, diag));
    if ((uintptr_t)m->map.data % 64) { /* a mapped file is aligned to pages */
        gqac_diag_set(diag, GQAC_USAGE, "the artefact is at address %p", (const void *)m->map.data);
        gqac_diag_where(diag, "%s", path);
        gqac_diag_rule(diag, "the address of an artefact in memory must be a multiple of 64");
        gqac_diag_hint(diag, "allocate it with aligned_alloc, or map the file with mmap");
        return GQAC_USAGE;
    }
    GQAC_TRY(only_meta ? artefact_read_meta(path, &m->map, m->arena, &m->meta, diag)
                       : artefact_open(path, &m->map, m->arena, &m->module, &m->meta, diag));
    GQAC_TRY(check_meta(path, &m->meta, diag));
    return only_meta ? GQAC_OK : ir_graph_walk(m->module->graph, verify_node, diag);
}

static gqac_status load_bytes(const gqac_options *o, loaded *m, gqac_diag *diag) {
    if (!o->bytes)
        return GQAC_OK;
    GQAC_TRY(gqac_sized_take(&m->bytes, sizeof m->bytes, o->bytes, "gqac_model_bytes", diag));
    if (!m->bytes.data || !m->bytes.bytes)
        GQAC_FAIL(diag, GQAC_USAGE, "the model in memory has no bytes");
    return GQAC_OK;
}

static gqac_status load_any(const char *path, const gqac_options *o, loaded *m, gqac_diag *diag) {
    GQAC_TRY(load_bytes(o, m, diag));
    if (is_artefact(m, path))
        return load_artefact(path, o->limits, false, m, diag);
    if (ends_with(path, ".gq")) {
        m->format = "gq";
        GQAC_TRY(check_size(path, m, o->limits, diag));
        return load_text(path, m, diag);
    }
    m->format = "onnx";
    const onnx_memory memory = {m->bytes.data, m->bytes.bytes, m->bytes.external, m->bytes.arg};
    const onnx_options onnx = {
        .model_root = o->model_root, .memory = memory.data ? &memory : NULL, .limits = o->limits};
    return onnx_import(path, &onnx, m->arena, &m->module, &m->files, &m->report, diag);
}

static gqac_status check_loaded(const loaded *m, const gqac_limits *limits, gqac_diag *diag) {
    checking x = {.limits = limits, .diag = diag};
    GQAC_TRY(ir_graph_walk(m->module->graph, count_node, &x));
    return load_check(m, limits, diag);
}

static gqac_status make_arena(const gqac_options *options, loaded *model, gqac_diag *diag) {
    memset(model, 0, sizeof *model);
    model->arena = gqac_arena_create((size_t)options->limits->compile_bytes);
    return model->arena ? GQAC_OK : gqac_diag_oom(diag, "a model");
}

/* The reason of a failure, and in which file: `where` begins with its path. */
static gqac_status explain_file(const char *path, const gqac_options *options, const loaded *model,
                                gqac_status status, gqac_diag *diag) {
    status = load_explain(model, options->limits, status, diag);
    const bool of_content =
        status == GQAC_LIMIT || status == GQAC_INVALID_MODEL || status == GQAC_UNSUPPORTED;
    if (of_content && diag && strncmp(diag->where, path, strlen(path)) != 0)
        gqac_diag_where(diag, "%s", path);
    if (status == GQAC_IO && !options->bytes && gqac_path_is_dir(path))
        gqac_diag_hint(diag, "name a file in the folder; gqac_model_open opens a folder");
    return status;
}

gqac_status load_meta(const char *path, const gqac_options *options, loaded *model,
                      gqac_diag *diag) {
    GQAC_TRY(make_arena(options, model, diag));
    gqac_status status = load_bytes(options, model, diag);
    if (status == GQAC_OK && is_artefact(model, path))
        status = load_artefact(path, options->limits, true, model, diag);
    status = explain_file(path, options, model, status, diag);
    if (status != GQAC_OK)
        load_free(model);
    return status;
}

gqac_status load_model(const char *path, const gqac_options *options, bool keep_report,
                       loaded *model, gqac_diag *diag) {
    GQAC_TRY(make_arena(options, model, diag));
    gqac_status status = load_any(path, options, model, diag);
    if (status == GQAC_OK)
        status = check_loaded(model, options->limits, diag);
    status = explain_file(path, options, model, status, diag);
    if (status == GQAC_OK) {
        model->module->source = gqac_arena_strdup(model->arena, path);
        return GQAC_OK;
    }
    if (!(keep_report && status == GQAC_UNSUPPORTED && model->report.n_unsupported))
        load_free(model);
    return status;
}

const void *load_baked(const loaded *model, size_t *bytes) {
    return model->meta.target ? artefact_baked(&model->map, bytes) : NULL;
}

void load_free(loaded *model) {
    if (model->files)
        onnx_files_close(model->files);
    if (model->map.data)
        gqac_unmap(&model->map);
    gqac_arena_free(model->arena);
    memset(model, 0, sizeof *model);
}

typedef struct backing {
    onnx_files *files;
    gqac_map map;
} backing;

static void release_backing(void *memory) {
    backing *b = memory;
    if (b->files)
        onnx_files_close(b->files);
    if (b->map.data)
        gqac_unmap(&b->map);
    gqac_free(b);
}

static bool is_whole(const void *memory) {
    const backing *b = memory;
    return (!b->files || onnx_files_whole(b->files)) && gqac_map_whole(&b->map);
}

void *load_backing(loaded *model, void (**release)(void *), bool (**whole)(const void *),
                   gqac_diag *diag) {
    backing *b = gqac_calloc(1, sizeof *b);
    if (!b) {
        (void)gqac_diag_oom(diag, "a program");
        return NULL;
    }
    b->files = model->files;
    b->map = model->map;
    *release = release_backing;
    *whole = is_whole;
    return b;
}

int64_t load_weight_bytes(const loaded *m) {
    return ir_constant_bytes(m->module->graph);
}

int64_t load_parameters(const loaded *m) {
    const ir_graph *g = m->module->graph;
    int64_t sum = 0;
    if (m->meta.parameters)
        return strtoll(m->meta.parameters, NULL, 10);
    for (int i = 0; i < g->n_constants; i++)
        sum += gqac_tensor_count(g->constants[i]->constant);
    return sum;
}

const onnx_files *load_files(const void *memory) {
    return ((const backing *)memory)->files;
}

gqac_status load_disabled(const loaded *model, const gqac_options *options, gqac_options *own,
                          gqac_diag *diag) {
    const char *of_file = model->meta.disabled ? model->meta.disabled : "";
    const size_t most = strlen(of_file); /* names in the file, and one for the end */
    size_t n = 0;
    *own = *options;
    if (!*of_file)
        return GQAC_OK;
    while (options->disable && options->disable[n])
        n++;
    char *text = gqac_arena_strdup(model->arena, of_file), *rest = NULL;
    const char **names = GQAC_ARENA_ARRAY(model->arena, const char *, n + most + 1);
    if (!text || !names)
        return gqac_diag_oom(diag, "a list of passes");
    for (size_t i = 0; i < n; i++)
        names[i] = options->disable[i];
    for (char *name = strtok_r(text, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
        names[n++] = name;
    names[n] = NULL;
    own->disable = names;
    return GQAC_OK;
}

static bool is_left_out(const gqac_options *o, const gqac_pass *pass) {
    for (const char *const *name = o->disable; name && *name; name++)
        if (!strcmp(*name, pass->name))
            return true;
    return false;
}

const char *load_last_inspect_pass(const gqac_options *o, bool sequences) {
    if (!is_left_out(o, &pass_raise))
        return pass_raise.name;
    return sequences && !is_left_out(o, &pass_defaults) ? pass_defaults.name : pass_tidy.name;
}

/* Runs the passes by which a model becomes one for sequences, up to `unpad`. */
static gqac_status become_sequence(const gqac_options *o, pass_context *context) {
    static const gqac_pass *const own[] = {&pass_defaults, &pass_raise, &pass_unpad};
    const gqac_pass *passes[5] = {&pass_tidy};
    int n = 1;
    for (int i = 0; i < 3; i++)
        if (!is_left_out(o, own[i]))
            passes[n++] = own[i];
    return pass_run_list(context, &(pass_request){.stateful = true}, passes);
}

gqac_status load_mixing(const loaded *model, const gqac_options *o, pass_context *context,
                        bool sequences, const gqac_mixing **mixing, int *n, gqac_diag *diag) {
    const ir_node **nodes = NULL;
    if (sequences)
        GQAC_TRY(become_sequence(o, context));
    GQAC_TRY(pass_check_invariance(model->module, model->arena, &nodes, n));
    gqac_mixing *list = GQAC_ARENA_ARRAY(model->arena, gqac_mixing, (size_t)*n + 1);
    if (!list)
        return gqac_diag_oom(diag, "a list of nodes");
    /* A sequence returns any row that is wanted, so the exporter's last-row node is not counted.
     */
    const bool rows = sequences && !is_left_out(o, &pass_last_rows);
    const ir_node *taken = rows ? pass_last_row(model->module->graph) : NULL;
    int kept = 0;
    for (int i = 0; i < *n; i++)
        if (nodes[i] != taken)
            list[kept++] = (gqac_mixing){
                .size = sizeof *list, .op = nodes[i]->op->name, .node = ir_node_label(nodes[i])};
    *mixing = list;
    *n = kept;
    return GQAC_OK;
}

gqac_status load_kv_pairs(const loaded *model, kv_slot **slots, gqac_kv_pair **pairs, int *n,
                          gqac_diag *diag) {
    GQAC_TRY(pass_find_kv_pairs(model->module, model->arena, slots, n));
    *pairs = GQAC_ARENA_ARRAY(model->arena, gqac_kv_pair, (size_t)*n + 1);
    if (!*pairs)
        return gqac_diag_oom(diag, "a list of KV pairs");
    for (int i = 0; i < *n; i++)
        (*pairs)[i] = (gqac_kv_pair){.size = sizeof **pairs,
                                     .past = (*slots)[i].past,
                                     .present = (*slots)[i].present,
                                     .heads = (*slots)[i].heads,
                                     .head_size = (*slots)[i].head_size,
                                     .dtype = (*slots)[i].dtype,
                                     .rows = (*slots)[i].rows};
    return GQAC_OK;
}

/* ---- options ------------------------------------------------------------- */

static gqac_status check_choice(const char *flag, const char *value, const char *const *allowed,
                                gqac_diag *diag) {
    char list[64] = "";
    if (is_one_of(value, allowed))
        return GQAC_OK;
    for (int i = 0, n = 0; allowed[i]; i++) {
        const char *between = allowed[i + 1] ? ", " : " or ";
        n += snprintf(list + n, sizeof list - (size_t)n, "%s%s", i ? between : "", allowed[i]);
    }
    gqac_diag_set(diag, GQAC_USAGE, "%s '%s' is not known", flag, value);
    gqac_diag_rule(diag, "%s is %s", flag, list);
    return GQAC_USAGE;
}

static gqac_status same(const char *flag, const char *made_for, const char *wanted,
                        gqac_diag *diag) {
    if (!strcmp(made_for, wanted))
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_USAGE, "the artefact was compiled for %s %s, not %s", flag, made_for,
                  wanted);
    gqac_diag_hint(diag, "use %s %s, or compile the original model with %s %s", flag, made_for,
                   flag, wanted);
    return GQAC_USAGE;
}

static gqac_status same_switch(const char *flag, const char *made_for, bool wanted,
                               gqac_diag *diag) {
    const bool made = !strcmp(made_for, "1");
    if (made == wanted)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_USAGE, "the artefact was compiled %s %s", made ? "for" : "without",
                  flag);
    gqac_diag_hint(diag,
                   made ? "use %s, or compile the original model without it"
                        : "leave out %s, or compile the original model with it",
                   flag);
    return GQAC_USAGE;
}

gqac_status load_context(loaded *model, const gqac_options *options, pass_context *context,
                         gqac_diag *diag) {
    memset(context, 0, sizeof *context);
    context->module = model->module;
    context->diag = diag;
    context->poll = model->poll;
    context->options.bf16 = !strcmp(options->math, "bf16");
    context->options.exact = !strcmp(options->math, "exact");
    GQAC_TRY(check_choice("--math", options->math, maths, diag));
    context->options.cached_lengths = !strcmp(options->seqlens_k, "cached");
    GQAC_TRY(check_choice("--seqlens-k", options->seqlens_k, lengths, diag));
    context->options.legacy_window = options->legacy_window;
    context->options.per_row_quant = options->per_row_quant;
    GQAC_TRY(gqac_target_find(options->target, &context->target, diag));
    if (model->meta.target) {
        char profile[GQAC_PROFILE_SIZE];
        GQAC_TRY(same("--target", model->meta.target, options->target, diag));
        GQAC_TRY(same("--math", model->meta.math, options->math, diag));
        GQAC_TRY(same("--seqlens-k", model->meta.seqlens_k, options->seqlens_k, diag));
        GQAC_TRY(same_switch("--legacy-window", model->meta.legacy_window, options->legacy_window,
                             diag));
        GQAC_TRY(same_switch("--per-row-quant", model->meta.per_row_quant, options->per_row_quant,
                             diag));
        gqac_numerics_profile(profile, options->target, options->math);
        if (strcmp(profile, model->meta.profile) != 0) {
            gqac_diag_set(
                diag, GQAC_INVALID_MODEL,
                "the artefact was compiled with the numerics profile %s, but this gqac has %s",
                model->meta.profile, profile);
            gqac_diag_rule(diag, "results of different profiles are never mixed");
            gqac_diag_hint(diag, "compile the model again with this version of gqac");
            return GQAC_INVALID_MODEL;
        }
    }
    return GQAC_OK;
}
