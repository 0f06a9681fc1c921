/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the reasons of a target for its user. Each text describes the case and, if the user can
 * change it, how. Pure.
 */
#include "node/plan/target_reasons.h"

#include <stdlib.h>

void plan_tally_add(struct tally *t, enum reason why, const struct pod_view *p, const char *what)
{
	if (why == REASON_NONE || t->of[why].n++)
		return;
	t->of[why].example = what ? xasprintf("%s/%s: %s", p->ns, p->name, what)
				  : xasprintf("%s/%s", p->ns, p->name);
}

void plan_tally_done(struct tally *t)
{
	for (size_t i = 0; i < _REASON_MAX; i++)
		free(t->of[i].example);
}

/*
 * Shortens a message and replaces all characters except printable ASCII, so that it is valid in
 * JSON. It may contain text of a hostile object, or text that was cut inside a character. Names in
 * messages are always ASCII.
 */
static void make_plain(char *message)
{
	if (strlen(message) > 1024)
		message[1024] = '\0';
	for (char *c = message; *c; c++) {
		if (*c < ' ' || *c > '~')
			*c = '?';
	}
}

static void add(struct plan_target *out, unsigned n_pods, enum reason reason, char *message)
{
	out->reasons = xrealloc(out->reasons, (out->n_reasons + 1) * sizeof(*out->reasons));
	make_plain(message);
	out->reasons[out->n_reasons++] =
		(struct plan_reason){.reason = reason, .message = message, .n_pods = n_pods};
}

static void add_refusal(const struct target *t, struct plan_target *out)
{
	enum reason reason = REASON_INVALID_SPEC;
	const char *path;

	if (t->over_limit) {
		add(out, 0, REASON_TOO_MANY_TARGETS,
		    xasprintf("%zu targets are more than the %d that one agent takes",
			      t->over_limit, PLAN_MAX_TARGETS));
		return;
	}
	path = t->error->path;
	if (str_has_prefix(path, "metadata"))
		reason = REASON_INVALID_OBJECT;
	else if (str_has_prefix(path, "spec.podSelector") ||
		 str_has_prefix(path, "spec.namespaceSelector") ||
		 str_has_prefix(path, "spec.nodeSelector"))
		reason = REASON_INVALID_SELECTOR;
	add(out, 0, reason, xasprintf("%s: %s", path, t->error->reason));
}

/* If a reason stops the whole target, adds it and returns true. */
static bool add_whole(const struct reason_facts *f, struct plan_target *out)
{
	const struct target *t = f->target;

	if (!t->ok) {
		add_refusal(t, out);
	} else if (!out->on_this_node && !f->node_known) {
		add(out, 0, REASON_NODE_UNKNOWN,
		    xasprintf("the labels of node %s are not known yet, so spec.nodeSelector "
			      "selects nothing here",
			      f->node_name));
	} else if (!out->on_this_node) {
		add(out, 0, REASON_NODE_NOT_SELECTED,
		    xasprintf("spec.nodeSelector does not select node %s", f->node_name));
	} else if (out->completed) {
		add(out, 0, REASON_COMPLETED,
		    xstrdup("spec.stopAfter is over; to profile again, raise it or create the "
			    "target anew"));
	} else if (out->suspended) {
		add(out, 0, REASON_SUSPENDED, xstrdup("spec.suspend is true"));
	} else {
		return false;
	}
	return true;
}

static int by_number(const void *a, const void *b)
{
	const struct plan_reason *x = a, *y = b;

	return (x->n_pods < y->n_pods) - (x->n_pods > y->n_pods);
}

void plan_reasons_write(const struct reason_facts *f, const struct tally *t,
			struct plan_target *out)
{
	bool stopped = add_whole(f, out);
	size_t first = out->n_reasons;

	if (!stopped && !out->pods_matched)
		add(out, 0, REASON_NO_PODS_MATCHED,
		    xasprintf("the selectors match no running pod on node %s", f->node_name));
	for (enum reason r = REASON_NONE + 1; r < _REASON_MAX; r++) {
		unsigned n = t->of[r].n;

		if (n)
			add(out, n, r, reason_about_pods(r, n, t->of[r].example));
	}
	if (out->n_reasons > first)
		qsort(out->reasons + first, out->n_reasons - first, sizeof(*out->reasons),
		      by_number);
	if (stopped)
		return;
	if (f->sample_hz < f->target->sample_hz)
		add(out, 0, REASON_RATE_CAPPED,
		    xasprintf("spec.events.onCpu.sampleHz is %u, this installation allows %u",
			      f->target->sample_hz, f->sample_hz));
	if (f->target->ignored)
		add(out, 0, REASON_UNKNOWN_FIELD,
		    xasprintf("this agent does not know %s: it is older than the installed CRDs",
			      f->target->ignored));
}
