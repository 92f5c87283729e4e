/* The words of OpenCL C that kernels/ is written in, for a compiler of CUDA C (NVRTC with
 * -default-device, so that functions without an attribute are of the device). The only word that
 * OpenCL lacks is SHARED: it declares a variable of a group, where `__local` is for pointers. */
#ifndef __CUDACC__

#define SHARED __local

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
#define barrier(fence)      __syncthreads()

/* A grid of CUDA has at most 65535 groups along axis 1: the driver launches more in parts, and
 * writes the first group of a part here. */
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
