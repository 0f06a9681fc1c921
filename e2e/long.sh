#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# long.sh: what takes long, one after another, each with a line; then all of it added up. Run by
# `make test-long`, as root. FUZZ_S: seconds a fuzzer (60). STEPS="tsan fuzz": these steps alone, of
# which the first word of each line names one.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
unset LONG      # said of each step that it is for
build=${BUILD:-build}
log=$build/long
mkdir -p "$log"
passed=0 failed=0 skipped=0 broken=()

# step NAME COMMAND...: what it says at its end counts ("N passed, N failed, N skipped"); where it
# says nothing, its status.
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
    printf '%-44s %4d passed, %d failed, %d skipped, %d s\n' "$name" "$p" "$f" "$s" $((SECONDS - begin))
    grep -E '^ *skip(ped)?: ' "$out" | sort -u | sed 's/^ */    /'
    if [ "$f" != 0 ]; then
        broken+=("$name")
        tail -n 40 "$out" | sed 's/^/    | /'
    fi
}

make=(make --no-print-directory BUILD="$build")
# containers_kinds_test lets a container crash at 1 Hz for ten minutes; on a busy machine the storms
# take as long
LONG=1 STEP_TIMEOUT=14400 SUITE_TIMEOUT=5400 step unit "${make[@]}" unit
step asan "${make[@]}" test-asan
# LeakSanitizer after 100,000 reconnects, and after an hour of windows
for t in lib/kube/reconnect_test hour_test; do
    LONG=1 step "asan $t" "$build/asan/agent/$t"
done
step tsan "${make[@]}" test-tsan
step rows-check "${make[@]}" rows-check
step accuracy "${make[@]}" accuracy
step crash env LONG=1 BUILD="$build" e2e/crash/run.py
step clock env BUILD="$build" e2e/crash/clock.py
step crowd env BUILD="$build" e2e/crash/crowd.py
step trace env BUILD="$build" e2e/trace/run.py
STEP_TIMEOUT=14400 step fresh env BUILD="$(realpath "$build")" e2e/fresh/run.py
step test-kernels "${make[@]}" test-kernels
step fuzz "${make[@]}" fuzz S="${FUZZ_S:-60}"
[ $((passed + failed + skipped)) != 0 ] || { echo "long.sh: no step is named '${STEPS:-}'" >&2; exit 2; }
[ ${#broken[@]} = 0 ] || echo "failed: ${broken[*]} (logs in $log)"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
