/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a status besides its conditions: counters, failures, and the share of complete
 * stacks.
 */
#include "hub/status/internal.h"

#include <stdlib.h>

/* Whether the target itself asks for this reason. Then it is no failure. */
static bool is_asked_for(const struct group *g)
{
	return g->reason == REASON_SUSPENDED || g->reason == REASON_COMPLETED ||
	       g->reason == REASON_NODE_NOT_SELECTED;
}

static json_t *failure(const struct group *g)
{
	_cleanup_free_ char *text = status_group_text(g, STATUS_SHOWN_BYTES);
	json_t *nodes = json_array();

	for (unsigned k = 0; k < g->n_nodes && k < STATUS_MAX_EXAMPLES; k++)
		json_array_append_new(nodes, json_string(g->examples[k]));
	return json_pack("{s:s, s:s, s:i, s:i, s:o}", "reason", g->name, "message", text, "nodes",
			 (int)g->n_nodes, "pods", (int)g->n_pods, "exampleNodes", nodes);
}

/*
 * Whether the reason belongs into the list of failures. FailuresOmitted does not belong there: the
 * hub may add it itself, and the API server refuses a list that has a reason twice.
 */
static bool is_failure(const struct group *g)
{
	return !is_asked_for(g) && g->weight != WEIGHT_NOTE && g->reason != REASON_FAILURES_OMITTED;
}

/*
 * Returns the last entry of a list that has no room for all failures: the schema allows only
 * STATUS_MAX_FAILURES. The entry has the names of the failures that are left out, as many as fit.
 */
static json_t *omitted(const struct status_sum *s, size_t shown, size_t n)
{
	_cleanup_buf_ struct buf text = {.max_bytes = STATUS_SHOWN_BYTES};
	size_t k = 0;

	buf_printf(&text, "%zu more:", n - shown);
	for (size_t i = 0; i < s->n_groups; i++)
		if (is_failure(&s->groups[i]) && k++ >= shown)
			buf_printf(&text, "%s %.64s", k == shown + 1 ? "" : ",", s->groups[i].name);
	status_text_ascii(text.data);
	return json_pack("{s:s, s:s, s:i, s:i, s:[]}", "reason",
			 reason_name(REASON_FAILURES_OMITTED), "message", text.data, "nodes", 0,
			 "pods", 0, "exampleNodes");
}

json_t *status_failures(const struct status_sum *s)
{
	json_t *list = json_array();
	size_t n = 0, shown;

	for (size_t i = 0; i < s->n_groups; i++)
		n += is_failure(&s->groups[i]);
	shown = n > STATUS_MAX_FAILURES ? STATUS_MAX_FAILURES - 1 : n;
	for (size_t i = 0; i < s->n_groups && json_array_size(list) < shown; i++)
		if (is_failure(&s->groups[i]))
			json_array_append_new(list, failure(&s->groups[i]));
	if (n > shown)
		json_array_append_new(list, omitted(s, shown, n));
	return list;
}

json_t *status_summary(const struct status_sum *s)
{
	return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "podsMatched", (int)s->pods_matched,
			 "podsProfiling", (int)s->pods, "containersProfiling", (int)s->containers,
			 "nodesMatched", (int)s->n_entries, "nodesReporting", (int)s->n_current,
			 "nodesProfiling", (int)s->n_profiling, "nodesFailed", (int)s->n_failed);
}

/*
 * Returns the number of samples and the share of complete stacks. If no agent reports stacks, which
 * happens for a while after its start, returns the last value. NULL: there is no value yet.
 */
json_t *status_stacks(const struct status_sum *s, const json_t *target)
{
	char share[16];

	if (!s->stacks)
		return json_incref(json_object_get(json_object_get(target, "status"), "stacks"));

	snprintf(share, sizeof(share), "%.1f%%",
		 100.0 * (double)s->whole_stacks / (double)s->stacks);
	return json_pack("{s:I, s:s}", "samples", (json_int_t)s->stacks, "finished", share);
}
