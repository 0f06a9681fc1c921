/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of HotSpot's frames. An interpreted frame is one method. A compiled frame is the compiled
 * method and the methods that the compiler inlined at that address. The name of any other code is
 * the name of its blob. Runs on the reader's thread.
 */
#include "node/runtime/jvm/jvm.h"
#include "node/runtime/jvm/jvm_method.h"
#include "node/runtime/jvm/jvm_scopes.h"
#include "node/runtime/jvm/jvm_stubs.h"

#include <stdlib.h>

#define BLOB_NAME_MAX 128 /* bytes of the name of a CodeBlob; a longer one is cut */

struct jvm_names {
	struct jvm_methods *methods;
	struct jvm_stubs *stubs; /* NULL: not read yet */
};

/*
 * Returns whether the tables have the fields that all known versions have. If one is missing,
 * podflame does not know this HotSpot.
 */
static bool has_fields(const struct jvm_structs *s)
{
	const uint64_t needed[] = {
		s->blob_name,	       s->nmethod_method,      s->nmethod_compile_id,
		s->nmethod_scopes_pcs, s->method_const,	       s->const_size,
		s->const_constants,    s->const_flags,	       s->const_code_size,
		s->const_name,	       s->pool_holder,	       s->pool_length,
		s->pool_tags,	       s->klass_name,	       s->symbol_body,
		s->bytes.const_method, s->bytes.constant_pool,
	};

	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		if (needed[i] == JVM_NONE)
			return false;
	return (s->symbol_length != JVM_NONE || s->symbol_length_ref != JVM_NONE) &&
	       (s->symbol_hash != JVM_NONE || s->symbol_hash_ref != JVM_NONE) &&
	       (s->blob_code_begin != JVM_NONE || s->blob_code_offset != JVM_NONE);
}

static void add_method(const struct jvm *jvm, const struct jvm_method *method, int32_t bci,
		       bool inlined, struct runtime_names *ret)
{
	uint32_t line = runtime_jvm_line(method->lines, method->n_lines, jvm_no_zero(jvm), bci);

	runtime_names_add(ret, xstrdup(method->name), xstrdup(method->file), line, inlined);
}

/* ---- interpreted frames ---- */

static int name_interpreted(struct jvm *jvm, struct memory *m, const struct runtime_words *w,
			    struct runtime_names *ret)
{
	const struct jvm_method *method;
	uint32_t bci = JVM_UPPER(w->b);
	int r = runtime_jvm_methods_get(jvm->names->methods, jvm, m, w->a, &method);

	if (r < 0)
		return r;
	if (method->id.const_method != JVM_ADDRESS(w->b))
		return -ESTALE;
	add_method(jvm, method, bci == JVM_BCI_UNKNOWN ? JVM_BCI_NONE : (int32_t)bci, false, ret);
	return 0;
}

/* ---- compiled frames ---- */

/* Calculates base + the u4 at blob + offset. */
static int part_of(struct memory *m, uint64_t blob, uint64_t offset, uint64_t base, uint64_t *ret)
{
	uint32_t by;
	int r;

	if (offset == JVM_NONE)
		return -ENOENT;
	r = runtime_memory_u32(m, blob + offset, &by);
	if (r == 0)
		*ret = base + by;
	return r;
}

static int pointer_of(struct memory *m, uint64_t blob, uint64_t offset, uint64_t *ret)
{
	return offset == JVM_NONE ? -ENOENT : runtime_memory_u64(m, blob + offset, ret);
}

static int code_begin(const struct jvm_structs *s, struct memory *m, uint64_t blob, uint64_t *ret)
{
	return s->blob_code_begin != JVM_NONE ? pointer_of(m, blob, s->blob_code_begin, ret)
					      : part_of(m, blob, s->blob_code_offset, blob, ret);
}

/*
 * Finds the array of Methods (nmethod.hpp). JDK 25: it is an allocation of its own. JDK 23 and 24:
 * it is after the code; a u2 gives its distance from the beginning of the data.
 */
static int methods_of(const struct jvm_structs *s, struct memory *m, uint64_t nm,
		      struct jvm_debug *ret)
{
	uint64_t data;
	uint16_t by = 0;
	int r;

	if (s->blob_mutable_data != JVM_NONE) {
		r = pointer_of(m, nm, s->blob_mutable_data, &data);
		if (r == 0)
			r = part_of(m, nm, s->blob_relocation_bytes, data, &ret->metadata);
		return r < 0 ? r : part_of(m, nm, s->blob_mutable_bytes, data, &ret->metadata_end);
	}
	if (s->nmethod_metadata == JVM_NONE)
		return -ENOENT;
	r = part_of(m, nm, s->blob_data_offset, nm, &data);
	if (r == 0)
		r = runtime_memory_u16(m, nm + s->nmethod_metadata, &by);
	if (r == 0)
		r = part_of(m, nm, s->blob_size, nm, &ret->metadata_end);
	if (r == 0)
		ret->metadata = data + by;
	return r;
}

/*
 * Finds scopes and PcDescs in JDK 23 and later: they are in one allocation of their own
 * (nmethod.hpp).
 */
static int debug_outside(const struct jvm_structs *s, struct memory *m, uint64_t nm,
			 struct jvm_debug *ret)
{
	uint64_t immutable;
	int r = pointer_of(m, nm, s->nmethod_immutable, &immutable);

	if (r == 0)
		r = part_of(m, nm, s->nmethod_scopes_pcs, immutable, &ret->pcs);
	if (r == 0)
		r = part_of(m, nm, s->nmethod_scopes_data, immutable, &ret->data);
	if (r == 0)
		r = part_of(m, nm, s->nmethod_immutable_bytes, immutable, &ret->data_end);
	if (r == 0)
		r = methods_of(s, m, nm, ret);
	ret->pcs_end = ret->data;
	return r;
}

/*
 * Finds Methods, scopes and PcDescs in JDK 22 and earlier: they come after the code, in this order.
 */
static int debug_behind(const struct jvm_structs *s, struct memory *m, uint64_t nm,
			struct jvm_debug *ret)
{
	int r = part_of(m, nm, s->nmethod_metadata, nm, &ret->metadata);

	if (r == 0 && s->nmethod_scopes_begin != JVM_NONE)
		r = pointer_of(m, nm, s->nmethod_scopes_begin, &ret->data);
	else if (r == 0)
		r = part_of(m, nm, s->nmethod_scopes_data, nm, &ret->data);
	if (r == 0)
		r = part_of(m, nm, s->nmethod_scopes_pcs, nm, &ret->pcs);
	if (r == 0)
		r = part_of(m, nm, s->nmethod_dependencies, nm, &ret->pcs_end);
	ret->metadata_end = ret->data;
	ret->data_end = ret->pcs;
	return r;
}

/* Finds the scopes at the frame's address. -ENOENT: the address has none. */
static int scopes_of(const struct jvm *jvm, struct memory *m, const struct runtime_words *w,
		     struct jvm_scope scopes[JVM_SCOPES_MAX], size_t *ret_n)
{
	const struct jvm_structs *s = &jvm->structs;
	struct jvm_debug debug = {.no_zero = jvm_no_zero(jvm)};
	bool interrupted = w->type == JVM_FRAME_INTERRUPTED;
	uint64_t nm = JVM_ADDRESS(w->a), pc = JVM_ADDRESS(w->b) - interrupted, begin;
	int r = code_begin(s, m, nm, &begin);

	if (r == 0 && (pc < begin || pc - begin > INT32_MAX))
		return -ESTALE;
	if (r == 0 && s->nmethod_immutable != JVM_NONE)
		r = debug_outside(s, m, nm, &debug);
	else if (r == 0)
		r = debug_behind(s, m, nm, &debug);
	if (r < 0)
		return r;
	debug.code = begin;
	return runtime_jvm_scopes_at(m, &debug, (uint32_t)(pc - begin), interrupted, scopes, ret_n);
}

static int check_compile_id(const struct jvm *jvm, struct memory *m, const struct runtime_words *w)
{
	uint32_t id;
	int r = runtime_memory_u32(m, JVM_ADDRESS(w->a) + jvm->structs.nmethod_compile_id, &id);

	return r < 0 ? r : id == jvm_compile_id(w) ? 0 : -ESTALE;
}

static int name_compiled(struct jvm *jvm, struct memory *m, const struct runtime_words *w,
			 struct runtime_names *ret)
{
	struct jvm_scope scopes[JVM_SCOPES_MAX];
	const struct jvm_method *method;
	uint64_t root;
	size_t n = 0;
	int r = check_compile_id(jvm, m, w);

	if (r == 0)
		r = runtime_memory_u64(m, JVM_ADDRESS(w->a) + jvm->structs.nmethod_method, &root);
	if (r == 0)
		r = scopes_of(jvm, m, w, scopes, &n);
	/*
	 * The wrapper of a native method, or an address after the last entry: only the method is
	 * certain.
	 */
	if (r == -ENOENT) {
		scopes[0] = (struct jvm_scope){root, JVM_BCI_NONE};
		n = 1;
		r = 0;
	}
	if (r == 0 && scopes[n - 1].method != root)
		r = -ESTALE;
	for (size_t i = n; r == 0 && i-- > 0;) {
		r = runtime_jvm_methods_get(jvm->names->methods, jvm, m, scopes[i].method, &method);
		if (r == 0)
			add_method(jvm, method, scopes[i].bci, i + 1 < n, ret);
	}
	/* The memory may have been freed while this function read it. */
	return r < 0 ? r : check_compile_id(jvm, m, w);
}

/* ---- stubs ---- */

static const char *find_stub(struct jvm *jvm, struct memory *m, uint64_t address)
{
	if (!jvm->stub_list)
		return NULL;
	if (!jvm->names->stubs)
		jvm->names->stubs = runtime_jvm_stubs_read(m, jvm->stub_list);
	return runtime_jvm_stubs_find(jvm->names->stubs, address);
}

/*
 * Returns whether the stub is the return barrier of virtual threads. If a virtual thread has
 * waited, its frames are in the heap. When a function returns to this stub, the stub brings one of
 * these frames back (stubGenerator_x86_64.cpp, JDK 21 and 25).
 */
static bool is_return_barrier(const char *stub)
{
	return streq(stub, "Cont thaw return barrier") || streq(stub, "cont_returnBarrier");
}

static int name_stub(struct jvm *jvm, struct memory *m, const struct runtime_words *w,
		     struct runtime_names *ret)
{
	const char *stub = find_stub(jvm, m, JVM_ADDRESS(w->b));
	_cleanup_free_ char *name = NULL;
	uint64_t address;
	int r = 0;

	ret->kind = FRAME_LIBRARY;
	if (stub && is_return_barrier(stub)) {
		ret->kind = FRAME_MARKER;
		runtime_names_add(ret, xstrdup("[jvm: frames_in_heap]"), NULL, 0, false);
		return 0;
	}
	if (stub) {
		runtime_names_add(ret, xstrdup(stub), NULL, 0, false);
		return 0;
	}
	r = runtime_memory_u64(m, JVM_ADDRESS(w->a) + jvm->structs.blob_name, &address);
	if (r == 0)
		r = runtime_memory_string(m, address, BLOB_NAME_MAX, &name);
	if (r < 0)
		return r;
	if (!*name)
		return -ESTALE;
	runtime_names_add(ret, elf_text_clean(name), NULL, 0, false);
	return 0;
}

/* Names the class of an allocated object. w->a is a Klass*. */
static int name_object(struct jvm *jvm, struct memory *m, const struct runtime_words *w,
		       struct runtime_names *ret)
{
	char *name;
	int r = runtime_jvm_class_name(jvm, m, w->a, &name);

	if (r < 0)
		return r;
	ret->kind = FRAME_OBJECT;
	runtime_names_add(ret, name, NULL, 0, false);
	return 0;
}

int runtime_jvm_names(struct jvm *jvm, struct memory *m, const struct runtime_words *frame,
		      struct runtime_names *ret)
{
	struct runtime_names names = {.kind = FRAME_JVM};
	int r = -EINVAL;

	if (!has_fields(&jvm->structs))
		return -EOPNOTSUPP;
	if (!jvm->names) {
		jvm->names = xcalloc(1, sizeof(*jvm->names));
		jvm->names->methods = runtime_jvm_methods_new();
	}
	if (frame->type == JVM_FRAME_INTERPRETED)
		r = name_interpreted(jvm, m, frame, &names);
	else if (frame->type == JVM_FRAME_COMPILED || frame->type == JVM_FRAME_INTERRUPTED)
		r = name_compiled(jvm, m, frame, &names);
	else if (frame->type == JVM_FRAME_STUB)
		r = name_stub(jvm, m, frame, &names);
	else if (frame->type == PF_TYPE_OBJECT)
		r = name_object(jvm, m, frame, &names);
	if (r < 0) {
		runtime_names_done(&names);
		return r;
	}
	*ret = names;
	return 0;
}

void runtime_jvm_names_forget(struct jvm *jvm)
{
	if (jvm->names) {
		runtime_jvm_methods_free(jvm->names->methods);
		runtime_jvm_stubs_free(jvm->names->stubs);
	}
	free(jvm->names);
	jvm->names = NULL;
}
