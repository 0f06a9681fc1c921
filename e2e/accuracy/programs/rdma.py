# SPDX-License-Identifier: Apache-2.0
"""rdma: requests in Python, through ctypes on libibverbs; its protocol is told.h's. The inline
ibv_post_send() and ibv_post_recv() of verbs.h are calls through the context, so they are that
here, too."""
import ctypes
import os
import sys
import threading
import time

verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
P, I, U, U64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64
RESET, INIT, RTR, RTS = range(4)
RC, UD = 2, 4
WRITE, SEND, READ, FETCH_ADD = 0, 2, 4, 6


def function(name, result, *arguments):
    f = getattr(verbs, name)
    f.restype, f.argtypes = result, arguments
    return f


def made(pointer):
    if not pointer:
        raise OSError(ctypes.get_errno(), "verbs")
    return pointer


def works(error):
    if error:
        raise OSError(error, "verbs")


# ---- the structures of verbs.h ----

class Capacity(ctypes.Structure):
    _fields_ = [(n, U) for n in ("send_wr", "recv_wr", "send_sge", "recv_sge", "inline_data")]


class InitAttr(ctypes.Structure):
    _fields_ = [("context", P), ("send_cq", P), ("recv_cq", P), ("srq", P), ("cap", Capacity),
                ("type", I), ("all_signaled", I)]


class Sge(ctypes.Structure):
    _fields_ = [("address", U64), ("length", U), ("lkey", U)]


class SendRequest(ctypes.Structure):
    _fields_ = [("id", U64), ("next", P), ("sges", ctypes.POINTER(Sge)), ("n_sges", I),
                ("opcode", I), ("flags", U), ("imm", U), ("more", ctypes.c_char * 80)]


class ReceiveRequest(ctypes.Structure):
    _fields_ = [("id", U64), ("next", P), ("sges", ctypes.POINTER(Sge)), ("n_sges", I)]


def at(address, offset):
    """The pointer at an offset of a structure."""
    return P.from_address(address + offset).value


def of_context(queue, offset):
    """The address of a function: the one at this offset of the table in the queue's context."""
    return at(at(queue, 0), 8 + offset)


POLL_CQ, POST_SEND, POST_RECV = 88, 200, 208


def by_context(offset, *arguments):
    prototype = ctypes.CFUNCTYPE(I, P, *arguments)
    return lambda queue, *a: prototype(of_context(queue, offset))(queue, *a)


poll_cq = by_context(POLL_CQ, I, P)
post_send = by_context(POST_SEND, P, P)
post_recv = by_context(POST_RECV, P, P)


def await_probes(queue):
    """Waits until podflame probes the functions that post, as await_probe() of rdma.h."""
    for offset in POST_SEND, POST_RECV:
        while 0xcc not in ctypes.string_at(of_context(queue, offset), 16):
            time.sleep(0.001)


# ---- queue pairs ----

class Device:
    def __init__(self, pointer):
        self.context = made(function("ibv_open_device", P, P)(pointer))
        self.pd = made(function("ibv_alloc_pd", P, P)(self.context))
        self.cq = made(function("ibv_create_cq", P, P, I, P, P, I)(self.context, 1024, None, None,
                                                                  0))

    def pair(self, kind):
        attr = InitAttr(send_cq=self.cq, recv_cq=self.cq, cap=Capacity(128, 128, 4, 4, 256),
                        type=kind, all_signaled=1)
        qp = made(function("ibv_create_qp", P, P, P)(self.pd, ctypes.byref(attr)))
        for state in INIT, RTR, RTS:
            attributes = ctypes.create_string_buffer(144)
            I.from_buffer(attributes).value = state
            works(function("ibv_modify_qp", I, P, P, I)(qp, attributes, 1))
        return qp

    def poll(self):
        completions = ctypes.create_string_buffer(48 * 16)
        while poll_cq(self.cq, 16, completions) > 0:
            pass


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
    verbs.standin_rdma_fail_after(0, 5)
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
    verbs.standin_rdma_count(None, 0, ctypes.byref(counts))
    seen = dict(zip(OPERATIONS, counts.bytes))
    if seen != known:
        raise RuntimeError(f"the library counted {seen}, not {known}")


rounds, told = int(sys.argv[2]), []
known = dict.fromkeys(OPERATIONS, 0)
devices = function("ibv_get_device_list", ctypes.POINTER(P), P)(None)
first, second = Device(devices[0]), Device(devices[1])
print("ready", flush=True)
sys.stdin.readline()
rc, ud = first.pair(RC), first.pair(UD)
await_probes(rc)
await_probes(second.pair(RC))
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
