/* TopK: the k greatest (largest 0: least) elements along one axis, in order, and their indices.
 * Equals keep the order of their indices; NaN is greater than everything. Source: ONNX operator
 * spec. Rows are sorted by merging, so that time is n log n whatever they hold. */
#include "ops/shared.h"

#include <string.h>

enum { X, K };

typedef struct search {
    const gqac_tensor *x;
    gqac_tensor *values;
    int64_t *indices;
    int64_t n, k, inner;
    bool largest;
    op_scratch scratch;
} search;

/* 1: element a of x comes before b whatever their indices. */
static bool before(const search *s, int64_t a, int64_t b) {
    if (op_carrier_of(s->x->dtype) == OP_AS_I64) {
        int64_t p = op_get_i64(s->x, s->largest ? a : b), q = op_get_i64(s->x, s->largest ? b : a);
        return s->x->dtype == GQAC_U64 ? (uint64_t)p > (uint64_t)q : p > q;
    }
    double p = op_get_f64(s->x, s->largest ? a : b), q = op_get_f64(s->x, s->largest ? b : a);
    return p != p ? q == q : p > q;
}

/* Merges the sorted runs [0,half) and [half,n) of `from` into `to`. */
static void merge(const search *s, int64_t first, const int64_t *from, int64_t half, int64_t n,
                  int64_t *to) {
    int64_t i = 0, j = half;
    for (int64_t at = 0; at < n; at++) {
        bool right = i >= half ||
                     (j < n && before(s, first + from[j] * s->inner, first + from[i] * s->inner));
        to[at] = right ? from[j++] : from[i++];
    }
}

/* The indices of a row in order; either half of the scratch holds them. */
static const int64_t *sort(const search *s, int64_t first, int64_t *now, int64_t *next) {
    for (int64_t i = 0; i < s->n; i++)
        now[i] = i;
    for (int64_t width = 1; width < s->n; width *= 2) {
        for (int64_t at = 0; at < s->n; at += 2 * width) {
            int64_t n = s->n - at < 2 * width ? s->n - at : 2 * width;
            merge(s, first, now + at, n < width ? n : width, n, next + at);
        }
        int64_t *spare = now;
        now = next;
        next = spare;
    }
    return now;
}

static void run_rows(void *arg, size_t begin, size_t end, int worker) {
    const search *s = arg;
    size_t width = op_width(s->x->dtype);
    int64_t *room = (int64_t *)(void *)(s->scratch.base + (size_t)worker * s->scratch.stride);
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t outer = item / s->inner, column = item % s->inner;
        int64_t first = outer * s->n * s->inner + column, to = outer * s->k * s->inner + column;
        const int64_t *order = sort(s, first, room, room + s->n);
        for (int64_t i = 0; i < s->k; i++) {
            memcpy((char *)s->values->data + (size_t)(to + i * s->inner) * width,
                   (const char *)s->x->data + (size_t)(first + order[i] * s->inner) * width, width);
            s->indices[to + i * s->inner] = order[i];
        }
    }
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, X);
    const ir_dim *dims[GQAC_MAX_RANK], *k = NULL;
    int axis;
    GQAC_TRY(op_check_dtype(node, X, OP_NUMBERS, diag));
    GQAC_TRY(op_check_dtype(node, K, OP_BIT(I64), diag));
    if (type.rank >= 0) {
        GQAC_TRY(op_axis(node, ir_attr_int(node, "axis"), type.rank, &axis, diag));
        for (int i = 0; i < type.rank; i++)
            dims[i] = type.dims[i];
        dims[axis] = op_elements(node, K, 1, &k) == 1 ? k : NULL;
    }
    GQAC_TRY(op_set_type(node, 0, type.dtype, type.rank, type.rank < 0 ? NULL : dims, diag));
    return op_set_type(node, 1, GQAC_I64, type.rank, type.rank < 0 ? NULL : dims, diag);
}

static gqac_status eval(op_call *call) {
    int axis;
    int64_t dims[GQAC_MAX_RANK], k;
    GQAC_TRY(op_want_set(call, X, OP_NUMBERS));
    GQAC_TRY(op_want(call, K, GQAC_I64));
    GQAC_TRY(op_int(call, K, &k));
    const gqac_tensor *x = call->in[X];
    GQAC_TRY(op_axis(call->node, ir_attr_int(call->node, "axis"), x->rank, &axis, call->diag));
    if (k < 0 || k > x->dims[axis])
        OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE, "k = %lld of %lld elements",
                (long long)k, (long long)x->dims[axis]);
    for (int i = 0; i < x->rank; i++)
        dims[i] = i == axis ? k : x->dims[i];
    GQAC_TRY(op_output(call, 0, x->dtype, x->rank, dims));
    GQAC_TRY(op_output(call, 1, GQAC_I64, x->rank, dims));
    if (gqac_tensor_count(&call->out[0]) == 0)
        return GQAC_OK;
    search s = {.x = x,
                .values = &call->out[0],
                .indices = call->out[1].data,
                .n = x->dims[axis],
                .k = k,
                .inner = op_product(x->dims, axis + 1, x->rank),
                .largest = ir_attr_int(call->node, "largest") != 0};
    GQAC_TRY(op_scratch_open(call, (size_t)s.n, 2 * sizeof(int64_t), &s.scratch));
    op_parallel(call, gqac_tensor_count(x) / s.n, 20 + 60 * s.n, run_rows, &s);
    op_scratch_close(&s.scratch);
    return GQAC_OK;
}

static bool mixes(const ir_node *node) {
    return op_axis_is_row(ir_node_input(node, X), (int)ir_attr_int(node, "axis"));
}

static const ir_attr_spec attrs[] = {
    {.name = "axis",
     .kind = IR_ATTR_INT,
     .fallback = {.set = true, .i = -1},
     .doc = "axis to search"},
    {.name = "largest",
     .kind = IR_ATTR_INT,
     .fallback = {.set = true, .i = 1},
     .doc = "0: the least"},
    {.name = "sorted",
     .kind = IR_ATTR_INT,
     .fallback = {.set = true, .i = 1},
     .doc = "0: any order will do; they are sorted all the same"},
    {.name = NULL},
};

const gqac_op gqac_op_top_k = {
    .schema = {.name = "TopK",
               .domain = "",
               .since = 11,
               .inputs = "x k",
               .outputs = "values indices",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "the k greatest elements along an axis, and their indices"},
    .infer = infer,
    .eval = eval,
    .mixes = mixes,
};
