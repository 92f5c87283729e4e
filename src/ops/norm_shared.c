/* Layer and RMS normalisation. One row, one owner: sums are the 16-lane trees of the contract, so a
 * row's bits depend on nothing but the row. */
#include "ops/norm.h"

#include <string.h>

#include "numerics/math.h"
#include "numerics/reduce.h"
#include "ops/kernel.h"

const ir_attr_spec norm_attrs[] = {
    OP_ATTR_INT("axis", -1, "first axis normalised over"),
    OP_ATTR_FLOAT("epsilon", 1e-5f, "added to the mean square"),
    OP_ATTR_INT("stash_type", 1, "only 1: fp32 inside"),
    {.name = NULL},
};
const ir_attr_spec norm_skip_attrs[] = {
    OP_ATTR_FLOAT("epsilon", 1e-12f, "added to the mean square"),
    {.name = NULL},
};

const norm norm_rms_onnx = {
    .round_before = true, .sum_output = -1, .mean_output = -1, .inv_output = -1};
const norm norm_rms = {.sum_output = -1, .mean_output = -1, .inv_output = 1};
const norm norm_skip_rms = {.skip = true, .sum_output = 3, .mean_output = 1, .inv_output = 2};
const norm norm_layer = {
    .centred = true, .bias = true, .sum_output = -1, .mean_output = 1, .inv_output = 2};
const norm norm_skip_layer = {.centred = true,
                              .skip = true,
                              .bias = true,
                              .sum_output = 3,
                              .mean_output = 1,
                              .inv_output = 2};

static bool has_axis(const ir_node *node) {
    return node->op->attrs == norm_attrs;
}

gqac_status norm_verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_float(node, "epsilon", false, diag));
    if (has_axis(node) && ir_attr_int(node, "stash_type") != 1)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute stash_type = %lld: only 1 is supported",
                (long long)ir_attr_int(node, "stash_type"));
    return GQAC_OK;
}

/* True if the weights have an axis of tokens of x, before the axes that are normalised over. */
static bool weights_of_tokens(const ir_value *x, const ir_value *weights, int axis) {
    if (!weights || (weights->type.rank >= 0 && weights->type.rank <= -axis))
        return false;
    for (int i = weights->type.rank; i > -axis; i--) {
        int64_t one;
        if (op_axis_is_row(x, -i) &&
            !(ir_dim_is_const(weights->type.dims[weights->type.rank - i], &one) && one == 1))
            return true;
    }
    return weights->type.rank < 0;
}

bool norm_mixes(const ir_node *node) {
    const ir_value *x = ir_node_input(node, 0);
    int64_t axis = has_axis(node) ? ir_attr_int(node, "axis") : -1;
    if (!x || (x->type.rank < 0 && axis != -1))
        return true;
    if (x->type.rank >= 0 && axis >= 0)
        axis -= x->type.rank;
    for (int i = (int)axis; i < 0; i++)
        if (op_axis_is_row(x, i))
            return true;
    for (int i = 1; has_axis(node) && i < 3; i++)
        if (weights_of_tokens(x, ir_node_input(node, i), (int)axis))
            return true;
    return false;
}

/* Weights without axes before those of a row have an element for each of its n elements, and so
 * have all weights of a skip norm. */
static gqac_status check_count(const ir_node *node, int input, int axis, bool vector,
                               gqac_diag *diag) {
    const ir_type x = op_in_type(node, 0);
    gqac_tensor weights;
    int64_t n = 1, length;
    if (x.rank < 0 || !op_in_shape(node, input, &weights) ||
        (!vector && weights.rank > x.rank - axis))
        return GQAC_OK;
    for (int i = axis; i < x.rank; i++)
        if (!ir_dim_is_const(x.dims[i], &length) || __builtin_mul_overflow(n, length, &n))
            return GQAC_OK;
    if (gqac_tensor_count(&weights) == n)
        return GQAC_OK;
    char name[64];
    ir_schema_name(node->op->inputs, input, name, sizeof name);
    if (vector)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "input '%s' has %lld elements, but the rows have %lld", name,
                (long long)gqac_tensor_count(&weights), (long long)n);
    gqac_diag_set(diag, GQAC_UNSUPPORTED,
                  "input '%s' has %lld elements, which are broadcast to the %lld of a row", name,
                  (long long)gqac_tensor_count(&weights), (long long)n);
    gqac_diag_rule(diag, "a scale or a bias has an element for each of the row");
    ir_node_where(node, diag);
    return GQAC_UNSUPPORTED;
}

/* Scales and biases broadcast to x; lengths that are not known yet are left to norm_fit. */
static gqac_status check_weights(const ir_node *node, int input, const char *what,
                                 gqac_diag *diag) {
    const ir_type x = op_in_type(node, 0), weights = op_in_type(node, input);
    for (int i = 1; x.rank >= 0 && i <= weights.rank; i++) {
        int64_t wanted = 1, length;
        if ((i <= x.rank && !ir_dim_is_const(op_in_dim(node, 0, -i), &wanted)) ||
            !ir_dim_is_const(op_in_dim(node, input, -i), &length) || length == wanted ||
            length == 1)
            continue;
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%lld %s for axis -%d of length %lld",
                (long long)length, what, i, (long long)wanted);
    }
    return GQAC_OK;
}

gqac_status norm_infer(ir_node *node, const norm *kind, gqac_diag *diag) {
    ir_type x = op_in_type(node, 0), weight = op_in_type(node, kind->skip ? 2 : 1);
    const int last = kind->skip ? 4 : kind->bias ? 2 : 1;
    for (int i = 0; i <= last && i < node->n_inputs; i++)
        GQAC_TRY(op_check_dtype(node, i, OP_FLOATS, diag));
    if (kind->skip) {
        GQAC_TRY(check_weights(node, 1, "elements of skip", diag));
        GQAC_TRY(op_check_same(node, 0, 1, diag));
    }
    int axis = x.rank - 1;
    if (x.rank >= 0 && has_axis(node))
        GQAC_TRY(op_axis(node, ir_attr_int(node, "axis"), x.rank, &axis, diag));
    if (x.rank == 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "the input is a scalar: it must have at least one axis");
    const int scale = kind->skip ? 2 : 1;
    GQAC_TRY(check_weights(node, scale, "scales", diag));
    if (kind->bias)
        GQAC_TRY(check_weights(node, scale + 1, "biases", diag));
    for (int i = scale; i <= last; i++)
        if (ir_node_input(node, i))
            GQAC_TRY(check_count(node, i, axis, kind->skip, diag));
    gqac_dtype dtype = kind->round_before && weight.dtype ? weight.dtype : x.dtype;
    GQAC_TRY(op_set_type(node, 0, dtype, x.rank, x.dims, diag));
    if (kind->sum_output >= 0)
        GQAC_TRY(op_set_type_like(node, kind->sum_output, x, diag));
    const ir_dim *dims[GQAC_MAX_RANK];
    for (int i = 0; i < x.rank; i++)
        dims[i] = i < axis ? x.dims[i] : ir_dim_const(op_dims(node), 1);
    if (kind->mean_output >= 0)
        GQAC_TRY(op_set_type(node, kind->mean_output, GQAC_F32, x.rank, dims, diag));
    if (kind->inv_output >= 0)
        GQAC_TRY(op_set_type(node, kind->inv_output, GQAC_F32, x.rank, dims, diag));
    return GQAC_OK;
}

static bool wanted(const ir_node *node, int output) {
    return ir_node_output(node, output) != NULL;
}

/* *sum_sq of x[0..n), or where centred of x - mean, which replaces x. */
OP_BODY void moments_body(float *x, int64_t n, bool centred, float *mean, float *sum_sq) {
    *mean = 0.0f;
    if (centred) {
        *mean = gqn_lane_sum(x, (size_t)n) / (float)n;
        for (int64_t i = 0; i < n; i++)
            x[i] -= *mean;
    }
    *sum_sq = gqn_lane_sum_sq(x, (size_t)n);
}
OP_KERNEL(moments, (float *x, int64_t n, bool centred, float *mean, float *sum_sq),
          (x, n, centred, mean, sum_sq))

/* x of a skip norm: (input + skip) + bias, in fp32. The sum is rounded only where it is stored, not
 * before it is normalised. */
static void load_row(const norm_run *r, int64_t row, float *x, float *other) {
    op_get_f32s(r->x, row * r->n, r->n, x);
    if (!r->kind->skip)
        return;
    op_get_f32s(r->skip, row % r->skip_rows * r->n, r->n, other);
    for (int64_t i = 0; i < r->n; i++)
        x[i] += other[i];
    if (r->bias) {
        op_get_f32s(r->bias, 0, r->n, other);
        for (int64_t i = 0; i < r->n; i++)
            x[i] += other[i];
    }
    if (r->sum)
        op_put_f32s(r->sum, row * r->n, r->n, x);
}

static void run(void *arg, size_t begin, size_t end, int worker) {
    const norm_run *r = arg;
    float *x = (float *)(void *)(r->scratch.base + (size_t)worker * r->scratch.stride);
    float *w = x + r->n, *beta = w + r->n;
    for (size_t i = begin; i < end; i++) {
        int64_t row = (int64_t)i;
        float mean, sum_sq;
        load_row(r, row, x, w);
        op_get_f32s(r->weight, norm_weights_of(r->weight_period, row) * r->n, r->n, w);
        moments(x, r->n, r->kind->centred, &mean, &sum_sq);
        float inv = gqn_rsqrt(sum_sq / (float)r->n + r->epsilon);
        if (r->mean)
            ((float *)r->mean->data)[row] = op_one_nan(mean);
        if (r->inv)
            ((float *)r->inv->data)[row] = inv;
        for (int64_t k = 0; k < r->n; k++)
            x[k] *= inv;
        if (r->kind->round_before && r->x->dtype != GQAC_F32) {
            gqac_tensor rounded = {.dtype = r->x->dtype, .data = beta};
            op_put_f32s(&rounded, 0, r->n, x);
            op_get_f32s(&rounded, 0, r->n, x);
        }
        for (int64_t k = 0; k < r->n; k++)
            x[k] *= w[k];
        if (r->beta) {
            op_get_f32s(r->beta, norm_weights_of(r->beta_period, row) * r->n, r->n, beta);
            for (int64_t k = 0; k < r->n; k++)
                x[k] += beta[k];
        }
        for (int64_t k = 0; k < r->n; k++)
            x[k] = op_one_nan(x[k]);
        op_put_f32s(r->y, row * r->n, r->n, x);
    }
}

static gqac_status want_floats(const op_work *work, const gqac_tensor *t, const char *name) {
    if (!t)
        OP_STOP(work, GQAC_INVALID_INPUT, "input '%s' is missing", name);
    if (!OP_IN(OP_FLOATS, t->dtype))
        OP_STOP(work, GQAC_INVALID_INPUT, "input '%s' has the type %s: must be a float type", name,
                gqac_dtype_name(t->dtype));
    return GQAC_OK;
}

static gqac_status want_vector(const op_work *work, const gqac_tensor *t, const char *name,
                               int64_t n) {
    if (!t)
        return GQAC_OK;
    GQAC_TRY(want_floats(work, t, name));
    if (gqac_tensor_count(t) != n || (t->rank > 0 && t->dims[t->rank - 1] > n))
        OP_STOP(work, GQAC_INVALID_INPUT, "input '%s' has %lld elements, but the rows have %lld",
                name, (long long)gqac_tensor_count(t), (long long)n);
    return GQAC_OK;
}

/* Weights have the axes that are normalised over, and possibly a run of axes before these, such as
 * the heads of [B,S,H,D] or [B,H,S,D], with length 1 elsewhere. */
static gqac_status fit_weights(const op_work *work, const norm_run *r, const gqac_tensor *t,
                               const char *name, norm_period *period) {
    const int off = t ? r->x->rank - t->rank : 0;
    const int64_t *full = r->x->dims, *dims = t ? t->dims : NULL;
    *period = (norm_period){1, 1};
    if (!t || r->kind->skip || off < 0 || off >= r->axis || gqac_tensor_count(t) == r->n)
        return want_vector(work, t, name, r->n);
    int last = r->axis, first;
    bool fits = true;
    for (int i = off; i < r->x->rank; i++)
        fits = fits && (dims[i - off] == full[i] || (i < r->axis && dims[i - off] == 1));
    while (last > off && dims[last - 1 - off] == 1)
        last--;
    for (first = last; first > off && dims[first - 1 - off] != 1; first--) {
    }
    for (int i = off; i < first; i++)
        fits = fits && dims[i - off] == 1;
    if (!fits)
        OP_STOP(work, GQAC_INVALID_INPUT,
                "input '%s' does not broadcast to the rows: it must have all their axes, and of "
                "the axes before them, those longer than 1 must be adjacent",
                name);
    *period = (norm_period){op_product(full, last, r->axis), op_product(full, first, last)};
    return want_floats(work, t, name);
}

static gqac_status fit_skip(const op_work *work, norm_run *r) {
    const gqac_tensor *x = r->x, *skip = r->skip;
    GQAC_TRY(want_floats(work, skip, "skip"));
    if (skip->dtype != x->dtype)
        OP_STOP(work, GQAC_INVALID_INPUT,
                "input 'skip' has the type %s, which is not that of the input",
                gqac_dtype_name(skip->dtype));
    const int off = x->rank - skip->rank;
    bool fits = skip->rank >= 1 && off >= 0;
    for (int i = 0; fits && i < skip->rank; i++) {
        const bool leading = i == 0 && skip->rank == 3 && skip->dims[0] == 1;
        fits = skip->dims[i] == x->dims[i + off] || leading;
    }
    if (!fits)
        OP_STOP(work, GQAC_INVALID_INPUT,
                "input 'skip' has neither the shape of the input nor one that broadcasts to it");
    r->skip_rows = op_product(skip->dims, 0, skip->rank - 1);
    return GQAC_OK;
}

gqac_status norm_fit(const op_work *work, const norm_form *form, norm_run *r) {
    r->kind = form->kind;
    r->epsilon = form->epsilon;
    GQAC_TRY(want_floats(work, r->x, "x"));
    GQAC_TRY(want_floats(work, r->weight, "weight"));
    const int64_t axis = form->axis < 0 ? form->axis + r->x->rank : form->axis;
    if (r->x->rank == 0)
        OP_STOP(work, GQAC_INVALID_INPUT, "the input is a scalar: it must have at least one axis");
    if (axis < 0 || axis >= r->x->rank)
        OP_STOP(work, GQAC_INVALID_MODEL, "axis %lld is out of range for rank %d",
                (long long)form->axis, r->x->rank);
    r->axis = (int)axis;
    r->rows = op_product(r->x->dims, 0, r->axis);
    r->n = op_product(r->x->dims, r->axis, r->x->rank);
    if (r->kind->skip)
        GQAC_TRY(fit_skip(work, r));
    GQAC_TRY(fit_weights(work, r, r->weight, "weight", &r->weight_period));
    GQAC_TRY(fit_weights(work, r, r->beta, "beta", &r->beta_period));
    return want_vector(work, r->bias, "bias", r->n);
}

gqac_tensor norm_y(const norm_run *r) {
    gqac_tensor t = *r->x;
    t.dtype = r->kind->round_before ? r->weight->dtype : r->x->dtype;
    return t;
}

gqac_tensor norm_sum(const norm_run *r) {
    return *r->x;
}

gqac_tensor norm_moment(const norm_run *r) {
    gqac_tensor t = {.dtype = GQAC_F32, .rank = r->x->rank};
    for (int i = 0; i < t.rank; i++)
        t.dims[i] = i < r->axis ? r->x->dims[i] : 1;
    return t;
}

norm_form norm_form_of(const ir_node *node, const norm *kind) {
    return (norm_form){.kind = kind,
                       .axis = has_axis(node) ? ir_attr_int(node, "axis") : -1,
                       .epsilon = ir_attr_float(node, "epsilon")};
}

static gqac_status make(op_call *call, int output, gqac_tensor shape, gqac_tensor **t) {
    if (output < 0 || (output > 0 && !wanted(call->node, output)))
        return GQAC_OK;
    *t = &call->out[output];
    return op_output(call, output, shape.dtype, shape.rank, shape.dims);
}

static const gqac_tensor *optional(op_call *call, int input) {
    return input < call->node->n_inputs ? call->in[input] : NULL;
}

/* Operands in the order x skip? weight beta? bias?, as far as the kind has them. */
static gqac_status open_eval(op_call *call, const norm *kind, norm_run *r) {
    const norm_form form = norm_form_of(call->node, kind);
    op_origin origin;
    const op_work work = op_work_at(call, &origin);
    int next = 1;
    *r = (norm_run){.x = call->in[0]};
    if (kind->skip)
        r->skip = optional(call, next++);
    r->weight = optional(call, next++);
    if (kind->bias)
        r->beta = optional(call, next++);
    if (kind->skip)
        r->bias = optional(call, next);
    GQAC_TRY(norm_fit(&work, &form, r));
    GQAC_TRY(make(call, 0, norm_y(r), &r->y));
    GQAC_TRY(make(call, kind->sum_output, norm_sum(r), &r->sum));
    GQAC_TRY(make(call, kind->mean_output, norm_moment(r), &r->mean));
    return make(call, kind->inv_output, norm_moment(r), &r->inv);
}

gqac_status norm_eval(op_call *call, const norm *kind) {
    norm_run r;
    GQAC_TRY(open_eval(call, kind, &r));
    GQAC_TRY(op_scratch_open(call, (size_t)(3 * r.n + 1), sizeof(float), &r.scratch));
    op_parallel(call, r.n > 0 ? r.rows : 0, 1 + 2 * r.n, run, &r);
    op_scratch_close(&r.scratch);
    return GQAC_OK;
}
