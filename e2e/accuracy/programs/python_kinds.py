# SPDX-License-Identifier: Apache-2.0
"""python_kinds.py SECONDS THREADS: goes through the kinds of calls that Python has, in several
threads, so that it can be stopped at any of them."""
import asyncio
import functools
import json
import re
import sys
import threading
import time


def busy(n):
    total = 0
    for i in range(n):
        total += i * i
    return total


def generator(n):
    for i in range(n):
        got = busy(150)
        yield got


def delegating(n):
    yield from generator(n)


class Base:
    def __init__(self, n):
        self.n = n
        busy(200)

    def method(self):
        return sum(delegating(20))


class Child(Base):
    def method(self):
        return super().method()

    @classmethod
    def made(cls):
        return cls(3)

    @property
    def value(self):
        return busy(300)

    def __lt__(self, other):
        return busy(40) < other.n

    def __eq__(self, other):
        return busy(40) == other.n

    __hash__ = None


def recursive(n):
    if n:
        return recursive(n - 1) + 1
    return Child.made().method()


def raising(n):
    try:
        if n:
            raising(n - 1)
        raise ValueError(busy(100))
    except ValueError as e:
        busy(100)
        if n == 5:
            return e
        raise
    finally:
        busy(50)


def decorated(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        return f(*args, **kwargs)
    return wrapper


@decorated
@functools.lru_cache(maxsize=None)
def fibonacci(n):
    busy(30)
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


async def inner(n):
    busy(100)
    if n:
        await inner(n - 1)
    else:
        await asyncio.sleep(0)
    return busy(100)


async def agen(n):
    for i in range(n):
        busy(100)
        yield i
        await asyncio.sleep(0)


async def coroutines():
    await asyncio.gather(*(inner(5) for _ in range(3)))
    async for _ in agen(3):
        busy(100)
    return [x async for x in agen(2)]


def callbacks():
    sorted(range(60), key=lambda x: busy(20))
    sorted([Child(1) for _ in range(4)])
    re.sub("[0-9]", lambda m: str(busy(20)), "1234567890")
    json.loads('{"a": {"b": [1, 2, {"c": 3}]}}', object_hook=lambda d: busy(50))
    list(map(lambda x: [busy(10) for _ in range(x)], range(10)))
    functools.reduce(lambda a, b: a + busy(b), range(50))
    {x: busy(x) for x in range(20)}
    eval("busy(200)")
    exec("def made(n):\n    return busy(n)\n\n\nmade(300)", {"busy": busy, "__name__": "made_up"})
    max(range(20), key=functools.partial(lambda a, b: busy(a + b), 10))


def näme_ünicode():
    return busy(400)


def worker(end):
    while time.time() < end:
        recursive(10)
        callbacks()
        raising(5)
        Child.made().value
        näme_ünicode()
        fibonacci.__wrapped__.cache_clear()
        fibonacci(15)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(coroutines())
        loop.close()


def main():
    end = time.time() + float(sys.argv[1])
    threads = [threading.Thread(target=worker, args=(end,), daemon=True)
               for _ in range(int(sys.argv[2]))]
    for t in threads:
        t.start()
    worker(end)


main()
