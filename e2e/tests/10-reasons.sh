#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (10) A target that matches no pod, or pods that may not or cannot be profiled, says why. So does a
# target whose pods have memory that the agent does not see, a language without names, no profiles
# of their own although the target asks for them, or a node without an agent. The last one recovers
# when the node gets one. Profiles that a Go program has are stored, as what they are.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace reasons bare
export CPU=100m
pod reasons out node1 "/bin/shares out" "labels: {app: out, podflame.io/profiling: 'no'}"
pod reasons quiet node1 /bin/idle
MEMORY=256Mi pod reasons arena node1 /bin/arena "labels: {app: arena}"
WORKLOAD=languages pod reasons perl node1 "/bin/perl -e 1while(1)" "labels: {app: perl}"
for p in 6060 6061; do
    MEMORY=256Mi pod reasons pprof-$p node1 /bin/pprof-go "labels: {app: pprof, asked: 'at-$p'}
  annotations: {podflame.io/scrape: '$p'}"
done
running reasons out quiet arena perl pprof-6060 pprof-6061
began=$(now)
for p in 6060 6061; do
    target reasons pprof-$p '{"podSelector": {"matchLabels": {"asked": "at-'$p'"}},
        "scrape": {"interval": "10s"}, "limits": {"overheadPercent": 100}}'
done
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

# Profiles that a Go program has itself. It keeps 64 MiB that main.keep allocated.
offered() { # EVENT FUNCTION: prints the value
    EVENT=$1 profile "pod_ns='reasons' AND pod='pprof-6060' AND pod_node='node1' AND
        producer='go-pprof' AND profile_language_type='Golang'" "$began" "$(now)" pprof-6060 |
        tee "$W/offered.json" | value_of "$2"
}
offers() { [ "$(offered "$@")" -gt 0 ]; }
wait_check 90 "the heap that a Go program shows is stored" offers inuse_space main.keep
check "... as much as it has" test "$(offered inuse_space main.keep)" = $((64 << 20))
check "... and not what it allocated before" test "$(offered alloc_space main.keep)" = 0
for e in "alloc_space main.allocate" "mutex_duration main.hold" "goroutines main.main.func1"; do
    # shellcheck disable=SC2086
    wait_check 60 "... $e" offers $e
done
refuses() { condition reasons "$1" Degraded | grep -qE "$2"; }
wait_check 60 "nobody listens at the port of the annotation: Degraded says so" refuses pprof-6061 \
    '^True ScrapeFailed .*pod reasons/pprof-6061: port 6061, /debug/pprof/heap: .*refused'
check "... and nothing is said of the one that answers" refuses pprof-6060 '^False '
note "pprof-6061: $(condition reasons pprof-6061 Degraded)"

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
