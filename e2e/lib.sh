# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the demo and the tests share: a cluster of cluster/up.sh with the chart installed in it, and
# queries to its hub. The caller sets NAME (demo, e2e) and needs root. Everything that is made lies
# in $TK_DIR and in the network namespace podflame-$NAME.
# shellcheck disable=SC2119     # functions with optional arguments
set -euo pipefail
REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PATH=${XDG_CACHE_HOME:-$HOME/.cache}/podflame/tools/bin:$PATH
export NETNS=podflame-$NAME TK_DIR=/var/lib/podflame-$NAME
BUILD=${BUILD:-$REPO/build}
CLUSTER=prod-cluster                     # clusterName of the install
HUB=podflame-hub.podflame-system.svc

in_net() { nsenter --net="/run/netns/$NETNS" -- "$@"; }
# kubectl as the cluster's administrator
k() { in_net "$TK_BIN/testkube" kubectl --kubeconfig "$TK_DIR/admin.kubeconfig" "$@"; }
helm_() { in_net env KUBECONFIG="$TK_DIR/admin.kubeconfig" helm "$@"; }

# until_ SECONDS WHAT COMMAND...: tries the command every half second until it succeeds
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

# Installs the chart as a user does; the arguments are more flags of helm.
install_chart() {
    k create namespace podflame-system --dry-run=client -o yaml | k apply -f - >/dev/null
    k label namespace podflame-system --overwrite \
        pod-security.kubernetes.io/enforce=privileged >/dev/null
    # what nodes keep ends with the cluster, which is not alone on the machine
    if ! helm_ upgrade --install podflame "$REPO/charts/podflame" -n podflame-system --wait \
        --timeout 300s --set clusterName=$CLUSTER --set agent.stateDir="$TK_DIR/agents" "$@" \
        >"$TK_DIR/helm.log" 2>&1; then
        cat "$TK_DIR/helm.log" >&2
        return 1
    fi
}

# The same for the tests: windows of two seconds, a high limit of the sampling rate, agents only on
# nodes with the label agents=yes, the policy that gives pods the library for GPUs, and
# podflame-viewer sees all namespaces.
install_for_tests() {
    k label nodes --all --overwrite agents=yes >/dev/null
    install_chart --set agent.window=2s --set maxSampleHz=997 \
        --set agent.nodeSelector.agents=yes --set cuda.inject=true --set viewer.bind=cluster "$@"
}

hub_ip() { k -n podflame-system get service podflame-hub -o 'jsonpath={.spec.clusterIP}'; }
hub_ca() {
    k -n podflame-system get configmap podflame-hub-ca -o 'jsonpath={.data.ca\.crt}' \
        >"$TK_DIR/hub-ca.crt"
}
# token NAMESPACE NAME [FLAG...]: a service account's token for the hub's API
token() { k -n "$1" create token "$2" --audience podflame-api "${@:3}"; }

# hub PATH [CURL_FLAG...]: an HTTP request to the hub's API with $TOKEN
hub() {
    local path=$1
    shift
    [ -s "$TK_DIR/hub-ca.crt" ] || hub_ca
    [ -n "${HUB_IP:-}" ] || HUB_IP=$(hub_ip)
    in_net curl -sS --max-time 20 --cacert "$TK_DIR/hub-ca.crt" --resolve "$HUB:20416:$HUB_IP" \
        ${TOKEN:+-H "Authorization: Bearer $TOKEN"} "$@" "https://$HUB:20416$path"
}

# profile FILTER FROM TO [APP [CURL_FLAG...]]: prints the answer to a query of $EVENT (on-cpu if it
# is not set), as JSON in list form
profile() {
    local body
    body=$(jq -nc --arg filter "$1" --argjson from "$2" --argjson to "$3" --arg app "${4:-}" \
        --arg event "${EVENT:-on-cpu}" '
        {profile_event_type: $event, profile_language_type: "eBPF", tag_filter: $filter,
         time_start: $from, time_end: $to}
        + (if $app == "" then {} else {app_service: $app} end)')
    hub /v1/profile/ProfileTracing -H 'Content-Type: application/json' -d "$body" "${@:5}"
}

# save_state PREFIX [NAMESPACE...]: writes to PREFIX.* what one looks at first after a failure. That
# is what agents and hub logged, what pods of these namespaces printed last, what users see of
# targets, and events. The logs come from the kubelets' own files, so they are there also without an
# API server and for containers that have ended.
save_state() {
    local prefix=$1 what n
    shift
    for what in agent hub; do
        tail -v -n +1 -- "$TK_DIR"/log/node*/podflame-system_podflame-$what-*/*/*.log \
            >"$prefix.$what.log" 2>&1 || true
    done
    for n; do
        tail -v -n 200 -- "$TK_DIR"/log/node*/"$n"_*/*/*.log
    done >"$prefix.pods.log" 2>&1 || true
    for what in "describe profilingtargets,clusterprofilingtargets -A" \
        "get profilingnodereports -A -o yaml" "get pods,jobs -A -o wide" \
        "describe pods -n podflame-system" "get events -A --sort-by=.lastTimestamp"; do
        printf '==> kubectl %s\n' "$what"
        # shellcheck disable=SC2086     # words
        k --request-timeout=10s $what || true
    done >"$prefix.objects.txt" 2>&1
}

# The functions below read an answer on stdin. total_us: its microseconds (bytes) in all; nothing if
# it is an error. functions: the names in it, one a line. value_of: what one function and all that
# it calls have. share_of: the same in percent.
total_us() {
    jq 'if .OPT_STATUS != "SUCCESS" then error("no profile: \(.DESCRIPTION)")
        else [.result[]? | select(.parent_node_id == "-1") | .total_value] | add // 0 end'
}
functions() { jq -r '.result[]?.profile_location_str'; }
value_of() { # NAME: adds up all nodes of that name, but those below another one of that name
    jq --arg n "$1" '(.result // []) as $all
        | ($all | map({key: .node_id, value: .}) | from_entries) as $by
        | def below($id): if $id == "-1" or $by[$id] == null then false
                          elif $by[$id].profile_location_str == $n then true
                          else below($by[$id].parent_node_id) end;
        [$all[] | select(.profile_location_str == $n and (below(.parent_node_id) | not))
            | .total_value] | add // 0'
}
share_of() { # NAME
    local answer
    answer=$(cat)
    awk -v v="$(value_of "$1" <<<"$answer")" -v sum="$(total_us <<<"$answer")" \
        'BEGIN {print sum ? v * 100 / sum : 0}'
}
