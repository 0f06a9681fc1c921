#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (32) The hub gets a certificate that an administrator brings, then one of another CA, and makes
# its own again. The agents follow: what they kept in the meantime is stored. Rotation of the hub's
# own CA, which takes a month: agent/hub/certs_test.c.
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
namespace certificates
pod certificates c node1 "/bin/shares c"
pod certificates d node2 "/bin/shares d"
running certificates c d
target certificates all '{"podSelector": {}}'
own_again() {
    install_for_tests
    rm -f "$TK_DIR/hub-ca.crt"
}
AT_END+=(own_again)

ca() { # NAME: $W/NAME.crt and $W/NAME.key
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=$1" \
        -keyout "$W/$1.key" -out "$W/$1.crt" 2>/dev/null
}
certificate() { # CA DNS_NAME: $W/tls.crt and $W/tls.key
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=hub \
        -keyout "$W/tls.key" -out "$W/tls.csr" 2>/dev/null
    openssl x509 -req -in "$W/tls.csr" -days 9 -CA "$W/$1.crt" -CAkey "$W/$1.key" \
        -CAcreateserial -extfile <(echo "subjectAltName=DNS:$2") -out "$W/tls.crt" 2>/dev/null
}
bring() { # CA...: writes the certificate and these CAs into the Secret
    local c
    for c; do cat "$W/$c.crt"; done >"$W/trusted"
    k -n podflame-system create secret generic brought --from-file=tls.crt="$W/tls.crt" \
        --from-file=tls.key="$W/tls.key" --from-file=ca.crt="$W/trusted" --dry-run=client -o yaml |
        k apply -f - >/dev/null
}
published() { # prints the subjects of the CAs that the agents are to trust
    hub_ca
    openssl storeutl -certs -noout -text "$TK_DIR/hub-ca.crt" | sed -n 's/ *Subject: CN *= *//p' |
        paste -sd' '
}
publishes() { [ "$(published)" = "$1" ]; }
signed_by() { # CA: the hub's certificate is signed by it
    in_net openssl s_client -connect "$HUB_IP:4318" -CAfile "$W/$1.crt" -verify_return_error \
        </dev/null
}
began=$(now)
wait_check 90 "samples of both nodes with the hub's own certificate" stored $((began + 4))
check "the CA of the hub" publishes "podflame hub CA"

ca first
ca second
certificate first "$HUB"
bring first
check "helm takes the Secret" install_for_tests --set hub.tls.source=secret \
    --set hub.tls.secretName=brought
brought=$(now)                           # the store of the pod before has gone with it
wait_check 60 "the hub uses the certificate that was brought" signed_by first
wait_check 30 "... and publishes its CA" publishes first
wait_check 180 "... and the agents follow" stored "$(now)"

# Both CAs are trusted before the new one signs, so nothing waits for the agents.
bring first second
wait_check 90 "the hub publishes both CAs" publishes "first second"
certificate second "$HUB"
bring first second
wait_check 90 "the hub uses the certificate of the other CA" signed_by second
wait_check 180 "... and the agents follow" stored "$(now)"

certificate second hub.example
bring second
said() { hub /healthz | grep -F "Secret brought: tls.crt lacks the name $HUB"; }
wait_check 90 "a certificate without the hub's name is reported" said
check "... and not used" signed_by second
ended=$(now)
wait_check 60 "samples until now" stored "$ended"
for pod in c d; do
    wait_check 60 "$pod: all of its time is there" all_there certificates $pod "$brought" "$ended"
    note "$(all_there certificates $pod "$brought" "$ended" || true)"
done
check "the hub makes its own again" own_again
wait_check 30 "... and publishes its own CA" publishes "podflame hub CA"
wait_check 180 "... and the agents follow" stored "$(now)"
k -n podflame-system delete secret brought >/dev/null
