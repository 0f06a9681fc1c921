// SPDX-License-Identifier: Apache-2.0
/* Which stacks and names of earlier drains a later drain gets: for how long, and how many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "node/probe/internal.h"

/*
 * Returns a drain as drain.c has it while frames are still offsets. It has at most one stack, of
 * `depth` frames.
 */
static struct drain *drain_of(uint64_t stack, size_t depth, const struct raw_sample *samples,
			      size_t n)
{
	struct drain *d = sample_drain_new(1 << 20);

	/* So that no stack has the offset 0. */
	assert_int_equal(buf_add(d->memory, &(struct raw_frame){}, sizeof(struct raw_frame)), 0);
	if (stack) {
		d->stacks = xmalloc(sizeof(*d->stacks));
		d->stacks[0] = (struct raw_stack){.hash = stack, .n = depth};
		d->stacks[0].frames = (const struct raw_frame *)(uintptr_t)d->memory->len;
		d->stacks[0].end_reason = "truncated";
		d->n_stacks = 1;
	}
	for (size_t i = 0; i < depth; i++) {
		struct raw_frame f = {.address = stack + i};

		assert_int_equal(buf_add(d->memory, &f, sizeof(f)), 0);
	}
	d->samples = n ? xmemdup(samples, n * sizeof(*samples)) : NULL;
	d->n_samples = n;
	return d;
}

static void add_names(struct drain *d, uint64_t hash, const char *comm)
{
	struct raw_names n = {.hash = hash};

	snprintf(n.thread_comm, sizeof(n.thread_comm), "%s", comm);
	d->names = xmemdup(&n, sizeof(n));
	d->n_names = 1;
}

static struct raw_sample wait_of(uint64_t stack)
{
	return (struct raw_sample){.event = EVENT_OFF_CPU, .ustack = stack, .n = 1};
}

static void check_stack(const struct drain *d, uint64_t hash, size_t depth)
{
	const struct raw_stack *s = sample_drain_stack(d, hash);
	const struct raw_frame *f;

	assert_non_null(s);
	assert_int_equal(s->n, depth);
	assert_string_equal(s->end_reason, "truncated");
	f = (const struct raw_frame *)(d->memory->data + (uintptr_t)s->frames);
	for (size_t i = 0; i < depth; i++)
		assert_int_equal(f[i].address, hash + i);
}

/*
 * Passes a drain with this stack and these samples; one second passes. Returns how many records
 * were lost.
 */
static uint64_t pass(struct drain_cache *h, uint64_t *now, uint64_t stack,
		     const struct raw_sample *s)
{
	struct drain *d = drain_of(stack, 3, s, s ? 1 : 0);
	uint64_t n_lost;

	probes_cache_pass(h, d, *now, true);
	*now += NSEC_PER_SEC;
	n_lost = profile_losses_sum(&d->lost_records);
	sample_drain_free(d);
	return n_lost;
}

/* A thread waits for two minutes. Its stack was sent once, and each drain refers to that stack. */
static void found_while_something_refers_to_it(void **state)
{
	struct drain_cache *h = probes_cache_new(1 << 20);
	struct raw_sample s = wait_of(100);
	uint64_t now = NSEC_PER_SEC;

	(void)state;
	pass(h, &now, 100, NULL);
	for (int i = 0; i < 120; i++) {
		/* Other stacks come and go, so that the items must be sorted. */
		struct drain *d = drain_of(1000 - i, 2, &s, 1);

		probes_cache_pass(h, d, now, true);
		assert_int_equal(d->n_stacks, 2);
		check_stack(d, 100, 3);
		check_stack(d, 1000 - i, 2);
		now += NSEC_PER_SEC;
		sample_drain_free(d);
	}
	probes_cache_free(h);
}

/* empty: a sample of stack 100 that only refers to it. The cache drops the sample. */
static void check_empty_keeps(struct raw_sample empty)
{
	struct drain_cache *h = probes_cache_new(1 << 20);
	struct raw_sample both[2] = {empty, {.event = EVENT_MEM_INUSE}}, s = empty;
	uint64_t now = NSEC_PER_SEC;
	struct drain *d;

	pass(h, &now, 100, NULL);
	for (int i = 0; i < 60; i++) {
		d = drain_of(0, 0, both, 2);
		probes_cache_pass(h, d, now, true);
		/* The empty snapshot of mem-inuse is not dropped. */
		assert_int_equal(d->n_samples, 1);
		assert_int_equal(d->samples[0].event, EVENT_MEM_INUSE);
		now += NSEC_PER_SEC;
		sample_drain_free(d);
	}
	s.n = 1;
	d = drain_of(0, 0, &s, 1);
	probes_cache_pass(h, d, now, true);
	assert_int_equal(d->n_samples, 1);
	check_stack(d, 100, 3);
	sample_drain_free(d);
	probes_cache_free(h);
}

/* minBlock is a minute, so the wait is not counted before that. */
static void an_empty_wait_keeps_its_stack(void **state)
{
	struct raw_sample empty = wait_of(100);
	struct drain_cache *h;
	struct drain *d;

	(void)state;
	empty.n = 0;
	check_empty_keeps(empty);
	/* Empty waits are also dropped if nothing needs to be kept. */
	h = probes_cache_new(1 << 20);
	d = drain_of(0, 0, &empty, 1);
	probes_cache_pass(h, d, NSEC_PER_SEC, false);
	assert_int_equal(d->n_samples, 0);
	sample_drain_free(d);
	probes_cache_free(h);
}

/* A kernel of a GPU runs for a minute. Until it ends, the launch has an empty sample. */
static void a_launch_without_work_keeps_its_stack(void **state)
{
	(void)state;
	check_empty_keeps((struct raw_sample){.event = EVENT_ON_GPU, .ustack = 100});
}

static void added_once(void **state)
{
	struct drain_cache *h = probes_cache_new(1 << 20);
	struct raw_sample s[3] = {wait_of(100), wait_of(100), wait_of(100)};
	uint64_t now = NSEC_PER_SEC;
	struct drain *d;

	(void)state;
	s[2].kstack = 100;
	pass(h, &now, 100, NULL);
	for (int i = 0; i < 3; i++) {
		d = drain_of(0, 0, s, 3);
		probes_cache_pass(h, d, now, true);
		assert_int_equal(d->n_stacks, 1);
		sample_drain_free(d);
		/* The kernel sent the stack again. */
		d = drain_of(100, 3, s, 3);
		probes_cache_pass(h, d, now, true);
		assert_int_equal(d->n_stacks, 1);
		sample_drain_free(d);
	}
	probes_cache_free(h);
}

static void forgotten_when_nothing_has(void **state)
{
	struct drain_cache *h = probes_cache_new(1 << 20);
	uint64_t now = NSEC_PER_SEC;

	(void)state;
	pass(h, &now, 100, NULL);
	assert_true(probes_cache_bytes(h) > 0);
	now += 13 * NSEC_PER_SEC;
	pass(h, &now, 0, NULL);
	assert_true(probes_cache_bytes(h) > 0);
	now += 2 * NSEC_PER_SEC;
	pass(h, &now, 0, NULL);
	assert_int_equal(probes_cache_bytes(h), 0);
	probes_cache_free(h);
}

/* Samples of on-cpu are counted at once, so no later drain refers to their stacks. */
static void what_only_ticks_refer_to_is_not_held(void **state)
{
	struct drain_cache *h = probes_cache_new(1 << 20);
	struct raw_sample tick = wait_of(100), both[2] = {wait_of(100), wait_of(100)};
	uint64_t now = NSEC_PER_SEC;
	struct drain *d;

	(void)state;
	tick.event = both[0].event = EVENT_ON_CPU;
	pass(h, &now, 100, &tick);
	assert_int_equal(probes_cache_bytes(h), 0);
	d = drain_of(100, 3, both, 2);
	probes_cache_pass(h, d, now, true);
	assert_true(probes_cache_bytes(h) > 0);
	sample_drain_free(d);
	probes_cache_free(h);
}

static void names_and_calls_are_held_too(void **state)
{
	struct drain_cache *h = probes_cache_new(1 << 20);
	struct raw_sample s = wait_of(0);
	struct drain *d = drain_of(0, 0, NULL, 0);

	(void)state;
	add_names(d, 7, "worker");
	d->contexts = xmemdup(&(struct raw_context){.hash = 9,
						    .link = {.span_id = {5}},
						    .labels = {.mask = 1, .numbers = {6}}},
			      sizeof(*d->contexts));
	d->n_contexts = 1;
	probes_cache_pass(h, d, NSEC_PER_SEC, true);
	sample_drain_free(d);
	s.names = 7;
	s.ctx = 9;
	d = drain_of(0, 0, &s, 1);
	probes_cache_pass(h, d, 2 * NSEC_PER_SEC, true);
	assert_string_equal(sample_drain_names(d, 7)->thread_comm, "worker");
	probes_contexts_link(d);
	assert_int_equal(d->samples[0].link->span_id[0], 5);
	assert_int_equal(d->samples[0].labels->numbers[0], 6);
	sample_drain_free(d);
	probes_cache_free(h);
}

static struct raw_context with_device(uint64_t hash, uint64_t text)
{
	return (struct raw_context){.hash = hash,
				    .labels = {.mask = 1u << LABEL_RDMA_DEVICE,
					       .numbers = {[LABEL_RDMA_DEVICE] = text}}};
}

/*
 * The text of a label is held as long as samples refer to it, whether the kernel has sent the
 * label's record again or not.
 */
static void texts_of_labels_are_held(void **state)
{
	struct raw_context first = with_device(9, 70), other = with_device(10, 70);
	const struct raw_text text = {.hash = 70, .text = "mlx5_0"};
	struct drain_cache *h = probes_cache_new(1 << 20);
	struct raw_sample s = {.event = EVENT_RDMA, .n = 1};
	struct drain *d = drain_of(0, 0, NULL, 0);

	(void)state;
	d->contexts = xmemdup(&first, sizeof(first));
	d->texts = xmemdup(&text, sizeof(text));
	d->n_contexts = d->n_texts = 1;
	probes_cache_pass(h, d, NSEC_PER_SEC, true);
	assert_int_equal(d->n_texts, 1);
	sample_drain_free(d);
	for (unsigned i = 2; i < 40; i++) {
		s.ctx = i % 2 ? 9 : 10;
		d = drain_of(0, 0, &s, 1);
		if (s.ctx == 10) { /* a new record that refers to the old text */
			d->contexts = xmemdup(&other, sizeof(other));
			d->n_contexts = 1;
		}
		probes_cache_pass(h, d, i * NSEC_PER_SEC, true);
		probes_contexts_link(d);
		assert_string_equal(d->samples[0].labels->texts[LABEL_RDMA_DEVICE], "mlx5_0");
		sample_drain_free(d);
	}
	d = drain_of(0, 0, NULL, 0);
	probes_cache_pass(h, d, 60 * NSEC_PER_SEC, true);
	assert_int_equal(probes_cache_bytes(h), 0);
	sample_drain_free(d);
	probes_cache_free(h);
}

static uint64_t refused(void)
{
	return counter_get(counter("podflame_records_dropped_total", "reason", "held_full"));
}

static void the_limit_holds_and_is_counted(void **state)
{
	struct drain_cache *h = probes_cache_new(2000);
	struct raw_sample s = wait_of(1);
	uint64_t now = NSEC_PER_SEC, before = refused(), n_lost = 0;

	(void)state;
	for (uint64_t i = 0; i < 10; i++) {
		n_lost += pass(h, &now, 1 + i * 100, NULL);
		assert_true(probes_cache_bytes(h) <= 2000);
	}
	assert_true(refused() > before);
	assert_int_equal(n_lost, refused() - before);
	/* The item that came first stays as long as samples refer to it. */
	for (int i = 0; i < 30; i++) {
		struct drain *d = drain_of(0, 0, &s, 1);

		probes_cache_pass(h, d, now, true);
		check_stack(d, 1, 3);
		now += NSEC_PER_SEC;
		sample_drain_free(d);
	}
	/* The other items were dropped, so there is room again. */
	before = refused();
	pass(h, &now, 5000, NULL);
	assert_int_equal(refused(), before);
	probes_cache_free(h);
}

/*
 * A namespace has stacks for which there is no room. Another one, which comes later, finds its
 * stack again.
 */
static void one_namespace_leaves_room(void **state)
{
	enum { GREEDY = 7, VICTIM };
	struct drain_cache *h = probes_cache_new(4000);
	struct raw_sample s = wait_of(1);
	uint64_t now = NSEC_PER_SEC, before = refused();
	struct drain *d;

	(void)state;
	for (uint64_t i = 0; i < 20; i++) {
		d = drain_of(100 + i * 100, 3, NULL, 0);
		d->stacks[0].share = GREEDY;
		probes_cache_pass(h, d, now, true);
		sample_drain_free(d);
	}
	assert_true(refused() > before);
	assert_int_equal(probes_cache_shares(h)->refused[GREEDY], PF_ALL_EVENTS);
	before = refused();
	d = drain_of(1, 3, NULL, 0);
	d->stacks[0].share = VICTIM;
	probes_cache_pass(h, d, now, true);
	sample_drain_free(d);
	assert_int_equal(refused(), before);
	assert_int_equal(probes_cache_shares(h)->refused[VICTIM], 0);
	d = drain_of(0, 0, &s, 1);
	probes_cache_pass(h, d, now, true);
	check_stack(d, 1, 3);
	sample_drain_free(d);
	probes_cache_free(h);
}

/* With on-cpu alone, no item is kept, and items that were kept are freed. */
static void nothing_is_kept_unless_asked(void **state)
{
	struct drain_cache *h = probes_cache_new(1 << 20);
	uint64_t now = NSEC_PER_SEC;
	struct drain *d = drain_of(100, 3, NULL, 0);

	(void)state;
	probes_cache_pass(h, d, now, false);
	assert_int_equal(probes_cache_bytes(h), 0);
	sample_drain_free(d);
	pass(h, &now, 100, NULL);
	d = drain_of(0, 0, NULL, 0);
	probes_cache_pass(h, d, now + 20 * NSEC_PER_SEC, false);
	assert_int_equal(probes_cache_bytes(h), 0);
	sample_drain_free(d);
	probes_cache_free(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(found_while_something_refers_to_it),
		cmocka_unit_test(an_empty_wait_keeps_its_stack),
		cmocka_unit_test(a_launch_without_work_keeps_its_stack),
		cmocka_unit_test(added_once),
		cmocka_unit_test(forgotten_when_nothing_has),
		cmocka_unit_test(what_only_ticks_refer_to_is_not_held),
		cmocka_unit_test(names_and_calls_are_held_too),
		cmocka_unit_test(texts_of_labels_are_held),
		cmocka_unit_test(the_limit_holds_and_is_counted),
		cmocka_unit_test(one_namespace_leaves_room),
		cmocka_unit_test(nothing_is_kept_unless_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
