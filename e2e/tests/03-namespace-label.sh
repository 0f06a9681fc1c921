#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (3) The label of a namespace starts profiling without a target, and stops it when it is removed. A
# pod or a namespace that opts out is never profiled.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace labelled refused
export CPU=200m
pod labelled plain node1 "/bin/shares plain"
pod labelled out-label node1 "/bin/shares out-label" \
    "labels: {app: x, podflame.io/profiling: disabled}"
pod labelled out-annotation node2 "/bin/shares out-note" \
    "annotations: {podflame.io/profiling: 'off'}"
pod refused tenant node2 "/bin/shares tenant"
running labelled plain out-label out-annotation
running refused tenant
witnesses
k label namespace refused podflame.io/profiling=disabled >/dev/null

began=$(now)
wait_check 120 "three seconds of both nodes are stored" witnessed $((began + 3))
check "before the label: nothing" test "$(us_of "pod_ns='labelled'" "$began" "$(now)")" = 0
k label namespace labelled podflame.io/profiling=enabled >/dev/null
wait_check 60 "the label alone starts profiling" has_samples "pod='plain'" "$began"
target labelled all '{"podSelector": {}}'
target refused all '{"podSelector": {}}'
refusal() { case $(condition refused all Ready) in False*) ;; *) return 1 ;; esac; }
wait_check 60 "a target of the namespace becomes Ready" is_ready labelled all
wait_check 60 "a target of a namespace with the label disabled says that it is refused" refusal
note "$(condition refused all Ready)"
wait_check 60 "what both nodes sampled until now is stored" witnessed "$(now)"
check "a pod with the label podflame.io/profiling: disabled gives nothing" \
    test "$(us_of "pod='out-label'" "$began" "$(now)")" = 0
check "a pod with the annotation podflame.io/profiling: off gives nothing" \
    test "$(us_of "pod='out-annotation'" "$began" "$(now)")" = 0
check "a namespace with the label disabled refuses its tenants' targets" \
    test "$(us_of "pod_ns='refused'" "$began" "$(now)")" = 0
k -n labelled delete profilingtarget all >/dev/null
k label namespace labelled podflame.io/profiling- >/dev/null
check_stops "profiling stops without the label" "pod_ns='labelled'" "$(now)"
