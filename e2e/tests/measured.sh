# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Shared by the tests whose programs print once a second what they measured of themselves: "known
# SECONDS FUNCTION=SUM ...". The pods are in the test's first namespace.

# fetch POD EVENT FROM TO [FILTER]: the answer goes to $W/POD-EVENT.json
fetch() {
    EVENT=$2 profile "pod_ns='${NAMESPACES[0]}' AND pod='$1'${5:-}" "$3" "$4" >"$W/$1-$2.json"
}
fetch_logs() { # POD...: fetches what the programs printed, for true_value()
    local pod
    for pod; do k -n "${NAMESPACES[0]}" logs "$pod" >"$W/$pod.log"; done
}
# true_value POD FUNCTION FROM TO: microseconds or bytes of the function, which the program measured
true_value() {
    awk -v s="$3" -v e="$4" -v n="$2=" '$1 == "known" && $2 >= s && $2 <= e {
        for (i = 3; i <= NF; i++) if (index($i, n) == 1) v = substr($i, length(n) + 1)
        if (!k++) {first = v; t0 = $2}
        last = v; t1 = $2}
        END {printf("%.0f\n", t1 > t0 ? (last - first) * (e - s) / (t1 - t0) : 0)}' "$W/$1.log"
}
# shellcheck disable=SC2046
links() { held_by link_id $(pids_of agent) | wc -l; } # how much the agents have attached
