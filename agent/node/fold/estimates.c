/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the standard errors of values that are estimates. fold_estimate() notes the error for one
 * event of a container. When the window ends, fold_apply_estimates() divides the error among the
 * profiles of that container's processes.
 */
#include "node/fold/internal.h"

#include <math.h>
#include <stdlib.h>

#define ALL_PPM 1000000

static struct estimate_entry *find(struct fold *f, const struct owner *owner, enum event event)
{
	struct estimate_key key = {owner, event};
	struct estimate_entry *e;

	HASH_FIND(hh, f->estimates, &key, sizeof(key), e);
	return e;
}

void fold_estimate(struct fold *f, struct owner *owner, enum event event, uint32_t ppm,
		   uint64_t error)
{
	struct estimate_entry *e = find(f, owner, event);

	if (!e) {
		e = xcalloc(1, sizeof(*e));
		e->key = (struct estimate_key){owner, event};
		e->owner = proc_owner_ref(owner);
		e->ppm = ALL_PPM;
		HASH_ADD(hh, f->estimates, key, sizeof(e->key), e);
	}
	if (ppm)
		e->ppm = MIN(e->ppm, ppm);
	/*
	 * errors of drains are independent, so their squares add up; but a new snapshot replaces
	 * the old one
	 */
	if (profile_event_info(event)->snapshot)
		e->variance = 0;
	e->variance += (double)error * (double)error;
}

static double sum_of(const struct profile *p)
{
	double sum = 0;

	for (size_t i = 0; i < p->n_samples; i++)
		sum += (double)p->samples[i].value;
	return sum;
}

/*
 * Only profiles of processes have estimates: a value of a whole container or node is counted
 * exactly.
 */
static struct estimate_entry *estimate_of(struct fold *f, const struct profile_entry *p)
{
	return p->key.id.tgid ? find(f, p->owner, p->key.event) : NULL;
}

void fold_apply_estimates(struct fold *f)
{
	struct estimate_entry *e, *next;

	for (struct profile_entry *p = f->estimates ? f->profiles : NULL; p; p = p->hh.next) {
		e = estimate_of(f, p);
		if (e)
			e->total += sum_of(p->profile);
	}
	for (struct profile_entry *p = f->estimates ? f->profiles : NULL; p; p = p->hh.next) {
		double share;

		e = estimate_of(f, p);
		if (!e)
			continue;
		share = e->total > 0 ? sum_of(p->profile) / e->total : 0;
		p->profile->estimate_ppm =
			p->profile->estimate_ppm ? MIN(p->profile->estimate_ppm, e->ppm) : e->ppm;
		p->profile->estimate_error = (uint64_t)fmin(sqrt(e->variance * share), 0x1p53);
	}
	HASH_ITER (hh, f->estimates, e, next) {
		HASH_DEL(f->estimates, e);
		proc_owner_unref(e->owner);
		free(e);
	}
}
