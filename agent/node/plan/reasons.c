/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reasons a user gets to read. Each says what is so and, where there is
 * something to do about it, what.
 */
#include "node/plan/reasons.h"

#include <stdlib.h>

/* Beside those of lib/select. %u pods follow, then the example. */
static const struct refusal_text whys[_WHY_MAX] = {
	[WHY_AMBIGUOUS_STATIC_POD] = {"AmbiguousStaticPod",
				      "another pod of the node claims the same cgroup as"},
	[WHY_TOO_MANY_PODS] = {"TooManyPods", "beyond the pods of one node that are profiled:"},
	[WHY_NO_CONTAINERS_SELECTED] = {"NoContainersSelected",
					"spec.containers selects no container of"},
	[WHY_UNSUPPORTED_RUNTIME] = {"UnsupportedRuntime",
				     "the container id has no form that this agent knows in"},
	[WHY_CONTAINERS_NOT_RUNNING] = {"ContainersNotRunning",
					"no selected container runs yet in"},
	[WHY_TOO_MANY_CONTAINERS] = {"TooManyContainers",
				     "not all containers are profiled, there are too many in"},
};

static const struct refusal_text *text_of(enum why why)
{
	for (enum refusal r = REFUSAL_NONE + 1; r < _REFUSAL_MAX; r++)
		if (why_of_refusal(r) == why)
			return &select_refusals[r];
	return &whys[why];
}

enum why why_of_refusal(enum refusal r)
{
	static const enum why whys_of[_REFUSAL_MAX] = {
		[REFUSAL_NAMESPACE_DISABLED] = WHY_NAMESPACE_DISABLED,
		[REFUSAL_NAMESPACE_NOT_OPTED_IN] = WHY_NAMESPACE_NOT_OPTED_IN,
		[REFUSAL_POD_OPTED_OUT] = WHY_POD_OPTED_OUT,
	};

	return whys_of[r];
}

void tally_add(struct tally *t, enum why why, const struct pod_view *p, const char *what)
{
	if (why == WHY_NONE || t->of[why].n++)
		return;
	t->of[why].example = what ? xasprintf("%s/%s: %s", p->ns, p->name, what)
				  : xasprintf("%s/%s", p->ns, p->name);
}

void tally_done(struct tally *t)
{
	for (size_t i = 0; i < _WHY_MAX; i++)
		free(t->of[i].example);
}

/* Names in messages are ASCII already; what a hostile or cut object holds must stay valid JSON. */
static void make_plain(char *message)
{
	if (strlen(message) > 1024)
		message[1024] = '\0';
	for (char *c = message; *c; c++) {
		if (*c < ' ' || *c > '~')
			*c = '?';
	}
}

static void add(struct plan_target *out, unsigned n_pods, const char *reason, char *message)
{
	out->reasons = xrealloc(out->reasons, (out->n_reasons + 1) * sizeof(*out->reasons));
	make_plain(message);
	out->reasons[out->n_reasons++] = (struct plan_reason){
		.reason = xstrdup(reason), .message = message, .n_pods = n_pods};
}

static void add_refusal(const struct target *t, struct plan_target *out)
{
	const char *path, *reason = "InvalidSpec";

	if (t->over_limit) {
		add(out, 0, "TooManyTargets",
		    xasprintf("%zu targets are more than the %d that one agent takes",
			      t->over_limit, PLAN_MAX_TARGETS));
		return;
	}
	path = t->error->path;
	if (str_has_prefix(path, "metadata"))
		reason = "InvalidObject";
	else if (str_has_prefix(path, "spec.podSelector") ||
		 str_has_prefix(path, "spec.namespaceSelector") ||
		 str_has_prefix(path, "spec.nodeSelector"))
		reason = "InvalidSelector";
	add(out, 0, reason, xasprintf("%s: %s", path, t->error->reason));
}

/* What stops all of it; true if something does. */
static bool add_whole(const struct reason_facts *f, struct plan_target *out)
{
	const struct target *t = f->target;

	if (!t->ok) {
		add_refusal(t, out);
	} else if (!out->on_this_node && !f->node_known) {
		add(out, 0, "NodeUnknown",
		    xasprintf("the labels of node %s are not known yet, so spec.nodeSelector "
			      "selects nothing here",
			      f->node_name));
	} else if (!out->on_this_node) {
		add(out, 0, "NodeNotSelected",
		    xasprintf("spec.nodeSelector does not select node %s", f->node_name));
	} else if (out->completed) {
		add(out, 0, "Completed",
		    xstrdup("spec.stopAfter is over; to profile again, raise it or create the "
			    "target anew"));
	} else if (out->suspended) {
		add(out, 0, "Suspended", xstrdup("spec.suspend is true"));
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

void reasons_write(const struct reason_facts *f, const struct tally *t, struct plan_target *out)
{
	bool stopped = add_whole(f, out);
	size_t first = out->n_reasons;

	if (!stopped && !out->pods_matched)
		add(out, 0, "NoPodsMatched",
		    xasprintf("the selectors match no running pod on node %s", f->node_name));
	for (size_t i = 1; i < _WHY_MAX; i++) {
		unsigned n = t->of[i].n;

		if (n)
			add(out, n, text_of(i)->reason,
			    select_about_pods(text_of(i)->text, n, t->of[i].example));
	}
	if (out->n_reasons > first)
		qsort(out->reasons + first, out->n_reasons - first, sizeof(*out->reasons),
		      by_number);
	if (stopped)
		return;
	if (f->sample_hz < f->target->sample_hz)
		add(out, 0, "RateCapped",
		    xasprintf("spec.events.onCpu.sampleHz is %u, this installation allows %u",
			      f->target->sample_hz, f->sample_hz));
	if (f->target->ignored)
		add(out, 0, "UnknownField",
		    xasprintf("this agent does not know %s: it is older than the installed CRDs",
			      f->target->ignored));
}
