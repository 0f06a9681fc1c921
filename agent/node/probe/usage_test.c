// SPDX-License-Identifier: Apache-2.0
/*
 * The costs of cgroups and the totals by name: entries that are not needed leave room, and one
 * namespace leaves room for others.
 */
#include "lib/base/shares.h"
#include "lib/base/testprogram.h"
#include "node/probe/cgroups_test.h"

#include "core.skel.h"

enum { NS_GREEDY = 1001, NS_VICTIM = 1003 };

/* ---- a process of each namespace, in a cgroup of its own ---- */

struct inhabitant {
	char *dir;
	uint64_t cgroup_id, ns;
	struct child c;
};

static struct probes *open_with_cgroups(bool total)
{
	struct probe_config config = {.use_cgroups = true, .total = total, .max_sample_hz = 99};
	struct field_error err = {};

	assert_int_equal(proc_cgroup_choose("", &config.hierarchy, &err), 0);
	return open_probes(config);
}

static struct inhabitant make(const struct probes *p, const char *name, uint64_t ns)
{
	struct inhabitant x = {.ns = ns, .dir = cgroup_make(p->config.hierarchy.mount, name)};

	x.cgroup_id = cgroup_id(x.dir);
	return x;
}

/* The process begins its work when it is in its cgroup. */
#define IN_CGROUP 7

static void await_cgroup(struct truth *t)
{
	while (t->ready != IN_CGROUP)
		nap(1);
}

static void start(struct inhabitant *x, body_fn *body)
{
	x->c = child_start(body, NULL);
	cgroup_move(x->dir, x->c.pid);
	x->c.truth->ready = IN_CGROUP;
}

static void leave(struct inhabitant *x)
{
	child_stop(&x->c);
	cgroup_remove(x->dir);
}

static void select_both(struct probes *p, enum event e, const struct inhabitant *a,
			const struct inhabitant *b)
{
	const struct inhabitant *both[] = {a, b};
	struct container_filter f[2];

	for (size_t i = 0; i < 2; i++)
		f[i] = (struct container_filter){.cgroup_id = both[i]->cgroup_id,
						 .ns = both[i]->ns,
						 .event_mask = 1u << e,
						 .sample_hz = 99};
	assert_int_equal(probes_filter(p, f, 2), 0);
}

/* ---- costs ---- */

static size_t n_costs(struct probes *p)
{
	struct probe_usage *u = NULL;
	size_t n;

	assert_int_equal(probes_usage(p, &u, &n), 0);
	free(u);
	return n;
}

static bool has_cost(const struct probes *p, const struct inhabitant *x)
{
	struct pf_usage_key key = {.cgroup_id = x->cgroup_id, .event = EVENT_OFF_CPU};
	_cleanup_free_ struct pf_usage *cost = xcalloc((size_t)p->n_possible_cpus, sizeof(*cost));

	return bpf_map_lookup_elem(bpf_map__fd(p->core->maps.usage), &key, cost) == 0;
}

/* Adds costs of cgroups of a namespace that are gone, as long as its share has room. */
static void fill_costs(struct probes *p, uint64_t ns)
{
	const uint32_t share = probes_share_of(p, ns);
	struct pf_shares *shares = p->usage_shares;
	_cleanup_free_ struct pf_usage *cost = xcalloc((size_t)p->n_possible_cpus, sizeof(*cost));
	struct pf_usage_key key = {.event = EVENT_OFF_CPU, .cgroup_id = 1ull << 40};

	cost[0].share = share;
	while (shares_have_room((uint64_t)shares->held[0], (uint64_t)shares->held[share], 1,
				PF_USAGE_MAX)) {
		key.cgroup_id++;
		assert_int_equal(bpf_map_update_elem(bpf_map__fd(p->core->maps.usage), &key, cost,
						     BPF_NOEXIST),
				 0);
		probes_share_more_by(shares, share, 1);
	}
}

static void body_waits(struct truth *t)
{
	await_cgroup(t);
	for (;;) {
		nap(1);
		t->ready++;
	}
}

static void waits_often(const struct inhabitant *x)
{
	const uint32_t until = x->c.truth->ready + 100;
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;

	while (x->c.truth->ready < until) {
		assert_true(now_mono_ns() < deadline);
		nap(1);
	}
}

/* Returns whether the drain says that the namespace was refused entries of this table. */
static bool is_refused(const struct drain *d, uint64_t ns, enum shared_table table)
{
	for (size_t i = 0; i < d->n_refused; i++)
		if (d->refused[i].ns == ns && d->refused[i].table == table)
			return true;
	return false;
}

/*
 * A namespace has had costs in very many cgroups. Those of another one are counted. Entries of
 * cgroups that are gone leave their room.
 */
static void costs_of_one_namespace_leave_room(void **state)
{
	struct counter *full = counter("podflame_usage_full_total", NULL, NULL);
	struct probes *p = open_with_cgroups(false);
	struct inhabitant greedy = make(p, "greedy", NS_GREEDY),
			  victim = make(p, "victim", NS_VICTIM);
	uint64_t before = counter_get(full);
	struct drain *d;

	(void)state;
	select_both(p, EVENT_OFF_CPU, &greedy, &victim);
	fill_costs(p, NS_GREEDY);
	start(&greedy, body_waits);
	start(&victim, body_waits);
	waits_often(&greedy);
	waits_often(&victim);
	assert_true(has_cost(p, &victim));
	assert_false(has_cost(p, &greedy));
	assert_int_equal(probes_drain(p, true, &d), 0);
	assert_true(is_refused(d, NS_GREEDY, SHARED_COSTS));
	assert_false(is_refused(d, NS_VICTIM, SHARED_COSTS));
	assert_true(counter_get(full) > before);
	sample_drain_free(d);

	assert_int_equal(n_costs(p), 1);
	waits_often(&greedy);
	assert_true(has_cost(p, &greedy));
	assert_int_equal(p->usage_shares->held[0], 2);
	assert_int_equal(p->usage_shares->held[probes_share_of(p, NS_GREEDY)], 1);
	leave(&greedy);
	leave(&victim);
	probes_free(p);
}

/* ---- totals ---- */

/* Adds names to the totals of this generation, as long as the namespace's share has room. */
static void fill_totals(struct probes *p, uint64_t ns)
{
	const uint32_t share = probes_share_of(p, ns), slot = p->settings->generation % 2;
	struct pf_shares *shares = &p->total_shares[slot];
	int map = bpf_map__fd(slot ? p->core->maps.totals_1 : p->core->maps.totals_0);
	_cleanup_free_ struct pf_total *total = xcalloc((size_t)p->n_possible_cpus, sizeof(*total));
	struct pf_total_key key = {};

	for (unsigned i = 0; shares_have_room((uint64_t)shares->held[0],
					      (uint64_t)shares->held[share], 1, PF_TOTALS_MAX);
	     i++) {
		snprintf(key.thread_comm, sizeof(key.thread_comm), "many-%u", i);
		assert_int_equal(bpf_map_update_elem(map, &key, total, BPF_NOEXIST), 0);
		probes_share_more_by(shares, share, 1);
	}
}

static void work_as(struct truth *t, const char *comm)
{
	await_cgroup(t);
	prctl(PR_SET_NAME, comm);
	body_work(t);
}

static void body_greedy(struct truth *t)
{
	work_as(t, "pf-greedy");
}

static void body_victim(struct truth *t)
{
	work_as(t, "pf-victim");
}

static void works_for(const struct inhabitant *x, uint64_t ns)
{
	const uint64_t until = program_cpu_ns(x->c.pid) + ns;
	uint64_t deadline = now_mono_ns() + 120 * NSEC_PER_SEC;

	while (program_cpu_ns(x->c.pid) < until) {
		assert_true(now_mono_ns() < deadline);
		nap(5);
	}
}

static bool has_total(const struct drain *d, const char *comm)
{
	for (size_t i = 0; i < d->n_totals; i++)
		if (streq(d->totals[i].leader_comm, comm))
			return true;
	return false;
}

/* Threads of one namespace have very many names. Those of another one are counted, too. */
static void totals_of_one_namespace_leave_room(void **state)
{
	struct probes *p = open_with_cgroups(true);
	struct inhabitant greedy = make(p, "greedy", NS_GREEDY),
			  victim = make(p, "victim", NS_VICTIM);
	struct drain *d;

	(void)state;
	select_both(p, EVENT_ON_CPU, &greedy, &victim);
	fill_totals(p, NS_GREEDY);
	start(&greedy, body_greedy);
	start(&victim, body_victim);
	works_for(&greedy, 500 * NSEC_PER_MSEC);
	works_for(&victim, 500 * NSEC_PER_MSEC);
	assert_int_equal(probes_drain(p, true, &d), 0);
	assert_true(has_total(d, "pf-victim"));
	assert_false(has_total(d, "pf-greedy"));
	assert_true(profile_losses_sum(&d->lost) > 0);
	sample_drain_free(d);
	/* in the next generation, it may have as many again */
	works_for(&greedy, 500 * NSEC_PER_MSEC);
	assert_int_equal(probes_drain(p, true, &d), 0);
	assert_true(has_total(d, "pf-greedy"));
	sample_drain_free(d);
	leave(&greedy);
	leave(&victim);
	probes_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(costs_of_one_namespace_leave_room),
		cmocka_unit_test(totals_of_one_namespace_leave_room),
	};

	run = getpid();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
