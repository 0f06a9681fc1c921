#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (7) The hub is killed (its container restarts), and later hangs for longer: nothing is lost, and
# nothing is counted twice.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace without-hub
pod without-hub c node1 "/bin/shares c"
pod without-hub d node2 "/bin/shares d"
running without-hub c d
target without-hub all '{"podSelector": {}}'
# Each node's agent has watches of its own, and after test 06 its own time to come back to the API
# server.
wait_check 90 "samples before, of one node" has_samples "pod='c'" "$(now)"
wait_check 90 "... and of the other" has_samples "pod='d'" "$(now)"
hub_pid() { pids_of hub | sort -n | head -1; }
another_hub() { # PID: a hub that is not this process answers
    local p
    p=$(hub_pid)
    [ -n "$p" ] && [ "$p" != "$1" ] && hub /healthz -o /dev/null
}
from=$(($(now) + 2))
wait_check 90 "both nodes' windows are stored" stored $((from + 2))
killed=$(hub_pid)
kill -9 "$killed"
wait_check 120 "a hub that was killed comes back" another_hub "$killed"
stopped=$(hub_pid) hung=$(now)
kill -STOP "$stopped"                    # its port stays open: the worst way to be away
until_ 90 "2 s of CPU without a hub" has_used without-hub c "$hung" 2000000 || true
kill -9 "$stopped"
wait_check 120 "... and once more" another_hub "$stopped"
to=$(($(now) + 2))
wait_check 120 "what the agents kept is stored, and later windows" stored "$to"
for pod in c d; do
    wait_check 90 "$pod: all of its time is there" all_there without-hub $pod "$from" "$to"
    note "$(all_there without-hub $pod "$from" "$to" || true)"
done
# Each window is stored once. Half a CPU is 1 s in a window of 2 s, so that one window too many or
# too few shows in the sum of two.
for ((t = from + 2; t + 3 < to; t += 4)); do
    us=$(us_of "pod_ns='without-hub' AND pod='c'" "$t" $((t + 3)))
    read -r a b c <<<"$(split_between without-hub c $((t - 1)) $((t + 3)))"
    if ! near "$us" $((a + b + c)) 800000; then
        echo "windows from $t on: $us us stored, $((a + b + c)) us used" >>"$W/windows"
    fi
done
check "no window of c is missing or doubled" test ! -s "$W/windows"
if [ -s "$W/windows" ]; then cat "$W/windows"; fi
