#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (10) A target that matches nothing, or pods that may or can not be profiled, says why.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace app bare
export CPU=100m
pod app out node1 "/bin/shares out" "labels: {app: out, podflame.io/profiling: 'no'}"
pod app quiet node1 /bin/idle
running app out quiet
target app nobody '{"podSelector": {"matchLabels": {"app": "nobody"}}}'
target app out '{"podSelector": {"matchLabels": {"app": "out"}}}'
target app quiet '{"podSelector": {"matchLabels": {"app": "quiet"}}}'
target app resting '{"podSelector": {}, "suspend": true}'
TARGETS+=(no-namespace)
k apply -f - >/dev/null <<'END'
{"apiVersion": "podflame.io/v1alpha1", "kind": "ClusterProfilingTarget", "metadata": {"name": "no-namespace"},
 "spec": {"podSelector": {}, "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "app"}}}}
END
says() { # NAME PATTERN
    condition app "$1" Ready | grep -qE "$2"
}
wait_check 60 "no pod matches: Ready is False, and why" says nobody '^False [A-Za-z]*(NoPods|Matched)[A-Za-z]* .+'
wait_check 60 "all opted out: Ready is False, and why" says out '^False [A-Za-z]*OptedOut .+'
wait_check 90 "nothing to sample: reason Idle" says quiet '^[A-Z][a-z]+ Idle .+'
wait_check 60 "suspended: says so" says resting '^False Suspended .+'
cluster_says() {
    k get clusterprofilingtarget no-namespace -o json | jq -r '.status.conditions[]? | select(.type == "Ready") | .reason' |
        grep -qE 'OptedIn'
}
wait_check 60 "a cluster target of a namespace that is not labelled: says so" cluster_says
for t in nobody out quiet resting; do note "$t: $(condition app $t Ready)"; done
check "kubectl get shows it" bash -c "[ -n '$(k -n app get ptgt nobody --no-headers | awk '{print $3}')' ]"
note "$(k -n app get ptgt nobody --no-headers)"
