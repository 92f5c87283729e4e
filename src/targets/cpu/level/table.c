/* The kernels of one level. */
#include "targets/cpu/level/level.h"

extern const cpu_level CPU_NAME(cpu_level);
const cpu_level CPU_NAME(cpu_level) = {
    .name = CPU_TEXT(CPU_LEVEL),
};
