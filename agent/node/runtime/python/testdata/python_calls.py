# SPDX-License-Identifier: Apache-2.0
"""Goes through the kinds of calls that Python has. Deep in each it tells its own stack, as the interpreter knows it: a
line "thread IDENT", a line "MODULE.NAME FILE:LINE" a frame from the leaf on, for each thread; then "ready", and it
waits for a line of its input. Runs with 3.8 and later."""
import asyncio
import ctypes
import functools
import json
import os
import re
import sys
import threading
import time


def name_of(code):
    return getattr(code, "co_qualname", code.co_name)     # in code objects since 3.11


def tell_thread(ident, frame, out):
    out.append(f"thread {ident}")
    while frame:
        code = frame.f_code
        module = frame.f_globals.get("__name__") or os.path.basename(code.co_filename)
        out.append(f"{module}.{name_of(code)} {code.co_filename}:{frame.f_lineno or 0}")
        frame = frame.f_back


def stop():
    out, me = [], threading.get_ident()
    for ident, frame in sorted(sys._current_frames().items()):
        if ident != me:
            tell_thread(ident, frame, out)
    # One line: this is where this function stands while it is looked at.
    tell_thread(me, sys._getframe(), out), show(out), os.read(0, 1)
    return 0


def show(out):
    os.write(1, ("\n".join(out) + "\nready\n").encode())


# ---- kinds of calls ----

def recursive(n):
    if n:
        return recursive(n - 1)
    stop()


def generator():
    yield 1
    stop()
    yield 2


def delegating():
    yield from generator()


class Base:
    def __init__(self, stops=False):
        if stops:
            stop()

    def method(self):
        return sum(delegating())


class Child(Base):
    def method(self):
        return super().method()

    @classmethod
    def made(cls):
        return cls(True)

    @property
    def value(self):
        stop()

    def __lt__(self, other):
        stop()
        return False


def raising(n):
    try:
        if n:
            raising(n - 1)
        raise ValueError
    except ValueError:
        if n == 2:
            stop()
        if n < 2:
            raise
    finally:
        if n == 1:
            stop()


def decorated(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        return f(*args, **kwargs)
    return wrapper


@decorated
@functools.lru_cache(maxsize=None)
def cached(n):
    return cached(n - 1) if n else stop()


async def inner(n):
    if n:
        await inner(n - 1)
    else:
        await asyncio.sleep(0)
        stop()


async def counting():
    yield 1
    stop()


async def coroutines():
    await asyncio.gather(inner(3), inner(0))
    return [x async for x in counting()]


def many_lines(n):
    if n:
        return (
            recursive
            if n > 1
            else stop
        )(
            *[0] * (n - 1)
        )


def näme_ünicode_名():
    stop()


def callbacks():
    sorted([1, 2], key=lambda x: stop() if x == 2 else x)
    sorted([Child(), Child()])
    re.sub("b", lambda m: str(stop()), "abc")
    json.loads('{"a": {}}', object_hook=lambda d: stop() if d else d)
    list(map(lambda x: [stop() for _ in range(x)], [1]))
    functools.reduce(lambda a, b: stop(), [1, 2])
    {x: stop() for x in [1]}
    eval("stop()")
    exec("def made():\n\n    return stop()\n\n\nmade()", {"stop": stop, "__name__": "made.up"})
    exec("stop()", {"stop": stop})          # without a __name__
    max([1, 2], key=functools.partial(lambda a, b: stop() if b == 2 else 0, 10))
    ctypes.CFUNCTYPE(None)(stop)()          # through a library that knows nothing of Python


def waiting(fd):
    os.read(fd, 1)


def settled():
    """All other threads stand in that line."""
    others = [f for i, f in sys._current_frames().items() if i != threading.get_ident()]
    return all(f.f_code is waiting.__code__ and f.f_lineno == f.f_code.co_firstlineno + 1 for f in others)


def works_when_settled():
    while not settled():
        time.sleep(0.001)
    recursive(5)


def in_a_thread():
    ours, theirs = os.pipe()
    waits = [threading.Thread(target=waiting, args=(ours,)) for _ in range(3)]
    works = threading.Thread(target=lambda: works_when_settled() or os.write(theirs, b"1234"))
    for t in waits + [works]:
        t.start()
    waiting(ours)
    for t in waits + [works]:
        t.join()


# ---- lines ----

def codes_of(code):
    yield code
    for c in code.co_consts:
        if hasattr(c, "co_code"):
            yield from codes_of(c)


def tell_lines():
    """Lines of all code units of some modules, as the interpreter tells them: "code ADDRESS NAME LINE LINE ..."."""
    line = ctypes.pythonapi.PyCode_Addr2Line
    line.argtypes = [ctypes.py_object, ctypes.c_int]
    line.restype = ctypes.c_int
    kept, out = [], []
    for m in asyncio.base_events, json.decoder, argparse_like(), re:
        with open(m.__file__, encoding="utf-8") as f:
            top = compile(f.read(), m.__file__, "exec")
        kept.append(top)
        for c in codes_of(top):
            lines = [max(line(c, at), 0) for at in range(0, len(c.co_code), 2)]
            out.append(f"code {id(c)} {c.co_argcount} {name_of(c)} {' '.join(map(str, lines))}")
    os.write(1, f"globals {id(globals())}\n".encode())
    data = ("\n".join(out) + "\nready\n").encode()
    while data:
        data = data[os.write(1, data):]
    os.read(0, 1)
    return kept


def argparse_like():
    import argparse
    return argparse


def main():
    recursive(30)
    Child().method()
    Child.made()
    Child().value
    raising(3)
    cached(3)
    many_lines(1)
    many_lines(2)
    näme_ünicode_名()
    callbacks()
    in_a_thread()
    asyncio.new_event_loop().run_until_complete(coroutines())
    tell_lines()
    os.write(1, b"done\n")


main()
