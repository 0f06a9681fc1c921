# SPDX-License-Identifier: Apache-2.0
"""The roles of podflame as processes, without a cluster: an API server (apiserver.py), a hub, a
node's agent, and containers that are only cgroups. Everything lies in one directory, which is /tmp
for the processes."""
import contextlib
import glob
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback

import apiserver

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../accuracy"))
import limit  # noqa: E402

BUILD = os.environ.get("BUILD", "build")
NODE, NS = "crash-node", "podflame-system"
POD_UID = f"{os.getpid():08x}-91e0-4a28-870a-232376283f%02d"  # nobody else's on this machine
BUILD_ID_NOTE = bytes([4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0]) + b"GNU\0"


def until(what, fn, seconds=120):
    """Waits until fn() is true; the limit is generous, for a slow machine."""
    end = time.monotonic() + seconds
    while True:
        got = fn()
        if got:
            return got
        if time.monotonic() > end:
            raise TimeoutError(f"after {seconds} s still not: {what}")
        time.sleep(0.02)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def rmdir(path):
    """False: it is not empty yet, because an ended process stays in it for a moment."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


class Container:
    """A cgroup as containerd makes one, in the hierarchy that the agent uses."""

    def __init__(self, number):
        self.uid = POD_UID % (number % 100) if number < 100 else POD_UID[:-6] + "%06x" % number
        self.id = "%056x%08x" % (os.getpid(), number)
        memory = "/sys/fs/cgroup/memory"
        top = memory if os.path.isdir(memory) else "/sys/fs/cgroup"
        self.dirs = [f"{top}/kubepods-crash-{os.getpid()}"]
        self.dirs.append(f"{self.dirs[0]}/pod{self.uid}")
        self.dirs.append(f"{self.dirs[1]}/{self.id}")
        for d in self.dirs:
            os.makedirs(d, exist_ok=True)

    def run(self, *argv, **kw):
        """Starts a process, which is in the cgroup before its exec as in a real container."""
        enter = f"echo $$ >{self.dirs[2]}/cgroup.procs && exec \"$@\""
        return subprocess.Popen(["sh", "-c", enter, "sh", *argv], stdin=subprocess.DEVNULL, **kw)

    def remove(self):
        """Removes all cgroups but the topmost, which has those of other containers, too."""
        for d in reversed(self.dirs[1:]):
            until("the cgroup is empty", lambda d=d: rmdir(d), 30)


class Role:
    """One verb of podflame as a process, which is started and killed many times."""

    def __init__(self, place, verb):
        self.place, self.verb, self.process = place, verb, None
        self.n_starts = self.n_kills = 0
        self.log = open(f"{place.dir}/{verb}.log", "ab")

    def start(self):
        self.n_starts += 1
        # a mount namespace of its own, in which /tmp is a directory of the test
        setup = f"mount --make-rprivate / && mount --bind {self.place.dir}/tmp /tmp && exec \"$@\""
        self.process = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", setup, "sh", f"{self.place.dir}/podflame", self.verb,
             "--config", f"{self.place.dir}/{self.verb}.yaml"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True)

    def is_up(self):
        return self.process is not None and self.process.poll() is None

    def children(self):
        """The PIDs of the children of all its threads."""
        pids = []
        for path in glob.glob(f"/proc/{self.process.pid}/task/*/children"):
            try:
                with open(path) as f:
                    pids += [int(p) for p in f.read().split()]
            except OSError:
                pass
        return pids

    def kill(self):
        self.n_kills += 1
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)


class Place:
    """The directory, the API server and the files of both roles. The end of `with` removes them."""

    def __init__(self, window="2s", agent="", hub=""):
        self.dir = tempfile.mkdtemp(prefix="podflame-crash.", dir="/var/tmp")
        self.api = apiserver.Api(NODE)
        self.ports = {"api": free_port(), "ingest": free_port()}
        for d in ("tmp", "data", "spool", "copies"):
            os.mkdir(f"{self.dir}/{d}")
        shutil.copy(f"{BUILD}/podflame", f"{self.dir}/podflame")
        self.write("kubeconfig", self.api.kubeconfig())
        self.write("token", "t0ken")
        common = (f"cluster_name: crash\nnode_name: {NODE}\nown_namespace: {NS}\nkubernetes: 'on'\n"
                  f"kubeconfig: {self.dir}/kubeconfig\ndata_dir: {self.dir}/data\n")
        self.write("agent.yaml",
                   f"{common}window: {window}\n"
                   f"hub:\n  url: https://127.0.0.1:{self.ports['ingest']}\n"
                   f"  ca_file: {self.dir}/ca.crt\n  token_file: {self.dir}/token\n"
                   f"spool:\n  dir: {self.dir}/spool\n{agent}")
        self.write("hub.yaml", f"{common}api:\n  address: 127.0.0.1\n  port: {self.ports['api']}\n"
                   f"ingest:\n  address: 127.0.0.1\n  port: {self.ports['ingest']}\n"
                   f"health:\n  port: 0\n{hub}")
        self.containers, self.processes = [], []
        self.roles = {v: Role(self, v) for v in ("agent", "hub")}
        self.api.put("nodes",
                     {"metadata": {"name": NODE, "uid": "11111111-2222-4333-8444-555555555555"}})
        self.namespace("app")
        self.api.put("namespaces", {"metadata": {"name": NS}})

    def write(self, name, text):
        with open(f"{self.dir}/{name}", "w") as f:
            f.write(text)

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # of `timeout`, too
        return self

    def __exit__(self, failed, *_):
        for role in self.roles.values() if failed else ():
            os.system(f"tail -n 15 {role.log.name} | sed 's/^/    {role.verb}: /'")
        for p in [r.process for r in self.roles.values() if r.is_up()] + self.processes:
            p.kill()
            p.wait()
        for c in self.containers:
            c.remove()
        if self.containers:
            until("the cgroups are gone", lambda: rmdir(self.containers[0].dirs[0]), 30)
        if not os.environ.get("KEEP"):
            shutil.rmtree(self.dir, ignore_errors=True)

    def namespace(self, name):
        self.api.put("namespaces", {"metadata": {
            "name": name, "labels": {"kubernetes.io/metadata.name": name}}})

    def container(self, name, labels=None, ns="app"):
        c = Container(len(self.containers))
        self.containers.append(c)
        self.api.put("pods", apiserver.pod(name, ns, NODE, c.uid, c.id, labels or {"app": name}))
        return c

    def target(self, name, app, ns="app", **events):
        self.api.put("profilingtargets", {"metadata": {"name": name, "namespace": ns}, "spec": {
            "podSelector": {"matchLabels": {"app": app}}, "events": events or {"onCpu": {}}}})

    def wait_hub(self):
        """Waits until the hub has published its CA and listens."""
        def published():
            c = self.api.get("configmaps", NS, "podflame-hub-ca")
            return c and c["data"]["ca.crt"]
        self.write("ca.crt", until("the hub has published its CA", published))

        def listens():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", self.ports["ingest"])) == 0
        until("the hub listens", listens)

    def copy_of_burner(self, n):
        """A copy of the program: a file that the agent has not parsed yet."""
        path = f"{self.dir}/copies/burner{n}"
        with open(f"{BUILD}/crash/burner", "rb") as f:
            data = bytearray(f.read())
        at = data.index(BUILD_ID_NOTE) + len(BUILD_ID_NOTE)
        data[at:at + 20] = os.urandom(20)
        with open(path, "wb") as f:
            f.write(data)
        os.chmod(path, 0o755)
        return path

    # ---- what is left ----
    def spooled(self):
        return glob.glob(f"{self.dir}/spool/*.otlp")

    def strangers(self):
        """Files that no role should have left here."""
        left = os.listdir(f"{self.dir}/tmp")
        known = {"profiles.sqlite", "profiles.sqlite-wal", "profiles.sqlite-shm", "reserve", "lock",
                 "symbols", "node-state.json", "losses.account"}
        for d in ("data", "spool"):
            left += [f"{d}/{n}" for n in os.listdir(f"{self.dir}/{d}") if n not in known
                     and not n.endswith(".otlp")]
        return left + os.listdir(f"{self.dir}/data/symbols")

    @contextlib.contextmanager
    def store(self):
        db = sqlite3.connect(f"file:{self.dir}/data/profiles.sqlite?mode=ro", uri=True, timeout=30)
        try:
            yield db
        finally:
            db.close()


def one_test(what, test, limit_s=3000):
    """Runs the test and prints its result in the form that .ci/test reads. Returns the status."""
    failed = 0
    try:
        with limit.within(limit_s, what):
            test()
    except Exception as e:  # pylint: disable=broad-except
        traceback.print_exc(file=sys.stdout)
        print(f"FAIL: {what}: {type(e).__name__}: {e}")
        failed = 1
    print(f"{1 - failed} passed, {failed} failed, 0 skipped")
    return failed
