#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh: two real clusters on this machine, "a" with the central hub and "b" whose hub forwards.
# Both have the same namespace and pod names; the programs differ. Checks that each row is stored
# under its cluster, and what is told. A step of e2e/long.sh, as root. KEEP=1 leaves both up.
# shellcheck disable=SC2034     # lib.sh uses CLUSTER, HUB_IP and TOKEN
export NAME=clusters-a
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
IMAGES=("$BUILD/images/podflame.tar" "$BUILD/images/workloads.tar")
OUT=$BUILD/e2e-clusters
mkdir -p "$OUT"
PORT=30318                              # the NodePort of the central hub
declare -A NETS=([a]=10.88.0 [b]=10.89.0)
passed=0 failed=0

# use a|b: all that follows is about this cluster
use() {
    NETNS=podflame-clusters-$1 TK_DIR=/var/lib/podflame-clusters-$1 NET=${NETS[$1]} CLUSTER=$1
    ISSUER=https://issuer.$1.example
    HUB_IP='' TOKEN=''
    export NETNS TK_DIR NET ISSUER
}
check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@" >"$OUT/check" 2>&1; then
        printf 'ok   %s\n' "$what"
        passed=$((passed + 1))
    else
        printf 'FAIL %s\n' "$what"
        tail -5 "$OUT/check" | sed 's/^/     /'
        failed=$((failed + 1))
    fi
}
wait_check() { # SECONDS WHAT COMMAND...
    check "$2" until_ "$1" "$2" "${@:3}"
}
both_down() {
    local c
    for c in b a; do
        use $c
        cluster_down
    done
}
finish() {
    local status=$? c
    for c in a b; do
        use $c
        if [ $status != 0 ] || [ $failed != 0 ]; then save_state "$OUT/$c" shop; fi
    done
    [ -n "${KEEP:-}" ] || both_down
    exit $status
}
if [ "$(id -u)" != 0 ]; then
    echo "skip: two clusters need root"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi

# The nodes of both reach each other, as over a network between clusters.
connect() {
    local a=podflame-clusters-a b=podflame-clusters-b
    ip link add pf-ab netns $a type veth peer name pf-ba netns $b
    ip -n $a addr add 10.99.0.1/30 dev pf-ab
    ip -n $b addr add 10.99.0.2/30 dev pf-ba
    ip -n $a link set pf-ab up
    ip -n $b link set pf-ba up
    ip -n $a route add "${NETS[b]}.0/24" via 10.99.0.2
    ip -n $b route add "${NETS[a]}.0/24" via 10.99.0.1
}
workload() { # PROGRAM
    k create namespace shop >/dev/null
    k apply -f - >/dev/null <<END
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  nodeName: node1
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: localhost/podflame-workloads:1
      command: ["/bin/shares", "$1"]
      resources: {requests: {cpu: 50m}, limits: {cpu: 200m, memory: 64Mi}}
---
apiVersion: podflame.io/v1alpha1
kind: ProfilingTarget
metadata: {name: all, namespace: shop}
spec: {podSelector: {}}
END
}
values_of_a() {
    cat <<END
networkPolicy: {ingestFrom: [{ipBlock: {cidr: ${NETS[b]}.0/24}}]}
hub:
  publicName: ${NETS[a]}.1
  clusters:
    - name: b
      issuer: https://issuer.b.example
      subject: system:serviceaccount:podflame-system:podflame-hub
      jwks: |
        $(cat "$OUT/b.jwks")
END
}
values_of_b() {
    cat <<END
hub:
  store: otlp
  forward:
    url: https://${NETS[a]}.1:$PORT
    ca: |
$(sed 's/^/      /' "$OUT/a.crt")
END
}
# What a user sees at the central hub. reader: may read a and b; own: only a.
users() {
    k create namespace people >/dev/null
    k -n people create serviceaccount reader >/dev/null
    k -n people create serviceaccount own >/dev/null
    k create clusterrolebinding people-profiles --clusterrole podflame-profiles-reader \
        --serviceaccount people:reader --serviceaccount people:own >/dev/null
    k create clusterrole reads-b --verb get --resource clusters.podflame.io --resource-name b \
        >/dev/null 2>&1 || k apply -f - >/dev/null <<END
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reads-b}
rules: [{apiGroups: [podflame.io], resources: [clusters], resourceNames: [b], verbs: [get]}]
END
    k create clusterrolebinding reads-b --clusterrole reads-b --serviceaccount people:reader \
        >/dev/null
}
answer() { profile "$1" "$began" "$(date +%s)"; }
has() { answer "$1" | grep -q "$2"; } # FILTER NAME
has_not() { ! has "$@"; }
us_of() { answer "$1" | total_us; }
target_ready() {
    k -n shop get profilingtarget all -o json | jq -e '.status.conditions[]?
        | select(.type == "Ready" and .status == "True")'
}

TK_BIN=$("$REPO/e2e/cluster/build.sh")
export TK_BIN KIND='' NODES=1
both_down
trap finish EXIT
for c in a b; do
    use $c
    cluster_up "${IMAGES[@]}" 2>"$OUT/up-$c.log" || { cat "$OUT/up-$c.log" >&2; exit 1; }
done
connect
k get --raw /openid/v1/jwks >"$OUT/b.jwks"
use a
install_chart --set agent.window=2s -f <(values_of_a)
hub_ca
cp "$TK_DIR/hub-ca.crt" "$OUT/a.crt"
k -n podflame-system apply -f - >/dev/null <<END
apiVersion: v1
kind: Service
metadata: {name: central}
spec:
  type: NodePort
  selector: {app.kubernetes.io/name: podflame, app.kubernetes.io/component: hub}
  ports: [{port: 4318, targetPort: otlp, nodePort: $PORT}]
END
users
use b
install_chart --set agent.window=2s -f <(values_of_b)

began=$(date +%s)
for c in a b; do
    use $c
    workload own-$c
done
for c in a b; do
    use $c
    k -n shop wait pod/web --for=condition=Ready --timeout=180s >/dev/null
    wait_check 90 "$c: the target is ready" target_ready
done
use a
TOKEN=$(token people reader)
for c in a b; do
    other=$([ $c = a ] && echo b || echo a)
    mine="pod_cluster='$c' AND pod_ns='shop' AND pod='web'"
    wait_check 90 "pod_cluster='$c' has own-$c" has "$mine" own-$c
    check "... and nothing of $other" has_not "$mine" own-$other
    check "pod_cluster!='$other' has own-$c" has "pod_cluster!='$other'" own-$c
    check "... and nothing of $other" has_not "pod_cluster!='$other'" own-$other
done
check "without pod_cluster, the pod of both" has "pod='web'" own-a
check "... of b, too" has "pod='web'" own-b
TOKEN=$(token people own)
check "a right on profiles opens a" has "pod='web'" own-a
check "... and nothing of b" has_not "pod='web'" own-b
check "... also if the filter names b" test "$(us_of "pod_cluster='b'")" = 0

use b
TOKEN=$(token podflame-system podflame-hub)
hub /v1/info >"$OUT/info" || true
check "the page of b's hub says that it keeps none" grep -q 'keeps no profiles' "$OUT/info"

# The central hub is away for some windows: the spools of b keep them.
use a
k -n podflame-system scale deployment/podflame-hub --replicas 0 >/dev/null
use b
away_is_told() { hub /healthz | jq -e '.store != ""'; }
wait_check 60 "b's hub says that the central hub is away" away_is_told
away=$(date +%s)
sleep 6                                 # three windows of b
back=$(date +%s)
use a
k -n podflame-system scale deployment/podflame-hub --replicas 1 >/dev/null
k -n podflame-system rollout status deployment/podflame-hub --timeout 120s >/dev/null
HUB_IP=$(hub_ip)
hub_ca
TOKEN=$(token people reader)
meanwhile() {
    profile "pod_cluster='b' AND pod='web'" "$away" "$back" | grep -q own-b
}
wait_check 120 "windows of b from that time arrive" meanwhile
use b
back_is_told() { hub /healthz | jq -e '.store == ""'; }
wait_check 90 "... and b's hub says that it works again" back_is_told
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
