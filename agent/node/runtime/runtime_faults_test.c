/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets calls fail while a process's memory and its perf map are read, and while a JVM is asked for
 * a map. Whichever call fails, no result is incomplete, and no file, process or memory is left.
 */
#include "lib/base/fault.h"
#include "node/runtime/java_attach/attach.h"
#include "node/runtime/internal.h"
#include "node/runtime/perfmap/testperfmap.h"
#include "node/runtime/reader.h"

#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINES "1000 10 first\n2000 20 second\n"

static uint64_t start_ns(uint32_t tgid)
{
	uint64_t ns;

	assert_int_equal(proc_start_boottime(tgid, &ns), 0);
	return ns;
}

static void write_map(pid_t pid, int flags)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", pid);
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | flags, 0600);
	if (fd < 0 && errno == ENOENT)
		return; /* the process that asked has ended, and the map was removed */
	if (fd < 0 || write(fd, LINES, strlen(LINES)) != (ssize_t)strlen(LINES))
		abort();
	close(fd);
}

static bool is_there(pid_t pid, const char *form)
{
	char path[64];

	snprintf(path, sizeof(path), form, pid);
	return access(path, F_OK) == 0;
}

static void remove_file(pid_t pid, const char *form)
{
	char path[64];

	snprintf(path, sizeof(path), form, pid);
	unlink(path);
}

/* ---- this process ---- */

static uint64_t self_start_ns;
static volatile uint64_t number = 4711;
static const char *volatile text = "a text";

static int read_memory(void *arg)
{
	struct process_memory *p = NULL;
	uint64_t got = 1;
	char *said = NULL;
	int r = runtime_process_memory_open((struct process_id){self_start_ns, getpid()}, &p);

	(void)arg;
	if (r) {
		assert_null(p);
		return r;
	}
	r = runtime_memory_u64(runtime_process_memory(p), (uint64_t)(uintptr_t)&number, &got);
	assert_int_equal(got, r ? 1 : number);
	if (!r)
		r = runtime_memory_string(runtime_process_memory(p), (uint64_t)(uintptr_t)text, 100,
					  &said);
	if (r)
		assert_null(said);
	else
		assert_string_equal(said, text);
	free(said);
	runtime_process_memory_close(p);
	return r;
}

static void put_map(void *arg)
{
	(void)arg;
	runtime_reader_use(NULL, NULL); /* no namespace waits because of an earlier loss */
	remove_file(getpid(), "/tmp/perf-%d.map");
	write_map(getpid(), O_CREAT);
}

/* The second read knows the file, and reads only the new part. */
static int read_map(void *arg)
{
	struct perf_file f = {0};
	int r = runtime_perf_file_init((struct process_id){self_start_ns, getpid()}, &f);

	(void)arg;
	if (r) {
		assert_null(f.map);
		return r;
	}
	for (unsigned i = 0; !r && i < 2; i++)
		r = runtime_perf_file_read(&f);
	if (!r) {
		assert_int_equal(runtime_perf_map_n(f.map), 2);
		assert_string_equal(testmap_find(f.map, 0x2010), "second");
	}
	runtime_perf_file_done(&f);
	return r;
}

/* ---- a process that answers like a JVM ---- */

static uint64_t n_left(void)
{
	return counter_get(counter("podflame_java_files_left_total", NULL, NULL));
}

static struct jvm {
	pid_t pid;
	uint64_t start_ns, n_left;
} jvm;

static void it_listens(void *arg)
{
	(void)arg;
	remove_file(jvm.pid, "/tmp/perf-%d.map");
	remove_file(jvm.pid, "/tmp/.attach_pid%d");
	jvm.n_left = n_left();
}

static void it_does_not_listen(void *arg)
{
	it_listens(arg);
	remove_file(jvm.pid, "/tmp/.java_pid%d");
}

static int attach(void *arg)
{
	char said[ATTACH_TEXT_BYTES] = "";
	struct perf_map *map = NULL;
	struct attach a;
	int r = runtime_attach_open((struct process_id){jvm.start_ns, jvm.pid}, &a, said);

	(void)arg;
	if (!r) {
		r = runtime_attach_run(&a, &map, said);
		runtime_attach_done(&a);
	}
	if (r) {
		assert_null(map);
		assert_true(*said);
	} else {
		assert_string_equal(testmap_find(map, 0x1000), "first");
	}
	runtime_perf_map_free(map);
	return r;
}

static bool leaves_something(void)
{
	return is_there(jvm.pid, "/tmp/.attach_pid%d") || is_there(jvm.pid, "/tmp/perf-%d.map");
}

static void nothing_is_left_uncounted(void *arg)
{
	(void)arg;
	assert_true(!leaves_something() || n_left() > jvm.n_left);
}

static volatile sig_atomic_t asked_to_listen;

static void on_quit(int signo)
{
	(void)signo;
	asked_to_listen = 1;
}

/* Makes a socket that listens. As in HotSpot, the socket gets its name when it listens. */
static int listen_anew(int fd)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char name[64];

	closep(&fd);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(name, sizeof(name), "/tmp/.java_pid%d", getpid());
	snprintf(a.sun_path, sizeof(a.sun_path), "%s.tmp", name);
	unlink(a.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 64) < 0 ||
	    rename(a.sun_path, name) < 0)
		_exit(1);
	return fd;
}

static void answer(int fd)
{
	int from = accept(fd, NULL, NULL);
	char asked[64];

	if (read(from, asked, sizeof(asked)) > 0 && is_there(getpid(), "/tmp/perf-%d.map")) {
		write_map(getpid(), 0);
		(void)!write(from, "0\n", 2); /* no other thread may wait for this reply */
	}
	close(from);
}

_Noreturn static void be_a_jvm(int ready)
{
	sigset_t quit, none;
	int fd = listen_anew(-1);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGQUIT, on_quit);
	sigemptyset(&none);
	sigemptyset(&quit);
	sigaddset(&quit, SIGQUIT);
	sigprocmask(SIG_BLOCK, &quit, NULL); /* except in ppoll() */
	if (write(ready, "x", 1) != 1)
		_exit(1);
	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		if (ppoll(&p, 1, NULL, &none) > 0)
			answer(fd);
		/* As in HotSpot, a late signal of the last attempt changes nothing. */
		if (asked_to_listen && !is_there(getpid(), "/tmp/.java_pid%d"))
			fd = listen_anew(fd);
		asked_to_listen = 0;
	}
}

static int set_up(void **state)
{
	int fds[2];

	(void)state;
	self_start_ns = start_ns((uint32_t)getpid());
	assert_int_equal(pipe(fds), 0);
	jvm.pid = fork();
	if (jvm.pid == 0)
		be_a_jvm(fds[1]);
	assert_true(jvm.pid > 0);
	close(fds[1]);
	assert_int_equal(read(fds[0], &(char){0}, 1), 1);
	close(fds[0]);
	jvm.start_ns = start_ns((uint32_t)jvm.pid);
	fault_in_children(); /* calls fail in the process that asks, and not in this process */
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	remove_file(getpid(), "/tmp/perf-%d.map");
	if (jvm.pid <= 0)
		return 0;
	kill(jvm.pid, SIGKILL);
	waitpid(jvm.pid, NULL, 0);
	it_does_not_listen(NULL);
	return 0;
}

#define ATTACH_CALLS (FAULT_FILES | FAULT(FD) | FAULT(CONNECT) | FAULT(POLL) | FAULT(START))

static void test_runtime(void **state)
{
	static const struct fault_row rows[] = {
		{.name = "process_memory", .calls = FAULT_FILES, .run = read_memory},
		{.name = "perf_file",
		 .calls = FAULT_FILES | FAULT(FD) | FAULT(SEND) | FAULT(RECV) | FAULT(START),
		 .before = put_map,
		 .run = read_map,
		 .threads = true},
		{.name = "attach",
		 .calls = ATTACH_CALLS,
		 .before = it_listens,
		 .run = attach,
		 .check = nothing_is_left_uncounted,
		 .threads = true},
		{.name = "attach, SIGQUIT first",
		 .calls = ATTACH_CALLS,
		 .before = it_does_not_listen,
		 .run = attach,
		 .check = nothing_is_left_uncounted,
		 .step = 7,
		 .threads = true},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		fault_each(&rows[i], NULL);
}

static void what_stays_is_counted(void **state)
{
	static void (*const begin[])(void *arg) = {it_listens, it_does_not_listen};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(begin); i++) {
		begin[i](NULL);
		assert_int_equal(attach(NULL), 0);
		assert_false(leaves_something());
		assert_int_equal(n_left(), jvm.n_left);
		begin[i](NULL);
		fault_arm(FAULT_UNLINK, EROFS, 1, false);
		assert_int_equal(attach(NULL), 0);
		assert_int_equal(fault_disarm(), 1);
		assert_true(leaves_something());
		assert_int_equal(n_left(), jvm.n_left + 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_runtime),
					   cmocka_unit_test(what_stays_is_counted)};

	return cmocka_run_group_tests_name("runtime_faults", tests, set_up, tear_down);
}
