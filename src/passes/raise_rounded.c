/* Numbers that a file rounds to codes around each product (static quantisation, QDQ):
 *
 *     DequantizeLinear(QuantizeLinear(x))
 *
 * Keys and values of all rows are rounded in each call, after Reshapes and Transposes and after a
 * constant factor. A sequence rounds a row once, before it is cached:
 *
 *     C = Concat(past, new), K = f(C)   becomes   K = Concat(past', f(new))
 *
 * The same is done with queries and probabilities, so that `raise` finds attention as it is without
 * quantisation. */
#include <string.h>

#include "ops/build.h"
#include "ops/shared.h"
#include "passes/raise.h"

enum { MOST_PATH = 8, MOST_MOVES = 8 };

/* ---- pairs ------------------------------------------------------------------ */

/* The node if it is of that op, with one scale for all elements. */
static const ir_node *coder(const ir_value *value, const char *op) {
    const ir_node *node = value ? value->def : NULL;
    const bool known = node && (op_is(node, "", op) || op_is(node, "com.microsoft", op));
    const ir_value *scale = known ? ir_node_input(node, 1) : NULL, *zero = ir_node_input(node, 2);
    const gqac_tensor *t = scale ? pass_constant(scale) : NULL;
    return t && t->rank <= 1 && gqac_tensor_count(t) == 1 && t->dtype == GQAC_F32 &&
                   value->type.rank >= 0 && (!zero || pass_constant(zero))
               ? node
               : NULL;
}

static bool same_constant(const ir_value *a, const ir_value *b) {
    const gqac_tensor *x = a ? pass_constant(a) : NULL, *y = b ? pass_constant(b) : NULL;
    if (!x || !y)
        return a == b;
    return x->dtype == y->dtype && gqac_tensor_count(x) == 1 && gqac_tensor_count(y) == 1 &&
           memcmp(x->data, y->data, gqac_tensor_bytes(x)) == 0;
}

/* True if the attributes say no more than the operands. */
static bool is_plain(const ir_node *node) {
    const bool ms = *node->op->domain, back = !strcmp(node->op->name, "DequantizeLinear");
    return ir_attr_int(node, "block_size") == 0 && (ms || !ir_attr_is_set(node, "output_dtype")) &&
           (ms || back || !ir_attr_is_set(node, "precision"));
}

ir_value *raise_through_codes(ir_value *value, raise_codes *codes) {
    const ir_node *back = coder(value, "DequantizeLinear");
    const ir_node *there = back ? coder(ir_node_input(back, 0), "QuantizeLinear") : NULL;
    if (!there || value->graph != there->graph || !is_plain(back) || !is_plain(there) ||
        !same_constant(ir_node_input(back, 1), ir_node_input(there, 1)) ||
        !same_constant(ir_node_input(back, 2), ir_node_input(there, 2)) ||
        ir_node_input(there, 0)->type.dtype != GQAC_F32)
        return value;
    *codes = (raise_codes){ir_node_input(there, 1), ir_node_input(there, 2)};
    return ir_node_input(there, 0);
}

/* ---- what is rounded -------------------------------------------------------- */

/* From the DequantizeLinear back to a value that is moved: scales and roundings of elements. */
typedef struct path {
    ir_node *nodes[MOST_PATH];
    int n;
    ir_value *x;
} path;

/* The other factor of a product with a scalar constant; NULL: the value is something else. */
static ir_value *before_factor(const ir_value *value) {
    double factor;
    const ir_node *mul = raise_maker(value, "Mul"), *div = raise_maker(value, "Div");
    ir_value *x = mul ? raise_beside_scalar(mul, &factor) : NULL;
    if (div && raise_scalar(ir_node_input(div, 1), &factor))
        x = ir_node_input(div, 0);
    const ir_node *node = mul ? mul : div;
    for (int i = 0; x && i < 2; i++) /* a factor of rank 4 would give rows of rank 3 another rank */
        if (ir_node_input(node, i) != x && ir_node_input(node, i)->type.rank > 1)
            return NULL;
    return x;
}

static bool find_path(ir_value *rounded, path *p) {
    raise_codes codes;
    p->x = raise_through_codes(rounded, &codes);
    if (p->x == rounded)
        return false;
    p->nodes[0] = rounded->def;
    p->nodes[1] = ir_node_input(rounded->def, 0)->def;
    p->n = 2;
    for (ir_value *x; (x = before_factor(p->x)) && p->n < MOST_PATH; p->x = x)
        p->nodes[p->n++] = p->x->def;
    return p->x->def && p->x->graph == rounded->graph;
}

static ir_value *along(ir_builder *b, const path *p, ir_value *x) {
    for (int i = p->n - 1; i >= 0; i--)
        x = raise_again(b, p->nodes[i], i + 1 < p->n ? p->nodes[i + 1]->outputs[0] : p->x, x);
    return x;
}

/* ---- moves ------------------------------------------------------------------ */

/* True if each element of the result is one of the first operand. */
static bool moves(const ir_node *node) {
    static const char *const names[] = {"Expand",    "Reshape",   "Squeeze", "Tile",
                                        "Transpose", "Unsqueeze", NULL};
    const ir_value *x = ir_node_input(node, 0);
    const bool gather = op_is(node, "", "Gather") && ir_node_input(node, 1)->constant;
    return x && !x->constant &&
           (gather || (!*node->op->domain && pass_listed(names, node->op->name)));
}

/* Removes the nodes of a path, and the move before it, that are no longer read: they would be
 * readers of a past. */
static void remove_unused(const path *p) {
    for (int i = 0; i <= p->n; i++) {
        ir_node *node = i < p->n ? p->nodes[i] : p->x->def;
        if (!ir_value_unused(node->outputs[0]))
            return;
        ir_node_remove(node);
    }
}

/* Rounds before a move rather than after; *at becomes the rounded value. */
static gqac_status move_last(pass_context *context, ir_value **at, const path *p) {
    ir_value *rounded = *at;
    ir_node *last = rounded->def, *prev = last->prev;
    ir_node *move = p->x->def;
    ir_builder b = {.graph = last->graph, .before = last, .diag = context->diag};
    ir_value *x = ir_node_input(move, 0);
    *at = along(&b, p, x);
    ir_value *by = raise_again(&b, move, x, *at);
    GQAC_TRY(b.status);
    GQAC_TRY(pass_settle(last, prev, b.diag));
    ir_value_replace(rounded, by);
    remove_unused(p);
    context->changed++;
    return GQAC_OK;
}

/* ---- rows that are appended to a past ---------------------------------------- */

/* True if `node`, Shapes and the return alone read the value. */
static bool is_read_by(const ir_value *value, const ir_node *node) {
    for (const ir_use *use = value->uses; use; use = use->next)
        if (use->node != node && use->node != value->graph->ret && !op_is(use->node, "", "Shape"))
            return false;
    return true;
}

static bool appends(const ir_node *node) {
    const ir_value *past = op_is(node, "", "Concat") ? ir_node_input(node, 0) : NULL;
    return past && node->n_inputs == 2 && past->graph == node->graph && pass_is_past(past) &&
           is_read_by(past, node);
}

/* The name of a past or present of rounded rows. */
static const char *new_name(const pass_context *context, const char *name) {
    return gqac_arena_printf(context->module->arena, "%s.rounded", name);
}

/* Renames a past and a present whose rows the file does not round. A file may return rounded rows;
 * it has then rounded the past. */
static gqac_status rename_pair(const pass_context *context, const ir_node *concat) {
    ir_value *past = ir_node_input(concat, 0);
    pass_results r;
    bool good = pass_copy_results(context, 0, &r), any = false;
    for (int i = 0; good && i < r.n; i++) {
        if (r.values[i] != concat->outputs[0])
            continue;
        r.names[i] = new_name(context, r.names[i]);
        good = r.names[i] != NULL;
        any = true;
    }
    if (any && good) {
        const char *name = new_name(context, past->name);
        good = name && ir_value_rename(past, name) &&
               ir_graph_set_results(concat->graph, r.n, r.values, r.names);
    }
    return good ? GQAC_OK : gqac_diag_oom(context->diag, "KV state");
}

/* Rounds rows before they are appended. */
static gqac_status append_rounded(pass_context *context, ir_value *rounded, const path *p) {
    ir_node *concat = p->x->def, *prev = concat->prev;
    ir_builder b = {.graph = concat->graph, .before = concat, .diag = context->diag};
    ir_value *rows = along(&b, p, ir_node_input(concat, 1));
    GQAC_TRY(b.status);
    GQAC_TRY(pass_settle(concat, prev, b.diag));
    ir_node_set_input(concat, 1, rows);
    GQAC_TRY(rename_pair(context, concat));
    ir_value_replace(rounded, concat->outputs[0]);
    context->changed++;
    return GQAC_OK;
}

/* ---- all of it ---------------------------------------------------------------- */

static gqac_status round_first(pass_context *context, ir_value *at) {
    path p;
    for (int k = 0; k < MOST_MOVES && at && find_path(at, &p); k++) {
        ir_node *def = p.x->def;
        if (appends(def) && is_read_by(p.x, p.nodes[p.n - 1]))
            return append_rounded(context, at, &p);
        if (!moves(def))
            return GQAC_OK;
        GQAC_TRY(move_last(context, &at, &p));
    }
    return GQAC_OK;
}

gqac_status raise_rounded(pass_context *context) {
    ir_graph *graph = context->module->graph;
    for (ir_node *node = graph->first; node; node = node->next)
        for (int i = 0; i < 2 && op_is(node, "", "MatMul"); i++)
            if (!ir_node_input(node, 1 - i)->constant)
                GQAC_TRY(round_first(context, ir_node_input(node, i)));
    return GQAC_OK;
}
