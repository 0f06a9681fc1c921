/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which samples a drain gives up that is more work than the pipeline worker can do in time, and for
 * which programs it asks. Needs neither the kernel's programs nor files.
 */
#include "node/pipeline/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define WINDOW	     (10 * NSEC_PER_SEC)
#define N_OWNERS     3
#define STACK	     5
#define DEEP	     6 /* a stack of DEEP_FRAMES frames; STACK has one */
#define DEEP_FRAMES  99
#define SHALLOW_WORK 2	 /* pipeline_work() of a sample with STACK */
#define DEEP_WORK    100 /* the same, with DEEP */

static struct windows *windows;
static struct owner *owners[N_OWNERS]; /* the first two are of the same namespace */
static struct feed feed;
static struct feed_answer answer;
static size_t cap_samples;

/* Begins a drain. The cgroup of each owner is its index. */
static void begin(void)
{
	static const struct raw_frame frames[DEEP_FRAMES] = {{.exec_id = 1, .address = 0x1000}};
	static const struct raw_stack stacks[] = {{.hash = STACK, .frames = frames, .n = 1},
						  {.hash = DEEP, .frames = frames, DEEP_FRAMES}};
	struct drain *d = sample_drain_new(0);

	feed = (struct feed){.drain = d, .full = true};
	cap_samples = 0;
	d->from_ns = fold_next_flush_ns(windows->fold) - 2 * NSEC_PER_SEC;
	d->to_ns = d->from_ns + NSEC_PER_SEC;
	d->stacks = xmemdup(stacks, sizeof(stacks));
	d->n_stacks = ARRAY_SIZE(stacks);
	feed.owners = xcalloc(N_OWNERS, sizeof(*feed.owners));
	for (size_t i = 0; i < N_OWNERS; i++)
		feed.owners[feed.n_owners++] = (struct attribution){
			.cgroup_id = i, .until_ns = UINT64_MAX, .owner = proc_owner_ref(owners[i])};
}

static int set_up(void **state)
{
	static const struct fold_config config = {
		.node_uid = "u", .boot_id = "b", .node_name = "n", .window_ns = WINDOW};
	static const char *const ids[N_OWNERS] = {"a1", "a2", "b"};

	(void)state;
	assert_int_equal(pipeline_windows_new(&config, NULL, NULL, &windows), 0);
	for (size_t i = 0; i < N_OWNERS; i++) {
		owners[i] = xcalloc(1, sizeof(*owners[i]));
		*owners[i] = (struct owner){.refs = 1,
					    .off_keep = UINT32_MAX,
					    .ns_hash = i < 2 ? 7 : 8,
					    .container_id = xstrdup(ids[i])};
	}
	begin();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	pipeline_feed_done(&feed);
	pipeline_feed_answer_done(&answer);
	answer = (struct feed_answer){0};
	pipeline_windows_free(windows);
	for (size_t i = 0; i < N_OWNERS; i++)
		proc_owner_unref(owners[i]);
	return 0;
}

static void add(uint64_t cgroup_id, uint64_t stack, size_t n)
{
	struct drain *d = feed.drain;

	for (size_t i = 0; i < n; i++) {
		GROW(d->samples, d->n_samples, cap_samples);
		d->samples[d->n_samples++] = (struct raw_sample){.event = EVENT_ON_CPU,
								 .cgroup_id = cgroup_id,
								 .ustack = stack,
								 .tgid = 42,
								 .cpu = UINT32_MAX,
								 .n = 1,
								 .value = 1,
								 .first_ns = d->from_ns,
								 .last_ns = d->from_ns};
	}
}

static size_t kept_of(uint64_t cgroup_id)
{
	size_t n = 0;

	for (size_t i = 0; i < feed.drain->n_samples; i++)
		n += feed.drain->samples[i].cgroup_id == cgroup_id;
	return n;
}

/* Folds the drain in its first pass, in which nothing is missing. */
static void fold(uint64_t room)
{
	feed.room = room;
	feed.files_asked = true;
	pipeline_windows_fold(windows, &feed, &answer);
	assert_false(answer.waits);
}

static uint64_t lost_of(const struct batch *b, const char *container_id)
{
	uint64_t n = 0;

	for (size_t i = 0; i < b->n_profiles; i++) {
		const struct profile *p = b->profiles[i];

		if (!str_equal(profile_tag_get(p, "container_id"), container_id))
			continue;
		for (size_t k = 0; k < p->n_losses; k++)
			n += p->losses[k].n_samples;
	}
	return n;
}

/* One namespace has many samples in two containers. The other one loses none of its few. */
static void who_has_few_keeps_all(void **state)
{
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	struct counter *c = counter("podflame_samples_dropped_total", "reason", "pipeline_full");
	uint64_t before = counter_get(c);

	(void)state;
	add(0, STACK, 600);
	add(2, STACK, 50);
	add(1, STACK, 300);
	fold(200 * SHALLOW_WORK);
	assert_int_equal(kept_of(2), 50);
	/* what is left of the room, for each container by how much it had */
	assert_int_equal(kept_of(0), 100);
	assert_int_equal(kept_of(1), 50);
	assert_int_equal(answer.work, 200 * SHALLOW_WORK);
	assert_int_equal(counter_get(c), before + 750);

	/* it is told whose samples they were */
	assert_int_equal(answer.n_refused, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(answer.refused[i].ns, 7);
		assert_int_equal(answer.refused[i].event, EVENT_ON_CPU);
		assert_int_equal(answer.refused[i].table, SHARED_WORK);
	}
	b = pipeline_windows_flush(windows);
	assert_int_equal(lost_of(b, "a1"), 500);
	assert_int_equal(lost_of(b, "a2"), 250);
	assert_int_equal(lost_of(b, "b"), 0);
}

/* A stack of many frames is as much work as many of few frames. */
static void deep_stacks_are_more_work(void **state)
{
	(void)state;
	add(0, DEEP, 40);
	add(2, STACK, 400);
	fold(20 * DEEP_WORK);
	assert_int_equal(kept_of(2), 400);
	assert_int_equal(kept_of(0), 12);
}

/* Samples without a container have a share of their own. */
static void samples_of_nobody_have_a_share(void **state)
{
	(void)state;
	add(77, STACK, 100);
	add(0, STACK, 10);
	fold(30 * SHALLOW_WORK);
	assert_int_equal(kept_of(77), 20);
	assert_int_equal(kept_of(0), 10);
	assert_int_equal(answer.n_refused, 0);
}

/* Adds a sample of each of n processes. */
static void add_programs(uint64_t cgroup_id, uint32_t first_tgid, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		add(cgroup_id, STACK, 1);
		feed.drain->samples[feed.drain->n_samples - 1].tgid = first_tgid + (uint32_t)i;
	}
}

/*
 * A namespace has samples of very many new programs. The mappings of those of another one are read
 * for this drain, too.
 */
static void new_programs_of_one_namespace_leave_room(void **state)
{
	enum { FEW = 10 };
	struct counter *c = counter("podflame_mappings_dropped_total", "reason", "many_programs");
	uint64_t before = counter_get(c);
	size_t n_few = 0;

	(void)state;
	add_programs(0, 1000, MAX_MISSING);
	add_programs(1, 2000, MAX_MISSING);
	add_programs(2, 3000, FEW);
	pipeline_windows_fold(windows, &feed, &answer);
	assert_true(answer.waits);
	for (size_t i = 0; i < answer.n_missing; i++)
		n_few += answer.missing[i].cgroup_id == 2;
	assert_int_equal(n_few, FEW);
	assert_int_equal(answer.n_missing, MAX_MISSING / 4 * 3 + FEW);
	assert_int_equal(counter_get(c), before + 2 * MAX_MISSING - MAX_MISSING / 4 * 3);
	assert_int_equal(answer.n_refused, 1);
	assert_int_equal(answer.refused[0].ns, 7);
	assert_int_equal(answer.refused[0].table, SHARED_MAPPINGS);
}

static void all_is_kept_if_there_is_room(void **state)
{
	(void)state;
	add(0, STACK, 60);
	add(2, DEEP, 40);
	fold(60 * SHALLOW_WORK + 40 * DEEP_WORK);
	assert_int_equal(feed.drain->n_samples, 100);
	assert_int_equal(answer.n_refused, 0);
	assert_int_equal(answer.work, 60 * SHALLOW_WORK + 40 * DEEP_WORK);
}

static void without_a_limit_all_is_kept(void **state)
{
	(void)state;
	add(0, DEEP, 1000);
	fold(0);
	assert_int_equal(feed.drain->n_samples, 1000);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(who_has_few_keeps_all),
		TEST(deep_stacks_are_more_work),
		TEST(samples_of_nobody_have_a_share),
		TEST(all_is_kept_if_there_is_room),
		TEST(new_programs_of_one_namespace_leave_room),
		TEST(without_a_limit_all_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
