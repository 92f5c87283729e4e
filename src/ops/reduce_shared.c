/* Axes given as an input, and reductions over any set of axes.
 *
 * One output element has one owner, which gathers its row (the reduced axes, ascending) into a
 * buffer for the op: the order of a sum does not depend on layout or threads. */
#include "ops/copy.h"
#include "ops/elementwise.h"
#include "ops/reduction.h"

#include "numerics/reduce.h"
#include "ops/kernel.h"

/* ---- axes ---------------------------------------------------------------- */

static gqac_status add_axis(const ir_node *node, int64_t axis, int rank, unsigned *set,
                            gqac_diag *diag) {
    int at;
    GQAC_TRY(op_axis(node, axis, rank, &at, diag));
    if (*set >> at & 1)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "axis %d is given twice", at);
    *set |= 1u << at;
    return GQAC_OK;
}

gqac_status op_axes_infer(const ir_node *node, int input, int rank, unsigned *set, bool *given,
                          bool *known, gqac_diag *diag) {
    const ir_dim *elements[OP_MAX_ELEMENTS];
    int64_t n = op_elements(node, input, OP_MAX_ELEMENTS, elements), axis;
    *set = 0;
    *given = ir_node_input(node, input) != NULL;
    *known = !*given || n >= 0;
    for (int64_t i = 0; i < n; i++) {
        if (ir_dim_is_const(elements[i], &axis))
            GQAC_TRY(add_axis(node, axis, rank, set, diag));
        else
            *known = false;
    }
    return GQAC_OK;
}

gqac_status op_axes_eval(op_call *call, int input, int rank, unsigned *set, bool *given) {
    int64_t axes[GQAC_MAX_RANK], n;
    *set = 0;
    *given = input < call->node->n_inputs && call->in[input];
    if (!*given)
        return GQAC_OK;
    GQAC_TRY(op_ints(call, input, GQAC_MAX_RANK, axes, &n));
    for (int64_t i = 0; i < n; i++)
        GQAC_TRY(add_axis(call->node, axes[i], rank, set, call->diag));
    return GQAC_OK;
}

/* ---- typing -------------------------------------------------------------- */

const ir_attr_spec op_reduce_attrs[] = {
    OP_ATTR_INT("keepdims", 1, "1: reduced axes are kept, with length 1"),
    OP_ATTR_INT("noop_with_empty_axes", 0, "1: no axes means none, not all"),
    {.name = NULL},
};

static unsigned reduce_set(const op_reduce *kernel) {
    return (kernel->f32 ? OP_FLOATS : 0u) | (kernel->f64 ? OP_BIT(F64) : 0u) |
           (kernel->i64 ? OP_INTS : 0u) | (kernel->bools ? OP_BIT(BOOL) : 0u);
}

/* Without axes all are reduced, unless noop_with_empty_axes is set. */
static unsigned effective(const ir_node *node, unsigned set, int rank) {
    bool all = set == 0 && !ir_attr_int(node, "noop_with_empty_axes");
    return all ? (1u << rank) - 1u : set;
}

static gqac_status infer_unknown_axes(ir_node *node, ir_type type, gqac_diag *diag) {
    bool keep = ir_attr_int(node, "keepdims") != 0;
    return op_set_type(node, 0, type.dtype, keep ? type.rank : -1, NULL, diag);
}

static gqac_status infer_elements(ir_node *node, const op_reduce *kernel, gqac_diag *diag) {
    const ir_dim *x[OP_MAX_ELEMENTS];
    int64_t n = kernel->dim ? op_elements(node, 0, OP_MAX_ELEMENTS, x) : -1;
    for (int64_t i = 1; i < n; i++)
        x[0] = kernel->dim(op_dims(node), x[0], x[i]);
    return n > 0 ? op_set_elements(node, 0, 1, x, diag) : GQAC_OK;
}

gqac_status op_reduce_infer(ir_node *node, const op_reduce *kernel, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    const ir_dim *dims[GQAC_MAX_RANK];
    unsigned set;
    bool given, known;
    int rank = 0;
    GQAC_TRY(op_check_dtype(node, 0, reduce_set(kernel), diag));
    GQAC_TRY(op_check_list(node, 1, GQAC_MAX_RANK, diag));
    if (type.rank < 0)
        return op_set_type(node, 0, type.dtype, -1, NULL, diag);
    GQAC_TRY(op_axes_infer(node, 1, type.rank, &set, &given, &known, diag));
    if (!known)
        return infer_unknown_axes(node, type, diag);
    set = effective(node, set, type.rank);
    for (int i = 0; i < type.rank; i++) {
        if (!(set >> i & 1))
            dims[rank++] = type.dims[i];
        else if (ir_attr_int(node, "keepdims"))
            dims[rank++] = ir_dim_const(op_dims(node), 1);
    }
    GQAC_TRY(op_set_type(node, 0, type.dtype, rank, dims, diag));
    if (set == 0 && !kernel->composite)
        return op_pass_elements(node, 0, 0, diag);
    if (set == 0)
        return GQAC_OK;
    return infer_elements(node, kernel, diag);
}

bool op_reduce_mixes(const ir_node *node) {
    ir_type type = op_in_type(node, 0);
    unsigned set = 0;
    bool given, known = false;
    if (type.rank < 0)
        return true;
    if (op_axes_infer(node, 1, type.rank, &set, &given, &known, NULL) != GQAC_OK || !known)
        set = (1u << type.rank) - 1u;
    else
        set = effective(node, set, type.rank);
    for (int i = 0; i < type.rank; i++)
        if ((set >> i & 1) && op_axis_is_row(ir_node_input(node, 0), i))
            return true;
    return false;
}

gqac_status op_reduce_upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw) {
    return opset < 18 ? op_ints_to_input(b, node, raw, "axes", 1) : GQAC_OK;
}

gqac_status op_axes_upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw) {
    return opset < 13 ? op_ints_to_input(b, node, raw, "axes", 1) : GQAC_OK;
}

double op_lane_sum_f64(const double *row, int64_t n) {
    double lane[GQAC_LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i % GQAC_LANES] += row[i];
    for (int half = GQAC_LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

/* The greatest of x, or of -x where `flip` is the sign bit, by lanes; nan: is any element NaN? */
OP_BODY void most_body(const float *restrict x, size_t n, uint32_t flip, float *restrict most,
                       uint32_t *restrict nan) {
    float lane[GQAC_LANES];
    uint32_t bad[GQAC_LANES] = {0};
    size_t i = 0;
    for (size_t j = 0; j < GQAC_LANES; j++)
        lane[j] = -gqn_as_f32(GQN_INF_BITS);
    for (; i + GQAC_LANES <= n; i += GQAC_LANES)
        GQN_EACH_LANE(j, {
            const float v = gqn_as_f32(gqn_as_u32(x[i + j]) ^ flip);
            lane[j] = gqn_max_step(lane[j], v);
            bad[j] |= v != v;
        });
    for (size_t j = 0; i < n; i++, j++) {
        const float v = gqn_as_f32(gqn_as_u32(x[i]) ^ flip);
        lane[j] = gqn_max_step(lane[j], v);
        bad[j] |= v != v;
    }
    *most = gqn_lane_max(lane, GQAC_LANES);
    for (size_t j = 0; j < GQAC_LANES; j++)
        *nan |= bad[j];
}
OP_KERNEL(most, (const float *x, size_t n, uint32_t flip, float *most, uint32_t *nan),
          (x, n, flip, most, nan))

float op_extreme_f32(const float *row, int64_t n, bool least) {
    const uint32_t flip = least ? 0x80000000u : 0u;
    uint32_t nan = 0;
    float best;
    most(row, (size_t)n, flip, &best, &nan);
    for (int64_t i = n - 1; nan && i >= 0; i--)
        if (row[i] != row[i])
            return row[i];
    for (int64_t i = 0; best == 0.0f && i < n; i++)
        if (row[i] == 0.0f)
            return row[i];
    return gqn_as_f32(gqn_as_u32(best) ^ flip);
}

/* ---- evaluation ---------------------------------------------------------- */

typedef struct reduce_plan {
    const op_reduce *kernel;
    const gqac_tensor *in;
    gqac_tensor *out;
    int kept, reduced;
    int64_t kept_dims[GQAC_MAX_RANK], kept_strides[GQAC_MAX_RANK];
    int64_t dims[GQAC_MAX_RANK], strides[GQAC_MAX_RANK]; /* reduced; the last one may be 1 long */
    int64_t n;                                           /* elements in a row */
    op_scratch scratch;
} reduce_plan;

static void make_plan(reduce_plan *plan, unsigned set) {
    const gqac_tensor *in = plan->in;
    int64_t strides[GQAC_MAX_RANK];
    op_strides(in->rank, in->dims, strides);
    plan->n = 1;
    for (int i = 0; i < in->rank; i++) {
        if (!(set >> i & 1)) {
            plan->kept_dims[plan->kept] = in->dims[i];
            plan->kept_strides[plan->kept++] = strides[i];
            continue;
        }
        int last = plan->reduced - 1;
        plan->n *= in->dims[i];
        if (last >= 0 && plan->strides[last] == strides[i] * in->dims[i]) {
            plan->dims[last] *= in->dims[i];
            plan->strides[last] = strides[i];
        } else {
            plan->dims[plan->reduced] = in->dims[i];
            plan->strides[plan->reduced++] = strides[i];
        }
    }
    if (plan->reduced == 0) {
        plan->dims[0] = plan->strides[0] = 1;
        plan->reduced = 1;
    }
}

static void gather(const gqac_tensor *in, int64_t first, int64_t n, int64_t stride, void *buffer) {
    if (OP_IN(OP_FLOATS, in->dtype)) {
        op_gather_f32(in, first, n, stride, buffer);
    } else if (in->dtype == GQAC_F64) {
        double *to = buffer;
        for (int64_t i = 0; i < n; i++)
            to[i] = op_get_f64(in, first + i * stride);
    } else {
        int64_t *to = buffer;
        for (int64_t i = 0; i < n; i++)
            to[i] = op_get_i64(in, first + i * stride);
    }
}

/* The row that starts at element `at`, in row-major order of the reduced axes. */
static const void *gather_row(const reduce_plan *plan, int64_t at, unsigned char *buffer) {
    int inner = plan->reduced - 1;
    int64_t index[GQAC_MAX_RANK] = {0}, length = plan->dims[inner];
    size_t width = OP_IN(OP_FLOATS, plan->in->dtype) ? sizeof(float) : sizeof(int64_t);
    if (inner == 0 && plan->strides[0] == 1 && plan->in->dtype == GQAC_F32)
        return (const float *)plan->in->data + at;
    for (int64_t done = 0; done < plan->n; done += length) {
        gather(plan->in, at, length, plan->strides[inner], buffer + (size_t)done * width);
        for (int i = inner - 1; i >= 0; i--) {
            at += plan->strides[i];
            if (++index[i] < plan->dims[i])
                break;
            at -= plan->dims[i] * plan->strides[i];
            index[i] = 0;
        }
    }
    return buffer;
}

static void reduce_rows(void *arg, size_t begin, size_t end, int worker) {
    const reduce_plan *plan = arg;
    unsigned char *buffer = plan->scratch.base + (size_t)worker * plan->scratch.stride;
    gqac_tensor *out = plan->out;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t at = 0, rest = item;
        for (int i = plan->kept - 1; i >= 0; i--) {
            at += rest % plan->kept_dims[i] * plan->kept_strides[i];
            rest /= plan->kept_dims[i];
        }
        const void *row = gather_row(plan, at, buffer);
        if (OP_IN(OP_FLOATS, out->dtype))
            op_put_f32(out, item, plan->kernel->f32(row, plan->n));
        else if (out->dtype == GQAC_F64)
            ((double *)out->data)[item] = plan->kernel->f64(row, plan->n);
        else if (out->dtype == GQAC_U64 && plan->kernel->u64)
            op_put_i64(out, item, plan->kernel->u64(row, plan->n));
        else
            op_put_i64(out, item, plan->kernel->i64(row, plan->n));
    }
}

gqac_status op_reduce_eval(op_call *call, const op_reduce *kernel) {
    const ir_node *node = call->node;
    unsigned set;
    bool given;
    int rank = 0;
    int64_t dims[GQAC_MAX_RANK];
    GQAC_TRY(op_want_set(call, 0, reduce_set(kernel)));
    const gqac_tensor *in = call->in[0];
    GQAC_TRY(op_axes_eval(call, 1, in->rank, &set, &given));
    set = effective(node, set, in->rank);
    if (set == 0 && !kernel->composite)
        return op_copy_as(call, in->rank, in->dims);
    for (int i = 0; i < in->rank; i++) {
        if (!(set >> i & 1))
            dims[rank++] = in->dims[i];
        else if (ir_attr_int(node, "keepdims"))
            dims[rank++] = 1;
    }
    GQAC_TRY(op_output(call, 0, in->dtype, rank, dims));
    reduce_plan plan = {.kernel = kernel, .in = in, .out = &call->out[0]};
    make_plan(&plan, set);
    int64_t rows = gqac_tensor_count(plan.out);
    if (plan.n == 0 && rows > 0 && kernel->nonempty && op_carrier_of(in->dtype) >= OP_AS_I64)
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "nothing to reduce");
    GQAC_TRY(op_scratch_open(call, (size_t)plan.n, sizeof(int64_t), &plan.scratch));
    op_parallel(call, rows, 20 + plan.n, reduce_rows, &plan);
    op_scratch_close(&plan.scratch);
    return GQAC_OK;
}
