/* Claims attention nodes for the kernels of attention.c, together with the nodes that dequantise
 * keys and values. */
#include "targets/cpu/attention.h"
#include "targets/cpu/graph.h"

enum { Q, K, V }; /* inputs of attention and attend */

static bool floats_of(const ir_node *node, int input) {
    const ir_type type = op_in_type(node, input);
    int64_t size;
    return type.rank == 4 && OP_IN(OP_FLOATS, type.dtype) && ir_dim_is_const(type.dims[3], &size) &&
           size >= 1 && size <= CPU_ATTEND_SIZE;
}

/* The stage of the scores that is an output of the node. `attention` numbers the stages from the
 * one after the mask. */
static cpu_attend_show shown_by(const ir_node *node) {
    if (!ir_node_output(node, 1))
        return CPU_SHOW_NONE;
    const int64_t first = op_is(node, "gqac", "attention") ? CPU_SHOW_CAPPED : CPU_SHOW_SCORES;
    return (cpu_attend_show)(first + ir_attr_int(node, "qk_stage"));
}

bool cpu_attention_match(const ir_node *node) {
    /* all scores cannot be an output if keys are in blocks of sequences, whose lengths differ */
    const ir_value *keys = ir_node_input(node, K);
    const bool blocks = keys && keys->def && op_is(keys->def, "gqac", "kv_append");
    const cpu_attend_show show = shown_by(node);
    const bool rounds =
        ir_node_operand(node, "score_scale") || ir_node_operand(node, "weight_scale");
    return !rounds && ir_attr_is_set(node, "scale") && floats_of(node, Q) && floats_of(node, K) &&
           floats_of(node, V) && (show == CPU_SHOW_NONE || show >= CPU_SHOW_MASKED || !blocks);
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

/* ---- the record ---------------------------------------------------------- */

static cpu_attend_stored bind_stored(const ir_node *root, int input) {
    const ir_value *value = root->inputs[input].value;
    const ir_node *decoder = value->def && value->def->fused_into == root ? value->def : NULL;
    cpu_attend_stored s = {.scale = -1};
    if (decoder) {
        value = decoder->inputs[0].value;
        s.bits = (int)ir_attr_int(decoder, "bits");
        s.size = ir_attr_int(decoder, "size");
        s.per_channel = ir_attr_int(decoder, "per_channel") == 1;
        s.scale = bind_input(decoder, "scale");
    }
    s.value = bind_value(value);
    s.slot = cpu_bind_slot(value);
    return s;
}

gqac_status cpu_bind_attention(const target_binding *b, const ir_node *root, const void **record) {
    cpu_attend_record *r = bind_new(b, sizeof *r);
    const bool attends = op_is(root, "gqac", "attend");
    if (!r)
        return GQAC_NO_MEMORY;
    *r = (cpu_attend_record){.attends = attends,
                             .q = bind_input(root, "q"),
                             .stored = {bind_stored(root, K), bind_stored(root, V)},
                             .sink = bind_input(root, "sink"),
                             .y = bind_output(root, "y"),
                             .shown = bind_output(root, "qk"),
                             .scale = ir_attr_float(root, "scale"),
                             .softcap = ir_attr_float(root, "softcap"),
                             .show = shown_by(root)};
    r->packed = bind_value(cpu_packed_queries(root->inputs[Q].value, &r->column));
    r->bf16 = ir_attr_int(root, "bf16") == 1 && r->show == CPU_SHOW_NONE;
    if (attends) {
        r->lo = bind_input(root, "lo");
        r->hi = bind_input(root, "hi");
        r->mask = bind_input(root, "mask");
        r->every = ir_attr_int(root, "every") == 1;
    } else {
        r->past_len = bind_input(root, "past_len");
        r->new_len = bind_input(root, "new_len");
        r->mask = bind_input(root, "bias");
        r->causal = ir_attr_int(root, "causal") != 0;
        r->window = ir_attr_int(root, "window");
    }
    *record = r;
    return GQAC_OK;
}

bool cpu_reads_blocks(const target_kernel *kernel) {
    return kernel->bind == cpu_bind_attention;
}
