# SPDX-License-Identifier: Apache-2.0
"""calls.py LIBRARY SECONDS: calls in Python that are instrumented with OpenTelemetry, as
calls/main.go. When the SDK attaches a context to a thread or detaches it, a native library
(calls.c) publishes the span's ids as the thread's context, as OTEP 4947 says."""
import ctypes
import json
import os
import random
import sys
import threading
import time

import opentelemetry.context
from opentelemetry import trace
from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext
from opentelemetry.sdk.trace import TracerProvider

library = ctypes.CDLL(sys.argv[1])
truth = {"pid": os.getpid(), "traces": {}, "spans": {}}
lock = threading.Lock()


class Published(ContextVarsRuntimeContext):
    """The SDK's own context, but each change is published."""

    def publish(self):
        c = trace.get_current_span(self.get_current()).get_span_context()
        if c.is_valid:
            library.publish(c.trace_id.to_bytes(16, "big") + c.span_id.to_bytes(8, "big"))
        else:
            library.publish(None)

    def attach(self, context):
        token = super().attach(context)
        self.publish()
        return token

    def detach(self, token):
        super().detach(token)
        self.publish()


def burn(us):
    begin = time.thread_time_ns()
    while time.thread_time_ns() < begin + us * 1000:
        for i in range(2000):
            pass
    return (time.thread_time_ns() - begin) // 1000


def add(name, key, us):
    with lock:
        truth[name][key] = truth[name].get(key, 0) + us


def serve(tracer, roots, until):
    while time.monotonic() < until:
        if random.random() < 0.2:
            burn(20000)
            continue
        dice = random.random()
        root = roots[0 if dice < 0.5 else 1 if dice < 0.8 else 2]
        with tracer.start_as_current_span("serve", context=root) as span:
            us = burn(40000)
        c = span.get_span_context()
        add("traces", trace.format_trace_id(c.trace_id), us)
        add("spans", trace.format_span_id(c.span_id), us)


def main():
    sys.stdin.readline()    # until it is profiled
    before = time.process_time_ns()
    opentelemetry.context._RUNTIME_CONTEXT = Published()
    tracer = TracerProvider().get_tracer("calls")
    roots = [trace.set_span_in_context(tracer.start_span("root")) for _ in range(3)]
    until = time.monotonic() + int(sys.argv[2])
    workers = [threading.Thread(target=serve, args=(tracer, roots, until)) for _ in range(2)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    truth["cpu"] = (time.process_time_ns() - before) // 1000
    json.dump(truth, sys.stdout)
    print()


main()
