#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""step.py: are the rows of code without call frame information right, at each instruction that a
program runs? `step` (step.c) compares them with what the calls and returns did. Without LONG in
the environment, it runs only agent/node/parse/testdata/conventions.S. With it, programs of the
distribution: it prints their files, and with -v the places that have no row. A row that is wrong is
a failure."""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import namedtuple

import known

STEP = os.path.join(known.BUILD, "accuracy", "step")
SOURCE = os.path.join(known.HERE, "../../agent/node/parse/testdata/conventions.S")
LISTED = 40
# A window has so many instructions; between two of them the program runs freely.
WINDOW, FREE_MS, STEPS = 4000, 15, 300_000

# needs: commands; prepare: makes the input; command: what is run
Program = namedtuple("Program", "name needs prepare command")
VIDEO = "ffmpeg -v error -y -f lavfi -i testsrc2=s=320x180:r=30 -pix_fmt yuv420p"
ONE = "ffmpeg -v error -threads 1 -filter_threads 1 -y"
PROGRAMS = [
    Program("x264", "ffmpeg x264", f"{VIDEO} -frames:v 300 in.y4m",
            "x264 --threads 1 --sync-lookahead 0 --quiet --no-progress -o /dev/null in.y4m"),
    Program("x265", "ffmpeg", "true",
            f"{ONE} -f lavfi -i testsrc2=s=320x180:r=30 -t 60 -c:v libx265 "
            "-x265-params pools=none:frame-threads=1:log-level=none -f null -"),
    Program("dav1d", "ffmpeg dav1d",
            f"{VIDEO} -frames:v 300 -c:v libsvtav1 -preset 10 in.ivf",
            "dav1d --threads 1 -q -i in.ivf -o /dev/null --muxer null"),
    Program("swscale", "ffmpeg", "true",
            f"{ONE} -f lavfi -i testsrc2=s=320x180:r=30 -t 60 "
            "-vf scale=400:300:flags=bicubic,format=bgr24,scale=320:200 -f null -"),
    Program("avcodec", "ffmpeg", f"{VIDEO} -frames:v 300 -c:v mpeg4 in.avi",
            f"{ONE} -stream_loop 20 -i in.avi -c:v mpeg2video -f null -"),
    Program("vpx", "ffmpeg", "true",
            f"{ONE} -f lavfi -i testsrc2=s=320x180:r=30 -t 60 -c:v libvpx-vp9 -threads 1 "
            "-f null -"),
    Program("libcrypto", "openssl", "true", "openssl speed -seconds 1 -evp aes-128-gcm"),
    Program("libjpeg", "ffmpeg cjpeg",
            "ffmpeg -v error -y -f lavfi -i testsrc2=s=3840x2160 -frames:v 1 in.ppm",
            "cjpeg -outfile out.jpg in.ppm"),
]


def run_step(folder, command, *options):
    """The output of step, and whether no row was wrong."""
    done = subprocess.run([STEP, "-l", str(LISTED), *options, *shlex.split(command)], cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False, timeout=900)
    return done.stdout, done.returncode == 0


def show(output):
    """Prints a file's line only if more of it was run than what the loader calls."""
    for line in output.splitlines():
        found = re.match(r"\S+: (\d+) places, .* (\d+) wrong, (\d+) refused", line)
        listed = line.startswith("  wrong:") or ("-v" in sys.argv and line.startswith("  refused:"))
        if listed or (found and (int(found[1]) > 30 or int(found[2]))):
            print("    " + line.strip())


def test_conventions(folder):
    """Each instruction of the program has a row, and all are right."""
    subprocess.run(["gcc", "-nostdlib", "-static-pie", "-s", "-o", f"{folder}/conventions",
                    SOURCE], check=True)
    output, right = run_step(folder, "./conventions")
    show(output)
    return right and " 0 wrong, 0 refused," in output


def test_program(folder, p):
    subprocess.run(p.prepare, shell=True, cwd=folder, check=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    output, right = run_step(folder, p.command, "-w", str(WINDOW), "-m", str(FREE_MS), "-n",
                             str(STEPS))
    show(output)
    return right


def main():
    results = []
    skipped = 0
    with tempfile.TemporaryDirectory() as folder:
        results.append(test_conventions(folder))
        print("ok" if results[-1] else "not ok", "conventions")
        for p in PROGRAMS if os.environ.get("LONG") else []:
            lacking = [n for n in p.needs.split() if not shutil.which(n)]
            if lacking:
                print(f"skip: {p.name}: no {' '.join(lacking)}")
                skipped += 1
                continue
            results.append(test_program(folder, p))
            print("ok" if results[-1] else "not ok", p.name)
    passed = sum(results)
    print(f"{passed} passed, {len(results) - passed} failed, {skipped} skipped")
    return int(passed < len(results))


if __name__ == "__main__":
    sys.exit(main())
