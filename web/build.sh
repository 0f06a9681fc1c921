#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh DIR HEADER: installs the page's packages in DIR, checks its types, bundles it into
# HEADER.
set -euo pipefail
dir=$1 header=$2
src=$(dirname "$0")
mkdir -p "$dir"
rm -rf "$dir/src"
cp -r "$src"/{package.json,package-lock.json,.npmrc,tsconfig.json,build.mjs,index.html,src} "$dir/"
sum=$(sha256sum "$dir/package-lock.json")
if [ "$(cat "$dir/.installed" 2>/dev/null)" != "$sum" ]; then
	(cd "$dir" && npm ci --ignore-scripts --no-progress --loglevel=error >&2)
	printf '%s\n' "$sum" >"$dir/.installed"
fi
(cd "$dir" && npx tsc --noEmit)
node "$dir/build.mjs" "$dir/page.html" "$header"
