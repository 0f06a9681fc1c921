#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py: what Pyroscope's own SDKs push arrives: pyroscope-go (POST /ingest) and pyroscope-io
(push.v1) profile programs with known functions, and push to a hub on loopback (hub.c). Queries then
find these functions, the labels, and the pod of the token; and not what the payload says of itself.
"""
import json
import os
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(HERE, "../../build")))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "podflame")
PYROSCOPE_IO = "1.4.0"


class Hub:
    def __init__(self):
        self.file = os.path.join(BUILD, "push/token")
        self.set_token("none")
        self.process = subprocess.Popen([os.path.join(BUILD, "push/hub"), self.file],
                                        stdout=subprocess.PIPE, text=True)
        ports = json.loads(self.process.stdout.readline())
        self.ingest, self.api = (f"http://127.0.0.1:{ports[k]}" for k in ("ingest", "api"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def set_token(self, token):
        with open(self.file + ".new", "w", encoding="utf-8") as file:
            file.write(token)
        os.rename(self.file + ".new", self.file)

    def functions(self, event, where):
        """The values of an event by the names of functions below which they are."""
        now = int(time.time())
        body = {"profile_event_type": event, "profile_language_type": "eBPF",
                "time_start": now - 600, "time_end": now + 600, "tag_filter": where}
        request = urllib.request.Request(self.api + "/v1/profile/ProfileTracing",
                                         json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            rows = json.load(answer)["result"] or []
        found = {}
        for row in rows:
            name = row["profile_location_str"]
            found[name] = max(found.get(name, 0), row["total_value"])
        return found


def go_program():
    out = os.path.join(BUILD, "push/shop")
    subprocess.run(["go", "build", "-trimpath", "-o", out, "."], cwd=os.path.join(HERE, "go"),
                   env=os.environ | {"CGO_ENABLED": "0"}, check=True)
    return out


def python_packages():
    """The folder with the SDK, unpacked once."""
    to = os.path.join(CACHE, f"pyroscope-io-{PYROSCOPE_IO}")
    if not os.path.exists(to):
        part = f"{to}.{os.getpid()}"
        subprocess.run([sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install",
                        "--no-deps", "--target", part, f"pyroscope-io=={PYROSCOPE_IO}"], check=True)
        os.rename(part, to)
    return to


def run(hub, number, *command, **env):
    """Runs a program that pushes, with a token, and after its first profiles with another one."""
    hub.set_token(f"first-{number}")
    program = subprocess.Popen([*command, hub.ingest, hub.file], env=os.environ | env, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    said = program.stdout.readline()
    hub.set_token(f"second-{number}")
    _, errors = program.communicate("go on\n", timeout=120)
    is_right = program.returncode == 0 and said == "pushed\n" and "failed to upload" not in errors
    if not is_right:
        print(said, errors, sep="\n")
    return is_right


OWN = "pod_ns='app' AND pod='web-1' AND pod_node='n1' AND pod_cluster='c1'"
# test: event, filter, function that must have a value, or must not be there
GO = OWN + " AND app_service='shop' AND producer='gospy' AND label.version='1.2'"
QUERIES = {
    "go: CPU time": ("cpu", GO, "main.busyCheckout", True),
    "go: CPU time of a label": ("cpu", GO + " AND label.handler='checkout'", "main.busyCheckout",
                                True),
    "go: no CPU time of another label": ("cpu", GO + " AND label.handler='x'", "main.busyCheckout",
                                         False),
    "go: allocated bytes": ("alloc_space", GO, "main.keepMemory", True),
    "go: allocated objects": ("alloc_objects", GO, "main.keepMemory", True),
    "go: live bytes": ("inuse_space", GO, "main.keepMemory", True),
    "go: live objects": ("inuse_objects", GO, "main.keepMemory", True),
    "go: goroutines": ("goroutines", GO, "main.parkedForever", True),
    "go: waits for locks": ("mutex_duration", GO, "main.waitForLock.func1", True),
    "go: how often": ("mutex_count", GO, "main.waitForLock.func1", True),
    "go: blocked": ("block_duration", GO, "main.waitForLock", True),
    "go: how often blocked": ("block_count", GO, "main.waitForLock", True),
    "go: after its token has changed": ("cpu", GO, "main.busyLater", True),
    "go: its language": ("cpu", GO + " AND profile_language_type='Golang'", "main.busyCheckout",
                         True),
    "python: CPU time": ("cpu", OWN + " AND app_service='django' AND label.version='3.4'",
                         "busy_checkout", True),
    "python: CPU time of a label": ("cpu", OWN + " AND app_service='django' AND "
                                    "label.handler='checkout'", "busy_checkout", True),
    "python: after its token has changed": ("cpu", OWN + " AND app_service='django'",
                                            "busy_later", True),
    "python: its language": ("cpu", "app_service='django' AND profile_language_type='python'",
                             "busy_checkout", True),
    "nothing is of another pod": ("cpu", "pod!='web-1'", "main.busyCheckout", False),
    "nothing counts as sampled": ("on-cpu", "", "main.busyCheckout", False),
}


def main():
    results = {}
    with Hub() as hub:
        results["pyroscope-go has pushed all"] = run(hub, 1, go_program())
        results["pyroscope-io has pushed all"] = run(
            hub, 2, sys.executable, os.path.join(HERE, "busy.py"), PYTHONPATH=python_packages())
        for name, (event, where, function, there) in QUERIES.items():
            found = hub.functions(event, where)
            results[name] = (found.get(function, 0) > 0) == there
            if not results[name]:
                print(name, json.dumps(found)[:1000])
    for name, is_right in results.items():
        print("ok" if is_right else "not ok", name)
    passed = sum(results.values())
    print(f"{passed} passed, {len(results) - passed} failed")
    return int(passed < len(results))


if __name__ == "__main__":
    sys.exit(main())
