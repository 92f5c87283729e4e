/* Einsum: a letter names each axis of the operands; elements with equal letters are multiplied, and
 * summed over the letters that the result does not have. Source: ONNX operator spec.
 *
 * Becomes Transpose, Reshape and MatMul, one operand at a time. Letters that both factors have
 * become a batch if a later operand or the result has them, else the k of the product. If MatMul
 * cannot do it (integers, f64, letters whose lengths may differ: see fits_matmul), the product is
 * Mul and ReduceSum. A letter that an operand has twice selects a diagonal, before anything else.
 * More than 8 letters that are needed at once are not supported. The axes of an ellipsis are
 * letters after those of the alphabet, counted from the last axis. */
#include "ops/build.h"
#include "ops/shared.h"

#include <string.h>

enum { MOST = 64, LETTERS = 52, NO_LETTER = -1, ELLIPSIS = -2 };

/* The letters of an operand or of the result, one for each axis. */
typedef struct term {
    int n, at[GQAC_MAX_RANK];
} term;

typedef struct equation {
    int n; /* operands */
    term in[MOST], out;
} equation;

static int letter_of(char c) {
    return c >= 'a' && c <= 'z' ? c - 'a' + 26 : c >= 'A' && c <= 'Z' ? c - 'A' : NO_LETTER;
}

static int find(const term *t, int letter) {
    for (int i = 0; i < t->n; i++)
        if (t->at[i] == letter)
            return i;
    return -1;
}

/* ---- the equation -------------------------------------------------------- */

static const char *const broken = "the equation is not like \"bij,bjk->bik\"";

/* Reads one term of the text; an ellipsis is one entry. */
static const char *read_term(const char *text, term *t) {
    *t = (term){0};
    for (; *text && *text != ',' && *text != '-'; text++) {
        if (*text == ' ')
            continue;
        const bool dots = !strncmp(text, "...", 3);
        const int letter = dots ? ELLIPSIS : letter_of(*text);
        if (letter == NO_LETTER || t->n == GQAC_MAX_RANK || (dots && find(t, ELLIPSIS) >= 0))
            return NULL;
        t->at[t->n++] = letter;
        text += dots ? 2 : 0;
    }
    return text;
}

/* The ellipsis becomes `count` letters, the last of which is the same in every term. */
static bool open_ellipsis(term *t, int count) {
    const term old = *t;
    if (find(t, ELLIPSIS) < 0)
        return true;
    if (count < 0 || old.n - 1 + count > GQAC_MAX_RANK)
        return false;
    t->n = 0;
    for (int i = 0; i < old.n; i++) {
        if (old.at[i] != ELLIPSIS)
            t->at[t->n++] = old.at[i];
        for (int k = count; old.at[i] == ELLIPSIS && k > 0; k--)
            t->at[t->n++] = LETTERS + k;
    }
    return true;
}

/* Without "->" the result has the ellipsis and the letters that occur once, in their order. */
static bool imply_result(equation *e) {
    e->out = (term){.n = 1, .at = {ELLIPSIS}};
    for (int letter = 0; letter < LETTERS; letter++) {
        int times = 0;
        for (int i = 0; i < e->n; i++)
            for (int k = 0; k < e->in[i].n; k++)
                times += e->in[i].at[k] == letter;
        if (times == 1 && e->out.n == GQAC_MAX_RANK)
            return false;
        if (times == 1)
            e->out.at[e->out.n++] = letter;
    }
    return true;
}

/* The first axis whose letter an earlier axis has; -1: none. */
static int find_twice(const term *t) {
    for (int i = 0; i < t->n; i++)
        if (find(t, t->at[i]) != i)
            return i;
    return -1;
}

static gqac_status read_text(const ir_node *node, equation *e, gqac_diag *diag) {
    const char *text = ir_attr_get(node, "equation")->s;
    bool ends = false;
    for (e->n = 0; text && !ends && e->n < MOST; e->n++) {
        text = read_term(text, &e->in[e->n]);
        ends = text && *text != ',';
        text = text && *text == ',' ? text + 1 : text;
    }
    const bool given = text && text[0] == '-' && text[1] == '>';
    if (given)
        text = read_term(text + 2, &e->out);
    else if (text && !imply_result(e))
        text = NULL;
    if (!text || *text || !ends)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%s", broken);
    if (e->n != node->n_inputs)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the equation has %d operands, but the node has %d",
                e->n, node->n_inputs);
    return GQAC_OK;
}

static gqac_status check_letters(const ir_node *node, const equation *e, gqac_diag *diag) {
    if (find_twice(&e->out) >= 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the result has a letter twice");
    for (int k = 0; k < e->out.n; k++) {
        bool known = e->out.at[k] == ELLIPSIS;
        for (int i = 0; i < e->n; i++)
            known = known || find(&e->in[i], e->out.at[k]) >= 0;
        if (!known)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the result has a letter of no operand");
    }
    return GQAC_OK;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    equation e;
    GQAC_TRY(read_text(node, &e, diag));
    return check_letters(node, &e, diag);
}

/* The equation with a letter for each axis; UNSUPPORTED when ranks are not known. */
static gqac_status read_equation(const ir_node *node, equation *e, gqac_diag *diag) {
    int most = 0;
    GQAC_TRY(verify(node, diag));
    GQAC_TRY(read_text(node, e, diag));
    for (int i = 0; i < e->n; i++) {
        const int rank = op_in_type(node, i).rank;
        const bool dots = find(&e->in[i], ELLIPSIS) >= 0;
        const int count = rank - (e->in[i].n - dots);
        if (rank < 0)
            OP_FAIL(node, diag, GQAC_UNSUPPORTED, "the rank of operand %d is not known", i);
        if (count < 0 || (!dots && count) || !open_ellipsis(&e->in[i], count))
            OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                    "operand %d has rank %d, but the equation has %d letters for it", i, rank,
                    e->in[i].n - dots);
        most = dots && count > most ? count : most;
    }
    if (!open_ellipsis(&e->out, most))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the result has more than %d axes", GQAC_MAX_RANK);
    return GQAC_OK;
}

/* ---- types --------------------------------------------------------------- */

/* The length of a letter in the operands [first, end); 1 is broadcast. */
static gqac_status dim_of(const ir_node *node, const equation *e, int first, int end, int letter,
                          const ir_dim **out, gqac_diag *diag) {
    *out = ir_dim_const(op_dims(node), 1);
    for (int i = first; i < end; i++) {
        bool bad = false;
        const int axis = find(&e->in[i], letter);
        if (axis < 0)
            continue;
        *out = op_broadcast_dim(*out, op_in_dim(node, i, axis), &bad);
        if (bad)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                    "axis %d of operand %d has another length than the axes with the same letter",
                    axis, i);
    }
    return GQAC_OK;
}

/* The axes of a diagonal have the same length. */
static gqac_status check_diagonals(const ir_node *node, const equation *e, gqac_diag *diag) {
    for (int i = 0; i < e->n; i++)
        for (int k = 0; k < e->in[i].n; k++) {
            const int first = find(&e->in[i], e->in[i].at[k]);
            int64_t x, y;
            if (ir_dim_is_const(op_in_dim(node, i, first), &x) &&
                ir_dim_is_const(op_in_dim(node, i, k), &y) && x != y)
                OP_FAIL(
                    node, diag, GQAC_INVALID_MODEL,
                    "axes %d and %d of operand %d have the same letter, but lengths %lld and %lld",
                    first, k, i, (long long)x, (long long)y);
        }
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    equation e;
    const ir_dim *dims[GQAC_MAX_RANK];
    GQAC_TRY(verify(node, diag));
    GQAC_TRY(op_check_dtype(node, 0, OP_NUMBERS, diag));
    for (int i = 1; i < node->n_inputs; i++)
        GQAC_TRY(op_check_same(node, 0, i, diag));
    for (int i = 0; i < node->n_inputs; i++)
        if (op_in_type(node, i).rank < 0)
            return op_set_type(node, 0, op_in_type(node, 0).dtype, -1, NULL, diag);
    GQAC_TRY(read_equation(node, &e, diag));
    GQAC_TRY(check_diagonals(node, &e, diag));
    for (int i = 0; i < e.n; i++)
        for (int k = 0; k < e.in[i].n; k++)
            GQAC_TRY(dim_of(node, &e, 0, e.n, e.in[i].at[k], &dims[0], diag));
    for (int i = 0; i < e.out.n; i++)
        GQAC_TRY(dim_of(node, &e, 0, e.n, e.out.at[i], &dims[i], diag));
    return op_set_type(node, 0, op_in_type(node, 0).dtype, e.out.n, dims, diag);
}

/* Rows are mixed when a letter of rows is summed, or when another operand that is not constant
 * lacks that letter and so is multiplied with every row. */
static bool mixes(const ir_node *node) {
    equation e;
    gqac_diag unused = {0};
    if (read_equation(node, &e, &unused) != GQAC_OK)
        return true;
    for (int i = 0; i < e.n; i++)
        for (int k = 0; k < e.in[i].n; k++) {
            const ir_value *value = ir_node_input(node, i);
            if (value->constant || !op_axis_is_row(value, k))
                continue;
            bool apart = find(&e.out, e.in[i].at[k]) >= 0;
            for (int j = 0; j < e.n; j++)
                apart = apart &&
                        (ir_node_input(node, j)->constant || find(&e.in[j], e.in[i].at[k]) >= 0);
            if (!apart)
                return true;
        }
    return false;
}

/* ---- expansion ----------------------------------------------------------- */

typedef struct made { /* a value and the letters of its axes */
    ir_value *value;
    term t;
} made;

static void add(term *t, int letter) {
    if (t->n < GQAC_MAX_RANK)
        t->at[t->n++] = letter;
}

static made build_order(ir_builder *b, const made *x, const term *order) {
    int64_t perm[GQAC_MAX_RANK];
    bool same = true;
    for (int i = 0; i < order->n; i++) {
        perm[i] = find(&x->t, order->at[i]);
        same = same && perm[i] == i;
    }
    return same ? *x : (made){op_build_transpose(b, x->value, order->n, perm), *order};
}

/* x summed over the letters that are not kept. */
static made build_sum(ir_builder *b, made x, const term *kept) {
    term left = {0};
    int64_t axes[GQAC_MAX_RANK], n = 0;
    for (int i = 0; i < x.t.n; i++) {
        if (find(kept, x.t.at[i]) >= 0)
            add(&left, x.t.at[i]);
        else
            axes[n++] = i;
    }
    if (!n)
        return x;
    x.value = OP_BUILD(b, "ReduceSum", .in = {x.value, ir_build_i64s(b, n, axes)},
                       .ints = {{"keepdims", 0}});
    return (made){x.value, left};
}

/* The lengths of axes [first, first + n) of x, or their product; [1] for n = 0. */
static ir_value *build_lengths(ir_builder *b, ir_value *x, int first, int n, bool product) {
    if (n == 0)
        return OP_I64S(b, 1);
    ir_value *lengths = op_build_lengths(b, x, first, n);
    return product && n > 1 ? OP_BUILD(b, "ReduceProd", .in = {lengths}) : lengths;
}

static ir_value *build_reshape(ir_builder *b, ir_value *x, int n, ir_value **parts) {
    ir_value *shape = op_build_concat(b, 0, n, parts);
    return OP_BUILD(b, "Reshape", .in = {x, shape},
                    .ints = {{"allowzero", 1}}); /* a 0 is a length */
}

/* [batch..., first..., second...] with one axis for each of the last two groups. */
static ir_value *build_matrix(ir_builder *b, ir_value *x, int batch, int first, int second) {
    if (first == 1 && second == 1)
        return x;
    ir_value *parts[3], **at = parts;
    if (batch)
        *at++ = build_lengths(b, x, 0, batch, false);
    *at++ = build_lengths(b, x, batch, first, true);
    *at++ = build_lengths(b, x, batch + first, second, true);
    return build_reshape(b, x, (int)(at - parts), parts);
}

/* The diagonal [..., n] of the last two axes of x [..., n, n]: every (n + 1)st of n * n
 * elements. */
static ir_value *build_diagonal(ir_builder *b, ir_value *x, int rank) {
    ir_value *n = build_lengths(b, x, rank - 1, 1, false), *parts[2], **at = parts;
    if (rank > 2)
        *at++ = build_lengths(b, x, 0, rank - 2, false);
    *at++ = OP_BUILD(b, "Mul", .in = {n, n});
    x = build_reshape(b, x, (int)(at - parts), parts);
    ir_value *step = OP_BUILD(b, "Add", .in = {n, ir_build_i64(b, 1)});
    return OP_BUILD(b, "Slice",
                    .in = {x, OP_I64S(b, 0), OP_I64S(b, INT64_MAX), OP_I64S(b, rank - 2), step});
}

/* x with two axes of the same letter replaced by their diagonal, as the last axis. */
static made build_once(ir_builder *b, const made *x, int first, int twice) {
    int64_t perm[GQAC_MAX_RANK], n = 0;
    made y = {.value = NULL};
    for (int k = 0; k < x->t.n; k++)
        if (k != first && k != twice) {
            perm[n++] = k;
            add(&y.t, x->t.at[k]);
        }
    perm[n++] = first;
    perm[n++] = twice;
    add(&y.t, x->t.at[first]);
    y.value = build_diagonal(b, op_build_transpose(b, x->value, n, perm), (int)n);
    return y;
}

/* An operand whose letters are all different. */
static made build_operand(ir_builder *b, const ir_node *node, const equation *e, int i) {
    made x = {ir_node_input(node, i), e->in[i]};
    for (int twice; (twice = find_twice(&x.t)) >= 0;)
        x = build_once(b, &x, find(&x.t, x.t.at[twice]), twice);
    return x;
}

/* The letters of x and y, by their part in the product. */
typedef struct groups {
    term batch, x, y, summed;
} groups;

/* True if the result, or an operand from `next` on, has the letter. */
static bool is_needed(const equation *e, int next, int letter) {
    bool needed = find(&e->out, letter) >= 0;
    for (int i = next; i < e->n; i++)
        needed = needed || find(&e->in[i], letter) >= 0;
    return needed;
}

static groups group(const equation *e, int next, const term *x, const term *y) {
    groups g = {0};
    for (int i = 0; i < x->n; i++) {
        const bool both = find(y, x->at[i]) >= 0, needed = is_needed(e, next, x->at[i]);
        add(!both ? &g.x : needed ? &g.batch : &g.summed, x->at[i]);
    }
    for (int i = 0; i < y->n; i++)
        if (find(x, y->at[i]) < 0)
            add(&g.y, y->at[i]);
    return g;
}

static term join(const term *a, const term *b, const term *c) {
    const term *all[] = {a, b, c};
    term t = {0};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < all[i]->n; k++)
            add(&t, all[i]->at[k]);
    return t;
}

static made build_matmul(ir_builder *b, made x, made y, const groups *g) {
    const term left = join(&g->batch, &g->x, &g->summed),
               right = join(&g->batch, &g->summed, &g->y), all = join(&g->batch, &g->x, &g->y);
    const int n = g->batch.n;
    x = build_order(b, &x, &left);
    y = build_order(b, &y, &right);
    ir_value *z = OP_BUILD(b, "MatMul",
                           .in = {build_matrix(b, x.value, n, g->x.n, g->summed.n),
                                  build_matrix(b, y.value, n, g->summed.n, g->y.n)});
    if (g->x.n == 1 && g->y.n == 1)
        return (made){z, all};
    ir_value *parts[3], **at = parts;
    if (n)
        *at++ = build_lengths(b, z, 0, n, false);
    if (g->x.n)
        *at++ = build_lengths(b, x.value, n, g->x.n, false);
    if (g->y.n)
        *at++ = build_lengths(b, y.value, n + g->summed.n, g->y.n, false);
    if (at == parts) /* a scalar */
        return (made){OP_BUILD(b, "Squeeze", .in = {z, OP_I64S(b, 0, 1)}), all};
    return (made){build_reshape(b, z, (int)(at - parts), parts), all};
}

/* x with an axis for every letter of `all`, of length 1 for letters that it does not have. */
static ir_value *build_aligned(ir_builder *b, made x, const term *all) {
    term order = {0};
    int64_t axes[GQAC_MAX_RANK], n = 0;
    for (int i = 0; i < all->n; i++) {
        if (find(&x.t, all->at[i]) >= 0)
            add(&order, all->at[i]);
        else
            axes[n++] = i;
    }
    x = build_order(b, &x, &order);
    if (!n)
        return x.value;
    return OP_BUILD(b, "Unsqueeze", .in = {x.value, ir_build_i64s(b, n, axes)});
}

/* Builds a product by Mul and ReduceSum, in fp32 if the operands are narrower. */
static made build_product(ir_builder *b, made x, made y, const groups *g, gqac_dtype dtype) {
    const bool narrow = dtype == GQAC_F16 || dtype == GQAC_BF16;
    const term kept = join(&g->batch, &g->x, &g->y), all = join(&kept, &g->summed, &(term){0});
    ir_value *in[] = {build_aligned(b, x, &all), build_aligned(b, y, &all)};
    for (int i = 0; i < 2 && narrow; i++)
        in[i] = op_build_cast(b, in[i], GQAC_F32);
    x = build_sum(b, (made){OP_BUILD(b, "Mul", .in = {in[0], in[1]}), all}, &kept);
    if (narrow)
        x.value = op_build_cast(b, x.value, dtype);
    return x;
}

/* True if MatMul can multiply the first operands by operand `i`. A summed letter may have length 1
 * in one factor, which MatMul does not broadcast, and several summed letters become one k: their
 * lengths must be known to be equal. The length of a single one is checked by MatMul at run
 * time. */
static bool fits_matmul(const ir_node *node, const equation *e, int i, const groups *g,
                        gqac_diag *diag) {
    if (!OP_IN(OP_FLOATS, op_in_type(node, 0).dtype) || g->batch.n + 2 > GQAC_MAX_RANK)
        return false;
    for (int k = 0; k < g->summed.n; k++) {
        const ir_dim *x, *y;
        int64_t n;
        if (dim_of(node, e, 0, i, g->summed.at[k], &x, diag) != GQAC_OK ||
            dim_of(node, e, i, i + 1, g->summed.at[k], &y, diag) != GQAC_OK)
            return false;
        const bool one = (ir_dim_is_const(x, &n) && n == 1) || (ir_dim_is_const(y, &n) && n == 1);
        if ((!x || x != y) && (one || g->summed.n > 1))
            return false;
    }
    return true;
}

/* The product of x, made of the first operands, and operand `i`. */
static made build_step(ir_builder *b, ir_node *node, const equation *e, made x, int i) {
    made y = build_operand(b, node, e, i);
    term kept = {0}; /* letters that only y has, and nothing later needs, are summed first */
    for (int k = 0; k < y.t.n; k++)
        if (find(&x.t, y.t.at[k]) >= 0 || is_needed(e, i + 1, y.t.at[k]))
            add(&kept, y.t.at[k]);
    y = build_sum(b, y, &kept);
    const groups g = group(e, i + 1, &x.t, &y.t);
    const bool matmul = fits_matmul(node, e, i, &g, b->diag);
    const int n = g.batch.n + g.x.n + g.y.n + (matmul ? 0 : g.summed.n);
    if (n > GQAC_MAX_RANK)
        op_refuse(b, node, "operands 0 to %d have %d letters that are needed at once, more than %d",
                  i, n, GQAC_MAX_RANK);
    if (b->status != GQAC_OK)
        return x;
    return matmul ? build_matmul(b, x, y, &g)
                  : build_product(b, x, y, &g, op_in_type(node, 0).dtype);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    equation e;
    (void)options;
    if (b->status == GQAC_OK)
        b->status = read_equation(node, &e, b->diag);
    if (b->status != GQAC_OK)
        return;
    made x = build_operand(b, node, &e, 0);
    term kept = {0};
    for (int k = 0; k < x.t.n; k++)
        if (is_needed(&e, 1, x.t.at[k]))
            add(&kept, x.t.at[k]);
    x = build_sum(b, x, &kept);
    for (int i = 1; i < e.n && b->status == GQAC_OK; i++)
        x = build_step(b, node, &e, x, i);
    if (b->status != GQAC_OK)
        return;
    x = build_order(b, &x, &e.out);
    if (x.value == ir_node_input(node, 0))
        x.value = OP_BUILD(b, "Identity", .in = {x.value});
    results[0] = x.value;
}

static const ir_attr_spec attrs[] = {
    {.name = "equation",
     .kind = IR_ATTR_STRING,
     .required = true,
     .doc = "letters of the axes of each operand, and of the result: \"bij,bjk->bik\""},
    {.name = NULL},
};

const gqac_op gqac_op_einsum = {
    .schema =
        {.name = "Einsum",
         .domain = "",
         .since = 12,
         .introduced = 12,
         .inputs = "Inputs+",
         .outputs = "Output",
         .attrs = attrs,
         .rows = IR_ROWS_SHAPE,
         .doc = "products of elements with equal letters, summed over letters not in the result"},
    .verify = verify,
    .infer = infer,
    .expand = expand,
    .mixes = mixes,
};
