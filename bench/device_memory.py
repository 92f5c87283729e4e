"""The rate at which a device copies its own memory: an upper limit for work that only reads memory.

Calls the driver's library with ctypes, so that no Python package is needed. A copy reads and writes
each byte once, and both count.
"""

import ctypes
import time

COPIES = 20


def rate(copy, wait, size):
    """GB/s of COPIES copies; the first ones, which may include preparations, do not count."""
    for _ in range(3):
        copy()
    wait()
    began = time.perf_counter()
    for _ in range(COPIES):
        copy()
    wait()
    return 2e-9 * size * COPIES / (time.perf_counter() - began)


class Library:
    """A library whose functions return a status, 0 if they succeed."""

    def __init__(self, name):
        self.library = ctypes.CDLL(name)

    def __call__(self, function, *arguments):
        code = getattr(self.library, function)(*arguments)
        if code:
            raise OSError(f"{function} failed with the code {code}")


def of_cuda(index, size):
    cu = Library("libcuda.so.1")
    device, context, ends = ctypes.c_int(), ctypes.c_void_p(), [ctypes.c_uint64() for _ in "ab"]
    cu("cuInit", 0)
    cu("cuDeviceGet", ctypes.byref(device), index)
    cu("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    cu("cuCtxPushCurrent_v2", context)
    try:
        for end in ends:
            cu("cuMemAlloc_v2", ctypes.byref(end), ctypes.c_size_t(size))
            cu("cuMemsetD8_v2", end, ctypes.c_ubyte(1), ctypes.c_size_t(size))
        return rate(lambda: cu("cuMemcpyDtoDAsync_v2", *ends, ctypes.c_size_t(size), None),
                    lambda: cu("cuCtxSynchronize"), size)
    finally:
        for end in ends:
            if end:
                cu("cuMemFree_v2", end)
        cu("cuCtxPopCurrent_v2", ctypes.byref(context))
        cu("cuDevicePrimaryCtxRelease_v2", device)


def devices_of_opencl(cl):
    """All devices, in the order of gqac devices."""
    found, n = [], ctypes.c_uint32()
    cl("clGetPlatformIDs", 0, None, ctypes.byref(n))
    platforms = (ctypes.c_void_p * n.value)()
    cl("clGetPlatformIDs", n, platforms, None)
    for platform in map(ctypes.c_void_p, platforms):
        devices, every = (ctypes.c_void_p * 64)(), ctypes.c_uint64(0xFFFFFFFF)
        if not cl.library.clGetDeviceIDs(platform, every, 64, devices, ctypes.byref(n)):
            found += devices[:n.value]
    return found


def of_opencl(index, size):
    cl, code = Library("libOpenCL.so.1"), ctypes.c_int32()
    device = ctypes.c_void_p(devices_of_opencl(cl)[index])

    def make(function, *arguments):
        maker = getattr(cl.library, function)
        maker.restype = ctypes.c_void_p
        made = ctypes.c_void_p(maker(*arguments, ctypes.byref(code)))
        if code.value:
            raise OSError(f"{function} failed with the code {code.value}")
        return made

    context = make("clCreateContext", None, 1, ctypes.byref(device), None, None)
    queue = make("clCreateCommandQueue", context, device, ctypes.c_uint64(0))
    ends, byte, zero = [], ctypes.c_ubyte(1), ctypes.c_size_t(0)
    try:
        for _ in range(2):
            ends.append(make("clCreateBuffer", context, ctypes.c_uint64(1), ctypes.c_size_t(size),
                             None))
            cl("clEnqueueFillBuffer", queue, ends[-1], ctypes.byref(byte), ctypes.c_size_t(1), zero,
               ctypes.c_size_t(size), 0, None, None)
        return rate(lambda: cl("clEnqueueCopyBuffer", queue, *ends, zero, zero,
                               ctypes.c_size_t(size), 0, None, None),
                    lambda: cl("clFinish", queue), size)
    finally:
        for end in ends:
            cl("clReleaseMemObject", end)
        cl("clReleaseCommandQueue", queue)
        cl("clReleaseContext", context)


def copy_gbps(devices, index, size):
    """The rate on a device, by its number in `gqac devices`."""
    driver = devices[index]["driver"]
    own = sum(d["driver"] == driver for d in devices[:index])
    return {"cuda": of_cuda, "opencl": of_opencl}[driver](own, size)
