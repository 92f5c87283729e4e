/* Writing messages of Protocol Buffers, as far as ONNX needs them.
 *
 * Fields are appended to one piece of memory. A message inside another is written between
 * wire_begin and wire_end. If memory is exhausted, `failed` is set, and later calls do nothing. */
#ifndef GQAC_ORT_WIRE_H
#define GQAC_ORT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct wire {
    unsigned char *data;
    size_t size, capacity;
    bool failed;
} wire;

void wire_free(wire *w);
void wire_int(wire *w, unsigned field, int64_t value);
void wire_float(wire *w, unsigned field, float value);
void wire_bytes(wire *w, unsigned field, const void *data, size_t size);
void wire_text(wire *w, unsigned field, const char *text);
/* Begins a message; the result is for wire_end. */
size_t wire_begin(wire *w, unsigned field);
void wire_end(wire *w, size_t begin);

#endif
