#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (12) On every endpoint, no token, a wrong token and one for another service get 401, and a user
# without the right gets 403, or no data of profiles. What a proxy would say of the user counts for
# nothing. 19-tenants.sh has users who may see some namespaces.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace sign-in
k -n sign-in create serviceaccount nobody >/dev/null
good=$TOKEN
status() { hub "$1" -o /dev/null -w '%{http_code}' "${@:2}" || true; }
NOBODY=$(token sign-in nobody)
viewer() { k -n podflame-system create token podflame-viewer "$@"; }
# Tokens of a user who has the right, which the user gave to another service: that of the agents'
# profiles, a vault, and the API server itself.
declare -A OTHERS=([podflame-ingest]=$(viewer --audience podflame-ingest)
    [vault]=$(viewer --audience vault) ["the API server"]=$(viewer))
refused() { # PATH CURL_FLAG...: of profiles, the answer is empty
    TOKEN=$NOBODY status "$@" | grep -qx 403 ||
        TOKEN=$NOBODY hub "$@" -f | jq -e '.OPT_STATUS == "SUCCESS" and has("result")
            and (.result == null or .result == [])'
}
try() { # STATUS_OF_A_USER_WITH_THE_RIGHT PATH CURL_FLAG...
    local audience right=$1
    shift
    TOKEN='' check "$1 without a token: 401" test "$(TOKEN='' status "$@")" = 401
    check "$1 with a wrong token: 401" test "$(TOKEN=wrong status "$@")" = 401
    check "$1 with a changed token: 401" test "$(TOKEN=${good%?????}AAAAA status "$@")" = 401
    for audience in "${!OTHERS[@]}"; do
        check "$1 with a token for $audience: 401" \
            test "$(TOKEN=${OTHERS[$audience]} status "$@")" = 401
    done
    check "$1 with a user without the right: 403, or nothing" refused "$@"
    check "$1 with the right: $right" test "$(status "$@")" = "$right"
}
body='{"profile_event_type": "on-cpu", "profile_language_type": "eBPF",
    "time_start": 1, "time_end": 2}'
try 200 /v1/profile/ProfileTracing -d "$body"
try 200 /v1/profile/values -d "${body%\}}, \"tag\": \"pod_ns\"}"
try 200 /metrics
try 404 /no/such/path
check "the page itself, which asks for the token, needs none" test "$(TOKEN='' status /)" = 200
check "... nor do the probes" test "$(TOKEN='' status /readyz)" = 200
pod_ip=$(k -n podflame-system get pods -l app.kubernetes.io/component=hub \
    -o 'jsonpath={.items[0].status.podIP}')
probe() { # PATH
    in_net curl -sS --max-time 20 -o /dev/null -w '%{http_code}' "http://$pod_ip:20417$1"
}
# takes all connections of the API's port, and says so
beside in_net python3 -uc "
import signal, socket
held = [socket.create_connection(('$pod_ip', 20416)) for _ in range(300)]
for s in held[-200:]:
    s.send(b'x')
print('held')
signal.pause()" >"$W/held"
until_ 30 "300 connections to the hub" grep -q held "$W/held"
check "the kubelet's probes have a port of their own, which others do not fill" \
    test "$(probe /healthz) $(probe /readyz)" = "200 200"
check "... and which has nothing else" test "$(probe /metrics) $(probe /v1/info)" = "404 404"
check "who holds connections keeps nobody out" test "$(TOKEN='' status /readyz)" = 200
for t in '' wrong "${OTHERS["the API server"]}"; do
    check "a refusal names the command that makes a token${t:+, also for ${t::6}...}" grep -qF \
        'kubectl -n NAMESPACE create token NAME --audience podflame-api' \
        <(TOKEN=$t hub /v1/profile/tags)
done

# The user's name by a header of a proxy or of the API server, as any client can send it.
for h in "X-Forwarded-User: admin" "X-Forwarded-Groups: system:masters" "X-Remote-User: admin" \
    "X-Remote-Group: system:masters" "Impersonate-User: admin" \
    "Impersonate-Group: system:masters" "X-Forwarded-Access-Token: $good" \
    "X-Auth-Request-Access-Token: $good" "Proxy-Authorization: Bearer $good"; do
    check "${h%%:*} alone: 401" test "$(TOKEN='' status /metrics -H "$h")" = 401
    check "... and beside a token of a user without the right: 403" \
        test "$(TOKEN=$NOBODY status /metrics -H "$h")" = 403
done

# Ingest takes only a token for its own audience, and only of the agent's service account.
ingest() { # TOKEN
    in_net curl -sS --max-time 20 --cacert "$TK_DIR/hub-ca.crt" \
        --resolve "$HUB:4318:$HUB_IP" -o /dev/null -w '%{http_code}' \
        ${1:+-H "Authorization: Bearer $1"} \
        -H 'Content-Type: application/x-protobuf' --data-binary '' \
        "https://$HUB:4318/v1development/profiles" || true
}
agent() { k -n podflame-system create token podflame-agent "$@"; }
check "ingest without a token: 401" test "$(ingest '')" = 401
check "ingest with a wrong token: 401" test "$(ingest wrong)" = 401
STRANGER=$(k -n sign-in create token nobody --audience podflame-ingest)
check "ingest with a user without the right: 403" test "$(ingest "$STRANGER")" = 403
for a in podflame-api vault; do
    check "ingest with the agents' account and a token for $a: 401" \
        test "$(ingest "$(agent --audience $a)")" = 401
done
check "... and with its default token: 401" test "$(ingest "$(agent)")" = 401
check "ingest with a viewer's token for the API: 401" test "$(ingest "$good")" = 401
# The hub sees in a token of this cluster that it is for another audience.
says_refusals() {
    hub /metrics >"$W/metrics" &&
        grep -qE '^podflame_sign_ins_refused_total\{reason="audience"\} [1-9]' "$W/metrics"
}
check "tokens for another service cost the API server nothing" says_refusals
