/* The list of targets, and how a node finds its kernel. */
#include "targets/target.h"

#include <stdio.h>
#include <string.h>

extern const gqac_target target_ref, target_cpu, target_gpu;

static const gqac_target *const targets[] = {&target_ref, &target_cpu, &target_gpu};

const target_kernel target_generic_kernel = {.name = "generic"};

const target_kernel *target_claim(const gqac_target *target, const target_kernel *after,
                                  const ir_node *node, ir_node **fused, int *n_fused) {
    for (const target_kernel *k = after ? after + 1 : target->kernels; k->name; k++) {
        if (!op_is(node, k->domain, k->op) || (k->match && !k->match(node)))
            continue;
        *n_fused = k->fuse ? k->fuse(node, fused) : 0;
        if (!k->fuse || *n_fused > 0)
            return k;
    }
    *n_fused = 0;
    return op_of(node)->eval ? &target_generic_kernel : NULL;
}

gqac_status target_bind(const target_binding *b, ir_node *root) {
    const target_kernel *kernel = root->claim;
    return kernel && kernel->bind ? kernel->bind(b, root, &root->bound) : GQAC_OK;
}

/* True: an eval with IR_OP_IN_PLACE may write over its first operand. */
static bool eval_writes_over(const ir_node *node, const ir_value *result, const ir_value *operand) {
    bool may = (node->op->flags & IR_OP_IN_PLACE) && result->def == node && result->result == 0;
    for (int i = 0; i < node->n_inputs && may; i++)
        may = (node->inputs[i].value == operand) == (i == 0);
    return may;
}

bool target_writes_over(const ir_node *root, const ir_value *result, const ir_value *operand) {
    const target_kernel *kernel = root->claim ? root->claim : &target_generic_kernel;
    if (kernel == &target_generic_kernel)
        return eval_writes_over(root, result, operand);
    return kernel->over && kernel->over(root, result, operand);
}

/* "ref, ..." */
static const char *list_targets(char *text, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < sizeof targets / sizeof *targets && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "", targets[i]->name);
    return text;
}

gqac_status gqac_target_find(const char *name, const gqac_target **target, gqac_diag *diag) {
    char text[128] = "";
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (!strcmp(targets[i]->name, name)) {
            *target = targets[i];
            return GQAC_OK;
        }
    gqac_diag_set(diag, GQAC_USAGE, "unknown target '%s'", name);
    gqac_diag_rule(diag, "the targets are %s", list_targets(text, sizeof text));
    gqac_diag_hint(diag, "use cpu, or gpu for a CUDA or OpenCL device");
    return GQAC_USAGE;
}
