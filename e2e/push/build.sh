#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh: packs the programs that push from pods as an image, localhost/podflame-push:1, once for
# their sources and this version of Go, and prints its path: /shop (go/main.go, with pyroscope-go)
# and /sender (../collector/main.go, OTLP).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/podflame
export PATH="$cache/tools/bin:$PATH"
key=$({ cat go/* ../collector/{go.mod,go.sum,main.go} build.sh && go version; } | sha256sum |
    cut -c1-16)
image=$cache/push-$key.tar
if [ ! -e "$image" ]; then
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    (cd go && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$root/shop" . >&2)
    cp "$(../collector/build.sh sender)" "$root/sender"
    ../cluster/mkimage.sh localhost/podflame-push:1 "$root" "$image" /shop
fi
echo "$image"
