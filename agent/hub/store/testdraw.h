/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: profiles that are drawn by chance. The same seed draws the same ones. */
#pragma once

#include "hub/store/teststore.h"

static uint64_t seed_now;

static inline unsigned below(unsigned n)
{
	seed_now = seed_now * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)((seed_now >> 33) % n);
}

#define ONE_OF(list) list[below(ARRAY_SIZE(list))]

/* Adds a sample; texts: for its label, if it has one. */
static inline struct profile_sample *draw_sample(struct batch *b, struct profile *p, int64_t value,
						 const char *const *texts, unsigned n_texts)
{
	static const char *const threads[] = {"worker", "api", NULL}, *const leaves[] = {"f", "g"};
	struct profile_labels labels = {{NULL}};
	struct profile_sample *x;

	add_sample(b, p, ONE_OF(threads), below(2), ONE_OF(leaves), value);
	x = &p->samples[p->n_samples - 1];
	if (!below(4))
		x->cpu = (int32_t)below(3);
	if (p->event == EVENT_OFF_CPU)
		x->wait = (enum wait)below(_WAIT_MAX);
	if (!below(4)) {
		labels.values[below(_LABEL_MAX)] = profile_batch_str(b, texts[below(n_texts)]);
		x->labels = profile_batch_labels(b, &labels);
	}
	if (!below(3)) {
		const struct profile_link l = {.trace_id = {[15] = (uint8_t)below(3)},
					       .span_id = {[7] = (uint8_t)below(3)}};

		assert_int_equal(profile_batch_link(b, &l, &x->link), 0);
	}
	return x;
}
