/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent that ends and starts again, and the files with the batches that the hub does not have
 * yet.
 */
#include "node/send/testsend.h"

#include <limits.h>
#include <signal.h>
#include <sys/wait.h>

/* ---- tests ---- */

static void test_restart_takes_over_the_spool(void **state)
{
	struct world *w = *state;

	hub_stop(w);
	agent_start(w);
	send_one(w, 1, 1);
	send_one(w, 2, 2);
	n_wanted = 2;
	run_until(w, spooled_wanted);
	agent_stop(w);
	assert_int_equal(n_files(w, "0"), 2);
	agent_start(w);
	/*
	 * this batch is sent before the old files are listed; its file must not get the name of an
	 * old file
	 */
	send_one(w, 3, 3);
	hub_start(w);
	run_until(w, settled);
	assert_int_equal(w->n_samples, 6);
	for (int i = 0; i < 3; i++)
		assert_int_equal(w->order[i], i + 1);
}

/*
 * An agent ended after the hub's answer and before it removed the file. The next agent sends the
 * batch again, and the hub recognizes its id.
 */
static void test_batch_of_one_window_has_one_id(void **state)
{
	struct world *w = *state;
	char from[160], copy[160];
	_cleanup_free_ char *data = NULL;
	size_t n;

	hub_stop(w);
	agent_start(w);
	send_one(w, 1, 1);
	n_wanted = 1;
	run_until(w, spooled_wanted);
	agent_stop(w);
	snprintf(from, sizeof(from), "%s/%016x.otlp", w->spool, 0);
	snprintf(copy, sizeof(copy), "%s/%016x.otlp", w->spool, 1);
	assert_int_equal(file_read(AT_FDCWD, from, 1 << 20, &data, &n), 0);
	assert_int_equal(file_write_atomic(copy, data, n, 0600), 0);
	hub_start(w);
	agent_start(w);
	run_until(w, settled);
	assert_int_equal(w->n_requests, 2);
	assert_int_equal(w->n_repeats, 1);
	assert_int_equal(w->n_samples, 1);
}

static bool has_failed_and_dropped(struct world *w)
{
	struct sender_stats st;

	send_stats(w->sender, &st);
	return st.n_failed > 0 && st.n_dropped_samples > 0;
}

/* Every sample is stored or counted as lost, and the directory stays within its limit. */
static void test_overflow(void **state)
{
	struct world *w = *state;
	struct sender_stats st;
	uint64_t n_sent = 0;

	hub_stop(w);
	w->config.spool_max_bytes = 10000;
	agent_start(w);
	for (uint32_t i = 1; i <= 40; i++) {
		send_one(w, i, i);
		n_sent += i;
	}
	run_until(w, has_failed_and_dropped);
	send_stats(w->sender, &st);
	/* the batch that is being sent may be over the limit */
	assert_true(st.spool_bytes <= 10000 + 2000);
	hub_start(w);
	n_wanted = n_sent;
	run_until(w, accounted);
	run_until(w, settled);
	assert_int_equal(w->n_samples + w->n_lost, n_sent);
	assert_true(w->n_lost > 0);
	assert_string_equal(w->loss_reason, "spool_full");
	assert_string_equal(w->loss_pod, "web-1");
	assert_int_equal(w->order[w->n_order - 1], 40); /* the newest batches were kept */
}

/* ---- two namespaces ---- */

#define GREEDY	1000 /* process ids of the greedy namespace are larger */
#define WINDOWS 20

static bool has_failed_again(struct world *w)
{
	return has_failed(w) && spooled_wanted(w);
}

/* Sends windows in which one namespace has ten times as much as the other. */
static void send_windows(struct world *w, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i <= to; i++) {
		struct batch *b = profile_batch_new();

		for (uint32_t k = 0; k < 10; k++)
			profile_tag(b, add_profile(b, GREEDY + 10 * i + k, 1), "pod_ns", "greedy");
		profile_tag(b, add_profile(b, i, 1), "pod_ns", "victim");
		assert_int_equal(send_send(w->sender, b), 0);
	}
}

/* The spool has room for a few whole windows. The victim's part of all of them is smaller. */
static void test_a_namespace_takes_no_room_of_another(void **state)
{
	struct world *w = *state;
	size_t n_victim = 0, n_greedy = 0;
	int64_t newest = 0;

	hub_stop(w);
	w->config.spool_max_bytes = 70000;
	agent_start(w);
	send_windows(w, 1, 1);
	run_until(w, has_failed);
	send_windows(w, 2, WINDOWS / 2);
	n_wanted = WINDOWS / 2;
	run_until(w, spooled_wanted);
	agent_stop(w);
	/* The next agent knows from the names of the files which namespace they are of. */
	agent_start(w);
	run_until(w, has_failed_again);
	send_windows(w, WINDOWS / 2 + 1, WINDOWS);
	n_wanted = WINDOWS;
	run_until(w, spooled_wanted);
	hub_start(w);
	n_wanted = 11 * WINDOWS;
	run_until(w, accounted);
	run_until(w, settled);
	for (size_t i = 0; i < w->n_order; i++) {
		n_victim += w->order[i] < GREEDY;
		n_greedy += w->order[i] >= GREEDY;
		newest = MAX(newest, w->order[i]);
	}
	assert_int_equal(n_victim, WINDOWS);
	/* What the greedy namespace loses is reported, and its newest windows stay. */
	assert_int_equal(w->n_lost, 10 * WINDOWS - n_greedy);
	assert_true(w->n_lost > 0);
	assert_string_equal(w->loss_reason, "spool_full");
	assert_int_equal(newest, GREEDY + 10 * WINDOWS + 9);
}

static void test_account_survives_a_restart(void **state)
{
	struct world *w = *state;
	uint64_t n_sent = 0;

	hub_stop(w);
	w->config.spool_max_bytes = 10000;
	agent_start(w);
	for (uint32_t i = 1; i <= 40; i++) {
		send_one(w, i, i);
		n_sent += i;
	}
	run_until(w, has_failed);
	agent_stop(w);
	assert_int_equal(n_files(w, "losses"), 1);
	hub_start(w);
	agent_start(w);
	n_wanted = n_sent;
	run_until(w, accounted);
	run_until(w, settled);
	assert_int_equal(w->n_samples + w->n_lost, n_sent);
}

static void test_damaged_file_is_set_aside(void **state)
{
	struct world *w = *state;
	struct counter *corrupt = counter("podflame_spool_files_total", "reason", "corrupt");
	uint64_t before = counter_get(corrupt);
	char path[160];
	int fd;

	hub_stop(w);
	agent_start(w);
	for (uint32_t i = 1; i <= 4; i++)
		send_one(w, i, 1);
	n_wanted = 4;
	run_until(w, spooled_wanted);
	agent_stop(w);
	snprintf(path, sizeof(path), "%s/%016x.otlp", w->spool, 1);
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, "x", 1, 100), 1); /* changes one byte of the body */
	close(fd);
	snprintf(path, sizeof(path), "%s/%016x.otlp", w->spool, 2);
	assert_int_equal(truncate(path, 10), 0);
	snprintf(path, sizeof(path), "%s/%016x.otlp.tmp", w->spool, 9);
	/* as if the agent was killed while it wrote the file */
	assert_int_equal(file_write_atomic(path, "", 0, 0600), 0);
	hub_start(w);
	agent_start(w);
	n_wanted = 2;
	run_until(w, seen_wanted);
	assert_int_equal(w->order[0], 1);
	assert_int_equal(w->order[1], 4);
	assert_int_equal(counter_get(corrupt), before + 2);
	assert_int_equal(n_files(w, "corrupt-"), 2);
	assert_int_equal(n_files(w, "0000000000000009"), 0);
}

static uint64_t n_left(void)
{
	return counter_get(counter("podflame_spool_files_total", "reason", "left"));
}

static bool three_are_left(struct world *w)
{
	(void)w;
	return n_left() == 3;
}

/* Files that are left for the next start are counted. */
static void test_more_files_than_are_taken_over(void **state)
{
	struct world *w = *state;

	assert_int_equal(n_left(), 0);
	hub_stop(w);
	assert_int_equal(mkdir_parents(w->spool, 0700), 0);
	for (unsigned i = 1; i <= 65536 + 3; i++) {
		_cleanup_free_ char *path = xasprintf("%s/%016x.otlp", w->spool, i);
		_cleanup_close_ int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

		assert_true(fd >= 0);
	}
	agent_start(w);
	run_until(w, three_are_left);
	agent_stop(w);
	/* the agent may have tried to send an empty file, and renamed it */
	assert_int_equal(n_files(w, "0") + n_files(w, "corrupt-"), 65536 + 3);
}

/* The directory cannot be made, so the batch is sent from memory. */
static void test_spool_that_cannot_be_written(void **state)
{
	struct world *w = *state;
	struct sender_stats st;

	/* a file with the name of the directory */
	assert_int_equal(file_write_atomic(w->spool, "", 0, 0600), 0);
	agent_start(w);
	send_one(w, 1, 3);
	n_wanted = 1;
	run_until(w, seen_wanted);
	assert_int_equal(w->n_samples, 3);
	send_stats(w->sender, &st);
	assert_int_equal(st.n_dropped_samples, 0);
}

/*
 * The agent is killed with SIGKILL while it writes. Whole files are sent once; a file that is half
 * written does no harm.
 */
static void test_killed(void **state)
{
	struct world *w = *state;
	struct counter *corrupt = counter("podflame_spool_files_total", "reason", "corrupt");
	uint64_t before = counter_get(corrupt), deadline_ns = now_mono_ns() + DEADLINE_NS;
	size_t n;
	pid_t pid;

	hub_stop(w);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (loop_new(&w->loop) < 0)
			_exit(1);
		agent_start(w);
		for (uint32_t i = 1;; i++)
			send_one(w, i, 1);
	}
	while (n_files(w, "0") < 20 && now_mono_ns() < deadline_ns)
		usleep(1000);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	n = n_files(w, "0");
	assert_true(n >= 20);
	hub_start(w);
	agent_start(w);
	run_until(w, settled);
	assert_true(w->n_seen >= n - 1); /* one file may have been half written */
	assert_int_equal(w->n_samples, w->n_seen);
	assert_int_equal(w->n_repeats, 0);
	assert_int_equal(counter_get(corrupt), before);
}

#define HOUR_WINDOWS 360 /* of 10 s */

/* The store is away for an hour: the hub answers each window with 503. Then all are stored once. */
static void test_an_hour_without_a_store(void **state)
{
	struct world *w = *state;

	w->status = 503;
	w->n_fails = UINT_MAX;
	agent_start(w);
	for (uint32_t i = 1; i <= HOUR_WINDOWS; i++) {
		send_one(w, i, 1);
		n_wanted = i;
		run_until(w, spooled_wanted);
	}
	run_until(w, has_failed);
	assert_int_equal(w->n_seen, 0);
	w->n_fails = 0;
	run_until(w, settled);
	assert_int_equal(w->n_seen, HOUR_WINDOWS);
	assert_int_equal(w->n_samples, HOUR_WINDOWS);
	assert_int_equal(w->n_repeats, 0);
	assert_int_equal(w->n_lost, 0);
	for (int i = 0; i < HOUR_WINDOWS; i++)
		assert_int_equal(w->order[i], i + 1);
}

static void test_memory_only(void **state)
{
	struct world *w = *state;

	hub_stop(w);
	w->config.spool_dir = "";
	agent_start(w);
	send_one(w, 1, 3);
	n_wanted = 1;
	run_until(w, has_failed);
	hub_start(w);
	run_until(w, seen_wanted);
	assert_int_equal(w->n_samples, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_restart_takes_over_the_spool),
		TEST(test_batch_of_one_window_has_one_id),
		TEST(test_overflow),
		TEST(test_a_namespace_takes_no_room_of_another),
		TEST(test_account_survives_a_restart),
		TEST(test_damaged_file_is_set_aside),
		TEST(test_more_files_than_are_taken_over),
		TEST(test_spool_that_cannot_be_written),
		TEST(test_killed),
		TEST(test_an_hour_without_a_store),
		TEST(test_memory_only),
	};

	return cmocka_run_group_tests_name("send/spool", tests, NULL, NULL);
}
