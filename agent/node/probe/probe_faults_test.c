/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bpf() and perf_event_open() fail at any moment. Then probes_support() shows which features do not
 * work, and after probes_free() no object stays in the kernel.
 */
#include "lib/base/fault.h"
#include "lib/base/testclock.h"
#include "bpf/abi.h"
#include "node/probe/probe.h"

#include <setjmp.h>
#include <unistd.h>

#include <cmocka.h>

/* Loads the programs, samples this process, drains, and frees all. */
static int sample(void *arg)
{
	struct probe_config c = {.use_list = true, .max_sample_hz = 99};
	struct listed_process self = {
		.id.tgid = getpid(), .event_mask = 1u << EVENT_ON_CPU, .sample_hz = 99};
	struct probes *p = NULL;
	struct field_error e = {0};
	struct drain *d = NULL;
	int r = probes_new(&c, &p, &e);

	(void)arg;
	if (r) {
		assert_null(p);
		return r;
	}
	r = proc_start_boottime(self.id.tgid, &self.id.start_boottime_ns);
	if (!r)
		r = probes_list(p, &self, 1);
	if (!r)
		r = probes_drain(p, true, &d);
	if (r)
		assert_null(d);
	sample_drain_free(d);
	probes_free(p);
	return r;
}

/*
 * A run takes 100 ms of CPU time, most of it for the verifier. So only a few of some 200 calls
 * fail, unless LONG=1 is set.
 */
static void each_call_fails_once(void **state)
{
	static const struct fault_row rows[] = {
		{.name = "probes_new, probes_list, probes_drain: bpf()",
		 .calls = FAULT(BPF),
		 .run = sample,
		 .step = 101,
		 .grows = true},
		{.name = "probes_new, probes_list, probes_drain: the rest",
		 .calls = FAULT(PERF) | FAULT(MMAP) | FAULT(FD) | FAULT(START) | FAULT(EPOLL) |
			  FAULT(OPEN),
		 .run = sample,
		 .step = 61,
		 .grows = true},
	};

	(void)state;
	if (geteuid() != 0) {
		print_message("skipped: BPF needs root\n");
		skip();
	}
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		fault_each(&rows[i], NULL);
}

static uint64_t supported(struct probes *p)
{
	size_t n;
	const struct support *s = probes_support(p, &n);
	uint64_t set = 0;

	for (size_t i = 0; i < n; i++)
		set |= (uint64_t)s[i].ok << i;
	return set;
}

/*
 * No feature is missing because of an error that may pass: either all features work, or loading
 * fails and the next try works.
 */
static void a_moment_without_memory_takes_nothing_away(void **state)
{
	struct probe_config c = {.use_list = true, .max_sample_hz = 99};
	unsigned step = getenv("LONG") ? 1 : 23, n_failed = 1;
	uint64_t all = 0;

	(void)state;
	if (geteuid() != 0) {
		print_message("skipped: BPF needs root\n");
		skip();
	}
	for (unsigned n = 0; n_failed; n += step) {
		struct field_error e = {0};
		struct probes *p = NULL;
		int r;

		if (n) /* the first run has no fault */
			fault_arm(FAULT_BPF, ENOMEM, n, false);
		r = probes_new(&c, &p, &e);
		n_failed = n ? fault_disarm() : 1;
		if (r && !(n && n_failed && e.reason[0]))
			fail_msg("call %u: %d, '%s'", n, r, e.reason);
		if (!n)
			all = supported(p);
		if (!r && supported(p) != all)
			fail_msg("call %u: %#lx of %#lx", n, supported(p), all);
		probes_free(p);
	}
}

/* ---- programs that stay loaded: events are attached, drained, detached ---- */

#define ON_CPU (1u << EVENT_ON_CPU)
#define BOTH   (ON_CPU | 1u << EVENT_OFF_CPU)
#define MEMORY (1u << EVENT_MEM_ALLOC | 1u << EVENT_MEM_INUSE)

static struct probes *loaded;
static unsigned n_links, n_links_on_cpu, n_links_both; /* numbers of links if no call fails */

static unsigned links_now(void)
{
	struct probes_stats s;

	return probes_stats(loaded, &s) ? 0 : s.n_links;
}

static int first(int a, int b)
{
	return a ? a : b;
}

static int ask(unsigned events)
{
	struct listed_process self = {.id.tgid = getpid(),
				      .event_mask = events,
				      .sample_hz = 99,
				      .settings = {.max_block_us = USEC_PER_SEC},
				      .off_note = UINT32_MAX,
				      .off_keep = UINT32_MAX / 2};
	const struct container_filter cgroup = {
		.cgroup_id = 4711, .event_mask = events, .sample_hz = 49};
	int r = proc_start_boottime(self.id.tgid, &self.id.start_boottime_ns);

	r = first(r, probes_filter(loaded, &cgroup, events != 0));
	return first(r, probes_list(loaded, &self, events != 0));
}

static int drain(void)
{
	struct drain *d = NULL;
	int r = probes_drain(loaded, true, &d);

	if (r)
		assert_null(d);
	else
		assert_non_null(d);
	sample_drain_free(d);
	return r;
}

/*
 * Whichever call failed: once no event is wanted, nothing is attached, and a later filter that
 * wants events gets all of them.
 */
static int attach(void *arg)
{
	int r = first(ask(ON_CPU), drain());
	unsigned n = links_now(); /* this calls bpf(), so it may fail */

	(void)arg;
	if (!fault_failed())
		assert_int_equal(n, n_links_on_cpu);
	r = first(r, ask(0));
	return first(r, drain());
}

static int load(void **state)
{
	struct probe_config c = {.use_list = true, .use_cgroups = true, .max_sample_hz = 99};
	struct field_error e = {0};

	(void)state;
	if (geteuid() != 0)
		return 0;
	assert_int_equal(probes_new(&c, &loaded, &e), 0);
	n_links = links_now();
	assert_int_equal(ask(ON_CPU), 0);
	n_links_on_cpu = links_now();
	assert_true(n_links_on_cpu > n_links);
	assert_int_equal(ask(BOTH), 0);
	n_links_both = links_now();
	/* off-cpu has links for switch, wake-up, exec and exit */
	assert_true(n_links_both >= n_links_on_cpu + 4);
	assert_int_equal(ask(0), 0);
	assert_int_equal(links_now(), n_links);
	return 0;
}

static int unload(void **state)
{
	(void)state;
	loaded = probes_free(loaded);
	return 0;
}

static void attaching_fails(void **state)
{
	static const struct fault_row rows[] = {
		{.name = "probes_filter, probes_list, probes_drain: links",
		 .calls = FAULT(LINK) | FAULT(PERF) | FAULT(IOCTL),
		 .run = attach,
		 .grows = true},
		{.name = "probes_filter, probes_list, probes_drain: reads",
		 .calls = FAULT(OPEN) | FAULT(READ) | FAULT(EPOLL) | FAULT(POLL) | FAULT(MMAP),
		 .run = attach,
		 .step = 5,
		 .grows = true},
		{.name = "probes_filter, probes_list, probes_drain: bpf()",
		 .calls = FAULT(BPF),
		 .run = attach,
		 .step = 7,
		 .grows = true},
	};

	(void)state;
	if (!loaded)
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		fault_each(&rows[i], NULL);
}

/*
 * The calls that fail are chosen by hand, because off-cpu forgets waits with thousands of calls
 * before it attaches. off-cpu attaches all of its links or none, and on-cpu goes on.
 */
static void each_link_of_off_cpu_fails_once(void **state)
{
	unsigned n_failed = 0, n = 1;

	(void)state;
	if (!loaded)
		skip();
	for (;; n++) {
		assert_int_equal(ask(ON_CPU), 0);
		fault_arm(FAULT_LINK, EPERM, n, false);
		assert_int_equal(ask(BOTH), 0);
		n_failed = fault_disarm();
		assert_int_equal(drain(), 0);
		assert_int_equal(links_now(), n_failed ? n_links_on_cpu : n_links_both);
		assert_int_equal(ask(0), 0);
		assert_int_equal(links_now(), n_links);
		if (!n_failed)
			break;
	}
	assert_int_equal(n, 1 + n_links_both - n_links_on_cpu);
}

/*
 * There are no free descriptors for a moment. If the filter still wants both events, they are
 * attached soon, without another filter.
 */
static void what_passes_is_tried_again(void **state)
{
	(void)state;
	if (!loaded)
		skip();
	fault_arm(FAULT_LINK, EMFILE, 1, true);
	(void)ask(BOTH);
	(void)drain();
	assert_true(fault_disarm() > 0);
	assert_int_equal(drain(), 0); /* the next drain attaches on-cpu */
	assert_int_equal(links_now(), n_links_on_cpu);
	test_clock.later_ns += 31 * NSEC_PER_SEC;
	assert_int_equal(drain(), 0);
	assert_int_equal(links_now(), n_links_both);
	assert_int_equal(ask(0), 0);
}

static void work(unsigned ms)
{
	uint64_t until_ns = thread_cpu_ns() + ms * NSEC_PER_MSEC;

	while (thread_cpu_ns() < until_ns)
		;
}

/*
 * There is no memory for the filter's entries for a moment. A selected cgroup is sampled soon,
 * whether the plan changes or not.
 */
static void what_the_filter_lacked_is_there_soon(void **state)
{
	size_t n = 0;

	(void)state;
	if (!loaded)
		skip();
	fault_arm(FAULT_BPF, ENOMEM, 1, true);
	assert_int_not_equal(ask(ON_CPU), 0);
	assert_true(fault_disarm() > 0);
	assert_int_equal(drain(), 0);
	for (int i = 0; i < 20 && !n; i++) {
		struct drain *d = NULL;

		work(100);
		assert_int_equal(probes_drain(loaded, true, &d), 0);
		n = d->n_samples;
		sample_drain_free(d);
	}
	assert_true(n > 0);
	assert_int_equal(ask(0), 0);
}

static bool works(const char *feature)
{
	size_t n;
	const struct support *s = probes_support(loaded, &n);

	for (size_t i = 0; i < n; i++)
		if (streq(s[i].feature, feature))
			return s[i].ok;
	return false;
}

/*
 * The thread of long_waits.c starts when the filter first wants only a share of the waits. If the
 * machine lacked something for a moment, it starts soon.
 */
static void long_waits_that_cannot_begin_do_later(void **state)
{
	static const struct {
		enum fault_call call;
		int error;
		bool passes;
	} rows[] = {{FAULT_START, EAGAIN, true},
		    {FAULT_LINK, ENOMEM, true},
		    {FAULT_LINK, EPERM, false}};
	struct drain *d = NULL;

	if (!loaded)
		skip();
	if (!works("off-cpu-whole-waits")) {
		print_message("skipped: this kernel cannot walk stacks of others\n");
		skip();
	}
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(ask(BOTH), 0);
		fault_arm(rows[i].call, rows[i].error, 1, false);
		assert_int_equal(probes_drain(loaded, true, &d), 0);
		assert_int_equal(fault_disarm(), 1);
		assert_true(d->tried_again);
		d = sample_drain_free(d);
		assert_false(works("off-cpu-whole-waits"));
		assert_int_equal(drain(), 0);
		assert_false(works("off-cpu-whole-waits")); /* it is tried again only after 30 s */
		test_clock.later_ns += 31 * NSEC_PER_SEC;
		assert_int_equal(probes_drain(loaded, true, &d), 0);
		assert_int_equal(d->tried_again, rows[i].passes);
		d = sample_drain_free(d);
		assert_int_equal(works("off-cpu-whole-waits"), rows[i].passes);
		unload(state);
		load(state);
	}
}

static const struct support *support_of(enum event e)
{
	size_t n;
	const struct support *s = probes_support(loaded, &n);

	assert_true(n > (size_t)e);
	return &s[e];
}

/* Returns the error for a process that has no place to probe. */
static int attach_nothing(void)
{
	struct pf_mem_proc proc = {.event_mask = 1u << EVENT_MEM_ALLOC};
	struct probes_refused refused;
	struct attached *a = NULL;

	return probes_attach(loaded, PROBES_MEMORY, (struct process_id){1, getpid()}, &proc, NULL,
			     0, &a, &refused);
}

/*
 * The programs are loaded when the event is wanted. If the machine lacked something for a moment,
 * they are loaded soon.
 */
static void memory_that_is_short_is_tried_again(void **state)
{
	static const struct {
		int error;
		bool passes;
	} rows[] = {{ENOMEM, true}, {EMFILE, true}, {EPERM, false}};
	struct drain *d = NULL;

	if (!loaded)
		skip();
	if (attach_nothing() == -EOPNOTSUPP) {
		print_message("skipped: this kernel has no uprobes\n");
		skip();
	}
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		fault_arm(FAULT_BPF, rows[i].error, 1, true);
		(void)ask(MEMORY);
		assert_true(fault_disarm() > 0);
		assert_false(support_of(EVENT_MEM_ALLOC)->ok);
		assert_false(support_of(EVENT_MEM_INUSE)->ok);
		assert_int_equal(attach_nothing(), rows[i].passes ? -rows[i].error : -EOPNOTSUPP);
		assert_int_equal(drain(), 0);
		assert_false(support_of(EVENT_MEM_ALLOC)->ok);
		test_clock.later_ns += 31 * NSEC_PER_SEC;
		assert_int_equal(probes_drain(loaded, true, &d), 0);
		assert_int_equal(d->tried_again, rows[i].passes);
		d = sample_drain_free(d);
		assert_int_equal(attach_nothing(), rows[i].passes ? -ENOENT : -EOPNOTSUPP);
		assert_int_equal(support_of(EVENT_MEM_ALLOC)->ok, rows[i].passes);
		assert_int_equal(support_of(EVENT_MEM_INUSE)->ok, rows[i].passes);
		if (rows[i].passes)
			assert_null(support_of(EVENT_MEM_INUSE)->reason);
		(void)ask(0);
		unload(state);
		load(state);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_call_fails_once),
		cmocka_unit_test(a_moment_without_memory_takes_nothing_away),
		cmocka_unit_test_setup_teardown(attaching_fails, load, unload),
		cmocka_unit_test_setup_teardown(each_link_of_off_cpu_fails_once, load, unload),
		cmocka_unit_test_setup_teardown(what_passes_is_tried_again, load, unload),
		cmocka_unit_test_setup_teardown(what_the_filter_lacked_is_there_soon, load, unload),
		cmocka_unit_test_setup_teardown(long_waits_that_cannot_begin_do_later, load,
						unload),
		cmocka_unit_test_setup_teardown(memory_that_is_short_is_tried_again, load, unload),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("probe_faults", tests, NULL, NULL);
}
