# SPDX-License-Identifier: Apache-2.0
"""fed.py PROGRAM ARGUMENT...: replaces itself by the program. Its standard input is a pipe that
gets a byte every 25 ms if it is empty, so that a program that gets little CPU waits, too."""
import os
import select
import sys
import time

reader, writer = os.pipe()
if os.fork() == 0:
    while True:
        time.sleep(0.025)
        if not select.select([reader], [], [], 0)[0]:
            os.write(writer, b"x")
os.close(writer)
os.dup2(reader, 0)
os.close(reader)
os.execv(sys.argv[1], sys.argv[1:])
