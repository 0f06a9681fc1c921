/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that registers code by GDB's interface, and again and again replaces it by code with a
 * larger frame at the same address. The frame has words that look like a return address to who
 * walks by the rows of the code before: the stack then leads, whole, to a function that nobody
 * calls. The kernel has such rows for about a second, so these stacks must be marked.
 */
#include "cli/testrun.h"
#include "node/parse/parse.h"

#include <stdlib.h>

#define ENOUGH_NS (500 * NSEC_PER_MSEC)

static const char program[] =
	"#define _GNU_SOURCE\n"
	"#include <elf.h>\n"
	"#include <signal.h>\n"
	"#include <stdint.h>\n"
	"#include <string.h>\n"
	"#include <sys/mman.h>\n"
	"#include <sys/prctl.h>\n"
	"#include <unistd.h>\n"
	"#define KEEP __attribute__((noinline, noclone))\n"
	"#define FRAMES 500\n"
	"static volatile unsigned long sink;\n"
	/* its return address is 16 bytes above the one that leads into it */
	"void never(void);\n"
	"extern char never_returns[];\n"
	"__asm__(\".globl never\\n.type never, @function\\nnever: .cfi_startproc\\n\"\n"
	"	\"sub $8, %rsp\\n.cfi_def_cfa_offset 16\\ncall *%rdi\\nnever_returns:\\n\"\n"
	"	\"add $8, %rsp\\n.cfi_def_cfa_offset 8\\nret\\n.cfi_endproc\\n\"\n"
	"	\".size never, . - never\\n\");\n"
	/* the return address of a smaller frame leads to never(), which has none: a root */
	"KEEP void leaf(uint64_t *frame, unsigned bytes)\n"
	"{\n"
	"	for (unsigned i = 0; i < bytes / 8; i++)\n"
	"		frame[i] = i % 4 == 3 ? (uint64_t)never_returns : 0;\n"
	"	for (int i = 0; i < 2000; i++) sink += i * sink;\n"
	"}\n"
	"KEEP void one(void (*made)(void)) { made(); __asm__(\"\"); }\n"
	"struct entry { struct entry *next, *before; const void *image; uint64_t bytes; };\n"
	"struct { uint32_t version, action; struct entry *relevant, *first; }\n"
	"	__jit_debug_descriptor = {1, 0, 0, 0};\n"
	/*
	 * writes push %rbp; mov $1,%ebp; sub $n,%rsp; mov %rsp,%rdi; mov $n,%esi; mov $leaf,%rax;
	 * call *%rax; add $n,%rsp; pop %rbp; ret
	 */
	"static void make(unsigned char *to, unsigned n)\n"
	"{\n"
	"	void *f = (void *)leaf;\n"
	"	memcpy(to, \"\\x55\\xbd\\1\\0\\0\\0\\x48\\x81\\xec\", 9);\n"
	"	memcpy(to + 9, &n, 4);\n"
	"	memcpy(to + 13, \"\\x48\\x89\\xe7\\xbe\", 4);\n"
	"	memcpy(to + 17, &n, 4);\n"
	"	memcpy(to + 21, \"\\x48\\xb8\", 2);\n"
	"	memcpy(to + 23, &f, 8);\n"
	"	memcpy(to + 31, \"\\xff\\xd0\\x48\\x81\\xc4\", 5);\n"
	"	memcpy(to + 36, &n, 4);\n"
	"	memcpy(to + 40, \"\\x5d\\xc3\", 2);\n"
	"}\n"
	"static struct {\n"
	"	Elf64_Ehdr head;\n"
	"	Elf64_Shdr sections[3];\n"
	"	char names[24];\n"
	"	struct {\n"
	"		struct { uint32_t bytes, id; uint8_t body[12]; } cie;\n"
	"		struct { uint32_t bytes, cie; uint64_t start, length; uint8_t body[16]; }\n"
	"			fde;\n"
	"		uint32_t end;\n"
	"	} __attribute__((packed)) frames;\n"
	"} file = {\n"
	"	{.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},\n"
	"	 .e_type = ET_REL, .e_machine = EM_X86_64, .e_shoff = sizeof(Elf64_Ehdr),\n"
	"	 .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = 3, .e_shstrndx = 2},\n"
	"	{{0}, {.sh_name = 1, .sh_type = SHT_PROGBITS},\n"
	"	 {.sh_name = 11, .sh_type = SHT_STRTAB, .sh_size = 24}},\n"
	"	\"\\0.eh_frame\\0.shstrtab\",\n"
	/* the CFA is rsp + 8, and the return address is below it */
	"	{{16, 0, {1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x80 | 16, 1}},\n"
	/* behind each push and so on: advance, def_cfa_offset; offset of rbp */
	"	 {36, 24, 0, 42, {0x41, 0x0e, 16, 0x86, 2, 0x4c, 0x0e, 0, 0, 0x5b, 0x0e, 16,\n"
	"			  0x41, 0x0e, 8}}},\n"
	"};\n"
	"static struct entry entry = {0, 0, &file, sizeof(file)};\n"
	"static void publish(unsigned char *code, unsigned n)\n"
	"{\n"
	"	__jit_debug_descriptor.first = 0;\n"
	"	make(code, n);\n"
	"	file.sections[1].sh_offset = (char *)&file.frames - (char *)&file;\n"
	"	file.sections[1].sh_size = sizeof(file.frames);\n"
	"	file.sections[2].sh_offset = file.names - (char *)&file;\n"
	"	file.frames.fde.start = (uint64_t)code;\n"
	"	file.frames.fde.body[7] = (n + 16) % 128 | 128;\n"
	"	file.frames.fde.body[8] = (n + 16) / 128;\n"
	"	__jit_debug_descriptor.first = &entry;\n"
	"}\n"
	"int main(void)\n"
	"{\n"
	"	prctl(PR_SET_PDEATHSIG, SIGKILL);\n"
	"	unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,\n"
	"				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n"
	"	publish(code, 16);\n"
	"	close(1);\n"
	"	for (unsigned i = 0;; i++) {\n"
	"		if (i % 2000 == 0) publish(code, 16 + 32 * (i / 2000 % FRAMES));\n"
	"		one((void (*)(void))code);\n"
	"	}\n"
	"}\n";

static void code_that_was_replaced(void **state)
{
	_cleanup_free_ char *path, *out = file_in_dir("a.folded");
	uint64_t all, marked, wrong;
	struct run r;
	pid_t pid;

	(void)state;
	NEED_BPF();
	path = program_in_dir(program, "replaced", "");
	pid = program_ready(path, (const char *const[]){"replaced", NULL});
	run_each(&r, &pid, 1, ENOUGH_NS, out);
	all = FOLDED_SUM(out, "[p] replaced");
	marked = FOLDED_SUM(out, "[unwind: generated_code_changed]");
	wrong = FOLDED_SUM(out, ";never;");
	print_message("of %lu samples %lu are marked, %lu lead to never()\n", all, marked, wrong);
	if (all < 100 || !marked || wrong)
		fail_msg("%s", r.text.data);
	run_free(&r);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(code_that_was_replaced),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
