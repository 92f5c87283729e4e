/* Private to src/onnx: the state of an import, and functions that its files share.
 *
 * The unpacked model lives in `scratch`, which is freed after the import; what the module keeps is
 * copied to its arena. Constants are created on first use, so weights that nothing reads are never
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
    ONNX_MAX_PARTS = 256,  /* of a tensor that SplitToSequence splits by a list of lengths */
    ONNX_OLDEST_OPSET = 7, /* of the default domain */
    ONNX_NEWEST_OPSET = 28,
    ONNX_NEWEST_IR = 14,
};

/* ---- files --------------------------------------------------------------- */

/* LIMIT: the model has more bytes than limit model-bytes permits. Its external data count too, when
 * they are opened. */
gqac_status onnx_files_open(const char *path, const onnx_options *options,
                            const gqac_limits *limits, onnx_files **files, gqac_diag *diag);
const gqac_map *onnx_files_model(const onnx_files *files);
/* See ir_module.copied; arg is the onnx_files. */
void onnx_files_copied(void *arg, const void *data, size_t bytes);
/* Returns what a file is, judged by its first bytes, e.g. "a pointer of Git LFS: ...", if it is
 * something that is often mistaken for a model or its data; NULL: anything else. */
const char *onnx_file_kind(const gqac_map *map);
/* Counts a location that may be opened later, and the bytes that a tensor declares there. LIMIT:
 * there are too many locations. */
gqac_status onnx_files_note(onnx_files *files, const char *location, size_t bytes, gqac_diag *diag);
/* LIMIT: the tensors that were noted have more bytes than limit memory-bytes permits, so that none
 * of their data may be copied. */
gqac_status onnx_files_check_copy(const onnx_files *files, gqac_diag *diag);
/* Sets *map to the map of a file of external data, which is opened beneath the model's folder or
 * the root on first use. */
gqac_status onnx_files_side(onnx_files *files, const char *location, const gqac_map **map,
                            gqac_diag *diag);

/* ---- tensors ------------------------------------------------------------- */

/* Reads type and shape, and the bytes that they need. UNSUPPORTED: gqac does not have the element
 * type; INVALID_MODEL; LIMIT. */
gqac_status onnx_tensor_header(const Onnx__TensorProto *proto, gqac_tensor *tensor, size_t *bytes,
                               gqac_diag *diag);
/* Reads the whole tensor. Its data are in `arena` or a view of a map, and aligned to the element
 * size. `model` is the scanned data that views refer to. files NULL: external data are refused. */
gqac_status onnx_tensor_read(const Onnx__TensorProto *proto, const gqac_map *model,
                             onnx_files *files, gqac_arena *arena, gqac_tensor *tensor,
                             gqac_diag *diag);
/* Checks the same without creating the tensor, for tensors that may never be used: everything
 * except the location of external data. Strings pass. */
gqac_status onnx_tensor_check(const Onnx__TensorProto *proto, const gqac_map *model,
                              onnx_files *files, gqac_diag *diag);
/* typed.c: decodes the values of a typed data field as elements of tensor->dtype; arena NULL: only
 * checks them. */
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
    gqac_table once;      /* see once.c */
    onnx_tally *tally;
    onnx_report *report;
    gqac_diag *diag; /* never NULL */
    int64_t nodes, work, inlined, inlined_names;
    gqac_limits limits;
} importer;

/* A function being inlined. */
typedef struct onnx_call {
    const struct onnx_call *caller; /* NULL: called from the model's graph */
    const Onnx__FunctionProto *function;
    const char *prefix;  /* prefix of names inside the function */
    size_t n_attributes; /* attributes of the call, in which references were followed */
    const Onnx__AttributeProto *const *attributes;
} onnx_call;

typedef enum onnx_name_kind {
    ONNX_NAME_PENDING,  /* output of a node that is not imported yet */
    ONNX_NAME_VALUE,    /* value */
    ONNX_NAME_TENSOR,   /* initializer not used yet */
    ONNX_NAME_CONSTANT, /* Constant node not used yet */
    ONNX_NAME_SEQUENCE, /* sequence */
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
    struct onnx_sequence *sequence;
    struct onnx_scope *scope;
} onnx_name;

/* The names of a graph or of one call of a function. */
typedef struct onnx_scope {
    importer *im;
    const struct onnx_scope *parent; /* scope of the enclosing graph; NULL: the main graph, or the
                                        outermost level of a function */
    ir_graph *graph;
    gqac_table names;
    const onnx_call *call; /* NULL: not in a function */
    int depth;             /* depth of nested graphs, over all calls */
    size_t n_opsets;
    Onnx__OperatorSetIdProto *const *opsets;
} onnx_scope;

/* scope.c */
onnx_name *onnx_scope_find(const onnx_scope *scope, const char *text);     /* this scope only */
onnx_name *onnx_scope_find_all(const onnx_scope *scope, const char *text); /* enclosing ones too */
/* Defines a name. INVALID_MODEL: the name is in use in this scope or in one that is visible from
 * it. */
gqac_status onnx_scope_define(onnx_scope *scope, const char *text, onnx_name **name);
/* Counts names that are defined, or results. LIMIT: calls of functions have too many. */
gqac_status onnx_scope_count(const onnx_scope *scope, size_t n);
/* Sets *value to the value of a name; a constant is created on its first use. NULL for "" and
 * holes. */
gqac_status onnx_scope_value(const onnx_scope *scope, const char *text, ir_value **value);
/* Gives `name` the value or the sequence that `text` names in `scope`; a hole if there is none. */
gqac_status onnx_scope_alias(const onnx_scope *scope, const char *text, onnx_name *name);
/* Creates a placeholder for a value that cannot be made, in an import that will fail: an input of
 * the main graph that no op inspects. NULL: out of memory. */
ir_value *onnx_placeholder(importer *im, const char *text);
/* Adds the failure of a constant, which is in im->diag, to the report of what is unsupported, and
 * replaces the constant by a placeholder, so that the import continues and can name everything. */
gqac_status onnx_tally_name(importer *im, const char *what, onnx_name *name);
/* The name of a value or node in the module, with the prefix of the call. NULL: out of memory. */
const char *onnx_scope_label(const onnx_scope *scope, const char *text);
bool onnx_text_is(const char *text, const char *other); /* NULL is "" */
const char *onnx_text(const char *text);                /* NULL becomes "" */
const char *onnx_domain(const char *domain);            /* "ai.onnx" and NULL become "" */

/* order.c: the order in which n nodes are imported: that of the file if it is sorted, else a stable
 * topological order. The scope must have the names of all their outputs. */
gqac_status onnx_order(const onnx_scope *scope, size_t n, Onnx__NodeProto *const *nodes,
                       const int **order);

/* import_graph.c */
gqac_status onnx_import_main(importer *im);
gqac_status onnx_import_nested(const onnx_scope *scope, const Onnx__GraphProto *proto,
                               ir_graph **graph);
gqac_status onnx_import_body(onnx_scope *scope, size_t n, Onnx__NodeProto *const *nodes);
/* The version of a domain for the nodes of a scope; 0: the domain is not imported. */
int64_t onnx_opset(const onnx_scope *scope, const char *domain);
gqac_status onnx_check_opsets(importer *im, size_t n, Onnx__OperatorSetIdProto *const *opsets);

/* import_node.c */
gqac_status onnx_import_node(onnx_scope *scope, const Onnx__NodeProto *node);
/* Handles a node that cannot be imported: its outputs become placeholders, and its nested graphs
 * are searched for unsupported nodes too. */
gqac_status onnx_pass_over(onnx_scope *scope, const Onnx__NodeProto *node, const char *reason);
/* The name by which messages mean a node: its own, else that of its first output that has one. */
const char *onnx_label(const Onnx__NodeProto *node);
/* Names a node in im->diag. */
void onnx_where(importer *im, const Onnx__NodeProto *node);
/* LIMIT: with n more, there are too many operands. */
gqac_status onnx_count_operands(importer *im, size_t n);

/* sequence.c: ops on sequences of tensors. */
typedef struct onnx_sequence onnx_sequence;
onnx_sequence *onnx_sequence_find(const onnx_scope *scope,
                                  const char *text); /* NULL: no sequence */
bool onnx_sequence_handles(const onnx_scope *scope, const Onnx__NodeProto *node);
gqac_status onnx_import_sequence(onnx_scope *scope, const Onnx__NodeProto *node);

/* import_attr.c: reads one attribute of a file, whose kind it stores. */
gqac_status onnx_attr_read(const onnx_scope *scope, const Onnx__AttributeProto *proto,
                           ir_attr_kind *kind, ir_attr *attr);
/* Follows a reference to an attribute of the caller; NULL: the caller has no such attribute. */
gqac_status onnx_attr_resolve(const onnx_scope *scope, const Onnx__AttributeProto *proto,
                              const Onnx__AttributeProto **out);
/* The attributes of a node as the file has them, in one block that gqac_free(values) frees. */
typedef struct raw_attrs {
    int count;
    ir_attr *values;
    const char **names;
    ir_attr_kind *kinds;
    bool *taken; /* those in the op's attribute table, or handled by `upgrade` */
    bool bad;    /* one was not supported, so further checks of the node mean little */
} raw_attrs;
gqac_status onnx_raw_create(importer *im, size_t n, raw_attrs *raw);
gqac_status onnx_import_attrs(const onnx_scope *scope, const Onnx__NodeProto *proto, ir_node *node,
                              raw_attrs *raw);
/* The tensor of a Constant node's attribute. */
gqac_status onnx_constant_read(const onnx_scope *scope, const Onnx__AttributeProto *attr,
                               gqac_tensor *tensor);
gqac_status onnx_constant_check(const onnx_scope *scope, const Onnx__AttributeProto *attr);

/* once.c: reads or checks a tensor once, however often a function with it is called. */
gqac_status onnx_once_read(const onnx_scope *scope, const Onnx__TensorProto *proto,
                           gqac_tensor *tensor);
gqac_status onnx_once_check(const onnx_scope *scope, const Onnx__TensorProto *proto);

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
/* Tallies the failure of a node in im->diag, and clears it. */
gqac_status onnx_tally_failure(importer *im, const Onnx__NodeProto *node);
/* Fills the lists of the report. */
gqac_status onnx_tally_list(importer *im);
/* UNSUPPORTED: something was tallied as not supported; *im->diag names it. */
gqac_status onnx_tally_verdict(importer *im);
/* The name of a node's op, "com.microsoft.MoE", in scratch memory; NULL: out of memory. */
const char *onnx_op_name(importer *im, const Onnx__NodeProto *node);

gqac_status onnx_oom(importer *im); /* NO_MEMORY for the model's graph */

#endif
