/* Loading a model file of any format as a module of ONNX ops (or, for .gq text, of any ops). */
#ifndef GQAC_API_LOAD_H
#define GQAC_API_LOAD_H

#include <gqac/gqac.h>

#include "base/file.h"
#include "base/limits.h"
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
    gqac_poll *poll; /* of the call for which the model is loaded; NULL: none */
} loaded;

/* Structs that options point to, copied too. */
typedef struct load_parts {
    gqac_log log;
    gqac_limits limits;
} load_parts;
/* Copies the caller's options into *own; fields that are not given get their defaults. own->log and
 * own->limits are those of *parts: a log whose `line` is NULL if the caller has none, limits
 * without 0. */
gqac_status load_options(const gqac_options *given, gqac_options *own, load_parts *parts,
                         gqac_diag *diag);

/* Loads the file. On failure everything is freed; but with keep_report, the report of an
 * UNSUPPORTED ONNX model stays, and so does the arena that holds it. */
gqac_status load_model(const char *path, const gqac_options *options, bool keep_report,
                       loaded *model, gqac_diag *diag);
/* Loads only the description of an artefact, into model->meta. Of any other file nothing is loaded,
 * and meta.target is NULL. On failure everything is freed. */
gqac_status load_meta(const char *path, const gqac_options *options, loaded *model,
                      gqac_diag *diag);
/* LIMIT: the graph has a tensor with more elements than limit tensor-elements, as far as shapes are
 * known. For graphs whose weights are not packed yet, because packing pads them. */
gqac_status load_check(const loaded *model, const gqac_limits *limits, gqac_diag *diag);
/* The same before a program is made. LIMIT: also if the weights, or one tensor, need more bytes
 * than limit memory-bytes permits; weights of an artefact are mapped and need none. */
gqac_status load_check_memory(const loaded *model, const gqac_limits *limits, gqac_diag *diag);
/* After a failure: puts the path of the model before where it happened, unless it is there already,
 * or `where` is the path of a file that failed (IO). */
void load_place(const char *model, gqac_status status, gqac_diag *diag);
/* Returns the status; LIMIT instead of NO_MEMORY if memory ran out because of the limit
 * compile-bytes. */
gqac_status load_explain(const loaded *model, const gqac_limits *limits, gqac_status status,
                         gqac_diag *diag);
/* The baked prefix of an artefact, as its section; NULL: there is none, or no artefact. */
const void *load_baked(const loaded *model, size_t *bytes);
/* Maps the model's file; the caller unmaps it. */
gqac_status load_map(const loaded *model, const char *path, gqac_map *map, gqac_diag *diag);
void load_free(loaded *model);
bool load_is_artefact_name(const char *path); /* ends with .gqac */
/* Moves arena, files and map to a new owner: see gqac_program.backing. */
void *load_backing(loaded *model, void (**release)(void *), bool (**whole)(const void *),
                   gqac_diag *diag);
/* Copies what the module reads in the memory of gqac_model_bytes, and forgets that memory, if
 * `copy` is set; else does nothing. */
gqac_status load_detach(loaded *model, gqac_diag *diag);
/* Bytes of the constants of the main graph. */
int64_t load_weight_bytes(const loaded *m);
/* Number of elements of these constants; of an artefact, those of the model that it was made from.
 */
int64_t load_parameters(const loaded *m);
/* The files of an ONNX model in a backing, else NULL. */
const onnx_files *load_files(const void *backing);

/* ---- guard.c: what must not be written over ------------------------------- */

/* True if two paths lead to the same file. */
bool guard_same_file(const char *a, const char *b);
/* IO: the folder of `path` does not exist, or no file can be created in it. */
gqac_status guard_folder(const char *path, gqac_diag *diag);
/* USAGE: writing to `path` would destroy the model; see gqac_check_output. `files` may be NULL.
 */
gqac_status guard_output(const char *model, const onnx_files *files, const char *path,
                         gqac_diag *diag);
/* The same for writing an ONNX file, and the data file beside it. `in_place`: the path may be the
 * model itself, if it has no external data. */
gqac_status guard_onnx(const char *model, const onnx_files *files, bool in_place, const char *path,
                       gqac_diag *diag);

/* Renames inputs and results by options->io_names. INVALID_MODEL: two would have the same name. */
gqac_status load_rename(loaded *model, const gqac_options *options, gqac_diag *diag);

/* The name of the pass after which `inspect` reads the graph: its own ops, raised where they can
 * be. */
const char *load_last_inspect_pass(const gqac_options *o, bool sequences);
/* Lists the nodes of a tidied graph that mix rows, in the model's arena; for sequences, after the
 * passes that only sequences run. */
gqac_status load_mixing(const loaded *model, const gqac_options *o, pass_context *context,
                        bool sequences, const gqac_mixing **mixing, int *n, gqac_diag *diag);

/* ---- bake.c --------------------------------------------------------------- */

/* Computes the prefix of options->bake with a program of the model, or takes the one that the
 * program has; the section of an artefact is then *data, which the caller frees with gqac_free.
 * NULL: there is none. The steps have the deadline of `poll`. */
gqac_status bake_prefix(const gqac_program *program, const gqac_options *options,
                        const gqac_poll *poll, void **data, size_t *bytes, gqac_diag *diag);

/* Lists the past/present pairs of a tidied graph, in the model's arena. */
gqac_status load_kv_pairs(const loaded *model, kv_slot **slots, gqac_kv_pair **pairs, int *n,
                          gqac_diag *diag);

/* Sets *own to the options for this model: passes that were disabled when an artefact was made are
 * disabled again. Names are in the model's arena. */
gqac_status load_disabled(const loaded *model, const gqac_options *options, gqac_options *own,
                          gqac_diag *diag);

/* Checks option values and makes the pass context; model->meta is compared for artefacts. */
gqac_status load_context(loaded *model, const gqac_options *options, pass_context *context,
                         gqac_diag *diag);

#endif
