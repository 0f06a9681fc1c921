# SPDX-License-Identifier: Apache-2.0
"""exact: in Python, from 3.8 on; its protocol is exact.h's."""
import os
import select
import signal
import socket
import sys
import threading
import time

WAIT = 0.015
mutex = threading.Lock()
pipe_reader, pipe_writer = os.pipe()
ask_reader, ask_writer = os.pipe()
held_reader, held_writer = os.pipe()
socket_reader, socket_writer = socket.socketpair()
poller = select.poll()
escaped = [None] * 4
kept = [None] * 100000
n_kept = 0


# ---- waits ----

def naps():
    time.sleep(WAIT)


def waits_for_lock():
    mutex.acquire()
    mutex.release()


def reads_pipe():
    os.read(pipe_reader, 1)


def reads_socket():
    socket_reader.recv(1)


def polls():
    poller.poll(15)


def syncs():
    os.pwrite(disk, b"x", 0)
    os.fdatasync(disk)


def waits_for_signal():
    signal.sigtimedwait(SIGNALS, WAIT)


SIGNALS = [signal.SIGUSR1]


# ---- memory: one object each; those up to 512 bytes are pymalloc's ----

def small():
    escaped[0] = bytes(200)


def large():
    escaped[0] = bytes(65536)


def array():
    escaped[0] = bytearray(100000)


def strings():
    escaped[0] = LETTER * 5000


def leaks():
    kept[n_kept] = bytes(3000)


LETTER = "x"


# ---- what is known ----

def helps():
    while True:
        what = os.read(ask_reader, 1)
        if what == b"l":
            mutex.acquire()
            os.write(held_writer, b"h")
        time.sleep(WAIT)
        if what == b"l":
            mutex.release()
        elif what == b"p":
            os.write(pipe_writer, b"x")
        elif what == b"s":
            socket_writer.send(b"x")


def waits(f, cause, asks=None):
    total = 0
    for _ in range(rounds):
        if asks:
            os.write(ask_writer, asks)
            if asks == b"l":
                os.read(held_reader, 1)
        before, cpu = time.monotonic_ns(), time.thread_time_ns()
        f()
        total += time.monotonic_ns() - before - (time.thread_time_ns() - cpu)
    told.append(f"off-cpu {f.__name__} {total // 1000} {cause}")


def allocates(f, size, keeps=0):
    global n_kept
    for _ in range(rounds):
        f()
        n_kept += bool(keeps)
    told.append(f"mem-alloc {f.__name__} {size * rounds}")
    # of smaller ones mem-inuse sees nothing where the interpreter has pymalloc's code in its
    # functions
    if size > 512:
        told.append(f"mem-inuse {f.__name__} {keeps * rounds}")


rounds, told = int(sys.argv[2]), []
disk = os.open(sys.argv[1] + ".disk", os.O_CREAT | os.O_RDWR)
signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
threading.Thread(target=helps, daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
waits(naps, "sleep" if sys.version_info >= (3, 11) else "poll")      # it was select()
waits(waits_for_lock, "lock", b"l")
waits(reads_pipe, "pipe", b"p")
waits(reads_socket, "socket", b"s")
waits(polls, "poll")
waits(syncs, "disk")
waits(waits_for_signal, "other")
allocates(small, sys.getsizeof(bytes(200)))
allocates(large, sys.getsizeof(bytes(65536)))
allocates(array, 100001)
allocates(strings, sys.getsizeof("x" * 5000))
escaped[0] = None
allocates(leaks, sys.getsizeof(bytes(3000)), sys.getsizeof(bytes(3000)))
with open(sys.argv[1], "w") as out:
    out.write("\n".join(told) + "\n")
print("done", flush=True)
sys.stdin.read()
