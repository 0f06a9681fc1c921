# SPDX-License-Identifier: Apache-2.0
"""busy.py ADDRESS TOKEN_FILE: a program that Pyroscope's SDK for Python profiles. The SDK is told
its token once, so the program configures it again when the file has another one: after it has said
that it has pushed, and read a line."""
import sys
import time

import pyroscope


def busy_checkout(until):
    n = 0
    while time.monotonic() < until:
        n += sum(range(1000))
    return n


def busy_later(until):
    return busy_checkout(until)


def configure():
    with open(sys.argv[2], encoding="utf-8") as file:
        token = file.read().strip()
    pyroscope.configure(application_name="django", server_address=sys.argv[1], upload_interval=1,
                        http_headers={"Authorization": f"Bearer {token}"},
                        tags={"version": "3.4"}, gil_only=False, oncpu=False)


configure()
with pyroscope.tag_wrapper({"handler": "checkout"}):
    busy_checkout(time.monotonic() + 3)
pyroscope.shutdown()
print("pushed", flush=True)
sys.stdin.readline()
configure()
busy_later(time.monotonic() + 2)
pyroscope.shutdown()
