#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh: builds oauth2-proxy, as an image archive, and an OIDC provider for tests (main.go), once
# for these sources and this version of Go, and prints the path of their folder.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/podflame
cd "$here"
key=$({ cat go.mod go.sum main.go build.sh && go version; } | sha256sum | cut -c1-16)
dir=$cache/proxy-$key
if [ ! -e "$dir/complete" ]; then
    mkdir -p "$dir"
    export CGO_ENABLED=0
    go build -trimpath -ldflags "-s -w" -o "$dir/provider" . >&2
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    go build -trimpath -ldflags "-s -w" -o "$root/oauth2-proxy" \
        github.com/oauth2-proxy/oauth2-proxy/v7 >&2
    ../cluster/mkimage.sh localhost/oauth2-proxy:1 "$root" "$dir/oauth2-proxy.tar" /oauth2-proxy
    touch "$dir/complete"
fi
echo "$dir"
