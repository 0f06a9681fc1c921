/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a hostile file gains if it takes over the child that reads it: nothing but its own
 * namespace's names. This program itself is the child (VERB): a file that begins with a word of the
 * tables below makes it try an escape or tell a lie. It reads any other file as the real child
 * does.
 */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/testchild.h"
#include "lib/child/child.h"
#include "node/runtime/perfmap/perfmap_format.h"
#include "node/runtime/perfmap/testperfmap.h"
#include "lib/base/testslowfile.h"

#define VERB "__taken"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* the child has no seccomp filter */
#else
#define SANITIZED 0
#endif

/* ---- the child that is taken over ---- */

static pid_t the_agent;

#define CALL(name, ...)                                                                            \
	static void name(void)                                                                     \
	{                                                                                          \
		syscall(__VA_ARGS__);                                                              \
	}
CALL(opens, SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY)
CALL(opens_the_root, SYS_open, "/", O_RDONLY | O_DIRECTORY)
CALL(opens_by_handle, SYS_open_by_handle_at, 0, "", O_RDONLY)
CALL(looks, SYS_newfstatat, AT_FDCWD, "/", NULL, 0)
CALL(links, SYS_readlink, "/proc/self/exe", NULL, 0)
CALL(leaves_its_root, SYS_chroot, "..")
CALL(mounts, SYS_mount, "none", "/", "tmpfs", 0, NULL)
CALL(unshares, SYS_unshare, CLONE_NEWUSER)
CALL(executes, SYS_execve, "/proc/self/exe", NULL, NULL)
CALL(forks, SYS_fork)
CALL(clones, SYS_clone, 0, 0, 0, 0, 0)
CALL(connects, SYS_socket, AF_INET, SOCK_STREAM, 0)
CALL(kills, SYS_kill, the_agent, SIGKILL)
CALL(traces, SYS_ptrace, PTRACE_SEIZE, the_agent, 0, 0)
CALL(reads_the_agent, SYS_process_vm_readv, the_agent, NULL, 0, NULL, 0, 0)
CALL(takes_a_descriptor, SYS_pidfd_open, the_agent, 0)
CALL(writes_memory, SYS_pwrite64, 4, "", 1, 0)
CALL(writes, SYS_write, 4, "x", 1)
CALL(truncates, SYS_ftruncate, 4, 0)
CALL(duplicates, SYS_dup, 4)
CALL(maps_code, SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
     -1, 0)
CALL(maps_its_file, SYS_mmap, 0, 4096, PROT_READ, MAP_SHARED, 4, 0)
CALL(maps_a_copy_of_its_file, SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, 4, 0)
CALL(shares_memory, SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)
CALL(maps_over_its_code, SYS_mmap, &the_agent, 4096, PROT_READ | PROT_WRITE,
     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
CALL(moves_over_its_code, SYS_mremap, &the_agent, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, 0)
CALL(makes_code, SYS_mprotect, &the_agent, 4096, PROT_READ | PROT_EXEC)
CALL(waits_for_a_word, SYS_futex, &the_agent, 0, 0, NULL, NULL, 0)
CALL(makes_a_file, SYS_memfd_create, "x", 0)
CALL(becomes_another_user, SYS_setuid, 1)
CALL(takes_capabilities, SYS_capset, NULL, NULL)
CALL(can_be_dumped, SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0)
CALL(raises_its_limit, SYS_prlimit64, 0, RLIMIT_CPU, NULL, NULL)
CALL(loads_a_program, SYS_bpf, 0, NULL, 0)
CALL(uses_a_ring, SYS_io_uring_setup, 1, NULL)
CALL(waits, SYS_pause)
CALL(sleeps, SYS_nanosleep, NULL, NULL)

static void jumps(void)
{
	static const uint8_t ret = 0xc3;

	((void (*)(void))(uintptr_t)&ret)();
}

static void ends(void)
{
	syscall(SYS_exit_group, 0);
}

/* Takes all memory that it gets. Does not go on if that is more than its limit. */
static void fills(void)
{
	enum { PIECE = 1 << 20 };
	uint64_t bytes = 0;

	while (mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
	       MAP_FAILED)
		bytes += PIECE;
	if (bytes > runtime_reader_rights.data_bytes || sbrk(PIECE) != (void *)-1)
		ends();
}

static const struct {
	const char *name;
	void (*try)(void);
} escapes[] = {
#define ROW(name)                                                                                  \
	{                                                                                          \
#name, name                                                                        \
	}
	ROW(opens),
	ROW(opens_the_root),
	ROW(opens_by_handle),
	ROW(looks),
	ROW(links),
	ROW(leaves_its_root),
	ROW(mounts),
	ROW(unshares),
	ROW(executes),
	ROW(forks),
	ROW(clones),
	ROW(connects),
	ROW(kills),
	ROW(traces),
	ROW(reads_the_agent),
	ROW(takes_a_descriptor),
	ROW(writes_memory),
	ROW(writes),
	ROW(truncates),
	ROW(duplicates),
	ROW(maps_code),
	ROW(maps_its_file),
	ROW(maps_a_copy_of_its_file),
	ROW(shares_memory),
	ROW(maps_over_its_code),
	ROW(moves_over_its_code),
	ROW(makes_code),
	ROW(waits_for_a_word),
	ROW(makes_a_file),
	ROW(becomes_another_user),
	ROW(takes_capabilities),
	ROW(can_be_dumped),
	ROW(raises_its_limit),
	ROW(loads_a_program),
	ROW(uses_a_ring),
	ROW(waits),
	ROW(sleeps),
	ROW(jumps),
	ROW(ends),
};

static struct {
	struct reader_head head;
	struct perf_record record;
	char text[READER_MESSAGE_MAX - sizeof(struct reader_head) - sizeof(struct perf_record)];
} said;

static void say(const void *message, size_t n)
{
	(void)child_send(CHILD_SOCKET_FD, message, n, NULL, 0);
}

static void say_done(struct perf_done d, const struct perf_question *q)
{
	d.head = (struct reader_head){.sequence = q->head.sequence, .what = PERF_DONE};
	say(&d, sizeof(d));
}

/* Says that there is one function, with these many bytes of texts. */
static void say_one(struct perf_record r, size_t n, const struct perf_question *q)
{
	said.head = (struct reader_head){.sequence = q->head.sequence, .n = 1};
	said.record = r;
	say(&said, offsetof(typeof(said), text) + n);
}

/* a record of a function with a name of 4 bytes */
static const struct perf_record good = {
	.start = 0x1000, .size = 16, .name_n = 4, .kind = FRAME_APP};
/* Says a good record, but for one member, with so many bytes of text. */
#define LIE(name, n, member, value)                                                                \
	static void name(const struct perf_question *q)                                            \
	{                                                                                          \
		struct perf_record r = good;                                                       \
                                                                                                   \
		r.member = (value);                                                                \
		say_one(r, n, q);                                                                  \
	}
LIE(too_high, 4, start, PERF_MAP_ADDRESS_MAX)
LIE(too_large, 4, size, PERF_MAP_FUNCTION_MAX + 1)
LIE(empty, 4, size, 0)
LIE(kind_of_the_kernel, 4, kind, FRAME_KERNEL)
LIE(no_kind, 4, kind, UINT32_MAX)
LIE(no_name, 0, name_n, 0)
LIE(name_beyond_the_message, 3, name_n, 4)
LIE(file_beyond_the_message, 4, file_n, UINT16_MAX)
LIE(long_name, PERF_NAME_MAX + 1, name_n, PERF_NAME_MAX + 1)
LIE(bytes_behind, 5, name_n, 4)

static void nul_in_the_name(const struct perf_question *q)
{
	said.text[2] = '\0';
	say_one(good, 4, q);
}

static void another_count(const struct perf_question *q)
{
	said.head = (struct reader_head){.sequence = q->head.sequence, .n = UINT32_MAX};
	said.record = good;
	say(&said, offsetof(typeof(said), text) + 4);
}

static void no_count(const struct perf_question *q)
{
	const struct reader_head head = {.sequence = q->head.sequence};

	say(&head, sizeof(head));
}

static void another_sequence(const struct perf_question *q)
{
	const struct perf_done d = {.head = {.sequence = q->head.sequence - 1, .what = PERF_DONE}};

	say(&d, sizeof(d));
}

static void no_message(const struct perf_question *q)
{
	(void)q;
	say("x", 1);
}

static void another_message(const struct perf_question *q)
{
	const struct reader_head head = {.sequence = q->head.sequence, .what = 77};

	say(&head, sizeof(head));
}

static void with_a_descriptor(const struct perf_question *q)
{
	const struct perf_done d = {.head = {.sequence = q->head.sequence, .what = PERF_DONE}};
	int fd = CHILD_SOCKET_FD;

	(void)child_send(CHILD_SOCKET_FD, &d, sizeof(d), &fd, 1);
}

static void far_away(const struct perf_question *q)
{
	say_done((struct perf_done){.offset = q->stop + 1}, q);
}

static void backwards(const struct perf_question *q)
{
	say_done((struct perf_done){.offset = q->offset - 1}, q);
}

static void long_tail(const struct perf_question *q)
{
	say_done((struct perf_done){.offset = q->stop, .tail_n = PERF_MAP_TAIL_BYTES + 1}, q);
}

static void no_error(const struct perf_question *q)
{
	say_done((struct perf_done){.error = 1, .offset = q->stop}, q);
}

static void many_malformed(const struct perf_question *q)
{
	say_done((struct perf_done){.offset = q->stop, .n_malformed = UINT64_MAX}, q);
}

static void half_inside(const struct perf_question *q)
{
	say_done((struct perf_done){.offset = q->stop, .behind = 2}, q);
}

/* Never ends: more functions than the slice has bytes. */
static void flood(const struct perf_question *q)
{
	for (;;)
		say_one(good, 4, q);
}

static const struct {
	const char *name;
	void (*tell)(const struct perf_question *q);
} lies[] = {
	ROW(too_high),
	ROW(too_large),
	ROW(empty),
	ROW(kind_of_the_kernel),
	ROW(no_kind),
	ROW(no_name),
	ROW(name_beyond_the_message),
	ROW(file_beyond_the_message),
	ROW(long_name),
	ROW(bytes_behind),
	ROW(nul_in_the_name),
	ROW(another_count),
	ROW(no_count),
	ROW(another_sequence),
	ROW(no_message),
	ROW(another_message),
	ROW(with_a_descriptor),
	ROW(far_away),
	ROW(backwards),
	ROW(long_tail),
	ROW(no_error),
	ROW(many_malformed),
	ROW(half_inside),
	ROW(flood),
};

static void obey(const char *word, const struct perf_question *q)
{
	memset(said.text, 'x', sizeof(said.text));
	for (size_t i = 0; i < ARRAY_SIZE(escapes); i++)
		if (streq(word, escapes[i].name)) {
			escapes[i].try();
			say_done((struct perf_done){.offset = q->stop}, q); /* it has lived on */
		}
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++)
		if (streq(word, lies[i].name))
			lies[i].tell(q);
	if (streq(word, "fills")) {
		fills();
		say_done((struct perf_done){.offset = q->stop}, q);
	}
	while (streq(word, "turns"))
		;
}

/* Answers each question, from now on, with a function that its file does not have. */
static void invent(const struct perf_question *q)
{
	memset(said.text, 'x', sizeof(said.text));
	say_one(good, 4, q);
	say_done((struct perf_done){.offset = q->stop}, q);
}

static int child_main(void)
{
	static struct perf_question q;
	bool invents = false;
	int r;

	the_agent = getppid();
	r = child_begin(VERB, "podflame-reader", &runtime_reader_rights);
	while (!r) {
		char word[64] = "";
		size_t n, n_fds;
		int fd;

		r = child_receive(CHILD_SOCKET_FD, &q, sizeof(q), &n, &fd, 1, &n_fds);
		if (r)
			break;
		(void)pread(fd, word, sizeof(word) - 1, 0);
		invents |= streq(word, "invents");
		if (invents)
			invent(&q);
		else if (strchr(word, ' ') || !*word)
			r = runtime_perf_answer(&q, n, fd);
		else
			obey(word, &q);
		close(fd);
	}
	return r;
}

/* ---- the agent ---- */

static uint64_t failures(const char *reason)
{
	return counter_get(counter("podflame_reader_failures_total", "reason", reason));
}

/* Has a child of the namespace read a file with this text. */
static int ask(uint64_t ns, const char *text, struct perf_map *m)
{
	_cleanup_close_ int fd = memfd_create("map", MFD_CLOEXEC);
	struct perf_place place = {0};
	bool more;

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	return runtime_perf_ask(m, ns, PERF_MAP_ANY, fd, strlen(text), &place, &more);
}

static void assert_read(uint64_t ns, const char *name)
{
	_cleanup_free_ char *text = xasprintf("1000 10 %s\n", name);
	struct perf_map *m = runtime_perf_map_new(0);

	assert_int_equal(ask(ns, text, m), 0);
	assert_string_equal(testmap_find(m, 0x1000), name);
	runtime_perf_map_free(m);
}

/* The agent waits only a moment for the end of a child that it has killed. */
static void wait_for_its_end(void)
{
	while (testchild_pid("podflame-reader"))
		sched_yield();
}

static int forget_children(void **state)
{
	(void)state;
	runtime_reader_use(NULL, VERB);
	return 0;
}

/* Each attempt ends the child, before the call has an effect. */
static void no_escape_succeeds(void **state)
{
	struct perf_map *m;

	(void)state;
	if (SANITIZED)
		skip();
	m = runtime_perf_map_new(0);
	for (size_t i = 0; i < ARRAY_SIZE(escapes); i++) {
		uint64_t n = failures("child_died");

		if (ask(100 + i, escapes[i].name, m) != -EPIPE)
			fail_msg("%s: the child lives", escapes[i].name);
		assert_int_equal(failures("child_died"), n + 1);
		wait_for_its_end();
	}
	assert_int_equal(runtime_perf_map_n(m), 0);
	runtime_perf_map_free(m);
}

static void memory_has_a_limit(void **state)
{
	struct perf_map *m;

	(void)state;
	if (SANITIZED)
		skip();
	m = runtime_perf_map_new(0);
	assert_int_equal(ask(1, "fills", m), 0);
	runtime_perf_map_free(m);
}

static void no_lie_is_taken(void **state)
{
	struct perf_map *m = runtime_perf_map_new(0);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		uint64_t n = failures("answer_refused");

		if (ask(100 + i, lies[i].name, m) != -EBADMSG)
			fail_msg("%s: the answer was taken", lies[i].name);
		assert_int_equal(failures("answer_refused"), n + 1);
	}
	runtime_perf_map_free(m);
}

/* A child that lies within the rules names functions of its own namespace, and of no other. */
static void a_lie_stays_in_its_namespace(void **state)
{
	struct perf_map *m = runtime_perf_map_new(0);

	(void)state;
	assert_int_equal(ask(1, "invents", m), 0);
	assert_read(2, "innocent");
	assert_int_equal(ask(1, "1000 10 honest\n", m), 0);
	assert_string_equal(testmap_find(m, 0x1000), "xxxx"); /* the child is still the same */
	assert_read(2, "innocent");
	runtime_perf_map_free(m);
}

/* While one namespace's file hangs its child, the others' are read; its own wait for a while. */
static void a_loss_stops_its_namespace_only(void **state)
{
	struct perf_map *m = runtime_perf_map_new(0);
	uint64_t n = failures("timeout"), paused = failures("paused");

	(void)state;
	assert_read(1, "before");
	assert_int_equal(ask(1, "turns", m), -ETIMEDOUT);
	assert_int_equal(failures("timeout"), n + 1);
	wait_for_its_end();
	assert_read(2, "innocent");
	assert_int_equal(ask(1, "1000 10 later\n", m), -ECANCELED);
	assert_int_equal(failures("paused"), paused + 1);
	assert_int_equal(runtime_perf_map_n(m), 0);
	runtime_perf_map_free(m);
}

/* A file system that does not answer blocks the child, and not the agent. */
static void a_silent_file_system_costs_its_namespace(void **state)
{
	char map[] = "/tmp/reader_test-XXXXXX";
	int copied = mkstemp(map);
	struct slow_file slow;
	struct perf_map *m = runtime_perf_map_new(0);
	struct perf_place place = {0};
	bool more;
	int fd, r;

	(void)state;
	assert_int_equal(write(copied, "1000 10 slow\n", 13), 13);
	r = slow_file_new(&slow, map);
	if (r == 0) {
		fd = open(slow.path, O_RDONLY | O_CLOEXEC);
		assert_true(fd >= 0);
		slow.silent = true;
		assert_int_equal(runtime_perf_ask(m, 1, PERF_MAP_ANY, fd, 13, &place, &more),
				 -ETIMEDOUT);
		assert_read(2, "innocent");
		/*
		 * The kernel cannot end a process that has asked such a file system. It stays, and
		 * is the only one of its namespace.
		 */
		assert_int_equal(ask(1, "1000 10 later\n", m), -ECANCELED);
		slow.silent = false;
		close(fd);
		slow_file_free(&slow);
	}
	close(copied);
	unlink(map);
	runtime_perf_map_free(m);
	if (r) {
		print_message("skipped: no FUSE: %s\n", strerror(r < 0 ? -r : r));
		skip();
	}
}

static void the_child_has_given_everything_up(void **state)
{
	static const char *const fields[] = {
		"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000",
		"CapBnd:\t0000000000000000", "NoNewPrivs:\t1", SANITIZED ? "" : "Seccomp:\t2"};
	_cleanup_free_ char *status = NULL, *path = NULL, *fds = NULL;
	uint64_t deadline = now_mono_ns() + 10 * NSEC_PER_SEC;
	struct rlimit cpu, data;
	pid_t child;

	(void)state;
	runtime_reader_use(NULL, NULL); /* the real child */
	assert_read(1, "x");
	child = testchild_pid("podflame-reader");
	path = xasprintf("/proc/%d/status", child);
	assert_int_equal(file_read(AT_FDCWD, path, 16384, &status, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (!strstr(status, fields[i]))
			fail_msg("no %s", fields[i]);
	assert_int_equal(prlimit(child, RLIMIT_CPU, NULL, &cpu), 0);
	assert_int_equal(cpu.rlim_max, runtime_reader_rights.cpu_s);
	assert_int_equal(prlimit(child, RLIMIT_DATA, NULL, &data), 0);
	if (!SANITIZED)
		assert_int_equal(data.rlim_max, runtime_reader_rights.data_bytes);
	/* it closes the file of the pod after each answer, and keeps only its socket */
	fds = xasprintf("/proc/%d/fd/%d", child, CHILD_SOCKET_FD + 1);
	while (access(fds, F_OK) == 0 && now_mono_ns() < deadline)
		sched_yield();
	assert_int_equal(access(fds, F_OK), -1);
}

int main(int argc, char **argv)
{
#define READER_TEST(f) cmocka_unit_test_setup(f, forget_children)
	const struct CMUnitTest tests[] = {
		READER_TEST(no_escape_succeeds),
		READER_TEST(memory_has_a_limit),
		READER_TEST(no_lie_is_taken),
		READER_TEST(a_lie_stays_in_its_namespace),
		READER_TEST(a_loss_stops_its_namespace_only),
		READER_TEST(a_silent_file_system_costs_its_namespace),
		READER_TEST(the_child_has_given_everything_up),
	};

	if (argc > 1 && streq(argv[1], VERB))
		return child_main();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
