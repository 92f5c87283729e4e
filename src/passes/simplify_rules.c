/* The local rules of simplify. Each keeps every bit: elements are moved or dropped, never computed
 * anew. So x*1 and x+0 are for integers only: on floats they quiet a signalling NaN and turn -0
 * into 0. "Same shape" means equal symbolic dims, which are equal whatever the symbols stand for.
 */
#include "passes/simplify.h"

#include <string.h>

#include "ops/shared.h"

enum { MAX_LIST = 64 };

static ir_value *first(const ir_node *node) {
    return ir_node_input(node, 0);
}

/* Returns input 0 if it has the type of the output. */
static ir_value *same_type(ir_node *node) {
    ir_value *x = first(node), *y = ir_node_output(node, 0);
    return x && pass_same_type(x, y) ? x : NULL;
}

/* The same if each length of the shape is known to be 1 or that of the input; other lengths may
 * turn out not to broadcast, which a run must refuse. */
static ir_value *expand_to_same(ir_node *node) {
    const ir_value *x = first(node);
    const ir_dim *wanted[GQAC_MAX_RANK];
    const int64_t n = op_elements(node, 1, GQAC_MAX_RANK, wanted);
    int64_t length;
    if (!x || n < 0 || n > x->type.rank)
        return NULL;
    for (int64_t i = 0; i < n; i++)
        if (wanted[i] != x->type.dims[x->type.rank - n + i] &&
            !(ir_dim_is_const(wanted[i], &length) && length == 1))
            return NULL;
    return same_type(node);
}

/* The node that makes input 0, if it is of that ONNX op. */
static ir_node *maker(const ir_node *node, const char *op) {
    ir_value *x = first(node);
    return x && x->def && op_is(x->def, "", op) ? x->def : NULL;
}

/* ---- copies -------------------------------------------------------------- */

static ir_value *copy(ir_node *node) {
    return first(node);
}

/* At inference Dropout is a copy; training is refused on import. */
static ir_value *dropout(ir_node *node) {
    const ir_value *mask = ir_node_output(node, 1);
    const ir_value *mode = ir_node_input(node, 2);
    const gqac_tensor *training = pass_constant(mode);
    if ((mask && !ir_value_unused(mask)) || (mode && !training))
        return NULL;
    if (training && (gqac_tensor_count(training) != 1 || op_get_i64(training, 0)))
        return NULL;
    return first(node);
}

static ir_value *same_cast(ir_node *node) {
    ir_value *x = first(node);
    const gqac_dtype to = ir_node_output(node, 0)->type.dtype;
    return x && to != GQAC_NONE && x->type.dtype == to ? x : NULL;
}

/* A cast to a wider integer and back. */
static ir_value *cast_back(ir_node *node) {
    ir_node *inner = maker(node, "Cast");
    ir_value *x = inner ? first(inner) : NULL;
    if (!x)
        return NULL;
    const gqac_dtype a = x->type.dtype, b = first(node)->type.dtype;
    if (a != ir_node_output(node, 0)->type.dtype || !OP_IN(OP_INTS, a) || !OP_IN(OP_INTS, b))
        return NULL;
    const bool holds = gqac_dtype_is_signed(a) == gqac_dtype_is_signed(b)
                           ? gqac_dtype_bits(b) >= gqac_dtype_bits(a)
                           : gqac_dtype_is_signed(b) && gqac_dtype_bits(b) > gqac_dtype_bits(a);
    return holds ? x : NULL;
}

static ir_value *only_one(ir_node *node) {
    return node->n_inputs == 1 ? first(node) : NULL;
}

static ir_value *only_part(ir_node *node) {
    return node->n_outputs == 1 ? same_type(node) : NULL;
}

/* ---- shapes -------------------------------------------------------------- */

/* Ops that keep the elements and their order. */
static bool keeps_elements(const ir_node *node) {
    static const char *const ops[] = {"Reshape", "Unsqueeze", "Squeeze", "Flatten", NULL};
    return !*node->op->domain && pass_listed(ops, node->op->name);
}

/* A chain of such ops that returns to an earlier type. */
static ir_value *round_trip(ir_node *node) {
    const ir_value *y = ir_node_output(node, 0);
    ir_value *x = first(node);
    for (int i = 0; x && i < 8; i++) {
        if (pass_same_type(x, y))
            return x;
        x = x->def && keeps_elements(x->def) ? first(x->def) : NULL;
    }
    return NULL;
}

/* True if the shape of a Reshape means the same for x as for its present input: each entry is a
 * number, and those that copy a dim of the input find the same dim in x. */
static bool reads_alike(const ir_node *node, const ir_value *x) {
    const ir_value *old = first(node);
    int64_t shape[GQAC_MAX_RANK], n;
    if (!ir_const_ints(ir_node_input(node, 1), GQAC_MAX_RANK, shape, &n) || x->type.rank < 0)
        return false;
    const bool copies = !ir_attr_int(node, "allowzero");
    for (int i = 0; i < n; i++) {
        if (shape[i] || !copies)
            continue;
        if (i >= x->type.rank || i >= old->type.rank || !x->type.dims[i] ||
            x->type.dims[i] != old->type.dims[i])
            return false;
    }
    return true;
}

static ir_value *reshape_twice(ir_node *node) {
    const ir_value *old = first(node);
    ir_value *x = old->def && keeps_elements(old->def) ? first(old->def) : NULL;
    if (!x || !reads_alike(node, x))
        return NULL;
    ir_node_set_input(node, 0, x);
    return ir_node_output(node, 0);
}

static ir_value *unit_steps(ir_node *node) {
    const ir_value *steps = ir_node_input(node, 4);
    int64_t list[MAX_LIST], n = 0;
    if (steps && !ir_const_ints(steps, MAX_LIST, list, &n))
        return NULL;
    for (int64_t i = 0; i < n; i++)
        if (list[i] != 1)
            return NULL;
    return same_type(node); /* same length at step 1: nothing was cut */
}

/* The permutation of a Transpose; false when its rank is not known. */
static bool permutation(const ir_node *node, int *rank, int64_t *perm) {
    const ir_attr *attr = ir_attr_get(node, "perm");
    *rank = attr->set ? (int)attr->count : op_in_type(node, 0).rank;
    if (*rank < 0 || *rank > GQAC_MAX_RANK)
        return false;
    for (int i = 0; i < *rank; i++) {
        perm[i] = attr->set ? attr->ints[i] : *rank - 1 - i;
        if (perm[i] < 0 || perm[i] >= *rank)
            return false;
    }
    return true;
}

static ir_value *transpose_identity(ir_node *node) {
    int64_t perm[GQAC_MAX_RANK];
    int rank;
    if (!permutation(node, &rank, perm))
        return NULL;
    for (int i = 0; i < rank; i++)
        if (perm[i] != i)
            return NULL;
    return first(node);
}

static ir_value *transpose_twice(ir_node *node) {
    ir_node *inner = maker(node, "Transpose");
    int64_t p[GQAC_MAX_RANK], q[GQAC_MAX_RANK], both[GQAC_MAX_RANK];
    int rank, inner_rank;
    if (!inner || !permutation(inner, &inner_rank, p) || !permutation(node, &rank, q) ||
        rank != inner_rank)
        return NULL;
    for (int i = 0; i < rank; i++)
        both[i] = p[q[i]];
    if (!ir_attr_set_ints(node, "perm", (size_t)rank, both))
        return NULL;
    ir_node_set_input(node, 0, first(inner));
    return ir_node_output(node, 0);
}

/* A split of heads that were just merged. */
static ir_value *split_of_merged(ir_node *node) {
    const ir_value *packed = first(node);
    ir_node *merge =
        packed && packed->def && op_is(packed->def, "gqac", "merge_heads") ? packed->def : NULL;
    ir_value *x = merge ? first(merge) : NULL;
    return x && node->n_outputs == 1 && pass_same_type(x, ir_node_output(node, 0)) ? x : NULL;
}

/* ---- arithmetic ---------------------------------------------------------- */

/* True if every element of an integer constant is `wanted`. */
static bool filled_with(const ir_value *value, int64_t wanted) {
    const gqac_tensor *t = pass_constant(value);
    if (!t || !OP_IN(OP_INTS | OP_BIT(BOOL), t->dtype) || gqac_tensor_count(t) > MAX_LIST)
        return false;
    for (int64_t i = 0; i < gqac_tensor_count(t); i++)
        if (op_get_i64(t, i) != wanted)
            return false;
    return true;
}

/* Returns the other operand of a neutral element, if its type is that of the result. */
static ir_value *neutral(ir_node *node, int64_t element, bool both) {
    ir_value *y = ir_node_output(node, 0), *a = ir_node_input(node, 0), *b = ir_node_input(node, 1);
    if (!a || !b)
        return NULL;
    if (pass_same_type(a, y) && filled_with(b, element))
        return a;
    return both && pass_same_type(b, y) && filled_with(a, element) ? b : NULL;
}

static ir_value *add_zero(ir_node *node) {
    return neutral(node, 0, true);
}

static ir_value *sub_zero(ir_node *node) {
    return neutral(node, 0, false);
}

static ir_value *mul_one(ir_node *node) {
    return neutral(node, 1, true);
}

static ir_value *div_one(ir_node *node) {
    return neutral(node, 1, false);
}

static ir_value *not_twice(ir_node *node) {
    ir_node *inner = maker(node, "Not");
    return inner ? first(inner) : NULL;
}

static ir_value *decided_where(ir_node *node) {
    const ir_value *cond = ir_node_input(node, 0), *y = ir_node_output(node, 0);
    for (int side = 1; side <= 2; side++) {
        ir_value *x = ir_node_input(node, side);
        if (x && pass_same_type(x, y) && filled_with(cond, side == 1))
            return x;
    }
    return NULL;
}

/* ---- the table ----------------------------------------------------------- */

const simplify_rule simplify_rules[] = {
    {"identity", "", "Identity", copy},
    {"dropout", "", "Dropout", dropout},
    {"same cast", "", "Cast", same_cast},
    {"same cast like", "", "CastLike", same_cast},
    {"cast back", "", "Cast", cast_back},
    {"concat of one", "", "Concat", only_one},
    {"split into one", "", "Split", only_part},
    {"reshape round trip", "", "Reshape", round_trip},
    {"unsqueeze round trip", "", "Unsqueeze", round_trip},
    {"squeeze round trip", "", "Squeeze", round_trip},
    {"flatten round trip", "", "Flatten", round_trip},
    {"reshape twice", "", "Reshape", reshape_twice},
    {"slice of all", "", "Slice", unit_steps},
    {"expand to same", "", "Expand", expand_to_same},
    {"tile once", "", "Tile", same_type},
    {"transpose identity", "", "Transpose", transpose_identity},
    {"transpose twice", "", "Transpose", transpose_twice},
    {"split of merged", "gqac", "split_heads", split_of_merged},
    {"add zero", "", "Add", add_zero},
    {"sub zero", "", "Sub", sub_zero},
    {"mul one", "", "Mul", mul_one},
    {"div one", "", "Div", div_one},
    {"not twice", "", "Not", not_twice},
    {"decided where", "", "Where", decided_where},
    {.name = NULL},
};
