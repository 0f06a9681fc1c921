# SPDX-License-Identifier: Apache-2.0
"""verbs: libibverbs through ctypes, for the programs that post requests in Python. The inline
ibv_post_send(), ibv_post_recv() and ibv_poll_cq() of verbs.h are calls through the context, so they
are that here, too."""
import ctypes
import time

library = ctypes.CDLL("libibverbs.so.1", use_errno=True)
P, I, U, U64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64
RESET, INIT, RTR, RTS = range(4)
RC, UD = 2, 4
WRITE, SEND, READ, FETCH_ADD = 0, 2, 4, 6


def function(name, result, *arguments):
    f = getattr(library, name)
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


def await_probes(queue, *offsets):
    """Waits until podflame probes these functions, as await_probe() of rdma.h."""
    for offset in offsets:
        while 0xcc not in ctypes.string_at(of_context(queue, offset), 16):
            time.sleep(0.001)


# ---- queue pairs ----

class Device:
    def __init__(self, number):
        devices = function("ibv_get_device_list", ctypes.POINTER(P), P)(None)
        self.context = made(function("ibv_open_device", P, P)(devices[number]))
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
