/* SPDX-License-Identifier: Apache-2.0 */
/* The rate that a limit leaves: by what ticks cost, whatever other events cost beside them. */
#include "node/internal.h"
#include "node/plan/testplan.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define UID   "401b6bf6-91e0-4a28-870a-232376283f12"
#define C8(c) #c #c #c #c #c #c #c #c
#define ID    C8(a) C8(a) C8(a) C8(a) C8(a) C8(a) C8(a) C8(a)

/* One round over a container of this limit: what its rate is then. */
static unsigned hz_after(unsigned event_mask, double percent, uint64_t ns_of_a_tick)
{
	enum { N = 1000 };
	struct raw_sample samples[] = {{.event = EVENT_ON_CPU, .n = N},
				       {.event = EVENT_OFF_CPU, .n = 100 * N},
				       {.event = EVENT_MEM_ALLOC, .n = 100 * N}};
	const struct drain d = {.samples = samples, .n_samples = ARRAY_SIZE(samples)};
	const struct probes_stats s = {
		.ticks_ns = N * ns_of_a_tick, .run_ns = 1000 * NSEC_PER_SEC, .delivered = 201 * N};
	struct node n = {.refs = 1};
	struct plan *plan = testplan(UID, UID, ID, false);
	const struct procs_filter *f;
	unsigned hz;
	bool changed;
	size_t n_filter;

	assert_int_equal(procs_new(&n.procs), 0);
	plan->pods->containers->event_mask = event_mask;
	plan->pods->containers->overhead_percent = percent;
	plan->pods->containers->sample_hz = event_mask & 1u << EVENT_ON_CPU ? 99 : 0;
	procs_apply(n.procs, plan, 1);
	procs_cgroup(n.procs, 11, 10, "/kubepods/pod" UID "/" ID, false, 1);
	n.limit = limit_new(&n);
	limit_stats(n.limit, &s, &d);
	f = procs_filter(n.procs, 1, &n_filter, &changed);
	assert_int_equal(n_filter, 1);
	hz = f[0].sample_hz;
	limit_free(n.limit);
	procs_free(n.procs);
	return hz;
}

static void test_rate(void **state)
{
	const unsigned on = 1u << EVENT_ON_CPU, all = on | 1u << EVENT_OFF_CPU;

	(void)state;
	assert_int_equal(hz_after(on, 0, 98000), 99);	/* no limit */
	assert_int_equal(hz_after(on, 1, 8000), 99);	/* 10 us with the interrupt: 1000 fit */
	assert_int_equal(hz_after(on, 0.1, 98000), 10); /* 100 us: ten a second */
	assert_int_equal(hz_after(all, 1, 8000), 99);
	assert_int_equal(hz_after(1u << EVENT_OFF_CPU, 0.1, 98000), 0); /* nobody asked for ticks */
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_rate)};

	return cmocka_run_group_tests_name("node/limit", tests, NULL, NULL);
}
