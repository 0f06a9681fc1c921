#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [NN...]: starts a cluster of two nodes, installs the chart, and runs e2e/tests/NN-*.sh one
# after another (all if no number is given). `make e2e` calls it, as root. A test is a process of
# its own that prints "ok", "FAIL" and "skip:" lines. If one fails, build/e2e/NAME.* has the logs of
# agents, hub and pods until then and the objects that existed. A test that fails runs once more; if
# it passes then, the run does not fail, and prints the first failure, which must be looked into
# (build/e2e/NAME.first.*). Nothing runs again if more than RETRIES tests failed. Ends with "N
# passed, N failed, N skipped". LONG=1: also those of e2e/tests/long, which come first, because the
# last test deletes the release. KEEP=1 leaves the cluster up; the next run with it uses that
# cluster with a new image.
export NAME=e2e
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
IMAGES=()
for t in podflame podflame-cuda workloads languages; do IMAGES+=("$BUILD/images/$t.tar"); done
OUT=$BUILD/e2e
RETRIES=2
mkdir -p "$OUT"

if [ "$(id -u)" != 0 ]; then
    echo "skip: e2e needs root (network namespaces, containers, BPF)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
finish() {
    local status=$?
    if [ -z "${KEEP:-}" ]; then
        mkdir -p "$OUT/log"
        cp "$TK_DIR"/log/*.log "$OUT/log/" 2>/dev/null || true
        cluster_down
    fi
    exit "$status"
}
TK_BIN=$("$REPO/e2e/cluster/build.sh")
export TK_BIN
# what a test needs built does not count against its time; if this fails, the test says so
if [ -n "${LONG:-}" ]; then
    "$REPO/e2e/proxy/build.sh" >/dev/null || true
    "$REPO/e2e/older/build.sh" >/dev/null || true
fi
if [ -z "${KEEP:-}" ] || ! k get --raw /readyz >/dev/null 2>&1; then
    cluster_down
    trap finish EXIT
    if ! cluster_up "${IMAGES[@]}" 2>"$OUT/up.log"; then
        cat "$OUT/up.log" >&2
        exit 1
    fi
else
    for n in 1 2; do
        for t in "${IMAGES[@]}"; do
            ctr --address "$TK_DIR/node$n/containerd.sock" -n k8s.io images import "$t" >/dev/null
        done
    done
    k -n podflame-system delete pods --all --wait=true >/dev/null 2>&1 || true
    rm -f "$TK_DIR/hub-ca.crt"
fi
install_for_tests || { save_state "$OUT/install"; exit 1; }

none_terminates() {
    ! k get namespaces -o 'jsonpath={.items[*].status.phase}' | grep -q Terminating
}
# run_test FILE NAME: its output is in $OUT/NAME.log. Fails if a line of it begins with FAIL.
run_test() {
    local limit=600
    [[ $1 != */long/* ]] || limit=1200
    timeout $limit "$1" >"$OUT/$2.log" 2>&1 </dev/null ||
        echo "FAIL $2 ended with status $?" >>"$OUT/$2.log"
    ! grep -q '^FAIL' "$OUT/$2.log"
}
# run_again FILE NAME: keeps what the first run left as NAME.first.*, and waits until the namespaces
# of the first run are gone, because the test makes them again.
run_again() {
    local f
    for f in "$OUT/$2".*; do mv "$f" "$OUT/$2.first.${f#"$OUT/$2."}"; done
    until_ 120 "namespaces that are being deleted" none_terminates || true
    run_test "$@"
}

passed=0 failed=0 skipped=0 again=0 unsteady=()
for t in ${LONG:+"$REPO"/e2e/tests/long/[0-9]*.sh} "$REPO"/e2e/tests/[0-9]*.sh; do
    n=${t##*/}
    n=${n%.sh}
    if [ $# -gt 0 ]; then case " $* " in *" ${n%%-*} "*) ;; *) continue ;; esac; fi
    began=$SECONDS
    echo "== $n"
    rm -f "$OUT/$n".*
    if ! run_test "$t" "$n"; then
        cat "$OUT/$n.log"
        echo "   more: $OUT/$n.*"
        again=$((again + 1))
        if [ $again -le $RETRIES ]; then
            echo "== $n, once more"
            if run_again "$t" "$n"; then unsteady+=("$n"); else cat "$OUT/$n.log"; fi
        fi
    fi
    if ! grep -q '^FAIL' "$OUT/$n.log"; then
        grep -E '^(ok|skip:|note)' "$OUT/$n.log" || true
    fi
    passed=$((passed + $(grep -c '^ok ' "$OUT/$n.log" || true)))
    failed=$((failed + $(grep -c '^FAIL' "$OUT/$n.log" || true)))
    skipped=$((skipped + $(grep -c '^skip: ' "$OUT/$n.log" || true)))
    echo "   ($((SECONDS - began)) s)"
done
for n in "${unsteady[@]}"; do
    echo "failed at first, passed when run again: $n ($OUT/$n.first.*)"
    grep '^FAIL' "$OUT/$n.first.log" | sed 's/^/    at first: /'
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
