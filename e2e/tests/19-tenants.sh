#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (19) A user sees the namespaces in which a role of Kubernetes gives the right, and nothing of the
# others: with the ClusterRole view in one namespace, with podflame-profiles-reader in two, and with
# no role at all. The users are service accounts, users of client certificates, and one of OIDC.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
. "$REPO/e2e/users.sh"
start_issuer                    # for erin, below: the API server takes its time
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
alice=$(token tenant-a alice) both=$(token tenant-a both) nobody=$(token tenant-a nobody)

as() { # TOKEN COMMAND...
    TOKEN=$1 "${@:2}"
}
# us, ask: because of -f they print nothing, and no 0, if the answer is an error
us() { profile "$1" "$began" "$ended" "${2:-}" -f | total_us; } # FILTER [APP]
ask() { # PATH MEMBERS: the answer to a query of the time
    hub "/v1/profile/$1" -f -H 'Content-Type: application/json' -d '{"profile_event_type": "on-cpu",
        "profile_language_type": "eBPF", "time_start": '"$began"', "time_end": '"$ended${2:+, $2}}"
}
status() { hub "$1" -o /dev/null -w '%{http_code}' "${@:2}" || true; }
a=$(us "pod_ns='tenant-a'") b=$(us "pod_ns='tenant-b'")
check "both namespaces have samples ($a us, $b us)" test "$a" -gt 0 -a "$b" -gt 0

profile '' "$began" "$ended" '' -f >"$W/all.json"
as "$alice" profile '' "$began" "$ended" '' -f >"$W/alice.json"
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
    test -s "$W/there" -a "$(cat "$W/there")" = "$(cat "$W/not")"
for path in /metrics /debug/status '/v1/symbols?namespace=tenant-b'; do
    check "alice: $path: 403" test "$(as "$alice" status "$path")" = 403
done
check "both, who is bound to podflame-profiles-reader twice, sees both" \
    test "$(as "$both" us '')" = $((a + b))
as "$nobody" profile '' "$began" "$ended" '' -f >"$W/nobody.json"
check "nobody: nothing, with a note that names the right" \
    test "$(total_us <"$W/nobody.json")" = 0 -a \
    "$(grep -c 'you may see none.*get on profiles.podflame.io' "$W/nobody.json")" = 1
check "nobody: nothing of a namespace that it names" \
    test "$(as "$nobody" us "pod_ns='tenant-b'")" = 0

# What a program pushes with the token of its pod: by the Role of docs/push.md, for tenant-a.
yaml_of_page push.md 1 |
    sed 's/namespace: app/namespace: tenant-a/; s/serviceaccounts:app/serviceaccounts:tenant-a/' |
    k apply -f - >/dev/null
printf '%b' '\x0a\x04\x08\x01\x10\x02\x12\x09\x0a\x01\x01\x12\x04\x80\xad\xe2\x04' \
    '\x22\x06\x08\x01\x22\x02\x08\x01\x2a\x04\x08\x01\x10\x03' \
    '\x32\x00\x32\x03cpu\x32\x0bnanoseconds\x32\x0bmain.pushed' >"$W/10ms.pprof"
pod_token=$(k -n tenant-a create token default --audience podflame-ingest \
    --bound-object-kind Pod --bound-object-name pod-a)
push() { # NAME: prints the status
    in_net curl -sS --max-time 20 --cacert "$TK_DIR/hub-ca.crt" -o /dev/null -w '%{http_code}' \
        --resolve "$HUB:4318:$HUB_IP" -H "Authorization: Bearer $pod_token" \
        --data-binary @"$W/10ms.pprof" \
        "https://$HUB:4318/ingest?name=$1&format=pprof&from=$began&until=$ended" || true
}
pushed_us() { EVENT=cpu us "pod='pod-a' AND pod_node='node1' AND app_service='shop'"; }
check "a program in a pod of tenant-a may push" test "$(push shop)" = 200
check "... but not for tenant-b" test "$(push 'shop%7Bnamespace=tenant-b%7D')" = 403
check "alice sees what it pushed, as that of its pod" test "$(as "$alice" pushed_us)" = 10000
check "nobody does not" test "$(as "$nobody" pushed_us)" = 0

# From outside the cluster, with the role podflame-connect: the CA, and a connection to the hub.
k_alice() { k --as system:serviceaccount:tenant-a:alice -n podflame-system "$@"; }
k_alice get configmap podflame-hub-ca -o 'jsonpath={.data.ca\.crt}' >"$W/ca.crt"
beside k_alice port-forward service/podflame-hub :20416 >"$W/forward" 2>&1
port() { sed -n 's/^Forwarding from 127.0.0.1:\([0-9]*\) .*/\1/p' "$W/forward" | grep .; }
until_ 30 "a forwarded port" port
check "alice reaches the page by kubectl port-forward, and knows its certificate" \
    in_net curl -sSf --max-time 20 --cacert "$W/ca.crt" -o /dev/null "https://localhost:$(port)/"
check "alice may read no Secret there" test "$(k_alice auth can-i get secrets || true)" = no
k -n podflame-system delete rolebinding alice-connects >/dev/null

# Users of client certificates have no token of their own. carol, who administers tenant-a and may
# do nothing elsewhere, gives a service account the right that she has, and makes its token.
certificate_user carol
k -n tenant-a create rolebinding carol --clusterrole admin --user carol >/dev/null
carol() { k_certificate carol -n tenant-a "$@"; }
check "carol makes an account that sees tenant-a" carol create serviceaccount carols-eyes
check "... binds it" \
    carol create rolebinding carols-eyes --clusterrole view --serviceaccount tenant-a:carols-eyes
carols=$(carol create token carols-eyes --audience podflame-api)
check "... and signs in with its token: she sees tenant-a and no more" \
    test "$(as "$carols" us '')" = "$a"
carol_gives_all() {
    ! carol create rolebinding all --clusterrole podflame-cluster-editor \
        --serviceaccount tenant-a:carols-eyes &&
        ! k_certificate carol create clusterrolebinding all --clusterrole podflame-profiles-reader \
            --serviceaccount tenant-a:carols-eyes
}
check "she cannot give it more than she has" carol_gives_all
# dave may make tokens of one account, and nothing else.
certificate_user dave
k -n tenant-a create role alice-token --verb create --resource serviceaccounts/token \
    --resource-name alice >/dev/null
k -n tenant-a create rolebinding dave --role alice-token --user dave >/dev/null
daves=$(k_certificate dave -n tenant-a create token alice --audience podflame-api)
check "dave signs in with a token of alice: he sees tenant-a and no more" \
    test "$(as "$daves" us '')" = "$a"
dave_takes_another() {
    ! k_certificate dave -n tenant-a create token both --audience podflame-api &&
        ! k_certificate dave -n tenant-a create token default --audience podflame-api
}
check "... but may make no token of another account" dave_takes_another

# erin comes by OIDC, bound in tenant-a. Her token is made for the API server, so the hub refuses it
# as it refuses any pod's default token, until api.audiences has the API server's own audience.
k -n tenant-a create rolebinding erin --clusterrole podflame-profiles-reader --user oidc:erin \
    >/dev/null
erin=$(oidc_token erin) zoe=$(oidc_token zoe) default=$(k -n tenant-a create token alice)
known() { k_user --token "$erin" auth whoami -o 'jsonpath={.status.userInfo.username}' |
    grep -x oidc:erin; }
wait_check 60 "the API server knows erin by her OIDC token" known
check "erin is refused: 401" test "$(as "$erin" status /v1/profile/tags)" = 401
check "... as is alice's default token: 401" test "$(as "$default" status /v1/profile/tags)" = 401
admit_tokens_of_api_server
began=$(now)
for t in a b; do wait_check 90 "later samples of tenant-$t" stored_after pod-$t "$began"; done
ended=$(now)
for t in a b; do wait_check 60 "... and the last ones" stored_after pod-$t "$ended"; done
a=$(us "pod_ns='tenant-a'")
check "with the API server's audience erin sees tenant-a and no more ($a us)" \
    test "$a" -gt 0 -a "$(as "$erin" us '')" = "$a" -a "$(as "$erin" us "pod_ns='tenant-b'")" = 0
check "... not /metrics: 403" test "$(as "$erin" status /metrics)" = 403
check "... and alice's default token is admitted" test "$(as "$default" us '')" = "$a"
check "zoe, an OIDC user without a role, sees nothing" test "$(as "$zoe" us '')" = 0
for t in "$(oidc_token erin vault)" "${erin%??????????}AAAAAAAAAA" \
    "$(k -n tenant-a create token alice --audience vault)"; do
    check "a token for another audience, or with another signature: 401" \
        test "$(as "$t" status /v1/profile/tags)" = 401
done
