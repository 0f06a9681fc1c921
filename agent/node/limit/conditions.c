/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out whether the targets of a container have changed, and reports to targets which of their
 * events of off-cpu and uprobes are refused (OverBudget) or estimated (Estimated). Loop thread.
 */
#include "node/limit/internal.h"

#include <stdlib.h>

#define TOLD_AGAIN 1.5 /* a share is reported again when it has changed by this factor */
#define DRAIN_NS   1e9 /* between two drains */

/* ---- what targets ask for ---- */

struct generation_hash {
	const struct plan *plan;
	uint64_t hash;
};

static void add_generation(const char *uid, void *arg)
{
	struct generation_hash *a = arg;

	for (size_t i = 0; i < a->plan->n_targets; i++)
		if (streq(a->plan->targets[i].uid, uid))
			a->hash = hash_bytes(&a->plan->targets[i].generation,
					     sizeof(a->plan->targets[i].generation), a->hash);
}

uint64_t limit_asked(const struct limit *o, const struct payer *p)
{
	struct generation_hash a = {.plan = proc_containers_plan(o->config.containers)};

	plan_targets_of(a.plan, p->owner->container_id, p->owner->pod_uid, add_generation, &a);
	return a.hash;
}

/* ---- estimates ---- */

struct estimate limit_estimate_of(const struct limit *o, const struct payer *p, enum event e)
{
	const struct account *a = &p->of[e];
	uint32_t error_ppm = limit_error_ppm(a->drain.value, a->drain.square);
	struct estimate x = {.ppm = error_ppm ? 1000000 : 0, .error_ppm = error_ppm};
	struct planned_spans planned;

	if (e == EVENT_OFF_CPU && p->off.keep != UINT32_MAX)
		x.ppm = (uint32_t)MAX(((double)p->off.keep + 1) / 4294967296.0 * 1e6, 1.0);
	if (!a->tried || a->mode != LIMIT_SPANS)
		return x;
	planned.load = limit_load(&a->cost, limit_hit_ns(o, p, probes_set_of(e)));
	planned.duty = (double)a->span.span_ns / (double)MAX(a->span.wait_ns, 1u);
	planned.drains = (double)a->span.span_ns / DRAIN_NS;
	planned.a_window = (double)o->config.window_ns / (double)MAX(a->span.wait_ns, 1u);
	x = limit_span_estimate(&a->spans, &planned, a->n_spans_drained);
	x.error_ppm = limit_errors_ppm(x.error_ppm, error_ppm);
	return x;
}

/* ---- reports to targets ---- */

static const char *refusal_text(enum refusal why)
{
	switch (why) {
	case REFUSAL_SNAPSHOT:
		return "live memory cannot be estimated from a part of the time";
	case REFUSAL_DISTORTED:
		return "while its probes are attached it would do hardly anything else";
	case REFUSAL_SHORT:
		return "maxStall allows only spans that are too short";
	case REFUSAL_RARE:
		return "the limit allows too few spans";
	case REFUSAL_NONE:
		break;
	}
	return "";
}

static char *refused_text(const struct limit *o, const struct payer *p, enum event e)
{
	const struct account *a = &p->of[e];
	double per_s = a->cost.attached_ns > 0 ? a->cost.hits / a->cost.attached_ns * 1e9 : 0;
	uint64_t hit_ns = limit_hit_ns(o, p, probes_set_of(e));

	if (a->cost.hits > 0) /* a library may report a higher cost of all hits together */
		hit_ns = MAX(hit_ns, (uint64_t)(a->cost.library_ns / a->cost.hits));
	return xasprintf("its probes are hit %.0f times a second, at %llu ns each: %.3g %% of its "
			 "CPU time, and overheadPercent allows %.3g; %s",
			 per_s, (unsigned long long)hit_ns, limit_load(&a->cost, hit_ns) * 100,
			 limit_percent(p), refusal_text(a->why));
}

/*
 * Returns the share of the hits from which the values of an event come, as it is reported. 0: the
 * values are complete, so nothing is reported.
 */
static uint32_t share_of(const struct limit *o, struct payer *p, enum event e)
{
	struct account *a = &p->of[e];
	double ppm = limit_estimate_of(o, p, e).ppm;
	bool part =
		e == EVENT_OFF_CPU ? p->off.keep != UINT32_MAX : a->tried && a->mode == LIMIT_SPANS;

	if (!part)
		a->told_ppm = 0;
	else if (!a->told_ppm || ppm > a->told_ppm * TOLD_AGAIN || ppm < a->told_ppm / TOLD_AGAIN)
		a->told_ppm = (uint32_t)ppm;
	return a->told_ppm;
}

static char *estimated_text(enum event e, uint32_t ppm)
{
	double percent = ppm / 1e4;

	if (e == EVENT_OFF_CPU)
		return xasprintf("profiles have %.3g %% of its waits, chosen at random", percent);
	return xasprintf("%.3g %% duty: probes are attached for short spans at random times",
			 percent);
}

static void tell(struct problem_list *l, const struct limit *o, const struct payer *p, enum event e,
		 const char *problem, const char *detail)
{
	const struct problem what = {profile_event_info(e)->name, problem, detail};

	report_problems_add(l, proc_containers_plan(o->config.containers), p->owner, &what);
}

void limit_tell(struct limit *o)
{
	struct problem_list refused = {0}, estimated = {0};
	uint64_t n_refused = 0, n_estimated = 0;

	for (struct payer *p = o->payers; p; p = p->hh.next)
		for (enum event e = EVENT_OFF_CPU; e < _EVENT_MAX; e++) {
			const struct account *a = &p->of[e];
			bool is_off = a->tried && a->mode == LIMIT_REFUSED;
			uint32_t ppm = is_off ? 0 : share_of(o, p, e);
			_cleanup_free_ char *detail = is_off ? refused_text(o, p, e)
						      : ppm  ? estimated_text(e, ppm)
							     : NULL;

			if (is_off)
				tell(&refused, o, p, e, "is off", detail);
			else if (ppm)
				tell(&estimated, o, p, e, "is estimated", detail);
			n_refused += is_off;
			n_estimated += ppm != 0;
		}
	counter_set(counter("podflame_containers_over_budget", NULL, NULL), n_refused);
	counter_set(counter("podflame_containers_estimated", NULL, NULL), n_estimated);
	report_problems_tell(&o->refused, &refused, o->config.report, REASON_OVER_BUDGET);
	report_problems_tell(&o->estimated, &estimated, o->config.report, REASON_ESTIMATED);
}
