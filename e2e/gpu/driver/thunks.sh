#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# thunks.sh OUT COMPILER [FLAG...] -- SOURCE...: links the stand-in driver with entries of the form
# that the real library's have: compare, jump if equal, jump through a pointer. The functions of the
# sources get other, hidden names for that. Without this script the sources' functions are the
# entries.
set -euo pipefail
out=$1
shift
compile=()
while [ "$1" != -- ]; do
    compile+=("$1")
    shift
done
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
objects=()
for source; do
    object=$work/$(basename "$source").o
    "${compile[@]}" -c -o "$object" "$source"
    # only what it defines: the table of cuGetProcAddress refers to the entries
    nm -g --defined-only "$object" | awk '$3 ~ /^cu/ {print $3, "real_" $3}' >"$object.names"
    objcopy --redefine-syms="$object.names" "$object"
    objects+=("$object")
done
cat "$work"/*.names | awk '
    BEGIN {print ".local unloaded\n.comm unloaded, 4, 4"}
    {
        printf "\t.hidden %s\n", $2
        printf "\t.section .data.rel.ro, \"aw\"\n\t.balign 8\n.Lto_%s:\n\t.quad %s\n", $1, $2
        printf "\t.text\n\t.balign 16\n\t.globl %s\n\t.type %s, @function\n%s:\n", $1, $1, $1
        printf "\t.cfi_startproc\n\tcmpl $0x7e5701, unloaded(%%rip)\n\tje 1f\n"
        printf "\tjmp *.Lto_%s(%%rip)\n1:\tmov $4, %%eax\n\tret\n\t.cfi_endproc\n", $1
        printf "\t.size %s, . - %s\n", $1, $1
    }
    END {print "\t.section .note.GNU-stack, \"\", @progbits"}' >"$work/thunks.s"
"${compile[@]}" -shared -Wl,-soname,libcuda.so.1 -s -o "$out" "${objects[@]}" "$work/thunks.s"
