/* SPDX-License-Identifier: Apache-2.0 */
/* Why pods of a target are not profiled: counts of reasons, and their texts. Pure. */
#pragma once

#include "node/plan/internal.h"

struct tally { /* counts of pods by reason */
	struct {
		unsigned n;
		/* "namespace/name" of the first pod, possibly with its state; or its namespace */
		char *example;
	} of[_REASON_MAX];
};
void plan_tally_add(struct tally *t, enum reason why, const struct pod_view *p, const char *what);
/* n pods of the namespace have no room, and may be the target's. */
void plan_tally_without_room(struct tally *t, const char *ns, unsigned n);
void plan_tally_done(struct tally *t);

struct reason_facts {
	const struct target *target;
	const struct plan_target *plan_target;
	const struct plan_settings *settings;
	bool node_known;
};
/*
 * Fills out->reasons: first the reason that stops the whole target, then the reasons of pods,
 * sorted by the number of pods.
 */
void plan_reasons_write(const struct reason_facts *f, const struct tally *t,
			struct plan_target *out);
