/* The cpu target: its kernels. What no row takes runs by the op's own eval, as on ref. */
#include "targets/cpu/cpu.h"

#include "targets/cpu/nbits.h"
#include "targets/cpu/pack.h"

static const target_kernel kernels[] = {
    {.name = "kv_state", .domain = "gqac", .op = "kv_state", .run = target_kv_state},
    {.name = "kv_append", .domain = "gqac", .op = "kv_append", .run = target_kv_append},
    {.name = "linear_nbits", .domain = "gqac", .op = "linear_nbits", .run = cpu_nbits_run},
    {.name = NULL},
};

extern const gqac_target target_cpu;
const gqac_target target_cpu = {.name = "cpu",
                                .kernels = kernels,
                                .open = cpu_level_pick,
                                .level = cpu_level_name,
                                .pack = cpu_pack};
