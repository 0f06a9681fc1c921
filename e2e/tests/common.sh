# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2034     # TOKEN is for lib.sh
# What e2e/tests/NN-*.sh share; each of them sources this file. A test creates one or more
# namespaces that no other test uses. At its end its targets are deleted; the namespaces disappear
# while the next test begins. $W is a directory for files of the test.
export NAME=e2e
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
W=$(mktemp -d)
NAMESPACES=()
TARGETS=()                               # the test's ClusterProfilingTargets
PIDS=()                                  # processes that end with the test
AT_END=()                                # functions that remove what else the test has left
# Saves logs and objects at the first failure, before anything of the test is deleted.
keep_state() {
    [ -z "${state_is_saved:-}" ] || return 0
    state_is_saved=1
    save_state "$BUILD/e2e/$(basename "$0" .sh)" "${NAMESPACES[@]}"
}
cleanup() {
    local status=$? n
    set +e
    [ $status = 0 ] || keep_state
    if [ ${#PIDS[@]} != 0 ]; then kill "${PIDS[@]}" 2>/dev/null; fi
    for n in "${AT_END[@]}"; do "$n"; done >/dev/null
    if [ ${#TARGETS[@]} != 0 ]; then
        k delete clusterprofilingtarget "${TARGETS[@]}" --ignore-not-found >/dev/null
    fi
    for n in "${NAMESPACES[@]}"; do
        k -n "$n" delete profilingtargets --all --wait=true --timeout=60s
    done >/dev/null
    if [ ${#NAMESPACES[@]} != 0 ]; then
        k delete namespace "${NAMESPACES[@]}" --ignore-not-found --wait=false >/dev/null
    fi
    rm -rf "$W"
}
trap cleanup EXIT
TOKEN=$(token podflame-system podflame-viewer)
HUB_IP=$(hub_ip)                         # asked for once, not for each request to the hub

ok() { printf 'ok   %s\n' "$*"; }
fail() {
    printf 'FAIL %s\n' "$*"
    keep_state
}
note() { printf 'note %s\n' "$*"; }
# check WHAT COMMAND...: prints "ok WHAT" if the command succeeds, else "FAIL WHAT" and its output
check() {
    local what=$1
    shift
    if "$@" >"$W/check" 2>&1; then
        ok "$what"
    else
        fail "$what"
        tail -5 "$W/check" | sed 's/^/     /'
    fi
}
# wait_check SECONDS WHAT COMMAND...: the same for a command that succeeds within so many seconds
wait_check() {
    local wait_began=$SECONDS what=$2
    if until_ "$1" "$2" "${@:3}"; then
        ok "$what ($((SECONDS - wait_began)) s)"
    else
        fail "$what"
    fi
}
# beside COMMAND...: starts in_net, k, or a function that ends with one of them, until the test
# ends. Without exec the PID would be that of a shell, and the program would outlive it.
beside() {
    (in_net() { exec nsenter --net="/run/netns/$NETNS" -- "$@"; } && "$@") &
    PIDS+=($!)
}
# end_beside PID [-SIGNAL]: ends what beside started, before the test ends
end_beside() {
    local p left=()
    for p in "${PIDS[@]}"; do [ "$p" = "$1" ] || left+=("$p"); done
    PIDS=("${left[@]}")
    kill "${@:2}" "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}
# near A B DISTANCE, between A LEAST MOST: compare numbers, which may have decimals
near() { awk -v a="$1" -v b="$2" -v d="$3" 'BEGIN {exit !(a - b <= d && b - a <= d)}'; }
between() { awk -v a="$1" -v lo="$2" -v hi="$3" 'BEGIN {exit !(a >= lo && a <= hi)}'; }
# has_functions FILE NAME...: the answer in FILE has a function of each of these names
has_functions() {
    local n
    functions <"$1" >"$W/names"
    for n in "${@:2}"; do grep -qxF -- "$n" "$W/names" || return 1; done
}
# finished_percent FILE: how many of the stacks in that answer are whole
finished_percent() { jq -r .summary.finished_percent "$1"; }

namespace() { # NAME...
    local n
    for n; do
        NAMESPACES+=("$n")
        k delete namespace "$n" --ignore-not-found --wait=true >/dev/null
        k create namespace "$n" >/dev/null
        # The API server refuses pods until the controller has made the service account.
        until_ 120 "the service account of $n" k -n "$n" get serviceaccount default >/dev/null
    done
}
# pod NAMESPACE NAME NODE "COMMAND ARGUMENT" [MORE_YAML_OF_METADATA]: a pod that uses half a CPU at
# most. $WORKLOAD, $REQUEST, $CPU, $MEMORY and $RESTART choose its image, the CPU that it
# asks for, limits and restartPolicy.
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
      resources:
        requests: {cpu: ${REQUEST:-100m}}
        limits: {cpu: ${CPU:-500m}, memory: ${MEMORY:-64Mi}}
END
}
# running NAMESPACE POD...: waits until the pods are ready
running() {
    local ns=$1 p
    shift
    for p; do k -n "$ns" wait "pod/$p" --for=condition=Ready --timeout=180s >/dev/null; done
}
# target NAMESPACE NAME SPEC_AS_JSON
target() {
    k apply -f - >/dev/null <<END
{"apiVersion": "podflame.io/v1alpha1", "kind": "ProfilingTarget",
 "metadata": {"name": "$2", "namespace": "$1"}, "spec": $3}
END
}
condition() { # NAMESPACE NAME TYPE: "True Reason message"
    k -n "$1" get profilingtarget "$2" -o json |
        jq -r --arg type "$3" '.status.conditions[]? | select(.type == $type)
            | "\(.status) \(.reason) \(.message)"'
}
is_ready() { case $(condition "$1" "$2" Ready) in True*) ;; *) return 1 ;; esac; }
now() { date +%s; }
# yaml_of_page PAGE NUMBER: prints a block of YAML of docs/PAGE, as it is written there
yaml_of_page() {
    awk -v want="$2" '/^```yaml$/ { inside = ++n == want; next } /^```$/ { inside = 0 } inside' \
        "$REPO/docs/$1"
}
# uids_of_pods COMPONENT: UIDs of the agent's or the hub's pods
uids_of_pods() {
    k -n podflame-system get pods -l "app.kubernetes.io/component=$1" \
        -o 'jsonpath={.items[*].metadata.uid}'
}
# pids_in_pod UID: PIDs on this machine of podflame in this pod
pids_in_pod() {
    local p
    for p in /proc/[0-9]*; do
        if grep -q "pod$1/" "$p/cgroup" && grep -q podflame "$p/comm"; then
            echo "${p#/proc/}"
        fi
    done 2>/dev/null
}
# pids_of COMPONENT: those of the program in this cluster's agent or hub pods
pids_of() {
    local uid
    for uid in $(uids_of_pods "$1"); do pids_in_pod "$uid"; done
}
# us_of FILTER FROM TO: microseconds of CPU that are stored for the test's namespaces; the answer
# itself is in $W/answer.json. The test before may have had a pod of the same name, whose last
# samples are stored later.
us_of() {
    local in
    printf -v in ",'%s'" "${NAMESPACES[@]}"
    profile "($1) AND pod_ns IN (${in#,})" "$2" "$3" | tee "$W/answer.json" | total_us
}
# has_samples FILTER FROM
has_samples() { [ "$(us_of "$1" "$2" "$(now)")" -gt 0 ]; }
# stored_after POD TIME: a later sample of the pod is stored, so its node's windows up to TIME are
stored_after() { has_samples "pod='$1'" $(($2 + 1)); }
# stored TIME: the windows of the test's pods c and d up to TIME are stored
stored() { stored_after c "$1" && stored_after d "$1"; }
# A test that nothing happens needs something that does happen: a pod on each node, profiled until
# the test ends. When a later sample of both is stored, what did not happen would be stored, too.
witnesses() {
    local n in=${NAMESPACES[0]}-witness
    namespace "$in"
    for n in 1 2; do CPU=100m pod "$in" witness$n node$n "/bin/shares witness$n"; done
    running "$in" witness1 witness2
    target "$in" all '{"podSelector": {}}'
}
# witnessed TIME: what the agents of both nodes sampled up to TIME is stored
witnessed() { stored_after witness1 "$1" && stored_after witness2 "$1"; }
# last_sample FILTER TIME: prints the second of the last sample, TIME or later. It is the last when
# the witnesses have samples of six seconds more.
last_sample() {
    local t=$2 end=$((SECONDS + 90))
    while [ $SECONDS -lt $end ]; do
        until_ 60 "the witnesses' samples" witnessed $((t + 6)) || return 1
        if [ "$(us_of "$1" $((t + 1)) $((t + 6)))" = 0 ]; then echo "$t"; return; fi
        t=$((t + 1))
    done
    return 1
}
# check_stops WHAT FILTER TIME: profiling stops soon after TIME. The design says within 5 s; a busy
# machine gets three times that.
check_stops() {
    local last
    last=$(last_sample "$2" "$3") || last=0
    check "$1: the last sample is from $((last - $3)) s after" between $((last - $3)) 0 15
}
# held_by KEY PID...: the kernel's numbers of the objects that the file descriptors of these
# processes refer to; KEY is prog_id, map_id or link_id
held_by() {
    local key=$1 p
    shift
    for p; do cat /proc/"$p"/fdinfo/* 2>/dev/null || true; done |
        awk -v key="$key:" '$1 == key {print $2}' | sort -un
}
# split_between NAMESPACE POD FROM TO: prints "A B C", the microseconds of CPU that each of the
# program's three functions used, from the totals that the program prints
split_between() {
    k -n "$1" logs "$2" | awk -v s="$3" -v e="$4" '$1 == "split" && $2 >= s && $2 <= e {
        if (!n++) {a = $3; b = $4; c = $5}
        x = $3; y = $4; z = $5} END {print x - a, y - b, z - c}'
}
# has_used NAMESPACE POD TIME US: the program says that it has used so much CPU since TIME
has_used() {
    local a b c
    read -r a b c <<<"$(split_between "$1" "$2" "$3" "$(now)")"
    [ $((a + b + c)) -ge "$4" ]
}
# all_there NAMESPACE POD FROM TO: what is stored is what the program used, within 12 % and half a
# second, because the program prints only once a second
all_there() {
    local a b c sum got
    read -r a b c <<<"$(split_between "$1" "$2" "$3" "$4")"
    sum=$((a + b + c))
    got=$(us_of "pod_ns='$1' AND pod='$2'" $(($3 + 1)) "$4")
    echo "$got us stored, $sum us used"
    near "$got" "$sum" $((sum * 12 / 100 + 500000))
}
# The API server is killed, and starts again as it was.
kill_api_server() {
    local p
    p=$(cat "$TK_DIR/pid/kube-apiserver")
    mapfile -d '' -t API_SERVER <"/proc/$p/cmdline"
    kill -9 "$p"
}
start_api_server() {
    setsid nsenter --net="/run/netns/$NETNS" -- "${API_SERVER[@]}" \
        >>"$TK_DIR/log/kube-apiserver.log" 2>&1 </dev/null &
    echo $! >"$TK_DIR/pid/kube-apiserver"
    until_ 60 "the API server" k get --raw /readyz
}
