#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (2) A pod that no target selects gives not one sample, and no record of it leaves the kernel: not
# a pod of another namespace, nor one on another node, nor another one of the namespace. The same
# holds with Total on, but for the rows of Total. What the install values `tenant.…` limit is told.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace isolated neighbour
export CPU=300m
pod isolated wanted node1 "/bin/shares wanted"
pod isolated unwanted node1 "/bin/shares unwanted"
pod isolated elsewhere node2 "/bin/shares elsewhere" "labels: {app: wanted}"
pod neighbour near node1 "/bin/shares near" "labels: {app: wanted}"
pod neighbour far node2 "/bin/shares far" "labels: {app: wanted}"
k label node node1 disk=ssd --overwrite >/dev/null
running isolated wanted unwanted elsewhere
running neighbour near far

# IDs of the maps of that name that this cluster's agents hold. bpftool reads their contents, so the
# test does not rely on what the agent reports.
maps() { # NAME
    # shellcheck disable=SC2046
    held_by map_id $(pids_of agent) | while read -r id; do
        bpftool -j map show id "$id" | jq -r --arg n "$1" 'select(.name == $n) | .id'
    done
}
kernel_stat() { # MEMBER of struct pf_stats (bpf/abi.h), added up over all agents and CPUs
    local id
    for id in $STATS; do bpftool -j map dump id "$id"; done |
        jq -s --arg member "$1" \
            '[.[][].formatted.values[].value[$member] // error("stats has no " + $member)] | add'
}
# Paths of the cgroups that the kernel's filter lets through; the filter holds their IDs.
filtered_cgroups() {
    local id
    for id in $(maps filter_cgroups); do
        bpftool -j map dump id "$id" | jq -r '.[].key | reverse | map(ltrimstr("0x")) | join("")'
    done | sort -u | while read -r hex; do
        find /sys/fs/cgroup/ /sys/fs/cgroup/*/ -xdev -inum "$((16#$hex))" 2>/dev/null || true
    done | sort -u
}
processes() { # POD_UID: the pod's, without the sandbox's pause
    local p
    for p in /proc/[0-9]*; do
        if grep -q "pod$1/" "$p/cgroup" && ! grep -qx pause "$p/comm"; then
            echo "${p#/proc/}"
        fi
    done 2>/dev/null
}
states() { # PID...: the states that their threads are in, each once
    local p
    for p; do cat /proc/"$p"/task/*/status; done | awk '$1 == "State:" {print $2}' | sort -u
}
all_stopped() { [ "$(states "$@")" = T ]; }
stop() { # POD_UID: stops its processes and waits until no thread of theirs runs
    local pids
    mapfile -t pids < <(processes "$1")
    kill -STOP "${pids[@]}"
    until_ 60 "stopped processes" all_stopped "${pids[@]}"
}
go_on() { # shellcheck disable=SC2046
    kill -CONT $(processes "$1")
}
# All that the pod gave since FROM is stored: the sum does not grow within five seconds.
settled() { # FROM
    local sum
    sum=$(us_of "pod='wanted'" "$1" "$(now)")
    sleep 5
    [ "$(us_of "pod='wanted'" "$1" "$(now)")" = "$sum" ]
}
stored_since() { # FROM SAMPLES
    [ "$(profile "app_service != 'Total'" "$1" "$(now)" | jq .summary.samples)" = "$2" ]
}
check_isolation() { # WHAT
    local began from to all wanted uid pod before after
    began=$(now)
    target isolated one '{"podSelector": {"matchLabels": {"app": "wanted"}},
        "nodeSelector": {"matchLabels": {"disk": "ssd"}}}'
    wait_check 90 "$1: samples of the selected pod" has_samples "pod='wanted'" "$(now)"
    uid=$(k -n isolated get pod wanted -o 'jsonpath={.metadata.uid}')
    filtered_cgroups >"$W/cgroups"
    check "$1: the kernel's filter holds cgroups of that pod and no other" \
        bash -c "grep -q 'pod$uid' '$W/cgroups' && ! grep -v 'pod$uid' '$W/cgroups'"
    STATS=$(maps stats)
    # The pod is stopped at both ends, so that no sample lies on an edge: the number of samples that
    # the kernel delivered is exactly the number that is stored.
    stop "$uid"
    until_ 60 "its last window" settled "$began"
    from=$(now)
    before=$(kernel_stat delivered)
    go_on "$uid"
    until_ 90 "2 s of its CPU" has_used isolated wanted "$from" 2000000 || true
    stop "$uid"
    after=$(kernel_stat delivered)
    check "$1: the kernel delivered all samples that it took" \
        test "$(kernel_stat taken)" = "$after"
    wait_check 60 "$1: all $((after - before)) samples that the kernel delivered are stored" \
        stored_since "$from" $((after - before))
    to=$(now)
    profile "app_service != 'Total'" "$from" "$to" >"$W/all.json"
    all=$(total_us <"$W/all.json")
    wanted=$(us_of "pod_ns='isolated' AND pod='wanted' AND pod_node='node1'" "$from" "$to")
    check "$1: all that was stored ($all us) is the pod's ($wanted us)" \
        test "$all" = "$wanted" -a "$all" -gt 0
    for pod in unwanted elsewhere near far; do
        check "$1: not one sample of $pod" test "$(us_of "pod='$pod'" "$from" "$to")" = 0
        check "$1: no process named $pod" bash -c "! grep -qF '\"[p] $pod\"' '$W/all.json'"
    done
    go_on "$uid"
    k -n isolated delete profilingtarget one >/dev/null
}
check_isolation "Total off"
check "Total off: no rows of Total" \
    test "$(profile "" $(($(now) - 60)) "$(now)" Total | total_us)" = 0
install_for_tests --set total=true --set tenant.maxSampleHz=150 --set tenant.maxOverheadPercent=5 \
    --set 'tenant.allowedEvents={onCpu,memAlloc}' --set tenant.minSampleBytes=65536 \
    --set tenant.maxTargets=2
k -n podflame-system rollout status daemonset/podflame-agent --timeout=180s >/dev/null
check_isolation "Total on"
check "Total on: rows of the whole node" \
    test "$(profile "" $(($(now) - 30)) "$(now)" Total | total_us)" -gt 1000000
profile "pod_node='node1'" $(($(now) - 30)) "$(now)" Total | functions >"$W/total" || true
check "Total on: processes and threads by name" \
    bash -c "grep -q '^\[p\] near' '$W/total' && grep -q '^\[t\] ' '$W/total'"
target neighbour a '{"podSelector": {}, "limits": {"overheadPercent": 50},
    "events": {"memAlloc": {"sampleBytes": 1}}}'
target neighbour b '{"podSelector": {}, "events": {"onCpu": {"sampleHz": 199}, "offCpu": {}}}'
target neighbour c '{"podSelector": {}}'
target isolated none '{"podSelector": {}, "events": {"rdma": {}}}'
told() { # NAMESPACE NAME TEXT...: kubectl describe shows these texts
    local t
    k -n "$1" describe ptgt "$2" >"$W/described"
    for t in "${@:3}"; do grep -qF -- "$t" "$W/described" || return 1; done
}
wait_check 30 "limits of tenants: sampleBytes and overheadPercent" told neighbour a \
    'memAlloc.sampleBytes is 1, the install value tenant.minSampleBytes raises it to 65536' \
    'overheadPercent is 50, the install value tenant.maxOverheadPercent allows 5'
wait_check 90 "... an event that is not allowed does not keep a target from being Ready" \
    told neighbour b 'sampleHz is 199, the install value tenant.maxSampleHz allows 150' \
    'asks for offCpu; the install value tenant.allowedEvents allows onCpu, memAlloc' \
    'samples of on-cpu are stored. Note: the agents leave out off-cpu'
sed -n '/^Status/,$p' "$W/described" | cut -c1-160 | sed 's/^/     /'
refused() { condition "$1" "$2" Accepted | grep -qF "False $3"; }
wait_check 30 "... a target without an allowed event is refused" \
    refused isolated none 'NoEventAllowed on 2 nodes'
wait_check 30 "... so is one target too many, and not the older ones" \
    refused neighbour c 'TooManyTargets on 2 nodes'
install_for_tests
k -n podflame-system rollout status daemonset/podflame-agent --timeout=180s >/dev/null
