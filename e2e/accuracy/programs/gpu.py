# SPDX-License-Identifier: Apache-2.0
"""gpu: memory of a GPU in Python, through ctypes on the driver, as its bindings call it; its
protocol is told.h's. Its context is older than the order: podflame does not see how it began."""
import ctypes
import sys
import threading

cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuMemAlloc_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
cuda.cuMemFree_v2.argtypes = [ctypes.c_uint64]
cuda.cuMemAllocAsync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
cuda.cuMemFreeAsync.argtypes = [ctypes.c_uint64, ctypes.c_void_p]
cuda.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]
cuda.cuGetProcAddress_v2.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int,
                                     ctypes.c_uint64, ctypes.c_void_p]


def works(result):
    if result:
        raise RuntimeError(f"CUDA: {result}")


def by_pointer(name, *arguments):
    """The function that cuGetProcAddress() gives."""
    pointer = ctypes.c_void_p()
    works(cuda.cuGetProcAddress_v2(name, ctypes.byref(pointer), 12000, 0, None))
    return ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(pointer.value)


class Buffer:
    """Memory of the GPU that is freed with its object."""

    def __init__(self, size):
        self.address = ctypes.c_uint64()
        works(allocate(ctypes.byref(self.address), size))

    def __del__(self):
        works(cuda.cuMemFree_v2(self.address))


kept = []


# ---- memory ----

def churns():
    for i in range(1, 11):
        Buffer(1000 * i)


def leaks():
    address = ctypes.c_uint64()
    works(cuda.cuMemAlloc_v2(ctypes.byref(address), 3001))


def keeps():
    kept.append(Buffer(5000))


def in_stream():
    address, other = ctypes.c_uint64(), ctypes.c_uint64()
    works(cuda.cuMemAllocAsync(ctypes.byref(address), 8000, None))
    works(cuda.cuMemAllocAsync(ctypes.byref(other), 800, None))
    works(cuda.cuMemFreeAsync(address, None))


def recursive(depth=20):
    if depth:
        return recursive(depth - 1)
    return keeps_as_list()


def keeps_as_list():
    kept.extend([Buffer(10 * i) for i in range(1, 5)])


def generates():
    def buffers():
        for i in range(1, 4):
            yield Buffer(700 * i)
    for _ in buffers():
        pass


def of_thread():
    works(cuda.cuCtxSetCurrent(context))
    kept.append(Buffer(140))
    Buffer(14000)


def starts_thread():
    t = threading.Thread(target=of_thread)
    t.start()
    t.join()


def fails():
    address = ctypes.c_uint64()
    cuda.standin_fail_next(1, 2)
    if cuda.cuMemAlloc_v2(ctypes.byref(address), 9000) != 2:
        raise RuntimeError("no failure")


# ---- what is known ----

class Counts(ctypes.Structure):
    """struct standin_counts of e2e/gpu/standin.h"""
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "allocs", "alloc_bytes", "frees", "live_bytes", "host_live_bytes", "launches", "kernels")]


def compare_with_driver():
    """Ends the program if the driver has counted something else."""
    counts = Counts()
    cuda.standin_count(ctypes.byref(counts))
    seen, known = (counts.alloc_bytes, counts.live_bytes), (all_bytes, all_kept)
    if seen != known:
        raise RuntimeError(f"the driver counted {seen}, not {known}")


def allocates(f, size, keep, name=""):
    global all_bytes, all_kept
    for _ in range(rounds):
        f()
    all_bytes += size * rounds
    all_kept += keep * rounds
    told.append(f"hbm-alloc {name or f.__name__} {size * rounds}")
    told.append(f"hbm-inuse {name or f.__name__} {keep * rounds}")


rounds, told = int(sys.argv[2]), []
all_bytes = all_kept = 0
context = ctypes.c_void_p()
works(cuda.cuInit(0))
works(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
allocate = by_pointer(b"cuMemAlloc", ctypes.c_void_p, ctypes.c_size_t)
print("ready", flush=True)
sys.stdin.readline()
allocates(churns, 55000, 0)
allocates(leaks, 3001, 3001)
allocates(keeps, 5000, 5000)
allocates(in_stream, 8800, 800)
allocates(recursive, 100, 100)
allocates(generates, 4200, 0)
allocates(starts_thread, 14140, 140, "of_thread")
allocates(fails, 0, 0)
compare_with_driver()
with open(sys.argv[1], "w") as out:
    out.write("\n".join(told) + "\n")
print("done", flush=True)
sys.stdin.read()
