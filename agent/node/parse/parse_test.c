/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the parser as its callers see it: real files, damaged files, a child that dies or hangs.
 * The test program is its own child (PARSE_CHILD_VERB).
 */
#include "lib/base/testchild.h"
#include "lib/base/testfolder.h"
#include "node/parse/format.h"
#include "node/parse/parse.h"
#include "node/parse/build.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct parser *new_parser(uint64_t timeout_ns)
{
	struct parser_config c = {.timeout_ns = timeout_ns};
	struct parser *p;

	assert_int_equal(parse_new(&c, &p), 0);
	return p;
}

static int parse_path(struct parser *p, const char *path, struct elf_index **ret)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	return parse_elf(p, fd, ret);
}

static const char *in_dir(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void compile(const char *source, const char *name, const char *flags)
{
	_cleanup_free_ char *c = xasprintf("%s/%s.S.c", dir, name);
	_cleanup_free_ char *command =
		xasprintf("gcc -O1 %s -o %s/%s -x c %s", flags, dir, name, c);

	assert_int_equal(file_write_atomic(c, source, strlen(source), 0600), 0);
	assert_int_equal(system(command), 0);
}

/* Returns the ELF address that `nm` prints for a name. */
static uint64_t nm_address(const char *path, const char *name)
{
	_cleanup_free_ char *command =
		xasprintf("nm %s | awk '$3 == \"%s\" {print $1}'", path, name);
	FILE *f = popen(command, "r");
	unsigned long long address = 0;

	assert_int_equal(fscanf(f, "%llx", &address), 1);
	pclose(f);
	return address;
}

static void assert_symbol(struct elf_index *i, uint64_t address, const char *name)
{
	struct elf_symbol s;

	assert_int_equal(elf_index_symbol(i, address, &s), 0);
	assert_string_equal(s.name, name);
}

static const char two_functions[] =
	"__attribute__((noinline)) int alpha(int x) { volatile int y = x; return y * 3; }\n"
	"static __attribute__((noinline)) int beta(int x) { volatile int y = x; return y + 1; }\n"
	"int main(int c, char **v) { (void)v; return alpha(c) + beta(c); }\n";

static void names_functions_of_kind(const char *name, const char *flags)
{
	struct parser *p = new_parser(0);
	struct elf_index *i;
	struct elf_symbol s;
	uint64_t alpha;

	compile(two_functions, name, flags);
	alpha = nm_address(in_dir(name), "alpha");
	assert_int_equal(parse_path(p, in_dir(name), &i), 0);
	assert_symbol(i, alpha, "alpha");
	assert_symbol(i, alpha + 3, "alpha");
	assert_symbol(i, nm_address(in_dir(name), "beta"), "beta");
	assert_int_equal(elf_index_symbol(i, alpha, &s), 0);
	assert_int_equal(s.address, alpha);
	/* The byte after a function of known size belongs to another function, or to none. */
	if (elf_index_symbol(i, alpha + s.size, &s) == 0)
		assert_string_not_equal(s.name, "alpha");
	assert_int_equal(elf_index_symbol(i, 0, &s), -ENOENT);
	assert_int_equal(elf_index_symbol(i, UINT64_MAX, &s), -ENOENT);
	assert_int_equal(strlen(elf_index_build_id(i)), 40);
	elf_index_unref(i);
	parse_free(p);
}

static void names_functions_of_pie_and_fixed(void **state)
{
	(void)state;
	names_functions_of_kind("pie", "-pie -fPIE -Wl,--build-id=sha1");
	names_functions_of_kind("fixed", "-no-pie -fno-pie -Wl,--build-id=sha1");
}

static void file_offsets_become_addresses(void **state)
{
	struct parser *p = new_parser(0);
	struct elf_index *i;
	uint64_t main_address, address;

	(void)state;
	compile(two_functions, "fixed2", "-no-pie -fno-pie");
	assert_int_equal(parse_path(p, in_dir("fixed2"), &i), 0);
	main_address = nm_address(in_dir("fixed2"), "main");
	assert_true(main_address >= 0x400000);
	/*
	 * In a small program with fixed addresses, ld places code at file offset address -
	 * 0x400000.
	 */
	assert_int_equal(elf_index_address(i, main_address - 0x400000, &address), 0);
	assert_int_equal(address, main_address);
	assert_int_equal(elf_index_address(i, 1ULL << 40, &address), -ENOENT);
	elf_index_unref(i);
	parse_free(p);
}

static void stripped_file_guesses_nothing(void **state)
{
	struct parser *p = new_parser(0);
	struct elf_index *i;
	struct elf_symbol s;
	uint64_t alpha;

	(void)state;
	compile(two_functions, "stripped", "");
	alpha = nm_address(in_dir("stripped"), "alpha");
	{
		_cleanup_free_ char *command = xasprintf("strip %s", in_dir("stripped"));

		assert_int_equal(system(command), 0);
	}
	assert_int_equal(parse_path(p, in_dir("stripped"), &i), 0);
	assert_int_equal(elf_index_symbol(i, alpha, &s), -ENOENT);
	elf_index_unref(i);
	parse_free(p);
}

static void assembly_without_size_ends_at_its_neighbour(void **state)
{
	static const char source[] =
		"__asm__(\".text\\n.globl bare\\nbare: nop\\nnop\\nnop\\nnop\\n\"\n"
		"\".globl next\\n.type next,@function\\nnext: ret\\n.size next,1\\n\");\n"
		"int main(void) { return 0; }\n";
	struct parser *p = new_parser(0);
	struct elf_index *i;
	uint64_t bare;

	(void)state;
	compile(source, "bare", "");
	bare = nm_address(in_dir("bare"), "bare");
	assert_int_equal(parse_path(p, in_dir("bare"), &i), 0);
	assert_symbol(i, bare + 3, "bare");
	assert_symbol(i, bare + 4, "next");
	elf_index_unref(i);
	parse_free(p);
}

/* A constant of hand-written assembly that happens to look like an address. */
static void a_number_is_no_function(void **state)
{
	static const char source[] =
		"__asm__(\".text\\n.globl _start\\n_start: .fill 16,1,0x90\\n\"\n"
		"\".globl number\\n.set number, 0x401004\\n\");\n";
	struct parser *p = new_parser(0);
	struct elf_index *i;

	(void)state;
	compile(source, "number", "-nostdlib -static -no-pie -Wl,-Ttext=0x401000");
	assert_int_equal(nm_address(in_dir("number"), "number"), 0x401004);
	assert_int_equal(parse_path(p, in_dir("number"), &i), 0);
	assert_symbol(i, 0x401008, "_start");
	elf_index_unref(i);
	parse_free(p);
}

/* ---- marks ---- */

static const char marked[] =
	"int plain = 7;\n"
	"static __attribute__((used)) int hidden_one = 1, hidden_two = 2;\n"
	"__thread long mine = 3;\n"
	"const char pattern[] = \"\\\"$Version: Thing \";\n" /* looks like a pattern */
	"const char text[] = \"$Version: Thing 5.4.6 $ and more\";\n"
	"char written[] = \"$Version: Thing 9\";\n"
	"extern int missing __attribute__((weak));\n"
	"__attribute__((noinline)) int run(int x) { volatile int y = x; return y; }\n"
	"int main(int c, char **v) { (void)v; return run(c) + plain + (int)mine + !!&missing; }\n";

static const char *const marks[] = {
	"plain",   "hidden_*e",		 "h*_two", "h*x_two", "mine", "run",
	"missing", "\"$Version: Thing ", "printf", NULL,
};

static struct elf_index *index_of_marked(const char *name, const char *flags, const char *then)
{
	struct parser_config c = {.marks = marks};
	struct parser *p;
	struct elf_index *i;

	compile(marked, name, flags);
	if (then) {
		_cleanup_free_ char *command = xasprintf("cd %s && %s", dir, then);

		assert_int_equal(system(command), 0);
	}
	assert_int_equal(parse_new(&c, &p), 0);
	assert_int_equal(parse_path(p, in_dir(name), &i), 0);
	parse_free(p);
	return i;
}

static struct elf_mark find_mark(const struct elf_index *i, const char *name)
{
	struct elf_mark m;

	assert_int_equal(elf_index_find_mark(i, name, &m), 0);
	return m;
}

static void marks_are_found_where_they_are(void **state)
{
	struct elf_index *i = index_of_marked("marked", "", NULL);
	struct elf_mark m;

	(void)state;
	assert_int_equal(find_mark(i, "plain").address, nm_address(in_dir("marked"), "plain"));
	assert_int_equal(find_mark(i, "plain").size, 4);
	assert_int_equal(find_mark(i, "run").address, nm_address(in_dir("marked"), "run"));
	assert_int_equal(find_mark(i, "hidden_one").address,
			 nm_address(in_dir("marked"), "hidden_one"));
	assert_false(find_mark(i, "plain").thread_local);
	m = find_mark(i, "mine");
	assert_true(m.thread_local);
	/* thread-local: the address is the offset in the TLS image */
	assert_int_equal(m.address, 0);
	assert_int_equal(m.size, sizeof(long));
	m = find_mark(i, "\"$Version: Thing ");
	assert_int_equal(m.address, nm_address(in_dir("marked"), "text"));
	assert_int_equal(m.size, strlen("$Version: Thing 5.4.6 $ and more"));
	assert_int_equal(elf_index_find_mark(i, "missing", &m), -ENOENT);
	assert_int_equal(elf_index_find_mark(i, "printf", &m), -ENOENT);
	/* no mark is in the index twice, and none is of data that may change */
	assert_int_equal(elf_index_n_marks(i), 6);
	assert_false(elf_index_flags(i) & ELF_INDEX_MARKS_CUT);
	elf_index_unref(i);
}

static void stripped_files_have_marks(void **state)
{
	struct elf_index *i = index_of_marked("bare_marked", "-shared -fPIC", "strip bare_marked");
	struct elf_mark m;

	(void)state;
	assert_true(find_mark(i, "run").address != 0);
	assert_true(find_mark(i, "mine").thread_local);
	assert_int_equal(elf_index_find_mark(i, "hidden_one", &m), -ENOENT);
	assert_int_equal(find_mark(i, "\"$Version: Thing ").size, 32);
	elf_index_unref(i);
	i = index_of_marked("headless", "-Wl,-z,separate-code",
			    "strip headless && "
			    "printf '\\0\\0\\0\\0\\0\\0\\0\\0' | "
			    "dd of=headless bs=1 seek=40 conv=notrunc 2>/dev/null && "
			    "printf '\\0\\0\\0\\0' | "
			    "dd of=headless bs=1 seek=60 conv=notrunc 2>/dev/null");
	assert_int_equal(elf_index_n_symbols(i), 0);
	assert_int_equal(find_mark(i, "\"$Version: Thing ").size, 32);
	elf_index_unref(i);
}

static void long_build_ids_are_told(void **state)
{
	struct parser *p = new_parser(0);

	(void)state;
	for (int bytes = INDEX_BUILD_ID_MAX; bytes <= INDEX_BUILD_ID_MAX + 1; bytes++) {
		_cleanup_free_ char *flags = xasprintf("-Wl,--build-id=0x%0*x", 2 * bytes, 0xab);
		bool over = bytes > INDEX_BUILD_ID_MAX;
		struct elf_index *i;

		compile("int main(void) { return 0; }\n", "long_id", flags);
		assert_int_equal(parse_path(p, in_dir("long_id"), &i), 0);
		assert_int_equal(strlen(elf_index_build_id(i)), over ? 0 : 2 * bytes);
		assert_int_equal(!!(elf_index_flags(i) & ELF_INDEX_BUILD_ID_CUT), over);
		elf_index_unref(i);
	}
	parse_free(p);
}

static void marks_of_a_file_have_a_limit(void **state)
{
	static const char source[] = "#define V(n) int hidden_##n##e;\n"
				     "#define W(n) V(n##0) V(n##1) V(n##2) V(n##3) V(n##4)\n"
				     "#define X(n) W(n##0) W(n##1) W(n##2) W(n##3) W(n##4)\n"
				     "X(1) X(2) X(3) int plain; int main(void) { return 0; }\n";
	struct parser_config c = {.marks = marks};
	struct parser *p;
	struct elf_index *i;

	(void)state;
	compile(source, "many_marks", "");
	assert_int_equal(parse_new(&c, &p), 0);
	assert_int_equal(parse_path(p, in_dir("many_marks"), &i), 0);
	assert_int_equal(elf_index_n_marks(i), PARSE_MARK_HITS + 1);
	assert_true(elf_index_flags(i) & ELF_INDEX_MARKS_CUT);
	find_mark(i, "plain");
	elf_index_unref(i);
	parse_free(p);
	c.marks = (const char *const[]){"", NULL};
	assert_int_equal(parse_new(&c, &p), -EINVAL);
}

static struct elf_index *index_of_versions(const char *pattern, const char *flags)
{
	static const char source[] = "__asm__(\".symver first,f@V_1\\n.symver second,f@@V_2\");\n"
				     "int first(void) { return 1; }\n"
				     "int second(void) { return 2; }\n";
	static const char versions[] = "V_1 { global: f; local: *; };\nV_2 { global: f; } V_1;\n";
	_cleanup_free_ char *script = xasprintf("%s/versions", dir),
			    *all = xasprintf("-shared -fPIC -Wl,--version-script=%s %s", script,
					     flags);
	struct parser_config c = {.marks = (const char *const[]){pattern, NULL}};
	struct parser *p;
	struct elf_index *i;

	assert_int_equal(file_write_atomic(script, versions, strlen(versions), 0600), 0);
	compile(source, "versions.so", all);
	assert_int_equal(parse_new(&c, &p), 0);
	assert_int_equal(parse_path(p, in_dir("versions.so"), &i), 0);
	parse_free(p);
	return i;
}

/* A pattern with '@' matches only the version that a program gets if it is linked now. */
static void old_versions_can_be_left_out(void **state)
{
	struct elf_index *newest, *all = index_of_versions("f", "-s");

	(void)state;
	assert_int_equal(elf_index_n_marks(all), 2);
	newest = index_of_versions("@f", "-s");
	assert_int_equal(elf_index_n_marks(newest), 1);
	/* the functions lie in the order of the source */
	assert_int_equal(elf_index_mark(newest, 0).address, elf_index_mark(all, 1).address);
	assert_string_equal(elf_index_mark(newest, 0).name, "f");
	elf_index_unref(newest);
	newest = index_of_versions("@f", ""); /* .symtab has the versions in the names */
	assert_int_equal(elf_index_n_marks(newest), 1);
	assert_int_equal(elf_index_mark(newest, 0).address, elf_index_mark(all, 1).address);
	elf_index_unref(newest);
	elf_index_unref(all);
}

/* A pattern with '?' matches only imported symbols; one without '?', only the file's own. */
static void imports_can_be_asked_for(void **state)
{
	static const char source[] = "int theirs(void);\n"
				     "int own(void) { return theirs() + 1; }\n";
	struct parser_config c = {
		.marks = (const char *const[]){"?theirs", "?own", "theirs", "own", NULL}};
	struct elf_index *i;
	struct parser *p;

	(void)state;
	for (unsigned stripped = 0; stripped < 2; stripped++) {
		compile(source, "imports.so", stripped ? "-shared -fPIC -s" : "-shared -fPIC");
		assert_int_equal(parse_new(&c, &p), 0);
		assert_int_equal(parse_path(p, in_dir("imports.so"), &i), 0);
		assert_int_equal(elf_index_n_marks(i), 2);
		assert_true(find_mark(i, "own").address > 0);
		assert_int_equal(find_mark(i, "theirs").address, 0);
		elf_index_unref(i);
		parse_free(p);
	}
}

/* ---- how symbols are chosen and made disjoint: known answers ---- */

static void assert_parts(struct symbol *symbols, size_t n, const char *expected)
{
	struct built_symbols s = {xmemdup(symbols, n * sizeof(*symbols)), n, n, false};
	struct index_symbol *parts = NULL;
	struct buf strings, text;
	size_t n_parts = 0;

	buf_init(&strings, 0);
	buf_init(&text, 0);
	parse_symbols_flatten(&s, &parts, &n_parts, &strings);
	assert_false(s.cut);
	for (size_t i = 0; i < n_parts; i++)
		buf_printf(&text, "%s%llu-%llu:%s", i ? " " : "",
			   (unsigned long long)parts[i].address,
			   (unsigned long long)parts[i].address + parts[i].size,
			   strings.data + parts[i].name);
	assert_string_equal(text.data ? text.data : "", expected);
	buf_done(&strings);
	buf_done(&text);
	free(parts);
	free(s.items);
}

static void symbols_become_disjoint_parts(void **state)
{
	struct symbol nested[] = {{10, 100, 200, "outer", 0, 0, 0, 0, 0, 0},
				  {20, 30, 200, "inner", 0, 0, 0, 0, 0, 0}};
	struct symbol crossing[] = {{10, 50, 200, "a", 0, 0, 0, 0, 0, 0},
				    {40, 80, 200, "b", 0, 0, 0, 0, 0, 0}};
	struct symbol aliases[] = {{10, 20, 200, "__libc_write", 0, 0, 0, 0, 0, 0},
				   {10, 20, 200, "write@@GLIBC_2.2.5", 0, 0, 0, 1, 0, 0},
				   {10, 20, 200, "local", 0, 0, 0, 0, 1, 0}};
	struct symbol sizeless[] = {{10, 10, 60, "bare", 0, 0, 0, 0, 0, 0},
				    {30, 40, 60, "sized", 0, 0, 0, 0, 0, 0},
				    {35, 35, 60, "label_inside", 0, 0, 0, 0, 0, 0},
				    {50, 50, 60, "last", 0, 0, 0, 0, 0, 0}};

	(void)state;
	assert_parts(NULL, 0, "");
	assert_parts(nested, 2, "10-20:outer 20-30:inner 30-100:outer");
	assert_parts(crossing, 2, "10-40:a 40-80:b");
	assert_parts(aliases, 3, "10-20:write");
	assert_parts(sizeless, 4, "10-30:bare 30-40:sized 50-60:last");
}

/* ---- hostile files ---- */

static int write_file(const char *name, const void *data, size_t n)
{
	int fd = open(in_dir(name), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, data, n), 0);
	return fd;
}

static void truncated_files_cost_no_child(void **state)
{
	struct parser *p = new_parser(0);
	_cleanup_free_ char *data = NULL;
	size_t n, step;

	(void)state;
	compile(two_functions, "whole", "");
	assert_int_equal(file_read(AT_FDCWD, in_dir("whole"), 1 << 20, &data, &n), 0);
	step = 512;
	for (size_t cut = 0; cut < n; cut += step) {
		_cleanup_close_ int fd = write_file("cut", data, cut);
		struct elf_index *i;
		int r = parse_elf(p, fd, &i);

		if (r == 0)
			elf_index_unref(i);
		else
			assert_true(r == -ENOEXEC || r == -EBADMSG || r == -E2BIG);
	}
	assert_int_equal(parse_restarts(p), 0);
	parse_free(p);
}

/*
 * Sets each byte of the headers to 0xff, one after the other, so offsets, counts and sizes become
 * wrong.
 */
static void wild_headers_are_survived(void **state)
{
	struct parser *p = new_parser(0);
	_cleanup_free_ char *data = NULL;
	struct elf_index *i;
	size_t n;

	(void)state;
	compile(two_functions, "wild", "");
	assert_int_equal(file_read(AT_FDCWD, in_dir("wild"), 1 << 20, &data, &n), 0);
	for (size_t at = 0; at < 64 + 4 * 56; at++) {
		_cleanup_close_ int fd = -1;
		char saved = data[at];

		data[at] = '\xff';
		fd = write_file("wild2", data, n);
		data[at] = saved;
		if (parse_elf(p, fd, &i) == 0)
			elf_index_unref(i);
	}
	assert_int_equal(parse_path(p, in_dir("wild"), &i), 0);
	elf_index_unref(i);
	parse_free(p);
}

static void other_files_get_a_named_error(void **state)
{
	struct parser *p = new_parser(0);
	_cleanup_close_ int text = write_file("text", "#!/bin/sh\n", 10);
	_cleanup_close_ int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct parser_config small = {.max_index_bytes = 200};
	struct counter *too_big =
		counter("podflame_parse_failures_total", "reason", "index_too_big");
	uint64_t before = counter_get(too_big);
	struct parser *tiny;
	struct elf_index *i;

	(void)state;
	assert_int_equal(parse_elf(p, text, &i), -ENOEXEC);
	assert_string_equal(parse_reason(p), "not_elf");
	assert_int_equal(parse_elf(p, null, &i), -EIO);
	assert_string_equal(parse_reason(p), "io");
	compile("int f(void) { return 1; }", "object", "-c");
	assert_int_equal(parse_path(p, in_dir("object"), &i), -ENOEXEC);
	assert_string_equal(parse_reason(p), "not_executable_or_library");
	assert_int_equal(parse_elf(p, -1, &i), -EBADF);
	assert_int_equal(parse_restarts(p), 0);
	parse_free(p);

	assert_int_equal(parse_new(&small, &tiny), 0);
	assert_int_equal(parse_path(tiny, "/proc/self/exe", &i), -E2BIG);
	assert_string_equal(parse_reason(tiny), "index_too_big");
	assert_int_equal(counter_get(too_big) - before, 1);
	parse_free(tiny);
}

/* ---- a child that hangs or dies ---- */

static pid_t child_pid(void)
{
	return testchild_pid("podflame-parse");
}

static void assert_works(struct parser *p)
{
	struct elf_index *i;

	assert_int_equal(parse_path(p, "/proc/self/exe", &i), 0);
	assert_true(elf_index_bytes(i) > 0);
	elf_index_unref(i);
}

static void a_hanging_child_costs_one_file(void **state)
{
	struct parser *p = new_parser(300 * NSEC_PER_MSEC);
	struct elf_index *i;
	pid_t pid = child_pid();

	(void)state;
	assert_true(pid > 0);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(parse_path(p, "/proc/self/exe", &i), -ETIMEDOUT);
	assert_string_equal(parse_reason(p), "timeout");
	assert_int_equal(parse_restarts(p), 1);
	parse_free(p);
	p = new_parser(0);
	assert_works(p);
	parse_free(p);
}

static void a_child_that_does_not_end_is_not_waited_for(void **state)
{
	struct counter *stuck = counter("podflame_parse_children_stuck_total", NULL, NULL);
	struct parser *p = new_parser(300 * NSEC_PER_MSEC);
	uint64_t before = counter_get(stuck);
	struct elf_index *i;
	pid_t pid = child_pid(), tracer = testchild_hold_at_exit(pid);

	(void)state;
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(parse_path(p, "/proc/self/exe", &i), -ETIMEDOUT);
	assert_int_equal(counter_get(stuck), before + 1);
	parse_free(p);
	p = new_parser(0);
	assert_works(p);
	parse_free(p);
	kill(tracer, SIGKILL);
	assert_int_equal(waitpid(tracer, NULL, 0), tracer);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/*
 * Returns whether the parser's socket has a request that the child has not read. This program has
 * only one such socket.
 */
static bool request_waits(void)
{
	for (int fd = 3; fd < 64; fd++) {
		int type, unread;
		socklen_t n = sizeof(type);

		if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_SEQPACKET)
			return ioctl(fd, SIOCOUTQ, &unread) == 0 && unread > 0;
	}
	return false;
}

/* Kills the stopped child once its socket has a request in it. */
static void *kill_when_asked(void *arg)
{
	uint64_t deadline = now_mono_ns() + 5 * NSEC_PER_SEC;

	while (!request_waits() && now_mono_ns() < deadline)
		sched_yield();
	kill(*(pid_t *)arg, SIGKILL);
	return NULL;
}

static void a_child_killed_at_work_costs_one_file(void **state)
{
	struct parser *p = new_parser(0);
	pid_t pid = child_pid();
	struct elf_index *i;
	pthread_t killer;

	(void)state;
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(pthread_create(&killer, NULL, kill_when_asked, &pid), 0);
	assert_int_equal(parse_path(p, "/proc/self/exe", &i), -EPIPE);
	pthread_join(killer, NULL);
	assert_string_equal(parse_reason(p), "child_died");
	assert_int_equal(parse_restarts(p), 1);
	assert_works(p);
	parse_free(p);
}

static void a_child_killed_at_rest_costs_nothing(void **state)
{
	struct parser *p = new_parser(0);
	pid_t pid = child_pid();
	uint64_t deadline = now_mono_ns() + 5 * NSEC_PER_SEC;

	(void)state;
	assert_int_equal(kill(pid, SIGKILL), 0);
	while (child_pid() && now_mono_ns() < deadline) {
		_cleanup_free_ char *path = xasprintf("/proc/%d/stat", pid);
		_cleanup_free_ char *text = NULL;

		if (file_read(AT_FDCWD, path, 4096, &text, NULL) < 0 || strstr(text, ") Z "))
			break;
	}
	assert_works(p);
	assert_int_equal(parse_restarts(p), 1);
	parse_free(p);
}

/* A file that takes over its child cannot change what is known of the next file. */
static void each_file_has_a_child_of_its_own(void **state)
{
	struct parser *p = new_parser(0);
	pid_t last = 0;

	(void)state;
	for (int i = 0; i < 3; i++) {
		uint64_t deadline = now_mono_ns() + 10 * NSEC_PER_SEC;
		pid_t pid;

		while (!(pid = child_pid())) /* it was started after the last file */
			assert_true(now_mono_ns() < deadline);
		assert_int_not_equal(pid, last);
		assert_works(p);
		assert_int_equal(kill(pid, 0), -1);
		last = pid;
	}
	assert_int_equal(parse_restarts(p), 0);
	parse_free(p);
}

static void a_program_that_is_no_child_is_refused(void **state)
{
	struct parser_config c = {.self_exe = "/nonexistent"};
	struct parser *p;

	(void)state;
	assert_int_equal(parse_new(&c, &p), -ENOENT);
	c.self_exe = "/bin/true";
	assert_int_equal(parse_new(&c, &p), -EPIPE);
}

static void status_field(pid_t pid, const char *field, char *out, size_t n)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/status", pid);
	_cleanup_free_ char *text = NULL;
	const char *at;

	assert_int_equal(file_read(AT_FDCWD, path, 1 << 16, &text, NULL), 0);
	at = strstr(text, field);
	assert_non_null(at);
	at += strlen(field);
	snprintf(out, n, "%.*s", (int)strcspn(at, "\n"), at);
}

static void the_child_has_given_everything_up(void **state)
{
	struct parser *p = new_parser(0);
	pid_t pid = child_pid();
	char value[64];

	(void)state;
	status_field(pid, "CapEff:\t", value, sizeof(value));
	assert_string_equal(value, "0000000000000000");
	status_field(pid, "CapPrm:\t", value, sizeof(value));
	assert_string_equal(value, "0000000000000000");
	status_field(pid, "NoNewPrivs:\t", value, sizeof(value));
	assert_string_equal(value, "1");
#ifndef __SANITIZE_ADDRESS__
	status_field(pid, "Seccomp:\t", value, sizeof(value));
	assert_string_equal(value, "2");
#endif
	parse_free(p);
}

static void the_child_takes_all_files_of_a_request(void **state)
{
	struct parser *p = new_parser(0);
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), dwo_fds[PARSE_FDS_MAX - 2];
	struct parse_debug_files files = {fd, fd, dwo_fds, ARRAY_SIZE(dwo_fds)};
	struct elf_index *i;

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(dwo_fds); k++)
		dwo_fds[k] = fd;
	assert_int_equal(parse_debug(p, &files, &i), 0);
	assert_int_equal(parse_restarts(p), 0);
	elf_index_unref(i);
	parse_free(p);
	close(fd);
}

#ifndef __SANITIZE_ADDRESS__
/* Two children and the agent share the pod's memory, so a child gets only a part of it. */
static void the_child_takes_a_share_of_the_pods_memory(void **state)
{
	_cleanup_free_ char *path = NULL, *text = NULL;
	struct parser *p;

	(void)state;
	setenv("MEMORY_LIMIT", "536870912", 1);
	p = new_parser(0);
	unsetenv("MEMORY_LIMIT");
	path = xasprintf("/proc/%d/limits", child_pid());
	assert_int_equal(file_read(AT_FDCWD, path, 65536, &text, NULL), 0);
	assert_non_null(strstr(text, "Max data size             134217728            134217728"));
	assert_works(p);
	parse_free(p);
}
#endif

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_functions_of_pie_and_fixed),
		cmocka_unit_test(file_offsets_become_addresses),
		cmocka_unit_test(stripped_file_guesses_nothing),
		cmocka_unit_test(assembly_without_size_ends_at_its_neighbour),
		cmocka_unit_test(a_number_is_no_function),
		cmocka_unit_test(marks_are_found_where_they_are),
		cmocka_unit_test(stripped_files_have_marks),
		cmocka_unit_test(marks_of_a_file_have_a_limit),
		cmocka_unit_test(old_versions_can_be_left_out),
		cmocka_unit_test(imports_can_be_asked_for),
		cmocka_unit_test(long_build_ids_are_told),
		cmocka_unit_test(symbols_become_disjoint_parts),
		cmocka_unit_test(truncated_files_cost_no_child),
		cmocka_unit_test(wild_headers_are_survived),
		cmocka_unit_test(other_files_get_a_named_error),
		cmocka_unit_test(a_hanging_child_costs_one_file),
		cmocka_unit_test(a_child_that_does_not_end_is_not_waited_for),
		cmocka_unit_test(a_child_killed_at_work_costs_one_file),
		cmocka_unit_test(a_child_killed_at_rest_costs_nothing),
		cmocka_unit_test(each_file_has_a_child_of_its_own),
		cmocka_unit_test(a_program_that_is_no_child_is_refused),
		cmocka_unit_test(the_child_has_given_everything_up),
		cmocka_unit_test(the_child_takes_all_files_of_a_request),
#ifndef __SANITIZE_ADDRESS__
		cmocka_unit_test(the_child_takes_a_share_of_the_pods_memory),
#endif
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
