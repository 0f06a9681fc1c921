#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# descriptors.sh OUTDIR: makes OUTDIR/otlp.pb.c and OUTDIR/otlp.pb.h, the C form of the OTLP
# profiles messages. The message descriptors are those inside the Python package
# opentelemetry-proto (Apache-2.0); nothing of it is committed. The pinned release carries
# the messages that OpenTelemetry Collector 0.150 (pdata v1.56.0) reads and writes: from
# 1.43.0 on Sample.values is field 4, up to 1.42.1 it is field 2.
set -eu

version=1.43.0
wheel=opentelemetry_proto-$version-py3-none-any.whl
sha256=c58f1f7ef84bc7dc2834016c0c37fe0081dde7ca9f6339be1970fbf9cdaaa90d

out=${1:?usage: descriptors.sh OUTDIR}
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/podflame
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

die() {
	echo "descriptors.sh: $*" >&2
	exit 1
}

is_wheel() {
	[ -f "$1" ] && echo "$sha256  $1" | sha256sum --check --status
}

if is_wheel "$cache/$wheel"; then
	cp "$cache/$wheel" "$work/"
else
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
		--dest "$work" "opentelemetry-proto==$version" ||
		die "cannot download opentelemetry-proto $version; put $wheel into $cache"
	is_wheel "$work/$wheel" || die "$wheel is not the file that is expected (SHA-256 $sha256)"
	# The next build needs no network. A cache that cannot be written is no failure.
	{ mkdir -p "$cache" && cp "$work/$wheel" "$cache/"; } 2>/dev/null || true
fi

# A _pb2.py holds its serialized FileDescriptorProto as a bytes literal: read it without running
# it, and make a FileDescriptorSet (field 1, length, bytes) of them.
python3 - "$work/$wheel" "$work/otlp.fds" <<'PY'
import ast, sys, zipfile

FILES = ("common/v1/common", "resource/v1/resource", "profiles/v1development/profiles",
         "collector/profiles/v1development/profiles_service")

def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])

with zipfile.ZipFile(sys.argv[1]) as wheel, open(sys.argv[2], "wb") as fds:
    for name in FILES:
        tree = ast.parse(wheel.read("opentelemetry/proto/%s_pb2.py" % name))
        (proto,) = [c.args[0].value for c in ast.walk(tree) if isinstance(c, ast.Call)
                    and getattr(c.func, "attr", "") == "AddSerializedFile"]
        fds.write(b"\x0a" + varint(len(proto)) + proto)
PY

common=opentelemetry/proto/common/v1/common
resource=opentelemetry/proto/resource/v1/resource
profiles=opentelemetry/proto/profiles/v1development/profiles
service=opentelemetry/proto/collector/profiles/v1development/profiles_service
protoc --descriptor_set_in="$work/otlp.fds" --c_out="$work" \
	$common.proto $resource.proto $profiles.proto $service.proto

# Makes one pair of files. The names of the messages are unique across the four packages, so
# Opentelemetry__Proto__Profiles__V1development__Profile becomes Otlp__Profile.
camel='(Common__V1|Resource__V1|Profiles__V1development)'
lower=$(echo "$camel" | tr '[:upper:]' '[:lower:]')
upper=$(echo "$camel" | tr '[:lower:]' '[:upper:]')
join() {
	for f in $common $resource $profiles $service; do
		cat "$work/$f.pb-c.$1"
	done | sed -E -e '/^#include "opentelemetry/d' \
		-e "s/\bOpentelemetry__Proto__(Collector__)?${camel}__/Otlp__/g" \
		-e "s/\bopentelemetry__proto__(collector__)?${lower}__/otlp__/g" \
		-e "s/\bOPENTELEMETRY__PROTO__(COLLECTOR__)?${upper}__/OTLP__/g"
}
mkdir -p "$out"
join h >"$work/otlp.pb.h"
{
	echo '#include "otlp.pb.h"'
	join c
} >"$work/otlp.pb.c"
cp "$work/otlp.pb.h" "$out/otlp.pb.h"
cp "$work/otlp.pb.c" "$out/otlp.pb.c"
