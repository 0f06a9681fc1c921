#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks a real `podflame local`, whose store has known answers (known.c), for all that Grafana asks
for, by the client that Grafana's data source uses (client/). As root."""
import os
import re
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("BUILD", "build")
sys.path.insert(0, os.path.join(HERE, "../accuracy"))
import limit  # noqa: E402

CONFIG = """api: {port: 0}
static_config: {ebpf: {on-cpu-profile: {disabled: true}}}
"""


def address_told(process):
    for line in process.stderr:
        m = re.search(r"http://127\.0\.0\.1:\d+", line)
        if m:
            # nobody reads the rest, and a full pipe would stop it
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return m[0]
    raise RuntimeError(f"podflame local ended with {process.wait()}")


def run(folder):
    data, config = os.path.join(folder, "data"), os.path.join(folder, "config.yaml")
    os.mkdir(data)
    t0 = subprocess.check_output([f"{BUILD}/grafana/known", data], text=True).strip()
    with open(config, "w", encoding="utf-8") as f:
        f.write(CONFIG)
    hub = subprocess.Popen(
        [f"{BUILD}/podflame", "local", "--config", config, "--data", data],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        return subprocess.run([f"{BUILD}/grafana/client", address_told(hub), t0],
                              check=False).returncode
    finally:
        hub.terminate()
        hub.wait()


def main():
    with limit.within(300, "grafana/run.py"), tempfile.TemporaryDirectory() as folder:
        return run(folder)


if __name__ == "__main__":
    sys.exit(main())
