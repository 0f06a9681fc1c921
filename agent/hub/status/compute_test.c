/* SPDX-License-Identifier: Apache-2.0 */
/* status_compute and status_pending: a table of node reports, and the status that they lead to. */
#include "hub/status/status.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

#define NOW "2026-11-21T12:00:30Z"
/* A target of generation 2. spec and status: JSON that is added to the target's spec and status. */
#define TARGET(spec, status)                                                                       \
	"{\"metadata\": {\"uid\": \"u\", \"generation\": 2}, \"spec\": {\"podSelector\": {}" spec  \
	"}, \"status\": {" status "}}"
#define READY(status, reason, since)                                                               \
	"\"conditions\": [{\"type\": \"Ready\", \"status\": \"" status "\", \"reason\": \"" reason \
	"\", \"message\": \"m\", \"lastTransitionTime\": \"2026-11-21T12:00:" since                \
	"Z\", \"observedGeneration\": 2}]"
#define NODE(node, pods, sampled, stored, reasons)                                                 \
	"{\"node\": \"" node "\", \"generation\": 2, \"podsMatched\": 3, \"pods\": " #pods         \
	", \"containers\": " #pods ", \"events\": {\"on-cpu\": {\"sampled\": " #sampled            \
	", \"stored\": " #stored "}}, \"reasons\": [" reasons "]}"
/* A target that asks for on-cpu and mem-alloc, and the entry of a node with both events. */
#define TWO ", \"events\": {\"onCpu\": {}, \"memAlloc\": {}}"
#define BOTH(node, on_cpu, mem_alloc, reasons)                                                     \
	"{\"node\": \"" node "\", \"generation\": 2, \"podsMatched\": 1, \"pods\": 1, "            \
	"\"containers\": 1, \"events\": {\"on-cpu\": {" on_cpu "}, \"mem-alloc\": {" mem_alloc     \
	"}}, \"reasons\": [" reasons "]}"
#define NOTHING "\"sampled\": false, \"stored\": false"
#define SAMPLED "\"sampled\": true, \"stored\": false"
#define STORED	"\"sampled\": true, \"stored\": true"
#define WHY(reason, pods)                                                                          \
	"{\"reason\": \"" reason "\", \"message\": \"says why\", \"pods\": " #pods "}"
/* A node without an agent: the entry that status_agentless_entry returns. */
#define LACKING(node, matched, reasons)                                                            \
	"{\"node\": \"" node "\", \"generation\": 2, \"withoutAgent\": true, "                     \
	"\"podsMatched\": " #matched ", \"reasons\": [" reasons "]}"
#define LACK(node)	 LACKING(node, 3, WHY("NodeWithoutAgent", 2))
#define UNKNOWN_SINCE(s) READY("Unknown", "WaitingForSamples", s)

static const struct status_row {
	const char *name, *target, *entries;
	unsigned n_reports;
	const char *ready, *reason, *accepted, *degraded;
	bool pending;
} rows[] = {
	{"new, nobody has said anything", TARGET("", ""), "[]", 2, "Unknown", "Pending", "True",
	 "False", true},
	{"nothing matches after the grace", TARGET("", READY("Unknown", "Pending", "26")), "[]", 2,
	 "False", "NoPodsMatched", "True", "False", false},
	{"still within the grace", TARGET("", READY("Unknown", "Pending", "29")), "[]", 2,
	 "Unknown", "Pending", "True", "False", true},
	{"nothing matched and still does not", TARGET("", READY("False", "NoPodsMatched", "29")),
	 "[]", 2, "False", "NoPodsMatched", "True", "False", false},
	{"no agents at all", TARGET("", READY("Unknown", "Pending", "20")), "[]", 0, "False",
	 "NoAgents", "True", "False", false},
	{"the last pod went away", TARGET("", READY("True", "Profiling", "01")), "[]", 2, "Unknown",
	 "Pending", "True", "False", true},
	{"agents still have the old spec", TARGET("", ""),
	 "[{\"node\": \"n1\", \"generation\": 1, \"podsMatched\": 1, \"pods\": 1, \"containers\": "
	 "1, "
	 "\"events\": {\"on-cpu\": {\"sampled\": true, \"stored\": true}}}]",
	 1, "Unknown", "Pending", "True", "False", true},
	{"planned, nothing sampled", TARGET("", UNKNOWN_SINCE("29")),
	 "[" NODE("n1", 1, false, false, "") "]", 1, "Unknown", "WaitingForSamples", "True",
	 "False", true},
	{"sampled, not stored", TARGET("", UNKNOWN_SINCE("20")),
	 "[" NODE("n1", 1, true, false, "") "]", 1, "Unknown", "WaitingForStore", "True", "False",
	 true},
	{"stored on one of two nodes", TARGET("", UNKNOWN_SINCE("20")),
	 "[" NODE("n1", 1, false, false, "") "," NODE("n2", 1, true, true, "") "]", 2, "True",
	 "Profiling", "True", "False", false},
	{"idle after a while", TARGET("", UNKNOWN_SINCE("10")),
	 "[" NODE("n1", 1, false, false, "") "]", 1, "True", "Idle", "True", "False", false},
	{"idle stays idle", TARGET("", READY("True", "Idle", "29")),
	 "[" NODE("n1", 1, false, false, "") "]", 1, "True", "Idle", "True", "False", false},
	{"idle, then stored", TARGET("", READY("True", "Idle", "10")),
	 "[" NODE("n1", 1, true, true, "") "]", 1, "True", "Profiling", "True", "False", false},
	{"sampled is not idle", TARGET("", UNKNOWN_SINCE("10")),
	 "[" NODE("n1", 1, true, false, "") "]", 1, "Unknown", "WaitingForStore", "True", "False",
	 true},
	{"an agent that restarts does not take Ready away",
	 TARGET("", READY("True", "Profiling", "01")), "[" NODE("n1", 1, false, false, "") "]", 1,
	 "True", "Profiling", "True", "False", false},
	{"not stored stays not stored", TARGET("", READY("False", "NotStored", "01")),
	 "[" NODE("n1", 1, true, false, "") "]", 1, "False", "NotStored", "True", "False", false},
	{"all pods opted out", TARGET("", UNKNOWN_SINCE("29")),
	 "[" NODE("n1", 0, false, false, WHY("PodOptedOut", 3)) "]", 1, "False", "PodOptedOut",
	 "True", "False", false},
	{"some pods opted out", TARGET("", ""),
	 "[" NODE("n1", 2, true, true, WHY("PodOptedOut", 1)) "]", 1, "True", "Profiling", "True",
	 "False", false},
	{"a file has no unwind tables", TARGET("", ""),
	 "[" NODE("n1", 2, true, true, WHY("UnwindTablesMissing", 0)) "]", 1, "True", "Profiling",
	 "True", "True", false},
	{"a runtime is not walked", TARGET("", ""),
	 "[" NODE("n1", 2, true, true, WHY("RuntimeNotWalked", 0)) "]", 1, "True", "Profiling",
	 "True", "True", false},
	{"a JVM refuses its perf map", TARGET("", ""),
	 "[" NODE("n1", 2, true, true, WHY("JavaAttachFailed", 0)) "]", 1, "True", "Profiling",
	 "True", "True", false},
	{"new, and a node without an agent", TARGET("", ""), "[" LACK("n1") "]", 1, "Unknown",
	 "Pending", "True", "True", true},
	{"all on nodes without an agent", TARGET("", READY("Unknown", "Pending", "26")),
	 "[" LACK("n1") "]", 1, "False", "NodeWithoutAgent", "True", "True", false},
	{"still all on nodes without an agent",
	 TARGET("", READY("False", "NodeWithoutAgent", "29")), "[" LACK("n1") "]", 1, "False",
	 "NodeWithoutAgent", "True", "True", false},
	{"an agent that was there is not any more", TARGET("", READY("True", "Profiling", "01")),
	 "[" LACK("n1") "]", 1, "False", "NodeWithoutAgent", "True", "True", false},
	{"no node has an agent", TARGET("", READY("Unknown", "Pending", "26")), "[" LACK("n1") "]",
	 0, "False", "NoAgents", "True", "True", false},
	{"one of two nodes is without an agent", TARGET("", ""),
	 "[" NODE("n1", 1, true, true, "") "," LACK("n2") "]", 1, "True", "Profiling", "True",
	 "True", false},
	{"... and nothing is sampled yet", TARGET("", UNKNOWN_SINCE("29")),
	 "[" NODE("n1", 1, false, false, "") "," LACK("n2") "]", 1, "Unknown", "WaitingForSamples",
	 "True", "True", true},
	{"... and the other's pods are opted out", TARGET("", ""),
	 "[" NODE("n1", 0, false, false, WHY("PodOptedOut", 3)) "," LACK("n2") "]", 1, "False",
	 "NodeWithoutAgent", "True", "True", false},
	{"... and the other has the old spec", TARGET("", READY("False", "NodeWithoutAgent", "29")),
	 "[{\"node\": \"n1\", \"generation\": 1}," LACK("n2") "]", 1, "Unknown", "Pending", "True",
	 "True", true},
	{"opted out on a node without an agent", TARGET("", READY("Unknown", "Pending", "26")),
	 "[" LACKING("n1", 2, WHY("PodOptedOut", 2)) "]", 1, "False", "PodOptedOut", "True",
	 "False", false},
	{"still opted out on a node without an agent",
	 TARGET("", READY("False", "PodOptedOut", "29")),
	 "[" LACKING("n1", 2, WHY("PodOptedOut", 2)) "]", 1, "False", "PodOptedOut", "True",
	 "False", false},
	{"suspended, on a node without an agent", TARGET(", \"suspend\": true", ""),
	 "[" LACK("n1") "]", 1, "False", "Suspended", "True", "False", false},
	{"over, on a node without an agent",
	 TARGET(", \"stopAfter\": \"30s\"", "\"firstReadyTime\": \"2026-11-21T12:00:00Z\""),
	 "[" LACK("n1") "]", 1, "False", "Completed", "True", "False", false},
	{"refused, and a node without an agent", TARGET("", ""),
	 "[" NODE("n1", 0, false, false, WHY("InvalidSelector", 0)) "," LACK("n2") "]", 1, "False",
	 "InvalidSelector", "False", "True", false},
	{"all containers wait", TARGET("", UNKNOWN_SINCE("29")),
	 "[" NODE("n1", 2, false, false, WHY("ContainersNotRunning", 2)) "]", 1, "False",
	 "ContainersNotRunning", "True", "False", false},
	{"one of two pods waits", TARGET("", UNKNOWN_SINCE("29")),
	 "[" NODE("n1", 2, false, false, WHY("ContainersNotRunning", 1)) "]", 1, "Unknown",
	 "WaitingForSamples", "True", "False", true},
	{"the node cannot profile", TARGET("", UNKNOWN_SINCE("29")),
	 "[" NODE("n1", 1, false, false, WHY("MissingCapability", 0)) "]", 1, "False",
	 "MissingCapability", "True", "True", false},
	{"one of two nodes cannot profile", TARGET("", ""),
	 "[" NODE("n1", 1, false, false, WHY("MissingCapability", 0)) "," NODE("n2", 1, true, true,
									       "") "]",
	 2, "True", "Profiling", "True", "True", false},
	{"the rate is capped", TARGET("", ""),
	 "[" NODE("n1", 1, true, true, WHY("RateCapped", 0)) "]", 1, "True", "Profiling", "True",
	 "True", false},
	{"sampled less often while it waits for the first sample", TARGET("", UNKNOWN_SINCE("29")),
	 "[" NODE("n1", 1, false, false, WHY("RateLowered", 0)) "]", 1, "Unknown",
	 "WaitingForSamples", "True", "True", true},
	{"refused everywhere", TARGET("", ""),
	 "[" NODE("n1", 0, false, false, WHY("InvalidSelector", 0)) "]", 1, "False",
	 "InvalidSelector", "False", "True", false},
	{"refused by one old agent", TARGET("", ""),
	 "[" NODE("n1", 0, false, false, WHY("InvalidSpec", 0)) "," NODE("n2", 1, true, true,
									 "") "]",
	 2, "True", "Profiling", "True", "True", false},
	{"suspended", TARGET(", \"suspend\": true", READY("True", "Profiling", "01")),
	 "[" NODE("n1", 0, false, false, WHY("Suspended", 0)) "]", 1, "False", "Suspended", "True",
	 "False", false},
	{"suspended before the end of stopAfter, and no pod",
	 TARGET(", \"suspend\": true, \"stopAfter\": \"31s\"",
		"\"firstReadyTime\": \"2026-11-21T12:00:00Z\""),
	 "[]", 1, "False", "Suspended", "True", "False", true},
	{"before the end of stopAfter",
	 TARGET(", \"stopAfter\": \"31s\"", "\"firstReadyTime\": \"2026-11-21T12:00:00Z\""),
	 "[" NODE("n1", 1, true, true, "") "]", 1, "True", "Profiling", "True", "False", true},
	{"stopAfter is over",
	 TARGET(", \"stopAfter\": \"30s\"", "\"firstReadyTime\": \"2026-11-21T12:00:00Z\""),
	 "[" NODE("n1", 1, true, true, "") "]", 1, "False", "Completed", "True", "False", false},
	{"two events, one stored", TARGET(TWO, ""), "[" BOTH("n1", STORED, NOTHING, "") "]", 1,
	 "Unknown", "WaitingForSamples", "True", "False", true},
	{"two events, one is not allowed: it is not waited for", TARGET(TWO, ""),
	 "[" NODE("n1", 1, true, true, WHY("EventNotAllowed", 0)) "]", 1, "True", "Profiling",
	 "True", "True", false},
	{"... and the other has no samples yet", TARGET(TWO, UNKNOWN_SINCE("29")),
	 "[" NODE("n1", 1, false, false, WHY("EventNotAllowed", 0)) "]", 1, "Unknown",
	 "WaitingForSamples", "True", "True", true},
	{"... only on one of two nodes, as in an upgrade", TARGET(TWO, UNKNOWN_SINCE("29")),
	 "[" NODE("n1", 1, true, true, WHY("EventNotAllowed", 0)) "," BOTH("n2", STORED, NOTHING,
									   "") "]",
	 2, "Unknown", "WaitingForSamples", "True", "True", true},
	{"no event is allowed", TARGET(TWO, ""),
	 "[{\"node\": \"n1\", \"generation\": 2, \"podsMatched\": 0, \"events\": {}, \"reasons\": "
	 "[" WHY("NoEventAllowed", 0) "]}]",
	 1, "False", "NoEventAllowed", "False", "True", false},
	{"a setting is not allowed", TARGET("", ""),
	 "[" NODE("n1", 1, true, true, WHY("SampleBytesRaised", 0)) "]", 1, "True", "Profiling",
	 "True", "True", false},
	{"two events, both stored, each on another node", TARGET(TWO, ""),
	 "[" BOTH("n1", STORED, NOTHING, "") "," BOTH("n2", NOTHING, STORED, "") "]", 2, "True",
	 "Profiling", "True", "False", false},
	{"two events, one stored, one that does not happen", TARGET(TWO, UNKNOWN_SINCE("10")),
	 "[" BOTH("n1", STORED, NOTHING, "") "]", 1, "True", "Profiling", "True", "False", false},
	{"two events, one stored, one on its way", TARGET(TWO, UNKNOWN_SINCE("10")),
	 "[" BOTH("n1", STORED, SAMPLED, "") "]", 1, "Unknown", "WaitingForStore", "True", "False",
	 true},
	{"two events, one is over its budget", TARGET(TWO, UNKNOWN_SINCE("10")),
	 "[" BOTH("n1", STORED, NOTHING, WHY("OverBudget", 0)) "]", 1, "True", "Profiling", "True",
	 "True", false},
	{"two events, a little patience first", TARGET(TWO, UNKNOWN_SINCE("29")),
	 "[" BOTH("n1", STORED, NOTHING, WHY("OverBudget", 0)) "]", 1, "Unknown",
	 "WaitingForSamples", "True", "True", true},
	{"nothing comes, and it is said why", TARGET(TWO, UNKNOWN_SINCE("10")),
	 "[" BOTH("n1", NOTHING, NOTHING, WHY("EventUnsupported", 0)) "]", 1, "False",
	 "EventUnsupported", "True", "True", false},
	{"it stays so", TARGET(TWO, READY("False", "OverBudget", "29")),
	 "[" BOTH("n1", NOTHING, NOTHING, WHY("OverBudget", 0)) "]", 1, "False", "OverBudget",
	 "True", "True", false},
	{"it comes after all", TARGET(TWO, READY("False", "OverBudget", "10")),
	 "[" BOTH("n1", STORED, STORED, WHY("OverBudget", 0)) "]", 1, "True", "Profiling", "True",
	 "True", false},
	{"one node of two can", TARGET(TWO, UNKNOWN_SINCE("10")),
	 "[" BOTH("n1", NOTHING, NOTHING, WHY("EventUnsupported", 0)) "," BOTH("n2", NOTHING,
									       NOTHING, "") "]",
	 2, "True", "Idle", "True", "True", false},
	{"where memory is allocated is not seen", TARGET("", ""),
	 "[" NODE("n1", 1, true, true, WHY("MemoryNotSeen", 0)) "]", 1, "True", "Profiling", "True",
	 "True", false},
	{"estimates are no reason to wait longer", TARGET(TWO, UNKNOWN_SINCE("10")),
	 "[" BOTH("n1", STORED, NOTHING, WHY("Estimated", 1)) "]", 1, "True", "Profiling", "True",
	 "True", false},
	{"reports are of the spec before", TARGET("", UNKNOWN_SINCE("01")),
	 "[{\"node\": \"n1\", \"generation\": 1, \"pods\": 1, \"containers\": 1}]", 1, "Unknown",
	 "Pending", "True", "False", true},
	{"named at last: waiting begins", TARGET("", READY("Unknown", "ReportFull", "01")),
	 "[" NODE("n1", 1, false, false, "") "]", 1, "Unknown", "WaitingForSamples", "True",
	 "False", true},
	{"named at last, and sampled", TARGET("", READY("Unknown", "ReportFull", "01")),
	 "[" NODE("n1", 1, true, false, "") "]", 1, "Unknown", "WaitingForStore", "True", "False",
	 true},
	{"what cannot be seen is no failure", TARGET("", ""),
	 "[" NODE("n1", 1, true, true, WHY("GoroutinesNotSeen", 1)) "]", 1, "True", "Profiling",
	 "True", "False", false},
	{"odd entries", TARGET("", ""),
	 "[{\"node\": \"n1\", \"generation\": 2, \"pods\": -5, \"containers\": \"x\", \"events\": "
	 "[], "
	 "\"reasons\": {}}, {\"node\": \"n2\"}]",
	 2, "Unknown", "Pending", "True", "False", true},
};

/* members of status_seen in the next compute() */
static const char *unseen, *unverified;

static json_t *compute_omitted(const char *target_text, const char *entries_text,
			       unsigned n_reports, bool omitted)
{
	_cleanup_json_ json_t *target = json_loads(target_text, 0, NULL);
	_cleanup_json_ json_t *list = json_loads(entries_text, 0, NULL);
	const json_t *entries[32];
	size_t n = json_array_size(list);

	assert_non_null(target);
	assert_non_null(list);
	assert_true(n <= ARRAY_SIZE(entries));
	for (size_t i = 0; i < n; i++)
		entries[i] = json_array_get(list, i);
	return status_compute(
		target, entries, n,
		&(struct status_seen){n_reports, omitted, unseen, .unverified = unverified}, NOW);
}

static json_t *compute(const char *target_text, const char *entries_text, unsigned n_reports)
{
	return compute_omitted(target_text, entries_text, n_reports, false);
}

static const json_t *condition(const json_t *status, const char *type)
{
	return json_with(json_object_get(status, "conditions"), "type", type);
}

static void check(const struct status_row *r, const json_t *status, const char *type,
		  const char *key, const char *want)
{
	const char *got = json_str_at(condition(status, type), key, "missing");

	if (!streq(got, want))
		fail_msg("%s: %s.%s is %s, not %s", r->name, type, key, got, want);
}

static void test_table(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct status_row *r = &rows[i];
		_cleanup_json_ json_t *target = json_loads(r->target, 0, NULL);
		_cleanup_json_ json_t *s = compute(r->target, r->entries, r->n_reports);

		check(r, s, "Ready", "status", r->ready);
		check(r, s, "Ready", "reason", r->reason);
		check(r, s, "Accepted", "status", r->accepted);
		check(r, s, "Degraded", "status", r->degraded);
		assert_int_equal(json_int_at(s, "observedGeneration", 0), 2);
		if (status_pending(s) != r->pending)
			fail_msg("%s: pending should be %d", r->name, r->pending);
	}
}

/*
 * No report names the target. It may be missing because a report had no room for it, so the status
 * is not NoPodsMatched.
 */
static void test_a_full_report_proves_nothing(void **state)
{
	static const char *const before[] = {READY("Unknown", "Pending", "20"),
					     READY("Unknown", "ReportFull", "29"),
					     READY("False", "NoPodsMatched", "01")};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(before); i++) {
		_cleanup_free_ char *text = xasprintf(TARGET("", "%s"), before[i]);
		_cleanup_json_ json_t *target = json_loads(text, 0, NULL);
		_cleanup_json_ json_t *s = compute_omitted(text, "[]", 2, true);
		const json_t *ready = condition(s, "Ready");

		assert_string_equal(json_str_at(ready, "status", ""), "Unknown");
		assert_string_equal(json_str_at(ready, "reason", ""), "ReportFull");
		assert_false(status_pending(s));
	}
}

/* The earlier wait had another reason, so a new wait begins. */
static void test_waiting_begins_when_a_report_names_it(void **state)
{
	_cleanup_json_ json_t *s = compute(TARGET("", READY("Unknown", "ReportFull", "01")),
					   "[" NODE("n1", 1, true, false, "") "]", 1);

	(void)state;
	assert_string_equal(json_str_at(condition(s, "Ready"), "lastTransitionTime", ""), NOW);
	assert_null(json_object_get(s, "firstReadyTime"));
}

static void test_counters_and_failures(void **state)
{
	_cleanup_json_ json_t *s = compute(
		TARGET("", ""),
		"[" NODE("n1", 1, false, false, WHY("PodOptedOut", 2)) "," NODE(
			"n2", 2, true, true,
			WHY("PodOptedOut", 1) "," WHY(
				"RateCapped",
				0)) "," NODE("n3", 0, false, false,
					     WHY("MissingCapability",
						 0)) ","
						     "{\"node\": \"n4\", \"generation\": 1}]",
		4);
	_cleanup_json_ json_t *want =
		json_loads("{\"podsMatched\": 9, \"podsProfiling\": 3, \"containersProfiling\": 3, "
			   "\"nodesMatched\": "
			   "4, \"nodesReporting\": 3, \"nodesProfiling\": 2, \"nodesFailed\": 1}",
			   0, NULL);
	const json_t *first;

	(void)state;
	assert_true(json_equal(want, json_object_get(s, "summary")));
	assert_int_equal(json_array_size(json_object_get(s, "failures")), 3);
	first = json_array_get(json_object_get(s, "failures"), 0);
	assert_string_equal(json_str_at(first, "reason", ""), "PodOptedOut");
	assert_int_equal(json_int_at(first, "nodes", 0), 2);
	assert_int_equal(json_int_at(first, "pods", 0), 3);
	assert_int_equal(json_array_size(json_object_get(first, "exampleNodes")), 2);
	assert_string_equal(json_str_at(s, "events", ""), "on-cpu");
}

/* The message must show why there is no memory profile. */
static void test_messages_name_the_events(void **state)
{
	_cleanup_json_ json_t *part =
		compute(TARGET(TWO, UNKNOWN_SINCE("10")),
			"[" BOTH("n1", STORED, NOTHING, WHY("OverBudget", 0)) "]", 1);
	_cleanup_json_ json_t *early = compute(TARGET(TWO, UNKNOWN_SINCE("29")),
					       "[" BOTH("n1", STORED, NOTHING, "") "]", 1);
	_cleanup_json_ json_t *quiet = compute(TARGET(TWO, UNKNOWN_SINCE("10")),
					       "[" BOTH("n1", NOTHING, NOTHING, "") "]", 1);
	_cleanup_json_ json_t *left_out = compute(
		TARGET(TWO, ""), "[" NODE("n1", 1, true, true, WHY("EventNotAllowed", 0)) "]", 1);
	_cleanup_json_ json_t *all = compute(TARGET(", \"events\": {\"onCpu\": {}, \"offCpu\": {}, "
						    "\"memAlloc\": {}, \"memInuse\": "
						    "{}}",
						    ""),
					     "[]", 1);

	(void)state;
	assert_string_equal(
		json_str_at(condition(part, "Ready"), "message", ""),
		"samples of on-cpu are stored; there are none of mem-alloc: OverBudget");
	assert_string_equal(json_str_at(condition(early, "Ready"), "message", ""),
			    "the agents are sampling, but have taken no sample of mem-alloc yet");
	assert_string_equal(
		json_str_at(condition(quiet, "Ready"), "message", ""),
		"1 container is selected; nothing of on-cpu, mem-alloc has happened there yet");
	assert_string_equal(json_str_at(condition(left_out, "Ready"), "message", ""),
			    "samples of on-cpu are stored. Note: the agents leave out mem-alloc; "
			    "Degraded says why");
	assert_string_equal(json_str_at(condition(left_out, "Degraded"), "reason", ""),
			    "EventNotAllowed");
	assert_string_equal(json_str_at(left_out, "events", ""), "on-cpu");
	assert_string_equal(json_str_at(part, "events", ""), "on-cpu,mem-alloc");
	assert_string_equal(json_str_at(all, "events", ""), "on-cpu,off-cpu,mem-alloc,mem-inuse");
}

#define SAYS(reason, text) "{\"reason\": \"" reason "\", \"message\": \"" text "\", \"pods\": 1}"

static void assert_message(const json_t *status, const char *type, const char *want)
{
	assert_string_equal(json_str_at(condition(status, type), "message", ""), want);
}

/* Each node names its own containers. The message has the texts of both nodes. */
static void test_nodes_say_different_things(void **state)
{
	_cleanup_json_ json_t *two = compute(
		TARGET("", ""),
		"[" NODE("n1", 1, true, true, SAYS("OverBudget", "app of pod a is off")) "," NODE(
			"n2", 1, true, true, SAYS("OverBudget", "app of pod b is off")) "]",
		2);
	_cleanup_json_ json_t *five = compute(
		TARGET("", ""),
		"[" NODE("n1", 1, true, true, SAYS("OverBudget", "1")) "," NODE(
			"n2", 1, true, true,
			SAYS("OverBudget",
			     "2")) "," NODE("n3", 1, true, true,
					    SAYS("OverBudget",
						 "1")) "," NODE("n4", 1, true, true,
								SAYS("OverBudget",
								     "4")) "," NODE("n5", 1, true,
										    true,
										    SAYS("OverBudge"
											 "t",
											 "5")) "]",
		5);
	const json_t *failure = json_array_get(json_object_get(two, "failures"), 0);

	(void)state;
	assert_message(two, "Degraded",
		       "on 2 nodes (n1, n2): n1: app of pod a is off; n2: app of pod b is off");
	assert_string_equal(json_str_at(failure, "message", ""),
			    "n1: app of pod a is off; n2: app of pod b is off");
	assert_int_equal(json_int_at(failure, "pods", 0), 2);
	assert_message(five, "Degraded",
		       "on 5 nodes (n1, n2, n3, ...): n1: 1; n2: 2; n4: 4; and of 1 more");
}

static void test_long_texts_leave_room_for_each_other(void **state)
{
	_cleanup_free_ char *x = xcalloc(1, 1001), *entries = NULL;
	_cleanup_json_ json_t *s = NULL;
	const char *message;

	(void)state;
	memset(x, 'x', 1000);
	entries = xasprintf("[" NODE("n1", 1, true, true, SAYS("OverBudget", "%s\u00e41")) "," NODE(
				    "n2", 1, true, true,
				    SAYS("OverBudget", "2 %s") "," SAYS("Estimated", "%s")) "]",
			    x, x, x);
	s = compute(TARGET("", ""), entries, 2);
	message = json_str_at(condition(s, "Degraded"), "message", "");
	assert_true(strlen(message) <= 1024);
	assert_non_null(strstr(message, "...; n2: 2 xxx"));
	assert_non_null(strstr(message, "... See failures for Estimated"));
	assert_int_equal(json_array_size(json_object_get(s, "failures")), 2);
}

/*
 * The names of the other reasons have 20 bytes each. The message has room for 9 of them, and the
 * number of the rest.
 */
static void test_reasons_without_room_are_numbered(void **state)
{
	static const struct {
		int n;
		const char *end;
	} cases[] = {
		{2, "why. See failures for Reason00000000000001"},
		{10, ", Reason00000000000008, Reason00000000000009"},
		{11, ", Reason00000000000009 and 1 more"},
		{30, ", Reason00000000000009 and 20 more"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_buf_ struct buf entries = {0};
		_cleanup_json_ json_t *s = NULL;
		const char *message;

		/* one reason per node, because an entry has room for only a few */
		for (int k = 0; k < cases[i].n; k++)
			buf_printf(&entries,
				   "%s" NODE("n%d", 1, true, true, SAYS("Reason%014d", "why")),
				   k ? "," : "[", k, k);
		buf_puts(&entries, "]");
		s = compute(TARGET("", ""), entries.data, 1);
		message = json_str_at(condition(s, "Degraded"), "message", "");
		assert_true(str_has_prefix(message, "on 1 node (n0): why. See failures for "));
		if (!str_has_suffix(message, cases[i].end))
			fail_msg("%d reasons: %s", cases[i].n, message);
	}
}

/* Three nodes with very long names and long texts. more: further reasons of the first node. */
#define LONG_NODES(more)                                                                           \
	"[" NODE("1%1$.252s", 1, true, true, SAYS("OverBudget", "%1$s") more) "," NODE(            \
		"2%1$.252s", 1, true, true,                                                        \
		SAYS("OverBudget", "%1$s")) "," NODE("3%1$.252s", 1, true, true,                   \
						     SAYS("OverBudget", "%1$s")) "]"

static void test_a_long_message_says_that_it_is_cut(void **state)
{
	_cleanup_free_ char *x = xcalloc(1, 1001), *one = NULL, *two = NULL, *had = NULL;
	_cleanup_json_ json_t *alone = NULL, *beside = NULL, *noted = NULL;
	const char *message;

	(void)state;
	memset(x, 'x', 1000);
	one = xasprintf(LONG_NODES(""), x);
	alone = compute(TARGET("", ""), one, 3);
	message = json_str_at(condition(alone, "Degraded"), "message", "");
	assert_int_equal(strlen(message), 1024);
	assert_true(str_has_suffix(message, "xxx..."));
	/* names of nodes are shortened, those of reasons are not */
	two = xasprintf(LONG_NODES("," SAYS("Estimated", "")), x);
	beside = compute(TARGET("", ""), two, 3);
	message = json_str_at(condition(beside, "Degraded"), "message", "");
	assert_true(strlen(message) <= 1024);
	assert_non_null(strstr(message, "xxx...: xxx"));
	assert_true(str_has_suffix(message, "... See failures for Estimated"));
	/* the old message is long, and a note is added to it */
	had = xasprintf(TARGET("", "\"conditions\": [{\"type\": \"Ready\", \"status\": \"True\", "
				   "\"reason\": \"Profiling\", \"message\": \"%s\", "
				   "\"observedGeneration\": 2}]"),
			x);
	noted = compute(
		had, "[" NODE("n1", 1, true, false, SAYS("GoroutinesNotSeen", "threads only")) "]",
		1);
	message = json_str_at(condition(noted, "Ready"), "message", "");
	assert_int_equal(strlen(message), 416 + strlen(". Note: threads only"));
	assert_true(str_has_suffix(message, "xxx.... Note: threads only"));
}

/*
 * The note stands once in the message of Ready, however often the status is computed. It is no
 * failure.
 */
static void test_notes(void **state)
{
	static const char entries[] =
		"[" BOTH("n1", STORED, STORED, SAYS("GoroutinesNotSeen", "threads only")) "]";
	static const char later[] =
		"[" BOTH("n1", STORED, NOTHING, SAYS("GoroutinesNotSeen", "threads alone")) "]";
	static const char text[] = "samples of on-cpu,mem-alloc are stored. Note: threads only";
	_cleanup_json_ json_t *s = compute(TARGET(TWO, ""), entries, 1), *again = NULL;
	_cleanup_json_ json_t *target = json_loads(TARGET(TWO, ""), 0, NULL);
	_cleanup_free_ char *had = NULL;

	(void)state;
	assert_message(s, "Ready", text);
	assert_int_equal(json_array_size(json_object_get(s, "failures")), 0);
	json_object_set(target, "status", s);
	had = json_dumps(target, 0);
	/* an agent that has just started has not yet sampled all events */
	again = compute(had, later, 1);
	assert_message(again, "Ready",
		       "samples of on-cpu,mem-alloc are stored. Note: threads alone");
}

/* The message has the counts and the names of three nodes, whatever Ready is. */
static void test_nodes_without_agent(void **state)
{
	static const char some[] = "[" NODE("n0", 1, true, true, "") "," LACK("n1") "," LACK(
		"n2") "," LACK("n3") "," LACK("n4") "]";
	_cleanup_json_ json_t *all = compute(TARGET("", READY("False", "NodeWithoutAgent", "01")),
					     "[" LACK("n1") "]", 3);
	_cleanup_json_ json_t *none = compute(TARGET("", READY("False", "NoAgents", "01")),
					      "[" LACK("n1") "," LACK("n2") "]", 0);
	_cleanup_json_ json_t *s = compute(TARGET("", ""), some, 3);
	_cleanup_json_ json_t *want = json_loads(
		"{\"podsMatched\": 15, \"podsProfiling\": 1, \"containersProfiling\": 1, "
		"\"nodesMatched\": 5, \"nodesReporting\": 1, \"nodesProfiling\": 1, "
		"\"nodesFailed\": 4}",
		0, NULL);
	const json_t *failure = json_array_get(json_object_get(s, "failures"), 0);

	(void)state;
	assert_message(all, "Ready",
		       "2 pods on 1 node (n1) without an agent are not profiled: says why");
	assert_message(none, "Ready",
		       "no agent reports: look at the DaemonSet podflame-agent. Note: 4 pods on 2 "
		       "nodes (n1, n2) without an agent are not profiled: says why");
	assert_true(json_equal(want, json_object_get(s, "summary")));
	assert_message(s, "Ready",
		       "samples of on-cpu are stored. Note: 8 pods on 4 nodes (n1, n2, n3, ...) "
		       "without an agent are not profiled: says why");
	assert_message(s, "Degraded", "on 4 nodes (n1, n2, n3, ...): says why");
	assert_string_equal(json_str_at(failure, "reason", ""), "NodeWithoutAgent");
	assert_int_equal(json_int_at(failure, "nodes", 0), 4);
	assert_int_equal(json_int_at(failure, "pods", 0), 8);
	assert_int_equal(json_array_size(json_object_get(failure, "exampleNodes")), 3);
}

/*
 * Unknown pods are noted in the message, and only once, however often it is computed. A suspended
 * target gets no such note.
 */
static void test_pods_that_are_not_known(void **state)
{
	static const char entries[] = "[" NODE("n1", 1, true, true, "") "," LACK("n2") "]";
	_cleanup_json_ json_t *s = NULL, *again = NULL, *over = NULL;
	_cleanup_json_ json_t *target = json_loads(TARGET("", ""), 0, NULL);
	_cleanup_free_ char *had = NULL;
	static const char text[] = "samples of on-cpu are stored. Note: 2 pods on 1 node (n2) "
				   "without an agent are not "
				   "profiled: says why; pods are not known";

	(void)state;
	unseen = "pods are not known";
	s = compute(TARGET("", ""), entries, 1);
	assert_message(s, "Ready", text);
	json_object_set(target, "status", s);
	had = json_dumps(target, 0);
	again = compute(had, "[" NODE("n1", 1, true, false, "") "," LACK("n2") "]", 1);
	assert_message(again, "Ready", text);
	over = compute(TARGET(", \"suspend\": true", ""), "[]", 1);
	assert_message(over, "Ready", "spec.suspend is true");
	unseen = NULL;
}

static void test_failures_are_bounded(void **state)
{
	_cleanup_json_ json_t *s = compute(
		TARGET("", ""),
		"[" NODE("n1", 0, false, false,
			 WHY("A", 1) "," WHY("B", 1) "," WHY("C", 1) "," WHY(
				 "D",
				 1)) "," NODE("n2", 0, false, false,
					      WHY("E", 1) "," WHY("F", 1) "," WHY("G", 1) "," WHY(
						      "H", 1)) "," NODE("n3", 0, false, false,
									WHY("I", 1)) "]",
		3);

	const json_t *list = json_object_get(s, "failures"), *last = json_array_get(list, 7);

	(void)state;
	assert_int_equal(json_array_size(list), 8);
	assert_string_equal(json_str_at(last, "reason", ""), "FailuresOmitted");
	assert_string_equal(json_str_at(last, "message", ""), "2 more: H, I");
}

/*
 * In the API, the list of failures is a map with the reason as key, so no reason may be there
 * twice.
 */
static void test_no_reason_is_there_twice(void **state)
{
#define OMITTED WHY("ReasonsOmitted", 1) "," WHY("FailuresOmitted", 1)
#define D_TO_H	WHY("D", 1) "," WHY("E", 1) "," WHY("F", 1) "," WHY("G", 1) "," WHY("H", 1)
#define I_TO_L	WHY("I", 1) "," WHY("J", 1) "," WHY("K", 1) "," WHY("L", 1)
	static const char nodes[] =
		"[" NODE("n1", 0, false, false, OMITTED "," WHY("C", 1)) "," NODE(
			"n2", 0, false, false, D_TO_H) "," NODE("n3", 0, false, false, I_TO_L) "]";
	_cleanup_json_ json_t *s = compute(TARGET("", ""), nodes, 3);
	const json_t *list = json_object_get(s, "failures"), *last = json_array_get(list, 7);

	(void)state;
	assert_int_equal(json_array_size(list), 8);
	assert_string_equal(json_str_at(last, "message", ""), "4 more: J, K, L, ReasonsOmitted");
	for (size_t i = 0; i < 7; i++)
		assert_null(strstr(json_str_at(json_array_get(list, i), "reason", ""), "Omitted"));
}

static void test_what_was_asked_for_is_no_failure(void **state)
{
	_cleanup_json_ json_t *s =
		compute(TARGET(", \"suspend\": true", ""),
			"[" NODE("n1", 0, false, false, WHY("Suspended", 0)) "]", 1);

	(void)state;
	assert_int_equal(json_array_size(json_object_get(s, "failures")), 0);
}

static void test_first_ready_time(void **state)
{
	_cleanup_json_ json_t *first = compute(TARGET(", \"stopAfter\": \"5m\"", ""),
					       "[" NODE("n1", 1, true, true, "") "]", 1);
	_cleanup_json_ json_t *later =
		compute(TARGET("", "\"firstReadyTime\": \"2026-11-20T00:00:00Z\""), "[]", 1);
	_cleanup_json_ json_t *never = compute(TARGET("", ""), "[]", 1);

	(void)state;
	assert_string_equal(json_str_at(first, "firstReadyTime", ""), NOW);
	assert_non_null(strstr(json_str_at(condition(first, "Completed"), "message", ""),
			       "2026-11-21T12:05:30Z"));
	assert_string_equal(json_str_at(later, "firstReadyTime", ""), "2026-11-20T00:00:00Z");
	assert_null(json_object_get(never, "firstReadyTime"));
	assert_null(condition(never, "Completed"));
}

static void test_transition_times(void **state)
{
	_cleanup_json_ json_t *same =
		compute(TARGET("", READY("False", "PodOptedOut", "01")), "[]", 1);
	_cleanup_json_ json_t *other = compute(TARGET("", READY("True", "Profiling", "01")),
					       "[" NODE("n1", 0, false, false, WHY("X", 1)) "]", 1);
	_cleanup_json_ json_t *keeps = compute(TARGET("", READY("True", "Idle", "01")),
					       "[" NODE("n1", 1, true, true, "") "]", 1);

	(void)state;
	assert_string_equal(json_str_at(condition(same, "Ready"), "lastTransitionTime", ""), NOW);
	assert_string_equal(json_str_at(condition(other, "Ready"), "lastTransitionTime", ""), NOW);
	assert_string_equal(json_str_at(condition(keeps, "Ready"), "lastTransitionTime", ""),
			    "2026-11-21T12:00:01Z");
}

/* When the spec changes, the wait begins again. */
static void test_new_generation_waits_anew(void **state)
{
	_cleanup_json_ json_t *s = compute(
		"{\"metadata\": {\"generation\": 2}, \"spec\": {\"podSelector\": {}}, \"status\": "
		"{\"conditions\": [{\"type\": \"Ready\", \"status\": \"Unknown\", \"reason\": "
		"\"Pending\", "
		"\"message\": \"\", \"lastTransitionTime\": \"2026-11-21T11:00:00Z\", "
		"\"observedGeneration\": 1}]}}",
		"[]", 1);

	(void)state;
	assert_string_equal(json_str_at(condition(s, "Ready"), "reason", ""), "Pending");
	assert_string_equal(json_str_at(condition(s, "Ready"), "lastTransitionTime", ""), NOW);
}

#define STACKS(node, samples, share)                                                               \
	"{\"node\": \"" node "\", \"generation\": 2, \"stacks\": {\"samples\": " #samples          \
	", \"finished\": \"" share "\"}}"

static void assert_stacks(const char *target, const char *entries, int64_t samples,
			  const char *share)
{
	_cleanup_json_ json_t *s = compute(target, entries, 3);

	assert_int_equal(json_int_at(s, "stacks.samples", 0), samples);
	assert_string_equal(json_str_at(s, "stacks.finished", "none"), share);
}

static void test_whole_stacks(void **state)
{
	static const char had[] =
		TARGET("", "\"stacks\": {\"samples\": 7, \"finished\": \"85.7%\"}");

	(void)state;
	assert_stacks(TARGET("", ""), "[" STACKS("n1", 1000, "99.0%") "]", 1000, "99.0%");
	/* weighted by samples, not by nodes */
	assert_stacks(had, "[" STACKS("n1", 1000, "100.0%") "," STACKS("n2", 3000, "96.0%") "]",
		      4000, "97.0%");
	assert_stacks(TARGET("", ""), "[" NODE("n1", 1, true, true, "") "]", 0, "none");
	assert_stacks(had, "[" NODE("n1", 1, true, true, "") "]", 7, "85.7%");
	/* the invalid shares of n2, n3 and n4 do not count */
	assert_stacks(TARGET("", ""),
		      "[" STACKS("n1", 10, "50.0%") "," STACKS("n2", -5, "x") "," STACKS(
			      "n3", 10, "700%") "," STACKS("n4", 9, "nan") "]",
		      10, "50.0%");
}

static void test_pods_that_are_not_verified(void **state)
{
	_cleanup_json_ json_t *s = NULL, *other = NULL;

	(void)state;
	unverified = "app/web-1 on node n1";
	s = compute(TARGET("", ""), "[" NODE("n1", 1, true, true, "") "]", 1);
	other = compute(TARGET("", ""),
			"[" NODE("n1", 1, true, true,
				 "{\"reason\": \"RateCapped\", \"message\": \"99 Hz\"}") "]",
			1);
	unverified = NULL;
	assert_string_equal(json_str_at(condition(s, "Degraded"), "reason", ""), "NotVerified");
	assert_string_equal(json_str_at(condition(s, "Degraded"), "status", ""), "True");
	assert_non_null(strstr(json_str_at(condition(s, "Degraded"), "message", ""),
			       "(app/web-1 on node n1); only users who may see all namespaces"));
	assert_string_equal(json_str_at(condition(s, "Ready"), "status", ""), "True");
	assert_string_equal(json_str_at(condition(other, "Degraded"), "reason", ""), "RateCapped");
	assert_non_null(strstr(json_str_at(condition(other, "Degraded"), "message", ""),
			       ". Note: the hub could not verify"));
}

/* A node that was taken over says that samples of a target are stored, which has no pod there. */
static void test_a_doubted_entry_stores_nothing(void **state)
{
	_cleanup_json_ json_t *s = compute(
		TARGET("", ""),
		"[{\"node\": \"n1\", \"generation\": 2, \"doubted\": true, \"containers\": 1, "
		"\"pods\": 1, \"podsMatched\": 1, \"events\": {\"on-cpu\": {\"sampled\": true, "
		"\"stored\": true}}}]",
		1);

	(void)state;
	assert_string_equal(json_str_at(condition(s, "Ready"), "status", ""), "Unknown");
	assert_string_equal(json_str_at(condition(s, "Ready"), "reason", ""), "WaitingForStore");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_a_full_report_proves_nothing),
		cmocka_unit_test(test_waiting_begins_when_a_report_names_it),
		cmocka_unit_test(test_counters_and_failures),
		cmocka_unit_test(test_messages_name_the_events),
		cmocka_unit_test(test_nodes_say_different_things),
		cmocka_unit_test(test_long_texts_leave_room_for_each_other),
		cmocka_unit_test(test_reasons_without_room_are_numbered),
		cmocka_unit_test(test_a_long_message_says_that_it_is_cut),
		cmocka_unit_test(test_notes),
		cmocka_unit_test(test_nodes_without_agent),
		cmocka_unit_test(test_pods_that_are_not_known),
		cmocka_unit_test(test_pods_that_are_not_verified),
		cmocka_unit_test(test_a_doubted_entry_stores_nothing),
		cmocka_unit_test(test_failures_are_bounded),
		cmocka_unit_test(test_no_reason_is_there_twice),
		cmocka_unit_test(test_what_was_asked_for_is_no_failure),
		cmocka_unit_test(test_first_ready_time),
		cmocka_unit_test(test_whole_stacks),
		cmocka_unit_test(test_transition_times),
		cmocka_unit_test(test_new_generation_waits_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
