#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (34) Two hubs over ClickHouse. The one that leads is killed with its pod: the other one leads,
# nothing is lost, and nothing is counted twice. More of it: 35-clickhouse.sh.
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
. "$(dirname "${BASH_SOURCE[0]}")/../clickhouse.sh"
namespace two-hubs
pod two-hubs c node1 "/bin/shares c"
pod two-hubs d node2 "/bin/shares d"
prepare_engine
start_engine
target two-hubs all '{"podSelector": {}}'
AT_END+=(one_hub_again)
check "helm makes two hubs over ClickHouse" install_two_hubs
began=$(now)
wait_check 60 "both are ready" two_hubs
wait_check 90 "samples of both nodes" stored "$began"

# ---- what an administrator sees ----

on_two_nodes() { [ "$(hubs | awk '{ print $3 }' | sort -u | wc -l)" = 2 ]; }
check "they are on two nodes" on_two_nodes
one_leads() {
    local holder
    holder=$(holder)
    hubs | grep -q "^${holder%_*} "
}
wait_check 60 "one of them has the Lease" one_leads
disruptions() {
    k -n podflame-system get pdb podflame-hub -o json |
        jq -e '.status.disruptionsAllowed == 1' >/dev/null
}
wait_check 60 "the PodDisruptionBudget lets one of them be evicted" disruptions
k -n podflame-system get configmaps,deployments -o yaml >"$W/objects"
check "no ConfigMap and no Deployment has the password" test \
    "$(grep -cF -f "$W/engine.password" "$W/objects")" = 0
wait_check 60 "the target is ready" is_ready two-hubs all
# same_answer FROM TO: each hub answers the same
same_answer() {
    local ip node
    hubs | while read -r _ ip node; do
        HUB_IP=$ip profile "pod_ns='two-hubs'" "$1" "$2" >"$W/answer.$node"
    done
    total_us <"$W/answer.node1" | grep -v '^0$' &&
        cmp <(jq -S .result "$W/answer.node1") <(jq -S .result "$W/answer.node2")
}
until=$(($(now) - 3))
wait_check 60 "windows of both" stored "$until"
wait_check 30 "both give the same answer" same_answer "$began" "$until"

# ---- the leader is killed ----

from=$(($(even "$(now)") + 2))
wait_check 60 "both nodes' windows are stored" stored "$from"
first=$(holder)
kill_hub "${first%_*}"
target two-hubs later '{"podSelector": {"matchLabels": {"app": "c"}}}'
wait_check 60 "another hub takes the Lease of the one that was killed" another_leads "$first"
wait_check 30 "... and writes the status of a target that was made since" is_ready two-hubs later
wait_check 90 "two hubs are ready again" two_hubs
check_whole "a hub was killed" "$from"
note "$(repeated) windows were written twice"
