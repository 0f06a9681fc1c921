#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (36) Programs in pods push profiles with the token of their pod, by the YAML of docs/push.md:
# pyroscope-go, which reads its token for each request, or once, until that has expired; and a
# client of OTLP/gRPC, which needs the rights of an agent.
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
image=$("$REPO/e2e/push/build.sh")
for n in 1 2; do
    ctr --address "$TK_DIR/node$n/containerd.sock" -n k8s.io images import "$image" >/dev/null
done
namespace app

# pushing NAME [WORD...]: a pod with the volume of the docs. Its token lives as short as the API
# server allows. $ACCOUNT: its service account
pushing() {
    local name=$1 words
    shift
    words=$(printf '%s\n' "$@" | jq -R . | jq -sc .)
    {
        printf 'apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: app}\n' "$name"
        yaml_of_page push.md 3 | sed 's/expirationSeconds: 3600/expirationSeconds: 600/'
    } | k create --dry-run=client --validate=false -o json -f - |
        jq --argjson words "$words" --arg name "$name" --arg account "${ACCOUNT:-default}" '
            .spec += {nodeName: "node1", serviceAccountName: $account, restartPolicy: "Never"}
            | .spec.containers[0] += {image: "localhost/podflame-push:1", command: $words, env: [
                {name: "SSL_CERT_FILE", value: "/var/run/podflame/ca.crt"},
                {name: "OTEL_RESOURCE_ATTRIBUTES", value: ("k8s.namespace.name=app,"
                    + "k8s.node.name=node1,k8s.pod.name=" + $name)}]}' | k apply -f - >/dev/null
}
address=podflame-hub.podflame-system.svc:4318
shop() { pushing "$1" /shop https://$address /var/run/podflame/token "$2"; } # NAME each|once
says() { k -n app logs "$1" | grep -qE -- "$2"; }                              # POD PATTERN
# pushed FILTER FROM: microseconds of CPU that were pushed since then
pushed() { EVENT=cpu profile "pod_ns='app' AND pod_node='node1' AND $1" "$2" "$(now)" | total_us; }
has_pushed() { [ "$(pushed "$@")" -gt 0 ]; }

k -n podflame-system get configmap podflame-hub-ca -o json |
    jq '{apiVersion, kind, metadata: {name: .metadata.name, namespace: "app"}, data}' |
    k apply -f - >/dev/null
yaml_of_page push.md 2 >"$W/values.yaml"
let_in() {
    helm template podflame "$REPO/charts/podflame" -f "$W/values.yaml" \
        -s templates/network-policy.yaml 2>"$W/helm.log" | grep -A 9 'port: 4318' |
        grep -q 'kubernetes.io/metadata.name: app$'
}
check "with the values of the docs, pods of the namespace may connect" let_in

# ---- pyroscope-go ----

began=$(now)
shop each each
wait_check 120 "without the right the hub refuses what a pod pushes" says each '\(403\)'
check "... and stores nothing" test "$(pushed "pod='each'" "$began")" = 0
check "the YAML of the docs is accepted" k apply -f <(yaml_of_page push.md 1)
from=$(now)
wait_check 150 "with it, what the pod pushes is stored, as that pod's" \
    has_pushed "pod='each' AND producer='gospy'" "$from"
shop once once
wait_check 120 "... and what one pushes that reads its token once" has_pushed "pod='once'" "$from"

# ---- OTLP/gRPC ----

pushing weak /sender -ca /var/run/podflame/ca.crt -token-file /var/run/podflame/token weak $address
wait_check 60 "a pod that may push for its namespace may not send OTLP" \
    says weak '^PermissionDenied'
k -n app create serviceaccount collector >/dev/null
AT_END+=(forget_collector)
forget_collector() { k delete clusterrole,clusterrolebinding push-collector --ignore-not-found; }
k apply -f - >/dev/null <<END
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: push-collector}
rules:
  - {apiGroups: [podflame.io], resources: [profiles], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: push-collector}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: push-collector}
subjects: [{kind: ServiceAccount, name: collector, namespace: app}]
END
from=$(now)
ACCOUNT=collector pushing otlp /sender -ca /var/run/podflame/ca.crt \
    -token-file /var/run/podflame/token sent $address
wait_check 60 "one with the right for all namespaces sends OTLP by gRPC" says otlp '^stored$'
wait_check 30 "... which is stored as another profiler's" \
    has_pushed "pod='otlp' AND producer='go.opentelemetry.io/ebpf-profiler'" "$((from - 10))"
check "... and not as sampled" test \
    "$(profile "app_service='sent'" "$((from - 10))" "$(now)" | total_us)" = 0

# ---- the first token expires ----

wait_check 800 "what read its token once is refused when the token has expired" \
    says once '\(401\)'
from=$(now)
wait_check 90 "what reads it for each request goes on" has_pushed "pod='each'" "$((from + 15))"
check "... and was never refused since it has the right" test \
    "$(k -n app logs each | grep -cE '\(401\)' || true)" = 0
