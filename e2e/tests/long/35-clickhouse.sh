#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (35) Two hubs over ClickHouse, while the API server is away, while the engine is away, while
# engine and hubs are killed in turns, during a rolling upgrade, and during an upgrade from an older
# version and back: nothing is lost, nothing is counted twice, and no query has a wrong answer.
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
. "$(dirname "${BASH_SOURCE[0]}")/../clickhouse.sh"
TURNS_S=${TURNS_S:-120}                             # how long engine and hubs are killed in turns
namespace over-clickhouse
pod over-clickhouse c node1 "/bin/shares c"
pod over-clickhouse d node2 "/bin/shares d"
CPU=300m pod over-clickhouse many node1 /bin/names
prepare_engine
start_engine
target over-clickhouse all '{"podSelector": {}}'
AT_END+=(one_hub_again)
check "helm makes two hubs over ClickHouse" install_two_hubs
wait_check 60 "both are ready" two_hubs
from=$(($(even "$(now)") + 2))
wait_check 90 "samples of both nodes" stored $((from + 13))

# asks FILE: asks for the same ten seconds without end, by the Service. FILE gets a line for each
# answer: "right", "wrong ..." or "failed ..."
answer_of() { profile "pod_ns='over-clickhouse'" "$from" $((from + 9)); }
asks() {
    local answer
    while true; do
        if ! answer=$(answer_of 2>&1) || ! total_us <<<"$answer" >/dev/null 2>&1; then
            echo "failed ${answer::300}"
        elif [ "$(jq -Sc .result <<<"$answer")" = "$right" ]; then
            echo right
        else
            echo "wrong ${answer::300}"
        fi
    done >"$1"
}
begin_asking() { # FILE
    asks "$1" &
    ASKING=$!
    PIDS+=("$ASKING")
}
end_asking() { # FILE
    end_beside "$ASKING"
    note "$(grep -c ^right "$1") answers, $(grep -c ^failed "$1") errors"
    check "... some queries have an answer" grep -q ^right "$1"
    check "... and none a wrong one" test "$(grep -c ^wrong "$1")" = 0
    grep -m 3 ^wrong "$1" || true
}
right=$(answer_of | jq -Sc .result)
check "there is an answer" grep -q share_50 <<<"$right"
restarts() {
    k -n podflame-system get pods -l app.kubernetes.io/component=hub -o json |
        jq '[.items[].status.containerStatuses[].restartCount] | add'
}

# ---- the API server is away ----

kill_api_server
sleep 10                                 # five windows
start_api_server
led() { [ -n "$(holder)" ]; }
wait_check 90 "a hub leads" led
target over-clickhouse later '{"podSelector": {"matchLabels": {"app": "c"}}}'
wait_check 120 "... and writes the status of a target that was made since" \
    is_ready over-clickhouse later
check_whole "the API server was away" "$from"

# ---- the engine is away ----

kill_engine
# A hub that gets no profiles now does not know of it yet, so one that does must say it.
a_hub_says() { # LINE: of its metrics
    local ip
    while read -r _ ip _; do
        if HUB_IP=$ip hub /metrics | grep -x "$1" >/dev/null; then return; fi
    done < <(hubs)
    return 1
}
works() { ! a_hub_says 'podflame_store_healthy 0'; }
wait_check 60 "a hub says that its store does not work" a_hub_says 'podflame_store_healthy 0'
check "... both are ready all the same, to tell why" two_hubs
check "... a query has an error" test -z "$(answer_of | total_us 2>/dev/null)"
note "$(answer_of | jq -c '[.OPT_STATUS, .DESCRIPTION]')"
start_engine
same_answer() { [ "$(answer_of | jq -Sc .result)" = "$right" ]; }
wait_check 120 "the engine comes back: the same answer as before" same_answer
wait_check 60 "... each hub says that its store works" works
check_whole "the engine was away" "$from"
check "no hub has ended" test "$(restarts)" = 0

# ---- killed in turns ----

begin_asking "$W/in-turns"
ends=$((SECONDS + TURNS_S)) engines=0 killed=0
while [ $SECONDS -lt $ends ]; do
    sleep "$((RANDOM % 4)).$((RANDOM % 10))"      # any moment
    if [ $((RANDOM % 2)) = 0 ]; then
        kill_engine
        start_engine
        engines=$((engines + 1))
    else
        hub=$(hubs | shuf -n 1 | cut -d' ' -f1)
        if [ -n "$hub" ]; then
            kill_hub "$hub"
            killed=$((killed + 1))
        fi
    fi
done
note "killed: $engines engines, $killed hubs"
wait_check 180 "two hubs are ready again" two_hubs
end_asking "$W/in-turns"
check_whole "engine and hubs were killed in turns" "$from"
note "$(repeated) windows were written twice"

# ---- a rolling upgrade ----

begin_asking "$W/rolling"
check "helm upgrade with other pods" install_two_hubs --set hub.audit=true
end_asking "$W/rolling"
check "... no query had an error" test "$(grep -c ^failed "$W/rolling")" = 0
grep -m 3 ^failed "$W/rolling" || true
check_whole "hubs were replaced one by one" "$from"

# ---- the version before ----

older=$("$REPO/e2e/older/build.sh" 2>"$W/older.log") || older=
if grep -q "^build.sh: this clone lacks" "$W/older.log"; then
    echo "skip: no version before: $(tail -1 "$W/older.log")"
    exit
fi
check "the version before is built" test -n "$older"
if [ -z "$older" ]; then
    tail -20 "$W/older.log"
    exit
fi
for n in 1 2; do
    ctr --address "$TK_DIR/node$n/containerd.sock" -n k8s.io images import "$older/podflame.tar" \
        >/dev/null
done
DATABASE=older
install_older() {
    REPO=$older install_two_hubs --set image.tag=older --set hub.clickhouse.database=$DATABASE
}
check "helm installs the version before" install_older
from=$(($(even "$(now)") + 2))
wait_check 90 "... with samples of both nodes" stored $((from + 13))
right=$(answer_of | jq -Sc .result)
versions() { sql "SELECT max(version) FROM $DATABASE.podflame FORMAT TSV"; }
note "tables of version $(versions)"
# hubs_of_image TAG: agents and the configuration stay
hubs_of_image() {
    k -n podflame-system set image deployment/podflame-hub "hub=localhost/podflame:$1"
    k -n podflame-system rollout status deployment/podflame-hub --timeout=300s
}
this=$(awk '$1 == "appVersion:" { gsub("\"", ""); print $2 }' "$REPO/charts/podflame/Chart.yaml")
begin_asking "$W/newer"
check "hubs are replaced by those of this version" hubs_of_image "$this"
end_asking "$W/newer"
note "tables of version $(versions)"
check_whole "hubs were upgraded" "$from"
check "hubs are replaced by older ones, which know less of the tables" hubs_of_image older
check_whole "hubs were rolled back" "$from"
# Agents are replaced, too, and a node without an agent is not profiled for some seconds. helm
# refuses to change what kubectl has set, but takes it over if it is the same.
upgrade() {
    hubs_of_image "$this" && install_two_hubs --set hub.clickhouse.database=$DATABASE
}
begin_asking "$W/upgrade"
check "helm upgrade to this version" upgrade
end_asking "$W/upgrade"
to=$(($(even "$(now)") + 1))
wait_check 180 "... windows of both nodes" stored "$to"
check "... each counts once" once "$from" "$to"
