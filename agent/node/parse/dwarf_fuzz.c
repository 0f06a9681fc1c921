/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the DWARF sections of a file, of its .dwo file and of its file of dwz. The input is
 * a byte (1: dwz) and a list of sections, each a length in two bytes and its bytes, so that a
 * mutation stays inside of one; g++ makes the first inputs, one in each kind of DWARF.
 * Fuzzes: node/parse/dwarf.c, node/parse/dwarf_abbrev.c, node/parse/dwarf_apply.c, node/parse/dwarf_form.c,
 * node/parse/dwarf_line.c, node/parse/dwarf_map.c, node/parse/dwarf_names.c, node/parse/dwarf_others.c,
 * node/parse/dwarf_ranges.c, node/parse/dwarf_unit.c, node/parse/dwarf_walk.c, node/parse/inlines.c
 */
#include "lib/base/testdir.h"
#include "node/parse/format.h"
#include "node/parse/testelf.h"

#include <fcntl.h>
#include <gelf.h>
#include <spawn.h>
#include <sys/wait.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerInitialize(int *argc, char ***argv);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t max);

static const char *const main_names[] = {
	".debug_info", ".debug_abbrev", ".debug_str",	   ".debug_line_str", ".debug_str_offsets",
	".debug_addr", ".debug_ranges", ".debug_rnglists", ".debug_line",
};
static const char *const dwo_names[] = {
	".debug_info.dwo",	  ".debug_abbrev.dwo",	 ".debug_str.dwo",
	".debug_str_offsets.dwo", ".debug_rnglists.dwo",
};

#define ID_NOTE "\4\0\0\0\2\0\0\0\3\0\0\0GNU\0id"

/* The sections of a list that come next in the input, and one more. */
static int make(const char *const *names, size_t n_names, uint16_t type, struct test_section more,
		const uint8_t **data, size_t *n)
{
	struct test_section sections[TESTELF_SECTIONS_MAX] = {TESTELF_TEXT, more};
	size_t k = more.name ? 2 : 1;

	for (size_t i = 0; i < n_names && *n >= 2; i++) {
		size_t bytes = (*data)[0] | (*data)[1] << 8;

		bytes = MIN(bytes, *n - 2);
		if (bytes)
			sections[k++] = (struct test_section){names[i], *data + 2, bytes, 0, 0};
		*data += 2 + bytes;
		*n -= 2 + bytes;
	}
	return testelf_memfd(sections, type);
}

static void parse(const int *fds, size_t n_fds)
{
	struct elf_index *i;
	int memfd;

	if (elf_to_debug_index(fds, n_fds, 64 << 20, &memfd) != PARSE_OK)
		return;
	if (elf_index_open(memfd, &i) < 0)
		abort();
	elf_index_unref(i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const struct test_section link = {".gnu_debugaltlink", "a\0id", 4, 0, 0};
	const struct test_section id = {".note.gnu.build-id", ID_NOTE, sizeof(ID_NOTE) - 1, 0, 0};
	const struct test_section none = {0};
	const size_t n_main = ARRAY_SIZE(main_names), n_dwo = ARRAY_SIZE(dwo_names);
	bool has_alt = n && data[0] & 1;
	int fds[5], k = 2;

	data += n > 0;
	n -= n > 0;
	fds[0] = make(main_names, n_main, ET_DYN, has_alt ? link : none, &data, &n);
	fds[1] = -1;
	fds[k++] = make(dwo_names, n_dwo, ET_REL, none, &data, &n);
	if (has_alt) {
		fds[k++] = fds[2];
		fds[2] = make(main_names, n_main, ET_DYN, id, &data, &n);
	} else {
		fds[k++] = dup(fds[2]);
	}
	parse(fds, 2);
	parse(fds, k);
	for (int i = 0; i < k; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return 0;
}

/* ---- first inputs ---- */

static const char program[] =
	"namespace { struct S { int v; int get(int k) const { return v * k; } }; }\n"
	"static inline int twice(int x) { return S{x}.get(2) + x / 3; }\n"
	"extern int g(int);\n"
	"int f(int a, int b) { for (int i = 0; i < a; i++) b += twice(b) + g(i);\n"
	"  auto l = [&](int c) { return twice(c) * g(c); }; return l(b) + l(a); }\n";
static const char *const commands[] = {
	"g++ -O2 -shared -fPIC -gdwarf-5 a.cc -o a.so",
	"g++ -O2 -shared -fPIC -gdwarf-4 a.cc -o a.so",
	"g++ -O2 -shared -fPIC -gdwarf-2 a.cc -o a.so",
	"g++ -O2 -shared -fPIC -gdwarf-5 -gsplit-dwarf a.cc -o a.so",
	"g++ -O2 -shared -fPIC -gdwarf-4 -gsplit-dwarf a.cc -o a.so",
	"clang++ -O2 -shared -fPIC -gdwarf-5 a.cc -o a.so",
	"clang++ -O2 -shared -fPIC -gdwarf-5 -gsplit-dwarf a.cc -o a.so; mv -f a.dwo a.so-a.dwo",
	"g++ -O2 -shared -fPIC -gdwarf-4 a.cc -o a.so && cp a.so b.so && dwz -m alt a.so b.so",
};
static struct buf seeds[ARRAY_SIZE(commands)];

static Elf_Data *find(Elf *elf, const char *name)
{
	Elf_Scn *s = NULL;
	size_t names;

	elf_getshdrstrndx(elf, &names);
	while ((s = elf_nextscn(elf, s))) {
		GElf_Shdr h;
		const char *own;

		gelf_getshdr(s, &h);
		own = elf_strptr(elf, names, h.sh_name);
		if (own && streq(own, name))
			return elf_rawdata(s, NULL);
	}
	return NULL;
}

static void add(struct buf *seed, const char *path, const char *const *names, size_t n)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf *elf = fd >= 0 ? elf_begin(fd, ELF_C_READ, NULL) : NULL;

	for (size_t i = 0; i < n; i++) {
		Elf_Data *d = elf ? find(elf, names[i]) : NULL;
		size_t bytes = d ? MIN(d->d_size, (size_t)UINT16_MAX) : 0;

		buf_putc(seed, bytes & 0xff);
		buf_putc(seed, bytes >> 8);
		if (bytes)
			buf_add(seed, d->d_buf, bytes);
	}
	elf_end(elf);
}

static bool run(char *command)
{
	char *argv[] = {"sh", "-c", command, NULL};
	int status;
	pid_t pid;

	return posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ) == 0 &&
	       waitpid(pid, &status, 0) == pid && status == 0;
}

static void make_seed(const char *dir, const char *make_it, struct buf *seed)
{
	_cleanup_free_ char *command =
		xasprintf("cd %s && rm -f a.so a.so-a.dwo alt && %s", dir, make_it);
	_cleanup_free_ char *so = xasprintf("%s/a.so", dir), *alt = xasprintf("%s/alt", dir);
	_cleanup_free_ char *dwo = xasprintf("%s/a.so-a.dwo", dir);

	if (!run(command))
		fprintf(stderr, "no first input: %s\n", command);
	buf_init(seed, 0);
	buf_putc(seed, access(alt, F_OK) == 0);
	add(seed, so, main_names, ARRAY_SIZE(main_names));
	add(seed, dwo, dwo_names, ARRAY_SIZE(dwo_names));
	add(seed, alt, main_names, ARRAY_SIZE(main_names));
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char dir[TESTDIR_BYTES];
	_cleanup_free_ char *c = NULL;

	(void)argc;
	(void)argv;
	elf_version(EV_CURRENT);
	if (testdir_make(dir) < 0)
		abort();
	c = xasprintf("%s/a.cc", dir);
	if (file_write_atomic(c, program, strlen(program), 0600) < 0)
		abort();
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		make_seed(dir, commands[i], &seeds[i]);
	testdir_remove(dir);
	return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max, unsigned seed)
{
	const struct buf *s = &seeds[seed / 64 % ARRAY_SIZE(seeds)];

	if ((n < 64 || seed % 64 == 0) && s->len <= max) {
		memcpy(data, s->data, s->len);
		n = s->len;
	}
	return LLVMFuzzerMutate(data, n, max);
}
