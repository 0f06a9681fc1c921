/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests and the fuzzer: a made-up process that runs Lua 5.1 to 5.4. It has a heap with a
 * lua_State, its list of calls and the functions in it. On its stack, two loops run that lua_State.
 *
 * In the outer loop, main chunk (line 2) calls global outer (11), which calls method deposit (21).
 * deposit calls a C function, which calls a function without a name (31) in the inner loop.
 */
#pragma once

#include "node/runtime/lua/lua.h"

#define HEAP	    0x10000000ull
#define HEAP_BYTES  0x4000
#define STACK	    0x7ffd00000000ull
#define STACK_BYTES 0x400
#define LOOP_AT	    0x401000ull /* address of luaV_execute */
#define LOOP_FRAME  0x80
#define BACK	    0x402000ull	    /* return address in luaD_call */
#define BACK_RUN    0x403000ull	    /* return address in luaD_rawrunprotected, for a coroutine */
#define INNER	    (STACK + 0x100) /* rsp of the inner loop's caller */
#define OUTER	    (STACK + 0x200)
#define PATH	    "@bank.lua"

static struct image {
	const struct lua_layout *l;
	uint8_t heap[HEAP_BYTES], stack[STACK_BYTES];
	size_t used;
	struct pf_lua kernel;
	struct memory memory;
	uint64_t state;
	uint64_t calls[6];  /* each CallInfo, the outermost first; 0 is base_ci */
	uint64_t protos[4]; /* main, outer, deposit, the function without a name */
	uint64_t codes[4];
} image;

static inline bool image_read(uint64_t address, void *to, size_t n)
{
	if (address - HEAP < HEAP_BYTES && n <= HEAP_BYTES - (address - HEAP))
		memcpy(to, image.heap + (address - HEAP), n);
	else if (address - STACK < STACK_BYTES && n <= STACK_BYTES - (address - STACK))
		memcpy(to, image.stack + (address - STACK), n);
	else
		return false;
	return true;
}

static inline int image_memory_read(void *arg, uint64_t address, void *to, size_t n)
{
	(void)arg;
	return image_read(address, to, n) ? 0 : -EFAULT;
}

static inline void image_put(uint64_t address, uint64_t value, size_t n)
{
	if (address - HEAP < HEAP_BYTES)
		memcpy(image.heap + (address - HEAP), &value, n);
	else
		memcpy(image.stack + (address - STACK), &value, n);
}

static inline uint64_t image_take(size_t n)
{
	uint64_t at = HEAP + image.used;

	image.used += (n + 15) & ~15ull;
	return at;
}

static inline uint64_t image_string(const char *text)
{
	uint64_t at = image_take(24 + strlen(text) + 1);

	image_put(at + 8, 4, 1);
	memcpy(image.heap + (at + 24 - HEAP), text, strlen(text) + 1);
	return at;
}

/* Encodes {op, A, B, C} for the version of Lua in the image. c < 0: {op, A, Bx}, with b as Bx. */
static inline uint32_t image_insn(unsigned op, unsigned a, unsigned b, int c)
{
	if (image.l->minor == 4)
		return op | a << 7 | (c < 0 ? b << 15 : b << 16 | (unsigned)c << 24);
	return op | a << 6 | (c < 0 ? b << 14 : b << 23 | (unsigned)c << 14);
}

/*
 * Writes four instructions. They put a function into register 1 and call it. The function comes
 * from a global, a method or a local.
 */
static inline void image_code(uint64_t code, char kind)
{
	static const unsigned global[] = {0, 5, 6, 6, 11}, self[] = {0, 11, 12, 12, 20},
			      call[] = {0, 28, 29, 36, 68};
	unsigned v = image.l->minor, k = v == 4 ? 0 : 256;
	uint32_t get = image_insn(0, 1, 0, 0); /* move 1 0 */

	if (kind == 'g')
		get = v == 1 ? image_insn(global[v], 1, 0, -1) : image_insn(global[v], 1, 0, k);
	else if (kind == 's')
		get = image_insn(self[v], 1, 0, k) | (v == 4 ? 1u << 15 : 0);
	image_put(code, get, 4);
	image_put(code + 4, image_insn(call[v], 1, 1, 1), 4);
	image_put(code + 8, image_insn(0, 2, 0, 0), 4);
	image_put(code + 12, image_insn(0, 2, 0, 0), 4);
}

/*
 * Makes a function of four instructions, each on the next line, with one constant and one local
 * variable.
 */
static inline void image_proto(unsigned k, unsigned line, char kind, const char *constant)
{
	const struct lua_layout *l = image.l;
	uint64_t p = image_take(128), code = image_take(16), constants = image_take(16);
	uint64_t lines = image_take(16), locals = image_take(16);

	image.protos[k] = p;
	image.codes[k] = code;
	image_put(p + 8, l->proto_tag, 1);
	image_put(p + l->code, code, 8);
	image_put(p + l->kernel.proto_sizes, 4, 4);
	image_put(p + l->line_defined, line, 4);
	image_put(p + l->line_defined + 4, line + 5, 4);
	image_put(p + l->k, constants, 8);
	image_put(p + l->n_k, 1, 4);
	image_put(constants, image_string(constant), 8);
	image_put(constants + 8, l->minor == 1 ? 4 : 0x44, 4);
	image_put(p + l->lines, lines, 8);
	image_put(p + l->n_lines, 4, 4);
	for (unsigned i = 0; i < 4; i++) {
		if (l->abslines)
			image_put(lines + i, 1, 1);
		else
			image_put(lines + 4 * i, line + i + 1, 4);
	}
	image_put(p + l->locals, locals, 8);
	image_put(p + l->n_locals, 1, 4);
	image_put(locals, image_string("callback"), 8);
	image_put(locals + 12, 100, 4);
	image_put(p + l->source, image_string(PATH), 8);
	image_code(code, kind);
}

/* Makes a value on Lua's stack: a Lua function with this Proto, or a C function. */
static inline uint64_t image_function(uint64_t proto)
{
	uint64_t value = image_take(16), closure = image_take(48);

	image_put(value, closure, 8);
	image_put(value + 8, image.l->minor == 1 ? 6 : proto ? 0x46 : 0x66, 4);
	image_put(closure + 8, proto || image.l->minor == 1 ? 6 : 0x26, 1);
	if (image.l->minor == 1)
		image_put(closure + 10, !proto, 1);
	image_put(closure + image.l->kernel.closure_proto, proto, 8);
	return value;
}

/* Makes the k-th call. pc: how many instructions of the called function were begun. */
static inline void image_call(unsigned k, uint64_t proto, uint64_t code, unsigned pc, bool entry)
{
	const struct pf_lua *d = &image.kernel;
	uint64_t ci = image.calls[k];
	uint16_t status = proto ? d->lua_is : d->lua_mask & ~d->lua_is;

	status |= entry ? d->entry_is : d->entry_mask & ~d->entry_is;
	image_put(ci + d->ci_func, image_function(proto), 8);
	if (image.l->minor > 1) {
		image_put(ci + 16, image.calls[k - 1], 8);
		image_put(ci + d->ci_status, status, d->ci_status == 34 ? 1 : 2);
	}
	image_put(ci + d->ci_savedpc, proto ? code + 4 * pc : 0, 8);
}

static inline void image_calls(void)
{
	uint64_t calls = image_take(6 * 80);

	for (unsigned k = 0; k < 6; k++)
		image.calls[k] = calls + k * (image.l->minor == 1 ? 40 : 80);
	image_call(1, image.protos[0], image.codes[0], 2, true);
	image_call(2, image.protos[1], image.codes[1], 2, false);
	image_call(3, image.protos[2], image.codes[2], 2, false);
	image_call(4, 0, 0, 0, false);
	image_call(5, image.protos[3], image.codes[3], 1, true);
	image_put(image.state + 8, 8, 1);
	image_put(image.state + image.kernel.l_ci, image.calls[5], 8);
	if (image.l->minor == 1) {
		image_put(image.state + 48, image.codes[3] + 4, 8);
		image_put(image.state + 80, image.calls[0], 8);
	}
}

static inline void image_make(unsigned minor)
{
	memset(&image, 0, sizeof(image));
	image.l = runtime_lua_layout(minor);
	image.memory = (struct memory){.read = image_memory_read, .budget_bytes = MEMORY_BUDGET};
	image.kernel = image.l->kernel;
	image.kernel.start = LOOP_AT;
	image.kernel.settled = LOOP_AT + 0x20;
	image.kernel.frame = LOOP_FRAME;
	image.kernel.sites[0] = (struct pf_lua_site){.address = BACK, .offset = -48};
	image.kernel.sites[1] =
		(struct pf_lua_site){.address = BACK_RUN, .offset = 8, .outermost = 1};
	image.state = image_take(256);
	image_proto(0, 0, 'g', "outer");
	image_proto(1, 10, 's', "deposit");
	image_proto(2, 20, 'm', "");
	image_proto(3, 30, 'm', "");
	image_calls();
	image_put(INNER - 48, image.state, 8);
	image_put(INNER + 8, image.state, 8);
	image_put(OUTER - 48, image.state, 8);
	image_put(OUTER + 8, image.state, 8);
}
