/* Private to src/onnx: the state of an export.
 *
 * The whole model is built as a tree of messages in `arena`, in which weights are pointers to those
 * of the module. protobuf-c then streams it into the writer. */
#ifndef GQAC_ONNX_EXPORTER_H
#define GQAC_ONNX_EXPORTER_H

#include "base/table.h"
#include "onnx.pb-c.h"
#include "onnx/onnx.h"

enum {
    EXPORT_OPSET = 23,    /* version of the default domain, unless an op needs a newer one */
    EXPORT_IR = 10,       /* the oldest IR version that has i4 and u4 */
    EXPORT_INLINE = 1024, /* bytes of the largest tensors that stay inline */
    EXPORT_SMALL = 16,    /* elements of the largest constants that become Constant nodes */
    EXPORT_ALIGN = 64,    /* alignment of external tensors in bytes */
};

typedef struct exporter {
    gqac_arena *arena;
    const ir_module *module;
    gqac_poll *poll; /* may be NULL */
    gqac_diag *diag;
    gqac_table labels; /* by value: names in the file that differ from ir_value.name */
    gqac_table taken;  /* names of values in use, by text */
    gqac_table nodes;  /* names of nodes in use, by text */
    int64_t opset;     /* of the default domain */
    size_t data_bytes; /* of all constants */
    bool external;     /* large tensors go to a file of their own */
    uint64_t offset;   /* offset of the next tensor in that file */
    const char *location;
    gqac_str side; /* const gqac_tensor *[]: the tensors of that file, in order */
} exporter;

gqac_status export_oom(exporter *ex);

/* export_names.c: chooses the name of each value in the file. Graph inputs keep their names, and
 * results get the names that they have in the graph; another value with such a name gets a
 * suffix. */
gqac_status export_names(exporter *ex);
const char *export_name(const exporter *ex, const ir_value *value);
/* The name of a node in the file: its own; NULL: another node already has it. */
const char *export_node_name(exporter *ex, const char *name);
/* A name that is not in use yet, `wanted` or one made from it; NULL: out of memory. */
const char *export_fresh(exporter *ex, const char *wanted);

/* export_graph.c */
gqac_status export_graph(exporter *ex, ir_graph *graph, Onnx__GraphProto **out);

/* export_tensor.c: a tensor's message; its data are views, inline or listed in ex->side. */
gqac_status export_tensor(exporter *ex, const gqac_tensor *tensor, const char *name,
                          Onnx__TensorProto **out);

/* Creates a message in the arena from its INIT value; NULL: out of memory. */
/* NOLINTBEGIN(bugprone-macro-parentheses): a type cannot have parentheses */
#define EXPORT_NEW(ex, type, init)                                                                 \
    ((type *)gqac_arena_copy((ex)->arena, &(const type)init, sizeof(type)))
/* NOLINTEND(bugprone-macro-parentheses) */

#endif
