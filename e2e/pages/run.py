#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of pages of docs/ as they stand there, against a real `podflame local` at its
default address: in a network namespace of its own, so that the address is free. long.sh runs it, as
root. Commands that need a cluster are left out: e2e/tests has the YAML of such pages. Ends with
"N passed, N failed, N skipped"."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../page"))
import queries  # noqa: E402

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
PAGES = ("pprof.md", "api.md")
PROGRAM = "4242"    # the PID of the pages' program, which is a busy one in Go
COMMAND = re.compile(r"(\$ )?(podflame|go|protoc|curl) ")
ROWS = 20_000


def blocks_of(page):
    """Blocks of code that begin with a command."""
    with open(os.path.join(HERE, "../../docs", page), encoding="utf-8") as file:
        blocks = re.findall(r"^```\w*\n(.*?)^```", file.read(), re.S | re.M)
    return [b for b in blocks if COMMAND.match(b)]


def commands_of(page):
    """A line each; a line that begins with blanks, or follows a backslash, goes on with it."""
    for block in blocks_of(page):
        block = re.sub(r"^\$ ", "", block, flags=re.M)
        yield from re.split(r"(?<!\\)\n(?! |$)", block.rstrip("\n"))


def run(command, folder, pid):
    """Whether it succeeds. An answer of the hub says by itself whether it does."""
    done = subprocess.run(["bash", "-c", command.replace(PROGRAM, str(pid))], cwd=folder,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120, check=False)
    refused = re.search(rb'"OPT_STATUS":"(?!SUCCESS)', done.stdout)
    ok = done.returncode == 0 and not refused
    print("ok  " if ok else "FAIL", command.splitlines()[0], flush=True)
    if not ok:
        print(done.stdout.decode(errors="replace")[-2000:], flush=True)
    return ok


def run_pages(folder):
    program = os.path.join(folder, "program")
    shutil.copytree(os.path.join(HERE, "../formats/busy"), program)
    subprocess.run(["go", "build", "-o", "busy", "."], cwd=program, check=True)
    with subprocess.Popen([os.path.join(program, "busy")], stdout=subprocess.DEVNULL) as busy:
        try:
            return [run(c, program, busy.pid) for page in PAGES for c in commands_of(page)]
        finally:
            busy.kill()


def main():
    if "OWN_NETWORK" not in os.environ:
        os.environ["OWN_NETWORK"] = "1"
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    os.environ["PATH"] = BUILD + ":" + os.environ["PATH"]
    queries.CONFIG = queries.CONFIG.replace("api: {port: 0}\n", "")
    with tempfile.TemporaryDirectory() as folder, queries.Hub(ROWS):
        right = run_pages(folder)
    n = sum(right)
    print(f"{n} passed, {len(right) - n} failed, 0 skipped")
    return 0 if right and n == len(right) else 1


if __name__ == "__main__":
    sys.exit(main())
