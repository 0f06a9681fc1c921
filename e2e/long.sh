#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# long.sh: runs the tests that take long, one after another, prints a line for each and a sum. `make
# test-long` calls it, as root. FUZZ_S: seconds for each fuzzer (60). STEPS="tsan fuzz": runs only
# the steps whose lines begin with one of these words.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
unset LONG      # each step that needs it sets it
build=${BUILD:-build}
log=$build/long
mkdir -p "$log"
passed=0 failed=0 skipped=0 broken=()

# step NAME COMMAND...: adds up the numbers in the command's last line ("N passed, N failed, N
# skipped"). If it prints no such line, its status counts as one test.
step() {
    local name=$1 out counts p f s status=0 begin=$SECONDS
    if [ -n "${STEPS:-}" ] && [[ " $STEPS " != *" ${name%% *} "* ]]; then return; fi
    out=$log/${name//\//_}.log
    shift
    timeout "${STEP_TIMEOUT:-3600}" "$@" </dev/null >"$out" 2>&1 || status=$?
    counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$out" | tail -1)
    read -r p f s <<<"$(tr -dc '0-9 ' <<<"${counts:-$((status == 0)) $((status != 0)) 0}")"
    if [ $status != 0 ] && [ "$f" = 0 ]; then f=1; fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '%-44s %4d passed, %d failed, %d skipped, %d s\n' \
        "$name" "$p" "$f" "$s" $((SECONDS - begin))
    grep -E '^ *skip(ped)?: ' "$out" | sort -u | sed 's/^ */    /'
    if [ "$f" != 0 ]; then
        broken+=("$name")
        tail -n 40 "$out" | sed 's/^/    | /'
    fi
}

make=(make --no-print-directory BUILD="$build")
step "otel programs" bash -c \
    "e2e/collector/build.sh sender && e2e/collector/build.sh otelcol"
# containers_kinds_test lets a container crash at 1 Hz for ten minutes; on a busy machine its other
# crash loops take as long.
LONG=1 STEP_TIMEOUT=14400 SUITE_TIMEOUT=5400 step unit "${make[@]}" unit
step asan "${make[@]}" test-asan
# LeakSanitizer after 100,000 reconnects, and after an hour of windows
for t in lib/kube/reconnect_test hour_test; do
    LONG=1 step "asan $t" "$build/asan/agent/$t"
done
step tsan "${make[@]}" test-tsan
step rows-check "${make[@]}" rows-check
STEP_TIMEOUT=7200 step accuracy "${make[@]}" accuracy
step "instructions without CFI" env LONG=1 BUILD="$build" e2e/accuracy/step.py
step crash env LONG=1 BUILD="$build" e2e/crash/run.py
step clock env BUILD="$build" e2e/crash/clock.py
step crowd env BUILD="$build" e2e/crash/crowd.py
step image env BUILD="$build" e2e/crash/image.py
STEP_TIMEOUT=7200 step forks env LONG=1 BUILD="$build" e2e/crash/forks.py
step trace env BUILD="$build" e2e/trace/run.py
step formats env BUILD="$build" e2e/formats/run.py
step clusters env BUILD="$build" e2e/clusters/run.sh
STEP_TIMEOUT=14400 step clickhouse env LONG=1 BUILD="$build" e2e/clickhouse/run.sh
step "clickhouse rows" env BUILD="$build" e2e/clickhouse/bench.py
step cupti-headers cuda/headers_test.py
step openapi env BUILD="$build" e2e/openapi/run.py
step "commands of pages" env BUILD="$build" e2e/pages/run.py
LONG=1 step "oauth2-proxy, certificates, hostile neighbours, ClickHouse, push" \
    "${make[@]}" e2e T="31 32 33 34 35 36"
STEP_TIMEOUT=14400 step fresh env BUILD="$(realpath "$build")" e2e/fresh/run.py
step test-kernels "${make[@]}" test-kernels
step fuzz "${make[@]}" fuzz S="${FUZZ_S:-60}"
if [ $((passed + failed + skipped)) = 0 ]; then
    echo "long.sh: no step is named '${STEPS:-}'" >&2
    exit 2
fi
[ ${#broken[@]} = 0 ] || echo "failed: ${broken[*]} (logs in $log)"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
