# SPDX-License-Identifier: Apache-2.0
"""on_gpu: work of known length in Python, through ctypes on the driver, as its bindings call it;
its protocol is that of on_gpu.h."""
import ctypes
import sys
import threading
import time

cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuMemAlloc_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
cuda.cuMemcpyHtoD_v2.argtypes = [ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t]
cuda.cuMemsetD8_v2.argtypes = [ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t]
cuda.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]
cuda.cuGraphLaunch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
cuda.cuModuleGetFunction.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]
cuda.cuLaunchKernel.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
cuda.cuStreamBeginCapture_v2.argtypes = [ctypes.c_void_p, ctypes.c_int]
cuda.cuStreamEndCapture.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
cuda.cuGraphInstantiateWithFlags.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
cuda.standin_set_work_ns.argtypes = [ctypes.c_uint64]


def works(result):
    if result:
        raise RuntimeError(f"CUDA: {result}")


def launch(kernel, us, stream=None):
    cuda.standin_set_work_ns(1000 * us)
    works(cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, None, None))


# ---- work ----

def one_kernel():
    launch(softmax, 300)


class Layer:
    def forward(self, us):
        launch(softmax, us)
        launch(plain, 2 * us)


def of_class():
    Layer().forward(25)


def recursive(depth=20):
    if depth:
        return recursive(depth - 1)
    return launch(plain, 9)


def generates():
    def kernels():
        for i in range(1, 4):
            launch(softmax, 10 * i)
            yield i
    for _ in kernels():
        pass


def of_thread():
    works(cuda.cuCtxSetCurrent(context))
    launch(plain, 70)


def starts_thread():
    t = threading.Thread(target=of_thread)
    t.start()
    t.join()


def copies():
    cuda.standin_set_work_ns(21000)
    works(cuda.cuMemcpyHtoD_v2(memory, b"x" * 1000, 1000))


def sets():
    cuda.standin_set_work_ns(31000)
    works(cuda.cuMemsetD8_v2(memory, 0, 1000))


def launches_graph():
    works(cuda.cuGraphLaunch(graph, None))


# ---- what is known ----

class Cupti(ctypes.Structure):
    """struct standin_cupti of e2e/gpu/standin_cupti.h"""
    _fields_ = [("version", ctypes.c_uint32),
                *[(name, ctypes.c_bool) for name in ("has_subscriber", "keeps_buffers", "is_stuck",
                                                     "breaks_record")],
                ("fails_enable", ctypes.c_int),
                *[(name, ctypes.c_uint) for name in (
                    "n_calls", "n_subscribed", "n_finalized", "n_dropped", "n_enabled",
                    "n_foreign_buffers", "n_waiting")]]


def wait_until(condition):
    while not condition():
        time.sleep(0.001)


def make_graph():
    captured, exec_, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    works(cuda.cuStreamCreate(ctypes.byref(stream), 0))
    works(cuda.cuStreamBeginCapture_v2(stream, 0))
    for i in range(20):
        launch(softmax if i % 4 else plain, 3, stream)
    works(cuda.cuStreamEndCapture(stream, ctypes.byref(captured)))
    works(cuda.cuGraphInstantiateWithFlags(ctypes.byref(exec_), captured, 0))
    return exec_


def function(name):
    handle = ctypes.c_void_p()
    works(cuda.cuModuleGetFunction(ctypes.byref(handle), module, name))
    return handle


def runs(f, rows, name=""):
    for _ in range(rounds):
        f()
        time.sleep(0.01)        # the library tells about a thousand launches a second
    told.extend(f"on-gpu {name or f.__name__} {us * rounds} {leaf}" for us, leaf in rows)


SOFTMAX = "void softmax<float, 4>(float*, float const*, int)"
cupti = Cupti.in_dll(ctypes.CDLL("libcupti.so.12"), "standin_cupti")       # as on_gpu.h
rounds, told = int(sys.argv[2]), []
context, module, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
works(cuda.cuInit(0))
works(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
works(cuda.cuMemAlloc_v2(ctypes.byref(memory), 1000))
works(cuda.cuModuleLoadData(ctypes.byref(module), b""))
softmax, plain = function(b"_Z7softmaxIfLi4EEvPT_PKS0_i"), function(b"triton_poi_fused_add_0")
graph = make_graph()
print("ready", flush=True)
sys.stdin.readline()
wait_until(lambda: cupti.n_enabled == 4)
runs(one_kernel, [(300, SOFTMAX)])
runs(of_class, [(25, SOFTMAX), (50, "triton_poi_fused_add_0")])
runs(recursive, [(9, "triton_poi_fused_add_0")])
runs(generates, [(60, SOFTMAX)])
runs(starts_thread, [(70, "triton_poi_fused_add_0")], "of_thread")
runs(copies, [(21, "memcpy HtoD")])
runs(sets, [(31, "memset")])
runs(launches_graph, [(45, SOFTMAX), (15, "triton_poi_fused_add_0")])
wait_until(lambda: cupti.n_waiting == 0)
with open(sys.argv[1], "w") as out:
    out.write("\n".join(told) + "\n")
print("done", flush=True)
sys.stdin.read()
