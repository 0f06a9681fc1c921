#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# GPUs and RDMA, all at the same time. Memory of GPUs: a target with hbm-alloc and hbm-inuse on pods
# in C and Python, whose CUDA driver is the stand-in of e2e/gpu. The bytes must be those that the
# programs ask for, under the functions that ask, and a call that fails counts nothing. A pod
# without a driver is reported. Work of GPUs is in on-gpu.sh, RDMA in rdma.sh.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
. "$(dirname "${BASH_SOURCE[0]}")/measured.sh"
. "$(dirname "${BASH_SOURCE[0]}")/on-gpu.sh"
. "$(dirname "${BASH_SOURCE[0]}")/rdma.sh"
namespace gpu
check "the policy makes of a pod what the example has" policy_is_the_example
# The target is made before its pods, so the agent sees which contexts they make.
target gpu all '{"podSelector": {"matchLabels": {"team": "known"}},
    "limits": {"overheadPercent": 100}, "events": {"hbmAlloc": {}, "hbmInuse": {}}}'
export WORKLOAD=languages
pod gpu c node1 /bin/gpu "labels: {team: known}"
pod gpu python node2 "/bin/python3 /app/gpu.py" "labels: {team: known}"
pod gpu neighbour node1 /bin/gpu
pod gpu without node2 "/bin/python3 /app/waits.py" "labels: {team: known}"
on_gpu_begin
rdma_begin
running gpu c python neighbour without
wait_check 120 "the target becomes Ready" is_ready gpu all
both_events() { k -n gpu get ptgt all --no-headers | grep -q 'hbm-alloc,hbm-inuse'; }
wait_check 60 "... with both events" both_events
describes() { k -n gpu describe profilingtarget all | grep -q "$1"; }
describes_work() { k -n gpu describe profilingtarget work | grep -q "$1"; }
wait_check 60 "kubectl describe says that pod without has no CUDA driver" \
    describes 'without.*libcuda.so.1'
wait_check 60 "... and that pod unaided does not have podflame's library" \
    describes_work 'unaided.*CUDA_INJECTION64_PATH'

declare -A functions_of=([c]="churns leaks on_second_device" [python]="churns leaks")
name_in() { # POD FUNCTION: the name as its language writes it
    if [ "$1" = python ]; then echo "__main__.$2"; else echo "$2"; fi
}
value_in() { # POD EVENT FUNCTION: the function's value in the answer that fetch() has put there
    value_of "$(name_in "$1" "$3")" <"$W/$1-$2.json" | cut -d. -f1
}
all_seen() { # POD: each of its functions has a name in what was stored since $began
    local func
    fetch "$1" hbm-alloc "$began" "$(now)"
    for func in ${functions_of[$1]}; do
        has_functions "$W/$1-hbm-alloc.json" "$(name_in "$1" "$func")" || return 1
    done
}
began=$(now)
for pod in c python; do
    wait_check 120 "$pod: the functions that allocate have names" all_seen "$pod"
done
wait_check 120 "the functions that give work to GPUs, and their kernels, have names" \
    on_gpu_seen "$began"
wait_check 120 "rdma: the functions that send have names" rdma_seen "$began"

# 32 MiB are held for 20 s, then freed: the snapshots must show it, then no more.
newest() { # POD FUNCTION: live bytes in the newest snapshot
    local t
    t=$(now)
    fetch "$1" hbm-inuse $((t - 60)) "$t"
    value_in "$1" hbm-inuse "$2"
}
from=$(($(now) + 2))
declare -A leak_from leak_at held freed
for pod in c python; do leak_at[$pod]=$(now) leak_from[$pod]=$(newest "$pod" leaks); done
held_and_freed() {
    local pod bytes status=0
    for pod in c python; do
        [ -z "${freed[$pod]:-}" ] || continue
        status=1
        bytes=$(newest "$pod" holds)
        if [ "$bytes" = $((32 << 20)) ]; then
            held[$pod]=1
        elif [ -n "${held[$pod]:-}" ] && [ "$bytes" = 0 ]; then
            freed[$pod]=1
        fi
    done
    return $status
}
until_ 180 "what is held and freed" held_and_freed || true
for pod in c python; do
    check "$pod: exactly 32 MiB live in holds" test "${held[$pod]:-}" = 1
    check "$pod: ... and gone from the snapshot when they are freed" test "${freed[$pod]:-}" = 1
done
later() { [ "$(now)" -ge $((from + 40)) ]; }
until_ 60 "40 s" later || true
to=$(now)
for pod in c python; do
    EVENT=hbm-alloc until_ 60 "the last windows of $pod" stored_after "$pod" "$to" || true
done
fetch_logs c python
for pod in c python; do
    t=$(now)
    grown=$(($(newest "$pod" leaks) - ${leak_from[$pod]}))
    k -n gpu logs "$pod" --tail=20 >>"$W/$pod.log"
    want=$(true_value "$pod" leaks "${leak_at[$pod]}" "$t")
    check "$pod: $grown bytes more live in leaks ($want leaked)" near "$grown" "$want" \
        $((want * 30 / 100))    # a snapshot is some seconds old
    fetch "$pod" hbm-alloc $((from + 1)) "$to"
    for func in ${functions_of[$pod]}; do
        got=$(value_in "$pod" hbm-alloc "$func") want=$(true_value "$pod" "$func" "$from" "$to")
        check "$pod: $func allocated $got bytes (the program says $want)" \
            near "$got" "$want" $((want * 10 / 100))
    done
    whole=$(finished_percent "$W/$pod-hbm-alloc.json")
    check "$pod: stacks are whole: $whole %" between "$whole" 95 100
    check "$pod: the leaf is the driver's function" \
        has_functions "$W/$pod-hbm-alloc.json" '[c] cuMemAlloc_v2'
    check "$pod: the unit is bytes" test "$(jq -r .unit "$W/$pod-hbm-alloc.json")" = bytes
done
calls=$(true_value c asks_too_much "$from" "$to")
check "c: $calls calls that fail are made" test "$calls" -gt 0
check "c: ... and count nothing" test "$(value_in c hbm-alloc asks_too_much)" = 0
# Memory that the end of a context frees, and the device of a context that the agent has seen begin
ends_with_context() {
    between "$(newest c on_second_device)" $((1 << 20)) $((64 << 20))
}
wait_check 30 "c: 1 to 64 MiB live in on_second_device, whose context ends after 64 MiB" \
    ends_with_context
fetch c hbm-alloc $((from + 1)) "$to" " AND gpu_device='1'"
got=$(value_in c hbm-alloc on_second_device)
check "c: gpu_device='1' has what was allocated there: $got bytes" near "$got" \
    "$(true_value c on_second_device "$from" "$to")" $((got / 10))
check "c: ... and nothing else" test "$(value_in c hbm-alloc churns)" = 0
on_gpu_check "$began" $((from + 1)) "$to"
rdma_check $((from + 1)) "$to"
for event in hbm-alloc hbm-inuse on-gpu rdma rdma-latency; do
    check "neighbour: no sample of $event" \
        test "$(EVENT=$event profile "pod='neighbour'" "$began" "$(now)" | total_us)" = 0
done
k -n gpu delete profilingtarget all work rdma >/dev/null
nothing_left() { [ "$(links)" = 0 ]; }
wait_check 60 "nothing of the agents is attached any more" nothing_left
