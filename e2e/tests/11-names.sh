#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (11) A query without app_service, of a namespace with thirty process names, answers with all of
# them.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace many
CPU=1200m pod many many node1 /bin/names
running many many
target many all '{"podSelector": {}}'
began=$(now)
all_names() {
    profile "pod_ns='many'" "$began" "$(now)" >"$W/many.json"
    [ "$(functions <"$W/many.json" | grep -cE '^\[p\] worker-[0-9]+$')" = 30 ]
}
wait_check 60 "thirty names in one answer" all_names
root=$(jq -r '.result[] | select(.parent_node_id == "-1") | .profile_location_str' "$W/many.json")
check "the root's name says how many: $root" \
    test "$root" = "30 processes" -o "$root" = "31 processes"
check "a query for one of them by its name" \
    test "$(profile "pod_ns='many'" "$began" "$(now)" worker-07 | total_us)" -gt 0
