#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [--seed N] [--seconds S]: kills node, parse child and hub (SIGKILL) at moments drawn by
chance, then asks the store what is missing. LONG=1: 360 windows, as many as an hour has by default;
otherwise a few. It prints its seed, which repeats the schedule. `make crash` calls it, as root.

What must be true: every window from the first to the last one that an agent has stored is there,
once. An agent's death costs no more than the open window and some seconds. The time between an
agent's last window and the first one of the next agent is reported as loss.
No BPF objects, processes or files are left behind.
"""
import argparse
import os
import random
import sys
import time

import kernel
import store
from roles import Place, one_test, until

WINDOW_S = 2
PARSE_VERB = b"__parse"
LONGEST_DOWN_S = {"agent": 1.5, "hub": 5.0}


class Killer:
    """The schedule: which process dies when, and for how long. One generator makes all that is
    decided by chance."""

    def __init__(self, place, seed, seconds):
        self.place, self.chance = place, random.Random(seed)
        self.end = time.monotonic() + seconds
        self.starts = {}  # role -> when it comes back
        self.first = self.chance.sample(["agent", "child", "hub"], 3)  # each at least once
        self.n = {"agent": 0, "child": 0, "hub": 0}
        self.n_copies = 0
        self.stayed = []  # parse children that outlived their agent
        self.lives = []  # of agents that were killed: (begin, end), wall time
        self.began = time.time()
        self.container = place.containers[0]

    def kill_child(self, agent):
        for pid in agent.children():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    if PARSE_VERB in f.read():
                        os.kill(pid, 9)
                        self.n["child"] += 1
            except (OSError, ProcessLookupError):
                pass

    def kill(self, who):
        role = self.place.roles["agent" if who == "child" else who]
        if not role.is_up():
            return
        if who == "child":
            self.kill_child(role)
            return
        children = role.children()
        role.kill()
        self.n[who] += 1
        if who == "agent":
            self.lives.append((self.began, time.time()))
            self.stayed += [p for p in children if not self.is_gone(p)]
        self.starts[who] = time.monotonic() + self.chance.uniform(0, LONGEST_DOWN_S[who])

    @staticmethod
    def is_gone(pid):
        try:
            until("the agent's child has ended", lambda: not os.path.exists(f"/proc/{pid}"), 30)
        except TimeoutError:
            return False
        return True

    def come_back(self, all_of_them=False):
        for who, at in list(self.starts.items()):
            if all_of_them or time.monotonic() >= at:
                self.place.roles[who].start()
                if who == "agent":
                    self.began = time.time()
                del self.starts[who]

    def step(self):
        """Some time without a kill, then one. A program that is new to the agent gives the parse
        child work."""
        at = time.monotonic() + self.chance.uniform(0.2, 3.5)
        while time.monotonic() < at:
            self.come_back()
            time.sleep(0.01)
        who = self.first.pop() if self.first else self.chance.choice(["agent", "child", "hub"])
        self.n_copies += 1
        self.place.processes.append(self.container.run(self.place.copy_of_burner(self.n_copies),
                                                       "0.2"))
        if who == "child":
            time.sleep(self.chance.uniform(0, 0.3))
        self.kill(who)

    def run(self):
        while time.monotonic() < self.end:
            self.step()
        self.come_back(all_of_them=True)


def last_stored(place):
    try:
        with place.store() as db:
            return db.execute("SELECT MAX(time) FROM profiles WHERE n>0").fetchone()[0] or 0
    except Exception:  # pylint: disable=broad-except  # not there yet
        return 0


def play(place, seed, seconds, objects):
    """The whole run; at its end all processes have ended properly. Returns the killer."""
    agent, hub = place.roles["agent"], place.roles["hub"]
    hub.start()
    place.wait_hub()
    place.container("burner")
    # all events, so that there are all kinds of programs and links
    place.target("all", "burner", onCpu={}, offCpu={}, memAlloc={}, memInuse={})
    with open(f"{place.dir}/burner.log", "w") as log:
        # at a high priority, so that it uses CPU in each window
        burner = f"{os.environ.get('BUILD', 'build')}/crash/burner"
        place.processes.append(place.containers[0].run("nice", "-n", "-10", burner, stdout=log))
    agent.start()
    until("the first window is stored", lambda: last_stored(place))
    objects.look()
    killer = Killer(place, seed, seconds)
    killer.run()
    calm = time.time()
    until("two windows after the last kill are stored",
          lambda: last_stored(place) > calm + 2 * WINDOW_S, 240)
    killer.calm_s = last_stored(place)
    objects.look()
    assert agent.is_up() and hub.is_up(), "a role has ended by itself"
    until("the spool is empty", lambda: not place.spooled(), 240)
    assert agent.end() == 0, "the agent's end"
    assert hub.end() == 0, "the hub's end"
    return killer


def check_left(place, killer, objects):
    until("no BPF object without a process", lambda: not objects.left(), 60)
    unseen = {"pf_oncpu", "pf_switch", "pf_mem_free"} - objects.prog_names
    assert not unseen, f"no BPF program {unseen} was seen while an agent ran: nothing is tested"
    assert not killer.stayed, f"parse children without an agent: {killer.stayed}"
    strangers = place.strangers()
    assert not strangers, f"files left behind: {strangers}"


def test(seed, seconds):
    objects = kernel.Objects()
    print(f"seed {seed}, {seconds} s of kills")
    with Place(window=f"{WINDOW_S}s") as place:
        killer = play(place, seed, seconds, objects)
        print("killed: " + ", ".join(f"{who} {n} times" for who, n in killer.n.items()), flush=True)
        check_left(place, killer, objects)
        print(store.check(place, WINDOW_S, killer.calm_s, killer.lives))


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    p.add_argument("--seconds", type=int, default=360 * WINDOW_S if os.environ.get("LONG") else 20)
    options = p.parse_args()
    return one_test(f"killed at every moment, seed {options.seed}",
                    lambda: test(options.seed, options.seconds), options.seconds + 1200)


if __name__ == "__main__":
    sys.exit(main())
