/* Rotary embeddings: x * cos + rotate_half(x) * sin becomes RotaryEmbedding, where rotate_half(x)
 * is (-x2, x1) of the halves of x, and the tables, made in the graph for each token, have two equal
 * halves, of which one is kept. x is [B,H,S,D]; the op is given [B,S,H*D]. */
#include "ops/build.h"
#include "ops/shared.h"
#include "passes/raise.h"

/* ---- the halves of x ----------------------------------------------------- */

/* Returns x if the node selects channels [first, first + half) of its D; else NULL. */
static ir_value *half_of(const ir_value *value, bool second, int64_t *size) {
    int64_t start, end, axis, step = 1, n;
    const ir_node *slice = raise_maker(value, "Slice"), *split = raise_maker(value, "Split");
    if (split) {
        ir_value *x = ir_node_input(split, 0);
        *size = x->type.rank == 4 ? raise_dim(x, 3) : 0;
        axis = ir_attr_int(split, "axis");
        return split->n_outputs == 2 && (axis == -1 || axis == 3) && value->result == (int)second &&
                       2 * raise_dim(value, 3) == *size
                   ? x
                   : NULL;
    }
    if (!slice || !ir_const_ints(ir_node_input(slice, 1), 1, &start, &n) ||
        !ir_const_ints(ir_node_input(slice, 2), 1, &end, &n) ||
        !ir_const_ints(ir_node_input(slice, 3), 1, &axis, &n) ||
        (ir_node_input(slice, 4) && !ir_const_ints(ir_node_input(slice, 4), 1, &step, &n)))
        return NULL;
    ir_value *x = ir_node_input(slice, 0);
    *size = x->type.rank == 4 ? raise_dim(x, 3) : 0;
    if (step != 1 || (axis != -1 && axis != 3) || *size < 2)
        return NULL;
    start += start < 0 ? *size : 0;
    end += end < 0 ? *size : 0;
    const int64_t half = *size / 2;
    return *size % 2 == 0 && (second ? start == half && end >= *size : start == 0 && end == half)
               ? x
               : NULL;
}

/* Returns the Concat if the value looks like rotate_half(x), a Concat with a piece of x in it; else
 * NULL.
 */
static const ir_node *looks_rotated(const ir_value *value) {
    const ir_node *concat = raise_maker(value, "Concat");
    if (!concat || concat->n_inputs != 2 || value->type.rank != 4)
        return NULL;
    for (int i = 0; i < 2; i++) {
        const ir_value *part = ir_node_input(concat, i);
        const ir_node *neg = raise_maker(part, "Neg");
        part = neg ? ir_node_input(neg, 0) : part;
        if (raise_maker(part, "Slice") || raise_maker(part, "Split"))
            return concat;
    }
    return NULL;
}

/* Returns x if the Concat is rotate_half(x). */
static ir_value *rotated(raise *r, const ir_node *concat) {
    int64_t size = 0;
    const ir_node *neg = raise_maker(ir_node_input(concat, 0), "Neg");
    const int64_t axis = ir_attr_int(concat, "axis");
    r->what = "RotaryEmbedding";
    if (!neg)
        return raise_stopped(r, concat, "its first part is not negated"), NULL;
    ir_value *x = half_of(ir_node_input(neg, 0), true, &size);
    if (!x)
        return raise_stopped(r, neg, "it does not negate the second half of [B,H,S,D]"), NULL;
    if (half_of(ir_node_input(concat, 1), false, &size) != x)
        return raise_stopped(r, concat, "its second part is not the first half of x"), NULL;
    if (axis != -1 && axis != 3)
        return raise_stopped(r, concat, "the halves are not concatenated along D"), NULL;
    return x;
}

/* ---- the tables ---------------------------------------------------------- */

enum { STEPS = 8 };

typedef struct table {
    ir_value *half;              /* [B,S,D/2], what `steps` are applied to */
    const ir_node *steps[STEPS]; /* from the table back */
    int n;
} table;

static bool is_pointwise(const ir_node *node) {
    static const char *const unary[] = {"Cos", "Sin", "Cast", NULL};
    double unused;
    if (*node->op->domain)
        return false;
    if (pass_listed(unary, node->op->name))
        return true;
    return op_is(node, "", "Mul") && raise_beside_scalar(node, &unused);
}

static ir_value *operand_of(const ir_node *step) {
    double unused;
    return op_is(step, "", "Mul") ? raise_beside_scalar(step, &unused) : ir_node_input(step, 0);
}

/* A table [B,1,S,D] or [B,S,D] is Concat(half, half), followed by pointwise steps. */
static bool read_table(raise *r, ir_value *value, table *t) {
    int64_t axis, n;
    const ir_node *unsqueeze = raise_maker(value, "Unsqueeze");
    if (value->type.rank != 4 || !unsqueeze)
        return raise_stopped(r, value->def ? value->def : r->b.before,
                             "the table is not [B,S,D] with an axis for heads");
    if (!ir_const_ints(ir_node_input(unsqueeze, 1), 1, &axis, &n) || n != 1 ||
        (axis != 1 && axis != -3))
        return raise_stopped(r, unsqueeze, "the axis for heads is not axis 1");
    value = ir_node_input(unsqueeze, 0);
    for (t->n = 0; value->def && is_pointwise(value->def) && t->n < STEPS; t->n++) {
        t->steps[t->n] = value->def;
        value = operand_of(value->def);
    }
    const ir_node *concat = raise_maker(value, "Concat");
    if (!concat || concat->n_inputs != 2 || ir_node_input(concat, 0) != ir_node_input(concat, 1))
        return raise_stopped(r, value->def ? value->def : unsqueeze,
                             "the halves of the table are not known to be equal");
    axis = ir_attr_int(concat, "axis");
    if (axis != -1 && axis != 2)
        return raise_stopped(r, concat, "the halves of the table are not of D");
    t->half = ir_node_input(concat, 0);
    return true;
}

/* Angles [B,S,h] that are the transposed matrix product of frequencies [B,h,1] and positions
 * [B,1,S] become an elementwise product: the sums had one term, and now no row depends on others.
 */
static ir_value *build_angles(raise *r, ir_value *value) {
    static const int64_t swap[] = {0, 2, 1};
    const ir_node *transpose = raise_maker(value, "Transpose");
    const ir_node *product = transpose ? raise_maker(ir_node_input(transpose, 0), "MatMul") : NULL;
    if (!product || !raise_is_perm(transpose, 3, swap))
        return value;
    ir_value *of[2] = {ir_node_input(product, 0), ir_node_input(product, 1)};
    const ir_node *expand = raise_maker(of[0], "Expand");
    if (expand && ir_node_input(expand, 0)->type.rank == 3)
        of[0] = ir_node_input(expand, 0);
    if (of[0]->type.rank != 3 || of[1]->type.rank != 3 || raise_dim(of[0], 2) != 1 ||
        raise_dim(of[1], 1) != 1)
        return value;
    for (int i = 0; i < 2; i++) {
        ir_value *old = OP_I64S(&r->b, i ? 1 : 2), *new = OP_I64S(&r->b, i ? 2 : 1);
        of[i] = OP_BUILD(&r->b, "Squeeze", .in = {of[i], old});
        of[i] = OP_BUILD(&r->b, "Unsqueeze", .in = {of[i], new});
    }
    return OP_BUILD(&r->b, "Mul", .in = {of[1], of[0]});
}

/* A product whose sums have one term, [..,M,1] times [..,1,N], becomes an elementwise product. An
 * optimiser may have moved the Transpose of angles away from it. */
ir_value *raise_outer(raise *r, ir_node *product) {
    static const int64_t swap[] = {0, 2, 1};
    ir_value *a = ir_node_input(product, 0), *b = ir_node_input(product, 1);
    if (a->type.rank != 3 || b->type.rank != 3 || raise_dim(a, 2) != 1 || raise_dim(b, 1) != 1)
        return NULL;
    for (const ir_use *use = product->outputs[0]->uses; use; use = use->next)
        if (op_is(use->node, "", "Transpose") && raise_is_perm(use->node, 3, swap))
            return NULL; /* raise_angles replaces it */
    return OP_BUILD(&r->b, "Mul", .in = {a, b});
}

/* Raised even if the rotary embedding is not, because then no row depends on others. */
ir_value *raise_angles(raise *r, ir_node *transpose) {
    ir_value *angles = transpose->outputs[0], *by = build_angles(r, angles);
    return by == angles ? NULL : by;
}

/* One half of the table, with a row for each token of x. */
static ir_value *build_table(raise *r, const table *t, ir_value *x) {
    ir_value *value = build_angles(r, t->half);
    if (raise_dim(t->half, 0) == 1 && raise_dim(x, 0) != 1) {
        ir_value *one = OP_I64S(&r->b, 1);
        value = raise_expand(r, value, 3, (ir_value *[]){raise_ask_dim(r, x, 0), one, one});
    }
    for (int i = t->n - 1; i >= 0; i--)
        value = raise_again(&r->b, t->steps[i], operand_of(t->steps[i]), value);
    return value;
}

/* ---- the whole ----------------------------------------------------------- */

typedef struct rotary {
    ir_value *x, *cos, *sin;
} rotary;

static bool read_sum(raise *r, const ir_node *add, rotary *found) {
    for (int i = 0; i < 4; i++) {
        const ir_node *with_sin = raise_maker(ir_node_input(add, i & 1), "Mul");
        const ir_node *concat = with_sin ? looks_rotated(ir_node_input(with_sin, i >> 1)) : NULL;
        if (!concat)
            continue;
        found->x = rotated(r, concat);
        found->sin = ir_node_input(with_sin, !(i >> 1));
        const ir_node *with_cos = raise_maker(ir_node_input(add, !(i & 1)), "Mul");
        for (int k = 0; found->x && with_cos && k < 2; k++)
            if (ir_node_input(with_cos, k) == found->x) {
                found->cos = ir_node_input(with_cos, 1 - k);
                return true;
            }
        return found->x && raise_stopped(r, add, "the other summand is not x times a table");
    }
    return false;
}

/* [B,S,D/2] or [1,S,D/2] for x [B,H,S,D] */
static bool is_for(const table *t, const ir_value *x) {
    const ir_type *half = &t->half->type;
    return half->rank == 3 && 2 * raise_dim(t->half, 2) == raise_dim(x, 3) && half->dims[1] &&
           half->dims[1] == x->type.dims[2] &&
           (half->dims[0] == x->type.dims[0] || raise_dim(t->half, 0) == 1);
}

ir_value *raise_rotary(raise *r, ir_node *add) {
    rotary found = {0};
    table cos, sin;
    if (!read_sum(r, add, &found))
        return NULL;
    const int64_t heads = raise_dim(found.x, 1), size = raise_dim(found.x, 3);
    if (!heads || !size)
        return raise_stopped(r, add, "heads or head size are not constant"), NULL;
    if (!read_table(r, found.cos, &cos) || !read_table(r, found.sin, &sin))
        return NULL;
    if (!is_for(&cos, found.x) || !is_for(&sin, found.x))
        return raise_stopped(r, add, "the tables do not have a row of D for each token of x"), NULL;
    ir_value *y = OP_BUILD(&r->b, "RotaryEmbedding",
                           .in = {raise_pack(r, found.x), build_table(r, &cos, found.x),
                                  build_table(r, &sin, found.x)},
                           .ints = {{"num_heads", heads}});
    return raise_unpack(r, y, heads, size);
}
