/* Cached rows in the graph: which rows are read in the blocks of the sequences, and which are
 * stored as columns. This depends on their readers in the graph, so it is the same in every
 * call. */
#include "targets/cpu/graph.h"
#include "targets/cpu/kv.h"

enum { K = 1, V = 2 }; /* inputs of attention and attend */

/* True if this use reads blocks: as keys or values of a kernel that can, or as their codes. Only
 * keys can be read as columns. key_range needs only the number of rows. */
static bool reads_blocks(const ir_use *use, bool columns) {
    if (op_is(use->node, "gqac", "key_range"))
        return true;
    if (use->node->fused_into && op_is(use->node, "gqac", "kv_dequantise"))
        use = use == &use->node->inputs[0] ? use->node->outputs[0]->uses : use;
    const target_kernel *kernel = use->node->claim;
    const int64_t input = use - use->node->inputs;
    if (kernel && kernel->bind == cpu_bind_kv_tail)
        return !columns && input == 0;
    return kernel && cpu_reads_blocks(kernel) && !use->node->fused_into && input >= K &&
           input <= (columns ? K : V);
}

/* True if all uses of the rows read blocks. */
static bool only_blocks(const ir_value *rows, bool columns) {
    for (const ir_use *use = rows ? rows->uses : NULL; use; use = use->next)
        if (!reads_blocks(use, columns))
            return false;
    return true;
}

bool cpu_kv_columns(const ir_node *kv_state) {
    const ir_value *token = ir_node_output(kv_state, 0);
    bool read = false;
    for (const ir_use *use = token ? token->uses : NULL; use; use = use->next) {
        const ir_value *rows =
            op_is(use->node, "gqac", "kv_append") ? ir_node_output(use->node, 1) : NULL;
        if (!rows || !rows->uses || !only_blocks(rows, true))
            return false;
        read = true;
    }
    return read;
}

bool cpu_kv_only_blocks(const ir_node *kv_append) {
    return only_blocks(ir_node_output(kv_append, 1), false);
}

/* ---- records ------------------------------------------------------------- */

int cpu_bind_slot(const ir_value *rows) {
    return rows && rows->def && op_is(rows->def, "gqac", "kv_append") &&
                   cpu_kv_only_blocks(rows->def)
               ? (int)ir_attr_int(rows->def, "slot")
               : -1;
}

gqac_status cpu_bind_kv_append(const target_binding *b, const ir_node *root, const void **record) {
    return BIND_RECORD(b, record, cpu_kv_append_record, .slot = (int)ir_attr_int(root, "slot"),
                       .fresh = bind_input(root, "new"), .token = bind_output(root, "token"),
                       .rows = bind_output(root, "rows"), .only_blocks = cpu_kv_only_blocks(root));
}

gqac_status cpu_bind_kv_tail(const target_binding *b, const ir_node *root, const void **record) {
    return BIND_RECORD(
        b, record, cpu_kv_tail_record, .rows = bind_input(root, "rows"),
        .past_len = bind_input(root, "past_len"), .state = bind_output(root, "state"),
        .slot = cpu_bind_slot(ir_node_input(root, 0)), .length = ir_attr_int(root, "length"));
}
