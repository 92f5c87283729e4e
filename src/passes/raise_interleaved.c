/* Rotary embeddings whose pairs are neighbours: x * cos + rotate(x) * sin becomes RotaryEmbedding,
 * where rotate(x) is (-x1, x0, -x3, x2, ...), made by Concat along a new last axis, and the
 * tables [B,S,1,D] hold each angle of [B,S,D/2] twice. x is [B,S,H,D]; the op is given [B,S,H*D].
 */
#include "ops/build.h"
#include "passes/raise.h"

#include "ops/shared.h"

/* Returns x if the node selects every other channel of its D, from `start` on; else NULL. */
static ir_value *every_other(const ir_node *slice, int64_t start) {
    int64_t is[4], n;
    for (int i = 0; i < 4; i++)
        if (!ir_const_ints(ir_node_input(slice, i + 1), 1, &is[i], &n) || n != 1)
            return NULL;
    ir_value *x = ir_node_input(slice, 0);
    const int64_t size = x->type.rank == 4 ? raise_dim(x, 3) : 0;
    const bool last = is[2] == 3 || is[2] == -1;
    return size && size % 2 == 0 && is[0] == start && is[1] >= size && last && is[3] == 2 ? x
                                                                                          : NULL;
}

/* The operand of an Unsqueeze of the last axis of five. */
static const ir_value *without_axis(const ir_value *value) {
    const ir_node *unsqueeze = raise_maker(value, "Unsqueeze");
    return unsqueeze && value->type.rank == 5 && raise_dim(value, 4) == 1
               ? ir_node_input(unsqueeze, 0)
               : NULL;
}

/* Returns the Concat that rotates, if the value looks like one. */
static const ir_node *looks_rotated(const ir_value *value) {
    const ir_node *reshape = raise_maker(value, "Reshape");
    const ir_node *concat = reshape ? raise_maker(ir_node_input(reshape, 0), "Concat") : NULL;
    if (!concat || concat->n_inputs != 2 || concat->outputs[0]->type.rank != 5)
        return NULL;
    const ir_node *unsqueeze = raise_maker(ir_node_input(concat, 0), "Unsqueeze");
    const ir_node *inner = unsqueeze ? ir_node_input(unsqueeze, 0)->def : NULL;
    return inner && (op_is(inner, "", "Neg") || op_is(inner, "", "Slice")) ? concat : NULL;
}

/* Returns x if the Concat is its rotation. */
static ir_value *rotated(raise *r, const ir_node *concat) {
    const int64_t axis = ir_attr_int(concat, "axis");
    r->what = "RotaryEmbedding";
    const ir_node *neg = raise_maker(without_axis(ir_node_input(concat, 0)), "Neg");
    if (!neg)
        return raise_stopped(r, concat, "its first part is not negated"), NULL;
    const ir_node *odd = raise_maker(ir_node_input(neg, 0), "Slice");
    const ir_node *even = raise_maker(without_axis(ir_node_input(concat, 1)), "Slice");
    ir_value *x = odd ? every_other(odd, 1) : NULL;
    if (!x || !even || every_other(even, 0) != x)
        return raise_stopped(r, concat, "its parts are not the odd and the even channels of x"),
               NULL;
    if (axis != -1 && axis != 4)
        return raise_stopped(r, concat, "the pairs are not neighbours"), NULL;
    return x;
}

/* Returns [B,S,D/2] if the table [B,S,1,D] has each of its elements twice, next to each other. */
static ir_value *read_table(raise *r, ir_value *value, const ir_value *x) {
    const ir_node *reshape = raise_maker(value, "Reshape");
    ir_value *five = reshape ? ir_node_input(reshape, 0) : NULL;
    const ir_node *repeat = five ? raise_maker(five, "Tile") : NULL;
    if (five && !repeat)
        repeat = raise_maker(five, "Expand");
    const ir_node *place = repeat ? repeat : value->def ? value->def : r->b.before;
    ir_value *one = repeat ? ir_node_input(repeat, 0) : NULL, *half = one;
    for (const ir_node *add = raise_maker(half, "Unsqueeze"); add && half->type.rank > 3;
         add = raise_maker(half, "Unsqueeze"))
        half = ir_node_input(add, 0);
    bool twice = half && half->type.rank == 3 && one->type.rank == 5 && five->type.rank == 5 &&
                 value->type.rank == 4 && raise_dim(one, 4) == 1 && raise_dim(five, 4) == 2 &&
                 raise_dim(five, 2) == 1 && raise_dim(half, 2) > 1 && raise_dim(value, 2) == 1 &&
                 raise_dim(value, 3) == 2 * raise_dim(half, 2);
    for (int i = 0; twice && i < 4; i++)
        twice = one->type.dims[i] && one->type.dims[i] == five->type.dims[i] &&
                (i == 2 || one->type.dims[i] == half->type.dims[i == 3 ? 2 : i]);
    if (!twice)
        return raise_stopped(r, place, "the table does not contain each angle twice"), NULL;
    if (half->type.dims[0] != x->type.dims[0] || half->type.dims[1] != x->type.dims[1] ||
        2 * raise_dim(half, 2) != raise_dim(x, 3))
        return raise_stopped(r, place, "the tables do not have a row of D for each token of x"),
               NULL;
    return half;
}

static ir_value *build(raise *r, ir_value *x, ir_value *cos, ir_value *sin) {
    const int64_t heads = raise_dim(x, 2), size = raise_dim(x, 3);
    x = OP_RESHAPE(&r->b, x, 0, 0, heads * size);
    x = OP_BUILD(&r->b, "RotaryEmbedding", .in = {x, cos, sin},
                 .ints = {{"num_heads", heads}, {"interleaved", 1}});
    return OP_RESHAPE(&r->b, x, 0, 0, heads, size);
}

ir_value *raise_interleaved(raise *r, ir_node *add) {
    for (int i = 0; i < 4; i++) {
        const ir_node *with_sin = raise_maker(ir_node_input(add, i & 1), "Mul");
        const ir_node *concat = with_sin ? looks_rotated(ir_node_input(with_sin, i >> 1)) : NULL;
        if (!concat)
            continue;
        ir_value *x = rotated(r, concat), *table = NULL;
        const ir_node *with_cos = raise_maker(ir_node_input(add, !(i & 1)), "Mul");
        for (int k = 0; x && with_cos && k < 2; k++)
            if (ir_node_input(with_cos, k) == x)
                table = ir_node_input(with_cos, 1 - k);
        if (!x)
            return NULL;
        if (!table || !raise_dim(x, 2))
            return raise_stopped(r, add, "the other summand is not x [B,S,H,D] times a table"),
                   NULL;
        ir_value *cos = read_table(r, table, x);
        ir_value *sin = cos ? read_table(r, ir_node_input(with_sin, !(i >> 1)), x) : NULL;
        return sin ? build(r, x, cos, sin) : NULL;
    }
    return NULL;
}
