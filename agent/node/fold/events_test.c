/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events besides on-CPU in windows: waits, snapshots, estimates, throttled time; and the labels of
 * samples. The test sets the clock.
 */
#include "node/fold/fold.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define S      NSEC_PER_SEC
#define MS     NSEC_PER_MSEC
#define OFFSET (UINT64_C(1763700000) * S - 1000 * S) /* wall time minus CLOCK_BOOTTIME */

static struct fold *fold_at(uint64_t boot_ns)
{
	static const struct fold_config config = {.node_uid = "node-uid",
						  .boot_id = "boot",
						  .node_name = "node-a",
						  .cluster_name = "prod-cluster",
						  .window_ns = 10 * S};
	struct fold *f = NULL;
	struct batch *b = NULL;

	assert_int_equal(fold_new(&config, &f), 0);
	assert_int_equal(fold_flush(f, boot_ns, boot_ns + OFFSET, true, &b), 0);
	assert_null(b);
	return f;
}

static struct batch *flush(struct fold *f, uint64_t boot_ns)
{
	struct batch *b = NULL;

	assert_int_equal(fold_flush(f, boot_ns, boot_ns + OFFSET, false, &b), 0);
	return b;
}

static struct owner *new_owner(const char *pod)
{
	struct owner *o = xcalloc(1, sizeof(*o));

	o->refs = 1;
	o->off_keep = UINT32_MAX;
	o->container_id = xstrdup("c0ffee");
	o->pod_uid = xstrdup("uid-1");
	o->tags.items = xcalloc(1, sizeof(*o->tags.items));
	o->tags.items[0] = (struct tag){xstrdup("pod"), xstrdup(pod)};
	o->tags.n = o->tags.cap = 1;
	return o;
}

static struct fold_process process(struct owner *o, uint32_t tgid)
{
	return (struct fold_process){.id = {900 * S, tgid}, .comm = "web", .owner = o};
}

struct added {
	enum event event;
	enum wait wait;
	uint64_t n, value, at_ns;
	const char *function;
};

static void add_labelled(struct fold *f, const struct fold_process *p, const struct added *a,
			 const struct raw_labels *labels)
{
	struct raw_sample s = {.event = a->event,
			       .wait = a->wait,
			       .start_boottime_ns = p->id.start_boottime_ns,
			       .tgid = (uint32_t)p->id.tgid,
			       .tid = (uint32_t)p->id.tgid,
			       .cpu = UINT32_MAX,
			       .n = a->n,
			       .value = a->value,
			       .first_ns = a->at_ns,
			       .last_ns = a->at_ns,
			       .labels = labels};
	struct frame frame = {.kind = FRAME_APP, .name = a->function};
	uint32_t stack = STACK_NONE;

	if (a->function)
		assert_int_equal(profile_batch_stack(fold_batch(f), &frame, 1, &stack), 0);
	fold_add(f, p, &s, NULL, stack);
}

static void add(struct fold *f, const struct fold_process *p, const struct added *a)
{
	add_labelled(f, p, a, NULL);
}

static const struct profile *find(const struct batch *b, enum event e, uint32_t tgid)
{
	const struct profile *found = NULL;

	for (size_t i = 0; b && i < b->n_profiles; i++) {
		const struct profile *p = b->profiles[i];

		if (p->event != e || p->process_id != tgid || p->n_losses)
			continue;
		assert_null(found);
		found = p;
	}
	return found;
}

static const char *function_of(const struct batch *b, const struct profile_sample *s)
{
	return b->stacks[s->stack].frames[0]->name;
}

/* ---- tests ---- */

static void test_waits_are_kept_apart(void **state)
{
	(void)state;
	struct fold *f = fold_at(1000 * S);
	struct fold_process p = process(NULL, 42);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct profile *prof;

	add(f, &p, &(struct added){EVENT_OFF_CPU, WAIT_LOCK, 2, 100, 1001 * S, "f"});
	add(f, &p, &(struct added){EVENT_OFF_CPU, WAIT_RUNQUEUE, 2, 7, 1001 * S, "f"});
	add(f, &p, &(struct added){EVENT_OFF_CPU, WAIT_LOCK, 1, 50, 1002 * S, "f"});
	/* an on-CPU sample of the same process, for which the cause of a wait has no meaning */
	add(f, &p, &(struct added){EVENT_ON_CPU, WAIT_LOCK, 1, 10101, 1002 * S, "f"});
	b = flush(f, 1010 * S);
	prof = find(b, EVENT_OFF_CPU, 42);
	assert_int_equal(prof->n_samples, 2);
	assert_int_equal(prof->samples[0].wait, WAIT_LOCK);
	assert_int_equal(prof->samples[0].value, 150);
	assert_int_equal(prof->samples[0].n_samples, 3);
	assert_int_equal(prof->samples[1].wait, WAIT_RUNQUEUE);
	assert_int_equal(prof->samples[1].value, 7);
	assert_int_equal(prof->period_ns, 0);
	assert_int_equal(find(b, EVENT_ON_CPU, 42)->samples[0].wait, WAIT_NONE);
	fold_free(f);
}

/* A new snapshot replaces the last one. An allocation that it lacks is not in use any more. */
static void test_a_snapshot_replaces_the_one_before(void **state)
{
	(void)state;
	struct fold *f = fold_at(1000 * S);
	struct fold_process p = process(NULL, 42), other = process(NULL, 43);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct profile *prof;

	add(f, &p, &(struct added){EVENT_MEM_INUSE, 0, 1, 1000, 1001 * S, "leak"});
	add(f, &p, &(struct added){EVENT_MEM_INUSE, 0, 1, 500, 1001 * S, "cache"});
	add(f, &other, &(struct added){EVENT_MEM_INUSE, 0, 1, 77, 1001 * S, "other"});
	add(f, &p, &(struct added){EVENT_MEM_INUSE, 0, 2, 2000, 1004 * S, "leak"});
	/* last_ns is equal: the same snapshot */
	add(f, &p, &(struct added){EVENT_MEM_INUSE, 0, 1, 10, 1004 * S, "leak"});
	add(f, &p, &(struct added){EVENT_MEM_INUSE, 0, 9, 9999, 1003 * S, "late"});
	b = flush(f, 1010 * S);
	prof = find(b, EVENT_MEM_INUSE, 42);
	assert_int_equal(prof->n_samples, 1);
	assert_string_equal(function_of(b, &prof->samples[0]), "leak");
	assert_int_equal(prof->samples[0].value, 2010);
	assert_int_equal(prof->samples[0].n_samples, 3);
	assert_int_equal(find(b, EVENT_MEM_INUSE, 43)->samples[0].value, 77);
	fold_free(f);
}

static void test_nothing_lives(void **state)
{
	(void)state;
	struct fold *f = fold_at(1000 * S);
	struct fold_process p = process(NULL, 42);
	_cleanup_(profile_batch_freep) struct batch *a = NULL, *b = NULL;

	add(f, &p, &(struct added){EVENT_MEM_INUSE, 0, 1, 1000, 1001 * S, "f"});
	add(f, &p, &(struct added){EVENT_MEM_INUSE, 0, 0, 0, 1002 * S, NULL});
	a = flush(f, 1010 * S);
	assert_non_null(find(a, EVENT_MEM_INUSE, 42));
	assert_int_equal(find(a, EVENT_MEM_INUSE, 42)->n_samples, 0);
	assert_string_equal(find(a, EVENT_MEM_INUSE, 42)->app_service, "web");
	add(f, &p, &(struct added){EVENT_MEM_INUSE, 0, 0, 0, 1012 * S, NULL});
	b = flush(f, 1020 * S); /* an empty snapshot is sent even if the window has nothing else */
	assert_int_equal(b->n_profiles, 1);
	assert_int_equal(b->profiles[0]->n_samples, 0);
	fold_free(f);
}

/*
 * If the owner changes, the process still has one profile. Two profiles in a window would count its
 * memory twice.
 */
static void test_a_snapshot_is_of_one_owner(void **state)
{
	(void)state;
	struct fold *f = fold_at(1000 * S);
	struct owner *old = new_owner("web-1"), *new = new_owner("web-2");
	struct fold_process p = process(old, 42), q = process(new, 42);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct profile *prof;

	add(f, &p, &(struct added){EVENT_MEM_INUSE, 0, 1, 1000, 1001 * S, "f"});
	proc_owner_unref(old);
	q.comm = "renamed";
	add(f, &q, &(struct added){EVENT_MEM_INUSE, 0, 1, 300, 1002 * S, "f"});
	b = flush(f, 1010 * S);
	assert_int_equal(b->n_profiles, 1);
	prof = b->profiles[0];
	assert_int_equal(prof->samples[0].value, 300);
	assert_string_equal(prof->app_service, "renamed");
	assert_string_equal(profile_tag_get(prof, "pod"), "web-2");
	proc_owner_unref(new);
	fold_free(f);
}

/*
 * If a process calls malloc(huge) all the time, values stop at PROFILE_MAX_VALUE: the hub refuses
 * greater ones.
 */
static void test_values_stop_at_the_greatest(void **state)
{
	(void)state;
	struct fold *f = fold_at(1000 * S);
	struct fold_process p = process(NULL, 42);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;

	for (unsigned i = 0; i < 3; i++)
		add(f, &p, &(struct added){EVENT_MEM_ALLOC, 0, 1, UINT64_MAX / 2, 1001 * S, "f"});
	b = flush(f, 1010 * S);
	assert_true(b->profiles[0]->samples[0].value == PROFILE_MAX_VALUE);
	fold_free(f);
}

/*
 * A wait is divided among the windows in which it lasted. No microsecond is lost or counted twice.
 */
static void test_value_before(void **state)
{
	(void)state;
	struct raw_sample s = {.event = EVENT_OFF_CPU,
			       .n = 1,
			       .value = 1000000,
			       .first_ns = 1010 * S + 300 * MS,
			       .last_ns = 1010 * S + 300 * MS}; /* the wait began at 1009.3 */
	struct owner *o = new_owner("web-1");

	assert_int_equal(fold_value_before(&s, o, 1010 * S), 700000);
	assert_int_equal(fold_value_before(&s, NULL, 1010 * S), 700000);
	assert_int_equal(fold_value_before(&s, o, 1011 * S), 1000000);
	assert_int_equal(fold_value_before(&s, o, 1009 * S), 0);
	/* one wait in ten is recorded, and counts ten times: this one lasted a third of a second */
	s.value = 3333333;
	o->off_keep = UINT32_MAX / 10;
	assert_in_range(fold_value_before(&s, o, 1010 * S), 333000, 334000);
	s.first_ns = 1009 * S + 300 * MS; /* the sample is of many short waits within a second */
	assert_in_range(fold_value_before(&s, o, 1010 * S), 2333000, 2334000);
	s.event = EVENT_MEM_ALLOC;
	assert_int_equal(fold_value_before(&s, o, 1010 * S), 3333333);
	proc_owner_unref(o);
}

static void test_thinned_switches_are_estimates(void **state)
{
	(void)state;
	struct fold *f = fold_at(1000 * S);
	struct owner *o = new_owner("web-1"), *all = new_owner("web-2");
	struct fold_process p = process(o, 42), q = process(all, 43);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;

	o->off_keep = UINT32_MAX / 4;
	add(f, &p, &(struct added){EVENT_OFF_CPU, WAIT_LOCK, 1, 400, 1001 * S, "f"});
	add(f, &p, &(struct added){EVENT_ON_CPU, 0, 1, 10101, 1001 * S, "f"});
	add(f, &q, &(struct added){EVENT_OFF_CPU, WAIT_LOCK, 1, 400, 1001 * S, "f"});
	b = flush(f, 1010 * S);
	assert_in_range(find(b, EVENT_OFF_CPU, 42)->estimate_ppm, 249999, 250000);
	assert_int_equal(find(b, EVENT_ON_CPU, 42)->estimate_ppm, 0);
	assert_int_equal(find(b, EVENT_OFF_CPU, 43)->estimate_ppm, 0);
	proc_owner_unref(o);
	proc_owner_unref(all);
	fold_free(f);
}

/*
 * The error of a container is divided among its processes. The errors of the processes, squared and
 * added up, give the square of the container's error again.
 */
static void test_errors_are_shared_out(void **state)
{
	(void)state;
	struct fold *f = fold_at(1000 * S);
	struct owner *o = new_owner("web-1");
	struct fold_process p = process(o, 42), q = process(o, 43);
	_cleanup_(profile_batch_freep) struct batch *b = NULL, *next = NULL;

	add(f, &p, &(struct added){EVENT_MEM_ALLOC, 0, 1, 6400, 1001 * S, "f"});
	fold_estimate(f, o, EVENT_MEM_ALLOC, 120000, 30);
	add(f, &q, &(struct added){EVENT_MEM_ALLOC, 0, 1, 3600, 1002 * S, "f"});
	add(f, &q, &(struct added){EVENT_OFF_CPU, WAIT_DISK, 1, 3600, 1002 * S, "f"});
	/* the errors 30 and 40 make an error of 50 */
	fold_estimate(f, o, EVENT_MEM_ALLOC, 150000, 40);
	for (unsigned i = 0; i < 3; i++) { /* each snapshot has its own error */
		add(f, &q, &(struct added){EVENT_MEM_INUSE, 0, 1, 100, (1001 + i) * S, "f"});
		fold_estimate(f, o, EVENT_MEM_INUSE, 0, 7);
	}
	fold_throttled(f, o, 12345, 3);
	b = flush(f, 1010 * S);
	assert_int_equal(find(b, EVENT_MEM_ALLOC, 42)->estimate_ppm, 120000);
	assert_int_equal(find(b, EVENT_MEM_ALLOC, 42)->estimate_error, 40);
	assert_int_equal(find(b, EVENT_MEM_ALLOC, 43)->estimate_error, 30);
	assert_int_equal(find(b, EVENT_OFF_CPU, 43)->estimate_error, 0);
	assert_int_equal(find(b, EVENT_MEM_INUSE, 43)->estimate_error, 7);
	assert_int_equal(find(b, EVENT_MEM_INUSE, 43)->estimate_ppm, 1000000);
	assert_int_equal(find(b, EVENT_OFF_CPU, 0)->estimate_ppm, 0);
	/* an estimate is not used for the next window */
	add(f, &p, &(struct added){EVENT_MEM_ALLOC, 0, 1, 1, 1011 * S, "f"});
	next = flush(f, 1020 * S);
	assert_int_equal(find(next, EVENT_MEM_ALLOC, 42)->estimate_ppm, 0);
	proc_owner_unref(o);
	fold_free(f);
}

static void test_throttled_time_is_a_containers(void **state)
{
	(void)state;
	struct fold *f = fold_at(1000 * S);
	struct owner *o = new_owner("web-1");
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct profile *p;

	fold_throttled(f, o, 1000, 2);
	fold_throttled(f, o, 500, 1);
	b = flush(f, 1010 * S);
	assert_int_equal(b->n_profiles, 1);
	p = b->profiles[0];
	assert_int_equal(p->event, EVENT_OFF_CPU);
	assert_string_equal(p->app_service, "Throttled");
	assert_int_equal(p->process_id, 0);
	assert_string_equal(profile_tag_get(p, "pod"), "web-1");
	assert_string_equal(profile_tag_get(p, "container_id"), "c0ffee");
	assert_int_equal(p->n_samples, 1);
	assert_int_equal(p->samples[0].value, 1500);
	assert_int_equal(p->samples[0].n_samples, 3);
	assert_true(p->samples[0].stack == STACK_NONE);
	proc_owner_unref(o);
	fold_free(f);
}

/*
 * A loss is in the profiles of each event that it may concern, so a user who looks at one event
 * sees the loss.
 */
static void test_a_loss_is_of_each_event(void **state)
{
	(void)state;
	struct fold *f = fold_at(1000 * S);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	unsigned seen = 0;

	fold_lose(f, NULL, 1u << EVENT_OFF_CPU | 1u << EVENT_MEM_INUSE, "ring_full", 5, 0);
	b = flush(f, 1010 * S);
	assert_int_equal(b->n_profiles, 2);
	for (size_t i = 0; i < 2; i++) {
		seen |= 1u << b->profiles[i]->event;
		assert_int_equal(b->profiles[i]->n_losses, 1);
		assert_int_equal(b->profiles[i]->losses[0].n_samples, 5);
	}
	assert_int_equal(seen, 1u << EVENT_OFF_CPU | 1u << EVENT_MEM_INUSE);
	fold_free(f);
}

/* ---- labels ---- */

static struct raw_labels stream_of(uint64_t device, uint64_t stream)
{
	struct raw_labels l = {.mask = 1u << LABEL_GPU_DEVICE | 1u << LABEL_GPU_STREAM};

	l.numbers[LABEL_GPU_DEVICE] = device;
	l.numbers[LABEL_GPU_STREAM] = stream;
	return l;
}

static void add_allocation(struct fold *f, enum event event, uint64_t at_ns,
			   const struct raw_labels *l)
{
	struct fold_process p = process(NULL, 42);

	add_labelled(f, &p, &(struct added){event, WAIT_NONE, 1, 100, at_ns, "f"}, l);
}

/*
 * Adds an allocation with the label of a GPU stream. Its bytes count for o's share of the window.
 */
static void add_in_share(struct fold *f, struct owner *o, uint32_t tgid, uint64_t stream)
{
	const struct raw_labels l = stream_of(0, stream);
	const struct added a = {EVENT_HBM_ALLOC, WAIT_NONE, 1, 100, 1001 * S, "f"};
	struct fold_process p = process(o, tgid);

	assert_true(fold_begin(f, o));
	add_labelled(f, &p, &a, &l);
	fold_end(f);
}

/* Returns the sum of the values of the samples with this stream; NULL: of those without labels. */
static int64_t value_of(const struct profile *p, const char *stream)
{
	int64_t sum = 0;

	for (size_t i = 0; i < p->n_samples; i++) {
		const struct profile_labels *l = p->samples[i].labels;

		if (str_equal(l ? l->values[LABEL_GPU_STREAM] : NULL, stream))
			sum += p->samples[i].value;
	}
	return sum;
}

static void test_samples_of_other_labels_are_kept_apart(void **state)
{
	const enum event events[] = {EVENT_HBM_ALLOC, EVENT_HBM_INUSE};
	const struct raw_labels own = stream_of(0, 0x30), none = stream_of(0, 0),
				second = stream_of(1, 0x30);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		struct fold *f = fold_at(1000 * S);
		_cleanup_(profile_batch_freep) struct batch *b = NULL;
		const struct profile *p;

		add_allocation(f, events[i], 1001 * S, &own);
		add_allocation(f, events[i], 1001 * S, &none);
		add_allocation(f, events[i], 1001 * S, &own);
		add_allocation(f, events[i], 1001 * S, &second);
		add_allocation(f, events[i], 1001 * S, NULL);
		b = flush(f, 1010 * S);
		p = find(b, events[i], 42);
		assert_int_equal(p->n_samples, 4);
		assert_int_equal(value_of(p, "0x30"), 300);
		assert_int_equal(p->samples[0].value, 200);
		assert_string_equal(p->samples[0].labels->values[LABEL_GPU_DEVICE], "0");
		assert_int_equal(value_of(p, "default"), 100);
		assert_int_equal(value_of(p, NULL), 100);
		fold_free(f);
	}
}

/* If the window is full, a sample loses its labels, which is counted, but is itself not lost. */
static void test_a_full_window_takes_samples_without_their_labels(void **state)
{
	struct counter *c = counter("podflame_labels_dropped_total", "reason", "window_full");
	uint64_t before = counter_get(c), n_dropped;
	struct fold *f = fold_at(1000 * S);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct profile *p;
	uint64_t n = 0;

	(void)state;
	add_allocation(f, EVENT_HBM_ALLOC, 1001 * S, NULL);
	while (n < 1000000 && counter_get(c) < before + 10) {
		const struct raw_labels l = stream_of(0, 3 + n++);

		add_allocation(f, EVENT_HBM_ALLOC, 1001 * S, &l);
	}
	n_dropped = counter_get(c) - before;
	assert_int_equal(n_dropped, 10);
	b = flush(f, 1010 * S);
	p = find(b, EVENT_HBM_ALLOC, 42);
	assert_int_equal(p->n_losses, 0);
	assert_int_equal(p->n_samples, 1 + n - n_dropped);
	assert_int_equal(value_of(p, NULL), 100 * (1 + (int64_t)n_dropped));
	fold_free(f);
}

/*
 * A container whose samples all have different labels cannot fill its share with them. It loses
 * labels but no sample, and another container keeps its labels.
 */
static void test_a_container_loses_labels_before_samples(void **state)
{
	struct counter *c = counter("podflame_labels_dropped_total", "reason", "budget");
	struct owner *greedy = new_owner("greedy"), *train = new_owner("train");
	uint64_t before = counter_get(c), n_dropped;
	struct fold *f = fold_at(1000 * S);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct profile *p;
	const int64_t n = 200000;

	(void)state;
	for (int64_t i = 0; i < n; i++)
		add_in_share(f, greedy, 42, 3 + (uint64_t)i);
	add_in_share(f, train, 43, 0x30);
	n_dropped = counter_get(c) - before;
	assert_in_range(n_dropped, 1, n - 1);
	b = flush(f, 1010 * S);
	p = find(b, EVENT_HBM_ALLOC, 42);
	assert_int_equal(p->n_losses, 0);
	assert_int_equal(p->n_samples, n - (int64_t)n_dropped + 1);
	assert_int_equal(value_of(p, NULL), 100 * (int64_t)n_dropped);
	assert_int_equal(value_of(find(b, EVENT_HBM_ALLOC, 43), "0x30"), 100);
	proc_owner_unref(greedy);
	proc_owner_unref(train);
	fold_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waits_are_kept_apart),
		cmocka_unit_test(test_a_snapshot_replaces_the_one_before),
		cmocka_unit_test(test_nothing_lives),
		cmocka_unit_test(test_a_snapshot_is_of_one_owner),
		cmocka_unit_test(test_values_stop_at_the_greatest),
		cmocka_unit_test(test_value_before),
		cmocka_unit_test(test_thinned_switches_are_estimates),
		cmocka_unit_test(test_errors_are_shared_out),
		cmocka_unit_test(test_throttled_time_is_a_containers),
		cmocka_unit_test(test_a_loss_is_of_each_event),
		cmocka_unit_test(test_samples_of_other_labels_are_kept_apart),
		cmocka_unit_test(test_a_full_window_takes_samples_without_their_labels),
		cmocka_unit_test(test_a_container_loses_labels_before_samples),
	};

	return cmocka_run_group_tests_name("fold/events", tests, NULL, NULL);
}
