#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `helm uninstall` leaves the definitions and the users' targets and nothing else. `kubectl apply -k
# manifests` installs podflame as well.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace uninstalled
target uninstalled mine '{"podSelector": {}}'
helm_ uninstall podflame -n podflame-system --wait >/dev/null 2>&1
left() {
    local kind
    k api-resources --verbs=list -o name |
        grep -v -e '^events' -e '^componentstatuses' -e metrics |
        while read -r kind; do
            k get "$kind" -A -o name --ignore-not-found 2>/dev/null
        done | grep -i -e podflame -e 'profilingnodereport' |
        grep -v -e '^namespace/' -e '^customresourcedefinition' -e '^apiservice' \
            -e '^profilingtarget'
}
gone() { ! left | grep .; }
wait_check 120 "nothing is left but definitions and targets" gone
left | sed 's/^/     /' || true
check "the user's target is still there" k -n uninstalled get profilingtarget mine
k -n uninstalled delete profilingtarget mine >/dev/null
if k apply -k "$REPO/manifests" >/dev/null 2>"$W/err"; then
    ok "kubectl apply -k manifests"
else
    fail "kubectl apply -k manifests"
    tail -5 "$W/err"
fi
check "... and the agents start" \
    k -n podflame-system rollout status daemonset/podflame-agent --timeout=180s
k delete -k "$REPO/manifests" --ignore-not-found >/dev/null 2>&1 || true
