# SPDX-License-Identifier: Apache-2.0
"""python_shares.py TOLD SECONDS: CPU time in each kind of call that Python has, in a known-answer
program. It writes the shares that it measured to TOLD."""
import asyncio
import functools
import gc
import os
import sys
import threading
import time

try:
    import _interpreters as interpreters                # 3.13 and later
except ImportError:
    import _xxsubinterpreters as interpreters

SUB = """def sub_work(n):
    total = 0
    for i in range(n):
        total += i * i
    return total
"""


def spin(n):
    total = 0
    for i in range(n):
        total += i * i
    return total


def alpha():
    spin(3000)


def beta_(n):
    return beta_(n - 1) if n else spin(3000)


def beta():
    beta_(8)


def gamma_(n):
    if n == 1:
        return spin(3000)
    return gamma_(n - 1)


def numbers(n):
    for _ in range(n):
        yield spin(300)


def delegate(n):
    yield from numbers(n)


def generate():
    return sum(delegate(10))


async def awaited(n):
    if n:
        return await awaited(n - 1)
    await asyncio.sleep(0)
    return spin(3000)


def coroutine():
    LOOP.run_until_complete(awaited(5))


def key_of(x):
    return spin(x)


def callback():
    sorted(range(100), key=key_of)
    functools.reduce(lambda a, b: a + spin(b), range(60))


class Shape:
    def __init__(self, n):
        self.n = spin(n)

    def __lt__(self, other):
        return spin(200) < other.n

    @property
    def area(self):
        return spin(1000)


def objects():
    sorted(Shape(200) for _ in range(5))
    return Shape(500).area


def raiser(n):
    if n:
        raiser(n - 1)
    raise ValueError(spin(500))


def catcher():
    for _ in range(4):
        try:
            raiser(6)
        except ValueError:
            spin(200)


def comprehend():
    return [spin(x) for x in range(80)]


class Ring:
    pass


def collect():
    for _ in range(200):
        ring = Ring()
        ring.self = ring
    gc.collect()


def sub():
    """Its frames belong to another interpreter in this thread; the string's code is freed each
    time."""
    interpreters.run_string(INTERPRETER, "sub_work(300000)")


def in_thread(told):
    begin = time.thread_time_ns()
    for _ in range(100):
        spin(3000)
    told["in_thread"] = told.get("in_thread", 0) + time.thread_time_ns() - begin


def spend(share, times):
    begin = time.thread_time_ns()
    for _ in range(times):
        share()
    return time.thread_time_ns() - begin


SHARES = [(alpha, 100), (beta, 150), (functools.partial(gamma_, 40), 200), (generate, 100),
          (coroutine, 100), (callback, 40),
          (objects, 100), (catcher, 50), (comprehend, 60), (collect, 30), (sub, 1)]


def work(seconds, told):
    while time.process_time() < seconds:
        for share, times in SHARES:
            name = getattr(share, "func", share).__name__
            told[name] = told.get(name, 0) + spend(share, times)
        t = threading.Thread(target=in_thread, args=(told,))
        t.start()
        t.join()


def main():
    told = {}
    os.write(1, b"ready\n")
    os.read(0, 1)
    before = time.process_time_ns()
    work(time.process_time() + float(sys.argv[2]), told)
    told["total"] = time.process_time_ns() - before
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.writelines(f"{name} {ns}\n" for name, ns in told.items())
    os.write(1, b"done\n")
    os.read(0, 1)


LOOP = asyncio.new_event_loop()
INTERPRETER = interpreters.create()
interpreters.run_string(INTERPRETER, SUB)
main()
