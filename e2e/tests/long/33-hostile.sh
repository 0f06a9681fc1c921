#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (33) Nobody at another's cost: pods that fill the agent's tables and lie in their files
# (workloads/hostile), a tenant with as many and as large targets as it may create and with many
# dear queries, a sender with a node's token, and a client without any right (e2e/hostile/peer.py).
# Beside them, on the same node and at the same time, the profile of an innocent namespace is whole,
# and its queries are answered. Each of the others is told what happens to it.
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
. "$(dirname "${BASH_SOURCE[0]}")/../measured.sh"
. "$REPO/e2e/users.sh"
SECONDS_OF_ATTACKS=400                   # they end with the test, or by themselves then
namespace innocent hostile-pods hostile-tenant hostile-sender hostile-peer
began=$(now)

# uid NAMESPACE POD, ip NAMESPACE POD
uid() { k -n "$1" get pod "$2" -o 'jsonpath={.metadata.uid}'; }
ip() { k -n "$1" get pod "$2" -o 'jsonpath={.status.podIP}'; }
# cpu_cgroup PROCESS: the directory of the cgroup that limits its CPU; PROCESS: /proc/PID
cpu_cgroup() {
    local path
    path=$(awk -F: '$2 ~ /(^|,)cpu(,|$)/ { print $3 }' "$1/cgroup")
    if [ -n "$path" ]; then
        echo "/sys/fs/cgroup/cpu$path"
    else
        echo "/sys/fs/cgroup$(sed -n 's/^0:://p' "$1/cgroup")"
    fi
}
# attack NAMESPACE POD ATTACK ARGUMENT...: peer.py with the address of that pod and its limit of
# CPU, until the test ends
attack() {
    local files pod process
    pod=$(uid "$1" "$2")
    files=$(grep -ls "pod$pod/" /proc/[0-9]*/cgroup || true)
    process=${files%%/cgroup*}
    (
        echo "$BASHPID" >"$(cpu_cgroup "$process")/cgroup.procs"
        exec nsenter --net="$process/ns/net" -- "$REPO/e2e/hostile/peer.py" "$3" \
            $SECONDS_OF_ATTACKS "${@:4}" >"$W/$3" 2>&1
    ) &
    PIDS+=($!)
}
got() { # ATTACK ANSWER: how often the attack got this answer
    tail -1 "$W/$1" | jq --arg a "$2" '.[$a] // 0'
}

# ---- the innocent ----

REQUEST=500m pod innocent shares node1 "/bin/shares innocent"
MEMORY=256Mi pod innocent waits node1 /bin/waits
target innocent all '{"podSelector": {}, "limits": {"overheadPercent": 100}, "events":
    {"onCpu": {"sampleHz": 199}, "offCpu": {}, "memAlloc": {"sampleBytes": 1},
     "memInuse": {"sampleBytes": 1}}}'
k -n innocent create serviceaccount reader >/dev/null
k -n innocent create rolebinding reader --clusterrole podflame-profiles-reader \
    --serviceaccount innocent:reader >/dev/null
READER=$(token innocent reader)

# ---- what the others need ----

# eight labels with names and values of maximal length
LABELS=$(jq -nc '[range(8) | {key: (("k\(.)" + "a" * 251) + "/" + "n" * 63), value: ("v" * 63)}]
    | from_entries')
REQUEST=20m CPU=100m pod hostile-tenant own node1 "/bin/shares own" "labels: $LABELS"
for n in tenant sender peer; do pod hostile-$n $n node2 /bin/idle; done
target hostile-pods stacks '{"podSelector": {"matchLabels": {"app": "stacks"}},
    "limits": {"overheadPercent": 100}, "events": {"onCpu": {"sampleHz": 997},
    "offCpu": {"minBlock": "0s"}, "memAlloc": {"sampleBytes": 1}}}'
target hostile-pods blocks '{"podSelector": {"matchLabels": {"app": "blocks"}},
    "limits": {"overheadPercent": 100}, "events": {"memInuse": {"sampleBytes": 1}}}'
target hostile-pods files '{"podSelector": {"matchLabels": {"app": "files"}},
    "events": {"onCpu": {"sampleHz": 997}}}'
# mallory may do in her namespace all that its administrator may
certificate_user mallory
k -n hostile-tenant create rolebinding mallory --clusterrole admin --user mallory >/dev/null
k -n hostile-tenant create serviceaccount mallory >/dev/null
k -n hostile-tenant create rolebinding reads --clusterrole view \
    --serviceaccount hostile-tenant:mallory >/dev/null
# more targets than a report has room for. They select everything of the namespace, on all nodes.
jq -n --argjson labels "$LABELS" '
    def key($n): ("x\($n)" + "b" * 250) + "/" + "m" * 63;
    def text($n): ("t\($n)" + "c" * 60);
    def others: [range(4) | {key: key(.), operator: "NotIn", values: [range(16) | text(.)]}];
    {apiVersion: "v1", kind: "List", items: [range(300) | {
        apiVersion: "podflame.io/v1alpha1", kind: "ProfilingTarget",
        metadata: {name: "t-\(.)", namespace: "hostile-tenant",
            annotations: {large: ("z" * 20000)}},
        spec: {podSelector: {matchLabels: $labels, matchExpressions: others},
            nodeSelector: {matchExpressions: others},
            containers: {include: (["main"] + [range(15) | text(.)])},
            podLabelTags: ($labels | keys), limits: {overheadPercent: 100},
            events: {onCpu: {sampleHz: 999}, offCpu: {minBlock: "0s"},
                memAlloc: {sampleBytes: 1}, memInuse: {sampleBytes: 1}}}}]}' >"$W/targets.json"
running innocent shares waits
running hostile-tenant own tenant
running hostile-sender sender
running hostile-peer peer

# The sender has the token of the agent of node2, and profiles as that agent would send them: much
# of its own pod, and some of the innocent one, which is on node1.
agent=$(k -n podflame-system get pods -l app.kubernetes.io/component=agent \
    --field-selector spec.nodeName=node2 -o 'jsonpath={.items[0].metadata.name}')
NODES=$(k -n podflame-system create token podflame-agent --audience podflame-ingest \
    --bound-object-kind Pod --bound-object-name "$agent")
forge() { # FILE NAMESPACE POD STACKS
    "$BUILD/hostile/forge" node2 "$2" "$3" "$(uid "$2" "$3")" "$4" >"$W/$1"
}
wait_check 90 "the innocent target is Ready" is_ready innocent all
# whole POD EVENT NAME...: of the last ten seconds that are stored the answer has these functions,
# and whole stacks
whole() {
    local last
    fetch "$1" "$2" "$began" "$(now)"
    last=$(jq ".summary.last // 0" "$W/$1-$2.json")
    fetch "$1" "$2" $((last - 9)) "$last" &&
        between "$(finished_percent "$W/$1-$2.json")" 99 100 &&
        has_functions "$W/$1-$2.json" "${@:3}"
}
settled() {
    whole shares on-cpu share_50 share_30 share_20 &&
        whole waits off-cpu naps reads_pipe polls &&
        whole waits mem-alloc allocates_small allocates_large
}
wait_check 150 "... and its profiles are whole" settled

# ---- the attacks ----

# restarts: how often each container of podflame has started again; metrics FILE: the counters of
# the hub and of the agent of node1
restarts() {
    k -n podflame-system get pods -o json | jq -c '[.items[] | {(.metadata.name):
        [.status.containerStatuses[].restartCount]}] | sort'
}
node1=$(k -n podflame-system get pods -l app.kubernetes.io/component=agent \
    --field-selector spec.nodeName=node1 -o 'jsonpath={.items[0].status.podIP}')
read_metrics() {
    hub /metrics >"$1" && in_net curl -sS --max-time 20 "http://$node1:20417/metrics" >>"$1"
}
metrics() { until_ 120 "counters of the hub and of the agent" read_metrics "$1"; }
sum_of() { # FILE COUNTER: a counter that has more labels counts with all of them
    awk -v n="$2" 'index($1, n) == 1 { sum += $2 } END { print sum + 0 }' "$1"
}
risen() { # COUNTER
    [ "$(sum_of "$W/after" "$1")" -gt "$(sum_of "$W/before" "$1")" ]
}
before=$(restarts)
metrics "$W/before"
HUB_POD=$(k -n podflame-system get pods -l app.kubernetes.io/component=hub \
    -o 'jsonpath={.items[0].status.podIP}')
AGENTS=$(k -n podflame-system get pods -l app.kubernetes.io/component=agent \
    -o 'jsonpath={.items[*].status.podIP}')
export RESTART=Never REQUEST=20m
CPU=700m MEMORY=128Mi pod hostile-pods stacks node1 \
    "/bin/hostile $SECONDS_OF_ATTACKS threads stacks maps"
CPU=300m MEMORY=128Mi pod hostile-pods blocks node1 "/bin/hostile $SECONDS_OF_ATTACKS blocks"
CPU=300m MEMORY=128Mi pod hostile-pods files node1 "/bin/damaged $SECONDS_OF_ATTACKS"
beside k_certificate mallory create --validate=false -f "$W/targets.json" >"$W/created" 2>&1
for i in 1 2 3 4; do forge body-$i hostile-sender sender 5000; done
forge body-foreign innocent shares 1000
# shellcheck disable=SC2086
attack hostile-peer peer connections "$HUB_POD" $AGENTS
attack hostile-peer peer tokens "$HUB_POD"
TOKEN=$(token hostile-tenant mallory) attack hostile-tenant tenant queries "$HUB_POD"
TOKEN=$NODES attack hostile-sender sender profiles "$HUB_POD" "$W"/body-*
running hostile-pods stacks blocks files
REQUEST=200m pod innocent late node1 "/bin/shares-no-pie late"
from=$(($(now) + 2))
failures() { # TARGET: the reasons in its status
    k -n hostile-pods get ptgt "$1" -o json | jq -r '.status.failures[]? | "\(.reason) \(.message)"'
}
told() { failures "$1" >"$W/failures-$1" && grep -qE "$2" "$W/failures-$1"; }

# The innocent asks all the time, as a user who may see this namespace.
read_by_innocent() { # POD EVENT FROM TO
    TOKEN=$READER fetch "$@" && total_us <"$W/$1-$2.json" ||
        echo "$*: $(head -c 300 "$W/$1-$2.json")" >>"$W/refused"
}
# 1,500 samples as in 01-known-shares.sh, which the program gives in 15 s if it gets its CPU time.
# After them the attacks go on until each is at its limit.
enough() {
    local us
    us=$(read_by_innocent shares on-cpu "$from" $(($(now) + 3)))
    [ "${us:-0}" -gt $((1500 * 5025)) ]
}
waited=$SECONDS
wait_check 200 "beside the attacks the innocent gets 1500 samples" enough
note "they could be read after $((SECONDS - waited)) s"
# On a machine without CPU time to spare, podflame gets what its containers ask for: this shows
# whether a long wait is because of that.
metrics "$W/then"
since_before() { # COUNTER
    awk -v a="$(sum_of "$W/before" "$1")" -v b="$(sum_of "$W/then" "$1")" 'BEGIN {print b - a}'
}
note "hub and agent used $(since_before process_cpu_seconds_total) s of CPU, and waited" \
    "$(since_before podflame_worker_cpu_wait_seconds_total) s for a CPU; the agent is behind by" \
    "$(sum_of "$W/then" podflame_samples_behind_seconds) s and" \
    "$(sum_of "$W/then" podflame_spool_batches) windows"
late() { whole late on-cpu main work share_50; }
wait_check 150 "what begins beside the attacks has a whole profile, too" late
# Each of the others is told what it may not have, however little CPU it gets.
answered() { [ "$(got "$1" "$2")" -gt 0 ]; }
for a in "queries 429" "profiles 200" "profiles 400" "profiles 429" "tokens 401" "tokens 429"; do
    # shellcheck disable=SC2086
    wait_check 90 "some of the attack's $a" answered $a
done
created() { [ "$(k -n hostile-tenant get ptgt --no-headers | wc -l)" = 300 ]; }
wait_check 120 "all of the tenant's targets are created" created
wait_check 60 "blocks beyond a namespace's share are told" told blocks '^ShareExceeded '
wait_check 30 "... perf maps that are no files, too" \
    told stacks '^RuntimeNotWalked .*/tmp/perf-[0-9]*.map is not used'
to=$(now)
later() { TOKEN=$READER has_samples "pod='$1'" $((to + 1)); }
for pod in shares waits; do until_ 120 "the last windows of $pod" later $pod || true; done

# ---- the innocent's profile ----

for event in on-cpu off-cpu mem-alloc; do
    for pod in shares waits; do read_by_innocent $pod $event $((from + 1)) "$to" >/dev/null; done
done
check "the innocent's queries are all answered" test ! -s "$W/refused"
cat "$W/refused" 2>/dev/null || true
read -r a b c <<<"$(split_between innocent shares "$from" "$to")"
sum=$((a + b + c))
for name in "share_50 $a" "share_30 $b" "share_20 $c"; do
    share=$(share_of "${name% *}" <"$W/shares-on-cpu.json")
    want=$(awk -v o="${name#* }" -v s="$sum" 'BEGIN {printf "%.1f", s ? o * 100 / s : -1}')
    check "innocent: ${name% *} has $(printf %.1f "$share") % (its own clock: $want %)" \
        near "$share" "$want" 5
done
us=$(total_us <"$W/shares-on-cpu.json")
check "... the time adds up: $us us of $sum us" between "$us" $((sum * 85 / 100)) \
    $((sum * 115 / 100))
samples=$(jq .summary.samples "$W/shares-on-cpu.json")
check "... by $samples samples, 199 in a second of its CPU time" \
    between "$samples" $((sum * 199 * 85 / 100000000)) $((sum * 199 * 115 / 100000000))
whole=$(finished_percent "$W/shares-on-cpu.json")
check "... stacks are whole: $whole %" between "$whole" 99 100
check "... with their names" has_functions "$W/shares-on-cpu.json" '[p] innocent' main work share_50
fetch_logs waits
for function in naps reads_pipe polls; do
    us=$(value_of $function <"$W/waits-off-cpu.json" | cut -d. -f1)
    want=$(true_value waits $function "$from" "$to")
    check "... $function waited $us us (its own clock: $want us)" \
        between "$us" $((want * 85 / 100)) $((want * 115 / 100))
done
for function in allocates_small allocates_large; do
    us=$(value_of $function <"$W/waits-mem-alloc.json" | cut -d. -f1)
    want=$(true_value waits $function "$from" "$to")
    check "... $function allocated $us bytes (the program says $want)" \
        near "$us" "$want" $((want * 15 / 100))
done
for f in "$W"/shares-on-cpu.json "$W"/waits-{off-cpu,mem-alloc}.json; do
    jq -c '[.summary.losses[]? | select(.of_node | not)]' "$f" >"$W/losses"
    check "... ${f##*/}: nothing of it is lost: $(cat "$W/losses")" grep -qx '\[\]' "$W/losses"
done
! grep -q 'forged' "$W/shares-on-cpu.json" || fail "forged samples are in the innocent's profile"
check "... its target is Ready" is_ready innocent all
degraded() { condition innocent all Degraded; }
check "... and not degraded: $(degraded)" test "$(degraded | cut -d' ' -f1)" = False

# ---- the others are told ----

metrics "$W/after"
for a in connections tokens queries profiles; do note "$a: $(tail -1 "$W/$a")"; done
for p in stacks blocks files; do note "$p: $(k -n hostile-pods logs $p --tail=1)"; done
for c in podflame_perf_map_lines_refused_total podflame_symbol_files_incomplete_total; do
    check "pods: $c counts" risen $c
done
check "... each attack was made" test "$(k -n hostile-pods logs stacks --tail=1 |
    grep -cE ' threads=[0-9]{4,} stacks=[0-9]{4,} .*maps=[0-9]{3,}')" = 1
left_out() {
    k -n hostile-tenant get ptgt -o json |
        jq -e '[.items[].status.conditions[]? | select(.reason == "ReportFull")] | length > 0'
}
wait_check 30 "tenant: targets beyond a report's room say so" left_out
check "... its $(got queries 429) queries beyond its share are counted" \
    risen 'podflame_api_refused_total{reason="user_requests"}'
check "sender: its $(got profiles 429) bodies beyond its share are counted" \
    risen 'podflame_ingest_no_room_total{reason="sender"}'
check "... and its profiles of a pod of another node" \
    risen 'podflame_ingest_profiles_refused_total{reason="pod_of_another_node"}'
check "peer: its $(got tokens 429) tokens beyond its share are counted" \
    risen 'podflame_sign_ins_refused_total{reason="peer_refused"}'
check "... and its connections were closed for others: $(got connections closed)" \
    risen podflame_http_refused_total

# ---- podflame itself ----

check "no container of podflame has ended" test "$(restarts)" = "$before"
peak_mib() { # COMPONENT: the most memory that the processes of one pod had at once, or more
    local uid p
    for uid in $(uids_of_pods "$1"); do
        for p in /proc/[0-9]*; do
            if grep -q "pod$uid/" "$p/cgroup"; then sed -n 's/^VmHWM://p' "$p/status"; fi
        done 2>/dev/null | awk '{ sum += $1 } END { print int(sum / 1024) }'
    done | sort -n | tail -1
}
agent=$(peak_mib agent) hub=$(peak_mib hub)
check "agents took at most $agent MiB of 1024" between "$agent" 1 1023
check "the hub took at most $hub MiB of 2048" between "$hub" 1 2047
