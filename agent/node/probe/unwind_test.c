// SPDX-License-Identifier: Apache-2.0
/*
 * bpf/unwind.h on the host: every kind of rule and every way to end, with stacks written by hand.
 */
#include "node/probe/unwind_scene_test.h"

/* ---- rows and rules ---- */

static void frames_without_frame_pointers(void **state)
{
	uint16_t r8, r24;

	(void)state;
	r8 = rule(RSP(8));
	r24 = rule(RSP(24));
	row(0, 0, PF_RULE_GAP);
	row(0, 0x100, r8);
	row(0, 0x104, r24);
	row_start();
	row(1, 0, r8);
	/* the leaf in page 1 -> 0x3010a, with a frame of 24 bytes -> START */
	stack_words[10] = at(0x3010a);
	stack_words[11 + 2] = at(START + 0x10);
	walk(at(0x40020), stack_at(10), 0x1234);
	ASSERT_STACK(PF_END_ROOT, at(0x40020), at(0x3010a), at(START + 0x10));
}

/*
 * If the last instruction of a function is a call, the return address is the next function's first
 * byte.
 */
static void a_caller_is_looked_up_before_its_return_address(void **state)
{
	uint16_t r8, r24;

	(void)state;
	r8 = rule(RSP(8));
	r24 = rule(RSP(24));
	row(0, 0, r24);
	row(0, 0x200, r8); /* the first byte of another function */
	row_start();
	/* the leaf is at the first byte of the other function, so its own address is looked up */
	stack_words[0] = at(0x30200);
	stack_words[3] = at(START + 1);
	walk(at(0x30200), stack_at(0), 0);
	ASSERT_STACK(PF_END_ROOT, at(0x30200), at(0x30200), at(START + 1));
	/* Across pages: the byte before the first byte of page 1 is in page 0. */
	row(1, 0, r8);
	pages[0].n_rows--;
	stack_words[0] = at(0x40000);
	stack_words[1 + 0] = at(0x30250);
	walk(at(0x30250), stack_at(0), 0);
	assert_int_equal(scratch.stack.words[3], at(0x40000));
	assert_int_equal(scratch.stack.words[5], at(0x30250));
}

static void rbp_is_restored_from_wherever_it_is(void **state)
{
	static const struct {
		uint8_t fp;
		int32_t offset;
		size_t word; /* index of the word of the stack, counted from sp */
	} cases[] = {{PF_FP_CFA, -16, 2}, {PF_FP_CFA, -24, 1}, {PF_FP_AT_RSP, 8, 1}};
	uint16_t by_bp;

	(void)state;
	by_bp = rule((struct pf_rule){.cfa = PF_CFA_RBP, .cfa_offset = 16});
	row(0, 0, by_bp);
	row_start();
	for (size_t i = 0; i < 3; i++) {
		uint16_t r = rule((struct pf_rule){.cfa = PF_CFA_RSP,
						   .cfa_offset = 32,
						   .fp = cases[i].fp,
						   .fp_offset = cases[i].offset});

		pages[1].n_rows = 0;
		row(1, 0, r);
		memset(stack_words, 0, sizeof(stack_words));
		stack_words[cases[i].word] = stack_at(50);
		stack_words[3] = at(0x30010);
		stack_words[51] = at(START + 4);
		walk(at(0x40000), stack_at(0), 0xbad);
		ASSERT_STACK(PF_END_ROOT, at(0x40000), at(0x30010), at(START + 4));
	}
}

static void an_unknown_rbp_ends_the_walk_where_it_is_needed(void **state)
{
	uint16_t lost, by_bp, plain;

	(void)state;
	lost = rule((struct pf_rule){.cfa = PF_CFA_RSP, .cfa_offset = 8, .fp = PF_FP_UNKNOWN});
	by_bp = rule((struct pf_rule){.cfa = PF_CFA_RBP, .cfa_offset = 16});
	plain = rule(RSP(8));
	row(0, 0, lost);
	row(0, 0x100, plain);
	row(0, 0x200, by_bp);
	stack_words[0] = at(0x30110);
	stack_words[1] = at(0x30210);
	walk(at(0x30000), stack_at(0), stack_at(20));
	ASSERT_STACK(PF_END_REGISTER, at(0x30000), at(0x30110), at(0x30210));
}

static void registers_are_known_in_a_leaf_only(void **state)
{
	uint16_t by_r10, deref_r10, plain;

	(void)state;
	by_r10 = rule((struct pf_rule){.cfa = PF_CFA_REG, .reg = 10, .cfa_offset = 8});
	deref_r10 = rule((struct pf_rule){
		.cfa = PF_CFA_DEREF_REG, .reg = 10, .cfa_offset = -8, .extra = 16});
	plain = rule(RSP(8));
	row(0, 0, by_r10);
	row(0, 0x100, deref_r10);
	row(0, 0x200, plain);
	row_start();
	scratch.walk.regs[10] = stack_at(5);
	stack_words[5] = at(START + 1);
	walk(at(0x30000), stack_at(0), 0);
	ASSERT_STACK(PF_END_ROOT, at(0x30000), at(START + 1));
	stack_words[4] = stack_at(5);
	stack_words[6] = at(START + 2);
	walk(at(0x30100), stack_at(0), 0);
	ASSERT_STACK(PF_END_ROOT, at(0x30100), at(START + 2));
	stack_words[0] = at(0x30050);
	walk(at(0x30200), stack_at(0), 0);
	ASSERT_STACK(PF_END_REGISTER, at(0x30200), at(0x30050));
}

/* A frame that gcc realigned: CFA = *(rbp - 8), rbp = *(rbp). */
static void realigned_stacks(void **state)
{
	uint16_t r;

	(void)state;
	r = rule((struct pf_rule){
		.cfa = PF_CFA_DEREF_RBP, .cfa_offset = -8, .fp = PF_FP_AT_RBP, .fp_offset = 0});
	row(0, 0, r);
	row_start();
	stack_words[10] = 0x77;	       /* rbp of the caller */
	stack_words[9] = stack_at(16); /* the CFA */
	stack_words[15] = at(START + 9);
	walk(at(0x30000), stack_at(2), stack_at(10));
	ASSERT_STACK(PF_END_ROOT, at(0x30000), at(START + 9));
	assert_int_equal(scratch.walk.bp, 0x77);
}

static void plt_entries(void **state)
{
	uint16_t plt;

	(void)state;
	plt = rule((struct pf_rule){.cfa = PF_CFA_PLT, .cfa_offset = 8, .extra = 11});
	row(0, 0, plt);
	row_start();
	stack_words[0] = at(START + 1);
	walk(at(0x30006), stack_at(0), 0);
	ASSERT_STACK(PF_END_ROOT, at(0x30006), at(START + 1));
	stack_words[0] = 3; /* the index was pushed */
	stack_words[1] = at(START + 1);
	walk(at(0x3000b), stack_at(0), 0);
	ASSERT_STACK(PF_END_ROOT, at(0x3000b), at(START + 1));
}

/* vfork: the return address is in a register, and the stack is as before the call. */
static void return_address_in_a_register(void **state)
{
	uint16_t r, plain;

	(void)state;
	r = rule((struct pf_rule){.cfa = PF_CFA_RSP, .ra = PF_RA_REG, .reg = 5});
	plain = rule(RSP(16));
	row(0, 0, r);
	row(0, 0x100, plain);
	row_start();
	scratch.walk.regs[5] = at(0x30110);
	stack_words[1] = at(START + 1);
	walk(at(0x30004), stack_at(0), 0);
	ASSERT_STACK(PF_END_ROOT, at(0x30004), at(0x30110), at(START + 1));
	row(0, 0xf100, r);
	stack_words[1] = at(0x3f110);
	walk(at(0x30004), stack_at(0), 0);
	ASSERT_STACK(PF_END_REGISTER, at(0x30004), at(0x30110), at(0x3f110));
}

static void return_address_at_an_offset(void **state)
{
	uint16_t r;

	(void)state;
	r = rule(
		(struct pf_rule){.cfa = PF_CFA_RSP, .cfa_offset = 16, .ra = PF_RA_CFA, .extra = 8});
	row(0, 0, r);
	row_start();
	stack_words[3] = at(START + 1);
	walk(at(0x30000), stack_at(0), 0);
	ASSERT_STACK(PF_END_ROOT, at(0x30000), at(START + 1));
}

/* ---- signals ---- */

#define UCONTEXT 100 /* index of the stack word at which the ucontext begins */
static void put_ucontext(uint64_t rip, uint64_t rsp, uint64_t rbp)
{
	uint64_t *gregs = stack_words + UCONTEXT + 5;

	for (size_t i = 0; i < 17; i++)
		gregs[i] = 0x1000 + i;
	gregs[10] = rbp;
	gregs[15] = rsp;
	gregs[16] = rip;
}

static void a_signal_frame_gives_all_registers(void **state)
{
	uint16_t handler, by_r15;

	(void)state;
	handler = rule(RSP(8));
	by_r15 = rule((struct pf_rule){.cfa = PF_CFA_REG, .reg = 12, .cfa_offset = 0});
	row(0, 0, handler);
	/* as in musl: the handler returns to the first byte of the stub */
	row(0, 0x100, PF_RULE_SIGNAL);
	row(0, 0x110, by_r15);
	row_start();
	stack_words[UCONTEXT - 1] = at(0x30100);
	/* The handler ran on another stack, at higher addresses than the interrupted function's. */
	put_ucontext(at(0x30110), stack_at(20), 0);
	stack_words[UCONTEXT + 5 + 4] = stack_at(31); /* r12 */
	stack_words[30] = at(START + 1);
	walk(at(0x30000), stack_at(UCONTEXT - 1), 0);
	/*
	 * The interrupted address gets 1 added, as if a call had been there: so the look-up, which
	 * subtracts 1, finds the row of its first byte.
	 */
	ASSERT_STACK(PF_END_ROOT, at(0x30000), at(0x30100), at(0x30110) + 1, at(START + 1));
}

/*
 * Each register has its DWARF number. struct sigcontext_64 of asm/sigcontext.h has another order.
 */
static void a_signal_frame_gives_each_register(void **state)
{
	static const uint8_t order[15] = {8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2};

	(void)state;
	row(0, 0, PF_RULE_SIGNAL);
	/* an address that cannot be read, so that the walk ends there */
	put_ucontext(at(0x30000), STACK_BASE - 4096, 0);
	stack_words[UCONTEXT + 5 + 10] = 0x1000 + 10;
	walk(at(0x30000), stack_at(UCONTEXT), 0);
	assert_int_equal(scratch.walk.end, PF_END_READ);
	for (size_t i = 0; i < 15; i++)
		assert_int_equal(scratch.walk.regs[order[i]], 0x1000 + i);
	assert_int_equal(scratch.walk.regs[PF_REG_RSP], STACK_BASE - 4096);
}

static void a_signal_stub_without_a_table_is_known_by_its_code(void **state)
{
	static const uint8_t stub[] = {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05};
	uint16_t handler;

	(void)state;
	handler = rule(RSP(8));
	row(0, 0, handler);
	row(0, 0x40, PF_RULE_GAP);
	row_start();
	memcpy(code + (at(0x30100) - CODE_BASE), stub, sizeof(stub));
	stack_words[UCONTEXT - 1] = at(0x30100);
	put_ucontext(at(0x30010), stack_at(20), 0);
	stack_words[20] = at(START + 1);
	walk(at(0x30000), stack_at(UCONTEXT - 1), 0);
	ASSERT_STACK(PF_END_ROOT, at(0x30000), at(0x30100), at(0x30011), at(START + 1));
}

/* A call through a null pointer raised the signal: the caller's address is at [rsp]. */
static void a_call_that_went_astray(void **state)
{
	uint16_t plain;

	(void)state;
	plain = rule(RSP(8));
	row(0, 0, plain);
	row(0, 0x100, PF_RULE_SIGNAL);
	row_start();
	stack_words[UCONTEXT - 1] = at(0x30101);
	put_ucontext(0, stack_at(20), stack_at(50));
	stack_words[20] = at(START + 1);
	walk(at(0x30000), stack_at(UCONTEXT - 1), 0);
	ASSERT_STACK(PF_END_ROOT, at(0x30000), at(0x30101), 1, at(START + 1));
}

/* ---- ends ---- */

static void what_is_not_there_yet_is_pending(void **state)
{
	(void)state;
	image.files[1].state = PF_FILE_PENDING;
	walk(at(0x30000), stack_at(0), 0x1234560);
	ASSERT_STACK(PF_END_PENDING, at(0x30000));
	walk(at(0x30000), stack_at(0), 0);
	ASSERT_STACK(PF_END_PENDING, at(0x30000));
	image.files[1].state = PF_FILE_NONE;
	walk(at(0x30000), stack_at(0), 0x1234561);
	ASSERT_STACK(PF_END_NO_TABLE, at(0x30000));
	/* If frame pointers lead to the end of the stack, the stack is complete, too. */
	put_record(4, 0, at(0x30100));
	walk(at(0x30000), stack_at(0), stack_at(4));
	ASSERT_STACK(PF_END_ROOT, at(0x30000), at(0x30100));
	scratch.walk.known = false;
	walk(at(0x30000), stack_at(0), 0x1234561);
	ASSERT_STACK(PF_END_PENDING, at(0x30000));
}

static void every_end_has_its_reason(void **state)
{
	uint16_t plain, zero;

	(void)state;
	plain = rule(RSP(8));
	zero = rule(RSP(0));
	row(0, 0, plain);
	row(0, 0x100, zero);
	row(0, 0x200, PF_RULE_UNSUPPORTED);
	row(0, 0x300, 4000); /* a rule that does not exist */
	walk(at(0x30000), stack_at(0), 0);
	ASSERT_STACK(PF_END_ROOT, at(0x30000)); /* the return address is 0 */
	stack_words[0] = 1ull << 60;
	walk(at(0x30000), stack_at(0), 0);
	ASSERT_STACK(PF_END_BAD_PC, at(0x30000));
	walk(at(0x30000), STACK_BASE - 64, 0);
	ASSERT_STACK(PF_END_READ, at(0x30000));
	walk(at(0x30100), stack_at(0), 0);
	ASSERT_STACK(PF_END_STUCK, at(0x30100));
	walk(at(0x30200), stack_at(0), 0);
	ASSERT_STACK(PF_END_EXPRESSION, at(0x30200));
	walk(at(0x30300), stack_at(0), 0);
	ASSERT_STACK(PF_END_EXPRESSION, at(0x30300));
	scratch.walk.ip = at(0x30000);
	pf_walk_user(&scratch, 7, 1, false, true);
	ASSERT_STACK(PF_END_COMPAT, at(0x30000));
}

static void depth_ends_at_512(void **state)
{
	uint16_t plain;
	size_t deep[] = {511, 512};

	(void)state;
	plain = rule(RSP(8));
	row(0, 0, plain);
	row_start();
	for (size_t k = 0; k < 2; k++) {
		memset(stack_words, 0, sizeof(stack_words));
		for (size_t i = 0; i + 1 < deep[k]; i++)
			stack_words[i] = at(0x30010);
		stack_words[deep[k] - 1] = at(START + 1);
		walk(at(0x30000), stack_at(0), 0);
		assert_int_equal(scratch.walk.n_frames, 512);
		assert_int_equal(scratch.walk.end, k ? PF_END_DEPTH : PF_END_ROOT);
	}
}

/* Memory is read in pieces. A piece ends with its page, whether or not the next page exists. */
static void stacks_at_the_end_of_memory(void **state)
{
	enum { PAGE = 4096, WORDS = PAGE / 8 };
	uint16_t plain;

	(void)state;
	plain = rule(RSP(8));
	row(0, 0, plain);
	row_start();
	image.n_stack = PAGE;
	for (size_t word = 0; word + 1 < WORDS; word++) {
		stack_words[word] = at(0x30010);
		stack_words[word + 1] = at(START + 1);
		walk(at(0x30000), stack_at(word), 0);
		ASSERT_STACK(PF_END_ROOT, at(0x30000), at(0x30010), at(START + 1));
	}
}

/* ---- many mappings, many rows ---- */

static void the_right_mapping_of_many(void **state)
{
	enum { N = PF_PART_MAPPINGS_MAX };
	uint16_t plain;

	(void)state;
	plain = rule(RSP(8));
	row(0, 0, plain);
	row(0, 0x800, PF_RULE_ROOT);
	for (size_t i = 0; i < N; i++) /* mappings with gaps between them */
		mappings[i] = (struct pf_mapping){MAPPED + i * 0x2000, MAPPED + i * 0x2000 + 0x1000,
						  MAPPED + i * 0x2000 - ELF_TEXT, .file = 1};
	scratch.walk.process = (struct pf_process){
		.n_parts = 2,
		.parts = {{MAPPED, PF_REF(3, 0), N / 2},
			  {MAPPED + N / 2 * 0x2000, PF_REF(3, N / 2 * sizeof(struct pf_mapping)),
			   N - N / 2}},
	};
	for (size_t i = 1; i < N; i++) {
		uint64_t leaf = mappings[i].start + 4, caller = mappings[N - i].start + 0x801;

		stack_words[0] = caller;
		walk(leaf, stack_at(0), 0);
		ASSERT_STACK(PF_END_ROOT, leaf, caller);
		assert_false(pf_find_mapping(&scratch, mappings[i].end));
	}
	assert_false(pf_find_mapping(&scratch, MAPPED - 1));
}

static void the_right_row_of_many(void **state)
{
	(void)state;
	pages[0] = (struct pf_page){PF_REF(1, 0), PF_PAGE_ROWS_MAX};
	for (size_t n = 1; n <= PF_PAGE_ROWS_MAX; n = n * 2 + (n % 3 == 1)) {
		pages[0].n_rows = n;
		for (size_t i = 0; i < n; i++)
			rows[i] = (struct pf_row){i * 4, i};
		for (size_t low = 0; low < 65536; low += 1 + low / 7) {
			size_t want = low / 4 < n ? low / 4 : n - 1;

			assert_int_equal(pf_search_rows(&pages[0], low, false), want);
		}
	}
}

/* ---- which file is mapped where ---- */

#define TAG (PF_TAG_FIRST + 1)

/* All code is in one file, mapped executable where the list of mappings has it. */
static void see_mappings(void)
{
	pf_config.sees_mappings = 1;
	scratch.walk.mm = 1;
	scratch.walk.sequence = 4;
	image.found = PF_VMA_FOUND;
	image.mapped = (struct pf_vma){
		.start = MAPPED,
		.end = MAPPED + TEXT_SIZE,
		.load = MAPPED,
		.tag = TAG,
		.sequence = 4,
		.runs = true,
	};
	mappings[0].load = MAPPED;
	mappings[0].tag = TAG;
	mappings[0].verified = PF_UNVERIFIED;
	row(0, 0, rule(RSP(8)));
	row_start();
	stack_words[0] = at(0x30010);
	stack_words[1] = at(START + 1);
}

static int unsee_mappings(void **state)
{
	pf_config.sees_mappings = 0;
	image.known = NULL;
	memset(&image.mapped, 0, sizeof(image.mapped));
	return teardown(state);
}

static void walk_seen(void)
{
	scratch.walk.unknown_tag = PF_TAG_NONE;
	walk(at(0x30000), stack_at(0), 0);
}

static void assert_frame(uint32_t i, uint32_t kind, uint64_t tag)
{
	assert_int_equal(scratch.stack.words[3 * i] & 0xff, kind);
	assert_int_equal(scratch.stack.words[3 * i + 2], tag);
}

static void what_is_listed_and_mapped_is_walked(void **state)
{
	(void)state;
	see_mappings();
	walk_seen();
	assert_int_equal(scratch.walk.end, PF_END_ROOT);
	assert_int_equal(scratch.walk.n_frames, 3);
	assert_frame(0, PF_FRAME_FILE, TAG);
	assert_int_equal(scratch.walk.unknown_tag, PF_TAG_NONE);
	assert_int_equal(mappings[0].verified, 4);
	assert_false(scratch.walk.halted);
}

/* A compiler in the process has just made the page of its caller not executable. */
static void what_is_listed_may_not_run_now(void **state)
{
	(void)state;
	see_mappings();
	image.mapped.runs = false;
	walk_seen();
	assert_int_equal(scratch.walk.end, PF_END_ROOT);
	assert_int_equal(scratch.walk.n_frames, 3);
	assert_frame(1, PF_FRAME_FILE, TAG);
	assert_int_equal(mappings[0].verified, PF_UNVERIFIED);
	/* halted: so user space is not asked to read the mappings now */
	assert_true(scratch.walk.halted);
	/* Generated code, which is in no file. */
	image.mapped.tag = mappings[0].tag = PF_TAG_NONE;
	walk_seen();
	assert_int_equal(scratch.walk.end, PF_END_ROOT);
	assert_int_equal(scratch.walk.n_frames, 3);
	/* If the list has no code there, data at that address is not taken for code. */
	scratch.walk.process.n_parts = 0;
	walk_seen();
	assert_int_not_equal(scratch.walk.n_frames, 3);
}

/*
 * The child of a fork has the code of its parent's files. But the code that both generate may
 * differ, so user space must read the child.
 */
static void generated_code_in_a_borrowed_list_is_strange(void **state)
{
	(void)state;
	see_mappings();
	scratch.walk.borrowed = true;
	scratch.walk.strange = false;
	walk_seen();
	assert_int_equal(scratch.walk.end, PF_END_ROOT);
	assert_false(scratch.walk.strange);
	image.mapped.tag = mappings[0].tag = PF_TAG_NONE;
	walk_seen();
	assert_int_equal(scratch.walk.end, PF_END_ROOT);
	assert_true(scratch.walk.strange);
	scratch.walk.borrowed = scratch.walk.strange = false;
	walk_seen();
	assert_false(scratch.walk.strange);
}

/*
 * The same file is mapped at another address than in the list: it is walked, and user space is
 * asked for a new list.
 */
static void a_file_that_is_known_is_walked_and_asked_for(void **state)
{
	struct pf_image known = {
		.tag = TAG,
		.n_pieces = 2,
		.pieces = {{0, 0x8000, ELF_TEXT, 1, 0}, {0x8000, TEXT_SIZE, ELF_TEXT, 1, 0}},
	};

	(void)state;
	see_mappings();
	mappings[0].load = MAPPED - 0x1000;
	image.known = &known;
	walk_seen();
	assert_int_equal(scratch.walk.end, PF_END_ROOT);
	assert_int_equal(scratch.walk.n_frames, 3);
	assert_int_equal(scratch.walk.unknown_tag, TAG);
	/*
	 * If a runtime could have frames in that piece of the file, the walk ends there. The last
	 * frame is in the other piece.
	 */
	known.pieces[0].runtime = 1;
	walk_seen();
	assert_int_equal(scratch.walk.end, PF_END_RUNTIME);
	assert_int_equal(scratch.walk.n_frames, 3);
	/*
	 * It does not matter whether a runtime could have frames in a piece in which the walk finds
	 * none.
	 */
	known.pieces[0] = (struct pf_piece){0, 0x100, ELF_TEXT, 1, 0};
	known.pieces[1] = (struct pf_piece){0x100, 0xe000, ELF_TEXT, 1, 1};
	known.pieces[2] = (struct pf_piece){0xe000, TEXT_SIZE, ELF_TEXT, 1, 0};
	known.n_pieces = 3;
	walk_seen();
	assert_int_equal(scratch.walk.end, PF_END_ROOT);
}

/* While the walk read the image, another image got its slot in the kernel's map. */
static void an_image_that_became_anothers_is_not_used(void **state)
{
	const struct pf_image known = {
		.tag = TAG + 1,
		.n_pieces = 1,
		.pieces = {{0, TEXT_SIZE, ELF_TEXT, 1, 0}},
	};

	(void)state;
	see_mappings();
	mappings[0].load = MAPPED - 0x1000;
	image.known = &known;
	walk_seen();
	assert_int_equal(scratch.walk.end, PF_END_CHANGED);
	assert_int_equal(scratch.walk.n_frames, 1);
	assert_frame(0, PF_FRAME_FILE, TAG);
	assert_int_equal(scratch.walk.unknown_tag, TAG);
}

/* The process changes its mappings. The walk found none, but there may still be one. */
static void what_could_not_be_seen_is_no_file_s(void **state)
{
	(void)state;
	see_mappings();
	image.found = PF_VMA_UNSURE;
	walk_seen();
	assert_int_equal(scratch.walk.end, PF_END_CHANGED);
	assert_int_equal(scratch.walk.n_frames, 1);
	assert_frame(0, PF_FRAME_FILE, PF_TAG_UNKNOWN);
	assert_int_equal(scratch.stack.words[1], at(0x30000));
	/* no request to read the mappings: the agent could not find out more either */
	assert_int_equal(scratch.walk.unknown_tag, PF_TAG_NONE);
}

int main(void)
{
#define S(f) cmocka_unit_test_setup_teardown(f, setup, unsee_mappings)
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(frames_without_frame_pointers),
		T(a_caller_is_looked_up_before_its_return_address),
		T(rbp_is_restored_from_wherever_it_is),
		T(an_unknown_rbp_ends_the_walk_where_it_is_needed),
		T(registers_are_known_in_a_leaf_only),
		T(realigned_stacks),
		T(plt_entries),
		T(return_address_in_a_register),
		T(return_address_at_an_offset),
		T(a_signal_frame_gives_all_registers),
		T(a_signal_frame_gives_each_register),
		T(a_signal_stub_without_a_table_is_known_by_its_code),
		T(a_call_that_went_astray),
		T(what_is_not_there_yet_is_pending),
		T(every_end_has_its_reason),
		T(depth_ends_at_512),
		T(stacks_at_the_end_of_memory),
		T(the_right_mapping_of_many),
		T(the_right_row_of_many),
		S(what_is_listed_and_mapped_is_walked),
		S(what_is_listed_may_not_run_now),
		S(generated_code_in_a_borrowed_list_is_strange),
		S(a_file_that_is_known_is_walked_and_asked_for),
		S(an_image_that_became_anothers_is_not_used),
		S(what_could_not_be_seen_is_no_file_s),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
