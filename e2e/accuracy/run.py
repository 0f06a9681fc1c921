#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [--all] [--only TEXT] [--report DIR]: are podflame's stacks whole, and its shares right?

Part c: programs that know their own answer (programs.py, known.py). Part b: stopped processes beside eu-stack (stopped.py)
and, Python's, beside py-spy (pyspy.py). Part d: JVMs beside async-profiler (beside.py).
Part e: programs that know how long they wait and what they allocate (waits.py).
A few of each, for `make test`, or --all. --report DIR: writes DIR/accuracy.md and DIR/accuracy.json; what is not run now stays
there as it was.
"""
import argparse
import sys
import traceback

import beside
import known
import programs
import pyspy
import report
import stopped
import waits


def run_known(options):
    seconds, least = (1.3, 1200) if options.sample else (5.5, 5000)
    results, skips = [], []
    for p in programs.PROGRAMS:
        title = f"{p.language}: {p.name}"
        if options.only not in title or (options.sample and not p.sample):
            continue
        try:
            r = known.test(p, options.seconds or seconds, 0 if options.seconds else least)
        except known.Skip as why:
            skips.append((title, str(why)))
            print(f"skip: {title}: {why}", flush=True)
            continue
        except Exception as why:        # one that hangs or crashes is not the end of the others
            traceback.print_exc()
            r = {"name": p.name, "language": p.language, "wrong": [f"{type(why).__name__}: {why}"]}
        results.append(r)
        print(f"{'FAILED' if r['wrong'] else 'ok    '} {title}: {r.get('samples', 0)} samples, "
              f"{r.get('finished', 0):.4f} finished", flush=True)
        for w in r["wrong"]:
            print(f"         {w}")
        for s in r.get("shares", []) if r["wrong"] or options.verbose else []:
            print(f"         {s}")
    return results, skips


def run_stopped(options):
    results, skips = [], []
    for by, t in [(stopped, t) for t in stopped.TARGETS] + [(pyspy, t) for t in pyspy.TARGETS]:
        title = f"stopped: {t.name}"
        if options.only not in title or (options.sample and not t.sample):
            continue
        try:
            r = by.test(t, 4 if options.sample else 30)
        except known.Skip as why:
            skips.append((title, str(why)))
            print(f"skip: {title}: {why}", flush=True)
            continue
        except Exception as why:
            traceback.print_exc()
            r = {"name": t.name, "language": t.language, "wrong": [f"{type(why).__name__}: {why}"]}
        results.append(r)
        print(f"{'FAILED' if r['wrong'] else 'ok    '} {title}: " + ", ".join(
            f"{r.get(k, 0)} {k}" for k in ("moments", "threads", "frames", "equal", "ours longer", "theirs longer", "different")),
            flush=True)
        for w in r["wrong"]:
            print(f"         {w}")
        for k, d in r.get("differences", {}).items() if options.verbose else []:
            print(f"         {d['n']} {k}; gdb: {d['gdb']}\n           ours {d['ours']}\n           theirs {d['theirs']}")
    return results, skips


def run_beside(options):
    results, skips = [], []
    for t in beside.TARGETS:
        title = f"beside: {t.name}"
        if options.only not in title or (options.sample and not t.sample):
            continue
        try:
            r = beside.test(t, 5.5)
        except known.Skip as why:
            skips.append((title, str(why)))
            print(f"skip: {title}: {why}", flush=True)
            continue
        except Exception as why:
            traceback.print_exc()
            r = {"name": t.name, "language": t.language, "wrong": [f"{type(why).__name__}: {why}"]}
        results.append(r)
        print(f"{'FAILED' if r['wrong'] else 'ok    '} {title}: " + ", ".join(
            f"{k}: {r.get(k)}" for k in ("samples", "their samples", "methods", "overlap")), flush=True)
        for w in r["wrong"]:
            print(f"         {w}")
    return results, skips


def run_waits(options):
    results, skips = [], []
    for t in waits.TARGETS:
        title = f"waits: {t.language}"
        if options.only not in title or (options.sample and not t.sample):
            continue
        try:
            r = waits.test(t, 6 if options.sample else 30)
        except known.Skip as why:
            skips.append((title, str(why)))
            print(f"skip: {title}: {why}", flush=True)
            continue
        except Exception as why:
            traceback.print_exc()
            r = {"name": "waits and memory", "language": t.language, "rows": [], "wrong": [f"{type(why).__name__}: {why}"]}
        results.append(r)
        print(f"{'FAILED' if r['wrong'] else 'ok    '} {title}: " + ", ".join(
            f"{x['event']} {x['name']} {x['seen']} of {x['told']}" for x in r["rows"]), flush=True)
        for w in r["wrong"]:
            print(f"         {w}")
    return results, skips


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--all", action="store_true")
    a.add_argument("--only", default="", help="programs whose title has this in it")
    a.add_argument("--part", choices=["b", "c", "d", "e"])
    a.add_argument("--seconds", type=float, help="of CPU time a program, instead of what 5,000 samples need")
    a.add_argument("--report", metavar="DIR")
    a.add_argument("-v", "--verbose", action="store_true")
    options = a.parse_args()
    options.sample = not (options.all or options.only)
    results, skips, stopped_results, beside_results, waits_results = [], [], [], [], []
    if options.part in (None, "c"):
        results, skips = run_known(options)
    if options.part in (None, "b"):
        stopped_results, more = run_stopped(options)
        skips += more
    if options.part in (None, "d"):
        beside_results, more = run_beside(options)
        skips += more
    if options.part in (None, "e"):
        waits_results, more = run_waits(options)
        skips += more
    if options.report:
        report.write(options.report, results, stopped_results, beside_results, waits_results, skips, not options.all)
    every = results + stopped_results + beside_results + waits_results
    failed = sum(1 for r in every if r["wrong"])
    print(f"{len(every) - failed} passed, {failed} failed, {len(skips)} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
