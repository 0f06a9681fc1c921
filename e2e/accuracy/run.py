#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [--all] [--only TEXT] [--report DIR]: are podflame's stacks whole, and its shares right?

Part b: stopped processes beside eu-stack (stopped.py); Python's beside py-spy (pyspy.py).
Part c: programs that know their own answer (programs.py, known.py).
Part d: JVMs beside async-profiler (beside.py).
Part e: programs that know how long they wait and what they allocate (waits.py).
Part f: programs that know it to the byte, beside other tools that look at the same process
(exact.py, oracles.py).
Part g: programs of the distribution, beside perf (real.py, real_programs.py).

Without --all it runs a few of each, for `make test`. `make accuracy` runs all, as root. --report
writes DIR/accuracy.md and DIR/accuracy.json, which keep the results of programs that did not run.
"""
import argparse
import sys
import traceback
from dataclasses import dataclass
from typing import Callable

import beside
import exact
import known
import limit
import programs
import pyspy
import real
import report
import stopped
import waits


@dataclass
class Part:
    """targets() gives (the module that tests it, target); test(module, target, options) returns a
    result, or (result, skips)."""

    letter: str
    name: str                       # in the report
    title: Callable
    targets: Callable
    test: Callable
    told: Callable                  # a result in one line
    details: Callable = lambda r: []


def counts(r, names):
    return ", ".join(f"{r.get(k, 0)} {k}" for k in names)


def differences(r):
    for k, d in r.get("differences", {}).items():
        yield (f"{d['n']} {k}; gdb: {d['gdb']}\n"
               f"           ours {d['ours']}\n           theirs {d['theirs']}")


def known_test(by, p, options):
    seconds, least = (1.3, 1200) if options.sample else (5.5, 5000)
    return by.test(p, options.seconds or seconds, 0 if options.seconds else least)


PARTS = [
    Part("c", "known", lambda p: f"{p.language}: {p.name}",
         lambda: [(known, p) for p in programs.PROGRAMS], known_test,
         lambda r: f"{r.get('samples', 0)} samples, {r.get('finished', 0):.4f} finished",
         lambda r: r.get("shares", [])),
    Part("b", "stopped", lambda t: f"stopped: {t.name}",
         lambda: [(stopped, t) for t in stopped.TARGETS] + [(pyspy, t) for t in pyspy.TARGETS],
         lambda by, t, options: by.test(t, 4 if options.sample else 30),
         lambda r: counts(r, ("moments", "threads", "frames", "equal", "ours longer",
                              "theirs longer", "different")), differences),
    Part("d", "beside", lambda t: f"beside: {t.name}",
         lambda: [(beside, t) for t in beside.TARGETS],
         lambda by, t, options: by.test(t, 5.5),
         lambda r: counts(r, ("samples", "their samples", "methods", "overlap"))),
    Part("e", "waits", lambda t: f"waits: {t.language}",
         lambda: [(waits, t) for t in waits.TARGETS],
         lambda by, t, options: by.test(t, 6 if options.sample else 30),
         lambda r: ", ".join(f"{x['event']} {x['name']} {x['seen']} of {x['told']}"
                             for x in r.get("rows", []))),
    Part("f", "exact", lambda t: f"exact: {t.language}: {t.name}",
         lambda: [(exact, t) for t in exact.TARGETS],
         lambda by, t, options: by.test(t, options.rounds or (20 if options.sample else 60),
                                        options.sample), exact.told_in_short,
         lambda r: r.get("rows", [])),
    Part("g", "real", lambda p: f"real: {p.name}", lambda: [(real, p) for p in real.PROGRAMS],
         lambda by, p, options: by.test(p, options.seconds or (4 if options.sample else 6),
                                        not options.sample),
         real.told, real.details),
]


def run(part, options):
    """([results], [(what was skipped, why)])"""
    results, skips = [], []

    def skip(what, why):
        skips.append((what, str(why)))
        print(f"skip: {what}: {why}", flush=True)

    for by, t in part.targets():
        title = part.title(t)
        if options.only not in title or (options.sample and not t.sample):
            continue
        try:
            with limit.within(300 if options.sample else 1800, title):
                r = part.test(by, t, options)
        except known.Skip as why:
            skip(title, why)
            continue
        except Exception as why:        # the others run even if one hangs or crashes
            traceback.print_exc()
            r = {"name": getattr(t, "name", part.name), "language": t.language, "rows": [],
                 "wrong": [f"{type(why).__name__}: {why}"]}
        for what, why in r.pop("skips", []):
            skip(what, why)
        results.append(r)
        print(f"{'FAILED' if r['wrong'] else 'ok    '} {title}: {part.told(r)}", flush=True)
        for w in r["wrong"]:
            print(f"         {w}")
        for x in part.details(r) if r["wrong"] or options.verbose else []:
            print(f"         {x}")
    return results, skips


def main():
    a = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--all", action="store_true")
    a.add_argument("--only", default="", help="programs whose title has this in it")
    a.add_argument("--part", choices=[p.letter for p in PARTS])
    a.add_argument("--seconds", type=float,
                   help="of CPU time a program, instead of what 5,000 samples need")
    a.add_argument("--rounds", type=int, help="of a program of part f")
    a.add_argument("--report", metavar="DIR")
    a.add_argument("-v", "--verbose", action="store_true")
    options = a.parse_args()
    options.sample = not (options.all or options.only)
    results, skips = {}, []
    for part in PARTS:
        results[part.name], more = run(part,
                                       options) if options.part in (None, part.letter) else ([], [])
        skips += more
    if options.report:
        report.write(options.report, results, skips,
                     not options.all or options.part or options.only)
    every = sum(results.values(), [])
    failed = sum(1 for r in every if r["wrong"])
    print(f"{len(every) - failed} passed, {failed} failed, {len(skips)} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
