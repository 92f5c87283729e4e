/* Tensors in files: NumPy's .npy (format version 1 to 3, C or Fortran order) and ONNX's .pb.
 *
 * The .npy header is a Python dict literal; only the three keys that NumPy writes are accepted. */
#include <gqac/gqac.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/file.h"
#include "onnx/onnx.h"
#include "ops/shared.h"

static const char magic[6] = "\x93NUMPY";
enum { LONGEST_HEADER = 64 * 1024 };

typedef struct npy {
    char descr[16];
    bool fortran;
    gqac_tensor tensor; /* rank and dims */
    size_t offset;      /* of the data in the file */
} npy;

static gqac_status bad(const char *path, gqac_diag *diag, const char *what) {
    gqac_diag_set(diag, GQAC_INVALID_INPUT, "not a valid .npy file: %s", what);
    gqac_diag_where(diag, "%s", path);
    return GQAC_INVALID_INPUT;
}

/* ---- header -------------------------------------------------------------- */

static void skip_space(const char **at) {
    while (**at == ' ' || **at == '\n' || **at == '\t')
        ++*at;
}

static bool take(const char **at, char c) {
    skip_space(at);
    if (**at != c)
        return false;
    ++*at;
    return true;
}

static bool take_string(const char **at, char *out, size_t size) {
    skip_space(at);
    const char quote = **at;
    if (quote != '\'' && quote != '"')
        return false;
    const char *end = strchr(*at + 1, quote);
    if (!end || (size_t)(end - *at) > size)
        return false;
    memcpy(out, *at + 1, (size_t)(end - *at - 1));
    out[end - *at - 1] = 0;
    *at = end + 1;
    return true;
}

static bool take_shape(const char **at, gqac_tensor *t) {
    if (!take(at, '('))
        return false;
    while (!take(at, ')')) {
        skip_space(at);
        if (t->rank == GQAC_MAX_RANK || **at < '0' || **at > '9')
            return false;
        if (**at == '0' && (*at)[1] >= '0' && (*at)[1] <= '9') /* no number in Python */
            return false;
        int64_t value = 0;
        for (; **at >= '0' && **at <= '9'; ++*at)
            if (!gqac_mul_i64(value, 10, &value) || !gqac_add_i64(value, **at - '0', &value))
                return false;
        t->dims[t->rank++] = value;
        const bool comma = take(at, ',');
        if (!comma && (skip_space(at), t->rank == 1 || **at != ')')) /* (4) is not a tuple */
            return false;
    }
    return true;
}

static bool take_word(const char **at, const char *word) {
    skip_space(at);
    if (strncmp(*at, word, strlen(word)) != 0)
        return false;
    *at += strlen(word);
    return true;
}

static bool parse_dict(const char *at, npy *n) {
    char key[32];
    unsigned seen = 0;
    if (!take(&at, '{'))
        return false;
    while (!take(&at, '}')) {
        if (!take_string(&at, key, sizeof key) || !take(&at, ':'))
            return false;
        unsigned bit = 0;
        if (!strcmp(key, "descr") && take_string(&at, n->descr, sizeof n->descr))
            bit = 1;
        else if (!strcmp(key, "fortran_order")) {
            n->fortran = take_word(&at, "True");
            bit = n->fortran || take_word(&at, "False") ? 2 : 0;
        } else if (!strcmp(key, "shape") && take_shape(&at, &n->tensor))
            bit = 4;
        if (!bit || (seen & bit))
            return false;
        seen |= bit;
        if (!take(&at, ',') && (skip_space(&at), *at != '}'))
            return false;
    }
    skip_space(&at);
    return seen == 7 && *at == 0;
}

static gqac_status parse_header(const char *path, const gqac_map *map, npy *n, gqac_diag *diag) {
    memset(n, 0, sizeof *n);
    if (map->size >= 4 && !memcmp(map->data, "PK\3\4", 4))
        return bad(path, diag, "it is a zip archive, as NumPy writes an .npz file: unpack it");
    if (map->size < 10 || memcmp(map->data, magic, sizeof magic) != 0)
        return bad(path, diag, "it does not start with the magic of NumPy");
    const unsigned version = map->data[6];
    if (version < 1 || version > 3 || (version > 1 && map->size < 12))
        return bad(path, diag, "its format version is not 1, 2 or 3");
    size_t length = map->data[8] | (size_t)map->data[9] << 8, start = 10;
    if (version > 1) {
        length |= (size_t)map->data[10] << 16 | (size_t)map->data[11] << 24;
        start = 12;
    }
    if (length > LONGEST_HEADER || length > map->size - start)
        return bad(path, diag, "its header is longer than the file, or than 64 KiB");
    char *text = gqac_alloc(length + 1);
    if (!text)
        return gqac_diag_oom(diag, "a .npy header");
    memcpy(text, map->data + start, length);
    text[length] = 0;
    const bool ok = strlen(text) == length && parse_dict(text, n);
    gqac_free(text);
    n->offset = start + length;
    return ok ? GQAC_OK
              : bad(path, diag,
                    "its header is not a dictionary with descr, fortran_order and shape");
}

/* ---- types --------------------------------------------------------------- */

static gqac_dtype own_type(const char *descr) {
    for (int t = GQAC_F32; t < GQAC_I4; t++)
        if (!strcmp(gqac_dtype_npy((gqac_dtype)t), descr))
            return (gqac_dtype)t;
    return GQAC_NONE;
}

/* Chooses the type as which elements are read; i4 and u4 have one element per byte in the file. */
static gqac_status pick_type(const char *path, const npy *n, gqac_dtype as, gqac_dtype *dtype,
                             gqac_diag *diag) {
    const gqac_dtype own = own_type(n->descr);
    *dtype = own;
    if (as == GQAC_BF16 && own == GQAC_U16)
        *dtype = GQAC_BF16;
    if ((as == GQAC_I4 && own == GQAC_I8) || (as == GQAC_U4 && own == GQAC_U8) ||
        (as == GQAC_U4 && own == GQAC_I8))
        *dtype = as;
    if (*dtype == GQAC_NONE) {
        gqac_diag_set(diag, GQAC_INVALID_INPUT, "element type '%s' is not supported", n->descr);
        gqac_diag_where(diag, "%s", path);
        gqac_diag_rule(
            diag, "elements must be little-endian f2 f4 f8, i1..i8, u1..u8, b1, or V2 for bf16");
        return GQAC_INVALID_INPUT;
    }
    if (as != GQAC_NONE && as != *dtype)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "%s contains elements of type %s, expected %s", path,
                  gqac_dtype_name(*dtype), gqac_dtype_name(as));
    return GQAC_OK;
}

/* ---- data ---------------------------------------------------------------- */

static gqac_status pack_nibbles(const char *path, const unsigned char *from, gqac_tensor *t,
                                gqac_diag *diag) {
    unsigned char *to = t->data;
    const int64_t count = gqac_tensor_count(t);
    memset(to, 0, gqac_tensor_bytes(t));
    for (int64_t i = 0; i < count; i++) {
        const int value = t->dtype == GQAC_I4 ? (int)(signed char)from[i] : (int)from[i];
        if (t->dtype == GQAC_I4 ? value < -8 || value > 7 : value > 15)
            return bad(path, diag, "a value does not fit in 4 bits");
        to[i / 2] = (unsigned char)(to[i / 2] | (value & 15) << (i % 2 ? 4 : 0));
    }
    return GQAC_OK;
}

static void copy_fortran(const unsigned char *from, gqac_tensor *t, size_t width) {
    const int64_t count = gqac_tensor_count(t);
    int64_t at[GQAC_MAX_RANK] = {0};
    for (int64_t i = 0; i < count; i++) {
        int64_t source = 0, stride = 1;
        for (int d = 0; d < t->rank; d++) {
            source += at[d] * stride;
            stride *= t->dims[d];
        }
        memcpy((char *)t->data + (size_t)i * width, from + (size_t)source * width, width);
        for (int d = t->rank - 1; d >= 0 && ++at[d] == t->dims[d]; d--)
            at[d] = 0;
    }
}

static gqac_status read_data(const char *path, const gqac_map *map, npy *n, gqac_dtype dtype,
                             gqac_diag *diag) {
    gqac_tensor *t = &n->tensor;
    const bool nibbles = dtype == GQAC_I4 || dtype == GQAC_U4;
    size_t bytes = 0, stored = 0;
    GQAC_TRY(gqac_shape_bytes(nibbles ? GQAC_U8 : dtype, t->rank, t->dims, &stored, diag));
    GQAC_TRY(gqac_shape_bytes(dtype, t->rank, t->dims, &bytes, diag));
    if (map->size - n->offset != stored)
        return bad(path, diag, "the length of its data does not fit its shape");
    t->dtype = dtype;
    t->data = gqac_data_alloc(bytes);
    if (!t->data)
        return gqac_diag_oom(diag, "a tensor");
    const unsigned char *from = map->data + n->offset;
    if (n->fortran && nibbles)
        return bad(path, diag, "Fortran order is not supported for 4-bit elements");
    if (nibbles)
        return pack_nibbles(path, from, t, diag);
    if (n->fortran && t->rank > 1)
        copy_fortran(from, t, bytes ? bytes / (size_t)gqac_tensor_count(t) : 0);
    else if (bytes)
        memcpy(t->data, from, bytes);
    if (dtype == GQAC_BOOL)
        for (size_t i = 0; i < bytes; i++)
            ((unsigned char *)t->data)[i] = ((unsigned char *)t->data)[i] != 0;
    return GQAC_OK;
}

gqac_status gqac_npy_read(const char *path, gqac_dtype as, gqac_tensor *tensor, gqac_diag *diag) {
    gqac_map map;
    npy n;
    gqac_dtype dtype = GQAC_NONE;
    GQAC_TRY(gqac_map_file(path, &map, diag));
    gqac_status status = parse_header(path, &map, &n, diag);
    if (status == GQAC_OK)
        status = pick_type(path, &n, as, &dtype, diag);
    if (status == GQAC_OK)
        status = read_data(path, &map, &n, dtype, diag);
    gqac_unmap(&map);
    if (status != GQAC_OK) {
        gqac_free(n.tensor.data);
        return status == GQAC_LIMIT ? bad(path, diag, "its shape is too large") : status;
    }
    *tensor = n.tensor;
    return GQAC_OK;
}

/* ---- writing ------------------------------------------------------------- */

static void print_header(gqac_str *out, const gqac_tensor *t) {
    gqac_str_printf(out, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                    gqac_dtype_npy(t->dtype));
    for (int i = 0; i < t->rank; i++)
        gqac_str_printf(out, "%lld,%s", (long long)t->dims[i], i + 1 < t->rank ? " " : "");
    gqac_str_append(out, "), }");
    while ((10 + out->length + 1) % 64 && !out->failed)
        gqac_str_append(out, " ");
    gqac_str_append(out, "\n");
}

static gqac_status write_data(gqac_writer *w, const gqac_tensor *t, gqac_diag *diag) {
    if (t->dtype != GQAC_I4 && t->dtype != GQAC_U4)
        return gqac_writer_write(w, t->data, gqac_tensor_bytes(t), diag);
    for (int64_t i = 0; i < gqac_tensor_count(t); i++) {
        const unsigned char byte = (unsigned char)op_get_i64(t, i);
        GQAC_TRY(gqac_writer_write(w, &byte, 1, diag));
    }
    return GQAC_OK;
}

gqac_status gqac_npy_write(const char *path, const gqac_tensor *tensor, gqac_diag *diag) {
    gqac_str text = {0};
    gqac_writer *w = NULL;
    print_header(&text, tensor);
    if (text.failed)
        return gqac_diag_oom(diag, "a .npy header");
    unsigned char start[10];
    memcpy(start, magic, sizeof magic);
    start[6] = 1;
    start[7] = 0;
    start[8] = (unsigned char)(text.length & 255);
    start[9] = (unsigned char)(text.length >> 8);
    gqac_status status = gqac_writer_open(path, &w, diag);
    if (status == GQAC_OK)
        status = gqac_writer_write(w, start, sizeof start, diag);
    if (status == GQAC_OK)
        status = gqac_writer_write(w, text.text, text.length, diag);
    if (status == GQAC_OK)
        status = write_data(w, tensor, diag);
    if (status == GQAC_OK)
        status = gqac_writer_commit(w, diag);
    else if (w)
        gqac_writer_abort(w);
    gqac_str_free(&text);
    return status;
}

/* ---- .pb, and the rest --------------------------------------------------- */

gqac_status gqac_pb_read(const char *path, gqac_tensor *tensor, char *name, size_t size,
                         gqac_diag *diag) {
    gqac_arena *arena = gqac_arena_create(0);
    gqac_tensor t;
    const char *its_name = "";
    if (!arena)
        return gqac_diag_oom(diag, "a tensor");
    gqac_status status = onnx_read_tensor(path, arena, &t, &its_name, diag);
    if (status == GQAC_OK) {
        *tensor = t;
        status = gqac_tensor_alloc(tensor, diag);
        if (status == GQAC_OK && t.data)
            memcpy(tensor->data, t.data, gqac_tensor_bytes(&t));
        if (name && size)
            snprintf(name, size, "%s", its_name);
    }
    gqac_arena_free(arena);
    return status;
}

gqac_status gqac_tensor_alloc(gqac_tensor *tensor, gqac_diag *diag) {
    size_t bytes = 0;
    tensor->data = NULL;
    GQAC_TRY(gqac_shape_bytes(tensor->dtype, tensor->rank, tensor->dims, &bytes, diag));
    tensor->data = gqac_data_alloc(bytes);
    return tensor->data ? GQAC_OK : gqac_diag_oom(diag, "a tensor");
}

void gqac_tensor_free(gqac_tensor *tensor) {
    if (tensor) {
        gqac_free(tensor->data);
        tensor->data = NULL;
    }
}

double gqac_tensor_get(const gqac_tensor *tensor, int64_t i) {
    return op_get_f64(tensor, i);
}
