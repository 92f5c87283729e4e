/* A model file of any format as a module of ONNX ops (or, for .gq text, of any ops). */
#ifndef GQAC_API_LOAD_H
#define GQAC_API_LOAD_H

#include <gqac/gqac.h>

#include "base/file.h"
#include "base/poll.h"
#include "onnx/onnx.h"
#include "passes/pass.h"
#include "runtime/artefact.h"

typedef struct loaded {
    const char *format; /* "onnx", "gqac", "gq" */
    gqac_arena *arena;
    ir_module *module;
    onnx_files *files; /* of an ONNX model */
    onnx_report report;
    gqac_model_bytes bytes; /* data NULL: it is a file */
    gqac_map map;           /* of an artefact */
    artefact_meta meta;
    gqac_poll *poll; /* of the call that the model is loaded for; NULL: nobody watches */
} loaded;

/* The caller's options as this library knows them; what is not given has its default. own->log is
 * `log`, without a line where the caller has none. */
gqac_status load_options(const gqac_options *given, gqac_options *own, gqac_log *log,
                         gqac_diag *diag);

/* Loads the file; on failure nothing is left behind, but for an UNSUPPORTED ONNX model `report` (in
 * the arena, which then stays) when keep_report is set. */
gqac_status load_model(const char *path, const gqac_options *options, bool keep_report,
                       loaded *model, gqac_diag *diag);
/* The bytes of the model's file; to be unmapped. */
gqac_status load_map(const loaded *model, const char *path, gqac_map *map, gqac_diag *diag);
void load_free(loaded *model);
bool load_is_artefact_name(const char *path); /* ends with .gqac */
/* Moves arena, files and map to a program-like owner: see gqac_program.backing. */
void *load_backing(loaded *model, void (**release)(void *), gqac_diag *diag);
/* Bytes of constants of the main graph. */
int64_t load_weight_bytes(const loaded *m);
/* Number of elements of these constants; of an artefact, those of the model that it was made from.
 */
int64_t load_parameters(const loaded *m);
/* The files of an ONNX model in there, else NULL. */
const onnx_files *load_files(const void *backing);

/* ---- guard.c: what must not be written over ------------------------------- */

/* Do two paths lead to one file? */
bool guard_same_file(const char *a, const char *b);
/* IO when `path` lies in no folder in which a file can be made. */
gqac_status guard_folder(const char *path, gqac_diag *diag);
/* USAGE when writing to `path` would destroy the model: see gqac_check_output. `files` may be NULL.
 */
gqac_status guard_output(const char *model, const onnx_files *files, const char *path,
                         gqac_diag *diag);
/* The same for an ONNX file, and the file of its data beside it. `in_place`: the path may be an
 * ONNX model whose weights lie in it. */
gqac_status guard_onnx(const char *model, const onnx_files *files, bool in_place, const char *path,
                       gqac_diag *diag);

/* Gives inputs and results the names of options->io_names. INVALID_MODEL when two would have one
 * name. */
gqac_status load_rename(loaded *model, const gqac_options *options, gqac_diag *diag);

/* The name of the pass after which `inspect` reads the graph: its own ops, raised where they can
 * be. */
const char *load_last_inspect_pass(const gqac_options *o, bool sequences);
/* Nodes of a tidied graph that mix rows, in the model's arena; for sequences, after the passes
 * that only sequences run. */
gqac_status load_mixing(const loaded *model, const gqac_options *o, pass_context *context,
                        bool sequences, const gqac_mixing **mixing, int *n, gqac_diag *diag);

/* The past/present pairs of a tidied graph, in the model's arena. */
gqac_status load_kv_pairs(const loaded *model, kv_slot **slots, gqac_kv_pair **pairs, int *n,
                          gqac_diag *diag);

/* The options for this model: passes that an artefact was made without are left out again. Names
 * are in the model's arena. */
gqac_status load_disabled(const loaded *model, const gqac_options *options, gqac_options *own,
                          gqac_diag *diag);

/* Checks option values and makes the pass context; model->meta is compared for artefacts. */
gqac_status load_context(loaded *model, const gqac_options *options, pass_context *context,
                         gqac_diag *diag);

#endif
