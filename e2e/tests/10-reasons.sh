#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (10) A target that matches no pod, or pods that may not or cannot be profiled, says why. So does a
# target whose pods have memory that the agent does not see, a language without names, or a node
# without an agent. The last one recovers when the node gets one.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace reasons bare
export CPU=100m
pod reasons out node1 "/bin/shares out" "labels: {app: out, podflame.io/profiling: 'no'}"
pod reasons quiet node1 /bin/idle
MEMORY=256Mi pod reasons arena node1 /bin/arena "labels: {app: arena}"
WORKLOAD=languages pod reasons perl node1 "/bin/perl -e 1while(1)" "labels: {app: perl}"
running reasons out quiet arena perl
target reasons arena \
    '{"podSelector": {"matchLabels": {"app": "arena"}}, "events": {"onCpu": {}, "memAlloc": {}}}'
target reasons perl '{"podSelector": {"matchLabels": {"app": "perl"}}}'
target reasons nobody '{"podSelector": {"matchLabels": {"app": "nobody"}}}'
target reasons out '{"podSelector": {"matchLabels": {"app": "out"}}}'
target reasons quiet '{"podSelector": {"matchLabels": {"app": "quiet"}}}'
target reasons resting '{"podSelector": {}, "suspend": true}'
TARGETS+=(no-namespace)
k apply -f - >/dev/null <<'END'
{"apiVersion": "podflame.io/v1alpha1", "kind": "ClusterProfilingTarget",
 "metadata": {"name": "no-namespace"},
 "spec": {"podSelector": {},
          "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "reasons"}}}}
END
says() { # NAME PATTERN
    condition reasons "$1" Ready | grep -qE "$2"
}
unseen_memory() { # PATTERN
    condition reasons arena Degraded | grep -qE "$1"
}
wait_check 60 "no pod matches: Ready is False, and its reason says so" \
    says nobody '^False [A-Za-z]*(NoPods|Matched)[A-Za-z]* .+'
wait_check 60 "all pods opted out: Ready is False, and its reason says so" \
    says out '^False [A-Za-z]*OptedOut .+'
wait_check 90 "nothing to sample: reason Idle" says quiet '^[A-Z][a-z]+ Idle .+'
wait_check 60 "suspended: reason Suspended" says resting '^False Suspended .+'
cluster_says() {
    k get clusterprofilingtarget no-namespace -o json |
        jq -r '.status.conditions[]? | select(.type == "Ready") | .reason' | grep -qE 'OptedIn'
}
wait_check 60 "a cluster-wide target of a namespace without the label: its reason says so" \
    cluster_says
for t in nobody out quiet resting; do note "$t: $(condition reasons $t Ready)"; done
shown=$(k -n reasons get ptgt nobody --no-headers) || true
check "kubectl get shows the reason" test -n "$(awk '{print $3}' <<<"$shown")"
note "$shown"

# The status says what the agent does not see. Memory from mmap shows itself in a minute: it is
# looked at last.
wait_check 90 "Perl: Ready, with a note that its functions have no names" \
    says perl '^True .*Note: .*Perl'

# Node2 loses its agent. A hub that runs waits 90 s for an agent; a hub that starts sees that the
# node is older than that, so the test starts the hub again.
pod reasons there node2 "/bin/shares there"
running reasons there
target reasons there '{"podSelector": {"matchLabels": {"app": "there"}}}'
wait_check 90 "a pod of node2 is profiled" is_ready reasons there
trap 'k label node node2 --overwrite agents=yes >/dev/null; cleanup' EXIT
k label node node2 agents- >/dev/null
agents_of() { # NODE
    k -n podflame-system get pods -l app.kubernetes.io/component=agent \
        --field-selector spec.nodeName="$1" -o name
}
no_agent() { [ -z "$(agents_of node2)" ]; }
wait_check 60 "the agent of node2 is taken away" no_agent
k -n podflame-system delete pod -l app.kubernetes.io/component=hub --wait=true >/dev/null
without_agent='^False NodeWithoutAgent 1 pod on 1 node \(node2\) '
without_agent+='.*DaemonSet podflame-agent has no pod there.*nodeSelector'
wait_check 120 "pods of a node without an agent: Ready is False, and its message names the node" \
    says there "$without_agent"
note "there: $(condition reasons there Ready)"
described() {
    k -n reasons describe ptgt there >"$W/described"
    grep -qE 'Pods Matched: +1$' "$W/described" &&
        grep -qE 'Reason: +NodeWithoutAgent' "$W/described"
}
wait_check 30 "... kubectl describe shows it, and counts the pod" described
# a target with pods on both nodes
target reasons both '{"podSelector": {"matchExpressions":
    [{"key": "app", "operator": "In", "values": ["quiet", "there"]}]}}'
wait_check 90 "pods on both nodes: Ready's message names the one without an agent" \
    says both '^True .*Note: 1 pod on 1 node \(node2\)'
degraded() { condition reasons both Degraded | grep -q '^True NodeWithoutAgent'; }
wait_check 30 "... and Degraded is True" degraded
k label node node2 agents=yes >/dev/null
wait_check 120 "an agent comes back: Ready again" is_ready reasons there
recovered() {
    says both '^True' && ! says both 'node2' &&
        condition reasons both Degraded | grep -q '^False'
}
wait_check 60 "... and no condition names the node any more" recovered
wait_check 120 "memory from mmap: Degraded names it" \
    unseen_memory 'MemoryNotSeen .*arena.* grew by [0-9]+ MiB'
for t in arena perl; do
    note "$t: $(condition reasons $t Ready); $(condition reasons $t Degraded)"
done
