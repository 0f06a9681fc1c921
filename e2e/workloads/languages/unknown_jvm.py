# SPDX-License-Identifier: Apache-2.0
"""unknown_jvm.py ARGUMENT...: replaces itself by a JVM that podflame knows and cannot walk: its
tables (vmStructs) lack a field."""
import os
import sys

LIBJVM = "/jre/lib/server/libjvm.so"
with open(LIBJVM, "rb") as f:
    code = f.read()
field = b"\0_log2_segment_size\0"
if code.count(field) != 1:
    sys.exit(f"{LIBJVM}: no such field")
os.remove(LIBJVM)
with open(LIBJVM, "wb") as f:
    f.write(code.replace(field, b"\0_log2_segment_none\0"))
os.chmod(LIBJVM, 0o755)
os.execv("/jre/bin/java", ["java", *sys.argv[1:]])
