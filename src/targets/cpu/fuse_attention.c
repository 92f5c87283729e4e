/* Which attention the kernels of attention.c take, and the nodes that dequantise keys and values.
 */
#include "targets/cpu/attention.h"
#include "targets/cpu/graph.h"

enum { Q, K, V };

static bool floats_of(const ir_node *node, int input) {
    const ir_type type = op_in_type(node, input);
    int64_t size;
    return type.rank == 4 && OP_IN(OP_FLOATS, type.dtype) && ir_dim_is_const(type.dims[3], &size) &&
           size >= 1 && size <= CPU_ATTEND_SIZE;
}

/* `attention` numbers the stages from the one after the mask. */
cpu_attend_show cpu_attention_shown(const ir_node *node) {
    if (!ir_node_output(node, 1))
        return CPU_SHOW_NONE;
    const int64_t first = op_is(node, "gqac", "attention") ? CPU_SHOW_CAPPED : CPU_SHOW_SCORES;
    return (cpu_attend_show)(first + ir_attr_int(node, "qk_stage"));
}

bool cpu_attention_match(const ir_node *node) {
    /* Scores of every key are not to be had from the blocks of sequences, which differ in length */
    const ir_value *keys = ir_node_input(node, K);
    const bool blocks = keys && keys->def && op_is(keys->def, "gqac", "kv_append");
    const cpu_attend_show show = cpu_attention_shown(node);
    return floats_of(node, Q) && floats_of(node, K) && floats_of(node, V) &&
           (show == CPU_SHOW_NONE || show >= CPU_SHOW_MASKED || !blocks);
}

static ir_node *decoder_of(const ir_node *root, int input) {
    ir_node *def = root->inputs[input].value->def;
    return def && op_is(def, "gqac", "kv_dequantise") && !def->outputs[0]->uses->next &&
                   def->graph == root->graph
               ? def
               : NULL;
}

int cpu_attention_fuse(const ir_node *root, ir_node **nodes) {
    int n = 0;
    for (int input = K; input <= V; input++)
        if (decoder_of(root, input))
            nodes[n++] = decoder_of(root, input);
    return n;
}

bool cpu_reads_blocks(const target_kernel *kernel) {
    return kernel->eval == cpu_attention_run || kernel->eval == cpu_attend_run;
}
