# SPDX-License-Identifier: Apache-2.0
"""Allocates objects that die young; prints once a second "rate N", objects a CPU second."""
import time

since, said, n = time.process_time(), time.time(), 0
while True:
    for i in range(2000):
        x = [bytes(i % 512), str(i), {i: i}]
    n += 2000
    if time.time() - said >= 1:
        now = time.process_time()
        print("rate", int(n / (now - since)), flush=True)
        since, said, n = now, time.time(), 0
