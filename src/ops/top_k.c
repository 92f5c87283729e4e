/* TopK: the k greatest (largest 0: least) elements along one axis, in order, and their indices.
 * Equal elements are in the order of their indices; NaN is greater than every number. Source: ONNX
 * operator spec. A row is read once. Elements greater than the k-th so far are kept in a buffer of
 * about 2 k entries; when it is full, it is merge-sorted and cut to k. That takes n log k time for
 * any row, and hardly more than reading it if the order is random. */
#include "ops/elementwise.h"
#include "ops/reduction.h"

#include <string.h>

enum { X, K, SPARE = 64 };

typedef struct entry {
    int64_t key, index;
} entry;

typedef struct search {
    const gqac_tensor *x;
    gqac_tensor *values;
    int64_t *indices;
    int64_t n, k, inner;
    int64_t capacity; /* maximum number of entries, >= k */
    op_order order;
    op_scratch scratch;
} search;

/* Merges the sorted runs [0,half) and [half,n) of `from` into `to`; of equal entries the left one
 * first. */
static void merge(const entry *from, int64_t half, int64_t n, entry *to) {
    int64_t i = 0, j = half;
    for (int64_t at = 0; at < n; at++) {
        bool right = i >= half || (j < n && from[j].key > from[i].key);
        to[at] = right ? from[j++] : from[i++];
    }
}

/* Sorts the entries; *entries and *spare may exchange their memory. */
static void sort(entry **entries, entry **spare, int64_t n) {
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t at = 0; at < n; at += 2 * width) {
            int64_t m = n - at < 2 * width ? n - at : 2 * width;
            merge(*entries + at, m < width ? m : width, m, *spare + at);
        }
        entry *sorted = *spare;
        *spare = *entries;
        *entries = sorted;
    }
}

/* The first k of a row, in order. New entries have later indices than those that are kept, so one
 * that equals the k-th does not replace it. */
static const entry *select(const search *s, int64_t first, entry *kept, entry *spare) {
    int64_t keys[OP_SPAN], count = 0, least = INT64_MIN;
    bool full = false; /* k entries are known: only elements greater than `least` matter */
    for (int64_t from = 0; from < s->n; from += OP_SPAN) {
        const int64_t n = s->n - from < OP_SPAN ? s->n - from : OP_SPAN;
        op_order_keys(s->x, first + from * s->inner, n, s->inner, &s->order, keys);
        if (full && op_order_greatest(keys, n) <= least)
            continue;
        for (int64_t i = 0; i < n; i++) {
            if (full && keys[i] <= least)
                continue;
            if (count == s->capacity) {
                sort(&kept, &spare, count);
                count = s->k;
                least = kept[count - 1].key;
                full = true;
                if (keys[i] <= least)
                    continue;
            }
            kept[count++] = (entry){keys[i], from + i};
        }
    }
    sort(&kept, &spare, count);
    return kept;
}

static void run_rows(void *arg, size_t begin, size_t end, int worker) {
    const search *s = arg;
    size_t width = op_width(s->x->dtype);
    entry *entries = (entry *)(void *)(s->scratch.base + (size_t)worker * s->scratch.stride);
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t outer = item / s->inner, column = item % s->inner;
        int64_t first = outer * s->n * s->inner + column, to = outer * s->k * s->inner + column;
        const entry *order = select(s, first, entries, entries + s->capacity);
        for (int64_t i = 0; i < s->k; i++) {
            const int64_t at = order[i].index;
            memcpy((char *)s->values->data + (size_t)(to + i * s->inner) * width,
                   (const char *)s->x->data + (size_t)(first + at * s->inner) * width, width);
            s->indices[to + i * s->inner] = at;
        }
    }
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, X);
    const ir_dim *dims[GQAC_MAX_RANK], *k = NULL;
    int64_t wanted, length;
    int axis;
    GQAC_TRY(op_check_dtype(node, X, OP_NUMBERS, diag));
    GQAC_TRY(op_check_dtype(node, K, OP_BIT(I64), diag));
    GQAC_TRY(op_check_single(node, K, diag));
    if (type.rank >= 0) {
        GQAC_TRY(op_axis(node, ir_attr_int(node, "axis"), type.rank, &axis, diag));
        for (int i = 0; i < type.rank; i++)
            dims[i] = type.dims[i];
        dims[axis] = op_elements(node, K, 1, &k) == 1 ? k : NULL;
        if (ir_dim_is_const(k, &wanted) &&
            (wanted < 0 || (ir_dim_is_const(type.dims[axis], &length) && wanted > length)))
            OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                    "k = %lld is negative or exceeds the length of axis %d", (long long)wanted,
                    axis);
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
        OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                "k = %lld is not in the range 0 to %lld, the length of the axis", (long long)k,
                (long long)x->dims[axis]);
    for (int i = 0; i < x->rank; i++)
        dims[i] = i == axis ? k : x->dims[i];
    GQAC_TRY(op_output(call, 0, x->dtype, x->rank, dims));
    GQAC_TRY(op_output(call, 1, GQAC_I64, x->rank, dims));
    if (gqac_tensor_count(&call->out[0]) == 0)
        return GQAC_OK;
    const bool largest = ir_attr_int(call->node, "largest") != 0;
    search s = {.x = x,
                .values = &call->out[0],
                .indices = call->out[1].data,
                .n = x->dims[axis],
                .k = k,
                .inner = op_product(x->dims, axis + 1, x->rank),
                .order = {.least = !largest, .nan_first = largest}};
    s.capacity = s.n < 2 * k + SPARE ? s.n : 2 * k + SPARE;
    GQAC_TRY(op_scratch_open(call, (size_t)s.capacity, 2 * sizeof(entry), &s.scratch));
    op_parallel(call, gqac_tensor_count(x) / s.n, 20 + s.n + 20 * s.capacity, run_rows, &s);
    op_scratch_close(&s.scratch);
    return GQAC_OK;
}

static bool mixes(const ir_node *node) {
    return op_axis_is_row(ir_node_input(node, X), (int)ir_attr_int(node, "axis"));
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("axis", -1, "axis to search"),
    OP_ATTR_INT("largest", 1, "0: the least"),
    OP_ATTR_INT("sorted", 1, "0: any order will do; they are sorted all the same"),
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
