#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""queries_test.py: users who load the page at once get the same answers as one user, and these have
all that was written. With the hub and the users of queries.py, and few rows. As root."""
import concurrent.futures
import gzip
import json
import sys

import queries
from queries import USERS, Hub, User


def content(answer):
    encoding, read = answer
    return json.loads(gzip.decompress(read) if encoding == "gzip" else read)


def test(hub):
    """The results of all tests, by name."""
    with concurrent.futures.ThreadPoolExecutor(USERS) as pool:
        crowd = [User(hub) for _ in range(USERS)]
        got = [answers for answers, _ in pool.map(User.load, crowd)]
    alone, _ = User(hub).load()
    results = {path.rsplit("/", 1)[1]: content(answer)["result"] for path, answer in alone.items()}
    series = results["series"]["groups"]
    namespaces = [v["value"] for v in results["choices"]["pod_ns"]["values"]]
    return {
        f"each of {USERS} users gets what one gets": all(answers == alone for answers in got),
        "the profile has all values of the namespace":
            sum(results["tree"]["nodes"]["self"]) == hub.filled["value"],
        "so has the time line": [sum(g["values"]) for g in series] == [hub.filled["value"]],
        "both namespaces can be chosen": sorted(namespaces) == ["app", "data"],
    }


def main():
    with queries.limit.within(300, "queries_test.py"), Hub(50_000) as hub:
        results = test(hub)
    for name, is_right in results.items():
        print("ok" if is_right else "not ok", name)
    passed = sum(results.values())
    print(f"{passed} passed, {len(results) - passed} failed")
    return int(passed < len(results))


if __name__ == "__main__":
    sys.exit(main())
