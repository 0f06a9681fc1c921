#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh OUT.tar [DIR]: compiles the programs beside it and packs them as one image,
# localhost/podflame-workloads:1; a pod names the program that it runs as its command. With DIR the
# programs are copied there, too. C is dynamic PIE with frame pointers; C++, Rust and Go are what
# g++ -O2, rustc -O (with names without a hash) and go build make.
set -euo pipefail
out=$(realpath -m "$1") keep=${2:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/bin"
cd "$here"
for f in *.c incidents/*.c hostile/*.c; do
    program=${f##*/}
    gcc -O1 -fno-omit-frame-pointer -fno-optimize-sibling-calls -Wall \
        -o "$root/bin/${program%.c}" "$f"
done
gcc -O1 -fno-omit-frame-pointer -fno-optimize-sibling-calls -no-pie -Wall \
    -o "$root/bin/shares-no-pie" shares.c
strip -o "$root/bin/shares-stripped" "$root/bin/shares"
for f in *.cc; do g++ -O2 -Wall -o "$root/bin/${f%.cc}-cpp" "$f"; done
for f in *.rs; do
    rustc -O -C symbol-mangling-version=v0 -o "$root/bin/${f%.rs}-rust" --crate-name "${f%.rs}" "$f"
done
for f in *.go; do
    CGO_ENABLED=0 go build -trimpath -o "$root/bin/${f%.go}-go" "$f"
done
for f in "$root"/bin/*; do ldd "$f" 2>/dev/null || true; done |
    awk '$2 == "=>" {print $3} $1 ~ /^\// {print $1}' | sort -u | while read -r lib; do
        case $lib in
        */ld-linux-x86-64.so.2) install -D -m 755 "$lib" "$root/lib64/ld-linux-x86-64.so.2" ;;
        *) install -D -m 755 "$lib" "$root/lib/x86_64-linux-gnu/${lib##*/}" ;;
        esac
    done
mkdir -p "$root"/{proc,sys,dev,etc,tmp}
"$here/../cluster/mkimage.sh" localhost/podflame-workloads:1 "$root" "$out" /bin/idle
if [ -n "$keep" ]; then
    mkdir -p "$keep"
    cp "$root"/bin/* "$keep/"
fi
