/* Private to src/onnx: the state of an import and what its files share.
 *
 * The unpacked model lives in `scratch` and is gone after the import; whatever the module keeps is
 * copied to its arena. Constants are made on first use, so that weights nobody reads are never
 * opened, read or refused for their type. */
#ifndef GQAC_ONNX_IMPORTER_H
#define GQAC_ONNX_IMPORTER_H

#include "base/table.h"
#include "onnx/onnx.h"
#include "onnx/scan.h"

enum {
    ONNX_MAX_CALLS = 64,      /* functions that call each other */
    ONNX_MAX_WORK = 32000000, /* nodes, operands and attributes after inlining */
    ONNX_MAX_SIDE_FILES = 10000,
    ONNX_OLDEST_OPSET = 7, /* of the default domain */
    ONNX_NEWEST_OPSET = 27,
    ONNX_NEWEST_IR = 13,
};

/* ---- files --------------------------------------------------------------- */

gqac_status onnx_files_open(const char *path, const onnx_options *options, onnx_files **files,
                            gqac_diag *diag);
const gqac_map *onnx_files_model(const onnx_files *files);
/* See ir_module.copied; arg is the onnx_files. */
void onnx_files_copied(void *arg, const void *data, size_t bytes);
/* What a file looks like by its first bytes, "a pointer of Git LFS: ...", when it is something that
 * people take for a model or its data; NULL: anything else. */
const char *onnx_file_kind(const gqac_map *map);
/* Counts a location that may be opened later. LIMIT. */
gqac_status onnx_files_note(onnx_files *files, const char *location, gqac_diag *diag);
/* The map of a side file, opened beneath the model's folder or the root on first use. */
gqac_status onnx_files_side(onnx_files *files, const char *location, const gqac_map **map,
                            gqac_diag *diag);

/* ---- tensors ------------------------------------------------------------- */

/* Type and shape. UNSUPPORTED for element types that gqac does not have; INVALID_MODEL, LIMIT. */
gqac_status onnx_tensor_header(const Onnx__TensorProto *proto, gqac_tensor *tensor, size_t *bytes,
                               gqac_diag *diag);
/* The whole tensor, its data in `arena` or a view of a map; aligned to the element size.
 * `model` is the scanned data that views refer to. files NULL: no external data. */
gqac_status onnx_tensor_read(const Onnx__TensorProto *proto, const gqac_map *model,
                             onnx_files *files, gqac_arena *arena, gqac_tensor *tensor,
                             gqac_diag *diag);
/* The same without making the tensor, for those that may never be used: all but the place of
 * external data is checked. Strings pass. */
gqac_status onnx_tensor_check(const Onnx__TensorProto *proto, const gqac_map *model,
                              onnx_files *files, gqac_diag *diag);
/* Values of a typed data field as elements of tensor->dtype; arena NULL: only checks. typed.c. */
gqac_status onnx_tensor_decode(const Onnx__TensorProto *proto, const gqac_map *model,
                               gqac_arena *arena, gqac_tensor *tensor, size_t bytes,
                               gqac_diag *diag);

/* ---- importing ----------------------------------------------------------- */

typedef struct onnx_tally onnx_tally;

typedef struct importer {
    gqac_arena *arena;   /* the module's */
    gqac_arena *scratch; /* of the import */
    ir_module *module;
    onnx_files *files;
    const Onnx__ModelProto *model;
    gqac_table functions; /* const Onnx__FunctionProto * */
    onnx_tally *tally;
    onnx_report *report;
    gqac_diag *diag; /* never NULL */
    int64_t nodes, work, inlined;
} importer;

/* A function being inlined. */
typedef struct onnx_call {
    const struct onnx_call *caller; /* NULL: called from the model's graph */
    const Onnx__FunctionProto *function;
    const char *prefix;  /* of the names inside */
    size_t n_attributes; /* of the call; none is a reference */
    const Onnx__AttributeProto *const *attributes;
} onnx_call;

typedef enum onnx_name_kind {
    ONNX_NAME_PENDING,  /* output of a node that was not imported yet */
    ONNX_NAME_VALUE,    /* value */
    ONNX_NAME_TENSOR,   /* initializer not used yet */
    ONNX_NAME_CONSTANT, /* Constant node not used yet */
    ONNX_NAME_HOLE,     /* input that the caller of a function left out */
} onnx_name_kind;

typedef struct onnx_name {
    const char *text;
    onnx_name_kind kind;
    int node;    /* index of the node that outputs it; -1: none */
    bool shared; /* an initializer that is also listed as an input */
    bool result; /* it is an output of the graph */
    ir_value *value;
    const Onnx__TensorProto *tensor;
    const Onnx__AttributeProto *constant;
    struct onnx_scope *scope;
} onnx_name;

/* The names of a graph or of one call of a function. */
typedef struct onnx_scope {
    importer *im;
    const struct onnx_scope *parent; /* of the enclosing graph; NULL in the main graph and at a
                                        function's outermost level */
    ir_graph *graph;
    gqac_table names;
    const onnx_call *call; /* NULL: not in a function */
    int depth;             /* of nested graphs, all calls together */
    size_t n_opsets;
    Onnx__OperatorSetIdProto *const *opsets;
} onnx_scope;

/* scope.c */
onnx_name *onnx_scope_find(const onnx_scope *scope, const char *text);     /* this scope only */
onnx_name *onnx_scope_find_all(const onnx_scope *scope, const char *text); /* and around it */
/* Defines a name; INVALID_MODEL when it is taken here or by something visible from here. */
gqac_status onnx_scope_define(onnx_scope *scope, const char *text, onnx_name **name);
/* The value of a name, made when it is a constant not used yet; NULL for "" and holes. */
gqac_status onnx_scope_value(const onnx_scope *scope, const char *text, ir_value **value);
/* Stands for a value that cannot be made, in an import that will fail. It is an input of the main
 * graph, which no op looks at. NULL: no memory. */
ir_value *onnx_placeholder(importer *im, const char *text);
/* Adds the failure in im->diag, which is that of a constant, to the report of what is unsupported,
 * and lets onnx_placeholder stand for the constant, so that the import goes on to name all. */
gqac_status onnx_tally_name(importer *im, const char *what, onnx_name *name);
/* The name a value or node gets in the module: with the prefix of the call. NULL: no memory. */
const char *onnx_scope_label(const onnx_scope *scope, const char *text);
bool onnx_text_is(const char *text, const char *other); /* NULL is "" */
const char *onnx_text(const char *text);                /* NULL becomes "" */
const char *onnx_domain(const char *domain);            /* "ai.onnx" and NULL become "" */

/* order.c: the order to import nodes in, n entries: that of the file when it is sorted, else a
 * stable topological one. The scope must have the names of all their outputs. */
gqac_status onnx_order(const onnx_scope *scope, size_t n, Onnx__NodeProto *const *nodes,
                       const int **order);

/* import_graph.c */
gqac_status onnx_import_main(importer *im);
gqac_status onnx_import_nested(const onnx_scope *scope, const Onnx__GraphProto *proto,
                               ir_graph **graph);
gqac_status onnx_import_body(onnx_scope *scope, size_t n, Onnx__NodeProto *const *nodes);
/* Version of a domain where the scope's nodes are; 0 when it is not imported. */
int64_t onnx_opset(const onnx_scope *scope, const char *domain);
gqac_status onnx_check_opsets(importer *im, size_t n, Onnx__OperatorSetIdProto *const *opsets);

/* import_node.c */
gqac_status onnx_import_node(onnx_scope *scope, const Onnx__NodeProto *node);
/* A node that cannot be imported: its outputs become placeholders, and what its nested graphs hold
 * is looked through too. */
gqac_status onnx_pass_over(onnx_scope *scope, const Onnx__NodeProto *node, const char *reason);
/* The place of a node for messages. */
void onnx_place(importer *im, const Onnx__NodeProto *node);

/* import_attr.c: one attribute of a file as its own kind says. */
gqac_status onnx_attr_read(const onnx_scope *scope, const Onnx__AttributeProto *proto,
                           ir_attr_kind *kind, ir_attr *attr);
/* Follows a reference to the attribute of the caller; NULL when the caller has none. */
gqac_status onnx_attr_resolve(const onnx_scope *scope, const Onnx__AttributeProto *proto,
                              const Onnx__AttributeProto **out);
/* The attributes of a node as its file has them, one block that gqac_free(values) frees. */
typedef struct raw_attrs {
    int count;
    ir_attr *values;
    const char **names;
    ir_attr_kind *kinds;
    bool *taken; /* those the op's table knows */
    bool bad;    /* one was not supported: what is left says little of the node */
} raw_attrs;
gqac_status onnx_raw_create(importer *im, size_t n, raw_attrs *raw);
gqac_status onnx_import_attrs(const onnx_scope *scope, const Onnx__NodeProto *proto, ir_node *node,
                              raw_attrs *raw);
/* The tensor of a Constant node's attribute. */
gqac_status onnx_constant_read(importer *im, const Onnx__AttributeProto *attr, gqac_tensor *tensor);
gqac_status onnx_constant_check(importer *im, const Onnx__AttributeProto *attr);

/* import_function.c */
gqac_status onnx_functions_index(importer *im);
const Onnx__FunctionProto *onnx_function_find(const importer *im, const Onnx__NodeProto *node);
gqac_status onnx_import_call(onnx_scope *scope, const Onnx__NodeProto *node,
                             const Onnx__FunctionProto *function);

/* report.c */
gqac_status onnx_tally_create(importer *im);
gqac_status onnx_tally_node(importer *im, const Onnx__NodeProto *node);
gqac_status onnx_tally_unsupported(importer *im, const char *op, const char *reason,
                                   const char *node);
/* Tallies what im->diag says of a node, and clears it. */
gqac_status onnx_tally_failure(importer *im, const Onnx__NodeProto *node);
/* Fills the lists of the report. */
gqac_status onnx_tally_list(importer *im);
/* UNSUPPORTED naming what was listed as not supported, if anything was. */
gqac_status onnx_tally_verdict(importer *im);
/* "com.microsoft.MoE", in scratch memory; NULL: no memory. */
const char *onnx_op_name(importer *im, const Onnx__NodeProto *node);

gqac_status onnx_oom(importer *im); /* NO_MEMORY for the model's graph */

#endif
