/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jvm_scopes: debug information that HotSpot's compilers store with their code. For an address of a
 * compiled method, this information has the methods that are inlined there. debugInfoRec.cpp and
 * compressedStream.cpp of the JDK write the information. This file reads it as scopeDesc.cpp does.
 * The form is the same in JDK 8 to 25, except for the encoding of numbers. Runs on the reader's
 * thread.
 */
#pragma once

#include "node/runtime/runtime.h"

/*
 * Numbers in UNSIGNED5: 1 to 5 bytes. A byte below 192 is the last one. Since JDK 20
 * (utilities/unsigned5.hpp) no byte is 0; then no_zero is set.
 */
struct jvm_stream {
	const uint8_t *at, *end;
	bool no_zero;
};
/*
 * Both functions read a number. -EBADMSG: the bytes end in the middle of a number, or have a byte
 * that is not allowed.
 */
int runtime_jvm_stream_u32(struct jvm_stream *s, uint32_t *ret);
int runtime_jvm_stream_i32(struct jvm_stream *s, int32_t *ret); /* the lowest bit is the sign */

/* Addresses, in the process, of the parts of one compiled method's debug information. */
struct jvm_debug {
	/* array of struct jvm_pc, ascending; the first and the last are sentinels */
	uint64_t pcs, pcs_end;
	uint64_t data, data_end;	 /* the scopes */
	uint64_t metadata, metadata_end; /* array of Method *; scopes contain an index + 1 */
	uint64_t code;			 /* beginning of the code; pcs are relative to it */
	bool no_zero;
};
struct jvm_pc { /* an entry of pcs, as in pcDesc.hpp */
	int32_t pc, scope, objects, flags;
};
_Static_assert(sizeof(struct jvm_pc) == 16, "PcDesc");

struct jvm_scope {
	uint64_t method; /* address of the Method */
	int32_t bci;	 /* index of the bytecode; -1: at the method's entry */
};
#define JVM_SCOPES_MAX RUNTIME_NAMES_MAX /* scopes of one frame: the method, and those inlined */
/* Finds the first entry at or after pc. pc is relative to the beginning of the code. */
int runtime_jvm_pc_find(struct memory *m, const struct jvm_debug *d, uint32_t pc,
			struct jvm_pc *ret);
/*
 * Finds the entry for code that was interrupted at pc: the first one that the code would have
 * reached. Only places where HotSpot can stop a thread have entries, so the entry may be a little
 * after pc.
 */
int runtime_jvm_pc_ahead(struct memory *m, const struct jvm_debug *d, uint32_t pc,
			 struct jvm_pc *ret);

/*
 * Finds the methods at pc, leaf first. pc: a return address, which has its own entry; with
 * `interrupted`, the interrupted address. -ENOENT: no entry is found, or the entry has no scope.
 * -EBADMSG: the data does not have the known form. -E2BIG: there are too many scopes.
 */
int runtime_jvm_scopes_at(struct memory *m, const struct jvm_debug *d, uint32_t pc,
			  bool interrupted, struct jvm_scope ret[JVM_SCOPES_MAX], size_t *ret_n);
