/* Reading protobuf bytes that nobody has checked: a linear pre-scan, then protobuf-c.
 *
 * protobuf-c recurses without bound, keeps every unknown field and copies every tensor. The scan
 * therefore walks the wire format first, without recursion, checks it against the schema and the
 * limits below, and writes a thinned copy: skipped and unknown fields are gone, and tensor data of
 * ONNX_VIEW_BYTES or more is replaced by a note of where it lies in the file (onnx_view). Since the
 * copy has no other unknown fields, those notes travel as unknown fields of their TensorProto. */
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
    ONNX_MAX_DEPTH = 100,            /* messages in each other, the outermost is 1 */
    ONNX_MAX_GRAPH_DEPTH = 16,       /* graphs in the main graph */
    ONNX_MAX_NODES = 1000000,        /* in the whole file, and again after inlining */
    ONNX_MAX_INLINED = 32768,        /* nodes of function bodies, counted at every call */
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
 * INVALID_MODEL for what is not well-formed, LIMIT, NO_MEMORY. */
gqac_status onnx_scan(const unsigned char *data, size_t size,
                      const ProtobufCMessageDescriptor *root, gqac_str *thin, gqac_diag *diag);

/* Unpacks a thinned copy; every byte comes from `arena` and nothing is freed alone. LIMIT when it
 * takes more than 64 MiB + 16 bytes a byte, NO_MEMORY. */
gqac_status onnx_unpack(const gqac_str *thin, const ProtobufCMessageDescriptor *root,
                        gqac_arena *arena, ProtobufCMessage **message, gqac_diag *diag);

/* Where the bytes of data field number `field` of a tensor lie in the scanned data; false when the
 * field is small and hence in the message itself, or absent. */
bool onnx_view(const Onnx__TensorProto *tensor, unsigned field, size_t *offset, size_t *length);

/* Reads a varint at *at < end and sets *at to its end. Returns NULL, or what is wrong with it. */
const char *onnx_varint(const unsigned char *data, size_t end, size_t *at, uint64_t *value);

#endif
