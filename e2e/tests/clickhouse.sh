# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# For tests of hubs over ClickHouse: its engine (e2e/clickhouse/engine.py) runs beside the cluster,
# in the cluster's network at the address of node1, with TLS and a password, which the hubs have of
# a Secret. Its tables are in $W/data, also after it was killed. Needs common.sh. The test's pods
# are c on node1 and d on node2, in the test's first namespace.
ENGINE_HOST=$(k get node node1 -o json |
    jq -r '.status.addresses[] | select(.type == "InternalIP") | .address')
ENGINE_URL=https://$ENGINE_HOST:8443
ENGINE_PYTHON=${XDG_CACHE_HOME:-$HOME/.cache}/podflame/tools/chdb/bin/python

prepare_engine() { # its certificate, which is also its CA, and the Secret
    local password
    password=$(openssl rand -hex 16)
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
        -subj /CN=clickhouse -addext "subjectAltName=IP:$ENGINE_HOST" \
        -keyout "$W/engine.key" -out "$W/engine.crt" 2>/dev/null
    printf 'X-ClickHouse-User: podflame\nX-ClickHouse-Key: %s\n' "$password" >"$W/engine.headers"
    printf %s "$password" >"$W/engine.password"
    k -n podflame-system create secret generic clickhouse --dry-run=client -o yaml \
        --from-file=password="$W/engine.password" | k apply -f - >/dev/null
}
# It ends with the test: tail then closes its standard input.
engine() {
    in_net env PASSWORD="$(cat "$W/engine.password")" TMPDIR="$W" "$ENGINE_PYTHON" \
        "$REPO/e2e/clickhouse/engine.py" "$W/engine.port" --address "$ENGINE_HOST" --port 8443 \
        --data "$W/data" --tls "$W/engine.crt" "$W/engine.key" < <(tail -f /dev/null --pid=$$)
}
start_engine() {
    beside engine 2>>"$W/engine.log"
    ENGINE_PID=${PIDS[-1]}
}
kill_engine() { end_beside "$ENGINE_PID" -KILL; }
sql() { # STATEMENT: as the hubs' user
    in_net curl -sS -f --max-time 60 --cacert "$W/engine.crt" -H "@$W/engine.headers" \
        --data-binary "$1" "$ENGINE_URL/"
}
# engine_values: the flags of helm for two hubs over this engine
engine_values() {
    printf '%s\n' --set hub.store=clickhouse --set hub.replicas=2 \
        --set hub.clickhouse.user=podflame --set "hub.clickhouse.url=$ENGINE_URL" \
        --set-file "hub.clickhouse.ca=$W/engine.crt" \
        --set hub.clickhouse.passwordSecret.name=clickhouse
}
install_two_hubs() { # FLAG...
    local flags
    mapfile -t flags < <(engine_values)
    install_for_tests "${flags[@]}" "$@"
}
one_hub_again() {
    install_for_tests
    k -n podflame-system delete secret clickhouse --ignore-not-found
}

# hubs: "POD IP NODE" of the hubs' pods that are ready
hubs() {
    k -n podflame-system get pods -l app.kubernetes.io/component=hub -o json |
        jq -r '.items[] | select(.metadata.deletionTimestamp == null)
            | select(any(.status.conditions[]?; .type == "Ready" and .status == "True"))
            | "\(.metadata.name) \(.status.podIP) \(.spec.nodeName)"'
}
two_hubs() { [ "$(hubs | wc -l)" = 2 ]; }
# holder: the identity in the Lease, POD_NUMBER
holder() { k -n podflame-system get lease podflame-hub -o 'jsonpath={.spec.holderIdentity}'; }
# kill_hub POD: with SIGKILL; another pod then replaces it
kill_hub() {
    local uid pids
    uid=$(k -n podflame-system get pod "$1" -o 'jsonpath={.metadata.uid}')
    mapfile -t pids < <(pids_in_pod "$uid")
    kill -9 "${pids[@]}" 2>/dev/null || true
    k -n podflame-system delete pod "$1" --grace-period=0 --force --wait=false >/dev/null 2>&1
}
another_leads() { # HOLDER: a hub that is not this one has the Lease
    local now
    now=$(holder)
    [ -n "$now" ] && [ "$now" != "$1" ]
}

DATABASE=profile
# windows FROM TO: "POD TIMES PROFILES IDS" of c and d; windows end at odd seconds
windows() {
    sql "SELECT pod, uniqExact(time), count(), uniqExact(profile_id) FROM $DATABASE.windows FINAL
        WHERE pod_ns = '${NAMESPACES[0]}' AND pod IN ('c', 'd')
            AND profile_event_type = 'on-cpu' AND time BETWEEN $1 AND $2
        GROUP BY pod ORDER BY pod FORMAT TSV"
}
# once FROM TO: no profile counts twice
once() { windows "$@" | awk '$3 == $4 { good = good $1 } END { exit good != "cd" }'; }
# whole FROM TO: and there is one for each two seconds, because a program that uses half a CPU has
# samples in each. (Samples that come late are a profile of their own.) FROM is even, TO odd. This
# is exact.
whole() {
    once "$@" && windows "$@" | awk -v want=$((($2 - $1 + 1) / 2)) '
        $2 == want { good = good $1 } END { exit good != "cd" }'
}
# answered FROM TO: the hubs' answer is the sum of all profiles, each of them once, however often it
# was written; also exact
answered() {
    local pod
    for pod in c d; do
        [ "$(us_of "pod='$pod'" "$1" "$2")" = "$(sql "SELECT sum(v) FROM (
            SELECT any(value) AS v FROM $DATABASE.windows
            WHERE pod_ns = '${NAMESPACES[0]}' AND pod = '$pod' AND profile_event_type = 'on-cpu'
                AND time BETWEEN $1 AND $2 GROUP BY profile_id) FORMAT TSV")" ] || return 1
    done
}
# repeated: how many windows came once more than once; they count once all the same
repeated() {
    sql "SELECT count() - uniqExact(profile_id) FROM $DATABASE.windows
        WHERE pod_ns = '${NAMESPACES[0]}' FORMAT TSV"
}
even() { echo $(($1 / 2 * 2)); }
# check_whole WHAT FROM: until now, which it waits for; then that the time adds up
check_whole() {
    local pod to ns=${NAMESPACES[0]}
    to=$(($(even "$(now)") + 1))
    wait_check 180 "$1: the windows until now are stored" stored "$to"
    wait_check 60 "... each of them is there, and counts once" whole "$2" "$to"
    wait_check 60 "... and the answer is their sum" answered "$2" "$to"
    note "windows: $(windows "$2" "$to" | tr '\t\n' ' ,')"
    for pod in c d; do
        wait_check 60 "... $pod: all of its time is there" all_there "$ns" $pod "$2" "$to"
        note "$(all_there "$ns" $pod "$2" "$to" || true)"
    done
}
