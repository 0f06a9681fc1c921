#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""start.py: how long an agent needs from its start until the kernel's filter has all of 250
containers of 20 targets, with a process in each. Prints one JSON object a line. `make bench` calls
it, as root."""
import json
import os
import statistics
import subprocess
import sys
import time

import kernel
from roles import Place, free_port, until

N_TARGETS, N_CONTAINERS, ROUNDS = 20, 250, 3


def n_entries(number):
    out = subprocess.run(["bpftool", "-j", "map", "dump", "id", str(number)], capture_output=True,
                         text=True, check=False).stdout
    try:
        return len(json.loads(out or "[]"))
    except ValueError:
        return 0


def n_filtered(before):
    """How many cgroups the filter of the last started agent has: of containers and of pods."""
    mine = [i for i, m in kernel.listing("map").items() if m.get("name") == "filter_cgroups"
            and i not in before]
    # the filter of another test that runs beside this one has few
    return max((n_entries(i) for i in mine), default=0)


def cpu_ms(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(") ", 1)[1].split()
    return sum(map(int, fields[11:15])) * 1000 // os.sysconf("SC_CLK_TCK")


def one_round(place):
    before = set(kernel.listing("map"))
    agent = place.roles["agent"]
    begin = time.monotonic()
    agent.start()
    until("all containers are selected", lambda: n_filtered(before) >= 2 * N_CONTAINERS, 120)
    took = time.monotonic() - begin
    cpu = cpu_ms(agent.process.pid)
    agent.kill()
    return took, cpu / 1000


def tell(name, values, unit, goal):
    what = (f"{N_TARGETS} targets, {N_CONTAINERS} containers with a process each, "
            f"load {os.getloadavg()[0]:.1f}")
    print(json.dumps({"name": name, "value": round(statistics.median(values), 3),
                      "least": round(min(values), 3), "most": round(max(values), 3),
                      "rounds": len(values), "unit": unit, "goal": goal, "compared_with": what}),
          flush=True)


def main():
    if os.geteuid() != 0:
        print("start.py: skip: agent start: only root may", file=sys.stderr)
        return 0
    with Place(window="10s",
               agent=f"health:\n  address: 127.0.0.1\n  port: {free_port()}\n") as place:
        for i in range(N_CONTAINERS):
            container = place.container(f"pod{i}", {"app": f"app{i % N_TARGETS}"})
            place.processes.append(container.run("sleep", "3600"))
        for i in range(N_TARGETS):
            place.target(f"target{i}", f"app{i}")
        wall, cpu = zip(*(one_round(place) for _ in range(ROUNDS)))
    tell("agent.start_250", wall, "s", "<= 5")
    tell("agent.start_250.cpu", cpu, "CPU s", "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
