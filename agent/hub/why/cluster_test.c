/* SPDX-License-Identifier: Apache-2.0 */
/* What the targets say about a selection without data: the reasons, their texts and commands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "hub/why/testwhy.h"

/* JSON with ' in place of ". */
static json_t *parse(const char *text)
{
	_cleanup_free_ char *json = xstrdup(text);
	json_t *j;

	for (char *c = json; *c; c++)
		*c = *c == '\'' ? '"' : *c;
	j = json_loads(json, 0, NULL);
	if (!j)
		fail_msg("no JSON: %s", text);
	return j;
}

struct world {
	const char *event, *filter;
	const char *targets;  /* a list; NULL: not known */
	const char *ns, *pod; /* their metadata; "": there is none; NULL: not known */
	bool opt_in_required;
};

static struct why_object object(const char *metadata)
{
	_cleanup_free_ char *text = metadata ? xasprintf("{'metadata': %s}", metadata) : NULL;

	if (!metadata)
		return (struct why_object){0};
	return (struct why_object){true, *metadata ? parse(text) : NULL};
}

static json_t *why(const struct world *w)
{
	struct why_question q;
	_cleanup_json_ json_t *targets = w->targets ? parse(w->targets) : NULL;
	const struct why_seen seen = {object(w->ns), object(w->pod)};
	const struct why_cluster c = {targets, &seen, "podflame-system", w->opt_in_required};
	json_t *reasons;

	ask_why(&q, w->event ?: "on-cpu", 1700000000, 1700000900, w->filter ?: "", "");
	reasons = why_of_cluster(&q, &c);
	why_question_done(&q);
	json_decref(seen.ns.object);
	json_decref(seen.pod.object);
	return reasons;
}

#define OF_POD	 "pod_ns='app' AND pod='web-1'"
#define READY	 "{'type': 'Ready', 'status': 'True', 'reason': 'Profiling', 'message': 'stored'}"
#define WEB(...) "{'metadata': {'namespace': 'app', 'name': 'web'}, " __VA_ARGS__ "}"
#define WEB_SPEC "'spec': {'podSelector': {'matchLabels': {'app': 'web'}}, 'events': {'onCpu': {}}}"
#define ALL(...) "{'metadata': {'name': 'all'}, " __VA_ARGS__ "}"
#define ALL_SPEC "'spec': {'podSelector': {}, 'namespaceSelector': {}, 'events': {'onCpu': {}}}"

static void no_target_at_all(void **state)
{
	_cleanup_json_ json_t *r = why(&(struct world){.targets = "[]"});

	(void)state;
	assert_codes(r, "no_target");
	assert_string_equal(command_of(r, "no_target"), "kubectl get ptgt,cptgt -A");
}

static void no_target_for_the_namespace(void **state)
{
	_cleanup_json_ json_t *r = why(&(struct world){.targets = "[" WEB(WEB_SPEC) "]",
						       .event = "off-cpu",
						       .filter = "pod_ns='shop'",
						       .ns = "{'name': 'shop'}"});

	(void)state;
	assert_codes(r, "no_target");
	assert_string_equal(text_of(r, "no_target"),
			    "No target selects the namespace shop. podflame profiles only what a "
			    "target selects.");
	assert_string_equal(
		command_of(r, "no_target"),
		"kubectl apply -f - <<'EOF'\n"
		"{\"apiVersion\": \"podflame.io/v1alpha1\", \"kind\": \"ProfilingTarget\",\n"
		" \"metadata\": {\"namespace\": \"shop\", \"name\": \"all\"},\n"
		" \"spec\": {\"podSelector\": {}, \"events\": {\"onCpu\": {}, \"offCpu\": {}}}}\n"
		"EOF");
}

static void no_such_namespace(void **state)
{
	_cleanup_json_ json_t *r =
		why(&(struct world){.targets = "[]", .filter = "pod_ns='ap'", .ns = ""});

	(void)state;
	assert_codes(r, "no_namespace");
	assert_string_equal(text_of(r, "no_namespace"), "The cluster has no namespace ap now.");
	assert_string_equal(command_of(r, "no_namespace"), "kubectl get namespaces");
}

static void namespace_without_its_label(void **state)
{
	struct world w = {.targets = "[" ALL(ALL_SPEC) "]",
			  .filter = "pod_ns='app'",
			  .ns = "{'name': 'app'}",
			  .opt_in_required = true};
	_cleanup_json_ json_t *r = why(&w), *open = NULL, *disabled = NULL;

	(void)state;
	assert_codes(r, "namespace");
	assert_string_equal(text_of(r, "namespace"),
			    "ClusterProfilingTarget all selects the namespace app, but the "
			    "namespace lacks the label podflame.io/profiling=enabled, which a "
			    "ClusterProfilingTarget needs.");
	assert_string_equal(
		command_of(r, "namespace"),
		"kubectl label namespace app podflame.io/profiling=enabled --overwrite");
	w.ns = "{'name': 'app', 'labels': {'podflame.io/profiling': 'enabled'}}";
	open = why(&w);
	assert_codes(open, "not_ready");
	w.ns = "{'name': 'app', 'labels': {'podflame.io/profiling': 'disabled'}}";
	disabled = why(&w);
	assert_codes(disabled, "namespace");
	assert_non_null(strstr(text_of(disabled, "namespace"), "forbids profiling"));
}

static void pod_that_no_selector_matches(void **state)
{
	_cleanup_json_ json_t *r =
		why(&(struct world){.targets = "[" WEB(WEB_SPEC) "]",
				    .filter = OF_POD,
				    .ns = "{'name': 'app'}",
				    .pod = "{'name': 'web-1', 'labels': {'app': 'wbe'}}"});

	(void)state;
	assert_codes(r, "pod_not_selected");
	assert_string_equal(text_of(r, "pod_not_selected"),
			    "The podSelector of ProfilingTarget app/web does not match the labels "
			    "of the pod web-1, and no other target selects the pod.");
	assert_string_equal(command_of(r, "pod_not_selected"),
			    "kubectl -n app get pod web-1 --show-labels");
}

static void pod_that_opts_out(void **state)
{
	_cleanup_json_ json_t *r = why(
		&(struct world){.targets = "[" WEB(WEB_SPEC) "]",
				.filter = OF_POD,
				.ns = "{'name': 'app'}",
				.pod = "{'name': 'web-1', 'labels': {'app': 'web'}, 'annotations': "
				       "{'podflame.io/profiling': 'no'}}"});

	(void)state;
	assert_codes(r, "pod_opted_out");
	assert_string_equal(command_of(r, "pod_opted_out"), "kubectl -n app describe pod web-1");
}

static void pod_that_is_gone(void **state)
{
	_cleanup_json_ json_t *r = why(&(struct world){
		.targets = "[" WEB(WEB_SPEC ", 'status': {'conditions': [" READY "]}") "]",
		.filter = OF_POD,
		.ns = "{'name': 'app'}",
		.pod = ""});

	(void)state;
	assert_codes(r, "no_pod ready");
	assert_string_equal(text_of(r, "no_pod"), "The namespace app has no pod web-1 now.");
}

/* The command is one that kubectl takes: it keeps the events that the target has. */
static void event_that_nobody_asks_for(void **state)
{
	struct world w = {.targets =
				  "[" WEB(WEB_SPEC ", 'status': {'conditions': [" READY "]}") "]",
			  .event = "off-cpu",
			  .filter = "pod_ns='app'",
			  .ns = "{'name': 'app'}"};
	_cleanup_json_ json_t *r = why(&w), *no_events = NULL, *several = NULL;

	(void)state;
	assert_codes(r, "event_not_asked");
	assert_string_equal(text_of(r, "event_not_asked"),
			    "ProfilingTarget app/web does not ask for off-cpu: its spec.events "
			    "lacks offCpu.");
	assert_string_equal(command_of(r, "event_not_asked"),
			    "kubectl -n app patch ptgt web --type merge -p "
			    "'{\"spec\": {\"events\": {\"offCpu\": {}}}}'");
	w.targets = "[" ALL("'spec': {'podSelector': {}, 'namespaceSelector': {}}") "]";
	no_events = why(&w);
	assert_string_equal(command_of(no_events, "event_not_asked"),
			    "kubectl patch cptgt all --type merge -p "
			    "'{\"spec\": {\"events\": {\"onCpu\": {}, \"offCpu\": {}}}}'");
	w.targets = "[" WEB(WEB_SPEC) ", " ALL(ALL_SPEC) "]";
	several = why(&w);
	assert_string_equal(text_of(several, "event_not_asked"),
			    "None of the 2 targets that may select this asks for off-cpu. "
			    "spec.events of ProfilingTarget app/web, for example, lacks offCpu.");
}

static void target_that_is_not_ready(void **state)
{
	struct world w = {.targets =
				  "[" WEB(WEB_SPEC
					  ", 'status': {'conditions': [{'type': 'Ready', "
					  "'status': 'False', 'reason': 'NoPodsMatched', "
					  "'message': 'the selectors match no running pod'}]}") "]",
			  .filter = "pod_ns='app'",
			  .ns = "{'name': 'app'}"};
	_cleanup_json_ json_t *r = why(&w), *suspended = NULL, *without = NULL;

	(void)state;
	assert_codes(r, "not_ready");
	assert_string_equal(text_of(r, "not_ready"),
			    "ProfilingTarget app/web is not Ready (NoPodsMatched): the selectors "
			    "match no running pod.");
	assert_string_equal(command_of(r, "not_ready"), "kubectl -n app describe ptgt web");
	w.targets = "[" WEB(WEB_SPEC ", 'status': {'conditions': [{'type': 'Ready', 'status': "
				     "'False', 'reason': 'Suspended', 'message': 'x'}]}") "]";
	suspended = why(&w);
	assert_string_equal(command_of(suspended, "not_ready"),
			    "kubectl -n app patch ptgt web --type merge -p "
			    "'{\"spec\": {\"suspend\": false}}'");
	w.targets = "[" WEB(WEB_SPEC) "]";
	without = why(&w);
	assert_string_equal(text_of(without, "not_ready"),
			    "The hub has not written the status of ProfilingTarget app/web yet.");
}

static void nodes_without_an_agent_and_failures(void **state)
{
	_cleanup_json_ json_t *r = why(&(struct world){
		.targets = "[" WEB(WEB_SPEC
				   ", 'status': {'conditions': [" READY "], 'failures': ["
				   "{'reason': 'NodeWithoutAgent', 'message': 'on 1 node (n1): no "
				   "pod there'}, {'reason': 'OverBudget', 'message': 'off-cpu "
				   "would cost 3 %'}]}") "]",
		.filter = "pod_ns='app'",
		.ns = "{'name': 'app'}"});

	(void)state;
	assert_codes(r, "ready no_agent failure");
	assert_string_equal(text_of(r, "no_agent"),
			    "ProfilingTarget app/web: on 1 node (n1): no pod there.");
	assert_string_equal(command_of(r, "no_agent"),
			    "kubectl -n podflame-system describe daemonset podflame-agent");
	assert_string_equal(text_of(r, "failure"),
			    "ProfilingTarget app/web: off-cpu would cost 3 %. Raise the limit, or "
			    "ask for a coarser event.");
}

/* The API server has not answered: nothing is claimed of labels that the hub does not know. */
static void namespace_that_was_not_read(void **state)
{
	_cleanup_json_ json_t *r = why(&(struct world){
		.targets = "[{'metadata': {'name': 'all'}, 'spec': {'podSelector': {}, "
			   "'namespaceSelector': {'matchLabels': {'team': 'a'}}}}]",
		.filter = "pod_ns='app'"});

	(void)state;
	assert_codes(r, "namespace_unread");
	assert_string_equal(text_of(r, "namespace_unread"),
			    "The API server did not answer with the labels of the namespace app. "
			    "So it is not known whether ClusterProfilingTarget all selects it.");
}

static void some_nodes_and_some_containers(void **state)
{
	_cleanup_json_ json_t *r = why(&(struct world){
		.targets = "[" WEB("'spec': {'podSelector': {}, 'nodeSelector': {'matchLabels': "
				   "{'a': 'b'}}, 'containers': {'names': ['x']}}, 'status': "
				   "{'conditions': [" READY "]}") "]",
		.filter = "pod_ns='app'",
		.ns = "{'name': 'app'}"});

	(void)state;
	assert_codes(r, "ready");
	assert_true(
		str_has_suffix(text_of(r, "ready"),
			       " It selects only some nodes. It selects only some containers."));
}

/* A long name is cut between characters; "" is no name. */
static void odd_names(void **state)
{
	_cleanup_buf_ struct buf filter = {0};
	_cleanup_json_ json_t *r = NULL, *empty = NULL;

	(void)state;
	buf_puts(&filter, "pod_ns='x");
	for (int i = 0; i < 300; i++)
		buf_puts(&filter, "\\u00e9");
	buf_puts(&filter, "'");
	r = why(&(struct world){.targets = "[]", .filter = filter.data, .ns = ""});
	assert_codes(r, "no_namespace");
	assert_true(str_has_prefix(text_of(r, "no_namespace"), "The cluster has no namespace x"));
	empty = why(&(struct world){.targets = "[]", .filter = "pod_ns='' AND pod=''"});
	assert_true(str_has_prefix(text_of(empty, "no_target"), "There is no target."));
}

static void hub_that_starts(void **state)
{
	_cleanup_json_ json_t *r = why(&(struct world){.filter = "pod_ns='app'"});

	(void)state;
	assert_codes(r, "starting");
}

/* Names in a filter are anybody's: a command line has only names that Kubernetes allows. */
static void names_that_are_no_names(void **state)
{
	_cleanup_json_ json_t *r = why(&(struct world){
		.targets = "[]", .filter = "pod_ns='x; rm -rf /'", .ns = "{'name': 'x'}"});

	(void)state;
	assert_string_equal(command_of(r, "no_target"), "kubectl get ptgt,cptgt -A");
}

/* A user who may read one namespace is told nothing of another, nor of the cluster's targets. */
static void other_namespaces_are_not_told(void **state)
{
	static char *names[] = {"shop"};
	static const struct scope shop = {.places = names, .n_places = 1};
	const struct why_seen seen = {0};
	struct why_question q;
	_cleanup_json_ json_t *targets = parse("[" WEB(WEB_SPEC) ", " ALL(ALL_SPEC) "]"),
			      *own = NULL, *other = NULL;
	const struct why_cluster c = {targets, &seen, "podflame-system", false};

	(void)state;
	ask_why(&q, "on-cpu", 1700000000, 1700000900, "pod_ns='shop'", "");
	q.scope = &shop;
	own = why_of_cluster(&q, &c);
	assert_codes(own, "no_target");
	assert_non_null(
		strstr(text_of(own, "no_target"), "A ClusterProfilingTarget may select it"));
	free(q.ns);
	q.ns = xstrdup("app");
	other = why_of_cluster(&q, &c);
	assert_codes(other, "");
	why_question_done(&q);
}

static void local(void **state)
{
	static const struct {
		const char *event, *codes, *text;
	} cases[] = {
		{"on-cpu", "local", "static_config.ebpf"},
		{"off-cpu", "event_not_asked local",
		 "static_config.ebpf.off-cpu-profile.disabled: false."},
		{"mem-alloc", "event_not_asked local", "podflame local does not record mem-alloc"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct why_question q;
		_cleanup_json_ json_t *r = NULL;

		ask_why(&q, cases[i].event, 1, 2, "", "");
		r = why_of_local(&q);
		why_question_done(&q);
		assert_codes(r, cases[i].codes);
		assert_non_null(
			strstr(json_str_at(json_array_get(r, 0), "text", ""), cases[i].text));
	}
}

static json_t *reasons(const char *codes)
{
	_cleanup_free_ char *text = xstrdup(codes);
	json_t *list = json_array();

	for (char *w = strtok(text, " "); w; w = strtok(NULL, " "))
		json_array_append_new(list, json_pack("{s:s}", "reason", w));
	return list;
}

/* If the pod exists, its target is the likely reason; if not, a condition of the filter is. */
static void order(void **state)
{
	_cleanup_json_ json_t *pod = json_object();
	const struct why_seen seen = {.pod = {true, pod}}, unseen = {.pod = {true, NULL}};
	_cleanup_json_ json_t *of_pod = why_in_order(reasons("ready failure event_not_asked"),
						     reasons("other_time lost condition"), &seen);
	_cleanup_json_ json_t *without =
		why_in_order(reasons("ready failure no_pod not_ready"),
			     reasons("other_time lost condition"), &unseen);

	(void)state;
	assert_codes(of_pod, "event_not_asked condition lost other_time ready failure");
	assert_codes(without, "condition no_pod not_ready lost other_time ready failure");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_target_at_all),
		cmocka_unit_test(no_target_for_the_namespace),
		cmocka_unit_test(no_such_namespace),
		cmocka_unit_test(namespace_without_its_label),
		cmocka_unit_test(pod_that_no_selector_matches),
		cmocka_unit_test(pod_that_opts_out),
		cmocka_unit_test(pod_that_is_gone),
		cmocka_unit_test(event_that_nobody_asks_for),
		cmocka_unit_test(target_that_is_not_ready),
		cmocka_unit_test(nodes_without_an_agent_and_failures),
		cmocka_unit_test(namespace_that_was_not_read),
		cmocka_unit_test(some_nodes_and_some_containers),
		cmocka_unit_test(odd_names),
		cmocka_unit_test(hub_that_starts),
		cmocka_unit_test(names_that_are_no_names),
		cmocka_unit_test(other_namespaces_are_not_told),
		cmocka_unit_test(local),
		cmocka_unit_test(order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
