#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [DIR]: on a machine with a GPU of NVIDIA, its CUDA toolkit and PyTorch: compares what
podflame sees of programs with what these measure themselves, and says what the library costs them.
`make test-device` calls it, as root. Leaves the profiles in DIR (build/device). It sleeps where
nothing outside of the agent says that the probes are in the process, or that CUPTI runs."""
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(HERE, "../../../build")))
PODFLAME = os.environ.get("PODFLAME", f"{BUILD}/podflame")
LIBRARY = os.environ.get("PODFLAME_CUDA", f"{BUILD}/cuda/libpodflame-cuda.so")
TO = sys.argv[1] if len(sys.argv) > 1 else f"{BUILD}/device"
counts = {"ok": 0, "FAIL": 0, "skip": 0}


def say(result, text):
    counts[result] += 1
    print(f"{result:4} {text}", flush=True)


def near(name, seen, truth, error):
    """error: relative."""
    off = abs(seen - truth) / truth if truth else abs(seen)
    say("ok" if off <= error else "FAIL",
        f"{name}: {seen:,.0f} of {truth:,.0f} ({100 * seen / truth if truth else 0:.2f} %)")


def is_true(name, value, seen=""):
    say("ok" if value else "FAIL", f"{name} {seen}".rstrip())


def read_line(stream, seconds):
    line, end = b"", time.monotonic() + seconds
    with selectors.DefaultSelector() as s:
        s.register(stream, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not s.select(max(0, end - time.monotonic())):
                raise RuntimeError(f"no line in {seconds} s: {line}")
            part = os.read(stream.fileno(), 1)
            if not part:
                raise RuntimeError(f"it ended: {line}")
            line += part
    return line.decode().strip()


class Program:
    def __init__(self, *command, injected=True, ready_s=90):
        self.name = os.path.basename(command[-1])
        env = {**os.environ}
        if injected:
            env["CUDA_INJECTION64_PATH"] = LIBRARY
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                                  env=env)
        while read_line(self.p.stdout, ready_s) != "ready":
            pass

    def order(self, command, n=0):
        self.p.stdin.write(f"{command} {n}\n".encode())

    def answer(self):
        return json.loads(read_line(self.p.stdout, 60))

    def ask(self, command, n=0):
        self.order(command, n)
        return self.answer()

    def idle(self, seconds):
        """Lets it launch something now and then. Returns how many ms the longest call took."""
        self.order("idle")
        time.sleep(seconds)
        self.order("work", 1)       # any command ends it
        longest = self.answer()["longest_call_ms"]
        self.answer()
        return longest

    def end(self):
        """Returns its exit status."""
        self.p.stdin.close()
        return self.p.wait(timeout=30)


class Recording:
    """podflame record, from its "recording" to end()."""

    def __init__(self, program, event, name, *options):
        self.path = f"{TO}/{name}.folded"
        self.log = f"{TO}/{name}.log"
        command = [PODFLAME, "record", "--event", event, "--pid", str(program.p.pid), "-o",
                   self.path, *options]
        env = {**os.environ, "LD_LIBRARY_PATH": os.environ.get("PODFLAME_LIBS", "")}
        self.p = subprocess.Popen(command, stderr=open(self.log, "wb"), env=env)
        end = time.monotonic() + 30
        while b"recording" not in open(self.log, "rb").read():
            if time.monotonic() > end or self.p.poll() is not None:
                raise RuntimeError(f"podflame does not record: {open(self.log).read()}")
            time.sleep(0.02)

    def end(self):
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGINT)
        status = self.p.wait(timeout=90)
        text = open(self.log).read()
        if status:
            raise RuntimeError(f"podflame record: {status}: {text}")
        print("     | " + text.strip().replace("\n", "\n     | "))
        return [(line.rsplit(" ", 1)[0].split(";"), int(line.rsplit(" ", 1)[1]))
                for line in open(self.path)]


def of(profile, function, leaf=""):
    """The sum below a function, of the stacks whose leaf matches."""
    name = re.compile(rf"(\[.\] )?([\w.]+(\.|::))?{function}(\(.*)?$")
    return sum(value for stack, value in profile
               if any(name.match(frame) for frame in stack[2:]) and re.search(leaf, stack[-1]))


LEAVES = {"launch_first": r"void first_kernel<float>\(float\)", "launch_second": "second_kernel",
          "launch_copy": "memcpy HtoD", "launch_set": "memset", "launch_graph": "node_kernel",
          "launch_in_thread": "second_kernel"}


# How long the kernels of a call spin. What else a call takes, the device's events measure, with
# some microseconds around it.
KERNELS_US = {"launch_first": 1000, "launch_second": 3000, "launch_graph": 8 * 250,
              "launch_in_thread": 2000}
ROUNDS = 150


def time_of_work():
    """Three sessions in one process: CUPTI starts and is removed."""
    p = Program(KNOWN, "time")
    for i in range(3):
        r = Recording(p, "on-gpu", f"time-{i}")
        time.sleep(2.5)
        truth = p.ask("work", ROUNDS)
        time.sleep(1.5)
        profile = r.end()
        for function, us in truth.items():
            exact = KERNELS_US.get(function, 0) * ROUNDS
            near(f"session {i}: {function}", of(profile, function, LEAVES[function]),
                 exact or us, 0.005 if exact else 0.05)
        print(f"     longest launch while CUPTI is removed: {p.idle(1.5)} ms")
    is_true("the program ends well", p.end() == 0)


def waits():
    p = Program(KNOWN, "time")
    r = Recording(p, "off-cpu", "off-cpu")
    truth = p.ask("block", 100)["waited_us"]
    profile = r.end()
    near("off-cpu: waits for the GPU", sum(
        v for s, v in profile if s[-1] == "[wait: gpu]" and any(f.startswith("block") for f in s)),
        truth, 0.02)
    r = Recording(p, "on-cpu", "on-cpu")
    p.ask("work", 60)
    profile = r.end()
    near("on-cpu: below frames of CUDA, while it polls",
         sum(v for s, v in profile if any(f.startswith("[c] ") for f in s)),
         sum(v for _, v in profile), 0.05)
    is_true("the program ends well", p.end() == 0)


def memory():
    for event, dropped in (("hbm-alloc", 1), ("hbm-inuse", 0)):
        p = Program(KNOWN, "memory")
        r = Recording(p, event, event)
        time.sleep(2.5)
        truth = p.ask("allocate")
        time.sleep(6 if event == "hbm-inuse" else 0.5)
        profile = r.end()
        for function, size in truth.items():
            wanted = size if dropped or function.startswith("keep") else 0
            if function == "keep_physical" and not dropped:
                wanted //= 2
            near(f"{event}: {function}", of(profile, function), wanted, 0)
        print("     in all: {:,} of {:,}".format(sum(v for _, v in profile), sum(truth.values())))
        is_true("the program ends well", p.end() == 0)
    p = Program(KNOWN, "memory")
    r = Recording(p, "hbm-inuse", "reset")
    time.sleep(2.5)
    truth = p.ask("allocate")
    used = p.ask("reset")
    time.sleep(6)
    profile = r.end()
    near("after a reset of the device: keep_after_reset", of(profile, "keep_after_reset"),
         7 << 20, 0)
    # The driver frees what belongs to the context. Pools and physical memory belong to the device.
    ended = sum(truth[f] for f in ("keep_malloc", "keep_pitch", "keep_array", "keep_in_thread"))
    near("a reset of the device: what the driver frees", used["used_before"] - used["used_after"],
         ended, 0)
    near("after a reset of the device: in all", sum(v for _, v in profile),
         (7 << 20) + truth["keep_async"] + truth["keep_physical"] // 2, 0)
    is_true("the program ends well", p.end() == 0)


def storm():
    """More launches than podflame reports: the estimate, and what a launch costs."""
    plain, p = (Program(KNOWN, "time", injected=injected) for injected in (False, True))
    for each in (plain, p):
        each.ask("storm", 500)
    rows = []
    for i in range(3):
        row = [plain.ask("storm", 1000), p.ask("storm", 1000)]
        r = Recording(p, "on-gpu", f"storm-{i}")
        time.sleep(2)
        row.append(p.ask("storm", 1500))
        time.sleep(1)
        profile = r.end()
        p.idle(1.5)
        one, three = of(profile, "storm_one"), of(profile, "storm_three")
        # Each session reports about 4,000 launches: the ratio has an error of 6 %.
        is_true("storm: one to three", one and abs(three / one - 3) < 0.7,
                f"{one:,} {three:,} us, {(one + three) / row[2]['launches']:.3f} us each")
        rows.append(row)
    for k, name in enumerate(("no library", "idle", "recorded")):
        print(f"     {name}: us of CPU per launch: "
              + " ".join(f"{1000 * row[k]['cpu_ms'] / row[k]['launches']:.3f}" for row in rows)
              + "; launches a second: "
              + " ".join(f"{1000 * row[k]['launches'] / row[k]['ms']:,.0f}" for row in rows))
    is_true("the programs end well", plain.end() == 0 and p.end() == 0)


def torch_memory():
    p = Program(PYTHON, f"{HERE}/torch_steps.py")
    r = Recording(p, "hbm-inuse", "torch-inuse")
    time.sleep(2.5)
    truth = p.ask("allocate")
    time.sleep(6)
    profile = r.end()
    # PyTorch has asked the driver for 20 MiB for two small tensors each; the function has the rest.
    for function, size in (("keep_large", truth["keep_large"]),
                           ("keep_small", truth["keep_small"] * 20 // 16)):
        near(f"PyTorch, hbm-inuse: {function}", of(profile, function), size, 0)
    near("PyTorch, hbm-inuse: what the driver gave", sum(v for _, v in profile),
         truth["reserved"], 0)
    is_true("PyTorch ends well", p.end() == 0)


def torch_time():
    plain = Program(PYTHON, f"{HERE}/torch_steps.py", injected=False)
    p = Program(PYTHON, f"{HERE}/torch_steps.py")
    for each in (plain, p):
        each.ask("work", 5)
    r = Recording(p, "on-gpu", "torch-time")
    time.sleep(2.5)
    truth = p.ask("work", 100)
    time.sleep(1.5)
    profile = r.end()
    p.idle(1)
    for function, us in truth.items():
        near(f"PyTorch, on-gpu: {function}", of(profile, function), us, 0.05)
    for event in ("on-cpu", "off-cpu"):
        r = Recording(p, event, f"torch-{event}")
        p.ask("train", 2000)
        profile = r.end()
        is_true(f"PyTorch, {event}: below train()", of(profile, "train"),
                f"{of(profile, 'train'):,} of {sum(v for _, v in profile)}")
    for _ in range(3):
        rates = [plain.ask("train", 1500), p.ask("train", 1500)]
        r = Recording(p, "on-gpu", "train")
        p.ask("train", 1500)
        rates.append(p.ask("train", 1500))
        r.end()
        p.ask("train", 1000)
        print("     training, steps a second without the library, with it, recorded: "
              + " ".join(str(rate["steps_per_s"]) for rate in rates))
    print(f"     PyTorch's own profiler after podflame: {p.ask('profile', 20)}, without: "
          f"{plain.ask('profile', 20)}")
    is_true("PyTorch ends well", p.end() == 0 and plain.end() == 0)


def run(case):
    if SELECTED and case.__name__ not in SELECTED:
        return
    if case.__name__.startswith("torch") and not HAS_TORCH:
        say("skip", f"{case.__name__}: {PYTHON} has no PyTorch")
        return
    begin = time.monotonic()
    print(f"---- {case.__name__}", flush=True)
    try:
        case()
    except Exception as e:      # the next case can run
        say("FAIL", f"{case.__name__}: {e!r}")
    print(f"     {time.monotonic() - begin:.0f} s", flush=True)


def finish():
    print(f"{counts['ok']} passed, {counts['FAIL']} failed, {counts['skip']} skipped")
    sys.exit(counts["FAIL"] != 0)


SELECTED = os.environ.get("T", "").split()
PYTHON = os.environ.get("PYTHON", "python3")
KNOWN = f"{TO}/known"
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
for needed in ("/dev/nvidia0", NVCC):
    if not os.path.exists(needed):
        say("skip", f"no {needed} on this machine: it needs a GPU of NVIDIA and CUDA's compiler")
        finish()
os.makedirs(TO, exist_ok=True)
subprocess.run([NVCC, "-O2", "-g", "-arch=native", "-cudart", "static",
                "-Xcompiler", "-fno-optimize-sibling-calls", "-o", KNOWN,
                f"{HERE}/known.cu", "-lcuda"], check=True)
HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL,
                           check=False).returncode == 0
for each in (time_of_work, waits, memory, storm, torch_memory, torch_time):
    run(each)
finish()
