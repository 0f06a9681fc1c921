#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh: builds podflame as it was at an older commit of this repository, as the image
# localhost/podflame:older, and prints the path of a folder with it (podflame.tar) and the charts of
# that commit, for upgrades in tests. It builds a commit once.
set -euo pipefail
OLDER=31e19acc3af346707de563006508c0824324dc47
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/podflame
commit=$(git -C "$here" rev-parse --verify --quiet "$OLDER^{commit}") || {
    echo "build.sh: this clone lacks the commit $OLDER" >&2
    exit 1
}
dir=$cache/older-$commit
mkdir -p "$dir"
exec 9>"$dir/lock"
flock 9
if [ ! -e "$dir/complete" ]; then
    w=$(mktemp -d)
    trap 'rm -rf "$w"' EXIT
    git -C "$here/../.." archive "$commit" | tar -x -C "$w"
    unset MAKEFLAGS MAKELEVEL MAKEOVERRIDES
    nice make -C "$w" -j"$(nproc)" BUILD=build build/podflame >&2
    "$w/charts/image.sh" "$w/build/podflame" localhost/podflame:older "$dir/podflame.tar"
    rm -rf "$dir/charts"
    cp -rL "$w/charts" "$dir/"
    touch "$dir/complete"
fi
echo "$dir"
