#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh up|down: podflame in a real Kubernetes of two nodes on this machine, with programs to
# profile. `make demo` and `make demo-down` call it, as root. Everything lies in
# /var/lib/podflame-demo and in the network namespace podflame-demo; `down` removes all of it.
export NAME=demo
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
PORT=20416

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

# Makes the page reachable on the machine's own loopback: the cluster's network has no way out.
forward() {
    local port=$PORT
    while ss -Hltn "sport = :$port" | grep -q .; do port=$((port + 1)); done
    setsid socat "TCP-LISTEN:$port,bind=127.0.0.1,reuseaddr,fork" \
        "EXEC:nsenter --net=/run/netns/$NETNS -- socat STDIO TCP\:$(hub_ip)\:20416" \
        >"$TK_DIR/log/forward.log" 2>&1 </dev/null &
    echo $! >"$TK_DIR/pid/socat"
    PORT=$port
    until_ 30 "the page's port" listens
}
listens() { ss -Hltn "sport = :$PORT" | grep -q .; }

stop_forward() {
    local p
    p=$(cat "$TK_DIR/pid/socat" 2>/dev/null) || return 0
    case $({ tr '\0' ' ' <"/proc/$p/cmdline"; } 2>/dev/null) in socat*) kill -- "-$p" ;; esac
    rm -f "$TK_DIR/pid/socat"
}

down() {
    stop_forward
    cluster_down
    rm -rf "$BUILD/demo"
}

answered() { # [FROM]: the answer has a function's name
    profile "pod_cluster='$CLUSTER' AND pod_ns='app'" "${1:-$(($(date +%s) - 300))}" \
        "$(date +%s)" >"$TK_DIR/answer.json"
    functions <"$TK_DIR/answer.json" | grep -q checkout
}

# plenty FROM: there are eight seconds of CPU, enough for shares that mean something, and a heap
plenty() {
    answered "$1" && [ "$(total_us <"$TK_DIR/answer.json")" -gt 8000000 ] &&
        [ "$(EVENT=mem-inuse profile "pod_ns='app'" "$1" "$(date +%s)" | total_us)" -gt 0 ]
}

# settled: stacks of the last seconds are whole. In the first seconds of a process the agent does
# not have the tables of all its files yet.
settled() {
    local t
    t=$(date +%s)
    profile "pod_ns='app'" $((t - 6)) "$t" >"$TK_DIR/settled.json"
    [ "$(jq '.summary.finished_percent // 0 | floor' "$TK_DIR/settled.json")" -ge 99 ]
}

query() { # EVENT FROM LINES [NAMESPACE]
    local hub=(--url "https://localhost:$PORT" --ca-file "$BUILD/demo/hub-ca.crt"
        --token-file "$BUILD/demo/token")
    local filter="pod_cluster='$CLUSTER' AND pod_ns='${4:-app}'"
    hub+=(--event "$1" --from "$2")
    say "build/podflame query ${hub[*]//"$BUILD"/build} --tag-filter \"$filter\""
    "$BUILD/podflame" query "${hub[@]}" --tag-filter "$filter" --limit "$3"
}

up() {
    local started=$SECONDS applied since event
    if [ -e "$TK_DIR/pid" ]; then
        say "A demo is running: it is removed first"
        down
    fi
    say "A Kubernetes of two nodes"
    cluster_up "$BUILD/images/podflame.tar" "$BUILD/images/workloads.tar" \
        "$BUILD/images/languages.tar"
    say "helm install podflame charts/podflame"
    install_chart
    say "kubectl apply -f e2e/demo.yaml"
    echo "(workloads in namespace app, the neighbour other, two ProfilingTargets, and ann, who sees"
    echo "the profiles of app and of podflame)"
    k apply -f "$REPO/e2e/demo.yaml"
    applied=$SECONDS
    TOKEN=$(token app ann --duration 24h)
    until_ 120 "an answer with a function's name" answered || {
        k -n app get pods,profilingtargets -o wide
        k -n podflame-system get pods -o wide
        k -n podflame-system logs daemonset/podflame-agent --tail 20
        exit 1
    }
    echo "first named flame graph $((SECONDS - applied)) s after kubectl apply"
    until_ 30 "the target to be Ready" \
        k -n app wait profilingtarget/web --for=condition=Ready --timeout=1s || true
    until_ 60 "stacks to be whole" settled || true
    since=$(date +%s)
    until_ 60 "a few more windows" plenty "$since" || true
    forward
    mkdir -p "$BUILD/demo"
    printf '#!/bin/sh\nexec nsenter --net=/run/netns/%s -- %s kubectl --kubeconfig %s "$@"\n' \
        "$NETNS" "$TK_BIN/testkube" "$TK_DIR/admin.kubeconfig" >"$BUILD/demo/kubectl"
    chmod 755 "$BUILD/demo/kubectl"
    printf '%s\n' "$TOKEN" >"$BUILD/demo/token"
    chmod 600 "$BUILD/demo/token"
    cp "$TK_DIR/hub-ca.crt" "$BUILD/demo/hub-ca.crt"

    say "kubectl get profilingtargets -A"
    k get profilingtargets -A
    query on-cpu "$since" 20
    for event in off-cpu mem-alloc mem-inuse; do query $event "$since" 8; done
    say "podflame itself, by the target podflame: both agents and the hub"
    query on-cpu "$since" 12 podflame-system
    say "The page"
    cat <<END
  https://localhost:$PORT/     (its certificate is the hub's own; CA: build/demo/hub-ca.crt)
  token:   build/demo/kubectl -n app create token ann --audience podflame-api
           $TOKEN

  kubectl of this cluster:  build/demo/kubectl
  end:                      make demo-down
  (up in $((SECONDS - started)) s)
END
}

case ${1:-} in
up) up ;;
down) down ;;
*)
    echo "usage: demo.sh up|down" >&2
    exit 2
    ;;
esac
