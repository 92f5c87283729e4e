/* The kernels of the gpu target. Nodes that no row claims are run on the host by the op's own eval,
 * as on ref. The blocks of the host have the rows of all keys and values, those of the device
 * copies (blocks.h). */
#include "targets/gpu/append.h"
#include "targets/gpu/attention.h"
#include "targets/gpu/blocks.h"
#include "targets/gpu/graph.h"
#include "targets/gpu/heads.h"
#include "targets/gpu/mirror.h"
#include "targets/gpu/moe.h"
#include "targets/gpu/order.h"
#include "targets/gpu/products.h"
#include "targets/gpu/rows.h"
#include "targets/kv_rows.h"
#include "targets/recurrent.h"

#define ROW(of, what, title, kernel)                                                               \
    {                                                                                              \
        .name = (title), .domain = (of), .op = (what), .match = gpu_match_##kernel,                \
        .bind = gpu_bind_##kernel, .run = gpu_##kernel##_run, .on_device = true                    \
    }
#define NORM(of, what) ROW(of, what, "norm", norm)
#define CHAIN(of, what)                                                                            \
    {                                                                                              \
        .name = "chain", .domain = (of), .op = (what), .fuse = gpu_fuse_chain,                     \
        .bind = gpu_bind_chain, .run = gpu_chain_run, .on_device = true                            \
    }
#define UNARY(of, what)  CHAIN(of, what), ROW(of, what, "unary", unary)
#define BINARY(of, what) CHAIN(of, what), ROW(of, what, "binary", binary)

static const target_kernel kernels[] = {
    {.name = "kv_state",
     .domain = "gqac",
     .op = "kv_state",
     .bind = bind_kv_state,
     .run = target_kv_state_run},
    {.name = "heads_append",
     .domain = "gqac",
     .op = "kv_append",
     .fuse = gpu_fuse_heads_append,
     .bind = gpu_bind_heads_append,
     .run = gpu_heads_run,
     .on_device = true},
    {.name = "heads_append",
     .domain = "gqac",
     .op = "kv_append",
     .match = gpu_match_heads_append,
     .bind = gpu_bind_heads_append,
     .run = gpu_heads_run,
     .on_device = true},
    {.name = "kv_append",
     .domain = "gqac",
     .op = "kv_append",
     .bind = gpu_bind_kv_append,
     .run = gpu_append_run,
     .on_device = true},
    {.name = "recurrent_attention",
     .domain = "gqac",
     .op = "recurrent_attention",
     .bind = bind_recurrent_attention,
     .run = target_recurrent_run},
    {.name = "product",
     .domain = "",
     .op = "MatMul",
     .match = gpu_match_product,
     .bind = gpu_bind_product,
     .run = gpu_product_run,
     .on_device = true},
    {.name = "product_nbits",
     .domain = "com.microsoft",
     .op = "MatMulNBits",
     .match = gpu_match_nbits,
     .bind = gpu_bind_nbits,
     .run = gpu_product_run,
     .on_device = true},
    {.name = "attention_codes",
     .domain = "gqac",
     .op = "attention",
     .match = gpu_match_attention_codes,
     .bind = gpu_bind_attention,
     .run = gpu_attention_run,
     .fuse = gpu_fuse_attention,
     .on_device = true},
    {.name = "attention",
     .domain = "gqac",
     .op = "attention",
     .match = gpu_match_attention,
     .bind = gpu_bind_attention,
     .run = gpu_attention_run,
     .on_device = true},
    {.name = "heads",
     .domain = "gqac",
     .op = "rotary",
     .fuse = gpu_fuse_rotary,
     .bind = gpu_bind_rotary,
     .run = gpu_heads_run,
     .on_device = true},
    {.name = "rotary",
     .domain = "gqac",
     .op = "rotary",
     .match = gpu_match_rotary,
     .bind = gpu_bind_rotary,
     .run = gpu_heads_run,
     .on_device = true},
    ROW("gqac", "take_rows", "take_rows", take_rows),
    ROW("", "Gather", "gather", gather),
    ROW("com.microsoft", "GatherBlockQuantized", "gather_codes", gather_codes),
    ROW("com.microsoft", "MoE", "moe", moe),
    ROW("com.microsoft", "QMoE", "moe", moe),
    NORM("", "RMSNormalization"),
    NORM("", "SimplifiedLayerNormalization"),
    NORM("", "LayerNormalization"),
    NORM("com.microsoft", "SkipSimplifiedLayerNormalization"),
    NORM("com.microsoft", "SkipLayerNormalization"),
    ROW("", "Softmax", "softmax", softmax),
    ROW("", "ArgMax", "arg", arg),
    ROW("", "ArgMin", "arg", arg),
    ROW("", "TopK", "top", top),
    UNARY("", "Cast"),
    UNARY("", "Neg"),
    UNARY("", "Sqrt"),
    UNARY("", "Sigmoid"),
    UNARY("", "Tanh"),
    UNARY("", "Erf"),
    UNARY("", "Swish"),
    UNARY("", "Gelu"),
    UNARY("com.microsoft", "QuickGelu"),
    UNARY("com.microsoft", "FastGelu"),
    CHAIN("", "Mul"),
    {.name = "gate",
     .domain = "",
     .op = "Mul",
     .match = gpu_match_binary,
     .fuse = gpu_fuse_gate,
     .bind = gpu_bind_gate,
     .run = gpu_binary_run,
     .on_device = true},
    BINARY("", "Add"),
    BINARY("", "Sub"),
    ROW("", "Mul", "binary", binary),
    BINARY("", "Div"),
    {.name = NULL},
};

static target_memory gpu_device_memory(const void *state, int code_bits, size_t kv_blocks,
                                       size_t tokens) {
    const gpu_blocks *blocks = gpu_state_blocks(state, code_bits);
    return (target_memory){.constants = gpu_kept_bytes(state),
                           .kv = gpu_blocks_bytes(blocks, kv_blocks),
                           .new_rows = gpu_new_rows_bytes(blocks, tokens)};
}

extern const gqac_target target_gpu;
const gqac_target target_gpu = {.name = "gpu",
                                .kernels = kernels,
                                .open_device = gpu_open,
                                .close_device = gpu_close,
                                .in_blocks = gpu_kv_only_blocks,
                                .device_memory = gpu_device_memory,
                                .bf16_name = gpu_bf16_name,
                                .mirror = &gpu_mirror_functions};
