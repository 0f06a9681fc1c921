/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that have ended before record has read their mappings. */
#include "cli/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/testclock.h"

#define N_ENDED 3

/* The ids of processes that have ended. */
static void make_ended(struct process_id ret[static N_ENDED])
{
	for (size_t i = 0; i < N_ENDED; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			pause();
		}
		assert_true(pid > 0);
		assert_int_equal(proc_start_boottime((uint32_t)pid, &ret[i].start_boottime_ns), 0);
		ret[i].tgid = (uint64_t)pid;
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
	}
}

/* Takes samples of all of them, in turn, as a drain has them. */
static void take_turns(struct recording *r, const struct process_id *ids)
{
	struct raw_frame frame = {.exec_id = 1, .address = 0x401000};
	struct raw_sample s = {0};
	const struct raw_stack u = {.hash = 1, .frames = &frame, .n = 1};

	for (size_t i = 0; i < 4 * N_ENDED; i++) {
		s.start_boottime_ns = ids[i % N_ENDED].start_boottime_ns;
		s.tgid = (uint32_t)ids[i % N_ENDED].tgid;
		cli_record_read_again(r, &s, &u);
	}
}

/* The number that a user reads is that of the processes, however many samples they have. */
static void an_ended_process_counts_once(void **state)
{
	struct process_id ids[N_ENDED];
	struct recording r = {0};
	struct stacks_config c = {0};

	(void)state;
	assert_int_equal(stacks_new(&c, &r.stacks), 0);
	make_ended(ids);
	take_turns(&r, ids);
	assert_int_equal(r.n_unmapped, N_ENDED);
	/* samples that come seconds later are of the same processes */
	test_clock.later_ns = 2 * NSEC_PER_SEC;
	take_turns(&r, ids);
	assert_int_equal(r.n_unmapped, N_ENDED);
	cli_record_unmapped_free(&r);
	stacks_free(r.stacks);
}

/* Its samples have the names of known files, so nothing is missing. */
static void an_ended_process_without_samples_that_miss_something_does_not_count(void **state)
{
	struct process_id ids[N_ENDED];
	struct recording r = {0};

	(void)state;
	make_ended(ids);
	for (size_t i = 0; i < N_ENDED; i++)
		assert_false(cli_record_read_mappings(&r, ids[i], 1, 0, 0));
	assert_int_equal(r.n_unmapped, 0);
	cli_record_unmapped_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_ended_process_counts_once),
		cmocka_unit_test(
			an_ended_process_without_samples_that_miss_something_does_not_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
