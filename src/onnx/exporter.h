/* Private to src/onnx: the state of an export.
 *
 * The whole model is built as a tree of messages in `arena`, the weights in it are pointers to the
 * module's own; protobuf-c then streams it into the writer. */
#ifndef GQAC_ONNX_EXPORTER_H
#define GQAC_ONNX_EXPORTER_H

#include "base/table.h"
#include "onnx.pb-c.h"
#include "onnx/onnx.h"

enum {
    EXPORT_OPSET = 23,    /* of the default domain, unless an op is newer */
    EXPORT_IR = 10,       /* the oldest that has i4 and u4 */
    EXPORT_INLINE = 1024, /* bytes of tensors that stay inline beside external data */
    EXPORT_ALIGN = 64,    /* of external tensors */
};

typedef struct exporter {
    gqac_arena *arena;
    const ir_module *module;
    gqac_poll *poll; /* may be NULL */
    gqac_diag *diag;
    gqac_table labels; /* names in the file that are not ir_value.name, by value */
    gqac_table taken;  /* names of values in use, by text */
    gqac_table nodes;  /* names of nodes in use, by text */
    int64_t opset;     /* of the default domain */
    size_t data_bytes; /* of all constants */
    bool external;     /* large tensors go to a file of their own */
    uint64_t offset;   /* of the next one there */
    const char *location;
    gqac_str side; /* const gqac_tensor *[]: what goes there, in order */
} exporter;

gqac_status export_oom(exporter *ex);

/* export_names.c: the name of each value in the file. Graph inputs keep theirs and results get the
 * names they have in the graph; another value of that name gets a suffix. */
gqac_status export_names(exporter *ex);
const char *export_name(const exporter *ex, const ir_value *value);
/* The name of a node in the file: its own, but NULL when another node has it already. */
const char *export_node_name(exporter *ex, const char *name);
/* A name nobody has; NULL: no memory. */
const char *export_fresh(exporter *ex, const char *wanted);

/* export_graph.c */
gqac_status export_graph(exporter *ex, ir_graph *graph, Onnx__GraphProto **out);

/* export_tensor.c: a tensor's message; its data are views, inline or listed in ex->side. */
gqac_status export_tensor(exporter *ex, const gqac_tensor *tensor, const char *name,
                          Onnx__TensorProto **out);

/* A message of its own in the arena, from its INIT value; NULL: no memory. */
#define EXPORT_NEW(ex, type, init)                                                                 \
    ((type *)gqac_arena_copy((ex)->arena, &(const type)init, sizeof(type)))

#endif
