#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (19) A user sees the namespaces in which a role of Kubernetes gives the right, and nothing of the
# others: with the ClusterRole view in one namespace, with podflame-profiles-reader in two, and with
# no role at all.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace tenant-a tenant-b
export CPU=200m REQUEST=50m
for t in a b; do
    pod tenant-$t pod-$t node1 "/bin/shares own-$t" "labels: {owner: team-$t}"
    target tenant-$t all '{"podSelector": {}, "podLabelTags": ["owner"]}'
done
for user in alice both nobody; do
    k -n tenant-a create serviceaccount $user >/dev/null
done
k -n tenant-a create rolebinding alice --clusterrole view --serviceaccount tenant-a:alice >/dev/null
for t in a b; do
    k -n tenant-$t create rolebinding both --clusterrole podflame-profiles-reader \
        --serviceaccount tenant-a:both >/dev/null
done
k -n podflame-system create rolebinding alice-connects --role podflame-connect \
    --serviceaccount tenant-a:alice >/dev/null
for t in a b; do running tenant-$t pod-$t; done
began=$(now)
for t in a b; do
    wait_check 90 "samples of tenant-$t" has_samples "pod_ns='tenant-$t'" "$began"
done
ended=$(now)
# what ended until then is stored
for t in a b; do wait_check 60 "later samples of tenant-$t" stored_after pod-$t "$ended"; done
alice=$(k -n tenant-a create token alice) both=$(k -n tenant-a create token both)
nobody=$(k -n tenant-a create token nobody)

as() { # TOKEN COMMAND...
    TOKEN=$1 "${@:2}"
}
us() { profile "$1" "$began" "$ended" "${2:-}" | total_us; } # FILTER [APP]
ask() { # PATH MEMBERS: the answer to a query of the time
    hub "/v1/profile/$1" -H 'Content-Type: application/json' -d '{"profile_event_type": "on-cpu",
        "profile_language_type": "eBPF", "time_start": '"$began"', "time_end": '"$ended${2:+, $2}}"
}
status() { hub "$1" -o /dev/null -w '%{http_code}' "${@:2}" || true; }
a=$(us "pod_ns='tenant-a'") b=$(us "pod_ns='tenant-b'")
check "both namespaces have samples ($a us, $b us)" test "$a" -gt 0 -a "$b" -gt 0

profile '' "$began" "$ended" >"$W/all.json"
as "$alice" profile '' "$began" "$ended" >"$W/alice.json"
check "alice, who may view tenant-a, sees all of it and no more" \
    test "$(total_us <"$W/alice.json")" = "$a"
check "... which is less than all" test "$(total_us <"$W/all.json")" -gt "$a"
check "... and is told so" bash -c "jq -e '.summary.notes | any(
    . == \"you do not see all namespaces: this has those that you may see (tenant-a)\")' \
    '$W/alice.json'"
for filter in "pod_ns='tenant-b'" "pod_ns!='tenant-a'" "pod='pod-b'" "pod_ns REGEXP 'tenant-b'" \
    "pod_ns IS NULL" "NOT (pod_ns='tenant-a')" "\`k8s.label.owner\`='team-b'"; do
    check "alice: nothing of $filter" test "$(as "$alice" us "$filter")" = 0
done
check "alice: no Total" test "$(as "$alice" us '' Total)" = 0
for path in values choices series groups folded tree; do
    case $path in
    values) members='"tag": "pod_ns"' ;;
    choices) members='"tags": ["pod_ns", "pod", "app_service", "k8s.label.owner"]' ;;
    series | groups) members='"group_by": "pod"' ;;
    *) members='' ;;
    esac
    as "$alice" ask $path "$members" >"$W/answer"
    check "alice: $path has tenant-a's" grep -q 'tenant-a\|pod-a\|own-a' "$W/answer"
    check "... and nothing else" \
        bash -c "! grep -q 'tenant-b\|pod-b\|own-b\|team-b\|podflame' '$W/answer'"
done
as "$alice" ask why "\"tag_filter\": \"pod_ns='tenant-b'\"" | sed 's/tenant-b/NAME/g' >"$W/there"
as "$alice" ask why "\"tag_filter\": \"pod_ns='tenant-x'\"" | sed 's/tenant-x/NAME/g' >"$W/not"
check "alice: why there is no data says the same of tenant-b as of no namespace" \
    cmp "$W/there" "$W/not"
for path in /metrics /v1/symbols /debug/status; do
    check "alice: $path: 403" test "$(as "$alice" status $path)" = 403
done
check "both, who is bound to podflame-profiles-reader twice, sees both" \
    test "$(as "$both" us '')" = $((a + b))
as "$nobody" profile '' "$began" "$ended" >"$W/nobody.json"
check "nobody: nothing, with a note that names the right" \
    test "$(total_us <"$W/nobody.json")" = 0 -a \
    "$(grep -c 'you may see none.*get on profiles.podflame.io' "$W/nobody.json")" = 1
check "nobody: nothing of a namespace that it names" \
    test "$(as "$nobody" us "pod_ns='tenant-b'")" = 0

# From outside the cluster, with the role podflame-connect: the CA, and a connection to the hub.
k_alice() { k --as system:serviceaccount:tenant-a:alice -n podflame-system "$@"; }
k_alice get configmap podflame-hub-ca -o 'jsonpath={.data.ca\.crt}' >"$W/ca.crt"
k_alice port-forward service/podflame-hub :20416 >"$W/forward" 2>&1 &
forward=$!
port() { sed -n 's/^Forwarding from 127.0.0.1:\([0-9]*\) .*/\1/p' "$W/forward" | grep .; }
until_ 30 "a forwarded port" port
check "alice reaches the page by kubectl port-forward, and knows its certificate" \
    in_net curl -sSf --max-time 20 --cacert "$W/ca.crt" -o /dev/null "https://localhost:$(port)/"
kill $forward
check "alice may read no Secret there" test "$(k_alice auth can-i get secrets || true)" = no
k -n podflame-system delete rolebinding alice-connects >/dev/null
