#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh OUT.tar GPU RDMA: packs the image localhost/podflame-languages:1. It has a JVM (jlink's,
# of Debian's JDK), CPython, Lua, LuaJIT and Perl as Debian ships them (stripped, without frame
# pointers), and a program with known shares for each but Perl. From the folder GPU it has the
# stand-ins for the CUDA driver and CUPTI, with programs in C and Python that use them; from the
# folder RDMA the stand-in for libibverbs, with a program in C that is linked with the real one.
set -euo pipefail
out=$(realpath -m "$1") gpu=$(realpath "$2") rdma=$(realpath "$3")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
libraries() { # FILE...: copies the libraries that they need to the same paths
    ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3} $1 ~ /^\// && $1 !~ /:$/ {print $1}' |
        sort -u | while read -r lib; do
            [ -e "$root$lib" ] || install -D -m 755 "$lib" "$root$lib"
        done
}
program() { install -D -m 755 "$(readlink -f "$1")" "$root/bin/$2"; libraries "$1"; }

program /usr/bin/python3.11 python3
{
    dpkg -L libpython3.11-minimal | grep '^/usr/lib/python3.11/'
    dpkg -L libpython3.11-stdlib | grep '^/usr/lib/python3.11/.*ctypes'
} | while read -r f; do
    [ -d "$f" ] || install -D -m 644 "$f" "$root$f"
done
program /usr/bin/lua5.4 lua
program /usr/bin/luajit luajit
program /usr/bin/perl perl
jdk=$(dirname "$(dirname "$(readlink -f /usr/lib/jvm/java-17-openjdk-amd64/bin/javac)")")
"$jdk/bin/jlink" --add-modules java.base,java.management --no-header-files --no-man-pages \
    --output "$root/jre"
libraries "$root/jre/bin/java" "$root"/jre/lib/*.so "$root/jre/lib/server/libjvm.so"
"$jdk/bin/javac" -g -d "$root/app" "$here"/*.java
install -m 644 "$here"/*.lua "$here"/*.py "$here"/../gpu/*.py "$root/app/"
libraries "$root"/usr/lib/python3.11/lib-dynload/_ctypes.*
install -D -m 755 -t "$root/usr/lib/x86_64-linux-gnu" "$gpu/thunk/libcuda.so.1" \
    "$gpu/libcupti.so.12"
# what libpodflame-cuda.so needs: each glibc has them
install -D -m 755 -t "$root/lib/x86_64-linux-gnu" /lib/x86_64-linux-gnu/lib{pthread.so.0,dl.so.2}
for program in gpu on_gpu; do
    gcc -O1 -fno-omit-frame-pointer -fno-optimize-sibling-calls -Wall -o "$root/bin/$program" \
        "$here/../gpu/$program.c" "$gpu/thunk/libcuda.so.1"
done
install -D -m 755 -t "$root/usr/lib/x86_64-linux-gnu" "$rdma/libibverbs.so.1"
install -D -m 755 -t "$root/usr/lib/x86_64-linux-gnu/libibverbs" "$rdma"/libibverbs/*.so
gcc -O1 -fno-omit-frame-pointer -fno-optimize-sibling-calls -Wall -o "$root/bin/rdma" \
    "$here/../rdma/rdma.c" -libverbs
mkdir -p "$root"/{proc,sys,dev,etc,tmp}
chmod 1777 "$root/tmp"
"$here/../../cluster/mkimage.sh" localhost/podflame-languages:1 "$root" "$out" /bin/lua
