#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (4) A pod that gets the label of a target is profiled soon, and not any more when it loses it.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace relabelled
made=$(now)
pod relabelled moving node2 "/bin/shares moving"
running relabelled moving
witnesses
target relabelled web '{"podSelector": {"matchLabels": {"role": "web"}}}'
waits() { case $(condition relabelled web Ready) in False*) ;; *) return 1 ;; esac; }
wait_check 60 "the target matches no pod yet" waits
before=$(now)
wait_check 120 "what both nodes sampled before is stored" witnessed "$before"
began=$(now)
k -n relabelled label pod moving role=web >/dev/null
wait_check 60 "a label added: samples" has_samples "pod='moving'" "$began"
first=$began
while [ "$(us_of "pod='moving'" "$began" "$first")" = 0 ]; do first=$((first + 1)); done
# The design says within 5 s, and a row's time is the last second of its window of 2 s; a busy
# machine gets more.
check "... the first sample is from $((first - began)) s after" between $((first - began)) 0 15
k -n relabelled label pod moving role- >/dev/null
ended=$(now)
check_stops "a label taken away" "pod='moving'" "$ended"
check "... and there were some before" test "$(us_of "pod='moving'" "$began" "$ended")" -gt 0
check "... and none before it was added" test "$(us_of "pod='moving'" "$made" "$before")" = 0
