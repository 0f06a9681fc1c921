/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a drain becomes windows: which samples count, in which window, and with which values. The
 * test needs neither the kernel's programs nor files.
 */
#include "lib/base/testabort.h"
#include "lib/base/testclock.h"
#include "node/pipeline/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define CGROUP 77
#define STACK  5
#define MS     NSEC_PER_MSEC
#define WINDOW (10 * NSEC_PER_SEC)

struct world {
	struct windows *p;
	uint64_t end_ns; /* end of the open window */
	uint64_t offset_ns;
	struct owner *owner;
	struct feed feed;
	struct feed_answer answer;
	size_t cap_samples;
};

/*
 * Returns wall time minus CLOCK_BOOTTIME in the open window. The window ends at a multiple of its
 * length.
 */
static uint64_t offset_of(const struct windows *p)
{
	uint64_t boot_ns = fold_next_flush_ns(p->fold), about_ns = now_wall_ns() - now_boot_ns();

	return (boot_ns + about_ns + WINDOW / 2) / WINDOW * WINDOW - boot_ns;
}

static int setup(void **state)
{
	static const struct fold_config config = {
		.node_uid = "u", .boot_id = "b", .node_name = "n", .window_ns = WINDOW};
	struct world *w = xcalloc(1, sizeof(*w));

	assert_int_equal(pipeline_windows_new(&config, NULL, NULL, &w->p), 0);
	w->end_ns = fold_next_flush_ns(w->p->fold);
	w->offset_ns = offset_of(w->p);
	w->owner = xcalloc(1, sizeof(*w->owner));
	w->owner->refs = 1;
	w->owner->off_keep = UINT32_MAX;
	w->owner->container_id = xstrdup("c0ffee");
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	pipeline_feed_done(&w->feed);
	pipeline_feed_answer_done(&w->answer);
	pipeline_windows_free(w->p);
	proc_owner_unref(w->owner);
	free(w);
	return 0;
}

static void fold(struct world *w)
{
	pipeline_feed_answer_done(&w->answer);
	w->answer = (struct feed_answer){0};
	pipeline_windows_fold(w->p, &w->feed, &w->answer);
}

/* Begins a drain with one user stack. The test adds samples to it. */
static void begin(struct world *w, uint64_t to_ns)
{
	static const struct raw_frame frame = {.exec_id = 1, .address = 0x1000};
	struct drain *d = sample_drain_new(0);

	pipeline_feed_done(&w->feed);
	w->feed = (struct feed){.drain = d, .full = true, .last_pass = true};
	w->cap_samples = 0;
	d->from_ns = to_ns - NSEC_PER_SEC;
	d->to_ns = to_ns;
	d->stacks = xcalloc(1, sizeof(*d->stacks));
	d->stacks[d->n_stacks++] = (struct raw_stack){.hash = STACK, .frames = &frame, .n = 1};
	w->feed.owners = xcalloc(1, sizeof(*w->feed.owners));
	w->feed.owners[w->feed.n_owners++] = (struct attribution){
		.cgroup_id = CGROUP, .until_ns = UINT64_MAX, .owner = proc_owner_ref(w->owner)};
}

static struct raw_sample *add(struct world *w, enum event e, uint64_t n, uint64_t value)
{
	struct drain *d = w->feed.drain;

	GROW(d->samples, d->n_samples, w->cap_samples);
	d->samples[d->n_samples] = (struct raw_sample){.event = e,
						       .wait = WAIT_LOCK,
						       .start_boottime_ns = NSEC_PER_SEC,
						       .cgroup_id = CGROUP,
						       .ustack = STACK,
						       .tgid = 42,
						       .tid = 42,
						       .cpu = UINT32_MAX,
						       .n = n,
						       .value = value,
						       .first_ns = d->from_ns,
						       .last_ns = d->from_ns};
	return &d->samples[d->n_samples++];
}

static const struct profile *find(const struct batch *b, enum event e, const char *service)
{
	for (size_t i = 0; b && i < b->n_profiles; i++)
		if (b->profiles[i]->event == e && streq(b->profiles[i]->app_service, service))
			return b->profiles[i];
	return NULL;
}

/*
 * A drain of pipeline_drain_whole may arrive before the kernel's drain of the last second of the
 * window, so it must not end the window.
 */
static void test_a_whole_drain_ends_no_window(void **state)
{
	struct world *w = *state;
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct profile *p;

	begin(w, w->end_ns + 2 * MS);
	w->feed.whole = true;
	add(w, EVENT_MEM_INUSE, 1, 4096);
	fold(w);
	assert_null(w->answer.batch);
	begin(w, w->end_ns + 10 * MS);
	add(w, EVENT_ON_CPU, 3, 30000);
	fold(w);
	b = TAKE_PTR(w->answer.batch);
	p = find(b, EVENT_ON_CPU, "unknown");
	assert_non_null(p);
	assert_int_equal(p->samples[0].value, 30000);
}

static void test_nobodys_code_waits(void **state)
{
	struct world *w = *state;
	struct counter *excluded =
		counter("podflame_samples_excluded_total", "reason", "no_user_stack");
	uint64_t before = counter_get(excluded);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct profile *p;

	begin(w, w->end_ns - 2 * NSEC_PER_SEC);
	add(w, EVENT_OFF_CPU, 1, 500);
	add(w, EVENT_OFF_CPU, 3, 600)->ustack = 0; /* a kernel thread */
	/* a user stack that was lost on the way from the kernel */
	add(w, EVENT_OFF_CPU, 1, 700)->ustack = STACK + 1;
	add(w, EVENT_ON_CPU, 1, 10101)->ustack = 0;
	fold(w);
	assert_int_equal(counter_get(excluded) - before, 3);
	assert_int_equal(w->answer.taken[0].n_samples[EVENT_OFF_CPU], 2);
	b = pipeline_windows_flush(w->p);
	p = find(b, EVENT_OFF_CPU, "unknown");
	assert_int_equal(p->n_samples, 2);
	assert_int_equal(p->samples[0].value + p->samples[1].value, 1200);
	assert_non_null(find(b, EVENT_ON_CPU, "unknown"));
}

/*
 * The drain arrives after the end of the window. A wait that lasts over this end is in both
 * windows, in each with its own part.
 */
static void test_a_wait_over_the_end_of_a_window(void **state)
{
	struct world *w = *state;
	_cleanup_(profile_batch_freep) struct batch *next = NULL;
	struct raw_sample *s;
	const struct profile *p;

	begin(w, w->end_ns + 400 * MS);
	s = add(w, EVENT_OFF_CPU, 1, 1000000);
	s->first_ns = s->last_ns = w->end_ns + 300 * MS;
	s = add(w, EVENT_OFF_CPU, 1, 100000); /* all of this wait is after the end of the window */
	s->wait = WAIT_DISK;
	s->first_ns = s->last_ns = w->end_ns + 300 * MS;
	fold(w);
	p = find(w->answer.batch, EVENT_OFF_CPU, "unknown");
	assert_non_null(p);
	assert_int_equal(p->n_samples, 1);
	assert_int_equal(p->samples[0].value, 700000);
	assert_int_equal(p->samples[0].n_samples, 1);
	next = pipeline_windows_flush(w->p);
	p = find(next, EVENT_OFF_CPU, "unknown");
	assert_int_equal(p->n_samples, 2);
	for (size_t i = 0; i < 2; i++) {
		bool disk = p->samples[i].wait == WAIT_DISK;

		assert_int_equal(p->samples[i].value, disk ? 100000 : 300000);
		assert_int_equal(p->samples[i].n_samples, disk);
	}
}

/*
 * A drain is two windows late. The open window is then three windows long: it ends at the last
 * boundary before the drain. Of a wait over that boundary, it contains only the part before.
 */
static void test_a_drain_that_is_late(void **state)
{
	struct world *w = *state;
	uint64_t end_ns = w->end_ns + 20 * NSEC_PER_SEC;
	const struct profile *p;
	struct raw_sample *s;

	begin(w, end_ns + 400 * MS);
	s = add(w, EVENT_OFF_CPU, 1, 1000000);
	s->first_ns = s->last_ns = end_ns + 300 * MS;
	fold(w);
	p = find(w->answer.batch, EVENT_OFF_CPU, "unknown");
	assert_non_null(p);
	assert_int_equal(p->samples[0].value, 700000);
	/* MS: the agent has read the two clocks again, so their difference may have changed */
	assert_in_range(p->end_ns, end_ns + w->offset_ns - MS, end_ns + w->offset_ns + MS);
	assert_in_range(w->answer.left_ns, end_ns + w->offset_ns - MS, end_ns + w->offset_ns + MS);
	assert_in_range(fold_next_flush_ns(w->p->fold), end_ns + 10 * NSEC_PER_SEC - MS,
			end_ns + 10 * NSEC_PER_SEC + MS);
}

/*
 * The machine slept for an hour during a drain. All of the drain goes into the window that the
 * sleep ends. That window is no longer than the time that the machine was awake. Waits have the
 * time that the kernel measured, without the sleep. The next window begins after the sleep and
 * reports it.
 */
static void check_suspend(struct world *w, uint64_t asleep_ns, uint32_t off_keep, uint64_t times)
{
	_cleanup_(profile_batch_freep) struct batch *next = NULL;
	uint64_t to_ns = w->end_ns + 400 * MS + asleep_ns, offset_ns;
	const struct profile *p;
	struct raw_sample *s;

	begin(w, to_ns);
	w->feed.drain->from_ns = to_ns - asleep_ns - NSEC_PER_SEC;
	w->feed.asleep_ns = asleep_ns;
	add(w, EVENT_ON_CPU, 50, 500000)->last_ns = to_ns - MS;
	w->owner->off_keep = off_keep;
	/* this wait goes on after the machine has woken up */
	s = add(w, EVENT_OFF_CPU, times, 400000 * times);
	s->last_ns = to_ns - MS;
	/* these waits ended before the machine fell asleep */
	s = add(w, EVENT_OFF_CPU, 20 * times, 300000 * times);
	s->wait = WAIT_SLEEP;
	fold(w);
	offset_ns = offset_of(w->p);
	p = find(w->answer.batch, EVENT_ON_CPU, "unknown");
	assert_non_null(p);
	assert_int_equal(p->samples[0].value, 500000);
	assert_int_equal(p->end_ns, w->end_ns + 400 * MS + w->offset_ns);
	p = find(w->answer.batch, EVENT_OFF_CPU, "unknown");
	assert_int_equal(p->n_samples, 2);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(p->samples[i].value,
				 (p->samples[i].wait == WAIT_LOCK ? 400000 : 300000) * times);
	assert_int_equal(w->answer.left_ns, to_ns + offset_ns);
	next = pipeline_windows_flush(w->p);
	assert_non_null(next);
	for (size_t i = 0; i < next->n_profiles; i++) {
		p = next->profiles[i];
		assert_int_equal(p->n_samples, 0);
		assert_int_equal(p->start_ns, to_ns + offset_ns);
		assert_int_equal(p->n_losses, 1);
		assert_string_equal(p->losses[0].reason, "asleep");
		assert_int_equal(p->losses[0].time_ns, asleep_ns);
	}
}

/*
 * If waits are thinned, one wait counts for many. Together they may be longer than the machine was
 * awake.
 */
static void test_a_suspend(void **state)
{
	static const struct {
		uint64_t asleep_s;
		uint32_t off_keep;
		uint64_t times;
	} rows[] = {
		{3600, UINT32_MAX, 1},
		{3600, UINT32_MAX / 64, 64},
		{3600, UINT32_MAX / 1024, 1024},
		{1, UINT32_MAX / 10, 10},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		check_suspend(*state, rows[i].asleep_s * NSEC_PER_SEC, rows[i].off_keep,
			      rows[i].times);
		teardown(state);
		setup(state);
	}
}

/*
 * The drain with the sleep was refused, and no other follows. The samples from before the sleep are
 * in a window that ends before the sleep.
 */
static void test_a_suspend_without_a_drain(void **state)
{
	struct world *w = *state;
	_cleanup_(profile_batch_freep) struct batch *next = NULL;
	const uint64_t asleep_ns = 3600 * NSEC_PER_SEC;
	const struct profile *p;
	uint64_t before_ns;

	begin(w, w->end_ns - 2 * NSEC_PER_SEC);
	add(w, EVENT_ON_CPU, 3, 30000);
	fold(w);
	assert_null(w->answer.batch);
	pipeline_feed_done(&w->feed);
	w->feed = (struct feed){.full = true, .asleep_ns = asleep_ns};
	before_ns = now_boot_ns() + offset_of(w->p);
	test_clock.asleep_ns = asleep_ns;
	fold(w);
	p = find(w->answer.batch, EVENT_ON_CPU, "unknown");
	assert_non_null(p);
	assert_int_equal(p->samples[0].value, 30000);
	assert_int_equal(p->n_losses, 0);
	assert_in_range(p->end_ns, before_ns, now_wall_ns() - asleep_ns);
	next = pipeline_windows_flush(w->p);
	assert_non_null(next);
	for (size_t i = 0; i < next->n_profiles; i++) {
		p = next->profiles[i];
		assert_int_equal(p->n_samples, 0);
		assert_int_equal(p->n_losses, 1);
		assert_string_equal(p->losses[0].reason, "asleep");
		assert_int_equal(p->losses[0].time_ns, asleep_ns);
	}
	test_clock.asleep_ns = 0;
}

static void test_spans_are_scaled(void **state)
{
	struct world *w = *state;
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct profile *p;

	begin(w, w->end_ns - 2 * NSEC_PER_SEC);
	w->feed.owners[0].share_ppm[EVENT_MEM_ALLOC] = 125000;
	w->feed.owners[0].error_ppm[EVENT_MEM_ALLOC] = 250000;
	/* not multiplied, because the kernel has weighted these already */
	w->feed.owners[0].share_ppm[EVENT_OFF_CPU] = 500000;
	add(w, EVENT_MEM_ALLOC, 3, 1000);
	add(w, EVENT_OFF_CPU, 3, 1000);
	fold(w);
	b = pipeline_windows_flush(w->p);
	p = find(b, EVENT_MEM_ALLOC, "unknown");
	assert_int_equal(p->samples[0].value, 8000);
	assert_int_equal(p->samples[0].n_samples, 3);
	assert_int_equal(p->estimate_ppm, 125000);
	assert_int_equal(p->estimate_error, 2000);
	p = find(b, EVENT_OFF_CPU, "unknown");
	assert_int_equal(p->samples[0].value, 1000);
	assert_int_equal(p->estimate_ppm, 500000);
	assert_int_equal(p->estimate_error, 0);
}

#define ALL_EVENTS ((1u << _EVENT_MAX) - 1)

static uint64_t told_in(const struct batch *b, unsigned event_mask, const char *reason)
{
	uint64_t n = 0;

	for (size_t i = 0; b && i < b->n_profiles; i++)
		for (size_t k = 0; k < b->profiles[i]->n_losses; k++)
			if (1u << b->profiles[i]->event & event_mask &&
			    streq(b->profiles[i]->losses[k].reason, reason))
				n += b->profiles[i]->losses[k].n_samples;
	return n;
}

/*
 * Dropped samples are reported as a loss of the node, except if the sender adds a loss to their
 * container: then they would be reported twice.
 */
static void test_dropped_samples_are_told_once(void **state)
{
	static const char *const by_sender[] = {"spool_full", "hub_refused", "too_large"};
	static const char *const here[] = {"mailbox_full", "spool_unreadable", "counts_full"};
	static const char name[] = "podflame_samples_dropped_total";
	struct world *w = *state;
	_cleanup_(profile_batch_freep) struct batch *b = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(by_sender); i++)
		counter_add(counter(name, "reason", by_sender[i]), 11);
	begin(w, w->end_ns - 2 * NSEC_PER_SEC);
	for (size_t i = 0; i < ARRAY_SIZE(here); i++)
		profile_samples_lost(&w->feed.lost, 0, here[i], 7);
	add(w, EVENT_ON_CPU, 3, 30000);
	fold(w);
	b = pipeline_windows_flush(w->p);
	for (size_t i = 0; i < ARRAY_SIZE(by_sender); i++)
		assert_int_equal(told_in(b, ALL_EVENTS, by_sender[i]), 0);
	for (size_t i = 0; i < ARRAY_SIZE(here); i++)
		assert_int_equal(told_in(b, ALL_EVENTS, here[i]), 7);
}

/*
 * A loss is reported for its event. If its event is not known, it is reported for all events of
 * which samples were folded.
 */
static void test_a_loss_is_told_where_it_belongs(void **state)
{
	struct world *w = *state;
	_cleanup_(profile_batch_freep) struct batch *b = NULL;

	begin(w, w->end_ns - 2 * NSEC_PER_SEC);
	add(w, EVENT_ON_CPU, 3, 30000);
	add(w, EVENT_OFF_CPU, 3, 30000);
	profile_losses_add(&w->feed.lost, 1u << EVENT_OFF_CPU, "scratch_busy", 5);
	profile_losses_add(&w->feed.lost, 1u << EVENT_ON_CPU, "scratch_busy", 2);
	profile_losses_add(&w->feed.lost, 1u << EVENT_OFF_CPU, "end_unseen", 4);
	profile_losses_add(&w->feed.lost, 0, "of_any_event", 6);
	fold(w);
	b = pipeline_windows_flush(w->p);
	assert_int_equal(told_in(b, 1u << EVENT_ON_CPU, "scratch_busy"), 2);
	assert_int_equal(told_in(b, 1u << EVENT_OFF_CPU, "scratch_busy"), 5);
	assert_int_equal(told_in(b, 1u << EVENT_ON_CPU, "end_unseen"), 0);
	assert_int_equal(told_in(b, 1u << EVENT_OFF_CPU, "end_unseen"), 4);
	assert_int_equal(told_in(b, 1u << EVENT_ON_CPU, "of_any_event"), 6);
	assert_int_equal(told_in(b, 1u << EVENT_OFF_CPU, "of_any_event"), 6);
	assert_int_equal(told_in(b, 1u << EVENT_MEM_ALLOC, "of_any_event"), 0);
}

/* The first drain ends the window. What the next drain has lost is in the next window. */
static void test_a_loss_is_in_the_window_of_its_drain(void **state)
{
	struct world *w = *state;
	_cleanup_(profile_batch_freep) struct batch *next = NULL;

	begin(w, w->end_ns + 2 * MS);
	profile_losses_add(&w->feed.lost, 1u << EVENT_ON_CPU, "counts_full", 2);
	fold(w);
	assert_int_equal(told_in(w->answer.batch, 1u << EVENT_ON_CPU, "counts_full"), 2);
	begin(w, w->end_ns + NSEC_PER_SEC);
	profile_losses_add(&w->feed.lost, 1u << EVENT_ON_CPU, "counts_full", 5);
	fold(w);
	assert_null(w->answer.batch);
	next = pipeline_windows_flush(w->p);
	assert_int_equal(told_in(next, 1u << EVENT_ON_CPU, "counts_full"), 5);
}

/* While nothing is profiled, a loss is reported although no drain follows. */
static void test_a_loss_without_a_drain(void **state)
{
	struct world *w = *state;
	_cleanup_(profile_batch_freep) struct batch *b = NULL;

	w->feed.full = true;
	profile_losses_add(&w->feed.lost, 1u << EVENT_ON_CPU, "mailbox_full", 3);
	fold(w);
	b = pipeline_windows_flush(w->p);
	assert_int_equal(told_in(b, 1u << EVENT_ON_CPU, "mailbox_full"), 3);
}

/*
 * A drain has room for a limited number of kinds of losses. The others are reported together, as
 * one.
 */
static void test_no_kind_of_loss_is_left_out(void **state)
{
	struct world *w = *state;
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	char reasons[LOSSES_MAX + 9][8];

	begin(w, w->end_ns - 2 * NSEC_PER_SEC);
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
		snprintf(reasons[i], sizeof(reasons[i]), "r%zu", i);
		profile_losses_add(&w->feed.lost, 1u << EVENT_ON_CPU, reasons[i], 2);
	}
	fold(w);
	b = pipeline_windows_flush(w->p);
	for (size_t i = 0; i < LOSSES_MAX - 1; i++)
		assert_int_equal(told_in(b, 1u << EVENT_ON_CPU, reasons[i]), 2);
	assert_int_equal(told_in(b, 1u << EVENT_ON_CPU, "other"), 2 * 10);
}

static void test_nothing_lives(void **state)
{
	struct world *w = *state;
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct profile *p;

	begin(w, w->end_ns - 2 * NSEC_PER_SEC);
	add(w, EVENT_MEM_INUSE, 0, 0)->ustack = 0;
	fold(w);
	/* an empty snapshot is a sample, too: it shows that the event works */
	assert_int_equal(w->answer.taken[0].n_samples[EVENT_MEM_INUSE], 1);
	b = pipeline_windows_flush(w->p);
	p = find(b, EVENT_MEM_INUSE, "unknown");
	assert_non_null(p);
	assert_int_equal(p->process_id, 42);
	assert_int_equal(p->n_samples, 0);
}

static void test_held_back(void **state)
{
	struct world *w = *state;
	_cleanup_(profile_batch_freep) struct batch *b = NULL;

	begin(w, w->end_ns - 2 * NSEC_PER_SEC);
	w->feed.held_back = xcalloc(1, sizeof(*w->feed.held_back));
	w->feed.held_back[w->feed.n_held_back++] =
		(struct held_back){proc_owner_ref(w->owner), 1234, 2};
	fold(w);
	b = pipeline_windows_flush(w->p);
	assert_int_equal(find(b, EVENT_OFF_CPU, "Throttled")->samples[0].value, 1234);
}

#define NOBODY	      5000000 /* larger than any PID */
#define MAX_PROCESSES 32768   /* as in judge.c */

enum { GREEDY = 7, VICTIM };

/* The processes start at the same time. ns: struct charged. */
static void see_of(struct windows *p, uint64_t ns, uint32_t first, uint32_t n, uint64_t start_ns)
{
	struct drain d = {.n_procs = n};
	struct feed f = {.drain = &d};

	d.procs = xcalloc(n, sizeof(*d.procs));
	f.proc_ns = xcalloc(n, sizeof(*f.proc_ns));
	for (uint32_t i = 0; i < n; i++) {
		d.procs[i] = (struct raw_proc){
			.what = RAW_PROC_SEEN, .tgid = first + i, .start_boottime_ns = start_ns};
		f.proc_ns[i] = ns;
	}
	pipeline_note_processes(p, &f);
	free(f.proc_ns);
	free(d.procs);
}

static void see(struct windows *p, uint32_t first, uint32_t n, uint64_t start_ns)
{
	see_of(p, GREEDY, first, n, start_ns);
}

/*
 * Passes mappings to the windows. Returns whether the windows refused them, so that only the caller
 * holds them.
 */
static bool is_refused(struct windows *p, uint64_t start_ns, uint64_t read_at_ns)
{
	struct mappings *m = xcalloc(1, sizeof(*m));
	bool refused;

	*m = (struct mappings){
		.id = {start_ns, NOBODY}, .read_at_ns = read_at_ns, .root_fd = -1, .refs = 1};
	pipeline_windows_mappings(p, m, 0);
	refused = m->refs == 1;
	proc_mappings_unref(m);
	return refused;
}

static struct process_exit exit_of(uint32_t tgid, uint64_t start_ns, uint64_t exited_ns)
{
	return (struct process_exit){{start_ns, tgid}, exited_ns, GREEDY};
}

/*
 * Processes that have ended are forgotten after a while, and so are their mappings, which hold
 * their files open. If a process gets the same PID later, it counts as another one.
 */
static void test_processes_that_have_ended(void **state)
{
	uint64_t now = now_boot_ns();
	struct world *w = *state;
	const struct process_exit exits[] = {exit_of(NOBODY, NSEC_PER_SEC, now),
					     exit_of(NOBODY, 2 * NSEC_PER_SEC, now)};

	see(w->p, NOBODY, 1, NSEC_PER_SEC);
	see(w->p, NOBODY, 1, 3 * NSEC_PER_SEC);
	assert_false(is_refused(w->p, NSEC_PER_SEC, now));
	/* the process that started at 2 s is only in the table of mappings */
	assert_false(is_refused(w->p, 2 * NSEC_PER_SEC, now));
	pipeline_note_exits(w->p, exits, ARRAY_SIZE(exits));
	assert_true(is_refused(w->p, NSEC_PER_SEC, now + 1));
	assert_true(is_refused(w->p, 2 * NSEC_PER_SEC, now + 1));
	pipeline_forget_exited(w->p, now);
	/* kept for a while, so that late samples have names */
	assert_int_equal(HASH_COUNT(w->p->processes), 2);
	pipeline_forget_exited(w->p, now + HOLD_EXITED_NS);
	assert_int_equal(HASH_COUNT(w->p->processes), 1);
	assert_int_equal(w->p->processes->id.start_boottime_ns, 3 * NSEC_PER_SEC);
}

/* Processes that have ended make room for others; processes that have not ended stay. */
static void test_processes_have_a_limit(void **state)
{
	struct counter *dropped =
		counter("podflame_processes_dropped_total", "reason", "table_full");
	struct world *w = *state;
	uint64_t before = counter_get(dropped), now = w->end_ns;
	const uint32_t share = MAX_PROCESSES / 4 * 3;

	see(w->p, NOBODY, share, 0);
	assert_int_equal(HASH_COUNT(w->p->processes), share);
	assert_int_equal(counter_get(dropped) - before, 0);
	see(w->p, NOBODY + share, 1, 0);
	assert_int_equal(HASH_COUNT(w->p->processes), share);
	assert_int_equal(counter_get(dropped) - before, 1);
	for (uint32_t i = 1; i < share; i++) {
		struct process_exit x = exit_of(NOBODY + i, 0, now);

		pipeline_note_exits(w->p, &x, 1);
	}
	pipeline_forget_exited(w->p, now);
	assert_int_equal(HASH_COUNT(w->p->processes),
			 share); /* still kept, because their last samples may arrive */
	pipeline_forget_exited(w->p, now + HOLD_EXITED_NS);
	assert_int_equal(HASH_COUNT(w->p->processes), 1);
	assert_int_equal(w->p->processes->id.tgid, NOBODY);
	see(w->p, NOBODY + share, 1, 0);
	assert_int_equal(HASH_COUNT(w->p->processes), 2);
	assert_int_equal(counter_get(dropped) - before, 1);
}

/* Asserts that the answer names these namespaces, and no other. 0: none. */
static void assert_crowded(struct world *w, uint64_t a, uint64_t b)
{
	const struct shares *s = &w->answer.crowded;

	assert_int_equal(s->all, (a != 0) + (b != 0));
	for (size_t i = 0; i < 2; i++) {
		const uint64_t ns = i ? b : a;

		assert_true(!ns || shares_most(s, ns) == ns);
	}
}

/*
 * The processes of other namespaces find room, and the answer names all that have more than their
 * shares.
 */
static void processes_of_one_namespace_leave_room(void **state)
{
	struct world *w = *state;
	uint32_t n;

	see(w->p, NOBODY, MAX_PROCESSES, 0);
	n = HASH_COUNT(w->p->processes);
	see_of(w->p, VICTIM, NOBODY + MAX_PROCESSES, 10, 0);
	assert_int_equal(HASH_COUNT(w->p->processes), n + 10);
	begin(w, w->end_ns - 2 * NSEC_PER_SEC);
	fold(w);
	assert_crowded(w, GREEDY, 0);
	begin(w, w->end_ns - NSEC_PER_SEC);
	fold(w);
	assert_crowded(w, 0, 0);
	see_of(w->p, VICTIM, NOBODY + 3 * MAX_PROCESSES, MAX_PROCESSES, 0);
	shares_done(&w->p->crowded);
	see(w->p, NOBODY + 4 * MAX_PROCESSES, 1, 0);
	see_of(w->p, VICTIM, NOBODY + 5 * MAX_PROCESSES, 1, 0);
	begin(w, w->end_ns - NSEC_PER_SEC);
	fold(w);
	assert_crowded(w, GREEDY, VICTIM);
}

/* The processes were seen before their container was known. */
static void a_process_is_charged_to_its_namespace_when_that_is_known(void **state)
{
	struct world *w = *state;

	see_of(w->p, 0, NOBODY, 10, 0);
	see(w->p, NOBODY, 10, 0);
	assert_int_equal(w->p->process_shares.all, 10);
	assert_int_equal(shares_most(&w->p->process_shares, 0), GREEDY);
}

/*
 * Mappings of a process from before its exec are not read any more, because the process has those
 * of the next program now.
 */
static void test_mappings_of_what_it_was(void **state)
{
	struct raw_proc r = {.what = RAW_PROC_SEEN,
			     .tgid = 42,
			     .exec_id = 1,
			     .stack = 0xcafe,
			     .start_boottime_ns = NSEC_PER_SEC};
	struct drain told = {.procs = &r, .n_procs = 1};
	struct world *w = *state;

	pipeline_note_processes(w->p, &(struct feed){.drain = &told});
	begin(w, w->end_ns - 2 * NSEC_PER_SEC);
	w->feed.last_pass = false;
	add(w, EVENT_ON_CPU, 1, 10101);
	fold(w);
	assert_true(w->answer.waits);
	assert_int_equal(w->answer.n_missing, 1);
	assert_int_equal(w->answer.missing[0].stack, 0xcafe);
	assert_int_equal(w->answer.missing[0].cgroup_id, CGROUP);
	r.what = RAW_PROC_EXEC;
	r.exec_id = 2;
	pipeline_note_processes(w->p, &(struct feed){.drain = &told});
	fold(w);
	assert_int_equal(w->answer.n_missing, 0);
	assert_false(w->answer.waits);
}

/*
 * The names of a container have used up its share of the window. Its further samples are lost, and
 * none of them counts as sampled.
 */
static void test_a_container_has_its_share(void **state)
{
	_cleanup_free_ char *name = xmalloc(BATCH_MAX_BYTES / 2 + 1);
	struct counter *folded = counter("podflame_samples_folded_total", NULL, NULL);
	struct world *w = *state;
	uint64_t before = counter_get(folded);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;

	memset(name, 'x', BATCH_MAX_BYTES / 2);
	name[BATCH_MAX_BYTES / 2] = '\0';
	assert_true(fold_begin(w->p->fold, w->owner));
	profile_batch_str(fold_batch(w->p->fold), name);
	fold_end(w->p->fold);
	begin(w, w->end_ns - 2 * NSEC_PER_SEC);
	add(w, EVENT_ON_CPU, 3, 30303);
	fold(w);
	assert_int_equal(counter_get(folded), before);
	assert_int_equal(w->answer.taken[0].n_samples[EVENT_ON_CPU], 0);
	b = pipeline_windows_flush(w->p);
	for (size_t i = 0; i < b->n_profiles; i++)
		assert_int_equal(b->profiles[i]->n_samples, 0);
	assert_string_equal(profile_tag_get(b->profiles[0], "container_id"), "c0ffee");
	assert_string_equal(b->profiles[0]->losses[0].reason, "window_full");
	assert_int_equal(b->profiles[0]->losses[0].n_samples, 3);
}

/* The first samples of a process wait for its mappings, then for the files of these mappings. */
static void test_files_of_mappings_just_read(void **state)
{
	const struct files_config fc = {.queued = true};
	struct fold_config c = {
		.node_uid = "u", .boot_id = "b", .node_name = "n", .window_ns = 10 * NSEC_PER_SEC};
	struct raw_frame frame = {.exec_id = 1,
				  .address = (uintptr_t)test_files_of_mappings_just_read};
	struct world *w = *state;
	struct files *files;
	struct mappings *m;
	struct raw_sample *s;

	assert_int_equal(files_new(&fc, &files), 0);
	pipeline_windows_free(w->p);
	assert_int_equal(pipeline_windows_new(&c, files, NULL, &w->p), 0);
	begin(w, w->end_ns - 2 * NSEC_PER_SEC);
	w->feed.last_pass = false;
	w->feed.drain->stacks[0].frames = &frame;
	s = add(w, EVENT_ON_CPU, 1, 10101);
	s->tgid = (uint32_t)getpid();
	assert_int_equal(proc_start_boottime(s->tgid, &s->start_boottime_ns), 0);
	fold(w);
	assert_true(w->answer.waits);
	assert_int_equal(w->answer.n_missing, 1);
	assert_int_equal(proc_mappings_read(process_id_of(s), 1, &m), 0);
	pipeline_windows_mappings(w->p, m, 0);
	proc_mappings_unref(m);
	w->feed.last_pass = true;
	fold(w);
	assert_true(w->answer.waits);
	assert_int_equal(w->answer.n_unparsed, 1);
	/* parsed or not, the drain does not wait any longer */
	w->feed.files_asked = w->answer.files_asked;
	fold(w);
	assert_false(w->answer.waits);
	pipeline_feed_done(&w->feed);
	w->feed = (struct feed){0};
	w->p = pipeline_windows_free(w->p);
	files_free(files);
}

/*
 * Judges a sample of a process with this name in a selected container. tgid_own: its PID in its own
 * PID namespace; on the node its PID is 42.
 */
static const char *judged(struct world *w, const char *comm, uint32_t tgid_own, uint64_t age_ns)
{
	struct raw_proc r = {.what = RAW_PROC_SEEN,
			     .tgid = 42,
			     .tgid_own = tgid_own,
			     .start_boottime_ns = NSEC_PER_SEC};
	struct drain seen = {.procs = &r, .n_procs = 1};
	struct raw_sample *s;
	struct accepted a;

	snprintf(r.comm, sizeof(r.comm), "%s", comm);
	pipeline_note_processes(w->p, &(struct feed){.drain = &seen});
	begin(w, w->end_ns);
	s = add(w, EVENT_ON_CPU, 1, 1);
	s->first_ns = s->last_ns = s->start_boottime_ns + age_ns;
	return pipeline_judge(w->p, &w->feed, s, &a);
}

/*
 * Samples of runc's own code do not count. These are the names that runc 1.1.5 has in a container's
 * cgroup before it becomes the container's program, on Linux 6.18 and 6.1.
 */
static void test_runtimes_own_code_96(void **state)
{
	static const char *const moments[] = {"exe", "6", "memfd:runc_clon", "runc:[0:PARENT]",
					      "crun"};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(moments); i++)
		assert_string_equal(judged(w, moments[i], 42, 5 * MS), "runtime_helper");
	assert_string_equal(judged(w, "runc:[2:INIT]", 1, 5 * MS), "runtime_helper");
	/* in its own PID namespace, or after a longer time, it is a program that has such a name */
	assert_null(judged(w, "exe", 1, 5 * MS));
	assert_null(judged(w, "exe", 42, 60 * NSEC_PER_SEC));
	assert_null(judged(w, "6to4", 42, 5 * MS));
	assert_null(judged(w, "", 42, 5 * MS));
}

/* ---- the thread ---- */

static bool is_another(const struct worker *w)
{
	(void)w;
	return false;
}

static void flush(void *arg)
{
	profile_batch_free(pipeline_windows_flush(arg));
}

static void test_windows_are_the_pipeline_workers(void **state)
{
	static const struct work_threads threads = {.is_current = is_another};
	static const struct work work = {.threads = &threads};
	struct world *w = *state;

	w->p->work = &work;
	assert_aborts(flush, w->p, "work_runs_on(p->work, (p->work)->pipe)");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nobodys_code_waits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_whole_drain_ends_no_window, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_drain_that_is_late, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_wait_over_the_end_of_a_window, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_suspend, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_suspend_without_a_drain, setup, teardown),
		cmocka_unit_test_setup_teardown(test_spans_are_scaled, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dropped_samples_are_told_once, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_loss_is_told_where_it_belongs, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_loss_is_in_the_window_of_its_drain, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_loss_without_a_drain, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_kind_of_loss_is_left_out, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nothing_lives, setup, teardown),
		cmocka_unit_test_setup_teardown(test_held_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_runtimes_own_code_96, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mappings_of_what_it_was, setup, teardown),
		cmocka_unit_test_setup_teardown(test_files_of_mappings_just_read, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_container_has_its_share, setup, teardown),
		cmocka_unit_test_setup_teardown(test_processes_that_have_ended, setup, teardown),
		cmocka_unit_test_setup_teardown(test_processes_have_a_limit, setup, teardown),
		cmocka_unit_test_setup_teardown(processes_of_one_namespace_leave_room, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			a_process_is_charged_to_its_namespace_when_that_is_known, setup, teardown),
		cmocka_unit_test_setup_teardown(test_windows_are_the_pipeline_workers, setup,
						teardown),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests_name("node/pipeline", tests, NULL, NULL);
}
