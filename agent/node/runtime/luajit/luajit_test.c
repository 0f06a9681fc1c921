// SPDX-License-Identifier: Apache-2.0
/*
 * Tests LuaJIT's frames in made-up processes, the names of its functions, and the code of the
 * installed interpreter. A link is the word in a frame that leads to the caller's frame.
 */
#include "node/runtime/luajit/testluajitimage.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

/* Instructions as in lj_bc.h: op, A, and D or B and C. */
#define INS_AD(op, a, d)     ((uint32_t)(op) | (uint32_t)(a) << 8 | (uint32_t)(d) << 16)
#define INS_ABC(op, a, b, c) (INS_AD(op, a, c) | (uint32_t)(b) << 24)
enum {
	MOV = 18,
	KSHORT = 41,
	UGET = 45,
	GGET = 54,
	TGETV = 56,
	TGETS,
	CALL = 66,
	RET0 = 75,
	FUNCF = 89
};

/* Operand A of a call: the slot of the called function. */
#define CALL_A 5
static const uint32_t code[] = {
	INS_AD(FUNCF, 8, 0),	     INS_AD(GGET, CALL_A, 0), INS_ABC(CALL, CALL_A, 1, 1),
	INS_ABC(CALL, CALL_A, 1, 1), INS_AD(RET0, 0, 1),
};
static const struct image_code plain = {.chunk = "@main.lua",
					.first_line = 10,
					.lines = 8,
					.code = code,
					.n_code = 5,
					.constants = {"work"}};

static uint64_t g, state, outer, inner, c_function;
static struct image_proto outer_proto, inner_proto;

#define FRAME (C_STACK + 0x400) /* the C frame that most tests use */

static int setup(void **unused)
{
	struct image_code chunk = plain;

	(void)unused;
	image_begin();
	g = room(0x200);
	state = image_state(g);
	put64(g + G_CUR_L, state);
	chunk.first_line = 0;
	chunk.lines = 20;
	outer_proto = image_proto(&chunk);
	inner_proto = image_proto(&plain);
	outer = image_function(outer_proto.bc, false);
	inner = image_function(inner_proto.bc, false);
	c_function = image_function(BASE + 32, true);
	image_c_frame(FRAME, state, 0, outer_proto.bc + 12, 1, 0, 0);
	return 0;
}

static void assert_native(uint32_t k, uint64_t ip)
{
	assert_int_equal(image_frame_at(k).kind, PF_FRAME_NATIVE);
	assert_int_equal(image_frame_at(k).a, ip);
}

static void assert_function(uint32_t k, const struct image_proto *p, uint64_t b)
{
	struct image_frame f = image_frame_at(k);

	assert_int_equal(f.kind, PF_FRAME_RUNTIME);
	assert_int_equal(f.runtime, PF_RUNTIME_LUAJIT);
	assert_int_equal(f.type, PF_LUAJIT_FUNCTION);
	assert_int_equal(f.a & ((1ull << 48) - 1), p->at);
	assert_int_equal(f.b, b);
}

static void assert_trouble(uint32_t k, uint32_t trouble)
{
	assert_int_equal(image_frame_at(k).type, PF_TYPE_TROUBLE);
	assert_int_equal(image_frame_at(k).a, trouble);
}

static void assert_over(uint32_t n, uint32_t end)
{
	assert_int_equal(image.scratch.walk.n_frames, n);
	assert_int_equal(image.scratch.walk.end, end);
}

static void regs(uint64_t rdx, uint64_t rbx)
{
	image.scratch.walk.regs[AT_RDX] = rdx;
	image.scratch.walk.regs[AT_RBX] = rbx;
}

/*
 * Makes the frames of outer, which C calls, and of inner, which outer calls. Returns inner's base.
 */
static uint64_t two_frames(uint64_t link)
{
	image_frame(state, 3, outer, 8 + PF_LUAJIT_LINK_C);
	return image_frame(state, 3 + 2 + CALL_A, inner, link);
}

/* ---- the walk ---- */

static void test_leaf(void **unused)
{
	uint64_t base = two_frames(outer_proto.bc + 12);

	(void)unused;
	image_set(state, 0, FRAME);
	regs(base, inner_proto.bc + 8);
	image_walk(VM + 0x80, FRAME, 0);
	assert_native(0, VM + 0x80);
	assert_function(1, &inner_proto, 1 | PF_LUAJIT_CALLED);
	assert_function(2, &outer_proto, 2);
	assert_over(3, PF_END_ROOT);
	/* In a coroutine, CFRAME_RESUME is in the low bits of L->cframe. */
	image_set(state, 0, FRAME | 1);
	regs(base, inner_proto.bc + 8);
	image_walk(VM + 0x80, FRAME, 0);
	assert_over(3, PF_END_ROOT);
}

/* If the walk looks up mappings, the interpreter's own frame has the tag of its file. */
static void test_file_of_leaf(void **unused)
{
	uint64_t base = two_frames(outer_proto.bc + 12);
	struct image_frame f;

	(void)unused;
	image_set(state, 0, FRAME);
	regs(base, inner_proto.bc + 8);
	image.scratch.walk.mm = 1;
	pf_config.sees_mappings = true;
	image_walk(VM + 0x80, FRAME, 0);
	pf_config.sees_mappings = false;
	f = image_frame_at(0);
	assert_int_equal(f.kind, PF_FRAME_FILE);
	assert_int_equal(f.a, VM + 0x80);
	assert_int_equal(f.b, PF_TAG_FIRST);
	assert_function(1, &inner_proto, 1 | PF_LUAJIT_CALLED);
	assert_function(2, &outer_proto, 2);
}

/* In a subroutine that the interpreter calls, the stack has one word more. */
static void test_subroutine(void **unused)
{
	uint64_t base = two_frames(outer_proto.bc + 12);

	(void)unused;
	image_set(state, 0, FRAME);
	put64(FRAME - 8, VM + 0x90);
	regs(base, inner_proto.bc + 8);
	image_walk(VM + 0x2000, FRAME - 8, 0);
	assert_function(1, &inner_proto, 1 | PF_LUAJIT_CALLED);
	assert_over(3, PF_END_ROOT);
}

/*
 * Walks between the moment when base and link are stored and the first instruction of the called
 * function, and after a return.
 */
static void test_around_calls(void **unused)
{
	uint64_t base = two_frames(outer_proto.bc + 12);

	(void)unused;
	image_set(state, 0, FRAME);
	/* PC is already at the first instruction of the called function. */
	regs(base, inner_proto.bc);
	image_walk(VM + 0x80, FRAME, 0);
	assert_function(1, &inner_proto, 0 | PF_LUAJIT_CALLED);
	/* PC is still in the caller, but the link is complete. */
	regs(base, outer_proto.bc + 12);
	image_walk(VM + 0x80, FRAME, 0);
	assert_function(1, &inner_proto, PF_LUAJIT_NO_PC | PF_LUAJIT_CALLED);
	assert_function(2, &outer_proto, 2);
	/* The link is not complete, so the caller still runs. */
	two_frames(0x1234);
	regs(base, outer_proto.bc + 12);
	image_walk(VM + 0x80, FRAME, 0);
	assert_function(1, &outer_proto, 2);
	assert_over(2, PF_END_ROOT);
	/* The same case for a function that calls itself. */
	image_frame(state, 3 + 2 + CALL_A, outer, 0x1234);
	regs(base, outer_proto.bc + 12);
	image_walk(VM + 0x80, FRAME, 0);
	assert_function(1, &outer_proto, 2);
	assert_over(2, PF_END_ROOT);
}

/*
 * Walks in C code that the interpreter has just called. The C code returns to VM + `from` with rbp.
 */
static void walk_called(uint64_t from, uint64_t rbp)
{
	put64(FRAME - 8, VM + from);
	image_walk(0x400100, FRAME - 8, rbp);
	assert_native(0, 0x400100);
	assert_native(1, VM + from);
}

static void test_called_c(void **unused)
{
	uint64_t base = two_frames(outer_proto.bc + 12);

	(void)unused;
	/* A C function that the program calls is not shown, because its native frames are. */
	image_frame(state, 20, c_function, inner_proto.bc + 12);
	put64(stack_of(state) + 8 * (20 - 2 - CALL_A) - 16, inner);
	put64(stack_of(state) + 8 * (20 - 2 - CALL_A) - 8, 8 * 3 + PF_LUAJIT_LINK_VARG);
	image_set(state, stack_of(state) + 8 * 20, FRAME);
	walk_called(0x180, state);
	assert_function(2, &inner_proto, 2 | PF_LUAJIT_CALLED);
	assert_function(3, &outer_proto, 2);
	assert_over(4, PF_END_ROOT);
	/*
	 * The called C code is a helper of the interpreter: its PC is the one in the C frame, if a
	 * PC was stored there.
	 */
	image_set(state, base, FRAME);
	put64(FRAME + 24, inner_proto.bc + 12);
	walk_called(CALL_SAVED, state);
	assert_function(2, &inner_proto, 2 | PF_LUAJIT_CALLED);
	walk_called(0x180, state);
	assert_function(2, &inner_proto, PF_LUAJIT_NO_PC | PF_LUAJIT_CALLED);
	/* rbp has base, and L has an older base. */
	image_set(state, stack_of(state) + 16, FRAME);
	walk_called(CALL_IN_RBP, base);
	assert_function(2, &inner_proto, PF_LUAJIT_NO_PC | PF_LUAJIT_CALLED);
	walk_called(CALL_IN_RBP, 0x1234);
	assert_trouble(2, PF_TROUBLE_DAMAGED);
}

/*
 * If a metamethod is called, the instruction that needs it is stored two slots below the link.
 * pcall is not shown as a function.
 */
static void test_links(void **unused)
{
	uint64_t base;

	(void)unused;
	image_frame(state, 3, outer, 8 + PF_LUAJIT_LINK_C);
	base = image_frame(state, 20, inner, 17 * 8 + PF_LUAJIT_LINK_CONT);
	put64(base - 24, outer_proto.bc + 8);
	put64(base - 32, VM + 0x700);
	image_set(state, 0, FRAME);
	regs(base, inner_proto.bc + 8);
	image_walk(VM + 0x80, FRAME, 0);
	assert_function(1, &inner_proto, 1 | PF_LUAJIT_CALLED);
	assert_function(2, &outer_proto, 1);
	assert_over(3, PF_END_ROOT);
	/* outer calls pcall(inner) */
	image_frame(state, 10, c_function, outer_proto.bc + 12);
	image_frame(state, 12, inner, 16 + PF_LUAJIT_LINK_CONT + PF_LUAJIT_LINK_P);
	regs(stack_of(state) + 12 * 8, inner_proto.bc + 8);
	image_walk(VM + 0x80, FRAME, 0);
	assert_function(1, &inner_proto, 1);
	assert_function(2, &outer_proto, 2);
	assert_over(3, PF_END_ROOT);
	/* A callback of FFI: the code that called C is in another C frame. */
	put64(base - 32, 1);
	regs(base, inner_proto.bc + 8);
	image_walk(VM + 0x80, FRAME, 0);
	assert_function(1, &inner_proto, 1);
	assert_over(2, PF_END_ROOT);
}

/*
 * outer resumes a coroutine that runs inner: there are two C frames, each with its own lua_State.
 */
static void test_coroutine(void **unused)
{
	uint64_t co = image_state(g), base, above = FRAME + 80;

	(void)unused;
	image_frame(state, 3, outer, 8 + PF_LUAJIT_LINK_C);
	base = image_frame(state, 10, c_function, outer_proto.bc + 12);
	image_set(state, base, above);
	image_c_frame(above, state, 0, 0, 1, 0, 0);
	base = image_frame(co, 3, inner, 8 + PF_LUAJIT_LINK_C + PF_LUAJIT_LINK_P);
	image_set(co, 0, FRAME | 1);
	image_c_frame(FRAME, co, 0, 0, 0, 0, VM + 0x150);
	regs(base, inner_proto.bc + 8);
	image_walk(VM + 0x80, FRAME, 0);
	assert_native(0, VM + 0x80);
	assert_function(1, &inner_proto, 1);
	assert_native(2, VM + 0x150);
	assert_function(3, &outer_proto, 2);
	assert_over(4, PF_END_ROOT);
}

/*
 * outer calls C, which calls inner in the same lua_State. After that, C is called without a frame
 * of its own.
 */
static void test_nested(void **unused)
{
	uint64_t base, above = FRAME + 0x100;

	(void)unused;
	image_frame(state, 3, outer, 8 + PF_LUAJIT_LINK_C);
	image_frame(state, 10, c_function, outer_proto.bc + 12);
	base = image_frame(state, 14, inner, 4 * 8 + PF_LUAJIT_LINK_C);
	image_set(state, 0, FRAME);
	image_c_frame(above, state, 0, 0, 1, 0, 0);
	image_c_frame(FRAME, state, above, 0, 1, above - 16, 0x400200);
	put64(above - 16, state);
	put64(above - 8, VM + 0x180);
	regs(base, inner_proto.bc + 8);
	image_walk(VM + 0x80, FRAME, 0);
	assert_function(1, &inner_proto, 1);
	assert_native(2, 0x400200);
	assert_native(3, VM + 0x180);
	assert_function(4, &outer_proto, 2);
	assert_over(5, PF_END_ROOT);
	/* lj_vm_cpcall: -nres is the offset in the Lua stack at which it was called. */
	image_set(state, stack_of(state) + 10 * 8, FRAME);
	put64(FRAME + 8, (uint32_t) - (10 * 8));
	put64(FRAME - 8, VM + 0x190);
	image_walk(0x400100, FRAME - 8, state);
	assert_native(1, VM + 0x190);
	assert_native(2, 0x400200);
	assert_native(3, VM + 0x180);
	assert_function(4, &outer_proto, 2);
	assert_over(5, PF_END_ROOT);
}

static void put_trace(uint64_t below)
{
	uint64_t traces = room(64), t = room(128);
	uint16_t number = 3;

	(void)below;
	put64(g + G_TRACES, traces);
	put64(traces + 8 * number, t);
	put64(t + 64, inner_proto.at);
	put64(t + 72, inner_proto.bc + 4);
	put(t + 104, &number, 2);
	put64(g + G_VMSTATE, number);
	put64(g + G_JIT_BASE, two_frames(outer_proto.bc + 12));
	image_set(state, 0, FRAME);
}

static void assert_trace(uint32_t k)
{
	assert_int_equal(image_frame_at(k).type, PF_LUAJIT_TRACE);
	assert_int_equal(image_frame_at(k).a & ((1ull << 48) - 1), inner_proto.at);
	assert_int_equal(image_frame_at(k).b, 1);
	assert_function(k + 1, &inner_proto, 1 | PF_LUAJIT_CALLED);
	assert_function(k + 2, &outer_proto, 2);
}

static void test_trace(void **unused)
{
	(void)unused;
	put_trace(0);
	image.scratch.walk.regs[AT_R14] = g + G_DISPATCH;
	image_walk(TRACES + 0x100, FRAME - 16 - 0x60, 0);
	assert_trace(0);
	assert_over(3, PF_END_ROOT);
	/* The trace calls a subroutine of the interpreter. */
	put64(FRAME - 0x78, TRACES + 0x80);
	image_walk(VM + 0x2000, FRAME - 0x78, 0);
	assert_native(0, VM + 0x2000);
	assert_trace(1);
	/* The trace calls C. Then the value of r14 is not known. */
	image.scratch.walk.regs[AT_R14] = 0;
	put64(FRAME - 0x88, TRACES + 0x80);
	image_walk(0x400100, FRAME - 0x88, 0);
	assert_native(0, 0x400100);
	assert_trace(1);
	assert_over(4, PF_END_ROOT);
	/* The trace is being left: lj_trace_exit is called far below the C frame. */
	put64(g + G_JIT_BASE, 0);
	image_set(state, stack_of(state) + 10 * 8, FRAME);
	put64(FRAME - 0x1e8, EXIT_AT + 0x80);
	image_walk(0x400100, FRAME - 0x1e8, 0);
	assert_native(1, EXIT_AT + 0x80);
	assert_function(2, &inner_proto, PF_LUAJIT_NO_PC | PF_LUAJIT_CALLED);
}

/*
 * When code of saveregs runs, or code that undoes it, the position in that code shows where the C
 * frame is.
 */
static void test_entry_and_leave(void **unused)
{
	static const struct {
		uint16_t at;
		uint16_t below; /* how far rsp is below the address of the return address */
	} steps[] = {{ENTRY_AT, 0},	  {ENTRY_AT + 1, 8},  {ENTRY_AT + 2, 16},
		     {ENTRY_AT + 4, 24},  {ENTRY_AT + 6, 32}, {ENTRY_AT + 10, 72},
		     {ENTRY_AT + 20, 72}, {LEAVE_AT, 72},     {LEAVE_AT + 4, 32},
		     {LEAVE_AT + 6, 24},  {LEAVE_AT + 8, 16}, {LEAVE_AT + 9, 8},
		     {LEAVE_AT + 10, 0}};
	uint64_t top = C_STACK + 0x200;

	(void)unused;
	put64(top, 0x400200);
	put64(top - 8, 0x7777); /* what the code below saves as rbp */
	for (size_t k = 0; k < sizeof(steps) / sizeof(*steps); k++) {
		image_walk(VM + steps[k].at, top - steps[k].below, 0x8888);
		assert_native(0, VM + steps[k].at);
		assert_native(1, 0x400200);
		assert_int_equal(image.scratch.walk.n_frames, 2);
	}
}

/* If data is inconsistent, no frame is shown for it. */
static void test_troubles(void **unused)
{
	uint64_t base = two_frames(outer_proto.bc + 12);

	(void)unused;
	/* L->cframe does not lead to this C frame. */
	image_set(state, 0, FRAME + 0x40);
	regs(base, inner_proto.bc + 8);
	image_walk(VM + 0x80, FRAME, 0);
	assert_trouble(1, PF_TROUBLE_DAMAGED);
	assert_over(2, PF_END_ROOT);
	/* base and PC do not fit any state of the interpreter. */
	image_set(state, 0, FRAME);
	regs(0x1234, 0x5678);
	image_walk(VM + 0x80, FRAME, 0);
	assert_trouble(1, PF_TROUBLE_DAMAGED);
	/* A link that leads to no frame. The frames that were shown before it stay. */
	image_frame(state, 3, 0x1234, 8 + PF_LUAJIT_LINK_C);
	two_frames(outer_proto.bc + 12);
	put64(stack_of(state) + 8 * 3 - 16, 0x4444);
	regs(base, inner_proto.bc + 8);
	image_walk(VM + 0x80, FRAME, 0);
	assert_trouble(1, PF_TROUBLE_DAMAGED);
	/* r14 points to memory that has no trace. */
	image.scratch.walk.regs[AT_R14] = 0x1000;
	image_walk(TRACES + 0x100, FRAME - 16, 0);
	assert_trouble(0, PF_TROUBLE_DAMAGED);
	assert_int_equal(image.scratch.walk.end, PF_END_FP);
}

/*
 * The function cannot be read, so a marker is shown instead of it. The function that it called does
 * not get a name from it.
 */
static void test_absent_function(void **unused)
{
	uint64_t gone = TAGGED(0x1000, PF_LUAJIT_GCT_FUNC), base;

	(void)unused;
	image_frame(state, 3, outer, 8 + PF_LUAJIT_LINK_C);
	image_frame(state, 10, gone, outer_proto.bc + 12);
	base = image_frame(state, 17, inner, outer_proto.bc + 12);
	image_set(state, base, FRAME);
	regs(base, inner_proto.bc + 8);
	image_walk(VM + 0x80, FRAME, 0);
	assert_function(1, &inner_proto, 1 | PF_LUAJIT_CALLED);
	assert_trouble(2, PF_TROUBLE_READ);
	assert_int_equal(image_frame_at(2).b, 0x1000);
	assert_function(3, &outer_proto, 2);
	/* Only the function's prototype cannot be read. */
	image_frame(state, 10, image_function(0x2000, false), outer_proto.bc + 12);
	image_walk(VM + 0x80, FRAME, 0);
	assert_trouble(2, PF_TROUBLE_READ);
	assert_int_equal(image_frame_at(2).b, 0x2000 - PF_LUAJIT_PROTO_BYTES);
	assert_over(4, PF_END_ROOT);
}

/* If a stack has more frames than the walk can hold, the walk ends. */
static void test_deep(void **unused)
{
	uint32_t slot = 3, frames = PF_MAX_USER_FRAMES + 200;
	uint64_t stack, base;

	(void)unused;
	stack = room(8 * (3 + 3 * frames));
	put64(stack, TAGGED(state, PF_LUAJIT_GCT_THREAD));
	put64(state + 48, stack + 8 * (2 + 3 * frames));
	put64(state + 56, stack);
	base = image_frame(state, slot, outer, 8 + PF_LUAJIT_LINK_C);
	for (uint32_t k = 1; k < frames; k++)
		base = image_frame(state, slot += 3, outer,
				   3 * 8 + PF_LUAJIT_LINK_CONT + PF_LUAJIT_LINK_P);
	image_set(state, base, FRAME);
	regs(base, outer_proto.bc + 8);
	image_walk(VM + 0x80, FRAME, 0);
	assert_over(PF_MAX_USER_FRAMES, PF_END_DEPTH);
	assert_in_range(image.reads, PF_MAX_USER_FRAMES, 3 * PF_MAX_USER_FRAMES + 100);
}

/* In this stack, each C frame is found at the last place at which the walk searches. */
static void test_far_frames(void **unused)
{
	uint64_t at = C_STACK, other = image_state(g), previous = 0;

	(void)unused;
	for (; at + 0x640 <= BASE + BYTES; at += 0x640) {
		for (uint64_t word = at; word < at + 0x600; word += 16)
			put64(word, other);
		image_c_frame(at + 0x5f0, state, at + 0x640 + 0x5f0, 0, 1, 0, TRACES + 0x80);
		previous = previous ? previous : at + 0x5f0;
	}
	image_set(state, stack_of(state) + 16, previous);
	put64(C_STACK - 8, TRACES + 0x80);
	image.reads = 0;
	image_walk(0x400100, C_STACK - 8, 0);
	assert_int_equal(image.scratch.walk.end, PF_END_FP);
	assert_in_range(image.reads, PF_LUAJIT_TRIES_MAX, 3 * PF_LUAJIT_TRIES_MAX / 2);
}

/* ---- names ---- */

static struct memory memory = {.read = image_read, .budget_bytes = MEMORY_BUDGET};

static struct runtime_words words_of(const struct image_proto *p, uint64_t b)
{
	struct pf_luajit_proto head;

	assert_true(image_copy(p->at, &head, sizeof(head)));
	return (struct runtime_words){PF_LUAJIT_FUNCTION, p->at | pf_luajit_cookie(&head) << 48, b};
}

static void assert_name(const struct runtime_words *frame, const struct runtime_words *caller,
			const char *name, const char *file, uint32_t line)
{
	struct runtime_names names = {0};

	assert_int_equal(runtime_luajit_resolve(&memory, frame, caller, &names), 0);
	assert_int_equal(names.n, 1);
	assert_int_equal(names.kind, FRAME_LUA);
	assert_string_equal(names.items[0].name, name);
	assert_string_equal(names.items[0].file, file);
	assert_int_equal(names.items[0].line, line);
	runtime_names_done(&names);
}

/* Checks the name of the function that the last instruction of the code calls. */
static void assert_called(struct image_code c, const char *name)
{
	struct image_proto p = image_proto(&c);
	struct runtime_words caller = words_of(&p, c.n_code - 1);
	struct runtime_words frame = words_of(&inner_proto, 1 | PF_LUAJIT_CALLED);

	assert_name(&frame, &caller, name, "main.lua", 11);
}
#define CODE(...)                                                                                  \
	.code = (const uint32_t[]){__VA_ARGS__}, .n_code = sizeof((uint32_t[]){__VA_ARGS__}) / 4

static void test_called_names(void **unused)
{
	uint32_t call = INS_ABC(CALL, 4, 1, 1), f = INS_AD(FUNCF, 8, 0);

	(void)unused;
	assert_called((struct image_code){.chunk = "@x",
					  CODE(f, INS_AD(GGET, 4, 0), call),
					  .constants = {"global"}},
		      "global");
	assert_called((struct image_code){.chunk = "@x",
					  CODE(f, INS_ABC(TGETS, 4, 1, 1), call),
					  .constants = {"no", "field"}},
		      "field");
	assert_called((struct image_code){.chunk = "@x",
					  CODE(f, INS_AD(UGET, 4, 1), call),
					  .upvalues = "first\0second",
					  .upvalues_bytes = 13,
					  .n_upvalues = 2},
		      "second");
	/*
	 * Local variables a (slot 0) and b (slot 1) exist from instruction 1 on. b is moved and
	 * called.
	 */
	assert_called((struct image_code){.chunk = "@x",
					  CODE(f, INS_AD(KSHORT, 0, 0), INS_AD(MOV, 4, 1), call),
					  .locals = "a\0\1\7b\0\0\7",
					  .locals_bytes = 9},
		      "b");
	assert_called((struct image_code){.chunk = "@x", CODE(f, INS_ABC(TGETV, 3, 1, 2))},
		      "metamethod '__index'");
	/* No instruction has set the value. */
	assert_called((struct image_code){.chunk = "@x", CODE(f, INS_ABC(TGETV, 4, 1, 2), call)},
		      "function <main.lua:10>");
	assert_called((struct image_code){.chunk = "@x", CODE(f, call)}, "function <main.lua:10>");
	/* Constants that do not exist, and a chain of moves that never ends. */
	assert_called((struct image_code){.chunk = "@x", CODE(f, INS_AD(GGET, 4, 60000), call)},
		      "function <main.lua:10>");
	assert_called((struct image_code){.chunk = "@x",
					  CODE(f, INS_AD(MOV, 4, 4), INS_AD(MOV, 4, 4), call)},
		      "function <main.lua:10>");
}

static void test_own_names(void **unused)
{
	struct runtime_words frame = words_of(&outer_proto, 3), caller = words_of(&inner_proto, 2);
	struct runtime_names names = {0};
	struct image_code c = plain;
	struct image_proto p;

	(void)unused;
	assert_name(&frame, NULL, "main chunk", "main.lua", 3);
	/* If no instruction called the frame, its function gets no name from the caller. */
	frame = words_of(&inner_proto, PF_LUAJIT_NO_PC);
	assert_name(&frame, &caller, "function <main.lua:10>", "main.lua", 0);
	frame.type = PF_LUAJIT_TRACE;
	frame.b = 2;
	assert_name(&frame, NULL, "trace main.lua:12", "main.lua", 12);
	c.chunk = "local x = 1\nreturn x";
	p = image_proto(&c);
	frame = words_of(&p, 1);
	assert_name(&frame, NULL, "function <[string \"local x = 1\"]:10>",
		    "[string \"local x = 1\"]", 11);
	/* The memory has other content now. */
	frame.a ^= 1ull << 50;
	assert_int_equal(runtime_luajit_resolve(&memory, &frame, NULL, &names), -ESTALE);
	frame = words_of(&inner_proto, 1);
	put(inner_proto.at + 9, "\5", 1);
	assert_int_equal(runtime_luajit_resolve(&memory, &frame, NULL, &names), -ESTALE);
	frame.a = 0x1000;
	assert_int_equal(runtime_luajit_resolve(&memory, &frame, NULL, &names), -EFAULT);
}

/* ---- the interpreter's code ---- */

#define INSTALLED "/usr/bin/luajit"

/* LuaJIT of Debian 12. Its disassembly shows that the interpreter is [704e0, 74525) of the file. */
static void test_installed(void **unused)
{
	_cleanup_free_ uint8_t *bytes = xmalloc(0x4045);
	_cleanup_close_ int fd = open(INSTALLED, O_RDONLY | O_CLOEXEC);
	struct luajit_code c = {bytes, 0x4045, 0x704e0};
	struct pf_luajit d;
	size_t call;

	(void)unused;
	if (fd < 0 || pread(fd, bytes, 0x4045, 0x704e0) != 0x4045 ||
	    !runtime_luajit_find_call(bytes, 0x4045, &call) || call != 0x724ad - 0x704e0) {
		print_message("skipped: " INSTALLED " is not Debian 12's\n");
		skip();
	}
	assert_int_equal(runtime_luajit_read_vm(&c, call, &d), 0);
	assert_int_equal(d.frame_bytes, 80);
	assert_int_equal(d.dispatch, 0xf80);
	assert_int_equal(d.cur_l, 0xf80 - 0xe10);
	assert_int_equal(d.jit_base, 0xf80 - 0xe08);
	assert_int_equal(d.vmstate, 0xf80 - 0xec8);
	assert_int_equal(d.exit_start, 0x7409b);
	assert_true(d.traces > d.jit_base && d.traces < d.dispatch);
	assert_int_equal(d.entries[0].start + 0x704e0, 0x72402); /* lj_vm_resume */
	assert_int_equal(d.entries[4].start + 0x704e0,
			 0x7442d); /* lj_vm_ffi_callback, before its push */
	assert_int_equal(d.entries[5].bytes, 0);
	assert_int_equal(d.leaves[0] + 0x704e0, 0x722d3);
	assert_int_equal(d.quiets[0].start + 0x704e0, 0x72281);
	assert_true(d.n_calls > 30 && d.n_calls < PF_LUAJIT_CALLS);
	/* The call of lj_tab_len at 70b1b keeps base in rbp. */
	for (size_t k = 0; k < d.n_calls; k++)
		if (d.calls[k].offset + 0x704e0 == 0x70b20)
			assert_int_equal(d.calls[k].flags, PF_LUAJIT_BASE_IN_RBP);
	/* Code of another form is refused. */
	memset(bytes + call - 10, 0x90, 10);
	assert_int_equal(runtime_luajit_read_vm(&c, call, &d), -ENOEXEC);
	assert_int_equal(runtime_luajit_read_vm(&c, 0x4045, &d), -ENOEXEC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_leaf, setup),
		cmocka_unit_test_setup(test_file_of_leaf, setup),
		cmocka_unit_test_setup(test_subroutine, setup),
		cmocka_unit_test_setup(test_around_calls, setup),
		cmocka_unit_test_setup(test_called_c, setup),
		cmocka_unit_test_setup(test_links, setup),
		cmocka_unit_test_setup(test_coroutine, setup),
		cmocka_unit_test_setup(test_nested, setup),
		cmocka_unit_test_setup(test_trace, setup),
		cmocka_unit_test_setup(test_entry_and_leave, setup),
		cmocka_unit_test_setup(test_troubles, setup),
		cmocka_unit_test_setup(test_absent_function, setup),
		cmocka_unit_test_setup(test_deep, setup),
		cmocka_unit_test_setup(test_far_frames, setup),
		cmocka_unit_test_setup(test_called_names, setup),
		cmocka_unit_test_setup(test_own_names, setup),
		cmocka_unit_test(test_installed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
