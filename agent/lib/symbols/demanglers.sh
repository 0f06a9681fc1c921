#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# demanglers.sh OUT.o [CC]: makes one object of the demanglers of LLVM's libc++abi (Apache-2.0 WITH
# LLVM-exception) and of libiberty (LGPL and GPL, both with permission to link). demangle.c calls
# three functions of it, which are its only symbols, and provides its memory. The object needs no
# C++ library: neither demangler throws, catches or deletes anything.
set -eu

out=${1:?usage: demanglers.sh OUT.o [CC]}
cc=${2:-gcc}
libcxxabi=${LIBCXXABI:-/usr/lib/llvm-19/lib/libc++abi.a}
libiberty=$($cc -print-file-name=libiberty.a)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for archive in "$libcxxabi" "$libiberty"; do
	if [ ! -e "$archive" ]; then
		echo "demanglers.sh: there is no $archive: run make deps" >&2
		exit 1
	fi
done
cat >"$work/symbols" <<'SYMBOLS'
__cxa_demangle demangle_llvm
cplus_demangle_v3_callback demangle_gnu
rust_demangle_callback demangle_rust
malloc elf_demangle_malloc
realloc elf_demangle_realloc
free elf_demangle_free
_Unwind_Resume elf_demangle_never_unwinds
_ZSt9terminatev elf_demangle_never_terminates
_ZdlPvm elf_demangle_never_deletes
__cxa_begin_catch elf_demangle_never_catches
__gxx_personality_v0 elf_demangle_never_throws
abort_message elf_demangle_never_tells
_ZTVN10__cxxabiv117__class_type_infoE elf_demangle_no_class
_ZTVN10__cxxabiv120__si_class_type_infoE elf_demangle_no_derived_class
SYMBOLS
(cd "$work" && ar x "$libcxxabi" cxa_demangle.cpp.o &&
	ar x "$libiberty" cp-demangle.o rust-demangle.o safe-ctype.o)
ld -r -o "$work/all.o" "$work"/*.o
objcopy --redefine-syms="$work/symbols" --keep-global-symbol=demangle_llvm \
	--keep-global-symbol=demangle_gnu --keep-global-symbol=demangle_rust "$work/all.o" "$out"
