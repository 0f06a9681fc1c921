# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Work of GPUs, for the test that has pods of it (e2e/workloads/gpu/on_gpu.*), whose driver and
# CUPTI are the stand-ins of e2e/gpu. The microseconds must be those that the programs launch, under
# the functions that launch, with the kernel as the leaf. It needs measured.sh. The pods:
# by-hand	C; has podflame's library as charts/examples/on-gpu-pod.yaml describes
# injected	Python; the API server's policy gives it the library
# unaided	C; has a driver, and not the library
# idle		C; has the library, and no target selects it
example() { # JQ: the example's pod, changed
    k create --dry-run=client -o json -f "$REPO/charts/examples/on-gpu-pod.yaml" |
        jq '.metadata.namespace = "'"${NAMESPACES[0]}"'" | '"$1"
}
on_gpu_begin() {
    local ns=${NAMESPACES[0]} injected='podflame.io/cuda: enabled'
    target "$ns" work '{"podSelector": {"matchLabels": {"team": "work"}},
        "limits": {"overheadPercent": 100}, "events": {"onGpu": {}}}'
    example '.metadata.name = "by-hand" | .metadata.labels = {team: "work"}
        | .spec.nodeName = "node1" | .spec.terminationGracePeriodSeconds = 1
        | .spec.containers[0] |= (.image = "localhost/podflame-languages:1"
            | .command = ["/bin/on_gpu"] | del(.resources))' | k apply -f - >/dev/null
    export WORKLOAD=languages
    pod "$ns" injected node2 "/bin/python3 /app/on_gpu.py" "labels: {team: work, $injected}"
    pod "$ns" unaided node2 /bin/on_gpu "labels: {team: work}"
    pod "$ns" idle node1 /bin/on_gpu "labels: {$injected}"
    running "$ns" by-hand injected unaided idle
}
# The policy makes of a plain pod with its label what the example has.
policy_is_the_example() {
    local spec='.spec | del(.tolerations)'
    diff <(example '.spec.automountServiceAccountToken = false' |
            k create --dry-run=server -o json -f - | jq -S "$spec") \
        <(example '.spec.automountServiceAccountToken = false
            | .metadata.labels = {"podflame.io/cuda": "enabled"}
            | .spec |= (del(.initContainers, .volumes)
                | del(.containers[0].env, .containers[0].volumeMounts))' |
            k create --dry-run=server -o json -f - | jq -S "$spec")
}
on_gpu_name() { # POD FUNCTION: the name as its language writes it
    if [ "$1" = injected ]; then echo "__main__.$2"; else echo "$2"; fi
}
on_gpu_of() { # POD FRAME: its microseconds in the answer that fetch() has put there
    value_of "$2" <"$W/$1-on-gpu.json" | cut -d. -f1
}
SOFTMAX='[c] void nn::softmax<float>(float*, int)'
GEMM='[c] void gemm<float, 128>(float const*, float const*, float*, int)'
# on_gpu_seen FROM: what was stored since then has the functions and kernels
on_gpu_seen() {
    fetch by-hand on-gpu "$1" "$(now)"
    fetch injected on-gpu "$1" "$(now)"
    has_functions "$W/by-hand-on-gpu.json" trains copies replays on_second_device "$GEMM" &&
        has_functions "$W/injected-on-gpu.json" __main__.trains __main__.clears "$SOFTMAX"
}
# on_gpu_is POD FILTER FROM TO FUNCTION...: the answer has the microseconds that these functions say
on_gpu_is() {
    local pod=$1 filter=$2 from=$3 to=$4 sum=0 func got want
    shift 4
    fetch "$pod" on-gpu "$from" "$to" "$filter"
    for func; do
        got=$(on_gpu_of "$pod" "$(on_gpu_name "$pod" "$func")")
        want=$(true_value "$pod" "$func" "$from" "$to")
        check "$pod$filter: $func had a GPU for $got us (the program says $want)" \
            near "$got" "$want" $((want * 10 / 100))
        sum=$((sum + got))
    done
    check "$pod$filter: ... and nothing else is in the answer" \
        test "$(total_us <"$W/$pod-on-gpu.json" | cut -d. -f1)" = "$sum"
}
# on_gpu_check BEGAN FROM TO: what was stored from FROM to TO; the pods are there since BEGAN
on_gpu_check() {
    local pod calls
    for pod in by-hand injected; do
        EVENT=on-gpu until_ 60 "the last windows of $pod" stored_after "$pod" "$3" || true
    done
    fetch_logs by-hand injected
    on_gpu_is injected "" "$2" "$3" trains clears
    on_gpu_is by-hand "" "$2" "$3" trains copies replays on_second_device
    for pod in by-hand injected; do
        check "$pod: stacks are whole" between "$(finished_percent "$W/$pod-on-gpu.json")" 95 100
        check "$pod: the unit is microseconds" \
            test "$(jq -r .unit "$W/$pod-on-gpu.json")" = microseconds
    done
    check "by-hand: the copies are a leaf" near "$(on_gpu_of by-hand '[c] memcpy HtoD')" \
        "$(on_gpu_of by-hand copies)" 0
    check "by-hand: ten kernels of a graph are under the function that launches it" near \
        "$(on_gpu_of by-hand "$SOFTMAX")" \
        $(($(on_gpu_of by-hand replays) + $(on_gpu_of by-hand trains) / 4)) 0
    calls=$(true_value by-hand fails "$2" "$3")
    check "by-hand: $calls calls that fail are made, and count nothing" test "$calls" -gt 0
    on_gpu_is by-hand " AND gpu_device='1'" "$2" "$3" on_second_device
    for pod in unaided idle; do
        check "$pod: no sample of on-gpu" \
            test "$(EVENT=on-gpu profile "pod='$pod'" "$1" "$(now)" | total_us)" = 0
    done
}
