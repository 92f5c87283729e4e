/* From nodes and their schemas to numbers: see bind.h. */
#include "targets/bind.h"

#include <assert.h>
#include <string.h>

static int index_of(const char *list, const char *name) {
    const int index = ir_schema_index(list, name);
    assert(index >= 0);
    return index;
}

int bind_input(const ir_node *node, const char *name) {
    return bind_value(ir_node_input(node, index_of(node->op->inputs, name)));
}

int bind_output(const ir_node *node, const char *name) {
    return bind_value(ir_node_output(node, index_of(node->op->outputs, name)));
}

int bind_leaving(const ir_value *value) {
    return value && ir_value_leaves(value) ? value->id : -1;
}

gqac_status bind_alloc(const target_binding *b, size_t size, void *record) {
    void *memory = gqac_arena_alloc(b->arena, size);
    if (!memory)
        return gqac_diag_oom(b->diag, "a kernel's record");
    memset(memory, 0, size);
    *(void **)record = memory;
    return GQAC_OK;
}
