#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Long runs of the fuzzers: run.py long [SECONDS [TARGET...]] | try SECONDS [TARGET...] |
    merge CLONE | seed TARGET... | coverage [TARGET...] | doc [--check]

long      runs each target that has not had its hour for SECONDS of CPU (300), those with the least
          first, one at a time at nice 19. After each target's turn its findings are in the corpus
          (testdata/fuzz/NAME.ar.zst, as few inputs as have all its edges) and in fuzz/record.tsv.
try       runs each target (default: all) for SECONDS of CPU, one on each CPU; records nothing
merge     adds what another clone's runs have added to its record and corpora; once for each clone
seed      puts the first inputs that fuzz/seeds.py makes into the corpus
coverage  writes the line coverage of the files that a target names after "Fuzzes:", by only its
          corpus, to fuzz/record.tsv
doc       writes the table of docs/fuzzing.md from fuzz/record.tsv; --check: whether it is that

A target is its path without _fuzz.c: agent/lib/kube/decode. Ctrl-C or SIGTERM ends a run early; its
results until then count.
"""
import concurrent.futures
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(ROOT, "build")))
RECORD = os.path.join(ROOT, "fuzz/record.tsv")
PAGE = os.path.join(ROOT, "docs/fuzzing.md")
COLUMNS = ["target", "cpu_s", "runs", "edges", "last_new_edge_s", "inputs", "bytes", "lines",
           "covered", "findings"]
HEAD = ("# SPDX-License-Identifier: Apache-2.0\n"
        "# What fuzz/run.py has seen: CPU seconds, runs, edges of the corpus, CPU second of the "
        "last new edge, the corpus's inputs and\n"
        "# bytes, lines of the fuzzed files and how many of them the corpus runs, findings.\n")
# CPU seconds that each target shall have, and shall have had without a new edge
HOUR, QUIET = 3600, 900
# seconds for one input: CPU time beyond which it is a finding; wall time when it is run again
SLOW, SLOW_AGAIN = 10, 300
# most bytes in the repository: of one input, and of one target before it is packed
MAX_INPUT, MAX_CORPUS = 16384, 1 << 20
CLANG = {"fuzz": "-fsanitize=fuzzer-no-link,address,undefined",
         "fuzzcov": "-fprofile-instr-generate -fcoverage-mapping"}
stop = False


def targets():
    found = glob.glob("agent/**/*_fuzz.c", root_dir=ROOT, recursive=True)
    return sorted(f.removesuffix("_fuzz.c") for f in found)


def archive(target, root=ROOT):
    return os.path.join(root, os.path.dirname(target), "testdata/fuzz",
                        os.path.basename(target) + ".ar.zst")


def fuzzed_files(target):
    """The files after "Fuzzes:" in the first comment of a target."""
    text = open(os.path.join(ROOT, target + "_fuzz.c")).read()
    said = re.search(r"Fuzzes:(.*?)\*/", text, re.S)
    names = re.findall(r"[\w./-]+\.[ch]\b", said.group(1)) if said else []
    return [n if n.startswith("bpf/") else "agent/" + n for n in names]


def parse_record(text):
    record = {}
    for line in text.splitlines():
        if line.startswith("agent/"):
            row = dict(zip(COLUMNS, line.split("\t")))
            record[row["target"]] = {k: v if k == "target" else int(v) for k, v in row.items()}
    return record


def read_record():
    record = parse_record(open(RECORD).read()) if os.path.exists(RECORD) else {}
    for t in targets():
        record.setdefault(t, dict.fromkeys(COLUMNS, 0) | {"target": t})
    return {t: record[t] for t in targets()}


def write_record(record):
    with open(RECORD + ".tmp", "w") as f:
        f.write(HEAD + "# " + "\t".join(COLUMNS) + "\n")
        for row in record.values():
            f.write("\t".join(str(row[c]) for c in COLUMNS) + "\n")
    os.rename(RECORD + ".tmp", RECORD)


def make(kind, *names):
    out = os.path.join(BUILD, kind)
    subprocess.run(["make", "--no-print-directory", f"BUILD={out}", "CC=clang",
                    "CI=",  # clang takes variables of _cleanup_ for unused
                    f"SANITIZE={CLANG[kind]}",
                    *(os.path.join(out, n) for n in names)], cwd=ROOT, check=True)
    return [os.path.join(out, n) for n in names]


def unpack(target, to, root=ROOT):
    os.makedirs(to, exist_ok=True)
    if os.path.exists(archive(target, root)):
        plain = to + ".ar"
        subprocess.run(["zstd", "-dqf", archive(target, root), "-o", plain], check=True)
        subprocess.run(["ar", "x", "--output", to, plain], check=True)
        os.unlink(plain)


def pack(target, directory):
    names = sorted(n for n in os.listdir(directory)
                   if os.path.getsize(os.path.join(directory, n)) <= MAX_INPUT)
    total = 0
    os.makedirs(os.path.dirname(archive(target)), exist_ok=True)
    plain = directory + ".ar"
    with open(plain, "wb") as f:
        f.write(b"!<arch>\n")
        for name in sorted(names, key=lambda n: (not n.startswith("fix-"),
                                                 os.path.getsize(os.path.join(directory, n)))):
            data = open(os.path.join(directory, name), "rb").read()
            total += 60 + len(data)
            if total > MAX_CORPUS:
                break
            short = (name if name.startswith("fix-") else name[:12])[:15] + "/"
            f.write(f"{short:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode())
            f.write(data + b"\n" * (len(data) % 2))
    subprocess.run(["zstd", "-19", "-qf", plain, "-o", archive(target)], check=True)
    os.unlink(plain)


def size_of(target):
    if not os.path.exists(archive(target)):
        return 0, 0
    plain = subprocess.run(["zstd", "-dqc", archive(target)], capture_output=True,
                           check=True).stdout
    at = n = 0
    for n in range(len(plain)):
        if 8 + at >= len(plain):
            break
        at += 60 + (int(plain[8 + at + 48:8 + at + 58]) + 1) // 2 * 2
    return n, os.path.getsize(archive(target))


def cpu_of(pid):
    """CPU seconds of a process that runs."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def minimize(binary, target, work):
    """Reduces the corpus to as few inputs as have all its edges; how often an edge is taken does
    not count. Returns how many inputs those are."""
    small = work + ".small"
    shutil.rmtree(small, ignore_errors=True)
    os.makedirs(small)
    said = subprocess.run(["nice", "-n", "19", binary, "-merge=1", "-use_counters=0",
                           f"-max_len={MAX_INPUT}", small, work],
                          cwd=BUILD, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True, errors="replace")
    for name in glob.glob(os.path.join(work, "fix-*")):         # inputs of mended bugs stay
        shutil.copy(name, small)
    pack(target, small)
    shutil.rmtree(small)
    edges = re.findall(r"(\d+) new coverage edges", said.stderr)
    return int(edges[-1]) if edges else 0


def read_log(path, at, begun, result):
    """What libFuzzer has printed since. Edges before INITED are the corpus's, and not new."""
    with open(path, errors="replace") as log:
        log.seek(at)
        text = log.read()
        at = log.tell()
    for runs, word, edges in re.findall(r"^#(\d+)\s+(\w+)\s+cov: (\d+)", text, re.M):
        if begun and int(edges) > result["edges"]:
            result["last_new_edge_s"] = result["cpu_s"]
        begun |= word == "INITED"
        result["runs"] = int(runs)
        result["edges"] = max(int(edges), result["edges"])
    return at, begun


def fuzz(target, seconds):
    """One run: {cpu_s, runs, edges, last_new_edge_s (None: there was none), findings}, and the
    directory of its corpus."""
    binary, = make("fuzz", target + "_fuzz")
    work = os.path.join(BUILD, "fuzz/corpus", target)
    found = os.path.join(BUILD, "fuzz/findings", target.replace("/", "_")) + "-"
    before = set(glob.glob(found + "*"))
    words = os.path.join(ROOT, os.path.dirname(target), "testdata/fuzz",
                         os.path.basename(target) + ".dict")
    unpack(target, work)
    os.makedirs(os.path.dirname(found), exist_ok=True)
    command = ["nice", "-n", "19", binary, "-print_final_stats=1", "-timeout=30",
               "-report_slow_units=30",
               f"-artifact_prefix={found}", "-reload=0",
               *([f"-dict={words}"] if os.path.exists(words) else []), work]
    log = open(os.path.join(BUILD, "fuzz/findings", target.replace("/", "_") + ".log"), "w+",
               errors="replace")
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, cwd=BUILD)
    result = {"cpu_s": 0.0, "runs": 0, "edges": 0, "last_new_edge_s": None}
    at, begun, over = 0, False, None
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        time.sleep(1)
        result["cpu_s"] = cpu_of(child.pid)
        at, begun = read_log(log.name, at, begun, result)
        if not over and (stop or result["cpu_s"] >= seconds):
            over = time.monotonic() + 60
            # libFuzzer ends between two inputs then; SIGINT could deadlock on its own lock.
            # Popen.send_signal() would reap a child that has just ended.
            os.kill(child.pid, signal.SIGUSR1)
        elif over and time.monotonic() > over:
            os.kill(child.pid, signal.SIGKILL)
    read_log(log.name, at, begun, result)
    _, status, usage = os.wait4(child.pid, 0)
    result["cpu_s"] = usage.ru_utime + usage.ru_stime
    result["findings"] = sorted(set(glob.glob(found + "*")) - before)
    log.close()
    if status and not result["findings"] and not over:
        print(f"{target}: ended with {status:#x}, see {log.name}")
        result["findings"] = [log.name]
    return result, work, binary


def only_seemed_slow(binary, path):
    """libFuzzer's limits count wall time: on a busy machine, or in a stopped process, any input can
    exceed them. If this input does not exceed them in CPU time, it is no finding: its file is
    removed, and the answer is True."""
    if "-slow-unit-" not in path and "-timeout-" not in path:
        return False
    try:
        done = subprocess.run(["prlimit", f"--cpu={SLOW}", binary, path], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, timeout=SLOW_AGAIN)
    except subprocess.TimeoutExpired:
        return False
    fast = done.returncode == 0
    if fast:
        os.unlink(path)
    return fast


def run_long(seconds, names):
    record = read_record()
    bad = 0
    for target in sorted(names or [t for t, r in record.items() if not is_done(r)],
                         key=lambda t: record[t]["cpu_s"]):
        if stop:
            break
        result, work, binary = fuzz(target, seconds)
        result["findings"] = [f for f in result["findings"] if not only_seemed_slow(binary, f)]
        for f in result["findings"]:
            bad = 1
            print(f"{target}: FINDING {f}", flush=True)
        if not result["findings"]:
            minimize(binary, target, work)
        record = read_record()          # another run may have written it meanwhile
        row = record[target]
        if result["last_new_edge_s"] is not None:
            row["last_new_edge_s"] = round(row["cpu_s"] + result["last_new_edge_s"])
        row["cpu_s"] += round(result["cpu_s"])
        row["runs"] += result["runs"]
        row["edges"] = result["edges"]
        row["findings"] += len(result["findings"])
        row["inputs"], row["bytes"] = size_of(target)
        write_record(record)
        print(f"{target}: {result['cpu_s']:.0f} s, {result['runs']} runs, {result['edges']} edges, "
              f"last new at {result['last_new_edge_s']}", flush=True)
    return bad


def run_try(seconds, names):
    make("fuzz", *(t + "_fuzz" for t in names))

    def one(target):
        result, _, binary = fuzz(target, seconds)
        findings = [f for f in result["findings"] if not only_seemed_slow(binary, f)]
        for f in findings:
            print(f"{target}: FINDING {f}", flush=True)
        print(f"{target}: {result['cpu_s']:.0f} s, {result['runs']} runs, {result['edges']} edges",
              flush=True)
        return bool(findings)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = sum(pool.map(one, names))
    print(f"{len(names) - failed} passed, {failed} failed, 0 skipped")
    return int(failed > 0)


def run_seed(names):
    for target in names:
        binary, = make("fuzz", target + "_fuzz")
        work = os.path.join(BUILD, "fuzz/corpus", target)
        unpack(target, work)
        subprocess.run([os.path.join(ROOT, "fuzz/seeds.py"), target, work], check=True)
        print(f"{target}: {minimize(binary, target, work)} edges")


def merge_row(mine, base, theirs):
    """Adds the runs since base of theirs to mine, which may have had runs since base, too. The
    target has been quiet for as long as the less quiet of the two."""
    added = {c: theirs[c] - base[c] for c in ("cpu_s", "runs", "findings")}
    quiet = [r["cpu_s"] - r["last_new_edge_s"] for r in (mine, theirs)]
    quiet = quiet[1] if mine["cpu_s"] == base["cpu_s"] else min(quiet)
    for c, n in added.items():
        mine[c] += n
    mine["last_new_edge_s"] = mine["cpu_s"] - quiet


def run_merge(clone):
    committed = subprocess.run(["git", "-C", clone, "show", "HEAD:fuzz/record.tsv"],
                               capture_output=True, check=True, text=True)
    base = parse_record(committed.stdout)
    theirs = parse_record(open(os.path.join(clone, "fuzz/record.tsv")).read())
    for target in targets():
        before = base.get(target, dict.fromkeys(COLUMNS, 0))
        if target in theirs and theirs[target]["cpu_s"] > before["cpu_s"]:
            merge_target(target, clone, before, theirs[target])


def merge_target(target, clone, base, theirs):
    binary, = make("fuzz", target + "_fuzz")
    work = os.path.join(BUILD, "fuzz/merge", target)
    shutil.rmtree(work, ignore_errors=True)
    for root in ROOT, clone:
        unpack(target, work, root)
    edges = minimize(binary, target, work)
    shutil.rmtree(work)
    record = read_record()
    row = record[target]
    merge_row(row, base, theirs)
    row["edges"] = edges
    row["inputs"], row["bytes"] = size_of(target)
    write_record(record)
    print(f"{target}: {row['cpu_s']} s, {row['runs']} runs, {edges} edges", flush=True)


def run_coverage(names):
    names = names or targets()
    binaries = make("fuzzcov", *(t + "_replay" for t in names))
    seen = {}
    for target, binary in zip(names, binaries):
        raw, data = binary + ".profraw", binary + ".profdata"
        subprocess.run([binary], cwd=ROOT, check=True, env=os.environ | {"LLVM_PROFILE_FILE": raw},
                       stdout=subprocess.DEVNULL)
        subprocess.run(["llvm-profdata", "merge", "-sparse", raw, "-o", data], check=True)
        files = fuzzed_files(target)
        out = subprocess.run(["llvm-cov", "export", "-summary-only", f"-instr-profile={data}",
                              binary],
                             cwd=ROOT, check=True, capture_output=True, text=True).stdout
        per = {os.path.relpath(os.path.join(ROOT, f["filename"]), ROOT): f["summary"]["lines"]
               for f in json.loads(out)["data"][0]["files"]}
        lines = sum(per[f]["count"] for f in files if f in per)
        covered = sum(per[f]["covered"] for f in files if f in per)
        sizes = dict(zip(("inputs", "bytes"), size_of(target)))
        seen[target] = {"lines": lines, "covered": covered} | sizes
        print(f"{target}: {covered} of {lines} lines, {100 * covered / max(lines, 1):.1f} %")
        for f in files:
            told = "NOT IN IT"
            if f in per:
                told = f"{per[f]['covered']} of {per[f]['count']}, {per[f]['percent']:.1f} %"
            print(f"    {f}: {told}")
    record = read_record()
    for target, row in seen.items():
        record[target] |= row
    write_record(record)


def is_done(row):
    return row["cpu_s"] >= HOUR and row["cpu_s"] - row["last_new_edge_s"] >= QUIET


def run_doc(check=False):
    rows = ["| target | what of | CPU s | runs | edges | last new edge, CPU s ago | corpus | lines "
            "| findings |",
            "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for t, r in read_record().items():
        files = ", ".join(f"`{f.removeprefix(os.path.dirname(t) + '/').removeprefix('agent/')}`"
                          for f in fuzzed_files(t))
        share = f"{100 * r['covered'] / r['lines']:.0f} % of {r['lines']}" if r["lines"] else "-"
        rows.append(f"| `{t}` | {files} | {r['cpu_s']} | {r['runs']} | {r['edges']} | "
                    f"{r['cpu_s'] - r['last_new_edge_s']} | {r['inputs']}, {r['bytes']} B | "
                    f"{share} | {r['findings']} |")
    done = sum(is_done(r) for r in read_record().values())
    rows.append(f"\n{done} of {len(rows) - 2} have had an hour of CPU and 15 minutes of it without "
                f"a new edge.")
    was = open(PAGE).read()
    page = re.sub(r"(<!-- table -->\n).*?(<!-- end -->)",
                  lambda m: m.group(1) + "\n".join(rows) + "\n" + m.group(2), was, flags=re.S)
    if check and page != was:
        print("docs/fuzzing.md:1: not what fuzz/record.tsv says; run fuzz/run.py doc")
        return 1
    if page != was:
        open(PAGE, "w").write(page)
    return 0


def on_stop(*_):
    global stop
    stop = True


def main(words):
    signal.signal(signal.SIGTERM, on_stop)
    signal.signal(signal.SIGINT, on_stop)
    if words[:1] == ["long"]:
        return run_long(int(words[1]) if len(words) > 1 else 300, words[2:])
    if words[:1] == ["try"] and len(words) > 1:
        return run_try(int(words[1]), words[2:] or targets())
    if words[:1] == ["merge"] and len(words) == 2:
        return run_merge(words[1])
    if words[:1] == ["seed"]:
        return run_seed(words[1:])
    if words[:1] == ["coverage"]:
        return run_coverage(words[1:])
    if words in (["doc"], ["doc", "--check"]):
        return run_doc(check=len(words) > 1)
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
