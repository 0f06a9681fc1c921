/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generated code without frame pointers: rbp is a number there. If the program publishes its call
 * frame information, by GDB's interface or to libgcc, all stacks are whole. If it publishes
 * nothing, no stack through the code is. The programs are compiled here, so their chain of calls is
 * known. All are recorded at once.
 */
#include "cli/testrun.h"
#include "node/parse/parse.h"

#include <stdlib.h>

#define ENOUGH_NS (300 * NSEC_PER_MSEC)

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
	"static volatile unsigned long sink;\n"
	"KEEP void leaf(void) { for (int i = 0; i < 2000; i++) sink += i * sink; }\n"
	"KEEP void one(void (*made)(void)) { made(); __asm__(\"\"); }\n"
	"void __register_frame(const void *frames);\n"
	"struct entry { struct entry *next, *before; const void *image; uint64_t bytes; };\n"
	"struct { uint32_t version, action; struct entry *relevant, *first; }\n"
	"	__jit_debug_descriptor = {1, 0, 0, 0};\n"
	/*
	 * writes push %rbp; mov $1,%ebp; sub $16,%rsp; mov $leaf,%rax; call *%rax; add $16,%rsp;
	 * pop %rbp; ret
	 */
	"static void make(unsigned char *to)\n"
	"{\n"
	"	void *f = (void *)leaf;\n"
	"	memcpy(to, \"\\x55\\xbd\\1\\0\\0\\0\\x48\\x83\\xec\\x10\\x48\\xb8\", 12);\n"
	"	memcpy(to + 12, &f, 8);\n"
	"	memcpy(to + 20, \"\\xff\\xd0\\x48\\x83\\xc4\\x10\\x5d\\xc3\", 8);\n"
	"}\n"
	"static struct {\n"
	"	struct { uint32_t bytes, id; uint8_t body[12]; } cie;\n"
	"	struct { uint32_t bytes, cie; uint64_t start, length; uint8_t body[16]; } fde;\n"
	"	uint32_t end;\n"
	"} __attribute__((packed)) frames = {\n"
	/* the CFA is rsp + 8, and the return address is below it */
	"	{16, 0, {1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x80 | 16, 1}},\n"
	/* behind each push and so on: advance, def_cfa_offset; offset of rbp */
	"	{36, 24, 0, 28, {0x41, 0x0e, 16, 0x86, 2, 0x49, 0x0e, 32, 0x50, 0x0e, 16, 0x41,\n"
	"			 0x0e, 8}},\n"
	"};\n"
	"static struct {\n"
	"	Elf64_Ehdr head;\n"
	"	Elf64_Shdr sections[3];\n"
	"	char names[24];\n"
	"} image = {\n"
	"	{.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},\n"
	"	 .e_type = ET_REL, .e_machine = EM_X86_64, .e_shoff = sizeof(Elf64_Ehdr),\n"
	"	 .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = 3, .e_shstrndx = 2},\n"
	"	{{0}, {.sh_name = 1, .sh_type = SHT_PROGBITS},\n"
	"	 {.sh_name = 11, .sh_type = SHT_STRTAB, .sh_size = 24}},\n"
	"	\"\\0.eh_frame\\0.shstrtab\",\n"
	"};\n"
	"static struct { __typeof__(image) image; __typeof__(frames) frames; } file;\n"
	"static struct entry entry = {0, 0, &file, sizeof(file)};\n"
	"static void publish_to_gdb(void)\n"
	"{\n"
	"	image.sections[1].sh_offset = (char *)&file.frames - (char *)&file;\n"
	"	image.sections[1].sh_size = sizeof(frames);\n"
	"	image.sections[2].sh_offset = image.names - (char *)&image;\n"
	"	file.image = image;\n"
	"	file.frames = frames;\n"
	"	__jit_debug_descriptor.first = &entry;\n"
	"}\n"
	"int main(int argc, char **argv)\n"
	"{\n"
	"	prctl(PR_SET_PDEATHSIG, SIGKILL);\n"
	"	prctl(PR_SET_NAME, argv[1]);\n"
	"	unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,\n"
	"				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n"
	"	make(code);\n"
	"	frames.fde.start = (uint64_t)code;\n"
	"	if (!strcmp(argv[1], \"gdb\")) publish_to_gdb();\n"
	"	if (!strcmp(argv[1], \"libgcc\")) __register_frame(&frames);\n"
	"	close(1);\n"
	"	for (;;) one((void (*)(void))code);\n"
	"}\n";

static const char *const ways[] = {"gdb", "libgcc", "none"};

static void check(const char *out, const char *way, const char *said)
{
	_cleanup_free_ char *process = xasprintf("%s;[p] ", way);
	uint64_t all = FOLDED_SUM(out, process), ends = FOLDED_SUM(out, process, "[unwind: ");
	uint64_t whole = FOLDED_SUM(out, process, ";main;one;[", ";leaf");
	bool publishes = !streq(way, "none");

	print_message("%s: of %lu samples %lu lead from main to leaf, %lu end early\n", way, all,
		      whole, ends);
	if (all < 100 || (publishes && (whole * 100 < all * 97 || ends * 100 > all * 3)) ||
	    (!publishes && (whole || ends * 100 < all * 90)))
		fail_msg("%s: %s", way, said);
}

static void code_that_says_how_it_is_unwound(void **state)
{
	_cleanup_free_ char *path, *out = file_in_dir("a.folded");
	pid_t pids[ARRAY_SIZE(ways)];
	struct run r;

	(void)state;
	NEED_BPF();
	path = program_in_dir(program, "published", "");
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
		pids[i] = program_ready(path, (const char *const[]){"published", ways[i], NULL});
	run_each(&r, pids, ARRAY_SIZE(ways), ENOUGH_NS, out);
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
		check(out, ways[i], r.text.data);
	run_free(&r);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(code_that_says_how_it_is_unwound),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
