#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clock.py: the clock of a running agent is set forward and back, as a step of NTP does it.
(clock.c: the machine's own clock stays.) The CPU time that the burner used is stored once, no more
and no less, and none of it is reported as loss. long.sh runs it, as root."""
import os
import shutil
import sys
import time

import store
from roles import BUILD, Place, free_port, one_test, until

WINDOW_S = 2
STEPS_S = (0, 100, -50)  # beside the right time; each lasts
EACH_S = 10


def n_profiles(place):
    try:
        with place.store() as db:
            return db.execute("SELECT COUNT(*) FROM profiles WHERE n>0").fetchone()[0]
    except Exception:  # pylint: disable=broad-except  # not there yet
        return 0


def set_clock(place, seconds):
    with open(f"{place.dir}/offset", "r+b" if os.path.exists(f"{place.dir}/offset") else "wb") as f:
        f.write(int(seconds * 1e9).to_bytes(8, sys.byteorder, signed=True))


def play(place):
    """Returns when the first window began."""
    agent, hub = place.roles["agent"], place.roles["hub"]
    hub.start()
    place.wait_hub()
    place.container("burner")
    place.target("all", "burner")
    with open(f"{place.dir}/burner.log", "w") as log:
        place.processes.append(place.containers[0].run("nice", "-n", "-10", f"{BUILD}/crash/burner",
                                                       stdout=log))
    set_clock(place, 0)
    shutil.copy(f"{BUILD}/crash/clock.so", place.dir)
    os.environ.update(LD_PRELOAD=f"{place.dir}/clock.so", CLOCK_OFFSET=f"{place.dir}/offset")
    try:
        agent.start()
    finally:
        del os.environ["LD_PRELOAD"], os.environ["CLOCK_OFFSET"]
    until("the first window is stored", lambda: n_profiles(place))
    with place.store() as db:
        begin = db.execute("SELECT MIN(time) FROM profiles WHERE n>0").fetchone()[0] + 1 - WINDOW_S
    for step in STEPS_S:
        set_clock(place, step)
        n, at = n_profiles(place), time.monotonic() + EACH_S
        until(f"windows are stored while the clock is {step} s beside the right time",
              lambda n=n, at=at: time.monotonic() > at and n_profiles(place) > n, 240)
    until("the spool is empty", lambda: not place.spooled(), 240)
    assert agent.is_up(), "the agent has ended by itself"
    agent.kill()  # its open window is not sent
    assert hub.end() == 0, "the hub's end"
    return begin


def check(place, begin):
    stored, burnt = store.read(place), store.Burnt(f"{place.dir}/burner.log")
    # the end of the last step's windows, which lie before all others
    end = max(t for t in stored.windows if t < begin) + 1 - STEPS_S[-1]
    have, was = sum(stored.windows.values()), burnt.between(begin, end)
    apart = max(stored.windows) - min(stored.windows)
    assert apart > 90, f"the clock was not set: all windows lie within {apart} s"
    assert not stored.gaps, f"told as time without an agent: {stored.gaps}"
    assert store.LEAST * was - store.SLACK_S <= have <= store.MOST * was + store.SLACK_S, \
        f"{have:.2f} s are stored of {was:.2f} s"
    return (f"{have:.1f} s of CPU time are stored of {was:.1f} s, "
            f"in {len(stored.windows)} windows; losses: {stored.lost}")


def test():
    with Place(window=f"{WINDOW_S}s",
               agent=f"health:\n  address: 127.0.0.1\n  port: {free_port()}\n") as place:
        print(check(place, play(place)))


if __name__ == "__main__":
    sys.exit(one_test("a clock that is set", test))
