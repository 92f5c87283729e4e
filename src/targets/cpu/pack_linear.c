/* MatMul and Gemm with a constant float weight become `linear` on panels of 64 columns.
 *
 * The weight is the constant itself, or a Transpose of it that `fold` did not fold because it is
 * large (an embedding that is also the head). All products with one weight are replaced when the
 * first is found, so that it is packed once. For MatMul in f32, a constant row that is added to the
 * product becomes the bias: in f32 the same results are rounded in both forms, with 16 bits they
 * are not. */
#include <string.h>

#include "ops/build.h"
#include "ops/linear.h"
#include "targets/cpu/pack.h"

enum {
    SMALL = 64 << 10, /* bytes of a packed weight for which padding does not matter */
    BLOCK = 64,       /* k that are packed at once */
};

/* y = a w (+ bias), as a node in the graph. */
typedef struct product {
    ir_node *node, *add; /* add: the Add of the bias after `node`; NULL: none */
    ir_value *a, *bias;
    ir_value *weight; /* the constant */
    bool transposed;  /* weight is [n,k] */
    int64_t n, k;
} product;

static bool is_used(const ir_node *node) {
    return node->outputs[0] && !ir_value_unused(node->outputs[0]);
}

/* Finds the constant matrix; the value is the matrix or its transpose. */
static bool find_weight(ir_value *value, product *p) {
    value = cpu_pack_untransposed(value, &p->transposed);
    const gqac_tensor *w = value ? value->constant : NULL;
    if (!w || w->rank != 2 || !w->data || !OP_IN(OP_FLOATS, w->dtype))
        return false;
    p->weight = value;
    p->n = w->dims[p->transposed ? 0 : 1];
    p->k = w->dims[p->transposed ? 1 : 0];
    return p->n > 0 && p->k > 0 && p->n <= INT32_MAX && p->k <= INT32_MAX;
}

/* True if the value is a constant [.., 1, n] that can be added to a result of that rank. */
static bool is_row(const ir_value *value, int64_t n, int rank) {
    const gqac_tensor *t = value ? value->constant : NULL;
    if (!t || !t->data || t->rank < 1 || t->rank > rank || gqac_tensor_count(t) != n)
        return false;
    return t->dims[t->rank - 1] == n;
}

/* True if all elements are finite: infinities of both signs make a NaN, whose bits differ between
 * Add and linear. */
static bool is_finite(const gqac_tensor *t) {
    for (int64_t i = 0; i < gqac_tensor_count(t); i++) {
        const float x = op_get_f32(t, i);
        if (!(x - x == 0))
            return false;
    }
    return true;
}

static void find_add(product *p) {
    const ir_value *y = p->node->outputs[0];
    const ir_use *use = y->uses;
    ir_node *add = use->node;
    if (use->next || !op_is(add, "", "Add") || add->graph != p->node->graph || !is_used(add))
        return;
    ir_value *row = ir_node_input(add, ir_node_input(add, 0) == y ? 1 : 0);
    if (y->type.dtype != GQAC_F32 || y->type.rank < 1 || !is_row(row, p->n, y->type.rank) ||
        row->constant->dtype != GQAC_F32 || !is_finite(row->constant))
        return;
    p->add = add;
    p->bias = row;
}

static bool read_gemm(product *p) {
    ir_value *c = ir_node_input(p->node, 2);
    p->transposed = ir_attr_int(p->node, "transB") != 0;
    if (ir_attr_int(p->node, "transA") != 0 || ir_attr_float(p->node, "alpha") != 1.0f ||
        !find_weight(ir_node_input(p->node, 1), p) || p->a->type.rank != 2)
        return false;
    if (!c)
        return true;
    p->bias = c;
    return ir_attr_float(p->node, "beta") == 1.0f && is_row(c, p->n, 2) &&
           c->constant->dtype == p->weight->constant->dtype;
}

static bool is_worth_it(const product *p) {
    const int64_t columns = linear_panels(p->n) * LINEAR_PANEL;
    return columns <= 2 * p->n || columns * p->k * 4 <= SMALL;
}

static bool read_product(ir_node *node, product *p) {
    *p = (product){.node = node, .a = ir_node_input(node, 0)};
    const bool matmul = op_is(node, "", "MatMul");
    if ((!matmul && !op_is(node, "", "Gemm")) || !is_used(node) || !p->a)
        return false;
    if (matmul ? !find_weight(ir_node_input(node, 1), p) : !read_gemm(p))
        return false;
    if (p->a->type.rank < 1 || p->a->type.dtype != p->weight->constant->dtype || !is_worth_it(p))
        return false;
    if (matmul)
        find_add(p);
    return true;
}

/* ---- the copy ------------------------------------------------------------- */

/* Writes `out`, [k][64] of one panel, from `count` rows [k] of a transposed weight, padded with
 * zeros. */
/* NOLINTBEGIN(bugprone-macro-parentheses): a type and a name that is defined cannot have
 * parentheses */
#define TRANSPOSE(name, type)                                                                      \
    static void name(type *restrict out, const type *restrict in, int64_t k, int64_t count) {      \
        for (int64_t first = 0; first < k; first += BLOCK) {                                       \
            const int64_t n = k - first < BLOCK ? k - first : BLOCK;                               \
            for (int64_t c = 0; c < count; c++)                                                    \
                for (int64_t i = first; i < first + n; i++)                                        \
                    out[i * LINEAR_PANEL + c] = in[c * k + i];                                     \
            for (int64_t i = first; i < first + n; i++)                                            \
                for (int64_t c = count; c < LINEAR_PANEL; c++)                                     \
                    out[i * LINEAR_PANEL + c] = 0;                                                 \
        }                                                                                          \
    }
/* NOLINTEND(bugprone-macro-parentheses) */
TRANSPOSE(transpose_16, uint16_t)
TRANSPOSE(transpose_32, uint32_t)

static gqac_status copy_transposed(char *out, const char *in, const product *p, size_t size,
                                   gqac_poll *poll, gqac_diag *diag) {
    for (int64_t column = 0; column < p->n; column += LINEAR_PANEL) {
        GQAC_TRY(gqac_poll_check(poll, diag));
        const int64_t left = p->n - column, count = left < LINEAR_PANEL ? left : LINEAR_PANEL;
        void *to = out + (size_t)(column * p->k) * size;
        const void *from = in + (size_t)(column * p->k) * size;
        if (size == 4)
            transpose_32(to, from, p->k, count);
        else
            transpose_16(to, from, p->k, count);
    }
    return GQAC_OK;
}

/* Packs a block of k for all panels at a time: whole rows are read, and runs of some KiB are
 * written. */
static gqac_status copy_plain(char *out, const char *in, const product *p, size_t size,
                              gqac_poll *poll, gqac_diag *diag) {
    const size_t line = LINEAR_PANEL * size;
    for (int64_t first = 0; first < p->k; first += BLOCK)
        for (int64_t column = 0; column < p->n; column += LINEAR_PANEL) {
            GQAC_TRY(gqac_poll_check(poll, diag));
            const int64_t left = p->n - column, last = first + BLOCK;
            const size_t bytes = left < LINEAR_PANEL ? (size_t)left * size : line;
            char *to = out + (size_t)(column * p->k) * size + (size_t)first * line;
            for (int64_t k = first; k < p->k && k < last; k++, to += line) {
                memcpy(to, in + (size_t)(k * p->n + column) * size, bytes);
                if (bytes < line)
                    memset(to + bytes, 0, line - bytes);
            }
        }
    return GQAC_OK;
}

static gqac_status pack_weight(const product *p, bool pairs, gqac_poll *poll, ir_value **packed,
                               gqac_diag *diag) {
    if (pairs)
        return cpu_pack_pairs(p->weight, p->transposed, p->n, p->k, poll, packed, diag);
    const gqac_tensor *w = p->weight->constant;
    const size_t size = op_width(w->dtype);
    gqac_tensor t = {
        .dtype = w->dtype, .rank = 3, .dims = {linear_panels(p->n), p->k, LINEAR_PANEL}};
    size_t bytes;
    GQAC_TRY(gqac_shape_bytes(t.dtype, t.rank, t.dims, &bytes, diag));
    ir_graph *graph = p->weight->graph;
    char *data = cpu_pack_alloc(graph->module, bytes);
    if (!data)
        return gqac_diag_oom(diag, "a packed weight");
    GQAC_TRY((p->transposed ? copy_transposed : copy_plain)(data, w->data, p, size, poll, diag));
    t.data = data;
    *packed = ir_graph_add_constant(graph, p->weight->name, &t);
    return *packed ? GQAC_OK : gqac_diag_oom(diag, "a packed weight");
}

/* ---- the graph ------------------------------------------------------------ */

/* The bias as one row. */
static ir_value *flat_bias(ir_builder *b, const product *p) {
    if (!p->bias || p->bias->constant->rank == 1)
        return p->bias;
    gqac_tensor t = *p->bias->constant;
    t.rank = 1;
    t.dims[0] = p->n;
    ir_value *value = ir_graph_add_constant(p->bias->graph, p->bias->name, &t);
    if (!value)
        b->status = gqac_diag_oom(b->diag, "a bias");
    return value;
}

/* Replaces a product by the op that reads packed weights of this shape. */
static gqac_status replace(const product *p, ir_value *packed, gqac_diag *diag) {
    ir_builder b = {.graph = p->node->graph, .before = p->node, .diag = diag};
    ir_value *bias = flat_bias(&b, p);
    const bool pairs = linear_is_pairs(packed->constant, p->k, p->n);
    ir_value *y = OP_BUILD(&b, pairs ? "linear_bf16" : "linear", .in = {p->a, packed, bias},
                           .ints = {{"n", p->n}, {"k", p->k}});
    GQAC_TRY(cpu_pack_replace(&b, p->node, (p->add ? p->add : p->node)->outputs[0], y));
    for (int i = 0; p->add && i < 2; i++) /* the Add is not used any more, so it must not use its
                                             operands */
        ir_node_set_input(p->add, i, p->bias);
    return GQAC_OK;
}

/* Replaces the node if it is a product with that weight. */
static gqac_status try_user(ir_node *node, const product *first, ir_value *packed,
                            gqac_diag *diag) {
    product p;
    if (!read_product(node, &p) || p.weight != first->weight || p.transposed != first->transposed)
        return GQAC_OK;
    return replace(&p, packed, diag);
}

gqac_status cpu_pack_linear(ir_node *node, const op_options *options, gqac_poll *poll, bool *packed,
                            gqac_diag *diag) {
    product p;
    ir_value *value;
    if (!read_product(node, &p))
        return GQAC_OK;
    GQAC_TRY(pack_weight(&p, options->bf16, poll, &value, diag));
    for (const ir_use *use = p.weight->uses; use; use = use->next) {
        GQAC_TRY(try_user(use->node, &p, value, diag));
        if (!op_is(use->node, "", "Transpose") || !use->node->outputs[0])
            continue;
        for (const ir_use *u = use->node->outputs[0]->uses; u; u = u->next)
            GQAC_TRY(try_user(u->node, &p, value, diag));
    }
    *packed = true;
    return GQAC_OK;
}
