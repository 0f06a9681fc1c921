#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (8) A container restarts: the pod is the same, the container ID is another, and the samples of
# both containers are told apart.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace restarted
pod restarted c node2 "/bin/shares c"
running restarted c
target restarted all '{"podSelector": {}}'
began=$(now)
wait_check 90 "samples before" has_samples "pod='c'" "$began"
id() {
    k -n restarted get pod c -o 'jsonpath={.status.containerStatuses[0].containerID}' |
        sed 's#.*//##'
}
first=$(id)
for p in /proc/[0-9]*; do
    if grep -q "$first" "$p/cgroup" 2>/dev/null; then kill -9 "${p#/proc/}"; fi
done
changed() {
    [ -n "$(id)" ] && [ "$(id)" != "$first" ] &&
        k -n restarted wait pod/c --for=condition=Ready --timeout=1s
}
wait_check 60 "the kubelet restarts the container" changed
second=$(id)
wait_check 90 "samples of the new container" has_samples "container_id='$second'" "$began"
check "samples of the old one are kept" has_samples "container_id='$first'" "$began"
a=$(us_of "container_id='$first'" "$began" "$(now)")
b=$(us_of "container_id='$second'" "$began" $(($(now) - 3)))
check "... and both are the pod's" test "$(us_of "pod='c'" "$began" "$(now)")" -ge $((a + b))
