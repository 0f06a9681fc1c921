# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# RDMA, for the test that has a pod of it (e2e/workloads/rdma), whose libibverbs is the stand-in of
# e2e/rdma. The bytes of each operation must be those that the program posts, under the functions
# that post, and a call that fails counts nothing. The latency of requests that take long must be
# what the program measures. It needs measured.sh. The pod's name is rdma.
rdma_of() { # FUNCTION: its bytes in the answer that fetch() has put there
    value_of "$1" <"$W/rdma-rdma.json" | cut -d. -f1
}
rdma_begin() {
    # The target is made before the pod, so the agent sees how its queue pairs are made.
    target "${NAMESPACES[0]}" rdma '{"podSelector": {"matchLabels": {"app": "rdma"}},
        "limits": {"overheadPercent": 100}, "events": {"rdma": {}, "rdmaLatency": {}}}'
    WORKLOAD=languages pod "${NAMESPACES[0]}" rdma node1 /bin/rdma
    running "${NAMESPACES[0]}" rdma
}
# rdma_seen FROM: what was stored since then has the functions that send
rdma_seen() {
    fetch rdma rdma "$1" "$(now)"
    has_functions "$W/rdma-rdma.json" sends writes sends_datagrams builds
}
# rdma_is FILTER FROM TO FUNCTION...: the answer has exactly the bytes that these functions say
rdma_is() {
    local filter=$1 from=$2 to=$3 sum=0 func got want
    shift 3
    fetch rdma rdma "$from" "$to" "$filter"
    for func; do
        got=$(rdma_of "$func") want=$(true_value rdma "$func" "$from" "$to")
        check "rdma$filter: $func posted $got bytes (the program says $want)" \
            near "$got" "$want" $((want * 10 / 100))
        sum=$((sum + got))
    done
    check "rdma$filter: ... and nothing else is in the answer" \
        test "$(total_us <"$W/rdma-rdma.json" | cut -d. -f1)" = "$sum"
}
# rdma_check FROM TO: what was stored in this time
rdma_check() {
    local calls us want
    EVENT=rdma until_ 60 "the last windows of rdma" stored_after rdma "$2" || true
    fetch_logs rdma
    rdma_is "" "$1" "$2" sends writes sends_datagrams builds
    check "rdma: stacks are whole" between "$(finished_percent "$W/rdma-rdma.json")" 95 100
    check "rdma: the unit is bytes" test "$(jq -r .unit "$W/rdma-rdma.json")" = bytes
    rdma_is " AND rdma_operation='send'" "$1" "$2" sends sends_datagrams
    rdma_is " AND rdma_operation='read'" "$1" "$2" builds
    rdma_is " AND rdma_operation='receive'" "$1" "$2" receives
    rdma_is " AND rdma_operation='register'" "$1" "$2" registers
    rdma_is " AND rdma_qp_type='UD'" "$1" "$2" sends_datagrams
    rdma_is " AND rdma_device='standin_1'" "$1" "$2" writes
    fetch rdma rdma-latency "$1" "$2"
    us=$(value_of is_slow <"$W/rdma-rdma-latency.json" | cut -d. -f1)
    want=$(true_value rdma is_slow "$1" "$2")
    check "rdma-latency: requests of is_slow took $us us (the program says $want)" \
        near "$us" "$want" $((want * 10 / 100))
    calls=$(true_value rdma fails "$1" "$2")
    check "rdma: $calls calls that fail are made, and count nothing" test "$calls" -gt 0
}
