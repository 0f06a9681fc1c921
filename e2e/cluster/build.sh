#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh [key]: builds `testkube` (main.go: the real Kubernetes components in one binary) and
# `pause.tar`, once for these sources and this version of Go, and prints the path of their folder.
# The first build takes 5 to 12 minutes; two callers share one build. With the argument `key` it
# builds nothing and only prints the path.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/podflame
cd "$here"
key=$({ cat go.mod go.sum main.go pause.c && go version; } | sha256sum | cut -c1-16)
dir=$cache/testkube-$key
if [ "${1:-}" = key ] || [ -e "$dir/complete" ]; then
    echo "$dir"
    exit 0
fi
mkdir -p "$dir"
exec 9>"$dir/lock"
flock 9
if [ ! -e "$dir/complete" ]; then
    echo "building the test cluster's binary (once, 5 to 12 minutes) in $dir" >&2
    k8s=$(awk '$1 == "k8s.io/kubernetes" && $2 ~ /^v/ {print $2; exit}' go.mod)
    minor=${k8s#v1.}
    flags="-s -w"
    # otherwise it calls itself v0.0.0-master
    for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags="$flags -X $p.gitVersion=$k8s -X $p.gitMajor=1 -X $p.gitMinor=${minor%%.*}"
        flags="$flags -X $p.gitTreeState=clean"
        flags="$flags -X $p.gitCommit=unknown -X $p.buildDate=1970-01-01T00:00:00Z"
    done
    CGO_ENABLED=0 nice -n 10 go build -trimpath -ldflags "$flags" -o "$dir/testkube" . >&2
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    gcc -Os -static -nostdlib -fno-stack-protector -s -o "$root/pause" pause.c
    ./mkimage.sh localhost/pause:1 "$root" "$dir/pause.tar" /pause
    touch "$dir/complete"
fi
echo "$dir"
