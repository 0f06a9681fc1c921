# SPDX-License-Identifier: Apache-2.0
"""rdma_latency: requests in Python that end after a known time, as in rdma_latency.h."""
import ctypes
import os
import sys
import threading
import time

from verbs import (P, POLL_CQ, POST_SEND, RC, READ, SEND, U64, WRITE, Device, SendRequest, Sge,
                   await_probes, library, poll_cq, post_send, works)


class Latency:
    """The sums of the two limits, in ns."""

    def __init__(self):
        self.least = self.most = self.n = 0

    def post(self, opcode, us):
        sge = Sge(ctypes.addressof(memory), 8, 1)
        request = SendRequest(sges=ctypes.pointer(sge), n_sges=1, opcode=opcode)
        library.standin_rdma_set_delay(U64(1000 * us))
        before = time.monotonic_ns()
        works(post_send(rc, ctypes.byref(request), ctypes.byref(P())))
        self.least -= time.monotonic_ns()
        self.most -= before

    def take(self, n):
        """Polls until there have been n completions."""
        completions = ctypes.create_string_buffer(48 * 16)
        while n:
            before = time.monotonic_ns()
            taken = poll_cq(device.cq, 16, completions)
            after = time.monotonic_ns()
            self.least += taken * before
            self.most += taken * after
            self.n += taken
            n -= taken
            time.sleep(0 if taken else 0.00005)


def sends(latency):
    latency.post(SEND, 2000)
    latency.take(1)


def writes(latency):
    latency.post(WRITE, 1000)
    latency.take(1)


def reads_together(latency):
    for us in 3000, 2000, 1000:
        latency.post(READ, us)
    latency.take(3)


def recursive(latency, depth=20):
    if depth:
        recursive(latency, depth - 1)
    else:
        latency.post(SEND, 1500)
        latency.take(1)


def of_thread(latency):
    latency.post(WRITE, 1500)


def starts_thread(latency):
    t = threading.Thread(target=of_thread, args=[latency])
    t.start()
    t.join()
    latency.take(1)


def run(f, operation, name=""):
    latency = Latency()
    for _ in range(rounds):
        f(latency)
    distance = (latency.most - latency.least) // 2
    told.append(f"rdma-latency:{operation} {name or f.__name__} "
                f"{(latency.least + distance) // 1000}~{distance // 1000 + latency.n} RC@standin_0")


rounds, told = int(sys.argv[2]), []
memory = ctypes.create_string_buffer(8)
device = Device(0)
print("ready", flush=True)
sys.stdin.readline()
await_probes(device.pair(RC), POST_SEND, POLL_CQ)
print("shown", os.getpid(), flush=True)     # as await_counts() of rdma.h
sys.stdin.readline()
rc = device.pair(RC)                        # podflame sees how it is made
run(sends, "send")
run(writes, "write")
run(reads_together, "read")
run(recursive, "send")
run(starts_thread, "write", "of_thread")
with open(sys.argv[1], "w") as out:
    out.write("\n".join(told) + "\n")
print("done", flush=True)
sys.stdin.read()
