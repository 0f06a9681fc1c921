#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh sender|otelcol: builds a program that sends OTLP (main.go, otelcol/main.go), once for its
# sources and this version of Go, and prints its path.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/podflame
export PATH="$cache/tools/bin:$PATH"
if [ "$1" = otelcol ]; then here=$here/otelcol; fi
cd "$here"
key=$({ cat go.mod go.sum main.go && go version; } | sha256sum | cut -c1-16)
program=$cache/otlp-$key/$1
if [ ! -e "$program" ]; then
    mkdir -p "${program%/*}"
    CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$program.new" . >&2
    mv "$program.new" "$program"
fi
echo "$program"
