/* SPDX-License-Identifier: Apache-2.0 */
/* Runs podflame doctor --pid for real programs and checks its output. */
#include "cli/cli.h"
#include "lib/base/testfolder.h"
#include "lib/base/testprogram.h"
#include "node/parse/parse.h"

#include <cap-ng.h>
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

struct answer {
	json_t *checks;
	int status;
};

/*
 * What doctor may do: everything; all but load BPF programs, so that the checks of this machine end
 * at once (else the kernel verifies all programs, which takes seconds); nothing.
 */
enum rights { RIGHTS_ALL, RIGHTS_WITHOUT_BPF, RIGHTS_NONE };

static void take_rights(enum rights r)
{
	if (r == RIGHTS_NONE && setuid(65534) < 0)
		_exit(99);
	if (r != RIGHTS_WITHOUT_BPF)
		return;
	capng_get_caps_process();
	if (capng_updatev(CAPNG_DROP, CAPNG_EFFECTIVE | CAPNG_PERMITTED, CAP_BPF, CAP_SYS_ADMIN,
			  -1) ||
	    capng_apply(CAPNG_SELECT_CAPS))
		_exit(99);
}

static struct answer ask_with(pid_t pid, enum rights rights)
{
	_cleanup_free_ char *number = xasprintf("%d", pid), *text = NULL;
	char *argv[] = {(char *)"doctor", (char *)"--json", (char *)"--pid", number, NULL};
	struct answer a = {0};
	FILE *out = tmpfile();
	size_t n;
	pid_t child = fork();

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(fileno(out), 1);
		take_rights(rights);
		exit(cli_cmd_doctor(4, argv));
	}
	assert_int_equal(waitpid(child, &a.status, 0), child);
	assert_true(WIFEXITED(a.status));
	a.status = WEXITSTATUS(a.status);
	n = (size_t)lseek(fileno(out), 0, SEEK_END);
	text = xcalloc(1, n + 1);
	assert_int_equal(pread(fileno(out), text, n, 0), n);
	fclose(out);
	a.checks = json_loads(text, 0, NULL);
	assert_true(json_is_array(a.checks));
	return a;
}

static struct answer ask(pid_t pid)
{
	return ask_with(pid, RIGHTS_WITHOUT_BPF);
}

/* Returns the first check whose name begins or ends with `name`. */
static const json_t *check_of(const struct answer *a, const char *name)
{
	const json_t *c;
	size_t i;

	json_array_foreach (a->checks, i, c) {
		const char *check = json_str_at(c, "check", "");

		if (str_has_prefix(check, name) || str_has_suffix(check, name))
			return c;
	}
	print_message("no check '%s'\n", name);
	fail();
	return NULL;
}

static size_t count_of(const struct answer *a, const char *name)
{
	const json_t *c;
	size_t i, n = 0;

	json_array_foreach (a->checks, i, c)
		n += streq(json_str_at(c, "check", ""), name);
	return n;
}

static void expect(const struct answer *a, const char *name, bool ok, const char *detail)
{
	const json_t *c = check_of(a, name);
	const char *said = json_str_at(c, "detail", "");

	if (json_bool_at(c, "ok", !ok) != ok || !strstr(said, detail)) {
		print_message("%s: %s, not '%s'\n", name, said, detail);
		fail();
	}
}

static void test_no_such_process(void **state)
{
	struct answer a;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	a = ask(pid);
	assert_int_equal(a.status, 1);
	expect(&a, "process", false, "there is no such process");
	json_decref(a.checks);
}

static void *wait_for_end(void *arg)
{
	pid_t id = gettid();
	char c;

	assert_int_equal(write(((int *)arg)[1], &id, sizeof(id)), sizeof(id));
	(void)!read(((int *)arg)[2], &c, 1);
	return NULL;
}

/* The id of a thread is refused, although /proc/TID exists. */
static void test_thread(void **state)
{
	_cleanup_free_ char *whose = xasprintf("a thread of process %d", getpid());
	int fds[4];
	pthread_t thread;
	struct answer a;
	pid_t tid;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(pipe(fds + 2), 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_end, fds), 0);
	assert_int_equal(read(fds[0], &tid, sizeof(tid)), sizeof(tid));
	a = ask(tid);
	assert_int_equal(a.status, 1);
	expect(&a, "process", false, whose);
	json_decref(a.checks);
	close(fds[3]);
	pthread_join(thread, NULL);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
}

/* Maps a file in memory as executable. Its content begins with these bytes. */
static bool map_code(const char *name, const void *bytes, size_t n)
{
	int fd = memfd_create(name, MFD_CLOEXEC);

	return ftruncate(fd, 8192) == 0 && pwrite(fd, bytes, n, 0) == (ssize_t)n &&
	       mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED;
}

/*
 * Copies the page of malloc of the C library into anonymous memory, as programs that want huge
 * pages do. Also maps a program in memory, and a file in memory that is not a program.
 */
static void move_code(void)
{
	uintptr_t page = (uintptr_t)malloc & ~(uintptr_t)4095;
	void *copy = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(copy, (void *)page, 4096);
	if (mprotect(copy, 4096, PROT_READ | PROT_EXEC) < 0 ||
	    mremap(copy, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)page) == MAP_FAILED ||
	    !map_code("code", (void *)getauxval(AT_SYSINFO_EHDR), 4096) ||
	    !map_code("made", "\xc3", 1))
		_exit(1);
}

static void test_code_that_is_not_mapped_from_its_file(void **state)
{
	struct answer a;
	int ready[2];
	pid_t pid;
	char byte;

	(void)state;
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		move_code();
		close(ready[0]);
		close(ready[1]);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 0);
	close(ready[0]);
	a = ask(pid);
	expect(&a, "code in anonymous memory", true, "4 KiB of the code of /");
	expect(&a, "code in anonymous memory", true, "lie in anonymous memory");
	assert_int_equal(json_int_at(check_of(&a, "code in anonymous memory"), "bytes", 0), 4096);
	expect(&a, "code in a file in memory", true, "8 KiB of the code of /memfd:code");
	assert_int_equal(count_of(&a, "code in a file in memory"), 1);
	assert_int_equal(count_of(&a, "/memfd:made"), 0);
	expect(&a, "runtime", false, "code made at run time");
	expect(&a, "process mem-alloc", true,
	       "is in anonymous memory, where the kernel sets no probe");
	json_decref(a.checks);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void test_kernel_thread(void **state)
{
	_cleanup_free_ char *name = NULL;
	struct answer a;

	(void)state;
	if (file_read(AT_FDCWD, "/proc/2/comm", 64, &name, NULL) < 0 ||
	    !streq(name, "kthreadd\n")) {
		print_message("skipped: no kernel threads are to be seen here\n");
		skip();
	}
	a = ask(2);
	expect(&a, "process", false, "it is a kernel thread");
	json_decref(a.checks);
}

static void test_no_permission(void **state)
{
	struct answer a;

	(void)state;
	if (geteuid() != 0) {
		print_message("skipped: needs root\n");
		skip();
	}
	a = ask_with(getpid(), RIGHTS_NONE);
	assert_int_equal(a.status, 1);
	expect(&a, "process", false, "run as root, or with capability SYS_PTRACE");
	expect(&a, "capabilities", false, "BPF is missing");
	json_decref(a.checks);
}

/* ---- real programs ---- */

static int said[2] = {-1, -1};

/*
 * Runs a command line whose last command is an exec of the program. Returns when the program has
 * written to standard output.
 */
static pid_t start_in_shell(const char *line)
{
	pid_t pid;

	assert_int_equal(pipe2(said, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(said[1], 1);
		assert_int_equal(chdir(dir), 0);
		execl("/bin/sh", "sh", "-c", line, NULL);
		_exit(127);
	}
	closep(&said[1]);
	assert_int_equal(read(said[0], &(char){0}, 1), 1);
	return pid;
}

static pid_t start(const char *command)
{
	_cleanup_free_ char *line = xasprintf("exec %s", command);

	return start_in_shell(line);
}

static void stop(pid_t pid, struct answer *a)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	closep(&said[0]);
	json_decref(a->checks);
}

static void write_program(const char *name, const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);

	assert_int_equal(file_write_atomic(path, text, strlen(text), 0644), 0);
}

static bool names_symbol(const json_t *check, const char *symbol)
{
	_cleanup_free_ char *text = json_dumps(json_object_get(check, "files"), JSON_COMPACT);
	_cleanup_free_ char *quoted = xasprintf("\"%s\"", symbol);

	return text && strstr(text, quoted);
}

static void test_python(void **state)
{
	const json_t *c;
	struct answer a;
	pid_t pid;

	(void)state;
	if (!program_here("python3"))
		skip();
	pid = start("python3 -uc 'import time; print(1); time.sleep(600)'");
	program_runs(pid, "python3");
	a = ask_with(pid, RIGHTS_ALL);
	expect(&a, "process", true, "running for");
	expect(&a, "container", true, "in no pod");
	expect(&a, "runtime CPython 3.", true, "podflame shows its functions");
	expect(&a, "/libc.so.6", true, "unwind rows");
	expect(&a, "process off-cpu", true, "podflame sees where its threads wait");
	expect(&a, "uprobes", true, "a hit costs the process about ");
	expect(&a, "process mem-alloc", true, "libc.so.6 (malloc, ");
	expect(&a, "process mem-inuse", true, "ns more");
	c = check_of(&a, "process mem-inuse");
	assert_string_equal(json_str_at(c, "event", ""), "mem-inuse");
	assert_true(names_symbol(c, "free"));
	assert_false(names_symbol(check_of(&a, "process mem-alloc"), "free"));
	assert_true(json_int_at(c, "hitNs", 0) > 50);
	/* a process without a CUDA driver is normal, so the check succeeds */
	expect(&a, "process hbm-alloc", true,
	       "the process has not loaded a CUDA driver (libcuda.so.1)");
	expect(&a, "process on-gpu", true,
	       "the process has not loaded a CUDA driver (libcuda.so.1)");
	expect(&a, "process rdma", true, "the process has not loaded libibverbs (libibverbs.so.1)");
	expect(&a, "process rdma-latency", true,
	       "the process has not loaded libibverbs (libibverbs.so.1)");
	stop(pid, &a);
}

/* Builds a libcuda.so.1 from the source, and starts a program that is linked to it. */
static struct answer ask_with_driver(const char *source, pid_t *ret_pid)
{
	write_program("cuda.c", source);
	write_program("gpu.c", "#include <unistd.h>\nint main(void) { write(1, \"x\", 1); for (;;) "
			       "pause(); }\n");
	*ret_pid = start_in_shell("gcc -shared -fPIC -Wl,-soname,libcuda.so.1 -o libcuda.so.1 "
				  "cuda.c && gcc -o gpu gpu.c -Wl,--no-as-needed ./libcuda.so.1 "
				  "-Wl,-rpath,. && exec ./gpu");
	return ask(*ret_pid);
}

static void test_cuda_driver(void **state)
{
	static const char *const checks[] = {"process hbm-alloc", "process hbm-inuse"};
	struct answer a;
	const json_t *c;
	pid_t pid;

	(void)state;
	a = ask_with_driver("int cuInit(unsigned f) { return f != 0; }\n"
			    "int cuMemAlloc_v2(void *p, long n) { return !p || !n; }\n"
			    "int cuMemFree_v2(long p) { return p == 0; }\n",
			    &pid);
	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		expect(&a, checks[i], true, "libcuda.so.1 (");
		c = check_of(&a, checks[i]);
		assert_true(names_symbol(c, "cuMemAlloc_v2"));
		/* only hbm-inuse probes cuMemFree_v2 */
		assert_int_equal(names_symbol(c, "cuMemFree_v2"), i == 1);
		assert_false(names_symbol(c, "malloc"));
	}
	assert_false(names_symbol(check_of(&a, "process mem-alloc"), "cuMemAlloc_v2"));
	expect(&a, "process on-gpu", false, "CUDA_INJECTION64_PATH must name libpodflame-cuda.so");
	stop(pid, &a);
	a = ask_with_driver("int other(void) { return 1; }\n", &pid);
	expect(&a, "process hbm-alloc", false,
	       "libcuda.so.1 is a CUDA driver whose functions podflame does not know");
	stop(pid, &a);
}

static void test_node(void **state)
{
	static const char program[] = "console.log(1); setInterval(() => {}, 1000)";
	_cleanup_free_ char *command = NULL;
	struct answer a;
	pid_t pid;

	(void)state;
	if (!program_here("node"))
		skip();
	command = xasprintf("node -e '%s'", program);
	pid = start(command);
	program_runs(pid, "node");
	a = ask(pid);
	expect(&a, "runtime perf map Node.js", false,
	       "JavaScript functions have no names: start it with --perf-basic-prof");
	assert_true(json_is_false(json_at(check_of(&a, "runtime perf map"), "works")));
	stop(pid, &a);
	free(command);
	command = xasprintf("node --perf-basic-prof -e '%s'", program);
	pid = start(command);
	a = ask(pid);
	expect(&a, "runtime perf map Node.js", true, "podflame shows its functions");
	stop(pid, &a);
	free(command);
	command = xasprintf("/tmp/perf-%d.map", pid);
	unlink(command);
}

static void test_java(void **state)
{
	const json_t *c;
	struct answer a;
	pid_t pid;

	(void)state;
	if (!program_here("java") || !program_here("javac"))
		skip();
	write_program("Sleep.java",
		      "public class Sleep { public static void main(String[] a) throws "
		      "Exception { System.out.println(1); Thread.sleep(600000); } }\n");
	pid = start("java Sleep.java");
	program_runs(pid, "java");
	a = ask(pid);
	c = check_of(&a, "runtime HotSpot");
	assert_string_equal(json_str_at(c, "runtime", ""), "jvm");
	expect(&a, "libjvm.so symbol table", true, "it has a .symtab");
	c = check_of(&a, "/libjvm.so");
	assert_true(json_bool_at(c, "symtab", false));
	assert_true(json_int_at(c, "unwindRows", 0) > 10000);
	expect(&a, "process mem-alloc", true, "send_allocation_in_new_tlab");
	expect(&a, "process mem-inuse", true,
	       "podflame does not see all of it: mem-inuse has no Java objects");
	assert_false(names_symbol(check_of(&a, "process mem-inuse"),
				  "AllocTracer::send_allocation_in_new_tlab"));
	stop(pid, &a);
}

static void test_stripped_go(void **state)
{
	const json_t *c;
	struct answer a;
	pid_t pid;

	(void)state;
	if (!program_here("go"))
		skip();
	write_program("main.go", "package main\n\nimport \"time\"\n\nfunc main() {\n\tprintln(1)\n"
				 "\ttime.Sleep(600 * time.Second)\n}\n");
	pid = start("sh -c 'go build -ldflags \"-s -w\" -o gone main.go && exec ./gone 2>&1'");
	a = ask(pid);
	expect(&a, "runtime", true, "Go");
	expect(&a, "/gone", true, "functions from .gopclntab (Go)");
	c = check_of(&a, "/gone");
	assert_false(json_bool_at(c, "symtab", true));
	assert_true(json_bool_at(c, "go", false));
	expect(&a, "process off-cpu", true, "goroutines that Go parks itself");
	/* the linker has turned the heap profile off, because nothing in the program asks for it */
	expect(&a, "process mem-alloc", true, "gone (runtime.mallocgc");
	expect(&a, "process mem-inuse", false, "its heap profile ");
	stop(pid, &a);
}

/* A C program without symbols, as Linux distributions ship it. */
static void test_nginx(void **state)
{
	struct answer a;
	pid_t pid;

	(void)state;
	if (!program_here("nginx"))
		skip();
	write_program("nginx.conf", "pid nginx.pid; error_log /dev/stdout notice; daemon off; "
				    "master_process off; events {} http { access_log off; server { "
				    "listen unix:nginx.sock; } }\n");
	pid = start("nginx -p . -c nginx.conf");
	a = ask(pid);
	expect(&a, "runtime", true, "native code only");
	expect(&a, "mem-inuse", true, "");
	expect(&a, "/nginx", true, "unwind rows");
	stop(pid, &a);
}

/* Makes a copy of a program that has n sections, by adding empty ones. */
static void add_sections(const char *program, const char *name, uint16_t n)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name), *file = NULL, *more = NULL;
	size_t size, table;
	Elf64_Ehdr *e;

	assert_int_equal(file_read(AT_FDCWD, program, 64u << 20, &file, &size), 0);
	e = (Elf64_Ehdr *)file;
	table = (size + 7) / 8 * 8;
	more = xcalloc(1, table + n * sizeof(Elf64_Shdr));
	memcpy(more + table, file + e->e_shoff, e->e_shnum * sizeof(Elf64_Shdr));
	e->e_shoff = table;
	e->e_shnum = n;
	memcpy(more, file, size);
	assert_int_equal(file_write_atomic(path, more, table + n * sizeof(Elf64_Shdr), 0755), 0);
}

static void test_more_sections_than_are_read(void **state)
{
	static const char cut[] = "its sections are not known: there are too many";
	struct answer a;
	pid_t pid;

	(void)state;
	for (uint16_t n = 4096; n <= 4097; n++) {
		add_sections("/bin/sh", "many", n);
		pid = start("./many -c 'echo 1; kill -STOP $$'");
		a = ask(pid);
		expect(&a, "/many", true, n == 4097 ? cut : "(exported ones only: stripped)");
		assert_true(!strstr(json_str_at(check_of(&a, "/many"), "detail", ""), cut) ==
			    (n == 4096));
		stop(pid, &a);
	}
}

/*
 * Damages the compressed debug information of a program. Doctor must report why it cannot be read.
 * The check of the file succeeds, because the file's symbols are not damaged.
 */
static void test_compressed_debug_information(void **state)
{
	static const char program[] = "#include <unistd.h>\n"
				      "int main(void) { (void)!write(1, \"1\", 1); pause(); }\n";
	static const struct {
		const char *how, *want;
	} cases[] = {
		{"true", "lines and inlined functions: its own; build id"},
		{"dd if=/dev/zero of=zstd conv=notrunc bs=1 seek=$((at + 24)) count=8",
		 "debug information: a compressed section is damaged"},
		{"printf '\\3' | dd of=zstd conv=notrunc bs=1 seek=$at",
		 "debug information: a section is compressed neither by zlib nor by zstd"},
		{"printf '\\377' | dd of=zstd conv=notrunc bs=1 seek=$((at + 14))",
		 "debug information: a compressed section is over 1 GiB, or larger than the "
		 "child's memory"},
	};

	(void)state;
	write_program("zstd.c", program);
	for (size_t k = 0; k < ARRAY_SIZE(cases); k++) {
		_cleanup_free_ char *command = xasprintf(
			"gcc -g -Wl,--build-id zstd.c -o zstd && "
			"objcopy --compress-debug-sections=zstd zstd && "
			"at=$((0x$(readelf -SW zstd | awk '$2 == \".debug_info\" {print $5}'))) && "
			"%s >/dev/null && exec ./zstd",
			cases[k].how);
		struct answer a;
		pid_t pid = start_in_shell(command);

		a = ask(pid);
		expect(&a, "/zstd", true, cases[k].want);
		stop(pid, &a);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_such_process),
		cmocka_unit_test(test_thread),
		cmocka_unit_test(test_code_that_is_not_mapped_from_its_file),
		cmocka_unit_test(test_kernel_thread),
		cmocka_unit_test(test_no_permission),
		cmocka_unit_test(test_python),
		cmocka_unit_test(test_cuda_driver),
		cmocka_unit_test(test_node),
		cmocka_unit_test(test_java),
		cmocka_unit_test(test_stripped_go),
		cmocka_unit_test(test_nginx),
		cmocka_unit_test(test_more_sections_than_are_read),
		cmocka_unit_test(test_compressed_debug_information),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
