#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A stripped program has no names. After `podflame symbols upload` of the program that was not
# stripped, the same window has them.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
namespace stripped
SOCAT=
end() {
    [ -z "$SOCAT" ] || kill "$SOCAT" 2>/dev/null || true
    k delete clusterrolebinding e2e-symbols --ignore-not-found >/dev/null || true
    cleanup
}
trap end EXIT
pod stripped s node1 "/bin/shares-stripped s"
running stripped s
target stripped all '{"podSelector": {}, "events": {"onCpu": {"sampleHz": 199}}}'
began=$(now)
window() { profile "pod_ns='stripped'" "$began" "${ended:-$(now)}" >"$W/s.json"; }
has() { window && has_functions "$W/s.json" "$1"; }
plenty() { has '[/bin/shares-stripped]' && [ "$(total_us <"$W/s.json")" -gt 3000000 ]; }
wait_check 90 "3 s of a stripped program, under the name of its file" plenty
ended=$(now)
lacks() { ! has "$1"; }
check "it has no names" lacks share_50

# The program that was not stripped comes out of the same image. The hub is reached as localhost,
# which its certificate names.
uid=$(k -n stripped get pod s -o 'jsonpath={.metadata.uid}')
for p in /proc/[0-9]*; do
    if grep -q "pod$uid/" "$p/cgroup" && cp "$p/root/bin/shares" "$W/shares"; then break; fi
done 2>/dev/null
[ -s "$TK_DIR/hub-ca.crt" ] || hub_ca
port=30416
nsenter --net="/run/netns/$NETNS" -- \
    socat "TCP-LISTEN:$port,bind=127.0.0.1,reuseaddr,fork" "TCP:$(hub_ip):20416" &
SOCAT=$!
symbols() { # TOKEN VERB...
    printf '%s' "$1" >"$W/token"
    in_net "$BUILD/podflame" symbols --url "https://localhost:$port" \
        --ca-file "$TK_DIR/hub-ca.crt" --token-file "$W/token" "${@:2}" >"$W/said" 2>&1
}
listening() { symbols "$TOKEN" list; }
wait_check 20 "a viewer may list" listening
refused() { ! symbols "$TOKEN" upload "$W/shares" && grep -q 'HTTP 403' "$W/said"; }
check "a viewer may not upload: 403" refused
k -n stripped create serviceaccount builder >/dev/null
k create clusterrolebinding e2e-symbols --clusterrole podflame-symbols-uploader \
    --serviceaccount stripped:builder >/dev/null
BUILDER=$(k -n stripped create token builder)
upload() { symbols "$BUILDER" upload "$W/shares" || { cat "$W/said"; false; }; }
wait_check 30 "a builder uploads" upload           # the hub remembers a refusal for 10 s
check "the same window has names" has share_50
check "... and no frame without a name any more" lacks '[/bin/shares-stripped]'
share=$(share_of share_50 <"$W/s.json")
check "share_50 has $share %" near "$share" 50 12
delete() { symbols "$BUILDER" delete "$(awk '$1 != "BUILD" {print $1; exit}' "$W/list")"; }
symbols "$BUILDER" list
cp "$W/said" "$W/list"
check "it can be deleted" delete
check "... and the names are gone" lacks share_50
