/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.overheadPercent for on-cpu. A container that uses one CPU for a second is sampled `hz`
 * times in this second. So sampling adds hz * (cost of a sample), whatever the container does. If
 * the kernel's BPF statistics are on, the agent measures the cost: the run time of on-cpu's
 * programs divided by the number of samples, plus the interrupt. The run time includes ticks in
 * containers that are not selected. So the measured cost is rather too high than too low. This file
 * owns the lowered rates. payers.c has the other events. Loop thread.
 */
#include "node/limit/internal.h"

#include <math.h>
#include <stdlib.h>
#include <uthash.h>

#define ROUND_NS     (10 * NSEC_PER_SEC)
#define INTERRUPT_NS 2000 /* the timer interrupt around the program; an estimate */
/* used until measured: a program takes 4 us, and five times that with cold caches */
#define UNMEASURED_NS 20000
#define MIN_SAMPLES   50 /* the mean of fewer samples is not used */
/* the rate is raised only if the cost would be below this part of the limit */
#define RESTORE_FRACTION 0.8

struct lowered {
	char id[CONTAINER_ID_BYTES];
	unsigned hz, asked_hz;
	double percent;
	char *text; /* the values above and the reason, as text for the user */
	bool seen;
	UT_hash_handle hh;
};
struct rates {
	const struct limit_config *config;
	struct lowered *lowered;
	struct problem_list told;
	/*
	 * ticks_ns: run time of the programs at the start of the round; n_samples: samples since
	 * then
	 */
	uint64_t ticks_ns, n_samples;
	/* cost of a sample at the last measurement; 0: not measured yet */
	uint64_t cost_ns;
	uint64_t round_ns;
};

struct rates *limit_rates_new(const struct limit_config *c)
{
	struct rates *l = xcalloc(1, sizeof(*l));

	l->config = c;
	return l;
}

static void drop(struct rates *l, struct lowered *t)
{
	HASH_DEL(l->lowered, t);
	free(t->text);
	free(t);
}

struct rates *limit_rates_free(struct rates *l)
{
	struct lowered *t, *tmp;

	if (!l)
		return NULL;
	HASH_ITER (hh, l->lowered, t, tmp)
		drop(l, t);
	report_problems_done(&l->told);
	free(l);
	return NULL;
}

unsigned limit_hz(double percent, uint64_t sample_cost_ns)
{
	double hz = floor(percent / 100 * NSEC_PER_SEC / (double)MAX(sample_cost_ns, 1u));

	return hz < 1 ? 1 : hz > 1e6 ? 1000000 : (unsigned)hz;
}

/*
 * Measures the cost of a sample. If there are few samples in a round, for example because the
 * container sleeps, the old cost is kept, and so is the rate.
 */
static void measure(struct rates *l, uint64_t ticks_ns)
{
	/* the counters start at 0 when the programs are loaded again */
	if (ticks_ns > l->ticks_ns && l->n_samples >= MIN_SAMPLES)
		l->cost_ns = (ticks_ns - l->ticks_ns) / l->n_samples + INTERRUPT_NS;
	l->ticks_ns = ticks_ns;
	l->n_samples = 0;
}

static uint64_t cost(const struct rates *l)
{
	return l->cost_ns ? l->cost_ns : UNMEASURED_NS;
}

static struct lowered *find(const struct rates *l, const char *id)
{
	struct lowered *t;

	HASH_FIND_STR(l->lowered, id, t);
	return t;
}

static void tell(struct rates *l)
{
	const struct plan *plan = proc_containers_plan(l->config->containers);
	struct problem_list now = {0};

	for (size_t i = 0; plan && i < plan->n_pods; i++)
		for (size_t k = 0; k < plan->pods[i].n_containers; k++) {
			const struct plan_pod *pod = &plan->pods[i];
			const struct plan_container *c = &pod->containers[k];
			const struct lowered *t = c->id ? find(l, c->id) : NULL;
			struct tag tags[] = {{(char *)"container", c->name},
					     {(char *)"pod", pod->name}};
			const struct owner o = {.tags = {tags, ARRAY_SIZE(tags), 0},
						.container_id = c->id,
						.pod_uid = pod->uid};
			const struct problem what = {profile_event_info(EVENT_ON_CPU)->name,
						     "is sampled less often", t ? t->text : NULL};

			if (t)
				report_problems_add(&now, plan, &o, &what);
		}
	report_problems_tell(&l->told, &now, l->config->report, REASON_RATE_LOWERED);
}

/*
 * Keeps a lowered rate, and changes its text if what the targets ask for has changed. The cost of a
 * sample changes each time, but that alone does not change the text.
 */
static void hold(const struct rates *l, struct lowered *t, const struct plan_container *c,
		 unsigned hz)
{
	t->seen = true;
	if (hz == t->hz && c->sample_hz == t->asked_hz && c->on_cpu_percent == t->percent)
		return;
	t->hz = hz;
	t->asked_hz = c->sample_hz;
	t->percent = c->on_cpu_percent;
	free(t->text);
	t->text = xasprintf(
		"%u instead of %u Hz, to stay within overheadPercent %g: a sample costs about "
		"%llu ns here (%s)",
		hz, c->sample_hz, c->on_cpu_percent, (unsigned long long)cost(l),
		l->cost_ns ? "measured"
			   : "estimate: too few samples, or kernel.bpf_stats_enabled is 0");
}

static void lower(struct limit *limit, uint64_t ns, const struct plan_container *c, unsigned hz)
{
	struct rates *l = limit->rates;
	struct lowered *t = find(l, c->id);

	if (!t) {
		t = xcalloc(1, sizeof(*t));
		snprintf(t->id, sizeof(t->id), "%s", c->id);
		HASH_ADD_STR(l->lowered, id, t);
	}
	if (t->hz && hz >= t->hz && hz * RESTORE_FRACTION < t->hz)
		hz = t->hz;
	if (hz == t->hz || proc_containers_cap_hz(l->config->containers, ns, c->id, hz)) {
		hold(l, t, c, hz);
	} else {
		drop(l, t);
		shares_add(&limit->crowded, ns);
	}
}

static void release(struct rates *l, const struct plan_container *c)
{
	struct lowered *t = find(l, c->id);

	if (!t)
		return;
	proc_containers_cap_hz(l->config->containers, 0, c->id, 0);
	drop(l, t);
}

static void look_at(struct limit *limit, const struct plan_pod *pod, const struct plan_container *c)
{
	struct rates *l = limit->rates;
	struct lowered *t;
	unsigned hz;

	if (!c->id)
		return;
	if (!(c->event_mask & 1u << EVENT_ON_CPU)) {
		release(l, c);
		return;
	}
	t = find(l, c->id);
	hz = c->on_cpu_percent > 0 ? limit_hz(c->on_cpu_percent, cost(l)) : c->sample_hz;
	if (hz < c->sample_hz)
		lower(limit, proc_ns_hash(pod->ns), c, hz);
	else if (hz * RESTORE_FRACTION >= c->sample_hz || c->on_cpu_percent <= 0 ||
		 (t && t->hz >= c->sample_hz))
		release(l, c);
	else if (t)
		hold(l, t, c, t->hz);
}

static void forget_gone(struct rates *l)
{
	struct lowered *t, *tmp;

	HASH_ITER (hh, l->lowered, t, tmp) {
		if (!t->seen) {
			proc_containers_cap_hz(l->config->containers, 0, t->id, 0);
			drop(l, t);
			continue;
		}
		t->seen = false;
	}
}

void limit_stats(struct limit *limit, const struct probes_stats *s, const struct drain *d)
{
	struct rates *l = limit->rates;
	const struct plan *plan = proc_containers_plan(l->config->containers);
	uint64_t now_ns = now_boot_ns();

	loop_assert(limit->config.work->loop);
	for (size_t i = 0; d && i < d->n_samples; i++)
		l->n_samples += d->samples[i].event == EVENT_ON_CPU ? d->samples[i].n : 0;
	if (now_ns < l->round_ns + ROUND_NS)
		return;
	measure(l, s->ticks_ns);
	counter_set(counter("podflame_sample_cost_ns", NULL, NULL), cost(l));
	for (size_t i = 0; plan && i < plan->n_pods; i++)
		for (size_t k = 0; k < plan->pods[i].n_containers; k++)
			look_at(limit, &plan->pods[i], &plan->pods[i].containers[k]);
	forget_gone(l);
	tell(l);
	l->round_ns = now_ns;
}
