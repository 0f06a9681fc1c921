/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the reasons of a target for its user. Each text describes the case and, if the user can
 * change it, how. Pure.
 */
#include "node/plan/cache.h"

#include <inttypes.h>

/* ---- counts ---- */

static struct tally_of *of(struct tally *t, enum reason why)
{
	return &t->of[why - TALLY_FIRST];
}

void plan_tally_add(struct tally *t, enum reason why, const struct known_pod *p, const char *what)
{
	struct tally_of *x = why ? of(t, why) : NULL;

	if (!x)
		return;
	if (!x->n++ || (x->pod && p->order.rank < x->pod->order.rank)) {
		x->pod = p;
		x->what = what;
	}
}

bool plan_tally_remove(struct tally *t, enum reason why, const struct known_pod *p)
{
	struct tally_of *x = why ? of(t, why) : NULL;

	if (!x)
		return false;
	x->n--;
	if (x->pod != p)
		return false;
	x->pod = NULL;
	x->what = NULL;
	return x->n > 0;
}

bool plan_tally_found(struct tally *t, enum reason why, const struct known_pod *p, const char *what)
{
	struct tally_of *x = why ? of(t, why) : NULL;

	if (!x || x->pod)
		return false;
	x->pod = p;
	x->what = what;
	return true;
}

void plan_tally_without_room(struct tally *t, const char *ns, unsigned n)
{
	struct tally_of *x = of(t, REASON_NO_ROOM_FOR_PODS);

	x->n += n;
	if (!x->what)
		x->what = ns;
}

unsigned plan_tally_pods_without_room(const struct tally *t)
{
	return t->of[REASON_NO_ROOM_FOR_PODS - TALLY_FIRST].n;
}

void plan_tally_no_pods_without_room(struct tally *t)
{
	*of(t, REASON_NO_ROOM_FOR_PODS) = (struct tally_of){0};
}

/* "namespace/name" of the first pod, possibly with its state; or its namespace */
static char *example(const struct tally_of *x)
{
	const struct pod_view *v = x->pod ? &x->pod->view : NULL;

	if (!v)
		return xasprintf("of namespace %s", x->what);
	return x->what ? xasprintf("%s/%s: %s", v->ns, v->name, x->what)
		       : xasprintf("%s/%s", v->ns, v->name);
}

/* ---- texts ---- */

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

static char *too_many_text(const struct plan_tenant_limits *l, const struct target *t)
{
	return t->over_limit
		       ? xasprintf("%zu targets are more than the %d that one agent takes",
				   t->over_limit, PLAN_MAX_TARGETS)
		       : xasprintf(
				 "the install value tenant.maxTargets allows %u ProfilingTarget%s "
				 "in a namespace, and older ones than this take the room",
				 l->max_targets, l->max_targets == 1 ? "" : "s");
}

/* Returns the fields of the events: "onCpu, offCpu"; or "none". */
static char *fields_text(unsigned event_mask)
{
	_cleanup_buf_ struct buf b = {0};

	for (enum event e = 0; e < _EVENT_MAX; e++)
		if (event_mask & 1u << e)
			buf_printf(&b, "%s%s", b.len ? ", " : "",
				   profile_event_info(e)->spec_field);
	return b.len ? buf_steal(&b) : xstrdup("none");
}

/* Returns the profiles of spec.scrape, with their events: "allocs (memAlloc), mutex (offCpu)". */
static char *profiles_text(unsigned profiles)
{
	_cleanup_buf_ struct buf b = {0};

	for (enum plan_profile p = 0; p < _PLAN_PROFILE_MAX; p++)
		if (profiles & 1u << p)
			buf_printf(&b, "%s%s (%s)", b.len ? ", " : "", plan_profile_name(p),
				   profile_event_info(plan_profile_event(p))->spec_field);
	return buf_steal(&b);
}

/* Adds what a field asks for and does not get. */
static void add_left_out(struct buf *asks, struct buf *left_out, const char *field,
			 const char *what)
{
	buf_printf(asks, "%s%s asks for %s", asks->len ? ", " : "", field, what);
	buf_printf(left_out, "%s%s", left_out->len ? ", " : "", what);
}

/* The text about a target that asks for an event, or a profile, that is not allowed. */
static char *events_text(const struct reason_facts *f)
{
	unsigned refused = f->settings->tenant.refused_events;
	unsigned events = f->asked->event_mask & refused;
	unsigned profiles = f->asked->scrape.profiles & plan_profiles_of_events(refused);
	_cleanup_free_ char *events_asked = fields_text(events),
			    *profiles_asked = profiles_text(profiles),
			    *allowed = fields_text(~refused);
	_cleanup_buf_ struct buf asks = {0}, left_out = {0};

	if (events)
		add_left_out(&asks, &left_out, "spec.events", events_asked);
	if (profiles)
		add_left_out(&asks, &left_out, "spec.scrape", profiles_asked);
	return xasprintf("%s; the install value tenant.allowedEvents allows %s: the agents leave "
			 "out %s",
			 asks.data, allowed, left_out.data);
}

static void add_refusal(const struct reason_facts *f, struct plan_target *out)
{
	const struct target *t = f->target;
	enum reason reason = REASON_INVALID_SPEC;
	const char *path;

	if (t->refusal == REASON_TOO_MANY_TARGETS) {
		add(out, 0, t->refusal, too_many_text(&f->settings->tenant, t));
		return;
	}
	if (t->refusal == REASON_NO_EVENT_ALLOWED) {
		add(out, 0, t->refusal, events_text(f));
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
	const char *node = f->settings->node_name ? f->settings->node_name : "";

	if (!t->ok) {
		add_refusal(f, out);
	} else if (!out->on_this_node && !f->node_known) {
		add(out, 0, REASON_NODE_UNKNOWN,
		    xasprintf("the labels of node %s are not known yet, so spec.nodeSelector "
			      "selects nothing here",
			      node));
	} else if (!out->on_this_node) {
		add(out, 0, REASON_NODE_NOT_SELECTED,
		    xasprintf("spec.nodeSelector does not select node %s", node));
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

static void raised(struct buf *b, const char *field, uint64_t asked, uint64_t used)
{
	if (used > asked)
		buf_printf(b, "%sspec.events.%s.sampleBytes is %" PRIu64, b->len ? ", " : "", field,
			   asked);
}

/* Adds a reason for each setting that plan_target_limit() has changed. */
static void add_limits(const struct reason_facts *f, struct plan_target *out)
{
	const struct plan_tenant_limits *l = &f->settings->tenant;
	const struct target *t = f->target, *asked = f->asked;
	_cleanup_buf_ struct buf b = {0};

	if (t->event_mask != asked->event_mask || t->scrape.profiles != asked->scrape.profiles)
		add(out, 0, REASON_EVENT_NOT_ALLOWED, events_text(f));
	if (t->sample_hz && t->sample_hz < asked->sample_hz)
		add(out, 0, REASON_RATE_CAPPED,
		    xasprintf("spec.events.onCpu.sampleHz is %u, the install value %s allows %u",
			      asked->sample_hz,
			      t->sample_hz == f->settings->max_sample_hz ? "maxSampleHz"
									 : "tenant.maxSampleHz",
			      t->sample_hz));
	if (t->overhead_percent < asked->overhead_percent)
		add(out, 0, REASON_OVERHEAD_CAPPED,
		    xasprintf("spec.limits.overheadPercent is %g, the install value "
			      "tenant.maxOverheadPercent allows %g",
			      asked->overhead_percent, t->overhead_percent));
	raised(&b, "memAlloc", asked->settings.alloc_sample_bytes, t->settings.alloc_sample_bytes);
	raised(&b, "memInuse", asked->settings.inuse_sample_bytes, t->settings.inuse_sample_bytes);
	if (b.len)
		add(out, 0, REASON_SAMPLE_BYTES_RAISED,
		    xasprintf("%s, the install value tenant.minSampleBytes raises it to %" PRIu64,
			      b.data, l->min_sample_bytes));
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

	if (!stopped && !out->pods_matched && !out->pods_without_room)
		add(out, 0, REASON_NO_PODS_MATCHED,
		    xasprintf("the selectors match no running pod on node %s",
			      f->settings->node_name ? f->settings->node_name : ""));
	for (size_t i = 0; i < N_TALLIED; i++) {
		_cleanup_free_ char *text = t->of[i].n ? example(&t->of[i]) : NULL;
		enum reason r = TALLY_FIRST + (enum reason)i;

		if (text)
			add(out, t->of[i].n, r, reason_about_pods(r, t->of[i].n, text));
	}
	if (out->n_reasons > first)
		qsort(out->reasons + first, out->n_reasons - first, sizeof(*out->reasons),
		      by_number);
	if (stopped)
		return;
	add_limits(f, out);
	if (f->target->ignored)
		add(out, 0, REASON_UNKNOWN_FIELD,
		    xasprintf("this agent does not know %s: it is older than the installed CRDs",
			      f->target->ignored));
}
