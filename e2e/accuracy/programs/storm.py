# SPDX-License-Identifier: Apache-2.0
"""storm.py [MS]: allocates objects that die young. Every MS milliseconds it prints "rate
OBJECTS_A_CPU_SECOND OBJECTS CPU_NS", the last two since it began."""
import sys
import time

period = (int(sys.argv[1]) if len(sys.argv) > 1 else 1000) / 1000
since, due, n, before = time.process_time_ns(), time.monotonic() + period, 0, 0
while True:
    for i in range(2000):
        x = [bytes(i % 512), str(i), {i: i}]
    n += 2000
    if time.monotonic() >= due:
        now = time.process_time_ns()
        print("rate", (n - before) * 10**9 // (now - since), n, now, flush=True)
        since, due, before = now, time.monotonic() + period, n
