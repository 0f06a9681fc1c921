// SPDX-License-Identifier: Apache-2.0
/*
 * bpf/unwind.h on the host, in code without a table: frame pointers, what the code itself shows,
 * Go's system stack.
 */
#include "node/probe/unwind_scene_test.h"

/* ---- code without a table ---- */

static void frame_pointers_where_there_is_no_table(void **state)
{
	(void)state;
	put_record(4, stack_at(8), JIT + 0x20);
	put_record(8, stack_at(12), JIT + 0x40);
	put_record(12, 0, JIT + 0x60);
	walk(JIT, stack_at(0), stack_at(4));
	ASSERT_STACK(PF_END_ROOT, JIT, JIT + 0x20, JIT + 0x40, JIT + 0x60);
	put_record(12, 0, 0);
	walk(JIT, stack_at(0), stack_at(4));
	ASSERT_STACK(PF_END_ROOT, JIT, JIT + 0x20, JIT + 0x40);
	put_record(12, 0x1234567, JIT + 0x60);
	walk(JIT, stack_at(0), stack_at(4));
	ASSERT_STACK(PF_END_FP, JIT, JIT + 0x20, JIT + 0x40, JIT + 0x60);
	put_record(12, stack_at(8), JIT + 0x60); /* a record that leads to a lower address */
	walk(JIT, stack_at(0), stack_at(4));
	ASSERT_STACK(PF_END_FP, JIT, JIT + 0x20, JIT + 0x40, JIT + 0x60);
}

/* Wherever in its prologue or epilogue a function was interrupted, the walk finds its caller. */
static void prologue_and_epilogue_keep_the_caller(void **state)
{
	static const struct {
		uint8_t bytes[8];
		uint8_t ip; /* offset of the interrupted instruction in bytes */
		/*
		 * where the return address is: 0: at [rsp]; 1: at [rsp + 8]; 2: in a frame record
		 */
		uint8_t kind;
	} cases[] = {
		{{0x90, 0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89}, 1, 0}, /* endbr64 */
		{{0x90, 0x55, 0x48, 0x89, 0xe5, 0x90, 0x90, 0x90}, 1, 0}, /* push %rbp */
		{{0x41, 0x54, 0x55, 0x53, 0x48, 0x83, 0xec, 0x18}, 2, 2}, /* push %r12; push %rbp */
		{{0x90, 0x55, 0x48, 0x89, 0xe5, 0x90, 0x90, 0x90}, 2, 1}, /* mov %rsp,%rbp */
		/* mov %rsp,%rbp in its other encoding */
		{{0x90, 0x55, 0x48, 0x8b, 0xec, 0x90, 0x90, 0x90}, 2, 1},
		/* in the function's body */
		{{0x90, 0x55, 0x48, 0x89, 0xe5, 0x90, 0x90, 0x90}, 5, 2},
		{{0x90, 0x90, 0x5d, 0xc3, 0x90, 0x90, 0x90, 0x90}, 2, 2}, /* pop %rbp */
		{{0x90, 0x90, 0x5d, 0xc3, 0x90, 0x90, 0x90, 0x90}, 3, 0}, /* ret */
		{{0x90, 0x90, 0x5d, 0xc2, 0x08, 0x00, 0x90, 0x90}, 3, 0}, /* ret 8 */
		{{0x90, 0x90, 0x5d, 0xe9, 0x08, 0x00, 0x90, 0x90}, 3, 0}, /* pop; jmp */
		{{0x90, 0x90, 0xc9, 0xc3, 0x90, 0x90, 0x90, 0x90}, 2, 2}, /* leave */
		{{0x90, 0xff, 0x25, 0x00, 0x10, 0x00, 0x00, 0x66}, 1, 0}, /* an entry of a PLT */
		/* an entry of a PLT, with bnd */
		{{0x90, 0xf2, 0xff, 0x25, 0x00, 0x10, 0x00, 0x00}, 1, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t own = stack_at(4), sp = stack_at(2);

		memcpy(code + 0x100, cases[i].bytes, 8);
		memset(stack_words, 0, sizeof(stack_words));
		put_record(8, 0, JIT + 0x60); /* the caller's record */
		if (cases[i].kind == 0) {
			stack_words[2] = JIT + 0x40;
			own = stack_at(8);
		} else if (cases[i].kind == 1) {
			put_record(2, stack_at(8), JIT + 0x40);
			own = stack_at(8);
		} else {
			put_record(4, stack_at(8), JIT + 0x40);
		}
		walk(JIT + cases[i].ip, sp, own);
		ASSERT_STACK(PF_END_ROOT, JIT + cases[i].ip, JIT + 0x40, JIT + 0x60);
	}
}

/*
 * Like musl's memcpy, the leaf has no row and no frame, so its return address is on top of the
 * stack. The walk trusts that word, because the instruction before that address calls the leaf.
 */
static void a_leaf_that_never_touches_the_stack(void **state)
{
	uint8_t call[5] = {0xe8};
	int32_t to_leaf;
	uint16_t r;

	(void)state;
	r = rule(RSP(8));
	row(0, 0, PF_RULE_GAP);
	row(0, 0x100, r);
	row_start();
	to_leaf = (int32_t)(0x30010 - 0x30120);
	memcpy(call + 1, &to_leaf, 4);
	memcpy(code + (at(0x3011b) - CODE_BASE), call, 5);
	stack_words[2] = at(0x30120);
	stack_words[3] = at(START + 1);
	/* rbp may point to a valid record, too, but following it would lose the caller */
	put_record(8, 0, at(START + 1));
	walk(at(0x30020), stack_at(2), stack_at(8));
	ASSERT_STACK(PF_END_ROOT, at(0x30020), at(0x30120), at(START + 1));
	/*
	 * Now that instruction calls another function, so the word on top is not the leaf's return
	 * address.
	 */
	to_leaf -= 0x4000;
	memcpy(code + (at(0x3011c) - CODE_BASE), &to_leaf, 4);
	walk(at(0x30020), stack_at(2), stack_at(8));
	ASSERT_STACK(PF_END_ROOT, at(0x30020), at(START + 1));
}

/*
 * In a file with rows, code without a row (written by hand) may have any number in rbp, also 0. So
 * 0 is the end of the stack only where it comes from a frame record, or where the code shows that a
 * thread begins there.
 */
static void a_zero_in_rbp_is_no_end(void **state)
{
	static const uint8_t ends[][8] = {
		{0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05}, /* musl's clone() */
		{0x89, 0xc7, 0xb8, 0x3c, 0x00, 0x00, 0x00, 0x0f},
	};
	uint8_t *behind_call = code + (at(0x30120) - CODE_BASE);

	(void)state;
	row(0, 0, rule(RSP(8)));
	row(0, 0x100, PF_RULE_GAP);
	row_start();
	stack_words[0] = at(0x30120);
	walk(at(0x30010), stack_at(0), 0);
	ASSERT_STACK(PF_END_FP, at(0x30010), at(0x30120));
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		memcpy(behind_call, ends[i], sizeof(ends[i]));
		walk(at(0x30010), stack_at(0), 0);
		ASSERT_STACK(PF_END_ROOT, at(0x30010), at(0x30120));
		/* the next frame is that of this code: its return address is shortly above */
		stack_words[0] = at(0x30140);
		stack_words[8] = at(0x30120);
		walk(at(0x30010), stack_at(0), 0);
		ASSERT_STACK(PF_END_ROOT, at(0x30010), at(0x30140));
		stack_words[9] = stack_words[8];
		stack_words[8] = 0;
		walk(at(0x30010), stack_at(0), 0);
		ASSERT_STACK(PF_END_FP, at(0x30010), at(0x30140));
		stack_words[9] = 0;
		stack_words[0] = at(0x30120);
	}
	memset(behind_call, 0x90, 8);
	/* the record of a function that keeps frame pointers */
	put_record(8, 0, at(0x30130));
	walk(at(0x30010), stack_at(0), stack_at(8));
	ASSERT_STACK(PF_END_ROOT, at(0x30010), at(0x30120), at(0x30130));
	/* no row of the file shows that its compiler does without frame pointers */
	image.files[1].n_pages = 0;
	walk_at_entry(at(0x30110), stack_at(0), 0, true);
	ASSERT_STACK(PF_END_ROOT, at(0x30110), at(0x30120));
}

static void a_uprobe_at_entry_keeps_the_caller(void **state)
{
	/* how a function of libcuda begins */
	static const uint8_t cmp[] = {0x83, 0x3d, 0, 0, 0, 0, 0, 0x74};
	uint16_t r;

	(void)state;
	memcpy(code + 0x100, cmp, sizeof(cmp));
	stack_words[2] = JIT + 0x40;
	put_record(8, 0, JIT + 0x60);
	walk_at_entry(JIT, stack_at(2), stack_at(8), true);
	ASSERT_STACK(PF_END_ROOT, JIT, JIT + 0x40, JIT + 0x60);
	/* With a row, the walk knows the caller anyway. */
	r = rule(RSP(8));
	row(0, 0, r);
	row_start();
	stack_words[2] = at(START + 1);
	walk_at_entry(at(0x30000), stack_at(2), stack_at(8), true);
	ASSERT_STACK(PF_END_ROOT, at(0x30000), at(START + 1));
}

/*
 * A stack with frames of a function with rows, of one without a table (walked by frame pointers),
 * of a gap, and of a function with rows that need rbp.
 */
static void mixed_code(void **state)
{
	uint16_t leaf, outer;

	(void)state;
	leaf = rule(RSP(8));
	outer = rule((struct pf_rule){
		.cfa = PF_CFA_RBP, .cfa_offset = 16, .fp = PF_FP_CFA, .fp_offset = -16});
	row(0, 0, leaf);
	row(0, 0x100, PF_RULE_GAP);
	row(0, 0x200, outer);
	row_start();
	stack_words[0] = JIT + 8;
	put_record(4, stack_at(8), at(0x30120));
	put_record(8, stack_at(12), at(0x30220));
	put_record(12, 0, at(START + 1));
	walk(at(0x30000), stack_at(0), stack_at(4));
	ASSERT_STACK(PF_END_ROOT, at(0x30000), JIT + 8, at(0x30120), at(0x30220), at(START + 1));
}

/*
 * Go: rbp always points to a frame record. So the walk follows it even from the system stack to the
 * goroutine's stack, which is at lower addresses.
 */
static void frame_pointers_for_certain_may_switch_stacks(void **state)
{
	(void)state;
	row(0, 0, PF_RULE_FP);
	put_record(100, stack_at(10), at(0x30010));
	put_record(10, stack_at(20), at(0x30020));
	put_record(20, 0, at(0x30030));
	walk(at(0x30000), stack_at(90), stack_at(100));
	ASSERT_STACK(PF_END_ROOT, at(0x30000), at(0x30010), at(0x30020), at(0x30030));
	put_record(20, stack_at(20), at(0x30030)); /* a record that points to itself */
	walk(at(0x30000), stack_at(90), stack_at(100));
	ASSERT_STACK(PF_END_STUCK, at(0x30000), at(0x30010), at(0x30020));
}

/*
 * Native images use rbp for any value, so the walk does not follow it, even if it seems to point to
 * a frame record. At a function's entry the caller is known nevertheless.
 */
static void lost_code_has_no_frame_pointer(void **state)
{
	(void)state;
	row(0, 0, PF_RULE_LOST);
	row_start();
	put_record(8, 0, at(START + 1));
	walk(at(0x30010), stack_at(2), stack_at(8));
	ASSERT_STACK(PF_END_FP, at(0x30010));
	stack_words[2] = at(START + 1);
	walk_at_entry(at(0x30000), stack_at(2), stack_at(8), true);
	ASSERT_STACK(PF_END_ROOT, at(0x30000), at(START + 1));
}

/*
 * rbp may be a number that is also an address of the stack, where a return address would be 0. That
 * is not the end of the stack.
 */
static void a_number_in_rbp_is_no_end(void **state)
{
	(void)state;
	row(0, 0, PF_RULE_GAP);
	put_record(8, stack_at(12), 0);
	walk(at(0x30010), stack_at(2), stack_at(8));
	ASSERT_STACK(PF_END_FP, at(0x30010));
	walk(at(0x30010), stack_at(2), 0);
	ASSERT_STACK(PF_END_FP, at(0x30010));
	/* a return address of 0 after a valid record is the end */
	put_record(8, stack_at(12), at(0x30100));
	put_record(12, 0, 0);
	walk(at(0x30010), stack_at(2), stack_at(8));
	ASSERT_STACK(PF_END_ROOT, at(0x30010), at(0x30100));
}

/*
 * Words of the image's stack at which the scheduler's g, the m, and the goroutine's g begin, and
 * offsets in them.
 */
#define G0     1000
#define M      1100
#define G      1200
#define G_M    48
#define M_CURG 192
#define SCHED  56
#define BP     104

static void put_word(size_t base, size_t offset, uint64_t value)
{
	stack_words[base + offset / 8] = value;
}

/* The goroutine waits at address at(0x30110), and its stack is words 400 to 500. */
static void put_goroutine(void)
{
	struct pf_golabels *d = (struct pf_golabels *)(image.chunks[3] + 4096);

	*d = (struct pf_golabels){
		.g = -8, .m = G_M, .curg = M_CURG, .sched = SCHED, .sched_bp = BP};
	scratch.walk.process.n_runtimes = 1;
	scratch.walk.process.runtimes[0] =
		(struct pf_runtime){PF_RUNTIME_GOLABELS, PF_REF(3, 4096)};
	scratch.walk.thread_pointer = stack_at(900);
	stack_words[899] = stack_at(G0);
	put_word(G0, G_M, stack_at(M));
	put_word(M, M_CURG, stack_at(G));
	put_word(G, 0, stack_at(400));
	put_word(G, 8, stack_at(500));
	put_word(G, SCHED, stack_at(450));
	put_word(G, SCHED + 8, at(0x30110));
	put_word(G, BP, stack_at(460));
}

/*
 * Go: newstack runs on the scheduler's stack. The goroutine for which it runs is at its call of
 * morestack.
 */
static void the_goroutine_that_waits_goes_on(void **state)
{
	uint16_t plain = rule(RSP(8));

	(void)state;
	row(0, 0, plain);
	row(0, 0x80, PF_RULE_GOROUTINE);
	row(0, 0x100, plain);
	row(0, 0x200, PF_RULE_FP);
	row_start();
	put_goroutine();
	stack_words[0] = at(0x30090);	/* newstack -> morestack */
	stack_words[450] = at(0x30210); /* the goroutine's function -> its caller, found with rbp */
	put_record(460, 0, at(START + 1));
	walk(at(0x30000), stack_at(0), 0);
	ASSERT_STACK(PF_END_ROOT, at(0x30000), at(0x30090), at(0x30110), at(0x30210),
		     at(START + 1));
	/* The thread may be in morestack itself, after it has switched stacks. */
	walk(at(0x30088), stack_at(1), 0);
	ASSERT_STACK(PF_END_ROOT, at(0x30088), at(0x30110), at(0x30210), at(START + 1));
	/* If the walk cannot find the goroutine, the reason of its end says so. */
	put_word(G, SCHED, stack_at(600)); /* not on its stack: Go is just changing the goroutine */
	walk(at(0x30000), stack_at(0), 0);
	ASSERT_STACK(PF_END_GOROUTINE, at(0x30000), at(0x30090));
	put_word(M, M_CURG, 0); /* no goroutine runs any more: the stack is the scheduler's */
	walk(at(0x30000), stack_at(0), 0);
	ASSERT_STACK(PF_END_ROOT, at(0x30000), at(0x30090));
	put_word(G0, G_M, 16);
	walk(at(0x30000), stack_at(0), 0);
	ASSERT_STACK(PF_END_READ, at(0x30000), at(0x30090));
	/* as for Go before 1.18, of which the agent learns nothing */
	scratch.walk.process.n_runtimes = 0;
	walk(at(0x30000), stack_at(0), 0);
	ASSERT_STACK(PF_END_GOROUTINE, at(0x30000), at(0x30090));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(frame_pointers_where_there_is_no_table),
		T(prologue_and_epilogue_keep_the_caller),
		T(a_leaf_that_never_touches_the_stack),
		T(a_zero_in_rbp_is_no_end),
		T(a_uprobe_at_entry_keeps_the_caller),
		T(mixed_code),
		T(frame_pointers_for_certain_may_switch_stacks),
		T(lost_code_has_no_frame_pointer),
		T(a_number_in_rbp_is_no_end),
		T(the_goroutine_that_waits_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
