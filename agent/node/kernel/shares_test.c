// SPDX-License-Identifier: Apache-2.0
/* What the targets of a namespace are told that has more than its share of a table. */
#include "node/report/testreport.h"
#include "node/work/testworkers.h"

#include "node/kernel/testkernel.h"
#include "node/proc/testowner.h"

#define OFF_CPU (1u << EVENT_OFF_CPU)

static struct work node_work;

static struct kernel *open(unsigned event_mask)
{
	struct plan *plan = testowner_plan();
	struct kernel *k;

	plan->pods->containers->event_mask = event_mask;
	testwork(&node_work);
	testowner_apply(node_work.containers, plan);
	k = testkernel_new(&node_work, NULL);
	k->config.report = testreport();
	return k;
}

static void done(struct kernel *k)
{
	struct report *r = k->config.report;

	testkernel_free(k);
	report_free(r);
	proc_containers_free(node_work.containers);
	node_work.containers = NULL;
}

/* Takes a drain at this second, and returns what the target is told. */
static const char *take(struct kernel *k, unsigned s, struct raw_refused *refused)
{
	struct drain d = {.refused = refused, .n_refused = refused != NULL};

	kernel_shares_take(k, &d, s * NSEC_PER_SEC);
	return testreport_problem(k->config.report, REASON_SHARE_EXCEEDED, NULL);
}

static const char *at(struct kernel *k, unsigned s, const char *refused_ns)
{
	struct raw_refused refused = {SHARED_WAITS, EVENT_OFF_CPU, 0};

	if (refused_ns)
		refused.ns = proc_ns_hash(refused_ns);
	return take(k, s, refused_ns ? &refused : NULL);
}

#define TOLD                                                                                       \
	"off-cpu of container main of pod web-1 is not whole: the namespace has more threads "     \
	"than its share of the table of threads that wait"

static void the_targets_of_the_namespace_are_told(void **state)
{
	struct kernel *k = open(OFF_CPU);

	(void)state;
	assert_string_equal(at(k, 1, NULL), "");
	assert_string_equal(at(k, 2, "other"), "");
	assert_string_equal(at(k, 3, "app"), TOLD);
	assert_string_equal(at(k, 62, NULL), TOLD);
	assert_string_equal(at(k, 63, NULL), "");
	done(k);
}

static void counts_have_a_text_of_their_own(void **state)
{
	struct kernel *k = open(1u << EVENT_ON_CPU);
	struct raw_refused refused = {SHARED_COUNTS, EVENT_ON_CPU, proc_ns_hash("app")};

	(void)state;
	assert_string_equal(
		take(k, 1, &refused),
		"on-cpu of container main of pod web-1 is not whole: the namespace has more "
		"different stacks in a second than its share of the table of counts");
	assert_string_equal(take(k, 61, NULL), "");
	done(k);
}

/* What the pipeline has lost is told with the next drain. */
static void work_is_told_with_the_next_drain(void **state)
{
	struct kernel *k = open(1u << EVENT_ON_CPU);
	const struct raw_refused refused = {SHARED_WORK, EVENT_ON_CPU, proc_ns_hash("app")};
	struct drain d = {0};

	(void)state;
	kernel_note_refused(k, &refused, 1);
	kernel_shares_take(k, &d, now_boot_ns());
	assert_string_equal(
		testreport_problem(k->config.report, REASON_SHARE_EXCEEDED, NULL),
		"on-cpu of container main of pod web-1 is not whole: the namespace has more "
		"samples than its share of what the agent can name in time");
	done(k);
}

static void not_who_does_not_ask_for_the_event(void **state)
{
	struct kernel *k = open(1u << EVENT_MEM_INUSE);

	(void)state;
	assert_string_equal(at(k, 1, "app"), "");
	done(k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_targets_of_the_namespace_are_told),
		cmocka_unit_test(counts_have_a_text_of_their_own),
		cmocka_unit_test(work_is_told_with_the_next_drain),
		cmocka_unit_test(not_who_does_not_ask_for_the_event),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
