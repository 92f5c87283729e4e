/* Reading untrusted protobuf bytes: a linear pre-scan, then protobuf-c.
 *
 * protobuf-c recurses without limit, keeps every unknown field and copies every tensor. The scan
 * therefore walks the wire format first, without recursion, checks it against the schema and the
 * limits below, and writes a thinned copy. Skipped and unknown fields are left out, and tensor data
 * of ONNX_VIEW_BYTES or more are replaced by a note of where they lie in the file (onnx_view). The
 * copy has no other unknown fields, so notes are stored as unknown fields of their TensorProto. */
#ifndef GQAC_ONNX_SCAN_H
#define GQAC_ONNX_SCAN_H

#include "base/arena.h"
#include "base/file.h"
#include "base/str.h"
#include "onnx.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    ONNX_MAX_FILE = INT32_MAX,       /* bytes: protobuf's own limit, 2 GiB - 1 */
    ONNX_MAX_THIN = 256 << 20,       /* bytes of the thinned copy */
    ONNX_MAX_DEPTH = 100,            /* of nested messages; the outermost is 1 */
    ONNX_MAX_GRAPH_DEPTH = 16,       /* of graphs nested in the main graph */
    ONNX_MAX_NODES = 1000000,        /* of limit nodes */
    ONNX_MAX_INLINED = 32768,        /* nodes of function bodies, counted at every call */
    ONNX_MAX_INLINED_NAMES = 262144, /* their names, with those of parameters and nested graphs */
    ONNX_VALUES_A_NAME = 16,         /* values of attributes that count as much as a name */
    ONNX_MAX_INITIALIZERS = 1000000, /* in the whole file */
    ONNX_MAX_FUNCTIONS = 10000,
    ONNX_MAX_OPERANDS = 4096, /* inputs and outputs of a node or function */
    ONNX_MAX_ATTRIBUTES = 256,
    ONNX_MAX_IO = 65536, /* inputs or outputs of a graph */
    ONNX_MAX_OPSETS = 256,
    ONNX_MAX_UNKNOWN = 1000000, /* unknown fields in the whole file */
    ONNX_MAX_NAME = 1024,       /* bytes of any name */
    ONNX_VIEW_BYTES = 64,
};

/* Scans a serialized `root` message and appends its thinned copy to `thin`, which the caller frees.
 * INVALID_MODEL: it is not well-formed; LIMIT: among others, it has more than `nodes` nodes;
 * NO_MEMORY. */
gqac_status onnx_scan(const unsigned char *data, size_t size,
                      const ProtobufCMessageDescriptor *root, int64_t nodes, gqac_str *thin,
                      gqac_diag *diag);

/* Unpacks a thinned copy into `arena`; nothing is freed alone. LIMIT: it takes more than 64 MiB
 * plus 16 times the bytes of the copy; NO_MEMORY. */
gqac_status onnx_unpack(const gqac_str *thin, const ProtobufCMessageDescriptor *root,
                        gqac_arena *arena, ProtobufCMessage **message, gqac_diag *diag);

/* Finds the bytes of data field `field` of a tensor in the scanned data; false: the field is
 * absent, or small and so in the message itself. */
bool onnx_view(const Onnx__TensorProto *tensor, unsigned field, size_t *offset, size_t *length);

/* Reads a varint at *at < end and sets *at to its end. Returns NULL, or what is wrong with it. */
const char *onnx_varint(const unsigned char *data, size_t end, size_t *at, uint64_t *value);

#endif
