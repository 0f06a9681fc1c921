/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole node on a machine that is suspended for an hour. The test has its own clocks:
 * CLOCK_MONOTONIC stands still in this hour, and the other clocks do not. The kernel's clocks do
 * not change, so times from BPF are those of the machine.
 */
#include "node/internal.h"
#include "node/parse/parse.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/testclock.h"
#include "lib/base/testdir.h"
#include "node/testsink.h"

#define BUSY	 "suspend-busy"
#define WINDOW_S 2
#define SLEEP_NS (3600 * NSEC_PER_SEC)
#define LIMIT_NS (120 * NSEC_PER_SEC)

/* ---- what arrived ---- */

static struct {
	pthread_mutex_t lock;
	struct {
		uint64_t start_ns, end_ns;
	} windows[64]; /* the windows with samples of BUSY, in order */
	size_t n_windows, n_batches;
	uint64_t told_ns;
} arrived = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note_profile(const struct batch *b, const struct profile *p)
{
	arrived.n_batches += p == b->profiles[0];
	if (p->event != EVENT_ON_CPU)
		return;
	for (size_t i = 0; i < p->n_losses; i++)
		if (streq(p->losses[i].reason, "asleep"))
			arrived.told_ns += p->losses[i].time_ns;
	if (!p->n_samples || !streq(p->app_service, BUSY))
		return;
	assert_true(arrived.n_windows < ARRAY_SIZE(arrived.windows));
	arrived.windows[arrived.n_windows].start_ns = p->start_ns;
	arrived.windows[arrived.n_windows++].end_ns = p->end_ns;
}

static int take(const void *body, size_t n, void *arg)
{
	(void)arg;
	return testsink_take(body, n, &arrived.lock, note_profile);
}

static size_t n_windows(void)
{
	size_t n;

	pthread_mutex_lock(&arrived.lock);
	n = arrived.n_windows;
	pthread_mutex_unlock(&arrived.lock);
	return n;
}

/* ---- the node ---- */

static pid_t start_busy(void)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, BUSY);
	for (;;)
		;
}

struct waiting {
	struct loop *loop;
	struct timer timer;
	size_t n_windows;
	uint64_t due_ns;
};

static void look(void *arg)
{
	struct waiting *w = arg;

	if (n_windows() >= w->n_windows || now_mono_ns() > w->due_ns)
		loop_stop(w->loop, 0);
	else
		timer_set(w->loop, &w->timer, 20 * NSEC_PER_MSEC, look, w);
}

static void run_until(struct loop *l, size_t n)
{
	struct waiting w = {.loop = l, .n_windows = n, .due_ns = now_mono_ns() + LIMIT_NS};

	look(&w);
	loop_run(l);
	timer_cancel(&w.timer);
	if (n_windows() < n)
		fail_msg("%zu windows and no more", n_windows());
}

/* Takes two windows, then suspends for an hour, then takes more windows. */
static void run(const char *dir)
{
	struct field_error err = {0};
	struct config conf;
	struct node_config c = {.conf = &conf, .local = true, .direct = take};
	struct loop *loop;
	struct node *node;
	pid_t busy;

	conf_init(&conf);
	free(conf.data_dir);
	conf.data_dir = xstrdup(dir);
	free(conf.on_cpu_regex);
	conf.on_cpu_regex = xstrdup("^" BUSY "$");
	conf.window_ns = WINDOW_S * NSEC_PER_SEC;
	assert_int_equal(loop_new(&loop), 0);
	busy = start_busy();
	if (node_new(loop, &c, &node, &err) < 0)
		fail_msg("%s: %s", err.path, err.reason);
	run_until(loop, 2);
	test_clock.asleep_ns = SLEEP_NS;
	run_until(loop, n_windows() + 3);
	node_free(node);
	loop_free(loop);
	kill(busy, SIGKILL);
	waitpid(busy, NULL, 0);
	conf_done(&conf);
}

static void an_hour_asleep(void **state)
{
	uint64_t between_ns, begin_ns = now_boot_ns(), awake_ns = 0;
	char dir[TESTDIR_BYTES];
	size_t n_gaps = 0;

	(void)state;
	if (geteuid() != 0) {
		print_message("skipped: needs root\n");
		skip();
	}
	assert_int_equal(testdir_make(dir), 0);
	run(dir);
	testdir_remove(dir);
	for (size_t i = 0; i < arrived.n_windows; i++) {
		awake_ns += arrived.windows[i].end_ns - arrived.windows[i].start_ns;
		if (i == 0)
			continue;
		assert_true(arrived.windows[i].start_ns >= arrived.windows[i - 1].end_ns);
		between_ns = arrived.windows[i].start_ns - arrived.windows[i - 1].end_ns;
		n_gaps += between_ns > SLEEP_NS / 2;
	}
	/*
	 * The sleep is between two windows and is reported once. No window is longer than the
	 * machine was awake.
	 */
	assert_int_equal(n_gaps, 1);
	assert_in_range(arrived.told_ns, SLEEP_NS - NSEC_PER_SEC, SLEEP_NS + NSEC_PER_SEC);
	assert_true(awake_ns <= now_boot_ns() - begin_ns - SLEEP_NS + WINDOW_S * NSEC_PER_SEC);
	/*
	 * There are no empty windows for the hour. The last batch may be of a window without
	 * samples.
	 */
	assert_in_range(arrived.n_batches, arrived.n_windows, arrived.n_windows + 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(an_hour_asleep)};

	/* the parser runs this program as its child */
	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests_name("node/suspend", tests, NULL, NULL);
}
