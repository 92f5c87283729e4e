/* Sinks as gpt-oss writes them: a column after the scores, one number for each head, which takes
 * part in the softmax and is removed after it:
 *   p = Slice(Softmax(x - ReduceMax(x)), all but the last column), x = Concat(scores, sinks)
 * Attention of ONNX has no operand for them. GroupQueryAttention has one, and reads the number of
 * rows from lengths, which a sequence has. */
#include "passes/raise_scores.h"

#include "ops/build.h"
#include "ops/shared.h"

static bool is_last(const ir_value *axes, int rank) {
    return pass_is_int(axes, -1) || pass_is_int(axes, rank - 1);
}

static bool cuts_last_column(const ir_node *slice, int rank) {
    const ir_value *steps = ir_node_input(slice, 4);
    return pass_is_int(ir_node_input(slice, 1), 0) && pass_is_int(ir_node_input(slice, 2), -1) &&
           is_last(ir_node_input(slice, 3), rank) && (!steps || pass_is_int(steps, 1));
}

/* Returns x of x - m, in which m is one number for each row. */
static ir_value *through_maximum(ir_value *value) {
    const ir_node *sub = raise_maker(value, "Sub");
    const ir_value *most = sub ? ir_node_input(sub, 1) : NULL;
    const ir_node *reduce = raise_maker(most, "ReduceMax");
    const int rank = value->type.rank;
    if (!reduce || most->type.rank != rank || raise_dim(most, rank - 1) != 1)
        return value;
    ir_value *x = ir_node_input(sub, 0);
    return raise_through_cast(ir_node_input(reduce, 0)) == raise_through_cast(x) ? x : value;
}

/* Returns the constant [.., H, 1, 1] that is expanded to a column; NULL: it is something else. */
static ir_value *sinks_of(ir_value *column) {
    const ir_node *expand = raise_maker(column, "Expand");
    ir_value *sinks = raise_through_cast(expand ? ir_node_input(expand, 0) : column);
    const int rank = sinks->type.rank;
    if (!sinks->constant || rank < 3 || rank > 4 || raise_dim(sinks, rank - 1) != 1 ||
        raise_dim(sinks, rank - 2) != 1 || (rank == 4 && raise_dim(sinks, 0) != 1))
        return NULL;
    return column->type.rank == 4 && raise_dim(column, 3) == 1 &&
                   raise_dim(column, 1) == raise_dim(sinks, rank - 3)
               ? sinks
               : NULL;
}

const ir_node *raise_sunk_softmax(raise *r, const ir_node *slice, ir_value **scores,
                                  ir_value **sinks) {
    const int rank = slice->outputs[0]->type.rank;
    const ir_node *softmax = raise_maker(raise_through_cast(ir_node_input(slice, 0)), "Softmax");
    if (!softmax || rank != 4 || !cuts_last_column(slice, rank))
        return NULL;
    ir_value *x = raise_through_cast(ir_node_input(softmax, 0));
    const ir_node *concat = raise_maker(raise_through_cast(through_maximum(x)), "Concat");
    if (!concat || concat->n_inputs != 2 || !ir_node_input(concat, 0) || !ir_node_input(concat, 1))
        return NULL;
    const int64_t axis = ir_attr_int(concat, "axis");
    *sinks = sinks_of(ir_node_input(concat, 1));
    *scores = ir_node_input(concat, 0);
    if (!*sinks || (axis != 3 && axis != -1))
        return raise_stopped(r, concat, "its last column is not a constant for each head"), NULL;
    return softmax;
}

const char *raise_no_sinks(const raise *r, const raise_mask *seen, bool has_past, bool carries) {
    if (r->portable || !r->context->options.for_sequences)
        return "no op of the standard has sinks; in sequences it is raised";
    if (!has_past)
        return "sinks need a past here";
    if (seen->left >= 0 && !raise_window_size(r, seen->left))
        return "no window of --legacy-window shows a query its own key alone";
    return !seen->causal || carries ? "with sinks a mask must be causality, a window or padding"
                                    : NULL;
}

ir_value *raise_build_sunk(raise *r, const raise_sunk *s, ir_node **made) {
    ir_builder *b = &r->b;
    const int64_t heads = raise_dim(s->q, 1);
    ir_value *total =
        OP_BUILD(b, "Add", .in = {raise_ask_dim(r, s->past_key, 2), raise_ask_dim(r, s->k, 2)});
    ir_value *last = OP_BUILD(b, "Sub", .in = {total, OP_I64S(b, 1)});
    ir_value *batch[] = {raise_ask_dim(r, s->q, 0)};
    ir_value *seqlens = op_build_cast(b, raise_expand(r, last, 1, batch), GQAC_I32);
    ir_value *sink = OP_RESHAPE(b, s->sinks, heads);
    if (s->sinks->type.dtype != s->q->type.dtype)
        sink = op_build_cast(b, sink, s->q->type.dtype);
    ir_value *q = raise_pack(r, s->q), *k = raise_pack(r, s->k), *v = raise_pack(r, s->v);
    ir_value *y = NULL, *present_key = NULL, *present_value = NULL;
    OP_BUILD(b, "com.microsoft.GroupQueryAttention",
             .in = {q, k, v, s->past_key, s->past_value, seqlens, op_build_cast(b, total, GQAC_I32),
                    NULL, NULL, NULL, s->bias, sink},
             .out = {&y, &present_key, &present_value},
             .ints = {{"num_heads", heads},
                      {"kv_num_heads", raise_dim(s->k, 1)},
                      {s->seen->left >= 0 ? "local_window_size" : NULL,
                       raise_window_size(r, s->seen->left)}},
             .floats = {{"scale", (float)s->scale}, {"softcap", (float)s->softcap}});
    *made = y ? y->def : NULL;
    return y ? raise_unpack(r, y, heads, raise_dim(s->v, 3)) : NULL;
}
