/* SPDX-License-Identifier: Apache-2.0 */
/* Why pods of a target are not profiled, counted, and said in words. */
#pragma once

#include "node/plan/internal.h"

enum why {
	WHY_NONE,
	WHY_NAMESPACE_DISABLED,
	WHY_NAMESPACE_NOT_OPTED_IN,
	WHY_POD_OPTED_OUT,
	WHY_AMBIGUOUS_STATIC_POD,
	WHY_TOO_MANY_PODS,
	WHY_NO_CONTAINERS_SELECTED,
	WHY_UNSUPPORTED_RUNTIME,
	WHY_CONTAINERS_NOT_RUNNING,
	WHY_TOO_MANY_CONTAINERS,
	_WHY_MAX,
};
enum why why_of_refusal(enum refusal r);
struct tally {
	struct {
		unsigned n;
		char *example; /* "namespace/name" of the first pod, perhaps with its state */
	} of[_WHY_MAX];
};
void tally_add(struct tally *t, enum why why, const struct pod_view *p, const char *what);
void tally_done(struct tally *t);

struct reason_facts {
	const struct target *target;
	const struct plan_target *plan_target;
	bool node_known;
	unsigned sample_hz; /* after the install's cap */
	const char *node_name;
};
/* Fills out->reasons: what stops the whole target first, then the pods by number. */
void reasons_write(const struct reason_facts *f, const struct tally *t, struct plan_target *out);
