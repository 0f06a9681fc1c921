/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Off-cpu: containers whose waits are thinned: of them the kernel records only a share, so that the
 * cost stays below the limit. The share must be forgotten when the container ends.
 */
#include "node/testoverhead.h"

/* ---- processes: they write what they do to memory that the test can read ---- */

/* A process that does almost nothing but wait. */
static void naps(void)
{
	for (;;)
		usleep(1);
}

/* ---- off-cpu: a limit ends with its container. No loop runs; the test reports the cgroups ---- */

#define OFF	  (1u << EVENT_OFF_CPU)
#define CGROUP	  (1ull << 40) /* no cgroup of this machine has an id as great as this */
#define KEPT	  1000
#define N_THINNED 5000

static void cgroup(struct fixture *f, uint64_t id, const char *container_id, const char *inner,
		   bool removed)
{
	_cleanup_free_ char *path = xasprintf("/kubepods/pod%s/%s%s", f->uid, container_id, inner);

	proc_containers_cgroup(f->node->containers, id, CGROUP, path, removed, now_boot_ns());
}

static void plan_off(struct fixture *f, const char *container_id, unsigned event_mask)
{
	struct plan *plan = testplan(f->uid, f->uid, container_id, true);

	plan->pods[0].containers[0].event_mask = event_mask;
	proc_containers_apply(f->node->containers, plan, now_boot_ns());
}

static void thin(struct fixture *f, uint64_t id, const char *container_id)
{
	struct payer *p = limit_payer_get(f->node->limit, id);

	assert_non_null(p);
	p->off = OFF_SHARES(KEPT, KEPT);
	proc_containers_keep_off(f->node->containers, proc_ns_hash("app"), container_id, KEPT,
				 KEPT);
}

static uint32_t kept_of(struct fixture *f, uint64_t id)
{
	bool changed;
	size_t n;
	const struct container_filter *filter =
		proc_containers_filter(f->node->containers, now_boot_ns(), &n, &changed);
	uint64_t until_ns;
	struct owner *o = proc_containers_owner(f->node->containers, id, &until_ns);
	uint32_t keep;

	assert_non_null(o);
	keep = o->off_keep;
	proc_owner_unref(o);
	for (size_t i = 0; i < n; i++)
		if (filter[i].cgroup_id == id)
			assert_true(filter[i].off_keep == keep);
	return keep;
}

/*
 * Makes the agent look at all payers now. Does not wait until the agent has read their CPU times.
 */
static void look_at_owners(struct fixture *f)
{
	struct limit *o = f->node->limit;

	o->round_ns = 0;
	limit_usage(o, NULL, 0, 0);
	assert_true(o->reading == (testpayers_one(o) != NULL));
}

static void who_was_thinned_begins_anew(void **state)
{
	struct fixture *f = *state;

	begin(f, sleeps, OFF, 0);
	cgroup(f, CGROUP + 1, f->id, "", false);
	thin(f, CGROUP + 1, f->id);
	assert_int_equal(kept_of(f, CGROUP + 1), KEPT);
	proc_containers_apply(f->node->containers, testplan("other", "other", "other", true),
			      now_boot_ns());
	look_at_owners(f);
	assert_null(testpayers_one(f->node->limit));
	plan_off(f, f->id, OFF);
	assert_true(kept_of(f, CGROUP + 1) == UINT32_MAX);
}

static void who_ends_takes_its_limit_along(void **state)
{
	struct fixture *f = *state;

	begin(f, sleeps, OFF, 0);
	cgroup(f, CGROUP + 1, f->id, "", false);
	cgroup(f, CGROUP + 2, f->id, "/inner", false);
	assert_non_null(limit_payer_get(f->node->limit, CGROUP + 1));
	thin(f, CGROUP + 2, f->id);
	assert_int_equal(kept_of(f, CGROUP + 1), KEPT);
	cgroup(f, CGROUP + 2, f->id, "/inner", true);
	look_at_owners(f);
	assert_int_equal(HASH_COUNT(testpayers_one(f->node->limit)), 1);
	assert_true(kept_of(f, CGROUP + 1) == UINT32_MAX);
}

static void limits_of_who_is_gone_leave_room(void **state)
{
	struct fixture *f = *state;
	char id[CONTAINER_ID_BYTES];

	begin(f, sleeps, OFF, 0);
	for (uint64_t i = 1; i <= N_THINNED; i++) {
		snprintf(id, sizeof(id), "%063llx0", (unsigned long long)(CGROUP + i));
		plan_off(f, id, OFF);
		cgroup(f, CGROUP + i, id, "", false);
		thin(f, CGROUP + i, id);
		assert_int_equal(kept_of(f, CGROUP + i), KEPT);
		cgroup(f, CGROUP + i, id, "", true);
		look_at_owners(f);
	}
}

static uint64_t dropped(void)
{
	return counter_get(counter("podflame_container_limits_dropped_total", NULL, NULL));
}

#define MAX_PAYERS 8192

static void cgroups_beyond_the_limit_are_counted(void **state)
{
	struct fixture *f = *state;
	struct limit *o;
	const struct payer *one;
	uint64_t before = dropped();

	begin(f, sleeps, OFF, 0);
	o = f->node->limit;
	cgroup(f, CGROUP + 1, f->id, "", false);
	cgroup(f, CGROUP + 2, f->id, "/inner", false);
	one = limit_payer_get(o, CGROUP + 1);
	assert_non_null(one);
	for (uint64_t id = CGROUP + 10; HASH_COUNT(testpayers_one(o)) < MAX_PAYERS; id++) {
		struct payer *p = xcalloc(1, sizeof(*p));

		*p = (struct payer){
			.cgroup_id = id, .ns = one->ns, .owner = proc_owner_ref(one->owner)};
		p->off = OFF_SHARES_ALL;
		HASH_ADD(hh, o->payers, cgroup_id, sizeof(p->cgroup_id), p);
		shares_add(&o->payer_shares, p->ns);
	}
	assert_null(limit_payer_get(o, CGROUP + 3)); /* the cgroup has no owner */
	assert_int_equal(dropped(), before);
	assert_null(limit_payer_get(o, CGROUP + 2));
	assert_int_equal(dropped(), before + 1);
	look_at_owners(f);
	assert_non_null(limit_payer_get(o, CGROUP + 2));
	assert_int_equal(dropped(), before + 1);
}

#define MAX_CAPS 4096 /* as in node/proc/caps.c */

static uint64_t dropped_before;

static bool has_no_room(struct fixture *f)
{
	(void)f;
	return dropped() > dropped_before;
}

static bool is_thinned(struct fixture *f)
{
	const struct payer *p = testpayers_one(f->node->limit);

	return p && p->off.keep != UINT32_MAX;
}

/*
 * The table of shares has no room for the container, so the kernel records all of its switches. The
 * report must not say that they are thinned.
 */
static void who_cannot_be_thinned_is_not_told_as_thinned(void **state)
{
	struct counter *estimated = counter("podflame_containers_estimated", NULL, NULL);
	struct fixture *f = *state;
	char id[CONTAINER_ID_BYTES];
	uint64_t ns;

	begin(f, naps, OFF, 0);
	ns = proc_ns_hash("app");
	for (unsigned i = 0; i < MAX_CAPS / 4 * 3; i++) {
		snprintf(id, sizeof(id), "%063llx0", (unsigned long long)(CGROUP + i));
		assert_true(proc_containers_keep_off(f->node->containers, ns, id, KEPT, KEPT));
	}
	dropped_before = dropped();
	run_until(f, has_no_room, "a limit without room");
	assert_false(is_thinned(f));
	assert_int_equal(counter_get(estimated), 0);
	assert_true(proc_containers_keep_off(f->node->containers, ns, id, UINT32_MAX, UINT32_MAX));
	run_until(f, is_thinned, "a limit, once there is room");
}

/* The argument is a pattern for the names of tests, such as "a_file*"; default: all. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(who_was_thinned_begins_anew, setup, teardown),
		cmocka_unit_test_setup_teardown(who_ends_takes_its_limit_along, setup, teardown),
		cmocka_unit_test_setup_teardown(limits_of_who_is_gone_leave_room, setup, teardown),
		cmocka_unit_test_setup_teardown(cgroups_beyond_the_limit_are_counted, setup,
						teardown),
		cmocka_unit_test_setup_teardown(who_cannot_be_thinned_is_not_told_as_thinned, setup,
						teardown),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	truth = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(truth != MAP_FAILED);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
