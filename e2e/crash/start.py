#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""start.py: how long an agent needs from its start until all of 250 containers of 20 targets are in the kernel's filter, each with a
process in it. One JSON object a line."""
import json
import os
import subprocess
import sys
import time

import kernel
from roles import Place, until

N_TARGETS, N_CONTAINERS, ROUNDS = 20, 250, 3


def n_entries(number):
    out = subprocess.run(["bpftool", "-j", "map", "dump", "id", str(number)], capture_output=True, text=True, check=False).stdout
    try:
        return len(json.loads(out or "[]"))
    except ValueError:
        return 0


def n_filtered(before):
    """Cgroups in the filter of the agent that was started last: of containers, and of pods."""
    mine = [i for i, m in kernel.listing("map").items() if m.get("name") == "filter_cgroups" and i not in before]
    return max((n_entries(i) for i in mine), default=0)  # another's, of a test beside this one, has few


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
    what = f"{N_TARGETS} targets, {N_CONTAINERS} containers with a process each, load {os.getloadavg()[0]:.1f}; goal: under 5"
    return [{"name": "agent.start", "value": round(took, 2), "unit": "s", "compared_with": what},
            {"name": "agent.start.cpu", "value": cpu / 1000, "unit": "CPU s", "compared_with": what}]


def main():
    if os.geteuid() != 0:
        print("skip: agent start: only root may")
        return 0
    with Place(window="10s") as place:
        for i in range(N_CONTAINERS):
            place.processes.append(place.container(f"pod{i}", {"app": f"app{i % N_TARGETS}"}).run("sleep", "3600"))
        for i in range(N_TARGETS):
            place.target(f"target{i}", f"app{i}")
        for _ in range(ROUNDS):
            for line in one_round(place):
                print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
