# SPDX-License-Identifier: Apache-2.0
"""podflame's BPF programs, links and maps in the kernel, and which of them no process holds any
more."""
import glob
import json
import re
import subprocess


def listing(kind):
    done = subprocess.run(["bpftool", "-j", kind, "list"], capture_output=True, text=True,
                          check=False)
    found = json.loads(done.stdout or "[]")
    return {o["id"]: o for o in found if "id" in o} if isinstance(found, list) else {}


def held_by_processes():
    """Ids in the open files of all processes: {"prog": ids, "map": ids, "link": ids}."""
    held = {"prog": set(), "map": set(), "link": set()}
    for path in glob.glob("/proc/[0-9]*/fdinfo/*"):
        try:
            with open(path) as f:
                text = f.read(600)
        except OSError:
            continue
        for kind, number in re.findall(r"^(prog|map|link)_id:\s+(\d+)", text, re.M):
            held[kind].add(int(number))
    return held


class Objects:
    """The objects that exist before, so that new ones can be recognised. Objects that others or
    living processes hold do not count."""

    def __init__(self):
        self.before = {k: set(listing(k)) for k in ("prog", "map", "link")}
        self.map_names, self.prog_names = set(), set()

    def look(self):
        """Remembers the names of an agent's programs and maps, while it runs."""
        maps = listing("map")
        for i, p in listing("prog").items():
            if i not in self.before["prog"] and p.get("name", "").startswith("pf_"):
                self.prog_names.add(p["name"])
                self.map_names |= {maps[m].get("name", "") for m in p.get("map_ids", [])
                                   if m in maps}

    def left(self):
        """[(kind, id, name)] of the objects that no process holds, neither by a descriptor nor by a
        link or a program."""
        progs, maps, links = (listing(k) for k in ("prog", "map", "link"))
        held = held_by_processes()
        held["prog"] |= {links[i].get("prog_id") for i in held["link"] if i in links}
        for i in held["prog"]:
            held["map"] |= set(progs.get(i, {}).get("map_ids", []))
        ours = {i for i, p in progs.items() if p.get("name", "").startswith("pf_")}
        left = [("prog", i, progs[i]["name"]) for i in ours]
        left += [("map", i, m["name"]) for i, m in maps.items() if m.get("name") in self.map_names
                 and m.get("name")]
        left += [("link", i, progs[k["prog_id"]]["name"]) for i, k in links.items()
                 if k.get("prog_id") in ours]
        return [x for x in left if x[1] not in self.before[x[0]] and x[1] not in held[x[0]]]
