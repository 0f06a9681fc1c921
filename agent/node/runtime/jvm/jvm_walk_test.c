// SPDX-License-Identifier: Apache-2.0
/*
 * Tests the walk over HotSpot's frames, in made-up code caches in the layouts of JDK 8, 17 (9 to
 * 22) and 25 (24 and later). Code as HotSpot's assembler writes it is interrupted at every
 * instruction.
 */
#include "node/runtime/jvm/testjvmprocess.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define NATIVE	  (DATA_AT + 0x800) /* an address of libjvm's code, after a call */
#define METHOD	  (DATA_AT + 0x1000)
#define CONST	  (DATA_AT + 0x1100)
#define SP	  (STACK_AT + 0x1000)
#define OLD_BP	  0x7ffd00004440ull /* value of rbp in the outermost frame */
#define INNER_ID  0x12345
#define OUTER_ID  7
#define INTERPRET 0x8000u /* offset of the interpreter in the heap */

static const unsigned jdks[] = {8, 17, 25};
static struct pf_jvm layout;

static void put(uint64_t at, uint64_t value, size_t n)
{
	uint8_t *to = vm_at(at, n);

	assert_non_null(to);
	memcpy(to, &value, n);
}

static void put64(uint64_t at, uint64_t value)
{
	put(at, value, 8);
}

/* Makes the layout. The offsets come from vmStructs of these JDKs. */
static void make(unsigned jdk)
{
	memset(&vm, 0, sizeof(vm));
	memset(vm.segmap, 0xff, sizeof(vm.segmap));
	layout = (struct pf_jvm){
		.heaps[0] = {CODE_AT, CODE_AT + CODE_BYTES, SEGMAP_AT, SEGMENT_BITS, 0},
		.low = CODE_AT,
		.high = CODE_AT + CODE_BYTES,
		.interpreter = CODE_AT + INTERPRET,
		.interpreter_end = CODE_AT + INTERPRET + 0x2000,
		.entries = CODE_AT + INTERPRET + 0x1000,
		.entries_end = CODE_AT + INTERPRET + 0x1400,
		.block_bytes = jdk == 25 ? 8 : 16,
		.name = jdk == 17 ? 96 : 8,
		.size = jdk == 8    ? 16
			: jdk == 17 ? 12
				    : 24,
		.frame_size = jdk == 17 ? 28 : 44,
		.complete = jdk == 8	? 36
			    : jdk == 17 ? 20
					: 54,
		.complete_short = jdk == 25,
		.code_begin = jdk == 17 ? 32 : PF_JVM_NONE,
		.code_offset = jdk == 8	   ? 32
			       : jdk == 17 ? PF_JVM_NONE
					   : 36,
		.compile_id = jdk == 8	  ? 204
			      : jdk == 17 ? 304
					  : 212,
		.orig_pc = jdk == 8    ? 200
			   : jdk == 17 ? 300
				       : 208,
		.deopt_begin = jdk == 17 ? 128 : PF_JVM_NONE,
		.deopt_offset = jdk == 8    ? 148
				: jdk == 17 ? PF_JVM_NONE
					    : 176,
		.deopt_mh_begin = jdk == 17 ? 136 : PF_JVM_NONE,
		.deopt_mh_offset = jdk == 8    ? 152
				   : jdk == 17 ? PF_JVM_NONE
					       : 180,
		.method_const = 8,
		.const_method_bytes = 48,
		.bcp_slot = jdk == 8 ? 7 : 8,
	};
	put(NATIVE - 2, 0xd0ff, 2); /* call *%rax */
	put64(METHOD + 8, CONST);
}

/* ---- blobs ---- */

#define CODE_OFFSET 0x180 /* offset of the code in a blob */

struct blob {
	uint64_t at, begin;
	uint32_t bytes;
};

static struct blob blob(const char *name, uint32_t frame_words, int complete,
			uint32_t alloc_code_bytes)
{
	static uint64_t names;
	uint32_t bytes = CODE_OFFSET + alloc_code_bytes;
	uint32_t segments = (layout.block_bytes + bytes + (1u << SEGMENT_BITS) - 1) >> SEGMENT_BITS;
	struct blob b = {.bytes = bytes};

	b.at = CODE_AT + ((uint64_t)vm.next << SEGMENT_BITS) + layout.block_bytes;
	b.begin = b.at + CODE_OFFSET;
	for (uint32_t k = 0; k < segments; k++) /* as mark_segmap_as_used: 0, 1, ..., 254, 1, ... */
		vm.segmap[vm.next + k] = k < 255 ? k : 1 + (k - 255) % 254;
	vm.next += segments;
	names = names % 0x400 + 0x20;
	memcpy(vm_at(DATA_AT + names, strlen(name) + 1), name, strlen(name) + 1);
	put64(b.at + layout.name, DATA_AT + names);
	put(b.at + layout.size, bytes, 4);
	put(b.at + layout.frame_size, frame_words, 4);
	put(b.at + layout.complete, complete, layout.complete_short ? 2 : 4);
	if (layout.code_begin != PF_JVM_NONE)
		put64(b.at + layout.code_begin, b.begin);
	else
		put(b.at + layout.code_offset, CODE_OFFSET, 4);
	return b;
}

static struct blob method(uint32_t frame_words, int complete, uint32_t id,
			  uint32_t alloc_code_bytes)
{
	struct blob b = blob("nmethod", frame_words, complete, alloc_code_bytes);

	put(b.at + layout.compile_id, id, 4);
	return b;
}

static void code(const struct blob *b, uint32_t at, const char *hex)
{
	for (unsigned byte; sscanf(hex, " %2x", &byte) == 1; hex += 3) {
		put(b->begin + at++, byte, 1);
		if (!hex[2])
			break;
	}
}

/* ---- a stack: native code calls the stub that calls Java, which calls outer (6 words) ---- */

static struct blob outer, call_stub;

/*
 * Returns the return address in outer. In the tests below, outer's frame begins at the address cfa.
 */
static uint64_t outer_ra(void)
{
	return outer.begin + 0x45;
}

static void make_callers(unsigned jdk)
{
	make(jdk);
	outer = method(6, 12, OUTER_ID, 0x100);
	code(&outer, 0x40, "e8 00 00 00 00");
	call_stub = blob("StubRoutines (1)", 0, -1, 0x100);
	code(&call_stub, 0x3e, "ff d1");
	layout.call_stub = call_stub.begin;
}

/*
 * Writes two frames from cfa up: that of outer, which has saved the stub's rbp, and that of the
 * stub.
 */
static void put_callers(uint64_t cfa)
{
	uint64_t stub_bp = cfa + 6 * 8 + 0x60;

	put64(cfa + 4 * 8, stub_bp);
	put64(cfa + 5 * 8, call_stub.begin + 0x40);
	put64(stub_bp, OLD_BP);
	put64(stub_bp + 8, NATIVE);
	put64(stub_bp + 16, 0);
}

static void assert_frame(uint32_t k, uint32_t type, uint64_t a, uint64_t b)
{
	struct host_frame f = host_frame(k);

	assert_int_equal(f.kind, PF_FRAME_RUNTIME);
	assert_int_equal(f.type, type);
	assert_int_equal(f.a, a);
	assert_int_equal(f.b, b);
}

static void assert_callers(uint32_t k)
{
	struct host_frame native = host_frame(k + 2);

	assert_frame(k, PF_JVM_COMPILED, outer.at | (uint64_t)OUTER_ID << 48, outer_ra());
	assert_frame(k + 1, PF_JVM_STUB, call_stub.at, call_stub.begin + 0x40);
	assert_int_equal(native.kind, PF_FRAME_NATIVE);
	assert_int_equal(native.a, NATIVE);
}

#define FOR_JDKS                                                                                   \
	for (size_t jdk_ = 0; jdk_ < sizeof(jdks) / sizeof(*jdks); jdk_++)                         \
		for (bool once_ = (make_callers(jdks[jdk_]), vm_process(&layout), true); once_;    \
		     once_ = false)

/* ---- compiled methods ---- */

static void compiled_frames_have_their_size(void **state)
{
	(void)state;
	FOR_JDKS
	{
		struct blob inner = method(4, 12, INNER_ID, 0x100);

		put64(SP + 2 * 8, 0x1234); /* value of rbp in outer */
		put64(SP + 3 * 8, outer_ra());
		put_callers(SP + 4 * 8);
		vm_process(&layout);
		host_walk(inner.begin + 0x20, SP, 99);
		assert_frame(0, PF_JVM_INTERRUPTED, inner.at | 0x2345ull << 48,
			     (inner.begin + 0x21) | 1ull << 48);
		assert_callers(1);
	}
}

/* What an instruction does with rsp and rbp. */
enum effect { NONE, PUSH, FRAME, TAKE, GIVE, POP, SAVE, LEAVE };
struct instruction {
	const char *bytes;
	enum effect effect;
};

static uint32_t length(const char *hex)
{
	return (strlen(hex) + 1) / 3;
}

/*
 * Runs the code of a frame of 4 words, and walks at each instruction. The code begins where only
 * the return address is on the stack. complete: index of the first instruction after the prologue.
 */
static void step(const struct instruction *is, size_t n, size_t complete)
{
	uint64_t sp = SP + 8 * 8, bp = 0x5555, cfa = sp + 8, at;
	struct blob inner = method(4, 0, INNER_ID, 0x100);

	put64(sp, outer_ra());
	put_callers(cfa);
	at = 0x20;
	for (size_t k = 0; k < n; k++) {
		if (k == complete)
			put(inner.at + layout.complete, at, 2);
		code(&inner, at, is[k].bytes);
		at += length(is[k].bytes);
	}
	vm_process(&layout);
	at = inner.begin + 0x20;
	for (size_t k = 0; k < n; k++) {
		host_walk(at, sp, bp);
		if (host_frame(3).a != NATIVE || host_frame(1).b != outer_ra())
			fail_msg("at %s", is[k].bytes);
		assert_callers(1);
		at += length(is[k].bytes);
		if (is[k].effect == PUSH)
			put64(sp -= 8, bp);
		else if (is[k].effect == FRAME)
			bp = sp;
		else if (is[k].effect == TAKE)
			sp = cfa - 4 * 8;
		else if (is[k].effect == SAVE)
			put64(cfa - 16, bp);
		else if (is[k].effect == GIVE)
			sp = cfa - 16;
		else if (is[k].effect == POP || is[k].effect == LEAVE)
			sp = cfa - 8, bp = 0x5555;
	}
}

#define BODY                                                                                       \
	{"8b 42 0c", NONE}, {"48 8b c8", NONE},                                                    \
	{                                                                                          \
		"e8 00 01 00 00", NONE                                                             \
	}
#define STEPS(complete, ...)                                                                       \
	FOR_JDKS                                                                                   \
	{                                                                                          \
		const struct instruction is_[] = {__VA_ARGS__};                                    \
                                                                                                   \
		step(is_, sizeof(is_) / sizeof(*is_), complete);                                   \
	}

static void prologues_with_a_push(void **state)
{
	(void)state;
	STEPS(4, {"44 8b 56 08", NONE}, {"89 84 24 00 c0 fe ff", NONE}, {"55", PUSH},
	      {"48 83 ec 10", TAKE}, BODY, {"48 83 c4 10", GIVE}, {"5d", POP},
	      {"4d 8b 97 08 01 00 00", NONE}, {"41 85 02", NONE}, {"c3", NONE})
	STEPS(3, {"89 84 24 00 c0 fe ff", NONE}, {"55", PUSH}, {"48 81 ec 10 00 00 00", TAKE}, BODY,
	      {"48 81 c4 10 00 00 00", GIVE}, {"5d", POP}, {"85 05 11 22 33 04", NONE},
	      {"c3", NONE})
}

static void prologues_that_save_late(void **state)
{
	(void)state;
	STEPS(4, {"48 81 ec 18 00 00 00", TAKE}, {"48 89 6c 24 10", SAVE},
	      {"41 81 7f 20 01 00 00 00", NONE}, {"0f 85 2a 00 00 00", NONE}, BODY,
	      {"48 83 c4 10", GIVE}, {"5d", POP}, {"49 3b 67 28", NONE},
	      {"0f 87 11 00 00 00", NONE}, {"c3", NONE})
}

static void native_wrappers(void **state)
{
	(void)state;
	STEPS(4, {"89 84 24 00 c0 fe ff", NONE}, {"55", PUSH}, {"48 8b ec", FRAME},
	      {"48 83 ec 10", TAKE}, BODY, {"c9", LEAVE}, {"49 83 7f 08 00", NONE},
	      {"0f 85 01 00 00 00", NONE}, {"c3", NONE})
	STEPS(5, {"55", PUSH}, {"48 89 e5", FRAME}, {"48 83 ec 10", TAKE}, {"90", NONE},
	      {"41 81 bf 20 01 00 00 01 00 00 00", NONE}, BODY, {"c9", LEAVE},
	      {"49 81 bf 08 01 00 00 00 00 00 00", NONE}, {"0f 85 01 00 00 00", NONE}, {"c3", NONE})
}

/*
 * 5d (pop %rbp) and c9 (leave) inside of another instruction are no epilogues, whatever bytes are
 * before them.
 */
static void constants_are_no_epilogues(void **state)
{
	(void)state;
	STEPS(2, {"55", PUSH}, {"48 83 ec 10", TAKE}, {"ff c9", NONE}, {"49 63 d0", NONE},
	      {"48 8b 5d 5d", NONE}, {"8b c1", NONE}, {"b8 5d 5d 5d c9", NONE}, {"8b c1", NONE})
}

static void words_pushed_below_a_frame(void **state)
{
	(void)state;
	FOR_JDKS
	{
		struct blob inner = method(4, 12, INNER_ID, 0x100);

		/* a wrong word, where the return address would be without the pushed words */
		put64(SP + 3 * 8, 0x9999);
		put64(SP + 7 * 8, outer_ra());
		put64(SP + 6 * 8, 0x1234);
		put_callers(SP + 8 * 8);
		vm_process(&layout);
		host_walk(inner.begin + 0x20, SP, 99);
		assert_callers(1);
	}
}

/* C1 pushes the arguments of a stub and drops them. The frame may contain old return addresses. */
static void arguments_below_a_frame(void **state)
{
	static const char *const codes[] = {"56 53 e8 00 00 00 00 5e 5e 85 f6 90",
					    "41 53 41 50 e8 00 00 00 00 41 5b 41 5b 90"};
	static const uint8_t places[2][6] = {{0, 1, 2, 7, 8, 9}, {0, 2, 4, 9, 11, 13}};
	static const uint8_t pushed[6] = {0, 1, 2, 2, 1, 0};

	(void)state;
	FOR_JDKS
	{
		struct blob inner = method(4, 12, INNER_ID, 0x100);
		uint64_t frame = SP + 0x80;

		for (uint64_t old = frame; old < frame + 24; old += 8)
			put64(old, call_stub.begin + 0x40);
		put64(frame + 24, outer_ra());
		put_callers(frame + 32);
		vm_process(&layout);
		for (size_t c = 0; c < 2; c++)
			for (size_t k = 0; k < 6; k++) {
				code(&inner, 0x40, codes[c]);
				host_walk(inner.begin + 0x40 + places[c][k], frame - 8 * pushed[k],
					  99);
				assert_callers(1);
			}
	}
}

/*
 * The walk begins in the stub that gets these arguments. The room that the stub reserves on the
 * stack still has its old contents.
 */
static void stubs_with_arguments(void **state)
{
	(void)state;
	FOR_JDKS
	{
		struct blob inner = method(4, 12, INNER_ID, 0x100);
		struct blob stub = blob("slow_subtype_check Runtime1 stub", UINT32_MAX, -1, 0x100);
		uint64_t frame = SP + 0x80, ra = inner.begin + 0x47, sp = frame - 24 - 4 * 8 - 0x20;

		code(&inner, 0x40, "56 53 e8 00 00 00 00 5e 5e 85 f6");
		put(ra - 4, stub.begin - ra, 4);
		code(&stub, 0, "57 56 51 50 48 83 ec 20 48 89 14 24 4c 89 44 24 08");
		put64(frame + 8, call_stub.begin + 0x40);
		put64(frame + 24, outer_ra());
		put_callers(frame + 32);
		put64(frame - 24, ra);
		for (uint64_t old = sp; old < sp + 0x20; old += 8)
			put64(old, ra);
		vm_process(&layout);
		host_walk(stub.begin + 8, sp, 99);
		assert_frame(0, PF_JVM_STUB, stub.at, stub.begin + 9);
		assert_frame(1, PF_JVM_COMPILED, inner.at | 0x2345ull << 48, ra | 1ull << 48);
		assert_callers(2);
		host_walk(stub.begin, frame - 24, 99);
		assert_callers(2);
	}
}

static void deoptimized_frames_say_where_they_were(void **state)
{
	(void)state;
	FOR_JDKS
	{
		struct blob inner = method(4, 12, INNER_ID, 0x100);
		uint64_t handler = outer.begin + 0xe0;

		if (layout.deopt_begin != PF_JVM_NONE)
			put64(outer.at + layout.deopt_begin, handler);
		else
			put(outer.at + layout.deopt_offset, handler - outer.at, 4);
		put(outer.at + layout.orig_pc, 8, 4);
		put64(SP + 3 * 8, handler);
		put_callers(SP + 4 * 8);
		put64(SP + 4 * 8 + 8, outer_ra());
		vm_process(&layout);
		host_walk(inner.begin + 0x20, SP, 99);
		assert_callers(1);
	}
}

static void large_methods_take_hops(void **state)
{
	(void)state;
	FOR_JDKS
	{
		struct blob inner = method(4, 12, INNER_ID, 0x18000); /* a blob of 771 segments */

		put64(SP + 3 * 8, outer_ra());
		put_callers(SP + 4 * 8);
		vm_process(&layout);
		host_walk(inner.begin + 0x17f00, SP, 99);
		assert_callers(1);
	}
}

static void assert_trouble(uint32_t trouble)
{
	struct host_frame f = host_frame(0);

	assert_int_equal(f.kind, PF_FRAME_RUNTIME);
	assert_int_equal(f.type, PF_TYPE_TROUBLE);
	assert_int_equal(f.a, trouble);
	assert_int_equal(host_frame(1).kind, 0);
	assert_int_equal(host.walk.end, PF_END_FP);
}

static void code_that_is_no_blob_is_trouble(void **state)
{
	(void)state;
	FOR_JDKS
	{
		host_walk(CODE_AT + 0x20000, SP, 99);
		assert_trouble(PF_TROUBLE_CODE);
		/* each hop goes back one segment, so no block is found */
		memset(vm.segmap, 1, sizeof(vm.segmap));
		host_walk(CODE_AT + 0x20000, SP, 99);
		assert_trouble(PF_TROUBLE_LONG);
		layout.heaps[0].segmap = 0x1000; /* not mapped */
		vm_process(&layout);
		host_walk(CODE_AT + 0x20000, SP, 99);
		assert_trouble(PF_TROUBLE_READ);
	}
}

/* ---- the interpreter ---- */

/* Makes a frame of METHOD at fp. outer calls it; sender: rsp in outer. */
static void put_interpreted(uint64_t fp, uint64_t sender, uint32_t bci)
{
	put64(fp + 8, outer_ra());
	put64(fp, 0x5555);
	put64(fp - 8, sender);
	put64(fp - 24, METHOD);
	put64(fp - 8 * layout.bcp_slot, CONST + layout.const_method_bytes + bci);
	put_callers(sender);
}

static void interpreted_frames_tell_their_bytecode(void **state)
{
	(void)state;
	FOR_JDKS
	{
		uint64_t fp = SP + 0x100;

		put_interpreted(fp, fp + 0x40, 17);
		vm_process(&layout);
		/* The frame runs: r13 is the bytecode's address. */
		host.walk.regs[13] = CONST + layout.const_method_bytes + 33;
		host_walk(layout.interpreter + 0x200, fp - 0x60, fp);
		assert_frame(0, PF_JVM_INTERPRETED, METHOD, CONST | 33ull << 48);
		assert_callers(1);
		/* r13 has another value, so the pointer in the frame counts. */
		host.walk.regs[13] = 12;
		host_walk(layout.interpreter + 0x200, fp - 0x60, fp);
		assert_frame(0, PF_JVM_INTERPRETED, METHOD, CONST | 17ull << 48);
		assert_callers(1);
		/* A native method has no bytecode. */
		put64(fp - 8 * layout.bcp_slot, 0);
		host_walk(layout.interpreter + 0x200, fp - 0x60, fp);
		assert_frame(0, PF_JVM_INTERPRETED, METHOD, CONST | 0xffffull << 48);
	}
}

static void interpreted_callers(void **state)
{
	(void)state;
	FOR_JDKS
	{
		struct blob inner = method(4, 12, INNER_ID, 0x100);
		uint64_t fp = SP + 0x100;

		put64(SP + 2 * 8, fp);
		put64(SP + 3 * 8, layout.interpreter + 0x300);
		put_interpreted(fp, fp + 0x40, 17);
		vm_process(&layout);
		host_walk(inner.begin + 0x20, SP, 99);
		assert_frame(1, PF_JVM_INTERPRETED, METHOD, CONST | 17ull << 48);
		assert_callers(2);
	}
}

static void a_method_without_sense_is_trouble(void **state)
{
	(void)state;
	FOR_JDKS
	{
		uint64_t fp = SP + 0x100;

		put_interpreted(fp, fp + 0x40, 17);
		put64(fp - 24, 0x7123456789abull);
		vm_process(&layout);
		host_walk(layout.interpreter + 0x200, fp - 0x60, fp);
		assert_frame(0, PF_TYPE_TROUBLE, PF_TROUBLE_DAMAGED, 0x7123456789abull);
		assert_callers(1);
		put64(fp - 24, 0x712345678900ull);
		host_walk(layout.interpreter + 0x200, fp - 0x60, fp);
		assert_frame(0, PF_TYPE_TROUBLE, PF_TROUBLE_READ, 0x712345678908ull);
	}
}

static void interpreted_frames_being_made(void **state)
{
	(void)state;
	FOR_JDKS
	{
		uint64_t sp = SP + 0x100, sender = sp + 0x18;

		vm_process(&layout);
		put_callers(sender);
		host.walk.regs[PF_JVM_RBX] = METHOD;
		host.walk.regs[PF_JVM_R13] = sender;
		/*
		 * Three states of the entry. The return address is on top of the stack; then it is
		 * in rax; then it is on top of the locals, with rbp below it.
		 */
		put64(sp, outer_ra());
		host_walk(layout.entries + 0x10, sp, 0x5555);
		assert_frame(0, PF_JVM_INTERPRETED, METHOD, CONST | 0xffffull << 48);
		assert_callers(1);
		put64(sp, 3);
		host.walk.regs[PF_JVM_RAX] = outer_ra();
		host_walk(layout.entries + 0x10, sp, 0x5555);
		assert_callers(1);
		put64(sp, outer_ra());
		put64(sp - 8, 0x5555);
		host_walk(layout.entries + 0x10, sp - 8, sp - 8);
		assert_callers(1);
		put64(sp - 16, sender);
		host.walk.regs[PF_JVM_R13] = CONST + layout.const_method_bytes;
		host_walk(layout.entries + 0x10, sp - 0x20, sp - 8);
		assert_callers(1);
	}
}

static void interpreted_frames_that_are_left(void **state)
{
	(void)state;
	FOR_JDKS
	{
		uint64_t sp = SP + 0x100, sender = sp + 0x18, at = layout.interpreter + 0x400;
		struct blob i = {.begin = at};

		code(&i, 0, "c9 41 5d 48 8b e3 41 ff e5");
		vm_process(&layout);
		put64(sp, outer_ra());
		put_callers(sender);
		host.walk.regs[PF_JVM_RBX] = sender;
		host_walk(at + 1, sp, 0x5555);
		assert_callers(1);
		host.walk.regs[PF_JVM_R13] = outer_ra();
		host_walk(at + 3, sp + 8, 0x5555);
		assert_callers(1);
		host_walk(at + 6, sender, 0x5555);
		assert_callers(1);
	}
}

/* ---- stubs ---- */

static void stubs_with_a_frame(void **state)
{
	(void)state;
	FOR_JDKS
	{
		struct blob stub = blob("new_instance Runtime1 stub", 16, -1, 0x100);
		uint64_t bp = SP + 14 * 8;

		code(&stub, 0, "55 48 8b ec 48 81 ec 80 00 00 00");
		put64(bp + 8, outer_ra());
		put_callers(bp + 16);
		vm_process(&layout);
		put64(bp, 0x5555);
		host_walk(stub.begin, bp + 8, 0x5555);
		assert_frame(0, PF_JVM_STUB, stub.at, stub.begin + 1);
		assert_callers(1);
		host_walk(stub.begin + 1, bp, 0x5555);
		assert_callers(1);
		host_walk(stub.begin + 4, bp, bp);
		assert_callers(1);
		host_walk(stub.begin + 0x30, SP, bp);
		assert_callers(1);
	}
}

static void stubs_without_a_frame(void **state)
{
	(void)state;
	FOR_JDKS
	{
		struct blob stub = blob("StubRoutines (2)", 0, -1, 0x100);

		/* the call in outer calls this stub */
		put(outer.begin + 0x41, stub.begin + 0x10 - outer_ra(), 4);
		put64(SP, outer_ra());
		put_callers(SP + 8);
		vm_process(&layout);
		host_walk(stub.begin + 0x30, SP, 0x5555);
		assert_callers(1);
	}
}

/* The top word of call_stub's frame may have any value. */
static void the_stub_that_calls_java(void **state)
{
	(void)state;
	FOR_JDKS
	{
		uint64_t bp = SP + 0x60;
		struct host_frame native;

		put64(SP, NATIVE);
		put64(bp, OLD_BP);
		put64(bp + 8, NATIVE);
		host_walk(call_stub.begin + 0x50, SP, bp);
		native = host_frame(1);
		assert_int_equal(native.kind, PF_FRAME_NATIVE);
		assert_int_equal(native.a, NATIVE);
		assert_int_equal(host_frame(0).kind, PF_FRAME_RUNTIME);
	}
}

static void entry_barriers_have_a_word_more(void **state)
{
	(void)state;
	FOR_JDKS
	{
		struct blob stub = blob("StubRoutines (2)", 0, -1, 0x100);
		uint64_t bp = SP + 0x80;

		put64(bp + 8, UINT64_MAX);
		put64(bp + 16, outer_ra());
		put64(bp, 0x5555);
		put_callers(bp + 24);
		vm_process(&layout);
		host_walk(stub.begin + 0x30, SP, bp);
		assert_callers(1);
	}
}

static void adapters_hold_the_return_address(void **state)
{
	(void)state;
	FOR_JDKS
	{
		struct blob adapter = blob("I2C/C2I adapters", 0, -1, 0x100);

		vm_process(&layout);
		put64(SP, outer_ra());
		put_callers(SP + 8);
		host_walk(adapter.begin + 0x10, SP, 0x5555);
		assert_callers(1);
		host.walk.regs[PF_JVM_RAX] = outer_ra();
		host.walk.regs[PF_JVM_R13] = SP + 8;
		put64(SP - 0x20, 77);
		host_walk(adapter.begin + 0x20, SP - 0x20, 0x5555);
		assert_callers(1);
	}
}

static void frames_that_go_on_in_the_heap(void **state)
{
	(void)state;
	FOR_JDKS
	{
		struct blob inner = method(4, 12, INNER_ID, 0x100);
		struct blob stub = blob("StubRoutines (3)", 0, -1, 0x100);
		uint64_t entry = SP + 5 * 8, cfa = entry + 12 * 8;

		put64(SP + 3 * 8, stub.begin + 0x20);
		put64(cfa - 16, 0x5555);
		put64(cfa - 8, outer_ra());
		put_callers(cfa);
		vm_process(&layout);
		host_walk(inner.begin + 0x20, SP, 99);
		assert_frame(1, PF_JVM_STUB, stub.at, stub.begin + 0x20);
		assert_callers(2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(compiled_frames_have_their_size),
		cmocka_unit_test(prologues_with_a_push),
		cmocka_unit_test(prologues_that_save_late),
		cmocka_unit_test(native_wrappers),
		cmocka_unit_test(constants_are_no_epilogues),
		cmocka_unit_test(words_pushed_below_a_frame),
		cmocka_unit_test(arguments_below_a_frame),
		cmocka_unit_test(stubs_with_arguments),
		cmocka_unit_test(deoptimized_frames_say_where_they_were),
		cmocka_unit_test(large_methods_take_hops),
		cmocka_unit_test(code_that_is_no_blob_is_trouble),
		cmocka_unit_test(interpreted_frames_tell_their_bytecode),
		cmocka_unit_test(interpreted_callers),
		cmocka_unit_test(a_method_without_sense_is_trouble),
		cmocka_unit_test(interpreted_frames_being_made),
		cmocka_unit_test(interpreted_frames_that_are_left),
		cmocka_unit_test(stubs_with_a_frame),
		cmocka_unit_test(stubs_without_a_frame),
		cmocka_unit_test(the_stub_that_calls_java),
		cmocka_unit_test(entry_barriers_have_a_word_more),
		cmocka_unit_test(adapters_hold_the_return_address),
		cmocka_unit_test(frames_that_go_on_in_the_heap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
