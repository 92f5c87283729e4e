/* Chains of elementwise ops: from a root upwards, every op whose result has the shape of the root's
 * result and is used only in the chain. Operands from outside (leaves) have that shape too, or are
 * constants: one element, or one row. So silu(gate) * up, gelu(gate) * up, a softcap of logits, or
 * x * sigmoid(x) + y run in one pass over pieces of a row, and a single op is the smallest chain.
 * f16 and bf16 results inside a chain are rounded where their ops round.
 *
 * Leaves that are products of one x (products.h) and that only the chain reads are in its group.
 * chain.c runs what is compiled here. */
#include <string.h>

#include "targets/cpu/graph.h"
#include "targets/cpu/rows.h"

_Static_assert(CPU_CHAIN_STEPS == TARGET_MAX_FUSED + 1, "a chain is a group");

/* ---- which ops ----------------------------------------------------------- */

extern const gqac_op gqac_op_add, gqac_op_sub, gqac_op_mul, gqac_op_div, gqac_op_neg, gqac_op_sqrt,
    gqac_op_sigmoid, gqac_op_tanh, gqac_op_erf, gqac_op_swish, gqac_op_quick_gelu, gqac_op_gelu,
    gqac_op_fast_gelu, gqac_op_cast;

typedef struct chain_op {
    const gqac_op *op;
    cpu_step_kind kind;
    int operands;
} chain_op;

static const chain_op ops[] = {
    {&gqac_op_mul, CPU_MUL, 2},
    {&gqac_op_sigmoid, CPU_SIGMOID, 1},
    {&gqac_op_add, CPU_ADD, 2},
    {&gqac_op_sub, CPU_SUB, 2},
    {&gqac_op_div, CPU_DIV, 2},
    {&gqac_op_neg, CPU_NEG, 1},
    {&gqac_op_sqrt, CPU_SQRT, 1},
    {&gqac_op_tanh, CPU_TANH, 1},
    {&gqac_op_erf, CPU_ERF, 1},
    {&gqac_op_swish, CPU_SWISH, 1},
    {&gqac_op_quick_gelu, CPU_SWISH, 1},
    {&gqac_op_gelu, CPU_GELU, 1},
    {&gqac_op_fast_gelu, CPU_FAST_GELU, 1},
    {&gqac_op_cast, CPU_CAST, 1},
};

static const chain_op *find_op(const ir_node *node) {
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (node->op == &ops[i].op->schema)
            return &ops[i];
    return NULL;
}

/* ---- shapes -------------------------------------------------------------- */

/* The form of an operand compared with a result of that type; false: no chain can take it. */
static bool form_of(const ir_value *value, const ir_type *result, cpu_leaf_form *form) {
    if (!value || !OP_IN(OP_FLOATS, value->type.dtype))
        return false;
    *form = CPU_LEAF_FULL;
    if (target_same_shape(&value->type, result))
        return true;
    const gqac_tensor *t = value->constant;
    int64_t n;
    if (!t || !t->data || t->rank > result->rank)
        return false;
    const int64_t count = gqac_tensor_count(t);
    *form = count == 1 ? CPU_LEAF_ONE : CPU_LEAF_ROW;
    return count == 1 || (t->rank > 0 && t->dims[t->rank - 1] == count &&
                          ir_dim_is_const(result->dims[result->rank - 1], &n) && n == count);
}

/* ---- the pattern --------------------------------------------------------- */

typedef struct pattern {
    const ir_type *type; /* of the root's result */
    int n;
    const ir_node *nodes[CPU_CHAIN_STEPS]; /* the root first */
} pattern;

static bool has_node(const pattern *p, const ir_node *node) {
    for (int i = 0; i < p->n; i++)
        if (p->nodes[i] == node)
            return true;
    return false;
}

static bool can_compute(const ir_node *node, const ir_type *type) {
    const chain_op *op = find_op(node);
    const ir_value *y = ir_node_output(node, 0);
    bool full = false;
    if (!op || !y || !OP_IN(OP_FLOATS, y->type.dtype) || !target_same_shape(&y->type, type))
        return false;
    for (int i = 0; i < node->n_inputs; i++) {
        cpu_leaf_form form;
        if (i >= op->operands ? ir_node_input(node, i) != NULL
                              : !form_of(ir_node_input(node, i), type, &form))
            return false;
        full |= i < op->operands && form == CPU_LEAF_FULL;
    }
    return full;
}

static bool used_within(const pattern *p, const ir_value *value) {
    for (const ir_use *use = value->uses; use; use = use->next)
        if (!has_node(p, use->node))
            return false;
    return true;
}

/* Counts the operands from outside, each once. */
static int count_leaves(const pattern *p) {
    const ir_value *seen[2 * CPU_CHAIN_STEPS];
    int n = 0;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->nodes[i]->n_inputs; k++) {
            const ir_value *v = ir_node_input(p->nodes[i], k);
            bool known = !v || (v->def && has_node(p, v->def));
            for (int j = 0; j < n && !known; j++)
                known = seen[j] == v;
            if (!known)
                seen[n++] = v;
        }
    return n;
}

/* Adds one more node that fits; false: there is none. */
static bool grow(pattern *p) {
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->nodes[i]->n_inputs; k++) {
            const ir_value *v = ir_node_input(p->nodes[i], k);
            const ir_node *node = v ? v->def : NULL;
            if (!node || node->graph != p->nodes[0]->graph || node->fused_into ||
                has_node(p, node) || !used_within(p, v) || !can_compute(node, p->type))
                continue;
            p->nodes[p->n++] = node;
            if (count_leaves(p) <= CPU_CHAIN_LEAVES)
                return true;
            p->n--;
        }
    return false;
}

bool cpu_match_chain(const ir_node *node) {
    const ir_value *y = ir_node_output(node, 0);
    return y && y->type.rank >= 0 && can_compute(node, &y->type);
}

static pattern find_chain(const ir_node *root, int most) {
    pattern p = {.type = &ir_node_output(root, 0)->type, .n = 1, .nodes = {root}};
    while (p.n < most && grow(&p))
        ;
    return p;
}

int cpu_fuse_chain(const ir_node *root, ir_node **nodes) {
    if (!cpu_match_chain(root))
        return 0;
    const pattern p = find_chain(root, CPU_CHAIN_STEPS);
    for (int i = 1; i < p.n; i++)
        nodes[i - 1] = p.nodes[i]->outputs[0]->def;
    return p.n - 1;
}

/* Elements are read at the index at which they are written, one piece of a row at a time; but
 * products of the group may read their operands at any time. */
bool cpu_chain_over(const ir_node *root, const ir_value *result, const ir_value *operand) {
    bool over = result->def == root && operand->type.dtype == result->type.dtype &&
                target_same_shape(&operand->type, &result->type);
    for (const ir_use *use = operand->uses; use; use = use->next)
        over = over && (ir_node_root(use->node) != root || find_op(use->node));
    return over;
}

/* True if the node is a product that only the chain reads, with the same x as `first`. */
static bool fits_chain(const pattern *p, const ir_node *node, const ir_node *first) {
    const ir_value *y = ir_node_output(node, 0);
    return node->graph == p->nodes[0]->graph && !node->fused_into && cpu_is_product(node) &&
           target_same_shape(&y->type, p->type) && used_within(p, y) &&
           (!first || cpu_products_fit(first, node));
}

int cpu_fuse_product_chain(const ir_node *root, ir_node **nodes) {
    int64_t n;
    int found = 0;
    if (!cpu_match_chain(root))
        return 0;
    const pattern p = find_chain(root, CPU_CHAIN_STEPS - 2);
    if (p.type->rank < 1 || !ir_dim_is_const(p.type->dims[p.type->rank - 1], &n))
        return 0;
    for (int i = 1; i < p.n; i++)
        nodes[i - 1] = p.nodes[i]->outputs[0]->def;
    ir_node **products = nodes + p.n - 1;
    const int free_places = TARGET_MAX_FUSED - (p.n - 1);
    for (int i = 0; i < p.n; i++)
        for (int k = 0; k < p.nodes[i]->n_inputs; k++) {
            const ir_value *v = ir_node_input(p.nodes[i], k);
            ir_node *node = v ? v->def : NULL;
            bool known =
                !node || has_node(&p, node) || found == CPU_PRODUCTS || found == free_places;
            for (int j = 0; j < found; j++)
                known |= products[j] == node;
            if (!known && fits_chain(&p, node, found ? products[0] : NULL))
                products[found++] = node;
        }
    ir_node *others[TARGET_MAX_FUSED]; /* products of the same x outside the chain: they share a
                                          call */
    return found && cpu_fuse_products(products[0], others) < found ? p.n - 1 + found : 0;
}

/* ---- the record ---------------------------------------------------------- */

typedef struct compiler {
    const ir_node *root;
    cpu_chain_record *r;
    const ir_value *leaves[CPU_CHAIN_LEAVES];
    const ir_node *nodes[CPU_CHAIN_STEPS]; /* of the steps */
    int left[CPU_CHAIN_STEPS];             /* number of later uses of a step's result */
    bool busy[CPU_CHAIN_STEPS];            /* registers */
    gqac_diag *diag;
} compiler;

static bool is_fused(const compiler *c, const ir_value *value) {
    return value->def && value->def->fused_into == c->root;
}

static gqac_status add_leaf(compiler *c, const ir_value *value, int *index) {
    cpu_chain_record *r = c->r;
    cpu_leaf_form form;
    for (*index = 0; *index < r->n_leaves; ++*index)
        if (c->leaves[*index] == value)
            return GQAC_OK;
    if (*index == CPU_CHAIN_LEAVES || !form_of(value, &c->root->outputs[0]->type, &form))
        OP_FAIL(c->root, c->diag, GQAC_INTERNAL, "an operand of the chain is not compiled");
    const bool product = is_fused(c, value);
    c->leaves[*index] = value;
    r->leaves[*index].form = form;
    r->leaves[*index].value = product ? -1 : bind_value(value);
    r->leaves[*index].product = product ? r->products.n : -1;
    if (product)
        cpu_bind_product(value->def, &r->products);
    r->rows |= product || form == CPU_LEAF_ROW;
    if (form == CPU_LEAF_FULL && r->shape < 0)
        r->shape = *index;
    r->n_leaves++;
    return GQAC_OK;
}

/* The step that makes a value, -1 when it is a leaf. */
static int step_of(const compiler *c, const ir_value *value) {
    for (int i = 0; i < c->r->n_steps; i++)
        if (value->def == c->nodes[i])
            return i;
    return -1;
}

static gqac_status add_node(compiler *c, const ir_node *node);

static gqac_status operand(compiler *c, const ir_value *value, int *at) {
    if (!is_fused(c, value) || !find_op(value->def))
        return add_leaf(c, value, at);
    if (step_of(c, value) < 0)
        GQAC_TRY(add_node(c, value->def));
    *at = c->r->steps[step_of(c, value)].to;
    return GQAC_OK;
}

static void release(compiler *c, const ir_value *value) {
    const int step = step_of(c, value);
    if (step >= 0 && --c->left[step] == 0)
        c->busy[c->r->steps[step].to - CPU_CHAIN_LEAVES] = false;
}

/* An estimate of a step's cost for sixteen elements. */
static int64_t step_cost(const cpu_step *step) {
    return step->kind >= CPU_SIGMOID && step->kind != CPU_CAST ? 16 : 2;
}

/* Compiles a node. Recursion is bounded by the nodes of a chain: `claim` has fused at most
 * TARGET_MAX_FUSED. */
static gqac_status add_node(compiler *c, const ir_node *node) {
    const chain_op *op = find_op(node);
    cpu_chain_record *r = c->r;
    cpu_step step = {.kind = op->kind, .type = node->outputs[0]->type.dtype};
    int at[2] = {0, 0}, uses = 0, to = 0;
    for (int i = 0; i < op->operands; i++)
        GQAC_TRY(operand(c, node->inputs[i].value, &at[i]));
    for (int i = 0; i < op->operands; i++)
        release(c, node->inputs[i].value);
    for (const ir_use *use = node->outputs[0]->uses; use; use = use->next)
        uses++;
    while (c->busy[to])
        to++;
    c->busy[to] = true;
    step.a = at[0];
    step.b = op->operands > 1 ? at[1] : at[0];
    step.to = CPU_CHAIN_LEAVES + to;
    if (op->kind == CPU_SWISH)
        step.param = ir_attr_float(node, "alpha");
    if (op->kind == CPU_GELU && strcmp(ir_attr_get(node, "approximate")->s, "tanh") == 0)
        step.kind = CPU_GELU_TANH;
    r->cost += step_cost(&step) * CPU_CHAIN_PIECE / 16;
    c->nodes[r->n_steps] = node;
    c->left[r->n_steps] = uses;
    r->steps[r->n_steps++] = step;
    return GQAC_OK;
}

gqac_status cpu_bind_chain(const target_binding *b, const ir_node *root, const void **record) {
    compiler c = {.root = root, .diag = b->diag};
    c.r = bind_new(b, sizeof *c.r);
    if (!c.r)
        return GQAC_NO_MEMORY;
    c.r->type = root->outputs[0]->type.dtype;
    c.r->y = bind_value(root->outputs[0]);
    c.r->shape = -1;
    c.r->cost = 20;
    GQAC_TRY(add_node(&c, root));
    if (c.r->shape < 0)
        OP_FAIL(root, b->diag, GQAC_INTERNAL, "a chain has only constant operands");
    *record = c.r;
    return GQAC_OK;
}
