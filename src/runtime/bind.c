/* Results that are bound to memory of the caller.
 *
 * A kernel writes to bound memory directly, unless that memory overlaps an input of the run. If it
 * overlaps, the kernel does so only if the node that makes the result may work in place on that
 * input, both begin at the same byte, and the node is the input's last reader, because later
 * readers would see the new contents. Every other bound result is computed in memory of the context
 * and copied at the end. */
#include "runtime/exec.h"

#include <string.h>

#include "base/alloc.h"

gqac_status exec_bind(exec *e, int result, void *data, size_t bytes, gqac_diag *diag) {
    if (!e->bound)
        e->bound = gqac_calloc((size_t)e->program->n_outputs + 1, sizeof *e->bound);
    if (!e->bound)
        return gqac_diag_oom(diag, "bound outputs");
    e->bound[result] = (exec_bound){.data = data, .bytes = bytes};
    return GQAC_OK;
}

static const ir_value *result_value(const exec *e, int index) {
    return e->program->module->graph->ret->inputs[index].value;
}

const exec_bound *exec_bind_of(const exec *e, const ir_value *value) {
    for (const ir_use *use = value->uses; use; use = use->next)
        if (use->node == e->program->module->graph->ret) {
            const exec_bound *bound = &e->bound[use - use->node->inputs];
            if (bound->direct)
                return bound;
        }
    return NULL;
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes && b_bytes && (x < y ? y - x < a_bytes : x - y < b_bytes);
}

/* True if `other`, of the same graph, no longer needs its operands when `node` begins. Results of a
 * nested graph may be views of operands. */
static bool is_done_before(const ir_node *other, const ir_node *node) {
    if (ir_holds_graphs(other))
        return false;
    const ir_node *at = other->fused_into ? NULL : node->prev;
    while (at && at != other)
        at = at->prev;
    return at != NULL;
}

void exec_unbind(exec *e, const void *memory, size_t bytes) {
    for (int i = 0; e->bound && i < e->program->n_outputs; i++) {
        const exec_bound *bound = &e->bound[i];
        if (bound->data && overlap(bound->data, bound->bytes + !bound->bytes, memory, bytes))
            e->bound[i] = (exec_bound){.data = NULL};
    }
}

/* True if the node of a result may write over this input, whose memory overlaps. */
static bool is_in_place(const ir_value *result, const ir_value *input, bool same_start) {
    const ir_node *node = result->def ? ir_node_root(result->def) : NULL;
    if (!node)
        return false;
    bool last = same_start && target_writes_over(node, result, input);
    for (const ir_use *use = input->uses; use && last; use = use->next)
        last = ir_node_root(use->node) == node || is_done_before(use->node, node);
    return last;
}

/* True if an earlier bound result is the same value. */
static bool is_taken(const exec *e, int index) {
    for (int i = 0; i < index; i++)
        if (e->bound[i].direct && result_value(e, i) == result_value(e, index))
            return true;
    return false;
}

static bool is_direct(const exec *e, int index) {
    const ir_graph *graph = e->program->module->graph;
    const exec_bound *bound = &e->bound[index];
    const ir_value *value = result_value(e, index);
    if (!value->def || is_taken(e, index))
        return false;
    for (int i = 0; i < graph->n_inputs; i++) {
        const gqac_tensor *t = &e->values[graph->inputs[i]->id];
        if (overlap(bound->data, bound->bytes, t->data, gqac_tensor_bytes(t)) &&
            !is_in_place(value, graph->inputs[i], bound->data == t->data))
            return false;
    }
    return true;
}

gqac_status exec_bind_check(exec *e, gqac_diag *diag) {
    for (int i = 0; i < e->program->n_outputs; i++)
        e->bound[i].direct = false;
    for (int i = 0; i < e->program->n_outputs; i++) {
        if (!e->bound[i].data)
            continue;
        for (int j = 0; j < i; j++)
            if (e->bound[j].data &&
                overlap(e->bound[i].data, e->bound[i].bytes, e->bound[j].data, e->bound[j].bytes))
                GQAC_FAIL(diag, GQAC_USAGE,
                          "the memory bound to the outputs '%s' and '%s' overlaps",
                          e->program->outputs[j].name, e->program->outputs[i].name);
        e->bound[i].direct = is_direct(e, i);
    }
    return GQAC_OK;
}

/* Checks that no result which is a view of an input lies where another result will be copied. */
static gqac_status check_copies(const exec *e, gqac_diag *diag) {
    for (int i = 0; i < e->program->n_outputs; i++) {
        const exec_bound *bound = &e->bound[i];
        if (!bound->data || exec_result(e, i)->data == bound->data)
            continue;
        for (int j = 0; j < e->program->n_outputs; j++) {
            const gqac_tensor *t = exec_result(e, j);
            if (j != i && overlap(bound->data, bound->bytes, t->data, gqac_tensor_bytes(t)))
                GQAC_FAIL(diag, GQAC_USAGE,
                          "the memory bound to output '%s' belongs to an input of which output "
                          "'%s' is a view",
                          e->program->outputs[i].name, e->program->outputs[j].name);
        }
    }
    return GQAC_OK;
}

gqac_status exec_bind_finish(exec *e, gqac_diag *diag) {
    GQAC_TRY(check_copies(e, diag));
    for (int i = 0; i < e->program->n_outputs; i++) {
        const exec_bound *bound = &e->bound[i];
        const gqac_tensor *t = exec_result(e, i);
        const size_t bytes = gqac_tensor_bytes(t);
        if (!bound->data || t->data == bound->data)
            continue;
        if (bytes > bound->bytes)
            GQAC_FAIL(diag, GQAC_INVALID_INPUT,
                      "output '%s' needs %zu bytes, but the memory bound to it has %zu",
                      e->program->outputs[i].name, bytes, bound->bytes);
        if (bytes)
            memmove(bound->data, t->data, bytes);
    }
    return GQAC_OK;
}
