#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""crowd.py: a node with 250 pods and 2,000 processes that use a little CPU each; the processes of
each pod have a name of their own. A target selects every second pod. One half exists before the
agent starts, one half comes after. No sample may have another pod's or container's name, no pod
that is not selected may have a sample, and every selected pod must have one. It prints what the
agent took meanwhile. long.sh runs it, as root."""
import os
import shutil
import sys
import time

from busy import bpf_stats, memory, stopped
from roles import BUILD, Place, free_port, one_test, until

N_PODS, EACH = 250, 8
MEASURE_S = 20
SERIES = """SELECT app.s, series.pid,
 (SELECT v.s FROM tags t JOIN strings k ON k.id=t.key JOIN strings v ON v.id=t.value
  WHERE t.tagset=series.tagset AND k.s='pod'),
 (SELECT v.s FROM tags t JOIN strings k ON k.id=t.key JOIN strings v ON v.id=t.value
  WHERE t.tagset=series.tagset AND k.s='container_id')
 FROM series JOIN strings app ON app.id=series.app
 WHERE series.id IN (SELECT series FROM profiles WHERE event=0 AND n>0)"""


def name_of(i):
    return f"w{i:03d}"


def series(place):
    """[(name, PID, pod, container)] of the processes that have stored samples."""
    with place.store() as db:
        return db.execute(SERIES).fetchall()


def n_seen(place):
    """How many pods and how many processes have samples."""
    found = [s for s in series(place) if s[0].startswith("w")]
    return len({pod for _, _, pod, _ in found}), len({pid for _, pid, _, _ in found})


def begin(place, i):
    if i == 0:
        shutil.copy(f"{BUILD}/crash/crowd", f"{place.dir}/copies/{name_of(0)}")
    else:
        os.link(f"{place.dir}/copies/{name_of(0)}", f"{place.dir}/copies/{name_of(i)}")
    place.processes.append(place.containers[i].run(f"{place.dir}/copies/{name_of(i)}", str(EACH)))


def play(place):
    """Returns the agent's share of a CPU and its bytes."""
    agent, hub = place.roles["agent"], place.roles["hub"]
    hub.start()
    place.wait_hub()
    for i in range(N_PODS):
        place.container(f"pod{i}", {"app": "wanted" if i % 2 == 0 else "unwanted"})
    place.target("all", "wanted")
    for i in range(N_PODS // 2):
        begin(place, i)
    agent.start()
    for i in range(N_PODS // 2, N_PODS):
        begin(place, i)
    wanted = N_PODS // 2, N_PODS // 2 * EACH // 2
    until(f"each of {wanted[0]} pods has a sample, {wanted[1]} processes have",
          lambda: all(map(int.__ge__, n_seen(place), wanted)), 1200)
    pids = stopped.below(agent.process.pid)
    before, at = sum(map(bpf_stats.cpu_of, pids)), time.monotonic()
    time.sleep(MEASURE_S)
    share = (sum(map(bpf_stats.cpu_of, pids)) - before) / (time.monotonic() - at)
    took = share, memory(pids)[0]
    until("the spool is empty", lambda: not place.spooled(), 240)
    assert agent.is_up(), "the agent has ended by itself"
    assert agent.end() == 0, "the agent's end"
    assert hub.end() == 0, "the hub's end"
    return took


def check(place, took):
    found, losses = series(place), []
    number = {c.id: i for i, c in enumerate(place.containers)}
    for name, pid, pod, container in found:
        i = number.get(container)
        who = f"{name} ({pid}) of pod {pod}, container {container}"
        assert i is not None and pod == f"pod{i}", \
            f"a sample of no container or of another one: {who}"
        assert i % 2 == 0, f"a sample of a pod that is not selected: {who}"
        # "sh" is the shell that enters the cgroup and execs the program
        assert name in (name_of(i), "sh"), f"a sample under the name of another process: {who}"
    with place.store() as db:
        losses = db.execute("SELECT r.s, SUM(l.n), SUM(l.time_ns) FROM losses l JOIN strings r ON "
                            "r.id=l.reason GROUP BY 1").fetchall()
        samples, = db.execute("SELECT SUM(n) FROM profiles WHERE event=0").fetchone()
    return (f"{samples} samples of {n_seen(place)[1]} of {N_PODS * EACH} processes in "
            f"{N_PODS // 2} of {N_PODS} pods; the agent took {took[0] * 100:.1f} % of a CPU and "
            f"{took[1] / 1e6:.1f} MB (load {os.getloadavg()[0]:.0f}); losses: {losses}")


def test():
    with Place(agent=f"health:\n  address: 127.0.0.1\n  port: {free_port()}\n") as place:
        print(check(place, play(place)))


def main():
    if os.geteuid() != 0:
        print("skip: crowd: only root may\n0 passed, 0 failed, 1 skipped")
        return 0
    return one_test("250 pods, 2,000 processes", test)


if __name__ == "__main__":
    sys.exit(main())
