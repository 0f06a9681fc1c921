#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (6) The API server is killed and comes back: profiling goes on without it, and what changed is taken up after.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace app
pod app steady node1 "/bin/shares steady"
pod app later node2 "/bin/shares later" "labels: {app: later}"
running app steady later
target app steady '{"podSelector": {"matchLabels": {"app": "steady"}}}'
wait_check 30 "samples before" has_samples "pod='steady'" "$(now)"
p=$(cat "$TK_DIR/pid/kube-apiserver")
mapfile -d '' -t command <"/proc/$p/cmdline"
kill -9 "$p"
down=$(now)
sleep 12
up=$(now)
setsid nsenter --net="/run/netns/$NETNS" -- "${command[@]}" >>"$TK_DIR/log/kube-apiserver.log" 2>&1 </dev/null &
echo $! >"$TK_DIR/pid/kube-apiserver"
until_ 60 "the API server" k get --raw /readyz
note "API server away for $(($(now) - down)) s"
began=$(now)
until_ 60 "an answer" has_samples "pod='steady'" $((down + 1)) || true
got=$(profile "pod='steady'" $((down + 2)) "$up" | total_us)
check "profiling went on without it ($got us in $((up - down - 2)) s of half a CPU)" test "$got" -gt $(((up - down - 4) * 300000))
target app later '{"podSelector": {"matchLabels": {"app": "later"}}}'
wait_check 60 "a target made after is taken up" has_samples "pod='later'" "$began"
k -n app delete profilingtarget steady >/dev/null
stopped() { [ "$(us_of "pod='steady'" $(($(now) - 6)) "$(now)")" = 0 ]; }
wait_check 60 "a target deleted after is gone" stopped
