/* Private to src/ir: functions that its files share, besides ir.h.
 *
 * Only these functions link and unlink uses, and claim names, so lists stay consistent and names
 * unique. */
#ifndef GQAC_IR_IMPL_H
#define GQAC_IR_IMPL_H

#include "base/table.h"
#include "ir/ir.h"

enum { IR_MAX_NESTING = 16 }; /* of nested graphs; the verifier and the parser refuse more */

/* Makes ir_dims_failed true. */
void ir_dims_fail(ir_dims *dims);

/* A name in use. `value` is its value, even if that was removed from its graph. */
typedef struct ir_name {
    const char *text;
    size_t length;
    ir_value *value;
    int next_suffix; /* of names made from this one */
} ir_name;

bool ir_names_create(ir_module *module);
/* Claims the name `wanted`, with a suffix if it is in use; NULL: out of memory. */
ir_name *ir_names_claim(ir_module *module, const char *wanted);
ir_name *ir_names_find(const ir_module *module, const char *text, size_t length);

/* Creates a value with that name or one with a suffix; it is not yet part of the graph. */
ir_value *ir_value_create(ir_graph *graph, const char *wanted, ir_type type);
bool ir_graph_push_constant(ir_graph *graph, ir_value *value);
void ir_use_link(ir_use *use, ir_value *value); /* NULL links nothing */
void ir_use_unlink(ir_use *use);
bool ir_node_linked(const ir_node *node);

#endif
