#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh: the tests of the store once more, over ClickHouse's own engine (engine.py) instead of
# SQLite, and the comparison of both; and those of the connection, over Debian's server. A suite of
# .ci/test.
set -u
tools=${XDG_CACHE_HOME:-$HOME/.cache}/podflame/tools
build=${BUILD:-build}
out=$(mktemp -d)
trap 'exec 3>&-; rm -rf "$out"' EXIT
mkfifo "$out/end"
"$tools/chdb/bin/python" "$(dirname "${BASH_SOURCE[0]}")/engine.py" "$out/port" <"$out/end" &
exec 3>"$out/end"                        # the engine ends when this is closed
for _ in {1..300}; do
    [ ! -s "$out/port" ] || break
    sleep .1
done
if [ ! -s "$out/port" ]; then
    echo "FAIL the engine did not start"
    echo "0 passed, 1 failed"
    exit 1
fi
CLICKHOUSE_URL=http://127.0.0.1:$(cat "$out/port")
export CLICKHOUSE_URL CLICKHOUSE_SERVER=$tools/clickhouse-18/bin/clickhouse-server
passed=0 failed=0
while read -r t; do
    echo "==> $t"
    "$build/agent/hub/$t" </dev/null >"$out/log" 2>&1
    status=$?
    grep -vE '^\[ +(RUN|OK) ' "$out/log"
    p=$(sed -nE 's/^\[  PASSED  \] ([0-9]+) test.*/\1/p' "$out/log")
    f=$(sed -nE 's/^ ([0-9]+) FAILED TEST.*/\1/p' "$out/log")
    [ $status = 0 ] || [ -n "$f" ] || f=1
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0}))
done <<'TESTS'
store/store_test
store/where_test
store/events_test
store/series_test
store/labels_test
store/expire_test
store/copy_test
store/clickhouse/expire_test
store/clickhouse/lies_test
store/clickhouse/same_test
store/clickhouse/schema_test
store/clickhouse/in_process_test
store/clickhouse/failures_test
store/clickhouse/server_test
ingest/group_test
TESTS
echo "$passed passed, $failed failed"
[ $failed = 0 ]
