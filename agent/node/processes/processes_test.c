/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each exit is passed on once: those that the kernel reports, and those that a search in /proc
 * finds. The test's thread does the work of the os worker.
 */
#include "node/processes/processes.h"
#include "node/proc/testowner.h"
#include "node/work/testworkers.h"
/* after cmocka.h */
#include "node/proc/testliving.h"

#include <unistd.h>

#define NOBODY	  5000000 /* larger than any PID */
#define MAX_KNOWN 32768	  /* as in processes.c */

enum { GREEDY = 7, VICTIM };

static struct work node_work;
static struct processes *processes;
static struct process_id own;
static struct process_exit told[4];
static size_t n_told, n_crowded;
static uint64_t crowded_ns;

static void note_exits(void *arg, const struct process_exit *exits, size_t n)
{
	assert_ptr_equal(arg, &node_work);
	assert_true(n > 0);
	for (size_t i = 0; i < n; i++)
		told[n_told++ % ARRAY_SIZE(told)] = exits[i];
}

static void note_crowded(void *arg, uint64_t ns)
{
	assert_ptr_equal(arg, &node_work);
	crowded_ns = ns;
	n_crowded++;
}

static int set_up(void **state)
{
	const struct processes_config c = {.work = &node_work,
					   .search_ns = 1,
					   .exited = note_exits,
					   .crowded = note_crowded,
					   .arg = &node_work};

	(void)state;
	testwork(&node_work);
	n_told = n_crowded = 0;
	own.tgid = (uint64_t)getpid();
	assert_int_equal(proc_start_boottime((uint32_t)own.tgid, &own.start_boottime_ns), 0);
	processes = processes_new(&c);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	assert_int_equal(posted.n, 0);
	processes = processes_free(processes);
	proc_containers_free(node_work.containers);
	node_work.containers = NULL;
	return 0;
}

static struct process_id nobody(uint32_t i)
{
	return (struct process_id){.tgid = NOBODY + i};
}

static void report(enum raw_proc_what what, uint32_t i, uint64_t time_ns)
{
	struct raw_proc r = {.what = what, .tgid = NOBODY + i, .time_ns = time_ns};
	struct drain d = {.procs = &r, .n_procs = 1};

	processes_drained(processes, &d);
}

static void search(void)
{
	processes_tick(processes);
	posted_run_all();
}

static void a_reported_exit_is_told_once(void **state)
{
	(void)state;
	report(RAW_PROC_EXIT, 0, 70); /* not passed on, because no module keeps data of it */
	assert_int_equal(n_told, 0);
	report(RAW_PROC_SEEN, 0, 71);
	report(RAW_PROC_EXEC, 0, 72);
	report(RAW_PROC_MAPS, 0, 73);
	report(RAW_PROC_SEEN, 1, 74);
	assert_int_equal(n_told, 0);
	report(RAW_PROC_EXIT, 0, 75);
	report(RAW_PROC_EXIT, 0, 76);
	assert_int_equal(n_told, 1);
	assert_true(process_id_equal(told[0].id, nobody(0)));
	assert_int_equal(told[0].exited_ns, 75);
}

static void exits_of_one_drain_are_told_together(void **state)
{
	struct raw_proc r[] = {
		{.what = RAW_PROC_SEEN, .tgid = NOBODY},
		{.what = RAW_PROC_SEEN, .tgid = NOBODY + 1},
		{.what = RAW_PROC_EXIT, .tgid = NOBODY + 1, .time_ns = 1},
		{.what = RAW_PROC_EXIT, .tgid = NOBODY, .time_ns = 2},
	};
	struct drain d = {.procs = r, .n_procs = ARRAY_SIZE(r)};

	(void)state;
	processes_drained(processes, &d);
	assert_int_equal(n_told, 2);
	assert_true(process_id_equal(told[0].id, nobody(1)));
	assert_true(process_id_equal(told[1].id, nobody(0)));
}

/*
 * A target was deleted, then its processes ended, and no program in the kernel reports their exits.
 * If a process gets the same PID later, it counts as another one.
 */
static void an_exit_that_is_not_reported_is_found(void **state)
{
	struct process_id before = {own.start_boottime_ns - NSEC_PER_SEC, own.tgid};
	uint64_t now_ns = now_boot_ns();

	(void)state;
	processes_add(processes, own, VICTIM);
	report(RAW_PROC_SEEN, 0, 0);
	processes_add(processes, before, VICTIM);
	search();
	assert_int_equal(n_told, 2);
	assert_true(process_id_equal(told[0].id, nobody(0)));
	assert_true(process_id_equal(told[1].id, before));
	assert_true(told[0].exited_ns >= now_ns && told[1].exited_ns >= told[0].exited_ns);
	search();
	assert_int_equal(n_told, 2);
	/* the process's mappings arrived after its exit was passed on */
	processes_add(processes, before, VICTIM);
	search();
	assert_int_equal(n_told, 3);
}

/*
 * A process whose parent does not reap it stays in /proc. It lives as long as one of its threads
 * does, also if that is not the first one.
 */
static void one_that_nobody_reaps_has_ended(void **state)
{
	pid_t pid = testliving_start(NULL);
	struct process_id id = {.tgid = (uint64_t)pid};
	siginfo_t info;

	(void)state;
	assert_int_equal(proc_start_boottime((uint32_t)pid, &id.start_boottime_ns), 0);
	processes_add(processes, id, VICTIM);
	search();
	assert_int_equal(n_told, 0);
	kill(pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	search();
	assert_int_equal(n_told, 1);
	assert_true(process_id_equal(told[0].id, id));
	waitpid(pid, NULL, 0);
}

static void what_is_reported_during_a_search_is_told_once(void **state)
{
	(void)state;
	report(RAW_PROC_SEEN, 0, 0);
	processes_tick(processes);
	report(RAW_PROC_EXIT, 0, 5);
	assert_int_equal(n_told, 1);
	posted_run_all();
	assert_int_equal(n_told, 1);
	assert_int_equal(told[0].exited_ns, 5);
}

static void a_refused_search_finds_nothing(void **state)
{
	(void)state;
	report(RAW_PROC_SEEN, 0, 0);
	processes_tick(processes);
	posted.items[0]->refused = true;
	posted_run_all();
	assert_int_equal(n_told, 0);
	search();
	assert_int_equal(n_told, 1);
}

static void it_does_not_search_for_nothing(void **state)
{
	(void)state;
	processes_tick(processes);
	assert_int_equal(posted.n, 0);
}

/*
 * If the table is full, the oldest process counts as ended. So each process in the table gets an
 * exit at some time.
 */
static void beyond_the_limit_the_oldest_counts_as_ended(void **state)
{
	struct counter *dropped =
		counter("podflame_processes_dropped_total", "reason", "known_full");
	uint64_t before = counter_get(dropped);

	(void)state;
	for (uint32_t i = 0; i < MAX_KNOWN; i++)
		processes_add(processes, nobody(i), GREEDY);
	assert_int_equal(n_told, 0);
	processes_add(processes, nobody(MAX_KNOWN - 1), GREEDY);
	assert_int_equal(n_told, 0);
	processes_add(processes, nobody(MAX_KNOWN), GREEDY);
	assert_int_equal(n_told, 1);
	assert_true(process_id_equal(told[0].id, nobody(0)));
	assert_int_equal(counter_get(dropped) - before, 1);
}

/* The processes of another namespace stay, however old they are, and new ones find room. */
static void processes_of_one_namespace_leave_room(void **state)
{
	(void)state;
	processes_add(processes, nobody(0), VICTIM);
	for (uint32_t i = 1; i < MAX_KNOWN; i++)
		processes_add(processes, nobody(i), GREEDY);
	processes_add(processes, nobody(MAX_KNOWN), GREEDY);
	processes_add(processes, nobody(MAX_KNOWN + 1), VICTIM);
	assert_int_equal(n_told, 2);
	for (uint32_t i = 0; i < 2; i++) {
		assert_true(process_id_equal(told[i].id, nobody(1 + i)));
		assert_int_equal(told[i].ns, GREEDY);
	}
	assert_int_equal(n_crowded, 2);
	assert_int_equal(crowded_ns, GREEDY);
}

/* What the kernel reports is charged to the namespace of the cgroup. */
static void a_report_is_charged_to_its_namespace(void **state)
{
	struct raw_proc r[] = {
		{.what = RAW_PROC_SEEN, .tgid = NOBODY, .cgroup_id = TEST_CGROUP},
		{.what = RAW_PROC_EXIT, .tgid = NOBODY, .cgroup_id = TEST_CGROUP},
	};
	struct drain d = {.procs = r, .n_procs = ARRAY_SIZE(r)};

	(void)state;
	testowner_apply(node_work.containers, testowner_plan());
	processes_drained(processes, &d);
	assert_int_equal(n_told, 1);
	assert_int_equal(told[0].ns, proc_containers_charged(node_work.containers, TEST_CGROUP).ns);
	assert_int_not_equal(told[0].ns, proc_ns_hash(""));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_reported_exit_is_told_once),
		TEST(exits_of_one_drain_are_told_together),
		TEST(an_exit_that_is_not_reported_is_found),
		TEST(one_that_nobody_reaps_has_ended),
		TEST(what_is_reported_during_a_search_is_told_once),
		TEST(a_refused_search_finds_nothing),
		TEST(it_does_not_search_for_nothing),
		TEST(beyond_the_limit_the_oldest_counts_as_ended),
		TEST(processes_of_one_namespace_leave_room),
		TEST(a_report_is_charged_to_its_namespace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
