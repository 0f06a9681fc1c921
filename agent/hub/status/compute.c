/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes the status of one target; a pure function. Ready is Unknown as long as waiting may help;
 * its lastTransitionTime is the begin of the wait. Ready is False only for a reason that somebody
 * can remove.
 */
#include "hub/status/internal.h"

#include <stdlib.h>

#define GRACE_NS      (3 * NSEC_PER_SEC)  /* time until agents have seen a new target */
#define IDLE_AFTER_NS (15 * NSEC_PER_SEC) /* containers that use no CPU for this long are idle */
/* time in which the hub must store samples; the longest window is 60 s */
#define STORE_LATE_NS (90 * NSEC_PER_SEC)
#define MESSAGE_BYTES 1024 /* limit of a condition's message, as in the CRD */
#define NODES_BYTES   200  /* limit for the names of nodes in a message that also has other texts */
#define NAMES_BYTES   200  /* limit for the names of reasons whose texts are left out */
#define NOTE_BYTES    600  /* limit for a note that is added to a message */
#define NOTE	      ". Note: "

struct computed_verdict {
	const char *status; /* "True", "False" or "Unknown" */
	enum reason reason;
	const char *name; /* the name of the reason; borrowed */
	char *message;	  /* owned */
};
struct subject {
	const json_t *target;
	const struct status_sum *sum;
	/* the Ready condition before; NULL: there is none for this generation */
	const json_t *ready;
	uint64_t waited_ns; /* how long Ready has been Unknown for this generation */
	uint64_t now_ns;
	const struct status_seen *seen;
};

static const json_t *condition(const json_t *target, const char *type)
{
	return json_with(json_at(target, "status.conditions"), "type", type);
}

/* Whether the condition has the status and the reason. REASON_NONE: any reason. */
static bool is(const json_t *cond, const char *status, enum reason reason)
{
	return streq(json_str_at(cond, "status", ""), status) &&
	       (!reason || streq(json_str_at(cond, "reason", ""), reason_name(reason)));
}

/* Whether Ready is Unknown and the hub waits for nothing that may change it soon. */
static bool is_left_out(const json_t *ready)
{
	return is(ready, "Unknown", REASON_REPORT_FULL) || is(ready, "Unknown", REASON_NO_ROOM);
}

/* Takes ownership of message. */
static struct computed_verdict named_verdict(const char *status, enum reason reason,
					     const char *name, char *message)
{
	char *shown = utf8_shorten(message, MESSAGE_BYTES);

	free(message);
	status_text_ascii(shown);
	return (struct computed_verdict){status, reason, name, shown};
}

static struct computed_verdict verdict(const char *status, enum reason reason, char *message)
{
	return named_verdict(status, reason, reason_name(reason), message);
}

/* Text such as "3 nodes (node1, node2, ...)". */
static char *nodes_text(const struct group *g)
{
	_cleanup_buf_ struct buf b = {0};

	buf_printf(&b, "%u node%s (", g->n_nodes, g->n_nodes == 1 ? "" : "s");
	for (unsigned i = 0; i < g->n_nodes && i < STATUS_MAX_EXAMPLES; i++)
		buf_printf(&b, "%s%.253s", i ? ", " : "", g->examples[i]);
	buf_puts(&b, g->n_nodes > STATUS_MAX_EXAMPLES ? ", ...)" : ")");
	return buf_steal(&b);
}

static struct computed_verdict group_verdict(const char *status, const struct group *g)
{
	_cleanup_free_ char *nodes = nodes_text(g),
			    *text = status_group_text(g, STATUS_SHOWN_BYTES);

	return named_verdict(status, g->reason, g->name, xasprintf("on %s: %s", nodes, text));
}

/* Returns the nodes without an agent that have pods of the target; NULL: none. */
static const struct group *without_agent(const struct status_sum *s)
{
	for (size_t i = 0; i < s->n_groups; i++)
		if (s->groups[i].reason == REASON_NODE_WITHOUT_AGENT)
			return &s->groups[i];
	return NULL;
}

/* Text such as "4 pods on 2 nodes (n1, n2) without an agent are not profiled: why". */
static char *without_agent_text(const struct group *g)
{
	_cleanup_free_ char *all = nodes_text(g), *nodes = utf8_shorten(all, NODES_BYTES),
			    *text = status_group_text(g, STATUS_SHOWN_BYTES / 2);

	return xasprintf("%u pod%s on %s without an agent %s not profiled: %s", g->n_pods,
			 g->n_pods == 1 ? "" : "s", nodes, g->n_pods == 1 ? "is" : "are", text);
}

static const struct group *first_group(const struct status_sum *s, enum reason_weight at_least)
{
	const struct group *best = NULL;

	for (size_t i = 0; i < s->n_groups; i++) {
		if (s->groups[i].weight >= at_least &&
		    (!best || s->groups[i].weight > best->weight))
			best = &s->groups[i];
	}
	return best;
}

static uint64_t time_at(const json_t *j, const char *path)
{
	const char *s = json_str_at(j, path, NULL);
	uint64_t t;

	return s && time_parse(s, &t) == 0 ? t : 0;
}

/* Returns the time at which stopAfter ends; 0: the target has no stopAfter, or was never ready. */
static uint64_t end_time(const json_t *target, uint64_t first_ready_ns)
{
	const char *after = json_str_at(target, "spec.stopAfter", NULL);
	uint64_t ns;

	return first_ready_ns && after && str_to_duration_ns(after, &ns) == 0 ? first_ready_ns + ns
									      : 0;
}

/* ---- Ready ---- */

static struct computed_verdict no_entries(const struct subject *x)
{
	const struct group *g = without_agent(x->sum);
	bool waited = is(x->ready, "False", REASON_NO_PODS_MATCHED) ||
		      is(x->ready, "False", REASON_NO_AGENTS) ||
		      is(x->ready, "Unknown", REASON_REPORT_FULL) ||
		      /*
		       * Ready was not Unknown any more when the hub noticed nodes without an agent
		       */
		      (x->sum->n_groups && x->ready && !is(x->ready, "Unknown", REASON_NONE));
	unsigned n_reports = x->seen->n_reports;

	if (x->sum->behind && !x->sum->n_current)
		return verdict(
			"Unknown", REASON_PENDING,
			xasprintf("waiting for the agents to take over the change; node %.253s has "
				  "not yet",
				  x->sum->behind));
	if (!waited && x->waited_ns < GRACE_NS)
		return verdict("Unknown", REASON_PENDING, xstrdup("waiting for the agents"));
	if (!n_reports)
		return verdict("False", REASON_NO_AGENTS,
			       xstrdup("no agent reports: look at the DaemonSet podflame-agent"));
	if (x->seen->omitted)
		return verdict("Unknown", REASON_REPORT_FULL,
			       xstrdup("no report names the target, but some nodes have more "
				       "targets than their agent or its report has room for: the "
				       "hub does not know whether it is profiled there"));
	if (g)
		return verdict("False", REASON_NODE_WITHOUT_AGENT, without_agent_text(g));
	/* the target's pods are on nodes without an agent, and must not be profiled */
	if (x->sum->n_groups)
		return group_verdict("False", &x->sum->groups[0]);
	return verdict(
		"False", REASON_NO_PODS_MATCHED,
		xasprintf("the selectors match no running pod on the %u node%s that report%s%s",
			  n_reports, n_reports == 1 ? "" : "s", n_reports == 1 ? "s" : "",
			  json_at(x->target, "spec.nodeSelector")
				  ? "; the target has a nodeSelector, too"
				  : ""));
}

/* Returns a reason that waiting does not remove; NULL: none. */
static const struct group *blocking(const struct status_sum *s)
{
	for (size_t i = 0; i < s->n_groups; i++) {
		const struct group *g = &s->groups[i];
		bool pods = g->reason == REASON_CONTAINERS_NOT_RUNNING ||
			    g->reason == REASON_UNSUPPORTED_RUNTIME;

		if (g->weight == WEIGHT_PROBLEM && g->n_nodes >= s->n_current)
			return g;
		if (pods && g->n_pods >= s->pods)
			return g;
	}
	return NULL;
}

/* The reason why no node provides an event; NULL: none. Nodes may still provide other events. */
static const struct group *refused_event(const struct status_sum *s)
{
	static const enum reason reasons[] = {REASON_OVER_BUDGET,     REASON_EVENT_UNSUPPORTED,
					      REASON_MEMORY_NOT_SEEN, REASON_GPU_MEMORY_NOT_SEEN,
					      REASON_ON_GPU_NOT_SEEN, REASON_RDMA_NOT_SEEN};

	for (size_t i = 0; i < s->n_groups; i++)
		for (size_t k = 0; k < ARRAY_SIZE(reasons); k++)
			if (s->groups[i].reason == reasons[k] &&
			    s->groups[i].n_nodes >= s->n_current)
				return &s->groups[i];
	return NULL;
}

static struct computed_verdict waiting_for_samples(const struct status_sum *s)
{
	return verdict(
		"Unknown", REASON_WAITING_FOR_SAMPLES,
		s->n_sampled
			? xasprintf("the agents are sampling, but have taken no sample of %s yet",
				    s->missing)
			: xstrdup("the agents are sampling, but have taken no sample yet"));
}

static struct computed_verdict waiting_for_store(const struct subject *x)
{
	if (x->waited_ns >= STORE_LATE_NS || is(x->ready, "False", REASON_NOT_STORED))
		return verdict(
			"False", REASON_NOT_STORED,
			xstrdup("the agents have samples that the hub has not stored; see the "
				"agents' logs"));
	return verdict("Unknown", REASON_WAITING_FOR_STORE,
		       xstrdup("the agents have samples; the first window ends soon"));
}

static struct computed_verdict idle(const struct subject *x)
{
	unsigned n = x->sum->containers;

	return verdict("True", REASON_IDLE,
		       streq(x->sum->events, "on-cpu")
			       ? xasprintf("%u container%s selected; none has used CPU time yet", n,
					   n == 1 ? " is" : "s are")
			       : xasprintf("%u container%s selected; nothing of %s has happened "
					   "there yet",
					   n, n == 1 ? " is" : "s are", x->sum->missing));
}

static char *message_before_note(const json_t *cond)
{
	const char *message = json_str_at(cond, "message", ""), *end = strstr(message, NOTE);

	return xstrndup(message, end ? (size_t)(end - message) : strlen(message));
}

static struct computed_verdict waiting(const struct subject *x)
{
	const struct status_sum *s = x->sum;
	const struct group *g = blocking(s), *refused = refused_event(s);
	bool was_idle = is(x->ready, "True", REASON_IDLE);

	if (g)
		return group_verdict("False", g);
	if (is(x->ready, "True", REASON_PROFILING))
		return verdict("True", REASON_PROFILING, message_before_note(x->ready));
	if (was_idle && !s->n_stored)
		return idle(x);
	if (s->n_sampled < s->n_events && !was_idle && x->waited_ns < IDLE_AFTER_NS &&
	    !(refused && is(x->ready, "False", refused->reason)))
		return waiting_for_samples(s);
	/* the wait for events without a sample is over */
	if (s->n_stored < s->n_sampled)
		return waiting_for_store(x);
	if (s->n_stored)
		return verdict("True", REASON_PROFILING,
			       xasprintf("samples of %s are stored; there are none of %s%s%s",
					 s->stored, s->missing, refused ? ": " : " yet",
					 refused ? refused->name : ""));
	return refused ? group_verdict("False", refused) : idle(x);
}

static struct computed_verdict ready(const struct subject *x, bool completed)
{
	const struct status_sum *s = x->sum;
	const struct group *g = first_group(s, WEIGHT_REFUSED);

	if (g && s->n_refused == s->n_current)
		return group_verdict("False", g);
	if (json_bool_at(x->target, "spec.suspend", false))
		return verdict("False", REASON_SUSPENDED, xstrdup("spec.suspend is true"));
	if (completed)
		return verdict("False", REASON_COMPLETED, xstrdup("spec.stopAfter is over"));
	if (!s->n_current)
		return no_entries(x);
	if (!s->containers) {
		g = first_group(s, WEIGHT_STATE);
		if (g && g == without_agent(s))
			return verdict("False", g->reason, without_agent_text(g));
		if (g)
			return group_verdict("False", g);
		return no_entries(x);
	}
	if (s->n_events && s->n_stored == s->n_events)
		return verdict("True", REASON_PROFILING,
			       xasprintf("samples of %s are stored", s->events));
	return waiting(x);
}

/* ---- the other conditions ---- */

static struct computed_verdict accepted(const struct status_sum *s)
{
	const struct group *g = first_group(s, WEIGHT_REFUSED);

	if (g && s->n_refused == s->n_current)
		return group_verdict("False", g);
	return verdict("True", REASON_VALID, xstrdup("the spec is understood"));
}

/*
 * The message gives one reason in full: the reason with the greatest weight and, if weights are
 * equal, with the most nodes. It gives only the names of the other reasons.
 */
static struct computed_verdict degraded_by_nodes(const struct status_sum *s)
{
	const struct group *g = first_group(s, WEIGHT_MINOR);
	_cleanup_free_ char *all = NULL, *nodes = NULL, *text = NULL;
	_cleanup_buf_ struct buf others = {0};
	size_t n_more = 0;

	if (!g)
		return verdict("False", REASON_AS_EXPECTED,
			       xstrdup("nothing works less well than asked for"));
	for (size_t i = 0; i < s->n_groups; i++) {
		if (&s->groups[i] == g || s->groups[i].weight < WEIGHT_MINOR)
			continue;
		if (others.len < NAMES_BYTES)
			buf_printf(&others, "%s%.64s", others.len ? ", " : ". See failures for ",
				   s->groups[i].name);
		else
			n_more++;
	}
	if (!others.len)
		return group_verdict("True", g);
	if (n_more)
		buf_printf(&others, " and %zu more", n_more);
	all = nodes_text(g);
	nodes = utf8_shorten(all, NODES_BYTES);
	text = status_group_text(g, STATUS_SHOWN_BYTES - others.len);
	return named_verdict("True", g->reason, g->name,
			     xasprintf("on %s: %s%s", nodes, text, others.data));
}

/* Adds text to the message. Takes ownership of text. */
static void add_note(struct computed_verdict *v, char *text)
{
	_cleanup_free_ char *all = v->message, *long_note = text,
			    *note = utf8_shorten(long_note, NOTE_BYTES),
			    *before = utf8_shorten(all, MESSAGE_BYTES - NOTE_BYTES - strlen(NOTE));
	const char *between = strstr(before, NOTE) ? "; " : NOTE;

	*v = named_verdict(v->status, v->reason, v->name,
			   xasprintf("%s%s%s", before, between, note));
}

static struct computed_verdict degraded(const struct subject *x)
{
	struct computed_verdict v = degraded_by_nodes(x->sum);
	char *text;

	if (!x->seen->unverified)
		return v;
	text = xasprintf("the hub could not verify where some pods were (%s); only users who may "
			 "see all namespaces see these profiles",
			 x->seen->unverified);
	if (streq(v.status, "True")) {
		add_note(&v, text);
		return v;
	}
	free(v.message);
	return verdict("True", REASON_NOT_VERIFIED, text);
}

/*
 * Adds to the message what the user must know besides the reason. A target that is suspended or
 * refused needs no agent, so it gets no note about nodes without one.
 */
static void add_notes(struct computed_verdict *v, const struct subject *x, bool stopped)
{
	const struct status_sum *s = x->sum;
	const struct group *g = without_agent(s);

	if (x->seen->n_crowded_out)
		add_note(v, xasprintf("the hub has no room for %zu newer targets like this one%s: "
				      "agents may leave them out, too",
				      x->seen->n_crowded_out,
				      json_at(x->target, "metadata.namespace") ? " in the namespace"
									       : ""));
	for (size_t i = 0; i < s->n_groups && streq(v->status, "True"); i++)
		if (s->groups[i].weight == WEIGHT_NOTE)
			add_note(v, status_group_text(&s->groups[i], STATUS_SHOWN_BYTES / 2));
	if (*s->left_out && streq(v->status, "True"))
		add_note(v, xasprintf("the agents leave out %s; Degraded says why", s->left_out));
	if (stopped || (s->n_refused && s->n_refused == s->n_current))
		return;
	if (g && v->reason != REASON_NODE_WITHOUT_AGENT)
		add_note(v, without_agent_text(g));
	if (x->seen->unseen)
		add_note(v, xstrdup(x->seen->unseen));
}

static struct computed_verdict completed_verdict(bool completed, uint64_t end_ns)
{
	char text[32];

	if (!completed && !end_ns)
		return verdict("False", REASON_NOT_STARTED,
			       xstrdup("spec.stopAfter counts from the first time Ready is True"));
	time_format(end_ns, text);
	return completed
		       ? verdict("True", REASON_STOP_AFTER,
				 xasprintf("profiling ended at %s", text))
		       : verdict("False", REASON_RUNNING, xasprintf("profiling ends at %s", text));
}

/* ---- all conditions ---- */

static void add_condition(json_t *list, const json_t *target, const char *type,
			  struct computed_verdict v, const char *now)
{
	const json_t *old = condition(target, type);
	int64_t generation = json_int_at(target, "metadata.generation", 0);
	bool same = is(old, v.status, REASON_NONE);

	/*
	 * the wait begins now, because the spec is new, or because a report names the target for
	 * the first time
	 */
	if (streq(v.status, "Unknown") &&
	    (json_int_at(old, "observedGeneration", -1) != generation ||
	     (is_left_out(old) && v.reason != REASON_REPORT_FULL)))
		same = false;
	json_array_append_new(
		list, json_pack("{s:s, s:s, s:s, s:s, s:s, s:I}", "type", type, "status", v.status,
				"reason", v.name, "message", v.message, "lastTransitionTime",
				same ? json_str_at(old, "lastTransitionTime", now) : now,
				"observedGeneration", (json_int_t)generation));
	free(v.message);
}

static struct subject make_subject(const json_t *target, const struct status_sum *s,
				   const char *now)
{
	const json_t *was = condition(target, "Ready");
	struct subject x = {.target = target, .sum = s};
	uint64_t since = time_at(was, "lastTransitionTime");

	time_parse(now, &x.now_ns);
	if (json_int_at(was, "observedGeneration", -1) !=
	    json_int_at(target, "metadata.generation", 0))
		return x;
	x.ready = was;
	if (is(was, "Unknown", REASON_NONE) && !is_left_out(was) && x.now_ns > since)
		x.waited_ns = x.now_ns - since;
	return x;
}

json_t *status_compute(const json_t *target, const json_t *const *entries, size_t n,
		       const struct status_seen *seen, const char *now)
{
	_cleanup_(status_sum_done) struct status_sum s = {0};
	const char *first = json_str_at(target, "status.firstReadyTime", NULL);
	uint64_t end = end_time(target, time_at(target, "status.firstReadyTime"));
	struct subject x = make_subject(target, &s, now);
	bool completed = end && end <= x.now_ns,
	     stopped = completed || json_bool_at(target, "spec.suspend", false);
	json_t *conditions = json_array(), *out, *told;
	struct computed_verdict v;

	status_sum_entries(target, entries, n, stopped, &s);
	x.seen = seen;
	v = ready(&x, completed);
	add_notes(&v, &x, stopped);
	if (!first && streq(v.status, "True")) {
		first = now;
		end = end_time(target, x.now_ns);
	}
	add_condition(conditions, target, "Accepted", accepted(&s), now);
	add_condition(conditions, target, "Ready", v, now);
	add_condition(conditions, target, "Degraded", degraded(&x), now);
	if (json_at(target, "spec.stopAfter"))
		add_condition(conditions, target, "Completed", completed_verdict(completed, end),
			      now);
	out = json_pack("{s:I, s:o, s:s, s:o, s:o}", "observedGeneration",
			(json_int_t)json_int_at(target, "metadata.generation", 0), "conditions",
			conditions, "events", s.events, "summary", status_summary(&s), "failures",
			status_failures(&s));
	if (first)
		json_object_set_new(out, "firstReadyTime", json_string(first));
	told = status_stacks(&s, target);
	if (told)
		json_object_set_new(out, "stacks", told);
	return out;
}

bool status_pending(const json_t *status)
{
	const json_t *c;
	size_t i;

	json_array_foreach (json_object_get(status, "conditions"), i, c) {
		const char *type = json_str_at(c, "type", "");

		if (streq(type, "Ready") && is(c, "Unknown", REASON_NONE) && !is_left_out(c))
			return true;
		if (streq(type, "Completed") && is(c, "False", REASON_RUNNING))
			return true;
	}
	return false;
}
