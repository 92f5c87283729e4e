/* See wire.h. */
#include "wire.h"

#include "base/alloc.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- wire ------------------------------------------------------------------------------------ */

void wire_varint(gqac_str *out, uint64_t value) {
    do {
        char byte = (char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        gqac_str_append_n(out, &byte, 1);
        value >>= 7;
    } while (value);
}

void wire_tag(gqac_str *out, uint32_t field, unsigned type) {
    wire_varint(out, (uint64_t)field << 3 | type);
}

void wire_int(gqac_str *out, uint32_t field, int64_t value) {
    wire_tag(out, field, 0);
    wire_varint(out, (uint64_t)value);
}

void wire_float(gqac_str *out, uint32_t field, float value) {
    wire_tag(out, field, 5);
    gqac_str_append_n(out, (const char *)&value, sizeof value);
}

void wire_bytes(gqac_str *out, uint32_t field, const void *data, size_t bytes) {
    wire_tag(out, field, 2);
    wire_varint(out, bytes);
    gqac_str_append_n(out, data, bytes);
}

void wire_text(gqac_str *out, uint32_t field, const char *text) {
    wire_bytes(out, field, text, strlen(text));
}

void wire_message(gqac_str *out, uint32_t field, gqac_str message) {
    wire_bytes(out, field, message.text ? message.text : "", message.length);
    gqac_str_free(&message);
}

void wire_append(gqac_str *out, gqac_str message) {
    gqac_str_append_n(out, message.text ? message.text : "", message.length);
    gqac_str_free(&message);
}

/* ---- ONNX ------------------------------------------------------------------------------------ */

/* Calls wire_text for each word of the list. */
static void words(gqac_str *out, uint32_t field, const char *list) {
    while (*list) {
        char word[2048];
        size_t n = strcspn(list, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, list);
        wire_text(out, field, strcmp(word, "_") == 0 ? "" : word);
        list += n + (list[n] == ' ');
    }
}

gqac_str wire_tensor(const char *name, int dtype, const char *dims, const void *raw, size_t bytes) {
    gqac_str t = {0};
    for (const char *at = dims; *at; at += strcspn(at, ","), at += *at == ',')
        wire_int(&t, 1, strtoll(at, NULL, 10));
    wire_int(&t, 2, dtype);
    wire_text(&t, 8, name);
    if (raw)
        wire_bytes(&t, 9, raw, bytes);
    return t;
}

gqac_str wire_value(const char *name, int dtype, const char *dims) {
    gqac_str value = {0}, type = {0}, tensor = {0}, shape = {0};
    for (const char *at = dims ? dims : ""; *at; at += strcspn(at, ","), at += *at == ',') {
        gqac_str dim = {0};
        char word[256];
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
        char *end;
        long long number = strtoll(word, &end, 10);
        if (!*end)
            wire_int(&dim, 1, number);
        else if (strcmp(word, "?") != 0)
            wire_text(&dim, 2, word);
        wire_message(&shape, 1, dim);
    }
    wire_int(&tensor, 1, dtype);
    if (dims)
        wire_message(&tensor, 2, shape);
    wire_message(&type, 1, tensor);
    wire_text(&value, 1, name);
    wire_message(&value, 2, type);
    return value;
}

gqac_str wire_node(const char *op, const char *inputs, const char *outputs) {
    gqac_str node = {0};
    const char *dot = strrchr(op, '.');
    words(&node, 1, inputs);
    words(&node, 2, outputs);
    if (dot)
        wire_bytes(&node, 7, op, (size_t)(dot - op));
    wire_text(&node, 4, dot ? dot + 1 : op);
    wire_text(&node, 3, outputs);
    return node;
}

gqac_str wire_with_attr(gqac_str node, gqac_str attr) {
    wire_message(&node, 5, attr);
    return node;
}

gqac_str wire_attr(const char *name, int type) {
    gqac_str attr = {0};
    wire_text(&attr, 1, name);
    wire_int(&attr, 20, type);
    return attr;
}

gqac_str wire_attr_int(const char *name, int64_t value) {
    gqac_str attr = wire_attr(name, 2);
    wire_int(&attr, 3, value);
    return attr;
}

gqac_str wire_attr_ref(const char *name, int type, const char *caller) {
    gqac_str attr = wire_attr(name, type);
    wire_text(&attr, 21, caller);
    return attr;
}

gqac_str wire_attr_graph(const char *name, gqac_str graph) {
    gqac_str attr = wire_attr(name, 5);
    wire_message(&attr, 6, graph);
    return attr;
}

void wire_entry(gqac_str *tensor, const char *key, const char *value) {
    gqac_str entry = {0};
    wire_text(&entry, 1, key);
    wire_text(&entry, 2, value);
    wire_message(tensor, 13, entry);
}

gqac_str wire_external(const char *name, int dtype, const char *dims, const char *location,
                       const char *offset, const char *length) {
    gqac_str t = wire_tensor(name, dtype, dims, NULL, 0);
    if (location)
        wire_entry(&t, "location", location);
    if (offset)
        wire_entry(&t, "offset", offset);
    if (length)
        wire_entry(&t, "length", length);
    wire_int(&t, 14, 1);
    return t;
}

static void opset(gqac_str *model, const char *domain, int64_t version) {
    gqac_str id = {0};
    wire_text(&id, 1, domain);
    wire_int(&id, 2, version);
    wire_message(model, 8, id);
}

gqac_str wire_model(gqac_str graph) {
    gqac_str model = {0};
    wire_int(&model, 1, 10);
    opset(&model, "", 17);
    opset(&model, "com.microsoft", 1);
    opset(&model, "local", 1);
    wire_message(&model, 7, graph);
    return model;
}

gqac_str wire_small(const char *op) {
    gqac_str graph = {0};
    wire_message(&graph, 1, wire_node(op, "x", "y"));
    wire_text(&graph, 2, "g");
    wire_message(&graph, 11, wire_value("x", 1, "B,4"));
    wire_message(&graph, 12, wire_value("y", 1, "B,4"));
    return wire_model(graph);
}

/* ---- files ------------------------------------------------------------------------------------
 */

static char folder[64];

const char *wire_folder(void) {
    if (!*folder) {
        strcpy(folder, "/tmp/gqac-onnx-XXXXXX");
        if (!mkdtemp(folder))
            abort();
    }
    return folder;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *ftw) {
    (void)info, (void)type, (void)ftw;
    return remove(path);
}

void wire_clean(void) {
    if (*folder)
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    *folder = 0;
}

const char *wire_path(const char *name) {
    static char ring[8][4096];
    static unsigned next;
    char *path = ring[next++ % 8];
    snprintf(path, sizeof ring[0], "%s/%s", wire_folder(), name);
    return path;
}

void wire_write(const char *name, const void *data, size_t bytes) {
    FILE *file = fopen(wire_path(name), "wb");
    if (!file || (bytes && fwrite(data, bytes, 1, file) != 1) || fclose(file) != 0)
        abort();
}

wire_import *wire_import_path(const char *path, const char *root) {
    wire_import *import = calloc(1, sizeof *import);
    onnx_options options = {.model_root = root};
    if (!import)
        abort();
    import->arena = gqac_arena_create(0);
    import->status = GQAC_NO_MEMORY;
    if (import->arena)
        import->status = onnx_import(path, &options, import->arena, &import->module, &import->files,
                                     &import->report, &import->diag);
    return import;
}

wire_import *wire_import_model(gqac_str model, const char *root) {
    wire_write("m.onnx", model.text, model.length);
    gqac_str_free(&model);
    return wire_import_path(wire_path("m.onnx"), root);
}

void wire_import_free(wire_import *import) {
    onnx_files_close(import->files);
    gqac_arena_free(import->arena);
    free(import);
}

bool wire_expect(gqac_str model, gqac_status status, const char *word) {
    wire_import *import = wire_import_model(model, NULL);
    gqac_diag diag = {0};
    bool ok = import->status == status;
    if (status != GQAC_OK)
        ok = ok && (strstr(import->diag.what, word) || strstr(import->diag.where, word)) &&
             import->diag.status == status && !import->module && !import->files;
    else
        ok = ok && ir_verify(import->module, &diag) == GQAC_OK;
    if (!ok)
        printf("  wanted %s '%s', got %s: %s (%s) %s\n", gqac_status_name(status), word,
               gqac_status_name(import->status), import->diag.what, import->diag.where, diag.what);
    wire_import_free(import);
    return ok;
}
