#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [--root DIR] [COMMAND...]: what the README promises, on a machine with nothing on it.
Makes a bare Debian 12 (root.py) and runs the commands in it; without any, those of the README.
Prints how each command ended, and the last words of each that failed; all output lies in
build/fresh. Ends with "N passed, N failed, N skipped", which adds up the counts that the commands
print themselves. With --root it uses the folder DIR as it is, or makes it, and keeps it. Without
--root it makes a new folder, and removes it at the end, with all that was started in it. Network
and cgroups are this machine's: do not run another cluster of podflame on it meanwhile."""
import argparse
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import root as roots

OUT = os.environ.get("BUILD", f"{roots.REPO}/build") + "/fresh"
README = ["make demo", "make demo-down", "make test"]
LIMIT_S = 3 * 3600  # of one command
CLUSTERS = ["demo", "e2e"]  # as e2e/lib.sh names them
# The folder becomes the root of a mount namespace, not by chroot: a process that enters the
# namespace by its file must land there, too. Mounts that are made in it spread in it, as on a
# machine that systemd set up.
ENTER = """
cd "$1"
mount --bind . .
cd "$1"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
mkdir -p .before
pivot_root . .before
cd /
umount -l .before
rmdir .before
mount --make-rshared /
echo entered
exec sleep infinity
"""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Stopped(Exception):
    """A signal asked this program to end."""


class TooLong(Exception):
    """A command ran for longer than it may."""


def on_signal(number, _frame):
    raise TooLong() if number == signal.SIGALRM else Stopped(signal.Signals(number).name)


def on_signals(do):
    for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
        signal.signal(number, do)


def prctl(option, value):
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def wait_for(child, seconds):
    """Waits for the child and returns its status. Processes that the commands left behind are
    this program's children: reaps them."""
    signal.alarm(seconds)
    try:
        while True:
            ended, status = os.waitpid(-1, 0)
            if ended == child.pid:
                child.returncode = os.waitstatus_to_exitcode(status)
                return child.returncode
    finally:
        signal.alarm(0)


def processes():
    """All descendants of this process."""
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                parents[int(pid)] = int(f.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            pass
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return mine - {os.getpid()}


def processes_of(folder):
    """All processes whose root directory is the folder."""
    found, own = set(), os.stat(folder)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.path.samestat(os.stat(f"/proc/{pid}/root"), own):
                found.add(int(pid))
        except OSError:
            pass
    return found


class Machine:
    """A root as a machine of its own. Its mounts exist as long as the process that holds them."""

    def __init__(self, folder):
        self.folder = folder
        self.holder = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh",
                                        "-ec", ENTER, "sh", folder],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       start_new_session=True,
                                       preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
        if self.holder.stdout.readline() != b"entered\n":
            raise roots.Missing("the folder cannot become a root here: see above")

    def start(self, command, log):
        env = [f"{name}={value}" for name, value in roots.environment().items()]
        return subprocess.Popen(["nsenter", f"--mount=/proc/{self.holder.pid}/ns/mnt", "env", "-i",
                                 *env, "bash", "-c",
                                 f"cd /{roots.PROJECT} && {command}"], stdin=subprocess.DEVNULL,
                                stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def run(self, command, log, seconds):
        """Runs the command and returns its status, or that it ran too long."""
        child = self.start(command, log)
        try:
            return wait_for(child, seconds)
        except TooLong:
            return f"ran for {seconds} s"
        finally:
            self.end_group(child.pid)

    @staticmethod
    def end_group(pid):
        """Ends what is left of a command's process group. What a command leaves to run on purpose
        has a session of its own."""
        for number, seconds in (signal.SIGTERM, 30), (signal.SIGKILL, 5):
            end = time.monotonic() + seconds
            try:
                os.killpg(pid, number)
                while time.monotonic() < end:
                    reap()
                    os.killpg(pid, 0)
                    time.sleep(0.1)
            except ProcessLookupError:
                return

    def left_running(self):
        return processes() - {self.holder.pid}

    def end(self):
        """Takes clusters down first, which undoes their changes of cgroups and network; then
        kills all that runs."""
        for name in CLUSTERS:
            if os.path.exists(f"{self.folder}/var/lib/podflame-{name}"):
                self.run(f"TK_DIR=/var/lib/podflame-{name} NETNS=podflame-{name} "
                         f"e2e/cluster/down.sh", subprocess.DEVNULL, 180)
        end_all(processes)


def end_all(find):
    end = time.monotonic() + 60
    while (left := find()) and time.monotonic() < end:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        time.sleep(0.1)
    if left:
        print(f"still there: processes {sorted(left)}")


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def counts(text, good):
    """The counts in a command's last words; a command that prints none counts as one test."""
    said = re.findall(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", text, re.MULTILINE)
    passed, failed, skipped = map(int, said[-1]) if said else (int(good), int(not good), 0)
    return passed, failed or int(not good), skipped


def last_words(text):
    """`make test` says at its end what failed; another command says it in its last lines."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if re.match(r"failed(:| at first)", line)),
                 max(0, len(lines) - 60))
    return "\n".join("    | " + line for line in lines[first:][:400])


def step(machine, command):
    """Runs a command and prints how it ended: tests passed, failed, skipped."""
    begin = time.monotonic()
    path = f"{OUT}/{re.sub(r'[^A-Za-z0-9]+', '_', command)[:60]}.log"
    with open(path, "w", encoding="utf-8") as log:
        status = machine.run(command, log, LIMIT_S)
    with open(path, encoding="utf-8", errors="replace") as log:
        text = log.read()
    result = counts(text, status == 0)
    print(f"{command:<44} {'{:4} passed, {} failed, {} skipped'.format(*result)}, "
          f"{time.monotonic() - begin:.0f} s", flush=True)
    for line in sorted(set(re.findall(r"^ *skip(?:ped)?: .*", text, re.MULTILINE))):
        print("    " + line.strip())
    if result[1]:
        print(f"    status {status}; all of it: {path}\n{last_words(text)}", flush=True)
    return result


def after_down(machine):
    """The README says that make demo-down removes all of the demo."""
    end = time.monotonic() + 20
    while (left := machine.left_running()) and time.monotonic() < end:
        reap()
        time.sleep(0.2)
    names = []
    for pid in left:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                names.append(f.read().replace(b"\0", b" ").decode(errors="replace")[:100])
        except OSError:
            pass
    if names:
        print("FAIL make demo-down left running: " + "; ".join(names))
    return (int(not names), int(bool(names)), 0)


def keep_logs(folder):
    """Copies the logs of suites and end-to-end tests out of the folder."""
    for name in "test", "e2e":
        shutil.rmtree(f"{OUT}/{name}", ignore_errors=True)
        if os.path.isdir(f"{folder}/{roots.PROJECT}/build/{name}"):
            shutil.copytree(f"{folder}/{roots.PROJECT}/build/{name}", f"{OUT}/{name}",
                            ignore_dangling_symlinks=True)


def run(folder, commands):
    """Tests passed, failed, skipped."""
    if not os.path.exists(f"{folder}/etc"):
        begin = time.monotonic()
        roots.debian(folder)
        print(f"a bare Debian 12 in {folder} ({time.monotonic() - begin:.0f} s)", flush=True)
    roots.network(folder)
    roots.repository(folder)
    machine, results = None, []
    try:
        machine = Machine(folder)
        for command in commands:
            results.append(step(machine, command))
            if command == "make demo-down":
                results.append(after_down(machine))
    finally:
        on_signals(signal.SIG_IGN)
        if machine:
            machine.end()
        keep_logs(folder)
    return [sum(column) for column in zip(*results)]


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--root")
    arguments.add_argument("commands", nargs="*", metavar="COMMAND")
    args = arguments.parse_args()
    if os.geteuid():
        print("skip: needs root (mount namespaces, packages)\n0 passed, 0 failed, 1 skipped")
        return 0
    on_signals(on_signal)
    signal.signal(signal.SIGALRM, on_signal)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    os.makedirs(OUT, exist_ok=True)
    folder = os.path.abspath(args.root or f"{OUT}/root")
    result = (0, 1, 0)
    try:
        if not args.root:
            remove(folder)  # of a run that was killed
        result = run(folder, args.commands or README)
    except (roots.Missing, subprocess.CalledProcessError, OSError) as e:
        print(f"FAIL {e}")
    except Stopped as e:
        print(f"FAIL stopped by {e}")
    finally:
        on_signals(signal.SIG_IGN)
        end_all(processes)
        if not args.root:
            remove(folder)
    print("{} passed, {} failed, {} skipped".format(*result))
    return int(result[1] > 0)


def remove(folder):
    if os.path.exists(folder):
        end_all(lambda: processes_of(folder))
    subprocess.run(["rm", "-rf", "--one-file-system", folder, f"{folder}.new"], check=True)


if __name__ == "__main__":
    sys.exit(main())
