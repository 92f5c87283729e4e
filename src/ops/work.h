/* Shared by evals of ops and kernels of targets: access to elements of every type, work split over
 * threads, scratch, and failures that name their node. Nothing here knows the graph; code that
 * reads nodes includes ops/op.h. */
#ifndef GQAC_OPS_WORK_H
#define GQAC_OPS_WORK_H

#include <gqac/tensor.h>

#include "base/parts.h"
#include "base/pool.h"

/* ---- sets of element types ----------------------------------------------- */

#define OP_BIT(dtype)     (1u << GQAC_##dtype)
#define OP_FLOATS         (OP_BIT(F32) | OP_BIT(F16) | OP_BIT(BF16))
#define OP_SIGNED         (OP_BIT(I8) | OP_BIT(I16) | OP_BIT(I32) | OP_BIT(I64))
#define OP_UNSIGNED       (OP_BIT(U8) | OP_BIT(U16) | OP_BIT(U32) | OP_BIT(U64))
#define OP_INTS           (OP_SIGNED | OP_UNSIGNED)
#define OP_INDICES        (OP_BIT(I32) | OP_BIT(I64))
#define OP_NIBBLES        (OP_BIT(I4) | OP_BIT(U4))
#define OP_NUMBERS        (OP_FLOATS | OP_BIT(F64) | OP_INTS)
#define OP_ANY            (OP_NUMBERS | OP_BIT(BOOL) | OP_NIBBLES)
#define OP_IN(set, dtype) (((set) >> (dtype)) & 1u)

/* ---- elements ------------------------------------------------------------ */

/* Read or write an element of any numeric tensor, packed i4 and u4 included, as double or int64.
 * Integers wrap to the width of the type; a float is truncated (op_f64_to_i64). */
double op_get_f64(const gqac_tensor *tensor, int64_t index);
int64_t op_get_i64(const gqac_tensor *tensor, int64_t index);
void op_put_i64(gqac_tensor *tensor, int64_t index, int64_t value);
float op_get_f32(const gqac_tensor *tensor, int64_t index);       /* f32 f16 bf16: exact widening */
void op_put_f32(gqac_tensor *tensor, int64_t index, float value); /* one rounding on store */
/* Read or write n float elements (f32, f16, bf16) from `first` on, `stride` apart. */
void op_gather_f32(const gqac_tensor *tensor, int64_t first, int64_t n, int64_t stride, float *out);
void op_scatter_f32(gqac_tensor *tensor, int64_t first, int64_t n, int64_t stride,
                    const float *values);
void op_get_f32s(const gqac_tensor *tensor, int64_t first, int64_t n, float *out);
void op_put_f32s(gqac_tensor *tensor, int64_t first, int64_t n, const float *values);
/* Rounds towards zero and clamps; NaN becomes 0 (as numerics/convert.h does for f32). */
int64_t op_f64_to_i64(double value);
/* Bytes of one element; 0 for i4 and u4. */
size_t op_width(gqac_dtype dtype);
/* Row-major strides; returns the element count. */
int64_t op_strides(int rank, const int64_t *dims, int64_t *strides);
/* Product of dims[from..to). */
int64_t op_product(const int64_t *dims, int from, int to);

/* A box of elements to copy: out[first_out + sum i_k*stride_out[k]] = in[first_in + ...] for all
 * i_k < dims[k]. Strides count elements and may be 0 (in) or negative. The box must lie inside. */
enum { OP_BOX_RANK = 2 * GQAC_MAX_RANK };
typedef struct op_box {
    int rank;
    int64_t dims[OP_BOX_RANK];
    const gqac_tensor *in;
    gqac_tensor *out;
    int64_t first_in, first_out;
    int64_t stride_in[OP_BOX_RANK], stride_out[OP_BOX_RANK];
} op_box;

/* ---- work ---------------------------------------------------------------- */

/* The node for which work is done, for messages. */
typedef struct op_origin {
    const char *name, *domain, *op;
} op_origin;

typedef struct op_work {
    gqac_pool *pool; /* may be NULL */
    gqac_diag *diag;
    void *host;
    /* Returns memory for the duration of the call, aligned to 64 bytes; NULL: out of memory. The
     * function itself may be NULL: scratch then comes from the system. */
    void *(*scratch)(void *host, size_t bytes);
    const op_origin *origin; /* may be NULL: the caller names the node */
    /* Number of ns of work that may still be done, as op_work_parallel counts them; NULL: no limit.
     * Work that would take more is skipped, and so is all later work; *left then becomes its
     * complement, < 0. */
    int64_t *left;
} op_work;

/* Runs `items` items of about `cost` ns each, split over the pool. If the call is stopped, items
 * are skipped: code that uses their results as indices must call gqac_pool_stopped first. */
void op_work_parallel(const op_work *work, int64_t items, int64_t cost,
                      void (*run)(void *arg, size_t begin, size_t end, int worker), void *arg);
/* Scratch for every worker: each has `count * size` bytes at base + worker * stride. */
typedef struct op_scratch {
    unsigned char *base;
    size_t stride;
    void *owned; /* NULL: the memory is the host's, which reuses it after the call */
} op_scratch;
gqac_status op_work_scratch(const op_work *work, size_t count, size_t size, op_scratch *scratch);
/* One piece of scratch for all workers, at base. */
gqac_status op_work_scratch_one(const op_work *work, size_t count, size_t size,
                                op_scratch *scratch);
void op_scratch_close(op_scratch *scratch);
/* Add to `parts`, which only measures, the bytes that op_work_scratch takes with that many threads,
 * or that op_work_scratch_one takes. */
void op_scratch_measure(gqac_parts *parts, int threads, size_t count, size_t size);
void op_scratch_measure_one(gqac_parts *parts, size_t count, size_t size);

/* NumPy broadcasting of concrete shapes. */
gqac_status op_work_broadcast(const op_work *work, const gqac_tensor *a, const gqac_tensor *b,
                              int *rank, int64_t *dims);

/* Fails and names the node as "node 'x' (Op)". */
#define OP_STOP(work, status, ...) return op_stop((work), (status), __VA_ARGS__), (status)
gqac_status op_stop(const op_work *work, gqac_status status, const char *fmt, ...)
    GQAC_PRINTF(3, 4);

#endif
