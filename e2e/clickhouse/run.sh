#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh: the tests of the store once more, over ClickHouse's own engine (engine.py) instead of
# SQLite, on one server and as a cluster, and the comparison of both stores; and those of the
# connection, over Debian's server. A suite of .ci/test.
set -u
tools=${XDG_CACHE_HOME:-$HOME/.cache}/podflame/tools
build=${BUILD:-build}
here=$(dirname "${BASH_SOURCE[0]}")
out=$(mktemp -d)
# the engines end when this is closed
trap 'exec 3>&-; kill "$zookeeper"; wait; umount "$out/disk" 2>/dev/null; rm -rf "$out"' EXIT
passed=0 failed=0

end_with() { # WHAT
    echo "FAIL $1"
    echo "$passed passed, $((failed + 1)) failed"
    exit 1
}

until_() { # WHAT COMMAND...
    local what=$1
    shift
    for _ in {1..600}; do
        if "$@"; then return; fi
        sleep .1
    done
    end_with "$what did not start"
}

start_zookeeper() {
    ZOOKEEPER=$(python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
    export ZOOKEEPER
    cat >"$out/zookeeper.cfg" <<END
dataDir=$out/zookeeper
clientPort=$ZOOKEEPER
clientPortAddress=127.0.0.1
admin.enableServer=false
forceSync=no
END
    "$tools/clickhouse-18/bin/zookeeper" "$out/zookeeper.cfg" >"$out/zookeeper.log" 2>&1 3>&- &
    zookeeper=$!
}

zookeeper_answers() {
    # while it starts, it may leave a question without an answer
    (exec 4<>"/dev/tcp/127.0.0.1/$ZOOKEEPER" && echo srvr >&4 && timeout 2 grep -q Mode <&4)
}

start_engine() { # NAME [ARGUMENTS]
    REPLICA=$1 "$tools/chdb/bin/python" "$here/engine.py" "$out/$1" "${@:2}" <"$out/end" 3>&- &
}

# an engine whose tables are on a disk of 64 MiB, unless this user may not mount one
start_small() {
    mkdir "$out/disk"
    mount -t tmpfs -o size=64m tmpfs "$out/disk" || return 0
    start_engine small --data "$out/disk/data"
    export CLICKHOUSE_SMALL_DISK=$out/disk
}

url_of() { printf 'http://127.0.0.1:%s' "$(cat "$out/$1")"; }

run_tests() { # PROGRAM...
    local t status p f
    for t; do
        echo "==> $t${CLICKHOUSE_CLUSTER:+, cluster $CLICKHOUSE_CLUSTER}"
        "$build/agent/hub/$t" </dev/null 3>&- >"$out/log" 2>&1
        status=$?
        grep -vE '^\[ +(RUN|OK) ' "$out/log"
        p=$(sed -nE 's/^\[  PASSED  \] ([0-9]+) test.*/\1/p' "$out/log")
        f=$(sed -nE 's/^ ([0-9]+) FAILED TEST.*/\1/p' "$out/log")
        # a program that failed without a count, or that has tested nothing
        if [ -z "$f" ] && { [ $status != 0 ] || [ "${p:-0}" = 0 ]; }; then
            echo "FAIL $t: exit status $status, ${p:-0} tests passed"
            f=1
        fi
        passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0}))
    done
}

mkfifo "$out/end"
start_zookeeper
start_engine a
start_engine b
start_small
exec 3>"$out/end"
until_ ZooKeeper zookeeper_answers 2>/dev/null
until_ "the engine" test -s "$out/a"
until_ "the second engine" test -s "$out/b"
CLICKHOUSE_URL=$(url_of a)
if [ -n "${CLICKHOUSE_SMALL_DISK:-}" ]; then
    until_ "the engine on a small disk" test -s "$out/small"
    CLICKHOUSE_SMALL_URL=$(url_of small)
    export CLICKHOUSE_SMALL_URL
fi
export CLICKHOUSE_URL CLICKHOUSE_SERVER=$tools/clickhouse-18/bin/clickhouse-server
run_tests store/{store,where,events,series,labels,clusters,expire,copy,joint}_test \
    store/clickhouse/{expire,lies,same,schema,in_process,failures,server}_test ingest/group_test \
    symbols/shared_test moving_test
CLICKHOUSE_REPLICA_URL=$(url_of b) run_tests store/clickhouse/cluster_test
CLICKHOUSE_CLUSTER=one run_tests store/expire_test store/clickhouse/expire_test
CLICKHOUSE_CLUSTER=two run_tests store/{store,series,labels}_test store/clickhouse/in_process_test
if [ -n "${LONG:-}" ]; then
    CLICKHOUSE_CLUSTER=two run_tests store/{where,events}_test store/clickhouse/same_test
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
