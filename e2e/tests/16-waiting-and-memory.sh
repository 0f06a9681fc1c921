#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One target with all four events on pods of C, C++, Rust, Go, Python, Java and Lua. podflame must
# agree with what the programs measure themselves (workloads/waits.*): what they use CPU for, where,
# how long and for what they wait, what they allocate, and what of it is live. A neighbour is left
# alone, the cost of a storm of allocations keeps to its limit, and nothing stays attached.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
. "$(dirname "${BASH_SOURCE[0]}")/measured.sh"
namespace waiting

try() { # WHAT FIELD EVENTS
    if target waiting bad "{\"podSelector\": {}, \"events\": $3}" 2>"$W/err"; then
        fail "$1 is accepted"
    else
        check "$1 is refused, and the error names $2" grep -q "$2" "$W/err"
    fi
}
try "minBlock 5x" 'spec.events.offCpu.minBlock' '{"offCpu": {"minBlock": "5x"}}'
try "minBlock above maxBlock" 'spec.events.offCpu' \
    '{"offCpu": {"minBlock": "2s", "maxBlock": "1s"}}'
try "sampleBytes 0" 'spec.events.memAlloc.sampleBytes' '{"memAlloc": {"sampleBytes": 0}}'
try "maxStall of an hour" 'spec.events.memAlloc' '{"memAlloc": {"maxStall": "1h"}}'
try "no event" 'onCpu, offCpu, memAlloc, memInuse, hbmAlloc, hbmInuse' '{}'

# First the storm's speed without podflame: pairs of malloc and free per 1,000 pairs of its own free
# list, which nobody observes. A second of CPU time is a bad measure: the machine's speed changes.
CPU=250m pod waiting storm node2 /bin/storm "labels: {app: storm}"
running waiting storm
# rate N: the median of the last N rates that the storm printed
rate() {
    k -n waiting logs storm --tail="$1" | awk '$1 == "rate" {print int($2 * 1000 / $5)}' | sort -n |
        awk '{a[NR] = $1} END {print a[int((NR + 1) / 2)] + 0}'
}
six_rates() { [ "$(k -n waiting logs storm | grep -c ^rate)" -ge 6 ]; }
until_ 60 "six rates" six_rates || true
rate_before=$(rate 5)
target waiting storm \
    '{"podSelector": {"matchLabels": {"app": "storm"}}, "events": {"memAlloc": {}, "memInuse": {}}}'

# The target is made before its pods, so that the agent sees what they allocate from their start.
target waiting all '{"podSelector": {"matchLabels": {"team": "known"}},
    "limits": {"overheadPercent": 100},
    "events": {"onCpu": {}, "offCpu": {}, "memAlloc": {"sampleBytes": 1},
               "memInuse": {"sampleBytes": 1}}}'
export MEMORY=256Mi                      # they leak
pod waiting neighbour node1 /bin/waits
pod waiting c node1 /bin/waits "labels: {team: known}"
pod waiting cpp node2 /bin/waits-cpp "labels: {team: known}"
pod waiting rust node1 /bin/waits-rust "labels: {team: known}"
pod waiting go node2 /bin/waits-go "labels: {team: known}"
WORKLOAD=languages pod waiting python node2 "/bin/python3 /app/waits.py" "labels: {team: known}"
WORKLOAD=languages pod waiting java node1 "/jre/bin/java -cp /app Waits" "labels: {team: known}"
WORKLOAD=languages pod waiting lua node2 "/bin/python3 /app/fed.py /bin/lua /app/waits.lua" \
    "labels: {team: known}"
all="c cpp rust go python java lua"
live="c cpp rust go python lua"          # the programs whose live memory the agent sees
# shellcheck disable=SC2086
running waiting $all neighbour
wait_check 120 "the target becomes Ready" is_ready waiting all
all_events() {
    k -n waiting get ptgt all --no-headers | grep -q 'mem-alloc,mem-inuse,off-cpu,on-cpu'
}
wait_check 60 "... with all four events" all_events

# The functions of each program that wait, and those that allocate.
declare -A waits=(
    [c]="naps waits_for_lock reads_pipe reads_socket polls"
    [cpp]="naps waits_for_lock reads_pipe"
    [rust]="naps waits_for_lock reads_socket"
    [go]="naps readsPipe"
    [python]="naps waits_for_lock reads_pipe"
    [java]="naps waits_for_lock" [lua]=reads_pipe)
declare -A allocates=([c]="allocates_small allocates_large leaks" [java]=allocates)
for pod in $all; do : "${allocates[$pod]:=allocates leaks}"; done
shown_name() { # POD FUNCTION: the name as its language writes it
    case $1 in
    cpp) if [ "$2" = holds ]; then echo "holds(bool)"; else echo "$2()"; fi ;;
    rust) echo "waits::$2" ;;
    go) echo "main.$2" ;;
    python) echo "__main__.$2" ;;
    java) echo "Waits::$2" ;;
    *) echo "$2" ;;
    esac
}
value_in() { # POD EVENT FUNCTION: the function's value in that answer
    value_of "$(shown_name "$1" "$3")" <"$W/$1-$2.json" | cut -d. -f1
}
# First the names, then the measurement: the agent learns the names of a process in its first
# seconds.
missing() { # POD: prints the events and functions that no sample has had since $began
    local event func
    local -A wanted=([on-cpu]=burns [off-cpu]=${waits[$1]} [mem-alloc]=${allocates[$1]}
        [mem-inuse]=leaks)
    [[ " $live " = *" $1 "* ]] || unset "wanted[mem-inuse]"
    for event in "${!wanted[@]}"; do
        fetch "$1" "$event" "$began" "$(now)"
        functions <"$W/$1-$event.json" >"$W/names"
        for func in ${wanted[$event]}; do
            grep -qxF "$(shown_name "$1" "$func")" "$W/names" || echo "$event $func"
        done
    done
}
all_seen() { missing "$1" >"$W/missing" && [ ! -s "$W/missing" ]; }
began=$(now)
for pod in $all; do
    wait_check 120 "$pod: the functions that use CPU, wait, allocate and leak have names" \
        all_seen "$pod"
    [ ! -s "$W/missing" ] || note "$pod: missing: $(paste -sd, "$W/missing")"
done

# A stretch of time of which all is stored. Meanwhile the programs hold 4 MiB for 20 s and free it:
# the snapshots must show it, then no more.
from=$(($(now) + 2))
newest() { # POD FUNCTION: live bytes in the newest snapshot
    local t
    t=$(now)
    fetch "$1" mem-inuse $((t - 60)) "$t"
    value_in "$1" mem-inuse "$2"
}
declare -A leak_from leak_at held freed
for pod in $live; do leak_at[$pod]=$(now) leak_from[$pod]=$(newest "$pod" leaks); done
held_and_freed() {
    local pod bytes status=0
    for pod in $live; do
        [ -z "${freed[$pod]:-}" ] || continue
        status=1
        bytes=$(newest "$pod" holds)
        if [ "$bytes" -gt 3900000 ]; then
            held[$pod]=$bytes
        elif [ -n "${held[$pod]:-}" ] && [ "$bytes" -lt 4096 ] &&
            [ "$(value_in "$pod" mem-inuse leaks)" -gt 0 ]; then
            freed[$pod]=1
        fi
    done
    return $status
}
until_ 180 "what is held and freed" held_and_freed || true
for pod in $live; do
    check "$pod: 4 MiB live in holds: ${held[$pod]:-0} bytes" \
        near "${held[$pod]:-0}" 4194304 $((4194304 / 20))
    check "$pod: ... and gone from the snapshot when they are freed" test "${freed[$pod]:-}" = 1
done
later() { [ "$(now)" -ge $((from + 40)) ]; }
until_ 60 "40 s" later || true
to=$(now)
for pod in $all; do until_ 60 "the last windows of $pod" stored_after "$pod" "$to" || true; done
# shellcheck disable=SC2086
fetch_logs $all
# Live memory in leaks grows by what the program leaked. A snapshot is some seconds old; Go's shows
# the heap at the last collection, and the agent reads it every 10 s.
for pod in $live; do
    t=$(now)
    grown=$(($(newest "$pod" leaks) - ${leak_from[$pod]}))
    k -n waiting logs "$pod" --tail=20 >>"$W/$pod.log"
    want=$(true_value "$pod" leaks "${leak_at[$pod]}" "$t") slack=30
    [ "$pod" != go ] || slack=65
    check "$pod: $grown bytes more live in leaks ($want leaked)" \
        between "$grown" $((want * (100 - slack) / 100)) $((want * (100 + slack) / 100))
done
# How near bytes must be, in percent: Java reports allocations one TLAB at a time.
declare -A near_bytes=([go]=40 [java]=40)
for pod in $all; do
    for event in on-cpu off-cpu mem-alloc; do fetch "$pod" $event $((from + 1)) "$to"; done
    got=$(value_in "$pod" on-cpu burns) want=$(true_value "$pod" burns "$from" "$to")
    # 99 samples a second of 10 % of a CPU are 400 samples, 250 on a busy machine: one sigma is 6 %
    check "$pod: burns took $got us (its own clock: $want us)" \
        near "$got" "$want" $((want * 30 / 100))
    for func in ${waits[$pod]}; do
        got=$(value_in "$pod" off-cpu "$func") want=$(true_value "$pod" "$func" "$from" "$to")
        least=$((want * 85 / 100))
        # Lua measures all its time off the CPU, and so the time that it was preempted, too
        if [ "$pod" = lua ]; then
            late=$(true_value lua "${func}_late" "$from" "$to")
            least=$((least - late * 85 / 100))
        fi
        # a goroutine that was woken waits for a P, and that time is in no wait of its stack
        [ "$pod" != go ] || least=$((want * 75 / 100))
        check "$pod: $func waited $got us (its own clock: $want us, at least $least)" \
            between "$got" "$least" $((want * 115 / 100))
    done
    for func in ${allocates[$pod]}; do
        got=$(value_in "$pod" mem-alloc "$func") want=$(true_value "$pod" "$func" "$from" "$to")
        # string.rep() of Lua allocates its result twice
        [ "$pod $func" != "lua leaks" ] || want=$((want * 2))
        check "$pod: $func allocated $got bytes (the program says $want)" \
            near "$got" "$want" $((want * ${near_bytes[$pod]:-15} / 100))
    done
    for event in on-cpu off-cpu mem-alloc; do
        whole=$(finished_percent "$W/$pod-$event.json")
        check "$pod: stacks of $event are whole: $whole %" between "$whole" 95 100
    done
    units="$(jq -r .unit "$W/$pod-off-cpu.json") $(jq -r .unit "$W/$pod-mem-alloc.json")" || true
    check "$pod: units are microseconds and bytes" test "$units" = "microseconds bytes"
done
fetch c off-cpu $((from + 1)) "$to"
got=$(value_in c off-cpu sleeps_long) want=$(((to - from) * 1000000))
check "c: a wait longer than its windows is there: $got us of $want us" \
    between "$got" $((want / 2)) $((want * 115 / 100))
check "java: the leaves say what was allocated" \
    has_functions "$W/java-mem-alloc.json" 'byte[]'

# What a thread waited for is a leaf of its stacks, and a tag.
declare -A cause=([naps]=sleep [waits_for_lock]=lock [reads_pipe]=pipe [reads_socket]=socket
    [polls]=poll)
for func in ${waits[c]}; do
    fetch c off-cpu $((from + 1)) "$to" " AND wait='${cause[$func]}'"
    # The time after the wake-up is runqueue: much on a busy machine.
    want=$(($(true_value c "$func" "$from" "$to") - $(true_value c "${func}_late" "$from" "$to")))
    got=$(value_in c off-cpu "$func")
    check "c: wait='${cause[$func]}' has $got us of $func ($want us until it was woken)" \
        near "$got" "$want" $((want * 10 / 100))
    check "c: ... its leaf says so" has_functions "$W/c-off-cpu.json" "[wait: ${cause[$func]}]"
    others=0
    for other in ${waits[c]}; do
        [ "$other" = "$func" ] || others=$((others + $(value_in c off-cpu "$other")))
    done
    check "c: ... and nothing else" test "$others" -lt $((want / 50))
done
describes() { k -n waiting describe profilingtarget all | grep -q "$1"; }
check "java: kubectl describe says that the agent does not see the heap's live objects" \
    describes 'no Java objects'

# The neighbour
for event in off-cpu mem-alloc mem-inuse; do
    check "neighbour: no sample of $event" \
        test "$(EVENT=$event profile "pod='neighbour'" "$began" "$(now)" | total_us)" = 0
done
# A breakpoint changes the page of code that it is in. A process without breakpoints has no changed
# pages of code.
code_kb() { # POD: KiB of its files' code that it changed
    local uid p
    uid=$(k -n waiting get pod "$1" -o 'jsonpath={.metadata.uid}')
    for p in /proc/[0-9]*; do
        if grep -q "pod$uid/" "$p/cgroup" && grep -q waits "$p/comm"; then cat "$p/smaps"; fi
    done 2>/dev/null | awk '
        $2 ~ /^r-xp/ {code = $6 ~ /^\//}
        $2 ~ /^[r-][w-]/ && $2 !~ /x/ {code = 0}
        $1 == "Private_Dirty:" && code {n += $2}
        END {print n + 0}'
}
check "neighbour: its code has no breakpoint" test "$(code_kb neighbour)" = 0
check "... but the selected pod's has" test "$(code_kb c)" -gt 0

# The storm
storm_says() { k -n waiting describe profilingtarget storm | grep -qE "$1"; }
wait_check 120 "storm: kubectl describe says that mem-inuse is off, and why" \
    storm_says 'mem-inuse of .* is off'
wait_check 60 "storm: ... and that mem-alloc is estimated or off" \
    storm_says 'mem-alloc of .* is (estimated|off)'
note "storm: $(k -n waiting get ptgt storm -o json |
    jq -r '[.status.failures[]? | .reason + ": " + .message] | join("; ")')"
rate_after=$(rate 9)
# its limit is 1 %; a probe without one would leave 2 %
check "storm: $rate_after pairs per 1,000 of its own, $rate_before before" \
    test "$rate_after" -gt $((rate_before * 75 / 100))

# Nothing stays attached
k -n waiting delete profilingtarget all storm >/dev/null
nothing_left() { [ "$(links)" = 0 ]; }
wait_check 60 "nothing of the agents is attached any more" nothing_left
restarted=$(k -n waiting get pods -o json | jq -r '.items[]
    | select(any(.status.containerStatuses[]?; .restartCount > 0)) | .metadata.name')
check "no pod has restarted" test -z "$restarted"
for pod in $restarted; do
    state=$(k -n waiting get pod "$pod" -o json |
        jq -c '.status.containerStatuses[0].lastState') || true
    note "$pod: $state; the last lines that it printed:"
    k -n waiting logs "$pod" --previous --tail=3 | sed 's/^/     /'
done
ended=$(now)
silent() { [ "$(now)" -ge $((ended + 10)) ]; } # four seconds, and three windows
until_ 60 "10 s" silent || true
quiet() {
    local event
    for event in off-cpu mem-alloc mem-inuse; do
        [ "$(EVENT=$event profile "pod_ns='waiting'" $((ended + 4)) "$(now)" | total_us)" = 0 ] ||
            return 1
    done
}
check "nothing more is stored" quiet
