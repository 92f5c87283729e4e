/* Helpers for infer: they read what is known about inputs and set what is known about outputs.
 *
 * infer runs until nothing changes. It never removes knowledge: a part that it cannot determine
 * stays as an earlier run or the file has set it, and a dim becomes a new symbol only once. */
#include "ops/elementwise.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

gqac_status op_fail(const ir_node *node, gqac_diag *diag, gqac_status status, const char *fmt,
                    ...) {
    char text[sizeof diag->what];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    gqac_diag_set(diag, status, "%s", text);
    ir_node_where(node, diag);
    return status;
}

op_origin op_origin_of(const ir_node *node) {
    return (op_origin){
        .name = ir_node_label(node), .domain = node->op->domain, .op = node->op->name};
}

ir_type op_in_type(const ir_node *node, int index) {
    const ir_value *value = ir_node_input(node, index);
    if (!value)
        return ir_type_unknown();
    if (value->type.rank > GQAC_MAX_RANK) /* arrays of dims have GQAC_MAX_RANK entries everywhere */
        return (ir_type){.dtype = value->type.dtype, .rank = -1};
    return value->type;
}

bool op_in_known(const ir_node *node, int index) {
    ir_type type = op_in_type(node, index);
    return type.dtype != GQAC_NONE && type.rank >= 0;
}

const ir_dim *op_in_dim(const ir_node *node, int index, int axis) {
    ir_type type = op_in_type(node, index);
    if (type.rank < 0)
        return NULL;
    if (axis < 0)
        axis += type.rank;
    return axis >= 0 && axis < type.rank ? type.dims[axis] : NULL;
}

bool op_in_shape(const ir_node *node, int index, gqac_tensor *shape) {
    const ir_type type = op_in_type(node, index);
    size_t bytes;
    *shape = (gqac_tensor){.dtype = type.dtype ? type.dtype : GQAC_I8, .rank = type.rank};
    for (int i = 0; i < type.rank; i++)
        if (!ir_dim_is_const(type.dims[i], &shape->dims[i]))
            return false;
    return type.rank >= 0 &&
           gqac_shape_bytes(shape->dtype, type.rank, shape->dims, &bytes, NULL) == GQAC_OK;
}

ir_dims *op_dims(const ir_node *node) {
    return node->graph->module->dims;
}

gqac_status op_set_type(ir_node *node, int index, gqac_dtype dtype, int rank,
                        const ir_dim *const *dims, gqac_diag *diag) {
    ir_value *value = ir_node_output(node, index);
    if (!value)
        return GQAC_OK;
    if (rank > GQAC_MAX_RANK)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "a tensor of rank %d: the maximum is %d", rank,
                GQAC_MAX_RANK);
    ir_type old = value->type;
    ir_type type = old;
    if (dtype != GQAC_NONE && old.dtype != GQAC_NONE && dtype != old.dtype)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "'%s' is declared %s, but is computed as %s",
                value->name, gqac_dtype_name(old.dtype), gqac_dtype_name(dtype));
    if (dtype != GQAC_NONE)
        type.dtype = dtype;
    if (rank < 0) {
        value->type = type;
        return GQAC_OK;
    }
    const ir_dim *merged[GQAC_MAX_RANK] = {NULL};
    for (int i = 0; i < rank; i++) {
        merged[i] = dims ? dims[i] : NULL;
        if (!merged[i] && old.rank == rank)
            merged[i] = old.dims[i];
        if (!merged[i])
            merged[i] = ir_dim_fresh(op_dims(node), "dim");
    }
    type.rank = rank;
    type.dims = merged;
    if (ir_type_equal(&type, &old))
        return GQAC_OK;
    type = ir_type_make(node->graph->module, type.dtype, rank, merged);
    if (type.rank != rank)
        return gqac_diag_oom(diag, "a type");
    value->type = type;
    return GQAC_OK;
}

gqac_status op_set_type_like(ir_node *node, int index, ir_type type, gqac_diag *diag) {
    return op_set_type(node, index, type.dtype, type.rank, type.dims, diag);
}

/* ---- symbolic elements --------------------------------------------------- */

gqac_status op_set_elements(ir_node *node, int index, int64_t n, const ir_dim *const *elements,
                            gqac_diag *diag) {
    ir_value *value = ir_node_output(node, index);
    if (!value || n < 0 || n > OP_MAX_ELEMENTS)
        return GQAC_OK;
    bool old = value->elements && value->n_elements == n, same = old, any = false;
    const ir_dim *merged[OP_MAX_ELEMENTS];
    bool narrow = value->type.dtype == GQAC_I32;
    for (int64_t i = 0; i < n; i++) {
        int64_t known;
        bool wraps = narrow && ir_dim_is_const(elements[i], &known) && known != (int32_t)known;
        merged[i] = elements[i] && !wraps ? elements[i] : old ? value->elements[i] : NULL;
        any = any || merged[i];
        same = same && merged[i] == value->elements[i];
    }
    if (same || (!any && n > 0))
        return GQAC_OK;
    const ir_dim *const *copy =
        gqac_arena_copy(node->graph->module->arena, merged, (size_t)n * sizeof *merged);
    if (!copy)
        return gqac_diag_oom(diag, "symbolic elements");
    value->elements = copy;
    value->n_elements = n;
    return GQAC_OK;
}

int64_t op_elements(const ir_node *node, int input, int64_t max, const ir_dim **out) {
    const ir_value *value = ir_node_input(node, input);
    if (!value)
        return -1;
    const gqac_tensor *constant = value->constant;
    if (constant) {
        int64_t n = constant->rank == 1 ? constant->dims[0] : 1;
        bool ints = OP_IN(OP_INDICES | OP_BIT(BOOL), constant->dtype);
        if (constant->rank > 1 || n > max || !ints || (n > 0 && !constant->data))
            return -1;
        for (int64_t i = 0; i < n; i++)
            out[i] = ir_dim_const(op_dims(node), op_get_i64(constant, i));
        return n;
    }
    if (!value->elements || value->n_elements > max)
        return -1;
    for (int64_t i = 0; i < value->n_elements; i++)
        out[i] = value->elements[i];
    return value->n_elements;
}

gqac_status op_pass_elements(ir_node *node, int input, int output, gqac_diag *diag) {
    const ir_value *value = ir_node_output(node, output);
    const ir_dim *elements[OP_MAX_ELEMENTS];
    int64_t n = op_elements(node, input, OP_MAX_ELEMENTS, elements);
    if (n < 0 || !value || value->type.rank < 0 || value->type.rank > 1)
        return GQAC_OK;
    return op_set_elements(node, output, n, elements, diag);
}

/* ---- shapes -------------------------------------------------------------- */

const ir_dim *op_broadcast_dim(const ir_dim *a, const ir_dim *b, bool *bad) {
    int64_t x, y;
    bool a_const = ir_dim_is_const(a, &x), b_const = ir_dim_is_const(b, &y);
    if (a_const && x == 1)
        return b;
    if (b_const && y == 1)
        return a;
    if (a_const && b_const && x != y)
        *bad = true;
    if (a_const)
        return a;
    if (b_const)
        return b;
    return a == b ? a : NULL;
}

gqac_status op_broadcast_types(ir_node *node, const ir_type *a, const ir_type *b, int *rank,
                               const ir_dim **dims, gqac_diag *diag) {
    int r = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 1; i <= r; i++) {
        bool bad = false;
        if (i > a->rank)
            dims[r - i] = b->dims[b->rank - i];
        else if (i > b->rank)
            dims[r - i] = a->dims[a->rank - i];
        else
            dims[r - i] = op_broadcast_dim(a->dims[a->rank - i], b->dims[b->rank - i], &bad);
        if (bad)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "shapes cannot be broadcast at axis -%d", i);
    }
    *rank = r;
    return GQAC_OK;
}

gqac_status op_axis(const ir_node *node, int64_t axis, int rank, int *out, gqac_diag *diag) {
    if (axis < -rank || axis >= rank)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "axis %lld is out of range for rank %d",
                (long long)axis, rank);
    *out = (int)(axis < 0 ? axis + rank : axis);
    return GQAC_OK;
}

bool op_axis_is_row(const ir_value *value, int axis) {
    int64_t length;
    if (!value)
        return false;
    if (value->type.rank < 0)
        return true;
    if (axis < 0)
        axis += value->type.rank;
    if (axis < 0 || axis >= value->type.rank)
        return true;
    return !ir_dim_is_const(value->type.dims[axis], &length);
}

bool op_any_row(const ir_value *value) {
    const int rank = value && value->type.rank > 0 ? value->type.rank : 1;
    for (int axis = 0; axis < rank; axis++)
        if (op_axis_is_row(value, axis))
            return true;
    return false;
}

bool op_axis_mixes(const ir_node *node) {
    return op_axis_is_row(ir_node_input(node, 0), (int)ir_attr_int(node, "axis"));
}

bool op_dim_nonneg(ir_dims *dims, const ir_dim *dim) {
    return dim && ir_dim_max(dims, dim, ir_dim_const(dims, 0)) == dim;
}

bool op_dim_negative(ir_dims *dims, const ir_dim *dim) {
    return op_dim_nonneg(dims, ir_dim_sub(dims, ir_dim_const(dims, -1), dim));
}

const ir_dim *op_dim_min(ir_dims *dims, const ir_dim *a, const ir_dim *b) {
    return ir_dim_sub(dims, ir_dim_add(dims, a, b), ir_dim_max(dims, a, b));
}

int op_dim_less(ir_dims *dims, const ir_dim *a, const ir_dim *b) {
    const ir_dim *difference = ir_dim_sub(dims, a, b);
    if (op_dim_negative(dims, difference))
        return 1;
    return op_dim_nonneg(dims, difference) ? 0 : -1;
}

int op_dim_not_less(ir_dims *dims, const ir_dim *a, const ir_dim *b) {
    const int less = op_dim_less(dims, a, b);
    return less < 0 ? -1 : !less;
}

/* ---- checks -------------------------------------------------------------- */

gqac_status op_check_dtype(const ir_node *node, int input, unsigned set, gqac_diag *diag) {
    gqac_dtype dtype = op_in_type(node, input).dtype;
    if (dtype == GQAC_NONE || OP_IN(set, dtype))
        return GQAC_OK;
    char name[64];
    ir_schema_name(node->op->inputs, input, name, sizeof name);
    OP_FAIL(node, diag, GQAC_UNSUPPORTED, "input '%s' of type %s is not supported", name,
            gqac_dtype_name(dtype));
}

gqac_status op_check_rank(const ir_node *node, int input, int least, int most, gqac_diag *diag) {
    const int rank = op_in_type(node, input).rank;
    if (rank < 0 || (rank >= least && rank <= most))
        return GQAC_OK;
    char name[64];
    ir_schema_name(node->op->inputs, input, name, sizeof name);
    OP_FAIL(node, diag, GQAC_INVALID_MODEL, "input '%s' has rank %d, expected %s%d", name, rank,
            least == most  ? ""
            : rank < least ? "at least "
                           : "at most ",
            rank < least ? least : most);
}

gqac_status op_check_list(const ir_node *node, int input, int64_t most, gqac_diag *diag) {
    int64_t length;
    GQAC_TRY(op_check_dtype(node, input, OP_INDICES, diag));
    GQAC_TRY(op_check_rank(node, input, 0, 1, diag));
    if (!ir_dim_is_const(op_in_dim(node, input, 0), &length) || length <= most)
        return GQAC_OK;
    char name[64];
    ir_schema_name(node->op->inputs, input, name, sizeof name);
    OP_FAIL(node, diag, GQAC_UNSUPPORTED, "input '%s' has %lld elements: the maximum is %lld", name,
            (long long)length, (long long)most);
}

gqac_status op_check_single(const ir_node *node, int input, gqac_diag *diag) {
    for (int axis = 0; axis < op_in_type(node, input).rank; axis++)
        GQAC_TRY(op_check_length(node, input, axis, ir_dim_const(op_dims(node), 1), diag));
    return GQAC_OK;
}

gqac_status op_check_length(const ir_node *node, int input, int axis, const ir_dim *wanted,
                            gqac_diag *diag) {
    int64_t length, expected;
    if (!ir_dim_is_const(op_in_dim(node, input, axis), &length) ||
        !ir_dim_is_const(wanted, &expected) || length == expected)
        return GQAC_OK;
    char name[64];
    ir_schema_name(node->op->inputs, input, name, sizeof name);
    OP_FAIL(node, diag, GQAC_INVALID_MODEL, "input '%s' has length %lld at axis %d, expected %lld",
            name, (long long)length, axis, (long long)expected);
}

gqac_status op_check_broadcast(const ir_node *node, int input, gqac_diag *diag) {
    const ir_value *out = ir_node_output(node, 0);
    return out && out->type.rank >= 0 ? op_check_rank(node, input, 0, out->type.rank, diag)
                                      : GQAC_OK;
}

gqac_status op_check_int(const ir_node *node, const char *attr, int64_t least, int64_t most,
                         gqac_diag *diag) {
    const int64_t value = ir_attr_int(node, attr);
    if (!ir_attr_is_set(node, attr) || (value >= least && value <= most))
        return GQAC_OK;
    if (most == INT64_MAX)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute %s = %lld: must be at least %lld", attr,
                (long long)value, (long long)least);
    OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute %s = %lld: must be %lld %s %lld", attr,
            (long long)value, (long long)least, most - least == 1 ? "or" : "to", (long long)most);
}

gqac_status op_check_float(const ir_node *node, const char *attr, bool negative, gqac_diag *diag) {
    const float value = ir_attr_float(node, attr);
    if (ir_attr_is_set(node, attr) && (!isfinite(value) || (value < 0 && !negative)))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute %s = %g must be finite%s", attr,
                (double)value, negative ? "" : " and not negative");
    return GQAC_OK;
}

int op_choice(const ir_node *node, const char *attr, int n, const char *const *names) {
    int i = 0;
    while (i < n && strcmp(names[i], ir_attr_get(node, attr)->s) != 0)
        i++;
    return i;
}

gqac_status op_check_choice(const ir_node *node, const char *attr, int n, const char *const *names,
                            gqac_status status, gqac_diag *diag) {
    char list[200];
    int length = 0;
    if (op_choice(node, attr, n, names) < n)
        return GQAC_OK;
    for (int i = 0; i < n; i++)
        length += snprintf(list + length, sizeof list - (size_t)length, "%s%s",
                           i == 0      ? ""
                           : i < n - 1 ? ", "
                                       : " or ",
                           names[i]);
    OP_FAIL(node, diag, status, "attribute %s = '%s': must be %s", attr, ir_attr_get(node, attr)->s,
            list);
}

gqac_status op_check_block(const ir_node *node, const char *attr, int64_t most, gqac_diag *diag) {
    const int64_t block = ir_attr_int(node, attr);
    GQAC_TRY(op_check_int(node, attr, 16, most, diag));
    if ((block & (block - 1)) != 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute %s = %lld: must be a power of two", attr,
                (long long)block);
    return GQAC_OK;
}

gqac_status op_check_same(const ir_node *node, int a, int b, gqac_diag *diag) {
    gqac_dtype x = op_in_type(node, a).dtype, y = op_in_type(node, b).dtype;
    if (x == GQAC_NONE || y == GQAC_NONE || x == y)
        return GQAC_OK;
    char first[64], second[64];
    ir_schema_name(node->op->inputs, a, first, sizeof first);
    ir_schema_name(node->op->inputs, b, second, sizeof second);
    OP_FAIL(node, diag, GQAC_INVALID_MODEL, "inputs '%s' and '%s' have the types %s and %s", first,
            second, gqac_dtype_name(x), gqac_dtype_name(y));
}

/* ---- upgrade ------------------------------------------------------------- */

gqac_status op_put_input(ir_builder *b, ir_node *node, int index, ir_value *value) {
    enum { MOST = 16 };
    ir_value *in[MOST] = {NULL};
    if (b->status != GQAC_OK)
        return b->status;
    if (index < node->n_inputs) {
        ir_node_set_input(node, index, value);
        return GQAC_OK;
    }
    assert(index < MOST);
    for (int i = 0; i < node->n_inputs; i++)
        in[i] = node->inputs[i].value;
    in[index] = value;
    if (!ir_node_set_inputs(node, index + 1, in))
        b->status = gqac_diag_oom(b->diag, "a node");
    return b->status;
}

gqac_status op_ints_to_input(ir_builder *b, ir_node *node, const op_raw_attrs *raw,
                             const char *name, int index) {
    const ir_attr *attr = op_raw_take(raw, name);
    if (!attr)
        return GQAC_OK;
    if (raw->kinds[attr - raw->values] != IR_ATTR_INTS)
        OP_FAIL(node, b->diag, GQAC_INVALID_MODEL, "attribute %s is not a list of integers", name);
    return op_put_input(b, node, index, ir_build_i64s(b, (int64_t)attr->count, attr->ints));
}
