#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""queries.py: how long a load of the page takes (a profile, the time line and all
choices, asked at once), with one user and with 20 at once, over HTTP from a real `podflame local`
whose store has a million and ten million rows; and how long the page takes in Chromium from its
address to its picture. Prints one JSON object a line. `make bench` calls it, as root."""
import concurrent.futures
import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

BUILD = os.environ.get("BUILD", "build")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../accuracy"))
import limit  # noqa: E402

USERS, LOADS_ALONE, LOADS_EACH, HOUR_S = 20, 30, 3, 3600
# what the page offers to choose for any event (web/src/state/tags.ts)
CHOICES = ["pod_group", "pod_cluster", "pod_ns", "pod", "app_service", "pod_node", "trace_id",
           "profile_event_type"]
CONFIG = """api: {port: 0}
static_config: {ebpf: {on-cpu-profile: {disabled: true}}}
"""


class Hub:
    """A real hub over a store with so many rows."""

    def __init__(self, rows):
        self.dir = tempfile.mkdtemp(prefix="podflame-queries-")
        self.process = None
        try:
            self.start(rows)
        except BaseException:
            self.stop()
            raise

    def start(self, rows):
        data = os.path.join(self.dir, "data")
        os.mkdir(data)
        self.filled = json.loads(subprocess.check_output([f"{BUILD}/page/fill", data, str(rows)]))
        config = os.path.join(self.dir, "config.yaml")
        with open(config, "w", encoding="utf-8") as f:
            f.write(CONFIG)
        self.process = subprocess.Popen(
            [f"{BUILD}/podflame", "local", "--config", config, "--data", data],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.port = self.port_told()
        # nobody reads the rest, and a full pipe would stop it
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def port_told(self):
        for line in self.process.stderr:
            m = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
            if m:
                return int(m[1])
        raise RuntimeError(f"podflame local ended with {self.process.wait()}")

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
        shutil.rmtree(self.dir)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def selection(self):
        """The last hour of a namespace, which has half of the rows."""
        end = self.filled["end"]
        return {"profile_event_type": "on-cpu", "profile_language_type": "eBPF",
                "app_service": "", "tag_filter": "pod_ns='app'",
                "time_start": max(end - HOUR_S, self.filled["start"]), "time_end": end}


def ask(connection, path, body):
    """An answer as it came over the wire: its encoding, and its bytes."""
    connection.request("POST", path, json.dumps(body), {
        "Content-Type": "application/json", "Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    read = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {read[:200]}")
    return answer.getheader("Content-Encoding"), read


class User:
    """A browser: a connection for each of the questions that the page asks at once."""

    def __init__(self, hub):
        self.selection = hub.selection()
        self.questions = {"/v1/profile/tree": {},
                          "/v1/profile/series": {"group_by": "", "limit": 8},
                          "/v1/profile/choices": {"tags": CHOICES, "limit": 500}}
        self.connections = {path: http.client.HTTPConnection("127.0.0.1", hub.port, timeout=120)
                            for path in self.questions}
        self.pool = concurrent.futures.ThreadPoolExecutor(len(self.questions))

    def load(self):
        """One load of the page: its answers by path, and seconds."""
        began = time.monotonic()
        asked = {path: self.pool.submit(ask, self.connections[path], path,
                                        {**self.selection, **more})
                 for path, more in self.questions.items()}
        answers = {path: future.result() for path, future in asked.items()}
        return answers, time.monotonic() - began


def loads(hub, users, each):
    """Seconds of each load of so many users at once."""
    with concurrent.futures.ThreadPoolExecutor(users) as pool:
        crowd = [User(hub) for _ in range(users)]
        took = list(pool.map(lambda user: [user.load()[1] for _ in range(each)], crowd))
    return [t for times in took for t in times]


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def tell(name, value, values, goal, what, unit="ms"):
    print(json.dumps({"name": name, "value": round(value, 3), "rounds": len(values), "unit": unit,
                      "goal": goal, "compared_with": what}), flush=True)


def measure(rows):
    name, what = f"queries.{rows:.0e}", "the last hour of one of two namespaces, 200 pods"
    with Hub(rows) as hub:
        loads(hub, 1, 3)                # what is not in the page cache yet
        first_picture(hub, rows)
        alone, crowd = loads(hub, 1, LOADS_ALONE), loads(hub, USERS, LOADS_EACH)
    for users, values in ((1, alone), (USERS, crowd)):
        tell(f"{name}.p50_{users}", 1000 * statistics.median(values), values, "", what)
        tell(f"{name}.p99_{users}", 1000 * percentile(values, 99), values, "", what)
    tell(f"{name}.crowd", percentile(crowd, 99) / percentile(alone, 99), crowd, "<= 12",
         f"p99 of {USERS} users over that of one", "times")


def first_picture(hub, rows):
    s = hub.selection()
    utc = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(s[k]))
           for k in ("time_start", "time_end")]
    address = f"http://127.0.0.1:{hub.port}/#pod_ns=app&from={utc[0]}&to={utc[1]}"
    subprocess.run([os.path.join(HERE, "../../web/picture_bench.mjs"), address, f"{rows:.0e}"],
                   check=True)


def main():
    if os.geteuid() != 0:
        print("queries.py: skip: queries: only root may start podflame local", file=sys.stderr)
        return 0
    with limit.within(500, "queries.py"):
        for rows in [float(r) for r in os.environ.get("ROWS", "1e6 1e7").split()]:
            measure(int(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
