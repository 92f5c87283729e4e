/* Masks of attention in a sequence. The rows of a sequence have no padding, and lengths determine
 * which keys a query sees. So a mask that only says where attention_mask is zero is redundant and
 * is removed. To prove that, each of its elements must depend only on the same element of
 * attention_mask, and the mask is computed for an attention_mask of one element 1: the result must
 * hide nothing. Any other mask is refused, because its meaning might depend on how tokens are split
 * into calls. */
#include <string.h>

#include "ops/build.h"
#include "ops/shared.h"
#include "passes/stateful.h"

enum { SEEN = 1 };  /* ir_node.mark */
enum { MOST = 64 }; /* nodes from attention_mask to a mask */

typedef struct trial {
    const stateful *s;
    ir_node *nodes[MOST]; /* from the mask backwards */
    int n;
    const gqac_tensor *found[MOST]; /* result of nodes[i] for a mask of ones */
    gqac_arena *arena;
    bool short_of_memory; /* out of memory: nothing is known */
} trial;

/* True for an op that repeats the one element: without padding all elements are the same. */
static bool is_expand(const ir_node *node) {
    return op_is(node, "", "Expand");
}

/* True if an element of the result depends only on the same element of each operand that is not
 * constant. */
static bool is_pointwise(const ir_node *node) {
    static const char *const names[] = {"Cast",
                                        "Identity",
                                        "Unsqueeze",
                                        "Squeeze",
                                        "Not",
                                        "And",
                                        "Or",
                                        "Sub",
                                        "Mul",
                                        "Add",
                                        "Div",
                                        "Neg",
                                        "Equal",
                                        "Greater",
                                        "Less",
                                        "Where",
                                        "Min",
                                        "Max",
                                        "GreaterOrEqual",
                                        "Clip",
                                        "LessOrEqual",
                                        NULL};
    return op_is(node, "gqac", "padding_bias") || is_expand(node) ||
           (!*node->op->domain && pass_listed(names, node->op->name));
}

static bool is_ones(const stateful *s, const ir_value *value) {
    return pass_is_attention_mask(s->graph, value) &&
           OP_IN(OP_NUMBERS | OP_BIT(BOOL), value->type.dtype);
}

/* The number of operands whose elements are read: padding_bias and Expand use only the shape of the
 * others. */
static int operands_of(const ir_node *node) {
    return op_is(node, "gqac", "padding_bias") || is_expand(node) ? 1 : node->n_inputs;
}

/* ---- collecting ---------------------------------------------------------- */

static bool may_be_constant(const ir_node *node, int operand) {
    const gqac_tensor *t = pass_constant(node->inputs[operand].value);
    const bool axes = operand == 1 && (op_is(node, "", "Unsqueeze") || op_is(node, "", "Squeeze"));
    return t && (gqac_tensor_count(t) == 1 || axes);
}

static bool add(trial *t, ir_value *value) {
    if (!value->def || !is_pointwise(value->def) || value->def->graph != t->s->graph)
        return false;
    if (value->def->mark & SEEN)
        return true;
    if (t->n == MOST)
        return false;
    value->def->mark |= SEEN;
    t->nodes[t->n++] = value->def;
    return true;
}

/* Collects the nodes between attention_mask and the mask; false: the mask depends on something
 * else. */
static bool collect(trial *t, ir_value *mask) {
    bool good = add(t, mask);
    for (int i = 0; i < t->n && good; i++) {
        const ir_node *node = t->nodes[i];
        for (int k = 0; k < operands_of(node) && good; k++) {
            ir_value *value = node->inputs[k].value;
            good = !value || may_be_constant(node, k) || is_ones(t->s, value) ||
                   (!value->constant && add(t, value));
        }
    }
    for (int i = 0; i < t->n; i++)
        t->nodes[i]->mark &= ~(unsigned)SEEN;
    return good;
}

/* ---- computing ----------------------------------------------------------- */

static const gqac_tensor *ones(trial *t, gqac_dtype dtype) {
    gqac_tensor *made = GQAC_ARENA_NEW(t->arena, gqac_tensor);
    void *data = gqac_arena_alloc(t->arena, 16);
    if (!made || !data) {
        t->short_of_memory = true;
        return NULL;
    }
    memset(data, 0, 16);
    *made = (gqac_tensor){.dtype = dtype, .rank = 2, .dims = {1, 1}, .data = data};
    if (OP_IN(OP_FLOATS, dtype))
        op_put_f32(made, 0, 1.0f);
    else if (dtype == GQAC_F64)
        *(double *)data = 1.0;
    else
        op_put_i64(made, 0, 1);
    return made;
}

static const gqac_tensor *result_of(trial *t, const ir_value *value) {
    if (!value)
        return NULL;
    if (value->constant)
        return value->constant;
    if (!value->def)
        return ones(t, value->type.dtype);
    for (int i = 0; i < t->n; i++)
        if (t->nodes[i] == value->def)
            return t->found[i];
    return NULL;
}

/* padding_bias for a mask of ones: nothing is added. */
static bool pads_nothing(const gqac_tensor *mask, gqac_tensor *out) {
    static const float zero = 0.0f;
    *out = (gqac_tensor){.dtype = GQAC_F32, .rank = 4, .dims = {1, 1, 1, 1}};
    out->data = (void *)(uintptr_t)&zero; /* read only */
    return mask && mask->rank == 2 && mask->dtype == GQAC_I32 && op_get_i64(mask, 0) > 0;
}

static bool is_ready(trial *t, const ir_node *node) {
    for (int k = 0; k < operands_of(node); k++) {
        const ir_value *value = node->inputs[k].value;
        if (value && value->def && !result_of(t, value))
            return false;
    }
    return true;
}

/* Computes one node on one element; false: its result is unknown. */
static bool compute(trial *t, int i) {
    ir_node *node = t->nodes[i];
    const gqac_tensor *in[8];
    gqac_tensor *out = GQAC_ARENA_ARRAY(t->arena, gqac_tensor, (size_t)node->n_outputs);
    t->short_of_memory |= !out;
    if (!out || node->n_inputs > 8 || node->n_outputs != 1)
        return false;
    t->found[i] = out;
    if (op_is(node, "gqac", "padding_bias"))
        return pads_nothing(result_of(t, node->inputs[0].value), out);
    for (int k = 0; k < operands_of(node); k++) {
        in[k] = result_of(t, node->inputs[k].value);
        if (node->inputs[k].value && !in[k])
            return false;
    }
    if (is_expand(node)) {
        *out = *in[0];
        return gqac_tensor_count(out) == 1;
    }
    gqac_diag unused = {0};
    gqac_status status = op_eval(node, in, out, t->arena, &unused);
    t->short_of_memory |= status == GQAC_NO_MEMORY;
    return status == GQAC_OK && gqac_tensor_count(out) == 1;
}

/* Computes each node once its operands are known; the list is short, so it is searched
 * repeatedly. */
static bool compute_all(trial *t) {
    for (int done = 0, before = -1; done < t->n;) {
        if (done == before)
            return false;
        before = done;
        for (int i = t->n - 1; i >= 0; i--) {
            if (t->found[i] || !is_ready(t, t->nodes[i]))
                continue;
            if (!compute(t, i))
                return false;
            done++;
        }
    }
    return true;
}

/* A mask of rank 4, [B,1,1,T]: of other ranks the batch would stand for heads or queries. */
static bool hides_nothing(trial *t, ir_value *mask) {
    if (mask->type.rank != 4 || !collect(t, mask) || !compute_all(t))
        return false;
    const gqac_tensor *last = result_of(t, mask);
    if (last->rank != 4)
        return false;
    return last->dtype == GQAC_BOOL ? op_get_i64(last, 0) != 0
                                    : OP_IN(OP_FLOATS, last->dtype) && op_get_f32(last, 0) == 0.0f;
}

/* ---- all masks ----------------------------------------------------------- */

/* True for a padding_bias with lengths [B], the numbers of keys, which a sequence knows itself.
 * stateful_lengths has checked that they come from the attention mask. */
static bool by_length(const ir_value *mask) {
    if (!mask->def || !op_is(mask->def, "gqac", "padding_bias"))
        return false;
    const ir_value *lengths = ir_node_input(mask->def, 0), *q = ir_node_input(mask->def, 1);
    return lengths && lengths->type.rank == 1 && q->type.rank == 4 && lengths->type.dims[0] &&
           lengths->type.dims[0] == q->type.dims[0];
}

static gqac_status fail_mask(const stateful *s, const ir_node *attend) {
    const char *const rule =
        op_is(attend, "gqac", "attention")
            ? "in a sequence, the attention_bias of GroupQueryAttention must be causality, a "
              "window "
              "or a function of the elements of attention_mask that only pads"
            : "in a sequence, causality must be an attribute (is_causal, unidirectional), padding "
              "a "
              "function of the elements of attention_mask, and a bias an f32 slope for each head "
              "(ALiBi)";
    return pass_refuse(
        attend, s->context->diag,
        "the mask or bias of attention depends on more than the zeros of attention_mask", rule,
        "`gqac run` runs the graph as exported");
}

gqac_status stateful_mask_pads(const stateful *s, ir_value *mask, bool *pads) {
    trial t = {.s = s, .arena = gqac_arena_create(0)};
    if (!t.arena)
        return gqac_diag_oom(s->context->diag, "masks");
    *pads = hides_nothing(&t, mask);
    gqac_arena_free(t.arena);
    return t.short_of_memory ? gqac_diag_oom(s->context->diag, "masks") : GQAC_OK;
}

static gqac_status look_at(const stateful *s, const ir_node *attend, ir_value *mask) {
    bool pads;
    GQAC_TRY(stateful_mask_pads(s, mask, &pads));
    return pads ? GQAC_OK : fail_mask(s, attend);
}

/* The index of the mask of an attend, or of the bias of an attention; -1: another node. */
static int mask_of(const ir_node *node) {
    return op_is(node, "gqac", "attend")      ? ir_schema_index(node->op->inputs, "mask")
           : op_is(node, "gqac", "attention") ? ir_schema_index(node->op->inputs, "bias")
                                              : -1;
}

/* Gives a bias of keys a column for each row of the cache. */
static gqac_status give_keys(const stateful *s, ir_node *attend, const ir_node *bias) {
    ir_builder b = {.graph = attend->graph, .before = attend, .diag = s->context->diag};
    ir_value *by = OP_BUILD(&b, "key_bias", .of = bias,
                            .in = {ir_node_input(bias, 0), ir_node_operand(attend, "k")});
    GQAC_TRY(b.status);
    ir_node_set_input(attend, mask_of(attend), by);
    s->context->changed++;
    return pass_infer_node(by->def, s->context->diag);
}

gqac_status stateful_masks(stateful *s) {
    const ir_value *known = NULL; /* most models have one mask for all layers */
    for (ir_node *node = s->graph->first; node; node = node->next) {
        const int at = mask_of(node);
        ir_value *mask = ir_node_input(node, at);
        if (!mask)
            continue;
        if (mask->def && op_is(mask->def, "gqac", "key_bias")) {
            GQAC_TRY(give_keys(s, node, mask->def));
            continue;
        }
        if (mask != known && !by_length(mask))
            GQAC_TRY(look_at(s, node, mask));
        known = mask;
        ir_node_set_input(node, at, NULL);
        s->context->changed++;
    }
    return GQAC_OK;
}
