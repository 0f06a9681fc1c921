/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk that fails at any call: every sample of a window is sent, still in the spool, or counted
 * as lost.
 */
#include "lib/base/fault.h"
#include "lib/loop/http.h"
#include "node/send/spool.h"

#include <setjmp.h>
#include <cmocka.h>
#include <utlist.h>

#include "lib/base/testdir.h"

#define N_SAMPLES 7

static char dir[TESTDIR_BYTES], spool_dir[96];

static struct batch *one_window(void)
{
	struct frame f = {.kind = FRAME_APP, .name = "main", .module = "/bin/x"};
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	struct profile_sample *s;
	const char *id = "window";

	profile_id_make(&id, 1, p->id);
	p->event = EVENT_ON_CPU;
	p->start_ns = NSEC_PER_SEC;
	p->end_ns = 2 * NSEC_PER_SEC;
	p->process_id = 10;
	p->app_service = profile_batch_str(b, "api");
	profile_tag(b, p, "pod_uid", "u");
	profile_tag(b, p, "container_id", "c");
	s = profile_add(b, p);
	s->thread_comm = profile_batch_str(b, "t");
	s->cpu = -1;
	s->value = 10;
	s->n_samples = N_SAMPLES;
	assert_int_equal(profile_batch_stack(b, &f, 1, &s->stack), 0);
	return b;
}

static void empty(void *arg)
{
	(void)arg;
	testdir_remove(spool_dir);
}

/* Returns the number of samples and losses in an encoded batch. */
static uint64_t samples_in(const struct buf *body)
{
	_cleanup_buf_ struct buf bytes = {0};
	struct batch *b = NULL;
	uint64_t n = 0;

	assert_int_equal(http_decompress("zstd", body->data, body->len, OTLP_MAX_BYTES, &bytes), 0);
	assert_int_equal(otlp_decode(bytes.data, bytes.len, &b, NULL), 0);
	for (size_t i = 0; i < b->n_profiles; i++) {
		for (size_t k = 0; k < b->profiles[i]->n_samples; k++)
			n += b->profiles[i]->samples[k].n_samples;
		for (size_t k = 0; k < b->profiles[i]->n_losses; k++)
			n += b->profiles[i]->losses[k].n_samples;
	}
	profile_batch_free(b);
	return n;
}

static uint64_t counted(const char *reason)
{
	return counter_get(counter("podflame_spool_files_total", "reason", reason));
}

/*
 * Sends an item. Returns the number of its samples, also if it must be tried again. Returns 0 if it
 * cannot be read; that must be counted.
 */
static uint64_t take_item(struct spool *s, struct spool_item *i)
{
	_cleanup_buf_ struct buf body = {0};
	uint64_t n = 0, unreadable = counted("unreadable") + counted("corrupt");
	int r = send_spool_get(s, i, &body);

	if (r == 0)
		n = samples_in(&body);
	else if (r == -EAGAIN)
		n = N_SAMPLES;
	else
		assert_int_equal(counted("unreadable") + counted("corrupt"), unreadable + 1);
	if (r != -EAGAIN)
		send_spool_remove(s, i);
	send_spool_item_free(i);
	return n;
}

/* Puts a window into the spool and gets it. */
static int put_and_get(void *arg)
{
	struct spool *s = send_spool_new(spool_dir, true);
	struct spool_item *found = NULL, *i = NULL;
	struct batch *b = one_window();
	uint64_t unreadable = counted("unreadable");
	int r = send_spool_scan(s, &found);

	(void)arg;
	if (!r)
		r = send_spool_put(s, b, SPOOL_SEVERAL_NS, &i);
	if (r) {
		assert_null(i);
	} else {
		assert_null(found);
		assert_int_equal(i->n_samples, N_SAMPLES);
		assert_true(take_item(s, i) == N_SAMPLES || counted("unreadable") > unreadable);
	}
	profile_batch_free(b);
	send_spool_free(s);
	return r;
}

/*
 * One agent spools a window and ends, so that the next one finds it. The file stays until it is
 * sent.
 */
static void leave_one(void *arg)
{
	struct spool *s = send_spool_new(spool_dir, true);
	struct spool_item *found = NULL, *i = NULL;
	struct batch *b = one_window();

	empty(arg);
	assert_int_equal(send_spool_scan(s, &found), 0);
	assert_int_equal(send_spool_put(s, b, SPOOL_SEVERAL_NS, &i), 0);
	assert_non_null(i->path);
	send_spool_item_free(i);
	send_spool_lose(s, b, "test", &(struct send_lost){0});
	profile_batch_free(b);
	send_spool_free(s);
}

/* Counts the samples of the windows that are still in the spool, for the next run. */
static uint64_t left_behind(void)
{
	struct spool *s = send_spool_new(spool_dir, true);
	struct spool_item *found = NULL, *i, *next;
	uint64_t n = 0;

	assert_int_equal(send_spool_scan(s, &found), 0);
	DL_FOREACH_SAFE(found, i, next)
	{
		n += N_SAMPLES;
		send_spool_item_free(i);
	}
	send_spool_free(s);
	return n;
}

/* The next agent finds the windows and adds one, which must not overwrite the old ones. */
static int find(void *arg)
{
	struct spool *s = send_spool_new(spool_dir, true);
	struct spool_item *found = NULL, *i = NULL, *next;
	struct batch *b = one_window();
	uint64_t n = 0, bad = counted("unreadable") + counted("corrupt");
	int r = send_spool_scan(s, &found);

	(void)arg;
	if (r) {
		assert_null(found);
	} else {
		assert_int_equal(send_spool_put(s, b, SPOOL_SEVERAL_NS, &i), 0);
		DL_APPEND(found, i);
		i = NULL;
		if (send_spool_take_losses(s, &i) == 0 && i)
			DL_APPEND(found, i);
		for (i = found; i; i = next) {
			next = i->next;
			n += take_item(s, i);
		}
		fault_disarm();
		if (counted("unreadable") + counted("corrupt") == bad)
			/*
			 * The sum may be larger: if a sent window could not be removed, it is sent
			 * again, and the hub recognizes its id.
			 */
			assert_true(n + left_behind() >= 3 * N_SAMPLES);
	}
	profile_batch_free(b);
	send_spool_free(s);
	return r;
}

static void test_spool(void **state)
{
	static const struct fault_row rows[] = {
		{.name = "spool_put", .calls = FAULT_FILES, .before = empty, .run = put_and_get},
		{.name = "spool_scan", .calls = FAULT_FILES, .before = leave_one, .run = find},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		fault_each(&rows[i], NULL);
}

/* No descriptor is free. The window is not damaged, and is sent when a descriptor is free again. */
static void test_no_descriptors(void **state)
{
	struct spool *s = send_spool_new(spool_dir, true);
	struct spool_item *found = NULL, *i = NULL;
	struct batch *b = one_window();
	uint64_t bad = counted("unreadable") + counted("corrupt");
	_cleanup_buf_ struct buf body = {0};

	(void)state;
	empty(NULL);
	assert_int_equal(send_spool_scan(s, &found), 0);
	assert_int_equal(send_spool_put(s, b, SPOOL_SEVERAL_NS, &i), 0);
	fault_arm(FAULT_OPEN, EMFILE, 1, true);
	assert_int_equal(send_spool_get(s, i, &body), -EAGAIN);
	assert_int_equal(fault_disarm(), 1);
	assert_int_equal(counted("unreadable") + counted("corrupt"), bad);
	assert_int_equal(send_spool_get(s, i, &body), 0);
	assert_int_equal(samples_in(&body), N_SAMPLES);
	send_spool_item_free(i);
	profile_batch_free(b);
	send_spool_free(s);
}

/* A window is dropped to make room and cannot be read any more. It is counted as lost. */
static void test_drop_of_what_cannot_be_read(void **state)
{
	struct counter *dropped =
		counter("podflame_samples_dropped_total", "reason", "spool_unreadable");
	struct spool *s = send_spool_new(spool_dir, true);
	struct spool_item *found = NULL, *i = NULL;
	struct batch *b = one_window();
	uint64_t before = counter_get(dropped);
	struct send_lost lost = {0};

	(void)state;
	empty(NULL);
	assert_int_equal(send_spool_scan(s, &found), 0);
	assert_int_equal(send_spool_put(s, b, SPOOL_SEVERAL_NS, &i), 0);
	fault_arm(FAULT_READ, EIO, 1, true);
	send_spool_drop(s, i, "spool_full", &lost);
	fault_disarm();
	assert_int_equal(counter_get(dropped), before + N_SAMPLES);
	assert_int_equal(lost.n_samples, N_SAMPLES);
	assert_int_equal(lost.losses.n, 1);
	assert_string_equal(lost.losses.items[0].reason, "spool_unreadable");
	assert_int_equal(lost.losses.items[0].n, N_SAMPLES);
	profile_losses_done(&lost.losses);
	send_spool_item_free(i);
	profile_batch_free(b);
	send_spool_free(s);
}

/* Returns the number of samples and losses that the next agent finds. */
static uint64_t found_by_the_next(void)
{
	struct spool *s = send_spool_new(spool_dir, true);
	struct spool_item *found = NULL, *account = NULL, *i, *next;
	uint64_t n = 0;

	assert_int_equal(send_spool_scan(s, &found), 0);
	fault_disarm();
	assert_int_equal(send_spool_take_losses(s, &account), 0);
	if (account)
		DL_APPEND(found, account);
	DL_FOREACH_SAFE(found, i, next)
	n += take_item(s, i);
	send_spool_free(s);
	return n;
}

/*
 * The account must be on disk before it is sent, because later the disk may be full, and then the
 * agent cannot write the account.
 */
static void test_account_survives_a_full_disk_and_a_kill(void **state)
{
	struct spool *s = send_spool_new(spool_dir, true);
	struct spool_item *found = NULL, *i = NULL;
	struct batch *b = one_window();

	(void)state;
	empty(NULL);
	assert_int_equal(send_spool_scan(s, &found), 0);
	send_spool_lose(s, b, "spool_full", &(struct send_lost){0});
	fault_arm(FAULT_WRITE, ENOSPC, 1, true);
	assert_int_equal(send_spool_take_losses(s, &i), 0);
	fault_disarm();
	send_spool_item_free(i);
	send_spool_free(s);
	assert_int_equal(found_by_the_next(), N_SAMPLES);
	profile_batch_free(b);
}

/*
 * The account cannot be read at the start, because no descriptor is free for a moment or the disk
 * fails. It stays unchanged.
 */
static void test_account_that_cannot_be_read_now(void **state)
{
	static const struct {
		enum fault_call call;
		int error;
		unsigned n;
	} faults[] = {{FAULT_OPEN, EMFILE, 2}, {FAULT_READ, EIO, 1}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		uint64_t corrupt = counted("corrupt");

		leave_one(NULL);
		fault_arm(faults[i].call, faults[i].error, faults[i].n, false);
		assert_int_equal(found_by_the_next(), 2 * N_SAMPLES);
		assert_int_equal(counted("corrupt"), corrupt);
	}
}

/*
 * The account of an earlier run is dropped to make room, like a window. The profiles in it are not
 * counted as lost again.
 */
static void test_account_is_no_profile(void **state)
{
	struct counter *dropped =
		counter("podflame_profiles_dropped_total", "reason", "spool_full");
	struct spool_item *found = NULL, *account = NULL, *i, *next;
	struct send_lost lost = {0};
	uint64_t before;
	struct spool *s;

	(void)state;
	leave_one(NULL);
	before = counter_get(dropped);
	s = send_spool_new(spool_dir, true);
	assert_int_equal(send_spool_scan(s, &found), 0);
	DL_FOREACH_SAFE(found, i, next)
	{
		send_spool_drop(s, i, "spool_full", &lost);
		send_spool_item_free(i);
	}
	assert_int_equal(counter_get(dropped), before + 1);
	assert_int_equal(lost.n_profiles, 1);
	/* only the samples of the window: those of the account were counted in the earlier run */
	assert_int_equal(lost.n_samples, N_SAMPLES);
	assert_int_equal(lost.losses.n, 0); /* the new account contains them */
	assert_int_equal(send_spool_take_losses(s, &account), 0);
	assert_int_equal(take_item(s, account), 2 * N_SAMPLES);
	send_spool_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spool),
		cmocka_unit_test(test_no_descriptors),
		cmocka_unit_test(test_drop_of_what_cannot_be_read),
		cmocka_unit_test(test_account_survives_a_full_disk_and_a_kill),
		cmocka_unit_test(test_account_that_cannot_be_read_now),
		cmocka_unit_test(test_account_is_no_profile),
	};
	int r;

	if (testdir_make(dir))
		return 1;
	snprintf(spool_dir, sizeof(spool_dir), "%s/spool", dir);
	r = cmocka_run_group_tests_name("spool_faults", tests, NULL, NULL);
	return testdir_remove(dir) ? 1 : r;
}
