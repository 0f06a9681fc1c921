# SPDX-License-Identifier: Apache-2.0
"""Known answer in Python, as on_gpu.c: work of a GPU, by the driver's functions. It prints the same
lines."""
import ctypes
import time

cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuMemAlloc_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
cuda.cuMemsetD8_v2.argtypes = [ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t]
cuda.cuLaunchKernel.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
cuda.standin_set_work_ns.argtypes = [ctypes.c_uint64]


def must(error):
    if error:
        raise OSError(error)


def trains():
    cuda.standin_set_work_ns(3000000)
    must(cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, None, None, None))
    return 3000


def clears():
    cuda.standin_set_work_ns(500000)
    must(cuda.cuMemsetD8_v2(memory, 0, 4096))
    return 500


sums = {trains: 0, clears: 0}
context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
memory = ctypes.c_uint64()
must(cuda.cuInit(0))
must(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
must(cuda.cuMemAlloc_v2(ctypes.byref(memory), 4096))
must(cuda.cuModuleLoadData(ctypes.byref(module), b""))
must(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"_ZN2nn7softmaxIfEEvPT_i"))
last = 0
while True:
    for f in sums:
        sums[f] += f()
    if last != int(time.time()):
        last = int(time.time())
        print("known", last, *(f"{f.__name__}={n}" for f, n in sums.items()), flush=True)
    time.sleep(0.05)
