/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jvm_scopes: debug information that HotSpot's compilers store with their code. It says, for an
 * address of a compiled method, which methods are inlined there. debugInfoRec.cpp and
 * compressedStream.cpp write it; this reads it as scopeDesc.cpp does. JDK 8 to 25 have the same
 * form, but for the encoding of numbers. Reader's thread.
 */
#pragma once

#include "node/runtime/runtime.h"

/*
 * UNSIGNED5: a number of 1 to 5 bytes, which ends with a byte below 192. Since JDK 20
 * (utilities/unsigned5.hpp) no byte is 0: then no_zero is set.
 */
struct jvm_stream {
	const uint8_t *at, *end;
	bool no_zero;
};
/* -EBADMSG: the bytes end within a number, or one is not allowed. */
int runtime_jvm_stream_u32(struct jvm_stream *s, uint32_t *ret);
int runtime_jvm_stream_i32(struct jvm_stream *s, int32_t *ret); /* the sign is the lowest bit */

/* Addresses of the parts of one compiled method's debug information, in its process. */
struct jvm_debug {
	/* struct jvm_pc[], ascending; the first and the last are sentinels. */
	uint64_t pcs,
		pcs_end;
	uint64_t data, data_end;	 /* scopes */
	uint64_t metadata, metadata_end; /* Method *[]; scopes have an index + 1 */
	uint64_t code;			 /* pcs count from here */
	bool no_zero;
};
struct jvm_pc { /* pcDesc.hpp */
	int32_t pc, scope, objects, flags;
};
_Static_assert(sizeof(struct jvm_pc) == 16, "PcDesc");

struct jvm_scope {
	uint64_t method; /* Method * */
	int32_t bci;	 /* -1: at its entry */
};
#define JVM_SCOPES_MAX RUNTIME_NAMES_MAX
/* The first entry at or after pc, which counts from the beginning of the code. */
int runtime_jvm_pc_find(struct memory *m, const struct jvm_debug *d, uint32_t pc,
			struct jvm_pc *ret);
/*
 * The entry for code that was interrupted at pc: the first that it would have reached. Only places
 * where a thread can be stopped have entries, so the entry may be a little ahead.
 */
int runtime_jvm_pc_ahead(struct memory *m, const struct jvm_debug *d, uint32_t pc,
			 struct jvm_pc *ret);

/*
 * The methods at pc, leaf first. pc: a return address, which has an entry of its own; or, with
 * interrupted, the interrupted address. -ENOENT: there is no entry, or it has no scope. -EBADMSG:
 * the data has not the known form. -E2BIG: there are too many scopes.
 */
int runtime_jvm_scopes_at(struct memory *m, const struct jvm_debug *d, uint32_t pc,
			  bool interrupted, struct jvm_scope ret[JVM_SCOPES_MAX], size_t *ret_n);
