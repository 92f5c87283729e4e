/* What the passes share: walking nested graphs, operands by name, and equality of types. */
#ifndef GQAC_PASSES_REWRITE_H
#define GQAC_PASSES_REWRITE_H

#include "passes/pass.h"

/* The graphs a node holds: for (int at = 0; (graph = pass_next_graph(node, &at));) */
ir_graph *pass_next_graph(const ir_node *node, int *at);
bool pass_holds_graphs(const ir_node *node);
/* The operand with that name in the schema; NULL when absent. Positions are those of the schema,
 * so a variadic operand has none. */
ir_value *pass_operand(const ir_node *node, const char *name);
/* The graph input with that name; NULL: there is none. */
ir_value *pass_input(const ir_graph *graph, const char *name);
/* dtype, rank and every dim are known and the same. */
bool pass_same_type(const ir_value *a, const ir_value *b);
/* Does an input have the name of a past? Exporters call them past_key_values.0.key, past_conv.0. */
bool pass_names_past(const ir_value *input);
/* Is it the input of the main graph that says which of the tokens so far are no padding: [B,T],
 * ones in a sequence? Masks of an encoder, or of tokens that all see, have longer names. */
bool pass_is_attention_mask(const ir_graph *main, const ir_value *value);
/* Is it the graph input of embeddings [B,S,E] that some decoders have in the place of token ids? */
bool pass_is_embeds(const ir_value *input);
/* Every mark of a graph and of those within it becomes 0. */
void pass_clear_marks(ir_graph *graph);
/* A constant whose data is at hand (one of a dump may have none). */
const gqac_tensor *pass_constant(const ir_value *value);
/* What `claim` writes where a kernel's name would be, on composites that no kernel takes. */
extern const char pass_to_expand[];
/* Infers the nested graphs of a node, the node, and its nested graphs again. */
gqac_status pass_infer_node(ir_node *node, gqac_diag *diag);
/* Where the computation of `rows` [B,S,..], each by itself, begins: the first operand [B,S,..] of
 * nodes that lead to it and mix no rows; NULL when there is no such node (last_rows.c). */
ir_use *pass_first_local(const ir_value *rows);
/* Types the nodes between `prev` (NULL: the start of the graph) and `node`, and names them after
 * `node`. */
gqac_status pass_settle(const ir_node *node, ir_node *prev, gqac_diag *diag);
/* Types of a whole graph anew, after those of its inputs changed (infer.c). */
gqac_status pass_infer_again(ir_graph *graph, gqac_diag *diag);
/* Is `name` in a list that ends with NULL (or is NULL)? */
bool pass_listed(const char *const *list, const char *name);
/* UNSUPPORTED by a node: what is wrong, the rule, and what to try. */
gqac_status pass_refuse(const ir_node *node, gqac_diag *diag, const char *what, const char *rule,
                        const char *hint);

#endif
