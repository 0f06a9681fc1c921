#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ends what up.sh started: the processes named by its own pid files and the containers of its own containerds, then
# its mounts, network namespaces, cgroups and bridge.
#   down.sh [keep]         (with the word: $TK_DIR with its logs stays, under $TK_DIR.last)
# shellcheck disable=SC2046,SC2086     # lists of names
set -u
TK_DIR=${TK_DIR:?a folder for all that the cluster writes}
BRIDGE=${BRIDGE:-tk0}
PID=$TK_DIR/pid
[ -d "$PID" ] || exit 0
NETNS=${NETNS:-tk}
if [ -e "/run/netns/$NETNS" ] && [ ! /proc/self/ns/net -ef "/run/netns/$NETNS" ]; then
    nsenter --net="/run/netns/$NETNS" -- "$0" "$@"; ip netns del "$NETNS"; exit 0
fi
stop() { # NAME...: SIGTERM to each group, SIGKILL after a second (an API server with open watches takes a minute to leave by itself)
    local n p i left
    for i in TERM 0 0 0 0 0 0 0 0 0 0 KILL; do
        left=
        for n; do
            p=$(cat "$PID/$n" 2>/dev/null) || continue
            case $({ tr '\0' ' ' <"/proc/$p/cmdline"; } 2>/dev/null) in *"${n%-node*}"*) ;; *) rm -f "$PID/$n"; continue;; esac   # gone, or its id reused
            kill -$i -- "-$p" 2>/dev/null && left=1
        done
        [ -n "$left" ] || return 0
        sleep .1
    done
}
names() { (cd "$PID" && ls -d $1 2>/dev/null); }
stop $(names 'kubelet-*') $(names coredns) kube-proxy kube-scheduler kube-controller-manager
nodes=$(cd "$TK_DIR" && ls -d node* 2>/dev/null)
for n in $nodes; do
    c() { ctr --address "$TK_DIR/$n/containerd.sock" -n k8s.io "$@" 2>/dev/null; }
    # the pods' network namespaces, as this containerd knows them
    ns=$(c containers ls -q | while read -r id; do c containers info "$id"; done | grep -oE '/run/netns/cni-[0-9a-f-]+' | sort -u)
    c tasks ls -q | while read -r t; do c tasks kill -s KILL "$t"; done >/dev/null
    sleep .3
    c tasks ls -q | while read -r t; do c tasks delete -f "$t"; done >/dev/null      # its shim leaves with it
    for x in $ns; do ip netns del "${x##*/}" 2>/dev/null; done
done
stop $(names "containerd-*") kube-apiserver etcd $(names unshare)
awk -v d="$TK_DIR/" 'index($5, d) == 1 {print $5}' /proc/self/mountinfo | sort -r | while read -r m; do umount -l "$m"; done
ip link del "$BRIDGE" 2>/dev/null
nft delete table ip kube-proxy 2>/dev/null; nft delete table ip6 kube-proxy 2>/dev/null
while read -r root; do             # an empty line is the root itself: only its kubepods are ours
    for c in /sys/fs/cgroup /sys/fs/cgroup/*/; do find "${c%/}${root:-/kubepods}" -depth -type d -exec rmdir {} + 2>/dev/null; done
done <"$TK_DIR/cgroups"
while read -r k v; do echo "$v" >"/proc/sys/${k//.//}"; done 2>/dev/null <"$TK_DIR/sysctl"
find /var/log/containers -lname "$TK_DIR/*" -delete 2>/dev/null
rmdir /run/containerd/runc/k8s.io /run/containerd/runc /run/containerd/s /run/containerd 2>/dev/null
if [ "${1:-}" = keep ]; then rm -rf "$TK_DIR.last"; mv "$TK_DIR" "$TK_DIR.last"; else rm -rf "$TK_DIR"; fi
exit 0
