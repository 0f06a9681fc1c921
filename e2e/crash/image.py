#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""image.py: pods of one image, each with its files on an overlay of its own, run the same short
program one after another. What the agent has learned for the first pod holds for the others: each
of their samples has its whole stack and the name of the program's function. long.sh runs it, as
root."""
import contextlib
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request

from roles import Place, one_test, until

N_PODS = 5
PROGRAM = """
#include <time.h>
static volatile unsigned long sink;
static __attribute__((noipa)) void image_work(long n) { while (n--) sink = sink * 3 + 1; }
int main(void)
{
    struct timespec t = {0};
    /* longer than the time after which the agent reads a process whose files it knows */
    while (t.tv_sec < 4) {
        image_work(20000);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    }
    return 0;
}
"""


@contextlib.contextmanager
def images(folder, n):
    """The paths of the program in n containers of one image."""
    os.mkdir(folder)
    subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
    try:
        os.mkdir(f"{folder}/lower")
        subprocess.run(["gcc", "-O2", "-x", "c", "-o", f"{folder}/lower/program", "-"],
                       input=PROGRAM, text=True, check=True)
        for i in range(n):
            for kind in ("upper", "work", "root"):
                os.mkdir(f"{folder}/{kind}{i}")
            subprocess.run(["mount", "-t", "overlay", "none", "-o", f"lowerdir={folder}/lower,"
                            f"upperdir={folder}/upper{i},workdir={folder}/work{i}",
                            f"{folder}/root{i}"], check=True)
        yield [f"{folder}/root{i}/program" for i in range(n)]
    finally:
        for i in range(n):
            subprocess.run(["umount", "-l", f"{folder}/root{i}"], check=False,
                           stderr=subprocess.DEVNULL)
        subprocess.run(["umount", "-l", folder], check=True)


def profile(place, pod):
    """{frame: value} of a pod, and the summary."""
    request = urllib.request.Request(
        f"https://127.0.0.1:{place.ports['api']}/v1/profile/ProfileTracing",
        json.dumps({"profile_event_type": "on-cpu", "profile_language_type": "eBPF",
                    "tag_filter": f"pod = '{pod}'", "time_start": int(place.began),
                    "time_end": int(time.time()) + 60}).encode(),
        {"Authorization": "Bearer t0ken", "Content-Type": "application/json"})
    context = ssl.create_default_context(cafile=f"{place.dir}/ca.crt")
    context.check_hostname = False
    with urllib.request.urlopen(request, context=context, timeout=60) as answer:
        got = json.load(answer)
    frames = {}
    for row in got["result"] or []:         # null: there is no sample yet
        name = row["profile_location_str"]
        frames[name] = frames.get(name, 0) + row["total_value"]
    return frames, got["summary"]


def play(place, programs):
    place.began = time.time()
    place.roles["hub"].start()
    place.wait_hub()
    place.target("all", "image")
    containers = [place.container(f"image{i}", {"app": "image"}) for i in range(N_PODS)]
    place.roles["agent"].start()
    def run(i):
        assert containers[i].run(programs[i]).wait() == 0

    # when the first program begins, the agent may not know its pod yet
    while not profile(place, "image0")[0].get("image_work"):
        run(0)
    for i in range(1, N_PODS):
        run(i)
    for i in range(1, N_PODS):
        until(f"pod {i} has samples", lambda i=i: profile(place, f"image{i}")[0])
    until("the spool is empty", lambda: not place.spooled())


def check(place, programs):
    for i in range(1, N_PODS):
        frames, summary = profile(place, f"image{i}")
        unnamed = frames.get(f"[{programs[i]}]", 0)
        print(f"pod {i}: {summary['samples']} samples, {summary['finished_percent']} % whole, "
              f"{frames.get('image_work', 0)} us in the function, {unnamed} us without its name")
        assert summary["samples"] > 100, "too few samples"
        assert not unnamed, "samples have no names"
        assert summary["finished_percent"] >= 99, "stacks are not whole"


def test():
    with Place() as place, images(f"{place.dir}/image", N_PODS) as programs:
        play(place, programs)
        check(place, programs)


def main():
    if os.geteuid() != 0:
        print("skip: image: only root may\n0 passed, 0 failed, 1 skipped")
        return 0
    return one_test("pods of one image", test)


if __name__ == "__main__":
    sys.exit(main())
