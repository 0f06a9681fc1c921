#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""forks.py: a pod that does nothing but start processes that end within milliseconds. Once the
agent knows the programs, at least 99 % of the samples have their whole stack and nothing is lost,
and neither the agent's memory nor the number of processes in its tables grows with the number of
processes that there were. LONG=1: 60,000 processes, otherwise 10,000. long.sh runs it, as root."""
import os
import re
import sys
import urllib.request

from beside import memory_now
from roles import Place, free_port, one_test, until

# processes before the first look and between two looks
SETTLE_N, N = 3000, 60000 if os.environ.get("LONG") else 10000
# A turn starts six processes: openssl, two shells, sed, date and grep.
EACH = 6
LOOP = """n=0
while :; do
    openssl version; x=$(echo $n | sed s/1/2/); date +%s | grep -c 9
    n=$((n + 1)); echo $n >{count}
done"""
GOAL, MORE_MB = 0.99, 8
# Counters of what an agent loses, or forgets though it might need it again. It is no loss that a
# process ends before it is read.
LOSSES = re.compile(r"(?m)^(podflame_\w*(?:dropped|evicted|refused|skipped)\w*_total"
                    r"(?!\{reason=\"process_gone\"\})(?:\{[^}]*\})?) (\S+)$")
# Entries in the kernel's tables.
TABLES = ("unwind_processes", "unwind_mappings")


class Look:
    """What the agent says of itself, and its memory."""

    def __init__(self, place, port, n):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            self.text = answer.read().decode()
        self.n = n
        self.mb = memory_now(place.roles["agent"].process.pid)[0] / 1e6
        self.tables = {name: self.sum(name) for name in TABLES}
        self.losses = {name: float(x) for name, x in LOSSES.findall(self.text) if float(x)}

    def sum(self, name):
        found = re.findall(rf"(?m)^podflame_{name}(?:\{{[^}}]*\}})? (\S+)$", self.text)
        return sum(map(float, found))


def started(path):
    """How many processes were started. 0: none, or the file is just being written."""
    try:
        with open(path, encoding="utf-8") as f:
            return int(f.read() or 0) * EACH
    except FileNotFoundError:
        return 0


def look_after(place, port, count, least):
    def enough():
        n = started(count)
        return n if n >= least else 0
    return Look(place, port, until(f"{least} processes were started", enough, 3000))


def play(place, port):
    count = f"{place.dir}/count"
    place.roles["hub"].start()
    place.wait_hub()
    place.target("forks", "forks")
    container = place.container("forks")
    place.roles["agent"].start()
    # a low priority, as busy.py has it: the agent gets the CPU that it needs
    with open(f"{place.dir}/forks.log", "wb") as log:
        place.processes.append(container.run("nice", "-n", "15", "sh", "-c",
                                             LOOP.format(count=count), stdout=log, stderr=log))
    first = look_after(place, port, count, SETTLE_N)
    last = look_after(place, port, count, first.n + N)
    assert place.roles["agent"].is_up(), "the agent has ended by itself"
    return first, last


def check(first, last):
    samples = last.sum("stacks_total") - first.sum("stacks_total")
    cut = last.sum("stacks_unfinished_total") - first.sum("stacks_unfinished_total")
    lost = {k: n - first.losses.get(k, 0) for k, n in last.losses.items()
            if n > first.losses.get(k, 0)}
    print(f"{last.n - first.n} processes, {samples:.0f} samples, {1 - cut / samples:.2%} whole; "
          f"memory {first.mb:.1f} -> {last.mb:.1f} MB; tables {first.tables} -> {last.tables}; "
          f"lost: {lost}")
    assert samples > 100, "too few samples"
    assert cut <= (1 - GOAL) * samples, f"{cut:.0f} of {samples:.0f} stacks are not whole"
    assert not lost, lost
    assert last.mb < first.mb + MORE_MB, "the memory grows"
    for name, n in last.tables.items():
        assert n < first.tables[name] + SETTLE_N, f"the table {name} grows"


def test():
    port = free_port()
    with Place(agent=f"health:\n  address: 127.0.0.1\n  port: {port}\n") as place:
        check(*play(place, port))


def main():
    if os.geteuid() != 0:
        print("skip: forks: only root may\n0 passed, 0 failed, 1 skipped")
        return 0
    return one_test("a pod that forks all day", test)


if __name__ == "__main__":
    sys.exit(main())
