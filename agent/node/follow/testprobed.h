/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of probed*.c only: a process in a container whose memory events may be attached steadily,
 * and probes that are counted instead of attached. This thread stands in for the workers.
 */
#pragma once

#include "node/alloc/alloc.h"
#include "node/follow/internal.h"
#include "node/kernel/testkernel.h"
#include "node/limit/limit.h"
#include "node/proc/testowner.h"
#include "node/work/testworkers.h"

#include <unistd.h>

#include "lib/base/testclock.h"

/* ---- probes ---- */

static char attached; /* stands for a struct attached */
static struct process_id probed; /* the process of the test */
static struct {
	int result; /* of the next attaching */
	bool lost, outlives;
	uint64_t moves;
	unsigned n_attached, n_detached, n_asked_for_thread, event_mask;
} probes;

static int note_attached(const struct pf_mem_proc *proc)
{
	probes.n_attached++;
	probes.event_mask = proc->event_mask;
	return probes.result;
}

static int probes_do_attach(struct probes *p, enum probe_set set, struct process_id id,
			    const struct pf_mem_proc *proc, const struct probe_file *files,
			    size_t n, struct attached **ret, struct probes_refused *ret_refused)
{
	(void)p;
	(void)set;
	(void)files;
	(void)n;
	(void)ret_refused;
	assert_true(process_id_equal(id, probed));
	if (probes.result == 0)
		*ret = (struct attached *)&attached;
	return note_attached(proc);
}

static int probes_do_change(struct probes *p, struct attached *a, const struct pf_mem_proc *proc,
			    const struct probe_file *files, size_t n,
			    struct probes_refused *ret_refused)
{
	(void)p;
	(void)files;
	(void)n;
	(void)ret_refused;
	assert_ptr_equal(a, &attached);
	return note_attached(proc);
}

static void probes_do_detach(struct probes *p, struct attached **items, size_t n)
{
	(void)p;
	for (size_t i = 0; i < n; i++)
		assert_ptr_equal(items[i], &attached);
	probes.n_detached += (unsigned)n;
}

static bool probes_do_lose(const struct attached *a)
{
	assert_ptr_equal(a, &attached);
	probes.n_asked_for_thread++;
	return probes.lost;
}

static bool probes_do_outlive(const struct attached *a)
{
	assert_ptr_equal(a, &attached);
	return probes.outlives;
}

static uint64_t probes_no_hits(const struct attached *a)
{
	assert_ptr_equal(a, &attached);
	return 0;
}

static uint64_t probes_n_moves(struct probes *p)
{
	(void)p;
	return probes.moves;
}

static const struct probe_calls counted_probes = {
	.attach = probes_do_attach,
	.attach_change = probes_do_change,
	.detach_all = probes_do_detach,
	.attached_lost = probes_do_lose,
	.attached_outlives = probes_do_outlive,
	.attached_hits = probes_no_hits,
	.moves = probes_n_moves,
};

/* ---- the process, which is this one ---- */

static struct work node_work;
static struct kernel *kernel;
static struct limit *limit;
static struct follow *follow;
static struct tracked *tracked;
static struct probed *memory; /* its set PROBES_MEMORY */

/* The limit has tried the event in a span, which cost nearly nothing. */
static inline void allow_steadily(enum event e)
{
	const struct limit_spent calm = {
		.attached_ns = 10 * NSEC_PER_MSEC, .hits = 1, .cpu_ns = 10 * NSEC_PER_MSEC};
	struct limit_span span;

	assert_int_equal(limit_mode(limit, TEST_CGROUP, e, &span), LIMIT_SPANS);
	limit_spent(limit, TEST_CGROUP, probes_set_of(e), 1u << e, &calm);
	assert_int_equal(limit_mode(limit, TEST_CGROUP, e, &span), LIMIT_STEADY);
}

/* A target asks for this event of the process. */
static inline void probed_begin(const struct follow_calls *calls, enum event e)
{
	struct plan *plan = testowner_plan();

	testwork(&node_work);
	plan->pods->containers->event_mask = 1u << e;
	testowner_apply(node_work.containers, plan);
	kernel = testkernel_new(&node_work, NULL);
	limit = limit_new(&(struct limit_config){.work = &node_work,
						 .containers = node_work.containers});
	allow_steadily(e);
	follow = follow_new_with(&(struct follow_config){.work = &node_work,
							 .containers = node_work.containers,
							 .limit = limit,
							 .kernel = kernel},
				 calls);
	probed = (struct process_id){1000, (uint64_t)getpid()};
	tracked = follow_track(follow, probed);
	tracked->cgroup_id = TEST_CGROUP;
	memory = &tracked->probed[PROBES_MEMORY];
	memset(&probes, 0, sizeof(probes));
}

static inline void probed_end(void)
{
	posted_run_all();
	follow_unloaded(follow);
	posted_run_all();
	assert_true(follow_is_detached(follow));
	follow = follow_free(follow);
	kernel = testkernel_free(kernel);
	limit = limit_free(limit);
}

/* ---- the same process, with a place to be probed ---- */

#define KNOWN "half of it is not seen" /* at its one place */

static const struct follow_calls probing_calls = {.probes = &counted_probes};
static struct mapping known_library = {.inode = 1, .fd = -1};
static struct mappings known_maps = {.exec_id = 5, .items = &known_library, .n = 1, .refs = 1};

/* It asks for mem-alloc. Its places are known, and there is one. */
static inline int begin_with_sites(void **state)
{
	(void)state;
	probed_begin(&probing_calls, EVENT_MEM_ALLOC);
	tracked->exec_id = 5;
	memory->m = proc_mappings_ref(&known_maps);
	memory->sites = xcalloc(1, sizeof(*memory->sites));
	memory->sites->items = xcalloc(1, sizeof(*memory->sites->items));
	memory->sites->n = 1;
	snprintf(memory->sites->problem, sizeof(memory->sites->problem), KNOWN);
	memory->looked_mask = 1u << EVENT_MEM_ALLOC;
	workers.n_given_time = workers.n_replaced = 0;
	workers.replace_result = 0;
	return 0;
}

static inline int end_with_sites(void **state)
{
	(void)state;
	posted_run_all();
	assert_int_equal(follow->n_attaching, 0);
	assert_int_equal(follow->stuck.n, 0);
	assert_null(follow->stuck.waits);
	probed_end();
	assert_int_equal(known_maps.refs, 1);
	return 0;
}

static inline void assert_told(const char *part)
{
	assert_non_null(memory->problem);
	if (!strstr(memory->problem, part))
		fail_msg("%s", memory->problem);
}

/* How often attaching ended in this way. */
static inline uint64_t n_ended(const char *result)
{
	return counter_get(counter(PROBES_COUNTER, "result", result));
}

static inline void clock_stands(void)
{
	test_clock.stands_ns = 1000 * NSEC_PER_SEC;
}

static inline int clock_goes_on(void **state)
{
	test_clock.stands_ns = 0;
	return end_with_sites(state);
}
