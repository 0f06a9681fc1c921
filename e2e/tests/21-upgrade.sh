#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (21) `helm upgrade` from the chart of commit b93236b4, which knows no audiences and no limits of
# tenants, with the values that a user had set. The image is today's with both charts. Stores of
# older versions: agent/hub/store/raise_test.c. Then Pod Security's level "restricted" judges the
# pods of the new chart.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
OLD=$REPO/e2e/tests/testdata/podflame-chart-b93236b4.tgz
namespace upgraded
pod upgraded s node1 "/bin/shares s"
upgrade() { helm_ upgrade podflame "$@" -n podflame-system --wait --timeout 300s 2>&1; }
revision() { helm_ status podflame -n podflame-system -o json | jq .version; }
# existing REVISION...: names of the objects of these revisions of the release that exist
existing() {
    for r; do helm_ get manifest podflame -n podflame-system --revision "$r"; done |
        k get -f - -o name --ignore-not-found | sort -u
}

# helm removes what the older chart lacks, so this is as if that chart had been installed.
began=$(now)
check "the older chart with a user's values" upgrade "$OLD" --reset-values \
    --set clusterName="$CLUSTER" --set agent.window=2s --set agent.nodeSelector.agents=yes
old=$(revision)
target upgraded mine '{"podSelector": {}, "events": {"onCpu": {"sampleHz": 199}}}'
wait_check 60 "... profiles a target" is_ready upgraded mine
wait_check 60 "... and podflame-viewer sees its samples" has_samples "pod_ns='upgraded'" "$began"
check "helm upgrade --reset-then-reuse-values" \
    upgrade "$REPO/charts/podflame" --reset-then-reuse-values --set agent.stateDir="$TK_DIR/agents"
new=$(revision) began=$(now)
k -n upgraded create serviceaccount reader >/dev/null
k -n upgraded create rolebinding reader --clusterrole podflame-profiles-reader \
    --serviceaccount upgraded:reader >/dev/null
existing "$new" >"$W/new"
existing "$old" "$new" >"$W/both"
helm_ get manifest podflame -n podflame-system --revision "$new" | grep -c '^kind:' >"$W/n"
check "... every object of the new chart exists" test "$(wc -l <"$W/new")" = "$(cat "$W/n")"
check "... and none that only the older one had" cmp "$W/new" "$W/both"
kept() {
    helm_ get values podflame -n podflame-system --all -o json | jq -e --arg cluster "$CLUSTER" \
        '.clusterName == $cluster and .agent.window == "2s"'
}
check "... with the user's values" kept
wait_check 60 "a target of before is ready" is_ready upgraded mine
reader=$(token upgraded reader)
sees() { TOKEN=$reader has_samples "pod_ns='upgraded' AND pod_cluster='$CLUSTER'" "$began"; }
wait_check 90 "a user sees its samples, with the name of the cluster" sees
check "podflame-viewer, which the new chart binds to no role, sees nothing" \
    test "$(profile '' "$began" "$(now)" '' -f | total_us)" = 0

# An agent that is replaced leaves on its node until when it has profiled.
began=$(now)
check "the next helm upgrade replaces the agents" \
    upgrade "$REPO/charts/podflame" --reset-then-reuse-values --set agent.window=3s
gap() { # of whom no agent has profiled
    TOKEN=$reader profile "pod_ns='upgraded'" "$began" "$(now)" |
        jq -e '.summary.losses[] | select(.reason == "agent_down" and .of_node)'
}
wait_check 90 "... and the time without an agent is told as a loss" gap

# Agents and hub share a namespace, which lets the agents in, so nobody but this test asks whether
# the hub's pod would be admitted to a stricter one. The agents' pod shows that the level refuses.
namespace strict
k label namespace strict pod-security.kubernetes.io/enforce=restricted >/dev/null
k -n strict create serviceaccount podflame-hub >/dev/null
k -n strict create serviceaccount podflame-agent >/dev/null
admitted() { # FILE: of a Deployment or a DaemonSet, as JSON
    jq '{apiVersion: "v1", kind: "Pod", metadata: {name: "pod"}, spec: .spec.template.spec}' "$1" |
        k -n strict create --dry-run=server -f -
}
refused() { ! admitted "$1" >"$W/refused" 2>&1 && grep -q 'violates PodSecurity' "$W/refused"; }
hub_of() { # FLAG...: the Deployment that the chart renders with these values
    helm_ template podflame "$REPO/charts/podflame" -n strict "$@" >"$W/chart" &&
        k create --dry-run=client -o json -f "$W/chart" |
        jq -es 'map(select(.kind == "Deployment")) | .[0] // error("no hub")'
}
for kind in deployment/podflame-hub daemonset/podflame-agent; do
    k -n podflame-system get "$kind" -o json >"$W/${kind#*/}"
done
check "a namespace of the level restricted admits the hub's pod" admitted "$W/podflame-hub"
check "... and refuses the agents'" refused "$W/podflame-agent"
hub_of --set hub.persistence.enabled=true >"$W/kept"
check "... it admits a hub with a PersistentVolumeClaim" admitted "$W/kept"
hub_of --set hub.store=otlp --set hub.forward.url=https://h \
    --set-file hub.forward.ca="$TK_DIR/hub-ca.crt" >"$W/forwards"
check "... and one that forwards" admitted "$W/forwards"
