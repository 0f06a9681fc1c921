#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/accuracy.md and docs/accuracy.json from results. As a program, report.py fails if
docs/accuracy.md is not what it would write from docs/accuracy.json."""
import datetime
import json
import os
import platform
import subprocess
import sys

import exact
import real

INTRO = """# Accuracy

Who needs this page: people who want to know how far they can trust a stack or a share in a profile,
and developers of the unwinder.

`make accuracy` wrote it on {date}, from measurements on one machine; the numbers are in
`accuracy.json`.
Kernel {kernel}, {cpus} CPUs, {system}; {versions}.

**Known-answer programs** ([`e2e/accuracy/programs/`](../e2e/accuracy/programs)) use CPU in
functions at known depths, in random steps. They measure with the thread's CPU clock how much each
function used, while `podflame record` samples them at {hz} Hz.

| word | meaning |
| --- | --- |
| a share is right | it differs by at most 3 sigma (binomial) from what the program measured |
| a stack is *finished* | it has no marker (`[unwind: …]`, `[truncated]`) and begins where \
programs or threads begin |
| a stack is *whole* | every frame from there to the leaf is the one that the source says, as \
often as it says |

The goal is 99.5 % for both (Go and Java whole: 95 %; Java finished: 99 %). The shares leave out
making and collecting garbage in Go: it stops and wakes threads thousands of times a second, and no
timer samples a switch. `perf record -e cpu-clock` lacks the same 2 to 3 % of the samples.

**Stopped processes**: real programs under load are stopped at random moments. `bpf/unwind.h`,
compiled for the host, walks all their threads with tables made as the agent makes them. Each
address is compared with the one that `eu-stack` finds, and if they differ, also with gdb's.
"""
ENDING = """
## What a number here does not say

The programs are small, and the machine is shared. The numbers show that nothing is lost or
misplaced, but not what sampling costs: `make bench` measures that. The error of a share shrinks
with the root of the number of samples. With 5,000 samples, one sigma of a share of 20 % is 0.57
points. """


def version(command):
    try:
        out = subprocess.run(command.split(), capture_output=True, text=True, timeout=20)
        return (out.stdout or out.stderr).splitlines()[0].strip()
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return ""


def machine():
    with open("/etc/os-release", encoding="utf-8") as f:
        system = dict(x.rstrip().split("=", 1) for x in f if "=" in x)["PRETTY_NAME"].strip('"')
    commands = ("gcc --version", "clang --version", "rustc --version", "go version",
                "eu-stack --version", "gdb --version")
    return {"date": datetime.date.today().isoformat(), "kernel": platform.release(),
            "cpus": os.cpu_count(), "system": system,
            "versions": [v for v in map(version, commands) if v]}


def percent(x):
    return f"{100 * x:.2f} %"


def asserted(r):
    return [s for s in r["shares"] if not (r["runtime"] and s["name"] == "(rest)")]


def worst(r):
    return max((abs(s["sigmas"]) for s in asserted(r)), default=0)


def off(r):
    """Largest difference of a share, in points."""
    return max((abs(s["seen"] - s["told"]) * 100 for s in asserted(r)), default=0)


def whole(r):
    n = sum(s["samples"] for s in r["shares"] if "complete" in s)
    return sum(s["samples"] * s["complete"] for s in r["shares"] if "complete" in s) / n if n else 0


def known_table(language, results):
    yield f"\n### {language}\n"
    yield "| program | samples | finished | whole | largest error of a share | |"
    yield "| --- | ---: | ---: | ---: | ---: | --- |"
    for r in results:
        if "samples" not in r:
            yield f"| {r['name']} | – | – | – | – | FAILED: {r['wrong'][0]} |"
            continue
        state = ("FAILED: " + "; ".join(r["wrong"]) if r["wrong"]
                 else "excluded, see below" if r["excluded"] else "ok")
        yield (f"| {r['name']} | {r['samples']} | {percent(r['finished'])} | {percent(whole(r))} | "
               f"{off(r):.2f} points, {worst(r):.1f} sigma | {state} |")


def excluded_table(results):
    rows = [r for r in results if r.get("excluded")]
    if rows:
        yield "\n### Excluded\n"
        yield ("The code of these files cannot be unwound by any tool. The table has the part of "
               "the program's\nstacks that is not finished, and the markers that end them.\n")
        yield "| program | why | not finished | marker |"
        yield "| --- | --- | ---: | --- |"
    for r in rows:
        marks = ", ".join(f"`{k}` {n}" for k, n in r["reasons"].items()) or "–"
        yield (f"| {r['language']}: {r['name']} | {r['excluded']} | {percent(1 - r['finished'])} | "
               f"{marks} |")


def stopped_table(results):
    yield "\n## Stopped processes\n"
    yield ("| program | stops | threads' stacks | frames | equal | ours longer | theirs longer | "
           "different | finished by us | |")
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    for r in results:
        state = "FAILED: " + "; ".join(r["wrong"]) if r["wrong"] else "ok"
        yield "| " + " | ".join([r["name"]] + [str(r.get(k, "–")) for k in (
            "moments", "threads", "frames", "equal", "ours longer", "theirs longer", "different",
            "finished")] + [state]) + " |"


def differences(results):
    rows = [(r["name"], key, d) for r in results for key, d in r.get("differences", {}).items()]
    if not rows:
        return
    yield "\n### Differences\n"
    yield ("One difference of each kind, from two frames before the stacks part; gdb: which side "
           "it agreed\nwith, and how often, where it was asked.")
    for name, key, d in rows:
        votes = ", ".join(f"{n} {who}" for who, n in d["gdb"].items()) or "not asked"
        yield f"\n- {name}: {d['n']} {key}; gdb: {votes}."
        for who in ("ours", "theirs"):
            yield f"  - {who}: " + (" ← ".join(f"`{f}`" for f in d[who]) or "nothing")
        if why := explained(key, d):
            yield f"  - {why}"


EXPLAINED = [   # (in the key or in our frames, what it is)
    ("another line",
     "Line 0: the code object's table says that the instruction has none; py-spy shows the line "
     "before. Else, of 3.10: podflame's lines are PyCode_Addr2Line's for every instruction "
     "(python_live_test.c)."),
    ("runtime.mstart",
     "`runtime.mstart` is where the runtime says its own stacks begin (TOPFRAME in the pclntab); "
     "what eu-stack shows beyond is the frame that started the thread, or what was on the stack "
     "before."),
    ("runtime.systemstack",
     "The runtime has switched stacks: the goroutine's own stack goes on below "
     "`runtime.systemstack`. DWARF cannot say so; podflame follows the switch, eu-stack stops or "
     "reads what lies on the system stack."),
    ("runtime.mcall",
     "The runtime has switched to its scheduler's stack (`runtime.mcall`), which begins there."),
    ("runtime.sigtramp",
     "Go's signal trampoline has no CFI; podflame knows it by its code, eu-stack guesses or "
     "stops."),
    ("JIT code", "Code that a JIT made has no unwind tables; both go by frame pointers there."),
]


def explained(key, d):
    # both lists begin two frames before the difference
    here = key.startswith("different") and len(d["ours"]) > 3 and len(d["theirs"]) > 2
    if here and d["ours"][3:] == d["theirs"][2:len(d["ours"]) - 1]:
        return ("eu-stack has one frame less: it followed rbp from a function that has not made "
                "its frame yet, or has none.")
    text = key + " " + " ".join(d["ours"])
    return next((why for what, why in EXPLAINED if what in text), "")


BESIDE = """
## Beside async-profiler

podflame samples a process from outside, and async-profiler samples the same process from inside:
how much of the time is each method on the stack? Both know only the places where a thread can be
stopped. For other places async-profiler takes the next of these by address, and podflame the next
that the code comes to, so the innermost inlined method may differ. For `Shares::lambda$streams$1`
of JDK 11 async-profiler is wrong: with `-XX:+DebugNonSafepoints`, where every place is known, it
has no sample of it.

| program | samples | theirs | methods | most apart | whole stacks that are the same | |
| --- | ---: | ---: | ---: | --- | ---: | --- |"""


def beside_table(results):
    if results:
        yield BESIDE
    for r in results:
        state = "FAILED: " + "; ".join(r["wrong"]) if r["wrong"] else "ok"
        most = ", ".join(f"`{x['method']}` {x['points']:.2f} points"
                         for x in r.get("largest", [])[:1]) or "–"
        yield (f"| {r['name']} | {r.get('samples', '–')} | {r.get('their samples', '–')} | "
               f"{r.get('methods', '–')} | {most} | {percent(r.get('overlap', 0))} | {state} |")


WAITS = """
## Waits and memory

These programs know how long each of their functions waits, and for what, and how many bytes it
allocates and leaks ([`e2e/workloads/waits.*`](../e2e/workloads)). `podflame record` records
off-cpu, mem-alloc and mem-inuse at once, with each allocation sampled (`-s 1`). *Cause*: the part
of the time that has the cause that the function is for, or is `runqueue`; a sleep of the JVM is a
futex. Go itself reports its bytes, when a collection has ended.

| language | event | function | it says | seen | error | cause | |
| --- | --- | --- | ---: | ---: | ---: | ---: | --- |"""


def waits_table(results):
    if results:
        yield WAITS
    for r in results:
        for x in r["rows"]:
            unit = "s" if x["event"] == "off-cpu" else "MB"
            told, seen = x["told"] / 1e6, x["seen"] / 1e6
            cause = percent(x["cause"]) if "cause" in x else ""
            state = "FAILED" if any(x["name"] in w for w in r["wrong"]) else "ok"
            yield (f"| {r['language']} | {x['event']} | `{x['name']}` | {told:.3f} {unit} | "
                   f"{seen:.3f} {unit} | {100 * (seen - told) / told if told else 0:+.2f} % | "
                   f"{cause} | {state} |")


EXACT = """
## Known to the byte, beside other tools

These programs wait, allocate and leak a known number of times
([`e2e/accuracy/programs/exact.*`](../e2e/accuracy/programs)) and print what each of their functions
had. Meanwhile `podflame record` records off-cpu (`-b 1us`), mem-alloc and mem-inuse (`-s 1`) at
once. The functions wait for each cause (sleep, lock, pipe, socket, poll, disk, other: those that
the language has), allocate in several ways, and leak (zero for memory that is freed). A wait is the
time of the function less the thread's CPU time. *Largest error*: that of one of the functions.
*Cause*: the least part of a function's wait that has its cause, or is `runqueue`. *Beside*: another
tool that records the same process at the same time, and the largest difference between it and
podflame for one function. Unless a row says otherwise, bytes must be equal. Waits of a function may
differ by 3 % and 60 ms, and may lack the time that others had the CPU meanwhile (`preempted_us`:
the time that its threads waited for a CPU, less what was seen as `runqueue`).

The programs named *CUDA* ([`gpu.*`](../e2e/accuracy/programs)) allocate and free memory of a GPU in
each way that the driver has, also with calls that fail; a stand-in for the driver
([`e2e/gpu`](../e2e/gpu)) counts the same bytes. podflame may see no bytes besides. Those
named *work* ([`on_gpu*`](../e2e/accuracy/programs)) launch kernels, copies, sets and graphs of
known length, which podflame's library reports: for each function and each kernel, the microseconds
must be equal. Those named *no GPU* call NVIDIA's own libraries, some of them compiled by NVIDIA's
compiler, with the same errors whether podflame looks or not.

The programs named *RDMA* ([`rdma*`](../e2e/accuracy/programs)) post requests to queue pairs of the
two devices of a stand-in for libibverbs ([`e2e/rdma`](../e2e/rdma)), which counts the same bytes,
and register memory; some of their requests fail. Each operation has a row, such as *rdma:send*. The
type and the device of the queue pair must be right, too, and podflame may see no bytes besides.
Debian's pingpong programs run as they are. The stand-in ends the requests of those named *latency*
after a known time, in another order, with an error, or never. They look at the clock before and
after each call that posts or polls, and podflame's latency must be between these limits
(`accuracy.json` has the `distance` of the limits from the middle, which is what they say). Those
named *no RDMA device* call Debian's libibverbs and perftest, with the same errors whether podflame
looks or not.

`accuracy.json` has each function.

| program | event | functions | they say | seen | largest error | cause | beside | |
| --- | --- | ---: | ---: | ---: | --- | ---: | --- | --- |"""


def amount(event, n):
    return f"{n / 1e6:.3f} s" if event.split(":")[0] in exact.IN_US else f"{n:,} bytes"


def far(event, rows, seen, theirs):
    """The function where two values are the furthest apart."""
    x = max(rows, key=lambda x: abs(seen(x) - theirs(x)))
    d = seen(x) - theirs(x)
    if not d:
        return "0"
    relative = f" ({100 * d / theirs(x):+.2f} %)" if theirs(x) else ""
    return f"{amount(event, d)}{relative}, `{x['name']}`"


def beside_cell(event, rows, who):
    its = [x for x in rows if who in x["oracles"]]
    lacks = ", ".join(f"`{x['name']}`" for x in rows if who not in x["oracles"])
    furthest = far(event, its, lambda x: x["seen"], lambda x: x["oracles"][who])
    return f"{who.replace('_', '-')}: {furthest}" + (lacks and f"; lacks {lacks}")


def exact_rows(r):
    for event in dict.fromkeys(x["event"] for x in r["rows"]):
        rows = [x for x in r["rows"] if x["event"] == event]
        cause = min((x["causes"] for x in rows if x.get("causes") and x["told"] > 50000), default=0)
        beside = "; ".join(beside_cell(event, rows, who)
                           for who in sorted({who for x in rows for who in x["oracles"]}))
        state = "FAILED" if any(event in w or any(w.startswith(x["name"]) for x in rows)
                                for w in r["wrong"]) else "ok"
        yield (f"| {r['language']}: {r['name']} | {event} | {len(rows)} | "
               f"{amount(event, sum(x['told'] for x in rows))} | "
               f"{amount(event, sum(x['seen'] for x in rows))} | "
               f"{far(event, rows, lambda x: x['seen'], lambda x: x['told'])} | "
               f"{percent(cause) if cause else ''} | {beside} | {state} |")


def exact_table(results):
    if results:
        yield EXACT
    for r in results:
        yield from exact_rows(r)
        if not r["rows"]:
            yield f"| {r['language']}: {r['name']} | | | | | | | | FAILED: {r['wrong'][0]} |"
    noise = {}
    for r in results:
        if r.get("noise"):
            noise.setdefault((r["language"], r["noise"]), []).append(r["name"])
    if noise:
        yield "\nWhat is in there beside what is told:"
    for (language, what), names in noise.items():
        yield f"- {language} ({', '.join(names)}): {what}."


REAL = """
## Programs that nobody here wrote

Programs of the distribution and of the registries, as they are shipped
([`real_programs.py`](../e2e/accuracy/real_programs.py)), each repeat a fixed piece of work.
`podflame record --cgroup` samples them at {ours} Hz (after some seconds, in which it reads the
files that its node would know), and `perf record --call-graph dwarf` at the same time at {theirs}
Hz, with copies of {copy} bytes.

A stack is *whole* here if it has no marker and comes from where a program or a thread begins;
perf's stacks are read by the same rule. *Named* is the part of the frames of all samples that have
a name: Debian's files are stripped, and there are no debug files for most of them. A sample without
any frame of a program (the kernel begins or ends a process) counts for neither. *Ends*: where most
of the stacks end that are not whole; those that have no marker "begin at" a function. The goal is
{goal} whole; an *exception* is code for which nobody can prove where it returns to.

| program | samples | whole | perf's whole | named | perf's named | ends | |
| --- | ---: | ---: | ---: | ---: | ---: | --- | --- |"""


def real_row(r):
    if "samples" not in r:
        return f"| {r['name']} | | | | | | | FAILED: {r['wrong'][0]} |"
    perf = r.get("perf")
    theirs = [percent(perf[k]) if perf else "" for k in ("whole", "named")]
    ends = ", ".join(f"`{real.short(e['end'])}` {percent(e['share'])}" for e in r["ends"][:2])
    excepted = sum(x["share"] for x in r["exceptions"])
    state = ("below the goal" if r["whole"] + excepted < real.GOAL
             else "FAILED: " + "; ".join(r["wrong"]) if r["wrong"] else "ok")
    return (f"| {r['name']} | {r['samples']} | {percent(r['whole'])} | {theirs[0]} | "
            f"{percent(r['named'])} | {theirs[1]} | {ends} | {state} |")


def real_table(results):
    if not results:
        return
    yield REAL.format(ours=real.HZ, theirs=real.PERF_HZ, copy=real.PERF_COPY_BYTES,
                      goal=percent(real.GOAL))
    for kind in dict.fromkeys(r["kind"] for r in results if "kind" in r):
        yield f"| **{kind}** | | | | | | | |"
        yield from (real_row(r) for r in results if r.get("kind") == kind)
    yield from (real_row(r) for r in results if "kind" not in r)
    rows = [(r["name"], x) for r in results for x in r.get("exceptions", [])]
    if rows:
        yield "\nExceptions:"
    for name, x in rows:
        yield f"- {name}: {percent(x['share'])}: {x['why']}"


def merged(before, results):
    """The results of the last report, with new ones in the place of old ones."""
    new = {(r["language"], r["name"]): r for r in results}
    kept = [new.pop((r["language"], r["name"]), r) for r in before]
    return kept + list(new.values())


def page(report):
    """The text of accuracy.md. report: what accuracy.json has."""
    m, known, stopped = report["machine"], report["known"], report["stopped"]
    hz = next((r["hz"] for r in known if "hz" in r), 0)
    text = [INTRO.format(**{**m, "versions": "; ".join(m["versions"]), "hz": hz}),
            "## Known-answer programs"]
    for language in dict.fromkeys(r["language"] for r in known):
        text += known_table(language, [r for r in known if r["language"] == language])
    text += [*excluded_table(known), *stopped_table(stopped), *differences(stopped),
             *beside_table(report["beside"]),
             *waits_table(report["waits"]), *exact_table(report["exact"]),
             *real_table(report.get("real", []))]
    if report["skipped"]:
        text += ["\n## Skipped\n"] + [f"- {s['what']}: {s['why']}" for s in report["skipped"]]
    return "\n".join(text) + "\n" + ENDING


def read(folder):
    with open(os.path.join(folder, "accuracy.json"), encoding="utf-8") as f:
        return json.load(f)


def write(folder, results, skips, some):
    """results: {part: results of its programs}. some: not all programs were run; the report keeps
    its results of the others."""
    if some:
        before = read(folder)
        results = {part: merged(before.get(part, []), new) for part, new in results.items()}
        skips = skips + [(s["what"], s["why"]) for s in before["skipped"]
                         if s["what"] not in dict(skips)]
    report = {"machine": machine(), **results,
              "skipped": [{"what": a, "why": b} for a, b in skips]}
    with open(os.path.join(folder, "accuracy.md"), "w", encoding="utf-8") as f:
        f.write(page(report))
    with open(os.path.join(folder, "accuracy.json"), "w", encoding="utf-8") as f:
        json.dump(report, f, indent=1, ensure_ascii=False)
        f.write("\n")


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs")
    with open(os.path.join(folder, "accuracy.md"), encoding="utf-8") as f:
        same = f.read() == page(read(folder))
    if not same:
        print("docs/accuracy.md:1: is not what e2e/accuracy/report.py writes from accuracy.json")
    return not same


if __name__ == "__main__":
    sys.exit(main())
