#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (31) A user of OIDC signs in to the page through oauth2-proxy, installed by
# charts/examples/oauth2-proxy.yaml, and sees the namespace in which one RoleBinding gives the
# right. A provider of tests (proxy/main.go) says that everybody who signs in is the user in the
# file $W/user.
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
. "$REPO/e2e/users.sh"
built=$("$REPO/e2e/proxy/build.sh")
for n in 1 2; do
    ctr --address "$TK_DIR/node$n/containerd.sock" -n k8s.io images import \
        "$built/oauth2-proxy.tar" >/dev/null
done
namespace shop bank
for t in shop bank; do
    CPU=200m pod $t pod-$t node1 "/bin/shares own-$t"
    target $t all '{"podSelector": {}}'
done
began=$(now)
echo erin >"$W/user"
beside in_net "$built/provider" -address "${ISSUER#https://}" -cert "$TK_DIR/pki/apiserver.crt" \
    -key "$TK_DIR/pki/apiserver.key" -client "$OIDC_CLIENT" -secret s3cret -user "$W/user" \
    2>"$W/provider.log"
until_ 10 "the provider" in_net curl -s -o /dev/null --cacert "$TK_DIR/pki/ca.crt" "$ISSUER/"
trust_issuer "$ISSUER/oidc"
admit_tokens_of_api_server
k -n shop create rolebinding erin --clusterrole podflame-profiles-reader --user oidc:erin >/dev/null

# The example as a user changes it. The provider's certificate is of a CA of its own.
remove_proxy() {
    k -n podflame-system delete --ignore-not-found deployment/podflame-proxy \
        service/podflame-proxy secret/podflame-proxy configmap/provider-ca
}
AT_END+=(remove_proxy)
port=4180
page=http://localhost:$port
k -n podflame-system create secret generic podflame-proxy --from-literal=client-secret=s3cret \
    --from-literal=cookie-secret="$(openssl rand -hex 16)" >/dev/null
k -n podflame-system create configmap provider-ca --from-file=ca.crt="$TK_DIR/pki/ca.crt" \
    >/dev/null
sed -e "s#https://issuer.example#$ISSUER/oidc#" -e "s#https://podflame.example#$page#" \
    -e "s#image: .*#image: localhost/oauth2-proxy:1#" "$REPO/charts/examples/oauth2-proxy.yaml" |
    k apply --dry-run=client -o json -f - |
    jq '.items[0].spec.template.spec |= (
        .volumes += [{name: "provider-ca", configMap: {name: "provider-ca"}}]
        | .containers[0].volumeMounts += [{name: "provider-ca", mountPath: "/etc/provider-ca"}]
        | (.containers[0].env[] | select(.name == "SSL_CERT_DIR").value) += ":/etc/provider-ca")' |
    k apply -f - >/dev/null
check "the example's pod is ready" \
    k -n podflame-system rollout status deployment/podflame-proxy --timeout=120s
beside k -n podflame-system port-forward service/podflame-proxy $port:4180 >"$W/forward" 2>&1
until_ 30 "the forwarded port" grep -q '^Forwarding' "$W/forward"

for t in shop bank; do wait_check 120 "samples of $t" stored_after pod-$t $((began + 10)); done
ended=$(now)
for t in shop bank; do wait_check 60 "... and the last ones" stored_after pod-$t "$ended"; done

# proxied PATH CURL_FLAG...: as a browser that follows the provider's redirects and keeps cookies
proxied() {
    in_net curl -sS --max-time 20 --cacert "$TK_DIR/pki/ca.crt" -L -c "$W/cookies" -b "$W/cookies" \
        "${@:2}" "$page$1"
}
status() { proxied "$@" -o /dev/null -w '%{http_code}'; }
us_as() { # FILTER CURL_FLAG...: nothing if the answer is an error
    proxied /v1/profile/ProfileTracing -f -H 'Content-Type: application/json' "${@:2}" -d "$(
        jq -nc --arg filter "$1" --argjson from "$began" --argjson to "$ended" '
            {profile_event_type: "on-cpu", profile_language_type: "eBPF", tag_filter: $filter,
             time_start: $from, time_end: $to}')" | total_us
}
# no session yet
check "a request of the page without a session: 401, without a word of the hub" \
    test "$(status /v1/info -H 'Accept: application/json')" = 401
sign_in() { [ "$(status /)" = 200 ] && [ "$(status /v1/profile/tags)" = 200 ]; }
wait_check 60 "erin signs in" sign_in          # the API server may look for the issuer once more
all=$(profile "pod_ns IN ('shop', 'bank')" "$began" "$ended" | total_us)
own=$(profile "pod_ns='shop'" "$began" "$ended" | total_us)
check "both namespaces have samples ($own of $all us are of shop)" \
    test "$own" -gt 0 -a "$all" -gt "$own"
check "erin sees shop and no more" test "$(us_as '')" = "$own"
check "... nothing of bank" test "$(us_as "pod_ns='bank'")" = 0
check "... /metrics: 403" test "$(status /metrics)" = 403
for h in "X-Forwarded-User: admin" "X-Forwarded-Groups: system:masters" "X-Remote-User: admin" \
    "Impersonate-User: admin" "X-Forwarded-Access-Token: $TOKEN"; do
    check "... also with ${h%%:*}" test "$(us_as '' -H "$h")" = "$own"
done
check "beside the session, a token of a user who may see all counts for nothing" \
    test "$(us_as '' -H "Authorization: Bearer $TOKEN")" = "$own"

# podflame query with an ID token and no cookie
issuer() { # PATH CURL_FLAG...
    in_net curl -sS --cacert "$TK_DIR/pki/ca.crt" "$ISSUER/oidc/$1" -d "client_id=$OIDC_CLIENT" \
        "${@:2}"
}
code=$(issuer authorize -G -d response_type=code -d scope=openid -d state=s \
    -d redirect_uri=http://localhost/ -o /dev/null -w '%{redirect_url}' |
    sed 's/.*code=\([^&]*\).*/\1/')
issuer token -d grant_type=authorization_code -d "code=$code" -d client_secret=s3cret |
    jq -r .id_token >"$W/id"
query() {
    in_net "$BUILD/podflame" query --url "$page" --token-file "$W/id" --from "$began" \
        --to "$ended" --format json >"$W/query.json" 2>"$W/query.log"
}
check "podflame query with an ID token" query
check "... sees the same" test "$(total_us <"$W/query.json")" = "$own"

if [ -x /usr/bin/chromium-headless-shell ]; then
    export BUILD PAGE=$page FROM=$began TO=$ended
    in_net "$REPO/e2e/proxy/page.mjs" >"$W/page.log" 2>&1 || true
    check "the page has no field for a token, and signs in again by itself" \
        bash -c "head -5 '$W/page.log'; grep -q '^ok ' '$W/page.log'"
else
    echo "skip: the page behind oauth2-proxy: there is no /usr/bin/chromium-headless-shell"
fi
rm -f "$W/cookies"
echo zoe >"$W/user"
check "zoe, who has no role, signs in" sign_in
check "... and sees nothing" test "$(us_as '')" = 0
