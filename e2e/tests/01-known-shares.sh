#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (1) `kubectl apply` of a target gives a flame graph with the known shares: programs in C (PIE and
# not PIE) and Go, on both nodes. podflame profiles itself, too, and reports its own health.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace shares
pod shares c node1 "/bin/shares c-shares"
pod shares c-fixed node2 "/bin/shares-no-pie c-fixed"
pod shares go node2 /bin/shares-go
running shares c c-fixed go
target podflame-system itself '{"podSelector": {"matchLabels":
    {"app.kubernetes.io/name": "podflame"}}, "events": {"onCpu": {"sampleHz": 997}}}'
applied=$(now)
target shares everything '{"podSelector": {}, "events": {"onCpu": {"sampleHz": 199}}}'
wait_check 90 "the target becomes Ready" is_ready shares everything
wait_check 90 "an answer by cluster and namespace" \
    has_samples "pod_cluster='$CLUSTER' AND pod_ns='shares'" "$applied"
note "first answer $(($(now) - applied)) s after kubectl apply (windows of 2 s)"
from=$(($(now) + 2))
# 1,500 samples of each program, whatever CPU it gets: then sampling scatters by much less than the
# 5 points that are allowed.
enough() {
    local pod
    for pod in c c-fixed go; do
        [ "$(us_of "pod='$pod'" "$from" "$(now)")" -gt $((1500 * 5025)) ] || return 1
    done
}
until_ 150 "1500 samples of each" enough || true
to=$(now)
for pod in c c-fixed go; do
    until_ 60 "the last windows of $pod" stored_after $pod "$to" || true
done
for pod in c c-fixed go; do
    profile "pod_cluster='$CLUSTER' AND pod_ns='shares' AND pod='$pod'" $((from + 1)) "$to" \
        >"$W/$pod.json"
    read -r a b c <<<"$(split_between shares $pod "$from" "$to")"
    sum=$((a + b + c))
    names=(share_50 share_30 share_20)
    [ $pod != go ] || names=(main.share50 main.share30 main.share20)
    i=0
    for own in "$a" "$b" "$c"; do
        got=$(share_of "${names[$i]}" <"$W/$pod.json")
        want=$(awk -v o="$own" -v s="$sum" 'BEGIN {printf "%.1f", s ? o * 100 / s : -1}')
        check "$pod: ${names[$i]} has $(printf %.1f "$got") % (its own clock: $want %)" \
            near "$got" "$want" 5
        i=$((i + 1))
    done
    check "$pod: the time adds up: $(total_us <"$W/$pod.json") us of $sum us" \
        between "$(total_us <"$W/$pod.json")" $((sum * 85 / 100)) $((sum * 115 / 100))
done
for pod in c c-fixed go; do
    whole=$(finished_percent "$W/$pod.json")
    check "$pod: stacks are whole: $whole %" awk "BEGIN {exit !($whole >= 99)}"
done
check "C: the graph has [p] process, main, work and the function" \
    has_functions "$W/c.json" '[p] c-shares' main work share_50
check "the name of another cluster has no samples" \
    test "$(us_of "pod_cluster='other' AND pod_ns='shares'" "$from" "$to")" = 0

# podflame itself, since its target was made. These functions run every second in each agent and in
# the hub, and take most of the little time that both take: a drain has a sample in 2 s.
has_seen() { # CONTAINER FUNCTION...
    profile "pod_ns='podflame-system' AND container='$1'" "$applied" "$(now)" >"$W/$1.json"
    has_functions "$W/$1.json" "${@:2}"
}
wait_check 180 "the agents by name: the drain, the fold, the loop" \
    has_seen agent thread_main drain_run pipeline_windows_fold loop_run
wait_check 180 "the hub by name: the loop, the writer" \
    has_seen hub thread_main loop_run request_run store_sqlite_write
all_seen() { [[ "$(condition podflame-system itself Degraded)" != True* ]]; }
check "... and Degraded is not True: all of their stacks are seen" all_seen
k -n podflame-system delete profilingtarget itself >/dev/null

# What the agents and the hub report of their own health while they work.
has_metrics() { # FILE METRIC...
    local m
    for m in "${@:2}"; do
        grep -q "^${m}[{ ]" "$1" || { echo "no $m"; return 1; }
    done
}
process=(podflame_build_info process_cpu_seconds_total process_resident_memory_bytes
    podflame_loop_stall_seconds podflame_worker_queued_jobs podflame_worker_stuck
    podflame_worker_cpu_wait_seconds_total
    podflame_stage_cpu_seconds_total)
bpf=(podflame_bpf_programs podflame_bpf_links podflame_bpf_run_seconds_total
    podflame_bpf_program_run_seconds_total podflame_bpf_program_runs_total
    podflame_samples_dropped_total podflame_records_dropped_total)
agents=$(k -n podflame-system get pods -o json | jq -r '.items[]
    | select(.metadata.name | startswith("podflame-agent")) | .status.podIP')
stats=/proc/sys/kernel/bpf_stats_enabled
before=$(cat $stats)
echo 1 >$stats                           # otherwise the kernel measures no run times
check "an agent on each of two nodes" test "$(wc -w <<<"$agents")" = 2
# What an agent has given up: the reports say it, and so does the kernel.
are_confined() {
    k -n podflame-system get pnr -o json | jq -e '[.items[].status.capabilities[]
        | select(.feature | startswith("own-")) | .ok] | length == 6 and all' >/dev/null
}
check "the agents have limited their system calls, their files and their user" are_confined
filters() { # how many processes of the agents have so many filters, or more
    for p in $(pids_of agent); do sed -n 's/^Seccomp_filters:\t//p' "/proc/$p/status"; done |
        awk -v least="$1" '$1 >= least { n++ } END { print n + 0 }'
}
check "... by a filter of each process, and one more of each child" \
    test "$(filters 2)" = "$(pids_of agent | wc -l)" -a "$(filters 3)" -ge 2
for ip in $agents; do
    says_all() {
        in_net curl -sS --max-time 20 "http://$ip:20417/metrics" >"$W/metrics"
        has_metrics "$W/metrics" "${process[@]}" "${bpf[@]}"
    }
    wait_check 30 "agent at $ip: stalls, mailboxes, drops, cost by stage and program" says_all
    check "... /healthz and /readyz" in_net curl -sSf --fail-early --max-time 20 \
        "http://$ip:20417/healthz" "http://$ip:20417/readyz"
done
echo "$before" >$stats
# All watches and requests share a connection by HTTP/2; for a moment after GOAWAY there are two.
api_connections() { # PID
    nsenter -t "$1" -n ss -Htn state established dport = :443 | wc -l
}
share_a_connection() {
    local p n
    for p in $(pids_of agent); do
        n=$(api_connections "$p")
        echo "$n connections of $p"
        [ "$n" -ge 1 ] && [ "$n" -le 2 ] || return
    done
}
wait_check 10 "each agent has one connection with the API server" share_a_connection
check "... by HTTP/2" \
    grep -qE '^podflame_http2_client_total\{event="connected"\} [1-9]' "$W/metrics"
hub /metrics >"$W/metrics" || true
check "hub: stalls, mailboxes, cost by stage" has_metrics "$W/metrics" "${process[@]}" \
    podflame_store_healthy podflame_ingest_requests_total
is_healthy() { hub /healthz -f && hub /readyz -f; }
check "... /healthz and /readyz" is_healthy
