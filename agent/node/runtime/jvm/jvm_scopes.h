/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jvm_scopes: what HotSpot's compilers leave beside their code: which methods, one inlined into the other,
 * an address of a compiled method stands in. Written by debugInfoRec.cpp and compressedStream.cpp, read as
 * scopeDesc.cpp does; the same in JDK 8 to 25 but for the numbers' encoding.
 */
#pragma once

#include "node/runtime/runtime.h"

/*
 * UNSIGNED5: a number in 1 to 5 bytes. Until JDK 19 the bytes below 192 end a number; since JDK 20
 * (utilities/unsigned5.hpp) no byte is 0, and those below 192 are 1 to 191.
 */
struct jvm_stream {
	const uint8_t *at, *end;
	bool no_zero;
};
/* -EBADMSG: the bytes end in a number, or one of them cannot be. */
int runtime_jvm_stream_u32(struct jvm_stream *s, uint32_t *ret);
int runtime_jvm_stream_i32(struct jvm_stream *s, int32_t *ret); /* the sign is the lowest bit */

/* Where the parts of one compiled method's debug information are, in its process. */
struct jvm_debug {
	uint64_t pcs,
		pcs_end; /* struct jvm_pc[], ascending; the first and the last are sentinels */
	uint64_t data, data_end;	 /* scopes */
	uint64_t metadata, metadata_end; /* Method *[], which scopes name by their index + 1 */
	uint64_t code;			 /* the numbers of places count from here */
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
/* The first entry at or behind pc, which counts from where the code begins. */
int runtime_jvm_pc_find(struct memory *m, const struct jvm_debug *d, uint32_t pc, struct jvm_pc *ret);
/*
 * The entry that tells of code that was interrupted at pc: the first that it would have come to. Only places
 * where a thread can be stopped have entries, so what is told may be a little ahead.
 */
int runtime_jvm_pc_ahead(struct memory *m, const struct jvm_debug *d, uint32_t pc, struct jvm_pc *ret);

/*
 * Leaf first. pc: where a call returns to, which has an entry of its own, or, interrupted, where it stands.
 * -ENOENT: no entry, or it tells nothing. -EBADMSG: not what it should be. -E2BIG: too many scopes.
 */
int runtime_jvm_scopes_at(struct memory *m, const struct jvm_debug *d, uint32_t pc, bool interrupted,
		  struct jvm_scope ret[JVM_SCOPES_MAX], size_t *ret_n);
