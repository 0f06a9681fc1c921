#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (4) A pod that gets the label of a target is profiled within 5 s; one that loses it is not any more.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace app
pod app moving node2 "/bin/shares moving"
running app moving
target app web '{"podSelector": {"matchLabels": {"role": "web"}}}'
sleep 3
began=$(now)
k -n app label pod moving role=web >/dev/null
# a row's time is the last second of its window of 2 s
starts() { [ "$(us_of "pod='moving'" "$began" $((began + 7)))" -gt 0 ]; }
wait_check 60 "a label added: samples from within 5 s" starts
k -n app label pod moving role- >/dev/null
ended=$(now)
sleep 14
check "a label taken away: no sample from 5 s later on" test "$(us_of "pod='moving'" $((ended + 8)) "$(now)")" = 0
check "... and there were some before" test "$(us_of "pod='moving'" "$began" "$ended")" -gt 0
