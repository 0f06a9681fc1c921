#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A job that lives for one second of CPU gives at least 80 % of its samples, with the names of its
# pod and functions.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace jobs
# the highest frequency that an install allows without configuration
target jobs all '{"podSelector": {}, "events": {"onCpu": {"sampleHz": 199}}}'
# The agent loads a target's programs before the target has a pod, and attaches them last. So they
# are there when a pod starts, unless it starts in that moment.
loaded() { # on both nodes
    local p n=0
    for p in $(pids_of agent); do [ -z "$(held_by link_id "$p")" ] || n=$((n + 1)); done
    [ $n = 2 ]
}
wait_check 120 "a target's programs are loaded before it has a pod" loaded
began=$(now)
i=0
for node in node1 node2 node1; do
    i=$((i + 1))
    RESTART=Never CPU=1 pod jobs "job$i" $node /bin/job
done
for i in 1 2 3; do
    k -n jobs wait pod/job$i --for='jsonpath={.status.phase}=Succeeded' --timeout=120s >/dev/null
done
# most POD US_USED: sets us to the time in the job's function. The rest of the pod's time is what
# runc does before the program starts.
most() {
    profile "pod='$1'" "$began" "$(now)" >"$W/job.json"
    us=$(awk -v all="$(total_us <"$W/job.json")" -v percent="$(share_of job_work <"$W/job.json")" \
        'BEGIN {printf "%d", all * percent / 100}')
    # 200 samples scatter by 4 % on a busy machine
    between "$us" $(($2 * 80 / 100)) $(($2 * 125 / 100))
}
for i in 1 2 3; do
    used=$(k -n jobs logs job$i | awk '{printf "%d", $2 * 1000000}')
    wait_check 60 "job$i: at least 80 % of $used us" most job$i "$used"
    note "job$i: $us us in job_work, $(total_us <"$W/job.json") us in all"
done
