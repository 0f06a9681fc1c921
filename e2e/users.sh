# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Users of the cluster that are no service accounts: by a client certificate, and by OIDC. Sourced
# after tests/common.sh, which at the end of the test undoes what is changed here.
API_AUDIENCE=https://kubernetes.default.svc.cluster.local     # the API server's own
API_SERVER=$(k config view --raw -o 'jsonpath={.clusters[0].cluster.server}')
ISSUER=${API_SERVER%:*}:6453
OIDC_CLIENT=podflame-page

# k_user FLAG...: kubectl of a user: nothing of the administrator's kubeconfig but the cluster
k_user() {
    in_net "$TK_BIN/testkube" kubectl --kubeconfig /dev/null --server "$API_SERVER" \
        --certificate-authority "$TK_DIR/pki/ca.crt" "$@"
}

# certificate_user NAME: makes the user's certificate. k_certificate NAME FLAG...: its kubectl
certificate_user() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj "/CN=$1" \
        -CA "$TK_DIR/pki/ca.crt" -CAkey "$TK_DIR/pki/ca.key" -addext extendedKeyUsage=clientAuth \
        -keyout "$W/$1.key" -out "$W/$1.crt" 2>/dev/null
}
k_certificate() {
    k_user --client-certificate "$W/$1.crt" --client-key "$W/$1.key" "${@:2}"
}

# authentication: what is on stdin is from now on the API server's list of trusted issuers.
authentication() {
    {
        printf 'apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n'
        cat
    } >"$TK_DIR/authentication.tmp"
    mv "$TK_DIR/authentication.tmp" "$TK_DIR/authentication.yaml"
}
trust_no_issuer() { authentication <<<'jwt: []'; }
# trust_issuer URL: the API server trusts this issuer until the test ends: a user is oidc:SUB, a
# group oidc:GROUP.
trust_issuer() {
    AT_END+=(trust_no_issuer)
    authentication <<END
jwt:
  - issuer:
      url: $1
      audiences: [$OIDC_CLIENT]
      certificateAuthority: |
$(sed 's/^/        /' "$TK_DIR/pki/ca.crt")
    claimMappings:
      username: {claim: sub, prefix: "oidc:"}
      groups: {claim: groups, prefix: "oidc:"}
END
}
# admit_tokens_of_api_server: the hub takes tokens that are made for it, until the test ends.
admit_tokens_of_api_server() {
    AT_END+=(install_for_tests)
    install_for_tests --set "api.audiences={podflame-api,$API_AUDIENCE}"
}

base64url() { basenc --base64url -w0 | tr -d =; }

# An issuer that has nothing but its keys, for tokens that the test signs.
start_issuer() {
    mkdir -p "$W/issuer/.well-known"
    openssl genrsa -out "$W/issuer.key" 2048 2>/dev/null
    jq -n --arg n "$(openssl rsa -in "$W/issuer.key" -noout -modulus | sed 's/.*=//' |
        basenc --base16 -d | base64url)" '{keys: [{kty: "RSA", use: "sig", alg: "RS256", kid: "1",
        e: "AQAB", n: $n}]}' >"$W/issuer/keys"
    jq -n --arg i "$ISSUER" '{issuer: $i, jwks_uri: ($i + "/keys"), response_types_supported:
        ["id_token"], subject_types_supported: ["public"],
        id_token_signing_alg_values_supported: ["RS256"]}' \
        >"$W/issuer/.well-known/openid-configuration"
    beside in_net env -C "$W/issuer" openssl s_server -WWW -quiet -accept "${ISSUER#https://}" \
        -cert "$TK_DIR/pki/apiserver.crt" -key "$TK_DIR/pki/apiserver.key" >/dev/null 2>&1
    # an API server that does not find the issuer tries again after ten seconds
    until_ 10 "the issuer" in_net curl -s -o /dev/null --cacert "$TK_DIR/pki/ca.crt" "$ISSUER/keys"
    trust_issuer "$ISSUER"
}

# oidc_token SUB [AUDIENCE]: an ID token of that user, for an hour
oidc_token() {
    local text
    text=$(printf '{"alg": "RS256", "kid": "1"}' | base64url).$(
        jq -nj --arg iss "$ISSUER" --arg sub "$1" --arg aud "${2:-$OIDC_CLIENT}" \
            --argjson now "$(date +%s)" '{iss: $iss, sub: $sub, aud: $aud, iat: $now,
            exp: ($now + 3600)}' | base64url)
    printf '%s.%s' "$text" \
        "$(printf '%s' "$text" | openssl dgst -sha256 -sign "$W/issuer.key" | base64url)"
}
