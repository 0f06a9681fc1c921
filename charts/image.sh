#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# image.sh BINARY NAME:TAG OUT.tar: makes the image of agent and hub. It has the program, the
# libraries that it is linked with and nothing else (no shell, no package manager). It needs no
# registry and no container engine; the same inputs give the same bytes. `make image` calls it.
set -euo pipefail
binary=$1 name=$2 out=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
install -D -m 755 "$binary" "$root/usr/bin/podflame"
# .symtab stays: podflame can be profiled like anything else
strip --strip-debug "$root/usr/bin/podflame"
ldd "$binary" | awk '$2 == "=>" {print $3} $1 ~ /^\// {print $1}' | sort -u | while read -r lib; do
    case $lib in
    */ld-linux-x86-64.so.2) install -D -m 755 "$lib" "$root/lib64/ld-linux-x86-64.so.2" ;;
    *) install -D -m 644 "$lib" "$root/usr/lib/x86_64-linux-gnu/${lib##*/}" ;;
    esac
done
mkdir -p "$root"/{etc/podflame,proc,sys,dev,tmp} "$root"/var/{lib,spool,run}/podflame
chmod 1777 "$root/tmp"
# docker run --user: the hub's uid is the caller's choice
chmod 777 "$root/var/lib/podflame"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
printf 'root:x:0:0:root:/:\npodflame:x:65532:65532:podflame:/:\n' >"$root/etc/passwd"
printf 'root:x:0:\npodflame:x:65532:\n' >"$root/etc/group"
find "$root" -type d ! -perm -1777 -exec chmod u=rwx,go+rx {} +
"$here/../e2e/cluster/mkimage.sh" "$name" "$root" "$out" /usr/bin/podflame
