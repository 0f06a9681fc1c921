#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (6) The API server is killed and comes back. Profiling continues without it; targets that were
# made or deleted afterwards take effect.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace without-api-server
pod without-api-server steady node1 "/bin/shares steady"
pod without-api-server later node2 "/bin/shares later" "labels: {app: later}"
running without-api-server steady later
target without-api-server steady '{"podSelector": {"matchLabels": {"app": "steady"}}}'
wait_check 90 "samples before" has_samples "pod='steady'" "$(now)"
kill_api_server
down=$(now)
# The hub remembers for a minute which tokens are good.
until_ 60 "ten seconds of windows without the API server" stored_after steady $((down + 10)) || true
up=$(now)
start_api_server
note "the API server was away for $(($(now) - down)) s"
began=$(now)
# What is stored of that time is what the program used then, but for the seconds at the edges.
went_on() {
    local a b c got
    read -r a b c <<<"$(split_between without-api-server steady $((down + 2)) "$up")"
    got=$(us_of "pod='steady'" $((down + 2)) "$up")
    echo "$got us stored, $((a + b + c)) us used in $((up - down - 2)) s"
    [ "$got" -gt $(((a + b + c) * 65 / 100)) ] && [ "$got" -gt 0 ]
}
wait_check 90 "profiling continued without it" went_on
note "$(went_on || true)"
target without-api-server later '{"podSelector": {"matchLabels": {"app": "later"}}}'
wait_check 120 "a target made afterwards takes effect" has_samples "pod='later'" "$began"
k -n without-api-server delete profilingtarget steady >/dev/null
stopped() { [ "$(us_of "pod='steady'" $(($(now) - 6)) "$(now)")" = 0 ]; }
wait_check 120 "a target deleted afterwards stops profiling" stopped
