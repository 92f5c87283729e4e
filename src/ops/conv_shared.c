/* See conv.h. */
#include "ops/conv.h"

#include <string.h>

#include "base/check.h"

const ir_attr_spec conv_attrs[] = {
    OP_ATTR_STRING("auto_pad", "NOTSET", "NOTSET, SAME_UPPER, SAME_LOWER or VALID"),
    {.name = "dilations", .kind = IR_ATTR_INTS, .doc = "distance between taps; absent: 1"},
    OP_ATTR_INT("group", 1, "of channels"),
    {.name = "kernel_shape", .kind = IR_ATTR_INTS, .doc = "absent: that of the weight"},
    {.name = "pads", .kind = IR_ATTR_INTS, .doc = "at the starts, then at the ends; absent: 0"},
    {.name = "strides", .kind = IR_ATTR_INTS, .doc = "absent: 1"},
    {.name = NULL},
};

int64_t conv_entry(const ir_node *node, const char *name, int i, int64_t fallback) {
    const ir_attr *attr = ir_attr_get(node, name);
    return attr->set && (size_t)i < attr->count ? attr->ints[i] : fallback;
}

static bool pads_by(const ir_node *node, const char *rule) {
    return strcmp(ir_attr_get(node, "auto_pad")->s, rule) == 0;
}

gqac_status conv_verify(const ir_node *node, gqac_diag *diag) {
    static const char *const names[] = {"dilations", "strides", "kernel_shape", "pads"};
    const char *const rules[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"};
    bool known = false;
    for (int i = 0; i < 4; i++) {
        const ir_attr *attr = ir_attr_get(node, names[i]);
        known = known || pads_by(node, rules[i]);
        if (attr->set && attr->count > 2 * CONV_SPACE)
            OP_FAIL(node, diag, GQAC_LIMIT, "attribute %s has %zu entries, which is too many",
                    names[i], attr->count);
        for (size_t k = 0; attr->set && k < attr->count; k++)
            if (attr->ints[k] < (i < 3) || attr->ints[k] > INT32_MAX)
                OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                        "attribute %s = %lld: must be %d to 2147483647", names[i],
                        (long long)attr->ints[k], i < 3);
    }
    if (!known)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute auto_pad = '%s': must be NOTSET, SAME_UPPER, SAME_LOWER or VALID",
                ir_attr_get(node, "auto_pad")->s);
    return op_check_int(node, "group", 1, INT64_MAX, diag);
}

bool conv_place(const ir_node *node, int i, int n, conv_axis *a) {
    a->stride = conv_entry(node, "strides", i, 1);
    a->dilation = conv_entry(node, "dilations", i, 1);
    int64_t reach, total;
    if (!gqac_mul_i64(a->taps - 1, a->dilation, &reach) || reach >= INT64_MAX / 4)
        return false;
    a->pad = conv_entry(node, "pads", i, 0);
    total = a->pad + conv_entry(node, "pads", n + i, 0);
    if (!pads_by(node, "NOTSET"))
        a->pad = total = 0;
    if (pads_by(node, "SAME_UPPER") || pads_by(node, "SAME_LOWER")) {
        a->out = (a->in + a->stride - 1) / a->stride;
        total = (a->out - 1) * a->stride + reach + 1 - a->in;
        total = total > 0 ? total : 0;
        a->pad = pads_by(node, "SAME_UPPER") ? total / 2 : total - total / 2;
        return a->in > 0;
    }
    if (a->in + total < reach + 1)
        return false;
    a->out = (a->in + total - reach - 1) / a->stride + 1;
    return true;
}

gqac_status conv_check_lists(const ir_node *node, int n, gqac_diag *diag) {
    static const char *const names[] = {"dilations", "strides", "kernel_shape", "pads"};
    for (int i = 0; i < 4; i++) {
        const ir_attr *attr = ir_attr_get(node, names[i]);
        if (attr->set && attr->count != (size_t)n * (i == 3 ? 2 : 1))
            OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                    "attribute %s has %zu entries for %d spatial axes", names[i], attr->count, n);
    }
    return GQAC_OK;
}

static gqac_status infer_axis(const ir_node *node, int i, int n, const ir_dim **dim,
                              gqac_diag *diag) {
    conv_axis a;
    *dim = NULL;
    if (!ir_dim_is_const(op_in_dim(node, CONV_W, 2 + i), &a.taps))
        return GQAC_OK;
    if (a.taps < 1 || a.taps != conv_entry(node, "kernel_shape", i, a.taps))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "W has %lld elements along spatial axis %d%s",
                (long long)a.taps, i, a.taps < 1 ? "" : ", kernel_shape differs");
    if (!ir_dim_is_const(op_in_dim(node, CONV_X, 2 + i), &a.in))
        return GQAC_OK;
    if (!conv_place(node, i, n, &a))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "a kernel of %lld elements does not fit the %lld elements of spatial axis %d",
                (long long)a.taps, (long long)a.in, i);
    *dim = ir_dim_const(op_dims(node), a.out);
    return GQAC_OK;
}

/* Checks channels, maps and groups as far as they are constant. */
static gqac_status check_channels(const ir_node *node, gqac_diag *diag) {
    const int64_t group = ir_attr_int(node, "group");
    int64_t channels, each, maps;
    if (ir_dim_is_const(op_in_dim(node, CONV_W, 0), &maps) && maps % group != 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "%lld feature maps cannot be divided into %lld groups", (long long)maps,
                (long long)group);
    if (!ir_dim_is_const(op_in_dim(node, CONV_X, 1), &channels) ||
        !ir_dim_is_const(op_in_dim(node, CONV_W, 1), &each))
        return GQAC_OK;
    if (channels % group != 0 || channels / group != each)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "%lld channels in %lld groups, but W has %lld channels per group",
                (long long)channels, (long long)group, (long long)each);
    return GQAC_OK;
}

gqac_status conv_infer(ir_node *node, gqac_dtype dtype, gqac_diag *diag) {
    const ir_type x = op_in_type(node, CONV_X), w = op_in_type(node, CONV_W);
    const ir_dim *dims[GQAC_MAX_RANK];
    const int rank = x.rank >= 0 ? x.rank : w.rank;
    if (rank >= 0 && (rank < 3 || (x.rank >= 0 && w.rank >= 0 && x.rank != w.rank)))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "X and W have the ranks %d and %d", x.rank, w.rank);
    GQAC_TRY(check_channels(node, diag));
    if (rank >= 0)
        GQAC_TRY(conv_check_lists(node, rank - 2, diag));
    if (x.rank < 0)
        return op_set_type(node, 0, dtype, -1, NULL, diag);
    dims[0] = x.dims[0];
    dims[1] = op_in_dim(node, CONV_W, 0);
    for (int i = 2; i < rank; i++)
        GQAC_TRY(infer_axis(node, i - 2, rank - 2, &dims[i], diag));
    return op_set_type(node, 0, dtype, rank, dims, diag);
}

bool conv_mixes(const ir_node *node) {
    const ir_value *x = ir_node_input(node, CONV_X);
    if (!x || x->type.rank < 0)
        return true;
    for (int k = 1; k < x->type.rank; k++)
        if (op_axis_is_row(x, k))
            return true;
    return false;
}
