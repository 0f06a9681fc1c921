#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Starts a real Kubernetes on this machine and says how to reach it. A start is always a fresh
# cluster.
#   up.sh                      control plane and two nodes (both are this machine); the second node
#                              has PID and mount namespaces and a cgroup root of its own, as kind's
#                              nodes have
#   KIND= up.sh                the same without the namespaces
#   NODES=1 up.sh              only one node
#   NODES=0 up.sh              only the API server, its controllers and scheduler
#   IMAGES="a.tar b.tar" ...   image archives to import on each node (there is no registry)
# Needs: root; Debian's containerd runc containernetworking-plugins iptables nftables conntrack
# openssl iproute2. All that it makes lies under $TK_DIR, in the cgroups /kubepods and
# /$NETNS-nodeN, and in the network namespace $NETNS; down.sh removes it. Clusters with a TK_DIR
# and a NETNS of their own run side by side.
# shellcheck disable=SC2086     # IMAGES and APISERVER_ARGS are lists
set -euo pipefail
TK_BIN=${TK_BIN:-$("$(dirname "${BASH_SOURCE[0]}")/build.sh")}
TK_DIR=${TK_DIR:?a folder for all that the cluster writes}
export TK_BIN TK_DIR
# All of it runs in a network namespace of its own with no way out: only lo and the pods' bridge are
# inside, so no packet for a pod or service address can leave the machine, even before kube-proxy's
# rules exist. (nsenter and not "ip netns exec", which hides /sys/fs/cgroup.) To reach it:
# nsenter --net=/run/netns/$NETNS COMMAND
NETNS=${NETNS:-tk}
# After a reboot the name may exist without a namespace.
if ! nsenter --net="/run/netns/$NETNS" true 2>/dev/null; then
    ip netns del "$NETNS" 2>/dev/null || true
    ip netns add "$NETNS"
fi
if [ ! /proc/self/ns/net -ef "/run/netns/$NETNS" ]; then
    exec nsenter --net="/run/netns/$NETNS" -- "$0" "$@"
fi
ip link set lo up
# Mounted once for the machine: an agent expects them.
for m in "bpf /sys/fs/bpf" "tracefs /sys/kernel/tracing"; do
    mountpoint -q "${m#* }" || mount -t "${m% *}" "${m% *}" "${m#* }" || true
done
NODES=${NODES:-2}
KIND=${KIND-1}
# The cgroup root of the first node is the machine's, unless a kubelet uses that already.
CGROUP_ROOT=/
for c in /sys/fs/cgroup/kubepods* /sys/fs/cgroup/*/kubepods*; do
    [ ! -e "$c" ] || CGROUP_ROOT=/$NETNS-node1
done
BRIDGE=${BRIDGE:-tk0}                  # inside the namespace, as the addresses are
# a /24: .1, .2, ... are the nodes (.1 is the API server, too), pods begin at .10
NET=${NET:-10.88.0}
ISSUER=${ISSUER:-https://kubernetes.default.svc.cluster.local}  # of service account tokens
NODE_IP=$NET.1                         # the bridge's own address, so the same on every machine
SVC_CIDR=10.96.0.0/16
API_SVC_IP=10.96.0.1
API=https://$NODE_IP:6443
PKI=$TK_DIR/pki; LOG=$TK_DIR/log; PID=$TK_DIR/pid
T0=${EPOCHREALTIME/./}
say() {
    local ms=$(((${EPOCHREALTIME/./} - T0) / 1000))
    printf '[%3d.%03ds] %s\n' $((ms / 1000)) $((ms % 1000)) "$*" >&2
}
kc() { "$TK_BIN/testkube" kubectl --kubeconfig "$TK_DIR/admin.kubeconfig" "$@"; }
bg() { # NAME COMMAND...: starts a process that outlives this script and leads its own group
    local n=$1; shift
    setsid "$@" >"$LOG/$n.log" 2>&1 </dev/null &
    echo $! >"$PID/$n"
}
# KIND=1: the second node has PID and mount namespaces of its own, as a kind or k3d node has. With
# hostPID its agent does not see the initial PID namespace. A holder process keeps the namespaces;
# all processes of the node enter them.
holder() {
    bg unshare unshare --pid --mount --fork --propagation private --mount-proc sleep infinity
    local i
    for i in {1..50}; do
        HOLD=$(pgrep -P "$(cat "$PID/unshare")" sleep) && return
        sleep .1
    done
}
inside() { # N COMMAND...: sets NODE_CMD to the command as node N runs it
    local n=$1; shift
    NODE_CMD=("$@")
    if [ -n "${KIND:-}" ] && [ "$n" != 1 ]; then
        [ -n "${HOLD:-}" ] || holder
        NODE_CMD=(nsenter -t "$HOLD" -p -m -- "$@")
    fi
}
wait_for() { # SECONDS WHAT COMMAND...
    local n=$1 w=$2 i; shift 2
    for ((i = 0; i < n * 5; i++)); do "$@" >/dev/null 2>&1 && { say "$w"; return; }; sleep .2; done
    echo "timed out waiting for $w; see $LOG" >&2; return 1
}

if [ -e "$PID/kube-apiserver" ]; then
    echo "not started: $TK_DIR is in use; run down.sh first" >&2
    exit 1
fi
mkdir -p "$PKI" "$LOG" "$PID"; chmod 700 "$TK_DIR"

# The kubelet changes these settings of the machine: down.sh restores them. (Settings of the network
# disappear with its namespace.)
for k in vm.overcommit_memory kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys \
    kernel.keys.root_maxbytes; do
    if v=$(cat "/proc/sys/${k//.//}" 2>/dev/null); then echo "$k $v"; fi
done >"$TK_DIR/sysctl"

# --- certificates and kubeconfigs ---------------------------------------------
cert() { # NAME SUBJECT [SAN]
    openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/$1.key"
    openssl req -new -key "$PKI/$1.key" -subj "$2" -out "$PKI/$1.csr"
    {
        echo "basicConstraints=CA:FALSE"
        echo "keyUsage=digitalSignature"
        echo "extendedKeyUsage=serverAuth,clientAuth"
        [ -z "${3:-}" ] || echo "subjectAltName=$3"
    } >"$PKI/$1.ext"
    openssl x509 -req -in "$PKI/$1.csr" -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -CAcreateserial \
        -days 30 -extfile "$PKI/$1.ext" -out "$PKI/$1.crt" 2>/dev/null
}
user() { # NAME SUBJECT [SAN]: a client certificate and its kubeconfig
    cert "$@"
    local ca client key
    ca=$(base64 -w0 "$PKI/ca.crt")
    client=$(base64 -w0 "$PKI/$1.crt")
    key=$(base64 -w0 "$PKI/$1.key")
    cat >"$TK_DIR/$1.kubeconfig" <<KC
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "$API", certificate-authority-data: $ca}}]
users: [{name: u, user: {client-certificate-data: $client, client-key-data: $key}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
KC
}
openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/ca.key"
openssl req -x509 -new -key "$PKI/ca.key" -subj /CN=test-cluster-ca -days 30 -out "$PKI/ca.crt" \
    -addext keyUsage=critical,keyCertSign,cRLSign
openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/sa.key"
openssl ec -in "$PKI/sa.key" -pubout -out "$PKI/sa.pub" 2>/dev/null
names=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc
names+=,DNS:kubernetes.default.svc.cluster.local
cert apiserver /CN=kube-apiserver "IP:$NODE_IP,IP:$API_SVC_IP,$names"
cert apiserver-kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
user admin /O=system:masters/CN=admin
user kcm /CN=system:kube-controller-manager
user scheduler /CN=system:kube-scheduler
user proxy /CN=system:kube-proxy
say certificates

# --- control plane -------------------------------------------------------------
ip link show "$BRIDGE" >/dev/null 2>&1 || ip link add "$BRIDGE" type bridge
ip addr add "$NODE_IP/24" dev "$BRIDGE" 2>/dev/null || true
ip link set "$BRIDGE" up
# nftables rewrites a service address only if there is some route to it.
ip route replace "$SVC_CIDR" dev "$BRIDGE"

bg etcd "$TK_BIN/testkube" etcd \
    --data-dir "$TK_DIR/etcd" --name e --unsafe-no-fsync --log-level warn \
    --listen-client-urls http://127.0.0.1:23790 --advertise-client-urls http://127.0.0.1:23790 \
    --listen-peer-urls http://127.0.0.1:23800 --initial-advertise-peer-urls http://127.0.0.1:23800 \
    --initial-cluster e=http://127.0.0.1:23800
# Users of OIDC: the API server reads this file again when it changes.
cat >"$TK_DIR/authentication.yaml" <<YAML
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt: []
YAML
bg kube-apiserver "$TK_BIN/testkube" kube-apiserver \
    --etcd-servers=http://127.0.0.1:23790 \
    --bind-address="$NODE_IP" --advertise-address="$NODE_IP" --secure-port=6443 \
    --client-ca-file="$PKI/ca.crt" --tls-cert-file="$PKI/apiserver.crt" \
    --tls-private-key-file="$PKI/apiserver.key" \
    --service-account-key-file="$PKI/sa.pub" --service-account-signing-key-file="$PKI/sa.key" \
    --service-account-issuer="$ISSUER" \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
    --service-cluster-ip-range="$SVC_CIDR" --allow-privileged=true \
    --kubelet-client-certificate="$PKI/apiserver-kubelet-client.crt" \
    --kubelet-client-key="$PKI/apiserver-kubelet-client.key" \
    --kubelet-certificate-authority="$PKI/ca.crt" --kubelet-preferred-address-types=InternalIP \
    --requestheader-client-ca-file="$PKI/ca.crt" --requestheader-allowed-names=front-proxy \
    --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
    --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --authentication-config="$TK_DIR/authentication.yaml" \
    --profiling=false ${APISERVER_ARGS:-}

# --- nodes ----------------------------------------------------------------------
DNS_CONF=
if { "$TK_BIN/testkube" 2>&1 || true; } | grep -q coredns; then
    DNS_CONF="clusterDomain: cluster.local
clusterDNS: [$NODE_IP]"
fi
runtime() { # N: containerd, its images, its pod network
    local n=node$1 d=$TK_DIR/node$1 t
    mkdir -p "$d/net.d" "$d/manifests" "$LOG/$n"
    [ "$1" = 1 ] || ip addr add "$NET.$1/24" dev "$BRIDGE"
    cat >"$d/containerd.toml" <<TOML
version = 2
root = "$d/containerd"
state = "$d/containerd-state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "$d/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true    # without CAP_SYS_RESOURCE no sandbox starts if this is false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$d/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
TOML
    cat >"$d/net.d/10-tk.conflist" <<CNI
{"cniVersion":"0.4.0","name":"tk","plugins":[
 {"type":"bridge","bridge":"$BRIDGE","isGateway":true,"ipMasq":false,"hairpinMode":true,
  "ipam":{"type":"host-local","dataDir":"$d/ipam","routes":[{"dst":"0.0.0.0/0"}],
          "ranges":[[{"subnet":"$NET.0/24","rangeStart":"$NET.$(($1 * 60 - 50))",
                      "rangeEnd":"$NET.$(($1 * 60 + 9))","gateway":"$NODE_IP"}]]}}]}
CNI
    inside "$1" containerd --config "$d/containerd.toml"; bg containerd-$n "${NODE_CMD[@]}"
    wait_for 30 "$n containerd ready" ctr --address "$d/containerd.sock" version
    for t in "$TK_BIN/pause.tar" ${IMAGES:-}; do
        ctr --address "$d/containerd.sock" -n k8s.io images import "$t" >/dev/null
    done
}
# cgroup_root /NAME: makes this cgroup in every hierarchy. A kubelet makes its kubepods, but not the
# cgroup above.
cgroup_root() {
    local c
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then          # cgroup v2 alone
        mkdir -p "/sys/fs/cgroup$1"
        tr ' ' '\n' </sys/fs/cgroup/cgroup.controllers | while read -r c; do
            echo "+$c" >/sys/fs/cgroup/cgroup.subtree_control || true
            echo "+$c" >"/sys/fs/cgroup$1/cgroup.subtree_control" || true
        done 2>/dev/null
        return 0
    fi
    for c in /sys/fs/cgroup/*/; do mkdir -p "${c%/}$1" 2>/dev/null || true; done
    for c in cpus mems; do
        cat "/sys/fs/cgroup/cpuset/cpuset.$c" >"/sys/fs/cgroup/cpuset$1/cpuset.$c"
    done
}
kubelet() { # N
    local n=node$1 d=$TK_DIR/node$1 root=$CGROUP_ROOT
    user kubelet-$n "/O=system:nodes/CN=system:node:$n" "IP:$NET.$1,DNS:$n"
    # two kubelets in one cgroup root would remove each other's pods
    [ "$1" = 1 ] || root=/$NETNS-$n
    if [ "$root" != / ]; then cgroup_root "$root"; fi
    echo "${root%/}" >>"$TK_DIR/cgroups"
    cat >"$d/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $NET.$1
healthzPort: 0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $PKI/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $PKI/kubelet-$n.crt
tlsPrivateKeyFile: $PKI/kubelet-$n.key
containerRuntimeEndpoint: unix://$d/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: $root
failCgroupV1: false
failSwapOn: false
protectKernelDefaults: false
makeIPTablesUtilChains: false
oomScoreAdj: 0
maxOpenFiles: 20000
resolvConf: ""
podLogsDir: $LOG/$n
staticPodPath: $d/manifests
evictionHard:
  {memory.available: "100Mi", nodefs.available: "1%", imagefs.available: "1%",
   nodefs.inodesFree: "1%"}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 5s
syncFrequency: 10s
$DNS_CONF
YAML
    # Started again when it ends, as an init system would do: kubelet 1.34.4 can end while it starts
    # ("concurrent map read and map write" in containerManagerImpl.GetCapacity).
    inside "$1" "$TK_BIN/testkube" kubelet --config="$d/kubelet.yaml" \
        --kubeconfig="$TK_DIR/kubelet-$n.kubeconfig" --root-dir="$d/kubelet" \
        --hostname-override=$n --node-ip="$NET.$1"
    # shellcheck disable=SC2016
    bg kubelet-$n bash -c 'while :; do "$0" "$@"; sleep 1; done' "${NODE_CMD[@]}"
}
for ((k = 1; k <= NODES; k++)); do runtime $k; done

wait_for 90 "API server ready" kc get --raw /readyz
# The default API rates of 20/30 would cost 5 s at the start.
bg kube-controller-manager "$TK_BIN/testkube" kube-controller-manager \
    --kubeconfig="$TK_DIR/kcm.kubeconfig" --authentication-kubeconfig="$TK_DIR/kcm.kubeconfig" \
    --authorization-kubeconfig="$TK_DIR/kcm.kubeconfig" \
    --service-account-private-key-file="$PKI/sa.key" --root-ca-file="$PKI/ca.crt" \
    --use-service-account-credentials \
    --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" \
    --leader-elect=false --bind-address=127.0.0.1 --kube-api-qps=300 --kube-api-burst=600
bg kube-scheduler "$TK_BIN/testkube" kube-scheduler \
    --kubeconfig="$TK_DIR/scheduler.kubeconfig" \
    --authentication-kubeconfig="$TK_DIR/scheduler.kubeconfig" \
    --authorization-kubeconfig="$TK_DIR/scheduler.kubeconfig" \
    --leader-elect=false --bind-address=127.0.0.1

for ((k = 1; k <= NODES; k++)); do kubelet $k; done
if [ "$NODES" -gt 0 ]; then
    cat >"$TK_DIR/proxy.yaml" <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $TK_DIR/proxy.kubeconfig}
mode: nftables
clusterCIDR: $NET.0/24
hostnameOverride: node1
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0}
oomScoreAdj: 0
YAML
    bg kube-proxy "$TK_BIN/testkube" kube-proxy --config="$TK_DIR/proxy.yaml"
    if [ -n "$DNS_CONF" ]; then
        user dns /CN=dns
        cat >"$TK_DIR/Corefile" <<DNS
cluster.local in-addr.arpa {
    bind $NODE_IP
    errors
    kubernetes {
        kubeconfig $TK_DIR/dns.kubeconfig
    }
    cache 5
}
DNS
        kc create clusterrole dns --verb=list,watch \
            --resource=services,pods,namespaces,endpointslices.discovery.k8s.io >/dev/null
        kc create clusterrolebinding dns --clusterrole=dns --user=dns >/dev/null
        bg coredns "$TK_BIN/testkube" coredns -conf "$TK_DIR/Corefile"
    fi
fi
for ((k = 1; k <= NODES; k++)); do
    wait_for 60 "node$k Ready" kc wait --for=condition=Ready node/node$k --timeout=1s
done
if [ "$NODES" != 0 ]; then
    wait_for 20 "service addresses" timeout 1 bash -c "exec 3<>/dev/tcp/$API_SVC_IP/443"
fi
wait_for 60 "default service account" kc -n default get serviceaccount default
say "up: export KUBECONFIG=$TK_DIR/admin.kubeconfig; nsenter --net=/run/netns/$NETNS kubectl ..."
