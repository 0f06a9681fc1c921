#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh LIBRARY INSTALL NAME:TAG OUT.tar: makes the image that brings the library into pods. It
# has the library, the program that copies it, and nothing else. The same inputs give the same
# bytes. `make image` calls it.
set -euo pipefail
library=$1 install=$2 name=$3 out=$4
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
install -m 755 "$library" "$root/libpodflame-cuda.so"
install -m 755 "$install" "$root/install"
# the library's .symtab stays: its functions are in the stacks of launches
strip --strip-debug "$root/libpodflame-cuda.so"
strip "$root/install"
"$here/../../e2e/cluster/mkimage.sh" "$name" "$root" "$out" /install
