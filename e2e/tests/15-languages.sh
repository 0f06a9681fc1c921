#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Java, Python, Lua and LuaJIT in pods that know nothing of podflame: their stacks are whole, and
# their functions have names and the known shares.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace tongues
export WORKLOAD=languages
MEMORY=256Mi pod tongues java node1 "/jre/bin/java -cp /app Shares"
pod tongues python node2 "/bin/python3 /app/shares.py"
pod tongues lua node1 "/bin/lua /app/shares.lua"
pod tongues luajit node2 "/bin/luajit -joff /app/shares.lua"
running tongues java python lua luajit
began=$(now)
target tongues all '{"podSelector": {}, "events": {"onCpu": {"sampleHz": 199}}}'
# The name of a function in each language, without its number.
declare -A name=([java]=Shares::share_ [python]=__main__.share_ [lua]=share_ [luajit]=share_)
named() {
    profile "pod_ns='tongues' AND pod='$1'" "$began" "$(now)" >"$W/$1.json"
    has_functions "$W/$1.json" "${name[$1]}50"
}
enough() {
    profile "pod_ns='tongues' AND pod='$1'" "$began" "$(now)" >"$W/$1.json"
    [ "$(total_us <"$W/$1.json")" -gt 8000000 ]
}
for pod in java python lua luajit; do
    wait_check 90 "$pod: its functions have names" named $pod
done
began=$(($(now) + 2))                    # without the start, before the agent knows the processes
for pod in java python lua luajit; do
    wait_check 90 "$pod: 8 s of CPU" enough $pod
    n50=$(share_of "${name[$pod]}50" <"$W/$pod.json")
    n30=$(share_of "${name[$pod]}30" <"$W/$pod.json")
    n20=$(share_of "${name[$pod]}20" <"$W/$pod.json")
    sum=$(awk -v a="$n50" -v b="$n30" -v c="$n20" 'BEGIN {print a + b + c}')
    check "$pod: its three functions have $sum % of all" between "$sum" 75 100
    for n in 50 30 20; do
        var=n$n
        part=$(awk -v a="${!var}" -v s="$sum" 'BEGIN {printf "%.1f", s ? a * 100 / s : 0}')
        check "$pod: ${name[$pod]}$n has $part % of them" near "$part" $n 6
    done
    whole=$(finished_percent "$W/$pod.json")
    check "$pod: stacks are whole: $whole %" awk "BEGIN {exit !($whole >= 99)}"
done

# An agent has made no system call that it has given up. The kernel's audit log would have it.
none_refused() {
    ! dmesg | sed -nE 's/.*type=1326 audit\(([0-9]+).*exe="[^"]*\/podflame".*/\1/p' |
        awk -v since="$began" '$1 >= since { bad = 1 } END { exit !bad }'
}
check "the kernel has refused no system call of an agent or its children" none_refused
