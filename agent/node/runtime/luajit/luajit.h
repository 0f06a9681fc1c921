/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to LuaJIT's files: finds and reads the interpreter's code, and names frames. Runs on the
 * reader's thread.
 */
#pragma once

#include "node/runtime/internal.h"

/* The code from lj_vm_asm_begin to its end has 16 to 24 KiB. Offsets in it have 16 bits. */
#define LUAJIT_VM_MIN 4096
#define LUAJIT_VM_MAX 65535 /* bytes of the interpreter's code */

/* The interpreter's code, as the process has mapped it. */
struct luajit_code {
	const uint8_t *bytes;
	size_t n;
	uint64_t address;
};
/*
 * Finds lj_vm_call in p. It searches for the first bytes after saveregs, the macro that saves C's
 * registers; *ret_at is their offset.
 */
#define LUAJIT_CALL_BYTES 16
bool runtime_luajit_find_call(const uint8_t *p, size_t n, size_t *ret_at);
/*
 * Fills d from the interpreter's code. call: the offset that runtime_luajit_find_call() returned.
 * -ENOEXEC: the code is of another interpreter.
 */
int runtime_luajit_read_vm(const struct luajit_code *c, size_t call, struct pf_luajit *d);

/* Finds the names of a frame: luajit_names.c. */
int runtime_luajit_resolve(struct memory *m, const struct runtime_words *frame,
			   const struct runtime_words *caller, struct runtime_names *ret);
