#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mkimage.sh NAME:TAG ROOTFS_DIR OUT.tar COMMAND [ARGUMENT...]: packs a folder as an image of one
# layer, in the docker-archive format that `ctr -n k8s.io images import`, `docker load` and `kind
# load image-archive` read. It needs no registry and no container engine. The same folder gives the
# same bytes: no times, owners or orders of this machine go in.
set -euo pipefail
name=$1 root=$2 out=$3
shift 3
w=$(mktemp -d)
trap 'rm -rf "$w"' EXIT
pack=(tar --numeric-owner --owner=0 --group=0 --sort=name --mtime=@0 --format=gnu)
"${pack[@]}" -C "$root" -cf "$w/layer.tar" .
sum=$(sha256sum "$w/layer.tar" | cut -d' ' -f1)
q() { printf '"%s"' "${1//\"/\\\"}"; }
cmd=
for a in "$@"; do cmd="$cmd${cmd:+,}$(q "$a")"; done
format='{"architecture":"amd64","os":"linux","created":"1970-01-01T00:00:00Z",'
format+='"config":{"Entrypoint":[%s],'
format+='"Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},'
format+='"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}'
# shellcheck disable=SC2059
printf "$format" "$cmd" "$sum" >"$w/config.json"
printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$name" \
    >"$w/manifest.json"
chmod 644 "$w"/*
mkdir -p "$(dirname "$out")"
"${pack[@]}" -C "$w" -cf "$out.tmp" manifest.json config.json layer.tar
mv "$out.tmp" "$out"
