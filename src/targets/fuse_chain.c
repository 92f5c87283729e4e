/* Which nodes a chain has, and its steps: see fuse_chain.h. */
#include "targets/fuse_chain.h"

#include <string.h>

_Static_assert(TARGET_CHAIN_STEPS == TARGET_MAX_FUSED + 1, "a chain is a group");

/* ---- which ops ----------------------------------------------------------- */

extern const gqac_op gqac_op_add, gqac_op_sub, gqac_op_mul, gqac_op_div, gqac_op_neg, gqac_op_sqrt,
    gqac_op_sigmoid, gqac_op_tanh, gqac_op_erf, gqac_op_swish, gqac_op_quick_gelu, gqac_op_gelu,
    gqac_op_fast_gelu, gqac_op_cast;

typedef struct chain_op {
    const gqac_op *op;
    target_step_kind kind;
    int operands;
} chain_op;

static const chain_op ops[] = {
    {&gqac_op_mul, TARGET_MUL, 2},
    {&gqac_op_sigmoid, TARGET_SIGMOID, 1},
    {&gqac_op_add, TARGET_ADD, 2},
    {&gqac_op_sub, TARGET_SUB, 2},
    {&gqac_op_div, TARGET_DIV, 2},
    {&gqac_op_neg, TARGET_NEG, 1},
    {&gqac_op_sqrt, TARGET_SQRT, 1},
    {&gqac_op_tanh, TARGET_TANH, 1},
    {&gqac_op_erf, TARGET_ERF, 1},
    {&gqac_op_swish, TARGET_SWISH, 1},
    {&gqac_op_quick_gelu, TARGET_SWISH, 1},
    {&gqac_op_gelu, TARGET_GELU, 1},
    {&gqac_op_fast_gelu, TARGET_FAST_GELU, 1},
    {&gqac_op_cast, TARGET_CAST, 1},
};

static const chain_op *find_op(const ir_node *node) {
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (node->op == &ops[i].op->schema)
            return &ops[i];
    return NULL;
}

bool target_is_step(const ir_node *node) {
    return find_op(node) != NULL;
}

/* ---- shapes -------------------------------------------------------------- */

/* The form of an operand compared with a result of that type; false: no chain can take it. */
static bool form_of(const ir_value *value, const ir_type *result, target_leaf_form *form) {
    if (!value || !OP_IN(OP_FLOATS, value->type.dtype))
        return false;
    *form = TARGET_LEAF_FULL;
    if (target_same_shape(&value->type, result))
        return true;
    const gqac_tensor *t = value->constant;
    int64_t n;
    if (!t || !t->data || t->rank > result->rank)
        return false;
    const int64_t count = gqac_tensor_count(t);
    *form = count == 1 ? TARGET_LEAF_ONE : TARGET_LEAF_ROW;
    return count == 1 || (t->rank > 0 && t->dims[t->rank - 1] == count &&
                          ir_dim_is_const(result->dims[result->rank - 1], &n) && n == count);
}

/* ---- the pattern --------------------------------------------------------- */

bool target_chain_has(const chain_nodes *p, const ir_node *node) {
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
        target_leaf_form form;
        if (i >= op->operands ? ir_node_input(node, i) != NULL
                              : !form_of(ir_node_input(node, i), type, &form))
            return false;
        full |= i < op->operands && form == TARGET_LEAF_FULL;
    }
    return full;
}

bool target_chain_alone(const chain_nodes *p, const ir_value *value) {
    for (const ir_use *use = value->uses; use; use = use->next)
        if (!target_chain_has(p, use->node))
            return false;
    return true;
}

/* Counts the operands from outside, each once. */
static int count_leaves(const chain_nodes *p) {
    const ir_value *seen[2 * TARGET_CHAIN_STEPS];
    int n = 0;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->nodes[i]->n_inputs; k++) {
            const ir_value *v = ir_node_input(p->nodes[i], k);
            bool known = !v || (v->def && target_chain_has(p, v->def));
            for (int j = 0; j < n && !known; j++)
                known = seen[j] == v;
            if (!known)
                seen[n++] = v;
        }
    return n;
}

/* Adds one more node that fits; false: there is none. */
static bool grow(chain_nodes *p) {
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->nodes[i]->n_inputs; k++) {
            const ir_value *v = ir_node_input(p->nodes[i], k);
            const ir_node *node = v ? v->def : NULL;
            if (!node || node->graph != p->nodes[0]->graph || node->fused_into ||
                target_chain_has(p, node) || !target_chain_alone(p, v) ||
                !can_compute(node, p->type))
                continue;
            p->nodes[p->n++] = node;
            if (count_leaves(p) <= TARGET_CHAIN_LEAVES)
                return true;
            p->n--;
        }
    return false;
}

bool target_match_chain(const ir_node *node) {
    const ir_value *y = ir_node_output(node, 0);
    return y && y->type.rank >= 0 && can_compute(node, &y->type);
}

chain_nodes target_find_chain(const ir_node *root, int most) {
    chain_nodes p = {.type = &ir_node_output(root, 0)->type, .n = 1, .nodes = {root}};
    while (p.n < most && grow(&p))
        ;
    return p;
}

int target_fuse_chain(const ir_node *root, ir_node **nodes) {
    if (!target_match_chain(root))
        return 0;
    const chain_nodes p = target_find_chain(root, TARGET_CHAIN_STEPS);
    for (int i = 1; i < p.n; i++)
        nodes[i - 1] = p.nodes[i]->outputs[0]->def;
    return p.n - 1;
}

/* ---- the record ---------------------------------------------------------- */

typedef struct compiler {
    const ir_node *root;
    target_chain *r;
    const ir_value **leaves;
    const ir_node *nodes[TARGET_CHAIN_STEPS]; /* of the steps */
    int left[TARGET_CHAIN_STEPS];             /* number of later uses of a step's result */
    bool busy[TARGET_CHAIN_STEPS];            /* registers */
    gqac_diag *diag;
} compiler;

static bool is_fused(const compiler *c, const ir_value *value) {
    return value->def && value->def->fused_into == c->root;
}

static gqac_status add_leaf(compiler *c, const ir_value *value, int *index) {
    target_chain *r = c->r;
    target_leaf_form form;
    for (*index = 0; *index < r->n_leaves; ++*index)
        if (c->leaves[*index] == value)
            return GQAC_OK;
    if (*index == TARGET_CHAIN_LEAVES || !form_of(value, &c->root->outputs[0]->type, &form))
        OP_FAIL(c->root, c->diag, GQAC_INTERNAL, "an operand of the chain is not compiled");
    c->leaves[*index] = value;
    r->leaves[*index].form = form;
    r->leaves[*index].value = is_fused(c, value) ? -1 : bind_value(value);
    r->rows |= form == TARGET_LEAF_ROW;
    if (form == TARGET_LEAF_FULL && r->shape < 0)
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
        c->busy[c->r->steps[step].to - TARGET_CHAIN_LEAVES] = false;
}

/* Compiles a node. Recursion is bounded by the nodes of a chain: `claim` has fused at most
 * TARGET_MAX_FUSED. */
static gqac_status add_node(compiler *c, const ir_node *node) {
    const chain_op *op = find_op(node);
    target_chain *r = c->r;
    target_step step = {.kind = op->kind, .type = node->outputs[0]->type.dtype};
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
    step.to = TARGET_CHAIN_LEAVES + to;
    if (op->kind == TARGET_SWISH)
        step.param = ir_attr_float(node, "alpha");
    if (op->kind == TARGET_GELU && strcmp(ir_attr_get(node, "approximate")->s, "tanh") == 0)
        step.kind = TARGET_GELU_TANH;
    c->nodes[r->n_steps] = node;
    c->left[r->n_steps] = uses;
    r->steps[r->n_steps++] = step;
    return GQAC_OK;
}

gqac_status target_bind_chain(const ir_node *root, target_chain *record,
                              const ir_value *leaves[TARGET_CHAIN_LEAVES], gqac_diag *diag) {
    compiler c = {.root = root, .r = record, .leaves = leaves, .diag = diag};
    *record = (target_chain){
        .type = root->outputs[0]->type.dtype, .y = bind_value(root->outputs[0]), .shape = -1};
    GQAC_TRY(add_node(&c, root));
    if (record->shape < 0)
        OP_FAIL(root, diag, GQAC_INTERNAL, "a chain has only constant operands");
    return GQAC_OK;
}
