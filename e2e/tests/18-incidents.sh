#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Five incidents whose culprits are known (workloads/incidents): a slow release, a lock, a leak, a
# noisy neighbour, a throttled pod. incidents/solve.mjs solves each on the hub's page in a real
# Chromium, in at most four clicks. docs/page.md tells the same as a tutorial.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
if [ ! -x /usr/bin/chromium-headless-shell ]; then
    echo "skip: incidents: there is no /usr/bin/chromium-headless-shell"
    exit 0
fi
namespace incidents
target incidents all '{"podSelector": {}, "podLabelTags": ["version"],
    "limits": {"overheadPercent": 5},
    "events": {"onCpu": {}, "offCpu": {}, "memInuse": {}}}'
for v in v1-a v1-b v2; do
    pod incidents checkout-$v node1 "/bin/checkout ${v%-*}" \
        "labels: {app: checkout, version: ${v%-*}}"
done
pod incidents orders node2 /bin/orders
MEMORY=512Mi pod incidents sessions node2 /bin/sessions
# search asks for too little, and batch-export for much and takes all that it gets
REQUEST=20m pod incidents search node1 /bin/search
REQUEST=500m CPU=4 pod incidents batch-export node1 /bin/batch-export
REQUEST=20m CPU=30m pod incidents thumbnails node2 /bin/thumbnails
running incidents checkout-{v1-a,v1-b,v2} orders sessions search batch-export thumbnails

# ask FROM: fetches each event of the namespace since then
ask() {
    for event in on-cpu off-cpu mem-inuse; do
        EVENT=$event profile "pod_ns='incidents'" "$1" "$(now)" >"$W/$event.json"
    done
    EVENT=off-cpu profile "pod_ns='incidents' AND wait='runqueue'" "$1" "$(now)" >"$W/ready.json"
}
# has FILE FUNCTION AMOUNT
has() { [ "$(value_of "$2" <"$W/$1.json" | cut -d. -f1)" -ge "$3" ]; }
throttled() { [ "$(jq '.summary.throttled_us // 0 | floor' "$W/off-cpu.json")" -ge "$1" ]; }
all_seen() {
    ask "$began"
    has on-cpu round_price 1 && has on-cpu round_slowly 1 && has on-cpu compress_rows 1 &&
        has off-cpu reserve_stock 1 && has ready wait_for_query 1 && throttled 1 &&
        has mem-inuse remember_session 1 &&
        k -n incidents logs sessions | grep -q 'the cache is full'
}
# So much of each that shares mean something, and that the leak is many samples.
enough() {
    ask "$from"
    has on-cpu round_price 400000 && has on-cpu round_slowly 2000000 &&
        has on-cpu compress_rows 8000000 && has off-cpu reserve_stock 60000000 &&
        has ready wait_for_query 10000000 && throttled 5000000 &&
        has mem-inuse remember_session $((leaked + 12 * 1048576))
}
began=$(now)
wait_check 120 "the functions of all incidents have names" all_seen
leaked=$(value_of remember_session <"$W/mem-inuse.json" | cut -d. -f1)
from=$(($(now) + 2))
wait_check 180 "there is enough of each incident" enough
to=$(now)
for p in checkout-v2 orders; do until_ 60 "the last windows of $p" stored_after "$p" "$to"; done

export HUB HUB_IP TOKEN BUILD FROM=$from TO=$to PICTURES=$BUILD/incidents
mkdir -p "$PICTURES"
in_net "$REPO/e2e/incidents/solve.mjs" >"$W/solved" 2>&1 || true
while IFS= read -r line; do
    case $line in
    "ok "*) ok "${line#ok }" ;;
    "not ok "*) fail "${line#not ok }" ;;
    *) printf '%s\n' "$line" ;;
    esac
done <"$W/solved"
check "five incidents were solved" test "$(grep -c '^ok ' "$W/solved")" = 5
