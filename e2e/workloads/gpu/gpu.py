# SPDX-License-Identifier: Apache-2.0
"""Known answer in Python, as gpu.c: memory of a GPU, by the driver's functions. It prints the same
lines."""
import ctypes
import threading
import time

cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()


def must(error):
    if error:
        raise OSError(error)


def use():
    must(cuda.cuCtxSetCurrent(context))


def allocate(size):
    address = ctypes.c_uint64()
    must(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
    return address


def churns():
    for _ in range(4):
        must(cuda.cuMemFree_v2(allocate(1 << 20)))


def leaks():
    allocate(65536)


held = []


def holds(on):
    if on:
        held.extend([allocate(4 << 20) for _ in range(8)])
    while not on and held:
        must(cuda.cuMemFree_v2(held.pop()))


sums = {churns: 0, leaks: 0}


def works(f, size):
    use()
    while True:
        f()
        sums[f] += size
        time.sleep(0.05)


def keeps():
    use()
    on = True
    while True:
        holds(on)
        on = not on
        time.sleep(20)


must(cuda.cuInit(0))
must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
for args in (churns, 4 << 20), (leaks, 65536):
    threading.Thread(target=works, args=args, daemon=True).start()
threading.Thread(target=keeps, daemon=True).start()
while True:
    print("known", int(time.time()), *(f"{f.__name__}={n}" for f, n in sums.items()), flush=True)
    time.sleep(1)
