/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests functions of hand-written assembly whose rules are known. oracle_test.c tests real files.
 */
#include "node/parse/code.h"
#include "node/parse/format.h"
#include "node/parse/testmade.h"

#include <fcntl.h>
#include <gelf.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/*
 * The clocks of this test: they stand still, however slow the machine is, but each read adds a
 * fixed time.
 */
static uint64_t cpu_ns, cpu_look_ns, mono_ns = NSEC_PER_SEC, mono_look_ns;

int clock_gettime(clockid_t id, struct timespec *t)
{
	uint64_t ns;

	if (id != CLOCK_THREAD_CPUTIME_ID && id != CLOCK_MONOTONIC)
		return (int)syscall(SYS_clock_gettime, id, t);
	ns = id == CLOCK_MONOTONIC ? (mono_ns += mono_look_ns) : (cpu_ns += cpu_look_ns);
	*t = (struct timespec){(time_t)(ns / NSEC_PER_SEC), (long)(ns % NSEC_PER_SEC)};
	return 0;
}

static void assemble(const char *source, const char *name, const char *flags)
{
	_cleanup_free_ char *path = xasprintf("%s/%s.S", dir, name);
	_cleanup_free_ char *command = xasprintf(
		"gcc -shared -nostdlib -nostartfiles %s -o %s/%s %s", flags, dir, name, path);

	assert_int_equal(file_write_atomic(path, source, strlen(source), 0600), 0);
	assert_int_equal(system(command), 0);
}

/* Asserts the rule at an address. Each function is 32 bytes of nop. */
static void assert_rule(const struct elf_tables *t, uint64_t address, struct pf_rule want)
{
	uint16_t number = rule_at(t, address);
	const struct pf_rule *have;

	assert_in_range(number, 0, t->n_rules - 1);
	have = &t->rules[number];
	assert_int_equal(have->cfa, want.cfa);
	assert_int_equal(have->fp, want.fp);
	assert_int_equal(have->ra, want.ra);
	assert_int_equal(have->reg, want.reg);
	assert_int_equal(have->cfa_offset, want.cfa_offset);
	assert_int_equal(have->fp_offset, want.fp_offset);
	assert_int_equal(have->extra, want.extra);
}

#define FUNCTION(name, cfi)                                                                        \
	".globl " name "\n.type " name ",@function\n" name ":\n.cfi_startproc\n"                   \
	".skip 8,0x90\n" cfi "\n.skip 24,0x90\n.cfi_endproc\n.size " name ",32\n"
#define BARE(name, code)                                                                           \
	".globl " name "\n.type " name ",@function\n" name ":\n" code "\n.size " name ",.-" name   \
	"\n"

struct known {
	const char *name, *cfi;
	struct pf_rule rule; /* the rule 8 bytes inside the function */
	uint16_t special;    /* not 0: the function must have this special rule instead */
};
static const struct known known[] = {
	{"saved",
	 ".cfi_adjust_cfa_offset 8\n.cfi_offset rbp,-16",
	 {.cfa = PF_CFA_RSP, .cfa_offset = 16, .fp = PF_FP_CFA, .fp_offset = -16},
	 0},
	{"framed",
	 ".cfi_offset rbp,-16\n.cfi_def_cfa rbp,16",
	 {.cfa = PF_CFA_RBP, .cfa_offset = 16, .fp = PF_FP_CFA, .fp_offset = -16},
	 0},
	{"register_cfa", ".cfi_def_cfa r10,0", {.cfa = PF_CFA_REG, .reg = 10, .cfa_offset = 0}, 0},
	{"far", ".cfi_def_cfa_offset 1181312", {.cfa = PF_CFA_RSP, .cfa_offset = 1181312}, 0},
	{"restored",
	 ".cfi_offset rbp,-16\n.cfi_remember_state\n.cfi_def_cfa_offset 64\n"
	 ".cfi_undefined rbp\n.cfi_restore_state",
	 {.cfa = PF_CFA_RSP, .cfa_offset = 8, .fp = PF_FP_CFA, .fp_offset = -16},
	 0},
	{"fp_restored",
	 ".cfi_offset rbp,-16\n.cfi_restore rbp",
	 {.cfa = PF_CFA_RSP, .cfa_offset = 8},
	 0},
	{"fp_lost",
	 ".cfi_undefined rbp",
	 {.cfa = PF_CFA_RSP, .cfa_offset = 8, .fp = PF_FP_UNKNOWN},
	 0},
	{"fp_moved",
	 ".cfi_register rbp,rax",
	 {.cfa = PF_CFA_RSP, .cfa_offset = 8, .fp = PF_FP_UNKNOWN},
	 0},
	{"fp_value",
	 ".cfi_val_offset rbp,-16",
	 {.cfa = PF_CFA_RSP, .cfa_offset = 8, .fp = PF_FP_UNKNOWN},
	 0},
	/* DW_CFA_GNU_negative_offset_extended rbp, 2: -2 * data alignment (-8) = +16 */
	{"fp_negative",
	 ".cfi_escape 0x2f,6,2",
	 {.cfa = PF_CFA_RSP, .cfa_offset = 8, .fp = PF_FP_CFA, .fp_offset = 16},
	 0},
	{"args_size",
	 ".cfi_escape 0x2e,16\n.cfi_def_cfa_offset 24",
	 {.cfa = PF_CFA_RSP, .cfa_offset = 24},
	 0},
	{"ra_moved",
	 ".cfi_register rip,rdi",
	 {.cfa = PF_CFA_RSP, .cfa_offset = 8, .ra = PF_RA_REG, .reg = 5},
	 0},
	{"ra_elsewhere",
	 ".cfi_offset rip,-24",
	 {.cfa = PF_CFA_RSP, .cfa_offset = 8, .ra = PF_RA_CFA, .extra = -24},
	 0},
	/* breg6 -8; deref, and rbp at breg6 0 */
	{"realigned",
	 ".cfi_escape 0xf,3,0x76,0x78,6\n.cfi_escape 0x10,6,2,0x76,0",
	 {.cfa = PF_CFA_DEREF_RBP, .cfa_offset = -8, .fp = PF_FP_AT_RBP},
	 0},
	/* breg7 40; deref; plus_uconst 8 */
	{"deref_rsp",
	 ".cfi_escape 0xf,5,0x77,40,6,0x23,8",
	 {.cfa = PF_CFA_DEREF_RSP, .cfa_offset = 40, .extra = 8},
	 0},
	/* breg12 0; lit 16; minus; deref */
	{"deref_other",
	 ".cfi_escape 0xf,5,0x7c,0,0x40,0x1c,6",
	 {.cfa = PF_CFA_DEREF_REG, .reg = 12, .cfa_offset = -16},
	 0},
	{"plt",
	 ".cfi_escape 0xf,0xb,0x77,8,0x80,0,0x3f,0x1a,0x3b,0x2a,0x33,0x24,0x22",
	 {.cfa = PF_CFA_PLT, .cfa_offset = 8, .extra = 11},
	 0},
	{"root", ".cfi_undefined rip", {0}, PF_RULE_ROOT},
	/* breg7 8; breg9 0; lit8; mul; plus; deref */
	{"scaled", ".cfi_escape 0xf,8,0x77,8,0x79,0,0x38,0x1e,0x22,6", {0}, PF_RULE_UNSUPPORTED},
	{"sp_moved", ".cfi_register rsp,r8", {0}, PF_RULE_UNSUPPORTED},
	/* glibc's: CFA, rbp and rip are in the ucontext; breg7 160; deref and so on */
	{"restore_rt",
	 ".cfi_signal_frame\n.cfi_escape 0xf,4,0x77,0xa0,1,6\n"
	 ".cfi_escape 0x10,6,3,0x77,0xf8,0\n.cfi_escape 0x10,16,3,0x77,0xa8,1",
	 {0},
	 PF_RULE_SIGNAL},
};

static void assert_known(const struct elf_tables *t, const char *file)
{
	for (size_t k = 0; k < ARRAY_SIZE(known); k++) {
		uint64_t address = symbol(file, known[k].name);

		assert_rule(t, address, (struct pf_rule){.cfa = PF_CFA_RSP, .cfa_offset = 8});
		if (known[k].special)
			assert_int_equal(rule_at(t, address + 8), known[k].special);
		else
			assert_rule(t, address + 8, known[k].rule);
	}
}

/* Assembles a file with all known functions, behind the source `before`. */
static void assemble_known(const char *before, const char *name, const char *flags)
{
	_cleanup_buf_ struct buf source = {0};

	buf_printf(&source, "%s.text\n", before);
	for (size_t k = 0; k < ARRAY_SIZE(known); k++)
		buf_printf(&source, FUNCTION("%s", "%s"), known[k].name, known[k].name,
			   known[k].name, known[k].cfi, known[k].name);
	assemble(source.data, name, flags);
}

static void rules_of_known_functions(void **state)
{
	struct elf_tables t;
	struct elf_index *i;

	(void)state;
	assemble_known("", "known.so", "");
	i = index_of("known.so", &t);
	assert_known(&t, "known.so");
	assert_int_equal(elf_index_flags(i) & (ELF_INDEX_NO_UNWIND | ELF_INDEX_UNWIND_CUT), 0);
	elf_index_unref(i);
}

static void the_same_from_debug_frame_plain_and_compressed(void **state)
{
	static const char *const flags[] = {"", "-Wl,--compress-debug-sections=zlib",
					    "-Wl,--compress-debug-sections=zlib-gnu",
					    "-Wl,--compress-debug-sections=zstd"};
	struct elf_tables t;
	struct elf_index *i;

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(flags); k++) {
		assemble_known(".cfi_sections .debug_frame\n", "debug.so", flags[k]);
		i = index_of("debug.so", &t);
		assert_known(&t, "debug.so");
		elf_index_unref(i);
	}
}

static void the_same_without_section_headers(void **state)
{
	_cleanup_free_ char *from = file_in_dir("known2.so"), *to = file_in_dir("headless.so"),
			    *data = NULL;
	struct elf_tables t;
	struct elf_index *i;
	Elf64_Ehdr *h;
	size_t n;

	(void)state;
	assemble_known("", "known2.so", "");
	assert_int_equal(file_read(AT_FDCWD, from, 1 << 20, &data, &n), 0);
	h = (Elf64_Ehdr *)data;
	h->e_shoff = h->e_shnum = h->e_shstrndx = 0;
	assert_int_equal(file_write_atomic(to, data, n, 0700), 0);
	i = index_of("headless.so", &t);
	assert_known(&t, "known2.so");
	elf_index_unref(i);
}

static void one_damaged_function_does_not_cost_the_others(void **state)
{
	static const char source[] = ".text\n" FUNCTION("before", ".cfi_def_cfa_offset 16")
		FUNCTION("damaged", ".cfi_def_cfa_offset 24\n.cfi_escape 0x3f")
			FUNCTION("after", ".cfi_def_cfa_offset 32");
	struct elf_tables t;
	struct elf_index *i;
	uint64_t damaged;

	(void)state;
	assemble(source, "damaged.so", "2>/dev/null"); /* ld prints a warning */
	damaged = symbol("damaged.so", "damaged");
	i = index_of("damaged.so", &t);
	assert_rule(&t, symbol("damaged.so", "before") + 8,
		    (struct pf_rule){.cfa = PF_CFA_RSP, .cfa_offset = 16});
	assert_rule(&t, damaged, (struct pf_rule){.cfa = PF_CFA_RSP, .cfa_offset = 8});
	assert_int_equal(rule_at(&t, damaged + 8), PF_RULE_UNSUPPORTED);
	assert_rule(&t, symbol("damaged.so", "after") + 8,
		    (struct pf_rule){.cfa = PF_CFA_RSP, .cfa_offset = 32});
	assert_true(elf_index_flags(i) & ELF_INDEX_UNWIND_CUT);
	elf_index_unref(i);
}

/*
 * musl's stub for the return from a signal has no CFI. The bytes around the stub are no
 * instructions (0x06), so code.c makes no rows for them.
 */
static void code_without_cfi_is_a_gap_but_for_signal_stubs(void **state)
{
	static const char source[] = ".text\n" FUNCTION("first", "") BARE("bare", ".skip 64,0x06")
		BARE("restore", "mov $15,%rax\nsyscall") BARE("bare2", ".skip 64,0x06");
	struct elf_tables t;
	struct elf_index *i;
	uint64_t restore;

	(void)state;
	assemble(source, "bare.so", "");
	restore = symbol("bare.so", "restore");
	i = index_of("bare.so", &t);
	assert_int_equal(rule_at(&t, symbol("bare.so", "bare")), PF_RULE_GAP);
	assert_int_equal(rule_at(&t, restore - 1), PF_RULE_GAP);
	assert_int_equal(rule_at(&t, restore), PF_RULE_SIGNAL);
	assert_int_equal(rule_at(&t, restore + 8), PF_RULE_SIGNAL);
	assert_int_equal(rule_at(&t, symbol("bare.so", "bare2") + 32), PF_RULE_GAP);
	elf_index_unref(i);
}

static uint64_t section_of(const char *name, const char *section)
{
	_cleanup_free_ char *command =
		xasprintf("readelf -WS %s/%s | sed 's/^ *\\[ *[0-9]*\\] *//' | "
			  "awk '$1 == \"%s\" {print $3}'",
			  dir, name, section);
	FILE *f = popen(command, "r");
	unsigned long long address = 0;

	assert_int_equal(fscanf(f, "%llx", &address), 1);
	pclose(f);
	return address;
}

/* crti.o has no call frame information for them, and the file is stripped. */
static void what_the_dynamic_linker_calls_is_followed(void **state)
{
	struct elf_tables t;
	struct elf_index *i;
	uint64_t begin, end;

	(void)state;
	assemble(".hidden begin\n.hidden end\n.globl begin\n.globl end\n"
		 ".section .init,\"ax\"\nbegin: sub $8,%rsp\ncall helper\nadd $8,%rsp\nret\n"
		 ".skip 16,0x90\n"
		 ".section .fini,\"ax\"\nend: sub $24,%rsp\nadd $24,%rsp\nret\n.skip 16,0x90\n"
		 ".text\n" FUNCTION("helper", ""),
		 "linked", "-Wl,-s -Wl,-init=begin -Wl,-fini=end");
	begin = section_of("linked", ".init");
	end = section_of("linked", ".fini");
	i = index_of("linked", &t);
	assert_rule(&t, begin, (struct pf_rule){.cfa = PF_CFA_RSP, .cfa_offset = 8});
	assert_rule(&t, begin + 9, (struct pf_rule){.cfa = PF_CFA_RSP, .cfa_offset = 16});
	assert_rule(&t, end + 4, (struct pf_rule){.cfa = PF_CFA_RSP, .cfa_offset = 32});
	elf_index_unref(i);
}

static void plt_without_cfi_is_worked_out(void **state)
{
	static const char source[] = ".text\n" FUNCTION("caller", "")
		BARE("call", "call outside@PLT\ncall outside2@PLT\nret");
	struct elf_tables t;
	struct elf_index *i;
	uint64_t plt, sec;

	(void)state;
	assemble(source, "plt.so", "-Wl,--no-ld-generated-unwind-info,-z,lazy");
	i = index_of("plt.so", &t);
	plt = section_of("plt.so", ".plt");
	assert_rule(&t, plt, (struct pf_rule){.cfa = PF_CFA_RSP, .cfa_offset = 16});
	assert_rule(&t, plt + 6, (struct pf_rule){.cfa = PF_CFA_RSP, .cfa_offset = 24});
	assert_rule(&t, plt + 16,
		    (struct pf_rule){.cfa = PF_CFA_PLT, .cfa_offset = 8, .extra = 11});
	elf_index_unref(i);

	assemble(source, "ibt.so", "-Wl,--no-ld-generated-unwind-info,-z,lazy,-z,ibtplt");
	i = index_of("ibt.so", &t);
	plt = section_of("ibt.so", ".plt");
	sec = section_of("ibt.so", ".plt.sec");
	assert_rule(&t, plt + 16, (struct pf_rule){.cfa = PF_CFA_PLT, .cfa_offset = 8, .extra = 9});
	assert_rule(&t, sec + 16, (struct pf_rule){.cfa = PF_CFA_RSP, .cfa_offset = 8});
	elf_index_unref(i);
}

static void a_file_without_frames_says_so(void **state)
{
	struct elf_tables t;
	struct elf_index *i;

	(void)state;
	assemble(".text\n" BARE("alone", ".skip 64,0x06"), "alone.so", "");
	i = index_of("alone.so", &t);
	assert_true(elf_index_flags(i) & ELF_INDEX_NO_UNWIND);
	assert_int_equal(t.n_pages, 0);
	elf_index_unref(i);
}

/*
 * Returns the index of n functions of 1 MiB of nop. Each function is followed three times: to find
 * functions, to find those that never return, and for its rows. 18 functions are within the limit.
 */
static struct elf_index *index_of_long_functions(size_t n, struct elf_tables *ret)
{
	_cleanup_buf_ struct buf source = {0};

	buf_puts(&source, ".text\n");
	for (size_t k = 0; k < n; k++)
		buf_printf(&source, BARE("f%zu", ".skip 0xfffff,0x90\nret"), k, k, k, k, k);
	assemble(source.data, "long.so", "");
	return index_of("long.so", ret);
}

static void instructions_over_the_limit_are_told(void **state)
{
	const struct pf_rule entered = {.cfa = PF_CFA_RSP, .cfa_offset = 8};
	struct elf_tables t;
	struct elf_index *i;

	(void)state;
	i = index_of_long_functions(18, &t);
	assert_rule(&t, symbol("long.so", "f17"), entered);
	assert_false(elf_index_flags(i) & ELF_INDEX_CODE_CUT);
	elf_index_unref(i);
	i = index_of_long_functions(19, &t);
	assert_rule(&t, symbol("long.so", "f0"), entered);
	assert_int_equal(rule_at(&t, symbol("long.so", "f18")), PF_RULE_GAP);
	assert_true(elf_index_flags(i) & ELF_INDEX_CODE_CUT);
	elf_index_unref(i);
}

/* The clocks run as on a machine where each span between two reads of the clock takes a second. */
static void following_ends_in_time(void **state)
{
	uint64_t *const clocks[] = {&cpu_look_ns, &mono_look_ns};

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(clocks); k++) {
		struct elf_tables t;
		struct elf_index *i;

		*clocks[k] = NSEC_PER_SEC;
		i = index_of_long_functions(1, &t);
		*clocks[k] = 0;
		assert_int_equal(rule_at(&t, symbol("long.so", "f0")), PF_RULE_GAP);
		assert_true(elf_index_flags(i) & ELF_INDEX_CODE_CUT);
		elf_index_unref(i);
	}
}

/* Returns whether the index of n functions is cut. Each function is `bytes` invalid opcodes. */
static bool is_cut(size_t n, size_t bytes)
{
	_cleanup_buf_ struct buf source = {0};
	struct elf_tables t;
	struct elf_index *i;
	bool cut;

	buf_puts(&source, ".text\n" FUNCTION("first", ""));
	for (size_t k = 0; k < n; k++)
		buf_printf(&source, BARE("f%zu", ".skip %zu,0x06"), k, k, k, bytes, k, k);
	assemble(source.data, "much.so", "");
	i = index_of("much.so", &t);
	cut = elf_index_flags(i) & ELF_INDEX_CODE_CUT;
	elf_index_unref(i);
	return cut;
}

static void code_over_the_limit_is_told(void **state)
{
	(void)state;
	assert_false(is_cut(64, 1 << 20));
	assert_true(is_cut(65, 1 << 20));
}

static void functions_over_the_limit_are_not_followed(void **state)
{
	(void)state;
	assert_false(is_cut(1, FLOW_BYTES_MAX));
	assert_true(is_cut(1, FLOW_BYTES_MAX + 1));
}

/* The stub behind 71 MiB of code is found, the stub behind 72 MiB is not. */
static void signal_stubs_over_the_limit_are_told(void **state)
{
	static const char restore[] = BARE("restore", "mov $15,%rax\nsyscall");
	struct elf_tables t;

	(void)state;
	for (size_t mib = 71; mib <= 72; mib++) {
		_cleanup_free_ char *source =
			xasprintf(".text\n.skip %zu,0x06\n%s", mib << 20, restore);
		struct elf_index *i;
		bool found;

		assemble(source, "far.so", "");
		i = index_of("far.so", &t);
		found = rule_at(&t, symbol("far.so", "restore")) == PF_RULE_SIGNAL;
		assert_int_equal(found, mib == 71);
		assert_true(elf_index_flags(i) & ELF_INDEX_CODE_CUT);
		elf_index_unref(i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rules_of_known_functions),
		cmocka_unit_test(the_same_from_debug_frame_plain_and_compressed),
		cmocka_unit_test(the_same_without_section_headers),
		cmocka_unit_test(one_damaged_function_does_not_cost_the_others),
		cmocka_unit_test(code_without_cfi_is_a_gap_but_for_signal_stubs),
		cmocka_unit_test(what_the_dynamic_linker_calls_is_followed),
		cmocka_unit_test(plt_without_cfi_is_worked_out),
		cmocka_unit_test(a_file_without_frames_says_so),
		cmocka_unit_test(instructions_over_the_limit_are_told),
		cmocka_unit_test(following_ends_in_time),
		cmocka_unit_test(code_over_the_limit_is_told),
		cmocka_unit_test(functions_over_the_limit_are_not_followed),
		cmocka_unit_test(signal_stubs_over_the_limit_are_told),
	};

	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
