/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jvm: HotSpot, JDK 8 to 25. Learns what the kernel's part needs to walk the code cache. It reads
 * HotSpot's own tables (jvm_structs.c) and the memory to which they point. jvm_names.c makes the
 * names. docs/java.md. Runs on the reader's thread.
 */
#include "node/runtime/jvm/jvm.h"

#include <stdlib.h>

#define MAJOR_MIN 8
/* not exported, so libjvm has this symbol only if it has a symbol table */
#define STUB_LIST	   "_ZN12StubCodeDesc5_listE"
#define MAJOR_MAX	   25	/* newest version of Java that is known */
#define HOPS_MAX	   4096 /* steps through the segment map to find one blob, in user space */
#define CODELETS_MAX	   4096 /* codelets of the interpreter; real JVMs have about 280 */
#define VERSION_BYTES	   48
#define CALL_STUB_BYTES	   192 /* bytes of the stub up to its call; real stubs have at most 190 */
#define CODELET_NAME_BYTES 32

static int find_symbol(void *arg, const char *name, uint64_t *ret)
{
	const struct mapping *mapping;
	uint64_t size;

	return runtime_find_mark(arg, name, &mapping, ret, &size);
}

/* Reads a pointer. -EAGAIN: the pointer is 0, so the JVM has not set it yet. */
static int pointer(struct memory *m, uint64_t at, uint64_t *ret)
{
	uint64_t value;
	int r = runtime_memory_u64(m, at, &value);

	if (r < 0)
		return r;
	if (value == 0)
		return -EAGAIN;
	*ret = value;
	return 0;
}

/* ---- version ---- */

static int read_version(struct jvm *j, struct memory *m, char ret[VERSION_BYTES])
{
	_cleanup_free_ char *release = NULL;
	const struct jvm_structs *s = &j->structs;
	uint32_t major = 0, update = 0;
	uint64_t text;
	uint8_t byte;
	int r = pointer(m, s->version_release, &text);

	if (r == 0)
		r = runtime_memory_string(m, text, VERSION_BYTES, &release);
	if (r == 0 && s->jdk_version != JVM_NONE) {
		/* the member JDK_Version::_major */
		r = runtime_memory_u8(m, s->jdk_version, &byte);
		major = byte;
	} else if (r == 0) {
		r = runtime_memory_u32(m, s->version_major, &major);
	}
	if (r == 0 && major != 8 && s->version_security != JVM_NONE)
		r = runtime_memory_u32(m, s->version_security, &update);
	if (r < 0)
		return r;
	if (major == 0)
		return -EAGAIN;
	/* In JDK 8, HotSpot has the version 25: "25.452-b09". */
	if (major == 8 && sscanf(release, "25.%u-", &update) == 1)
		snprintf(ret, VERSION_BYTES, "8u%u", update);
	else
		snprintf(ret, VERSION_BYTES, "%s", release);
	j->major = major;
	j->update = update;
	return 0;
}

/* ---- the code cache ---- */

static int read_heap(const struct jvm_structs *s, struct memory *m, uint64_t heap,
		     struct pf_jvm_heap *ret)
{
	struct pf_jvm_heap h = {0};
	int r = pointer(m, heap + s->heap_memory + s->space_low, &h.start);

	if (r == 0)
		r = pointer(m, heap + s->heap_memory + s->space_high, &h.end);
	if (r == 0)
		r = pointer(m, heap + s->heap_segmap + s->space_low, &h.segmap);
	if (r == 0)
		r = runtime_memory_u32(m, heap + s->heap_log2_segment, &h.shift);
	if (r < 0)
		return r;
	if (h.end <= h.start || h.shift < 3 || h.shift > 24)
		return -EBADMSG;
	*ret = h;
	return 0;
}

static int add_heap(struct pf_jvm *d, size_t k, const struct jvm_structs *s, struct memory *m,
		    uint64_t heap)
{
	int r = read_heap(s, m, heap, &d->heaps[k]);

	if (r < 0)
		return r;
	d->low = k ? MIN(d->low, d->heaps[k].start) : d->heaps[k].start;
	d->high = MAX(d->high, d->heaps[k].end);
	return 0;
}

static int read_heaps(struct pf_jvm *d, const struct jvm_structs *s, struct memory *m)
{
	uint64_t list, items, heap;
	uint32_t n = 0;
	int r;

	if (s->cache_heap != JVM_NONE) {
		r = pointer(m, s->cache_heap, &heap);
		return r < 0 ? r : add_heap(d, 0, s, m, heap);
	}
	r = pointer(m, s->cache_heaps, &list);
	if (r == 0)
		r = runtime_memory_u32(m, list + s->array_len, &n);
	if (r == 0)
		r = n == 0 ? -EAGAIN : n > PF_JVM_HEAPS ? -EBADMSG : 0;
	if (r == 0)
		r = pointer(m, list + s->array_data, &items);
	for (uint32_t k = 0; k < n && r == 0; k++) {
		r = pointer(m, items + 8 * k, &heap);
		if (r == 0)
			r = add_heap(d, k, s, m, heap);
	}
	return r;
}

/* Finds the blob at an address in the same way as pf_jvm_find(). */
static int find_blob(const struct pf_jvm *d, struct memory *m, uint64_t address, uint64_t *ret)
{
	for (size_t k = 0; k < PF_JVM_HEAPS; k++) {
		const struct pf_jvm_heap *h = &d->heaps[k];
		uint64_t segment = (address - h->start) >> h->shift;

		if (address < h->start || address >= h->end)
			continue;
		for (size_t hop = 0; hop < HOPS_MAX; hop++) {
			uint8_t back;
			int r = runtime_memory_u8(m, h->segmap + segment, &back);

			if (r < 0)
				return r;
			if (back == 0) {
				*ret = h->start + (segment << h->shift) + d->block_bytes;
				return 0;
			}
			if (back == 0xff || back > segment)
				return -EBADMSG;
			segment -= back;
		}
	}
	return -EBADMSG;
}

/* ---- the interpreter ---- */

/*
 * Returns whether the codelet is an entry of methods. Since JDK 22 the entries of native methods
 * have another name. All entries are next to each other.
 */
static bool is_entry(const char *name)
{
	return str_has_prefix(name, "method entry point") ||
	       str_has_prefix(name, "native method entry point");
}

/* Reads the codelets. They follow each other in memory, and each begins with its size. */
static int read_codelets(struct pf_jvm *d, const struct jvm_structs *s, struct memory *m,
			 uint64_t buffer, uint32_t bytes, uint32_t n)
{
	uint64_t at = buffer;
	int r = 0;

	for (uint32_t k = 0; k < MIN(n, (uint32_t)CODELETS_MAX) && r == 0; k++) {
		_cleanup_free_ char *text = NULL;
		uint32_t size;
		uint64_t name;

		r = runtime_memory_u32(m, at + s->codelet_size, &size);
		if (r == 0)
			r = runtime_memory_u64(m, at + s->codelet_text, &name);
		if (r == 0 && (size < s->bytes.codelet || size > bytes - (at - buffer)))
			r = -EBADMSG;
		if (r == 0 && name)
			r = runtime_memory_string(m, name, CODELET_NAME_BYTES, &text);
		if (r == 0 && text && is_entry(text)) {
			if (!d->entries)
				d->entries = at;
			d->entries_end = at + size;
		}
		at += size;
	}
	return r < 0 ? r : d->entries ? 0 : -EAGAIN;
}

static int read_interpreter(struct pf_jvm *d, const struct jvm_structs *s, struct memory *m)
{
	uint64_t queue, buffer;
	uint32_t bytes, n;
	int r = pointer(m, s->interpreter_code, &queue);

	if (r == 0)
		r = pointer(m, queue + s->queue_buffer, &buffer);
	if (r == 0)
		r = runtime_memory_u32(m, queue + s->queue_limit, &bytes);
	if (r == 0)
		r = runtime_memory_u32(m, queue + s->queue_count, &n);
	if (r == 0 && bytes > d->high - d->low)
		r = -EBADMSG;
	if (r == 0)
		r = find_blob(d, m, buffer, &d->interpreter);
	if (r < 0)
		return r;
	d->interpreter_end = buffer + bytes;
	return read_codelets(d, s, m, buffer, bytes, n);
}

/* ---- offsets ---- */

/*
 * Sets an offset for the kernel's part. Returns NULL if it can be used. Else returns the name of
 * the field: the tables do not have it, or its offset is larger than what the kernel's part reads.
 */
static const char *set_offset(uint16_t *to, uint64_t value, bool may_lack, const char *what)
{
	if (value == JVM_NONE && may_lack) {
		*to = PF_JVM_NONE;
		return NULL;
	}
	if (value > PF_JVM_READ - sizeof(uint64_t))
		return what;
	*to = value;
	return NULL;
}

static const char *set_offsets(struct pf_jvm *d, const struct jvm_structs *s)
{
	bool relative = s->blob_code_begin == JVM_NONE;
	const char *lack = NULL;

#define SET(member, value, may_lack)                                                               \
	if (!lack)                                                                                 \
		lack = set_offset(&d->member, s->value, may_lack, #value);
	SET(block_bytes, bytes.heap_block, false)
	SET(name, blob_name, false)
	SET(size, blob_size, false)
	SET(frame_size, blob_frame_size, false)
	SET(complete, blob_complete, false)
	SET(code_begin, blob_code_begin, true)
	SET(code_offset, blob_code_offset, !relative)
	SET(compile_id, nmethod_compile_id, false)
	SET(orig_pc, nmethod_orig_pc, false)
	SET(deopt_begin, nmethod_deopt_begin, true)
	SET(deopt_offset, nmethod_deopt_offset, true)
	SET(deopt_mh_begin, nmethod_deopt_mh_begin, true)
	SET(deopt_mh_offset, nmethod_deopt_mh_offset, true)
	SET(method_const, method_const, false)
	SET(const_method_bytes, bytes.const_method, false)
#undef SET
	d->complete_short = s->complete_short;
	return lack;
}

/*
 * Returns the name of a field that learn() itself needs and that the tables do not have; NULL: the
 * tables have all.
 */
static const char *lacking(const struct jvm_structs *s)
{
#define NEED(member)                                                                               \
	if (s->member == JVM_NONE)                                                                 \
		return #member;
	NEED(heap_memory)
	NEED(heap_segmap)
	NEED(heap_log2_segment)
	NEED(space_low)
	NEED(space_high)
	NEED(interpreter_code)
	NEED(call_stub_return)
	NEED(queue_buffer)
	NEED(queue_limit)
	NEED(queue_count)
	NEED(codelet_size)
	NEED(codelet_text)
	NEED(bytes.codelet)
	if (s->cache_heap == JVM_NONE) {
		NEED(cache_heaps)
		NEED(array_len)
		NEED(array_data)
	}
#undef NEED
	return NULL;
}

static int read_data(struct jvm *j, struct memory *m, struct pf_jvm *d)
{
	int r = read_heaps(d, &j->structs, m);

	/*
	 * frame_x86.hpp: since JDK 9 the mirror of the class is between the Method and the bytecode
	 * pointer.
	 */
	d->bcp_slot = j->major == 8 ? 7 : 8;
	if (r == 0)
		r = read_interpreter(d, &j->structs, m);
	if (r == 0)
		r = pointer(m, j->structs.call_stub_return, &d->call_stub);
	d->call_stub -= CALL_STUB_BYTES;
	return r;
}

/* ---- learn ---- */

void runtime_jvm_ranges(const struct runtime_look *look, const struct pf_jvm *d,
			struct runtime_learnt *ret)
{
	bool all = true;

	ret->ranges = xcalloc(RUNTIME_RANGES_MAX, sizeof(*ret->ranges));
	for (size_t i = 0; i < look->maps->n && all; i++) {
		const struct mapping *m = &look->maps->items[i];

		for (size_t k = 0; k < PF_JVM_HEAPS && all; k++) {
			uint64_t start = MAX(m->start, d->heaps[k].start);
			uint64_t end = MIN(m->end, d->heaps[k].end);

			/*
			 * A hostile process may claim that code of a file is generated. So mappings
			 * of files with an index never become ranges.
			 */
			if (start >= end || look->indexes[i])
				continue;
			all = ret->n_ranges < RUNTIME_RANGES_MAX;
			if (all)
				ret->ranges[ret->n_ranges++] = (struct runtime_range){
					.start = start, .end = end, .managed = true};
		}
	}
	if (!all)
		runtime_ranges_cut(ret, "areas of generated code");
}

static struct jvm *jvm_free(struct jvm *j)
{
	if (j) {
		runtime_jvm_names_forget(j);
		runtime_jvm_structs_done(&j->structs);
		free(j);
	}
	return NULL;
}

static void forget(void *state)
{
	jvm_free(state);
}

/* Sets ret's version, and either its problem or its data. */
static int look_at(struct jvm *j, const struct runtime_look *look, struct runtime_learnt *ret)
{
	struct pf_jvm d = {0};
	const char *lack;
	int r = -EBADMSG;

	if (j->structs.version_release != JVM_NONE &&
	    (j->structs.jdk_version != JVM_NONE || j->structs.version_major != JVM_NONE))
		r = read_version(j, look->memory, ret->version);
	if (r < 0)
		return r;
	lack = lacking(&j->structs);
	if (!lack)
		lack = set_offsets(&d, &j->structs);
	if (j->major < MAJOR_MIN || j->major > MAJOR_MAX) {
		snprintf(ret->problem, sizeof(ret->problem),
			 "podflame does not know Java %u, only %d to %d: it shows native frames "
			 "alone",
			 j->major, MAJOR_MIN, MAJOR_MAX);
		return 0;
	}
	if (lack) {
		snprintf(ret->problem, sizeof(ret->problem),
			 "the tables of this Java lack %s: podflame shows its native frames alone",
			 lack);
		return 0;
	}
	r = read_data(j, look->memory, &d);
	if (r < 0)
		return r;
	ret->data = xmemdup(&d, sizeof(d));
	ret->data_bytes = sizeof(d);
	runtime_jvm_ranges(look, &d, ret);
	return 0;
}

static int other_vm(const struct runtime_look *look, struct runtime_learnt *ret)
{
	const struct mapping *mapping;
	uint64_t address, size;
	int r = runtime_find_mark(look, "J9VMDllMain", &mapping, &address, &size);

	if (r < 0)
		return -ENOENT;
	*ret = (struct runtime_learnt){.version = "OpenJ9",
				       .problem = "podflame does not know OpenJ9: it shows native "
						  "frames alone"};
	return 0;
}

static int learn(const struct runtime_look *look, struct runtime_learnt *old,
		 struct runtime_learnt *ret)
{
	struct runtime_learnt l = {0};
	struct jvm *j = old ? old->state : NULL;
	const struct mapping *mapping;
	uint64_t address, size;
	int r;

	if (runtime_find_mark(look, "gHotSpotVMStructs", &mapping, &address, &size) < 0)
		return other_vm(look, ret);
	if (!j) {
		struct jvm_structs structs;

		r = runtime_jvm_structs_read(look->memory, find_symbol, (void *)look, &structs);
		if (r < 0)
			return r;
		j = xcalloc(1, sizeof(*j));
		j->structs = structs;
		if (runtime_find_mark(look, STUB_LIST, &mapping, &address, &size) == 0)
			j->stub_list = address;
	}
	r = look_at(j, look, &l);
	if (r < 0) {
		if (!old || old->state != j)
			jvm_free(j);
		return r;
	}
	if (old)
		old->state = NULL;
	l.state = j;
	*ret = l;
	return 0;
}

static int resolve(void *state, struct memory *m, const struct runtime_words *frame,
		   const struct runtime_words *caller, struct runtime_names *ret)
{
	(void)caller;
	return runtime_jvm_names(state, m, frame, ret);
}

static const char *const marks[] = {"gHotSpotVM*", STUB_LIST, "J9VMDllMain", NULL};

const struct runtime_ops runtime_jvm_runtime = {
	.name = "jvm",
	.title = "HotSpot",
	.frame_kind = FRAME_JVM,
	.marks = marks,
	.learn = learn,
	.resolve = resolve,
	.forget = forget,
};
