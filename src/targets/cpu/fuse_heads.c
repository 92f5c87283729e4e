/* Heads on the cpu target: which nodes its kernels of heads and appends can compute, and their
 * records. */
#include "targets/fuse_heads.h"
#include "targets/cpu/graph.h"
#include "targets/cpu/heads.h"

gqac_status cpu_bind_rotary(const target_binding *b, const ir_node *root, const void **record) {
    cpu_heads_record *r = bind_new(b, sizeof *r);
    if (!r)
        return GQAC_NO_MEMORY;
    (void)target_bind_rotary(root, &r->heads);
    r->y = bind_output(root, "y");
    *record = r;
    return GQAC_OK;
}

static const target_append_rules rules = {.rotary = target_match_heads,
                                          .in_blocks = cpu_kv_only_blocks,
                                          .presents = true,
                                          .reads_packed = cpu_reads_blocks};

int cpu_fuse_append(const ir_node *root, ir_node **nodes) {
    return target_fuse_append(&rules, root, nodes);
}

gqac_status cpu_bind_append(const target_binding *b, const ir_node *root, const void **record) {
    target_streams *r = bind_new(b, sizeof *r);
    if (!r)
        return GQAC_NO_MEMORY;
    *record = r;
    return target_bind_append(&rules, root, r, NULL, b->diag);
}

const ir_value *cpu_packed_queries(const ir_value *queries, int64_t *column) {
    const ir_node *root = queries && queries->def ? queries->def->fused_into : NULL;
    const target_kernel *kernel = root ? root->claim : NULL;
    return kernel && kernel->bind == cpu_bind_append
               ? target_packed_queries(&rules, root, queries, column)
               : NULL;
}

const ir_value *cpu_lies_in(const ir_value *value) {
    int64_t column;
    return cpu_packed_queries(value, &column);
}
