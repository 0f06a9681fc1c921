# SPDX-License-Identifier: Apache-2.0
"""limit.py: a time limit for a block, so that no test waits for ever."""
import contextlib
import signal


@contextlib.contextmanager
def within(seconds, what):
    """A block that takes longer raises TimeoutError where it stands. On the main thread, one at a
    time."""
    def too_long(*_):
        raise TimeoutError(f"{what}: no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
