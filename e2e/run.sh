#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [NN...]: starts a cluster of two nodes, installs the chart, and runs e2e/tests/NN-*.sh one
# after another (all if no number is given). `make e2e` calls it, as root. A test is a process of
# its own that prints "ok", "FAIL" and "skip:" lines. If one fails, build/e2e/NAME.* has the logs of
# agents, hub and pods until then and the objects that existed. Ends with "N passed, N failed, N
# skipped". LONG=1: also those of e2e/tests/long, which come first, because the last test deletes
# the release. KEEP=1 leaves the cluster up; the next run with it uses that cluster with a new
# image.
export NAME=e2e
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
IMAGES=()
for t in podflame podflame-cuda workloads languages; do IMAGES+=("$BUILD/images/$t.tar"); done
OUT=$BUILD/e2e
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
[ -z "${LONG:-}" ] || "$REPO/e2e/proxy/build.sh" >/dev/null || true
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

passed=0 failed=0 skipped=0
for t in ${LONG:+"$REPO"/e2e/tests/long/[0-9]*.sh} "$REPO"/e2e/tests/[0-9]*.sh; do
    n=${t##*/}
    n=${n%.sh}
    if [ $# -gt 0 ]; then case " $* " in *" ${n%%-*} "*) ;; *) continue ;; esac; fi
    began=$SECONDS
    echo "== $n"
    rm -f "$OUT/$n".*
    timeout 600 "$t" >"$OUT/$n.log" 2>&1 </dev/null ||
        echo "FAIL $n ended with status $?" >>"$OUT/$n.log"
    if grep -q '^FAIL' "$OUT/$n.log"; then
        cat "$OUT/$n.log"
        echo "   more: $OUT/$n.*"
    else
        grep -E '^(ok|skip:|note)' "$OUT/$n.log" || true
    fi
    passed=$((passed + $(grep -c '^ok ' "$OUT/$n.log" || true)))
    failed=$((failed + $(grep -c '^FAIL' "$OUT/$n.log" || true)))
    skipped=$((skipped + $(grep -c '^skip: ' "$OUT/$n.log" || true)))
    echo "   ($((SECONDS - began)) s)"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
