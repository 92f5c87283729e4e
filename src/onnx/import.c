/* onnx_import: map, scan, unpack, import. The unpacked model lives until the end of the import. The
 * module keeps nothing of it, except views of the mapped files. */
#include "onnx/importer.h"

#include <stdio.h>
#include <string.h>

static gqac_status check_model(importer *im) {
    const Onnx__ModelProto *model = im->model;
    onnx_report *report = im->report;
    report->ir_version = model->ir_version;
    for (size_t i = 0; i < model->n_opset_import; i++)
        if (!*onnx_domain(model->opset_import[i]->domain))
            report->opset = model->opset_import[i]->version;
    const char *name = onnx_text(model->producer_name),
               *version = onnx_text(model->producer_version);
    report->producer = gqac_arena_printf(im->arena, "%s%s%s", name, *version ? " " : "", version);
    if (!report->producer)
        return onnx_oom(im);
    if (!model->has_ir_version || model->ir_version < 1)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "the file has no IR version: is it an ONNX model?");
    if (model->ir_version > ONNX_NEWEST_IR)
        GQAC_TRY(onnx_tally_unsupported(im, "model", "its IR version is newer than 14", ""));
    if (model->n_opset_import == 0)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "the model imports no opset: is it an ONNX model?");
    GQAC_TRY(onnx_check_opsets(im, model->n_opset_import, model->opset_import));
    return onnx_functions_index(im);
}

/* True if a file may be a ModelProto: it begins with one of the first fields, or with a list of
 * opsets. A file of printable text is none, whatever letter it begins with. */
static bool begins_as_model(const gqac_map *map) {
    static const unsigned char tags[] = {0x08, 0x12, 0x1a, 0x22, 0x28, 0x32, 0x3a, 0x42, 0x72};
    enum { LOOKED_AT = 64 };
    const size_t n = map->size < LOOKED_AT ? map->size : LOOKED_AT;
    size_t printable = 0;
    while (printable < n && (map->data[printable] >= ' ' || map->data[printable] == '\n'))
        printable++;
    return n && printable < n && memchr(tags, map->data[0], sizeof tags);
}

/* After the scan failed: says what the file is, if it is not a model at all. The message of the
 * scan, with its byte offset, moves to diag->where. */
static void explain(const gqac_map *map, gqac_diag *diag) {
    const char *kind = onnx_file_kind(map);
    if (!diag || begins_as_model(map) || !map->size)
        return;
    const gqac_diag found = *diag;
    gqac_diag_set(diag, GQAC_INVALID_MODEL, "this is not an ONNX model%s%s",
                  kind ? ": it looks like " : "", kind ? kind : "");
    gqac_diag_where(diag, "%.200s: %.200s", found.where, found.what);
    gqac_diag_rule(diag, "a model is an .onnx, a .gqac, a .gq, or a folder with genai_config.json");
    if (kind && *map->data == '{')
        gqac_diag_hint(diag, "pass the folder of this file, or the .onnx file there");
}

static gqac_status unpack(importer *im, gqac_str *thin) {
    const gqac_map *map = onnx_files_model(im->files);
    const ProtobufCMessageDescriptor *type = &onnx__model_proto__descriptor;
    ProtobufCMessage *message;
    gqac_status status = onnx_scan(map->data, map->size, type, im->limits.nodes, thin, im->diag);
    if (status == GQAC_INVALID_MODEL)
        explain(map, im->diag);
    GQAC_TRY(status);
    gqac_map_release(map, 0, map->size);
    GQAC_TRY(onnx_unpack(thin, type, im->scratch, &message, im->diag));
    gqac_str_free(thin); /* protobuf-c copied what it needs */
    im->model = (const Onnx__ModelProto *)message;
    return GQAC_OK;
}

static gqac_status import_model(importer *im, const char *path) {
    gqac_str thin = {0};
    gqac_status status = unpack(im, &thin);
    gqac_str_free(&thin);
    GQAC_TRY(status);
    im->module = ir_module_create(im->arena, path); /* the report needs it after any failure */
    if (!im->module)
        return onnx_oom(im);
    GQAC_TRY(check_model(im));
    const char *name = im->model->graph ? onnx_text(im->model->graph->name) : "";
    im->module->graph = ir_graph_create(im->module, *name ? name : "main");
    if (!im->module->graph)
        return onnx_oom(im);
    GQAC_TRY(onnx_import_main(im));
    return ir_dims_failed(im->module->dims) ? onnx_oom(im) : GQAC_OK;
}

/* Imports and fills the report, even if the import fails. */
static gqac_status import_and_report(importer *im, const char *path) {
    im->scratch = gqac_arena_create(0);
    if (!im->scratch)
        return onnx_oom(im);
    gqac_table_init(&im->once, im->scratch);
    GQAC_TRY(onnx_tally_create(im));
    gqac_status status = import_model(im, path);
    gqac_status listed = onnx_tally_list(im);
    if (status != GQAC_OK || listed != GQAC_OK)
        return status != GQAC_OK ? status : listed;
    return onnx_tally_verdict(im);
}

gqac_status onnx_import(const char *path, const onnx_options *options, gqac_arena *arena,
                        ir_module **module, onnx_files **files, onnx_report *report,
                        gqac_diag *diag) {
    gqac_diag own = {0}; /* for failures that are only tallied */
    onnx_report unwanted;
    importer im = {.arena = arena, .report = report ? report : &unwanted, .diag = &own};
    *module = NULL;
    *files = NULL;
    *im.report = (onnx_report){.producer = ""};
    GQAC_TRY(gqac_limits_take(&im.limits, options ? options->limits : NULL, diag));
    GQAC_TRY(onnx_files_open(path, options, &im.limits, &im.files, diag));
    gqac_status status = import_and_report(&im, path);
    gqac_arena_free(im.scratch);
    if (status == GQAC_OK) {
        *module = im.module;
        im.module->copied = onnx_files_copied;
        im.module->copied_arg = im.files;
        *files = im.files;
        return GQAC_OK;
    }
    onnx_files_close(im.files);
    gqac_diag_where(&own, "%s", path);
    if (diag)
        *diag = own;
    return status;
}
