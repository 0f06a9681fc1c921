/* SPDX-License-Identifier: Apache-2.0 */
/* Private to LuaJIT's files: how its interpreter's code is found and read, and how names are told. */
#pragma once

#include "node/runtime/internal.h"

/* lj_vm_asm_begin to its end is 16 to 24 KiB; offsets in it are 16 bits wide. */
#define LUAJIT_VM_MIN 4096
#define LUAJIT_VM_MAX 65535

/* The interpreter's code as it is mapped. */
struct luajit_code {
	const uint8_t *bytes;
	size_t n;
	uint64_t address;
};
/* Whether lj_vm_call begins there: its first bytes behind saveregs; *ret_at: where these are in p. */
#define LUAJIT_CALL_BYTES 16
bool runtime_luajit_find_call(const uint8_t *p, size_t n, size_t *ret_at);
/* Fills d from the interpreter's code; call: offset of what runtime_luajit_find_call found. -ENOEXEC: another. */
int runtime_luajit_read_vm(const struct luajit_code *c, size_t call, struct pf_luajit *d);

/* Names of a frame: luajit_names.c. */
int runtime_luajit_resolve(struct memory *m, const struct runtime_words *frame,
		   const struct runtime_words *caller, struct runtime_names *ret);
