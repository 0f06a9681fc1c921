# SPDX-License-Identifier: Apache-2.0
"""Known answer in Python, as waits.c of workloads: threads that wait and one that allocates. It
prints the same lines."""
import os
import threading
import time

mutex = threading.Lock()
reader, writer = os.pipe()
escaped = None
leaked = []
held = []


def naps():
    time.sleep(0.02)


def waits_for_lock():
    mutex.acquire()
    mutex.release()


def reads_pipe():
    os.read(reader, 1)


def allocates():
    global escaped
    for _ in range(8):
        escaped = bytes(65536)


def leaks():
    leaked.append(bytes(65536))


def holds(on):
    held.clear()
    if on:
        held.extend([bytes(65536) for _ in range(64)])


steps = bytes(10000)  # to count by: nothing is allocated for small numbers, and so no probe is hit


def burns():
    end = time.thread_time() + 0.01
    while time.thread_time() < end:
        for _ in steps:
            pass


sums = {f: 0 for f in (naps, waits_for_lock, reads_pipe, allocates, leaks)}
holding = 0


def waiting(f, pause):
    while True:
        before = time.monotonic_ns()
        f()
        sums[f] += (time.monotonic_ns() - before) // 1000
        if pause:
            time.sleep(pause)


def allocating(f, pause, size):
    while True:
        f()
        sums[f] += size
        time.sleep(pause)


def keeps_lock():
    while True:
        with mutex:
            time.sleep(0.02)
        time.sleep(0.02)


def feeds():
    while True:
        os.write(writer, b"x")
        time.sleep(0.025)


def keeps():
    global holding
    while True:
        for holding in (64 * 65536, 0):
            holds(holding > 0)
            time.sleep(20)


def start(f, *args):
    threading.Thread(target=f, args=args, daemon=True).start()


for f, pause in ((naps, 0), (waits_for_lock, 0.002), (reads_pipe, 0)):
    start(waiting, f, pause)
start(allocating, allocates, 0.1, 8 * 65536)
start(allocating, leaks, 0.2, 65536)
for f in (keeps_lock, feeds, keeps):
    start(f)
n = 0
while True:
    burns()
    time.sleep(0.09)
    if n % 10 == 0:
        sums_text = [f"{f.__name__}={v}" for f, v in sums.items()]
        print("known", int(time.time()), *sums_text, f"burns={(n + 1) * 10000} holds={holding}",
              flush=True)
    n += 1
