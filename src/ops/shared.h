/* Shared by the files of ops: helpers for infer and for eval. Families of kernels have headers of
 * their own: elementwise.h, reduction.h, copy.h, scatter.h. */
#ifndef GQAC_OPS_SHARED_H
#define GQAC_OPS_SHARED_H

#include "ops/op.h"
#include "ops/work.h"

enum { OP_MAX_ELEMENTS = 32 }; /* symbolic elements kept of an integer tensor */

/* ---- infer --------------------------------------------------------------- */

/* Types of input/output i. Absent inputs have an unknown type. */
ir_type op_in_type(const ir_node *node, int index);
bool op_in_known(const ir_node *node, int index); /* dtype and rank are known */
/* NULL when not known; a negative axis counts from the end. */
const ir_dim *op_in_dim(const ir_node *node, int index, int axis);
ir_dims *op_dims(const ir_node *node);
/* The shape of an input all of whose dims are constant, as a tensor without data; else false. */
bool op_in_shape(const ir_node *node, int index, gqac_tensor *shape);
/* Sets the type of an output that is wanted; dims are copied. NO_MEMORY when memory is short. Parts
 * that are not known (dtype NONE, rank -1, a dim NULL) stay as they were in the output; a dim that
 * was not known either becomes a new symbol. dims NULL: no dim is known. */
gqac_status op_set_type(ir_node *node, int index, gqac_dtype dtype, int rank,
                        const ir_dim *const *dims, gqac_diag *diag);
gqac_status op_set_type_like(ir_node *node, int index, ir_type type, gqac_diag *diag);
/* Does nothing when n > OP_MAX_ELEMENTS. */
gqac_status op_set_elements(ir_node *node, int index, int64_t n, const ir_dim *const *elements,
                            gqac_diag *diag);
/* Symbolic integer elements of a value: its `elements`, or those of a small constant. Returns the
 * count, -1 when not known; entries may be NULL. At most max. Bools are 0 and 1. */
int64_t op_elements(const ir_node *node, int input, int64_t max, const ir_dim **out);
/* Copies the symbolic elements of an input to an output of rank 0 or 1. */
gqac_status op_pass_elements(ir_node *node, int input, int output, gqac_diag *diag);
/* NumPy broadcasting of the shapes of two types, symbolic (an unknown dim with a known one > 1
 * becomes the known one). Both ranks must be known. */
gqac_status op_broadcast_types(ir_node *node, const ir_type *a, const ir_type *b, int *rank,
                               const ir_dim **dims, gqac_diag *diag);
/* The same for a dim; NULL when not known. *bad is set when the two cannot be broadcast. */
const ir_dim *op_broadcast_dim(const ir_dim *a, const ir_dim *b, bool *bad);
/* Axis in [-rank, rank) to [0, rank); INVALID_MODEL otherwise. */
gqac_status op_axis(const ir_node *node, int64_t axis, int rank, int *out, gqac_diag *diag);
/* An axis whose length is not constant holds tokens or batch rows. A negative axis counts from the
 * end; true when the rank is not known. */
bool op_axis_is_row(const ir_value *value, int axis);
bool op_any_row(const ir_value *value);
/* `mixes` of an op that moves elements along axis `axis` (an attribute) of input 0: an index of a
 * row in one call is another row in another split. */
bool op_axis_mixes(const ir_node *node);
bool op_dim_nonneg(ir_dims *dims, const ir_dim *dim);   /* provably >= 0 */
bool op_dim_negative(ir_dims *dims, const ir_dim *dim); /* provably < 0 */
const ir_dim *op_dim_min(ir_dims *dims, const ir_dim *a, const ir_dim *b);
/* UNSUPPORTED when an input's dtype is known and not in the set. */
gqac_status op_check_dtype(const ir_node *node, int input, unsigned set, gqac_diag *diag);
/* INVALID_MODEL when an input's rank is known and not in [least, most]. */
gqac_status op_check_rank(const ir_node *node, int input, int least, int most, gqac_diag *diag);
/* The same for the rank of an input that must broadcast to output 0, whose type is set. */
gqac_status op_check_broadcast(const ir_node *node, int input, gqac_diag *diag);
/* INVALID_MODEL when two inputs' dtypes are known and differ. */
gqac_status op_check_same(const ir_node *node, int a, int b, gqac_diag *diag);
/* INVALID_MODEL when an attribute that is set is not an integer in [least, most]. */
gqac_status op_check_int(const ir_node *node, const char *attr, int64_t least, int64_t most,
                         gqac_diag *diag);
/* INVALID_MODEL when an attribute that is set is no finite float, or is negative and `negative`
 * does not allow that. */
gqac_status op_check_float(const ir_node *node, const char *attr, bool negative, gqac_diag *diag);
/* The index of a string attribute in a list of n names; n when it is none of these. */
int op_choice(const ir_node *node, const char *attr, int n, const char *const *names);
/* INVALID_MODEL when an attribute is not a power of two in [16, most]. */
gqac_status op_check_block(const ir_node *node, const char *attr, int64_t most, gqac_diag *diag);
/* Fails, naming the place as "node 'x' (Op)". */
#define OP_FAIL(node, diag, status, ...)                                                           \
    return op_fail((node), (diag), (status), __VA_ARGS__), (status)
gqac_status op_fail(const ir_node *node, gqac_diag *diag, gqac_status status, const char *fmt, ...)
    GQAC_PRINTF(4, 5);

/* ---- upgrade ------------------------------------------------------------- */

/* Makes `value` input `index` of a node, which may have fewer inputs. Returns the builder's
 * status. */
gqac_status op_put_input(ir_builder *b, ir_node *node, int index, ir_value *value);
/* Turns an INTS attribute of the file into a 1-D i64 input; does nothing when it is absent. */
gqac_status op_ints_to_input(ir_builder *b, ir_node *node, const op_raw_attrs *raw,
                             const char *name, int index);

/* ---- eval ---------------------------------------------------------------- */

/* op_work_broadcast, for an eval. */
gqac_status op_broadcast(op_call *call, const gqac_tensor *a, const gqac_tensor *b, int *rank,
                         int64_t *dims);
/* An i32 or i64 tensor of at most max elements as int64. */
gqac_status op_ints(op_call *call, int input, int64_t max, int64_t *out, int64_t *count);
/* Element `at` of input 1 as an index into an axis of input 0; negative ones count from the end.
 * OUT_OF_RANGE. */
gqac_status op_index(op_call *call, int64_t at, int axis, int64_t *index);
/* A single integer or bool (any rank). */
gqac_status op_int(op_call *call, int input, int64_t *out);
/* Checks the presence and dtype of an input of eval; INVALID_INPUT. GQAC_NONE: any dtype. */
gqac_status op_want(op_call *call, int input, gqac_dtype dtype);
gqac_status op_want_set(op_call *call, int input, unsigned set);
/* out[index] gets that dtype and the shape of a tensor. */
gqac_status op_output_like(op_call *call, int index, gqac_dtype dtype, const gqac_tensor *shape);
/* The node, for messages of code that has no access to nodes. */
op_origin op_origin_of(const ir_node *node);
/* Work in out[index], and scratch for it: as in ops/work.h. */
static inline op_work op_work_of(const op_call *call) {
    return (op_work){.pool = call->pool,
                     .diag = call->diag,
                     .host = call->host,
                     .scratch = call->scratch,
                     .left = call->left};
}
/* The same with the name of the node for messages, in *origin, which must live as long. */
static inline op_work op_work_at(const op_call *call, op_origin *origin) {
    op_work work = op_work_of(call);
    *origin = op_origin_of(call->node);
    work.origin = origin;
    return work;
}
/* `items` of about `cost` ns each, split over the pool; no item when all outputs are allocated and
 * empty. */
void op_parallel(op_call *call, int64_t items, int64_t cost,
                 void (*run)(void *arg, size_t begin, size_t end, int worker), void *arg);
gqac_status op_scratch_open(op_call *call, size_t count, size_t size, op_scratch *scratch);
gqac_status op_scratch_open_one(op_call *call, size_t count, size_t size, op_scratch *scratch);

/* infer and eval of a row, from the fields of the record that infer and eval of its family take. */
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
