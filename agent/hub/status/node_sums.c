/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up the entries of the nodes about one target. */
#include "hub/status/internal.h"

#include <ctype.h>
#include <stdlib.h>

#define MAX_STACKS 1000000000 /* limit for the stacks that one node reports */

/*
 * The weight of a reason. One that this version does not know, or that no node should report,
 * counts as a problem.
 */
static enum reason_weight weigh(enum reason reason)
{
	return reason_info(reason)->weight ?: WEIGHT_PROBLEM;
}

static enum reason reason_of(const json_t *r)
{
	return reason_by_name(json_str_at(r, "reason", ""));
}

static unsigned count_at(const json_t *j, const char *key)
{
	int64_t v = json_int_at(j, key, 0);

	return v < 0 || v > 1000000 ? 0 : (unsigned)v;
}

static void add_said(struct group *g, const char *text, const char *node)
{
	for (unsigned i = 0; i < g->n_said; i++)
		if (streq(g->said[i].text, text))
			return;
	if (g->n_said == STATUS_MAX_EXAMPLES) {
		g->n_unsaid++;
		return;
	}
	g->said[g->n_said].node = node;
	g->said[g->n_said++].text = text;
}

static void add_reason(struct status_sum *s, const json_t *r, const char *node)
{
	const char *name = json_str_at(r, "reason", "Unknown");
	struct group *g = NULL;

	for (size_t i = 0; i < s->n_groups && !g; i++) {
		if (streq(s->groups[i].name, name))
			g = &s->groups[i];
	}
	if (!g) {
		s->groups = xrealloc(s->groups, (s->n_groups + 1) * sizeof(*s->groups));
		g = &s->groups[s->n_groups++];
		*g = (struct group){.reason = reason_of(r), .name = name};
		g->weight = weigh(g->reason);
	}
	add_said(g, json_str_at(r, "message", ""), node);
	if (g->n_nodes < STATUS_MAX_EXAMPLES)
		g->examples[g->n_nodes] = node;
	g->n_nodes++;
	g->n_pods += count_at(r, "pods");
}

/* Adds the node's number of samples, and how many of them have a complete stack ("99.7%"). */
static void add_stacks(struct status_sum *s, const json_t *stacks)
{
	int64_t samples = json_int_at(stacks, "samples", 0);
	const char *share = json_str_at(stacks, "finished", "");
	char *end;
	double percent = strtod(share, &end);

	if (end == share || !(percent >= 0 && percent <= 100) || samples <= 0 ||
	    samples > MAX_STACKS)
		return;
	s->stacks += (uint64_t)samples;
	s->whole_stacks += (uint64_t)((double)samples * percent / 100);
}

static void add_entry(struct status_sum *s, const json_t *e)
{
	const json_t *reasons = json_object_get(e, "reasons"), *r;
	bool refused = false, failed = false;
	size_t i;

	s->n_current++;
	s->pods_matched += count_at(e, "podsMatched");
	s->pods += count_at(e, "pods");
	s->containers += count_at(e, "containers");
	add_stacks(s, json_object_get(e, "stacks"));
	json_array_foreach (reasons, i, r) {
		enum reason_weight w = weigh(reason_of(r));

		if (i == 16) /* limit for a report that breaks the schema, which allows 8 */
			break;
		add_reason(s, r, json_str_at(e, "node", ""));
		refused |= w == WEIGHT_REFUSED;
		failed |= w == WEIGHT_REFUSED || w == WEIGHT_PROBLEM;
	}
	s->n_refused += refused;
	s->n_failed += failed;
	s->n_profiling += count_at(e, "containers") > 0 && !failed;
}

/* Adds the entry of a node without an agent: see status_agentless_entry. */
static void add_agentless(struct status_sum *s, const json_t *e, bool stopped)
{
	const json_t *r;
	size_t i;

	s->pods_matched += count_at(e, "podsMatched");
	json_array_foreach (json_object_get(e, "reasons"), i, r) {
		bool missed = reason_of(r) == REASON_NODE_WITHOUT_AGENT;

		if (missed && stopped)
			continue;
		add_reason(s, r, json_str_at(e, "node", ""));
		s->n_failed += missed;
	}
}

/*
 * Whether some node has reported `what` ("sampled", "stored") for the event. A report says that the
 * hub has stored samples; an agent that somebody has taken over may say so of any target.
 */
static bool is_said(const json_t *const *entries, size_t n, int64_t generation, const char *event,
		    const char *what)
{
	for (size_t i = 0; i < n; i++) {
		const json_t *of = json_object_get(json_object_get(entries[i], "events"), event);

		if (json_int_at(entries[i], "generation", -1) == generation &&
		    json_bool_at(of, what, false) &&
		    !(streq(what, "stored") && json_bool_at(entries[i], "doubted", false)))
			return true;
	}
	return false;
}

/*
 * Whether the agents profile the event. An agent lists the events of a target that it profiles. So
 * it leaves out one that the installation does not allow, and one that the agent does not know. All
 * events count if no agent lists any, because then nothing is known.
 */
static bool is_profiled(const json_t *const *entries, size_t n, int64_t generation,
			const char *event)
{
	bool listed = false;

	for (size_t i = 0; i < n; i++) {
		const json_t *events = json_object_get(entries[i], "events");

		if (json_int_at(entries[i], "generation", -1) != generation)
			continue;
		if (json_object_get(events, event))
			return true;
		listed |= json_object_size(events) > 0;
	}
	return !listed;
}

static void list(struct buf *b, const char *event)
{
	buf_printf(b, "%s%s", b->len ? ", " : "", event);
}

static void sum_events(const char *events, const json_t *const *entries, size_t n,
		       int64_t generation, struct status_sum *s)
{
	_cleanup_buf_ struct buf stored = {0}, missing = {0}, profiled = {0}, left_out = {0};

	for (const char *e = events; *e; e += strcspn(e, ","), e += *e == ',') {
		_cleanup_free_ char *name = xstrndup(e, strcspn(e, ","));
		bool is_stored, sampled;

		if (!is_profiled(entries, n, generation, name)) {
			list(&left_out, name);
			continue;
		}
		is_stored = is_said(entries, n, generation, name, "stored");
		sampled = is_stored || is_said(entries, n, generation, name, "sampled");

		buf_printf(&profiled, "%s%s", profiled.len ? "," : "", name);
		s->n_events++;
		s->n_sampled += sampled;
		s->n_stored += is_stored;
		if (is_stored)
			list(&stored, name);
		if (!sampled)
			list(&missing, name);
	}
	s->events = xstrdup(profiled.len ? profiled.data : "");
	s->left_out = xstrdup(left_out.len ? left_out.data : "");
	s->stored = xstrdup(stored.len ? stored.data : "");
	s->missing = xstrdup(missing.len ? missing.data : "");
}

/* Sorts by the number of nodes. Reasons that only name other reasons come last. */
static int by_nodes(const void *a, const void *b)
{
	const struct group *x = a, *y = b;
	bool x_names = x->reason == REASON_REASONS_OMITTED,
	     y_names = y->reason == REASON_REASONS_OMITTED;

	if (x_names != y_names)
		return x_names ? 1 : -1;
	if (x->n_nodes != y->n_nodes)
		return x->n_nodes < y->n_nodes ? 1 : -1;
	if (x->n_pods != y->n_pods)
		return x->n_pods < y->n_pods ? 1 : -1;
	return strcmp(x->name, y->name);
}

void status_sum_entries(const json_t *target, const json_t *const *entries, size_t n, bool stopped,
			struct status_sum *ret)
{
	_cleanup_free_ char *events = status_target_events(target);
	int64_t generation = json_int_at(target, "metadata.generation", 0);

	*ret = (struct status_sum){.n_entries = (unsigned)n};
	for (size_t i = 0; i < n; i++) {
		if (json_bool_at(entries[i], "withoutAgent", false))
			add_agentless(ret, entries[i], stopped);
		else if (json_int_at(entries[i], "generation", -1) == generation)
			add_entry(ret, entries[i]);
		else if (!ret->behind)
			ret->behind = json_str_at(entries[i], "node", "");
	}
	sum_events(events, entries, n, generation, ret);
	if (ret->n_groups)
		qsort(ret->groups, ret->n_groups, sizeof(*ret->groups), by_nodes);
}

void status_text_ascii(char *text)
{
	for (char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}

/* If there are several texts, each gets an equal share of max_bytes. */
char *status_group_text(const struct group *g, size_t max_bytes)
{
	static const size_t node_bytes = 260, end_bytes = 40;
	size_t each = g->n_said == 1 ? max_bytes : (max_bytes - end_bytes) / g->n_said;
	_cleanup_buf_ struct buf b = {0};

	for (unsigned i = 0; i < g->n_said; i++) {
		_cleanup_free_ char *text = g->n_said == 1
						    ? xstrdup(g->said[i].text)
						    : xasprintf("%s%.*s: %s", i ? "; " : "",
								(int)MIN(node_bytes, each / 2),
								g->said[i].node, g->said[i].text);

		buf_printf(&b, "%.*s%s", (int)(strlen(text) > each ? each - 3 : each), text,
			   strlen(text) > each ? "..." : "");
	}
	if (g->n_unsaid)
		buf_printf(&b, "; and of %u more", g->n_unsaid);
	if (b.len)
		status_text_ascii(b.data);
	return buf_steal(&b);
}

void status_sum_done(struct status_sum *s)
{
	free(s->groups);
	free(s->events);
	free(s->left_out);
	free(s->stored);
	free(s->missing);
}

/*
 * Returns the target's events as queries name them: the fields of spec are named onCpu, events
 * on-cpu. This function converts the spelling, so the hub needs no list of events.
 */
char *status_target_events(const json_t *target)
{
	const json_t *events = json_at(target, "spec.events");
	_cleanup_buf_ struct buf b = {.max_bytes = 256};
	const char *key;
	json_t *v;

	if (json_object_size(events) == 0)
		return xstrdup("on-cpu");
	json_object_foreach ((json_t *)events, key, v) {
		if (b.len)
			buf_putc(&b, ',');
		for (const char *c = key; *c; c++) {
			if (isupper((unsigned char)*c))
				buf_putc(&b, '-');
			buf_putc(&b, (char)tolower((unsigned char)*c));
		}
	}
	return buf_steal(&b);
}
