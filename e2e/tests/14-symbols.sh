#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A stripped program has no names. After `podflame symbols upload` of the program that was not
# stripped, the same window has them: in one namespace if the user may upload only there, else in
# all.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace stripped stripped-b
unbind() { k delete clusterrolebinding e2e-symbols --ignore-not-found; }
AT_END+=(unbind)
for ns in stripped stripped-b; do
    pod $ns s node1 "/bin/shares-stripped s"
    target $ns all '{"podSelector": {}, "events": {"onCpu": {"sampleHz": 199}}}'
done
for ns in stripped stripped-b; do running $ns s; done
began=$(now)
window() { profile "pod_ns='$1'" "$began" "${ended:-$(now)}" >"$W/s.json"; } # NAMESPACE
has() { window "${2:-stripped}" && has_functions "$W/s.json" "$1"; } # FUNCTION [NAMESPACE]
plenty() { has '[/bin/shares-stripped]' "$1" && [ "$(total_us <"$W/s.json")" -gt 3000000 ]; }
for ns in stripped stripped-b; do
    wait_check 90 "$ns: 3 s of a stripped program, under the name of its file" plenty $ns
done
ended=$(now)
lacks() { # FUNCTION [NAMESPACE]: there are samples, but no such function
    window "${2:-stripped}" && [ "$(total_us <"$W/s.json")" -gt 0 ] &&
        ! has_functions "$W/s.json" "$1"
}
for ns in stripped stripped-b; do check "$ns has no names" lacks share_50 $ns; done

# The program that was not stripped comes out of the same image. The hub is reached as localhost,
# which its certificate names.
uid=$(k -n stripped get pod s -o 'jsonpath={.metadata.uid}')
for p in /proc/[0-9]*; do
    if grep -q "pod$uid/" "$p/cgroup" && cp "$p/root/bin/shares" "$W/shares"; then break; fi
done 2>/dev/null
[ -s "$TK_DIR/hub-ca.crt" ] || hub_ca
port=30416
beside in_net socat "TCP-LISTEN:$port,bind=127.0.0.1,reuseaddr,fork" "TCP:$(hub_ip):20416"
symbols() { # TOKEN VERB...
    printf '%s' "$1" >"$W/token"
    in_net "$BUILD/podflame" symbols --url "https://localhost:$port" \
        --ca-file "$TK_DIR/hub-ca.crt" --token-file "$W/token" "${@:2}" >"$W/said" 2>&1
}
listening() { symbols "$TOKEN" list; }
wait_check 20 "a viewer may list" listening
forbidden() { ! symbols "$@" && grep -q 'HTTP 403' "$W/said"; } # TOKEN VERB...
refused() { # TOKEN TEXT [OPTION...]
    forbidden "$1" upload "$W/shares" "${@:3}" && grep -q "$2.*HTTP 403" "$W/said"
}
check "a viewer may not upload: 403" refused "$TOKEN" 'podflame-symbols-uploader'
for user in builder everywhere; do k -n stripped create serviceaccount $user >/dev/null; done
k -n stripped create rolebinding builder --clusterrole podflame-symbols-uploader \
    --serviceaccount stripped:builder >/dev/null
k create clusterrolebinding e2e-symbols --clusterrole podflame-symbols-uploader \
    --serviceaccount stripped:everywhere >/dev/null
BUILDER=$(token stripped builder) EVERYWHERE=$(token stripped everywhere)
upload() { # TOKEN [OPTION...]
    symbols "$1" upload "$W/shares" "${@:2}" || { cat "$W/said"; false; }
}
listed() { symbols "$1" list && [ "$(grep -c '^[0-9a-f]\{8\}' "$W/said")" = "$2" ]; } # TOKEN N
check "a builder with a RoleBinding in stripped uploads for it" \
    upload "$BUILDER" --namespace stripped
check "... the same window has names" has share_50
check "... and no frame without a name any more" lacks '[/bin/shares-stripped]'
share=$(share_of share_50 <"$W/s.json")
check "... share_50 has $share %" near "$share" 50 12
check "... the other namespace has none" lacks share_50 stripped-b
check "it may not upload for the other: 403" \
    refused "$BUILDER" 'in the namespace stripped-b' --namespace stripped-b
check "... nor for all, and is told of the parameter" refused "$BUILDER" 'parameter namespace'
check "a user with the right in all namespaces uploads for all" upload "$EVERYWHERE"
check "... the other namespace has names, too" has share_50 stripped-b
check "the builder's list has its own" listed "$BUILDER" 1
id=$(awk '/ stripped /{print $1}' "$W/said")
check "... a viewer's of all has both" listed "$TOKEN" 2
check "it cannot delete that of all: 403" forbidden "$BUILDER" delete "$id"
check "... but its own" symbols "$BUILDER" delete --namespace stripped "$id"
check "... and the user may that of all" symbols "$EVERYWHERE" delete "$id"
for ns in stripped stripped-b; do check "the names of $ns are gone" lacks share_50 $ns; done
