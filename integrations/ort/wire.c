/* Writing messages of Protocol Buffers: see wire.h. */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, LENGTH = 2, FIXED32 = 5 }; /* wire types */
enum { LONGEST = 10 };                        /* bytes of a varint */

static bool reserve(wire *w, size_t more) {
    if (w->failed || more > SIZE_MAX / 4 - w->size) {
        w->failed = true;
        return false;
    }
    if (w->size + more <= w->capacity)
        return true;
    const size_t capacity = 2 * (w->size + more) + 256;
    unsigned char *data = realloc(w->data, capacity);
    if (!data) {
        w->failed = true;
        return false;
    }
    w->data = data;
    w->capacity = capacity;
    return true;
}

static void append(wire *w, const void *data, size_t size) {
    if (!size || !reserve(w, size))
        return;
    memcpy(w->data + w->size, data, size);
    w->size += size;
}

static size_t encode(uint64_t value, unsigned char bytes[LONGEST]) {
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[n++] = (unsigned char)(value | 0x80);
    bytes[n++] = (unsigned char)value;
    return n;
}

static void varint(wire *w, uint64_t value) {
    unsigned char bytes[LONGEST];
    append(w, bytes, encode(value, bytes));
}

void wire_free(wire *w) {
    free(w->data);
    memset(w, 0, sizeof *w);
}

void wire_int(wire *w, unsigned field, int64_t value) {
    varint(w, field << 3 | VARINT);
    varint(w, (uint64_t)value);
}

void wire_float(wire *w, unsigned field, float value) {
    varint(w, field << 3 | FIXED32);
    append(w, &value, sizeof value); /* little-endian, as ONNX and this machine are */
}

void wire_bytes(wire *w, unsigned field, const void *data, size_t size) {
    varint(w, field << 3 | LENGTH);
    varint(w, size);
    append(w, data, size);
}

void wire_text(wire *w, unsigned field, const char *text) {
    wire_bytes(w, field, text, strlen(text));
}

size_t wire_begin(wire *w, unsigned field) {
    varint(w, field << 3 | LENGTH);
    return w->size;
}

void wire_end(wire *w, size_t begin) {
    unsigned char bytes[LONGEST];
    const size_t content = w->size - begin, n = encode(content, bytes);
    if (!reserve(w, n))
        return;
    /* The length stands before the content, and how many bytes it has is known only now. */
    memmove(w->data + begin + n, w->data + begin, content);
    memcpy(w->data + begin, bytes, n);
    w->size += n;
}
