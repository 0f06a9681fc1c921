# SPDX-License-Identifier: Apache-2.0
"""Three functions that take 50, 30 and 20 % of the CPU time, 2 ms at a time, in an order that is
drawn by chance."""
import time


def burn(until):
    n = 0
    while time.thread_time() < until:
        for i in range(500):
            n += i * i % 7
    return n


def share_50():
    return burn(time.thread_time() + 0.002)


def share_30():
    return burn(time.thread_time() + 0.002)


def share_20():
    return burn(time.thread_time() + 0.002)


class Work:
    def run(self):
        order = (share_50, share_30, share_50, share_20, share_50,
                 share_30, share_50, share_20, share_50, share_30)
        dice = time.time_ns()
        while True:
            dice = dice * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
            order[(dice >> 33) % 10]()


Work().run()
