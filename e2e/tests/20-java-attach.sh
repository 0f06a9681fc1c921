#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (20) javaAttach: a JVM that podflame does not walk is asked for its perf map, if its target allows
# it and the agents have the capabilities for that (docs/perf-maps.md). Then its methods have names
# and the known shares, and nothing is left in its /tmp.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace java-attach
agents_ready() {
    k -n podflame-system rollout status daemonset/podflame-agent --timeout=180s >/dev/null
}
install_again() { install_for_tests && agents_ready; }
WORKLOAD=languages MEMORY=256Mi pod java-attach jvm node1 \
    "/bin/python3 /app/unknown_jvm.py -XX:+PreserveFramePointer -cp /app Shares"
AT_END+=(install_again)
install_for_tests --set 'agent.extraCapabilities={SETUID,SETGID,SYS_ADMIN}' \
    --set agent.javaAttachInterval=5s
agents_ready
running java-attach jvm
began=$(now)
target java-attach jvm '{"podSelector": {}, "events": {"onCpu": {"sampleHz": 199}}}'
says() { condition java-attach jvm Degraded | grep -q "$1"; }
wait_check 90 "a JVM that podflame does not walk: its target says so" \
    says 'True RuntimeNotWalked .*lack heap_log2_segment'
answer() { profile "pod_ns='java-attach'" "$began" "$(now)" >"$W/jvm.json"; }
wait_check 30 "... and it has samples" has_samples "pod='jvm'" "$began"
answer
check "... without names of methods" bash -c "! grep -q 'Shares::' '$W/jvm.json'"
target java-attach jvm '{"podSelector": {}, "javaAttach": "Allowed",
    "events": {"onCpu": {"sampleHz": 199}}}'
named() { answer && has_functions "$W/jvm.json" Shares::share_{50,30,20}; }
wait_check 90 "javaAttach: Allowed: its methods have names" named
# The JVM compiles its methods more than once. The agent asks it again for the names of new code, so
# a time without unnamed code comes.
whole() {
    answer || return
    local all
    all=$(total_us <"$W/jvm.json")
    [ "$all" -gt 6000000 ] || return
    sum=0
    for n in 50 30 20; do sum=$((sum + $(value_of Shares::share_$n <"$W/jvm.json"))); done
    [ $((sum * 100 / all)) -ge 90 ] || { began=$(now); return 1; }
}
began=$(($(now) + 2)) sum=1
wait_check 180 "... and 90 % of 6 s of CPU time" whole
for n in 50 30 20; do
    part=$(value_of Shares::share_$n <"$W/jvm.json")
    check "... Shares::share_$n has $((part * 100 / sum)) % of them" near $((part * 100 / sum)) $n 7
done
files=$(grep -ls "pod$(k -n java-attach get pod jvm -o 'jsonpath={.metadata.uid}')/" \
    /proc/[0-9]*/cgroup || true)
for f in $files; do
    ! grep -qx java "${f%cgroup}comm" || find "${f%cgroup}root/tmp/" -mindepth 1
done >"$W/left" 2>&1
check "... and nothing is left in its /tmp" bash -c "! grep -E 'perf-|attach' '$W/left'"
