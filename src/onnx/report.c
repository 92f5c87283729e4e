/* The report of an import: the ops of the file, and everything that is not supported. Entries are
 * kept in the module's arena; the lists are sorted at the end, so that they do not depend on the
 * order of nodes. */
#include "onnx/importer.h"

#include <stdlib.h>
#include <string.h>

typedef struct tally_op {
    const char *name;
    int count;
    struct tally_op *next;
} tally_op;

typedef struct tally_bad {
    onnx_unsupported what;
    struct tally_bad *next;
} tally_bad;

struct onnx_tally {
    gqac_table ops, bads;
    tally_op *first_op;
    tally_bad *first_bad;
    int n_ops, n_bads;
};

gqac_status onnx_tally_create(importer *im) {
    im->tally = GQAC_ARENA_NEW(im->scratch, onnx_tally);
    if (!im->tally)
        return onnx_oom(im);
    gqac_table_init(&im->tally->ops, im->scratch);
    gqac_table_init(&im->tally->bads, im->scratch);
    return GQAC_OK;
}

const char *onnx_op_name(importer *im, const Onnx__NodeProto *node) {
    const char *domain = onnx_domain(node->domain), *type = onnx_text(node->op_type);
    return *domain ? gqac_arena_printf(im->scratch, "%s.%s", domain, type) : type;
}

static bool same_op(const void *item, const void *key) {
    return strcmp(((const tally_op *)item)->name, key) == 0;
}

gqac_status onnx_tally_node(importer *im, const Onnx__NodeProto *node) {
    onnx_tally *tally = im->tally;
    const char *name = onnx_op_name(im, node);
    if (!name)
        return onnx_oom(im);
    uint64_t hash = gqac_hash_bytes(tally->ops.seed, name, strlen(name));
    tally_op *op = gqac_table_find(&tally->ops, hash, same_op, name);
    if (!op) {
        op = GQAC_ARENA_NEW(im->scratch, tally_op);
        if (!op || !(op->name = gqac_arena_strdup(im->arena, name)) ||
            !gqac_table_add(&tally->ops, hash, op))
            return onnx_oom(im);
        op->next = tally->first_op;
        tally->first_op = op;
        tally->n_ops++;
    }
    op->count++;
    return GQAC_OK;
}

static bool same_bad(const void *item, const void *key) {
    const onnx_unsupported *a = &((const tally_bad *)item)->what, *b = key;
    return strcmp(a->op, b->op) == 0 && strcmp(a->reason, b->reason) == 0;
}

gqac_status onnx_tally_unsupported(importer *im, const char *op, const char *reason,
                                   const char *node) {
    onnx_tally *tally = im->tally;
    onnx_unsupported key = {.op = op, .reason = reason};
    uint64_t hash = gqac_hash_bytes(tally->bads.seed, op, strlen(op));
    hash = gqac_hash_bytes(hash, reason, strlen(reason));
    tally_bad *bad = gqac_table_find(&tally->bads, hash, same_bad, &key);
    if (!bad) {
        bad = GQAC_ARENA_NEW(im->scratch, tally_bad);
        if (!bad || !(bad->what.op = gqac_arena_strdup(im->arena, op)) ||
            !(bad->what.reason = gqac_arena_strdup(im->arena, reason)) ||
            !(bad->what.first = gqac_arena_strdup(im->arena, node)) ||
            !gqac_table_add(&tally->bads, hash, bad))
            return onnx_oom(im);
        bad->next = tally->first_bad;
        tally->first_bad = bad;
        tally->n_bads++;
    }
    bad->what.count++;
    return GQAC_OK;
}

gqac_status onnx_tally_failure(importer *im, const Onnx__NodeProto *node) {
    const char *op = onnx_op_name(im, node);
    GQAC_TRY(op ? onnx_tally_unsupported(im, op, im->diag->what, onnx_label(node)) : onnx_oom(im));
    *im->diag = (gqac_diag){0};
    return GQAC_OK;
}

/* ---- the lists ----------------------------------------------------------- */

static int compare_ops(const void *a, const void *b) {
    return strcmp((*(tally_op *const *)a)->name, (*(tally_op *const *)b)->name);
}

static int compare_bads(const void *a, const void *b) {
    const onnx_unsupported *x = a, *y = b;
    int order = strcmp(x->op, y->op);
    return order ? order : strcmp(x->reason, y->reason);
}

static gqac_status list_ops(importer *im) {
    onnx_tally *tally = im->tally;
    size_t n = (size_t)tally->n_ops;
    tally_op **ops = GQAC_ARENA_ARRAY(im->scratch, tally_op *, n);
    const char **names = GQAC_ARENA_ARRAY(im->arena, const char *, n);
    int *counts = GQAC_ARENA_ARRAY(im->arena, int, n);
    if (!ops || !names || !counts)
        return onnx_oom(im);
    size_t i = 0;
    for (tally_op *op = tally->first_op; op; op = op->next)
        ops[i++] = op;
    qsort(ops, n, sizeof *ops, compare_ops);
    for (i = 0; i < n; i++) {
        names[i] = ops[i]->name;
        counts[i] = ops[i]->count;
    }
    im->report->n_ops = (int)n;
    im->report->ops = names;
    im->report->op_counts = counts;
    return GQAC_OK;
}

static gqac_status list_bads(importer *im) {
    onnx_tally *tally = im->tally;
    size_t n = (size_t)tally->n_bads, i = 0;
    onnx_unsupported *bads = GQAC_ARENA_ARRAY(im->arena, onnx_unsupported, n);
    if (!bads)
        return onnx_oom(im);
    for (tally_bad *bad = tally->first_bad; bad; bad = bad->next)
        bads[i++] = bad->what;
    qsort(bads, n, sizeof *bads, compare_bads);
    im->report->n_unsupported = (int)n;
    im->report->unsupported = bads;
    return GQAC_OK;
}

/* Writes a message that names what is not supported, as far as it fits. */
static gqac_status name_bads(importer *im) {
    enum { NAMED = 8, ROOM = 600 };
    const onnx_report *report = im->report;
    gqac_str text = {0};
    int named = 0;
    for (; named < report->n_unsupported && named < NAMED && text.length < ROOM; named++) {
        const onnx_unsupported *bad = &report->unsupported[named];
        gqac_str_printf(&text, "%s%s: %.160s (", named ? "; " : "", bad->op, bad->reason);
        if (bad->count > 1)
            gqac_str_printf(&text, "%d nodes, first ", bad->count);
        gqac_str_printf(&text, "'%.80s')", bad->first);
    }
    if (named < report->n_unsupported)
        gqac_str_printf(&text, "; and %d more", report->n_unsupported - named);
    gqac_status status =
        text.failed ? onnx_oom(im) : gqac_diag_set(im->diag, GQAC_UNSUPPORTED, "%s", text.text);
    if (named < report->n_unsupported)
        gqac_diag_hint(im->diag, "gqac inspect --ops lists all");
    gqac_str_free(&text);
    return status;
}

/* ---- inputs and outputs, for models that are not imported ---------------- */

static gqac_status describe_io(importer *im, const Onnx__ValueInfoProto *value, onnx_io *io) {
    gqac_str text = {0};
    const Onnx__TypeProto__Tensor *tensor =
        value->type && value->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE
            ? value->type->tensor_type
            : NULL;
    const Onnx__TensorShapeProto *shape = tensor ? tensor->shape : NULL;
    *io = (onnx_io){.rank = shape ? (int)shape->n_dim : -1};
    if (tensor && tensor->has_elem_type)
        io->dtype = gqac_dtype_from_onnx(tensor->elem_type);
    gqac_str_append(&text, shape ? "[" : "[*");
    for (int i = 0; shape && i < io->rank; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = shape->dim[i];
        const char *comma = i ? "," : "";
        if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
            gqac_str_printf(&text, "%s%lld", comma, (long long)dim->dim_value);
        else if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
                 *dim->dim_param) {
            const ir_dim *symbol = ir_dim_symbol(im->module->dims, dim->dim_param);
            text.failed = text.failed || !symbol;
            gqac_str_append(&text, comma);
            ir_dim_print(&text, symbol);
        } else
            gqac_str_printf(&text, "%s?", comma);
    }
    gqac_str_append(&text, "]");
    io->shape = text.failed ? NULL : gqac_arena_strdup(im->arena, text.text);
    io->name = gqac_arena_strdup(im->arena, onnx_text(value->name));
    gqac_str_free(&text);
    return io->shape && io->name ? GQAC_OK : onnx_oom(im);
}

static bool same_name(const void *item, const void *key) {
    return strcmp(item, key) == 0;
}

static gqac_status name_initializers(importer *im, const Onnx__GraphProto *graph,
                                     gqac_table *names) {
    gqac_table_init(names, im->scratch);
    for (size_t i = 0; i < graph->n_initializer; i++) {
        char *name = graph->initializer[i]->name;
        if (name && !gqac_table_add(names, gqac_hash_bytes(names->seed, name, strlen(name)), name))
            return onnx_oom(im);
    }
    return GQAC_OK;
}

static bool is_named(const gqac_table *names, const char *name) {
    return gqac_table_find(names, gqac_hash_bytes(names->seed, name, strlen(name)), same_name,
                           name);
}

static gqac_status list_io(importer *im) {
    const Onnx__GraphProto *graph = im->model ? im->model->graph : NULL;
    onnx_report *report = im->report;
    if (!graph || !im->module)
        return GQAC_OK;
    report->inputs = GQAC_ARENA_ARRAY(im->arena, onnx_io, graph->n_input + 1);
    report->outputs = GQAC_ARENA_ARRAY(im->arena, onnx_io, graph->n_output + 1);
    if (!report->inputs || !report->outputs)
        return onnx_oom(im);
    gqac_table initializers;
    GQAC_TRY(name_initializers(im, graph, &initializers));
    for (size_t i = 0; i < graph->n_input; i++)
        if (!is_named(&initializers, onnx_text(graph->input[i]->name)))
            GQAC_TRY(describe_io(im, graph->input[i], &report->inputs[report->n_inputs++]));
    for (size_t i = 0; i < graph->n_output; i++)
        GQAC_TRY(describe_io(im, graph->output[i], &report->outputs[report->n_outputs++]));
    return GQAC_OK;
}

gqac_status onnx_tally_list(importer *im) {
    GQAC_TRY(list_ops(im));
    GQAC_TRY(list_bads(im));
    return list_io(im);
}

gqac_status onnx_tally_verdict(importer *im) {
    return im->report->n_unsupported ? name_bads(im) : GQAC_OK;
}
