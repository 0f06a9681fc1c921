#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (7) The hub is killed (its container restarts), and later away for longer: nothing is lost, nothing counted twice.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace app
pod app c node1 "/bin/shares c"
pod app d node2 "/bin/shares d"
running app c d
target app all '{"podSelector": {}}'
wait_check 30 "samples before" has_samples "pod='d'" "$(now)"
hub_pid() { pids_of hub | sort -n | head -1; }
from=$(($(now) + 2))
sleep 4
kill -9 "$(hub_pid)"
sleep 3
until_ 60 "the hub" hub /healthz -o /dev/null
kill -STOP "$(hub_pid)"                  # away, but its port is open: the worst way
stopped=$(hub_pid)
sleep 8
kill -9 "$stopped"
until_ 60 "the hub" hub /healthz -o /dev/null
sleep 6
to=$(now)
sleep 4
all_there() { # POD: what is stored is what the program used, within 15 % and never more
    local a b c sum got
    read -r a b c <<<"$(split_between app "$1" "$from" "$to")"
    sum=$((a + b + c))
    got=$(us_of "pod='$1'" $((from + 1)) "$to")
    echo "$got us stored, $sum us used"
    between "$got" $((sum * 88 / 100)) $((sum * 112 / 100))
}
for p in c d; do
    wait_check 40 "$p: all of its time is there" all_there $p
    note "$(all_there $p || true)"
done
# each second of a window is there once: no window has more than the pod's limit allows
for ((t = from + 2; t < to - 2; t += 2)); do
    us=$(us_of "pod='c'" "$t" $((t + 1)))
    if ! between "$us" 500000 1600000; then echo "window at $t: $us us" >>"$W/windows"; fi
done
check "no window of c is missing or doubled" test ! -s "$W/windows"
if [ -s "$W/windows" ]; then cat "$W/windows"; fi
