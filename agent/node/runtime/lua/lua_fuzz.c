// SPDX-License-Identifier: Apache-2.0
/*
 * Walks over Lua's calls, and names them, in a made-up process in which words have any values. Also
 * decodes machine code of any bytes. Neither may read outside of its memory, and both must end.
 * Fuzzes: bpf/lua.h, node/runtime/lua/lua_name.c, node/runtime/lua/lua_proto.c,
 * node/runtime/lua/lua_insn.c
 */
#include <stdlib.h>

#include "node/runtime/lua/testluawalk.h"

#include "node/runtime/lua/testluaimage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A change of a word of the process. Many of the new values are addresses of its own heap. */
struct change {
	uint16_t offset;
	uint8_t kind, value[4];
};

static void change(const struct change *c)
{
	uint64_t value = 0;

	memcpy(&value, c->value, sizeof(c->value));
	if (c->kind < 120)
		value = HEAP + value % HEAP_BYTES;
	else if (c->kind < 200)
		value &= 0xff;
	if (c->offset < HEAP_BYTES - 8)
		image_put(HEAP + c->offset, value, c->kind & 1 ? 8 : 4);
	else if (c->offset >= HEAP_BYTES && c->offset - HEAP_BYTES < PF_REGS)
		host.walk.regs[c->offset - HEAP_BYTES] = value;
}

static void walk_and_name(void)
{
	struct lua_state s = {.layout = image.l};

	host_loop(&image.kernel, LOOP_AT + 0x100, INNER - LOOP_FRAME, BACK, INNER);
	host_loop(&image.kernel, LOOP_AT + 0x100, OUTER - LOOP_FRAME, BACK_RUN, OUTER);
	if (host.walk.n_frames > PF_MAX_USER_FRAMES || host.walk.n_words > PF_STACK_WORDS)
		abort();
	for (uint32_t k = 0; k < 16 && host_frame(k).kind; k++) {
		struct host_frame f = host_frame(k), c = host_frame(k + 1);
		struct runtime_words w = {(uint8_t)f.type, f.a, f.b},
				     caller = {(uint8_t)c.type, c.a, c.b};
		struct runtime_names names = {0};

		image.memory.budget_bytes = MEMORY_BUDGET;
		if (f.kind == PF_FRAME_RUNTIME && f.type != PF_TYPE_TROUBLE)
			runtime_lua_runtime.resolve(&s, &image.memory, &w,
						    c.kind == PF_FRAME_RUNTIME ? &caller : NULL,
						    &names);
		runtime_names_done(&names);
	}
	runtime_lua_protos_free(&s);
}

static void code(const uint8_t *data, size_t n)
{
	struct lua_prologue p;

	runtime_lua_prologue(data, n, &p);
	if (runtime_lua_indirect_call(data, n) > n || runtime_lua_or_store(data, n, 0x42, 8) > n ||
	    p.bytes > n)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct change c;

	if (n < 1)
		return 0;
	host_begin();
	image_make(1 + data[0] % 4);
	host_read = image_read;
	if (data[0] >= 200) {
		code(data + 1, n - 1);
		return 0;
	}
	for (size_t at = 1; at + sizeof(c) <= n; at += sizeof(c)) {
		memcpy(&c, data + at, sizeof(c));
		change(&c);
	}
	walk_and_name();
	return 0;
}
