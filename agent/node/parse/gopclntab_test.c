/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares what the parse child reads in Go programs with what Go's own tools and binutils read in
 * the same files. The programs are built with this machine's toolchain. LONG=1: also with older and
 * newer toolchains, which the go command downloads.
 */
#include "lib/base/testfolder.h"
#include "node/parse/format.h"
#include "node/parse/testrows.h"

#include <ctype.h>
#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* middle and inner are inlined into outer, which has a frame; leaf has none. */
static const char program[] = "package main\n"
			      "\n"
			      "//go:noinline\n"
			      "func leaf(x uint64) uint64 {\n"
			      "	for i := 0; i < 100; i++ {\n"
			      "		x = x*6364136223846793005 + 1442695040888963407\n"
			      "	}\n"
			      "	return x\n"
			      "}\n"
			      "func inner(x uint64) uint64 { return leaf(x) + 3 }\n"
			      "func middle(x uint64) uint64 {\n"
			      "	return inner(x) ^ 7\n"
			      "}\n"
			      "\n"
			      "//go:noinline\n"
			      "func outer(x uint64) uint64 {\n"
			      "	return middle(x) + middle(x+1)\n"
			      "}\n"
			      "func main() {\n"
			      "	done := make(chan uint64)\n"
			      "	go func() { done <- outer(1) }()\n"
			      "	println(<-done, add(1))\n"
			      "}\n";
static const char add_plain[] = "package main\n"
				"\n"
				"func add(x int) int { return x + 1 }\n";
static const char add_cgo[] = "package main\n"
			      "\n"
			      "// static int c_add(int x) { return x + 1; }\n"
			      "import \"C\"\n"
			      "\n"
			      "func add(x int) int { return int(C.c_add(C.int(x))) }\n";
static const char module_file[] = "module example.com/known\n\ngo 1.16\n";

/* ---- building and reading ---- */

static bool has_go(void)
{
	return system("PATH=$PATH:/usr/local/go/bin; command -v go >/dev/null") == 0;
}

#define SKIP_WITHOUT_GO()                                                                          \
	do {                                                                                       \
		if (!has_go()) {                                                                   \
			print_message("skipped: no Go toolchain on this machine\n");               \
			skip();                                                                    \
		}                                                                                  \
	} while (0)

static void put(const char *folder, const char *name, const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, folder);
	_cleanup_free_ char *file = xasprintf("%s/%s", path, name);

	assert_int_equal(mkdir_parents(path, 0755), 0);
	assert_int_equal(file_write_atomic(file, text, strlen(text), 0644), 0);
}

/*
 * Builds a program and returns its path; the caller frees it. environment: what stands before the
 * go command.
 */
static char *build(const char *name, const char *environment, const char *flags, bool cgo)
{
	_cleanup_free_ char *command =
		xasprintf("cd %s/%s && PATH=$PATH:/usr/local/go/bin GOFLAGS=-mod=mod "
			  "CGO_ENABLED=%d %s timeout 300 go build -o ../%s.out %s . 2>../%s.log || "
			  "{ cat ../%s.log; false; }",
			  dir, name, cgo, environment, name, flags, name, name);

	put(name, "go.mod", module_file);
	put(name, "main.go", program);
	put(name, "add.go", cgo ? add_cgo : add_plain);
	assert_int_equal(system(command), 0);
	return xasprintf("%s/%s.out", dir, name);
}

static struct elf_index *read_index(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct elf_index *i;
	int memfd;

	assert_true(fd >= 0);
	assert_int_equal(parse_elf_to_index(fd, NULL, 64 << 20, &memfd), PARSE_OK);
	assert_int_equal(elf_index_open(memfd, &i), 0);
	return i;
}

static FILE *open_command(const char *format, const char *path)
{
	_cleanup_free_ char *arguments = xasprintf(format, path);
	_cleanup_free_ char *command = xasprintf("PATH=$PATH:/usr/local/go/bin; %s", arguments);
	FILE *f = popen(command, "r");

	assert_non_null(f);
	return f;
}

/* Returns the address of the first symbol of a name; 0: there is none. */
static uint64_t address_of(const struct elf_index *i, const char *name)
{
	const struct index_header *h = elf_index_data(i);
	const struct index_segment *segments = (const void *)(h + 1);
	const struct index_symbol *s = (const void *)(segments + h->n[INDEX_segments]);
	struct elf_symbol y;

	for (size_t k = 0; k < h->n[INDEX_symbols]; k++) {
		assert_int_equal(elf_index_symbol(i, s[k].address, &y), 0);
		if (streq(y.name, name))
			return s[k].address;
	}
	return 0;
}

static unsigned line_of(const char *text)
{
	const char *at = strstr(program, text);
	unsigned line = 1;

	assert_non_null(at);
	for (const char *p = program; p < at; p++)
		line += *p == '\n';
	return line;
}

/* ---- names: `go tool nm` has the symbol table's names and sizes ---- */

/*
 * Gives a name of either source the same form. The runtime's table writes "[...]" for generic
 * functions, and no ABI for assembly; nm writes "." for "·".
 */
static void plain_name(char *name)
{
	for (char *dot; (dot = strstr(name, "·"));) {
		*dot = '.';
		memmove(dot + 1, dot + 2, strlen(dot + 2) + 1);
	}
	name[strcspn(name, "[\n")] = '\0';
	if (str_has_suffix(name, ".abi0"))
		name[strlen(name) - strlen(".abi0")] = '\0';
}

static void check_names(const struct elf_index *i, const char *path)
{
	FILE *f = open_command("go tool nm -sort address -size %s", path);
	unsigned long long address, size;
	uint64_t text = address_of(i, "runtime.mstart"), first = address_of(i, "main.leaf");
	char type, name[4096], line[4200];
	size_t n = 0;

	assert_true(text && first);
	while (fgets(line, sizeof(line), f)) {
		struct elf_symbol s;
		char own[4096];

		if (sscanf(line, "%llx %llu %c %4095[^\n]", &address, &size, &type, name) != 4 ||
		    tolower(type) != 't' || size == 0 || !strchr(name, '.') ||
		    elf_index_symbol(i, address, &s) < 0 || !strstr(s.file, ".") || s.line == 0)
			continue;
		snprintf(own, sizeof(own), "%s", s.name);
		plain_name(own);
		plain_name(name);
		assert_string_equal(own, name);
		assert_int_equal(s.address, address);
		assert_int_equal(s.size, size);
		n++;
	}
	pclose(f);
	assert_in_range(n, 900, 100000); /* the runtime alone has this many */
}

/* ---- inlined functions: a known program ---- */

static bool is_chain(const struct elf_inline *at, size_t n, bool lines)
{
	if (n != 2 || !streq(at[0].name, "main.inner") || !streq(at[1].name, "main.middle"))
		return false;
	for (size_t k = 0; k < n; k++)
		assert_true(str_has_suffix(at[k].file, "/main.go"));
	assert_int_equal(at[0].line, lines ? line_of("func inner") : 0);
	assert_int_equal(at[1].line, lines ? line_of("func middle") : 0);
	return true;
}

static void check_inlines(const struct elf_index *i, bool lines)
{
	struct elf_inline at[ELF_INLINES_MAX];
	struct elf_symbol s;
	size_t chains = 0, plain = 0;

	assert_int_equal(elf_index_symbol(i, address_of(i, "main.outer"), &s), 0);
	assert_true(str_has_suffix(s.file, "/main.go"));
	assert_int_equal(s.line, line_of("func outer"));
	for (uint64_t a = s.address; a < s.address + s.size; a++) {
		size_t n = elf_index_inlines(i, a, at);

		if (is_chain(at, n, lines))
			chains++;
		plain += n == 0;
	}
	assert_true(chains > 10);
	assert_true(plain > 10);
	assert_int_equal(elf_index_inlines(i, address_of(i, "main.leaf"), at), 0);
	assert_int_equal(address_of(i, "main.inner"), 0);
}

/* ---- rows: binutils' reading of .debug_frame, which Go's linker writes by itself ---- */

/*
 * Returns whether the function is one that changes stacks: the runtime's table cannot express that,
 * and .debug_frame is wrong there (gopclntab_rows.c).
 */
static bool is_explained(const char *name)
{
	static const char *const names[] = {
		"_rt0_amd64",
		"_rt0_amd64_linux",
		"gogo",
		"runtime.asmcgocall",
		"runtime.asmcgocall_no_g",
		"runtime.callCgoMmap",
		"runtime.callCgoMunmap",
		"runtime.callCgoSigaction",
		"runtime.cgocallback",
		"runtime.clone",
		"runtime.execute",
		"runtime.goexit",
		"runtime.gogo",
		"runtime.jmpdefer",
		"runtime.mcall",
		"runtime.morestack",
		"runtime.mstart",
		"runtime.nanotime1",
		"runtime.rt0_go",
		"runtime.sigfwd",
		"runtime.sigreturn",
		"runtime.sigreturn__sigaction",
		"runtime.switchToCrashStack0",
		"runtime.systemstack",
		"runtime.vgetrandom1",
		"runtime.walltime",
		"runtime.walltime1",
		"syscall.rawVforkSyscall",
		"time.now",
		"_rt0_amd64_lib",
		"runtime.rt0_lib_go",
		"_rt0_amd64_lib_go",
	};

	for (size_t k = 0; k < ARRAY_SIZE(names); k++)
		if (streq(name, names[k]))
			return true;
	return false;
}

struct comparison {
	const struct elf_index *index;
	struct elf_tables tables;
	size_t rows, different, explained;
	char last[256];
};

static void compare_row(struct comparison *c, uint64_t address, int cfa)
{
	uint16_t rule = rule_at(&c->tables, address);
	struct elf_symbol s;

	c->rows++;
	if (rule < PF_RULE_SPECIAL_MIN && c->tables.rules[rule].cfa == PF_CFA_RSP &&
	    c->tables.rules[rule].cfa_offset == cfa && c->tables.rules[rule].ra == PF_RA_CFA8)
		return;
	assert_int_equal(elf_index_symbol(c->index, address, &s), 0);
	if (is_explained(s.name)) {
		c->explained++;
		return;
	}
	c->different++;
	print_message("%s+%#llx: .debug_frame has rsp+%d, we have rule %#x\n", s.name,
		      (unsigned long long)(address - s.address), cfa, rule);
}

/*
 * Compares the rows with those of readelf. A row of readelf holds up to the next row, so rows are
 * compared at both ends.
 */
static void check_rows(const struct elf_index *i, const char *path)
{
	FILE *f = open_command("readelf -wF %s 2>/dev/null", path);
	struct comparison c = {.index = i};
	unsigned long long start, fde_end = 0, row = 0;
	int cfa, row_cfa = 0;
	bool debug = false;
	char line[512];

	elf_index_tables(i, &c.tables);
	while (fgets(line, sizeof(line), f)) {
		const char *pc = strstr(line, " FDE ") ? strstr(line, "pc=") : NULL;

		if (strstr(line, "Contents of the"))
			debug = strstr(line, "debug_frame") != NULL;
		if (!debug)
			continue;
		if (pc) {
			if (row)
				compare_row(&c, fde_end - 1, row_cfa);
			row = 0;
			assert_int_equal(sscanf(pc, "pc=%*x..%llx", &fde_end), 1);
		} else if (sscanf(line, "%16llx rsp+%d", &start, &cfa) == 2 && fde_end) {
			if (row && start > row)
				compare_row(&c, start - 1, row_cfa);
			compare_row(&c, start, cfa);
			row = start;
			row_cfa = cfa;
		}
	}
	pclose(f);
	print_message("%zu rows, %zu of functions that change stacks\n", c.rows, c.explained);
	assert_int_equal(c.different, 0);
	assert_in_range(c.rows, 10000, 10000000);
	assert_in_range(c.explained, 10, 150);
}

/* ---- rows: functions that are known ---- */

static void assert_rule(const struct elf_index *i, const char *function, uint64_t offset,
			uint16_t rule)
{
	uint64_t address = address_of(i, function);
	struct elf_tables t;

	elf_index_tables(i, &t);
	assert_true(address);
	assert_int_equal(rule_at(&t, address + offset), rule);
}

/* Returns the offset of the last byte of a function's code. */
static uint64_t last_byte(const struct elf_index *i, const char *function)
{
	struct elf_symbol s;

	assert_int_equal(elf_index_symbol(i, address_of(i, function), &s), 0);
	return s.size - 1;
}

static size_t count_rule(const struct elf_index *i, const char *function, uint16_t rule)
{
	uint64_t address = address_of(i, function), n = 0;
	struct elf_tables t;

	elf_index_tables(i, &t);
	for (uint64_t k = 0; k <= last_byte(i, function); k++)
		n += rule_at(&t, address + k) == rule;
	return n;
}

static void check_special(const struct elf_index *i, bool cgo)
{
	assert_rule(i, "runtime.goexit", 1, PF_RULE_ROOT);
	assert_rule(i, "runtime.mstart", 0, PF_RULE_ROOT);
	assert_rule(i, "runtime.rt0_go", 0, PF_RULE_ROOT);
	assert_rule(i, "runtime.mcall", last_byte(i, "runtime.mcall"), PF_RULE_ROOT);
	assert_rule(i, "runtime.morestack", last_byte(i, "runtime.morestack"), PF_RULE_GOROUTINE);
	assert_rule(i, "runtime.execute", last_byte(i, "runtime.execute"), PF_RULE_ROOT);
	assert_rule(i, "runtime.clone", last_byte(i, "runtime.clone"), PF_RULE_ROOT);
	if (address_of(i, "runtime.sigreturn"))
		assert_rule(i, "runtime.sigreturn", 0, PF_RULE_SIGNAL);
	else
		assert_rule(i, "runtime.sigreturn__sigaction", 0, PF_RULE_SIGNAL);
	assert_true(count_rule(i, "runtime.systemstack", PF_RULE_FP) > 20);
	assert_true(count_rule(i, "runtime.asmcgocall", PF_RULE_FP) > 20);
	if (cgo)
		assert_true(count_rule(i, "runtime.cgocallback", PF_RULE_FP) > 20);
	assert_int_equal(count_rule(i, "runtime.sigtramp", PF_RULE_ROOT), 0);
}

/*
 * Checks that the caller's rbp is in rbp up to the instruction that stores it, and then below the
 * return address.
 */
static void check_frame_pointer(const struct elf_index *i, bool pushed)
{
	uint64_t address = address_of(i, "main.outer"), previous = 0;
	const struct pf_rule *before = NULL;
	struct elf_tables t;

	elf_index_tables(i, &t);
	for (uint64_t k = 0; k <= last_byte(i, "main.outer"); k++) {
		const struct pf_rule *r = &t.rules[rule_at(&t, address + k)];

		assert_true(r < t.rules + t.n_rules);
		if (before && before->fp == PF_FP_SAME && r->fp == PF_FP_CFA) {
			assert_int_equal(r->fp_offset, -16);
			assert_int_equal(before->cfa_offset, pushed ? 8 : r->cfa_offset);
			if (pushed)
				assert_int_equal(r->cfa_offset, 16);
			previous++;
		}
		if (r->cfa_offset == 8)
			assert_int_equal(r->fp, PF_FP_SAME);
		before = r;
	}
	assert_in_range(previous, 1, 1);
	address = address_of(i, "main.leaf");
	for (uint64_t k = 0; k <= last_byte(i, "main.leaf"); k++)
		assert_int_equal(t.rules[rule_at(&t, address + k)].cfa_offset, 8);
}

/* ---- the tests ---- */

struct release {
	const char *environment;
	bool lines, pushed; /* start lines since 1.20, push %rbp since 1.21 */
};

static void check_all(const struct release *r, const char *name, const char *flags, bool cgo)
{
	_cleanup_free_ char *path = build(name, r->environment, flags, cgo);
	struct elf_index *i = read_index(path);

	print_message("%s %s\n", name, flags);
	assert_int_equal(elf_index_flags(i) &
				 (ELF_INDEX_GO | ELF_INDEX_UNWIND_CUT | ELF_INDEX_DWARF_CUT),
			 ELF_INDEX_GO);
	check_names(i, path);
	check_inlines(i, r->lines);
	check_rows(i, path);
	check_special(i, cgo);
	check_frame_pointer(i, r->pushed);
	elf_index_unref(i);
}

/* A stripped program has the same functions, inlined functions and rows. */
static void check_stripped(const struct release *r, const char *name, const char *flags)
{
	_cleanup_free_ char *all = xasprintf("%s -ldflags='-s -w'", flags);
	_cleanup_free_ char *stripped_name = xasprintf("%s-s", name);
	_cleanup_free_ char *path = build(stripped_name, r->environment, all, false);
	_cleanup_free_ char *whole_path = xasprintf("%s/%s.out", dir, name);
	struct elf_index *i = read_index(path), *whole = read_index(whole_path);
	const struct index_header *h = elf_index_data(i), *w = elf_index_data(whole);

	assert_true(h->flags & ELF_INDEX_GO);
	assert_in_range(h->n[INDEX_symbols], w->n[INDEX_symbols] - 2, w->n[INDEX_symbols]);
	assert_int_equal(h->n[INDEX_inline_ranges], w->n[INDEX_inline_ranges]);
	assert_int_equal(h->n[INDEX_inline_nodes], w->n[INDEX_inline_nodes]);
	assert_int_equal(h->n[INDEX_rows], w->n[INDEX_rows]);
	check_inlines(i, r->lines);
	check_special(i, false);
	check_frame_pointer(i, r->pushed);
	elf_index_unref(i);
	elf_index_unref(whole);
}

static const struct release newest = {"", true, true};

static void test_plain(void **state)
{
	(void)state;
	SKIP_WITHOUT_GO();
	check_all(&newest, "plain", "", false);
	check_stripped(&newest, "plain", "");
}

static void test_pie(void **state)
{
	(void)state;
	SKIP_WITHOUT_GO();
	check_all(&newest, "pie", "-buildmode=pie", false);
	check_stripped(&newest, "pie", "-buildmode=pie");
}

static void test_cgo(void **state)
{
	(void)state;
	SKIP_WITHOUT_GO();
	check_all(&newest, "cgo", "", true);
	check_all(&newest, "cgo-pie", "-buildmode=pie", true);
}

/*
 * Without the names of sections, and then without section headers, the table is found by its own
 * header.
 */
static void test_no_sections(void **state)
{
	_cleanup_free_ char *path = NULL, *renamed = NULL, *bytes = NULL;
	struct elf_index *whole, *i;
	size_t n;

	(void)state;
	SKIP_WITHOUT_GO();
	path = build("sections", "", "-ldflags='-s -w'", false);
	renamed = xasprintf("%s.renamed", path);
	pclose(open_command("objcopy --rename-section .gopclntab=.rodata.x %1$s %1$s.renamed",
			    path));
	whole = read_index(path);
	i = read_index(renamed);
	assert_int_equal(elf_index_bytes(i), elf_index_bytes(whole));
	elf_index_unref(i);

	assert_int_equal(file_read(AT_FDCWD, path, 64 << 20, &bytes, &n), 0);
	((Elf64_Ehdr *)bytes)->e_shoff = 0;
	((Elf64_Ehdr *)bytes)->e_shnum = 0;
	((Elf64_Ehdr *)bytes)->e_shstrndx = 0;
	assert_int_equal(file_write_atomic(renamed, bytes, n, 0755), 0);
	i = read_index(renamed);
	assert_int_equal(elf_index_bytes(i), elf_index_bytes(whole));
	check_inlines(i, true);
	elf_index_unref(i);
	elf_index_unref(whole);
}

/* A C program is not taken for a Go program, whatever bytes it has. */
static void test_not_go(void **state)
{
	struct elf_index *i = read_index("/proc/self/exe");

	(void)state;
	assert_false(elf_index_flags(i) & ELF_INDEX_GO);
	elf_index_unref(i);
}

static void test_releases(void **state)
{
	static const struct release releases[] = {
		{"GOTOOLCHAIN=go1.16.15", false, false}, {"GOTOOLCHAIN=go1.17.13", false, false},
		{"GOTOOLCHAIN=go1.18.10", false, false}, {"GOTOOLCHAIN=go1.20.14", true, false},
		{"GOTOOLCHAIN=go1.22.0", true, true},	 {"GOTOOLCHAIN=go1.24.0", true, true},
		{"GOTOOLCHAIN=go1.27.0", true, true},
	};

	(void)state;
	SKIP_WITHOUT_GO();
	if (!getenv("LONG")) {
		print_message("skipped: LONG=1 downloads Go toolchains\n");
		skip();
	}
	for (size_t k = 0; k < ARRAY_SIZE(releases); k++) {
		const char *name = strchr(releases[k].environment, '=') + 1;
		_cleanup_free_ char *pie = xasprintf("%s-pie", name);
		_cleanup_free_ char *cgo = xasprintf("%s-cgo", name);

		check_all(&releases[k], name, "", false);
		check_stripped(&releases[k], name, "");
		check_all(&releases[k], pie, "-buildmode=pie", false);
		check_all(&releases[k], cgo, "-buildmode=pie", true);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain),  cmocka_unit_test(test_pie),
		cmocka_unit_test(test_cgo),    cmocka_unit_test(test_no_sections),
		cmocka_unit_test(test_not_go), cmocka_unit_test(test_releases),
	};

	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
