/* The common dialect of C11, OpenCL C 1.2 and CUDA C in which math.h, convert.h and the kernels'
 * shared formulas are written: one set of type names, bit casts and correctly rounded primitives.
 * Invariant: every name here produces the same bits in all three, provided the build follows the
 * contract: C -ffp-contract=off; CUDA -fmad=false -ftz=false (division and square root use
 * intrinsics); OpenCL -cl-fp32-correctly-rounded-divide-sqrt on a device with subnormals. The text
 * of a device program may be these headers, one after another: an include is skipped if the guard
 * of the included file is already defined. */
#ifndef GQAC_NUMERICS_DIALECT_H
#define GQAC_NUMERICS_DIALECT_H

#if defined(__OPENCL_VERSION__)

#pragma OPENCL FP_CONTRACT OFF
#define GQN_FN static inline
typedef uchar gqn_u8;
typedef ushort gqn_u16;
typedef uint gqn_u32;
typedef int gqn_i32;
typedef ulong gqn_u64;
typedef long gqn_i64;
#define gqn_as_u32(x)    as_uint((float)(x))
#define gqn_as_f32(u)    as_float((uint)(u))
#define gqn_fma(a, b, c) fma((float)(a), (float)(b), (float)(c))
#define gqn_sqrt(x)      sqrt((float)(x))
#define gqn_div(a, b)    ((a) / (b))

#elif defined(__CUDACC__)

#define GQN_FN           static __device__ __forceinline__
typedef unsigned char gqn_u8;
typedef unsigned short gqn_u16;
typedef unsigned int gqn_u32;
typedef int gqn_i32;
typedef unsigned long long gqn_u64;
typedef long long gqn_i64;
#define gqn_as_u32(x)    __float_as_uint(x)
#define gqn_as_f32(u)    __uint_as_float(u)
#define gqn_fma(a, b, c) __fmaf_rn((a), (b), (c))
#define gqn_sqrt(x)      __fsqrt_rn(x)
#define gqn_div(a, b)    __fdiv_rn((a), (b))

#else

#include <stdint.h>
#define GQN_FN           static inline __attribute__((unused))
typedef uint8_t gqn_u8;
typedef uint16_t gqn_u16;
typedef uint32_t gqn_u32;
typedef int32_t gqn_i32;
typedef uint64_t gqn_u64;
typedef int64_t gqn_i64;
GQN_FN gqn_u32 gqn_as_u32(float x) {
    gqn_u32 u;
    __builtin_memcpy(&u, &x, sizeof u);
    return u;
}
GQN_FN float gqn_as_f32(gqn_u32 u) {
    float x;
    __builtin_memcpy(&x, &u, sizeof x);
    return x;
}
#define gqn_fma(a, b, c) __builtin_fmaf((a), (b), (c))
#define gqn_sqrt(x)      __builtin_sqrtf(x)
#define gqn_div(a, b)    ((a) / (b))

#endif

#define GQN_NAN_BITS 0x7fc00000u
#define GQN_INF_BITS 0x7f800000u

#endif
