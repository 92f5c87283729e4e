/* The scores of an attention (see raise_scores.h). On the path from the softmax back to the product
 * there are masks (Add, Where), then a softcap, then scales; Casts and Reshapes may come anywhere.
 * Scores may be raised to a number that hides them (Max), so that no sum of masks is -inf.
 * At an Add, Where or Max the path follows the operand that is computed from such a product. */
#include "passes/raise_scores.h"

#include <math.h>
#include <string.h>

#include "ops/shared.h"
#include "passes/raise_terms.h"

enum { MOST_WAY = 16, MOST_LOOK = 6, MOST_NODES = 1024 };

ir_value *raise_through_cast(ir_value *value) {
    const ir_node *cast = raise_maker(value, "Cast");
    ir_value *x = cast ? ir_node_input(cast, 0) : NULL;
    return x && OP_IN(OP_FLOATS, x->type.dtype) && OP_IN(OP_FLOATS, value->type.dtype) ? x : value;
}

/* True if `three` is [B*H,S,T] where `four` is [B,H,S,T]. */
static bool folds(const ir_value *three, const ir_value *four) {
    const ir_type *a = &three->type, *b = &four->type;
    if (a->rank != 3 || b->rank != 4 || !raise_dim(four, 1) || !b->dims[0])
        return false;
    ir_dims *dims = three->graph->module->dims;
    return a->dims[0] == ir_dim_mul(dims, b->dims[0], b->dims[1]) && a->dims[1] == b->dims[2] &&
           a->dims[2] == b->dims[3] && a->dims[0];
}

ir_value *raise_unfolded(ir_value *value) {
    const ir_node *reshape = raise_maker(value, "Reshape");
    ir_value *x = reshape ? ir_node_input(reshape, 0) : NULL;
    return x && (folds(value, x) || folds(x, value)) ? x : NULL;
}

/* True for a number that hides the score that it replaces. */
static bool is_hiding(const ir_value *value, double factor) {
    double x;
    return raise_scalar(value, &x) && term_hides_scaled(value->type.dtype, x, factor);
}

/* ---- the operand that leads to the product ------------------------------- */

/* Operands that may be scores: [first, end). */
static bool may_lead(const ir_node *node, int *first, int *end) {
    static const struct {
        const char *op;
        int first, end;
    } ways[] = {{"Add", 0, 2},
                {"Cast", 0, 1},
                {"Div", 0, 1},
                {"Max", 0, 2},
                {"Mul", 0, 2},
                {"Tanh", 0, 1},
                {"Where", 1, 3},
                {"Reshape", 0, 1},
                {"QuantizeLinear", 0, 1},
                {"DequantizeLinear", 0, 1}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (op_is(node, "", ways[i].op)) {
            *first = ways[i].first;
            *end = ways[i].end;
            return true;
        }
    return false;
}

/* True if the value is computed from a product; `known`: only by ops through which scores may go.
 * There may be many paths, so after MOST_NODES nodes the answer is no. */
static bool leads(const ir_value *value, bool known, int depth, int *nodes) {
    const ir_node *node = value ? value->def : NULL;
    int first = 0, end = node ? node->n_inputs : 0;
    if (!node || !depth || --*nodes < 0)
        return false;
    if (op_is(node, "", "MatMul"))
        return !ir_node_input(node, 1)->constant;
    if (!may_lead(node, &first, &end) && known)
        return false;
    for (int i = first; i < end; i++)
        if (leads(ir_node_input(node, i), known, depth - 1, nodes))
            return true;
    return false;
}

/* The operand of Add, Where or Max that leads to the product; -1: none does. */
static int way_on(const ir_node *node) {
    int first = 0, end = 0;
    if (!may_lead(node, &first, &end))
        return -1;
    for (int known = 1; known >= 0; known--)
        for (int i = first; i < end; i++) {
            int nodes = MOST_NODES;
            if (leads(ir_node_input(node, i), known, known ? MOST_WAY : MOST_LOOK, &nodes))
                return i;
        }
    return -1;
}

/* ---- masks --------------------------------------------------------------- */

static bool add_part(raise *r, const ir_node *node, raise_scores *s, raise_part part) {
    if (s->n == RAISE_PARTS)
        return raise_stopped(r, node, "the scores have too many masks");
    part.factor = s->mask_factor;
    s->parts[s->n++] = part;
    return true;
}

/* The scores before Max with a number that hides them: it changes only scores that are hidden. */
static ir_value *before_floor(ir_value *value, double factor) {
    const ir_node *max = raise_maker(value, "Max");
    for (int i = 0; max && max->n_inputs == 2 && i < 2; i++)
        if (is_hiding(ir_node_input(max, i), factor) && way_on(max) == 1 - i)
            return ir_node_input(max, 1 - i);
    return value;
}

/* Reads one mask, if there is one, and sets *value to the scores that it was applied to.
 */
static bool one_mask(raise *r, ir_value **value, raise_scores *s, bool *found) {
    const ir_node *add = raise_maker(*value, "Add"), *where = raise_maker(*value, "Where");
    const ir_node *node = add ? add : where;
    const int on = node ? way_on(node) : -1;
    *found = on >= 0;
    if (on < 0)
        return true;
    const bool folded = (*value)->type.rank == 3;
    *value = ir_node_input(node, on);
    if (add)
        return add_part(r, node, s,
                        (raise_part){.of = ir_node_input(node, 1 - on), .folded = folded});
    ir_value *fill = ir_node_input(node, 3 - on);
    if (!is_hiding(fill, s->mask_factor))
        return raise_stopped(r, node,
                             "the number that replaces hidden scores does not hide them: it is "
                             "neither -1e9 or less nor, in a sequence, far below every score that "
                             "the weights allow");
    const raise_part part = {
        .of = ir_node_input(node, 0), .fill = fill, .hidden = on == 2, .folded = folded};
    return add_part(r, node, s, part);
}

/* The value before Casts and Reshapes. */
static ir_value *bare(ir_value *value) {
    for (int i = 0; i < MOST_WAY; i++) {
        ir_value *x = raise_through_cast(value), *y = raise_unfolded(x);
        if (x == value && !y)
            break;
        value = y ? y : x;
    }
    return value;
}

/* Reads a scale after a mask, which multiplies that mask too. */
static ir_value *scale_after_masks(ir_value *value, raise_scores *s) {
    double factor = 1;
    ir_value *inner = raise_unscaled(value, &factor);
    if (inner == value || !raise_maker(inner, "Add") || !(factor > 1e-3) || factor > 1)
        return value;
    s->scale *= factor;
    s->mask_factor = s->mask_factor != 0 ? s->mask_factor * factor : factor;
    return inner;
}

/* ---- factors ------------------------------------------------------------- */

/* softcap * tanh(s / softcap), if there is a softcap */
static ir_value *through_softcap(ir_value *value, raise_scores *s) {
    double outer = 1, inner = 1;
    const ir_node *tanh = raise_maker(raise_unscaled(value, &outer), "Tanh");
    ir_value *x = tanh ? raise_unscaled(ir_node_input(tanh, 0), &inner) : NULL;
    if (!x || !(outer > 0) || !isfinite((float)outer))
        return value;
    s->softcap = outer;
    s->scale = inner * outer; /* the inner factor has 1 / softcap in it */
    return x;
}

static bool find_product(raise *r, const ir_node *softmax, ir_value *value, raise_scores *s) {
    value = through_softcap(value, s);
    if (s->softcap != 0 && s->mask_factor != 0)
        return raise_stopped(r, softmax, "a scale comes after the softcap");
    value = bare(raise_unscaled(bare(value), &s->scale));
    value = r->unpadded ? raise_through_codes(value, &s->codes) : value;
    const ir_node *product = raise_maker(value, "MatMul");
    if (!product)
        return raise_stopped(r, value->def ? value->def : softmax,
                             "the scores are not a scaled product of queries and keys");
    s->q = ir_node_input(product, 0);
    s->k = ir_node_input(product, 1);
    return true;
}

bool raise_find_scores(raise *r, const ir_node *softmax, ir_value *given, raise_scores *s) {
    ir_value *value = bare(given);
    bool found = true;
    for (int i = 0; found && i < MOST_WAY; i++) {
        value = bare(scale_after_masks(value, s));
        value = bare(before_floor(value, s->mask_factor));
        if (!one_mask(r, &value, s, &found))
            return false;
        value = bare(value);
    }
    return find_product(r, softmax, value, s);
}
