#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# release.sh OUT VERSION IMAGE.tar CUDA_IMAGE.tar: puts the files of a release into OUT: the chart,
# the images, the list of what they contain (sbom.py), and SHA256SUMS of all. The same images give
# the same bytes: times are those of SOURCE_DATE_EPOCH, or else of the last commit. `make release`
# calls it; it needs helm.
set -euo pipefail
out=$(realpath -m "$1") version=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH=$epoch
chart_version=$(sed -n 's/^version: //p' "$here/podflame/Chart.yaml")
if [ "$chart_version" != "$version" ]; then
    echo "release.sh: the chart has version $chart_version, not $version" >&2
    exit 1
fi
w=$(mktemp -d)
trap 'rm -rf "$w"' EXIT
mkdir "$w/out"
cp -- "$3" "$w/out/podflame-$version-image-amd64.tar"
cp -- "$4" "$w/out/podflame-cuda-$version-image-amd64.tar"
helm package "$here/podflame" --destination "$w" >"$w/said" 2>&1 || { cat "$w/said" >&2; exit 1; }
# packed again without this machine's times and owners
mkdir "$w/chart"
tar -C "$w/chart" -xf "$w/podflame-$version.tgz"
tar -C "$w/chart" --sort=name --mtime="@$epoch" --numeric-owner --owner=0 --group=0 \
    --mode=u=rwX,go=rX --format=gnu -c podflame | gzip -9n >"$w/out/podflame-$version.tgz"
cd "$w/out"
"$here/sbom.py" "$version" "podflame-$version.tgz" "podflame-$version-image-amd64.tar" \
    "podflame-cuda-$version-image-amd64.tar" >"podflame-$version.spdx.json"
sha256sum -- *.* >SHA256SUMS
chmod 644 -- *
mkdir -p "$(dirname "$out")"
rm -rf "$out"
mv "$w/out" "$out"
