/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives up samples of a drain that is more work than the pipeline worker can do in time. All
 * namespaces have the same share of the work, and what one does not need goes to the others. So
 * only those lose samples that have the most. Runs on the pipeline worker.
 */
#include "node/pipeline/internal.h"

#include <stdlib.h>

/* The samples of one namespace in a drain. Work: see pipeline_work(). */
struct part {
	uint64_t ns; /* owner.ns_hash; 0: samples without an owner */
	uint64_t work, seen, kept;
};
struct crowd {
	const struct feed *feed;
	struct part *parts; /* sorted by ns; the first is that of samples without an owner */
	size_t n_parts;
	uint64_t share;		      /* how much of its work each namespace may keep */
	uint32_t *work;		      /* of each sample */
	uint64_t (*lost)[_EVENT_MAX]; /* samples, by attribution; the last: without one */
};

static int compare_numbers(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}
_Static_assert(offsetof(struct part, ns) == 0, "compare_numbers");

static void make_parts(struct crowd *c)
{
	const struct feed *f = c->feed;
	_cleanup_free_ uint64_t *all = xcalloc(f->n_owners + 1, sizeof(*all));

	for (size_t i = 0; i < f->n_owners; i++)
		all[i + 1] = f->owners[i].owner->ns_hash;
	qsort(all, f->n_owners + 1, sizeof(*all), compare_numbers);
	c->parts = xcalloc(f->n_owners + 1, sizeof(*c->parts));
	for (size_t i = 0; i <= f->n_owners; i++)
		if (i == 0 || all[i] != all[i - 1])
			c->parts[c->n_parts++].ns = all[i];
}

static struct part *part_of(const struct crowd *c, const struct attribution *a)
{
	const uint64_t ns = a ? a->owner->ns_hash : 0;

	return bsearch(&ns, c->parts, c->n_parts, sizeof(*c->parts), compare_numbers);
}

static void measure(struct crowd *c)
{
	const struct drain *d = c->feed->drain;

	c->work = xcalloc(d->n_samples + 1, sizeof(*c->work));
	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];

		c->work[i] = (uint32_t)pipeline_work(sample_drain_stack(d, s->ustack),
						     sample_drain_stack(d, s->kstack));
		part_of(c, pipeline_attribution(c->feed, s))->work += c->work[i];
	}
}

/* Returns the share with which all namespaces together have `room`. */
static uint64_t share_of_room(const struct crowd *c, uint64_t room)
{
	_cleanup_free_ uint64_t *work = xcalloc(c->n_parts, sizeof(*work));

	for (size_t i = 0; i < c->n_parts; i++)
		work[i] = c->parts[i].work;
	qsort(work, c->n_parts, sizeof(*work), compare_numbers);
	for (size_t i = 0; i < c->n_parts; i++) {
		if (work[i] > room / (c->n_parts - i))
			return room / (c->n_parts - i);
		room -= work[i];
	}
	return UINT64_MAX;
}

/* Whether the next sample of a namespace is kept. Those that are kept are spread evenly. */
static bool keeps(const struct crowd *c, struct part *p, uint32_t work)
{
	p->seen += work;
	if (p->work > c->share &&
	    p->kept + work > (uint64_t)((__uint128_t)p->seen * c->share / p->work))
		return false;
	p->kept += work;
	return true;
}

static void give_up(struct crowd *c)
{
	struct drain *d = c->feed->drain;
	size_t n = 0;

	c->lost = xcalloc(c->feed->n_owners + 1, sizeof(*c->lost));
	for (size_t i = 0; i < d->n_samples; i++) {
		struct raw_sample *s = &d->samples[i];
		const struct attribution *a = pipeline_attribution(c->feed, s);

		if (keeps(c, part_of(c, a), c->work[i]))
			d->samples[n++] = *s;
		else
			c->lost[a ? (size_t)(a - c->feed->owners) : c->feed->n_owners][s->event] +=
				s->n ? s->n : 1;
	}
	d->n_samples = n;
}

static void tell(struct windows *p, const struct crowd *c, struct feed_answer *ret)
{
	const struct feed *f = c->feed;
	size_t cap = 0;

	for (size_t i = 0; i <= f->n_owners; i++) {
		const struct owner *o = i < f->n_owners ? f->owners[i].owner : NULL;

		for (enum event e = 0; e < _EVENT_MAX; e++) {
			uint64_t n = c->lost[i][e];

			if (!n)
				continue;
			counter_add(counter("podflame_samples_dropped_total", "reason",
					    "pipeline_full"),
				    n);
			fold_lose(p->fold, o, 1u << e, "pipeline_full", n, 0);
			if (!o)
				continue;
			GROW(ret->refused, ret->n_refused, cap);
			ret->refused[ret->n_refused++] =
				(struct raw_refused){SHARED_WORK, e, o->ns_hash};
		}
	}
}

void pipeline_crowd_out(struct windows *p, const struct feed *f, struct feed_answer *ret)
{
	struct crowd c = {.feed = f};

	make_parts(&c);
	measure(&c);
	c.share = share_of_room(&c, f->room);
	if (c.share != UINT64_MAX) {
		give_up(&c);
		tell(p, &c, ret);
	}
	free(c.lost);
	free(c.work);
	free(c.parts);
}
