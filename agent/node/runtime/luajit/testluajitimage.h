/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: a made-up process that runs LuaJIT, and bpf/unwind.h to walk it. One piece of memory
 * has the lua_States, their stacks, functions and the C stack. The image has no code of the
 * interpreter, only its addresses.
 */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "bpf/host.h"
#include "bpf/unwind.h"

#include "node/runtime/luajit/luajit.h"

#define BASE	    0x7f0000100000ull
#define BYTES	    0x10000u
#define VM	    0x500000ull
#define VM_BYTES    0x4000u
#define TRACES	    0x600000ull
#define TRACES_SIZE 0x10000u
#define C_STACK	    (BASE + 0xc000) /* the C stack is from here to the end of the memory */
#define EXIT_AT	    (VM + 0x3000)
#define ENTRY_AT    0x1000
#define LEAVE_AT    0x1100
/* offset of a call before which base was stored in L and PC in the C frame */
#define CALL_SAVED  0x200
#define CALL_IN_RBP 0x300
#define G_CUR_L	    0x100
#define G_JIT_BASE  0x108
#define G_VMSTATE   0x110
#define G_TRACES    0x118
#define G_DISPATCH  0xf80

enum { AT_RDX = 1, AT_RBX = 3, AT_R14 = 14 };

static struct {
	uint8_t bytes[BYTES];
	uint32_t used;
	uint8_t *chunks[2]; /* 0: mappings; 1: data */
	struct pf_file file;
	struct pf_scratch scratch;
	struct pf_luajit *luajit;
	unsigned reads;
} image;

static bool image_copy(uint64_t address, void *to, size_t n)
{
	if (address < BASE || address - BASE > BYTES || n > BYTES - (address - BASE))
		return false;
	memcpy(to, image.bytes + (address - BASE), n);
	return true;
}

static long bpf_probe_read_user(void *to, uint32_t n, const void *address)
{
	image.reads++;
	if (image_copy((uintptr_t)address, to, n))
		return 0;
	memset(to, 0, n); /* as the kernel does after a failed read */
	return -14;
}

static void *bpf_map_lookup_elem(void *map, const void *key)
{
	uint32_t k = *(const uint32_t *)key;

	if (map == &unwind_files)
		return k == 0 ? &image.file : NULL;
	if (map == &chunks)
		return k < 2 && image.chunks[k] ? &image.chunks[k] : NULL;
	return k == 0 ? *(uint8_t **)map : NULL; /* an inner map, which has one value */
}

static inline int image_read(void *arg, uint64_t address, void *to, size_t n)
{
	(void)arg;
	return image_copy(address, to, n) ? 0 : -14;
}

/* ---- objects in the memory ---- */

static inline void put(uint64_t at, const void *p, size_t n)
{
	if (at < BASE || at - BASE > BYTES || n > BYTES - (at - BASE))
		abort();
	memcpy(image.bytes + (at - BASE), p, n);
}

static inline void put64(uint64_t at, uint64_t v)
{
	put(at, &v, sizeof(v));
}

static inline uint64_t room(uint32_t n)
{
	uint64_t at = BASE + image.used;

	image.used += (n + 15) & ~15u;
	if (at + n > C_STACK)
		abort();
	return at;
}

static inline uint64_t image_string(const char *text)
{
	uint64_t at = room((uint32_t)strlen(text) + 25);

	put(at + 9, "\4", 1);
	put(at + 24, text, strlen(text) + 1);
	return at;
}

/*
 * A GCproto with bytecode, constants before k, one byte of line information for each instruction,
 * and debug names.
 */
struct image_proto {
	uint64_t at, bc;
};
struct image_code {
	const char *chunk;
	uint32_t first_line, lines;
	const uint32_t *code;
	uint32_t n_code;
	const char *constants[4]; /* constants[0] is k[-1] */
	const char *upvalues;	  /* names, separated by NUL */
	uint32_t upvalues_bytes, n_upvalues;
	const char *locals;
	uint32_t locals_bytes;
};
static inline struct image_proto image_proto(const struct image_code *c)
{
	uint32_t tail =
		104 + 4 * c->n_code + 4 * 8 + c->n_code + c->upvalues_bytes + c->locals_bytes;
	uint64_t at = room(tail), k = at + 104 + 4 * c->n_code + 32, line = k;
	struct pf_luajit_proto p = {
		.gct = PF_LUAJIT_GCT_PROTO,
		.sizebc = c->n_code,
		.k = k,
		.sizept = tail,
		.sizeuv = (uint8_t)c->n_upvalues,
		.chunkname = image_string(c->chunk),
		.firstline = c->first_line,
		.numline = c->lines,
	};

	put(at, &p, sizeof(p));
	put64(at + 80, line);
	put64(at + 88, c->upvalues_bytes ? line + c->n_code : 0);
	put64(at + 96, c->locals_bytes ? line + c->n_code + c->upvalues_bytes : 0);
	put(at + 104, c->code, 4 * c->n_code);
	for (uint32_t i = 0; i < 4 && c->constants[i]; i++)
		put64(k - 8 * (i + 1), image_string(c->constants[i]));
	for (uint32_t i = 1; i < c->n_code; i++)
		put(line + i - 1, &(uint8_t){(uint8_t)i}, 1);
	put(line + c->n_code, c->upvalues, c->upvalues_bytes);
	put(line + c->n_code + c->upvalues_bytes, c->locals, c->locals_bytes);
	return (struct image_proto){at, at + 104};
}

/*
 * Returns a tagged address of a function. bc: the bytecode of its proto; is_c: it is a C function.
 */
#define TAGGED(at, gct) ((at) | (0x1ffffull - (gct)) << 47)
static inline uint64_t image_function(uint64_t bc, bool is_c)
{
	struct pf_luajit_func f = {.gct = PF_LUAJIT_GCT_FUNC, .ffid = is_c, .pc = bc};
	uint64_t at = room(sizeof(f));

	put(at, &f, sizeof(f));
	return TAGGED(at, PF_LUAJIT_GCT_FUNC);
}

#define SLOTS 256
static inline uint64_t image_state(uint64_t g)
{
	uint64_t at = room(96), stack = room(8 * SLOTS);
	struct pf_luajit_state l = {
		.gct = PF_LUAJIT_GCT_THREAD,
		.glref = g,
		.stack = stack,
		.base = stack + 16,
		.maxstack = stack + 8 * (SLOTS - 72),
	};

	put(at, &l, sizeof(l));
	put64(stack, TAGGED(at, PF_LUAJIT_GCT_THREAD));
	return at;
}

static inline uint64_t stack_of(uint64_t state)
{
	uint64_t stack = 0;

	image_copy(state + 56, &stack, 8);
	return stack;
}

/* Makes a frame whose base is slot `slot`. Returns base. */
static inline uint64_t image_frame(uint64_t state, uint32_t slot, uint64_t function, uint64_t link)
{
	uint64_t base = stack_of(state) + 8ull * slot;

	put64(base - 16, function);
	put64(base - 8, link);
	return base;
}

/* Makes a C frame at `at`, which returns to ip with rbp. L->cframe points to the newest C frame. */
static inline void image_c_frame(uint64_t at, uint64_t state, uint64_t previous, uint64_t pc,
				 int32_t nres, uint64_t rbp, uint64_t ip)
{
	put64(at + 8, (uint32_t)nres);
	put64(at + 16, state);
	put64(at + 24, pc);
	put64(at + 32, previous);
	put64(at + 64, rbp);
	put64(at + 72, ip);
}

static inline void image_set(uint64_t state, uint64_t base, uint64_t c_frame)
{
	put64(state + 32, base);
	put64(state + 80, c_frame);
}

/* ---- the process ---- */

static inline void image_begin(void)
{
	struct pf_mapping *m;
	struct pf_luajit *d;

	for (int i = 0; i < 2; i++) {
		free(image.chunks[i]);
		image.chunks[i] = calloc(1, PF_CHUNK_BYTES);
		if (!image.chunks[i])
			abort();
	}
	memset(image.bytes, 0, sizeof(image.bytes));
	image.used = 64;
	image.reads = 0;
	m = (struct pf_mapping *)image.chunks[0];
	m[0] = (struct pf_mapping){
		.start = VM,
		.end = VM + VM_BYTES,
		.tag = PF_TAG_FIRST,
		.runtime = 1 | PF_MANAGED,
	};
	m[1] = (struct pf_mapping){
		.start = TRACES, .end = TRACES + TRACES_SIZE, .runtime = 1 | PF_MANAGED};
	d = image.luajit = (struct pf_luajit *)image.chunks[1];
	memset(d, 0xff, sizeof(*d));
	d->vm_start = VM;
	d->vm_end = VM + VM_BYTES;
	d->exit_start = EXIT_AT;
	d->exit_end = EXIT_AT + 0x100;
	d->frame_bytes = 80;
	d->dispatch = G_DISPATCH;
	d->cur_l = G_CUR_L;
	d->jit_base = G_JIT_BASE;
	d->vmstate = G_VMSTATE;
	d->traces = G_TRACES;
	d->entries[0] = (struct pf_luajit_part){ENTRY_AT, 0x40};
	d->leaves[0] = LEAVE_AT;
	for (int i = 1; i < PF_LUAJIT_ENTRIES; i++)
		d->entries[i].bytes = 0;
	for (int i = 0; i < PF_LUAJIT_QUIETS; i++)
		d->quiets[i].bytes = 0;
	d->calls[0] = (struct pf_luajit_call){CALL_SAVED, PF_LUAJIT_PC_SAVED};
	d->calls[1] = (struct pf_luajit_call){CALL_IN_RBP, PF_LUAJIT_BASE_IN_RBP};
	d->n_calls = 2;
	memset(&image.scratch, 0, sizeof(image.scratch));
	image.scratch.walk.known = true;
	image.scratch.walk.process = (struct pf_process){
		.n_parts = 1,
		.parts = {{VM, PF_REF(0, 0), 2}},
		.n_runtimes = 1,
		.runtimes = {{PF_RUNTIME_LUAJIT, PF_REF(1, 0)}},
	};
}

static inline void image_walk(uint64_t ip, uint64_t sp, uint64_t bp)
{
	struct pf_walk *w = &image.scratch.walk;

	w->ip = ip;
	w->regs[PF_REG_RSP] = sp;
	w->regs[PF_REG_RBP] = bp;
	pf_walk_user(&image.scratch, 7, 1, false, false);
}

/* Frame k of the walk's result. */
struct image_frame {
	uint32_t kind, runtime, type;
	uint64_t a, b;
};
static inline struct image_frame image_frame_at(uint32_t k)
{
	const uint64_t *w = image.scratch.stack.words;
	struct image_frame f = {0};

	for (uint32_t n = 0; n < image.scratch.walk.n_words; k--) {
		uint32_t words = w[n] >> 8 & 0xff;

		if (k == 0) {
			f = (struct image_frame){w[n] & 0xff, w[n] >> 16 & 0xff, w[n] >> 24 & 0xff,
						 w[n + 1], words > 1 ? w[n + 2] : 0};
			break;
		}
		n += 1 + words;
	}
	return f;
}
