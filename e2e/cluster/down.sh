#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# down.sh [keep]: ends what up.sh started: the processes that its pid files name and the containers
# of its containerds, then its mounts, network namespaces, cgroups and bridge. It also works if a
# part of that is dead already (a test run that was killed): it finds the rest by the cluster's
# files, network namespace and cgroups. With the argument `keep`, $TK_DIR and its logs stay, under
# $TK_DIR.last. Needs root.
# shellcheck disable=SC2046,SC2086,SC2317     # lists of names; functions called by name
set -u
TK_DIR=${TK_DIR:?a folder for all that the cluster writes}
PID=$TK_DIR/pid
[ -d "$PID" ] || exit 0
NETNS=${NETNS:-tk}
# All that runs in the namespace is killed, so this script must not run there.
if [ /proc/self/ns/net -ef "/run/netns/$NETNS" ]; then
    echo "down.sh: run it outside of the network namespace $NETNS" >&2
    exit 1
fi
# stop NAME...: SIGTERM to the process group of each, SIGKILL after a second. (An API server with
# open watches needs a minute to end by itself.)
stop() {
    local n p i left
    for i in TERM 0 0 0 0 0 0 0 0 0 0 KILL; do
        left=
        for n; do
            p=$(cat "$PID/$n" 2>/dev/null) || continue
            # The process has ended, or another one has its PID.
            case $({ tr '\0' ' ' <"/proc/$p/cmdline"; } 2>/dev/null) in
            *"${n%-node*}"*) ;;
            *)
                rm -f "$PID/$n"
                continue
                ;;
            esac
            kill -$i -- "-$p" 2>/dev/null && left=1
        done
        [ -n "$left" ] || return 0
        sleep .1
    done
}
names() { (cd "$PID" && ls -d $1 2>/dev/null); }
# cgroups: prints the pods' cgroups. up.sh writes an empty line for the root of the hierarchy; there
# only kubepods is ours.
cgroups() {
    local root c
    while read -r root; do
        for c in /sys/fs/cgroup /sys/fs/cgroup/*/; do
            find "${c%/}${root:-/kubepods}" -depth -type d
        done
    done 2>/dev/null <"$TK_DIR/cgroups"
}
# kill_all FUNCTION: SIGKILL to the processes that the function prints, until it prints none
kill_all() {
    local i p
    for i in {1..50}; do
        p=$($1)
        [ -n "$p" ] || return 0
        kill -9 $p 2>/dev/null
        sleep .1
    done
}
in_pods() {
    cgroups | while read -r c; do cat "$c/cgroup.procs"; done 2>/dev/null | grep -vx 0 | sort -u
}
in_netns() { ip netns pids "$NETNS" 2>/dev/null; }
stop $(names 'kubelet-*') $(names coredns) kube-proxy kube-scheduler kube-controller-manager
nodes=$(cd "$TK_DIR" && ls -d node* 2>/dev/null)
bundles=$(cd "$TK_DIR" &&
    ls -d node*/containerd-state/io.containerd.runtime.v2.task/k8s.io/* 2>/dev/null)
ns=$(cd "$TK_DIR" &&
    grep -ohE 'netns/cni-[0-9a-f-]+' $(printf '%s/config.json ' $bundles) /dev/null 2>/dev/null |
    sort -u)
sockets=$(cd "$TK_DIR" && sed 's#^unix://##' $(printf '%s/address ' $bundles) /dev/null 2>/dev/null)
for n in $nodes; do
    c() { ctr --address "$TK_DIR/$n/containerd.sock" -n k8s.io "$@" 2>/dev/null; }
    c tasks ls -q | while read -r t; do c tasks kill -s KILL "$t"; done >/dev/null
    sleep .3
    # a task's shim ends with it
    c tasks ls -q | while read -r t; do c tasks delete -f "$t"; done >/dev/null
done
stop $(names "containerd-*") kube-apiserver etcd $(names unshare)
kill_all in_pods
kill_all in_netns
for x in $ns; do ip netns del "${x##*/}" 2>/dev/null; done
for x in $bundles; do
    rm -rf "/run/containerd/runc/k8s.io/${x##*/}" /var/lib/cni/results/*"-${x##*/}-"*
done
rm -f $sockets
awk -v d="$TK_DIR/" 'index($5, d) == 1 {print $5}' /proc/self/mountinfo | sort -r |
    while read -r m; do umount -l "$m"; done
ip netns del "$NETNS" 2>/dev/null     # with the bridge and kube-proxy's tables in it
for _ in {1..50}; do               # a cgroup can be removed when its last process is reaped
    c=$(cgroups)
    [ -n "$c" ] || break
    rmdir $c 2>/dev/null || sleep .1
done
while read -r k v; do echo "$v" >"/proc/sys/${k//.//}"; done 2>/dev/null <"$TK_DIR/sysctl"
find /var/log/containers -lname "$TK_DIR/*" -delete 2>/dev/null
rmdir /run/containerd/runc/k8s.io /run/containerd/runc /run/containerd/s /run/containerd 2>/dev/null
if [ "${1:-}" = keep ]; then
    rm -rf "$TK_DIR.last"
    mv "$TK_DIR" "$TK_DIR.last"
else
    # $PID goes last: while it exists, there is something to remove
    find "$TK_DIR" -mindepth 1 -maxdepth 1 ! -name pid -exec rm -rf {} +
    rm -rf "$TK_DIR"
fi
exit 0
