/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests frames that follow from the way to the next return: those of testdata/conventions.S, a
 * program without symbols and without call frame information. code_test.c compares those of real
 * files with their FDEs.
 */
#include "node/parse/returns.h"
#include "node/parse/testmade.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define SOURCE	 "agent/node/parse/testdata/conventions.S"
#define BELOW(n) .fp = PF_FP_CFA, .fp_offset = -(n)
enum { RAX = 0, RCX = 2, RBX = 3, RBP = 6, RSP = 7, R11 = 11 }; /* DWARF numbers */

static const struct {
	const char *label;
	struct pf_rule rule;
} known[] = {
	{"plain", {.cfa = PF_CFA_RSP, .cfa_offset = 8}},
	{"plain_1", {.cfa = PF_CFA_RSP, .cfa_offset = 32, BELOW(24)}},
	{"plain_2", {.cfa = PF_CFA_RSP, .cfa_offset = 104, BELOW(24)}},
	{"plain_3", {.cfa = PF_CFA_RSP, .cfa_offset = 104, BELOW(24)}},
	{"plain_4", {.cfa = PF_CFA_RSP, .cfa_offset = 16}},
	{"realigned_kept", {.cfa = PF_CFA_RSP, .cfa_offset = 8}},
	{"realigned_kept_1", {.cfa = PF_CFA_REG, .reg = R11, .cfa_offset = 16}},
	{"realigned_kept_2", {.cfa = PF_CFA_REG, .reg = R11, .cfa_offset = 16}},
	{"realigned_stored_1", {.cfa = PF_CFA_RBP, .cfa_offset = 24, BELOW(24)}},
	{"realigned_stored_2", {.cfa = PF_CFA_RBP, .cfa_offset = 24, BELOW(24)}},
	{"realigned_stored_3",
	 {.cfa = PF_CFA_DEREF_RSP, .cfa_offset = 0x80, .extra = 24, BELOW(24)}},
	{"popped_rsp_1", {.cfa = PF_CFA_REG, .reg = RAX, .cfa_offset = 16, BELOW(16)}},
	{"popped_rsp_2", {.cfa = PF_CFA_DEREF_RBP, .extra = 16, BELOW(16)}},
	{"popped_rsp_3", {.cfa = PF_CFA_DEREF_RBP, .extra = 16, BELOW(16)}},
	{"popped_rsp_4", {.cfa = PF_CFA_RSP, .cfa_offset = 16, BELOW(16)}},
	{"openblas_small_1", {.cfa = PF_CFA_RSP, .cfa_offset = 0x48}},
	{"openblas_small_2", {.cfa = PF_CFA_RSP, .cfa_offset = 0x48, BELOW(0x40)}},
	{"openblas_small_3", {.cfa = PF_CFA_RSP, .cfa_offset = 0x48}},
	{"openblas_large_1", {.cfa = PF_CFA_REG, .reg = RBX, .cfa_offset = 0x68, BELOW(0x60)}},
	{"openblas_large_2", {.cfa = PF_CFA_REG, .reg = RBX, .cfa_offset = 0x68, BELOW(0x60)}},
	{"table_1", {.cfa = PF_CFA_RSP, .cfa_offset = 16, BELOW(16)}},
	{"table_2", {.cfa = PF_CFA_RSP, .cfa_offset = 16, BELOW(16)}},
	{"table_3", {.cfa = PF_CFA_RSP, .cfa_offset = 16, BELOW(16)}},
	{"table_4", {.cfa = PF_CFA_RSP, .cfa_offset = 16, BELOW(16)}},
	{"realigned_calling_1", {.cfa = PF_CFA_REG, .reg = RCX, .cfa_offset = 8}},
	{"realigned_calling_2", {.cfa = PF_CFA_REG, .reg = RCX, .cfa_offset = 8}},
	{"with_subroutine_1", {.cfa = PF_CFA_RSP, .cfa_offset = 64, BELOW(24)}},
	{"sets_rbp", {.cfa = PF_CFA_RSP, .cfa_offset = 8, .fp = PF_FP_UNKNOWN}},
	{"finds_rbp", {.cfa = PF_CFA_RSP, .cfa_offset = 8, .fp = PF_FP_UNKNOWN}},
};

/* Runs a command in which %s is the folder of the test. */
static void run(const char *format)
{
	_cleanup_free_ char *command = NULL;

	assert_true(asprintf(&command, format, dir, dir) > 0);
	assert_int_equal(system(command), 0);
}

static void make_program(void)
{
	run("gcc -nostdlib -static-pie -o %s/whole " SOURCE);
	run("strip -o %s/stripped %s/whole");
}

static void frames_of_hand_written_code_are_found(void **state)
{
	struct elf_tables t;
	struct elf_index *i;

	(void)state;
	make_program();
	i = index_of("stripped", &t);
	for (size_t k = 0; k < ARRAY_SIZE(known); k++) {
		uint16_t number = rule_at(&t, symbol("whole", known[k].label));
		struct pf_rule want = known[k].rule;

		/* alloc/entry.c knows these rules by the name of rsp or rbp */
		if (want.cfa == PF_CFA_RSP || want.cfa == PF_CFA_DEREF_RSP)
			want.reg = RSP;
		if (want.cfa == PF_CFA_RBP || want.cfa == PF_CFA_DEREF_RBP)
			want.reg = RBP;

		if (number >= t.n_rules ||
		    memcmp(&t.rules[number], &want, sizeof(t.rules[number])) != 0)
			fail_msg("%s has another rule (%u)", known[k].label, number);
	}
	elf_index_unref(i);
}

/* An answer of the returns with which no start agrees is none. */
static void what_nothing_proves_has_no_row(void **state)
{
	struct elf_tables t;
	struct elf_index *i;

	(void)state;
	make_program();
	i = index_of("stripped", &t);
	assert_int_equal(rule_at(&t, symbol("whole", "unproved")), PF_RULE_GAP);
	assert_int_equal(rule_at(&t, symbol("whole", "unproved_1")), PF_RULE_GAP);
	assert_int_equal(rule_at(&t, symbol("whole", "haskell")), PF_RULE_GAP);
	assert_int_equal(rule_at(&t, symbol("whole", "haskell_1")), PF_RULE_GAP);
	assert_int_equal(rule_at(&t, symbol("whole", "realigned_spoiled_1")), PF_RULE_GAP);
	elf_index_unref(i);
}

/* The label of a function, of a label x_N in it. The caller frees it. */
static char *function_of(const char *label)
{
	size_t n = strlen(label);

	if (streq(label, "finds_rbp")) /* what is before runs on into it */
		return xstrdup("sets_rbp");
	return n > 2 && label[n - 2] == '_' ? xstrndup(label, n - 2) : xstrdup(label);
}

/* A function that is called begins at its label; of no address another one is said. */
static void functions_begin_at_their_labels(void **state)
{
	static const char *const begin[] = {
		"plain",    "realigned_kept", "realigned_stored", "popped_rsp",
		"table",    "openblas_small", "openblas_large",	  "realigned_calling",
		"sets_rbp", "keeps_rcx",      "with_subroutine",  "spoils_rcx"};
	static const char *const unknown[] = {
		"unproved",	     "unproved_1",	   "haskell", "calls_haskell", "haskell_1",
		"realigned_spoiled", "realigned_spoiled_1"};
	struct elf_tables t;
	struct elf_index *i;
	uint64_t found;
	size_t n = 0;

	(void)state;
	make_program();
	i = index_of("stripped", &t);
	for (size_t k = 0; k < ARRAY_SIZE(begin); k++) {
		uint64_t start = symbol("whole", begin[k]);

		assert_int_equal(elf_index_unnamed(i, start, &found), 0);
		assert_int_equal(found, start);
	}
	for (size_t k = 0; k < ARRAY_SIZE(unknown); k++)
		assert_int_equal(elf_index_unnamed(i, symbol("whole", unknown[k]), &found),
				 -ENOENT);
	for (size_t k = 0; k < ARRAY_SIZE(known); k++) {
		_cleanup_free_ char *function = function_of(known[k].label);

		if (elf_index_unnamed(i, symbol("whole", known[k].label), &found))
			continue;
		assert_int_equal(found, symbol("whole", function));
		n++;
	}
	/* all but table_2 to table_4: nothing shows that they belong to what jumps there */
	assert_int_equal(n, ARRAY_SIZE(known) - 3);
	elf_index_unref(i);
}

/* ---- limits ---- */

static void starts_over_the_limit_are_told(void **state)
{
	const struct range gap = {0x1000, 0x1000 + STARTS_MAX + 1};
	const struct code_gaps gaps = {&gap, 1};
	struct flow_budget budget = parse_code_budget();
	struct elf_build *b = xcalloc(1, sizeof(*b));
	struct symbol *symbols = xcalloc(STARTS_MAX + 1, sizeof(*symbols));

	(void)state;
	b->symbols.items = symbols;
	for (size_t k = 0; k <= STARTS_MAX; k++)
		symbols[k].address = gap.start + k;
	for (size_t n = STARTS_MAX; n <= STARTS_MAX + 1; n++) {
		uint64_t *starts;

		b->symbols.n = n;
		assert_int_equal(parse_code_starts(b, &gaps, &budget, &starts), STARTS_MAX);
		assert_int_equal(b->header.flags & ELF_INDEX_CODE_CUT,
				 n > STARTS_MAX ? ELF_INDEX_CODE_CUT : 0);
		free(starts);
	}
	free(symbols);
	free(b);
}

/* Calls of the same function, however many, do not fill the list. */
static void a_start_counts_once(void **state)
{
	const struct range gap = {0x1000, 0x3000};
	const struct code_gaps gaps = {&gap, 1};
	struct flow_budget budget = parse_code_budget();
	struct elf_build *b = xcalloc(1, sizeof(*b));
	struct symbol *symbols = xcalloc(STARTS_MAX + 1, sizeof(*symbols));
	uint64_t *starts;

	(void)state;
	b->symbols.items = symbols;
	b->symbols.n = STARTS_MAX + 1;
	for (size_t k = 0; k < STARTS_MAX; k++)
		symbols[k].address = gap.start;
	symbols[STARTS_MAX].address = gap.start + 0x1000;
	assert_int_equal(parse_code_starts(b, &gaps, &budget, &starts), 2);
	assert_int_equal(b->header.flags & ELF_INDEX_CODE_CUT, 0);
	assert_int_equal(starts[1], gap.start + 0x1000);
	free(starts);
	free(symbols);
	free(b);
}

/* The program's code is 500 bytes; to find all of its rows takes more than 100 instructions. */
static void returns_over_the_limit_are_told(void **state)
{
	_cleanup_free_ char *path = file_in_dir("stripped");
	_cleanup_close_ int fd = -1;
	struct elf_build *b = xcalloc(1, sizeof(*b));
	const uint64_t start = (make_program(), symbol("whole", "plain"));
	const struct range gap = {start, symbol("whole", "unproved")};
	const struct code_gaps gaps = {&gap, 1};

	(void)state;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	b->elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	b->segments[b->n_segments++] =
		(struct index_segment){start & ~0xfffull, start & ~0xfffull, 0x1000, true, 0};
	for (int enough = 0; enough < 2; enough++) {
		struct flow_budget budget = {.insns = enough ? 100000 : 100};

		b->header.flags = 0;
		b->rows = parse_rows_new();
		parse_returns_rows(b, &gaps, &budget);
		assert_int_equal(b->header.flags & ELF_INDEX_CODE_CUT,
				 enough ? 0 : ELF_INDEX_CODE_CUT);
		assert_int_equal(parse_rows_count(b->rows) > 10, enough);
		parse_rows_free(b->rows);
	}
	elf_end(b->elf);
	free(b->functions.items);
	free(b);
}

/* ---- one instruction ---- */

static struct code_frame before(struct code_frame f, const uint8_t *code, size_t n)
{
	struct insn i;

	assert_true(insn_decode(code, n, &i));
	parse_frame_before(&f, &i);
	return f;
}
#define BEFORE(f, ...)                                                                             \
	before((f), (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

/* A register that a called function may change does not lead to a frame over a call. */
static void a_call_keeps_some_registers(void **state)
{
	struct code_frame f = {.known = FRAME_KNOWN, .base = 11, .offset = 16};

	(void)state;
	assert_int_equal(BEFORE(f, 0xe8, 0, 0, 0, 0x10).known, FRAME_NONE);
	f.base = 12;
	assert_int_equal(BEFORE(f, 0xe8, 0, 0, 0, 0x10).known, FRAME_KNOWN);
}

/* mul, cpuid, rep movsb, xchg with rax, add $n,%eax, syscall: no operand says what they write */
static void registers_that_no_operand_names_are_lost(void **state)
{
	const struct code_frame rax = {.known = FRAME_KNOWN, .base = 0, .offset = 16},
				rcx = {.known = FRAME_KNOWN, .base = 1, .offset = 16},
				r11 = {.known = FRAME_KNOWN, .base = 11, .offset = 16};

	(void)state;
	assert_int_equal(BEFORE(rax, 0x48, 0xf7, 0xe3).known, FRAME_NONE);
	assert_int_equal(BEFORE(rcx, 0x0f, 0xa2).known, FRAME_NONE);
	assert_int_equal(BEFORE(rcx, 0xf3, 0xa4).known, FRAME_NONE);
	assert_int_equal(BEFORE(rax, 0x48, 0x93).known, FRAME_NONE);
	assert_int_equal(BEFORE(rax, 0x05, 1, 0, 0, 0).known, FRAME_NONE);
	assert_int_equal(BEFORE(r11, 0x0f, 0x05).known, FRAME_NONE);
	assert_int_equal(BEFORE(rax, 0x48, 0x89, 0xd1).known, FRAME_KNOWN); /* mov rdx,rcx */
}

/* rbp that is written and not restored is not the caller's; one in its slot stays there. */
static void a_written_rbp_is_not_guessed(void **state)
{
	struct code_frame f = parse_frame_entered;

	(void)state;
	assert_int_equal(BEFORE(f, 0x31, 0xed).bp, FRAME_BP_UNKNOWN);
	f = BEFORE(f, 0x5d); /* pop rbp */
	assert_int_equal(f.bp, FRAME_BP_SLOT);
	assert_int_equal(f.slot, 16);
	assert_int_equal(BEFORE(f, 0x31, 0xed).bp, FRAME_BP_SLOT);
	assert_int_equal(BEFORE(f, 0x55).bp, FRAME_BP_SAME);	/* push rbp */
	assert_int_equal(BEFORE(f, 0x53).bp, FRAME_BP_UNKNOWN); /* push rbx, into the slot */
}

static void ways_that_disagree_say_nothing(void **state)
{
	struct code_frame f = parse_frame_entered, deeper = parse_frame_entered, none = {0};

	(void)state;
	deeper.offset = 16;
	parse_frame_merge(&f, &none);
	assert_true(parse_frame_equal(&f, &parse_frame_entered));
	parse_frame_merge(&f, &deeper);
	assert_int_equal(f.known, FRAME_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_of_hand_written_code_are_found),
		cmocka_unit_test(what_nothing_proves_has_no_row),
		cmocka_unit_test(functions_begin_at_their_labels),
		cmocka_unit_test(starts_over_the_limit_are_told),
		cmocka_unit_test(a_start_counts_once),
		cmocka_unit_test(returns_over_the_limit_are_told),
		cmocka_unit_test(a_call_keeps_some_registers),
		cmocka_unit_test(registers_that_no_operand_names_are_lost),
		cmocka_unit_test(a_written_rbp_is_not_guessed),
		cmocka_unit_test(ways_that_disagree_say_nothing),
	};

	elf_version(EV_CURRENT);
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
