# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the demo and the tests share: a cluster of cluster/up.sh with the chart in it, and questions
# to its hub. Set before: NAME (demo, e2e). All that is made lies in $TK_DIR and the network
# namespace podflame-$NAME. shellcheck disable=SC2119     # functions with optional arguments
set -euo pipefail
REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PATH=${XDG_CACHE_HOME:-$HOME/.cache}/podflame/tools/bin:$PATH
export NETNS=podflame-$NAME TK_DIR=/var/lib/podflame-$NAME
BUILD=${BUILD:-$REPO/build}
CLUSTER=prod-cluster                     # clusterName of the install
HUB=podflame-hub.podflame-system.svc

in_net() { nsenter --net="/run/netns/$NETNS" -- "$@"; }
k() { in_net "$TK_BIN/testkube" kubectl --kubeconfig "$TK_DIR/admin.kubeconfig" "$@"; }
helm_() { in_net env KUBECONFIG="$TK_DIR/admin.kubeconfig" helm "$@"; }

# until_ SECONDS WHAT CMD...: tries CMD every half second
until_() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    while ! "$@" >/dev/null 2>&1; do
        if [ $SECONDS -ge $end ]; then
            echo "timed out waiting for: $what" >&2
            return 1
        fi
        sleep .5
    done
}

cluster_up() { # IMAGE.tar...
    TK_BIN=$("$REPO/e2e/cluster/build.sh")
    export TK_BIN
    IMAGES="$*" "$REPO/e2e/cluster/up.sh"
}
cluster_down() { "$REPO/e2e/cluster/down.sh" "$@"; }

# The chart, as a user installs it; more flags of helm as arguments.
install_chart() {
    k create namespace podflame-system --dry-run=client -o yaml | k apply -f - >/dev/null
    k label namespace podflame-system --overwrite pod-security.kubernetes.io/enforce=privileged >/dev/null
    helm_ upgrade --install podflame "$REPO/charts/podflame" -n podflame-system --wait --timeout 300s \
        --set clusterName=$CLUSTER "$@" >"$TK_DIR/helm.log" 2>&1 || { cat "$TK_DIR/helm.log" >&2; return 1; }
}

# ... as the tests install it: windows of two seconds, and agents on nodes with the label agents=yes
# alone.
install_for_tests() {
    k label nodes --all --overwrite agents=yes >/dev/null
    install_chart --set agent.window=2s --set agent.nodeSelector.agents=yes "$@"
}

hub_ip() { k -n podflame-system get service podflame-hub -o 'jsonpath={.spec.clusterIP}'; }
hub_ca() { k -n podflame-system get configmap podflame-hub-ca -o 'jsonpath={.data.ca\.crt}' >"$TK_DIR/hub-ca.crt"; }
token() { k -n podflame-system create token podflame-viewer --duration "${1:-1h}"; }

# hub PATH [CURL_FLAG...]: an HTTP request to the hub's API with $TOKEN
hub() {
    local path=$1
    shift
    [ -s "$TK_DIR/hub-ca.crt" ] || hub_ca
    [ -n "${HUB_IP:-}" ] || HUB_IP=$(hub_ip)
    in_net curl -sS --max-time 20 --cacert "$TK_DIR/hub-ca.crt" --resolve "$HUB:20416:$HUB_IP" \
        ${TOKEN:+-H "Authorization: Bearer $TOKEN"} "$@" "https://$HUB:20416$path"
}

# profile FILTER FROM TO [APP]: the answer in list form, as JSON on stdout; of $EVENT, on-cpu if not
# set
profile() {
    local body
    body=$(jq -nc --arg f "$1" --argjson s "$2" --argjson e "$3" --arg a "${4:-}" --arg v "${EVENT:-on-cpu}" \
        '{profile_event_type: $v, profile_language_type: "eBPF", tag_filter: $f, time_start: $s, time_end: $e}
         + (if $a == "" then {} else {app_service: $a} end)')
    hub /v1/profile/ProfileTracing -H 'Content-Type: application/json' -d "$body"
}

# save_state PREFIX [NAMESPACE...]: what one asks for first after a failure, into PREFIX.*: what
# agents and hub logged (from the kubelets' own files: also without an API server, and of containers
# that have ended), what pods of these namespaces printed last, what users see of targets, and
# events.
save_state() {
    local prefix=$1 what n
    shift
    for what in agent hub; do
        tail -v -n +1 -- "$TK_DIR"/log/node*/podflame-system_podflame-$what-*/*/*.log >"$prefix.$what.log" 2>&1 || true
    done
    for n; do tail -v -n 200 -- "$TK_DIR"/log/node*/"$n"_*/*/*.log; done >"$prefix.pods.log" 2>&1 || true
    for what in "describe profilingtargets,clusterprofilingtargets -A" "get profilingnodereports -A -o yaml" \
        "get pods,jobs -A -o wide" "describe pods -n podflame-system" "get events -A --sort-by=.lastTimestamp"; do
        printf '==> kubectl %s\n' "$what"
        # shellcheck disable=SC2086     # words
        k --request-timeout=10s $what || true
    done >"$prefix.objects.txt" 2>&1
}

# Of an answer on stdin: microseconds (bytes) in all; its functions; what one function has with all
# it calls, and in percent.
total_us() { jq '[.result[]? | select(.parent_node_id == "-1") | .total_value] | add // 0'; }
functions() { jq -r '.result[]?.profile_location_str'; }
value_of() { # NAME: of all nodes of that name below no other of that name
    jq --arg n "$1" '(.result // []) as $all
        | ($all | map({key: .node_id, value: .}) | from_entries) as $by
        | def below($id): if $id == "-1" or $by[$id] == null then false
                          elif $by[$id].profile_location_str == $n then true else below($by[$id].parent_node_id) end;
        [$all[] | select(.profile_location_str == $n and (below(.parent_node_id) | not)) | .total_value] | add // 0'
}
share_of() { # NAME
    local answer
    answer=$(cat)
    awk -v v="$(value_of "$1" <<<"$answer")" -v sum="$(total_us <<<"$answer")" 'BEGIN {print sum ? v * 100 / sum : 0}'
}
