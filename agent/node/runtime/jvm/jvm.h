/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to jvm*.c: HotSpot's layout, and the words of its frames. libjvm exports the layout for
 * debuggers, in tables (gHotSpotVMStructs and others, runtime/vmStructs.hpp of the JDK). Runs on
 * the reader's thread; the process's memory is hostile.
 */
#pragma once

#include "node/runtime/internal.h"

/* ---- the words of a frame ---- */
/*
 * A pc is a return address, or the interrupted address plus one. In both cases the byte before it
 * belongs to the code that runs. Words also contain cookies (a ConstMethod*, a compile id). The
 * cookies show whether the memory still has the same method when it is read.
 */
enum jvm_frame {
	/*
	 * a: Method*. b: the ConstMethod* that the Method had, and the bytecode's index << 48;
	 * 0xffff: the index is not known.
	 */
	JVM_FRAME_INTERPRETED = PF_JVM_INTERPRETED,
	/*
	 * A compiled method, or the wrapper of a native one. a: nmethod*. b: pc; in a deoptimized
	 * frame, the original pc. From bit 48 on, each word has a half of nmethod._compile_id: a
	 * the lower half, b the upper one.
	 */
	JVM_FRAME_COMPILED = PF_JVM_COMPILED,
	JVM_FRAME_STUB = PF_JVM_STUB, /* any other code. a: CodeBlob*; b: pc */
	/* As JVM_FRAME_COMPILED, but the code was interrupted at pc - 1. */
	JVM_FRAME_INTERRUPTED = PF_JVM_INTERRUPTED,
};
#define JVM_ADDRESS(word) ((word)&0xffffffffffffull)
#define JVM_UPPER(word)	  ((uint32_t)((word) >> 48))
#define JVM_BCI_UNKNOWN	  0xffffu

static inline uint32_t jvm_compile_id(const struct runtime_words *w)
{
	return JVM_UPPER(w->a) | JVM_UPPER(w->b) << 16;
}

/* ---- vmStructs ---- */
#define JVM_NONE UINT64_MAX /* the tables of this JVM do not have the field */
/*
 * Offsets of fields, and addresses of static fields. X(member, types, fields): '|' separates
 * alternative names. The first name that exists counts. A comment gives the JDKs that have the
 * field: "9-22" from 9 to 22, "16+" since 16, "-21" up to 21. It may also give the field's type or
 * meaning.
 */
#define JVM_FIELDS(X)                                                                              \
	X(version_major, "Abstract_VM_Version", "_vm_major_version")                               \
	X(version_security, "Abstract_VM_Version", "_vm_security_version")                         \
	X(version_release, "Abstract_VM_Version", "_s_vm_release")                                 \
	X(jdk_version, "JDK_Version", "_current") /* -21 */                                        \
	X(cache_heap, "CodeCache", "_heap")	  /* 8 */                                          \
	X(cache_heaps, "CodeCache", "_heaps")	  /* 9+ */                                         \
	X(cache_low, "CodeCache", "_low_bound")                                                    \
	X(cache_high, "CodeCache", "_high_bound")                                                  \
	X(heap_memory, "CodeHeap", "_memory")                                                      \
	X(heap_segmap, "CodeHeap", "_segmap")                                                      \
	X(heap_log2_segment, "CodeHeap", "_log2_segment_size")                                     \
	X(space_low, "VirtualSpace", "_low_boundary")                                              \
	X(space_high, "VirtualSpace", "_high_boundary")                                            \
	X(space_committed, "VirtualSpace", "_high")                                                \
	X(array_len, "GrowableArrayBase|GenericGrowableArray", "_len") /* 16+, -15 */              \
	X(array_data, "GrowableArray<int>", "_data")                                               \
	X(interpreter_code, "AbstractInterpreter", "_code")                                        \
	X(call_stub_return, "StubRoutines", "_call_stub_return_address")                           \
	X(queue_buffer, "StubQueue", "_stub_buffer")                                               \
	X(queue_limit, "StubQueue", "_buffer_limit")                                               \
	X(queue_count, "StubQueue", "_number_of_stubs")                                            \
	X(codelet_size, "InterpreterCodelet", "_size")                                             \
	X(codelet_text, "InterpreterCodelet", "_description")                                      \
	X(blob_name, "CodeBlob", "_name")                                                          \
	X(blob_size, "CodeBlob", "_size")                                                          \
	X(blob_frame_size, "CodeBlob", "_frame_size")                                              \
	X(blob_complete, "CodeBlob", "_frame_complete_offset") /* int; 24+: int16_t */             \
	X(blob_code_begin, "CodeBlob", "_code_begin")	       /* 9-22: address */                 \
	X(blob_code_end, "CodeBlob", "_code_end")	       /* 9-22 */                          \
	X(blob_code_offset, "CodeBlob", "_code_offset")	       /* 8, 23+: from the blob */         \
	X(blob_data_offset, "CodeBlob", "_data_offset")                                            \
	X(blob_content_offset, "CodeBlob", "_content_offset") /* 8, 23+ */                         \
	X(blob_content_begin, "CodeBlob", "_content_begin")   /* 9-22 */                           \
	X(blob_mutable_data, "CodeBlob", "_mutable_data")     /* 25+ */                            \
	X(blob_mutable_bytes, "CodeBlob", "_mutable_data_size")                                    \
	X(blob_relocation_bytes, "CodeBlob", "_relocation_size")                                   \
	X(nmethod_method, "nmethod|CompiledMethod", "_method")                                     \
	X(nmethod_compile_id, "nmethod", "_compile_id")                                            \
	X(nmethod_comp_level, "nmethod", "_comp_level")                                            \
	X(nmethod_entry_bci, "nmethod", "_entry_bci")                                              \
	X(nmethod_state, "nmethod", "_state")                                                      \
	X(nmethod_orig_pc, "nmethod", "_orig_pc_offset")                                           \
	X(nmethod_deopt_begin, "CompiledMethod", "_deopt_handler_begin") /* 9-22: address */       \
	X(nmethod_deopt_mh_begin, "CompiledMethod", "_deopt_mh_handler_begin")                     \
	X(nmethod_deopt_offset, "nmethod",                                                         \
	  "_deopt_handler_offset|_deoptimize_offset|_deopt_handler_entry_offset")                  \
	X(nmethod_deopt_mh_offset, "nmethod", "_deopt_mh_handler_offset|_deoptimize_mh_offset")    \
	X(nmethod_metadata, "nmethod", "_metadata_offset")		/* -24 */                  \
	X(nmethod_scopes_data, "nmethod", "_scopes_data_offset")	/* 8, 23+ */               \
	X(nmethod_scopes_begin, "CompiledMethod", "_scopes_data_begin") /* 9-22 */                 \
	X(nmethod_scopes_pcs, "nmethod", "_scopes_pcs_offset")                                     \
	X(nmethod_dependencies, "nmethod", "_dependencies_offset") /* -22 */                       \
	X(nmethod_immutable, "nmethod", "_immutable_data")	   /* 23+ */                       \
	X(nmethod_immutable_bytes, "nmethod", "_immutable_data_size")                              \
	X(pcdesc_pc, "PcDesc", "_pc_offset")                                                       \
	X(pcdesc_scope, "PcDesc", "_scope_decode_offset")                                          \
	X(method_const, "Method", "_constMethod")                                                  \
	X(const_constants, "ConstMethod", "_constants")                                            \
	X(const_size, "ConstMethod", "_constMethod_size")                                          \
	X(const_flags, "ConstMethod", "_flags|_flags._flags")                                      \
	X(const_code_size, "ConstMethod", "_code_size")                                            \
	X(const_name, "ConstMethod", "_name_index")                                                \
	X(const_signature, "ConstMethod", "_signature_index")                                      \
	X(pool_holder, "ConstantPool", "_pool_holder")                                             \
	X(pool_length, "ConstantPool", "_length")                                                  \
	X(pool_tags, "ConstantPool", "_tags")                                                      \
	X(pool_source_file, "ConstantPool", "_source_file_name_index") /* 15+ */                   \
	X(class_source_file, "InstanceKlass", "_source_file_name_index")                           \
	X(klass_name, "Klass", "_name")                                                            \
	X(symbol_length, "Symbol", "_length")		       /* 8-11: u2 */                      \
	X(symbol_length_ref, "Symbol", "_length_and_refcount") /* 12+: upper half of a u4 */       \
	X(symbol_hash, "Symbol", "_identity_hash")	       /* -14 */                           \
	X(symbol_hash_ref, "Symbol", "_hash_and_refcount")     /* 15+: upper half of a u4 */       \
	X(symbol_body, "Symbol", "_body")

/* Sizes of types: X(member, type). */
#define JVM_TYPES(X)                                                                               \
	X(heap_block, "HeapBlock")                                                                 \
	X(codelet, "InterpreterCodelet")                                                           \
	X(code_blob, "CodeBlob")                                                                   \
	X(nmethod, "nmethod")                                                                      \
	X(pcdesc, "PcDesc")                                                                        \
	X(method, "Method")                                                                        \
	X(const_method, "ConstMethod")                                                             \
	X(constant_pool, "ConstantPool")                                                           \
	X(symbol, "Symbol")

/* Values of constants, from the tables of integers: X(member, name). */
#define JVM_CONSTANTS(X)                                                                           \
	X(invocation_entry_bci, "InvocationEntryBci")                                              \
	X(has_linenumber_table, "ConstMethodFlags::_misc_has_linenumber_table|"                    \
				"ConstMethod::_has_linenumber_table")

/* A static field of StubRoutines or a similar type. It points to an entry of generated code. */
struct jvm_stub {
	char *name;	  /* name of the field, such as "_jbyte_arraycopy" */
	uint64_t address; /* address of the stub's code */
};
#define JVM_STUBS_MAX 512 /* stubs of one JVM; further ones have no name */

struct jvm_structs {
#define X(member, types, fields) uint64_t member;
	JVM_FIELDS(X)
#undef X
	struct {
#define X(member, type) uint64_t member;
		JVM_TYPES(X)
#undef X
	} bytes;
	struct {
#define X(member, name) int64_t member;
		JVM_CONSTANTS(X)
#undef X
	} constants;		/* INT64_MIN: the tables do not have it */
	bool complete_short;	/* blob_complete is an int16_t */
	struct jvm_stub *stubs; /* ascending by address */
	size_t n_stubs;
};
/*
 * symbol: finds the address in the process of one of libjvm's symbols; returns 0 or -ENOENT.
 * -EAGAIN: the JVM has not filled the tables yet. -EBADMSG: the tables do not have the known form.
 * -E2BIG: the tables exceed the limits. Other errors are those of runtime_memory_read().
 */
int runtime_jvm_structs_read(struct memory *m,
			     int (*symbol)(void *arg, const char *name, uint64_t *ret), void *arg,
			     struct jvm_structs *ret);
void runtime_jvm_structs_done(struct jvm_structs *s);

/* ---- the state of a process ---- */
struct jvm_names; /* data that jvm_names.c keeps for later names */
struct jvm {
	struct jvm_structs structs;
	unsigned major, update;	 /* major: 8, 11, 17, ...; update: 452 of 8u452, 15 of 17.0.15 */
	uint64_t stub_list;	 /* address of StubCodeDesc::_list; 0: not known */
	struct jvm_names *names; /* names that are kept; NULL until the first name is read */
};
/* Finds the names of a frame, as runtime_ops.resolve does: see runtime.h. */
int runtime_jvm_names(struct jvm *jvm, struct memory *m, const struct runtime_words *frame,
		      struct runtime_names *ret);
/*
 * Sets the ranges of ret: the committed parts of the heaps. Heaps grow into their reserved memory.
 */
void runtime_jvm_ranges(const struct runtime_look *look, const struct pf_jvm *d,
			struct runtime_learnt *ret);
/* Releases jvm->names. */
void runtime_jvm_names_forget(struct jvm *jvm);
