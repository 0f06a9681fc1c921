#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [oldest|debian13|newest|all]: boots kernels of Debian's archive in qemu and tests podflame
# in each: Debian 12's (the oldest that is supported, and the default), Debian 13's, and the newest
# in the archive. The binary, its libraries and the tests lie in an initramfs; the machine has no
# disk and no network. `make test-kernels` calls it. Prints one line for each check and "N passed, N
# failed, N skipped".
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
debian=$("$PWD/.ci/debian-uri" bookworm)
BUILD=${BUILD:-build}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/podflame/kernels
work=$BUILD/kernels
timeout_s=${KERNEL_TIMEOUT:-1400}
passed=0 failed=0 skipped=0

check() { # NAME STATUS
    if [ "$2" = 0 ]; then
        printf 'ok   %s\n' "$1"
        passed=$((passed + 1))
    else
        printf 'FAIL %s\n' "$1"
        failed=$((failed + 1))
    fi
}

# ---- a kernel: its image, out of a package that is unpacked and not installed ----
apt_of() { # SUITE COMMAND...: apt with the package lists of only that suite
    local a=$cache/apt-$1 suite=$1
    shift
    mkdir -p "$a/lists/partial" "$a/cache/archives/partial"
    printf 'deb [signed-by=%s] %s %s main\n' /usr/share/keyrings/debian-archive-keyring.gpg \
        "$debian" "$suite" >"$a/sources.list"
    "$1" -o "Dir::Etc::sourcelist=$a/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o "Dir::State::lists=$a/lists" -o "Dir::Cache=$a/cache" \
        -o APT::Sandbox::User=root -q "${@:2}"
}

version_of() { # SUITE: the name of its cloud kernel, "6.1.0-50-cloud-amd64"
    apt_of "$1" apt-get update >/dev/null 2>&1
    apt_of "$1" apt-cache depends linux-image-cloud-amd64 2>/dev/null |
        sed -nE 's/.*Depends: linux-image-([0-9].*-cloud-amd64)$/\1/p' | head -1
}

fetch() { # SUITE VERSION: prints the path of the kernel's vmlinuz
    local to=$cache/vmlinuz-$2 dir p
    if [ -s "$to" ]; then echo "$to"; return; fi
    dir=$(mktemp -d)
    # The image is in linux-image-* before 7, and in linux-binary-* since then.
    for p in linux-binary-"$2" linux-image-"$2"; do
        (cd "$dir" && apt_of "$1" apt-get download "$p" >/dev/null 2>&1) || continue
        dpkg -x "$dir/$p"_*.deb "$dir/root" &&
            find "$dir/root" -name 'vmlinuz*' -type f -exec cp {} "$to" \; -quit
        [ -s "$to" ] && break
    done
    rm -rf "$dir"
    [ -s "$to" ] && echo "$to"
}

newest() { # prints "suite version"
    local suite version
    for suite in sid trixie-backports; do
        version=$(version_of $suite)
        [ -n "$version" ] && echo "$version $suite"
    done | sort -V | tail -1 | awk '{print $2, $1}'
}

# ---- the initramfs: /init, busybox, podflame, the tests, and every library that they link ----
# What runs in the guest: a test and a pattern of its cases' names (without one: all cases). There
# are few, because each instruction is emulated.
TESTS="unwind_kernel_test
vma_test
known_test
unwind_test
unwind_code_test
offcpu_test waits_have*
offcpu_test limits_hold*
memory_test bytes_are*
memory_test it_is_one*
memory_test places_that*
gpu_memory_test bytes_are*
gpu_contexts_test memory_ends*
gpu_limits_test a_*
gpu_calls_test a_*
on_gpu_test times_are*
rdma_test bytes_of*
rdma_test extended*
rdma_latency_test *
usage_test"
PROBE=agent/node/probe
# What agent and children give up: seccomp, mounts, Landlock.
RIGHTS="confine/confine_test parse/escape_test runtime/java_attach/attach_rights_test"

add() { # FILE PATH: copies the file into the initramfs
    mkdir -p "$work/tree/$(dirname "$2")"
    cp -L "$1" "$work/tree/$2"
}

initramfs() {
    local f lib
    local flags=(-O2 -fomit-frame-pointer -fno-optimize-sibling-calls)
    rm -rf "$work/tree"
    mkdir -p "$work/tree"/{proc,sys,dev,tmp,run,bin,etc,root,usr/bin,lib64}
    add "$(command -v busybox)" bin/busybox
    add e2e/kernels/init init
    chmod 755 "$work/tree/init"
    gcc "${flags[@]}" -static -o "$work/tree/bin/answer-static" e2e/kernels/answer.c
    gcc -O2 -static -o "$work/tree/bin/held" e2e/kernels/held.c
    gcc "${flags[@]}" -o "$work/tree/bin/answer" e2e/kernels/answer.c
    add "$BUILD/podflame" bin/podflame
    add "$(command -v setpriv)" tests/setpriv
    sed -nE 's/^ *add: \["(.*)"\]$/\1/p' manifests/agent.yaml | tr A-Z a-z | sed 's/","/,+/g' \
        >"$work/tree/capabilities"
    { echo "$TESTS" && tr ' ' '\n' <<<"$RIGHTS" | sed 's,.*/,,'; } >"$work/tree/tests.list"
    echo "127.0.0.1 localhost" >"$work/tree/etc/hosts"
    echo "root:*:1::::::" >"$work/tree/etc/shadow"
    for f in $RIGHTS; do add "$BUILD/agent/node/$f" "tests/$(basename "$f")"; done
    for f in $(cut -d' ' -f1 <<<"$TESTS" | sort -u) probe_bench; do
        add "$BUILD/$PROBE/$f" "tests/$f"
    done
    for f in "$work"/tree/bin/answer "$work/tree/bin/podflame" "$work"/tree/tests/*; do
        ldd "$f" | grep -oE '/[^ ]+' | while read -r lib; do
            [ -e "$work/tree$lib" ] || add "$lib" "${lib#/}"
        done
    done
    (cd "$work/tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs.gz"
}

# ---- one kernel ----
# no_timer_check: an emulated machine on a busy host misses the ticks by which a kernel checks its
# timer; without this option the kernel panics.
# thread=single: with one thread per CPU, QEMU 7.2 continues to execute code that the other CPU has
# patched. Tracepoints that are switched on and off under load, without podflame, end 7.3 within
# 20 s (int3 in do_exit) and leave 6.1 for ever at an int3 that is no longer in memory (soft
# lockup).
# cx16=off: sometimes QEMU takes RAX for EFLAGS behind a cmpxchg16b of SLUB's in 6.12.107, and the
# guest has a double fault.
try() { # NAME VMLINUZ VERSION
    local log=$work/$1.log line cpu=max
    if [ "$1" = debian13 ]; then cpu=max,cx16=off; fi
    timeout "$timeout_s" qemu-system-x86_64 -machine q35 -accel tcg,thread=single -cpu "$cpu" \
        -smp 2 -m 3072 -nographic -no-reboot -kernel "$2" -initrd "$work/initramfs.gz" \
        -append "console=ttyS0 quiet panic=-1 loglevel=3 no_timer_check" \
        </dev/null >"$log" 2>&1
    tr -d '\r' <"$log" >"$log.txt"
    if ! grep -q '^KERNEL-DONE' "$log.txt"; then
        check "$3: the guest ran to its end (log: $log)" 1
        tail -5 "$log.txt" | sed 's/^/   | /'
    fi
    while read -r line; do
        case $line in
        "CHECK ok "*) check "$3: ${line#CHECK ok }" 0 ;;
        "CHECK FAIL "*) check "$3: ${line#CHECK FAIL }" 1 ;;
        "CHECK skip "*)
            echo "skip $3: ${line#CHECK skip }"
            skipped=$((skipped + 1))
            ;;
        "NOTE "*) echo "     $3: ${line#NOTE }" ;;
        esac
    done <"$log.txt"
}

main() {
    local which=("${1:-oldest}") name suite version image
    [ "${which[0]}" != all ] || which=(oldest debian13 newest)
    if ! command -v qemu-system-x86_64 >/dev/null; then
        echo "skip kernels: no qemu-system-x86_64 (.ci/deps installs it)"
        echo "0 passed, 0 failed, 1 skipped"
        exit 0
    fi
    mkdir -p "$work" "$cache"
    initramfs
    for name in "${which[@]}"; do
        case $name in
        oldest) suite=bookworm version=$(version_of bookworm) ;;
        debian13) suite=trixie version=$(version_of trixie) ;;
        newest) read -r suite version < <(newest) ;;
        *) echo "run.sh: $name: oldest, debian13, newest or all" >&2; exit 2 ;;
        esac
        image=$(fetch "$suite" "$version")
        if [ -z "$image" ]; then
            check "$name: a kernel from Debian's archive ($suite ${version:-unknown})" 1
            continue
        fi
        try "$name" "$image" "$version"
    done
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
}
main "$@"
