/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows, with a clock of the test: which samples are added up, which are not, and what is
 * counted.
 */
#include "lib/base/shares.h"
#include "node/fold/fold.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define S	NSEC_PER_SEC
#define WALL_0	(UINT64_C(1763700000) * S) /* a multiple of 10 s */
#define OFFSET	(WALL_0 - 1000 * S)	   /* wall time minus CLOCK_BOOTTIME */
#define WALL(b) ((b) + OFFSET)

static const struct fold_config config = {.node_uid = "node-uid",
					  .boot_id = "boot",
					  .node_name = "node-a",
					  .cluster_name = "prod-cluster",
					  .window_ns = 10 * S};

/* Makes a fold whose window began at boot_ns. */
static struct fold *fold_at(const struct fold_config *c, uint64_t boot_ns)
{
	struct fold *f = NULL;
	struct batch *b = NULL;

	assert_int_equal(fold_new(c, &f), 0);
	assert_int_equal(fold_flush(f, boot_ns, WALL(boot_ns), true, &b), 0);
	assert_null(b);
	return f;
}

static struct batch *flush(struct fold *f, uint64_t boot_ns, bool force)
{
	struct batch *b = NULL;

	assert_int_equal(fold_flush(f, boot_ns, WALL(boot_ns), force, &b), 0);
	return b;
}

static uint32_t stack(struct fold *f, const char *name)
{
	struct frame frame = {.kind = FRAME_APP, .name = name};
	uint32_t index;

	assert_int_equal(profile_batch_stack(fold_batch(f), &frame, 1, &index), 0);
	return index;
}

static struct owner *new_owner(const char *pod)
{
	struct owner *o = xcalloc(1, sizeof(*o));

	o->refs = 1;
	o->container_id = xstrdup("c0ffee");
	o->pod_uid = xstrdup("uid-1");
	o->tags.items = xcalloc(1, sizeof(*o->tags.items));
	o->tags.items[0] = (struct tag){xstrdup("pod"), xstrdup(pod)};
	o->tags.n = o->tags.cap = 1;
	return o;
}

static struct fold_process process(struct owner *o)
{
	return (struct fold_process){
		.id = {900 * S, 42}, .container_pid = 7, .comm = "web", .owner = o};
}

static void add(struct fold *f, const struct fold_process *p, uint32_t tid, const char *thread,
		uint32_t cpu, uint64_t n, const char *function, uint64_t boot_ns)
{
	struct raw_sample s = {.event = EVENT_ON_CPU,
			       .start_boottime_ns = p->id.start_boottime_ns,
			       .tgid = (uint32_t)p->id.tgid,
			       .tid = tid,
			       .cpu = cpu,
			       .n = n,
			       .value = n * 10101,
			       .first_ns = boot_ns,
			       .last_ns = boot_ns};
	struct raw_names names = {0};

	snprintf(names.thread_comm, sizeof(names.thread_comm), "%s", thread);
	snprintf(names.leader_comm, sizeof(names.leader_comm), "%s", p->comm);
	fold_add(f, p, &s, &names, stack(f, function));
}

/* ---- links ---- */

/* Adds a sample of an event, taken at last_ns. */
static void add_linked_event(struct fold *f, const struct fold_process *p,
			     const struct profile_link *l, uint64_t n, const char *function,
			     enum event event, uint64_t last_ns)
{
	struct raw_sample s = {.event = event,
			       .start_boottime_ns = p->id.start_boottime_ns,
			       .tgid = (uint32_t)p->id.tgid,
			       .tid = 43,
			       .cpu = 0,
			       .n = n,
			       .value = n * 10101,
			       .last_ns = last_ns,
			       .ctx = 1,
			       .link = l};

	fold_add(f, p, &s, NULL, stack(f, function));
}

static void add_linked(struct fold *f, const struct fold_process *p, const struct profile_link *l,
		       uint64_t n, const char *function)
{
	add_linked_event(f, p, l, n, function, EVENT_ON_CPU, 1001 * S);
}

static void test_samples_of_other_calls_are_kept_apart(void **state)
{
	(void)state;
	struct fold *f = fold_at(&config, 1000 * S);
	struct fold_process p = process(NULL);
	const struct profile_link one = {{1}, {2}}, other = {{1}, {3}};
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct profile_sample *s;

	add_linked(f, &p, &one, 2, "f");
	add_linked(f, &p, &other, 3, "f");
	add_linked(f, &p, NULL, 4, "f");
	add_linked(f, &p, &one, 5, "f");
	add_linked(f, &p, &one, 6, "g");
	b = flush(f, 1010 * S, false);
	assert_int_equal(b->n_profiles, 1);
	assert_int_equal(b->profiles[0]->n_samples, 4);
	s = b->profiles[0]->samples;
	assert_int_equal(s[0].n_samples, 7);
	assert_memory_equal(&b->links[s[0].link - 1], &one, sizeof(one));
	assert_int_equal(s[1].n_samples, 3);
	assert_memory_equal(&b->links[s[1].link - 1], &other, sizeof(other));
	assert_int_equal(s[2].link, 0);
	assert_int_equal(s[2].n_samples, 4);
	assert_int_equal(s[3].link, s[0].link);
	assert_int_equal(s[3].n_samples, 6);
	fold_free(f);
}

/*
 * If links reach their limit, no sample is lost. Samples without a link are added up to few rows.
 */
static void test_links_have_a_budget(void **state)
{
	(void)state;
	struct fold *f = fold_at(&config, 1000 * S);
	struct fold_process p = process(NULL);
	uint64_t dropped = counter_get(counter("podflame_links_dropped_total", "reason", "budget"));
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	uint64_t n = 0, without = 0;

	for (uint32_t i = 1; i <= 50000; i++) {
		struct profile_link l = {{1}, {2}};

		memcpy(l.span_id, &i, sizeof(i));
		add_linked(f, &p, &l, 1, i % 2 ? "f" : "g");
	}
	b = flush(f, 1010 * S, false);
	for (size_t i = 0; i < b->profiles[0]->n_samples; i++) {
		const struct profile_sample *s = &b->profiles[0]->samples[i];

		n += s->n_samples;
		without += s->link ? 0 : s->n_samples;
	}
	assert_int_equal(n, 50000);
	assert_in_range(b->n_links, 10000, 40000);
	assert_int_equal(b->profiles[0]->n_samples, b->n_links + 2);
	assert_int_equal(without, 50000 - b->n_links);
	assert_int_equal(counter_get(counter("podflame_links_dropped_total", "reason", "budget")) -
				 dropped,
			 without);
	assert_int_equal(b->profiles[0]->n_losses, 0);
	fold_free(f);
}

static void test_threads_of_one_name_merge(void **state)
{
	(void)state;
	struct fold *f = fold_at(&config, 1000 * S);
	struct owner *o = new_owner("web-1");
	struct fold_process p = process(o);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct profile *prof;

	add(f, &p, 43, "worker", 0, 2, "f", 1001 * S);
	add(f, &p, 44, "worker", 1, 3, "f", 1002 * S);
	add(f, &p, 44, "worker", 1, 4, "g", 1003 * S);
	/* samples of the main thread are not added to those of other threads with the same name */
	add(f, &p, 42, "worker", 1, 5, "f", 1003 * S);
	b = flush(f, 1010 * S, false);
	assert_int_equal(b->n_profiles, 1);
	prof = b->profiles[0];
	assert_int_equal(prof->n_samples, 3);
	assert_int_equal(prof->samples[0].n_samples, 5);
	assert_int_equal(prof->samples[0].value, 5 * 10101);
	assert_int_equal(prof->samples[0].cpu, -1);
	assert_false(prof->samples[0].main_thread);
	assert_string_equal(prof->samples[0].thread_comm, "worker");
	assert_int_equal(prof->samples[1].n_samples, 4);
	assert_true(prof->samples[2].main_thread);
	assert_int_equal(prof->period_ns, 10101000);
	proc_owner_unref(o);
	fold_free(f);
}

enum { GREEDY = 1, VICTIM };

/* A process of a container of a namespace. */
static struct fold_process process_of(struct owner *o, uint64_t ns, int tgid)
{
	struct fold_process p = process(o);

	o->ns_hash = ns;
	p.id.tgid = tgid;
	return p;
}

/* Adds n samples of one process, each with a link of its own. */
static void add_links(struct fold *f, const struct fold_process *p, uint32_t n, enum event event,
		      uint64_t last_ns)
{
	for (uint32_t i = 0; i < n; i++) {
		struct profile_link l = {{1}, {2}};

		memcpy(l.trace_id, &p->id.tgid, sizeof(p->id.tgid));
		memcpy(l.trace_id + 8, &last_ns, sizeof(last_ns));
		memcpy(l.span_id, &i, sizeof(i));
		add_linked_event(f, p, &l, 1, "f", event, last_ns);
	}
}

static uint64_t n_with_links(const struct batch *b, int tgid)
{
	uint64_t n = 0;

	for (size_t i = 0; i < b->n_profiles; i++)
		for (size_t j = 0;
		     (int)b->profiles[i]->process_id == tgid && j < b->profiles[i]->n_samples; j++)
			n += b->profiles[i]->samples[j].link ? 1 : 0;
	return n;
}

/* Of what the window refused since the last call, only the attacker is told. */
static void assert_greedy_is_told(struct fold *f)
{
	struct shares unlinked = {0};

	fold_unlinked(f, &unlinked);
	assert_int_equal(unlinked.all, 1);
	assert_int_equal(shares_most(&unlinked, 0), GREEDY);
	shares_done(&unlinked);
	fold_unlinked(f, &unlinked);
	assert_int_equal(unlinked.all, 0);
}

/*
 * Two containers of one namespace have more samples with links than a window keeps. Those of
 * another namespace, which come later, keep theirs.
 */
static void links_of_one_namespace_leave_room(void **state)
{
	(void)state;
	struct fold *f = fold_at(&config, 1000 * S);
	struct owner *a = new_owner("a"), *b = new_owner("b"), *web = new_owner("web");
	const struct fold_process pa = process_of(a, GREEDY, 1), pb = process_of(b, GREEDY, 2),
				  victim = process_of(web, VICTIM, 3);
	_cleanup_(profile_batch_freep) struct batch *batch = NULL;

	add_links(f, &pa, 20000, EVENT_ON_CPU, 1001 * S);
	add_links(f, &pb, 20000, EVENT_ON_CPU, 1001 * S);
	add_links(f, &victim, 1000, EVENT_ON_CPU, 1001 * S);
	assert_greedy_is_told(f);
	batch = flush(f, 1010 * S, false);
	assert_int_equal(n_with_links(batch, 3), 1000);
	assert_in_range(n_with_links(batch, 1), 10000, 20000);
	proc_owner_unref(a);
	proc_owner_unref(b);
	proc_owner_unref(web);
	fold_free(f);
}

/* A sample that adds to another one of the window needs no room, so it keeps its link. */
static void links_that_need_no_room_stay(void **state)
{
	(void)state;
	struct fold *f = fold_at(&config, 1000 * S);
	struct owner *greedy = new_owner("greedy");
	const struct fold_process p = process_of(greedy, GREEDY, 1);
	struct counter *c = counter("podflame_links_dropped_total", "reason", "budget");
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	uint64_t dropped;

	add_links(f, &p, 20000, EVENT_ON_CPU, 1001 * S);
	dropped = counter_get(c);
	assert_greedy_is_told(f);
	add_links(f, &p, 100, EVENT_ON_CPU, 1001 * S); /* again the first ones */
	assert_int_equal(counter_get(c), dropped);
	add_links(f, &p, 100, EVENT_OFF_CPU, 1001 * S); /* the links are known, the samples new */
	assert_int_equal(counter_get(c), dropped + 100);
	b = flush(f, 1010 * S, false);
	for (size_t i = 0; i < 100; i++)
		assert_int_equal(b->profiles[0]->samples[i].n_samples, 2);
	proc_owner_unref(greedy);
	fold_free(f);
}

/* Links are used up, but not the room for samples with one: what has a known link keeps it. */
static void known_links_stay_when_links_are_used_up(void **state)
{
	(void)state;
	struct fold *f = fold_at(&config, 1000 * S);
	struct owner *greedy = new_owner("greedy");
	const struct fold_process p = process_of(greedy, GREEDY, 1);
	struct counter *c = counter("podflame_links_dropped_total", "reason", "budget");
	uint64_t dropped;

	for (uint64_t i = 0; i < 8; i++)
		add_links(f, &p, 10000, EVENT_MEM_INUSE, 1001 * S + i);
	assert_greedy_is_told(f);
	dropped = counter_get(c);
	add_links(f, &p, 100, EVENT_ON_CPU, 1001 * S); /* those of the first snapshot */
	assert_int_equal(counter_get(c), dropped);
	fold_free(f);
	proc_owner_unref(greedy);
}

/*
 * Each snapshot of memory in use takes the place of the last one, but links stay in the window. So
 * snapshots of few samples could use up all links.
 */
static void links_of_snapshots_leave_room(void **state)
{
	(void)state;
	struct fold *f = fold_at(&config, 1000 * S);
	struct owner *greedy = new_owner("greedy"), *web = new_owner("web");
	const struct fold_process attacker = process_of(greedy, GREEDY, 1),
				  victim = process_of(web, VICTIM, 2);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;

	for (uint64_t i = 0; i < 8; i++)
		add_links(f, &attacker, 10000, EVENT_MEM_INUSE, 1001 * S + i);
	assert_greedy_is_told(f);
	add_links(f, &victim, 1000, EVENT_ON_CPU, 1001 * S);
	b = flush(f, 1010 * S, false);
	assert_int_equal(n_with_links(b, 2), 1000);
	assert_in_range(b->n_links, BATCH_MAX_LINKS / 2, BATCH_MAX_LINKS - 1);
	proc_owner_unref(greedy);
	proc_owner_unref(web);
	fold_free(f);
}

static void test_tags_and_process(void **state)
{
	(void)state;
	struct fold *f = fold_at(&config, 1000 * S);
	struct owner *o = new_owner("web-1");
	struct fold_process p = process(o);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct profile *prof;

	add(f, &p, 42, "web", 0, 1, "f", 1001 * S);
	b = flush(f, 1010 * S, false);
	prof = b->profiles[0];
	assert_string_equal(prof->app_service, "web");
	assert_int_equal(prof->process_id, 42);
	assert_string_equal(profile_tag_get(prof, "pod"), "web-1");
	assert_string_equal(profile_tag_get(prof, "container_id"), "c0ffee");
	assert_string_equal(profile_tag_get(prof, "pod_uid"), "uid-1");
	assert_string_equal(profile_tag_get(prof, "container_pid"), "7");
	assert_string_equal(profile_tag_get(prof, "pod_node"), "node-a");
	assert_string_equal(profile_tag_get(prof, "pod_cluster"), "prod-cluster");
	proc_owner_unref(o);
	fold_free(f);
}

static void test_window_is_aligned_to_wall_time(void **state)
{
	(void)state;
	struct fold *f = fold_at(&config, 1003 * S);
	struct owner *o = new_owner("web-1");
	struct fold_process p = process(o);
	struct batch *b;

	assert_int_equal(fold_next_flush_ns(f), 1010 * S);
	add(f, &p, 42, "web", 0, 1, "f", 1004 * S);
	assert_null(flush(f, 1009 * S, false));
	b = flush(f, 1010 * S, false);
	assert_true(b->profiles[0]->start_ns == WALL_0 + 3 * S);
	assert_true(b->profiles[0]->end_ns == WALL_0 + 10 * S);
	profile_batch_free(b);
	assert_int_equal(fold_next_flush_ns(f), 1020 * S);
	assert_null(flush(f, 1020 * S, false)); /* the window is empty */
	assert_int_equal(fold_next_flush_ns(f), 1030 * S);
	proc_owner_unref(o);
	fold_free(f);
}

/*
 * In the next window, the profile of the same process has another id, but the same start time of
 * the process.
 */
static void test_next_window(void **state)
{
	(void)state;
	struct fold *f = fold_at(&config, 1000 * S);
	struct owner *o = new_owner("web-1");
	struct fold_process p = process(o);
	_cleanup_(profile_batch_freep) struct batch *a = NULL, *b = NULL;

	add(f, &p, 42, "web", 0, 1, "f", 1001 * S);
	a = flush(f, 1010 * S, false);
	add(f, &p, 42, "web", 0, 1, "f", 1011 * S);
	b = flush(f, 1020 * S, false);
	assert_memory_not_equal(a->profiles[0]->id, b->profiles[0]->id, 16);
	assert_true(a->profiles[0]->process_start_ns == b->profiles[0]->process_start_ns);
	assert_true(b->profiles[0]->start_ns == WALL_0 + 10 * S);
	proc_owner_unref(o);
	fold_free(f);
}

/*
 * Start times use the clock as it was before it was set, because the hub knows the process by its
 * start time.
 */
static void test_start_by_the_clock_of_before(void **state)
{
	struct fold_config c = config;
	struct owner *o = new_owner("web-1");
	struct fold_process p = process(o);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	struct fold *f;

	(void)state;
	c.start_offset_ns = OFFSET - 600 * S;
	f = fold_at(&c, 1000 * S);
	add(f, &p, 42, "web", 0, 1, "f", 1001 * S);
	b = flush(f, 1010 * S, false);
	assert_true(b->profiles[0]->process_start_ns == 900 * S + OFFSET - 600 * S);
	assert_true(b->profiles[0]->end_ns == WALL(1010 * S));
	proc_owner_unref(o);
	fold_free(f);
}

static void test_clock_step_starts_a_new_window(void **state)
{
	(void)state;
	struct fold *f = fold_at(&config, 1000 * S);
	struct owner *o = new_owner("web-1");
	struct fold_process p = process(o);
	struct batch *a = NULL, *b = NULL;
	uint64_t back_ns = 3 * S;

	add(f, &p, 42, "web", 0, 1, "f", 1001 * S);
	assert_int_equal(fold_flush(f, 1004 * S, WALL(1004 * S) - back_ns, false, &a), 0);
	assert_non_null(a);
	assert_true(a->profiles[0]->start_ns == WALL_0);
	/* the window was cut short at the time when the clock was set */
	assert_true(a->profiles[0]->end_ns == WALL_0 + 4 * S);
	add(f, &p, 42, "web", 0, 1, "f", 1005 * S);
	assert_int_equal(fold_next_flush_ns(f), 1013 * S);
	assert_int_equal(fold_flush(f, 1013 * S, WALL(1013 * S) - back_ns, false, &b), 0);
	assert_true(b->profiles[0]->start_ns ==
		    /* the clock was set back, so the last window has this time, too */
		    WALL_0 + 1 * S);
	assert_memory_not_equal(a->profiles[0]->id, b->profiles[0]->id, 16);
	profile_batch_free(a);
	profile_batch_free(b);
	proc_owner_unref(o);
	fold_free(f);
}

/* ntpd slows the clock by a millisecond. There must be no gap between windows. */
static void test_slewed_clock(void **state)
{
	(void)state;
	struct fold *f = fold_at(&config, 1000 * S);
	struct owner *o = new_owner("web-1");
	struct fold_process p = process(o);
	struct batch *b = NULL;

	assert_int_equal(fold_flush(f, 1010 * S, WALL(1010 * S) - NSEC_PER_MSEC, false, &b), 0);
	assert_null(b);
	add(f, &p, 42, "web", 0, 1, "f", 1011 * S);
	assert_int_equal(fold_next_flush_ns(f), 1020 * S + NSEC_PER_MSEC);
	assert_int_equal(fold_flush(f, 1021 * S, WALL(1021 * S), false, &b), 0);
	assert_true(b->profiles[0]->start_ns == WALL_0 + 10 * S);
	profile_batch_free(b);
	proc_owner_unref(o);
	fold_free(f);
}

static void test_late_samples_are_counted(void **state)
{
	(void)state;
	struct counter *late = counter("podflame_samples_late_total", "reason", "after_window");
	struct fold *f = fold_at(&config, 1000 * S);
	struct owner *o = new_owner("web-1");
	struct fold_process p = process(o);
	uint64_t before = counter_get(late);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;

	assert_null(flush(f, 1010 * S, false));
	add(f, &p, 42, "web", 0, 3, "f", 1009 * S);
	add(f, &p, 42, "web", 0, 1, "f", 1011 * S);
	assert_int_equal(counter_get(late), before + 3);
	b = flush(f, 1020 * S, false);
	assert_int_equal(b->profiles[0]->samples[0].n_samples, 4);
	proc_owner_unref(o);
	fold_free(f);
}

/*
 * A process gets another profile if an exec changes its name, or if a new label changes its owner.
 * If the agent restarts in a window, the ids are different.
 */
static void test_kept_apart(void **state)
{
	(void)state;
	struct fold *f = fold_at(&config, 1000 * S), *g = NULL;
	struct owner *o = new_owner("web-1"), *relabelled = new_owner("web-1");
	struct fold_process p = process(o);
	_cleanup_(profile_batch_freep) struct batch *b = NULL, *c = NULL;

	add(f, &p, 42, "web", 0, 1, "f", 1001 * S);
	p.comm = "java";
	add(f, &p, 42, "java", 0, 1, "f", 1001 * S);
	p.owner = relabelled;
	add(f, &p, 42, "java", 0, 1, "f", 1001 * S);
	proc_owner_unref(relabelled); /* the window has a reference of its own */
	b = flush(f, 1005 * S, true);
	assert_int_equal(b->n_profiles, 3);
	fold_free(f);
	g = fold_at(&config, 1006 * S);
	p = process(o);
	add(g, &p, 42, "web", 0, 1, "f", 1007 * S);
	c = flush(g, 1010 * S, false);
	assert_memory_not_equal(b->profiles[0]->id, c->profiles[0]->id, 16);
	proc_owner_unref(o);
	fold_free(g);
}

static void test_per_cpu(void **state)
{
	(void)state;
	struct fold_config per_cpu = config;
	struct fold *f;
	struct owner *o = new_owner("web-1");
	struct fold_process p = process(o);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;

	per_cpu.per_cpu = true;
	f = fold_at(&per_cpu, 1000 * S);
	add(f, &p, 42, "web", 0, 1, "f", 1001 * S);
	add(f, &p, 42, "web", 1, 1, "f", 1001 * S);
	add(f, &p, 42, "web", 1, 1, "f", 1001 * S);
	b = flush(f, 1010 * S, false);
	assert_int_equal(b->profiles[0]->n_samples, 2);
	assert_int_equal(b->profiles[0]->samples[1].cpu, 1);
	assert_int_equal(b->profiles[0]->samples[1].n_samples, 2);
	proc_owner_unref(o);
	fold_free(f);
}

static void test_total(void **state)
{
	(void)state;
	struct fold *f = fold_at(&config, 1000 * S);
	struct raw_total t = {"web", "worker", false, 2, 20202};
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct profile *p;

	fold_total(f, &t, 1001 * S);
	fold_total(f, &t, 1002 * S);
	b = flush(f, 1010 * S, false);
	p = b->profiles[0];
	assert_string_equal(p->app_service, "Total");
	assert_int_equal(p->process_id, 0);
	assert_string_equal(profile_tag_get(p, "pod_node"), "node-a");
	assert_int_equal(p->n_samples, 1);
	assert_int_equal(p->samples[0].stack, STACK_NONE);
	assert_int_equal(p->samples[0].n_samples, 4);
	assert_string_equal(p->samples[0].process_comm, "web");
	assert_string_equal(p->samples[0].thread_comm, "worker");
	fold_free(f);
}

static void test_losses(void **state)
{
	(void)state;
	struct fold *f = fold_at(&config, 1000 * S);
	struct owner *o = new_owner("web-1");
	_cleanup_(profile_batch_freep) struct batch *b = NULL;

	fold_lose(f, NULL, 1u << EVENT_ON_CPU, "agent_down", 0, 4 * S);
	fold_lose(f, o, 1u << EVENT_ON_CPU, "ring_full", 2, 0);
	fold_lose(f, o, 1u << EVENT_ON_CPU, "ring_full", 3, 0);
	b = flush(f, 1010 * S, false);
	assert_int_equal(b->n_profiles, 2);
	assert_int_equal(b->profiles[0]->n_samples, 0);
	assert_string_equal(b->profiles[0]->losses[0].reason, "agent_down");
	assert_true(b->profiles[0]->losses[0].time_ns == 4 * S);
	assert_string_equal(profile_tag_get(b->profiles[0], "pod_node"), "node-a");
	assert_string_equal(profile_tag_get(b->profiles[1], "pod"), "web-1");
	assert_int_equal(b->profiles[1]->losses[0].n_samples, 5);
	proc_owner_unref(o);
	fold_free(f);
}

/* Each sample is either in the window or counted as lost. */
static void test_full_window(void **state)
{
	(void)state;
	struct fold *f = fold_at(&config, 1000 * S);
	struct owner *o = new_owner("web-1");
	struct fold_process p = process(o);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	uint64_t n_in = 0, kept = 0, lost = 0;

	for (uint32_t i = 0; i < 300; i++) { /* the names have 300 x 256 KiB */
		_cleanup_free_ char *name = xmalloc(256u << 10);

		snprintf(name, 16, "f%u", i);
		memset(name + strlen(name), 'x', (256u << 10) - strlen(name));
		name[(256u << 10) - 1] = '\0';
		if (profile_batch_bytes(fold_batch(f)) < BATCH_MAX_BYTES)
			stack(f, name);
		p.id.tgid = 42 + i;
		{
			struct raw_sample s = {.event = EVENT_ON_CPU,
					       .tgid = (uint32_t)p.id.tgid,
					       .tid = (uint32_t)p.id.tgid,
					       .n = 1,
					       .value = 10101,
					       .last_ns = 1001 * S};

			fold_add(f, &p, &s, NULL, i);
		}
		n_in++;
	}
	b = flush(f, 1010 * S, false);
	for (size_t i = 0; i < b->n_profiles; i++) {
		for (size_t j = 0; j < b->profiles[i]->n_samples; j++)
			kept += b->profiles[i]->samples[j].n_samples;
		for (size_t j = 0; j < b->profiles[i]->n_losses; j++) {
			assert_string_equal(b->profiles[i]->losses[j].reason, "window_full");
			lost += b->profiles[i]->losses[j].n_samples;
		}
	}
	assert_true(lost > 0 && kept > 0);
	assert_int_equal(kept + lost, n_in);
	proc_owner_unref(o);
	fold_free(f);
}

/* Adds a sample of o, whose stack has one name of n_bytes. false: the sample is lost. */
static bool add_large(struct fold *f, struct owner *o, uint32_t n, size_t n_bytes)
{
	_cleanup_free_ char *name = xmalloc(n_bytes);
	struct fold_process p = process(o);
	struct raw_sample s = {.event = EVENT_ON_CPU,
			       .tgid = 42,
			       .tid = 42,
			       .n = 1,
			       .value = 10101,
			       .last_ns = 1001 * S};
	bool ok = fold_begin(f, o);

	memset(name, 'x', n_bytes);
	snprintf(name, n_bytes, "f%u", n);
	name[strlen(name)] = 'x';
	name[n_bytes - 1] = '\0';
	ok = ok && fold_add(f, &p, &s, NULL, stack(f, name));
	fold_end(f);
	return ok;
}

/*
 * A container's names may use half of the free memory of the window, so samples of others still
 * fit.
 */
static void test_shares_of_a_window(void **state)
{
	(void)state;
	struct fold *f = fold_at(&config, 1000 * S);
	struct owner *greedy = new_owner("greedy"), *web = new_owner("web"), *db = new_owner("db");
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	uint32_t n = 0, mib = 1 << 20;

	while (n < 100 && add_large(f, greedy, n, mib))
		n++;
	assert_in_range(n, 30, 33); /* half of 64 MiB */
	for (uint32_t i = 0; i < 10; i++)
		assert_true(add_large(f, web, 100 + i, mib));
	assert_false(add_large(f, greedy, 200, 100));
	while (n < 100 && add_large(f, web, 200 + n, mib))
		n++;
	assert_in_range(n, 34, 40);
	assert_true(add_large(f, db, 300, mib));
	b = flush(f, 1010 * S, false);
	profile_batch_free(b);
	/* in the next window, the container has a share again */
	assert_true(add_large(f, greedy, 1, mib));
	b = flush(f, 1020 * S, true);
	proc_owner_unref(greedy);
	proc_owner_unref(web);
	proc_owner_unref(db);
	fold_free(f);
}

static void test_window_length(void **state)
{
	(void)state;
	struct fold_config c = config;
	struct fold *f = NULL;

	c.window_ns = S - 1;
	assert_int_equal(fold_new(&c, &f), -ERANGE);
	c.window_ns = 61 * S;
	assert_int_equal(fold_new(&c, &f), -ERANGE);
	assert_null(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_of_one_name_merge),
		cmocka_unit_test(test_samples_of_other_calls_are_kept_apart),
		cmocka_unit_test(test_links_have_a_budget),
		cmocka_unit_test(links_of_one_namespace_leave_room),
		cmocka_unit_test(links_that_need_no_room_stay),
		cmocka_unit_test(known_links_stay_when_links_are_used_up),
		cmocka_unit_test(links_of_snapshots_leave_room),
		cmocka_unit_test(test_tags_and_process),
		cmocka_unit_test(test_window_is_aligned_to_wall_time),
		cmocka_unit_test(test_next_window),
		cmocka_unit_test(test_start_by_the_clock_of_before),
		cmocka_unit_test(test_clock_step_starts_a_new_window),
		cmocka_unit_test(test_slewed_clock),
		cmocka_unit_test(test_late_samples_are_counted),
		cmocka_unit_test(test_kept_apart),
		cmocka_unit_test(test_per_cpu),
		cmocka_unit_test(test_total),
		cmocka_unit_test(test_losses),
		cmocka_unit_test(test_full_window),
		cmocka_unit_test(test_shares_of_a_window),
		cmocka_unit_test(test_window_length),
	};

	return cmocka_run_group_tests_name("fold", tests, NULL, NULL);
}
