#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh OUT.tar [DIR]: compiles the programs beside it and packs them as one image, localhost/podflame-workloads:1;
# a pod names the one it wants as its command. C is dynamic PIE with frame pointers, Go is what go build makes.
set -euo pipefail
out=$(realpath -m "$1") keep=${2:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/bin"
cd "$here"
for f in *.c; do
    gcc -O1 -fno-omit-frame-pointer -fno-optimize-sibling-calls -Wall -o "$root/bin/${f%.c}" "$f"
done
gcc -O1 -fno-omit-frame-pointer -fno-optimize-sibling-calls -no-pie -Wall -o "$root/bin/shares-no-pie" shares.c
strip -o "$root/bin/shares-stripped" "$root/bin/shares"
for f in *.go; do
    CGO_ENABLED=0 go build -trimpath -o "$root/bin/${f%.go}-go" "$f"
done
ldd "$root/bin/shares" | awk '$2 == "=>" {print $3} $1 ~ /^\// {print $1}' | while read -r lib; do
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
