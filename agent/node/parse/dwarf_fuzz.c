/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the DWARF sections of a file and of its .dwo file. The input is a list of sections,
 * each a length in two bytes and its bytes, so that a mutation stays inside of one; gcc makes the
 * first inputs from a small program in each version of DWARF.
 */
#include "node/parse/format.h"
#include "node/parse/testelf.h"

#include <fcntl.h>
#include <gelf.h>

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

static int make(const char *const *names, size_t n_names, uint16_t type, const uint8_t **data,
		size_t *n)
{
	struct test_section sections[TESTELF_SECTIONS_MAX] = {TESTELF_TEXT};
	size_t k = 1;

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_cleanup_close_ int file = make(main_names, ARRAY_SIZE(main_names), ET_DYN, &data, &n);
	_cleanup_close_ int dwo = make(dwo_names, ARRAY_SIZE(dwo_names), ET_REL, &data, &n);
	const int fds[] = {file, -1, dwo, dwo};
	struct elf_index *i;
	int memfd;

	for (size_t n_fds = 2; n_fds <= ARRAY_SIZE(fds); n_fds += 2) {
		if (elf_to_debug_index(fds, n_fds, 64 << 20, &memfd) != PARSE_OK)
			continue;
		if (elf_index_open(memfd, &i) < 0)
			abort();
		elf_index_unref(i);
	}
	return 0;
}

/* ---- first inputs ---- */

static const char program[] =
	"namespace { struct S { int v; int get(int k) const { return v * k; } }; }\n"
	"static inline int twice(int x) { return S{x}.get(2) + x / 3; }\n"
	"extern int g(int);\n"
	"int f(int a, int b) { for (int i = 0; i < a; i++) b += twice(b) + g(i);\n"
	"  auto l = [&](int c) { return twice(c) * g(c); }; return l(b) + l(a); }\n";
static const char *const flags[] = {
	"-gdwarf-5",
	"-gdwarf-4",
	"-gdwarf-2 -gstrict-dwarf",
	"-gdwarf-5 -gsplit-dwarf",
	"-gdwarf-4 -gsplit-dwarf",
	"-gdwarf-5 -gz",
};
static struct buf seeds[ARRAY_SIZE(flags)];

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

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char dir[] = "/tmp/dwarf_fuzz.XXXXXX";

	(void)argc;
	(void)argv;
	elf_version(EV_CURRENT);
	if (!mkdtemp(dir))
		abort();
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		_cleanup_free_ char *c = xasprintf("%s/a.cc", dir), *so = xasprintf("%s/a.so", dir);
		_cleanup_free_ char *dwo = xasprintf("%s/a.so-a.dwo", dir);
		_cleanup_free_ char *command =
			xasprintf("cd %s && g++ -O2 -shared -fPIC %s a.cc -o a.so", dir, flags[i]);

		if (file_write_atomic(c, program, strlen(program), 0600) < 0 ||
		    system(command) != 0)
			fprintf(stderr, "no first input: %s\n", command);
		buf_init(&seeds[i], 0);
		add(&seeds[i], so, main_names, ARRAY_SIZE(main_names));
		add(&seeds[i], dwo, dwo_names, ARRAY_SIZE(dwo_names));
		unlink(c);
		unlink(so);
		unlink(dwo);
	}
	rmdir(dir);
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
