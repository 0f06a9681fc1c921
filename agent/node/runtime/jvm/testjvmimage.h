/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: memory like HotSpot's, with methods, constants and compiled code. The offsets come
 * from the tables of real JDKs (8u504, 11.0.13, 17.0.15 and 25.0.2). Those of JDK 24 come from its
 * nmethod.hpp.
 */
#pragma once

#include "node/runtime/jvm/jvm.h"
#include "node/runtime/jvm/jvm_scopes.h"

#define IMAGE_BASE  0x7f0000000000ull
#define IMAGE_BYTES (1u << 18)

struct image {
	struct memory memory;
	struct jvm jvm;
	unsigned n_reads;
	uint32_t used;
	uint8_t bytes[IMAGE_BYTES];
};

static inline int image_read(void *arg, uint64_t address, void *to, size_t n)
{
	struct image *i = arg;

	i->n_reads++;
	if (address < IMAGE_BASE || address - IMAGE_BASE > IMAGE_BYTES ||
	    n > IMAGE_BYTES - (address - IMAGE_BASE))
		return -EFAULT;
	memcpy(to, i->bytes + (address - IMAGE_BASE), n);
	return 0;
}

static inline void image_structs(unsigned major, struct jvm_structs *s)
{
	struct jvm_structs none;

	memset(&none, 0xff, sizeof(none)); /* sets all members to JVM_NONE */
	none.stubs = NULL;
	none.n_stubs = 0;
	*s = none;
	s->method_const = 8;
	s->const_constants = 8;
	s->pool_tags = 8;
	s->pool_holder = 24;
	s->pool_length = major == 11 ? 52 : 60;
	s->klass_name = major == 8 ? 16 : 24;
	s->const_size = major == 11 ? 32 : 24;
	s->const_flags = s->const_size + 4;
	s->const_code_size = s->const_size + (major >= 24 ? 10 : 8);
	s->const_name = s->const_code_size + 2;
	s->bytes.const_method = major == 11 || major >= 24 ? 56 : 48;
	s->bytes.constant_pool = major == 8 ? 80 : major == 11 ? 64 : 72;
	s->symbol_length = major >= 17 ? 4 : 0;
	*(major >= 17 ? &s->symbol_hash_ref : &s->symbol_hash) = major >= 17 ? 0 : 4;
	s->symbol_body = major == 8 ? 8 : 6;
	*(major >= 17 ? &s->pool_source_file : &s->class_source_file) = major >= 17   ? 54
									: major == 11 ? 298
										      : 258;
	s->blob_name = major == 8 || major >= 24 ? 8 : 96;
	s->nmethod_method = major == 8 ? 64 : major >= 24 ? 80 : 112;
	s->nmethod_compile_id = major == 8 ? 204 : major == 11 ? 324 : major == 17 ? 304 : 212;
	s->nmethod_scopes_pcs = major == 8 ? 180 : major == 11 ? 300 : major == 17 ? 268 : 196;
	if (major >= 24) {
		s->blob_code_offset = 36;
		if (major == 25) {
			s->blob_mutable_data = 16;
			s->blob_mutable_bytes = 48;
			s->blob_relocation_bytes = 28;
		} else {
			s->blob_size = 24;
			s->blob_data_offset = 40;
			s->nmethod_metadata = 190;
		}
		s->nmethod_scopes_data = 200;
		s->nmethod_immutable = 96;
		s->nmethod_immutable_bytes = 160;
		return;
	}
	s->nmethod_dependencies = s->nmethod_scopes_pcs + 4;
	s->nmethod_metadata = s->nmethod_scopes_pcs - 8;
	if (major == 8) {
		s->blob_code_offset = 32;
		s->nmethod_scopes_data = 176;
	} else {
		s->blob_code_begin = 32;
		s->nmethod_scopes_begin = 120;
	}
}

static inline void image_init(struct image *i, unsigned major)
{
	memset(i, 0, sizeof(*i));
	i->memory = (struct memory){.read = image_read, .arg = i, .budget_bytes = SIZE_MAX};
	i->used = 64;
	i->jvm.major = major;
	image_structs(major, &i->jvm.structs);
}

/* ---- objects in the memory; each function returns an address ---- */

static inline uint64_t image_room(struct image *i, uint32_t n)
{
	uint64_t at = IMAGE_BASE + i->used;

	i->used += (n + 15) & ~15u;
	if (i->used > IMAGE_BYTES)
		abort();
	return at;
}

static inline void image_put(struct image *i, uint64_t at, const void *p, size_t n)
{
	if (n)
		memcpy(i->bytes + (at - IMAGE_BASE), p, n);
}

static inline void image_u16(struct image *i, uint64_t at, uint16_t v)
{
	image_put(i, at, &v, sizeof(v));
}

static inline void image_u32(struct image *i, uint64_t at, uint32_t v)
{
	image_put(i, at, &v, sizeof(v));
}

static inline void image_u64(struct image *i, uint64_t at, uint64_t v)
{
	image_put(i, at, &v, sizeof(v));
}

static inline uint64_t image_bytes(struct image *i, const void *p, size_t n)
{
	uint64_t at = image_room(i, (uint32_t)n + 1);

	image_put(i, at, p, n);
	return at;
}

static inline uint64_t image_symbol(struct image *i, const char *text, uint16_t hash)
{
	const struct jvm_structs *s = &i->jvm.structs;
	uint64_t at = image_room(i, (uint32_t)(s->symbol_body + strlen(text)));

	if (s->symbol_hash_ref != JVM_NONE)
		image_u32(i, at + s->symbol_hash_ref, (uint32_t)hash << 16 | 7);
	else
		image_u16(i, at + s->symbol_hash, hash);
	image_u16(i, at + s->symbol_length, (uint16_t)strlen(text));
	image_put(i, at + s->symbol_body, text, strlen(text));
	return at;
}

/*
 * A class of one method. Constant 1 is the method's name, and constant 2 that of the source file.
 */
struct image_method {
	uint64_t method, const_method, pool, klass, tags;
};

static inline void image_pool(struct image *i, struct image_method *m, const char *name,
			      const char *file)
{
	const struct jvm_structs *s = &i->jvm.structs;
	const uint8_t tags[] = {3, 0, 0, 0, 0, 1, 1};

	m->pool = image_room(i, (uint32_t)s->bytes.constant_pool + 3 * 8);
	m->tags = image_bytes(i, tags, sizeof(tags));
	image_u64(i, m->pool + s->pool_tags, m->tags);
	image_u64(i, m->pool + s->pool_holder, m->klass);
	image_u32(i, m->pool + s->pool_length, 3);
	image_u64(i, m->pool + s->bytes.constant_pool + 8, image_symbol(i, name, 11));
	image_u64(i, m->pool + s->bytes.constant_pool + 16, image_symbol(i, file, 12));
	if (s->pool_source_file != JVM_NONE)
		image_u16(i, m->pool + s->pool_source_file, 2);
	else
		image_u16(i, m->klass + s->class_source_file, 2);
}

/*
 * Makes a method with 10 bytes of code. lines: compressed, with their end; n 0: the method has
 * none.
 */
static inline struct image_method image_method(struct image *i, const char *class_name,
					       const char *name, const char *file,
					       const uint8_t *lines, size_t n)
{
	const struct jvm_structs *s = &i->jvm.structs;
	struct image_method m = {.klass = image_room(i, 400), .method = image_room(i, 88)};
	uint32_t words = (uint32_t)(s->bytes.const_method + 10 + n + 7) / 8;

	image_u64(i, m.klass + s->klass_name, image_symbol(i, class_name, 10));
	image_pool(i, &m, name, file);
	m.const_method = image_room(i, words * 8);
	image_u64(i, m.method + s->method_const, m.const_method);
	image_u64(i, m.const_method + s->const_constants, m.pool);
	image_u32(i, m.const_method + s->const_size, words);
	image_u16(i, m.const_method + s->const_flags, n ? 1 : 0);
	image_u16(i, m.const_method + s->const_code_size, 10);
	image_u16(i, m.const_method + s->const_name, 1);
	image_put(i, m.const_method + s->bytes.const_method + 10, lines, n);
	return m;
}

/* ---- numbers as HotSpot's compilers write them ---- */

static inline void image_number(uint8_t *to, size_t *n, uint32_t value, bool no_zero)
{
	uint32_t excluded = no_zero ? 1 : 0, low = 192 - excluded;

	for (unsigned k = 0;; k++) {
		if (value < low || k == 4) {
			to[(*n)++] = (uint8_t)(excluded + value);
			return;
		}
		value -= low;
		to[(*n)++] = (uint8_t)(192 + value % 64);
		value >>= 6;
	}
}

struct image_debug {
	struct jvm_pc pcs[8]; /* without the sentinels */
	size_t n_pcs;
	uint8_t data[256];
	size_t n_data;
	uint64_t methods[8];
	size_t n_methods;
};

/* Adds a scope. Returns its offset, for a PcDesc or an inlined scope. */
static inline uint32_t image_scope(struct image_debug *d, uint32_t caller, uint32_t method,
				   int32_t bci, bool no_zero)
{
	uint32_t at;

	if (d->n_data == 0)
		d->data[d->n_data++] = 0xff; /* because offset 0 means that there is no scope */
	at = (uint32_t)d->n_data;
	image_number(d->data, &d->n_data, caller, no_zero);
	image_number(d->data, &d->n_data, method, no_zero);
	image_number(d->data, &d->n_data, (uint32_t)(bci + 1), no_zero);
	return at;
}

/* Makes a compiled method with 256 bytes of code. *ret_code: address of the code. */
static inline uint64_t image_nmethod(struct image *i, uint64_t method, uint32_t id,
				     const struct image_debug *d, uint64_t *ret_code)
{
	const struct jvm_structs *s = &i->jvm.structs;
	struct jvm_pc first = {.pc = -1}, last = {.pc = INT32_MAX};
	uint64_t nm = image_room(i, 384), code = image_room(i, 256);
	uint64_t methods = image_bytes(i, d->methods, d->n_methods * 8), pcs, data = 0;

	if (s->nmethod_immutable == JVM_NONE)
		data = image_bytes(i, d->data, d->n_data);
	pcs = image_room(i, (uint32_t)(d->n_pcs + 2) * sizeof(first));
	image_put(i, pcs, &first, sizeof(first));
	image_put(i, pcs + sizeof(first), d->pcs, d->n_pcs * sizeof(first));
	image_put(i, pcs + (d->n_pcs + 1) * sizeof(first), &last, sizeof(last));
	image_u64(i, nm + s->nmethod_method, method);
	image_u32(i, nm + s->nmethod_compile_id, id);
	image_u64(i, nm + s->blob_name, image_bytes(i, "nmethod", 8));
	*ret_code = code;
	if (s->blob_code_begin != JVM_NONE)
		image_u64(i, nm + s->blob_code_begin, code);
	else
		image_u32(i, nm + s->blob_code_offset, (uint32_t)(code - nm));
	if (s->nmethod_immutable != JVM_NONE) {
		data = image_bytes(i, d->data, d->n_data);
		image_u64(i, nm + s->nmethod_immutable, pcs - 8);
		image_u32(i, nm + s->nmethod_scopes_pcs, 8);
		image_u32(i, nm + s->nmethod_scopes_data, (uint32_t)(data - pcs + 8));
		image_u32(i, nm + s->nmethod_immutable_bytes,
			  (uint32_t)(data + d->n_data - pcs + 8));
		if (s->blob_mutable_data != JVM_NONE) {
			image_u64(i, nm + s->blob_mutable_data, methods - 16);
			image_u32(i, nm + s->blob_relocation_bytes, 16);
			image_u32(i, nm + s->blob_mutable_bytes,
				  16 + (uint32_t)d->n_methods * 8);
			return nm;
		}
		/*
		 * The data begins with an oop of 8 bytes, and the methods follow. Their offset has
		 * 2 bytes; the 2 bytes after it must not be read as a part of it.
		 */
		image_u32(i, nm + s->blob_size,
			  (uint32_t)(methods + d->n_methods * 8 - nm));
		image_u32(i, nm + s->blob_data_offset, (uint32_t)(methods - 8 - nm));
		image_u16(i, nm + s->nmethod_metadata, 8);
		image_u16(i, nm + s->nmethod_metadata + 2, 0xffff);
		return nm;
	}
	image_u32(i, nm + s->nmethod_metadata, (uint32_t)(methods - nm));
	if (s->nmethod_scopes_begin != JVM_NONE)
		image_u64(i, nm + s->nmethod_scopes_begin, data);
	else
		image_u32(i, nm + s->nmethod_scopes_data, (uint32_t)(data - nm));
	image_u32(i, nm + s->nmethod_scopes_pcs, (uint32_t)(pcs - nm));
	image_u32(i, nm + s->nmethod_dependencies,
		  (uint32_t)(pcs - nm + (d->n_pcs + 2) * sizeof(first)));
	return nm;
}
