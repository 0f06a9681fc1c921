#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (5) When the last target is deleted, the kernel holds no BPF program and no link of an agent any
# more; the next target works. The node reports belong to the agents' DaemonSet, and the report of a
# node that does not exist is deleted.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace deleted
others() { # PIDs of all processes but the agents (a demo, unit tests)
    local mine p
    mine=" $(pids_of agent | tr '\n' ' ')"
    for p in /proc/[0-9]*; do
        case $mine in *" ${p#/proc/} "*) ;; *) echo "${p#/proc/}" ;; esac
    done
}
# How many programs the kernel holds that are named as the agent's and that no other process holds;
# or how many links to them.
ours() { # prog|link
    local theirs
    # shellcheck disable=SC2046
    theirs=$(held_by prog_id $(others) | jq -s .)
    bpftool -j prog show | jq --argjson theirs "$theirs" \
        '[.[] | select((.name // "") | startswith("pf_")) | .id] - $theirs' >"$W/progs"
    if [ "$1" = prog ]; then jq length "$W/progs"; return; fi
    bpftool -j link show | jq --slurpfile progs "$W/progs" \
        '[.[] | select(.prog_id as $id | $progs[0] | index($id))] | length'
}
none() { [ "$(ours prog)" = 0 ] && [ "$(ours link)" = 0 ]; }
pod deleted c node1 "/bin/shares c"
running deleted c
wait_check 120 "without a target there is no program and no link" none
for round in first second; do
    began=$(now)
    target deleted all '{"podSelector": {}}'
    wait_check 120 "$round target: samples" has_samples "pod='c'" "$began"
    check "$round target: there are programs ($(ours prog)) and links ($(ours link))" \
        test "$(ours prog)" -gt 0 -a "$(ours link)" -gt 0
    k -n deleted delete profilingtarget all >/dev/null
    wait_check 120 "$round target deleted: no program and no link" none
done
# Kubernetes deletes the reports with the DaemonSet; the hub deletes those of a node that is gone.
reports() { k -n podflame-system get profilingnodereports -o jsonpath="{.items[*].metadata.$1}"; }
owner() { [ "$(reports 'ownerReferences[*].kind')" = "DaemonSet DaemonSet" ]; }
check "the agents' DaemonSet owns the reports" owner
k apply -f - >/dev/null <<EOF
{apiVersion: podflame.io/v1alpha1, kind: ProfilingNodeReport,
 metadata: {name: gone, namespace: podflame-system}, spec: {nodeName: gone}}
EOF
only_theirs() { [ "$(reports name)" = "node1 node2" ]; }
wait_check 120 "only the report of a node that does not exist is deleted" only_theirs
