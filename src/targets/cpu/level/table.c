/* The kernels of one level. */
#include "targets/cpu/attention.h"
#include "targets/cpu/level/level.h"
#include "targets/cpu/linear.h"

extern const struct cpu_linear_kernels CPU_NAME(cpu_linear), CPU_NAME(cpu_linear_bf16);
extern const struct cpu_nbits_kernels CPU_NAME(cpu_nbits);
extern const struct cpu_integer_kernels CPU_NAME(cpu_integer);
extern const struct cpu_attend_kernels CPU_NAME(cpu_attend);
extern const struct cpu_row_kernels CPU_NAME(cpu_row);
extern bool CPU_NAME(cpu_pairs_hold)(void);
extern const cpu_level CPU_NAME(cpu_level);
const cpu_level CPU_NAME(cpu_level) = {
    .name = CPU_TEXT(CPU_LEVEL),
    .linear = &CPU_NAME(cpu_linear),
    .linear_bf16 = &CPU_NAME(cpu_linear_bf16),
    .nbits = &CPU_NAME(cpu_nbits),
    .integer = &CPU_NAME(cpu_integer),
    .attend = &CPU_NAME(cpu_attend),
    .row = &CPU_NAME(cpu_row),
    .pairs_hold = CPU_NAME(cpu_pairs_hold),
};
