// SPDX-License-Identifier: Apache-2.0
/*
 * Tests rows of a GraalVM native image: hand-written functions as its compiler lays them out,
 * stripped, with known answers.
 */
#include "lib/base/testfolder.h"
#include "node/parse/format.h"
#include "node/parse/testrows.h"

#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define HEAP	 ".section .svm_heap,\"aw\"\n.quad 1\n.text\n"
#define FUNCTION ".balign 16,0xcc\n.skip 16,0xcc\n"

static const char source[] = HEAP ".skip 16,0x90\n"
	/*
	 * The byte at inside - 1 is that of int3, and a multiple of 16 follows it, but no function
	 * begins there.
	 */
	FUNCTION "framed: sub $0x38,%rsp\nmov %rdi,%rbp\nmovabs $0x00cc000000000000,%rcx\n"
				  "inside: nop\ncall two_b\nafter: add $0x38,%rsp\nret\n"
	/* The jump table of this function lies behind its code. */
	FUNCTION "switches: sub $0x18,%rsp\nlea table(%rip),%rsi\nmovslq (%rsi,%r10,4),%rbp\n"
				  "add %rbp,%rsi\njmp *%rsi\ncase_0: nop\nadd $0x18,%rsp\nret\n"
				  "case_1: nop\nadd $0x18,%rsp\nret\n"
				  "table: .long case_0-table, case_1-table\n"
	/*
	 * There are no bytes between these two functions. The first one ends with a call that does
	 * not return.
	 */
	FUNCTION "two_a: sub $0x8,%rsp\ntest %rdi,%rdi\nje slow\nadd $0x8,%rsp\nret\n"
				  "slow: call loops\n.balign 16,0x90\n"
				  "two_b: sub $0x28,%rsp\nbody_b: nop\nadd $0x28,%rsp\nret\n"
	/* This function never returns, so nothing proves that it is a function. */
	FUNCTION "loops: sub $0x8,%rsp\n1: jmp 1b\n" FUNCTION "last: ret\n";

static const char framed_source[] =
	HEAP ".skip 16,0x90\n" FUNCTION
	     "one: push %rbp\nmov %rsp,%rbp\nsub $0x10,%rsp\nin_one: nop\nadd $0x10,%rsp\n"
	     "pop %rbp\nret\n" FUNCTION "loops: push %rbp\nmov %rsp,%rbp\n1: jmp 1b\n" FUNCTION
	     "last: push %rbp\nmov %rsp,%rbp\npop %rbp\nret\n";

/* Builds "image", whose symbols the test looks up, and returns the index of "stripped". */
static struct elf_index *index_of(const char *text, struct elf_tables *ret)
{
	_cleanup_free_ char *path = xasprintf("%s/image.S", dir);
	_cleanup_free_ char *stripped = xasprintf("%s/stripped", dir);
	_cleanup_free_ char *command =
		xasprintf("cd %s && gcc -shared -nostdlib -nostartfiles -o image image.S && "
			  "strip -s -o stripped image",
			  dir);
	struct elf_index *i;
	int fd, memfd;

	assert_int_equal(file_write_atomic(path, text, strlen(text), 0600), 0);
	assert_int_equal(system(command), 0);
	fd = open(stripped, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(parse_elf_to_index(fd, NULL, 1 << 20, &memfd), PARSE_OK);
	close(fd);
	assert_int_equal(elf_index_open(memfd, &i), 0);
	assert_int_equal(elf_index_n_symbols(i), 0);
	elf_index_tables(i, ret);
	return i;
}

static uint16_t rule_of(const struct elf_tables *t, const char *place)
{
	_cleanup_free_ char *command =
		xasprintf("nm %s/image | awk '$3 == \"%s\" {print $1}'", dir, place);
	FILE *f = popen(command, "r");
	unsigned long long address = 0;

	assert_int_equal(fscanf(f, "%llx", &address), 1);
	pclose(f);
	return rule_at(t, address);
}

/* Asserts that the frame has this many bytes, including the return address. */
static void assert_frame(const struct elf_tables *t, const char *place, int bytes, unsigned fp)
{
	uint16_t number = rule_of(t, place);

	if (number >= t->n_rules)
		fail_msg("%s: rule %x", place, number);
	assert_int_equal(t->rules[number].cfa, PF_CFA_RSP);
	if (t->rules[number].cfa_offset != bytes || t->rules[number].fp != fp)
		fail_msg("%s: %d bytes", place, t->rules[number].cfa_offset);
}

static void functions_are_found(void **state)
{
	static const struct {
		const char *place;
		int bytes;
	} known[] = {
		{"framed", 8},	  {"inside", 0x40}, {"after", 0x40}, {"switches", 8},
		{"case_0", 0x20}, {"case_1", 0x20}, {"two_a", 8},    {"slow", 0x10},
		{"body_b", 0x30}, {"two_b", 8},
	};
	struct elf_tables t;
	struct elf_index *i = index_of(source, &t);

	(void)state;
	assert_true(elf_index_flags(i) & ELF_INDEX_NATIVE_IMAGE);
	assert_false(elf_index_flags(i) & (ELF_INDEX_CODE_CUT | ELF_INDEX_UNWIND_CUT));
	for (size_t k = 0; k < ARRAY_SIZE(known); k++)
		assert_frame(&t, known[k].place, known[k].bytes, PF_FP_UNKNOWN);
	elf_index_unref(i);
}

/* Where nothing is proved, the rule is PF_RULE_LOST: the walk must not guess by rbp. */
static void what_is_not_proved_is_lost(void **state)
{
	struct elf_tables t;
	struct elf_index *i = index_of(source, &t);

	(void)state;
	assert_int_equal(rule_of(&t, "loops"), PF_RULE_LOST);
	/* the end of the function is not known */
	assert_int_equal(rule_of(&t, "last"), PF_RULE_LOST);
	elf_index_unref(i);
}

static void an_image_may_keep_frame_pointers(void **state)
{
	struct elf_tables t;
	struct elf_index *i = index_of(framed_source, &t);

	(void)state;
	assert_in_range(rule_of(&t, "in_one"), 0, t.n_rules - 1);
	assert_int_equal(rule_of(&t, "loops"), PF_RULE_GAP);
	elf_index_unref(i);
}

/* Without the section .svm_heap, the file is read like any other file. */
static void other_files_are_not_read_so(void **state)
{
	struct elf_tables t;
	struct elf_index *i = index_of(source + strlen(HEAP), &t);

	(void)state;
	assert_false(elf_index_flags(i) & ELF_INDEX_NATIVE_IMAGE);
	assert_int_equal(rule_of(&t, "inside"), PF_RULE_GAP);
	elf_index_unref(i);
}

/* ---- a file whose segments map the same bytes ---- */

#define STRETCH	    (1u << 20)
#define N_FRAMED    64 /* stretches of functions with frame pointers: CODE_BYTES_MAX in all */
#define N_STRETCHES (N_FRAMED + 1)
#define ADDRESS(k)  (((k) + 1ull) * 2 * STRETCH)

static const char section_names[] = "\0.svm_heap\0.text";
struct head {
	Elf64_Ehdr e;
	Elf64_Phdr segments[N_STRETCHES];
	/* an empty one, the names, the heap, and one for each stretch */
	Elf64_Shdr sections[3 + N_STRETCHES];
	char names[sizeof(section_names)];
};

/* Puts functions of n bytes at a distance of `step`, with int3 between them. */
static void put_functions(uint8_t *to, const char *code, size_t n, size_t step)
{
	memset(to, 0xcc, STRETCH);
	for (size_t at = 16; at < STRETCH; at += step)
		memcpy(to + at, code, n);
}

static void put_head(struct head *h)
{
	h->e = (Elf64_Ehdr){.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
					EV_CURRENT},
			    .e_type = ET_DYN,
			    .e_machine = EM_X86_64,
			    .e_version = EV_CURRENT,
			    .e_phoff = offsetof(struct head, segments),
			    .e_shoff = offsetof(struct head, sections),
			    .e_ehsize = sizeof(h->e),
			    .e_phentsize = sizeof(h->segments[0]),
			    .e_phnum = N_STRETCHES,
			    .e_shentsize = sizeof(h->sections[0]),
			    .e_shnum = ARRAY_SIZE(h->sections),
			    .e_shstrndx = 1};
	memcpy(h->names, section_names, sizeof(section_names));
	h->sections[1] = (Elf64_Shdr){.sh_type = SHT_STRTAB,
				      .sh_offset = offsetof(struct head, names),
				      .sh_size = sizeof(section_names)};
	h->sections[2] = (Elf64_Shdr){.sh_name = 1, .sh_type = SHT_PROGBITS, .sh_size = 8};
	for (size_t k = 0; k < N_STRETCHES; k++) {
		uint64_t offset = k < N_FRAMED ? STRETCH : 2 * STRETCH;

		h->segments[k] = (Elf64_Phdr){.p_type = PT_LOAD,
					      .p_flags = PF_R | PF_X,
					      .p_offset = offset,
					      .p_vaddr = ADDRESS(k),
					      .p_filesz = STRETCH,
					      .p_memsz = STRETCH,
					      .p_align = 4096};
		h->sections[3 + k] = (Elf64_Shdr){.sh_name = 11,
						  .sh_type = SHT_PROGBITS,
						  .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
						  .sh_addr = ADDRESS(k),
						  .sh_offset = offset,
						  .sh_size = STRETCH};
	}
}

/*
 * Without the limit CODE_BYTES_MAX (code.c), 1024 segments that all map the same few MiB would take
 * minutes. The functions that are read keep frame pointers, though most functions of the file do
 * not.
 */
static void no_more_is_read_than_is_followed(void **state)
{
	_cleanup_free_ uint8_t *file = xcalloc(3, STRETCH);
	_cleanup_free_ char *path = xasprintf("%s/over", dir);
	struct elf_tables t;
	struct elf_index *i;
	int fd, memfd;

	(void)state;
	put_head((struct head *)(void *)file);
	put_functions(file + STRETCH, "\x55\x48\x89\xe5\x5d\xc3", 6, 4096);
	put_functions(file + 2 * STRETCH, "\xc3", 1, 16);
	assert_int_equal(file_write_atomic(path, (char *)file, 3 * STRETCH, 0600), 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(parse_elf_to_index(fd, NULL, 64 << 20, &memfd), PARSE_OK);
	close(fd);
	assert_int_equal(elf_index_open(memfd, &i), 0);
	elf_index_tables(i, &t);
	assert_true(elf_index_flags(i) & ELF_INDEX_NATIVE_IMAGE);
	assert_true(elf_index_flags(i) & ELF_INDEX_CODE_CUT);
	assert_int_equal(rule_at(&t, ADDRESS(N_FRAMED) + 32), PF_RULE_GAP);
	elf_index_unref(i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_are_found),
		cmocka_unit_test(what_is_not_proved_is_lost),
		cmocka_unit_test(an_image_may_keep_frame_pointers),
		cmocka_unit_test(other_files_are_not_read_so),
		cmocka_unit_test(no_more_is_read_than_is_followed),
	};

	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
