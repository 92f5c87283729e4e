/* Attention without visible scores (with them, the node is expanded), and the cached rows that it
 * reads. */
#include "base/check.h"
#include "targets/gpu/append.h"
#include "targets/gpu/attention.h"
#include "targets/gpu/blocks.h"
#include "targets/gpu/graph.h"
#include "targets/kv_rows.h"

static bool fits(const ir_node *node, int input) {
    const ir_type type = op_in_type(node, input);
    int64_t size;
    return type.rank == 4 && OP_IN(OP_FLOATS, type.dtype) && ir_dim_is_const(type.dims[3], &size) &&
           size >= 1 && size <= GPU_ATTEND_SIZE;
}

bool gpu_match_attention(const ir_node *node) {
    return ir_attr_is_set(node, "scale") && fits(node, 0) && fits(node, 1) && fits(node, 2) &&
           !ir_node_output(node, 1);
}

/* ---- cached rows ----------------------------------------------------------------- */

enum { K = 1, V = 2, BIAS = 5, SINK = 6 }; /* inputs of attention */
enum { CODES, SCALE };                     /* inputs of kv_dequantise */

/* The kv_dequantise that makes keys or values for this attention alone; NULL: there is none. */
static ir_node *decoder_of(const ir_node *attention, int input) {
    ir_node *node = ir_node_input(attention, input)->def;
    return node && op_is(node, "gqac", "kv_dequantise") && node->graph == attention->graph &&
                   !node->outputs[0]->uses->next
               ? node
               : NULL;
}

/* The rows or codes that are stored. */
static const ir_value *stored(const ir_node *attention, int input) {
    const ir_node *decoder = decoder_of(attention, input);
    return decoder ? ir_node_input(decoder, CODES) : ir_node_input(attention, input);
}

static const ir_node *append_of(const ir_node *attention, int input) {
    const ir_node *node = stored(attention, input)->def;
    return node && op_is(node, "gqac", "kv_append") ? node : NULL;
}

/* True if keys and values are stored alike. */
static bool stored_alike(const ir_node *attention) {
    const ir_node *k = decoder_of(attention, K), *v = decoder_of(attention, V);
    return stored(attention, K)->type.dtype == stored(attention, V)->type.dtype && !k == !v &&
           (!k || ir_attr_int(k, "per_channel") == ir_attr_int(v, "per_channel"));
}

/* Attention that reads blocks: keys and values are rows of slots of one type. */
static bool in_blocks(const ir_node *attention) {
    int64_t heads;
    return append_of(attention, K) && append_of(attention, V) && stored_alike(attention) &&
           ir_dim_is_const(op_in_type(attention, K).dims[1], &heads) &&
           ir_dim_is_const(op_in_type(attention, V).dims[1], &heads);
}

bool gpu_match_attention_codes(const ir_node *node) {
    return gpu_match_attention(node) && decoder_of(node, K) && in_blocks(node);
}

int gpu_fuse_attention(const ir_node *root, ir_node **nodes) {
    if (!gpu_match_attention_codes(root))
        return 0;
    nodes[0] = decoder_of(root, K);
    nodes[1] = decoder_of(root, V);
    return 2;
}

static bool reads_blocks(const ir_use *use) {
    const ir_node *node = use->node;
    if (op_is(node, "gqac", "key_range")) /* it needs only the number of rows */
        return true;
    const bool codes = op_is(node, "gqac", "kv_dequantise") && use == &node->inputs[CODES];
    if (codes && !node->fused_into)
        return false;
    use = codes ? node->outputs[0]->uses : use;
    const int64_t input = use - use->node->inputs;
    const target_kernel *kernel = use->node->claim;
    return kernel && kernel->bind == gpu_bind_attention && (input == K || input == V) &&
           in_blocks(use->node);
}

bool gpu_kv_only_blocks(const ir_node *kv_append) {
    const ir_value *rows = ir_node_output(kv_append, 1);
    for (const ir_use *use = rows ? rows->uses : NULL; use; use = use->next)
        if (!reads_blocks(use))
            return false;
    return true;
}

gqac_status gpu_bind_kv_append(const target_binding *b, const ir_node *root, const void **record) {
    return BIND_RECORD(b, record, target_append_record, .slot = (int)ir_attr_int(root, "slot"),
                       .fresh = bind_input(root, "new"), .token = bind_output(root, "token"),
                       .rows = bind_output(root, "rows"), .only_blocks = gpu_kv_only_blocks(root));
}

/* Registers the slot of an operand; *slot. */
static gqac_status add_slot(const target_binding *b, const ir_node *attention, int input,
                            int *slot) {
    const ir_type type = stored(attention, input)->type;
    int64_t heads = 0, width = 0;
    size_t bytes;
    *slot = (int)ir_attr_int(append_of(attention, input), "slot");
    (void)ir_dim_is_const(type.dims[1], &heads);
    (void)ir_dim_is_const(type.dims[3], &width);
    if (!gqac_mul_size((size_t)heads, (size_t)width * op_width(type.dtype), &bytes))
        return gqac_diag_oom(b->diag, "KV blocks of a device");
    for (int bits = 0; bits <= 8; bits += 4) {
        const bool codes = bits && OP_IN(OP_FLOATS, type.dtype);
        GQAC_TRY(gpu_blocks_add(gpu_state_blocks(b->state, bits), *slot,
                                codes ? (size_t)(heads * kv_code_bytes(width, bits)) : bytes,
                                codes ? (size_t)heads * sizeof(float) : 0, b->diag));
    }
    return GQAC_OK;
}

/* ---- records --------------------------------------------------------------------- */

gqac_status gpu_bind_attention(const target_binding *b, const ir_node *root, const void **record) {
    gpu_attention *r = bind_new(b, sizeof *r);
    if (!r)
        return GQAC_NO_MEMORY;
    *r = (gpu_attention){.q = bind_input(root, "q"),
                         .k = bind_input(root, "k"),
                         .v = bind_input(root, "v"),
                         .past_len = bind_input(root, "past_len"),
                         .new_len = bind_input(root, "new_len"),
                         .y = bind_output(root, "y"),
                         .causal = ir_attr_int(root, "causal") != 0,
                         .window = ir_attr_int(root, "window"),
                         .scale = ir_attr_float(root, "scale"),
                         .softcap = ir_attr_float(root, "softcap")};
    (void)ir_dim_is_const(op_in_type(root, K).dims[3], &r->size); /* constant, or it would not */
    (void)ir_dim_is_const(op_in_type(root, V).dims[3], &r->value_size); /* have matched */
    *record = r;
    GQAC_TRY(gpu_bind_operand(b, root, BIAS, &r->bias));
    GQAC_TRY(gpu_bind_operand(b, root, SINK, &r->sink));
    r->k_scale.value = r->v_scale.value = -1;
    if (in_blocks(root) && (!decoder_of(root, K) || decoder_of(root, K)->fused_into == root)) {
        const gqac_dtype dtype = stored(root, K)->type.dtype;
        r->in_blocks = true;
        r->k = bind_value(stored(root, K));
        r->v = bind_value(stored(root, V));
        r->type = dtype == GQAC_F32    ? GPU_ROWS_F32
                  : dtype == GQAC_F16  ? GPU_ROWS_F16
                  : dtype == GQAC_BF16 ? GPU_ROWS_BF16
                  : dtype == GQAC_I8   ? GPU_ROWS_I8
                                       : GPU_ROWS_U4;
        if (decoder_of(root, K)) {
            r->per_channel = ir_attr_int(decoder_of(root, K), "per_channel") == 1;
            GQAC_TRY(gpu_bind_operand(b, decoder_of(root, K), SCALE, &r->k_scale));
            GQAC_TRY(gpu_bind_operand(b, decoder_of(root, V), SCALE, &r->v_scale));
        }
        GQAC_TRY(add_slot(b, root, K, &r->k_slot));
        GQAC_TRY(add_slot(b, root, V, &r->v_slot));
    }
    r->tensor = b->bf16 && gpu_bf16_name(b->state) && gpu_attention_fits_tensor(r);
    r->many_rows = gpu_attention_rows(r);
    return gpu_attention_kernels(b->state, r, r->type, r->kernels, b->diag);
}
