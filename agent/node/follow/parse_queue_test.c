/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which file the queue gives to the parser next. This thread does the work of the worker. A file
 * has a number as its name.
 */
#include "node/follow/internal.h"
#include "node/work/testworkers.h"

#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t looked_at[64];
static size_t n_looked_at;
static struct process_id told[64];
static size_t n_told;

/* Files with an odd number take long. */
static int index_file(struct files *f, const struct mapping *m, struct elf_index **ret)
{
	(void)f;
	(void)ret;
	looked_at[n_looked_at++] = m->inode;
	if (m->inode % 2)
		usleep(150000);
	return -ENOEXEC;
}

static void find_debug(struct files *f, const struct mapping *m, int root_fd)
{
	(void)f;
	looked_at[n_looked_at++] = m->inode * 1000 + (uint64_t)root_fd;
}

static void expect(struct files *f, const struct mapping *m, uint64_t owner)
{
	(void)f;
	(void)m;
	(void)owner;
}

static uint64_t root_of(int root_fd)
{
	return (uint64_t)root_fd;
}

static const struct parse_ops ops = {index_file, find_debug, expect, root_of, NULL};

static void note(struct process_id who, void *arg)
{
	(void)arg;
	told[n_told++] = who;
}

static struct work node_work;

static struct follow_queue *start(bool debug)
{
	n_looked_at = n_told = 0;
	testwork(&node_work);
	return follow_queue_new(&node_work, NULL, &ops, NULL, debug, note, NULL);
}

static struct mappings *file(uint64_t inode, uint64_t bytes)
{
	struct mappings *m = xcalloc(1, sizeof(*m));

	m->items = xcalloc(1, sizeof(*m->items));
	m->items[0] = (struct mapping){.inode = inode, .file_bytes = bytes, .fd = -1};
	m->n = 1;
	m->refs = 1;
	m->root_fd = -1;
	return m;
}

/* The namespace of a cgroup: ten cgroups each have one. */
static struct charged charged(uint64_t cgroup_id)
{
	return (struct charged){1 + cgroup_id / 10, cgroup_id};
}

static void add(struct follow_queue *q, uint64_t inode, uint64_t bytes, uint64_t cgroup_id,
		uint64_t tgid)
{
	const struct charged c = charged(cgroup_id);
	struct mappings *m = file(inode, bytes);
	struct process_id who = {1, tgid};

	assert_true(follow_queue_add(q, m, 0, &c, &who));
	proc_mappings_unref(m);
}

static void work(size_t n)
{
	for (; n && posted.n; n--) {
		assert_int_equal(posted.n, 1); /* only one file is parsed at a time */
		posted_run();
	}
}

static void assert_order(const uint64_t *want, size_t n)
{
	assert_int_equal(n_looked_at, n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(looked_at[i], want[i]);
}

static void small_files_first(void **state)
{
	struct follow_queue *q = start(false);

	(void)state;
	add(q, 2, 3000, 1, 1);
	add(q, 4, 1000, 1, 1);
	add(q, 6, 2000, 2, 2);
	follow_queue_start(q);
	work(10);
	assert_order((const uint64_t[]){4, 6, 2}, 3);
	follow_queue_free(q);
}

static void a_file_is_looked_at_once_for_all(void **state)
{
	struct follow_queue *q = start(false);

	(void)state;
	add(q, 2, 1000, 1, 1);
	add(q, 2, 1000, 2, 2);
	add(q, 2, 1000, 2, 2);
	follow_queue_start(q);
	work(10);
	assert_int_equal(n_looked_at, 1);
	assert_int_equal(n_told, 2);
	assert_int_equal(told[0].tgid, 1);
	assert_int_equal(told[1].tgid, 2);
	follow_queue_free(q);
}

/* Each pod of an image has its files on another device, but they have the same tags. */
static void a_file_of_an_image_is_looked_at_once_for_all_pods(void **state)
{
	struct follow_queue *q = start(false);
	struct mappings *pods[2];

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		const struct charged c = charged(i);
		const struct process_id who = {1, i};

		pods[i] = file(2, 1000);
		pods[i]->items[0].tag = PF_TAG_FIRST;
		pods[i]->items[0].dev_minor = i;
		assert_true(follow_queue_add(q, pods[i], 0, &c, &who));
	}
	follow_queue_start(q);
	work(10);
	assert_int_equal(n_looked_at, 1);
	assert_int_equal(n_told, 2);
	for (size_t i = 0; i < 2; i++)
		proc_mappings_unref(pods[i]);
	follow_queue_free(q);
}

/*
 * Files of one pod take long on purpose. A large file of another pod does not wait for all of them.
 */
static void who_cost_much_waits(void **state)
{
	struct follow_queue *q = start(false);

	(void)state;
	for (uint64_t i = 0; i < 4; i++)
		add(q, 1 + 2 * i, 10 + i, 66, 6);
	follow_queue_start(q);
	work(1);
	add(q, 100, 1 << 20, 1, 1); /* while the second file is being parsed */
	work(10);
	assert_order((const uint64_t[]){1, 3, 100, 5, 7}, 5);
	/* the order of a file that both cgroups use depends on the cgroup that cost less */
	n_looked_at = 0;
	add(q, 200, 10, 66, 6);
	add(q, 202, 20, 66, 6);
	add(q, 202, 20, 1, 1);
	follow_queue_start(q);
	work(10);
	assert_order((const uint64_t[]){202, 200}, 2);
	follow_queue_free(q);
}

/* For a new pod of the namespace, the time counts that files of the other pods have taken. */
static void new_pods_do_not_begin_at_nothing(void **state)
{
	struct follow_queue *q = start(false);

	(void)state;
	add(q, 1, 10, 66, 6);
	add(q, 3, 10, 66, 6);
	follow_queue_start(q);
	work(2);
	add(q, 5, 10, 67, 7);
	add(q, 100, 1 << 20, 1, 1);
	follow_queue_start(q);
	work(10);
	assert_order((const uint64_t[]){1, 3, 100, 5}, 4);
	follow_queue_free(q);
}

/*
 * The debug files of one container are not used for processes of another one, so the queue has an
 * entry for each root directory.
 */
static void debug_files_belong_to_a_root(void **state)
{
	struct follow_queue *q = start(true);
	struct mappings *m = file(2, 1000);
	const struct charged c = charged(1);

	(void)state;
	for (int root = 5; root <= 6; root++) {
		m->root_fd = root;
		follow_queue_add(q, m, 0, &c, NULL);
		follow_queue_add(q, m, 0, &c, NULL);
		m->root_fd = 5;
	}
	follow_queue_start(q);
	work(10);
	assert_int_equal(n_looked_at, 2);
	assert_int_equal(n_told, 0);
	follow_queue_free(q);
	m->root_fd = -1;
	proc_mappings_unref(m);
}

/* Adds files for which no process waits. Returns how many of them the queue took. */
static size_t add_many(struct follow_queue *q, uint64_t from, uint64_t n, uint64_t cgroup_id)
{
	const struct charged c = charged(cgroup_id);
	size_t added = 0;

	for (uint64_t i = from; i < from + n; i++) {
		struct mappings *m = file(2 * i, 1000);

		added += follow_queue_add(q, m, 0, &c, NULL);
		proc_mappings_unref(m);
	}
	return added;
}

/* A pod with very many files fills only its own part of the queue, and so does a namespace. */
static void a_cgroup_has_a_share_of_the_queue(void **state)
{
	struct counter *skipped =
		counter("podflame_symbol_files_skipped_total", "reason", "queue_full");
	struct follow_queue *q = start(false);
	uint64_t before = counter_get(skipped);

	(void)state;
	assert_int_equal(add_many(q, 1, 10000, 66), 4096);
	assert_int_equal(counter_get(skipped) - before, 10000 - 4096);
	for (uint64_t k = 0; k < 3; k++)
		assert_int_equal(add_many(q, 10001 + k * 4096, 4096, 60 + k), 4096);
	assert_int_equal(add_many(q, 40000, 1, 63), 0);
	add(q, 1 << 20, 1 << 20, 1, 1);
	/* a file that is being parsed makes room for another one */
	follow_queue_start(q);
	work(1);
	add(q, 1 << 21, 1000, 66, 6);
	follow_queue_stop(q);
	work(10);
	follow_queue_free(q);
}

/* Many pods have very many files each: the queue has a limit for all files together. */
static void the_queue_has_an_end(void **state)
{
	struct counter *skipped =
		counter("podflame_symbol_files_skipped_total", "reason", "queue_full");
	struct follow_queue *q = start(false);
	uint64_t before = counter_get(skipped);
	size_t n = 0;

	(void)state;
	for (uint64_t k = 0; k < 9; k++)
		n += add_many(q, 1 + k * 4096, 4096, 100 + 10 * k);
	assert_int_equal(n, 32768);
	assert_int_equal(counter_get(skipped) - before, 4096);
	follow_queue_free(q);
}

static void nothing_after_the_end(void **state)
{
	struct follow_queue *q = start(false);

	(void)state;
	add(q, 2, 1000, 1, 1);
	add(q, 4, 1000, 1, 1);
	follow_queue_start(q);
	follow_queue_stop(q);
	work(10);
	assert_int_equal(n_looked_at, 0);
	follow_queue_free(q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_files_first),
		cmocka_unit_test(a_file_is_looked_at_once_for_all),
		cmocka_unit_test(a_file_of_an_image_is_looked_at_once_for_all_pods),
		cmocka_unit_test(who_cost_much_waits),
		cmocka_unit_test(new_pods_do_not_begin_at_nothing),
		cmocka_unit_test(debug_files_belong_to_a_root),
		cmocka_unit_test(a_cgroup_has_a_share_of_the_queue),
		cmocka_unit_test(the_queue_has_an_end),
		cmocka_unit_test(nothing_after_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
