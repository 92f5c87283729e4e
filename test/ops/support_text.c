/* Tensors and attributes from text; see support.h. */
#include "support_text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/shared.h"

static double number(const char **at) {
    char *end;
    double value = strtod(*at, &end);
    *at = end;
    return value;
}

static void put(gqac_tensor *tensor, int64_t i, const char **at) {
    if (gqac_dtype_is_float(tensor->dtype)) {
        double value = number(at);
        if (tensor->dtype == GQAC_F64)
            ((double *)tensor->data)[i] = value;
        else
            op_put_f32(tensor, i, (float)value);
        return;
    }
    char *end;
    bool negative = **at == '-';
    op_put_i64(tensor, i, negative ? strtoll(*at, &end, 10) : (int64_t)strtoull(*at, &end, 10));
    *at = end;
}

gqac_tensor *parse_tensor(gqac_arena *arena, const char *text, size_t length) {
    char name[16] = {0};
    const char *at = text, *end = text + length;
    size_t n = strcspn(at, "[");
    gqac_tensor *tensor = GQAC_ARENA_NEW(arena, gqac_tensor);
    memcpy(name, at, n < sizeof name - 1 ? n : sizeof name - 1);
    tensor->dtype = gqac_dtype_from_name(name);
    if (tensor->dtype == GQAC_NONE)
        return NULL;
    for (at += n + 1; at < end && *at != ']'; at += *at == ',')
        tensor->dims[tensor->rank++] = (int64_t)number(&at);
    at += 2; /* "]:" */
    tensor->data = gqac_arena_calloc(arena, gqac_tensor_bytes(tensor) + 1, 1);
    int64_t count = gqac_tensor_count(tensor), given = 0;
    while (at < end) {
        while (at < end && isspace((unsigned char)*at))
            at++;
        if (at >= end)
            break;
        if (given == count)
            return NULL;
        const char *before = at;
        put(tensor, given++, &at);
        if (at == before)
            return NULL;
    }
    return given == count ? tensor : NULL;
}

bool next_part(const char **list, const char **part, size_t *length) {
    const char *at = *list;
    while (*at == ' ' || *at == '|')
        at++;
    if (!*at)
        return false;
    size_t n = strcspn(at, "|");
    *part = at;
    *list = at + n;
    while (n > 0 && at[n - 1] == ' ')
        n--;
    *length = n;
    return true;
}

/* ---- attributes ---------------------------------------------------------- */

static ir_attr_kind ints_or_int(ir_attr *attr, gqac_arena *arena, const char **at, bool list) {
    int64_t values[32];
    do {
        *at += attr->count > 0;
        char *end;
        values[attr->count++] = strtoll(*at, &end, 10);
        *at = end;
    } while (**at == ',');
    attr->i = values[0];
    attr->ints = gqac_arena_copy(arena, values, attr->count * sizeof *values);
    return list || attr->count > 1 ? IR_ATTR_INTS : IR_ATTR_INT;
}

bool next_attr(gqac_arena *arena, const char **list, text_attr *out) {
    const char *at = *list;
    while (*at == ' ')
        at++;
    if (!*at)
        return false;
    size_t n = strcspn(at, "=");
    memset(out, 0, sizeof *out);
    out->name = gqac_arena_strndup(arena, at, n);
    out->attr.set = true;
    at += n + 1;
    if (*at == '\'') {
        n = strcspn(at + 1, "'");
        out->kind = IR_ATTR_STRING;
        out->attr.s = gqac_arena_strndup(arena, at + 1, n);
        at += n + 2;
    } else if (*at == '[') {
        n = (size_t)(strrchr(at, ']') - at);
        out->kind = IR_ATTR_TENSOR;
        out->attr.tensor = parse_tensor(arena, at + 1, n - 1);
        at += n + 1;
    } else if (isalpha((unsigned char)*at)) {
        n = strcspn(at, " ");
        out->kind = IR_ATTR_DTYPE;
        out->attr.dtype = gqac_dtype_from_name(gqac_arena_strndup(arena, at, n));
        at += n;
    } else if (memchr(at, 'f', strcspn(at, " "))) {
        out->kind = IR_ATTR_FLOAT;
        out->attr.f = (float)number(&at);
        at++;
    } else {
        bool list_of = strchr(",", at[strspn(at, "-0123456789")]) && at[strspn(at, "-0123456789")];
        out->kind = ints_or_int(&out->attr, arena, &at, list_of);
        if (*at == ';') { /* "axes=1;" is a list of one */
            out->kind = IR_ATTR_INTS;
            at++;
        }
    }
    *list = at;
    return true;
}
