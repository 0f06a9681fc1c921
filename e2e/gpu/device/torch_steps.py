# SPDX-License-Identifier: Apache-2.0
"""Steps of PyTorch on a real device. Reads commands, a line each, from standard input, and answers
each with a line of JSON: what PyTorch itself measured. run.py calls it."""
import ctypes
import json
import select
import sys
import time

import torch

MIB = 1 << 20
kept = []


def tensor_of(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def keep_large():
    kept.extend(tensor_of(256) for _ in range(3))


def keep_small():
    kept.extend(tensor_of(8) for _ in range(10))


def drop_large():
    tensor_of(512)


def allocate(_):
    keep_large()
    keep_small()
    drop_large()
    torch.cuda.synchronize()
    return {"keep_large": 768 * MIB, "keep_small": 80 * MIB,
            "allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}


def measure(work, n):
    """The microseconds of all its kernels, by events of the device."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(n):
        work()
    end.record()
    end.synchronize()
    return round(1e3 * begin.elapsed_time(end))


def multiply_large():
    torch.mm(large, large)


def multiply_small():
    torch.mm(small, small)


def replay():
    graph.replay()


def prepare():
    global large, small, graph, model, optimizer, batch
    large = torch.rand(8192, 8192, device="cuda", dtype=torch.bfloat16)
    small = torch.rand(4096, 4096, device="cuda", dtype=torch.bfloat16)
    batch = torch.rand(256, 1024, device="cuda")
    model = torch.nn.Sequential(*(layer for _ in range(8) for layer in
                                  (torch.nn.Linear(1024, 1024), torch.nn.ReLU()))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for f in (multiply_large, multiply_small):
        measure(f, 3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(4):
            torch.mm(small, small)
    measure(replay, 2)


def work(n):
    if "large" not in globals():
        prepare()
    return {f.__name__: measure(f, n) for f in (multiply_large, multiply_small, replay)}


def step():
    optimizer.zero_grad(set_to_none=True)
    model(batch).square().mean().backward()
    optimizer.step()


def train(ms):
    if "model" not in globals():
        prepare()
    n, begin = 0, time.monotonic()
    while time.monotonic() < begin + ms / 1e3:
        for _ in range(10):
            step()
        torch.cuda.synchronize()
        n += 10
    return {"steps_per_s": round(n / (time.monotonic() - begin), 1)}


def idle(_):
    """Gives the device work now and then until the next command comes."""
    longest = 0
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        begin = time.monotonic()
        batch.add(1)
        longest = max(longest, time.monotonic() - begin)
        torch.cuda.synchronize()
    return {"longest_call_ms": round(1e3 * longest, 2)}


def profile(n):
    """PyTorch's own profiler, which uses CUPTI, too."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
        for _ in range(n):
            multiply_large()
        torch.cuda.synchronize()
    return {"kernels": sum(e.count for e in p.key_averages() if e.device_time_total > 0),
            "us": round(sum(e.self_device_time_total for e in p.key_averages()))}


if __name__ == "__main__":
    ctypes.CDLL("libcuda.so.1")     # podflame probes the driver before it is used
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        command, n = line.split()
        print(json.dumps(globals()[command](int(n))), flush=True)
