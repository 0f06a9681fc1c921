# SPDX-License-Identifier: Apache-2.0
"""Stopped processes: compares the stack that podflame's unwinder finds for each thread with those
of eu-stack and gdb.

Real programs under a little load on this machine are stopped at moments drawn by chance. `stackof`
walks the stacks with the code and the tables that the kernel would use.
"""
import bisect
import collections
import os
import random
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass

import known
import programs

STACKOF = os.path.join(known.BUILD, "accuracy", "stackof")
PORT = 26379


@dataclass
class Target:
    name: str
    language: str
    # a shell command that runs for long; {dir}: a folder of its own, {port}: a free port
    serve: str
    load: str = ""              # another command, which gives it work
    # which processes below `serve` are stopped: those with this in their command line; "": the
    # first
    process: str = ""
    needs: tuple = ()
    before: str = ""            # a command that runs first, to its end
    settle_s: float = 1.5
    sample: bool = False


PG = "/usr/lib/postgresql/15/bin"
AS_POSTGRES = "setpriv --reuid=postgres --regid=postgres --clear-groups --"
BASH = """f() {
    local i=$1
    if [ $i -gt 0 ]; then f $((i - 1)); else for k in {1..2000}; do x=$((x + k)); done; fi
}
while :; do f 20; done"""
PYTHON = """
import json, re
def down(n):
    if n: return down(n - 1)
    numbers = json.loads(json.dumps(list(range(3000))))
    return sorted(numbers, key=lambda x: len(re.sub('1', '', str(x))))
while True: down(30)
"""
NODE = """
function down(n) {
    return n ? down(n - 1) + 1 : JSON.stringify([...Array(3000).keys()]).replace(/1/g, '').length
}
function again() { for (let i = 0; i < 20; i++) down(25); setImmediate(again) }
again()
"""
JAVA = """
public class Work {
    static long down(int n) {
        return n > 0 ? down(n - 1) + 1 : new java.util.Random(n).ints(3000).sorted().sum();
    }
    public static void main(String[] args) throws Exception {
        new Thread(() -> { while (true) down(20); }).start();
        while (true) {
            new java.io.File("/").list();
            String.join(",", java.util.Collections.nCopies(1000, "x" + down(9)));
        }
    }
}
"""
NGINX = """
daemon off; error_log stderr; pid {dir}/nginx.pid; worker_processes 2; user root;
events {} http { access_log {dir}/access.log; client_body_temp_path {dir};
proxy_temp_path {dir}; fastcgi_temp_path {dir}; uwsgi_temp_path {dir}; scgi_temp_path {dir};
gzip on; gzip_types text/plain; gzip_min_length 1; default_type text/plain;
server { listen 127.0.0.1:PORT; root {dir}; } }
"""
HTTP = ("while :; do curl -s --compressed -o /dev/null "
        "http://127.0.0.1:{port}/page http://127.0.0.1:{port}/none; done")
FILES = {"work.py": PYTHON, "work.js": NODE, "Work.java": JAVA, "work.sh": BASH,
         "page": "a page of text\n" * 20000}

TARGETS = [
    Target("redis", "C",
           "exec redis-server --port {port} --bind 127.0.0.1 --save '' --dir {dir} --io-threads 2",
           "while :; do redis-benchmark -p {port} -q -n 20000 -c 20 -t set,lpush,lrange_100,mset; "
           "done",
           needs=("redis-server", "redis-benchmark"), sample=True),
    Target("nginx", "C", "exec nginx -p {dir} -c {dir}/nginx.conf", HTTP, "nginx: worker",
           needs=("nginx", "curl")),
    Target("postgres", "C",
           f"chown -R postgres {{dir}}; exec {AS_POSTGRES} {PG}/postgres -D {{dir}}/data -p "
           f"{{port}} -k {{dir}} "
           "-c listen_addresses=127.0.0.1",
           f"while :; do {AS_POSTGRES} pgbench -h 127.0.0.1 -p {{port}} -c 3 -T 60 postgres; done",
           "postgres: postgres", needs=(f"{PG}/postgres", "pgbench", "setpriv"), settle_s=3,
           before=f"rm -rf {{dir}}/data; chown postgres {{dir}} && {AS_POSTGRES} {PG}/initdb -A "
           f"trust -D {{dir}}/data && {AS_POSTGRES} {PG}/pg_ctl -s -D {{dir}}/data -o '-p {{port}} "
           f"-k {{dir}}' -w start && {AS_POSTGRES} pgbench -q -h {{dir}} -p {{port}} -i postgres; "
           f"{AS_POSTGRES} {PG}/pg_ctl -s -D {{dir}}/data -w stop"),
    Target("bash", "C", "exec bash {dir}/work.sh"),
    Target("python3", "C", "exec python3 {dir}/work.py", sample=True),
    Target("java", "C++", "exec java -cp {dir} Work", needs=("java", "javac"),
           before="javac -d {dir} {dir}/Work.java", settle_s=4),
    Target("node", "C++", "exec node {dir}/work.js", needs=("node",)),
    Target("a Rust program", "Rust", "exec {program} /dev/null 1000", needs=("rustc",)),
    Target("a Go program", "Go", "exec {program} /dev/null 1000", needs=("go",)),
]
# the known-answer program that is used for a language
BUILT = {"Rust": "rustc -O -g", "Go": "go"}


# ---- a target ----

def fill(text, folder, program=""):
    return text.replace("{dir}", folder).replace("{port}", str(PORT)).replace("{program}", program)


def prepare(t):
    known.need(t.needs)
    folder = f"/tmp/podflame-stopped-{os.getpid()}-" + re.sub(r"\W+", "-", t.name)
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, 0o755)
    for name, text in {**FILES, "nginx.conf": NGINX.replace("PORT", str(PORT))}.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text.replace("{dir}", folder))
    program = ""
    if "{program}" in t.serve:
        program = known.build(next(p for p in programs.PROGRAMS if p.language == t.language
                                   and p.name == BUILT[t.language]))[1]
    if t.before:
        done = subprocess.run(fill(t.before, folder), shell=True, capture_output=True, text=True,
                              timeout=120)
        if done.returncode:
            raise known.Skip(f"could not be prepared: "
                             f"{(done.stderr or done.stdout).strip()[-150:]}")
    return folder, program


def start(command, given=b""):
    p = subprocess.Popen(["bash", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, start_new_session=True)
    p.stdin.write(given)
    p.stdin.flush()
    return p


def end(p):
    """It and all below it."""
    for pid in below(p.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    p.wait()


def below(pid):
    """A process and all below it."""
    children = collections.defaultdict(list)
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as f:
                    children[int(f.read().rsplit(")", 1)[1].split()[1])].append(int(name))
            except OSError:
                pass
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += children[found[-1]]
    return found


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    for _ in range(2000):
        states = []
        for t in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{t}/stat", encoding="utf-8", errors="replace") as f:
                states.append(f.read().rsplit(")", 1)[1].split()[0])
        if all(s in "TtZX" for s in states):
            return True
        time.sleep(0.001)
    return False


# ---- who says what: {thread: (addresses from the leaf on, how it ended)} ----

def ours(pid):
    done = subprocess.run([STACKOF, str(pid)], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"stackof: {done.stderr.strip()}")
    stacks, names, tid = {}, {}, 0
    for line in done.stdout.splitlines():
        if line.startswith("TID"):
            tid = int(line.split()[1])
            stacks[tid] = ([], "")
        elif line.startswith("end: "):
            stacks[tid] = (stacks[tid][0], line[5:])
        elif line.startswith("0x"):     # other lines are frames of a runtime
            address, _, name = line.partition(" ")
            stacks[tid][0].append(int(address, 16))
            names[int(address, 16)] = name
    return stacks, names


def eu_stack(pid):
    done = subprocess.run(["eu-stack", "-q", "-n", "0", "-p", str(pid)], capture_output=True,
                          text=True, timeout=120)
    stacks, tid = {}, 0
    for line in done.stdout.splitlines():
        if m := re.match(r"TID (\d+):", line):
            tid = int(m[1])
            stacks[tid] = ([], "")
        elif m := re.match(r"#\d+ +(0x[0-9a-f]+)", line):
            stacks[tid][0].append(int(m[1], 16))
    for addresses, _ in stacks.values():
        if addresses and addresses[-1] == 0:    # the end, told as a frame
            addresses.pop()
    for line in done.stderr.splitlines():
        if (m := re.search(r"tid (\d+).*: (.*)", line)) and int(m[1]) in stacks:
            stacks[int(m[1])] = (stacks[int(m[1])][0], m[2])
    return stacks


GDB = """python
import gdb
for t in gdb.selected_inferior().threads():
    t.switch()
    f, pcs = gdb.newest_frame(), []
    try:
        while f and len(pcs) < 600:
            if f.type() != gdb.INLINE_FRAME: pcs.append('%#x' % f.pc())
            f = f.older()
    except gdb.error: pass
    print('STACK', t.ptid[1] or t.ptid[0], *pcs)
end
"""


def gdb(pid, folder):
    script = os.path.join(folder, "stacks.gdb")
    with open(script, "w", encoding="utf-8") as f:
        f.write(GDB)
    try:
        done = subprocess.run(["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex",
                               "set auto-load off",
                               "-p", str(pid), "-x", script], capture_output=True, text=True,
                              timeout=90)
    except subprocess.TimeoutExpired:
        return {}
    lines = [x.split() for x in done.stdout.splitlines() if x.startswith("STACK")]
    return {int(x[1]): ([int(a, 16) for a in x[2:]], "") for x in lines}


# ---- compare ----

def same(a, b):
    """Where a signal interrupted a function, podflame's address is one more: for every frame the
    byte before the address is in the function."""
    return a in (b, b + 1)


def common(a, b):
    n = 0
    while n < min(len(a), len(b)) and same(a[n], b[n]):
        n += 1
    return n


def kind(a, b):
    """How the first of two stacks relates to the second, and the number of frames they share."""
    n = common(a, b)
    if n == len(a) == len(b):
        return "equal", n
    if n == len(b):
        return "ours longer", n
    if n == len(a):
        return "theirs longer", n
    return "different", n


class Maps:
    def __init__(self, pid, functions):
        rows, self.functions = [], functions
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as f:
            for line in f:
                w = line.split(None, 5)
                lo, hi = (int(x, 16) for x in w[0].split("-"))
                name = os.path.basename(w[5].strip()) if len(w) > 5 else \
                    "JIT code" if "x" in w[1] else "no code"
                rows.append((lo, hi, name))
        self.rows = sorted(rows)
        self.starts = [r[0] for r in self.rows]

    def name(self, address):
        i = bisect.bisect_right(self.starts, address) - 1
        return self.rows[i][2] if i >= 0 and address < self.rows[i][1] else "nowhere"

    def text(self, addresses):
        return [f"{self.functions.get(a) or hex(a)} [{self.name(a)}]" for a in addresses]


def moment(pid, folder, result):
    """Stops the process once and compares. False: it could not be stopped, or has ended."""
    if not stop(pid):
        return False
    (us, names), them = ours(pid), eu_stack(pid)
    maps = Maps(pid, names)
    third = None
    for tid, (mine, why) in us.items():
        if tid not in them:
            continue
        theirs, their_why = them[tid]
        what, n = kind(mine, theirs)
        result["threads"] += 1
        result["frames"] += len(mine)
        result["finished"] += why == "ROOT"
        result[what] += 1
        if what == "equal":
            continue
        if third is None and shutil.which("gdb") and result["asked gdb"] < 3:
            result["asked gdb"] += 1
            third = gdb(pid, folder)
        g = (third or {}).get(tid, ([], ""))[0]
        vote = ("" if not g else "ours" if kind(mine, g)[0] == "equal"
                else "theirs" if kind(theirs, g)[0] == "equal" else "neither")
        note_difference(result, what, maps, mine, theirs, n, (why, their_why, vote))
    return True


def note_difference(result, what, maps, mine, theirs, n, said):
    last = maps.name(mine[n - 1]) if n else "the first frame"
    key = (f"{what}, after a frame in {last}; ours ended: {said[0]}; "
           f"eu-stack: {said[1] or 'no error'}")
    d = result["differences"].setdefault(key, {"n": 0, "gdb": collections.Counter(),
                                               "ours": maps.text(mine[max(0, n - 2):n + 4]),
                                               "theirs": maps.text(theirs[max(0, n - 2):n + 4])})
    d["n"] += 1
    if said[2]:
        d["gdb"][said[2]] += 1


def test(t, moments):
    """A result for the report; raises Skip."""
    known.need(["eu-stack", *t.needs])
    result = {"name": t.name, "language": t.language, "moments": 0, "threads": 0, "frames": 0,
              "finished": 0, "equal": 0,
              "ours longer": 0, "theirs longer": 0, "different": 0, "asked gdb": 0,
              "differences": {}, "wrong": []}
    folder, program = prepare(t)
    server = start(fill(t.serve, folder, program), b"\n")
    load = None
    try:
        time.sleep(0.5)
        if t.load:
            load = start(fill(t.load, folder))
        time.sleep(t.settle_s)
        for _ in range(moments):
            pids = [p for p in below(server.pid) if t.process in command_line(p)]
            if not pids:
                raise RuntimeError(f"{t.name}: no process '{t.process}'")
            pid = random.choice(pids) if t.process else pids[0]
            time.sleep(random.uniform(0.01, 0.2))
            try:
                result["moments"] += moment(pid, folder, result)
            except (FileNotFoundError, ProcessLookupError):
                pass            # it ended by itself
            finally:
                try:
                    os.kill(pid, signal.SIGCONT)
                except ProcessLookupError:
                    pass
    finally:
        for p in (load, server):
            if p:
                end(p)
        shutil.rmtree(folder, ignore_errors=True)
    for d in result["differences"].values():
        d["gdb"] = dict(d["gdb"])
    result["wrong"] = verdict(result)
    return result


def verdict(r):
    """eu-stack's stack may be longer or different only if gdb does not agree with it."""
    wrong = [] if r["threads"] else ["nothing was compared"]
    for key, d in r["differences"].items():
        if not key.startswith("ours longer") and d["gdb"].get("theirs"):
            wrong.append(f"{d['n']} {key}; gdb says what eu-stack says {d['gdb']['theirs']} times")
    return wrong
