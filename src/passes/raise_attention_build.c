/* Builds the Attention that replaces simple ops, or GroupQueryAttention if there are sinks.
 * Operands are [B,S,H*D] if their heads were split from that shape, else [B,H,S,D]; the mask is
 * what attributes cannot express. */
#include "ops/build.h"
#include "passes/raise_attention.h"

#include <float.h>

ir_value *raise_padding(raise *r, ir_value *padding, ir_value *rows) {
    if (padding->type.dtype != GQAC_BOOL)
        padding = op_build_cast(&r->b, padding, GQAC_BOOL);
    ir_value *axes = OP_I64S(&r->b, 1, 2), *one = OP_I64S(&r->b, 1);
    padding = OP_BUILD(&r->b, "Unsqueeze", .in = {padding, axes});
    return raise_expand(r, padding, 4, (ir_value *[]){one, one, rows, one});
}

/* A mask as a tensor that is added, or as bool if it is the only one. */
static ir_value *build_part(raise *r, const attention *a, const raise_part *part, bool alone) {
    if (r->unpadded && part->seen.slopes)
        return raise_key_bias(r, &part->seen, raise_dim(a->q, 1), a->k.past);
    if (!part->fill && part->factor != 0) {
        ir_value *by = ir_build_f32(&r->b, (float)part->factor);
        if (part->of->type.dtype != GQAC_F32)
            by = op_build_cast(&r->b, by, part->of->type.dtype);
        return OP_BUILD(&r->b, "Mul", .in = {part->of, by});
    }
    if (!part->fill || (alone && part->seen.left >= 0 && !part->hidden))
        return part->of;
    if (alone && part->seen.left >= 0)
        return OP_BUILD(&r->b, "Not", .in = {part->of});
    ir_value *zero = ir_build_f32(&r->b, 0);
    if (part->fill->type.dtype != GQAC_F32)
        zero = op_build_cast(&r->b, zero, part->fill->type.dtype);
    return OP_BUILD(
        &r->b, "Where",
        .in = {part->of, part->hidden ? part->fill : zero, part->hidden ? zero : part->fill});
}

/* Gives a mask a column for each key. */
static ir_value *widen(raise *r, const attention_operand *k, ir_value *mask) {
    ir_value *keys = raise_ask_dim(r, k->rows, 2);
    if (k->past)
        keys = OP_BUILD(&r->b, "Add", .in = {raise_ask_dim(r, k->past, 2), keys});
    return OP_BUILD(&r->b, "Expand", .in = {mask, keys});
}

/* Padding as numbers that are added to scores of queries q. */
static ir_value *build_hidden(raise *r, ir_value *padding, ir_value *q) {
    const gqac_dtype dtype = q->type.dtype;
    ir_value *here = raise_padding(r, padding, raise_ask_dim(r, q, 2));
    ir_value *in[] = {here, ir_build_f32(&r->b, 0),
                      ir_build_f32(&r->b, dtype == GQAC_F16 ? -65504 : -FLT_MAX)};
    for (int i = 1; i < 3 && dtype != GQAC_F32; i++)
        in[i] = op_build_cast(&r->b, in[i], dtype);
    return OP_BUILD(&r->b, "Where", .in = {in[0], in[1], in[2]});
}

/* What attributes cannot express: padding, or the sum of that and of all masks that stay tensors.
 */
static ir_value *build_mask(raise *r, const attention *a) {
    ir_value *rows = NULL, *sum = NULL;
    const raise_scores *s = &a->scores;
    if (!a->has_tensors)
        return a->mask.padding ? raise_padding(r, a->mask.padding, raise_ask_dim(r, a->q, 2))
                               : NULL;
    bool wide = false; /* it has a row for each query */
    for (int i = 0; i < s->n; i++) {
        const raise_part *part = &s->parts[i];
        if (!part->carried && !part->seen.padding)
            continue;
        ir_value *one = part->carried ? build_part(r, a, part, s->n == 1)
                                      : build_hidden(r, part->seen.padding, a->q);
        if (part->carried && part->narrow)
            one = widen(r, &a->k, one);
        const int rank = part->of->type.rank;
        wide = wide || !part->carried ||
               (rank > 1 && part->of->type.dims[rank - 2] == a->q->type.dims[2]);
        sum = sum ? OP_BUILD(&r->b, "Add", .in = {sum, one}) : one;
    }
    if (wide || !r->portable)
        return sum;
    rows = raise_ask_dim(r, a->q, 2);
    ir_value *one = OP_I64S(&r->b, 1);
    return raise_expand(r, sum, 4, (ir_value *[]){one, one, rows, one});
}

/* True if x are heads that were split from [B,S,H*D]. */
static bool is_split(const ir_value *x) {
    static const int64_t heads[] = {0, 2, 1, 3};
    const ir_node *transpose = raise_maker(x, "Transpose");
    return transpose && raise_is_perm(transpose, 4, heads);
}

/* Lets the graph return `by` in place of a present, also where it returns a Cast of it. */
static void return_present(raise *r, ir_value *present, ir_value *by) {
    raise_also(r, present, by, true);
    for (const ir_use *use = present && by ? present->uses : NULL; use; use = use->next)
        if (pass_is_returned_cast(use->node)) {
            ir_value *cast = use->node->outputs[0];
            raise_also(r, cast, op_build_cast(&r->b, by, cast->type.dtype), true);
            return;
        }
}

static ir_value *build_plain(raise *r, const attention *a) {
    const int64_t heads = raise_dim(a->q, 1);
    const bool split = is_split(a->q) && is_split(a->k.rows) && is_split(a->v.rows);
    ir_value *in[] = {a->q, a->k.rows, a->v.rows, build_mask(r, a), a->k.past, a->v.past};
    ir_value *y, *present[2] = {NULL};
    for (int i = 0; i < 3 && split; i++)
        in[i] = raise_pack(r, in[i]);
    OP_BUILD(
        &r->b, "Attention", .list = {6, in},
        .ints = {{split ? "q_num_heads" : NULL, heads},
                 {split ? "kv_num_heads" : NULL, raise_dim(a->k.rows, 1)},
                 {"is_causal", a->mask.causal},
                 /* opset 25 */
                 {a->mask.left >= 0 && !r->portable ? "left_window_size" : NULL, a->mask.left}},
        .floats = {{"scale", (float)a->scores.scale}, {"softcap", (float)a->scores.softcap}},
        .out = {&y, a->k.past ? &present[0] : NULL, a->k.past ? &present[1] : NULL});
    if (!y)
        return NULL;
    return_present(r, a->k.present, present[0]);
    return_present(r, a->v.present, present[1]);
    return split ? raise_unpack(r, y, heads, raise_dim(a->v.rows, 3)) : y;
}

static ir_value *build_sunk(raise *r, const attention *a) {
    const raise_sunk s = {.q = a->q,
                          .k = a->k.rows,
                          .v = a->v.rows,
                          .past_key = a->k.past,
                          .past_value = a->v.past,
                          .sinks = a->sinks,
                          .bias = a->mask.padding ? build_hidden(r, a->mask.padding, a->q) : NULL,
                          .seen = &a->mask,
                          .scale = a->scores.scale,
                          .softcap = a->scores.softcap};
    ir_node *node = NULL;
    ir_value *y = raise_build_sunk(r, &s, &node);
    if (!node)
        return NULL;
    return_present(r, a->k.present, ir_node_output(node, 1));
    return_present(r, a->v.present, ir_node_output(node, 2));
    return y;
}

static ir_value *build_rounded(raise *r, const attention *a) {
    const raise_codes *scores = &a->scores.codes, *weights = &a->weights;
    ir_value *mask = build_mask(r, a), *y, *present[2];
    OP_BUILD(
        &r->b, "rounded_attention",
        .in = {a->q, a->k.rows, a->v.rows, a->k.past, a->v.past, mask, scores->scale, scores->zero,
               weights->scale, weights->zero},
        .ints = {{"causal", a->mask.causal}, {"window", a->mask.left < 0 ? -1 : a->mask.left + 1}},
        .floats = {{"scale", (float)a->scores.scale}, {"softcap", (float)a->scores.softcap}},
        .out = {&y, &present[0], &present[1]});
    if (!y)
        return NULL;
    return_present(r, a->k.present, present[0]);
    return_present(r, a->v.present, present[1]);
    return raise_unpack(r, y, raise_dim(a->q, 1), raise_dim(a->v.rows, 3));
}

ir_value *raise_build_folded(raise *r, ir_value *y) {
    ir_value *first = OP_I64S(&r->b, -1), *rest = op_build_lengths(&r->b, y, 2, 2);
    ir_value *to = op_build_concat(&r->b, 0, 2, (ir_value *[]){first, rest});
    return OP_BUILD(&r->b, "Reshape", .in = {y, to});
}

ir_value *raise_build_attention(raise *r, const attention *a) {
    if (a->scores.codes.scale || a->weights.scale)
        return build_rounded(r, a);
    return a->sinks ? build_sunk(r, a) : build_plain(r, a);
}
