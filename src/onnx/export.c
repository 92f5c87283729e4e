/* onnx_export: checks that every op is ONNX, builds the model's message, streams it to a file.
 *
 * The file appears whole or not at all. External data are written first, so that a model never
 * refers to data that do not exist. */
#include "onnx/exporter.h"

#include "base/file.h"

#include <string.h>

static const size_t most_inline = (size_t)1 << 30;

gqac_status export_oom(exporter *ex) {
    return gqac_diag_oom(ex->diag, "the exported model");
}

/* ---- checks and opsets --------------------------------------------------- */

static gqac_status check_node(void *arg, ir_node *node) {
    exporter *ex = arg;
    const ir_schema *op = node->op;
    if (strcmp(op->domain, "gqac") == 0) {
        gqac_diag_set(ex->diag, GQAC_UNSUPPORTED, "'%s' is an op of gqac, not of ONNX", op->name);
        ir_node_where(node, ex->diag);
        gqac_diag_hint(ex->diag,
                       "after tidy or raise, the graph has only ONNX ops: use --stop-after tidy");
        return GQAC_UNSUPPORTED;
    }
    if (!*op->domain && op->since > ex->opset)
        ex->opset = op->since;
    return GQAC_OK;
}

static gqac_status check_until(void *arg, ir_node *node) {
    exporter *ex = arg;
    if (*node->op->domain || !node->op->until || node->op->until >= ex->opset)
        return GQAC_OK;
    gqac_diag_set(ex->diag, GQAC_UNSUPPORTED,
                  "op %s exists up to opset %d, but other ops need opset %lld", node->op->name,
                  node->op->until, (long long)ex->opset);
    ir_node_where(node, ex->diag);
    return GQAC_UNSUPPORTED;
}

typedef struct domains {
    exporter *ex;
    Onnx__ModelProto *model;
    size_t capacity;
} domains;

static gqac_status add_opset(domains *d, const char *domain, int64_t version) {
    Onnx__ModelProto *model = d->model;
    for (size_t i = 0; i < model->n_opset_import; i++)
        if (strcmp(model->opset_import[i]->domain, domain) == 0) {
            if (model->opset_import[i]->version < version)
                model->opset_import[i]->version = version;
            return GQAC_OK;
        }
    if (model->n_opset_import == d->capacity) {
        size_t capacity = d->capacity ? 2 * d->capacity : 4;
        Onnx__OperatorSetIdProto **list =
            GQAC_ARENA_ARRAY(d->ex->arena, Onnx__OperatorSetIdProto *, capacity);
        if (!list)
            return export_oom(d->ex);
        if (d->capacity)
            memcpy(list, model->opset_import, d->capacity * sizeof *list);
        model->opset_import = list;
        d->capacity = capacity;
    }
    Onnx__OperatorSetIdProto *id =
        EXPORT_NEW(d->ex, Onnx__OperatorSetIdProto, ONNX__OPERATOR_SET_ID_PROTO__INIT);
    if (!id)
        return export_oom(d->ex);
    id->domain = (char *)(uintptr_t)domain;
    id->has_version = true;
    id->version = version;
    model->opset_import[model->n_opset_import++] = id;
    return GQAC_OK;
}

static gqac_status add_domain(void *arg, ir_node *node) {
    domains *d = arg;
    int since = node->op->since > 0 ? node->op->since : 1;
    return *node->op->domain ? add_opset(d, node->op->domain, since) : GQAC_OK;
}

/* ---- the model ----------------------------------------------------------- */

static void add_bytes(exporter *ex, const ir_graph *graph) {
    for (int i = 0; i < graph->n_constants; i++)
        if (!ir_value_unused(graph->constants[i]))
            ex->data_bytes += gqac_tensor_bytes(graph->constants[i]->constant);
}

static gqac_status add_nested(void *arg, ir_node *node) {
    exporter *ex = arg;
    int i = 0;
    for (const ir_attr_spec *spec = node->op->attrs; spec && spec->name; spec++, i++) {
        if (spec->kind == IR_ATTR_GRAPH && node->attrs[i].set)
            add_bytes(ex, node->attrs[i].graph);
        if (spec->kind == IR_ATTR_TENSOR && node->attrs[i].set)
            ex->data_bytes += gqac_tensor_bytes(node->attrs[i].tensor);
    }
    return GQAC_OK;
}

static gqac_status build_model(exporter *ex, Onnx__ModelProto **out) {
    ir_graph *graph = ex->module->graph;
    ex->opset = EXPORT_OPSET;
    GQAC_TRY(ir_graph_walk(graph, check_node, ex));
    GQAC_TRY(ir_graph_walk(graph, check_until, ex));
    add_bytes(ex, graph);
    GQAC_TRY(ir_graph_walk(graph, add_nested, ex));
    ex->external = ex->data_bytes > most_inline;
    GQAC_TRY(export_names(ex));
    Onnx__ModelProto *model = EXPORT_NEW(ex, Onnx__ModelProto, ONNX__MODEL_PROTO__INIT);
    if (!model)
        return export_oom(ex);
    model->has_ir_version = true;
    model->ir_version = EXPORT_IR;
    model->producer_name = (char *)(uintptr_t) "gqac";
    domains d = {.ex = ex, .model = model};
    GQAC_TRY(add_opset(&d, "", ex->opset));
    GQAC_TRY(ir_graph_walk(graph, add_domain, &d));
    *out = model;
    return export_graph(ex, graph, &model->graph);
}

/* ---- writing ------------------------------------------------------------- */

typedef struct stream {
    ProtobufCBuffer base;
    gqac_writer *writer;
    gqac_poll *poll;
    gqac_diag *diag;
    gqac_status status;
    size_t filled;
    unsigned char block[1 << 16]; /* protobuf-c appends a few bytes at a time */
} stream;

static gqac_status write_data(gqac_writer *writer, const unsigned char *data, size_t bytes,
                              gqac_poll *poll, gqac_diag *diag) {
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < GQAC_POLL_BYTES ? bytes - at : GQAC_POLL_BYTES;
        GQAC_TRY(gqac_writer_write(writer, data + at, n, diag));
        GQAC_TRY(gqac_poll_add(poll, (int64_t)n, diag));
    }
    return GQAC_OK;
}

static void flush(stream *s) {
    if (s->status == GQAC_OK && s->filled)
        s->status = gqac_writer_write(s->writer, s->block, s->filled, s->diag);
    s->filled = 0;
}

static void append(ProtobufCBuffer *buffer, size_t bytes, const uint8_t *data) {
    stream *s = (stream *)buffer;
    if (bytes > sizeof s->block - s->filled)
        flush(s);
    if (bytes > sizeof s->block) {
        if (s->status == GQAC_OK)
            s->status = write_data(s->writer, data, bytes, s->poll, s->diag);
    } else if (bytes) {
        memcpy(s->block + s->filled, data, bytes);
        s->filled += bytes;
    }
}

static gqac_status write_model(const Onnx__ModelProto *model, gqac_writer *writer, gqac_poll *poll,
                               gqac_arena *arena, gqac_diag *diag) {
    stream *s = gqac_arena_alloc(arena, sizeof *s);
    if (!s)
        return gqac_diag_oom(diag, "the exported model");
    s->base.append = append;
    s->poll = poll;
    s->writer = writer;
    s->diag = diag;
    s->status = GQAC_OK;
    s->filled = 0;
    protobuf_c_message_pack_to_buffer(&model->base, &s->base);
    flush(s);
    return s->status;
}

static gqac_status write_side(exporter *ex, gqac_writer *writer) {
    static const unsigned char zeros[EXPORT_ALIGN];
    for (size_t at = 0; at < ex->side.length; at += sizeof(gqac_tensor *)) {
        const gqac_tensor *tensor;
        /* NOLINTNEXTLINE(bugprone-sizeof-expression): `side` lists pointers */
        memcpy(&tensor, ex->side.text + at, sizeof tensor);
        size_t over = (size_t)(gqac_writer_offset(writer) % EXPORT_ALIGN);
        if (over)
            GQAC_TRY(gqac_writer_write(writer, zeros, EXPORT_ALIGN - over, ex->diag));
        GQAC_TRY(write_data(writer, tensor->data, gqac_tensor_bytes(tensor), ex->poll, ex->diag));
    }
    return GQAC_OK;
}

/* Writes and publishes the file of external data, if there is one. */
static gqac_status write_external(exporter *ex, const char *path) {
    gqac_writer *writer;
    if (!ex->external)
        return GQAC_OK;
    const char *data = gqac_arena_printf(ex->arena, "%s.data", path);
    if (!data)
        return export_oom(ex);
    GQAC_TRY(gqac_writer_open(data, &writer, ex->diag));
    gqac_status status = write_side(ex, writer);
    if (status == GQAC_OK)
        return gqac_writer_commit(writer, ex->diag);
    gqac_writer_abort(writer);
    return status;
}

static gqac_status export_to(exporter *ex, const char *path) {
    Onnx__ModelProto *model = NULL;
    gqac_writer *writer;
    const char *slash = strrchr(path, '/');
    ex->location = gqac_arena_printf(ex->arena, "%s.data", slash ? slash + 1 : path);
    if (!ex->location)
        return export_oom(ex);
    GQAC_TRY(build_model(ex, &model));
    GQAC_TRY(gqac_writer_open(path, &writer, ex->diag));
    gqac_status status = write_model(model, writer, ex->poll, ex->arena, ex->diag);
    if (status == GQAC_OK)
        status = write_external(ex, path);
    if (status == GQAC_OK)
        return gqac_writer_commit(writer, ex->diag);
    gqac_writer_abort(writer);
    return status;
}

gqac_status onnx_export(const ir_module *module, const char *path, gqac_poll *poll,
                        gqac_diag *diag) {
    exporter ex = {.module = module, .poll = poll, .diag = diag, .arena = gqac_arena_create(0)};
    if (!ex.arena)
        return export_oom(&ex);
    gqac_status status = export_to(&ex, path);
    gqac_str_free(&ex.side);
    gqac_arena_free(ex.arena);
    return status;
}
