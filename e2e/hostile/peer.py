#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""peer.py ATTACK SECONDS ARGUMENT...: a client that takes as much of a hub as it gets. It asks for
each kind of answer again and again, and prints once a second how often it got each, as JSON.

  connections HUB AGENT...   all connections of the ports, some with half a TLS handshake or half a
                             request
  tokens HUB                 tokens that it makes up
  queries HUB                the dearest queries, more at once than anybody may have
  profiles HUB FILE...       with a token of a node: bodies that never end, that are no profiles,
                             and the files, which are requests of an agent

$TOKEN is the token. HUB and AGENT are addresses."""
import collections
import http.client
import json
import os
import random
import socket
import ssl
import sys
import threading
import time

API, INGEST, HEALTH = 20416, 4318, 20417
PROFILES, PROTOBUF = "/v1development/profiles", "application/x-protobuf"
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"     # the first bytes of a TLS handshake
TLS = ssl._create_unverified_context()
seen = collections.Counter()
token = os.environ.get("TOKEN", "")


def repeat(end, pause_s, fn, *args):
    """A thread calls fn again and again until the end, whatever comes of it."""
    def run():
        while time.monotonic() < end:
            try:
                fn(*args)
            except (OSError, http.client.HTTPException) as e:
                seen[type(e).__name__] += 1
            time.sleep(pause_s)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()


class Client:
    """Makes one request after another over one connection, because a TLS handshake takes more time
    than they do. After an error it makes a new one."""

    def __init__(self, address, port):
        self.to, self.connection = (address, port), None

    def request(self, method, path, body=None, headers=None, bearer=None):
        if self.connection is None:
            self.connection = http.client.HTTPSConnection(*self.to, timeout=60, context=TLS)
        try:
            self.connection.request(method, path, body, {
                "Authorization": f"Bearer {bearer or token}", **(headers or {})})
            answer = self.connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self.connection.close()
            self.connection = None
            raise
        seen[str(answer.status)] += 1


# ---- connections ----

class Held:
    """Connections to a port that are made anew when the server ends them."""

    def __init__(self, address, port, n):
        self.to, self.sockets = (address, port), [None] * n

    def one(self, i):
        s = self.sockets[i]
        try:
            if s is None:
                s = self.sockets[i] = socket.create_connection(self.to, timeout=2)
                s.setblocking(False)
                seen["connections"] += 1
                if i % 2:
                    s.send(HELLO)
            elif s.recv(1) == b"":
                raise ConnectionResetError
        except BlockingIOError:
            pass
        except OSError:
            seen["closed"] += s is not None
            if s is not None:
                s.close()
            self.sockets[i] = None

    def all(self):
        for i in range(len(self.sockets)):
            self.one(i)


def half_a_request(address, port):
    """A head that comes a byte a second and has no end."""
    with socket.create_connection((address, port), timeout=10) as plain:
        with TLS.wrap_socket(plain) as s:
            s.send(b"GET /v1/profile/tags HTTP/1.1\r\nHost: hub\r\nX-Slow: ")
            while s.send(b"x"):
                time.sleep(1)


def connections(end, hub, *agents):
    held = [Held(hub, API, 300), Held(hub, INGEST, 300)] + [Held(a, HEALTH, 40) for a in agents]
    for h in held:
        repeat(end, 0.5, h.all)
    for port in (API, INGEST) * 10:
        repeat(end, 1, half_a_request, hub, port)


# ---- tokens ----

def made_up(client, method, path):
    client.request(method, path, headers={"Content-Type": PROTOBUF},
                   bearer=f"{random.getrandbits(256):x}")


def tokens(end, hub):
    for _ in range(4):
        repeat(end, 0.1, made_up, Client(hub, API), "GET", "/v1/profile/tags")
        repeat(end, 0.1, made_up, Client(hub, INGEST), "POST", PROFILES)


# ---- queries ----

def query(client, body):
    client.request("POST", "/v1/profile/ProfileTracing", body, {"Content-Type": "application/json"})


def queries(end, hub):
    patterns = " OR ".join(f"pod REGEXP '({chr(97 + i)}|[a-z])*-{i}$'" for i in range(20))
    body = json.dumps({
        "profile_event_type": "on-cpu", "profile_language_type": "eBPF",
        "time_start": 1, "time_end": int(time.time()), "tag_filter": f"NOT ({patterns})"})
    for _ in range(130):
        repeat(end, 0.1, query, Client(hub, API), body)


# ---- profiles ----

def post(address, body, headers):
    c = Client(address, INGEST)
    c.request("POST", PROFILES, body, {"Content-Type": PROTOBUF, **headers})
    c.connection.close()


def slow_body(address):
    """Announces 30 MiB and sends a byte a second, until there is an answer."""
    head = (f"POST {PROFILES} HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: {PROTOBUF}\r\nContent-Length: {30 << 20}\r\n\r\n")
    with socket.create_connection((address, INGEST), timeout=10) as plain:
        with TLS.wrap_socket(plain) as s:
            s.send(head.encode())
            s.settimeout(1)
            answer = None
            while answer is None:
                try:
                    answer = s.recv(4096)
                except TimeoutError:
                    s.send(b"\x0a")
            seen[answer.split()[1].decode() if answer else "closed"] += 1


def garbage(address):
    encoding = random.choice(["", "gzip", "zstd"])
    post(address, random.randbytes(1 << 20), {"Content-Encoding": encoding} if encoding else {})


def profiles(end, hub, *files):
    bodies = [open(f, "rb").read() for f in files]
    for _ in range(6):
        repeat(end, 1, slow_body, hub)
    for _ in range(2):
        repeat(end, 0.1, garbage, hub)
    for body in bodies:
        repeat(end, 0.5, post, hub, body, {})


def main():
    attack = {"connections": connections, "tokens": tokens, "queries": queries,
              "profiles": profiles}[sys.argv[1]]
    end = time.monotonic() + float(sys.argv[2])
    threading.Thread(target=attack, args=(end, *sys.argv[3:]), daemon=True).start()
    while time.monotonic() < end:
        time.sleep(1)
        print(json.dumps(dict(sorted(seen.items()))), flush=True)
    os._exit(0)


main()
