/* SPDX-License-Identifier: Apache-2.0 */
/*
 * While a thread reads debug files, new drains must be accepted, and later their samples must be
 * named. The test replaces the function that reads a file, and decides when each reading ends.
 */
#include "cli/record.h"

#include <setjmp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

static int begun[2], go[2]; /* pipes: begun: a file is being read; go: the reading may end */

static void read_file(struct files *f, const struct mapping *m, int root_fd)
{
	char c = 0;

	(void)f;
	(void)m;
	(void)root_fd;
	if (write(begun[1], &c, 1) == 1)
		(void)!read(go[0], &c, 1); /* also returns when the test closes the pipe */
}

static uint64_t named[16];
static size_t n_named;

static void note_named(struct recording *r, const struct drain *d)
{
	(void)r;
	named[n_named++] = d->number;
}

static const struct record_debug_ops ops = {.read = read_file, .name = note_named};

static struct mapping items[] = {{.fd = 100}, {.fd = 100}, {.fd = 101}, {.fd = -1}};
static struct mappings two_files = {.items = items, .n = ARRAY_SIZE(items), .refs = 1};

static struct drain *numbered(uint64_t number, size_t n_bytes)
{
	struct drain *d = xcalloc(1, sizeof(*d));

	d->number = number;
	d->memory = xcalloc(1, sizeof(*d->memory));
	/* only the length is set: there are no such bytes */
	d->memory->len = n_bytes;
	return d;
}

static void wait_begun(void)
{
	char c;

	assert_int_equal(read(begun[0], &c, 1), 1);
}

static void let_go(size_t n)
{
	while (n--)
		assert_int_equal(write(go[1], "", 1), 1);
}

static int begin(void **state)
{
	struct recording *r = xcalloc(1, sizeof(*r));

	n_named = 0;
	assert_int_equal(pipe(begun), 0);
	assert_int_equal(pipe(go), 0);
	*state = r;
	return cli_record_debug_new(&ops, &r->debug);
}

static int end(void **state)
{
	struct recording *r = *state;

	close(go[1]);
	cli_record_debug_free(r->debug);
	free(r);
	close(go[0]);
	close(begun[0]);
	close(begun[1]);
	return 0;
}

static void samples_wait_for_what_is_being_read_and_drains_do_not(void **state)
{
	struct recording *r = *state;

	cli_record_debug_read(r, &two_files);
	wait_begun();
	assert_true(cli_record_debug_reads(r));
	cli_record_debug_wait(r, numbered(1, 1));
	cli_record_debug_wait(r, numbered(2, 1));
	assert_int_equal(n_named, 0);
	let_go(1);
	/*
	 * the thread reads the other file. It reads each file once, and never a mapping without a
	 * file
	 */
	wait_begun();
	cli_record_debug_wait(r, numbered(3, 1));
	assert_int_equal(n_named, 0);
	let_go(1);
	cli_record_debug_finish(r, -1);
	assert_int_equal(n_named, 3);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(named[i], i + 1);
}

static void nothing_waits_where_nothing_is_read(void **state)
{
	struct recording *r = *state;

	cli_record_debug_wait(r, numbered(1, 1));
	assert_int_equal(n_named, 1);
	cli_record_debug_finish(r, -1);
	assert_int_equal(n_named, 1);
}

static void the_oldest_are_named_where_too_much_waits(void **state)
{
	struct recording *r = *state;

	cli_record_debug_read(r, &two_files);
	wait_begun();
	for (uint64_t i = 1; i <= 4; i++)
		cli_record_debug_wait(r, numbered(i, 20u << 20));
	assert_int_equal(n_named, 1);
	assert_int_equal(named[0], 1);
	let_go(2);
	cli_record_debug_finish(r, -1);
	assert_int_equal(n_named, 4);
	assert_int_equal(named[3], 4);
}

/*
 * Waits until record reports that the second file is left out. Then lets the reading of the first
 * file end.
 */
static void *let_go_once_it_says(void *arg)
{
	struct pollfd p = {.fd = *(int *)arg, .events = POLLIN};
	char text[256] = "";
	size_t n = 0;

	while (!strstr(text, "without the names") && poll(&p, 1, 30000) == 1) {
		ssize_t got = read(p.fd, text + n, sizeof(text) - 1 - n);

		assert_true(got > 0);
		n += (size_t)got;
	}
	let_go(strstr(text, "without the names") ? 1 : 2);
	return NULL;
}

/* A large file takes minutes. A second signal ends the reading. */
static void a_second_signal_leaves_the_rest_out(void **state)
{
	struct recording *r = *state;
	int signals[2], says[2], err = dup(2), n_begun = -1;
	pthread_t other;

	assert_int_equal(pipe(signals), 0);
	assert_int_equal(pipe(says), 0);
	cli_record_debug_read(r, &two_files);
	wait_begun();
	cli_record_debug_wait(r, numbered(1, 1));
	assert_int_equal(pthread_create(&other, NULL, let_go_once_it_says, says), 0);
	assert_int_equal(write(signals[1], "", 1), 1);
	dup2(says[1], 2);
	cli_record_debug_finish(r, signals[0]);
	dup2(err, 2);
	pthread_join(other, NULL);
	assert_int_equal(n_named, 1);
	assert_int_equal(ioctl(begun[0], FIONREAD, &n_begun), 0);
	assert_int_equal(n_begun, 0);
	close(err);
	for (int i = 0; i < 2; i++) {
		close(signals[i]);
		close(says[i]);
	}
}

/*
 * The recording is freed before its end, as after an error: no sample is named, and no memory
 * leaks.
 */
static void what_waits_is_freed(void **state)
{
	struct recording *r = *state;

	cli_record_debug_read(r, &two_files);
	wait_begun();
	cli_record_debug_wait(r, numbered(1, 1));
	let_go(2);
	cli_record_debug_free(TAKE_PTR(r->debug));
	assert_int_equal(n_named, 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(samples_wait_for_what_is_being_read_and_drains_do_not),
		CASE(nothing_waits_where_nothing_is_read),
		CASE(the_oldest_are_named_where_too_much_waits),
		CASE(a_second_signal_leaves_the_rest_out),
		CASE(what_waits_is_freed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
