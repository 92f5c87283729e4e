/* Helpers for the bind functions of kernels: operands by the names of their schema, as value
 * numbers, and records in the program's arena. */
#ifndef GQAC_TARGETS_BIND_H
#define GQAC_TARGETS_BIND_H

#include "base/arena.h"
#include "ops/shared.h"
#include "targets/norm.h"
#include "targets/target.h"

/* The number of a value, as target_call.values has it; -1 for NULL. */
static inline int bind_value(const ir_value *value) {
    return value ? value->id : -1;
}
/* The value number of an operand or result by its name in the schema; -1: absent. The schema must
 * have the name. */
int bind_input(const ir_node *node, const char *name);
int bind_output(const ir_node *node, const char *name);
/* The value number of a result of the group; -1: no node outside the group reads it. */
int bind_leaving(const ir_value *value);
/* True if both shapes are known and provably equal. */
static inline bool target_same_shape(const ir_type *a, const ir_type *b) {
    bool same = a->rank >= 0 && a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++)
        same = a->dims[i] && a->dims[i] == b->dims[i];
    return same;
}
/* Zeroed memory for a record. NULL: out of memory, and the diag is set to NO_MEMORY. */
void *bind_new(const target_binding *b, size_t size);

/* Makes *record, which holds what the initialisers say. NO_MEMORY. */
#define BIND_RECORD(b, record, type, ...)                                                          \
    bind_record((b), &(const type){__VA_ARGS__}, sizeof(type), (record))
gqac_status bind_record(const target_binding *b, const void *from, size_t size,
                        const void **record);

/* Fills the record of a norm: RMSNormalization and LayerNormalization, with a skip or without. */
void bind_norm(const ir_node *node, target_norm *record);

/* The slot of the states that a recurrent_attention reads and writes; -1: it has none, or the node
 * is another op. */
int bind_recurrent_slot(const ir_node *node);

/* Bind functions for the kernels of targets/kv_rows.h and targets/recurrent.h. */
gqac_status bind_kv_state(const target_binding *b, const ir_node *root, const void **record);
gqac_status bind_kv_append(const target_binding *b, const ir_node *root, const void **record);
gqac_status bind_recurrent_attention(const target_binding *b, const ir_node *root,
                                     const void **record);

#endif
