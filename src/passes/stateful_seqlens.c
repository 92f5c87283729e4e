/* Checks that the lengths that a file computes are those of a sequence. stateful_lengths replaces
 * seqlens_k and total_sequence_length by the lengths of the run time; if the file computed other
 * lengths, results would differ from those of the file. So both are computed here for the attention
 * mask of one sequence, for two pairs of past and new tokens. What cannot be computed that way (a
 * length that the caller passes, a constant, a mask of a fixed size, a shape that is not known) is
 * not checked, nor is a computation of more than MOST nodes. Both conventions of --seqlens-k are
 * accepted, since a sequence uses neither. */
#include <string.h>

#include "ops/shared.h"
#include "passes/stateful.h"

enum { SEEN = 1, MOST = 64, MOST_OPERANDS = 8 };

typedef struct sample {
    const stateful *s;
    gqac_arena *arena;
    int64_t past, fresh; /* tokens */
    struct {
        const ir_dim *dim;
        int64_t length;
    } dims[8];
    int n_dims;
    struct {
        const ir_value *value;
        gqac_tensor tensor;
    } found[MOST];
    int n_found;
    bool unknown; /* a length is unknown; nothing more is computed */
    bool short_of_memory;
} sample;

/* ---- what the caller would feed ------------------------------------------------ */

/* A dimension that two names stand for must have one length. */
static void set_dim(sample *x, const ir_dim *dim, int64_t length) {
    int64_t constant;
    if (!dim || (ir_dim_is_const(dim, &constant) && constant == length))
        return;
    for (int i = 0; i < x->n_dims; i++)
        if (x->dims[i].dim == dim) {
            x->unknown |= x->dims[i].length != length;
            return;
        }
    if (ir_dim_is_const(dim, &constant) || x->n_dims == (int)(sizeof x->dims / sizeof *x->dims)) {
        x->unknown = true;
        return;
    }
    x->dims[x->n_dims].dim = dim;
    x->dims[x->n_dims++].length = length;
}

static void set_dims(sample *x) {
    const ir_graph *graph = x->s->graph;
    for (int i = 0; i < graph->n_inputs; i++) {
        const ir_value *input = graph->inputs[i];
        const ir_dim *const *dims = input->type.dims;
        const bool mask = pass_is_attention_mask(graph, input);
        if (input->type.rank == 2 && (mask || !strcmp(input->name, "input_ids"))) {
            set_dim(x, dims[0], 1);
            set_dim(x, dims[1], mask ? x->past + x->fresh : x->fresh);
        } else if (input->id == STATEFUL_PAST && input->type.rank == 4) {
            set_dim(x, dims[0], 1);
            set_dim(x, dims[2], x->past);
        }
    }
}

static bool length_of(const sample *x, const ir_dim *dim, int64_t *length) {
    for (int i = 0; i < x->n_dims; i++)
        if (x->dims[i].dim == dim) {
            *length = x->dims[i].length;
            return true;
        }
    return dim && ir_dim_is_const(dim, length);
}

/* A tensor of the shape of a value, without data. */
static bool shape_of(const sample *x, const ir_value *value, gqac_tensor *t) {
    *t = (gqac_tensor){.dtype = value->type.dtype, .rank = value->type.rank};
    for (int i = 0; i < t->rank; i++)
        if (!length_of(x, value->type.dims[i], &t->dims[i]))
            return false;
    return t->dtype != GQAC_NONE && t->rank >= 0;
}

/* An attention mask [1, past + fresh] of ones. */
static bool feed_ones(sample *x, const ir_value *mask, gqac_tensor *t) {
    size_t bytes;
    if (!OP_IN(OP_INTS | OP_BIT(BOOL), mask->type.dtype) || !shape_of(x, mask, t) ||
        gqac_shape_bytes(t->dtype, t->rank, t->dims, &bytes, NULL) != GQAC_OK)
        return false;
    t->data = gqac_arena_alloc(x->arena, bytes);
    x->short_of_memory |= !t->data;
    for (int64_t i = 0; t->data && i < gqac_tensor_count(t); i++)
        op_put_i64(t, i, 1);
    return t->data != NULL;
}

/* ---- computing ------------------------------------------------------------------ */

static const gqac_tensor *find(const sample *x, const ir_value *value) {
    if (value->constant)
        return pass_constant(value);
    for (int i = 0; i < x->n_found; i++)
        if (x->found[i].value == value)
            return &x->found[i].tensor;
    return NULL;
}

static gqac_tensor *add(sample *x, const ir_value *value) {
    if (x->n_found == MOST)
        return NULL;
    x->found[x->n_found].value = value;
    return &x->found[x->n_found++].tensor;
}

/* False: the results of the node are not known. */
static bool compute(sample *x, const ir_node *node) {
    const gqac_tensor *in[MOST_OPERANDS];
    gqac_tensor shape, *out;
    gqac_diag unused = {0};
    int64_t work = 1000000; /* ns, as op_work.left counts them */
    if (node->n_inputs > MOST_OPERANDS || node->n_outputs != 1 || ir_holds_graphs(node))
        return false;
    for (int i = 0; i < node->n_inputs; i++) {
        const ir_value *value = node->inputs[i].value;
        in[i] = value ? find(x, value) : NULL;
        if (value && !in[i] && i == 0 && op_is(node, "", "Shape") && shape_of(x, value, &shape))
            in[i] = &shape;
        if (value && !in[i])
            return false;
    }
    out = add(x, node->outputs[0]);
    const gqac_status status =
        out ? op_eval_within(node, in, out, x->arena, &work, &unused) : GQAC_LIMIT;
    x->short_of_memory |= status == GQAC_NO_MEMORY;
    return status == GQAC_OK;
}

static void compute_all(sample *x) {
    set_dims(x);
    for (int i = 0; i < x->s->graph->n_inputs && !x->unknown; i++) {
        const ir_value *input = x->s->graph->inputs[i];
        gqac_tensor ones;
        if (pass_is_attention_mask(x->s->graph, input) && feed_ones(x, input, &ones)) {
            gqac_tensor *t = add(x, input);
            if (t)
                *t = ones;
        }
    }
    for (const ir_node *n = x->s->graph->first; n && !x->unknown; n = n->next)
        if (n->mark & SEEN)
            x->unknown = !compute(x, n);
}

/* ---- the check -------------------------------------------------------------------- */

/* The operand must be `expected` or, in the other convention of lengths, `also`. */
static gqac_status check_one(const sample *x, const ir_node *node, const char *operand,
                             int64_t expected, int64_t also) {
    const ir_value *value = ir_node_operand(node, operand);
    const gqac_tensor *t = value && !value->constant ? find(x, value) : NULL;
    gqac_diag *diag = x->s->context->diag;
    if (!t || !OP_IN(OP_INTS, t->dtype) || gqac_tensor_count(t) != 1)
        return GQAC_OK;
    const int64_t found = op_get_i64(t, 0);
    if (found == expected || found == also)
        return GQAC_OK;
    op_fail(node, diag, GQAC_UNSUPPORTED,
            "%s is computed as %lld for a sequence of %lld past and %lld new tokens",
            strcmp(operand, "total") ? operand : "total_sequence_length", (long long)found,
            (long long)x->past, (long long)x->fresh);
    gqac_diag_rule(diag, "it must be %lld: a sequence supplies its own lengths",
                   (long long)expected);
    gqac_diag_hint(diag, "`gqac run` runs the graph as exported");
    return GQAC_UNSUPPORTED;
}

static gqac_status check_sample(const stateful *s, int64_t past, int64_t fresh, gqac_arena *arena) {
    sample x = {.s = s, .arena = arena, .past = past, .fresh = fresh};
    const int64_t total = past + fresh;
    compute_all(&x);
    if (x.short_of_memory)
        return gqac_diag_oom(s->context->diag, "lengths");
    for (const ir_node *n = s->graph->first; n && !x.unknown; n = n->next) {
        if (!op_is(n, "gqac", "seqlens_to_past"))
            continue;
        GQAC_TRY(check_one(&x, n, "seqlens_k", total - 1, past));
        GQAC_TRY(check_one(&x, n, "total", total, total));
    }
    return GQAC_OK;
}

gqac_status stateful_seqlens(const stateful *s) {
    gqac_arena *arena = gqac_arena_create(0);
    if (!arena)
        return gqac_diag_oom(s->context->diag, "lengths");
    gqac_status status = check_sample(s, 0, 7, arena);
    if (status == GQAC_OK)
        status = check_sample(s, 5, 3, arena);
    gqac_arena_free(arena);
    return status;
}
