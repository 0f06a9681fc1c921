// SPDX-License-Identifier: Apache-2.0
/*
 * Runs LuaJIT's walk and reads names in a made-up process in which words have any values, with any
 * bytes as the interpreter's code. Neither may read outside of its memory, and both must end. The
 * input is the length of the code in two bytes, the code, and words with their new values. Fuzzes:
 * bpf/luajit.h, bpf/luajit_state.h, node/runtime/luajit/luajit_names.c,
 * node/runtime/luajit/luajit_vm.c
 */
#include "node/runtime/luajit/testluajitimage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define FRAME (C_STACK + 0x400)

/* A change of a word of the process. Many of the new values are addresses of its own memory. */
struct change {
	uint16_t offset;
	uint8_t kind, value[5];
};

static uint64_t value_of(const struct change *c)
{
	uint64_t v = 0;

	memcpy(&v, c->value, sizeof(c->value));
	if (c->kind < 100)
		return BASE + v % BYTES;
	if (c->kind < 150)
		return TAGGED(BASE + (v % BYTES & ~7ull), c->kind & 15);
	return c->kind < 200 ? v & 0xffff : v;
}

static void change(const struct change *c)
{
	uint64_t v = value_of(c);

	if (c->kind == 255)
		image.scratch.walk.regs[c->offset % PF_REGS] = v;
	else if (c->offset < BYTES - 8)
		memcpy(image.bytes + c->offset, &v, 8);
}

static const uint32_t code[] = {
	89, 54 | 5 << 8, 66 | 5 << 8 | 1 << 16, 18 | 5 << 8, 57 | 5 << 8, 66 | 5 << 8, 75};

static void make_process(void)
{
	struct image_code c = {
		.chunk = "@f.lua",
		.lines = 9,
		.code = code,
		.n_code = 7,
		.constants = {"a", "b"},
		.upvalues = "u",
		.upvalues_bytes = 2,
		.n_upvalues = 1,
		.locals = "x\0\7\1\1\5",
		.locals_bytes = 7,
	};
	uint64_t g, state, function, co;
	struct image_proto p;

	image_begin();
	g = room(0x200);
	state = image_state(g);
	co = image_state(g);
	p = image_proto(&c);
	function = image_function(p.bc, false);
	put64(g + G_CUR_L, state);
	put64(g + G_JIT_BASE, image_frame(state, 10, function, p.bc + 12));
	put64(g + G_TRACES, room(64));
	image_frame(state, 3, function, 8 + PF_LUAJIT_LINK_C);
	image_set(state, stack_of(state) + 80, FRAME + 80);
	image_frame(co, 3, function, 8 + PF_LUAJIT_LINK_C);
	image_frame(co, 10, function, p.bc + 12);
	image_set(co, stack_of(co) + 80, FRAME);
	image_c_frame(FRAME, co, 0, p.bc + 12, 0, state, VM + CALL_SAVED);
	image_c_frame(FRAME + 80, state, 0, p.bc + 12, 0, 0, 0);
	image.scratch.walk.regs[AT_R14] = g + G_DISPATCH;
	image.scratch.walk.regs[AT_RDX] = stack_of(co) + 80;
	image.scratch.walk.regs[AT_RBX] = p.bc + 12;
}

static void name_all(void)
{
	struct memory m = {.read = image_read, .budget_bytes = MEMORY_BUDGET};

	for (uint32_t k = 0; k < 64 && image_frame_at(k).kind; k++) {
		struct image_frame f = image_frame_at(k), next = image_frame_at(k + 1);
		struct runtime_words w = {(uint8_t)f.type, f.a, f.b};
		struct runtime_words caller = {(uint8_t)next.type, next.a, next.b};
		struct runtime_names names = {0};

		if (f.kind == PF_FRAME_RUNTIME && f.type != PF_TYPE_TROUBLE)
			runtime_luajit_resolve(
				&m, &w, next.kind == PF_FRAME_RUNTIME ? &caller : NULL, &names);
		runtime_names_done(&names);
	}
}

static void walk(uint64_t ip, uint64_t sp)
{
	static uint64_t regs[PF_REGS];
	struct pf_walk *w = &image.scratch.walk;

	memcpy(regs, w->regs, sizeof(regs));
	image.reads = 0;
	image_walk(ip, sp, sp);
	if (w->n_frames > PF_MAX_USER_FRAMES || image.reads > 8u * PF_STEPS)
		abort();
	name_all();
	memcpy(w->regs, regs, sizeof(regs));
}

/*
 * The code is in a buffer of its exact size, so that the sanitizer sees a read past its end.
 * Code below LUAJIT_VM_MIN is padded, because runtime_luajit_read_vm() would refuse it at once.
 */
static void read_code(const uint8_t *data, size_t n)
{
	size_t bytes = MAX(n, (size_t)LUAJIT_VM_MIN), at;
	_cleanup_free_ uint8_t *all = xmalloc(bytes);
	const struct luajit_code c = {all, bytes, VM};
	struct pf_luajit d;

	memset(all, 0xcc, bytes);
	memcpy(all, data, n);
	if (runtime_luajit_find_call(all, bytes, &at))
		runtime_luajit_read_vm(&c, at, &d);
	runtime_luajit_read_vm(&c, 0, &d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	size_t n_code = n < 2 ? 0 : MIN((size_t)(data[0] | data[1] << 8), n - 2);
	struct change c;

	if (n < 2)
		return 0;
	read_code(data + 2, n_code);
	make_process();
	for (size_t at = 2 + n_code; at + sizeof(c) <= n; at += sizeof(c)) {
		memcpy(&c, data + at, sizeof(c));
		change(&c);
	}
	walk(VM + 0x80, FRAME);
	walk(TRACES + 0x80, FRAME - 0x40);
	walk(EXIT_AT + 0x10, FRAME - 0x180);
	walk(VM + ENTRY_AT + 4, FRAME - 0x20);
	return 0;
}
