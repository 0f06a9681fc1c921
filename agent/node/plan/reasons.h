/* SPDX-License-Identifier: Apache-2.0 */
/* Why pods of a target are not profiled, counted, and said in words. */
#pragma once

#include "node/plan/internal.h"

struct tally { /* reasons that are of pods */
	struct {
		unsigned n;
		char *example; /* "namespace/name" of the first pod, perhaps with its state */
	} of[_REASON_MAX];
};
void plan_tally_add(struct tally *t, enum reason why, const struct pod_view *p, const char *what);
void plan_tally_done(struct tally *t);

struct reason_facts {
	const struct target *target;
	const struct plan_target *plan_target;
	bool node_known;
	unsigned sample_hz; /* after the install's cap */
	const char *node_name;
};
/* Fills out->reasons: what stops the whole target first, then the pods by number. */
void plan_reasons_write(const struct reason_facts *f, const struct tally *t, struct plan_target *out);
