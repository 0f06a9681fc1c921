# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2034     # TOKEN is for lib.sh
# For e2e/tests/NN-*.sh: one namespace or more a test, which no other test has. At its end the targets are gone; the namespaces
# go while the next test begins.
export NAME=e2e
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
W=$(mktemp -d)
NAMESPACES=()
TARGETS=()                               # cluster-wide ones
# at the first failure, while what failed is there
keep_state() {
    [ -n "${kept:-}" ] || { kept=1; save_state "$BUILD/e2e/$(basename "$0" .sh)" "${NAMESPACES[@]}"; }
}
cleanup() {
    local status=$? n
    set +e
    [ $status = 0 ] || keep_state
    [ ${#TARGETS[@]} = 0 ] || k delete clusterprofilingtarget "${TARGETS[@]}" --ignore-not-found >/dev/null
    for n in "${NAMESPACES[@]}"; do k -n "$n" delete profilingtargets --all --wait=true --timeout=60s; done >/dev/null
    [ ${#NAMESPACES[@]} = 0 ] || k delete namespace "${NAMESPACES[@]}" --ignore-not-found --wait=false >/dev/null
    rm -rf "$W"
}
trap cleanup EXIT
TOKEN=$(token)
HUB_IP=$(hub_ip)                         # once, not with each question

ok() { printf 'ok   %s\n' "$*"; }
fail() {
    printf 'FAIL %s\n' "$*"
    keep_state
}
note() { printf 'note %s\n' "$*"; }
check() { # WHAT CMD...
    local what=$1
    shift
    if "$@" >"$W/check" 2>&1; then
        ok "$what"
    else
        fail "$what"
        tail -5 "$W/check" | sed 's/^/     /'
    fi
}
# wait_check SECONDS WHAT CMD...
wait_check() {
    local wait_began=$SECONDS what=$2
    if until_ "$1" "$2" "${@:3}"; then ok "$what ($((SECONDS - wait_began)) s)"; else fail "$what"; fi
}
near() { awk -v a="$1" -v b="$2" -v d="$3" 'BEGIN {exit !(a - b <= d && b - a <= d)}'; }
between() { awk -v a="$1" -v lo="$2" -v hi="$3" 'BEGIN {exit !(a >= lo && a <= hi)}'; }

namespace() { # NAME...
    local n
    for n; do
        NAMESPACES+=("$n")
        k delete namespace "$n" --ignore-not-found --wait=true >/dev/null
        k create namespace "$n" >/dev/null
        # the API server refuses pods before the controller has made it
        until_ 120 "the service account of $n" k -n "$n" get serviceaccount default >/dev/null
    done
}
# pod NAMESPACE NAME NODE "COMMAND ARG" [MORE_YAML_OF_METADATA]: half a CPU at most; $WORKLOAD is another image
pod() {
    local words word
    read -ra words <<<"$4"
    printf -v word '"%s",' "${words[@]}"
    k apply -f - >/dev/null <<END
apiVersion: v1
kind: Pod
metadata:
  name: $2
  namespace: $1
  ${5:-labels: {app: $2\}}
spec:
  terminationGracePeriodSeconds: 1
  nodeName: $3
  restartPolicy: ${RESTART:-Always}
  containers:
    - name: main
      image: localhost/podflame-${WORKLOAD:-workloads}:1
      command: [${word%,}]
      resources: {requests: {cpu: 100m}, limits: {cpu: ${CPU:-500m}, memory: ${MEMORY:-64Mi}}}
END
}
running() { # NAMESPACE POD...
    local ns=$1 p
    shift
    for p; do k -n "$ns" wait "pod/$p" --for=condition=Ready --timeout=180s >/dev/null; done
}
# target NAMESPACE NAME SPEC_AS_JSON
target() {
    k apply -f - >/dev/null <<END
{"apiVersion": "podflame.io/v1alpha1", "kind": "ProfilingTarget", "metadata": {"name": "$2", "namespace": "$1"}, "spec": $3}
END
}
condition() { # NAMESPACE NAME TYPE: "True Reason message"
    k -n "$1" get profilingtarget "$2" -o json |
        jq -r --arg t "$3" '.status.conditions[]? | select(.type == $t) | "\(.status) \(.reason) \(.message)"'
}
is_ready() { case $(condition "$1" "$2" Ready) in True*) ;; *) return 1 ;; esac; }
now() { date +%s; }
# pids_of COMPONENT: host PIDs of the program in this cluster's agent or hub pods
pids_of() {
    local uid p
    for uid in $(k -n podflame-system get pods -l "app.kubernetes.io/component=$1" -o 'jsonpath={.items[*].metadata.uid}'); do
        for p in /proc/[0-9]*; do
            if grep -q "pod$uid/" "$p/cgroup" && grep -q podflame "$p/comm"; then echo "${p#/proc/}"; fi
        done
    done 2>/dev/null
}
us_of() { profile "$1" "$2" "$3" | tee "$W/answer.json" | total_us; }
has_samples() { [ "$(us_of "$1" "$2" "$(now)")" -gt 0 ]; }
# stored_after POD TIME: the windows of its node up to that time are stored, as a later one is
stored_after() { has_samples "pod='$1'" $(($2 + 1)); }
# Where nothing must happen, something else does: a pod on each node that is profiled until the test's end.
witnesses() {
    local n in=${NAMESPACES[0]}-witness
    namespace "$in"
    for n in 1 2; do CPU=100m pod "$in" witness$n node$n "/bin/shares witness$n"; done
    running "$in" witness1 witness2
    target "$in" all '{"podSelector": {}}'
}
# witnessed TIME: what both nodes saw up to then is stored
witnessed() { stored_after witness1 "$1" && stored_after witness2 "$1"; }
# last_sample FILTER TIME: its last second from TIME on, known when the witnesses have six seconds more than it
last_sample() {
    local t=$2 end=$((SECONDS + 90))
    while [ $SECONDS -lt $end ]; do
        until_ 60 "the witnesses' samples" witnessed $((t + 6)) || return 1
        if [ "$(us_of "$1" $((t + 1)) $((t + 6)))" = 0 ]; then echo "$t"; return; fi
        t=$((t + 1))
    done
    return 1
}
# check_stops WHAT FILTER TIME: within 5 s, says the design; a busy machine gets three times that
check_stops() {
    local last
    last=$(last_sample "$2" "$3") || last=0
    check "$1: the last sample is of $((last - $3)) s after" between $((last - $3)) 0 15
}
# held_by KEY PID...: numbers that file descriptors of these processes name: KEY is prog_id, map_id or link_id
held_by() {
    local key=$1 p
    shift
    for p; do cat /proc/"$p"/fdinfo/* 2>/dev/null || true; done | awk -v k="$key:" '$1 == k {print $2}' | sort -un
}
# split_between NAMESPACE POD FROM TO: the program's own microseconds a function, "A B C", from its printed totals
split_between() {
    k -n "$1" logs "$2" | awk -v s="$3" -v e="$4" '$1 == "split" && $2 >= s && $2 <= e {
        if (!n++) {a = $3; b = $4; c = $5}
        x = $3; y = $4; z = $5} END {print x - a, y - b, z - c}'
}
# has_used NAMESPACE POD TIME US: so much CPU since then, as the program itself says
has_used() {
    local a b c
    read -r a b c <<<"$(split_between "$1" "$2" "$3" "$(now)")"
    [ $((a + b + c)) -ge "$4" ]
}
