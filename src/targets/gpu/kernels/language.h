/* The parts of OpenCL C that kernels/ uses, defined for a compiler of CUDA C (NVRTC with
 * -default-device, so that functions without an attribute are device functions), and macros and
 * functions that OpenCL C lacks:
 *
 *   SHARED                  declares a variable of a group, where `__local` is for pointers
 *   GROUP(n), MOST(n)       launch bounds: a group has n items, or at most n, and registers are
 *                           limited to an occupancy of 512 items on a multiprocessor
 *   GROUP_ALONE(n)          launch bounds: the same, but with one group of n items in place of
 *                           this occupancy
 *   UNROLL, UNROLL_2,       before a loop: unrolled, by two, by eight (with CUDA only), not at all
 *     UNROLL_8, ROLLED
 *   CUDA_UNROLL             before a loop that other compilers unroll as they like
 *   LENGTHS                 1: a loop is compiled for several lengths; 0: a choice between them
 *                           around barriers is compiled wrongly (PoCL 3.1)
 *   FLOAT4, UINT4           make a vector of four numbers
 *   fma_row                 a row of four fused multiply-adds
 *   dot_bytes               adds the products of four bytes (dp4a)
 *   half_to_float,          conversions in one instruction where the device has it; the bits are
 *     float_to_half,        those of gqn_f16_to_f32 (but for the payload of a NaN), gqn_f32_to_f16
 *     float_to_bf16         and gqn_f32_to_bf16
 *   TEAM_BARRIER            a barrier of 32 consecutive items
 *   IN_TURN                 32 consecutive items meet here. So the compiler does not move later
 *                           code before it, which would take more registers
 *
 * Copies from global to local memory that run while an item continues (cp.async):
 *
 *   copy_16, copy_4         copy 16 bytes, or a float
 *   copy_async              copy_16, or zeros if `there` is false; from sm_80 on
 *   copy_commit             ends a set of copies
 *   copy_wait(n)            waits for all sets but the last n; must be followed by a barrier if
 *                           other items read them
 *   COPIES_AHEAD(n)         how many sets, with n stages, are started before the loop that uses
 *                           them
 *   COPIED(barrier)         after the copies in such a loop: the barrier, if the copies are
 *                           synchronous
 *
 * Tensor cores, only with CUDA and from sm_80 on:
 *
 *   mma_bf16                a product computed by the 32 items of a warp together
 *   floats_to_bf16(x, y)    two bf16 in a word, x in the low half; the payload of a NaN is any
 *   of_other(x, mask)       the x of the item of the warp whose number differs in the bits of
 *                           mask */
#ifdef GQAC_EMULATOR /* for tests on a CPU: a file that defines all of these in C */
#include GQAC_EMULATOR
#elif !defined(__CUDACC__)

#define SHARED   __local
#define GROUP(n) __attribute__((reqd_work_group_size(n, 1, 1)))
#define MOST(n)
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop of no iterations */
#define UNROLL   _Pragma("unroll")
#define UNROLL_2 _Pragma("unroll 2")
#define UNROLL_8 _Pragma("nounroll")
#define ROLLED   _Pragma("nounroll")

#define CUDA_UNROLL
#define IN_TURN
#define LENGTHS            0
#define FLOAT4(x, y, z, w) ((float4)((x), (y), (z), (w)))
#define UINT4(x, y, z, w)  ((uint4)((x), (y), (z), (w)))

static inline float4 fma_row(float a, float4 b, float4 c) {
    return fma((float4)(a), b, c);
}
/* c plus the sum of the products of four signed bytes of a and four unsigned bytes of b. */
static inline int dot_bytes(int a, uint b, int c) {
    return c + (char)a * (int)(b & 255u) + (char)(a >> 8) * (int)(b >> 8 & 255u) +
           (char)(a >> 16) * (int)(b >> 16 & 255u) + (a >> 24) * (int)(b >> 24);
}
#define half_to_float(x)   gqn_f16_to_f32(x)
#define float_to_half(x)   gqn_f32_to_f16(x)

#define TEAM_BARRIER      barrier(CLK_LOCAL_MEM_FENCE)
#define copy_16(to, from) (*(__local uint4 *)(to) = *(__global const uint4 *)(from))
#define copy_4(to, from)  (*(__local float *)(to) = *(__global const float *)(from))
#define copy_commit()
#define copy_wait(n)
#define COPIES_AHEAD(n)    0
#define COPIED(barrier_of) barrier_of

#else

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
static_assert(sizeof(long) == 8 && (char)-1 < 0, "the types of OpenCL C");

#define SHARED   __shared__
#define __kernel extern "C" __global__
#define __global
#define __local
#define CLK_LOCAL_MEM_FENCE 0
#define atomic_inc(p)       atomicAdd((p), 1)
#define barrier(fence)      __syncthreads()
#define GROUP(n)            __launch_bounds__(n, 512 / (n))
#define MOST(n)             __launch_bounds__(n, 512 / (n))
#define UNROLL              _Pragma("unroll")
#define UNROLL_2            _Pragma("unroll 2")
#define UNROLL_8            _Pragma("unroll 8")
#define CUDA_UNROLL         UNROLL
#define IN_TURN             __syncwarp()
#define LENGTHS             1
#define FLOAT4              make_float4
#define UINT4               make_uint4
#define ROLLED              _Pragma("unroll 1")

static __forceinline__ float4 fma_row(float a, float4 b, float4 c) {
    c.x = gqn_fma(a, b.x, c.x);
    c.y = gqn_fma(a, b.y, c.y);
    c.z = gqn_fma(a, b.z, c.z);
    c.w = gqn_fma(a, b.w, c.w);
    return c;
}
static __forceinline__ int dot_bytes(int a, uint b, int c) {
#if __CUDA_ARCH__ >= 610
    int sum;
    asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
    return sum;
#else
    return c + (char)a * (int)(b & 255u) + (char)(a >> 8) * (int)(b >> 8 & 255u) +
           (char)(a >> 16) * (int)(b >> 16 & 255u) + (a >> 24) * (int)(b >> 24);
#endif
}
/* Exact, subnormals included; a NaN may get another payload. */
static __forceinline__ float half_to_float(ushort x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
    return wide;
}
static __forceinline__ ushort float_to_half(float x) {
    ushort narrow;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(x));
    return x != x ? (ushort)0x7e00 : narrow;
}

#define TEAM_BARRIER    __syncwarp()
#define COPIES_AHEAD(n) ((n)-1)
#define COPIED(barrier_of)
#if __CUDA_ARCH__ >= 800
static __forceinline__ void copy_16(void *to, const void *from) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint)__cvta_generic_to_shared(to)),
        "l"(from)
        : "memory");
}
static __forceinline__ void copy_4(void *to, const void *from) {
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((uint)__cvta_generic_to_shared(to)),
        "l"(from)
        : "memory");
}
static __forceinline__ void copy_commit(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
#define copy_wait(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

#define GROUP_ALONE(n) __launch_bounds__(n, 1)

/* c [16][8] + a [16][16] b [16][8], of bf16 in pairs. Item 4 g + q of the warp has: a0: row g, k 2q
 * and 2q + 1; a1: row g + 8; a2, a3: the same rows, k + 8; b0: column g, k 2q and 2q + 1; b1: k +
 * 8; c, and the result: row g, columns 2q and 2q + 1, then row g + 8. */
static __forceinline__ float4 mma_bf16(uint a0, uint a1, uint a2, uint a3, uint b0, uint b1,
                                       float4 c) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c.x), "+f"(c.y), "+f"(c.z), "+f"(c.w)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    return c;
}
static __forceinline__ float of_other(float x, int mask) {
    return __shfl_xor_sync(0xffffffffu, x, mask);
}
static __forceinline__ ushort float_to_bf16(float x) {
    ushort h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return x != x ? (ushort)0x7fc0u : h;
}
static __forceinline__ uint floats_to_bf16(float x, float y) {
    uint both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
    return both;
}
static __forceinline__ void copy_async(void *to, const void *from, bool there) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint)__cvta_generic_to_shared(to)),
        "l"(from), "r"(there ? 16 : 0)
        : "memory");
}
#else
#define copy_16(to, from) (*(uint4 *)(to) = *(const uint4 *)(from))
#define copy_4(to, from)  (*(float *)(to) = *(const float *)(from))
#define copy_commit()
#define copy_wait(n)
#endif

/* In CUDA a grid has at most 65535 groups along axis 1. The driver splits larger launches into
 * parts, and writes the first group of a part here. */
extern "C" {
__constant__ int first_group;
}

static inline size_t get_group_id(int axis) {
    return axis == 0 ? (size_t)blockIdx.x : (size_t)first_group + (size_t)blockIdx.y;
}
static inline size_t get_local_id(int axis) {
    return axis == 0 ? (size_t)threadIdx.x : (size_t)threadIdx.y;
}
static inline size_t get_global_id(int axis) {
    return get_group_id(axis) * (axis == 0 ? (size_t)blockDim.x : (size_t)blockDim.y) +
           get_local_id(axis);
}

#endif
