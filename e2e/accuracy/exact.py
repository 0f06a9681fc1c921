# SPDX-License-Identifier: Apache-2.0
"""Programs that wait, allocate and leak a known amount, and print to the microsecond and byte what
each of their functions had (programs/told.h). `podflame record` records off-cpu, mem-alloc and
mem-inuse at once, beside other tools that look at the same process (oracles.py); hbm-alloc and
hbm-inuse, or on-gpu, of programs that use the stand-ins for a GPU (e2e/gpu); or rdma or
rdma-latency of programs that use the stand-in for libibverbs (e2e/rdma)."""
import glob
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, field, replace

import known
import oracles
import pprof
import programs

EVENTS = ("off-cpu", "mem-alloc", "mem-inuse")
GPU_EVENTS = ("hbm-alloc", "hbm-inuse")
WORK_EVENTS = ("on-gpu",)
GPU = os.path.join(known.BUILD, "gpu")
# An operation of these is an event of its own here: "rdma:send". The leaf of its stacks is the
# queue pair's "TYPE@DEVICE".
RDMA_EVENTS = ("rdma",)
LATENCY_EVENTS = ("rdma-latency",)
OF_RDMA = RDMA_EVENTS + LATENCY_EVENTS
# The map in which the probes' programs have the processes that they count.
PROCS = {"rdma": "rdma_procs", "rdma-latency": "latency_procs"}
IN_US = ("off-cpu", "on-gpu", *LATENCY_EVENTS)      # the others are in bytes
RDMA = os.path.join(known.BUILD, "rdma")
NVIDIA = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                      "podflame/nvidia")
SOURCES = os.path.join(known.HERE, "programs")


@dataclass
class Target:
    name: str
    language: str
    # {src}, {out}, {dir}: the folder of sources, the program, a directory of its own
    build: str
    run: str = "{out}"
    prefix: str = ""                # of a function's name in a stack
    needs: list = field(default_factory=list)
    oracles: list = field(default_factory=list)
    events: tuple = EVENTS
    error: float = 0                # allowed for bytes, as a part of them
    more: int = 0                   # allowed besides, in bytes for each function
    noise: str = ""                 # what else podflame sees, or why it is not exact
    # this part of a wait must have the cause that its function is for, or be runqueue
    causes: float = 0.95
    root: str = ""                  # the program runs in this root
    lacks: tuple = ()               # how leaves begin that podflame cannot see
    says: str = ""                  # nothing is counted, but record prints this (a pattern)
    cuda: tuple = ()                # on-cpu has these functions as those of CUDA's libraries
    children: bool = False          # they are recorded, too: the cgroup of the program
    shows: bool = False             # it waits once more, until podflame counts: await_counts()
    sample: bool = False


def c(name, compiler, **more):
    return Target(name, "C",
                  f"{compiler} -g -fno-optimize-sibling-calls -o {{out}} {{src}}/exact.c -lpthread",
                  needs=[compiler.split()[0]], **more)


def cxx(name, compiler, **more):
    return Target(name, "C++",
                  f"{compiler} -g -std=c++17 -fno-optimize-sibling-calls -o {{out}} "
                  f"{{src}}/exact.cc -lpthread",
                  needs=[compiler.split()[0]], **more)


def rust(name, flags):
    return Target(name, "Rust", f"rustc {flags} -o {{out}} {{src}}/exact.rs", prefix="exact::",
                  needs=["rustc"])


def python(name, command, root="", **more):
    more = {"error": 0.02, "noise": "objects of the interpreter's own", "causes": 0.9, **more}
    return Target(name, "Python", "true", f"{command} {{src}}/exact.py", "__main__.",
                  [root + command.split()[0]], root=root, **more)


TLAB = "objects are seen when a thread takes new space for them, a megabyte or so at once"


def java(major):
    p = programs.java("", major)
    runs = f"{programs.JDKS[major]}/bin/java" if major in programs.JDKS else f"JDK {major}"
    build = p.build[0].replace("{src}", "{src}/Exact.java")
    return Target(f"JDK {major}", "Java", build, f"{runs} -cp {{dir}} Exact", "Exact::", p.needs,
                  [oracles.async_profiler], EVENTS[:2], 0.05, more=3 << 20, causes=0.9, noise=TLAB)


# The entries of the driver have one of two forms: e2e/gpu/rules.mk.
def gpu(name, language, form, build, run="{out}", **more):
    return Target(name, language, build, f"env LD_LIBRARY_PATH={GPU}/{form}:{GPU} {run}",
                  events=GPU_EVENTS, **more)


def gpu_c(name, form, compiler, **more):
    return gpu(f"CUDA driver, {name}", "C", form,
               f"{compiler} -g -fno-optimize-sibling-calls -o {{out}} {{src}}/gpu.c "
               f"-L{GPU}/{form} -l:libcuda.so.1 -lpthread", needs=[compiler.split()[0]], **more)


def gpu_cxx(name, form, compiler, runtime, then="true", **more):
    return gpu(f"CUDA runtime, {name}", "C++", form,
               f"{compiler} -g -std=c++17 -fno-optimize-sibling-calls -o {{out}} {{src}}/gpu.cc "
               f"-L{GPU} -L{GPU}/{form} -l:{runtime} -l:libcuda.so.1 -lpthread && {then}",
               needs=[compiler.split()[0]], **more)


def gpu_python(name, form, command, **more):
    return gpu(f"CUDA driver, {name}", "Python", form, "true", f"{command} {{src}}/gpu.py",
               prefix="__main__.", needs=[command], **more)


# podflame's library reports the work of a GPU. It is loaded by the driver.
LIBRARY = os.path.join(known.BUILD, "cuda/libpodflame-cuda.so")


def working(t, source="on_gpu", library=LIBRARY):
    """The program of another target's compiler, driver and runtime that gives work to GPUs."""
    return replace(t, name=t.name + ", work", events=WORK_EVENTS,
                   build=re.sub(r"/gpu\.(c+)", rf"/{source}.\1", t.build),
                   run=f"env CUDA_INJECTION64_PATH={library} "
                       + t.run.replace("/gpu.py", f"/{source}.py"))


# NVIDIA's own libraries, as `.ci/deps long` unpacks them; the drivers by their Debian suites.
DRIVERS = {"bookworm": 535, "trixie": 550}
RUNTIME, CUPTI, BLAS = (f"{NVIDIA}/{name}-12/lib" for name in ("cudart", "cupti", "cublas"))
NVCC = f"{NVIDIA}/nvcc-13/bin/nvcc"
HIT, WHOLE = "as much as [1-9]", r"(100\.0|99\.\d) % of \d+ stacks are whole"


def gpu_none(name, build, driver, needs, says=HIT, **more):
    """Nothing is counted, and nothing breaks, where calls fail for want of a GPU."""
    return Target(f"no GPU, {name}", "C++" if NVCC in build else "C",
                  f"{build} -L{RUNTIME} -L{GPU}/thunk -l:libcuda.so.1 -lpthread -ldl -lrt",
                  f"env LD_LIBRARY_PATH={driver}:{RUNTIME}:{BLAS} {{out}}", events=GPU_EVENTS,
                  says=says, needs=[build.split()[0], f"{driver}/libcuda.so.1", *needs], **more)


def gpu_none_c(suite, name, runtime, **more):
    return gpu_none(f"driver {DRIVERS[suite]}{name}",
                    f"gcc -O2 -g -o {{out}} {{src}}/gpu_none.c -L{RUNTIME} -l:{runtime}",
                    f"{NVIDIA}/{suite}", [f"{RUNTIME}/{runtime}"], **more)


def gpu_none_nvcc(name, driver, source="gpu_none", flags="", needs=(), **more):
    """A program of NVIDIA's compiler. Unless the flags say otherwise, a runtime of CUDA 13 is in
    it, which refuses the drivers."""
    return gpu_none(f"nvcc, {name}",
                    f"{NVCC} -O2 -g -arch=sm_90 -o {{out}} {{src}}/{source}.cu {flags}", driver,
                    needs, **more)


SHARED = f"-cudart none -L{RUNTIME} -l:libcudart.so.12"
STATIC = f"-cudart none -L{RUNTIME} -l:libcudart_static.a"
WITH_BLAS = (f"{SHARED} -I{BLAS}/../include -L{BLAS} -l:libcublas.so.12 "
             "-Xlinker --allow-shlib-undefined")
GPU_NONE = [target for suite, version in DRIVERS.items() for target in (
    gpu_none_c(suite, "", "libcudart.so.12", cuda=("cudaGetDeviceCount",)),
    gpu_none_c(suite, ", static runtime", "libcudart_static.a"),
    gpu_none_nvcc(f"driver {version}", f"{NVIDIA}/{suite}", flags=SHARED,
                  needs=[f"{RUNTIME}/libcudart.so.12"], cuda=("cudaMalloc", "cudaGraphLaunch")),
    gpu_none_nvcc(f"driver {version}, static runtime", f"{NVIDIA}/{suite}", flags=STATIC,
                  needs=[f"{RUNTIME}/libcudart_static.a"]),
    gpu_none_nvcc(f"driver {version}, cuBLAS", f"{NVIDIA}/{suite}", "gpu_none_blas", WITH_BLAS,
                  [f"{BLAS}/libcublas.so.12"], cuda=("cublasCreate_v2", "cublasDgemm_v2")),
)]
# The runtime of CUDA 13 refuses these drivers; that of CUDA 12 refuses the stand-in, which lacks
# cuGetExportTable(). Neither asks for memory.
GPU_REFUSED = [
    gpu_none_nvcc("driver 550, runtime 13", f"{NVIDIA}/trixie", says="as much as"),
    gpu_none_nvcc("the stand-in driver", f"{GPU}/thunk", flags=SHARED,
                  needs=[f"{RUNTIME}/libcudart.so.12"]),
]


def working_none(t):
    """podflame's library in it says why it reports no work."""
    return replace(working(t, "gpu_none"), says="found no libcupti that it can use", cuda=())


def working_cupti(t):
    """NVIDIA's CUPTI, too, does not work without a GPU: CUPTI_ERROR_NOT_INITIALIZED."""
    t = working_none(t)
    return replace(t, name=f"{t.name}, CUPTI", says=r"CUPTI failed \(error 15\)",
                   run=t.run.replace(f":{RUNTIME}", f":{RUNTIME}:{CUPTI}"),
                   needs=[*t.needs, f"{CUPTI}/libcupti.so.12"])


def rdma(name, language, build, run="{out}", **more):
    return Target(f"RDMA, {name}", language, build, f"env LD_LIBRARY_PATH={RDMA} {run}",
                  shows=True, **{"events": RDMA_EVENTS, **more})


def rdma_c(name, source, compiler, **more):
    return rdma(name, "C++" if source.endswith(".cc") else "C",
                f"{compiler} -g -fno-optimize-sibling-calls -o {{out}} {{src}}/{source} "
                f"-libverbs -lpthread", needs=[compiler.split()[0]], **more)


def rdma_python(name, command, source="rdma.py", **more):
    return rdma(name, "Python", "true", f"{command} {{src}}/{source}", prefix="__main__.",
                needs=[command], **more)


def pingpong(kind):
    """A program of Debian's, as it is, with the stand-in."""
    program = f"/usr/bin/ibv_{kind.lower()}_pingpong"
    return rdma(f"Debian's ibv_{kind.lower()}_pingpong", "C", "true",
                f"{{src}}/rdma_pingpong.py {program} {kind}", children=True, needs=[program])


# Debian's own libibverbs, where calls fail for want of a device.
RDMA_NONE = (
    Target("no RDMA device", "C", "gcc -O2 -g -o {out} {src}/rdma_none.c -libverbs",
           events=RDMA_EVENTS, says=HIT, needs=["gcc"]),
    Target("no RDMA device, perftest", "C", "true", "{src}/rdma_none.sh", events=RDMA_EVENTS,
           needs=["ib_send_bw", "ib_write_lat", "ibv_devices", "ibv_devinfo"], children=True),
)


# As a program of nvcc is installed: the runtime is in it, and its symbols are in a debug file.
STRIPPED = ("cd {dir} && objcopy --only-keep-debug program program.debug && strip program && "
            "objcopy --add-gnu-debuglink=program.debug program")
LUA_CLOCK = "the clock that Lua can read has hundredths of a second"
GPU_TARGETS = [
    gpu_c("gcc -O2", "thunk", "gcc -O2", sample=True),
    gpu_c("gcc -O2, entries with frame pointers", "push", "gcc -O2"),
    gpu_c("gcc -O1, frame pointers", "thunk", "gcc -O1 -fno-omit-frame-pointer"),
    gpu_cxx("g++ -O2", "thunk", "g++ -O2", "libcudart.so.12", sample=True),
    gpu_cxx("clang++ -O2", "push", "clang++ -O2", "libcudart.so.12"),
    gpu_cxx("g++ -O2, static, stripped", "thunk", "g++ -O2", "libcudart_static.a", STRIPPED),
    gpu_python("CPython, Debian's", "thunk", "/usr/bin/python3", sample=True),
    *(gpu_python(f"CPython 3.{minor}", "thunk", programs.of_pyenv(minor))
      for minor in range(8, 14)),
]
STORM = gpu_c("100,000 launches a second", "thunk", "gcc -O2", error=0.15,
              noise="a sample of the launches")
OTHER = gpu_c("parcagpu", "thunk", "gcc -O2", lacks=("memcpy", "memset"),
              noise="parcagpu reports neither copies nor sets")
TARGETS = [
    c("gcc -O1, frame pointers", "gcc -O1 -fno-omit-frame-pointer",
      oracles=[oracles.memleak, oracles.offcputime], sample=True),
    c("gcc -O2", "gcc -O2"),
    c("musl, static", "musl-gcc -O2 -static"),
    c("jemalloc", "gcc -O2", run="env LD_PRELOAD=libjemalloc.so.2 {out}"),
    c("tcmalloc", "gcc -O2", run="env LD_PRELOAD=libtcmalloc_minimal.so.4 {out}"),
    c("mimalloc", "gcc -O2", run="env LD_PRELOAD=libmimalloc.so.2 {out}"),
    cxx("g++ -O2", "g++ -O2"),
    cxx("clang++ -O2", "clang++ -O2"),
    rust("rustc -O", "-O -g"),
    rust("rustc debug build", "-g"),
    rust("rustc -O, LTO, v0 names", "-O -g -C lto=fat -C symbol-mangling-version=v0"),
    Target("go", "Go", "CGO_ENABLED=0 go build -o {out} {src}/exact.go", prefix="main.",
           needs=["go"], oracles=[oracles.pprof],
           more=512,
           noise="what Go's runtime now and then allocates for itself there; pprof sees it, too"),
    python("CPython, Debian's", "/usr/bin/python3", sample=True),
    *(python(f"CPython 3.{minor}, libpython", programs.of_pyenv(minor)) for minor in range(8, 14)),
    python("CPython 3.14, another root", "/usr/bin/python3.14", programs.PYTHON_ROOT),
    python("CPython 3.11, beside memray",
           oracles.MEMRAY
           + " -m memray run --quiet --force --trace-python-allocators -o {dir}/memray.bin",
           oracles=[oracles.memray], more=10000, noise="memray's own memory"),
    *(java(major) for major in (11, 17, 21, 25)),
    *(Target(f"Lua {v}", "Lua", "true", f"lua{v} {{src}}/exact.lua", needs=[f"lua{v}"],
             events=EVENTS[:1], noise=LUA_CLOCK) for v in programs.LUAS),
    *GPU_TARGETS,
    *(working(t) for t in GPU_TARGETS),
    working(STORM, "on_gpu_storm"),
    working(OTHER, library=f"{GPU}/libparcagpucupti.so"),
    *GPU_NONE,
    *GPU_REFUSED,
    *(working_none(t) for t in GPU_NONE if t.language == "C"),
    *(working_cupti(t) for t in GPU_NONE if t.language == "C++"),
    rdma_c("gcc -O2", "rdma.c", "gcc -O2", sample=True),
    rdma_c("gcc -O1, frame pointers", "rdma.c", "gcc -O1 -fno-omit-frame-pointer"),
    rdma_c("ibv_wr, gcc -O2", "rdma_ex.c", "gcc -O2", sample=True),
    rdma_c("ibv_wr, clang -O2", "rdma_ex.c", "clang -O2"),
    rdma_c("g++ -O2", "rdma.cc", "g++ -O2 -std=c++17"),
    rdma_c("clang++ -O2", "rdma.cc", "clang++ -O2 -std=c++17"),
    rdma("rustc -O", "Rust", "rustc -O -g -o {out} {src}/rdma.rs", prefix="rdma::",
         needs=["rustc"]),
    rdma_python("CPython, Debian's", "/usr/bin/python3", sample=True),
    *(rdma_python(f"CPython 3.{minor}", programs.of_pyenv(minor)) for minor in range(8, 14)),
    *(pingpong(kind) for kind in ("RC", "UC", "UD")),
    *RDMA_NONE,
    rdma_c("latency, gcc -O2", "rdma_latency.c", "gcc -O2", events=LATENCY_EVENTS, sample=True),
    rdma_c("latency, g++ -O2", "rdma_latency.cc", "g++ -O2 -std=c++17", events=LATENCY_EVENTS),
    *(rdma_python(f"latency, {name}", command, "rdma_latency.py", events=LATENCY_EVENTS)
      for name, command in (("CPython, Debian's", "/usr/bin/python3"),
                            ("CPython 3.13", programs.of_pyenv(13)))),
]


class Run:
    """A program that waits for the order to begin."""

    def __init__(self, t, rounds):
        self.t = t
        self.folder = os.path.join(known.BUILD, "accuracy",
                                   re.sub(r"\W+", "-",
                                          f"exact {t.language} {t.name}").strip("-").lower())
        os.makedirs(self.folder, exist_ok=True)
        words = {"src": SOURCES, "out": f"{self.folder}/program", "dir": self.folder}
        done = subprocess.run(t.build.format(**words), shell=True, capture_output=True, text=True,
                              timeout=300)
        if done.returncode:
            raise known.Skip(f"does not build here: {(done.stderr or done.stdout).strip()[-150:]}")
        self.told, self.memray = f"{self.folder}/told", f"{self.folder}/memray.bin"
        command = t.run.format(**words).split() + [self.told, str(rounds)]
        if t.root:
            shutil.copy(command[-3], f"{t.root}/tmp/exact.py")
            self.told = f"{t.root}/tmp/told"
            command = ["chroot", t.root, *command[:-3], "/tmp/exact.py", "/tmp/told", str(rounds)]
        self.cgroup = known.new_cgroup() if t.children else None
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                                  preexec_fn=lambda: known.enter(self.cgroup))
        self.pid = self.p.pid
        self.what = ["--cgroup", self.cgroup] if self.cgroup else ["--pid", str(self.pid)]
        try:
            self.told_first = known.wait_line(self.p.stdout, b"ready", t.name, 60)
        except RuntimeError:
            self.end()
            raise

    def libc(self):
        with open(f"/proc/{self.pid}/maps", encoding="utf-8") as f:
            return next(line.split()[-1] for line in f if re.search(r"/libc[.-].*so", line))

    def late(self):
        """Microseconds that its threads were ready but waited for a CPU, since they began."""
        ns = 0
        for path in glob.glob(f"/proc/{self.pid}/task/*/schedstat"):
            try:
                with open(path, encoding="utf-8") as f:
                    ns += int(f.read().split()[1])
            except OSError:         # it has just ended
                pass
        return ns // 1000

    def work(self, rounds):
        before = self.late()
        self.p.stdin.write(b"\n")
        if self.t.shows:
            shown = known.wait_line(self.p.stdout, b"shown \\d+", self.t.name, 120)
            await_counts(int(shown.split()[-1]), PROCS[self.t.events[0]])
            self.p.stdin.write(b"\n")
        known.wait_line(self.p.stdout, b"done", self.t.name, 120 + 3 * rounds)
        self.was_late = max(0, self.late() - before)

    def finish(self):
        if not self.p.stdin.closed:
            self.p.stdin.close()
            self.p.wait(60)

    def end(self):
        if self.p.poll() is None:
            self.p.kill()
        self.p.wait()
        if self.cgroup:
            known.end_cgroup(self.cgroup)

    def known(self):
        """[(event, function, sum, how far from it, leaf or "")]; the leaf of off-cpu is the wait's
        cause"""
        with open(self.told, encoding="utf-8") as f:
            rows = [(line.rstrip("\n").split(" ", 3) + [""])[:4] for line in f]
        return [(event, name, *self.sum_of(n, leaf), leaf)
                for event, name, n, leaf in rows if event.split(":")[0] in self.t.events]

    def sum_of(self, text, leaf):
        n, _, distance = text.partition("~")
        return (0, 0) if leaf.startswith(self.t.lacks) else (int(n), int(distance or 0))


def await_counts(pid, procs):
    """Waits until the probes' programs count the process, and its entry in their map does not
    change any more: while the agent changes its probes, the programs do not trust what they see of
    new queue pairs."""
    entry = re.compile(rf'"tgid":{pid},"exec_id":\d+}},"value":{{"exec_id":\d+,'
                       r'"event_mask":[1-9][^{}]*')
    end, before = time.monotonic() + 60, None
    while time.monotonic() < end:
        done = subprocess.run(["bpftool", "-j", "map", "dump", "name", procs],
                              capture_output=True, text=True, check=False)
        found = entry.search(re.sub(r"\s", "", done.stdout))
        if found and before == found.group():
            return
        before = found and found.group()
        time.sleep(0.5)
    raise RuntimeError(f"podflame does not count {pid}: {done.stdout[-500:]}")


class Recording(known.Recording):
    """Records one event, with each wait or each allocation."""

    def __init__(self, event, run):
        self.event = event
        each = {"on-cpu": ["-F", "999"], "off-cpu": ["-b", "1us"], "mem-alloc": ["-s", "1"],
                "mem-inuse": ["-s", "1"]}.get(event, [])
        form = "pb.gz" if event in OF_RDMA else "folded"
        super().__init__(["-e", event, *each, *run.what], f"{run.folder}/{event}.{form}")

    def seen(self):
        """{event: rows of frames and a number}"""
        if self.event not in OF_RDMA:
            return {self.event: known.read_folded(self.output)}
        return rdma_rows(self.event, pprof.read(self.output))


def rdma_rows(event, samples):
    """Gives the stacks the queue pair as their leaf."""
    rows = {}
    for frames, n, labels in samples:
        queue = f"{labels.get('rdma_qp_type', '')}@{labels.get('rdma_device', '')}"
        rows.setdefault(f"{event}:{labels.get('rdma_operation', '')}", []).append(
            ([re.sub(r"^\[[cl]\] ", "", f) for f in frames] + [queue], n))
    return rows


def watch(t, run, rounds):
    """Returns ({event: rows of frames and a number}, {oracle: {(event, function): value}},
    [(oracle, why it was skipped)])."""
    recordings, watching, skips = [], {}, []
    try:
        for oracle in t.oracles:
            try:
                watching[oracle.__name__] = oracle(run)
            except known.Skip as why:
                skips.append((f"{oracle.__name__} beside {t.language}: {t.name}", str(why)))
        for event in (*t.events, *(("on-cpu", "off-cpu") if t.cuda else ())):
            recordings.append(Recording(event, run))
        run.work(rounds)
        for r in recordings:
            text = r.stop()
            says = t.says if r.event in t.events else WHOLE
            if not re.search(says, text):
                raise RuntimeError(f"{r.event}: record did not print '{says}': {text}")
        seen = {event: rows for r in recordings if r.event in t.events
                for event, rows in r.seen().items()}
        return seen, {name: end() for name, end in watching.items()}, skips
    finally:
        for r in recordings:
            if r.p.poll() is None:
                r.p.kill()


def compare(t, told, seen, theirs):
    rows = []
    for event, name, value, distance, leaf in told:
        pattern = re.compile(known.frame_pattern(t.prefix + name, ""))
        mine = [(frames, n) for frames, n in seen.get(event, [])
                if any(map(pattern.fullmatch, frames))
                and (event == "off-cpu" or leaf in ("", frames[-1]))]
        r = {"event": event, "name": name, "told": value, "seen": sum(n for _, n in mine),
             "oracles": {}}
        if distance:
            r["distance"] = distance
        if event == "off-cpu" and leaf:
            its = sum(n for frames, n in mine if frames[-1] in (f"[wait: {leaf}]",
                                                                "[wait: runqueue]"))
            r["cause"], r["causes"] = leaf, round(its / max(r["seen"], 1), 4)
        elif leaf:
            r["leaf"] = leaf
        for oracle, sums in theirs.items():
            if any(e == event for e, _ in sums) and \
                    (value == 0 or (event, t.prefix + name) in sums):
                r["oracles"][oracle] = sums.get((event, t.prefix + name), 0)
        rows.append(r)
    return rows


def unexplained(rows, seen):
    """Memory or work of a GPU, or bytes of requests, of none of the functions: there must be
    none."""
    for event in sorted(set(seen) - set(EVENTS)):
        n = sum(n for _, n in seen[event]) - sum(r["seen"] for r in rows if r["event"] == event)
        if n:
            unit = "us" if event.split(":")[0] in IN_US else "bytes"
            yield f"{event}: {n} {unit} of none of the functions"


def preempted(run, seen):
    """Microseconds that others had the CPU amid the program's waits, at most. A preempted thread
    waits for nothing, but the program counts that time. What came after a wake-up was seen as a
    wait."""
    woken = sum(n for frames, n in seen["off-cpu"] if frames[-1] == "[wait: runqueue]")
    return max(0, run.was_late - woken)


def allowed(t, r, sample):
    """How far podflame's value may be from the known one."""
    if r["event"] == "off-cpu":
        return 0.25 * r["told"] + 20000 if sample else 0.03 * r["told"] + 60000
    return t.error * r["told"] + t.more + r.get("distance", 0)


# a sample of 16 KiB; it counts preempted threads, too
BESIDE = {"async_profiler": 0.15, "offcputime": 0.02}
EXACT = {"pprof"}


def verdict(t, rows, ran, sample, preempted_us):
    wrong = [f"{o.__name__} knows none of the functions" for o in t.oracles
             if o.__name__ in ran
             and not any(r["told"] and o.__name__ in r["oracles"] for r in rows)]
    for r in rows:
        less = preempted_us if r["event"] == "off-cpu" else 0
        if not -allowed(t, r, sample) - less <= r["seen"] - r["told"] <= allowed(t, r, sample):
            wrong.append(f"{r['event']} {r['name']}: {r['seen']} seen, {r['told']} told")
        for who, theirs in r["oracles"].items():
            slack = max(allowed(t, r, sample), BESIDE.get(who, 0) * theirs)
            if abs(r["seen"] - theirs) > (0 if who in EXACT else slack):
                wrong.append(f"{r['event']} {r['name']}: {r['seen']} seen, {theirs} by {who}")
        if r["seen"] > 50000 and r.get("causes", 1) < t.causes:
            wrong.append(f"{r['name']}: {r['causes']:.2%} of its waits have its cause")
    return wrong


def not_of_cuda(t, run):
    """Functions of CUDA's libraries that on-cpu does not show as such."""
    if t.cuda:
        with open(f"{run.folder}/on-cpu.folded", encoding="utf-8") as f:
            shown = f.read()
        for name in t.cuda:
            if not re.search(rf";\[c\] {name}[; ]", shown):
                yield f"on-cpu has no function '[c] {name}'"


def once(t, rounds, sample):
    run = Run(t, rounds)
    try:
        seen, theirs, skips = watch(t, run, rounds)
        rows = compare(t, run.known(), seen, theirs)
        us = preempted(run, seen) if "off-cpu" in seen else 0
    finally:
        run.end()
    return {"name": t.name, "language": t.language, "noise": t.noise, "rows": rows, "skips": skips,
            "preempted_us": us,
            "wrong": [*verdict(t, rows, theirs, sample, us), *unexplained(rows, seen),
                      *not_of_cuda(t, run)]}


def test(t, rounds, sample):
    """A result for the report, with the oracles that were skipped; raises Skip."""
    known.need(t.needs)
    return once(replace(t, oracles=[]) if sample else t, rounds, sample)


def told_in_short(r):
    """For each event: how many functions, and the largest error, beyond what they know."""
    text = []
    for event in dict.fromkeys(x["event"] for x in r.get("rows", [])):
        errors = [max(0, abs(x["seen"] - x["told"]) - x.get("distance", 0)) / max(x["told"], 1)
                  for x in r.get("rows", []) if x["event"] == event]
        if errors:
            text.append(f"{event} {len(errors)} functions, {100 * max(errors):.2f} % off at most")
    if r.get("preempted_us"):
        text.append(f"preempted for {r['preempted_us'] / 1000:.0f} ms")
    return "; ".join(text)
