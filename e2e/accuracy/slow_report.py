# SPDX-License-Identifier: Apache-2.0
"""Writes docs/events-cost.md from what slowdown.py measured."""
import os

import report
from slow_peers import LIMIT

INTRO = """# What profiling waits and memory costs programs

Who needs this page: people who want to profile off-cpu, mem-alloc or mem-inuse in production.
`make events-cost` wrote it on {date}; it is not edited.
Kernel {kernel}, {cpus} CPUs, {system}; load average {began} when it began, {ended} when it
ended{quiet}.

The numbers are the CPU time of a unit of work under each profiler over that without a profiler:
medians of {rounds} pairs, the least and the most. Storms do only what is profiled, so no program
gets slower than they. Except for the storm of switches and redis, a twin that was not profiled ran
on the same CPU at the same time, and the machine's speed at that moment is taken out. *Nobody*: the
difference between before and after a profiler; a smaller number cannot be told from zero.
`podflame record` has no limit: its rows are what the probes themselves cost. *Limit*: what a pod
gets, an agent with `limits.overheadPercent` {limit}, if its target does not say otherwise;
{seconds} s, from 4 s after its first decision on, once. The text beside says what the program
paid until then.
Others: bcc's libbpf-tools 0.31 (Debian trixie), async-profiler 4.0, memray 1.20.
"""
ENDING = """
## What a number here does not say

What podflame itself takes meanwhile, and what programs pay on other machines: a probe's trap is
most of the cost of a hit, and differs by a factor of two. What a hit, a switch or a walk costs
apart from its program: `probe_bench`, `memory_bench` (`make bench`), [events](events.md).
"""


def load():
    return "%.1f" % os.getloadavg()[0]


def signed(x):
    return f"{x:+.2f}" if abs(x) < 10 else f"{x:+.0f}"


def ns(x):
    return f"{x:+.1f} ns" if abs(x) < 100 else f"{x / 1000:+.2f} us"


def program_tables(rows):
    for name in dict.fromkeys(r["program"] for r in rows):
        of = [r for r in rows if r["program"] == name]
        some = next((r for r in of if r["profiler"] != "nobody"), None)
        if not some:
            continue
        yield f"\n## {name.replace('_', ' ')}\n"
        if some["remark"]:
            yield f"{some['remark'][0].upper()}{some['remark'][1:]}.\n"
        yield f"Unit: {some['unit']}, {some['alone_ns']:.4g} ns.\n"
        yield "| profiler | slower, % | least to most | a unit | |"
        yield "| --- | ---: | ---: | ---: | --- |"
        noise = next((r["percent"] for r in of if r["profiler"] == "nobody"), 0)
        for r in of:
            unsure = " (noise)" if abs(r["percent"]) <= noise and r["profiler"] != "nobody" else ""
            more = ns(r["more_ns"]) if "more_ns" in r else ""
            yield (f"| {r['profiler']} | {signed(r['percent'])}{unsure} | {signed(r['least'])} to "
                   f"{signed(r['most'])} | {more} | {r.get('decided', '')} |")


def whole_table(whole):
    if whole:
        yield "\n## Waits with their whole stack\n"
        yield ("The part of the time that a process waited whose stack begins in `main` or at a "
               "thread's start. Both\nprofilers record the same process at the same time. Debian "
               "builds redis without frame pointers and\nPostgreSQL with them. Its C library has "
               "none, so a profiler that uses frame pointers lacks the\ncaller of each system call "
               "even then.\n")
        yield "| process | profiler | whole, % of the time | seconds |"
        yield "| --- | --- | ---: | ---: |"
    for name, who, percent, seconds in whole:
        yield f"| {name.removesuffix('_waits')} | {who} | {percent:.1f} | {seconds:.1f} |"


GOALS = [       # (program, profiler, key, at most, what)
    ("malloc_storm", "mem-alloc", "more_ns", 1000, "mem-alloc, a malloc and free, at most 1.0 us"),
    ("malloc_storm", "mem-inuse", "more_ns", 3500, "mem-inuse, a malloc and free, at most 3.5 us"),
    ("switch_storm", "off-cpu", "more_ns", 1200,
     "a switch of a selected process, its stack recognised, at most 1.2 us"),
]


def goals(rows, whole):
    yield "\n## Goals\n"
    found = {(r["program"], r["profiler"]): r for r in rows}
    for program, profiler, key, most, what in GOALS:
        if r := found.get((program, profiler)):
            yield f"- {what}: {verdict(r[key] <= most)} ({ns(r[key])})."
    noise = {r["program"]: r["percent"] for r in rows if r["profiler"] == "nobody"}
    for r in rows:
        if "limit" in r["profiler"]:
            what = f"{r['program'].replace('_', ' ')}, {r['profiler']}, at most 1 point more"
            yield (f"- {what}: {limit_verdict(r['percent'], noise[r['program']])} "
                   f"({signed(r['percent'])} %).")
    ours = [percent for _, who, percent, _ in whole if who.startswith("podflame")]
    if ours:
        yield ("- Waiting told whole without frame pointers, at least 95 %: "
               f"{verdict(min(ours) >= 95)} ({min(ours):.1f} %).")


def limit_verdict(percent, noise):
    """A goal is neither met nor missed if the noise is as large as the allowed difference."""
    if percent - noise > LIMIT + 1:
        return "**missed**"
    return "**met**" if noise <= LIMIT + 1 >= percent else f"**not shown**, noise is {noise:.1f} %"


def verdict(ok):
    return "**met**" if ok else "**missed**"


def write(folder, rows, whole, began, settings):
    ended = load()
    text = [INTRO.format(**report.machine(), began=began, ended=ended, limit=LIMIT, **settings,
                         quiet="" if max(float(began), float(ended)) < 2 + os.cpu_count()
                         else ": **not quiet**, of others' work; small numbers are noise")]
    text += [*program_tables(rows.rows), *whole_table(whole), *goals(rows.rows, whole)]
    if rows.skips:
        text += ["\n## Skipped\n"] + [f"- {name}: {why}" for name, why in rows.skips]
    with open(os.path.join(folder, "events-cost.md"), "w", encoding="utf-8") as f:
        f.write("\n".join(text) + "\n" + ENDING)
