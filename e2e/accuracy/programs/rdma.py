# SPDX-License-Identifier: Apache-2.0
"""rdma: requests in Python; its protocol is told.h's."""
import ctypes
import os
import sys
import threading

from verbs import (FETCH_ADD, P, POST_RECV, POST_SEND, RC, READ, SEND, U64, UD, WRITE, Device, I,
                   ReceiveRequest, SendRequest, Sge, await_probes, function, library, made,
                   post_recv, post_send, works)

class Region:
    """Memory that is registered as long as the object lives."""

    def __init__(self, device, size):
        self.memory = ctypes.create_string_buffer(size)
        self.mr = made(function("ibv_reg_mr", P, P, P, ctypes.c_size_t, I)(
            device.pd, self.memory, size, 0))

    def __del__(self):
        if hasattr(self, "mr"):
            works(function("ibv_dereg_mr", I, P)(self.mr))

    def parts(self, lengths):
        return (Sge * len(lengths))(*(Sge(ctypes.addressof(self.memory), n, 1) for n in lengths))


def send(qp, opcode, *lengths):
    sges = region.parts(lengths)
    request = SendRequest(sges=sges, n_sges=len(lengths), opcode=opcode)
    works(post_send(qp, ctypes.byref(request), ctypes.byref(P())))


# ---- what is posted ----

def makes_region():
    global region
    region = Region(first, 8000)


def sends():
    send(rc, SEND, 1000)


def sends_parts():
    send(rc, SEND, 1, 20, 300)


def writes():
    send(rc, WRITE, 2000)


def reads():
    send(rc, READ, 3000)


def adds():
    send(rc, FETCH_ADD, 8)


def datagrams():
    for _ in range(3):
        send(ud, SEND, 600)


def sends_list():
    sges = region.parts([50])
    requests = (SendRequest * 4)()
    for i, r in enumerate(requests):
        r.sges, r.n_sges, r.opcode = sges, 1, SEND
        if i < 3:
            r.next = ctypes.addressof(requests[i + 1])
    works(post_send(rc, requests, ctypes.byref(P())))


def receives():
    sges = region.parts([800, 80])
    request = ReceiveRequest(sges=sges, n_sges=2)
    works(post_recv(rc, ctypes.byref(request), ctypes.byref(P())))


def registers():
    Region(second, 7000)


def recursive(depth=20):
    if depth:
        recursive(depth - 1)
    else:
        send(rc, WRITE, 90)


def generates():
    def sent():
        for i in range(1, 4):
            send(rc, SEND, 10 * i)
            yield i
    return sum(sent())


def of_thread():
    send(rc, SEND, 900)


def starts_thread():
    t = threading.Thread(target=of_thread)
    t.start()
    t.join()


def fails():
    library.standin_rdma_fail_after(0, 5)
    try:
        send(rc, SEND, 1000)
    except OSError:
        return
    raise RuntimeError("no failure")


# ---- what is known ----

OPERATIONS = ("send", "write", "read", "atomic", "other", "receive", "register")


class Counts(ctypes.Structure):
    """struct standin_rdma_counts of e2e/rdma/standin.h"""
    _fields_ = [("requests", U64 * len(OPERATIONS)), ("bytes", U64 * len(OPERATIONS))]


def posts(f, operation, size, queue="RC@standin_0", name=""):
    for _ in range(rounds):
        f()
        first.poll()
    known[operation] += size * rounds
    told.append(f"rdma:{operation} {name or f.__name__} {size * rounds} {queue if size else ''}")


def compare_with_library():
    """Ends the program if the library has counted something else."""
    counts = Counts()
    library.standin_rdma_count(None, 0, ctypes.byref(counts))
    seen = dict(zip(OPERATIONS, counts.bytes))
    if seen != known:
        raise RuntimeError(f"the library counted {seen}, not {known}")


rounds, told = int(sys.argv[2]), []
known = dict.fromkeys(OPERATIONS, 0)
first, second = Device(0), Device(1)
print("ready", flush=True)
sys.stdin.readline()
rc, ud = first.pair(RC), first.pair(UD)
await_probes(rc, POST_SEND, POST_RECV)
await_probes(second.pair(RC), POST_SEND, POST_RECV)
print("shown", os.getpid(), flush=True)     # as await_counts() of rdma.h
sys.stdin.readline()
posts(makes_region, "register", 8000, "@standin_0")
posts(sends, "send", 1000)
posts(sends_parts, "send", 321)
posts(writes, "write", 2000)
posts(reads, "read", 3000)
posts(adds, "atomic", 8)
posts(datagrams, "send", 1800, "UD@standin_0")
posts(sends_list, "send", 200)
posts(receives, "receive", 880)
posts(registers, "register", 7000, "@standin_1")
posts(recursive, "write", 90)
posts(generates, "send", 60)
posts(starts_thread, "send", 900, name="of_thread")
posts(fails, "send", 0)
compare_with_library()
with open(sys.argv[1], "w") as out:
    out.write("\n".join(told) + "\n")
print("done", flush=True)
sys.stdin.read()
