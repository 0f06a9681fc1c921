/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: makes a file of each kind that the parse child reads, of any size, and a blow (a
 * signal, or a truncated file) that hits the child in the middle of the file: after half of the CPU
 * time that the whole file takes. Include cmocka.h first.
 */
#pragma once

#include "lib/base/testdir.h"
#include "lib/base/testprogram.h"
#include "node/parse/parse.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define _test_kind_ static __attribute__((unused))

struct test_kind {
	const char *name;
	const char *tool;    /* a tool that a machine may lack; NULL: none */
	const char *section; /* prefix of the names of its sections; "": the whole file */
	int copies;	     /* how often a big file has the same object */
	bool debug;	     /* parse_debug reads the file */
};

static const struct test_kind test_kinds[] = {
	{"eh_frame", NULL, ".eh_frame", 500, false},
	{"debug_frame", NULL, ".debug_frame", 500, false},
	{"gopclntab", "go", ".gopclntab", 200, false},
	{"symtab", NULL, ".symtab", 100, false},
	{"gnu_debugdata", "xz", ".gnu_debugdata", 100, false},
	{"notes", NULL, "", 200, false},
	{"dwarf", NULL, ".debug_", 100, true},
	{"dwarf_zstd", NULL, ".debug_", 100, true},
	{"separate", NULL, ".debug_", 100, true},
	{"dwo", NULL, ".debug_", 62, true},
};

/*
 * A script that links one object many times, without public symbols. Its variables: KIND; N, the
 * number of copies. It makes the file main, and debug or dwo if the kind has one.
 */
static const char test_kind_script[] =
	"set -e; PATH=$PATH:/usr/local/go/bin; rm -f main main.xz debug dwo\n"
	"compile() {\n"
	"  o=$1.o; shift; [ -e $o ] || gcc -O1 -fPIC \"$@\" -c kind.c -o $o\n"
	"  gcc -shared -nostdlib -Wl,--build-id $(yes $o | head -n $N) -o main\n"
	"}\n"
	"no_symbols() { objcopy --strip-all --keep-section='.debug_*' main; }\n"
	"bare=-fno-asynchronous-unwind-tables\n"
	"case $KIND in\n"
	"eh_frame) compile eh_frame; strip main;;\n"
	"debug_frame) compile debug_frame -DDEBUG_FRAME\n"
	"  objcopy --strip-all --keep-section=.debug_frame main;;\n"
	"gopclntab) program=go; [ $N != 1 ] || program=gofmt\n"
	"  strip -o main \"$(go env GOROOT)/bin/$program\";;\n"
	"symtab) compile bare $bare;;\n"
	"gnu_debugdata) compile bare $bare; xz -0 -k main; strip main\n"
	"  objcopy --add-section .gnu_debugdata=main.xz main;;\n"
	"dwarf) compile dwarf $bare -g; no_symbols;;\n"
	"dwarf_zstd) compile dwarf $bare -g; no_symbols\n"
	"  objcopy --compress-debug-sections=zstd main;;\n"
	"separate) compile dwarf $bare -g; no_symbols\n"
	"  objcopy --only-keep-debug main debug; strip main;;\n"
	"dwo) compile split $bare -g -gsplit-dwarf; no_symbols; cp split.dwo dwo;;\n"
	"esac\n";

static const char test_kind_source[] =
	"#ifdef DEBUG_FRAME\n__asm__(\".cfi_sections .debug_frame\");\n#endif\n"
	"#define F(n) static inline __attribute__((always_inline)) int in##n(int x) \\\n"
	"{ volatile int y = x; return y * n; } \\\n"
	"static __attribute__((noinline, used)) int f##n(int x) { return in##n(x) + in##n(n); } "
	"\\\n"
	"static __attribute__((noinline, used)) int g##n(int x) { return f##n(f##n(x)) + x; }\n"
	"#define G(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7)\n"
	"#define H(n) G(n##0) G(n##1) G(n##2) G(n##3) G(n##4) G(n##5) G(n##6) G(n##7)\n"
	"H(1) H(2) H(3) H(4)\n";

struct test_files {
	int main_fd, debug_fd, dwo_fd; /* -1: the kind has none */
};

/* Returns the file that this kind is about: the last one that it has. */
_test_kind_ int *test_files_subject(struct test_files *t)
{
	return t->dwo_fd >= 0 ? &t->dwo_fd : t->debug_fd >= 0 ? &t->debug_fd : &t->main_fd;
}

_test_kind_ void test_files_done(struct test_files *t)
{
	closep(&t->main_fd);
	closep(&t->debug_fd);
	closep(&t->dwo_fd);
}

/*
 * Makes a file with n segments of notes, which are all the same 1 MiB, and one segment with a build
 * id.
 */
_test_kind_ void test_notes_make(const char *path, int n)
{
	static const Elf64_Nhdr empty = {0, 0, 1}, id = {4, 2, 3};
	_cleanup_buf_ struct buf file = {0};
	Elf64_Ehdr e = {
		.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
		.e_type = ET_DYN,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_phoff = sizeof(e),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = n + 1,
		.e_ehsize = sizeof(e),
	};
	Elf64_Phdr p = {.p_type = PT_NOTE, .p_align = 4};

	buf_init(&file, 0);
	buf_add(&file, &e, sizeof(e));
	p.p_offset = sizeof(e) + (n + 1) * sizeof(p);
	p.p_filesz = (1 << 20) / sizeof(empty) * sizeof(empty);
	for (int i = 0; i < n; i++)
		buf_add(&file, &p, sizeof(p));
	p.p_offset += p.p_filesz;
	p.p_filesz = sizeof(id) + 8;
	buf_add(&file, &p, sizeof(p));
	while (file.len < p.p_offset)
		buf_add(&file, &empty, sizeof(empty));
	buf_add(&file, &id, sizeof(id));
	buf_add(&file, "GNU\0\xab\xcd\0\0", 8);
	assert_int_equal(file_write_atomic(path, file.data, file.len, 0600), 0);
}

_test_kind_ int test_kind_open(const char *folder, const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", folder, name);

	return open(path, O_RDWR | O_CLOEXEC);
}

_test_kind_ bool test_shell(const char *command)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status == 0;
}

/*
 * Makes a file of the kind. With copies 1, it is the smallest. Skips the test if a tool is missing.
 */
_test_kind_ struct test_files test_kind_make(const struct test_kind *k, const char *folder,
					     int copies)
{
	_cleanup_free_ char *c = xasprintf("%s/kind.c", folder),
			    *path = xasprintf("%s/main", folder);
	_cleanup_free_ char *script = xasprintf("%s/make.sh", folder);
	_cleanup_free_ char *command =
		xasprintf("cd %s && KIND=%s N=%d sh make.sh", folder, k->name, copies);
	_cleanup_free_ char *has =
		xasprintf("PATH=$PATH:/usr/local/go/bin; command -v %s >/dev/null", k->tool);

	if (k->tool && !test_shell(has)) {
		print_message("skipped: no %s on this machine\n", k->tool);
		skip();
	}
	assert_int_equal(file_write_atomic(c, test_kind_source, strlen(test_kind_source), 0600), 0);
	assert_int_equal(
		file_write_atomic(script, test_kind_script, strlen(test_kind_script), 0600), 0);
	assert_true(test_shell(command));
	if (streq(k->name, "notes"))
		test_notes_make(path, copies);
	return (struct test_files){test_kind_open(folder, "main"), test_kind_open(folder, "debug"),
				   test_kind_open(folder, "dwo")};
}

/* ---- the child ---- */

/* Returns the newest parse child of this program, and how many there are; 0: there is none. */
_test_kind_ pid_t test_children(size_t *ret_n)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	pid_t found = 0;
	size_t n = 0;

	while ((e = readdir(d))) {
		_cleanup_free_ char *path = xasprintf("/proc/%s/stat", e->d_name);
		_cleanup_free_ char *text = NULL;
		int pid, parent;
		char state;

		if (file_read(AT_FDCWD, path, 4096, &text, NULL) == 0 &&
		    sscanf(text, "%d (podflame-parse) %c %d", &pid, &state, &parent) == 3 &&
		    parent == getpid() && state != 'Z') {
			found = MAX(found, pid);
			n++;
		}
	}
	closedir(d);
	*ret_n = n;
	return found;
}

/*
 * Waits until n parse children of this program wait for a file, each parser one. Returns the newest
 * one, which the parser that was used last will ask next.
 */
_test_kind_ pid_t test_child_waits(size_t n)
{
	uint64_t deadline = now_mono_ns() + 10 * NSEC_PER_SEC;
	pid_t pid;
	size_t n_now;

	while ((pid = test_children(&n_now)) == 0 || n_now != n)
		assert_true(now_mono_ns() < deadline);
	return pid;
}

/* Returns the CPU time of all children that have ended. */
_test_kind_ uint64_t test_ended_cpu_ns(void)
{
	struct rusage u;

	getrusage(RUSAGE_CHILDREN, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * NSEC_PER_SEC +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

enum test_blow { TEST_KILL, TEST_STOP, TEST_TRUNCATE };

/*
 * Starts a process that hits the child (or the file fd) once the child has used ns more of CPU
 * time.
 */
_test_kind_ pid_t test_strike(pid_t child, uint64_t ns, enum test_blow blow, int fd)
{
	uint64_t start = program_cpu_ns(child);
	const struct timespec nap = {.tv_nsec = 100000};
	pid_t striker = fork();

	assert_true(striker >= 0);
	if (striker > 0)
		return striker;
	(void)!nice(-10);
	while (program_cpu_ns(child) < start + ns)
		nanosleep(&nap, NULL);
	if (blow == TEST_TRUNCATE)
		(void)!ftruncate(fd, 0);
	else
		kill(child, blow == TEST_KILL ? SIGKILL : SIGSTOP);
	_exit(0);
}

_test_kind_ void test_strike_done(pid_t striker)
{
	kill(striker, SIGKILL);
	waitpid(striker, NULL, 0);
}
