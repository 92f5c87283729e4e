/* Shared by the files of ops: helpers for infer and for eval. Families of kernels have headers of
 * their own: elementwise.h, reduction.h, copy.h, scatter.h. */
#ifndef GQAC_OPS_SHARED_H
#define GQAC_OPS_SHARED_H

#include "ops/op.h"
#include "ops/work.h"

enum { OP_MAX_ELEMENTS = 32 }; /* symbolic elements kept of an integer tensor */

/* ---- infer --------------------------------------------------------------- */

/* Types of input or output i. Absent inputs have an unknown type. */
ir_type op_in_type(const ir_node *node, int index);
bool op_in_known(const ir_node *node, int index); /* dtype and rank are known */
/* A dim of an input; a negative axis counts from the end. NULL: not known. */
const ir_dim *op_in_dim(const ir_node *node, int index, int axis);
ir_dims *op_dims(const ir_node *node);
/* Stores the shape of an input as a tensor without data; false: not all of its dims are
 * constant. */
bool op_in_shape(const ir_node *node, int index, gqac_tensor *shape);
/* Sets the type of an output, if it is used; dims are copied. Parts that are not known (dtype NONE,
 * rank -1, a dim NULL) keep their value in the output; a dim that has none becomes a new symbol.
 * dims NULL: no dim is known. NO_MEMORY. */
gqac_status op_set_type(ir_node *node, int index, gqac_dtype dtype, int rank,
                        const ir_dim *const *dims, gqac_diag *diag);
gqac_status op_set_type_like(ir_node *node, int index, ir_type type, gqac_diag *diag);
/* Sets the symbolic elements of an output; does nothing if n > OP_MAX_ELEMENTS. */
gqac_status op_set_elements(ir_node *node, int index, int64_t n, const ir_dim *const *elements,
                            gqac_diag *diag);
/* Stores the symbolic elements of an input: its `elements`, or those of a constant; entries may be
 * NULL, and bools are 0 and 1. Returns their number, at most `max`; -1: not known. */
int64_t op_elements(const ir_node *node, int input, int64_t max, const ir_dim **out);
/* Copies the symbolic elements of an input to an output of rank 0 or 1. */
gqac_status op_pass_elements(ir_node *node, int input, int output, gqac_diag *diag);
/* NumPy broadcasting of two symbolic shapes, whose ranks must be known. An unknown dim and a known
 * one > 1 give the known one. */
gqac_status op_broadcast_types(ir_node *node, const ir_type *a, const ir_type *b, int *rank,
                               const ir_dim **dims, gqac_diag *diag);
/* The same for one dim; NULL: not known. *bad is set if the two cannot be broadcast. */
const ir_dim *op_broadcast_dim(const ir_dim *a, const ir_dim *b, bool *bad);
/* Maps an axis in [-rank, rank) to [0, rank). INVALID_MODEL: it is not in that range. */
gqac_status op_axis(const ir_node *node, int64_t axis, int rank, int *out, gqac_diag *diag);
/* True if an axis may hold tokens or batch rows: its length is not constant, or the rank is not
 * known. A negative axis counts from the end. */
bool op_axis_is_row(const ir_value *value, int axis);
bool op_any_row(const ir_value *value);
/* `mixes` of an op that moves elements along its attribute `axis` of input 0. If that is an axis of
 * rows, an index means another row when tokens are split in another way. */
bool op_axis_mixes(const ir_node *node);
bool op_dim_nonneg(ir_dims *dims, const ir_dim *dim);   /* provably >= 0 */
bool op_dim_negative(ir_dims *dims, const ir_dim *dim); /* provably < 0 */
const ir_dim *op_dim_min(ir_dims *dims, const ir_dim *a, const ir_dim *b);
/* UNSUPPORTED: the dtype of an input is known and not in the set. */
gqac_status op_check_dtype(const ir_node *node, int input, unsigned set, gqac_diag *diag);
/* INVALID_MODEL: the rank of an input is known and not in [least, most]. */
gqac_status op_check_rank(const ir_node *node, int input, int least, int most, gqac_diag *diag);
/* Checks that an input can be a list of integers, as op_ints reads it. UNSUPPORTED: its type is
 * known and not i32 or i64, or its length is known and above `most`; INVALID_MODEL: its rank is
 * known and above 1. */
gqac_status op_check_list(const ir_node *node, int input, int64_t most, gqac_diag *diag);
/* INVALID_MODEL: an axis of an input is known to have another length than 1, so that the input is
 * not the single value that op_int reads. */
gqac_status op_check_single(const ir_node *node, int input, gqac_diag *diag);
/* INVALID_MODEL: the length of an axis of an input is a constant, and so is `wanted`, and they
 * differ. */
gqac_status op_check_length(const ir_node *node, int input, int axis, const ir_dim *wanted,
                            gqac_diag *diag);
/* The same as op_check_rank for an input that must broadcast to output 0, whose type is set. */
gqac_status op_check_broadcast(const ir_node *node, int input, gqac_diag *diag);
/* INVALID_MODEL: the dtypes of two inputs are known and differ. */
gqac_status op_check_same(const ir_node *node, int a, int b, gqac_diag *diag);
/* INVALID_MODEL: an attribute is set and not an integer in [least, most]. */
gqac_status op_check_int(const ir_node *node, const char *attr, int64_t least, int64_t most,
                         gqac_diag *diag);
/* INVALID_MODEL: an attribute is set and not finite, or negative although `negative` is false. */
gqac_status op_check_float(const ir_node *node, const char *attr, bool negative, gqac_diag *diag);
/* The index of a string attribute in a list of n names; n: it is none of them. */
int op_choice(const ir_node *node, const char *attr, int n, const char *const *names);
/* Fails with `status`, usually INVALID_MODEL, if it is none of them. */
gqac_status op_check_choice(const ir_node *node, const char *attr, int n, const char *const *names,
                            gqac_status status, gqac_diag *diag);
/* INVALID_MODEL: an attribute is not a power of two in [16, most]. */
gqac_status op_check_block(const ir_node *node, const char *attr, int64_t most, gqac_diag *diag);
/* The axes [start, end) of an operand with that rank whose lengths a Shape returns (shape.c). */
void op_shape_range(const ir_node *shape, int rank, int *start, int *end);
/* Fails and names the node as "node 'x' (Op)". */
#define OP_FAIL(node, diag, status, ...)                                                           \
    return op_fail((node), (diag), (status), __VA_ARGS__), (status)
gqac_status op_fail(const ir_node *node, gqac_diag *diag, gqac_status status, const char *fmt, ...)
    GQAC_PRINTF(4, 5);

/* ---- upgrade ------------------------------------------------------------- */

/* Makes `value` input `index` of a node, which may have fewer inputs so far. Returns the builder's
 * status. */
gqac_status op_put_input(ir_builder *b, ir_node *node, int index, ir_value *value);
/* Turns an INTS attribute of the file into a 1-D i64 input; does nothing if it is absent. */
gqac_status op_ints_to_input(ir_builder *b, ir_node *node, const op_raw_attrs *raw,
                             const char *name, int index);

/* ---- eval ---------------------------------------------------------------- */

/* op_work_broadcast, for an eval. */
gqac_status op_broadcast(op_call *call, const gqac_tensor *a, const gqac_tensor *b, int *rank,
                         int64_t *dims);
/* Reads an i32 or i64 tensor of at most `max` elements. */
gqac_status op_ints(op_call *call, int input, int64_t max, int64_t *out, int64_t *count);
/* Reads element `at` of input 1 as an index into an axis of input 0; negative ones count from the
 * end. OUT_OF_RANGE: there is no such index. */
gqac_status op_index(op_call *call, int64_t at, int axis, int64_t *index);
/* Reads an input of one integer or bool, of any rank. */
gqac_status op_int(op_call *call, int input, int64_t *out);
/* INVALID_INPUT: an input is absent, or has another dtype. GQAC_NONE: any dtype is accepted. */
gqac_status op_want(op_call *call, int input, gqac_dtype dtype);
gqac_status op_want_set(op_call *call, int input, unsigned set);
/* Allocates out[index] with that dtype and the shape of a tensor. */
gqac_status op_output_like(op_call *call, int index, gqac_dtype dtype, const gqac_tensor *shape);
/* The name of a node, for messages of code that does not see nodes. */
op_origin op_origin_of(const ir_node *node);
/* The op_work (ops/work.h) of an eval. */
static inline op_work op_work_of(const op_call *call) {
    return (op_work){.pool = call->pool,
                     .diag = call->diag,
                     .host = call->host,
                     .scratch = call->scratch,
                     .left = call->left};
}
/* The same with the node's name for messages in *origin, which must live as long as the op_work. */
static inline op_work op_work_at(const op_call *call, op_origin *origin) {
    op_work work = op_work_of(call);
    *origin = op_origin_of(call->node);
    work.origin = origin;
    return work;
}
/* Runs `items` items of about `cost` ns each, split over the pool. Nothing runs if all outputs are
 * allocated and empty. */
void op_parallel(op_call *call, int64_t items, int64_t cost,
                 void (*run)(void *arg, size_t begin, size_t end, int worker), void *arg);
gqac_status op_scratch_open(op_call *call, size_t count, size_t size, op_scratch *scratch);
gqac_status op_scratch_open_one(op_call *call, size_t count, size_t size, op_scratch *scratch);

/* Defines infer and eval of an op row from the fields of the record that its family uses. */
#define OP_FAMILY(record, family, ...)                                                             \
    static const record kernel = {__VA_ARGS__};                                                    \
    static gqac_status infer(ir_node *node, gqac_diag *diag) {                                     \
        return op_##family##_infer(node, &kernel, diag);                                           \
    }                                                                                              \
    static gqac_status eval(op_call *call) {                                                       \
        return op_##family##_eval(call, &kernel);                                                  \
    }

/* ---- cast ---------------------------------------------------------------- */

/* out[0] = input 0 as another type; see cast_shared.c. */
gqac_status op_cast(op_call *call, gqac_dtype to);
gqac_status op_cast_infer(ir_node *node, gqac_dtype to, gqac_diag *diag);

#endif
