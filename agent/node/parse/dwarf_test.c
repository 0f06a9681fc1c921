/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests DWARF as compilers write it: for every address tried, the chain of inlined functions and
 * their declarations must be the same as llvm-symbolizer's. Also tests DWARF that no compiler
 * writes: cycles, deep nesting.
 */
#include "lib/base/testdir.h"
#include "lib/base/testprogram.h"
#include "node/parse/format.h"
#include "node/parse/parse.h"
#include "node/parse/testelf.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sys/stat.h>

#include <cmocka.h>

#define DATA	  "agent/node/parse/testdata"
#define TRIED_MAX 1500

static char dir[TESTDIR_BYTES], source[4096];

/* Runs a command in the test's own folder. */
static void run(const char *what)
{
	_cleanup_free_ char *command = xasprintf("cd %s && %s", dir, what);

	if (system(command) != 0)
		fail_msg("%s", command);
}

static int open_in_dir(const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static struct elf_index *index_of(const int *fds, size_t n)
{
	struct elf_index *i;
	int memfd;

	assert_int_equal(parse_elf_to_debug_index(fds, n, 64 << 20, &memfd), PARSE_OK);
	assert_int_equal(elf_index_open(memfd, &i), 0);
	return i;
}

static struct elf_index *index_of_file(const char *name)
{
	int fds[] = {open_in_dir(name), -1};
	struct elf_index *i = index_of(fds, 2);

	close(fds[0]);
	return i;
}

/* Returns the index of a file, made with the files that its first index wants (.dwo, dwz). */
static struct elf_index *index_with_others(const char *name)
{
	int fds[PARSE_FDS_MAX] = {open_in_dir(name), -1};
	struct elf_index *first = index_of(fds, 2), *second;
	size_t n = 2;

	assert_true(elf_index_flags(first) & ELF_INDEX_DWO);
	assert_true(elf_index_n_wanted(first) > 0);
	for (size_t k = 0; k < elf_index_n_wanted(first); k++, n++) {
		fds[n] = open(elf_index_wanted(first, k).path, O_RDONLY | O_CLOEXEC);
		assert_true(fds[n] >= 0);
	}
	second = index_of(fds, n);
	assert_false(elf_index_flags(second) & ELF_INDEX_DWO);
	for (size_t k = 0; k < n; k++)
		if (fds[k] >= 0)
			close(fds[k]);
	elf_index_unref(first);
	return second;
}

/* ---- the oracle ---- */

/*
 * Returns whether two names have the same address: the compiler has merged two functions, or a
 * constructor has two names.
 */
static bool are_aliases(const char *file, const char *a, const char *b)
{
	_cleanup_free_ char *command = xasprintf("nm %s/%s | awk '$3 == \"%s\" || $3 == \"%s\" "
						 "{print $1}' | uniq -c | awk '{print $1}'",
						 dir, file, a, b);
	FILE *f = popen(command, "r");
	int n = 0;

	if (fscanf(f, "%d", &n) != 1)
		n = 0;
	pclose(f);
	return n == 2;
}

/*
 * Returns whether the names are the same. Ours may also have namespaces in front, which
 * llvm-symbolizer does not add to a plain name.
 */
static bool same_name(const char *ours, const char *theirs)
{
	size_t n = strlen(ours), m = strlen(theirs);

	if (streq(ours, theirs))
		return true;
	return n > m + 2 && streq(ours + n - m, theirs) && strncmp(ours + n - m - 2, "::", 2) == 0;
}

/*
 * Returns whether file and line are the same. If DWARF gives the number of a file in an unusual
 * form, or not at all, llvm-symbolizer 14 prints "". For such a line it prints 0.
 */
static bool same_place(const struct elf_inline *ours, const json_t *theirs)
{
	const char *file = json_str_at(theirs, "StartFileName", "");
	int64_t line = json_int_at(theirs, "StartLine", 0);

	return (!*file || streq(ours->file, file)) && (!line || ours->line == line);
}

/* Finds the chain of functions that the index has at an address, the symbol last. */
static size_t chain_at(const struct elf_index *i, uint64_t address, struct elf_inline ret[])
{
	size_t n = elf_index_inlines(i, address, ret);
	struct elf_symbol s;

	if (elf_index_symbol(i, address, &s) == 0)
		ret[n++] = (struct elf_inline){s.name, s.file, s.line};
	return n;
}

static void compare_chain(const struct elf_index *i, const char *file, const json_t *answer,
			  size_t *n_inlined)
{
	uint64_t address = strtoull(json_str_at(answer, "Address", "0"), NULL, 0);
	const json_t *symbols = json_object_get(answer, "Symbol");
	struct elf_inline chain[ELF_INLINES_MAX + 1];
	size_t n = chain_at(i, address, chain);

	if (!*json_str_at(json_array_get(symbols, 0), "FunctionName", "")) {
		assert_int_equal(n, 0);
		return;
	}
	if (n != json_array_size(symbols))
		fail_msg("%s %#lx: %zu frames, not %zu", file, address, n,
			 json_array_size(symbols));
	for (size_t k = 0; k < n; k++) {
		const json_t *theirs = json_array_get(symbols, k);
		const char *name = json_str_at(theirs, "FunctionName", "");

		if (!same_name(chain[k].name, name) &&
		    !(k == n - 1 && are_aliases(file, chain[k].name, name)))
			fail_msg("%s %#lx frame %zu: %s, not %s", file, address, k, chain[k].name,
				 name);
		if (!same_place(&chain[k], theirs))
			fail_msg("%s %#lx %s: %s:%u, not %s:%ld", file, address, name,
				 chain[k].file, chain[k].line,
				 json_str_at(theirs, "StartFileName", ""),
				 (long)json_int_at(theirs, "StartLine", 0));
	}
	*n_inlined += n > 1;
}

/* Writes addresses of .text, evenly spread, to a file. */
static void write_addresses(const char *file)
{
	_cleanup_free_ char *command = xasprintf(
		"readelf -SW %s/%s | sed -nE 's/.* \\.text +PROGBITS +([0-9a-f]+) [0-9a-f]+ "
		"([0-9a-f]+).*/\\1 \\2/p'",
		dir, file);
	_cleanup_free_ char *path = xasprintf("%s/addresses", dir);
	FILE *f = popen(command, "r"), *out = fopen(path, "w");
	unsigned long start, bytes;

	assert_int_equal(fscanf(f, "%lx %lx", &start, &bytes), 2);
	for (unsigned long a = 0; a < bytes; a += bytes / TRIED_MAX + 1)
		fprintf(out, "%#lx\n", start + a);
	pclose(f);
	fclose(out);
}

static void compare_with_oracle(const struct elf_index *i, const char *file)
{
	_cleanup_free_ char *command = xasprintf(
		"llvm-symbolizer --obj=%s/%s --functions=linkage --inlines --output-style=JSON "
		"--no-demangle <%s/addresses",
		dir, file, dir);
	_cleanup_free_ char *line = NULL;
	size_t cap = 0, n_answers = 0, n_inlined = 0;
	FILE *f;

	write_addresses(file);
	f = popen(command, "r");
	while (getline(&line, &cap, f) > 0) {
		json_t *j = json_loads(line, JSON_DECODE_ANY, NULL), *answer;
		size_t k;

		if (!j)
			continue;
		if (!json_is_array(j))
			j = json_pack("[o]", j);
		json_array_foreach (j, k, answer) {
			compare_chain(i, file, answer, &n_inlined);
			n_answers++;
		}
		json_decref(j);
	}
	pclose(f);
	assert_true(n_answers > 300);
	assert_true(n_inlined > n_answers / 4);
}

static uint64_t address_of(const char *file, const char *name)
{
	_cleanup_free_ char *command =
		xasprintf("nm %s/%s | awk '$3 == \"%s\" {print $1}'", dir, file, name);
	FILE *f = popen(command, "r");
	unsigned long address = 0;

	assert_int_equal(fscanf(f, "%lx", &address), 1);
	pclose(f);
	return address;
}

/* ---- compilers ---- */

static void build(const char *compiler, const char *flags, const char *sources, const char *name)
{
	_cleanup_free_ char *tool = xstrndup(compiler, strcspn(compiler, " "));
	_cleanup_free_ char *command = xasprintf("cd %s && %s %s %s -o %s 2>compiler.log", dir,
						 compiler, flags, sources, name);

	if (!program_here(tool) || !program_here("llvm-symbolizer"))
		skip();
	if (system(command) != 0)
		fail_msg("%s", command);
}

static void check_build(const char *compiler, const char *flags, const char *sources)
{
	struct elf_index *i;

	build(compiler, flags, sources, "program");
	i = index_of_file("program");
	assert_false(elf_index_flags(i) & ELF_INDEX_DWARF_CUT);
	compare_with_oracle(i, "program");
	elf_index_unref(i);
}

static void check_cxx(const char *compiler, const char *flags)
{
	_cleanup_free_ char *sources =
		xasprintf("%s/%s/inlined_a.cc %s/%s/inlined_b.cc", source, DATA, source, DATA);

	check_build(compiler, flags, sources);
}

static void assert_same_answers(const struct elf_index *x, const struct elf_index *y,
				const char *file)
{
	struct elf_inline a[ELF_INLINES_MAX + 1], b[ELF_INLINES_MAX + 1];
	uint64_t end = address_of(file, "_fini");

	for (uint64_t p = address_of(file, "_init"); p < end; p++) {
		size_t n = chain_at(x, p, a);

		assert_int_equal(n, chain_at(y, p, b));
		for (size_t k = 0; k < n; k++) {
			assert_string_equal(a[k].name, b[k].name);
			assert_string_equal(a[k].file, b[k].file);
			assert_int_equal(a[k].line, b[k].line);
		}
	}
}

/*
 * llvm-symbolizer 14 misses ranges in .dwo files. The same program without -gsplit-dwarf gives the
 * right answers.
 */
static void check_split(const char *compiler, const char *flags)
{
	_cleanup_free_ char *split_flags = xasprintf("%s -gsplit-dwarf", flags);
	_cleanup_free_ char *sources =
		xasprintf("%s/%s/inlined_a.cc %s/%s/inlined_b.cc", source, DATA, source, DATA);
	struct elf_index *whole, *split;

	build(compiler, flags, sources, "whole");
	build(compiler, split_flags, sources, "split");
	whole = index_of_file("whole");
	split = index_with_others("split");
	assert_false(elf_index_flags(split) & ELF_INDEX_DWARF_CUT);
	compare_with_oracle(whole, "whole");
	assert_same_answers(whole, split, "whole");
	elf_index_unref(whole);
	elf_index_unref(split);
}

/*
 * dwz moves what two files share into a third file, and what units of one file share into other
 * units.
 */
static void check_dwz(const char *flags)
{
	_cleanup_free_ char *sources =
		xasprintf("%s/%s/inlined_a.cc %s/%s/inlined_b.cc", source, DATA, source, DATA);
	struct elf_index *whole, *small;

	build("g++ -O2", flags, sources, "whole");
	build("g++ -O0", flags, sources, "second");
	run("cp whole small && dwz small 2>/dev/null");
	whole = index_of_file("whole");
	small = index_of_file("small");
	assert_same_answers(whole, small, "whole");
	elf_index_unref(small);
	run("cp whole small && dwz -m shared -M $PWD/shared small second 2>/dev/null");
	small = index_of_file("small");
	assert_true(elf_index_flags(small) & ELF_INDEX_DWARF_CUT);
	elf_index_unref(small);
	small = index_with_others("small");
	assert_false(elf_index_flags(small) & ELF_INDEX_DWARF_CUT);
	assert_same_answers(whole, small, "whole");
	elf_index_unref(small);
	elf_index_unref(whole);
}

static void dwz(void **state)
{
	(void)state;
	if (!program_here("dwz"))
		skip();
	check_dwz("-gdwarf-4");
	check_dwz("-gdwarf-5");
}

/*
 * Sections that objcopy has compressed: in the file itself, in a debug file, in .dwo files, in the
 * file of dwz. llvm-symbolizer 14, which gives the expected answers, does not know zstd.
 */
#define ZSTD "objcopy --compress-debug-sections=zstd "

static void assert_whole_and_same(const struct elf_index *whole, struct elf_index *other)
{
	assert_int_equal(elf_index_flags(other) & (ELF_INDEX_DWARF_CUT | ELF_INDEX_COMPRESSED), 0);
	assert_same_answers(whole, other, "whole");
	elf_index_unref(other);
}

static void zstd(void **state)
{
	_cleanup_free_ char *sources =
		xasprintf("%s/%s/inlined_a.cc %s/%s/inlined_b.cc", source, DATA, source, DATA);
	struct elf_index *whole;
	int fds[2];

	(void)state;
	build("g++ -O2", "-g", sources, "whole");
	whole = index_of_file("whole");
	run(ZSTD "whole packed && readelf -tW packed | grep -q ZSTD");
	assert_whole_and_same(whole, index_of_file("packed"));
	run("objcopy --only-keep-debug whole debug && " ZSTD "debug && strip -o bare whole && "
	    "readelf -tW debug | grep -q ZSTD");
	fds[0] = open_in_dir("bare");
	fds[1] = open_in_dir("debug");
	assert_whole_and_same(whole, index_of(fds, 2));
	close(fds[0]);
	close(fds[1]);
	build("g++ -O2", "-g -gsplit-dwarf", sources, "split");
	run("for f in split *.dwo; do " ZSTD "$f; readelf -tW $f | grep -q ZSTD || exit 1; done");
	assert_whole_and_same(whole, index_with_others("split"));
	elf_index_unref(whole);
}

static void zstd_dwz(void **state)
{
	_cleanup_free_ char *sources =
		xasprintf("%s/%s/inlined_a.cc %s/%s/inlined_b.cc", source, DATA, source, DATA);
	struct elf_index *whole;

	(void)state;
	if (!program_here("dwz"))
		skip();
	build("g++ -O2", "-g", sources, "whole");
	build("g++ -O0", "-g", sources, "second");
	run("cp whole small && dwz -m shared -M $PWD/shared small second 2>/dev/null");
	run("for f in small shared; do " ZSTD "$f; readelf -tW $f | grep -q ZSTD || exit 1; done");
	whole = index_of_file("whole");
	assert_whole_and_same(whole, index_with_others("small"));
	elf_index_unref(whole);
}

static void gcc_5(void **state)
{
	(void)state;
	check_cxx("g++ -O2", "-gdwarf-5");
}

static void gcc_4(void **state)
{
	(void)state;
	check_cxx("g++ -O3", "-gdwarf-4");
}

static void gcc_2(void **state)
{
	(void)state;
	check_cxx("g++ -O2", "-gdwarf-2");
}

static void gcc_compressed(void **state)
{
	(void)state;
	check_cxx("g++ -O2", "-g -gz");
}

static void gcc_link_time(void **state)
{
	(void)state;
	check_cxx("g++ -O2", "-g -flto");
}

static void gcc_types_apart(void **state)
{
	(void)state;
	check_cxx("g++ -O2", "-gdwarf-5 -fdebug-types-section");
	check_cxx("g++ -O2", "-gdwarf-4 -fdebug-types-section");
}

static void gcc_split(void **state)
{
	(void)state;
	check_split("g++ -O2", "-gdwarf-5");
	check_split("g++ -O2", "-gdwarf-4");
}

static void clang_5(void **state)
{
	(void)state;
	check_cxx("clang++ -O2", "-gdwarf-5");
}

static void clang_4(void **state)
{
	(void)state;
	check_cxx("clang++ -O2", "-gdwarf-4");
}

static void clang_link_time(void **state)
{
	(void)state;
	if (!program_here("ld.lld"))
		skip();
	check_cxx("clang++ -O2 -fuse-ld=lld", "-g -flto");
}

static void clang_split(void **state)
{
	(void)state;
	check_split("clang++ -O2", "-gdwarf-5");
	check_split("clang++ -O2", "-gdwarf-4");
	check_split("clang++ -O2", "-gdwarf-5 -fsplit-dwarf-inlining");
}

static void rust(void **state)
{
	_cleanup_free_ char *sources = xasprintf("%s/%s/inlined.rs", source, DATA);

	(void)state;
	check_build("rustc -O", "-g", sources);
}

/* ---- a file's own symbols and flags ---- */

static const char nested[] =
	"extern int printf(const char *, ...);\n"
	"static inline __attribute__((always_inline)) int\n"
	"inner(int x) { for (int i = 0; i < x; i++) printf(\"%d\", i); return x; }\n"
	"static __attribute__((noinline)) int outer(int x) { return inner(x) + 1; }\n"
	"int main(int c, char **v) { (void)v; return outer(c); }\n";

static void write_source(const char *name, const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);

	assert_int_equal(file_write_atomic(path, text, strlen(text), 0600), 0);
}

static void a_function_without_symbol_has_its_name(void **state)
{
	struct elf_symbol s;
	struct elf_index *i;
	uint64_t outer;

	(void)state;
	write_source("n.c", nested);
	run("gcc -O2 -g n.c -o n && objcopy -N outer n bare");
	outer = address_of("n", "outer");
	i = index_of_file("bare");
	assert_int_equal(elf_index_symbol(i, outer, &s), 0);
	assert_string_equal(s.name, "outer");
	assert_int_equal(s.address, outer);
	assert_int_equal(s.line, 4);
	assert_true(str_has_suffix(s.file, "/n.c"));
	assert_true(s.file[0] == '/');
	assert_int_equal(elf_index_symbol(i, outer + s.size, &s), -ENOENT);
	elf_index_unref(i);
	/* here the function has a symbol, which gets file and line, too */
	i = index_of_file("n");
	assert_int_equal(elf_index_symbol(i, outer + 1, &s), 0);
	assert_string_equal(s.name, "outer");
	assert_int_equal(s.line, 4);
	elf_index_unref(i);
}

static void the_debug_file_has_the_names(void **state)
{
	struct elf_inline a[ELF_INLINES_MAX + 1], b[ELF_INLINES_MAX + 1];
	struct elf_index *i, *whole;
	int fds[] = {-1, -1};
	uint64_t start;

	(void)state;
	write_source("n.c", nested);
	run("gcc -O2 -g n.c -o n && objcopy --only-keep-debug n n.debug && strip -o n.stripped n");
	fds[0] = open_in_dir("n.stripped");
	fds[1] = open_in_dir("n.debug");
	i = index_of(fds, 2);
	assert_true(elf_index_flags(i) & ELF_INDEX_DEBUG);
	whole = index_of_file("n");
	start = address_of("n", "outer");
	for (uint64_t p = start; p < start + 64; p++) {
		size_t n = chain_at(i, p, a);

		assert_int_equal(n, chain_at(whole, p, b));
		for (size_t k = 0; k < n; k++) {
			assert_string_equal(a[k].name, b[k].name);
			assert_int_equal(a[k].line, b[k].line);
		}
	}
	elf_index_unref(whole);
	elf_index_unref(i);
	close(fds[0]);
	close(fds[1]);
}

static void plain_names_get_their_scope(void **state)
{
	struct elf_inline chain[ELF_INLINES_MAX + 1];
	struct elf_index *i;
	uint64_t start;
	bool found = false;

	(void)state;
	write_source("s.cc", "namespace a { namespace { struct T { int k;\n"
			     "int twice(int x) { volatile int y = x; return y * k; } }; } }\n"
			     "__attribute__((noinline)) int f(int x) { return a::T{x}.twice(x); }\n"
			     "int main(int c, char **) { return f(c); }\n");
	run("g++ -O2 -g s.cc -o s");
	start = address_of("s", "_Z1fi");
	i = index_of_file("s");
	for (uint64_t p = start; p < start + 32; p++)
		if (chain_at(i, p, chain) == 2 &&
		    streq(chain[0].name, "a::(anonymous)::T::twice") && chain[0].line == 2)
			found = true;
	assert_true(found);
	elf_index_unref(i);
}

static void another_dwo_is_not_believed(void **state)
{
	int fds[4] = {-1, -1, -1, -1};
	struct elf_inline chain[ELF_INLINES_MAX + 1];
	struct elf_index *i;
	uint64_t outer;

	(void)state;
	write_source("n.c", nested);
	write_source("other.c", "int main(void) { return 3; }\n");
	run("gcc -O2 -g -gsplit-dwarf n.c -o n && gcc -O2 -g -gsplit-dwarf other.c -o o");
	outer = address_of("n", "outer");
	fds[0] = open_in_dir("n");
	fds[2] = open_in_dir("o-other.dwo");
	i = index_of(fds, 4);
	assert_true(elf_index_flags(i) & ELF_INDEX_DWARF_CUT);
	assert_int_equal(elf_index_n_wanted(i), 0);
	assert_int_equal(chain_at(i, outer, chain), 1);
	assert_string_equal(chain[0].name, "outer");
	elf_index_unref(i);
	close(fds[0]);
	close(fds[2]);
}

static void a_package_is_told(void **state)
{
	const struct test_section s[] = {
		TESTELF_TEXT, {".debug_cu_index", "....", 4, 0, 0}, {NULL, NULL, 0, 0, 0}};
	int fds[] = {testelf_memfd(s, ET_DYN), -1};
	struct elf_index *i = index_of(fds, 2);

	(void)state;
	assert_true(elf_index_flags(i) & ELF_INDEX_DWP);
	elf_index_unref(i);
	close(fds[0]);
}

/* ---- what no compiler writes ---- */

static const uint8_t abbrevs[] = {
	1, 0x11, 1, 0,	  0,				/* compile_unit, children */
	2, 0x2e, 1, 3,	  8,	0x11, 1, 0x12, 6, 0, 0, /* subprogram: name, low_pc, high_pc */
	3, 0x1d, 1, 0x31, 0x13, 0x11, 1, 0x12, 6, 0, 0, /* inlined: abstract_origin, low, high */
	4, 0x2e, 0, 0x31, 0x13, 0,    0,		/* subprogram: abstract_origin */
	5, 0x2e, 0, 3,	  8,	0,    0,		/* subprogram: name */
	6, 0x0b, 1, 0,	  0,				/* lexical_block, children */
	0,
};

static void add_function(struct buf *b, const char *name, uint64_t start, uint32_t bytes)
{
	testelf_uint(b, 2, 1);
	buf_add(b, name, strlen(name) + 1);
	testelf_uint(b, start, 8);
	testelf_uint(b, bytes, 4);
}

static void add_inlined(struct buf *b, uint32_t origin, uint64_t start, uint32_t bytes)
{
	testelf_uint(b, 3, 1);
	testelf_uint(b, origin, 4);
	testelf_uint(b, start, 8);
	testelf_uint(b, bytes, 4);
}

static struct elf_index *index_of_unit(struct buf *b)
{
	const struct test_section s[] = {TESTELF_TEXT,
					 {".debug_info", b->data, b->len, 0, 0},
					 {".debug_abbrev", abbrevs, sizeof(abbrevs), 0, 0},
					 {NULL, NULL, 0, 0, 0}};
	uint32_t bytes = b->len - 4;
	struct elf_index *i;
	int fds[2] = {-1, -1};

	memcpy(b->data, &bytes, 4);
	fds[0] = testelf_memfd(s, ET_DYN);
	i = index_of(fds, 2);
	close(fds[0]);
	buf_done(b);
	return i;
}

static void a_cycle_of_origins_ends(void **state)
{
	struct elf_inline chain[ELF_INLINES_MAX + 1];
	struct elf_index *i;
	struct buf b;
	uint32_t at;

	(void)state;
	testelf_unit(&b, 1);
	at = b.len;
	testelf_uint(&b, 4, 1); /* two DIEs: each is the other's origin */
	testelf_uint(&b, at + 5, 4);
	testelf_uint(&b, 4, 1);
	testelf_uint(&b, at, 4);
	add_function(&b, "f", 0x1000, 64);
	add_inlined(&b, at, 0x1010, 16);
	add_inlined(&b, b.len, 0x1014, 4); /* inlined into itself */
	testelf_uint(&b, 0, 4);
	i = index_of_unit(&b);
	assert_true(elf_index_flags(i) & ELF_INDEX_DWARF_CUT);
	assert_int_equal(chain_at(i, 0x1014, chain), 1);
	assert_string_equal(chain[0].name, "f");
	elf_index_unref(i);
}

static void nesting_without_end_is_cut(void **state)
{
	struct elf_inline chain[ELF_INLINES_MAX + 1];
	struct elf_index *i;
	struct buf b;
	uint32_t at;

	(void)state;
	testelf_unit(&b, 1);
	at = b.len;
	testelf_uint(&b, 5, 1);
	buf_add(&b, "in", 3);
	add_function(&b, "f", 0x1000, 0x1000);
	for (int i_ = 0; i_ < 100; i_++)
		add_inlined(&b, at, 0x1100, 0x100);
	for (int i_ = 0; i_ < 100000; i_++)
		testelf_uint(&b, 6, 1);
	for (int i_ = 0; i_ < 100000 + 101; i_++)
		testelf_uint(&b, 0, 1);
	add_function(&b, "g", 0x2000, 0x10); /* after all nested DIEs */
	testelf_uint(&b, 0, 2);
	i = index_of_unit(&b);
	assert_true(elf_index_flags(i) & ELF_INDEX_DWARF_CUT);
	assert_int_equal(chain_at(i, 0x1100, chain), ELF_INLINES_MAX + 1);
	assert_string_equal(chain[0].name, "in");
	assert_string_equal(chain[ELF_INLINES_MAX].name, "f");
	assert_int_equal(chain_at(i, 0x2000, chain), 1);
	assert_string_equal(chain[0].name, "g");
	elf_index_unref(i);
}

static void names_over_the_limit_are_cut_and_say_so(void **state)
{
	_cleanup_free_ char *name = xcalloc(1, 2 * INDEX_NAME_MAX);
	struct elf_inline chain[ELF_INLINES_MAX + 1];
	struct elf_index *i;
	struct buf b;
	uint32_t at;

	(void)state;
	memset(name, 'x', INDEX_NAME_MAX + 1);
	testelf_unit(&b, 1);
	at = b.len;
	testelf_uint(&b, 5, 1);
	buf_add(&b, name, strlen(name) + 1);
	name[INDEX_NAME_MAX] = '\0';
	add_function(&b, name, 0x1000, 0x100);
	add_inlined(&b, at, 0x1010, 4);
	add_inlined(&b, at, 0x1012, 2);
	testelf_uint(&b, 0, 4);
	i = index_of_unit(&b);
	assert_int_equal(chain_at(i, 0x1012, chain), 3);
	assert_string_equal(chain[2].name, name);
	memset(name + INDEX_NAME_MAX - 3, '.', 3);
	assert_string_equal(chain[0].name, name);
	assert_ptr_equal(chain[0].name, chain[1].name); /* the name is once in the index */
	elf_index_unref(i);
}

/*
 * Code that a linker has removed is at address 0, and is left out. A function that two units have
 * is taken once.
 */
static void code_that_is_not_there_is_left_out(void **state)
{
	struct elf_inline chain[ELF_INLINES_MAX + 1];
	struct elf_index *i;
	struct buf b;
	uint32_t at;

	(void)state;
	testelf_unit(&b, 1);
	at = b.len;
	testelf_uint(&b, 5, 1);
	buf_add(&b, "in", 3);
	add_function(&b, "gone", 0, 0x10);
	add_inlined(&b, at, 0x1004, 4);
	testelf_uint(&b, 0, 2);
	add_function(&b, "f", 0x1000, 0x10);
	testelf_uint(&b, 0, 1);
	add_function(&b, "again", 0x1000, 0x10);
	add_inlined(&b, at, 0x1008, 4);
	testelf_uint(&b, 0, 3);
	i = index_of_unit(&b);
	assert_false(elf_index_flags(i) & ELF_INDEX_DWARF_CUT);
	assert_int_equal(chain_at(i, 0x1004, chain), 1);
	assert_int_equal(chain_at(i, 0x1008, chain), 1);
	assert_string_equal(chain[0].name, "f");
	assert_int_equal(chain_at(i, 8, chain), 0);
	elf_index_unref(i);
}

/*
 * All units share a table of abbreviations that begins with a number (LEB128) of 64 MiB. Each unit
 * reads it again, so the file's budget must be spent before the parent's timeout.
 */
static void long_numbers_cost_their_bytes(void **state)
{
	enum { N_UNITS = 4200, N_BYTES = 64 << 20 };
	_cleanup_free_ uint8_t *numbers = xmalloc(N_BYTES);
	struct test_section s[] = {TESTELF_TEXT,
				   {".debug_info", NULL, 0, 0, 0},
				   {".debug_abbrev", numbers, N_BYTES, 0, 0},
				   {NULL, NULL, 0, 0, 0}};
	struct parse_debug_files files = {0};
	struct parser_config c = {.timeout_ns = 60 * NSEC_PER_SEC};
	struct elf_index *i;
	struct parser *p;
	struct buf b;

	(void)state;
	memset(numbers, 0x80, N_BYTES);
	buf_init(&b, 0);
	for (int k = 0; k < N_UNITS; k++) {
		struct buf unit;

		testelf_unit(&unit, 1);
		memcpy(unit.data, &(uint32_t){unit.len - 4}, 4);
		buf_add(&b, unit.data, unit.len);
		buf_done(&unit);
	}
	s[1].data = b.data;
	s[1].n = b.len;
	files.main_fd = testelf_memfd(s, ET_DYN);
	files.debug_fd = -1;
	assert_int_equal(parse_new(&c, &p), 0);
	assert_int_equal(parse_debug(p, &files, &i), 0);
	assert_true(elf_index_flags(i) & ELF_INDEX_DWARF_CUT);
	elf_index_unref(i);
	parse_free(p);
	close(files.main_fd);
	buf_done(&b);
}

/*
 * The test damages the compressed bytes behind the section's header, which says how the section is
 * compressed. The undamaged file has no flag, although it lacks some sections of DWARF.
 */
static void a_section_that_cannot_be_read_is_told(void **state)
{
	static const char *const compressed[] = {
		"gcc -O2 -g -gz n.c -o n",
		"gcc -O2 -g n.c -o n && objcopy --compress-debug-sections=zstd n"};
	const unsigned told = ELF_INDEX_DWARF_CUT | ELF_INDEX_COMPRESSED;
	struct elf_index *i;

	(void)state;
	write_source("n.c", nested);
	/*
	 * There must be enough lines for compression to make the section smaller, whatever the
	 * length of the directory's name.
	 */
	run("for i in $(seq 50); do echo \"int f$i(int x) { return x + $i; }\"; done >>n.c");
	for (size_t k = 0; k < ARRAY_SIZE(compressed); k++) {
		run(compressed[k]);
		i = index_of_file("n");
		assert_int_equal(elf_index_flags(i) & told, 0);
		elf_index_unref(i);
		run("at=$(readelf -SW n | awk '$2 == \".debug_line\" {print $5}') && "
		    "dd if=/dev/zero of=n bs=1 seek=$((0x$at + 24)) count=8 conv=notrunc");
		i = index_of_file("n");
		assert_int_equal(elf_index_flags(i) & told,
				 ELF_INDEX_DWARF_CUT | ELF_INDEX_COMPRESSED_DAMAGED);
		elf_index_unref(i);
	}
}

/*
 * The index says that the file has DWARF, even if that DWARF cannot be read. Otherwise the agent
 * would search for a debug file.
 */
static void a_file_has_its_own_also_where_it_cannot_be_read(void **state)
{
	static const struct {
		const char *how;
		bool own;
	} cases[] = {
		{"gcc n.c -o n", false},
		{"gcc -g n.c -o n", true},
		{"gcc -g -gz n.c -o n", true},
		{"gcc -g n.c -o n && objcopy --compress-debug-sections=zlib-gnu n", true},
		{"gcc -g -gz n.c -o n && "
		 "at=$(readelf -SW n | awk '$2 == \".debug_info\" {print $5}') && "
		 "dd if=/dev/zero of=n bs=1 seek=$((0x$at + 24)) count=8 conv=notrunc",
		 true},
	};

	(void)state;
	write_source("n.c", nested);
	for (size_t k = 0; k < ARRAY_SIZE(cases); k++) {
		_cleanup_close_ int fd = -1;
		struct elf_index *i;
		int memfd;

		run(cases[k].how);
		fd = open_in_dir("n");
		assert_int_equal(parse_elf_to_index(fd, NULL, 1 << 20, &memfd), PARSE_OK);
		assert_int_equal(elf_index_open(memfd, &i), 0);
		assert_int_equal(!!(elf_index_flags(i) & ELF_INDEX_HAS_DWARF), cases[k].own);
		elf_index_unref(i);
	}
}

/* ---- in the real child, which may use only its own system calls ---- */

static void the_child_reads_split_and_compressed_files(void **state)
{
	struct parse_debug_files files = {.debug_fd = -1};
	struct elf_inline chain[ELF_INLINES_MAX + 1];
	struct parser_config c = {0};
	struct elf_index *i, *first;
	struct parser *p;
	int dwo;

	(void)state;
	write_source("n.c", nested);
	run("gcc -O2 -g -gz -gsplit-dwarf n.c -o n && objcopy --decompress-debug-sections n "
	    "&& " ZSTD "n");
	assert_int_equal(parse_new(&c, &p), 0);
	files.main_fd = open_in_dir("n");
	assert_int_equal(parse_debug(p, &files, &first), 0);
	assert_int_equal(elf_index_n_wanted(first), 1);
	dwo = open(elf_index_wanted(first, 0).path, O_RDONLY | O_CLOEXEC);
	assert_true(dwo >= 0);
	files.dwo_fds = &dwo;
	files.n_dwo_fds = 1;
	assert_int_equal(parse_debug(p, &files, &i), 0);
	assert_int_equal(elf_index_n_wanted(i), 0);
	assert_int_equal(chain_at(first, address_of("n", "outer"), chain), 1);
	assert_string_equal(chain[0].name, "outer");
	assert_int_equal(chain_at(i, address_of("n", "outer"), chain), 1);
	assert_int_equal(chain[0].line, 4);
	assert_int_equal(parse_restarts(p), 0);
	elf_index_unref(first);
	elf_index_unref(i);
	parse_free(p);
	close(dwo);
	close(files.main_fd);
}

static int make_dir(void **state)
{
	(void)state;
	if (!getcwd(source, sizeof(source)))
		return -1;
	return testdir_make(dir);
}

static int remove_dir(void **state)
{
	(void)state;
	return testdir_remove(dir);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(zstd),
		cmocka_unit_test(zstd_dwz),
		cmocka_unit_test(gcc_5),
		cmocka_unit_test(gcc_4),
		cmocka_unit_test(gcc_2),
		cmocka_unit_test(gcc_compressed),
		cmocka_unit_test(gcc_link_time),
		cmocka_unit_test(gcc_types_apart),
		cmocka_unit_test(gcc_split),
		cmocka_unit_test(clang_5),
		cmocka_unit_test(clang_4),
		cmocka_unit_test(clang_link_time),
		cmocka_unit_test(clang_split),
		cmocka_unit_test(rust),
		cmocka_unit_test(dwz),
		cmocka_unit_test(a_function_without_symbol_has_its_name),
		cmocka_unit_test(the_debug_file_has_the_names),
		cmocka_unit_test(plain_names_get_their_scope),
		cmocka_unit_test(another_dwo_is_not_believed),
		cmocka_unit_test(a_package_is_told),
		cmocka_unit_test(a_cycle_of_origins_ends),
		cmocka_unit_test(nesting_without_end_is_cut),
		cmocka_unit_test(names_over_the_limit_are_cut_and_say_so),
		cmocka_unit_test(code_that_is_not_there_is_left_out),
		cmocka_unit_test(long_numbers_cost_their_bytes),
		cmocka_unit_test(a_section_that_cannot_be_read_is_told),
		cmocka_unit_test(a_file_has_its_own_also_where_it_cannot_be_read),
		cmocka_unit_test(the_child_reads_split_and_compressed_files),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
