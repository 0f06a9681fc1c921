#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rdma_pingpong PROGRAM TYPE TOLD ROUNDS: runs a pingpong program of Debian's
ibverbs-utils with the stand-in of e2e/rdma, as its server, and is the client. The protocol is that
of told.h. The known sums are those that the stand-in writes when the program ends."""
import os
import re
import socket
import subprocess
import sys
import time

program, kind, told, rounds = sys.argv[1:]
SIZE, DEPTH = 1000, 8
PORT = 18515 + os.getpid() % 1000
COUNTS = told + ".counts"
# What the server posts before it waits for the client: no probe sees it. A datagram has 40 bytes
# more for its address.
FIRST = DEPTH * (SIZE + 40 * (kind == "UD"))


def probed(pid, library):
    """How many bytes of the library's code differ from its file: podflame's probes."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as f:
        maps = re.findall(rf"^(\w+)-(\w+) r-xp (\w+) \S+ \d+ +(\S*/{library}\S*)$", f.read(), re.M)
    n = 0
    for start, end, offset, path in maps:
        size = int(end, 16) - int(start, 16)
        with open(f"/proc/{pid}/mem", "rb") as mem, open(path, "rb") as file:
            mem.seek(int(start, 16))
            file.seek(int(offset, 16))
            n += sum(a != b for a, b in zip(mem.read(size), file.read(size)))
    return n


def await_probes(pid, library, least):
    while probed(pid, library) < least:
        time.sleep(0.01)


def connect():
    while True:
        try:
            return socket.create_connection(("127.0.0.1", PORT))
        except ConnectionRefusedError:
            time.sleep(0.01)


print("ready", flush=True)
sys.stdin.readline()
server = subprocess.Popen(
    [program, "-p", str(PORT), "-n", rounds, "-s", str(SIZE), "-r", str(DEPTH)],
    env={**os.environ, "STANDIN_RDMA_COUNTS": COUNTS}, stdout=subprocess.DEVNULL)
with connect() as client:
    await_probes(server.pid, "libibverbs.so", 1)
    client.sendall(b"0001:000001:000001:" + b"0" * 32 + b"\0")
    client.recv(1000)
    await_probes(server.pid, "libibverbs/libstandin0", 2)
    print("shown", server.pid, flush=True)      # as await_counts() of rdma.h
    sys.stdin.readline()
    client.sendall(b"done\0")
    if server.wait():
        sys.exit(f"{program}: {server.returncode}")
with open(COUNTS, encoding="utf-8") as f:
    sums = [int(n) for n in f.read().split()]
name = f"[{program}]"
with open(told, "w", encoding="utf-8") as f:
    print(f"rdma:send {name} {sums[0]} {kind}@standin_0", file=f)
    print(f"rdma:receive {name} {sums[5] - FIRST} {kind}@standin_0", file=f)
print("done", flush=True)
sys.stdin.read()
