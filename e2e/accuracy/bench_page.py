#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench_page.py --check: docs/performance.md is what docs/performance.json gives. bench.py writes
both; this file says what is on the page, and in which order."""
import json
import os
import re
import sys

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs")
INTRO = """# What podflame costs

Who needs this page: people who decide whether podflame may run on their nodes, and developers who
change code that runs often.

`make bench` wrote it on {date}, as root, in {minutes} minutes; the numbers are in
`performance.json`.
Commit {commit}. {cpus} CPUs ({cpu}), {memory}, kernel {kernel}, {system}; {versions}.
The load average was {began} at the beginning and {ended} at the end. {others} % of the machine's
CPU time went to other programs and {stolen} % to other machines{quiet}.

A number is the median of several rounds, with the least and the greatest one; `—` means that there
was one round. Profilers that are compared did the same work in the same run, one after the other in
random order. *Before* is the last page that was committed{before}. A change is shown if the two
spreads do not overlap. `make bench` prints what each number is; `e2e/accuracy/bench_page.py`
chooses those on this page.
"""


class Row:
    """A row of the page: what it is, and the name of its line of the bench. peers: (name of another
    tool, its line)."""

    def __init__(self, what, name, *peers):
        self.what, self.name, self.peers = what, name, peers


def beside(what, prefix, *peers):
    return Row(what, f"{prefix}.podflame",
               *((peer.replace("_", " "), f"{prefix}.{peer}") for peer in peers))


def peers(what, name):
    """A row of the page in the browser beside the flame graphs of others."""
    return Row(what, name, *((peer, f"{name}.{peer}") for peer in ("speedscope", "grafana")))


FP, OMITTED = "built with frame pointers", "built without"
PAGE = [
    ("A sample",
     "A program whose stacks have 3, 33 and 62 frames, at 1999 Hz. BPF time is without the timer's "
     "interrupt, which every profiler pays; it is in the program's time. perf has no BPF time. "
     "*Whole*: every frame from `_start` on. Debian's C library has no frame pointers, so a "
     "profiler that uses only them loses `_start`.", [
         beside(f"BPF time, {FP}", "sample.fp.bpf", "bpftrace"),
         Row(f"BPF time over bpftrace's, {FP}", "sample.fp.bpf.to_bpftrace"),
         beside(f"the program's time, {FP}", "sample.fp.cost", "bpftrace", "perf_fp"),
         Row(f"the program's time over bpftrace's, {FP}", "sample.fp.cost.to_bpftrace"),
         beside(f"whole stacks, {FP}", "sample.fp.whole", "bpftrace", "perf_fp"),
         beside(f"BPF time, {OMITTED}", "sample.no_fp.bpf"),
         beside(f"the program's time, {OMITTED}", "sample.no_fp.cost", "perf_dwarf", "perf_fp"),
         beside(f"whole stacks, {OMITTED}", "sample.no_fp.whole", "perf_dwarf", "perf_fp"),
         beside(f"shift of the program's own split, {OMITTED}", "sample.no_fp.moved", "perf_dwarf",
                "perf_fp"),
         Row("the work twice without profiler differs by", "sample.fp.noise"),
         Row("BPF time, depth 33, by frame pointers", "probe.sample_depth_33"),
         Row("BPF time, depth 33, by unwind tables", "probe.rows_depth_33"),
         Row("BPF time, depth 500, by unwind tables", "probe.rows_depth_500"),
     ]),
    ("Programs that are not selected",
     "BPF time more than an empty program's on the same event, both at once.", [
        Row("a tick", "probe.filtered_out", ("an empty program", "probe.empty")),
        beside("BPF time of a tick, an empty program's in it; bpftrace has idle ticks, too",
               "sample.fp.filtered", "bpftrace"),
        Row("a switch, with off-cpu asked for by others", "offcpu.unselected"),
        Row("a wake-up, with off-cpu asked for by others", "offcpu.unselected_wakeup"),
        Row("a program's slow-down at 199 Hz; the middle half of the pairs",
            "probe.unselected_slowdown_199hz"),
    ]),
    ("Waits and memory",
     "What programs pay for them, beside others: [events-cost](events-cost.md).", [
        Row("a switch whose stack is recognised, BPF time", "offcpu.recognised"),
        Row("a switch whose stack is walked, 22 frames", "offcpu.walked"),
        Row("mem-alloc: a malloc and free", "memory.alloc",
            ("an empty program at malloc", "memory.floor_alloc")),
        Row("mem-inuse: a malloc and free", "memory.inuse",
            ("empty ones at malloc and free", "memory.floor_inuse")),
        Row("hbm-alloc: a call that allocates and one that frees", "gpu_memory.alloc"),
        Row("hbm-inuse: the same", "gpu_memory.inuse"),
        Row("on-gpu: a launch that is reported", "on_gpu.launch"),
        Row("on-gpu: a piece of work, 32 in a report", "on_gpu.work"),
        Row("rdma: a call that posts one request", "rdma.post_send"),
        Row("rdma-latency: a poll that finds nothing", "rdma_latency.empty"),
        Row("rdma-latency: a post, and the poll that takes its completion",
            "rdma_latency.request"),
    ]),
    ("The agent",
     "An agent and its parse child; its targets, its hub on the same machine, every CPU busy, 99 "
     "Hz. bpftrace and perf take all of the machine, name nothing and send nothing meanwhile. File "
     "pages that the two share count once.", [
         beside("CPU", "agent.cpu", "bpftrace", "perf_fp"),
         beside("RSS", "agent.rss", "bpftrace", "perf_fp"),
         beside("anonymous part of the RSS", "agent.rss_anonymous", "bpftrace", "perf_fp"),
         Row("samples", "agent.samples"),
         beside("`record`: CPU from exec until it samples", "start.cpu", "bpftrace", "perf_fp"),
         Row("an agent: CPU from exec until it samples", "agent.start"),
         Row("an agent: from exec until 250 containers of 20 targets are selected",
             "agent.start_250"),
         Row("CPU of that", "agent.start_250.cpu"),
         Row("`record` of 50 busy processes: CPU", "accuracy.busy.cpu"),
         Row("`record` of 50 busy processes: RSS of both processes", "accuracy.busy.rss"),
         Row("`record` of 50 busy processes: BPF maps", "accuracy.busy.kernel"),
         Row("BPF maps, a process more", "accuracy.kernel_a_process"),
     ]),
    ("Beside an attacker",
     "An innocent process alone (*beside*) and beside three pods of another namespace, of which "
     "CPU time, waits and allocations are profiled: nearly each has a stack of its own, and the "
     "pods execute new files all the time.", [
         Row(what, f"beside.{name}.attacked", ("alone", f"beside.{name}.alone"))
         for what, name in (
             ("of the innocent one's CPU time, in the hub", "samples"),
             ("the same, by CPU time of the agent and its children", "per_cpu"),
             ("the agent and its children: CPU", "cpu"),
             ("the agent and its children: RSS", "rss"),
             ("of it, what the children have that is no file's page", "children"))
     ]),
    ("From the kernel to names", "", [
        Row("map and ring to windows, each record with a stack of its own", "pipeline.records",
            ("`perf script`, samples", "sample.fp.script.perf_fp")),
        Row("map and ring to drain", "pipeline.drained"),
        Row("drain to named frames in a window", "pipeline.folded"),
        Row("symbols of libLLVM (110 MB), cold: its index first", "symbol.cold"),
        Row("symbols of libLLVM, warm", "symbol.warm"),
        beside("a compiler in libLLVM, exec to names on disk: CPU", "first_names.libLLVM.cpu",
               "bpftrace", "perf_fp", "perf_dwarf"),
        beside("a compiler in libLLVM, exec to names on disk, a second of recording among it",
               "first_names.libLLVM.wall", "bpftrace", "perf_fp", "perf_dwarf"),
        beside("a small program, exec to names on disk: CPU", "first_names.small.cpu", "bpftrace",
               "perf_fp", "perf_dwarf"),
        beside("a small program, exec to names on disk, a second of recording among it",
               "first_names.small.wall", "bpftrace", "perf_fp", "perf_dwarf"),
        *(Row(f"a new process of {language}: {what}", f"new.{name}.{which}")
          for name, language in (("python", "Python"), ("java", "Java"), ("lua", "Lua"),
                                 ("luajit", "LuaJIT"))
          for what, which in (("its CPU time without names", "unnamed"),
                              ("what podflame takes for it", "cpu"))),
        Row("mangled names of one file", "names.child"),
        Row("mangled names of two files in turns", "names.two_files"),
        Row("mangled names of 64 files in turns", "names.many_files"),
        Row("the children that demangle: their memory", "names.children_memory"),
        Row("unwind tables of libLLVM, made of the whole file",
            "unwind_table_build_ms.libLLVM-14.so.1"),
        Row("unwind tables of libLLVM, their size", "unwind_table_kbytes.libLLVM-14.so.1"),
    ]),
    ("The hub",
     "SQLite. *Life*: 20 services of 10 pods that run the same code; *hard*: 200 processes without "
     "a stack in common. A namespace's query has half of the rows, goes to the whole reply and is "
     "exact. 1e7 rows: `ROWS=1e7 make bench`. A *review* is the question to the API server whether "
     "a user may see a namespace; here the API server is a program on loopback that answers after "
     "5 ms.", [
         row for n in ("1e+06", "1e+07") for load in ("life", "hard")
         for short in [f"{n.replace('e+0', 'e')} rows, {load}"]
         for row in (
             Row(f"{short}: written", f"store.write_{n}_{load}"),
             Row(f"{short}: on disk", f"store.bytes_{n}_{load}"),
             Row(f"{short}: a namespace, CPU", f"store.namespace_{n}_{load}"),
             Row(f"{short}: a namespace, latency", f"store.namespace_latency_{n}_{load}"),
             Row(f"{short}: a service, a tenth of the time, CPU", f"store.service_{n}_{load}"),
         )] + [
         Row(f"{n.replace('e+0', 'e')} rows: {what}", f"queries.{n}.{name}")
         for n in ("1e+06", "1e+07")
         for what, name in (
             ("a load of the page, p50", "p50_1"), ("a load of the page, p99", "p99_1"),
             ("20 users at once, p50", "p50_20"), ("20 users at once, p99", "p99_20"),
             ("p99 of 20 users over that of one", "crowd"))
         ] + [Row("a day of a namespace of 20 services, as a file: its rows, CPU",
                  "formats.cpu_rows")] + [
         row for name in ("folded", "pprof", "speedscope", "otlp")
         for row in (Row(f"from these to {name}, CPU", f"formats.cpu_{name}"),
                     Row(f"{name}, its size", f"formats.kbytes_{name}"))
         ] + [
         Row("a file of deep stacks, sent in pieces: its size", "formats.large_size"),
         Row("the same: CPU, with the client's", "formats.large_cpu"),
         Row("the same: memory more meanwhile", "formats.large_memory")] + [
         row for what, name in (("LabelNames", "labels"), ("Series", "label_sets"),
                                ("SelectSeries by workload", "series"),
                                ("SelectMergeStacktraces", "flame_graph"),
                                ("SelectMergeProfile", "profile"))
         for row in (Row(f"Grafana's {what} for such a day, CPU", f"formats.cpu_grafana_{name}"),
                     Row(f"{what}, the answer packed", f"formats.kbytes_grafana_{name}"))] + [
         row for what, name in (("OTLP/HTTP", "otlp_http"), ("OTLP/gRPC", "otlp_grpc"),
                                ("`/ingest`, 20 programs", "push_form"),
                                ("push.v1, 20 programs", "push_v1"))
         for row in (Row(f"10 s of 20 pods by {what}, CPU until they would be stored",
                         f"formats.in_cpu_{name}"),
                     Row(f"by {what}, their size", f"formats.in_kbytes_{name}"))
         ] + [Row("tree of 100,000 stacks of 30 frames", "query.tree"),
               Row("an uploaded name, first look-up", "symbols.name")] + [
         Row(f"a query, {n:,} {'namespace' if n == 1 else 'namespaces'} to review{what}",
             f"rights.{name}_{n}")
         for n in (1, 100, 1000) for what, name in (("", "cold"), (", asked before", "cached"))]),
    ("The hub with ClickHouse",
     "The load *life* in ClickHouse's engine (`chdb`), in SQLite, and in DeepFlow's own table in "
     "the same engine: a row a sample, with its stack as a text that is compressed for itself. "
     "The hub writes groups of batches, as it does for agents. CPU of the engine has its HTTP "
     "server's in it. "
     "The engine itself makes the ten and hundred million rows, of 20 namespaces. "
     "[What a fleet needs](fleet.md) counts on with these numbers.", [
         row for n, short in [("1e+06", "1e6 rows")]
         for row in (
             Row(f"{short}: on disk", f"clickhouse.bytes_{n}",
                 ("DeepFlow's table", f"clickhouse.bytes_deepflow_{n}")),
             Row(f"{short}: on disk, over DeepFlow's table", f"clickhouse.bytes_to_deepflow_{n}"),
             Row(f"{short}: written, the hub's CPU", f"clickhouse.in_hub_{n}",
                 ("SQLite", f"clickhouse.in_hub_sqlite_{n}")),
             Row(f"{short}: written, the hub's CPU over SQLite's",
                 f"clickhouse.in_hub_to_sqlite_{n}"),
             Row(f"{short}: written, the engine's CPU", f"clickhouse.in_engine_{n}",
                 ("DeepFlow's table", f"clickhouse.in_engine_deepflow_{n}")),
             Row(f"{short}: a namespace (half of them), the engine's CPU", f"clickhouse.query_{n}",
                 ("DeepFlow's SQL", f"clickhouse.query_deepflow_{n}")),
             Row(f"{short}: a namespace, over DeepFlow's SQL",
                 f"clickhouse.query_to_deepflow_{n}"),
             Row(f"{short}: a namespace, the first query of a hub, the engine's CPU",
                 f"clickhouse.query_cold_{n}"),
             Row(f"{short}: a namespace, the hub's CPU", f"clickhouse.query_hub_{n}"),
             *(Row(f"{short}: {what}, p50", f"clickhouse.{name}_p50_{n}",
                   ("p99", f"clickhouse.{name}_p99_{n}"))
               for what, name in (("a namespace", "all"), ("a namespace's hour", "hour"),
                                  ("a series of it", "series"), ("choices in it", "choices"))),
         )] + [
         row for n, short in (("1e+07", "1e7 rows"), ("1e+08", "1e8 rows"))
         for row in (
             Row(f"{short}: on disk", f"clickhouse.bytes_{n}"),
             *(row for what, name in (("a day of one of 20 namespaces", "day"),
                                      ("an hour", "hour"), ("a series of the day", "series"),
                                      ("choices in the day", "choices"))
               for row in (
                   Row(f"{short}: {what}, the engine's CPU", f"clickhouse.{name}_{n}"),
                   Row(f"{short}: {what}, p50", f"clickhouse.{name}_p50_{n}",
                       ("p99", f"clickhouse.{name}_p99_{n}")))))]),
    ("The page",
     "The flame graph in Chromium, without a GPU, in a window of 1280 by 800 pixels. 95 of 100 "
     "frames take at most as long as is shown. Beside it are speedscope, and the flame graph of "
     "Grafana and Pyroscope (`@grafana/flamegraph`), with the same profile in the same browser.", [
        Row("the page, compressed", "page.size"),
        Row("an answer of 200,000 nodes: from its JSON to the picture", "page.answer"),
        peers("100,000 distinct stacks: from JSON to the picture", "page.stacks"),
        peers("1,000,000 nodes: from JSON to the picture", "page.million"),
        Row("1,000,000 nodes: the first picture", "page.first_draw"),
        Row("1,000,000 nodes: from frame to frame while it zooms", "page.zoom_frame"),
        Row("1,000,000 nodes: our part of that", "page.zoom_script"),
        peers("1,000,000 nodes: memory of the renderer", "page.memory"),
        *(Row(f"{n.replace('e+0', 'e')} rows: an hour of a namespace, from the address to the "
              "picture", f"page.picture_{n}") for n in ("1e+06", "1e+07")),
    ]),
]


def names():
    """The names of all lines of the bench that are on the page."""
    found = []
    for _, _, rows in PAGE:
        for row in rows:
            found += [row.name] + [name for _, name in row.peers]
    return found


# ---- cells ----

def number(x):
    if x == 0 or abs(x) >= 1000:
        return f"{x:,.0f}"
    return f"{x:.3g}" if abs(x) < 100 else f"{x:.0f}"


def spread(r):
    """A median over many answers has no least and most."""
    has_spread = r.get("rounds", 1) > 1 and "least" in r
    return f"{number(r['least'])} to {number(r['most'])}" if has_spread else "—"


def change(r):
    """The change since the last page; "": the last page does not have this number."""
    old = r.get("before")
    if not old or not old["value"]:
        return ""
    low, high = r.get("least", r["value"]), r.get("most", r["value"])
    if low <= old.get("most", old["value"]) and old.get("least", old["value"]) <= high:
        return f"{number(old['value'])}, same"
    return f"{number(old['value'])}, {100 * (r['value'] / old['value'] - 1):+.0f} %"


def verdict(r):
    """Whether a goal is met: "<= 30", "<= 30 + N more" (as compared_with says), "<= 4 at 1e7".
    "": there is no goal, or it is not for this size."""
    m = re.match(r"([<>])= ([\d.]+)(.*)", r.get("goal", ""))
    if not m:
        return ""
    most = float(m[2])
    if (size := re.search(r" at 1e(\d+)", m[3])) and f"1e+0{size[1]}" not in r["name"]:
        return ""
    if m[3].startswith(" +") and (more := re.match(r"([\d.]+) more", r["compared_with"])):
        most += float(more[1])
    met = r["value"] <= most if m[1] == "<" else r["value"] >= most
    return "**met**" if met else "**missed**"


def goal_text(r):
    return r["goal"].replace("<=", "at most").replace(">=", "at least")


def older(r):
    """The date of a number that this page's run does not have."""
    return f" (of {r['date']})" if "date" in r else ""


def section(title, text, rows, found):
    yield f"\n## {title}\n"
    if text:
        yield f"{text}\n"
    yield "| | podflame | least to most | unit | goal | beside | before |"
    yield "| --- | ---: | ---: | --- | --- | --- | --- |"
    for row in rows:
        r = found.get(row.name)
        if not r:
            yield f"| {row.what} | not measured | | | | | |"
            continue
        peers = "; ".join(
            f"{who} {number(found[name]['value'])} [{spread(found[name])}]".replace(" [—]", "")
                          for who, name in row.peers if name in found)
        met = f"{goal_text(r)}: {verdict(r)}" if verdict(r) else ""
        yield (f"| {row.what} | {number(r['value'])}{older(r)} | {spread(r)} | {r['unit']} | "
               f"{met} | {peers} | {change(r)} |")


def goals(found):
    yield "\n## Goals\n"
    yield "| goal | | measured |"
    yield "| --- | --- | ---: |"
    for title, _, rows in PAGE:
        for row in rows:
            r = found.get(row.name)
            if r and verdict(r):
                yield (f"| {title} – {row.what}: {goal_text(r)} {r['unit']} | {verdict(r)} | "
                       f"{number(r['value'])}{older(r)} |")


def is_quiet(data):
    """Whether the machine was quiet. A later page is compared only with a quiet one."""
    return data["others"] + data["stolen"] < 5


def before_text(before, cpu):
    other = ""
    if before["cpu"] != cpu:
        other = f"; on another CPU, {before['cpu']}: differences are the CPUs' as well"
    return f" ({before['date']}, {before['others']} % for others{other})"


def page(data):
    m = data["machine"]
    found = {r["name"]: r for r in data["rows"]}
    text = [INTRO.format(**{**m, "versions": ", ".join(m["versions"])}, minutes=data["minutes"],
                         began=data["load"][0], ended=data["load"][1],
                         others=data["others"], stolen=data["stolen"],
                         quiet="" if is_quiet(data) else ": **not quiet**, small numbers are noise",
                         before=before_text(data["before"], m["cpu"])
                         if data.get("before") else ": there was none of a quiet machine")]
    text += goals(found)
    for title, words, rows in PAGE:
        text += section(title, words, rows, found)
    if data["skipped"]:
        text += ["\n## Skipped\n"] + [f"- {why}" for why in data["skipped"]]
    return "\n".join(text) + "\n"


def read(folder=DOCS):
    with open(os.path.join(folder, "performance.json"), encoding="utf-8") as f:
        return json.load(f)


def write(data, folder):
    rows = ",\n  ".join(json.dumps(r, ensure_ascii=False) for r in data["rows"])
    rest = json.dumps({k: v for k, v in data.items() if k != "rows"}, indent=1, ensure_ascii=False)
    with open(os.path.join(folder, "performance.json"), "w", encoding="utf-8") as f:
        f.write(rest.removesuffix("\n}") + f',\n "rows": [\n  {rows}\n ]\n}}\n')
    with open(os.path.join(folder, "performance.md"), "w", encoding="utf-8") as f:
        f.write(page(data))


def main():
    if sys.argv[1:] != ["--check"]:
        sys.exit("bench_page.py --check; bench.py writes the page")
    with open(os.path.join(DOCS, "performance.md"), encoding="utf-8") as f:
        if f.read() != page(read()):
            print("docs/performance.md:1: not what performance.json gives; run "
                  "e2e/accuracy/bench.py --page")
            sys.exit(1)


if __name__ == "__main__":
    main()
