#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""beside.py: what an agent takes for an innocent process, alone and beside an attacker in another
namespace. The attacker's processes have a new stack in nearly every sample, wait and allocation,
and each of them executes a file that is new to the agent. Prints one JSON object a line. `make
bench` calls it, as root."""
import contextlib
import os
import subprocess
import sys
import time
from collections import defaultdict

from busy import MB, bpf_stats, memory, perf, stopped
from roles import BUILD, Place, free_port, until

ROUNDS = int(os.environ.get("ROUNDS", "3"))
# seconds: before it is measured, for which it is measured, and of a window of profiles
SETTLE_S, MEASURE_S, WINDOW_S = 8, 20, 2
HZ = 99
N_ATTACKERS = 3
STORED = """SELECT SUM(n) FROM profiles WHERE event=0 AND time BETWEEN ? AND ?
 AND series IN (SELECT series.id FROM series
 JOIN tags t ON t.tagset=series.tagset JOIN strings k ON k.id=t.key JOIN strings v ON v.id=t.value
 WHERE k.s='pod' AND v.s='victim')"""
# Bytes at its end make the file another one; the program is the same.
AGAIN = ("while :; do cp {program} {copy}; head -c 8 /dev/urandom >>{copy}; {copy} 1; rm {copy}; "
         "done")


def cpu(pid):
    """CPU seconds of the agent, with its children, also those that have ended."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        used = sum(map(int, f.read().rsplit(") ", 1)[1].split()[13:15])) / os.sysconf("SC_CLK_TCK")
    for p in stopped.below(pid):
        with contextlib.suppress(OSError):      # a child that has just ended
            used += bpf_stats.cpu_of(p)
    return used


def memory_now(pid):
    """RSS of the agent and its children, and of that what the children have that is no file's page,
    in bytes. Parse children come and go."""
    while True:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pids = stopped.below(pid)
            return memory(pids)[0], memory([p for p in pids if p != pid])[1]


def stored(place, begin=0, end=1 << 40):
    """The victim's samples of these seconds of wall time that the hub has stored."""
    with place.store() as db:
        return db.execute(STORED, (begin, end - 1)).fetchone()[0] or 0


def attack(place, containers):
    """Starts the attacker. Its low priority leaves the victim and the agent their CPU time, so that
    what is measured is the agent."""
    begun = []
    for i, c in enumerate(containers):
        loop = AGAIN.format(program=f"{place.dir}/attacker",
                            copy=f"{place.dir}/copies/hostile{i}")
        begun.append(c.run("nice", "-n", "15", "sh", "-c", loop))
    place.processes += begun
    return begun


def measure(place, victim, found, name):
    """One life of the agent. victim: the process."""
    role = place.roles["agent"]
    before = stored(place)
    role.start()
    until("the victim has samples in the store", lambda: stored(place) > before)
    time.sleep(SETTLE_S)
    def at_a_window():
        time.sleep(WINDOW_S - time.time() % WINDOW_S)
        return bpf_stats.cpu_of(victim.pid), cpu(role.process.pid), time.time()
    began = at_a_window()
    time.sleep(MEASURE_S - WINDOW_S / 2)
    ended = at_a_window()
    burnt, used, seconds = (a - b for a, b in zip(ended, began))
    rss, children = memory_now(role.process.pid)
    until("the hub has the next window", lambda: stored(place, int(ended[2])) > 0)
    role.end()
    n = stored(place, int(began[2]), int(ended[2]))
    found["cpu", name].append(100 * used / seconds)
    found["samples", name].append(100 * n / (HZ * burnt))
    found["per_cpu", name].append(n / used)
    found["rss", name].append(rss / MB)
    found["children", name].append(children / MB)


def tell(found):
    for name, beside in (("alone", "nobody"), ("attacked", f"an attacker's {N_ATTACKERS} pods")):
        what = f"beside {beside}; of another namespace, on-cpu, off-cpu and mem-alloc"
        perf.report(f"beside.samples.{name}", found["samples", name], "percent",
                    f"of the victim's CPU time at {HZ} Hz that reaches the hub; {what}")
        perf.report(f"beside.per_cpu.{name}", found["per_cpu", name], "samples/CPU s",
                    f"the victim's, by CPU time of the agent and its children; {what}")
        perf.report(f"beside.cpu.{name}", found["cpu", name], "percent of a CPU",
                    f"the agent and its children; {what}")
        perf.report(f"beside.rss.{name}", found["rss", name], "MB",
                    f"the agent and its children; {what}")
        perf.report(f"beside.children.{name}", found["children", name], "MB",
                    f"of it, what the children have that is no file's page; {what}")


def main():
    if os.geteuid() != 0:
        print("beside.py: skip: only root may", file=sys.stderr)
        return
    found = defaultdict(list)
    health = f"health:\n  address: 127.0.0.1\n  port: {free_port()}\n"
    with Place(window=f"{WINDOW_S}s", agent=health) as place:
        subprocess.run(["gcc", "-O1", "-o", f"{place.dir}/attacker",
                        os.path.join(os.path.dirname(os.path.abspath(__file__)), "attacker.c")],
                       check=True)
        place.roles["hub"].start()
        place.wait_hub()
        place.namespace("hostile")
        place.target("victim", "victim")
        place.target("hostile", "hostile", "hostile", onCpu={}, offCpu={}, memAlloc={})
        containers = [place.container(f"hostile{i}", {"app": "hostile"}, "hostile")
                      for i in range(N_ATTACKERS)]
        victim = place.container("victim").run(f"{BUILD}/crash/burner", stdout=subprocess.DEVNULL)
        place.processes.append(victim)
        for _ in range(ROUNDS):
            measure(place, victim, found, "alone")
            begun = attack(place, containers)
            measure(place, victim, found, "attacked")
            for p in begun:
                stopped.end(p)
        tell(found)


if __name__ == "__main__":
    main()
