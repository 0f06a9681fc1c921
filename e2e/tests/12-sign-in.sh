#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (12) On every endpoint, no token and a wrong token get 401, and a user without the right gets 403,
# or no data of profiles. 19-tenants.sh has users who may see some namespaces.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace sign-in
k -n sign-in create serviceaccount nobody >/dev/null
good=$TOKEN
status() { hub "$1" -o /dev/null -w '%{http_code}' "${@:2}" || true; }
NOBODY=$(k -n sign-in create token nobody)
OTHER=$(k -n podflame-system create token podflame-viewer --audience podflame-ingest)
refused() { # PATH CURL_FLAG...: of profiles, the answer is empty
    TOKEN=$NOBODY status "$@" | grep -q 403 ||
        TOKEN=$NOBODY hub "$@" | jq -e 'has("result") and (.result == null or .result == [])'
}
try() { # PATH CURL_FLAG...
    TOKEN='' check "$1 without a token: 401" test "$(TOKEN='' status "$@")" = 401
    check "$1 with a wrong token: 401" test "$(TOKEN=wrong status "$@")" = 401
    check "$1 with a changed token: 401" test "$(TOKEN=${good%?????}AAAAA status "$@")" = 401
    check "$1 with a token for another audience: 401" test "$(TOKEN=$OTHER status "$@")" = 401
    check "$1 with a user without the right: 403, or nothing" refused "$@"
    check "$1 with the right: allowed" between "$(status "$@")" 200 404
}
body='{"profile_event_type": "on-cpu", "profile_language_type": "eBPF",
    "time_start": 1, "time_end": 2}'
try /v1/profile/ProfileTracing -d "$body"
try /v1/profile/values -d "$body"
try /metrics
try /no/such/path
check "the page itself, which asks for the token, needs none" test "$(TOKEN='' status /)" = 200
check "... nor do the probes" test "$(TOKEN='' status /readyz)" = 200

# Ingest takes only a token for its own audience, and only of the agent's service account.
ingest() { # TOKEN
    in_net curl -sS --max-time 20 --cacert "$TK_DIR/hub-ca.crt" \
        --resolve "$HUB:4318:$(hub_ip)" -o /dev/null -w '%{http_code}' \
        ${1:+-H "Authorization: Bearer $1"} \
        -H 'Content-Type: application/x-protobuf' --data-binary '' \
        "https://$HUB:4318/v1development/profiles" || true
}
check "ingest without a token: 401" test "$(ingest '')" = 401
check "ingest with a wrong token: 401" test "$(ingest wrong)" = 401
STRANGER=$(k -n sign-in create token nobody --audience podflame-ingest)
check "ingest with a user without the right: 403" test "$(ingest "$STRANGER")" = 403
check "ingest with a token for the API: 401" test "$(ingest "$good")" = 401
