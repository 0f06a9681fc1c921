/* SPDX-License-Identifier: Apache-2.0 */
/* What the targets say about a selection without data: pure functions; see why.h. */
#include "hub/why/reasons.h"
#include "lib/select/select.h"

#include <stdlib.h>

#define SHOWN	   3	/* targets or failures that reasons of one kind are about */
#define TEXT_BYTES 1000 /* of a message of a target */
#define NAME_SHOWN 300	/* bytes of a name of the filter */

struct asking {
	const struct why_question *q;
	const struct why_cluster *c;
	const struct event_info *event;
	json_t *reasons;
	/* targets: those that select, and those that would, but for a rule or their podSelector */
	const json_t **selecting;
	size_t n_selecting, cap_selecting;
	enum reason refusal;	   /* the rule that forbids it */
	const json_t *refused;	   /* a target whose pods the rule keeps from being profiled */
	const json_t *without_pod; /* a target of the namespace that does not select the pod */
	const json_t *unclear; /* a target that goes by labels of a namespace that is not known */
};

/* ---- texts ---- */

static const char *namespace_of(const json_t *target)
{
	return json_str_at(target, "metadata.namespace", "");
}

static const char *name_of(const json_t *target)
{
	return json_str_at(target, "metadata.name", "");
}

/* For example "ProfilingTarget app/web". */
static char *target_text(const json_t *t)
{
	const char *ns = namespace_of(t);

	return *ns ? xasprintf("ProfilingTarget %s/%s", ns, name_of(t))
		   : xasprintf("ClusterProfilingTarget %s", name_of(t));
}

/* A command about a target: kubectl -n NS VERB ptgt NAME REST. NULL: it has no proper name. */
static char *target_command(const json_t *t, const char *verb, const char *rest)
{
	const char *ns = namespace_of(t), *name = name_of(t);

	if (!why_is_name(name) || (*ns && !why_is_name(ns)))
		return NULL;
	return *ns ? xasprintf("kubectl -n %s %s ptgt %s%s", ns, verb, name, rest)
		   : xasprintf("kubectl %s cptgt %s%s", verb, name, rest);
}

static char *describe(const json_t *t)
{
	return target_command(t, "describe", "");
}

static const json_t *condition(const json_t *target, const char *type)
{
	return json_with(json_at(target, "status.conditions"), "type", type);
}

/* ---- which targets select ---- */

/* Whether labels of the namespace decide if the target selects it. */
static bool goes_by_labels(const struct target_selection *s)
{
	return s->cluster && s->namespaces && json_object_size(s->namespaces);
}

static void judge(struct asking *a, const json_t *target)
{
	const struct why_seen *seen = a->c->seen;
	const struct target_selection s = select_of_target(target);
	const struct selected p = {a->q->ns, json_at(seen->ns.object, "metadata.labels"),
				   json_at(seen->pod.object, "metadata.labels"),
				   json_at(seen->pod.object, "metadata.annotations")};
	enum reason r;

	if (!why_may_tell(a->q, s.cluster ? NULL : s.ns))
		return;
	if (a->q->ns && goes_by_labels(&s) && !seen->ns.known) {
		a->unclear = target;
		return;
	}
	if (a->q->ns && !select_takes_namespace(&s, a->q->ns, p.ns_labels))
		return;
	if (seen->pod.object && !select_selector_matches(s.pods, p.labels)) {
		a->without_pod = target;
		return;
	}
	r = seen->ns.object ? select_refusal(&s, &p, a->c->opt_in_required) : REASON_NONE;
	if (r) {
		a->refusal = r;
		a->refused = target;
		return;
	}
	GROW(a->selecting, a->n_selecting, a->cap_selecting);
	a->selecting[a->n_selecting++] = target;
}

/* ---- no target selects ---- */

/* A command that makes a target for all pods of the namespace. */
static char *new_target(const struct asking *a)
{
	bool both = a->q->tracing.selection->event != EVENT_ON_CPU;
	_cleanup_free_ char *second = xasprintf(", \"%s\": {}", a->event->spec_field);

	if (!a->q->ns || !why_is_name(a->q->ns))
		return xstrdup("kubectl get ptgt,cptgt -A");
	return xasprintf(
		"kubectl apply -f - <<'EOF'\n"
		"{\"apiVersion\": \"podflame.io/v1alpha1\", \"kind\": \"ProfilingTarget\",\n"
		" \"metadata\": {\"namespace\": \"%s\", \"name\": \"all\"},\n"
		" \"spec\": {\"podSelector\": {}, \"events\": {\"onCpu\": {}%s}}}\n"
		"EOF",
		a->q->ns, both ? second : "");
}

static void no_target(struct asking *a)
{
	/* who may not see all namespaces is not told of the targets of the cluster */
	bool knows_all = why_may_tell(a->q, NULL);

	why_add(a->reasons, "no_target",
		a->q->ns
			? xasprintf("No %s selects the namespace %s. podflame profiles only what "
				    "a target selects.%s",
				    knows_all ? "target" : "ProfilingTarget", a->q->ns,
				    knows_all ? ""
					      : " A ClusterProfilingTarget may select it: only a "
						"user who may see all namespaces is told of those.")
			: xstrdup("There is no target. podflame profiles only what a target "
				  "selects."),
		new_target(a));
}

static void refused(struct asking *a)
{
	_cleanup_free_ char *target = target_text(a->refused);
	const char *ns = a->q->ns, *pod = a->q->pod;

	if (a->refusal == REASON_NAMESPACE_NOT_OPTED_IN)
		why_add(a->reasons, "namespace",
			xasprintf("%s selects the namespace %s, but the namespace lacks the "
				  "label " SELECT_LABEL
				  "=enabled, which a ClusterProfilingTarget needs.",
				  target, ns),
			xasprintf("kubectl label namespace %s " SELECT_LABEL "=enabled --overwrite",
				  ns));
	else if (a->refusal == REASON_NAMESPACE_DISABLED)
		why_add(a->reasons, "namespace",
			xasprintf("The label " SELECT_LABEL "=disabled of the namespace %s forbids "
				  "profiling there. Ask the owner of the namespace.",
				  ns),
			xasprintf("kubectl get namespace %s --show-labels", ns));
	else
		why_add(a->reasons, "pod_opted_out",
			xasprintf("The label or annotation " SELECT_LABEL " of the pod %s forbids "
				  "its profiling: it has another value than enabled.",
				  pod),
			xasprintf("kubectl -n %s describe pod %s", ns, pod));
}

static void pod_not_selected(struct asking *a)
{
	_cleanup_free_ char *target = target_text(a->without_pod);

	why_add(a->reasons, "pod_not_selected",
		xasprintf("The podSelector of %s does not match the labels of the pod %s, and no "
			  "other target selects the pod.",
			  target, a->q->pod),
		xasprintf("kubectl -n %s get pod %s --show-labels", a->q->ns, a->q->pod));
}

static void namespace_unread(struct asking *a)
{
	_cleanup_free_ char *target = target_text(a->unclear);
	_cleanup_free_ char *ns = utf8_shorten(a->q->ns, NAME_SHOWN);

	why_add(a->reasons, "namespace_unread",
		xasprintf("The API server did not answer with the labels of the namespace %s. So "
			  "it is not known whether %s selects it.",
			  ns, target),
		describe(a->unclear));
}

static void nothing_selects(struct asking *a)
{
	if (a->refused)
		refused(a);
	else if (a->without_pod)
		pod_not_selected(a);
	else if (a->unclear)
		namespace_unread(a);
	else
		no_target(a);
}

/* ---- targets that select ---- */

static bool asks_for_event(const struct asking *a, const json_t *target)
{
	const json_t *events = json_at(target, "spec.events");

	/* the API server sets the default of the CRD */
	if (!json_is_object(events))
		return a->q->tracing.selection->event == EVENT_ON_CPU;
	return json_is_object(json_object_get(events, a->event->spec_field));
}

/* A merge patch that keeps the events that the target has. */
static char *ask_for_event(const struct asking *a, const json_t *target)
{
	bool has_events = json_is_object(json_at(target, "spec.events"));
	_cleanup_free_ char *rest =
		xasprintf(" --type merge -p '{\"spec\": {\"events\": {%s\"%s\": {}}}}'",
			  has_events ? "" : "\"onCpu\": {}, ", a->event->spec_field);

	return target_command(target, "patch", rest);
}

static void event_not_asked(struct asking *a)
{
	const json_t *t = a->selecting[0];
	_cleanup_free_ char *target = target_text(t);

	why_add(a->reasons, "event_not_asked",
		a->n_selecting == 1
			? xasprintf("%s does not ask for %s: its spec.events lacks %s.", target,
				    a->event->name, a->event->spec_field)
			: xasprintf("None of the %zu targets that may select this asks for %s. "
				    "spec.events of %s, for example, lacks %s.",
				    a->n_selecting, a->event->name, target, a->event->spec_field),
		ask_for_event(a, t));
}

/* Returns the message of a condition or failure, short, with a full stop. */
static char *message_of(const json_t *j)
{
	_cleanup_free_ char *text = utf8_shorten(json_str_at(j, "message", ""), TEXT_BYTES);

	return xasprintf("%s%s", text, str_has_suffix(text, ".") ? "" : ".");
}

static bool is_ready(const json_t *target)
{
	return streq(json_str_at(condition(target, "Ready"), "status", ""), "True");
}

static const char *ready_reason(const json_t *target)
{
	return json_str_at(condition(target, "Ready"), "reason", "");
}

static void not_ready(struct asking *a, const json_t *t)
{
	const json_t *c = condition(t, "Ready");
	_cleanup_free_ char *target = target_text(t), *message = message_of(c);
	const char *reason = ready_reason(t);
	bool stopped = streq(reason, reason_name(REASON_SUSPENDED));

	if (!c) {
		why_add(a->reasons, "not_ready",
			xasprintf("The hub has not written the status of %s yet.", target),
			describe(t));
		return;
	}
	why_add(a->reasons, "not_ready",
		xasprintf("%s is not Ready (%.64s): %s", target, reason, message),
		stopped ? target_command(t, "patch",
					 " --type merge -p '{\"spec\": {\"suspend\": false}}'")
			: describe(t));
}

static void failure(struct asking *a, const json_t *t, const json_t *f)
{
	_cleanup_free_ char *target = target_text(t), *message = message_of(f);
	enum reason r = reason_by_name(json_str_at(f, "reason", ""));
	const char *advice = r ? reason_info(r)->advice : NULL;
	bool no_agent = r == REASON_NODE_WITHOUT_AGENT;

	why_add(a->reasons, no_agent ? "no_agent" : "failure",
		xasprintf("%s: %s%s%s", target, message, advice && !no_agent ? " " : "",
			  advice && !no_agent ? advice : ""),
		no_agent ? xasprintf("kubectl -n %s describe daemonset podflame-agent", a->c->ns)
			 : describe(t));
}

/* The failures of a target that Ready does not name already. */
static void failures(struct asking *a, const json_t *t)
{
	const json_t *f;
	size_t i, n = 0;

	json_array_foreach (json_at(t, "status.failures"), i, f)
		if (n < SHOWN &&
		    !(streq(json_str_at(f, "reason", ""), ready_reason(t)) && !is_ready(t))) {
			failure(a, t, f);
			n++;
		}
}

static void nothing_happened(struct asking *a, const json_t *t)
{
	_cleanup_free_ char *target = target_text(t), *message = message_of(condition(t, "Ready"));

	why_add(a->reasons, "ready",
		xasprintf("%s is Ready (%.64s): %s Perhaps nothing that %s measures has happened "
			  "there.%s%s",
			  target, ready_reason(t), message, a->event->name,
			  json_object_size(json_at(t, "spec.nodeSelector"))
				  ? " It selects only some nodes."
				  : "",
			  json_object_size(json_at(t, "spec.containers"))
				  ? " It selects only some containers."
				  : ""),
		describe(t));
}

static void something_selects(struct asking *a)
{
	size_t n = 0, asking = 0;

	for (size_t i = 0; i < a->n_selecting; i++)
		asking += asks_for_event(a, a->selecting[i]);
	if (!asking)
		event_not_asked(a);
	for (size_t i = 0; i < a->n_selecting && n < SHOWN; i++) {
		const json_t *t = a->selecting[i];

		if (asking && !asks_for_event(a, t))
			continue;
		n++;
		if (!is_ready(t))
			not_ready(a, t);
		else if (asking)
			nothing_happened(a, t);
		failures(a, t);
	}
}

/* ---- all ---- */

static void no_namespace(struct asking *a)
{
	_cleanup_free_ char *name = utf8_shorten(a->q->ns, NAME_SHOWN);

	why_add(a->reasons, "no_namespace", xasprintf("The cluster has no namespace %s now.", name),
		xstrdup("kubectl get namespaces"));
}

static void no_pod(struct asking *a)
{
	const struct why_object *pod = &a->c->seen->pod;
	_cleanup_free_ char *name = utf8_shorten(a->q->pod ?: "", NAME_SHOWN);

	if (pod->known && !pod->object)
		why_add(a->reasons, "no_pod",
			xasprintf("The namespace %s has no pod %s now.", a->q->ns, name),
			xasprintf("kubectl -n %s get pods", a->q->ns));
}

/* No target asks for an event that programs push. */
static char *why_not_pushed(const struct event_info *e)
{
	return xasprintf("podflame does not sample %s: a program pushes it, and none that this "
			 "selects has (docs/push.md).",
			 e->name);
}

json_t *why_of_cluster(const struct why_question *q, const struct why_cluster *c)
{
	struct asking a = {.q = q,
			   .c = c,
			   .event = profile_event_info(q->tracing.selection->event),
			   .reasons = json_array()};
	const json_t *t;
	size_t i;

	if (!why_may_tell(q, q->ns))
		return a.reasons;
	if (c->seen->ns.known && !c->seen->ns.object) {
		no_namespace(&a);
		return a.reasons;
	}
	if (!c->targets) {
		why_add(a.reasons, "starting",
			xstrdup("The hub has not read the targets yet: it has just started, or "
				"cannot reach the API server."),
			xasprintf("kubectl -n %s logs deployment/podflame-hub", c->ns));
		return a.reasons;
	}
	no_pod(&a);
	if (!a.event->spec_field) {
		why_add(a.reasons, "event_not_asked", why_not_pushed(a.event), NULL);
		return a.reasons;
	}
	json_array_foreach (c->targets, i, t)
		judge(&a, t);
	if (a.n_selecting)
		something_selects(&a);
	else
		nothing_selects(&a);
	free(a.selecting);
	return a.reasons;
}

json_t *why_of_local(const struct why_question *q)
{
	const struct event_info *e = profile_event_info(q->tracing.selection->event);
	bool by_default = q->tracing.selection->event == EVENT_ON_CPU;
	json_t *list = json_array();

	if (e->local_key)
		why_add(list, "event_not_asked",
			xasprintf("podflame local records %s only if its configuration says %s: "
				  "false.",
				  e->name, e->local_key),
			NULL);
	else if (!e->spec_field)
		why_add(list, "event_not_asked", why_not_pushed(e), NULL);
	else if (!by_default)
		why_add(list, "event_not_asked",
			xasprintf("podflame local does not record %s: podflame record does.",
				  e->name),
			xasprintf("podflame record --pid PID --event %s --output %s.folded",
				  e->name, e->name));
	why_add(list, "local",
		xstrdup("podflame local records the processes that its configuration selects "
			"(static_config.ebpf), while they run. podflame doctor says what it can "
			"see of a process."),
		xstrdup("podflame doctor --pid PID"));
	return list;
}
