/* Shared by passes: graph inputs with a meaning, equality of types, typing of new nodes, and the
 * like. */
#ifndef GQAC_PASSES_REWRITE_H
#define GQAC_PASSES_REWRITE_H

#include "passes/pass.h"

/* The attribute axis for a tensor of that rank: a negative axis counts from the end. */
int64_t pass_axis(const ir_node *node, int rank);
/* The graph input with that name; NULL: there is none. */
ir_value *pass_input(const ir_graph *graph, const char *name);
/* True if dtype, rank and all dims are known and the same. */
bool pass_same_type(const ir_value *a, const ir_value *b);
/* True for a graph input with the name of a past, such as past_key_values.0.key or past_conv.0. */
bool pass_is_past(const ir_value *value);
/* The output that belongs to an operand whose name begins with "past": present_key of past_key;
 * NULL: there is none (kv_pairs.c). */
ir_value *pass_present_of(const ir_use *past);
/* True if values of type `wide`, f32, hold those of `narrow`, f16 or bf16, exactly. */
bool pass_widens(gqac_dtype narrow, gqac_dtype wide);
/* True for a Cast whose result is only returned by the graph. */
bool pass_is_returned_cast(const ir_node *node);
/* True for the attention mask among the inputs of the main graph: [B,T], not 0 for tokens that are
 * not padding, and so all ones in a sequence. Masks of an encoder, or of tokens that all queries
 * see, have longer names. */
bool pass_is_attention_mask(const ir_graph *main, const ir_value *value);
/* True for the graph input of embeddings [B,S,E] that some decoders have in place of token ids. */
bool pass_is_embeds(const ir_value *input);
/* The input whose first dims are [B,S]: input_ids, or embeddings; NULL: there is none. */
ir_value *pass_tokens(const ir_graph *graph);
/* The result "logits"; NULL: there is none. */
ir_value *pass_logits(const ir_graph *graph);
/* Results of the main graph, to be changed and set with ir_graph_set_results. */
typedef struct pass_results {
    int n;
    ir_value **values;
    const char **names;
} pass_results;
/* Copies the results to scratch of the pass, with capacity for `more`; false: out of memory. */
bool pass_copy_results(const pass_context *context, int more, pass_results *results);
/* Sets the marks of all nodes of a graph and its nested graphs to 0. */
void pass_clear_marks(ir_graph *graph);
/* The constant of a value if its data are known (a constant of a dump may have none); else NULL. */
const gqac_tensor *pass_constant(const ir_value *value);
/* True if the value is a constant of one integer, `wanted`; value NULL: false. */
bool pass_is_int(const ir_value *value, int64_t wanted);
/* What `claim` stores in place of a kernel's name in composites that no kernel claims. */
extern const char pass_to_expand[];
/* Infers the nested graphs of a node, the node, and its nested graphs again. */
gqac_status pass_infer_node(ir_node *node, gqac_diag *diag);
/* The operand [B,S,..] at which the chain of nodes that computes `rows` [B,S,..] without mixing
 * rows begins; NULL: there is no such chain (last_rows.c). */
ir_use *pass_first_local(const ir_value *rows);
/* Types the nodes between `prev` (NULL: the start of the graph) and `node`, and names them after
 * `node`. */
gqac_status pass_settle(const ir_node *node, ir_node *prev, gqac_diag *diag);
/* Infers the types of a whole graph again, after those of its inputs changed (infer.c). */
gqac_status pass_infer_again(ir_graph *graph, gqac_diag *diag);
/* Splits each past of keys and values [2,B,H,P,D] in two, and its present likewise (unjoin.c). */
gqac_status pass_unjoin(pass_context *context);
/* True if `name` is in a list that ends with NULL (the list may be NULL). */
bool pass_listed(const char *const *list, const char *name);
/* Fails with UNSUPPORTED because of a node: what is wrong, the rule, and what to try. */
gqac_status pass_refuse(const ir_node *node, gqac_diag *diag, const char *what, const char *rule,
                        const char *hint);

#endif
