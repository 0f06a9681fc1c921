#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (5) With the last target gone, no BPF program and no link of an agent's is left in the kernel; the next one works.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace app
agents() { pgrep -f 'podflame agent --config /etc/podflame/config.yaml' | while read -r p; do
    [ "$(readlink "/proc/$p/ns/net" || true)" != "$(readlink /proc/self/ns/net)" ] && echo "$p"
done; }
ours() { # prog|link: how many the agents of this cluster hold
    local pids
    pids=$(agents | jq -s .)
    bpftool -j "$1" show | jq --argjson p "$pids" '[.[] | select(any(.pids[]?.pid; . as $x | $p | index($x)))] | length'
}
none() { [ "$(ours prog)" = 0 ] && [ "$(ours link)" = 0 ]; }
pod app c node1 "/bin/shares c"
running app c
wait_check 20 "without a target there is no program and no link" none
for round in first second; do
    began=$(now)
    target app all '{"podSelector": {}}'
    wait_check 20 "$round target: samples" has_samples "pod='c'" "$began"
    check "$round target: there are programs ($(ours prog))" test "$(ours prog)" -gt 0
    k -n app delete profilingtarget all >/dev/null
    wait_check 15 "$round target deleted: no program and no link" none
done
