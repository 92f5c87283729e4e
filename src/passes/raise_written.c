/* Attention over buffers of a constant number of rows, into which the model writes the new ones
 * (StaticCache of transformers): keys and values are results of ScatterND or ScatterElements on a
 * past, and the mask compares the position of each query with those of the keys. In a sequence the
 * new rows are consecutive, so the first position determines all: the write becomes TensorScatter,
 * and Attention gets the number of valid rows. That the positions are consecutive is an assumption
 * about a graph input (cache_position), so files and other calls are not changed. */
#include "ops/build.h"
#include "ops/shared.h"
#include "passes/raise_index.h"

#include <string.h>

static const ir_dim *first_of(const raise *r) {
    return ir_dim_symbol(r->context->module->dims, "raise.first");
}

/* A buffer into which new rows were written. */
typedef struct buffer {
    ir_value *past, *rows; /* [B,H,T,D], [B,H,S,D] */
    ir_value *present;     /* the result */
} buffer;

bool raise_is_first_input(raise *r, const ir_value *value) {
    raise_writes *p = r->writes;
    if (value->def || value->constant || value->graph != r->context->module->graph ||
        !OP_IN(OP_INDICES, value->type.dtype) || value->type.rank < 0 || value->type.rank > 1 ||
        (p->input && p->input != value))
        return false;
    p->input = value;
    return true;
}

/* ---- where the rows are written ------------------------------------------ */

static bool open(raise *r, const buffer *to, reader *e) {
    const ir_type *rows = &to->rows->type;
    return rows->rank == 4 && raise_open(e, r, rows, NULL, to->past->type.dims[2]);
}

/* True if the indices, for each row or each element of a row, are the positions of the new rows. */
static bool are_positions(raise *r, const buffer *to, ir_value *indices, const ir_dim *const *index,
                          reader *e) {
    term found;
    const ir_dim *place = ir_dim_add(e->dims, r->writes->first, e->at[Q]);
    return raise_element(e, indices, index, &found) && found.kind == TERM_INT &&
           found.number == place && r->b.status == GQAC_OK && to->rows;
}

/* ScatterND with indices [.., .., position] for each row, or [position] where rows are the first
 * axis. */
static bool read_nd(raise *r, const buffer *to, ir_value *indices) {
    reader e;
    term found;
    int64_t n;
    const int rank = indices->type.rank;
    if (rank < 2 || !open(r, to, &e) || !ir_dim_is_const(indices->type.dims[rank - 1], &n))
        return false;
    if (rank == 2 && n == 1)
        return are_positions(r, to, indices, (const ir_dim *[]){e.at[Q], number(&e, 0)}, &e);
    const ir_dim *index[] = {e.at[B], e.at[H], e.at[Q], NULL};
    if (rank != 4 || n != 3)
        return false;
    for (int i = 0; i < 2; i++) {
        index[3] = number(&e, i);
        if (is_one(to->rows->type.dims[i]))
            index[i] = number(&e, 0);
        if (!raise_element(&e, indices, index, &found) || found.kind != TERM_INT ||
            found.number != index[i])
            return false;
    }
    index[3] = number(&e, 2);
    return are_positions(r, to, indices, index, &e);
}

static bool read_elements(raise *r, const buffer *to, const ir_node *scatter) {
    reader e;
    ir_value *indices = ir_node_input(scatter, 1);
    const int64_t axis = ir_attr_int(scatter, "axis");
    if ((axis != 2 && axis != -2) || indices->type.rank != 4 ||
        !ir_type_equal(&to->rows->type, &ir_node_input(scatter, 2)->type) || !open(r, to, &e))
        return false;
    for (int i = 0; i < 4; i++) /* whole rows are written */
        if (!to->rows->type.dims[i] || indices->type.dims[i] != to->rows->type.dims[i])
            return false;
    return are_positions(r, to, indices, (const ir_dim *[]){e.at[B], e.at[H], e.at[Q], e.at[K]},
                         &e);
}

/* ---- buffers ------------------------------------------------------------- */

static bool is_plain(const ir_node *scatter) {
    return strcmp(ir_attr_get(scatter, "reduction")->s, "none") == 0;
}

/* True if `back` is the inverse of `there`. */
static bool undoes(const ir_node *back, const ir_node *there) {
    const ir_attr *a = ir_attr_get(there, "perm"), *b = ir_attr_get(back, "perm");
    bool same = a->set && b->set && a->count == 4 && b->count == 4;
    for (int i = 0; same && i < 4; i++)
        same = a->ints[b->ints[i]] == i;
    return same;
}

/* index_copy_: the axis of rows is moved to the front for the write, and back. */
static bool find_transposed(raise *r, ir_value *value, buffer *out, const ir_node **scatter) {
    const ir_node *back = raise_maker(value, "Transpose");
    *scatter = back ? raise_maker(ir_node_input(back, 0), "ScatterND") : NULL;
    const ir_node *there = *scatter ? raise_maker(ir_node_input(*scatter, 0), "Transpose") : NULL;
    if (!there || !undoes(back, there) || ir_attr_get(there, "perm")->ints[0] != 2 ||
        ir_node_input(*scatter, 1)->type.rank != 2)
        return false;
    out->past = ir_node_input(there, 0);
    out->rows =
        op_build_transpose(&r->b, ir_node_input(*scatter, 2), 4, ir_attr_get(back, "perm")->ints);
    if (out->rows)
        r->b.status = pass_infer_node(out->rows->def, r->b.diag);
    return r->b.status == GQAC_OK;
}

static bool find_straight(ir_value *value, buffer *out, const ir_node **scatter) {
    const ir_node *nd = raise_maker(value, "ScatterND");
    *scatter = nd ? nd : raise_maker(value, "ScatterElements");
    if (!*scatter || (nd && ir_node_input(nd, 1)->type.rank == 2))
        return false;
    out->past = ir_node_input(*scatter, 0);
    out->rows = ir_node_input(*scatter, 2);
    return true;
}

/* A past that is a graph input, with new rows written into it. */
static bool read_buffer(raise *r, ir_value *value, buffer *out) {
    const ir_node *scatter;
    if (!value || value->type.rank != 4 ||
        (!find_straight(value, out, &scatter) && !find_transposed(r, value, out, &scatter)))
        return false;
    const ir_value *past = out->past;
    if (past->type.rank != 4 || !pass_is_past(past))
        return false;
    r->what = "Attention";
    out->present = value;
    if (!is_plain(scatter) ||
        !(op_is(scatter, "", "ScatterND") ? read_nd(r, out, ir_node_input(scatter, 1))
                                          : read_elements(r, out, scatter)))
        return raise_stopped(
            r, scatter,
            "its new rows are not written at consecutive positions that start at a graph input");
    return true;
}

/* ---- positions ----------------------------------------------------------- */

/* True if the value is the position of each new token, [S]. */
static bool is_position_of_each(raise *r, ir_value *value, const ir_type *q) {
    reader e;
    term found;
    const ir_dim *place;
    if (value->type.rank != 1 || value->type.dtype != GQAC_I64 || !q->dims[2] ||
        value->type.dims[0] != q->dims[2] || value->constant ||
        !raise_open(&e, r, q, NULL, q->dims[2]))
        return false;
    place = ir_dim_add(e.dims, r->writes->first, e.at[Q]);
    return raise_element(&e, value, (const ir_dim *[]){e.at[Q]}, &found) &&
           found.kind == TERM_INT && found.number == place;
}

/* True if a node adds an axis of 1 for the batch; *n other axes, stored in `axes`, come after the
 * tokens. */
static bool adds_batch(const ir_node *node, int64_t *axes, int64_t *n) {
    const int rank = node->outputs[0]->type.rank;
    bool batch = false;
    if (!op_is(node, "", "Unsqueeze") ||
        !ir_const_ints(ir_node_input(node, 1), GQAC_MAX_RANK, axes, n))
        return false;
    int64_t kept = 0;
    for (int64_t i = 0; i < *n; i++) {
        const int64_t axis = axes[i] + (axes[i] < 0 ? rank : 0);
        batch = batch || axis == 0;
        if (axis)
            axes[kept++] = axis;
    }
    *n = kept;
    return batch;
}

ir_value *raise_position_ids(raise *r) {
    ir_graph *graph = r->context->module->graph;
    const ir_value *ids = pass_tokens(graph);
    ir_value *positions = pass_input(graph, "position_ids");
    if (positions || !ids)
        return positions && positions->type.rank == 2 ? positions : NULL;
    positions = ir_graph_add_input(graph, "position_ids",
                                   ir_type_make(r->context->module, GQAC_I64, 2, ids->type.dims));
    if (!positions)
        r->b.status = gqac_diag_oom(r->b.diag, "an input");
    return positions;
}

gqac_status raise_put_positions(raise *r, const ir_builder *b, ir_node *node, ir_node *prev,
                                ir_value *positions) {
    GQAC_TRY(b->status);
    GQAC_TRY(pass_settle(node, prev, r->b.diag));
    ir_value_replace(node->outputs[0], positions);
    r->context->changed++;
    return GQAC_OK;
}

/* Positions as rows of a batch become position_ids, which the run time provides for each token. */
gqac_status raise_positions(raise *r) {
    ir_graph *graph = r->context->module->graph;
    int64_t axes[GQAC_MAX_RANK], n;
    bool any = false;
    if (!r->writes->q)
        return GQAC_OK;
    r->writes->first = first_of(r);
    if (!r->writes->first)
        return gqac_diag_oom(r->b.diag, "a dim");
    for (ir_node *node = graph->first, *next; node; node = next) {
        next = node->next;
        ir_value *x = ir_node_input(node, 0);
        if (any) /* positions now have a row for each sequence of the batch */
            GQAC_TRY(pass_infer_node(node, r->b.diag));
        if (!x || !adds_batch(node, axes, &n) || !is_position_of_each(r, x, r->writes->q))
            continue;
        ir_value *positions = raise_position_ids(r);
        ir_builder b = {.graph = graph, .before = node, .diag = r->b.diag};
        ir_node *prev = node->prev;
        GQAC_TRY(r->b.status);
        if (!positions)
            return GQAC_OK; /* stateful reports the node that reads the positions */
        if (n)
            positions = OP_BUILD(&b, "Unsqueeze", .in = {positions, ir_build_i64s(&b, n, axes)});
        GQAC_TRY(raise_put_positions(r, &b, node, prev, positions));
        any = true;
    }
    return GQAC_OK;
}

/* ---- the whole ----------------------------------------------------------- */

/* The first position, for each row of the batch: i64 [B]. */
static ir_value *first_of_batch(raise *r, ir_value *position, ir_value *rows) {
    ir_value *one = position->type.rank
                        ? OP_BUILD(&r->b, "Gather", .in = {position, OP_I64S(&r->b, 0)})
                        : OP_RESHAPE(&r->b, position, 1);
    if (position->type.dtype != GQAC_I64)
        one = op_build_cast(&r->b, one, GQAC_I64);
    ir_value *batch = raise_ask_dim(r, rows, 0);
    return OP_BUILD(&r->b, "Expand", .in = {one, batch});
}

static ir_value *build_write(raise *r, const buffer *to, ir_value *first) {
    ir_value *present =
        OP_BUILD(&r->b, "TensorScatter", .in = {to->past, to->rows, first}, .ints = {{"axis", 2}});
    raise_also(r, to->present, present, true);
    return present;
}

/* True if its mask is causality, or causality and a window, and nothing else. */
static bool reads_mask(raise *r, ir_node *node, const buffer *k, raise_mask *seen) {
    const ir_value *q = ir_node_input(node, 0), *mask = ir_node_operand(node, "attn_mask");
    *seen = (raise_mask){.left = -1};
    if (!raise_read_mask(r, mask, false, &q->type, NULL, k->past->type.dims[2], seen))
        return false;
    if (!seen->causal || seen->padding || seen->slopes)
        return raise_stopped(
            r, mask->def ? mask->def : node,
            "the mask does not hide the rows of the buffer after each query's own");
    return true;
}

static ir_value *written(raise *r, ir_node *node) {
    const ir_value *q = ir_node_input(node, 0), *mask = ir_node_operand(node, "attn_mask");
    const int64_t left = ir_attr_int(node, "left_window_size");
    buffer k, v;
    raise_mask seen;
    if (!mask || ir_node_operand(node, "past_key") || ir_node_operand(node, "nonpad_kv_seqlen") ||
        ir_node_output(node, 1) || q->type.rank != 4 || ir_attr_int(node, "is_causal") ||
        left >= 0 || node->graph != r->context->module->graph)
        return NULL;
    if (!read_buffer(r, ir_node_input(node, 1), &k) ||
        !read_buffer(r, ir_node_input(node, 2), &v) || !reads_mask(r, node, &k, &seen))
        return NULL;
    if (k.rows->type.dims[2] != q->type.dims[2] || v.rows->type.dims[2] != q->type.dims[2])
        return raise_stopped(r, node, "there are not as many new rows as queries"), NULL;
    ir_value *position = (ir_value *)(uintptr_t)r->writes->input;
    ir_value *first = first_of_batch(r, position, k.rows);
    ir_value *keys = build_write(r, &k, first), *values = build_write(r, &v, first);
    ir_value *rows = raise_ask_dim(r, k.rows, 2);
    ir_value *valid = OP_BUILD(&r->b, "Add", .in = {first, rows});
    ir_value *y = OP_BUILD(
        &r->b, "Attention", .in = {ir_node_input(node, 0), keys, values, NULL, NULL, NULL, valid},
        .of = node,
        .ints = {{seen.left >= 0 ? "left_window_size" : NULL, seen.left}, {"is_causal", 1}});
    if (y)
        r->writes->q = &q->type;
    return y;
}

ir_value *raise_written(raise *r, ir_node *node) {
    const ir_value *input = r->writes->input;
    r->writes->first = first_of(r);
    ir_value *y = r->writes->first ? written(r, node) : NULL;
    r->writes->first = NULL; /* it has no meaning for other attention */
    if (!y)
        r->writes->input = input;
    return y;
}
