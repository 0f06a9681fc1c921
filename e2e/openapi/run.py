#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [SEED]: schemathesis asks a real `podflame local` whatever its OpenAPI document allows,
and what it does not. Ends with "N passed, N failed, N skipped". `make test-long` calls it, as
root, after `.ci/deps long`."""
import os
import random
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../page"))
import queries  # noqa: E402

CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
SCHEMATHESIS = f"{CACHE}/podflame/tools/schemathesis/bin/schemathesis"
ROWS = 20_000
# hooks.py has checks in their place
REPLACED = "not_a_server_error,positive_data_acceptance"


def main():
    seed = sys.argv[1] if len(sys.argv) > 1 else str(random.randrange(1 << 32))
    env = dict(os.environ, SCHEMATHESIS_HOOKS="hooks", PYTHONPATH=HERE, NO_COLOR="1")
    with queries.Hub(ROWS) as hub:
        done = subprocess.run(
            [SCHEMATHESIS, "run", f"http://127.0.0.1:{hub.port}/v1/openapi.json", "--seed", seed,
             "--exclude-checks", REPLACED, "--phases", "examples,coverage,fuzzing",
             "--continue-on-failure", "--warnings", "off"], env=env, cwd=hub.dir,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    tested = re.search(r"Tested: (\d+)", done.stdout)
    n = int(tested[1]) if tested else 0
    failed = len(set(re.findall(r"^_+ (.*) _+$", done.stdout, re.M)))
    if (done.returncode or not n) and not failed:
        failed = 1
    print(f"{max(n - failed, 0)} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
