/* Attention in which all queries of a token share one key and one value, as GPT-BigCode (StarCoder)
 * writes it without SDPA: the heads of a token are rows of one product.
 *
 *     s = q [B,S*H,D] k^T [B,D,T], p = softmax(mask(s as [B,S,H,T])), y = p as [B,S*H,T] v [B,T,D]
 *
 * becomes products of q [B,H,S,D], k [B,1,T,D] and v [B,1,T,D], in which `raise` finds attention. A
 * mask [B,S,1,T] becomes [B,1,S,T]. baddbmm adds zeros to s. */
#include "ops/build.h"
#include "ops/shared.h"
#include "passes/raise.h"

enum { MOST_PATH = 12, MOST_OPERANDS = 3 }; /* Where has three */

typedef struct shared_head {
    ir_node *root;
    ir_node *path[MOST_PATH]; /* from the softmax back to the product, without Reshapes and zeros */
    ir_value *from[MOST_PATH]; /* the operand of each that comes from the product */
    int n;
    int64_t heads, size, value_size;
    ir_value *q, *k, *v;
} shared_head;

/* The number of which all elements are copies. */
static bool all_are(const ir_value *value, double *number) {
    const ir_node *fill = raise_maker(value, "ConstantOfShape");
    const gqac_tensor *t = fill ? ir_attr_get(fill, "value")->tensor : pass_constant(value);
    if (!t || gqac_tensor_count(t) != 1 || !OP_IN(OP_FLOATS, t->dtype)) {
        *number = 0; /* the default of ConstantOfShape */
        return fill && !t;
    }
    *number = op_get_f32(t, 0);
    return true;
}

/* True for zeros, also as the product of two numbers; NaN and infinity times 0 are not. */
static bool is_zero(const ir_value *value) {
    double x, y = 1;
    const ir_node *mul = raise_maker(value, "Mul");
    return (mul ? all_are(ir_node_input(mul, 0), &x) && all_are(ir_node_input(mul, 1), &y)
                : all_are(value, &x)) &&
           x * y == 0;
}

/* The operand of a node on the path that comes from the product; -1: there is none. */
static int way_on(const shared_head *h, const ir_node *node) {
    double x;
    if (op_is(node, "", "Softmax"))
        return 0;
    if (op_is(node, "", "Where"))
        for (int i = 1; i < 3; i++)
            if (raise_scalar(ir_node_input(node, 3 - i), &x))
                return i;
    if (op_is(node, "", "Div"))
        return raise_scalar(ir_node_input(node, 1), &x) ? 0 : -1;
    for (int i = 0; i < 2 && op_is(node, "", "Mul"); i++)
        if (raise_scalar(ir_node_input(node, i), &x))
            return 1 - i;
    for (int i = 0; i < 2 && op_is(node, "", "Add"); i++) { /* a mask has one row for all heads */
        const ir_value *value = ir_node_input(node, i), *other = ir_node_input(node, 1 - i);
        if (value->type.rank == 4 ? raise_dim(value, 2) == h->heads : is_zero(other))
            return i;
    }
    return -1;
}

/* True if the other operands are numbers or masks [B,S,1,T]. */
static bool fits(const ir_node *node, int on) {
    for (int i = 0; i < node->n_inputs; i++) {
        const ir_value *x = ir_node_input(node, i);
        if (i != on && x->type.rank != 0 && !(x->type.rank == 4 && raise_dim(x, 2) == 1))
            return false;
    }
    return true;
}

/* Follows the path from the softmax back to the product of queries and keys. */
static ir_node *find_product(shared_head *h, ir_value *value) {
    for (int i = 0; i < 2 * MOST_PATH && value->def && value->graph == h->root->graph; i++) {
        ir_node *node = value->def;
        const int rank = value->type.rank;
        if (op_is(node, "", "MatMul"))
            return rank == 3 ? node : NULL;
        const bool view =
            op_is(node, "", "Reshape") && rank == 4 && ir_node_input(node, 0)->type.rank == 3;
        const int on = view ? 0 : way_on(h, node);
        if (on < 0 || h->n == MOST_PATH)
            return NULL;
        const bool zeros = rank == 3 && op_is(node, "", "Add");
        if (!view && !zeros) {
            if (!fits(node, on))
                return NULL;
            h->path[h->n] = node;
            h->from[h->n++] = ir_node_input(node, on);
        }
        value = ir_node_input(node, on);
    }
    return NULL;
}

/* True for [B,n,.]. */
static bool is_list(const ir_value *x, const ir_dim *batch, const ir_dim *n) {
    return x->type.rank == 3 && x->type.dims[0] == batch && (!n || x->type.dims[1] == n);
}

/* True if the root weighs values by such probabilities. */
static bool find(ir_node *root, const ir_value *tokens, shared_head *h) {
    static const int64_t swap[] = {0, 2, 1};
    const ir_node *view = raise_maker(ir_node_input(root, 0), "Reshape");
    const ir_node *softmax = view ? raise_maker(ir_node_input(view, 0), "Softmax") : NULL;
    *h = (shared_head){.root = root, .v = ir_node_input(root, 1)};
    if (!softmax || softmax->outputs[0]->type.rank != 4 || h->v->constant)
        return false;
    const ir_type *p = &softmax->outputs[0]->type;
    const int64_t axis = ir_attr_int(softmax, "axis");
    h->heads = raise_dim(softmax->outputs[0], 2);
    const ir_node *product = find_product(h, softmax->outputs[0]);
    const ir_node *turn = product ? raise_maker(ir_node_input(product, 1), "Transpose") : NULL;
    if (!turn || !raise_is_perm(turn, 3, swap) || !h->heads || (axis != -1 && axis != 3) ||
        !p->dims[0] || !p->dims[1] || p->dims[1] != tokens->type.dims[1])
        return false;
    ir_dims *dims = root->graph->module->dims;
    const ir_dim *rows = ir_dim_mul(dims, p->dims[1], ir_dim_const(dims, h->heads));
    h->q = ir_node_input(product, 0);
    h->k = ir_node_input(turn, 0);
    h->size = raise_dim(h->q, 2);
    h->value_size = raise_dim(h->v, 2);
    return rows && is_list(h->q, p->dims[0], rows) && is_list(h->k, p->dims[0], NULL) &&
           is_list(h->v, p->dims[0], NULL) && is_list(view->outputs[0], p->dims[0], rows) &&
           h->size && h->value_size;
}

/* A node of the path with x in place of the operand that comes from the product. */
static ir_value *rebuilt(ir_builder *b, const shared_head *h, int at, ir_value *x) {
    const ir_node *old = h->path[at];
    ir_value *turned[MOST_OPERANDS] = {NULL};
    double number;
    for (int i = 0; i < old->n_inputs; i++) {
        ir_value *mask = ir_node_input(old, i);
        if (mask != h->from[at] && mask->type.rank == 4 && !raise_scalar(mask, &number))
            turned[i] = OP_TRANSPOSE(b, mask, 0, 2, 1, 3);
    }
    ir_value *y = raise_again(b, old, h->from[at], x);
    for (int i = 0; y && i < old->n_inputs; i++)
        if (turned[i])
            ir_node_set_input(y->def, i, turned[i]);
    return y;
}

static gqac_status rewrite(pass_context *context, ir_value *tokens, const shared_head *h) {
    ir_node *root = h->root, *prev = root->prev;
    ir_builder b = {.graph = root->graph, .before = root, .diag = context->diag};
    ir_value *lengths = op_build_lengths(&b, tokens, 0, 2);
    ir_value *of_heads = OP_I64S(&b, h->heads, h->size);
    ir_value *shape = op_build_concat(&b, 0, 2, (ir_value *[]){lengths, of_heads});
    ir_value *q = OP_BUILD(&b, "Reshape", .in = {h->q, shape});
    q = OP_TRANSPOSE(&b, q, 0, 2, 1, 3);
    ir_value *k = OP_BUILD(&b, "Unsqueeze", .in = {h->k, OP_I64S(&b, 1)});
    k = OP_TRANSPOSE(&b, k, 0, 1, 3, 2);
    ir_value *v = OP_BUILD(&b, "Unsqueeze", .in = {h->v, OP_I64S(&b, 1)});
    ir_value *x = OP_BUILD(&b, "MatMul", .in = {q, k});
    for (int i = h->n - 1; i >= 0; i--)
        x = rebuilt(&b, h, i, x);
    ir_value *y = OP_BUILD(&b, "MatMul", .in = {x, v});
    y = OP_TRANSPOSE(&b, y, 0, 2, 1, 3);
    ir_value *batch = op_build_lengths(&b, tokens, 0, 1), *size = OP_I64S(&b, -1, h->value_size);
    shape = op_build_concat(&b, 0, 2, (ir_value *[]){batch, size});
    y = OP_BUILD(&b, "Reshape", .in = {y, shape});
    GQAC_TRY(b.status);
    GQAC_TRY(pass_settle(root, prev, b.diag));
    ir_value_replace(root->outputs[0], y);
    context->changed++;
    return GQAC_OK;
}

gqac_status raise_multi_query(pass_context *context) {
    ir_graph *graph = context->module->graph;
    ir_value *tokens = pass_tokens(graph);
    const size_t before = context->changed;
    for (ir_node *node = graph->first; node && tokens; node = node->next) {
        shared_head h;
        if (op_is(node, "", "MatMul") && find(node, tokens, &h))
            GQAC_TRY(rewrite(context, tokens, &h));
    }
    if (context->changed != before)
        pass_sweep(context->module); /* the old products would be readers of caches */
    return GQAC_OK;
}
