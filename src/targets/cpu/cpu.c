/* The cpu target: its kernels. What no row takes runs by the op's own eval, as on ref. */
#include "targets/cpu/cpu.h"

#include "targets/cpu/integer.h"
#include "targets/cpu/kv.h"
#include "targets/cpu/moe.h"
#include "targets/cpu/pack.h"
#include "targets/cpu/products.h"
#include "targets/cpu/rows.h"

static const target_kernel kernels[] = {
    {.name = "kv_state", .domain = "gqac", .op = "kv_state", .run = target_kv_state},
    {.name = "linear_group",
     .domain = "gqac",
     .op = "linear",
     .fuse = cpu_fuse_products,
     .run = cpu_run_products},
    {.name = "linear",
     .domain = "gqac",
     .op = "linear",
     .match = cpu_is_product,
     .run = cpu_run_product},
    {.name = "linear_bf16_group",
     .domain = "gqac",
     .op = "linear_bf16",
     .fuse = cpu_fuse_products,
     .run = cpu_run_products},
    {.name = "linear_bf16",
     .domain = "gqac",
     .op = "linear_bf16",
     .match = cpu_is_product,
     .run = cpu_run_product},
    {.name = "linear_nbits_group",
     .domain = "gqac",
     .op = "linear_nbits",
     .fuse = cpu_fuse_products,
     .run = cpu_run_products},
    {.name = "linear_nbits", .domain = "gqac", .op = "linear_nbits", .run = cpu_run_product},
    {.name = "linear_integer", .domain = "gqac", .op = "linear_integer", .run = cpu_run_integer},
    {.name = "moe", .domain = "gqac", .op = "moe", .run = cpu_run_moe},
    {.name = "heads_append",
     .domain = "gqac",
     .op = "kv_append",
     .fuse = cpu_fuse_append,
     .run = cpu_run_append},
    {.name = "kv_append", .domain = "gqac", .op = "kv_append", .run = cpu_kv_append},
    {.name = "kv_tail", .domain = "gqac", .op = "kv_tail", .run = cpu_kv_tail},
    {.name = "attention_codes",
     .domain = "gqac",
     .op = "attention",
     .match = cpu_attention_match,
     .run = cpu_attention_run,
     .fuse = cpu_attention_fuse},
    {.name = "attention",
     .domain = "gqac",
     .op = "attention",
     .match = cpu_attention_match,
     .run = cpu_attention_run},
    {.name = "attend",
     .domain = "gqac",
     .op = "attend",
     .match = cpu_attention_match,
     .run = cpu_attend_run},
    CPU_ROW_KERNELS,
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
                                .in_scratch = cpu_is_product};
