/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What record writes of the event rdma: folded text has only the bytes of the send queue; a value
 * has a limit. The name of the file says its format.
 */
#include "cli/record.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/testdir.h"

#define OPERATIONS 7 /* the values of the label rdma_operation: enum pf_rdma_operation */

static char dir[TESTDIR_BYTES];

static int dir_make(void **state)
{
	(void)state;
	return testdir_make(dir);
}

static int dir_remove(void **state)
{
	(void)state;
	return testdir_remove(dir);
}

/* All operations have the same stack. */
static void add(struct recording *r, unsigned operation, uint64_t bytes)
{
	const struct raw_labels labels = {.mask = 1u << LABEL_RDMA_OPERATION,
					  .numbers = {[LABEL_RDMA_OPERATION] = operation}};
	const struct raw_sample s = {.event = EVENT_RDMA,
				     .tgid = 8,
				     .tid = 8,
				     .n = 1,
				     .value = bytes,
				     .labels = &labels};
	const struct frame frame = {.kind = FRAME_APP, .name = "post"};
	const struct raw_names names = {.leader_comm = "mpi", .thread_comm = "mpi"};
	uint32_t stack;

	assert_int_equal(profile_batch_stack(r->batch, &frame, 1, &stack), 0);
	assert_int_equal(cli_record_add(r, &s, &names, stack), 0);
}

/* Adds 2^operation bytes of each operation. */
static void add_each(struct recording *r)
{
	for (unsigned i = 0; i < OPERATIONS; i++)
		add(r, i, 1ull << i);
}

/* Adds more than a value of a profile can be, as a process may claim. */
static void add_too_much(struct recording *r)
{
	for (unsigned i = 0; i < 3; i++)
		add(r, 0, UINT64_MAX / 2);
}

static char *written(const char *name, void (*add_samples)(struct recording *r))
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);
	struct record_options o = {.event = EVENT_RDMA, .output = path};
	struct recording r = {.options = &o, .batch = profile_batch_new()};
	char *text = NULL;
	size_t n;

	profile_losses_add(&r.lost, 0, "ring_full", 3);
	add_samples(&r);
	assert_int_equal(cli_record_write(&r), 0);
	assert_int_equal(file_read(AT_FDCWD, path, 1 << 20, &text, &n), 0);
	profile_losses_done(&r.lost);
	cli_record_rows_free(&r);
	profile_batch_free(r.batch);
	return text;
}

static void folded_text_has_the_send_queue(void **state)
{
	_cleanup_free_ char *text = written("a.folded", add_each);

	(void)state;
	/* 1 + 2 + 4 + 8 + 16: send, write, read, atomic, other; without receive and register */
	assert_string_equal(text, "mpi;[p] mpi;post 31\n");
}

static void a_picture_has_the_stacks(void **state)
{
	_cleanup_free_ char *text = written("a.svg", add_each);

	(void)state;
	assert_non_null(strstr(text, "<title>rdma, from "));
	assert_non_null(strstr(text, "<title>all: 31.00 B (100.00 %)</title>"));
	assert_non_null(strstr(text, "<title>[p] mpi: 31.00 B (100.00 %)</title>"));
	assert_non_null(strstr(text, "<title>post: 31.00 B (100.00 %)</title>"));
}

static void values_stop_at_the_greatest(void **state)
{
	_cleanup_free_ char *text = written("b.folded", add_too_much);

	(void)state;
	assert_string_equal(text, "mpi;[p] mpi;post 9007199254740992\n"); /* PROFILE_MAX_VALUE */
}

/* The ending chooses the format, also of those that only the table of formats knows. */
static void files_as_those_of_the_hub(void **state)
{
	_cleanup_free_ char *text = written("c.speedscope.json", add_each), *otlp = NULL;
	_cleanup_free_ char *again = written("c.folded.txt", add_each);

	(void)state;
	assert_non_null(strstr(text, "\"name\":\"rdma: lost: 3 ring_full\""));
	assert_non_null(strstr(text, "\"name\":\"post\""));
	assert_string_equal(again, "mpi;[p] mpi;post 31\n");
	otlp = written("c.otlp", add_each);
	assert_int_equal(otlp[0], 0x0a); /* ProfilesData.resource_profiles */
	assert_int_equal(cli_record_form("a.png", NULL), RECORD_UNKNOWN);
	assert_int_equal(cli_record_form("a.pb.gz", NULL), RECORD_FILE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(folded_text_has_the_send_queue),
					   cmocka_unit_test(a_picture_has_the_stacks),
					   cmocka_unit_test(files_as_those_of_the_hub),
					   cmocka_unit_test(values_stop_at_the_greatest)};

	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
