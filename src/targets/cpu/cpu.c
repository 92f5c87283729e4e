/* The kernels of the cpu target. Nodes that no kernel claims run the op's own eval, as on ref. */
#include "targets/cpu/cpu.h"

#include "targets/cpu/graph.h"
#include "targets/cpu/heads.h"
#include "targets/cpu/integer.h"
#include "targets/cpu/kv.h"
#include "targets/cpu/matmul.h"
#include "targets/cpu/moe.h"
#include "targets/cpu/pack.h"
#include "targets/cpu/products.h"
#include "targets/cpu/rows.h"
#include "targets/fuse_chain.h"
#include "targets/fuse_heads.h"
#include "targets/kv_rows.h"
#include "targets/recurrent.h"

#define LINEAR(what)                                                                               \
    {.name = what "_group",                                                                        \
     .domain = "gqac",                                                                             \
     .op = (what),                                                                                 \
     .fuse = cpu_fuse_products,                                                                    \
     .bind = cpu_bind_products,                                                                    \
     .run = cpu_products_run,                                                                      \
     .scratch = cpu_products_scratch},                                                             \
    {                                                                                              \
        .name = (what), .domain = "gqac", .op = (what), .match = cpu_is_product,                   \
        .bind = cpu_bind_products, .run = cpu_products_run, .scratch = cpu_products_scratch        \
    }

#define CHAIN(of, what)                                                                            \
    {.name = "linear_chain",                                                                       \
     .domain = (of),                                                                               \
     .op = (what),                                                                                 \
     .fuse = cpu_fuse_product_chain,                                                               \
     .over = cpu_chain_over,                                                                       \
     .bind = cpu_bind_chain,                                                                       \
     .run = cpu_chain_run,                                                                         \
     .scratch = cpu_chain_scratch},                                                                \
        {.name = "chain",                                                                          \
         .domain = (of),                                                                           \
         .op = (what),                                                                             \
         .fuse = target_fuse_chain,                                                                \
         .over = cpu_chain_over,                                                                   \
         .bind = cpu_bind_chain,                                                                   \
         .run = cpu_chain_run},                                                                    \
    {                                                                                              \
        .name = "map", .domain = (of), .op = (what), .match = target_match_chain,                  \
        .over = cpu_chain_over, .bind = cpu_bind_chain, .run = cpu_chain_run                       \
    }

#define NORM(of, what)                                                                             \
    {                                                                                              \
        .name = "norm", .domain = (of), .op = (what), .over = cpu_norm_over,                       \
        .bind = cpu_bind_norm, .run = cpu_norm_run                                                 \
    }

#define ADD_NORM(what)                                                                             \
    {.name = "add_norm",                                                                           \
     .domain = "",                                                                                 \
     .op = (what),                                                                                 \
     .fuse = cpu_fuse_norm,                                                                        \
     .over = cpu_norm_over,                                                                        \
     .bind = cpu_bind_norm,                                                                        \
     .run = cpu_norm_run},                                                                         \
        NORM("", what)

static const target_kernel kernels[] = {
    {.name = "kv_state",
     .domain = "gqac",
     .op = "kv_state",
     .bind = bind_kv_state,
     .run = target_kv_state_run},
    LINEAR("linear"),
    LINEAR("linear_bf16"),
    LINEAR("linear_nbits"),
    {.name = "linear_integer",
     .domain = "gqac",
     .op = "linear_integer",
     .bind = cpu_bind_integer,
     .run = cpu_integer_run,
     .scratch = cpu_integer_scratch},
    {.name = "matmul",
     .domain = "",
     .op = "MatMul",
     .match = cpu_match_matmul,
     .bind = cpu_bind_matmul,
     .run = cpu_matmul_run,
     .scratch = cpu_matmul_scratch},
    {.name = "moe",
     .domain = "gqac",
     .op = "moe",
     .bind = cpu_bind_moe,
     .run = cpu_moe_run,
     .scratch = cpu_moe_scratch},
    {.name = "heads_append",
     .domain = "gqac",
     .op = "kv_append",
     .fuse = cpu_fuse_append,
     .bind = cpu_bind_append,
     .run = cpu_append_run,
     .scratch = cpu_append_scratch},
    {.name = "heads_append",
     .domain = "gqac",
     .op = "concat_past_present",
     .fuse = cpu_fuse_append,
     .bind = cpu_bind_append,
     .run = cpu_append_run,
     .scratch = cpu_append_scratch,
     .over = target_append_over},
    {.name = "kv_append",
     .domain = "gqac",
     .op = "kv_append",
     .bind = cpu_bind_kv_append,
     .run = cpu_kv_append_run},
    {.name = "kv_tail",
     .domain = "gqac",
     .op = "kv_tail",
     .bind = cpu_bind_kv_tail,
     .run = cpu_kv_tail_run,
     .scratch = cpu_kv_tail_scratch},
    {.name = "recurrent_attention",
     .domain = "gqac",
     .op = "recurrent_attention",
     .bind = bind_recurrent_attention,
     .run = target_recurrent_run,
     .scratch = target_recurrent_scratch},
    {.name = "attention_codes",
     .domain = "gqac",
     .op = "attention",
     .match = cpu_attention_match,
     .bind = cpu_bind_attention,
     .run = cpu_attention_run,
     .scratch = cpu_attention_scratch,
     .fuse = cpu_attention_fuse},
    {.name = "attention",
     .domain = "gqac",
     .op = "attention",
     .match = cpu_attention_match,
     .bind = cpu_bind_attention,
     .run = cpu_attention_run,
     .scratch = cpu_attention_scratch},
    {.name = "attend",
     .domain = "gqac",
     .op = "attend",
     .match = cpu_attention_match,
     .bind = cpu_bind_attention,
     .run = cpu_attention_run,
     .scratch = cpu_attention_scratch},
    ADD_NORM("RMSNormalization"),
    ADD_NORM("SimplifiedLayerNormalization"),
    ADD_NORM("LayerNormalization"),
    NORM("com.microsoft", "SkipSimplifiedLayerNormalization"),
    NORM("com.microsoft", "SkipLayerNormalization"),
    {.name = "heads",
     .domain = "gqac",
     .op = "rotary",
     .bind = cpu_bind_rotary,
     .run = cpu_heads_kernel,
     .fuse = target_fuse_heads},
    {.name = "rotary",
     .domain = "gqac",
     .op = "rotary",
     .bind = cpu_bind_rotary,
     .run = cpu_heads_kernel,
     .match = target_match_heads},
    CHAIN("", "Add"),
    CHAIN("", "Sub"),
    CHAIN("", "Mul"),
    CHAIN("", "Div"),
    CHAIN("", "Neg"),
    CHAIN("", "Sqrt"),
    CHAIN("", "Sigmoid"),
    CHAIN("", "Tanh"),
    CHAIN("", "Erf"),
    CHAIN("", "Swish"),
    CHAIN("", "Gelu"),
    CHAIN("", "Cast"),
    CHAIN("com.microsoft", "QuickGelu"),
    CHAIN("com.microsoft", "FastGelu"),
    {.name = NULL},
};

extern const gqac_target target_cpu;
const gqac_target target_cpu = {.name = "cpu",
                                .kernels = kernels,
                                .open = cpu_level_pick,
                                .level = cpu_level_name,
                                .pack = cpu_pack,
                                .columns = cpu_kv_columns,
                                .in_blocks = cpu_kv_only_blocks,
                                .lies_in = cpu_lies_in};
