/* A tiny writer of protobuf wire bytes, and ONNX messages built on it, for tests that need files
 * that no other writer would produce. Every function appends to `out`; a message that is an
 * argument of type gqac_str is copied and freed. A failed append sets out->failed. */
#ifndef GQAC_TEST_ONNX_WIRE_H
#define GQAC_TEST_ONNX_WIRE_H

#include "base/str.h"
#include "onnx/onnx.h"

#include <stdint.h>

/* ---- wire ------------------------------------------------------------------------------------ */

void wire_varint(gqac_str *out, uint64_t value);
void wire_tag(gqac_str *out, uint32_t field, unsigned type);
void wire_int(gqac_str *out, uint32_t field, int64_t value);
void wire_float(gqac_str *out, uint32_t field, float value);
void wire_bytes(gqac_str *out, uint32_t field, const void *data, size_t bytes);
void wire_text(gqac_str *out, uint32_t field, const char *text);
void wire_message(gqac_str *out, uint32_t field, gqac_str message);
void wire_append(gqac_str *out, gqac_str message); /* its fields, without tag and length */

/* ---- ONNX ------------------------------------------------------------------------------------ */

/* dims: "2,3", "" for a scalar. raw NULL: no data. */
gqac_str wire_tensor(const char *name, int dtype, const char *dims, const void *raw, size_t bytes);
/* dims: "B,3,?"; names are symbols, "?" is a dimension without a value or name; NULL: no shape. */
gqac_str wire_value(const char *name, int dtype, const char *dims);
/* Lists of names are separated by blanks; "_" is an empty name. */
gqac_str wire_node(const char *op, const char *inputs, const char *outputs);
gqac_str wire_with_attr(gqac_str node, gqac_str attr);
gqac_str wire_attr(const char *name, int type); /* without a value */
gqac_str wire_attr_int(const char *name, int64_t value);
gqac_str wire_attr_ref(const char *name, int type, const char *caller);
gqac_str wire_attr_graph(const char *name, gqac_str graph);
gqac_str wire_external(const char *name, int dtype, const char *dims, const char *location,
                       const char *offset, const char *length);
void wire_entry(gqac_str *tensor, const char *key, const char *value); /* of external_data */
/* A model of a graph: IR version 10, opset 17 and com.microsoft 1. */
gqac_str wire_model(gqac_str graph);
/* x [B,4] → op → y, f32. */
gqac_str wire_small(const char *op);

/* ---- files ------------------------------------------------------------------------------------
 */

/* A folder of its own, removed with its contents by wire_clean. */
const char *wire_folder(void);
void wire_clean(void);
const char *wire_path(const char *name); /* in this folder; valid until the eighth next call */
void wire_write(const char *name, const void *data, size_t bytes);

/* The result of an import. */
typedef struct wire_import {
    gqac_status status;
    gqac_diag diag;
    gqac_arena *arena;
    ir_module *module;
    onnx_files *files;
    onnx_report report;
} wire_import;
/* Writes the model to m.onnx in the folder and imports it; the bytes are freed. */
wire_import *wire_import_model(gqac_str model, const char *root);
wire_import *wire_import_path(const char *path, const char *root);
void wire_import_free(wire_import *import);
/* Imports the model, and checks the status and that the message contains `word`; verifies the
 * result. */
bool wire_expect(gqac_str model, gqac_status status, const char *word);

#endif
