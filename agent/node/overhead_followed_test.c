/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory events of processes that become known late, that cannot be read at once, or that are too
 * many.
 */
#include "node/testoverhead.h"
#include "lib/base/testslowfile.h"

#include <dlfcn.h>

/* ---- processes: they write what they do to memory that the test can read ---- */

#define EARLY	    64
#define LATE	    100
#define BLOCK_BYTES 4096

/*
 * A process that has memory before the events are asked for. go 1: it allocates the late memory. go
 * 2: it frees all of the early memory and half of the late memory.
 */
static void lives_before(void)
{
	static void *volatile early[EARLY], *volatile late[LATE];

	for (unsigned i = 0; i < EARLY; i++)
		early[i] = malloc(BLOCK_BYTES);
	for (uint64_t done = 0;;) {
		for (volatile int k = 0; k < 1000000; k++)
			;
		usleep(1000);
		if (truth->go == done)
			continue;
		for (unsigned i = 0; done == 0 && i < LATE; i++)
			late[i] = malloc(BLOCK_BYTES);
		for (unsigned i = 0; done == 1 && i < EARLY; i++)
			free(early[i]);
		for (unsigned i = 0; done == 1 && i < LATE / 2; i++)
			free(late[i]);
		done++;
	}
}

static struct slow_file slow;

/* A process whose copy of the C library is on a file system that may stop answering. */
static void often_and_slow(void)
{
	int fd = open(slow.path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 ||
	    mmap(NULL, slow.size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		_exit(4);
	often();
}

/* Forks a child that does not call exec, so no exec event reports the child. */
static void forks(void)
{
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		calm();
	}
	sleeps();
}

/* ---- a file that cannot be read ---- */

static bool spans_go_on(struct fixture *f)
{
	(void)f;
	return spans_ended() >= spans_due;
}

static bool is_stuck(struct fixture *f)
{
	return testfollow_n_stuck(f->node->follow) == 1;
}

static bool is_back(struct fixture *f)
{
	const struct follow *follow = f->node->follow;

	return !testfollow_n_stuck(follow) && testfollow_has(follow, f->pid) &&
	       !testfollow_memory_problem(follow, f->pid) && spans_go_on(f);
}

static bool other_is_told(struct fixture *f)
{
	const char *problem = testfollow_memory_problem(f->node->follow, f->other);

	return problem && strstr(problem, "a process of its namespace blocks a thread");
}

/*
 * One process has a file that cannot be read. The process is reported. Another one of its namespace
 * waits until the file answers, and is reported, too. That other namespaces go on is shown in
 * follow/probed_attach_test.c.
 */
static void a_file_that_does_not_answer_holds_up_its_namespace(void **state)
{
	struct fixture *f = *state;
	const char *problem;
	Dl_info libc;

	assert_true(dladdr((void *)malloc, &libc));
	if (slow_file_new(&slow, libc.dli_fname) < 0) {
		print_message("skipped: no FUSE here\n");
		skip();
	}
	begin(f, often_and_slow, ALLOC, 16384);
	f->other = start(f->container, often);
	spans_due = spans_ended() + 2 * SETTLE_SPANS;
	run_until(f, spans_go_on, "spans of both");
	slow.silent = true;
	run_until(f, is_stuck, "a worker that is stuck");
	problem = testfollow_memory_problem(f->node->follow, f->pid);
	assert_non_null(problem);
	assert_non_null(strstr(problem, "file system"));
	run_until(f, other_is_told, "the other process of the namespace is told");
	assert_true(is_stuck(f));
	slow.silent = false;
	spans_due = spans_ended() + SETTLE_SPANS;
	run_until(f, is_back, "spans of both again");
	f->node = node_free(f->node);
	kill(f->pid, SIGKILL);
	slow_file_free(&slow);
}

/* ---- processes that are known before a target asks for their memory ---- */

static bool on_cpu_seen(struct fixture *f)
{
	(void)f;
	return arrived.on_cpu_us > 0;
}

static bool is_attached_for_both(struct fixture *f)
{
	return is_steady(f, EVENT_MEM_ALLOC) && is_steady(f, EVENT_MEM_INUSE) &&
	       testfollow_probed_events(f->node->follow, f->pid) == (ALLOC | INUSE);
}

/*
 * Whether exactly this much is in use, and all late memory was counted as allocated. A snapshot may
 * come in the middle of the allocations or frees, so the test waits for this.
 */
static bool lives(uint64_t bytes)
{
	bool so;

	pthread_mutex_lock(&arrived.lock);
	so = arrived.inuse_bytes == bytes && arrived.alloc_bytes == LATE * BLOCK_BYTES;
	pthread_mutex_unlock(&arrived.lock);
	return so;
}

static bool late_lives(struct fixture *f)
{
	(void)f;
	return lives(LATE * BLOCK_BYTES);
}

static bool half_of_it_lives(struct fixture *f)
{
	(void)f;
	return lives(LATE / 2 * BLOCK_BYTES);
}

/*
 * Memory that was allocated before a target asked for memory events is unknown: it counts neither
 * as in use nor as freed.
 */
static void memory_is_asked_for_later(void **state)
{
	struct fixture *f = *state;

	begin(f, lives_before, 1u << EVENT_ON_CPU, 1);
	run_until(f, on_cpu_seen, "samples on CPU");
	assert_null(account(f, EVENT_MEM_INUSE));
	ask(f, 1u << EVENT_ON_CPU | ALLOC | INUSE, 1);
	run_until(f, is_attached_for_both, "probes of a process that is known");
	truth->go = 1;
	run_until(f, late_lives, "memory that lives");
	truth->go = 2;
	run_until(f, half_of_it_lives, "half of it, as the other is freed");
}

static bool child_seen(struct fixture *f)
{
	(void)f;
	return arrived.alloc_bytes > 0;
}

/* ---- more processes than may have probes at once ---- */

static bool no_room(struct fixture *f)
{
	(void)f;
	return counter_get(counter("podflame_probes_attach_total", "result", "too_many")) > 0;
}

static void who_has_no_room_waits_for_it(void **state)
{
	struct fixture *f = *state;

	begin(f, calm, ALLOC, 1);
	/* as if ATTACHED_MAX other processes had probes */
	testfollow_add_probed(f->node->follow, 1024);
	run_until(f, no_room, "a process without room");
	assert_int_equal(arrived.alloc_bytes, 0);
	testfollow_add_probed(f->node->follow, -1024);
	run_until(f, child_seen, "what it allocates, once there is room");
}

static uint64_t unread_before;

static uint64_t unread(void)
{
	return counter_get(counter("podflame_mappings_dropped_total", "reason", "stuck"));
}

static bool is_unread(struct fixture *f)
{
	(void)f;
	return unread() > unread_before;
}

/*
 * A process without probes has no samples, so no sample makes the agent read its mappings. The
 * agent must read the mappings again by itself.
 */
static void who_could_not_be_read_is_read_again(void **state)
{
	struct fixture *f = *state;

	begin(f, calm, ALLOC, 1);
	unread_before = unread();
	/* as if a file of a pod of the namespace did not answer */
	atomic_store(&f->node->work->stuck.blocked[0], proc_ns_hash("app"));
	run_until(f, is_unread, "a process that is not read");
	assert_false(testfollow_has(f->node->follow, f->pid));
	atomic_store(&f->node->work->stuck.blocked[0], 0);
	run_until(f, child_seen, "what it allocates, once it can be read");
}

static bool cannot_look(struct fixture *f)
{
	const char *problem = testfollow_memory_problem(f->node->follow, f->pid);

	return problem && strstr(problem, strerror(EMFILE));
}

/*
 * The mappings of the process are known from an on-cpu sample, so nothing else makes the agent look
 * for its places of allocation again.
 */
static void who_could_not_be_looked_at_is_looked_at_again(void **state)
{
	struct fixture *f = *state;
	struct rlimit none;

	begin(f, calm, 1u << EVENT_ON_CPU, 1);
	run_until(f, on_cpu_seen, "samples on CPU");
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &f->files), 0);
	none = (struct rlimit){3, f->files.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	ask(f, 1u << EVENT_ON_CPU | ALLOC, 1);
	run_until(f, cannot_look, "a look without descriptors");
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &f->files), 0);
	run_until(f, child_seen, "what it allocates, once there are some");
}

static void a_fork_is_found(void **state)
{
	struct fixture *f = *state;

	begin(f, forks, ALLOC, 1);
	run_until(f, child_seen, "what the child allocates");
}

/* The argument is a pattern for the names of tests, such as "a_file*"; default: all. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_file_that_does_not_answer_holds_up_its_namespace,
						setup, teardown),
		cmocka_unit_test_setup_teardown(who_has_no_room_waits_for_it, setup, teardown),
		cmocka_unit_test_setup_teardown(memory_is_asked_for_later, setup, teardown),
		cmocka_unit_test_setup_teardown(who_could_not_be_read_is_read_again, setup,
						teardown),
		cmocka_unit_test_setup_teardown(who_could_not_be_looked_at_is_looked_at_again,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_fork_is_found, setup, teardown),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	truth = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(truth != MAP_FAILED);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
